//! The server's one-shot transport, and what every transport has in common before it begins.
#![cfg(all(feature = "server", feature = "guest"))]

mod server_common;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use server_common::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use triwire::exec::head::KeyDigest;
use triwire_std::server::{OUTBOX, Server};

/// Asks on a connection of its own; what came, and the error body's members.
async fn refused(gateway: &Gateway, request: &[u8]) -> (Answer, String, String) {
    let mut stream = gateway.connect().await;
    let (answer, body) = ask(&mut stream, request).await;
    assert_eq!(body.last(), Some(&b'\n'), "{}", answer.head);
    let json: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let member = |name| json[name].as_str().unwrap_or_default().to_owned();
    (answer, member("error"), member("code"))
}

// rule: EXEC-35, EXEC-36
#[tokio::test]
async fn every_refusal_has_its_status_and_says_why() {
    let (guest, mut scripts) = scripted(Stdin::Take);
    let gateway = Gateway::start(guest).await;
    let address = gateway.address;
    let exec = "/sandboxes/local/exec";
    let no_key = format!("POST {exec} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let cases: &[(u16, &str, &str, String)] = &[
        (400, "", "Host", format!("GET {exec} HTTP/1.1\r\n\r\n")),
        (403, "host-refused", "Host", format!("GET {exec} HTTP/1.1\r\nHost: evil.example\r\n\r\n")),
        (401, "", "key", no_key.clone()),
        (401, "", "key", no_key.replace("\r\n\r\n", "\r\nAuthorization: Bearer wrong\r\n\r\n")),
        (
            403,
            "origin-refused",
            "origin",
            format!("{}Origin: http://evil.example\r\n\r\n", gateway.head("POST", exec)),
        ),
        (400, "", "sandbox", gateway.head("POST", "/sandboxes/a%20b/exec") + "\r\n"),
        (404, "not_found", "sandbox", gateway.head("POST", "/sandboxes/other/exec") + "\r\n"),
        (404, "not_found", "route", gateway.head("GET", "/nothing") + "\r\n"),
        (405, "", "method", gateway.head("PUT", exec) + "\r\n"),
        (415, "", "JSON", gateway.head("POST", exec) + "Content-Type: text/plain\r\n\r\n"),
        (426, "", "WebSocket", gateway.head("GET", exec) + "\r\n"),
        (413, "", "1048576", gateway.head("POST", exec) + "Content-Length: 1048577\r\n\r\n"),
        (400, "", "cmd", String::from_utf8(gateway.one_shot(r#"{"cmd":[]}"#)).unwrap()),
        (
            400,
            "",
            "env",
            String::from_utf8(gateway.hijack(r#"{"cmd":["a"],"env":{"=":""}}"#)).unwrap(),
        ),
        (400, "", "body", gateway.head("POST", exec) + "Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
    ];
    for (status, code, why, request) in cases {
        let (answer, error, told_code) = refused(&gateway, request.as_bytes()).await;
        assert_eq!((answer.status, &*told_code), (*status, *code), "{request}\n{error}");
        assert!(error.contains(why), "{why:?} in {error:?}");
        assert!(answer.has("content-type: application/json"), "{}", answer.head);
        match status {
            401 => assert!(answer.has("www-authenticate: Bearer")),
            405 => assert!(answer.has("allow: GET, POST")),
            426 => assert!(answer.has("sec-websocket-version: 13")),
            _ => {}
        }
    }
    assert!(scripts.none_started());
}

// rule: EXEC-18
#[tokio::test]
async fn a_body_above_the_limit_is_refused_while_it_is_still_being_sent() {
    let (guest, mut scripts) = scripted(Stdin::Take);
    let gateway = Gateway::start(guest).await;
    let mut request = gateway.head("POST", "/sandboxes/local/exec").into_bytes();
    request.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
    for _ in 0..32 {
        request.extend_from_slice(b"10000\r\n");
        request.resize(request.len() + 0x10000, b' ');
        request.extend_from_slice(b"\r\n");
    }
    let (answer, error, _) = refused(&gateway, &request).await;
    assert_eq!(answer.status, 413, "{error}");
    assert!(scripts.none_started());
}

// rule: EXEC-37
#[tokio::test]
async fn a_head_above_the_limits_is_refused() {
    let (guest, _scripts) = scripted(Stdin::Take);
    let gateway = Gateway::start(guest).await;
    let head = gateway.head("POST", "/sandboxes/local/exec");
    let long = format!("{head}X: {}\r\n\r\n", "a".repeat(1 << 20));
    let many = format!("{head}{}\r\n", "X: a\r\n".repeat(100_000));
    for (status, request) in [(431, &*long), (431, &*many), (400, "\u{1}\r\n\r\n")] {
        let mut stream = gateway.connect().await;
        let _ = stream.write_all(request.as_bytes()).await;
        assert_eq!(read_head(&mut stream).await.status, status);
    }
}

#[tokio::test]
async fn health_needs_no_key() {
    let (guest, _scripts) = scripted(Stdin::Take);
    let gateway = Gateway::start(guest).await;
    let mut stream = gateway.connect().await;
    let (answer, body) = ask(&mut stream, b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n").await;
    assert_eq!((answer.status, &body[..]), (200, &b"{\"status\":\"ok\"}\n"[..]));
}

// rule: EXEC-32
#[tokio::test]
async fn keys_can_be_replaced_and_none_admits_nobody() {
    let (guest, mut scripts) = scripted(Stdin::Take);
    let gateway = Gateway::start(guest).await;
    let mut stream = gateway.connect().await;
    let request = gateway.one_shot(REQUEST);
    for (keys, status) in [
        (vec![], 401),
        (vec![KeyDigest::of(b"other")], 401),
        (vec![KeyDigest::of(b"other"), KeyDigest::of(KEY.as_bytes())], 200),
    ] {
        gateway.keys.replace(keys);
        stream.write_all(&request).await.unwrap();
        if status == 200 {
            scripts.next().await.exit(0);
        }
        let mut answer = read_head(&mut stream).await;
        assert_eq!(answer.status, status);
        read_body(&mut stream, &mut answer).await;
    }
}

#[tokio::test]
async fn a_server_without_keys_listens_on_loopback_only() {
    let server = Server::builder().open().build().unwrap();
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let error = server.serve(listener, std::future::pending()).await.unwrap_err();
    assert!(error.to_string().contains("127.0.0.1"), "{error}");
    assert!(Server::builder().sandbox("a b", Arc::new(OutOfReach)).build().is_err());
}

// rule: EXEC-19, EXEC-47
#[tokio::test]
async fn output_arrives_as_it_is_produced_and_the_connection_stays_open() {
    let (guest, mut scripts) = scripted(Stdin::Take);
    let gateway = Gateway::start(guest).await;
    let mut stream = gateway.connect().await;
    for exit_code in [0, 7] {
        let json = r#"{"cmd":["a","b"],"env":{"N":"v"},"cwd":"/d","timeout_s":5}"#;
        stream.write_all(&gateway.one_shot(json)).await.unwrap();
        let mut script = scripts.next().await;
        assert_eq!(
            script.request.to_json(),
            br#"{"cmd":["a","b"],"env":{"N":"v"},"cwd":"/d","timeout_s":5}"#
        );
        assert_eq!(script.input.recv().await.unwrap(), b"", "the end of input, at once");
        script.stdout(&b"first"[..]);
        let mut answer = read_head(&mut stream).await;
        assert_eq!(answer.status, 200);
        assert!(answer.has("content-type: application/octet-stream"));
        while !answer.rest.windows(5).any(|five| five == b"first") {
            let mut window = [0; 100];
            let count = within(stream.read(&mut window)).await.unwrap();
            answer.rest.extend_from_slice(&window[..count]);
        }
        script.stderr(&b"then"[..]);
        script.stdout(vec![1; 200_000]);
        script.exit(exit_code);
        let body = read_body(&mut stream, &mut answer).await;
        let told = told(&body);
        assert_eq!(told.stdout.len(), 5 + 200_000);
        assert_eq!(told.stderr, b"then");
        assert_eq!(told.exit().exit_code, exit_code);
        assert_eq!(answer.rest, b"");
    }
}

// rule: EXEC-20
#[tokio::test]
async fn a_guest_out_of_reach_or_lost_is_told_in_band() {
    let gateway = Gateway::start(Arc::new(OutOfReach)).await;
    let mut stream = gateway.connect().await;
    let (answer, body) = ask(&mut stream, &gateway.one_shot(REQUEST)).await;
    assert_eq!(answer.status, 200);
    let out_of_reach = told(&body);
    assert_eq!(out_of_reach.exit().exit_code, -1);
    assert!(out_of_reach.exit().error.contains("its door is locked"));

    let (guest, mut scripts) = scripted(Stdin::Take);
    let gateway = Gateway::start(guest).await;
    let mut stream = gateway.connect().await;
    stream.write_all(&gateway.one_shot(REQUEST)).await.unwrap();
    let script = scripts.next().await;
    script.stdout(&b"so far"[..]);
    script.lose();
    let mut answer = read_head(&mut stream).await;
    let lost = told(&read_body(&mut stream, &mut answer).await);
    assert_eq!((&lost.stdout[..], lost.exit().exit_code), (&b"so far"[..], -1));
    assert!(lost.exit().error.contains("the machine died"));
}

// rule: EXEC-22
#[tokio::test]
async fn a_client_that_goes_away_ends_its_command_at_every_stage() {
    // While the guest starts the command.
    let (hanging, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let gateway = Gateway::start(Arc::new(Hanging(hanging))).await;
    for request in [gateway.one_shot(REQUEST), gateway.hijack(REQUEST)] {
        let mut stream = gateway.connect().await;
        stream.write_all(&request).await.unwrap();
        let given_up = within(begun.recv()).await.unwrap();
        drop(stream);
        within(given_up).await.unwrap_err();
    }

    let (guest, mut scripts) = scripted(Stdin::Take);
    let gateway = Gateway::start(guest).await;
    // While it is silent; with bytes behind the request that nobody reads; after some output.
    for (behind, output) in [("", false), ("GET /", false), ("", true)] {
        let mut stream = gateway.connect().await;
        stream.write_all(&gateway.one_shot(REQUEST)).await.unwrap();
        stream.write_all(behind.as_bytes()).await.unwrap();
        let script = scripts.next().await;
        if output {
            script.stdout(&b"output"[..]);
            read_head(&mut stream).await;
        }
        drop(stream);
        script.dropped().await;
    }
    // Inside the head, and inside the body.
    let request = gateway.one_shot(REQUEST);
    for cut in [20, request.len() - 3] {
        let mut stream = gateway.connect().await;
        stream.write_all(&request[..cut]).await.unwrap();
        drop(stream);
    }
    let mut stream = gateway.connect().await;
    ask(&mut stream, b"GET /healthz HTTP/1.1\r\n\r\n").await;
    assert!(scripts.none_started());
}

// rule: EXEC-48
#[tokio::test]
async fn sixty_four_mib_pass_in_constant_memory() {
    const TOTAL: usize = 64 << 20;
    let source = Source::new(TOTAL);
    let gateway = Gateway::start(Arc::new(source.clone())).await;
    let mut stream = gateway.connect().await;
    stream.write_all(&gateway.one_shot(REQUEST)).await.unwrap();
    let mut answer = read_head(&mut stream).await;
    let body = read_body(&mut stream, &mut answer).await;
    let told = told(&body);
    assert_eq!(told.stdout.len(), TOTAL);
    let pieces = told.stdout.chunks(65_536).enumerate();
    assert!(pieces.into_iter().all(|(n, piece)| piece.iter().all(|b| *b == n as u8)));
    let most = source.most.load(Ordering::SeqCst);
    assert!(most <= 2 * OUTBOX, "{most} bytes at once");
}

#[tokio::test]
async fn a_shutdown_ends_the_command_by_name() {
    let (guest, mut scripts) = scripted(Stdin::Take);
    let gateway = Gateway::start(guest).await;
    let mut stream = gateway.connect().await;
    // A connection between requests does not hold it up.
    let mut idle = gateway.connect().await;
    ask(&mut idle, b"GET /healthz HTTP/1.1\r\n\r\n").await;
    stream.write_all(&gateway.one_shot(REQUEST)).await.unwrap();
    let script = scripts.next().await;
    script.stdout(&b"so far"[..]);
    let mut answer = read_head(&mut stream).await;
    let address = gateway.address;
    let stopping = gateway.stop();
    let told = told(&read_body(&mut stream, &mut answer).await);
    assert_eq!((&told.stdout[..], told.exit().exit_code), (&b"so far"[..], -1));
    assert_eq!(told.exit().error, "the gateway is shutting down");
    script.dropped().await;
    assert_eq!(within(stream.read(&mut [0; 8])).await.unwrap(), 0);
    drop((stream, idle));
    within(stopping).await.unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn real_commands_run() {
    let (guest, _folder) = processes();
    let gateway = Gateway::start(guest).await;
    let mut stream = gateway.connect().await;
    let json = r#"{"cmd":["sh","-c","echo out; echo err >&2; cat; exit 3"]}"#;
    let (_, body) = ask(&mut stream, &gateway.one_shot(json)).await;
    let said = told(&body);
    assert_eq!((&said.stdout[..], &said.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
    assert_eq!(said.exit().exit_code, 3);
    let (_, body) = ask(&mut stream, &gateway.one_shot(r#"{"cmd":["no-such-program"]}"#)).await;
    let said = told(&body);
    assert_eq!(said.exit().exit_code, -1);
    assert!(said.exit().error.contains("no-such-program"));
}

#[tokio::test]
async fn a_router_serves_one_shot_and_says_what_it_cannot() {
    let (guest, mut scripts) = scripted(Stdin::Take);
    let server = Server::builder().sandbox("local", guest).open().build().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = server.router(address);
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    let post = |query: &str| {
        format!(
            "POST /sandboxes/local/exec{query} HTTP/1.1\r\nHost: {address}\r\n\
             Content-Length: 16\r\n\r\n{REQUEST}"
        )
    };
    let mut stream = TcpStream::connect(address).await.unwrap();
    let (answer, body) = ask(&mut stream, post("?stdin=1").as_bytes()).await;
    assert_eq!(answer.status, 501);
    let json: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(json["code"], "hijack_unavailable");

    stream.write_all(post("").as_bytes()).await.unwrap();
    let script = scripts.next().await;
    script.stdout(vec![b'x'; 100_000]);
    script.exit(1);
    let mut answer = read_head(&mut stream).await;
    let said = told(&read_body(&mut stream, &mut answer).await);
    assert_eq!((said.stdout.len(), said.exit().exit_code), (100_000, 1));

    stream.write_all(post("").as_bytes()).await.unwrap();
    let _script = scripts.next().await;
    let mut answer = read_head(&mut stream).await;
    server.end_sessions();
    let said = told(&read_body(&mut stream, &mut answer).await);
    assert_eq!(said.exit().error, "the gateway is shutting down");
    serving.abort();
}
