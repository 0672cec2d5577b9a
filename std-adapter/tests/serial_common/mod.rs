//! A device at the other end of a pty, made of the core's own machines: the line in the device's
//! role, and on each stream the guest's end of the hijacked transport, or an executor's.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::pty::OpenptFlags;
use rustix::termios::OptionalActions;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use triwire::channel::envelope::{self, Call, Outcome};
use triwire::channel::lines::{self, Lines};
use triwire::exec::head::{Answer, request};
use triwire::exec::request::ExecRequest;
use triwire::exec::result::ExecResult;
use triwire::exec::session::{Input, InputReader, OutputWriter};
use triwire::line::{Disconnect, Event, Line, Packet, Protocol, Role, Slot, Stream};
use triwire::time::{Instant, UnixMillis};
use triwire_std::clock::Clock;

/// A pty pair: our end is the device's, the path is what the gateway opens.
pub struct Pty {
    pub path: PathBuf,
    pub master: OwnedFd,
    /// While it is open, our end can be read from whoever else opens and closes the path.
    keep: OwnedFd,
}

impl Pty {
    pub fn new() -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = rustix::pty::openpt(flags).unwrap();
        rustix::pty::grantpt(&master).unwrap();
        rustix::pty::unlockpt(&master).unwrap();
        let name = rustix::pty::ptsname(&master, Vec::new()).unwrap();
        let path = PathBuf::from(OsString::from_vec(name.into_bytes()));
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let keep = rustix::fs::open(&path, flags, Mode::empty()).unwrap();
        let mut settings = rustix::termios::tcgetattr(&keep).unwrap();
        settings.make_raw();
        rustix::termios::tcsetattr(&keep, OptionalActions::Now, &settings).unwrap();
        rustix::io::ioctl_fionbio(&master, true).unwrap();
        Self { path, master, keep }
    }
}

/// What a test does to a device.
#[derive(Debug)]
pub enum Order {
    /// Starts anew, without a word but the reset.
    Reboot,
    /// Stops working, line and all.
    Hang,
    /// Writes these bytes between its packets.
    Noise(Vec<u8>),
    /// Takes the channel's stream from now on, or refuses it.
    Executor(bool),
}

/// What a device saw.
#[derive(Debug, PartialEq, Eq)]
pub enum Seen {
    Reset {
        wall: UnixMillis,
    },
    Started(Vec<String>),
    /// A message of the channel, which is no call or is not answered.
    Message(String),
    Closed,
    Disconnected(Disconnect),
}

pub struct Device {
    pub orders: mpsc::UnboundedSender<Order>,
    pub seen: mpsc::UnboundedReceiver<Seen>,
    task: JoinHandle<()>,
}

