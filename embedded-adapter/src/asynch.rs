//! Links over [`embedded_io_async`], for any executor.
//!
//! The same shape as every other link: [`Rx::next`] lends what is unread, [`Rx::wait`] reads
//! more, [`Tx::send`] copies into the outbox, [`Tx::flush`] writes it. `wait` and `flush` are the
//! only awaits, and all progress is kept in the link, so one task can wait for both, and for its
//! own timer, and drop what did not come first:
//!
//! ```
//! use core::future::pending;
//! use embassy_futures::select::{Either, select};
//! # use embassy_futures::block_on;
//! use triwire_embedded::asynch::{Rx, Tx, Wake};
//!
//! # let uart_rx = &b"one\ntwo\n"[..];
//! # let mut wire = [0; 16];
//! # let uart_tx = &mut wire[..];
//! let mut rx = Rx::new(uart_rx, [0; 64]);
//! let mut tx = Tx::new(uart_tx, [0; 64]);
//! # block_on(async {
//! loop {
//!     while let Some(mut window) = rx.next() {
//!         // A machine's feed stands here: it advances `rest` past what it used.
//!         let Some(end) = window.rest.iter().position(|byte| *byte == b'\n') else { continue };
//!         tx.send(&window.rest[..=end])?;
//!         window.rest = &window.rest[end + 1..];
//!     }
//!     let sent = async {
//!         if tx.is_flushed() { pending().await } else { tx.flush().await }
//!     };
//!     match select(rx.wait(), sent).await {
//!         Either::First(Ok(Wake::End)) => break,
//!         Either::First(woken) => drop(woken?),
//!         Either::Second(sent) => sent?,
//!     }
//! }
//! tx.flush().await?;
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! # })?;
//! # drop(tx);
//! # assert_eq!(&wire[..8], b"one\ntwo\n");
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
//!
//! # Cancel safety
//!
//! A wait or a flush that is dropped before it is ready has changed nothing in the link; whether
//! bytes are lost depends on what the transport's own future leaves behind when it is dropped.
//! `embedded_io_async` asks a transport to say so, and does not force it:
//!
//! | transport | dropping |
//! | --- | --- |
//! | a ring buffer filled and drained by an interrupt or by circular DMA (the buffered UARTs of the embassy HALs), a pipe or channel in memory | safe |
//! | a TCP socket of a stack that copies (embassy-net, smoltcp) | safe |
//! | a host's socket through `embedded-io-adapters` | safe |
//! | DMA into or out of the buffer it is given, started by the call (unbuffered UARTs) | not safe: the transfer is stopped, and nobody learns how many bytes it had moved |
//! | anything whose documentation does not say | take it as not safe |
//!
//! Over a transport that is not safe, give each direction a task of its own that is never dropped,
//! or put a ring buffer between.

use core::future::pending;

use embedded_io_async::{Read, Write};
use triwire::buffer::Window;

pub use crate::link::{Full, LinkError, Wake};
use crate::link::{Incoming, Outgoing, flushed};

/// The receiving half of a link over a [`Read`].
///
/// `B` bounds what must stand whole in the window at once.
#[derive(Debug)]
pub struct Rx<R, B> {
    reader: R,
    incoming: Incoming<B>,
}

impl<R, B: AsRef<[u8]> + AsMut<[u8]>> Rx<R, B> {
    /// Makes a receiving half over `reader` with `buffer` for what is unread.
    pub const fn new(reader: R, buffer: B) -> Self {
        Self { reader, incoming: Incoming::new(buffer) }
    }

    /// Lends the unread bytes, or `None` when there are none or none that a machine has not seen.
    ///
    /// What is left in the window when it drops is lent again once more came behind it.
    // Not an iterator: what it gives borrows the link.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Window<'_>> {
        self.incoming.inbox.lend()
    }

    /// Returns the bytes not yet used.
    #[must_use]
    pub fn unread(&self) -> &[u8] {
        self.incoming.inbox.unread()
    }

    /// Gives the transport back; what is unread is lost.
    #[must_use]
    pub fn into_reader(self) -> R {
        self.reader
    }
}

