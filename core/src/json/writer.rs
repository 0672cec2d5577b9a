//! Writes compact JSON into the caller's memory.

use super::Text;
use super::text::special;
use crate::OutTooSmall;

/// Writes one compact JSON value; commas come by themselves.
///
/// Behind the end of `out` it only counts, so that [`finish`](Self::finish) can tell how much
/// room the whole takes; an empty `out` measures. The order of the calls is the caller's: a name
/// before each value of an object, each `begin` with its `end`.
///
/// ```
/// use triwire::json::{Text, Writer};
///
/// let mut out = [0; 64];
/// let mut writer = Writer::new(&mut out);
/// writer.begin_object();
/// writer.name("why");
/// writer.string("no \"root\"\n");
/// writer.name("codes");
/// writer.begin_array();
/// writer.unsigned(1);
/// writer.signed(-1);
/// writer.end_array();
/// writer.end_object();
/// assert_eq!(writer.finish(), Ok(&br#"{"why":"no \"root\"\n","codes":[1,-1]}"#[..]));
///
/// let mut writer = Writer::new(&mut []);
/// writer.string(Text::plain("four"));
/// assert_eq!(writer.finish().unwrap_err().needed, 6);
/// ```
#[derive(Debug)]
pub struct Writer<'o> {
    out: &'o mut [u8],
    /// Bytes of the whole message so far, written or only counted.
    len: usize,
    needs_comma: bool,
}

impl<'o> Writer<'o> {
    /// Starts a value at the beginning of `out`.
    #[inline]
    #[must_use]
    pub const fn new(out: &'o mut [u8]) -> Self {
        Self { out, len: 0, needs_comma: false }
    }

    /// Opens an object.
    #[cfg_attr(not(target_os = "none"), inline)]
    pub fn begin_object(&mut self) {
        self.token(b"{");
        self.needs_comma = false;
    }

    /// Closes the object.
    #[cfg_attr(not(target_os = "none"), inline)]
    pub fn end_object(&mut self) {
        self.push(b"}");
        self.needs_comma = true;
    }

    /// Opens an array.
    #[cfg_attr(not(target_os = "none"), inline)]
    pub fn begin_array(&mut self) {
        self.token(b"[");
        self.needs_comma = false;
    }

    /// Closes the array.
    #[cfg_attr(not(target_os = "none"), inline)]
    pub fn end_array(&mut self) {
        self.push(b"]");
        self.needs_comma = true;
    }

    /// Names the object's next member.
    #[cfg_attr(not(target_os = "none"), inline)]
    pub fn name(&mut self, name: &str) {
        self.string(name);
        self.push(b":");
        self.needs_comma = false;
    }

    /// Writes a string; a lone surrogate of a peer's text goes out as U+FFFD.
    #[cfg_attr(not(target_os = "none"), inline)]
    pub fn string<'t>(&mut self, text: impl Into<Text<'t>>) {
        let text = text.into();
        self.token(b"\"");
        match text.as_str() {
            Some(plain) => self.escape(plain),
            None => {
                for c in text.chars() {
                    let c = c.unwrap_or(char::REPLACEMENT_CHARACTER);
                    self.escape(c.encode_utf8(&mut [0; 4]));
                }
            }
        }
        self.push(b"\"");
    }

    /// Writes one string of several pieces.
    pub(crate) fn pieces(&mut self, pieces: &[&str]) {
        self.token(b"\"");
        for piece in pieces {
            self.escape(piece);
        }
        self.push(b"\"");
    }

    /// Writes a whole number.
    pub fn unsigned(&mut self, value: u64) {
        let mut digits = [0; 20];
        self.token(decimal(value, &mut digits));
    }

    /// Writes a whole number.
    pub fn signed(&mut self, value: i64) {
        let mut digits = [0; 20];
        if value < 0 {
            self.token(b"-");
            self.push(decimal(value.unsigned_abs(), &mut digits));
        } else {
            self.token(decimal(value.unsigned_abs(), &mut digits));
        }
    }

    /// Writes `true` or `false`.
    #[inline]
    pub fn boolean(&mut self, value: bool) {
        self.token(if value { b"true" } else { b"false" });
    }

    /// Writes `null`.
    #[inline]
    pub fn null(&mut self) {
        self.token(b"null");
    }

    /// Writes a value that is JSON already, such as [`Raw::as_str`](super::Raw::as_str), as it is.
    #[inline]
    pub fn raw(&mut self, json: &str) {
        self.token(json.as_bytes());
    }

    /// Returns the written value.
    ///
    /// # Errors
    /// [`OutTooSmall`], with the exact size of the whole; `out` holds some part of it then.
    #[cfg_attr(not(target_os = "none"), inline)]
    pub fn finish(self) -> Result<&'o [u8], OutTooSmall> {
        let out: &'o [u8] = self.out;
        out.get(..self.len).ok_or(OutTooSmall { needed: self.len })
    }

    /// Writes the start of a value, or all of it.
    #[cfg_attr(not(target_os = "none"), inline)]
    fn token(&mut self, bytes: &[u8]) {
        if self.needs_comma {
            self.push(b",");
        }
        self.needs_comma = true;
        self.push(bytes);
    }

    #[cfg_attr(not(target_os = "none"), inline)]
    #[cfg_attr(target_os = "none", inline(never))]
    fn push(&mut self, bytes: &[u8]) {
        // Cut in two steps, so that the compiler sees both lengths as one and no panic stays.
        let behind = self.out.get_mut(self.len..).unwrap_or_default();
        if let Some(room) = behind.get_mut(..bytes.len()) {
            room.copy_from_slice(bytes);
        }
        self.len = self.len.saturating_add(bytes.len());
    }

    fn escape(&mut self, text: &str) {
        let mut rest = text.as_bytes();
        while let Some((plain, from)) = rest.split_at_checked(special(rest)) {
            self.push(plain);
            let Some((byte, behind)) = from.split_first() else { break };
            match byte {
                b'"' => self.push(b"\\\""),
                b'\\' => self.push(b"\\\\"),
                0x08 => self.push(b"\\b"),
                0x09 => self.push(b"\\t"),
                0x0a => self.push(b"\\n"),
                0x0c => self.push(b"\\f"),
                0x0d => self.push(b"\\r"),
                _ => {
                    let hex = |digit| char::from_digit(digit, 16).map_or(b'0', |c| c as u8);
                    let byte = u32::from(*byte);
                    self.push(&[b'\\', b'u', b'0', b'0', hex(byte >> 4), hex(byte & 0xf)]);
                }
            }
            rest = behind;
        }
    }
}

/// Writes the decimal digits, from the end of `digits` on backwards.
pub(crate) fn decimal(value: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut rest = value;
    let mut start = digits.len();
    for (at, digit) in digits.iter_mut().enumerate().rev() {
        let remainder;
        (rest, remainder) = by_ten(rest);
        *digit = b'0'.wrapping_add(remainder);
        start = at;
        if rest == 0 {
            break;
        }
    }
    digits.get(start..).unwrap_or_default()
}

/// Divides by ten, in steps that a processor of 32 bits has an instruction for: its division of 64
/// bits takes half a KiB of flash.
fn by_ten(value: u64) -> (u64, u8) {
    let (high, low) = ((value >> 32) as u32, value as u32);
    let middle = ((high % 10) << 16) | (low >> 16);
    let last = ((middle % 10) << 16) | (low & 0xffff);
    let quotient = u64::from(high / 10) << 32 | u64::from(middle / 10) << 16 | u64::from(last / 10);
    (quotient, (last % 10) as u8)
}
