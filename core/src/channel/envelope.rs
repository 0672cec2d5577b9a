//! Envelopes: calls and their answers, one JSON object a message.
//!
//! | | members |
//! | --- | --- |
//! | call | `v` (1), `callId`, `tool`, `descriptorId`, `args`, `boundsEcho` |
//! | answer | `v` (1), `callId`, `ok` (true), `observed` |
//! | refusal | `v` (1), `callId`, `ok` (false), `refused`, `why` |
//!
//! Reading is strict: no other member, each once, and nothing of the other variant. Some peers keep
//! the last of a repeated member, take an array for an object, or both variants at once: all of
//! that is refused here. `args`, `boundsEcho` and `observed` stay spans of the message, checked and
//! carried on as they stood.
//!
//! ```
//! use triwire::channel::envelope::{Answer, Call, Object, Outcome};
//! use triwire::channel::refusal::Refusal;
//! use triwire::json::Text;
//!
//! let message = br#"{"v":1,"callId":"c1","tool":"read","descriptorId":"notes","args":{"page":2},"boundsEcho":{}}"#;
//! let call = Call::parse(message, 64)?;
//! assert_eq!(call.call_id, "c1");
//! assert_eq!(call.args.as_str(), r#"{"page":2}"#);
//!
//! let mut out = [0; 256];
//! let observed = Outcome::Observed(Object::parse(r#"{"lines":3}"#)?);
//! let answer = Answer { call_id: call.call_id, outcome: observed }.write(&mut out)?;
//! assert_eq!(answer, br#"{"v":1,"callId":"c1","ok":true,"observed":{"lines":3}}"#);
//!
//! let error = Answer::parse(br#"{"v":1,"callId":"c1","ok":true}"#).unwrap_err();
//! assert_eq!(error.refusal, Refusal::MalformedAnswer); // a claim without a result
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::fmt;

use super::refusal::Refusal;
use crate::OutTooSmall;
use crate::json::{self, Number, Raw, Reader, Seen, Text, Type, Writer};

/// The version of the envelopes, their `v`.
pub const VERSION: u64 = 1;

/// The longest message by default, in bytes; its owner may choose less (our choice; the contract is
/// silent).
pub const MAX_MESSAGE: usize = 1 << 20;

/// The longest `callId` by default, in bytes of UTF-8 (our choice; the contract is silent).
pub const DEFAULT_ID_SIZE: usize = 64;

/// A JSON object, checked and carried on as it stands: nothing in it is read. Two are equal when
/// their texts are.
#[derive(Clone, Copy, Debug)]
pub struct Object<'i>(Raw<'i>);

impl PartialEq for Object<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Object<'_> {}

impl<'i> Object<'i> {
    /// `{}`
    pub const EMPTY: Self = Self::checked("{}");

    /// Takes an object that may stand in an envelope: it nests one level less than a message may.
    ///
    /// # Errors
    /// The text is not one JSON object.
    pub fn parse(text: &'i str) -> Result<Self, json::Error> {
        let value = Reader::only_value(text, 1)?;
        let wrong = |found| json::Fault::WrongType { expected: Type::Object, found };
        Self::of(value).ok_or(json::Error { at: value.at(), fault: wrong(value.kind()) })
    }

    pub(super) const fn checked(text: &'i str) -> Self {
        Self(Raw::checked(text))
    }

    const fn of(value: Raw<'i>) -> Option<Self> {
        match value.kind() {
            Type::Object => Some(Self(value)),
            _ => None,
        }
    }

    /// Returns the object's text.
    #[must_use]
    pub const fn as_str(&self) -> &'i str {
        self.0.as_str()
    }

    /// Reads the object; offsets are those of its message.
    #[must_use]
    pub const fn reader(&self) -> Reader<'i> {
        self.0.reader()
    }
}

/// A call, borrowing the message it was read from.
#[derive(Clone, Copy, Debug)]
pub struct Call<'i> {
    /// What its answer carries back; not empty, without half a surrogate pair.
    pub call_id: Text<'i>,
    /// The tool; not empty.
    pub tool: Text<'i>,
    /// The admitted extension that the tool belongs to; not empty.
    pub descriptor_id: Text<'i>,
    /// The tool's arguments, `{}` when they are missing.
    pub args: Object<'i>,
    /// The bounds that the caller believes were admitted.
    pub bounds_echo: Object<'i>,
}

