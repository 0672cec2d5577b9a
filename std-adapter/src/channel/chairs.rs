//! The chairs: one executor each, and the calls that are made to it.
//!
//! Whoever brings messages takes a [`Seat`]: a WebSocket here, a serial line elsewhere. Each
//! connection has a broker of its own, so that what waits for a connection ends with it.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use triwire::OutTooSmall;
use triwire::channel::broker::{
    AskError, Broker, CallId, CallKey, DEFAULT_PATIENCE, Event, Link, Request, Slot,
};
use triwire::channel::envelope::MAX_MESSAGE;
use triwire::channel::refusal::{Peer, Refusal};
use triwire::channel::route::PAGE_EXECUTOR;
use triwire::time::Instant;

use super::metrics::{CallEnd, CallMetrics, Tally};
use crate::clock::Clock;
use crate::entropy;
use crate::outcome::Outcome;

/// Whose chair it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Executor {
    /// The page in the local browser.
    Page,
    /// A machine, by the name of its pairing.
    Machine(
        /// The name.
        String,
    ),
}

impl Executor {
    /// Returns the executor that callers name so: `page`, else a machine.
    #[must_use]
    pub fn named(name: &str) -> Self {
        if name == PAGE_EXECUTOR { Self::Page } else { Self::Machine(name.to_owned()) }
    }

    /// Returns what it is, which chooses the words for its absence.
    #[must_use]
    pub const fn peer(&self) -> Peer {
        match self {
            Self::Page => Peer::Page,
            Self::Machine(_) => Peer::Machine,
        }
    }
}

/// What each chair may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Calls in flight; each takes 64 bytes as long as the executor is connected.
    pub calls: usize,
    /// The longest message either way, in bytes.
    pub message: usize,
    /// Bytes of calls that wait for an executor that reads slowly; a call that finds more there
    /// is refused as `too-many-calls`.
    pub outbox: usize,
    /// How long calls wait for their answers.
    pub patience: Duration,
}

impl Default for Limits {
    /// 1024 calls, messages of 1 MiB, 1 MiB that waits, 5 s.
    fn default() -> Self {
        Self { calls: 1024, message: MAX_MESSAGE, outbox: 1 << 20, patience: DEFAULT_PATIENCE }
    }
}

/// All chairs of a server. Clones are the same chairs.
///
/// ```
/// use triwire::channel::broker::Request;
/// use triwire::channel::envelope::{Answer, Call, Object};
/// use triwire_std::channel::{Chairs, Executor, Limits, Outcome};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let chairs = Chairs::new(Limits::default());
/// let board = Executor::Machine("board".into());
/// let mut seat = chairs.sit(board.clone())?; // whoever has a connection to it
///
/// let request = Request::new("board", "read", Object::EMPTY, Object::EMPTY);
/// let asked = chairs.ask(&board, request);
///
/// let message = seat.next().expect("the call, to be sent");
/// let call_id = Call::parse(message.as_bytes(), 64)?.call_id;
/// let outcome = triwire::channel::envelope::Outcome::Observed(Object::parse(r#"{"value":42}"#)?);
/// let mut out = [0; 256];
/// seat.feed(Answer { call_id, outcome }.write(&mut out)?);
///
/// let Outcome::Observed(observed) = asked.await else { panic!() };
/// assert_eq!(observed.as_str(), r#"{"value":42}"#);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Chairs {
    shared: Arc<Shared>,
}

struct Shared {
    taken: RwLock<HashMap<Executor, Arc<Chair>>>,
    limits: Limits,
    clock: Clock,
    pages: Arc<Tally>,
    machines: Arc<Tally>,
}

impl Shared {
    fn tally(&self, peer: Peer) -> &Arc<Tally> {
        match peer {
            Peer::Page => &self.pages,
            Peer::Machine => &self.machines,
        }
    }
}

