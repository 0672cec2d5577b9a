//! The device: its end of the line, and a session for each stream.
//!
//! [`Device::turn`] is one pass of a loop that never waits; who calls it brings the bytes and the
//! time, so it is the same on every board and in a test:
//!
//! ```
//! use triwire::time::Instant;
//! use triwire_firmware::device::{Device, Turn, sessions};
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
//! // In firmware both are statics: they are larger than a stack should have to hold.
//! let mut device: Device<2, 512> = Device::new(0, || 0);
//! let mut sessions = sessions();
//! let mut uart = Uart;
//! // Once the reset is out, nothing is to be done before it is due again.
//! assert_eq!(device.turn(Instant::ZERO, &mut sessions, &mut uart), Turn::Again);
//! let idle = Turn::Idle { until: Some(Instant::from_millis(250)) };
//! assert_eq!(device.turn(Instant::ZERO, &mut sessions, &mut uart), idle);
//! ```

use embedded_io::{Read, ReadReady, Write, WriteReady};
use triwire::buffer::Outbox;
use triwire::line::{Event, Line, MAX_WIRE, Packet, Protocol, Role, Slot, Stream};
use triwire::time::{Instant, UnixMillis};
use triwire_embedded::clock::Clock;

use crate::command::Host;
use crate::session::Session;

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

/// A device that serves exec on `STREAMS` streams at once, each with three buffers of `BUFFER`
/// bytes, of which one is the stream's credit. `BUFFER` is 512 to 32 768.
#[derive(Debug)]
pub struct Device<const STREAMS: usize, const BUFFER: usize> {
    line: Line<[Slot; STREAMS]>,
    packet: Packet,
    outbox: Outbox<[u8; WIRE]>,
    /// Whose turn it is to send first.
    first: usize,
    clock: Clock,
    peak_stack: fn() -> usize,
    faults: u32,
}

impl<const STREAMS: usize, const BUFFER: usize> Device<STREAMS, BUFFER> {
    /// Makes a device at its start.
    ///
    /// `boot` counts its starts, 0 when it keeps no count. `peak_stack` answers the command
    /// `stack`.
    #[must_use]
    pub const fn new(boot: u32, peak_stack: fn() -> usize) -> Self {
        const { assert!(BUFFER >= 512 && BUFFER <= 32_768) };
        Self {
            line: Line::new(Role::Device, boot, BUFFER as u16, [Slot::EMPTY; STREAMS]),
            packet: Packet::new(),
            outbox: Outbox::new([0; WIRE]),
            first: 0,
            clock: Clock::new(),
            peak_stack,
            faults: 0,
        }
    }

    /// Returns how often the port failed; the line heals, or ends what it cost by name.
    #[must_use]
    pub const fn faults(&self) -> u32 {
        self.faults
    }

    /// Makes one pass, at most: 256 bytes read, a step of each session, a packet of each stream,
    /// and what the port takes.
    ///
    /// It reads and writes only what the port says it is ready for, so it never waits. `sessions`
    /// are the same in every call.
    pub fn turn<P>(
        &mut self,
        now: Instant,
        sessions: &mut [Session<BUFFER>; STREAMS],
        port: &mut P,
    ) -> Turn
    where
        P: Read + ReadReady + Write + WriteReady,
    {
        let mut busy = self.read(now, sessions, port);
        while let Some(event) = self.line.poll(now) {
            if let Event::Closed { stream } | Event::Disconnected { stream, .. } = event {
                end(sessions, stream);
            }
            busy = true;
        }
        let wall = self.clock.unix(now).ok();
        let host = Host { now, wall, peak_stack: self.peak_stack };
        for session in &mut *sessions {
            let Some(stream) = session.stream() else { continue };
            let pass = session.pass(&host);
            self.line.consumed(now, stream, pass.used);
            busy |= pass.moved;
        }
        busy |= self.fill(now, wall.unwrap_or_default(), sessions);
        busy |= self.write(port);
        if busy || !self.outbox.is_empty() {
            return Turn::Again;
        }
        let deadlines = sessions.iter().filter_map(Session::deadline);
        Turn::Idle { until: deadlines.chain(self.line.deadline()).min() }
    }

    /// Takes in what came; `true` when there was something.
    fn read<P: Read + ReadReady>(
        &mut self,
        now: Instant,
        sessions: &mut [Session<BUFFER>; STREAMS],
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
                            None => line.close(now, stream),
                        }
                    }
                    Event::Opened { stream, .. } => line.close(now, stream),
                    Event::Data { stream, bytes } => {
                        let mut own = sessions.iter_mut();
                        let session = own.find(|session| session.stream() == Some(stream));
                        if session.is_some_and(|session| !session.receive(bytes)) {
                            line.close(now, stream);
                            end(sessions, stream);
                        }
                    }
                    Event::Closed { stream } | Event::Disconnected { stream, .. } => {
                        end(sessions, stream);
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
        sessions: &mut [Session<BUFFER>; STREAMS],
    ) -> bool {
        let mut busy = false;
        while self.outbox.space().len() >= DUE {
            // The room is enough, so this is never an error.
            let due = self.line.write_due(now, wall, self.outbox.space());
            let Ok(Some(len)) = due.map(|due| due.map(<[u8]>::len)) else { break };
            self.outbox.filled(len);
            busy = true;
        }
        for at in 0..STREAMS {
            let at = (self.first + at) % STREAMS;
            if self.outbox.unsent().len() > AHEAD {
                break;
            }
            let Some(session) = sessions.get_mut(at) else { continue };
            let Some(stream) = session.stream() else { continue };
            let unsent = session.unsent();
            let mut rest = unsent;
            // A stream that has ended is told with the next pass.
            let data = self.line.data(now, stream, &mut rest, self.outbox.space());
            let len = data.map_or(0, <[u8]>::len);
            let sent = unsent.len() - rest.len();
            self.outbox.filled(len);
            session.sent(sent);
            if len > 0 {
                busy = true;
                self.first = (at + 1) % STREAMS;
            }
            if session.is_over() {
                self.line.close(now, stream);
                session.close();
                busy = true;
            }
        }
        busy
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

/// Ends the session of a stream that is gone.
fn end<const BUFFER: usize>(sessions: &mut [Session<BUFFER>], stream: Stream) {
    if let Some(session) = sessions.iter_mut().find(|session| session.stream() == Some(stream)) {
        session.close();
    }
}
