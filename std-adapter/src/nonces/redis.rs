use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Pipeline, RedisError, RedisResult, Value};
use triwire::signed::{Claim, Claimed};
use triwire::time::UnixMillis;

use super::link::{Entry, Link, Outcome, Server, agree};
use super::{CLAIM_LIMIT, Cause, Nonces, OpenError, Unavailable, in_time};
use crate::clock;

/// What stands before a claim's name in the key that it is kept under.
const DEFAULT_PREFIX: &str = "triwire:nonce:";

/// Commands that may wait for the one socket.
const QUEUE: usize = 1024;

/// Nonces on a Valkey or Redis server, version 6.2 or later, shared by any number of verifiers.
///
/// A claim is one `SET … NX PXAT`; those that wait together are sent together. All share one
/// connection, which is made again when it breaks: the claims that notice are refused, later ones
/// connect. The server expires
/// the entries by its own clock, which must agree with the verifiers' within the slack; that, and
/// that its `maxmemory-policy` is `noeviction`, is looked at when a connection is made and once a
/// minute.
///
/// The server forgets what its persistence has not written: after a crash the last second with
/// `appendfsync everysec`, nothing with `always`, everything without an append-only file. A
/// replica that takes over forgets what had not reached it. What was forgotten and is still in its
/// window can be replayed; where that must not be, use `Postgres` or `Sqlite`.
///
/// TLS is not built in: use a unix socket, loopback or a private network.
///
/// ```no_run
/// use std::time::Duration;
/// use triwire_std::nonces::Redis;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Redis::builder("redis://:password@10.0.0.7")
///     .limit(Duration::from_millis(500))
///     .open()
///     .await?;
/// # Ok(())
/// # }
/// ```
pub struct Redis {
    link: Link<RedisServer>,
}

/// Sets up a [`Redis`].
#[derive(Clone)]
pub struct RedisBuilder {
    url: String,
    prefix: String,
    limit: Duration,
}

impl Redis {
    /// Connects to the server at `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]` or
    /// `redis+unix://PATH`.
    ///
    /// # Errors
    /// As of [`RedisBuilder::open`].
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        Self::builder(url).open().await
    }

    /// Starts to set up a store at an address.
    #[must_use]
    pub fn builder(url: &str) -> RedisBuilder {
        RedisBuilder { url: url.to_owned(), prefix: DEFAULT_PREFIX.to_owned(), limit: CLAIM_LIMIT }
    }
}

impl RedisBuilder {
    /// Sets what stands before each name in its key; `triwire:nonce:` by default. Verifiers that
    /// share a server and a prefix share their nonces.
    #[must_use]
    pub fn prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// Sets how long a claim waits at most, a connection to be made included; 2 s by default.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// [`OpenError`]: the address cannot be used, or the server behind it cannot serve now.
    pub async fn open(self) -> Result<Redis, OpenError> {
        let client = Client::open(self.url);
        let client = client.map_err(|error| OpenError::Address { source: Arc::new(error) })?;
        let link = Link::new(RedisServer { client, prefix: self.prefix }, self.limit);
        link.ready().await?;
        Ok(Redis { link })
    }
}

impl Nonces for Redis {
    async fn claim<'a>(&'a self, claim: Claim<'a>) -> Result<Claimed, Unavailable> {
        in_time(clock::unix_now(), claim)?;
        self.link.claim(claim).await
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").finish_non_exhaustive()
    }
}

impl fmt::Debug for RedisBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBuilder").finish_non_exhaustive()
    }
}

struct RedisServer {
    client: Client,
    prefix: String,
}

impl Server for RedisServer {
    type Connection = MultiplexedConnection;

    async fn connect(&self) -> Result<MultiplexedConnection, Unavailable> {
        // The time limits are the link's.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(QUEUE);
        let connected = self.client.get_multiplexed_async_connection_with_config(&config).await;
        connected.map_err(unavailable)
    }

    async fn check(&self, connection: &MultiplexedConnection) -> Result<(), Unavailable> {
        let mut connection = connection.clone();
        let info: RedisResult<String> =
            redis::cmd("INFO").arg("memory").query_async(&mut connection).await;
        let info = info.map_err(unavailable)?;
        let policy = info.lines().find_map(|line| line.strip_prefix("maxmemory_policy:"));
        if policy.map(str::trim) != Some("noeviction") {
            return Err(Unavailable::new(Cause::Evicts));
        }
        let before = clock::unix_now();
        let time: RedisResult<(u64, u64)> = redis::cmd("TIME").query_async(&mut connection).await;
        let (seconds, micros) = time.map_err(unavailable)?;
        let millis = seconds.saturating_mul(1_000).saturating_add(micros / 1_000);
        agree(before, UnixMillis::new(millis), clock::unix_now())
    }

    async fn claim(&self, connection: &MultiplexedConnection, entries: &[Entry]) -> Vec<Outcome> {
        let mut sets = Pipeline::with_capacity(entries.len());
        for Entry { name, forget_after } in entries {
            // The first millisecond in which the entry may be gone.
            let gone = forget_after.saturating_add(1).get();
            let key = [self.prefix.as_bytes(), name.as_bytes()].concat();
            sets.cmd("SET").arg(key).arg(1).arg("NX").arg("PXAT").arg(gone);
        }
        let mut connection = connection.clone();
        match connection.send_packed_commands(&sets, 0, entries.len()).await {
            Ok(answers) => answers.into_iter().map(outcome).collect(),
            Err(error) => vec![Err(unavailable(error)); entries.len()],
        }
    }
}

fn outcome(answer: Value) -> Outcome {
    match answer.extract_error() {
        Ok(Value::Okay) => Ok(Claimed::Fresh),
        Ok(Value::Nil) => Ok(Claimed::Replayed),
        Ok(_) => Err(Unavailable::with(Cause::Refused, "SET was answered with neither OK nor nil")),
        Err(error) => Err(unavailable(error)),
    }
}

fn unavailable(error: RedisError) -> Unavailable {
    let cause = match error.code() {
        Some("OOM") => Cause::Full,
        _ if error.is_io_error() => Cause::Lost,
        _ => Cause::Refused,
    };
    Unavailable::with(cause, error)
}
