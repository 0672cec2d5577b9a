//! One end of a WebSocket driven by recorded bytes, for conformance suites.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::tungstenite::protocol::{self, WebSocketContext};

use super::{Ending, Message, Role, Sizes, link};
use crate::Wake;

/// What one end made of the bytes that it was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// The messages, in order.
    pub messages: Vec<Message>,
    /// The payloads of the pongs that this end sent.
    pub pongs: Vec<Bytes>,
    /// The close frame that came, as code and reason.
    pub close: Option<(Option<u16>, String)>,
    /// The close code that this end failed with.
    pub error: Option<u16>,
    /// The code of the close frame that this end sent, zero when it had none.
    pub sent_close: Option<u16>,
}

/// Gives `chunks`, one a read, to an end in `role`, then the end of the transport.
///
/// ```
/// use triwire_std::tokio::socket::{Message, Role, messages_of};
///
/// let hello: [&[u8]; 2] = [&[0x81, 5, b'h', b'e'], b"llo"];
/// let received = messages_of(&hello, Role::Client, 1 << 20);
/// assert_eq!(received.messages, [Message::Text("hello".into())]);
/// ```
#[must_use]
pub fn messages_of(chunks: &[impl AsRef<[u8]>], role: Role, max_message: usize) -> Received {
    let script = Script::of(chunks.iter().map(|chunk| chunk.as_ref().to_vec()));
    let sizes = Sizes { max_message, ..Sizes::default() };
    let (mut rx, mut tx) = link(script, role, &[], sizes);
    let mut received = Received::default();
    // Nothing of a script is ever pending.
    let mut cx = Context::from_waker(Waker::noop());
    while let Poll::Ready(Ok(Wake::Bytes)) = rx.poll_wait(&mut cx) {
        received.messages.extend(rx.next());
    }
    match rx.ending() {
        Some(Ending::Closed { code, reason }) => received.close = Some((*code, reason.clone())),
        Some(Ending::Fault(fault)) => received.error = Some(fault.close_code()),
        Some(Ending::Lost) | None => {}
    }
    let _ = tx.poll_flush(&mut cx);
    let sent = tx.with_transport(|script| std::mem::take(&mut script.written));
    received.read_back(sent, role);
    received
}

impl Received {
    /// Notes the pongs and the close among the `sent` bytes, as the other end sees them.
    fn read_back(&mut self, sent: Vec<u8>, role: Role) {
        let other = match role {
            Role::Client => protocol::Role::Server,
            Role::Server => protocol::Role::Client,
        };
        let mut context = WebSocketContext::new(other, None);
        let mut sent = io::Cursor::new(sent);
        let mut port = Recorded(&mut sent);
        while let Ok(message) = context.read(&mut port) {
            match message {
                protocol::Message::Pong(payload) => self.pongs.push(payload),
                protocol::Message::Close(frame) => {
                    self.sent_close = Some(frame.map_or(0, |frame| frame.code.into()));
                }
                _ => {}
            }
        }
    }
}

/// Recorded bytes to read; what is written is dropped.
struct Recorded<'a>(&'a mut io::Cursor<Vec<u8>>);

impl io::Read for Recorded<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out)
    }
}

impl io::Write for Recorded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A transport of recorded chunks that keeps what is written.
struct Script {
    chunks: VecDeque<Vec<u8>>,
    written: Vec<u8>,
}

impl Script {
    fn of(chunks: impl Iterator<Item = Vec<u8>>) -> Self {
        // A read of nothing would be the end.
        Self { chunks: chunks.filter(|chunk| !chunk.is_empty()).collect(), written: Vec::new() }
    }
}

impl AsyncRead for Script {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(mut chunk) = self.chunks.pop_front() {
            let rest = chunk.split_off(chunk.len().min(out.remaining()));
            out.put_slice(&chunk);
            if !rest.is_empty() {
                self.chunks.push_front(rest);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Script {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.written.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
