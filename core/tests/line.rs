//! Both ends of the serial line against wires that lose, break and repeat.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use triwire::line::{
    ANSWER_BOUND, CREDIT_EVERY, Disconnect, Event, Line, LineError, MAX_DATA, MAX_WIRE, Packet,
    Protocol, Reset, Role, Slot, Stream, VERSION,
};
use triwire::time::{Instant, UnixMillis};

/// What an event says, without its loan.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Reset(Reset, u32, u64),
    OtherVersion(u8),
    Opened(u8, Protocol, u16),
    Data(u8, Vec<u8>),
    Closed(u8),
    Credit(u8, u32),
    Disconnected(u8, Disconnect),
}

impl Said {
    fn of(event: Event<'_>) -> (Self, Option<Stream>) {
        match event {
            Event::Reset { kind, boot, wall } => (Self::Reset(kind, boot, wall.get()), None),
            Event::OtherVersion { found } => (Self::OtherVersion(found), None),
            Event::Opened { stream, protocol, credit } => {
                (Self::Opened(stream.number(), protocol, credit), Some(stream))
            }
            Event::Data { stream, bytes } => {
                assert!(!bytes.is_empty() && bytes.len() <= MAX_DATA);
                (Self::Data(stream.number(), bytes.to_vec()), Some(stream))
            }
            Event::Closed { stream } => (Self::Closed(stream.number()), Some(stream)),
            Event::Credit { stream, credit } => {
                (Self::Credit(stream.number(), credit), Some(stream))
            }
            Event::Disconnected { stream, why } => {
                (Self::Disconnected(stream.number(), why), Some(stream))
            }
        }
    }

    fn stream(&self) -> Option<u8> {
        match *self {
            Self::Reset(..) | Self::OtherVersion(_) => None,
            Self::Opened(n, ..)
            | Self::Data(n, _)
            | Self::Closed(n)
            | Self::Credit(n, _)
            | Self::Disconnected(n, _) => Some(n),
        }
    }
}

/// A packet written without the code under test.
fn packet(body: &[u8]) -> Vec<u8> {
    let crc = crc::Crc::<u16>::new(&crc::CRC_16_IBM_3740).checksum(body);
    let mut wire = vec![0; 300];
    let len = cobs::encode(&[body, &crc.to_be_bytes()].concat(), &mut wire);
    wire.truncate(len + 1);
    assert_eq!(wire[len], 0);
    wire
}

fn reset(answer: u8) -> Vec<u8> {
    packet(&[0, 0, VERSION, answer, 0, 0, 0, 7, 0, 0, 1, 0x9F, 0, 0, 0, 5])
}

fn credit(stream: u8, sent: u32, may_send: u32) -> Vec<u8> {
    packet(&[&[4, stream][..], &sent.to_be_bytes(), &may_send.to_be_bytes()].concat())
}

fn data(stream: u8, sequence: u8, bytes: &[u8]) -> Vec<u8> {
    packet(&[&[2, stream, sequence][..], bytes].concat())
}

