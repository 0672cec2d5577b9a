//! The asking end: calls in flight, each of which is settled once, whatever happens.
//!
//! | what happens | how the call is settled |
//! | --- | --- |
//! | its answer comes, over the link that it went out on | by the answer, as it is |
//! | no peer is connected when it is asked | `no-page`, `machine-unreachable`; nothing is sent |
//! | no slot is free | `too-many-calls`; nothing is sent |
//! | its time is up | `page-timeout`, `machine-timeout` |
//! | its link closes or is replaced; it could not be sent | `page-closed`, `machine-closed` |
//!
//! An answer that comes late, twice, for no call of ours or over another link is ignored, and so is
//! one that breaks the contract: the call waits on.
//!
//! ```
//! use triwire::channel::broker::{Broker, Event, Request, Slot};
//! use triwire::channel::envelope::{Object, Outcome};
//! use triwire::channel::refusal::{Peer, Refusal};
//! use triwire::time::Instant;
//!
//! let at = Instant::from_millis;
//! let salt = 0x1234_5678_9abc_def0; // random, from the caller
//! let mut broker = Broker::new([Slot::EMPTY; 8], Peer::Page, salt);
//! let link = broker.link_up(at(0));
//!
//! let mut out = [0; 512];
//! let request = Request::new("notes", "read", Object::EMPTY, Object::EMPTY);
//! let asked = broker.ask(at(10), request, &mut out)?;
//! // asked.message goes out; whoever waits is kept by asked.call.index().
//! # assert!(asked.message.starts_with(br#"{"v":1,"callId":"rt_"#));
//! let call = asked.call;
//!
//! let id = broker.call_id(call);
//! let answer = format!(r#"{{"v":1,"callId":"{id}","ok":true,"observed":{{"lines":3}}}}"#);
//! match broker.feed(at(20), link, answer.as_bytes()) {
//!     Event::Answered { call: answered, outcome: Outcome::Observed(observed) } => {
//!         assert_eq!((answered, observed.as_str()), (call, r#"{"lines":3}"#));
//!     }
//!     other => panic!("{other:?}"),
//! }
//!
//! let call = broker.ask(at(30), request, &mut out)?.call;
//! assert_eq!(broker.deadline(), Some(at(5_030)));
//! let settled = broker.poll(at(5_030)).expect("its time is up");
//! assert_eq!((settled.call, settled.refusal), (call, Refusal::PageTimeout));
//! assert_eq!(broker.poll(at(5_030)), None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::fmt;
use core::time::Duration;

use super::envelope::{Answer, Call, EnvelopeError, EnvelopeFault, MAX_MESSAGE, Object, Outcome};
use super::queue::Queue;
use super::refusal::{Peer, Refusal};
use crate::OutTooSmall;
use crate::json::Text;
use crate::time::Instant;

pub use super::queue::Slot;

/// How long a call waits for its answer by default.
pub const DEFAULT_PATIENCE: Duration = Duration::from_millis(5_000);

/// What the ids of calls begin with.
const ID_PREFIX: &[u8; 3] = b"rt_";
/// Digits of 5 bits that hold 64.
const DIGITS: usize = 13;
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Length of a call's id, in bytes.
pub const CALL_ID_LENGTH: usize = ID_PREFIX.len() + 2 * DIGITS;

/// One connection to the peer; a broker's later ones are others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Link(u64);

/// A call in flight, or one that was: no two of a broker are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct CallKey {
    slot: u32,
    generation: u32,
}

impl CallKey {
    /// Returns the place of the call's slot, below the number of slots: no two calls in flight
    /// share it. For a table of those who wait.
    #[must_use]
    pub const fn index(self) -> usize {
        self.slot as usize
    }
}

/// A call to be made.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The admitted extension.
    pub descriptor_id: &'a str,
    /// The tool of it.
    pub tool: &'a str,
    /// The tool's arguments.
    pub args: Object<'a>,
    /// The bounds with which the extension was admitted.
    pub bounds_echo: Object<'a>,
    /// How long to wait; `None`, and more than the broker's patience, is the broker's.
    pub patience: Option<Duration>,
}

