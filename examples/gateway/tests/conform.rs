//! `triwire testee` and `triwire conform` as processes.

mod support;

use std::fs;
use std::path::Path;

use serde_json::Value;
use support::{OURS, feed, stderr, stdout, triwire};

/// A case that passes with our testee, and one that does not.
const CASES: &str = r#"{"id":"good","op":"text.length","in":{"text":"abc"},"out":{"length":3}}
{"id":"bad","op":"text.length","in":{"text":"abc"},"out":{"length":4},"note":"three are not four"}
"#;

fn conform(paths: &[&Path], flags: &[&str]) -> (Option<i32>, String, String) {
    let output = triwire().arg("conform").args(flags).args(paths).output().unwrap();
    (output.status.code(), stdout(&output), stderr(&output))
}

#[test]
fn our_testee_passes_our_suite() {
    let (status, out, err) = conform(&[], &[]);
    assert_eq!((status, &*err), (Some(0), ""), "{out}");
    let totals = out.strip_suffix(" passed, 0 failed, 0 unsupported\n").unwrap();
    assert!(totals.parse::<u32>().unwrap() > 500, "{out}");

    // The folder of the project holds what is built in.
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    assert_eq!(conform(&[&folder], &[]), (Some(0), out, err));
}

#[test]
fn a_mismatch_is_shown_side_by_side() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cases.jsonl");
    fs::write(&file, CASES).unwrap();
    for path in [folder.path(), &file] {
        let (status, out, _) = conform(&[path], &[]);
        assert_eq!(status, Some(1));
        assert!(out.contains("FAILED bad\n  three are not four\n"), "{out}");
        let row = out.lines().find(|line| line.trim_start().starts_with("length")).unwrap();
        assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["length", "4", "3"]);
        assert!(out.ends_with("\n1 passed, 1 failed, 0 unsupported\n"), "{out}");
    }
    let (status, out, _) = conform(&[&file], &["--json"]);
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [good, bad, totals] = &lines[..] else { panic!("{out}") };
    assert_eq!(
        (status, &good["outcome"], &bad["outcome"]),
        (Some(1), &"passed".into(), &"failed".into())
    );
    assert_eq!(bad["differences"][0]["got"], "3");
    assert_eq!(totals.to_string(), r#"{"passed":1,"failed":1,"unsupported":0}"#);
}

#[test]
fn every_way_for_a_testee_to_fail_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cases.jsonl");
    fs::write(&file, CASES).unwrap();
    let ids = r#"s/.*"id":"\([a-z]*\)".*/{"id":"\1",ANSWER}/"#;
    let answers = |answer: &str| format!("sed -u '{}'", ids.replace("ANSWER", answer));
    for (testee, totals, word) in [
        (answers(r#""unsupported":true"#), "0 passed, 0 failed, 2 unsupported", ""),
        (answers(r#""out":{"length":3}"#), "1 passed, 1 failed, 0 unsupported", "bad"),
        (answers(r#""error":"what?""#), "0 passed, 2 failed, 0 unsupported", "what?"),
        (
            format!("head -n 1 | {}", answers(r#""out":{"length":3}"#)),
            "1 passed, 1 failed, 0 unsupported",
            "ended (exit status: 0)",
        ),
        ("echo hello".into(), "0 passed, 2 failed, 0 unsupported", "hello"),
    ] {
        let (status, out, _) = conform(&[&file], &["--testee", &testee]);
        assert_eq!(status, Some(1), "{testee}: {out}");
        assert!(out.ends_with(&format!("{totals}\n")) && out.contains(word), "{testee}: {out}");
    }
    // What answers nothing at all is no testee.
    for (testee, word) in [
        ("true", "ended (exit status: 0) before"),
        ("exit 7", "ended (exit status: 7) before"),
        ("no-such-command", "ended (exit status: 127) before"),
        (r"printf '\377\n'", "no text"),
    ] {
        let (status, out, err) = conform(&[&file], &["--testee", testee]);
        assert_eq!((status, &*out), (OURS, ""), "{testee}");
        assert!(err.contains(word) && err.contains("--testee"), "{testee}: {err}");
    }
}

#[test]
fn what_is_no_case_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cases.jsonl");
    let (status, _, err) = conform(&[&file], &[]);
    assert_eq!(status, OURS);
    assert!(err.contains("cases.jsonl"), "{err}");
    for (text, word) in [
        ("", "neither manifest.json nor"),
        ("\n{\"id\":\"a\"", "line 2"),
        (r#"{"id":"a","op":"x","in":{},"out":{}}"#, "nothing would be compared"),
        (r#"{"id":"a","op":"x","in":{},"out":{"a":1},"rules":"A"}"#, "unknown field"),
        (&CASES.repeat(2), "\"good\" stands in"),
    ] {
        fs::write(&file, text).unwrap();
        let (status, _, err) = conform(&[&file], &[]);
        assert_eq!(status, OURS, "{text}");
        assert!(err.contains(word) && err.contains("cases.jsonl"), "{err}");
    }
}

#[test]
fn a_manifest_that_lies_is_no_test() {
    let folder = tempfile::tempdir().unwrap();
    for (path, bytes) in triwire_fixtures::FILES {
        if let Some(name) = path.strip_prefix("exec/") {
            fs::write(folder.path().join(name), bytes).unwrap();
        }
    }
    assert_eq!(conform(&[folder.path()], &[]).0, Some(0));
    let stream = folder.path().join("exec_basic.bin");
    let good = fs::read(&stream).unwrap();
    let mut other = good.clone();
    other[8] ^= 1;
    for (bytes, word) in [
        (other, "payload_sha256"),
        (good[..good.len() - 1].to_vec(), "shorter than payload_len"),
        ([&good[..], b"x"].concat(), "1 bytes behind the last frame"),
    ] {
        fs::write(&stream, bytes).unwrap();
        let (status, _, err) = conform(&[folder.path()], &[]);
        assert_eq!(status, OURS);
        assert!(err.contains("exec_basic.bin") && err.contains(word), "{err}");
    }
    fs::remove_file(&stream).unwrap();
    let (status, _, err) = conform(&[folder.path()], &[]);
    assert_eq!(status, OURS);
    assert!(err.contains("exec_basic.bin"), "{err}");
}

#[test]
fn the_testee_answers_line_by_line_and_never_dies() {
    let requests = "not json\n\n{\"id\":1,\"op\":\"text.length\",\"in\":{\"text\":\"\\ud83d\\ude00\"}}\n\
        {\"id\":2,\"op\":\"nothing.here\",\"in\":null}\n{\"id\":3,\"op\":\"text.trim\",\"in\":{}}";
    let output = feed(triwire().arg("testee"), requests.as_bytes());
    assert_eq!(output.status.code(), Some(0));
    let lines: Vec<Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [broken, length, unsupported, missing] = &lines[..] else { panic!("{lines:?}") };
    assert!(broken["id"].is_null() && broken["error"].is_string());
    assert_eq!(length["out"]["length"], 2);
    assert_eq!(unsupported.to_string(), r#"{"id":2,"unsupported":true}"#);
    assert_eq!(missing["id"], 3);
    assert!(missing["error"].as_str().unwrap().contains("in.text is missing"));
}
