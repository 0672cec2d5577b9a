//! ExecResult, the JSON record in an exit frame.
//!
//! | member | written | read |
//! | --- | --- | --- |
//! | `exit_code` | always | a whole number, must be there |
//! | `duration_ms` | always | whole, 0 when missing |
//! | `signal` `error` | unless empty | text |
//! | `timed_out` `oom_killed` | when true | boolean |
//! | `usage` | when there | an object of seven whole numbers, each 0 when missing |
//!
//! Written compact and in this order; read in any order, with unknown members ignored, `null` as
//! absent, and whole numbers by value (`1.0` is 1). A repeated member is refused.
//!
//! ```
//! use triwire::exec::result::ExecResult;
//!
//! let record = br#"{"exit_code":-1,"duration_ms":2004,"signal":"SIGKILL","timed_out":true}"#;
//! let result = ExecResult::parse(record)?;
//! assert_eq!(result.signal, "SIGKILL");
//! assert_eq!(result.status(), 124); // what a client's own process ends with
//! let mut out = [0; 128];
//! assert_eq!(result.write(&mut out)?, record);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::fmt;

use serde::{Deserialize, Serialize};

use super::session::Exit;
use super::signal;
use crate::json::{self, Reader, Seen, Text, Type, Writer};
use crate::{OutTooSmall, words};

/// How a command ended and what it used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ExecResult<'i> {
    /// The command's exit code; -1 when it has none (killed, timed out, never started).
    pub exit_code: i32,
    /// How long it ran, in ms.
    pub duration_ms: u64,
    /// The signal that ended it, by its `SIG` name or a text of the guest's; empty for none.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub signal: Text<'i>,
    /// Whether its deadline ended it.
    #[serde(skip_serializing_if = "is_false")]
    pub timed_out: bool,
    /// Whether the system ended it for want of memory.
    #[serde(skip_serializing_if = "is_false")]
    pub oom_killed: bool,
    /// Why it did not start, or was lost; empty for nothing. For people.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub error: Text<'i>,
    /// What it used, where the guest knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// What a command used, with the children it waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[serde(default)]
pub struct Usage {
    /// Processor time in its own code, ms.
    pub cpu_user_ms: u64,
    /// Processor time in the system, ms.
    pub cpu_sys_ms: u64,
    /// Largest resident memory, bytes.
    pub peak_memory_bytes: u64,
    /// Page faults that waited for storage.
    pub page_faults_major: u64,
    /// Times it was taken off its processor.
    pub context_switches_involuntary: u64,
    /// Bytes read from storage.
    pub io_read_bytes: u64,
    /// Bytes written to storage.
    pub io_write_bytes: u64,
}

const MEMBERS: [&str; 7] =
    ["exit_code", "duration_ms", "signal", "timed_out", "oom_killed", "error", "usage"];
const USAGE_MEMBERS: [&str; 7] = [
    "cpu_user_ms",
    "cpu_sys_ms",
    "peak_memory_bytes",
    "page_faults_major",
    "context_switches_involuntary",
    "io_read_bytes",
    "io_write_bytes",
];

/// Why a record is no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ResultError {
    /// Offset in the record, in bytes.
    pub at: usize,
    /// What is wrong there.
    pub fault: ResultFault,
}

/// What is wrong with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum ResultFault {
    /// No JSON object, or a member of another type.
    Json(json::Fault),
    /// `exit_code` is missing; it is never assumed.
    NoExitCode,
    /// A number that is not whole, or out of its member's range.
    OutOfRange,
}

impl From<json::Error> for ResultError {
    fn from(error: json::Error) -> Self {
        Self { at: error.at, fault: ResultFault::Json(error.fault) }
    }
}

impl fmt::Display for ResultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fault {
            ResultFault::Json(fault) => json::Error { at: self.at, fault }.fmt(f),
            ResultFault::NoExitCode => f.write_str("the record has no exit_code"),
            ResultFault::OutOfRange => words::number(
                f,
                "expected a whole number in range at byte ",
                self.at as u64,
                " of the record",
            ),
        }
    }
}

