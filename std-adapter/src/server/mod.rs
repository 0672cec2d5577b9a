//! The server: commands in sandboxes, over one-shot, hijacked connections and WebSocket.
//!
//! ```text
//!   client ──POST …/exec────────────▶ 200, frames, exit ─ keep-alive
//!          ──POST …/exec?stdin=1────▶ bare 200, then frames both ways
//!          ──GET …/exec, upgrade────▶ 101, request, then frames both ways as messages, 1000
//! ```
//!
//! Every status and every close code is the core's; this module moves bytes and time between a
//! connection and a [`Guest`]. A session is one task: it reads at most 256 KiB ahead of a
//! command that takes no input, and a client that reads slowly slows the command. A client that
//! goes away ends its command:
//!
//! | transport | noticed |
//! | --- | --- |
//! | one-shot, hijack | at once; on the hijack with more than 256 KiB and a full receive window of unread input, when the command next writes, or at its deadline |
//! | WebSocket | at once; with a full receive window of unread input, once a ping was written, every 20 s |
//!
//! With the feature `tls` a server may speak TLS, and beyond loopback it listens only where keys
//! and output do not cross the network in clear: [`Exposure`] judges that. What it does is counted
//! in [`Metrics`], by names of its own, and told to `tracing` in a span of each session; neither
//! ever shows what was run.
//!
//! ```
//! use std::sync::Arc;
//! use triwire::exec::head::KeyDigest;
//! use triwire_std::guest::{Guest, Lost, Output, Running, Starting, StdinGone};
//! use triwire_std::record::{ExecRequest, ExecResult};
//! use triwire_std::server::{Keys, Server};
//! # use std::task::{Context, Poll};
//! # use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! /// A sandbox where every command ends at once.
//! struct Nowhere;
//!
//! impl Guest for Nowhere {
//!     fn start(&self, _: ExecRequest) -> Starting<'_> {
//!         Box::pin(async { Ok(Box::new(Nowhere) as Box<dyn Running>) })
//!     }
//! }
//!
//! impl Running for Nowhere {
//!     fn poll_output(&mut self, _: &mut Context<'_>) -> Poll<Result<Output, Lost>> {
//!         Poll::Ready(Ok(Output::Exit(ExecResult::default())))
//!     }
//!     fn poll_stdin(&mut self, _: &mut Context<'_>, _: &[u8]) -> Poll<Result<usize, StdinGone>> {
//!         Poll::Ready(Err(StdinGone))
//!     }
//!     fn close_stdin(&mut self) {}
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Server::builder()
//!     .sandbox("local", Arc::new(Nowhere))
//!     .keys(Keys::new([KeyDigest::of(b"secret")]))
//!     .build()?;
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! let address = listener.local_addr()?;
//! let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
//! let serving = tokio::spawn(async move {
//!     server.serve(listener, async { drop(stopped.await) }).await
//! });
//!
//! let mut client = tokio::net::TcpStream::connect(address).await?;
//! let request = format!(
//!     "POST /sandboxes/local/exec HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
//!      Authorization: Bearer secret\r\nContent-Length: 16\r\n\r\n{{\"cmd\":[\"true\"]}}"
//! );
//! client.write_all(request.as_bytes()).await?;
//! let mut answer = Vec::new();
//! client.read_to_end(&mut answer).await?;
//! let answer = String::from_utf8_lossy(&answer);
//! assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"));
//! assert!(answer.contains(r#"{"exit_code":0,"duration_ms":0}"#));
//!
//! drop(stop);
//! serving.await??;
//! # Ok(())
//! # }
//! ```

mod command;
mod exposure;
mod frames;
mod hijack;
mod keys;
mod metrics;
mod oneshot;
mod serve;
mod service;
pub(crate) mod stop;
mod transfer;
mod transport;
#[cfg(target_os = "linux")]
mod unacked;
mod websocket;

use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use axum::Router;
use axum::extract::Request;
use axum::routing::any;
use tokio::net::TcpListener;
use triwire::exec::head::{KeyDigest, is_sandbox_id};

use self::exposure::is_loopback;
pub use self::exposure::{Exposed, Exposure};
pub use self::keys::Keys;
use self::metrics::{Counters, Page};
pub use self::metrics::{
    End, METRICS_PATH, Metrics, MetricsAccess, RefusalMetrics, SessionMetrics, Transport,
};
use self::service::Service;
use self::stop::Stopper;
use crate::channel::Channel;
use crate::clock::Clock;
use crate::guest::Guest;
#[cfg(feature = "tls")]
use crate::tls::ServerTls;

