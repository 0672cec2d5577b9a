//! Guests behind a TCP or a unix socket: our own server as the guest, and scripted peers.
#![cfg(all(feature = "server", feature = "guest", target_os = "linux"))]

mod server_common;

use std::future::{Future, poll_fn};
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use server_common::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinHandle;
use triwire::exec::frame::Kind;
use triwire_std::guest::{Guest, Lost, Output, Running, StdinGone, TcpGuest, UnixGuest};
use triwire_std::record::{ExecRequest, ExecResult};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\r\n";
const EXIT: &[u8] = br#"{"exit_code":7,"duration_ms":12}"#;

fn sh(script: &str) -> ExecRequest {
    let cmd = ["sh", "-c", script].map(str::to_owned).into();
    ExecRequest { cmd, ..ExecRequest::default() }
}

/// A command of our own server, asked for as a guest.
fn behind(gateway: &Gateway) -> TcpGuest {
    let guest = TcpGuest::new(gateway.address.to_string());
    guest.path("/sandboxes/local/exec?stdin=1").key(KEY)
}

async fn start(guest: &impl Guest, request: ExecRequest) -> Box<dyn Running> {
    within(guest.start(request)).await.unwrap()
}

async fn refused(guest: &impl Guest) -> String {
    match within(guest.start(sh("true"))).await {
        Ok(_) => panic!("it started"),
        Err(unreachable) => unreachable.why,
    }
}

/// Feeds `input`, then the end of input, and reads to the exit, both at once.
async fn run(running: &mut dyn Running, mut input: &[u8]) -> Result<Told, Lost> {
    let mut told = Told::default();
    let mut open = true;
    let session = poll_fn(|cx| {
        while open {
            if input.is_empty() {
                running.close_stdin();
                open = false;
                break;
            }
            match running.poll_stdin(cx, input) {
                Poll::Ready(Ok(taken)) => input = &input[taken..],
                Poll::Ready(Err(StdinGone)) => open = false,
                Poll::Pending => break,
            }
        }
        loop {
            match running.poll_output(cx) {
                Poll::Ready(Ok(Output::Stdout(bytes))) => told.stdout.extend_from_slice(&bytes),
                Poll::Ready(Ok(Output::Stderr(bytes))) => told.stderr.extend_from_slice(&bytes),
                Poll::Ready(Ok(Output::Exit(result))) => {
                    told.exit = Some(result);
                    return Poll::Ready(Ok(()));
                }
                Poll::Ready(Err(lost)) => return Poll::Ready(Err(lost)),
                Poll::Pending => return Poll::Pending,
            }
        }
    });
    within(session).await?;
    Ok(told)
}

/// Serves one TCP connection by a script.
async fn tcp<F, T>(
    script: impl FnOnce(TcpStream) -> F + Send + 'static,
) -> (TcpGuest, JoinHandle<T>)
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let guest = TcpGuest::new(listener.local_addr().unwrap().to_string());
    let served = tokio::spawn(async move { script(listener.accept().await.unwrap().0).await });
    (guest, served)
}

/// Reads a request, head and body.
async fn read_request(peer: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(peer.read_u8().await.unwrap());
    }
    let head = String::from_utf8(request).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    peer.read_exact(&mut body).await.unwrap();
    head + std::str::from_utf8(&body).unwrap()
}

// rule: EXEC-21
#[tokio::test]
async fn real_commands_run_behind_a_tcp_guest() {
    let (processes, _folder) = processes();
    let server = Gateway::start(processes).await;
    let guest = behind(&server);
    let input: Vec<u8> = (0..5_000_000_u32).map(|n| (n % 251) as u8).collect();
    let mut running = start(&guest, sh("cat; echo done >&2; exit 3")).await;
    let told = run(&mut *running, &input).await.unwrap();
    assert!(told.stdout == input, "{} bytes came back", told.stdout.len());
    assert_eq!(told.stderr, b"done\n");
    assert_eq!(told.exit().exit_code, 3);
    assert!(told.exit().usage.is_some());
}

