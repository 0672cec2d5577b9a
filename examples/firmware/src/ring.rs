//! Bytes from an interrupt handler to the loop, without a lock.
//!
//! ```
//! use triwire_firmware::ring::Ring;
//!
//! static RING: Ring<256> = Ring::new();
//!
//! // In the interrupt handler, and nowhere else:
//! RING.push(7);
//! // In the loop, and nowhere else:
//! let mut bytes = [0; 16];
//! assert_eq!(RING.pop(&mut bytes), 1);
//! assert_eq!(bytes[0], 7);
//! ```

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};

/// A queue of at most `N` bytes, for one that pushes and one that pops; `N` is a power of two.
///
/// Loads and stores are all it asks of the processor, so it works on a Cortex-M0 too.
#[derive(Debug)]
pub struct Ring<const N: usize> {
    bytes: [AtomicU8; N],
    /// Counts of bytes, wrapping: pushed by the one, popped by the other.
    pushed: AtomicUsize,
    popped: AtomicUsize,
    dropped: AtomicU32,
}

impl<const N: usize> Default for Ring<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Ring<N> {
    /// Makes an empty ring.
    #[must_use]
    pub const fn new() -> Self {
        const { assert!(N.is_power_of_two()) };
        Self {
            bytes: [const { AtomicU8::new(0) }; N],
            pushed: AtomicUsize::new(0),
            popped: AtomicUsize::new(0),
            dropped: AtomicU32::new(0),
        }
    }

    /// Appends a byte; one that finds no room is dropped and counted.
    pub fn push(&self, byte: u8) {
        let pushed = self.pushed.load(Ordering::Relaxed);
        let place = self.bytes.get(pushed % N);
        match place {
            Some(place) if pushed.wrapping_sub(self.popped.load(Ordering::Acquire)) < N => {
                place.store(byte, Ordering::Relaxed);
                self.pushed.store(pushed.wrapping_add(1), Ordering::Release);
            }
            _ => {
                // Only the one that pushes writes it.
                let dropped = self.dropped.load(Ordering::Relaxed);
                self.dropped.store(dropped.saturating_add(1), Ordering::Relaxed);
            }
        }
    }

    /// Moves the first bytes into `out` and returns how many.
    pub fn pop(&self, out: &mut [u8]) -> usize {
        let popped = self.popped.load(Ordering::Relaxed);
        let count = self.pushed.load(Ordering::Acquire).wrapping_sub(popped).min(out.len());
        for (at, to) in out.iter_mut().enumerate().take(count) {
            if let Some(byte) = self.bytes.get(popped.wrapping_add(at) % N) {
                *to = byte.load(Ordering::Relaxed);
            }
        }
        self.popped.store(popped.wrapping_add(count), Ordering::Release);
        count
    }

    /// Reports whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pushed.load(Ordering::Acquire) == self.popped.load(Ordering::Relaxed)
    }

    /// Returns how many bytes found no room; stops at the largest count.
    #[must_use]
    pub fn dropped(&self) -> u32 {
        self.dropped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_in_order_and_what_has_no_room_is_counted() {
        let ring = Ring::<8>::new();
        let mut out = [0; 5];
        let mut next = 0;
        for round in 0..20_u8 {
            for byte in 0..6 {
                ring.push(round.wrapping_mul(6).wrapping_add(byte));
            }
            while !ring.is_empty() {
                let count = ring.pop(&mut out);
                for byte in &out[..count] {
                    assert_eq!(*byte, next);
                    next = next.wrapping_add(1);
                }
            }
        }
        assert_eq!(ring.dropped(), 0);
        (0..11).for_each(|byte| ring.push(byte));
        assert_eq!(ring.dropped(), 3);
        assert_eq!((ring.pop(&mut out), out), (5, [0, 1, 2, 3, 4]));
    }
}
