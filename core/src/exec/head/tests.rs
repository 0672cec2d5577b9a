//! Heads and admission, through the public functions.

#![allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

extern crate std;

use std::format;
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::exec::request::MAX_REQUEST_BODY;

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const HOST: (&str, &str) = ("Host", "localhost:7878");
const AUTH: (&str, &str) = ("Authorization", "Bearer secret");

fn judge(
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    access: Access<'_>,
) -> Result<String, Refusal> {
    let peer: Peer<'_> = Peer { port: 7878, loopback: true, hosts: &[], access };
    let headers = headers.iter().map(|(name, value)| Header { name, value: value.as_bytes() });
    admit(method, target, headers, &peer, |id| id == "local").map(|route| format!("{route:?}"))
}

/// Judges with one key admitted, and with good `Host` and key in front of `headers`.
fn ask(method: &str, target: &str, headers: &[(&str, &str)]) -> Result<String, Refusal> {
    let keys = [KeyDigest::of(b"other"), KeyDigest::of(b"secret")];
    judge(method, target, &[&[HOST, AUTH], headers].concat(), Access::Keys(&keys))
}

fn upgrade_with(changed: &[(&str, &str)]) -> Result<String, Refusal> {
    let mut headers = vec![
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", KEY),
    ];
    headers.retain(|(name, _)| !changed.iter().any(|(other, _)| name == other));
    headers.extend(changed.iter().filter(|(_, value)| *value != "absent"));
    ask("GET", "/sandboxes/local/exec", &headers)
}

#[test]
fn routes() {
    // rule: EXEC-21, EXEC-53
    let one_shot = "OneShot { sandbox: \"local\" }";
    let hijack = "Hijack { sandbox: \"local\" }";
    for (query, route) in [
        ("", one_shot),
        ("?", one_shot),
        ("?stdin=1", hijack),
        ("?x=y&stdin=1", hijack),
        ("?stdin=1&stdin=0", hijack),
        ("?stdin=0&stdin=1", one_shot),
        ("?stdin=true", one_shot),
        ("?stdin=11", one_shot),
        ("?stdin=%31", one_shot),
        ("?Stdin=1", one_shot),
        ("?stdin", one_shot),
    ] {
        let target = format!("/sandboxes/local/exec{query}");
        assert_eq!(ask("POST", &target, &[]).as_deref(), Ok(route), "{query}");
    }
    let url = "http://localhost:7878/sandboxes/local/exec";
    assert_eq!(ask("POST", url, &[]).as_deref(), Ok(one_shot));
    assert_eq!(
        upgrade_with(&[]).unwrap(),
        format!("Socket {{ sandbox: \"local\", key: \"{KEY}\" }}")
    );
    // Health needs neither. rule: EXEC-60
    assert_eq!(judge("GET", "/healthz", &[], Access::Keys(&[])).as_deref(), Ok("Health"));
}

/// Method, target, headers, and the status and reason of the refusal.
type Refused<'c> = (&'c str, &'c str, &'c [(&'c str, &'c str)], u16, Why);

#[test]
fn every_refusal_has_its_status() {
    // rule: EXEC-36
    let path = "/sandboxes/local/exec";
    let long = "a".repeat(65);
    let cases: &[Refused<'_>] = &[
        ("POST", "sandboxes", &[], 400, Why::Target),
        ("OPTIONS", "*", &[], 400, Why::Target),
        // rule: EXEC-55
        ("POST", "http://evil.example/sandboxes/local/exec", &[], 400, Why::Target),
        ("POST", path, &[HOST], 400, Why::Repeated("Host")),
        ("POST", path, &[AUTH], 400, Why::Repeated("Authorization")),
        (
            "POST",
            path,
            &[("Origin", "http://localhost:7878"), ("origin", "http://localhost:7878")],
            400,
            Why::Repeated("Origin"),
        ),
        // rule: EXEC-33
        ("POST", path, &[("Origin", "http://evil.example")], 403, Why::OriginRefused),
        ("POST", path, &[("Origin", "null")], 403, Why::OriginRefused),
        ("POST", path, &[("Origin", "http://localhost:7879")], 403, Why::OriginRefused),
        // rule: EXEC-34
        ("POST", "/sandboxes//exec", &[], 400, Why::SandboxId),
        ("POST", "/sandboxes/a%62/exec", &[], 400, Why::SandboxId),
        ("POST", "/sandboxes/a.b/exec", &[], 400, Why::SandboxId),
        ("POST", &format!("/sandboxes/{long}/exec"), &[], 400, Why::SandboxId),
        ("POST", "/sandboxes/other/exec", &[], 404, Why::UnknownSandbox),
        ("GET", "/sandboxes/other/exec", &[], 404, Why::UnknownSandbox),
        // rule: EXEC-56
        ("POST", "/", &[], 404, Why::UnknownRoute),
        ("POST", "/sandboxes/local/exec/", &[], 404, Why::UnknownRoute),
        ("POST", "/sandboxes/local/other", &[], 404, Why::UnknownRoute),
        ("POST", "/Sandboxes/local/exec", &[], 404, Why::UnknownRoute),
        ("PUT", path, &[], 405, Why::Method { allow: Allow::GetPost }),
        ("HEAD", path, &[], 405, Why::Method { allow: Allow::GetPost }),
        ("post", path, &[], 405, Why::Method { allow: Allow::GetPost }),
        ("POST", "/healthz", &[], 405, Why::Method { allow: Allow::Get }),
        ("POST", path, &[("Content-Type", "text/plain")], 415, Why::ContentType),
        ("POST", path, &[("Content-Type", "application/jsonx")], 415, Why::ContentType),
        // rule: EXEC-18
        ("POST", path, &[("Content-Length", "1048577")], 413, Why::TooLarge { limit: 1 << 20 }),
        (
            "POST",
            path,
            &[("Content-Length", "99999999999999999999999")],
            413,
            Why::TooLarge { limit: 1 << 20 },
        ),
        ("POST", path, &[("Content-Length", "+5")], 400, Why::Length),
        ("POST", path, &[("Content-Length", "")], 400, Why::Length),
        ("GET", path, &[], 426, Why::UpgradeMissing),
    ];
    for (method, target, headers, status, why) in cases {
        let refusal = ask(method, target, headers).unwrap_err();
        assert_eq!((refusal.status, refusal.why), (*status, *why), "{method} {target}");
    }
    // rule: EXEC-57
    for content_type in ["application/json", "Application/JSON ; charset=utf-8", ""] {
        assert!(ask("POST", path, &[("content-type", content_type)]).is_ok(), "{content_type}");
    }
    let limit = MAX_REQUEST_BODY.to_string();
    assert!(ask("POST", path, &[("Content-Length", &limit)]).is_ok());
    assert!(ask("POST", path, &[("Origin", "https://localhost:7878")]).is_ok());
}

