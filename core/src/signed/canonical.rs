//! The eight signed lines: what a request is asked of, checked, and the lines on their way into a
//! MAC or into a text that explains them.

use core::fmt;

use hmac::digest::{FixedOutput, Output};
use hmac::{Hmac, Mac};

use super::header::{Letters, encode, write_pieces};
use super::key::{Digest256, Key};
use super::letters::{NAME, PATH, PLAIN, TOKEN};
use super::{KeyId, MAX_TIME, Nonce};
use crate::OutTooSmall;
use crate::json::decimal;
use crate::time::UnixMillis;

/// The first line.
const SCHEME: &[u8] = b"assistant-signature-v1";

/// Hex digits of a body's hash.
const HASH_LENGTH: usize = 64;

/// What is put together before the MAC sees it: short lines whole, in one update.
const STAGE: usize = 256;

/// What a request is asked of, as it is signed: method, host, path with its query.
///
/// The texts must be as a WHATWG URL parser writes them; this checks that they can be, and that
/// none of them forges a line. It parses no URL.
///
/// ```
/// use triwire::signed::Target;
///
/// let target = Target::new("post", "shop.example:8443", "/tools?q=a%20b")?;
/// assert_eq!(target, Target::new("POST", "shop.example:8443", "/tools?q=a%20b")?);
/// assert!(Target::new("GET", "Shop.Example", "/").is_err());
/// assert!(Target::new("GET", "shop.example", "/a\n0").is_err());
/// # Ok::<(), triwire::signed::TargetError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Target<'r> {
    method: &'r str,
    host: &'r str,
    path: &'r str,
}

impl<'r> Target<'r> {
    /// Takes the three texts:
    ///
    /// - the method is a token, in either case: it is signed in upper case;
    /// - the host is lower case and ASCII, IPv6 in brackets, with a port only when it is not the
    ///   scheme's own;
    /// - the path begins with `/`, is percent-encoded, has no dot segment, no fragment, and no
    ///   `?` with nothing behind it.
    ///
    /// # Errors
    /// A text that cannot be so, and where.
    pub fn new(method: &'r str, host: &'r str, path: &'r str) -> Result<Self, TargetError> {
        let fault = method_fault(method.as_bytes())
            .map(|at| TargetError { part: Part::Method, at })
            .or(host_fault(host.as_bytes()).map(|at| TargetError { part: Part::Host, at }))
            .or(path_fault(path.as_bytes()).map(|at| TargetError { part: Part::Path, at }));
        match fault {
            Some(error) => Err(error),
            None => Ok(Self { method, host, path }),
        }
    }

    /// Returns the method as it was given.
    #[must_use]
    pub const fn method(&self) -> &'r str {
        self.method
    }

    /// Returns the host, with its port when it has one.
    #[must_use]
    pub const fn host(&self) -> &'r str {
        self.host
    }

    /// Returns the path with its query.
    #[must_use]
    pub const fn path(&self) -> &'r str {
        self.path
    }
}

impl PartialEq for Target<'_> {
    /// Compares what is signed: the method's case is none of it.
    fn eq(&self, other: &Self) -> bool {
        self.method.eq_ignore_ascii_case(other.method)
            && self.host == other.host
            && self.path == other.path
    }
}

impl Eq for Target<'_> {}

/// A part of a [`Target`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Part {
    /// The method.
    Method,
    /// The host with its port.
    Host,
    /// The path with its query.
    Path,
}

/// A text that cannot stand in the signed lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct TargetError {
    /// Which one.
    pub part: Part,
    /// The offset of what is wrong in it, in bytes.
    pub at: usize,
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, expected) = match self.part {
            Part::Method => ("method", "a token such as POST"),
            Part::Host => (
                "host",
                "lower-case ASCII such as shop.example, with a port only when it is not the scheme's own",
            ),
            Part::Path => {
                ("path", "a path with its query as a URL parser writes them, such as /tools?v=1")
            }
        };
        write!(f, "expected as {what} {expected}; what stands at byte {} cannot be", self.at)
    }
}

impl core::error::Error for TargetError {}

/// Offset of the first byte that is not of a token.
fn method_fault(method: &[u8]) -> Option<usize> {
    if method.is_empty() {
        return Some(0);
    }
    if TOKEN.has_all(method) { None } else { TOKEN.first_other(method) }
}

