//! Packets that go through a chain together, and what it did to them.

use super::{PacketFacts, PacketSet};

/// Packets that are handed to a chain.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Handed<'a> {
    pub(crate) packets: &'a [PacketFacts],
    /// Bytes of them together.
    pub(crate) ip_bytes: u64,
    /// Bits per second that the scheduler of their output gives the first one's flow.
    pub(crate) share_bps: Option<u64>,
    /// Whether they begin with a label stack.
    pub(crate) is_labelled: bool,
}

impl<'a> Handed<'a> {
    pub(crate) fn new(packets: &'a [PacketFacts]) -> Handed<'a> {
        let ip_bytes = packets.iter().map(|it| u64::from(it.ip_bytes())).sum();
        Handed { packets, ip_bytes, ..Handed::default() }
    }
}

/// What became of the packets of one call in a chain; of those in none of the sets nothing did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Passage {
    /// They go no further in the chain: dropped, or with a verdict on their labels.
    pub(crate) dropped: PacketSet,
    /// Of those, the ones that are dropped because an instance was cut off.
    pub(crate) cut_off: PacketSet,
    /// They may have been changed.
    pub(crate) changed: PacketSet,
}

impl Passage {
    /// Whether nothing became of any.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        self.dropped.is_empty() && self.changed.is_empty()
    }

    /// What another instance did to them.
    pub(super) fn add(&mut self, other: &Passage) {
        self.dropped |= other.dropped;
        self.cut_off |= other.cut_off;
        self.changed |= other.changed;
    }

    /// The same, where each of the other's has its place here.
    pub(super) fn add_at(&mut self, other: &Passage, places: &[u16]) {
        other.dropped.iter().for_each(|at| self.dropped.insert(places[at].into()));
        other.cut_off.iter().for_each(|at| self.cut_off.insert(places[at].into()));
        other.changed.iter().for_each(|at| self.changed.insert(places[at].into()));
    }
}
