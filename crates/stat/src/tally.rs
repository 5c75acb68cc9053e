//! Whole numbers counted in bounded memory, with the same result in any order of arrival.
//!
//! A tally is a sorted list of values, each with its count. While the values are few it is exact. When there
//! are more distinct values than it may hold, all values lose their last significant bits, one bit at a time,
//! until few enough are distinct: values that have become equal share an entry, which keeps their number and
//! their sum. So only the precision of values is bounded, and never the count or the mean.
//!
//! The number of bits left depends on the values alone. Let d(b) be the number of distinct values when `b`
//! bits of each are kept. It falls with `b` and grows with every value, so the bits that are left at the end
//! are the most for which d(b) is within the limit, in whichever order values came, and in whichever of two
//! merged tallies each was counted. Sums of whole numbers do not depend on the order either.

use alloc::vec::Vec;

/// All bits of a value.
const ALL_BITS: u32 = u64::BITS;

/// Values that are equal in the bits that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    /// Their common bits, then zeros.
    value: u64,
    count: u64,
    sum: u128,
}

/// The tally.
#[derive(Clone, Debug)]
pub struct Tally {
    limit: usize,
    bits: u32,
    /// In rising order, each value once.
    entries: Vec<Entry>,
    /// Entries added since the last settling, in runs of rising order.
    fresh: Vec<Entry>,
}

impl Tally {
    /// An empty tally of at most `limit` entries (at least 128), 32 bytes each; up to twice as many while it
    /// grows.
    pub fn new(limit: usize) -> Tally {
        let limit = limit.max(2 * ALL_BITS as usize);
        Tally { limit, bits: ALL_BITS, entries: Vec::new(), fresh: Vec::new() }
    }

    /// The tally of these values, in any order.
    pub fn of(mut values: Vec<u64>, limit: usize) -> Tally {
        values.sort_unstable();
        let mut tally = Tally::new(limit);
        for same in values.chunk_by(|one, other| one == other) {
            tally.add(same[0], same.len() as u64);
        }
        tally
    }

    /// Counts a value `count` times.
    pub fn add(&mut self, value: u64, count: u64) {
        if count > 0 {
            self.push(Entry { value, count, sum: u128::from(value) * u128::from(count) });
        }
    }

    /// Adds what another tally has counted.
    pub fn merge(&mut self, other: Tally) {
        self.bits = self.bits.min(other.bits);
        other.entries.into_iter().chain(other.fresh).for_each(|entry| self.push(entry));
    }

