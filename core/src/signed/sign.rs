//! The sender's end: a header for a request, and nonces for it.

use core::fmt;

use sha2::Sha256;

use super::canonical::{LineMac, Lines, Target, seconds};
use super::header::{Header, KeyId, Letters, MADE_NONCE_LENGTH, Nonce};
use super::key::{Digest256, Key};
use crate::OutTooSmall;
use crate::json::decimal;
use crate::time::{ClockUnset, UnixMillis};

/// Signs a request whose body is at hand, and writes the header's value. Send the body exactly as
/// it is given here.
///
/// `now` is cut to the second. `out` of [`MAX_HEADER_LENGTH`](super::MAX_HEADER_LENGTH) bytes
/// holds any header.
///
/// # Errors
/// `out` is too small; no nonce is used up then.
pub fn sign<'o, D: Digest256>(
    now: UnixMillis,
    key_id: KeyId,
    key: &Key<D>,
    target: Target<'_>,
    nonce: Nonce<'_>,
    body: &[u8],
    out: &'o mut [u8],
) -> Result<&'o str, OutTooSmall> {
    let mut signing = Signing::new(now, key_id, key, target, nonce);
    signing.feed(body);
    signing.finish().write(out)
}

/// A request on its way to be signed, its body fed in pieces.
///
/// ```
/// use triwire::signed::{Key, KeyId, Nonce, Signing, Target, sign};
/// use triwire::time::UnixMillis;
///
/// let now = UnixMillis::new(1_800_000_000_000);
/// let id = KeyId::parse("shop.1")?;
/// let key = Key::new(&[7; 32])?;
/// let target = Target::new("POST", "shop.example", "/tools")?;
/// let nonce = Nonce::parse("made-elsewhere")?;
///
/// let mut signing = Signing::new(now, id, &key, target, nonce);
/// signing.feed(b"a body ");
/// signing.feed(b"in pieces");
/// let signature = signing.finish();
/// let (mut one, mut other) = ([0; 128], [0; 128]);
/// let header = signature.write(&mut one)?;
/// assert_eq!(header, sign(now, id, &key, target, nonce, b"a body in pieces", &mut other)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct Signing<'n, D: Digest256 = Sha256> {
    key_id: KeyId,
    seconds: u64,
    nonce: Nonce<'n>,
    mac: LineMac<D>,
    body: D,
}

impl<'n, D: Digest256> Signing<'n, D> {
    /// Begins with all but the body. `now` is cut to the second.
    pub fn new(
        now: UnixMillis,
        key_id: KeyId,
        key: &Key<D>,
        target: Target<'_>,
        nonce: Nonce<'n>,
    ) -> Self {
        let seconds = seconds(now);
        let mut digits = [0; 20];
        let time = decimal(seconds, &mut digits);
        let mac = Lines::new(key_id.as_bytes(), time, nonce, target).begin(key);
        Self { key_id, seconds, nonce, mac, body: D::new() }
    }

    /// Takes the next piece of the body.
    pub fn feed(&mut self, body: &[u8]) {
        self.body.update(body);
    }

    /// Ends the body.
    pub fn finish(self) -> Signature<'n> {
        let signature = self.mac.finish(&self.body.finalize());
        Signature { key_id: self.key_id, seconds: self.seconds, nonce: self.nonce, signature }
    }
}

impl<D: Digest256> fmt::Debug for Signing<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signing(redacted)")
    }
}

/// A finished signature, to be written as the header's value.
#[must_use]
pub struct Signature<'n> {
    key_id: KeyId,
    seconds: u64,
    nonce: Nonce<'n>,
    signature: Letters,
}

impl Signature<'_> {
    /// Writes the header's value.
    ///
    /// # Errors
    /// `out` is too small.
    pub fn write<'o>(&self, out: &'o mut [u8]) -> Result<&'o str, OutTooSmall> {
        let mut digits = [0; 20];
        let header = Header {
            key_id: self.key_id.as_bytes(),
            time: decimal(self.seconds, &mut digits),
            nonce: self.nonce,
            signature: &self.signature,
        };
        header.write(out)
    }
}

impl fmt::Debug for Signature<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signature(redacted)")
    }
}

/// What the nonces of a device without a random source are a MAC of, before its counters.
const COUNTED: &[u8; 16] = b"triwire-nonce-1\n";

impl<'n> Nonce<'n> {
    /// Makes a nonce without a random source, in `out`: 16 bytes of a MAC over how often the
    /// device has booted, the time that the last reset of its line gave it, and how many messages
    /// it has signed since. Nobody without the secret can tell them beforehand, and none comes
    /// twice as long as no two messages share all three numbers.
    ///
    /// # Errors
    /// `reset` is 0: no reset gave the time yet, and nothing can be signed.
    pub fn counted<D: Digest256>(
        key: &Key<D>,
        boot: u32,
        reset: UnixMillis,
        count: u32,
        out: &'n mut [u8; MADE_NONCE_LENGTH],
    ) -> Result<Self, ClockUnset> {
        if reset == UnixMillis::default() {
            return Err(ClockUnset);
        }
        let mut message = [0; 32];
        let numbers =
            [&COUNTED[..], &boot.to_be_bytes(), &reset.get().to_be_bytes(), &count.to_be_bytes()];
        for (place, byte) in message.iter_mut().zip(numbers.into_iter().flatten()) {
            *place = *byte;
        }
        let mac = key.mac_of(&message);
        let entropy = mac.first_chunk::<16>().copied().unwrap_or_default();
        Ok(Self::make(entropy, out))
    }
}
