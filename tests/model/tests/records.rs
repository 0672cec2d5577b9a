//! The two JSON records: serde_json as the second opinion, and what is written reads back.

use proptest::collection::vec;
use proptest::prelude::*;
use triwire::OutTooSmall;
use triwire::exec::request::write_request;
use triwire_model::records::{
    Request, expected_request, expected_result, read_request, read_result, whole,
};
use triwire_model::{check, json};

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-zA-Z0-9/=._ -]{0,8}",
        1 => any::<String>(),
        1 => "[\0-\u{1f}\"\\\\\u{7f}\u{2028}\u{fffd}\u{10ffff}]{0,4}",
    ]
}

/// A text as JSON, each character plain or as an escape; at times with half of a pair.
fn json_text(text: String, seed: u64, half: bool) -> String {
    let mut out = String::from("\"");
    for (at, c) in text.chars().enumerate() {
        let must = matches!(c, '"' | '\\' | '\0'..='\u{1f}');
        if must || (seed >> (at % 64)) & 1 == 1 {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&match seed & 2 {
                    0 => format!("\\u{unit:04x}"),
                    _ => format!("\\u{unit:04X}"),
                });
            }
        } else {
            out.push(c);
        }
    }
    if half {
        out.push_str("\\ud800");
    }
    out.push('"');
    out
}

fn string() -> impl Strategy<Value = String> {
    (text(), any::<u64>(), any::<u64>(), proptest::bool::weighted(0.03))
        .prop_map(|(text, seed, mask, half)| json_text(text, seed & mask, half))
}

fn number() -> impl Strategy<Value = String> {
    let list = [
        "0",
        "-0",
        "0.0",
        "-0e5",
        "1.0",
        "1e2",
        "10e-1",
        "1.5",
        "0.5e1",
        "-1",
        "1e400",
        "1e-400",
        "31536000",
        "31536001",
        "3.1536e7",
        "2147483647",
        "2147483648",
        "-2147483648",
        "18446744073709551615",
        "18446744073709551616",
        "1e0000000000",
        "0e99999999999",
        "01",
        "1.",
        "+1",
        ".5",
        "1e",
        "0x1",
        "NaN",
        "-",
    ];
    prop_oneof![
        3 => proptest::sample::select(list.to_vec()).prop_map(str::to_owned),
        1 => "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,5})?([eE][+-]?[0-9]{1,3})?",
        2 => any::<u16>().prop_map(|value| value.to_string()),
    ]
}

fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        3 => string(),
        3 => number(),
        2 => proptest::sample::select(vec!["null", "true", "false"]).prop_map(str::to_owned),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            vec((string(), inner), 0..4).prop_map(|members| object(&members)),
        ]
    })
}

fn object(members: &[(String, String)]) -> String {
    let members: Vec<_> =
        members.iter().map(|(name, value)| format!("{name} :\n{value}")).collect();
    format!("{{{}}}", members.join(", "))
}

/// One of the names, now and then escaped, or any other.
fn name(names: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop_oneof![
        8 => (proptest::sample::select(names), prop_oneof![4 => Just(0), 1 => any::<u64>()])
            .prop_map(|(name, seed)| json_text(name.to_owned(), seed, false)),
        1 => string(),
    ]
}

/// A message around an object: white space, a second value, a missing end, too deep.
fn around(object: impl Strategy<Value = String>) -> impl Strategy<Value = Vec<u8>> {
    let change = prop_oneof![12 => Just(0), 1 => 1..7];
    (object, change, any::<prop::sample::Index>()).prop_map(
        |(object, change, index)| match change {
            1 => format!("\u{feff}{object}").into_bytes(),
            2 => format!("{object} {object}").into_bytes(),
            3 => format!("[{object}]").into_bytes(),
            4 => object.as_bytes()[..index.index(object.len())].to_vec(),
            5 => format!("{}{object}", "[".repeat(70)).into_bytes(),
            6 => {
                let mut bytes = object.into_bytes();
                let at = index.index(bytes.len());
                bytes[at] ^= 0x80;
                bytes
            }
            _ => format!(" \t\r\n{object}\n").into_bytes(),
        },
    )
}

/// A member of a request that is mostly right.
fn request_member() -> impl Strategy<Value = (String, String)> {
    let list = vec(string(), 0..4).prop_map(|items| format!("[{}]", items.join(" , ")));
    let env = vec((string(), string()), 0..4).prop_map(|members| object(&members));
    prop_oneof![
        4 => list.prop_map(|value| ("\"cmd\"".to_owned(), value)),
        2 => env.prop_map(|value| ("\"env\"".to_owned(), value)),
        2 => string().prop_map(|value| ("\"cwd\"".to_owned(), value)),
        2 => number().prop_map(|value| ("\"timeout_s\"".to_owned(), value)),
        1 => (name(&["cmd", "env", "cwd", "timeout_s", "Cmd"]), value()),
    ]
}

