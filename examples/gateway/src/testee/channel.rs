//! `bounds.equal`, `call.parse`, `answer.parse`, `door.receive`, `door.script`, `broker.script`,
//! `origin.local` and `hello.script`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use triwire::channel::admission::{self, Admission, CallError, Table};
use triwire::channel::bounds::{Bounds, BoundsError, BoundsFault, Mismatch};
use triwire::channel::broker::{self, AskError, Broker, CallKey, Event, Link, Request, Settled};
use triwire::channel::door::{self, Door, Received, Ticket};
use triwire::channel::envelope::{Answer, MAX_MESSAGE, Object, Outcome};
use triwire::channel::hello::{
    BearerDigest, CLOSE_REFUSED, Entry, HelloBound, Refused, Session, Standing, enter,
    is_local_origin,
};
use triwire::channel::refusal::{Peer, Refusal};
use triwire::exec::head::Header;
use triwire::json::Text;
use triwire::time::Instant;

use super::input::{Bad, Input, unhex};

/// The longest `callId` of hosts, in bytes.
const HOST_ID: usize = 256;
/// The longest that a script may ask for.
const MOST_ID: usize = 4096;
/// More slots than any script needs.
const MOST_SLOTS: usize = 1 << 20;

/// Reads `in`, keeping JSON in it as it stands.
fn read<'r, T: Deserialize<'r>>(input: &Input<'r>) -> Result<T, Bad> {
    serde_json::from_str(input.raw()).map_err(|error| Bad::new(format_args!("in: {error}")))
}

/// A message as text, or as bytes that may not be one.
#[derive(Deserialize)]
struct Message {
    text: Option<String>,
    hex: Option<String>,
}

impl Message {
    fn bytes(self) -> Result<Vec<u8>, Bad> {
        match (self.text, self.hex) {
            (Some(text), None) => Ok(text.into_bytes()),
            (None, Some(hex)) => {
                unhex(&hex).ok_or_else(|| Bad::new("in.hex: expected hex digits in pairs"))
            }
            _ => Err(Bad::new("in: expected text or hex")),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Admitted<'r> {
    descriptor_id: String,
    tool: String,
    #[serde(borrow)]
    bounds: &'r RawValue,
}

fn admissions<'a>(admitted: &'a [Admitted<'_>]) -> Result<Admissions<'a>, Bad> {
    let admission = |one: &'a Admitted<'_>| {
        let bounds = Bounds::parse(one.bounds.get()).map_err(Bad::new)?;
        Ok(Admission::new(&one.descriptor_id, &one.tool, bounds))
    };
    Ok(Table::new(admitted.iter().map(admission).collect::<Result<_, Bad>>()?))
}

pub(super) fn bounds(input: Input<'_>) -> Result<Value, Bad> {
    let (admitted, echo) = (input.text("admitted")?, input.text("echo")?);
    // What is no object is compared as a member of one.
    let wrap = |text: &str| format!("{{\"value\":{text}\n}}");
    let (admitted, echo) = if admitted.trim_start().starts_with('{') {
        (admitted.to_owned(), if is_object(echo) { echo.to_owned() } else { wrap(echo) })
    } else {
        (wrap(admitted), wrap(echo))
    };
    Ok(match (Bounds::parse(&admitted), Object::parse(&echo)) {
        (Err(BoundsError { fault: BoundsFault::ExponentTooLong, .. }), _) | (_, Err(_)) => {
            json!({ "error": Refusal::MalformedCall.as_str() })
        }
        (Err(_), _) => json!({ "error": "inadmissible" }),
        (Ok(bounds), Ok(echo)) => match bounds.check(echo) {
            Err(Mismatch::ExponentTooLong { .. }) => {
                json!({ "error": Refusal::MalformedCall.as_str() })
            }
            checked => json!({ "equal": checked.is_ok() }),
        },
    })
}

fn is_object(text: &str) -> bool {
    text.trim_start().starts_with('{')
}

#[derive(Deserialize)]
struct ParseCall<'r> {
    #[serde(flatten)]
    message: Message,
    #[serde(borrow)]
    admitted: &'r RawValue,
    id_size: Option<usize>,
}

fn list<'r>(raw: &'r RawValue) -> Result<Vec<Admitted<'r>>, Bad> {
    serde_json::from_str(raw.get()).map_err(|error| Bad::new(format_args!("in.admitted: {error}")))
}

