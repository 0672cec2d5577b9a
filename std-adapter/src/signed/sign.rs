//! The signing end.

use std::fmt;
use std::io;

use http::{HeaderName, HeaderValue, Request};
use triwire::signed::{
    self, Key, KeyId, MADE_NONCE_LENGTH, MAX_HEADER_LENGTH, Nonce, SIGNATURE_HEADER, Target,
    TargetError,
};
use triwire::time::UnixMillis;

use super::url::{self, UrlError};
use crate::clock::unix_now;
use crate::entropy;

/// A key with its id, ready to sign with.
///
/// ```
/// use triwire::signed::{self, Key, KeyId, MADE_NONCE_LENGTH, MAX_HEADER_LENGTH, Nonce, SIGNATURE_HEADER, Target, TargetError};
/// use triwire_std::signed::Signer;
///
/// let key = Key::new(b"a secret of at least 32 bytes, kept apart")?;
/// let signer = Signer::new(KeyId::parse("shop.1")?, key);
/// let body = br#"{"query":"base 25"}"#;
/// let header = signer.sign("POST", "https://shop.example/assistant/tools", body)?;
/// assert!(header.starts_with("v1 k=shop.1,t="));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Signer {
    id: KeyId,
    key: Key,
}

impl Signer {
    /// Makes a signer.
    #[must_use]
    pub const fn new(id: KeyId, key: Key) -> Self {
        Self { id, key }
    }

    /// Signs a request at this moment and with a nonce of its own; returns the value of
    /// [`SIGNATURE_HEADER`].
    ///
    /// `body` is exactly what will be sent. Each call signs anew: a request that is sent again
    /// needs a header of its own.
    ///
    /// # Errors
    /// The URL is not absolute or has user info, the method is none, or the system gave no
    /// randomness.
    pub fn sign(&self, method: &str, url: &str, body: &[u8]) -> Result<String, SignError> {
        let mut entropy = [0; 16];
        entropy::fill(&mut entropy)?;
        let mut text = [0; MADE_NONCE_LENGTH];
        let nonce = Nonce::make(entropy, &mut text);
        self.sign_with(method, url, body, unix_now(), nonce)
    }

    /// Signs a request with the time and the nonce that are given, which nobody must repeat.
    ///
    /// # Errors
    /// The URL is not absolute or has user info, or the method is none.
    pub fn sign_with(
        &self,
        method: &str,
        url: &str,
        body: &[u8],
        now: UnixMillis,
        nonce: Nonce<'_>,
    ) -> Result<String, SignError> {
        let parts = url::parts(url)?;
        let target = Target::new(method, &parts.host, &parts.path)?;
        let mut out = [0; MAX_HEADER_LENGTH];
        let header = signed::sign(now, self.id, &self.key, target, nonce, body, &mut out);
        // There is room for every header.
        Ok(header.unwrap_or_default().to_owned())
    }

    /// Signs a request that is whole, whatever client sends it: puts the header in, in place of
    /// one that is there.
    ///
    /// Its URI is absolute, and its body goes out as these bytes.
    ///
    /// # Errors
    /// Those of [`sign`](Self::sign).
    pub fn sign_request<B: AsRef<[u8]>>(&self, request: &mut Request<B>) -> Result<(), SignError> {
        let url = request.uri().to_string();
        let header = self.sign(request.method().as_str(), &url, request.body().as_ref())?;
        // Its letters are all fit for a header.
        if let Ok(mut value) = HeaderValue::try_from(header) {
            value.set_sensitive(true);
            request.headers_mut().insert(HeaderName::from_static(SIGNATURE_HEADER), value);
        }
        Ok(())
    }
}

/// Why a request cannot be signed: the caller's mistake, or no randomness.
#[derive(Debug)]
#[non_exhaustive]
pub enum SignError {
    /// The URL is none that can be signed.
    Url(UrlError),
    /// The method is none, or the URL's parts are not.
    Target(TargetError),
    /// The operating system gave no randomness.
    Entropy(io::Error),
}

impl From<UrlError> for SignError {
    fn from(error: UrlError) -> Self {
        Self::Url(error)
    }
}

impl From<TargetError> for SignError {
    fn from(error: TargetError) -> Self {
        Self::Target(error)
    }
}

impl From<io::Error> for SignError {
    fn from(error: io::Error) -> Self {
        Self::Entropy(error)
    }
}

impl fmt::Display for SignError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(error) => error.fmt(f),
            Self::Target(error) => error.fmt(f),
            Self::Entropy(error) => {
                write!(f, "the operating system gave no randomness for a nonce: {error}")
            }
        }
    }
}

impl std::error::Error for SignError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Url(_) | Self::Target(_) => None,
            Self::Entropy(error) => Some(error),
        }
    }
}
