//! `triwire pair`, `triwire executor` and `triwire ask` on a gateway, as processes.

mod support;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use support::{Gateway, OURS, feed, stderr, stdout, triwire};

const TOOLS: &str = r#"
concurrency = 2

[tools.texts.echo]
command = ["cat"]
bounds = { maxRequests = 3, hosts = ["a"] }

[tools.texts.count]
command = ["wc", "-c"]
raw = true

[tools.texts.fail]
command = ["sh", "-c", "echo first >&2; echo 'out of paper' >&2; exit 7"]

[tools.texts.slow]
command = ["sleep", "60"]
timeout = 1

[tools.texts.wordy]
command = ["echo", "hello"]

[tools.texts.missing]
command = ["no-such-program"]

[tools.texts.env]
command = ["sh", "-c", 'printf "{\"lang\":\"%s\",\"bearer\":\"%s\"}" "$LANG" "$TRIWIRE_BEARER"']
env = { LANG = "C" }
"#;

/// An executor that is connected, and ends with its test.
struct Desk(Child);

impl Drop for Desk {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A gateway with a channel, whose state and config stand in `folder`.
fn start(folder: &Path) -> Gateway {
    let config = folder.join("triwire.toml");
    fs::write(&config, "listen = \"127.0.0.1:0\"\n[channel]\n").unwrap();
    let mut command = triwire();
    command.args(["serve", "--config"]).arg(config).arg("--state").arg(folder);
    Gateway::of(&mut command)
}

fn pair(gateway: &Gateway, folder: &Path, arguments: &[&str]) -> Output {
    let mut command = triwire();
    command.args(["pair", "--url", &gateway.url(), "--state"]).arg(folder);
    command.args(arguments).output().unwrap()
}

fn executor(gateway: &Gateway, folder: &Path, bearer: &str) -> Command {
    fs::write(folder.join("tools.toml"), TOOLS).unwrap();
    let mut command = triwire();
    command.args(["executor", "--url", &gateway.url()]).arg(folder.join("tools.toml"));
    command.env("TRIWIRE_BEARER", bearer).stderr(Stdio::piped());
    command
}

fn desk(gateway: &Gateway, folder: &Path) -> Desk {
    let bearer = stdout(&pair(gateway, folder, &["desk-1"]));
    assert!(bearer.starts_with("vbx_"), "{bearer}");
    let mut child = executor(gateway, folder, bearer.trim()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let desk = Desk(child);
    let mut line = String::new();
    while !line.contains("connected url=") {
        line.clear();
        assert_ne!(log.read_line(&mut line).unwrap(), 0);
        assert!(!line.contains(bearer.trim()), "{line}");
    }
    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    // It is in its chair once it answers.
    while ask(gateway, folder, &["texts/count"]).status.code() == Some(1) {}
    desk
}

fn ask(gateway: &Gateway, folder: &Path, arguments: &[&str]) -> Output {
    let mut command = triwire();
    command.args(["ask", "--url", &gateway.url(), "--state"]).arg(folder);
    command.args(["--executor", "desk-1"]).args(arguments).output().unwrap()
}

#[test]
fn a_call_is_answered_by_a_command() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path());
    let _desk = desk(&gateway, folder.path());
    let bounds = r#"{"hosts":["a"],"maxRequests":3.0}"#;
    let output =
        ask(&gateway, folder.path(), &["texts/echo", r#"{"b": [1, "ż"]}"#, "--bounds", bounds]);
    assert_eq!(
        (output.status.code(), stdout(&output).as_str()),
        (Some(0), "{\"b\": [1, \"ż\"]}\n"),
        "{}",
        stderr(&output)
    );
    let output = ask(&gateway, folder.path(), &["texts/count", r#"{"a":1}"#, "--json"]);
    assert_eq!(stdout(&output), "{\"observed\":{\"text\":\"7\\n\"},\"status\":0}\n");
    // What the executor is let in with is not its commands'.
    let output = ask(&gateway, folder.path(), &["texts/env"]);
    assert_eq!(stdout(&output), "{\"lang\":\"C\",\"bearer\":\"\"}\n", "{}", stderr(&output));
    let mut command = triwire();
    command.args(["ask", "--url", &gateway.url(), "--state"]).arg(folder.path());
    command.args(["--executor", "desk-1", "texts/count", "-"]);
    assert_eq!(stdout(&feed(&mut command, b"{ }")), "{\"text\":\"3\\n\"}\n");
}

#[test]
fn the_exit_code_tells_what_came_of_a_call() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path());
    let _desk = desk(&gateway, folder.path());
    let bounds = r#"{"maxRequests":3,"hosts":["a"]}"#;
    for (arguments, status, word) in [
        (&["texts/fail"][..], 1, "exec-threw: the command ended with exit code 7: out of paper"),
        (&["texts/slow"], 1, "exec-threw: the command ran longer than 1 s"),
        (&["texts/slow", "--timeout", "0.05"], 124, "machine-timeout: "),
        (&["texts/wordy"], 1, "exec-threw: the command's output is no JSON object"),
        (&["texts/missing"], 1, "exec-threw: the command ended with exit code 127"),
        (&["texts/other"], 1, "unattributed-call: "),
        (&["texts/echo"], 1, "bounds-mismatch: "),
        (&["texts/count", "--executor", "desk-2"], 125, "cannot be used multiple times"),
        (&["texts/count", "[]"], 125, "expected a JSON object"),
        (&["texts/count", "{}", "--bounds", "{"], 125, "--bounds: expected a JSON object"),
        (&["count"], 125, "expected the extension and its tool"),
        (&["texts/count", "--timeout", "0"], 125, "expected seconds"),
    ] {
        let output = ask(&gateway, folder.path(), arguments);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
        assert!(said.contains(word) && stdout(&output).is_empty(), "{arguments:?}: {said}");
    }
    for left in [true, true, true, false] {
        let output = ask(&gateway, folder.path(), &["texts/echo", "--bounds", bounds, "--json"]);
        let record: Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(record["observed"].is_object(), left, "{record}");
        assert_eq!(record["refused"] == "budget-exhausted", !left, "{record}");
        assert_eq!(Some(i64::from(!left)), record["status"].as_i64());
    }
}

#[test]
fn who_may_be_an_executor_is_the_host_s_to_say() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path());
    let desk = desk(&gateway, folder.path());
    let output = pair(&gateway, folder.path(), &["--revoke", "desk-1"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), ""));
    let mut desk = desk;
    assert_eq!(desk.0.wait().unwrap().code(), OURS);
    let gone = ask(&gateway, folder.path(), &["texts/count"]);
    assert!(stderr(&gone).contains("machine-unreachable"), "{}", stderr(&gone));
    let again = pair(&gateway, folder.path(), &["--revoke", "desk-2"]);
    assert_eq!(again.status.code(), OURS);
    assert!(stderr(&again).contains("no machine is paired under this name"), "{}", stderr(&again));
    let output = executor(&gateway, folder.path(), "vbx_unknown").output().unwrap();
    assert_eq!(output.status.code(), OURS);
    assert!(stderr(&output).contains("bearer-refused"), "{}", stderr(&output));

    let mut wrong = triwire();
    fs::write(folder.path().join("token"), "0".repeat(64)).unwrap();
    wrong.args(["pair", "--url", &gateway.url(), "--host-token-file"]);
    let output = wrong.arg(folder.path().join("token")).arg("x").output().unwrap();
    assert!(stderr(&output).contains(".host-token in its state folder"), "{}", stderr(&output));
    let mut none = triwire();
    none.args(["pair", "--state", "/no/such/folder", "x"]);
    assert!(stderr(&none.output().unwrap()).contains("--host-token-file"));
    let mut none = triwire();
    fs::write(folder.path().join("tools.toml"), TOOLS).unwrap();
    let output = none.arg("executor").arg(folder.path().join("tools.toml")).output().unwrap();
    assert!(stderr(&output).contains("triwire pair NAME"), "{}", stderr(&output));
}

#[test]
fn callers_hear_that_there_is_no_channel() {
    let gateway = Gateway::start();
    let said = stderr(&ask(&gateway, gateway.state(), &["a/b"]));
    assert!(said.contains("there is no channel here") && said.contains("[channel]"), "{said}");
}
