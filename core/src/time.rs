//! Moments, as arguments: the core never reads a clock.
//!
//! [`Instant`] counts from a zero that the caller chooses and only orders events and deadlines;
//! [`UnixMillis`] is wall-clock time, needed where two machines compare their clocks. Neither
//! converts to or from a real clock here; the adapters do that in one place.
//!
//! ```
//! use core::time::Duration;
//! use triwire::time::Instant;
//!
//! let asked = Instant::from_micros(1_000);
//! let deadline = asked.saturating_add(Duration::from_secs(5));
//! assert!(deadline > asked);
//! assert_eq!(deadline.saturating_since(asked), Duration::from_secs(5));
//! ```

use core::fmt;
use core::time::Duration;

/// A moment on a monotonic clock, in µs since a zero that the caller chooses.
///
/// Arithmetic saturates: a deadline beyond the range is the last instant, never a wrapped one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Instant(u64);

impl Instant {
    /// The caller's zero.
    pub const ZERO: Self = Self(0);

    /// Makes an instant from µs since the caller's zero.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Makes an instant from ms since the caller's zero; saturates.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    /// Returns the µs since the caller's zero.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns the instant `later` than this one, or the last there is.
    #[must_use]
    pub const fn saturating_add(self, later: Duration) -> Self {
        let micros = later.as_micros();
        // A duration has more range than the counter.
        let micros = if micros > u64::MAX as u128 { u64::MAX } else { micros as u64 };
        Self(self.0.saturating_add(micros))
    }

    /// Returns the time from `earlier` to this instant, zero when it is not earlier.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// Wall-clock time, in ms since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct UnixMillis(u64);

impl UnixMillis {
    /// Makes a wall-clock time from ms since the Unix epoch.
    #[must_use]
    pub const fn new(millis: u64) -> Self {
        Self(millis)
    }

    /// Returns the ms since the Unix epoch.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the distance between two times in ms, whichever is earlier.
    #[must_use]
    pub const fn abs_diff(self, other: Self) -> u64 {
        self.0.abs_diff(other.0)
    }

    /// Returns the time `millis` later, or the last there is.
    #[must_use]
    pub const fn saturating_add(self, millis: u64) -> Self {
        Self(self.0.saturating_add(millis))
    }
}

/// A device without a clock of its own was not told the time yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ClockUnset;

impl fmt::Display for ClockUnset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the wall clock is not set: nobody told the time since boot; wait for a reset of the line")
    }
}

impl core::error::Error for ClockUnset {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        let last = Instant::from_micros(u64::MAX);
        assert_eq!(last.saturating_add(Duration::MAX), last);
        assert_eq!(Instant::ZERO.saturating_add(Duration::MAX), last);
        assert_eq!(Instant::from_millis(u64::MAX), last);
        assert_eq!(Instant::ZERO.saturating_since(last), Duration::ZERO);
        assert_eq!(UnixMillis::new(u64::MAX).saturating_add(1), UnixMillis::new(u64::MAX));
        assert_eq!(UnixMillis::new(3).abs_diff(UnixMillis::new(5)), 2);
    }
}
