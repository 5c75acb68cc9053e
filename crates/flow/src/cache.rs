//! A bounded table of flows that remembers the order in which they were last seen.
//!
//! Flows live in a slab; a table of its slots finds them by key, and two orders run through them: one from
//! the least to the most recently seen flow, one through the closing flows, in the order in which they began
//! to close. Since the meter's clock never goes back, the heads of these orders are always the next to
//! expire: no timer wheel, no scan, a constant number of steps a packet.
//!
//! A caller that knows the hash of a flow passes it, with a predicate that recognises the flow; for values
//! that know their key ([`Keyed`]), both follow from the key.

use alloc::vec::Vec;

use nilometer_wire::prefetch::prefetch;

use crate::hash::Hashing;
use crate::index::Index;
use crate::order::Sequence;
use crate::record::FlowKey;

/// How many flows ahead a flow that is going to end is prefetched.
const FLOWS_AHEAD: usize = 8;

/// A value that knows its own five-tuple.
pub(crate) trait Keyed {
    fn key(&self) -> &FlowKey;
}

/// The index of a flow in the slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(u32);

/// The two orders that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Every flow, least recently seen first.
    Seen = 0,
    /// Flows whose end marker was seen, first to close first.
    Closing = 1,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Cache<V> {
    entries: Vec<Option<V>>,
    free: Vec<u32>,
    pub(crate) hashing: Hashing,
    index: Index,
    orders: [Sequence; 2],
    flows_max: u32,
}

impl<V> Cache<V> {
    /// An empty table for at most `flows_max` flows (at least one; at most 2^32 - 3).
    pub(crate) fn new(flows_max: usize) -> Cache<V> {
        Cache {
            entries: Vec::new(),
            free: Vec::new(),
            hashing: Hashing::default(),
            index: Index::new(),
            orders: [Sequence::new(), Sequence::new()],
            flows_max: u32::try_from(flows_max).unwrap_or(u32::MAX).clamp(1, u32::MAX - 2),
        }
    }

    /// Flows in the table.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// Is there no room for another flow?
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.index.len() >= self.flows_max as usize
    }

    /// The flow with this hash for which `is_it`.
    #[inline]
    pub(crate) fn find_where(&self, hash: u64, is_it: impl Fn(&V) -> bool) -> Option<Slot> {
        self.index.find(hash, |at| is_it(self.value(Slot(at)))).map(Slot)
    }

    /// Prefetches the place in the index where the search for this hash begins.
    #[inline(always)]
    pub(crate) fn prefetch_place(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// Prefetches the flow with this hash, if there is one, and its place in the order of flows seen;
    /// returns its slot. It may be another flow with the same hash.
    #[inline(always)]
    pub(crate) fn prefetch_flow(&self, hash: u64) -> Option<Slot> {
        let slot = self.index.find(hash, |_| true)?;
        self.prefetch_entry(slot);
        self.orders[Order::Seen as usize].prefetch(slot);
        Some(Slot(slot))
    }

    /// Prefetches a flow's neighbours in the order of flows seen.
    #[inline(always)]
    pub(crate) fn prefetch_neighbours(&self, slot: Slot) {
        self.orders[Order::Seen as usize].prefetch_neighbours(slot.0);
    }

    /// Prefetches what is needed to end the next flows of an order, whose hashes `hash_of` gives: of a flow
    /// farther ahead the flow itself, of a nearer one its place in the index and its neighbours.
    pub(crate) fn prefetch_next(&self, order: Order, hash_of: impl Fn(&V) -> u64) {
        let (order, seen) = (&self.orders[order as usize], &self.orders[Order::Seen as usize]);
        let mut next = order.first();
        for ahead in 0..FLOWS_AHEAD {
            let Some(slot) = next else { return };
            if ahead == FLOWS_AHEAD / 2 {
                self.index.prefetch(hash_of(self.value(Slot(slot))));
                seen.prefetch_neighbours(slot);
            }
            next = order.after(slot);
        }
        if let Some(slot) = next {
            self.prefetch_entry(slot);
            self.orders.iter().for_each(|order| order.prefetch(slot));
        }
    }

    #[inline(always)]
    fn prefetch_entry(&self, slot: u32) {
        let entry = &raw const self.entries[slot as usize];
        for line in 0..size_of::<Option<V>>().div_ceil(64) {
            prefetch(entry.wrapping_byte_add(line * 64));
        }
    }

    /// Adds a flow that is not there yet, as the most recently seen one.
    pub(crate) fn insert_at(&mut self, hash: u64, value: V) -> Slot {
        assert!(!self.is_full(), "the caller makes room first");
        let at = match self.free.pop() {
            Some(at) => {
                self.entries[at as usize] = Some(value);
                at
            }
            None => {
                self.entries.push(Some(value));
                self.orders.iter_mut().for_each(Sequence::grow);
                self.entries.len() as u32 - 1
            }
        };
        self.index.insert(hash, at);
        self.orders[Order::Seen as usize].move_last(at);
        Slot(at)
    }

    /// Removes a flow, whose hash is `hash`.
    pub(crate) fn remove_at(&mut self, hash: u64, slot: Slot) -> V {
        self.orders.iter_mut().for_each(|order| order.take_out(slot.0));
        self.index.remove(hash, slot.0);
        self.free.push(slot.0);
        self.entries[slot.0 as usize].take().expect("a slot is used while it lives")
    }

    /// The flow in a slot.
    #[inline]
    pub(crate) fn value(&self, slot: Slot) -> &V {
        self.entries[slot.0 as usize].as_ref().expect("a slot is used while it lives")
    }

    /// The flow in a slot, if there is one.
    #[inline(always)]
    pub(crate) fn get(&self, slot: Slot) -> Option<&V> {
        self.entries[slot.0 as usize].as_ref()
    }

    /// The flow in a slot, to change it.
    #[inline]
    pub(crate) fn value_mut(&mut self, slot: Slot) -> &mut V {
        self.entries[slot.0 as usize].as_mut().expect("a slot is used while it lives")
    }

    /// The first flow in an order.
    #[inline]
    pub(crate) fn first(&self, order: Order) -> Option<Slot> {
        self.orders[order as usize].first().map(Slot)
    }

    /// Moves a flow to the end of an order, or adds it there.
    #[inline]
    pub(crate) fn move_last(&mut self, order: Order, slot: Slot) {
        self.orders[order as usize].move_last(slot.0);
    }
}

