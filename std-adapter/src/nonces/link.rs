//! One connection to a store's server, shared by all claims and made again when it breaks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{timeout, timeout_at};
use triwire::signed::{Claim, Claimed, STORE_CLOCK_SLACK_MS};
use triwire::time::{Instant, UnixMillis};

use super::{Cause, Unavailable};
use crate::clock::Clock;

/// How long a server that was fit to keep nonces is taken to be so still.
const CHECK_EVERY: Duration = Duration::from_secs(60);

/// Claims that go to the server together at most, and that wait for their turn: further ones wait
/// for a place.
const GROUP: usize = 1024;

/// Whether an entry was made, or why the store cannot say.
pub(super) type Outcome = Result<Claimed, Unavailable>;

/// An entry to be made.
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) forget_after: UnixMillis,
}

/// What a store's server is asked for.
pub(super) trait Server: Send + Sync + 'static {
    type Connection: Clone + Send + Sync + 'static;

    fn connect(&self) -> impl Future<Output = Result<Self::Connection, Unavailable>> + Send;

    /// Finds out whether the server is fit to keep nonces.
    fn check(
        &self,
        connection: &Self::Connection,
    ) -> impl Future<Output = Result<(), Unavailable>> + Send;

    /// Makes entries, those of one name in their order; one outcome for each.
    fn claim(
        &self,
        connection: &Self::Connection,
        entries: &[Entry],
    ) -> impl Future<Output = Vec<Outcome>> + Send;
}

/// The shared connection.
pub(super) struct Link<S: Server> {
    server: Arc<S>,
    limit: Duration,
    clock: Clock,
    made: Mutex<Made<S::Connection>>,
    /// Held by the one that connects or checks.
    making: tokio::sync::Mutex<()>,
    /// Claims that wait for the server: the only one goes to it by itself, without the task's
    /// detour.
    outstanding: AtomicUsize,
}

struct Made<C> {
    active: Option<Arc<Active<C>>>,
    /// Which of all connections it is, so that an old one's failure does not end a new one.
    number: u64,
    checked: Instant,
}

/// A connection, and the way to the task that claims on it for those that wait together.
pub(super) struct Active<C> {
    pub(super) number: u64,
    pub(super) connection: C,
    waiting: mpsc::Sender<Waiting>,
}

struct Waiting {
    entry: Entry,
    answer: oneshot::Sender<Outcome>,
}

impl<S: Server> Link<S> {
    pub(super) fn new(server: S, limit: Duration) -> Self {
        Self {
            server: Arc::new(server),
            limit,
            clock: Clock::start(),
            made: Mutex::new(Made { active: None, number: 0, checked: Instant::ZERO }),
            making: tokio::sync::Mutex::new(()),
            outstanding: AtomicUsize::new(0),
        }
    }

    /// Returns the connection; makes one when there is none.
    pub(super) async fn ready(&self) -> Result<Arc<Active<S::Connection>>, Unavailable> {
        self.within(self.deadline(), self.active()).await
    }

    pub(super) async fn claim(&self, claim: Claim<'_>) -> Outcome {
        let deadline = self.deadline();
        let active = self.within(deadline, self.active()).await?;
        let entry = Entry { name: claim.to_string(), forget_after: claim.forget_after() };
        let outcome = self.within(deadline, self.claim_on(&active, entry)).await;
        if outcome.as_ref().is_err_and(|error| error.cause() != Cause::Full) {
            self.drop_connection(active.number);
        }
        outcome
    }

    async fn claim_on(&self, active: &Active<S::Connection>, entry: Entry) -> Outcome {
        let lost = || Unavailable::new(Cause::Lost);
        let counted = Counted::new(&self.outstanding);
        if counted.is_alone {
            let outcomes = self.server.claim(&active.connection, &[entry]).await;
            return outcomes.into_iter().next().unwrap_or_else(|| Err(lost()));
        }
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting { entry, answer };
        active.waiting.send(waiting).await.map_err(|_| lost())?;
        answered.await.unwrap_or_else(|_| Err(lost()))
    }

