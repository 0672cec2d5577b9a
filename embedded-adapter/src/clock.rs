//! Wall-clock time for devices that have no clock of their own: the host tells it once, the
//! device's timer carries it on.
//!
//! ```
//! use triwire::time::{ClockUnset, Instant, UnixMillis};
//! use triwire_embedded::clock::{Clock, Offer};
//!
//! let mut clock = Clock::new();
//! // `now` is what the device's timer counts; its zero is the boot.
//! let mut now = Instant::from_millis(750);
//! assert_eq!(clock.unix(now), Err(ClockUnset));
//!
//! // A line's reset packet brings the host's time; 0 when the host does not know it either.
//! assert_eq!(clock.offer(now, UnixMillis::new(0)), Offer::Unknown);
//! assert_eq!(clock.offer(now, UnixMillis::new(1_800_000_000_000)), Offer::Taken);
//!
//! now = Instant::from_millis(1_750);
//! assert_eq!(clock.unix(now), Ok(UnixMillis::new(1_800_000_001_000)));
//! // The first counts: time that jumps would let in again what was already used.
//! let later = clock.offer(now, UnixMillis::new(1_800_000_001_003));
//! assert_eq!(later, Offer::Kept { apart_ms: 3 });
//! ```

use triwire::time::{ClockUnset, Instant, UnixMillis};

/// A wall clock that has to be told the time, once.
///
/// 24 bytes. It runs as exactly as the timer behind the instants it is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Clock {
    /// What was told, and when.
    told: Option<(Instant, UnixMillis)>,
}

/// What became of a time that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Offer {
    /// The clock runs from it.
    Taken,
    /// It was 0: who offers it does not know the time. Nothing changed.
    Unknown,
    /// The clock was set before and stays as it is. To start over, make a new one.
    Kept {
        /// The distance between the clock and the offered time, in ms.
        apart_ms: u64,
    },
}

impl Clock {
    /// Makes a clock that does not know the time.
    #[must_use]
    pub const fn new() -> Self {
        Self { told: None }
    }

    /// Takes the wall-clock time `unix` as that of `now`, if it is the first one known.
    ///
    /// However long `unix` was under way, so late the clock is.
    pub fn offer(&mut self, now: Instant, unix: UnixMillis) -> Offer {
        if unix == UnixMillis::new(0) {
            return Offer::Unknown;
        }
        match self.unix(now) {
            Ok(ours) => Offer::Kept { apart_ms: ours.abs_diff(unix) },
            Err(ClockUnset) => {
                self.told = Some((now, unix));
                Offer::Taken
            }
        }
    }

    /// Returns the time that was told, which stays the same until the next boot.
    ///
    /// # Errors
    /// [`ClockUnset`] until an [`offer`](Self::offer) was taken.
    pub fn told(&self) -> Result<UnixMillis, ClockUnset> {
        self.told.map(|(_, unix)| unix).ok_or(ClockUnset)
    }

    /// Returns the wall-clock time at `now`. It never runs behind the time that was told, and a
    /// part of a ms is not counted.
    ///
    /// # Errors
    /// [`ClockUnset`] until an [`offer`](Self::offer) was taken.
    pub fn unix(&self, now: Instant) -> Result<UnixMillis, ClockUnset> {
        let (at, unix) = self.told.ok_or(ClockUnset)?;
        // A counter of µs holds fewer ms than a u64.
        let since = now.saturating_since(at).as_millis() as u64;
        Ok(unix.saturating_add(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    #[test]
    fn the_first_time_known_counts() {
        let mut clock = Clock::new();
        assert_eq!(clock.offer(ms(1), UnixMillis::new(0)), Offer::Unknown);
        assert_eq!(clock.unix(ms(2)), Err(ClockUnset));
        assert_eq!(clock.offer(ms(2), UnixMillis::new(5_000)), Offer::Taken);
        assert_eq!(clock.offer(ms(3), UnixMillis::new(0)), Offer::Unknown);
        assert_eq!(clock.offer(ms(12), UnixMillis::new(9)), Offer::Kept { apart_ms: 5_001 });
        assert_eq!(clock.unix(ms(12)), Ok(UnixMillis::new(5_010)));
    }

    #[test]
    fn parts_of_a_ms_add_up_and_the_ends_saturate() {
        let mut clock = Clock::new();
        clock.offer(Instant::from_micros(600), UnixMillis::new(10));
        assert_eq!(clock.unix(Instant::from_micros(1_599)), Ok(UnixMillis::new(10)));
        assert_eq!(clock.unix(Instant::from_micros(1_600)), Ok(UnixMillis::new(11)));
        assert_eq!(clock.unix(Instant::ZERO), Ok(UnixMillis::new(10)));
        let mut last = Clock::new();
        last.offer(Instant::ZERO, UnixMillis::new(u64::MAX));
        assert_eq!(last.unix(Instant::from_micros(u64::MAX)), Ok(UnixMillis::new(u64::MAX)));
    }

    #[test]
    fn it_takes_what_its_documentation_says() {
        assert_eq!(size_of::<Clock>(), 24);
    }
}
