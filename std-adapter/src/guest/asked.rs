//! A command asked for over a link: the hijacked transport from the client's end, for guests that
//! speak it themselves.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::timeout;
use triwire::exec::frame::MAX_PAYLOAD_SIZE;
use triwire::exec::head::{GUEST_PATH, HeadError, Mode, RequestHead};
use triwire::exec::request::MAX_REQUEST_BODY;
use triwire::exec::session::{self, InputWriter, OutputReader};
use triwire::exec::{ExecError, Fault};

use super::{Lost, Output, Running, StdinGone, Unreachable};
use crate::exchange::{self, MAX_HEAD, NoAnswer, Refusal};
use crate::record::{ExecRequest, ExecResult};
use crate::secret::Secret;
use crate::tokio::stream::{Rx, Tx};

/// Where guests behind a link are asked for commands unless told otherwise.
pub const DEFAULT_PATH: &str = GUEST_PATH;

/// How long a guest may take to answer with its head. Our choice: nothing runs meanwhile, and
/// somebody waits.
const ANSWER_BOUND: Duration = Duration::from_secs(30);

/// Bytes asked for by one read while a session mostly waits, and while it is busy.
const READ_IDLE: usize = 8 * 1024;
const READ_BUSY: usize = 64 * 1024;
/// Up to here a copy costs less than keeping what was read into.
const SMALL_READ: usize = 4096;

/// A guest that is asked, and how.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    /// What sentences call it: its address or device.
    pub(super) name: Arc<str>,
    /// What `Host` says.
    pub(super) host: String,
    pub(super) path: String,
    pub(super) key: Option<Secret>,
}

impl Peer {
    pub(super) fn new(name: &str, host: &str) -> Self {
        Self { name: name.into(), host: host.into(), path: DEFAULT_PATH.into(), key: None }
    }

    pub(super) fn unreachable(&self, why: impl fmt::Display) -> Unreachable {
        Unreachable { why: format!("{}: {why}", self.name) }
    }

    /// Asks for a command on a link that nothing was sent on.
    pub(super) async fn ask<S>(
        &self,
        stream: S,
        request: &ExecRequest,
    ) -> Result<Box<dyn Running>, Unreachable>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let body = request.to_json();
        // rule: EXEC-18
        if body.len() > MAX_REQUEST_BODY {
            return Err(self.unreachable(format_args!(
                "the request takes {} bytes, guests take at most {MAX_REQUEST_BODY}",
                body.len()
            )));
        }
        let head = RequestHead {
            mode: Mode::Hijack,
            // The path stands in its place.
            sandbox: "guest",
            host: &self.host,
            bearer: self.key.as_ref().map(Secret::as_str),
            content_length: Some(body.len()),
            path: &self.path,
        };
        // rule: EXEC-38
        let mut wire =
            exchange::write_head(&head, body.len()).map_err(|error| self.unreachable(error))?;
        wire.extend_from_slice(&body);

        let (reader, writer) = tokio::io::split(stream);
        let mut rx = Rx::new(reader, vec![0; MAX_HEAD].into_boxed_slice());
        let room = wire.len();
        let mut tx = Tx::new(writer, wire);
        // It is what its memory already holds.
        tx.filled(room);
        let answered = timeout(ANSWER_BOUND, async {
            let answer = match exchange::exchange(&mut rx, &mut tx, head.mode).await {
                Ok(answer) => answer,
                Err(error) => return Err(self.unreachable(unanswered(error))),
            };
            rx.consume(answer.len);
            match answer.verdict {
                Ok(_) => Ok(()),
                Err(HeadError::Status { found }) => {
                    let refusal = exchange::refusal(&mut rx, answer.framing).await;
                    Err(self.unreachable(refused(found, &refusal)))
                }
                Err(error) => Err(self.unreachable(error)),
            }
        });
        answered.await.map_err(|_| {
            let after = ANSWER_BOUND.as_secs();
            self.unreachable(format_args!(
                "it took the request and did not answer within {after} s; \
                 check that an exec guest listens there, and its log"
            ))
        })??;
        // The peer may answer before it has read all of the request.
        let unsent = Bytes::copy_from_slice(tx.unsent());
        let unread = Bytes::copy_from_slice(rx.unread());
        let stream = rx.into_reader().unsplit(tx.into_writer());
        Ok(Box::new(Asked {
            stream,
            peer: Arc::clone(&self.name),
            unread,
            inbox: BytesMut::new(),
            read_size: READ_IDLE,
            reader: OutputReader::new(vec![0; MAX_PAYLOAD_SIZE].into_boxed_slice()),
            input: Input { writer: InputWriter::new(), wire: unsent.into(), open: true },
        }))
    }
}

fn unanswered(error: NoAnswer) -> String {
    match error {
        NoAnswer::Head(error) => error.to_string(),
        NoAnswer::Ended(Some(error)) => {
            format!("the connection failed before it answered: {error}; see the guest's log")
        }
        NoAnswer::Ended(None) => "it closed the connection without an answer; \
             check that an exec guest listens there and takes one more command"
            .into(),
    }
}