impl Chairs {
    /// Makes chairs that nobody holds.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let taken = RwLock::default();
        let (pages, machines) = (Arc::default(), Arc::default());
        let shared = Shared { taken, limits, clock: Clock::start(), pages, machines };
        Self { shared: Arc::new(shared) }
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// Takes a chair. Who held it is told `replaced`, and its calls are closed.
    ///
    /// # Errors
    /// The operating system gave no randomness.
    // rule: CHAN-58
    pub fn sit(&self, executor: Executor) -> io::Result<Seat> {
        let mut salt = [0; 8];
        entropy::fill(&mut salt)?;
        let chair = Arc::new(Chair::new(&self.shared, executor.peer(), u64::from_ne_bytes(salt)));
        let mut taken = self.shared.taken.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = taken.insert(executor.clone(), Arc::clone(&chair)) {
            old.close(Some(Refusal::Replaced));
        }
        drop(taken);
        Ok(Seat { chairs: self.clone(), executor, chair })
    }

    /// Takes a chair from who holds it, if anyone, who is told why.
    pub fn dismiss(&self, executor: &Executor, refusal: Refusal) {
        let mut taken = self.shared.taken.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = taken.remove(executor) {
            old.close(Some(refusal));
        }
    }

    fn look<T>(&self, executor: &Executor, look: impl FnOnce(&Arc<Chair>) -> T) -> Option<T> {
        let taken = self.shared.taken.read().unwrap_or_else(PoisonError::into_inner);
        taken.get(executor).map(look)
    }

    /// Makes a call: it is on its way when this returns, and the future is its outcome, which
    /// comes whatever becomes of the executor.
    ///
    /// # Cancel safety
    /// Dropping the future gives the call up and frees its slot; an executor that has it may
    /// still carry it out.
    pub fn ask(&self, executor: &Executor, request: Request<'_>) -> Ask {
        self.look(executor, |chair| chair.ask(request)).unwrap_or_else(|| {
            let peer = executor.peer();
            Ask::settled(self.shared.tally(peer), peer.not_connected())
        })
    }

    /// Lists the executors that are connected.
    #[must_use]
    pub fn seated(&self) -> Vec<Executor> {
        let taken = self.shared.taken.read().unwrap_or_else(PoisonError::into_inner);
        taken.keys().cloned().collect()
    }

    /// Returns the figures of pages and of machines. They are read one after the other, while
    /// calls run: sums of several may be off by what happened in between.
    #[must_use]
    pub fn metrics(&self) -> [CallMetrics; 2] {
        let taken = self.shared.taken.read().unwrap_or_else(PoisonError::into_inner);
        [Peer::Page, Peer::Machine].map(|peer| {
            let chairs = taken.iter().filter(|(executor, _)| executor.peer() == peer);
            let (seated, in_flight) = chairs.fold((0, 0), |(seated, in_flight), (_, chair)| {
                (seated + 1, in_flight + chair.lock().broker.waiting() as u64)
            });
            self.shared.tally(peer).read(peer, seated, in_flight)
        })
    }

    /// Returns how many calls an executor has in flight.
    #[must_use]
    pub fn in_flight(&self, executor: &Executor) -> usize {
        self.look(executor, |chair| chair.lock().broker.waiting()).unwrap_or_default()
    }

    /// Returns how many messages of the executor that is connected now settled nothing.
    #[must_use]
    pub fn ignored(&self, executor: &Executor) -> u64 {
        self.look(executor, |chair| chair.lock().broker.ignored()).unwrap_or_default()
    }
}

impl fmt::Debug for Chairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chairs").field("seated", &self.seated()).finish_non_exhaustive()
    }
}

/// One connection's calls.
struct Chair {
    state: Mutex<State>,
    /// Something is to be sent, an earlier deadline, or the end.
    changed: Notify,
    clock: Clock,
    limits: Limits,
}

struct State {
    broker: Broker<Box<[Slot]>>,
    link: Link,
    waiters: Box<[Option<Waiter>]>,
    outbox: VecDeque<(CallKey, String)>,
    /// Bytes in the outbox.
    queued: usize,
    /// Where calls are written first.
    room: Vec<u8>,
    end: Option<Refusal>,
    tally: Arc<Tally>,
}

struct Waiter {
    call: CallKey,
    tell: oneshot::Sender<Outcome>,
}

