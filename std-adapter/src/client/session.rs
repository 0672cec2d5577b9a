use std::future::{Future, poll_fn};
use std::io::ErrorKind;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use std::{fmt, mem};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Sleep, sleep};
use triwire::exec::body::BodyError;
use triwire::exec::frame::{HEADER_SIZE, MAX_PAYLOAD_SIZE};
use triwire::exec::session::{Exit, InputWriter, Output, OutputReader};
use triwire::exec::{ExecError, Fault};

use super::link::{Arrived, End, Link};
use super::output::{Collected, OutputStream, OwnedOutput};
use super::{ClientError, Transport};
use crate::record::ExecResult;

/// How long the server may take to end the stream behind the exit frame. Our choice: the result is
/// there, so a server that never closes must not hold it back.
const END_BOUND: Duration = Duration::from_secs(5);
/// How often a source of input that always has more is read before output gets its turn.
const INPUT_ROUNDS: usize = 4;
/// The smallest piece into which input is cut for want of room.
const MIN_INPUT: usize = 1024;

/// A command that runs, and the connection to it.
///
/// One task does it all: [`next`](Self::next) waits for output and sends queued input at the same
/// time, so neither can hold up the other. Nothing is sent or received but in `next` and in what
/// is built on it.
///
/// Dropping the session closes the connection, which ends the command.
pub struct Session {
    link: Link,
    transport: Transport,
    reader: OutputReader<Box<[u8]>>,
    input: Input,
    /// Bytes at the front of the link's piece that were lent last time.
    used: usize,
    result: Option<ExecResult>,
    state: State,
    /// Runs from the exit frame on.
    end_bound: Option<Pin<Box<Sleep>>>,
    early_end: Option<BodyError>,
}

enum State {
    Open,
    Ended,
    Failed(ClientError),
}

struct Input {
    writer: InputWriter,
    /// The end of input is to be sent once there is room.
    closing: bool,
    /// No more input is taken: the command ended, the connection takes no more, or there is none.
    gone: bool,
    /// The connection takes no more.
    broken: bool,
    /// The caller was told to offer its bytes later.
    refused: bool,
    source: Option<Source>,
}

struct Source {
    reader: Box<dyn AsyncRead + Send + Unpin>,
    buffer: Box<[u8]>,
}

/// Whose turn it is: see [`Session::turn`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn<'i> {
    /// The command said something.
    Output(Output<'i>),
    /// More input can be queued.
    Input,
    /// The stream ended behind the exit.
    End,
}

/// An output whose payload stands in the link's piece.
#[derive(Clone)]
enum Found {
    Stdout(Range<usize>),
    Stderr(Range<usize>),
    Exit(Exit),
}

impl Session {
    pub(super) fn new(link: Link, transport: Transport) -> Self {
        let storage = vec![0; MAX_PAYLOAD_SIZE].into_boxed_slice();
        let gone = transport == Transport::OneShot;
        Self {
            link,
            transport,
            reader: OutputReader::new(storage),
            input: Input {
                writer: InputWriter::new(),
                closing: false,
                gone,
                broken: false,
                refused: false,
                source: None,
            },
            used: 0,
            result: None,
            state: State::Open,
            end_bound: None,
            early_end: None,
        }
    }

