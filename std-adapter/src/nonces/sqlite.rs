use std::fmt;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, TransactionBehavior, params};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use triwire::signed::{Claim, Claimed};
use triwire::time::UnixMillis;

use super::{CLAIM_LIMIT, Cause, DEFAULT_CAPACITY, Nonces, OpenError, Unavailable, in_time};
use crate::clock;

/// Claims that wait for the writer at most; further ones wait for a place.
const QUEUE: usize = 4096;

/// Claims that one transaction takes at most.
const GROUP: usize = 1024;

/// Expired entries that a transaction deletes beyond the number of those that it adds.
const SWEEP_MORE: usize = 256;

/// `trwn`: what SQLite keeps in the head of a file to tell programs' files apart.
const APPLICATION_ID: i32 = 0x7472_776E;

/// The version of the tables.
const VERSION: i32 = 1;

const TABLES: &str = "\
    create table nonces (digest blob primary key, forget_after integer not null) \
        without rowid, strict; \
    create index nonces_forget_after on nonces (forget_after); \
    create table held (nonces integer not null, forgotten integer not null) strict; \
    insert into held values (0, 0);";

const CLAIM: &str = "insert into nonces values (?1, ?2) on conflict do nothing";
const FIND: &str = "select true from nonces where digest = ?1";
const SWEEP: &str = "delete from nonces where digest in \
    (select digest from nonces where forget_after < ?1 order by forget_after limit ?2)";
const HELD: &str = "select nonces, forgotten from held";
const SET_HELD: &str = "update held set nonces = ?1, forgotten = ?2";

/// Nonces in one SQLite file, shared by the processes of one machine.
///
/// Survives `kill -9` and power loss at any moment: a claim is answered only after the commit that
/// made its entry is on the disk (write-ahead log, `synchronous=FULL`). Claims that wait together
/// go into one transaction. Expired entries are deleted as new ones come, a bounded number at a
/// time.
///
/// The file is made readable for its owner alone. It must lie on a disk of this machine: the log
/// does not work over network file systems. A file that is moved, replaced or removed while the
/// store is open makes it unavailable; it is never made anew, which would forget every nonce.
///
/// ```
/// use triwire_std::nonces::Sqlite;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let path = std::env::temp_dir().join(format!("triwire-doc-{}", std::process::id()));
/// let store = Sqlite::builder(&path).capacity(50_000).open().await?;
/// # drop(store);
/// # for end in ["", "-wal", "-shm"] {
/// #     let _ = std::fs::remove_file(format!("{}{end}", path.display()));
/// # }
/// # Ok(())
/// # }
/// ```
pub struct Sqlite {
    waiting: mpsc::Sender<Waiting>,
    limit: Duration,
}

/// Sets up a [`Sqlite`].
#[derive(Clone, Debug)]
pub struct SqliteBuilder {
    path: PathBuf,
    capacity: usize,
    limit: Duration,
}

/// A claim that waits for its transaction.
struct Waiting {
    digest: [u8; 12],
    forget_after: i64,
    answer: oneshot::Sender<Result<Claimed, Unavailable>>,
}

impl Sqlite {
    /// Opens the store in a file; makes the file when it is not there.
    ///
    /// # Errors
    /// As of [`SqliteBuilder::open`].
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::builder(path).open().await
    }

    /// Starts to set up a store in a file.
    #[must_use]
    pub fn builder(path: impl AsRef<Path>) -> SqliteBuilder {
        SqliteBuilder {
            path: path.as_ref().to_owned(),
            capacity: DEFAULT_CAPACITY,
            limit: CLAIM_LIMIT,
        }
    }
}

impl SqliteBuilder {
    /// Sets how many nonces the file holds at most, about 100 bytes each; 1 000 000 by default.
    #[must_use]
    pub fn capacity(mut self, nonces: usize) -> Self {
        self.capacity = nonces;
        self
    }

    /// Sets how long a claim waits at most, for other processes too; 2 s by default.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Opens the file, or makes it, and starts the thread that writes to it. The thread ends when
    /// the store is dropped.
    ///
    /// # Errors
    /// [`OpenError`]: the file cannot be opened, is open to every user, is no database or another
    /// program's, or stays locked.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn open(self) -> Result<Sqlite, OpenError> {
        let limit = self.limit;
        let (waiting, claims) = mpsc::channel(QUEUE);
        let opened = tokio::task::spawn_blocking(move || {
            let writer = Writer::open(&self)?;
            thread::Builder::new()
                .name("triwire-nonces".to_owned())
                .spawn(move || writer.run(claims))
                .map_err(|error| failed(&self.path, error))
        });
        // The closure does not panic; a runtime that shuts down ends it.
        opened.await.map_err(|_| Unavailable::new(Cause::Lost))??;
        Ok(Sqlite { waiting, limit })
    }
}

