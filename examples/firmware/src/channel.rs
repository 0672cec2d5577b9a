//! The channel's stream of the line: the calls that come on it, and their replies.
//!
//! A call is taken once the reply before it is on its way to the wire, so that there is always
//! room for one. What is measured meanwhile keeps its ticket, and others go on.

use core::time::Duration;

use triwire::buffer::{Inbox, Outbox};
use triwire::channel::bounds::Bounds;
use triwire::channel::door::{Received, Ticket};
use triwire::channel::lines::LINE_EXTRA;
use triwire::line::Stream;
use triwire::time::Instant;
use triwire_embedded::channel::{Executor, Ran};

use crate::command::Host;
use crate::session::{Pass, keep};
use crate::tools::{ADMITTED, Admitted, Step, admitted, bounds, run, temperature};

/// Calls that run at once.
pub const CALLS: usize = 2;
/// Bytes of what a tool observes.
const SCRATCH: usize = 128;
/// Room for any reply.
const REPLY: usize = DeviceExecutor::room_for(SCRATCH);
/// How long the sensor may take, and how often it is looked at.
const SENSOR_BOUND: Duration = Duration::from_millis(100);
const LOOK_EVERY: Duration = Duration::from_millis(1);

type DeviceExecutor = Executor<Admitted, CALLS>;

/// The place of the channel's stream, used again and again: `BUFFER` bytes of what came and is not
/// yet used, and room for one reply. The longest call has one byte less than `BUFFER`.
#[derive(Debug)]
pub struct Channel<const BUFFER: usize> {
    stream: Option<Stream>,
    inbox: Inbox<[u8; BUFFER]>,
    outbox: Outbox<[u8; REPLY]>,
    executor: Place,
    /// The calls that wait for the temperature.
    waiting: [Option<Ticket>; CALLS],
    /// When the sensor is looked at next, and until when.
    look_at: Instant,
    until: Instant,
    /// Whether it is done, and what it gave, until everybody who waits is told.
    is_measured: bool,
    value: Option<i32>,
}

// With its number, a place without an executor is all zeros: the start-up code clears it, and it
// takes no flash.
#[derive(Debug)]
#[repr(u8)]
#[allow(clippy::large_enum_variant, reason = "there is one, and nothing to box it on")]
enum Place {
    Empty = 0,
    Taken(DeviceExecutor),
}

impl Place {
    #[inline(never)]
    fn take(&mut self, bounds: &[Bounds<'static>; ADMITTED.len()], buffer: usize) {
        // A line ends within the inbox.
        *self = Self::Taken(Executor::new(admitted(bounds), buffer - LINE_EXTRA));
    }
}

impl<const BUFFER: usize> Default for Channel<BUFFER> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const BUFFER: usize> Channel<BUFFER> {
    /// Makes a place with no stream in it. As a static of its own it is all zeros and takes no
    /// flash.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            stream: None,
            inbox: Inbox::new([0; BUFFER]),
            outbox: Outbox::new([0; REPLY]),
            executor: Place::Empty,
            waiting: [const { None }; CALLS],
            look_at: Instant::ZERO,
            until: Instant::ZERO,
            is_measured: false,
            value: None,
        }
    }

    pub(crate) const fn stream(&self) -> Option<Stream> {
        self.stream
    }

    /// Begins with a new stream; `false` when there is nothing to call.
    pub(crate) fn open(&mut self, stream: Stream) -> bool {
        self.close();
        if let Place::Empty = self.executor {
            let Ok(bounds) = bounds() else { return false };
            self.executor.take(&bounds, BUFFER);
        }
        self.stream = Some(stream);
        true
    }

    /// Ends the stream; calls that wait are dropped, budgets stay as they are.
    pub(crate) fn close(&mut self) {
        self.stream = None;
        self.inbox.consume(BUFFER);
        self.outbox.sent(REPLY);
        self.waiting = [const { None }; CALLS];
        self.is_measured = false;
        if let Place::Taken(executor) = &mut self.executor {
            executor.link_down();
        }
    }

    /// Keeps what came. Credit is no more than there is room for; `false` when it did not fit.
    pub(crate) fn receive(&mut self, bytes: &[u8]) -> bool {
        keep(&mut self.inbox, bytes)
    }

    /// Returns what is to be sent; [`sent`](Self::sent) takes off its beginning.
    pub(crate) fn unsent(&self) -> &[u8] {
        self.outbox.unsent()
    }

    pub(crate) fn sent(&mut self, count: usize) {
        self.outbox.sent(count);
    }

    /// Returns when the sensor is looked at next.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.waiting.iter().any(Option::is_some).then_some(self.look_at)
    }

    /// Does what can be done now: at most one call, or one answer of the sensor's.
    #[inline(never)]
    pub(crate) fn pass(&mut self, host: &Host) -> Pass {
        let unread = self.inbox.unread().len();
        let mut scratch = [0; SCRATCH];
        let replied = self.outbox.is_empty() && self.step(host, &mut scratch);
        let used = unread - self.inbox.unread().len();
        Pass { used, moved: used > 0 || replied }
    }

    /// Makes the next step while there is room for a reply; `true` when there was one.
    fn step(&mut self, host: &Host, scratch: &mut [u8; SCRATCH]) -> bool {
        if self.is_measured(host) {
            if let Some(ticket) = self.waiting.iter_mut().find_map(Option::take) {
                self.answer(ticket, temperature(self.value, scratch));
                return true;
            }
            self.is_measured = false;
        }
        let Place::Taken(executor) = &mut self.executor else { return false };
        let mut window = self.inbox.window();
        let received = executor.feed(&mut window.rest);
        match received {
            Some(Received::Run(ticket, call)) => match run(&call, host, scratch) {
                Step::Done(ran) => {
                    drop(window);
                    self.answer(ticket, ran);
                }
                Step::Measures => {
                    if self.waiting.iter().all(Option::is_none) {
                        (host.board.start_sensor)();
                        self.look_at = host.now;
                        self.until = host.now.saturating_add(SENSOR_BOUND);
                    }
                    if let Some(place) = self.waiting.get_mut(ticket.index()) {
                        *place = Some(ticket);
                    }
                }
            },
            Some(Received::Refuse(refused)) => {
                let len = executor.refuse(&refused, self.outbox.space()).map_or(0, <[u8]>::len);
                self.outbox.filled(len);
            }
            Some(Received::Ignored(_)) => {}
            None => return false,
        }
        true
    }

    /// Looks whether there is a temperature, or will be none.
    fn is_measured(&mut self, host: &Host) -> bool {
        let is_due = self.deadline().is_some_and(|at| host.now >= at);
        if !self.is_measured && is_due {
            self.look_at = host.now.saturating_add(LOOK_EVERY);
            self.value = (host.board.sensor)();
            self.is_measured = self.value.is_some() || host.now >= self.until;
        }
        self.is_measured
    }

    fn answer(&mut self, ticket: Ticket, ran: Ran<'_>) {
        let Place::Taken(executor) = &mut self.executor else { return };
        // The outbox is empty, and has room for any.
        let len = executor.answer(ticket, ran, self.outbox.space()).map_or(0, <[u8]>::len);
        self.outbox.filled(len);
    }
}
