//! Both ends, with keys.

#![no_std]
#![no_main]

mod board;
#[allow(dead_code, reason = "each program uses one end or both")]
mod exec;

use core::hint::black_box;

use cortex_m_rt::entry;
use exec::{Client, Guest, Sentences};
use triwire::exec::head::{Access, KeyDigest};

#[entry]
fn main() -> ! {
    static mut GUEST: Guest = Guest::new();
    static mut CLIENT: Client<512> = Client::new();
    static mut WINDOW: [u8; 512] = [0; 512];
    static mut OUT: [u8; 512] = [0; 512];
    board::measure(512 + WINDOW.len() + OUT.len(), |wire| {
        let keys = [KeyDigest::of(b"0123456789abcdef0123456789abcdef")];
        black_box(&mut *GUEST).serve(
            board::receive(wire.request, WINDOW),
            OUT,
            Access::Keys(&keys),
            &Sentences,
        ) && black_box(&mut *CLIENT).run(board::receive(wire.answer, WINDOW), OUT)
    })
}