impl Nonces for Sqlite {
    async fn claim<'a>(&'a self, claim: Claim<'a>) -> Result<Claimed, Unavailable> {
        in_time(clock::unix_now(), claim)?;
        let forget_after = i64::try_from(claim.forget_after().get());
        let forget_after = forget_after.map_err(|_| Unavailable::new(Cause::TooLate))?;
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting { digest: claim.digest(), forget_after, answer };
        let claimed = async {
            let lost = || Unavailable::new(Cause::Lost);
            self.waiting.send(waiting).await.map_err(|_| lost())?;
            answered.await.unwrap_or_else(|_| Err(lost()))
        };
        let slow = Unavailable::new(Cause::Slow { after: self.limit });
        timeout(self.limit, claimed).await.unwrap_or(Err(slow))
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").finish_non_exhaustive()
    }
}

/// The one that writes to the file.
struct Writer {
    path: PathBuf,
    file: Identity,
    connection: Connection,
    capacity: usize,
    limit: Duration,
}

impl Writer {
    fn open(builder: &SqliteBuilder) -> Result<Self, OpenError> {
        // A name that SQLite gives a meaning of its own, such as `:memory:`, is a path here.
        let path = std::path::absolute(&builder.path);
        let path = path.map_err(|error| failed(&builder.path, error))?;
        create(&path).map_err(|error| failed(&path, error))?;
        permissions(&path)?;
        let file = Identity::of(&path).map_err(|error| failed(&path, error))?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection =
            Connection::open_with_flags(&path, flags).map_err(|error| failed(&path, error))?;
        match set_up(&mut connection, builder.limit) {
            Ok(true) => {}
            Ok(false) => return Err(OpenError::Foreign { path }),
            Err(error) => return Err(failed(&path, error)),
        }
        Ok(Self { path, file, connection, capacity: builder.capacity, limit: builder.limit })
    }

    fn run(mut self, mut claims: mpsc::Receiver<Waiting>) {
        let mut group = Vec::with_capacity(GROUP);
        let mut outcomes = Vec::with_capacity(GROUP);
        while claims.blocking_recv_many(&mut group, GROUP) > 0 {
            // A claim whose future was dropped before its turn is not made.
            group.retain(|waiting| !waiting.answer.is_closed());
            // Neighbours share pages; claims of one name keep their order.
            group.sort_by_key(|waiting| waiting.digest);
            outcomes.clear();
            // Nobody waits any more for the answer of a future that was dropped meanwhile.
            match self.commit(&group, &mut outcomes) {
                Ok(()) => {
                    for (waiting, outcome) in group.drain(..).zip(outcomes.drain(..)) {
                        drop(waiting.answer.send(outcome));
                    }
                }
                Err(unavailable) => {
                    for waiting in group.drain(..) {
                        drop(waiting.answer.send(Err(unavailable.clone())));
                    }
                }
            }
        }
    }

    /// Makes the entries of a group in one transaction. The outcomes, one for each claim, hold
    /// only when it is `Ok`: then it is on the disk.
    fn commit(
        &mut self,
        group: &[Waiting],
        outcomes: &mut Vec<Result<Claimed, Unavailable>>,
    ) -> Result<(), Unavailable> {
        let moved = |error| Unavailable::with(Cause::Refused, error);
        if Identity::of(&self.path).map_err(moved)? != self.file {
            return Err(moved(io::Error::other("the file was replaced by another one")));
        }
        let now = clock::unix_now();
        let committed = claim_all(&mut self.connection, group, self.capacity, now, outcomes);
        committed.map_err(|error| self.unavailable(error))
    }

    fn unavailable(&self, error: rusqlite::Error) -> Unavailable {
        let cause = match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Cause::Slow { after: self.limit }
            }
            Some(ErrorCode::DiskFull) => Cause::Full,
            _ => Cause::Refused,
        };
        Unavailable::with(cause, error)
    }
}

fn claim_all(
    connection: &mut Connection,
    group: &[Waiting],
    capacity: usize,
    now: UnixMillis,
    outcomes: &mut Vec<Result<Claimed, Unavailable>>,
) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    {
        let now = i64::try_from(now.get()).unwrap_or(i64::MAX);
        let sweep = i64::try_from(group.len() + SWEEP_MORE).unwrap_or(i64::MAX);
        let swept = transaction.prepare_cached(SWEEP)?.execute(params![now, sweep])?;
        let (held, forgotten): (i64, i64) = transaction
            .prepare_cached(HELD)?
            .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let mut held = usize::try_from(held).unwrap_or(0).saturating_sub(swept);
        // While the clock is not set back, every claim ends later.
        let forgotten = if swept > 0 { forgotten.max(now) } else { forgotten };
        let mut claim = transaction.prepare_cached(CLAIM)?;
        let mut find = transaction.prepare_cached(FIND)?;
        for waiting in group {
            if waiting.forget_after < forgotten {
                outcomes.push(Err(Unavailable::new(Cause::TooLate)));
                continue;
            }
            let fresh = if held < capacity {
                claim.execute(params![waiting.digest, waiting.forget_after])? == 1
            } else if find.query_row([&waiting.digest], |_| Ok(())).optional()?.is_none() {
                outcomes.push(Err(Unavailable::new(Cause::Full)));
                continue;
            } else {
                false
            };
            held += usize::from(fresh);
            outcomes.push(Ok(if fresh { Claimed::Fresh } else { Claimed::Replayed }));
        }
        let held = i64::try_from(held).unwrap_or(i64::MAX);
        transaction.prepare_cached(SET_HELD)?.execute([held, forgotten])?;
    }
    transaction.commit()
}

