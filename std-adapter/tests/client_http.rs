//! One-shot and hijack against scripted bytes.
#![cfg(feature = "client")]
#![allow(missing_docs)]

mod client_common;

use std::time::Duration;

use client_common::*;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use triwire_std::client::{Client, ClientError, Transport, UrlError};

/// Runs against a server that answers with `answer`, then ends.
async fn against(answer: Vec<u8>, transport: Transport) -> Result<Outcome, ClientError> {
    let (url, served) = serve(move |mut peer| async move {
        peer.post().await;
        peer.send(&answer).await;
        peer.end().await
    })
    .await;
    let started = client(&url).exec("local", &request()).transport(transport).start().await;
    let outcome = match started {
        Ok(session) => Ok(drain(session).await),
        Err(error) => Err(error),
    };
    if outcome.is_err() {
        served.await.unwrap();
    }
    outcome
}

fn chunked(body: &[u8], size: usize) -> Vec<u8> {
    let mut wire =
        b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for chunk in body.chunks(size) {
        wire.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        wire.extend_from_slice(chunk);
        wire.extend_from_slice(b"\r\n");
    }
    wire
}

fn sized(body: &[u8], len: usize) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {len}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

#[tokio::test]
async fn the_request_is_what_the_contract_says() {
    // rule: EXEC-19
    // rule: EXEC-21
    for (transport, target) in [(Transport::OneShot, ""), (Transport::Hijack, "?stdin=1")] {
        let (url, served) = serve(|mut peer| async move {
            let head = peer.post().await;
            peer.send(&[OK, &frames()].concat()).await;
            (head, peer.end().await)
        })
        .await;
        let outcome = run(&url, transport).await;
        outcome.is_whole();
        drop(outcome);
        let (head, after) = served.await.unwrap();
        let host = url.strip_prefix("http://").unwrap();
        assert!(head.starts_with(&format!("POST /sandboxes/local/exec{target} HTTP/1.1\r\n")));
        assert!(head.contains(&format!("\r\nHost: {host}\r\n")));
        assert!(head.contains("\r\nAuthorization: Bearer k-123\r\n"));
        // Without live input the command finds its end at once.
        let input: &[u8] =
            if transport == Transport::Hijack { &[5, 0, 0, 0, 0, 0, 0, 0] } else { b"" };
        assert_eq!(after, input);
    }
}

#[tokio::test]
async fn head_and_frames_in_one_read_lose_nothing() {
    // rule: EXEC-21
    for transport in [Transport::OneShot, Transport::Hijack] {
        against([OK, &frames()].concat(), transport).await.unwrap().is_whole();
    }
}

#[tokio::test]
async fn every_split_gives_the_same() {
    // rule: EXEC-37
    let answers = [
        [OK, &frames()].concat(),
        sized(&frames(), frames().len()),
        [chunked(&frames(), 7), b"0\r\nX-Trailer: 1\r\n\r\n".to_vec()].concat(),
        [b"HTTP/1.1 100 Continue\r\n\r\n", OK, &frames()].concat(),
    ];
    for answer in answers {
        for at in 0..=answer.len() {
            let (first, second) = answer.split_at(at);
            let (first, second) = (first.to_vec(), second.to_vec());
            let (url, _served) = serve(move |mut peer| async move {
                peer.post().await;
                peer.send(&first).await;
                tokio::task::yield_now().await;
                peer.send(&second).await;
                peer.end().await
            })
            .await;
            run(&url, Transport::OneShot).await.is_whole();
        }
    }
}

#[tokio::test]
async fn byte_by_byte_gives_the_same() {
    for transport in [Transport::OneShot, Transport::Hijack] {
        let (url, _served) = serve(|mut peer| async move {
            peer.post().await;
            peer.trickle(&[OK, &frames()].concat()).await;
            peer.end().await
        })
        .await;
        run(&url, transport).await.is_whole();
    }
}

