//! A scripted server: raw bytes over real sockets, no HTTP or WebSocket library behind it.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::future::Future;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use triwire_std::client::{Client, ClientError, Output, Session, Transport};
use triwire_std::record::ExecRequest;
use triwire_std::tokio::socket::accept_key;

pub const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\r\n";
pub const EXIT: &[u8] = br#"{"exit_code":3,"duration_ms":12}"#;

pub fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut wire = vec![kind, 0, 0, 0];
    wire.extend_from_slice(&u32::try_from(payload.len()).unwrap().to_be_bytes());
    wire.extend_from_slice(payload);
    wire
}

/// stdout "hello", an empty stdout, stderr "oops", exit 3.
pub fn frames() -> Vec<u8> {
    [frame(1, b"hello"), frame(1, b""), frame(2, b"oops"), frame(3, EXIT)].concat()
}

pub fn request() -> ExecRequest {
    ExecRequest { cmd: vec!["true".into()], ..ExecRequest::default() }
}

/// The request's JSON as it travels.
pub const REQUEST: &[u8] = br#"{"cmd":["true"]}"#;

/// Serves one connection by `script`; returns the URL, and what the script gives.
pub async fn serve<F, T>(script: impl FnOnce(Peer) -> F + Send + 'static) -> (String, JoinHandle<T>)
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let served = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        script(Peer { stream }).await
    });
    (url, served)
}

pub fn client(url: &str) -> Client {
    Client::builder(url).key("k-123").build().unwrap()
}

pub struct Peer {
    pub stream: TcpStream,
}

impl Peer {
    /// Reads up to the end of a head and returns it.
    pub async fn head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.stream.read_u8().await.unwrap());
        }
        String::from_utf8(head).unwrap()
    }

    /// Reads a POST's head and body; returns the head.
    pub async fn post(&mut self) -> String {
        let head = self.head().await;
        let len = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
        let mut body = vec![0; len.parse().unwrap()];
        self.stream.read_exact(&mut body).await.unwrap();
        assert_eq!(body, REQUEST);
        head
    }

    /// Reads the upgrade and answers it, `behind` in the same write; then reads the request.
    pub async fn upgrade(&mut self, behind: &[u8]) -> String {
        let head = self.head().await;
        self.send(&[switching(&head).as_bytes(), behind].concat()).await;
        let (opcode, message) = self.message().await.unwrap();
        assert_eq!((opcode, &message[..]), (1, REQUEST));
        head
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Sends so that each byte is its own segment, as far as the system lets it.
    pub async fn trickle(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.stream.write_all(&[*byte]).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Ends the sending side, then reads to the client's end; returns what came.
    pub async fn end(mut self) -> Vec<u8> {
        let _ = self.stream.shutdown().await;
        let mut rest = Vec::new();
        let _ = self.stream.read_to_end(&mut rest).await;
        rest
    }

    /// Closes the connection with a reset.
    pub fn reset(self) {
        self.stream.set_zero_linger().unwrap();
    }

    /// Reads a client's WebSocket message: its opcode and its unmasked payload.
    pub async fn message(&mut self) -> Option<(u8, Vec<u8>)> {
        let first = self.stream.read_u8().await.ok()?;
        let second = self.stream.read_u8().await.ok()?;
        assert_ne!(second & 0x80, 0, "a client masks");
        assert_ne!(first & 0x80, 0, "not cut into fragments");
        let len = match second & 0x7f {
            126 => u64::from(self.stream.read_u16().await.ok()?),
            127 => self.stream.read_u64().await.ok()?,
            short => u64::from(short),
        };
        let mut mask = [0; 4];
        self.stream.read_exact(&mut mask).await.ok()?;
        let mut payload = vec![0; usize::try_from(len).unwrap()];
        self.stream.read_exact(&mut payload).await.ok()?;
        for (byte, mask) in payload.iter_mut().zip(mask.into_iter().cycle()) {
            *byte ^= mask;
        }
        Some((first & 0x0f, payload))
    }

    /// Reads messages up to the close frame; returns its code and reason.
    pub async fn close_frame(&mut self) -> Option<(u16, String)> {
        loop {
            let (opcode, payload) = self.message().await?;
            if opcode == 8 {
                let Some((code, reason)) = payload.split_first_chunk() else {
                    return Some((1005, String::new()));
                };
                let reason = String::from_utf8(reason.to_vec()).unwrap();
                return Some((u16::from_be_bytes(*code), reason));
            }
        }
    }
}

pub fn switching(head: &str) -> String {
    let key = head.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).unwrap();
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {}\r\n\r\n",
        accept_key(key)
    )
}

/// A server's WebSocket frame.
pub fn message(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut wire = vec![0x80 | opcode];
    match payload.len() {
        len @ 0..126 => wire.push(len as u8),
        len @ 126..65536 => {
            wire.push(126);
            wire.extend_from_slice(&(len as u16).to_be_bytes());
        }
        len => {
            wire.push(127);
            wire.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
    wire.extend_from_slice(payload);
    wire
}

pub fn binary(payload: &[u8]) -> Vec<u8> {
    message(2, payload)
}

pub fn close(code: u16, reason: &str) -> Vec<u8> {
    message(8, &[&code.to_be_bytes(), reason.as_bytes()].concat())
}

/// What a session gave, up to its end.
#[derive(Debug)]
pub struct Outcome {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub session: Session,
    pub end: Result<(), ClientError>,
}

impl Outcome {
    pub fn is_whole(&self) {
        assert_eq!(self.stdout, b"hello");
        assert_eq!(self.stderr, b"oops");
        assert_eq!(self.exit_code(), Some(3));
        assert!(self.end.is_ok(), "{:?}", self.end);
    }

    pub fn exit_code(&self) -> Option<i32> {
        self.session.result().map(|result| result.exit_code)
    }

    pub fn code(&self) -> &str {
        self.end.as_ref().unwrap_err().code()
    }
}

pub async fn drain(mut session: Session) -> Outcome {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let end = loop {
        match session.next().await {
            Ok(Some(Output::Stdout(bytes))) => stdout.extend_from_slice(bytes),
            Ok(Some(Output::Stderr(bytes))) => stderr.extend_from_slice(bytes),
            Ok(Some(Output::Exit(exit))) => {
                assert_eq!(exit, session.result().unwrap().as_core().exit())
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    // What ended it is said again.
    match (&end, session.next().await) {
        (Ok(()), Ok(None)) => {}
        (Err(first), Err(again)) => assert_eq!(first.to_string(), again.to_string()),
        (first, again) => panic!("{first:?}, then {again:?}"),
    }
    Outcome { stdout, stderr, session, end }
}

pub async fn run(url: &str, transport: Transport) -> Outcome {
    let session = client(url).exec("local", &request()).transport(transport).start().await.unwrap();
    drain(session).await
}