impl Device {
    /// Starts a device with room for `streams`.
    pub fn start(pty: &Pty, streams: usize) -> Self {
        let master = pty.master.try_clone().unwrap();
        let (orders, to_do) = mpsc::unbounded_channel();
        let (saw, seen) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move { Engine::new(master, streams, saw).run(to_do).await });
        Self { orders, seen, task }
    }

    /// Waits for something to be seen.
    pub async fn wait_for(&mut self, wanted: impl Fn(&Seen) -> bool) -> Seen {
        let found = async {
            loop {
                let seen = self.seen.recv().await.expect("a device");
                if wanted(&seen) {
                    return seen;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(10), found).await.expect("in time")
    }

    /// Takes the power away.
    pub async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

/// How many bytes of a stream the device holds.
const WINDOW: u16 = 512;
/// Bytes that it writes at once.
const OUTBOX: usize = 2048;

struct Engine {
    receiver: Receiver,
    sender: Sender,
    line: Line<Vec<Slot>>,
    streams: usize,
    executor: bool,
    boot: u32,
    packet: Packet,
    sessions: Vec<Session>,
    wire: Vec<u8>,
    clock: Clock,
    saw: mpsc::UnboundedSender<Seen>,
}

struct Session {
    stream: Stream,
    /// What came of the channel, when it is that.
    calls: Option<Vec<u8>>,
    head: Vec<u8>,
    running: Option<Running>,
    /// What waits to be sent.
    out: Vec<u8>,
    is_over: bool,
}

struct Running {
    command: Vec<String>,
    reader: InputReader,
    writer: OutputWriter,
    /// Lines still to be counted.
    left: u32,
}

impl Engine {
    fn new(master: OwnedFd, streams: usize, saw: mpsc::UnboundedSender<Seen>) -> Self {
        let sender = Sender::from_owned_fd_unchecked(master.try_clone().unwrap()).unwrap();
        Self {
            receiver: Receiver::from_owned_fd_unchecked(master).unwrap(),
            sender,
            line: Line::new(Role::Device, 1, WINDOW, vec![Slot::EMPTY; streams]),
            streams,
            executor: false,
            boot: 1,
            packet: Packet::new(),
            sessions: Vec::new(),
            wire: Vec::new(),
            clock: Clock::start(),
            saw,
        }
    }

    async fn run(&mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        loop {
            let now = self.clock.now();
            while let Some(event) = self.line.poll(now) {
                self.ended(event);
            }
            self.produce(now);
            let is_full = self.wire.len() >= OUTBOX;
            self.write().await;
            let deadline = self.line.deadline().unwrap_or(Instant::from_micros(u64::MAX));
            let until = self.clock.to_tokio(deadline);
            let soon = tokio::time::Instant::now() + Duration::from_millis(1);
            let until = if is_full { tokio::time::Instant::now() } else { until.max(soon) };
            tokio::select! {
                ready = self.receiver.readable() => {
                    ready.unwrap();
                    self.read();
                }
                () = tokio::time::sleep_until(until) => {}
                order = orders.recv() => match order {
                    None => std::future::pending().await,
                    Some(Order::Hang) => std::future::pending().await,
                    Some(Order::Noise(bytes)) => self.wire.extend(bytes),
                    Some(Order::Executor(executor)) => self.executor = executor,
                    Some(Order::Reboot) => {
                        self.boot += 1;
                        let slots = vec![Slot::EMPTY; self.streams];
                        self.line = Line::new(Role::Device, self.boot, WINDOW, slots);
                        self.sessions.clear();
                        self.packet = Packet::new();
                    }
                }
            }
        }
    }

    async fn write(&mut self) {
        let mut rest = &self.wire[..];
        while !rest.is_empty() {
            self.sender.writable().await.unwrap();
            match self.sender.try_write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => panic!("{error}"),
            }
        }
        self.wire.clear();
    }

    fn read(&mut self) {
        let mut room = [0; 1024];
        let count = match self.receiver.try_read(&mut room) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) => panic!("{error}"),
        };
        let mut input = &room[..count];
        let now = self.clock.now();
        let mut packet = std::mem::take(&mut self.packet);
        while let Some(event) = self.line.feed(now, &mut input, &mut packet) {
            match event {
                Event::Reset { wall, .. } => {
                    let _ = self.saw.send(Seen::Reset { wall });
                }
                Event::Opened { stream, protocol: Protocol::Channel, .. } if !self.executor => {
                    self.line.refuse(now, stream);
                }
                Event::Opened { stream, protocol, .. } => self.sessions.push(Session {
                    stream,
                    calls: (protocol == Protocol::Channel).then(Vec::new),
                    head: Vec::new(),
                    running: None,
                    out: Vec::new(),
                    is_over: false,
                }),
                Event::Data { stream, bytes } => {
                    self.line.consumed(now, stream, bytes.len());
                    let session = self.sessions.iter_mut().find(|own| own.stream == stream);
                    session.expect("a session").take(bytes, &self.saw);
                }
                Event::Credit { .. } => {}
                event => self.ended(event),
            }
        }
        self.packet = packet;
    }

    fn ended(&mut self, event: Event<'_>) {
        let (gone, seen) = match event {
            Event::Closed { stream } => (stream, Seen::Closed),
            Event::Disconnected { stream, why } => (stream, Seen::Disconnected(why)),
            other => panic!("{other:?}"),
        };
        self.sessions.retain(|session| session.stream != gone);
        let _ = self.saw.send(seen);
    }

    fn produce(&mut self, now: Instant) {
        let mut packet = [0; 256];
        while self.wire.len() < OUTBOX {
            if let Some(due) = self.line.write_due(now, UnixMillis::default(), &mut packet).unwrap()
            {
                self.wire.extend_from_slice(due);
                continue;
            }
            let mut any = false;
            for session in &mut self.sessions {
                session.count();
                let mut rest = &session.out[..];
                if let Ok(data) = self.line.data(now, session.stream, &mut rest, &mut packet) {
                    self.wire.extend_from_slice(data);
                    any |= !data.is_empty();
                }
                let sent = session.out.len() - rest.len();
                session.out.drain(..sent);
                if session.is_over && session.out.is_empty() {
                    self.line.close(now, session.stream);
                }
            }
            self.sessions.retain(|session| !session.is_over || !session.out.is_empty());
            if !any {
                break;
            }
        }
    }
}