impl core::error::Error for ResultError {}

impl<'i> ExecResult<'i> {
    /// Reads a record, whole in `record`.
    ///
    /// # Errors
    /// The record is no JSON object, repeats a member, has one of a wrong type, or lacks
    /// `exit_code`.
    // rule: EXEC-14
    pub fn parse(record: &'i [u8]) -> Result<Self, ResultError> {
        let mut reader = Reader::new(record)?;
        let mut result = Self::default();
        let mut exit_code = None;
        let mut seen = Seen::default();
        reader.begin_object()?;
        while let Some(index) = member(&mut reader, &MEMBERS, &mut seen)? {
            match index {
                0 => exit_code = Some(code(&mut reader)?),
                1 => result.duration_ms = whole(&mut reader)?,
                2 => result.signal = reader.string()?,
                3 => result.timed_out = reader.boolean()?,
                4 => result.oom_killed = reader.boolean()?,
                5 => result.error = reader.string()?,
                _ => result.usage = Some(usage(&mut reader)?),
            }
        }
        let at = reader.at();
        reader.end()?;
        result.exit_code = exit_code.ok_or(ResultError { at, fault: ResultFault::NoExitCode })?;
        Ok(result)
    }

    /// Writes the record compact into `out` and returns the part it takes.
    ///
    /// # Errors
    /// [`OutTooSmall`] with the bytes needed.
    // rule: EXEC-13
    pub fn write<'o>(&self, out: &'o mut [u8]) -> Result<&'o [u8], OutTooSmall> {
        let mut writer = Writer::new(out);
        writer.begin_object();
        writer.name("exit_code");
        writer.signed(i64::from(self.exit_code));
        writer.name("duration_ms");
        writer.unsigned(self.duration_ms);
        if !self.signal.is_empty() {
            writer.name("signal");
            writer.string(self.signal);
        }
        for (name, value) in [("timed_out", self.timed_out), ("oom_killed", self.oom_killed)] {
            if value {
                writer.name(name);
                writer.boolean(true);
            }
        }
        if !self.error.is_empty() {
            writer.name("error");
            writer.string(self.error);
        }
        if let Some(usage) = &self.usage {
            writer.name("usage");
            writer.begin_object();
            for (name, value) in USAGE_MEMBERS.iter().zip(&usage.values()) {
                writer.name(name);
                writer.unsigned(*value);
            }
            writer.end_object();
        }
        writer.end_object();
        writer.finish()
    }

    /// Returns the result with `error`, then `signal`, cut on a character boundary so that the
    /// record takes at most `limit` bytes, which must leave room for the other members.
    #[must_use]
    pub fn shortened(&self, limit: usize) -> Self {
        let mut result = *self;
        let excess = |result: &Self| match result.write(&mut []) {
            Ok(_) => 0,
            Err(error) => error.needed.saturating_sub(limit),
        };
        let over = excess(&result);
        if over > 0 {
            result.error = cut(result.error, over);
            result.signal = cut(result.signal, excess(&result));
        }
        result
    }

    /// Returns the short form that the session's exit event carries.
    #[must_use]
    pub const fn exit(&self) -> Exit {
        Exit {
            exit_code: self.exit_code,
            duration_ms: self.duration_ms,
            timed_out: self.timed_out,
            oom_killed: self.oom_killed,
        }
    }

    /// Returns the code with which a client's own process ends for this result: 124 for a
    /// deadline, 128 + n for signal n, 127 or 126 for a program that was not found or may not
    /// run, 125 for any other failure to run it, else the command's own code.
    // rule: EXEC-46
    #[must_use]
    pub fn status(&self) -> u8 {
        if self.timed_out {
            return STATUS_DEADLINE;
        }
        if !self.signal.is_empty() {
            return signal::number_where(|name| self.signal == *name)
                .map_or(STATUS_FAILURE, |number| number.saturating_add(128));
        }
        if !self.error.is_empty() {
            return if contains(self.error, "no such directory") {
                STATUS_FAILURE
            } else if contains(self.error, "not found") || contains(self.error, "no such file") {
                STATUS_NOT_FOUND
            } else if contains(self.error, "permission denied") {
                STATUS_NOT_EXECUTABLE
            } else {
                STATUS_FAILURE
            };
        }
        u8::try_from(self.exit_code).unwrap_or(STATUS_FAILURE)
    }
}

