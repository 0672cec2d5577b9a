//! Links over [`std::io`], without a runtime: files, pipes, sockets, serial ports.
//!
//! The same shape as every other link: [`Rx::next`] lends what is unread, [`Rx::wait`] reads
//! more, [`Tx::send`] copies into the outbox, [`Tx::flush`] writes it. Both calls block, so two
//! directions at once take two threads. A read that times out comes back as the transport's own
//! error, and waiting again is harmless: all progress is kept in the link.
//!
//! ```
//! use triwire_std::Wake;
//! use triwire_std::blocking::{Rx, Tx};
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
//! let mut tx = Tx::new(Vec::new(), [0; 16]);
//! tx.send(b"abc")?;
//! tx.flush()?;
//! assert_eq!(tx.writer(), b"abc");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::io::{self, ErrorKind, Read, Write};

use triwire::buffer::{Inbox, Outbox, Window};

use crate::link::write_zero;
use crate::{Full, InboxFull, Wake};

/// The receiving half of a link over a [`Read`].
///
/// `B` bounds what must stand whole in the window at once; it never grows.
#[derive(Debug)]
pub struct Rx<R, B = Box<[u8]>> {
    reader: R,
    inbox: Inbox<B>,
    ended: bool,
}

impl<R, B: AsRef<[u8]> + AsMut<[u8]>> Rx<R, B> {
    /// Makes a receiving half over `reader` with `buffer` for what is unread.
    pub fn new(reader: R, buffer: B) -> Self {
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

    /// Returns the transport.
    #[must_use]
    pub fn reader(&self) -> &R {
        &self.reader
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
    /// The transport's, after which waiting again goes on where it stopped; or [`InboxFull`]
    /// when every byte of the buffer was lent and none was used.
    pub fn wait(&mut self) -> io::Result<Wake> {
        if self.ended {
            return Ok(Wake::End);
        }
        if self.inbox.is_full() {
            let full = Err(InboxFull.into());
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
                Err(error) => return Err(error),
            }
        }
    }
}

/// The sending half of a link over a [`Write`].
///
/// `B` bounds one message and how much waits to be sent; it never grows.
#[derive(Debug)]
pub struct Tx<W, B = Box<[u8]>> {
    writer: W,
    outbox: Outbox<B>,
}

impl<W, B: AsRef<[u8]> + AsMut<[u8]>> Tx<W, B> {
    /// Makes a sending half over `writer` with `buffer` for what is unsent.
    pub fn new(writer: W, buffer: B) -> Self {
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

    /// Returns the transport.
    #[must_use]
    pub fn writer(&self) -> &W {
        &self.writer
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
    /// The transport's, after which flushing again goes on where it stopped: no byte is lost or
    /// doubled. A write that takes nothing is [`WriteZero`](ErrorKind::WriteZero).
    pub fn flush(&mut self) -> io::Result<()> {
        while !self.outbox.is_empty() {
            match self.writer.write(self.outbox.unsent()) {
                Ok(0) => return Err(write_zero()),
                Ok(count) => self.outbox.sent(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        loop {
            match self.writer.flush() {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }
}
