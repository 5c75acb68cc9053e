//! One first-in first-out queue in a limited buffer: what the disciplines without flows share.

use alloc::collections::VecDeque;

use crate::capacity::{Capacity, Occupancy};
use crate::discipline::{Backlog, Reason};

/// A queue that knows whether there is room. It holds packets, with or without a timestamp; the
/// caller passes the size of each.
#[derive(Clone, Debug)]
pub(crate) struct Bounded<T> {
    waiting: VecDeque<T>,
    occupancy: Occupancy,
}

impl<T> Bounded<T> {
    /// Empty, holding at most `capacity`.
    pub(crate) fn new(capacity: Capacity) -> Bounded<T> {
        Bounded { waiting: VecDeque::new(), occupancy: Occupancy::new(capacity) }
    }

    /// Why a packet of `bytes` cannot be taken in now, if it cannot.
    #[inline]
    pub(crate) fn refusal(&self, bytes: u32) -> Option<Reason> {
        if self.occupancy.fits(bytes) {
            None
        } else if self.occupancy.could_hold(bytes) {
            Some(Reason::Full)
        } else {
            Some(Reason::TooBig)
        }
    }

    /// Takes in `item` of `bytes`, for which there is room.
    #[inline]
    pub(crate) fn push(&mut self, bytes: u32, item: T) {
        self.occupancy.add(bytes);
        self.waiting.push_back(item);
    }

    /// Takes out the first, whose size is what `bytes` says.
    #[inline]
    pub(crate) fn pop(&mut self, bytes: impl Fn(&T) -> u32) -> Option<T> {
        self.occupancy.remove(bytes(self.waiting.front()?));
        self.waiting.pop_front()
    }

    /// The first.
    #[inline]
    pub(crate) fn first(&self) -> Option<&T> {
        self.waiting.front()
    }

    /// All items, from the first to the last.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.waiting.iter()
    }

    /// What waits.
    pub(crate) fn backlog(&self) -> Backlog {
        Backlog { packets: self.waiting.len() as u64, bytes: self.occupancy.bytes() }
    }

    /// What is taken.
    #[inline]
    pub(crate) fn occupancy(&self) -> &Occupancy {
        &self.occupancy
    }
}
