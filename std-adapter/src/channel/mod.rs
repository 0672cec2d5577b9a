//! The channel's server: executors connect to `/channel`, callers ask them.
//!
//! ```text
//!   page ─────── Origin, session ──┐              ┌── Chairs::ask(executor, call).await
//!                                  ├─▶ a chair ◀──┤
//!   environment ─ hello, bearer ───┘              └── POST /channel/calls
//! ```
//!
//! Each executor has a chair, which one connection holds; a later one replaces it. A call comes
//! back settled, whatever becomes of the executor, and dropping its future gives it up. Who is let
//! in, and in what words others are refused, is the core's: [`triwire::channel::hello`] and
//! [`triwire::channel::route`].
//!
//! ```
//! use triwire::channel::broker::Request;
//! use triwire::channel::envelope::Object;
//! use triwire_std::channel::{Channel, Executor, Outcome};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let channel = Channel::builder().build();
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! let router = channel.router(listener.local_addr()?);
//! # let server =
//! tokio::spawn(async move { axum::serve(listener, router).await });
//!
//! let request = Request::new("notes", "read", Object::EMPTY, Object::EMPTY);
//! let outcome = channel.chairs().ask(&Executor::Page, request).await;
//! let Outcome::Refused { refused, .. } = outcome else { panic!() };
//! assert_eq!(refused, "no-page"); // until a browser connects
//! # server.abort();
//! # Ok(())
//! # }
//! ```

mod chairs;
mod lines;
mod link;
mod metrics;
mod pairing;
mod server;
mod session;

use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use hyper::header::HeaderValue;
use triwire::channel::hello::{BearerDigest, HelloBound, Standing};

pub use self::chairs::{Ask, Chairs, Executor, Limits, Seat};
pub use self::metrics::{CallEnd, CallMetrics};
pub use self::pairing::{MAX_PAIRINGS, Pairings, PairingsError};
pub use self::session::{HostToken, SessionGate};
use crate::clock::Clock;
pub use crate::outcome::{Observed, Outcome};
pub use crate::secret::Secret;
use crate::server::Keys;
use crate::server::stop::Stopper;

/// A channel's server. Clones are the same one.
#[derive(Clone)]
pub struct Channel {
    shared: Arc<Shared>,
}

struct Shared {
    chairs: Chairs,
    /// None admits everybody.
    keys: Option<Keys>,
    hosts: Vec<String>,
    bound: HelloBound,
    session: Option<SessionGate>,
    pairings: Option<Pairings>,
    host_token: Option<HostToken>,
    page: Option<(Bytes, HeaderValue)>,
    stopper: Stopper,
    clock: Clock,
}

impl Shared {
    /// Looks a bearer up, where waiting for the disk stops nobody else.
    async fn standing(self: &Arc<Self>, digest: BearerDigest) -> (Standing, Option<String>) {
        let shared = Arc::clone(self);
        let looked = tokio::task::spawn_blocking(move || match &shared.pairings {
            Some(pairings) => pairings.standing(&digest),
            None => (Standing::Unknown, None),
        });
        looked.await.unwrap_or((Standing::Unreadable, None))
    }
}

impl Channel {
    /// Begins a server that admits no caller but local pages, and no executor but the local page.
    pub fn builder() -> Builder {
        Builder {
            limits: Limits::default(),
            keys: Some(Keys::default()),
            hosts: Vec::new(),
            bound: HelloBound::default(),
            session: None,
            pairings: None,
            host_token: None,
            page: None,
        }
    }

    /// Returns the chairs, to ask from within this process.
    #[must_use]
    pub fn chairs(&self) -> &Chairs {
        &self.shared.chairs
    }

    /// Ends every connection of an executor with 1001, and those that begin later; call it when
    /// the server that runs the router shuts down.
    pub fn end_sessions(&self) {
        self.shared.stopper.stop();
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("chairs", &self.shared.chairs).finish_non_exhaustive()
    }
}

/// A [`Channel`] to be.
#[derive(Debug)]
#[must_use]
pub struct Builder {
    limits: Limits,
    keys: Option<Keys>,
    hosts: Vec<String>,
    bound: HelloBound,
    session: Option<SessionGate>,
    pairings: Option<Pairings>,
    host_token: Option<HostToken>,
    page: Option<(Bytes, HeaderValue)>,
}

impl Builder {
    /// Sets what each chair may use.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Lets whoever sends one of these keys make calls.
    pub fn keys(mut self, keys: Keys) -> Self {
        self.keys = Some(keys);
        self
    }

    /// Lets everybody who reaches the server make calls; for a loopback address only.
    pub fn open(mut self) -> Self {
        self.keys = None;
        self
    }

    /// Adds names that the server answers to besides the loopback ones, each with a port or, for
    /// every port, without.
    pub fn hosts(mut self, hosts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.hosts.extend(hosts.into_iter().map(Into::into));
        self
    }

    /// Sets how long a connection has to say hello.
    pub fn hello_bound(mut self, bound: HelloBound) -> Self {
        self.bound = bound;
        self
    }

    /// Asks local pages for a session.
    pub fn session(mut self, gate: SessionGate) -> Self {
        self.session = Some(gate);
        self
    }

    /// Lets in environments with a bearer of these pairings.
    pub fn pairings(mut self, pairings: Pairings) -> Self {
        self.pairings = Some(pairings);
        self
    }

    /// Lets whoever shows this token issue and revoke bearers.
    pub fn host_token(mut self, token: HostToken) -> Self {
        self.host_token = Some(token);
        self
    }

    /// Serves a page of HTML at `/`, under a `Content-Security-Policy`: what it shows comes from
    /// calls. A policy that no header line can carry is the strictest one.
    pub fn page(mut self, html: impl Into<Bytes>, policy: &str) -> Self {
        let strictest = HeaderValue::from_static("default-src 'none'");
        self.page = Some((html.into(), HeaderValue::from_str(policy).unwrap_or(strictest)));
        self
    }

    /// Makes the server.
    #[must_use]
    pub fn build(self) -> Channel {
        let Self { limits, keys, hosts, bound, session, pairings, host_token, page } = self;
        let chairs = Chairs::new(limits);
        let (stopper, clock) = (Stopper::new(), Clock::start());
        let shared = Shared {
            chairs,
            keys,
            hosts,
            bound,
            session,
            pairings,
            host_token,
            page,
            stopper,
            clock,
        };
        Channel { shared: Arc::new(shared) }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