const CALL: [Member; 6] = [
    Member::V,
    Member::CallId,
    Member::Tool,
    Member::DescriptorId,
    Member::Args,
    Member::BoundsEcho,
];

impl<'i> Call<'i> {
    /// Reads a call, whole in `message`, whose `callId` has at most `id_size` bytes of UTF-8.
    ///
    /// # Errors
    /// The first check that fails, in this order: one JSON object, its members, `v`, `callId`,
    /// attribution, `args`.
    ///
    /// # Cost
    /// Linear in the message.
    pub fn parse(message: &'i [u8], id_size: usize) -> Result<Self, EnvelopeError> {
        read_call(message)?.call(id_size)
    }

    /// Writes the call compact into `out`, all six members, and returns the part it takes.
    ///
    /// # Errors
    /// [`OutTooSmall`] with the bytes needed.
    pub fn write<'o>(&self, out: &'o mut [u8]) -> Result<&'o [u8], OutTooSmall> {
        let mut writer = begin(self.call_id, out);
        writer.name(Member::Tool.as_str());
        writer.string(self.tool);
        writer.name(Member::DescriptorId.as_str());
        writer.string(self.descriptor_id);
        writer.name(Member::Args.as_str());
        writer.raw(self.args.as_str());
        writer.name(Member::BoundsEcho.as_str());
        writer.raw(self.bounds_echo.as_str());
        writer.end_object();
        writer.finish()
    }
}

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'i> {
    /// It was carried out.
    Observed(
        /// What was measured.
        Object<'i>,
    ),
    /// It was refused.
    Refused {
        /// The rule's word; not empty.
        refused: Text<'i>,
        /// For people.
        why: Text<'i>,
    },
}

/// An answer, borrowing the message it was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'i> {
    /// The call that it answers; not empty.
    pub call_id: Text<'i>,
    /// What came of it.
    pub outcome: Outcome<'i>,
}

const ANSWER: [Member; 6] =
    [Member::V, Member::CallId, Member::Ok, Member::Observed, Member::Refused, Member::Why];

impl<'i> Answer<'i> {
    /// Reads an answer, whole in `message`.
    ///
    /// # Errors
    /// The first check that fails, in this order: one JSON object, its members, `v`, `callId`, the
    /// rest. Such a message answers nothing.
    ///
    /// # Cost
    /// Linear in the message.
    pub fn parse(message: &'i [u8]) -> Result<Self, EnvelopeError> {
        read(message, &ANSWER, Refusal::MalformedAnswer)?.answer()
    }

    /// Writes the answer compact into `out` and returns the part it takes; half a surrogate pair in
    /// `refused` or `why` goes out as U+FFFD.
    ///
    /// # Errors
    /// [`OutTooSmall`] with the bytes needed.
    pub fn write<'o>(&self, out: &'o mut [u8]) -> Result<&'o [u8], OutTooSmall> {
        match self.outcome {
            Outcome::Observed(observed) => {
                let mut writer = begin(self.call_id, out);
                writer.name(Member::Ok.as_str());
                writer.boolean(true);
                writer.name(Member::Observed.as_str());
                writer.raw(observed.as_str());
                writer.end_object();
                writer.finish()
            }
            Outcome::Refused { refused, why } => {
                write_refusal(self.call_id, refused, out, |writer| writer.string(why))
            }
        }
    }
}

fn begin<'o>(call_id: Text<'_>, out: &'o mut [u8]) -> Writer<'o> {
    let mut writer = Writer::new(out);
    writer.begin_object();
    writer.name(Member::V.as_str());
    writer.unsigned(VERSION);
    writer.name(Member::CallId.as_str());
    writer.string(call_id);
    writer
}

