//! What a command was asked to be and how it ended, as values that own their memory.
//!
//! The core's records borrow the message that they stand in; these live on.
//!
//! ```
//! use triwire_std::record::ExecRequest;
//!
//! let request = ExecRequest { cmd: vec!["true".into()], ..ExecRequest::default() };
//! assert_eq!(request.timeout_s, 0); // no limit
//! ```

/// A command to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecRequest {
    /// The program and its arguments.
    pub cmd: Vec<String>,
    /// Variables added to the environment; of two with one name the later counts.
    pub env: Vec<(String, String)>,
    /// The working directory; empty is the guest's default.
    pub cwd: String,
    /// Seconds that the command may run; 0 is no limit.
    pub timeout_s: u32,
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
    /// Its time was up.
    pub timed_out: bool,
    /// It was ended for its use of memory.
    pub oom_killed: bool,
    /// Why it could not be run to its end, or empty.
    pub error: String,
}
