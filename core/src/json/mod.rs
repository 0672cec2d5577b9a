//! JSON: one reader and one writer on every target.
//!
//! [`Reader`] pulls one checked token after the other out of a whole message: strict grammar,
//! bounded depth, no recursion, no copy. [`Text`] is a string's content, escaped or plain,
//! [`Number`] a number's exact value, [`Raw`] the span of any checked value. [`Writer`] writes
//! into the caller's memory. Errors carry the byte offset; [`path`] turns it into a place that
//! people can read.
//!
//! ```
//! use triwire::json::{Error, Fault, Reader, Seen, path};
//!
//! fn read(message: &[u8]) -> Result<(bool, u64), Error> {
//!     let (mut ok, mut count) = (false, 0);
//!     let mut seen = Seen::default();
//!     let mut reader = Reader::new(message)?;
//!     reader.begin_object()?;
//!     loop {
//!         let at = reader.at();
//!         let Some(name) = reader.name()? else { break };
//!         let known = name.index_in(&["ok", "count"]);
//!         if known.is_some_and(|index| !seen.mark(index)) {
//!             return Err(Error { at, fault: Fault::Repeated });
//!         }
//!         match known {
//!             Some(0) => ok = reader.boolean()?,
//!             Some(_) => count = reader.number()?.as_u64().unwrap_or(0),
//!             None => drop(reader.value()?),
//!         }
//!     }
//!     reader.end()?;
//!     Ok((ok, count))
//! }
//!
//! assert_eq!(read(br#"{"ok":true,"more":[{}],"count":1e2}"#), Ok((true, 100)));
//!
//! let message = br#"{"ok":true,"more":[1,{"price":01}]}"#;
//! let error = read(message).unwrap_err();
//! assert_eq!(error, Error { at: 31, fault: Fault::BadNumber });
//! assert_eq!(path(message, error.at).to_string(), "more[1].price");
//! ```

mod number;
mod path;
mod reader;
mod text;
mod writer;

use core::fmt;

use crate::words;

pub use number::{ExponentTooLong, Number};
pub use path::{Path, path};
pub use reader::{Raw, Reader};
pub(crate) use text::special;
pub use text::{Chars, DecodeError, LoneSurrogate, Text, js_trim, utf16_len};
pub use writer::Writer;
pub(crate) use writer::decimal;

/// The most objects and arrays that may be open at once; one more is [`Fault::TooDeep`].
pub const MAX_JSON_DEPTH: usize = 64;

/// A message that is not JSON, or not of the shape that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Error {
    /// Offset in the message, in bytes; [`path`] renders the place.
    pub at: usize,
    /// What is wrong there.
    pub fault: Fault,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        words::number(f, "JSON at byte ", self.at as u64, ": ")?;
        self.fault.fmt(f)
    }
}

impl core::error::Error for Error {}

