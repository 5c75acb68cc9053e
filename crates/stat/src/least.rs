//! The least of many things, so many of them: in bounded memory, in whatever order they come.
//!
//! With a mark in front that is a hash of the thing, they are a sample: each thing is as likely to be among
//! them as any other, and two samples of parts add up to that of the whole.

use alloc::vec::Vec;

/// The least things that were offered.
#[derive(Clone, Debug)]
pub struct Least<T> {
    limit: usize,
    kept: Vec<T>,
    /// The first of those kept, `limit` of them, are the least so far; the last of these is the greatest.
    is_bounded: bool,
    offered: u64,
}

impl<T: Ord> Least<T> {
    /// Keeps at most `limit` things, at least one; twice as many for a while.
    pub fn new(limit: usize) -> Least<T> {
        Least { limit: limit.max(1), kept: Vec::new(), is_bounded: false, offered: 0 }
    }

    /// Takes a thing, if it is among the least.
    pub fn offer(&mut self, thing: T) {
        self.offered += 1;
        self.keep(thing);
    }

    /// Adds the least of another part.
    pub fn merge(&mut self, other: Least<T>) {
        self.offered += other.offered;
        other.kept.into_iter().for_each(|thing| self.keep(thing));
    }

    /// How many things were offered.
    pub fn offered(&self) -> u64 {
        self.offered
    }

    /// What is not below this is not among the least; none while that is not known.
    pub fn bound(&self) -> Option<&T> {
        if self.is_bounded { self.kept.get(self.limit - 1) } else { None }
    }

    /// The least, in rising order.
    pub fn into_sorted(mut self) -> Vec<T> {
        self.kept.sort_unstable();
        self.kept.truncate(self.limit);
        self.kept
    }

    fn keep(&mut self, thing: T) {
        if self.bound().is_some_and(|bound| thing >= *bound) {
            return;
        }
        self.kept.push(thing);
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
    fn the_least_are_kept_whatever_the_order_and_the_parts() {
        let mut rng = Rng::new(1, 0, 0);
        let all: Vec<u64> = (0..10_000).map(|_| rng.below(5_000)).collect();
        for limit in [1, 7, 300, 20_000] {
            let mut expected = all.clone();
            expected.sort_unstable();
            expected.truncate(limit);
            let mut whole = Least::new(limit);
            all.iter().for_each(|&thing| whole.offer(thing));
            let mut parts = Least::new(limit);
            for chunk in all.chunks(333).rev() {
                let mut part = Least::new(limit);
                chunk.iter().for_each(|&thing| part.offer(thing));
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
