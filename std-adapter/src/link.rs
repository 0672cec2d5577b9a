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

/// The error of a write that took nothing: the transport will never take more.
pub(crate) fn write_zero() -> io::Error {
    io::Error::new(io::ErrorKind::WriteZero, "the transport took none of the bytes to send")
}
