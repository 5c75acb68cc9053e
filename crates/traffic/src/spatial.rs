//! Address pairs of sessions, which keep the popularity of both sides and do not collide.
//!
//! Each session draws its source and its destination by the alias method. Two sessions active at the
//! same time should not share a pair (they would be one pair of hosts with twice the connections).
//! Drawing again would distort the law: the most popular pair collides most and would become rarer.
//! Instead two sessions of the interval exchange their destinations: every source and every
//! destination is then used exactly as often as it was drawn. Where the pools are too small for
//! that, the pair is kept and the collision counted.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use nilometer_stat::{Alias, Rng};

use crate::pool::Family;
use crate::random_streams;

/// Exchanges tried for one collision before it is kept.
const EXCHANGES_MAX: usize = 128;

/// The ranks of one session's ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pair {
    /// Family of both addresses.
    pub family: Family,
    /// Rank of the client.
    pub source: u32,
    /// Rank of the server.
    pub destination: u32,
}

/// How many active sessions use a pair.
type Uses = BTreeMap<Pair, u32>;

/// Draws pairs for sessions.
#[derive(Clone, Debug)]
pub struct Spatial {
    sources: Alias,
    destinations: Alias,
    ipv6_share: f64,
    seed: u64,
}

impl Spatial {
    /// With popularities by rank, and the share of IPv6 sessions.
    pub fn new(sources: Alias, destinations: Alias, ipv6_share: f64, seed: u64) -> Spatial {
        Spatial { sources, destinations, ipv6_share, seed }
    }

    /// The pair that the session of `slot` in `interval` draws, before collisions are resolved.
    fn draw(&self, interval: u32, slot: u32) -> Pair {
        let index = u64::from(interval) << 32 | u64::from(slot);
        let mut rng = Rng::new(self.seed, random_streams::PAIRS, index);
        let family = if rng.unit() < self.ipv6_share { Family::V6 } else { Family::V4 };
        let source = self.sources.draw(&mut rng) as u32;
        Pair { family, source, destination: self.destinations.draw(&mut rng) as u32 }
    }

    /// Pairs for the sessions of one interval, given by their slots; `busy` are slots and pairs of
    /// sessions that are still active from before (a slot's own is over when its next one begins).
    /// Returns the pairs in the same order, and the number of collisions that no exchange could
    /// resolve.
    pub fn pairs(&self, interval: u32, slots: &[u32], busy: &[(u32, Pair)]) -> (Vec<Pair>, u64) {
        let mut pairs: Vec<Pair> = slots.iter().map(|&slot| self.draw(interval, slot)).collect();
        let mut uses = Uses::new();
        for pair in busy.iter().map(|(_, pair)| pair).chain(&pairs) {
            *uses.entry(*pair).or_default() += 1;
        }
        let mut rng = Rng::new(self.seed, random_streams::EXCHANGES, u64::from(interval));
        for at in 0..pairs.len() {
            if uses[&pairs[at]] > 1 {
                exchange(&mut pairs, &mut uses, at, &mut rng);
            }
        }
        let mut taken: BTreeMap<Pair, u32> = BTreeMap::new();
        for &(slot, pair) in busy {
            taken.insert(pair, slot);
        }
        let shared = slots
            .iter()
            .zip(&pairs)
            .filter(|&(&slot, pair)| taken.insert(*pair, slot).is_some_and(|other| other != slot));
        let collisions = shared.count();
        (pairs, collisions as u64)
    }
}

/// Tries to give the session at `at` the destination of another one, so that both pairs are free.
fn exchange(pairs: &mut [Pair], uses: &mut Uses, at: usize, rng: &mut Rng) {
    for _ in 0..EXCHANGES_MAX {
        let other = rng.below(pairs.len() as u64) as usize;
        let (mine, theirs) = (pairs[at], pairs[other]);
        if mine.family != theirs.family || mine.destination == theirs.destination {
            continue;
        }
        let my_new = Pair { destination: theirs.destination, ..mine };
        let their_new = Pair { destination: mine.destination, ..theirs };
        let free = |pair: &Pair| uses.get(pair).is_none_or(|&count| count == 0);
        if my_new != their_new && free(&my_new) && free(&their_new) {
            for (old, new) in [(mine, my_new), (theirs, their_new)] {
                *uses.entry(old).or_default() -= 1;
                *uses.entry(new).or_default() += 1;
            }
            pairs[at] = my_new;
            pairs[other] = their_new;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use nilometer_stat::parametric;

    fn spatial(ranks: usize, seed: u64) -> Spatial {
        let weights = parametric::zipf_weights(ranks, 1.0);
        let alias = || Alias::new(&weights).expect("weights");
        Spatial::new(alias(), alias(), 0.25, seed)
    }

    fn tally(pairs: &[Pair], ranks: usize, end: impl Fn(&Pair) -> u32) -> Vec<u32> {
        let mut tally = vec![0; ranks];
        for pair in pairs {
            tally[end(pair) as usize] += 1;
        }
        tally
    }

    #[test]
    fn pairs_are_distinct_and_both_popularities_as_drawn() {
        let spatial = spatial(254, 3);
        let slots: Vec<u32> = (0..300).collect();
        let drawn: Vec<Pair> = slots.iter().map(|&slot| spatial.draw(2, slot)).collect();
        let (pairs, collisions) = spatial.pairs(2, &slots, &[]);
        assert_eq!(collisions, 0);
        let mut sorted = pairs.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), pairs.len());
        assert_eq!(tally(&pairs, 254, |p| p.source), tally(&drawn, 254, |p| p.source));
        assert_eq!(tally(&pairs, 254, |p| p.destination), tally(&drawn, 254, |p| p.destination));
        assert_ne!(pairs, drawn, "300 draws of Zipf 1.0 must have collided");
    }

    #[test]
    fn busy_pairs_are_left_alone() {
        let spatial = spatial(50, 4);
        let slots: Vec<u32> = (0..40).collect();
        let (before, _) = spatial.pairs(0, &slots, &[]);
        let busy: Vec<(u32, Pair)> = (100..).zip(before.iter().copied()).collect();
        let (after, collisions) = spatial.pairs(1, &slots, &busy);
        assert_eq!(collisions, 0);
        assert!(after.iter().all(|pair| !before.contains(pair)));
    }

    #[test]
    fn pools_too_small_are_counted_not_hidden() {
        let one = || Alias::new(&[1.0]).expect("weights");
        let spatial = Spatial::new(one(), one(), 0.0, 1);
        let (pairs, collisions) = spatial.pairs(0, &[0, 1, 2, 3], &[]);
        assert_eq!(pairs.len(), 4);
        assert_eq!(collisions, 3);
        let (_, after_itself) = spatial.pairs(1, &[0], &[(0, pairs[0])]);
        assert_eq!(after_itself, 0, "a slot's next session begins when the one before is over");
        let (_, beside) = spatial.pairs(1, &[0], &[(1, pairs[0])]);
        assert_eq!(beside, 1);
    }
}
