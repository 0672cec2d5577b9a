use std::fmt;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use siphasher::sip128::SipHasher13;
use triwire::signed::{Claim, Claimed, MAX_CLAIM_NAME_LENGTH, Window};
use triwire::time::UnixMillis;

use super::{Cause, Nonces, Unavailable, in_time};
use crate::{clock, entropy};

/// Bytes of memory that a [`Memory`] takes for each nonce of its capacity.
pub const BYTES_A_NONCE: usize = 24;

/// Entries that share a cache line.
const BUCKET: usize = 4;

/// Entries that move one after the other at most to make room for one: 40 buckets are looked at.
const MOVES: u32 = 2;

/// Nonces for which one more lock is worth its cache line.
const NONCES_A_SHARD: usize = 4096;

/// Locks at most: more of them than any machine has processors.
const MAX_SHARDS: usize = 256;

/// Nonces in this process's memory: fast, bounded, and forgotten when the process ends.
///
/// All memory is taken at once, [`BYTES_A_NONCE`] for each nonce. An entry is 16 bytes: 96 bits of
/// a hash of the claim's name, under a key of the store's own, and the second after which it may
/// go. Two names with one hash, of which nobody can foresee a pair, would be taken for a replay. Each name has two buckets
/// of four entries, and lives in either; at the capacity two thirds of the table are in use. Where
/// both are full of live entries, and two moves make no room, the claim is refused as
/// [`Full`](Cause::Full): that is most unlikely at the capacity and certain at half as much again.
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
    hasher: SipHasher13,
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
    hash: [u32; 3],
    /// In seconds, rounded up.
    forget_after: u32,
}

impl Entry {
    const NONE: Self = Self { hash: [0; 3], forget_after: 0 };

    /// `now` in seconds, rounded up, so that no part of a second is lost.
    const fn is_free(self, now: u32) -> bool {
        self.forget_after < now
    }
}

impl Bucket {
    fn room(&self, now: u32) -> usize {
        self.0.iter().filter(|entry| entry.is_free(now)).count()
    }

    fn holds(&self, hash: [u32; 3], now: u32) -> bool {
        self.0.iter().any(|entry| entry.hash == hash && !entry.is_free(now))
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
        let mut key = [[0; 8]; 2];
        let drawn: io::Result<()> = entropy::fill(key.as_flattened_mut());
        drawn.expect("randomness from the operating system");
        Self::keyed(capacity, key.map(u64::from_le_bytes))
    }

    fn keyed(capacity: usize, [one, two]: [u64; 2]) -> Self {
        let shards = (capacity / NONCES_A_SHARD).next_power_of_two().min(MAX_SHARDS);
        let overhead = shards.saturating_mul(size_of::<Shard>());
        let bytes = capacity.saturating_mul(BYTES_A_NONCE).saturating_sub(overhead);
        let buckets = (bytes / size_of::<Bucket>() / shards).max(2);
        let shard = |_| {
            let buckets = vec![Bucket([Entry::NONE; BUCKET]); buckets].into();
            Shard(Mutex::new(Table { buckets, forgotten: 0 }))
        };
        let shards = (0..shards).map(shard).collect();
        Self { shards, hasher: SipHasher13::new_with_keys(one, two), refuse_until: None }
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
        let mut name = [0; MAX_CLAIM_NAME_LENGTH];
        let name = claim.write_name(&mut name).unwrap_or_default();
        self.claim_hash(now, self.hash(name.as_bytes()), claim.forget_after())
    }

    fn claim_hash(
        &self,
        now: UnixMillis,
        hash: [u32; 3],
        forget_after: UnixMillis,
    ) -> Result<Claimed, Unavailable> {
        let too_late = || Unavailable::new(Cause::TooLate);
        let forget_after = u32::try_from(forget_after.get().div_ceil(1_000));
        let entry = Entry { hash, forget_after: forget_after.map_err(|_| too_late())? };
        // An empty entry is free at every time.
        let now = u32::try_from(now.get().div_ceil(1_000)).map_err(|_| too_late())?.max(1);

        let shard = reduce(hash[2], self.shards.len());
        let mut table = lock(&self.shards[shard]);
        let Table { buckets, forgotten } = &mut *table;
        if entry.forget_after <= *forgotten {
            return Err(too_late());
        }
        let places = places(hash, buckets.len());
        if places.iter().any(|place| buckets[*place].holds(hash, now)) {
            return Ok(Claimed::Replayed);
        }
        let rooms = places.map(|place| buckets[place].room(now));
        let roomier = places[usize::from(rooms[1] > rooms[0])];
        let place = if rooms == [0; 2] {
            let mut room = (1..=MOVES).flat_map(|moves| places.map(|place| (place, moves)));
            let room = room.find(|(place, moves)| make_room(&mut table, *place, now, *moves));
            room.ok_or(Unavailable::new(Cause::Full))?.0
        } else {
            roomier
        };
        table.put(place, entry, now);
        Ok(Claimed::Fresh)
    }

