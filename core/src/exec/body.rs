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
                write!(f, "the connection ended {missing} bytes before the body did")
            }
            Self::NoLastChunk => f.write_str("the connection ended before the last chunk"),
            Self::ChunkSize { found } => {
                write!(f, "expected a chunk's size in hex, found byte 0x{found:02x}")
            }
            Self::ChunkTooLarge => {
                write!(f, "a chunk's size has more than {MAX_SIZE_DIGITS} digits")
            }
            Self::LineEnd { found } => {
                write!(f, "expected CR LF at a chunk's end, found byte 0x{found:02x}")
            }
            Self::SkippedTooLong => {
                write!(f, "chunk extensions and trailers have more than {MAX_SKIPPED} bytes")
            }
            Self::TooLarge { limit } => write!(f, "the body has more than {limit} bytes"),
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
            let count = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
            let Some((piece, rest)) = input.split_at_checked(count) else { return Ok(None) };
            let Some(allowed) = self.left.checked_sub(piece.len() as u64) else {
                return Err(self.fail(BodyFault::TooLarge { limit: self.limit }));
            };
            self.left = allowed;
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
