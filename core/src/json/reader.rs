//! Pulls tokens out of a message.

use core::str;

use super::text::special;
use super::{Error, Expected, Fault, MAX_JSON_DEPTH, Number, Text, Type};

/// Reads one JSON message token by token.
///
/// The grammar is RFC 8259's, to the letter. A call that fails changes nothing: after a
/// [`Fault::WrongType`] the value can still be read as what it is. Names and strings come as
/// [`Text`], numbers as [`Number`], values that nobody looks into as [`Raw`].
///
/// # Cost
/// Linear in the message, whatever is in it; no allocation, no recursion, a few words of state.
///
/// ```
/// use triwire::json::{Reader, Type};
///
/// let mut reader = Reader::new(br#" {"cmd": ["ls", "-l"], "cwd": null} "#)?;
/// reader.begin_object()?;
/// while let Some(name) = reader.name()? {
///     if name == "cmd" {
///         reader.begin_array()?;
///         let mut words = 0;
///         while reader.item()? {
///             words += usize::from(!reader.string()?.is_empty());
///         }
///         assert_eq!(words, 2);
///     } else {
///         assert_eq!(reader.value()?.kind(), Type::Null);
///     }
/// }
/// reader.end()?;
/// # Ok::<(), triwire::json::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Reader<'i> {
    text: &'i str,
    /// Offset of the next unread byte of `text`, always at a character's start.
    at: usize,
    /// Offset of `text` in the message.
    base: usize,
    /// One bit for each open level, the innermost lowest: 1 for an object, 0 for an array.
    open: u64,
    depth: usize,
    step: Step,
}

/// What may be asked for next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A value.
    Value,
    /// The first member or item, or the end.
    First,
    /// Whatever follows a value.
    After,
}

impl<'i> Reader<'i> {
    /// Starts at the beginning of a whole message.
    ///
    /// # Errors
    /// [`Fault::NotUtf8`] with the offset of the first bad byte, wherever it stands;
    /// [`Fault::ByteOrderMark`].
    #[cfg_attr(not(target_os = "none"), inline)]
    pub fn new(message: &'i [u8]) -> Result<Self, Error> {
        match str::from_utf8(message) {
            Ok(text) => Self::from_str(text),
            Err(error) => Err(Error { at: error.valid_up_to(), fault: Fault::NotUtf8 }),
        }
    }

    /// Starts at the beginning of a whole message that is known to be UTF-8.
    ///
    /// # Errors
    /// [`Fault::ByteOrderMark`].
    #[cfg_attr(not(target_os = "none"), inline)]
    #[expect(clippy::should_implement_trait, reason = "the trait cannot borrow from its input")]
    pub fn from_str(message: &'i str) -> Result<Self, Error> {
        if message.starts_with('\u{feff}') {
            return Err(Error { at: 0, fault: Fault::ByteOrderMark });
        }
        Ok(Self { text: message, at: 0, base: 0, open: 0, depth: 0, step: Step::Value })
    }

