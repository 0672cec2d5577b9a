//! The order in which calls in flight end: by deadline, and of one deadline as they were asked.
//!
//! Most calls have the same patience, so that a new one ends last: those stand in a list. A call
//! that ends before the list's last goes into a heap. Both lie in the slots themselves.

use crate::time::Instant;

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// Where a slot stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Free,
    List,
    Heap,
}

/// Room for one call in flight: 32 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    deadline: Instant,
    /// Which use of the slot this is.
    pub(super) generation: u32,
    /// Counts the asks; wraps.
    sequence: u32,
    /// In the list the slot before; in the heap the position there.
    before: u32,
    /// In the list the slot behind; of a free one the next free.
    behind: u32,
    /// The slot at this position of the heap: about another call than all else here.
    heap: u32,
    place: Place,
    closed: bool,
}

// What a call in flight costs.
const _: () = assert!(size_of::<Slot>() <= 32);

impl Slot {
    /// Room for a call, with none in it.
    pub const EMPTY: Self = Self {
        deadline: Instant::ZERO,
        generation: 0,
        sequence: 0,
        before: NONE,
        behind: NONE,
        heap: NONE,
        place: Place::Free,
        closed: false,
    };

    pub(super) fn is_in_flight(&self) -> bool {
        self.place != Place::Free
    }

    /// Whether its link closed before its deadline.
    pub(super) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// When the call ends, or ended with its link.
    pub(super) const fn deadline(&self) -> Instant {
        self.deadline
    }
}

impl Default for Slot {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// The order of the slots; the slots themselves are the caller's.
#[derive(Debug)]
pub(super) struct Queue {
    first: u32,
    last: u32,
    free: u32,
    heap_len: u32,
    in_flight: u32,
    sequence: u32,
}

impl Queue {
    /// Empties the slots, as many as a `u32` counts.
    pub(super) fn new(slots: &mut [Slot]) -> Self {
        let mut free = NONE;
        let count = slots.len().min(NONE as usize);
        for (index, slot) in slots.iter_mut().enumerate().take(count).rev() {
            *slot = Slot { generation: slot.generation, behind: free, ..Slot::EMPTY };
            free = index as u32;
        }
        Self { first: NONE, last: NONE, free, heap_len: 0, in_flight: 0, sequence: 0 }
    }

    pub(super) const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    pub(super) const fn free(&self) -> Option<u32> {
        if self.free == NONE { None } else { Some(self.free) }
    }

    /// Takes the free slot for a call.
    pub(super) fn insert(&mut self, slots: &mut [Slot], deadline: Instant) -> Option<u32> {
        let index = self.free()?;
        let is_last = get(slots, self.last).is_none_or(|last| last.deadline <= deadline);
        let before = self.last;
        let slot = get_mut(slots, index)?;
        self.free = slot.behind;
        slot.deadline = deadline;
        slot.sequence = self.sequence;
        slot.closed = false;
        self.sequence = self.sequence.wrapping_add(1);
        self.in_flight = self.in_flight.saturating_add(1);
        if is_last {
            slot.place = Place::List;
            slot.before = before;
            slot.behind = NONE;
            match get_mut(slots, before) {
                Some(before) => before.behind = index,
                None => self.first = index,
            }
            self.last = index;
        } else {
            slot.place = Place::Heap;
            let at = self.heap_len;
            self.heap_len = self.heap_len.saturating_add(1);
            put(slots, at, index);
            up(slots, at);
        }
        Some(index)
    }

    /// Frees the slot of a call; for good when it was used as often as it can be.
    // rule: CHAN-30
    pub(super) fn remove(&mut self, slots: &mut [Slot], index: u32) -> Option<()> {
        let slot = *get(slots, index)?;
        match slot.place {
            Place::Free => return None,
            Place::List => {
                match get_mut(slots, slot.before) {
                    Some(before) => before.behind = slot.behind,
                    None => self.first = slot.behind,
                }
                match get_mut(slots, slot.behind) {
                    Some(behind) => behind.before = slot.before,
                    None => self.last = slot.before,
                }
            }
            Place::Heap => {
                self.heap_len = self.heap_len.saturating_sub(1);
                let moved = get(slots, self.heap_len)?.heap;
                if moved != index {
                    put(slots, slot.before, moved);
                    up(slots, slot.before);
                    let at = get(slots, moved)?.before;
                    down(slots, at, self.heap_len);
                }
            }
        }
        self.in_flight = self.in_flight.saturating_sub(1);
        let free = self.free;
        let slot = get_mut(slots, index)?;
        slot.place = Place::Free;
        slot.closed = false;
        if let Some(generation) = slot.generation.checked_add(1) {
            slot.generation = generation;
            slot.behind = free;
            self.free = index;
        }
        Some(())
    }

