//! The task of one line: it keeps the device open, and carries its streams: one for each command,
//! and the channel's.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use futures_util::task::AtomicWaker;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::{Instant as Moment, Sleep, sleep, sleep_until};
use tracing::{debug, info, warn};
use triwire::line::{
    self, Event, Line, LineError, MAX_WIRE, Packet, Protocol, Role, Slot, VERSION,
};
use triwire::time::Instant;

use super::device::{self, Device};
use super::stream::{self, Ended, LineEnd, Stream};
use crate::clock::{Clock, unix_now};

/// Commands at once on one line. The device may have fewer streams, and says so.
const STREAMS: usize = 16;
/// Bytes of each stream that are held for a command whose output is not read.
const WINDOW: u16 = 32 * 1024;
/// How long a command waits for the device to answer on the line.
const UP_BOUND: Duration = Duration::from_secs(3);
/// How often a device that is not there is looked for.
const REOPEN_EVERY: Duration = Duration::from_secs(1);
/// The same for one that was there a moment ago.
const REOPEN_SOON: Duration = Duration::from_millis(100);
/// How long a line whose device takes nothing waits before it looks at its deadlines again.
const STUCK: Duration = Duration::from_millis(20);
/// Bytes of one read, and reads of one turn.
const READ: usize = 4096;
const READS: usize = 16;

/// Somebody who wants a stream.
#[derive(Debug)]
pub(super) struct Ask {
    /// What it is to carry.
    pub(super) protocol: Protocol,
    /// Is told why there is none in words for people.
    pub(super) answer: oneshot::Sender<Result<Stream, String>>,
}

/// What the line is opened with.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) device: PathBuf,
    pub(super) speed: u32,
    pub(super) flow_control: bool,
}

/// Serves commands until nobody can ask any more and no stream is left.
pub(super) async fn serve(settings: Settings, mut asks: mpsc::Receiver<Ask>) {
    let name = settings.device.display().to_string();
    let mut waiting = VecDeque::new();
    let mut absent = false;
    let mut lost: Option<Moment> = None;
    loop {
        match open(&settings).await {
            Ok(device) => {
                info!(device = %name, "serial device opened");
                absent = false;
                let mut engine = Engine::new(device, &name, waiting);
                let ended = poll_fn(|cx| engine.poll(cx, &mut asks)).await;
                let Err(error) = ended else { return };
                warn!(device = %name, %error, "serial device lost");
                waiting = engine.fail(&error);
                lost = Some(Moment::now());
                drop(engine);
                sleep(REOPEN_SOON).await;
            }
            Err(why) => {
                if !absent {
                    warn!(device = %name, "serial device: {why}");
                }
                absent = true;
                // A device that restarts may be away for a moment.
                let is_back_soon = lost.is_some_and(|lost| Moment::now() < lost + UP_BOUND);
                if !is_back_soon {
                    for ask in waiting.drain(..) {
                        refuse(ask, why.clone());
                    }
                }
                let pause = if is_back_soon { REOPEN_SOON } else { REOPEN_EVERY };
                tokio::select! {
                    ask = asks.recv() => match ask {
                        Some(ask) => waiting.push_back(Waiting::new(ask)),
                        None => return,
                    },
                    () = sleep(pause) => {}
                }
            }
        }
    }
}

async fn open(settings: &Settings) -> Result<Device, String> {
    let Settings { device, speed, flow_control } = settings.clone();
    let opened = spawn_blocking(move || device::open(&device, speed, flow_control)).await;
    let fd = opened.map_err(|error| error.to_string())??;
    Device::new(fd, settings.speed).map_err(|error| format!("it cannot be waited for: {error}"))
}

fn refuse(ask: Waiting, why: String) {
    // Who asked may have gone.
    let _ = ask.ask.answer.send(Err(why));
}

/// A command that waits for the line to come up.
struct Waiting {
    ask: Ask,
    until: Moment,
}

impl Waiting {
    fn new(ask: Ask) -> Self {
        Self { ask, until: Moment::now() + UP_BOUND }
    }
}

