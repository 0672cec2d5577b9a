//! Signed requests: one header says which key signed a request, when, and that nothing of it was
//! changed on its way; a store of nonces says that it came once.
//!
//! ```text
//! assistant-signature: v1 k=<key id>,t=<unix seconds>,n=<nonce>,s=<signature>
//! ```
//!
//! The signature is HMAC-SHA-256 under the shared secret, in base64url, of eight lines joined by
//! newlines, none behind the last:
//!
//! | line | | checked by |
//! | --- | --- | --- |
//! | 1 | `assistant-signature-v1` | |
//! | 2 | the key's id | [`KeyId`] |
//! | 3 | the time, in Unix seconds | at most [`MAX_TIME`] |
//! | 4 | the nonce | [`Nonce`] |
//! | 5 | the method, in upper case | [`Target`] |
//! | 6 | the host, with a port that is not the scheme's own | [`Target`] |
//! | 7 | the path with its query | [`Target`] |
//! | 8 | SHA-256 of the body's bytes, in lower-case hex | |
//!
//! Verification is a straight line, and the types are its order: nothing can be looked up for a
//! request outside the window, and nothing claimed before the signature is known to be genuine.
//!
//! ```text
//! Presented ──check(now, window)──▶ Timely ──with(target, key)──▶ Verification ──feed(body)…
//!     ──finish(now)──▶ Genuine ──claim()──▶ the store ──accept(claimed)──▶ Accepted
//! ```
//!
//! | what is wrong | [`Refusal`] |
//! | --- | --- |
//! | no header | `missing_signature` |
//! | not the grammar above; two headers; a list | `malformed_signature` |
//! | another version than 1 | `unsupported_version` |
//! | the time is further than the window from the receiver's clock | `outside_window` |
//! | the receiver has no key of that id; it cannot look | `unknown_key`; `keys_unavailable` |
//! | the signature is another | `wrong_signature` |
//! | the nonce was claimed before; the store cannot say | `replayed`; `nonces_unavailable` |
//!
//! A sender and a receiver:
//!
//! ```
//! use triwire::signed::{self, Entry, Key, KeyId, Nonce, Presented, ReplayWindow, Target, Window};
//! use triwire::time::UnixMillis;
//!
//! let key = Key::new(b"a shared secret of at least 32 bytes")?;
//! let target = Target::new("POST", "shop.example", "/assistant/tools?v=1")?;
//! let body = br#"{"query":"base"}"#;
//!
//! let now = UnixMillis::new(1_800_000_000_000);
//! let (mut text, mut out) = ([0; signed::MADE_NONCE_LENGTH], [0; signed::MAX_HEADER_LENGTH]);
//! let nonce = Nonce::make([7; 16], &mut text); // 16 random bytes, never the same twice
//! let header = signed::sign(now, KeyId::parse("shop.1")?, &key, target, nonce, body, &mut out)?;
//! assert!(header.starts_with("v1 k=shop.1,t=1800000000,n=BwcH"));
//!
//! let mut seen = ReplayWindow::new([Entry::EMPTY; 64]);
//! let mut receive = |now: UnixMillis, body: &[u8]| {
//!     let timely = Presented::parse([header.as_bytes()])?.check(now, Window::default())?;
//!     assert_eq!(timely.key_id().as_str(), "shop.1"); // look the key up, however long it takes
//!     let mut verification = timely.with(target, &key);
//!     for piece in body.chunks(5) {
//!         verification.feed(piece); // as it arrives
//!     }
//!     let genuine = verification.finish(now)?; // the clock is read again: this one decides
//!     let claimed = seen.claim(now, genuine.claim()).map_err(signed::Refusal::from)?;
//!     genuine.accept(claimed)
//! };
//! let later = UnixMillis::new(1_800_000_300_000);
//! assert_eq!(receive(later, body).unwrap().key_id.as_str(), "shop.1");
//! assert_eq!(receive(later, body), Err(signed::Refusal::Replayed));
//! assert_eq!(receive(later, b"{}"), Err(signed::Refusal::WrongSignature));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What the caller must keep
//!
//! - Answer every refusal with its [`status`](Refusal::status) and no detail, and log its word.
//! - Take who sent a request from [`Accepted`], never from its path or body.
//! - Let nothing parse the body before [`Verification::finish`] is done.
//! - The scheme is not signed: serve over TLS only.
//!
//! # Cost
//!
//! Each step works in its arguments and a few hundred bytes of stack; no body is kept. A
//! verification takes the compressions of the body, of the eight lines (3 for short ones) and one
//! more: the secret's own two are kept in the [`Key`].

use core::fmt;

use crate::time::UnixMillis;

mod canonical;
mod header;
mod key;
mod letters;
mod replay;
mod sign;
mod verify;

pub use canonical::{Part, Target, TargetError, lines};
pub use header::{KeyId, KeyIdError, MADE_NONCE_LENGTH, MAX_HEADER_LENGTH, Nonce, NonceError};
pub use key::{Digest256, Key, SecretTooShort};
pub use replay::{Entry, Full, ReplayWindow};
pub use sha2::Sha256;
pub use sign::{Signature, Signing, sign};
pub use verify::{
    Accepted, Claim, Genuine, MAX_CLAIM_NAME_LENGTH, Presented, Timely, Verification,
};

/// The name of the header, in lower case.
pub const SIGNATURE_HEADER: &str = "assistant-signature";

