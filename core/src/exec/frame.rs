//! Frames: the header, and a decoder that never copies payload.
//!
//! [`Decoder`] takes bytes in any cut and answers [`Piece`]s: a frame whose payload stands whole
//! in the input is one piece, any other is several, each a slice of the input. It judges a header
//! in the order type, direction, length, as soon as the bytes are there, and never waits for a
//! payload that it would refuse.
//!
//! ```
//! use triwire::exec::frame::{Decoder, Direction, Kind, head};
//!
//! let mut stream = Vec::new();
//! stream.extend(head(Kind::Stdout, 5)?);
//! stream.extend(b"hello");
//!
//! let mut decoder = Decoder::new(Direction::GuestToHost);
//! let mut input = &stream[..10]; // the header and "he"
//! let piece = decoder.feed(&mut input)?.unwrap();
//! assert_eq!((piece.kind, piece.payload, piece.last), (Kind::Stdout, &b"he"[..], false));
//! assert!(decoder.feed(&mut input)?.is_none()); // more bytes, please
//!
//! let mut input = &stream[10..];
//! let piece = decoder.feed(&mut input)?.unwrap();
//! assert_eq!((piece.payload, piece.last), (&b"llo"[..], true));
//! decoder.finish()?;
//! # Ok::<(), triwire::exec::ExecError>(())
//! ```

use core::fmt;

use super::{ExecError, Fault};

/// Bytes of a frame's header.
pub const HEADER_SIZE: usize = 8;
/// Offset in the header of the type byte.
pub const TYPE_OFFSET: usize = 0;
/// Offset in the header of the reserved bytes: zero on write, ignored on read.
pub const RESERVED_OFFSET: usize = 1;
/// How many bytes of the header are reserved.
pub const RESERVED_SIZE: usize = 3;
/// Offset in the header of the payload's length, a big-endian `u32`.
pub const LENGTH_OFFSET: usize = 4;
/// Most bytes of payload in one frame; a longer write is cut into several frames.
pub const MAX_PAYLOAD_SIZE: usize = 65_536;

const MAX_LENGTH: u32 = MAX_PAYLOAD_SIZE as u32;

/// What a frame carries; the value is the type byte on the wire, frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u8)]
pub enum Kind {
    /// A chunk of the command's standard output.
    Stdout = 1,
    /// A chunk of the command's standard error.
    Stderr = 2,
    /// The command's result; ends the stream.
    Exit = 3,
    /// A chunk of the command's standard input.
    Stdin = 4,
    /// The end of the command's standard input; the connection stays open.
    StdinClose = 5,
}

impl Kind {
    /// All kinds, in the order of their type bytes.
    // rule: EXEC-2
    pub const ALL: [Self; 5] =
        [Self::Stdout, Self::Stderr, Self::Exit, Self::Stdin, Self::StdinClose];

    /// Returns the kind that a type byte names.
    #[must_use]
    #[inline]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Stdout),
            2 => Some(Self::Stderr),
            3 => Some(Self::Exit),
            4 => Some(Self::Stdin),
            5 => Some(Self::StdinClose),
            _ => None,
        }
    }

    /// Returns the kind that one of the contract's words names.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// Returns the contract's word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Exit => "exit",
            Self::Stdin => "stdin",
            Self::StdinClose => "stdin_close",
        }
    }

    /// Returns the direction in which frames of this kind travel.
    #[must_use]
    #[inline]
    pub const fn direction(self) -> Direction {
        match self {
            Self::Stdout | Self::Stderr | Self::Exit => Direction::GuestToHost,
            Self::Stdin | Self::StdinClose => Direction::HostToGuest,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The direction of a stream of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u8)]
pub enum Direction {
    /// Output: from where the command runs to the client.
    GuestToHost,
    /// Input: from the client to where the command runs.
    HostToGuest,
}

impl Direction {
    /// Returns the word that fixtures use.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::GuestToHost => "guest_to_host",
            Self::HostToGuest => "host_to_guest",
        }
    }
}

/// Makes the header of one frame with `len` bytes of payload, 0 to [`MAX_PAYLOAD_SIZE`].
///
/// An empty frame of any kind can be written here; whoever writes a stream leaves empty ones out
/// ([`Frames`](super::session::Frames) does).
///
/// # Errors
/// [`Fault::Oversize`] for more than one frame carries; `at` is the length field's offset.
// rule: EXEC-1
#[inline]
pub const fn head(kind: Kind, len: usize) -> Result<[u8; HEADER_SIZE], ExecError> {
    if len > MAX_PAYLOAD_SIZE {
        let len = if len > u32::MAX as usize { u32::MAX } else { len as u32 };
        return Err(ExecError { at: LENGTH_OFFSET as u64, fault: Fault::Oversize { len } });
    }
    let [a, b, c, d] = (len as u32).to_be_bytes();
    Ok([kind as u8, 0, 0, 0, a, b, c, d])
}

