//! The hijacked transport: after a bare 200, frames both ways over the raw socket, in one task.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::IoSlice;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tracing::debug;
use triwire::exec::head::Answer;

use super::command::Command;
use super::frames::FrameBuf;
use super::metrics::End;
use super::stop::{Event, SHUTTING_DOWN, Stop};
use super::transport::Socket;
use super::{OUTBOX, READ_AHEAD};
use crate::clock::Clock;

/// Bytes taken by one read while a session mostly waits, and while it is busy.
const READ_IDLE: usize = 8 * 1024;
const READ_BUSY: usize = 64 * 1024;

/// Slices handed to one write.
const SLICES: usize = 64;

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    /// The exit frame is written.
    Delivered,
    /// The client went away; nothing is sent.
    Gone,
}

/// Runs a session to its end; `unread` came behind the request, in the same reads.
pub(super) async fn run(socket: Socket, unread: Bytes, command: Command, stop: Stop, clock: Clock) {
    let mut session = Session::new(socket.clone(), unread, command, &stop);
    let over = poll_fn(|cx| session.poll(cx)).await;
    // Ends a command that still runs.
    drop(session);
    debug!(?over, "session over");
    if over == Over::Delivered {
        socket.linger(clock).await;
    }
}

struct Session {
    socket: Socket,
    /// What came and is not yet used.
    inbox: BytesMut,
    /// Payload at its front that the command has not taken.
    carried: usize,
    read_size: usize,
    outbox: VecDeque<FrameBuf>,
    queued: usize,
    command: Command,
    stop: Event,
    gone: Event,
}

impl Session {
    fn new(socket: Socket, unread: Bytes, command: Command, stop: &Stop) -> Self {
        let mut head = [0; 256];
        // The core says that 256 bytes hold every answer.
        let head = Answer::Hijack.write(&mut head).unwrap_or_default();
        let head = FrameBuf::whole(Bytes::copy_from_slice(head));
        Self {
            gone: socket.gone(),
            socket,
            inbox: unread.into(),
            carried: 0,
            read_size: READ_IDLE,
            queued: head.remaining(),
            outbox: VecDeque::from([head]),
            command,
            stop: stop.event(),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Over> {
        if !self.command.is_ended() && self.stop.as_mut().poll(cx).is_ready() {
            let exit = self.command.end(End::Shutdown, SHUTTING_DOWN);
            self.push(exit);
        }
        if self.poll_input(cx).is_ready() {
            return Poll::Ready(Over::Gone);
        }
        self.poll_output(cx)
    }

    /// Feeds the command and reads on; ready when the client is gone.
    fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Poll::Ready(Err(fault)) =
                self.command.poll_input(cx, &mut self.inbox, &mut self.carried)
            {
                // rule: EXEC-30
                let exit = self.command.end(End::Fault, fault);
                self.push(exit);
                continue;
            }
            let room = READ_AHEAD.saturating_sub(self.inbox.len());
            if room == 0 {
                // rule: EXEC-50
                return self.gone.as_mut().poll(cx);
            }
            self.inbox.reserve(self.read_size.min(room));
            let mut limited = (&mut self.inbox).limit(self.read_size.min(room));
            match self.socket.poll_read_into(cx, &mut limited) {
                // rule: EXEC-31
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(count)) => {
                    let full = count == self.read_size;
                    self.read_size = if full { READ_BUSY } else { READ_IDLE };
                }
                Poll::Pending => {
                    if self.inbox.is_empty() && self.inbox.capacity() > READ_IDLE {
                        self.inbox = BytesMut::new();
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<Over> {
        loop {
            // rule: EXEC-48
            while self.queued < OUTBOX {
                match self.command.poll_frame(cx) {
                    Poll::Ready(Some(frame)) => self.push(frame),
                    Poll::Ready(None) if self.outbox.is_empty() => {
                        let flushed = ready!(self.socket.poll_flush(cx));
                        return Poll::Ready(flushed.map_or(Over::Gone, |()| Over::Delivered));
                    }
                    Poll::Ready(None) | Poll::Pending => break,
                }
            }
            if self.outbox.is_empty() {
                return match self.socket.poll_flush(cx) {
                    Poll::Ready(Err(_)) => Poll::Ready(Over::Gone),
                    Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
                };
            }
            if ready!(self.poll_write(cx)).is_err() {
                return Poll::Ready(Over::Gone);
            }
        }
    }

    fn push(&mut self, frame: FrameBuf) {
        self.queued += frame.remaining();
        self.outbox.push_back(frame);
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ()>> {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let mut count = 0;
        for frame in &self.outbox {
            count += frame.chunks_vectored(slices.get_mut(count..).unwrap_or_default());
        }
        let slices = slices.get(..count).unwrap_or_default();
        let mut written = match ready!(self.socket.poll_write_slices(cx, slices)) {
            Ok(0) | Err(_) => return Poll::Ready(Err(())),
            Ok(written) => written,
        };
        self.queued -= written;
        while let Some(front) = self.outbox.front_mut() {
            let of_front = written.min(front.remaining());
            front.advance(of_front);
            written -= of_front;
            if front.has_remaining() {
                break;
            }
            self.outbox.pop_front();
        }
        Poll::Ready(Ok(()))
    }
}
