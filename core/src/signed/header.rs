//! The header's value: `v1 k=<key id>,t=<unix seconds>,n=<nonce>,s=<signature>`, both ways.

use core::fmt;

use base64ct::{Base64UrlUnpadded, Encoding};

use super::{MAX_KEY_ID_LENGTH, MAX_NONCE_LENGTH, MAX_TIME, Refusal};
use crate::OutTooSmall;
use crate::json::decimal;

/// Bytes of a signature, and letters of its base64url.
pub(super) const SIGNATURE_SIZE: usize = 32;
const SIGNATURE_LENGTH: usize = 43;

/// The longest time: 2^53 - 1.
const MAX_TIME_LENGTH: usize = 16;

/// The longest value of a header, in bytes: what a buffer needs to hold any.
pub const MAX_HEADER_LENGTH: usize = START.len()
    + MAX_KEY_ID_LENGTH
    + TIME.len()
    + MAX_TIME_LENGTH
    + NONCE.len()
    + MAX_NONCE_LENGTH
    + SIGNATURE.len()
    + SIGNATURE_LENGTH;

const START: &[u8] = b"v1 k=";
const TIME: &[u8] = b",t=";
const NONCE: &[u8] = b",n=";
const SIGNATURE: &[u8] = b",s=";

/// A key's id: 1 to [`MAX_KEY_ID_LENGTH`] of letters, digits, `.`, `_` and `-`. It travels in the
/// header and is no secret.
///
/// ```
/// use triwire::signed::KeyId;
///
/// assert_eq!(KeyId::parse("shop.1").unwrap().as_str(), "shop.1");
/// assert!(KeyId::parse("shop:1").is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId {
    text: [u8; MAX_KEY_ID_LENGTH],
    len: u8,
}

impl KeyId {
    /// Takes an id.
    ///
    /// # Errors
    /// It is empty, too long, or holds another letter.
    pub fn parse(text: &str) -> Result<Self, KeyIdError> {
        Self::from_bytes(text.as_bytes())
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, KeyIdError> {
        let is_of_id =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if let Some(at) = bytes.iter().take(MAX_KEY_ID_LENGTH).position(|byte| !is_of_id(byte)) {
            return Err(KeyIdError::Letter { at });
        }
        let mut text = [0; MAX_KEY_ID_LENGTH];
        match (text.get_mut(..bytes.len()), u8::try_from(bytes.len())) {
            (Some(room), Ok(len @ 1..)) => {
                room.copy_from_slice(bytes);
                Ok(Self { text, len })
            }
            _ => Err(KeyIdError::Length { found: bytes.len() }),
        }
    }

    /// Returns the id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.text.get(..usize::from(self.len)).unwrap_or_default()
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({})", self.as_str())
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for KeyId {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "KeyId({=str})", self.as_str());
    }
}

/// Why a text is no key's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum KeyIdError {
    /// It is empty or too long.
    Length {
        /// Its bytes.
        found: usize,
    },
    /// It holds a letter that no id has.
    Letter {
        /// The letter's offset, in bytes.
        at: usize,
    },
}

impl fmt::Display for KeyIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { found } => {
                write!(
                    f,
                    "expected a key id of 1 to {MAX_KEY_ID_LENGTH} letters, found {found} bytes"
                )
            }
            Self::Letter { at } => write!(
                f,
                "a key id has letters, digits, `.`, `_` and `-` only; what stands at byte {at} is none"
            ),
        }
    }
}

impl core::error::Error for KeyIdError {}

/// Letters of a nonce that is made here: 16 bytes.
pub const MADE_NONCE_LENGTH: usize = 22;

/// A nonce: 1 to [`MAX_NONCE_LENGTH`] letters of base64url, never used twice under one key.
#[derive(Clone, Copy)]
pub struct Nonce<'n>(&'n str);

impl<'n> Nonce<'n> {
    /// Takes a nonce made elsewhere.
    ///
    /// # Errors
    /// It is empty, too long, or holds a letter that base64url has not.
    pub fn parse(text: &'n str) -> Result<Self, NonceError> {
        Self::from_bytes(text.as_bytes())
    }

    fn from_bytes(bytes: &'n [u8]) -> Result<Self, NonceError> {
        let is_of_nonce = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if let Some(at) = bytes.iter().take(MAX_NONCE_LENGTH).position(|byte| !is_of_nonce(byte)) {
            return Err(NonceError::Letter { at });
        }
        match core::str::from_utf8(bytes) {
            Ok(text) if matches!(bytes.len(), 1..=MAX_NONCE_LENGTH) => Ok(Self(text)),
            _ => Err(NonceError::Length { found: bytes.len() }),
        }
    }

    /// Makes a nonce of 16 random bytes, in `out`.
    #[must_use]
    pub fn make(entropy: [u8; 16], out: &'n mut [u8; MADE_NONCE_LENGTH]) -> Self {
        // The array has room for exactly this.
        Self(Base64UrlUnpadded::encode(&entropy, out).unwrap_or_default())
    }

    /// Returns its letters.
    #[must_use]
    pub const fn as_str(&self) -> &'n str {
        self.0
    }
}

