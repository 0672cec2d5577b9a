//! Owned records of the exec contract, for whoever keeps them longer than the bytes they came in.
//!
//! ```
//! use triwire_std::record::ExecRequest;
//!
//! let request = ExecRequest { cmd: vec!["true".into()], ..ExecRequest::default() };
//! assert!(request.cwd.is_empty() && request.timeout_s == 0);
//! ```

/// A command to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecRequest {
    /// The program and its arguments; the first is the program.
    pub cmd: Vec<String>,
    /// Variables added to the environment; a later one wins over an earlier one of its name.
    pub env: Vec<(String, String)>,
    /// The working directory; empty means the guest's own choice.
    pub cwd: String,
    /// The deadline in s, counted from the start; 0 means none.
    pub timeout_s: u32,
}

/// How a command ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecResult {
    /// The command's own exit code; -1 when it has none (a signal, a failed start).
    pub exit_code: i32,
    /// How long it ran, in ms.
    pub duration_ms: u64,
    /// The signal that ended it, such as `SIGKILL`; empty when none did.
    pub signal: String,
    /// Whether its deadline ended it.
    pub timed_out: bool,
    /// Whether the system ended it for want of memory.
    pub oom_killed: bool,
    /// Why it could not run; empty when it ran.
    pub error: String,
    /// What it used; `None` when it did not run.
    pub usage: Option<Usage>,
}

/// What a command used, together with the children it waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in user mode, in ms.
    pub cpu_user_ms: u64,
    /// CPU time in the kernel, in ms.
    pub cpu_sys_ms: u64,
    /// The most memory that was resident at once, in bytes.
    pub peak_memory_bytes: u64,
    /// Page faults that needed the disk.
    pub page_faults_major: u64,
    /// How often the scheduler took the CPU away.
    pub context_switches_involuntary: u64,
    /// Bytes read from storage.
    pub io_read_bytes: u64,
    /// Bytes written to storage.
    pub io_write_bytes: u64,
}
