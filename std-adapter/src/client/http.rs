//! HTTP requests that are answered whole, over connections that are kept.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Body as _, Incoming};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::time::timeout;
use tower_service::Service;

use super::stream::{DialError, Stream, Trust};
#[cfg(feature = "tls")]
use crate::tls::{ClientTls, TlsError};

/// How long a call may take unless told otherwise, from the first byte to the answer's last.
pub const CALL_BOUND: Duration = Duration::from_secs(30);
/// The longest answer that is read unless told otherwise, in bytes.
pub const ANSWER_LIMIT: usize = 1024 * 1024;

/// How long a connection may take to come about, name look-up and TLS included.
pub(crate) const CONNECT_BOUND: Duration = Duration::from_secs(10);

/// What came back: not judged.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: StatusCode,
    /// The whole body.
    pub body: Bytes,
}

/// What requests may use.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) bound: Duration,
    pub(crate) limit: usize,
    pub(crate) connect_bound: Duration,
    pub(crate) trust: Option<Trust>,
}

impl Settings {
    pub(crate) const DEFAULT: Self =
        Self { bound: CALL_BOUND, limit: ANSWER_LIMIT, connect_bound: CONNECT_BOUND, trust: None };
}

/// The connections. Copies share them.
#[derive(Clone)]
pub(crate) struct Http {
    pool: legacy::Client<Connector, Full<Bytes>>,
    pub(crate) bound: Duration,
    pub(crate) limit: usize,
}

impl Http {
    pub(crate) fn new(settings: Settings) -> Self {
        let Settings { bound, limit, connect_bound, trust } = settings;
        #[cfg(feature = "tls")]
        let trust = trust.map_or_else(ClientTls::system, Ok);
        let connector = Connector { trust, bound: connect_bound };
        let pool = legacy::Client::builder(TokioExecutor::new()).build(connector);
        Self { pool, bound, limit }
    }

    /// Sends a request and reads the answer, both within `bound`.
    pub(crate) async fn send(
        &self,
        request: Request<Bytes>,
        bound: Duration,
    ) -> Result<Answer, HttpError> {
        let answering = async {
            let answer = self.pool.request(request.map(Full::new)).await.map_err(unsent)?;
            let status = answer.status();
            Ok(Answer { status, body: read(answer.into_body(), self.limit).await? })
        };
        timeout(bound, answering).await.unwrap_or(Err(HttpError::Late { after: bound }))
    }
}

/// Reads a body of at most `limit` bytes.
async fn read(body: Incoming, limit: usize) -> Result<Bytes, HttpError> {
    // What says that it is longer is not waited for.
    if usize::try_from(body.size_hint().lower()).is_ok_and(|least| least > limit) {
        return Err(HttpError::TooLarge { limit });
    }
    let mut body = Limited::new(body, limit);
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| match error.downcast::<hyper::Error>() {
            Ok(error) => HttpError::Broken { source: error },
            // The only other error of a limited body.
            Err(_) => HttpError::TooLarge { limit },
        })?;
        if let Ok(data) = frame.into_data() {
            whole.extend_from_slice(&data);
        }
    }
    Ok(whole.freeze())
}

/// Says why no head of an answer came.
fn unsent(error: legacy::Error) -> HttpError {
    let mut source: Option<&(dyn Error + 'static)> = error.source();
    while let Some(inner) = source {
        if let Some(refused) = inner.downcast_ref::<Dial>() {
            let late = || io::Error::from(io::ErrorKind::TimedOut);
            let again = |error: &io::Error| io::Error::new(error.kind(), error.to_string());
            return match &refused.0 {
                DialError::Connect(error) => HttpError::Connect { source: again(error) },
                #[cfg(feature = "tls")]
                DialError::Tls(error) => HttpError::Tls { source: again(error) },
                DialError::Late => HttpError::Connect { source: late() },
            };
        }
        source = inner.source();
    }
    HttpError::Broken { source: Box::new(error) }
}

/// Why a request has no whole answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum HttpError {
    /// There is no connection. Nothing was sent.
    Connect {
        /// Why.
        source: io::Error,
    },
    /// The server could not be trusted, or does not speak TLS. Nothing was sent.
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

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
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

impl Error for HttpError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
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
