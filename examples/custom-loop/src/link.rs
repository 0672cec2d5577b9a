//! Bytes on their way through a transport that never blocks.

use std::io::{self, ErrorKind, Read, Write};

use triwire::buffer::{Inbox, Outbox};

/// What a read gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// More bytes in the inbox.
    Bytes,
    /// Nothing for the moment: the loop waits for the transport to be ready.
    Nothing,
    /// The peer's end.
    End,
}

/// A transport, what came from it and is not yet used, and what waits to be sent.
#[derive(Debug)]
pub struct Link<T> {
    /// The transport.
    pub stream: T,
    /// What came; machines take it from [`Inbox::lend`].
    pub inbox: Inbox<Box<[u8]>>,
    /// What waits; machines write into [`Outbox::space`].
    pub outbox: Outbox<Box<[u8]>>,
}

impl<T: Read + Write> Link<T> {
    /// Makes a link with buffers of these sizes.
    pub fn new(stream: T, inbox: usize, outbox: usize) -> Self {
        let buffer = |size| vec![0; size].into_boxed_slice();
        Self { stream, inbox: Inbox::new(buffer(inbox)), outbox: Outbox::new(buffer(outbox)) }
    }

    /// Reads once.
    ///
    /// # Errors
    /// The transport's; also when the inbox is full and no machine could use any of it.
    pub fn fill(&mut self) -> io::Result<Came> {
        if self.inbox.is_full() {
            // An empty space to read into would look like the peer's end.
            let full = io::Error::other("the message does not fit the receive buffer");
            return if self.inbox.has_news() { Ok(Came::Bytes) } else { Err(full) };
        }
        loop {
            match self.stream.read(self.inbox.space()) {
                Ok(0) => return Ok(Came::End),
                Ok(count) => {
                    self.inbox.filled(count);
                    return Ok(Came::Bytes);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_not_yet(&error) => return Ok(Came::Nothing),
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes what the transport takes; `true` when nothing waits any more.
    ///
    /// # Errors
    /// The transport's.
    pub fn flush(&mut self) -> io::Result<bool> {
        loop {
            let done = if self.outbox.is_empty() {
                self.stream.flush().map(|()| None)
            } else {
                self.stream.write(self.outbox.unsent()).map(Some)
            };
            match done {
                Ok(None) => return Ok(true),
                Ok(Some(0)) => return Err(io::Error::other("the transport took none")),
                Ok(Some(count)) => self.outbox.sent(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_not_yet(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }
}

/// A connection that is still being made is no error either.
fn is_not_yet(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected)
}
