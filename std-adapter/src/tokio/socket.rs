//! Links over WebSocket messages, after the upgrade.
//!
//! The same shape as over byte streams: [`Rx::next`] gives a message, [`Tx::send`] takes one, and
//! [`Rx::wait`] and [`Tx::flush`] are the only awaits. Either half answers the peer's pings and
//! its close; a fault of the peer is answered with the close code that names it:
//!
//! | the peer sent | close code |
//! | --- | --- |
//! | a frame against the rules: bits, opcodes, order, masks, lengths, close bodies | 1002 |
//! | text or a close reason that is not UTF-8 | 1007 |
//! | a message above [`Sizes::max_message`], judged by its head | 1009 |
//!
//! ```
//! use triwire_std::Wake;
//! use triwire_std::tokio::socket::{Ending, Message, Role, Sizes, link};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (near, far) = tokio::io::duplex(1024);
//! let (mut rx, mut tx) = link(near, Role::Client, &[], Sizes::default());
//! let (mut server_rx, mut server_tx) = link(far, Role::Server, &[], Sizes::default());
//!
//! tx.send(Message::Text("hello".into()))?;
//! tx.flush().await?;
//! assert_eq!(server_rx.wait(None).await?, Wake::Bytes);
//! assert_eq!(server_rx.next(), Some(Message::Text("hello".into())));
//!
//! server_tx.close(1000, "done");
//! server_tx.flush().await?;
//! assert_eq!(rx.wait(None).await?, Wake::End);
//! let closed = Ending::Closed { code: Some(1000), reason: "done".into() };
//! assert_eq!(rx.ending(), Some(&closed));
//! # Ok(())
//! # }
//! ```

mod heads;
mod replay;

use std::fmt;
use std::future::poll_fn;
use std::io::{self, ErrorKind, Read, Write};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake as WakeTask, Waker};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, timeout_at};
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::frame::{CloseFrame, Utf8Bytes};
use tokio_tungstenite::tungstenite::protocol::{self, WebSocketConfig, WebSocketContext};
use tokio_tungstenite::tungstenite::{Error, handshake};
use triwire::exec::socket::{Close, MAX_SOCKET_MESSAGE, Reason};

use self::heads::Heads;
pub use self::replay::{Received, messages_of};
use crate::{Full, Wake};

/// The most bytes that a frame adds to its payload.
const HEAD: usize = 14;
/// Room for pongs and a close behind the messages that wait.
const CONTROL_ROOM: usize = 1024;

/// Which end of the connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Sent the upgrade; its frames are masked.
    Client,
    /// Answered the upgrade; its frames are not masked.
    Server,
}

/// The memory that one link may use, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The read buffer, and the most that one read of the transport takes; allocated at once.
    pub read_buffer: usize,
    /// What may wait to be sent, heads of at most 14 bytes a message included; grows to its size
    /// only when that much waits.
    pub send_buffer: usize,
    /// The longest message that the peer may send, fragments joined.
    pub max_message: usize,
}

impl Sizes {
    /// Sizes for moving much data over few links.
    #[must_use]
    pub fn bulk() -> Self {
        Self { read_buffer: 128 * 1024, send_buffer: 256 * 1024, ..Self::default() }
    }
}

impl Default for Sizes {
    /// Sizes for many links that mostly wait.
    fn default() -> Self {
        Self { read_buffer: 8 * 1024, send_buffer: 128 * 1024, max_message: MAX_SOCKET_MESSAGE }
    }
}

/// A whole message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A text message.
    Text(Text),
    /// A binary message.
    Binary(Bytes),
}

impl Message {
    /// Returns the message's bytes, of either kind.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Binary(bytes) => bytes,
        }
    }

    /// Lends the message as the machines take it.
    #[must_use]
    pub fn as_core(&self) -> triwire::exec::socket::Message<'_> {
        match self {
            Self::Text(text) => triwire::exec::socket::Message::Text(text.as_bytes()),
            Self::Binary(bytes) => triwire::exec::socket::Message::Binary(bytes),
        }
    }
}

/// The content of a text message: bytes that are known to be UTF-8.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Text(Utf8Bytes);

