//! A gateway on a free port, a guest that does what the test says, and a client of raw bytes.

// Each test binary uses its own part.
#![allow(dead_code, unreachable_pub)]

use std::future::{Future, pending};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use triwire::exec::ExecError;
use triwire::exec::body::Body;
use triwire::exec::frame::{Kind, head};
use triwire::exec::head::KeyDigest;
use triwire::exec::session::{self, OutputReader};
use triwire_std::guest::{
    Guest, Lost, Output, ProcessGuest, Running, Starting, StdinGone, Unreachable,
};
use triwire_std::record::{ExecRequest, ExecResult};
use triwire_std::server::{Builder, Keys, Server};

pub const KEY: &str = "secret";

/// Fails a test that hangs instead of letting it hang.
pub async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(100), future).await.expect("in time")
}

/// A server that runs until it is stopped.
pub struct Gateway {
    pub server: Server,
    pub address: SocketAddr,
    pub keys: Keys,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Gateway {
    pub async fn start(guest: Arc<dyn Guest>) -> Self {
        Self::of(Server::builder().sandbox("local", guest)).await
    }

    pub async fn of(builder: Builder) -> Self {
        let keys = Keys::new([KeyDigest::of(KEY.as_bytes())]);
        let server = builder.keys(keys.clone()).build().unwrap();
        let shared = server.clone();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let serving =
            tokio::spawn(
                async move { shared.serve(listener, async { drop(stopped.await) }).await },
            );
        Self { server, address, keys, stop, serving }
    }

    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Begins the shutdown; the handle ends with it.
    pub fn stop(self) -> JoinHandle<std::io::Result<()>> {
        self.stop.send(()).unwrap();
        self.serving
    }

    /// The head of an admitted request, up to its last header.
    pub fn head(&self, method: &str, target: &str) -> String {
        format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {KEY}\r\n",
            self.address
        )
    }

    pub fn one_shot(&self, json: &str) -> Vec<u8> {
        self.post("/sandboxes/local/exec", json)
    }

    pub fn hijack(&self, json: &str) -> Vec<u8> {
        self.post("/sandboxes/local/exec?stdin=1", json)
    }

    pub fn post(&self, target: &str, json: &str) -> Vec<u8> {
        let head = self.head("POST", target);
        format!("{head}Content-Length: {}\r\n\r\n{json}", json.len()).into_bytes()
    }

    pub fn upgrade(&self) -> String {
        let head = self.head("GET", "/sandboxes/local/exec");
        format!(
            "{head}Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
    }
}

pub const REQUEST: &str = r#"{"cmd":["true"]}"#;

/// What a command does with its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stdin {
    /// Takes it and tells the test.
    Take,
    /// Never takes any.
    Block,
    /// Has closed it.
    Gone,
}

/// A guest whose commands do what the test says.
pub struct Scripted {
    stdin: Stdin,
    started: mpsc::UnboundedSender<Script>,
}

/// The test's end of one command.
pub struct Script {
    pub request: ExecRequest,
    output: mpsc::UnboundedSender<Result<Output, Lost>>,
    /// Pieces of input; an empty one is its end.
    pub input: mpsc::UnboundedReceiver<Vec<u8>>,
    dropped: oneshot::Receiver<()>,
}

impl Script {
    pub fn stdout(&self, bytes: impl Into<Bytes>) {
        self.output.send(Ok(Output::Stdout(bytes.into()))).unwrap();
    }

    pub fn stderr(&self, bytes: impl Into<Bytes>) {
        self.output.send(Ok(Output::Stderr(bytes.into()))).unwrap();
    }

    pub fn exit(&self, exit_code: i32) {
        let result = ExecResult { exit_code, ..ExecResult::default() };
        self.output.send(Ok(Output::Exit(result))).unwrap();
    }

    pub fn lose(&self) {
        self.output.send(Err(Lost { why: "the machine died".into() })).unwrap();
    }

    /// Waits until the server let go of the command, which kills it.
    pub async fn dropped(self) {
        within(self.dropped).await.unwrap_err();
    }

    pub async fn take_input(&mut self, count: usize) -> Vec<u8> {
        let mut taken = Vec::new();
        while taken.len() < count {
            taken.extend(within(self.input.recv()).await.unwrap());
        }
        taken
    }
}

/// The test's end of a scripted guest.
pub struct Scripts(mpsc::UnboundedReceiver<Script>);

impl Scripts {
    pub async fn next(&mut self) -> Script {
        within(self.0.recv()).await.unwrap()
    }

    pub fn none_started(&mut self) -> bool {
        self.0.try_recv().is_err()
    }
}

