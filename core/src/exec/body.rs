//! Bodies of HTTP/1.1, of requests and of responses: by length, in chunks, or to the end of the
//! connection.
//!
//! ```text
//! Length(n)   n bytes
//! Chunked     size in hex [;extension] CR LF, that many bytes, CR LF, … 0 CR LF, trailers, CR LF
//! ToEnd       everything (responses only)
//! ```
//!
//! The payload is handed on as slices of the input. Extensions and trailers are skipped, within
//! [`MAX_SKIPPED`] bytes.
//!
//! ```
//! use triwire::exec::body::{Body, Framing};
//!
//! let mut body = Body::new(Framing::Chunked);
//! let mut input: &[u8] = b"5\r\nhello\r\n0\r\n\r\n";
//! assert_eq!(body.feed(&mut input).unwrap(), Some(&b"hello"[..]));
//! assert_eq!(body.feed(&mut input).unwrap(), None);
//! assert!(body.is_complete());
//! body.finish().unwrap();
//! ```

use core::fmt::{self, Write as _};

use crate::words;

/// Bytes of chunk extensions and trailers that a body may have in all.
pub const MAX_SKIPPED: u32 = 16_384;

/// Digits of a chunk's size: those of the largest `u64`, leading zeros counted.
const MAX_SIZE_DIGITS: u8 = 16;

/// How a body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Framing {
    /// That many bytes.
    Length(u64),
    /// In chunks, to the last one.
    Chunked,
    /// To the end of the connection.
    ToEnd,
}

/// What is wrong with a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum BodyFault {
    /// The connection ended inside the body's bytes or a chunk's.
    Truncated {
        /// Bytes that were declared and did not come.
        missing: u64,
    },
    /// The connection ended where the next chunk, or the rest of one's frame, was due.
    NoLastChunk,
    /// A chunk's size is not hex digits.
    ChunkSize {
        /// The byte that came.
        found: u8,
    },
    /// A chunk's size has more than 16 digits.
    ChunkTooLarge,
    /// A line of the chunked coding does not end with CR LF.
    LineEnd {
        /// The byte that came.
        found: u8,
    },
    /// Extensions and trailers have more than [`MAX_SKIPPED`] bytes.
    SkippedTooLong,
    /// The payload is larger than the limit.
    TooLarge {
        /// Bytes that the payload may have.
        limit: u64,
    },
}

impl BodyFault {
    /// Returns the stable word for programs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Truncated { .. } | Self::NoLastChunk => "truncated",
            Self::TooLarge { .. } => "oversize",
            Self::ChunkSize { .. }
            | Self::ChunkTooLarge
            | Self::LineEnd { .. }
            | Self::SkippedTooLong => "chunk_malformed",
        }
    }
}

impl fmt::Display for BodyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { missing } => {
                words::number(f, "the connection ended ", *missing, " bytes before the body did")
            }
            Self::NoLastChunk => f.write_str("the connection ended before the last chunk"),
            Self::ChunkSize { found } => words::hex(
                f,
                "expected a chunk's size in hex, found byte 0x",
                (*found).into(),
                2,
                b'a',
            ),
            Self::ChunkTooLarge => {
                words::number(f, "a chunk's size has more than ", MAX_SIZE_DIGITS.into(), " digits")
            }
            Self::LineEnd { found } => words::hex(
                f,
                "expected CR LF at a chunk's end, found byte 0x",
                (*found).into(),
                2,
                b'a',
            ),
            Self::SkippedTooLong => words::number(
                f,
                "chunk extensions and trailers have more than ",
                MAX_SKIPPED.into(),
                " bytes",
            ),
            Self::TooLarge { limit } => {
                words::number(f, "the body has more than ", *limit, " bytes")
            }
        }
    }
}

/// A fault in a body, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct BodyError {
    /// Offset from the body's first byte on the wire, chunk sizes counted.
    pub at: u64,
    /// What is wrong.
    pub fault: BodyFault,
}

impl BodyError {
    /// Returns the stable word for programs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        self.fault.code()
    }

    /// Reports whether the connection ended too early, which is no more than a warning when what
    /// the body carries was complete: a frame stream whose exit frame is there.
    #[must_use]
    pub const fn is_early_end(&self) -> bool {
        matches!(self.fault, BodyFault::Truncated { .. } | BodyFault::NoLastChunk)
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {} of the body: {}", self.code(), self.at, self.fault)
    }
}

