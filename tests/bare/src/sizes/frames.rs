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
        let mut input = wire.frames;
        while let Ok(Some(piece)) = DECODER.feed(&mut input) {
            black_box(piece);
        }
        let head = frame::head(black_box(Kind::Stdout), black_box(5));
        black_box(head).is_ok() && DECODER.finish().is_ok()
    })
}
