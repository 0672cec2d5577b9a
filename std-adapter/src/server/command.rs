//! A running command between a guest and a transport: output as frames, frames as input.

use std::fmt;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tracing::{Span, info};
use triwire::exec::ExecError;
use triwire::exec::frame::{HEADER_SIZE, Kind};
use triwire::exec::session::{Input, InputReader, OutputWriter, WriteError};
use triwire::time::Instant;

use super::frames::FrameBuf;
use super::metrics::{End, Session};
use crate::clock::Clock;
use crate::guest::{Output, Running};
use crate::record::ExecResult;

/// Room for the exit frames that commands end with when nothing went wrong.
const COMMON_EXIT: usize = 512;

/// Output that is not yet framed.
enum Unframed {
    Stdout(Bytes),
    Stderr(Bytes),
}

/// A command and both its streams of frames. Dropping it ends the command.
pub(super) struct Command {
    /// None once the exit frame was made.
    running: Option<Box<dyn Running>>,
    writer: OutputWriter,
    unframed: Option<Unframed>,
    reader: InputReader,
    stdin_gone: bool,
    clock: Clock,
    started: Instant,
    span: Span,
    session: Session,
}

impl Command {
    pub(super) fn new(
        running: Box<dyn Running>,
        clock: Clock,
        span: Span,
        session: Session,
    ) -> Self {
        Self {
            running: Some(running),
            writer: OutputWriter::new(),
            unframed: None,
            reader: InputReader::new(),
            stdin_gone: false,
            clock,
            started: clock.now(),
            span,
            session,
        }
    }

    /// Makes the stream of a command that never ran: its exit frame and nothing else.
    pub(super) fn never_ran(
        why: impl fmt::Display,
        clock: Clock,
        span: Span,
        session: Session,
    ) -> Self {
        let stillborn = Stillborn(Some(failure(why)));
        Self::new(Box::new(stillborn), clock, span, session)
    }

    /// Ends the command's input.
    pub(super) fn close_stdin(&mut self) {
        if let Some(running) = &mut self.running {
            running.close_stdin();
        }
    }

    /// Polls for the next frame of output; the exit frame is the last, `None` follows it.
    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<FrameBuf>> {
        loop {
            if let Some(frame) = self.cut() {
                return Poll::Ready(Some(frame));
            }
            let Some(running) = &mut self.running else { return Poll::Ready(None) };
            self.unframed = match ready!(running.poll_output(cx)) {
                Ok(Output::Stdout(bytes)) => Some(Unframed::Stdout(bytes)),
                Ok(Output::Stderr(bytes)) => Some(Unframed::Stderr(bytes)),
                Ok(Output::Exit(result)) => {
                    return Poll::Ready(Some(self.exit(&result, End::of(&result))));
                }
                // rule: EXEC-20
                Err(lost) => return Poll::Ready(Some(self.end(End::Lost, lost))),
            };
        }
    }

    /// Cuts the next frame off the output at hand.
    fn cut(&mut self) -> Option<FrameBuf> {
        let (Unframed::Stdout(bytes) | Unframed::Stderr(bytes)) = self.unframed.as_ref()?;
        let (kind, frames) = match self.unframed {
            Some(Unframed::Stdout(_)) => (Kind::Stdout, self.writer.stdout(bytes)),
            _ => (Kind::Stderr, self.writer.stderr(bytes)),
        };
        let frame = frames.ok().and_then(|mut frames| frames.next());
        let frame = frame.map(|frame| (frame.head, frame.payload.len()));
        if let Some((head, len)) = frame
            && let Some(Unframed::Stdout(bytes) | Unframed::Stderr(bytes)) = &mut self.unframed
        {
            self.session.frame(kind, len);
            return Some(FrameBuf::new(head, bytes.split_to(len)));
        }
        self.unframed = None;
        None
    }

    /// Kills the command, if it still runs, and makes the exit frame that says why it is over.
    pub(super) fn end(&mut self, end: End, why: impl fmt::Display) -> FrameBuf {
        let duration = self.clock.now().saturating_since(self.started);
        let duration_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        self.exit(&ExecResult { duration_ms, ..failure(why) }, end)
    }

