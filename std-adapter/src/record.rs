//! What a command was asked to be and how it ended, as values that own their memory.
//!
//! The core's records borrow the message that they stand in; these live on.
//!
//! ```
//! use triwire_std::record::{ExecRequest, ExecResult};
//!
//! let request = ExecRequest { cmd: vec!["ls".into()], cwd: "/srv".into(), ..Default::default() };
//! assert_eq!(request.to_json(), br#"{"cmd":["ls"],"cwd":"/srv"}"#);
//! let read = triwire::exec::request::ExecRequest::parse(br#"{"cmd":["ls"],"cwd":"/srv"}"#)?;
//! assert_eq!(ExecRequest::from(&read), request);
//!
//! let result = ExecResult { exit_code: -1, error: "no such program".into(), ..Default::default() };
//! assert_eq!(result.as_core().status(), 125);
//! assert_eq!(ExecResult::from(&result.as_core()), result);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;

use triwire::exec::request::{self, write_request};
use triwire::exec::result::{self, Usage};
use triwire::json::Text;

/// A command to run.
///
/// Its `Debug` shows the names of the variables and the size of the arguments, not what may be
/// secret in them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ExecRequest {
    /// The program and its arguments.
    pub cmd: Vec<String>,
    /// Variables added to the environment.
    pub env: Vec<(String, String)>,
    /// The working directory; empty is the guest's own choice.
    pub cwd: String,
    /// Seconds until the command is killed; 0 is never.
    pub timeout_s: u32,
}

impl ExecRequest {
    /// Writes the request as the JSON that travels.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        sized(|out| write_request(&self.cmd, &self.env, &self.cwd, self.timeout_s, out))
    }
}

impl From<&request::ExecRequest<'_>> for ExecRequest {
    fn from(read: &request::ExecRequest<'_>) -> Self {
        Self {
            cmd: read.cmd().map(|text| text.to_string()).collect(),
            env: read.env().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
            cwd: read.cwd().to_string(),
            timeout_s: read.timeout_s(),
        }
    }
}

impl fmt::Debug for ExecRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.env.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("ExecRequest")
            .field("program", &self.cmd.first().map_or("", String::as_str))
            .field("arguments", &self.cmd.len().saturating_sub(1))
            .field("env", &names)
            .field("cwd", &self.cwd)
            .field("timeout_s", &self.timeout_s)
            .finish()
    }
}

/// How a command ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecResult {
    /// The exit code, -1 when there is none.
    pub exit_code: i32,
    /// How long it ran, in ms.
    pub duration_ms: u64,
    /// The name of the signal that ended it, or empty.
    pub signal: String,
    /// It was killed because its time was up.
    pub timed_out: bool,
    /// It was killed for its use of memory.
    pub oom_killed: bool,
    /// Why it could not be run to its end, or empty.
    pub error: String,
    /// What it used, where that is known.
    pub usage: Option<Usage>,
}

impl ExecResult {
    /// Lends the result as the core's record, which writes it and knows its status.
    #[must_use]
    pub fn as_core(&self) -> result::ExecResult<'_> {
        result::ExecResult {
            exit_code: self.exit_code,
            duration_ms: self.duration_ms,
            signal: Text::plain(&self.signal),
            timed_out: self.timed_out,
            oom_killed: self.oom_killed,
            error: Text::plain(&self.error),
            usage: self.usage,
        }
    }

    /// Writes the result as the JSON that travels, of any length: a frame holds less.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let record = self.as_core();
        sized(|out| record.write(out))
    }
}

impl From<&result::ExecResult<'_>> for ExecResult {
    fn from(read: &result::ExecResult<'_>) -> Self {
        Self {
            exit_code: read.exit_code,
            duration_ms: read.duration_ms,
            signal: read.signal.to_string(),
            timed_out: read.timed_out,
            oom_killed: read.oom_killed,
            error: read.error.to_string(),
            usage: read.usage,
        }
    }
}

/// Writes into memory of the size that the writer asks for.
fn sized(
    write: impl for<'o> Fn(&'o mut [u8]) -> Result<&'o [u8], triwire::OutTooSmall>,
) -> Vec<u8> {
    let mut out = vec![0; 512];
    loop {
        let written = match write(&mut out) {
            Ok(written) => written.len(),
            Err(small) => {
                out.resize(small.needed, 0);
                continue;
            }
        };
        out.truncate(written);
        return out;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_travels_whole_however_long() {
        // rule: EXEC-16
        let request = ExecRequest {
            cmd: vec!["printf".into(), "\u{20ac}\n\"".repeat(2000)],
            env: vec![("TOKEN".into(), "hush".into())],
            cwd: "/tmp".into(),
            timeout_s: 7,
        };
        let json = request.to_json();
        assert_eq!(ExecRequest::from(&request::ExecRequest::parse(&json).unwrap()), request);
        let shown = format!("{request:?}");
        assert!(shown.contains("TOKEN") && !shown.contains("hush"));
    }

    #[test]
    fn a_result_travels_whole() {
        // rule: EXEC-13
        let usage = Usage { cpu_user_ms: 1, peak_memory_bytes: 4096, ..Default::default() };
        let result = ExecResult {
            exit_code: 137,
            duration_ms: 20,
            signal: "SIGKILL".into(),
            timed_out: true,
            oom_killed: true,
            error: "\u{1f600}".repeat(1000),
            usage: Some(usage),
        };
        let json = result.to_json();
        assert_eq!(ExecResult::from(&result::ExecResult::parse(&json).unwrap()), result);
    }
}
