//! Closing a connection without losing what was sent last.
//!
//! A socket that is closed over unread input resets the connection, and the reset overtakes the
//! exit frame. So after our last byte, and the end of our sending side, what still comes is read
//! and thrown away, however much, until
//!
//! | done | when |
//! | --- | --- |
//! | [`Done::Closed`] | the peer closed |
//! | [`Done::Quiet`] | everything of ours is acknowledged, and for 2 s nothing came |
//! | [`Done::Stalled`] | for 60 s nothing came and nothing more was acknowledged |
//!
//! ```
//! use core::time::Duration;
//! use triwire::exec::linger::{Done, Linger, QUIET_BOUND};
//! use triwire::time::Instant;
//!
//! let start = Instant::ZERO;
//! let mut linger = Linger::new(start);
//! linger.feed(start, 20_000); // stdin that nobody reads any more
//! linger.acknowledged(start, 0);
//! assert_eq!(linger.poll(start), None);
//! let later = start.saturating_add(QUIET_BOUND);
//! assert_eq!(linger.deadline(), Some(later));
//! assert_eq!(linger.poll(later), Some(Done::Quiet));
//! ```

use core::time::Duration;

use crate::time::Instant;

/// How long nothing may come, once everything of ours is acknowledged.
pub const QUIET_BOUND: Duration = Duration::from_secs(2);

/// How long nothing may move either way.
pub const STALL_BOUND: Duration = Duration::from_secs(60);

/// How often to look for acknowledgements: no event tells of them.
pub const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Why the connection may be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Done {
    /// The peer closed: it has everything, or wants nothing more.
    Closed,
    /// The peer has everything and is silent.
    Quiet,
    /// The peer neither takes nor sends.
    Stalled,
}

/// Decides when a connection may be closed after our last byte.
///
/// Until [`acknowledged`](Self::acknowledged) says otherwise, something of ours is taken to be on
/// its way.
#[derive(Clone, Copy, Debug)]
pub struct Linger {
    /// Bytes of ours that the peer has not acknowledged; `None` before the first look.
    unacknowledged: Option<usize>,
    looked: Instant,
    /// When something last came, or the last of ours was acknowledged.
    quiet_since: Instant,
    /// When something last came, or some of ours was acknowledged.
    moved: Instant,
    done: Option<Done>,
}

