//! The channel's pieces and ends at their limits; what is one message in and one out stands in
//! `fixtures/cases/channel.jsonl`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

use core::time::Duration;

use triwire::OutTooSmall;
use triwire::channel::admission::{self, Admission, Admissions, CallError, Table};
use triwire::channel::bounds::{Bounds, BoundsFault, MAX_BOUNDS_LENGTH};
use triwire::channel::broker::{
    self, AskError, Broker, CALL_ID_LENGTH, CallKey, DEFAULT_PATIENCE, Event, Ignored, Request,
};
use triwire::channel::door::{self, AnswerError, Door, Reason, Received, Ticket};
use triwire::channel::envelope::{Answer, Call, EnvelopeFault, MAX_MESSAGE, Object, Outcome};
use triwire::channel::hello::{
    Entry, Hello, HelloBound, MAX_HELLO, Refused, Session, Standing, enter,
};
use triwire::channel::refusal::{Peer, Refusal};
use triwire::json::{MAX_JSON_DEPTH, Text};
use triwire::time::Instant;

const SALT: u64 = 0xfeed_beef_0123_4567;

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn call(id: &str) -> String {
    format!(
        r#"{{"v":1,"callId":{id:?},"tool":"read","descriptorId":"notes","args":{{}},"boundsEcho":{{}}}}"#
    )
}

fn observed(id: &str) -> String {
    format!(r#"{{"v":1,"callId":"{id}","ok":true,"observed":{{}}}}"#)
}

fn request() -> Request<'static> {
    Request::new("notes", "read", Object::EMPTY, Object::EMPTY)
}

// ---- Envelopes and bounds ----------------------------------------------------------------------

