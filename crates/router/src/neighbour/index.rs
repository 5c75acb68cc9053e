//! A hash table from addresses to places, of fixed size, under a secret key.
//!
//! Open addressing with linear probing over twice as many cells as there can be entries; removal
//! shifts what follows back (Knuth, volume 3, 6.4, Algorithm R), so that there are no tombstones and a
//! search never gets longer with age.

use alloc::vec;
use alloc::vec::Vec;

use nilometer_stat::Rng;

use super::Family;

const EMPTY: u32 = u32::MAX;
/// The purpose of the keys' random stream.
const PURPOSE: u32 = 0x6e69;

/// Addresses and their places.
#[derive(Debug)]
pub(super) struct Index<A> {
    cells: Vec<(A, u32)>,
    keys: [u64; 2],
}

impl<A: Family> Index<A> {
    /// For at most `entries_max` addresses.
    pub(super) fn new(entries_max: usize, seed: u64) -> Index<A> {
        let mut rng = Rng::new(seed, PURPOSE, 0);
        let cells = vec![(A::NONE, EMPTY); (entries_max * 2).next_power_of_two()];
        Index { cells, keys: [rng.next_u64(), rng.next_u64()] }
    }

    #[inline]
    fn home(&self, address: A) -> usize {
        address.mixed(self.keys) as usize & (self.cells.len() - 1)
    }

    #[inline]
    fn cell(&self, address: A) -> Result<usize, usize> {
        let mut at = self.home(address);
        loop {
            let (there, place) = self.cells[at];
            if place == EMPTY {
                return Err(at);
            }
            if there == address {
                return Ok(at);
            }
            at = (at + 1) & (self.cells.len() - 1);
        }
    }

    /// The place of `address`.
    #[inline]
    pub(super) fn find(&self, address: A) -> Option<u32> {
        self.cell(address).ok().map(|at| self.cells[at].1)
    }

    /// Adds an address that is not there; the caller keeps to the limit.
    pub(super) fn insert(&mut self, address: A, place: u32) {
        let at = self.cell(address).expect_err("an address has one place");
        self.cells[at] = (address, place);
    }

    /// Removes `address`, if it is there.
    pub(super) fn remove(&mut self, address: A) {
        let Ok(mut hole) = self.cell(address) else { return };
        let mask = self.cells.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let (there, place) = self.cells[at];
            if place == EMPTY {
                break;
            }
            let from_home = at.wrapping_sub(self.home(there)) & mask;
            if from_home >= at.wrapping_sub(hole) & mask {
                self.cells[hole] = self.cells[at];
                hole = at;
            }
        }
        self.cells[hole].1 = EMPTY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;

    #[test]
    fn agrees_with_a_sorted_map() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed, 1, 0);
            let mut index = Index::<u32>::new(64, seed);
            let mut twin = BTreeMap::new();
            for step in 0..20_000 {
                let address = rng.below(150) as u32;
                if rng.below(2) == 0 && twin.len() < 64 {
                    twin.entry(address).or_insert_with(|| {
                        index.insert(address, step);
                        step
                    });
                } else {
                    index.remove(address);
                    twin.remove(&address);
                }
                let key = rng.below(150) as u32;
                assert_eq!(index.find(key), twin.get(&key).copied());
            }
            for key in 0..150 {
                assert_eq!(index.find(key), twin.get(&key).copied());
            }
        }
    }
}
