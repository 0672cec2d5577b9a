//! Signed requests on a device: a sender without a random source, and a receiver that remembers
//! nonces in an array. Both refuse to do anything before the [`Clock`] was told the time.
//!
//! ```
//! use triwire::signed::{Entry, Key, KeyId, MAX_HEADER_LENGTH, Refusal, Target, Window};
//! use triwire::time::{Instant, UnixMillis};
//! use triwire_embedded::clock::Clock;
//! use triwire_embedded::signed::{Receiver, Refused, Signer};
//!
//! let secret = b"a secret of at least 32 bytes, kept apart";
//! let target = Target::new("POST", "mcu.local", "/tools")?;
//! let body = b"{\"relay\":1}";
//!
//! // The sender. `boot` is a count that the device keeps over restarts.
//! let (boot, now) = (7, Instant::from_millis(900));
//! let mut clock = Clock::new();
//! clock.offer(now, UnixMillis::new(1_800_000_000_000)); // from the line's reset packet
//! let mut signer = Signer::new(KeyId::parse("mcu.1")?, Key::new(secret)?, boot);
//! let mut out = [0; MAX_HEADER_LENGTH];
//! let header = signer.sign(&clock, now, target, body, &mut out)?;
//!
//! // The receiver, on another device with 64 entries of 16 bytes.
//! let key = Key::new(secret)?;
//! let mut receiver = Receiver::new([Entry::EMPTY; 64], Window::default());
//! let mut clock = Clock::new();
//! let header = [header.as_bytes()];
//! assert_eq!(receiver.present(&clock, now, header).unwrap_err(), Refused::ClockUnset);
//!
//! clock.offer(now, UnixMillis::new(1_799_999_600_000)); // it started 400 s earlier
//! let now = now.saturating_add(core::time::Duration::from_secs(400));
//! let mut verification = receiver.present(&clock, now, header)?.with(target, &key);
//! verification.feed(body); // in pieces, as they come
//! let accepted = receiver.accept(&clock, now, verification)?;
//! assert_eq!(accepted.key_id.as_str(), "mcu.1");
//!
//! let mut again = receiver.present(&clock, now, header)?.with(target, &key);
//! again.feed(body);
//! let replayed = receiver.accept(&clock, now, again);
//! assert_eq!(replayed.unwrap_err(), Refused::Request(Refusal::Replayed));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use core::fmt;

use triwire::OutTooSmall;
use triwire::signed::{
    Accepted, Digest256, Entry, Key, KeyId, MADE_NONCE_LENGTH, Nonce, Presented, Refusal,
    ReplayWindow, Sha256, Target, Timely, Verification, Window, sign,
};
use triwire::time::{ClockUnset, Instant};

use crate::clock::Clock;

/// A sender whose nonces come from counters.
///
/// No nonce comes twice as long as no two boots share both their count and the time they were
/// told. A device that keeps no count gives 0 and relies on the time alone: it must not be told
/// the same ms in two boots.
pub struct Signer<D: Digest256 = Sha256> {
    id: KeyId,
    key: Key<D>,
    boot: u32,
    /// Messages signed since boot; none when the counter is used up.
    count: Option<u32>,
}

impl<D: Digest256> Signer<D> {
    /// Makes a sender in the device's `boot`-th run.
    pub const fn new(id: KeyId, key: Key<D>, boot: u32) -> Self {
        Self { id, key, boot, count: Some(0) }
    }

    /// Signs a request and writes the header's value into `out`, which holds any with
    /// [`MAX_HEADER_LENGTH`](triwire::signed::MAX_HEADER_LENGTH) bytes.
    ///
    /// # Errors
    /// The time is not known yet, `out` is too small, or 2^32 messages were signed since boot.
    pub fn sign<'o>(
        &mut self,
        clock: &Clock,
        now: Instant,
        target: Target<'_>,
        body: &[u8],
        out: &'o mut [u8],
    ) -> Result<&'o str, SignError> {
        let (unix, told) = (clock.unix(now)?, clock.told()?);
        let count = self.count.ok_or(SignError::Exhausted)?;
        let mut text = [0; MADE_NONCE_LENGTH];
        let nonce = Nonce::counted(&self.key, self.boot, told, count, &mut text)?;
        // Used up even when it is not sent: better a number too many than one twice.
        self.count = count.checked_add(1);
        Ok(sign(unix, self.id, &self.key, target, nonce, body, out)?)
    }
}