pub(super) fn call(input: Input<'_>) -> Result<Value, Bad> {
    let asked: ParseCall<'_> = read(&input)?;
    let admitted = list(asked.admitted)?;
    let admissions = admissions(&admitted)?;
    let message = asked.message.bytes()?;
    let id_size = asked.id_size.unwrap_or(HOST_ID);
    Ok(match admission::check(&message, id_size, &admissions) {
        Ok(_) => json!({ "ok": true }),
        Err(error) => refused(error.refusal(), &why(&error)),
    })
}

/// What is wrong, without the word in front.
fn why(error: &CallError) -> String {
    let text = error.to_string();
    text.split_once(": ").map_or(text.clone(), |(_, why)| why.to_owned())
}

fn refused(refusal: Refusal, why: &str) -> Value {
    json!({ "ok": false, "refused": refusal.as_str(), "why": why })
}

pub(super) fn answer(input: Input<'_>) -> Result<Value, Bad> {
    let message = read::<Message>(&input)?.bytes()?;
    Ok(match Answer::parse(&message) {
        Ok(_) => json!({ "ok": true }),
        Err(error) => refused(error.refusal, &why(&CallError::Envelope(error))),
    })
}

/// How an executor ends.
#[derive(Deserialize)]
struct Ending<'r> {
    #[serde(borrow)]
    observed: Option<&'r RawValue>,
    refused: Option<String>,
    why: Option<String>,
    throws: Option<Value>,
    lost: Option<Value>,
}

type Admissions<'a> = Table<'a, Vec<Admission<'a>>>;
type OurDoor<'a> = Door<Vec<door::Slot<MOST_ID>>, Admissions<'a>, MOST_ID>;

fn our_door(slots: usize, id_size: usize, admissions: Admissions<'_>) -> Result<OurDoor<'_>, Bad> {
    if slots > MOST_SLOTS || id_size > MOST_ID {
        return Err(Bad::new("in: expected fewer slots, or shorter ids"));
    }
    Ok(Door::new(vec![door::Slot::EMPTY; slots], admissions).with_id_size(id_size))
}

fn finish(door: &mut OurDoor<'_>, ticket: Ticket, ending: &Ending<'_>) -> Result<Value, Bad> {
    let mut out = vec![0; 2 * MAX_MESSAGE];
    let why = ending.why.as_deref().unwrap_or_default();
    let reply = if let Some(observed) = ending.observed {
        match Object::parse(observed.get()) {
            Ok(observed) => door.answer(ticket, Outcome::Observed(observed), &mut out),
            Err(_) => door.threw(ticket, "the executor observed no object", &mut out),
        }
    } else if let Some(rule) = &ending.refused {
        let outcome = Outcome::Refused { refused: Text::plain(rule), why: Text::plain(why) };
        door.answer(ticket, outcome, &mut out)
    } else if let Some(throws) = &ending.throws {
        door.threw(ticket, throws.as_str().unwrap_or("the executor failed"), &mut out)
    } else if ending.lost.is_some() {
        door.lost(ticket, &mut out)
    } else {
        return Err(Bad::new("expected observed, refused, throws or lost"));
    };
    parsed(reply.map_err(Bad::new)?)
}

fn parsed(reply: &[u8]) -> Result<Value, Bad> {
    serde_json::from_slice(reply).map_err(Bad::new)
}

/// A reply in one word: that it is one, or what was refused.
fn word(reply: &Value) -> Value {
    if reply["ok"] == true { "ok".into() } else { reply["refused"].clone() }
}

#[derive(Deserialize)]
struct Receive<'r> {
    #[serde(flatten)]
    message: Message,
    #[serde(borrow)]
    admitted: &'r RawValue,
    #[serde(borrow)]
    executor: &'r RawValue,
}

