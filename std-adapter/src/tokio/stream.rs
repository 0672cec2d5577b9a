//! Links over byte streams: anything that is [`AsyncRead`] or [`AsyncWrite`].
//!
//! ```
//! use triwire_std::Wake;
//! use triwire_std::clock::Clock;
//! use triwire_std::tokio::stream::{Rx, Tx};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (near, far) = tokio::io::duplex(64);
//! let mut tx = Tx::new(near, [0; 16]);
//! tx.send(b"hello")?;
//! tx.flush().await?;
//!
//! let mut rx = Rx::new(far, [0; 16]);
//! assert_eq!(rx.wait(None).await?, Wake::Bytes);
//! rx.next().unwrap().rest = b""; // all of it is used
//!
//! let clock = Clock::start(); // a machine's deadline, as tokio counts it
//! let deadline = Some(clock.now()).map(|moment| clock.to_tokio(moment));
//! assert_eq!(rx.wait(deadline).await?, Wake::Deadline);
//! # Ok(())
//! # }
//! ```

use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, timeout_at};
use triwire::buffer::{Inbox, Outbox, Window};

use crate::link::write_zero;
use crate::{Full, InboxFull, Wake};

/// The receiving half of a link over an [`AsyncRead`].
///
/// `B` bounds what must stand whole in the window at once; it never grows.
#[derive(Debug)]
pub struct Rx<R, B = Box<[u8]>> {
    reader: R,
    inbox: Inbox<B>,
    /// No wait has told of the first bytes yet.
    untold: bool,
    ended: bool,
}

impl<R, B: AsRef<[u8]> + AsMut<[u8]>> Rx<R, B> {
    /// Makes a receiving half over `reader` with `buffer` for what is unread.
    pub fn new(reader: R, buffer: B) -> Self {
        Self { reader, inbox: Inbox::new(buffer), untold: false, ended: false }
    }

    /// Makes a receiving half whose first bytes, `unread`, were already read by someone else,
    /// such as the bytes behind an HTTP head.
    ///
    /// # Errors
    /// [`Full`] when `buffer` is shorter than `unread`.
    pub fn with_unread(reader: R, buffer: B, unread: &[u8]) -> Result<Self, Full> {
        let mut rx = Self::new(reader, buffer);
        let space = rx.inbox.space();
        let room = space.get_mut(..unread.len()).ok_or(Full { needed: unread.len() })?;
        room.copy_from_slice(unread);
        rx.inbox.filled(unread.len());
        rx.untold = true;
        Ok(rx)
    }

    /// Lends the unread bytes, or `None` when there are none or none that a machine has not seen.
    ///
    /// What is left in the window when it drops is lent again once more came behind it; so
    /// `while let Some(window) = rx.next()` ends.
    // Not an iterator: what it gives borrows the link.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Window<'_>> {
        self.inbox.lend()
    }

    /// Returns the bytes not yet used.
    #[must_use]
    pub fn unread(&self) -> &[u8] {
        self.inbox.unread()
    }

    /// Marks the first `count` unread bytes as used, for one who looked at them with
    /// [`unread`](Self::unread) instead of borrowing a window; more than there are marks all.
    pub fn consume(&mut self, count: usize) {
        self.inbox.consume(count);
    }

    /// Reports whether the peer's end was seen.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Returns the transport.
    #[must_use]
    pub fn reader(&self) -> &R {
        &self.reader
    }

    /// Returns the transport for changes; reading from it takes bytes away from this link.
    pub fn reader_mut(&mut self) -> &mut R {
        &mut self.reader
    }

    /// Gives the transport back; what is unread is lost.
    #[must_use]
    pub fn into_reader(self) -> R {
        self.reader
    }
}

impl<R: AsyncRead + Unpin, B: AsRef<[u8]> + AsMut<[u8]>> Rx<R, B> {
    /// Waits until more bytes came, the peer's end, or `until`.
    ///
    /// While the buffer is full of bytes that [`next`](Self::next) was not asked for, only
    /// `until` ends the wait: a caller who cannot send stops taking, and waits for both halves.
    ///
    /// # Errors
    /// The transport's; or [`InboxFull`] when every byte of the buffer was lent and none used.
    ///
    /// # Cancel safety
    /// Cancel safe: all progress is kept in `self`; a dropped wait has read nothing that is lost.
    pub async fn wait(&mut self, until: Option<Instant>) -> io::Result<Wake> {
        let woken = poll_fn(|cx| self.poll_wait(cx));
        match until {
            None => woken.await,
            Some(until) => timeout_at(until, woken).await.unwrap_or(Ok(Wake::Deadline)),
        }
    }

