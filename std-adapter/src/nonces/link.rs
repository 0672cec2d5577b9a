//! One connection to a store's server, shared by all claims and made again when it breaks.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::timeout_at;
use triwire::signed::{Claim, Claimed, STORE_CLOCK_SLACK_MS};
use triwire::time::{Instant, UnixMillis};

use super::{Cause, Unavailable};
use crate::clock::Clock;

/// How long a server that was fit to keep nonces is taken to be so still.
const CHECK_EVERY: Duration = Duration::from_secs(60);

/// What a store's server is asked for.
pub(super) trait Server: Send + Sync {
    type Connection: Clone + Send;

    fn connect(&self) -> impl Future<Output = Result<Self::Connection, Unavailable>> + Send;

    /// Finds out whether the server is fit to keep nonces.
    fn check(
        &self,
        connection: &Self::Connection,
    ) -> impl Future<Output = Result<(), Unavailable>> + Send;

    fn claim(
        &self,
        connection: Self::Connection,
        claim: Claim<'_>,
    ) -> impl Future<Output = Result<Claimed, Unavailable>> + Send;
}

/// The shared connection.
pub(super) struct Link<S: Server> {
    pub(super) server: S,
    limit: Duration,
    clock: Clock,
    made: Mutex<Made<S::Connection>>,
    /// Held by the one that connects or checks.
    making: tokio::sync::Mutex<()>,
}

struct Made<C> {
    connection: Option<C>,
    /// Which of all connections it is, so that an old one's failure does not end a new one.
    number: u64,
    checked: Instant,
}

impl<S: Server> Link<S> {
    pub(super) fn new(server: S, limit: Duration) -> Self {
        let made = Made { connection: None, number: 0, checked: Instant::ZERO };
        let clock = Clock::start();
        Self { server, limit, clock, made: Mutex::new(made), making: tokio::sync::Mutex::new(()) }
    }

    /// Returns the connection and its number; makes one when there is none.
    pub(super) async fn ready(&self) -> Result<(u64, S::Connection), Unavailable> {
        self.within(self.deadline(), self.connection()).await
    }

    pub(super) async fn claim(&self, claim: Claim<'_>) -> Result<Claimed, Unavailable> {
        let deadline = self.deadline();
        let (number, connection) = self.within(deadline, self.connection()).await?;
        let claimed = self.within(deadline, self.server.claim(connection, claim)).await;
        if claimed.as_ref().is_err_and(|error| error.cause() != Cause::Full) {
            self.drop_connection(number);
        }
        claimed
    }

    async fn connection(&self) -> Result<(u64, S::Connection), Unavailable> {
        if let Some((number, connection)) = self.current() {
            // One claim looks; the others do not wait for it.
            if self.is_stale()
                && let Ok(_making) = self.making.try_lock()
            {
                if let Err(unfit) = self.server.check(&connection).await {
                    self.drop_connection(number);
                    return Err(unfit);
                }
                self.lock().checked = self.clock.now();
            }
            return Ok((number, connection));
        }
        let _making = self.making.lock().await;
        // Another claim may have made it meanwhile.
        if let Some(current) = self.current() {
            return Ok(current);
        }
        let connection = self.server.connect().await?;
        self.server.check(&connection).await?;
        let mut made = self.lock();
        made.number += 1;
        made.checked = self.clock.now();
        made.connection = Some(connection.clone());
        Ok((made.number, connection))
    }

    /// Ends a connection, unless it has been replaced already.
    pub(super) fn drop_connection(&self, number: u64) {
        let mut made = self.lock();
        if made.number == number {
            made.connection = None;
        }
    }

    fn current(&self) -> Option<(u64, S::Connection)> {
        let made = self.lock();
        made.connection.clone().map(|connection| (made.number, connection))
    }

    fn is_stale(&self) -> bool {
        self.clock.now().saturating_since(self.lock().checked) >= CHECK_EVERY
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
