//! `buffer` and `time`.

use core::time::Duration;

use triwire::OutTooSmall;
use triwire::buffer::{Inbox, Outbox};
use triwire::time::{Instant, UnixMillis};

use crate::{any, bytes, done, judged, shown};

pub(crate) fn run() {
    let mut inbox = Inbox::new(any([0_u8; 32]));
    for _ in 0..any(3_usize) {
        done(inbox.space());
        inbox.filled(any(1));
        if let Some(mut window) = inbox.lend() {
            window.rest = any(window.rest);
        }
        let mut window = inbox.window();
        window.rest = any(window.rest);
        drop(window);
        inbox.consume(any(1));
        done((inbox.unread(), inbox.has_news(), inbox.is_full()));
    }

    let mut outbox = Outbox::new(any([0_u8; 32]));
    for _ in 0..any(3_usize) {
        done(outbox.space());
        outbox.filled(any(1));
        done(judged(outbox.push(bytes())));
        outbox.sent(any(1));
        done((outbox.unsent(), outbox.room(), outbox.is_empty()));
    }
    shown(OutTooSmall { needed: any(1) });

    let now = Instant::from_micros(any(1)).max(Instant::from_millis(any(1)));
    let later = now.saturating_add(any(Duration::ZERO));
    done((later.saturating_since(any(now)), later.as_micros()));
    let wall = UnixMillis::new(any(1)).saturating_add(any(1));
    done((wall.get(), wall.abs_diff(any(wall))));
}