impl core::error::Error for BodyError {}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Inside a body of known length.
    Length(u64),
    ToEnd,
    /// At a chunk's size, that many digits in.
    Size {
        size: u64,
        digits: u8,
    },
    /// White space between a chunk's size and what follows it.
    SizeSpace(u64),
    /// In a chunk's extension.
    Extension(u64),
    /// Behind the CR of a chunk's first line.
    SizeEnd(u64),
    /// Inside a chunk's bytes.
    Chunk(u64),
    /// Behind a chunk's bytes.
    ChunkEnd,
    /// Behind the CR that follows a chunk's bytes.
    ChunkLf,
    /// At the start of a trailer line.
    TrailerStart,
    Trailer,
    TrailerLf,
    /// Behind the CR of the blank line that ends the body.
    LastLf,
    Complete,
    Failed(BodyError),
}

/// Reads one body.
///
/// # Cost
/// Constant state; linear in the bytes of the chunked coding, constant per piece of payload.
#[derive(Clone, Copy, Debug)]
pub struct Body {
    state: State,
    at: u64,
    skipped: u32,
    /// Bytes of payload that may still come.
    left: u64,
    limit: u64,
}

impl Body {
    /// Makes a reader for a body of that framing.
    #[must_use]
    pub const fn new(framing: Framing) -> Self {
        Self::limited(framing, u64::MAX)
    }

    /// Makes a reader that refuses a body of more than `limit` bytes: as soon as that shows, from
    /// a declared length before a byte is read.
    #[must_use]
    pub const fn limited(framing: Framing, limit: u64) -> Self {
        let state = match framing {
            Framing::Length(0) => State::Complete,
            Framing::Length(length) if length > limit => {
                State::Failed(BodyError { at: 0, fault: BodyFault::TooLarge { limit } })
            }
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Size { size: 0, digits: 0 },
            Framing::ToEnd => State::ToEnd,
        };
        Self { state, at: 0, skipped: 0, left: limit, limit }
    }

    /// Hands on the next piece of the payload, never an empty one, and advances `input` past it.
    ///
    /// `None`: all of `input` was used and more is needed, or the body is complete; then what
    /// follows it stays in `input`.
    ///
    /// # Errors
    /// A [`BodyError`], again at every later call.
    pub fn feed<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<&'i [u8]>, BodyError> {
        loop {
            let left = match self.state {
                State::Complete => return Ok(None),
                State::Failed(error) => return Err(error),
                State::Length(left) | State::Chunk(left) => left,
                State::ToEnd => u64::MAX,
                _ => {
                    let Some((byte, rest)) = input.split_first() else { return Ok(None) };
                    self.state = self.step(*byte).map_err(|fault| self.fail(fault))?;
                    self.at = self.at.saturating_add(1);
                    *input = rest;
                    continue;
                }
            };
            if input.is_empty() {
                return Ok(None);
            }
            if self.left == 0 {
                return Err(self.fail(BodyFault::TooLarge { limit: self.limit }));
            }
            let count = usize::try_from(left.min(self.left)).unwrap_or(usize::MAX).min(input.len());
            let Some((piece, rest)) = input.split_at_checked(count) else { return Ok(None) };
            self.left = self.left.saturating_sub(piece.len() as u64);
            self.at = self.at.saturating_add(piece.len() as u64);
            *input = rest;
            let left = left.saturating_sub(piece.len() as u64);
            self.state = match self.state {
                State::Length(_) if left == 0 => State::Complete,
                State::Length(_) => State::Length(left),
                State::Chunk(_) if left == 0 => State::ChunkEnd,
                State::Chunk(_) => State::Chunk(left),
                other => other,
            };
            return Ok(Some(piece));
        }
    }

    /// Reports whether the whole body was read. A body to the end of the connection never is
    /// before that end.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        matches!(self.state, State::Complete)
    }

    /// Judges the end of the connection.
    ///
    /// # Errors
    /// [`BodyFault::Truncated`] or [`BodyFault::NoLastChunk`] when the body is not complete (see
    /// [`BodyError::is_early_end`]); the error of [`feed`](Self::feed) when there was one.
    pub const fn finish(&self) -> Result<(), BodyError> {
        let fault = match self.state {
            State::Complete | State::ToEnd => return Ok(()),
            State::Failed(error) => return Err(error),
            State::Length(missing) | State::Chunk(missing) => BodyFault::Truncated { missing },
            _ => BodyFault::NoLastChunk,
        };
        Err(BodyError { at: self.at, fault })
    }

    fn fail(&mut self, fault: BodyFault) -> BodyError {
        let error = BodyError { at: self.at, fault };
        self.state = State::Failed(error);
        error
    }

    /// Takes one byte of the chunked coding that is no payload.
    fn step(&mut self, byte: u8) -> Result<State, BodyFault> {
        Ok(match (self.state, byte) {
            (State::Size { digits: 1.., size }, b'\r') | (State::SizeSpace(size), b'\r') => {
                State::SizeEnd(size)
            }
            (State::Size { digits: 1.., size } | State::SizeSpace(size), b';') => {
                self.skip()?;
                State::Extension(size)
            }
            (State::Size { digits: 1.., size } | State::SizeSpace(size), b' ' | b'\t') => {
                self.skip()?;
                State::SizeSpace(size)
            }
            (State::Size { size, digits }, _) => {
                let digit =
                    char::from(byte).to_digit(16).ok_or(BodyFault::ChunkSize { found: byte })?;
                if digits >= MAX_SIZE_DIGITS {
                    return Err(BodyFault::ChunkTooLarge);
                }
                let size = size.saturating_mul(16).saturating_add(u64::from(digit));
                State::Size { size, digits: digits.saturating_add(1) }
            }
            (State::SizeSpace(_), found) => return Err(BodyFault::ChunkSize { found }),
            (State::Extension(size), b'\r') => State::SizeEnd(size),
            // A lone LF is where two readers of one body come to differ.
            (State::Extension(_) | State::Trailer, b'\n') => {
                return Err(BodyFault::LineEnd { found: byte });
            }
            (State::Extension(size), _) => {
                self.skip()?;
                State::Extension(size)
            }
            (State::SizeEnd(0), b'\n') => State::TrailerStart,
            (State::SizeEnd(size), b'\n') if size > self.left => {
                return Err(BodyFault::TooLarge { limit: self.limit });
            }
            (State::SizeEnd(size), b'\n') => State::Chunk(size),
            (State::ChunkEnd, b'\r') => State::ChunkLf,
            (State::ChunkLf, b'\n') => State::Size { size: 0, digits: 0 },
            (State::TrailerStart, b'\r') => State::LastLf,
            (State::Trailer, b'\r') => State::TrailerLf,
            (State::TrailerLf, b'\n') => State::TrailerStart,
            (State::LastLf, b'\n') => State::Complete,
            (State::TrailerStart, found @ b'\n') => return Err(BodyFault::LineEnd { found }),
            (State::TrailerStart | State::Trailer, _) => {
                self.skip()?;
                State::Trailer
            }
            (_, found) => return Err(BodyFault::LineEnd { found }),
        })
    }

    fn skip(&mut self) -> Result<(), BodyFault> {
        self.skipped = self.skipped.saturating_add(1);
        if self.skipped > MAX_SKIPPED { Err(BodyFault::SkippedTooLong) } else { Ok(()) }
    }
}

