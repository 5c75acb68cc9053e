//! Many first-in first-out lists in one slab of slots: no allocation once the slab has grown.

use alloc::vec::Vec;

/// No slot.
pub(crate) const NONE: u32 = u32::MAX;

/// Which end of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// Where the next to leave stands. A drop here is known to the sender soonest.
    #[default]
    Front,
    /// Where the last arrival stands.
    Tail,
}

#[derive(Clone, Debug)]
struct Slot<T> {
    item: Option<T>,
    /// Towards the tail; in the list of free slots, the next free one.
    next: u32,
    /// Towards the front.
    prev: u32,
}

/// One list: where it begins and ends in the slab.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fifo {
    front: u32,
    tail: u32,
}

impl Fifo {
    /// An empty list.
    pub(crate) const EMPTY: Fifo = Fifo { front: NONE, tail: NONE };

    /// The slot at an end, `NONE` of an empty list.
    pub(crate) fn slot(&self, end: End) -> u32 {
        match end {
            End::Front => self.front,
            End::Tail => self.tail,
        }
    }
}

/// The slab that lists share. Freed slots are used again last in, first out, so that a short
/// backlog stays within few cache lines however large the limit is.
#[derive(Clone, Debug)]
pub(crate) struct Fifos<T> {
    slots: Vec<Slot<T>>,
    free: u32,
}

impl<T> Fifos<T> {
    /// No slots yet.
    pub(crate) fn new() -> Fifos<T> {
        Fifos { slots: Vec::new(), free: NONE }
    }

    /// Puts `item` at the tail of `fifo`, and says in which slot.
    #[inline]
    pub(crate) fn push(&mut self, fifo: &mut Fifo, item: T) -> u32 {
        let prev = fifo.tail;
        let at = self.free;
        let at = if let Some(slot) = self.slots.get_mut(at as usize) {
            self.free = slot.next;
            *slot = Slot { item: Some(item), next: NONE, prev };
            at
        } else {
            self.slots.push(Slot { item: Some(item), next: NONE, prev });
            (self.slots.len() - 1) as u32
        };
        match self.slots.get_mut(prev as usize) {
            Some(before) => before.next = at,
            None => fifo.front = at,
        }
        fifo.tail = at;
        at
    }

    /// Takes the item at `end` of `fifo`.
    #[inline]
    pub(crate) fn pop(&mut self, fifo: &mut Fifo, end: End) -> Option<T> {
        let at = fifo.slot(end);
        let slot = self.slots.get_mut(at as usize)?;
        let item = slot.item.take();
        let beyond = match end {
            End::Front => slot.next,
            End::Tail => slot.prev,
        };
        slot.next = self.free;
        self.free = at;
        match end {
            End::Front => fifo.front = beyond,
            End::Tail => fifo.tail = beyond,
        }
        match (self.slots.get_mut(beyond as usize), end) {
            (Some(neighbour), End::Front) => neighbour.prev = NONE,
            (Some(neighbour), End::Tail) => neighbour.next = NONE,
            (None, _) => *fifo = Fifo::EMPTY,
        }
        item
    }

    /// The item at the front of `fifo`.
    #[inline]
    pub(crate) fn front(&self, fifo: &Fifo) -> Option<&T> {
        self.slots.get(fifo.front as usize)?.item.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use nilometer_stat::Rng;

    /// 20 lists, 200 seeds: every take from either end is that of twenty `VecDeque`s, and the slab
    /// never grows beyond the most that were held at once.
    #[test]
    fn lists_in_a_slab_are_lists() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed, 1, 0);
            let mut fifos = Fifos::new();
            let mut lists = [Fifo::EMPTY; 20];
            let mut twins: [VecDeque<u64>; 20] = Default::default();
            let (mut held, mut most) = (0usize, 0usize);
            for item in 0..2_000 {
                let list = rng.below(20) as usize;
                if rng.below(100) < 50 + 10 * (item / 500) % 20 {
                    fifos.push(&mut lists[list], item);
                    twins[list].push_back(item);
                    held += 1;
                } else {
                    let (end, twin) = match rng.below(2) {
                        0 => (End::Front, twins[list].pop_front()),
                        _ => (End::Tail, twins[list].pop_back()),
                    };
                    held -= usize::from(twin.is_some());
                    assert_eq!(fifos.pop(&mut lists[list], end), twin);
                }
                most = most.max(held);
                assert_eq!(fifos.front(&lists[list]), twins[list].front());
                assert_eq!(fifos.slots.len(), most);
            }
        }
    }
}
