//! A running process: its pipes, its deadline, and when its exit may be told.
//!
//! ```text
//!            ended               emptied                  2 s over             emptied
//!   Running ───────> Emptying ─────────────> Background ────────────> Last ─────────────> exit
//!                       │ all pipes at their end │                     │
//!                       └────────────────────────┴─────────────────────┴────────────────> exit
//! ```
//!
//! "Emptied" is what stood in the pipes at that moment, counted in bytes: a background child that
//! never stops writing cannot put the exit off, and nothing that the command wrote is left behind.

use std::io;
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep_until};
use triwire::exec::frame::MAX_PAYLOAD_SIZE;
use triwire::time::Instant;

use super::child::Child;
use super::process::Started;
use super::{Lost, Output, Running, StdinGone, signal};
use crate::clock::Clock;
use crate::record::ExecResult;

/// How long a background child may hold the pipes open once they are empty.
const BACKGROUND_GRACE: Duration = Duration::from_secs(2);

/// Output up to here is copied, so that a few bytes do not keep a whole chunk's memory.
const SMALL_CHUNK: usize = 4_096;

/// What a pipe is enlarged to, if the system allows, once the data does not fit through.
const BULK_PIPE_SIZE: usize = 1 << 20;

/// A process whose exit was not yet delivered.
pub(super) struct Process {
    child: Arc<Child>,
    /// Zero is the start of the process.
    clock: Clock,
    stdin: Option<Input>,
    stdout: Option<Pipe>,
    stderr: Option<Pipe>,
    /// Whether standard error is looked at first: the streams take turns.
    stderr_first: bool,
    phase: Phase,
}

enum Phase {
    Running(oneshot::Receiver<Ended>),
    Emptying(Ended),
    Background { ended: Ended, until: Instant, timer: Option<Pin<Box<Sleep>>> },
    Last(Ended),
    Over,
}

#[derive(Clone, Copy)]
struct Ended {
    /// When the end was noticed, from the start of the process.
    at: Instant,
    /// Whether the deadline's signal was sent.
    deadline: bool,
}

impl Process {
    /// Watches a process that was just started. Needs a runtime; on an error the process is ended.
    pub(super) fn watch(started: Started, timeout_s: u32) -> io::Result<Self> {
        let Started { child, clock, stdin, stdout, stderr } = started;
        let child = Arc::new(child);
        // A pidfd is no pipe, but this is a descriptor whose readiness can be awaited without
        // unsafe code, and no byte is ever read from it.
        let pidfd = Receiver::from_owned_fd_unchecked(child.pidfd()?)?;
        let deadline = (timeout_s > 0)
            .then(|| Instant::ZERO.saturating_add(Duration::from_secs(u64::from(timeout_s))));
        let (tell, ended) = oneshot::channel();
        let process = Self {
            stdin: stdin.map(|pipe| Input::new(pipe.into())).transpose()?,
            stdout: stdout.map(|pipe| Pipe::new(pipe.into())).transpose()?,
            stderr: stderr.map(|pipe| Pipe::new(pipe.into())).transpose()?,
            stderr_first: false,
            clock,
            phase: Phase::Running(ended),
            child: Arc::clone(&child),
        };
        // A task of its own: the deadline holds and the end is timed also while nobody polls. It
        // is also who reaps the child when the rest was dropped.
        drop(tokio::spawn(watch(child, pidfd, clock, deadline, tell)));
        Ok(process)
    }