/// What follows a chunk's bytes.
pub const CHUNK_END: &[u8] = b"\r\n";

/// What ends a chunked body.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// The line before a chunk's bytes; behind them comes [`CHUNK_END`], behind all chunks
/// [`LAST_CHUNK`].
///
/// ```
/// use triwire::exec::body::ChunkHead;
///
/// assert_eq!(ChunkHead::new(300).unwrap().as_bytes(), b"12c\r\n");
/// assert!(ChunkHead::new(0).is_none()); // that would be the last chunk
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ChunkHead {
    bytes: [u8; 18],
    len: u8,
}

impl ChunkHead {
    /// Makes the line for a chunk of `size` bytes; `None` for no bytes, which are no chunk.
    #[must_use]
    pub fn new(size: usize) -> Option<Self> {
        if size == 0 {
            return None;
        }
        let mut head = Self { bytes: [0; 18], len: 0 };
        write!(head, "{size:x}\r\n").ok()?;
        Some(head)
    }

    /// Returns the line's bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

impl fmt::Write for ChunkHead {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            *self.bytes.get_mut(usize::from(self.len)).ok_or(fmt::Error)? = byte;
            self.len = self.len.saturating_add(1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::panic
    )]

    extern crate std;

    use std::format;
    use std::vec;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    /// Feeds `wire` in steps; returns the payload, what is left, and the error if any.
    fn read(
        mut body: Body,
        wire: &[u8],
        step: usize,
    ) -> (Vec<u8>, usize, Result<(), BodyError>, Body) {
        let mut payload = Vec::new();
        let mut used = 0;
        for part in wire.chunks(step.max(1)) {
            let mut input = part;
            loop {
                match body.feed(&mut input) {
                    Ok(Some(piece)) => {
                        assert!(!piece.is_empty());
                        payload.extend_from_slice(piece);
                    }
                    Ok(None) => break,
                    Err(error) => {
                        let again = body.feed(&mut &b"5\r\nhello\r\n"[..]);
                        assert_eq!(again, Err(error));
                        assert_eq!(body.finish(), Err(error));
                        return (payload, used, Err(error), body);
                    }
                }
            }
            used += part.len() - input.len();
            assert!(input.is_empty() || body.is_complete());
        }
        (payload, used, Ok(()), body)
    }

