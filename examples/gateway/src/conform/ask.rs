//! The testee's process: questions go in without waiting, answers come out in order.

use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use triwire_gateway::cases::{Case, Difference, Verdict};

/// How long one answer may take; a testee that hangs must not hang the run.
const PATIENCE: Duration = Duration::from_secs(60);
/// Answers that are read ahead.
const AHEAD: usize = 16;

pub(super) struct Testee {
    child: Child,
    answers: Receiver<io::Result<String>>,
    /// Why there will be no more answers.
    ended: Option<String>,
    answered: bool,
}

impl Testee {
    /// Starts `command` in a shell, or this program as testee, and begins to ask.
    pub(super) fn start(command: Option<&str>, cases: &[Case]) -> io::Result<Self> {
        let mut start = match command {
            Some(command) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", command]);
                shell
            }
            None => {
                let mut own = Command::new(std::env::current_exe()?);
                own.arg("testee");
                own
            }
        };
        let mut child = start.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("its pipes are missing"));
        };
        let requests: Vec<String> = cases.iter().map(Case::request).collect();
        thread::spawn(move || {
            let mut stdin = BufWriter::new(stdin);
            // A testee that ended early shows in its answers.
            let _ = requests
                .iter()
                .try_for_each(|request| writeln!(stdin, "{request}"))
                .and_then(|()| stdin.flush());
        });
        let (sender, answers) = sync_channel(AHEAD);
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                let failed = line.is_err();
                if sender.send(line).is_err() || failed {
                    return;
                }
            }
        });
        Ok(Self { child, answers, ended: None, answered: false })
    }

    /// Waits for the answer to `case`, the next in order, and judges it.
    pub(super) fn answer(&mut self, case: &Case) -> Verdict {
        if self.ended.is_none() {
            match self.answers.recv_timeout(PATIENCE) {
                Ok(Ok(line)) => {
                    self.answered = true;
                    return case.judge(&line);
                }
                Ok(Err(error)) => self.ended = Some(format!("its output is no text: {error}")),
                Err(RecvTimeoutError::Timeout) => {
                    self.ended = Some(format!("no answer within {} s", PATIENCE.as_secs()));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait().map_or(String::new(), |how| format!(" ({how})"));
                    self.ended = Some(format!("the testee ended{status}"));
                }
            }
        }
        Verdict::Failed(vec![Difference {
            member: "answer".into(),
            expected: case.expected_json(),
            got: self.ended.clone().unwrap_or_default(),
        }])
    }
}

impl Testee {
    /// Says how it ended before it answered anything: then it was none.
    pub(super) fn never_answered(&self) -> Option<&str> {
        self.ended.as_deref().filter(|_| !self.answered)
    }
}

impl Drop for Testee {
    fn drop(&mut self) {
        // It has answered all there is, or never will.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
