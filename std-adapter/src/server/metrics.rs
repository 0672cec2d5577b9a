//! What a server counts: connections, sessions, frames, bytes, refusals and ends.
//!
//! | what | by |
//! | --- | --- |
//! | sessions begun, sessions that run | sandbox, transport |
//! | frames and their payload bytes | sandbox, transport, kind, which is also the direction |
//! | ends | sandbox, transport, [`End`] |
//! | refusals | HTTP status or WebSocket close code, and the contract's word |
//!
//! A session begins when a guest is asked to run a command. Every name is one of the server's own
//! or of the contract's: nothing that a client sends becomes a name, so the number of figures is
//! fixed when the server is made. Counting is a few relaxed additions a frame, whether anybody
//! looks or not.
//!
//! ```
//! use triwire_std::server::Server;
//!
//! let server = Server::builder().build()?;
//! let metrics = server.metrics();
//! assert_eq!((metrics.connections_accepted, metrics.refusals.len()), (0, 0));
//! # Ok::<(), triwire_std::server::SandboxName>(())
//! ```

use std::array::from_fn;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use triwire::exec::frame::Kind;
use triwire::exec::head::Access;

use crate::channel::CallMetrics;
use crate::record::ExecResult;

/// Where [`Builder::metrics`](super::Builder::metrics) has its page.
pub const METRICS_PATH: &str = "/metrics";

/// How a session's frames travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// A POST, its answer the frames.
    OneShot,
    /// A connection that was HTTP before.
    Hijack,
    /// Messages behind an upgrade.
    WebSocket,
}

impl Transport {
    /// All transports.
    pub const ALL: [Self; 3] = [Self::OneShot, Self::Hijack, Self::WebSocket];

    /// Returns the transport's name in metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OneShot => "one-shot",
            Self::Hijack => "hijack",
            Self::WebSocket => "websocket",
        }
    }
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum End {
    /// The command exited, with any code.
    Exited,
    /// A signal ended the command.
    Signaled,
    /// The command ran into its time limit.
    TimedOut,
    /// The command could not be started.
    NotStarted,
    /// The sandbox could not be reached.
    Unreachable,
    /// The sandbox was lost while the command ran.
    Lost,
    /// The client broke the protocol.
    Fault,
    /// The client went away.
    ClientGone,
    /// The server went down.
    Shutdown,
}

impl End {
    /// All ends.
    pub const ALL: [Self; 9] = [
        Self::Exited,
        Self::Signaled,
        Self::TimedOut,
        Self::NotStarted,
        Self::Unreachable,
        Self::Lost,
        Self::Fault,
        Self::ClientGone,
        Self::Shutdown,
    ];

    /// Returns the end's name in metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exited => "exited",
            Self::Signaled => "signaled",
            Self::TimedOut => "timed_out",
            Self::NotStarted => "not_started",
            Self::Unreachable => "unreachable",
            Self::Lost => "lost",
            Self::Fault => "fault",
            Self::ClientGone => "client_gone",
            Self::Shutdown => "shutdown",
        }
    }

    /// The end that a guest's own result tells of.
    pub(super) fn of(result: &ExecResult) -> Self {
        if result.timed_out {
            Self::TimedOut
        } else if !result.signal.is_empty() {
            Self::Signaled
        } else if !result.error.is_empty() {
            Self::NotStarted
        } else {
            Self::Exited
        }
    }
}

/// A server's figures at one time, each since the server was made. They are read one after the
/// other, while sessions run: sums of several may be off by what happened in between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Connections that [`Server::serve`](super::Server::serve) accepted.
    pub connections_accepted: u64,
    /// Those of them that are open.
    pub connections_open: u64,
    /// One entry for each sandbox and transport, by name.
    pub sessions: Vec<SessionMetrics>,
    /// What was refused, by status and word; only what happened. What the HTTP library refuses
    /// by itself, a head that is malformed or too large, is not among them.
    pub refusals: Vec<RefusalMetrics>,
    /// The channel's, one entry for each kind of executors; empty without a channel.
    pub channel: Vec<CallMetrics>,
}

/// The figures of one sandbox over one transport.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionMetrics {
    /// The sandbox's name.
    pub sandbox: Arc<str>,
    /// The transport.
    pub transport: Transport,
    /// Sessions that began.
    pub begun: u64,
    /// Sessions that run.
    pub running: u64,
    frames: [u64; Kind::ALL.len()],
    bytes: [u64; Kind::ALL.len()],
    ends: [u64; End::ALL.len()],
}