    async fn active(&self) -> Result<Arc<Active<S::Connection>>, Unavailable> {
        if let Some((active, checked)) = self.current() {
            // One claim looks; the others do not wait for it.
            if self.clock.now().saturating_since(checked) >= CHECK_EVERY
                && let Ok(_making) = self.making.try_lock()
            {
                if let Err(unfit) = self.server.check(&active.connection).await {
                    self.drop_connection(active.number);
                    return Err(unfit);
                }
                self.lock().checked = self.clock.now();
            }
            return Ok(active);
        }
        let _making = self.making.lock().await;
        // Another claim may have made it meanwhile.
        if let Some((active, _)) = self.current() {
            return Ok(active);
        }
        let connection = self.server.connect().await?;
        self.server.check(&connection).await?;
        let (waiting, claims) = mpsc::channel(GROUP);
        let server = Arc::clone(&self.server);
        tokio::spawn(claim_groups(server, self.limit, connection.clone(), claims));
        let mut made = self.lock();
        made.number += 1;
        made.checked = self.clock.now();
        let active = Arc::new(Active { number: made.number, connection, waiting });
        made.active = Some(Arc::clone(&active));
        Ok(active)
    }

    /// Ends a connection, unless it has been replaced already.
    pub(super) fn drop_connection(&self, number: u64) {
        let mut made = self.lock();
        if made.number == number {
            made.active = None;
        }
    }

    /// The connection, and when it was looked at.
    fn current(&self) -> Option<(Arc<Active<S::Connection>>, Instant)> {
        let made = self.lock();
        made.active.as_ref().map(|active| (Arc::clone(active), made.checked))
    }

    fn deadline(&self) -> Instant {
        self.clock.now().saturating_add(self.limit)
    }

    async fn within<T>(
        &self,
        deadline: Instant,
        answer: impl Future<Output = Result<T, Unavailable>>,
    ) -> Result<T, Unavailable> {
        let slow = Unavailable::new(Cause::Slow { after: self.limit });
        timeout_at(self.clock.to_tokio(deadline), answer).await.unwrap_or(Err(slow))
    }

    fn lock(&self) -> MutexGuard<'_, Made<S::Connection>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of the claims that wait, until it is dropped.
struct Counted<'c> {
    count: &'c AtomicUsize,
    is_alone: bool,
}

impl<'c> Counted<'c> {
    fn new(count: &'c AtomicUsize) -> Self {
        Self { count, is_alone: count.fetch_add(1, Ordering::Relaxed) == 0 }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Claims what waits, a group at a time, until nobody can ask any more, or a group has waited for
/// its answer so long that no claim of it waits still.
async fn claim_groups<S: Server>(
    server: Arc<S>,
    limit: Duration,
    connection: S::Connection,
    mut claims: mpsc::Receiver<Waiting>,
) {
    let mut group = Vec::new();
    while claims.recv_many(&mut group, GROUP).await > 0 {
        // A claim whose future was dropped before its turn is not made.
        let group = group.drain(..).filter(|waiting: &Waiting| !waiting.answer.is_closed());
        let (entries, answers): (Vec<_>, Vec<_>) =
            group.map(|waiting| (waiting.entry, waiting.answer)).unzip();
        let Ok(outcomes) = timeout(limit, server.claim(&connection, &entries)).await else {
            return;
        };
        for (answer, outcome) in answers.into_iter().zip(outcomes) {
            // Nobody waits for the answer of a future that was dropped meanwhile.
            drop(answer.send(outcome));
        }
        // Those who were answered may ask again at once: then they go together once more.
        tokio::task::yield_now().await;
    }
}

/// Refuses a server whose clock is further from ours than a store's may be; `before` and `after`
/// are ours when it was asked and when it had answered.
pub(super) fn agree(
    before: UnixMillis,
    server: UnixMillis,
    after: UnixMillis,
) -> Result<(), Unavailable> {
    let near = server.get().clamp(before.get(), after.get().max(before.get()));
    if server.get().abs_diff(near) <= STORE_CLOCK_SLACK_MS {
        return Ok(());
    }
    let ahead_ms = i64::try_from(i128::from(server.get()) - i128::from(near)).unwrap_or(i64::MAX);
    Err(Unavailable::new(Cause::Clock { ahead_ms }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_clock_may_be_off_by_the_slack_and_no_more() {
        let (before, after) = (UnixMillis::new(1_000_000), UnixMillis::new(1_000_500));
        let agree = |server| agree(before, UnixMillis::new(server), after);
        for near in [1_000_000, 1_000_250, 1_060_500, 940_000] {
            assert!(agree(near).is_ok(), "{near}");
        }
        let cause = |server| agree(server).unwrap_err().cause();
        assert_eq!(cause(1_060_501), Cause::Clock { ahead_ms: 60_001 });
        assert_eq!(cause(939_999), Cause::Clock { ahead_ms: -60_001 });
        assert_eq!(cause(u64::MAX), Cause::Clock { ahead_ms: i64::MAX });
    }
}
