//! The channel's ends against their models: scripts of everything that can happen, polled by one
//! now and then and by another all the time.

use std::collections::HashMap;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use triwire::channel::admission::{Admission, Table};
use triwire::channel::bounds::{Bounds, Mismatch};
use triwire::channel::broker::{self, AskError, Broker, CallKey, Event, Ignored, Link, Request};
use triwire::channel::door::{self, AnswerError, Door, Reason, Received, Ticket};
use triwire::channel::envelope::{Answer, Call, Object, Outcome};
use triwire::channel::hello::{Entry, HelloBound, Session, enter};
use triwire::channel::refusal::{Peer, Refusal};
use triwire::time::Instant;
use triwire_model::channel::{BrokerModel, Ended, How, Name, bounds_equal};

const PATIENCE: u64 = 100;

#[derive(Clone, Debug)]
enum Step {
    Ask(Option<u64>),
    /// An answer to one of the calls, counted back from the last, over one of the links.
    Answer(usize, usize),
    Malformed(usize),
    SendFailed(usize),
    Cancel(usize),
    Up,
    Down(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let call = || 0_usize..6;
    let patience = prop_oneof![
        4 => Just(None),
        2 => proptest::sample::select(vec![0, 10, 25, 50, 75, 150]).prop_map(Some),
        1 => Just(Some(u64::MAX)),
    ];
    // Mostly the link that is there.
    let link = || prop_oneof![5 => Just(0_usize), 1 => 0_usize..3];
    prop_oneof![
        8 => patience.prop_map(Step::Ask),
        6 => (call(), link()).prop_map(|(call, link)| Step::Answer(call, link)),
        1 => call().prop_map(Step::Malformed),
        1 => call().prop_map(Step::SendFailed),
        1 => call().prop_map(Step::Cancel),
        2 => Just(Step::Up),
        1 => link().prop_map(Step::Down),
    ]
}

/// Times that often add up to a patience.
fn pause() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => Just(0),
        3 => proptest::sample::select(vec![5, 10, 25, 50, 100]),
        1 => 0_u64..120,
    ]
}

/// A broker whose calls are named as the model names them.
struct Named {
    broker: Broker<Vec<broker::Slot>>,
    names: HashMap<CallKey, Name>,
    calls: Vec<CallKey>,
    ids: Vec<String>,
    links: Vec<Link>,
    ended: Vec<Ended>,
    ignored: u64,
}

impl Named {
    fn new(capacity: usize) -> Self {
        let slots = vec![broker::Slot::EMPTY; capacity];
        let broker = Broker::new(slots, Peer::Machine, 0xabcd)
            .with_patience(Duration::from_millis(PATIENCE));
        Self {
            broker,
            names: HashMap::new(),
            calls: Vec::new(),
            ids: Vec::new(),
            links: Vec::new(),
            ended: Vec::new(),
            ignored: 0,
        }
    }

    fn settle(&mut self, settled: broker::Settled) {
        let how = match settled.refusal {
            Refusal::MachineTimeout => How::TimedOut,
            Refusal::MachineClosed => How::Closed,
            other => panic!("{other}"),
        };
        let name = self.names.remove(&settled.call).expect("it was in flight, and not settled");
        self.ended.push(Ended { name, at: settled.at.as_micros() / 1000, how });
    }

    fn poll(&mut self, now: u64) {
        let now = Instant::from_millis(now);
        while let Some(settled) = self.broker.poll(now) {
            self.settle(settled);
        }
        assert!(self.broker.deadline().is_none_or(|deadline| deadline > now));
    }

    fn ask(&mut self, now: u64, patience: Option<u64>) -> Result<Name, &'static str> {
        let mut request = Request::new("notes", "read", Object::EMPTY, Object::EMPTY);
        request.patience = patience.map(Duration::from_millis);
        let mut out = [0; 256];
        let at = Instant::from_millis(now);
        let asked = match self.broker.ask(at, request, &mut out) {
            Err(AskError::PollFirst) => {
                self.poll(now);
                self.broker.ask(at, request, &mut out)
            }
            asked => asked,
        };
        match asked {
            Ok(asked) => {
                let name = self.calls.len();
                let sent = Call::parse(asked.message, 64).expect("ours");
                self.ids.push(sent.call_id.to_string());
                self.calls.push(asked.call);
                assert_eq!(self.names.insert(asked.call, name), None, "no two are the same");
                Ok(name)
            }
            Err(AskError::Refused(Refusal::MachineUnreachable)) => Err("absent"),
            Err(AskError::Refused(Refusal::TooManyCalls)) => Err("full"),
            Err(error) => panic!("{error}"),
        }
    }

    fn answer(&mut self, now: u64, link: usize, name: Name) -> bool {
        let text = format!(r#"{{"v":1,"callId":"{}","ok":true,"observed":{{}}}}"#, self.ids[name]);
        match self.broker.feed(Instant::from_millis(now), self.links[link], text.as_bytes()) {
            Event::Answered { call, .. } => {
                assert_eq!(self.names.remove(&call), Some(name));
                self.ended.push(Ended { name, at: now, how: How::Answered });
                true
            }
            Event::Ignored(ignored) => {
                assert_eq!(ignored, Ignored::UnknownCall);
                self.ignored += 1;
                false
            }
        }
    }
}

