//! A client that signs exactly the bytes it sends.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Body as _, Incoming};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::time::timeout;
use tower_service::Service;
use triwire::exec::head::JSON_TYPE;

use super::url::{self, UrlError};
use super::{SignError, Signer};
use crate::client::stream::{DialError, Stream, Trust};
#[cfg(feature = "tls")]
use crate::tls::{ClientTls, TlsError};

/// How long a call may take unless told otherwise, from the first byte to the answer's last.
pub const CALL_BOUND: Duration = Duration::from_secs(30);
/// The longest answer that is read unless told otherwise, in bytes.
pub const ANSWER_LIMIT: usize = 1024 * 1024;

/// How long a connection may take to come about, name look-up and TLS included.
const CONNECT_BOUND: Duration = Duration::from_secs(10);

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
    http: legacy::Client<Connector, Full<Bytes>>,
    bound: Duration,
    limit: usize,
}

/// What came back: not judged, and not signed.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: StatusCode,
    /// The whole body.
    pub body: Bytes,
}

impl SignedClient {
    /// Begins a client that signs with `signer`.
    pub const fn builder(signer: Signer) -> SignedClientBuilder {
        SignedClientBuilder {
            signer,
            bound: CALL_BOUND,
            limit: ANSWER_LIMIT,
            connect_bound: CONNECT_BOUND,
            trust: None,
        }
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
        let answering = async {
            let answer = self.http.request(request.map(Full::new)).await.map_err(unsent)?;
            let status = answer.status();
            Ok(Answer { status, body: read(answer.into_body(), self.limit).await? })
        };
        let late = Err(SendError::Late { after: self.bound });
        timeout(self.bound, answering).await.unwrap_or(late)
    }
}

impl fmt::Debug for SignedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignedClient")
            .field("signer", &self.signer)
            .field("bound", &self.bound)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

/// Reads a body of at most `limit` bytes.
async fn read(body: Incoming, limit: usize) -> Result<Bytes, SendError> {
    // What says that it is longer is not waited for.
    if usize::try_from(body.size_hint().lower()).is_ok_and(|least| least > limit) {
        return Err(SendError::TooLarge { limit });
    }
    let mut body = Limited::new(body, limit);
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| match error.downcast::<hyper::Error>() {
            Ok(error) => SendError::Broken { source: error },
            // The only other error of a limited body.
            Err(_) => SendError::TooLarge { limit },
        })?;
        if let Ok(data) = frame.into_data() {
            whole.extend_from_slice(&data);
        }
    }
    Ok(whole.freeze())
}

/// Says why no head of an answer came.
fn unsent(error: legacy::Error) -> SendError {
    let mut source: Option<&(dyn Error + 'static)> = error.source();
    while let Some(inner) = source {
        if let Some(refused) = inner.downcast_ref::<Dial>() {
            let late = || io::Error::from(io::ErrorKind::TimedOut);
            let again = |error: &io::Error| io::Error::new(error.kind(), error.to_string());
            return match &refused.0 {
                DialError::Connect(error) => SendError::Connect { source: again(error) },
                #[cfg(feature = "tls")]
                DialError::Tls(error) => SendError::Tls { source: again(error) },
                DialError::Late => SendError::Connect { source: late() },
            };
        }
        source = inner.source();
    }
    SendError::Broken { source: Box::new(error) }
}

/// Makes a [`SignedClient`].
#[derive(Clone, Debug)]
#[must_use]
pub struct SignedClientBuilder {
    signer: Signer,
    bound: Duration,
    limit: usize,
    connect_bound: Duration,
    trust: Option<Trust>,
}

impl SignedClientBuilder {
    /// Sets how long a call may take, from the connection to the answer's last byte; 30 s unless
    /// set.
    pub const fn timeout(mut self, bound: Duration) -> Self {
        self.bound = bound;
        self
    }

    /// Sets the longest answer that is read, in bytes; 1 MiB unless set.
    pub const fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Sets how long a connection may take to come about, name look-up and TLS included; 10 s
    /// unless set.
    pub const fn connect_timeout(mut self, bound: Duration) -> Self {
        self.connect_bound = bound;
        self
    }

    /// Sets whom the receivers are trusted by; the system's roots unless set.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: ClientTls) -> Self {
        self.trust = Some(tls);
        self
    }

    /// Makes the client.
    #[must_use]
    pub fn build(self) -> SignedClient {
        #[cfg(feature = "tls")]
        let trust = self.trust.map_or_else(ClientTls::system, Ok);
        #[cfg(not(feature = "tls"))]
        let trust = self.trust;
        let connector = Connector { trust, bound: self.connect_bound };
        let http = legacy::Client::builder(TokioExecutor::new()).build(connector);
        SignedClient { signer: self.signer, http, bound: self.bound, limit: self.limit }
    }
}

