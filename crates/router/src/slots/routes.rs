//! The writer's account of all routes, slot by slot, from which any slot can be rewritten.
//!
//! A route longer than its slot's prefix stands in the slot's list, sorted; one as long or shorter covers
//! whole slots, and each slot remembers the longest that covers it. So what a slot answers depends on
//! its list and its cover alone: a walk over the list with the routes that are open on a stack gives its
//! *runs*, the first address of each stretch of addresses with the same answer (Figure 2 of Zec, Rizzo
//! and Mikuc, "DXR", 2012, has them as ranges).

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use super::division::{Divided, Ranged};
use crate::fib::NextHop;
use crate::prefix::Prefix;

/// What a lookup answers, in one number: a next hop plus one, or 0 for no route.
pub type Leaf = u16;

/// The first of some addresses with the same answer; they end where the next begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run<A> {
    pub(crate) start: A,
    pub(crate) leaf: Leaf,
}

pub(crate) fn leaf(next: NextHop) -> Leaf {
    next.0 + 1
}

#[inline(always)]
pub(crate) fn next_hop(leaf: Leaf) -> Option<NextHop> {
    leaf.checked_sub(1).map(NextHop)
}

/// The longest route that covers a slot: its length plus one and its leaf; zeros where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cover {
    pub length_plus_one: u8,
    pub leaf: Leaf,
}

/// A prefix and what its addresses are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route<A> {
    pub prefix: Prefix<A>,
    pub leaf: Leaf,
}

/// All routes.
#[derive(Debug)]
pub(crate) struct Routes<A> {
    bits: u32,
    long: Vec<Vec<Route<A>>>,
    covers: Vec<Cover>,
    short: BTreeMap<Prefix<A>, Leaf>,
    count: usize,
    walk: Walk<A>,
}

impl<A: Divided> Routes<A> {
    pub fn new(bits: u32) -> Routes<A> {
        let slots = A::slots(bits);
        Routes {
            bits,
            long: vec![Vec::new(); slots],
            covers: vec![Cover::default(); slots],
            short: BTreeMap::new(),
            count: 0,
            walk: Walk::default(),
        }
    }

    pub fn len(&self) -> usize {
        self.count
    }

    /// Gives `prefix` the leaf, or withdraws it with 0; returns which it had. The slots that answer
    /// otherwise from now on are added to `touched`.
    pub fn set(&mut self, prefix: Prefix<A>, leaf: Leaf, touched: &mut Vec<usize>) -> Leaf {
        let slot = prefix.address().slot(self.bits);
        let was = if prefix.length() > A::of_slot(slot, self.bits).length() {
            let was = set_long(&mut self.long[slot], prefix, leaf);
            if was != leaf {
                touched.push(slot);
            }
            was
        } else {
            self.set_short(prefix, leaf, touched)
        };
        self.count = self.count + usize::from(leaf != 0) - usize::from(was != 0);
        was
    }

    fn set_short(&mut self, prefix: Prefix<A>, leaf: Leaf, touched: &mut Vec<usize>) -> Leaf {
        let was = match leaf {
            0 => self.short.remove(&prefix),
            leaf => self.short.insert(prefix, leaf),
        };
        let own = Cover { length_plus_one: prefix.length() as u8 + 1, leaf };
        let cover = if leaf != 0 { own } else { self.covering(prefix) };
        for slot in A::slots_of(prefix, self.bits) {
            let stands = &mut self.covers[slot];
            if stands.length_plus_one <= own.length_plus_one && *stands != cover {
                *stands = cover;
                touched.push(slot);
            }
        }
        was.unwrap_or(0)
    }

    /// The longest route that contains `prefix` and is shorter.
    fn covering(&self, prefix: Prefix<A>) -> Cover {
        let by_length = |length| {
            let leaf = *self.short.get(&Prefix::new(prefix.address(), length)?)?;
            Some(Cover { length_plus_one: length as u8 + 1, leaf })
        };
        (0..prefix.length()).rev().find_map(by_length).unwrap_or_default()
    }

    /// The runs of a slot, in their order, the first at the slot's first address.
    pub fn runs(&mut self, slot: usize, runs: &mut Vec<Run<A>>) {
        let part = A::of_slot(slot, self.bits);
        runs_of(part, self.covers[slot].leaf, &self.long[slot], &mut self.walk, runs);
    }

    /// Where runs can begin in the slot whose runs were made last, whatever its routes answer.
    pub fn starts(&self) -> &[A] {
        &self.walk.starts
    }
}

/// A walk over the routes of a part.
#[derive(Debug)]
pub(crate) struct Walk<A> {
    /// Routes that are open on the way.
    open: Vec<(A, Leaf)>,
    /// The addresses at which the answer may change.
    pub starts: Vec<A>,
}

