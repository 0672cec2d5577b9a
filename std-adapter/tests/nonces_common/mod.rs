//! Claims, the four stores, and a wire between a store and its server that can be cut and stalled.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use triwire::signed::{
    Claimed, Genuine, Key, KeyId, MAX_HEADER_LENGTH, Nonce, Presented, SIGNATURE_WINDOW_SECONDS,
    Target, Window, sign,
};
use triwire::time::UnixMillis;
use triwire_std::clock::unix_now;
use triwire_std::nonces::{AnyNonces, Cause, Memory, Nonces, Postgres, Redis, Sqlite, Unavailable};

/// A genuine request of `key_id` that is in time up to `expires`, in Unix seconds.
pub fn genuine_until(key_id: &str, nonce: &str, expires: u64) -> Genuine {
    let key = Key::new(&[7; 32]).unwrap();
    let target = Target::new("POST", "shop.example", "/").unwrap();
    let signed_at = UnixMillis::new((expires - u64::from(SIGNATURE_WINDOW_SECONDS)) * 1_000);
    let (key_id, nonce) = (KeyId::parse(key_id).unwrap(), Nonce::parse(nonce).unwrap());
    let mut out = [0; MAX_HEADER_LENGTH];
    let header = sign(signed_at, key_id, &key, target, nonce, b"", &mut out).unwrap();
    let timely = Presented::parse([header.as_bytes()]).unwrap();
    let timely = timely.check(signed_at, Window::default()).unwrap();
    timely.with(target, &key).finish(signed_at).unwrap()
}

/// A genuine request signed now.
pub fn genuine(nonce: &str) -> Genuine {
    genuine_until("shop.1", nonce, unix_seconds() + u64::from(SIGNATURE_WINDOW_SECONDS))
}

pub fn unix_seconds() -> u64 {
    unix_now().get() / 1_000
}

pub async fn claim(store: &impl Nonces, nonce: &str) -> Result<Claimed, Unavailable> {
    store.claim(genuine(nonce).claim()).await
}

pub async fn cause(store: &impl Nonces, nonce: &str) -> Cause {
    claim(store, nonce).await.unwrap_err().cause()
}

/// A name of this process's own.
pub fn unique() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("t{}_{count}", std::process::id())
}

/// Asks until the store can say; every answer before that must be `Unavailable`.
pub async fn claim_in_the_end(store: &impl Nonces, nonce: &str) -> Claimed {
    let asking = async {
        loop {
            match claim(store, nonce).await {
                Ok(claimed) => return claimed,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), asking).await.expect("it never came back")
}

/// The address of a server that `tests/stores` started.
fn address(variable: &str) -> String {
    env::var(variable).unwrap_or_else(|_| {
        panic!(
            "{variable} names no server: these tests need a Redis and a PostgreSQL server, which \
             `tests/run stores` installs and starts"
        )
    })
}

pub fn redis_url() -> String {
    address("TRIWIRE_REDIS")
}

pub fn redis_socket() -> PathBuf {
    redis_url().strip_prefix("redis+unix://").expect("a unix socket").into()
}

pub fn postgres_url() -> String {
    address("TRIWIRE_POSTGRES")
}

pub fn postgres_socket() -> PathBuf {
    Path::new(&address("TRIWIRE_STORES")).join("postgres/.s.PGSQL.5432")
}

/// A folder that goes with the test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        let path = env::temp_dir().join(format!("triwire-nonces-{}", unique()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub fn file(&self) -> PathBuf {
        self.0.join("nonces")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Memory,
    Sqlite,
    Redis,
    Postgres,
}

/// A place for nonces of the test's own, which any number of stores may open.
pub struct Place {
    pub kind: Kind,
    /// The file, the prefix or the schema.
    pub name: String,
    pub limit: Duration,
    folder: Option<Folder>,
}

impl Place {
    pub async fn new(kind: Kind) -> Self {
        let (mut name, mut folder) = (unique(), None);
        match kind {
            Kind::Memory => {}
            Kind::Redis => drop(redis_url()),
            Kind::Sqlite => {
                let own = Folder::new();
                name = own.file().to_str().unwrap().to_owned();
                folder = Some(own);
            }
            Kind::Postgres => {
                sql(&format!("drop schema if exists {name} cascade; create schema {name}")).await;
            }
        }
        Self { kind, name, limit: Duration::from_secs(10), folder }
    }

    /// One that another process made.
    pub fn of(kind: Kind, name: String) -> Self {
        Self { kind, name, limit: Duration::from_secs(10), folder: None }
    }

    pub async fn open(&self) -> AnyNonces {
        self.open_at(None).await
    }

    /// Opens the store through a wire, where it has a server.
    pub async fn open_at(&self, wire: Option<&Wire>) -> AnyNonces {
        match self.kind {
            Kind::Memory => AnyNonces::new(Memory::with_capacity(100_000)),
            Kind::Sqlite => {
                AnyNonces::new(Sqlite::builder(&self.name).limit(self.limit).open().await.unwrap())
            }
            Kind::Redis => {
                let url = wire.map_or_else(redis_url, |wire| format!("redis://{}", wire.address));
                let builder = Redis::builder(&url).prefix(&self.name).limit(self.limit);
                AnyNonces::new(builder.open().await.unwrap())
            }
            Kind::Postgres => {
                let url = self.postgres_url(wire);
                let builder = Postgres::builder(&url).limit(self.limit);
                AnyNonces::new(builder.sweep_every(Duration::from_millis(50)).open().await.unwrap())
            }
        }
    }