/// Why a signed request has no whole answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum SendError {
    /// It could not be signed, or must not be sent to that URL. Nothing was sent.
    Sign(SignError),
    /// There is no connection. Nothing was sent.
    Connect {
        /// Why.
        source: io::Error,
    },
    /// The receiver could not be trusted, or does not speak TLS. Nothing was sent.
    #[cfg(feature = "tls")]
    Tls {
        /// Why.
        source: io::Error,
    },
    /// No whole answer came in time.
    Late {
        /// How long was waited.
        after: Duration,
    },
    /// The answer is longer than the limit.
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The connection ended in the middle, or what came is no HTTP.
    Broken {
        /// Why.
        source: Box<dyn Error + Send + Sync>,
    },
}

impl From<SignError> for SendError {
    fn from(error: SignError) -> Self {
        Self::Sign(error)
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sign(error) => error.fmt(f),
            Self::Connect { source } => {
                write!(f, "no connection: {source}; check the address, and that it is up")
            }
            #[cfg(feature = "tls")]
            Self::Tls { source } => {
                write!(f, "no trust: {source}; check the certificate, and whom this side trusts")
            }
            Self::Late { after } => write!(
                f,
                "no whole answer within {} ms; ask again, or allow it more time",
                after.as_millis()
            ),
            Self::TooLarge { limit } => {
                write!(f, "the answer is longer than {limit} bytes, and was not read to its end")
            }
            Self::Broken { source } => write!(f, "the answer broke off: {source}"),
        }
    }
}

impl Error for SendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Sign(error) => error.source(),
            Self::Connect { source } => Some(source),
            #[cfg(feature = "tls")]
            Self::Tls { source } => Some(source),
            Self::Late { .. } | Self::TooLarge { .. } => None,
            Self::Broken { source } => Some(&**source),
        }
    }
}

/// Makes connections for the pool.
#[derive(Clone)]
struct Connector {
    /// Or why there is nobody to trust.
    #[cfg(feature = "tls")]
    trust: Result<Trust, TlsError>,
    #[cfg(not(feature = "tls"))]
    trust: Option<Trust>,
    bound: Duration,
}

/// A [`DialError`] on its way through the pool.
#[derive(Debug)]
struct Dial(DialError);

impl fmt::Display for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no connection")
    }
}

impl Error for Dial {}

impl Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = Dial;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Dial>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Dial>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Self { trust, bound } = self.clone();
        Box::pin(async move {
            let is_https = uri.scheme_str() == Some("https");
            let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
            let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
            #[cfg(feature = "tls")]
            let trust = match &trust {
                _ if !is_https => None,
                Ok(trust) => Some(trust),
                Err(error) => {
                    return Err(Dial(DialError::Tls(io::Error::other(error.clone()))));
                }
            };
            #[cfg(not(feature = "tls"))]
            let trust = trust.as_ref();
            let dialed = Stream::dial((host, port), trust, bound).await;
            dialed.map(TokioIo::new).map_err(Dial)
        })
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}