impl Text {
    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl std::ops::Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<Text> for Bytes {
    fn from(text: Text) -> Self {
        text.0.into()
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// What the peer did against the rules of WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A frame that must not be.
    Protocol,
    /// Text that is not UTF-8.
    NotUtf8,
    /// A message above the limit.
    TooLarge,
}

impl Fault {
    /// Returns the close frame that names the fault to the peer.
    #[must_use]
    pub fn close(self) -> Close {
        match self {
            Self::Protocol => Close::protocol(self),
            Self::NotUtf8 => Close::not_utf8(),
            Self::TooLarge => Close::too_large(),
        }
    }

    /// Returns the code of [`close`](Self::close).
    #[must_use]
    pub fn close_code(self) -> u16 {
        self.close().code
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Protocol => "a frame against the rules of WebSocket",
            Self::NotUtf8 => "text that is not UTF-8",
            Self::TooLarge => "a message above the size limit; send it in smaller ones",
        })
    }
}

impl std::error::Error for Fault {}

/// How the peer's messages ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The peer sent a close frame; when it closed first, the answer is sent or waits in [`Tx`].
    Closed {
        /// The code, none when the frame had none.
        code: Option<u16>,
        /// The reason, often empty.
        reason: String,
    },
    /// The transport ended without a close frame.
    Lost,
    /// The peer broke the rules; the close frame that says so is sent or waits in [`Tx`].
    Fault(Fault),
}

/// A message that was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// No room: [`flush`](Tx::flush), then send again.
    Full(Full),
    /// A close frame was sent or received: nothing follows it.
    Closed,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(full) => full.fmt(f),
            Self::Closed => f.write_str("the WebSocket is closed: send nothing more"),
        }
    }
}

impl std::error::Error for SendError {}

/// Returns the `Sec-WebSocket-Accept` value that answers a `Sec-WebSocket-Key`.
#[must_use]
pub fn accept_key(key: &str) -> String {
    handshake::derive_accept_key(key.as_bytes())
}

/// Makes a link over `transport` right behind the upgrade; `unread` is what was already read
/// behind the HTTP head.
///
/// The halves may live in different tasks; the transport is dropped with the last of them. Memory is bounded by `sizes`: one message of
/// `max_message` being received, one received and not yet taken, and `send_buffer`.
#[must_use]
pub fn link<S>(transport: S, role: Role, unread: &[u8], sizes: Sizes) -> (Rx<S>, Tx<S>) {
    let wakers = Arc::new(Wakers::default());
    let mut heads = Heads::new(role, sizes.max_message);
    let early = heads.follow(unread).err();
    let taken = early.map_or(unread.len(), |(at, _)| at);
    // Sending only queues: the flush writes.
    let config = WebSocketConfig::default()
        .read_buffer_size(sizes.read_buffer)
        .write_buffer_size(sizes.send_buffer.saturating_add(CONTROL_ROOM))
        .max_write_buffer_size(sizes.send_buffer.saturating_add(CONTROL_ROOM + 1))
        .max_message_size(Some(sizes.max_message))
        // A control frame may be larger than a very small message.
        .max_frame_size(Some(sizes.max_message.max(125)));
    let own = match role {
        Role::Client => protocol::Role::Client,
        Role::Server => protocol::Role::Server,
    };
    let part = unread.get(..taken).unwrap_or_default().to_vec();
    let shared = Arc::new(Mutex::new(Shared {
        transport,
        context: WebSocketContext::from_partially_read(part, own, Some(config)),
        heads,
        fault: early.map(|(_, fault)| fault),
        waker: Waker::from(Arc::clone(&wakers)),
        queued: 0,
        unflushed: false,
    }));
    let rx =
        Rx { shared: Arc::clone(&shared), wakers: Arc::clone(&wakers), ready: None, ending: None };
    (rx, Tx { shared, wakers, send_buffer: sizes.send_buffer })
}

/// Both halves' tasks: whichever half polls the transport, both are woken.
#[derive(Default)]
struct Wakers {
    rx: AtomicWaker,
    tx: AtomicWaker,
}

impl WakeTask for Wakers {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rx.wake();
        self.tx.wake();
    }
}

