//! What came of a call, as an owned value.

use triwire::channel::envelope::{self, Object};
use triwire::channel::refusal::Refusal;
use triwire::json::{self, Text};

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was carried out.
    Observed(
        /// What was measured.
        Observed,
    ),
    /// It was refused.
    Refused {
        /// The rule's word.
        refused: String,
        /// For people.
        why: String,
    },
}

impl Outcome {
    pub(crate) fn of(outcome: envelope::Outcome<'_>) -> Self {
        match outcome {
            envelope::Outcome::Observed(object) => {
                Self::Observed(Observed(object.as_str().to_owned()))
            }
            envelope::Outcome::Refused { refused, why } => {
                Self::Refused { refused: owned(refused), why: owned(why) }
            }
        }
    }

    /// Lends the outcome as the envelopes take it.
    ///
    /// # Cost
    /// Linear in what was observed.
    #[must_use]
    pub fn as_core(&self) -> envelope::Outcome<'_> {
        match self {
            Self::Observed(observed) => envelope::Outcome::Observed(observed.object()),
            Self::Refused { refused, why } => {
                envelope::Outcome::Refused { refused: Text::plain(refused), why: Text::plain(why) }
            }
        }
    }
}

impl From<Refusal> for Outcome {
    fn from(refusal: Refusal) -> Self {
        Self::Refused { refused: refusal.as_str().to_owned(), why: refusal.why().to_owned() }
    }
}

/// A text as characters; half a surrogate pair becomes U+FFFD.
pub(crate) fn owned(text: Text<'_>) -> String {
    match text.as_str() {
        Some(plain) => plain.to_owned(),
        None => text.chars().map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect(),
    }
}

/// A JSON object, as the executor wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed(String);

impl Observed {
    /// Takes the text of one JSON object.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(text: impl Into<String>) -> Result<Self, json::Error> {
        let text = text.into();
        Object::parse(&text)?;
        Ok(Self(text))
    }

    /// Returns the object's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads the object.
    ///
    /// # Cost
    /// Linear in its text.
    #[must_use]
    pub fn object(&self) -> Object<'_> {
        // It was one when it came.
        Object::parse(&self.0).unwrap_or(Object::EMPTY)
    }
}