impl SessionMetrics {
    /// Returns how many frames of a kind came or were made. Input frames without a byte are not
    /// counted; frames that a client went away from are.
    #[must_use]
    pub fn frames(&self, kind: Kind) -> u64 {
        self.frames.get(place(kind)).copied().unwrap_or_default()
    }

    /// Returns how many payload bytes those frames had.
    #[must_use]
    pub fn bytes(&self, kind: Kind) -> u64 {
        self.bytes.get(place(kind)).copied().unwrap_or_default()
    }

    /// Returns how many sessions ended so.
    #[must_use]
    pub fn ends(&self, end: End) -> u64 {
        self.ends.get(end as usize).copied().unwrap_or_default()
    }
}

/// How often one refusal was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RefusalMetrics {
    /// The HTTP status, or from 1000 the WebSocket close code.
    pub status: u16,
    /// The contract's word; empty when the status says it all.
    pub code: &'static str,
    /// How often.
    pub count: u64,
}

/// Where in the tables of kinds one stands.
fn place(kind: Kind) -> usize {
    (kind as usize).saturating_sub(1)
}

/// Who may read the page of metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsAccess {
    /// Whoever may run commands.
    #[default]
    Keyed,
    /// Whoever reaches the server.
    Open,
}

type Render = dyn Fn(&Metrics) -> String + Send + Sync;

/// The page that shows the figures.
pub(super) struct Page {
    pub(super) access: MetricsAccess,
    pub(super) content_type: &'static str,
    pub(super) render: Box<Render>,
}

impl Page {
    pub(super) fn access<'k>(&self, keys: Access<'k>) -> Access<'k> {
        match self.access {
            MetricsAccess::Keyed => keys,
            MetricsAccess::Open => Access::Open,
        }
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").field("access", &self.access).finish_non_exhaustive()
    }
}

/// All counters of a server.
#[derive(Default)]
pub(super) struct Counters {
    accepted: AtomicU64,
    open: AtomicU64,
    sessions: AtomicU64,
    sandboxes: BTreeMap<Arc<str>, [Arc<Tally>; Transport::ALL.len()]>,
    /// Words and statuses are the core's: there are few.
    refusals: Mutex<BTreeMap<(u16, &'static str), u64>>,
}

/// The counters of one sandbox over one transport.
#[derive(Default)]
pub(super) struct Tally {
    begun: AtomicU64,
    running: AtomicU64,
    frames: [AtomicU64; Kind::ALL.len()],
    bytes: [AtomicU64; Kind::ALL.len()],
    ends: [AtomicU64; End::ALL.len()],
}

impl Counters {
    pub(super) fn new<'s>(sandboxes: impl Iterator<Item = &'s String>) -> Self {
        let tallies = |name: &String| (name.as_str().into(), from_fn(|_| Arc::default()));
        Self { sandboxes: sandboxes.map(tallies).collect(), ..Self::default() }
    }

    /// Numbers a session, for logs.
    pub(super) fn number(&self) -> u64 {
        self.sessions.fetch_add(1, Relaxed).saturating_add(1)
    }

    /// Counts a connection until what it returns is dropped.
    pub(super) fn connection(&self) -> impl Drop + '_ {
        struct Open<'c>(&'c AtomicU64);
        impl Drop for Open<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Relaxed);
            }
        }
        self.accepted.fetch_add(1, Relaxed);
        self.open.fetch_add(1, Relaxed);
        Open(&self.open)
    }

    pub(super) fn refused(&self, status: u16, code: &'static str) {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        let count = refusals.entry((status, code)).or_default();
        *count = count.saturating_add(1);
    }

    /// Finds where a sandbox's sessions are counted.
    pub(super) fn of(&self, sandbox: &str, transport: Transport) -> Arc<Tally> {
        let tallies = self.sandboxes.get(sandbox).and_then(|all| all.get(transport as usize));
        tallies.map(Arc::clone).unwrap_or_default()
    }

    pub(super) fn read(&self) -> Metrics {
        let of_one = |(name, tallies): (&Arc<str>, &[Arc<Tally>; 3])| {
            let name = Arc::clone(name);
            let each = Transport::ALL.into_iter().zip(tallies.clone());
            each.map(move |(transport, tally)| tally.read(Arc::clone(&name), transport))
        };
        let refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        let refusal = |(&(status, code), &count)| RefusalMetrics { status, code, count };
        Metrics {
            connections_accepted: self.accepted.load(Relaxed),
            connections_open: self.open.load(Relaxed),
            sessions: self.sandboxes.iter().flat_map(of_one).collect(),
            refusals: refusals.iter().map(refusal).collect(),
            channel: Vec::new(),
        }
    }
}

