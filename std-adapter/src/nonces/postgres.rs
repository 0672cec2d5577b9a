use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Config, NoTls, Statement};
use triwire::signed::{Claim, Claimed};
use triwire::time::UnixMillis;

use super::link::{Entry, Link, Outcome, Server, agree};
use super::{CLAIM_LIMIT, Cause, Nonces, OpenError, Unavailable, in_time};
use crate::clock;

/// How often expired entries are deleted unless it is told otherwise.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Entries that one statement deletes at most: no claim waits behind a long one.
const SWEEP_BATCH: i64 = 1_000;

/// Which of the server's advisory locks is held while the table is made.
const TABLE_LOCK: i64 = 0x7472_6977_6972_6531;

/// Whether the table is there, and whether a crash would empty it.
const FIND_TABLE: &str = "select (select relpersistence = 'p' from pg_class \
    where oid = to_regclass('triwire_nonces'))";

const CREATE_TABLE: &str = "create table if not exists triwire_nonces \
    (name text collate \"C\" primary key, forget_after bigint not null); \
    create index if not exists triwire_nonces_forget_after on triwire_nonces (forget_after)";

/// A group of claims, each name of which it answers once.
const CLAIM: &str = "insert into triwire_nonces (name, forget_after) \
    select * from unnest($1::text[], $2::bigint[]) on conflict do nothing returning name";

/// Both clocks must be past the moment: the server's, which all verifiers agree with, and ours, in
/// case the server's has gone astray.
const SWEEP: &str = "delete from triwire_nonces where name in (select name from triwire_nonces \
    where forget_after < least($1, (extract(epoch from clock_timestamp()) * 1000)::bigint) \
    order by forget_after limit $2 for update skip locked)";

const NOW: &str = "select (extract(epoch from clock_timestamp()) * 1000)::bigint";

/// Nonces in a table `triwire_nonces` of a PostgreSQL database, shared by any number of verifiers.
///
/// The table is made when it is not there. Claims are inserted, on conflict do nothing, and those
/// that wait together in one statement, with `synchronous_commit` on whatever the server's default
/// is. All share one connection, which is made again when it breaks: the claims that notice are
/// refused, later ones connect. A task deletes expired entries in batches until the store is
/// dropped.
///
/// The server's clock must agree with the verifiers' within the slack; that is looked at when a
/// connection is made and once a minute. After a crash nothing is forgotten; an asynchronous
/// replica that takes over forgets what had not reached it.
///
/// TLS is not built in: use a unix socket, loopback or a private network. A pooler must pool
/// sessions, not transactions.
///
/// ```no_run
/// use triwire_std::nonces::Postgres;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Postgres::open("postgres://triwire:password@10.0.0.7/gateway").await?;
/// # Ok(())
/// # }
/// ```
pub struct Postgres {
    link: Arc<Link<PostgresServer>>,
    sweeper: JoinHandle<()>,
}

/// Sets up a [`Postgres`].
#[derive(Clone)]
pub struct PostgresBuilder {
    url: String,
    limit: Duration,
    sweep_every: Duration,
}

impl Postgres {
    /// Connects to the database at `postgres://[USER[:PASSWORD]@]HOST[:PORT]/DATABASE`, or at the
    /// words of a connection string (`host=/run/postgresql dbname=gateway`).
    ///
    /// # Errors
    /// As of [`PostgresBuilder::open`].
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        Self::builder(url).open().await
    }

    /// Starts to set up a store in a database.
    #[must_use]
    pub fn builder(url: &str) -> PostgresBuilder {
        PostgresBuilder { url: url.to_owned(), limit: CLAIM_LIMIT, sweep_every: SWEEP_EVERY }
    }
}

impl PostgresBuilder {
    /// Sets how long a claim waits at most, a connection to be made included; 2 s by default.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Sets how often expired entries are deleted; every minute by default.
    #[must_use]
    pub fn sweep_every(mut self, pause: Duration) -> Self {
        self.sweep_every = pause;
        self
    }

    /// Connects, and makes the table when it is not there.
    ///
    /// # Errors
    /// [`OpenError`]: the address cannot be used, or the server behind it cannot serve now.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn open(self) -> Result<Postgres, OpenError> {
        let config: Result<Config, _> = self.url.parse();
        let config = config.map_err(|error| OpenError::Address { source: Arc::new(error) })?;
        let server = PostgresServer { config, limit: self.limit };
        let link = Arc::new(Link::new(server, self.limit));
        link.ready().await?;
        let sweeper = tokio::spawn(sweep(Arc::clone(&link), self.sweep_every));
        Ok(Postgres { link, sweeper })
    }
}

impl Nonces for Postgres {
    async fn claim<'a>(&'a self, claim: Claim<'a>) -> Result<Claimed, Unavailable> {
        in_time(clock::unix_now(), claim)?;
        self.link.claim(claim).await
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.sweeper.abort();
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").finish_non_exhaustive()
    }
}

