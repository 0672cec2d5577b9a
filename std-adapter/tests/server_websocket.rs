//! The server's WebSocket transport, over real sockets.
#![cfg(all(feature = "server", feature = "guest"))]

mod server_common;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use server_common::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};
use tokio_tungstenite::tungstenite::{Error, Message};
use triwire::exec::frame::Kind;
use triwire_std::server::{OUTBOX, Server};

type Client = WebSocketStream<TcpStream>;

async fn upgraded(mut stream: TcpStream, upgrade: &str) -> Client {
    stream.set_nodelay(true).unwrap();
    stream.write_all(upgrade.as_bytes()).await.unwrap();
    let answer = read_head(&mut stream).await;
    assert_eq!(answer.status, 101, "{}", answer.head);
    assert!(answer.has("sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    WebSocketStream::from_partially_read(stream, answer.rest, Role::Client, None).await
}

async fn begin(gateway: &Gateway, json: &str) -> Client {
    let mut client = upgraded(gateway.connect().await, &gateway.upgrade()).await;
    client.send(Message::text(json)).await.unwrap();
    client
}

async fn send(client: &mut Client, bytes: impl Into<Bytes>) {
    within(client.send(Message::Binary(bytes.into()))).await.unwrap();
}

/// Reads to the close frame: what the frames said, and the close.
async fn to_close(client: &mut Client) -> (Frames, CloseFrame) {
    let mut frames = Frames::default();
    loop {
        match within(client.next()).await.expect("a close frame").unwrap() {
            Message::Binary(bytes) => frames.feed(&bytes),
            Message::Close(close) => return (frames, close.unwrap()),
            Message::Ping(_) | Message::Pong(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Reads to the close, and through it to the end of the connection.
async fn to_end(client: &mut Client) -> (Frames, u16, String) {
    let (frames, close) = to_close(client).await;
    assert!(within(client.next()).await.is_none());
    (frames, close.code.into(), close.reason.as_str().to_owned())
}

/// A frame of WebSocket as a client sends it, masked with zeros.
fn masked(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80 | opcode, 0x80 | u8::try_from(payload.len()).unwrap(), 0, 0, 0, 0];
    frame.extend_from_slice(payload);
    frame
}

// rule: EXEC-24, EXEC-25, EXEC-26
#[tokio::test]
async fn a_session_from_the_request_to_the_close() {
    let (guest, mut scripts) = scripted(Stdin::Take);
    let gateway = Gateway::start(guest).await;
    for text in [true, false] {
        let mut client = upgraded(gateway.connect().await, &gateway.upgrade()).await;
        let request = r#"{"cmd":["a"],"timeout_s":9}"#;
        let message = if text { Message::text(request) } else { Message::binary(request) };
        client.send(message).await.unwrap();
        let mut script = scripts.next().await;
        assert_eq!(script.request.timeout_s, 9);
        // Messages of 5, 1 and 9 bytes carry two frames; one carries many and a part.
        let two = [frame(Kind::Stdin, b"abc"), frame(Kind::Stdin, b"d")].concat();
        let (first, rest) = two.split_at(5);
        let (second, third) = rest.split_at(1);
        for part in [first, second, &third[..9]] {
            send(&mut client, part.to_vec()).await;
        }
        let last = [&third[9..], &frame(Kind::Stdin, b"ef"), &frame(Kind::StdinClose, b"")];
        send(&mut client, last.concat()).await;
        assert_eq!(script.take_input(6).await, b"abcdef");
        assert_eq!(script.input.recv().await.unwrap(), b"");
        script.stdout(&b"out"[..]);
        script.stderr(vec![2; 100_000]);
        script.exit(5);
        let (frames, code, reason) = to_end(&mut client).await;
        let told = frames.finish().unwrap();
        assert_eq!((&told.stdout[..], told.stderr.len()), (&b"out"[..], 100_000));
        assert_eq!((told.exit().exit_code, code, &*reason), (5, 1000, ""));
    }
}

#[tokio::test]
async fn messages_in_the_same_read_as_the_upgrade_are_not_lost() {
    let (guest, mut scripts) = scripted(Stdin::Take);
    let gateway = Gateway::start(guest).await;
    let mut stream = gateway.connect().await;
    let mut bytes = gateway.upgrade().into_bytes();
    bytes.extend(masked(1, REQUEST.as_bytes()));
    bytes.extend(masked(2, &frame(Kind::Stdin, b"early")));
    stream.write_all(&bytes).await.unwrap();
    let mut script = scripts.next().await;
    assert_eq!(script.take_input(5).await, b"early");
    script.exit(0);
    let answer = read_head(&mut stream).await;
    let mut client =
        WebSocketStream::from_partially_read(stream, answer.rest, Role::Client, None).await;
    assert_eq!(to_end(&mut client).await.1, 1000);
}

// rule: EXEC-23
#[tokio::test]
async fn an_upgrade_is_judged_before_it_is_made() {
    let (guest, _scripts) = scripted(Stdin::Take);
    let gateway = Gateway::start(guest).await;
    let upgrade = gateway.upgrade();
    let key = "dGhlIHNhbXBsZSBub25jZQ==";
    for (status, request) in [
        (101, upgrade.replace("Connection: Upgrade", "connection: keep-alive, upgrade")),
        (101, upgrade.replace("Upgrade: websocket", "Upgrade: WebSocket")),
        (426, upgrade.replace("Version: 13", "Version: 8")),
        (426, upgrade.replace("Sec-WebSocket-Version: 13\r\n", "")),
        (426, upgrade.replace("Upgrade: websocket\r\n", "")),
        (400, upgrade.replace(key, "")),
        (400, upgrade.replace(key, "!!!!!!!!!!!!!!!!!!!!!!!!")),
        (400, upgrade.replace(key, "AAAAAAAAAAAAAAAAAAAA")),
        (401, upgrade.replace(KEY, "wrong")),
        (404, upgrade.replace("local", "other")),
    ] {
        let mut stream = gateway.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = read_head(&mut stream).await;
        assert_eq!(answer.status, status, "{request}");
        assert!(status != 426 || answer.has("sec-websocket-version: 13"));
    }
}

// rule: EXEC-17
#[tokio::test]
async fn a_refused_request_closes_with_the_member_in_the_reason() {
    let (guest, mut scripts) = scripted(Stdin::Take);
    let gateway = Gateway::start(guest).await;
    for (json, member) in [
        ("[]", "request"),
        (r#"{"cmd":[1]}"#, "cmd"),
        (r#"{"cmd":["a"],"timeout_s":-1}"#, "timeout_s"),
    ] {
        let mut client = begin(&gateway, json).await;
        let (_, code, reason) = to_end(&mut client).await;
        assert_eq!(code, 1008);
        assert!(reason.starts_with(member), "{reason}");
    }
    assert!(scripts.none_started());
}

// rule: EXEC-24
#[tokio::test(start_paused = true)]
async fn a_request_that_does_not_come_closes_1008() {
    let (guest, _scripts) = scripted(Stdin::Take);
    let gateway = Gateway::start(guest).await;
    let mut client = upgraded(gateway.connect().await, &gateway.upgrade()).await;
    let begun = tokio::time::Instant::now();
    let (_, code, reason) = to_end(&mut client).await;
    assert_eq!(code, 1008);
    assert!(reason.contains("30 s"), "{reason}");
    assert!(begun.elapsed() >= Duration::from_secs(29), "{:?}", begun.elapsed());
}

// rule: EXEC-26
#[tokio::test]
async fn a_guest_out_of_reach_closes_1011_and_a_lost_one_by_name() {
    let gateway = Gateway::start(Arc::new(OutOfReach)).await;
    let mut client = begin(&gateway, REQUEST).await;
    let (frames, code, reason) = to_end(&mut client).await;
    assert_eq!(code, 1011);
    assert!(reason.contains("its door is locked"), "{reason}");
    assert!(frames.told.exit.is_none());

    let (guest, mut scripts) = scripted(Stdin::Take);
    let gateway = Gateway::start(guest).await;
    let mut client = begin(&gateway, REQUEST).await;
    let script = scripts.next().await;
    script.stdout(&b"so far"[..]);
    script.lose();
    let (frames, code, _) = to_end(&mut client).await;
    let told = frames.finish().unwrap();
    assert_eq!((&told.stdout[..], told.exit().exit_code, code), (&b"so far"[..], -1, 1000));
    assert!(told.exit().error.contains("the machine died"));
}

// rule: EXEC-27, EXEC-29, EXEC-30
#[tokio::test]
async fn what_a_client_may_not_send_kills_the_command_and_closes_with_its_code() {
    let mut huge = masked(2, b"")[..1].to_vec();
    huge.extend([0xff, 0, 0, 0, 0, 0, 0x10, 0, 1, 0, 0, 0, 0]);
    let mut endless = vec![0x82, 0xff];
    endless.extend([0xff; 12]);
    for (bytes, code, why) in [
        (masked(2, &[6]), 1002, "unknown_type at byte 0"),
        (masked(2, &frame(Kind::Stderr, b"x")), 1002, "wrong_direction at byte 0"),
        (masked(1, b"text"), 1003, "text"),
        (huge, 1009, ""),
        (endless, 1002, ""),
        (vec![0x82, 1, b'x'], 1002, ""),
        (masked(8, b"x"), 1002, ""),
        (masked(3, b""), 1002, ""),
    ] {
        let (guest, mut scripts) = scripted(Stdin::Take);
        let gateway = Gateway::start(guest).await;
        let mut client = begin(&gateway, REQUEST).await;
        let script = scripts.next().await;
        client.get_mut().write_all(&bytes).await.unwrap();
        let (frames, close) = to_close(&mut client).await;
        assert_eq!(u16::from(close.code), code, "{bytes:?}: {}", close.reason);
        assert!(close.reason.contains(why), "{}", close.reason);
        assert!(frames.told.exit.is_none());
        script.dropped().await;
    }
}

// rule: EXEC-22
#[tokio::test]
async fn a_client_that_goes_away_ends_its_command_at_every_stage() {
    let (hanging, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let gateway = Gateway::start(Arc::new(Hanging(hanging))).await;
    let client = begin(&gateway, REQUEST).await;
    let given_up = within(begun.recv()).await.unwrap();
    drop(client);
    within(given_up).await.unwrap_err();

    let (guest, mut scripts) = scripted(Stdin::Block);
    let gateway = Gateway::start(guest).await;
    // Before the request.
    drop(upgraded(gateway.connect().await, &gateway.upgrade()).await);
    // Silent; with some input waiting; by a close frame of its own.
    for (waiting, close) in [(0, false), (20_000, false), (0, true)] {
        let mut client = begin(&gateway, REQUEST).await;
        let script = scripts.next().await;
        if waiting > 0 {
            send(&mut client, frame(Kind::Stdin, &vec![0; waiting])).await;
        }
        if close {
            client.close(None).await.unwrap();
            assert!(matches!(within(client.next()).await, Some(Ok(Message::Close(None)))));
            assert!(within(client.next()).await.is_none());
        }
        drop(client);
        script.dropped().await;
    }
    assert!(scripts.none_started());
}

// rule: EXEC-50
#[tokio::test(start_paused = true)]
async fn a_client_killed_with_a_mib_waiting_is_noticed_by_the_next_ping() {
    let (guest, mut scripts) = scripted(Stdin::Block);
    let gateway = Gateway::start(guest).await;
    let mut client = begin(&gateway, REQUEST).await;
    let script = scripts.next().await;
    let (sent, mut to_send) = (&mut client, 1 << 20);
    while to_send > 0 {
        let message = Message::binary(frame(Kind::Stdin, &[0; 32_768]));
        // What does not go out in time stays behind: all buffers are full.
        let sending = tokio::time::timeout(Duration::from_secs(1), sent.send(message)).await;
        if sending.is_err() {
            break;
        }
        to_send -= 32_768;
    }
    let begun = tokio::time::Instant::now();
    drop(client);
    script.dropped().await;
    assert!(begun.elapsed() <= Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_silent_session_is_pinged_every_20_s() {
    let (guest, mut scripts) = scripted(Stdin::Take);
    let gateway = Gateway::start(guest).await;
    let mut client = begin(&gateway, REQUEST).await;
    let _script = scripts.next().await;
    let mut before = tokio::time::Instant::now();
    for _ in 0..3 {
        assert!(matches!(within(client.next()).await, Some(Ok(Message::Ping(_)))));
        let now = tokio::time::Instant::now();
        assert!((now - before).as_secs_f64().round() == 20.0, "{:?}", now - before);
        before = now;
    }
}

// rule: EXEC-40
#[tokio::test(start_paused = true)]
async fn a_client_that_never_answers_the_close_is_let_go_after_2_s() {
    let (guest, mut scripts) = scripted(Stdin::Take);
    let gateway = Gateway::start(guest).await;
    let mut stream = gateway.connect().await;
    let upgrade = gateway.upgrade();
    stream.write_all(upgrade.as_bytes()).await.unwrap();
    stream.write_all(&masked(1, REQUEST.as_bytes())).await.unwrap();
    scripts.next().await.exit(0);
    let begun = tokio::time::Instant::now();
    let mut all = Vec::new();
    within(stream.read_to_end(&mut all)).await.unwrap();
    assert!(all.ends_with(&[0x88, 2, 0x03, 0xe8]), "the close frame is the last");
    let waited = begun.elapsed().as_secs_f64();
    assert!((1.9..3.0).contains(&waited), "{waited}");
}

// rule: EXEC-40
#[tokio::test]
async fn unread_input_costs_no_output() {
    let (guest, mut scripts) = scripted(Stdin::Block);
    let gateway = Gateway::start(guest).await;
    let mut client = begin(&gateway, REQUEST).await;
    send(&mut client, frame(Kind::Stdin, &[0; 65_536])).await;
    let script = scripts.next().await;
    let output: Vec<u8> = (0..2 << 20).map(|n: u32| (n / 1000) as u8).collect();
    script.stdout(output.clone());
    script.exit(0);
    send(&mut client, frame(Kind::Stdin, &[0; 65_536])).await;
    let (frames, code, _) = to_end(&mut client).await;
    let told = frames.finish().unwrap();
    assert_eq!((told.stdout == output, code), (true, 1000));
}

#[tokio::test]
async fn sixty_four_mib_each_way_through_a_real_command() {
    const TOTAL: usize = 64 << 20;
    let (guest, _folder) = processes();
    let gateway = Gateway::start(guest).await;
    let (mut sink, mut stream) = begin(&gateway, r#"{"cmd":["cat"]}"#).await.split();
    let sending = tokio::spawn(async move {
        for n in 0..TOTAL / 65_536 {
            let message = frame(Kind::Stdin, &[n as u8; 65_536]);
            sink.send(Message::binary(message)).await.unwrap();
        }
        sink.send(Message::binary(frame(Kind::StdinClose, b""))).await.unwrap();
        sink
    });
    let mut frames = Frames::default();
    let mut closed = false;
    while let Some(message) = within(stream.next()).await {
        match message.unwrap() {
            Message::Binary(bytes) => frames.feed(&bytes),
            Message::Close(close) => closed = close.unwrap().code == 1000.into(),
            _ => {}
        }
    }
    let told = frames.finish().unwrap();
    assert!(closed);
    assert_eq!((told.exit().exit_code, told.stdout.len()), (0, TOTAL));
    let mut pieces = told.stdout.chunks(65_536).enumerate();
    assert!(pieces.all(|(n, piece)| piece.iter().all(|b| *b == n as u8)));
    drop(sending.await.unwrap());
}

// rule: EXEC-48
#[tokio::test]
async fn sixty_four_mib_pass_in_constant_memory() {
    const TOTAL: usize = 64 << 20;
    let source = Source::new(TOTAL);
    let gateway = Gateway::start(Arc::new(source.clone())).await;
    let mut client = begin(&gateway, REQUEST).await;
    let (frames, code, _) = to_end(&mut client).await;
    assert_eq!((frames.finish().unwrap().stdout.len(), code), (TOTAL, 1000));
    let most = source.most.load(Ordering::SeqCst);
    assert!(most <= OUTBOX, "{most} bytes at once");
}

#[tokio::test]
async fn a_shutdown_ends_sessions_by_name() {
    let (guest, mut scripts) = scripted(Stdin::Take);
    let gateway = Gateway::start(guest).await;
    let mut waiting = upgraded(gateway.connect().await, &gateway.upgrade()).await;
    let mut running = begin(&gateway, REQUEST).await;
    let script = scripts.next().await;
    let stopping = gateway.stop();
    let (frames, code, _) = to_end(&mut running).await;
    let told = frames.finish().unwrap();
    assert_eq!((told.exit().exit_code, code), (-1, 1000));
    assert_eq!(told.exit().error, "the gateway is shutting down");
    script.dropped().await;
    let (_, code, reason) = to_end(&mut waiting).await;
    assert_eq!((code, &*reason), (1001, "the gateway is shutting down"));
    drop((waiting, running));
    within(stopping).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_router_serves_websocket_too() {
    let (guest, mut scripts) = scripted(Stdin::Take);
    let server = Server::builder().sandbox("local", guest).open().build().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = server.router(address);
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    let upgrade = format!(
        "GET /sandboxes/local/exec HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    for ended_by_server in [false, true] {
        let stream = TcpStream::connect(address).await.unwrap();
        let mut client = upgraded(stream, &upgrade).await;
        client.send(Message::text(REQUEST)).await.unwrap();
        send(&mut client, frame(Kind::Stdin, b"in")).await;
        let mut script = scripts.next().await;
        assert_eq!(script.take_input(2).await, b"in");
        if ended_by_server {
            server.end_sessions()
        } else {
            script.exit(0)
        }
        let (frames, code, _) = to_end(&mut client).await;
        let exit_code = if ended_by_server { -1 } else { 0 };
        assert_eq!((frames.finish().unwrap().exit().exit_code, code), (exit_code, 1000));
    }
    serving.abort();
}

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

#[tokio::test]
async fn a_thousand_idle_sessions_take_little_memory() {
    const SESSIONS: usize = 1000;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let (guest, mut scripts) = scripted(Stdin::Take);
    let gateway = Gateway::start(guest).await;
    let mut open = Vec::new();
    let mut before = 0;
    for n in 0..SESSIONS + 50 {
        // The first ones grow what all have in common.
        if n == 50 {
            before = resident();
        }
        let mut stream = gateway.connect().await;
        let mut bytes = gateway.upgrade().into_bytes();
        bytes.extend(masked(1, REQUEST.as_bytes()));
        stream.write_all(&bytes).await.unwrap();
        let script = scripts.next().await;
        script.stdout(&b"$ "[..]);
        read_head(&mut stream).await;
        open.push((stream, script));
    }
    let each = resident().saturating_sub(before) / SESSIONS;
    println!("{each} bytes a session, both ends");
    assert!(each <= 64 * 1024, "{each} bytes a session, both ends");
}

#[tokio::test]
async fn a_broken_transport_is_an_end_not_a_panic() {
    let (guest, mut scripts) = scripted(Stdin::Take);
    let gateway = Gateway::start(guest).await;
    let client = begin(&gateway, REQUEST).await;
    let script = scripts.next().await;
    client.get_ref().set_zero_linger().unwrap();
    drop(client);
    script.dropped().await;
    let mut client = begin(&gateway, REQUEST).await;
    let _script = scripts.next().await;
    drop(gateway.stop().await);
    while let Some(message) = client.next().await {
        assert!(!matches!(message, Err(Error::Protocol(_))), "{message:?}");
    }
}
