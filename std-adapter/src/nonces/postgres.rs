use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Config, NoTls, Statement};
use triwire::signed::{Claim, Claimed};
use triwire::time::UnixMillis;

use super::link::{Link, Server, agree};
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

/// Claims that one statement makes at most.
const GROUP: usize = 1024;

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

/// A connection, and the way to the task that claims on it.
struct Ready {
    client: Arc<Client>,
    sweep: Statement,
    waiting: mpsc::Sender<Waiting>,
}

/// A claim that waits for its statement.
struct Waiting {
    name: String,
    forget_after: i64,
    answer: oneshot::Sender<Result<Claimed, Unavailable>>,
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
        let client = Arc::new(client);
        let (waiting, claims) = mpsc::channel(GROUP);
        tokio::spawn(claim_groups(Arc::clone(&client), claim, claims));
        Ok(Arc::new(Ready { client, sweep, waiting }))
    }

    async fn check(&self, ready: &Arc<Ready>) -> Result<(), Unavailable> {
        let before = clock::unix_now();
        let row = ready.client.query_one(NOW, &[]).await.map_err(unavailable)?;
        let server = UnixMillis::new(u64::try_from(row.get::<_, i64>(0)).unwrap_or(0));
        agree(before, server, clock::unix_now())
    }

    async fn claim(&self, ready: Arc<Ready>, claim: Claim<'_>) -> Result<Claimed, Unavailable> {
        let forget_after = i64::try_from(claim.forget_after().get());
        let forget_after = forget_after.map_err(|_| Unavailable::new(Cause::TooLate))?;
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting { name: claim.to_string(), forget_after, answer };
        let lost = || Unavailable::new(Cause::Lost);
        ready.waiting.send(waiting).await.map_err(|_| lost())?;
        answered.await.unwrap_or_else(|_| Err(lost()))
    }
}

/// Claims what waits, a group at a time, until nobody can ask any more.
async fn claim_groups(
    client: Arc<Client>,
    statement: Statement,
    mut claims: mpsc::Receiver<Waiting>,
) {
    let mut group = Vec::new();
    while claims.recv_many(&mut group, GROUP).await > 0 {
        // A claim whose future was dropped before its turn is not made.
        group.retain(|waiting: &Waiting| !waiting.answer.is_closed());
        // Verifiers that insert the same names in different orders would wait for each other. Of
        // two claims of one name the one that came first stays first.
        group.sort_by(|one, other| one.name.cmp(&other.name));
        let inserted = {
            let names: Vec<&str> = group.iter().map(|waiting| &*waiting.name).collect();
            let times: Vec<i64> = group.iter().map(|waiting| waiting.forget_after).collect();
            client.query(&statement, &[&names, &times]).await
        };
        // Nobody waits any more for the answer of a future that was dropped meanwhile.
        match inserted {
            Ok(rows) => {
                let mut fresh: HashSet<&str> = rows.iter().map(|row| row.get(0)).collect();
                for Waiting { name, answer, .. } in group.drain(..) {
                    let is_fresh = fresh.remove(&*name);
                    let claimed = if is_fresh { Claimed::Fresh } else { Claimed::Replayed };
                    drop(answer.send(Ok(claimed)));
                }
            }
            Err(error) => {
                let unavailable = unavailable(error);
                for waiting in group.drain(..) {
                    drop(waiting.answer.send(Err(unavailable.clone())));
                }
            }
        }
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
        while let Ok((number, ready)) = link.ready().await {
            let now = i64::try_from(clock::unix_now().get()).unwrap_or(i64::MAX);
            match ready.client.execute(&ready.sweep, &[&now, &SWEEP_BATCH]).await {
                Ok(rows) if rows == SWEEP_BATCH.unsigned_abs() => {}
                Ok(_) => break,
                Err(_) => {
                    link.drop_connection(number);
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