pub(super) fn write_refusal<'o>(
    call_id: Text<'_>,
    refused: Text<'_>,
    out: &'o mut [u8],
    why: impl FnOnce(&mut Writer<'o>),
) -> Result<&'o [u8], OutTooSmall> {
    let mut writer = begin(call_id, out);
    writer.name(Member::Ok.as_str());
    writer.boolean(false);
    writer.name(Member::Refused.as_str());
    writer.string(refused);
    writer.name(Member::Why.as_str());
    why(&mut writer);
    writer.end_object();
    writer.finish()
}

/// A member of an envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Member {
    /// `v`
    V,
    /// `callId`
    CallId,
    /// `tool`
    Tool,
    /// `descriptorId`
    DescriptorId,
    /// `args`
    Args,
    /// `boundsEcho`
    BoundsEcho,
    /// `ok`
    Ok,
    /// `observed`
    Observed,
    /// `refused`
    Refused,
    /// `why`
    Why,
}

impl Member {
    /// Returns the member's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V => "v",
            Self::CallId => "callId",
            Self::Tool => "tool",
            Self::DescriptorId => "descriptorId",
            Self::Args => "args",
            Self::BoundsEcho => "boundsEcho",
            Self::Ok => "ok",
            Self::Observed => "observed",
            Self::Refused => "refused",
            Self::Why => "why",
        }
    }
}

/// A message that is no envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct EnvelopeError {
    /// The contract's word for it.
    pub refusal: Refusal,
    /// Offset in the message, in bytes; its end for a missing member.
    pub at: usize,
    /// What is wrong there.
    pub fault: EnvelopeFault,
}

/// What is wrong with an envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum EnvelopeFault {
    /// It is longer than this end takes.
    TooLong {
        /// Bytes that it takes.
        limit: usize,
    },
    /// It is not one JSON object.
    Json(json::Fault),
    /// A member that the contract does not know.
    Unknown,
    /// A member stands twice.
    Repeated(Member),
    /// A member is missing.
    Missing(Member),
    /// A member is of another type.
    WrongType {
        /// The member.
        member: Member,
        /// What should stand there.
        expected: Type,
        /// What stands there.
        found: Type,
    },
    /// `v` is another number than 1.
    Version,
    /// A text has no character.
    Empty(Member),
    /// `callId` has more bytes of UTF-8 than this end takes.
    IdTooLong {
        /// Bytes that it takes.
        limit: usize,
    },
    /// `callId` holds half of a surrogate pair, which cannot be echoed.
    LoneSurrogate,
    /// A member of the other variant of an answer.
    OtherVariant(Member),
}

impl fmt::Display for EnvelopeError {
    /// Writes the word, what was expected, and where: `bad-version: … (byte 5)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.refusal.as_str())?;
        match self.fault {
            EnvelopeFault::TooLong { limit } => write!(f, "expected at most {limit} bytes"),
            EnvelopeFault::Json(fault) => {
                return json::Error { at: self.at, fault }.fmt(f);
            }
            EnvelopeFault::Unknown => f.write_str("a member that the contract does not know"),
            EnvelopeFault::Repeated(member) => write!(f, "{} stands twice", member.as_str()),
            EnvelopeFault::Missing(member) => write!(f, "{} is missing", member.as_str()),
            EnvelopeFault::WrongType { member, expected, found } => {
                write!(f, "{}: expected {expected}, found {found}", member.as_str())
            }
            EnvelopeFault::Version => write!(f, "v: expected {VERSION}"),
            EnvelopeFault::Empty(member) => {
                write!(f, "{}: expected a text, found an empty one", member.as_str())
            }
            EnvelopeFault::IdTooLong { limit } => {
                write!(f, "callId: expected at most {limit} bytes")
            }
            EnvelopeFault::LoneSurrogate => {
                f.write_str("callId: half of a surrogate pair cannot be echoed")
            }
            EnvelopeFault::OtherVariant(member) => {
                write!(f, "{} does not go with this ok", member.as_str())
            }
        }?;
        write!(f, " (byte {})", self.at)
    }
}

impl core::error::Error for EnvelopeError {}

/// A member's value, and its offset in the message.
#[derive(Clone, Copy)]
struct Value<'i> {
    at: usize,
    token: Token<'i>,
}

