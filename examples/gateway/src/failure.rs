//! A failure of this tool itself, as one sentence that says what to do, and exit code 125.

use std::fmt;
use std::process::ExitCode;

use serde_json::json;

use crate::terminal::Printable;

/// What a command of this tool ends with: an exit code, or a failure of its own.
pub(crate) type Outcome = Result<u8, Failure>;

/// Why this tool could not do its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    message: String,
}

impl Failure {
    /// The exit code of every failure that is not the command's own, as in docker run.
    pub(crate) const STATUS: u8 = 125;

    /// The exit code when standard output is closed: what the shell says of a tool that SIGPIPE
    /// ended.
    const STATUS_BROKEN_PIPE: u8 = 128 + 13;

    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }

    /// Judges a failed write of standard output: a reader that has seen enough is no failure, the
    /// tool ends quietly with the code of a broken pipe.
    pub(crate) fn output(error: &std::io::Error) -> Outcome {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Ok(Self::STATUS_BROKEN_PIPE);
        }
        Err(Self::new(format!("standard output cannot be written: {error}")))
    }

    /// Tells it, as JSON on standard output or as a sentence on standard error.
    pub(crate) fn report(&self, json: bool) -> ExitCode {
        use std::io::Write as _;
        // Nobody may be left to read it; the exit code still says it.
        let _ = if json {
            let record = json!({ "error": self.message, "status": Self::STATUS });
            writeln!(std::io::stdout(), "{record}")
        } else {
            writeln!(std::io::stderr(), "triwire: {}", Printable(&self.message))
        };
        ExitCode::from(Self::STATUS)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
