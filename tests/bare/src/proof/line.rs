//! Every verb of `line`.

use triwire::line::{
    Disconnect, Event, Line, LineError, Packet, Protocol, Reset, Role, Slot, Stream,
};
use triwire::time::{Instant, UnixMillis};

use crate::{any, bytes, done, shown};

pub(crate) fn run() {
    let now = Instant::from_micros(any(0));
    let (mut out, mut packet) = ([0; 256], Packet::new());
    let role = if any(true) { Role::Gateway } else { Role::Device };
    let mut line = Line::new(role, any(0), any(0), [Slot::EMPTY; 4]);
    let line = any(&mut line);
    let out = any(&mut out[..]);
    done((line.is_up(), line.broken(), line.deadline()));

    let mut stream = None;
    let mut input = bytes();
    while let Some(event) = line.feed(now, &mut input, any(&mut packet)) {
        stream = told(event).or(stream);
    }
    while let Some(event) = line.poll(any(now)) {
        stream = told(event).or(stream);
    }
    let due = line.write_due(any(now), UnixMillis::new(any(0)), any(&mut *out));
    done(due);
    for protocol in [Protocol::Http, any(Protocol::Http)] {
        match line.open(any(now), protocol, any(&mut *out)) {
            Ok((opened, packet)) => {
                done(packet);
                stream = Some(opened);
            }
            Err(error) => said(error),
        }
    }
    let Some(stream) = any(stream) else { return };
    done((stream.number(), line.credit(stream)));
    let mut rest = bytes();
    match line.data(any(now), stream, &mut rest, any(&mut *out)) {
        Ok(packet) => done(packet),
        Err(error) => said(error),
    }
    done(rest);
    line.consumed(any(now), stream, any(0));
    line.refuse(any(now), stream);
    line.close(any(now), stream);
    line.link_down();
    done(line.deadline());
}

fn told(event: Event<'_>) -> Option<Stream> {
    match event {
        Event::Reset { kind, boot, wall } => {
            done((matches!(kind, Reset::Asked), boot, wall));
            None
        }
        Event::OtherVersion { found } => {
            done(found);
            None
        }
        Event::Opened { stream, protocol, credit } => {
            done((protocol, credit));
            Some(stream)
        }
        Event::Data { stream, bytes } => {
            done(bytes);
            Some(stream)
        }
        Event::Closed { stream } => Some(stream),
        Event::Credit { stream, credit } => {
            done(credit);
            Some(stream)
        }
        Event::Disconnected { stream, why } => {
            named(why);
            Some(stream)
        }
    }
}

fn named(why: Disconnect) {
    done(why.code());
    shown(why);
}

fn said(error: LineError) {
    done(error.code());
    shown(error);
}
