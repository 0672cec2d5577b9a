//! The device: its end of the line, a session for each stream of a command, and the channel's.
//!
//! [`Device::turn`] is one pass of a loop that never waits; who calls it brings the bytes and the
//! time, so it is the same on every board and in a test:
//!
//! ```
//! use triwire::time::Instant;
//! use triwire_firmware::channel::Channel;
//! use triwire_firmware::device::{Device, Turn, sessions};
//! use triwire_firmware::tools::Board;
//! # use embedded_io::{ErrorType, Read, ReadReady, Write, WriteReady};
//! # struct Uart;
//! # impl ErrorType for Uart { type Error = core::convert::Infallible; }
//! # impl Read for Uart { fn read(&mut self, _: &mut [u8]) -> Result<usize, Self::Error> { Ok(0) } }
//! # impl ReadReady for Uart { fn read_ready(&mut self) -> Result<bool, Self::Error> { Ok(false) } }
//! # impl Write for Uart {
//! #     fn write(&mut self, bytes: &[u8]) -> Result<usize, Self::Error> { Ok(bytes.len()) }
//! #     fn flush(&mut self) -> Result<(), Self::Error> { Ok(()) }
//! # }
//! # impl WriteReady for Uart { fn write_ready(&mut self) -> Result<bool, Self::Error> { Ok(true) } }
//!
//! let board = Board {
//!     peak_stack: || 0,
//!     set_output: |on| on,
//!     start_sensor: || {},
//!     sensor: || Some(21_500),
//! };
//! // In firmware all three are statics: they are larger than a stack should have to hold.
//! let mut device: Device<3, 512> = Device::new(0, board);
//! let mut sessions = sessions::<2, 512>();
//! let mut channel = Channel::new();
//! let mut uart = Uart;
//! // Once the reset is out, nothing is to be done before it is due again.
//! let turn = device.turn(Instant::ZERO, &mut sessions, &mut channel, &mut uart);
//! assert_eq!(turn, Turn::Again);
//! let turn = device.turn(Instant::ZERO, &mut sessions, &mut channel, &mut uart);
//! assert_eq!(turn, Turn::Idle { until: Some(Instant::from_millis(250)) });
//! ```

use embedded_io::{Read, ReadReady, Write, WriteReady};
use triwire::buffer::Outbox;
use triwire::line::{Event, Line, MAX_WIRE, Packet, Protocol, Role, Slot, Stream};
use triwire::time::{Instant, UnixMillis};
use triwire_embedded::clock::Clock;

use crate::channel::Channel;
use crate::command::Host;
use crate::session::Session;
use crate::tools::Board;

/// Bytes of one read, and reads of one pass.
const READ: usize = 64;
const READS: usize = 4;
/// Room for what is to be written: a full packet behind one that is under way.
const WIRE: usize = 2 * 256;
/// With no more than this waiting, the next packet of data is written; what credits and closes
/// wait for is then no longer than a packet.
const AHEAD: usize = 64;
/// Room that holds every packet of the line's own.
const DUE: usize = 32;

const _: () = assert!(WIRE / 2 >= MAX_WIRE && AHEAD + MAX_WIRE + DUE <= WIRE);

/// What a pass came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// There is more to do: come again at once, after the watchdog is fed.
    Again,
    /// There is nothing to do before a byte comes, or this time.
    Idle {
        /// When to come again without a byte; `None`: never.
        until: Option<Instant>,
    },
}

/// Makes the places of a device's sessions. As a static of its own it is all zeros and takes no
/// flash.
#[must_use]
pub const fn sessions<const STREAMS: usize, const BUFFER: usize>() -> [Session<BUFFER>; STREAMS] {
    [const { Session::new() }; STREAMS]
}

/// A device whose line has `STREAMS` streams at once: one for each of its sessions, and the
/// channel's. Each has a buffer of `BUFFER` bytes, 512 to 32 768, which is the stream's credit.
#[derive(Debug)]
pub struct Device<const STREAMS: usize, const BUFFER: usize> {
    line: Line<[Slot; STREAMS]>,
    packet: Packet,
    outbox: Outbox<[u8; WIRE]>,
    /// Whose turn it is to send first.
    first: usize,
    clock: Clock,
    board: Board,
    faults: u32,
}

