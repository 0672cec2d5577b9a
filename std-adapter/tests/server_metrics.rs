//! What a server counts, and its page, over real sockets.
#![cfg(all(feature = "server", feature = "guest"))]

mod server_common;

use std::sync::Arc;

use futures_util::{SinkExt, StreamExt};
use server_common::*;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;
use triwire::exec::frame::Kind;
use triwire_std::server::{
    End, METRICS_PATH, Metrics, MetricsAccess, Server, SessionMetrics, Transport,
};

fn of(gateway: &Gateway, transport: Transport) -> SessionMetrics {
    let sessions = gateway.server.metrics().sessions;
    sessions.into_iter().find(|of| of.transport == transport).unwrap()
}

/// Waits until a figure is what it must become.
async fn until(is: impl Fn() -> bool) {
    within(async {
        while !is() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn until_ended(gateway: &Gateway, transport: Transport, end: End, count: u64) {
    until(|| of(gateway, transport).ends(end) == count).await;
    let figures = of(gateway, transport);
    let ended: u64 = End::ALL.into_iter().map(|end| figures.ends(end)).sum();
    assert_eq!(figures.begun - figures.running, ended, "{figures:?}");
}

fn refused(gateway: &Gateway) -> Vec<(u16, &'static str, u64)> {
    let refusals = gateway.server.metrics().refusals;
    refusals.into_iter().map(|refusal| (refusal.status, refusal.code, refusal.count)).collect()
}

async fn hijacked(gateway: &Gateway) -> TcpStream {
    let mut stream = gateway.connect().await;
    stream.write_all(&gateway.hijack(REQUEST)).await.unwrap();
    stream
}

async fn upgraded(gateway: &Gateway, first: &str) -> WebSocketStream<TcpStream> {
    let mut stream = gateway.connect().await;
    stream.write_all(gateway.upgrade().as_bytes()).await.unwrap();
    let answer = read_head(&mut stream).await;
    assert_eq!(answer.status, 101);
    let mut socket =
        WebSocketStream::from_partially_read(stream, answer.rest, Role::Client, None).await;
    socket.send(Message::text(first)).await.unwrap();
    socket
}

/// Reads to the close frame; its code.
async fn close_code(socket: &mut WebSocketStream<TcpStream>) -> u16 {
    loop {
        if let Message::Close(close) = within(socket.next()).await.unwrap().unwrap() {
            return close.unwrap().code.into();
        }
    }
}

// rule: EXEC-76
#[tokio::test]
async fn frames_and_bytes_are_counted_by_kind_however_they_are_cut() {
    use Kind::{Exit, Stderr, Stdin as Input, StdinClose, Stdout};
    let (guest, mut scripts) = scripted(Stdin::Take);
    let gateway = Gateway::start(guest).await;
    let long = frame(Input, &[7; 1000]);
    let close = frame(StdinClose, b"");

    let mut stream = hijacked(&gateway).await;
    let mut script = scripts.next().await;
    assert_eq!(of(&gateway, Transport::Hijack).running, 1);
    // One frame in three pieces: of its header, of its payload.
    for (piece, taken) in [(&long[..5], 0), (&long[5..300], 292), (&long[300..], 708)] {
        stream.write_all(piece).await.unwrap();
        script.take_input(taken).await;
    }
    stream.write_all(&[&long[..], &close].concat()).await.unwrap();
    script.take_input(1000).await;
    assert_eq!(script.input.recv().await.unwrap(), b"");
    script.stdout(vec![1; 65_537]);
    script.stderr(&b"why"[..]);
    script.exit(0);
    let answer = read_head(&mut stream).await;
    frames_to_end(&mut stream, &answer.rest).await.unwrap();

    let mut socket = upgraded(&gateway, REQUEST).await;
    let mut script = scripts.next().await;
    let (first, rest) = long.split_at(9);
    for piece in [first.to_vec(), [rest, &close].concat()] {
        socket.send(Message::Binary(piece.into())).await.unwrap();
    }
    script.take_input(1000).await;
    script.exit(3);
    assert_eq!(close_code(&mut socket).await, 1000);

    let request = [&gateway.one_shot(REQUEST)[..], b""].concat();
    let mut stream = gateway.connect().await;
    stream.write_all(&request).await.unwrap();
    scripts.next().await.exit(1);
    let mut answer = read_head(&mut stream).await;
    read_body(&mut stream, &mut answer).await;

    let expected = [
        (Transport::OneShot, [(Stdout, 0, 0), (Stderr, 0, 0), (Input, 0, 0), (StdinClose, 0, 0)]),
        (
            Transport::Hijack,
            [(Stdout, 2, 65_537), (Stderr, 1, 3), (Input, 2, 2000), (StdinClose, 1, 0)],
        ),
        (
            Transport::WebSocket,
            [(Stdout, 0, 0), (Stderr, 0, 0), (Input, 1, 1000), (StdinClose, 1, 0)],
        ),
    ];
    for (transport, kinds) in expected {
        until_ended(&gateway, transport, End::Exited, 1).await;
        let figures = of(&gateway, transport);
        for (kind, frames, bytes) in kinds {
            let got = (figures.frames(kind), figures.bytes(kind));
            assert_eq!(got, (frames, bytes), "{transport:?} {kind:?}");
        }
        // {"exit_code":0,"duration_ms":0}
        assert_eq!((figures.frames(Exit), figures.bytes(Exit)), (1, 31), "{transport:?}");
        assert_eq!((figures.begun, figures.running), (1, 0));
    }
    assert_eq!(refused(&gateway), []);
}

// rule: EXEC-76
#[tokio::test]
async fn every_end_is_told_from_the_others() {
    let (guest, mut scripts) = scripted(Stdin::Take);
    let gateway = Gateway::start(guest).await;
    let fault = frame(Kind::Stdout, b"not from a client");

    let stream = hijacked(&gateway).await;
    scripts.next().await.lose();
    until_ended(&gateway, Transport::Hijack, End::Lost, 1).await;
    drop(stream);
    let stream = hijacked(&gateway).await;
    let script = scripts.next().await;
    drop(stream);
    script.dropped().await;
    until_ended(&gateway, Transport::Hijack, End::ClientGone, 1).await;
    let mut stream = gateway.connect().await;
    stream.write_all(&gateway.one_shot(REQUEST)).await.unwrap();
    let script = scripts.next().await;
    drop(stream);
    script.dropped().await;
    until_ended(&gateway, Transport::OneShot, End::ClientGone, 1).await;
    let mut stream = hijacked(&gateway).await;
    let _script = scripts.next().await;
    stream.write_all(&fault).await.unwrap();
    until_ended(&gateway, Transport::Hijack, End::Fault, 1).await;

    let mut socket = upgraded(&gateway, REQUEST).await;
    let _script = scripts.next().await;
    socket.send(Message::Binary(fault.into())).await.unwrap();
    assert_eq!(close_code(&mut socket).await, 1002);
    until_ended(&gateway, Transport::WebSocket, End::Fault, 1).await;
    let socket = upgraded(&gateway, REQUEST).await;
    let script = scripts.next().await;
    drop(socket);
    script.dropped().await;
    until_ended(&gateway, Transport::WebSocket, End::ClientGone, 1).await;

    let mut stream = hijacked(&gateway).await;
    let _hijack = scripts.next().await;
    let mut socket = upgraded(&gateway, REQUEST).await;
    let _script = scripts.next().await;
    let server = gateway.server.clone();
    let serving = gateway.stop();
    let answer = read_head(&mut stream).await;
    frames_to_end(&mut stream, &answer.rest).await.unwrap();
    close_code(&mut socket).await;
    assert!(within(socket.next()).await.is_none());
    drop(stream);
    within(serving).await.unwrap().unwrap();
    for of in server.metrics().sessions {
        let expected = u64::from(of.transport != Transport::OneShot);
        assert_eq!((of.ends(End::Shutdown), of.running), (expected, 0), "{of:?}");
    }
    assert_eq!(server.metrics().connections_open, 0);
}

#[tokio::test]
async fn a_guest_out_of_reach_and_a_program_that_is_not_there() {
    let gateway = Gateway::start(Arc::new(OutOfReach)).await;
    let mut stream = gateway.connect().await;
    let request = gateway.one_shot(REQUEST);
    ask(&mut stream, &request).await;
    let request = gateway.hijack(REQUEST);
    ask(&mut gateway.connect().await, &request).await;
    assert_eq!(close_code(&mut upgraded(&gateway, REQUEST).await).await, 1011);
    for transport in Transport::ALL {
        until_ended(&gateway, transport, End::Unreachable, 1).await;
    }
    assert_eq!(refused(&gateway), [(502, "", 1), (1011, "", 1)]);

    let (guest, _folder) = processes();
    let gateway = Gateway::start(guest).await;
    for (script, end) in [
        (r#"{"cmd":["no-such-program-here"]}"#, End::NotStarted),
        (r#"{"cmd":["sh","-c","kill -9 $$"]}"#, End::Signaled),
        (r#"{"cmd":["sleep","99"],"timeout_s":1}"#, End::TimedOut),
    ] {
        let request = gateway.one_shot(script);
        ask(&mut gateway.connect().await, &request).await;
        until_ended(&gateway, Transport::OneShot, end, 1).await;
    }
}

// rule: EXEC-76
#[tokio::test]
async fn refusals_are_counted_by_status_and_word_and_name_nothing_of_the_client() {
    let (guest, _scripts) = scripted(Stdin::Take);
    let gateway = Gateway::start(guest).await;
    let send = async |request: String| {
        ask(&mut gateway.connect().await, request.as_bytes()).await.0.status
    };
    let host = gateway.address;
    for path in ["a", "b", "c"] {
        let head = gateway.head("POST", &format!("/sandboxes/{path}/exec"));
        assert_eq!(send(format!("{head}\r\n")).await, 404);
        assert_eq!(send(format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await, 401);
    }
    assert_eq!(send("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n".into()).await, 403);
    let request = String::from_utf8(gateway.one_shot("{}")).unwrap();
    assert_eq!(send(request).await, 400);
    assert_eq!(close_code(&mut upgraded(&gateway, "{}").await).await, 1008);
    let mut expected = vec![
        (400, "", 1),
        (401, "", 3),
        (403, "host-refused", 1),
        (404, "not_found", 3),
        (1008, "", 1),
    ];
    expected.sort_unstable();
    assert_eq!(refused(&gateway), expected);
    let metrics = gateway.server.metrics();
    assert_eq!(metrics.sessions.len(), Transport::ALL.len());
    assert!(metrics.sessions.iter().all(|of| &*of.sandbox == "local" && of.begun == 0));
    assert_eq!(metrics.connections_accepted, 9);
}

// rule: EXEC-75
#[tokio::test]
async fn the_page_is_gated_unless_it_is_open_and_absent_unless_it_is_asked_for() {
    let render = |metrics: &Metrics| format!("accepted {}\n", metrics.connections_accepted);
    let status = async |gateway: &Gateway, key: &str| {
        let head = format!("GET {METRICS_PATH} HTTP/1.1\r\nHost: {}\r\n{key}\r\n", gateway.address);
        ask(&mut gateway.connect().await, head.as_bytes()).await
    };
    let key = format!("Authorization: Bearer {KEY}\r\n");
    for (access, without) in [(MetricsAccess::Keyed, 401), (MetricsAccess::Open, 200)] {
        let gateway =
            Gateway::of(Server::builder().metrics(access, "text/x-figures", render)).await;
        let (answer, body) = status(&gateway, &key).await;
        assert_eq!((answer.status, &*body), (200, &b"accepted 1\n"[..]));
        assert!(answer.has("content-type: text/x-figures"), "{}", answer.head);
        assert_eq!(status(&gateway, "").await.0.status, without, "{access:?}");
    }
    let gateway = Gateway::of(Server::builder()).await;
    assert_eq!(status(&gateway, &key).await.0.status, 404);
}
