//! `triwire exec` against `triwire serve`, over real sockets.

mod support;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::Stdio;

use support::{Gateway, OURS, TRANSPORTS, feed, stderr, stdout, triwire};

// rule: EXEC-46
#[test]
fn the_exit_code_is_the_command_s_own_on_every_transport() {
    let gateway = Gateway::start();
    let cases: &[(&[&str], &[&str], i32)] = &[
        (&[], &["true"], 0),
        (&[], &["sh", "-c", "exit 7"], 7),
        (&[], &["sh", "-c", "exit 255"], 255),
        (&[], &["sh", "-c", "kill -TERM $$"], 143),
        (&[], &["sh", "-c", "kill -KILL $$"], 137),
        (&["--timeout", "1"], &["sleep", "60"], 124),
        (&[], &["triwire-no-such-program"], 127),
        (&[], &["/etc/passwd"], 126),
        (&["--cwd", "/no/such"], &["true"], 125),
    ];
    for transport in TRANSPORTS {
        for (flags, cmd, status) in cases {
            let mut command = gateway.exec(&["--transport", transport]);
            let output = command.args(*flags).args(["local", "--"]).args(*cmd).output().unwrap();
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(*status), "{transport} {cmd:?}: {said}");
        }
    }
}

#[test]
fn output_goes_to_the_same_descriptors() {
    let gateway = Gateway::start();
    for transport in TRANSPORTS {
        let script = "printf out; printf err >&2; printf \"$WHO\"; cat";
        let output = gateway
            .exec(&["--transport", transport, "--env", "WHO=me", "local", "--", "sh", "-c", script])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), ("outme", "err"));
    }
}

#[test]
fn output_comes_before_the_command_ends() {
    let gateway = Gateway::start();
    for transport in ["hijack", "ws"] {
        let mut child = gateway
            .exec(&["--transport", transport, "-i", "local", "--", "sh", "-c", "echo ready; cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = child.stdout.take().unwrap();
        let mut said = [0; 6];
        out.read_exact(&mut said).unwrap();
        assert_eq!(&said, b"ready\n");
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(b"more\n").unwrap();
        let mut more = [0; 5];
        out.read_exact(&mut more).unwrap();
        assert_eq!(&more, b"more\n");
        drop(stdin);
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn a_file_on_stdin_goes_through_whole() {
    let gateway = Gateway::start();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("input");
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n.wrapping_mul(n) >> 8) as u8).collect();
    std::fs::write(&path, &bytes).unwrap();
    for transport in ["hijack", "ws"] {
        let output = gateway
            .exec(&["--transport", transport, "-i", "local", "--", "cat"])
            .stdin(File::open(&path).unwrap())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(output.stdout == bytes, "{transport}: {} bytes came back", output.stdout.len());
    }
    // Without a transport, -i takes one that carries input.
    let output = feed(&mut gateway.exec(&["-i", "local", "--", "wc", "-c"]), &bytes);
    assert_eq!(stdout(&output).trim(), "3000000");
}

#[test]
fn a_command_that_ends_does_not_wait_for_stdin() {
    let gateway = Gateway::start();
    for transport in ["hijack", "ws"] {
        let mut child = gateway
            .exec(&["--transport", transport, "-i", "local", "--", "sh", "-c", "exit 3"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let open = child.stdin.take();
        assert_eq!(child.wait().unwrap().code(), Some(3));
        drop(open);
    }
}

#[test]
fn a_closed_output_ends_it_quietly_and_the_command_too() {
    let gateway = Gateway::start();
    for transport in TRANSPORTS {
        let mut child = gateway
            .exec(&["--transport", transport, "local", "--", "yes"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = child.stdout.take().unwrap();
        out.read_exact(&mut [0; 100_000]).unwrap();
        drop(out);
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(141), ""));
    }
}

// rule: EXEC-22
#[test]
fn ctrl_c_ends_the_command_with_it() {
    let gateway = Gateway::start();
    let root = gateway.state().join("sandboxes/local");
    for transport in TRANSPORTS {
        let fifo = root.join(format!("alive-{transport}"));
        let path = fifo.to_str().unwrap().to_owned();
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        // The fifo's reader sees its end only once nobody of the command's group is left.
        let script = format!("echo ready; exec 3> {path}; sleep 600");
        let mut child = gateway
            .exec(&["--transport", transport, "local", "--", "sh", "-c", &script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        let mut alive = File::open(&fifo).unwrap();
        let pid = child.id().to_string();
        std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{transport}");
        assert_eq!(alive.read(&mut [0; 1]).unwrap(), 0);
    }
}

#[test]
fn json_lines_tell_output_and_result() {
    let gateway = Gateway::start();
    for transport in TRANSPORTS {
        let script = "echo out; printf '\\377' >&2; exit 3";
        let output = gateway
            .exec(&["--json", "--transport", transport, "local", "--", "sh", "-c", script])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(3));
        let lines: Vec<serde_json::Value> =
            stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let find = |name: &str| lines.iter().find(|line| line.get(name).is_some()).unwrap();
        assert_eq!(find("stdout")["stdout"], "out\n");
        assert_eq!(
            (&find("stderr")["stderr"], &find("stderr")["encoding"]),
            (&"/w==".into(), &"base64".into())
        );
        let last = lines.last().unwrap();
        assert_eq!((&last["result"]["exit_code"], &last["status"]), (&3.into(), &3.into()));
    }
}

#[test]
fn failures_are_125_and_a_sentence() {
    let gateway = Gateway::start();
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, "0123456789abcdef-wrong\n").unwrap();
    let key = key.to_str().unwrap();
    let url = gateway.url();
    let cases: &[(&[&str], &str)] = &[
        (&["exec", "--url", &url, "--key-file", key, "local", "--", "true"], "key"),
        (&["exec", "--url", &url, "--key-file", "/no/such", "local", "--", "true"], "/no/such"),
        (
            &["exec", "--url", "http://127.0.0.1:1", "--key-file", key, "local", "--", "true"],
            "gateway",
        ),
        (&["exec", "--url", "ftp://x", "--key-file", key, "local", "--", "true"], "http://"),
        (
            &[
                "exec",
                "--url",
                &url,
                "--key-file",
                key,
                "-i",
                "--transport",
                "one-shot",
                "local",
                "--",
                "cat",
            ],
            "one-shot",
        ),
        (&["exec", "local"], "CMD"),
        (&["exec", "--timeout", "x", "local", "--", "true"], "timeout"),
        (&["nonsense"], "nonsense"),
    ];
    for (line, word) in cases {
        let output = triwire().args(*line).output().unwrap();
        assert_eq!(output.status.code(), OURS, "{line:?}");
        assert!(stderr(&output).contains(word), "{line:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{line:?}");
    }
    for transport in TRANSPORTS {
        let output =
            gateway.exec(&["--transport", transport, "nobody", "--", "true"]).output().unwrap();
        assert_eq!(output.status.code(), OURS);
        assert!(stderr(&output).contains("no such sandbox"), "{}", stderr(&output));
    }
    let output = gateway.exec(&["--json", "nobody", "--", "true"]).output().unwrap();
    let record: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((output.status.code(), &record["status"]), (OURS, &125.into()));
}