impl State {
    fn settle(&mut self, call: CallKey, end: CallEnd, outcome: Outcome) {
        let waiter = self.waiters.get_mut(call.index());
        if let Some(waiter) = waiter.and_then(|slot| slot.take_if(|waiter| waiter.call == call)) {
            self.tally.ended(end);
            // Who dropped the future does not want it.
            let _ = waiter.tell.send(outcome);
        }
    }

    fn poll(&mut self, now: Instant) {
        while let Some(settled) = self.broker.poll(now) {
            let end = CallEnd::of_refusal(settled.refusal);
            self.settle(settled.call, end, settled.refusal.into());
        }
    }

    fn waits(&self, call: CallKey) -> bool {
        let waiter = self.waiters.get(call.index()).and_then(Option::as_ref);
        waiter.is_some_and(|waiter| waiter.call == call)
    }

    /// Makes a call, and puts its message into the outbox.
    fn ask(
        &mut self,
        now: Instant,
        request: Request<'_>,
        limits: &Limits,
    ) -> Result<CallKey, Refusal> {
        loop {
            let error = match self.broker.ask(now, request, &mut self.room) {
                Ok(asked) => {
                    // The writer of envelopes writes texts.
                    let message = String::from_utf8_lossy(asked.message).into_owned();
                    self.queued += message.len();
                    self.outbox.push_back((asked.call, message));
                    return Ok(asked.call);
                }
                Err(error) => error,
            };
            match error {
                AskError::Refused(refusal) => return Err(refusal),
                AskError::PollFirst => self.poll(now),
                AskError::OutTooSmall(OutTooSmall { needed }) if needed <= limits.message => {
                    self.room.resize(needed, 0);
                }
                // rule: CHAN-60
                AskError::OutTooSmall(_) => return Err(Refusal::MalformedCall),
            }
        }
    }
}

impl Chair {
    fn new(shared: &Shared, peer: Peer, salt: u64) -> Self {
        let Shared { limits, clock, .. } = shared;
        let slots = vec![Slot::EMPTY; limits.calls].into_boxed_slice();
        let mut broker = Broker::new(slots, peer, salt)
            .with_patience(limits.patience)
            .with_limit(limits.message);
        let link = broker.link_up(clock.now());
        let state = State {
            broker,
            link,
            waiters: std::iter::repeat_with(|| None).take(limits.calls).collect(),
            outbox: VecDeque::new(),
            queued: 0,
            room: vec![0; 1024],
            end: None,
            tally: Arc::clone(shared.tally(peer)),
        };
        Self { state: Mutex::new(state), changed: Notify::new(), clock: *clock, limits: *limits }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(self: &Arc<Self>, request: Request<'_>) -> Ask {
        let now = self.clock.now();
        let mut state = self.lock();
        // rule: CHAN-59
        if state.broker.connected() && state.queued > self.limits.outbox {
            return Ask::settled(&state.tally, Refusal::TooManyCalls);
        }
        let call = match state.ask(now, request, &self.limits) {
            Ok(call) => call,
            Err(refusal) => return Ask::settled(&state.tally, refusal),
        };
        let (tell, told) = oneshot::channel();
        if let Some(slot) = state.waiters.get_mut(call.index()) {
            *slot = Some(Waiter { call, tell });
        }
        let id = state.broker.call_id(call);
        drop(state);
        self.changed.notify_one();
        Ask(Progress::Waits { chair: Arc::clone(self), call, id, told })
    }

    fn cancel(&self, call: CallKey) {
        let mut state = self.lock();
        state.broker.cancel(call);
        let slot = state.waiters.get_mut(call.index());
        if slot.and_then(|slot| slot.take_if(|waiter| waiter.call == call)).is_some() {
            state.tally.ended(CallEnd::GivenUp);
        }
    }

    /// Ends the connection: its calls are closed, once.
    fn close(&self, refusal: Option<Refusal>) {
        let now = self.clock.now();
        let mut state = self.lock();
        let link = state.link;
        state.broker.link_down(now, link);
        state.poll(now);
        state.outbox.clear();
        state.queued = 0;
        state.end = state.end.or(refusal);
        drop(state);
        self.changed.notify_one();
    }
}

/// A call on its way: a future of its [`Outcome`]. Dropping it gives the call up.
#[must_use = "dropping it gives the call up"]
pub struct Ask(Progress);

enum Progress {
    Settled(Option<Outcome>),
    Waits { chair: Arc<Chair>, call: CallKey, id: CallId, told: oneshot::Receiver<Outcome> },
}

impl Ask {
    fn settled(tally: &Tally, refusal: Refusal) -> Self {
        tally.ended(CallEnd::of_refusal(refusal));
        Self(Progress::Settled(Some(refusal.into())))
    }