impl fmt::Debug for PostgresBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresBuilder").finish_non_exhaustive()
    }
}

struct PostgresServer {
    config: Config,
    limit: Duration,
}

/// A connection and what was prepared on it.
struct Ready {
    client: Client,
    claim: Statement,
    sweep: Statement,
}

impl Server for PostgresServer {
    type Connection = Arc<Ready>;

    async fn connect(&self) -> Result<Arc<Ready>, Unavailable> {
        let (client, connection) = self.config.connect(NoTls).await.map_err(unavailable)?;
        // Ends when the last client of the connection is dropped, or the connection breaks, which
        // the clients' next call then says.
        tokio::spawn(async move { drop(connection.await) });
        // What nobody waits for any more need not run on.
        let limit = self.limit.as_millis().clamp(1, i32::MAX as u128);
        let set = format!("set synchronous_commit = on; set statement_timeout = {limit}");
        client.batch_execute(&set).await.map_err(unavailable)?;
        table(&client).await?;
        let claim = client.prepare_typed(CLAIM, &[Type::TEXT_ARRAY, Type::INT8_ARRAY]);
        let claim = claim.await.map_err(unavailable)?;
        let sweep = client.prepare_typed(SWEEP, &[Type::INT8, Type::INT8]);
        let sweep = sweep.await.map_err(unavailable)?;
        Ok(Arc::new(Ready { client, claim, sweep }))
    }

    async fn check(&self, ready: &Arc<Ready>) -> Result<(), Unavailable> {
        let before = clock::unix_now();
        let row = ready.client.query_one(NOW, &[]).await.map_err(unavailable)?;
        let server = UnixMillis::new(u64::try_from(row.get::<_, i64>(0)).unwrap_or(0));
        agree(before, server, clock::unix_now())
    }

    async fn claim(&self, ready: &Arc<Ready>, entries: &[Entry]) -> Vec<Outcome> {
        // Verifiers that insert the same names in different orders would wait for each other.
        let mut order: Vec<usize> = (0..entries.len()).collect();
        order.sort_by_key(|at| &entries[*at].name);
        let names: Vec<&str> = order.iter().map(|at| &*entries[*at].name).collect();
        let time = |at: &usize| i64::try_from(entries[*at].forget_after.get()).unwrap_or(i64::MAX);
        let times: Vec<i64> = order.iter().map(time).collect();
        let inserted = ready.client.query(&ready.claim, &[&names, &times]).await;
        let rows = match inserted {
            Ok(rows) => rows,
            Err(error) => return vec![Err(unavailable(error)); entries.len()],
        };
        // Of two entries of one name the one that came first is the fresh one: the order is stable.
        let mut fresh: HashSet<&str> = rows.iter().map(|row| row.get(0)).collect();
        let mut outcomes = vec![Ok(Claimed::Replayed); entries.len()];
        for (at, name) in order.into_iter().zip(names) {
            if fresh.remove(name) {
                outcomes[at] = Ok(Claimed::Fresh);
            }
        }
        outcomes
    }
}

/// Makes the table, unless it is there: a user who may not make tables can still use it.
async fn table(client: &Client) -> Result<(), Unavailable> {
    let row = client.query_one(FIND_TABLE, &[]).await.map_err(unavailable)?;
    match row.get::<_, Option<bool>>(0) {
        Some(true) => Ok(()),
        Some(false) => Err(Unavailable::with(
            Cause::Refused,
            "the table triwire_nonces is unlogged or temporary, so that a crash would empty it; \
             run `alter table triwire_nonces set logged`",
        )),
        None => {
            // Two verifiers that start at once would break each other's creation.
            let create = format!(
                "begin; select pg_advisory_xact_lock({TABLE_LOCK}); {CREATE_TABLE}; commit"
            );
            client.batch_execute(&create).await.map_err(unavailable)
        }
    }
}

/// Deletes what has expired, a batch at a time, for ever. A failure waits for the next round: the
/// claims say that the server is gone.
async fn sweep(link: Arc<Link<PostgresServer>>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        while let Ok(active) = link.ready().await {
            let now = i64::try_from(clock::unix_now().get()).unwrap_or(i64::MAX);
            let Ready { client, sweep, .. } = &*active.connection;
            match client.execute(sweep, &[&now, &SWEEP_BATCH]).await {
                Ok(rows) if rows == SWEEP_BATCH.unsigned_abs() => {}
                Ok(_) => break,
                Err(_) => {
                    link.drop_connection(active.number);
                    break;
                }
            }
        }
    }
}

fn unavailable(error: tokio_postgres::Error) -> Unavailable {
    let cause = match error.code() {
        Some(code) if *code == SqlState::DISK_FULL => Cause::Full,
        Some(_) => Cause::Refused,
        None => Cause::Lost,
    };
    Unavailable::with(cause, error)
}