impl<'a> Request<'a> {
    /// Makes a call with the broker's patience.
    #[must_use]
    pub const fn new(
        descriptor_id: &'a str,
        tool: &'a str,
        args: Object<'a>,
        bounds_echo: Object<'a>,
    ) -> Self {
        Self { descriptor_id, tool, args, bounds_echo, patience: None }
    }
}

/// A call that is in flight now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the message has to be sent"]
pub struct Asked<'o> {
    /// The call.
    pub call: CallKey,
    /// What to send. When that fails, tell [`send_failed`](Broker::send_failed).
    pub message: &'o [u8],
}

/// A call that is not in flight; nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum AskError {
    /// The call is refused, and that is its outcome.
    Refused(Refusal),
    /// The message does not fit.
    OutTooSmall(OutTooSmall),
    /// All slots are taken, some by calls that are over: [`poll`](Broker::poll) until `None`, then
    /// ask again.
    PollFirst,
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::OutTooSmall(error) => error.fmt(f),
            Self::PollFirst => {
                f.write_str("calls that are over hold the last slots; poll, then ask again")
            }
        }
    }
}

impl core::error::Error for AskError {}

/// What a message meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'i> {
    /// A call is settled; its slot is free.
    Answered {
        /// The call.
        call: CallKey,
        /// What came of it.
        outcome: Outcome<'i>,
    },
    /// It settled nothing, and was counted.
    Ignored(Ignored),
}

/// Why a message settled nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Ignored {
    /// It is no answer; whichever call it was meant for waits on.
    Malformed(EnvelopeError),
    /// It answers no call in flight on this link: late, the second one, or never asked.
    UnknownCall,
}

impl Ignored {
    /// Returns the word for it: the contract's for what is no answer, else `unknown-call`.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Malformed(error) => error.refusal.as_str(),
            Self::UnknownCall => "unknown-call",
        }
    }
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => error.fmt(f),
            Self::UnknownCall => write!(f, "{}: no such call is in flight", self.as_str()),
        }
    }
}

/// A call that ended without an answer; its slot is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Settled {
    /// The call.
    pub call: CallKey,
    /// Its outcome.
    pub refusal: Refusal,
    /// When it ended, however late it was polled.
    pub at: Instant,
}

/// The calls in flight to one peer, which comes and goes.
///
/// It has as many slots as calls may be in flight, of 32 bytes each. A slot that has had 2^32
/// calls is not used again.
///
/// # Cost
/// A call is found by its id in O(1). Calls that end in the order in which they were asked, as
/// those of one patience do, take O(1) each; one that ends before others asked earlier takes
/// O(log n). A link that closes takes a pass over the calls in flight.
pub struct Broker<S> {
    slots: S,
    queue: Queue,
    salt: u64,
    peer: Peer,
    patience: Duration,
    limit: usize,
    link: Option<Link>,
    links: u64,
    ignored: u64,
}

impl<S: AsRef<[Slot]> + AsMut<[Slot]>> Broker<S> {
    /// Makes a broker without a link; what the slots hold is dropped.
    ///
    /// `salt` makes the ids of its calls: 64 random bits, of no other broker.
    pub fn new(mut slots: S, peer: Peer, salt: u64) -> Self {
        let queue = Queue::new(slots.as_mut());
        Self {
            slots,
            queue,
            salt,
            peer,
            patience: DEFAULT_PATIENCE,
            limit: MAX_MESSAGE,
            link: None,
            links: 0,
            ignored: 0,
        }
    }

    /// Sets how long calls wait for their answers, [`DEFAULT_PATIENCE`] else.
    #[must_use]
    pub const fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sets the longest answer that is read, in bytes, [`MAX_MESSAGE`] else.
    #[must_use]
    pub const fn with_limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Reports whether the peer is connected.
    #[must_use]
    pub const fn connected(&self) -> bool {
        self.link.is_some()
    }

    /// Returns the link that calls go out on.
    #[must_use]
    pub const fn link(&self) -> Option<Link> {
        self.link
    }