/// The line while its device is open.
struct Engine {
    device: Device,
    name: String,
    line: Line<Box<[Slot]>>,
    packet: Packet,
    streams: Vec<(line::Stream, LineEnd)>,
    /// Who is first to send: each in turn.
    first: usize,
    waiting: VecDeque<Waiting>,
    /// What is to be written, at most what is not late.
    outbox: BytesMut,
    clock: Clock,
    timer: Pin<Box<Sleep>>,
    waker: Arc<AtomicWaker>,
    /// The version of the line that the device speaks, when it is another.
    other: Option<u8>,
    asks_ended: bool,
}

impl Engine {
    fn new(device: Device, name: &str, waiting: VecDeque<Waiting>) -> Self {
        let slots = vec![Slot::EMPTY; STREAMS].into_boxed_slice();
        Self {
            device,
            name: name.to_owned(),
            // This end keeps no count of its starts.
            line: Line::new(Role::Gateway, 0, WINDOW, slots),
            packet: Packet::new(),
            streams: Vec::new(),
            first: 0,
            waiting,
            outbox: BytesMut::new(),
            clock: Clock::start(),
            timer: Box::pin(sleep(Duration::ZERO)),
            waker: Arc::default(),
            other: None,
            asks_ended: false,
        }
    }

    /// Ends all streams: the device is gone.
    fn fail(&mut self, error: &io::Error) -> VecDeque<Waiting> {
        for (_, stream) in self.streams.drain(..) {
            stream.end(Ended::Lost(format!(
                "the device is gone ({error}); was it unplugged or switched off?"
            )));
        }
        std::mem::take(&mut self.waiting)
    }

