//! Guests behind a socket, which speak the hijacked transport themselves.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::asked::Peer;
use super::{Guest, Starting, Unreachable};
use crate::record::ExecRequest;
use crate::secret::Secret;

/// How long a connection may take.
const CONNECT_BOUND: Duration = Duration::from_secs(10);

/// When a silent connection is asked whether its peer is still there: after this long, this often,
/// so many times. A machine that vanished says nothing by itself.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);
const KEEPALIVE_TIMES: u32 = 3;

/// Runs commands at a TCP address whose server speaks the hijacked transport.
///
/// Each command has a connection of its own, which the guest ends by closing it when the command
/// is dropped. A guest machine that vanishes without a word is noticed within 30 s; one that was
/// asked but does not answer, within 30 s too. The deadline of a command is the guest's to keep.
///
/// ```
/// # use tokio::io::{AsyncReadExt, AsyncWriteExt};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::future::poll_fn;
/// use triwire_std::guest::{Guest, Output, TcpGuest};
/// use triwire_std::record::ExecRequest;
///
/// # let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// # let address = listener.local_addr()?.to_string();
/// # tokio::spawn(async move {
/// #     let (mut peer, _) = listener.accept().await.unwrap();
/// #     let mut head = [0; 1024];
/// #     let count = peer.read(&mut head).await.unwrap();
/// #     assert!(head[..count].starts_with(b"POST /exec?stdin=1 HTTP/1.1\r\n"));
/// #     let answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\r\n\
/// #         \x03\0\0\0\0\0\0\x20{\"exit_code\":7,\"duration_ms\":12}";
/// #     peer.write_all(answer).await.unwrap();
/// #     let _ = peer.read(&mut head).await;
/// # });
/// let guest = TcpGuest::new(address);
/// let request = ExecRequest { cmd: vec!["true".into()], ..Default::default() };
/// let mut running = guest.start(request).await?;
/// let Output::Exit(result) = poll_fn(|cx| running.poll_output(cx)).await? else { panic!() };
/// assert_eq!(result.exit_code, 7);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TcpGuest {
    address: String,
    peer: Peer,
}

impl TcpGuest {
    /// Makes a guest of the server at `address`, a name or an IP address with a port. Nothing is
    /// looked up or connected before a command starts.
    pub fn new(address: impl Into<String>) -> Self {
        let address = address.into();
        Self { peer: Peer::new(&address, &address), address }
    }

    /// Sets the path at which commands are asked for; `/exec?stdin=1` unless set.
    #[must_use]
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.peer.path = path.into();
        self
    }

    /// Sets the key that the guest knows this end by; none is sent unless set.
    #[must_use]
    pub fn key(mut self, key: impl Into<Secret>) -> Self {
        self.peer.key = Some(key.into());
        self
    }

    async fn connect(&self) -> Result<TcpStream, Unreachable> {
        let connected = timeout(CONNECT_BOUND, TcpStream::connect(&self.address)).await;
        let stream = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        stream.map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => self
                .peer
                .unreachable("nothing listens there; start the guest, or correct `address`"),
            io::ErrorKind::TimedOut => self.peer.unreachable(
                "it does not take the connection; check `address`, and the firewall on the way",
            ),
            _ => self.peer.unreachable(format_args!("no connection: {error}; check `address`")),
        })
    }
}

impl Guest for TcpGuest {
    fn start(&self, request: ExecRequest) -> Starting<'_> {
        Box::pin(async move {
            let stream = self.connect().await?;
            prepare(&stream).map_err(|error| self.peer.unreachable(error))?;
            self.peer.ask(stream, &request).await
        })
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_TIMES)?;
    Ok(())
}

/// Runs commands behind a unix socket whose server speaks the hijacked transport.
///
/// It is [`TcpGuest`] in all else: one connection for each command, closed when it is dropped.
///
/// ```no_run
/// use triwire_std::guest::UnixGuest;
///
/// let guest = UnixGuest::new("/run/agent.sock").path("/v1/exec");
/// ```
#[derive(Clone, Debug)]
pub struct UnixGuest {
    socket: PathBuf,
    peer: Peer,
}

impl UnixGuest {
    /// Makes a guest of the server at the socket file. Nothing is opened before a command starts.
    pub fn new(socket: impl AsRef<Path>) -> Self {
        let socket = socket.as_ref().to_owned();
        Self { peer: Peer::new(&socket.display().to_string(), "localhost"), socket }
    }

    /// Sets the path at which commands are asked for; `/exec?stdin=1` unless set.
    #[must_use]
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.peer.path = path.into();
        self
    }

    /// Sets the key that the guest knows this end by; none is sent unless set.
    #[must_use]
    pub fn key(mut self, key: impl Into<Secret>) -> Self {
        self.peer.key = Some(key.into());
        self
    }

    async fn connect(&self) -> Result<UnixStream, Unreachable> {
        let connected = timeout(CONNECT_BOUND, UnixStream::connect(&self.socket)).await;
        let stream = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        stream.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => self.peer.unreachable(
                "there is no such socket; start the guest that makes it, or correct `socket`",
            ),
            io::ErrorKind::ConnectionRefused => {
                self.peer.unreachable("nothing listens there; start the guest, or correct `socket`")
            }
            io::ErrorKind::PermissionDenied => self
                .peer
                .unreachable("this user may not connect; give it the right to write the socket"),
            _ => self.peer.unreachable(format_args!("no connection: {error}; check `socket`")),
        })
    }
}

impl Guest for UnixGuest {
    fn start(&self, request: ExecRequest) -> Starting<'_> {
        Box::pin(async move {
            let stream = self.connect().await?;
            self.peer.ask(stream, &request).await
        })
    }
}
