//! A transport whose every call is pending once, and what polls it.

use core::convert::Infallible;
use core::future::poll_fn;
use core::pin::pin;
use core::task::{Context, Poll, Waker};

use embedded_io::ErrorType;
use embedded_io_async::{Read, Write};

/// Bytes to read and room to write, at most `step` at once; each call is pending once before it
/// moves any, and only the transport knows that it was.
#[derive(Debug)]
pub struct Slow<'b> {
    /// What is still to be read.
    pub from: &'b [u8],
    /// Room that is still to be written.
    pub to: &'b mut [u8],
    /// The most that a call moves.
    pub step: usize,
    /// How often a call was pending.
    pub pending: u32,
    is_ready: bool,
}

impl<'b> Slow<'b> {
    /// Begins with nothing moved.
    pub const fn new(from: &'b [u8], to: &'b mut [u8], step: usize) -> Self {
        Self { from, to, step, pending: 0, is_ready: false }
    }

    async fn turn(&mut self) {
        poll_fn(|_| {
            self.is_ready = !self.is_ready;
            if self.is_ready {
                self.pending += 1;
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
    }
}

impl ErrorType for Slow<'_> {
    type Error = Infallible;
}

impl Read for Slow<'_> {
    async fn read(&mut self, to: &mut [u8]) -> Result<usize, Infallible> {
        self.turn().await;
        let count = self.from.len().min(self.step).min(to.len());
        let (now, later) = self.from.split_at(count);
        to[..count].copy_from_slice(now);
        self.from = later;
        Ok(count)
    }
}

impl Write for Slow<'_> {
    async fn write(&mut self, from: &[u8]) -> Result<usize, Infallible> {
        self.turn().await;
        let count = self.to.len().min(self.step).min(from.len());
        let (now, later) = core::mem::take(&mut self.to).split_at_mut(count);
        now.copy_from_slice(&from[..count]);
        self.to = later;
        Ok(count)
    }

    async fn flush(&mut self) -> Result<(), Infallible> {
        self.turn().await;
        Ok(())
    }
}

/// Polls a future to its end.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
    }
}

/// Makes futures and drops each at its first pending, until one is ready at once.
pub fn drop_pending<T>(mut once: impl AsyncFnMut() -> T) -> T {
    loop {
        let polled = pin!(once()).poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(output) = polled {
            return output;
        }
    }
}
