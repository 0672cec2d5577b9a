//! `triwire sign` and `triwire verify`: what one writes the other accepts, and what differs is
//! named.

mod support;

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use serde_json::Value;
use support::{OURS, feed, stderr, stdout, triwire};
use tempfile::TempDir;

const SECRET: &str = "a secret of at least 32 bytes, kept apart";
const URL: &str = "https://shop.example/assistant/tools?b=2&a=1";
const BODY: &str = "{\"query\": \"base \u{17c}\", \"id\": 7}";
const NOW: &str = "1800000000";

struct Files {
    folder: TempDir,
}

impl Files {
    fn new() -> Self {
        let files = Self { folder: tempfile::tempdir().unwrap() };
        files.write("key", &format!("{SECRET}\n"));
        files.write("body", BODY);
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    fn run(&self, command: &str, arguments: &[&str], url: &str) -> Output {
        let mut tool = triwire();
        tool.arg(command).arg("--key-file").arg(self.path("key"));
        tool.args(arguments).arg(url).arg(self.path("body")).output().unwrap()
    }

    fn sign(&self) -> String {
        let output =
            self.run("sign", &["--key-id", "shop.1", "--time", NOW, "--nonce", "n-1"], URL);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output).trim_end().to_owned()
    }

    /// Verifies with an explanation; the exit code and what was said.
    fn verify(&self, header: &str, arguments: &[&str], url: &str) -> (Option<i32>, Value) {
        let arguments =
            [&["--header", header, "--explain", "--json", "--now", NOW], arguments].concat();
        let output = self.run("verify", &arguments, url);
        let record = serde_json::from_str(&stdout(&output)).unwrap_or_default();
        (output.status.code(), record)
    }
}

#[test]
fn what_is_signed_is_accepted() {
    let files = Files::new();
    let header = files.sign();
    assert!(header.starts_with("v1 k=shop.1,t=1800000000,n=n-1,s="), "{header}");
    let (status, said) = files.verify(&header, &["--key-id", "shop.1"], URL);
    assert_eq!((status, said["outcome"].as_str()), (Some(0), Some("ok")));
    assert_eq!(said["key_id"], "shop.1");
    assert_eq!(said["expires_at"], 1_800_000_300_000_u64);
    // As it stands in a log.
    let named = format!("Assistant-Signature: {header}");
    assert_eq!(files.verify(&named, &[], URL).0, Some(0));
    let text = files.run("verify", &["--header", &header, "--now", NOW], URL);
    assert!(stdout(&text).starts_with("ok: signed by shop.1;"));
}

#[test]
fn the_lines_are_shown_as_they_are_signed() {
    let files = Files::new();
    let arguments = ["--key-id", "shop.1", "--time", NOW, "--nonce", "n-1", "--explain"];
    let output = files.run("sign", &[&arguments[..], &["--json"]].concat(), URL);
    let record: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let hash = "8dabbf0e633e242ae4ac6136de44490a2bd9af26df550e77c40c738641b17c21";
    let lines = serde_json::json!([
        "assistant-signature-v1",
        "shop.1",
        NOW,
        "n-1",
        "POST",
        "shop.example",
        "/assistant/tools?b=2&a=1",
        hash
    ]);
    assert_eq!(record["lines"], lines);
    assert_eq!(files.verify(&files.sign(), &[], URL).1["lines"], lines);
    let people = stdout(&files.run("sign", &arguments, URL));
    assert!(people.contains("7  /assistant/tools?b=2&a=1\n"));
    assert!(people.contains("\nassistant-signature: v1 k=shop.1,"));
}

#[test]
fn the_line_that_differs_is_named() {
    let files = Files::new();
    let header = files.sign();
    let urls = [
        ("https://shop.example:8443/assistant/tools?b=2&a=1", "line 6", "port"),
        ("https://www.shop.example/assistant/tools?b=2&a=1", "line 6", "another host"),
        ("https://shop.example/assistant/tools?a=1&b=2", "line 7", "order"),
        ("https://shop.example/ASSISTANT/tools?b=2&a=1", "line 7", "case"),
        ("https://shop.example/elsewhere", "", "no common mistake"),
        ("https://shop.example/api/assistant/tools?b=2&a=1", "line 7", "prefix"),
        ("https://shop.example/assistant/tools/?b=2&a=1", "line 7", "slash"),
    ];
    for (url, line, cause) in urls {
        let (status, said) = files.verify(&header, &[], url);
        assert_eq!((status, said["outcome"].as_str()), (Some(1), Some("wrong_signature")), "{url}");
        let why = said["why"].to_string();
        assert!(why.contains(line) && why.contains(cause), "{url}: {why}");
    }
    let bodies = [
        ("{\"query\":\"base \u{17c}\",\"id\":7}", "written anew"),
        ("{\"query\": \"base \\u017c\", \"id\": 7}", "written anew"),
        (&format!("{BODY}\n"), "white space"),
        (&format!("\u{feff}{BODY}"), "byte order mark"),
    ];
    for (body, cause) in bodies {
        files.write("body", body);
        let why = files.verify(&header, &[], URL).1["why"].to_string();
        assert!(why.contains("line 8") && why.contains(cause), "{body}: {why}");
    }
    files.write("body", BODY);
    let why = files.verify(&header, &["-X", "put"], URL).1["why"].to_string();
    assert!(why.contains("line 5") && why.contains("`POST`"), "{why}");
    // Two at once.
    let url = "https://shop.example:8443/assistant/tools?a=1&b=2";
    let why = files.verify(&header, &[], url).1["why"].clone();
    assert_eq!(why.as_array().map(Vec::len), Some(2), "{why}");
}

