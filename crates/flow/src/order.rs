//! An order of slots: a circular doubly linked list with a sentinel, kept in a table of links.
//!
//! The sentinel (`POST`) is the first place of the table; the place of a slot is behind it. A slot
//! outside of the order is a ring of its own, so that adding and removing are the same few writes for
//! all slots, without a branch. The links lie apart from the content of the slots, eight in a cache
//! line: a flow's neighbours in the order are unrelated flows, whose own lines would otherwise be
//! fetched.

use alloc::vec;
use alloc::vec::Vec;

use nilometer_wire::prefetch::prefetch;

const POST: u32 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Link {
    previous: u32,
    next: u32,
}

/// The order.
#[derive(Debug)]
pub(crate) struct Sequence {
    links: Vec<Link>,
}

impl Sequence {
    /// An empty order.
    pub(crate) fn new() -> Sequence {
        Sequence { links: vec![Link { previous: POST, next: POST }] }
    }

    /// Makes room for another slot, with the next number, which is not in the order yet.
    pub(crate) fn grow(&mut self) {
        let at = self.links.len() as u32;
        self.links.push(Link { previous: at, next: at });
    }

    /// The first slot.
    #[inline]
    pub(crate) fn first(&self) -> Option<u32> {
        self.links[POST as usize].next.checked_sub(1)
    }

    /// The slot behind this one.
    pub(crate) fn after(&self, slot: u32) -> Option<u32> {
        self.links[slot as usize + 1].next.checked_sub(1)
    }

    /// Prefetches a slot's place.
    #[inline(always)]
    pub(crate) fn prefetch(&self, slot: u32) {
        prefetch(&raw const self.links[slot as usize + 1]);
    }

    /// Prefetches the places of a slot's neighbours.
    #[inline(always)]
    pub(crate) fn prefetch_neighbours(&self, slot: u32) {
        let Link { previous, next } = self.links[slot as usize + 1];
        prefetch(&raw const self.links[previous as usize]);
        prefetch(&raw const self.links[next as usize]);
    }

    /// Moves a slot to the end, or adds it there.
    #[inline]
    pub(crate) fn move_last(&mut self, slot: u32) {
        let at = slot + 1;
        self.join(at);
        let last = core::mem::replace(&mut self.links[POST as usize].previous, at);
        self.links[last as usize].next = at;
        self.links[at as usize] = Link { previous: last, next: POST };
    }

    /// Removes a slot, if it is in the order.
    #[inline]
    pub(crate) fn take_out(&mut self, slot: u32) {
        let at = slot + 1;
        self.join(at);
        self.links[at as usize] = Link { previous: at, next: at };
    }

    /// Links the neighbours of a place with each other.
    #[inline]
    fn join(&mut self, at: u32) {
        let Link { previous, next } = self.links[at as usize];
        self.links[previous as usize].next = next;
        self.links[next as usize].previous = previous;
    }
}