#[test]
fn keys() {
    // rule: EXEC-32
    let keys = [KeyDigest::of(b"first"), KeyDigest::of(b"secret")];
    let try_with = |headers: &[(&str, &str)], access| {
        judge("POST", "/sandboxes/local/exec", &[&[HOST], headers].concat(), access)
    };
    for good in ["Bearer secret", "bearer first", "BEARER secret"] {
        assert!(try_with(&[("authorization", good)], Access::Keys(&keys)).is_ok(), "{good}");
    }
    for bad in [
        "Bearer secre",
        "Bearer secrets",
        "Bearer xecret",
        "Bearer secrex",
        "Bearer  secret",
        "Bearer",
        "Bearer ",
        "Bearersecret",
        "Basic secret",
        "secret",
        "",
    ] {
        let refusal = try_with(&[("Authorization", bad)], Access::Keys(&keys)).unwrap_err();
        assert_eq!(refusal.status, 401, "{bad}");
        assert_eq!(refusal.headers(), [("WWW-Authenticate", "Bearer")]);
    }
    assert_eq!(try_with(&[], Access::Keys(&keys)).unwrap_err().why, Why::KeyMissing);
    assert_eq!(try_with(&[AUTH], Access::Keys(&[])).unwrap_err().why, Why::KeyWrong);
    let empty = "Authorization";
    assert_eq!(try_with(&[(empty, "Bearer ")], Access::Keys(&[])).unwrap_err().status, 401);
    assert!(try_with(&[], Access::Open).is_ok());
    assert!(!format!("{:?}", KeyDigest::of(b"secret")).contains(char::is_numeric));
}

#[test]
fn a_page_beside_the_routes_is_gated_as_they_are() {
    // rule: EXEC-75
    let keys = [KeyDigest::of(b"secret")];
    let page = |method, target, headers: &[(&str, &str)], access| {
        let peer: Peer<'_> = Peer { port: 7878, loopback: true, hosts: &[], access };
        let headers = headers.iter().map(|(name, value)| Header { name, value: value.as_bytes() });
        admit_page("/metrics", method, target, headers, &peer)
            .map(|judged| judged.map_err(|refusal| refusal.status))
    };
    let keyed = |method, target, headers| page(method, target, headers, Access::Keys(&keys));
    let cross = ("Origin", "http://evil.example");
    for (method, target, headers, expected) in [
        ("GET", "/metrics", &[HOST, AUTH][..], Some(Ok(()))),
        ("GET", "/metrics?x=1", &[HOST, AUTH], Some(Ok(()))),
        ("GET", "http://localhost:7878/metrics", &[HOST, AUTH], Some(Ok(()))),
        ("GET", "/metrics", &[AUTH], Some(Err(400))),
        ("GET", "/metrics", &[("Host", "evil.example"), AUTH], Some(Err(403))),
        ("GET", "/metrics", &[HOST], Some(Err(401))),
        ("GET", "/metrics", &[HOST, AUTH, cross], Some(Err(403))),
        ("POST", "/metrics", &[HOST, AUTH], Some(Err(405))),
        ("POST", "/metrics", &[HOST], Some(Err(401))),
        ("GET", "/metrics/", &[HOST, AUTH], None),
        ("GET", "/metricsx", &[HOST, AUTH], None),
        ("GET", "metrics", &[HOST, AUTH], None),
        ("GET", "/sandboxes/local/exec", &[HOST, AUTH], None),
    ] {
        assert_eq!(keyed(method, target, headers), expected, "{method} {target} {headers:?}");
    }
    assert_eq!(page("GET", "/metrics", &[HOST], Access::Open), Some(Ok(())));
    assert_eq!(page("GET", "/metrics", &[HOST, cross], Access::Open), Some(Err(403)));
    // Who has no such page knows no such route.
    assert_eq!(ask("GET", "/metrics", &[]).unwrap_err().status, 404);
}

