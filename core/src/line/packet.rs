//! One packet of the line, from bytes and to bytes.

use cobs::{DecodeResult, DecoderState, EncoderState, PushResult};
use crc::{CRC_16_IBM_3740, Crc, NoTable};

use super::MAX_PACKET;

/// Bytes of the check at a packet's end.
const CRC_SIZE: usize = 2;

/// What surrounds a packet on the wire: one code byte before it, since no packet reaches the 254
/// bytes that would need a second, and the zero byte behind it.
const FRAMING: usize = 2;

// A table would be faster and take more flash than the whole machine's credit accounting.
const CRC: Crc<u16, NoTable> = Crc::<u16, NoTable>::new(&CRC_16_IBM_3740);

/// The memory in which one direction's packet is put together; events lend data out of it.
///
/// It belongs to the receiving half of an adapter, beside its [`Inbox`](crate::buffer::Inbox):
/// one for each line, kept from call to call. A new one in its place costs the packet that was
/// half received, and nothing else.
#[derive(Debug)]
pub struct Packet {
    /// Bytes until the next zero or code byte; `None` between packets.
    run: Option<u8>,
    /// Bytes decoded so far, also of those that there was no room for; stops at the largest count.
    len: u8,
    /// Whether a packet stands here that is not yet worked off.
    whole: bool,
    bytes: [u8; MAX_PACKET],
}

impl Default for Packet {
    fn default() -> Self {
        Self::new()
    }
}

impl Packet {
    /// Makes an empty one.
    #[must_use]
    pub const fn new() -> Self {
        Self { run: None, len: 0, whole: false, bytes: [0; MAX_PACKET] }
    }

    /// Advances `input` to the end of the next packet: `Some(true)` when it is whole, `Some(false)`
    /// when it is broken, `None` when the input ends before it does.
    pub(super) fn take(&mut self, input: &mut &[u8]) -> Option<bool> {
        while let [byte, rest @ ..] = *input {
            *input = rest;
            let mut state = self.run.map_or(DecoderState::Idle, DecoderState::Grab);
            let decoded = state.feed(*byte);
            // A run of the longest code is longer than any packet, so how it ends does not count,
            // and the decoder's second half is not needed.
            self.run = match state {
                DecoderState::Idle => None,
                DecoderState::Grab(left) | DecoderState::GrabChain(left) => Some(left),
            };
            match decoded {
                Ok(DecodeResult::NoData) => {}
                Ok(DecodeResult::DataStart) => self.len = 0,
                Ok(DecodeResult::DataContinue(byte)) => {
                    // Past the end the length alone stands for what is not kept.
                    set(&mut self.bytes, self.len.into(), byte);
                    self.len = self.len.saturating_add(1);
                }
                Ok(DecodeResult::DataComplete) => {
                    // Over a packet and its own check the sum is the algorithm's residue.
                    self.whole = self
                        .bytes
                        .get(..usize::from(self.len))
                        .is_some_and(|all| sum(all) == CRC_16_IBM_3740.residue);
                    return Some(self.whole);
                }
                Err(_) => return Some(false),
            }
        }
        None
    }

    /// Reports whether a packet waits to be worked off.
    pub(super) const fn is_whole(&self) -> bool {
        self.whole
    }

    /// Marks the packet as worked off; its bytes stay until the next begins.
    pub(super) const fn done(&mut self) {
        self.whole = false;
    }

    /// Returns kind, stream and payload.
    #[inline(never)]
    pub(super) fn body(&self) -> &[u8] {
        let end = usize::from(self.len).saturating_sub(CRC_SIZE);
        self.bytes.get(..end).unwrap_or_default()
    }
}

