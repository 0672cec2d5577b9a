//! The accepted socket: read, written and watched by one task through shared handles.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::net::Shutdown;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout_at;
use triwire::exec::linger::Linger;

use super::stop::Event;
use crate::clock::Clock;

/// A TCP stream whose clones are the same stream.
#[derive(Clone, Debug)]
pub(super) struct Socket(Arc<TcpStream>);

impl Socket {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self(Arc::new(stream))
    }

    /// Makes a future that is ready once the peer has ended its sending side or reset the
    /// connection, noticed without reading; never elsewhere than on Linux.
    pub(super) fn gone(&self) -> Event {
        let stream = Arc::clone(&self.0);
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
        return super::unacked::of(&self.0);
        #[cfg(not(target_os = "linux"))]
        return 0;
    }

    /// Ends our sending side; what is queued still goes out.
    pub(super) fn end_sending(&self) {
        // A connection that is already broken has no side to end.
        let _ = rustix::net::shutdown(&*self.0, Shutdown::Write);
    }

    /// Reads into `room` without taking more than it holds.
    pub(super) fn poll_read_into(
        &self,
        cx: &mut Context<'_>,
        room: &mut impl bytes::BufMut,
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

    /// Writes what it can of several slices.
    pub(super) fn poll_write_slices(
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

    /// Ends our sending side, and keeps the connection until the peer has what was sent: a socket
    /// that is closed over unread input is reset, and takes the last bytes with it.
    pub(super) async fn linger(mut self, clock: Clock) {
        self.end_sending();
        let mut linger = Linger::new(clock.now());
        linger.acknowledged(clock.now(), self.unacknowledged());
        let mut sink = [0; 4096];
        while linger.poll(clock.now()).is_none()
            && let Some(deadline) = linger.deadline()
        {
            match timeout_at(clock.to_tokio(deadline), self.read(&mut sink)).await {
                Ok(Ok(0) | Err(_)) => linger.peer_closed(clock.now()),
                Ok(Ok(count)) => linger.feed(clock.now(), count),
                Err(_) => linger.acknowledged(clock.now(), self.unacknowledged()),
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

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.end_sending();
        Poll::Ready(Ok(()))
    }
}
