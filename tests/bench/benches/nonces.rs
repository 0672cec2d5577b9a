//! Stores of nonces: memory beside a map behind a mutex and beside moka, SQLite beside one
//! transaction a claim, Redis and PostgreSQL beside their own benchmark tools. The servers are
//! those of `tests/stores`.
//!
//! Every peer takes turns with ours, and medians are compared.

use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use triwire::signed::{
    Claimed, Genuine, Key, KeyId, MAX_HEADER_LENGTH, Nonce, Presented, Target, Window, sign,
};
use triwire::time::UnixMillis;
use triwire_bench::{HEADINGS, row};
use triwire_std::clock::unix_now;
use triwire_std::nonces::{Memory, Nonces, Postgres, Redis, Sqlite};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

const LIVE: usize = 1_000_000;
/// Claims between two readings of the clock.
const BATCH: usize = 1_000;
const BATCHES: usize = 400;
/// Rounds of what goes over a disk or a socket.
const ROUNDS: usize = 5;
/// Claims that wait together, and commands that the servers' tools pipeline.
const PIPELINE: usize = 64;
/// Claims that wait together for SQLite.
const TOGETHER: usize = 1_024;

/// Genuine requests, each with a nonce of its own and signed at its own time.
struct Requests {
    key: Key,
    count: u64,
    signed_at: fn(u64) -> UnixMillis,
}

impl Requests {
    fn new(signed_at: fn(u64) -> UnixMillis) -> Self {
        Self { key: Key::new(&[7; 32]).expect("long enough"), count: 0, signed_at }
    }

    fn batch(&mut self, count: usize) -> Vec<Genuine> {
        (0..count).map(|_| self.next()).collect()
    }

    fn next(&mut self) -> Genuine {
        let at = (self.signed_at)(self.count);
        self.count += 1;
        let mut entropy = [0; 16];
        entropy[..8].copy_from_slice(&self.count.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
        entropy[8..12].copy_from_slice(&std::process::id().to_le_bytes());
        let (mut text, mut out) = ([0; 22], [0; MAX_HEADER_LENGTH]);
        let nonce = Nonce::make(entropy, &mut text);
        let target = Target::new("POST", "shop.example", "/").expect("canonical");
        let key_id = KeyId::parse("shop.1").expect("an id");
        let header = sign(at, key_id, &self.key, target, nonce, b"", &mut out).expect("room");
        let timely = Presented::parse([header.as_bytes()]).expect("well-formed");
        let timely = timely.check(at, Window::default()).expect("in time");
        timely.with(target, &self.key).finish(at).expect("genuine")
    }
}

/// So fast that a million are live: each for twice the window and the slack at most.
fn steady(count: u64) -> UnixMillis {
    UnixMillis::new(1_000_000_000 + count * 360_000 / LIVE as u64)
}

fn now(_: u64) -> UnixMillis {
    unix_now()
}

fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) << 10
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

// ---- Memory ---------------------------------------------------------------------------------

/// Claims at a time, and tells whether it was fresh.
type Claim<'s> = dyn Fn(&Genuine, UnixMillis) -> bool + Sync + 's;

/// What a store in memory is to the measurement.
struct InMemory<'s> {
    name: &'static str,
    claim: Box<Claim<'s>>,
    /// Time of a claim in ns: in each batch, and each by itself.
    batches: Vec<f64>,
    singles: Vec<f64>,
    /// Beside another thread that does the same.
    beside: Vec<f64>,
    bytes: f64,
}

impl InMemory<'_> {
    fn fill(&mut self) {
        let mut requests = Requests::new(steady);
        let before = resident();
        for count in 0..LIVE as u64 {
            assert!((self.claim)(&requests.next(), steady(count)), "{} is full", self.name);
        }
        self.bytes = (resident() - before) as f64 / LIVE as f64;
    }

    fn measure(&mut self, batch: &[Genuine], at: UnixMillis) {
        let start = Instant::now();
        for request in batch {
            assert!(black_box((self.claim)(request, at)), "{}", self.name);
        }
        self.batches.push(start.elapsed().as_nanos() as f64 / batch.len() as f64);
    }

    fn measure_singles(&mut self, batch: &[Genuine], at: UnixMillis) {
        for request in batch {
            let start = Instant::now();
            black_box((self.claim)(request, at));
            self.singles.push(start.elapsed().as_nanos() as f64);
        }
    }

    fn measure_beside(&mut self, [one, other]: [&[Genuine]; 2], at: UnixMillis) {
        let start = Instant::now();
        let claim = &self.claim;
        thread::scope(|scope| {
            for half in [one, other] {
                scope.spawn(move || {
                    for request in half {
                        black_box(claim(request, at));
                    }
                });
            }
        });
        let claims = (one.len() + other.len()) as f64;
        self.beside.push(start.elapsed().as_nanos() as f64 / claims);
    }

    fn percentiles(&mut self) -> [f64; 3] {
        self.singles.sort_by(f64::total_cmp);
        let at = |share: f64| self.singles[((self.singles.len() - 1) as f64 * share) as usize];
        [at(0.5), at(0.99), at(0.9999)]
    }
}

