//! The WebSocket transport: the request, then frames both ways as messages, then a close.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep_until};
use tracing::{Span, debug, info};
use triwire::exec::frame::MAX_PAYLOAD_SIZE;
use triwire::exec::linger::Linger;
use triwire::exec::request;
use triwire::exec::socket::{
    Close, Event, MAX_SOCKET_MESSAGE, Message as Received, PING_EVERY, ServerSocket,
};
use triwire::time::Instant;

use super::command::Command;
use super::frames::FrameBuf;
use super::metrics::End;
use super::service::Sandbox;
use super::stop::{Event as Signal, SHUTTING_DOWN, Stop};
use super::transport::Socket;
use super::{OUTBOX, READ_AHEAD};
use crate::Wake;
use crate::clock::Clock;
use crate::record::ExecRequest;
use crate::tokio::socket::{Ending, Message, Role, Rx, SendError, Sizes, Tx, link};

/// The read buffer of a session; thousands of idle ones stand open at once.
const READ_BUFFER: usize = 4 * 1024;

/// What one frame adds to its payload on the wire: its own header and those of two messages.
const FRAME_OVERHEAD: usize = 64;

/// How a conversation is over.
#[derive(Clone, Copy, Debug)]
enum Over {
    /// We close.
    Close(Close),
    /// The client closed, or is closed already over its fault: what waits goes out.
    Closing,
    /// The client is gone.
    Gone,
}

/// Runs a session behind the upgrade to its end.
///
/// `unread` came behind the upgrade, in the same reads. `socket` is the transport's own, where it
/// is known: it tells of the client's end without reading, and of what is acknowledged.
pub(super) async fn run<S: AsyncRead + AsyncWrite + Unpin>(
    transport: S,
    unread: Bytes,
    socket: Option<Socket>,
    sandbox: Sandbox,
    stop: Stop,
    clock: Clock,
) {
    let counters = Arc::clone(&sandbox.counters);
    let mut session = Session::new(transport, &unread, socket, &stop, clock);
    drop(unread);
    let over = session.converse(sandbox).await;
    debug!(?over, "session over");
    match over {
        Over::Close(close) => {
            info!(code = close.code, "closing");
            if !is_regular(close) {
                counters.refused(close.code, "");
            }
            session.tx.close(close.code, close.reason.as_str());
            session.settle().await;
        }
        Over::Closing => session.settle().await,
        Over::Gone => {}
    }
}

/// Reports whether a close refuses nothing.
fn is_regular(close: Close) -> bool {
    [Close::normal(), Close::going_away("")].iter().any(|regular| regular.code == close.code)
}

