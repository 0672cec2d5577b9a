//! Runs commands on an exec server, over any of its three transports.
//!
//! | [`Transport`] | input | crosses |
//! | --- | --- | --- |
//! | [`OneShot`](Transport::OneShot), the default | none | every HTTP proxy |
//! | [`WebSocket`](Transport::WebSocket), the default for [interactive](Exec::interactive) | live | proxies that pass upgrades |
//! | [`Hijack`](Transport::Hijack) | live | direct connections only; the least overhead |
//!
//! A [`Client`] knows a server; [`Client::exec`] asks for a command; a [`Session`] is one that
//! runs. Whatever goes wrong is a [`ClientError`] that says what to do.
//!
//! ```
//! use triwire_std::client::{Client, Output};
//! use triwire_std::record::ExecRequest;
//!
//! # use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! # let url = format!("http://{}", listener.local_addr()?);
//! # tokio::spawn(async move {
//! #     let (mut peer, _) = listener.accept().await.unwrap();
//! #     peer.read(&mut [0; 1024]).await.unwrap();
//! #     let answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\r\n\
//! #         \x01\0\0\0\0\0\0\x06hello\n\
//! #         \x03\0\0\0\0\0\0\x20{\"exit_code\":0,\"duration_ms\":12}";
//! #     peer.write_all(answer).await.unwrap();
//! # });
//! let client = Client::builder(&url).key("secret").build()?;
//! let request = ExecRequest { cmd: vec!["echo".into(), "hello".into()], ..Default::default() };
//! let mut session = client.exec("local", &request).start().await?;
//! while let Some(output) = session.next().await? {
//!     match output {
//!         Output::Stdout(bytes) => assert_eq!(bytes, b"hello\n"),
//!         Output::Stderr(bytes) => eprintln!("{}", String::from_utf8_lossy(bytes)),
//!         Output::Exit(exit) => assert_eq!(exit.exit_code, 0),
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod caller;
mod connect;
mod error;
mod executor;
pub(crate) mod http;
mod link;
mod output;
mod session;
pub(crate) mod stream;

use std::fmt;
use std::time::Duration;

pub use triwire::exec::session::{Exit, Output};
use url::{Host, Url};

pub use self::caller::{Caller, CallerError};
pub use self::error::{ClientError, UrlError};
pub use self::executor::{Executor, ExecutorError, Ran, ToolCall};
pub use self::http::HttpError;
pub use self::output::{Collected, OutputStream, OwnedOutput};
pub use self::session::{Session, Turn};
pub use crate::outcome::{Observed, Outcome};
use crate::record::ExecRequest;
pub use crate::secret::Secret;
#[cfg(feature = "tls")]
use crate::tls::ClientTls;

/// Where a gateway listens unless told otherwise.
pub const DEFAULT_URL: &str = "http://127.0.0.1:7878";

/// How long a connection may take unless told otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How a command's output and input travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// One HTTP request, whose answer is the output.
    OneShot,
    /// An HTTP request whose connection then carries frames both ways.
    Hijack,
    /// Frames both ways in WebSocket messages.
    WebSocket,
}

/// A server, and what it takes to be let in. Holds no connection.
#[derive(Clone, Debug)]
pub struct Client {
    url: Url,
    host: String,
    /// Where the server's routes begin; empty at the root.
    base: String,
    key: Option<Secret>,
    connect_timeout: Duration,
    /// Whom to trust, when the URL is https.
    #[cfg(feature = "tls")]
    tls: Option<ClientTls>,
}

