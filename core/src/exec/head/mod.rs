//! Heads of HTTP/1.1, for all transports and for both ends.
//!
//! | end | writes | reads | decides |
//! | --- | --- | --- | --- |
//! | client | [`RequestHead::write`] | [`response`] | [`ResponseHead::expect_stream`] and its sisters |
//! | server | [`Answer::write`], [`Refusal::write`] | [`request`] | [`admit`], [`admit_guest`], [`admit_page`] |
//!
//! A head is taken only when it stands whole in the window of unread bytes, so the size of that
//! window is its limit: status 431, or [`HeadError::TooLarge`] on the client. [`HeadScan`]
//! remembers how far it looked, so a head that trickles in byte by byte costs no more than one
//! that comes at once. A server that has its heads from another HTTP library calls [`admit`]
//! alone: no status is decided anywhere else.
//!
//! ```
//! use triwire::exec::head::{self, Access, KeyDigest, Mode, Peer, RequestHead, Route};
//!
//! let mut out = [0; 512];
//! let head = RequestHead {
//!     mode: Mode::OneShot,
//!     sandbox: "local",
//!     host: "127.0.0.1:7878",
//!     bearer: Some("secret"),
//!     content_length: Some(15),
//!     path: "",
//! };
//! let wire = head.write(&mut out).unwrap();
//!
//! let keys = [KeyDigest::of(b"secret")];
//! let peer = Peer { port: 7878, loopback: true, hosts: &[""; 0], access: Access::Keys(&keys) };
//! let request = head::request(wire, false).unwrap().unwrap();
//! let route = request.admit(&peer, |sandbox| sandbox == "local").unwrap();
//! assert_eq!(route, Route::OneShot { sandbox: "local" });
//! ```

mod admit;
mod host;
mod lines;
mod refusal;
mod request;
mod response;

use core::fmt;

pub use self::admit::{Access, KeyDigest, Peer, Route, admit, admit_guest, admit_page};
pub(crate) use self::admit::{
    check_caller, host_of, once, parts as target_parts, same_origin, upgrade_key,
};
pub use self::refusal::{Allow, ErrorBody, ErrorRecord, PushErrorBody, Refusal, Why};
pub use self::request::{Mode, ParsedRequest, RequestHead, request};
pub use self::response::{Answer, CONTINUE, HEALTH_BODY, HeadError, Part, ResponseHead, response};

use self::lines::Unparsed;
use super::body::Framing;
use crate::{OutTooSmall, json};

/// Header lines that a head may have; one more is refused, whatever the window's size.
pub const MAX_HEADERS: usize = 64;

/// Characters of a sandbox id, at most; at least 1, each of `[A-Za-z0-9_-]`.
pub const MAX_SANDBOX_ID: usize = 64;

/// Bytes of an error's body that a client reads; what is longer is not one of ours.
pub const MAX_ERROR_BODY: u64 = 65_536;

/// Where a guest at the end of a link is asked for commands.
pub const GUEST_PATH: &str = "/exec?stdin=1";

/// Media type of a frame stream.
pub const STREAM_TYPE: &str = "application/octet-stream";

/// Media type of a request's body, of an error's body and of the health answer.
pub const JSON_TYPE: &str = "application/json";

/// The WebSocket version that the upgrade speaks.
pub const SOCKET_VERSION: &str = "13";

/// One header line, its value without the white space around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'h> {
    /// The name as it came; names are compared without case.
    pub name: &'h str,
    /// The value's bytes; they need not be UTF-8.
    pub value: &'h [u8],
}

impl Header<'_> {
    /// Reports whether this header has the given name, case ignored.
    #[must_use]
    #[inline(never)]
    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

/// The header lines of a head, in their order: an iterator over the bytes of a checked head.
#[derive(Clone, Copy)]
pub struct Headers<'h> {
    lines: &'h [u8],
}

impl<'h> Headers<'h> {
    /// Takes a head whose lines were checked, with its first line.
    fn of_head(head: &'h [u8]) -> Self {
        let (_, lines) = cut(head, b'\n');
        Self { lines }
    }

    /// Finds the only header of that name; `Err` when there are two.
    fn only(self, name: &str) -> Result<Option<&'h [u8]>, Repeated> {
        only(self, name)
    }
}

impl<'h> Iterator for Headers<'h> {
    type Item = Header<'h>;