#[test]
fn clock_key_and_grammar_are_told_apart() {
    let files = Files::new();
    let header = files.sign();
    let outcome = |arguments: &[&str], header: &str| {
        let all = [&["--header", header, "--explain"], arguments].concat();
        stdout(&files.run("verify", &all, URL))
    };
    let late = outcome(&["--now", "1800000301"], &header);
    assert!(late.contains("outside_window") && late.contains("301 s behind"), "{late}");
    let early = outcome(&["--now", "1799999699"], &header);
    assert!(early.contains("outside_window") && early.contains("301 s ahead"), "{early}");
    assert!(early.contains("at most 300 s"), "{early}");
    let millis = outcome(&["--now", "1800000000000"], &header);
    assert!(millis.contains("--now is in seconds"), "{millis}");
    let edge = outcome(&["--now", "1800000300"], &header);
    assert!(edge.contains("ok: "), "{edge}");
    let other = outcome(&["--now", NOW, "--key-id", "shop.2"], &header);
    assert!(other.contains("unknown_key") && other.contains("shop.1"), "{other}");
    let version = outcome(&["--now", NOW], &header.replacen("v1", "v2", 1));
    assert!(version.contains("unsupported_version"), "{version}");
    let grammar = outcome(&["--now", NOW], "v1 k=shop.1");
    assert!(grammar.contains("malformed_signature"), "{grammar}");
    files.write("key", &format!("{}{SECRET}", "x".repeat(32)));
    let strange = outcome(&["--now", NOW], &header);
    assert!(strange.contains("both have the same secret"), "{strange}");
    // Without an explanation it says where one is, and what costs no line.
    let brief = |now: &str| stdout(&files.run("verify", &["--header", &header, "--now", now], URL));
    assert!(
        brief(NOW).contains("--explain") && !brief(NOW).contains("both have"),
        "{}",
        brief(NOW)
    );
    assert!(brief("1800000301").contains("301 s behind this clock"));
    files.write("key", SECRET);
    files.write("body", "");
    let forgotten = outcome(&["--now", NOW], &header);
    assert!(forgotten.contains("no body was given"), "{forgotten}");
}

#[test]
fn secrets_come_from_files_variables_and_standard_input() {
    let files = Files::new();
    let header = files.sign();
    let arguments = ["--key-id", "shop.1", "--time", NOW, "--nonce", "n-1", URL];
    let body = files.path("body");
    let mut tool = triwire();
    let output = tool.env("TRIWIRE_SIGNING_KEY", SECRET).arg("sign").args(arguments).arg(&body);
    assert_eq!(stdout(&output.output().unwrap()).trim_end(), header);
    let mut tool = triwire();
    let tool = tool.args(["sign", "--key-file", "-"]).args(arguments).arg(&body);
    assert_eq!(stdout(&feed(tool, SECRET.as_bytes())).trim_end(), header);

    let refused = |output: &Output, word: &str| {
        assert_eq!(output.status.code(), OURS);
        assert!(stderr(output).contains(word), "{}", stderr(output));
        assert!(!stderr(output).contains(SECRET));
    };
    refused(&triwire().arg("sign").args(arguments).output().unwrap(), "--key-file");
    files.write("key", "too short");
    refused(&files.run("sign", &["--key-id", "a"], URL), "at least 32 bytes");
    files.write("key", SECRET);
    refused(&files.run("sign", &["--key-id", "a:b"], URL), "key id");
    refused(&files.run("sign", &[], URL), "--key-id");
    refused(&files.run("sign", &["--key-id", "a"], "/tools"), "absolute URL");
    refused(&files.run("sign", &["--key-id", "a"], "https://me@shop.example/"), "user info");
    refused(&files.run("sign", &["--key-id", "a", "--nonce", "a b"], URL), "nonce");
    let mut tool = triwire();
    let both = tool.args(["sign", "--key-id", "a", "--key-file", "-", URL, "-"]);
    refused(&feed(both, b""), "standard input");

    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(files.path("key"), fs::Permissions::from_mode(0o644)).unwrap();
    let open = files.run("sign", &["--key-id", "shop.1"], URL);
    assert_eq!(open.status.code(), Some(0));
    assert!(stderr(&open).contains("chmod 600"));
}