#[test]
fn the_order_of_checks() {
    // rule: EXEC-33
    let path = "/sandboxes/a.b/exec";
    let evil = ("Origin", "http://evil.example");
    let bad_host = ("Host", "evil.example");
    let keys = [KeyDigest::of(b"secret")];
    let status = |headers: &[(&str, &str)]| {
        judge("PUT", path, headers, Access::Keys(&keys)).unwrap_err().why
    };
    assert_eq!(status(&[evil]), Why::HostMissing);
    assert_eq!(status(&[("Host", ""), evil]), Why::HostMissing);
    assert_eq!(status(&[("Host", "a b"), evil]), Why::HostMissing);
    assert_eq!(status(&[bad_host, evil]), Why::HostRefused);
    assert_eq!(status(&[HOST, evil]), Why::KeyMissing);
    assert_eq!(status(&[HOST, AUTH, evil]), Why::OriginRefused);
    assert_eq!(status(&[HOST, AUTH]), Why::SandboxId);
}

#[test]
fn upgrades() {
    // rule: EXEC-23
    for good in [
        &[("Connection", "keep-alive, Upgrade")][..],
        &[("Connection", "upgrade")],
        &[("Connection", "keep-alive"), ("Connection", ",,UPGRADE ,")],
        &[("Upgrade", "WebSocket")],
        &[("Upgrade", "h2c, websocket")],
    ] {
        assert!(upgrade_with(good).is_ok(), "{good:?}");
    }
    for plain in [
        ("Connection", "absent"),
        ("Connection", "keep-alive"),
        ("Connection", "upgraded"),
        ("Upgrade", "absent"),
        ("Upgrade", "websockets"),
    ] {
        assert_eq!(upgrade_with(&[plain]).unwrap_err().why, Why::UpgradeMissing, "{plain:?}");
    }
    for version in ["absent", "8", "", "013", "13, 8"] {
        let refusal = upgrade_with(&[("Sec-WebSocket-Version", version)]).unwrap_err();
        assert_eq!(refusal.status, 426, "{version}");
        assert!(refusal.headers().contains(&("Sec-WebSocket-Version", "13")));
        assert!(refusal.headers().contains(&("Upgrade", "websocket")));
        assert!(refusal.headers().contains(&("Connection", "Upgrade")));
    }
    for key in [
        "absent",
        "",
        "!!!!!!!!!!!!!!!!!!!!!!!!",
        "dGhlIHNhbXBsZSBub25jZQ",
        "dGhlIHNhbXBsZSBub25j",
        "dGhlIHNhbXBsZSBub25jZWU=",
        "dGhlIHNhbXBsZSBub25jZQ==AAAA",
    ] {
        let refusal = upgrade_with(&[("Sec-WebSocket-Key", key)]).unwrap_err();
        assert_eq!(refusal.why, Why::SocketKey, "{key}");
        assert_eq!(refusal.status, 400);
    }
    let twice = upgrade_with(&[("Sec-WebSocket-Key", KEY), ("sec-websocket-key", KEY)]);
    assert_eq!(twice.unwrap_err().status, 400);
}

#[test]
fn refusals_on_the_wire() {
    // rule: EXEC-35
    let text = |refusal: Refusal| {
        let mut out = [0; 1024];
        String::from_utf8(refusal.write(refusal.why, &mut out).unwrap().to_vec()).unwrap()
    };
    let wire = text(Why::HostRefused.into());
    let (head, body) = wire.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\n"));
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())));
    assert!(body.starts_with("{\"error\":\"") && body.ends_with(",\"code\":\"host-refused\"}\n"));
    let wire = text(Why::KeyMissing.into());
    assert!(wire.contains("\r\nWWW-Authenticate: Bearer\r\n"));
    assert!(!wire.contains("\"code\""));
    assert!(text(Why::Method { allow: Allow::Get }.into()).contains("\r\nAllow: GET\r\n"));
    assert!(
        text(Why::Method { allow: Allow::GetPost }.into()).contains("\r\nAllow: GET, POST\r\n")
    );

    // rule: EXEC-36
    let statuses = [
        (Refusal::unknown_sandbox(), 404, "not_found"),
        (Refusal::too_large(5), 413, ""),
        (Refusal::head_too_large(), 431, ""),
        (Refusal::internal(), 500, ""),
        (Refusal::hijack_unavailable(), 501, "hijack_unavailable"),
        (Refusal::unreachable(), 502, ""),
    ];
    for (refusal, status, code) in statuses {
        assert_eq!((refusal.status, refusal.code), (status, code));
        let wire = text(refusal);
        let head = response(wire.as_bytes(), false).unwrap().unwrap();
        assert_eq!(head.status, status);
        let body = &wire.as_bytes()[head.len..];
        assert_eq!(head.framing(), Ok(Framing::Length(body.len() as u64)));
        let record = ErrorRecord::parse(body).unwrap();
        assert_eq!(record.error, refusal.to_string().as_str());
        assert_eq!(record.code, code);
    }

    let mut out = [0; 16];
    let small = Refusal::internal().write("x", &mut out).unwrap_err();
    let mut out = vec![0; small.needed];
    assert_eq!(Refusal::internal().write("x", &mut out).unwrap().len(), small.needed);
}