/// Bytes that a session reads ahead while its command takes no input.
pub const READ_AHEAD: usize = 256 * 1024;

/// Bytes of output that a session holds for a client that reads slowly, one frame more at most.
pub const OUTBOX: usize = 256 * 1024;

/// How long a request's head may take to come, and a connection may stay open between requests.
pub const HEAD_BOUND: Duration = Duration::from_secs(30);

/// Bytes of a request's head, at most; more is 431.
pub const MAX_HEAD: usize = 16 * 1024;

/// How long a shutdown waits for its sessions to tell their clients.
pub const SHUTDOWN_BOUND: Duration = Duration::from_secs(10);

/// Connections that one [`Server::serve`] holds open at once, unless the builder says otherwise.
pub const MAX_CONNECTIONS: usize = 10_000;

/// A server of sandboxes. Clones are the same server.
#[derive(Clone, Debug)]
pub struct Server {
    shared: Arc<Shared>,
}

/// What all connections of a server have in common.
struct Shared {
    guests: HashMap<String, Arc<dyn Guest>>,
    hosts: Vec<String>,
    /// None admits everybody.
    keys: Option<Keys>,
    max_connections: usize,
    behind_proxy: bool,
    #[cfg(feature = "tls")]
    tls: Option<ServerTls>,
    /// For sessions of routers, whose connections are not ours.
    stopper: Stopper,
    clock: Clock,
    counters: Arc<Counters>,
    page: Option<Page>,
    channel: Option<Channel>,
}

impl Shared {
    fn access(&self) -> Option<Arc<[KeyDigest]>> {
        self.keys.as_ref().map(Keys::get)
    }

    fn metrics(&self) -> Metrics {
        let mut metrics = self.counters.read();
        if let Some(channel) = &self.channel {
            metrics.channel = channel.chairs().metrics().into();
        }
        metrics
    }

    fn is_open(&self) -> bool {
        self.keys.is_none()
    }

    fn is_secure(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        return false;
    }

    /// Judges whether what would be served at an address may be.
    fn exposure(&self, address: SocketAddr) -> Result<(), Exposed> {
        let (has_keys, has_tls) = (!self.is_open(), self.is_secure());
        Exposure { address, has_keys, has_tls, behind_proxy: self.behind_proxy }.judge()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("sandboxes", &self.guests.keys())
            .field("hosts", &self.hosts)
            .field("open", &self.is_open())
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Begins a server that has no sandboxes and admits nobody.
    pub fn builder() -> Builder {
        Builder {
            guests: HashMap::new(),
            hosts: Vec::new(),
            keys: Some(Keys::default()),
            max_connections: MAX_CONNECTIONS,
            behind_proxy: false,
            #[cfg(feature = "tls")]
            tls: None,
            page: None,
            channel: None,
        }
    }

    /// Accepts connections until `shutdown` is ready, then ends every session by name.
    ///
    /// A shutdown stops accepting, kills the commands that run and tells each client by an exit
    /// frame with `exit_code` -1; it returns when all connections are closed, after
    /// [`SHUTDOWN_BOUND`] at the latest.
    ///
    /// # Errors
    /// An address that [`Exposure`] refuses: beyond loopback, without keys, or with neither TLS nor
    /// [`behind_proxy`](Builder::behind_proxy); a listener without an address. What goes wrong
    /// with one connection, or while accepting, is logged and survived.
    ///
    /// # Cancel safety
    /// Dropping the future closes all connections and kills their commands, without a word to the
    /// clients; nothing else is lost.
    pub async fn serve(
        &self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()>,
    ) -> io::Result<()> {
        serve::serve(Arc::clone(&self.shared), listener, shutdown).await
    }

    /// Makes a router for a server that others run, such as `axum::serve`, at the address `local`.
    ///
    /// One-shot and WebSocket work as with [`serve`](Self::serve); `stdin=1` is answered 501
    /// `hijack_unavailable`, since the connection is not ours. What `serve` bounds is for the
    /// other server to bound: connections, heads, and how a connection closes over unread input.
    /// Its sessions end by [`end_sessions`](Self::end_sessions). A server without keys answers
    /// everybody who reaches it: let it listen on a loopback address only.
    pub fn router(&self, local: SocketAddr) -> Router {
        let service = Service {
            shared: Arc::clone(&self.shared),
            port: local.port(),
            loopback: is_loopback(local),
            clock: self.shared.clock,
            stop: self.shared.stopper.subscribe(),
            own: None,
        };
        let answer = any(move |request: Request| {
            let service = service.clone();
            async move { service.answer(request).await.map(oneshot::AnswerBody::into_axum) }
        });
        let mut router = Router::new().route("/healthz", answer.clone());
        if self.shared.page.is_some() {
            router = router.route(METRICS_PATH, answer.clone());
        }
        router.route("/sandboxes/{*rest}", answer)
    }

    /// Reads what this server counted.
    pub fn metrics(&self) -> Metrics {
        self.shared.metrics()
    }

    /// Ends every session of this server's [`router`](Self::router)s by name, and those that
    /// begin later; call it when the server that runs them shuts down.
    pub fn end_sessions(&self) {
        self.shared.stopper.stop();
    }
}

/// A [`Server`] to be.
#[must_use]
pub struct Builder {
    guests: HashMap<String, Arc<dyn Guest>>,
    hosts: Vec<String>,
    keys: Option<Keys>,
    max_connections: usize,
    behind_proxy: bool,
    #[cfg(feature = "tls")]
    tls: Option<ServerTls>,
    page: Option<Page>,
    channel: Option<Channel>,
}

impl Builder {
    /// Adds a sandbox; of two with one name the later counts.
    pub fn sandbox(mut self, name: impl Into<String>, guest: Arc<dyn Guest>) -> Self {
        self.guests.insert(name.into(), guest);
        self
    }