    /// Reads a text that is one value, which may nest as it may inside of `outer` open levels.
    pub(crate) fn only_value(text: &'i str, outer: usize) -> Result<Raw<'i>, Error> {
        let mut reader = Self::from_str(text)?;
        reader.depth = outer;
        let value = reader.value()?;
        reader.depth = 0;
        reader.end()?;
        Ok(value)
    }

    /// Starts at the value that stands at an offset of a checked text.
    pub(crate) const fn at_value(text: &'i str, at: usize) -> Self {
        Self { text, at, base: 0, open: 0, depth: 0, step: Step::Value }
    }

    /// Continues in an object or array of a checked text: at its first member or item, or behind
    /// one that ends at `at`.
    pub(crate) const fn inside(text: &'i str, at: usize, is_object: bool, is_first: bool) -> Self {
        let step = if is_first { Step::First } else { Step::After };
        Self { text, at, base: 0, open: is_object as u64, depth: 1, step }
    }

    /// Passes the next member's name and its colon when they are written as `"name":`, as most
    /// peers do; else changes nothing.
    #[cfg_attr(not(target_os = "none"), inline)]
    pub(crate) fn pass_name(&mut self, name: &str) -> bool {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        let rest = match self.step {
            Step::First => Some(rest),
            Step::After => rest.strip_prefix(b","),
            Step::Value => None,
        };
        let behind = rest
            .filter(|_| self.open & 1 == 1)
            .and_then(|rest| rest.strip_prefix(b"\"")?.strip_prefix(name.as_bytes()))
            .and_then(|rest| rest.strip_prefix(b"\":"));
        let Some(behind) = behind else { return false };
        self.at = self.text.len().wrapping_sub(behind.len());
        self.step = Step::Value;
        true
    }

    /// Returns the offset behind the last token.
    pub(crate) const fn last(&self) -> usize {
        self.base.wrapping_add(self.at)
    }

    /// Returns the offset of the next token in the message, past white space.
    #[cfg_attr(not(target_os = "none"), inline)]
    pub fn at(&mut self) -> usize {
        self.at = self.past_space(self.at);
        self.base.wrapping_add(self.at)
    }

    /// Returns the type of the next value, judged by its first character, without reading it.
    ///
    /// # Errors
    /// [`Fault::Unexpected`] or [`Fault::UnexpectedEnd`] when no value stands there.
    #[cfg_attr(not(target_os = "none"), inline)]
    pub fn peek(&mut self) -> Result<Type, Error> {
        if self.step != Step::Value {
            return Err(self.error(self.at, Fault::OutOfStep));
        }
        self.at = self.past_space(self.at);
        match self.byte(self.at) {
            Some(b'{') => Ok(Type::Object),
            Some(b'[') => Ok(Type::Array),
            Some(b'"') => Ok(Type::String),
            Some(b'-' | b'0'..=b'9') => Ok(Type::Number),
            Some(b't' | b'f') => Ok(Type::Boolean),
            Some(b'n') => Ok(Type::Null),
            _ => Err(self.unexpected(self.at, Expected::Value)),
        }
    }

    /// Enters an object.
    ///
    /// # Errors
    /// [`Fault::WrongType`]; [`Fault::TooDeep`]; as [`peek`](Self::peek).
    #[cfg_attr(not(target_os = "none"), inline)]
    pub fn begin_object(&mut self) -> Result<(), Error> {
        self.expect(Type::Object)?;
        self.enter(1)
    }

    /// Reads the next member's name and its colon; its value comes next. `None`: the object
    /// ended, and was left.
    ///
    /// # Errors
    /// The grammar's; the offset is that of the character that does not fit.
    #[cfg_attr(not(target_os = "none"), inline)]
    pub fn name(&mut self) -> Result<Option<Text<'i>>, Error> {
        let Some(quote) = self.find_name()? else { return Ok(None) };
        let (name, end) = self.read_string(quote)?;
        self.at = self.colon_end(end)?;
        self.step = Step::Value;
        Ok(Some(name))
    }

    /// Enters an array.
    ///
    /// # Errors
    /// [`Fault::WrongType`]; [`Fault::TooDeep`]; as [`peek`](Self::peek).
    #[cfg_attr(not(target_os = "none"), inline)]
    pub fn begin_array(&mut self) -> Result<(), Error> {
        self.expect(Type::Array)?;
        self.enter(0)
    }

    /// Steps to the array's next item: `true`, its value comes next. `false`: the array ended,
    /// and was left.
    ///
    /// # Errors
    /// The grammar's; the offset is that of the character that does not fit.
    #[cfg_attr(not(target_os = "none"), inline)]
    pub fn item(&mut self) -> Result<bool, Error> {
        if self.step == Step::Value || self.depth == 0 || self.open & 1 == 1 {
            return Err(self.error(self.at, Fault::OutOfStep));
        }
        let at = self.past_space(self.at);
        match (self.byte(at), self.step) {
            (Some(b']'), _) => {
                self.leave(at);
                Ok(false)
            }
            (Some(b','), Step::After) => {
                self.at = at.wrapping_add(1);
                self.step = Step::Value;
                Ok(true)
            }
            (_, Step::After) => Err(self.unexpected(at, Expected::CommaOrArrayEnd)),
            (None, _) => Err(self.error(at, Fault::UnexpectedEnd)),
            (Some(_), _) => {
                self.at = at;
                self.step = Step::Value;
                Ok(true)
            }
        }
    }

