//! An executor of a channel on a device: it answers calls to its tools on a stream of bytes, one
//! message a line, such as a stream of its serial line or all of a UART.
//!
//! ```text
//!   Rx ──▶ Lines ──▶ Door ──▶ Admissions      bounds, budget
//!                     │ run
//!                     ▼
//!   Tx ◀── line ◀── answer ◀── a tool of yours
//! ```
//!
//! [`serve`] is the whole loop over a blocking link, [`serve_async`] the same over an async one.
//! Both run one call at a time. Firmware whose loop must not wait, or whose tools take their time
//! while others go on, drives the [`Executor`] itself: [`feed`](Executor::feed) gives a ticket with
//! each call, and [`answer`](Executor::answer) takes it back whenever the tool is done.
//!
//! ```
//! use triwire::channel::admission::{Admission, Table};
//! use triwire::channel::bounds::Bounds;
//! use triwire_embedded::blocking::{Rx, Tx};
//! use triwire_embedded::channel::{Executor, observed, serve};
//!
//! # let uart_rx = &b"{\"v\":1,\"callId\":\"a\",\"tool\":\"read\",\"descriptorId\":\"board\",\"boundsEcho\":{\"maxRequests\":100}}\n"[..];
//! # let mut wire = [0; 256];
//! # let uart_tx = &mut wire[..];
//! let bounds = Bounds::parse(r#"{"maxRequests":100}"#)?;
//! let admissions = Table::new([Admission::new("board", "read", bounds)]);
//! // One call at a time, of at most 255 bytes, with an id of at most 64.
//! let mut executor = Executor::<_, 1>::new(admissions, 255);
//! let mut rx = Rx::new(uart_rx, [0; 256]);
//! let mut tx = Tx::new(uart_tx, [0; 1024]);
//! let mut scratch = [0; 128];
//!
//! serve(&mut rx, &mut tx, &mut executor, &mut scratch, |call, scratch| {
//!     // The door has checked that the call is admitted; which tool it is for is ours to tell.
//!     assert_eq!(call.tool, "read");
//!     observed(scratch, |object| {
//!         object.name("celsius");
//!         object.signed(21);
//!     })
//! })?;
//! # drop(tx);
//! # assert!(wire.starts_with(b"{\"v\":1,\"callId\":\"a\",\"ok\":true,\"observed\":{\"celsius\":21}}\n"));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
//!
//! # Sizing the buffers
//!
//! | buffer | size |
//! | --- | --- |
//! | of `Rx` | the longest call and 1. A call takes about 90 bytes, and its id, names, arguments and bounds; a longer one is dropped and counted, and its caller's time runs out |
//! | scratch | the longest object that a tool writes as observed; what does not fit is `exec-threw` |
//! | of `Tx` | at least [`Executor::room_for`] of the scratch: with less room a call is not taken |
//! | `CALLS` | calls that run at once: 1 for [`serve`]. Each takes `ID` and 24 bytes; one too many is refused as `too-many-calls` |
//!
//! An id of this library's gateway has at most 64 bytes, which is `ID` unless it is given.

use core::fmt;

use triwire::OutTooSmall;
use triwire::channel::admission::Admissions;
use triwire::channel::door::{AnswerError, Door, Received, Refused, Slot, Ticket};
use triwire::channel::envelope::{Call, DEFAULT_ID_SIZE, Object, Outcome};
use triwire::channel::lines::{self, LINE_EXTRA, Lines};
use triwire::json::Writer;

use crate::blocking;
use crate::link::{LinkError, Wake};

/// What became of a call: an outcome of the tool, which goes out as it is, or why the tool failed,
/// in words for people, which goes out as `exec-threw`.
pub type Ran<'s> = Result<Outcome<'s>, &'s str>;

/// Why a tool failed whose outcome no buffer holds.
const TOO_LONG: &str = "what was observed does not fit the device's buffer";

