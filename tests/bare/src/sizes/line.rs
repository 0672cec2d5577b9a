//! One end of the serial line with four streams: what is beside the caller's buffers, the packet
//! that is put together and the outbox.

#![no_std]
#![no_main]

mod board;

use core::hint::black_box;
use core::mem::MaybeUninit;

use cortex_m_rt::entry;
use triwire::line::{Event, Line, MAX_WIRE, Packet, Protocol, Role, Slot};
use triwire::time::{Instant, UnixMillis};

/// A gateway's reset, its stream 0, five bytes on it, their total, and the close.
const WIRE: &[u8] = b"\
\x01\x01\x02\x01\x01\x01\x01\x02\x01\x01\x06\x01\xa3\x18\x5cP\x03\xc0*\0\
\x02\x01\x01\x02\x01\x03\x88l\0\
\x02\x02\x01\x08hello}\xfa\0\
\x02\x04\x01\x01\x01\x02\x05\x01\x02\x01\x03\x5cj\0\
\x02\x03\x03H\x5c\0";

#[entry]
fn main() -> ! {
    static mut LINE: MaybeUninit<Line<[Slot; 4]>> = MaybeUninit::uninit();
    static mut PACKET: Packet = Packet::new();
    static mut OUT: [u8; MAX_WIRE] = [0; MAX_WIRE];
    board::measure(size_of::<Packet>() + OUT.len(), |_| {
        // A device learns at its start how often it has started.
        let line = LINE.write(Line::new(Role::Device, black_box(3), 512, [Slot::EMPTY; 4]));
        let (line, packet, mut input) = (black_box(line), black_box(PACKET), black_box(WIRE));
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
                    Event::Closed { .. } => closed += 1,
                    other => {
                        black_box(other);
                    }
                }
            }
            black_box(line.poll(now));
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
