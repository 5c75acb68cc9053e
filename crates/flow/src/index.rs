//! The index of a cache: slots of flows in its slab by their hashes, one word of 64 bits for each.
//!
//! A table of this size does not fit into a processor's cache, so its cost is the number of waits for
//! memory. Half of a word is the slot, and half of it are bits of the hash, so that the search reads
//! nothing else: a flow is found, or found missing, in one cache line, and the search hardly ever visits
//! a wrong flow. Words are probed one by one from the place given by the top bits of the hash, which are
//! part of the word; when a word is removed, those behind it move up.

use alloc::vec;
use alloc::vec::Vec;

use nilometer_wire::prefetch::prefetch;

/// Words at the beginning.
const WORDS_MIN: usize = 1 << 10;

/// The table: a slot and one is the lower half of a word, the upper half of its hash the upper. Zero is
/// empty.
#[derive(Debug)]
pub(crate) struct Index {
    words: Vec<u64>,
    /// The number of bits by which a hash is shifted to get its place.
    shift: u32,
    taken: usize,
}

fn word_of(hash: u64, slot: u32) -> u64 {
    hash >> 32 << 32 | u64::from(slot + 1)
}

#[inline]
fn slot_of(word: u64) -> u32 {
    word as u32 - 1
}

impl Index {
    /// An empty table.
    pub(crate) fn new() -> Index {
        Index { words: vec![0; WORDS_MIN], shift: 64 - WORDS_MIN.trailing_zeros(), taken: 0 }
    }

    /// Slots in the table.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.taken
    }

    /// Prefetches the place where `hash` belongs.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u64) {
        prefetch(&raw const self.words[self.home(hash)]);
    }

    /// The slot with this hash for which `is_it`.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = self.home(hash);
        loop {
            let word = self.words[at];
            if word == 0 {
                return None;
            }
            if word >> 32 == hash >> 32 && is_it(slot_of(word)) {
                return Some(slot_of(word));
            }
            at = self.after(at);
        }
    }

    /// Adds a slot.
    pub(crate) fn insert(&mut self, hash: u64, slot: u32) {
        if self.taken >= self.words.len() / 2 {
            let words = vec![0; self.words.len() * 2];
            self.shift -= 1;
            for word in core::mem::replace(&mut self.words, words) {
                if word != 0 {
                    self.put(word);
                }
            }
        }
        self.put(word_of(hash, slot));
        self.taken += 1;
    }

    /// Removes a slot, which must be there with this hash.
    pub(crate) fn remove(&mut self, hash: u64, slot: u32) {
        let (word, mut at) = (word_of(hash, slot), self.home(hash));
        while self.words[at] != word {
            assert!(self.words[at] != 0, "a slot that is taken out is there");
            at = self.after(at);
        }
        // A word behind the gap stays if its home lies behind the gap, too; others move into the gap.
        let mask = self.words.len() - 1;
        let mut behind = self.after(at);
        while self.words[behind] != 0 {
            let home = self.home(self.words[behind]);
            if behind.wrapping_sub(home) & mask >= behind.wrapping_sub(at) & mask {
                self.words[at] = self.words[behind];
                at = behind;
            }
            behind = self.after(behind);
        }
        self.words[at] = 0;
        self.taken -= 1;
    }

    fn put(&mut self, word: u64) {
        let mut at = self.home(word);
        while self.words[at] != 0 {
            at = self.after(at);
        }
        self.words[at] = word;
    }

    /// The place of a hash, or of a word: their upper halves are the same.
    #[inline]
    fn home(&self, hash: u64) -> usize {
        (hash >> self.shift) as usize
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.words.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use nilometer_stat::Rng;

    #[test]
    fn agrees_with_a_map_whatever_collides() {
        // Few hashes, so that runs are long, wrap around the table's end and are torn apart.
        let hash_of = |slot: u32| (u64::from(slot % 97) << 58) ^ u64::from(slot % 13);
        let (mut index, mut twin) = (Index::new(), BTreeMap::new());
        let mut rng = Rng::new(3, 0, 0);
        for _ in 0..50_000 {
            let chance = rng.next_u64();
            let slot = (chance >> 33) as u32 % 900;
            let hash = hash_of(slot);
            let found = index.find(hash, |other| other == slot);
            assert_eq!(found, twin.get(&slot).copied());
            match found {
                Some(_) => {
                    index.remove(hash, slot);
                    twin.remove(&slot);
                }
                None => {
                    index.insert(hash, slot);
                    twin.insert(slot, slot);
                }
            }
            assert_eq!(index.len(), twin.len());
        }
        assert!(index.words.len() > WORDS_MIN / 2 && twin.len() > 300);
        assert!(
            (0..900)
                .all(|slot| index.find(hash_of(slot), |at| at == slot) == twin.get(&slot).copied())
        );
    }
}