impl<A> Default for Walk<A> {
    fn default() -> Walk<A> {
        Walk { open: Vec::new(), starts: Vec::new() }
    }
}

/// The runs of `part`: `routes`, sorted and longer than `part`, have their own answers and all else
/// has `cover`.
pub(crate) fn runs_of<A: Ranged>(
    part: Prefix<A>,
    cover: Leaf,
    routes: &[Route<A>],
    walk: &mut Walk<A>,
    runs: &mut Vec<Run<A>>,
) {
    let last = part.address().filled(part.length());
    runs.clear();
    walk.starts.clear();
    walk.begin(runs, part.address(), cover);
    walk.open.clear();
    walk.open.push((last, cover));
    for route in routes {
        let start = route.prefix.address();
        walk.close(runs, |end| end < start);
        walk.begin(runs, start, route.leaf);
        walk.open.push((start.filled(route.prefix.length()), route.leaf));
    }
    walk.close(runs, |end| end < last);
}

impl<A: Ranged> Walk<A> {
    /// Closes open routes that have ended; each gives way to the one below it.
    fn close(&mut self, runs: &mut Vec<Run<A>>, has_ended: impl Fn(A) -> bool) {
        while let [.., (_, below), (end, _)] = self.open[..]
            && has_ended(end)
        {
            self.begin(runs, end.successor(), below);
            self.open.pop();
        }
    }

    /// From `start` on the answer is `leaf`.
    fn begin(&mut self, runs: &mut Vec<Run<A>>, start: A, leaf: Leaf) {
        if self.starts.last() != Some(&start) {
            self.starts.push(start);
        }
        if runs.last().is_some_and(|last| last.start == start) {
            runs.pop();
        }
        if runs.last().is_none_or(|last| last.leaf != leaf) {
            runs.push(Run { start, leaf });
        }
    }
}

/// Gives `prefix` the leaf in a sorted list, or withdraws it with 0; returns which it had.
pub(crate) fn set_long<A: Ranged>(list: &mut Vec<Route<A>>, prefix: Prefix<A>, leaf: Leaf) -> Leaf {
    match list.binary_search_by_key(&prefix, |route| route.prefix) {
        Ok(at) if leaf == 0 => list.remove(at).leaf,
        Ok(at) => core::mem::replace(&mut list[at].leaf, leaf),
        Err(_) if leaf == 0 => 0,
        Err(at) => {
            list.insert(at, Route { prefix, leaf });
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(routes: &[(&str, Leaf)], slot: usize) -> Vec<(u32, Leaf)> {
        let mut table = Routes::<u32>::new(8);
        for (prefix, leaf) in routes {
            table.set(prefix.parse().expect(prefix), *leaf, &mut Vec::new());
        }
        let mut runs = Vec::new();
        table.runs(slot, &mut runs);
        runs.into_iter().map(|run| (run.start, run.leaf)).collect()
    }

    #[test]
    fn runs_begin_where_answers_change() {
        let routes = [("10.0.0.0/8", 1), ("10.1.0.0/16", 2), ("10.1.128.0/17", 3)];
        let expected = [(0x0a00_0000, 1), (0x0a01_0000, 2), (0x0a01_8000, 3), (0x0a02_0000, 1)];
        assert_eq!(runs(&routes, 10), expected);
        assert_eq!(runs(&routes, 11), [(0x0b00_0000, 0)]);
        // A route of the same answer makes no run, nor one that others hide.
        let routes = [("10.0.0.0/8", 1), ("10.0.0.0/9", 1), ("10.128.0.0/9", 2), ("10.0.0.0/7", 7)];
        assert_eq!(runs(&routes, 10), [(0x0a00_0000, 1), (0x0a80_0000, 2)]);
        assert_eq!(runs(&[("255.255.255.255/32", 4)], 255), [(0xff00_0000, 0), (u32::MAX, 4)]);
    }

    #[test]
    fn slots_that_answer_as_before_are_not_touched() {
        let mut table = Routes::<u32>::new(8);
        let mut touched = Vec::new();
        let mut set = |text: &str, leaf| {
            touched.clear();
            let was = table.set(text.parse().expect(text), leaf, &mut touched);
            (was, touched.len())
        };
        assert_eq!(set("0.0.0.0/0", 1), (0, 256));
        assert_eq!(set("10.0.0.0/7", 2), (0, 2));
        assert_eq!(set("0.0.0.0/0", 3), (1, 254));
        assert_eq!(set("10.0.0.0/8", 0), (0, 0));
        assert_eq!(set("10.2.0.0/16", 9), (0, 1));
        assert_eq!(set("10.2.0.0/16", 9), (9, 0));
        assert_eq!(set("10.0.0.0/7", 0), (2, 2));
        assert_eq!(table.len(), 2);
    }
}