    /// Moves to the next phase where one is due.
    fn advance(&mut self, cx: &mut Context<'_>) -> Result<(), Lost> {
        loop {
            match &mut self.phase {
                Phase::Running(ended) => match Pin::new(ended).poll(cx) {
                    Poll::Pending => return Ok(()),
                    Poll::Ready(Ok(ended)) => {
                        self.count_unread();
                        self.phase = Phase::Emptying(ended);
                    }
                    Poll::Ready(Err(_)) => {
                        return Err(Lost { why: "the runtime that watched it has ended".into() });
                    }
                },
                Phase::Emptying(ended) => {
                    let ended = *ended;
                    if !self.is_emptied() || self.is_at_end() {
                        return Ok(());
                    }
                    let until = self.clock.now().saturating_add(BACKGROUND_GRACE);
                    self.phase = Phase::Background { ended, until, timer: None };
                }
                Phase::Background { ended, until, .. } => {
                    let ended = *ended;
                    if self.clock.now() < *until {
                        return Ok(());
                    }
                    self.count_unread();
                    self.phase = Phase::Last(ended);
                }
                Phase::Last(_) => {
                    for pipe in [&mut self.stdout, &mut self.stderr] {
                        if pipe.as_ref().is_some_and(|pipe| pipe.unread == 0) {
                            *pipe = None;
                        }
                    }
                    return Ok(());
                }
                Phase::Over => return Err(Lost { why: "polled after its exit".into() }),
            }
        }
    }

    /// Reads a piece from one of the pipes; `None` when neither has one now.
    fn read(&mut self, cx: &mut Context<'_>) -> Option<Output> {
        for _ in 0..2 {
            let from_stderr = self.stderr_first;
            self.stderr_first = !from_stderr;
            let pipe = if from_stderr { &mut self.stderr } else { &mut self.stdout };
            let Some(open) = pipe else { continue };
            match open.poll_read(cx) {
                Poll::Ready(Some(bytes)) if from_stderr => return Some(Output::Stderr(bytes)),
                Poll::Ready(Some(bytes)) => return Some(Output::Stdout(bytes)),
                Poll::Ready(None) => *pipe = None,
                Poll::Pending => {}
            }
        }
        None
    }

    /// Counts what stands in the pipes now.
    fn count_unread(&mut self) {
        for pipe in [&mut self.stdout, &mut self.stderr].into_iter().flatten() {
            pipe.unread = rustix::io::ioctl_fionread(&pipe.receiver).unwrap_or(0);
        }
    }

    /// Says whether all that was counted has been read.
    fn is_emptied(&self) -> bool {
        [&self.stdout, &self.stderr].into_iter().flatten().all(|pipe| pipe.unread == 0)
    }

    fn is_at_end(&self) -> bool {
        self.stdout.is_none() && self.stderr.is_none()
    }

    // rule: EXEC-45
    fn result(&self, ended: Ended) -> ExecResult {
        let duration_ms = ended.at.as_micros() / 1_000;
        let (status, usage) = match self.child.reap() {
            Ok(reaped) => reaped,
            Err(error) => {
                let error =
                    format!("its exit code was taken by another part of the gateway: {error}");
                return ExecResult { exit_code: -1, duration_ms, error, ..ExecResult::default() };
            }
        };
        let killed_by = status.signal();
        ExecResult {
            exit_code: status.code().unwrap_or(-1),
            duration_ms,
            signal: killed_by.map(|number| signal::name(number).into_owned()).unwrap_or_default(),
            // One that ended by itself just before the signal came was not timed out.
            timed_out: ended.deadline && killed_by == Some(libc::SIGKILL),
            oom_killed: false,
            error: String::new(),
            usage: Some(usage),
        }
    }
}

/// Waits for the end of the process, and kills its group at the deadline.
async fn watch(
    child: Arc<Child>,
    pidfd: Receiver,
    clock: Clock,
    deadline: Option<Instant>,
    tell: oneshot::Sender<Ended>,
) {
    let mut killed = false;
    if let Some(deadline) = deadline {
        tokio::select! {
            biased;
            _ = pidfd.readable() => {}
            () = sleep_until(clock.to_tokio(deadline)) => {
                // The runtime may hear of the end later than of the deadline.
                // rule: EXEC-41
                if !child.has_ended() {
                    child.kill_group();
                    killed = true;
                }
            }
        }
    }
    if pidfd.readable().await.is_ok() {
        // Nobody listens any more when the command was dropped.
        let _ = tell.send(Ended { at: clock.now(), deadline: killed });
    }
}

