//! The frame codec both ways: one decoder, one header.

#![no_std]
#![no_main]

mod board;

use core::hint::black_box;

use cortex_m_rt::entry;
use triwire::exec::frame::{self, Decoder, Direction, Kind};

#[entry]
fn main() -> ! {
    static mut DECODER: Decoder = Decoder::new(Direction::HostToGuest);
    board::measure(0, |wire| {
        // Somewhere in memory, as in a program that has more than one.
        let decoder = black_box(DECODER);
        let mut input = wire.frames;
        while let Ok(Some(piece)) = decoder.feed(&mut input) {
            black_box(piece);
        }
        let head = frame::head(black_box(Kind::Stdout), black_box(5));
        black_box(head).is_ok() && decoder.finish().is_ok()
    })
}