    fn next(&mut self) -> Option<Header<'h>> {
        let (line, rest) = cut(self.lines, b'\n');
        self.lines = rest;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            self.lines = &[];
            return None;
        }
        let (name, value) = cut(line, b':');
        Some(Header { name: core::str::from_utf8(name).unwrap_or_default(), value: trim(value) })
    }
}

// Header values may hold a key.
impl fmt::Debug for Headers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.map(|header| header.name)).finish()
    }
}

/// A header that may stand once stands twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Repeated;

fn only<'h>(
    headers: impl Iterator<Item = Header<'h>>,
    name: &str,
) -> Result<Option<&'h [u8]>, Repeated> {
    let mut found = headers.filter(|header| header.is(name)).map(|header| header.value);
    let first = found.next();
    if found.next().is_some() { Err(Repeated) } else { Ok(first) }
}

/// The items of a header that is a comma-separated list, over all lines of that name.
fn items<'h>(
    headers: impl Iterator<Item = Header<'h>>,
    name: &str,
) -> impl Iterator<Item = &'h [u8]> {
    headers.filter(move |header| header.is(name)).flat_map(|header| Items(header.value))
}

/// The items of one header's value.
struct Items<'h>(&'h [u8]);

impl<'h> Iterator for Items<'h> {
    type Item = &'h [u8];

    fn next(&mut self) -> Option<&'h [u8]> {
        while !self.0.is_empty() {
            let (item, rest) = cut(self.0, b',');
            self.0 = rest;
            let item = trim(item);
            if !item.is_empty() {
                return Some(item);
            }
        }
        None
    }
}

/// Splits at the first `separator`, which is dropped; without one, all stands before it.
#[cfg_attr(target_os = "none", inline(never))]
fn cut(bytes: &[u8], separator: u8) -> (&[u8], &[u8]) {
    let at = bytes.iter().position(|byte| *byte == separator).unwrap_or(bytes.len());
    let (before, after) = bytes.split_at_checked(at).unwrap_or((bytes, &[]));
    (before, after.split_first().map_or(&[], |(_, after)| after))
}

/// Splits a text at the first `separator`, an ASCII byte, which is dropped. The searchers of the
/// standard library say the same and keep checks that the link proof cannot see through.
fn split_once(text: &str, separator: u8) -> Option<(&str, &str)> {
    let at = text.bytes().position(|byte| byte == separator)?;
    Some((text.get(..at)?, text.get(at.saturating_add(1)..)?))
}

fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// Reports whether a media type, its parameters aside, is the given one.
pub(crate) fn is_media_type(value: &[u8], media_type: &str) -> bool {
    trim(cut(value, b';').0).eq_ignore_ascii_case(media_type.as_bytes())
}

/// Reads a decimal `Content-Length`: digits only, no sign; what has no number is the largest.
#[cfg_attr(target_os = "none", inline(never))]
fn length(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0_u64, |length, digit| {
        let digit = char::from(*digit).to_digit(10)?;
        Some(length.saturating_mul(10).saturating_add(u64::from(digit)))
    })
}

/// Reports whether `id` has the shape of a sandbox id.
#[must_use]
pub fn is_sandbox_id(id: &str) -> bool {
    (1..=MAX_SANDBOX_ID).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// What in a head is not HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Malformed {
    /// The first line: its method, target, status or the spaces between them.
    FirstLine,
    /// The version is neither HTTP/1.0 nor HTTP/1.1.
    Version,
    /// A header's name holds what no name may.
    HeaderName,
    /// A header's value holds what no value may.
    HeaderValue,
    /// A line does not end as lines do.
    LineEnd,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FirstLine => "its first line is malformed",
            Self::Version => "its version is not HTTP/1.1",
            Self::HeaderName => "a header's name is malformed",
            Self::HeaderValue => "a header's value is malformed",
            Self::LineEnd => "a line ends neither in CR LF nor in LF",
        })
    }
}

/// Looks for the end of a head in a window that grows.
///
/// One scan serves one head: every call is given the same unread bytes, and those that came since.
/// Only the new ones are looked at, and the head is parsed when its end is there, or when the
/// window has doubled, so that what is no HTTP is refused early.
///
/// ```
/// use triwire::exec::head::HeadScan;
///
/// let wire = b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n";
/// let mut scan = HeadScan::new();
/// for end in 0..wire.len() {
///     assert!(scan.request(&wire[..end], false).unwrap().is_none());
/// }
/// assert_eq!(scan.request(wire, false).unwrap().unwrap().target, "/healthz");
/// ```
///
/// # Cost
/// Linear in the bytes, however they are cut.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeadScan {
    /// Where the head begins: behind blank lines and interim responses.
    start: usize,
    /// Up to where the window was looked at.
    looked: usize,
    /// The window's length at the last attempt to parse.
    tried: usize,
}