    /// The call that ends first.
    pub(super) fn first(&self, slots: &[Slot]) -> Option<u32> {
        let top = if self.heap_len == 0 { NONE } else { get(slots, 0)?.heap };
        match (get(slots, self.first), get(slots, top)) {
            (Some(one), Some(two)) if is_before(two, one) => Some(top),
            (Some(_), _) => Some(self.first),
            (None, Some(_)) => Some(top),
            (None, None) => None,
        }
    }

    /// Ends all calls at `now` whose deadline was still to come; they stand in the order in which
    /// they were asked.
    ///
    /// Both cut deadlines off at one moment, which changes no order but makes equals of many: the
    /// list is in their order, the heap is made anew.
    pub(super) fn close(&self, slots: &mut [Slot], now: Instant) {
        let end = |slot: &mut Slot| {
            if slot.deadline > now {
                slot.deadline = now;
                slot.closed = true;
            }
        };
        let mut index = self.first;
        while let Some(slot) = get_mut(slots, index) {
            end(slot);
            index = slot.behind;
        }
        for at in 0..self.heap_len {
            let Some(index) = get(slots, at).map(|slot| slot.heap) else { break };
            if let Some(slot) = get_mut(slots, index) {
                end(slot);
            }
        }
        for at in (0..self.heap_len / 2).rev() {
            down(slots, at, self.heap_len);
        }
    }
}

fn get(slots: &[Slot], index: u32) -> Option<&Slot> {
    slots.get(index as usize)
}

fn get_mut(slots: &mut [Slot], index: u32) -> Option<&mut Slot> {
    slots.get_mut(index as usize)
}

fn is_before(one: &Slot, two: &Slot) -> bool {
    let asked_before = || one.sequence.wrapping_sub(two.sequence).cast_signed() < 0;
    one.deadline < two.deadline || (one.deadline == two.deadline && asked_before())
}

/// Puts a call at a position of the heap.
fn put(slots: &mut [Slot], at: u32, index: u32) {
    if let Some(slot) = get_mut(slots, at) {
        slot.heap = index;
    }
    if let Some(slot) = get_mut(slots, index) {
        slot.before = at;
    }
}

/// Whether the call at position `one` of the heap ends before that at `two`.
fn ends_before(slots: &[Slot], one: u32, two: u32) -> bool {
    let call = |at| get(slots, at).and_then(|slot| get(slots, slot.heap));
    match (call(one), call(two)) {
        (Some(one), Some(two)) => is_before(one, two),
        _ => false,
    }
}

fn swap(slots: &mut [Slot], one: u32, two: u32) {
    let call = |at| get(slots, at).map_or(NONE, |slot| slot.heap);
    let (first, second) = (call(one), call(two));
    put(slots, one, second);
    put(slots, two, first);
}

fn up(slots: &mut [Slot], mut at: u32) {
    while at > 0 {
        let parent = at.saturating_sub(1) / 2;
        if !ends_before(slots, at, parent) {
            break;
        }
        swap(slots, at, parent);
        at = parent;
    }
}

fn down(slots: &mut [Slot], mut at: u32, len: u32) {
    loop {
        // Fewer than half of what a `u32` counts, or there is no child.
        let left = at.saturating_mul(2).saturating_add(1);
        let right = left.saturating_add(1);
        if left >= len {
            break;
        }
        let child = if right < len && ends_before(slots, right, left) { right } else { left };
        if !ends_before(slots, child, at) {
            break;
        }
        swap(slots, at, child);
        at = child;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    // rule: CHAN-30
    #[test]
    fn a_slot_whose_generation_would_wrap_is_not_used_again() {
        let worn = Slot { generation: u32::MAX - 1, ..Slot::EMPTY };
        let mut slots = [worn, Slot::EMPTY];
        let mut queue = Queue::new(&mut slots);
        for generation in [u32::MAX - 1, u32::MAX] {
            let index = queue.insert(&mut slots, Instant::ZERO).unwrap();
            assert_eq!((index, slots[0].generation), (0, generation));
            queue.remove(&mut slots, index).unwrap();
        }
        let index = queue.insert(&mut slots, Instant::ZERO).unwrap();
        assert_eq!((index, queue.free(), queue.in_flight()), (1, None, 1));
    }

    #[test]
    fn removing_from_anywhere_keeps_the_order() {
        const COUNT: u32 = 50;
        let mut slots = [Slot::EMPTY; COUNT as usize];
        for step in 1..COUNT {
            let mut queue = Queue::new(&mut slots);
            for turn in 0..COUNT {
                let deadline = Instant::from_micros(u64::from(turn * 37 % 41));
                queue.insert(&mut slots, deadline).unwrap();
            }
            for index in (0..COUNT).step_by(step as usize) {
                queue.remove(&mut slots, index).unwrap();
                assert_eq!(queue.remove(&mut slots, index), None);
            }
            let mut last = Instant::ZERO;
            while let Some(index) = queue.first(&slots) {
                assert!(slots[index as usize].deadline >= last);
                last = slots[index as usize].deadline;
                queue.remove(&mut slots, index).unwrap();
            }
            assert_eq!(queue.in_flight(), 0);
        }
    }
}
