//! The server's hijacked transport, byte by byte over real sockets.
#![cfg(all(feature = "server", feature = "guest"))]

mod server_common;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use server_common::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use triwire::exec::frame::Kind;
use triwire_std::server::OUTBOX;

const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\r\n";

/// Begins a session and takes its head; what came behind it.
async fn begin(gateway: &Gateway, json: &str, frames: &[u8]) -> (TcpStream, Vec<u8>) {
    let mut stream = gateway.connect().await;
    let mut bytes = gateway.hijack(json);
    bytes.extend_from_slice(frames);
    stream.write_all(&bytes).await.unwrap();
    let answer = read_head(&mut stream).await;
    assert_eq!(answer.head, HEAD);
    (stream, answer.rest)
}

// rule: EXEC-21
#[tokio::test]
async fn frames_in_the_same_read_as_the_request_are_not_lost() {
    let (guest, mut scripts) = scripted(Stdin::Take);
    let gateway = Gateway::start(guest).await;
    let mut frames = frame(Kind::Stdin, b"early");
    frames.extend(frame(Kind::StdinClose, b""));
    let (mut stream, first) = begin(&gateway, REQUEST, &frames).await;
    let mut script = scripts.next().await;
    assert_eq!(script.take_input(5).await, b"early");
    assert_eq!(script.input.recv().await.unwrap(), b"", "the end of input");
    script.stdout(&b"answer"[..]);
    script.exit(4);
    let told = frames_to_end(&mut stream, &first).await.unwrap();
    assert_eq!((&told.stdout[..], told.exit().exit_code), (&b"answer"[..], 4));
}

#[tokio::test]
async fn the_request_may_be_chunked_and_come_in_any_pieces() {
    let (guest, mut scripts) = scripted(Stdin::Take);
    let gateway = Gateway::start(guest).await;
    let head = gateway.head("POST", "/sandboxes/local/exec?stdin=1");
    let mut bytes = format!(
        "{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{REQUEST}\r\n0\r\n\r\n",
        REQUEST.len()
    )
    .into_bytes();
    bytes.extend(frame(Kind::Stdin, b"early"));
    let mut stream = gateway.connect().await;
    stream.set_nodelay(true).unwrap();
    for byte in bytes {
        stream.write_all(&[byte]).await.unwrap();
    }
    let mut script = scripts.next().await;
    assert_eq!(script.take_input(5).await, b"early");
    script.exit(0);
    let answer = read_head(&mut stream).await;
    assert_eq!(answer.head, HEAD);
    frames_to_end(&mut stream, &answer.rest).await.unwrap();
}

#[tokio::test]
async fn a_guest_out_of_reach_is_502_before_any_200() {
    let gateway = Gateway::start(Arc::new(OutOfReach)).await;
    let mut stream = gateway.connect().await;
    let (answer, body) = ask(&mut stream, &gateway.hijack(REQUEST)).await;
    assert_eq!(answer.status, 502);
    assert!(String::from_utf8(body).unwrap().contains("its door is locked"));
}

#[tokio::test]
async fn a_guest_lost_in_the_middle_is_told_by_an_exit_frame() {
    let (guest, mut scripts) = scripted(Stdin::Take);
    let gateway = Gateway::start(guest).await;
    let (mut stream, first) = begin(&gateway, REQUEST, b"").await;
    let script = scripts.next().await;
    script.stdout(&b"so far"[..]);
    script.lose();
    let told = frames_to_end(&mut stream, &first).await.unwrap();
    assert_eq!((&told.stdout[..], told.exit().exit_code), (&b"so far"[..], -1));
    assert!(told.exit().error.contains("the machine died"));
}

// rule: EXEC-30
#[tokio::test]
async fn a_fault_of_the_client_kills_the_command_and_is_named() {
    let mut after_close = frame(Kind::StdinClose, b"ignored");
    after_close.extend(frame(Kind::Stdin, b"x"));
    for (frames, code) in [
        (vec![6, 0, 0, 0, 0, 0, 0, 0], "unknown_type at byte 0"),
        (frame(Kind::Stdout, b"x"), "wrong_direction at byte 0"),
        (vec![4, 0, 0, 0, 0, 1, 0, 1], "oversize at byte 4"),
        (after_close, "after_stdin_close at byte 15"),
    ] {
        let (guest, mut scripts) = scripted(Stdin::Take);
        let gateway = Gateway::start(guest).await;
        let (mut stream, first) = begin(&gateway, REQUEST, b"").await;
        let script = scripts.next().await;
        stream.write_all(&frames).await.unwrap();
        let told = frames_to_end(&mut stream, &first).await.unwrap();
        assert_eq!(told.exit().exit_code, -1);
        assert!(told.exit().error.starts_with(code), "{}", told.exit().error);
        script.dropped().await;
    }
}