impl HeadScan {
    /// Makes a scan for one head.
    #[must_use]
    pub const fn new() -> Self {
        Self { start: 0, looked: 0, tried: 0 }
    }

    /// Decides whether parsing can tell something new.
    fn is_due(&mut self, window: &[u8], window_is_full: bool) -> bool {
        if self.looked <= self.start {
            let rest = window.get(self.start..).unwrap_or_default();
            let blank = rest.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
            self.start = self.start.saturating_add(blank);
            self.looked = self.start;
        }
        // The end may have begun in the bytes that were looked at: "\r\n\r" and "\n".
        let from = self.looked.saturating_sub(2).max(self.start);
        let new = window.get(from..).unwrap_or_default();
        self.looked = window.len().max(self.start);
        let ended = new.windows(2).any(|pair| pair == b"\n\n")
            || new.windows(3).any(|three| three == b"\n\r\n");
        let due = ended || window_is_full || window.len() >= self.tried.saturating_mul(2).max(64);
        if due {
            self.tried = window.len();
        }
        due
    }

    /// Goes on behind an interim response that ends at `at`.
    fn pass(&mut self, at: usize) {
        *self = Self { start: at, looked: at, tried: 0 };
    }
}

/// Writes into the caller's memory and counts on past its end, so that the need is exact.
struct Out<'o> {
    out: &'o mut [u8],
    len: usize,
}

impl<'o> Out<'o> {
    fn new(out: &'o mut [u8]) -> Self {
        Self { out, len: 0 }
    }

    #[inline(never)]
    fn texts(&mut self, parts: &[&str]) {
        for part in parts {
            self.push(part.as_bytes());
        }
    }

    /// Writes decimal digits. The formatting machinery says the same in 2 KiB of flash, which a
    /// guest needs for nothing else.
    fn number(&mut self, value: u64) {
        self.push(json::decimal(value, &mut [0; 20]));
    }

    #[inline(never)]
    fn push(&mut self, bytes: &[u8]) {
        let room = self.out.get_mut(self.len..).unwrap_or_default();
        if let Some(to) = room.get_mut(..bytes.len()) {
            to.copy_from_slice(bytes);
        }
        self.len = self.len.saturating_add(bytes.len());
    }

    fn finish(self) -> Result<&'o [u8], OutTooSmall> {
        let needed = self.len;
        let written: &'o [u8] = self.out;
        written.get(..needed).ok_or(OutTooSmall { needed })
    }
}

impl fmt::Write for Out<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

/// Formats into `out`; `Err` only when the memory is too small.
fn write_to<'o>(
    out: &'o mut [u8],
    write: impl FnOnce(&mut Out<'o>) -> fmt::Result,
) -> Result<&'o [u8], OutTooSmall> {
    let mut to = Out::new(out);
    // `Out` never fails; a `Display` that does has written what it could.
    let _ = write(&mut to);
    to.finish()
}

/// The framing that `Transfer-Encoding` and `Content-Length` declare.
enum Declared {
    Nothing,
    Framing(Framing),
    /// Both are there.
    Both,
    BadLength,
    UnknownCoding,
}

fn declared<'h>(headers: impl Iterator<Item = Header<'h>>) -> Declared {
    let mut length_of = None;
    let (mut is_coded, mut codings, mut is_chunked) = (false, 0_u8, false);
    for header in headers {
        if header.is("content-length") {
            match length(header.value) {
                Some(length) if length_of.is_none() => length_of = Some(length),
                _ => return Declared::BadLength,
            }
        } else if header.is("transfer-encoding") {
            is_coded = true;
            for coding in Items(header.value) {
                codings = codings.saturating_add(1);
                is_chunked = coding.eq_ignore_ascii_case(b"chunked");
            }
        }
    }
    match (codings, length_of) {
        (0, None) if is_coded => Declared::UnknownCoding,
        (0, None) => Declared::Nothing,
        (0, Some(length)) => Declared::Framing(Framing::Length(length)),
        (1, None) if is_chunked => Declared::Framing(Framing::Chunked),
        (1, Some(_)) if is_chunked => Declared::Both,
        _ => Declared::UnknownCoding,
    }
}

#[cfg(test)]
mod tests;
