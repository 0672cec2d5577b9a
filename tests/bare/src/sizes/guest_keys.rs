//! The guest's end of a hijacked session, with keys.

#![no_std]
#![no_main]

mod board;
#[allow(dead_code, reason = "each program uses one end or both")]
mod exec;

use core::hint::black_box;

use cortex_m_rt::entry;
use exec::{Guest, Sentences};
use triwire::exec::head::{Access, KeyDigest};

#[entry]
fn main() -> ! {
    static mut GUEST: Guest = Guest::new();
    static mut WINDOW: [u8; 512] = [0; 512];
    static mut OUT: [u8; 512] = [0; 512];
    board::measure(WINDOW.len() + OUT.len(), |wire| {
        let keys = [KeyDigest::of(b"0123456789abcdef0123456789abcdef")];
        black_box(&mut *GUEST).serve(
            board::receive(wire.request, WINDOW),
            OUT,
            Access::Keys(&keys),
            &Sentences,
        )
    })
}
