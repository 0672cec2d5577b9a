//! The executing end: which calls run, and that each is answered.
//!
//! | what comes | what the door says |
//! | --- | --- |
//! | a call within its admission, with a slot free | [`Run`](Received::Run): a ticket, to be answered |
//! | a call that may not run | [`Refuse`](Received::Refuse), carrying its `callId` |
//! | nothing that could be answered | [`Ignored`](Received::Ignored), counted |
//!
//! Calls are judged in this order, and the first check that fails decides: the envelope, the
//! admission, the bounds, that no call of this id runs, a free slot, the budget.
//!
//! A ticket is used up by its answer. An executor that fails is [`threw`](Door::threw), one that
//! vanished [`lost`](Door::lost): both are answered `exec-threw`, and the next call works. Where
//! a panic can be caught, the adapter does; without unwinding it ends the program, as always.
//!
//! ```
//! use triwire::channel::admission::{Admission, Table};
//! use triwire::channel::bounds::Bounds;
//! use triwire::channel::door::{Door, Received, Slot};
//! use triwire::channel::envelope::{Object, Outcome};
//!
//! let admissions = Table::new([Admission::new("board", "read", Bounds::EMPTY)]);
//! let mut door = Door::new([Slot::<64>::EMPTY; 2], admissions);
//! let mut out = [0; 512];
//!
//! let call = br#"{"v":1,"callId":"a","tool":"read","descriptorId":"board","args":{},"boundsEcho":{}}"#;
//! let Received::Run(ticket, call) = door.feed(call) else { panic!() };
//! assert_eq!(call.args.as_str(), "{}");
//! let reply = door.threw(ticket, "the sensor does not answer", &mut out)?;
//! assert!(reply.ends_with(br#""refused":"exec-threw","why":"the sensor does not answer"}"#));
//!
//! let call = br#"{"v":1,"callId":"b","tool":"read","descriptorId":"board","grant":"everything"}"#;
//! let Received::Refuse(refused) = door.feed(call) else { panic!() };
//! assert!(refused.write(&mut out)?.starts_with(br#"{"v":1,"callId":"b","ok":false,"refused":"unknown-field""#));
//!
//! let Received::Ignored(_) = door.feed(b"no call") else { panic!() };
//! assert_eq!(door.ignored(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::fmt;

use super::admission::{self, Admissions, BudgetExhausted, CallError};
use super::envelope::{
    self, Answer, Call, DEFAULT_ID_SIZE, EnvelopeError, EnvelopeFault, MAX_MESSAGE, Outcome,
};
use super::queue::NONE;
use super::refusal::Refusal;
use crate::OutTooSmall;
use crate::json::{Text, Writer};

/// Room for one running call, whose id has at most `ID` bytes of UTF-8: 64 in firmware, 256 on
/// hosts.
#[derive(Clone, Copy)]
pub struct Slot<const ID: usize = DEFAULT_ID_SIZE> {
    id: [u8; ID],
    len: usize,
    /// Which use of the slot this is.
    generation: u32,
    state: State,
    /// The first of the running calls whose ids hash to this place: about other calls.
    bucket: u32,
    /// The next of the running calls with this one's hash; of a free slot the next free.
    next: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Running,
}

impl<const ID: usize> Slot<ID> {
    /// Room for a call, with none in it.
    pub const EMPTY: Self =
        Self { id: [0; ID], len: 0, generation: 0, state: State::Free, bucket: NONE, next: NONE };

    fn id(&self) -> &[u8] {
        self.id.get(..self.len).unwrap_or_default()
    }
}

impl<const ID: usize> Default for Slot<ID> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<const ID: usize> fmt::Debug for Slot<ID> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slot({:?})", self.state)
    }
}

/// The right, and the duty, to answer one running call.
///
/// One that is forgotten holds its slot until the link ends.
#[derive(Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[must_use = "every call is answered: with `answer`, `threw` or `lost`"]
pub struct Ticket {
    slot: u32,
    generation: u32,
}

