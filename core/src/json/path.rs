//! Where in a message a byte stands, for people: `products[2].price.amount`.

use core::fmt::{self, Write as _};
use core::str;

use super::{Error, MAX_JSON_DEPTH, Reader, Text, Type};

/// Characters of a name that are shown.
const MAX_NAME_SHOWN: usize = 64;

/// Returns the path to the member or item in which the byte at `at` stands, as far as the
/// message can be read up to there. It is empty at the outermost value.
///
/// Names that are no identifiers are shown in brackets, with escapes; longer ones than 64
/// characters are cut.
///
/// # Cost
/// Nothing until it is shown; then linear in the message up to `at`, and a stack of 64 offsets.
///
/// ```
/// use triwire::json::path;
///
/// let message = br#"{"products":[1,{"price per kg":{"amount":"12"}}]}"#;
/// assert_eq!(path(message, 41).to_string(), r#"products[1]["price per kg"].amount"#);
/// assert_eq!(path(message, 12).to_string(), "products");
/// assert_eq!(path(message, 0).to_string(), "");
/// assert_eq!(path(br#"{"a":[tru]}"#, 6).to_string(), "a[0]");
/// ```
#[must_use]
pub const fn path(message: &[u8], at: usize) -> Path<'_> {
    Path { message, at }
}

/// The place of a byte in a message; shown by its `Display`. Made by [`path`].
#[derive(Clone, Copy)]
pub struct Path<'m> {
    message: &'m [u8],
    at: usize,
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let readable = match str::from_utf8(self.message) {
            Ok(text) => text,
            Err(error) => {
                let valid = self.message.get(..error.valid_up_to()).unwrap_or_default();
                str::from_utf8(valid).unwrap_or_default()
            }
        };
        let Ok(mut reader) = Reader::from_str(readable) else { return Ok(()) };
        let mut trail = Trail { steps: [Step::Item(BEFORE_FIRST); MAX_JSON_DEPTH], depth: 0 };
        // A broken message ends the walk where it breaks; the trail is right up to there.
        let _ = trail.walk(&mut reader, self.at);
        trail.show(&reader, f)
    }
}

impl fmt::Debug for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Path({self})")
    }
}

/// Where the walk is inside one open object or array.
#[derive(Clone, Copy)]
enum Step {
    /// In the member whose name's quote stands at this offset.
    Member(usize),
    /// In this item.
    Item(usize),
}

/// Stands in a [`Step`] for no member or item yet; one more is the first item.
const BEFORE_FIRST: usize = usize::MAX;

struct Trail {
    steps: [Step; MAX_JSON_DEPTH],
    depth: usize,
}

impl Trail {
    /// Walks until the byte at `at` is reached.
    fn walk(&mut self, reader: &mut Reader<'_>, at: usize) -> Result<(), Error> {
        loop {
            if reader.at() >= at {
                return Ok(());
            }
            match reader.peek()? {
                Type::Object => {
                    reader.begin_object()?;
                    self.enter(Step::Member(BEFORE_FIRST));
                }
                Type::Array => {
                    reader.begin_array()?;
                    self.enter(Step::Item(BEFORE_FIRST));
                }
                _ => {
                    let value = reader.value()?;
                    if at.saturating_sub(value.at()) < value.as_str().len() {
                        return Ok(());
                    }
                }
            }
            if !self.walk_on(reader, at)? {
                return Ok(());
            }
        }
    }

    /// Walks to the next value; `false` when the byte stands before it, or nothing is left.
    fn walk_on(&mut self, reader: &mut Reader<'_>, at: usize) -> Result<bool, Error> {
        loop {
            let Some(step) = self.depth.checked_sub(1).and_then(|last| self.steps.get_mut(last))
            else {
                return Ok(false);
            };
            let is_first = matches!(step, Step::Member(BEFORE_FIRST) | Step::Item(BEFORE_FIRST));
            let token = reader.at();
            if token > at || (token == at && !is_first) {
                // Between two values, or at the end: that is the whole object or array.
                self.leave();
                return Ok(false);
            }
            match step {
                Step::Member(name) => {
                    if let Some(quote) = reader.find_name()? {
                        if quote > at {
                            self.leave();
                            return Ok(false);
                        }
                        *name = quote;
                        reader.skip_name(quote)?;
                        return Ok(true);
                    }
                }
                Step::Item(index) => {
                    if reader.item()? {
                        *index = index.wrapping_add(1);
                        return Ok(true);
                    }
                }
            }
            self.leave();
            if token == at {
                return Ok(false);
            }
        }
    }

    fn enter(&mut self, step: Step) {
        if let Some(place) = self.steps.get_mut(self.depth) {
            *place = step;
            self.depth = self.depth.saturating_add(1);
        }
    }

    fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    fn show(&self, reader: &Reader<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = self.steps.get(..self.depth).unwrap_or_default();
        let mut is_start = true;
        for step in steps {
            match *step {
                Step::Member(BEFORE_FIRST) | Step::Item(BEFORE_FIRST) => {}
                Step::Item(index) => write!(f, "[{index}]")?,
                Step::Member(quote) => {
                    if let Ok((name, _)) = reader.read_string(quote) {
                        show_name(name, is_start, f)?;
                    }
                }
            }
            is_start = false;
        }
        Ok(())
    }
}

fn show_name(name: Text<'_>, is_start: bool, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut shown = name.chars().take(MAX_NAME_SHOWN).map(|c| c.unwrap_or('\u{fffd}'));
    let is_identifier = !name.is_empty()
        && shown.clone().all(|c| c.is_alphanumeric() || matches!(c, '_' | '$' | '-'));
    let is_cut = name.chars().nth(MAX_NAME_SHOWN).is_some();
    let cut = if is_cut { "\u{2026}" } else { "" };
    if is_identifier {
        f.write_str(if is_start { "" } else { "." })?;
        shown.try_for_each(|c| f.write_char(c))?;
        f.write_str(cut)
    } else {
        f.write_str("[\"")?;
        shown.try_for_each(|c| match c {
            '\'' | char::REPLACEMENT_CHARACTER => f.write_char(c),
            _ if c.is_alphanumeric() => f.write_char(c),
            _ => write!(f, "{}", c.escape_default()),
        })?;
        write!(f, "{cut}\"]")
    }
}