    /// Returns how many slots are taken: by calls in flight, and by those over but not polled.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.queue.in_flight() as usize
    }

    /// Returns how many messages were ignored.
    #[must_use]
    pub const fn ignored(&self) -> u64 {
        self.ignored
    }

    /// Connects the peer. A link that was there is replaced: its calls are closed.
    // rule: CHAN-24
    pub fn link_up(&mut self, now: Instant) -> Link {
        self.close(now);
        self.links = self.links.saturating_add(1);
        *self.link.insert(Link(self.links))
    }

    /// Closes the calls of a link that is gone; [`poll`](Self::poll) tells them. Nothing when it
    /// was replaced before.
    pub fn link_down(&mut self, now: Instant, link: Link) {
        if self.link == Some(link) {
            self.close(now);
        }
    }

    fn close(&mut self, now: Instant) {
        if self.link.take().is_some() {
            self.queue.close(self.slots.as_mut(), now);
        }
    }

    /// Makes a call: takes a slot and writes the message into `out`.
    ///
    /// # Errors
    /// The call is refused; the message does not fit; or ended calls are to be polled first.
    // rule: CHAN-20, CHAN-21
    pub fn ask<'o>(
        &mut self,
        now: Instant,
        request: Request<'_>,
        out: &'o mut [u8],
    ) -> Result<Asked<'o>, AskError> {
        if self.link.is_none() {
            return Err(AskError::Refused(self.peer.not_connected()));
        }
        let slots = self.slots.as_mut();
        let call = self.queue.free().and_then(|slot| {
            let generation = slots.get(slot as usize)?.generation;
            Some(CallKey { slot, generation })
        });
        let Some(call) = call else {
            let due = self.deadline().is_some_and(|deadline| deadline <= now);
            return Err(if due {
                AskError::PollFirst
            } else {
                AskError::Refused(Refusal::TooManyCalls)
            });
        };
        let id = CallId::new(self.salt, call);
        let Request { descriptor_id, tool, args, bounds_echo, patience } = request;
        let message = Call {
            call_id: Text::plain(id.as_str()),
            tool: Text::plain(tool),
            descriptor_id: Text::plain(descriptor_id),
            args,
            bounds_echo,
        }
        .write(out)
        .map_err(AskError::OutTooSmall)?;
        // rule: CHAN-22
        let patience = patience.map_or(self.patience, |patience| patience.min(self.patience));
        self.queue.insert(slots, now.saturating_add(patience));
        Ok(Asked { call, message })
    }

    /// Takes a message that came over `link`.
    ///
    /// # Cost
    /// Linear in the message.
    // rule: CHAN-23, CHAN-25, CHAN-26
    pub fn feed<'i>(&mut self, now: Instant, link: Link, message: &'i [u8]) -> Event<'i> {
        let event = self.judge(now, link, message);
        if let Event::Ignored(_) = event {
            self.ignored = self.ignored.saturating_add(1);
        }
        event
    }

    fn judge<'i>(&mut self, now: Instant, link: Link, message: &'i [u8]) -> Event<'i> {
        if message.len() > self.limit {
            return Event::Ignored(Ignored::Malformed(EnvelopeError {
                refusal: Refusal::MalformedAnswer,
                at: self.limit,
                fault: EnvelopeFault::TooLong { limit: self.limit },
            }));
        }
        let answer = match Answer::parse(message) {
            Ok(answer) => answer,
            Err(error) => return Event::Ignored(Ignored::Malformed(error)),
        };
        let call = CallId::read(self.salt, answer.call_id)
            // All calls of other links are closed.
            .filter(|call| self.link == Some(link) && self.is_open(now, *call));
        let Some(call) = call else { return Event::Ignored(Ignored::UnknownCall) };
        self.queue.remove(self.slots.as_mut(), call.slot);
        Event::Answered { call, outcome: answer.outcome }
    }

    fn slot(&self, call: CallKey) -> Option<&Slot> {
        let slot = self.slots.as_ref().get(call.slot as usize)?;
        (slot.is_in_flight() && slot.generation == call.generation).then_some(slot)
    }

    /// Whether an answer may settle the call.
    fn is_open(&self, now: Instant, call: CallKey) -> bool {
        self.slot(call).is_some_and(|slot| !slot.is_closed() && now < slot.deadline())
    }

    /// Returns a call that ended without an answer at `now` or before, in the order in which they
    /// ended.
    pub fn poll(&mut self, now: Instant) -> Option<Settled> {
        let index = self.queue.first(self.slots.as_ref())?;
        let slot = self.slots.as_ref().get(index as usize)?;
        if slot.deadline() > now {
            return None;
        }
        let call = CallKey { slot: index, generation: slot.generation };
        Some(self.settle(call, *slot))
    }

    fn settle(&mut self, call: CallKey, slot: Slot) -> Settled {
        self.queue.remove(self.slots.as_mut(), call.slot);
        let refusal = if slot.is_closed() { self.peer.closed() } else { self.peer.timed_out() };
        Settled { call, refusal, at: slot.deadline() }
    }

    /// Returns when [`poll`](Self::poll) has something next; `None` while nothing is in flight.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let index = self.queue.first(self.slots.as_ref())?;
        self.slots.as_ref().get(index as usize).map(Slot::deadline)
    }

    /// Settles a call whose message could not be sent; `None` when it was settled before.
    // rule: CHAN-27
    #[must_use = "it is the call's outcome"]
    pub fn send_failed(&mut self, now: Instant, call: CallKey) -> Option<Settled> {
        let slot = *self.slot(call)?;
        if slot.is_closed() || slot.deadline() <= now {
            return Some(self.settle(call, slot));
        }
        self.queue.remove(self.slots.as_mut(), call.slot);
        Some(Settled { call, refusal: self.peer.closed(), at: now })
    }

    /// Gives a call up: nobody waits for it, and an answer that comes is ignored. Reports whether
    /// it was in flight.
    // rule: CHAN-28
    pub fn cancel(&mut self, call: CallKey) -> bool {
        self.slot(call).is_some() && self.queue.remove(self.slots.as_mut(), call.slot).is_some()
    }

    /// Returns the id under which a call travels.
    #[must_use]
    pub fn call_id(&self, call: CallKey) -> CallId {
        CallId::new(self.salt, call)
    }
}

