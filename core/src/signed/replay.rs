//! A store of nonces in the caller's memory, exact and bounded.

use core::fmt;
use core::marker::PhantomData;

use sha2::Sha256;

use super::key::Digest256;
use super::verify::Claim;
use super::{Claimed, Refusal, STORE_CLOCK_SLACK_MS, Window};
use crate::time::UnixMillis;

/// One remembered nonce: 16 bytes, 96 bits of its claim's hash and when it may go.
#[derive(Clone, Copy)]
pub struct Entry {
    digest: [u8; 12],
    /// Seconds after the window's base; 0 where nothing is kept.
    expires: u32,
}

impl Entry {
    /// Holds nothing.
    pub const EMPTY: Self = Self { digest: [0; 12], expires: 0 };
}

impl Default for Entry {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entry(redacted)")
    }
}

/// How far before the first claim an expiry can be told, in seconds; it leaves three times as many
/// behind it. 34 years and 102.
const BASE: u64 = 1 << 30;

/// Remembers which nonces were claimed, as many at once as it has entries.
///
/// It is exact: with N entries N live claims are granted and the next is refused; nothing live is
/// ever evicted, and what may be forgotten makes room. A clock that is set back opens nothing: a
/// claim that could be one of those forgotten meanwhile is refused.
///
/// ```
/// # use triwire::signed::{self, Genuine, Key, KeyId, Nonce, Presented, Target, Window};
/// use triwire::signed::{Claimed, Entry, Full, ReplayWindow};
/// use triwire::time::UnixMillis;
///
/// # fn genuine(nonce: &str, now: UnixMillis) -> Genuine {
/// #     let (id, key) = (KeyId::parse("a").unwrap(), Key::new(&[7; 32]).unwrap());
/// #     let target = Target::new("GET", "a", "/").unwrap();
/// #     let nonce = Nonce::parse(nonce).unwrap();
/// #     let mut out = [0; 100];
/// #     let header = signed::sign(now, id, &key, target, nonce, b"", &mut out).unwrap();
/// #     let timely = Presented::parse([header.as_bytes()]).unwrap();
/// #     let timely = timely.check(now, Window::default()).unwrap();
/// #     timely.with(target, &key).finish(now).unwrap()
/// # }
/// # let now = UnixMillis::new(1_800_000_000_000);
/// let (one, other) = (genuine("one", now), genuine("other", now));
/// let mut seen = ReplayWindow::new([Entry::EMPTY; 1]);
/// assert_eq!(seen.claim(now, one.claim()), Ok(Claimed::Fresh));
/// assert_eq!(seen.claim(now, one.claim()), Ok(Claimed::Replayed));
/// assert_eq!(seen.claim(now, other.claim()), Err(Full::NoRoom));
/// let later = one.claim().forget_after().saturating_add(1);
/// assert_eq!(seen.claim(later, other.claim()), Ok(Claimed::Fresh));
/// ```
///
/// # Sizes
///
/// A request is remembered for at most twice the window and a minute, 11 minutes by default: so
/// many entries as genuine requests come in that time. 16 bytes each.
///
/// # Cost
///
/// One hash of the claim's name, and a look at entries that stand side by side: a few up to 90 %
/// live, about the square root of their number in a full one. To place a claim among the last free
/// entries, or to find that there is none, may take one pass over all; while it stays full, no
/// further one.
#[derive(Clone)]
pub struct ReplayWindow<S, D = Sha256> {
    entries: S,
    /// The Unix second of which an entry's 1 is; set by the first claim.
    base: Option<u64>,
    /// The latest expiry that was forgotten, as entries hold it.
    forgotten: u32,
    /// While this expiry is live, all entries are; 0 when that is not known.
    earliest: u32,
    /// What was signed up to here may have been claimed before a restart.
    unknown_through: Option<UnixMillis>,
    digest: PhantomData<fn() -> D>,
}