    /// Polls for what [`wait`](Self::wait) waits for, without a deadline: at most one read of the
    /// transport that gives bytes.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Wake>> {
        if self.ended {
            return Poll::Ready(Ok(Wake::End));
        }
        if std::mem::take(&mut self.untold) && self.inbox.has_news() {
            return Poll::Ready(Ok(Wake::Bytes));
        }
        if self.inbox.is_full() {
            let full = Poll::Ready(Err(InboxFull.into()));
            return if self.inbox.has_news() { Poll::Pending } else { full };
        }
        loop {
            let mut room = ReadBuf::new(self.inbox.space());
            match ready!(Pin::new(&mut self.reader).poll_read(cx, &mut room)) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Poll::Ready(Err(error)),
            }
            let count = room.filled().len();
            if count == 0 {
                self.ended = true;
                return Poll::Ready(Ok(Wake::End));
            }
            self.inbox.filled(count);
            return Poll::Ready(Ok(Wake::Bytes));
        }
    }
}

/// The sending half of a link over an [`AsyncWrite`].
///
/// `B` bounds one message and how much waits to be sent; it never grows.
#[derive(Debug)]
pub struct Tx<W, B = Box<[u8]>> {
    writer: W,
    outbox: Outbox<B>,
    /// Bytes went into the writer since it was last flushed.
    unflushed: bool,
}

impl<W, B: AsRef<[u8]> + AsMut<[u8]>> Tx<W, B> {
    /// Makes a sending half over `writer` with `buffer` for what is unsent.
    pub fn new(writer: W, buffer: B) -> Self {
        Self { writer, outbox: Outbox::new(buffer), unflushed: false }
    }

    /// Takes a copy of `bytes` to send, whole or not at all; never waits.
    ///
    /// # Errors
    /// [`Full`] when less room is left: stop producing, go on reading, and send again once
    /// [`flush`](Self::flush) made room.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Full> {
        self.outbox.push(bytes)
    }

    /// Reports whether `count` more bytes can be taken.
    #[must_use]
    pub fn has_room(&self, count: usize) -> bool {
        self.outbox.room() >= count
    }

    /// Returns the bytes that wait here.
    #[must_use]
    pub fn unsent(&self) -> &[u8] {
        self.outbox.unsent()
    }

    /// Returns the room behind what waits, for a machine to write into; all of the buffer when
    /// nothing waits. [`filled`](Self::filled) keeps what was written.
    pub fn space(&mut self) -> &mut [u8] {
        self.outbox.space()
    }

    /// Takes the first `count` bytes of [`space`](Self::space) to send.
    pub fn filled(&mut self, count: usize) {
        self.outbox.filled(count);
    }

    /// Reports whether nothing waits: neither here nor, as far as this link knows, in the writer.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.outbox.is_empty() && !self.unflushed
    }

    /// Returns the transport.
    #[must_use]
    pub fn writer(&self) -> &W {
        &self.writer
    }

    /// Returns the transport for changes; what waits here goes out after what is written there.
    pub fn writer_mut(&mut self) -> &mut W {
        &mut self.writer
    }

    /// Gives the transport back; what is unsent is lost.
    #[must_use]
    pub fn into_writer(self) -> W {
        self.writer
    }
}

impl<W: AsyncWrite + Unpin, B: AsRef<[u8]> + AsMut<[u8]>> Tx<W, B> {
    /// Writes what waits, then flushes the transport.
    ///
    /// # Errors
    /// The transport's; a write that takes nothing is [`WriteZero`](ErrorKind::WriteZero).
    ///
    /// # Cancel safety
    /// Cancel safe: what was written is marked as sent at once, so a dropped flush goes on where
    /// it stopped; no byte is lost or doubled.
    pub async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// Flushes, then closes the transport's write side: the peer sees the end behind the last
    /// byte.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    ///
    /// # Cancel safety
    /// Cancel safe, as [`flush`](Self::flush) is.
    pub async fn shutdown(&mut self) -> io::Result<()> {
        self.flush().await?;
        poll_fn(|cx| Pin::new(&mut self.writer).poll_shutdown(cx)).await
    }

    /// Polls [`flush`](Self::flush).
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outbox.is_empty() {
            let unsent = self.outbox.unsent();
            match ready!(Pin::new(&mut self.writer).poll_write(cx, unsent)) {
                Ok(0) => return Poll::Ready(Err(write_zero())),
                Ok(count) => {
                    self.outbox.sent(count);
                    self.unflushed = true;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        loop {
            match ready!(Pin::new(&mut self.writer).poll_flush(cx)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                done => {
                    self.unflushed &= done.is_err();
                    return Poll::Ready(done);
                }
            }
        }
    }
}
