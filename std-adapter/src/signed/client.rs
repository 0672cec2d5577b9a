//! A client that signs exactly the bytes it sends.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Uri};
use triwire::exec::head::JSON_TYPE;

use super::url::{self, UrlError};
use super::{SignError, Signer};
pub use crate::client::http::{ANSWER_LIMIT, Answer, CALL_BOUND, HttpError};
use crate::client::http::{Http, Settings};
#[cfg(feature = "tls")]
use crate::tls::ClientTls;

/// Sends signed requests over connections of its own, which it keeps for the next one. Copies
/// share them.
///
/// Each request is signed as it is sent, with the time and a nonce of its own. Answers are limited
/// in bytes and in time. Redirects are not followed: a signature is good for one address.
///
/// ```no_run
/// use triwire::signed::{Key, KeyId};
/// use triwire_std::signed::{SignedClient, Signer};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let key = Key::new(b"a secret of at least 32 bytes, kept apart")?;
/// let client = SignedClient::builder(Signer::new(KeyId::parse("shop.1")?, key)).build();
/// let answer = client.post("http://localhost:8080/tools", r#"{"query":"base 25"}"#).await?;
/// println!("{}: {} bytes", answer.status, answer.body.len());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SignedClient {
    signer: Signer,
    http: Http,
}

impl SignedClient {
    /// Begins a client that signs with `signer`.
    pub const fn builder(signer: Signer) -> SignedClientBuilder {
        SignedClientBuilder { signer, settings: Settings::DEFAULT }
    }

    /// Posts a JSON body and reads the answer.
    ///
    /// # Errors
    /// The [`SendError`] that says why there is no whole answer. Nothing is sent over plain http,
    /// unless it is to `localhost`.
    ///
    /// # Cancel safety
    /// A dropped future gives the call up; the receiver may have acted on it.
    pub async fn post(&self, url: &str, body: impl Into<Bytes>) -> Result<Answer, SendError> {
        self.send(Method::POST, url, body.into()).await
    }

    /// Asks for what is at `url`.
    ///
    /// # Errors
    /// As [`post`](Self::post).
    ///
    /// # Cancel safety
    /// As [`post`](Self::post).
    pub async fn get(&self, url: &str) -> Result<Answer, SendError> {
        self.send(Method::GET, url, Bytes::new()).await
    }

    async fn send(&self, method: Method, url: &str, body: Bytes) -> Result<Answer, SendError> {
        let has_body = method != Method::GET;
        let canonical = url::private(url).map_err(SignError::Url)?;
        let uri = Uri::try_from(canonical).map_err(|_| SignError::Url(UrlError::NotAbsolute))?;
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static(JSON_TYPE));
        if has_body {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON_TYPE));
        }
        self.signer.sign_request(&mut request)?;
        Ok(self.http.send(request, self.http.bound).await?)
    }
}

impl fmt::Debug for SignedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignedClient")
            .field("signer", &self.signer)
            .field("bound", &self.http.bound)
            .field("limit", &self.http.limit)
            .finish_non_exhaustive()
    }
}

/// Makes a [`SignedClient`].
#[derive(Clone, Debug)]
#[must_use]
pub struct SignedClientBuilder {
    signer: Signer,
    settings: Settings,
}

impl SignedClientBuilder {
    /// Sets how long a call may take, from the connection to the answer's last byte; 30 s unless
    /// set.
    pub const fn timeout(mut self, bound: Duration) -> Self {
        self.settings.bound = bound;
        self
    }

    /// Sets the longest answer that is read, in bytes; 1 MiB unless set.
    pub const fn limit(mut self, limit: usize) -> Self {
        self.settings.limit = limit;
        self
    }

    /// Sets how long a connection may take to come about, name look-up and TLS included; 10 s
    /// unless set.
    pub const fn connect_timeout(mut self, bound: Duration) -> Self {
        self.settings.connect_bound = bound;
        self
    }

    /// Sets whom the receivers are trusted by; the system's roots unless set.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: ClientTls) -> Self {
        self.settings.trust = Some(tls);
        self
    }

    /// Makes the client.
    #[must_use]
    pub fn build(self) -> SignedClient {
        SignedClient { signer: self.signer, http: Http::new(self.settings) }
    }
}

/// Why a signed request has no whole answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum SendError {
    /// It could not be signed, or must not be sent to that URL. Nothing was sent.
    Sign(SignError),
    /// It was not answered.
    Http(HttpError),
}

impl From<SignError> for SendError {
    fn from(error: SignError) -> Self {
        Self::Sign(error)
    }
}

impl From<HttpError> for SendError {
    fn from(error: HttpError) -> Self {
        Self::Http(error)
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sign(error) => error.fmt(f),
            Self::Http(error) => error.fmt(f),
        }
    }
}

impl Error for SendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Sign(error) => error.source(),
            Self::Http(error) => error.source(),
        }
    }
}
