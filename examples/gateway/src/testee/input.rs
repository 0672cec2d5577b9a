//! Members of a request's `in`, and bytes as hex text.

use std::fmt;

use serde_json::Value;

/// Why a request was not understood.
#[derive(Debug)]
pub(super) struct Bad(pub(super) String);

impl Bad {
    pub(super) fn new(what: impl fmt::Display) -> Self {
        Self(what.to_string())
    }
}

/// A request's `in`.
pub(super) struct Input<'r> {
    raw: &'r str,
    value: Result<Value, String>,
}

impl<'r> Input<'r> {
    pub(super) fn new(raw: &'r str) -> Self {
        // Half of a surrogate pair is none of serde_json's texts: who reads those takes `raw`.
        let value = serde_json::from_str(raw).map_err(|error| format!("in: {error}"));
        Self { raw, value }
    }

    /// The JSON text as it came.
    pub(super) const fn raw(&self) -> &'r str {
        self.raw
    }

    /// A member, when it is there and not null.
    pub(super) fn get(&self, name: &str) -> Result<Option<&Value>, Bad> {
        let object = match &self.value {
            Ok(Value::Object(object)) => object,
            Ok(_) => return Err(Bad::new("in: expected an object")),
            Err(error) => return Err(Bad::new(error)),
        };
        Ok(object.get(name).filter(|value| !value.is_null()))
    }

    fn typed<'v, T>(
        &'v self,
        name: &str,
        what: &str,
        read: impl FnOnce(&'v Value) -> Option<T>,
    ) -> Result<Option<T>, Bad> {
        match self.get(name)? {
            None => Ok(None),
            Some(value) => match read(value) {
                Some(read) => Ok(Some(read)),
                None => Err(Bad::new(format_args!("in.{name}: expected {what}"))),
            },
        }
    }

    pub(super) fn optional_text(&self, name: &str) -> Result<Option<&str>, Bad> {
        self.typed(name, "a string", Value::as_str)
    }

    pub(super) fn text(&self, name: &str) -> Result<&str, Bad> {
        self.optional_text(name)?.ok_or_else(|| missing(name))
    }

    pub(super) fn flag(&self, name: &str, default: bool) -> Result<bool, Bad> {
        Ok(self.typed(name, "true or false", Value::as_bool)?.unwrap_or(default))
    }

    pub(super) fn count(&self, name: &str, default: usize) -> Result<usize, Bad> {
        let read = |value: &Value| value.as_u64().and_then(|count| usize::try_from(count).ok());
        Ok(self.typed(name, "a whole number", read)?.unwrap_or(default))
    }

    pub(super) fn list(&self, name: &str) -> Result<&[Value], Bad> {
        self.typed(name, "a list", |value| value.as_array().map(Vec::as_slice))?
            .ok_or_else(|| missing(name))
    }

    pub(super) fn bytes(&self, name: &str) -> Result<Vec<u8>, Bad> {
        self.typed(name, "hex digits in pairs", |value| unhex(value.as_str()?))?
            .ok_or_else(|| missing(name))
    }

    /// A list of hex texts: one feed each.
    pub(super) fn chunks(&self) -> Result<Vec<Vec<u8>>, Bad> {
        let chunk = |value: &Value| {
            value
                .as_str()
                .and_then(unhex)
                .ok_or_else(|| Bad::new("in.chunks: expected hex digits in pairs"))
        };
        self.list("chunks")?.iter().map(chunk).collect()
    }
}

fn missing(name: &str) -> Bad {
    Bad::new(format_args!("in.{name} is missing"))
}

/// Reads hex text; `None` when it is none.
#[must_use]
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit =
        |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    text.as_bytes()
        .chunks(2)
        .map(|pair| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        })
        .collect()
}

/// Renders bytes as hex text.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    bytes
        .iter()
        .flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]])
        .collect()
}