/// A frame or a part of one, as a slice of what was fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'i> {
    /// The frame's kind.
    pub kind: Kind,
    /// Payload bytes; empty only for an empty frame.
    pub payload: &'i [u8],
    /// Whether the frame begins with this piece.
    pub first: bool,
    /// Whether the frame ends with this piece.
    pub last: bool,
}

/// Cuts a stream of frames into pieces, in any chunking of its bytes.
///
/// 16 bytes of state; payload is never copied and nothing is allocated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Decoder {
    /// Where in the stream the frame at hand begins; once its header is whole, where it ends;
    /// once failed, where the fault is. So a piece of payload changes nothing but `left`.
    at: u64,
    /// Payload bytes still to come; inside a header, its length field so far; the type byte that
    /// was refused.
    left: u32,
    kind: Kind,
    /// [`BETWEEN`] frames, up to 7 more inside a header, or one of the stages below.
    stage: u8,
    direction: Direction,
}

const _: () = assert!(size_of::<Decoder>() == 16);

/// Inside a payload; zero because it is asked for first and most.
const REST: u8 = 0;
const BETWEEN: u8 = 1;
/// Behind a header, before the first byte of its payload.
const FIRST: u8 = BETWEEN + HEADER_SIZE as u8;
const UNKNOWN_TYPE: u8 = FIRST + 1;
const WRONG_DIRECTION: u8 = FIRST + 2;
const OVERSIZE: u8 = FIRST + 3;
const TRUNCATED: u8 = FIRST + 4;

impl Decoder {
    /// Makes a decoder for a stream that travels in `direction`.
    #[must_use]
    pub const fn new(direction: Direction) -> Self {
        Self { at: 0, left: 0, kind: Kind::Exit, stage: BETWEEN, direction }
    }