impl Ticket {
    /// Returns the place of the call's slot, below the number of slots: no two running calls share
    /// it.
    #[must_use]
    pub const fn index(&self) -> usize {
        self.slot as usize
    }
}

/// What a message meant.
#[derive(Debug)]
#[must_use]
pub enum Received<'i> {
    /// The call may run.
    Run(Ticket, Call<'i>),
    /// The call may not; the reply is to be sent.
    Refuse(Refused<'i>),
    /// There is nothing to answer; it was counted.
    Ignored(EnvelopeError),
}

/// A call that may not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the refusal has to be sent"]
pub struct Refused<'i> {
    /// The call's id.
    pub call_id: Text<'i>,
    /// Why it may not run.
    pub reason: Reason,
}

/// Why a call may not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Reason {
    /// It breaks the contract or its admission.
    Call(CallError),
    /// A call of its id is running.
    Duplicate,
    /// No slot is free.
    TooMany,
    /// Its tool's requests are used up.
    Budget(BudgetExhausted),
}

impl Reason {
    /// Returns the word that travels.
    #[must_use]
    pub const fn refusal(&self) -> Refusal {
        match self {
            Self::Call(error) => error.refusal(),
            Self::Duplicate => Refusal::DuplicateCall,
            Self::TooMany => Refusal::TooManyCalls,
            Self::Budget(_) => Refusal::BudgetExhausted,
        }
    }
}

impl Refused<'_> {
    /// Writes the reply into `out` and returns the part it takes: at most 6 times the door's `ID`
    /// and 256 bytes.
    ///
    /// # Errors
    /// [`OutTooSmall`] with the bytes needed.
    pub fn write<'o>(&self, out: &'o mut [u8]) -> Result<&'o [u8], OutTooSmall> {
        let refusal = self.reason.refusal();
        let why = |writer: &mut Writer<'o>| match self.reason {
            Reason::Budget(budget) => budget.with_why(|pieces| writer.pieces(pieces)),
            _ => writer.string(refusal.why()),
        };
        envelope::write_refusal(self.call_id, Text::plain(refusal.as_str()), out, why)
    }
}

/// An answer that is not written.
#[derive(Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum AnswerError {
    /// The reply does not fit; the call goes on, and here is its ticket again. Answer it in more
    /// room, or as one that [`threw`](Door::threw).
    OutTooSmall {
        /// The call's ticket.
        ticket: Ticket,
        /// Bytes that the reply takes.
        needed: usize,
    },
    /// The link ended meanwhile: nobody waits for the answer.
    Gone,
}

impl fmt::Display for AnswerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutTooSmall { needed, .. } => OutTooSmall { needed: *needed }.fmt(f),
            Self::Gone => f.write_str("the call's link ended; its answer is not needed"),
        }
    }
}

impl core::error::Error for AnswerError {}

/// The calls that run for one link.
///
/// It has as many slots as calls may run at once; `ID` bytes and some 32 each.
///
/// # Cost
/// Each message takes time linear in it, the look-up in the admissions apart. A call is found by
/// its ticket at once, and by its id among the running calls of one hash.
pub struct Door<S, A, const ID: usize = DEFAULT_ID_SIZE> {
    slots: S,
    admissions: A,
    free: u32,
    running: u32,
    limit: usize,
    id_size: usize,
    ignored: u64,
}