    fn hash(&self, name: &[u8]) -> [u32; 3] {
        let hash = self.hasher.hash(name);
        [hash.h1 as u32, (hash.h1 >> 32) as u32, hash.h2 as u32]
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

/// Moves an entry of a full bucket to its other one, after up to `moves` - 1 further moves that
/// make room there; `false` when none can move.
fn make_room(table: &mut Table, from: usize, now: u32, moves: u32) -> bool {
    for slot in 0..BUCKET {
        let moved = table.buckets[from].0[slot];
        let [one, two] = places(moved.hash, table.buckets.len());
        let other = if one == from { two } else { one };
        let has_room = other != from
            && (table.buckets[other].room(now) > 0
                || moves > 1 && make_room(table, other, now, moves - 1));
        if has_room && table.put(other, moved, now) {
            table.buckets[from].0[slot] = Entry::NONE;
            return true;
        }
    }
    false
}

/// The two buckets of a name; but for one name in many they differ.
fn places([one, two, _]: [u32; 3], buckets: usize) -> [usize; 2] {
    [reduce(one, buckets), reduce(two, buckets)]
}

/// Spreads `hash` over 0 to `count` - 1.
fn reduce(hash: u32, count: usize) -> usize {
    ((u64::from(hash) * count as u64) >> 32) as usize
}

/// No claim leaves a bucket half written: what a panicking thread left behind is whole.
fn lock(shard: &Shard) -> MutexGuard<'_, Table> {
    shard.0.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u64; 2] = [0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210];

    impl Memory {
        fn bytes(&self) -> usize {
            let buckets = |shard: &Shard| size_of_val(&*lock(shard).buckets);
            size_of_val(&*self.shards) + self.shards.iter().map(buckets).sum::<usize>()
        }
    }

    fn at(millis: u64) -> UnixMillis {
        UnixMillis::new(millis)
    }

    #[test]
    fn a_nonce_takes_no_more_memory_than_promised() {
        assert_eq!((size_of::<Entry>(), size_of::<Bucket>()), (16, 64));
        for capacity in [1_000, 10_000, 99_999, 1_000_000] {
            let bytes = Memory::keyed(capacity, KEY).bytes();
            assert!(bytes <= capacity * BYTES_A_NONCE, "{bytes} for {capacity}");
            assert!(bytes >= capacity * BYTES_A_NONCE * 9 / 10, "{bytes} for {capacity}");
        }
    }

    // rule: SIGN-48
    #[test]
    fn the_capacity_fits_and_everything_in_it_is_remembered() {
        let store = Memory::keyed(200_000, KEY);
        let claim = |count: u32| {
            let hash = store.hash(&count.to_le_bytes());
            store.claim_hash(at(1_000), hash, at(5_000)).unwrap()
        };
        assert!((0..200_000).all(|count| claim(count) == Claimed::Fresh));
        assert!((0..200_000).all(|count| claim(count) == Claimed::Replayed));
    }

    // rule: SIGN-45
    #[test]
    fn what_has_expired_makes_room_without_a_sweep() {
        let store = Memory::keyed(1_000, KEY);
        for round in 0..50 {
            let now = at(1_000 + round * 2_000);
            for count in 0..1_000 {
                let hash = store.hash(&(round * 1_000 + count).to_le_bytes());
                let claimed = store.claim_hash(now, hash, now.saturating_add(1_000));
                assert_eq!(claimed.unwrap(), Claimed::Fresh, "{round} {count}");
            }
        }
    }
}