#[test]
fn request_heads_are_written_exactly() {
    // rule: EXEC-38
    let mut out = [0; 512];
    let mut head = RequestHead {
        mode: Mode::OneShot,
        sandbox: "local",
        host: "localhost:7878",
        bearer: Some("k"),
        content_length: Some(15),
        path: "",
    };
    assert_eq!(
        str::from_utf8(head.write(&mut out).unwrap()).unwrap(),
        "POST /sandboxes/local/exec HTTP/1.1\r\nHost: localhost:7878\r\n\
         Authorization: Bearer k\r\nAccept: application/octet-stream, application/json\r\n\
         Content-Type: application/json\r\nContent-Length: 15\r\n\r\n"
    );
    head.mode = Mode::Hijack;
    head.bearer = None;
    head.path = "/api/exec?v=1";
    let wire = head.write(&mut out).unwrap();
    assert!(wire.starts_with(b"POST /api/exec?v=1&stdin=1 HTTP/1.1\r\n"));
    head.path = "/exec?stdin=1";
    let wire = head.write(&mut out).unwrap();
    assert!(wire.starts_with(b"POST /exec?stdin=1 HTTP/1.1\r\n"));
    head.mode = Mode::Socket { key: KEY };
    head.path = "";
    let wire = head.write(&mut out).unwrap();
    let peer: Peer<'_> = Peer { port: 7878, loopback: true, hosts: &[], access: Access::Open };
    let route = request(wire, false).unwrap().unwrap().admit(&peer, |_| true);
    assert_eq!(route, Ok(Route::Socket { sandbox: "local", key: KEY }));
    let needed = wire.len();
    let error = head.write(&mut out[..needed - 1]).unwrap_err();
    assert_eq!(error, HeadError::OutTooSmall { needed });
}

#[test]
fn unclean_parts_are_refused_before_a_byte_is_written() {
    // rule: EXEC-38
    let good = RequestHead {
        mode: Mode::OneShot,
        sandbox: "local",
        host: "localhost",
        bearer: Some("k"),
        content_length: Some(0),
        path: "",
    };
    let long = "a".repeat(65);
    let mut cases = vec![
        (RequestHead { bearer: Some("k\r\nX-A: 1"), ..good }, Part::Bearer),
        (RequestHead { bearer: Some("k k"), ..good }, Part::Bearer),
        (RequestHead { bearer: Some(""), ..good }, Part::Bearer),
        (RequestHead { bearer: Some("kéy"), ..good }, Part::Bearer),
        (RequestHead { sandbox: "a\r\nb", ..good }, Part::Sandbox),
        (RequestHead { sandbox: "", ..good }, Part::Sandbox),
        (RequestHead { sandbox: "../x", ..good }, Part::Sandbox),
        (RequestHead { sandbox: &long, ..good }, Part::Sandbox),
        (RequestHead { host: "a b", ..good }, Part::Host),
        (RequestHead { host: "a\r\nX: y", ..good }, Part::Host),
        (RequestHead { host: "", ..good }, Part::Host),
        (RequestHead { host: "h:99999", ..good }, Part::Host),
        (RequestHead { path: "x", ..good }, Part::Path),
        (RequestHead { path: "/x y", ..good }, Part::Path),
        (RequestHead { path: "/x\n", ..good }, Part::Path),
    ];
    for key in ["", "short", "a\r\nb"] {
        cases.push((RequestHead { mode: Mode::Socket { key }, ..good }, Part::SocketKey));
    }
    for (head, part) in cases {
        let mut out = [0xaa; 512];
        assert_eq!(head.write(&mut out).unwrap_err(), HeadError::Unclean(part), "{head:?}");
        assert!(out.iter().all(|byte| *byte == 0xaa));
    }
    assert!(!format!("{:?}", RequestHead { bearer: Some("hush"), ..good }).contains("hush"));
}