fn memory() -> String {
    // What the first use of the code takes is none of a nonce's.
    let (small, mut first) = (Memory::with_capacity(10_000), Requests::new(steady));
    for count in 0..10_000 {
        assert!(small.claim_at(steady(count), first.next().claim()).is_ok());
    }
    let before = resident();
    let ours = Memory::with_capacity(LIVE);
    let taken_at_once = (resident() - before) as f64 / LIVE as f64;
    let map = Mutex::new(HashMap::<String, u64>::new());
    let moka = moka::sync::Cache::<String, ()>::builder()
        .max_capacity(2 * LIVE as u64)
        .time_to_live(Duration::from_secs(660))
        .build();
    let in_memory = |name, claim| InMemory {
        name,
        claim,
        batches: Vec::new(),
        singles: Vec::new(),
        beside: Vec::new(),
        bytes: 0.0,
    };
    let mut stores = [
        in_memory(
            "ours",
            Box::new(|request: &Genuine, at| {
                ours.claim_at(at, request.claim()).is_ok_and(|claimed| claimed == Claimed::Fresh)
            }) as Box<Claim<'_>>,
        ),
        in_memory(
            "map",
            Box::new(|request, _| {
                let (name, expires) = (request.claim().to_string(), request.claim().forget_after());
                map.lock().expect("no panic").insert(name, expires.get()).is_none()
            }),
        ),
        in_memory(
            "moka",
            Box::new(|request, _| moka.entry(request.claim().to_string()).or_insert(()).is_fresh()),
        ),
    ];
    for store in &mut stores {
        store.fill();
    }
    stores[0].bytes = taken_at_once;
    let mut requests = Requests::new(steady);
    requests.count = LIVE as u64;
    for round in 0..BATCHES {
        let batch = requests.batch(BATCH);
        let singles = requests.batch(BATCH);
        let beside = [requests.batch(10 * BATCH), requests.batch(10 * BATCH)];
        let at = steady(requests.count);
        for store in &mut stores {
            store.measure(&batch, at);
            store.measure_singles(&singles, at);
            if round % 10 == 0 {
                store.measure_beside([&beside[0], &beside[1]], at);
            }
        }
        // The peers forget nothing by themselves in this time; what they hold stays a million.
        let mut map = map.lock().expect("no panic");
        for request in batch.iter().chain(&singles).chain(beside.iter().flatten()) {
            let name = request.claim().to_string();
            map.remove(&name);
            moka.invalidate(&name);
        }
    }
    let percentiles: Vec<[f64; 3]> = stores.iter_mut().map(InMemory::percentiles).collect();
    let medians: Vec<f64> = stores.iter().map(|store| median(store.batches.clone())).collect();
    let beside: Vec<f64> = stores.iter().map(|store| median(store.beside.clone())).collect();
    let mut lines = Vec::new();
    let peers = [("a mutex around std's HashMap", 1, 2.0), ("moka", 2, 9.0)];
    for (peer, index, goal) in peers {
        lines.push(faster(
            &format!("claim in memory, 1 million live, beside {peer}"),
            medians[0],
            medians[index],
            Some(goal),
        ));
        let what = format!("the same on two threads at once, beside {peer}");
        lines.push(faster(&what, beside[0], beside[index], None));
    }
    for (index, peer) in [(1, "the map"), (2, "moka")] {
        let [ours, theirs] = [percentiles[0], percentiles[index]];
        let show = |[p50, p99, p9999]: [f64; 3]| format!("{p50:.0}, {p99:.0}, {p9999:.0} ns");
        lines.push(row(
            &format!("single claims, clock included: p50, p99, p99.99, beside {peer}"),
            &show(ours),
            &show(theirs),
            &format!("{:.1} x faster at p99", theirs[1] / ours[1]),
            "",
            None,
        ));
        lines.push(row(
            &format!("bytes a nonce, as the process grows, beside {peer}"),
            &format!("{:.1}", stores[0].bytes),
            &format!("{:.1}", stores[index].bytes),
            &format!("{:.2} x", stores[0].bytes / stores[index].bytes),
            "at most 24",
            Some(stores[0].bytes < 24.05),
        ));
    }
    lines.join("\n")
}

