//! Time since boot, of a counter of 32 bits that wraps.

use triwire::time::Instant;

/// Makes instants of a counter of ms, which wraps every 49 days: look more often than that.
///
/// ```
/// use triwire::time::Instant;
/// use triwire_firmware::ticks::Ticks;
///
/// let mut ticks = Ticks::new();
/// assert_eq!(ticks.at(u32::MAX), Instant::from_millis(u32::MAX.into()));
/// assert_eq!(ticks.at(1), Instant::from_millis(u64::from(u32::MAX) + 2));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Ticks {
    /// The last count, and all ms that were counted up to it.
    last: u32,
    total: u64,
}

impl Ticks {
    /// Begins at a count of 0, the boot.
    #[must_use]
    pub const fn new() -> Self {
        Self { last: 0, total: 0 }
    }

    /// Returns the time at which the counter shows `count`.
    pub fn at(&mut self, count: u32) -> Instant {
        self.total = self.total.saturating_add(count.wrapping_sub(self.last).into());
        self.last = count;
        Instant::from_millis(self.total)
    }
}
