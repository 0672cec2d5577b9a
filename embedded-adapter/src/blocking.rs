//! Links over [`embedded_io`], blocking.
//!
//! ```
//! use triwire_embedded::blocking::{Rx, Tx, Wake};
//!
//! let mut rx = Rx::new(&b"hello"[..], [0; 16]);
//! assert_eq!(rx.wait()?, Wake::Bytes);
//! let mut window = rx.next().unwrap();
//! window.rest = &window.rest[2..]; // "he" is used
//! drop(window);
//! assert_eq!(rx.next().unwrap().rest, b"llo");
//! assert!(rx.next().is_none()); // nothing new to see
//! assert_eq!(rx.wait()?, Wake::End);
//!
//! let mut wire = [0; 8];
//! let mut tx = Tx::new(&mut wire[..], [0; 16]);
//! tx.send(b"abc")?;
//! tx.flush()?;
//! drop(tx);
//! assert_eq!(&wire[..3], b"abc");
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use core::fmt;

use embedded_io::{Error, ErrorKind, Read, Write};
use triwire::buffer::{Inbox, Outbox, Window};

/// No room in a [`Tx`] for the bytes to send; nothing was taken.
///
/// Flush, then send again. `needed` beyond the size of the whole buffer never fits.
pub use triwire::buffer::OutTooSmall as Full;

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Wake {
    /// There is something to lend: call [`Rx::next`] until it gives `None`.
    Bytes,
    /// The peer sends no more. What is unread stays readable; every later wait says so again.
    End,
}

/// Why a link cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum LinkError<E> {
    /// The transport's own error; trying again goes on where it stopped.
    Transport(E),
    /// The unread bytes fill the whole buffer and the machine used none of them: what the peer
    /// sent must stand whole in it and does not fit.
    InboxFull,
    /// The transport took none of the bytes to send.
    WriteZero,
}

impl<E: fmt::Display> fmt::Display for LinkError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transport(error) => error.fmt(f),
            Self::InboxFull => f.write_str(
                "the receive buffer is full and none of it could be used: \
                 the message does not fit; give the link a larger buffer",
            ),
            Self::WriteZero => f.write_str("the transport took none of the bytes to send"),
        }
    }
}

impl<E: core::error::Error + 'static> core::error::Error for LinkError<E> {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Transport(error) => Some(error),
            Self::InboxFull | Self::WriteZero => None,
        }
    }
}

/// The receiving half of a link over a [`Read`].
///
/// `B` bounds what must stand whole in the window at once.
#[derive(Debug)]
pub struct Rx<R, B> {
    reader: R,
    inbox: Inbox<B>,
    ended: bool,
}

impl<R, B: AsRef<[u8]> + AsMut<[u8]>> Rx<R, B> {
    /// Makes a receiving half over `reader` with `buffer` for what is unread.
    pub const fn new(reader: R, buffer: B) -> Self {
        Self { reader, inbox: Inbox::new(buffer), ended: false }
    }

    /// Lends the unread bytes, or `None` when there are none or none that a machine has not seen.
    ///
    /// What is left in the window when it drops is lent again once more came behind it.
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

    /// Gives the transport back; what is unread is lost.
    #[must_use]
    pub fn into_reader(self) -> R {
        self.reader
    }
}

impl<R: Read, B: AsRef<[u8]> + AsMut<[u8]>> Rx<R, B> {
    /// Blocks until more bytes came or the peer's end; one read of the transport.
    ///
    /// An interrupted read is tried again.
    ///
    /// # Errors
    /// [`LinkError::Transport`] or [`LinkError::InboxFull`].
    pub fn wait(&mut self) -> Result<Wake, LinkError<R::Error>> {
        if self.ended {
            return Ok(Wake::End);
        }
        if self.inbox.is_full() {
            let full = Err(LinkError::InboxFull);
            return if self.inbox.has_news() { Ok(Wake::Bytes) } else { full };
        }
        loop {
            match self.reader.read(self.inbox.space()) {
                Ok(0) => {
                    self.ended = true;
                    return Ok(Wake::End);
                }
                Ok(count) => {
                    self.inbox.filled(count);
                    return Ok(Wake::Bytes);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(LinkError::Transport(error)),
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
    outbox: Outbox<B>,
}

impl<W, B: AsRef<[u8]> + AsMut<[u8]>> Tx<W, B> {
    /// Makes a sending half over `writer` with `buffer` for what is unsent.
    pub const fn new(writer: W, buffer: B) -> Self {
        Self { writer, outbox: Outbox::new(buffer) }
    }

    /// Takes a copy of `bytes` to send, whole or not at all; never blocks.
    ///
    /// # Errors
    /// [`Full`] when less room is left: [`flush`](Self::flush), then send again.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Full> {
        self.outbox.push(bytes)
    }

    /// Reports whether `count` more bytes can be taken.
    #[must_use]
    pub fn has_room(&self, count: usize) -> bool {
        self.outbox.room() >= count
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
    pub fn flush(&mut self) -> Result<(), LinkError<W::Error>> {
        while !self.outbox.is_empty() {
            match self.writer.write(self.outbox.unsent()) {
                Ok(0) => return Err(LinkError::WriteZero),
                Ok(count) => self.outbox.sent(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(LinkError::Transport(error)),
            }
        }
        loop {
            match self.writer.flush() {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(LinkError::Transport(error)),
            }
        }
    }
}