/// Writes what a tool observed: one object, whose members `write` writes, into `scratch`.
///
/// # Errors
/// It does not fit; that is the tool's failure.
pub fn observed<'s>(scratch: &'s mut [u8], write: impl FnOnce(&mut Writer<'s>)) -> Ran<'s> {
    let mut writer = Writer::new(scratch);
    writer.begin_object();
    write(&mut writer);
    writer.end_object();
    let object = writer.finish().map_err(|_| TOO_LONG)?;
    let object = core::str::from_utf8(object).ok().and_then(|text| Object::parse(text).ok());
    object.map(Outcome::Observed).ok_or("what was observed is no JSON object")
}

/// The executing end of a channel on a stream of bytes: a [`Door`], and its messages as lines.
///
/// `CALLS` run at once, whose ids have at most `ID` bytes.
#[derive(Debug)]
pub struct Executor<A, const CALLS: usize, const ID: usize = DEFAULT_ID_SIZE> {
    lines: Lines,
    door: Door<[Slot<ID>; CALLS], A, ID>,
    /// The call that a [`serve_async`] was dropped in.
    #[cfg_attr(not(feature = "async"), allow(dead_code))]
    dropped: Option<Ticket>,
}

impl<A: Admissions, const CALLS: usize, const ID: usize> Executor<A, CALLS, ID> {
    /// Makes an executor of what is admitted, for calls of at most `limit` bytes.
    pub fn new(admissions: A, limit: usize) -> Self {
        let door = Door::new([Slot::EMPTY; CALLS], admissions);
        Self { lines: Lines::new(limit), door, dropped: None }
    }

    /// Returns the room in which every reply fits, whatever the call, when a tool observes at most
    /// `scratch` bytes; a refusal of its own with longer words goes out as `exec-threw`.
    #[must_use]
    pub const fn room_for(scratch: usize) -> usize {
        // An id may be all escapes; the rest of a refusal is at most 256 bytes, and that of an
        // answer 64.
        let answer = 64 + scratch;
        6 * ID + LINE_EXTRA + if answer > 256 { answer } else { 256 }
    }

    /// Takes the next call of the stream, and advances `input` past it; `None` when no line is
    /// whole. What is left in `input` then stands at the beginning of the next one.
    ///
    /// Call it when a reply has room, [`room_for`](Self::room_for): a call that was taken counts.
    pub fn feed<'i>(&mut self, input: &mut &'i [u8]) -> Option<Received<'i>> {
        self.lines.feed(input).map(|message| self.door.feed(message))
    }

    /// Writes the reply of a call that may not run, as a line.
    ///
    /// # Errors
    /// [`OutTooSmall`]; [`room_for`](Self::room_for) is enough.
    pub fn refuse<'o>(
        &self,
        refused: &Refused<'_>,
        out: &'o mut [u8],
    ) -> Result<&'o [u8], OutTooSmall> {
        let len = refused.write(lines::room(out)).map_err(longer)?.len();
        lines::end(out, len)
    }

    /// Writes the reply of a call that ran, as a line; empty when its stream has ended meanwhile.
    /// What does not fit `out` goes out as `exec-threw`.
    ///
    /// # Errors
    /// [`AnswerError::OutTooSmall`] with the ticket when not even that fits.
    // rule: CHAN-114
    pub fn answer<'o>(
        &mut self,
        ticket: Ticket,
        ran: Ran<'_>,
        out: &'o mut [u8],
    ) -> Result<&'o [u8], AnswerError> {
        let room = lines::room(out);
        let mut written = match ran {
            Ok(outcome) => self.door.answer(ticket, outcome, room).map(<[u8]>::len),
            Err(why) => self.door.threw(ticket, why, room).map(<[u8]>::len),
        };
        if let Err(AnswerError::OutTooSmall { ticket, .. }) = written {
            written = self.door.threw(ticket, TOO_LONG, room).map(<[u8]>::len);
        }
        match written {
            // The room leaves room.
            Ok(len) => Ok(lines::end(out, len).unwrap_or_default()),
            Err(AnswerError::Gone) => Ok(&[]),
            Err(AnswerError::OutTooSmall { ticket, needed }) => {
                Err(AnswerError::OutTooSmall { ticket, needed: needed + LINE_EXTRA })
            }
        }
    }

    /// Ends the stream: calls that run go on, and their answers are not needed. What is fed next
    /// begins another stream. Budgets stay as they are.
    pub fn link_down(&mut self) {
        self.lines.link_down();
        self.door.link_down();
        self.dropped = None;
    }

    /// Returns how many calls are running.
    #[must_use]
    pub const fn running(&self) -> usize {
        self.door.running()
    }

    /// Returns how many messages were ignored: no calls, or too long.
    #[must_use]
    pub const fn ignored(&self) -> u64 {
        self.door.ignored().saturating_add(self.lines.dropped())
    }

    /// Returns the admissions, such as to take more requests off a tool's budget.
    pub const fn admissions(&mut self) -> &mut A {
        self.door.admissions()
    }

    /// Takes a call, runs it and writes its reply: `None` when no call is there, otherwise the
    /// reply's length, 0 when there is none.
    ///
    /// `out` has room for [`room_for`](Self::room_for) the scratch, so that the reply fits whatever
    /// becomes of the call.
    ///
    /// # Errors
    /// [`OutTooSmall`] when it has less; nothing was taken.
    // rule: CHAN-113
    pub fn turn<F>(
        &mut self,
        input: &mut &[u8],
        scratch: &mut [u8],
        out: &mut [u8],
        run: F,
    ) -> Result<Option<usize>, OutTooSmall>
    where
        F: for<'s> FnOnce(&Call<'_>, &'s mut [u8]) -> Ran<'s>,
    {
        let needed = Self::room_for(scratch.len());
        if out.len() < needed {
            return Err(OutTooSmall { needed });
        }
        let reply = match self.feed(input) {
            None => return Ok(None),
            Some(Received::Ignored(_)) => &[][..],
            Some(Received::Refuse(refused)) => self.refuse(&refused, out)?,
            Some(Received::Run(ticket, call)) => {
                let ran = run(&call, scratch);
                // The room was looked at.
                self.answer(ticket, ran, out).unwrap_or_default()
            }
        };
        Ok(Some(reply.len()))
    }
}

