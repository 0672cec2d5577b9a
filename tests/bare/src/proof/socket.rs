//! `exec::socket`: the rules of the WebSocket transport.

use core::time::Duration;

use triwire::exec::frame::{Decoder, Direction};
use triwire::exec::socket::{ClientSocket, Close, Event, Message, Reason, ServerSocket};
use triwire::time::Instant;

use crate::{any, bytes, done, shown, text};

pub(crate) fn run() {
    server();
    client();
    shown(Reason::new(text()).as_str());
    done((Close::new(any(1), text()), Close::going_away(text())));
}

fn message() -> Message<'static> {
    if any(true) { Message::Text(bytes()) } else { Message::Binary(bytes()) }
}

fn server() {
    let mut now = Instant::ZERO;
    let mut socket = ServerSocket::new(now);
    loop {
        now = now.saturating_add(any(Duration::ZERO));
        match socket.feed(now, message()) {
            Ok(Event::Request(bytes) | Event::Frames(bytes)) => done(bytes),
            Err(close) => break shown(close),
        }
        done((socket.poll(now), socket.deadline()));
    }
    done(match any(0_u8) {
        0 => socket.refuse(text()),
        1 => socket.unreachable(text()),
        2 => socket.frame_fault(text()),
        3 => socket.finished(),
        _ => socket.close(Close::protocol(text())),
    });
}

fn client() {
    let mut socket = ClientSocket::new();
    while let Ok(bytes) = socket.feed(message()) {
        done(bytes);
    }
    socket.closed(Close::new(any(1), text()));
    let mut stream = any(Decoder::new(Direction::GuestToHost));
    if let Err(lost) = socket.finish(stream.finish()) {
        done(lost.cause());
        shown(lost);
    }
}
