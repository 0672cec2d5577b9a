//! An executor's end of a channel on a stream of bytes: lines, and a door of two calls.

#![no_std]
#![no_main]

mod board;

use core::hint::black_box;

use cortex_m_rt::entry;
use triwire::buffer::Inbox;
use triwire::channel::admission::{Admission, Table};
use triwire::channel::bounds::Bounds;
use triwire::channel::door::{Door, Received, Slot};
use triwire::channel::envelope::{Object, Outcome};
use triwire::channel::lines::{self, Lines};

const CALL: &[u8] =
    b"{\"v\":1,\"callId\":\"a\",\"tool\":\"read\",\"descriptorId\":\"board\",\"args\":{},\
    \"boundsEcho\":{\"maxRequests\":1e2,\"registers\":[0,1]}}\n";

#[entry]
fn main() -> ! {
    static mut CALLS: [u8; 256] = [0; 256];
    static mut REPLY: [u8; 768] = [0; 768];
    board::measure(CALLS.len() + REPLY.len(), |_| run(CALLS, REPLY).is_some())
}

fn run(calls: &mut [u8], reply: &mut [u8]) -> Option<()> {
    let bounds = Bounds::parse(black_box("{\"registers\":[0,1],\"maxRequests\":100}")).ok()?;
    let table = Table::new(black_box([Admission::new("board", "read", bounds)]));
    let mut door = Door::new(black_box([Slot::<64>::EMPTY; 2]), table);
    let mut lines = Lines::new(calls.len().checked_sub(1)?);
    let mut inbox = Inbox::new(calls);
    let call = black_box(CALL);
    inbox.space().get_mut(..call.len())?.copy_from_slice(call);
    inbox.filled(call.len());
    let mut window = inbox.lend()?;
    let room = lines::room(reply);
    let len = match door.feed(lines.feed(&mut window.rest)?) {
        Received::Run(ticket, call) => {
            black_box(call);
            if black_box(false) {
                door.threw(ticket, "the sensor does not answer", room).ok()?
            } else {
                door.answer(ticket, Outcome::Observed(Object::EMPTY), room).ok()?
            }
        }
        Received::Refuse(refused) => refused.write(room).ok()?,
        Received::Ignored(_) => return None,
    }
    .len();
    black_box(lines::end(reply, len).ok()?);
    door.link_down();
    Some(())
}