#[test]
fn request_framing() {
    // rule: EXEC-37, EXEC-58
    let parse = |headers: &str| {
        let wire = format!("POST / HTTP/1.1\r\n{headers}\r\n");
        request(wire.as_bytes(), false).map(|parsed| parsed.unwrap().framing)
    };
    assert_eq!(parse(""), Ok(Framing::Length(0)));
    assert_eq!(parse("Content-Length: 12\r\n"), Ok(Framing::Length(12)));
    assert_eq!(parse("Transfer-Encoding: Chunked\r\n"), Ok(Framing::Chunked));
    for smuggled in [
        "Content-Length: 1\r\nContent-Length: 1\r\n",
        "Content-Length: 1\r\nContent-Length: 2\r\n",
        "Content-Length: 1, 1\r\n",
        "Content-Length: 0x1\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
    ] {
        assert_eq!(parse(smuggled).unwrap_err().status, 400, "{smuggled}");
    }
    for coding in ["gzip, chunked", "identity", "chunked, chunked", "", "xchunked"] {
        let refusal = parse(&format!("Transfer-Encoding: {coding}\r\n")).unwrap_err();
        assert_eq!(refusal.status, 501, "{coding}");
    }
    let old = b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(request(old, false).unwrap_err().status, 400);
    let expect = b"POST / HTTP/1.1\r\nExpect: 100-Continue\r\n\r\n";
    assert!(request(expect, false).unwrap().unwrap().wants_continue());
}

#[test]
fn huge_heads_are_refused_at_the_window() {
    // rule: EXEC-37, EXEC-59
    let window = 16_384;
    let one_header = [&b"GET / HTTP/1.1\r\nX: "[..], &vec![b'x'; 20 << 20]].concat();
    let mut many_headers = b"GET / HTTP/1.1\r\n".to_vec();
    (0..100_000).for_each(|_| many_headers.extend_from_slice(b"a:b\r\n"));
    let endless_target = [&b"GET /"[..], &vec![b'x'; window]].concat();
    let blank_lines = vec![b'\n'; window];
    for wire in [one_header, many_headers, endless_target, blank_lines] {
        let mut scan = HeadScan::new();
        let refused = (0..=window).find_map(|end| scan.request(&wire[..end], end == window).err());
        assert_eq!(refused.unwrap().status, 431);
    }
    let response_head = [&b"HTTP/1.1 200 OK\r\nX: "[..], &vec![b'x'; window]].concat();
    let error = response(&response_head[..window], true).unwrap_err();
    assert_eq!((error, error.code()), (HeadError::TooLarge, "head_too_large"));
    let mut many = b"HTTP/1.1 200 OK\r\n".to_vec();
    (0..65).for_each(|_| many.extend_from_slice(b"a:b\r\n"));
    assert_eq!(response(&many, false).unwrap_err(), HeadError::TooManyHeaders);
    many.truncate(many.len() - 5);
    many.extend_from_slice(b"\r\n");
    assert_eq!(response(&many, true).unwrap().unwrap().headers.count(), MAX_HEADERS);
}

#[test]
fn what_is_not_http_is_refused_early() {
    // rule: EXEC-36
    let tls = [&b"\x16\x03\x01\x02\x00\x01"[..], &[0; 100]].concat();
    assert_eq!(request(&tls, false).unwrap_err().status, 400);
    for bad in ["GET / HTTP/2.0\r\n\r\n", "GET /\r\n\r\n", "G@T / HTTP/1.1\r\n\r\n"] {
        assert_eq!(request(bad.as_bytes(), false).unwrap_err().status, 400, "{bad}");
    }
    for lines in ["A : b\r\n", ": b\r\n", "A\r\n", " A: b\r\n", "A: b\r\n c\r\n", "A: \x01\r\n"] {
        let wire = format!("GET / HTTP/1.1\r\n{lines}\r\n");
        assert_eq!(request(wire.as_bytes(), false).unwrap_err().status, 400, "{lines:?}");
    }
}

#[test]
fn responses() {
    // rule: EXEC-37
    let parse = |headers: &str| {
        let wire = format!("HTTP/1.1 200 OK\r\n{headers}\r\n");
        response(wire.as_bytes(), false).unwrap().unwrap().framing()
    };
    assert_eq!(parse(""), Ok(Framing::ToEnd));
    assert_eq!(parse("content-length: 7\r\n"), Ok(Framing::Length(7)));
    assert_eq!(parse("Content-Length: 1\r\nContent-Length: 2\r\n"), Err(HeadError::Length));
    assert_eq!(parse("Content-Length: 7\r\nTransfer-Encoding: chunked\r\n"), Ok(Framing::Chunked));
    assert_eq!(parse("Transfer-Encoding: gzip\r\n"), Err(HeadError::TransferCoding));

    let interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n\
        HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\r\n\x01";
    let head = response(interim, false).unwrap().unwrap();
    assert_eq!((head.status, head.len), (200, interim.len() - 1));
    assert_eq!(head.expect_stream(), Ok(Framing::ToEnd));

    // rule: EXEC-19
    let expect = |wire: &str| response(wire.as_bytes(), false).unwrap().unwrap().expect_stream();
    assert_eq!(expect("HTTP/1.1 404 Not Found\r\n\r\n"), Err(HeadError::Status { found: 404 }));
    assert_eq!(expect("HTTP/1.1 200 OK\r\n\r\n"), Err(HeadError::ContentType));
    assert_eq!(
        expect("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"),
        Err(HeadError::ContentType)
    );
    assert_eq!(
        expect(
            "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\
             Content-Encoding: gzip\r\n\r\n"
        ),
        Err(HeadError::ContentEncoding)
    );

    // rule: EXEC-21
    let hijack = "HTTP/1.1 200 OK\r\nDate: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\
        Connection: close\r\n\r\n";
    let head = response(hijack.as_bytes(), false).unwrap().unwrap();
    assert_eq!(head.expect_hijack(), Ok(()));
}

