//! A batch under way: what each stage leaves for the next, in arrays side by side.

use alloc::vec;
use alloc::vec::Vec;
use core::mem;

use super::BATCH;
use crate::classifier::RuleId;
use crate::fib::NextHop;
use crate::forward::ecmp::flow_hash_ipv4;
use crate::header::{self, Fields, Key};
use crate::memory::{Place, Ticket};
use crate::plugin::PacketSet;

/// What deciding needs of a header besides its key.
#[derive(Clone, Copy, Debug, Default)]
pub struct Brief {
    /// Where the frame lies.
    pub place: Place,
    /// The hash of its flow.
    pub hash: u64,
    /// Bytes of the IP packet.
    pub ip_bytes: u16,
    /// Type of service or traffic class.
    pub traffic_class: u8,
    /// Time to live or hop limit.
    pub hop_limit: u8,
    /// The header's notes.
    pub notes: u8,
}

impl Brief {
    #[inline(always)]
    pub(super) fn of<A>(place: Place, hash: u64, fields: &Fields<A>) -> Brief {
        let &Fields { ip_bytes, traffic_class, hop_limit, notes, .. } = fields;
        Brief { place, hash, ip_bytes, traffic_class, hop_limit, notes }
    }

    /// Its flow has this reserved queue. The upper half of the hash still chooses among the paths of a group.
    #[inline(always)]
    pub(super) fn reserve(&mut self, queue: u16) {
        self.hash = self.hash >> 32 << 32 | u64::from(queue);
        self.notes |= header::RESERVED;
    }

    /// The reserved queue of its flow.
    pub(super) fn reserved(&self) -> Option<u16> {
        (self.notes & header::RESERVED != 0).then_some(self.hash as u16)
    }
}

/// The packets of one family in a batch: places for [`BATCH`] of them in arrays side by side.
#[derive(Debug)]
pub struct Lane<A> {
    /// How many there are.
    pub(super) packets: usize,
    pub(super) briefs: Vec<Brief>,
    pub(super) keys: Vec<Key<A>>,
    pub(super) destinations: Vec<A>,
    pub(super) rules: Vec<Option<RuleId>>,
    pub(super) next: Vec<Option<NextHop>>,
}

impl<A> Lane<A> {
    /// Takes the lane out of its place for a stage that needs the router as well ([`Lane::put_back`]).
    #[inline(always)]
    pub(super) fn take(&mut self) -> Lane<A> {
        let (packets, briefs, keys) = (0, Vec::new(), Vec::new());
        let (destinations, rules, next) = (Vec::new(), Vec::new(), Vec::new());
        mem::replace(self, Lane { packets, briefs, keys, destinations, rules, next })
    }

    /// Puts it back. What stood for it owns nothing to free, which is not looked for: that cost as much as a packet.
    #[inline(always)]
    pub(super) fn put_back(self, place: &mut Lane<A>) {
        mem::forget(mem::replace(place, self));
    }
}

impl<A: Copy + Default> Lane<A> {
    fn new() -> Lane<A> {
        Lane {
            packets: 0,
            briefs: vec![Brief::default(); BATCH],
            keys: vec![Key::default(); BATCH],
            destinations: vec![A::default(); BATCH],
            rules: vec![None; BATCH],
            next: vec![None; BATCH],
        }
    }

    /// Adds a packet; there are never more packets than places.
    #[inline(always)]
    pub(super) fn push(&mut self, brief: Brief, key: Key<A>) {
        let at = self.packets;
        self.briefs[at] = brief;
        self.keys[at] = key;
        self.destinations[at] = key.destination;
        self.packets = at + 1;
    }

    /// The packet `at` has another key.
    pub(super) fn set_key(&mut self, at: usize, key: Key<A>) {
        self.keys[at] = key;
        self.destinations[at] = key.destination;
    }

    /// Packets that were classified, and not looked up yet, are no more; the others keep their order.
    pub(super) fn drop_all(&mut self, gone: &PacketSet) {
        let mut kept = 0;
        for at in PacketSet::first(self.packets).without(gone).iter() {
            self.briefs[kept] = self.briefs[at];
            self.rules[kept] = self.rules[at];
            self.set_key(kept, self.keys[at]);
            kept += 1;
        }
        self.packets = kept;
    }
}

impl Lane<u32> {
    #[inline(always)]
    pub(super) fn push_fields(&mut self, seed: u64, place: Place, fields: &Fields<u32>) {
        let hash = flow_hash_ipv4(seed, &fields.key, fields.notes);
        self.push(Brief::of(place, hash, fields), fields.key);
    }
}

/// A batch.
#[derive(Debug)]
pub struct Lanes {
    pub(super) lane4: Lane<u32>,
    pub(super) lane6: Lane<u128>,
    /// What is to be queued: the output, and the ticket.
    pub(super) decided: Vec<(u16, Ticket)>,
    /// What leaves and was marked by a queue.
    pub(super) marked: Vec<Place>,
}

impl Default for Lanes {
    fn default() -> Lanes {
        let (lane4, lane6) = (Lane::new(), Lane::new());
        Lanes { lane4, lane6, decided: Vec::with_capacity(BATCH), marked: Vec::new() }
    }
}
