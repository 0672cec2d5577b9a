//! Stores that tell a request seen for the first time from one seen before.
//!
//! Whoever verifies signed requests claims each one's nonce. Of two claims of one nonce exactly
//! one is told [`Fresh`](Claimed::Fresh), however many tasks, threads or (but for [`Memory`])
//! processes claim at once.
//!
//! | store | feature | verifiers | a restart of the verifier | of the store |
//! | --- | --- | --- | --- | --- |
//! | [`Memory`] | `tokio` | one process | forgets: see [`Memory::after_boot`] | the same |
//! | `Sqlite` | `sqlite` | the processes of one machine | forgets nothing | `kill -9` and power loss forget nothing |
//! | `Redis` | `redis` | any number | forgets nothing | as the server's persistence is set up; a failover may forget |
//! | `Postgres` | `postgres` | any number | forgets nothing | forgets nothing; a failover to an asynchronous replica may |
//!
//! A store that is down, slow or full is [`Unavailable`], and the request is refused: nothing live
//! is ever evicted to make room. [`open`] makes a store from one line of a configuration.
//!
//! An entry is kept until the store's own clock is more than
//! [`STORE_CLOCK_SLACK_MS`](triwire::signed::STORE_CLOCK_SLACK_MS) past the end of its request's
//! window. The clocks of verifiers and stores must agree within that: run NTP everywhere.
//!
//! ```
//! use triwire_std::nonces;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = nonces::open("memory:").await?;
//! let no_scheme = nonces::open("/var/lib/nonces").await.unwrap_err();
//! assert!(no_scheme.to_string().contains("sqlite:/var/lib/nonces"));
//! # drop(store);
//! # Ok(())
//! # }
//! ```

mod any;
mod error;
#[cfg(any(feature = "redis", feature = "postgres"))]
mod link;
mod memory;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::sync::Arc;
use std::time::Duration;

pub use triwire::signed::{Claim, Claimed};
use triwire::time::UnixMillis;

pub use self::any::{AnyNonces, open};
pub use self::error::{Cause, OpenError, Unavailable};
pub use self::memory::{BYTES_A_NONCE, Memory};
#[cfg(feature = "postgres")]
pub use self::postgres::{Postgres, PostgresBuilder};
#[cfg(feature = "redis")]
pub use self::redis::{Redis, RedisBuilder};
#[cfg(feature = "sqlite")]
pub use self::sqlite::{Sqlite, SqliteBuilder};

/// Nonces that a store holds unless it is told otherwise.
pub const DEFAULT_CAPACITY: usize = 1_000_000;

/// How long a claim waits for its store unless it is told otherwise.
pub const CLAIM_LIMIT: Duration = Duration::from_secs(2);

/// Refuses a claim that a store would forget at once: two of them would both be fresh.
fn in_time(now: UnixMillis, claim: Claim<'_>) -> Result<(), Unavailable> {
    if claim.forget_after() < now { Err(Unavailable::new(Cause::TooLate)) } else { Ok(()) }
}

/// Where the nonces of accepted requests are kept.
pub trait Nonces: Send + Sync {
    /// Claims a nonce: the first claim of a name is [`Fresh`](Claimed::Fresh), every later one is
    /// [`Replayed`](Claimed::Replayed) until the entry may go.
    ///
    /// A `Fresh` is told only once the entry is as durable as the store makes it.
    ///
    /// # Errors
    /// [`Unavailable`] when the store cannot say. The entry may have been made nonetheless: the
    /// same request sent again may then be `Replayed`, never `Fresh` twice.
    ///
    /// # Cancel safety
    /// A future that is dropped may or may not have claimed; nothing was accepted, and the store
    /// serves the others as before.
    fn claim<'a>(
        &'a self,
        claim: Claim<'a>,
    ) -> impl Future<Output = Result<Claimed, Unavailable>> + Send + 'a;
}

impl<N: Nonces + ?Sized> Nonces for &N {
    fn claim<'a>(
        &'a self,
        claim: Claim<'a>,
    ) -> impl Future<Output = Result<Claimed, Unavailable>> + Send + 'a {
        N::claim(self, claim)
    }
}

impl<N: Nonces + ?Sized> Nonces for Arc<N> {
    fn claim<'a>(
        &'a self,
        claim: Claim<'a>,
    ) -> impl Future<Output = Result<Claimed, Unavailable>> + Send + 'a {
        N::claim(self, claim)
    }
}