impl Running for Process {
    // rule: EXEC-39
    fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<Result<Output, Lost>> {
        loop {
            self.advance(cx)?;
            if let Some(output) = self.read(cx) {
                return Poll::Ready(Ok(output));
            }
            let ended = match &mut self.phase {
                Phase::Emptying(ended) | Phase::Background { ended, .. } | Phase::Last(ended) => {
                    *ended
                }
                Phase::Running(_) | Phase::Over => return Poll::Pending,
            };
            if self.is_at_end() {
                self.phase = Phase::Over;
                return Poll::Ready(Ok(Output::Exit(self.result(ended))));
            }
            if let Phase::Background { until, timer, .. } = &mut self.phase {
                let until = self.clock.to_tokio(*until);
                let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
                ready!(timer.as_mut().poll(cx));
            } else if !self.is_emptied() {
                // The runtime has not yet heard of what stands there; it will wake us.
                return Poll::Pending;
            }
        }
    }

    fn poll_stdin(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, StdinGone>> {
        let Some(input) = &mut self.stdin else { return Poll::Ready(Err(StdinGone)) };
        let taken = ready!(input.poll_write(cx, bytes));
        if taken.is_err() {
            self.stdin = None;
        }
        Poll::Ready(taken.map_err(|_| StdinGone))
    }

    fn close_stdin(&mut self) {
        self.stdin = None;
    }
}

impl Drop for Process {
    // rule: EXEC-22
    fn drop(&mut self) {
        self.child.kill_all();
    }
}

/// Our end of a pipe that the command writes to.
struct Pipe {
    receiver: Receiver,
    buffer: BytesMut,
    /// What is still unread of what [`Process::count_unread`] counted.
    unread: u64,
    size: Size,
}

impl Pipe {
    fn new(pipe: OwnedFd) -> io::Result<Self> {
        let receiver = Receiver::from_owned_fd(pipe)?;
        Ok(Self { receiver, buffer: BytesMut::new(), unread: 0, size: Size::Default })
    }

    /// Reads a piece; `None` at the end.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if ready!(self.receiver.poll_read_ready(cx)).is_err() {
                return Poll::Ready(None);
            }
            self.buffer.reserve(MAX_PAYLOAD_SIZE);
            match self.receiver.try_read_buf(&mut (&mut self.buffer).limit(MAX_PAYLOAD_SIZE)) {
                Ok(0) => return Poll::Ready(None),
                Ok(read) => {
                    self.unread = self.unread.saturating_sub(read as u64);
                    if read == MAX_PAYLOAD_SIZE {
                        self.size.enlarge(&self.receiver);
                    }
                    if read > SMALL_CHUNK {
                        return Poll::Ready(Some(self.buffer.split().freeze()));
                    }
                    let bytes = Bytes::copy_from_slice(&self.buffer);
                    self.buffer.clear();
                    return Poll::Ready(Some(bytes));
                }
                // An idle session keeps no buffer.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.buffer = BytesMut::new();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Poll::Ready(None),
            }
        }
    }
}

/// Our end of the pipe that the command reads from.
struct Input {
    sender: Sender,
    size: Size,
}

impl Input {
    fn new(pipe: OwnedFd) -> io::Result<Self> {
        Ok(Self { sender: Sender::from_owned_fd(pipe)?, size: Size::Default })
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        loop {
            ready!(self.sender.poll_write_ready(cx))?;
            match self.sender.try_write(bytes) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(taken) => {
                    if taken < bytes.len() {
                        self.size.enlarge(&self.sender);
                    }
                    return Poll::Ready(Ok(taken));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

/// How large a pipe is: only bulk data takes of what the system allows a user in all.
enum Size {
    Default,
    Bulk,
}

impl Size {
    fn enlarge(&mut self, pipe: impl AsFd) {
        if let Self::Default = mem::replace(self, Self::Bulk) {
            // A refusal costs speed only.
            let _ = rustix::pipe::fcntl_setpipe_size(pipe, BULK_PIPE_SIZE);
        }
    }
}
