//! `channel`: envelopes, bounds, admissions, broker, door, hello.

use core::time::Duration;

use triwire::channel::admission::{self, Admission, Admissions, Table, ToolIndex};
use triwire::channel::bounds::Bounds;
use triwire::channel::broker::{self, AskError, Broker, Event, Request};
use triwire::channel::door::{self, AnswerError, Door, Received, Ticket};
use triwire::channel::envelope::{Answer, Call, Object, Outcome};
use triwire::channel::hello::{
    BearerDigest, Entry, HelloBound, Refused, Session, Standing, Told, enter, is_local_origin,
    write_hello,
};
use triwire::channel::lines::{self, Lines};
use triwire::channel::reconnect::Reconnect;
use triwire::channel::refusal::{Peer, Refusal};
use triwire::channel::route::{Asking, issued_bearer, write_env_key};
use triwire::exec::head::Header;
use triwire::json::Text;
use triwire::time::Instant;

use crate::json::words;
use crate::{any, bytes, done, judged, shown, text};

pub(crate) fn run() {
    envelopes();
    broker();
    door();
    hello();
    on_lines();
    other_side();
    if let Some(refusal) = Refusal::from_word(text()) {
        shown(refusal);
    }
}

fn object() -> Object<'static> {
    any(judged(Object::parse(text())).unwrap_or(Object::EMPTY))
}

fn outcome(outcome: Outcome<'_>) {
    match outcome {
        Outcome::Observed(observed) => done((observed.as_str(), observed.reader().value().is_ok())),
        Outcome::Refused { refused, why } => {
            words(refused);
            words(why);
        }
    }
}

fn table() -> Table<'static, [Admission<'static>; 2]> {
    let bounds = judged(Bounds::parse(text())).unwrap_or(Bounds::EMPTY);
    done((bounds.as_str(), bounds.max_requests(), judged(bounds.check(object()))));
    done(bounds.echo());
    Table::new(any([Admission::new(text(), text(), bounds); 2]))
}

fn envelopes() {
    if let Some(call) = judged(Call::parse(bytes(), any(1))) {
        words(call.call_id);
        done(judged(call.write(any(&mut [0; 64]))));
    }
    if let Some(answer) = judged(Answer::parse(bytes())) {
        outcome(answer.outcome);
        done(judged(answer.write(any(&mut [0; 64]))));
    }
    let mut table = table();
    if let Err(error) = admission::check(bytes(), any(1), &table) {
        done(error.refusal());
        shown(error);
    }
    done(judged(table.charge(any(ToolIndex(1)))));
    done(table.admissions().first().map(Admission::used));
}

fn broker() {
    let peer = any(Peer::Page);
    let mut broker = Broker::new(any([broker::Slot::EMPTY; 4]), peer, any(1))
        .with_patience(any(Duration::ZERO))
        .with_limit(any(1));
    let mut now = Instant::ZERO;
    let mut link = broker.link_up(now);
    let mut call = None;
    loop {
        now = now.saturating_add(any(Duration::ZERO));
        match any(0_u8) {
            0 => link = broker.link_up(now),
            1 => broker.link_down(now, link),
            2 => {
                let mut request = Request::new(text(), text(), object(), object());
                request.patience = any(None);
                match broker.ask(now, request, any(&mut [0; 64])) {
                    Ok(asked) => {
                        done(asked.message);
                        call = Some(asked.call);
                    }
                    Err(AskError::Refused(refusal)) => shown(refusal),
                    Err(error) => shown(error),
                }
            }
            3 => match broker.feed(now, link, bytes()) {
                Event::Answered { call, outcome: came } => {
                    done(call.index());
                    outcome(came);
                }
                Event::Ignored(ignored) => {
                    done(ignored.as_str());
                    shown(ignored);
                }
            },
            4 => done(broker.poll(now)),
            5 => done(call.map(|call| broker.send_failed(now, call))),
            6 => call.into_iter().for_each(|call| broker.cancel(call)),
            7 => call.into_iter().for_each(|call| shown(broker.call_id(call))),
            _ => break,
        }
        done((broker.deadline(), broker.connected(), broker.link()));
        done((broker.waiting(), broker.ignored()));
    }
}

