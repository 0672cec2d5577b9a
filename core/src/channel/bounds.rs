//! Bounds: the limits that an extension was admitted with, and that every call to it echoes.
//!
//! Two are equal by what they mean: objects as sets of members, arrays in order, strings by their
//! characters, numbers by their exact value.
//!
//! ```
//! use triwire::channel::bounds::Bounds;
//! use triwire::channel::envelope::Object;
//!
//! let admitted = Bounds::parse(r#"{"hosts":["a.example"],"maxRequests":3}"#)?;
//! assert_eq!(admitted.max_requests(), Some(3));
//! let echo = Object::parse(r#"{ "maxRequests": 3.0, "hosts": ["\u0061.example"] }"#)?;
//! assert_eq!(admitted.check(echo), Ok(()));
//! let echo = Object::parse(r#"{"maxRequests":4,"hosts":["a.example"]}"#)?;
//! assert!(admitted.check(echo).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::fmt;

use super::envelope::Object;
use crate::json::{self, MAX_JSON_DEPTH, Reader, Seen, Text, Type};

/// The longest bounds that can be admitted, in bytes (our choice; the contract is silent).
pub const MAX_BOUNDS_LENGTH: usize = 4096;

/// The most members that an object of admitted bounds can have (our choice; the contract is
/// silent).
pub const MAX_BOUNDS_MEMBERS: usize = 64;

/// The member of bounds that says how many requests a tool may make.
const MAX_REQUESTS: &str = "maxRequests";

/// Bounds that can be admitted: one JSON object of at most [`MAX_BOUNDS_LENGTH`] bytes, no object
/// in it with a repeated member or more than [`MAX_BOUNDS_MEMBERS`] of them.
#[derive(Clone, Copy, Debug)]
pub struct Bounds<'a> {
    text: &'a str,
    max_requests: Option<u32>,
}

impl<'a> Bounds<'a> {
    /// Bounds without a member.
    pub const EMPTY: Self = Self { text: "{}", max_requests: None };

    /// Reads bounds.
    ///
    /// # Errors
    /// They cannot be admitted.
    pub fn parse(text: &'a str) -> Result<Self, BoundsError> {
        if text.len() > MAX_BOUNDS_LENGTH {
            return Err(BoundsError { at: MAX_BOUNDS_LENGTH, fault: BoundsFault::TooLong });
        }
        let object = Object::parse(text)?;
        // In itself, each name is found where it stood first: a second one is found out.
        if let Err(difference) = compare(object.as_str(), object, Search::FromStart) {
            let fault = match difference.kind {
                Kind::Exponent => BoundsFault::ExponentTooLong,
                Kind::TooMany => BoundsFault::TooManyMembers,
                Kind::Other => BoundsFault::Repeated,
            };
            return Err(BoundsError { at: difference.at, fault });
        }
        let mut reader = object.reader();
        let mut max_requests = None;
        reader.begin_object()?;
        while let Some(name) = reader.name()? {
            let at = reader.at();
            let value = reader.value()?;
            if name == MAX_REQUESTS {
                let count = value.reader().number().ok().and_then(|number| number.as_u64());
                let count = count.and_then(|count| u32::try_from(count).ok());
                let fault = BoundsFault::MaxRequests;
                max_requests = Some(count.ok_or(BoundsError { at, fault })?);
            }
        }
        Ok(Self { text: object.as_str(), max_requests })
    }

    /// Returns the bounds as they were written.
    #[must_use]
    pub const fn as_str(&self) -> &'a str {
        self.text
    }

    /// Returns the bounds as a call's `boundsEcho`.
    #[must_use]
    pub const fn echo(&self) -> Object<'a> {
        Object::checked(self.text)
    }

    /// Returns how many requests each tool may make: `maxRequests`, `None` for any number.
    #[must_use]
    pub const fn max_requests(&self) -> Option<u32> {
        self.max_requests
    }

    /// Compares with what a call echoes: both must mean the same.
    ///
    /// # Errors
    /// Where in the message they begin to differ.
    ///
    /// # Cost
    /// No look at what follows the first difference; else linear in the echo, and for each member
    /// that does not stand in the admitted order one look at the names of its object. 1 KiB of
    /// stack, whatever the depth.
    pub fn check(&self, echo: Object<'_>) -> Result<(), Mismatch> {
        if self.text == echo.as_str() {
            return Ok(());
        }
        compare(self.text, echo, Search::NextFirst).map_err(|difference| {
            let exponent_too_long = matches!(difference.kind, Kind::Exponent);
            let at = difference.at;
            if exponent_too_long {
                Mismatch::ExponentTooLong { at }
            } else {
                Mismatch::Differs { at }
            }
        })
    }
}

