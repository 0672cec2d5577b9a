//! The program that the others are compared with.

#![no_std]
#![no_main]

mod board;

use core::hint::black_box;

use cortex_m_rt::entry;

#[entry]
fn main() -> ! {
    board::measure(0, |wire| black_box(wire.request.len()) > 0)
}
