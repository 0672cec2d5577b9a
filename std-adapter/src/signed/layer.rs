//! The verifying layer: what stands behind it sees only requests that are genuine, in time and
//! new.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::{FromRequestParts, OriginalUri};
use bytes::Bytes;
use http::header::HOST;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;
use tracing::{error, warn};
use triwire::signed::{Accepted, KeyId, Refusal, Target, Window};
use triwire::time::UnixMillis;

use super::body::{BODY_BOUND, BodyError, read_body};
use super::keys::Keys;
use super::url::{self, UrlError};
use super::verify::{Unverified, begin, present, settle};
use crate::clock::unix_now;
use crate::nonces::Nonces;

/// A tower layer that lets only signed requests through.
///
/// The header is judged first, then the key is looked up, then the body is read within its limit
/// and verified as it was received; only then the nonce is claimed, and the request handed on
/// with its body whole. A handler takes [`SignedBy`] to know who signed.
///
/// | what came | answer, without a body |
/// | --- | --- |
/// | any refusal of the contract | 401, the same for all; the reason is logged |
/// | keys or nonces unavailable | 503 |
/// | a body past the limit | 413 |
/// | a body that stalls | 408 |
/// | the receiver's own mistake, as [`Misuse`](super::Misuse) | 500 |
///
/// What was signed is the URL that the sender asked for. The path is the original one, also
/// beneath a router that strips a prefix; the host is that of [`origin`](Self::origin), or what
/// the request itself names. Trailers are not signed and are dropped.
///
/// Reasons are told to `tracing` and nowhere else: install a subscriber, such as
/// `tracing_subscriber::fmt::init()`, to see why a request was refused. `triwire verify --explain`
/// tells more about one that was recorded.
///
/// ```no_run
/// use std::collections::HashMap;
///
/// use axum::Router;
/// use axum::body::Bytes;
/// use axum::routing::post;
/// use triwire::signed::{Key, KeyId};
/// use triwire_std::nonces::Memory;
/// use triwire_std::signed::{SignatureLayer, SignedBy};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let secret = std::env::var("ASSISTANT_KEY")?;
/// let keys = HashMap::from([(KeyId::parse("shop.1")?, Key::new(secret.as_bytes())?)]);
/// let signed = SignatureLayer::new(keys, Memory::with_capacity(100_000), 4096).origin("https://shop.example")?;
/// let app: Router = Router::new()
///     .route("/assistant/tools", post(async |by: SignedBy, body: Bytes| format!("{}: {}", by.key_id(), body.len())))
///     .layer(signed);
/// # let _ = app;
/// # Ok(())
/// # }
/// ```
pub struct SignatureLayer<K, N> {
    keys: Arc<K>,
    nonces: Arc<N>,
    rules: Rules,
}

/// What is judged by, beside keys and nonces.
#[derive(Clone, Debug)]
struct Rules {
    max_body: usize,
    body_bound: Duration,
    window: Window,
    site: Site,
    clock: fn() -> UnixMillis,
}

/// Whose URL is signed.
#[derive(Clone, Debug)]
enum Site {
    /// Scheme, host and port as configured.
    Fixed(Arc<str>),
    /// The scheme; the host is the request's.
    Named(Scheme),
}

/// The scheme that a site is served with; it decides which port a URL need not name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `https`, the only one that belongs on a network.
    Https,
    /// `http`, for development on one machine.
    Http,
}

impl<K: Keys, N: Nonces> SignatureLayer<K, N> {
    /// Makes a layer for bodies of at most `max_body` bytes, with the contract's window, for a
    /// site whose name is what the request says, over https.
    #[must_use]
    pub fn new(keys: K, nonces: N, max_body: usize) -> Self {
        let rules = Rules {
            max_body,
            body_bound: BODY_BOUND,
            window: Window::default(),
            site: Site::Named(Scheme::Https),
            clock: unix_now,
        };
        Self { keys: Arc::new(keys), nonces: Arc::new(nonces), rules }
    }

    /// Fixes the site's public origin, such as `https://shop.example`: for receivers behind a
    /// proxy that changes `Host`, and the safest for all.
    ///
    /// # Errors
    /// The text is no origin: an http or https URL without path, query and user info.
    pub fn origin(mut self, origin: &str) -> Result<Self, UrlError> {
        self.rules.site = Site::Fixed(url::origin(origin)?.into());
        Ok(self)
    }

    /// Takes the host from each request (`:authority`, else `Host`) with this scheme; `https`
    /// unless set.
    #[must_use]
    pub fn host_of_request(mut self, scheme: Scheme) -> Self {
        self.rules.site = Site::Named(scheme);
        self
    }

    /// Sets how far a request's time may be from the clock; the contract's 300 s unless set.
    #[must_use]
    pub fn window(mut self, window: Window) -> Self {
        self.rules.window = window;
        self
    }

    /// Sets how long a body may take to arrive whole; 30 s unless set.
    #[must_use]
    pub fn body_bound(mut self, bound: Duration) -> Self {
        self.rules.body_bound = bound;
        self
    }

    /// Sets the clock that requests are judged by; the machine's unless set.
    #[must_use]
    pub fn clock(mut self, clock: fn() -> UnixMillis) -> Self {
        self.rules.clock = clock;
        self
    }

