//! The receiver's end, as a straight line of types: each is made by the one before it alone.

use core::fmt;

use sha2::Sha256;
use subtle::ConstantTimeEq;

use super::canonical::{LineMac, Lines, Target};
use super::header::{Header, KeyId, Letters, write_pieces};
use super::key::{Digest256, Key};
use super::{
    Claimed, MAX_KEY_ID_LENGTH, MAX_NONCE_LENGTH, Refusal, STORE_CLOCK_SLACK_MS, Window, is_timely,
};
use crate::OutTooSmall;
use crate::time::UnixMillis;

/// A well-formed header, as it came: nothing is known about it but what it says.
#[must_use]
pub struct Presented<'h> {
    header: Header<'h>,
    seconds: u64,
}

impl<'h> Presented<'h> {
    /// Reads the values of all signature headers of a request, without the white space that HTTP
    /// allows around them.
    ///
    /// # Errors
    /// [`MissingSignature`](Refusal::MissingSignature) for none,
    /// [`MalformedSignature`](Refusal::MalformedSignature) for more than one; of one,
    /// [`UnsupportedVersion`](Refusal::UnsupportedVersion) or else `MalformedSignature`.
    #[inline]
    pub fn parse(values: impl IntoIterator<Item = &'h [u8]>) -> Result<Self, Refusal> {
        let mut values = values.into_iter();
        match (values.next(), values.next()) {
            (None, _) => Err(Refusal::MissingSignature),
            (Some(value), None) => {
                Header::parse(value).map(|(header, seconds)| Self { header, seconds })
            }
            (Some(_), Some(_)) => Err(Refusal::MalformedSignature),
        }
    }

    /// Judges the time, before anything is looked up.
    ///
    /// # Errors
    /// [`OutsideWindow`](Refusal::OutsideWindow).
    #[inline]
    pub fn check(self, now: UnixMillis, window: Window) -> Result<Timely<'h>, Refusal> {
        if !is_timely(self.seconds, now, window) {
            return Err(Refusal::OutsideWindow);
        }
        Ok(Timely { header: self.header, seconds: self.seconds, window })
    }
}

impl fmt::Debug for Presented<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Presented({:?})", KeyId::of(self.header.key_id))
    }
}

/// A header whose time is within the window: a key may be looked up for it. Who has none of that
/// id refuses with [`UnknownKey`](Refusal::UnknownKey), who cannot look with
/// [`KeysUnavailable`](Refusal::KeysUnavailable).
#[must_use]
pub struct Timely<'h> {
    header: Header<'h>,
    seconds: u64,
    window: Window,
}

impl<'h> Timely<'h> {
    /// Returns the id of the key that is said to have signed.
    #[must_use]
    pub fn key_id(&self) -> KeyId {
        KeyId::of(self.header.key_id)
    }

    /// Goes on with the key of that id, and with what the request was asked of as this end sees
    /// it.
    #[inline]
    pub fn with<D: Digest256>(self, target: Target<'_>, key: &Key<D>) -> Verification<'h, D> {
        let Header { key_id, time, nonce, .. } = self.header;
        let mac = Lines::new(key_id, time, nonce, target).begin(key);
        Verification {
            header: self.header,
            seconds: self.seconds,
            window: self.window,
            mac,
            body: D::new(),
        }
    }
}

impl fmt::Debug for Timely<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timely({:?})", KeyId::of(self.header.key_id))
    }
}

/// A verification that is fed the body as it arrives. A body past the caller's limit ends it by
/// dropping it.
#[must_use]
pub struct Verification<'h, D: Digest256 = Sha256> {
    header: Header<'h>,
    seconds: u64,
    window: Window,
    mac: LineMac<D>,
    body: D,
}

impl<D: Digest256> Verification<'_, D> {
    /// Takes the next piece of the body; where it is cut carries no meaning.
    #[inline]
    pub fn feed(&mut self, body: &[u8]) {
        self.body.update(body);
    }

    /// Ends the body and judges. `now` is a fresh reading of the clock: a request that was in time
    /// when its header came, and is not any more, is refused.
    ///
    /// # Errors
    /// [`OutsideWindow`](Refusal::OutsideWindow), then
    /// [`WrongSignature`](Refusal::WrongSignature).
    #[inline]
    pub fn finish(self, now: UnixMillis) -> Result<Genuine, Refusal> {
        if !is_timely(self.seconds, now, self.window) {
            return Err(Refusal::OutsideWindow);
        }
        let signature = self.mac.finish(&self.body.finalize());
        if !is_same(&signature, self.header.signature) {
            return Err(Refusal::WrongSignature);
        }
        Ok(Genuine::new(&self.header, self.seconds, self.window))
    }
}

impl<D: Digest256> fmt::Debug for Verification<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Verification({:?})", KeyId::of(self.header.key_id))
    }
}

/// Compares in constant time, eight letters at once and those left over one by one.
fn is_same(one: &Letters, other: &Letters) -> bool {
    let ((one, one_rest), (other, other_rest)) = (one.as_chunks::<8>(), other.as_chunks::<8>());
    let words = one.iter().zip(other).fold(one_rest.ct_eq(other_rest), |same, (one, other)| {
        same & u64::from_ne_bytes(*one).ct_eq(&u64::from_ne_bytes(*other))
    });
    words.into()
}