// rule: EXEC-22, EXEC-31
#[tokio::test]
async fn the_end_of_the_clients_side_kills_the_command_and_nothing_is_sent() {
    let (guest, mut scripts) = scripted(Stdin::Take);
    let gateway = Gateway::start(guest).await;
    let whole = frame(Kind::Stdin, b"abc");
    let close = frame(Kind::StdinClose, b"");
    for sent in [&b""[..], &whole, &whole[..3], &whole[..9], &close] {
        let (mut stream, first) = begin(&gateway, REQUEST, sent).await;
        let script = scripts.next().await;
        stream.shutdown().await.unwrap();
        script.dropped().await;
        let mut rest = first;
        within(stream.read_to_end(&mut rest)).await.unwrap();
        assert_eq!(rest, b"");
    }
}

// rule: EXEC-50
#[tokio::test]
async fn a_client_killed_with_input_waiting_is_noticed_at_once() {
    // Less than is read ahead, and all that is read ahead: the end is seen without reading.
    for waiting in [20_000, 256 * 1024, 300_000] {
        let (guest, mut scripts) = scripted(Stdin::Block);
        let gateway = Gateway::start(guest).await;
        let (mut stream, _) = begin(&gateway, REQUEST, b"").await;
        let script = scripts.next().await;
        let payload = vec![0; 8184];
        for _ in 0..waiting / 8192 {
            stream.write_all(&frame(Kind::Stdin, &payload)).await.unwrap();
        }
        drop(stream);
        script.dropped().await;
    }
}

#[tokio::test]
async fn a_killed_client_ends_the_whole_group_of_a_real_command() {
    let (guest, folder) = processes();
    let gateway = Gateway::start(guest).await;
    let group = folder.witness("alive");
    let json = r#"{"cmd":["sh","-c","sleep 1000 >alive & exec 2>alive; echo started; wait"]}"#;
    let (mut stream, first) = begin(&gateway, json, b"").await;
    let mut frames = Frames::default();
    frames.feed(&first);
    until_stdout(&mut stream, &mut frames, b"\n").await;
    stream.write_all(&frame(Kind::Stdin, &[b'x'; 20_000])).await.unwrap();
    stream.write_all(&frame(Kind::StdinClose, b"")).await.unwrap();
    drop(stream);
    group.await;
}

// rule: EXEC-40
#[tokio::test]
async fn unread_input_and_a_slow_reader_cost_no_output() {
    let (guest, mut scripts) = scripted(Stdin::Block);
    let gateway = Gateway::start(guest).await;
    // A small window, so that much is still to be sent when the command has ended.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(gateway.address).await.unwrap();
    let mut bytes = gateway.hijack(REQUEST);
    bytes.extend(frame(Kind::Stdin, &[7; 65_536]));
    stream.write_all(&bytes).await.unwrap();
    let script = scripts.next().await;
    let output: Vec<u8> = (0..4 << 20).map(|n: u32| (n / 1000) as u8).collect();
    script.stdout(output.clone());
    script.exit(0);
    let answer = read_head(&mut stream).await;
    let mut frames = Frames::default();
    frames.feed(&answer.rest);
    let mut window = [0; 2048];
    while frames.told.exit.is_none() {
        let count = within(stream.read(&mut window)).await.unwrap();
        assert_ne!(count, 0);
        frames.feed(&window[..count]);
        // Input that comes behind the exit resets nothing either.
        let _ = stream.try_write(&[0; 16]);
    }
    assert_eq!(within(stream.read(&mut window)).await.unwrap(), 0, "the end, no reset");
    assert!(frames.told.stdout == output);
}

