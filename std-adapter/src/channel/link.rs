//! One executor's connection, behind the upgrade: its hello, its chair, its end.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use std::{future, io};

use bytes::Bytes;
use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{sleep_until, timeout};
use tracing::{debug, info};
use triwire::channel::hello::{Entry, Hello, Refused, Standing};
use triwire::channel::keepalive::{Due, Keepalive};
use triwire::channel::refusal::Refusal;
use triwire::exec::socket::Close;

use super::Shared;
use super::chairs::{Executor, Seat};
use crate::Wake;
use crate::clock::Clock;
use crate::server::stop::{SHUTTING_DOWN, Stop};
use crate::tokio::heard::Heard;
use crate::tokio::socket::{Ending, Message, Role, Rx, Sizes, Tx, link};

/// How long the peer may take over the last words.
pub(super) const CLOSE_BOUND: Duration = Duration::from_secs(5);
/// The read buffer of a connection; thousands stand open at once.
const READ_BUFFER: usize = 8 * 1024;
/// Room for the heads of messages, a refusal and a ping.
const SEND_EXTRA: usize = 64 * 1024;
/// Messages that are taken before what they led to is sent.
const BATCH: usize = 64;

/// How a connection is over.
enum Over {
    /// It is told, then closed.
    Refused(Refused),
    /// It is closed.
    Close(Close),
    /// The peer closes, or broke the rules: what waits goes out.
    Closing,
    /// The peer is gone.
    Gone,
}