pub(super) fn receive(input: Input<'_>) -> Result<Value, Bad> {
    let asked: Receive<'_> = read(&input)?;
    let admitted = list(asked.admitted)?;
    let mut door = our_door(1, HOST_ID, admissions(&admitted)?)?;
    let message = asked.message.bytes()?;
    let (reply, ran) = match door.feed(&message) {
        Received::Run(ticket, _) => {
            let ending = serde_json::from_str(asked.executor.get())
                .map_err(|error| Bad::new(format_args!("in.executor: {error}")))?;
            (Some(finish(&mut door, ticket, &ending)?), true)
        }
        Received::Refuse(refused) => (Some(refusal(refused)?), false),
        Received::Ignored(_) => (None, false),
    };
    let word = reply.as_ref().map(word);
    let id = reply.as_ref().map(|reply| reply["callId"].clone());
    Ok(json!({ "reply": reply, "ran": ran, "word": word, "callId": id }))
}

fn refusal(refused: door::Refused<'_>) -> Result<Value, Bad> {
    let mut out = vec![0; 6 * MOST_ID + 256];
    parsed(refused.write(&mut out).map_err(Bad::new)?)
}

#[derive(Deserialize)]
struct DoorScript<'r> {
    slots: Option<usize>,
    id_size: Option<usize>,
    #[serde(borrow)]
    admitted: Vec<Admitted<'r>>,
    #[serde(borrow)]
    steps: Vec<&'r RawValue>,
}

#[derive(Deserialize)]
struct DoorStep {
    receive: Option<String>,
    finish: Option<String>,
}

pub(super) fn door(input: Input<'_>) -> Result<Value, Bad> {
    let script: DoorScript<'_> = read(&input)?;
    let slots = script.slots.unwrap_or(8);
    let mut door =
        our_door(slots, script.id_size.unwrap_or(HOST_ID), admissions(&script.admitted)?)?;
    let mut running: HashMap<String, Ticket> = HashMap::new();
    let (mut replies, mut ran) = (Vec::new(), Vec::new());
    for raw in script.steps {
        let bad = |error| Bad::new(format_args!("in.steps: {error}"));
        let step: DoorStep = serde_json::from_str(raw.get()).map_err(bad)?;
        match (step.receive, step.finish) {
            (Some(text), None) => match door.feed(text.as_bytes()) {
                Received::Run(ticket, call) => {
                    ran.push(call.call_id.to_string());
                    running.insert(call.call_id.to_string(), ticket);
                }
                Received::Refuse(refused) => replies.push(refusal(refused)?),
                Received::Ignored(_) => {}
            },
            (None, Some(id)) => {
                let ending: Ending<'_> = serde_json::from_str(raw.get()).map_err(bad)?;
                let ticket = running.remove(&id);
                let ticket =
                    ticket.ok_or_else(|| Bad::new("in.steps.finish: no such call runs"))?;
                replies.push(finish(&mut door, ticket, &ending)?);
            }
            _ => return Err(Bad::new("in.steps: expected receive or finish")),
        }
    }
    let words: Vec<Value> =
        replies.iter().map(|reply| json!([reply["callId"], word(reply)])).collect();
    Ok(json!({ "replies": replies, "silent": door.ignored(), "ran": ran, "words": words }))
}

#[derive(Deserialize)]
struct BrokerScript<'r> {
    peer: String,
    patience: Option<u64>,
    capacity: Option<usize>,
    #[serde(borrow)]
    steps: Vec<BrokerStep<'r>>,
}

#[derive(Deserialize)]
struct BrokerStep<'r> {
    at: u64,
    #[serde(borrow)]
    ask: Option<Ask<'r>>,
    deliver: Option<String>,
    from: Option<usize>,
    link: Option<String>,
    send_fails: Option<String>,
    cancel: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Ask<'r> {
    name: String,
    tool: Cow<'r, str>,
    descriptor_id: Cow<'r, str>,
    #[serde(borrow)]
    args: Option<&'r RawValue>,
    #[serde(borrow)]
    bounds_echo: Option<&'r RawValue>,
    patience: Option<u64>,
}

/// A broker with the names of its calls.
struct Script {
    broker: Broker<Vec<broker::Slot>>,
    names: HashMap<CallKey, String>,
    ids: HashMap<String, (CallKey, String)>,
    links: Vec<Link>,
    sent: usize,
    settled: Vec<Value>,
    ignored: Vec<&'static str>,
}

