//! What every kind of link says in the same words.

use std::{error, fmt, io};

/// No room in a [`Tx`](crate::blocking::Tx) for the bytes to send; nothing was taken.
///
/// Flush, then send again. `needed` beyond the size of the whole buffer never fits.
pub use triwire::buffer::OutTooSmall as Full;

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wake {
    /// There is something to lend: call `next` until it gives `None`.
    Bytes,
    /// The peer sends no more. What is unread stays readable; every later wait says so again.
    End,
    /// The given moment came first.
    Deadline,
}

/// The unread bytes fill the whole buffer and the machine used none of them.
///
/// What the peer sent must stand whole in the buffer and does not fit. It travels inside an
/// [`io::Error`] of kind [`InvalidData`](io::ErrorKind::InvalidData).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InboxFull;

impl fmt::Display for InboxFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the receive buffer is full and none of it could be used: \
             the message does not fit; give the link a larger buffer",
        )
    }
}

impl error::Error for InboxFull {}

impl From<InboxFull> for io::Error {
    fn from(full: InboxFull) -> Self {
        Self::new(io::ErrorKind::InvalidData, full)
    }
}

/// What the caller knows of the unread bytes; keeps loops from spinning over the same bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    /// Unread bytes at the last lend, none when more came since.
    lent: Option<usize>,
    /// A wait said that there are bytes, or they were lent.
    told: bool,
}

impl Known {
    /// Bytes arrived, and the wait that took them is about to say so.
    pub(crate) fn arrived(&mut self) {
        *self = Self { lent: None, told: true };
    }

    /// Reports whether a lend may show something new; marks `unread` bytes as lent.
    pub(crate) fn lend(&mut self, unread: usize) -> bool {
        let new = self.is_new(unread);
        if new {
            *self = Self { lent: Some(unread), told: true };
        }
        new
    }

    /// Reports whether a lend would show something new.
    pub(crate) fn is_new(self, unread: usize) -> bool {
        unread > 0 && self.lent != Some(unread)
    }

    /// Reports whether bytes are there that no wait has told of; true at most once for them.
    pub(crate) fn tell(&mut self, unread: usize) -> bool {
        let news = !self.told && self.is_new(unread);
        self.told |= news;
        news
    }
}

/// The error of a write that took nothing: the transport will never take more.
pub(crate) fn write_zero() -> io::Error {
    io::Error::new(io::ErrorKind::WriteZero, "the transport took none of the bytes to send")
}