// rule: CHAN-2
#[test]
fn envelopes_are_written_compact_and_read_back() {
    let mut out = [0; 256];
    let call = Call {
        call_id: Text::plain("c\"1"),
        tool: Text::plain("read"),
        descriptor_id: Text::plain("notes"),
        args: Object::EMPTY,
        bounds_echo: Object::parse(r#"{ "a": 1 }"#).unwrap(),
    };
    let written = call.write(&mut out).unwrap();
    let expected = br#"{"v":1,"callId":"c\"1","tool":"read","descriptorId":"notes","args":{},"boundsEcho":{ "a": 1 }}"#;
    assert_eq!(written, expected);
    let read = Call::parse(written, 64).unwrap();
    assert_eq!((read.call_id, read.bounds_echo.as_str()), (call.call_id, r#"{ "a": 1 }"#));

    let refused = Text::plain("budget-exhausted");
    let outcome = Outcome::Refused { refused, why: Text::plain("3 of\n3") };
    let answer = Answer { call_id: call.call_id, outcome };
    let written = answer.write(&mut out).unwrap();
    let expected =
        br#"{"v":1,"callId":"c\"1","ok":false,"refused":"budget-exhausted","why":"3 of\n3"}"#;
    assert_eq!(written, expected);
    assert_eq!(Answer::parse(written), Ok(answer));
    let needed = expected.len();
    for room in 0..needed {
        let mut out = vec![0; room];
        assert_eq!(answer.write(&mut out), Err(OutTooSmall { needed }));
    }
}

// rule: CHAN-13
#[test]
fn spans_are_carried_on_as_they_stood() {
    let args = r#"{ "n":1e400, "a":1,"a":2, "half":"\ud83d" }"#;
    let message = call("x").replace("\"args\":{}", &format!("\"args\":{args}"));
    assert_eq!(Call::parse(message.as_bytes(), 64).unwrap().args.as_str(), args);
    let message = format!(r#"{{"v":1,"callId":"x","ok":true,"observed":{args}}}"#);
    let answer = Answer::parse(message.as_bytes()).unwrap();
    assert_eq!(answer.outcome, Outcome::Observed(Object::parse(args).unwrap()));
    let mut out = [0; 256];
    assert_eq!(answer.write(&mut out).unwrap(), message.as_bytes());
}

// rule: CHAN-12
#[test]
fn depth_is_bounded_and_what_may_be_sent_may_be_read() {
    let nested = |depth| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    let deepest = nested(MAX_JSON_DEPTH - 2);
    let args = Object::parse(&deepest).unwrap();
    assert!(Object::parse(&nested(MAX_JSON_DEPTH - 1)).is_err());
    let mut out = [0; 512];
    let text = call("x");
    let sent = Call { args, ..Call::parse(text.as_bytes(), 64).unwrap() };
    assert!(Call::parse(sent.write(&mut out).unwrap(), 64).is_ok());
    for text in ["", "[]", "1", "{} {}", "{", "\u{feff}{}", "{\"a\":}"] {
        assert!(Object::parse(text).is_err(), "{text}");
    }
    assert_eq!(Object::parse(" {} ").unwrap().as_str(), "{}");
}

#[test]
fn errors_say_where() {
    let text = call("x").replace("\"v\":1", "\"v\": 2");
    let error = Call::parse(text.as_bytes(), 64).unwrap_err();
    assert_eq!((error.at, error.fault), (6, EnvelopeFault::Version));
    assert_eq!(error.to_string(), "bad-version: v: expected 1 (byte 6)");
    let error = Answer::parse(br#"{"v":1,"callId":"x","ok":true} "#).unwrap_err();
    assert_eq!(error.to_string(), "malformed-answer: observed is missing (byte 30)");

    let bounds = Bounds::parse(r#"{"b":{"c":[1,2]},"a":1}"#).unwrap();
    let admissions = Table::new([Admission::new("notes", "read", bounds)]);
    for (echo, at) in [
        (r#"{"b":{"c":[1,3]},"a":1}"#, 13),
        (r#"{"a":1,"b":{"c":[1]}}"#, 18),
        (r#"{"a":1,"c":1}"#, 6),
        (r#"{"a":1}"#, 6),
    ] {
        let text = call("x").replace("\"boundsEcho\":{}", &format!("\"boundsEcho\":{echo}"));
        let start = text.find(echo).unwrap();
        let error = admission::check(text.as_bytes(), 64, &admissions).unwrap_err();
        assert_eq!(error.refusal(), Refusal::BoundsMismatch);
        assert!(error.to_string().contains(&format!("byte {};", start + at)), "{error} {echo}");
    }
}

// rule: CHAN-18
#[test]
fn what_cannot_be_admitted() {
    let fault = |text: &str| Bounds::parse(text).unwrap_err().fault;
    let padded = |len: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(len - 8));
    assert!(Bounds::parse(&padded(MAX_BOUNDS_LENGTH)).is_ok());
    assert_eq!(fault(&padded(MAX_BOUNDS_LENGTH + 1)), BoundsFault::TooLong);
    let members = |count: usize| {
        let members: Vec<String> = (0..count).map(|at| format!("\"{at}\":{at}")).collect();
        format!("{{\"x\":[{{{}}}]}}", members.join(","))
    };
    assert!(Bounds::parse(&members(64)).is_ok());
    assert_eq!(fault(&members(65)), BoundsFault::TooManyMembers);
    for text in [
        r#"{"a":1,"a":1}"#,
        r#"{"a":1,"b":2,"\u0061":3}"#,
        r#"{"x":[{},{"a":1,"b":{},"b":{}}]}"#,
        r#"{"x":{"a":{"c":1}},"y":2,"x":{}}"#,
    ] {
        assert_eq!(fault(text), BoundsFault::Repeated, "{text}");
    }
    assert_eq!(fault(r#"{"a":[1e1000000000]}"#), BoundsFault::ExponentTooLong);
    for count in ["-1", "1.5", "4294967296", "\"3\"", "null"] {
        assert_eq!(fault(&format!("{{\"maxRequests\":{count}}}")), BoundsFault::MaxRequests);
    }
    for text in ["[]", "1", "", "{\"a\"}"] {
        assert!(matches!(fault(text), BoundsFault::Json(_)), "{text}");
    }
    let bounds = Bounds::parse(r#"{"maxRequests":3e0,"more":{"maxRequests":"x"}}"#).unwrap();
    assert_eq!(bounds.max_requests(), Some(3));
    assert_eq!(Bounds::EMPTY.max_requests(), None);
}

// ---- The broker --------------------------------------------------------------------------------

fn broker(slots: usize) -> Broker<Vec<broker::Slot>> {
    Broker::new(vec![broker::Slot::EMPTY; slots], Peer::Page, SALT)
}

fn ask(broker: &mut Broker<Vec<broker::Slot>>, now: Instant) -> CallKey {
    let mut out = [0; 512];
    broker.ask(now, request(), &mut out).unwrap().call
}

// rule: CHAN-29
#[test]
fn ids_are_the_salt_the_slot_and_its_generation() {
    let mut broker = broker(2);
    let link = broker.link_up(at(0));
    let mut seen = std::collections::BTreeSet::new();
    for turn in 0..100 {
        let mut out = [0; 512];
        let asked = broker.ask(at(turn), request(), &mut out).unwrap();
        let id = broker.call_id(asked.call);
        let text = id.as_str();
        assert_eq!(text.len(), CALL_ID_LENGTH);
        assert!(text.starts_with("rt_p53n654asgrlh"), "{text}");
        assert!(core::str::from_utf8(asked.message).unwrap().contains(text));
        assert!(seen.insert(text.to_owned()), "never used twice");
        let answer = observed(text);
        assert!(matches!(
            broker.feed(at(turn), link, answer.as_bytes()),
            Event::Answered { call, .. } if call == asked.call
        ));
    }
    // Every digit counts: no other text is the id of a call in flight.
    let open = ask(&mut broker, at(200));
    let id = broker.call_id(open).to_string();
    for place in 0..id.len() {
        for other in ["a", "b", "7", "A", "1", "_"] {
            let mut wrong = id.clone();
            wrong.replace_range(place..=place, other);
            if wrong != id {
                let answer = observed(&wrong);
                let event = broker.feed(at(200), link, answer.as_bytes());
                assert_eq!(event, Event::Ignored(Ignored::UnknownCall), "{wrong}");
            }
        }
    }
    // Escaped, it is the same text.
    let escaped = observed(&id).replace("rt_", "\\u0072t\\u005f");
    assert!(matches!(broker.feed(at(200), link, escaped.as_bytes()), Event::Answered { .. }));
}

// rule: CHAN-25, CHAN-31
#[test]
fn many_calls_time_out_and_leave_nothing_behind() {
    const CALLS: usize = 100_000;
    let mut broker = broker(CALLS);
    let link = broker.link_up(at(0));
    let calls: Vec<CallKey> =
        (0..CALLS).map(|turn| ask(&mut broker, at(turn as u64 / 100))).collect();
    let mut out = [0; 512];
    let full = broker.ask(at(1_000), request(), &mut out);
    assert_eq!(full, Err(AskError::Refused(Refusal::TooManyCalls)));
    let end = at(60_000);
    for call in &calls {
        let settled = broker.poll(end).unwrap();
        assert_eq!((settled.call, settled.refusal), (*call, Refusal::PageTimeout));
    }
    assert_eq!((broker.poll(end), broker.deadline(), broker.waiting()), (None, None, 0));
    for call in calls.iter().step_by(997) {
        let late = observed(broker.call_id(*call).as_str());
        assert_eq!(broker.feed(end, link, late.as_bytes()), Event::Ignored(Ignored::UnknownCall));
    }
    assert_eq!(broker.ignored(), CALLS.div_ceil(997) as u64);
    // All slots serve again, and closing settles them in the order in which they were asked.
    let calls: Vec<CallKey> = (0..CALLS).map(|_| ask(&mut broker, end)).collect();
    broker.link_down(end, link);
    let settled = core::iter::from_fn(|| broker.poll(end));
    assert!(
        settled
            .map(|settled| (settled.call, settled.refusal))
            .eq(calls.into_iter().map(|call| (call, Refusal::PageClosed)))
    );
    assert_eq!(broker.waiting(), 0);
}

// rule: CHAN-31
#[test]
fn full_of_calls_that_are_over_is_not_full() {
    let mut broker = broker(1);
    broker.link_up(at(0));
    let first = ask(&mut broker, at(0));
    let mut out = [0; 512];
    assert_eq!(
        broker.ask(at(4_999), request(), &mut out),
        Err(AskError::Refused(Refusal::TooManyCalls))
    );
    assert_eq!(broker.ask(at(5_000), request(), &mut out), Err(AskError::PollFirst));
    assert_eq!(broker.poll(at(5_000)).unwrap().call, first);
    assert!(broker.ask(at(5_000), request(), &mut out).is_ok());
}

#[test]
fn an_ask_that_does_not_fit_changes_nothing() {
    let mut broker = broker(1);
    broker.link_up(at(0));
    let mut out = [0; 512];
    let needed = broker.ask(at(0), request(), &mut out).unwrap().message.len();
    let call = broker.poll(at(9_000)).unwrap().call;
    for room in 0..needed {
        let error = broker.ask(at(9_000), request(), &mut out[..room]).unwrap_err();
        assert_eq!(error, AskError::OutTooSmall(OutTooSmall { needed }));
    }
    assert_eq!((broker.waiting(), broker.deadline()), (0, None));
    broker.cancel(call);
    assert!(broker.ask(at(9_000), request(), &mut out[..needed]).is_ok());
}

// rule: CHAN-19
#[test]
fn a_message_over_the_limit_is_not_read() {
    let mut broker = broker(1).with_limit(80);
    let link = broker.link_up(at(0));
    let call = ask(&mut broker, at(0));
    let answer = observed(broker.call_id(call).as_str());
    assert!(answer.len() < 80);
    let padded = format!("{answer:81}");
    let Event::Ignored(Ignored::Malformed(error)) = broker.feed(at(1), link, padded.as_bytes())
    else {
        panic!("not ignored");
    };
    assert_eq!(error.fault, EnvelopeFault::TooLong { limit: 80 });
    assert!(matches!(broker.feed(at(1), link, &padded.as_bytes()[..80]), Event::Answered { .. }));

    let mut door = door::<1>().with_limit(call_text_len());
    let message = call_text();
    assert!(matches!(door.feed(message.as_bytes()), Received::Run(..)));
    assert!(matches!(door.feed(format!("{message} ").as_bytes()), Received::Ignored(_)));
    assert_eq!(MAX_MESSAGE, 1 << 20);
}

fn call_text() -> String {
    call("x")
}

fn call_text_len() -> usize {
    call_text().len()
}

#[test]
fn patience_saturates_and_nothing_of_it_is_shown() {
    let mut broker = broker(2).with_patience(Duration::MAX);
    let link = broker.link_up(at(1));
    ask(&mut broker, at(1));
    assert_eq!(broker.deadline(), Some(Instant::from_micros(u64::MAX)));
    broker.link_down(at(2), link);
    assert_eq!(broker.deadline(), Some(at(2)));
    assert!(broker.poll(at(2)).is_some());
    assert_eq!(DEFAULT_PATIENCE.as_millis(), 5_000);
    assert!(!format!("{broker:?}").contains(&SALT.to_string()));
}

// ---- The door ----------------------------------------------------------------------------------

type OurDoor<const N: usize> =
    Door<[door::Slot<64>; N], Table<'static, [Admission<'static>; 1]>, 64>;

fn door<const N: usize>() -> OurDoor<N> {
    let admissions = [Admission::new("notes", "read", Bounds::EMPTY)];
    Door::new([door::Slot::EMPTY; N], Table::new(admissions))
}

fn run<const N: usize>(door: &mut OurDoor<N>, id: &str) -> Ticket {
    match door.feed(call(id).as_bytes()) {
        Received::Run(ticket, read) => {
            assert_eq!(read.call_id, id);
            ticket
        }
        other => panic!("{other:?}"),
    }
}

fn reason<const N: usize>(door: &mut OurDoor<N>, message: &str) -> Reason {
    match door.feed(message.as_bytes()) {
        Received::Refuse(refused) => refused.reason,
        other => panic!("{other:?}"),
    }
}

// rule: CHAN-36
#[test]
fn a_reply_that_does_not_fit_leaves_the_call_to_be_answered() {
    let mut door = door::<1>();
    let mut ticket = run(&mut door, "a");
    let mut out = [0; 64];
    let expected = br#"{"v":1,"callId":"a","ok":true,"observed":{}}"#;
    for room in 0..expected.len() {
        let outcome = Outcome::Observed(Object::EMPTY);
        ticket = match door.answer(ticket, outcome, &mut out[..room]) {
            Err(AnswerError::OutTooSmall { ticket, needed }) => {
                assert_eq!(needed, expected.len());
                ticket
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(door.running(), 1);
    }
    let reply = door.answer(ticket, Outcome::Observed(Object::EMPTY), &mut out).unwrap();
    assert_eq!(reply, expected);
    assert_eq!(door.running(), 0);
}

// rule: CHAN-33
#[test]
fn every_refusal_fits_the_room_that_is_stated() {
    let id = "\u{1}".repeat(64);
    let mut admissions = Table::new([Admission::new(
        "notes",
        "read",
        Bounds::parse(r#"{"maxRequests":4294967295}"#).unwrap(),
    )]);
    assert!(admissions.find(Text::plain("notes"), Text::plain("read")).is_some());
    let budget = admission::BudgetExhausted { used: u32::MAX, allowed: u32::MAX };
    let envelope = |refusal| {
        let error = triwire::channel::envelope::EnvelopeError {
            refusal,
            at: 0,
            fault: EnvelopeFault::Unknown,
        };
        Reason::Call(CallError::Envelope(error))
    };
    let reasons = Refusal::ALL.map(envelope).into_iter().chain([
        Reason::Duplicate,
        Reason::TooMany,
        Reason::Budget(budget),
    ]);
    for reason in reasons {
        let refused = door::Refused { call_id: Text::plain(&id), reason };
        let mut out = vec![0; 6 * 64 + 256];
        let reply = refused.write(&mut out).unwrap();
        let answer = Answer::parse(reply).unwrap();
        assert_eq!(answer.call_id, &*id);
        assert!(refused.write(&mut [0; 300]).is_err());
    }
    assert!(budget.to_string().contains("4294967295 used of 4294967295 allowed"));
    assert!(admissions.charge(admission::ToolIndex(0)).is_ok());
    assert!(admissions.charge(admission::ToolIndex(1)).is_err());
    assert_eq!(admissions.admissions()[0].used(), 1);
}

// rule: CHAN-40
#[test]
fn the_end_of_a_link_frees_the_slots_and_spoils_the_tickets() {
    let mut door = door::<2>();
    let (one, two) = (run(&mut door, "a"), run(&mut door, "b"));
    assert_eq!((one.index() + two.index(), door.running()), (1, 2));
    door.link_down();
    assert_eq!(door.running(), 0);
    let again = run(&mut door, "a");
    let mut out = [0; 256];
    assert_eq!(door.lost(one, &mut out), Err(AnswerError::Gone));
    assert_eq!(door.running(), 1);
    assert!(door.threw(again, "x", &mut out).is_ok());
    assert_eq!(door.lost(two, &mut out), Err(AnswerError::Gone));
}

// rule: CHAN-37
#[test]
fn ids_of_one_hash_are_kept_apart() {
    const SLOTS: usize = 64;
    let mut door = door::<SLOTS>();
    let mut out = [0; 256];
    for turn in 0..50 {
        let ids: Vec<String> = (0..SLOTS).map(|at| format!("{turn}-{at}")).collect();
        let mut tickets: Vec<(String, Ticket)> =
            ids.iter().map(|id| (id.clone(), run(&mut door, id))).collect();
        for id in &ids {
            assert_eq!(reason(&mut door, &call(id)), Reason::Duplicate);
        }
        assert_eq!(reason(&mut door, &call("more")), Reason::TooMany);
        tickets.rotate_left(turn);
        for (count, (id, ticket)) in tickets.into_iter().enumerate() {
            let reply = door.lost(ticket, &mut out).unwrap();
            assert_eq!(Answer::parse(reply).unwrap().call_id, &*id);
            assert_eq!(door.running(), SLOTS - count - 1);
        }
    }
}

#[test]
fn no_slots_at_all() {
    let mut door = door::<0>();
    assert_eq!(reason(&mut door, &call("a")), Reason::TooMany);
    let mut broker = Broker::new([broker::Slot::EMPTY; 0], Peer::Machine, SALT);
    broker.link_up(at(0));
    assert!(broker.ask(at(0), request(), &mut [0; 512]).is_err());
    assert_eq!(broker.poll(at(1)), None);
}

/// Work is linear: a message of a MiB of the smallest members, with and without a place for them.
#[test]
fn large_messages_are_judged_at_once() {
    let members = |count: usize| {
        let members: Vec<String> = (0..count).map(|at| format!("\"{:x}\":0", at % 4096)).collect();
        format!("{{{}}}", members.join(","))
    };
    let many = members(100_000);
    let mut door = door::<1>();
    let message = call("a").replace("\"args\":{}", &format!("\"args\":{many}"));
    let Received::Run(ticket, read) = door.feed(message.as_bytes()) else { panic!() };
    assert_eq!(read.args.as_str(), many);
    assert!(door.lost(ticket, &mut [0; 256]).is_ok());
    let message = call("a").replace("\"boundsEcho\":{}", &format!("\"boundsEcho\":{many}"));
    let Received::Refuse(refused) = door.feed(message.as_bytes()) else { panic!() };
    assert_eq!(refused.reason.refusal(), Refusal::BoundsMismatch);
    let message = format!("{},{}", call("a").strip_suffix('}').unwrap(), &many[1..]);
    let Received::Refuse(refused) = door.feed(message.as_bytes()) else { panic!() };
    assert_eq!(refused.reason.refusal(), Refusal::UnknownField);
}

// ---- Hello -------------------------------------------------------------------------------------

fn hello(now: u64) -> Hello {
    match enter(at(now), [], 80, Session::Off, HelloBound::default()) {
        Entry::Hello(hello) => hello,
        Entry::Page => panic!("without an origin"),
    }
}

// rule: CHAN-45, CHAN-50
#[test]
fn a_hello_has_its_time_and_its_size() {
    assert_eq!(hello(7).deadline(), at(5_007));
    assert_eq!(hello(7).poll(at(5_006)), None);
    let refused = hello(7).poll(at(5_007)).unwrap();
    assert_eq!(refused, Refused(Refusal::ExecutorUnauthenticated));
    let message = |len: usize| {
        let text = r#"{"type":"hello","bearer":"b","more":""#;
        format!("{text}{}\"}}", "x".repeat(len - text.len() - 2))
    };
    assert!(hello(7).feed(at(8), message(MAX_HELLO).as_bytes()).is_ok());
    let too_long = message(MAX_HELLO + 1);
    assert_eq!(hello(7).feed(at(8), too_long.as_bytes()).unwrap_err(), refused);
    assert_eq!(hello(7).feed(at(5_007), message(99).as_bytes()).unwrap_err(), refused);
}

// rule: CHAN-49
#[test]
fn who_is_refused_is_told_and_closed() {
    for refusal in Refusal::ALL {
        let mut out = [0; 200];
        let text = Refused(refusal).write(&mut out).unwrap();
        let text: serde_json::Value = serde_json::from_slice(text).unwrap();
        assert_eq!(text["type"], "refused");
        assert_eq!(text["refused"], refusal.as_str());
        assert_eq!(text["why"], refusal.why());
        let close = Refused(refusal).close();
        assert_eq!((close.code, close.reason.as_str()), (1008, refusal.as_str()));
    }
}

// rule: CHAN-46
#[test]
fn settings_of_the_bound() {
    for (text, millis) in [("1", 1), ("5000", 5_000), ("600000", 600_000), ("007", 7)] {
        assert_eq!(HelloBound::parse(text).unwrap().get(), Duration::from_millis(millis));
    }
    for text in
        ["", "0", "600001", "-1", "+5", "5s", "1.5", " 5", "5 ", "1e3", "99999999999999999999"]
    {
        assert!(HelloBound::parse(text).is_err(), "{text}");
    }
    assert_eq!(HelloBound::default().get(), Duration::from_millis(5_000));
}

// rule: CHAN-47, CHAN-48
#[test]
fn secrets_are_not_shown_and_standings_have_their_words() {
    let presented = || hello(0).feed(at(1), br#"{"type":"hello","bearer":"vbx_secret"}"#).unwrap();
    let shown = format!("{:?} {:?}", presented(), presented().bearer().digest());
    assert!(!shown.contains("secret") && shown.contains("redacted"), "{shown}");
    assert!(!format!("{:?}", Session::On("secret")).contains("secret"));
    for (standing, word) in [
        (Standing::Known, None),
        (Standing::Unknown, Some("bearer-refused")),
        (Standing::Revoked, Some("pairing-revoked")),
        (Standing::Unreadable, Some("pairing-list-unreadable")),
    ] {
        let settled = presented().settle(standing);
        assert_eq!(settled.err().map(|Refused(refusal)| refusal.as_str()), word);
    }
    // A session that is nothing is never shown.
    let headers = [("Origin", "http://localhost:80"), ("Cookie", "vb_session=")];
    let headers =
        headers.map(|(name, value)| triwire::exec::head::Header { name, value: value.as_bytes() });
    let entry = enter(at(0), headers, 80, Session::On(""), HelloBound::default());
    assert!(matches!(entry, Entry::Hello(_)));
}

// ---- The other side of the gate ---------------------------------------------------------------

#[test]
fn tries_come_ever_later_and_never_all_at_once() {
    // rule: CHAN-70
    use triwire::channel::reconnect::{FIRST_DELAY, MAX_DELAY, Reconnect, STABLE_AFTER};
    let after = |failures: usize, entropy| {
        let mut reconnect = Reconnect::new();
        (0..failures).for_each(|_| {
            let _ = reconnect.ended(Instant::ZERO, 0);
        });
        reconnect.ended(Instant::ZERO, entropy)
    };
    for failures in [0, 1, 5, 6, 31, 32, 33, 100] {
        let longest = FIRST_DELAY.saturating_mul(1 << failures.min(20)).min(MAX_DELAY);
        assert_eq!(after(failures, 0), longest / 2, "{failures}");
        assert_eq!(after(failures, u32::MAX), longest, "{failures}");
        assert!((longest / 2..=longest).contains(&after(failures, 0x1234_5678)), "{failures}");
    }
    // A connection that stood begins anew; one that was lost at once does not.
    let mut reconnect = Reconnect::new();
    (0..9).for_each(|_| {
        let _ = reconnect.ended(Instant::ZERO, 0);
    });
    reconnect.connected(Instant::ZERO);
    let just = Instant::ZERO.saturating_add(STABLE_AFTER - Duration::from_millis(1));
    assert_eq!(reconnect.ended(just, u32::MAX), MAX_DELAY);
    reconnect.connected(Instant::ZERO);
    assert_eq!(reconnect.ended(Instant::ZERO.saturating_add(STABLE_AFTER), u32::MAX), FIRST_DELAY);
}

#[test]
fn hellos_are_read_as_they_are_written() {
    // rule: CHAN-71
    use triwire::channel::hello::{BearerDigest, write_hello};
    let headers: [triwire::exec::head::Header<'_>; 0] = [];
    for bearer in ["vbx_1", "\"\\\n", "ż"] {
        let entry = enter(at(0), headers, 1, Session::Off, HelloBound::default());
        let Entry::Hello(hello) = entry else { panic!() };
        let mut out = [0; 100];
        let presented = hello.feed(at(1), write_hello(bearer, &mut out).unwrap()).unwrap();
        assert_eq!(presented.bearer().digest(), BearerDigest::of(bearer));
    }
    assert_eq!(write_hello("b", &mut [0; 49]), Err(OutTooSmall { needed: 50 }));
}

#[test]
fn an_executor_hears_why_it_is_sent_away() {
    // rule: CHAN-72
    use triwire::channel::hello::Told;
    for refusal in Refusal::ALL {
        let mut out = [0; 200];
        let told = Refused(refusal).write(&mut out).unwrap();
        let told = Told::parse(told).unwrap();
        assert!(told.refused == refusal.as_str() && told.why == refusal.why());
        let last =
            matches!(refusal, Refusal::BearerRefused | Refusal::PairingRevoked | Refusal::Replaced);
        assert_eq!(told.is_final(), last, "{refusal}");
    }
    // A later word, and members that come later, are no reason not to hear it.
    let later = Told::parse(br#"{"type":"refused","refused":"later","more":[1]}"#).unwrap();
    assert!(later.refused == "later" && later.why.is_empty() && !later.is_final());
    for other in [
        r#"{"type":"task","refused":"replaced"}"#,
        r#"{"refused":"replaced","why":""}"#,
        r#"{"type":"refused","refused":""}"#,
        r#"{"type":"refused","refused":1}"#,
        r#"["refused"]"#,
        r#"{"type":"refused","refused":"a"} x"#,
        "",
    ] {
        assert_eq!(Told::parse(other.as_bytes()), None, "{other}");
    }
}

#[test]
fn what_callers_write_servers_read() {
    // rule: CHAN-73, CHAN-74
    use triwire::channel::route::{Asking, env_key, issued_bearer, write_env_key};
    let mut asking = Asking {
        executor: None,
        tool: Text::plain("re\"ad"),
        descriptor_id: Text::plain("notes"),
        args: Object::parse(r#"{"a":1}"#).unwrap(),
        bounds_echo: Object::EMPTY,
        timeout_ms: None,
    };
    let mut out = [0; 256];
    let text = asking.write(&mut out).unwrap();
    let expected = r#"{"tool":"re\"ad","descriptorId":"notes","args":{"a":1},"boundsEcho":{}}"#;
    assert_eq!(core::str::from_utf8(text).unwrap(), expected);
    asking.executor = Some(Text::plain("mcu"));
    asking.timeout_ms = Some(7);
    let read = Asking::parse(asking.write(&mut out).unwrap()).unwrap();
    assert!(read.executor.unwrap() == "mcu" && read.tool == "re\"ad");
    assert_eq!((read.timeout_ms, read.args.as_str()), (Some(7), r#"{"a":1}"#));

    assert!(env_key(write_env_key("a\"b", &mut out).unwrap()).unwrap() == "a\"b");
    let answer = br#"{"ok":true,"envKey":"a","bearer":"vbx_1"}"#;
    assert!(issued_bearer(answer).unwrap() == "vbx_1");
    for other in [r#"{"ok":true,"envKey":"a"}"#, r#"{"bearer":1}"#, r#"{"bearer":""}"#, "", "[]"] {
        assert_eq!(issued_bearer(other.as_bytes()), None, "{other}");
    }
}
