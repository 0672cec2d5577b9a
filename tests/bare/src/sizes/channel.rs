//! Both ends of a channel: a broker of eight calls, a door of four.

#![no_std]
#![no_main]

mod board;

use core::hint::black_box;

use cortex_m_rt::entry;
use triwire::channel::admission::{Admission, Table};
use triwire::channel::bounds::Bounds;
use triwire::channel::broker::{self, Broker, Event, Request};
use triwire::channel::door::{self, Door, Received};
use triwire::channel::envelope::{Object, Outcome};
use triwire::channel::refusal::Peer;
use triwire::time::Instant;

#[entry]
fn main() -> ! {
    static mut CALL: [u8; 256] = [0; 256];
    static mut REPLY: [u8; 256] = [0; 256];
    board::measure(CALL.len() + REPLY.len(), |_| run(CALL, REPLY).is_some())
}

fn run(call: &mut [u8], reply: &mut [u8]) -> Option<()> {
    let now = black_box(Instant::ZERO);
    let bounds = Bounds::parse(black_box("{\"registers\":[0,1],\"maxRequests\":100}")).ok()?;
    let table = Table::new(black_box([Admission::new("board", "read", bounds)]));
    let mut door = Door::new(black_box([door::Slot::<64>::EMPTY; 4]), table);
    let slots = black_box([broker::Slot::EMPTY; 8]);
    let mut broker = Broker::new(slots, black_box(Peer::Machine), black_box(7));
    let link = broker.link_up(now);
    let echo = Object::parse(black_box("{\"maxRequests\":1e2,\"registers\":[0,1]}")).ok()?;
    let request = Request::new("board", "read", Object::EMPTY, echo);
    let asked = broker.ask(now, request, call).ok()?;
    let reply = match door.feed(asked.message) {
        Received::Run(ticket, call) => {
            black_box(call);
            if black_box(false) {
                door.lost(ticket, reply).ok()?
            } else {
                door.answer(ticket, Outcome::Observed(Object::EMPTY), reply).ok()?
            }
        }
        Received::Refuse(refused) => refused.write(reply).ok()?,
        Received::Ignored(_) => return None,
    };
    let settled = matches!(broker.feed(now, link, reply), Event::Answered { .. });
    broker.link_down(now, link);
    (settled && broker.poll(now).is_none() && broker.deadline().is_none()).then_some(())
}