impl Client {
    /// Begins a client for the server at `url`: `http://`, or `https://` with the feature `tls`, a
    /// host, a port unless it is the scheme's own, and a path when the server stands beneath one.
    /// `ws://` and `wss://` say the same: the transport is chosen apart.
    pub fn builder(url: impl Into<String>) -> ClientBuilder {
        ClientBuilder {
            url: url.into(),
            key: None,
            connect_timeout: CONNECT_TIMEOUT,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Asks for a command in a sandbox. Nothing is sent before [`Exec::start`].
    pub fn exec(&self, sandbox: impl Into<String>, request: &ExecRequest) -> Exec<'_> {
        Exec {
            client: self,
            sandbox: sandbox.into(),
            request: request.to_json(),
            transport: None,
            interactive: false,
        }
    }

    /// Returns the server's URL.
    #[must_use]
    pub fn url(&self) -> String {
        self.url.as_str().trim_end_matches('/').to_owned()
    }

    fn address(&self) -> (String, u16) {
        let host = match self.url.host() {
            Some(Host::Domain(name)) => name.to_owned(),
            Some(Host::Ipv4(address)) => address.to_string(),
            Some(Host::Ipv6(address)) => address.to_string(),
            // An http URL always has a host.
            None => String::new(),
        };
        (host, self.url.port_or_known_default().unwrap_or(80))
    }

    fn path_of(&self, sandbox: &str) -> String {
        if self.base.is_empty() {
            String::new()
        } else {
            format!("{}/sandboxes/{sandbox}/exec", self.base)
        }
    }
}

/// Makes a [`Client`].
#[derive(Clone, Debug)]
#[must_use]
pub struct ClientBuilder {
    url: String,
    key: Option<Secret>,
    connect_timeout: Duration,
    #[cfg(feature = "tls")]
    tls: Option<ClientTls>,
}

impl ClientBuilder {
    /// Sets the key that the server knows this client by.
    pub fn key(mut self, key: impl Into<Secret>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets whom an `https` URL's server is trusted by; the system's roots unless set.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: ClientTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets how long a connection may take to come about, name look-up and TLS included; 10 s
    /// unless set.
    ///
    /// The answer has no such bound: a server may hold it back until the command writes something.
    /// Drop [`Exec::start`]'s future to give up earlier.
    pub fn connect_timeout(mut self, bound: Duration) -> Self {
        self.connect_timeout = bound;
        self
    }

    /// Makes the client.
    ///
    /// # Errors
    /// [`ClientError::Url`]; for an `https` URL without [`tls`](Self::tls)
    /// [`ClientError::Roots`], when the system trusts nobody.
    pub fn build(self) -> Result<Client, ClientError> {
        let mut url = Url::parse(&self.url).map_err(UrlError::Malformed)?;
        for (scheme, same) in [("ws", "http"), ("wss", "https")] {
            if url.scheme() == scheme {
                url.set_scheme(same).map_err(|()| UrlError::Scheme)?;
            }
        }
        let is_https = match url.scheme() {
            "http" => false,
            "https" if cfg!(feature = "tls") => true,
            "https" => return Err(UrlError::Tls.into()),
            _ => return Err(UrlError::Scheme.into()),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(UrlError::Credentials.into());
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(UrlError::Query.into());
        }
        let name = url.host_str().unwrap_or_default();
        let host = match url.port() {
            Some(port) => format!("{name}:{port}"),
            None => name.to_owned(),
        };
        let base = url.path().trim_end_matches('/').to_owned();
        #[cfg(feature = "tls")]
        let tls = match (is_https, self.tls) {
            (false, _) => None,
            (true, None) => Some(ClientTls::system().map_err(ClientError::Roots)?),
            (true, given) => given,
        };
        #[cfg(not(feature = "tls"))]
        let _ = is_https;
        let Self { key, connect_timeout, .. } = self;
        Ok(Client {
            url,
            host,
            base,
            key,
            connect_timeout,
            #[cfg(feature = "tls")]
            tls,
        })
    }
}

/// A command that is asked for.
///
/// Its debug output leaves the request out: what it holds may be secret.
#[derive(Clone)]
#[must_use = "nothing is sent before `start`"]
pub struct Exec<'c> {
    client: &'c Client,
    sandbox: String,
    request: Vec<u8>,
    transport: Option<Transport>,
    interactive: bool,
}

impl Exec<'_> {
    /// Sets the transport; one-shot unless set, and WebSocket when interactive.
    pub const fn transport(mut self, transport: Transport) -> Self {
        self.transport = Some(transport);
        self
    }

    /// Keeps the command's input open, to be written during the session. Without this the command
    /// finds its input at its end.
    pub const fn interactive(mut self) -> Self {
        self.interactive = true;
        self
    }

    /// Sends the request and waits for the answer's head.
    ///
    /// # Errors
    /// The [`ClientError`] that says why no command runs. An interactive command over one-shot, and
    /// a sandbox, key or host that does not fit in a head, are refused before a byte is sent.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection, which ends the command if it was started.
    pub async fn start(self) -> Result<Session, ClientError> {
        let transport = match (self.transport, self.interactive) {
            (Some(Transport::OneShot), true) => return Err(ClientError::InteractiveOneShot),
            (Some(transport), _) => transport,
            (None, true) => Transport::WebSocket,
            (None, false) => Transport::OneShot,
        };
        connect::start(self.client, &self.sandbox, &self.request, transport, self.interactive).await
    }
}

impl fmt::Debug for Exec<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exec")
            .field("client", self.client)
            .field("sandbox", &self.sandbox)
            .field("transport", &self.transport)
            .field("interactive", &self.interactive)
            .finish_non_exhaustive()
    }
}