    /// Is it empty?
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.fresh.is_empty()
    }

    /// The values as whole numbers, and how often each was counted. Values that have lost bits are replaced
    /// by the whole numbers next to their mean, in the proportion that keeps their sum.
    pub fn whole(mut self) -> Vec<(f64, u64)> {
        self.settle();
        let mut counts = Vec::with_capacity(self.entries.len());
        for Entry { count, sum, .. } in self.entries {
            let below = sum / u128::from(count);
            let above = (sum - below * u128::from(count)) as u64;
            counts.push((below as f64, count - above));
            if above > 0 {
                counts.push((below as f64 + 1.0, above));
            }
        }
        counts
    }

    /// The values divided by `unit`, and how often each was counted. Values that have lost bits are replaced
    /// by their mean.
    pub fn in_units_of(mut self, unit: f64) -> Vec<(f64, u64)> {
        self.settle();
        let mean = |entry: &Entry| entry.sum as f64 / entry.count as f64;
        self.entries.iter().map(|entry| (mean(entry) / unit, entry.count)).collect()
    }

    fn push(&mut self, entry: Entry) {
        self.fresh.push(entry);
        if self.fresh.len() >= self.limit {
            self.settle();
        }
    }

    /// Merges the fresh entries, and drops bits while there are too many values.
    fn settle(&mut self) {
        self.entries.append(&mut self.fresh);
        self.round();
        // A stable sort finds the runs that are there.
        self.entries.sort_by_key(|entry| entry.value);
        self.join();
        if self.entries.len() > self.limit {
            let greatest = self.entries.last().map_or(0, |entry| entry.value);
            self.bits = self.bits.min(ALL_BITS - greatest.leading_zeros());
        }
        while self.entries.len() > self.limit {
            self.bits -= 1;
            self.round();
            self.join();
        }
    }

    fn round(&mut self) {
        if self.bits == ALL_BITS {
            return;
        }
        for entry in &mut self.entries {
            let lost = (ALL_BITS - entry.value.leading_zeros()).saturating_sub(self.bits);
            entry.value = entry.value >> lost << lost;
        }
    }

    fn join(&mut self) {
        self.entries.dedup_by(|later, earlier| {
            let same = later.value == earlier.value;
            if same {
                earlier.count += later.count;
                earlier.sum += later.sum;
            }
            same
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;
    use alloc::collections::BTreeMap;

    const LIMIT: usize = 500;

    /// Values of many sizes.
    fn values(seed: u64, count: usize) -> Vec<u64> {
        let mut rng = Rng::new(seed, 0, 0);
        let mut one = || {
            let bits = 1 + rng.below(40);
            rng.below(1 << bits)
        };
        (0..count).map(|_| one()).collect()
    }

    /// The naive twin: the most bits for which a set of rounded values is small enough.
    fn naive(values: &[u64]) -> Vec<Entry> {
        let rounded = |value: u64, bits: u32| {
            let lost = (64 - value.leading_zeros()).saturating_sub(bits);
            value >> lost << lost
        };
        for bits in (1..=64).rev() {
            let mut entries: BTreeMap<u64, Entry> = BTreeMap::new();
            for &value in values {
                let value_kept = rounded(value, bits);
                let entry = entries.entry(value_kept).or_insert(Entry {
                    value: value_kept,
                    count: 0,
                    sum: 0,
                });
                entry.count += 1;
                entry.sum += u128::from(value);
            }
            if entries.len() <= LIMIT {
                return entries.into_values().collect();
            }
        }
        unreachable!("one bit leaves 64 values")
    }

    #[test]
    fn it_is_the_same_in_any_order_and_in_any_parts() {
        for (seed, count) in [(1, 300), (2, 5_000), (3, 60_000)] {
            let all = values(seed, count);
            let expected = naive(&all);
            let mut forwards = Tally::new(LIMIT);
            all.iter().for_each(|&value| forwards.add(value, 1));
            let mut backwards = Tally::new(LIMIT);
            all.iter().rev().for_each(|&value| backwards.add(value, 1));
            let mut parts = Tally::new(LIMIT);
            for part in all.chunks(700) {
                parts.merge(Tally::of(part.to_vec(), LIMIT));
            }
            for mut tally in [forwards, backwards, parts] {
                tally.settle();
                assert_eq!(tally.entries, expected, "{count} values");
            }
        }
    }

    #[test]
    fn few_values_are_exact_and_many_keep_their_count_and_their_sum() {
        let mut few = Tally::of(alloc::vec![7, 3, 7], LIMIT);
        few.add(9, 2);
        few.add(1, 0);
        assert_eq!(few.clone().whole(), [(3.0, 1), (7.0, 2), (9.0, 2)]);
        assert_eq!(few.in_units_of(2.0), [(1.5, 1), (3.5, 2), (4.5, 2)]);
        let all = values(4, 80_000);
        let counts = Tally::of(all.clone(), LIMIT).whole();
        assert!(counts.len() > LIMIT / 3 && counts.len() <= 2 * LIMIT);
        assert_eq!(counts.iter().map(|(_, count)| count).sum::<u64>(), 80_000);
        let sum = |counts: &[(f64, u64)]| counts.iter().map(|(v, n)| v * *n as f64).sum::<f64>();
        assert_eq!(sum(&counts), all.iter().map(|&value| value as f64).sum::<f64>());
        assert!(Tally::new(LIMIT).is_empty() && Tally::new(LIMIT).whole().is_empty());
    }

    /// Many of a few values: no bit is lost, whatever comes after them.
    #[test]
    fn few_values_stay_exact_when_a_greater_one_comes() {
        let mut tally = Tally::new(LIMIT);
        (0..2 * LIMIT).for_each(|_| tally.add(7, 1));
        tally.add(1_001, 3);
        (0..LIMIT).for_each(|_| tally.add(6, 2));
        assert_eq!(tally.whole(), [(6.0, 1_000), (7.0, 1_000), (1_001.0, 3)]);
        // As many values as the limit are exact; with one more, last bits are lost.
        let of =
            |count: u64| Tally::of((0..count).map(|at| 4_097 + 2 * at).collect(), LIMIT).whole();
        assert!(of(500).iter().zip(0..).all(|(one, at)| *one == (f64::from(4_097 + 2 * at), 1)));
        assert_eq!(of(500).len(), 500);
        let more = of(501);
        assert!(more.iter().any(|(_, count)| *count > 1));
        assert_eq!(more.iter().map(|(_, count)| count).sum::<u64>(), 501);
        // A limit below twice the number of bits is raised to that.
        let low = Tally::of((0..128).collect(), 5).whole();
        assert_eq!(low.len(), 128);
    }
}