impl Script {
    fn poll(&mut self, now: Instant) {
        while let Some(settled) = self.broker.poll(now) {
            self.settle(settled);
        }
    }

    fn settle(&mut self, Settled { call, refusal, at }: Settled) {
        let name = self.names.remove(&call);
        let at = at.as_micros() / 1000;
        self.settled.push(json!({
            "name": name, "at": at, "ok": false, "refused": refusal.as_str()
        }));
    }

    fn ask<'r>(&mut self, at: u64, ask: &Ask<'r>) -> Result<(), Bad> {
        let object = |raw: Option<&'r RawValue>| {
            Object::parse(raw.map_or("{}", RawValue::get)).map_err(Bad::new)
        };
        let request = Request {
            tool: &ask.tool,
            descriptor_id: &ask.descriptor_id,
            args: object(ask.args)?,
            bounds_echo: object(ask.bounds_echo)?,
            patience: ask.patience.map(Duration::from_millis),
        };
        let mut out = vec![0; MAX_MESSAGE];
        match self.broker.ask(Instant::from_millis(at), request, &mut out) {
            Ok(asked) => {
                self.sent += 1;
                let id = self.broker.call_id(asked.call).to_string();
                self.names.insert(asked.call, ask.name.clone());
                self.ids.insert(ask.name.clone(), (asked.call, id));
            }
            Err(AskError::Refused(refusal)) => self.settled.push(json!({
                "name": ask.name, "at": at, "ok": false, "refused": refusal.as_str()
            })),
            Err(error) => return Err(Bad::new(error)),
        }
        Ok(())
    }

    fn deliver(&mut self, at: u64, text: &str, from: Option<usize>) -> Result<(), Bad> {
        let from = from.map_or(self.links.last(), |from| self.links.get(from.checked_sub(1)?));
        let from = *from.ok_or_else(|| Bad::new("in.steps.from: no such link"))?;
        let mut text = text.to_owned();
        for (name, (_, id)) in &self.ids {
            text = text.replace(&format!("${{{name}}}"), id);
        }
        match self.broker.feed(Instant::from_millis(at), from, text.as_bytes()) {
            Event::Answered { call, outcome } => {
                let name = self.names.remove(&call);
                self.settled.push(match outcome {
                    Outcome::Observed(_) => json!({ "name": name, "at": at, "ok": true }),
                    Outcome::Refused { refused, .. } => json!({
                        "name": name, "at": at, "ok": false, "refused": refused.to_string()
                    }),
                });
            }
            Event::Ignored(ignored) => self.ignored.push(ignored.as_str()),
        }
        Ok(())
    }

    fn call(&self, name: &str) -> Result<CallKey, Bad> {
        let call = self.ids.get(name).map(|(call, _)| *call);
        call.ok_or_else(|| Bad::new(format_args!("in.steps: no call {name} was asked")))
    }
}

pub(super) fn broker(input: Input<'_>) -> Result<Value, Bad> {
    let script: BrokerScript<'_> = read(&input)?;
    let peer = match &*script.peer {
        "page" => Peer::Page,
        "machine" => Peer::Machine,
        _ => return Err(Bad::new("in.peer: expected page or machine")),
    };
    let capacity = script.capacity.unwrap_or(64);
    if capacity > MOST_SLOTS {
        return Err(Bad::new(format_args!("in.capacity: expected at most {MOST_SLOTS}")));
    }
    let mut broker = Broker::new(vec![broker::Slot::EMPTY; capacity], peer, 0x0123_4567_89ab_cdef);
    if let Some(patience) = script.patience {
        broker = broker.with_patience(Duration::from_millis(patience));
    }
    let mut run = Script {
        broker,
        names: HashMap::new(),
        ids: HashMap::new(),
        links: Vec::new(),
        sent: 0,
        settled: Vec::new(),
        ignored: Vec::new(),
    };
    for step in script.steps {
        let now = Instant::from_millis(step.at);
        run.poll(now);
        if let Some(ask) = &step.ask {
            run.ask(step.at, ask)?;
        }
        if let Some(text) = &step.deliver {
            run.deliver(step.at, text, step.from)?;
        }
        match step.link.as_deref() {
            None => {}
            Some("up") => run.links.push(run.broker.link_up(now)),
            Some("down") => {
                if let Some(link) = run.broker.link() {
                    run.broker.link_down(now, link);
                }
            }
            Some(_) => return Err(Bad::new("in.steps.link: expected up or down")),
        }
        if let Some(name) = &step.send_fails {
            let call = run.call(name)?;
            if let Some(settled) = run.broker.send_failed(now, call) {
                run.settle(settled);
            }
        }
        if let Some(name) = &step.cancel {
            let call = run.call(name)?;
            run.broker.cancel(call);
            run.names.remove(&call);
        }
        run.poll(now);
    }
    Ok(json!({
        "sent": run.sent,
        "settled": run.settled,
        "ignored": run.ignored,
        "waiting": run.broker.waiting(),
    }))
}