fn faster(what: &str, ours: f64, peer: f64, goal: Option<f64>) -> String {
    let ratio = peer / ours;
    row(
        what,
        &format!("{ours:.0} ns"),
        &format!("{peer:.0} ns"),
        &format!("{ratio:.1} x faster"),
        &goal.map_or(String::new(), |goal| format!("{goal} x")),
        goal.map(|goal| ratio >= goal),
    )
}

// ---- What goes over a disk or a socket ------------------------------------------------------

/// Claims a second, `together` of which wait at once.
async fn rate(store: &Arc<impl Nonces + 'static>, claims: usize, together: usize) -> Outcome<f64> {
    let batch = Arc::new(Requests::rounds(claims));
    let next = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let tasks: Vec<_> = (0..together)
        .map(|_| {
            let (store, batch, next) = (Arc::clone(store), Arc::clone(&batch), Arc::clone(&next));
            tokio::spawn(async move {
                while let Some(request) = batch.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                    assert_eq!(store.claim(request.claim()).await.ok(), Some(Claimed::Fresh));
                }
            })
        })
        .collect();
    for task in tasks {
        task.await?;
    }
    Ok(claims as f64 / start.elapsed().as_secs_f64())
}

impl Requests {
    /// Requests that no earlier round has seen.
    fn rounds(count: usize) -> Vec<Genuine> {
        static SEEN: AtomicU64 = AtomicU64::new(1 << 40);
        let mut requests = Self::new(now);
        requests.count = SEEN.fetch_add(count as u64, Ordering::Relaxed);
        requests.batch(count)
    }
}

fn rates(what: &str, ours: Vec<f64>, peer: Vec<f64>, goal: f64) -> String {
    let (ours, peer) = (median(ours), median(peer));
    let ratio = ours / peer;
    row(
        what,
        &format!("{ours:.0}/s"),
        &format!("{peer:.0}/s"),
        &format!("{ratio:.2} x the rate"),
        &format!("{goal} x"),
        Some(ratio >= goal),
    )
}

async fn sqlite() -> Outcome<String> {
    let folder = Folder::new("sqlite")?;
    let store = Arc::new(Sqlite::open(folder.0.join("ours")).await?);
    let peer = rusqlite::Connection::open(folder.0.join("peer"))?;
    peer.execute_batch(
        "pragma journal_mode = wal; pragma synchronous = full; \
         create table nonces (nonce text primary key, expires_at integer not null)",
    )?;
    let (mut ours, mut singles, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(rate(&store, 100_000, TOGETHER).await?);
        singles.push(rate(&store, 2_000, 1).await?);
        let batch = Requests::rounds(2_000);
        let start = Instant::now();
        let insert = "insert into nonces values (?1, ?2) on conflict do nothing";
        let mut insert = peer.prepare(insert)?;
        for request in &batch {
            let claim = request.claim();
            let expires = i64::try_from(claim.expires_at().get())?;
            assert_eq!(insert.execute((claim.to_string(), expires))?, 1);
        }
        theirs.push(batch.len() as f64 / start.elapsed().as_secs_f64());
    }
    let grouped =
        "claims in SQLite, synchronous=FULL, 1024 at once, beside one transaction a claim";
    let single = "the same, one at a time";
    Ok([rates(grouped, ours, theirs.clone(), 10.0), rates(single, singles, theirs, 0.5)].join("\n"))
}

async fn redis() -> Outcome<String> {
    let url = env::var("TRIWIRE_REDIS").map_err(|_| "run it within tests/stores")?;
    let socket = url.trim_start_matches("redis+unix://").to_owned();
    // The disk would be the same for both, and hide the rest.
    run("redis-cli", &["-s", &socket, "config", "set", "appendonly", "no"])?;
    let store = Arc::new(Redis::open(&url).await?);
    let mut lines = Vec::new();
    for (what, together, claims) in [("single", 1, 20_000), ("64 at once", PIPELINE, 200_000)] {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            ours.push(rate(&store, claims, together).await?);
            theirs.push(redis_benchmark(&socket, claims, together)?);
            run("redis-cli", &["-s", &socket, "flushall"])?;
        }
        let what = format!("claims in Redis, {what}, beside redis-benchmark of the same SET");
        lines.push(rates(&what, ours, theirs, 0.8));
    }
    Ok(lines.join("\n"))
}