// rule: EXEC-40
#[tokio::test(start_paused = true)]
async fn a_reader_that_pauses_behind_the_exit_loses_nothing() {
    let (guest, mut scripts) = scripted(Stdin::Take);
    let gateway = Gateway::start(guest).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(gateway.address).await.unwrap();
    stream.write_all(&gateway.hijack(REQUEST)).await.unwrap();
    let script = scripts.next().await;
    script.stdout(vec![1; 200_000]);
    script.exit(0);
    script.dropped().await;
    // Longer than a quiet connection is kept; its input would then reset it.
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    stream.write_all(b"late").await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let answer = read_head(&mut stream).await;
    let told = frames_to_end(&mut stream, &answer.rest).await.unwrap();
    assert_eq!(told.stdout.len(), 200_000);
}

#[tokio::test]
async fn input_behind_the_exit_is_read_and_thrown_away_until_the_client_closes() {
    let (guest, mut scripts) = scripted(Stdin::Gone);
    let gateway = Gateway::start(guest).await;
    let (mut stream, first) = begin(&gateway, REQUEST, b"").await;
    let script = scripts.next().await;
    stream.write_all(&frame(Kind::Stdin, b"nobody reads this")).await.unwrap();
    script.exit(0);
    script.dropped().await;
    // 8 MiB fit into no buffer: they are taken.
    within(stream.write_all(&vec![0; 8 << 20])).await.unwrap();
    frames_to_end(&mut stream, &first).await.unwrap();
}

#[tokio::test]
async fn the_exit_comes_while_input_is_blocked() {
    let (guest, mut scripts) = scripted(Stdin::Block);
    let gateway = Gateway::start(guest).await;
    let (mut stream, first) = begin(&gateway, REQUEST, &frame(Kind::Stdin, &[0; 65_536])).await;
    scripts.next().await.exit(9);
    let told = frames_to_end(&mut stream, &first).await.unwrap();
    assert_eq!(told.exit().exit_code, 9);
}

#[tokio::test]
async fn sixty_four_mib_each_way_through_a_real_command() {
    const TOTAL: usize = 64 << 20;
    let (guest, _folder) = processes();
    let gateway = Gateway::start(guest).await;
    let (stream, first) = begin(&gateway, r#"{"cmd":["cat"]}"#, b"").await;
    let (mut reader, mut writer) = stream.into_split();
    let sending = tokio::spawn(async move {
        for n in 0..TOTAL / 65_536 {
            writer.write_all(&frame(Kind::Stdin, &[n as u8; 65_536])).await.unwrap();
        }
        writer.write_all(&frame(Kind::StdinClose, b"")).await.unwrap();
        writer
    });
    let mut frames = Frames::default();
    frames.feed(&first);
    let mut window = vec![0; 65_536];
    loop {
        match within(reader.read(&mut window)).await.unwrap() {
            0 => break,
            count => frames.feed(&window[..count]),
        }
    }
    let told = frames.finish().unwrap();
    assert_eq!(told.exit().exit_code, 0);
    assert_eq!(told.stdout.len(), TOTAL);
    let mut pieces = told.stdout.chunks(65_536).enumerate();
    assert!(pieces.all(|(n, piece)| piece.iter().all(|b| *b == n as u8)));
    drop(sending.await.unwrap());
}

// rule: EXEC-48
#[tokio::test]
async fn a_client_that_reads_nothing_stops_the_command() {
    const TOTAL: usize = 64 << 20;
    let source = Source::new(TOTAL);
    let gateway = Gateway::start(Arc::new(source.clone())).await;
    let (mut stream, first) = begin(&gateway, REQUEST, b"").await;
    let told = frames_to_end(&mut stream, &first).await.unwrap();
    assert_eq!(told.stdout.len(), TOTAL);
    let most = source.most.load(Ordering::SeqCst);
    assert!(most <= OUTBOX + 65_536, "{most} bytes at once");
}

#[tokio::test]
async fn a_shutdown_ends_the_session_by_name() {
    let (guest, mut scripts) = scripted(Stdin::Block);
    let gateway = Gateway::start(guest).await;
    let (mut stream, first) = begin(&gateway, REQUEST, &frame(Kind::Stdin, &[0; 1000])).await;
    let script = scripts.next().await;
    let stopping = gateway.stop();
    let told = frames_to_end(&mut stream, &first).await.unwrap();
    assert_eq!(told.exit().exit_code, -1);
    assert_eq!(told.exit().error, "the gateway is shutting down");
    script.dropped().await;
    drop(stream);
    within(stopping).await.unwrap().unwrap();
}
