//! One stream of the line: a request, and the command that it asked for.
//!
//! ```text
//! Head ──> Record ──> Running ──> Over     what is still to be sent goes out, then the stream closes
//!   └────────┴────────── a refusal ──┘
//! ```

use core::time::Duration;

use triwire::buffer::{Inbox, Outbox};
use triwire::exec::ExecError;
use triwire::exec::body::Body;
use triwire::exec::head::{Access, Answer, CONTINUE, HeadScan, Refusal};
use triwire::exec::request::ExecRequest;
use triwire::exec::result::ExecResult;
use triwire::exec::session::{Input, InputReader, OutputWriter};
use triwire::exec::socket::Reason;
use triwire::json::Text;
use triwire::line::Stream;
use triwire::time::Instant;

use crate::command::{Command, End, Host, NOT_FOUND, Out};

/// Who is served: whoever has the line has the device. With keys, their digests stand here.
const ACCESS: Access<'static> = Access::Open;

/// One session's place, used again and again; `BUFFER` bytes each of what came and is not yet
/// used, of the request, and of what is to be sent.
///
/// 512 bytes of each hold what a gateway sends for a short command, and every answer.
#[derive(Debug)]
pub struct Session<const BUFFER: usize> {
    stream: Option<Stream>,
    state: State,
    inbox: Inbox<[u8; BUFFER]>,
    outbox: Outbox<[u8; BUFFER]>,
    record: [u8; BUFFER],
    record_len: usize,
}

// With its number, a place without a session is all zeros: the start-up code clears it, and it
// takes no flash.
#[derive(Debug)]
#[repr(u8)]
enum State {
    /// Nothing more will be written.
    Over = 0,
    Head(HeadScan),
    Record(Body),
    Running(Running),
}

#[derive(Debug)]
struct Running {
    command: Command,
    reader: InputReader,
    writer: OutputWriter,
    began: Instant,
    /// When its time is up.
    until: Option<Instant>,
    /// How it ended, until there was room to say so.
    ended: Option<Ending>,
}

#[derive(Clone, Copy, Debug)]
enum Ending {
    Itself(End),
    TimedOut,
    /// What the client sent is no stream of input.
    Fault(ExecError),
}

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pass {
    /// Bytes of the inbox that were used.
    pub(crate) used: usize,
    /// Whether anything was used or written.
    pub(crate) moved: bool,
}