/// Endings of one moment may be told in another order by who polls late: first those told at
/// once, then those polled. By their time, the order is one.
fn by_time(mut ended: Vec<Ended>) -> Vec<Ended> {
    ended.sort_by_key(|ended| (ended.at, ended.name));
    ended
}

proptest! {
    // rule: CHAN-22, CHAN-23, CHAN-24, CHAN-25, CHAN-27, CHAN-28, CHAN-31
    #[test]
    fn broker(
        capacity in 0_usize..6,
        script in vec((pause(), step(), any::<bool>()), 0..60),
    ) {
        let mut model = BrokerModel::new(capacity, PATIENCE);
        let (mut often, mut rare) = (Named::new(capacity), Named::new(capacity));
        let (mut now, mut given_up) = (0, Vec::new());
        for (pause, step, polls) in script {
            for between in (now..now + pause).step_by(7) {
                often.poll(between);
            }
            now += pause;
            model.pass(now);
            often.poll(now);
            if polls {
                rare.poll(now);
            }
            let at = Instant::from_millis(now);
            let back = |back: usize, of: usize| of.checked_sub(back + 1);
            match step {
                Step::Ask(patience) => {
                    let asked = model.ask(now, patience);
                    prop_assert_eq!(often.ask(now, patience), asked);
                    prop_assert_eq!(rare.ask(now, patience), asked);
                }
                Step::Answer(call, link) => {
                    let (call, link) = (back(call, often.calls.len()), back(link, often.links.len()));
                    let (Some(call), Some(link)) = (call, link) else { continue };
                    let settled = model.answer(now, link, call);
                    prop_assert_eq!(often.answer(now, link, call), settled);
                    prop_assert_eq!(rare.answer(now, link, call), settled);
                }
                Step::Malformed(call) => {
                    let Some(call) = back(call, often.calls.len()) else { continue };
                    let Some(link) = often.links.last().copied() else { continue };
                    let text = format!(r#"{{"v":1,"callId":"{}","ok":true}}"#, often.ids[call]);
                    for named in [&mut often, &mut rare] {
                        let event = named.broker.feed(at, link, text.as_bytes());
                        prop_assert!(matches!(event, Event::Ignored(Ignored::Malformed(_))));
                        named.ignored += 1;
                    }
                }
                Step::SendFailed(call) => {
                    let Some(call) = back(call, often.calls.len()) else { continue };
                    model.send_failed(now, call);
                    for named in [&mut often, &mut rare] {
                        if let Some(settled) = named.broker.send_failed(at, named.calls[call]) {
                            named.settle(settled);
                        }
                    }
                }
                Step::Cancel(call) => {
                    let Some(call) = back(call, often.calls.len()) else { continue };
                    model.cancel(call);
                    given_up.push(call);
                    for named in [&mut often, &mut rare] {
                        named.broker.cancel(named.calls[call]);
                        named.names.remove(&named.calls[call]);
                    }
                }
                Step::Up => {
                    model.up(now);
                    for named in [&mut often, &mut rare] {
                        named.links.push(named.broker.link_up(at));
                    }
                }
                Step::Down(link) => {
                    let Some(link) = back(link, often.links.len()) else { continue };
                    model.down(now, link);
                    for named in [&mut often, &mut rare] {
                        named.broker.link_down(at, named.links[link]);
                    }
                }
            }
            // A call without patience is over when it is asked.
            model.pass(now);
            often.poll(now);
            prop_assert_eq!(&often.ended, &model.ended);
            prop_assert_eq!(often.broker.waiting(), model.waiting());
            let deadline = often.broker.deadline().map(|deadline| deadline.as_micros() / 1000);
            prop_assert_eq!(deadline, model.deadline());
            prop_assert_eq!(often.broker.ignored(), often.ignored);
        }
        rare.poll(now);
        // How a call ended that was given up matters to nobody.
        let told = |ended: Vec<Ended>| {
            by_time(ended.into_iter().filter(|ended| !given_up.contains(&ended.name)).collect())
        };
        prop_assert_eq!(told(rare.ended), told(model.ended.clone()));
        prop_assert_eq!(rare.broker.waiting(), model.waiting());
    }
}

#[derive(Clone, Debug)]
enum Visit {
    Call { id: usize, tool: usize, bounds: usize },
    Silent(&'static str),
    Answer(usize, Ending),
    LinkDown,
}

#[derive(Clone, Copy, Debug)]
enum Ending {
    Observed,
    Refused,
    Threw,
    Lost,
    NoRoom,
}

fn visit() -> impl Strategy<Value = Visit> {
    let bad =
        ["", "[]", "{}", "{\"callId\":1}", "{\"callId\":\"a\",\"callId\":\"a\"}", "\u{feff}{}"];
    let ending = prop_oneof![
        Just(Ending::Observed),
        Just(Ending::Refused),
        Just(Ending::Threw),
        Just(Ending::Lost),
        Just(Ending::NoRoom),
    ];
    prop_oneof![
        8 => (0_usize..8, 0_usize..3, prop_oneof![9 => Just(0_usize), 1 => Just(1)])
            .prop_map(|(id, tool, bounds)| Visit::Call { id, tool, bounds }),
        1 => proptest::sample::select(bad.to_vec()).prop_map(Visit::Silent),
        6 => (0_usize..8, ending).prop_map(|(id, ending)| Visit::Answer(id, ending)),
        1 => Just(Visit::LinkDown),
    ]
}

proptest! {
    // rule: CHAN-32, CHAN-34, CHAN-35, CHAN-36, CHAN-37, CHAN-38, CHAN-40
    #[test]
    fn door(slots in 0_usize..5, script in vec(visit(), 0..60)) {
        const TOOLS: [&str; 3] = ["read", "add", "drop"];
        const BUDGET: usize = 6;
        let bounds = Bounds::parse(r#"{"maxRequests":6}"#).unwrap();
        let table = Table::new(["read", "add"].map(|tool| Admission::new("notes", tool, bounds)));
        let mut door = Door::new(vec![door::Slot::<8>::EMPTY; slots], table);
        let mut running: HashMap<usize, Ticket> = HashMap::new();
        let mut gone: Vec<Ticket> = Vec::new();
        let mut used = [0; 2];
        let mut silent = 0;
        let mut out = [0; 304];
        for visit in script {
            match visit {
                Visit::Call { id, tool, bounds } => {
                    let echo = [r#"{"maxRequests":6.0}"#, "{}"][bounds];
                    let text = format!(
                        r#"{{"v":1,"callId":"id{id}","tool":"{}","descriptorId":"notes","args":{{}},"boundsEcho":{echo}}}"#,
                        TOOLS[tool],
                    );
                    let expected = if tool == 2 {
                        Some("unattributed-call")
                    } else if bounds == 1 {
                        Some("bounds-mismatch")
                    } else if running.contains_key(&id) {
                        Some("duplicate-call")
                    } else if running.len() == slots {
                        Some("too-many-calls")
                    } else if used[tool] == BUDGET {
                        Some("budget-exhausted")
                    } else {
                        None
                    };
                    match door.feed(text.as_bytes()) {
                        Received::Run(ticket, _) => {
                            prop_assert_eq!(expected, None);
                            used[tool] += 1;
                            running.insert(id, ticket);
                        }
                        Received::Refuse(refused) => {
                            prop_assert_eq!(Some(refused.reason.refusal().as_str()), expected);
                            let reply = Answer::parse(refused.write(&mut out).unwrap()).unwrap();
                            prop_assert_eq!(reply.call_id.to_string(), format!("id{id}"));
                            let budget = matches!(refused.reason, Reason::Budget(_));
                            prop_assert_eq!(budget, expected == Some("budget-exhausted"));
                        }
                        Received::Ignored(error) => panic!("{error}"),
                    }
                }
                Visit::Silent(text) => {
                    silent += 1;
                    prop_assert!(matches!(door.feed(text.as_bytes()), Received::Ignored(_)));
                }
                Visit::Answer(id, ending) => {
                    let Some(ticket) = running.remove(&id) else { continue };
                    let refused = Outcome::Refused { refused: "".into(), why: "no".into() };
                    let reply = match ending {
                        Ending::Observed => {
                            door.answer(ticket, Outcome::Observed(Object::EMPTY), &mut out)
                        }
                        Ending::Refused => door.answer(ticket, refused, &mut out),
                        Ending::Threw => door.threw(ticket, "x", &mut out),
                        Ending::Lost => door.lost(ticket, &mut out),
                        Ending::NoRoom => match door.answer(ticket, refused, &mut out[..20]) {
                            Err(AnswerError::OutTooSmall { ticket, .. }) => {
                                running.insert(id, ticket);
                                continue;
                            }
                            other => panic!("{other:?}"),
                        },
                    };
                    let reply = Answer::parse(reply.unwrap()).unwrap();
                    prop_assert_eq!(reply.call_id.to_string(), format!("id{id}"));
                    let word = match reply.outcome {
                        Outcome::Observed(_) => "ok".to_owned(),
                        Outcome::Refused { refused, .. } => refused.to_string(),
                    };
                    let expected = match ending {
                        Ending::Observed => "ok",
                        Ending::Refused => "unknown-refusal",
                        _ => "exec-threw",
                    };
                    prop_assert_eq!(word, expected);
                }
                Visit::LinkDown => {
                    door.link_down();
                    gone.extend(running.drain().map(|(_, ticket)| ticket));
                }
            }
            prop_assert_eq!(door.running(), running.len());
            prop_assert_eq!(door.ignored(), silent);
        }
        for ticket in gone {
            prop_assert_eq!(door.lost(ticket, &mut out), Err(AnswerError::Gone));
        }
    }
}

/// Small JSON values whose parts are often alike.
fn json() -> impl Strategy<Value = String> {
    let number = ["0", "-0", "1", "1.0", "10e-1", "0.1e1", "100", "1e2", "-1", "1e400", "10e399"];
    let text = [r#""a""#, r#""\u0061""#, r#""b""#, r#""""#, r#""\ud83d\ude00""#, "\"\u{1f600}\""];
    let leaf = prop_oneof![
        proptest::sample::select(number.to_vec()).prop_map(str::to_owned),
        proptest::sample::select(text.to_vec()).prop_map(str::to_owned),
        proptest::sample::select(vec!["true", "false", "null"]).prop_map(str::to_owned),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            object(inner),
        ]
    })
}

fn object(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let names = [r#""a""#, r#""b""#, r#""c""#, r#""\u0061""#, r#""""#];
    vec(
        (proptest::sample::select(names.to_vec()), value, proptest::sample::select(vec!["", " "])),
        0..4,
    )
    .prop_map(|members| {
        let members: Vec<String> = members
            .iter()
            .map(|(name, value, space)| format!("{name}{space}:{space}{value}"))
            .collect();
        format!("{{{}}}", members.join(","))
    })
}

/// The same value in another spelling: members turned, white space, numbers. Or nearly the same,
/// with its first member once more.
fn respell(text: &str, turn: usize, twice: bool) -> String {
    let Ok(serde_json::Value::Object(members)) = serde_json::from_str(text) else {
        return text.to_owned();
    };
    let mut members: Vec<String> = members
        .iter()
        .map(|(name, value)| format!("{} : {value}", serde_json::json!(name)))
        .collect();
    let turn = turn % members.len().max(1);
    members.rotate_left(turn);
    if twice && let Some(first) = members.first().cloned() {
        members.push(first);
    }
    format!("{{ {} }}", members.join(" ,"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, ..ProptestConfig::default() })]

    // rule: CHAN-14, CHAN-15, CHAN-17, CHAN-18
    #[test]
    fn bounds(one in object(json()), two in object(json()), turn in 0_usize..4, alike in any::<bool>(), twice in any::<bool>()) {
        let echo = if alike { respell(&one, turn, twice) } else { two };
        let itself = bounds_equal(&one, &one).unwrap();
        let Ok(admitted) = Bounds::parse(&one) else {
            prop_assert!(!itself, "refused though no member stands twice: {}", one);
            return Ok(());
        };
        prop_assert!(itself, "admitted with a member twice: {}", one);
        let checked = admitted.check(Object::parse(&echo).unwrap());
        prop_assert_eq!(checked.is_ok(), bounds_equal(&one, &echo).unwrap(), "{} {}", one, echo);
        if let Err(Mismatch::Differs { at } | Mismatch::ExponentTooLong { at }) = checked {
            prop_assert!(at < echo.len());
        }
    }

    // rule: CHAN-45
    #[test]
    fn hello(bound in 1_u32..600, at in 0_u64..700, polls in vec(0_u64..700, 0..5)) {
        let bound = HelloBound::from_millis(bound).unwrap();
        let Entry::Hello(hello) = enter(Instant::ZERO, [], 1, Session::Off, bound) else { panic!() };
        let mut refused = false;
        for poll in polls.iter().filter(|poll| **poll <= at) {
            refused |= hello.poll(Instant::from_millis(*poll)).is_some();
        }
        let fed = hello.feed(Instant::from_millis(at), br#"{"type":"hello","bearer":"b"}"#);
        prop_assert_eq!(fed.is_ok(), u128::from(at) < bound.get().as_millis());
        prop_assert!(!refused || fed.is_err(), "what was refused stays so");
    }
}