struct Session<S> {
    rx: Rx<S>,
    tx: Tx<S>,
    rules: ServerSocket,
    request: Option<ExecRequest>,
    /// Frames that came and are not yet used, message by message.
    inbox: VecDeque<Bytes>,
    /// Bytes in the inbox.
    ahead: usize,
    /// Payload at its front that the command has not taken.
    carried: usize,
    socket: Option<Socket>,
    gone: Option<Signal>,
    stop: Signal,
    ping: Pin<Box<Sleep>>,
    clock: Clock,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Session<S> {
    fn new(transport: S, unread: &[u8], socket: Option<Socket>, stop: &Stop, clock: Clock) -> Self {
        let sizes = Sizes {
            read_buffer: READ_BUFFER,
            send_buffer: OUTBOX,
            max_message: MAX_SOCKET_MESSAGE,
        };
        let (rx, tx) = link(transport, Role::Server, unread, sizes);
        let now = clock.now();
        Self {
            rx,
            tx,
            rules: ServerSocket::new(now),
            request: None,
            inbox: VecDeque::new(),
            ahead: 0,
            carried: 0,
            gone: socket.as_ref().map(Socket::gone),
            socket,
            stop: stop.event(),
            ping: Box::pin(sleep_until(clock.to_tokio(now.saturating_add(PING_EVERY)))),
            clock,
        }
    }

    async fn converse(&mut self, sandbox: Sandbox) -> Over {
        let request = match self.request().await {
            Ok(request) => request,
            Err(over) => return over,
        };
        let mut counted = sandbox.tally.begin();
        let mut starting = sandbox.guest.start(request);
        let started = poll_fn(|cx| match starting.as_mut().poll(cx) {
            Poll::Ready(started) => Poll::Ready(Ok(started)),
            Poll::Pending => self.poll_before(cx).map(Err),
        });
        let running = match started.await {
            Ok(Ok(running)) => running,
            Ok(Err(unreachable)) => {
                info!(%unreachable, "sandbox out of reach");
                counted.ends(End::Unreachable);
                return Over::Close(self.rules.unreachable(unreachable));
            }
            Err(over) => {
                if let Some(end) = self.fault(over) {
                    counted.ends(end);
                }
                return over;
            }
        };
        drop(starting);
        let mut command = Command::new(running, self.clock, Span::current(), counted);
        let over = poll_fn(|cx| self.poll_running(cx, &mut command)).await;
        if let Some(end) = self.fault(over) {
            command.ends(end);
        }
        over
    }

    /// Tells a client's fault, and a server that goes down, from a client that goes away.
    fn fault(&self, over: Over) -> Option<End> {
        match over {
            Over::Close(close) if is_regular(close) => Some(End::Shutdown),
            Over::Close(_) => Some(End::Fault),
            Over::Closing if matches!(self.rx.ending(), Some(Ending::Fault(_))) => Some(End::Fault),
            Over::Closing | Over::Gone => None,
        }
    }

    /// Waits for the first message.
    async fn request(&mut self) -> Result<ExecRequest, Over> {
        let deadline = self.rules.deadline().unwrap_or(Instant::ZERO);
        let mut late = Box::pin(sleep_until(self.clock.to_tokio(deadline)));
        poll_fn(|cx| {
            let over = self.poll_before(cx);
            if let Some(request) = self.request.take() {
                return Poll::Ready(Ok(request));
            }
            ready!(match over {
                Poll::Ready(over) => return Poll::Ready(Err(over)),
                Poll::Pending => late.as_mut().poll(cx),
            });
            // rule: EXEC-24
            let close = self.rules.poll(self.clock.now()).unwrap_or_else(Close::no_request);
            Poll::Ready(Err(Over::Close(close)))
        })
        .await
    }

    /// Polls a session whose command does not run yet.
    fn poll_before(&mut self, cx: &mut Context<'_>) -> Poll<Over> {
        if self.stop.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Over::Close(self.rules.close(Close::going_away(SHUTTING_DOWN))));
        }
        if let Poll::Ready(over) = self.poll_read(cx) {
            return Poll::Ready(over);
        }
        self.poll_ping(cx);
        self.poll_flush(cx)
    }

    /// Polls a session whose command runs.
    fn poll_running(&mut self, cx: &mut Context<'_>, command: &mut Command) -> Poll<Over> {
        if self.stop.as_mut().poll(cx).is_ready() {
            let exit = command.end(End::Shutdown, SHUTTING_DOWN);
            return Poll::Ready(self.deliver(exit));
        }
        loop {
            if let Poll::Ready(over) = self.poll_read(cx) {
                return Poll::Ready(over);
            }
            let was_full = self.ahead >= READ_AHEAD;
            while let Some(front) = self.inbox.front_mut() {
                let waiting = front.len();
                let polled = command.poll_input(cx, front, &mut self.carried);
                self.ahead -= waiting - front.len();
                match polled {
                    // rule: EXEC-30
                    Poll::Ready(Err(fault)) => {
                        return Poll::Ready(Over::Close(self.rules.frame_fault(fault)));
                    }
                    Poll::Ready(Ok(())) => self.inbox.pop_front(),
                    Poll::Pending => break,
                };
            }
            // What was taken makes room to read on, and nothing else would wake this task for it.
            if !was_full || self.ahead >= READ_AHEAD {
                break;
            }
        }
        self.poll_ping(cx);
        loop {
            // rule: EXEC-48
            let mut pending = false;
            while self.tx.has_room(MAX_PAYLOAD_SIZE + FRAME_OVERHEAD) {
                match command.poll_frame(cx) {
                    Poll::Ready(Some(frame)) if command.is_ended() => {
                        return Poll::Ready(self.deliver(frame));
                    }
                    Poll::Ready(Some(frame)) => {
                        if self.send(frame).is_err() {
                            return Poll::Ready(Over::Closing);
                        }
                    }
                    Poll::Ready(None) | Poll::Pending => {
                        pending = true;
                        break;
                    }
                }
            }
            match self.tx.poll_flush(cx) {
                Poll::Ready(Ok(())) if !pending => {}
                Poll::Ready(Err(_)) => return Poll::Ready(Over::Gone),
                _ => return Poll::Pending,
            }
        }
    }

    /// Sends the exit frame; a close follows it.
    fn deliver(&mut self, exit: FrameBuf) -> Over {
        match self.send(exit) {
            Ok(()) => Over::Close(self.rules.finished()),
            Err(_) => Over::Closing,
        }
    }

    fn send(&mut self, frame: FrameBuf) -> Result<(), SendError> {
        // rule: EXEC-25
        for part in frame.into_parts() {
            if part.has_remaining() {
                self.tx.send(Message::Binary(part))?;
            }
        }
        Ok(())
    }

    /// Reads as far ahead as a session may; ready when the client's messages are over.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Over> {
        loop {
            if self.ahead >= READ_AHEAD {
                // rule: EXEC-50
                return match &mut self.gone {
                    Some(gone) => gone.as_mut().poll(cx).map(|()| Over::Gone),
                    None => Poll::Pending,
                };
            }
            match ready!(self.rx.poll_wait(cx)) {
                Err(_) => return Poll::Ready(Over::Gone),
                Ok(Wake::End) => {
                    return Poll::Ready(match self.rx.ending() {
                        Some(Ending::Closed { .. } | Ending::Fault(_)) => Over::Closing,
                        _ => Over::Gone,
                    });
                }
                Ok(_) => {}
            }
            while let Some(message) = self.rx.next() {
                if let Err(close) = self.take(message) {
                    return Poll::Ready(Over::Close(close));
                }
            }
        }
    }

    fn take(&mut self, message: Message) -> Result<(), Close> {
        let received = match &message {
            Message::Text(text) => Received::Text(text.as_bytes()),
            Message::Binary(bytes) => Received::Binary(bytes),
        };
        match self.rules.feed(self.clock.now(), received)? {
            Event::Request(body) => {
                let request = request::ExecRequest::parse(body);
                // rule: EXEC-17
                let request = request.map_err(|error| self.rules.refuse(error))?;
                self.request = Some(ExecRequest::from(&request));
            }
            Event::Frames(frames) => {
                if let Message::Binary(bytes) = &message
                    && !frames.is_empty()
                {
                    self.ahead += frames.len();
                    self.inbox.push_back(bytes.slice_ref(frames));
                }
            }
        }
        Ok(())
    }

    fn poll_ping(&mut self, cx: &mut Context<'_>) {
        while self.ping.as_mut().poll(cx).is_ready() {
            // Without room something else waits to be sent, which shows the same.
            let _ = self.tx.ping(b"");
            let next = self.clock.now().saturating_add(PING_EVERY);
            self.ping.as_mut().reset(self.clock.to_tokio(next));
        }
    }

    /// Sends what waits; ready when the connection broke.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Over> {
        match self.tx.poll_flush(cx) {
            Poll::Ready(Err(_)) => Poll::Ready(Over::Gone),
            _ => Poll::Pending,
        }
    }

    /// Behind our close frame: sends it, then reads on until the client's own, and no longer than
    /// the rules of lingering allow.
    async fn settle(mut self) {
        let mut closing =
            Closing { linger: None, look: None, raw: false, answered: false, ending: false };
        self.inbox.clear();
        poll_fn(|cx| self.poll_settle(cx, &mut closing)).await;
    }

    fn poll_settle(&mut self, cx: &mut Context<'_>, closing: &mut Closing) -> Poll<()> {
        let now = self.clock.now();
        if closing.linger.is_none() {
            match self.tx.poll_flush(cx) {
                Poll::Ready(Ok(())) => closing.linger = Some(Linger::new(now)),
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => {}
            }
            if let Some(linger) = &mut closing.linger {
                linger.acknowledged(now, unacknowledged(self.socket.as_ref()));
                // Neither end has anything more to say.
                closing.ending = closing.raw || closing.answered || self.rx.ending().is_some();
            }
        }
        if let Some(socket) = &self.socket {
            closing.ending = closing.ending && socket.poll_end_sending(cx).is_pending();
        }
        while let Poll::Ready(received) = self.poll_discard(cx, closing) {
            match received {
                Some(count) => {
                    if let Some(linger) = &mut closing.linger {
                        linger.feed(now, count);
                    }
                }
                None if closing.answered && closing.linger.is_none() => break,
                None => return Poll::Ready(()),
            }
        }
        let Some(linger) = &mut closing.linger else { return Poll::Pending };
        loop {
            if linger.poll(self.clock.now()).is_some() {
                return Poll::Ready(());
            }
            let Some(deadline) = linger.deadline() else { return Poll::Ready(()) };
            let deadline = self.clock.to_tokio(deadline);
            let look = closing.look.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
            if look.deadline() != deadline {
                look.as_mut().reset(deadline);
            }
            ready!(look.as_mut().poll(cx));
            linger.acknowledged(self.clock.now(), unacknowledged(self.socket.as_ref()));
        }
    }

    /// Reads and throws away: how many bytes, `None` for the end of it.
    fn poll_discard(&mut self, cx: &mut Context<'_>, closing: &mut Closing) -> Poll<Option<usize>> {
        if closing.answered {
            return Poll::Ready(None);
        }
        if closing.raw {
            let mut sink = [0; 4096];
            let mut room = ReadBuf::new(&mut sink);
            let read = self.tx.with_transport(|s| Pin::new(s).poll_read(cx, &mut room));
            return read.map(|read| {
                let count = room.filled().len();
                (read.is_ok() && count > 0).then_some(count)
            });
        }
        match ready!(self.rx.poll_wait(cx)) {
            Ok(Wake::End) => match self.rx.ending() {
                // A fault: what follows it is no WebSocket any more.
                Some(Ending::Fault(_)) => {
                    closing.raw = true;
                    self.poll_discard(cx, closing)
                }
                Some(Ending::Closed { .. }) => {
                    closing.answered = true;
                    Poll::Ready(None)
                }
                _ => Poll::Ready(None),
            },
            Ok(_) => {
                let received = std::iter::from_fn(|| self.rx.next());
                Poll::Ready(Some(received.map(|message| message.as_bytes().len().max(1)).sum()))
            }
            Err(_) => Poll::Ready(None),
        }
    }
}

/// How far the closing of a connection has come.
struct Closing {
    /// Since everything of ours was written.
    linger: Option<Linger>,
    look: Option<Pin<Box<Sleep>>>,
    /// The client broke the rules of WebSocket: its bytes are read as they are.
    raw: bool,
    /// The client's close frame came.
    answered: bool,
    /// Our side of the connection is to be ended.
    ending: bool,
}

fn unacknowledged(socket: Option<&Socket>) -> usize {
    socket.map_or(0, Socket::unacknowledged)
}