/// What a call echoes is not what was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Mismatch {
    /// Another member or value.
    Differs {
        /// Offset in the message, in bytes: of the name or value, or of the end when one misses.
        at: usize,
    },
    /// A number's exponent has more than nine digits: its value is not compared.
    ExponentTooLong {
        /// Offset of the number in the message, in bytes.
        at: usize,
    },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Differs { at } => {
                write!(
                    f,
                    "the echo differs from the admitted bounds at byte {at}; echo them as they are"
                )
            }
            Self::ExponentTooLong { at } => {
                write!(f, "the number at byte {at} has an exponent of more than nine digits")
            }
        }
    }
}

impl core::error::Error for Mismatch {}

/// Bounds that cannot be admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct BoundsError {
    /// Offset in the bounds, in bytes.
    pub at: usize,
    /// What is wrong there.
    pub fault: BoundsFault,
}

/// What is wrong with bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum BoundsFault {
    /// More than [`MAX_BOUNDS_LENGTH`] bytes.
    TooLong,
    /// No JSON object.
    Json(json::Fault),
    /// A member stands twice in an object.
    Repeated,
    /// An object has more than [`MAX_BOUNDS_MEMBERS`].
    TooManyMembers,
    /// A number's exponent has more than nine digits.
    ExponentTooLong,
    /// `maxRequests` is no whole number of 32 bits.
    MaxRequests,
}

impl fmt::Display for BoundsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fault {
            BoundsFault::TooLong => {
                return write!(f, "bounds: expected at most {MAX_BOUNDS_LENGTH} bytes");
            }
            BoundsFault::Json(fault) => {
                return write!(f, "bounds: {}", json::Error { at: self.at, fault });
            }
            BoundsFault::Repeated => f.write_str("bounds: a member stands twice"),
            BoundsFault::TooManyMembers => {
                write!(f, "bounds: an object has more than {MAX_BOUNDS_MEMBERS} members")
            }
            BoundsFault::ExponentTooLong => {
                f.write_str("bounds: expected an exponent of at most nine digits")
            }
            BoundsFault::MaxRequests => {
                write!(
                    f,
                    "bounds: expected {MAX_REQUESTS} as a whole number of at most {}",
                    u32::MAX
                )
            }
        }?;
        write!(f, " (byte {})", self.at)
    }
}

impl core::error::Error for BoundsError {}

impl From<json::Error> for BoundsError {
    fn from(error: json::Error) -> Self {
        Self { at: error.at, fault: BoundsFault::Json(error.fault) }
    }
}

/// Where a name of the echo is looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Search {
    /// Behind the last one found, then anywhere.
    NextFirst,
    /// From the first on.
    FromStart,
}

struct Difference {
    at: usize,
    kind: Kind,
}

enum Kind {
    Exponent,
    TooMany,
    Other,
}

/// An object or array that is open in both texts.
#[derive(Clone, Copy)]
struct Level {
    /// Members of the admitted object that the echo had.
    seen: Seen,
    /// Offset of its bracket in the admitted text.
    start: u16,
    /// Offset behind the member or item found last.
    next: u16,
    /// Which member stands at `next`.
    index: u8,
    is_object: bool,
}

/// Walks the echo once; `ours` is such that no object of it has a member twice, or it is the echo
/// itself.
fn compare(ours: &str, echo: Object<'_>, search: Search) -> Result<(), Difference> {
    const NONE: Level = Level { seen: Seen::NONE, start: 0, next: 0, index: 0, is_object: false };
    let mut levels = [NONE; MAX_JSON_DEPTH];
    let mut depth = 0_usize;
    let mut theirs = echo.reader();
    // Where the admitted value stands that the next of the echo must equal.
    let mut place = 0;
    loop {
        let at = theirs.at();
        let differs = |kind| Err(Difference { at, kind });
        let mut admitted = Reader::at_value(ours, place);
        let mut end = match leaf(&mut admitted, &mut theirs) {
            Ok(Leaf::Equal) => Some(admitted.at()),
            Ok(Leaf::Open { is_object }) => {
                let start = offset(place_of(&mut admitted));
                let level = Level {
                    seen: Seen::NONE,
                    start,
                    next: start.wrapping_add(1),
                    index: 0,
                    is_object,
                };
                let Some(room) = levels.get_mut(depth) else { return differs(Kind::Other) };
                *room = level;
                depth = depth.wrapping_add(1);
                None
            }
            Ok(Leaf::Exponent) => return differs(Kind::Exponent),
            Ok(Leaf::Different) | Err(_) => return differs(Kind::Other),
        };
        // On to the next value, out of what ends here.
        place = loop {
            let Some(level) = levels.get_mut(..depth).and_then(<[Level]>::last_mut) else {
                return Ok(());
            };
            if let Some(end) = end.take() {
                level.next = offset(end);
            }
            let at = theirs.at();
            let step = level.step(ours, &mut theirs, search);
            match step.unwrap_or(Step::Differs(Kind::Other)) {
                Step::Value(place) => break place,
                Step::End(place) => {
                    end = Some(place);
                    depth = depth.wrapping_sub(1);
                }
                Step::Differs(kind) => return Err(Difference { at, kind }),
            }
        };
    }
}