impl<S: AsRef<[Entry]> + AsMut<[Entry]>> ReplayWindow<S> {
    /// Makes an empty one of as many entries as there are; what is in them is dropped.
    pub fn new(entries: S) -> Self {
        Self::with_digest(entries)
    }
}

impl<S: AsRef<[Entry]> + AsMut<[Entry]>, D: Digest256> ReplayWindow<S, D> {
    /// Makes an empty one that hashes names with the digest of its type.
    pub fn with_digest(mut entries: S) -> Self {
        entries.as_mut().fill(Entry::EMPTY);
        Self {
            entries,
            base: None,
            forgotten: 0,
            earliest: 0,
            unknown_through: None,
            digest: PhantomData,
        }
    }

    /// Returns how many live claims it can remember.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.entries.as_ref().len()
    }

    /// Tells it that it began empty at `now` though requests may have been accepted before, with
    /// `window`: after a restart that kept no entries. What was signed at or before the end of that
    /// window is refused from now on ([`Full::AfterBoot`]), since it may be known already.
    pub fn after_boot(&mut self, now: UnixMillis, window: Window) {
        let through = now.saturating_add(window.as_millis());
        self.unknown_through = self.unknown_through.max(Some(through));
    }

    /// Claims a nonce. `now` is the reading of the clock that was given to
    /// [`finish`](super::Verification::finish).
    ///
    /// # Errors
    /// It cannot say whether the nonce is new; answer
    /// [`NoncesUnavailable`](super::Refusal::NoncesUnavailable).
    pub fn claim(&mut self, now: UnixMillis, claim: Claim<'_>) -> Result<Claimed, Full> {
        if self.unknown_through.is_some_and(|through| claim.signed_at() <= through) {
            return Err(Full::AfterBoot);
        }
        let base = *self.base.get_or_insert((now.get() / 1_000).saturating_sub(BASE));
        let expires = stamp(base, claim.expires_at().get() / 1_000);
        if expires == u32::MAX {
            return Err(Full::TooFar);
        }
        // The earliest expiry that must be remembered now. Nothing has 0.
        let forgettable = now.get().saturating_sub(STORE_CLOCK_SLACK_MS);
        let live = stamp(base, forgettable.div_ceil(1_000));

        let new = Entry { digest: claim.digest_with::<D>(), expires };
        let entries = self.entries.as_mut();
        let found = find(entries, &new.digest, live);
        if let Found::Known { at } = found
            && entries.get(at).is_some_and(|entry| entry.expires >= live)
        {
            return Ok(Claimed::Replayed);
        }
        if expires >= live && expires <= self.forgotten {
            return Err(Full::ClockSetBack);
        }
        if self.earliest >= live {
            return Err(Full::NoRoom);
        }
        match place(entries, found, new, live) {
            Some(old) => {
                self.forgotten = self.forgotten.max(old.expires);
                self.earliest = 0;
                Ok(Claimed::Fresh)
            }
            None => {
                self.earliest = entries.iter().map(|entry| entry.expires).min().unwrap_or(0);
                Err(Full::NoRoom)
            }
        }
    }
}

impl<S: AsRef<[Entry]>, D> fmt::Debug for ReplayWindow<S, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReplayWindow({} entries)", self.entries.as_ref().len())
    }
}

/// A Unix second as entries hold it: 1 and more, and the largest for what is too far away.
fn stamp(base: u64, second: u64) -> u32 {
    u32::try_from(second.saturating_sub(base).saturating_add(1)).unwrap_or(u32::MAX)
}

/// Where a digest stands, or where it belongs.
enum Found {
    Known {
        at: usize,
    },
    Missing {
        /// The place where it belongs.
        at: usize,
        /// A place on the way to `at` whose entry may be forgotten.
        spare: Option<usize>,
        /// Whether `at` was found, and not just all looked at.
        ends: bool,
    },
}