    #[test]
    fn a_length_is_kept() {
        // rule: EXEC-37
        for step in 1..12 {
            let (payload, used, result, body) =
                read(Body::new(Framing::Length(4)), b"abcdefgh", step);
            assert_eq!((&payload[..], used, result), (&b"abcd"[..], 4, Ok(())));
            assert!(body.is_complete() && body.finish().is_ok());
        }
        assert!(Body::new(Framing::Length(0)).is_complete());
        let (.., body) = read(Body::new(Framing::Length(10)), b"abcd", 3);
        let error = body.finish().unwrap_err();
        assert_eq!(error, BodyError { at: 4, fault: BodyFault::Truncated { missing: 6 } });
        assert_eq!(error.code(), "truncated");
    }

    #[test]
    fn the_end_of_the_connection_ends_a_body_without_length() {
        // rule: EXEC-37
        let (payload, _, _, body) = read(Body::new(Framing::ToEnd), b"abc", 2);
        assert_eq!(payload, b"abc");
        assert!(!body.is_complete() && body.finish().is_ok());
    }

    #[test]
    fn extensions_and_trailers_are_skipped() {
        // rule: EXEC-37
        let wire =
            b"5;a=\"b;c\"\r\nhello\r\n06 ; x\r\n world\r\n0;last\r\nA: b\r\nC: d\r\n\r\nnext";
        for step in 1..wire.len() {
            let (payload, used, result, body) = read(Body::new(Framing::Chunked), wire, step);
            assert_eq!(result, Ok(()));
            assert_eq!(payload, b"hello world");
            assert_eq!(used, wire.len() - 4);
            assert!(body.is_complete());
        }
        let complete = wire.len() - 4;
        for end in 0..complete {
            let (_, _, result, body) = read(Body::new(Framing::Chunked), &wire[..end], 7);
            assert_eq!(result, Ok(()));
            let error = body.finish().unwrap_err();
            assert!(error.is_early_end());
            assert_eq!(error.at, end as u64);
        }
    }

    #[test]
    fn faults_name_the_byte() {
        // rule: EXEC-37
        let cases: &[(&[u8], u64, BodyFault)] = &[
            (b"x", 0, BodyFault::ChunkSize { found: b'x' }),
            (b"\r\n", 0, BodyFault::ChunkSize { found: b'\r' }),
            (b"-1\r\n", 0, BodyFault::ChunkSize { found: b'-' }),
            (b"0x5\r\n", 1, BodyFault::ChunkSize { found: b'x' }),
            (b"5 5\r\n", 2, BodyFault::ChunkSize { found: b'5' }),
            (b"5\n", 1, BodyFault::ChunkSize { found: b'\n' }),
            (b"5\rx", 2, BodyFault::LineEnd { found: b'x' }),
            (b"5;a\nhello", 3, BodyFault::LineEnd { found: b'\n' }),
            (b"1\r\nab", 4, BodyFault::LineEnd { found: b'b' }),
            (b"1\r\na\n", 4, BodyFault::LineEnd { found: b'\n' }),
            (b"0\r\n\n", 3, BodyFault::LineEnd { found: b'\n' }),
            (b"0\r\n\rx", 4, BodyFault::LineEnd { found: b'x' }),
            (b"10000000000000000\r\n", 16, BodyFault::ChunkTooLarge),
            (b"00000000000000005\r\n", 16, BodyFault::ChunkTooLarge),
        ];
        for (wire, at, fault) in cases {
            for step in 1..=wire.len() {
                let (_, _, result, body) = read(Body::new(Framing::Chunked), wire, step);
                assert_eq!(result, Err(BodyError { at: *at, fault: *fault }));
                assert!(!body.finish().unwrap_err().is_early_end());
            }
        }
        let (payload, _, result, _) =
            read(Body::new(Framing::Chunked), b"ffffffffffffffff\r\nabc", 5);
        assert_eq!((&payload[..], result), (&b"abc"[..], Ok(())));
    }