    /// Admits whoever sends one of these keys, as the set is when a request comes.
    pub fn keys(mut self, keys: Keys) -> Self {
        self.keys = Some(keys);
        self
    }

    /// Admits everybody. Whoever reaches the server may run commands, so
    /// [`Server::serve`] takes only listeners on a loopback address then.
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

    /// Bounds the connections that one [`Server::serve`] holds open; more wait to be accepted.
    pub fn max_connections(mut self, max: usize) -> Self {
        self.max_connections = max;
        self
    }

    /// Serves in TLS; plain HTTP is answered with 400 and a word that says so.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: ServerTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Says that a proxy before this server speaks TLS to the clients, and that nobody else
    /// reaches it: it may then listen beyond loopback without TLS of its own.
    pub fn behind_proxy(mut self, yes: bool) -> Self {
        self.behind_proxy = yes;
        self
    }

    /// Shows the server's figures at `GET` [`METRICS_PATH`], as `render` writes them; it is called
    /// for each request. Without it there is no such route.
    pub fn metrics(
        mut self,
        access: MetricsAccess,
        content_type: &'static str,
        render: impl Fn(&Metrics) -> String + Send + Sync + 'static,
    ) -> Self {
        self.page = Some(Page { access, content_type, render: Box::new(render) });
        self
    }

    /// Serves a channel's routes on the connections of [`Server::serve`], beside its own; who may
    /// ask there is the channel's to say. A [`router`](Server::router) is merged with
    /// [`Channel::router`] instead.
    pub fn channel(mut self, channel: Channel) -> Self {
        self.channel = Some(channel);
        self
    }

    /// Makes the server.
    ///
    /// # Errors
    /// A sandbox's name that no request could name.
    pub fn build(self) -> Result<Server, SandboxName> {
        if let Some(name) = self.guests.keys().find(|name| !is_sandbox_id(name)) {
            return Err(SandboxName { name: name.clone() });
        }
        let counters = Arc::new(Counters::new(self.guests.keys()));
        let shared = Shared {
            guests: self.guests,
            hosts: self.hosts,
            keys: self.keys,
            max_connections: self.max_connections,
            behind_proxy: self.behind_proxy,
            #[cfg(feature = "tls")]
            tls: self.tls,
            stopper: Stopper::new(),
            clock: Clock::start(),
            counters,
            page: self.page,
            channel: self.channel,
        };
        Ok(Server { shared: Arc::new(shared) })
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("sandboxes", &self.guests.keys())
            .field("hosts", &self.hosts)
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}

/// A name that is no sandbox id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxName {
    /// The name.
    pub name: String,
}

impl fmt::Display for SandboxName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no sandbox name: use 1 to 64 of A-Z a-z 0-9 _ -", self.name)
    }
}

impl std::error::Error for SandboxName {}