pub(super) fn origin(input: Input<'_>) -> Result<Value, Bad> {
    let port = u16::try_from(input.count("port", 0)?)
        .map_err(|_| Bad::new("in.port: expected at most 65535"))?;
    Ok(json!({ "local": is_local_origin(input.text("origin")?.as_bytes(), port) }))
}

#[derive(Deserialize)]
struct HelloScript {
    bound: Option<u32>,
    #[serde(default)]
    pairings: Vec<String>,
    #[serde(default)]
    revoked: Vec<String>,
    #[serde(default)]
    unreadable: bool,
    session: Option<String>,
    #[serde(default)]
    headers: Vec<(String, String)>,
    port: u16,
    events: Vec<HelloEvent>,
}

#[derive(Deserialize)]
struct HelloEvent {
    at: u64,
    text: Option<String>,
    binary: Option<String>,
}

impl HelloScript {
    fn standing(&self, bearer: BearerDigest) -> Standing {
        let holds = |list: &[String]| list.iter().any(|one| BearerDigest::of(one) == bearer);
        match () {
            () if self.unreadable => Standing::Unreadable,
            () if holds(&self.revoked) => Standing::Revoked,
            () if holds(&self.pairings) => Standing::Known,
            () => Standing::Unknown,
        }
    }
}

pub(super) fn hello(input: Input<'_>) -> Result<Value, Bad> {
    let script: HelloScript = read(&input)?;
    let bound = script.bound.map_or(Ok(HelloBound::default()), HelloBound::from_millis);
    let bound = bound.map_err(|error| Bad::new(format_args!("in.bound: {error}")))?;
    let headers =
        script.headers.iter().map(|(name, value)| Header { name, value: value.as_bytes() });
    let session = script.session.as_deref().map_or(Session::Off, Session::On);
    let admitted =
        |by: &str, at: u64| json!({ "admitted": by, "at": at, "refused": null, "close": null });
    let hello = match enter(Instant::ZERO, headers, script.port, session, bound) {
        Entry::Page => return Ok(admitted("page", 0)),
        Entry::Hello(hello) => hello,
    };
    let refused = |Refused(refusal), at: u64| {
        let close = json!({ "code": CLOSE_REFUSED, "reason": refusal.as_str() });
        json!({ "admitted": null, "at": at, "refused": refusal.as_str(), "close": close })
    };
    // The first message decides, or the time that it takes.
    let due = hello.deadline().as_micros() / 1000;
    let Some(event) = script.events.first().filter(|event| event.at < due) else {
        let outcome = hello.poll(hello.deadline());
        return Ok(outcome.map_or(Value::Null, |outcome| refused(outcome, due)));
    };
    let message = match (&event.text, &event.binary) {
        (Some(text), None) => text.clone().into_bytes(),
        (None, Some(hex)) => unhex(hex).ok_or_else(|| Bad::new("in.events.binary: no hex"))?,
        _ => return Err(Bad::new("in.events: expected text or binary")),
    };
    let outcome = hello.feed(Instant::from_millis(event.at), &message);
    let outcome = outcome.and_then(|presented| {
        let standing = script.standing(presented.bearer().digest());
        presented.settle(standing)
    });
    Ok(match outcome {
        Ok(()) => admitted("environment", event.at),
        Err(outcome) => refused(outcome, event.at),
    })
}