fn after(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// One end alone.
struct End {
    line: Line<Vec<Slot>>,
    packet: Packet,
    streams: BTreeMap<u8, Stream>,
}

impl End {
    fn new(role: Role, window: u16, slots: usize) -> Self {
        let line = Line::new(role, 3, window, vec![Slot::EMPTY; slots]);
        Self { line, packet: Packet::new(), streams: BTreeMap::new() }
    }

    /// An end that is up, with nothing due.
    fn up(role: Role, window: u16) -> Self {
        let mut end = Self::new(role, window, 4);
        assert_eq!(end.feed(0, &reset(0)).len(), 1);
        assert_eq!(end.due(0), reset_of(&end, 1));
        assert!(end.line.is_up());
        end
    }

    fn feed_at(&mut self, now: Instant, mut input: &[u8]) -> Vec<Said> {
        let mut said = Vec::new();
        while let Some(event) = self.line.feed(now, &mut input, &mut self.packet) {
            let (event, stream) = Said::of(event);
            self.streams.extend(stream.map(|s| (s.number(), s)));
            said.push(event);
        }
        assert!(input.is_empty());
        said
    }

    fn feed(&mut self, millis: u64, input: &[u8]) -> Vec<Said> {
        self.feed_at(after(millis), input)
    }

    fn poll_at(&mut self, now: Instant) -> Vec<Said> {
        core::iter::from_fn(|| self.line.poll(now)).map(|event| Said::of(event).0).collect()
    }

    fn due_at(&mut self, now: Instant) -> Vec<u8> {
        let mut out = [0; MAX_WIRE];
        let mut wire = Vec::new();
        while let Some(packet) = self.line.write_due(now, UnixMillis::new(77), &mut out).unwrap() {
            wire.extend_from_slice(packet);
        }
        wire
    }

    fn due(&mut self, millis: u64) -> Vec<u8> {
        self.due_at(after(millis))
    }

    fn open_at(&mut self, now: Instant) -> Result<(Stream, Vec<u8>), LineError> {
        let mut out = [0; MAX_WIRE];
        let (stream, wire) = self.line.open(now, Protocol::Http, &mut out)?;
        self.streams.insert(stream.number(), stream);
        Ok((stream, wire.to_vec()))
    }

    fn send(&mut self, millis: u64, stream: u8, bytes: &[u8]) -> Result<Vec<u8>, LineError> {
        let (mut out, mut rest) = ([0; MAX_WIRE], bytes);
        let stream = self.streams[&stream];
        Ok(self.line.data(after(millis), stream, &mut rest, &mut out)?.to_vec())
    }

    fn close(&mut self, millis: u64, stream: u8) -> Vec<u8> {
        self.line.close(after(millis), self.streams[&stream]);
        self.due(millis)
    }
}

fn reset_of(end: &End, answer: u8) -> Vec<u8> {
    let _ = end;
    packet(&[0, 0, VERSION, answer, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 77])
}

#[test]
fn resets_are_sent_until_answered_and_answered_once() {
    // rule: LINE-3
    let mut end = End::new(Role::Gateway, 100, 2);
    assert_eq!(end.line.deadline(), Some(Instant::ZERO));
    assert_eq!(end.due(10), reset_of(&end, 0));
    assert_eq!(end.line.deadline(), Some(after(260)));
    assert_eq!(end.due(259), []);
    assert_eq!(end.due(260), reset_of(&end, 0));
    assert!(!end.line.is_up());
    assert_eq!(end.open_at(after(300)).unwrap_err(), LineError::Down);
    // Before the line is up nothing else is heard, and nothing of it is broken.
    assert_eq!(end.feed(300, &packet(&[1, 1, 0, 0, 9])), []);
    assert_eq!(end.feed(301, &reset(1)), [Said::Reset(Reset::Answered, 7, 0x19F_0000_0005)]);
    assert!(end.line.is_up() && end.line.broken() == 0);
    assert_eq!((end.due(9_000), end.line.deadline()), (vec![], None));
    // The answers to the earlier ones change nothing.
    let (stream, _) = end.open_at(after(9_000)).unwrap();
    assert_eq!(end.feed(9_001, &reset(1)), []);
    assert_eq!(end.feed(9_002, &credit(0, 0, 5)), [Said::Credit(0, 5)]);
    // One that asks ends all streams, and is answered before anything is opened.
    let said = end.feed(9_003, &reset(0));
    assert_eq!(said[0], Said::Disconnected(stream.number(), Disconnect::Reset));
    assert_eq!(said[1], Said::Reset(Reset::Asked, 7, 0x19F_0000_0005));
    assert_eq!(end.open_at(after(9_003)).unwrap_err(), LineError::Down);
    assert_eq!(end.due(9_004), reset_of(&end, 1));
    assert_eq!(end.open_at(after(9_005)).unwrap().0.number(), 2);
}

#[test]
fn another_version_is_named_and_not_spoken_to() {
    let mut end = End::new(Role::Device, 100, 2);
    let mut wire = [0, 0, 9, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(end.feed(0, &packet(&wire)), [Said::OtherVersion(9)]);
    assert!(!end.line.is_up());
    wire[2..4].copy_from_slice(&[VERSION, 2]);
    assert_eq!(end.feed(0, &packet(&wire)), []);
    assert_eq!(end.line.broken(), 1);
}

#[test]
fn packets_have_the_layout_of_the_table() {
    // rule: LINE-1
    let mut end = End::up(Role::Gateway, 0x1234);
    let (stream, wire) = end.open_at(Instant::ZERO).unwrap();
    assert_eq!(wire, packet(&[1, 0, 0, 0x12, 0x34]));
    assert_eq!(end.feed(1, &credit(0, 0, 4)), [Said::Credit(0, 4)]);
    assert_eq!(end.line.credit(stream), 4);
    assert_eq!(end.send(1, 0, b"abcdef").unwrap(), packet(b"\x02\0\0abcd"));
    assert_eq!(end.send(1, 0, b"ef").unwrap(), []);
    assert_eq!(end.feed(2, &credit(0, 0, 400)), [Said::Credit(0, 396)]);
    assert_eq!(end.send(2, 0, &[7; 300]).unwrap(), data(0, 1, &[7; 239]));
    assert_eq!(end.send(2, 0, &[7; 300]).unwrap().len(), 3 + 157 + 4);
    assert_eq!(end.feed(3, &data(0, 0, b"xyz")), [Said::Data(0, b"xyz".to_vec())]);
    assert_eq!(end.due(250), credit(0, 400, 0x1234));
    let close = [credit(0, 400, 0x1234), packet(&[3, 0])].concat();
    assert_eq!(end.close(251, 0), close);
    assert_eq!(end.send(251, 0, b"x"), Err(LineError::Ended));
    assert_eq!(end.close(251, 0), []);
}

#[test]
fn room_too_small_is_named_and_changes_nothing() {
    let mut end = End::up(Role::Gateway, 100);
    let now = Instant::ZERO;
    let error = end.line.open(now, Protocol::Channel, &mut [0; 8]).unwrap_err();
    assert_eq!(error, LineError::OutTooSmall(triwire::OutTooSmall { needed: 9 }));
    let (stream, _) = end.open_at(now).unwrap();
    assert_eq!(stream.number(), 0);
    end.feed(0, &credit(0, 0, 100));
    let mut rest = &b"hello"[..];
    assert!(end.line.data(now, stream, &mut rest, &mut [0; 11]).is_err());
    assert_eq!((rest, end.line.credit(stream)), (&b"hello"[..], 100));
    assert!(end.line.write_due(after(300), UnixMillis::default(), &mut [0; 13]).is_err());
    assert_eq!(end.due(300), credit(0, 0, 100));
    end.line.close(after(300), stream);
    for room in 0..20 {
        let mut out = vec![0; room];
        let error = end.line.write_due(after(300), UnixMillis::default(), &mut out).unwrap_err();
        assert_eq!(error.needed, 20);
    }
    assert_eq!(end.due(300).len(), 20);
}

#[test]
fn each_end_opens_its_own_numbers_in_turn() {
    // rule: LINE-5
    for (role, first) in [(Role::Gateway, 0u8), (Role::Device, 1)] {
        let mut end = End::up(role, 100);
        let (lasting, _) = end.open_at(Instant::ZERO).unwrap();
        let mut numbers = vec![lasting.number()];
        for turn in 1..300u64 {
            let now = turn * 10;
            end.feed(now, &credit(lasting.number(), 0, 100));
            let (stream, _) = end.open_at(after(now)).unwrap();
            numbers.push(stream.number());
            end.close(now, stream.number());
            assert_eq!(end.feed(now, &packet(&[3, stream.number()])), []);
        }
        assert!(numbers.iter().all(|n| n & 1 == first));
        assert!(numbers.windows(2).all(|w| w[0] != w[1]));
        assert_eq!(numbers.iter().filter(|n| **n == lasting.number()).count(), 1);
        // The other end may not open them.
        let broken = end.line.broken();
        assert_eq!(end.feed(3_000, &packet(&[1, first + 8, 0, 0, 1])), []);
        assert_eq!(end.line.broken(), broken + 1);
    }
}

#[test]
fn a_stream_opened_anew_ends_the_older_and_one_too_many_is_closed() {
    // rule: LINE-4
    let mut end = End::up(Role::Device, 100);
    for number in [0u8, 2, 4, 6] {
        let said = end.feed(0, &packet(&[1, number, 0, 0, 9]));
        assert_eq!(said, [Said::Opened(number, Protocol::Http, 9)]);
    }
    let expected: Vec<u8> = [0, 2, 4, 6].iter().flat_map(|n| credit(*n, 0, 100)).collect();
    assert_eq!(end.due(0), expected);
    assert_eq!(end.open_at(Instant::ZERO).unwrap_err(), LineError::TooManyStreams);
    // rule: LINE-10
    assert_eq!(end.feed(1, &packet(&[1, 8, 0, 0, 9])), []);
    assert_eq!(end.due(1), packet(&[3, 8]));
    assert_eq!(
        end.feed(1, &packet(&[1, 4, 1, 0, 5])),
        [Said::Disconnected(4, Disconnect::Replaced), Said::Opened(4, Protocol::Channel, 5)]
    );
    // A protocol that is none is refused, too.
    assert_eq!(end.feed(1, &[packet(&[3, 6]), packet(&[1, 6, 9, 0, 5])].concat()).len(), 1);
    assert_eq!(end.feed(1, &packet(&[1, 10, 9, 0, 5])), []);
    assert!(end.due(1).ends_with(&packet(&[3, 10])));
}

// rule: CHAN-116
#[test]
fn a_stream_that_an_application_refuses_ends_as_one_without_a_slot() {
    let (mut gateway, mut device) = (End::up(Role::Gateway, 100), End::up(Role::Device, 100));
    let (_, open) = gateway.open_at(Instant::ZERO).unwrap();
    assert_eq!(device.feed(0, &open), [Said::Opened(0, Protocol::Http, 100)]);
    device.line.refuse(after(0), device.streams[&0]);
    let refusal = device.due(0);
    assert_eq!(refusal, packet(&[3, 0]));
    assert_eq!(gateway.feed(0, &refusal), [Said::Disconnected(0, Disconnect::Refused)]);
    // It is over at both ends, and the number free.
    let closes = gateway.due(0);
    assert_eq!(device.feed(0, &closes), []);
    assert_eq!(gateway.feed(0, &device.due(0)), []);
    assert_eq!((gateway.due(0), device.due(0)), (vec![], vec![]));
    assert_eq!((gateway.line.deadline(), device.line.deadline()), (None, None));
    // What has ended is refused without a word.
    device.line.refuse(after(0), device.streams[&0]);
    assert_eq!(device.due(0), []);
}

#[test]
fn missing_data_ends_its_stream_alone_and_by_name() {
    // rule: LINE-6
    let mut end = End::up(Role::Device, 100);
    end.feed(0, &[packet(&[1, 0, 0, 0, 9]), packet(&[1, 2, 0, 0, 9])].concat());
    end.due(0);
    assert_eq!(end.feed(1, &data(0, 0, b"a")), [Said::Data(0, b"a".to_vec())]);
    let lost = Said::Disconnected(0, Disconnect::Skipped);
    assert_eq!(end.feed(1, &data(0, 2, b"c")), [lost]);
    assert_eq!(end.feed(1, &data(2, 0, b"b")), [Said::Data(2, b"b".to_vec())]);
    // The other end learns it from totals that cannot fit, and a close.
    assert_eq!(end.due(1), [credit(0, 1 << 31, 100), packet(&[3, 0])].concat());
    // rule: LINE-8
    assert_eq!(end.feed(2, &credit(2, 2, 9)), [Said::Disconnected(2, Disconnect::Totals)]);
    // rule: LINE-7
    end.feed(3, &packet(&[1, 4, 0, 0, 9]));
    let early = end.feed(3, &data(4, 0, b"x"));
    assert_eq!(early, [Said::Disconnected(4, Disconnect::Overrun)]);
    end.feed(4, &packet(&[1, 6, 0, 0, 9]));
    end.due(4);
    assert_eq!(end.feed(4, &data(6, 0, &[1; 100])).len(), 1);
    end.line.consumed(after(4), end.streams[&6], 1);
    assert_eq!(end.due(4), [], "the room of one byte is told with the next totals");
    assert_eq!(end.feed(4, &data(6, 1, b"x")), [Said::Disconnected(6, Disconnect::Overrun)]);
}

#[test]
fn room_is_given_back_by_halves_and_never_more_than_came() {
    // rule: LINE-7
    let mut end = End::up(Role::Device, 100);
    end.feed(0, &packet(&[1, 0, 0, 0, 9]));
    end.due(0);
    let stream = end.streams[&0];
    end.line.consumed(after(1), stream, 50);
    assert_eq!(end.due(1), []);
    end.feed(1, &data(0, 0, &[1; 80]));
    end.line.consumed(after(1), stream, 49);
    assert_eq!(end.due(1), []);
    end.line.consumed(after(1), stream, 1);
    assert_eq!(end.due(1), credit(0, 0, 150));
    end.line.consumed(after(1), stream, usize::MAX);
    assert_eq!(end.due(251), credit(0, 0, 180));
    end.feed(252, &data(0, 1, &[1; 100]));
    end.line.consumed(after(252), stream, usize::MAX);
    assert_eq!(end.due(252), credit(0, 0, 280));
}

#[test]
fn a_broken_packet_is_counted_and_asks_for_totals() {
    // rule: LINE-2
    let mut end = End::up(Role::Device, 100);
    end.feed(0, &packet(&[1, 0, 0, 0, 9]));
    end.due(0);
    let mut wire = data(0, 0, b"abc");
    wire[4] ^= 0x40;
    let unknown = packet(&[5, 0]);
    let short = packet(&[4, 0, 1, 2, 3]);
    for (count, wire) in [&wire[..], &unknown, &short, &[7, 7, 0], &[1, 0]].iter().enumerate() {
        assert_eq!(end.feed(5, wire), []);
        assert_eq!(end.line.broken() as usize, count + 1);
        assert_eq!(end.due(5), credit(0, 0, 100));
    }
    assert_eq!(end.feed(5, &[0, 0, 0]), []);
    assert_eq!((end.line.broken(), end.due(5)), (5, vec![]));
}

#[test]
fn silence_ends_a_stream_at_its_bound_and_not_before() {
    // rule: LINE-8
    let bound = ANSWER_BOUND.as_millis() as u64;
    let mut end = End::up(Role::Gateway, 100);
    end.open_at(Instant::ZERO).unwrap();
    end.due(bound - 1);
    assert_eq!(end.poll_at(after(bound - 1)), []);
    assert_eq!(end.feed(bound - 1, &credit(0, 0, 9)), [Said::Credit(0, 9)]);
    end.due(2 * bound - 2);
    assert_eq!(end.line.deadline(), Some(after(2 * bound - 1)));
    // What comes at the bound comes too late.
    let late = end.feed(2 * bound - 1, &credit(0, 0, 10));
    assert_eq!(late, [Said::Disconnected(0, Disconnect::Silence)]);
    assert_eq!(end.send(2 * bound, 0, b"x"), Err(LineError::Ended));
    assert_eq!(end.due(2 * bound), [credit(0, 1 << 31, 100), packet(&[3, 0])].concat());
    assert_eq!(end.due(2 * bound + 250), packet(&[3, 0]));
    assert_eq!(end.due(3 * bound - 1), []);
    assert_eq!(end.line.deadline(), None);
}

#[test]
fn a_close_is_clean_only_right_behind_totals_that_fit() {
    // rule: LINE-9
    let cases: [(&[Vec<u8>], Said); 5] = [
        (&[credit(0, 3, 9)], Said::Closed(0)),
        (&[], Said::Disconnected(0, Disconnect::Unconfirmed)),
        (&[credit(0, 3, 9), data(2, 0, b"x")], Said::Disconnected(0, Disconnect::Unconfirmed)),
        (&[credit(0, 3, 9), vec![5, 5, 0]], Said::Disconnected(0, Disconnect::Unconfirmed)),
        (&[credit(0, 3, 9), data(0, 1, b"x")], Said::Disconnected(0, Disconnect::Unconfirmed)),
    ];
    for (before, expected) in cases {
        let mut end = End::up(Role::Device, 100);
        end.feed(0, &[packet(&[1, 0, 0, 0, 9]), packet(&[1, 2, 0, 0, 9])].concat());
        end.due(0);
        end.feed(0, &data(0, 0, b"abc"));
        let wire = [before.concat(), packet(&[3, 0])].concat();
        assert_eq!(end.feed(1, &wire).last(), Some(&expected));
        let due = end.due(1);
        assert!(due.ends_with(&packet(&[3, 0])) || due.starts_with(&packet(&[3, 0])));
        assert_eq!(end.due(240), []);
    }
    let mut end = End::up(Role::Gateway, 100);
    end.open_at(Instant::ZERO).unwrap();
    let said = end.feed(1, &packet(&[3, 0]));
    assert_eq!(said, [Said::Disconnected(0, Disconnect::Refused)]);
}

#[test]
fn closes_end_and_are_not_answered_for_ever() {
    // rule: LINE-10
    let mut gateway = End::up(Role::Gateway, 100);
    let mut device = End::up(Role::Device, 100);
    for (number, kind) in [(0, 3), (1, 3), (0, 2), (1, 2), (0, 4), (1, 4)] {
        let body = [&[kind, number][..], &[0; 8][..if kind == 4 { 8 } else { 0 }]].concat();
        let mut wire = packet(&body);
        let mut answers = 0;
        while !wire.is_empty() {
            device.feed(0, &wire);
            wire = device.due(0);
            gateway.feed(0, &wire);
            wire = gateway.due(0);
            answers += 1;
            assert!(answers < 4, "kind {kind} on {number}");
        }
    }
    // Only closes are sent for a closed stream, until it is forgotten.
    gateway.open_at(Instant::ZERO).unwrap();
    gateway.close(0, 0);
    assert_eq!(gateway.feed(1, &data(0, 0, b"still on its way")), []);
    for at in [250, 500, 750] {
        assert_eq!(gateway.due(at), packet(&[3, 0]));
    }
    assert_eq!((gateway.due(1_000), gateway.line.deadline()), (vec![], None));
}

#[test]
fn a_line_that_is_gone_ends_its_streams_and_begins_anew() {
    let mut end = End::up(Role::Gateway, 100);
    end.open_at(Instant::ZERO).unwrap();
    end.line.link_down();
    assert_eq!(end.poll_at(Instant::ZERO), [Said::Disconnected(0, Disconnect::LinkDown)]);
    assert!(!end.line.is_up());
    assert_eq!(end.due(1), reset_of(&end, 0));
}

// ---- Two ends -------------------------------------------------------------------------------

/// A session's bytes: what one end sends in one direction of one stream.
fn content(session: usize, answering: bool, len: usize) -> Vec<u8> {
    let mut state = (session as u32) << 1 | u32::from(answering) | 0x5A17_0000;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Many zeros, which the coding treats apart.
            if state >> 30 == 0 { 0 } else { (state >> 16) as u8 }
        })
        .collect()
}