#[tokio::test]
async fn a_gateway_serves_the_guest_behind_it_as_its_own() {
    let (processes, _folder) = processes();
    let far = Gateway::start(processes).await;
    let near = Gateway::start(Arc::new(behind(&far))).await;
    let mut stream = near.connect().await;
    let mut bytes = near.hijack(r#"{"cmd":["sh","-c","read a; echo got $a; exit 5"]}"#);
    bytes.extend(frame(Kind::Stdin, b"word\n"));
    stream.write_all(&bytes).await.unwrap();
    let answer = read_head(&mut stream).await;
    let told = frames_to_end(&mut stream, &answer.rest).await.unwrap();
    assert_eq!((&told.stdout[..], told.exit().exit_code), (&b"got word\n"[..], 5));

    let mut stream = near.connect().await;
    let (answer, body) = ask(&mut stream, &near.one_shot(r#"{"cmd":["cat"]}"#)).await;
    assert_eq!((answer.status, told_exit(&body).exit_code), (200, 0));
}

fn told_exit(body: &[u8]) -> ExecResult {
    told(body).exit().clone()
}

// rule: EXEC-22
#[tokio::test]
async fn dropping_the_command_ends_it_at_the_guest() {
    let (processes, folder) = processes();
    let ended = folder.witness("alive");
    let server = Gateway::start(processes).await;
    let mut running = start(&behind(&server), sh("exec 3>alive; echo up; sleep 100")).await;
    let up = within(poll_fn(|cx| running.poll_output(cx))).await.unwrap();
    assert_eq!(up, Output::Stdout((&b"up\n"[..]).into()));
    drop(running);
    ended.await;
}

#[tokio::test]
async fn a_guest_that_refuses_is_named_with_what_to_do() {
    let (processes, _folder) = processes();
    let server = Gateway::start(processes).await;
    let address = server.address.to_string();
    let guest = TcpGuest::new(&address).path("/sandboxes/local/exec");
    let why = refused(&guest).await;
    assert!(why.starts_with(&address) && why.contains("check `key_file` (status 401"), "{why}");
    let why = refused(&guest.clone().key("wrong")).await;
    assert!(why.contains("status 401") && !why.contains("wrong\""), "{why}");
    let why = refused(&TcpGuest::new(&address).key(KEY)).await;
    assert!(why.contains("check `path` (status 404: not_found"), "{why}");
    let why = refused(&TcpGuest::new(&address).path("no path")).await;
    assert!(why.contains("the path is malformed"), "{why}");
    let why = refused(&guest.key("a b")).await;
    assert!(why.contains("the key cannot be sent"), "{why}");
}

#[tokio::test]
async fn a_guest_that_is_not_there_is_named_with_what_to_do() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let why = refused(&TcpGuest::new(&address)).await;
    assert!(why.starts_with(&format!("{address}: nothing listens there")), "{why}");
    let why = refused(&TcpGuest::new("no address")).await;
    assert!(why.starts_with("no address: no connection"), "{why}");

    let socket = Socket::new("absent");
    let why = refused(&UnixGuest::new(&socket.0)).await;
    assert!(why.contains("there is no such socket"), "{why}");
    drop(UnixListener::bind(&socket.0).unwrap());
    let why = refused(&UnixGuest::new(&socket.0)).await;
    assert!(why.contains("nothing listens there"), "{why}");
}

/// A path for a socket, whose file goes with it.
struct Socket(PathBuf);

impl Socket {
    fn new(name: &str) -> Self {
        let name = format!("triwire-{name}-{}.sock", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

// rule: EXEC-38
#[tokio::test]
async fn a_scripted_unix_peer_gets_the_contract_byte_for_byte() {
    let socket = Socket::new("scripted");
    let listener = UnixListener::bind(&socket.0).unwrap();
    let served = tokio::spawn(async move {
        let (mut peer, _): (UnixStream, _) = listener.accept().await.unwrap();
        let request = read_request(&mut peer).await;
        let mut answer = OK.to_vec();
        answer.extend(frame(Kind::Stdout, b"hello"));
        answer.extend(frame(Kind::Stdout, b""));
        answer.extend(frame(Kind::Stderr, b"oops"));
        for byte in answer {
            peer.write_all(&[byte]).await.unwrap();
            tokio::task::yield_now().await;
        }
        let mut input = [0; 8 + 5 + 8];
        peer.read_exact(&mut input).await.unwrap();
        peer.write_all(&frame(Kind::Exit, EXIT)).await.unwrap();
        let mut rest = Vec::new();
        peer.read_to_end(&mut rest).await.unwrap();
        (request, input, rest)
    });
    let guest = UnixGuest::new(&socket.0);
    let mut running = start(&guest, sh("true")).await;
    let told = run(&mut *running, b"input").await.unwrap();
    assert_eq!((&told.stdout[..], &told.stderr[..]), (&b"hello"[..], &b"oops"[..]));
    assert_eq!(told.exit().exit_code, 7);
    drop(running);
    let (request, input, rest) = within(served).await.unwrap();
    assert_eq!(
        request,
        "POST /exec?stdin=1 HTTP/1.1\r\nHost: localhost\r\n\
         Accept: application/octet-stream, application/json\r\n\
         Content-Type: application/json\r\nContent-Length: 26\r\n\r\n\
         {\"cmd\":[\"sh\",\"-c\",\"true\"]}"
    );
    let frames = [frame(Kind::Stdin, b"input"), frame(Kind::StdinClose, b"")].concat();
    assert_eq!(input[..], frames);
    assert_eq!(rest, b"");
}

#[tokio::test]
async fn heads_that_are_not_the_answer_are_named() {
    let long = [b"HTTP/1.1 200 OK\r\nX: ", &[b'a'; 70_000][..]].concat();
    let cases: [(&[u8], &str); 6] = [
        (b"", "it closed the connection without an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-", "it closed the connection without an answer"),
        (b"SSH-2.0-OpenSSH_9.9\r\n\r\n", "the response is not HTTP/1.1"),
        (b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n", "(status 302)"),
        (
            b"HTTP/1.1 500 X\r\nContent-Length: 32\r\n\r\n{\"error\":\"disk\\u001bfull\",\"code\":\"\"}",
            "see the guest's log (status 500",
        ),
        (&long, "the response's head is too large"),
    ];
    for (answer, expected) in cases {
        let answer = answer.to_vec();
        let (guest, served) = tcp(|mut peer| async move {
            read_request(&mut peer).await;
            // Ours may close before it read all.
            let _ = peer.write_all(&answer).await;
        })
        .await;
        let why = refused(&guest).await;
        assert!(why.contains(expected) && why.starts_with("127.0.0.1:"), "{expected}: {why}");
        assert!(!why.contains(char::is_control), "{why}");
        within(served).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_never_answers_is_given_up() {
    let (guest, served) = tcp(|mut peer| async move {
        read_request(&mut peer).await;
        let mut rest = Vec::new();
        let _ = peer.read_to_end(&mut rest).await;
    })
    .await;
    let begun = tokio::time::Instant::now();
    let why = refused(&guest).await;
    assert!(why.contains("did not answer within 30 s"), "{why}");
    assert!(begun.elapsed() < Duration::from_secs(31));
    served.await.unwrap();
}

// rule: EXEC-20
#[tokio::test]
async fn a_guest_that_goes_mid_stream_is_lost_by_name() {
    let unknown = [frame(Kind::Stdout, b"a"), vec![9, 0, 0, 0, 0, 0, 0, 0]].concat();
    let cases: [(Vec<u8>, &str); 5] = [
        (b"<!doctype html>".to_vec(), "unknown_type"),
        (frame(Kind::Stdout, b"a"), "missing_exit"),
        (frame(Kind::Stdout, b"abc")[..10].to_vec(), "truncated"),
        ([frame(Kind::Stdout, b"a"), vec![1, 0, 0]].concat(), "truncated"),
        (unknown, "unknown_type"),
    ];
    for (frames, code) in cases {
        let (guest, served) = tcp(|mut peer| async move {
            read_request(&mut peer).await;
            peer.write_all(&[OK, &frames].concat()).await.unwrap();
        })
        .await;
        let mut running = start(&guest, sh("true")).await;
        let lost = run(&mut *running, b"").await.unwrap_err();
        assert!(lost.why.contains(code) && lost.why.starts_with("127.0.0.1:"), "{code}: {lost}");
        within(served).await.unwrap();
    }
}

// rule: EXEC-20
#[tokio::test]
async fn a_lost_guest_is_an_exit_frame_to_the_client() {
    let (guest, served) = tcp(|mut peer| async move {
        read_request(&mut peer).await;
        peer.write_all(&[OK, &frame(Kind::Stdout, b"so far")].concat()).await.unwrap();
        // Closed over unread input: a reset.
        peer.set_zero_linger().unwrap();
    })
    .await;
    let near = Gateway::start(Arc::new(guest)).await;
    let mut stream = near.connect().await;
    stream.write_all(&near.hijack(REQUEST)).await.unwrap();
    let answer = read_head(&mut stream).await;
    assert_eq!(answer.status, 200);
    let told = frames_to_end(&mut stream, &answer.rest).await.unwrap();
    assert_eq!(told.exit().exit_code, -1);
    assert!(
        told.exit().error.contains("the command was lost: 127.0.0.1:"),
        "{}",
        told.exit().error
    );
    within(served).await.unwrap();

    // And before its head, 502 that says what to do.
    let mut stream = near.connect().await;
    let (answer, body) = ask(&mut stream, &near.hijack(REQUEST)).await;
    assert_eq!(answer.status, 502);
    let body = String::from_utf8(body).unwrap();
    assert!(body.contains("nothing listens there; start the guest"), "{body}");
}

// rule: EXEC-48
#[tokio::test]
async fn a_guest_that_takes_no_input_holds_the_input_back() {
    let (guest, _served) = tcp(|mut peer| async move {
        read_request(&mut peer).await;
        peer.write_all(OK).await.unwrap();
        std::future::pending::<()>().await;
        drop(peer);
    })
    .await;
    let mut running = start(&guest, sh("true")).await;
    let chunk = vec![0; 65_536];
    let mut taken = 0;
    // What the system's socket buffers take, and no more.
    let stuck = loop {
        let offered = poll_fn(|cx| Poll::Ready(running.poll_stdin(cx, &chunk))).await;
        match offered {
            Poll::Ready(Ok(count)) => taken += count,
            Poll::Ready(Err(StdinGone)) => panic!("gone"),
            Poll::Pending => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                let again = poll_fn(|cx| Poll::Ready(running.poll_stdin(cx, &chunk))).await;
                if again.is_pending() {
                    break true;
                }
            }
        }
        assert!(taken < 64 << 20, "no end of room");
    };
    assert!(stuck);
}