impl<const STREAMS: usize, const BUFFER: usize> Device<STREAMS, BUFFER> {
    /// Makes a device at its start.
    ///
    /// `boot` counts its starts, 0 when it keeps no count.
    #[must_use]
    pub const fn new(boot: u32, board: Board) -> Self {
        const { assert!(BUFFER >= 512 && BUFFER <= 32_768) };
        Self {
            line: Line::new(Role::Device, boot, BUFFER as u16, [Slot::EMPTY; STREAMS]),
            packet: Packet::new(),
            outbox: Outbox::new([0; WIRE]),
            first: 0,
            clock: Clock::new(),
            board,
            faults: 0,
        }
    }

    /// Returns how often the port failed; the line heals, or ends what it cost by name.
    #[must_use]
    pub const fn faults(&self) -> u32 {
        self.faults
    }

    /// Makes one pass, at most: 256 bytes read, a step of each session and of the channel, a packet
    /// of each stream, and what the port takes.
    ///
    /// It reads and writes only what the port says it is ready for, so it never waits. `sessions`
    /// and `channel` are the same in every call.
    pub fn turn<P>(
        &mut self,
        now: Instant,
        sessions: &mut [Session<BUFFER>],
        channel: &mut Channel<BUFFER>,
        port: &mut P,
    ) -> Turn
    where
        P: Read + ReadReady + Write + WriteReady,
    {
        let mut busy = self.read(now, sessions, channel, port);
        while let Some(event) = self.line.poll(now) {
            if let Event::Closed { stream } | Event::Disconnected { stream, .. } = event {
                end(sessions, channel, stream);
            }
            busy = true;
        }
        let wall = self.clock.unix(now).ok();
        let Self { board, faults, .. } = *self;
        let host = Host { now, wall, board, faults, broken: self.line.broken() };
        for session in &mut *sessions {
            let Some(stream) = session.stream() else { continue };
            let pass = session.pass(&host);
            self.line.consumed(now, stream, pass.used);
            busy |= pass.moved;
        }
        if let Some(stream) = channel.stream() {
            let pass = channel.pass(&host);
            self.line.consumed(now, stream, pass.used);
            busy |= pass.moved;
        }
        busy |= self.fill(now, wall.unwrap_or_default(), sessions, channel);
        busy |= self.write(port);
        if busy || !self.outbox.is_empty() {
            return Turn::Again;
        }
        let deadlines = sessions.iter().filter_map(Session::deadline);
        Turn::Idle { until: deadlines.chain(channel.deadline()).chain(self.line.deadline()).min() }
    }

    /// Takes in what came; `true` when there was something.
    fn read<P: Read + ReadReady>(
        &mut self,
        now: Instant,
        sessions: &mut [Session<BUFFER>],
        channel: &mut Channel<BUFFER>,
        port: &mut P,
    ) -> bool {
        let mut busy = false;
        for _ in 0..READS {
            let mut bytes = [0; READ];
            let count = match port.read_ready().and_then(|ready| match ready {
                true => port.read(&mut bytes),
                false => Ok(0),
            }) {
                Ok(0) => break,
                Ok(count) => count,
                Err(_) => {
                    self.faults = self.faults.saturating_add(1);
                    break;
                }
            };
            busy = true;
            let mut input = bytes.get(..count).unwrap_or_default();
            let Self { line, packet, clock, .. } = self;
            while let Some(event) = line.feed(now, &mut input, packet) {
                match event {
                    Event::Reset { wall, .. } => {
                        clock.offer(now, wall);
                    }
                    Event::Opened { stream, protocol: Protocol::Http, .. } => {
                        match sessions.iter_mut().find(|session| session.stream().is_none()) {
                            Some(session) => session.open(stream),
                            None => line.refuse(now, stream),
                        }
                    }
                    Event::Opened { stream, protocol: Protocol::Channel, .. } => {
                        // The later one counts, as with every chair.
                        if let Some(older) = channel.stream() {
                            line.close(now, older);
                        }
                        if !channel.open(stream) {
                            line.refuse(now, stream);
                        }
                    }
                    Event::Data { stream, bytes } => {
                        let mut own = sessions.iter_mut();
                        let session = own.find(|session| session.stream() == Some(stream));
                        let fits = match session {
                            Some(session) => session.receive(bytes),
                            None => channel.stream() != Some(stream) || channel.receive(bytes),
                        };
                        if !fits {
                            line.close(now, stream);
                            end(sessions, channel, stream);
                        }
                    }
                    Event::Closed { stream } | Event::Disconnected { stream, .. } => {
                        end(sessions, channel, stream);
                    }
                    // What is due follows from the line, and credit is asked for when sending.
                    Event::Credit { .. } | Event::OtherVersion { .. } => {}
                }
            }
        }
        busy
    }