#[derive(Debug)]
struct Talk {
    stream: Stream,
    opened: bool,
    to_send: Vec<u8>,
    sent: usize,
    received: Vec<u8>,
    /// Bytes after which the other direction is complete: then the opener closes.
    expected: usize,
    end: Option<Said>,
    closed_here: bool,
}

/// One end and its application: who opens a stream sends a request of a known length, the other
/// answers it and closes.
struct Party {
    end: End,
    role: Role,
    talks: Vec<Talk>,
    out: Vec<u8>,
    ahead: usize,
}

const REQUEST: usize = 700;
const ANSWER: usize = 1_500;
const STEP: u64 = 10;
/// Bytes that the line carries in a step, at 115 200 bits a second.
const RATE: usize = 115;

impl Party {
    fn new(role: Role) -> Self {
        Self { end: End::new(role, 300, 4), role, talks: vec![], out: vec![], ahead: 600 }
    }

    fn live(&mut self, number: u8) -> Option<&mut Talk> {
        self.talks
            .iter_mut()
            .rev()
            .find(|talk| talk.stream.number() == number && talk.end.is_none() && !talk.closed_here)
    }

    fn hear(&mut self, now: Instant, said: Vec<Said>) {
        for said in said {
            let Some(number) = said.stream() else { continue };
            match &said {
                Said::Opened(..) => {
                    assert!(self.live(number).is_none(), "opened over a live one");
                    let session = self.talks.len() * 2 + self.role as usize;
                    self.talks.push(Talk {
                        stream: self.end.streams[&number],
                        opened: false,
                        to_send: content(session, true, ANSWER),
                        sent: 0,
                        received: vec![],
                        expected: REQUEST,
                        end: None,
                        closed_here: false,
                    });
                }
                Said::Data(_, bytes) => {
                    let talk = self.live(number).expect("data of a live stream");
                    talk.received.extend_from_slice(bytes);
                    let (stream, len) = (talk.stream, bytes.len());
                    self.end.line.consumed(now, stream, len);
                }
                Said::Closed(_) | Said::Disconnected(..) => {
                    self.live(number).expect("the end of a live stream").end = Some(said);
                }
                _ => {}
            }
        }
    }

