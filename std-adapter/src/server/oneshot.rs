//! Bodies of answers: the frame stream of a one-shot command as it is produced, a file, or a short
//! text.
//!
//! hyper polls the stream only while it has room to write, so a slow client slows the command; it
//! drops the body when the client is gone, which ends the command.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

use super::command::Command;
use super::frames::FrameBuf;
use super::metrics::End;
use super::stop::{Event, SHUTTING_DOWN};

/// A frame stream being made.
pub(super) struct Stream {
    command: Command,
    stop: Event,
    /// The client's end, where it can be seen without reading.
    gone: Option<Event>,
}

/// The body of an answer.
pub(super) enum AnswerBody {
    Text(Bytes),
    File(Content),
    Stream(Box<Stream>),
}

/// A file's content, as a thread that may wait for the disk reads it.
pub(super) struct Content {
    pub(super) pieces: mpsc::Receiver<io::Result<Bytes>>,
    /// Bytes that were promised and did not go out yet.
    pub(super) left: u64,
}

impl AnswerBody {
    /// Streams a command's output; its input ends at once.
    pub(super) fn stream(mut command: Command, stop: Event, gone: Option<Event>) -> Self {
        // rule: EXEC-47
        command.close_stdin();
        Self::Stream(Box::new(Stream { command, stop, gone }))
    }

    /// Returns the same body with plain bytes, as axum takes them.
    pub(super) fn into_axum(self) -> axum::body::Body {
        use http_body_util::BodyExt;
        axum::body::Body::new(
            self.map_frame(|frame| frame.map_data(|mut data| data.copy_to_bytes(data.remaining()))),
        )
    }
}

/// Why a body ends early.
#[derive(Debug)]
pub(super) enum Broken {
    /// The client went away while its command ran.
    Gone,
    /// The file could not be read on.
    Read(io::Error),
    /// The file is shorter than it was when its length was sent.
    Shrank,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("the client went away: its command is killed"),
            Self::Read(error) => write!(f, "the file cannot be read on: {error}"),
            Self::Shrank => f.write_str("the file shrank while it was sent"),
        }
    }
}

impl std::error::Error for Broken {}

impl Body for AnswerBody {
    type Data = FrameBuf;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<FrameBuf>, Broken>>> {
        let stream = match self.get_mut() {
            Self::Text(text) if text.is_empty() => return Poll::Ready(None),
            Self::Text(text) => {
                let text = FrameBuf::whole(std::mem::take(text));
                return Poll::Ready(Some(Ok(Frame::data(text))));
            }
            Self::File(content) if content.left == 0 => return Poll::Ready(None),
            Self::File(content) => {
                return content.pieces.poll_recv(cx).map(|piece| match piece {
                    Some(Ok(piece)) => {
                        content.left = content.left.saturating_sub(piece.len() as u64);
                        Some(Ok(Frame::data(FrameBuf::whole(piece))))
                    }
                    // The connection breaks off, which is how the client sees it.
                    Some(Err(error)) => Some(Err(Broken::Read(error))),
                    None => Some(Err(Broken::Shrank)),
                });
            }
            Self::Stream(stream) => stream,
        };
        if !stream.command.is_ended() && stream.stop.as_mut().poll(cx).is_ready() {
            let exit = stream.command.end(End::Shutdown, SHUTTING_DOWN);
            return Poll::Ready(Some(Ok(Frame::data(exit))));
        }
        match stream.command.poll_frame(cx) {
            Poll::Ready(frame) => Poll::Ready(frame.map(|frame| Ok(Frame::data(frame)))),
            // rule: EXEC-22
            Poll::Pending => match &mut stream.gone {
                Some(gone) => gone.as_mut().poll(cx).map(|()| Some(Err(Broken::Gone))),
                None => Poll::Pending,
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::File(content) => content.left == 0,
            Self::Stream(stream) => stream.command.is_ended(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Text(text) => SizeHint::with_exact(text.len() as u64),
            Self::File(content) => SizeHint::with_exact(content.left),
            Self::Stream(_) => SizeHint::new(),
        }
    }
}
