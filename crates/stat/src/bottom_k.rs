//! Bottom-k sketch: the k least of many items, in bounded memory and in any order of arrival.
//!
//! With a hash of the item as its first field the sketch is a uniform sample without replacement, and the sketches of
//! two parts merge into that of the whole (Cohen and Kaplan, *Summarizing Data Using Bottom-k Sketches*, PODC 2007).

use alloc::vec::Vec;

/// The least of the items that were offered.
#[derive(Clone, Debug)]
pub struct BottomK<T> {
    limit: usize,
    kept: Vec<T>,
    /// A selection was made: the first `limit` items are the least so far, and the last of these is the greatest.
    is_bounded: bool,
    offered: u64,
}

impl<T: Ord> BottomK<T> {
    /// Keeps at most `limit` items, at least one; twice as many between selections.
    pub fn new(limit: usize) -> BottomK<T> {
        BottomK { limit: limit.max(1), kept: Vec::new(), is_bounded: false, offered: 0 }
    }

    /// Offers an item, which is kept if it is among the least.
    pub fn offer(&mut self, item: T) {
        self.offered += 1;
        self.keep(item);
    }

    /// Merges the sketch of another part.
    pub fn merge(&mut self, other: BottomK<T>) {
        self.offered += other.offered;
        other.kept.into_iter().for_each(|item| self.keep(item));
    }

    /// How many items were offered.
    pub fn offered(&self) -> u64 {
        self.offered
    }

    /// The threshold at or above which items are not kept; none before the first selection.
    pub fn bound(&self) -> Option<&T> {
        if self.is_bounded { self.kept.get(self.limit - 1) } else { None }
    }

    /// The least, in rising order.
    pub fn into_sorted(mut self) -> Vec<T> {
        self.kept.sort_unstable();
        self.kept.truncate(self.limit);
        self.kept
    }

    fn keep(&mut self, item: T) {
        if self.bound().is_some_and(|bound| item >= *bound) {
            return;
        }
        self.kept.push(item);
        if self.kept.len() >= 2 * self.limit {
            self.kept.select_nth_unstable(self.limit - 1);
            self.kept.truncate(self.limit);
            self.is_bounded = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn the_least_are_kept_in_any_order_and_partition() {
        let mut rng = Rng::new(1, 0, 0);
        let all: Vec<u64> = (0..10_000).map(|_| rng.below(5_000)).collect();
        for limit in [1, 7, 300, 20_000] {
            let mut expected = all.clone();
            expected.sort_unstable();
            expected.truncate(limit);
            let mut whole = BottomK::new(limit);
            all.iter().for_each(|&item| whole.offer(item));
            let mut parts = BottomK::new(limit);
            for chunk in all.chunks(333).rev() {
                let mut part = BottomK::new(limit);
                chunk.iter().for_each(|&item| part.offer(item));
                parts.merge(part);
            }
            assert_eq!((whole.offered(), parts.offered()), (10_000, 10_000));
            assert_eq!(whole.bound().is_some(), limit < 5_000);
            assert!(whole.bound().is_none_or(|bound| bound >= &expected[limit - 1]));
            assert_eq!(whole.into_sorted(), expected);
            assert_eq!(parts.into_sorted(), expected);
        }
    }
}