fn redis_benchmark(socket: &str, claims: usize, together: usize) -> Outcome<f64> {
    let (claims, together) = (claims.to_string(), together.to_string());
    let expires = (unix_now().get() + 600_000).to_string();
    let printed = run(
        "redis-benchmark",
        &[
            "-s",
            socket,
            "-c",
            "1",
            "-P",
            &together,
            "-n",
            &claims,
            "-r",
            "1000000000000",
            "--csv",
            "set",
            "triwire:nonce:shop.1:bench-__rand_int__",
            "1",
            "nx",
            "pxat",
            &expires,
        ],
    )?;
    let line = printed.lines().last().ok_or("redis-benchmark printed nothing")?;
    // "command","requests a second",… where the command holds no comma.
    let rate = line.split(',').nth(1).ok_or("redis-benchmark printed no rate")?;
    Ok(rate.trim_matches('"').parse()?)
}

async fn postgres() -> Outcome<String> {
    let url = env::var("TRIWIRE_POSTGRES").map_err(|_| "run it within tests/stores")?;
    let folder = Folder::new("postgres")?;
    let store = Arc::new(Postgres::open(&url).await?);
    let insert = "\\set r random(1, 1000000000000000)\n\
        insert into triwire_nonces values ('shop.1-bench-' || :r, 2000000000000) \
        on conflict do nothing;\n";
    let piped = format!("\\startpipeline\n{}\\endpipeline\n", insert.repeat(PIPELINE));
    let scripts = [folder.write("single", insert)?, folder.write("piped", &piped)?];
    let mut lines = Vec::new();
    let cases = [("single", 1, 400), ("64 at once", PIPELINE, 12_800)];
    for ((what, together, claims), script) in cases.into_iter().zip(scripts) {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            ours.push(rate(&store, claims, together).await?);
            theirs.push(pgbench(&script, claims / together)? * together as f64);
        }
        let what = format!("claims in PostgreSQL, {what}, beside pgbench of the same insert");
        lines.push(rates(&what, ours, theirs, 0.8));
    }
    Ok(lines.join("\n"))
}

fn pgbench(script: &Path, transactions: usize) -> Outcome<f64> {
    let stores = env::var("TRIWIRE_STORES")?;
    let (host, transactions) = (format!("{stores}/postgres"), transactions.to_string());
    let script = script.to_str().ok_or("a path that is no text")?;
    let printed = run(
        "pgbench",
        &[
            "-h",
            &host,
            "-U",
            "triwire",
            "-n",
            "-c",
            "1",
            "-M",
            "prepared",
            "-t",
            &transactions,
            "-f",
            script,
            "postgres",
        ],
    )?;
    let rate = printed.lines().find_map(|line| line.strip_prefix("tps = "));
    let rate = rate.and_then(|line| line.split(' ').next()).ok_or("pgbench printed no rate")?;
    Ok(rate.parse()?)
}

fn run(program: &str, arguments: &[&str]) -> Outcome<String> {
    let output = Command::new(program).args(arguments).output()?;
    if !output.status.success() {
        return Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// A folder that goes with the benchmark.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Outcome<Self> {
        let path = env::temp_dir().join(format!("triwire-bench-{name}-{}", std::process::id()));
        fs::create_dir(&path)?;
        Ok(Self(path))
    }

    fn write(&self, name: &str, text: &str) -> Outcome<PathBuf> {
        let path = self.0.join(name);
        fs::write(&path, text)?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[tokio::main]
async fn main() -> Outcome {
    // `cargo bench … -- redis` measures one; `--bench` is cargo's own.
    let chosen: Vec<String> = env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let is_chosen = |name: &str| chosen.is_empty() || chosen.iter().any(|word| word == name);
    println!("{HEADINGS}");
    if is_chosen("memory") {
        println!("{}", memory());
    }
    if is_chosen("sqlite") {
        println!("{}", sqlite().await?);
    }
    if is_chosen("redis") {
        println!("{}", redis().await?);
    }
    if is_chosen("postgres") {
        println!("{}", postgres().await?);
    }
    Ok(())
}
