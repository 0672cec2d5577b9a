//! One contract for all stores of nonces, against real servers, and what is each store's own.
#![cfg(all(feature = "sqlite", feature = "redis", feature = "postgres", target_os = "linux"))]
#![allow(missing_docs)]

mod nonces_common;

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use futures_util::future::{join_all, poll_immediate};
use nonces_common::*;
use triwire::signed::{Claimed, STORE_CLOCK_SLACK_MS};
use triwire::time::UnixMillis;
use triwire_std::clock::unix_now;
use triwire_std::nonces::{self, Cause, Memory, Nonces, OpenError, Postgres, Redis, Sqlite};

use Claimed::{Fresh, Replayed};

/// The tests of the contract, each for the stores that it can be asked of.
macro_rules! contract {
    ($($store:ident $kind:ident: $($test:ident)*;)*) => {
        $(mod $store {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $test() {
                super::$test(super::Kind::$kind).await;
            })*
        })*
    };
}

contract! {
    memory Memory: first_is_fresh many_tasks skewed_clocks dropped_futures late_claims;
    sqlite Sqlite: first_is_fresh many_tasks skewed_clocks dropped_futures late_claims
        two_processes reopened expired_go;
    redis Redis: first_is_fresh many_tasks skewed_clocks dropped_futures late_claims
        two_processes reopened expired_go cut stalled;
    postgres Postgres: first_is_fresh many_tasks skewed_clocks dropped_futures late_claims
        two_processes reopened expired_go cut stalled;
}

// rule: SIGN-40
async fn first_is_fresh(kind: Kind) {
    let place = Place::new(kind).await;
    let store = place.open().await;
    assert_eq!(claim(&store, "n").await.unwrap(), Fresh);
    assert_eq!(claim(&store, "n").await.unwrap(), Replayed);
    assert_eq!(claim(&store, "n").await.unwrap(), Replayed);
    assert_eq!(claim(&store, "N").await.unwrap(), Fresh, "another letter");
    // The same nonce of another key, and the longest names there are.
    let expires = unix_seconds() + 300;
    for key_id in ["shop.2", &"k".repeat(64)] {
        for nonce in ["n", &"n".repeat(128)] {
            let request = genuine_until(key_id, nonce, expires);
            assert_eq!(store.claim(request.claim()).await.unwrap(), Fresh, "{key_id}:{nonce}");
            assert_eq!(store.claim(request.claim()).await.unwrap(), Replayed);
        }
    }
}

// rule: SIGN-40
async fn many_tasks(kind: Kind) {
    let place = Place::new(kind).await;
    let store = place.open().await;
    for round in 0..4 {
        let tasks = (0..200).map(|task| {
            let store = store.clone();
            // Ten names, twenty tasks each.
            tokio::spawn(async move { (task % 10, claim(&store, &name(round, task % 10)).await) })
        });
        let mut fresh = [0; 10];
        for task in join_all(tasks).await {
            let (name, claimed) = task.unwrap();
            fresh[name] += usize::from(claimed.unwrap() == Fresh);
        }
        assert_eq!(fresh, [1; 10]);
    }
}

fn name(round: usize, task: usize) -> String {
    format!("{round}_{task}")
}

// rule: SIGN-41
async fn skewed_clocks(kind: Kind) {
    let place = Place::new(kind).await;
    let store = place.open().await;
    for skew in [-59, 0, 59] {
        // By the verifier's clock this is the last moment at which the request is in time.
        let expires = unix_seconds().checked_add_signed(skew).unwrap();
        let request = genuine_until("shop.1", &format!("skew_{skew}"), expires);
        assert_eq!(store.claim(request.claim()).await.unwrap(), Fresh, "{skew}");
        for _ in 0..20 {
            // The slack ends a second later: a slow machine may come too late, and is refused.
            match store.claim(request.claim()).await {
                Ok(claimed) => assert_eq!(claimed, Replayed, "{skew}"),
                Err(refused) => assert_eq!(refused.cause(), Cause::TooLate, "{skew}: {refused}"),
            }
        }
    }
}

// rule: SIGN-42
async fn late_claims(kind: Kind) {
    let place = Place::new(kind).await;
    let store = place.open().await;
    let slack = STORE_CLOCK_SLACK_MS / 1_000;
    for expires in [300, unix_seconds() - slack - 1] {
        let request = genuine_until("shop.1", "late", expires);
        for _ in 0..2 {
            assert_eq!(store.claim(request.claim()).await.unwrap_err().cause(), Cause::TooLate);
        }
    }
}