/// What is wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Fault {
    /// The bytes from here on are not UTF-8.
    NotUtf8,
    /// The message starts with a byte order mark.
    ByteOrderMark,
    /// The message ends where more must follow.
    UnexpectedEnd,
    /// The grammar asks for something else here.
    Unexpected {
        /// What may stand here.
        expected: Expected,
        /// What stands here.
        found: char,
    },
    /// More than [`MAX_JSON_DEPTH`] objects and arrays are open.
    TooDeep,
    /// A string holds an unescaped control character.
    ControlCharacter {
        /// The character, U+0000 to U+001F.
        found: u8,
    },
    /// A backslash starts none of JSON's escapes.
    BadEscape,
    /// A number is not written as JSON writes numbers.
    BadNumber,
    /// More than white space follows the value.
    TrailingBytes,
    /// The value is of another type than the one asked for.
    WrongType {
        /// The type asked for.
        expected: Type,
        /// The value's type.
        found: Type,
    },
    /// A member stands twice in an object. Reported by those who know the members, see [`Seen`].
    Repeated,
    /// The reader was called out of order: a value was asked for where none can stand, a member
    /// outside of an object, an item outside of an array. The caller's mistake, not the peer's.
    OutOfStep,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotUtf8 => f.write_str("not UTF-8; send JSON as UTF-8"),
            Self::ByteOrderMark => {
                f.write_str("starts with a byte order mark; send the message without it")
            }
            Self::UnexpectedEnd => f.write_str("ends in the middle of a value; send it whole"),
            Self::Unexpected { expected, found } => {
                words::texts(f, &["expected ", expected.as_str(), ", found "])?;
                match found {
                    ' '..='~' => {
                        words::texts(f, &["'", found.encode_utf8(&mut [0; 4]), "'"])
                    }
                    _ => words::hex(f, "U+", u32::from(*found), 4, b'A'),
                }
            }
            Self::TooDeep => {
                words::number(
                    f,
                    "more than ",
                    MAX_JSON_DEPTH as u64,
                    " open objects and arrays; nest less",
                )
            }
            Self::ControlCharacter { found } => {
                words::hex(f, "control character in a string; write it as \\u", (*found).into(), 4, b'a')
            }
            Self::BadEscape => f.write_str(
                "backslash without an escape; expected one of \" \\ / b f n r t or u and four hex digits",
            ),
            Self::BadNumber => {
                f.write_str("bad number; expected digits as in -12.5e3, without leading zeros")
            }
            Self::TrailingBytes => {
                f.write_str("more text behind the value; send one value in a message")
            }
            Self::WrongType { expected, found } => {
                words::texts(f, &["expected ", expected.as_str(), ", found ", found.as_str()])
            }
            Self::Repeated => f.write_str("this member stands twice; send it once"),
            Self::OutOfStep => f.write_str("the reader was asked for what cannot stand here"),
        }
    }
}

/// What the grammar asks for at some place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Expected {
    /// Any value.
    Value,
    /// A member's name.
    Name,
    /// A member's name, or the end of the object.
    NameOrEnd,
    /// The colon behind a name.
    Colon,
    /// A comma, or the end of the object.
    CommaOrObjectEnd,
    /// A comma, or the end of the array.
    CommaOrArrayEnd,
}

impl Expected {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Value => "a value",
            Self::Name => "a member's name in double quotes",
            Self::NameOrEnd => "a member's name in double quotes or '}'",
            Self::Colon => "':'",
            Self::CommaOrObjectEnd => "',' or '}'",
            Self::CommaOrArrayEnd => "',' or ']'",
        }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Type {
    /// `{…}`
    Object,
    /// `[…]`
    Array,
    /// `"…"`
    String,
    /// A number of any size.
    Number,
    /// `true` or `false`
    Boolean,
    /// `null`
    Null,
}

impl Type {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Object => "an object",
            Self::Array => "an array",
            Self::String => "a string",
            Self::Number => "a number",
            Self::Boolean => "a boolean",
            Self::Null => "null",
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which of an object's known members were there already: at most 64 of them.
///
/// ```
/// let mut seen = triwire::json::Seen::default();
/// assert!(seen.mark(3));
/// assert!(!seen.mark(3));
/// assert!(seen.has(3) && !seen.has(4));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seen(u64);

impl Seen {
    /// None of them.
    pub(crate) const NONE: Self = Self(0);

    /// Marks the member of this index; `false` when it was marked before. An index beyond 63
    /// counts as marked.
    #[cfg_attr(not(target_os = "none"), inline)]
    #[must_use = "a repeated member is refused"]
    pub fn mark(&mut self, index: usize) -> bool {
        let bit = Self::bit(index);
        let is_new = self.0 & bit != bit;
        self.0 |= bit;
        is_new && bit != 0
    }

    /// Reports whether the member of this index is marked.
    #[inline]
    #[must_use]
    pub fn has(&self, index: usize) -> bool {
        self.0 & Self::bit(index) != 0
    }

    #[inline]
    fn bit(index: usize) -> u64 {
        u32::try_from(index).ok().and_then(|index| 1u64.checked_shl(index)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
