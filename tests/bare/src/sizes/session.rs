//! The guest's end of a session without HTTP: request, frames, result.

#![no_std]
#![no_main]

mod board;
#[allow(dead_code, reason = "each program uses one end or both")]
mod exec;

use core::hint::black_box;

use cortex_m_rt::entry;
use exec::{Codes, Guest};

#[entry]
fn main() -> ! {
    static mut GUEST: Guest = Guest::new();
    static mut OUT: [u8; 512] = [0; 512];
    board::measure(OUT.len(), |wire| {
        black_box(&mut *GUEST).session(wire.record, wire.frames, OUT, &Codes).unwrap_or_default()
    })
}