fn longer(error: OutTooSmall) -> OutTooSmall {
    OutTooSmall { needed: error.needed + LINE_EXTRA }
}

/// Why serving ended before the peer's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum ServeError<R, W> {
    /// The receiving half failed.
    Rx(LinkError<R>),
    /// The sending half failed.
    Tx(LinkError<W>),
    /// The buffer of the sending half can never hold a reply.
    TxTooSmall(OutTooSmall),
}

impl<R: fmt::Display, W: fmt::Display> fmt::Display for ServeError<R, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rx(error) => error.fmt(f),
            Self::Tx(error) => error.fmt(f),
            Self::TxTooSmall(error) => write!(
                f,
                "the send buffer is too small for replies: it takes {} bytes, or less scratch",
                error.needed
            ),
        }
    }
}

impl<R, W> core::error::Error for ServeError<R, W>
where
    R: core::error::Error + 'static,
    W: core::error::Error + 'static,
{
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Rx(error) => Some(error),
            Self::Tx(error) => Some(error),
            Self::TxTooSmall(error) => Some(error),
        }
    }
}

/// Answers the calls that come over a blocking link until the peer's end; `run` is the tools.
///
/// Replies are sent when no further call has come whole, or when there is no room for another.
/// While a tool runs, nothing is received: what comes waits in the transport. Before another link
/// is served with the same executor, call [`Executor::link_down`].
///
/// # Errors
/// A half of the link failed, or is too small. After an error of the transport, calling again goes
/// on where it stopped.
pub fn serve<R, W, RB, WB, A, F, const CALLS: usize, const ID: usize>(
    rx: &mut blocking::Rx<R, RB>,
    tx: &mut blocking::Tx<W, WB>,
    executor: &mut Executor<A, CALLS, ID>,
    scratch: &mut [u8],
    mut run: F,
) -> Result<(), ServeError<R::Error, W::Error>>
where
    R: embedded_io::Read,
    W: embedded_io::Write,
    RB: AsRef<[u8]> + AsMut<[u8]>,
    WB: AsRef<[u8]> + AsMut<[u8]>,
    A: Admissions,
    F: for<'s> FnMut(&Call<'_>, &'s mut [u8]) -> Ran<'s>,
{
    let needed = Executor::<A, CALLS, ID>::room_for(scratch.len());
    loop {
        if tx.space().len() < needed {
            tx.flush().map_err(ServeError::Tx)?;
        }
        let Some(mut window) = rx.next() else {
            tx.flush().map_err(ServeError::Tx)?;
            match rx.wait().map_err(ServeError::Rx)? {
                Wake::Bytes => continue,
                Wake::End => return Ok(()),
            }
        };
        let replied = executor.turn(&mut window.rest, scratch, tx.space(), &mut run);
        drop(window);
        if let Some(len) = replied.map_err(ServeError::TxTooSmall)? {
            tx.filled(len);
        }
    }
}

#[cfg(feature = "async")]
pub use self::with_async::serve_async;

#[cfg(feature = "async")]
mod with_async {
    use core::future::{pending, poll_fn};
    use core::pin::pin;
    use core::task::Poll;

    use super::*;
    use crate::asynch;