    /// Does all there is to do; ready when there never will be more, or when the device failed.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        asks: &mut mpsc::Receiver<Ask>,
    ) -> Poll<io::Result<()>> {
        self.waker.register(cx.waker());
        while !self.asks_ended
            && let Poll::Ready(ask) = asks.poll_recv(cx)
        {
            match ask {
                Some(ask) => self.waiting.push_back(Waiting::new(ask)),
                None => self.asks_ended = true,
            }
        }
        let more = self.poll_read(cx)?;
        let now = self.clock.now();
        while let Some(event) = self.line.poll(now) {
            self.apply(event);
        }
        self.open_streams(now);
        loop {
            self.fill(now);
            if self.outbox.is_empty() {
                break;
            }
            match self.device.poll_write(cx, now, &self.outbox) {
                Poll::Ready(written) => self.outbox.advance(written?),
                Poll::Pending => break,
            }
        }
        if self.asks_ended && self.streams.is_empty() && self.outbox.is_empty() {
            return Poll::Ready(Ok(()));
        }
        if more {
            cx.waker().wake_by_ref();
        }
        self.sleep(cx, now);
        Poll::Pending
    }

    /// Reads and takes in what came; `true` when there may be more.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let mut room = [0; READ];
        for _ in 0..READS {
            let count = match self.device.poll_read(cx, &mut room) {
                Poll::Ready(count) => count?,
                Poll::Pending => return Ok(false),
            };
            let mut input = room.get(..count).unwrap_or_default();
            let now = self.clock.now();
            let mut packet = std::mem::take(&mut self.packet);
            while let Some(event) = self.line.feed(now, &mut input, &mut packet) {
                self.apply(event);
            }
            self.packet = packet;
        }
        Ok(true)
    }

    fn apply(&mut self, event: Event<'_>) {
        match event {
            Event::Reset { boot, .. } => {
                self.other = None;
                info!(device = %self.name, boot, "the device is on the line");
            }
            Event::OtherVersion { found } => self.other = Some(found),
            Event::Data { stream, bytes } => {
                if let Some((_, end)) = self.streams.iter().find(|(own, _)| *own == stream) {
                    end.deliver(bytes);
                }
            }
            Event::Closed { stream } => self.end(stream, Ended::Closed),
            Event::Disconnected { stream, why } => {
                debug!(device = %self.name, stream = stream.number(), why = why.code(), "disconnected");
                self.end(stream, Ended::Lost(why.to_string()));
                // A device that fell silent may have lost what it knew: nothing more is opened
                // before it has answered anew.
                if why == line::Disconnect::Silence && self.streams.is_empty() {
                    self.line.link_down();
                }
            }
            // This end serves nothing yet that a device could ask for.
            Event::Opened { stream, .. } => self.line.close(self.clock.now(), stream),
            // What may be sent is looked at before anything is.
            Event::Credit { stream, .. } => {
                if let Some((_, end)) = self.streams.iter().find(|(own, _)| *own == stream) {
                    end.know();
                }
            }
        }
    }

    fn end(&mut self, stream: line::Stream, how: Ended) {
        if let Some(at) = self.streams.iter().position(|(own, _)| *own == stream) {
            self.streams.remove(at).1.end(how);
        }
    }

    /// Opens a stream for each command that waits, or says why there is none.
    fn open_streams(&mut self, now: Instant) {
        let mut packet = [0; MAX_WIRE];
        while let Some(first) = self.waiting.front() {
            if first.ask.answer.is_closed() {
                self.waiting.pop_front();
                continue;
            }
            match self.line.open(now, first.ask.protocol, &mut packet) {
                Ok((stream, packet)) => {
                    self.outbox.extend_from_slice(packet);
                    let (line_end, command_end) = stream::pair(&self.waker);
                    self.streams.push((stream, line_end));
                    if let Some(first) = self.waiting.pop_front() {
                        // When who asked has gone, the stream is given up as it drops.
                        let _ = first.ask.answer.send(Ok(command_end));
                    }
                }
                Err(LineError::Down) if Moment::now() < first.until && self.other.is_none() => {
                    return;
                }
                Err(error) => {
                    let why = self.why_not(error);
                    if let Some(first) = self.waiting.pop_front() {
                        refuse(first, why);
                    }
                }
            }
        }
    }

    fn why_not(&self, error: LineError) -> String {
        match (error, self.other, self.line.broken()) {
            (LineError::Down, Some(found), _) => format!(
                "the device speaks version {found} of the line, this end {VERSION}; \
                 bring both to the same release"
            ),
            (LineError::Down, None, broken) if broken > 0 => format!(
                "what comes from the device makes no sense ({broken} broken packets); \
                 check `speed`, the wiring, and that its firmware uses this line for nothing else"
            ),
            (LineError::Down, None, _) => format!(
                "the device has not answered for {} s; check that it is connected and runs, \
                 and `speed`",
                UP_BOUND.as_secs()
            ),
            _ => error.to_string(),
        }
    }

    /// Fills the outbox: first what the line owes, then each stream's packets in turn.
    fn fill(&mut self, now: Instant) {
        let mut packet = [0; MAX_WIRE];
        let ahead = self.device.ahead();
        self.settle(now);
        while self.outbox.len() < ahead {
            if let Ok(Some(due)) = self.line.write_due(now, unix_now(), &mut packet) {
                self.outbox.extend_from_slice(due);
                continue;
            }
            let mut any = false;
            self.first = self.first.wrapping_add(1);
            let count = self.streams.len();
            for turn in 0..count {
                let at = self.first.wrapping_add(turn) % count;
                let Some((stream, end)) = self.streams.get(at) else { continue };
                end.offer(|bytes| {
                    // A stream that has just ended is told so.
                    if let Ok(data) = self.line.data(now, *stream, bytes, &mut packet) {
                        any |= !data.is_empty();
                        self.outbox.extend_from_slice(data);
                    }
                });
            }
            if !any {
                break;
            }
        }
    }

    /// Tells the line what commands took and which of them are over.
    fn settle(&mut self, now: Instant) {
        let line = &mut self.line;
        self.streams.retain(|(stream, end)| {
            line.consumed(now, *stream, end.taken());
            let given_up = end.is_given_up();
            if given_up {
                line.close(now, *stream);
            }
            !given_up
        });
    }

    /// Sees to it that the task wakes at the next deadline.
    fn sleep(&mut self, cx: &mut Context<'_>, now: Instant) {
        let is_stuck = self.outbox.len() >= self.device.ahead();
        let line = self
            .line
            .deadline()
            .map(|at| if is_stuck { at.max(now.saturating_add(STUCK)) } else { at });
        let write = if self.outbox.is_empty() { None } else { self.device.writable_at(now) };
        let first = line.into_iter().chain(write).min().map(|at| self.clock.to_tokio(at));
        let waiting = self.waiting.front().map(|waiting| waiting.until);
        let Some(until) = first.into_iter().chain(waiting).min() else { return };
        // Not into the past: the timer counts in ms, and a turn that found nothing to do must not
        // be repeated at once.
        self.timer.set(sleep_until(until.max(Moment::now() + Duration::from_millis(1))));
        if self.timer.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
    }
}
