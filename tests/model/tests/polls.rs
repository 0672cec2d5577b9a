//! Machines with deadlines: what they decide depends on what came and when, never on how often
//! somebody polled.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use triwire::exec::linger::{Done, LOOK_EVERY, Linger, QUIET_BOUND, STALL_BOUND};
use triwire::exec::socket::{
    ClientSocket, Close, Event, FIRST_MESSAGE_BOUND, MAX_SOCKET_MESSAGE, Message, ServerSocket,
};
use triwire::time::Instant;

/// Times in ms that crowd around the given bounds.
fn pause(bounds: &'static [Duration]) -> impl Strategy<Value = u64> {
    let around = proptest::sample::select(bounds.to_vec());
    prop_oneof![
        4 => 0_u64..200,
        2 => (around, -2_i64..3).prop_map(|(bound, off)| {
            (bound.as_millis() as u64).saturating_add_signed(off)
        }),
        1 => 0_u64..100_000,
    ]
}

/// Moments to poll at, as parts of 1000 of each pause.
fn polls() -> impl Strategy<Value = Vec<u64>> {
    vec(0_u64..=1000, 0..4).prop_map(|mut polls| {
        polls.sort_unstable();
        polls
    })
}

#[derive(Clone, Copy, Debug)]
enum Came {
    Request(bool),
    Text,
    NotUtf8,
    Binary,
    TooLarge,
}

static LARGE: [u8; MAX_SOCKET_MESSAGE + 1] = [0; MAX_SOCKET_MESSAGE + 1];

impl Came {
    fn message(self) -> Message<'static> {
        match self {
            Self::Request(true) => Message::Text(b"{}"),
            Self::Request(false) => Message::Binary(&LARGE[..MAX_SOCKET_MESSAGE]),
            Self::Text => Message::Text(b"hello"),
            Self::NotUtf8 => Message::Text(b"\xff"),
            Self::Binary => Message::Binary(b"\x04\0\0"),
            Self::TooLarge => Message::Binary(&LARGE),
        }
    }
}

fn came() -> impl Strategy<Value = Came> {
    prop_oneof![
        3 => any::<bool>().prop_map(Came::Request),
        1 => Just(Came::Text),
        1 => Just(Came::NotUtf8),
        4 => Just(Came::Binary),
        1 => Just(Came::TooLarge),
    ]
}

/// What a server makes of messages at their times, in ms from the upgrade.
fn expected_events(script: &[(u64, Came)]) -> Vec<Result<&'static str, u16>> {
    let mut now = 0;
    let (mut open, mut closed) = (false, None);
    let bound = FIRST_MESSAGE_BOUND.as_millis() as u64;
    let mut events = Vec::new();
    for (pause, came) in script {
        now += pause;
        let outcome = match came {
            _ if closed.is_some() => Err(closed.unwrap()),
            _ if !open && now >= bound => Err(1008),
            Came::TooLarge => Err(1009),
            Came::NotUtf8 if !open => Err(1007),
            Came::Request(true) | Came::Text | Came::NotUtf8 if open => Err(1003),
            Came::Request(_) | Came::Binary if open => Ok("frames"),
            _ => Ok("request"),
        };
        open |= outcome.is_ok();
        closed = outcome.err();
        events.push(outcome);
    }
    events
}