    /// Says that the session ends otherwise than by an exit frame.
    pub(super) fn ends(&mut self, end: End) {
        self.session.ends(end);
    }

    fn exit(&mut self, result: &ExecResult, end: End) -> FrameBuf {
        self.running = None;
        self.unframed = None;
        self.session.ends(end);
        self.span.in_scope(|| {
            info!(
                exit_code = result.exit_code,
                duration_ms = result.duration_ms,
                timed_out = result.timed_out,
                end = end.as_str(),
                "command ended"
            );
        });
        let record = result.as_core();
        let mut out = vec![0; COMMON_EXIT];
        loop {
            let len = match self.writer.exit(&record, &mut out) {
                Ok(frame) => frame.len(),
                Err(WriteError::OutTooSmall(error)) => {
                    out.resize(error.needed, 0);
                    continue;
                }
                Err(WriteError::Ended(_)) => 0,
            };
            out.truncate(len);
            self.session.frame(Kind::Exit, len.saturating_sub(HEADER_SIZE));
            return FrameBuf::whole(out.into());
        }
    }

    /// Returns the span that the command's events belong to.
    pub(super) fn span(&self) -> Span {
        self.span.clone()
    }

    /// Reports whether the exit frame was made.
    pub(super) fn is_ended(&self) -> bool {
        self.running.is_none()
    }

    /// Feeds the client's bytes to the command, advancing `input` past what was used; pending
    /// while the command takes no more of its input.
    ///
    /// The first `carried` bytes are a frame's payload that the command has not taken; they are
    /// this function's own note between its calls.
    ///
    /// # Errors
    /// The client broke the frame protocol: [`end`](Self::end) the command.
    pub(super) fn poll_input(
        &mut self,
        cx: &mut Context<'_>,
        input: &mut impl Buf,
        carried: &mut usize,
    ) -> Poll<Result<(), ExecError>> {
        loop {
            let Some(running) = &mut self.running else {
                input.advance(input.remaining());
                *carried = 0;
                return Poll::Ready(Ok(()));
            };
            while *carried > 0 {
                let payload = input.chunk().get(..*carried).unwrap_or_default();
                let taken = if self.stdin_gone {
                    payload.len()
                } else {
                    match ready!(running.poll_stdin(cx, payload)) {
                        Ok(taken) => taken.min(payload.len()),
                        Err(_) => {
                            self.stdin_gone = true;
                            continue;
                        }
                    }
                };
                input.advance(taken);
                *carried -= taken;
            }
            let all = input.chunk();
            let mut rest = all;
            let begins = !self.reader.is_in_payload();
            match self.reader.feed(&mut rest) {
                Err(error) => return Poll::Ready(Err(error)),
                Ok(event) => {
                    let used = all.len() - rest.len();
                    let payload = match event {
                        Some(Input::Stdin(payload)) => {
                            if begins {
                                self.session.frame(Kind::Stdin, payload.len());
                            } else {
                                self.session.payload(Kind::Stdin, payload.len());
                            }
                            payload.len()
                        }
                        Some(Input::Close) => {
                            self.session.frame(Kind::StdinClose, 0);
                            running.close_stdin();
                            0
                        }
                        None => {
                            input.advance(used);
                            return Poll::Ready(Ok(()));
                        }
                    };
                    // A piece of payload is the last of what was used.
                    input.advance(used - payload);
                    *carried = payload;
                }
            }
        }
    }
}

fn failure(why: impl fmt::Display) -> ExecResult {
    ExecResult { exit_code: -1, error: why.to_string(), ..ExecResult::default() }
}

/// A command whose only output is its exit.
struct Stillborn(Option<ExecResult>);

impl Running for Stillborn {
    fn poll_output(&mut self, _: &mut Context<'_>) -> Poll<Result<Output, crate::guest::Lost>> {
        Poll::Ready(Ok(Output::Exit(self.0.take().unwrap_or_default())))
    }

    fn poll_stdin(
        &mut self,
        _: &mut Context<'_>,
        _: &[u8],
    ) -> Poll<Result<usize, crate::guest::StdinGone>> {
        Poll::Ready(Err(crate::guest::StdinGone))
    }

    fn close_stdin(&mut self) {}
}
