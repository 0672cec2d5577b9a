//! ExecRequest, the JSON record that asks for a command.
//!
//! | member | meaning | left out when |
//! | --- | --- | --- |
//! | `cmd` | the program and its arguments, at least the program | never |
//! | `env` | environment variables by name | empty |
//! | `cwd` | the working directory | `""` |
//! | `timeout_s` | seconds until the command is killed; 0: never | 0 |
//!
//! Reading is strict: one JSON object, no repeated member, no empty program, no NUL anywhere, no
//! empty variable name or one with `=`. Unknown members are ignored.
//!
//! ```
//! use triwire::exec::request::{ExecRequest, write_request};
//!
//! let mut out = [0; 128];
//! let body = write_request(&["ls", "-l"], &[("LANG", "C")], "/srv", 30, &mut out)?;
//! assert_eq!(body, br#"{"cmd":["ls","-l"],"env":{"LANG":"C"},"cwd":"/srv","timeout_s":30}"#);
//!
//! let request = ExecRequest::parse(body)?;
//! assert!(request.cmd().eq(["ls", "-l"]));
//! assert_eq!(request.timeout_s(), 30);
//!
//! let error = ExecRequest::parse(br#"{"cmd":[]}"#).unwrap_err();
//! assert_eq!(error.to_string(), "cmd: expected at least the program, found an empty list (byte 7)");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::fmt;

use crate::json::{self, Raw, Reader, Seen, Text, Type, Writer};
use crate::{OutTooSmall, words};

/// Most bytes of a request's body; more is answered 413, or closes a WebSocket with 1009.
// rule: EXEC-18
pub const MAX_REQUEST_BODY: usize = 1 << 20;
/// Longest time-out, in seconds: a year.
pub const MAX_TIMEOUT_S: u32 = 31_536_000;
/// Most environment variables of one request. Our choice: the contract is silent.
pub const MAX_ENV_VARIABLES: usize = 1024;

const MEMBERS: [&str; 4] = ["cmd", "env", "cwd", "timeout_s"];

/// A member of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u8)]
pub enum Member {
    /// The program and its arguments.
    Cmd,
    /// The environment.
    Env,
    /// The working directory.
    Cwd,
    /// The time-out.
    TimeoutS,
}

impl Member {
    /// Returns the member's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        let [cmd, env, cwd, timeout_s] = MEMBERS;
        match self {
            Self::Cmd => cmd,
            Self::Env => env,
            Self::Cwd => cwd,
            Self::TimeoutS => timeout_s,
        }
    }
}

/// Why a body is no request, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct RequestError {
    /// Offset in the body, in bytes.
    pub at: usize,
    /// What is wrong there.
    pub fault: RequestFault,
}

/// What is wrong with a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum RequestFault {
    /// It is not one JSON object.
    Json(json::Fault),
    /// A member came twice.
    Repeated(Member),
    /// A member, or something in it, has another type.
    WrongType {
        /// The member.
        member: Member,
        /// What should stand there.
        expected: Type,
        /// What stands there.
        found: Type,
    },
    /// `cmd` is missing.
    NoCmd,
    /// `cmd` is an empty list.
    EmptyCmd,
    /// The program's name is empty.
    EmptyProgram,
    /// A NUL character, which no system takes in a command, a variable or a path.
    Nul(Member),
    /// Half of a surrogate pair, which is no text.
    LoneSurrogate(Member),
    /// A variable's name is empty or has a `=`.
    VariableName,
    /// A variable came twice.
    RepeatedVariable,
    /// More than [`MAX_ENV_VARIABLES`].
    TooManyVariables,
    /// The time-out is no whole number from 0 to [`MAX_TIMEOUT_S`].
    Timeout,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fault {
            RequestFault::Json(fault) => {
                f.write_str("request: ")?;
                return json::Error { at: self.at, fault }.fmt(f);
            }
            RequestFault::Repeated(member) => {
                words::texts(f, &[member.as_str(), ": the member came twice"])
            }
            RequestFault::WrongType { member, expected, found } => words::texts(
                f,
                &[member.as_str(), ": expected ", expected.as_str(), ", found ", found.as_str()],
            ),
            RequestFault::NoCmd => {
                f.write_str("cmd: expected a list of strings, the member is missing")
            }
            RequestFault::EmptyCmd => {
                f.write_str("cmd: expected at least the program, found an empty list")
            }
            RequestFault::EmptyProgram => {
                f.write_str("cmd: expected a program, found an empty string")
            }
            RequestFault::Nul(member) => {
                words::texts(f, &[member.as_str(), ": a NUL character is not allowed"])
            }
            RequestFault::LoneSurrogate(member) => {
                words::texts(f, &[member.as_str(), ": half of a surrogate pair is no text"])
            }
            RequestFault::VariableName => f.write_str(
                "env: expected a variable's name without =, found an empty one or one with =",
            ),
            RequestFault::RepeatedVariable => f.write_str("env: a variable came twice"),
            RequestFault::TooManyVariables => {
                words::number(f, "env: more than ", MAX_ENV_VARIABLES as u64, " variables")
            }
            RequestFault::Timeout => words::number(
                f,
                "timeout_s: expected a whole number of seconds from 0 to ",
                MAX_TIMEOUT_S.into(),
                "",
            ),
        }?;
        words::number(f, " (byte ", self.at as u64, ")")
    }
}