// rule: SIGN-43
async fn dropped_futures(kind: Kind) {
    let place = Place::new(kind).await;
    let store = place.open().await;
    for round in 0..50 {
        let nonce = format!("dropped_{round}");
        let first = poll_immediate(std::pin::pin!(claim(&store, &nonce))).await;
        let before = first.map(Result::unwrap);
        // Whether it had claimed or not, nobody was told twice that the nonce is fresh.
        let after = claim(&store, &nonce).await.unwrap();
        assert!(before != Some(Fresh) || after == Replayed);
        assert_eq!(claim(&store, &nonce).await.unwrap(), Replayed);
    }
    assert_eq!(claim(&store, "whole").await.unwrap(), Fresh);
}

// rule: SIGN-44
async fn reopened(kind: Kind) {
    let place = Place::new(kind).await;
    let store = place.open().await;
    assert_eq!(claim(&store, "n").await.unwrap(), Fresh);
    drop(store);
    let (store, beside) = tokio::join!(place.open(), place.open());
    assert_eq!(claim(&store, "n").await.unwrap(), Replayed);
    assert_eq!(claim(&store, "m").await.unwrap(), Fresh);
    assert_eq!(claim(&beside, "m").await.unwrap(), Replayed);
}

// rule: SIGN-45
async fn expired_go(kind: Kind) {
    let place = Place::new(kind).await;
    let store = place.open().await;
    // They may go in a second or two; one stays.
    let soon = unix_seconds() + 2 - STORE_CLOCK_SLACK_MS / 1_000;
    for count in 0..30 {
        let request = genuine_until("shop.1", &format!("soon_{count}"), soon);
        assert_eq!(store.claim(request.claim()).await.unwrap(), Fresh);
    }
    assert_eq!(claim(&store, "stays").await.unwrap(), Fresh);
    let mut claims = 0;
    let gone = async {
        while place.entries().await > 1 + claims {
            tokio::time::sleep(Duration::from_millis(100)).await;
            if kind == Kind::Sqlite {
                // Its entries go as new ones come.
                claims += 1;
                assert_eq!(claim(&store, &format!("next_{claims}")).await.unwrap(), Fresh);
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone).await.expect("they stay for ever");
    assert_eq!(claim(&store, "stays").await.unwrap(), Replayed);
    // The same nonce in a new request is another claim.
    assert_eq!(claim(&store, "soon_0").await.unwrap(), Fresh);
}

// rule: SIGN-46
async fn cut(kind: Kind) {
    let place = Place::new(kind).await;
    let wire = Wire::for_kind(kind).await;
    let store = place.open_at(Some(&wire)).await;
    assert_eq!(claim(&store, "before").await.unwrap(), Fresh);
    wire.set(Passing::Cut);
    for count in 0..5 {
        assert_eq!(cause(&store, &format!("cut_{count}")).await, Cause::Lost);
    }
    wire.set(Passing::Open);
    // It is there again: no claim of the time without a connection was made.
    for count in 0..5 {
        assert_eq!(claim(&store, &format!("cut_{count}")).await.unwrap(), Fresh);
    }
    assert_eq!(claim(&store, "before").await.unwrap(), Replayed);
}

// rule: SIGN-46
async fn stalled(kind: Kind) {
    let mut place = Place::new(kind).await;
    place.limit = Duration::from_millis(300);
    let wire = Wire::for_kind(kind).await;
    let store = place.open_at(Some(&wire)).await;
    wire.set(Passing::Stalled);
    let slow = Cause::Slow { after: place.limit };
    assert_eq!(cause(&store, "first").await, slow);
    let names: Vec<String> = (0..100).map(|count| format!("stalled_{count}")).collect();
    for answer in join_all(names.iter().map(|name| cause(&store, name))).await {
        assert_eq!(answer, slow);
    }
    wire.set(Passing::Open);
    for name in &names {
        let in_the_end = claim_in_the_end(&store, name).await;
        let again = claim(&store, name).await.unwrap();
        // What was sent into the stall may have arrived after all; it was accepted by nobody.
        assert!(again == Replayed, "{name}: {in_the_end:?}");
    }
}

/// A process of its own that claims.
struct Claimer {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// The lines of a claimer stand among those of the test harness.
const MARK: &str = "claimer: ";

impl Claimer {
    fn start(place: &Place, what: &str) -> Self {
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["claimer", "--exact", "--ignored", "--nocapture"])
            .env("TRIWIRE_TEST_PLACE", format!("{:?} {} {what}", place.kind, place.name))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut claimer = Self { process, input, output };
        assert_eq!(claimer.line().as_deref(), Some("ready"));
        claimer
    }

    fn go(&mut self) {
        self.input.write_all(b"go\n").unwrap();
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.output.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            if let Some((_, said)) = line.trim_end().split_once(MARK) {
                return Some(said.to_owned());
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the other tests start it, in processes of its own"]
async fn claimer() {
    let place = env::var("TRIWIRE_TEST_PLACE").unwrap();
    let [kind, name, what]: [&str; 3] = place.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let kind = match kind {
        "Sqlite" => Kind::Sqlite,
        "Redis" => Kind::Redis,
        _ => Kind::Postgres,
    };
    let store = Place::of(kind, name.to_owned()).open().await;
    println!("{MARK}ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    match what {
        // All at once: one letter for each outcome.
        "race" => {
            let names: Vec<String> = (0..RACES).map(|race| format!("race_{race}")).collect();
            let claims = names.iter().map(|name| claim(&store, name));
            let outcome = |claimed: Result<Claimed, _>| match claimed.unwrap() {
                Fresh => 'f',
                Replayed => 'r',
            };
            let outcomes: String = join_all(claims).await.into_iter().map(outcome).collect();
            println!("{MARK}{outcomes}");
        }
        // For ever, and a line for each that was told fresh.
        _ => {
            let tasks = (0..8).map(|task| {
                let store = store.clone();
                tokio::spawn(async move {
                    for count in 0.. {
                        let name = format!("killed_{task}_{count}");
                        assert_eq!(claim(&store, &name).await.unwrap(), Fresh);
                        println!("{MARK}{name}");
                    }
                })
            });
            join_all(tasks).await;
        }
    }
}

const RACES: usize = 500;

// rule: SIGN-40
async fn two_processes(kind: Kind) {
    let place = Place::new(kind).await;
    let mut claimers = [Claimer::start(&place, "race"), Claimer::start(&place, "race")];
    claimers.iter_mut().for_each(Claimer::go);
    let outcomes = claimers.each_mut().map(|claimer| claimer.line().unwrap());
    let [one, other] = outcomes.each_ref().map(|outcomes| outcomes.bytes());
    assert_eq!(one.len(), RACES);
    for (race, (one, other)) in one.zip(other).enumerate() {
        assert!(matches!((one, other), (b'f', b'r') | (b'r', b'f')), "race {race}: {outcomes:?}");
    }
    for mut claimer in claimers {
        assert!(claimer.process.wait().unwrap().success());
    }
}

// rule: SIGN-47
#[tokio::test]
async fn a_killed_process_forgets_nothing_that_it_was_told() {
    let place = Place::new(Kind::Sqlite).await;
    let mut told = Vec::new();
    for kill_after in [1, 50, 400] {
        let mut claimer = Claimer::start(&place, "stream");
        claimer.go();
        let from = told.len();
        while told.len() < from + kill_after {
            let name = claimer.line().unwrap();
            told.push(name);
        }
        claimer.process.kill().unwrap();
        // What it had written when it died.
        while let Some(name) = claimer.line() {
            told.push(name);
        }
        claimer.process.wait().unwrap();
        let store = place.open().await;
        for name in &told {
            assert_eq!(claim(&store, name).await.unwrap(), Replayed, "{name}");
        }
        drop(store);
        // The next one starts from the same names.
        fs::remove_file(&place.name).unwrap();
        for log in ["-wal", "-shm"] {
            let _ = fs::remove_file(format!("{}{log}", place.name));
        }
        told.clear();
    }
}

// ---- Full -----------------------------------------------------------------------------------

// rule: SIGN-48
#[tokio::test]
async fn a_full_file_refuses_and_forgets_nothing() {
    let folder = Folder::new();
    let store = Sqlite::builder(folder.file()).capacity(1_000).open().await.unwrap();
    let names: Vec<String> = (0..1_100).map(|count| format!("n_{count}")).collect();
    let mut full = 0;
    for claimed in join_all(names.iter().map(|name| claim(&store, name))).await {
        full += usize::from(claimed.is_err_and(|refused| refused.cause() == Cause::Full));
    }
    assert_eq!(full, 100);
    // Another process, or this one later, counts on.
    drop(store);
    let store = Sqlite::builder(folder.file()).capacity(1_000).open().await.unwrap();
    let mut replayed = 0;
    for name in &names {
        match claim(&store, name).await {
            Ok(claimed) => {
                assert_eq!(claimed, Replayed, "{name}");
                replayed += 1;
            }
            Err(refused) => assert_eq!(refused.cause(), Cause::Full),
        }
    }
    assert_eq!(replayed, 1_000);
}

// rule: SIGN-48
#[test]
fn a_full_memory_refuses_and_forgets_nothing() {
    let store = Memory::with_capacity(10_000);
    let now = unix_now();
    let requests: Vec<_> = (0..30_000).map(|count| genuine(&format!("n_{count}"))).collect();
    let (mut fresh, mut full) = (Vec::new(), 0);
    for request in &requests {
        match store.claim_at(now, request.claim()) {
            Ok(claimed) => {
                assert_eq!(claimed, Fresh);
                fresh.push(request);
            }
            Err(refused) => {
                assert_eq!(refused.cause(), Cause::Full);
                full += 1;
            }
        }
        assert!(full == 0 || fresh.len() >= 10_000, "full at {}", fresh.len());
    }
    // There is memory for half as many again, and no more.
    assert!(fresh.len() <= 15_000, "{}", fresh.len());
    for request in fresh {
        assert_eq!(store.claim_at(now, request.claim()).unwrap(), Replayed);
    }
}

// rule: SIGN-48
#[tokio::test]
async fn a_database_on_a_full_disk_refuses() {
    let place = Place::new(Kind::Postgres).await;
    let store = place.open().await;
    assert_eq!(claim(&store, "before").await.unwrap(), Fresh);
    sql(&format!(
        "create function {0}.full_disk() returns trigger language plpgsql as \
         $$ begin raise exception 'could not extend file' using errcode = 'disk_full'; end $$; \
         create trigger full_disk before insert on {0}.triwire_nonces \
         for each row execute function {0}.full_disk()",
        place.name
    ))
    .await;
    assert_eq!(cause(&store, "n").await, Cause::Full);
    sql(&format!("drop trigger full_disk on {}.triwire_nonces", place.name)).await;
    assert_eq!(claim(&store, "n").await.unwrap(), Fresh);
    assert_eq!(claim(&store, "before").await.unwrap(), Replayed);
}

// ---- Memory ---------------------------------------------------------------------------------

// rule: SIGN-41
#[test]
fn memory_keeps_a_nonce_up_to_the_last_millisecond_of_the_slack() {
    let store = Memory::with_capacity(100);
    let request = genuine_until("a", "n", 1_000_000);
    let last = request.claim().forget_after();
    let at = |millis| store.claim_at(UnixMillis::new(millis), request.claim());
    assert_eq!(at(1_000_000_000 - 659_000).unwrap(), Fresh);
    // A verifier whose clock is 59 s behind asks in its last millisecond.
    assert_eq!(at(1_000_059_000).unwrap(), Replayed);
    assert_eq!(at(last.get()).unwrap(), Replayed);
    assert_eq!(at(last.get() + 1).unwrap_err().cause(), Cause::TooLate);
    assert_eq!(at(u64::MAX).unwrap_err().cause(), Cause::TooLate);
}

// rule: SIGN-49
#[test]
fn a_clock_that_is_set_back_opens_nothing_in_memory() {
    let store = Memory::with_capacity(1);
    let (old, new) = (genuine_until("a", "old", 1_000_000), genuine_until("a", "new", 1_010_000));
    let now = UnixMillis::new(1_000_000_000);
    assert_eq!(store.claim_at(now, old.claim()).unwrap(), Fresh);
    // Enough of later ones to take every place.
    let later = UnixMillis::new(1_010_000_000);
    for count in 0..100 {
        let next = genuine_until("a", &format!("n_{count}"), 1_010_000);
        let _ = store.claim_at(later, next.claim());
    }
    assert_eq!(store.claim_at(later, new.claim()).unwrap_err().cause(), Cause::Full);
    assert_ne!(store.claim_at(now, old.claim()).ok(), Some(Fresh));
}

// rule: SIGN-50
#[test]
fn a_memory_that_began_anew_refuses_what_was_signed_before() {
    let boot = UnixMillis::new(1_000_000_000);
    let store = Memory::with_capacity(100).after_boot(boot, triwire::signed::Window::default());
    // Signed at boot + window, and a second later.
    for (expires, expected) in [(1_000_600, Err(Cause::Booted)), (1_000_601, Ok(Fresh))] {
        let request = genuine_until("a", "n", expires);
        let claimed = store.claim_at(UnixMillis::new(1_000_310_000), request.claim());
        assert_eq!(claimed.map_err(|refused| refused.cause()), expected);
    }
}

#[test]
fn memory_refuses_times_that_it_cannot_count() {
    let store = Memory::with_capacity(100);
    let far = genuine_until("a", "n", (1 << 53) - 1);
    for now in [0, 1, u64::MAX / 2] {
        let claimed = store.claim_at(UnixMillis::new(now), far.claim());
        assert_eq!(claimed.unwrap_err().cause(), Cause::TooLate);
    }
    let first = genuine_until("a", "n", 300);
    assert_eq!(store.claim_at(UnixMillis::new(0), first.claim()).unwrap(), Fresh);
    assert_eq!(store.claim_at(UnixMillis::new(0), first.claim()).unwrap(), Replayed);
}

// ---- SQLite ---------------------------------------------------------------------------------

async fn refused_file(folder: &Folder) -> OpenError {
    Sqlite::builder(folder.file()).limit(Duration::from_millis(200)).open().await.unwrap_err()
}

#[tokio::test]
async fn a_file_that_is_no_store_is_refused_by_name() {
    let folder = Folder::new();
    let mode = |mode| {
        fs::set_permissions(folder.file(), fs::Permissions::from_mode(mode)).unwrap();
    };
    // Another program's text, and another program's database.
    fs::write(folder.file(), "not a database, and longer than the head of one ".repeat(9)).unwrap();
    mode(0o600);
    let error = refused_file(&folder).await.to_string();
    assert!(error.contains("nonces cannot be opened: file is not a database"), "{error}");
    fs::remove_file(folder.file()).unwrap();
    let other = rusqlite::Connection::open(folder.file()).unwrap();
    other.execute_batch("create table notes (text)").unwrap();
    mode(0o600);
    assert!(matches!(refused_file(&folder).await, OpenError::Foreign { .. }));
    other.execute_batch("select text from notes").unwrap();
    fs::remove_file(folder.file()).unwrap();
    // A folder, and nothing that could hold one.
    fs::create_dir(folder.file()).unwrap();
    let error = refused_file(&folder).await.to_string();
    assert!(error.contains("Is a directory"), "{error}");
    let error = Sqlite::open(folder.0.join("no/such/folder")).await.unwrap_err().to_string();
    assert!(error.contains("No such file"), "{error}");
}

// rule: SIGN-51
#[tokio::test]
async fn a_file_is_its_owners_alone() {
    let folder = Folder::new();
    let mode = || fs::metadata(folder.file()).unwrap().permissions().mode() & 0o777;
    drop(Sqlite::open(folder.file()).await.unwrap());
    assert_eq!(mode(), 0o600);
    for (open, refused) in [(0o644, true), (0o602, true), (0o660, false), (0o640, false)] {
        fs::set_permissions(folder.file(), fs::Permissions::from_mode(open)).unwrap();
        let opened = Sqlite::open(folder.file()).await;
        assert_eq!(opened.is_err(), refused, "{open:o}");
        if let Err(error) = opened {
            assert!(error.to_string().contains("run `chmod o= "), "{error}");
        }
    }
}

// rule: SIGN-46
#[tokio::test]
async fn a_locked_file_is_slow_and_serves_when_it_is_free_again() {
    let folder = Folder::new();
    let limit = Duration::from_millis(300);
    let store = Sqlite::builder(folder.file()).limit(limit).open().await.unwrap();
    assert_eq!(claim(&store, "before").await.unwrap(), Fresh);
    let other = rusqlite::Connection::open(folder.file()).unwrap();
    other.execute_batch("begin immediate").unwrap();
    for count in 0..3 {
        let locked = cause(&store, &format!("locked_{count}")).await;
        assert_eq!(locked, Cause::Slow { after: limit });
    }
    other.execute_batch("rollback").unwrap();
    assert_eq!(claim_in_the_end(&store, "after").await, Fresh);
    assert_eq!(claim(&store, "before").await.unwrap(), Replayed);
}

// rule: SIGN-47
#[tokio::test]
async fn a_file_that_was_replaced_or_removed_is_not_made_anew() {
    let folder = Folder::new();
    let store = Sqlite::open(folder.file()).await.unwrap();
    assert_eq!(claim(&store, "n").await.unwrap(), Fresh);
    let aside = folder.0.join("aside");
    fs::rename(folder.file(), &aside).unwrap();
    assert_eq!(cause(&store, "n").await, Cause::Refused);
    assert!(!folder.file().exists());
    fs::write(folder.file(), "").unwrap();
    let error = claim(&store, "m").await.unwrap_err().to_string();
    assert!(error.contains("replaced by another"), "{error}");
    fs::rename(&aside, folder.file()).unwrap();
    assert_eq!(claim(&store, "n").await.unwrap(), Replayed);
}

// rule: SIGN-48
#[test]
fn a_full_disk_refuses_and_forgets_nothing() {
    // A limit on the size of files stands for a disk without room.
    let folder = Folder::new();
    let script = "trap '' XFSZ; ulimit -f 512; exec \"$0\" \"$@\"";
    let status = Command::new("bash")
        .args(["-c", script])
        .arg(env::current_exe().unwrap())
        .args(["on_a_full_disk", "--exact", "--ignored", "--nocapture"])
        .env("TRIWIRE_TEST_PLACE", folder.file())
        .status()
        .unwrap();
    assert!(status.success());
}

#[tokio::test]
#[ignore = "the test above starts it, under a limit"]
async fn on_a_full_disk() {
    let store = Sqlite::open(env::var("TRIWIRE_TEST_PLACE").unwrap()).await.unwrap();
    let mut fresh = Vec::new();
    let refused = loop {
        let name = format!("n_{}", fresh.len());
        match claim(&store, &name).await {
            Ok(claimed) => assert_eq!(claimed, Fresh),
            Err(refused) => break refused,
        }
        fresh.push(name);
        assert!(fresh.len() < 100_000, "the disk has room for ever");
    };
    assert!(matches!(refused.cause(), Cause::Full | Cause::Refused), "{refused}");
    assert!(fresh.len() > 10, "{refused}");
    for name in &fresh {
        assert_ne!(claim(&store, name).await.ok(), Some(Fresh), "{name}");
    }
}

// ---- Redis ----------------------------------------------------------------------------------

const FIT: &str = "# Memory\r\nmaxmemory:1000\r\nmaxmemory_policy:noeviction\r\n";

/// Opens a scripted server that answers INFO with `info`, TIME with a clock that is `ahead`
/// seconds ahead, and SET with `set`.
async fn opened(info: &'static str, ahead: i64, set: &'static str) -> Result<Redis, Cause> {
    let url = scripted_redis(move |word| match word {
        "INFO" => format!("${}\r\n{info}\r\n", info.len()),
        "TIME" => {
            let seconds = unix_seconds().checked_add_signed(ahead).unwrap().to_string();
            format!("*2\r\n${}\r\n{seconds}\r\n$1\r\n0\r\n", seconds.len())
        }
        "SET" => set.to_owned(),
        _ => "+OK\r\n".to_owned(),
    });
    match Redis::open(&url.await).await {
        Ok(store) => Ok(store),
        Err(OpenError::Unavailable(unavailable)) => Err(unavailable.cause()),
        Err(other) => panic!("{other}"),
    }
}

// rule: SIGN-52
#[tokio::test]
async fn a_server_that_may_evict_is_refused() {
    for info in ["maxmemory_policy:allkeys-lru\r\n", "maxmemory_policy:volatile-ttl\r\n", "# \r\n"]
    {
        assert_eq!(opened(info, 0, "+OK\r\n").await.unwrap_err(), Cause::Evicts, "{info}");
    }
}

// rule: SIGN-53
#[tokio::test]
async fn a_server_whose_clock_is_off_is_refused() {
    for ahead in [-58, 59] {
        let store = opened(FIT, ahead, "+OK\r\n").await.unwrap();
        assert_eq!(claim(&store, "n").await.unwrap(), Fresh);
    }
    for ahead in [-3_600, -62, 62, 3_600] {
        match opened(FIT, ahead, "+OK\r\n").await {
            Err(Cause::Clock { ahead_ms }) => assert_eq!(ahead_ms.signum(), ahead.signum()),
            other => panic!("{ahead}: {other:?}"),
        }
    }
}

// rule: SIGN-48
#[tokio::test]
async fn whatever_a_server_answers_but_ok_is_not_fresh() {
    let refusals = [
        (Cause::Full, "-OOM command not allowed when used memory > 'maxmemory'.\r\n"),
        (Cause::Refused, "-READONLY You can't write against a read only replica.\r\n"),
        (Cause::Refused, "-MISCONF Redis is configured to save RDB snapshots\r\n"),
        (Cause::Refused, "-LOADING Redis is loading the dataset in memory\r\n"),
        (Cause::Refused, "+QUEUED\r\n"),
        (Cause::Refused, ":1\r\n"),
        (Cause::Refused, "$2\r\nno\r\n"),
    ];
    for (expected, set) in refusals {
        let store = opened(FIT, 0, set).await.unwrap();
        for _ in 0..2 {
            assert_eq!(cause(&store, "n").await, expected, "{set}");
        }
    }
    let store = opened(FIT, 0, "$-1\r\n").await.unwrap();
    assert_eq!(claim(&store, "n").await.unwrap(), Replayed);
}

// ---- PostgreSQL -----------------------------------------------------------------------------

/// Makes a server's clock differ for one schema, whose functions are found first.
async fn set_clock(place: &Place, ahead: i64) {
    sql(&format!(
        "create or replace function {}.clock_timestamp() returns timestamptz language sql as \
         $$ select pg_catalog.clock_timestamp() + interval '{ahead} s' $$",
        place.name
    ))
    .await;
}

// rule: SIGN-53
#[tokio::test]
async fn a_database_whose_clock_is_off_is_refused() {
    let place = Place::new(Kind::Postgres).await;
    for (ahead, expected) in [(59, true), (-59, true), (62, false), (-62, false)] {
        set_clock(&place, ahead).await;
        let opened = Postgres::open(&place.postgres_url(None)).await;
        assert_eq!(opened.is_ok(), expected, "{ahead}: {opened:?}");
    }
}

// rule: SIGN-41
#[tokio::test]
async fn the_sweep_waits_for_both_clocks() {
    let slack = STORE_CLOCK_SLACK_MS / 1_000;
    for ahead in [-59, 59] {
        let place = Place::new(Kind::Postgres).await;
        set_clock(&place, ahead).await;
        let store = place.open().await;
        // Of the later of the two clocks these have a few seconds left, and of the other one more.
        let late = if ahead < 0 { 2 } else { 30 };
        let request = genuine_until("a", "n", unix_seconds() + late - slack);
        assert_eq!(store.claim(request.claim()).await.unwrap(), Fresh);
        // Two sweeps and more.
        let until = unix_now().saturating_add(if ahead < 0 { 3_500 } else { 500 });
        while unix_now() < until {
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(place.entries().await, 1, "{ahead}");
        }
    }
}

#[tokio::test]
async fn a_table_that_a_crash_would_empty_is_refused() {
    let place = Place::new(Kind::Postgres).await;
    drop(place.open().await);
    sql(&format!("alter table {}.triwire_nonces set unlogged", place.name)).await;
    let error = Postgres::open(&place.postgres_url(None)).await.unwrap_err().to_string();
    assert!(error.contains("set logged"), "{error}");
}

// ---- One line of a configuration ------------------------------------------------------------

#[tokio::test]
async fn a_text_opens_the_store_that_it_names() {
    let folder = Folder::new();
    let place = Place::new(Kind::Postgres).await;
    let texts = [
        "memory:".to_owned(),
        format!("sqlite:{}", folder.file().display()),
        redis_url(),
        place.postgres_url(None),
    ];
    for text in texts {
        let store = nonces::open(&text).await.unwrap();
        let nonce = unique();
        assert_eq!(claim(&store, &nonce).await.unwrap(), Fresh, "{text}");
        assert_eq!(claim(&store, &nonce).await.unwrap(), Replayed, "{text}");
    }
}

#[tokio::test]
async fn an_error_says_what_to_do_and_shows_no_password() {
    let errors = [
        ("redis://u:hunter2@127.0.0.1:1", "is its server running"),
        ("redis://u:hunter2@[::1", "address cannot be used"),
        ("postgres://u:hunter2@127.0.0.1:1/d", "is its server running"),
        ("postgres://u:hunter2@h:port/d", "address cannot be used"),
        ("mysql://u:hunter2@h/d", "postgres://USER@HOST"),
    ];
    for (text, expected) in errors {
        let error = nonces::open(text).await.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(shown.contains(expected), "{text}: {shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
