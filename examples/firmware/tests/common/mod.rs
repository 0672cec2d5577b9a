//! A gateway's end of the line around a device, in one thread and in times that the test makes.

use std::cell::Cell;
use std::collections::VecDeque;
use std::convert::Infallible;

use embedded_io::{ErrorType, Read, ReadReady, Write, WriteReady};
use triwire::exec::head::{self, Mode, RequestHead};
use triwire::exec::request::write_request;
use triwire::exec::session::{InputWriter, Output, OutputReader};
use triwire::line::{Event, Line, Packet, Protocol, Role, Slot, Stream};
use triwire::time::{Instant, UnixMillis};
use triwire_firmware::channel::Channel;
use triwire_firmware::device::{Device, Turn, sessions};
use triwire_firmware::session::Session;
use triwire_firmware::tools::Board;

pub(crate) const SESSIONS: usize = 2;
pub(crate) const STREAMS: usize = SESSIONS + 1;
pub(crate) const BUFFER: usize = 512;
/// The time of day that the gateway tells.
pub(crate) const WALL: UnixMillis = UnixMillis::new(1_800_000_000_000);

thread_local! {
    /// The board of this test's device: its output, how often its sensor was started, and what
    /// that gives.
    pub(crate) static OUTPUT: Cell<bool> = const { Cell::new(false) };
    pub(crate) static MEASURED: Cell<u32> = const { Cell::new(0) };
    pub(crate) static SENSOR: Cell<Option<i32>> = const { Cell::new(None) };
}

const BOARD: Board = Board {
    peak_stack: || 1234,
    set_output: |on| {
        OUTPUT.set(on);
        OUTPUT.get()
    },
    start_sensor: || MEASURED.set(MEASURED.get() + 1),
    sensor: || SENSOR.get(),
};

/// The device's port: what came, and what it wrote.
#[derive(Default)]
pub(crate) struct Port {
    pub(crate) to_device: VecDeque<u8>,
    pub(crate) to_gateway: Vec<u8>,
}

impl ErrorType for Port {
    type Error = Infallible;
}

impl ReadReady for Port {
    fn read_ready(&mut self) -> Result<bool, Infallible> {
        Ok(!self.to_device.is_empty())
    }
}

impl Read for Port {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize, Infallible> {
        let count = self.to_device.len().min(bytes.len());
        for (to, from) in bytes.iter_mut().zip(self.to_device.drain(..count)) {
            *to = from;
        }
        Ok(count)
    }
}

impl WriteReady for Port {
    fn write_ready(&mut self) -> Result<bool, Infallible> {
        Ok(true)
    }
}

impl Write for Port {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Infallible> {
        // As a FIFO does.
        let count = bytes.len().min(16);
        self.to_gateway.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

/// How a stream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    Closed,
    Disconnected(triwire::line::Disconnect),
}

/// A client's end of one stream.
pub(crate) struct Client {
    pub(crate) stream: Stream,
    to_send: Vec<u8>,
    input: InputWriter,
    pub(crate) came: Vec<u8>,
    pub(crate) gone: Option<Gone>,
}

impl Client {
    pub(crate) fn stdin(&mut self, bytes: &[u8]) {
        for frame in self.input.stdin(bytes).unwrap() {
            self.to_send.extend_from_slice(&frame.head);
            self.to_send.extend_from_slice(frame.payload);
        }
    }

    pub(crate) fn close_stdin(&mut self) {
        self.to_send.extend_from_slice(&self.input.close().unwrap());
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.to_send.extend_from_slice(bytes);
    }

    /// What came of the command so far.
    pub(crate) fn seen(&self) -> Seen {
        let answer = head::response(&self.came, false).unwrap().expect("a head");
        answer.expect_hijack().unwrap();
        let mut input = &self.came[answer.len..];
        let mut reader = OutputReader::new([0; 1024]);
        let mut seen = Seen::default();
        while let Some(output) = reader.feed(&mut input).unwrap() {
            match output {
                Output::Stdout(bytes) => seen.stdout.extend_from_slice(bytes),
                Output::Stderr(bytes) => seen.stderr.extend_from_slice(bytes),
                Output::Exit(exit) => seen.exit_code = Some(exit.exit_code),
            }
        }
        if let Some(result) = reader.result() {
            seen.error = result.error.to_string();
            seen.timed_out = result.timed_out;
            seen.duration_ms = result.duration_ms;
            seen.status = Some(result.status());
        }
        seen
    }
}

#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) error: String,
    pub(crate) timed_out: bool,
    pub(crate) duration_ms: u64,
    pub(crate) status: Option<u8>,
}

impl Seen {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).unwrap()
    }
}

/// A device and its gateway.
pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) device: Device<STREAMS, BUFFER>,
    pub(crate) sessions: [Session<BUFFER>; SESSIONS],
    pub(crate) channel: Channel<BUFFER>,
    pub(crate) port: Port,
    line: Line<[Slot; 8]>,
    packet: Packet,
    pub(crate) clients: Vec<Client>,
}