pub fn scripted(stdin: Stdin) -> (Arc<Scripted>, Scripts) {
    let (started, scripts) = mpsc::unbounded_channel();
    (Arc::new(Scripted { stdin, started }), Scripts(scripts))
}

impl Guest for Scripted {
    fn start(&self, request: ExecRequest) -> Starting<'_> {
        let (output, to_send) = mpsc::unbounded_channel();
        let (taken, input) = mpsc::unbounded_channel();
        let (alive, dropped) = oneshot::channel();
        self.started.send(Script { request, output, input, dropped }).unwrap();
        let running = ScriptedRun { stdin: self.stdin, to_send, taken, _alive: alive };
        Box::pin(async { Ok(Box::new(running) as Box<dyn Running>) })
    }
}

struct ScriptedRun {
    stdin: Stdin,
    to_send: mpsc::UnboundedReceiver<Result<Output, Lost>>,
    taken: mpsc::UnboundedSender<Vec<u8>>,
    _alive: oneshot::Sender<()>,
}

impl Running for ScriptedRun {
    fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<Result<Output, Lost>> {
        match ready!(self.to_send.poll_recv(cx)) {
            Some(output) => Poll::Ready(output),
            None => Poll::Pending,
        }
    }

    fn poll_stdin(&mut self, _: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, StdinGone>> {
        assert!(!bytes.is_empty());
        match self.stdin {
            Stdin::Take => {
                let _ = self.taken.send(bytes.to_vec());
                Poll::Ready(Ok(bytes.len()))
            }
            Stdin::Block => Poll::Pending,
            Stdin::Gone => Poll::Ready(Err(StdinGone)),
        }
    }

    fn close_stdin(&mut self) {
        let _ = self.taken.send(Vec::new());
    }
}

/// A guest that cannot be reached.
pub struct OutOfReach;

impl Guest for OutOfReach {
    fn start(&self, _: ExecRequest) -> Starting<'_> {
        Box::pin(async { Err(Unreachable { why: "its door is locked".into() }) })
    }
}

/// A guest whose start never comes to an end; tells when it began and when it was given up.
pub struct Hanging(pub mpsc::UnboundedSender<oneshot::Receiver<()>>);

impl Guest for Hanging {
    fn start(&self, _: ExecRequest) -> Starting<'_> {
        let (alive, dropped) = oneshot::channel::<()>();
        self.0.send(dropped).unwrap();
        Box::pin(async move {
            let _alive = alive;
            pending().await
        })
    }
}

/// A guest whose command writes `total` bytes as fast as it may, and watches how many of them
/// are alive in the server at once.
#[derive(Clone)]
pub struct Source {
    pub total: usize,
    pub made: Arc<AtomicUsize>,
    pub alive: Arc<AtomicUsize>,
    pub most: Arc<AtomicUsize>,
}

const PIECE: usize = 65_536;

impl Source {
    pub fn new(total: usize) -> Self {
        let (made, alive, most) = Default::default();
        Self { total, made, alive, most }
    }
}

struct Piece(Vec<u8>, Arc<AtomicUsize>);

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.1.fetch_sub(self.0.len(), Ordering::SeqCst);
    }
}

impl Guest for Source {
    fn start(&self, _: ExecRequest) -> Starting<'_> {
        let running = Box::new(self.clone());
        Box::pin(async { Ok(running as Box<dyn Running>) })
    }
}

impl Running for Source {
    fn poll_output(&mut self, _: &mut Context<'_>) -> Poll<Result<Output, Lost>> {
        let made = self.made.fetch_add(PIECE, Ordering::SeqCst);
        if made >= self.total {
            return Poll::Ready(Ok(Output::Exit(ExecResult::default())));
        }
        let alive = self.alive.fetch_add(PIECE, Ordering::SeqCst) + PIECE;
        self.most.fetch_max(alive, Ordering::SeqCst);
        let piece = Piece(vec![(made / PIECE) as u8; PIECE], Arc::clone(&self.alive));
        Poll::Ready(Ok(Output::Stdout(Bytes::from_owner(piece))))
    }

    fn poll_stdin(&mut self, _: &mut Context<'_>, _: &[u8]) -> Poll<Result<usize, StdinGone>> {
        Poll::Ready(Err(StdinGone))
    }

    fn close_stdin(&mut self) {}
}