    /// Waits for the next output; lends it out of the receive buffer, without a copy.
    ///
    /// The exit is the last, and comes as soon as the command ended; `None` follows once the
    /// server ended the stream behind it (or, 5 s later, did not). Meanwhile queued input is sent.
    ///
    /// # Errors
    /// The [`ClientError`] that ended the session, again at every later call. What came before it
    /// stays good; [`result`](Self::result) too, when the exit was among it.
    ///
    /// # Cancel safety
    /// Cancel safe: all progress is kept in the session.
    ///
    /// # Cost
    /// Payload is not copied. Output that is not asked for waits in the connection, and in the end
    /// slows the command down.
    // Not an iterator: what it gives borrows the session.
    #[allow(clippy::should_implement_trait)]
    pub async fn next(&mut self) -> Result<Option<Output<'_>>, ClientError> {
        let found = poll_fn(|cx| self.poll_found(cx)).await?;
        Ok(found.map(|found| self.lend(found)))
    }

    /// Polls for what [`next`](Self::next) waits for.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Output<'_>>, ClientError>> {
        let found = ready!(self.poll_found(cx))?;
        Poll::Ready(Ok(found.map(|found| self.lend(found))))
    }

    pub(super) fn poll_owned(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<OwnedOutput>, ClientError>> {
        let found = ready!(self.poll_found(cx))?;
        Poll::Ready(Ok(found.and_then(|found| match found {
            Found::Stdout(range) => Some(OwnedOutput::Stdout(self.link.share(range))),
            Found::Stderr(range) => Some(OwnedOutput::Stderr(self.link.share(range))),
            Found::Exit(_) => self.result.clone().map(OwnedOutput::Exit),
        })))
    }

    fn lend(&self, found: Found) -> Output<'_> {
        let part = |range| self.link.piece().get::<Range<usize>>(range).unwrap_or_default();
        match found {
            Found::Stdout(range) => Output::Stdout(part(range)),
            Found::Stderr(range) => Output::Stderr(part(range)),
            Found::Exit(exit) => Output::Exit(exit),
        }
    }

    /// Waits as [`next`](Self::next) does; and when [`stdin`](Self::stdin) took fewer bytes than it
    /// was given, also until it takes more. For a caller who has input of its own to offer; a
    /// source is better [forwarded](Self::forward_stdin).
    ///
    /// # Errors
    /// As [`next`](Self::next).
    ///
    /// # Cancel safety
    /// Cancel safe: all progress is kept in the session.
    pub async fn turn(&mut self) -> Result<Turn<'_>, ClientError> {
        let found = poll_fn(|cx| match self.poll_found(cx) {
            Poll::Ready(found) => Poll::Ready(found.map(Some)),
            Poll::Pending if self.input.refused && self.room(MAX_PAYLOAD_SIZE) > 0 => {
                self.input.refused = false;
                Poll::Ready(Ok(None))
            }
            Poll::Pending => Poll::Pending,
        })
        .await?;
        Ok(match found {
            None => Turn::Input,
            Some(None) => Turn::End,
            Some(Some(found)) => Turn::Output(self.lend(found)),
        })
    }

    /// Queues input and returns how many bytes were taken: fewer than given, or none, when the
    /// queue is full. Offer the rest after the next output, or when [`turn`](Self::turn) says so:
    /// both send what waits.
    ///
    /// Once the command ended or the input was closed, all bytes are taken and dropped.
    ///
    /// # Cost
    /// Copies the bytes.
    pub fn stdin(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        while !rest.is_empty() {
            if !self.is_stdin_open() {
                return bytes.len();
            }
            let room = self.room(rest.len());
            let Some((chunk, behind)) = rest.split_at_checked(room).filter(|_| room > 0) else {
                self.input.refused = true;
                break;
            };
            self.queue(chunk);
            rest = behind;
        }
        bytes.len() - rest.len()
    }

    /// Queues the end of input behind what waits. The connection stays open: the command runs on
    /// and its output still comes.
    pub fn close_stdin(&mut self) {
        self.input.closing = true;
        self.input.source = None;
        self.queue_close();
    }

    /// Reports whether input can still reach the command.
    #[must_use]
    pub fn is_stdin_open(&self) -> bool {
        !self.input.gone && !self.input.closing
    }

    /// Connects a source of input: from now on [`next`](Self::next) reads it as fast as the
    /// command takes it, and closes the input at its end.
    ///
    /// When the command ends the source is dropped, whether or not it would ever have given more,
    /// and what was not sent is dropped with it. It replaces a source given before.
    pub fn forward_stdin(&mut self, source: impl AsyncRead + Send + Unpin + 'static) {
        if self.is_stdin_open() {
            let buffer = vec![0; MAX_PAYLOAD_SIZE].into_boxed_slice();
            self.input.source = Some(Source { reader: Box::new(source), buffer });
        }
    }

    /// Runs the command to its end: feeds it from `stdin` as
    /// [`forward_stdin`](Self::forward_stdin) does, hands each output to `on_output`, and returns
    /// the result.
    ///
    /// ```no_run
    /// # async fn run(mut session: triwire_std::client::Session) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::io::Write;
    /// use triwire_std::client::Output;
    ///
    /// let result = session
    ///     .run(tokio::io::stdin(), |output| {
    ///         if let Output::Stdout(bytes) = output {
    ///             let _ = std::io::stdout().write_all(bytes);
    ///         }
    ///     })
    ///     .await?;
    /// std::process::exit(result.as_core().status().into());
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`next`](Self::next).
    ///
    /// # Cancel safety
    /// Cancel safe: called again it goes on with the output, and with the source given then.
    pub async fn run(
        &mut self,
        stdin: impl AsyncRead + Send + Unpin + 'static,
        mut on_output: impl FnMut(Output<'_>),
    ) -> Result<ExecResult, ClientError> {
        self.forward_stdin(stdin);
        while let Some(output) = self.next().await? {
            on_output(output);
        }
        self.outcome()
    }

    /// Collects what is left of the output, at most `limit` bytes of both streams together.
    ///
    /// # Errors
    /// As [`next`](Self::next); [`ClientError::TooMuchOutput`], which ends the command.
    pub async fn collect(mut self, limit: usize) -> Result<Collected, ClientError> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        while let Some(output) = self.next().await? {
            let (to, bytes): (&mut Vec<u8>, _) = match output {
                Output::Stdout(bytes) => (&mut stdout, bytes),
                Output::Stderr(bytes) => (&mut stderr, bytes),
                Output::Exit(_) => continue,
            };
            to.extend_from_slice(bytes);
            if stdout.len().saturating_add(stderr.len()) > limit {
                return Err(ClientError::TooMuchOutput { limit });
            }
        }
        let result = self.outcome()?;
        Ok(Collected { stdout, stderr, result })
    }

    /// Makes the output a stream of values that own their bytes.
    #[must_use]
    pub fn into_stream(self) -> OutputStream {
        OutputStream::new(self)
    }

    /// Returns how the command ended, once [`Output::Exit`] came; also when the session failed
    /// behind it.
    #[must_use]
    pub fn result(&self) -> Option<ExecResult> {
        self.result.clone()
    }

    /// Returns the transport that carries the session.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Returns what was missing of the answer's body behind the exit frame. The result is whole,
    /// so it is no error; but a server or a proxy on the way cuts its answers.
    #[must_use]
    pub fn early_end(&self) -> Option<BodyError> {
        self.early_end
    }

    fn outcome(&self) -> Result<ExecResult, ClientError> {
        match (&self.state, &self.result) {
            (State::Failed(error), _) => Err(error.clone()),
            (_, Some(result)) => Ok(result.clone()),
            (_, None) => {
                let at = self.reader.offset();
                Err(ExecError { at, fault: Fault::MissingExit }.into())
            }
        }
    }

    fn poll_found(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Found>, ClientError>> {
        match &self.state {
            State::Open => {}
            State::Ended => return Poll::Ready(Ok(None)),
            State::Failed(error) => return Poll::Ready(Err(error.clone())),
        }
        let step = ready!(self.poll_step(cx));
        match &step {
            Ok(Some(_)) => {}
            Ok(None) => self.state = State::Ended,
            Err(error) => {
                self.link.give_up(error, cx);
                self.input.stop();
                self.state = State::Failed(error.clone());
            }
        }
        Poll::Ready(step)
    }

    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Found>, ClientError>> {
        let more_input = self.poll_input(cx)?;
        loop {
            if let Some(found) = self.decode()? {
                return Poll::Ready(Ok(Some(found)));
            }
            match self.link.poll_more(cx)? {
                Poll::Ready(Arrived::Bytes) => {}
                Poll::Ready(Arrived::End(end)) => {
                    return Poll::Ready(self.judge(end).map(|()| None));
                }
                Poll::Pending => break,
            }
        }
        if let Some(bound) = &mut self.end_bound {
            return bound.as_mut().poll(cx).map(|()| Ok(None));
        }
        if more_input {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    fn decode(&mut self) -> Result<Option<Found>, ClientError> {
        while self.link.advance(mem::take(&mut self.used))? {
            let piece = self.link.piece();
            let mut rest = piece;
            let output = self.reader.feed(&mut rest)?;
            let end = piece.len() - rest.len();
            self.used = end;
            let range = |bytes: &[u8]| end - bytes.len()..end;
            let found = match output {
                None => continue,
                Some(Output::Stdout(bytes)) => Found::Stdout(range(bytes)),
                Some(Output::Stderr(bytes)) => Found::Stderr(range(bytes)),
                Some(Output::Exit(exit)) => {
                    self.result = self.reader.result().as_ref().map(ExecResult::from);
                    self.input.stop();
                    self.end_bound = Some(Box::pin(sleep(END_BOUND)));
                    Found::Exit(exit)
                }
            };
            return Ok(Some(found));
        }
        Ok(None)
    }

    /// Judges the end of the connection.
    fn judge(&mut self, end: End) -> Result<(), ClientError> {
        let stream = self.reader.finish();
        match (&self.link, end) {
            // rule: EXEC-49
            (Link::Http(link), _) if stream.is_ok() => {
                self.early_end = link.body.finish().err();
                Ok(())
            }
            (Link::Http(link), End::Orderly) => {
                link.body.finish()?;
                Ok(stream?)
            }
            (Link::Socket(link), End::Orderly) => {
                link.rules.finish(stream).map_err(|lost| ClientError::Closed(Box::new(lost)))
            }
            (_, End::Failed(source)) => {
                stream.map_err(|fault| ClientError::Connection { fault, source: Arc::new(source) })
            }
        }
    }

    /// Sends what waits and reads the source; `true` when there was more to do than one turn may.
    ///
    /// A failure to send is no error here: what the server still says tells more.
    fn poll_input(&mut self, cx: &mut Context<'_>) -> Result<bool, ClientError> {
        for _ in 0..INPUT_ROUNDS {
            if self.input.broken || self.result.is_some() {
                return Ok(false);
            }
            // First what waits: the source is asked only while there is room, and without room
            // it is the connection that wakes the task.
            if let Poll::Ready(Err(_)) = self.link.poll_flush(cx) {
                self.input.stop();
                self.input.broken = true;
            }
            if !self.queue_close() && !self.poll_source(cx)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads the source once; `true` when that gave something.
    fn poll_source(&mut self, cx: &mut Context<'_>) -> Result<bool, ClientError> {
        let room = self.room(MAX_PAYLOAD_SIZE);
        let Some(source) = self.input.source.as_mut().filter(|_| room > 0) else {
            return Ok(false);
        };
        let mut buffer = ReadBuf::new(source.buffer.get_mut(..room).unwrap_or_default());
        match Pin::new(&mut source.reader).poll_read(cx, &mut buffer) {
            Poll::Pending => Ok(false),
            Poll::Ready(Err(error)) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Poll::Ready(Err(error)) => Err(ClientError::Stdin(Arc::new(error))),
            Poll::Ready(Ok(())) => {
                let count = buffer.filled().len();
                if count == 0 {
                    self.close_stdin();
                } else if let Some(source) = self.input.source.take() {
                    self.queue(source.buffer.get(..count).unwrap_or_default());
                    self.input.source = Some(source);
                }
                Ok(true)
            }
        }
    }

    /// Returns how many of `wanted` bytes of input can be queued as one frame.
    fn room(&self, wanted: usize) -> usize {
        let mut room = wanted.min(MAX_PAYLOAD_SIZE);
        while !self.link.has_room(room.saturating_add(HEADER_SIZE)) {
            room /= 2;
            if room < MIN_INPUT {
                return 0;
            }
        }
        room
    }

    fn queue(&mut self, bytes: &[u8]) {
        let queued = self.input.writer.stdin(bytes).is_ok_and(|frames| self.link.queue(frames));
        if !queued {
            self.input.stop();
        }
    }

    /// Queues the end of input once it is due and there is room; `true` when it did.
    fn queue_close(&mut self) -> bool {
        let due = self.input.closing && !self.input.gone && !self.input.writer.is_ended();
        if !due || !self.link.has_room(HEADER_SIZE) {
            return false;
        }
        let queued = self.input.writer.close().is_ok_and(|head| self.link.queue_head(head));
        if !queued {
            self.input.stop();
        }
        queued
    }
}

impl Input {
    fn stop(&mut self) {
        self.gone = true;
        self.source = None;
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("transport", &self.transport)
            .field("offset", &self.reader.offset())
            .field("result", &self.result)
            .finish_non_exhaustive()
    }
}
