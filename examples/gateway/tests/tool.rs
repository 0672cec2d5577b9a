//! The rest of the tool: demo, inspect, settings, help, completions, manual.

mod support;

use std::fs;

use support::{OURS, feed, stderr, stdout, triwire};
use triwire::exec::frame::{Kind, head};

fn frame(kind: Kind, payload: &[u8]) -> Vec<u8> {
    let mut frame = head(kind, payload.len()).unwrap().to_vec();
    frame.extend_from_slice(payload);
    frame
}

#[test]
fn the_demo_holds() {
    // Without firmware, which it says.
    let output = triwire().args(["demo", "--json", "--firmware", "/no/such"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    let lines: Vec<serde_json::Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (summary, checks) = lines.split_last().unwrap();
    assert_eq!((&summary["ok"], &summary["checks"]), (&true.into(), &checks.len().into()));
    assert!(summary["firmware"].as_str().unwrap().contains("no image /no/such"));
    for transport in ["one-shot", "hijack", "ws", "channel"] {
        assert!(checks.iter().any(|check| check["transport"] == transport));
    }
}

#[test]
fn inspect_tells_good_streams_from_bad() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stream.bin");
    let exit = frame(Kind::Exit, br#"{"exit_code":3,"duration_ms":12}"#);
    let good = [frame(Kind::Stdout, b"hello\n"), exit.clone()].concat();
    let cases: &[(Vec<u8>, i32, &str)] = &[
        (good.clone(), 0, "exit code 3"),
        (good[..10].to_vec(), 1, "truncated at byte 10"),
        (frame(Kind::Stdout, b"x"), 1, "missing_exit at byte 9"),
        ([exit.clone(), vec![1]].concat(), 1, "after_exit at byte 40"),
        (vec![9], 1, "unknown_type at byte 0"),
        (frame(Kind::Exit, b"{}"), 1, "exit_unreadable"),
        (Vec::new(), 1, "missing_exit at byte 0"),
        (frame(Kind::Stdin, b"in"), 0, "host_to_guest"),
    ];
    for (stream, status, word) in cases {
        fs::write(&path, stream).unwrap();
        let output = triwire().arg("inspect").arg(&path).output().unwrap();
        assert_eq!(output.status.code(), Some(*status), "{word}: {}", stdout(&output));
        assert!(stdout(&output).contains(word), "{word}: {}", stdout(&output));
        let piped = feed(triwire().args(["inspect", "-"]), stream);
        assert_eq!((piped.status.code(), piped.stdout), (Some(*status), output.stdout));
    }
    let output = triwire().args(["inspect", "/no/such"]).output().unwrap();
    assert_eq!(output.status.code(), OURS);
    fs::write(&path, &good).unwrap();
    let output =
        triwire().args(["inspect", "--direction", "host-to-guest"]).arg(&path).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("wrong_direction at byte 0"));
}

#[test]
fn nothing_raw_and_no_colour_reaches_a_pipe() {
    let stream = frame(Kind::Stdout, b"\x1b]0;title\x07\xc2\x9b31m");
    let output = feed(triwire().args(["inspect", "--full", "-"]), &stream);
    let controls = stdout(&output).chars().filter(|c| c.is_control() && *c != '\n').count();
    assert_eq!(controls, 0, "{}", stdout(&output));
}

#[test]
fn settings_come_with_their_origin() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("t.toml");
    fs::write(&config, "listen = \"127.0.0.1:9\"\n").unwrap();
    let run = |flags: &[&str]| {
        let output = triwire()
            .args(["config", "show", "--json", "--config"])
            .arg(&config)
            .args(flags)
            .env("TRIWIRE_URL", "http://127.0.0.1:5")
            .env("TRIWIRE_KEY", "0123456789abcdef-secret")
            .output()
            .unwrap();
        assert!(!stdout(&output).contains("secret"));
        let rows: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        move |name: &str| {
            let row = rows.as_array().unwrap().iter().find(|row| row["setting"] == name).unwrap();
            (row["value"].as_str().unwrap().to_owned(), row["origin"].as_str().unwrap().to_owned())
        }
    };
    let shown = run(&[]);
    assert_eq!(shown("serve.listen"), ("127.0.0.1:9".into(), format!("{}:1", config.display())));
    assert_eq!(shown("exec.url"), ("http://127.0.0.1:5".into(), "TRIWIRE_URL".into()));
    assert_eq!(shown("exec.key"), ("set".into(), "TRIWIRE_KEY".into()));
    assert_eq!(shown("exec.timeout").1, "default");
    let shown = run(&["--listen", "127.0.0.1:8", "--url", "http://127.0.0.1:6"]);
    assert_eq!(shown("serve.listen"), ("127.0.0.1:8".into(), "--listen".into()));
    assert_eq!(shown("exec.url"), ("http://127.0.0.1:6".into(), "--url".into()));
}

#[test]
fn help_has_examples_for_each_command() {
    for command in [&[][..], &["serve"], &["exec"], &["demo"], &["inspect"], &["config", "show"]] {
        let output = triwire().args(command).arg("--help").output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(stdout(&output).contains("Examples:"), "{command:?}");
    }
}

#[test]
fn completions_and_manual_are_made() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = triwire().args(["completions", shell]).output().unwrap();
        assert!(output.status.success() && stdout(&output).contains("inspect"), "{shell}");
    }
    for page in [&[][..], &["exec"], &["serve"]] {
        let output = triwire().arg("man").args(page).output().unwrap();
        assert!(output.status.success() && stdout(&output).starts_with(".ie"), "{page:?}");
    }
    assert_eq!(triwire().args(["man", "nonsense"]).output().unwrap().status.code(), OURS);
}