    /// Reads a string.
    ///
    /// Lone surrogates are grammatical as escapes; the text tells, when asked.
    ///
    /// # Errors
    /// [`Fault::WrongType`], [`Fault::ControlCharacter`], [`Fault::BadEscape`]; as
    /// [`peek`](Self::peek).
    #[cfg_attr(not(target_os = "none"), inline)]
    pub fn string(&mut self) -> Result<Text<'i>, Error> {
        self.expect(Type::String)?;
        let (text, end) = self.read_string(self.at)?;
        self.done(end);
        Ok(text)
    }

    /// Reads a number of any size.
    ///
    /// # Errors
    /// [`Fault::WrongType`], [`Fault::BadNumber`]; as [`peek`](Self::peek).
    #[cfg_attr(not(target_os = "none"), inline)]
    pub fn number(&mut self) -> Result<Number<'i>, Error> {
        self.expect(Type::Number)?;
        let end = self.number_end(self.at)?;
        let number = Number::checked(self.slice(self.at, end));
        self.done(end);
        Ok(number)
    }

    /// Reads `true` or `false`.
    ///
    /// # Errors
    /// [`Fault::WrongType`]; as [`peek`](Self::peek).
    #[cfg_attr(not(target_os = "none"), inline)]
    pub fn boolean(&mut self) -> Result<bool, Error> {
        self.expect(Type::Boolean)?;
        let is_true = self.byte(self.at) == Some(b't');
        let end = self.word_end(self.at, if is_true { "true" } else { "false" })?;
        self.done(end);
        Ok(is_true)
    }

    /// Reads `null`.
    ///
    /// # Errors
    /// [`Fault::WrongType`]; as [`peek`](Self::peek).
    #[cfg_attr(not(target_os = "none"), inline)]
    pub fn null(&mut self) -> Result<(), Error> {
        self.expect(Type::Null)?;
        let end = self.word_end(self.at, "null")?;
        self.done(end);
        Ok(())
    }

    /// Reads a value of any type, with all that is in it, and returns its checked text.
    ///
    /// Nothing in it is looked at but the grammar: it may repeat members, and hold numbers of any
    /// size and lone surrogates.
    ///
    /// # Errors
    /// The grammar's; [`Fault::TooDeep`], counted from the message's outermost value.
    pub fn value(&mut self) -> Result<Raw<'i>, Error> {
        self.peek()?;
        let start = self.at;
        let end = self.value_end(start)?;
        self.done(end);
        Ok(Raw { text: self.slice(start, end), at: self.base.wrapping_add(start) })
    }

    /// Ends the reading: the message's value was read, and only white space may be left.
    ///
    /// # Errors
    /// [`Fault::TrailingBytes`], with the offset of the first.
    #[cfg_attr(not(target_os = "none"), inline)]
    pub fn end(self) -> Result<(), Error> {
        if self.step != Step::After || self.depth != 0 {
            return Err(self.error(self.at, Fault::OutOfStep));
        }
        let at = self.past_space(self.at);
        if at == self.text.len() { Ok(()) } else { Err(self.error(at, Fault::TrailingBytes)) }
    }
}

/// The grammar. Offsets are within the text, or one past its end, so that nothing here wraps.
impl<'i> Reader<'i> {
    #[inline]
    fn byte(&self, at: usize) -> Option<u8> {
        self.text.as_bytes().get(at).copied()
    }