    /// Returns how many bytes of the stream were used, or where the fault is once one was found.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        match self.stage {
            FIRST | REST => self.at.wrapping_sub(self.left as u64),
            stage if stage < FIRST => self.at.wrapping_add(stage.wrapping_sub(BETWEEN) as u64),
            _ => self.at,
        }
    }

    /// Reports whether the next bytes go on with a payload of which a piece was answered.
    #[must_use]
    pub const fn is_in_payload(&self) -> bool {
        self.stage == REST
    }

    /// Takes bytes and answers the next piece, advancing `input` past what it used; `Ok(None)`
    /// when it used all and needs more.
    ///
    /// # Errors
    /// [`Fault::UnknownType`], [`Fault::WrongDirection`] as soon as a type byte is there,
    /// [`Fault::Oversize`] as soon as the header is. The decoder stays failed.
    ///
    /// # Cost
    /// A few ns for each frame, whatever its size.
    #[inline]
    pub fn feed<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Piece<'i>>, ExecError> {
        if self.stage == REST {
            if input.is_empty() {
                return Ok(None);
            }
            return Ok(self.payload(input));
        }
        if self.stage == BETWEEN
            && let Some((header, rest)) = input.split_first_chunk::<HEADER_SIZE>()
            && let [byte, _, _, _, a, b, c, d] = *header
            && let Some(kind) = self.accepted(byte)
            && let left @ ..=MAX_LENGTH = u32::from_be_bytes([a, b, c, d])
        {
            self.at = self.at.wrapping_add(HEADER_SIZE as u64).wrapping_add(u64::from(left));
            if let Some((payload, behind)) = rest.split_at_checked(left as usize) {
                *input = behind;
                return Ok(Some(Piece { kind, payload, first: true, last: true }));
            }
            self.left = left;
            self.kind = kind;
            self.stage = FIRST;
            *input = rest;
            return Ok(self.payload(input));
        }
        if self.stage < FIRST {
            *input = self.header_bytes(input);
        }
        match self.stage {
            FIRST => Ok(self.payload(input)),
            stage if stage < FIRST => Ok(None),
            _ => Err(self.error()),
        }
    }

    /// Takes what is there of the payload.
    #[inline]
    fn payload<'i>(&mut self, input: &mut &'i [u8]) -> Option<Piece<'i>> {
        let (kind, first) = (self.kind, self.stage == FIRST);
        if input.is_empty() && self.left > 0 {
            return None;
        }
        let take = input.len().min(self.left as usize);
        let (payload, rest) = input.split_at_checked(take)?;
        *input = rest;
        self.left = self.left.wrapping_sub(take as u32);
        let last = self.left == 0;
        self.stage = if last { BETWEEN } else { REST };
        Some(Piece { kind, payload, first, last })
    }

    /// The kind that a type byte names, where it travels in this direction.
    #[inline]
    fn accepted(&self, byte: u8) -> Option<Kind> {
        let kind = Kind::from_byte(byte)?;
        (kind.direction() as u8 == self.direction as u8).then_some(kind)
    }

    /// Takes the bytes of a header that does not stand whole in the input, or is refused; returns
    /// what is behind them.
    #[inline]
    fn header_bytes<'i>(&mut self, input: &'i [u8]) -> &'i [u8] {
        let mut input = input;
        while self.stage < FIRST
            && let Some((&byte, rest)) = input.split_first()
        {
            input = rest;
            if self.stage == BETWEEN {
                self.left = 0;
                match self.accepted(byte) {
                    Some(kind) => self.kind = kind,
                    None => {
                        // rule: EXEC-7, EXEC-8
                        let known = Kind::from_byte(byte).is_some();
                        self.stage = if known { WRONG_DIRECTION } else { UNKNOWN_TYPE };
                        self.left = u32::from(byte);
                        return input;
                    }
                }
            } else {
                // The reserved bytes are shifted out again by the four of the length.
                self.left = (self.left << 8) | u32::from(byte);
            }
            self.stage = self.stage.wrapping_add(1);
        }
        // rule: EXEC-5
        if self.stage == FIRST && self.left > MAX_LENGTH {
            self.at = self.at.wrapping_add(LENGTH_OFFSET as u64);
            self.stage = OVERSIZE;
        } else if self.stage == FIRST {
            self.at = self.at.wrapping_add(HEADER_SIZE as u64).wrapping_add(u64::from(self.left));
        }
        input
    }

    /// Judges the end of the stream: `Ok` between frames.
    ///
    /// # Errors
    /// [`Fault::Truncated`] inside a header or a payload, also right behind a header that
    /// declares one; the fault found before, once failed.
    // rule: EXEC-6
    pub fn finish(&mut self) -> Result<(), ExecError> {
        let offset = self.offset();
        match self.stage {
            BETWEEN => return Ok(()),
            FIRST | REST => {}
            stage if stage < FIRST => self.left = u32::from(FIRST.wrapping_sub(stage)),
            _ => return Err(self.error()),
        }
        self.at = offset;
        self.stage = TRUNCATED;
        Err(self.error())
    }

    #[inline]
    fn error(&self) -> ExecError {
        let found = self.left as u8;
        let fault = match (self.stage, Kind::from_byte(found)) {
            (OVERSIZE, _) => Fault::Oversize { len: self.left },
            (TRUNCATED, _) => Fault::Truncated { missing: self.left },
            (WRONG_DIRECTION, Some(kind)) => Fault::WrongDirection { kind },
            _ => Fault::UnknownType { found },
        };
        ExecError { at: self.at, fault }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, clippy::unwrap_used)]

    use super::*;

    #[test]
    fn header_layout() {
        // rule: EXEC-1
        assert_eq!(head(Kind::StdinClose, 0).unwrap(), [5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(head(Kind::Stdout, MAX_PAYLOAD_SIZE).unwrap(), [1, 0, 0, 0, 0, 1, 0, 0]);
        assert_eq!(head(Kind::Stdout, MAX_PAYLOAD_SIZE + 1).unwrap_err().code(), "oversize");
    }

    #[test]
    fn faults_are_judged_in_order_and_stay() {
        // rule: EXEC-8
        for (bytes, code, at) in [
            ([0, 0, 0, 0, 255, 255, 255, 255], "unknown_type", 0),
            ([255, 0, 0, 0, 0, 0, 0, 1], "unknown_type", 0),
            ([4, 0, 0, 0, 255, 255, 255, 255], "wrong_direction", 0),
            ([1, 0, 0, 0, 255, 255, 255, 255], "oversize", 4),
            ([1, 0, 0, 0, 0, 1, 0, 1], "oversize", 4),
        ] {
            for cut in 0..8 {
                let mut decoder = Decoder::new(Direction::GuestToHost);
                let (mut a, mut b) = bytes.split_at(cut);
                let error = match decoder.feed(&mut a) {
                    Ok(_) => decoder.feed(&mut b).unwrap_err(),
                    Err(error) => error,
                };
                assert_eq!((error.code(), error.at), (code, at));
                let mut good = &[1, 0, 0, 0, 0, 0, 0, 0][..];
                assert_eq!(decoder.feed(&mut good), Err(error));
                assert_eq!(decoder.finish(), Err(error));
            }
        }
    }

    #[test]
    fn every_end_but_between_frames_is_truncated() {
        // rule: EXEC-6
        let stream = [1, 9, 9, 9, 0, 0, 0, 2, b'a', b'b'];
        for end in 0..=stream.len() {
            let mut decoder = Decoder::new(Direction::GuestToHost);
            let mut input = &stream[..end];
            while decoder.feed(&mut input).unwrap().is_some() {}
            let ending = decoder.finish();
            if end == 0 || end == stream.len() {
                assert_eq!(ending, Ok(()));
            } else {
                let error = ending.unwrap_err();
                assert_eq!((error.code(), error.at), ("truncated", end as u64));
                assert_eq!(decoder.finish(), Err(error));
            }
        }
    }
}