#[derive(Clone, Copy)]
enum Token<'i> {
    Missing,
    Text(Text<'i>),
    Number(Number<'i>),
    Boolean(bool),
    Other(Raw<'i>),
}

impl Token<'_> {
    const fn kind(&self) -> Option<Type> {
        match self {
            Self::Missing => None,
            Self::Text(_) => Some(Type::String),
            Self::Number(_) => Some(Type::Number),
            Self::Boolean(_) => Some(Type::Boolean),
            Self::Other(raw) => Some(raw.kind()),
        }
    }
}

/// The members of a whole envelope, not yet judged.
pub(super) struct Members<'i> {
    /// In the order of `CALL` or `ANSWER`.
    values: [Value<'i>; 6],
    /// The first unknown or repeated member.
    fault: Option<(usize, EnvelopeFault)>,
    id_repeated: bool,
    /// The word for what none of its own stands for.
    malformed: Refusal,
    end: usize,
}

pub(super) fn read_call(message: &[u8]) -> Result<Members<'_>, EnvelopeError> {
    read(message, &CALL, Refusal::MalformedCall)
}

fn read<'i>(
    message: &'i [u8],
    names: &'static [Member; 6],
    malformed: Refusal,
) -> Result<Members<'i>, EnvelopeError> {
    read_members(message, names, malformed).map_err(|error| EnvelopeError {
        refusal: malformed,
        at: error.at,
        fault: EnvelopeFault::Json(error.fault),
    })
}

fn read_members<'i>(
    message: &'i [u8],
    names: &'static [Member; 6],
    malformed: Refusal,
) -> Result<Members<'i>, json::Error> {
    let mut values = [Value { at: message.len(), token: Token::Missing }; 6];
    let mut seen = Seen::NONE;
    let (mut fault, mut id_repeated, mut next) = (None, false, 0_usize);
    let mut reader = Reader::new(message)?;
    reader.begin_object()?;
    loop {
        let name_at = reader.at();
        let Some(name) = reader.name()? else { break };
        // Most peers write them in their order.
        let is_it = |member: &Member| name == member.as_str();
        let index = match names.get(next) {
            Some(member) if is_it(member) => Some(next),
            _ => names.iter().position(is_it),
        };
        let Some((index, member)) = index.and_then(|index| Some((index, names.get(index)?))) else {
            fault = fault.or(Some((name_at, EnvelopeFault::Unknown)));
            reader.value()?;
            continue;
        };
        next = index.wrapping_add(1);
        if !seen.mark(index) {
            fault = fault.or(Some((name_at, EnvelopeFault::Repeated(*member))));
            id_repeated |= *member == Member::CallId;
            reader.value()?;
            continue;
        }
        let at = reader.at();
        let token = match reader.peek()? {
            Type::String => Token::Text(reader.string()?),
            Type::Number => Token::Number(reader.number()?),
            Type::Boolean => Token::Boolean(reader.boolean()?),
            _ => Token::Other(reader.value()?),
        };
        if let Some(value) = values.get_mut(index) {
            *value = Value { at, token };
        }
    }
    let end = reader.last();
    reader.end()?;
    Ok(Members { values, fault, id_repeated, malformed, end })
}

impl<'i> Members<'i> {
    fn error(&self, refusal: Refusal, at: usize, fault: EnvelopeFault) -> EnvelopeError {
        EnvelopeError { refusal, at, fault }
    }

    fn wrong(
        &self,
        refusal: Refusal,
        member: Member,
        value: Value<'i>,
        expected: Type,
    ) -> EnvelopeError {
        match value.token.kind() {
            None => self.error(refusal, self.end, EnvelopeFault::Missing(member)),
            Some(found) => {
                let fault = EnvelopeFault::WrongType { member, expected, found };
                self.error(refusal, value.at, fault)
            }
        }
    }