/// Offset of the first byte that cannot stand where it does in a host with its port.
fn host_fault(host: &[u8]) -> Option<usize> {
    if NAME.has_all(host) && !host.is_empty() {
        return None;
    }
    let end = match host {
        [b'[', rest @ ..] => {
            let address = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b':' | b'.');
            let len = rest.iter().take_while(|byte| address(byte)).count();
            match rest.get(len) {
                Some(b']') if len > 0 => len.saturating_add(2),
                _ => return Some(len.saturating_add(1)),
            }
        }
        _ => NAME.first_other(host).unwrap_or_default(),
    };
    match host.split_at_checked(end) {
        Some(([], _)) | None => Some(0),
        Some((_, [])) => None,
        Some((_, [b':', port @ ..])) if is_port(port) => None,
        Some(_) => Some(end),
    }
}

/// Whether this is a port without leading zeros.
fn is_port(digits: &[u8]) -> bool {
    let number = digits.iter().try_fold(0_u32, |sum, byte| {
        let digit = char::from(*byte).to_digit(10)?;
        sum.checked_mul(10)?.checked_add(digit)
    });
    let is_plain = matches!(digits, [b'0'] | [b'1'..=b'9', ..]);
    is_plain && number.is_some_and(|number| number <= u16::MAX.into())
}

/// Offset of the first byte that cannot stand where it does in a path with its query.
fn path_fault(path: &[u8]) -> Option<usize> {
    if path.first() != Some(&b'/') {
        return Some(0);
    }
    if PLAIN.has_all(path) {
        return None;
    }
    if let Some(at) = PATH.first_other(path) {
        return Some(at);
    }
    let end = path.iter().position(|byte| *byte == b'?').unwrap_or(path.len());
    if end.saturating_add(1) == path.len() {
        return Some(end);
    }
    let mut at = 0_usize;
    for segment in path.get(..end).unwrap_or_default().split(|byte| *byte == b'/') {
        // A browser takes these for slashes.
        if let Some(inside) = segment.iter().position(|byte| *byte == b'\\') {
            return Some(at.saturating_add(inside));
        }
        if is_dots(segment) {
            return Some(at);
        }
        at = at.saturating_add(segment.len()).saturating_add(1);
    }
    None
}

/// Whether a segment is `.` or `..`, in any spelling.
fn is_dots(segment: &[u8]) -> bool {
    let mut rest = segment;
    for _ in 0..2 {
        rest = match rest {
            [b'.', rest @ ..] | [b'%', b'2', b'e' | b'E', rest @ ..] => rest,
            _ => return false,
        };
        if rest.is_empty() {
            return true;
        }
    }
    false
}

/// The first seven lines, each with its newline.
#[derive(Clone, Copy)]
pub(super) struct Lines<'r> {
    key_id: &'r [u8],
    time: &'r [u8],
    nonce: Nonce<'r>,
    target: Target<'r>,
}

impl<'r> Lines<'r> {
    pub(super) const fn new(
        key_id: &'r [u8],
        time: &'r [u8],
        nonce: Nonce<'r>,
        target: Target<'r>,
    ) -> Self {
        Self { key_id, time, nonce, target }
    }

    /// Hands the lines over in their order, each in pieces, and says which piece ends one.
    #[inline]
    fn each(&self, mut take: impl FnMut(&[u8], End)) {
        take(SCHEME, End::OfLine);
        take(self.key_id, End::OfLine);
        take(self.time, End::OfLine);
        take(self.nonce.as_bytes(), End::OfLine);
        let mut method = self.target.method.as_bytes();
        loop {
            let mut upper = [0; 16];
            let (piece, rest) = method.split_at_checked(upper.len()).unwrap_or((method, &[]));
            for (place, letter) in upper.iter_mut().zip(piece) {
                *place = letter.to_ascii_uppercase();
            }
            let end = if rest.is_empty() { End::OfLine } else { End::OfPiece };
            take(upper.get(..piece.len()).unwrap_or_default(), end);
            if rest.is_empty() {
                break;
            }
            method = rest;
        }
        take(self.target.host.as_bytes(), End::OfLine);
        take(self.target.path.as_bytes(), End::OfLine);
    }

    /// Begins a MAC of the lines; the body's hash is what is missing.
    pub(super) fn begin<D: Digest256>(&self, key: &Key<D>) -> LineMac<D> {
        let mut mac = key.mac.clone();
        let mut stage = Stage { bytes: [0; STAGE], len: 0 };
        self.each(|piece, end| {
            if stage.push(piece, end) {
                return;
            }
            mac.update(stage.filled());
            stage.len = 0;
            if !stage.push(piece, end) {
                mac.update(piece);
                mac.update(end.mark());
            }
        });
        mac.update(stage.filled());
        LineMac(mac)
    }