fn door() {
    let mut door = Door::new(any([door::Slot::<16>::EMPTY; 4]), table())
        .with_limit(any(1))
        .with_id_size(any(1));
    let mut running: Option<Ticket> = None;
    loop {
        match door.feed(bytes()) {
            Received::Run(ticket, call) => {
                words(call.tool);
                running = Some(ticket);
            }
            Received::Refuse(refused) => {
                done(refused.reason.refusal());
                done(judged(refused.write(any(&mut [0; 64]))));
            }
            Received::Ignored(error) => shown(error),
        }
        let mut room = any([0; 64]);
        let out = any(room.as_mut_slice());
        let reply = match (any(0_u8), running.take()) {
            (0, Some(ticket)) => door.answer(ticket, Outcome::Observed(object()), out),
            (1, Some(ticket)) => {
                let (refused, why) = (Text::plain(text()), Text::plain(text()));
                door.answer(ticket, Outcome::Refused { refused, why }, out)
            }
            (2, Some(ticket)) => door.threw(ticket, text(), out),
            (3, Some(ticket)) => door.lost(ticket, out),
            (4, _) => {
                door.link_down();
                continue;
            }
            _ => break,
        };
        match reply {
            Ok(reply) => done(reply),
            Err(AnswerError::OutTooSmall { ticket, needed }) => {
                done((ticket.index(), needed));
                running = Some(ticket);
            }
            Err(error) => shown(error),
        }
        done((door.running(), door.ignored()));
        done(door.admissions().charge(any(ToolIndex(0))));
    }
}

fn on_lines() {
    let mut lines = any(Lines::new(any(1)));
    let mut input = bytes();
    while let Some(message) = lines.feed(&mut input) {
        done(message);
    }
    done((input, lines.limit(), lines.dropped()));
    lines.link_down();
    let mut out = any([0; 64]);
    let room = lines::room(any(&mut out[..])).len();
    done(room);
    done(judged(lines::end(any(&mut out[..]), any(room))));
}

fn hello() {
    done(is_local_origin(bytes(), any(1)));
    let bound = judged(HelloBound::parse(text())).unwrap_or_default();
    let headers = any(&[Header { name: "", value: b"" }][..]).iter().copied();
    let session = any(Session::On(text()));
    let Entry::Hello(hello) = enter(Instant::ZERO, headers, any(1), session, bound) else {
        return;
    };
    let now = any(hello.deadline());
    done(hello.poll(now));
    match hello.feed(now, bytes()) {
        Ok(presented) => {
            let digest = presented.bearer().digest();
            done(
                digest == BearerDigest::of(text())
                    || digest == BearerDigest::from_bytes(any([0; 32])),
            );
            if let Err(error) = presented.settle(any(Standing::Known)) {
                refused(error);
            }
        }
        Err(error) => refused(error),
    }
}

fn refused(refused: Refused) {
    done(judged(refused.write(any(&mut [0; 64]))));
    done(refused.close());
    shown(refused);
}

fn other_side() {
    let mut reconnect = Reconnect::new();
    reconnect.connected(any(Instant::ZERO));
    done(reconnect.ended(any(Instant::ZERO), any(1)));
    done(judged(write_hello(text(), any(&mut [0; 64]))));
    if let Some(told) = Told::parse(bytes()) {
        words(told.refused);
        words(told.why);
        done(told.is_final());
    }
    if let Some(asking) = judged(Asking::parse(bytes())) {
        done(judged(asking.write(any(&mut [0; 64]))));
    }
    done(judged(write_env_key(text(), any(&mut [0; 64]))));
    if let Some(bearer) = issued_bearer(bytes()) {
        words(bearer);
    }
}
