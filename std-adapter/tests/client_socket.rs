//! WebSocket against scripted bytes.
#![cfg(feature = "client")]
#![allow(missing_docs)]

mod client_common;

use client_common::*;
use futures_util::StreamExt;
use tokio::io::AsyncWriteExt;
use triwire_std::client::{ClientError, OwnedOutput, Transport};
use triwire_std::record::ExecResult;

struct Seen {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    end: Result<(), ClientError>,
    result: Option<ExecResult>,
    /// The client's close frame.
    close: Option<(u16, String)>,
}

impl Seen {
    fn is_whole(&self) {
        assert_eq!((&self.stdout[..], &self.stderr[..]), (&b"hello"[..], &b"oops"[..]));
        assert_eq!(self.result.as_ref().map(|result| result.exit_code), Some(3));
        assert!(self.end.is_ok(), "{:?}", self.end);
    }

    fn error(&self) -> &ClientError {
        self.end.as_ref().unwrap_err()
    }
}

/// Runs against a server that upgrades, sends `wire`, ends, and reads to the client's close frame.
async fn against(wire: Vec<u8>) -> Seen {
    let (url, served) = serve(move |mut peer| async move {
        peer.upgrade(b"").await;
        peer.send(&wire).await;
        peer.stream.shutdown().await.unwrap();
        peer.close_frame().await
    })
    .await;
    let Outcome { stdout, stderr, session, end } = run(&url, Transport::WebSocket).await;
    let result = session.result();
    drop(session);
    Seen { stdout, stderr, end, result, close: served.await.unwrap() }
}

fn messages(bytes: &[u8], sizes: &[usize]) -> Vec<u8> {
    let (mut wire, mut rest) = (Vec::new(), bytes);
    for size in sizes {
        let (part, behind) = rest.split_at(*size);
        wire.extend_from_slice(&binary(part));
        rest = behind;
    }
    if !rest.is_empty() {
        wire.extend_from_slice(&binary(rest));
    }
    wire
}

