//! A set of IPv4 connections, each in one word of 128 bits: both ends, and two marks.
//!
//! An address and a port are 48 bits, two of them 96: a conversation is its own key, and equality is that of
//! numbers. Probing starts at the place given by the top bits of a hash, so that the next step is mostly in the
//! same cache line, and doubling the table moves words in their order. A caller with several words to mark
//! prefetches all of them first ([`ConnectionSet::prefetch`]), and waits for memory once.

use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_wire::prefetch::prefetch;

use crate::hash::Hashing;
use crate::record::FlowKey;

/// A word that is taken; an empty one is zero.
const TAKEN: u128 = 1 << 127;
/// The bits of both ends.
const ENDS: u128 = (1 << 96) - 1;
/// A mark: the conversation was opened.
pub(crate) const OPENED: u128 = 1 << 96;
/// A mark: it was ended.
pub(crate) const ENDED: u128 = 1 << 97;

const SLOTS_MIN: usize = 1 << 10;

/// The conversation of a key, the same for both directions; `None` where an end is not IPv4.
pub(crate) fn word_of(key: &FlowKey) -> Option<u128> {
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (key.source, key.destination) else {
        return None;
    };
    let source = u64::from(source.to_bits()) << 16 | u64::from(key.source_port);
    let destination = u64::from(destination.to_bits()) << 16 | u64::from(key.destination_port);
    let (low, high) = (source.min(destination), source.max(destination));
    Some(TAKEN | u128::from(low) << 48 | u128::from(high))
}

/// The table.
#[derive(Debug)]
pub(crate) struct ConnectionSet {
    slots: Vec<u128>,
    taken: usize,
    hashing: Hashing,
}

impl ConnectionSet {
    /// An empty table.
    pub(crate) fn new() -> ConnectionSet {
        ConnectionSet { slots: vec![0; SLOTS_MIN], taken: 0, hashing: Hashing::default() }
    }

    /// Conversations in the table.
    pub(crate) fn len(&self) -> usize {
        self.taken
    }

    /// Prefetches the place where `word` belongs.
    pub(crate) fn prefetch(&self, word: u128) {
        prefetch(&raw const self.slots[self.place(word)]);
    }

    /// Adds the marks of `word` to its conversation, which is inserted if it is new and `may_grow` is set.
    /// Returns the conversation as it was before, or zero if it was not there.
    pub(crate) fn mark(&mut self, word: u128, may_grow: bool) -> u128 {
        let mut at = self.place(word);
        loop {
            let found = self.slots[at];
            if (found ^ word) & (ENDS | TAKEN) == 0 {
                self.slots[at] |= word;
                return found;
            }
            if found == 0 {
                break;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
        if may_grow {
            self.slots[at] = word;
            self.taken += 1;
            if self.taken > self.slots.len() / 4 * 3 {
                self.double();
            }
        }
        0
    }

    fn double(&mut self) {
        let slots = vec![0; self.slots.len() * 2];
        for word in core::mem::replace(&mut self.slots, slots).into_iter().filter(|word| *word != 0)
        {
            let mut at = self.place(word);
            while self.slots[at] != 0 {
                at = (at + 1) & (self.slots.len() - 1);
            }
            self.slots[at] = word;
        }
    }

    fn place(&self, word: u128) -> usize {
        (self.hashing.of_word(word & ENDS) >> (64 - self.slots.len().trailing_zeros())) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use core::net::Ipv4Addr;
    use nilometer_stat::Rng;

    fn key(host: u32, port: u16) -> FlowKey {
        FlowKey {
            source: Ipv4Addr::from_bits(0x0a00_0000 + host).into(),
            destination: Ipv4Addr::new(198, 18, 0, 1).into(),
            source_port: port,
            destination_port: 80,
            protocol: 6,
        }
    }

    #[test]
    fn a_word_holds_both_ends_whichever_way_it_goes() {
        let one = key(1, 4_000);
        let word = TAKEN | 0x0a00_0001_0fa0 << 48 | 0xc612_0001_0050;
        assert_eq!((word_of(&one), word_of(&one.reversed())), (Some(word), Some(word)));
        let v6 = FlowKey { source: core::net::Ipv6Addr::LOCALHOST.into(), ..one };
        assert_eq!((word_of(&v6), word_of(&v6.reversed())), (None, None));
    }

    /// A map holds the same, however often the table is doubled.
    #[test]
    fn marks_are_those_of_a_map() {
        let mut rng = Rng::new(3, 0, 0);
        let (mut words, mut map) = (ConnectionSet::new(), BTreeMap::<u128, u128>::new());
        for round in 0..20_000 {
            let chance = rng.next_u64();
            let key = key((chance >> 40) as u32 % 3_000, (chance >> 60) as u16);
            let word = word_of(&key).expect("IPv4");
            let mark = [0, OPENED, ENDED][(chance >> 33) as usize % 3];
            let may_grow = round % 5 > 0;
            let before = map.get(&word).copied();
            if may_grow || before.is_some() {
                *map.entry(word).or_insert(word) |= mark;
            }
            assert_eq!(words.mark(word | mark, may_grow), before.unwrap_or(0));
            assert_eq!(words.len(), map.len());
        }
        assert!(words.slots.len() > SLOTS_MIN && words.taken <= words.slots.len() / 4 * 3);
    }

    #[test]
    fn conversations_spread_over_the_table() {
        let words = ConnectionSet::new();
        let places = (0..SLOTS_MIN as u32).map(|host| words.place(word_of(&key(host, 9)).unwrap()));
        let places: alloc::collections::BTreeSet<usize> = places.collect();
        // By chance 1 - 1/e of them are taken, 647 of 1,024.
        assert!(places.len() > 500, "{}", places.len());
        let marked = word_of(&key(7, 9)).unwrap() | OPENED;
        assert_eq!(words.place(marked), words.place(marked & !OPENED), "marks move nobody");
    }
}
