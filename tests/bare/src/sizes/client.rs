//! The client's end of a hijacked session.

#![no_std]
#![no_main]

mod board;
#[allow(dead_code, reason = "each program uses one end or both")]
mod exec;

use core::hint::black_box;

use cortex_m_rt::entry;
use exec::Client;

#[entry]
fn main() -> ! {
    static mut CLIENT: Client<512> = Client::new();
    static mut WINDOW: [u8; 512] = [0; 512];
    static mut OUT: [u8; 512] = [0; 512];
    board::measure(512 + WINDOW.len() + OUT.len(), |wire| {
        black_box(&mut *CLIENT).run(board::receive(wire.answer, WINDOW), OUT)
    })
}