impl Linger {
    /// Begins, `now` being the time of our last byte.
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        Self { unacknowledged: None, looked: now, quiet_since: now, moved: now, done: None }
    }

    /// Tells of `received` bytes that came and were thrown away; 0 changes nothing.
    pub fn feed(&mut self, now: Instant, received: usize) {
        self.settle(now);
        if received > 0 {
            self.quiet_since = now;
            self.moved = now;
        }
    }

    /// Tells how many bytes of ours the peer has not acknowledged, where the system knows (on
    /// Linux, `SIOCOUTQ`); elsewhere 0.
    pub fn acknowledged(&mut self, now: Instant, unacknowledged: usize) {
        self.settle(now);
        let before = self.unacknowledged.unwrap_or(usize::MAX);
        if unacknowledged < before {
            self.moved = now;
            if unacknowledged == 0 && self.unacknowledged.is_some() {
                self.quiet_since = now;
            }
        }
        self.unacknowledged = Some(unacknowledged);
        self.looked = now;
    }

    /// Tells that the peer closed, or that the connection broke.
    pub fn peer_closed(&mut self, now: Instant) {
        self.settle(now);
        self.done = self.done.or(Some(Done::Closed));
    }

    /// Tells whether the connection may be closed now, and why; then it stays so.
    pub fn poll(&mut self, now: Instant) -> Option<Done> {
        self.settle(now);
        self.done
    }

    /// Returns when to look again: call [`acknowledged`](Self::acknowledged), then
    /// [`poll`](Self::poll). `None` once done.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        if self.done.is_some() {
            return None;
        }
        let stalled = self.moved.saturating_add(STALL_BOUND);
        Some(match self.unacknowledged {
            Some(0) => self.quiet_since.saturating_add(QUIET_BOUND).min(stalled),
            _ => self.looked.saturating_add(LOOK_EVERY).min(stalled),
        })
    }

    /// Lets time have its effect before anything else has: what comes at a bound comes too late.
    fn settle(&mut self, now: Instant) {
        // rule: EXEC-40
        if self.done.is_some() {
            return;
        }
        if self.unacknowledged == Some(0) && now >= self.quiet_since.saturating_add(QUIET_BOUND) {
            self.done = Some(Done::Quiet);
        } else if now >= self.moved.saturating_add(STALL_BOUND) {
            self.done = Some(Done::Stalled);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects)]

    extern crate std;

    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    #[test]
    fn quiet_counts_from_the_last_byte_or_the_last_acknowledgement() {
        // rule: EXEC-40
        let mut linger = Linger::new(at(0));
        linger.acknowledged(at(0), 70_000);
        assert_eq!(linger.deadline(), Some(at(100)));
        linger.feed(at(1_000), 1);
        linger.acknowledged(at(5_000), 10);
        assert_eq!(linger.poll(at(5_000)), None);
        linger.acknowledged(at(6_000), 0);
        assert_eq!(linger.deadline(), Some(at(8_000)));
        linger.feed(at(7_999), 5);
        assert_eq!(linger.poll(at(8_000)), None);
        assert_eq!(linger.poll(at(9_998)), None);
        assert_eq!(linger.poll(at(9_999)), Some(Done::Quiet));
        assert_eq!(linger.deadline(), None);
    }

    #[test]
    fn a_peer_that_reads_slowly_is_waited_for() {
        // rule: EXEC-40
        let mut linger = Linger::new(at(0));
        let mut left = 1_000_000;
        for second in 0..1_000 {
            linger.acknowledged(at(second * 1_000), left);
            left -= 1;
            assert_eq!(linger.poll(at(second * 1_000)), None);
        }
    }

    #[test]
    fn a_flood_is_thrown_away_without_limit() {
        // rule: EXEC-40
        let mut linger = Linger::new(at(0));
        linger.acknowledged(at(0), 0);
        for second in 0..100_000 {
            linger.feed(at(second * 1_000), usize::MAX);
            assert_eq!(linger.poll(at(second * 1_000)), None);
        }
    }

    #[test]
    fn sixty_seconds_without_progress_end_it() {
        // rule: EXEC-40
        let mut linger = Linger::new(at(0));
        linger.acknowledged(at(10), 500);
        linger.acknowledged(at(30_000), 500);
        assert_eq!(linger.poll(at(60_009)), None);
        // Late polls do not change what follows: the byte came after the bound.
        linger.feed(at(60_010), 1);
        assert_eq!(linger.poll(at(60_011)), Some(Done::Stalled));
        let mut never_looked = Linger::new(at(0));
        assert_eq!(never_looked.poll(at(60_000)), Some(Done::Stalled));
    }

    #[test]
    fn the_peers_end_is_the_end() {
        // rule: EXEC-40
        let mut linger = Linger::new(at(0));
        linger.peer_closed(at(5));
        assert_eq!(linger.poll(at(5)), Some(Done::Closed));
        assert_eq!(linger.poll(at(500_000)), Some(Done::Closed));
    }

    proptest! {
        #[test]
        fn polling_changes_nothing(
            script in proptest::collection::vec((0u64..70_000, 0usize..3, any::<bool>()), 0..30),
            quick: bool,
        ) {
            // rule: EXEC-40
            let (mut polled, mut quiet) = (Linger::new(at(0)), Linger::new(at(0)));
            let mut now = 0;
            let mut seen = Vec::new();
            for (wait, count, comes) in script {
                now += if quick { wait / 30 } else { wait };
                seen.extend(polled.poll(at(now)));
                for linger in [&mut polled, &mut quiet] {
                    if comes {
                        linger.feed(at(now), count);
                    } else {
                        linger.acknowledged(at(now), count);
                    }
                }
                seen.extend(polled.poll(at(now)));
                if let Some(deadline) = polled.deadline() {
                    prop_assert!(deadline > at(now) || polled.looked < at(now));
                }
            }
            let end = quiet.poll(at(now));
            prop_assert_eq!(polled.poll(at(now)), end);
            // Once done, always the same.
            prop_assert!(seen.iter().all(|done| Some(*done) == end));
        }
    }
}