    #[cfg_attr(not(target_os = "none"), inline)]
    #[cfg_attr(target_os = "none", inline(never))]
    fn slice(&self, start: usize, end: usize) -> &'i str {
        self.text.get(start..end).unwrap_or_default()
    }

    #[cfg_attr(not(target_os = "none"), inline)]
    #[cfg_attr(target_os = "none", inline(never))]
    fn past_space(&self, mut at: usize) -> usize {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.byte(at) {
            at = at.wrapping_add(1);
        }
        at
    }

    #[cold]
    #[inline(never)]
    fn error(&self, at: usize, fault: Fault) -> Error {
        Error { at: self.base.wrapping_add(at), fault }
    }

    #[cold]
    #[inline(never)]
    fn unexpected(&self, at: usize, expected: Expected) -> Error {
        let found = self.text.get(at..).and_then(|rest| rest.chars().next());
        self.error(
            at,
            found.map_or(Fault::UnexpectedEnd, |found| Fault::Unexpected { expected, found }),
        )
    }

    #[cfg_attr(not(target_os = "none"), inline)]
    fn expect(&mut self, expected: Type) -> Result<(), Error> {
        let found = self.peek()?;
        if found == expected {
            Ok(())
        } else {
            Err(self.error(self.at, Fault::WrongType { expected, found }))
        }
    }

    #[cfg_attr(not(target_os = "none"), inline)]
    fn enter(&mut self, bit: u64) -> Result<(), Error> {
        if self.depth >= MAX_JSON_DEPTH {
            return Err(self.error(self.at, Fault::TooDeep));
        }
        self.open = (self.open << 1) | bit;
        self.depth = self.depth.wrapping_add(1);
        self.at = self.at.wrapping_add(1);
        self.step = Step::First;
        Ok(())
    }

    #[cfg_attr(not(target_os = "none"), inline)]
    fn leave(&mut self, bracket: usize) {
        self.open >>= 1;
        self.depth = self.depth.wrapping_sub(1);
        self.done(bracket.wrapping_add(1));
    }

    #[cfg_attr(not(target_os = "none"), inline)]
    fn done(&mut self, end: usize) {
        self.at = end;
        self.step = Step::After;
    }

    /// Finds the quote that opens the next member's name; leaves the object at its end.
    #[cfg_attr(not(target_os = "none"), inline)]
    pub(super) fn find_name(&mut self) -> Result<Option<usize>, Error> {
        if self.step == Step::Value || self.open & 1 == 0 {
            return Err(self.error(self.at, Fault::OutOfStep));
        }
        let at = self.past_space(self.at);
        match (self.byte(at), self.step) {
            (Some(b'}'), _) => {
                self.leave(at);
                Ok(None)
            }
            (Some(b'"'), Step::First) => Ok(Some(at)),
            (_, Step::First) => Err(self.unexpected(at, Expected::NameOrEnd)),
            (Some(b','), _) => {
                let quote = self.past_space(at.wrapping_add(1));
                if self.byte(quote) == Some(b'"') {
                    Ok(Some(quote))
                } else {
                    Err(self.unexpected(quote, Expected::Name))
                }
            }
            _ => Err(self.unexpected(at, Expected::CommaOrObjectEnd)),
        }
    }

    /// Reads the string whose opening quote stands at `quote`; returns the offset behind it too.
    #[cfg_attr(not(target_os = "none"), inline)]
    pub(super) fn read_string(&self, quote: usize) -> Result<(Text<'i>, usize), Error> {
        let (end, is_escaped) = self.string_end(quote)?;
        let raw = self.slice(quote.wrapping_add(1), end);
        let text = if is_escaped { Text::escaped(raw) } else { Text::plain(raw) };
        Ok((text, end.wrapping_add(1)))
    }

    /// Skips the name whose opening quote stands at `quote`, and its colon.
    #[cfg_attr(not(target_os = "none"), inline)]
    pub(super) fn skip_name(&mut self, quote: usize) -> Result<(), Error> {
        self.at = self.name_end(quote)?;
        self.step = Step::Value;
        Ok(())
    }

    #[cfg_attr(not(target_os = "none"), inline)]
    fn name_end(&self, quote: usize) -> Result<usize, Error> {
        let (end, _) = self.string_end(quote)?;
        self.colon_end(end.wrapping_add(1))
    }

    #[cfg_attr(not(target_os = "none"), inline)]
    fn colon_end(&self, at: usize) -> Result<usize, Error> {
        let colon = self.past_space(at);
        if self.byte(colon) == Some(b':') {
            Ok(colon.wrapping_add(1))
        } else {
            Err(self.unexpected(colon, Expected::Colon))
        }
    }

    /// Checks the value at `start`, with all that is in it. The verbs would judge the same; this
    /// keeps its few words of state in registers.
    fn value_end(&self, start: usize) -> Result<usize, Error> {
        let mut at = start;
        let mut open = self.open;
        let mut depth = self.depth;
        'value: loop {
            match self.byte(at) {
                Some(b'"') => at = self.string_end(at)?.0.wrapping_add(1),
                Some(b'-' | b'0'..=b'9') => at = self.number_end(at)?,
                Some(bracket @ (b'{' | b'[')) => {
                    if depth >= MAX_JSON_DEPTH {
                        return Err(self.error(at, Fault::TooDeep));
                    }
                    depth = depth.wrapping_add(1);
                    at = self.past_space(at.wrapping_add(1));
                    if bracket == b'{' {
                        open = (open << 1) | 1;
                        match self.byte(at) {
                            Some(b'"') => {
                                at = self.past_space(self.name_end(at)?);
                                continue 'value;
                            }
                            Some(b'}') => {}
                            _ => return Err(self.unexpected(at, Expected::NameOrEnd)),
                        }
                    } else {
                        open <<= 1;
                        if self.byte(at) != Some(b']') {
                            continue 'value;
                        }
                    }
                }
                Some(b't') => at = self.word_end(at, "true")?,
                Some(b'f') => at = self.word_end(at, "false")?,
                Some(b'n') => at = self.word_end(at, "null")?,
                _ => return Err(self.unexpected(at, Expected::Value)),
            }
            while depth > self.depth {
                at = self.past_space(at);
                match (self.byte(at), open & 1) {
                    (Some(b','), 0) => {
                        at = self.past_space(at.wrapping_add(1));
                        continue 'value;
                    }
                    (Some(b','), _) => {
                        let quote = self.past_space(at.wrapping_add(1));
                        if self.byte(quote) != Some(b'"') {
                            return Err(self.unexpected(quote, Expected::Name));
                        }
                        at = self.past_space(self.name_end(quote)?);
                        continue 'value;
                    }
                    (Some(b']'), 0) | (Some(b'}'), 1) => {
                        open >>= 1;
                        depth = depth.wrapping_sub(1);
                        at = at.wrapping_add(1);
                    }
                    (_, 0) => return Err(self.unexpected(at, Expected::CommaOrArrayEnd)),
                    _ => return Err(self.unexpected(at, Expected::CommaOrObjectEnd)),
                }
            }
            return Ok(at);
        }
    }

    /// Finds the closing quote, and whether an escape stands before it.
    #[cfg_attr(not(target_os = "none"), inline)]
    fn string_end(&self, quote: usize) -> Result<(usize, bool), Error> {
        let mut at = quote.wrapping_add(1);
        let mut is_escaped = false;
        loop {
            at = at.wrapping_add(special(self.text.as_bytes().get(at..).unwrap_or_default()));
            match self.byte(at) {
                Some(b'"') => return Ok((at, is_escaped)),
                Some(b'\\') => {
                    at = self.escape_end(at)?;
                    is_escaped = true;
                }
                Some(found) => return Err(self.error(at, Fault::ControlCharacter { found })),
                None => return Err(self.error(at, Fault::UnexpectedEnd)),
            }
        }
    }

    /// Checks the escape whose backslash stands at `at`, one of a lone surrogate included.
    fn escape_end(&self, at: usize) -> Result<usize, Error> {
        let kind = at.wrapping_add(1);
        match self.byte(kind) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                Ok(kind.wrapping_add(1))
            }
            Some(b'u') => {
                let digits = kind.wrapping_add(1);
                let end = digits.wrapping_add(4);
                let rest = self.text.as_bytes().get(digits..).unwrap_or_default();
                if !rest.iter().take(4).all(u8::is_ascii_hexdigit) {
                    Err(self.error(at, Fault::BadEscape))
                } else if end > self.text.len() {
                    Err(self.error(self.text.len(), Fault::UnexpectedEnd))
                } else {
                    Ok(end)
                }
            }
            Some(_) => Err(self.error(at, Fault::BadEscape)),
            None => Err(self.error(kind, Fault::UnexpectedEnd)),
        }
    }

    #[cfg_attr(not(target_os = "none"), inline)]
    fn number_end(&self, start: usize) -> Result<usize, Error> {
        let mut at = start;
        if self.byte(at) == Some(b'-') {
            at = at.wrapping_add(1);
        }
        at = if self.byte(at) == Some(b'0') { at.wrapping_add(1) } else { self.digits(at)? };
        if self.byte(at) == Some(b'.') {
            at = self.digits(at.wrapping_add(1))?;
        }
        if let Some(b'e' | b'E') = self.byte(at) {
            at = at.wrapping_add(1);
            if let Some(b'+' | b'-') = self.byte(at) {
                at = at.wrapping_add(1);
            }
            at = self.digits(at)?;
        }
        match self.byte(at) {
            Some(b'0'..=b'9' | b'.' | b'-' | b'+' | b'_' | b'a'..=b'z' | b'A'..=b'Z') => {
                Err(self.error(at, Fault::BadNumber))
            }
            _ => Ok(at),
        }
    }

    /// Passes one digit or more.
    #[cfg_attr(not(target_os = "none"), inline)]
    fn digits(&self, start: usize) -> Result<usize, Error> {
        let mut at = start;
        while let Some(b'0'..=b'9') = self.byte(at) {
            at = at.wrapping_add(1);
        }
        if at > start {
            Ok(at)
        } else if at >= self.text.len() {
            Err(self.error(at, Fault::UnexpectedEnd))
        } else {
            Err(self.error(at, Fault::BadNumber))
        }
    }

    #[cfg_attr(not(target_os = "none"), inline)]
    fn word_end(&self, at: usize, word: &str) -> Result<usize, Error> {
        let rest = self.text.as_bytes().get(at..).unwrap_or_default();
        if rest.starts_with(word.as_bytes()) {
            Ok(at.wrapping_add(word.len()))
        } else if word.as_bytes().starts_with(rest) {
            Err(self.error(self.text.len(), Fault::UnexpectedEnd))
        } else {
            Err(self.unexpected(at, Expected::Value))
        }
    }
}