    fn open(&mut self, now: Instant) -> Result<(), LineError> {
        let (stream, wire) = self.end.open_at(now)?;
        self.out.extend(wire);
        let session = self.talks.len() * 2 + self.role as usize;
        self.talks.push(Talk {
            stream,
            opened: true,
            to_send: content(session, false, REQUEST),
            sent: 0,
            received: vec![],
            expected: usize::MAX,
            end: None,
            closed_here: false,
        });
        Ok(())
    }

    /// Lets the application and the line say what they have to say.
    fn speak(&mut self, now: Instant) {
        let ended = self.end.poll_at(now);
        self.hear(now, ended);
        let due = self.end.due_at(now);
        self.out.extend(due);
        let mut out = [0; MAX_WIRE];
        for talk in &mut self.talks {
            if talk.end.is_some() || talk.closed_here {
                continue;
            }
            if !talk.opened && talk.received.len() < talk.expected {
                continue;
            }
            while self.out.len() < self.ahead && talk.sent < talk.to_send.len() {
                let mut rest = &talk.to_send[talk.sent..];
                let credit = self.end.line.credit(talk.stream) as usize;
                let before = rest.len();
                match self.end.line.data(now, talk.stream, &mut rest, &mut out) {
                    Ok([]) | Err(LineError::Ended) => break,
                    Ok(wire) => self.out.extend_from_slice(wire),
                    Err(error) => panic!("{error}"),
                }
                assert!(before - rest.len() <= credit);
                talk.sent = talk.to_send.len() - rest.len();
            }
            if !talk.opened && talk.sent == talk.to_send.len() {
                self.end.line.close(now, talk.stream);
                talk.closed_here = true;
            }
        }
        let due = self.end.due_at(now);
        self.out.extend(due);
    }