/// Entries stand in the order of their homes, each at its home or behind it (Robin Hood hashing
/// with linear probing). What may be forgotten stays in its place, and so in the order, until it
/// is overwritten.
fn find(entries: &[Entry], digest: &[u8; 12], live: u32) -> Found {
    let mut at = home(digest, entries.len());
    let mut spare = None;
    for distance in 0..entries.len() {
        let Some(entry) = entries.get(at) else { break };
        if entry.expires == 0 || displacement(entry, at, entries.len()) < distance {
            return Found::Missing { at, spare, ends: true };
        }
        if entry.digest == *digest {
            return Found::Known { at };
        }
        if entry.expires < live {
            spare = Some(at);
        }
        at = next(at, entries.len());
    }
    Found::Missing { at, spare, ends: false }
}

/// Puts an entry where it belongs, over one that may be forgotten, which it returns; `None` when
/// there is none.
fn place(entries: &mut [Entry], found: Found, new: Entry, live: u32) -> Option<Entry> {
    let len = entries.len();
    let (at, spare, ends) = match found {
        Found::Known { at } => return replace(entries, at, new),
        Found::Missing { at, spare, ends } => (at, spare, ends),
    };
    if ends && entries.get(at).is_some_and(|entry| entry.expires < live) {
        return replace(entries, at, new);
    }
    if let Some(spare) = spare {
        // Those between move one back, towards their homes.
        let old = entries.get(spare).copied();
        let mut hole = spare;
        loop {
            let behind = next(hole, len);
            if behind == at {
                break;
            }
            let moved = entries.get(behind).copied()?;
            replace(entries, hole, moved)?;
            hole = behind;
        }
        replace(entries, hole, new)?;
        return old;
    }
    // Those from here to the next free place move one on. All before `at`, from the home on, are
    // live, so none moves past its home.
    let (before, behind) = entries.split_at_checked(at)?;
    behind.iter().chain(before).find(|entry| entry.expires < live)?;
    let (mut carried, mut at) = (new, at);
    loop {
        carried = replace(entries, at, carried)?;
        if carried.expires < live {
            return Some(carried);
        }
        at = next(at, len);
    }
}

fn replace(entries: &mut [Entry], at: usize, new: Entry) -> Option<Entry> {
    entries.get_mut(at).map(|entry| core::mem::replace(entry, new))
}

/// Where a digest would like to stand: in proportion to its first 32 bits, so without a division.
fn home(digest: &[u8; 12], len: usize) -> usize {
    let [a, b, c, d, ..] = *digest;
    let part = u64::from(u32::from_be_bytes([a, b, c, d]));
    let place = part.wrapping_mul(len as u64) >> 32;
    // Below `len`.
    place as usize
}

fn displacement(entry: &Entry, at: usize, len: usize) -> usize {
    let home = home(&entry.digest, len);
    match at.checked_sub(home) {
        Some(distance) => distance,
        None => at.wrapping_add(len).wrapping_sub(home),
    }
}

const fn next(at: usize, len: usize) -> usize {
    let next = at.wrapping_add(1);
    if next >= len { 0 } else { next }
}

/// Why a window cannot say whether a nonce is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Full {
    /// All entries are live.
    NoRoom,
    /// The request was signed before, or right after, the window began empty.
    AfterBoot,
    /// The clock was set back, and claims of that time were forgotten meanwhile.
    ClockSetBack,
    /// The request's time is a century away from the first claim's.
    TooFar,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoRoom => "every entry is live; wait, or give the window more entries",
            Self::AfterBoot => {
                "signed before this window began to remember, or too soon after; sign again"
            }
            Self::ClockSetBack => {
                "the clock was set back, and claims of that time are forgotten; sign again later"
            }
            Self::TooFar => {
                "the request's time is a century away from the first claim's; check the clock"
            }
        })
    }
}

impl core::error::Error for Full {}

impl From<Full> for Refusal {
    /// [`NoncesUnavailable`](Refusal::NoncesUnavailable).
    fn from(_: Full) -> Self {
        Self::NoncesUnavailable
    }
}