    /// Verifies a request and gives it back with its body whole.
    async fn admit<B>(&self, request: Request<B>) -> Result<Request<B>, Rejection>
    where
        B: Body<Error: fmt::Display> + From<Bytes>,
    {
        let (mut parts, body) = request.into_parts();
        let Rules { max_body, body_bound, window, clock, .. } = self.rules;
        let timely = present(&parts.headers, clock(), window)?;
        let (method, url) = (parts.method.clone(), self.rules.site.url(&parts));
        // A request that names no site, or none that a URL could, was signed by nobody.
        let named = |error: &dyn fmt::Display| {
            warn!(%error, "the request names no site");
            Unverified::from(Refusal::WrongSignature)
        };
        let site = url::parts(&url).map_err(|error| named(&error))?;
        let target = Target::new(method.as_str(), &site.host, &site.path);
        let target = target.map_err(|error| named(&error))?;
        let mut verification = begin(timely, target, &*self.keys).await?;
        let body = read_body(body, max_body, body_bound).await?;
        verification.feed(&body);
        let accepted = settle(verification, clock(), &*self.nonces).await?;
        parts.extensions.insert(SignedBy(accepted));
        Ok(Request::from_parts(parts, body.into()))
    }
}

impl Scheme {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::Http => "http",
        }
    }
}

impl Site {
    /// Writes the URL that the sender asked for.
    fn url(&self, parts: &Parts) -> String {
        // A router that strips a prefix keeps the original here.
        let uri = parts.extensions.get::<OriginalUri>().map_or(&parts.uri, |original| &original.0);
        let path = uri.path_and_query().map_or("", |path| path.as_str());
        match self {
            Self::Fixed(origin) => format!("{origin}{path}"),
            Self::Named(scheme) => {
                let named = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
                let host = uri.authority().map(|host| host.as_str()).or(named).unwrap_or_default();
                format!("{}://{host}{path}", scheme.as_str())
            }
        }
    }
}

impl<K, N> Clone for SignatureLayer<K, N> {
    fn clone(&self) -> Self {
        let (keys, nonces) = (Arc::clone(&self.keys), Arc::clone(&self.nonces));
        Self { keys, nonces, rules: self.rules.clone() }
    }
}

impl<K, N> fmt::Debug for SignatureLayer<K, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignatureLayer").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl<S, K, N> Layer<S> for SignatureLayer<K, N> {
    type Service = SignatureService<S, K, N>;

    fn layer(&self, inner: S) -> Self::Service {
        SignatureService { layer: self.clone(), inner }
    }
}

/// A service behind a [`SignatureLayer`].
#[derive(Debug)]
pub struct SignatureService<S, K, N> {
    layer: SignatureLayer<K, N>,
    inner: S,
}

impl<S: Clone, K, N> Clone for SignatureService<S, K, N> {
    fn clone(&self) -> Self {
        Self { layer: self.layer.clone(), inner: self.inner.clone() }
    }
}

impl<S, K, N, B, R> Service<Request<B>> for SignatureService<S, K, N>
where
    S: Service<Request<B>, Response = Response<R>, Future: Send> + Clone + Send + 'static,
    K: Keys + 'static,
    N: Nonces + 'static,
    B: Body<Data: Send, Error: fmt::Display> + From<Bytes> + Send + 'static,
    R: Default,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that is ready is the one that is called.
        let fresh = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, fresh);
        let layer = self.layer.clone();
        Box::pin(async move {
            match layer.admit(request).await {
                Ok(request) => inner.call(request).await,
                Err(rejection) => {
                    let mut response = Response::new(R::default());
                    *response.status_mut() = rejection.status();
                    Ok(response)
                }
            }
        })
    }
}

/// Why a request is not handed on.
#[derive(Debug)]
enum Rejection {
    Unverified(Unverified),
    Body(BodyError),
}

impl Rejection {
    /// Logs why, and returns all that the sender is told.
    fn status(&self) -> StatusCode {
        match self {
            Self::Unverified(Unverified::Refused(refused)) => {
                let error = refused.source().map(tracing::field::display);
                warn!(reason = %refused, error, "signed request refused");
                StatusCode::from_u16(refused.status()).unwrap_or(StatusCode::UNAUTHORIZED)
            }
            Self::Unverified(Unverified::Misuse(misuse)) => {
                error!(%misuse, "signed request could not be judged");
                StatusCode::INTERNAL_SERVER_ERROR
            }
            Self::Body(body) => {
                warn!(reason = %body, "signed request refused");
                body.status()
            }
        }
    }
}

impl From<Unverified> for Rejection {
    fn from(unverified: Unverified) -> Self {
        Self::Unverified(unverified)
    }
}

impl From<BodyError> for Rejection {
    fn from(body: BodyError) -> Self {
        Self::Body(body)
    }
}

/// Who signed the request that a handler has: an axum extractor, and a request extension.
///
/// Only a [`SignatureLayer`] makes one. A handler that asks for it on a route without the layer is
/// answered with 500, and the log says so: such a route is open to anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignedBy(Accepted);

impl SignedBy {
    /// Returns the id of the key that signed: take the site from it, never from path or body.
    #[must_use]
    pub fn key_id(&self) -> KeyId {
        self.0.key_id
    }
}

impl<S: Sync> FromRequestParts<S> for SignedBy {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, StatusCode> {
        parts.extensions.get::<Self>().copied().ok_or_else(|| {
            error!("a handler wants a signed request, and no SignatureLayer stands before it");
            StatusCode::INTERNAL_SERVER_ERROR
        })
    }
}
