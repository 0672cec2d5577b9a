//! Signals by name, as results carry them: our own guests write the `SIG` name, other guests
//! sometimes a text such as `killed`.
//!
//! ```
//! use triwire::exec::signal;
//!
//! assert_eq!(signal::number("SIGKILL"), Some(9));
//! assert_eq!(signal::number("killed"), Some(9));
//! assert_eq!(signal::name(15), Some("SIGTERM"));
//! assert_eq!(signal::number("SIGNOPE"), None);
//! ```

/// Name, the text that other guests write, and number (of Linux on most machines).
const SIGNALS: [(&str, &str, u8); 31] = [
    ("SIGHUP", "hangup", 1),
    ("SIGINT", "interrupt", 2),
    ("SIGQUIT", "quit", 3),
    ("SIGILL", "illegal instruction", 4),
    ("SIGTRAP", "trace/breakpoint trap", 5),
    ("SIGABRT", "aborted", 6),
    ("SIGBUS", "bus error", 7),
    ("SIGFPE", "floating point exception", 8),
    ("SIGKILL", "killed", 9),
    ("SIGUSR1", "user defined signal 1", 10),
    ("SIGSEGV", "segmentation fault", 11),
    ("SIGUSR2", "user defined signal 2", 12),
    ("SIGPIPE", "broken pipe", 13),
    ("SIGALRM", "alarm clock", 14),
    ("SIGTERM", "terminated", 15),
    ("SIGSTKFLT", "stack fault", 16),
    ("SIGCHLD", "child exited", 17),
    ("SIGCONT", "continued", 18),
    ("SIGSTOP", "stopped (signal)", 19),
    ("SIGTSTP", "stopped", 20),
    ("SIGTTIN", "stopped (tty input)", 21),
    ("SIGTTOU", "stopped (tty output)", 22),
    ("SIGURG", "urgent I/O condition", 23),
    ("SIGXCPU", "CPU time limit exceeded", 24),
    ("SIGXFSZ", "file size limit exceeded", 25),
    ("SIGVTALRM", "virtual timer expired", 26),
    ("SIGPROF", "profiling timer expired", 27),
    ("SIGWINCH", "window changed", 28),
    ("SIGIO", "I/O possible", 29),
    ("SIGPWR", "power failure", 30),
    ("SIGSYS", "bad system call", 31),
];

/// Returns the number of a signal, from its name or from the text that other guests write.
#[must_use]
pub fn number(name: &str) -> Option<u8> {
    number_where(|candidate| candidate == name)
}

pub(crate) fn number_where(is: impl Fn(&str) -> bool) -> Option<u8> {
    SIGNALS.into_iter().find(|(name, text, _)| is(name) || is(text)).map(|(_, _, number)| number)
}

/// Returns the name of a signal, from 1 to 31; real-time signals have none.
#[must_use]
pub fn name(number: u8) -> Option<&'static str> {
    SIGNALS.into_iter().find(|(_, _, candidate)| *candidate == number).map(|(name, _, _)| name)
}