    /// Writes what is to be sent into the outbox; `true` when there was something.
    fn fill(
        &mut self,
        now: Instant,
        wall: UnixMillis,
        sessions: &mut [Session<BUFFER>],
        channel: &mut Channel<BUFFER>,
    ) -> bool {
        let mut busy = false;
        while self.outbox.space().len() >= DUE {
            // The room is enough, so this is never an error.
            let due = self.line.write_due(now, wall, self.outbox.space());
            let Ok(Some(len)) = due.map(|due| due.map(<[u8]>::len)) else { break };
            self.outbox.filled(len);
            busy = true;
        }
        // The channel's turn is behind the last session's.
        let places = sessions.len() + 1;
        for at in 0..places {
            let at = (self.first + at) % places;
            if self.outbox.unsent().len() > AHEAD {
                break;
            }
            let Some(session) = sessions.get_mut(at) else {
                let Some(stream) = channel.stream() else { continue };
                let sent = self.send(now, stream, channel.unsent(), (at + 1) % places);
                channel.sent(sent);
                busy |= sent > 0;
                continue;
            };
            let Some(stream) = session.stream() else { continue };
            let sent = self.send(now, stream, session.unsent(), (at + 1) % places);
            session.sent(sent);
            busy |= sent > 0;
            if session.is_over() {
                self.line.close(now, stream);
                session.close();
                busy = true;
            }
        }
        busy
    }

    /// Writes a packet of what a stream has to send into the outbox, and answers how many bytes
    /// of it that took; when any, `next` is whose turn it is.
    fn send(&mut self, now: Instant, stream: Stream, unsent: &[u8], next: usize) -> usize {
        let mut rest = unsent;
        // A stream that has ended is told with the next pass.
        let data = self.line.data(now, stream, &mut rest, self.outbox.space());
        let len = data.map_or(0, <[u8]>::len);
        self.outbox.filled(len);
        if len > 0 {
            self.first = next;
        }
        unsent.len() - rest.len()
    }

    /// Writes what the port takes; `true` when it took something.
    fn write<P: Write + WriteReady>(&mut self, port: &mut P) -> bool {
        let mut busy = false;
        while !self.outbox.is_empty() {
            let written = port.write_ready().and_then(|ready| match ready {
                true => port.write(self.outbox.unsent()),
                false => Ok(0),
            });
            match written {
                Ok(0) => break,
                Ok(count) => {
                    self.outbox.sent(count);
                    busy = true;
                }
                Err(_) => {
                    self.faults = self.faults.saturating_add(1);
                    break;
                }
            }
        }
        busy
    }
}

/// Ends what a stream was for that is gone.
fn end<const BUFFER: usize>(
    sessions: &mut [Session<BUFFER>],
    channel: &mut Channel<BUFFER>,
    stream: Stream,
) {
    if let Some(session) = sessions.iter_mut().find(|session| session.stream() == Some(stream)) {
        session.close();
    }
    if channel.stream() == Some(stream) {
        channel.close();
    }
}
