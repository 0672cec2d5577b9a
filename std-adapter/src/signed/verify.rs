//! Verification of a request that is in memory, and of one whose body still comes.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use http::HeaderMap;
use triwire::signed::{
    Accepted, Presented, Refusal, SIGNATURE_HEADER, Target, Timely, Verification, Window,
};
use triwire::time::UnixMillis;

use super::keys::{Keys, LookupError};
use super::url::{self, UrlError};
use crate::clock::unix_now;
use crate::nonces::Nonces;

/// A request as it was received, before anything parsed it.
#[derive(Clone, Copy)]
pub struct Received<'r> {
    /// The method, in any case.
    pub method: &'r str,
    /// The absolute URL that the sender asked for: behind a proxy, the public one.
    pub url: &'r str,
    /// All header lines: one that stands twice is malformed, so a map by name is not enough.
    pub headers: &'r HeaderMap,
    /// The body's bytes.
    pub body: &'r [u8],
}

impl fmt::Debug for Received<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither the signature nor what may be private.
        f.debug_struct("Received")
            .field("method", &self.method)
            .field("body", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// Why a request was refused: the outcome, and for the two unavailable ones the error behind it.
///
/// Answer with [`status`](Self::status) and nothing else; log the rest.
#[derive(Clone, Debug)]
pub struct Refused {
    /// The contract's outcome.
    pub reason: Refusal,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl Refused {
    /// Returns the status to answer with: 503 when keys or nonces were unavailable, else 401.
    #[must_use]
    pub const fn status(&self) -> u16 {
        self.reason.status()
    }

    fn by(reason: Refusal, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { reason, source: Some(Arc::from(error.into())) }
    }
}

impl From<Refusal> for Refused {
    fn from(reason: Refusal) -> Self {
        Self { reason, source: None }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason.as_str())
    }
}

impl Error for Refused {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// The receiver's own mistake, which no request can cause: answer 500.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misuse {
    /// The URL is none that could have been signed.
    Url(UrlError),
    /// A key of the receiver is too short.
    Key(triwire::signed::SecretTooShort),
    /// The method or the URL's parts are not the text of a request.
    Target(triwire::signed::TargetError),
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(error) => error.fmt(f),
            Self::Key(error) => error.fmt(f),
            Self::Target(error) => error.fmt(f),
        }
    }
}

impl Error for Misuse {}

/// Either why a request is refused, or why it could not be judged.
#[derive(Debug)]
pub(super) enum Unverified {
    Refused(Refused),
    Misuse(Misuse),
}

impl From<Refusal> for Unverified {
    fn from(reason: Refusal) -> Self {
        Self::Refused(reason.into())
    }
}

impl From<Misuse> for Unverified {
    fn from(misuse: Misuse) -> Self {
        Self::Misuse(misuse)
    }
}

/// Verifies a request by the machine's clock: one plain call for those without tower.
///
/// The signature is judged over `body` as it is; parse it only when this gave [`Accepted`]. What
/// may be done is taken from `key_id` of it, never from the path or the body.
///
/// # Errors
/// The outer error is the receiver's own mistake. Whatever a request can be is in the inner one.
///
/// # Cancel safety
/// A call that is dropped may have claimed the nonce; the same request is then replayed.
///
/// ```
/// use std::collections::HashMap;
///
/// use http::{HeaderMap, HeaderValue};
/// use triwire::signed::{Key, KeyId, Refusal, SIGNATURE_HEADER, Window};
/// use triwire_std::nonces::Memory;
/// use triwire_std::signed::{Received, Signer, verify};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (id, secret) = (KeyId::parse("shop.1")?, b"a secret of at least 32 bytes, kept apart");
/// let (method, url, body) = ("POST", "https://shop.example/assistant/tools", br#"{"id":1}"#);
/// let header = Signer::new(id, Key::new(secret)?).sign(method, url, body)?;
///
/// let headers = HeaderMap::from_iter([(SIGNATURE_HEADER.parse()?, HeaderValue::try_from(header)?)]);
/// let keys = HashMap::from([(id, Key::new(secret)?)]);
/// let nonces = Memory::with_capacity(1000);
/// let received = Received { method, url, headers: &headers, body };
/// let accepted = verify(received, &keys, &nonces, Window::default()).await??;
/// assert_eq!(accepted.key_id, id);
/// let again = verify(received, &keys, &nonces, Window::default()).await?.unwrap_err();
/// assert_eq!(again.reason, Refusal::Replayed);
/// # Ok(())
/// # }
/// ```
pub async fn verify(
    received: Received<'_>,
    keys: &impl Keys,
    nonces: &impl Nonces,
    window: Window,
) -> Result<Result<Accepted, Refused>, Misuse> {
    verify_by(received, keys, nonces, window, unix_now).await
}

/// Does what [`verify`] does, by the clock that is given: for tests, and for receivers whose
/// machine's clock is not the one to trust.
///
/// # Errors
/// Those of [`verify`].
///
/// # Cancel safety
/// That of [`verify`].
pub async fn verify_by(
    received: Received<'_>,
    keys: &impl Keys,
    nonces: &impl Nonces,
    window: Window,
    clock: impl Fn() -> UnixMillis,
) -> Result<Result<Accepted, Refused>, Misuse> {
    let judged = async {
        let timely = present(received.headers, clock(), window)?;
        let parts = url::parts(received.url).map_err(Misuse::Url)?;
        let target = Target::new(received.method, &parts.host, &parts.path);
        let mut verification = begin(timely, target.map_err(Misuse::Target)?, keys).await?;
        verification.feed(received.body);
        settle(verification, clock(), nonces).await
    };
    match judged.await {
        Ok(accepted) => Ok(Ok(accepted)),
        Err(Unverified::Refused(refused)) => Ok(Err(refused)),
        Err(Unverified::Misuse(misuse)) => Err(misuse),
    }
}

/// Judges the header alone.
pub(super) fn present(
    headers: &HeaderMap,
    now: UnixMillis,
    window: Window,
) -> Result<Timely<'_>, Unverified> {
    let lines = headers.get_all(SIGNATURE_HEADER).into_iter().map(|value| value.as_bytes());
    Ok(Presented::parse(lines)?.check(now, window)?)
}

/// Looks the key up.
pub(super) async fn begin<'h>(
    timely: Timely<'h>,
    target: Target<'_>,
    keys: &impl Keys,
) -> Result<Verification<'h>, Unverified> {
    match keys.find(timely.key_id()).await {
        Ok(Some(key)) => Ok(timely.with(target, &key)),
        Ok(None) => Err(Refusal::UnknownKey.into()),
        Err(LookupError::TooShort(error)) => Err(Misuse::Key(error).into()),
        Err(LookupError::Unavailable(error)) => {
            Err(Unverified::Refused(Refused::by(Refusal::KeysUnavailable, error)))
        }
    }
}

/// Judges the signature, then claims the nonce.
pub(super) async fn settle(
    verification: Verification<'_>,
    now: UnixMillis,
    nonces: &impl Nonces,
) -> Result<Accepted, Unverified> {
    let genuine = verification.finish(now)?;
    let claimed = nonces
        .claim(genuine.claim())
        .await
        .map_err(|error| Unverified::Refused(Refused::by(Refusal::NoncesUnavailable, error)))?;
    Ok(genuine.accept(claimed)?)
}