/// What a client's own process ends with when the command's deadline ended it.
pub const STATUS_DEADLINE: u8 = 124;
/// What a client's own process ends with when it, the transport or the gateway failed.
pub const STATUS_FAILURE: u8 = 125;
/// What a client's own process ends with when the program may not be run.
pub const STATUS_NOT_EXECUTABLE: u8 = 126;
/// What a client's own process ends with when the program was not found.
pub const STATUS_NOT_FOUND: u8 = 127;

impl Usage {
    const fn values(&self) -> [u64; 7] {
        [
            self.cpu_user_ms,
            self.cpu_sys_ms,
            self.peak_memory_bytes,
            self.page_faults_major,
            self.context_switches_involuntary,
            self.io_read_bytes,
            self.io_write_bytes,
        ]
    }
}

/// Reads on to the next member among `names` that is not `null`; unknown ones are skipped.
fn member(
    reader: &mut Reader<'_>,
    names: &[&str],
    seen: &mut Seen,
) -> Result<Option<usize>, ResultError> {
    loop {
        let at = reader.at();
        let Some(name) = reader.name()? else { return Ok(None) };
        let Some(index) = name.index_in(names) else {
            reader.value()?;
            continue;
        };
        if !seen.mark(index) {
            return Err(json::Error { at, fault: json::Fault::Repeated }.into());
        }
        if reader.peek()? == Type::Null {
            reader.null()?;
            continue;
        }
        return Ok(Some(index));
    }
}

fn code(reader: &mut Reader<'_>) -> Result<i32, ResultError> {
    let at = reader.at();
    let number = reader.number()?.as_i64();
    number
        .and_then(|number| i32::try_from(number).ok())
        .ok_or(ResultError { at, fault: ResultFault::OutOfRange })
}

fn whole(reader: &mut Reader<'_>) -> Result<u64, ResultError> {
    let at = reader.at();
    reader.number()?.as_u64().ok_or(ResultError { at, fault: ResultFault::OutOfRange })
}

fn usage(reader: &mut Reader<'_>) -> Result<Usage, ResultError> {
    let mut usage = Usage::default();
    let mut seen = Seen::default();
    reader.begin_object()?;
    while let Some(index) = member(reader, &USAGE_MEMBERS, &mut seen)? {
        let value = whole(reader)?;
        match index {
            0 => usage.cpu_user_ms = value,
            1 => usage.cpu_sys_ms = value,
            2 => usage.peak_memory_bytes = value,
            3 => usage.page_faults_major = value,
            4 => usage.context_switches_involuntary = value,
            5 => usage.io_read_bytes = value,
            _ => usage.io_write_bytes = value,
        }
    }
    Ok(usage)
}

/// Cuts a text so that it takes at least `excess` bytes less when written.
fn cut(text: Text<'_>, excess: usize) -> Text<'_> {
    text.within(text.written_len().saturating_sub(excess))
}

/// Reports whether `needle`, ASCII in lower case, stands in `text`, whatever the case there.
fn contains(text: Text<'_>, needle: &str) -> bool {
    let mut rest = text.chars();
    loop {
        let mut here = rest.clone();
        let found = needle.chars().all(|wanted| {
            here.next().is_some_and(|c| c.is_ok_and(|c| c.to_ascii_lowercase() == wanted))
        });
        if found {
            return true;
        }
        if rest.next().is_none() {
            return false;
        }
    }
}