impl<D: Digest256> fmt::Debug for Signer<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Why a request cannot be signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum SignError {
    /// The time is not known yet.
    ClockUnset,
    /// The header does not fit.
    OutTooSmall(OutTooSmall),
    /// As many messages as there are numbers were signed since boot: restart.
    Exhausted,
}

impl From<ClockUnset> for SignError {
    fn from(_: ClockUnset) -> Self {
        Self::ClockUnset
    }
}

impl From<OutTooSmall> for SignError {
    fn from(error: OutTooSmall) -> Self {
        Self::OutTooSmall(error)
    }
}

impl fmt::Display for SignError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClockUnset => ClockUnset.fmt(f),
            Self::OutTooSmall(error) => error.fmt(f),
            Self::Exhausted => f.write_str("every nonce of this boot is used up; restart"),
        }
    }
}

impl core::error::Error for SignError {}

/// A receiver that remembers nonces in `S`: an array of [`Entry`], 16 bytes for each request that
/// may be accepted within twice the window.
///
/// It begins empty at boot, so what was signed before it can have been seen is refused for one
/// window: a sender tries again.
pub struct Receiver<S, D: Digest256 = Sha256> {
    window: Window,
    seen: ReplayWindow<S, D>,
    /// Whether it knows when it began.
    begun: bool,
}

impl<S: AsRef<[Entry]> + AsMut<[Entry]>, D: Digest256> Receiver<S, D> {
    /// Makes a receiver.
    pub fn new(entries: S, window: Window) -> Self {
        Self { window, seen: ReplayWindow::with_digest(entries), begun: false }
    }

    /// Judges the values of all signature headers of a request, before a key is looked up.
    ///
    /// # Errors
    /// The time is not known yet, or the request is refused.
    pub fn present<'h>(
        &mut self,
        clock: &Clock,
        now: Instant,
        headers: impl IntoIterator<Item = &'h [u8]>,
    ) -> Result<Timely<'h>, Refused> {
        let (unix, told) = (clock.unix(now)?, clock.told()?);
        if !self.begun {
            self.seen.after_boot(told, self.window);
            self.begun = true;
        }
        Ok(Presented::parse(headers)?.check(unix, self.window)?)
    }

    /// Judges the signature when the body is complete, and claims the nonce.
    ///
    /// # Errors
    /// The request is refused.
    pub fn accept(
        &mut self,
        clock: &Clock,
        now: Instant,
        verification: Verification<'_, D>,
    ) -> Result<Accepted, Refused> {
        let unix = clock.unix(now)?;
        let genuine = verification.finish(unix)?;
        let claimed = self.seen.claim(unix, genuine.claim()).map_err(Refusal::from)?;
        Ok(genuine.accept(claimed)?)
    }
}

impl<S, D: Digest256> fmt::Debug for Receiver<S, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("window", &self.window).finish_non_exhaustive()
    }
}

/// Why a device refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Refused {
    /// It was not told the time yet, and can judge no request.
    ClockUnset,
    /// The contract's outcome.
    Request(Refusal),
}

impl Refused {
    /// Returns the word for the log.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClockUnset => "clock_unset",
            Self::Request(refusal) => refusal.as_str(),
        }
    }

    /// Returns the status to answer with; without the time it is the receiver that fails.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::ClockUnset => Refusal::NoncesUnavailable.status(),
            Self::Request(refusal) => refusal.status(),
        }
    }
}