    /// Returns the id under which the call travels; `None` when it was refused at once.
    #[must_use]
    pub const fn call_id(&self) -> Option<CallId> {
        match &self.0 {
            Progress::Settled(_) => None,
            Progress::Waits { id, .. } => Some(*id),
        }
    }
}

impl Future for Ask {
    type Output = Outcome;

    /// # Panics
    /// When polled after it was ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let outcome = match &mut self.0 {
            Progress::Settled(outcome) => outcome.take().expect("polled after it was ready"),
            Progress::Waits { told, .. } => match ready!(Pin::new(told).poll(cx)) {
                Ok(outcome) => outcome,
                // Waiters are told before they go.
                Err(_) => Refusal::UnknownRefusal.into(),
            },
        };
        self.0 = Progress::Settled(None);
        Poll::Ready(outcome)
    }
}

impl Drop for Progress {
    // rule: CHAN-28
    fn drop(&mut self) {
        if let Self::Waits { chair, call, .. } = self {
            chair.cancel(*call);
        }
    }
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask").field("call_id", &self.call_id()).finish_non_exhaustive()
    }
}

/// A chair that is held, for whoever moves the messages. Dropping it closes the calls in flight.
///
/// ```text
/// loop: send next() until None · if end() is Some: tell it, leave · wait for a message (feed),
///       changed() or deadline() (poll)
/// ```
pub struct Seat {
    chairs: Chairs,
    executor: Executor,
    chair: Arc<Chair>,
}

impl Seat {
    /// Gives the next message to send. Calls that were given up, or are over, are left out.
    // Not an iterator: more may come after `None`.
    #[allow(clippy::should_implement_trait)]
    // rule: CHAN-61
    pub fn next(&mut self) -> Option<String> {
        let now = self.chair.clock.now();
        let mut state = self.chair.lock();
        state.poll(now);
        loop {
            let (call, message) = state.outbox.pop_front()?;
            state.queued = state.queued.saturating_sub(message.len());
            if state.waits(call) {
                return Some(message);
            }
        }
    }

    /// Takes a message that came.
    pub fn feed(&mut self, message: &[u8]) {
        let now = self.chair.clock.now();
        let mut state = self.chair.lock();
        let link = state.link;
        if let Event::Answered { call, outcome } = state.broker.feed(now, link, message) {
            state.settle(call, CallEnd::of_answer(outcome), Outcome::of(outcome));
        }
    }

    /// Settles the calls whose time is up.
    pub fn poll(&mut self) {
        let now = self.chair.clock.now();
        self.chair.lock().poll(now);
    }

    /// Returns when to [`poll`](Self::poll).
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.chair.lock().broker.deadline()
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.chair.limits
    }

    /// Returns the clock that [`deadline`](Self::deadline) is by.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.chair.clock
    }

    /// Returns why the chair was taken away, once it was: the executor is told, and leaves.
    #[must_use]
    pub fn end(&self) -> Option<Refusal> {
        self.chair.lock().end
    }

    /// Waits until there may be something to send, an earlier deadline or an end.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn changed(&self) {
        self.chair.changed.notified().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let taken = &self.chairs.shared.taken;
        let mut taken = taken.write().unwrap_or_else(PoisonError::into_inner);
        if taken.get(&self.executor).is_some_and(|chair| Arc::ptr_eq(chair, &self.chair)) {
            taken.remove(&self.executor);
        }
        drop(taken);
        self.chair.close(None);
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").field("executor", &self.executor).finish_non_exhaustive()
    }
}
