//! The header's value: `v1 k=<key id>,t=<unix seconds>,n=<nonce>,s=<signature>`, both ways.

use core::fmt;

use base64ct::{Base64UrlUnpadded, Encoding};

use super::letters::{BASE64URL, DIGITS, KEY_ID, LAST, Set};
use super::{MAX_KEY_ID_LENGTH, MAX_NONCE_LENGTH, MAX_TIME, Refusal};
use crate::OutTooSmall;

/// Bytes of a signature, and letters of its base64url.
pub(super) const SIGNATURE_SIZE: usize = 32;
pub(super) const SIGNATURE_LENGTH: usize = 43;

/// A signature as the header has it.
pub(super) type Letters = [u8; SIGNATURE_LENGTH];

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
        match (KEY_ID.first_other(text.as_bytes()), text.len()) {
            (Some(at), _) => Err(KeyIdError::Letter { at }),
            (None, 1..=MAX_KEY_ID_LENGTH) => Ok(Self::of(text.as_bytes())),
            (None, found) => Err(KeyIdError::Length { found }),
        }
    }

    /// Takes letters that were judged: of the set, and as many as there is room for.
    pub(super) fn of(letters: &[u8]) -> Self {
        let mut id = Self { text: [0; MAX_KEY_ID_LENGTH], len: 0 };
        if let Some(place) = id.text.get_mut(..letters.len()) {
            place.copy_from_slice(letters);
            id.len = letters.len() as u8;
        }
        id
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
        f.write_str(self.as_str())
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
pub struct Nonce<'n>(&'n [u8]);

impl<'n> Nonce<'n> {
    /// Takes a nonce made elsewhere.
    ///
    /// # Errors
    /// It is empty, too long, or holds a letter that base64url has not.
    pub fn parse(text: &'n str) -> Result<Self, NonceError> {
        match (BASE64URL.first_other(text.as_bytes()), text.len()) {
            (Some(at), _) => Err(NonceError::Letter { at }),
            (None, 1..=MAX_NONCE_LENGTH) => Ok(Self(text.as_bytes())),
            (None, found) => Err(NonceError::Length { found }),
        }
    }

    /// Makes a nonce of 16 random bytes, in `out`.
    #[must_use]
    pub fn make(entropy: [u8; 16], out: &'n mut [u8; MADE_NONCE_LENGTH]) -> Self {
        // The array has room for exactly this.
        let _ = Base64UrlUnpadded::encode(&entropy, out);
        Self(out)
    }

    /// Returns its letters.
    #[must_use]
    pub fn as_str(&self) -> &'n str {
        core::str::from_utf8(self.0).unwrap_or_default()
    }

    pub(super) const fn as_bytes(&self) -> &'n [u8] {
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
    pub(super) key_id: &'h [u8],
    /// The seconds as they are written: there is one spelling.
    pub(super) time: &'h [u8],
    pub(super) nonce: Nonce<'h>,
    pub(super) signature: &'h Letters,
}

impl<'h> Header<'h> {
    /// Reads a header's value, and its time: the version first, then the grammar of version 1.
    pub(super) fn parse(value: &'h [u8]) -> Result<(Self, u64), Refusal> {
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

    fn parameters(rest: &'h [u8]) -> Option<(Self, u64)> {
        let (key_id, rest) = before(rest, KEY_ID, TIME)?;
        let (time, rest) = before(rest, DIGITS, NONCE)?;
        let (nonce, signature) = before(rest, BASE64URL, SIGNATURE)?;
        if !matches!((key_id.len(), nonce.len()), (1..=MAX_KEY_ID_LENGTH, 1..=MAX_NONCE_LENGTH)) {
            return None;
        }
        let header = Self { key_id, time, nonce: Nonce(nonce), signature: letters(signature)? };
        Some((header, seconds(time)?))
    }

    /// Writes the header's value.
    pub(super) fn write<'o>(&self, out: &'o mut [u8]) -> Result<&'o str, OutTooSmall> {
        let parts = [
            START,
            self.key_id,
            TIME,
            self.time,
            NONCE,
            self.nonce.as_bytes(),
            SIGNATURE,
            self.signature,
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
        if let Some(place) = room.get_mut(at..).and_then(|free| free.get_mut(..piece.len())) {
            place.copy_from_slice(piece);
        }
        at = at.saturating_add(piece.len());
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

/// Splits behind the letters of a set, where `name` must begin.
fn before<'h>(rest: &'h [u8], set: Set, name: &[u8]) -> Option<(&'h [u8], &'h [u8])> {
    let (value, rest) = rest.split_at_checked(set.first_other(rest)?)?;
    Some((value, rest.strip_prefix(name)?))
}

/// Reads digits.
fn seconds(digits: &[u8]) -> Option<u64> {
    if let [] | [b'0', _, ..] = digits {
        return None;
    }
    // More digits than these are more than the largest.
    if digits.len() > MAX_TIME_LENGTH {
        return None;
    }
    let seconds = digits.iter().try_fold(0_u64, |sum, byte| {
        sum.checked_mul(10)?.checked_add(byte.wrapping_sub(b'0').into())
    })?;
    (seconds <= MAX_TIME).then_some(seconds)
}

/// Takes a signature's letters. The last one has two bits that are unused, and zero in one
/// spelling; so equal letters are equal bytes, and nothing need be decoded.
fn letters(text: &[u8]) -> Option<&Letters> {
    let letters: &Letters = text.try_into().ok()?;
    let [start @ .., last] = letters;
    (BASE64URL.has_all(start) && LAST.has_all(&[*last])).then_some(letters)
}

/// Writes a signature's letters, in constant time.
pub(super) fn encode(signature: &[u8; SIGNATURE_SIZE]) -> Letters {
    let mut letters = [0; SIGNATURE_LENGTH];
    // The array has room for exactly this.
    let _ = Base64UrlUnpadded::encode(signature, &mut letters);
    letters
}
