//! Bodies of HTTP: what a reader makes of one, judged with all of its bytes at hand.

use triwire::exec::body::{Body, BodyError, BodyFault, Framing, MAX_SKIPPED};

/// A whole reading of a connection that carries one body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The payload handed out.
    pub payload: Vec<u8>,
    /// What follows a complete body; empty for any other.
    pub rest: Vec<u8>,
    /// How the connection's end is judged.
    pub ending: Result<(), BodyError>,
}

/// What the model makes of `wire`, all that came before the connection's end.
#[must_use]
pub fn expected(framing: Framing, limit: u64, wire: &[u8]) -> Reading {
    let mut payload = Vec::new();
    let outcome = match framing {
        Framing::Length(length) if length > limit => Err((0, BodyFault::TooLarge { limit })),
        Framing::Length(length) => {
            let came = wire.len().min(usize::try_from(length).unwrap_or(usize::MAX));
            payload.extend_from_slice(&wire[..came]);
            match length - came as u64 {
                0 => Ok(came),
                missing => Err((came, BodyFault::Truncated { missing })),
            }
        }
        Framing::ToEnd => {
            let allowed = wire.len().min(usize::try_from(limit).unwrap_or(usize::MAX));
            payload.extend_from_slice(&wire[..allowed]);
            if allowed < wire.len() {
                Err((allowed, BodyFault::TooLarge { limit }))
            } else {
                Ok(allowed)
            }
        }
        Framing::Chunked => {
            Chunks { wire, at: 0, skipped: 0 }.read(limit, &mut payload).map_err(|(at, fault)| {
                let fault = fault.unwrap_or(BodyFault::NoLastChunk);
                (at, fault)
            })
        }
    };
    match outcome {
        Ok(end) => Reading { payload, rest: wire[end..].to_vec(), ending: Ok(()) },
        Err((at, fault)) => {
            Reading { payload, rest: Vec::new(), ending: Err(BodyError { at: at as u64, fault }) }
        }
    }
}

/// A place and what is wrong there; `None` is the end of the bytes.
type Stop = (usize, Option<BodyFault>);

struct Chunks<'w> {
    wire: &'w [u8],
    at: usize,
    skipped: u32,
}

impl Chunks<'_> {
    fn byte(&self) -> Result<u8, Stop> {
        self.wire.get(self.at).copied().ok_or((self.at, None))
    }

    fn stop<T>(&self, fault: BodyFault) -> Result<T, Stop> {
        Err((self.at, Some(fault)))
    }

    fn skip(&mut self) -> Result<(), Stop> {
        if self.skipped == MAX_SKIPPED {
            return self.stop(BodyFault::SkippedTooLong);
        }
        self.skipped += 1;
        self.at += 1;
        Ok(())
    }

    fn want(&mut self, wanted: u8) -> Result<(), Stop> {
        match self.byte()? {
            byte if byte == wanted => self.at += 1,
            found => return self.stop(BodyFault::LineEnd { found }),
        }
        Ok(())
    }

    /// Skips the rest of a line, up to its CR LF.
    fn line(&mut self) -> Result<(), Stop> {
        while self.byte()? != b'\r' {
            if self.byte()? == b'\n' {
                return self.stop(BodyFault::LineEnd { found: b'\n' });
            }
            self.skip()?;
        }
        self.want(b'\r')
    }

    /// Reads a chunk's first line, up to the LF.
    fn size(&mut self) -> Result<u64, Stop> {
        let start = self.at;
        while self.byte()?.is_ascii_hexdigit() {
            if self.at - start == 16 {
                return self.stop(BodyFault::ChunkTooLarge);
            }
            self.at += 1;
        }
        if self.at == start {
            return self.stop(BodyFault::ChunkSize { found: self.byte()? });
        }
        let digits = std::str::from_utf8(&self.wire[start..self.at]).unwrap();
        let size = u64::from_str_radix(digits, 16).unwrap();
        while matches!(self.byte()?, b' ' | b'\t') {
            self.skip()?;
        }
        match self.byte()? {
            b';' => {
                self.skip()?;
                self.line()?;
            }
            b'\r' => self.at += 1,
            found => return self.stop(BodyFault::ChunkSize { found }),
        }
        Ok(size)
    }

    fn read(mut self, limit: u64, payload: &mut Vec<u8>) -> Result<usize, Stop> {
        loop {
            let size = self.size()?;
            if self.byte()? == b'\n' && size > limit - payload.len() as u64 {
                return self.stop(BodyFault::TooLarge { limit });
            }
            self.want(b'\n')?;
            if size == 0 {
                break;
            }
            let left = &self.wire[self.at..];
            let came = left.len().min(usize::try_from(size).unwrap_or(usize::MAX));
            payload.extend_from_slice(&left[..came]);
            self.at += came;
            if (came as u64) < size {
                return self.stop(BodyFault::Truncated { missing: size - came as u64 });
            }
            self.want(b'\r')?;
            self.want(b'\n')?;
        }
        // Trailers, then a blank line.
        while self.byte()? != b'\r' {
            self.line()?;
            self.want(b'\n')?;
        }
        self.want(b'\r')?;
        self.want(b'\n')?;
        Ok(self.at)
    }
}

/// Reads a body in pieces, and asserts what holds for every reader.
#[must_use]
pub fn read(framing: Framing, limit: u64, pieces: &[&[u8]]) -> Reading {
    let mut body = Body::limited(framing, limit);
    let (mut payload, mut rest) = (Vec::new(), Vec::new());
    for mut input in pieces.iter().copied() {
        loop {
            match body.feed(&mut input) {
                Ok(Some(piece)) => {
                    assert!(!piece.is_empty());
                    payload.extend_from_slice(piece);
                    assert!(payload.len() as u64 <= limit);
                }
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(body.feed(&mut &b"0\r\n\r\n"[..]), Err(error), "errors stay");
                    assert_eq!(body.finish(), Err(error), "errors stay");
                    assert!(!error.is_early_end());
                    return Reading { payload, rest: Vec::new(), ending: Err(error) };
                }
            }
        }
        assert!(body.is_complete() || input.is_empty());
        rest.extend_from_slice(input);
    }
    let ending = body.finish();
    if let Err(error) = ending {
        assert!(error.is_early_end() || matches!(error.fault, BodyFault::TooLarge { .. }));
    }
    Reading { payload, rest, ending }
}