fn result_member() -> impl Strategy<Value = (String, String)> {
    const NAMES: &[&str] =
        &["exit_code", "duration_ms", "signal", "timed_out", "oom_killed", "error", "usage"];
    const USAGE: &[&str] =
        &["cpu_user_ms", "peak_memory_bytes", "io_read_bytes", "io_write_bytes", "new"];
    let usage = vec(
        (name(USAGE), prop_oneof![4 => number(), 1 => Just("null".to_owned()), 1 => value()]),
        0..4,
    );
    prop_oneof![
        4 => number().prop_map(|value| ("\"exit_code\"".to_owned(), value)),
        1 => number().prop_map(|value| ("\"duration_ms\"".to_owned(), value)),
        1 => string().prop_map(|value| ("\"error\"".to_owned(), value)),
        1 => usage.prop_map(|members| ("\"usage\"".to_owned(), object(&members))),
        1 => (name(NAMES), Just("null".to_owned())),
        1 => (name(NAMES), value()),
    ]
}

fn request() -> impl Strategy<Value = String> {
    vec(request_member(), 0..5).prop_map(|members| object(&members))
}

fn result() -> impl Strategy<Value = String> {
    vec(result_member(), 0..6).prop_map(|members| object(&members))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 4))]

    /// A request is taken when serde_json and the contract's own rules take it.
    // rule: EXEC-17
    #[test]
    fn requests_agree(body in around(request())) {
        check::exec_request(&body);
    }

    /// A result is taken when serde_json and the contract's own rules take it.
    // rule: EXEC-14
    #[test]
    fn results_agree(record in around(result())) {
        check::exec_result(&record);
    }

    /// Any JSON, and what is nearly JSON.
    #[test]
    fn json_agrees(message in around(value())) {
        json::check(&message);
    }

    /// A request of any text comes back as it was.
    // rule: EXEC-16
    #[test]
    fn requests_come_back(
        cmd in vec("[^\0]{0,9}", 0..4),
        program in "[^\0]{1,9}",
        env in proptest::collection::btree_map("[^\0=]{1,6}", "[^\0]{0,9}", 0..5),
        cwd in "[^\0]{0,9}",
        timeout_s in 0_u32..=31_536_000,
    ) {
        let cmd = [vec![program], cmd].concat();
        let env: Vec<_> = env.into_iter().collect();
        let Err(OutTooSmall { needed }) = write_request(&cmd, &env, &cwd, timeout_s, &mut [])
        else { panic!("a request needs room") };
        let mut out = vec![0; needed];
        prop_assert_eq!(
            write_request(&cmd, &env, &cwd, timeout_s, &mut out[1..]).map(<[u8]>::len),
            Err(OutTooSmall { needed }),
        );
        let body = write_request(&cmd, &env, &cwd, timeout_s, &mut out).unwrap();
        prop_assert_eq!(body.len(), needed);
        let theirs: serde_json::Value = serde_json::from_slice(body).unwrap();
        prop_assert_eq!(&theirs["cmd"], &serde_json::to_value(&cmd).unwrap());
        prop_assert_eq!(read_request(body), Some(Request { cmd, env, cwd, timeout_s }));
    }
}

/// The wanted differences from serde_json, one by one, so that none is lost.
#[test]
fn wanted_differences() {
    for (body, is_good) in [
        (r#"{"cmd":["a"],"timeout_s":1.0}"#, true),
        (r#"{"cmd":["a"],"timeout_s":1e2}"#, true),
        (r#"{"cmd":["a"],"timeout_s":-0}"#, true),
        (r#"{"cmd":["a"],"timeout_s":31536001}"#, false),
        (r#"{"cmd":["a"],"timeout_s":null}"#, false),
        (r#"{"cmd":["a"],"env":{"A":"1","A":"2"}}"#, false),
        (r#"{"cmd":["a"],"env":{"A":"1","\u0041":"2"}}"#, false),
        (r#"{"cmd":["a"],"more":"\ud800"}"#, true),
        (r#"{"cmd":["\ud800"]}"#, false),
        (r#"{"cmd":["a\u0000"]}"#, false),
        (r#"[["a"],{},"",0]"#, false),
    ] {
        assert_eq!(read_request(body.as_bytes()).is_some(), is_good, "{body}");
        check::exec_request(body.as_bytes());
    }
    for (record, is_good) in [
        (r#"{"exit_code":1.0}"#, true),
        (r#"{"exit_code":10e-1,"signal":null,"usage":null}"#, true),
        (r#"{"exit_code":null}"#, false),
        (r#"{"exit_code":1,"error":null,"error":"twice"}"#, false),
        (r#"{"exit_code":1,"error":"\ud800"}"#, true),
        (r#"{"exit_code":1,"usage":[]}"#, false),
        (r#"[1,2]"#, false),
    ] {
        assert_eq!(read_result(record.as_bytes()).is_some(), is_good, "{record}");
        check::exec_result(record.as_bytes());
    }
    for open in [62, 63, 64] {
        let body = format!(r#"{{"cmd":["a"],"more":{}{}}}"#, "[".repeat(open), "]".repeat(open));
        assert_eq!(read_request(body.as_bytes()).is_some(), open < 64, "{open} more");
        check::exec_request(body.as_bytes());
    }
    let long_hand = ["1.0", "100e-2", "0.01e2", "1e0", "1"];
    assert!(long_hand.iter().all(|number| whole(number) == Some(1)));
    assert!(
        expected_request(b"{}").unwrap().is_none() && expected_result(b"{}").unwrap().is_none()
    );
}
