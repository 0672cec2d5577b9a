//! The channel beside serde_json with spans, and beside a map of tokio's oneshots.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hint::black_box;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use triwire::channel::admission::{self, Admission, Table};
use triwire::channel::bounds::Bounds;
use triwire::channel::broker::{self, Broker, CALL_ID_LENGTH, CallKey, Event, Link, Request};
use triwire::channel::door::{self, Door, Received};
use triwire::channel::envelope::{Object, Outcome};
use triwire::channel::refusal::Peer;
use triwire::time::Instant;
use triwire_bench::{Goal, Line, row, table};

const BOUNDS: &str = r#"{"hosts":["a.example"],"maxRequests":4000000000}"#;
const TURNED: &str = r#"{"maxRequests":4000000000,"hosts":["a.example"]}"#;
const MANY: usize = 100_000;
/// Where the id stands in an answer.
const ID_AT: usize = r#"{"v":1,"callId":""#.len();
const PATIENCE: Duration = Duration::from_secs(3600);

fn call(args: &str, bounds: &str) -> String {
    format!(
        r#"{{"v":1,"callId":"rt_abcdefghijklm","tool":"read_notes","descriptorId":"notes","args":{args},"boundsEcho":{bounds}}}"#
    )
}

type Admitted = Table<'static, Vec<Admission<'static>>>;

