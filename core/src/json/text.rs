//! Text: the content of a JSON string, with JavaScript's idea of length and white space.
//!
//! ```
//! use triwire::json::{Reader, Text, js_trim, utf16_len};
//!
//! let text = Reader::new(br#"" caf\u00e9 \ud83d\ude00\u00a0""#)?.string()?;
//! assert_eq!(text.trim(), "caf\u{e9} \u{1f600}");
//! assert_eq!(text.trim().utf16_len(), 7);
//! let mut out = [0; 16];
//! assert_eq!(text.trim().decode(&mut out), Ok("caf\u{e9} \u{1f600}"));
//! assert_eq!(Text::plain("cwd").index_in(&["cmd", "cwd"]), Some(1));
//! assert_eq!(js_trim("\u{feff} a \u{85}"), "a \u{85}");
//! assert_eq!(utf16_len("\u{1f600}"), 2);
//! # Ok::<(), triwire::json::Error>(())
//! ```

use core::fmt::{self, Write as _};

use serde::{Serialize, Serializer};

/// The content of a JSON string: plain text of ours, or a peer's with its escapes still in it.
///
/// Compares by the decoded characters: `"\u0061"` equals `"a"`. A lone surrogate equals the same
/// lone surrogate only, never a `str`. Shown and serialized, it is U+FFFD.
#[derive(Clone, Copy, Default)]
pub struct Text<'i> {
    raw: &'i str,
    form: Form,
}

/// How a text is to be read. As wide as its neighbours: padding behind a narrower field is copied
/// piecemeal wherever a text is passed on, which takes longer than reading a short string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(usize)]
enum Form {
    /// Every character for itself.
    #[default]
    Plain,
    /// With escapes, all of them checked.
    Escaped,
}

impl<'i> Text<'i> {
    /// Makes a text that holds these very characters; a backslash is a backslash.
    #[inline]
    #[must_use]
    pub const fn plain(text: &'i str) -> Self {
        Self { raw: text, form: Form::Plain }
    }

    /// Takes a string's content with checked escapes in it.
    #[inline]
    pub(super) const fn escaped(raw: &'i str) -> Self {
        Self { raw, form: Form::Escaped }
    }

    /// Returns the characters as they stand, unless an escape is among them.
    #[inline]
    #[must_use]
    pub const fn as_str(&self) -> Option<&'i str> {
        match self.form {
            Form::Plain => Some(self.raw),
            Form::Escaped => None,
        }
    }

    /// Decodes character by character.
    #[inline]
    #[must_use]
    pub const fn chars(&self) -> Chars<'i> {
        Chars { rest: self.raw, form: self.form }
    }

    /// Reports whether every surrogate has its other half.
    #[must_use]
    pub fn is_well_formed(&self) -> bool {
        self.form == Form::Plain || self.chars().all(|c| c.is_ok())
    }

    /// Reports whether there is no character at all.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// Returns the length in UTF-16 code units, JavaScript's `length`.
    #[must_use]
    pub fn utf16_len(&self) -> usize {
        if self.form == Form::Escaped {
            self.chars().fold(0, |sum: usize, c| sum.wrapping_add(c.map_or(1, char::len_utf16)))
        } else {
            utf16_len(self.raw)
        }
    }

    /// Returns the length in bytes of UTF-8 once decoded; a lone surrogate counts 3, as U+FFFD.
    #[must_use]
    pub fn utf8_len(&self) -> usize {
        if self.form == Form::Escaped {
            self.chars().fold(0, |sum: usize, c| sum.wrapping_add(c.map_or(3, char::len_utf8)))
        } else {
            self.raw.len()
        }
    }

    /// Cuts white space off both ends as JavaScript's `trim` does, escaped or not.
    #[must_use]
    pub fn trim(&self) -> Self {
        if self.form == Form::Plain {
            return Self::plain(js_trim(self.raw));
        }
        let mut chars = self.chars();
        let mut span: Option<(usize, usize)> = None;
        let mut form = Form::Plain;
        let mut form_so_far = Form::Plain;
        loop {
            let start = self.raw.len().wrapping_sub(chars.rest.len());
            let Some(c) = chars.next() else { break };
            let end = self.raw.len().wrapping_sub(chars.rest.len());
            if c.is_ok_and(is_js_space) && span.is_none() {
                continue;
            }
            if self.raw.as_bytes().get(start) == Some(&b'\\') {
                form_so_far = Form::Escaped;
            }
            if !c.is_ok_and(is_js_space) {
                span = Some((span.map_or(start, |(first, _)| first), end));
                form = form_so_far;
            }
        }
        let (start, end) = span.unwrap_or_default();
        Self { raw: self.raw.get(start..end).unwrap_or_default(), form }
    }

    /// Returns how many bytes [`Writer::string`](super::Writer::string) writes for it, without
    /// the quotes.
    #[must_use]
    pub fn written_len(&self) -> usize {
        self.chars().fold(0, |sum: usize, c| sum.wrapping_add(written_len(c)))
    }

    /// Returns the longest beginning that takes at most `limit` bytes when written, cut between
    /// characters.
    #[must_use]
    pub fn within(&self, limit: usize) -> Self {
        let mut chars = self.chars();
        let mut left = limit;
        loop {
            let at = self.raw.len().wrapping_sub(chars.rest.len());
            let room = match chars.next() {
                None => return *self,
                Some(c) => left.checked_sub(written_len(c)),
            };
            match room {
                Some(room) => left = room,
                None => return Self { raw: self.raw.get(..at).unwrap_or_default(), ..*self },
            }
        }
    }

    /// Decodes into the caller's memory; [`utf8_len`](Self::utf8_len) bytes are enough.
    ///
    /// # Errors
    /// [`DecodeError::LoneSurrogate`], whatever the room; else [`DecodeError::OutTooSmall`].
    /// `out` may hold a part of the text then.
    pub fn decode<'o>(&self, out: &'o mut [u8]) -> Result<&'o str, DecodeError> {
        let mut len = 0_usize;
        if let Some(text) = self.as_str() {
            len = text.len();
            if let Some(room) = out.get_mut(..len) {
                room.copy_from_slice(text.as_bytes());
            }
        } else {
            for c in self.chars() {
                let c = c.map_err(DecodeError::LoneSurrogate)?;
                let mut bytes = [0; 4];
                let bytes = c.encode_utf8(&mut bytes).as_bytes();
                let behind = out.get_mut(len..).unwrap_or_default();
                if let Some(room) = behind.get_mut(..bytes.len()) {
                    room.copy_from_slice(bytes);
                }
                len = len.wrapping_add(bytes.len());
            }
        }
        match out.get(..len) {
            // Always UTF-8: it was put together from characters just now.
            Some(decoded) => Ok(core::str::from_utf8(decoded).unwrap_or_default()),
            None => Err(DecodeError::OutTooSmall { needed: len }),
        }
    }

    /// Returns the index of the first name that this text equals.
    #[cfg_attr(not(target_os = "none"), inline)]
    #[must_use]
    pub fn index_in(&self, names: &[&str]) -> Option<usize> {
        match self.as_str() {
            Some(text) => names.iter().position(|name| *name == text),
            None => names.iter().position(|name| self == name),
        }
    }
}

