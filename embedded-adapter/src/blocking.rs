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

use embedded_io::{Read, Write};
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
    /// Blocks until more bytes came or the peer's end; one read of the transport.
    ///
    /// An interrupted read is tried again.
    ///
    /// # Errors
    /// [`LinkError::Transport`] or [`LinkError::InboxFull`].
    pub fn wait(&mut self) -> Result<Wake, LinkError<R::Error>> {
        if let Some(known) = self.incoming.known() {
            return known;
        }
        // A caller who takes nothing finds the same bytes again.
        if self.incoming.inbox.is_full() {
            return Ok(Wake::Bytes);
        }
        loop {
            let read = self.reader.read(self.incoming.inbox.space());
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
}

impl<W, B: AsRef<[u8]> + AsMut<[u8]>> Tx<W, B> {
    /// Makes a sending half over `writer` with `buffer` for what is unsent.
    pub const fn new(writer: W, buffer: B) -> Self {
        Self { writer, outgoing: Outgoing::new(buffer) }
    }

    /// Takes a copy of `bytes` to send, whole or not at all; never blocks.
    ///
    /// # Errors
    /// [`Full`] when less room is left: [`flush`](Self::flush), then send again.
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
        while !self.outgoing.outbox.is_empty() {
            let written = self.writer.write(self.outgoing.outbox.unsent());
            self.outgoing.went(written)?;
        }
        loop {
            if let Some(flushed) = flushed(self.writer.flush()) {
                return flushed;
            }
        }
    }
}