    fn write<'o>(
        &self,
        hash: &[u8; HASH_LENGTH],
        out: &'o mut [u8],
    ) -> Result<&'o str, OutTooSmall> {
        let each = |take: &mut dyn FnMut(&[u8])| {
            self.each(|piece, end| {
                take(piece);
                take(end.mark());
            });
            take(hash);
        };
        write_pieces(each, out)
    }
}

/// Where a piece of a line ends.
#[derive(Clone, Copy)]
enum End {
    OfPiece,
    OfLine,
}

impl End {
    const fn mark(self) -> &'static [u8] {
        match self {
            Self::OfPiece => b"",
            Self::OfLine => b"\n",
        }
    }
}

/// Small pieces, put together: the MAC's own updates cost more than a copy.
struct Stage {
    bytes: [u8; STAGE],
    len: usize,
}

impl Stage {
    /// Copies a piece, if there is room.
    #[inline]
    fn push(&mut self, piece: &[u8], end: End) -> bool {
        let len = piece.len().saturating_add(end.mark().len());
        let free = self.bytes.get_mut(self.len..).unwrap_or_default();
        let place = free.get_mut(..len).and_then(|place| place.split_at_mut_checked(piece.len()));
        let Some((place, mark)) = place else { return false };
        place.copy_from_slice(piece);
        mark.copy_from_slice(end.mark());
        self.len = self.len.saturating_add(len);
        true
    }

    fn filled(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// A MAC that has taken the first seven lines.
pub(super) struct LineMac<D: Digest256>(Hmac<D>);

impl<D: Digest256> LineMac<D> {
    /// Takes the last line, the body's hash, and ends.
    #[inline]
    pub(super) fn finish(mut self, hash: &Output<D>) -> Letters {
        self.0.update(&hash_line::<D>(hash));
        encode(&self.0.finalize_fixed().into())
    }
}

/// The eighth line: a body's hash in lower-case hex.
fn hash_line<D: Digest256>(hash: &Output<D>) -> [u8; HASH_LENGTH] {
    // Without a table or a branch: several digits at once, where the processor can.
    let digit = |nibble: u8| {
        let letter = if nibble > 9 { b'a' - b'0' - 10 } else { 0 };
        nibble.wrapping_add(b'0').wrapping_add(letter)
    };
    let mut line = [0; HASH_LENGTH];
    for (byte, place) in hash.iter().zip(line.as_chunks_mut::<2>().0) {
        *place = [digit(byte >> 4), digit(byte & 15)];
    }
    line
}

/// Writes the eight lines of a request, to be compared with another's: what differs in them is
/// why a signature is wrong. Nothing in them is secret but the nonce, until it is used.
///
/// ```
/// use triwire::signed::{KeyId, Nonce, Target, lines};
/// use triwire::time::UnixMillis;
///
/// let target = Target::new("get", "shop.example", "/tools")?;
/// let mut out = [0; 256];
/// let now = UnixMillis::new(1_800_000_000_999);
/// let text = lines(now, KeyId::parse("shop.1")?, target, Nonce::parse("n-1")?, b"", &mut out)?;
/// assert!(text.starts_with(
///     "assistant-signature-v1\nshop.1\n1800000000\nn-1\nGET\nshop.example\n/tools\ne3b0c442"
/// ));
/// assert_eq!(text.lines().count(), 8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// `out` is too small.
pub fn lines<'o>(
    now: UnixMillis,
    key_id: KeyId,
    target: Target<'_>,
    nonce: Nonce<'_>,
    body: &[u8],
    out: &'o mut [u8],
) -> Result<&'o str, OutTooSmall> {
    let mut digits = [0; 20];
    let time = decimal(seconds(now), &mut digits);
    let lines = Lines::new(key_id.as_bytes(), time, nonce, target);
    let hash = <sha2::Sha256 as sha2::Digest>::digest(body);
    lines.write(&hash_line::<sha2::Sha256>(&hash), out)
}

/// The whole second that a header names for a time, at most [`MAX_TIME`].
pub(super) fn seconds(now: UnixMillis) -> u64 {
    (now.get() / 1_000).min(MAX_TIME)
}