#[tokio::test]
async fn a_declared_end_needs_no_closed_connection() {
    // rule: EXEC-37
    for answer in
        [sized(&frames(), frames().len()), [chunked(&frames(), 11), b"0\r\n\r\n".to_vec()].concat()]
    {
        let (url, served) = serve(move |mut peer| async move {
            peer.post().await;
            peer.send(&answer).await;
            let mut rest = Vec::new();
            // Up to the client's own end: ours stays open.
            peer.stream.read_to_end(&mut rest).await.unwrap();
        })
        .await;
        let outcome = run(&url, Transport::OneShot).await;
        outcome.is_whole();
        assert_eq!(outcome.session.early_end(), None);
        drop(outcome);
        served.await.unwrap();
    }
}

#[tokio::test]
async fn a_missing_exit_is_a_lost_command() {
    // rule: EXEC-4
    for transport in [Transport::OneShot, Transport::Hijack] {
        let outcome = against([OK, &frame(1, b"ok")].concat(), transport).await.unwrap();
        assert_eq!(outcome.stdout, b"ok");
        assert_eq!(outcome.code(), "missing_exit");
        assert!(outcome.end.as_ref().unwrap_err().is_lost());
        assert_eq!(outcome.end.as_ref().unwrap_err().status(), 125);
        assert_eq!(outcome.exit_code(), None);
    }
    let outcome = against(sized(&frame(1, b"ok"), 10), Transport::OneShot).await.unwrap();
    assert_eq!(outcome.code(), "missing_exit");
}

#[tokio::test]
async fn each_cut_is_truncated() {
    // rule: EXEC-6
    let whole = frames();
    let edges = [0, 13, 21, 33, whole.len()];
    for at in 0..whole.len() {
        let answer = [OK, &whole[..at]].concat();
        let outcome = against(answer, Transport::OneShot).await.unwrap();
        let expected = if edges.contains(&at) { "missing_exit" } else { "truncated" };
        assert_eq!(outcome.code(), expected, "cut at {at}");
    }
}

#[tokio::test]
async fn a_cut_body_is_truncated_before_the_exit_and_a_warning_behind_it() {
    // rule: EXEC-37
    let outcome = against(chunked(&frame(1, b"ok"), 10), Transport::OneShot).await.unwrap();
    assert_eq!((&outcome.stdout[..], outcome.code()), (&b"ok"[..], "truncated"));
    assert!(outcome.end.as_ref().unwrap_err().is_lost());

    for answer in [chunked(&frames(), 10), sized(&frames(), frames().len() + 5)] {
        let outcome = against(answer, Transport::OneShot).await.unwrap();
        outcome.is_whole();
        assert!(outcome.session.early_end().is_some());
    }
}

#[tokio::test]
async fn faults_are_named_and_what_came_before_is_good() {
    // rule: EXEC-5
    // rule: EXEC-7
    // rule: EXEC-8
    // rule: EXEC-9
    let hello = frame(1, b"hello");
    for (code, bad) in [
        ("unknown_type", vec![9, 0, 0, 0, 0, 0, 0, 0]),
        ("wrong_direction", frame(4, b"x")),
        ("oversize", vec![1, 0, 0, 0, 0, 1, 0, 1]),
        ("exit_unreadable", frame(3, b"{}")),
        ("after_exit", [frame(3, EXIT), frame(3, EXIT)].concat()),
    ] {
        let outcome = against([OK, &hello, &bad].concat(), Transport::Hijack).await.unwrap();
        assert_eq!((&outcome.stdout[..], outcome.code()), (&b"hello"[..], code));
        assert_eq!(outcome.exit_code(), (code == "after_exit").then_some(3));
    }
    let bad_chunk = [&chunked(&hello, 13)[..], b"xyz\r\n"].concat();
    let outcome = against(bad_chunk, Transport::OneShot).await.unwrap();
    assert_eq!((&outcome.stdout[..], outcome.code()), (&b"hello"[..], "chunk_malformed"));
}

