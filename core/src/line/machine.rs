//! Both ends of the line: every change of a stream's state stands here.
//!
//! What is marked `inline(never)` is so for the flash it saves.

use super::{
    ANSWER_BOUND, CREDIT_EVERY, Disconnect, Event, Kind, LineError, MAX_DATA, Packet, Protocol,
    RESET_EVERY, Reset, Role, Stream, VERSION, packet,
};
use crate::OutTooSmall;
use crate::time::{Instant, UnixMillis};

/// Bytes on the wire of a reset, a credit and a close.
const RESET_WIRE: usize = packet::wire_len(16);
const CREDIT_WIRE: usize = packet::wire_len(10);
const CLOSE_WIRE: usize = packet::wire_len(2);

/// What makes a total of bytes sent one that fits none: no window is that large.
const NEVER: u32 = 1 << 31;

/// Room for one stream; a [`Line`] has as many as streams at once.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    stream: u8,
    state: State,
    /// How the stream ended, until the application has been told.
    end: Option<End>,
    /// Sequence number of the next data packet.
    next_in: u8,
    next_out: u8,
    /// Whether the other end has shown that it knows the stream.
    known: bool,
    /// Whether its totals are to be such as cannot fit: the stream was given up.
    lost: bool,
    /// Whether our close has been written.
    told: bool,
    /// Totals of bytes, wrapping: sent, and how many may be; received, how many may be, and how
    /// many of these the other end has been told.
    sent: u32,
    may_send: u32,
    received: u32,
    granted: u32,
    announced: u32,
    /// When the stream ends if nothing comes for it; once it is closing, when it is forgotten.
    bound: Instant,
    /// When the totals, or the close, are sent next.
    next: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing is left of the stream, but perhaps word of its end.
    Free,
    Open,
    /// Ended at this end; the other's close has not come.
    Closing,
    /// Ended by the other end; our close is to be sent.
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Closed,
    Lost(Disconnect),
}

/// What became of a whole packet.
enum Outcome {
    /// Streams end by it: that is to be told before it.
    After,
    Nothing,
    Event(Event<'static>),
    /// Data for the application.
    Data(Stream),
    /// It says nothing known.
    Broken,
}

impl Slot {
    /// Room for a stream, with none in it.
    pub const EMPTY: Self = Self {
        stream: 0,
        state: State::Free,
        end: None,
        next_in: 0,
        next_out: 0,
        known: false,
        lost: false,
        told: false,
        sent: 0,
        may_send: 0,
        received: 0,
        granted: 0,
        announced: 0,
        bound: Instant::ZERO,
        next: Instant::ZERO,
    };

    /// Begins a stream whose totals are due, and may be sent `window` bytes once they are out.
    fn begin(&mut self, stream: u8, now: Instant, window: u16) {
        *self = Self {
            stream,
            state: State::Open,
            granted: u32::from(window),
            bound: now.saturating_add(ANSWER_BOUND),
            next: now,
            ..Self::EMPTY
        };
    }

    const fn credit(&self) -> u32 {
        self.may_send.wrapping_sub(self.sent)
    }

    fn hear(&mut self, now: Instant) {
        self.known = true;
        self.bound = now.saturating_add(ANSWER_BOUND);
    }

    fn start_closing(&mut self, at: Instant) {
        self.state = State::Closing;
        self.bound = at.saturating_add(ANSWER_BOUND);
        self.next = at;
    }

    /// Ends the stream as a disconnect, which the other end is told.
    fn give_up(&mut self, at: Instant, why: Disconnect) {
        self.start_closing(at);
        self.end = Some(End::Lost(why));
        self.lost = true;
    }

