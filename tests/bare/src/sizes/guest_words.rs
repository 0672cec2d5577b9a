//! The guest's end of a hijacked session, every client admitted, every refusal in its words.

#![no_std]
#![no_main]

mod board;
#[allow(dead_code, reason = "each program uses one end or both")]
mod exec;

use core::hint::black_box;

use cortex_m_rt::entry;
use exec::{Guest, Sentences};
use triwire::exec::head::Access;

#[entry]
fn main() -> ! {
    static mut GUEST: Guest = Guest::new();
    static mut WINDOW: [u8; 512] = [0; 512];
    static mut OUT: [u8; 512] = [0; 512];
    board::measure(WINDOW.len() + OUT.len(), |wire| {
        black_box(&mut *GUEST).serve(
            board::receive(wire.request, WINDOW),
            OUT,
            Access::Open,
            &Sentences,
        )
    })
}