    fn is_idle(&self) -> bool {
        self.talks.iter().all(|talk| talk.end.is_some() || talk.closed_here)
    }
}

/// What the wire does to the bytes of one direction.
type Fault<'f> = dyn FnMut(Role, Vec<u8>) -> Vec<u8> + 'f;

struct World {
    now: u64,
    parties: [Party; 2],
    /// Of the gateway, and of the device before it was last restarted.
    former: Vec<(Role, Vec<Talk>)>,
    wires: [VecDeque<u8>; 2],
}

impl World {
    fn new() -> Self {
        let parties = [Party::new(Role::Gateway), Party::new(Role::Device)];
        Self { now: 0, parties, former: vec![], wires: [VecDeque::new(), VecDeque::new()] }
    }

    fn step(&mut self, fault: &mut Fault<'_>) {
        let now = after(self.now);
        for from in [0, 1] {
            self.parties[from].speak(now);
            // At the line's rate, whole packets or not.
            let sent = core::mem::take(&mut self.parties[from].out);
            let sent = fault(self.parties[from].role, sent);
            self.wires[from].extend(sent);
            let count = self.wires[from].len().min(RATE);
            let arrived: Vec<u8> = self.wires[from].drain(..count).collect();
            let said = self.parties[1 - from].end.feed_at(now, &arrived);
            self.parties[1 - from].hear(now, said);
            let full = self.wires[from].len() > 600;
            self.parties[from].ahead = if full { 0 } else { 600 };
        }
        self.now += STEP;
    }