    /// Returns the body of a credit.
    #[inline(never)]
    const fn totals(&self) -> [u8; 10] {
        let sent = if self.lost { self.sent ^ NEVER } else { self.sent };
        let [a, b, c, d] = sent.to_be_bytes();
        let [e, f, g, h] = self.granted.to_be_bytes();
        [Kind::Credit as u8, self.stream, a, b, c, d, e, f, g, h]
    }
}

#[cfg_attr(target_os = "none", inline(never))]
fn write_close(stream: u8, out: &mut [u8]) -> Option<&[u8]> {
    packet::write(out, &[Kind::Close as u8, stream], &[])
}

/// Finds what there is of a stream, open or closing.
#[inline(never)]
fn find(slots: &mut [Slot], number: u8) -> Option<&mut Slot> {
    slots.iter_mut().find(|slot| slot.stream == number && slot.state != State::Free)
}

#[inline(never)]
fn find_vacant(slots: &mut [Slot]) -> Option<&mut Slot> {
    slots.iter_mut().find(|slot| slot.state == State::Free && slot.end.is_none())
}

impl Default for Slot {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// One end of a serial line.
///
/// `S` holds a [`Slot`] for each stream at once: an array in firmware, a boxed slice on a host.
#[derive(Clone, Debug)]
pub struct Line<S> {
    slots: S,
    boot: u32,
    broken: u32,
    window: u16,
    role: Role,
    /// Number of the next stream that this end opens.
    next_number: u8,
    /// Whether the other end has said that it has no streams of before.
    up: bool,
    answer_due: bool,
    reset_at: Instant,
    /// The stream whose totals came last, fitted, and had nothing behind them yet.
    confirmed: Option<u8>,
    /// A stream that is none here, and is to be closed.
    stray: Option<u8>,
}

impl<S: AsRef<[Slot]> + AsMut<[Slot]>> Line<S> {
    /// Begins, with the reset due at once.
    ///
    /// `boot` is this end's count of starts, 0 when it keeps none. `window` is the credit of each
    /// stream, in bytes, at least 1: what its receiver can hold without having used any of it.
    #[must_use]
    pub const fn new(role: Role, boot: u32, window: u16, slots: S) -> Self {
        Self {
            slots,
            boot,
            broken: 0,
            window,
            role,
            next_number: role as u8,
            up: false,
            answer_due: false,
            reset_at: Instant::ZERO,
            confirmed: None,
            stray: None,
        }
    }

    /// Reports whether streams can be opened: the other end has answered or asked, and is answered.
    #[must_use]
    pub const fn is_up(&self) -> bool {
        self.up && !self.answer_due
    }

    /// Returns how many packets were dropped because they failed their check or said nothing
    /// known; stops at the largest count.
    #[must_use]
    pub const fn broken(&self) -> u32 {
        self.broken
    }

    /// Returns how many bytes [`data`](Self::data) would take for a stream; 0 once it has ended.
    #[must_use]
    pub fn credit(&self, stream: Stream) -> u32 {
        let slots = self.slots.as_ref();
        let open = |slot: &&Slot| slot.stream == stream.0 && slot.state == State::Open;
        slots.iter().find(open).map_or(0, Slot::credit)
    }

    /// Takes what arrived, and says what it means; call it until it gives `None`.
    ///
    /// It advances `input` past what it used. A packet that ends streams has several events; the
    /// ends come first, and until all are taken it waits in `packet`, which is the same in every
    /// call.
    ///
    /// # Cost
    /// Linear in what is used of `input`, with a few passes over the slots for each packet.
    #[cfg_attr(target_os = "none", inline(never))]
    pub fn feed<'p>(
        &mut self,
        now: Instant,
        input: &mut &[u8],
        packet: &'p mut Packet,
    ) -> Option<Event<'p>> {
        self.settle(now);
        let stream = loop {
            if let Some(event) = self.take_end() {
                return Some(event);
            }
            let outcome = if packet.is_whole() || packet.take(input)? {
                self.receive(now, packet.body())
            } else {
                Outcome::Broken
            };
            if let Outcome::After = outcome {
                continue;
            }
            packet.done();
            match outcome {
                Outcome::Event(event) => return Some(event),
                Outcome::Data(stream) => break stream,
                Outcome::Broken => self.drop_packet(now),
                Outcome::Nothing | Outcome::After => {}
            }
        };
        let bytes = packet.body().get(3..).unwrap_or_default();
        Some(Event::Data { stream, bytes })
    }

