//! When an executor that lost its server tries again: soon, then ever later, never all at once.
//!
//! ```
//! use triwire::channel::reconnect::{FIRST_DELAY, MAX_DELAY, Reconnect};
//! use triwire::time::Instant;
//!
//! let mut reconnect = Reconnect::new();
//! let now = Instant::ZERO;
//! // The entropy is drawn anew each time; the greatest waits longest.
//! assert_eq!(reconnect.ended(now, u32::MAX), FIRST_DELAY);
//! assert_eq!(reconnect.ended(now, u32::MAX), FIRST_DELAY * 2);
//! for _ in 0..100 {
//!     assert!(reconnect.ended(now, 0) <= MAX_DELAY);
//! }
//! ```

use core::time::Duration;

use super::keepalive::GONE_AFTER;
use crate::time::Instant;

/// The longest wait after the first failure; it doubles with each further one.
pub const FIRST_DELAY: Duration = Duration::from_millis(500);
/// The longest wait of all.
pub const MAX_DELAY: Duration = Duration::from_secs(30);
/// How long a connection has to stand for the waits to begin anew: one that is lost at once
/// again and again is no success.
pub const STABLE_AFTER: Duration = GONE_AFTER;

/// The tries of one executor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reconnect {
    failures: u32,
    up: Option<Instant>,
}

impl Reconnect {
    /// Begins with no failure.
    #[must_use]
    pub const fn new() -> Self {
        Self { failures: 0, up: None }
    }

    /// Takes note of a connection.
    pub const fn connected(&mut self, now: Instant) {
        self.up = Some(now);
    }

    /// Takes note of a connection's end, or of a try that brought none, and returns how long to
    /// wait: between half of the longest wait and all of it, in proportion to `entropy`.
    // rule: CHAN-70
    pub fn ended(&mut self, now: Instant, entropy: u32) -> Duration {
        if self.up.take().is_some_and(|up| now >= up.saturating_add(STABLE_AFTER)) {
            self.failures = 0;
        }
        let doubled = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        let longest = FIRST_DELAY.saturating_mul(doubled).min(MAX_DELAY);
        self.failures = self.failures.saturating_add(1);
        let half = (longest.as_millis() as u64) >> 1;
        let more = half.saturating_mul(u64::from(entropy)).saturating_add(half) >> 32;
        Duration::from_millis(half.saturating_add(more))
    }
}