#[tokio::test]
async fn a_reset_is_the_end_behind_the_exit_and_a_loss_before_it() {
    // rule: EXEC-49
    for (wire, lost) in [(frames(), false), (frame(1, b"hello"), true)] {
        let (go, gone) = tokio::sync::oneshot::channel::<()>();
        let (url, _served) = serve(move |mut peer| async move {
            peer.post().await;
            peer.send(&[OK, &wire].concat()).await;
            // A reset throws away what the client has not read: wait until it has.
            gone.await.unwrap();
            peer.reset();
        })
        .await;
        let request = request();
        let client = client(&url);
        let exec = client.exec("local", &request).transport(Transport::Hijack).interactive();
        let mut session = exec.start().await.unwrap();
        assert!(session.next().await.unwrap().is_some());
        while !lost && session.result().is_none() {
            session.next().await.unwrap();
        }
        go.send(()).unwrap();
        let outcome = drain(session).await;
        if lost {
            assert!(matches!(outcome.end, Err(ClientError::Connection { .. })), "{outcome:?}");
            assert_eq!(outcome.code(), "missing_exit");
        } else {
            assert!(outcome.end.is_ok(), "{outcome:?}");
            assert_eq!(outcome.exit_code(), Some(3));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_ends_the_stream_does_not_hold_the_result_back() {
    let (url, _served) = serve(|mut peer| async move {
        peer.post().await;
        peer.send(&[OK, &frames()].concat()).await;
        std::future::pending::<()>().await;
    })
    .await;
    run(&url, Transport::Hijack).await.is_whole();
}

fn error_answer(status: &str, kind: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

#[tokio::test]
async fn errors_say_what_the_server_said_and_what_to_do() {
    // rule: EXEC-35
    let json = "application/json";
    for (status, body, code, shown) in [
        (
            "401 Unauthorized",
            "{\"error\":\"unknown key\",\"code\":\"\"}\n",
            "refused",
            "check the key file (status 401: unknown key)",
        ),
        (
            "404 Not Found",
            "{\"error\":\"no such sandbox\",\"code\":\"not_found\"}\n",
            "not_found",
            "check its name (status 404: no such sandbox)",
        ),
        ("404 Not Found", "<h1>Not here</h1>", "refused", "and the proxy before it (status 404)"),
        (
            "426 Upgrade Required",
            "{\"error\":\"version 13\"}\n",
            "refused",
            "(status 426: version 13)",
        ),
        (
            "500 Oh",
            "{\"error\":\"\\u001b[31mred\"}",
            "refused",
            "see its log (status 500:  [31mred)",
        ),
        ("400 Bad", "<html>\n", "refused", "malformed (status 400: <html>)"),
        ("503 Busy", "", "refused", "try again later (status 503)"),
    ] {
        for transport in [Transport::OneShot, Transport::Hijack] {
            let error = against(error_answer(status, json, body), transport).await.unwrap_err();
            assert!(matches!(error, ClientError::Refused { .. }));
            assert_eq!((error.code(), error.status()), (code, 125));
            assert!(error.to_string().ends_with(shown), "{error}");
        }
    }
    // Chunked, and longer than anyone would read.
    let mut long = b"HTTP/1.1 400 Bad\r\nTransfer-Encoding: chunked\r\n\r\n30000\r\n".to_vec();
    long.extend_from_slice(&[b'x'; 0x30000]);
    let error = against(long, Transport::OneShot).await.unwrap_err();
    assert!(error.to_string().len() < 400, "{error}");
}

#[tokio::test]
async fn a_refusal_before_the_whole_request_was_read_is_heard() {
    let mut request = request();
    request.cmd.push("x".repeat(1_000_000));
    let (url, served) = serve(|mut peer| async move {
        peer.head().await;
        peer.send(&error_answer("401 Unauthorized", "application/json", "{\"error\":\"no\"}"))
            .await;
        peer.end().await
    })
    .await;
    let error = client(&url).exec("local", &request).start().await.unwrap_err();
    assert!(matches!(error, ClientError::Refused { status: 401, .. }), "{error}");
    served.await.unwrap();

    request.cmd.push("x".repeat(1_000_000));
    let error = client("http://127.0.0.1:1").exec("local", &request).start().await.unwrap_err();
    assert_eq!(error.code(), "request_too_large");
}

#[tokio::test]
async fn what_is_no_answer_is_named() {
    for (answer, code) in [
        (&b""[..], "no_answer"),
        (b"HTTP/1.1 200", "no_answer"),
        (b"SSH-2.0-OpenSSH_9.7\r\n\r\n", "head_malformed"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>", "content_type"),
    ] {
        let error = against(answer.to_vec(), Transport::OneShot).await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
    }
    let endless = [&b"HTTP/1.1 200 OK\r\nX: "[..], &[b'x'; 70_000]].concat();
    let (url, _served) = serve(move |mut peer| async move {
        peer.post().await;
        peer.send(&endless).await;
        peer.end().await
    })
    .await;
    let error = client(&url).exec("local", &request()).start().await.unwrap_err();
    assert_eq!(error.code(), "head_too_large");
}

#[tokio::test]
async fn nothing_is_sent_for_what_does_not_fit_a_head() {
    // rule: EXEC-38
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let request = request();
    for transport in [Transport::OneShot, Transport::Hijack, Transport::WebSocket] {
        for (key, sandbox) in
            [("k\r\nX-A: 1", "local"), ("", "local"), ("k", "a\r\nb"), ("k", "../x")]
        {
            let client = Client::builder(&url).key(key).build().unwrap();
            let error =
                client.exec(sandbox, &request).transport(transport).start().await.unwrap_err();
            assert_eq!(error.code(), "unclean_head", "{error}");
        }
    }
    let client = client(&url);
    let exec = client.exec("local", &request).interactive().transport(Transport::OneShot);
    assert_eq!(exec.start().await.unwrap_err().code(), "interactive_one_shot");
    // Not even a connection was made.
    let accepted =
        std::future::poll_fn(|cx| std::task::Poll::Ready(listener.poll_accept(cx))).await;
    assert!(accepted.is_pending());
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = client(&url).exec("local", &request()).start().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("nothing listens at {url}; is the gateway running there?")
    );
    assert!(std::error::Error::source(&error).is_some());

    // No route leads there, and no answer comes.
    let client =
        Client::builder("http://192.0.2.1:9").connect_timeout(Duration::ZERO).build().unwrap();
    let error = client.exec("local", &request()).start().await.unwrap_err();
    assert!(matches!(error, ClientError::ConnectTimeout { .. } | ClientError::Connect { .. }));
}

#[test]
fn urls_are_judged_before_anything_is_sent() {
    #[cfg(not(feature = "tls"))]
    for url in ["https://example.org", "wss://example.org"] {
        let error = Client::builder(url).build().unwrap_err();
        assert!(matches!(error, ClientError::Url(UrlError::Tls)));
        assert!(error.to_string().contains("feature `tls`"), "{error}");
    }
    for (url, expected) in [
        ("ftp://example.org", UrlError::Scheme),
        ("http://me:pw@example.org", UrlError::Credentials),
        ("http://example.org/?x=1", UrlError::Query),
    ] {
        match Client::builder(url).build() {
            Err(ClientError::Url(error)) => assert_eq!(error, expected),
            other => panic!("{url}: {other:?}"),
        }
    }
    let client = Client::builder("ws://localhost:7878/x/").build().unwrap();
    assert_eq!(client.url(), "http://localhost:7878/x");
    let error = Client::builder("127.0.0.1:7878").build().unwrap_err();
    assert!(error.to_string().contains("http://"), "{error}");
    let client = Client::builder("http://[::1]:7878/").key("hush").build().unwrap();
    assert_eq!(client.url(), "http://[::1]:7878");
    let mut request = request();
    request.env.push(("TOKEN".into(), "hush".into()));
    let exec = client.exec("local", &request);
    let bytes = format!("{:?}", b"hush");
    let shown = format!("{client:?} {exec:?}");
    assert!(!shown.contains("hush") && !shown.contains(bytes.trim_matches(['[', ']'])));
}

#[tokio::test]
async fn a_path_before_the_route_is_kept() {
    let (url, served) = serve(|mut peer| async move {
        let head = peer.post().await;
        peer.send(&[OK, &frames()].concat()).await;
        peer.end().await;
        head
    })
    .await;
    run(&format!("{url}/team/a/"), Transport::OneShot).await.is_whole();
    let head = served.await.unwrap();
    assert!(head.starts_with("POST /team/a/sandboxes/local/exec HTTP/1.1\r\n"), "{head}");
}