impl fmt::Debug for Nonce<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nonce(redacted)")
    }
}

/// Why a text is no nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum NonceError {
    /// It is empty or too long.
    Length {
        /// Its bytes.
        found: usize,
    },
    /// It holds a letter that base64url has not.
    Letter {
        /// The letter's offset, in bytes.
        at: usize,
    },
}

impl fmt::Display for NonceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { found } => {
                write!(
                    f,
                    "expected a nonce of 1 to {MAX_NONCE_LENGTH} letters, found {found} bytes"
                )
            }
            Self::Letter { at } => write!(
                f,
                "a nonce has letters, digits, `_` and `-` only; what stands at byte {at} is none"
            ),
        }
    }
}

impl core::error::Error for NonceError {}

/// What a header says.
#[derive(Clone, Copy)]
pub(super) struct Header<'h> {
    pub(super) key_id: KeyId,
    pub(super) seconds: u64,
    pub(super) nonce: Nonce<'h>,
    pub(super) signature: [u8; SIGNATURE_SIZE],
}

impl<'h> Header<'h> {
    /// Reads a header's value: the version first, then the grammar of version 1.
    pub(super) fn parse(value: &'h [u8]) -> Result<Self, Refusal> {
        let Some(rest) = value.strip_prefix(START) else {
            return Err(if is_other_version(value) {
                Refusal::UnsupportedVersion
            } else {
                Refusal::MalformedSignature
            });
        };
        if value.len() > MAX_HEADER_LENGTH {
            return Err(Refusal::MalformedSignature);
        }
        Self::parameters(rest).ok_or(Refusal::MalformedSignature)
    }

    fn parameters(rest: &'h [u8]) -> Option<Self> {
        let (key_id, rest) = before(rest, TIME)?;
        let (seconds, rest) = before(rest, NONCE)?;
        let (nonce, signature) = before(rest, SIGNATURE)?;
        Some(Self {
            key_id: KeyId::from_bytes(key_id).ok()?,
            seconds: time(seconds)?,
            nonce: Nonce::from_bytes(nonce).ok()?,
            signature: decode(signature)?,
        })
    }

    /// Writes the header's value.
    pub(super) fn write<'o>(&self, out: &'o mut [u8]) -> Result<&'o str, OutTooSmall> {
        let (mut digits, mut letters) = ([0; 20], [0; SIGNATURE_LENGTH]);
        let parts = [
            START,
            self.key_id.as_bytes(),
            TIME,
            decimal(self.seconds, &mut digits),
            NONCE,
            self.nonce.as_str().as_bytes(),
            SIGNATURE,
            // The array has room for exactly this.
            Base64UrlUnpadded::encode(&self.signature, &mut letters).unwrap_or_default().as_bytes(),
        ];
        write_pieces(|take| parts.into_iter().for_each(take), out)
    }
}

/// Writes ASCII pieces one behind the other, in two rounds: what they take, then they themselves.
pub(super) fn write_pieces(
    each: impl Fn(&mut dyn FnMut(&[u8])),
    out: &mut [u8],
) -> Result<&str, OutTooSmall> {
    let mut needed = 0_usize;
    each(&mut |piece| needed = needed.saturating_add(piece.len()));
    let room = out.get_mut(..needed).ok_or(OutTooSmall { needed })?;
    let mut at = 0_usize;
    each(&mut |piece| {
        let end = at.saturating_add(piece.len());
        if let Some(place) = room.get_mut(at..end) {
            place.copy_from_slice(piece);
        }
        at = end;
    });
    Ok(core::str::from_utf8(room).unwrap_or_default())
}

/// `v`, the digits of another number than `1`, a space.
fn is_other_version(value: &[u8]) -> bool {
    let Some(rest) = value.strip_prefix(b"v") else { return false };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    match rest.split_at_checked(digits) {
        Some((digits, [b' ', ..])) => !matches!(digits, b"" | b"1"),
        _ => false,
    }
}

/// Splits at the first comma, which must begin `name`.
fn before<'h>(rest: &'h [u8], name: &[u8]) -> Option<(&'h [u8], &'h [u8])> {
    let comma = rest.iter().position(|byte| *byte == b',')?;
    let (value, rest) = rest.split_at_checked(comma)?;
    Some((value, rest.strip_prefix(name)?))
}

fn time(digits: &[u8]) -> Option<u64> {
    if let [] | [b'0', _, ..] = digits {
        return None;
    }
    // More digits than these are more than the largest.
    if digits.len() > MAX_TIME_LENGTH {
        return None;
    }
    let seconds = digits.iter().try_fold(0_u64, |sum, byte| {
        let digit = char::from(*byte).to_digit(10)?;
        sum.checked_mul(10)?.checked_add(digit.into())
    })?;
    (seconds <= MAX_TIME).then_some(seconds)
}

/// Reads a signature; base64ct refuses trailing bits that are not zero.
fn decode(text: &[u8]) -> Option<[u8; SIGNATURE_SIZE]> {
    let mut signature = [0; SIGNATURE_SIZE];
    if text.len() != SIGNATURE_LENGTH {
        return None;
    }
    Base64UrlUnpadded::decode(text, &mut signature).ok()?;
    Some(signature)
}