/// Bounds are shorter than this reaches.
fn offset(at: usize) -> u16 {
    u16::try_from(at).unwrap_or(u16::MAX)
}

fn place_of(reader: &mut Reader<'_>) -> usize {
    // Inside of what was entered just now: behind its bracket.
    reader.last().saturating_sub(1)
}

enum Leaf {
    Equal,
    Open { is_object: bool },
    Exponent,
    Different,
}

/// Compares two values that hold no others, and enters two that do.
fn leaf(ours: &mut Reader<'_>, theirs: &mut Reader<'_>) -> Result<Leaf, json::Error> {
    let kind = theirs.peek()?;
    if ours.peek()? != kind {
        return Ok(Leaf::Different);
    }
    let equal = match kind {
        Type::Object => {
            theirs.begin_object()?;
            ours.begin_object()?;
            return Ok(Leaf::Open { is_object: true });
        }
        Type::Array => {
            theirs.begin_array()?;
            ours.begin_array()?;
            return Ok(Leaf::Open { is_object: false });
        }
        Type::String => theirs.string()? == ours.string()?,
        Type::Number => match theirs.number()?.same_value(&ours.number()?) {
            Ok(equal) => equal,
            Err(_) => return Ok(Leaf::Exponent),
        },
        Type::Boolean => theirs.boolean()? == ours.boolean()?,
        Type::Null => {
            theirs.null()?;
            ours.null()?;
            true
        }
    };
    Ok(if equal { Leaf::Equal } else { Leaf::Different })
}

enum Step {
    /// The echo's next value stands in the admitted text at this offset.
    Value(usize),
    /// Both end; behind this offset.
    End(usize),
    Differs(Kind),
}

impl Level {
    fn step(
        &mut self,
        ours: &str,
        theirs: &mut Reader<'_>,
        search: Search,
    ) -> Result<Step, json::Error> {
        let mut admitted = self.reader(ours);
        if !self.is_object {
            return Ok(match (theirs.item()?, admitted.item()?) {
                (true, true) => Step::Value(admitted.at()),
                (false, false) => Step::End(admitted.last()),
                _ => Step::Differs(Kind::Other),
            });
        }
        let Some(name) = theirs.name()? else {
            // Those behind the last one found must have been found before it.
            let mut index = usize::from(self.index);
            while admitted.name()?.is_some() {
                admitted.value()?;
                index = index.saturating_add(1);
            }
            let all = (0..index).all(|index| self.seen.has(index));
            return Ok(if all { Step::End(admitted.last()) } else { Step::Differs(Kind::Other) });
        };
        if search == Search::NextFirst && admitted.name()? == Some(name) {
            return Ok(self.found(usize::from(self.index), &mut admitted));
        }
        self.find(ours, name)
    }

    fn find(&mut self, ours: &str, name: Text<'_>) -> Result<Step, json::Error> {
        self.next = self.start.saturating_add(1);
        let mut admitted = self.reader(ours);
        let mut index = 0_usize;
        while let Some(candidate) = admitted.name()? {
            if candidate == name {
                return Ok(self.found(index, &mut admitted));
            }
            admitted.value()?;
            index = index.saturating_add(1);
        }
        Ok(Step::Differs(Kind::Other))
    }

    /// Takes the member whose value comes next.
    fn found(&mut self, index: usize, admitted: &mut Reader<'_>) -> Step {
        if index >= MAX_BOUNDS_MEMBERS {
            return Step::Differs(Kind::TooMany);
        }
        if !self.seen.mark(index) {
            return Step::Differs(Kind::Other);
        }
        // At most 64.
        self.index = index.saturating_add(1) as u8;
        Step::Value(admitted.at())
    }

    /// Reads on in the admitted text, behind what was found last.
    fn reader<'o>(&self, ours: &'o str) -> Reader<'o> {
        let is_first = self.next == self.start.saturating_add(1);
        Reader::inside(ours, usize::from(self.next), self.is_object, is_first)
    }
}