/// How far a request's time may be from the receiver's clock, behind or ahead, in seconds.
pub const SIGNATURE_WINDOW_SECONDS: u32 = 300;

/// The widest window that a receiver may choose, in seconds (our choice; the contract is silent).
pub const MAX_WINDOW_SECONDS: u32 = 86_400;

/// The shortest secret, in bytes.
pub const MIN_SECRET_BYTES: usize = 32;

/// The longest id of a key, in letters (our choice; the contract is silent).
pub const MAX_KEY_ID_LENGTH: usize = 64;

/// The longest nonce, in letters (our choice; the contract is silent).
pub const MAX_NONCE_LENGTH: usize = 128;

/// The last time that a header can name, in Unix seconds: the largest number that every language
/// holds exactly (our choice; the contract is silent).
pub const MAX_TIME: u64 = (1 << 53) - 1;

/// How long a store keeps a nonce beyond the last moment at which its request is accepted, in ms:
/// by so much its clock may be ahead of the receiver's (our choice; the contract is silent).
pub const STORE_CLOCK_SLACK_MS: u64 = 60_000;

/// How far a request's time may be from the receiver's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Window(u32);

impl Window {
    /// Makes a window of 0 to [`MAX_WINDOW_SECONDS`].
    ///
    /// # Errors
    /// It is wider.
    pub const fn seconds(seconds: u32) -> Result<Self, WindowTooWide> {
        if seconds > MAX_WINDOW_SECONDS {
            Err(WindowTooWide { seconds })
        } else {
            Ok(Self(seconds))
        }
    }

    /// Returns its seconds.
    #[must_use]
    pub const fn as_seconds(self) -> u32 {
        self.0
    }

    const fn as_millis(self) -> u64 {
        (self.0 as u64).saturating_mul(1_000)
    }
}

impl Default for Window {
    /// The contract's: [`SIGNATURE_WINDOW_SECONDS`].
    fn default() -> Self {
        Self(SIGNATURE_WINDOW_SECONDS)
    }
}

/// A window wider than [`MAX_WINDOW_SECONDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct WindowTooWide {
    /// The seconds that were asked for.
    pub seconds: u32,
}

impl fmt::Display for WindowTooWide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "expected a window of at most {MAX_WINDOW_SECONDS} seconds, found {}; nonces are kept for twice the window",
            self.seconds
        )
    }
}

impl core::error::Error for WindowTooWide {}

/// Why a request is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Refusal {
    /// There is no signature header.
    MissingSignature,
    /// The header is not as the contract writes it, or there are two.
    MalformedSignature,
    /// The header is of another version than 1.
    UnsupportedVersion,
    /// The request's time is too far from the receiver's clock.
    OutsideWindow,
    /// The receiver has no key of that id.
    UnknownKey,
    /// The signature is not that of this request under that key.
    WrongSignature,
    /// The request, or another with its nonce, was accepted before.
    Replayed,
    /// The key could not be looked up.
    KeysUnavailable,
    /// The store of nonces could not say whether the nonce is new.
    NoncesUnavailable,
}

impl Refusal {
    /// Returns the contract's word, for logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MissingSignature => "missing_signature",
            Self::MalformedSignature => "malformed_signature",
            Self::UnsupportedVersion => "unsupported_version",
            Self::OutsideWindow => "outside_window",
            Self::UnknownKey => "unknown_key",
            Self::WrongSignature => "wrong_signature",
            Self::Replayed => "replayed",
            Self::KeysUnavailable => "keys_unavailable",
            Self::NoncesUnavailable => "nonces_unavailable",
        }
    }

    /// Returns the HTTP status to answer with: 503 where the receiver itself failed, the same 401
    /// for all else.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::KeysUnavailable | Self::NoncesUnavailable => 503,
            _ => 401,
        }
    }
}

impl fmt::Display for Refusal {
    /// Writes the word, and what it means: `outside_window: …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.as_str())?;
        f.write_str(match self {
            Self::MissingSignature => "the request has no signature header",
            Self::MalformedSignature => {
                "expected one header `v1 k=…,t=…,n=…,s=…`, its parts in this order and nothing else"
            }
            Self::UnsupportedVersion => "expected version 1 of the signature",
            Self::OutsideWindow => {
                "the request's time is too far from the receiver's clock; compare both clocks"
            }
            Self::UnknownKey => "the receiver has no key of that id",
            Self::WrongSignature => {
                "the signature is not that of this request under that key; compare the signed lines"
            }
            Self::Replayed => "a request with this nonce was accepted before",
            Self::KeysUnavailable => "the key could not be looked up; try again",
            Self::NoncesUnavailable => {
                "the store of nonces could not say whether the nonce is new; try again"
            }
        })
    }
}

impl core::error::Error for Refusal {}

/// What a store of nonces says to a claim. One that cannot say is
/// [`Refusal::NoncesUnavailable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[must_use]
pub enum Claimed {
    /// The nonce was new, and is taken now.
    Fresh,
    /// The nonce was taken before.
    Replayed,
}

/// Whether a request of Unix second `seconds` is near enough to `now`, at its edges too.
const fn is_timely(seconds: u64, now: UnixMillis, window: Window) -> bool {
    now.abs_diff(UnixMillis::new(seconds.saturating_mul(1_000))) <= window.as_millis()
}
