//! A call: its envelope, its admission, its bounds.

#![no_std]
#![no_main]

mod board;

use core::hint::black_box;

use cortex_m_rt::entry;
use triwire::channel::admission::{self, Admission, Table};
use triwire::channel::bounds::Bounds;

/// A call whose bounds stand in another order than admitted.
const CALL: &[u8] = b"{\"v\":1,\"callId\":\"rt_1\",\"tool\":\"read\",\"descriptorId\":\"board\",\
\"args\":{\"register\":1},\"boundsEcho\":{\"maxRequests\":1e2,\"registers\":[0,1]}}";

#[entry]
fn main() -> ! {
    board::measure(0, |_| {
        let bounds = Bounds::parse(black_box("{\"registers\":[0,1],\"maxRequests\":100}"));
        let Ok(bounds) = bounds else { return false };
        let table = Table::new(black_box([Admission::new("board", "read", bounds)]));
        admission::check(black_box(CALL), black_box(64), &table).is_ok()
    })
}
