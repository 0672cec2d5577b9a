//! Noticing a peer that is gone without a word.
//!
//! ```
//! use triwire::channel::keepalive::{Due, GONE_AFTER, Keepalive, PING_EVERY};
//! use triwire::time::Instant;
//!
//! let start = Instant::ZERO;
//! let mut keepalive = Keepalive::new(start);
//! assert_eq!(keepalive.poll(start), None);
//! let later = start.saturating_add(PING_EVERY);
//! assert_eq!(keepalive.deadline(), later);
//! assert_eq!(keepalive.poll(later), Some(Due::Ping));
//! assert_eq!(keepalive.poll(start.saturating_add(GONE_AFTER)), Some(Due::Gone));
//! ```

use core::time::Duration;

pub use crate::exec::socket::PING_EVERY;
use crate::time::Instant;

/// How long a peer may be without a single byte.
pub const GONE_AFTER: Duration = Duration::from_secs(45);

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Due {
    /// A ping is to be sent.
    Ping,
    /// The peer counts as gone; said at every later call.
    Gone,
}

/// The silence of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Keepalive {
    heard: Instant,
    ping: Instant,
}

impl Keepalive {
    /// Begins with a connection.
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        Self { heard: now, ping: now.saturating_add(PING_EVERY) }
    }

    /// Takes note that bytes came, whatever they were. A peer that was gone stays gone.
    pub fn heard(&mut self, now: Instant) {
        if now < self.gone() {
            self.heard = self.heard.max(now);
        }
    }

    const fn gone(&self) -> Instant {
        self.heard.saturating_add(GONE_AFTER)
    }

    /// Tells what is due.
    // rule: CHAN-51
    pub fn poll(&mut self, now: Instant) -> Option<Due> {
        if now >= self.gone() {
            return Some(Due::Gone);
        }
        if now < self.ping {
            return None;
        }
        self.ping = now.saturating_add(PING_EVERY);
        Some(Due::Ping)
    }

    /// Returns when [`poll`](Self::poll) has something next.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.ping.min(self.gone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_puts_the_end_off_and_silence_brings_it() {
        // rule: CHAN-51
        let at = Instant::from_millis;
        let mut keepalive = Keepalive::new(at(0));
        assert_eq!(keepalive.poll(at(19_999)), None);
        assert_eq!(keepalive.poll(at(20_000)), Some(Due::Ping));
        assert_eq!(keepalive.poll(at(20_000)), None);
        keepalive.heard(at(21_000));
        assert_eq!(keepalive.poll(at(45_000)), Some(Due::Ping));
        assert_eq!(keepalive.deadline(), at(65_000));
        assert_eq!(keepalive.poll(at(65_999)), Some(Due::Ping));
        assert_eq!(keepalive.poll(at(66_000)), Some(Due::Gone));
        keepalive.heard(at(66_001));
        assert_eq!(keepalive.poll(at(66_001)), Some(Due::Gone));
    }
}