impl<'i> From<&'i str> for Text<'i> {
    #[inline]
    fn from(text: &'i str) -> Self {
        Self::plain(text)
    }
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self.as_str(), other.as_str()) {
            (Some(one), Some(two)) => one == two,
            _ => self.chars().eq(other.chars()),
        }
    }
}

impl Eq for Text<'_> {}

impl PartialEq<str> for Text<'_> {
    fn eq(&self, other: &str) -> bool {
        *self == Text::plain(other)
    }
}

impl PartialEq<&str> for Text<'_> {
    fn eq(&self, other: &&str) -> bool {
        *self == Text::plain(other)
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_str() {
            Some(text) => f.write_str(text),
            None => self
                .chars()
                .try_for_each(|c| f.write_char(c.unwrap_or(char::REPLACEMENT_CHARACTER))),
        }
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.chars() {
            match c {
                Ok(c) => write!(f, "{}", c.escape_debug())?,
                Err(LoneSurrogate(unit)) => write!(f, "\\u{{{unit:x}}}")?,
            }
        }
        f.write_char('"')
    }
}

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.as_str() {
            Some(text) => serializer.serialize_str(text),
            None => serializer.collect_str(self),
        }
    }
}

/// Decodes a [`Text`] character by character; a half without its other half is an error item.
#[derive(Clone, Debug)]
pub struct Chars<'i> {
    rest: &'i str,
    form: Form,
}

impl Iterator for Chars<'_> {
    type Item = Result<char, LoneSurrogate>;

    #[cfg_attr(not(target_os = "none"), inline)]
    fn next(&mut self) -> Option<Self::Item> {
        let mut plain = self.rest.chars();
        let first = plain.next()?;
        if self.form == Form::Escaped && first == '\\' {
            return Some(self.next_escape());
        }
        self.rest = plain.as_str();
        Some(Ok(first))
    }
}

