use core::fmt;

use super::frame::{HEADER_SIZE, Kind, MAX_PAYLOAD_SIZE};
use super::result::ResultError;
use crate::words;

/// A stream of frames that breaks the contract, and where.
///
/// The stream cannot go on: the machine that answered it answers it again to every later call.
/// What was handed out before stays good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ExecError {
    /// Offset in the stream, in bytes, of what is wrong: the type byte, the length field, the
    /// header of the frame that may not stand there, the start of the exit record, or the end.
    pub at: u64,
    /// What is wrong.
    pub fault: Fault,
}

/// What is wrong with a stream of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Fault {
    /// A frame type that the contract does not have.
    UnknownType {
        /// The type byte.
        found: u8,
    },
    /// A frame of the other direction.
    WrongDirection {
        /// The kind that came.
        kind: Kind,
    },
    /// A declared payload over [`MAX_PAYLOAD_SIZE`].
    Oversize {
        /// The declared length in bytes.
        len: u32,
    },
    /// The stream ended inside a frame.
    Truncated {
        /// Bytes missing of the header, or of the payload when the header was whole.
        missing: u32,
    },
    /// The stream ended between frames, but without an exit frame: the command was lost.
    MissingExit,
    /// A byte behind the exit frame.
    AfterExit,
    /// Input behind the end of input.
    AfterStdinClose,
    /// The exit frame's payload is no readable result.
    ExitUnreadable(ResultError),
    /// The exit frame's payload is larger than the storage that this end gave the reader.
    ExitTooLarge {
        /// Bytes of that storage.
        room: usize,
    },
}

impl ExecError {
    /// Returns the stable word for the fault, the same in every version.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self.fault {
            Fault::UnknownType { .. } => "unknown_type",
            Fault::WrongDirection { .. } => "wrong_direction",
            Fault::Oversize { .. } => "oversize",
            Fault::Truncated { .. } => "truncated",
            Fault::MissingExit => "missing_exit",
            Fault::AfterExit => "after_exit",
            Fault::AfterStdinClose => "after_stdin_close",
            Fault::ExitUnreadable(_) => "exit_unreadable",
            Fault::ExitTooLarge { .. } => "exit_too_large",
        }
    }
}

impl fmt::Display for ExecError {
    /// Writes the code, the offset, and what was expected: `oversize at byte 8: …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())?;
        words::number(f, " at byte ", self.at, ": ")?;
        match self.fault {
            Fault::UnknownType { found } => words::number(
                f,
                "expected a frame type from 1 to 5, found ",
                found.into(),
                "; is this a stream of frames?",
            ),
            Fault::WrongDirection { kind } => {
                words::texts(f, &["a ", kind.as_str(), " frame does not travel in this direction"])
            }
            Fault::Oversize { len } => {
                words::number(f, "the header declares ", len.into(), " bytes, a frame carries at")?;
                words::number(f, " most ", MAX_PAYLOAD_SIZE as u64, "; the sender must cut it")
            }
            Fault::Truncated { missing } => words::number(
                f,
                "the stream ended ",
                missing.into(),
                " bytes before the end of a frame",
            ),
            Fault::MissingExit => {
                f.write_str("the stream ended without an exit frame: the command was lost, its outcome is unknown")
            }
            Fault::AfterExit => f.write_str("the exit frame must be the last"),
            Fault::AfterStdinClose => f.write_str("no stdin may follow stdin_close"),
            Fault::ExitUnreadable(error) => {
                f.write_str("the exit frame holds no result: ")?;
                error.fmt(f)
            }
            Fault::ExitTooLarge { room } => {
                words::number(f, "the result is larger than the ", room as u64, " bytes of")?;
                f.write_str(" storage given for it; ")?;
                words::number(f, "", MAX_PAYLOAD_SIZE as u64, " hold any")
            }
        }
    }
}

impl core::error::Error for ExecError {}

// A header or a payload is never longer than this, so what misses of one fits its field.
const _: () = assert!(HEADER_SIZE + MAX_PAYLOAD_SIZE < u32::MAX as usize);