impl World {
    pub(crate) fn new() -> Self {
        let mut world = Self {
            now: Instant::from_millis(20),
            device: Device::new(0, BOARD),
            sessions: sessions(),
            channel: Channel::new(),
            port: Port::default(),
            line: Line::new(Role::Gateway, 0, 4096, [Slot::EMPTY; 8]),
            packet: Packet::new(),
            clients: Vec::new(),
        };
        world.run();
        assert!(world.line.is_up());
        world
    }

    /// Makes one pass of the device.
    pub(crate) fn turn(&mut self) -> Turn {
        let Self { now, device, sessions, channel, port, .. } = self;
        device.turn(*now, sessions, channel, port)
    }

    /// Opens a stream and sends `bytes` on it.
    pub(crate) fn open(&mut self, bytes: Vec<u8>) -> usize {
        self.open_for(Protocol::Http, bytes)
    }

    /// Opens a stream for a protocol and sends `bytes` on it.
    pub(crate) fn open_for(&mut self, protocol: Protocol, bytes: Vec<u8>) -> usize {
        let mut out = [0; 256];
        let (stream, wire) = self.line.open(self.now, protocol, &mut out).unwrap();
        self.port.to_device.extend(wire);
        self.clients.push(Client {
            stream,
            to_send: bytes,
            input: InputWriter::new(),
            came: Vec::new(),
            gone: None,
        });
        self.clients.len() - 1
    }

    /// Asks for a command.
    pub(crate) fn start(&mut self, cmd: &[&str], timeout_s: u32) -> usize {
        self.open(ask(cmd, timeout_s))
    }

    /// Asks for a command, feeds it all of `stdin`, and runs it to its end.
    pub(crate) fn exec(&mut self, cmd: &[&str], stdin: &[u8]) -> Seen {
        let at = self.start(cmd, 0);
        self.clients[at].stdin(stdin);
        self.clients[at].close_stdin();
        self.run();
        let client = &self.clients[at];
        assert_eq!(client.gone, Some(Gone::Closed), "{cmd:?}");
        client.seen()
    }

    pub(crate) fn close(&mut self, at: usize) {
        self.line.close(self.now, self.clients[at].stream);
    }

    /// Starts the device anew, without a word.
    pub(crate) fn reboot(&mut self) {
        self.device = Device::new(0, BOARD);
        self.sessions = sessions();
        self.channel = Channel::new();
    }

    /// Lets both ends work until neither has anything to do at this time.
    pub(crate) fn run(&mut self) {
        for _ in 0..1_000_000 {
            let turn = self.turn();
            let busy = self.pump();
            if turn != Turn::Again && !busy {
                return;
            }
        }
        panic!("it does not come to rest");
    }

    /// Lets time pass in steps, with both ends at work.
    pub(crate) fn pass(&mut self, ms: u64) {
        for _ in 0..ms.div_ceil(50) {
            self.now = self.now.saturating_add(core::time::Duration::from_millis(50));
            self.run();
        }
    }

    fn pump(&mut self) -> bool {
        let mut busy = !self.port.to_gateway.is_empty();
        let bytes = std::mem::take(&mut self.port.to_gateway);
        let mut input = &bytes[..];
        let mut packet = std::mem::take(&mut self.packet);
        while let Some(event) = self.line.feed(self.now, &mut input, &mut packet) {
            if let Event::Data { stream, bytes } = event {
                self.line.consumed(self.now, stream, bytes.len());
            }
            self.tell(event);
        }
        self.packet = packet;
        while let Some(event) = self.line.poll(self.now) {
            self.tell(event);
        }
        let mut out = [0; 256];
        while let Some(due) = self.line.write_due(self.now, WALL, &mut out).unwrap() {
            self.port.to_device.extend(due);
            busy = true;
        }
        for client in &mut self.clients {
            let mut rest = &client.to_send[..];
            // One that has ended takes nothing more.
            if let Ok(data) = self.line.data(self.now, client.stream, &mut rest, &mut out) {
                self.port.to_device.extend(data);
                busy |= !data.is_empty();
            }
            let sent = client.to_send.len() - rest.len();
            client.to_send.drain(..sent);
        }
        busy
    }

    fn tell(&mut self, event: Event<'_>) {
        let (stream, gone) = match event {
            Event::Data { stream, bytes } => {
                self.client(stream).came.extend_from_slice(bytes);
                return;
            }
            Event::Closed { stream } => (stream, Gone::Closed),
            Event::Disconnected { stream, why } => (stream, Gone::Disconnected(why)),
            _ => return,
        };
        self.client(stream).gone = Some(gone);
    }

    fn client(&mut self, stream: Stream) -> &mut Client {
        self.clients.iter_mut().rev().find(|client| client.stream == stream).unwrap()
    }
}

/// Writes a request as a gateway does.
pub(crate) fn ask(cmd: &[&str], timeout_s: u32) -> Vec<u8> {
    let mut body = [0; 1024];
    let body = write_request(cmd, &[("A", "b"); 0], "", timeout_s, &mut body).unwrap();
    let mut out = [0; 1024];
    let head = RequestHead {
        mode: Mode::Hijack,
        sandbox: "guest",
        host: "localhost",
        bearer: None,
        content_length: Some(body.len()),
        path: head::GUEST_PATH,
    };
    [head.write(&mut out).unwrap(), body].concat()
}