impl core::error::Error for RequestError {}

impl From<json::Error> for RequestError {
    fn from(error: json::Error) -> Self {
        Self { at: error.at, fault: RequestFault::Json(error.fault) }
    }
}

/// A checked request, borrowing the body it was read from.
#[derive(Clone, Copy, Debug)]
pub struct ExecRequest<'i> {
    cmd: Raw<'i>,
    env: Option<Raw<'i>>,
    cwd: Text<'i>,
    timeout_s: u32,
}

impl<'i> ExecRequest<'i> {
    /// Reads a request, whole in `body`; the caller holds it to [`MAX_REQUEST_BODY`].
    ///
    /// # Errors
    /// The first thing that is wrong, with the member it is in.
    ///
    /// # Cost
    /// Linear in the body, but for the search for repeated variables, which walks `env` again for
    /// names that look alike to a filter of 128 bytes.
    // rule: EXEC-17
    pub fn parse(body: &'i [u8]) -> Result<Self, RequestError> {
        let mut reader = Reader::new(body)?;
        let mut seen = Seen::default();
        let (mut cmd, mut env, mut cwd, mut timeout_s) = (None, None, Text::default(), 0);
        reader.begin_object()?;
        loop {
            let at = reader.at();
            let Some(name) = reader.name()? else { break };
            let Some(index) = name.index_in(&MEMBERS) else {
                reader.value()?;
                continue;
            };
            let member = match index {
                0 => Member::Cmd,
                1 => Member::Env,
                2 => Member::Cwd,
                _ => Member::TimeoutS,
            };
            if !seen.mark(index) {
                return Err(RequestError { at, fault: RequestFault::Repeated(member) });
            }
            match member {
                Member::Cmd => cmd = Some(read_cmd(&mut reader)?),
                Member::Env => env = Some(read_env(&mut reader)?),
                Member::Cwd => cwd = text(&mut reader, Member::Cwd)?,
                Member::TimeoutS => timeout_s = read_timeout(&mut reader)?,
            }
        }
        let at = reader.at();
        reader.end()?;
        let cmd = cmd.ok_or(RequestError { at, fault: RequestFault::NoCmd })?;
        Ok(Self { cmd, env, cwd, timeout_s })
    }

    /// Returns the program and its arguments, at least one text; no lone surrogate in any.
    pub fn cmd(&self) -> impl Iterator<Item = Text<'i>> + Clone + use<'i> {
        let mut reader = self.cmd.reader();
        let open = reader.begin_array().is_ok();
        core::iter::from_fn(move || match open && reader.item() == Ok(true) {
            true => reader.string().ok(),
            false => None,
        })
    }

    /// Returns the environment variables, in the order they came.
    pub fn env(&self) -> impl Iterator<Item = (Text<'i>, Text<'i>)> + Clone + use<'i> {
        let mut reader = self.env.map(|env| env.reader());
        let open = reader.as_mut().is_some_and(|reader| reader.begin_object().is_ok());
        core::iter::from_fn(move || match (&mut reader, open) {
            (Some(reader), true) => {
                let name = reader.name().ok().flatten()?;
                Some((name, reader.string().ok()?))
            }
            _ => None,
        })
    }

    /// Returns the working directory, empty for the guest's own choice.
    #[must_use]
    pub const fn cwd(&self) -> Text<'i> {
        self.cwd
    }

    /// Returns the seconds until the command is killed, 0 for never.
    #[must_use]
    pub const fn timeout_s(&self) -> u32 {
        self.timeout_s
    }
}

fn read_cmd<'i>(reader: &mut Reader<'i>) -> Result<Raw<'i>, RequestError> {
    let at = reader.at();
    expect(reader, Member::Cmd, Type::Array)?;
    let mut items = reader.clone();
    let list = reader.value()?;
    items.begin_array()?;
    let mut first = true;
    while items.item()? {
        let at = items.at();
        let item = text(&mut items, Member::Cmd)?;
        if first && item.is_empty() {
            return Err(RequestError { at, fault: RequestFault::EmptyProgram });
        }
        first = false;
    }
    if first {
        return Err(RequestError { at, fault: RequestFault::EmptyCmd });
    }
    Ok(list)
}

