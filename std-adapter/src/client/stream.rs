//! A connection to a server, plain or in TLS.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Whom a connection trusts; nobody can be trusted where TLS is not built in.
#[cfg(feature = "tls")]
pub(crate) type Trust = crate::tls::ClientTls;
#[cfg(not(feature = "tls"))]
pub(crate) type Trust = std::convert::Infallible;

pub(crate) enum Stream {
    Plain(TcpStream),
    #[cfg(feature = "tls")]
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum DialError {
    /// No name, or nobody there.
    Connect(io::Error),
    /// The server could not be trusted, or does not speak TLS.
    #[cfg(feature = "tls")]
    Tls(io::Error),
    /// It took too long.
    Late,
}

impl Stream {
    /// Connects, in TLS where someone is to be trusted: both within `bound`.
    pub(crate) async fn dial(
        (host, port): (&str, u16),
        trust: Option<&Trust>,
        bound: Duration,
    ) -> Result<Self, DialError> {
        let dialing = async {
            let connected = TcpStream::connect((host, port)).await;
            let connected = connected.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
            let stream = connected.map_err(DialError::Connect)?;
            match trust {
                Some(trust) => secure(host, stream, trust).await,
                None => Ok(Self::Plain(stream)),
            }
        };
        timeout(bound, dialing).await.unwrap_or(Err(DialError::Late))
    }
}

#[cfg(feature = "tls")]
async fn secure(host: &str, stream: TcpStream, trust: &Trust) -> Result<Stream, DialError> {
    use rustls::pki_types::ServerName;

    let name = ServerName::try_from(host.to_owned());
    let name = name.map_err(|error| DialError::Tls(io::Error::other(error)))?;
    let secured = trust.connector().connect(name, stream).await.map_err(DialError::Tls)?;
    Ok(Stream::Tls(Box::new(secured)))
}

#[cfg(not(feature = "tls"))]
async fn secure(_: &str, _: TcpStream, trust: &Trust) -> Result<Stream, DialError> {
    match *trust {}
}

/// Calls one of the traits' methods on whichever stream it is.
macro_rules! of {
    ($stream:expr, $inner:ident => $call:expr) => {
        match $stream.get_mut() {
            Stream::Plain(stream) => {
                let $inner = Pin::new(stream);
                $call
            }
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => {
                let $inner = Pin::new(stream);
                $call
            }
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        of!(self, stream => stream.poll_read(cx, room))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        of!(self, stream => stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        of!(self, stream => stream.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        of!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        of!(self, stream => stream.poll_shutdown(cx))
    }
}
