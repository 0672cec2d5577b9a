//! Two ends of a serial line in memory, and a wire between them that loses one packet.

use core::mem;
use core::time::Duration;

use triwire::line::{Disconnect, Event, Line, MAX_WIRE, Packet, Protocol, Role, Slot, Stream};
use triwire::time::{Instant, UnixMillis};

/// What the gateway sends the device, of which credit lets a part out at once.
const LENGTH: usize = 1_000;
const WINDOW: u16 = 300;

/// What stands at a place of it.
const fn byte_at(at: usize) -> u8 {
    (at % 251) as u8
}

/// The wire, which drops the packet of one number, either way.
struct Wire {
    packets: usize,
    lost: usize,
}

/// One end, and what its application knows of the stream.
struct End {
    line: Line<[Slot; 2]>,
    packet: Packet,
    stream: Option<Stream>,
    /// Bytes sent or received on it.
    bytes: usize,
    closed: bool,
    lost: Option<Disconnect>,
}

impl End {
    const fn new(role: Role) -> Self {
        Self {
            line: Line::new(role, 1, WINDOW, [Slot::EMPTY; 2]),
            packet: Packet::new(),
            stream: None,
            bytes: 0,
            closed: false,
            lost: None,
        }
    }

    /// Takes what came over the wire; the device checks each byte's place.
    fn hear(&mut self, now: Instant, mut wire: &[u8]) {
        while let Some(event) = self.line.feed(now, &mut wire, &mut self.packet) {
            match event {
                Event::Opened { stream, .. } => {
                    (self.stream, self.bytes, self.closed) = (Some(stream), 0, false);
                }
                Event::Data { stream, bytes } => {
                    assert!(self.stream == Some(stream));
                    for byte in bytes {
                        assert!(*byte == byte_at(self.bytes), "a byte out of place");
                        self.bytes += 1;
                    }
                    self.line.consumed(now, stream, bytes.len());
                }
                Event::Closed { .. } => self.end(None),
                Event::Disconnected { why, .. } => self.end(Some(why)),
                _ => {}
            }
        }
    }

    fn end(&mut self, lost: Option<Disconnect>) {
        (self.stream, self.closed, self.lost) = (None, lost.is_none(), lost);
    }
}

impl Wire {
    /// Carries packets from one end to the other.
    fn carry(&mut self, now: Instant, packets: &[u8], to: &mut End) {
        for packet in packets.split_inclusive(|byte| *byte == 0) {
            if self.packets != self.lost {
                to.hear(now, packet);
            }
            self.packets += 1;
        }
    }
}

/// What came of one run.
#[derive(Debug)]
pub struct Ran {
    /// Packets that were sent, of both ends.
    pub packets: usize,
    /// Why the first stream was lost, if it was.
    pub lost: Option<Disconnect>,
    /// Streams until one arrived whole and both ends had closed it.
    pub streams: usize,
}

/// Sends one text over streams until it arrives whole, with the packet of the number `lost` gone.
pub fn run(lost: usize) -> Ran {
    let mut wire = Wire { packets: 0, lost };
    let (mut gateway, mut device) = (End::new(Role::Gateway), End::new(Role::Device));
    let (mut now, mut out) = (Instant::ZERO, [0; MAX_WIRE + 20]);
    let (mut first_lost, mut streams) = (None, 0);
    for _turn in 0..200 {
        for gateways in [true, false] {
            let (from, to) =
                if gateways { (&mut gateway, &mut device) } else { (&mut device, &mut gateway) };
            while let Some(event) = from.line.poll(now) {
                if let Event::Disconnected { why, .. } = event {
                    from.end(Some(why));
                }
            }
            while let Some(due) = from.line.write_due(now, UnixMillis::new(1), &mut out).unwrap() {
                wire.carry(now, due, to);
            }
        }

        if let Some(why) = mem::take(&mut gateway.lost) {
            first_lost = first_lost.or(Some(why));
        }
        // The device has all, and closes; the gateway hears of it.
        if let Some(stream) = device.stream
            && device.bytes == LENGTH
        {
            device.line.close(now, stream);
            device.stream = None;
        }
        if gateway.closed {
            assert!(device.bytes == LENGTH, "closed, and not whole");
            return Ran { packets: wire.packets, lost: first_lost, streams };
        }
        match gateway.stream {
            None if gateway.line.is_up() => {
                let (stream, packet) = gateway.line.open(now, Protocol::Http, &mut out).unwrap();
                (gateway.stream, gateway.bytes) = (Some(stream), 0);
                streams += 1;
                wire.carry(now, packet, &mut device);
            }
            None => {}
            Some(stream) => {
                let mut text = [0; LENGTH];
                for (at, byte) in text.iter_mut().enumerate() {
                    *byte = byte_at(at);
                }
                let mut rest = &text[gateway.bytes..];
                while let Ok(packet) = gateway.line.data(now, stream, &mut rest, &mut out) {
                    if packet.is_empty() {
                        break;
                    }
                    wire.carry(now, packet, &mut device);
                }
                gateway.bytes = LENGTH - rest.len();
            }
        }
        now = now.saturating_add(Duration::from_millis(50));
    }
    panic!("no end in 10 s with packet {lost} lost");
}