    /// Tells which streams have ended since; call it until it gives `None`.
    pub fn poll(&mut self, now: Instant) -> Option<Event<'static>> {
        self.settle(now);
        self.take_end()
    }

    /// Writes the next packet that the line itself owes: resets and their answers, totals, closes;
    /// call it until it gives `None`. `wall` is this end's wall-clock time, 0 when it knows none.
    ///
    /// # Errors
    /// [`OutTooSmall`]; 20 bytes hold any.
    pub fn write_due<'o>(
        &mut self,
        now: Instant,
        wall: UnixMillis,
        out: &'o mut [u8],
    ) -> Result<Option<&'o [u8]>, OutTooSmall> {
        self.settle(now);
        if self.answer_due || (!self.up && now >= self.reset_at) {
            let [b0, b1, b2, b3] = self.boot.to_be_bytes();
            let answer = u8::from(self.answer_due);
            let head = [Kind::Reset as u8, 0, VERSION, answer, b0, b1, b2, b3];
            let packet = packet::write(out, &head, &wall.get().to_be_bytes())
                .ok_or(OutTooSmall { needed: RESET_WIRE })?;
            self.answer_due = false;
            self.reset_at = now.saturating_add(RESET_EVERY);
            return Ok(Some(packet));
        }
        for slot in self.slots.as_mut() {
            if slot.state == State::Free || (slot.state != State::Closed && now < slot.next) {
                continue;
            }
            // rule: LINE-8
            // rule: LINE-9
            let is_open = slot.state == State::Open;
            let with_totals = is_open || (slot.state == State::Closing && !slot.told);
            let totals_len = if with_totals { CREDIT_WIRE } else { 0 };
            let close_len = if is_open { 0 } else { CLOSE_WIRE };
            let needed = totals_len.saturating_add(close_len);
            let packets = out.get_mut(..needed).ok_or(OutTooSmall { needed })?;
            if with_totals {
                packet::write(packets, &slot.totals(), &[]);
                slot.announced = slot.granted;
            }
            if !is_open {
                write_close(slot.stream, packets.get_mut(totals_len..).unwrap_or_default());
                slot.told = true;
            }
            if slot.state == State::Closed {
                slot.state = State::Free;
            }
            slot.next = now.saturating_add(CREDIT_EVERY);
            return Ok(Some(packets));
        }
        let Some(stray) = self.stray else { return Ok(None) };
        let packet = write_close(stray, out).ok_or(OutTooSmall { needed: CLOSE_WIRE })?;
        self.stray = None;
        Ok(Some(packet))
    }

    /// Returns when [`poll`](Self::poll) or [`write_due`](Self::write_due) may next have something;
    /// a moment long past when they have it now.
    #[must_use]
    #[cfg_attr(target_os = "none", inline(never))]
    pub fn deadline(&self) -> Option<Instant> {
        let mut first = None;
        let mut wake = |at: Instant| first = Some(first.map_or(at, |first: Instant| first.min(at)));
        if self.answer_due || self.stray.is_some() {
            wake(Instant::ZERO);
        } else if !self.up {
            wake(self.reset_at);
        }
        for slot in self.slots.as_ref() {
            if slot.end.is_some() || slot.state == State::Closed {
                wake(Instant::ZERO);
            } else if slot.state != State::Free {
                wake(slot.next.min(slot.bound));
            }
        }
        first
    }

    /// Opens a stream. Until [`Event::Credit`] nothing may be sent on it.
    ///
    /// # Errors
    /// [`LineError::Down`], [`LineError::TooManyStreams`], [`LineError::OutTooSmall`].
    pub fn open<'o>(
        &mut self,
        now: Instant,
        protocol: Protocol,
        out: &'o mut [u8],
    ) -> Result<(Stream, &'o [u8]), LineError> {
        self.settle(now);
        if !self.is_up() {
            return Err(LineError::Down);
        }
        let slots = self.slots.as_mut();
        // rule: LINE-5
        let mut number = self.next_number;
        for _ in 0..slots.len() {
            if find(slots, number).is_none() {
                break;
            }
            number = number.wrapping_add(2);
        }
        let slot = find_vacant(slots).ok_or(LineError::TooManyStreams)?;
        let [high, low] = self.window.to_be_bytes();
        let head = [Kind::Open as u8, number, protocol as u8, high, low];
        let needed = packet::wire_len(head.len());
        let packet = packet::write(out, &head, &[]).ok_or(OutTooSmall { needed })?;
        self.next_number = number.wrapping_add(2);
        slot.begin(number, now, self.window);
        slot.announced = slot.granted;
        slot.next = now.saturating_add(CREDIT_EVERY);
        Ok((Stream(number), packet))
    }

    /// Writes one packet with the first of `bytes`, as many as credit and [`MAX_DATA`] allow, and
    /// advances `bytes` past them. Without credit, or without bytes, it is empty: wait for
    /// [`Event::Credit`].
    ///
    /// # Errors
    /// [`LineError::Ended`], [`LineError::OutTooSmall`].
    pub fn data<'o>(
        &mut self,
        now: Instant,
        stream: Stream,
        bytes: &mut &[u8],
        out: &'o mut [u8],
    ) -> Result<&'o [u8], LineError> {
        let slot = self.live(now, stream).ok_or(LineError::Ended)?;
        // rule: LINE-7
        let count = bytes.len().min(MAX_DATA) as u32;
        let Some((part, rest)) = bytes.split_at_checked(count.min(slot.credit()) as usize) else {
            return Ok(&[]);
        };
        if part.is_empty() {
            return Ok(&[]);
        }
        let head = [Kind::Data as u8, stream.0, slot.next_out];
        let needed = packet::wire_len(head.len().saturating_add(part.len()));
        let packet = packet::write(out, &head, part).ok_or(OutTooSmall { needed })?;
        slot.next_out = slot.next_out.wrapping_add(1);
        slot.sent = slot.sent.wrapping_add(part.len() as u32);
        *bytes = rest;
        Ok(packet)
    }

    /// Gives room back: `bytes` of what came on the stream are used. More than came count as what
    /// came; of a stream that has ended, nothing.
    pub fn consumed(&mut self, now: Instant, stream: Stream, bytes: usize) {
        let window = u32::from(self.window);
        let Some(slot) = self.live(now, stream) else { return };
        let most = slot.received.wrapping_add(window).wrapping_sub(slot.granted);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(most);
        slot.granted = slot.granted.wrapping_add(bytes);
        if slot.granted.wrapping_sub(slot.announced) >= window.div_ceil(2) && bytes > 0 {
            slot.next = now;
        }
    }

    /// Closes a stream in both directions, after what was sent on it; no event follows for it, and
    /// [`write_due`](Self::write_due) has the packets. Of a stream that has ended, nothing.
    pub fn close(&mut self, now: Instant, stream: Stream) {
        if let Some(slot) = self.live(now, stream) {
            slot.start_closing(now);
        }
    }

    /// Refuses a stream that the other end has just opened, for want of a place or of such a service:
    /// it is told [`Disconnect::Refused`] there, and no event follows for it here. Of a stream that
    /// has ended, nothing.
    pub fn refuse(&mut self, now: Instant, stream: Stream) {
        if let Some(slot) = self.live(now, stream) {
            slot.state = State::Free;
            self.stray = Some(stream.0);
        }
    }

    /// Tells that the line itself is gone, a device unplugged: all streams end, and the reset is
    /// due again.
    pub fn link_down(&mut self) {
        self.end_all(Disconnect::LinkDown);
        self.up = false;
        self.answer_due = false;
        self.reset_at = Instant::ZERO;
    }

    /// Lets time have its effect before anything else has: what comes at a bound comes too late.
    fn settle(&mut self, now: Instant) {
        for slot in self.slots.as_mut() {
            // rule: LINE-8
            // From the bound, not from now: how late somebody looks changes nothing.
            if slot.state == State::Open && now >= slot.bound {
                slot.give_up(slot.bound, Disconnect::Silence);
            }
            if slot.state == State::Closing && now >= slot.bound {
                slot.state = State::Free;
            }
        }
    }

    #[inline(never)]
    fn take_end(&mut self) -> Option<Event<'static>> {
        let mut slots = self.slots.as_mut().iter_mut();
        slots.find_map(|slot| {
            let stream = Stream(slot.stream);
            Some(match slot.end.take()? {
                End::Closed => Event::Closed { stream },
                End::Lost(why) => Event::Disconnected { stream, why },
            })
        })
    }

    fn live(&mut self, now: Instant, stream: Stream) -> Option<&mut Slot> {
        self.settle(now);
        find(self.slots.as_mut(), stream.0).filter(|slot| slot.state == State::Open)
    }

    /// Ends all streams without a word to the other end; reports whether any was open.
    #[inline(never)]
    fn end_all(&mut self, why: Disconnect) -> bool {
        self.stray = None;
        let mut any = false;
        for slot in self.slots.as_mut() {
            if slot.state == State::Open {
                slot.end = Some(End::Lost(why));
                any = true;
            }
            slot.state = State::Free;
        }
        any
    }

    #[inline(never)]
    fn drop_packet(&mut self, now: Instant) {
        // rule: LINE-2
        self.broken = self.broken.saturating_add(1);
        self.confirmed = None;
        for slot in self.slots.as_mut() {
            if slot.state == State::Open {
                slot.next = slot.next.min(now);
            }
        }
    }

    fn receive(&mut self, now: Instant, body: &[u8]) -> Outcome {
        let confirmed = self.confirmed.take();
        let &[kind, number, ref payload @ ..] = body else { return Outcome::Broken };
        let Some(kind) = Kind::from_byte(kind) else { return Outcome::Broken };
        if kind == Kind::Reset {
            return self.receive_reset(payload);
        }
        if !self.up {
            // Of the time before the reset; its answer ends it.
            return Outcome::Nothing;
        }
        // rule: LINE-5
        let is_ours = number & 1 == self.role as u8;
        if kind == Kind::Open {
            return if is_ours { Outcome::Broken } else { self.receive_open(now, number, payload) };
        }
        let Some(slot) = find(self.slots.as_mut(), number) else {
            // rule: LINE-10
            if kind != Kind::Close || !is_ours {
                self.stray = Some(number);
            }
            return Outcome::Nothing;
        };
        if kind == Kind::Close {
            if !payload.is_empty() {
                return Outcome::Broken;
            }
            let is_open = slot.state == State::Open;
            if is_open {
                slot.end = Some(if confirmed == Some(number) {
                    End::Closed
                } else if slot.known {
                    End::Lost(Disconnect::Unconfirmed)
                } else {
                    End::Lost(Disconnect::Refused)
                });
            }
            let owed = is_open || !slot.told;
            slot.state = if owed { State::Closed } else { State::Free };
            return Outcome::Nothing;
        }
        if slot.state != State::Open {
            return Outcome::Nothing;
        }
        let why = match (kind, payload) {
            (Kind::Data, &[sequence, ref bytes @ ..]) => {
                let len = bytes.len() as u32;
                // rule: LINE-6
                if sequence != slot.next_in {
                    Disconnect::Skipped
                // rule: LINE-7
                } else if len > slot.announced.wrapping_sub(slot.received) {
                    Disconnect::Overrun
                } else {
                    slot.hear(now);
                    slot.next_in = slot.next_in.wrapping_add(1);
                    slot.received = slot.received.wrapping_add(len);
                    return if len > 0 { Outcome::Data(Stream(number)) } else { Outcome::Nothing };
                }
            }
            (Kind::Credit, &[a, b, c, d, e, f, g, h]) => {
                let sent = u32::from_be_bytes([a, b, c, d]);
                let may_send = u32::from_be_bytes([e, f, g, h]);
                let more = may_send.wrapping_sub(slot.may_send);
                // rule: LINE-8
                if sent != slot.received || more >= NEVER {
                    Disconnect::Totals
                } else {
                    slot.hear(now);
                    slot.may_send = may_send;
                    self.confirmed = Some(number);
                    if more == 0 {
                        return Outcome::Nothing;
                    }
                    let credit = slot.credit();
                    return Outcome::Event(Event::Credit { stream: Stream(number), credit });
                }
            }
            _ => return Outcome::Broken,
        };
        slot.give_up(now, why);
        Outcome::Nothing
    }

    fn receive_reset(&mut self, payload: &[u8]) -> Outcome {
        let &[found, answer, b0, b1, b2, b3, ref wall @ ..] = payload else {
            return Outcome::Broken;
        };
        let Ok(wall) = <[u8; 8]>::try_from(wall) else { return Outcome::Broken };
        if found != VERSION {
            return Outcome::Event(Event::OtherVersion { found });
        }
        // rule: LINE-3
        let kind = match answer {
            0 => Reset::Asked,
            1 if self.up => return Outcome::Nothing,
            1 => Reset::Answered,
            _ => return Outcome::Broken,
        };
        // rule: LINE-4
        if self.end_all(Disconnect::Reset) {
            return Outcome::After;
        }
        // Who asks has no streams, which is all that an answer would say.
        self.up = true;
        self.answer_due = kind == Reset::Asked;
        let boot = u32::from_be_bytes([b0, b1, b2, b3]);
        Outcome::Event(Event::Reset { kind, boot, wall: UnixMillis::new(u64::from_be_bytes(wall)) })
    }

    fn receive_open(&mut self, now: Instant, number: u8, payload: &[u8]) -> Outcome {
        let &[protocol, high, low] = payload else { return Outcome::Broken };
        let credit = u16::from_be_bytes([high, low]);
        let slots = self.slots.as_mut();
        let slot = match find(slots, number) {
            Some(slot) => Some(slot),
            None => find_vacant(slots),
        };
        let (Some(slot), Some(protocol)) = (slot, Protocol::from_byte(protocol)) else {
            self.stray = Some(number);
            return Outcome::Nothing;
        };
        if slot.state == State::Open {
            // rule: LINE-4
            slot.end = Some(End::Lost(Disconnect::Replaced));
            slot.state = State::Free;
            return Outcome::After;
        }
        slot.begin(number, now, self.window);
        slot.known = true;
        slot.may_send = u32::from(credit);
        Outcome::Event(Event::Opened { stream: Stream(number), protocol, credit })
    }
}

const _: () = assert!(size_of::<Slot>() <= 64);