struct Shared<S> {
    transport: S,
    context: WebSocketContext,
    heads: Heads,
    /// A fault in bytes that the codec will not see.
    fault: Option<Fault>,
    waker: Waker,
    /// Bytes of messages that wait in the codec, at most.
    queued: usize,
    /// Something may wait in the codec or in the transport.
    unflushed: bool,
}

/// The transport as the codec sees it: blocking calls that would block.
struct Port<'a, S> {
    transport: &'a mut S,
    heads: &'a mut Heads,
    fault: &'a mut Option<Fault>,
    waker: &'a Waker,
    queued: &'a mut usize,
}

fn blocking(poll: Poll<io::Result<usize>>) -> io::Result<usize> {
    match poll {
        Poll::Ready(done) => done,
        Poll::Pending => Err(ErrorKind::WouldBlock.into()),
    }
}

fn retried(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

impl<S: AsyncRead + Unpin> Read for Port<'_, S> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if let Some(fault) = *self.fault {
            return Err(io::Error::new(ErrorKind::InvalidData, fault));
        }
        let mut cx = Context::from_waker(self.waker);
        let count = retried(|| {
            let mut room = ReadBuf::new(out);
            let read = Pin::new(&mut *self.transport).poll_read(&mut cx, &mut room);
            blocking(read.map_ok(|()| room.filled().len()))
        })?;
        match self.heads.follow(out.get(..count).unwrap_or_default()) {
            Ok(()) => Ok(count),
            Err((at, fault)) => {
                *self.fault = Some(fault);
                // Nothing before the fault: a read of nothing would look like the end.
                if at == 0 { self.read(out) } else { Ok(at) }
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> Write for Port<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut cx = Context::from_waker(self.waker);
        let count =
            retried(|| blocking(Pin::new(&mut *self.transport).poll_write(&mut cx, bytes)))?;
        *self.queued = self.queued.saturating_sub(count);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut cx = Context::from_waker(self.waker);
        let flushed = || {
            let poll = Pin::new(&mut *self.transport).poll_flush(&mut cx);
            blocking(poll.map_ok(|()| 0))
        };
        retried(flushed).map(|_| ())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Shared<S> {
    fn parts(&mut self) -> (&mut WebSocketContext, Port<'_, S>) {
        let Self { transport, context, heads, fault, waker, queued, .. } = self;
        (context, Port { transport, heads, fault, waker, queued })
    }

    fn poll_flush(&mut self) -> Poll<io::Result<()>> {
        let (context, mut port) = self.parts();
        // A pong that found no room waits apart; the second flush takes it along.
        let flushed = match context.flush(&mut port).and_then(|()| context.flush(&mut port)) {
            // The closing handshake is complete; the codec leaves the transport unflushed.
            Err(Error::ConnectionClosed | Error::AlreadyClosed) => port.flush(),
            Ok(()) => Ok(()),
            Err(Error::Io(error)) => Err(error),
            Err(error) => Err(io::Error::other(error)),
        };
        match flushed {
            Ok(()) => {
                self.queued = 0;
                self.unflushed = false;
                Poll::Ready(Ok(()))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Flushes as far as the transport takes it now; a failure shows at the next flush.
    fn try_flush(&mut self) {
        self.unflushed = true;
        let _ = self.poll_flush();
    }

    fn close(&mut self, code: u16, reason: &str) {
        let reason = Reason::new(reason);
        if self.context.can_write() {
            // Pongs may have used up the room; a close frame is never left out.
            self.context.set_config(|config| {
                config.max_write_buffer_size =
                    config.max_write_buffer_size.saturating_add(CONTROL_ROOM);
            });
        }
        let (context, mut port) = self.parts();
        // A pong that waits goes before the close, not behind it. What would block, and what
        // failed, shows at the next flush.
        let _ = context.flush(&mut port);
        let frame = CloseFrame { code: code.into(), reason: reason.as_str().into() };
        let _ = context.close(&mut port, Some(frame));
        self.unflushed = true;
    }

    /// Reads until there is a message or the end.
    fn poll_read(&mut self) -> Poll<io::Result<Result<Message, Ending>>> {
        let fault = loop {
            let (context, mut port) = self.parts();
            match context.read(&mut port) {
                Ok(protocol::Message::Text(text)) => {
                    return Poll::Ready(Ok(Ok(Message::Text(Text(text)))));
                }
                Ok(protocol::Message::Binary(bytes)) => {
                    return Poll::Ready(Ok(Ok(Message::Binary(bytes))));
                }
                Ok(protocol::Message::Ping(_)) => self.try_flush(),
                Ok(protocol::Message::Pong(_) | protocol::Message::Frame(_)) => {}
                Ok(protocol::Message::Close(frame)) => {
                    self.try_flush();
                    let (code, reason) = match frame {
                        Some(frame) => (Some(frame.code.into()), frame.reason.as_str().to_owned()),
                        None => (None, String::new()),
                    };
                    return Poll::Ready(Ok(Err(Ending::Closed { code, reason })));
                }
                Err(
                    Error::ConnectionClosed
                    | Error::AlreadyClosed
                    | Error::Protocol(ProtocolError::ResetWithoutClosingHandshake),
                ) => return Poll::Ready(Ok(Err(Ending::Lost))),
                Err(Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => {
                    return Poll::Pending;
                }
                Err(Error::Io(error)) => match self.fault {
                    Some(fault) => break fault,
                    None => return Poll::Ready(Err(error)),
                },
                Err(Error::Utf8(_)) => break Fault::NotUtf8,
                Err(Error::Capacity(_)) => break Fault::TooLarge,
                Err(_) => break Fault::Protocol,
            }
        };
        let close = fault.close();
        self.close(close.code, close.reason.as_str());
        self.try_flush();
        Poll::Ready(Ok(Err(Ending::Fault(fault))))
    }
}

fn lock<S>(shared: &Mutex<Shared<S>>) -> MutexGuard<'_, Shared<S>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The receiving half.
pub struct Rx<S> {
    shared: Arc<Mutex<Shared<S>>>,
    wakers: Arc<Wakers>,
    ready: Option<Message>,
    ending: Option<Ending>,
}

impl<S> Rx<S> {
    /// Gives the message that a wait found, or `None`; ask until it is `None`.
    // Not an iterator: more may come after `None`.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Message> {
        self.ready.take()
    }

    /// Returns how the peer's messages ended, once a wait said [`Wake::End`].
    #[must_use]
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// Joins the halves and gives the transport back; what is unread or unsent is lost.
    ///
    /// `None` when `tx` is half of another link.
    #[must_use]
    pub fn into_transport(self, tx: Tx<S>) -> Option<S> {
        drop(tx);
        let shared = Arc::into_inner(self.shared)?;
        Some(shared.into_inner().unwrap_or_else(PoisonError::into_inner).transport)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Rx<S> {
    /// Waits until a message came, the peer's end, or `until`; pings are answered meanwhile.
    ///
    /// While a message that a wait told of is not taken, only `until` ends the wait.
    ///
    /// # Errors
    /// The transport's.
    ///
    /// # Cancel safety
    /// Cancel safe: all progress is kept in the link; no part of a message is lost.
    pub async fn wait(&mut self, until: Option<Instant>) -> io::Result<Wake> {
        let woken = poll_fn(|cx| self.poll_wait(cx));
        match until {
            None => woken.await,
            Some(until) => timeout_at(until, woken).await.unwrap_or(Ok(Wake::Deadline)),
        }
    }

    /// Polls for what [`wait`](Self::wait) waits for, without a deadline.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Wake>> {
        if self.ending.is_some() {
            return Poll::Ready(Ok(Wake::End));
        }
        self.wakers.rx.register(cx.waker());
        let mut shared = lock(&self.shared);
        if self.ready.is_some() {
            // A pong that could not go out before still goes out.
            return match shared.unflushed.then(|| shared.poll_flush()) {
                Some(Poll::Ready(Err(error))) => Poll::Ready(Err(error)),
                _ => Poll::Pending,
            };
        }
        shared.poll_read().map_ok(|read| match read {
            Ok(message) => {
                self.ready = Some(message);
                Wake::Bytes
            }
            Err(ending) => {
                self.ending = Some(ending);
                Wake::End
            }
        })
    }
}

/// The sending half.
pub struct Tx<S> {
    shared: Arc<Mutex<Shared<S>>>,
    wakers: Arc<Wakers>,
    send_buffer: usize,
}

impl<S> Tx<S> {
    /// Reports whether a message of `count` bytes can be taken.
    #[must_use]
    pub fn has_room(&self, count: usize) -> bool {
        let needed = count.saturating_add(HEAD);
        lock(&self.shared).queued.saturating_add(needed) <= self.send_buffer
    }

    /// Reports whether nothing waits to be sent.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        !lock(&self.shared).unflushed
    }

    /// Calls `look` with the transport, to ask it something; reading or writing there breaks the
    /// framing.
    pub fn with_transport<T>(&self, look: impl FnOnce(&mut S) -> T) -> T {
        look(&mut lock(&self.shared).transport)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Tx<S> {
    /// Takes a message to send; never waits, and writes nothing but what was promised before.
    ///
    /// # Errors
    /// [`SendError::Full`] when less room is left: stop producing, go on reading, and send again
    /// once [`flush`](Self::flush) made room. [`SendError::Closed`] behind a close frame.
    pub fn send(&mut self, message: Message) -> Result<(), SendError> {
        let message = match message {
            Message::Text(text) => protocol::Message::Text(text.0),
            Message::Binary(bytes) => protocol::Message::Binary(bytes),
        };
        self.queue(message)
    }

    /// Takes a ping to send; the answer shows only as traffic. At most 125 bytes are sent.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn ping(&mut self, payload: &[u8]) -> Result<(), SendError> {
        let payload = payload.get(..125).unwrap_or(payload);
        self.queue(protocol::Message::Ping(Bytes::copy_from_slice(payload)))
    }

    /// Takes a close frame to send, such as the core asks for; nothing is taken after it, and a
    /// second one is dropped.
    ///
    /// `reason` is cut to 123 bytes, never inside a character. There is always room for it.
    pub fn close(&mut self, code: u16, reason: &str) {
        lock(&self.shared).close(code, reason);
    }

    /// Sends what waits: messages, pongs, the close frame.
    ///
    /// # Errors
    /// The transport's.
    ///
    /// # Cancel safety
    /// Cancel safe: what was written is gone from the queue at once, so a dropped flush goes on
    /// where it stopped.
    pub async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// Polls [`flush`](Self::flush).
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wakers.tx.register(cx.waker());
        lock(&self.shared).poll_flush()
    }

    /// Flushes, then closes the transport's write side.
    ///
    /// # Errors
    /// The transport's.
    ///
    /// # Cancel safety
    /// Cancel safe, as [`flush`](Self::flush) is.
    pub async fn shutdown(&mut self) -> io::Result<()> {
        self.flush().await?;
        poll_fn(|cx| Pin::new(&mut lock(&self.shared).transport).poll_shutdown(cx)).await
    }

    fn queue(&mut self, message: protocol::Message) -> Result<(), SendError> {
        let needed = message.len().saturating_add(HEAD);
        let mut shared = lock(&self.shared);
        if !shared.context.can_write() {
            return Err(SendError::Closed);
        }
        if shared.queued.saturating_add(needed) > self.send_buffer {
            return Err(SendError::Full(Full { needed }));
        }
        let (context, mut port) = shared.parts();
        let taken = match context.write(&mut port, message) {
            // The message is queued; a pong before it could not be written or failed, which the
            // next flush tries again or shows.
            Ok(()) | Err(Error::Io(_)) => Ok(()),
            Err(Error::WriteBufferFull(_)) => Err(SendError::Full(Full { needed })),
            Err(_) => Err(SendError::Closed),
        };
        if taken.is_ok() {
            shared.queued = shared.queued.saturating_add(needed);
            shared.unflushed = true;
        }
        taken
    }
}

impl<S> fmt::Debug for Rx<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rx").field("ending", &self.ending).finish_non_exhaustive()
    }
}

impl<S> fmt::Debug for Tx<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx").finish_non_exhaustive()
    }
}