/// A value of any type, checked, as it stands in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw<'i> {
    text: &'i str,
    at: usize,
}

impl<'i> Raw<'i> {
    /// Takes a checked text that is one value.
    pub(crate) const fn checked(text: &'i str) -> Self {
        Self { text, at: 0 }
    }

    /// Returns the value's text, without white space around it.
    #[inline]
    #[must_use]
    pub const fn as_str(&self) -> &'i str {
        self.text
    }

    /// Returns the offset of the value in its message, in bytes.
    #[inline]
    #[must_use]
    pub const fn at(&self) -> usize {
        self.at
    }

    /// Returns the value's type.
    #[inline]
    #[must_use]
    pub const fn kind(&self) -> Type {
        match self.text.as_bytes() {
            [b'{', ..] => Type::Object,
            [b'[', ..] => Type::Array,
            [b'"', ..] => Type::String,
            [b't' | b'f', ..] => Type::Boolean,
            [b'n', ..] | [] => Type::Null,
            _ => Type::Number,
        }
    }

    /// Reads the value; offsets stay those of the message. Its grammar was checked before, so
    /// that only a wrong type can come up.
    ///
    /// ```
    /// use triwire::json::Reader;
    ///
    /// let raw = Reader::new(b" [10, 20]")?.value()?;
    /// let mut reader = raw.reader();
    /// reader.begin_array()?;
    /// assert!(reader.item()?);
    /// assert_eq!(reader.at(), 2);
    /// # Ok::<(), triwire::json::Error>(())
    /// ```
    #[inline]
    #[must_use]
    pub const fn reader(&self) -> Reader<'i> {
        Reader { text: self.text, at: 0, base: self.at, open: 0, depth: 0, step: Step::Value }
    }
}
