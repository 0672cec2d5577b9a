//! What a channel counts: chairs and calls, never a word of a call.

use std::array::from_fn;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use triwire::channel::envelope;
use triwire::channel::refusal::{Peer, Refusal};

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CallEnd {
    /// The executor carried it out.
    Observed,
    /// The executor refused it.
    Refused,
    /// Nobody held the chair.
    NotConnected,
    /// No answer came in time.
    TimedOut,
    /// The executor left, or was replaced.
    Closed,
    /// There was no room for it.
    TooMany,
    /// It could not be written.
    Malformed,
    /// Its caller went away.
    GivenUp,
}

impl CallEnd {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 8] = [
        Self::Observed,
        Self::Refused,
        Self::NotConnected,
        Self::TimedOut,
        Self::Closed,
        Self::TooMany,
        Self::Malformed,
        Self::GivenUp,
    ];

    /// Returns the end's name in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Observed => "observed",
            Self::Refused => "refused",
            Self::NotConnected => "not_connected",
            Self::TimedOut => "timed_out",
            Self::Closed => "closed",
            Self::TooMany => "too_many",
            Self::Malformed => "malformed",
            Self::GivenUp => "given_up",
        }
    }

    pub(super) const fn of_answer(outcome: envelope::Outcome<'_>) -> Self {
        match outcome {
            envelope::Outcome::Observed(_) => Self::Observed,
            envelope::Outcome::Refused { .. } => Self::Refused,
        }
    }

    /// The end by a refusal of our own.
    pub(super) const fn of_refusal(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NoPage | Refusal::MachineUnreachable => Self::NotConnected,
            Refusal::PageTimeout | Refusal::MachineTimeout => Self::TimedOut,
            Refusal::PageClosed | Refusal::MachineClosed => Self::Closed,
            Refusal::TooManyCalls => Self::TooMany,
            _ => Self::Malformed,
        }
    }
}

/// The figures of all executors of one kind, since the chairs were made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallMetrics {
    /// The kind.
    pub peer: Peer,
    /// Executors that are connected.
    pub seated: u64,
    /// Calls that wait for their answers.
    pub in_flight: u64,
    ends: [u64; CallEnd::ALL.len()],
}

impl CallMetrics {
    /// Returns how many calls ended so.
    #[must_use]
    pub fn ends(&self, end: CallEnd) -> u64 {
        self.ends.get(end as usize).copied().unwrap_or_default()
    }
}

/// The counters of one kind of executors.
#[derive(Default)]
pub(super) struct Tally([AtomicU64; CallEnd::ALL.len()]);

impl Tally {
    pub(super) fn ended(&self, end: CallEnd) {
        if let Some(counter) = self.0.get(end as usize) {
            counter.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn read(&self, peer: Peer, seated: u64, in_flight: u64) -> CallMetrics {
        let ends = from_fn(|at| self.0.get(at).map_or(0, |counter| counter.load(Relaxed)));
        CallMetrics { peer, seated, in_flight, ends }
    }
}
