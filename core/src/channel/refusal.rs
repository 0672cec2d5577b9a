//! The words in which a call is refused, and those of a peer that is not there.
//!
//! | what is wrong | when a page is the peer | when a machine is the peer |
//! | --- | --- | --- |
//! | the peer is not connected | `no-page` | `machine-unreachable` |
//! | no answer in time | `page-timeout` | `machine-timeout` |
//! | the connection closed with the call in flight | `page-closed` | `machine-closed` |
//!
//! The words are the wire; [`why`](Refusal::why) is for people and may change.
//!
//! ```
//! use triwire::channel::refusal::{Peer, Refusal};
//!
//! assert_eq!(Peer::Page.not_connected().as_str(), "no-page");
//! assert_eq!(Peer::Machine.closed().as_str(), "machine-closed");
//! assert_eq!(Refusal::from_word("bounds-mismatch"), Some(Refusal::BoundsMismatch));
//! ```

use core::fmt;

/// Who is at the other end: it chooses the words for its absence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Peer {
    /// A page in a browser.
    Page,
    /// A machine: a paired environment, a device.
    Machine,
}

impl Peer {
    /// Returns the refusal of a call made while the peer is not connected.
    #[must_use]
    pub const fn not_connected(self) -> Refusal {
        match self {
            Self::Page => Refusal::NoPage,
            Self::Machine => Refusal::MachineUnreachable,
        }
    }

    /// Returns the refusal of a call that got no answer in time.
    #[must_use]
    pub const fn timed_out(self) -> Refusal {
        match self {
            Self::Page => Refusal::PageTimeout,
            Self::Machine => Refusal::MachineTimeout,
        }
    }

    /// Returns the refusal of a call whose connection closed before the answer.
    #[must_use]
    pub const fn closed(self) -> Refusal {
        match self {
            Self::Page => Refusal::PageClosed,
            Self::Machine => Refusal::MachineClosed,
        }
    }
}

/// A refusal of this library's own. What an executor refuses with is a word of its own, and passes
/// as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Refusal {
    /// No page is connected.
    NoPage,
    /// The page did not answer in time.
    PageTimeout,
    /// The page's connection closed before it answered.
    PageClosed,
    /// The machine is not connected.
    MachineUnreachable,
    /// The machine did not answer in time.
    MachineTimeout,
    /// The machine's connection closed before it answered.
    MachineClosed,
    /// The message is no call.
    MalformedCall,
    /// The message is no answer.
    MalformedAnswer,
    /// The envelope has a member that the contract does not know.
    UnknownField,
    /// The envelope is of another version than 1.
    BadVersion,
    /// The call names no admitted extension, or not completely.
    UnattributedCall,
    /// The call echoes other bounds than those admitted.
    BoundsMismatch,
    /// The executor failed.
    ExecThrew,
    /// The executor refused and gave no rule.
    UnknownRefusal,
    /// The tool's requests are used up.
    BudgetExhausted,
    /// A call of this id is running on this link (our word; the contract is silent).
    DuplicateCall,
    /// As many calls are in flight, or running, as there is room for (our word; the contract is
    /// silent).
    TooManyCalls,
    /// The connection did not say in time who it is.
    ExecutorUnauthenticated,
    /// The bearer is none that was issued.
    BearerRefused,
    /// The bearer's pairing was revoked.
    PairingRevoked,
    /// The pairings cannot be read, so nobody can be told apart.
    PairingListUnreadable,
    /// Another executor took the chair (our word; the contract is silent).
    Replaced,
}

