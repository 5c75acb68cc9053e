//! Many first-in first-out lists in one slab of slots: no allocation once the slab has grown.

use alloc::vec::Vec;

use nilometer_wire::prefetch::prefetch;

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

/// A place for an item, with its neighbours in the list. At an end of the list the link outwards is
/// not valid. With a router's ticket, a slot is half a cache line and never straddles two.
#[derive(Clone, Debug)]
#[repr(align(32))]
struct Slot<T> {
    item: Option<T>,
    /// Towards the tail.
    next: u32,
    /// Towards the front.
    prev: u32,
    bytes: u32,
}

/// One list: where it begins and ends in the slab, and how long it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fifo {
    front: u32,
    tail: u32,
    length: u32,
}

impl Fifo {
    /// An empty list.
    pub(crate) const EMPTY: Fifo = Fifo { front: NONE, tail: NONE, length: 0 };

    /// The slot at an end; of a list that is not empty.
    #[inline]
    pub(crate) fn slot(&self, end: End) -> u32 {
        match end {
            End::Front => self.front,
            End::Tail => self.tail,
        }
    }

    /// How many items it holds.
    #[inline]
    pub(crate) fn length(&self) -> u32 {
        self.length
    }
}

/// How [`Fifos::release_while`] ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Released {
    /// What is left of the bytes that were allowed.
    pub(crate) left_bytes: u32,
    /// Whether more was wanted.
    pub(crate) wants_more: bool,
}

/// The slab that lists share. Freed slots are used again last in, first out, so that a short backlog
/// stays within few cache lines however large the limit is; the list of free slots is kept apart from
/// them, so that a free slot need not be read to find the next. Where a list ends is known from its
/// length, so that taking from it touches no neighbour.
#[derive(Clone, Debug)]
pub(crate) struct Fifos<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> Fifos<T> {
    /// No slots yet.
    pub(crate) fn new() -> Fifos<T> {
        Fifos { slots: Vec::new(), free: Vec::new() }
    }

    /// Puts `item` of `bytes` at the tail of `fifo`, and says in which slot.
    #[inline]
    pub(crate) fn push(&mut self, fifo: &mut Fifo, item: T, bytes: u32) -> u32 {
        let slot = Slot { item: Some(item), next: NONE, prev: fifo.tail, bytes };
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at as usize] = slot;
                at
            }
            None => self.grow(slot),
        };
        if fifo.length == 0 {
            fifo.front = at;
        } else {
            self.slots[fifo.tail as usize].next = at;
        }
        fifo.tail = at;
        fifo.length += 1;
        at
    }

    /// One more slot, and room for it among the free.
    #[cold]
    fn grow(&mut self, slot: Slot<T>) -> u32 {
        self.slots.push(slot);
        self.free.reserve(self.slots.capacity());
        (self.slots.len() - 1) as u32
    }

    /// Takes the slot at `end` out of `fifo` and returns its number and the bytes of its item. The
    /// item stays there until [`Fifos::take`], which must be called next: a large item is moved
    /// only once, from its slot to its receiver.
    #[inline]
    pub(crate) fn release(&mut self, fifo: &mut Fifo, end: End) -> Option<(u32, u32)> {
        if fifo.length == 0 {
            return None;
        }
        let at = fifo.slot(end);
        let slot = &self.slots[at as usize];
        match end {
            End::Front => fifo.front = slot.next,
            End::Tail => fifo.tail = slot.prev,
        }
        fifo.length -= 1;
        self.free.push(at);
        Some((at, slot.bytes))
    }

    /// Takes items from the front of `fifo` and passes them with their bytes to `give`, as long as there
    /// are any, the next is within what is left of `most_bytes`, and `give` wants more. (Over many items
    /// of one list, the list's state stays at hand.)
    #[inline(always)]
    pub(crate) fn release_while(
        &mut self,
        fifo: &mut Fifo,
        most_bytes: u32,
        mut give: impl FnMut(T, u32) -> bool,
    ) -> Released {
        let Fifo { mut front, mut length, .. } = *fifo;
        let mut left_bytes = most_bytes;
        let mut wants_more = true;
        while wants_more && length > 0 {
            let slot = &mut self.slots[front as usize];
            if slot.bytes > left_bytes {
                break;
            }
            let Some(item) = slot.item.take() else { break };
            let (bytes, next) = (slot.bytes, slot.next);
            left_bytes -= bytes;
            self.free.push(front);
            front = next;
            length -= 1;
            prefetch(self.slots.as_ptr().wrapping_add(front as usize));
            wants_more = give(item, bytes);
        }
        (fifo.front, fifo.length) = (front, length);
        Released { left_bytes, wants_more }
    }

    /// Prefetches the slot at `end` of `fifo`.
    #[inline]
    pub(crate) fn prefetch(&self, fifo: &Fifo, end: End) {
        prefetch(self.slots.as_ptr().wrapping_add(fifo.slot(end) as usize));
    }

    /// How many items all lists hold.
    pub(crate) fn length(&self) -> u64 {
        (self.slots.len() - self.free.len()) as u64
    }

    /// Takes the item out of `slot`.
    #[inline]
    pub(crate) fn take(&mut self, slot: u32) -> Option<T> {
        self.slots[slot as usize].item.take()
    }

    /// Bytes of the item at the front of `fifo`.
    #[inline]
    pub(crate) fn front_bytes(&self, fifo: &Fifo) -> Option<u32> {
        if fifo.length == 0 {
            return None;
        }
        Some(self.slots[fifo.front as usize].bytes)
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
                    fifos.push(&mut lists[list], item, item as u32 + 7);
                    twins[list].push_back(item);
                    held += 1;
                } else {
                    let (end, twin) = match rng.below(2) {
                        0 => (End::Front, twins[list].pop_front()),
                        _ => (End::Tail, twins[list].pop_back()),
                    };
                    held -= usize::from(twin.is_some());
                    let slot = fifos.release(&mut lists[list], end);
                    assert_eq!(slot.map(|(_, bytes)| bytes), twin.map(|item| item as u32 + 7));
                    assert_eq!(slot.and_then(|(slot, _)| fifos.take(slot)), twin);
                }
                most = most.max(held);
                let front = twins[list].front().map(|&item| item as u32 + 7);
                assert_eq!(fifos.front_bytes(&lists[list]), front);
                assert_eq!(fifos.slots.len(), most);
                assert_eq!(fifos.length(), held as u64);
            }
        }
    }
}