impl<const BUFFER: usize> Default for Session<BUFFER> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const BUFFER: usize> Session<BUFFER> {
    /// Makes a place with no session in it.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            stream: None,
            state: State::Over,
            inbox: Inbox::new([0; BUFFER]),
            outbox: Outbox::new([0; BUFFER]),
            record: [0; BUFFER],
            record_len: 0,
        }
    }

    pub(crate) const fn stream(&self) -> Option<Stream> {
        self.stream
    }

    /// Begins the session of a new stream.
    pub(crate) fn open(&mut self, stream: Stream) {
        self.close();
        self.stream = Some(stream);
        self.state = State::Head(HeadScan::new());
    }

    /// Ends the session, whatever it was doing.
    pub(crate) fn close(&mut self) {
        self.stream = None;
        self.state = State::Over;
        self.inbox.consume(BUFFER);
        self.outbox.sent(BUFFER);
        self.record_len = 0;
    }

    /// Keeps what came. Credit is no more than there is room for; `false` when it did not fit.
    pub(crate) fn receive(&mut self, bytes: &[u8]) -> bool {
        keep(&mut self.inbox, bytes)
    }

    /// Returns what is to be sent; [`sent`](Self::sent) takes off its beginning.
    pub(crate) fn unsent(&self) -> &[u8] {
        self.outbox.unsent()
    }

    pub(crate) fn sent(&mut self, count: usize) {
        self.outbox.sent(count);
    }

    /// Reports whether all is said and sent, so that the stream can be closed.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Over) && self.outbox.is_empty()
    }

    /// Returns when its time is up.
    pub(crate) const fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Running(Running { until, ended: None, .. }) => *until,
            _ => None,
        }
    }

    /// Does what can be done now: at most one step of the session, with the bytes that are there.
    pub(crate) fn pass(&mut self, host: &Host) -> Pass {
        let (unread, unsent) = (self.inbox.unread().len(), self.outbox.unsent().len());
        let was_over = matches!(self.state, State::Over);
        let done = match self.state {
            State::Head(_) => self.head(),
            State::Record(_) => self.request(host),
            State::Running(_) => {
                self.run(host);
                Ok(())
            }
            State::Over => {
                // Input that nobody reads any more.
                self.inbox.consume(BUFFER);
                Ok(())
            }
        };
        if let Err(refusal) = done {
            let refused = refusal.write(refusal.why, self.outbox.space());
            let len = refused.map_or(0, <[u8]>::len);
            self.outbox.filled(len);
            self.state = State::Over;
        }
        let used = unread - self.inbox.unread().len();
        let is_over = matches!(self.state, State::Over);
        let moved = used > 0 || unsent != self.outbox.unsent().len() || was_over != is_over;
        Pass { used, moved }
    }

    fn head(&mut self) -> Result<(), Refusal> {
        let State::Head(scan) = &mut self.state else { return Ok(()) };
        let parsed = scan.request(self.inbox.unread(), self.inbox.is_full())?;
        let Some(parsed) = parsed else { return Ok(()) };
        parsed.admit_guest(ACCESS)?;
        let body = Body::limited(parsed.framing, BUFFER as u64);
        if parsed.wants_continue() {
            // The outbox is empty so far.
            let _ = self.outbox.push(CONTINUE.as_bytes());
        }
        let len = parsed.len;
        self.inbox.consume(len);
        self.state = State::Record(body);
        Ok(())
    }

    fn request(&mut self, host: &Host) -> Result<(), Refusal> {
        let State::Record(body) = &mut self.state else { return Ok(()) };
        let mut window = self.inbox.window();
        while let Some(piece) = body.feed(&mut window.rest)? {
            let end = self.record_len + piece.len();
            // The body is held to the record's size.
            if let Some(to) = self.record.get_mut(self.record_len..end) {
                to.copy_from_slice(piece);
                self.record_len = end;
            }
        }
        drop(window);
        if !body.is_complete() {
            return Ok(());
        }
        let record = self.record.get(..self.record_len).unwrap_or_default();
        let request = ExecRequest::parse(record)?;
        let answer = Answer::Hijack.write(self.outbox.space());
        let len = answer.map_err(|_| Refusal::internal())?.len();
        self.outbox.filled(len);
        let timeout = Duration::from_secs(request.timeout_s().into());
        let until = (!timeout.is_zero()).then(|| host.now.saturating_add(timeout));
        self.state = State::Running(Running {
            command: Command::of(&request),
            reader: InputReader::new(),
            writer: OutputWriter::new(),
            began: host.now,
            until,
            ended: None,
        });
        Ok(())
    }

    fn run(&mut self, host: &Host) {
        let State::Running(running) = &mut self.state else { return };
        if running.ended.is_none() && running.until.is_some_and(|until| host.now >= until) {
            running.ended = Some(Ending::TimedOut);
        }
        let record = self.record.get(..self.record_len).unwrap_or_default();
        // It was parsed before it began.
        if let (None, Ok(request)) = (running.ended, ExecRequest::parse(record)) {
            let mut out = Out::new(&mut running.writer, self.outbox.space());
            let mut window = self.inbox.window();
            let appetite = running.command.appetite(out.room());
            let part = window.rest.get(..appetite).unwrap_or(window.rest);
            let mut rest = part;
            let is_fed = loop {
                match running.reader.feed(&mut rest) {
                    Ok(Some(Input::Stdin(bytes))) => running.command.stdin(bytes, &mut out),
                    Ok(Some(Input::Close)) => {}
                    Ok(None) => break Ok(()),
                    Err(error) => break Err(error),
                }
            };
            let used = part.len() - rest.len();
            window.rest = window.rest.get(used..).unwrap_or_default();
            drop(window);
            running.ended = match is_fed {
                Err(error) => Some(Ending::Fault(error)),
                Ok(()) => running
                    .command
                    .step(host, running.reader.is_closed(), &request, &mut out)
                    .map(Ending::Itself),
            };
            let len = out.len();
            self.outbox.filled(len);
        }
        if let Some(ended) = running.ended
            && let Some(len) = running.exit(host.now, ended, self.outbox.space())
        {
            self.outbox.filled(len);
            self.state = State::Over;
        }
    }
}

impl Running {
    /// Writes the exit, whole or, for want of room, not at all.
    fn exit(&mut self, now: Instant, ended: Ending, space: &mut [u8]) -> Option<usize> {
        let mut words = Reason::EMPTY;
        let duration_ms = now.saturating_since(self.began).as_millis() as u64;
        let mut result = ExecResult { exit_code: -1, duration_ms, ..ExecResult::default() };
        match ended {
            Ending::Itself(End::Code(code)) => result.exit_code = code,
            Ending::Itself(End::NotFound) => result.error = Text::plain(NOT_FOUND),
            Ending::TimedOut => result.timed_out = true,
            Ending::Fault(error) => words = Reason::new(error),
        }
        if !words.as_str().is_empty() {
            result.error = Text::plain(words.as_str());
        }
        self.writer.exit(&result, space).ok().map(<[u8]>::len)
    }
}

/// Appends what came to an inbox; `false` when it does not fit.
pub(crate) fn keep<const BUFFER: usize>(inbox: &mut Inbox<[u8; BUFFER]>, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        let space = inbox.space();
        let count = space.len().min(bytes.len());
        let Some((part, rest)) = bytes.split_at_checked(count) else { return false };
        if part.is_empty() {
            return false;
        }
        for (to, from) in space.iter_mut().zip(part) {
            *to = *from;
        }
        inbox.filled(count);
        bytes = rest;
    }
    true
}