    /// Answers the calls that come over an async link until the peer's end; `run` is the tools.
    ///
    /// Replies are sent while the next calls are received. While a tool runs neither goes on: what
    /// comes waits in the transport. Before another link is served with the same executor, call
    /// [`Executor::link_down`].
    ///
    /// ```
    /// # use triwire::channel::admission::{Admission, Table};
    /// # use triwire::channel::bounds::Bounds;
    /// use triwire_embedded::asynch::{Rx, Tx};
    /// use triwire_embedded::channel::{Executor, observed, serve_async};
    ///
    /// # async fn measure() -> Option<i64> { None }
    /// # let uart_rx = &b"{\"v\":1,\"callId\":\"a\",\"tool\":\"read\",\"descriptorId\":\"board\",\"boundsEcho\":{}}\n"[..];
    /// # let mut wire = [0; 256];
    /// # let uart_tx = &mut wire[..];
    /// # let admissions = Table::new([Admission::new("board", "read", Bounds::EMPTY)]);
    /// let mut executor = Executor::<_, 1>::new(admissions, 255);
    /// let mut rx = Rx::new(uart_rx, [0; 256]);
    /// let mut tx = Tx::new(uart_tx, [0; 1024]);
    /// let mut scratch = [0; 128];
    ///
    /// # embassy_futures::block_on(async {
    /// serve_async(&mut rx, &mut tx, &mut executor, &mut scratch, async |_, scratch| {
    ///     let celsius = measure().await.ok_or("the sensor does not answer")?;
    ///     observed(scratch, |object| {
    ///         object.name("celsius");
    ///         object.signed(celsius);
    ///     })
    /// })
    /// .await
    /// # })?;
    /// # drop(tx);
    /// # let expected = br#"{"v":1,"callId":"a","ok":false,"refused":"exec-threw""#;
    /// # assert!(wire.starts_with(expected));
    /// # Ok::<(), Box<dyn core::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A half of the link failed, or is too small. After an error of the transport, calling again
    /// goes on where it stopped.
    ///
    /// # Cancel safety
    /// Cancel safe where [`Rx::wait`](asynch::Rx::wait) and [`Tx::flush`](asynch::Tx::flush) are,
    /// the tool apart: when it is dropped while a tool runs, the tool is, and the next call of this
    /// function answers its call `exec-threw`.
    // rule: CHAN-115
    pub async fn serve_async<R, W, RB, WB, A, F, const CALLS: usize, const ID: usize>(
        rx: &mut asynch::Rx<R, RB>,
        tx: &mut asynch::Tx<W, WB>,
        executor: &mut Executor<A, CALLS, ID>,
        scratch: &mut [u8],
        mut run: F,
    ) -> Result<(), ServeError<R::Error, W::Error>>
    where
        R: embedded_io_async::Read,
        W: embedded_io_async::Write,
        RB: AsRef<[u8]> + AsMut<[u8]>,
        WB: AsRef<[u8]> + AsMut<[u8]>,
        A: Admissions,
        F: for<'c, 's> AsyncFnMut(&'c Call<'c>, &'s mut [u8]) -> Ran<'s>,
    {
        let needed = Executor::<A, CALLS, ID>::room_for(scratch.len());
        let mut ended = false;
        loop {
            let mut is_idle = false;
            while tx.space().len() >= needed && !is_idle {
                if let Some(ticket) = executor.dropped.take() {
                    let lost = Err("the tool was dropped before it was done");
                    let len = executor.answer(ticket, lost, tx.space()).unwrap_or_default().len();
                    tx.filled(len);
                    continue;
                }
                let Some(mut window) = rx.next() else {
                    is_idle = true;
                    continue;
                };
                let len = match executor.feed(&mut window.rest) {
                    None | Some(Received::Ignored(_)) => 0,
                    Some(Received::Refuse(refused)) => {
                        executor.refuse(&refused, tx.space()).map_err(ServeError::TxTooSmall)?.len()
                    }
                    Some(Received::Run(ticket, call)) => {
                        executor.dropped = Some(ticket);
                        let ran = run(&call, scratch).await;
                        let Some(ticket) = executor.dropped.take() else { continue };
                        // The room was looked at.
                        executor.answer(ticket, ran, tx.space()).unwrap_or_default().len()
                    }
                };
                tx.filled(len);
            }
            if ended && is_idle {
                return tx.flush().await.map_err(ServeError::Tx);
            }
            if !is_idle && tx.is_flushed() {
                return Err(ServeError::TxTooSmall(OutTooSmall { needed }));
            }
            let (is_flushed, has_ended) = (tx.is_flushed(), ended);
            let mut wait =
                pin!(async { if has_ended { pending().await } else { rx.wait().await } });
            let mut flush =
                pin!(async { if is_flushed { pending().await } else { tx.flush().await } });
            ended |= poll_fn(|cx| match wait.as_mut().poll(cx) {
                Poll::Ready(woken) => {
                    Poll::Ready(woken.map(|wake| wake == Wake::End).map_err(ServeError::Rx))
                }
                Poll::Pending => flush.as_mut().poll(cx).map_ok(|()| false).map_err(ServeError::Tx),
            })
            .await?;
        }
    }
}
