//! One end of the serial line with four streams: what is beside the caller's buffers, the packet
//! that is put together and the outbox.

#![no_std]
#![no_main]

mod board;

use core::hint::black_box;

use cortex_m_rt::entry;
use triwire::line::{Event, Line, MAX_WIRE, Packet, Protocol, Role, Slot};
use triwire::time::{Instant, UnixMillis};

#[entry]
fn main() -> ! {
    static mut SLOTS: [Slot; 4] = [Slot::EMPTY; 4];
    static mut PACKET: Packet = Packet::new();
    static mut OUT: [u8; MAX_WIRE] = [0; MAX_WIRE];
    board::measure(size_of::<Packet>() + OUT.len(), |wire| {
        let mut line = Line::new(Role::Device, black_box(3), 512, SLOTS);
        let line = black_box(&mut line);
        let (packet, mut input) = (black_box(PACKET), wire.line);
        let (now, wall) = (black_box(Instant::from_millis(5)), UnixMillis::new(0));
        let mut closed = 0;
        loop {
            while let Some(event) = line.feed(now, &mut input, packet) {
                match event {
                    Event::Data { stream, bytes } => {
                        let len = bytes.len();
                        let mut rest = black_box(bytes);
                        black_box(line.data(now, stream, &mut rest, OUT).is_ok());
                        line.consumed(now, stream, len);
                    }
                    // What it may send is due first.
                    Event::Opened { .. } => break,
                    Event::Closed { .. } => closed += 1,
                    other => {
                        black_box(&other);
                    }
                }
            }
            black_box(line.poll(now).is_some());
            while let Ok(Some(due)) = line.write_due(now, wall, OUT) {
                black_box(due);
            }
            if closed == 1
                && let Ok((stream, packet)) = line.open(now, Protocol::Http, OUT)
            {
                black_box(packet);
                line.close(now, stream);
                black_box((line.credit(stream), line.is_up(), line.broken()));
            }
            if black_box(line.deadline()).is_none() || input.is_empty() {
                return black_box(closed == 1);
            }
        }
    })
}