fn admitted() -> Admitted {
    let bounds = Bounds::parse(BOUNDS).expect("bounds");
    Table::new(["add_note", "read_notes"].map(|tool| Admission::new("notes", tool, bounds)).into())
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Call<'m> {
    v: u32,
    call_id: &'m str,
    tool: &'m str,
    descriptor_id: &'m str,
    #[serde(borrow)]
    args: &'m RawValue,
    #[serde(borrow)]
    bounds_echo: &'m RawValue,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Answer<'m> {
    v: u32,
    call_id: &'m str,
    ok: bool,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    observed: Option<&'m RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<&'m str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'m str>,
}

/// serde_json's own parsing, which keeps spans and refuses unknown and repeated members; no bounds.
fn spans(message: &[u8]) -> bool {
    let call: Call<'_> = serde_json::from_slice(message).expect("a call");
    black_box(&call);
    call.v == 1
}

/// The same, with the look-up and bounds compared as values, which floats blur.
fn spans_and_bounds(message: &[u8], admitted: &[(&str, &str, Value)]) -> bool {
    let call: Call<'_> = serde_json::from_slice(message).expect("a call");
    let found = admitted.iter().find(|one| one.0 == call.descriptor_id && one.1 == call.tool);
    let Some((_, _, bounds)) = found else { return false };
    let echo: Value = serde_json::from_str(call.bounds_echo.get()).expect("bounds");
    call.v == 1 && !call.call_id.is_empty() && call.args.get().starts_with('{') && echo == *bounds
}

fn envelopes(c: &mut Criterion) {
    let admissions = admitted();
    let bounds: Value = serde_json::from_str(BOUNDS).expect("bounds");
    let theirs = ["add_note", "read_notes"].map(|tool| ("notes", tool, bounds.clone()));
    let items = |size: usize| {
        let item =
            r#"{"id":1234,"title":"A note of some length","tags":["one","two"],"done":false}"#;
        format!("{{\"notes\":[{}]}}", vec![item; size / item.len()].join(","))
    };
    for (name, message) in [
        ("164 B", call("{}", BOUNDS)),
        ("164 B, bounds in another order", call("{}", TURNED)),
        ("16 KiB", call(&items(16 << 10), BOUNDS)),
    ] {
        let message = message.as_bytes();
        let mut group = c.benchmark_group(format!("envelope {name}"));
        group.bench_function("ours", |b| {
            b.iter(|| admission::check(black_box(message), 256, &admissions).is_ok());
        });
        group.bench_function("spans", |b| b.iter(|| spans(black_box(message))));
        group.bench_function("spans and bounds", |b| {
            b.iter(|| spans_and_bounds(black_box(message), &theirs));
        });
        group.finish();
        assert!(admission::check(message, 256, &admissions).is_ok());
        assert!(spans_and_bounds(message, &theirs));
    }
    for (name, size) in [("512 KiB", 512 << 10), ("1 MiB", 1 << 20)] {
        let members = vec!["\"\":0"; size / 5].join(",");
        let mut group = c.benchmark_group(format!("smallest members {name}"));
        for (place, message) in [
            ("in args", call(&format!("{{{members}}}"), BOUNDS)),
            ("in bounds", call("{}", &format!("{{{members}}}"))),
        ] {
            group.bench_function(place, |b| {
                b.iter(|| {
                    admission::check(black_box(message.as_bytes()), 256, &admissions).is_ok()
                });
            });
            if place == "in args" {
                let message = message.as_bytes();
                group.bench_function("spans", |b| b.iter(|| spans(black_box(message))));
            }
        }
        group.finish();
    }
}

/// Both ends of ours, with calls in flight.
struct Ours {
    broker: Broker<Box<[broker::Slot]>>,
    link: Link,
    door: Door<Box<[door::Slot<64>]>, Admitted, 64>,
    bounds: Bounds<'static>,
    now: u64,
    call: Box<[u8; 1024]>,
    reply: Box<[u8; 1024]>,
}

impl Ours {
    fn new(slots: usize) -> Self {
        let slots = vec![broker::Slot::EMPTY; slots].into_boxed_slice();
        let mut broker = Broker::new(slots, Peer::Page, 0x1234).with_patience(PATIENCE);
        let link = broker.link_up(Instant::ZERO);
        let slots = vec![door::Slot::EMPTY; 64].into_boxed_slice();
        Self {
            broker,
            link,
            door: Door::new(slots, admitted()),
            bounds: Bounds::parse(BOUNDS).expect("bounds"),
            now: 0,
            call: Box::new([0; 1024]),
            reply: Box::new([0; 1024]),
        }
    }

    /// Asks, and lets the door answer; the answer's length.
    fn ask(&mut self) -> (CallKey, usize) {
        self.now += 1;
        let now = Instant::from_micros(self.now);
        let args = Object::EMPTY;
        let request = Request::new("notes", "read_notes", args, self.bounds.echo());
        let asked = self.broker.ask(now, request, &mut self.call[..]).expect("a slot");
        let call = asked.call;
        let Received::Run(ticket, read) = self.door.feed(asked.message) else {
            panic!("the call runs");
        };
        black_box(read.args);
        let observed = Object::parse(r#"{"lines":3,"content":"a line"}"#).expect("an object");
        let observed = Outcome::Observed(observed);
        let reply = self.door.answer(ticket, observed, &mut self.reply[..]).expect("room");
        (call, reply.len())
    }

    /// Asks, and delivers what the door answered as the answer of `oldest`, or of the call itself.
    fn round(&mut self, oldest: Option<CallKey>) -> CallKey {
        let (asked, len) = self.ask();
        let id = self.broker.call_id(oldest.unwrap_or(asked));
        self.reply[ID_AT..][..CALL_ID_LENGTH].copy_from_slice(id.as_str().as_bytes());
        self.now += 1;
        let now = Instant::from_micros(self.now);
        match self.broker.feed(now, self.link, &self.reply[..len]) {
            Event::Answered { call, outcome } => {
                black_box(outcome);
                assert_eq!(call, oldest.unwrap_or(asked));
            }
            Event::Ignored(why) => panic!("{why}"),
        }
        asked
    }
}

/// A map of oneshots and timeouts, as asynchronous programs write it.
#[derive(Default)]
struct Theirs {
    waiting: HashMap<String, oneshot::Sender<String>>,
    next: u64,
}

impl Theirs {
    /// One call: `ends` is the JSON of both ends, from a call's id to the answer's text, and from
    /// that to its id and what was observed.
    async fn round(&mut self, ends: &impl Ends) {
        self.next += 1;
        let id = format!("rt_{:026x}", self.next);
        let (tell, told) = oneshot::channel();
        let call = ends.call(&id);
        self.waiting.insert(id, tell);
        let told = tokio::time::timeout(PATIENCE, told);
        let answer = ends.door(&call);
        let (id, observed) = ends.read(&answer);
        let tell = self.waiting.remove(&*id).expect("it waits");
        tell.send(observed).expect("somebody waits");
        black_box(told.await.expect("in time").expect("told"));
    }
}

trait Ends {
    fn call(&self, id: &str) -> String;
    fn door(&self, call: &str) -> String;
    fn read<'a>(&self, answer: &'a str) -> (Cow<'a, str>, String);
}

/// serde_json with values of its own, as most programs use it.
struct Values {
    bounds: Value,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OwnedCall {
    v: u32,
    call_id: String,
    tool: String,
    descriptor_id: String,
    args: Value,
    bounds_echo: Value,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OwnedAnswer {
    v: u32,
    call_id: String,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    observed: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl Ends for Values {
    fn call(&self, id: &str) -> String {
        let call = OwnedCall {
            v: 1,
            call_id: id.into(),
            tool: "read_notes".into(),
            descriptor_id: "notes".into(),
            args: json!({}),
            bounds_echo: self.bounds.clone(),
        };
        serde_json::to_string(&call).expect("a call")
    }

    fn door(&self, call: &str) -> String {
        let call: OwnedCall = serde_json::from_str(call).expect("a call");
        assert!(call.v == 1 && call.args.is_object() && call.bounds_echo == self.bounds);
        let answer = OwnedAnswer {
            v: 1,
            call_id: call.call_id,
            ok: true,
            observed: Some(json!({ "lines": 3, "content": "a line" })),
            refused: None,
            why: None,
        };
        serde_json::to_string(&answer).expect("an answer")
    }

    fn read<'a>(&self, answer: &'a str) -> (Cow<'a, str>, String) {
        let answer: OwnedAnswer = serde_json::from_str(answer).expect("an answer");
        let observed = answer.observed.expect("it is observed");
        (answer.call_id.into(), observed.to_string())
    }
}

/// serde_json with spans of the messages: the least that it can be made to do.
struct Spans {
    bounds: Box<RawValue>,
    admitted: Value,
}

impl Ends for Spans {
    fn call(&self, id: &str) -> String {
        let args = RawValue::from_string("{}".into()).expect("args");
        let call = Call {
            v: 1,
            call_id: id,
            tool: "read_notes",
            descriptor_id: "notes",
            args: &args,
            bounds_echo: &self.bounds,
        };
        serde_json::to_string(&call).expect("a call")
    }

    fn door(&self, call: &str) -> String {
        let call: Call<'_> = serde_json::from_str(call).expect("a call");
        let echo: Value = serde_json::from_str(call.bounds_echo.get()).expect("bounds");
        assert!(call.v == 1 && call.args.get().starts_with('{') && echo == self.admitted);
        let observed = r#"{"lines":3,"content":"a line"}"#.to_owned();
        let observed = RawValue::from_string(observed).expect("an object");
        let answer = Answer {
            v: 1,
            call_id: call.call_id,
            ok: true,
            observed: Some(&observed),
            refused: None,
            why: None,
        };
        serde_json::to_string(&answer).expect("an answer")
    }

    fn read<'a>(&self, answer: &'a str) -> (Cow<'a, str>, String) {
        let answer: Answer<'a> = serde_json::from_str(answer).expect("an answer");
        (answer.call_id.into(), answer.observed.expect("it is observed").get().to_owned())
    }
}

fn round_trips(c: &mut Criterion) {
    let mut group = c.benchmark_group("round trip");
    let mut one = Ours::new(1);
    group.bench_function("ours", |b| b.iter(|| one.round(None)));
    let mut many = Ours::new(MANY);
    let mut calls: Vec<CallKey> = (1..MANY).map(|_| many.ask().0).collect();
    let mut oldest = 0;
    group.bench_function("ours with 100 000 in flight", |b| {
        b.iter(|| {
            // The oldest is answered, and a new one takes its place.
            calls[oldest] = many.round(Some(calls[oldest]));
            oldest = (oldest + 1) % calls.len();
        });
    });
    let admitted: Value = serde_json::from_str(BOUNDS).expect("bounds");
    let bounds = RawValue::from_string(BOUNDS.into()).expect("bounds");
    oneshots(&mut group, "oneshots, values", &Values { bounds: admitted.clone() });
    oneshots(&mut group, "oneshots, spans", &Spans { bounds, admitted });
    group.finish();
}

fn oneshots(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, ends: &impl Ends) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime");
    let mut theirs = Theirs::default();
    group.bench_function(name, |b| {
        b.iter_custom(|rounds| {
            runtime.block_on(async {
                let start = std::time::Instant::now();
                for _ in 0..rounds {
                    theirs.round(ends).await;
                }
                start.elapsed()
            })
        });
    });
}

/// A broker whose slots are all taken; of every `in_heap` calls one ends before those asked
/// earlier.
fn full(in_heap: u64) -> Broker<Vec<broker::Slot>> {
    let slots = vec![broker::Slot::EMPTY; MANY];
    let mut broker = Broker::new(slots, Peer::Page, 1).with_patience(PATIENCE);
    broker.link_up(Instant::ZERO);
    let mut out = [0; 512];
    for turn in 0..MANY as u64 {
        let mut request = Request::new("notes", "read_notes", Object::EMPTY, Object::EMPTY);
        let shorter = PATIENCE / 2 - Duration::from_micros(turn * 3);
        request.patience = (turn % in_heap == in_heap - 1).then_some(shorter);
        let _ = broker.ask(Instant::from_micros(turn), request, &mut out).expect("a slot");
    }
    broker
}

/// The median time to close the link and take every outcome, in ms.
fn abandon(in_heap: u64) -> f64 {
    let now = Instant::from_micros(MANY as u64);
    let mut times: Vec<Duration> = (0..15)
        .map(|_| {
            let mut broker = full(in_heap);
            let link = broker.link().expect("a link");
            let start = std::time::Instant::now();
            broker.link_down(now, link);
            let settled = std::iter::from_fn(|| broker.poll(now)).map(black_box).count();
            assert_eq!(settled, MANY);
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e3
}

fn ticks(c: &mut Criterion) {
    let mut broker = full(2);
    let now = Instant::from_micros(MANY as u64);
    c.bench_function("tick/nothing due", |b| b.iter(|| broker.poll(black_box(now))));
}

const LINES: [Line; 11] = [
    Line {
        what: "call of 164 B: parse, every check, bounds; beside spans alone",
        ours: "envelope 164 B/ours",
        peer: "envelope 164 B/spans",
        goal: Goal::Faster(1.0),
    },
    Line {
        what: "the same, beside spans with bounds as values",
        ours: "envelope 164 B/ours",
        peer: "envelope 164 B/spans and bounds",
        goal: Goal::Faster(2.0),
    },
    Line {
        what: "the same, bounds echoed in another order",
        ours: "envelope 164 B, bounds in another order/ours",
        peer: "envelope 164 B, bounds in another order/spans and bounds",
        goal: Goal::Faster(1.0),
    },
    Line {
        what: "call of 16 KiB: parse, every check, bounds; beside spans alone",
        ours: "envelope 16 KiB/ours",
        peer: "envelope 16 KiB/spans",
        goal: Goal::Faster(1.0),
    },
    Line {
        what: "the same, beside spans with bounds as values",
        ours: "envelope 16 KiB/ours",
        peer: "envelope 16 KiB/spans and bounds",
        goal: Goal::Faster(1.25),
    },
    Line {
        what: "1 MiB of the smallest members in `args`, beside spans alone",
        ours: "smallest members 1 MiB/in args",
        peer: "smallest members 1 MiB/spans",
        goal: Goal::Faster(1.0),
    },
    Line {
        what: "the same, beside half of it",
        ours: "smallest members 1 MiB/in args",
        peer: "smallest members 512 KiB/in args",
        goal: Goal::AtMost(2.2),
    },
    Line {
        what: "1 MiB of the smallest members in `boundsEcho`, beside half of it",
        ours: "smallest members 1 MiB/in bounds",
        peer: "smallest members 512 KiB/in bounds",
        goal: Goal::AtMost(2.2),
    },
    Line {
        what: "round trip: ask, door, deliver; beside a map of oneshots, JSON as values",
        ours: "round trip/ours",
        peer: "round trip/oneshots, values",
        goal: Goal::Faster(4.5),
    },
    Line {
        what: "the same, beside a map of oneshots, JSON as spans",
        ours: "round trip/ours",
        peer: "round trip/oneshots, spans",
        goal: Goal::Faster(1.0),
    },
    Line {
        what: "round trip with 100 000 in flight, beside one",
        ours: "round trip/ours with 100 000 in flight",
        peer: "round trip/ours",
        goal: Goal::AtMost(1.17),
    },
];

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(30)
        .configure_from_args();
    envelopes(&mut criterion);
    round_trips(&mut criterion);
    ticks(&mut criterion);
    criterion.final_summary();
    match table(&LINES) {
        Ok(table) => print!("\n{table}"),
        Err(error) => return eprintln!("no table: {error}"),
    }
    for (what, in_heap) in [
        ("abandon 100 000 calls of one patience, every outcome taken", u64::MAX),
        ("the same, every second one of a shorter patience", 2),
    ] {
        let ms = abandon(in_heap);
        println!("{}", row(what, &format!("{ms:.2} ms"), "", "", "at most 5 ms", Some(ms <= 5.0)));
    }
    let bytes = size_of::<broker::Slot>();
    let what = "memory of a call in flight, deadline included";
    println!("{}", row(what, &format!("{bytes} B"), "", "", "at most 32 B", Some(bytes <= 32)));
}