impl Tally {
    /// Counts a session that begins.
    pub(super) fn begin(self: &Arc<Self>) -> Session {
        self.begun.fetch_add(1, Relaxed);
        self.running.fetch_add(1, Relaxed);
        Session { tally: Arc::clone(self), end: None }
    }

    fn read(&self, sandbox: Arc<str>, transport: Transport) -> SessionMetrics {
        let all = |counters: &[AtomicU64; Kind::ALL.len()]| {
            from_fn(|at| counters.get(at).map_or(0, |counter| counter.load(Relaxed)))
        };
        SessionMetrics {
            sandbox,
            transport,
            begun: self.begun.load(Relaxed),
            running: self.running.load(Relaxed),
            frames: all(&self.frames),
            bytes: all(&self.bytes),
            ends: from_fn(|at| self.ends.get(at).map_or(0, |counter| counter.load(Relaxed))),
        }
    }
}

/// A session that is counted: it runs until this is dropped. When nothing else was said, its
/// client went away.
pub(super) struct Session {
    tally: Arc<Tally>,
    end: Option<End>,
}

impl Session {
    /// Counts a frame.
    pub(super) fn frame(&self, kind: Kind, payload: usize) {
        if let Some(frames) = self.tally.frames.get(place(kind)) {
            frames.fetch_add(1, Relaxed);
        }
        self.payload(kind, payload);
    }

    /// Counts more payload of a frame.
    pub(super) fn payload(&self, kind: Kind, payload: usize) {
        if let Some(bytes) = self.tally.bytes.get(place(kind)) {
            bytes.fetch_add(payload as u64, Relaxed);
        }
    }

    /// Says how it ends; the first word counts.
    pub(super) fn ends(&mut self, end: End) {
        self.end.get_or_insert(end);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.tally.running.fetch_sub(1, Relaxed);
        let end = self.end.unwrap_or(End::ClientGone);
        if let Some(ends) = self.tally.ends.get(end as usize) {
            ends.fetch_add(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_its_own_place() {
        for (at, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(place(kind), at);
        }
        for (at, end) in End::ALL.into_iter().enumerate() {
            assert_eq!(end as usize, at);
        }
        for (at, transport) in Transport::ALL.into_iter().enumerate() {
            assert_eq!(transport as usize, at);
        }
    }

    #[test]
    fn results_tell_their_end() {
        let base = ExecResult::default;
        let killed = || ExecResult { signal: "SIGKILL".into(), exit_code: -1, ..base() };
        let cases = [
            (base(), End::Exited),
            (ExecResult { exit_code: 3, ..base() }, End::Exited),
            (killed(), End::Signaled),
            (ExecResult { timed_out: true, ..killed() }, End::TimedOut),
            (ExecResult { error: "not found".into(), exit_code: -1, ..base() }, End::NotStarted),
        ];
        for (result, end) in cases {
            assert_eq!(End::of(&result), end, "{result:?}");
        }
    }

    #[test]
    fn a_session_counts_while_it_lives_and_ends_once() {
        let counters = Counters::new([String::from("local")].iter());
        let tally = counters.of("local", Transport::Hijack);
        let session = tally.begin();
        session.frame(Kind::Stdin, 3);
        session.payload(Kind::Stdin, 4);
        let of = || counters.read().sessions.swap_remove(Transport::Hijack as usize);
        assert_eq!((of().begun, of().running), (1, 1));
        assert_eq!((of().frames(Kind::Stdin), of().bytes(Kind::Stdin)), (1, 7));
        drop(session);
        let mut session = tally.begin();
        session.ends(End::Lost);
        session.ends(End::Exited);
        drop(session);
        assert_eq!((of().begun, of().running), (2, 0));
        let ends: Vec<_> = End::ALL.into_iter().filter(|end| of().ends(*end) > 0).collect();
        assert_eq!(ends, [End::Lost, End::ClientGone]);
        // What no sandbox is named by is counted nowhere.
        counters.of("other", Transport::Hijack).begin();
        assert_eq!(of().begun, 2);
        assert_eq!(counters.read().sessions.len(), 3);
    }
}