impl Refusal {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 22] = [
        Self::NoPage,
        Self::PageTimeout,
        Self::PageClosed,
        Self::MachineUnreachable,
        Self::MachineTimeout,
        Self::MachineClosed,
        Self::MalformedCall,
        Self::MalformedAnswer,
        Self::UnknownField,
        Self::BadVersion,
        Self::UnattributedCall,
        Self::BoundsMismatch,
        Self::ExecThrew,
        Self::UnknownRefusal,
        Self::BudgetExhausted,
        Self::DuplicateCall,
        Self::TooManyCalls,
        Self::ExecutorUnauthenticated,
        Self::BearerRefused,
        Self::PairingRevoked,
        Self::PairingListUnreadable,
        Self::Replaced,
    ];

    /// Returns the word that travels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoPage => "no-page",
            Self::PageTimeout => "page-timeout",
            Self::PageClosed => "page-closed",
            Self::MachineUnreachable => "machine-unreachable",
            Self::MachineTimeout => "machine-timeout",
            Self::MachineClosed => "machine-closed",
            Self::MalformedCall => "malformed-call",
            Self::MalformedAnswer => "malformed-answer",
            Self::UnknownField => "unknown-field",
            Self::BadVersion => "bad-version",
            Self::UnattributedCall => "unattributed-call",
            Self::BoundsMismatch => "bounds-mismatch",
            Self::ExecThrew => "exec-threw",
            Self::UnknownRefusal => "unknown-refusal",
            Self::BudgetExhausted => "budget-exhausted",
            Self::DuplicateCall => "duplicate-call",
            Self::TooManyCalls => "too-many-calls",
            Self::ExecutorUnauthenticated => "executor-unauthenticated",
            Self::BearerRefused => "bearer-refused",
            Self::PairingRevoked => "pairing-revoked",
            Self::PairingListUnreadable => "pairing-list-unreadable",
            Self::Replaced => "replaced",
        }
    }

    /// Returns the refusal of this word, when it is one of ours.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|refusal| refusal.as_str() == word)
    }

    /// Returns what it means and what to do, in at most 100 plain characters.
    #[must_use]
    pub const fn why(self) -> &'static str {
        match self {
            Self::NoPage => "no page is connected; open the page, then call again",
            Self::PageTimeout => "the page did not answer in time",
            Self::PageClosed => "the page closed before it answered; the outcome is unknown",
            Self::MachineUnreachable => "the machine is not connected; start its executor first",
            Self::MachineTimeout => "the machine did not answer in time",
            Self::MachineClosed => {
                "the machine's connection closed before it answered; the outcome is unknown"
            }
            Self::MalformedCall => {
                "expected a call: v, callId, tool, descriptorId, args, boundsEcho, each once"
            }
            Self::MalformedAnswer => {
                "expected v, callId and ok, with observed, or with refused and why, each once"
            }
            Self::UnknownField => "the envelope has a member that the contract does not know",
            Self::BadVersion => "expected v to be the number 1",
            Self::UnattributedCall => {
                "the call names no admitted extension; expected its descriptorId, tool, boundsEcho"
            }
            Self::BoundsMismatch => "boundsEcho differs from the bounds that were admitted",
            Self::ExecThrew => "the executor failed before it had a result",
            Self::UnknownRefusal => "the executor refused and named no rule",
            Self::BudgetExhausted => "the tool's requests are used up",
            Self::DuplicateCall => "a call of this callId is running; each needs its own",
            Self::TooManyCalls => "too many calls at once; wait for answers, then call again",
            Self::ExecutorUnauthenticated => "expected a hello with a bearer as the first message",
            Self::BearerRefused => "the bearer is none that was issued here; pair again",
            Self::PairingRevoked => "the pairing was revoked; pair again",
            Self::PairingListUnreadable => "the list of pairings cannot be read; try again later",
            Self::Replaced => "another executor took this place",
        }
    }
}

impl fmt::Display for Refusal {
    /// Writes the word, and what it means: `bad-version: …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.as_str(), self.why())
    }
}

impl core::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    // rule: CHAN-1
    #[test]
    fn words_are_the_contracts() {
        let table = [
            (Peer::Page, ["no-page", "page-timeout", "page-closed"]),
            (Peer::Machine, ["machine-unreachable", "machine-timeout", "machine-closed"]),
        ];
        for (peer, words) in table {
            let refusals = [peer.not_connected(), peer.timed_out(), peer.closed()];
            assert_eq!(refusals.map(Refusal::as_str), words);
        }
        for refusal in Refusal::ALL {
            assert_eq!(Refusal::from_word(refusal.as_str()), Some(refusal));
            let why = refusal.why();
            assert!(why.len() <= 100 && !why.contains(['"', '\\']) && why.is_ascii(), "{why}");
        }
        assert_eq!(Refusal::from_word("host-not-allowed"), None);
    }
}