#[test]
fn answers_are_what_a_client_expects() {
    let mut out = [0; 256];
    let framing = |answer: Answer<'_>, out: &mut [u8]| {
        let wire = answer.write(out).unwrap();
        response(wire, true).unwrap().unwrap().expect_stream()
    };
    assert_eq!(framing(Answer::Stream, &mut out), Ok(Framing::ToEnd));
    assert_eq!(framing(Answer::Chunked, &mut out), Ok(Framing::Chunked));
    // rule: EXEC-21
    let wire = Answer::Hijack.write(&mut out).unwrap();
    assert_eq!(wire, b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\r\n");
    let health = Answer::Health.write(&mut out).unwrap();
    assert!(health.ends_with(HEALTH_BODY.as_bytes()));

    // rule: EXEC-23
    let accept = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
    let wire = Answer::Socket { accept }.write(&mut out).unwrap();
    let head = response(wire, false).unwrap().unwrap();
    assert_eq!(head.expect_upgrade(accept), Ok(()));
    assert_eq!(head.expect_upgrade("x"), Err(HeadError::WrongAccept));
    let plain = response(b"HTTP/1.1 101 X\r\n\r\n", false).unwrap().unwrap();
    assert_eq!(plain.expect_upgrade(accept), Err(HeadError::UpgradeMissing));
    let ok = response(b"HTTP/1.1 200 OK\r\n\r\n", false).unwrap().unwrap();
    assert_eq!(ok.expect_upgrade(accept), Err(HeadError::Status { found: 200 }));
}

#[test]
fn bodies_are_held_to_their_limits() {
    // rule: EXEC-18
    let wire = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n100001\r\n";
    let parsed = request(wire, false).unwrap().unwrap();
    let error = parsed.body().feed(&mut &wire[parsed.len..]).unwrap_err();
    assert_eq!(Refusal::from(error), Refusal::too_large(MAX_REQUEST_BODY as u64));
    let error = parsed.body().feed(&mut &b"zz"[..]).unwrap_err();
    assert_eq!(Refusal::from(error).status, 400);

    let wire = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 65537\r\n\r\n";
    let mut body = response(wire, false).unwrap().unwrap().error_body().unwrap();
    assert!(body.feed(&mut &b"x"[..]).is_err());
}

#[test]
fn a_request_refused_by_its_parser() {
    // rule: EXEC-17
    let error = crate::exec::request::ExecRequest::parse(b"{\"cmd\":1}").unwrap_err();
    let refusal = Refusal::from(error);
    assert_eq!(refusal.status, 400);
    assert!(refusal.to_string().starts_with("cmd: "), "{refusal}");
}

#[test]
fn an_error_record_of_a_peer() {
    // rule: EXEC-35
    let parse = ErrorRecord::parse;
    assert_eq!(parse(b"{\"error\":null,\"x\":[1],\"error2\":2}").unwrap().error, "");
    assert!(parse(b"<html>").is_err());
    assert!(parse(b"{\"error\":1}").is_err());
    assert!(parse(b"{\"code\":\"a\",\"code\":\"b\"}").is_err());
    assert!(parse(b"{} x").is_err());
}

/// A head of odd but legal parts, and what it says.
fn heads() -> impl Strategy<Value = (String, Vec<(String, String)>)> {
    let header = ("[A-Za-z][A-Za-z0-9-]{0,12}", "[!-~]([ -~]{0,20}[!-~])?");
    (proptest::collection::vec(header, 0..20), "[\r\n]{0,3}", any::<bool>(), "[ \t]{0,3}").prop_map(
        |(headers, before, crlf, space)| {
            let end = if crlf { "\r\n" } else { "\n" };
            let before = before.replace('\r', "\r\n");
            let lines: String = headers
                .iter()
                .map(|(name, value)| format!("{name}:{space}{value}{space}{end}"))
                .collect();
            (format!("{before}GET /x HTTP/1.1{end}{lines}{end}"), headers)
        },
    )
}

/// Judges a request to a guest that knows one key, sent with that key in front of `headers`.
fn ask_guest(method: &str, target: &str, headers: &[(&str, &str)]) -> Result<(), Refusal> {
    let headers = [&[AUTH], headers].concat();
    let headers = headers.iter().map(|(name, value)| Header { name, value: value.as_bytes() });
    admit_guest(method, target, headers, Access::Keys(&[KeyDigest::of(b"secret")]))
}

