use std::array;
use std::fmt;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use triwire::signed::{Claim, Claimed, Window};
use triwire::time::UnixMillis;

use super::{Cause, Nonces, Unavailable, in_time};
use crate::{clock, entropy};

/// Bytes of memory that a [`Memory`] takes for each nonce of its capacity.
pub const BYTES_A_NONCE: usize = 24;

/// Entries that share a cache line.
const BUCKET: usize = 4;

/// Nonces for which one more lock is worth its cache line.
const NONCES_A_SHARD: usize = 4096;

/// Locks at most: more of them than any machine has processors.
const MAX_SHARDS: usize = 256;

/// Nonces in this process's memory: fast, bounded, and forgotten when the process ends.
///
/// All memory is taken at once, [`BYTES_A_NONCE`] for each nonce. An entry is 16 bytes: 96 bits of
/// the SHA-256 of the claim's name and the second after which it may go. Each name has two buckets
/// of four entries, and lives in either; at the capacity two thirds of the table are in use. Where
/// both are full of live entries, and none of those has room in its other bucket, the claim is
/// refused as [`Full`](Cause::Full): that is most unlikely at the capacity and certain at half as
/// much again.
///
/// # Cost
/// A lock, two cache lines and no allocation. Nothing is swept: an expired entry is free for the
/// next claim that looks at its bucket.
///
/// ```
/// use triwire_std::nonces::Memory;
///
/// let store = Memory::with_capacity(100_000); // 2.4 MB
/// # drop(store);
/// ```
pub struct Memory {
    shards: Box<[Shard]>,
    /// Which names share a bucket is nothing that a signer can foresee.
    salt: [u64; 2],
    /// Requests that were signed by then are refused.
    refuse_until: Option<UnixMillis>,
}

/// A lock in a cache line of its own.
#[repr(align(64))]
struct Shard(Mutex<Table>);

/// The buckets behind one lock.
struct Table {
    buckets: Box<[Bucket]>,
    /// The latest time of all entries that were forgotten: while the clock is not set back, every
    /// claim ends later.
    forgotten: u32,
}

/// The entries of one cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Bucket([Entry; BUCKET]);

/// A claim, or nothing when `forget_after` is 0.
#[derive(Clone, Copy)]
struct Entry {
    digest: [u32; 3],
    /// In seconds, rounded up.
    forget_after: u32,
}

impl Entry {
    const NONE: Self = Self { digest: [0; 3], forget_after: 0 };

    /// `now` in seconds, rounded up, so that no part of a second is lost.
    const fn is_free(self, now: u32) -> bool {
        self.forget_after < now
    }
}

impl Bucket {
    fn room(&self, now: u32) -> usize {
        self.0.iter().filter(|entry| entry.is_free(now)).count()
    }

    fn holds(&self, digest: [u32; 3], now: u32) -> bool {
        self.0.iter().any(|entry| entry.digest == digest && !entry.is_free(now))
    }
}

impl Table {
    /// Puts an entry into a bucket; `false` when that is full.
    fn put(&mut self, place: usize, entry: Entry, now: u32) -> bool {
        let mut entries = self.buckets[place].0.iter_mut();
        let Some(free) = entries.find(|entry| entry.is_free(now)) else { return false };
        self.forgotten = self.forgotten.max(free.forget_after);
        *free = entry;
        true
    }
}

