//! The two JSON records, with serde_json as the second opinion on what is JSON.
//!
//! What differs from serde_json on purpose, each stated in the model:
//!
//! | | serde_json | ours |
//! | --- | --- | --- |
//! | whole numbers | by spelling: `1.0` is none | by value |
//! | depth | 128 | 64 |
//! | half of a surrogate pair | refused in a text it reads | refused in a request, U+FFFD in a result |
//! | a list in place of an object | taken for a record | refused |
//! | a repeated name in a map | the last counts | refused |
//! | `null` in a result | taken by an `Option` only | absent |

use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;
use triwire::exec::request::{ExecRequest, MAX_ENV_VARIABLES, MAX_TIMEOUT_S};
use triwire::exec::result::{ExecResult, Usage};
use triwire::json::MAX_JSON_DEPTH;

/// The model cannot tell: the message uses the character that stands in for half of a pair.
#[derive(Clone, Copy, Debug)]
pub struct NoOpinion;

/// A request, owned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The program and its arguments.
    pub cmd: Vec<String>,
    /// The environment, in order.
    pub env: Vec<(String, String)>,
    /// The working directory.
    pub cwd: String,
    /// The time-out in seconds.
    pub timeout_s: u32,
}

/// A result, owned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the members of the record")]
pub struct ResultRecord {
    pub exit_code: i32,
    pub duration_ms: u64,
    pub signal: String,
    pub timed_out: bool,
    pub oom_killed: bool,
    pub error: String,
    pub usage: Option<Usage>,
}

/// Stands in for half of a surrogate pair, which serde_json cannot read.
const HALF: char = '\u{ffff}';

/// The members of an object in their order, each value as its text.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

fn read<T: for<'de> Deserialize<'de>>(text: &str) -> Option<T> {
    serde_json::from_str(text).ok()
}

/// Replaces the escape of each half of a surrogate pair by that of [`HALF`].
fn without_halves(message: &str) -> Result<String, NoOpinion> {
    let mut text = message.as_bytes().to_vec();
    let unit = |text: &[u8], at: usize| {
        let escape = text.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(escape).ok()?, 16).ok()
    };
    let mut at = 0;
    while at < text.len() {
        if text[at] != b'\\' {
            at += 1;
            continue;
        }
        match unit(&text, at) {
            Some(0xffff) => return Err(NoOpinion),
            Some(0xd800..=0xdbff) if matches!(unit(&text, at + 6), Some(0xdc00..=0xdfff)) => {
                at += 12;
            }
            Some(0xd800..=0xdfff) => {
                text[at + 2..at + 6].copy_from_slice(b"ffff");
                at += 6;
            }
            Some(_) => at += 6,
            None => at += 2,
        }
    }
    let text = String::from_utf8(text).map_err(|_| NoOpinion)?;
    if message.contains(HALF) { Err(NoOpinion) } else { Ok(text) }
}

/// The most objects and arrays that are open at once.
fn depth(text: &str) -> usize {
    let (mut open, mut most, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => open += 1,
            b'}' | b']' => open = open.saturating_sub(1),
            _ => {}
        }
        most = most.max(open);
    }
    most
}

/// The members of a message that is an object, and no more.
fn members(message: &[u8]) -> Result<Option<Vec<(String, String)>>, NoOpinion> {
    let Ok(text) = std::str::from_utf8(message) else { return Ok(None) };
    let text = without_halves(text)?;
    if depth(&text) > MAX_JSON_DEPTH {
        return Ok(None);
    }
    let members: Option<Members> = read(&text);
    Ok(members.map(|members| {
        members.0.into_iter().map(|(name, value)| (name, value.get().to_owned())).collect()
    }))
}

/// The value of a JSON value's text when it is a whole number, in plain long-hand.
#[must_use]
pub fn whole(number: &str) -> Option<i128> {
    if !number.starts_with(|c: char| c == '-' || c.is_ascii_digit()) {
        return None;
    }
    let (sign, digits) = number.strip_prefix('-').map_or((1, number), |digits| (-1, digits));
    let (mantissa, exponent) = digits.split_once(['e', 'E']).unwrap_or((digits, "0"));
    let (before, behind) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if exponent.trim_start_matches(['+', '-']).trim_start_matches('0').len() > 9 {
        return None;
    }
    let mut exponent: i64 = exponent.parse().ok()?;
    exponent -= behind.len() as i64;
    let mut digits = format!("{before}{behind}").trim_start_matches('0').to_owned();
    if digits.is_empty() {
        return Some(0);
    }
    while exponent < 0 && digits.ends_with('0') {
        digits.pop();
        exponent += 1;
    }
    if exponent < 0 || digits.len() as i64 + exponent > 30 {
        return None;
    }
    digits.extend((0..exponent).map(|_| '0'));
    digits.parse::<i128>().ok().map(|value| sign * value)
}

/// What a server makes of a request: `None` refuses it.
///
/// # Errors
/// [`NoOpinion`].
pub fn expected_request(body: &[u8]) -> Result<Option<Request>, NoOpinion> {
    Ok(members(body)?.and_then(request))
}