    fn run(&mut self, millis: u64, fault: &mut Fault<'_>) {
        for _ in 0..millis / STEP {
            self.step(fault);
        }
    }

    fn restart(&mut self, which: usize) {
        let role = self.parties[which].role;
        let old = core::mem::replace(&mut self.parties[which], Party::new(role));
        self.former.push((role, old.talks));
    }

    /// No byte out of place, and no clean end of a stream that was cut.
    fn check(&self) {
        for role in [Role::Gateway, Role::Device] {
            let sent: Vec<&Talk> = self.talks_of(role).collect();
            let other = if role == Role::Gateway { Role::Device } else { Role::Gateway };
            for heard in self.talks_of(other) {
                let whole = matches!(heard.end, Some(Said::Closed(_)));
                let fits = |from: &&&Talk| {
                    from.stream == heard.stream
                        && from.opened != heard.opened
                        && if whole {
                            from.to_send[..from.sent] == heard.received[..]
                        } else {
                            from.to_send[..from.sent].starts_with(&heard.received)
                        }
                };
                let found = heard.received.is_empty() && !whole || sent.iter().any(|t| fits(&t));
                assert!(found, "{other:?} got on {:?} what nobody sent", heard.stream);
            }
        }
    }

    fn talks_of(&self, role: Role) -> impl Iterator<Item = &Talk> {
        let former = self.former.iter().filter(move |(r, _)| *r == role).flat_map(|(_, t)| t);
        former.chain(&self.parties[role as usize].talks)
    }

    /// A session on a good line, whatever was before.
    fn works(&mut self) {
        self.run(1_500, &mut |_, bytes| bytes);
        for from in [0, 1] {
            self.parties[from].open(after(self.now)).unwrap();
            self.run(1_000, &mut |_, bytes| bytes);
            let talk = self.parties[from].talks.last().unwrap();
            assert_eq!(talk.end, Some(Said::Closed(talk.stream.number())));
            assert_eq!(talk.received.len(), ANSWER);
        }
        assert!(self.parties.iter().all(|p| p.is_idle() && p.end.line.deadline().is_none()));
        self.check();
    }
}

#[test]
fn a_good_line_carries_several_streams_of_both_ends() {
    let mut world = World::new();
    world.run(50, &mut |_, bytes| bytes);
    for _ in 0..2 {
        for party in &mut world.parties {
            party.open(after(world.now)).unwrap();
        }
    }
    world.run(2_000, &mut |_, bytes| bytes);
    for party in &world.parties {
        assert_eq!(party.end.line.broken(), 0);
        assert!(party.talks.iter().filter(|t| t.opened).all(|t| t.received.len() == ANSWER));
    }
    world.works();
}

/// Runs a session and loses its `n`th packet, or the `n`th and the one `gap` behind it; reports
/// whether there was an `n`th.
fn lose(n: usize, gap: Option<usize>) -> bool {
    let mut world = World::new();
    let mut seen = 0;
    let mut fault = |_: Role, bytes: Vec<u8>| {
        let mut kept = Vec::new();
        for packet in bytes.split_inclusive(|byte| *byte == 0) {
            if seen != n && Some(seen) != gap.map(|gap| n + gap) {
                kept.extend_from_slice(packet);
            }
            seen += 1;
        }
        kept
    };
    let mut opened = false;
    let mut ended = 0;
    for _ in 0..400 {
        world.step(&mut fault);
        if !opened && world.parties[0].end.line.is_up() {
            world.parties[0].open(after(world.now)).unwrap();
            opened = true;
        }
        if opened && !world.parties.iter().all(Party::is_idle) {
            ended = world.now;
        }
    }
    assert!(opened, "the line never came up without packet {n}");
    // Resets, the session itself, and two bounds.
    assert!(ended < 3_500, "{n} {gap:?}: ended at {ended}");
    assert!(world.parties.iter().all(|party| party.end.line.deadline().is_none()));
    world.check();
    world.works();
    n < seen
}

#[test]
fn every_wait_ends_whichever_packet_is_lost() {
    // rule: LINE-11
    let mut n = 0;
    while lose(n, None) && n < 60 {
        n += 1;
    }
    assert!(n > 20, "{n} packets");
}

