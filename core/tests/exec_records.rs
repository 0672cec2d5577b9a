//! The two JSON records against the contract's tables, and against a second writer.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use triwire::OutTooSmall;
use triwire::exec::frame::MAX_PAYLOAD_SIZE;
use triwire::exec::request::{ExecRequest, MAX_ENV_VARIABLES, write_request};
use triwire::exec::result::{ExecResult, Usage};
use triwire::exec::session::{Output, OutputReader, OutputWriter};
use triwire::json::Text;

const USAGE: Usage = Usage {
    cpu_user_ms: 120,
    cpu_sys_ms: 31,
    peak_memory_bytes: 9_437_184,
    page_faults_major: 3,
    context_switches_involuntary: 17,
    io_read_bytes: 65_536,
    io_write_bytes: u64::MAX,
};

fn written(result: &ExecResult<'_>) -> String {
    let mut out = vec![0; 1 << 20];
    String::from_utf8(result.write(&mut out).unwrap().to_vec()).unwrap()
}

#[test]
fn a_result_is_compact_in_order_and_leaves_out_what_is_empty() {
    // rule: EXEC-13
    let mut result = ExecResult { duration_ms: 12, ..ExecResult::default() };
    assert_eq!(written(&result), r#"{"exit_code":0,"duration_ms":12}"#);
    result = ExecResult {
        exit_code: -1,
        duration_ms: 3,
        signal: "SIGKILL".into(),
        timed_out: true,
        oom_killed: true,
        error: "a \"quoted\"\nline \u{1}".into(),
        usage: Some(USAGE),
    };
    let text = written(&result);
    assert_eq!(
        text,
        r#"{"exit_code":-1,"duration_ms":3,"signal":"SIGKILL","timed_out":true,"oom_killed":true,"error":"a \"quoted\"\nline \u0001","usage":{"cpu_user_ms":120,"cpu_sys_ms":31,"peak_memory_bytes":9437184,"page_faults_major":3,"context_switches_involuntary":17,"io_read_bytes":65536,"io_write_bytes":18446744073709551615}}"#
    );
    assert_eq!(ExecResult::parse(text.as_bytes()).unwrap(), result);

    // A second writer through serde's derives agrees byte for byte.
    let mut out = [0; 1024];
    let len = serde_json_core::to_slice(&result, &mut out).unwrap();
    assert_eq!(core::str::from_utf8(&out[..len]).unwrap(), text);
    assert_eq!(serde_json::to_string(&result).unwrap(), text);
}

#[test]
fn every_room_too_small_is_named_exactly_and_changes_nothing() {
    let result = ExecResult { error: "lost".into(), usage: Some(USAGE), ..ExecResult::default() };
    let needed = written(&result).len();
    for room in 0..needed {
        assert_eq!(result.write(&mut vec![0; room]), Err(OutTooSmall { needed }));
    }
    let mut writer = OutputWriter::new();
    for room in 0..needed + 8 {
        let mut out = vec![0xee; room];
        let error = writer.exit(&result, &mut out).unwrap_err();
        assert!(error.to_string().contains(&format!("{} bytes", needed + 8)), "{error}");
        assert!(!writer.is_ended());
    }
    let mut out = vec![0; needed + 8];
    assert_eq!(writer.exit(&result, &mut out).unwrap().len(), needed + 8);
    assert!(writer.exit(&result, &mut out).is_err());
    assert!(writer.stdout(b"late").is_err());
}

#[test]
fn a_peers_result_is_read_leniently() {
    // rule: EXEC-14
    let result = ExecResult::parse(
        br#" { "usage" : null, "more": [{"exit_code": 9}], "duration_ms": 2e3, "exit_code": 1.0,
             "signal": "killed", "error": "\u003cb\u003e \u2028 \ud83d\ude00", "timed_out": null } "#,
    )
    .unwrap();
    assert_eq!((result.exit_code, result.duration_ms), (1, 2000));
    assert_eq!(result.error, "<b> \u{2028} \u{1f600}");
    assert_eq!(
        (result.signal.as_str(), result.timed_out, result.usage),
        (Some("killed"), false, None)
    );
    assert_eq!(ExecResult::parse(br#"{"exit_code":7}"#).unwrap().duration_ms, 0);
    let usage = ExecResult::parse(br#"{"exit_code":0,"usage":{"cpu_user_ms":5,"x":1}}"#).unwrap();
    assert_eq!(usage.usage, Some(Usage { cpu_user_ms: 5, ..Usage::default() }));
}

#[test]
fn an_exit_that_cannot_be_read_is_never_a_success() {
    // rule: EXEC-14
    for record in [
        "",
        "{}",
        "null",
        "[]",
        "0",
        r#"{"exit_code":null}"#,
        r#"{"exit_code":"0"}"#,
        r#"{"exit_code":0.5}"#,
        r#"{"exit_code":2147483648}"#,
        r#"{"exit_code":1e400}"#,
        r#"{"exit_code":0,"exit_code":0}"#,
        r#"{"exit_code":0,"exit_\u0063ode":0}"#,
        r#"{"exit_code":0,"duration_ms":-1}"#,
        r#"{"exit_code":0,"timed_out":1}"#,
        r#"{"exit_code":0}{}"#,
        r#"{"exit_code":0"#,
        "\u{feff}{\"exit_code\":0}",
    ] {
        let mut stream = triwire::exec::frame::head(triwire::exec::frame::Kind::Exit, record.len())
            .unwrap()
            .to_vec();
        stream.extend(record.as_bytes());
        let mut reader = OutputReader::new([0; 64]);
        let error = reader.feed(&mut &stream[..]).unwrap_err();
        assert_eq!((error.code(), error.at), ("exit_unreadable", 8), "{record}: {error}");
        assert_eq!(reader.finish(), Err(error));
        assert!(reader.result().is_none());
    }
}

#[test]
fn a_result_larger_than_a_frame_gets_its_error_cut_between_characters() {
    // rule: EXEC-15
    for filler in ["a", "\u{e9}", "\u{1f600}", "\u{1}", "\""] {
        for extra in 0..8 {
            let error = "x".repeat(extra) + &filler.repeat(70_000);
            let result = ExecResult {
                exit_code: -1,
                error: Text::plain(&error),
                usage: Some(USAGE),
                ..ExecResult::default()
            };
            let mut out = vec![0; MAX_PAYLOAD_SIZE + 8];
            let frame = OutputWriter::new().exit(&result, &mut out).unwrap().to_vec();
            assert!(frame.len() > MAX_PAYLOAD_SIZE + 8 - 8, "cut more than it had to");
            let mut reader = OutputReader::new(vec![0; MAX_PAYLOAD_SIZE]);
            assert!(matches!(reader.feed(&mut &frame[..]), Ok(Some(Output::Exit(_)))));
            let read = reader.result().unwrap();
            assert_eq!(read.usage, Some(USAGE));
            assert!(error.starts_with(&read.error.to_string()));
        }
    }
}

#[test]
fn a_clients_status_follows_the_result() {
    // rule: EXEC-46
    let of = |exit_code, timed_out, signal: &str, error: &str| {
        ExecResult {
            exit_code,
            timed_out,
            signal: Text::plain(signal),
            error: Text::plain(error),
            ..ExecResult::default()
        }
        .status()
    };
    assert_eq!(of(0, false, "", ""), 0);
    assert_eq!(of(255, false, "", ""), 255);
    assert_eq!(of(256, false, "", ""), 125);
    assert_eq!(of(-1, true, "SIGKILL", ""), 124);
    assert_eq!(of(-1, false, "SIGKILL", ""), 137);
    assert_eq!(of(-1, false, "terminated", ""), 143);
    assert_eq!(of(-1, false, "SIGNOPE", ""), 125);
    assert_eq!(of(-1, false, "", "start: \"nope\": executable file not found in $PATH"), 127);
    assert_eq!(of(-1, false, "", "fork/exec /x: No such file or directory"), 127);
    assert_eq!(of(-1, false, "", "/etc/passwd: Permission denied"), 126);
    assert_eq!(of(-1, false, "", "cwd /nope: no such directory"), 125);
    assert_eq!(of(-1, false, "", "guest lost"), 125);
}

#[test]
fn a_request_leaves_out_what_is_empty() {
    // rule: EXEC-16
    let mut out = [0; 256];
    let none: [(&str, &str); 0] = [];
    assert_eq!(write_request(&["true"], &none, "", 0, &mut out).unwrap(), br#"{"cmd":["true"]}"#);
    let body =
        write_request(&["a", "\u{1f600}"], &[("A", "=\t"), ("B", "")], "/x", 1, &mut out).unwrap();
    assert_eq!(
        core::str::from_utf8(body).unwrap(),
        "{\"cmd\":[\"a\",\"\u{1f600}\"],\"env\":{\"A\":\"=\\t\",\"B\":\"\"},\"cwd\":\"/x\",\"timeout_s\":1}"
    );
    let read = ExecRequest::parse(body).unwrap();
    assert!(read.env().eq([("A".into(), "=\t".into()), ("B".into(), "".into())]));
}

#[test]
fn a_request_is_read_strictly_and_the_member_is_named() {
    // rule: EXEC-17
    for (body, member) in [
        ("", "request"),
        ("[]", "request"),
        (r#"{"cmd":["a"]} x"#, "request"),
        (r#"{"cmd":["a"],"cmd":["a"]}"#, "cmd"),
        (r#"{"cmd":["a"],"\u0063md":["a"]}"#, "cmd"),
        ("{}", "cmd"),
        (r#"{"cmd":null}"#, "cmd"),
        (r#"{"cmd":"ls"}"#, "cmd"),
        (r#"{"cmd":[]}"#, "cmd"),
        (r#"{"cmd":[""]}"#, "cmd"),
        (r#"{"cmd":["a",1]}"#, "cmd"),
        (r#"{"cmd":["a\u0000"]}"#, "cmd"),
        (r#"{"cmd":["a","\ud800"]}"#, "cmd"),
        (r#"{"cmd":["a"],"env":[]}"#, "env"),
        (r#"{"cmd":["a"],"env":null}"#, "env"),
        (r#"{"cmd":["a"],"env":{"":"x"}}"#, "env"),
        (r#"{"cmd":["a"],"env":{"A=B":"x"}}"#, "env"),
        (r#"{"cmd":["a"],"env":{"A":1}}"#, "env"),
        (r#"{"cmd":["a"],"env":{"A":"\u0000"}}"#, "env"),
        (r#"{"cmd":["a"],"env":{"A\u0000":""}}"#, "env"),
        (r#"{"cmd":["a"],"env":{"A":"","\u0041":""}}"#, "env"),
        (r#"{"cmd":["a"],"cwd":1}"#, "cwd"),
        (r#"{"cmd":["a"],"cwd":"\u0000"}"#, "cwd"),
        (r#"{"cmd":["a"],"timeout_s":"1"}"#, "timeout_s"),
        (r#"{"cmd":["a"],"timeout_s":-1}"#, "timeout_s"),
        (r#"{"cmd":["a"],"timeout_s":0.5}"#, "timeout_s"),
        (r#"{"cmd":["a"],"timeout_s":31536001}"#, "timeout_s"),
        (r#"{"cmd":["a"],"timeout_s":1e400}"#, "timeout_s"),
    ] {
        let error = ExecRequest::parse(body.as_bytes()).unwrap_err();
        assert!(error.to_string().starts_with(&format!("{member}: ")), "{body}: {error}");
    }
    let request =
        ExecRequest::parse(br#" {"x":{"cmd":1},"timeout_s":31536e3,"cmd":["a\/b",""]} "#).unwrap();
    assert!(request.cmd().eq(["a/b", ""]));
    assert_eq!(request.timeout_s(), 31_536_000);
    assert!(request.cwd().is_empty() && request.env().next().is_none());
}

#[test]
fn variables_are_bounded_and_found_when_repeated() {
    // rule: EXEC-17, EXEC-62
    let body = |names: &[String]| {
        let members: Vec<String> = names.iter().map(|name| format!("\"{name}\":\"v\"")).collect();
        format!("{{\"cmd\":[\"a\"],\"env\":{{{}}}}}", members.join(","))
    };
    let mut names: Vec<String> = (0..MAX_ENV_VARIABLES).map(|n| format!("NAME_{n}")).collect();
    let parsed = body(&names);
    let request = ExecRequest::parse(parsed.as_bytes()).unwrap();
    assert_eq!(request.env().count(), MAX_ENV_VARIABLES);
    names.push("ONE_MORE".into());
    let error = ExecRequest::parse(body(&names).as_bytes()).unwrap_err();
    assert!(error.to_string().contains("1024"), "{error}");
    for repeated in [0, 1, 500, MAX_ENV_VARIABLES - 2] {
        let mut names = names[..MAX_ENV_VARIABLES - 1].to_vec();
        names.push(format!("NAME_{repeated}"));
        let error = ExecRequest::parse(body(&names).as_bytes()).unwrap_err();
        assert!(error.to_string().contains("twice"), "{error}");
    }
}
