//! What the demo runs, and what must come of it.

use std::fmt;

use sha2::{Digest as _, Sha256};
use triwire_std::client::Transport;
use triwire_std::record::ExecResult;

use crate::terminal::OneLine;

/// Bytes that go through a checksum.
pub(super) const BULK: usize = 64 * 1024 * 1024;
/// What the bulk repeats.
const PATTERN: &[u8] = b"triwire demo\n";

/// What a command finds on its standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stdin {
    None,
    Text(&'static str),
    /// [`BULK`] bytes of the pattern.
    Bulk,
}

/// A SHA-256, as sha256sum prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Checksum(String);

impl Checksum {
    /// Sums [`BULK`] bytes of the pattern.
    pub(super) fn of_pattern() -> Self {
        let mut sum = Summer::new();
        let chunk = pattern();
        let mut left = BULK;
        while left > 0 {
            let take = left.min(chunk.len());
            sum.add(&chunk[..take]);
            left -= take;
        }
        sum.finish().1
    }
}

/// Makes some KiB of whole repetitions of the pattern.
pub(super) fn pattern() -> Vec<u8> {
    PATTERN.repeat(4096)
}

/// Sums bytes as they come.
pub(super) struct Summer {
    sha: Sha256,
    len: usize,
}

impl Summer {
    pub(super) fn new() -> Self {
        Self { sha: Sha256::new(), len: 0 }
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.sha.update(bytes);
        self.len += bytes.len();
    }

    pub(super) fn finish(self) -> (usize, Checksum) {
        let hex = self.sha.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        (self.len, Checksum(hex))
    }
}

/// What came of a command.
pub(super) struct Seen {
    /// The beginning of standard output, and all of its bytes and their sum.
    pub(super) stdout: Vec<u8>,
    pub(super) stdout_sum: (usize, Checksum),
    pub(super) stderr: Vec<u8>,
    pub(super) result: ExecResult,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let result = &self.result;
        if result.signal.is_empty() {
            write!(f, "exit {}", result.exit_code)?;
        } else {
            write!(f, "{}", OneLine(&result.signal))?;
        }
        if result.timed_out {
            f.write_str(", timed out")?;
        }
        let (len, Checksum(sum)) = &self.stdout_sum;
        if *len > self.stdout.len() {
            write!(f, ", {} MiB, sha256 {}…", len >> 20, &sum[..12])?;
        } else if *len > 0 {
            let text = String::from_utf8_lossy(&self.stdout);
            let short: String = text.trim_end().chars().take(24).collect();
            write!(f, ", out \"{}\"", OneLine(&short))?;
        }
        if !self.stderr.is_empty() {
            let text = String::from_utf8_lossy(&self.stderr);
            write!(f, ", err \"{}\"", OneLine(text.trim_end()))?;
        }
        if !result.error.is_empty() {
            write!(f, ", {}", OneLine(&result.error))?;
        }
        Ok(())
    }
}

/// What standard output must be.
enum Expected {
    Text(String),
    Bulk(Checksum),
}

/// A command and what must come of it.
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) cmd: &'static [&'static str],
    pub(super) stdin: Stdin,
    pub(super) timeout_s: u32,
    stdout: Expected,
    stderr: &'static str,
    /// The exit code, the signal's name, and what a client's own process ends with.
    exit_code: i32,
    signal: &'static str,
    status: u8,
    timed_out: bool,
}

impl Check {
    fn new(name: &'static str, cmd: &'static [&'static str], stdout: &str) -> Self {
        Self {
            name,
            cmd,
            stdin: Stdin::None,
            timeout_s: 0,
            stdout: Expected::Text(stdout.to_owned()),
            stderr: "",
            exit_code: 0,
            signal: "",
            status: 0,
            timed_out: false,
        }
    }

    /// Reports whether a transport can carry it: one-shot carries no input.
    pub(super) fn runs_on(&self, transport: Transport) -> bool {
        self.stdin == Stdin::None || transport != Transport::OneShot
    }

    /// Says what is wrong with what was seen.
    pub(super) fn wrong(&self, seen: &Seen) -> Option<String> {
        let result = &seen.result;
        let outcome = |code: i32, signal: &str, timed_out: bool, status: u8| {
            format!("exit_code {code}, signal {signal:?}, timed_out {timed_out}, status {status}")
        };
        let expected = outcome(self.exit_code, self.signal, self.timed_out, self.status);
        let status = result.as_core().status();
        let got = outcome(result.exit_code, &result.signal, result.timed_out, status);
        if expected != got {
            return Some(format!("expected {expected}; got {got}"));
        }
        match &self.stdout {
            Expected::Text(text) if seen.stdout != text.as_bytes() => {
                let got = String::from_utf8_lossy(&seen.stdout);
                return Some(format!("expected stdout {text:?}, got {got:?}"));
            }
            Expected::Bulk(sum) if seen.stdout_sum != (BULK, sum.clone()) => {
                let (len, got) = &seen.stdout_sum;
                return Some(format!("expected {BULK} bytes, {sum:?}; got {len} bytes, {got:?}"));
            }
            _ => {}
        }
        if seen.stderr != self.stderr.as_bytes() {
            let got = String::from_utf8_lossy(&seen.stderr);
            return Some(format!("expected stderr {:?}, got {got:?}", self.stderr));
        }
        None
    }
}

/// Makes all checks; `sum` is the bulk's.
pub(super) fn all(sum: Checksum) -> Vec<Check> {
    let both = &["sh", "-c", "echo to stdout; echo to stderr >&2"];
    let download = &["sh", "-c", "yes 'triwire demo' | head -c 67108864"];
    let uploaded = format!("{}  -\n", sum.0);
    vec![
        Check { stderr: "to stderr\n", ..Check::new("output both ways", both, "to stdout\n") },
        Check::new("no input is an end at once", &["wc", "-c"], "0\n"),
        Check {
            stdin: Stdin::Text("hello over the wire\n"),
            ..Check::new("input", &["tr", "a-z", "A-Z"], "HELLO OVER THE WIRE\n")
        },
        Check { exit_code: 7, status: 7, ..Check::new("exit code", &["sh", "-c", "exit 7"], "") },
        Check {
            exit_code: -1,
            signal: "SIGTERM",
            status: 143,
            ..Check::new("signal", &["sh", "-c", "kill -TERM $$"], "")
        },
        Check {
            exit_code: -1,
            signal: "SIGKILL",
            status: 124,
            timed_out: true,
            timeout_s: 1,
            ..Check::new("timeout of 1 s", &["sleep", "30"], "")
        },
        Check {
            exit_code: -1,
            status: 127,
            ..Check::new("no such program", &["triwire-no-such-program"], "")
        },
        Check {
            stdout: Expected::Bulk(sum),
            ..Check::new("64 MiB out, checksum here", download, "")
        },
        Check {
            stdin: Stdin::Bulk,
            ..Check::new("64 MiB in, checksum there", &["sha256sum"], &uploaded)
        },
    ]
}