    #[test]
    fn what_is_skipped_is_bounded() {
        // rule: EXEC-37
        let bound = MAX_SKIPPED as usize;
        let long = |before: &str, count| [before.as_bytes(), &vec![b'x'; count][..]].concat();
        for before in ["5;", "0\r\n", "5 "] {
            let wire = long(before, bound + 1);
            let (_, _, result, _) = read(Body::new(Framing::Chunked), &wire, 1_000);
            let fault = result.unwrap_err().fault;
            let expected = if before == "5 " {
                BodyFault::ChunkSize { found: b'x' }
            } else {
                BodyFault::SkippedTooLong
            };
            assert_eq!(fault, expected);
        }
        // Over all chunks, not in each.
        let wire = b"1;ext=abc\r\na\r\n".repeat(bound / 8 + 1);
        let (.., result, _) = read(Body::new(Framing::Chunked), &wire, 1_000);
        assert_eq!(result.unwrap_err().fault, BodyFault::SkippedTooLong);
    }

    #[test]
    fn limits_are_judged_as_soon_as_they_show() {
        // rule: EXEC-18
        let mut body = Body::limited(Framing::Length(6), 5);
        let fault = BodyFault::TooLarge { limit: 5 };
        assert_eq!(body.feed(&mut &b""[..]), Err(BodyError { at: 0, fault }));
        assert_eq!(body.finish(), Err(BodyError { at: 0, fault }));
        let (payload, _, result, _) =
            read(Body::limited(Framing::Chunked, 5), b"3\r\nabc\r\n3\r\n", 1);
        assert_eq!((&payload[..], result.unwrap_err()), (&b"abc"[..], BodyError { at: 10, fault }));
        for step in 1..9 {
            let (payload, _, result, _) = read(Body::limited(Framing::ToEnd, 5), b"abcdefgh", step);
            assert_eq!(payload, b"abcde");
            assert_eq!(result, Err(BodyError { at: 5, fault }));
        }
        for framing in [Framing::Length(5), Framing::ToEnd] {
            assert_eq!(read(Body::limited(framing, 5), b"abcde", 2).0, b"abcde");
        }
        let refusal = crate::exec::head::Refusal::from(BodyError { at: 0, fault });
        assert_eq!(refusal.status, 413);
    }

    proptest! {
        #[test]
        fn chunks_come_back_as_they_were_sent(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 0..8),
            upper: bool,
            zeros in 0usize..6,
            extension in "(;[ -~]{0,9})?",
            trailers in proptest::collection::vec("[!-~]{1,9}", 0..3),
            step in 1usize..50,
            behind in proptest::collection::vec(any::<u8>(), 0..9),
        ) {
            // rule: EXEC-37
            let mut wire = Vec::new();
            for chunk in &chunks {
                let size = if upper { format!("{:X}", chunk.len()) } else { format!("{:x}", chunk.len()) };
                wire.extend_from_slice(format!("{}{size}{extension}\r\n", "0".repeat(zeros)).as_bytes());
                wire.extend_from_slice(chunk);
                wire.extend_from_slice(b"\r\n");
            }
            wire.extend_from_slice(b"0\r\n");
            trailers.iter().for_each(|line| wire.extend_from_slice(format!("{line}\r\n").as_bytes()));
            wire.extend_from_slice(b"\r\n");
            let end = wire.len();
            wire.extend_from_slice(&behind);
            let (payload, used, result, body) = read(Body::new(Framing::Chunked), &wire, step);
            prop_assert_eq!(result, Ok(()));
            prop_assert_eq!(payload, chunks.concat());
            prop_assert!(body.is_complete());
            // With pieces, the rest of the last piece and all later ones stay unread.
            prop_assert_eq!(used, end);
        }

        #[test]
        fn our_chunks_are_read_back(data in proptest::collection::vec(any::<u8>(), 1..300)) {
            let head = ChunkHead::new(data.len()).unwrap();
            let wire = [head.as_bytes(), &data, CHUNK_END, LAST_CHUNK].concat();
            let (payload, _, _, body) = read(Body::new(Framing::Chunked), &wire, wire.len());
            prop_assert_eq!(payload, data);
            prop_assert!(body.is_complete());
        }

        #[test]
        fn any_bytes_in_any_split_give_the_same(
            wire in proptest::collection::vec(proptest::sample::select(&b"0012aF;\r\n\r\n x"[..]), 0..60),
            step in 1usize..10,
            limit in 0u64..40,
        ) {
            // rule: EXEC-37
            let whole = read(Body::limited(Framing::Chunked, limit), &wire, 1_000);
            let parts = read(Body::limited(Framing::Chunked, limit), &wire, step);
            prop_assert_eq!(whole.2, parts.2);
            prop_assert_eq!(whole.0, parts.0);
            prop_assert_eq!(whole.3.finish(), parts.3.finish());
        }
    }

    #[test]
    fn the_largest_chunk_has_a_head() {
        assert!(ChunkHead::new(usize::MAX).unwrap().as_bytes().ends_with(b"f\r\n"));
    }
}
