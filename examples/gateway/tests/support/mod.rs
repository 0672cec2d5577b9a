//! Drives the built binary: a gateway that is waited for by its own word, and commands on it.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use tempfile::TempDir;

/// The transports, by their flags.
pub(crate) const TRANSPORTS: [&str; 3] = ["one-shot", "hijack", "ws"];
/// The exit code of every failure of the tool itself.
pub(crate) const OURS: Option<i32> = Some(125);

/// The tool, in an environment without settings.
pub(crate) fn triwire() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_triwire"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("TRIWIRE_") || text.starts_with("VOICEBOX_") {
            command.env_remove(name);
        }
    }
    command
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A gateway on a free port, with its state in a folder of its own.
pub(crate) struct Gateway {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// What it said before it listened.
    pub(crate) said: String,
    pub(crate) address: String,
    state: Option<TempDir>,
}

impl Gateway {
    pub(crate) fn start() -> Self {
        let state = tempfile::tempdir().unwrap();
        let mut command = triwire();
        command.args(["serve", "--listen", "127.0.0.1:0", "--state"]).arg(state.path());
        let mut gateway = Self::of(&mut command);
        gateway.state = Some(state);
        gateway
    }

    /// Starts `command` and waits until it says that it listens.
    pub(crate) fn of(command: &mut Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        let address = loop {
            let mut line = String::new();
            assert_ne!(stdout.read_line(&mut line).unwrap(), 0, "it ended; it said {said}");
            said.push_str(&line);
            if let Some(address) = line.strip_prefix("listening on ") {
                break address.trim_end().to_owned();
            }
        };
        Self { child, stdout, said, address, state: None }
    }

    pub(crate) fn state(&self) -> &Path {
        self.state.as_ref().unwrap().path()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Begins `triwire exec` on this gateway.
    pub(crate) fn exec(&self, flags: &[&str]) -> Command {
        let mut command = triwire();
        command.args(["exec", "--url", &self.url()]);
        if let Some(state) = &self.state {
            command.arg("--state").arg(state.path());
        }
        command.args(flags);
        command
    }

    /// Ends it as a failure of the machine would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to stop, and answers its exit code.
    pub(crate) fn stop(mut self, signal: &str) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        let status = self.child.wait().unwrap();
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        status.code()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command with something on its standard input.
pub(crate) fn feed(command: &mut Command, input: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let feeding = std::thread::spawn(move || {
        // The command may not want it all.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    feeding.join().unwrap();
    output
}
