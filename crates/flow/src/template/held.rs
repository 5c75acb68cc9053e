//! Sets that came before their template, held until it comes.
//!
//! Templates are repeated every minute or every few hundred datagrams, so a capture that begins in
//! the middle has records first that nobody can read yet. They wait here, with the header that dates
//! them, within a limit in bytes; a set that finds no room is skipped, for the oldest records are
//! those whose template comes first.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::mem::size_of;

use super::message::Header;
use super::session::DomainKey;

/// A set that waits.
#[derive(Clone, Debug)]
pub(super) struct HeldSet {
    pub(super) header: Header,
    pub(super) body: Box<[u8]>,
}

impl HeldSet {
    /// What it costs to hold it.
    fn cost_bytes(&self) -> usize {
        size_of::<HeldSet>() + self.body.len()
    }
}

/// All sets that wait.
#[derive(Clone, Debug)]
pub(super) struct Held {
    capacity_bytes: usize,
    used_bytes: usize,
    sets: BTreeMap<(DomainKey, u16), Vec<HeldSet>>,
}

impl Held {
    pub(super) fn new(capacity_bytes: usize) -> Held {
        Held { capacity_bytes, used_bytes: 0, sets: BTreeMap::new() }
    }

    /// Holds a set; says whether there was room.
    pub(super) fn hold(&mut self, domain: DomainKey, id: u16, set: HeldSet) -> bool {
        let cost_bytes = set.cost_bytes();
        if cost_bytes > self.capacity_bytes - self.used_bytes {
            return false;
        }
        self.used_bytes += cost_bytes;
        self.sets.entry((domain, id)).or_default().push(set);
        true
    }

    /// The sets that waited for this template, in their order.
    pub(super) fn take(&mut self, domain: DomainKey, id: u16) -> Vec<HeldSet> {
        let sets = self.sets.remove(&(domain, id)).unwrap_or_default();
        self.used_bytes -= sets.iter().map(HeldSet::cost_bytes).sum::<usize>();
        sets
    }

    /// All that still wait.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = HeldSet> + use<> {
        self.used_bytes = 0;
        core::mem::take(&mut self.sets).into_values().flatten()
    }
}