/// What an HTTP error of a guest means to the one who configured it.
fn refused(status: u16, refusal: &Refusal) -> String {
    let advice = match status {
        401 => "it does not know the key; check `key_file`",
        403 => "it does not answer to this host name; add the name to the guest's hosts",
        404 => "it serves no commands at this path; check `path`",
        405 | 426 | 501 => "it does not speak the hijacked transport at this path; check `path`",
        502..=504 => "it cannot run commands now; see the guest's log",
        _ => "it refused the command; see the guest's log",
    };
    let Refusal { code, why } = refusal;
    let words = [code, why].into_iter().filter(|words| !words.is_empty());
    let words: String = words.map(|words| format!(": {words}")).collect();
    format!("{advice} (status {status}{words})")
}

/// A command that runs at the other end of `stream`; dropping it closes the stream.
struct Asked<S> {
    stream: S,
    peer: Arc<str>,
    unread: Bytes,
    inbox: BytesMut,
    read_size: usize,
    reader: OutputReader<Box<[u8]>>,
    input: Input,
}

struct Input {
    writer: InputWriter,
    /// What waits to be sent, at most a frame and the end of input.
    wire: BytesMut,
    /// Whether the connection takes more.
    open: bool,
}

impl Input {
    /// Sends what waits. A failure is no error here: what the peer still says tells more.
    fn poll_flush<S: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut S,
    ) -> Poll<()> {
        while self.wire.has_remaining() {
            match ready!(Pin::new(&mut *stream).poll_write(cx, &self.wire)) {
                Ok(sent) if sent > 0 => self.wire.advance(sent),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => self.stop(),
            }
        }
        if self.open && ready!(Pin::new(stream).poll_flush(cx)).is_err() {
            self.stop();
        }
        Poll::Ready(())
    }

    fn stop(&mut self) {
        self.open = false;
        self.wire.clear();
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Asked<S> {
    fn lost(&self, why: impl fmt::Display) -> Lost {
        Lost { why: format!("{}: {why}", self.peer) }
    }

    fn decode(&mut self) -> Result<Option<Output>, ExecError> {
        while !self.unread.is_empty() {
            let all = self.unread.clone();
            let mut rest = &*all;
            let output = self.reader.feed(&mut rest)?;
            self.unread.advance(all.len() - rest.len());
            let output = match output {
                Some(session::Output::Stdout(bytes)) => Output::Stdout(all.slice_ref(bytes)),
                Some(session::Output::Stderr(bytes)) => Output::Stderr(all.slice_ref(bytes)),
                Some(session::Output::Exit(_)) => {
                    let Some(result) = self.reader.result() else { continue };
                    Output::Exit(ExecResult::from(&result))
                }
                None => continue,
            };
            return Ok(Some(output));
        }
        Ok(None)
    }

    /// Reads more; `Ok(false)` at the end.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        self.inbox.reserve(self.read_size);
        let mut room = (&mut self.inbox).limit(self.read_size);
        let read = pin!(self.stream.read_buf(&mut room)).poll(cx);
        let count = match read {
            // An idle session keeps no buffer.
            Poll::Pending => {
                self.inbox = BytesMut::new();
                return Poll::Pending;
            }
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Ready(Ok(count)) => count,
        };
        self.read_size = if count == self.read_size { READ_BUSY } else { READ_IDLE };
        self.unread = if count > SMALL_READ {
            self.inbox.split().freeze()
        } else {
            let bytes = Bytes::copy_from_slice(&self.inbox);
            self.inbox.clear();
            bytes
        };
        Poll::Ready(Ok(count > 0))
    }

    /// Says why there is no exit.
    fn ended(&mut self, why: impl fmt::Display) -> Lost {
        let at = self.reader.offset();
        let fault = self.reader.finish().err();
        let fault = fault.unwrap_or(ExecError { at, fault: Fault::MissingExit });
        self.lost(format_args!("{why}: {fault}"))
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Running for Asked<S> {
    // rule: EXEC-20
    fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<Result<Output, Lost>> {
        let _ = self.input.poll_flush(cx, &mut self.stream);
        loop {
            match self.decode() {
                Ok(Some(output)) => return Poll::Ready(Ok(output)),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Err(self.lost(error))),
            }
            match ready!(self.poll_read(cx)) {
                Ok(true) => {}
                Ok(false) => return Poll::Ready(Err(self.ended("the guest ended the connection"))),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let why = format_args!("the connection failed ({error})");
                    return Poll::Ready(Err(self.ended(why)));
                }
            }
        }
    }

    // rule: EXEC-48
    fn poll_stdin(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, StdinGone>> {
        let Self { input, stream, .. } = self;
        ready!(input.poll_flush(cx, stream));
        if !input.open {
            return Poll::Ready(Err(StdinGone));
        }
        let part = bytes.get(..MAX_PAYLOAD_SIZE).unwrap_or(bytes);
        let frames = input.writer.stdin(part).map_err(|_| StdinGone)?;
        for frame in frames {
            input.wire.put_slice(&frame.head);
            input.wire.put_slice(frame.payload);
        }
        // What does not go out now is sent when the output is polled.
        let _ = input.poll_flush(cx, stream);
        Poll::Ready(Ok(part.len()))
    }

    fn close_stdin(&mut self) {
        if self.input.open
            && let Ok(head) = self.input.writer.close()
        {
            self.input.wire.put_slice(&head);
        }
    }
}