impl<V: Keyed> Cache<V> {
    /// Prefetches the place in the index where the search for `key` begins.
    pub(crate) fn prefetch(&self, key: &FlowKey) {
        self.prefetch_place(self.hashing.of(key));
    }

    /// The flow of `key`.
    pub(crate) fn find(&self, key: &FlowKey) -> Option<Slot> {
        self.find_where(self.hashing.of(key), |value| value.key() == key)
    }

    /// Adds a flow that is not there yet, as the most recently seen one.
    pub(crate) fn insert(&mut self, value: V) -> Slot {
        self.insert_at(self.hashing.of(value.key()), value)
    }

    /// Removes a flow.
    pub(crate) fn remove(&mut self, slot: Slot) -> V {
        self.remove_at(self.hashing.of(self.value(slot).key()), slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use core::net::Ipv4Addr;
    use nilometer_stat::Rng;

    fn key(port: u16) -> FlowKey {
        let host = Ipv4Addr::new(198, 18, 0, 1).into();
        FlowKey {
            source: host,
            destination: host,
            source_port: port,
            destination_port: 1,
            protocol: 6,
        }
    }

    impl Keyed for FlowKey {
        fn key(&self) -> &FlowKey {
            self
        }
    }

    /// The naive twin: two queues of ports, searched from end to end.
    #[derive(Default)]
    struct Queues([VecDeque<u16>; 2]);

    impl Queues {
        fn move_last(&mut self, order: Order, port: u16) {
            self.0[order as usize].retain(|&other| other != port);
            self.0[order as usize].push_back(port);
        }
    }

    #[test]
    fn agrees_with_two_queues() {
        let (mut cache, mut twin) = (Cache::new(50), Queues::default());
        let mut rng = Rng::new(11, 0, 0);
        for _ in 0..20_000 {
            let chance = rng.next_u64();
            let port = (chance >> 33) as u16 % 80;
            match (cache.find(&key(port)), (chance >> 50) % 4) {
                (Some(slot), 0) => {
                    assert_eq!(cache.remove(slot), key(port));
                    twin.0.iter_mut().for_each(|queue| queue.retain(|&other| other != port));
                }
                (Some(slot), 1) => {
                    cache.move_last(Order::Closing, slot);
                    twin.move_last(Order::Closing, port);
                }
                (Some(slot), _) => {
                    cache.move_last(Order::Seen, slot);
                    twin.move_last(Order::Seen, port);
                }
                (None, _) if cache.is_full() => assert_eq!(cache.len(), 50),
                (None, _) => {
                    let slot = cache.insert(key(port));
                    assert_eq!(*cache.value(slot), key(port));
                    twin.move_last(Order::Seen, port);
                }
            }
            for order in [Order::Seen, Order::Closing] {
                let first = cache.first(order).map(|slot| cache.value(slot).source_port);
                assert_eq!(first, twin.0[order as usize].front().copied(), "{order:?}");
            }
            assert_eq!(cache.len(), twin.0[0].len());
        }
    }
}