/// Writes the packet of `head` (kind, stream, first fields) and `rest` into `out` as it goes over
/// the wire; `None` when there is not the room of [`wire_len`].
pub(super) fn write<'o>(out: &'o mut [u8], head: &[u8], rest: &[u8]) -> Option<&'o [u8]> {
    let needed = wire_len(head.len().saturating_add(rest.len()));
    let out = out.get_mut(..needed)?;
    let [_, plain @ .., last] = out else { return None };
    *last = 0;
    let (body, check) = plain.split_last_chunk_mut()?;
    for (place, byte) in body.iter_mut().zip(head.iter().chain(rest)) {
        *place = *byte;
    }
    *check = sum(body).to_be_bytes();
    // A packet is too short for a code byte in its middle: each zero becomes the distance to the
    // next where it stands.
    let mut state = EncoderState::default();
    for at in 1..needed.saturating_sub(1) {
        let Some(byte) = out.get(at) else { break };
        if let PushResult::ModifyFromStartAndSkip((code, distance)) = state.push(*byte) {
            set(out, code, distance);
        }
    }
    let (code, distance) = state.finalize();
    set(out, code, distance);
    Some(out)
}

fn set(out: &mut [u8], at: usize, byte: u8) {
    if let Some(place) = out.get_mut(at) {
        *place = byte;
    }
}

/// Returns the check of a body; of a body and its check, the algorithm's residue.
fn sum(body: &[u8]) -> u16 {
    CRC.checksum(body)
}

/// Returns the bytes on the wire of a packet whose kind, stream and payload take `body` bytes.
pub(super) const fn wire_len(body: usize) -> usize {
    body.saturating_add(CRC_SIZE + FRAMING)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::unwrap_used)]

    extern crate std;

    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_check_is_the_catalogues() {
        // rule: LINE-1
        assert_eq!(sum(b"123456789"), 0x29B1);
        let mut out = [0xEE; 8];
        // A close of stream 4; its zero check byte, if any, would be coded.
        assert_eq!(write(&mut out, &[3, 4], &[]).unwrap().len(), 6);
        let [high, low] = sum(&[3, 4]).to_be_bytes();
        assert_eq!(out, [5, 3, 4, high, low, 0, 0xEE, 0xEE]);
        assert_eq!(write(&mut out[..5], &[3, 4], &[]), None);
    }

    #[test]
    fn the_longest_packet_is_taken_and_a_longer_one_is_broken() {
        // rule: LINE-1
        for (rest, whole) in [(MAX_PACKET - 4, true), (MAX_PACKET - 3, false), (MAX_PACKET, false)]
        {
            let mut out = [0; 300];
            let n = write(&mut out, &[2, 0], &[7; MAX_PACKET][..rest]).unwrap().len();
            let mut packet = Packet::new();
            let mut input = &out[..n];
            assert_eq!(packet.take(&mut input), Some(whole), "{rest}");
            assert!(input.is_empty());
        }
        let mut noise = &[&[9; 5_000][..], &[0]].concat()[..];
        assert_eq!(Packet::new().take(&mut noise), Some(false));
    }

    #[test]
    fn one_wrong_bit_breaks_it() {
        // rule: LINE-2
        let mut good = [0; 64];
        let n = write(&mut good, &[2, 9, 0], b"some bytes\0 with a zero").unwrap().len();
        for bit in 0..(n - 1) * 8 {
            let mut wire = good;
            wire[bit / 8] ^= 1 << (bit % 8);
            let (mut packet, mut input) = (Packet::new(), &wire[..n]);
            while let Some(whole) = packet.take(&mut input) {
                assert!(!whole, "bit {bit}");
            }
        }
    }

    #[test]
    fn zeros_between_packets_are_nothing() {
        assert_eq!(Packet::new().take(&mut &[0; 9][..]), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_in_any_pieces(
            payload in proptest::collection::vec(0u8..4, 0..=240),
            step in 1usize..260,
        ) {
            // rule: LINE-1
            let mut out = [0xEE; 256];
            let n = write(&mut out, &[2, 9], &payload).unwrap().len();
            prop_assert!(!out[..n - 1].contains(&0) && out[n - 1] == 0);
            let mut packet = Packet::new();
            let mut seen = Vec::new();
            for part in out[..n].chunks(step) {
                seen.extend(packet.take(&mut &part[..]));
            }
            prop_assert_eq!(seen, [true]);
            prop_assert_eq!(packet.body(), [&[2, 9][..], &payload].concat());
        }
    }
}
