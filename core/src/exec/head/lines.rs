//! The grammar of a head's lines, checked before anything of it is believed.
//!
//! It takes what the parser httparse takes, and names the same faults; the tests hold both against
//! each other. It is written here because the link proof has to see that no byte makes it panic,
//! and because it needs no array of parsed headers, which is 1 KiB of a small device's stack.

use super::{MAX_HEADERS, Malformed};

/// Why the lines are not a whole head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unparsed {
    /// They end early.
    Partial,
    TooManyHeaders,
    Malformed(Malformed),
}

impl From<Malformed> for Unparsed {
    fn from(fault: Malformed) -> Self {
        Self::Malformed(fault)
    }
}

/// A whole request's head.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestLines<'w> {
    pub(super) method: &'w str,
    pub(super) target: &'w str,
    /// Whether the version is HTTP/1.0, which knows no chunks.
    pub(super) is_old: bool,
    /// Bytes of the head.
    pub(super) len: usize,
}

/// Checks a request's head at the start of `window`.
pub(super) fn request(window: &[u8]) -> Result<RequestLines<'_>, Unparsed> {
    let mut lines = Lines { rest: window };
    lines.skip_blank()?;
    let method = lines.word(is_name, Malformed::FirstLine)?;
    let target = lines.word(is_target, Malformed::FirstLine)?;
    let is_old = lines.version()?;
    let first = lines.next()?;
    lines.end(first, Malformed::LineEnd)?;
    lines.headers()?;
    Ok(RequestLines { method, target, is_old, len: lines.used(window) })
}

/// Checks a response's head at the start of `window`: its status and its bytes.
pub(super) fn response(window: &[u8]) -> Result<(u16, usize), Unparsed> {
    let mut lines = Lines { rest: window };
    lines.skip_blank()?;
    lines.version()?;
    if lines.next()? != b' ' {
        return Err(Malformed::Version.into());
    }
    let mut status = 0_u16;
    for _ in 0..3 {
        let digit = lines.next()?;
        if !digit.is_ascii_digit() {
            return Err(Malformed::FirstLine.into());
        }
        let digit = u16::from(digit.saturating_sub(b'0'));
        status = status.saturating_mul(10).saturating_add(digit);
    }
    let mut first = lines.next()?;
    if first == b' ' {
        lines.run(is_value);
        first = lines.next()?;
    }
    lines.end(first, Malformed::FirstLine)?;
    lines.headers()?;
    Ok((status, lines.used(window)))
}

struct Lines<'w> {
    rest: &'w [u8],
}

impl<'w> Lines<'w> {
    fn next(&mut self) -> Result<u8, Unparsed> {
        let (first, rest) = self.rest.split_first().ok_or(Unparsed::Partial)?;
        self.rest = rest;
        Ok(*first)
    }

    /// Takes bytes as long as they are of a kind.
    fn run(&mut self, is: impl Fn(u8) -> bool) -> &'w [u8] {
        let end = self.rest.iter().position(|byte| !is(*byte)).unwrap_or(self.rest.len());
        let (run, rest) = self.rest.split_at_checked(end).unwrap_or_default();
        self.rest = rest;
        run
    }

    /// Takes a word and the space behind it.
    fn word(&mut self, is: impl Fn(u8) -> bool, fault: Malformed) -> Result<&'w str, Unparsed> {
        let word = self.run(is);
        if self.next()? != b' ' || word.is_empty() {
            return Err(fault.into());
        }
        core::str::from_utf8(word).map_err(|_| fault.into())
    }

    /// Takes the end of a line, whose first byte was taken.
    fn end(&mut self, first: u8, fault: Malformed) -> Result<(), Unparsed> {
        match first {
            b'\n' => Ok(()),
            b'\r' if self.next()? == b'\n' => Ok(()),
            _ => Err(fault.into()),
        }
    }

    fn skip_blank(&mut self) -> Result<(), Unparsed> {
        while let Some(first @ (b'\r' | b'\n')) = self.rest.first() {
            self.next()?;
            self.end(*first, Malformed::LineEnd)?;
        }
        Ok(())
    }

    fn version(&mut self) -> Result<bool, Unparsed> {
        for expected in b"HTTP/1." {
            if self.next()? != *expected {
                return Err(Malformed::Version.into());
            }
        }
        match self.next()? {
            b'0' => Ok(true),
            b'1' => Ok(false),
            _ => Err(Malformed::Version.into()),
        }
    }

    /// Takes the header lines and the blank one behind them.
    fn headers(&mut self) -> Result<(), Unparsed> {
        let mut count = 0_usize;
        loop {
            if let Some(first @ (b'\r' | b'\n')) = self.rest.first() {
                self.next()?;
                return self.end(*first, Malformed::LineEnd);
            }
            let name = self.run(is_name);
            if self.next()? != b':' || name.is_empty() {
                return Err(Malformed::HeaderName.into());
            }
            self.run(is_value);
            let first = self.next()?;
            self.end(first, Malformed::HeaderValue)?;
            if count == MAX_HEADERS {
                return Err(Unparsed::TooManyHeaders);
            }
            count = count.saturating_add(1);
        }
    }

    fn used(&self, window: &[u8]) -> usize {
        window.len().saturating_sub(self.rest.len())
    }
}

/// A byte of a method or of a header's name.
fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// A byte of a target; whether they are UTF-8 shows once it is whole.
fn is_target(byte: u8) -> bool {
    byte > b' ' && byte != 0x7f
}

/// A byte of a header's value or of the words beside a status.
fn is_value(byte: u8) -> bool {
    byte == b'\t' || byte >= b' ' && byte != 0x7f
}