    fn text(
        &self,
        refusal: Refusal,
        member: Member,
        value: Value<'i>,
    ) -> Result<Text<'i>, EnvelopeError> {
        match value.token {
            Token::Text(text) => Ok(text),
            _ => Err(self.wrong(refusal, member, value, Type::String)),
        }
    }

    fn full_text(
        &self,
        refusal: Refusal,
        member: Member,
        value: Value<'i>,
    ) -> Result<Text<'i>, EnvelopeError> {
        let text = self.text(refusal, member, value)?;
        if text.is_empty() {
            return Err(self.error(refusal, value.at, EnvelopeFault::Empty(member)));
        }
        Ok(text)
    }

    fn object(
        &self,
        refusal: Refusal,
        member: Member,
        value: Value<'i>,
    ) -> Result<Object<'i>, EnvelopeError> {
        match value.token {
            Token::Other(raw) => Object::of(raw),
            _ => None,
        }
        .ok_or_else(|| self.wrong(refusal, member, value, Type::Object))
    }

    /// Returns the id that a reply can carry: of at most `id_size` bytes, given once. Whatever else
    /// is wrong with the message.
    pub(super) fn id_to_answer(&self, id_size: usize) -> Option<Text<'i>> {
        let [_, id, ..] = self.values;
        match id.token {
            Token::Text(text) if !self.id_repeated && id_fault(text, id_size).is_none() => {
                Some(text)
            }
            _ => None,
        }
    }

    fn common(&self, id_size: usize) -> Result<Text<'i>, EnvelopeError> {
        if let Some((at, fault)) = self.fault {
            let refusal = match fault {
                EnvelopeFault::Unknown => Refusal::UnknownField,
                _ => self.malformed,
            };
            return Err(self.error(refusal, at, fault));
        }
        let [v, id, ..] = self.values;
        match v.token {
            Token::Number(number) if number.as_u64() == Some(VERSION) => {}
            Token::Number(_) => {
                return Err(self.error(Refusal::BadVersion, v.at, EnvelopeFault::Version));
            }
            _ => return Err(self.wrong(Refusal::BadVersion, Member::V, v, Type::Number)),
        }
        let text = self.full_text(self.malformed, Member::CallId, id)?;
        match id_fault(text, id_size) {
            None => Ok(text),
            Some(fault) => Err(self.error(self.malformed, id.at, fault)),
        }
    }

    pub(super) fn call(&self, id_size: usize) -> Result<Call<'i>, EnvelopeError> {
        let call_id = self.common(id_size)?;
        let [_, _, tool, descriptor, args, bounds] = self.values;
        let refusal = Refusal::UnattributedCall;
        let descriptor_id = self.full_text(refusal, Member::DescriptorId, descriptor)?;
        let tool = self.full_text(refusal, Member::Tool, tool)?;
        let bounds_echo = self.object(refusal, Member::BoundsEcho, bounds)?;
        let args = match args.token {
            Token::Missing => Object::EMPTY,
            _ => self.object(self.malformed, Member::Args, args)?,
        };
        Ok(Call { call_id, tool, descriptor_id, args, bounds_echo })
    }

    fn answer(&self) -> Result<Answer<'i>, EnvelopeError> {
        // An id that is longer than ours are is none of ours.
        let call_id = self.common(usize::MAX)?;
        let [_, _, ok, observed, refused, why] = self.values;
        let none = |member, value: Value<'i>| match value.token {
            Token::Missing => Ok(()),
            _ => Err(self.error(self.malformed, value.at, EnvelopeFault::OtherVariant(member))),
        };
        let outcome = match ok.token {
            Token::Boolean(true) => {
                none(Member::Refused, refused)?;
                none(Member::Why, why)?;
                Outcome::Observed(self.object(self.malformed, Member::Observed, observed)?)
            }
            Token::Boolean(false) => {
                none(Member::Observed, observed)?;
                Outcome::Refused {
                    refused: self.full_text(self.malformed, Member::Refused, refused)?,
                    why: self.text(self.malformed, Member::Why, why)?,
                }
            }
            _ => return Err(self.wrong(self.malformed, Member::Ok, ok, Type::Boolean)),
        };
        Ok(Answer { call_id, outcome })
    }
}

fn id_fault(id: Text<'_>, id_size: usize) -> Option<EnvelopeFault> {
    if id.utf8_len() > id_size {
        Some(EnvelopeFault::IdTooLong { limit: id_size })
    } else if !id.is_well_formed() {
        Some(EnvelopeFault::LoneSurrogate)
    } else {
        None
    }
}
