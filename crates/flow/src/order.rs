//! An order of slots: a ring through a table of two numbers for each, which begins and ends at a post.
//!
//! The post is the first place of the table; the place of a slot is behind it. Whoever is not in the
//! order is a ring of its own, so that putting in and taking out are the same few writes for all, and
//! nothing is asked. The numbers lie apart from what stands in the slots, eight of them in a line of the
//! processor's cache: a flow's neighbours in the order are strangers, whose own lines would be fetched.

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
    /// An order with nobody in it.
    pub(crate) fn new() -> Sequence {
        Sequence { links: vec![Link { previous: POST, next: POST }] }
    }

    /// Makes room for another slot, the next number, which is in no place yet.
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

    /// Asks for a slot's place.
    #[inline(always)]
    pub(crate) fn prefetch(&self, slot: u32) {
        prefetch(&raw const self.links[slot as usize + 1]);
    }

    /// Asks for the places of a slot's neighbours.
    #[inline(always)]
    pub(crate) fn prefetch_neighbours(&self, slot: u32) {
        let Link { previous, next } = self.links[slot as usize + 1];
        prefetch(&raw const self.links[previous as usize]);
        prefetch(&raw const self.links[next as usize]);
    }

    /// Moves a slot to the end, or puts it there.
    #[inline]
    pub(crate) fn move_last(&mut self, slot: u32) {
        let at = slot + 1;
        self.join(at);
        let last = core::mem::replace(&mut self.links[POST as usize].previous, at);
        self.links[last as usize].next = at;
        self.links[at as usize] = Link { previous: last, next: POST };
    }

    /// Takes a slot out, if it is in.
    #[inline]
    pub(crate) fn take_out(&mut self, slot: u32) {
        let at = slot + 1;
        self.join(at);
        self.links[at as usize] = Link { previous: at, next: at };
    }

    /// Joins the neighbours of a place.
    #[inline]
    fn join(&mut self, at: u32) {
        let Link { previous, next } = self.links[at as usize];
        self.links[previous as usize].next = next;
        self.links[next as usize].previous = previous;
    }
}