#[test]
fn a_guest_takes_commands_at_one_route() {
    // rule: EXEC-64
    let any_host = ("Host", "no-name-of-ours.example:1");
    assert_eq!(ask_guest("POST", GUEST_PATH, &[any_host]), Ok(()));
    assert_eq!(ask_guest("POST", "/exec?a=1&stdin=1", &[any_host]), Ok(()));
    assert_eq!(ask_guest("POST", "http://h/exec?stdin=1", &[("Host", "h")]), Ok(()));
    let is_origin = ("Origin", "http://no-name-of-ours.example:1");
    let cases: &[Refused<'_>] = &[
        ("POST", "exec?stdin=1", &[any_host], 400, Why::Target),
        ("POST", "http://h/exec?stdin=1", &[any_host], 400, Why::Target),
        ("POST", GUEST_PATH, &[], 400, Why::HostMissing),
        ("POST", GUEST_PATH, &[("Host", "a b")], 400, Why::HostMissing),
        ("POST", GUEST_PATH, &[any_host, any_host], 400, Why::Repeated("Host")),
        ("POST", GUEST_PATH, &[any_host, is_origin], 403, Why::OriginRefused),
        ("POST", "/", &[any_host], 404, Why::NotGuestPath),
        ("GET", "/healthz", &[any_host], 404, Why::NotGuestPath),
        ("POST", "/exec/?stdin=1", &[any_host], 404, Why::NotGuestPath),
        ("POST", "/sandboxes/mcu/exec?stdin=1", &[any_host], 404, Why::NotGuestPath),
        ("GET", GUEST_PATH, &[any_host], 405, Why::Method { allow: Allow::Post }),
        ("post", GUEST_PATH, &[any_host], 405, Why::Method { allow: Allow::Post }),
        ("POST", "/exec", &[any_host], 501, Why::NotHijack),
        ("POST", "/exec?stdin=0", &[any_host], 501, Why::NotHijack),
        ("POST", GUEST_PATH, &[any_host, ("Content-Type", "text/plain")], 415, Why::ContentType),
        ("POST", GUEST_PATH, &[any_host, ("Content-Length", "-1")], 400, Why::Length),
        (
            "POST",
            GUEST_PATH,
            &[any_host, ("Content-Length", "1048577")],
            413,
            Why::TooLarge { limit: 1 << 20 },
        ),
    ];
    for (method, target, headers, status, why) in cases {
        let refusal = ask_guest(method, target, headers).unwrap_err();
        assert_eq!((refusal.status, refusal.why), (*status, *why), "{method} {target} {headers:?}");
    }
    let refusal = ask_guest("PUT", GUEST_PATH, &[any_host]).unwrap_err();
    assert_eq!(refusal.headers(), [("Allow", "POST")]);
}

#[test]
fn a_guest_with_keys_admits_nobody_else() {
    // rule: EXEC-32, EXEC-64
    let host = Header { name: "Host", value: b"mcu" };
    let keys = [KeyDigest::of(b"secret")];
    let judge = |access: Access<'_>, key: Option<&str>| {
        let value = format!("Bearer {}", key.unwrap_or_default());
        let key = key.map(|_| Header { name: "Authorization", value: value.as_bytes() });
        admit_guest("POST", GUEST_PATH, core::iter::once(host).chain(key), access)
            .map_err(|refusal| refusal.why)
    };
    assert_eq!(judge(Access::Keys(&keys), Some("secret")), Ok(()));
    assert_eq!(judge(Access::Keys(&keys), Some("other")), Err(Why::KeyWrong));
    assert_eq!(judge(Access::Keys(&keys), None), Err(Why::KeyMissing));
    assert_eq!(judge(Access::Open, None), Ok(()));
}

