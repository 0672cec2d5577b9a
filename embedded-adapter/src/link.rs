//! What the blocking and the async links have in common: everything but the call that waits.

use core::fmt;

use embedded_io::{Error, ErrorKind};
use triwire::buffer::{Inbox, Outbox};

/// No room in a `Tx` for the bytes to send; nothing was taken.
///
/// Flush, then send again. `needed` beyond the size of the whole buffer never fits.
pub use triwire::buffer::OutTooSmall as Full;

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Wake {
    /// There is something to lend: call `Rx::next` until it gives `None`.
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

/// How a wait ended.
type Waited<E> = Result<Wake, LinkError<E>>;

/// The bytes of a receiving half, and whether more can come.
#[derive(Debug)]
pub(crate) struct Incoming<B> {
    pub(crate) inbox: Inbox<B>,
    ended: bool,
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Incoming<B> {
    pub(crate) const fn new(buffer: B) -> Self {
        Self { inbox: Inbox::new(buffer), ended: false }
    }

    /// How a wait ends without a read: behind the end, and when the buffer is full of bytes that
    /// were lent and not used. Otherwise there is room to read into, unless the buffer is full of
    /// bytes that nobody looked at.
    pub(crate) fn known<E>(&self) -> Option<Waited<E>> {
        if self.ended {
            return Some(Ok(Wake::End));
        }
        (self.inbox.is_full() && !self.inbox.has_news()).then_some(Err(LinkError::InboxFull))
    }

    /// Takes what a read into the inbox's space gave; `None`: interrupted, read again.
    pub(crate) fn came<E: Error>(&mut self, read: Result<usize, E>) -> Option<Waited<E>> {
        match read {
            Ok(0) => {
                self.ended = true;
                Some(Ok(Wake::End))
            }
            Ok(count) => {
                self.inbox.filled(count);
                Some(Ok(Wake::Bytes))
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => None,
            Err(error) => Some(Err(LinkError::Transport(error))),
        }
    }
}

/// The bytes of a sending half.
#[derive(Debug)]
pub(crate) struct Outgoing<B> {
    pub(crate) outbox: Outbox<B>,
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Outgoing<B> {
    pub(crate) const fn new(buffer: B) -> Self {
        Self { outbox: Outbox::new(buffer) }
    }

    /// Takes what a write of the unsent bytes gave; after an interrupted one, write again.
    pub(crate) fn went<E: Error>(&mut self, written: Result<usize, E>) -> Result<(), LinkError<E>> {
        match written {
            Ok(0) => Err(LinkError::WriteZero),
            Ok(count) => {
                self.outbox.sent(count);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(LinkError::Transport(error)),
        }
    }
}

/// Judges what a flush gave; `None`: interrupted, flush again.
pub(crate) fn flushed<E: Error>(flushed: Result<(), E>) -> Option<Result<(), LinkError<E>>> {
    match flushed {
        Err(error) if error.kind() == ErrorKind::Interrupted => None,
        done => Some(done.map_err(LinkError::Transport)),
    }
}
