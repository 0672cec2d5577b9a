//! What a session needs of a transport: the next bytes of the frame stream in one piece, a place
//! to queue frames, and how it ended.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{ReadHalf, WriteHalf};
use triwire::exec::body::{Body, BodyError};
use triwire::exec::session::Frames;
use triwire::exec::socket::{ClientSocket, Close, Message};
use zeroize::Zeroizing;

use super::ClientError;
use super::stream::Stream;
use crate::Wake;
use crate::exchange::on_one_line;
use crate::tokio::{socket, stream};

/// Room for the bytes that were read and are not yet used.
pub(super) const INBOX: usize = 256 * 1024;
/// Room for the frames that wait to be sent.
pub(super) const OUTBOX: usize = 256 * 1024;

pub(super) type Rx = stream::Rx<ReadHalf<Stream>, Box<[u8]>>;
/// The request's head holds the key, so what held it is wiped.
pub(super) type Tx = stream::Tx<WriteHalf<Stream>, Zeroizing<Vec<u8>>>;

/// One connection behind its heads.
pub(super) enum Link {
    Http(Box<HttpLink>),
    Socket(Box<SocketLink>),
}

/// One-shot and hijack: the stream of frames is the rest of the answer, as its head delimits it.
pub(super) struct HttpLink {
    pub(super) rx: Rx,
    pub(super) tx: Tx,
    pub(super) body: Body,
    /// Bytes at the front of the unread ones that are frames, no chunk heads among them.
    pub(super) piece: usize,
}

/// The stream of frames is the concatenation of the messages.
pub(super) struct SocketLink {
    pub(super) rx: socket::Rx<Stream>,
    pub(super) tx: socket::Tx<Stream>,
    pub(super) rules: ClientSocket,
    /// What is unused of the last message.
    pub(super) message: Bytes,
}

/// What a wait brought.
pub(super) enum Arrived {
    Bytes,
    End(End),
}

/// How the connection ended.
pub(super) enum End {
    /// The body's own end, or the server's end of sending.
    Orderly,
    /// The transport failed.
    Failed(io::Error),
}

impl Link {
    /// Returns the next bytes of the frame stream that are there, in one piece.
    pub(super) fn piece(&self) -> &[u8] {
        match self {
            Self::Http(link) => link.rx.unread().get(..link.piece).unwrap_or_default(),
            Self::Socket(link) => &link.message,
        }
    }

    /// Returns a part of the piece as bytes that live on; without a copy where it is a message.
    pub(super) fn share(&self, range: std::ops::Range<usize>) -> Bytes {
        match self {
            Self::Http(_) => Bytes::copy_from_slice(self.piece().get(range).unwrap_or_default()),
            Self::Socket(link) => link.message.slice(range),
        }
    }

    /// Uses up the first `used` bytes of the piece, and finds the next one when none are left;
    /// `false` when there is none yet.
    pub(super) fn advance(&mut self, used: usize) -> Result<bool, BodyError> {
        match self {
            Self::Http(link) => link.advance(used),
            Self::Socket(link) => {
                link.message.advance(used.min(link.message.len()));
                Ok(!link.message.is_empty())
            }
        }
    }

    /// Waits for more, once the piece is used up.
    pub(super) fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<Arrived, ClientError>> {
        match self {
            Self::Http(link) => Poll::Ready(Ok(ready!(link.poll_more(cx)))),
            Self::Socket(link) => link.poll_more(cx),
        }
    }

    /// Reports whether frames of `count` bytes in all can be queued.
    pub(super) fn has_room(&self, count: usize) -> bool {
        match self {
            Self::Http(link) => link.tx.has_room(count),
            Self::Socket(link) => link.tx.has_room(count),
        }
    }

    /// Queues frames for which there is room; `false` when the connection takes no more.
    pub(super) fn queue(&mut self, frames: Frames<'_>) -> bool {
        match self {
            Self::Http(link) => frames.into_iter().all(|frame| {
                link.tx.send(&frame.head).is_ok() && link.tx.send(frame.payload).is_ok()
            }),
            Self::Socket(link) => {
                let mut message = BytesMut::zeroed(frames.wire_len());
                frames.write(&mut message).is_ok() && link.send(message.freeze())
            }
        }
    }