impl From<ClockUnset> for Refused {
    fn from(_: ClockUnset) -> Self {
        Self::ClockUnset
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self::Request(refusal)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClockUnset => ClockUnset.fmt(f),
            Self::Request(refusal) => refusal.fmt(f),
        }
    }
}

impl core::error::Error for Refused {}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use triwire::time::UnixMillis;

    const NOW: Instant = Instant::from_millis(1);
    const HEADER: usize = triwire::signed::MAX_HEADER_LENGTH;

    fn key() -> Key {
        Key::new(&[7; 32]).unwrap()
    }

    fn target() -> Target<'static> {
        Target::new("POST", "mcu", "/t").unwrap()
    }

    fn signer(boot: u32) -> Signer {
        Signer::new(KeyId::parse("mcu.1").unwrap(), key(), boot)
    }

    fn at(seconds: u64) -> Clock {
        let mut clock = Clock::new();
        clock.offer(NOW, UnixMillis::new(seconds * 1000));
        clock
    }

    #[test]
    fn nonces_differ_by_message_boot_and_time() {
        // rule: SIGN-25
        let mut seen = std::vec::Vec::<[u8; MADE_NONCE_LENGTH]>::new();
        let (mut one, mut two, mut three) = (signer(1), signer(2), signer(1));
        for (signer, seconds) in [(&mut one, 900), (&mut two, 900), (&mut three, 901)] {
            for _ in 0..3 {
                let mut out = [0; HEADER];
                let header = signer.sign(&at(seconds), NOW, target(), b"", &mut out).unwrap();
                let nonce = header.split(",n=").nth(1).unwrap().as_bytes();
                let nonce = *nonce.first_chunk().unwrap();
                assert!(!seen.contains(&nonce));
                seen.push(nonce);
            }
        }
        assert_eq!(seen.len(), 9);
    }

    #[test]
    fn nothing_is_signed_or_judged_before_the_time_is_known() {
        let (mut signer, clock) = (signer(1), Clock::new());
        let mut out = [0; HEADER];
        let unset = signer.sign(&clock, NOW, target(), b"", &mut out);
        assert_eq!(unset, Err(SignError::ClockUnset));
        let mut receiver: Receiver<_> = Receiver::new([Entry::EMPTY; 1], Window::default());
        // Also what is no header at all: nothing is looked at.
        let none: [&[u8]; 0] = [];
        let refused = receiver.present(&clock, NOW, none).unwrap_err();
        assert_eq!((refused, refused.status()), (Refused::ClockUnset, 503));
    }

    #[test]
    fn what_may_have_been_seen_before_the_boot_is_refused() {
        // rule: SIGN-23
        let mut receiver: Receiver<_> = Receiver::new([Entry::EMPTY; 4], Window::default());
        let clock = at(10_000);
        for (seconds, expected) in [
            (9_900, Err(Refused::Request(Refusal::NoncesUnavailable))),
            (10_300, Err(Refused::Request(Refusal::NoncesUnavailable))),
            (10_301, Ok("mcu.1")),
        ] {
            let mut out = [0; HEADER];
            let header = signer(1).sign(&at(seconds), NOW, target(), b"", &mut out).unwrap();
            let later = NOW.saturating_add(core::time::Duration::from_secs(150));
            let timely = receiver.present(&clock, later, [header.as_bytes()]).unwrap();
            let accepted = receiver.accept(&clock, later, timely.with(target(), &key()));
            assert_eq!(
                accepted.as_ref().map(|accepted| accepted.key_id.as_str()),
                expected.as_ref().map(|id| *id)
            );
        }
    }

    #[test]
    fn numbers_that_are_used_up_end_signing() {
        let mut signer = signer(1);
        signer.count = Some(u32::MAX);
        let mut out = [0; HEADER];
        assert!(signer.sign(&at(1), NOW, target(), b"", &mut out).is_ok());
        let ended = signer.sign(&at(1), NOW, target(), b"", &mut out);
        assert_eq!(ended, Err(SignError::Exhausted));
    }
}