/// Prepares a connection, and makes the tables in an empty file; `false` when the file is no store
/// of this version.
fn set_up(connection: &mut Connection, limit: Duration) -> rusqlite::Result<bool> {
    connection.busy_timeout(limit)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "journal_size_limit", 16 << 20)?;
    // Two processes that open a new file at once: one makes the tables, the other finds them.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let number = |name| transaction.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let ours = match (number("application_id")?, number("user_version")?) {
        (APPLICATION_ID, VERSION) => true,
        (0, 0) if number("schema_version")? == 0 => {
            transaction.execute_batch(TABLES)?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
            transaction.pragma_update(None, "user_version", VERSION)?;
            true
        }
        _ => false,
    };
    transaction.commit()?;
    if ours {
        connection.pragma_update(None, "journal_mode", "WAL")?;
    }
    Ok(ours)
}

/// Makes the file for its owner alone, unless it is there.
fn create(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

/// Who may write the file can make it forget, and who may read it can hold its lock.
#[cfg(unix)]
fn permissions(path: &Path) -> Result<(), OpenError> {
    use std::os::unix::fs::PermissionsExt;

    let metadata = fs::metadata(path).map_err(|error| failed(path, error))?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o007 == 0 {
        Ok(())
    } else {
        Err(OpenError::Permissions { path: path.to_owned(), mode })
    }
}

#[cfg(not(unix))]
fn permissions(_: &Path) -> Result<(), OpenError> {
    Ok(())
}

/// Which file a path leads to.
#[derive(PartialEq, Eq)]
struct Identity([u64; 2]);

impl Identity {
    #[cfg(unix)]
    fn of(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt;

        fs::metadata(path).map(|metadata| Self([metadata.dev(), metadata.ino()]))
    }

    #[cfg(not(unix))]
    fn of(path: &Path) -> io::Result<Self> {
        // An open file can be neither moved nor removed there.
        fs::metadata(path).map(|_| Self([0; 2]))
    }
}

fn failed(path: &Path, error: impl std::error::Error + Send + Sync + 'static) -> OpenError {
    OpenError::File { path: path.to_owned(), source: Arc::new(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store without a file and without a thread, whose time is an argument.
    struct Store(Connection);

    impl Store {
        fn new() -> Self {
            let mut connection = Connection::open_in_memory().unwrap();
            assert!(set_up(&mut connection, CLAIM_LIMIT).unwrap());
            Self(connection)
        }

        /// Claims names, of which one byte tells them apart, up to three held at once.
        fn claim(&mut self, now: u64, names: &[(u8, i64)]) -> Vec<Result<Claimed, Cause>> {
            let waiting = |(name, forget_after): &(u8, i64)| {
                let (answer, _) = oneshot::channel();
                Waiting { digest: [*name; 12], forget_after: *forget_after, answer }
            };
            let group: Vec<Waiting> = names.iter().map(waiting).collect();
            let mut outcomes = Vec::new();
            claim_all(&mut self.0, &group, 3, UnixMillis::new(now), &mut outcomes).unwrap();
            outcomes.into_iter().map(|outcome| outcome.map_err(|error| error.cause())).collect()
        }
    }

    const FRESH: Result<Claimed, Cause> = Ok(Claimed::Fresh);
    const REPLAYED: Result<Claimed, Cause> = Ok(Claimed::Replayed);

    // rule: SIGN-40, SIGN-48
    #[test]
    fn a_group_is_claimed_in_its_order() {
        let mut store = Store::new();
        let outcomes = store.claim(10, &[(1, 20), (1, 20), (2, 20), (3, 20), (4, 20), (2, 20)]);
        assert_eq!(outcomes, [FRESH, REPLAYED, FRESH, FRESH, Err(Cause::Full), REPLAYED]);
        assert_eq!(store.claim(20, &[(4, 30), (3, 20)]), [Err(Cause::Full), REPLAYED]);
    }

    // rule: SIGN-45, SIGN-49
    #[test]
    fn what_was_forgotten_makes_room_and_a_clock_set_back_does_not_bring_it_back() {
        let mut store = Store::new();
        assert_eq!(store.claim(10, &[(1, 20), (2, 40)]), [FRESH, FRESH]);
        assert_eq!(store.claim(20, &[(1, 20)]), [REPLAYED]);
        assert_eq!(store.claim(21, &[(3, 40), (4, 40), (5, 40)]), [FRESH, FRESH, Err(Cause::Full)]);
        assert_eq!(store.claim(10, &[(1, 20), (2, 40)]), [Err(Cause::TooLate), REPLAYED]);
    }
}