    /// Queues a frame without payload.
    pub(super) fn queue_head(&mut self, head: [u8; 8]) -> bool {
        match self {
            Self::Http(link) => link.tx.send(&head).is_ok(),
            Self::Socket(link) => link.send(Bytes::copy_from_slice(&head)),
        }
    }

    /// Sends what waits.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Http(link) if link.tx.is_flushed() => Poll::Ready(Ok(())),
            Self::Http(link) => link.tx.poll_flush(cx),
            Self::Socket(link) if link.tx.is_flushed() => Poll::Ready(Ok(())),
            Self::Socket(link) => link.tx.poll_flush(cx),
        }
    }

    /// Tells the server why this end gives up, where the transport has words for it.
    pub(super) fn give_up(&mut self, error: &ClientError, cx: &mut Context<'_>) {
        let Self::Socket(link) = self else { return };
        let close = match error {
            ClientError::Message(close) => **close,
            ClientError::Exec(error) => Close::protocol(error),
            _ => return,
        };
        link.tx.close(close.code, close.reason.as_str());
        // What does not go out now never does: the caller drops the connection.
        let _ = link.tx.poll_flush(cx);
    }
}

impl HttpLink {
    fn advance(&mut self, used: usize) -> Result<bool, BodyError> {
        self.rx.consume(used);
        self.piece = self.piece.saturating_sub(used);
        if self.piece > 0 {
            return Ok(true);
        }
        let unread = self.rx.unread();
        let mut rest = unread;
        let found = self.body.feed(&mut rest)?;
        self.piece = found.map_or(0, <[u8]>::len);
        // The piece ends where the rest begins; what stands before it is no frame.
        let before = unread.len() - rest.len() - self.piece;
        self.rx.consume(before);
        Ok(self.piece > 0)
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Arrived> {
        if self.body.is_complete() {
            return Poll::Ready(Arrived::End(End::Orderly));
        }
        Poll::Ready(match ready!(self.rx.poll_wait(cx)) {
            Ok(Wake::Bytes | Wake::Deadline) => Arrived::Bytes,
            Ok(Wake::End) => Arrived::End(End::Orderly),
            Err(error) => Arrived::End(End::Failed(error)),
        })
    }
}

impl SocketLink {
    fn send(&mut self, message: Bytes) -> bool {
        self.tx.send(socket::Message::Binary(message)).is_ok()
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<Arrived, ClientError>> {
        match ready!(self.rx.poll_wait(cx)) {
            Ok(Wake::Bytes | Wake::Deadline) => {}
            Ok(Wake::End) => {
                match self.rx.ending() {
                    Some(socket::Ending::Fault(fault)) => {
                        return Poll::Ready(Err(ClientError::Socket(*fault)));
                    }
                    Some(socket::Ending::Closed { code, reason }) => {
                        // rule: EXEC-26
                        self.rules.closed(Close::new(
                            code.unwrap_or(NO_CODE),
                            on_one_line(reason.chars()),
                        ));
                    }
                    Some(socket::Ending::Lost) | None => {}
                }
                return Poll::Ready(Ok(Arrived::End(End::Orderly)));
            }
            Err(error) => return Poll::Ready(Ok(Arrived::End(End::Failed(error)))),
        }
        if let Some(message) = self.rx.next() {
            let kind = match &message {
                socket::Message::Text(text) => Message::Text(text.as_bytes()),
                socket::Message::Binary(bytes) => Message::Binary(bytes),
            };
            self.rules.feed(kind).map_err(|close| ClientError::Message(Box::new(close)))?;
            if let socket::Message::Binary(bytes) = message {
                self.message = bytes;
            }
        }
        Poll::Ready(Ok(Arrived::Bytes))
    }
}

/// What a close frame without a code counts as (RFC 6455, 7.1.5).
const NO_CODE: u16 = 1005;
