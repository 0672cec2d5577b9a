//! When a peer was last heard, whatever it sent.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use triwire::time::Instant;

use crate::clock::Clock;

/// A transport that remembers when bytes came.
pub(crate) struct Heard<S> {
    transport: S,
    clock: Clock,
    at: Instant,
}

impl<S> Heard<S> {
    pub(crate) fn new(transport: S, clock: Clock) -> Self {
        Self { transport, clock, at: clock.now() }
    }

    /// Returns when the last bytes came.
    pub(crate) const fn at(&self) -> Instant {
        self.at
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Heard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = room.filled().len();
        let read = Pin::new(&mut self.transport).poll_read(cx, room);
        if room.filled().len() > before {
            self.at = self.clock.now();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Heard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.transport).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_shutdown(cx)
    }
}