proptest! {
    // rule: EXEC-24, EXEC-27, EXEC-29
    #[test]
    fn server_socket(
        start in 0_u64..1 << 40,
        script in vec((pause(&[FIRST_MESSAGE_BOUND]), came(), polls()), 0..8),
    ) {
        let mut now = Instant::from_millis(start);
        let (mut rare, mut often) = (ServerSocket::new(now), ServerSocket::new(now));
        let mut events = Vec::new();
        let mut timed_out: Option<Close> = None;
        for (pause, came, polls) in &script {
            for part in polls {
                let then = now.saturating_add(Duration::from_micros(pause * part));
                let due = often.deadline().is_some_and(|deadline| deadline <= then);
                let close = often.poll(then);
                prop_assert_eq!(close.is_some(), due, "poll has something exactly when it is due");
                timed_out = timed_out.or(close);
                prop_assert!(often.deadline().is_none_or(|deadline| deadline > then));
                prop_assert_eq!(often.poll(then), None);
            }
            now = now.saturating_add(Duration::from_millis(*pause));
            let message = came.message();
            let event = rare.feed(now, message);
            prop_assert_eq!(event, often.clone().feed(now, message));
            prop_assert_eq!(event, often.feed(now, message));
            if let (Some(close), Err(again)) = (timed_out, event) {
                prop_assert_eq!(close, again, "the first close counts");
            }
            prop_assert_eq!(rare.deadline(), often.deadline());
            events.push(match event {
                Ok(Event::Request(_)) => Ok("request"),
                Ok(Event::Frames(_)) => Ok("frames"),
                Err(close) => Err(close.code),
            });
        }
        let times: Vec<_> = script.iter().map(|(pause, came, _)| (*pause, *came)).collect();
        prop_assert_eq!(events, expected_events(&times));
    }

    /// The first fault stays, the first close of the server counts, and neither is an exit.
    #[test]
    fn client_socket(script in vec(came(), 0..8), closes in vec(1000_u16..1015, 0..3)) {
        let mut socket = ClientSocket::new();
        let mut first: Option<Close> = None;
        for came in script {
            match (first, socket.feed(came.message())) {
                (Some(close), outcome) => prop_assert_eq!(outcome, Err(close)),
                (None, Err(close)) => {
                    let code = match came.message() {
                        Message::Binary(bytes) if bytes.len() > MAX_SOCKET_MESSAGE => 1009,
                        Message::Binary(_) => panic!("a fault without a cause"),
                        Message::Text(_) => 1003,
                    };
                    prop_assert_eq!(close.code, code);
                    first = Some(close);
                }
                (None, Ok(bytes)) => prop_assert_eq!(came.message(), Message::Binary(bytes)),
            }
        }
        for code in &closes {
            socket.closed(Close::new(*code, "words"));
        }
        // rule: EXEC-26
        let mut output = triwire::exec::session::OutputReader::new([0; 0]);
        let lost = socket.finish(output.finish()).unwrap_err();
        prop_assert_eq!(lost.close.map(|close| close.code), closes.first().copied());
        prop_assert_eq!(lost.fault.code(), "missing_exit");
        prop_assert_eq!(socket.finish(Ok(())), Ok(()));
    }

    // rule: EXEC-40
    #[test]
    fn linger(
        start in 0_u64..1 << 40,
        script in vec(
            (
                pause(&[QUIET_BOUND, STALL_BOUND, LOOK_EVERY]),
                prop_oneof![
                    4 => (0_usize..3).prop_map(Step::Received),
                    6 => (0_usize..3).prop_map(Step::Unacknowledged),
                    1 => Just(Step::Closed),
                ],
                polls(),
            ),
            0..12,
        ),
        behind in pause(&[QUIET_BOUND, STALL_BOUND]),
    ) {
        let mut now = Instant::from_millis(start);
        let (mut rare, mut often) = (Linger::new(now), Linger::new(now));
        let mut done = None;
        for (pause, step, polls) in script {
            for part in polls {
                let then = now.saturating_add(Duration::from_micros(pause * part));
                let polled = often.poll(then);
                prop_assert!(done.is_none() || polled == done, "what is done stays so");
                done = polled;
                prop_assert_eq!(often.poll(then), done);
                prop_assert_eq!(often.deadline().is_none(), done.is_some());
            }
            now = now.saturating_add(Duration::from_millis(pause));
            step.apply(&mut rare, now);
            step.apply(&mut often, now);
            prop_assert_eq!(rare.deadline(), often.deadline());
            if matches!(step, Step::Unacknowledged(_)) && often.poll(now).is_none() {
                prop_assert!(often.deadline().unwrap() > now, "a look sets the next one");
            }
        }
        now = now.saturating_add(Duration::from_millis(behind));
        let ending = rare.poll(now);
        prop_assert_eq!(ending, often.poll(now));
        prop_assert!(done.is_none() || ending == done);
    }

    /// Followed by its deadlines alone, the connection closes, and never later than the bounds.
    #[test]
    fn linger_ends(mut acknowledged_after in proptest::option::of(0_u64..120)) {
        let start = Instant::from_millis(7);
        let mut linger = Linger::new(start);
        let (mut now, mut looks) = (start, 0_u64);
        let done = loop {
            if let Some(done) = linger.poll(now) {
                break done;
            }
            let deadline = linger.deadline().unwrap();
            prop_assert!(deadline >= now && (deadline > now || looks == 0));
            now = deadline.max(now);
            looks += 1;
            let left = acknowledged_after.as_mut().is_none_or(|left| {
                let some = *left > 0;
                *left = left.saturating_sub(1);
                some
            });
            linger.acknowledged(now, usize::from(left));
            prop_assert!(looks < 2_000);
        };
        let took = now.saturating_since(start);
        if acknowledged_after.is_some() {
            prop_assert_eq!(done, Done::Quiet);
            prop_assert!(took >= QUIET_BOUND && took < STALL_BOUND);
        } else {
            prop_assert_eq!(done, Done::Stalled);
            prop_assert!(took >= STALL_BOUND && took <= STALL_BOUND + LOOK_EVERY);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Received(usize),
    Unacknowledged(usize),
    Closed,
}

impl Step {
    fn apply(self, linger: &mut Linger, now: Instant) {
        match self {
            Self::Received(count) => linger.feed(now, count),
            Self::Unacknowledged(count) => linger.acknowledged(now, count),
            Self::Closed => linger.peer_closed(now),
        }
    }
}