impl Memory {
    /// Makes an empty store for `capacity` live nonces, at least one.
    ///
    /// A verifier that may have accepted requests before, in an earlier run, adds
    /// [`after_boot`](Self::after_boot).
    ///
    /// # Panics
    /// There is not that much memory, or the operating system gives no randomness.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        let mut salt = [[0; 8]; 2];
        let drawn: io::Result<()> = entropy::fill(salt.as_flattened_mut());
        drawn.expect("randomness from the operating system");
        Self::salted(capacity, salt.map(u64::from_le_bytes))
    }

    fn salted(capacity: usize, salt: [u64; 2]) -> Self {
        let shards = (capacity / NONCES_A_SHARD).next_power_of_two().min(MAX_SHARDS);
        let overhead = shards.saturating_mul(size_of::<Shard>());
        let bytes = capacity.saturating_mul(BYTES_A_NONCE).saturating_sub(overhead);
        let buckets = (bytes / size_of::<Bucket>() / shards).max(2);
        let shard = |_| {
            let buckets = vec![Bucket([Entry::NONE; BUCKET]); buckets].into();
            Shard(Mutex::new(Table { buckets, forgotten: 0 }))
        };
        let shards = (0..shards).map(shard).collect();
        Self { shards, salt, refuse_until: None }
    }

    /// Refuses, as [`Booted`](Cause::Booted), what an earlier run of this verifier may have
    /// accepted: every request that was signed up to one `window` after `boot`.
    ///
    /// Requests of signers whose clocks are right are refused for one window, five minutes by
    /// default; a store that outlives the process refuses nothing.
    #[must_use]
    pub fn after_boot(mut self, boot: UnixMillis, window: Window) -> Self {
        self.refuse_until = Some(boot.saturating_add(1_000 * u64::from(window.as_seconds())));
        self
    }

    /// Claims at a time of the caller's: what [`claim`](Nonces::claim) does at this moment.
    ///
    /// # Errors
    /// As of [`claim`](Nonces::claim); never [`Lost`](Cause::Lost) or [`Slow`](Cause::Slow).
    pub fn claim_at(&self, now: UnixMillis, claim: Claim<'_>) -> Result<Claimed, Unavailable> {
        in_time(now, claim)?;
        if self.refuse_until.is_some_and(|until| claim.signed_at() <= until) {
            return Err(Unavailable::new(Cause::Booted));
        }
        self.claim_digest(now, words(claim.digest()), claim.forget_after())
    }

    fn claim_digest(
        &self,
        now: UnixMillis,
        digest: [u32; 3],
        forget_after: UnixMillis,
    ) -> Result<Claimed, Unavailable> {
        let too_late = || Unavailable::new(Cause::TooLate);
        let forget_after = u32::try_from(forget_after.get().div_ceil(1_000));
        let entry = Entry { digest, forget_after: forget_after.map_err(|_| too_late())? };
        // An empty entry is free at every time.
        let now = u32::try_from(now.get().div_ceil(1_000)).map_err(|_| too_late())?.max(1);

        let hash = self.hash(digest);
        let shard = reduce(digest[2], self.shards.len());
        let mut table = lock(&self.shards[shard]);
        let Table { buckets, forgotten } = &mut *table;
        if entry.forget_after <= *forgotten {
            return Err(too_late());
        }
        let places = places(hash, buckets.len());
        if places.iter().any(|place| buckets[*place].holds(digest, now)) {
            return Ok(Claimed::Replayed);
        }
        let rooms = places.map(|place| buckets[place].room(now));
        let roomier = places[usize::from(rooms[1] > rooms[0])];
        let place = if rooms == [0; 2] {
            self.make_room(&mut table, places, now).ok_or(Unavailable::new(Cause::Full))?
        } else {
            roomier
        };
        table.put(place, entry, now);
        Ok(Claimed::Fresh)
    }

    /// Moves an entry of two full buckets to its other one, and answers which of the two has room
    /// then.
    fn make_room(&self, table: &mut Table, full: [usize; 2], now: u32) -> Option<usize> {
        for from in full {
            for slot in 0..BUCKET {
                let moved = table.buckets[from].0[slot];
                let [one, two] = places(self.hash(moved.digest), table.buckets.len());
                let other = if one == from { two } else { one };
                if table.put(other, moved, now) {
                    table.buckets[from].0[slot] = Entry::NONE;
                    return Some(from);
                }
            }
        }
        None
    }

    fn hash(&self, digest: [u32; 3]) -> u64 {
        let [one, two, three] = digest.map(u64::from);
        let [left, right] = [(one << 32 | two) ^ self.salt[0], three ^ self.salt[1]];
        let product = u128::from(left) * u128::from(right);
        (product >> 64) as u64 ^ product as u64
    }
}

impl Nonces for Memory {
    async fn claim<'a>(&'a self, claim: Claim<'a>) -> Result<Claimed, Unavailable> {
        self.claim_at(clock::unix_now(), claim)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

/// The two buckets of a hash; in a full table they differ but for one name in many.
fn places(hash: u64, buckets: usize) -> [usize; 2] {
    [reduce(hash as u32, buckets), reduce((hash >> 32) as u32, buckets)]
}

/// Spreads `hash` over 0 to `count` - 1.
fn reduce(hash: u32, count: usize) -> usize {
    ((u64::from(hash) * count as u64) >> 32) as usize
}

fn words(digest: [u8; 12]) -> [u32; 3] {
    array::from_fn(|word| {
        u32::from_le_bytes(array::from_fn(|byte| digest[word * size_of::<u32>() + byte]))
    })
}

/// No claim leaves a bucket half written: what a panicking thread left behind is whole.
fn lock(shard: &Shard) -> MutexGuard<'_, Table> {
    shard.0.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: [u64; 2] = [0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210];

    impl Memory {
        fn bytes(&self) -> usize {
            let buckets = |shard: &Shard| size_of_val(&*lock(shard).buckets);
            size_of_val(&*self.shards) + self.shards.iter().map(buckets).sum::<usize>()
        }
    }

    /// Digests as even as a hash's: the steps of a counter through a mixer.
    fn digest(count: u64) -> [u32; 3] {
        let mixed = u128::from(count + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
        let mixed = (mixed ^ (mixed >> 61)).wrapping_mul(0xA24B_AED4_963E_E407);
        [(mixed >> 96) as u32, (mixed >> 64) as u32, (mixed >> 40) as u32]
    }

    fn at(millis: u64) -> UnixMillis {
        UnixMillis::new(millis)
    }

    #[test]
    fn a_nonce_takes_no_more_memory_than_promised() {
        assert_eq!((size_of::<Entry>(), size_of::<Bucket>()), (16, 64));
        for capacity in [1_000, 10_000, 99_999, 1_000_000] {
            let bytes = Memory::salted(capacity, SALT).bytes();
            assert!(bytes <= capacity * BYTES_A_NONCE, "{bytes} for {capacity}");
            assert!(bytes >= capacity * BYTES_A_NONCE * 9 / 10, "{bytes} for {capacity}");
        }
    }

    // rule: SIGN-48
    #[test]
    fn the_capacity_fits_and_everything_in_it_is_remembered() {
        let store = Memory::salted(200_000, SALT);
        let claim = |count| store.claim_digest(at(1_000), digest(count), at(5_000)).unwrap();
        assert!((0..200_000).all(|count| claim(count) == Claimed::Fresh));
        assert!((0..200_000).all(|count| claim(count) == Claimed::Replayed));
    }

    // rule: SIGN-45
    #[test]
    fn what_has_expired_makes_room_without_a_sweep() {
        let store = Memory::salted(1_000, SALT);
        for round in 0..50 {
            let now = at(1_000 + round * 2_000);
            for count in 0..1_000 {
                let digest = digest(round * 1_000 + count);
                let claimed = store.claim_digest(now, digest, now.saturating_add(1_000));
                assert_eq!(claimed.unwrap(), Claimed::Fresh, "{round} {count}");
            }
        }
    }
}
