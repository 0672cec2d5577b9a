//! Secrets, as the states that HMAC needs of them.

use core::fmt;

use hmac::digest::FixedOutput;
use hmac::digest::block_api::OutputSizeUser;
use hmac::digest::typenum::U32;
use hmac::{EagerHash, Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::MIN_SECRET_BYTES;
use super::header::SIGNATURE_SIZE;

/// SHA-256, by whoever computes it: [`Sha256`] in software (with the instructions of the processor
/// where they are found), or the hash unit of a microcontroller behind the same traits.
///
/// Every type with digest's block-level traits and an output of 32 bytes has it; there is nothing
/// to implement here.
pub trait Digest256:
    EagerHash<Core: OutputSizeUser<OutputSize = U32>> + OutputSizeUser<OutputSize = U32>
{
}

impl<D> Digest256 for D where
    D: EagerHash<Core: OutputSizeUser<OutputSize = U32>> + OutputSizeUser<OutputSize = U32>
{
}

/// A shared secret, as HMAC's two states after the block that is made of it: a kept key saves two
/// compressions each time. It is shown nowhere, and wiped when it drops.
///
/// ```
/// use triwire::signed::Key;
///
/// let key = Key::new(b"a shared secret of at least 32 bytes")?;
/// assert_eq!(format!("{key:?}"), "Key(redacted)");
/// assert_eq!(Key::new(b"too short").unwrap_err().found, 9);
/// # Ok::<(), triwire::signed::SecretTooShort>(())
/// ```
///
/// # Sizes
///
/// About 160 bytes with [`Sha256`].
#[derive(Clone)]
pub struct Key<D: Digest256 = Sha256> {
    pub(super) mac: Hmac<D>,
}

impl Key {
    /// Takes the bytes of a secret, for SHA-256 in software.
    ///
    /// # Errors
    /// It is shorter than [`MIN_SECRET_BYTES`].
    pub fn new(secret: &[u8]) -> Result<Self, SecretTooShort> {
        Self::with_digest(secret)
    }
}

impl<D: Digest256> Key<D> {
    /// Takes the bytes of a secret, for the digest named by the type.
    ///
    /// # Errors
    /// It is shorter than [`MIN_SECRET_BYTES`].
    pub fn with_digest(secret: &[u8]) -> Result<Self, SecretTooShort> {
        match Hmac::new_from_slice(secret) {
            Ok(mac) if secret.len() >= MIN_SECRET_BYTES => Ok(Self { mac }),
            _ => Err(SecretTooShort { found: secret.len() }),
        }
    }

    /// The MAC of one short message.
    pub(super) fn mac_of(&self, message: &[u8]) -> [u8; SIGNATURE_SIZE] {
        let mut mac = self.mac.clone();
        mac.update(message);
        mac.finalize_fixed().into()
    }
}

impl<D: Digest256> fmt::Debug for Key<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(redacted)")
    }
}

#[cfg(feature = "defmt")]
impl<D: Digest256> defmt::Format for Key<D> {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "Key(redacted)");
    }
}

/// A secret shorter than [`MIN_SECRET_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct SecretTooShort {
    /// Its bytes.
    pub found: usize,
}

impl fmt::Display for SecretTooShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "expected a secret of at least {MIN_SECRET_BYTES} bytes, found {}; make a random one",
            self.found
        )
    }
}

impl core::error::Error for SecretTooShort {}