impl<S, A, const ID: usize> Door<S, A, ID>
where
    S: AsRef<[Slot<ID>]> + AsMut<[Slot<ID>]>,
    A: Admissions,
{
    /// Makes a door at which nothing runs; what the slots hold is dropped.
    pub fn new(slots: S, admissions: A) -> Self {
        let (free, running, ignored) = (NONE, 0, 0);
        let (limit, id_size) = (MAX_MESSAGE, ID);
        let mut door = Self { slots, admissions, free, running, limit, id_size, ignored };
        door.link_down();
        door
    }

    /// Sets the longest message that is read, in bytes, [`MAX_MESSAGE`] else.
    #[must_use]
    pub const fn with_limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Sets the longest `callId` that is taken, in bytes of UTF-8, at most and else `ID`.
    #[must_use]
    pub const fn with_id_size(mut self, id_size: usize) -> Self {
        self.id_size = if id_size < ID { id_size } else { ID };
        self
    }

    /// Returns how many calls are running.
    #[must_use]
    pub const fn running(&self) -> usize {
        self.running as usize
    }

    /// Returns how many messages were ignored.
    #[must_use]
    pub const fn ignored(&self) -> u64 {
        self.ignored
    }

    /// Returns the admissions, such as to take more requests off a tool's budget.
    pub const fn admissions(&mut self) -> &mut A {
        &mut self.admissions
    }

    /// Takes a message.
    ///
    /// A call that may run takes a slot and one request of its tool's budget; no other message
    /// changes anything but the counter.
    pub fn feed<'i>(&mut self, message: &'i [u8]) -> Received<'i> {
        match self.judge(message) {
            Ok(received) => received,
            Err(error) => {
                self.ignored = self.ignored.saturating_add(1);
                Received::Ignored(error)
            }
        }
    }

    // rule: CHAN-32, CHAN-33
    fn judge<'i>(&mut self, message: &'i [u8]) -> Result<Received<'i>, EnvelopeError> {
        if message.len() > self.limit {
            let fault = EnvelopeFault::TooLong { limit: self.limit };
            return Err(EnvelopeError { refusal: Refusal::MalformedCall, at: self.limit, fault });
        }
        let members = envelope::read_call(message)?;
        let call = members.call(self.id_size);
        let Some(call_id) = members.id_to_answer(self.id_size) else {
            // An id that cannot be answered never makes a call.
            return Err(match call {
                Err(error) => error,
                Ok(_) => EnvelopeError {
                    refusal: Refusal::MalformedCall,
                    at: 0,
                    fault: EnvelopeFault::Missing(envelope::Member::CallId),
                },
            });
        };
        let admitted = call.map_err(CallError::Envelope).and_then(|call| {
            let tool = admission::check_bounds(&call, &self.admissions)?;
            Ok((call, tool))
        });
        let refuse = |reason| Ok(Received::Refuse(Refused { call_id, reason }));
        let (call, tool) = match admitted {
            Ok(admitted) => admitted,
            Err(error) => return refuse(Reason::Call(error)),
        };
        let bucket = self.bucket(call_id);
        if self.runs(call_id, bucket) {
            return refuse(Reason::Duplicate);
        }
        if self.free == NONE {
            return refuse(Reason::TooMany);
        }
        if let Err(exhausted) = self.admissions.charge(tool) {
            return refuse(Reason::Budget(exhausted));
        }
        match self.start(call_id, bucket) {
            Some(ticket) => Ok(Received::Run(ticket, call)),
            None => refuse(Reason::TooMany),
        }
    }

    /// The place whose list an id is in.
    fn bucket(&self, id: Text<'_>) -> usize {
        let count = self.slots.as_ref().len() as u64;
        // FNV-1a; in proportion to the hash, so without a division.
        let hash = id.chars().fold(0x811c_9dc5_u32, |hash, c| {
            (hash ^ c.map_or(0, u32::from)).wrapping_mul(0x0100_0193)
        });
        (u64::from(hash ^ (hash >> 15)).wrapping_mul(count) >> 32) as usize
    }

    fn runs(&self, id: Text<'_>, bucket: usize) -> bool {
        let slots = self.slots.as_ref();
        let mut index = slots.get(bucket).map_or(NONE, |slot| slot.bucket);
        while let Some(slot) = slots.get(index as usize) {
            if core::str::from_utf8(slot.id()).is_ok_and(|running| id == running) {
                return true;
            }
            index = slot.next;
        }
        false
    }

    fn start(&mut self, id: Text<'_>, bucket: usize) -> Option<Ticket> {
        let slots = self.slots.as_mut();
        let index = self.free;
        let first = slots.get(bucket)?.bucket;
        let slot = slots.get_mut(index as usize)?;
        slot.len = id.decode(&mut slot.id).ok()?.len();
        slot.state = State::Running;
        self.free = slot.next;
        slot.next = first;
        let generation = slot.generation;
        slots.get_mut(bucket)?.bucket = index;
        self.running = self.running.saturating_add(1);
        Some(Ticket { slot: index, generation })
    }

    /// Answers a call as its executor says, and frees its slot. A refusal that names no rule goes
    /// out as `unknown-refusal`.
    ///
    /// # Errors
    /// The reply does not fit; or the link ended.
    // rule: CHAN-35, CHAN-36
    pub fn answer<'o>(
        &mut self,
        ticket: Ticket,
        outcome: Outcome<'_>,
        out: &'o mut [u8],
    ) -> Result<&'o [u8], AnswerError> {
        let slot = self.slots.as_ref().get(ticket.slot as usize);
        let running =
            |slot: &&Slot<ID>| slot.state == State::Running && slot.generation == ticket.generation;
        let Some(slot) = slot.filter(running) else { return Err(AnswerError::Gone) };
        let call_id = Text::plain(core::str::from_utf8(slot.id()).unwrap_or_default());
        let outcome = match outcome {
            Outcome::Refused { refused, why } if refused.is_empty() => {
                let refused = Text::plain(Refusal::UnknownRefusal.as_str());
                Outcome::Refused { refused, why }
            }
            outcome => outcome,
        };
        match (Answer { call_id, outcome }).write(out) {
            Ok(reply) => {
                let bucket = self.bucket(call_id);
                self.free(ticket.slot, bucket);
                Ok(reply)
            }
            Err(OutTooSmall { needed }) => Err(AnswerError::OutTooSmall { ticket, needed }),
        }
    }

    /// Answers a call whose executor failed: `exec-threw`, with its words for people.
    ///
    /// # Errors
    /// As [`answer`](Self::answer).
    // rule: CHAN-34
    pub fn threw<'o>(
        &mut self,
        ticket: Ticket,
        why: &str,
        out: &'o mut [u8],
    ) -> Result<&'o [u8], AnswerError> {
        let refused = Text::plain(Refusal::ExecThrew.as_str());
        self.answer(ticket, Outcome::Refused { refused, why: Text::plain(why) }, out)
    }

    /// Answers a call whose executor is gone without a word, such as one that was dropped:
    /// `exec-threw`.
    ///
    /// # Errors
    /// As [`answer`](Self::answer).
    pub fn lost<'o>(&mut self, ticket: Ticket, out: &'o mut [u8]) -> Result<&'o [u8], AnswerError> {
        self.threw(ticket, Refusal::ExecThrew.why(), out)
    }

    fn free(&mut self, index: u32, bucket: usize) -> Option<()> {
        let slots = self.slots.as_mut();
        let behind = slots.get(index as usize)?.next;
        let first = slots.get_mut(bucket)?;
        if first.bucket == index {
            first.bucket = behind;
        } else {
            let mut before = first.bucket;
            while slots.get(before as usize)?.next != index {
                before = slots.get(before as usize)?.next;
            }
            slots.get_mut(before as usize)?.next = behind;
        }
        let slot = slots.get_mut(index as usize)?;
        slot.state = State::Free;
        slot.generation = slot.generation.wrapping_add(1);
        slot.next = self.free;
        self.free = index;
        self.running = self.running.saturating_sub(1);
        Some(())
    }

    /// Ends the link: calls that run go on, and their answers are not needed. The next message is
    /// that of another link. Budgets stay as they are.
    pub fn link_down(&mut self) {
        let slots = self.slots.as_mut();
        let count = slots.len().min(NONE as usize);
        self.free = NONE;
        self.running = 0;
        for (index, slot) in slots.iter_mut().enumerate().take(count).rev() {
            if slot.state == State::Running {
                slot.generation = slot.generation.wrapping_add(1);
            }
            slot.state = State::Free;
            slot.bucket = NONE;
            slot.next = self.free;
            self.free = index as u32;
        }
    }
}

impl<S, A, const ID: usize> fmt::Debug for Door<S, A, ID> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door")
            .field("running", &self.running)
            .field("ignored", &self.ignored)
            .finish_non_exhaustive()
    }
}