/// A guest of real processes in a folder of its own, which goes with it.
pub struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn processes() -> (Arc<ProcessGuest>, Folder) {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::SeqCst);
    let root = std::env::temp_dir().join(format!("triwire-server-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&root).unwrap();
    (Arc::new(ProcessGuest::new(root.clone()).unwrap()), Folder(root))
}

impl Folder {
    /// Makes a pipe with a name in the folder; the future ends when the last process that has it
    /// open for writing is gone.
    pub fn witness(&self, name: &str) -> impl Future<Output = ()> + use<> {
        let path = self.0.join(name);
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let mut reader = pipe::OpenOptions::new().open_receiver(&path).unwrap();
        async move {
            within(reader.read_to_end(&mut Vec::new())).await.unwrap();
        }
    }
}

pub fn frame(kind: Kind, payload: &[u8]) -> Vec<u8> {
    let mut frame = head(kind, payload.len()).unwrap().to_vec();
    frame.extend_from_slice(payload);
    frame
}

/// What a stream of frames said.
#[derive(Debug, Default)]
pub struct Told {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub exit: Option<ExecResult>,
}

impl Told {
    pub fn exit(&self) -> &ExecResult {
        self.exit.as_ref().expect("an exit frame")
    }
}

/// Decodes frames as they come.
pub struct Frames {
    reader: OutputReader<Vec<u8>>,
    pub told: Told,
}

impl Default for Frames {
    fn default() -> Self {
        Self { reader: OutputReader::new(vec![0; 65_536]), told: Told::default() }
    }
}

impl Frames {
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while let Some(output) = self.reader.feed(&mut bytes).unwrap() {
            match output {
                session::Output::Stdout(bytes) => self.told.stdout.extend_from_slice(bytes),
                session::Output::Stderr(bytes) => self.told.stderr.extend_from_slice(bytes),
                session::Output::Exit(_) => {
                    let result = self.reader.result().unwrap();
                    self.told.exit = Some(ExecResult::from(&result));
                }
            }
        }
    }

    pub fn finish(mut self) -> Result<Told, ExecError> {
        self.reader.finish()?;
        Ok(self.told)
    }
}

/// Reads frames to the end of the connection.
pub async fn frames_to_end(stream: &mut TcpStream, first: &[u8]) -> Result<Told, ExecError> {
    let mut frames = Frames::default();
    frames.feed(first);
    let mut window = vec![0; 65_536];
    loop {
        match within(stream.read(&mut window)).await.expect("an end, no reset") {
            0 => return frames.finish(),
            count => frames.feed(&window[..count]),
        }
    }
}

/// Reads on until standard output ends with `end`.
pub async fn until_stdout(stream: &mut TcpStream, frames: &mut Frames, end: &[u8]) {
    let mut window = vec![0; 65_536];
    while !frames.told.stdout.ends_with(end) {
        let count = within(stream.read(&mut window)).await.unwrap();
        assert_ne!(count, 0, "the end before {end:?}");
        frames.feed(&window[..count]);
    }
}

/// An answer's head, and what came behind it.
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub rest: Vec<u8>,
}

impl Answer {
    pub fn has(&self, line: &str) -> bool {
        let mut lines = self.head.lines();
        lines.any(|own| own.eq_ignore_ascii_case(line))
    }
}

pub async fn read_head(stream: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    let mut window = [0; 4096];
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = bytes.split_off(end + 4);
            let head = String::from_utf8(bytes).unwrap();
            let status = head.split(' ').nth(1).unwrap().parse().unwrap();
            return Answer { status, head, rest };
        }
        let count = within(stream.read(&mut window)).await.unwrap();
        assert_ne!(count, 0, "the end inside a head: {:?}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&window[..count]);
    }
}

/// Reads an answer's body by its own framing; what follows it stays in `answer.rest`.
pub async fn read_body(stream: &mut TcpStream, answer: &mut Answer) -> Vec<u8> {
    let framing =
        triwire::exec::head::response(answer.head.as_bytes(), false).unwrap().unwrap().framing();
    let mut machine = Body::new(framing.unwrap());
    let mut body = Vec::new();
    loop {
        let mut rest = &answer.rest[..];
        while let Some(bytes) = machine.feed(&mut rest).unwrap() {
            body.extend_from_slice(bytes);
        }
        answer.rest = rest.to_vec();
        if machine.is_complete() {
            return body;
        }
        let mut window = vec![0; 65_536];
        let count = within(stream.read(&mut window)).await.unwrap();
        if count == 0 {
            machine.finish().unwrap();
            return body;
        }
        answer.rest.extend_from_slice(&window[..count]);
    }
}

/// Sends a request and reads its answer whole.
pub async fn ask(stream: &mut TcpStream, request: &[u8]) -> (Answer, Vec<u8>) {
    // A server that refuses may close before it read all.
    let _ = stream.write_all(request).await;
    let mut answer = read_head(stream).await;
    let body = read_body(stream, &mut answer).await;
    (answer, body)
}

pub fn told(body: &[u8]) -> Told {
    let mut frames = Frames::default();
    frames.feed(body);
    frames.finish().unwrap()
}