impl From<io::Error> for Over {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

/// Runs an executor's connection to its end. `unread` came behind the upgrade, in the same reads.
pub(crate) async fn run<S: AsyncRead + AsyncWrite + Unpin>(
    transport: S,
    unread: Bytes,
    entry: Entry,
    shared: Arc<Shared>,
    stop: Stop,
) {
    let clock = shared.clock;
    let limits = *shared.chairs.limits();
    let sizes = Sizes {
        read_buffer: READ_BUFFER,
        send_buffer: limits.message.saturating_add(SEND_EXTRA),
        max_message: limits.message,
    };
    let transport = Heard::new(transport, clock);
    let (rx, tx) = link(transport, Role::Server, &unread, sizes);
    drop(unread);
    let mut session = Session { rx, tx, keepalive: Keepalive::new(clock.now()), clock, stop };
    let over = match session.enter(entry, &shared).await {
        Ok(seat) => session.converse(seat).await,
        Err(over) => over,
    };
    match over {
        Over::Refused(refused) => {
            info!(refused = refused.0.as_str(), "executor told to leave");
            // The core says that it is enough.
            let mut room = [0; 256];
            if let Ok(text) = refused.write(&mut room) {
                let text = String::from_utf8_lossy(text).into_owned();
                // Without room the close alone says it.
                let _ = session.tx.send(Message::Text(text.into()));
            }
            let close = refused.close();
            session.tx.close(close.code, close.reason.as_str());
            session.finish().await;
        }
        Over::Close(close) => {
            session.tx.close(close.code, close.reason.as_str());
            session.finish().await;
        }
        Over::Closing => session.finish().await,
        Over::Gone => debug!("executor gone"),
    }
}

struct Session<S> {
    rx: Rx<Heard<S>>,
    tx: Tx<Heard<S>>,
    keepalive: Keepalive,
    clock: Clock,
    stop: Stop,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Session<S> {
    /// Finds the chair that the connection is for, and takes it.
    async fn enter(&mut self, entry: Entry, shared: &Arc<Shared>) -> Result<Seat, Over> {
        let sit = |executor: &Executor| {
            info!(?executor, "executor connected");
            shared.chairs.sit(executor.clone()).map_err(|_| Over::Close(Close::going_away("")))
        };
        let hello = match entry {
            Entry::Page => return sit(&Executor::Page),
            Entry::Hello(hello) => hello,
        };
        let first = self.first(&hello).await?;
        let presented = hello.feed(self.clock.now(), first.as_bytes()).map_err(Over::Refused)?;
        let digest = presented.bearer().digest();
        let (standing, env_key) = shared.standing(digest).await;
        presented.settle(standing).map_err(Over::Refused)?;
        let executor = Executor::Machine(env_key.unwrap_or_default());
        let seat = sit(&executor)?;
        // Who revoked it in between found nobody to close.
        if shared.standing(digest).await.0 != Standing::Known {
            return Err(Over::Refused(Refused(Refusal::PairingRevoked)));
        }
        Ok(seat)
    }

    /// Waits for the first message.
    async fn first(&mut self, hello: &Hello) -> Result<Message, Over> {
        let mut stop = self.stop.event();
        let mut late = pin!(sleep_until(self.clock.to_tokio(hello.deadline())));
        loop {
            if let Some(message) = self.rx.next() {
                return Ok(message);
            }
            tokio::select! {
                biased;
                () = &mut stop => return Err(Over::Close(Close::going_away(SHUTTING_DOWN))),
                () = &mut late => {
                    if let Some(refused) = hello.poll(self.clock.now()) {
                        return Err(Over::Refused(refused));
                    }
                    late.as_mut().reset(self.clock.to_tokio(hello.deadline()));
                }
                wake = self.rx.wait(None) => if wake? == Wake::End { return Err(self.ended()) },
                sent = self.tx.flush(), if !self.tx.is_flushed() => sent?,
            }
        }
    }

    fn ended(&self) -> Over {
        match self.rx.ending() {
            Some(Ending::Closed { .. } | Ending::Fault(_)) => Over::Closing,
            _ => Over::Gone,
        }
    }

    async fn converse(&mut self, mut seat: Seat) -> Over {
        match self.serve(&mut seat).await {
            Ok(over) | Err(over) => over,
        }
    }

    async fn serve(&mut self, seat: &mut Seat) -> Result<Over, Over> {
        let clock = seat.clock();
        let mut stop = self.stop.event();
        let mut alarm = pin!(sleep_until(self.clock.to_tokio(self.keepalive.deadline())));
        // A call that found no room in the link.
        let mut waiting: Option<Message> = None;
        loop {
            if let Some(refusal) = seat.end() {
                return Ok(Over::Refused(Refused(refusal)));
            }
            loop {
                let next = waiting
                    .take()
                    .or_else(|| seat.next().map(|text| text.into()).map(Message::Text));
                let Some(message) = next else { break };
                if !self.tx.has_room(message.as_bytes().len()) {
                    waiting = Some(message);
                    break;
                }
                if self.tx.send(message).is_err() {
                    return Ok(self.ended());
                }
            }
            self.keepalive.heard(self.tx.with_transport(|transport| transport.at()));
            match self.keepalive.poll(self.clock.now()) {
                // Without room something else waits to be sent, which shows the same.
                Some(Due::Ping) => drop(self.tx.ping(b"")),
                Some(Due::Gone) => return Ok(Over::Gone),
                None => {}
            }
            let ours = self.clock.to_tokio(self.keepalive.deadline());
            let next = seat.deadline().map_or(ours, |deadline| ours.min(clock.to_tokio(deadline)));
            // One that rings too early does no harm, and saves setting it for each call.
            if next < alarm.deadline() || alarm.is_elapsed() {
                alarm.as_mut().reset(next);
            }
            tokio::select! {
                () = &mut stop => return Ok(Over::Close(Close::going_away(SHUTTING_DOWN))),
                wake = self.rx.wait(None) => if wake? == Wake::End { return Ok(self.ended()) },
                sent = self.tx.flush(), if !self.tx.is_flushed() => sent?,
                () = seat.changed() => {}
                () = &mut alarm => seat.poll(),
            }
            for _ in 0..BATCH {
                // A message that a wait told of is always taken: else no later wait ends.
                if let Some(Message::Text(text)) = self.rx.next() {
                    seat.feed(text.as_bytes());
                }
                match self.rx.wait(None).now_or_never() {
                    None => break,
                    Some(wake) => {
                        if wake? == Wake::End {
                            return Ok(self.ended());
                        }
                    }
                }
            }
            if let Some(Message::Text(text)) = self.rx.next() {
                seat.feed(text.as_bytes());
            }
        }
    }

    /// Sends the last words, and reads on until the peer's own, so that they are not overtaken by
    /// a reset.
    async fn finish(mut self) {
        let finishing = async {
            loop {
                let is_flushed = self.tx.is_flushed();
                if is_flushed && self.rx.ending().is_some() {
                    break;
                }
                while self.rx.next().is_some() {}
                tokio::select! {
                    sent = self.tx.flush(), if !is_flushed => sent?,
                    wake = self.rx.wait(None), if self.rx.ending().is_none() => drop(wake?),
                }
            }
            self.tx.shutdown().await?;
            // Behind a fault the rest is read as it is.
            let mut sink = [0; 4096];
            loop {
                let count = future::poll_fn(|cx| {
                    let mut room = ReadBuf::new(&mut sink);
                    let read = self.tx.with_transport(|s| Pin::new(s).poll_read(cx, &mut room));
                    read.map_ok(|()| room.filled().len())
                })
                .await?;
                if count == 0 {
                    return Ok::<_, io::Error>(());
                }
            }
        };
        if timeout(CLOSE_BOUND, finishing).await.is_err() {
            debug!("the peer did not close in time");
        }
    }
}