/// A request that is genuine and in time. Only [`Verification::finish`] makes one, and only a
/// claim of its nonce makes it [`Accepted`].
#[must_use]
pub struct Genuine {
    key_id: KeyId,
    nonce: [u8; MAX_NONCE_LENGTH],
    nonce_len: usize,
    seconds: u64,
    window: Window,
}

impl Genuine {
    #[inline]
    fn new(header: &Header<'_>, seconds: u64, window: Window) -> Self {
        let letters = header.nonce.as_bytes();
        let mut nonce = [0; MAX_NONCE_LENGTH];
        if let Some(place) = nonce.get_mut(..letters.len()) {
            place.copy_from_slice(letters);
        }
        Self { key_id: KeyId::of(header.key_id), nonce, nonce_len: letters.len(), seconds, window }
    }

    /// Returns the id of the key that signed.
    #[must_use]
    pub const fn key_id(&self) -> KeyId {
        self.key_id
    }

    /// Returns what to ask a store of nonces for.
    pub const fn claim(&self) -> Claim<'_> {
        Claim(self)
    }

    /// Returns the last moment at which the request is in time: its own time plus the window.
    #[must_use]
    pub const fn expires_at(&self) -> UnixMillis {
        let seconds = self.seconds.saturating_add(self.window.as_seconds() as u64);
        UnixMillis::new(seconds.saturating_mul(1_000))
    }

    /// Accepts the request when its nonce was new.
    ///
    /// # Errors
    /// [`Replayed`](Refusal::Replayed).
    pub fn accept(self, claimed: Claimed) -> Result<Accepted, Refusal> {
        match claimed {
            Claimed::Fresh => Ok(Accepted { key_id: self.key_id }),
            Claimed::Replayed => Err(Refusal::Replayed),
        }
    }

    fn nonce(&self) -> &[u8] {
        self.nonce.get(..self.nonce_len).unwrap_or_default()
    }
}

impl fmt::Debug for Genuine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Genuine({:?})", self.key_id)
    }
}

/// The longest name of a claim, in bytes.
pub const MAX_CLAIM_NAME_LENGTH: usize = MAX_KEY_ID_LENGTH + 1 + MAX_NONCE_LENGTH;

/// A claim of a genuine request's nonce: what a store must grant once, and how long it must
/// remember that.
#[derive(Clone, Copy)]
#[must_use]
pub struct Claim<'g>(&'g Genuine);

impl<'g> Claim<'g> {
    /// Returns the id of the key that signed.
    #[must_use]
    pub const fn key_id(self) -> KeyId {
        self.0.key_id
    }

    /// Writes the claim's name, `<key id>:<nonce>`: the same nonce under two keys is two claims.
    /// It is what [`Display`](fmt::Display) writes.
    ///
    /// # Errors
    /// `out` is too small; [`MAX_CLAIM_NAME_LENGTH`] bytes hold any.
    pub fn write_name(self, out: &mut [u8]) -> Result<&str, OutTooSmall> {
        let parts = [self.0.key_id.as_bytes(), b":", self.0.nonce()];
        write_pieces(|take| parts.into_iter().for_each(take), out)
    }

    /// Returns the first 96 bits of the name's SHA-256, for stores that keep many.
    #[must_use]
    pub fn digest(self) -> [u8; 12] {
        self.digest_with::<Sha256>()
    }

    /// Returns the same, computed by another digest than the software's.
    #[must_use]
    pub fn digest_with<D: Digest256>(self) -> [u8; 12] {
        let mut name = [0; MAX_CLAIM_NAME_LENGTH];
        let name = self.write_name(&mut name).unwrap_or_default();
        let hash = D::digest(name);
        hash.first_chunk().copied().unwrap_or_default()
    }

    /// Returns when the request was signed, by its own word.
    #[must_use]
    pub const fn signed_at(self) -> UnixMillis {
        UnixMillis::new(self.0.seconds.saturating_mul(1_000))
    }

    /// Returns the last moment at which the request is in time: its own time plus the window.
    #[must_use]
    pub const fn expires_at(self) -> UnixMillis {
        self.0.expires_at()
    }

    /// Returns the last moment, by its own clock, at which a store must still remember the claim:
    /// [`STORE_CLOCK_SLACK_MS`] past [`expires_at`](Self::expires_at).
    #[must_use]
    pub const fn forget_after(self) -> UnixMillis {
        self.expires_at().saturating_add(STORE_CLOCK_SLACK_MS)
    }
}

impl fmt::Display for Claim<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.write_name(&mut [0; MAX_CLAIM_NAME_LENGTH]).unwrap_or_default())
    }
}

impl fmt::Debug for Claim<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Claim({:?}, nonce redacted)", self.0.key_id)
    }
}

/// A request that may be acted on: genuine, in time, and never seen before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub struct Accepted {
    /// The id of the key that signed: who the request is from.
    pub key_id: KeyId,
}
