//! One stream of the line, as the byte stream that it is to its command.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, BytesMut};
use futures_util::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of a stream that wait for the line beyond what the command's link holds.
const OUTGOING: usize = 4096;

/// How a stream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The device closed it.
    Closed,
    /// It broke; why, in words for people.
    Lost(String),
}

/// What the line's task and the stream's owner share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    incoming: BytesMut,
    /// Bytes taken since the line was last told.
    taken: usize,
    outgoing: BytesMut,
    /// Whether the device has shown that it knows the stream.
    known: bool,
    ended: Option<Ended>,
    given_up: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// The line's end of a stream.
#[derive(Clone, Debug)]
pub(super) struct LineEnd(Arc<Mutex<Shared>>);

/// The command's end of a stream; dropping it closes the stream.
#[derive(Debug)]
pub(super) struct Stream {
    shared: Arc<Mutex<Shared>>,
    line: Arc<AtomicWaker>,
}

/// Makes both ends; `line` wakes the line's task.
pub(super) fn pair(line: &Arc<AtomicWaker>) -> (LineEnd, Stream) {
    let shared = Arc::new(Mutex::default());
    (LineEnd(Arc::clone(&shared)), Stream { shared, line: Arc::clone(line) })
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    // Nothing in here panics half way.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

impl LineEnd {
    /// Hands bytes on; the line's credit bounds them.
    pub(super) fn deliver(&self, bytes: &[u8]) {
        let mut shared = lock(&self.0);
        shared.incoming.extend_from_slice(bytes);
        wake(&mut shared.reader);
    }

    /// Takes note that the device knows the stream.
    pub(super) fn know(&self) {
        let mut shared = lock(&self.0);
        if !shared.known {
            shared.known = true;
            wake(&mut shared.reader);
        }
    }

    pub(super) fn end(&self, how: Ended) {
        let mut shared = lock(&self.0);
        shared.ended.get_or_insert(how);
        shared.outgoing = BytesMut::new();
        wake(&mut shared.reader);
        wake(&mut shared.writer);
    }

    /// Takes note of the bytes that were taken since the last call.
    pub(super) fn taken(&self) -> usize {
        std::mem::take(&mut lock(&self.0).taken)
    }

    pub(super) fn is_given_up(&self) -> bool {
        lock(&self.0).given_up
    }

    /// Offers what waits to `send`, which advances it past what was sent.
    pub(super) fn offer(&self, send: impl FnOnce(&mut &[u8])) {
        let mut shared = lock(&self.0);
        let mut rest = &*shared.outgoing;
        if rest.is_empty() {
            return;
        }
        send(&mut rest);
        let sent = shared.outgoing.len() - rest.len();
        shared.outgoing.advance(sent);
        if sent > 0 {
            wake(&mut shared.writer);
        }
    }
}

#[cfg(feature = "server")]
impl Stream {
    /// Waits until the device has shown that it knows the stream.
    ///
    /// # Errors
    /// Why it does not, in words for people.
    pub(super) async fn known(&self) -> Result<(), String> {
        std::future::poll_fn(|cx| {
            let mut shared = lock(&self.shared);
            match &shared.ended {
                Some(Ended::Lost(why)) => Poll::Ready(Err(why.clone())),
                Some(Ended::Closed) => Poll::Ready(Err("the device closed it".to_owned())),
                None if shared.known => Poll::Ready(Ok(())),
                None => {
                    shared.reader = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut shared = lock(&self.shared);
        if shared.incoming.is_empty() {
            return match &shared.ended {
                Some(Ended::Closed) => Poll::Ready(Ok(())),
                Some(Ended::Lost(why)) => {
                    let why = why.clone();
                    Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionReset, why)))
                }
                None => {
                    shared.reader = Some(cx.waker().clone());
                    Poll::Pending
                }
            };
        }
        let count = shared.incoming.len().min(room.remaining());
        room.put_slice(shared.incoming.get(..count).unwrap_or_default());
        shared.incoming.advance(count);
        shared.taken += count;
        drop(shared);
        self.line.wake();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut shared = lock(&self.shared);
        if shared.ended.is_some() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let count = bytes.len().min(OUTGOING.saturating_sub(shared.outgoing.len()));
        if count == 0 && !bytes.is_empty() {
            shared.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        shared.outgoing.extend_from_slice(bytes.get(..count).unwrap_or_default());
        drop(shared);
        self.line.wake();
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Waits until the line has taken all that was written, so that a close behind it is behind it
    /// on the line as well. A stream has no half that could be closed alone.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut shared = lock(&self.shared);
        if shared.outgoing.is_empty() {
            return Poll::Ready(Ok(()));
        }
        shared.writer = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        lock(&self.shared).given_up = true;
        self.line.wake();
    }
}
