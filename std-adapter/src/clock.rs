//! The one place that reads time.
//!
//! Machines take moments as arguments; [`Clock`] makes them. Its zero is when it was started.
//! With the feature `tokio` it reads tokio's clock, which is the same one unless a test pauses it.
//!
//! ```
//! use std::time::Duration;
//! use triwire_std::clock::{Clock, unix_now};
//!
//! let clock = Clock::start();
//! let deadline = clock.now().saturating_add(Duration::from_secs(30));
//! assert!(clock.now() < deadline);
//! assert!(unix_now().get() > 1_700_000_000_000);
//! ```

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use triwire::time::{Instant, UnixMillis};

#[cfg(not(feature = "tokio"))]
use std::time::Instant as Reading;
#[cfg(feature = "tokio")]
use tokio::time::Instant as Reading;

/// A monotonic clock, counted from when it was started.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    zero: Reading,
}

impl Clock {
    /// Starts a clock at zero.
    #[must_use]
    pub fn start() -> Self {
        Self { zero: Reading::now() }
    }

    /// Returns the time since the start, in whole µs.
    #[must_use]
    pub fn now(&self) -> Instant {
        let micros = self.zero.elapsed().as_micros();
        Instant::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// Returns how long it is until `moment`; zero when it has come.
    #[must_use]
    pub fn until(&self, moment: Instant) -> Duration {
        moment.saturating_since(self.now())
    }

    /// Returns `moment` as the standard library counts it; a moment beyond its range is cut to
    /// thirty years after the start.
    #[must_use]
    pub fn to_std(&self, moment: Instant) -> std::time::Instant {
        #[cfg(not(feature = "tokio"))]
        return self.reading(moment);
        #[cfg(feature = "tokio")]
        return self.reading(moment).into_std();
    }

    /// Returns `moment` as tokio counts it; a moment beyond its range is cut to thirty years
    /// after the start.
    #[cfg(feature = "tokio")]
    #[must_use]
    pub fn to_tokio(&self, moment: Instant) -> tokio::time::Instant {
        self.reading(moment)
    }

    fn reading(&self, moment: Instant) -> Reading {
        const FAR: Duration = Duration::from_secs(30 * 365 * 86_400);
        let since = Duration::from_micros(moment.as_micros()).min(FAR);
        self.zero.checked_add(since).unwrap_or(self.zero)
    }
}

/// Returns the wall-clock time; a time before 1970 is zero.
#[must_use]
pub fn unix_now() -> UnixMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis::new(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_that_came_by_the_system_clock_came_by_ours() {
        let clock = Clock::start();
        let deadline = clock.now().saturating_add(Duration::from_millis(2));
        while std::time::Instant::now() < clock.to_std(deadline) {
            std::thread::yield_now();
        }
        assert!(clock.now() >= deadline);
        assert_eq!(clock.until(deadline), Duration::ZERO);
    }

    #[test]
    fn the_last_instant_is_a_moment_far_away() {
        let clock = Clock::start();
        let last = clock.to_std(Instant::from_micros(u64::MAX));
        assert!(last > std::time::Instant::now() + Duration::from_secs(86_400));
    }
}