#[test]
fn every_wait_ends_whichever_two_packets_are_lost() {
    // rule: LINE-11
    for n in 0..45 {
        for gap in 1..6 {
            lose(n, Some(gap));
        }
    }
}

#[test]
fn a_restart_of_either_end_ends_its_sessions_by_name_within_a_second() {
    // rule: LINE-4
    for which in [0, 1] {
        // The sessions take longer than any of these.
        for at in (0..=180).step_by(20) {
            let mut world = World::new();
            world.run(50, &mut |_, bytes| bytes);
            world.parties[0].open(after(world.now)).unwrap();
            world.parties[1].open(after(world.now)).unwrap();
            world.run(at, &mut |_, bytes| bytes);
            world.restart(which);
            world.run(1_000, &mut |_, bytes| bytes);
            let survivor = &world.parties[1 - which];
            assert!(survivor.is_idle());
            for talk in &survivor.talks {
                let number = talk.stream.number();
                assert_eq!(talk.end, Some(Said::Disconnected(number, Disconnect::Reset)), "{at}");
            }
            world.works();
        }
    }
}

#[test]
fn a_dead_device_is_noticed_within_the_bound_though_nothing_was_to_be_said() {
    // rule: LINE-8
    let mut world = World::new();
    world.run(50, &mut |_, bytes| bytes);
    world.parties[0].open(after(world.now)).unwrap();
    world.run(20, &mut |_, bytes| bytes);
    let cut = world.now;
    while !world.parties[0].is_idle() {
        world.step(&mut |_, _| Vec::new());
    }
    assert!(world.now - cut <= 1_050, "{}", world.now - cut);
    let end = world.parties[0].talks[0].end.clone();
    assert_eq!(end, Some(Said::Disconnected(0, Disconnect::Silence)));
    world.works();
}

/// xorshift: the wire's dice.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides.max(1)
    }
}

#[test]
fn no_stream_delivers_a_byte_that_was_not_sent_in_its_place() {
    // rule: LINE-11
    // The same dice in every run: a check of 16 bits does let one broken packet in 65 536 pass.
    let mut seeds = Dice(0x0BAD_11FE);
    let mut broken = 0;
    let mut ends: BTreeMap<&str, usize> = BTreeMap::new();
    for _ in 0..150 {
        let seed = seeds.roll(u64::MAX);
        let (rarity, restarts) = (1 << seeds.roll(12), seeds.roll(40));
        let mut dice = Dice(seed | 1);
        let mut world = World::new();
        let mut chooser = Dice(!seed | 1);
        for _ in 0..500 {
            world.step(&mut |_, bytes| {
                let mut wire = Vec::new();
                let mut skip = 0;
                for byte in bytes {
                    if skip > 0 {
                        skip -= 1;
                        continue;
                    }
                    wire.push(byte);
                    if dice.roll(rarity) > 0 {
                        continue;
                    }
                    match dice.roll(5) {
                        0 => skip = dice.roll(400),
                        1 => *wire.last_mut().unwrap() ^= 1 << dice.roll(8),
                        2 => drop(wire.pop()),
                        3 => {
                            let from = wire.len() - dice.roll(wire.len() as u64 + 1) as usize;
                            wire.extend_from_within(from..);
                        }
                        _ => wire.extend((0..dice.roll(9)).map(|_| dice.roll(256) as u8)),
                    }
                }
                wire
            });
            let which = chooser.roll(2) as usize;
            match chooser.roll(40) {
                0..6 => {
                    let _ = world.parties[which].open(after(world.now));
                }
                6 if chooser.roll(40) < restarts / 8 => world.restart(which),
                7 => {
                    let now = after(world.now);
                    let party = &mut world.parties[which];
                    if let Some(talk) =
                        party.talks.iter_mut().find(|t| t.end.is_none() && !t.closed_here)
                    {
                        party.end.line.close(now, talk.stream);
                        talk.closed_here = true;
                    }
                }
                _ => {}
            }
        }
        for party in &world.parties {
            broken += party.end.line.broken();
            for talk in &party.talks {
                *ends
                    .entry(match talk.end {
                        Some(Said::Closed(_)) => "closed",
                        Some(Said::Disconnected(_, why)) => why.code(),
                        _ => "closed_here",
                    })
                    .or_default() += 1;
            }
        }
        world.check();
        world.works();
    }
    println!("{broken} broken packets; ends: {ends:?}");
    assert!(broken > 1_000);
    for end in ["closed", "skipped", "totals", "reset", "unconfirmed", "silence"] {
        assert!(ends.contains_key(end), "no stream ended so: {end}");
    }
}

#[test]
fn the_overhead_is_what_the_documentation_says() {
    // A bulk transfer over a line that is never idle: 64 KiB one way.
    const SIZE: usize = 65_536;
    let mut sender = End::up(Role::Gateway, 1_024);
    let mut receiver = End::up(Role::Device, 1_024);
    let (stream, wire) = sender.open_at(Instant::ZERO).unwrap();
    receiver.feed(0, &wire);
    let (mut there, mut back, mut got, mut now) = (0, 0, 0, 0);
    let bytes = vec![0; SIZE];
    let mut rest = &bytes[..];
    let mut out = [0; MAX_WIRE];
    while got < SIZE {
        let wire = sender.line.data(after(now), stream, &mut rest, &mut out).unwrap().to_vec();
        let due = sender.due(now);
        there += wire.len() + due.len();
        now += 21; // a full packet at 115 200 bits a second
        for said in receiver.feed(now, &[wire, due].concat()) {
            let Said::Data(_, bytes) = said else { continue };
            got += bytes.len();
            receiver.line.consumed(after(now), receiver.streams[&0], bytes.len());
        }
        let due = receiver.due(now);
        back += due.len();
        sender.feed(now, &due);
    }
    let overhead = there as f64 / SIZE as f64;
    println!("{there} bytes there ({overhead:.3}), {back} back, {now} ms");
    assert!(overhead < 1.04 && back < SIZE / 20);
}