    /// The database with the place's schema before the server's own functions.
    pub fn postgres_url(&self, wire: Option<&Wire>) -> String {
        let base = wire.map_or_else(postgres_url, |wire| {
            format!("postgres://triwire@{}/postgres", wire.address)
        });
        format!("{base}?options=-csearch_path%3D{},pg_catalog", self.name)
    }

    /// How many entries the server or the file holds.
    pub async fn entries(&self) -> usize {
        match self.kind {
            Kind::Memory => unreachable!("it has no entries that one could count"),
            Kind::Sqlite => {
                let file = rusqlite::Connection::open(&self.name).unwrap();
                let count = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
                let rows = file.query_row("select count(*) from nonces", [], count).unwrap();
                usize::try_from(rows).unwrap()
            }
            Kind::Redis => {
                let found: Vec<String> =
                    redis_command(&["KEYS", &format!("{}*", self.name)]).await.unwrap();
                found.len()
            }
            Kind::Postgres => {
                let count = format!("select count(*) from {}.triwire_nonces", self.name);
                let rows = postgres().await.query_one_scalar::<i64, _>(&count, &[]).await.unwrap();
                usize::try_from(rows).unwrap()
            }
        }
    }
}

pub async fn redis_command<T: redis::FromRedisValue>(words: &[&str]) -> redis::RedisResult<T> {
    let client = redis::Client::open(redis_url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await?;
    redis::cmd(words[0]).arg(&words[1..]).query_async(&mut connection).await
}

pub async fn postgres() -> tokio_postgres::Client {
    let connected = tokio_postgres::connect(&postgres_url(), tokio_postgres::NoTls).await;
    let (client, connection) = connected.unwrap();
    tokio::spawn(connection);
    client
}

pub async fn sql(statements: &str) {
    postgres().await.batch_execute(statements).await.unwrap();
}

/// What a wire does with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    /// Forwards them, both ways.
    Open,
    /// Takes connections and bytes, and forwards nothing.
    Stalled,
    /// Ends every connection, old or new.
    Cut,
}

/// A TCP port that leads to a server's unix socket.
pub struct Wire {
    pub address: String,
    passing: watch::Sender<Passing>,
}

impl Wire {
    pub async fn to(socket: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (passing, seen) = watch::channel(Passing::Open);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(carry(near, socket.clone(), seen.clone()));
            }
        });
        Self { address, passing }
    }

    pub async fn for_kind(kind: Kind) -> Self {
        match kind {
            Kind::Redis => Self::to(redis_socket()).await,
            Kind::Postgres => Self::to(postgres_socket()).await,
            Kind::Memory | Kind::Sqlite => unreachable!("it has no server"),
        }
    }

    pub fn set(&self, passing: Passing) {
        self.passing.send_replace(passing);
    }
}

async fn carry(mut near: TcpStream, socket: PathBuf, mut passing: watch::Receiver<Passing>) {
    let Ok(mut far) = UnixStream::connect(&socket).await else { return };
    loop {
        let now = *passing.borrow_and_update();
        match now {
            Passing::Cut => return,
            Passing::Stalled => {
                if passing.changed().await.is_err() {
                    return;
                }
            }
            Passing::Open => tokio::select! {
                _ = copy_bidirectional(&mut near, &mut far) => return,
                changed = passing.changed() => if changed.is_err() { return },
            },
        }
    }
}

/// A server that speaks just enough of Redis to be asked for a nonce: `answer` gives the answer to
/// a command's first word. Returns its URL.
pub async fn scripted_redis(
    answer: impl Fn(&str) -> String + Clone + Send + Sync + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            tokio::spawn(speak_redis(connection, answer.clone()));
        }
    });
    url
}

async fn speak_redis(mut connection: TcpStream, answer: impl Fn(&str) -> String) -> io::Result<()> {
    let mut read = String::new();
    let mut bytes = [0; 4096];
    loop {
        while let Some((words, rest)) = command(&read) {
            let answer = answer(&words[0]);
            read = rest.to_owned();
            connection.write_all(answer.as_bytes()).await?;
        }
        let count = connection.read(&mut bytes).await?;
        if count == 0 {
            return Ok(());
        }
        read.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
    }
}

/// Splits one command, an array of texts, from what was read.
fn command(read: &str) -> Option<(Vec<String>, &str)> {
    let (count, mut rest) = read.strip_prefix('*')?.split_once("\r\n")?;
    let mut words = Vec::new();
    for _ in 0..count.parse::<usize>().ok()? {
        let (len, text) = rest.strip_prefix('$')?.split_once("\r\n")?;
        let len = len.parse::<usize>().ok()?;
        words.push(text.get(..len)?.to_owned());
        rest = text.get(len + 2..)?;
    }
    Some((words, rest))
}