fn read_env<'i>(reader: &mut Reader<'i>) -> Result<Raw<'i>, RequestError> {
    expect(reader, Member::Env, Type::Object)?;
    let mut members = reader.clone();
    let object = reader.value()?;
    members.begin_object()?;
    let mut filter = NameFilter([0; 16]);
    let mut count = 0_usize;
    loop {
        let at = members.at();
        let Some(name) = members.name()? else { return Ok(object) };
        let fault = |fault| Err(RequestError { at, fault });
        check(name, at, Member::Env)?;
        if name.is_empty() || name.chars().any(|c| c == Ok('=')) {
            return fault(RequestFault::VariableName);
        }
        if count == MAX_ENV_VARIABLES {
            return fault(RequestFault::TooManyVariables);
        }
        if filter.add(name) && stands_before(object, name, count)? {
            return fault(RequestFault::RepeatedVariable);
        }
        count = count.saturating_add(1);
        text(&mut members, Member::Env)?;
    }
}

/// Reports whether `name` is among the first `count` members of `object`.
fn stands_before(object: Raw<'_>, name: Text<'_>, count: usize) -> Result<bool, RequestError> {
    let mut members = object.reader();
    members.begin_object()?;
    for _ in 0..count {
        match members.name()? {
            Some(before) if before == name => return Ok(true),
            Some(_) => members.value()?,
            None => return Ok(false),
        };
    }
    Ok(false)
}

/// Remembers names by one bit of 1024, so that most new names need no second look.
struct NameFilter([u64; 16]);

impl NameFilter {
    /// Adds a name; answers whether one like it was there.
    fn add(&mut self, name: Text<'_>) -> bool {
        // FNV-1a over the decoded characters.
        let hash = name.chars().fold(0x811c_9dc5_u32, |hash, c| {
            (hash ^ c.map_or(0, u32::from)).wrapping_mul(0x0100_0193)
        });
        let hash = hash ^ (hash >> 15);
        let Some(word) = self.0.get_mut((hash >> 6) as usize % 16) else { return true };
        let bit = 1_u64 << (hash % 64);
        let there = *word & bit != 0;
        *word |= bit;
        there
    }
}

fn read_timeout(reader: &mut Reader<'_>) -> Result<u32, RequestError> {
    let at = reader.at();
    expect(reader, Member::TimeoutS, Type::Number)?;
    let seconds = reader.number()?.as_u64().and_then(|seconds| u32::try_from(seconds).ok());
    seconds
        .filter(|seconds| *seconds <= MAX_TIMEOUT_S)
        .ok_or(RequestError { at, fault: RequestFault::Timeout })
}

fn expect(reader: &mut Reader<'_>, member: Member, expected: Type) -> Result<(), RequestError> {
    let at = reader.at();
    let found = reader.peek()?;
    if found == expected {
        return Ok(());
    }
    Err(RequestError { at, fault: RequestFault::WrongType { member, expected, found } })
}

fn text<'i>(reader: &mut Reader<'i>, member: Member) -> Result<Text<'i>, RequestError> {
    let at = reader.at();
    expect(reader, member, Type::String)?;
    let text = reader.string()?;
    check(text, at, member)?;
    Ok(text)
}

fn check(text: Text<'_>, at: usize, member: Member) -> Result<(), RequestError> {
    for c in text.chars() {
        let fault = match c {
            Ok('\0') => RequestFault::Nul(member),
            Err(_) => RequestFault::LoneSurrogate(member),
            Ok(_) => continue,
        };
        return Err(RequestError { at, fault });
    }
    Ok(())
}

/// Writes a request compact into `out` and returns the part it takes; what is empty or 0 is left
/// out, `cmd` never.
///
/// Checks nothing: the server that reads it judges it.
///
/// # Errors
/// [`OutTooSmall`] with the bytes needed.
// rule: EXEC-16
pub fn write_request<'o>(
    cmd: &[impl AsRef<str>],
    env: &[(impl AsRef<str>, impl AsRef<str>)],
    cwd: &str,
    timeout_s: u32,
    out: &'o mut [u8],
) -> Result<&'o [u8], OutTooSmall> {
    let mut writer = Writer::new(out);
    writer.begin_object();
    writer.name(Member::Cmd.as_str());
    writer.begin_array();
    for item in cmd {
        writer.string(item.as_ref());
    }
    writer.end_array();
    if !env.is_empty() {
        writer.name(Member::Env.as_str());
        writer.begin_object();
        for (name, value) in env {
            writer.name(name.as_ref());
            writer.string(value.as_ref());
        }
        writer.end_object();
    }
    if !cwd.is_empty() {
        writer.name(Member::Cwd.as_str());
        writer.string(cwd);
    }
    if timeout_s > 0 {
        writer.name(Member::TimeoutS.as_str());
        writer.unsigned(u64::from(timeout_s));
    }
    writer.end_object();
    writer.finish()
}