impl<S> fmt::Debug for Broker<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker")
            .field("peer", &self.peer)
            .field("link", &self.link)
            .field("waiting", &self.queue.in_flight())
            .field("ignored", &self.ignored)
            .finish_non_exhaustive()
    }
}

/// The `callId` of a call: `rt_`, the broker's salt, and which call it is, in base32.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallId([u8; CALL_ID_LENGTH]);

impl CallId {
    // rule: CHAN-29
    fn new(salt: u64, call: CallKey) -> Self {
        let mut id = [0; CALL_ID_LENGTH];
        let key = (u64::from(call.slot) << 32) | u64::from(call.generation);
        if let Some((prefix, digits)) = id.split_at_mut_checked(ID_PREFIX.len()) {
            prefix.copy_from_slice(ID_PREFIX);
            for (digits, number) in digits.chunks_exact_mut(DIGITS).zip([salt, key]) {
                write_digits(number, digits);
            }
        }
        Self(id)
    }

    /// Reads an id of this broker's, as it writes them.
    fn read(salt: u64, id: Text<'_>) -> Option<CallKey> {
        let mut room = [0; CALL_ID_LENGTH];
        let id = match id.as_str() {
            Some(id) => id,
            None => id.decode(&mut room).ok()?,
        };
        let digits = id.as_bytes().strip_prefix(ID_PREFIX)?;
        let (first, second) = digits.split_at_checked(DIGITS)?;
        if read_digits(first)? != salt {
            return None;
        }
        let key = read_digits(second)?;
        // The upper and the lower half.
        Some(CallKey { slot: (key >> 32) as u32, generation: key as u32 })
    }

    /// Returns the id's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CallId({self})")
    }
}

fn write_digits(mut number: u64, digits: &mut [u8]) {
    for digit in digits.iter_mut().rev() {
        *digit = ALPHABET.get((number & 31) as usize).copied().unwrap_or_default();
        number >>= 5;
    }
}

fn read_digits(digits: &[u8]) -> Option<u64> {
    if digits.len() != DIGITS {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| {
        let value = match digit {
            b'a'..=b'z' => digit.wrapping_sub(b'a'),
            b'2'..=b'7' => digit.wrapping_sub(b'2').wrapping_add(26),
            _ => return None,
        };
        Some(number.checked_mul(32)? | u64::from(value))
    })
}