proptest! {
    #[test]
    fn any_split_of_a_request_gives_the_same((wire, headers) in heads(), behind in "[a-z\r\n]{0,9}") {
        // rule: EXEC-37
        let headers_in: Vec<_> =
            headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let mut scan = HeadScan::new();
        let whole = request(wire.as_bytes(), false);
        for end in 0..wire.len() {
            match scan.request(&wire.as_bytes()[..end], false) {
                Ok(None) => {}
                // A length or coding by chance: refused, with either.
                Ok(Some(_)) => prop_assert!(false, "too early at {}", end),
                Err(refusal) => {
                    prop_assert_eq!(Err(refusal.status), whole.map(|_| ()).map_err(|w| w.status));
                    return Ok(());
                }
            }
        }
        let all = wire.clone() + &behind;
        if let Ok(parsed) = scan.request(all.as_bytes(), false) {
            let parsed = parsed.unwrap();
            prop_assert_eq!(parsed.len, wire.len());
            prop_assert_eq!(parsed.len, whole.unwrap().unwrap().len);
            let found: Vec<_> = parsed.headers.map(|h| (h.name, h.value)).collect();
            prop_assert_eq!(found, headers_in);
        } else {
            prop_assert!(whole.is_err());
        }
    }

    #[test]
    fn any_split_of_a_response_gives_the_same(
        interim in 0usize..4,
        lines in proptest::collection::vec("[a-z]{1,8}: [a-z]{0,8}", 0..10),
        step in 1usize..9,
    ) {
        // rule: EXEC-37
        let wire = "HTTP/1.1 100 Continue\r\n\r\n".repeat(interim)
            + "HTTP/1.1 200 OK\r\n" + &lines.join("\r\n")
            + if lines.is_empty() { "\r\n" } else { "\r\n\r\n" };
        let mut scan = HeadScan::new();
        for end in (0..wire.len()).step_by(step) {
            prop_assert!(scan.response(&wire.as_bytes()[..end], false).unwrap().is_none());
        }
        let head = scan.response(wire.as_bytes(), false).unwrap().unwrap();
        prop_assert_eq!((head.status, head.len, head.headers.count()), (200, wire.len(), lines.len()));
    }

    #[test]
    fn requests_are_httparses(
        start in proptest::sample::select(&["GET / HTTP/1.1\r\n", "\r\n\nP", "", "GET / HTTP/1."][..]),
        bytes in proptest::collection::vec(
            proptest::sample::select(&b"aB:\r\n\r\n \t,;\"\x80\x00/H1"[..]), 0..60),
        end in proptest::sample::select(&["\r\n\r\n", "\n", " / HTTP/1.0\na:\n\n"][..]),
    ) {
        // rule: EXEC-37
        let wire = [start.as_bytes(), &bytes, end.as_bytes()].concat();
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut reference = httparse::Request::new(&mut headers);
        let theirs = reference.parse(&wire);
        match (theirs, lines::request(&wire)) {
            (Ok(httparse::Status::Complete(len)), Ok(ours)) => {
                prop_assert_eq!(len, ours.len);
                prop_assert_eq!(reference.method, Some(ours.method));
                prop_assert_eq!(reference.path, Some(ours.target));
                prop_assert_eq!(reference.version == Some(0), ours.is_old);
                let ours: Vec<_> =
                    Headers::of_head(wire[..len].trim_ascii_start()).map(|h| (h.name, h.value)).collect();
                let theirs: Vec<_> = reference.headers.iter().map(|h| (h.name, h.value)).collect();
                prop_assert_eq!(ours, theirs);
            }
            (theirs, ours) => prop_assert_eq!(unparsed(theirs), ours.err()),
        }
    }

    #[test]
    fn responses_are_httparses(
        start in proptest::sample::select(&["HTTP/1.1 ", "\r\nHTTP/1.1 200", "HTTP/1", ""][..]),
        bytes in proptest::collection::vec(
            proptest::sample::select(&b"aB:\r\n\r\n \t,;\"\x80\x00/H12.0"[..]), 0..60),
        end in proptest::sample::select(&["\r\n\r\n", "\n", " 404\na:\n\n"][..]),
    ) {
        // rule: EXEC-37
        let wire = [start.as_bytes(), &bytes, end.as_bytes()].concat();
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut reference = httparse::Response::new(&mut headers);
        let theirs = reference.parse(&wire);
        match (theirs, lines::response(&wire)) {
            (Ok(httparse::Status::Complete(len)), Ok((status, ours))) => {
                prop_assert_eq!((reference.code, len), (Some(status), ours));
            }
            (theirs, ours) => prop_assert_eq!(unparsed(theirs), ours.err()),
        }
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), full: bool) {
        let _ = request(&bytes, full);
        let _ = response(&bytes, full);
        let text = String::from_utf8_lossy(&bytes);
        let _ = ask("POST", &text, &[(&text, &text)]);
        let _ = ask("GET", "/sandboxes/local/exec", &[("Upgrade", &text)]);
    }
}

#[test]
fn headers_are_counted_as_httparse_counts() {
    for count in MAX_HEADERS - 1..MAX_HEADERS + 2 {
        let wire = String::from("GET / HTTP/1.1\r\n") + &"a: b\r\n".repeat(count);
        for end in ["", "\r\n", "\x00"] {
            let wire = wire.clone() + end;
            let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
            let theirs = httparse::Request::new(&mut headers).parse(wire.as_bytes());
            let ours = lines::request(wire.as_bytes());
            assert_eq!(unparsed(theirs), ours.err(), "{count} headers, then {end:?}");
        }
    }
}

/// What httparse says of bytes that are no whole head, in our words.
fn unparsed(theirs: httparse::Result<usize>) -> Option<Unparsed> {
    use httparse::Error;
    Some(match theirs {
        Ok(httparse::Status::Complete(_)) => return None,
        Ok(httparse::Status::Partial) => Unparsed::Partial,
        Err(Error::TooManyHeaders) => Unparsed::TooManyHeaders,
        Err(Error::HeaderName) => Malformed::HeaderName.into(),
        Err(Error::HeaderValue) => Malformed::HeaderValue.into(),
        Err(Error::NewLine) => Malformed::LineEnd.into(),
        Err(Error::Version) => Malformed::Version.into(),
        Err(Error::Status | Error::Token) => Malformed::FirstLine.into(),
    })
}