impl Session {
    fn take(&mut self, bytes: &[u8], saw: &mpsc::UnboundedSender<Seen>) {
        if self.is_over {
            return;
        }
        if let Some(calls) = &mut self.calls {
            calls.extend_from_slice(bytes);
            let mut rest = &calls[..];
            while let Some(message) = Lines::new(4096).feed(&mut rest) {
                reply(message, &mut self.out, saw);
            }
            let used = calls.len() - rest.len();
            calls.drain(..used);
            return;
        }
        if let Some(running) = &mut self.running {
            self.is_over = running.input(bytes, &mut self.out);
            return;
        }
        self.head.extend_from_slice(bytes);
        let window = std::mem::take(&mut self.head);
        let Some(parsed) = request(&window, false).unwrap() else {
            self.head = window;
            return;
        };
        assert_eq!((parsed.method, parsed.target), ("POST", "/exec?stdin=1"));
        let triwire::exec::body::Framing::Length(length) = parsed.framing else { panic!() };
        let whole = parsed.len + usize::try_from(length).unwrap();
        let Some(body) = window.get(parsed.len..whole) else {
            self.head = window;
            return;
        };
        let request = ExecRequest::parse(body).unwrap();
        let command: Vec<String> = request.cmd().map(|word| word.to_string()).collect();
        let _ = saw.send(Seen::Started(command.clone()));
        let mut room = [0; 256];
        self.out.extend_from_slice(Answer::Hijack.write(&mut room).unwrap());
        let left = match &command[..] {
            [name, count] if name == "count" => count.parse().unwrap(),
            _ => 0,
        };
        let (reader, writer) = (InputReader::new(), OutputWriter::new());
        let mut running = Running { command, reader, writer, left };
        if running.command[0] == "fail" {
            running.exit(9, &mut self.out);
            self.is_over = true;
        } else {
            self.is_over = running.input(&window[whole..], &mut self.out);
        }
        self.running = Some(running);
    }

    fn count(&mut self) {
        let Some(running) = &mut self.running else { return };
        while running.left > 0 && self.out.len() < 512 {
            let line = format!("line {}\n", running.left);
            running.stdout(line.as_bytes(), &mut self.out);
            running.left -= 1;
            if running.left == 0 {
                running.exit(0, &mut self.out);
                self.is_over = true;
            }
        }
    }
}

impl Running {
    /// Feeds input; `true` when the command is over.
    fn input(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) -> bool {
        let is_cat = self.command[0] == "cat";
        while let Some(input) = self.reader.feed(&mut bytes).unwrap() {
            match input {
                Input::Stdin(bytes) if is_cat => self.stdout(bytes, out),
                Input::Stdin(_) => {}
                Input::Close if is_cat => {
                    self.exit(0, out);
                    return true;
                }
                Input::Close => {}
            }
        }
        false
    }

    fn stdout(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for frame in self.writer.stdout(bytes).unwrap() {
            out.extend_from_slice(&frame.head);
            out.extend_from_slice(frame.payload);
        }
    }

    fn exit(&mut self, exit_code: i32, out: &mut Vec<u8>) {
        let result = ExecResult { exit_code, ..ExecResult::default() };
        let mut room = [0; 512];
        out.extend_from_slice(self.writer.exit(&result, &mut room).unwrap());
    }
}

/// Answers a call by its arguments, but for one to the tool `wait`.
fn reply(message: &[u8], out: &mut Vec<u8>, saw: &mpsc::UnboundedSender<Seen>) {
    match Call::parse(message, 64) {
        Ok(call) if call.tool != "wait" => {
            let outcome = Outcome::Observed(call.args);
            let mut room = [0; 1024];
            let answer = envelope::Answer { call_id: call.call_id, outcome };
            let len = answer.write(lines::room(&mut room)).unwrap().len();
            out.extend_from_slice(lines::end(&mut room, len).unwrap());
        }
        _ => {
            let _ = saw.send(Seen::Message(String::from_utf8_lossy(message).into_owned()));
        }
    }
}
