//! The accepted socket: read, written and watched by one task through shared handles.

#[cfg(feature = "tls")]
use std::future::Future as _;
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
#[cfg(feature = "tls")]
use std::pin::pin;
use std::sync::Arc;
#[cfg(feature = "tls")]
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::BufMut;
use rustix::net::Shutdown;
#[cfg(feature = "tls")]
use tokio::io::AsyncReadExt as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout_at;
#[cfg(feature = "tls")]
use tokio_rustls::TlsAcceptor;
#[cfg(feature = "tls")]
use tokio_rustls::server::TlsStream;
use triwire::exec::linger::Linger;

use super::stop::Event;
use crate::clock::Clock;

/// A connection whose clones are the same one: TCP, or TLS over it.
#[derive(Clone)]
pub(super) struct Socket {
    tcp: Tcp,
    #[cfg(feature = "tls")]
    tls: Option<Arc<Mutex<TlsStream<Tcp>>>>,
}

/// The TCP stream itself, shared too: it is watched without reading it.
#[derive(Clone, Debug)]
struct Tcp(Arc<TcpStream>);

impl Socket {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self {
            tcp: Tcp(Arc::new(stream)),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Speaks TLS from here on.
    #[cfg(feature = "tls")]
    pub(super) async fn secure(self, acceptor: &TlsAcceptor) -> io::Result<Self> {
        let tls = acceptor.accept(self.tcp.clone()).await?;
        Ok(Self { tcp: self.tcp, tls: Some(Arc::new(Mutex::new(tls))) })
    }

    /// Waits for the first byte and tells whether a TLS handshake begins with it, without taking
    /// it.
    #[cfg(feature = "tls")]
    pub(super) async fn begins_tls(&self) -> io::Result<bool> {
        /// The type of a handshake's record.
        const HANDSHAKE: u8 = 22;
        let mut first = [0];
        let count = self.tcp.0.peek(&mut first).await?;
        Ok(count == 0 || first == [HANDSHAKE])
    }

    /// Lends the TLS stream. One task uses a connection, so nobody ever waits here.
    #[cfg(feature = "tls")]
    fn tls(&self) -> Option<MutexGuard<'_, TlsStream<Tcp>>> {
        let tls = self.tls.as_ref()?;
        Some(tls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes a future that is ready once the peer has ended its sending side or reset the
    /// connection, noticed without reading; never elsewhere than on Linux.
    pub(super) fn gone(&self) -> Event {
        let stream = Arc::clone(&self.tcp.0);
        Box::pin(async move {
            #[cfg(target_os = "linux")]
            {
                use tokio::io::Interest;
                // The readiness of a closed end comes with every interest but writing, and this
                // one is not kept awake by bytes that nobody reads.
                let interest = Interest::PRIORITY;
                loop {
                    match stream.ready(interest).await {
                        Ok(ready) if !ready.is_read_closed() => {
                            // Urgent data: not ours to read, wait for the next event.
                            let _ = stream.try_io(interest, || {
                                Err::<(), _>(io::Error::from(ErrorKind::WouldBlock))
                            });
                        }
                        _ => return,
                    }
                }
            }
            #[cfg(not(target_os = "linux"))]
            {
                drop(stream);
                std::future::pending().await
            }
        })
    }

    /// Returns how many of our bytes the peer has not acknowledged; 0 where the system does not
    /// tell.
    pub(super) fn unacknowledged(&self) -> usize {
        #[cfg(target_os = "linux")]
        return super::unacked::of(&self.tcp.0);
        #[cfg(not(target_os = "linux"))]
        return 0;
    }

    /// Ends our sending side; what is queued still goes out. Pending while TLS cannot say so yet.
    pub(super) fn poll_end_sending(&self, cx: &mut Context<'_>) -> Poll<()> {
        #[cfg(feature = "tls")]
        if let Some(mut tls) = self.tls() {
            // A connection that is already broken has no side to end.
            return Pin::new(&mut *tls).poll_shutdown(cx).map(drop);
        }
        let _ = cx;
        self.tcp.end_sending();
        Poll::Ready(())
    }

    /// Reads into `room` without taking more than it holds.
    pub(super) fn poll_read_into(
        &self,
        cx: &mut Context<'_>,
        room: &mut impl BufMut,
    ) -> Poll<io::Result<usize>> {
        #[cfg(feature = "tls")]
        if let Some(mut tls) = self.tls() {
            let read = pin!(tls.read_buf(room)).poll(cx);
            return match read {
                // A peer that just closes has ended its sending as one without TLS has.
                Poll::Ready(Err(error)) if error.kind() == ErrorKind::UnexpectedEof => {
                    Poll::Ready(Ok(0))
                }
                read => read,
            };
        }
        self.tcp.poll_read_into(cx, room)
    }

    /// Writes what it can of several slices. In TLS [`poll_flush`](Self::poll_flush) is still to
    /// come.
    pub(super) fn poll_write_slices(
        &self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        #[cfg(feature = "tls")]
        if let Some(mut tls) = self.tls() {
            return Pin::new(&mut *tls).poll_write_vectored(cx, slices);
        }
        self.tcp.poll_write_slices(cx, slices)
    }

    /// Hands on to the system what was written.
    pub(super) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        #[cfg(feature = "tls")]
        if let Some(mut tls) = self.tls() {
            return Pin::new(&mut *tls).poll_flush(cx);
        }
        let _ = cx;
        Poll::Ready(Ok(()))
    }

    /// Ends our sending side, and keeps the connection until the peer has what was sent: a socket
    /// that is closed over unread input is reset, and takes the last bytes with it.
    pub(super) async fn linger(mut self, clock: Clock) {
        let mut linger = Linger::new(clock.now());
        linger.acknowledged(clock.now(), self.unacknowledged());
        let mut sink = [0; 4096];
        let mut ended = false;
        while linger.poll(clock.now()).is_none()
            && let Some(deadline) = linger.deadline()
        {
            let read = poll_fn(|cx| {
                ended = ended || self.poll_end_sending(cx).is_ready();
                let mut room = ReadBuf::new(&mut sink);
                Pin::new(&mut self).poll_read(cx, &mut room).map_ok(|()| room.filled().len())
            });
            match timeout_at(clock.to_tokio(deadline), read).await {
                Ok(Ok(0) | Err(_)) => linger.peer_closed(clock.now()),
                Ok(Ok(count)) => linger.feed(clock.now(), count),
                Err(_) => linger.acknowledged(clock.now(), self.unacknowledged()),
            }
        }
    }
}

impl Tcp {
    fn end_sending(&self) {
        // A connection that is already broken has no side to end.
        let _ = rustix::net::shutdown(&*self.0, Shutdown::Write);
    }

    fn poll_read_into(
        &self,
        cx: &mut Context<'_>,
        room: &mut impl BufMut,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.0.try_read_buf(room) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                done => return Poll::Ready(done),
            }
        }
    }

    fn poll_write_slices(
        &self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match self.0.try_write_vectored(slices) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                done => return Poll::Ready(done),
            }
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_read_into(cx, room).map_ok(|_| ())
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_slices(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_slices(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Self::poll_flush(&self, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_end_sending(cx).map(Ok)
    }
}

// What TLS reads and writes.
#[cfg(feature = "tls")]
impl AsyncRead for Tcp {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_read_into(cx, room).map_ok(|_| ())
    }
}

#[cfg(feature = "tls")]
impl AsyncWrite for Tcp {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_slices(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_slices(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.end_sending();
        Poll::Ready(Ok(()))
    }
}