#[tokio::test]
async fn the_upgrade_and_the_input_are_what_the_contract_says() {
    // rule: EXEC-24
    // rule: EXEC-25
    let (url, served) = serve(|mut peer| async move {
        let head = peer.upgrade(b"").await;
        let end_of_input = peer.message().await.unwrap();
        peer.send(&[binary(&frames()), close(1000, "")].concat()).await;
        (head, end_of_input, peer.close_frame().await)
    })
    .await;
    let outcome = run(&url, Transport::WebSocket).await;
    outcome.is_whole();
    drop(outcome);
    let (head, end_of_input, answered) = served.await.unwrap();
    assert!(head.starts_with("GET /sandboxes/local/exec HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("\r\nAuthorization: Bearer k-123\r\n"));
    assert_eq!(end_of_input, (2, frame(5, b"")));
    assert_eq!(answered.unwrap().0, 1000);
}

#[tokio::test]
async fn frames_behind_the_101_in_the_same_read_are_not_lost() {
    // rule: EXEC-25
    let (url, _served) = serve(|mut peer| async move {
        peer.upgrade(&[binary(&frames()), close(1000, "")].concat()).await;
        peer.end().await
    })
    .await;
    run(&url, Transport::WebSocket).await.is_whole();
}

#[tokio::test]
async fn messages_carry_no_boundaries() {
    // rule: EXEC-25
    let seven = [frame(1, b"hello"), frame(2, b"oops")].concat();
    assert_eq!(frame(1, b"hello").len() + 2, 15);
    for sizes in [&[5, 1, 9][..], &[8, 5, 0, 8, 4, 8], &[1, 1, 1, 1, 1, 1, 1, 1], &[]] {
        let wire = [messages(&[&seven[..], &frame(3, EXIT)].concat(), sizes), close(1000, "")];
        against(wire.concat()).await.is_whole();
    }
    // Byte by byte, one message each, each byte its own segment.
    let (url, _served) = serve(|mut peer| async move {
        let head = peer.head().await;
        let ones = vec![1; frames().len()];
        let wire = [messages(&frames(), &ones), close(1000, "")].concat();
        peer.trickle(&[switching(&head).as_bytes(), &wire].concat()).await;
        peer.end().await
    })
    .await;
    run(&url, Transport::WebSocket).await.is_whole();
}

#[tokio::test]
async fn fragments_and_pings_between_them_are_the_library_s_matter() {
    let all = frames();
    let mut first = binary(&all[..9]);
    first[0] = 0x02;
    let mut last = binary(&all[9..]);
    last[0] = 0x80;
    let (url, served) = serve(move |mut peer| async move {
        peer.upgrade(&[first, message(9, b"there?")].concat()).await;
        // The application only reads, and still the pong comes.
        while peer.message().await.unwrap() != (10, b"there?".to_vec()) {}
        peer.send(&[last, close(1000, "")].concat()).await;
        peer.end().await
    })
    .await;
    let outcome = run(&url, Transport::WebSocket).await;
    outcome.is_whole();
    drop(outcome);
    served.await.unwrap();
}

#[tokio::test]
async fn only_an_exit_frame_is_success() {
    // rule: EXEC-26
    let seen = against([binary(&frame(1, b"ok")), close(1000, "")].concat()).await;
    assert_eq!((&seen.stdout[..], seen.error().code()), (&b"ok"[..], "missing_exit"));
    assert!(seen.error().is_lost() && seen.result.is_none());

    let seen = against(close(1008, "cmd: expected at least\x1b[31m the program")).await;
    let shown = seen.error().to_string();
    assert!(shown.contains("1008: cmd: expected at least [31m the program"), "{shown}");
    assert!(!seen.error().is_lost());
    match seen.error() {
        ClientError::Closed(lost) => assert_eq!(lost.close.unwrap().code, 1008),
        other => panic!("{other:?}"),
    }

    let seen = against(close(1011, "guest did not answer")).await;
    assert!(seen.error().to_string().contains("1011: guest did not answer"));
    // A close frame without a code, and no close frame at all.
    assert_eq!(against(message(8, b"")).await.error().code(), "missing_exit");
    let seen = against(binary(&frame(1, b"abc")[..9])).await;
    assert_eq!((&seen.stdout[..], seen.error().code()), (&b"a"[..], "truncated"));
    // Behind the exit no close code takes the result away.
    for end in [close(1011, "late"), close(1000, ""), Vec::new()] {
        against([binary(&frames()), end].concat()).await.is_whole();
    }
}

#[tokio::test]
async fn faults_of_the_server_are_named_on_both_sides() {
    // rule: EXEC-27
    // rule: EXEC-29
    // rule: EXEC-9
    let ok = binary(&frame(1, b"ok"));
    let mut masked = binary(b"");
    masked[1] |= 0x80;
    masked.extend_from_slice(&[0; 4]);
    let mut huge = binary(b"");
    huge.truncate(1);
    huge.push(127);
    let mut too_large = huge.clone();
    too_large.extend_from_slice(&(1_048_577_u64).to_be_bytes());
    huge.extend_from_slice(&u64::MAX.to_be_bytes());
    let again = binary(&[frame(3, EXIT), frame(3, EXIT)].concat());
    for (bad, code, close) in [
        (message(1, b"hi"), "websocket_protocol", 1003),
        (binary(&[9; 8]), "unknown_type", 1002),
        (again, "after_exit", 1002),
        (masked, "websocket_protocol", 1002),
        (huge, "websocket_protocol", 1002),
        (too_large, "websocket_protocol", 1009),
    ] {
        let seen = against([ok.clone(), bad].concat()).await;
        assert_eq!((&seen.stdout[..], seen.error().code()), (&b"ok"[..], code));
        assert_eq!(seen.close.unwrap().0, close, "{code}");
        assert_eq!(seen.result.is_some(), code == "after_exit");
    }
}

#[tokio::test]
async fn an_upgrade_that_is_none_is_refused() {
    // rule: EXEC-23
    for (answer, code) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "refused"),
        (
            "HTTP/1.1 101 Ok\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n",
            "upgrade_refused",
        ),
        (
            "HTTP/1.1 404 No\r\nContent-Length: 46\r\n\r\n{\"error\":\"no such sandbox\",\"code\":\"not_found\"}",
            "not_found",
        ),
        ("HTTP/1.1 426 Upgrade\r\nContent-Length: 0\r\n\r\n", "refused"),
    ] {
        let (url, _served) = serve(move |mut peer| async move {
            peer.head().await;
            peer.send(answer.as_bytes()).await;
            peer.end().await
        })
        .await;
        let request = request();
        let client = client(&url);
        let exec = client.exec("local", &request).transport(Transport::WebSocket);
        let error = exec.start().await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
    }
}

#[tokio::test]
async fn the_output_is_a_stream_too() {
    let (url, _served) = serve(|mut peer| async move {
        peer.upgrade(&[binary(&frames()), close(1000, "")].concat()).await;
        peer.end().await
    })
    .await;
    let request = request();
    let client = client(&url);
    let exec = client.exec("local", &request).transport(Transport::WebSocket);
    let mut stream = exec.start().await.unwrap().into_stream();
    assert_eq!(stream.next().await.unwrap().unwrap(), OwnedOutput::Stdout("hello".into()));
    assert_eq!(stream.next().await.unwrap().unwrap(), OwnedOutput::Stderr("oops".into()));
    match stream.next().await.unwrap().unwrap() {
        OwnedOutput::Exit(result) => assert_eq!((result.exit_code, result.duration_ms), (3, 12)),
        other => panic!("{other:?}"),
    }
    assert!(stream.next().await.is_none());
    assert!(stream.next().await.is_none());

    let (url, _served) = serve(|mut peer| async move {
        peer.upgrade(&close(1000, "")).await;
        peer.end().await
    })
    .await;
    let client = client_common::client(&url);
    let exec = client.exec("local", &request).transport(Transport::WebSocket);
    let mut stream = exec.start().await.unwrap().into_stream();
    assert_eq!(stream.next().await.unwrap().unwrap_err().code(), "missing_exit");
    assert!(stream.next().await.is_none());
}