impl Chars<'_> {
    fn next_escape(&mut self) -> Result<char, LoneSurrogate> {
        let short = match self.rest.as_bytes().get(1) {
            Some(b'u') => return self.next_unicode_escape(),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(other) => char::from(*other),
            None => '\\',
        };
        self.rest = self.rest.get(2..).unwrap_or_default();
        Ok(short)
    }

    fn next_unicode_escape(&mut self) -> Result<char, LoneSurrogate> {
        let unit = unicode_escape(self.rest).unwrap_or_default();
        self.rest = self.rest.get(6..).unwrap_or_default();
        if let Some(c) = char::from_u32(u32::from(unit)) {
            return Ok(c);
        }
        match (unit, unicode_escape(self.rest)) {
            (0xd800..=0xdbff, Some(second @ 0xdc00..=0xdfff)) => {
                self.rest = self.rest.get(6..).unwrap_or_default();
                let bits = (u32::from(unit & 0x3ff) << 10) | u32::from(second & 0x3ff);
                Ok(char::from_u32(bits.wrapping_add(0x1_0000)).unwrap_or_default())
            }
            _ => Err(LoneSurrogate(unit)),
        }
    }
}

/// Reads the `\uXXXX` that `text` starts with.
fn unicode_escape(text: &str) -> Option<u16> {
    let digits = text.as_bytes().strip_prefix(b"\\u")?.first_chunk::<4>()?;
    digits
        .iter()
        .try_fold(0, |unit: u16, digit| Some((unit << 4) | char::from(*digit).to_digit(16)? as u16))
}

/// Bytes that one character takes when written.
const fn written_len(c: Result<char, LoneSurrogate>) -> usize {
    match c {
        Ok('"' | '\\' | '\u{8}' | '\t' | '\n' | '\u{c}' | '\r') => 2,
        Ok(..'\u{20}') => 6,
        Ok(c) => c.len_utf8(),
        Err(_) => char::REPLACEMENT_CHARACTER.len_utf8(),
    }
}

/// Half of a surrogate pair without the other half: no character. Holds its code unit, 0xD800 to
/// 0xDFFF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct LoneSurrogate(pub u16);

impl fmt::Display for LoneSurrogate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\\u{:04x} is half of a surrogate pair; send both halves", self.0)
    }
}

impl core::error::Error for LoneSurrogate {}

/// A text that could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum DecodeError {
    /// The caller's memory is too small.
    OutTooSmall {
        /// Bytes that the whole text takes.
        needed: usize,
    },
    /// The text is not well formed.
    LoneSurrogate(LoneSurrogate),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutTooSmall { needed } => crate::OutTooSmall { needed: *needed }.fmt(f),
            Self::LoneSurrogate(lone) => lone.fmt(f),
        }
    }
}

impl core::error::Error for DecodeError {}

/// Cuts off both ends what JavaScript's `trim` cuts off: U+FEFF, but neither U+0085 nor U+200B.
#[must_use]
pub fn js_trim(text: &str) -> &str {
    text.trim_matches(is_js_space)
}

/// Returns a text's length in UTF-16 code units, JavaScript's `length`.
#[must_use]
pub fn utf16_len(text: &str) -> usize {
    // One unit for each character, and one more for those of four bytes.
    text.bytes().fold(0, |sum: usize, byte| {
        sum.wrapping_add(usize::from(byte & 0xc0 != 0x80)).wrapping_add(usize::from(byte >= 0xf0))
    })
}

/// JavaScript's WhiteSpace and LineTerminator.
fn is_js_space(c: char) -> bool {
    matches!(
        c,
        '\t'..='\r'
            | ' '
            | '\u{a0}'
            | '\u{1680}'
            | '\u{2000}'..='\u{200a}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{202f}'
            | '\u{205f}'
            | '\u{3000}'
            | '\u{feff}'
    )
}

/// Counts the bytes before the first that a JSON string cannot hold as it is: a quote, a
/// backslash, a control character.
#[cfg_attr(not(target_os = "none"), inline)]
pub(crate) fn special(bytes: &[u8]) -> usize {
    const ONES: usize = usize::MAX / 0xff;
    const HIGHS: usize = ONES * 0x80;
    const QUOTES: usize = ONES * 0x22;
    const BACKSLASHES: usize = ONES * 0x5c;
    const SPACES: usize = ONES * 0x20;

    let mut rest = bytes;
    while let Some((word, tail)) = rest.split_first_chunk() {
        // A byte's high bit is set where the byte is zero, or below a space. A borrow reaches
        // only bytes behind a hit, and the first hit is what counts.
        let word = usize::from_le_bytes(*word);
        let (quotes, backslashes) = (word ^ QUOTES, word ^ BACKSLASHES);
        let hits = (quotes.wrapping_sub(ONES) & !quotes)
            | (backslashes.wrapping_sub(ONES) & !backslashes)
            | (word.wrapping_sub(SPACES) & !word);
        let hits = hits & HIGHS;
        if hits != 0 {
            let before = bytes.len().wrapping_sub(rest.len());
            return before.wrapping_add((hits.trailing_zeros() >> 3) as usize);
        }
        rest = tail;
    }
    let before = bytes.len().wrapping_sub(rest.len());
    let in_rest = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | ..0x20));
    before.wrapping_add(in_rest.unwrap_or(rest.len()))
}