fn request(members: Vec<(String, String)>) -> Option<Request> {
    let mut request = Request::default();
    let mut seen = HashSet::new();
    for (name, value) in members {
        if !matches!(name.as_str(), "cmd" | "env" | "cwd" | "timeout_s") {
            continue;
        }
        match name.as_str() {
            "cmd" => request.cmd = read(&value)?,
            "env" => {
                for (name, value) in read::<Members>(&value)?.0 {
                    request.env.push((name, read(value.get())?));
                }
            }
            "cwd" => request.cwd = read(&value)?,
            _ => {
                let seconds = whole(&value).filter(|s| (0..=i128::from(MAX_TIMEOUT_S)).contains(s));
                request.timeout_s = seconds? as u32;
            }
        }
        if !seen.insert(name) {
            return None;
        }
    }
    is_good(&request).then_some(request)
}

fn is_good(request: &Request) -> bool {
    let names: HashSet<_> = request.env.iter().map(|(name, _)| name).collect();
    let texts = request.cmd.iter().chain([&request.cwd]);
    let mut texts = texts.chain(request.env.iter().flat_map(|(name, value)| [name, value]));
    request.cmd.first().is_some_and(|program| !program.is_empty())
        && texts.all(|text| !text.contains(['\0', HALF]))
        && names.len() == request.env.len()
        && names.iter().all(|name| !name.is_empty() && !name.contains('='))
        && request.env.len() <= MAX_ENV_VARIABLES
}

/// What a client makes of an exit frame's payload: `None` is unreadable.
///
/// # Errors
/// [`NoOpinion`].
pub fn expected_result(record: &[u8]) -> Result<Option<ResultRecord>, NoOpinion> {
    Ok(members(record)?.and_then(result))
}

fn result(members: Vec<(String, String)>) -> Option<ResultRecord> {
    let text = |value: &str| Some(read::<String>(value)?.replace(HALF, "\u{fffd}"));
    let unsigned = |value: &str| u64::try_from(whole(value)?).ok();
    let mut result = ResultRecord::default();
    let mut exit_code = None;
    let mut seen = HashSet::new();
    for (name, value) in members {
        let is_null = value == "null";
        match name.as_str() {
            "exit_code" | "duration_ms" | "signal" | "timed_out" | "oom_killed" | "error"
            | "usage"
                if is_null => {}
            "exit_code" => exit_code = Some(i32::try_from(whole(&value)?).ok()?),
            "duration_ms" => result.duration_ms = unsigned(&value)?,
            "signal" => result.signal = text(&value)?,
            "timed_out" => result.timed_out = read(&value)?,
            "oom_killed" => result.oom_killed = read(&value)?,
            "error" => result.error = text(&value)?,
            "usage" => {
                let mut usage = Usage::default();
                let mut seen = HashSet::new();
                for (name, value) in read::<Members>(&value)?.0 {
                    let place = match name.as_str() {
                        "cpu_user_ms" => &mut usage.cpu_user_ms,
                        "cpu_sys_ms" => &mut usage.cpu_sys_ms,
                        "peak_memory_bytes" => &mut usage.peak_memory_bytes,
                        "page_faults_major" => &mut usage.page_faults_major,
                        "context_switches_involuntary" => &mut usage.context_switches_involuntary,
                        "io_read_bytes" => &mut usage.io_read_bytes,
                        "io_write_bytes" => &mut usage.io_write_bytes,
                        _ => continue,
                    };
                    if value.get() != "null" {
                        *place = unsigned(value.get())?;
                    }
                    if !seen.insert(name) {
                        return None;
                    }
                }
                result.usage = Some(usage);
            }
            _ => continue,
        }
        if !seen.insert(name) {
            return None;
        }
    }
    result.exit_code = exit_code?;
    Some(result)
}

/// Reads a request with the core; asserts that a refusal names a byte of the body.
#[must_use]
pub fn read_request(body: &[u8]) -> Option<Request> {
    match ExecRequest::parse(body) {
        Ok(request) => Some(Request {
            cmd: request.cmd().map(|text| text.to_string()).collect(),
            env: request.env().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
            cwd: request.cwd().to_string(),
            timeout_s: request.timeout_s(),
        }),
        Err(error) => {
            assert!(error.at <= body.len());
            assert!(error.to_string().contains(&format!("byte {}", error.at)));
            None
        }
    }
}

/// Reads a result with the core; asserts that a refusal names a byte of the record.
#[must_use]
pub fn read_result(record: &[u8]) -> Option<ResultRecord> {
    match ExecResult::parse(record) {
        Ok(result) => Some(ResultRecord {
            exit_code: result.exit_code,
            duration_ms: result.duration_ms,
            signal: result.signal.to_string(),
            timed_out: result.timed_out,
            oom_killed: result.oom_killed,
            error: result.error.to_string(),
            usage: result.usage,
        }),
        Err(error) => {
            assert!(error.at <= record.len());
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

impl ResultRecord {
    /// Lends the record to the core.
    #[must_use]
    pub fn lend(&self) -> ExecResult<'_> {
        ExecResult {
            exit_code: self.exit_code,
            duration_ms: self.duration_ms,
            signal: self.signal.as_str().into(),
            timed_out: self.timed_out,
            oom_killed: self.oom_killed,
            error: self.error.as_str().into(),
            usage: self.usage,
        }
    }
}