impl<R: Read, B: AsRef<[u8]> + AsMut<[u8]>> Rx<R, B> {
    /// Waits until more bytes came or the peer's end; one read of the transport. For a deadline,
    /// select it against a timer.
    ///
    /// While the buffer is full of bytes that [`next`](Self::next) was not asked for, the wait has
    /// no end: a caller who cannot send stops taking, and selects it against the flush. An
    /// interrupted read is tried again.
    ///
    /// # Errors
    /// [`LinkError::Transport`] or [`LinkError::InboxFull`].
    ///
    /// # Cancel safety
    /// Cancel safe where the transport's `read` is; the module says which are.
    pub async fn wait(&mut self) -> Result<Wake, LinkError<R::Error>> {
        if let Some(known) = self.incoming.known() {
            return known;
        }
        if self.incoming.inbox.is_full() {
            return pending().await;
        }
        loop {
            let read = self.reader.read(self.incoming.inbox.space()).await;
            if let Some(came) = self.incoming.came(read) {
                return came;
            }
        }
    }
}

/// The sending half of a link over a [`Write`].
///
/// `B` bounds one message and how much waits to be sent.
#[derive(Debug)]
pub struct Tx<W, B> {
    writer: W,
    outgoing: Outgoing<B>,
    /// Bytes went into the writer since it was last flushed.
    unflushed: bool,
}

impl<W, B: AsRef<[u8]> + AsMut<[u8]>> Tx<W, B> {
    /// Makes a sending half over `writer` with `buffer` for what is unsent.
    pub const fn new(writer: W, buffer: B) -> Self {
        Self { writer, outgoing: Outgoing::new(buffer), unflushed: false }
    }

    /// Takes a copy of `bytes` to send, whole or not at all; never waits.
    ///
    /// # Errors
    /// [`Full`] when less room is left: stop producing, go on reading, and send again once
    /// [`flush`](Self::flush) made room.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Full> {
        self.outgoing.outbox.push(bytes)
    }

    /// Reports whether `count` more bytes can be taken.
    #[must_use]
    pub fn has_room(&self, count: usize) -> bool {
        self.outgoing.outbox.room() >= count
    }

    /// Returns the room behind what waits, for a machine to write into; all of the buffer when
    /// nothing waits. [`filled`](Self::filled) keeps what was written.
    pub fn space(&mut self) -> &mut [u8] {
        self.outgoing.outbox.space()
    }

    /// Takes the first `count` bytes of [`space`](Self::space) to send.
    pub fn filled(&mut self, count: usize) {
        self.outgoing.outbox.filled(count);
    }

    /// Reports whether nothing waits: neither here nor, as far as this link knows, in the writer.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.outgoing.outbox.is_empty() && !self.unflushed
    }

    /// Returns the transport for its own settings; what waits here goes out after what is written
    /// there.
    pub fn writer_mut(&mut self) -> &mut W {
        &mut self.writer
    }

    /// Gives the transport back; what is unsent is lost.
    #[must_use]
    pub fn into_writer(self) -> W {
        self.writer
    }
}

impl<W: Write, B: AsRef<[u8]> + AsMut<[u8]>> Tx<W, B> {
    /// Writes what waits, then flushes the transport. An interrupted write is tried again.
    ///
    /// # Errors
    /// [`LinkError::Transport`], after which flushing again goes on where it stopped: no byte is
    /// lost or doubled; or [`LinkError::WriteZero`].
    ///
    /// # Cancel safety
    /// Cancel safe where the transport's `write` and `flush` are: what it took is marked as sent
    /// at once, so a dropped flush goes on where it stopped. The module says which are.
    pub async fn flush(&mut self) -> Result<(), LinkError<W::Error>> {
        while !self.outgoing.outbox.is_empty() {
            let written = self.writer.write(self.outgoing.outbox.unsent()).await;
            self.outgoing.went(written)?;
            self.unflushed = true;
        }
        loop {
            if let Some(flushed) = flushed(self.writer.flush().await) {
                self.unflushed &= flushed.is_err();
                return flushed;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_halves_take_what_the_documentation_says() {
        const WORD: usize = size_of::<usize>();
        assert!(size_of::<Rx<(), [u8; 64]>>() <= 64 + 4 * WORD);
        assert!(size_of::<Tx<(), [u8; 64]>>() <= 64 + 4 * WORD);
    }
}
