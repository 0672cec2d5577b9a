//! `GET /metrics` of the built tool, as a scraper asks for it.

mod support;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use support::{Gateway, TRANSPORTS, triwire};

const KEY: &str = "0123456789abcdef";

/// Answers a GET: its head and its body.
fn get(gateway: &Gateway, path: &str, key: Option<&str>) -> (String, String) {
    let mut stream = TcpStream::connect(&gateway.address).unwrap();
    let host = &gateway.address;
    let key = key.map(|key| format!("Authorization: Bearer {key}\r\n")).unwrap_or_default();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\n{key}Connection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

fn with(config: &str) -> (Gateway, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("keys"), KEY).unwrap();
    let path = folder.path().join("triwire.toml");
    let base = "listen = \"127.0.0.1:0\"\nkey_file = \"keys\"\n";
    fs::write(&path, format!("{base}{config}\n[sandboxes.local]\nroot = \".\"\n")).unwrap();
    (Gateway::of(triwire().args(["serve", "--config"]).arg(&path)), folder)
}

// rule: EXEC-76
#[test]
fn what_ran_is_counted_and_not_shown() {
    let (gateway, folder) = with("");
    for transport in TRANSPORTS {
        let keys = folder.path().join("keys");
        let mut command =
            gateway.exec(&["--transport", transport, "--key-file", keys.to_str().unwrap()]);
        let output = command.args(["local", "--", "echo", "private words"]).output().unwrap();
        assert!(output.status.success());
    }
    assert!(get(&gateway, "/sandboxes/private/exec", Some(KEY)).0.starts_with("HTTP/1.1 404 "));
    let (head, text) = get(&gateway, "/metrics", Some(KEY));
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    for transport in ["one-shot", "hijack", "websocket"] {
        for line in [
            format!("triwire_sessions_total{{sandbox=\"local\",transport=\"{transport}\"}} 1"),
            format!(
                "triwire_frame_payload_bytes_total{{sandbox=\"local\",transport=\"{transport}\",\
                 direction=\"out\",kind=\"stdout\"}} 14"
            ),
        ] {
            assert!(text.lines().any(|own| own == line), "{line}\n{text}");
        }
    }
    assert!(text.contains("triwire_refusals_total{status=\"404\",code=\"not_found\"} 1"), "{text}");
    assert!(!text.contains("private") && !text.contains(KEY), "{text}");
}

// rule: EXEC-75
#[test]
fn the_config_says_who_may_read_it() {
    for (config, keyless, keyed) in [
        ("", 401, 200),
        ("metrics = \"keyed\"", 401, 200),
        ("metrics = \"open\"", 200, 200),
        ("metrics = \"off\"", 401, 404),
    ] {
        let (gateway, _folder) = with(config);
        for (key, status) in [(None, keyless), (Some(KEY), keyed)] {
            let (head, _) = get(&gateway, "/metrics", key);
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{config} {key:?}: {head}");
        }
    }
}

// rule: CHAN-98
#[test]
fn calls_are_counted_by_how_they_ended() {
    let (gateway, _folder) = with("[channel]\nextensions_dir = \"ext\"\n");
    let body = r#"{"tool":"private","descriptorId":"private","boundsEcho":{}}"#;
    let machine = body.replacen('{', r#"{"executor":"private","#, 1);
    for body in [body, &machine, &machine] {
        let mut stream = TcpStream::connect(&gateway.address).unwrap();
        write!(
            stream,
            "POST /channel/calls HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {KEY}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n\
             {body}",
            gateway.address,
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    let (_, text) = get(&gateway, "/metrics", Some(KEY));
    for line in [
        "triwire_chairs_taken{executor=\"page\"} 0",
        "triwire_calls_in_flight{executor=\"machine\"} 0",
        "triwire_calls_total{executor=\"page\",end=\"not_connected\"} 1",
        "triwire_calls_total{executor=\"machine\",end=\"not_connected\"} 2",
        "triwire_calls_total{executor=\"machine\",end=\"observed\"} 0",
    ] {
        assert!(text.lines().any(|own| own == line), "{line}\n{text}");
    }
    assert!(!text.contains("private"), "{text}");

    let (gateway, _folder) = with("");
    let (_, text) = get(&gateway, "/metrics", Some(KEY));
    assert!(!text.contains("triwire_calls"), "{text}");
}
