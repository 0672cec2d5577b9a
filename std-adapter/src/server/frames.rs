//! Bytes on their way out: a frame's header and its payload apart, so that no payload is copied.

use std::io::IoSlice;

use bytes::{Buf, Bytes};
use triwire::exec::frame::HEADER_SIZE;

/// Bytes to send: a small front, then a payload that is shared with whoever made it.
#[derive(Clone, Debug, Default)]
pub(super) struct FrameBuf {
    head: [u8; HEADER_SIZE],
    /// Bytes of `head` that were sent.
    sent: usize,
    payload: Bytes,
}

impl FrameBuf {
    pub(super) fn new(head: [u8; HEADER_SIZE], payload: Bytes) -> Self {
        Self { head, sent: 0, payload }
    }

    /// Bytes as they are: an answer, or a frame that was written whole.
    pub(super) fn whole(bytes: Bytes) -> Self {
        Self { head: [0; HEADER_SIZE], sent: HEADER_SIZE, payload: bytes }
    }

    fn head(&self) -> &[u8] {
        self.head.get(self.sent..).unwrap_or_default()
    }

    /// Splits what is left into at most two parts, small ones joined.
    pub(super) fn into_parts(mut self) -> [Bytes; 2] {
        /// Up to here a copy costs less than a message of its own.
        const SMALL: usize = 4096;
        if self.head().is_empty() {
            return [Bytes::new(), self.payload];
        }
        if self.payload.len() <= SMALL {
            return [Bytes::new(), self.copy_to_bytes(self.remaining())];
        }
        [Bytes::copy_from_slice(self.head()), self.payload]
    }
}

impl Buf for FrameBuf {
    fn remaining(&self) -> usize {
        self.head().len().saturating_add(self.payload.len())
    }

    fn chunk(&self) -> &[u8] {
        if self.head().is_empty() { &self.payload } else { self.head() }
    }

    fn chunks_vectored<'a>(&'a self, out: &mut [IoSlice<'a>]) -> usize {
        let parts = [self.head(), &self.payload];
        let mut parts = parts.into_iter().filter(|part| !part.is_empty());
        let mut count = 0;
        for slot in out {
            let Some(part) = parts.next() else { break };
            *slot = IoSlice::new(part);
            count += 1;
        }
        count
    }

    fn advance(&mut self, count: usize) {
        let of_head = count.min(self.head().len());
        self.sent += of_head;
        self.payload.advance(count - of_head);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_leaves_in_order_however_it_is_taken() {
        let frame = FrameBuf::new(*b"headhead", Bytes::from_static(b"payload"));
        for step in 1..=15 {
            let mut left = frame.clone();
            let mut out = Vec::new();
            while left.has_remaining() {
                let mut slices = [IoSlice::new(b""); 4];
                let count = left.chunks_vectored(&mut slices);
                let bytes: Vec<u8> = slices[..count].iter().flat_map(|s| s.to_vec()).collect();
                let taken = step.min(bytes.len());
                out.extend_from_slice(&bytes[..taken]);
                left.advance(taken);
            }
            assert_eq!(out, b"headheadpayload");
        }
        assert_eq!(frame.into_parts().concat(), b"headheadpayload");
    }
}
