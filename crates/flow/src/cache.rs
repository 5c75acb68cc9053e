//! A bounded table of flows that remembers the order in which they were last seen.
//!
//! Flows live in a slab; a table of its slots finds them by key, and two doubly linked lists
//! run through the slab itself: one from the least to the most recently seen flow, one through the
//! flows that are closing, in the order in which they began to. Since the meter's clock never goes
//! back, the heads of these lists are always the next to expire: no timer wheel, no scan, a constant
//! number of steps a packet.

use alloc::vec::Vec;

use crate::hash;
use crate::index::Index;
use crate::record::FlowKey;

const NOBODY: u32 = u32::MAX;
/// Before and behind whoever is in no list.
const LOOSE: Link = Link { previous: NOBODY - 1, next: NOBODY - 1 };

/// What knows its own five-tuple.
pub(crate) trait Keyed {
    fn key(&self) -> &FlowKey;
}

/// Where a flow stands in the slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(u32);

/// The two orders that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Every flow, least recently seen first.
    Seen = 0,
    /// Flows that saw their end marker, first to close first.
    Closing = 1,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Link {
    previous: u32,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    first: u32,
    last: u32,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    links: [Link; 2],
}

/// The table.
#[derive(Debug)]
pub(crate) struct Cache<V> {
    entries: Vec<Option<Entry<V>>>,
    free: Vec<u32>,
    index: Index,
    ends: [Ends; 2],
    flows_max: u32,
}

impl<V: Keyed> Cache<V> {
    /// An empty table for at most `flows_max` flows (at least one; at most 2^32 - 3).
    pub(crate) fn new(flows_max: usize) -> Cache<V> {
        Cache {
            entries: Vec::new(),
            free: Vec::new(),
            index: Index::new(),
            ends: [Ends { first: NOBODY, last: NOBODY }; 2],
            flows_max: u32::try_from(flows_max).unwrap_or(NOBODY).clamp(1, NOBODY - 2),
        }
    }

    /// Flows in the table.
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// Would another flow not fit?
    pub(crate) fn is_full(&self) -> bool {
        self.index.len() >= self.flows_max as usize
    }

    /// Looks where `key` belongs: a number that is of no use, but has to be fetched. Whoever is to look
    /// for several flows looks at all places first, and waits for memory once.
    pub(crate) fn look(&self, key: &FlowKey) -> u64 {
        self.index.look(hash::of(key))
    }

    /// Looks where the first flows in an order belong, `count` at most, as [`Cache::look`] does.
    pub(crate) fn look_first(&self, order: Order, count: usize) -> u64 {
        let (mut at, mut looked) = (self.ends[order as usize].first, 0);
        for _ in 0..count {
            if at == NOBODY {
                break;
            }
            let entry = self.entry(at);
            looked ^= self.look(entry.value.key());
            at = entry.links[order as usize].next;
        }
        looked
    }

    /// The flow of `key`.
    pub(crate) fn find(&self, key: &FlowKey) -> Option<Slot> {
        self.index.find(hash::of(key), |at| self.entry(at).value.key() == key).map(Slot)
    }

    /// Adds a flow that is not there yet, as the most recently seen one.
    pub(crate) fn insert(&mut self, value: V) -> Slot {
        assert!(!self.is_full(), "the caller makes room first");
        let hash = hash::of(value.key());
        let entry = Some(Entry { value, links: [LOOSE; 2] });
        let at = match self.free.pop() {
            Some(at) => {
                self.entries[at as usize] = entry;
                at
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        self.index.insert(hash, at);
        self.append(Order::Seen, at);
        Slot(at)
    }

    /// Takes a flow out.
    pub(crate) fn remove(&mut self, slot: Slot) -> V {
        self.unlink(Order::Seen, slot.0);
        self.unlink(Order::Closing, slot.0);
        self.index.remove(hash::of(self.value(slot).key()), slot.0);
        let entry = self.entries[slot.0 as usize].take().expect("a slot is used while it lives");
        self.free.push(slot.0);
        entry.value
    }

    /// The flow in a slot.
    pub(crate) fn value(&self, slot: Slot) -> &V {
        &self.entry(slot.0).value
    }

    /// The flow in a slot, to change it.
    pub(crate) fn value_mut(&mut self, slot: Slot) -> &mut V {
        &mut self.entry_mut(slot.0).value
    }

    /// The first flow in an order.
    pub(crate) fn first(&self, order: Order) -> Option<Slot> {
        match self.ends[order as usize].first {
            NOBODY => None,
            index => Some(Slot(index)),
        }
    }

    /// Moves a flow to the end of an order, or puts it there.
    pub(crate) fn move_last(&mut self, order: Order, slot: Slot) {
        if self.ends[order as usize].last != slot.0 {
            self.unlink(order, slot.0);
            self.append(order, slot.0);
        }
    }

    fn entry(&self, index: u32) -> &Entry<V> {
        self.entries[index as usize].as_ref().expect("a slot is used while it lives")
    }

    fn entry_mut(&mut self, index: u32) -> &mut Entry<V> {
        self.entries[index as usize].as_mut().expect("a slot is used while it lives")
    }

    fn link_mut(&mut self, order: Order, index: u32) -> &mut Link {
        &mut self.entry_mut(index).links[order as usize]
    }

    fn append(&mut self, order: Order, index: u32) {
        let last = self.ends[order as usize].last;
        *self.link_mut(order, index) = Link { previous: last, next: NOBODY };
        match last {
            NOBODY => self.ends[order as usize].first = index,
            last => self.link_mut(order, last).next = index,
        }
        self.ends[order as usize].last = index;
    }

    fn unlink(&mut self, order: Order, index: u32) {
        let link = core::mem::replace(self.link_mut(order, index), LOOSE);
        if link == LOOSE {
            return;
        }
        let Link { previous, next } = link;
        match previous {
            NOBODY => self.ends[order as usize].first = next,
            previous => self.link_mut(order, previous).next = next,
        }
        match next {
            NOBODY => self.ends[order as usize].last = previous,
            next => self.link_mut(order, next).previous = previous,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use core::net::Ipv4Addr;

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
        let mut chance = 11u64;
        for _ in 0..20_000 {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
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