#[derive(Clone, Debug)]
enum Input {
    Packet(Vec<u8>),
    Wait(u64),
    Send(u8),
    Close(u8),
    Consumed(u8),
    Due,
}

fn input() -> impl Strategy<Value = Input> {
    let stream = 0u8..6;
    prop_oneof![
        4 => (stream.clone(), 0u8..3).prop_map(|(s, n)| Input::Packet(data(s, n, b"abc"))),
        3 => (stream.clone(), 0u32..3, 0u32..4)
            .prop_map(|(s, n, m)| Input::Packet(credit(s, n * 3, m * 7))),
        3 => stream.clone().prop_map(|s| Input::Packet(packet(&[1, s, 0, 0, 20]))),
        2 => stream.clone().prop_map(|s| Input::Packet(packet(&[3, s]))),
        1 => (0u8..2).prop_map(|a| Input::Packet(reset(a))),
        1 => proptest::collection::vec(any::<u8>(), 0..5).prop_map(Input::Packet),
        4 => (0u64..700).prop_map(Input::Wait),
        2 => stream.clone().prop_map(Input::Send),
        1 => stream.clone().prop_map(Input::Close),
        1 => stream.prop_map(Input::Consumed),
        4 => Just(Input::Due),
    ]
}

/// Plays a script; `polls` says before which inputs somebody polls and looks at the deadline.
fn play(script: &[Input], polls: &[bool], role: Role) -> (BTreeMap<u8, Vec<Said>>, Vec<u8>, u32) {
    let mut end = End::new(role, 12, 3);
    let mut now = 0;
    let mut said = end.feed(0, &reset(0));
    let mut wire = end.due(0);
    for (step, input) in script.iter().enumerate() {
        if polls[step % polls.len()] {
            // In small steps up to now, as a busy loop does.
            let wait = if let Input::Wait(wait) = input { *wait } else { 0 };
            for at in (now..=now + wait).step_by(50) {
                let promised = end.line.deadline();
                let told = end.poll_at(after(at));
                assert!(told.is_empty() || promised.is_some_and(|d| d <= after(at)));
                said.extend(told);
            }
        }
        match input {
            Input::Packet(bytes) => said.extend(end.feed(now, bytes)),
            Input::Wait(wait) => now += wait,
            Input::Send(s) if end.streams.contains_key(s) => {
                wire.extend(end.send(now, *s, b"hello").unwrap_or_default());
            }
            Input::Close(s) if end.streams.contains_key(s) => {
                end.line.close(after(now), end.streams[s]);
            }
            Input::Consumed(s) if end.streams.contains_key(s) => {
                end.line.consumed(after(now), end.streams[s], 2);
            }
            Input::Due => wire.extend(end.due(now)),
            _ => {}
        }
    }
    said.extend(end.poll_at(after(now)));
    let mut by_stream: BTreeMap<u8, Vec<Said>> = BTreeMap::new();
    for said in said {
        by_stream.entry(said.stream().unwrap_or(255)).or_default().push(said);
    }
    (by_stream, wire, end.line.broken())
}

proptest! {
    #[test]
    fn outcomes_do_not_depend_on_who_polls_when(
        script in proptest::collection::vec(input(), 1..80),
        polls in proptest::collection::vec(any::<bool>(), 1..20),
        device: bool,
    ) {
        // rule: LINE-12
        let role = if device { Role::Device } else { Role::Gateway };
        let never = play(&script, &[false], role);
        let sometimes = play(&script, &polls, role);
        prop_assert_eq!(never, sometimes);
    }

    #[test]
    fn any_noise_in_any_pieces_is_survived(
        noise in proptest::collection::vec(prop_oneof![Just(0u8), 0u8..6, any::<u8>()], 0..600),
        step in 1usize..300,
    ) {
        let mut whole = End::up(Role::Device, 100);
        let mut parts = End::up(Role::Device, 100);
        let said = whole.feed(5, &noise);
        let in_parts: Vec<Said> = noise.chunks(step).flat_map(|p| parts.feed(5, p)).collect();
        prop_assert_eq!(said, in_parts);
        prop_assert_eq!(whole.line.broken(), parts.line.broken());
        // One zero, and the line is heard again.
        whole.feed(5, &[0]);
        let opened = [Said::Opened(8, Protocol::Http, 9)];
        prop_assert_eq!(whole.feed(5, &packet(&[1, 8, 0, 0, 9])), opened);
    }
}

#[test]
fn the_constants_are_the_contracts() {
    assert_eq!((MAX_DATA, MAX_WIRE), (239, 246));
    assert_eq!(CREDIT_EVERY, Duration::from_millis(250));
    assert!(size_of::<Slot>() <= 64, "{}", size_of::<Slot>());
    assert!(size_of::<Packet>() <= 256, "{}", size_of::<Packet>());
    println!("a slot takes {} bytes, a packet {}", size_of::<Slot>(), size_of::<Packet>());
}
