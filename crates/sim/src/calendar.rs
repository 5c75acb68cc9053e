//! The event calendar: which link or timer is next, a tournament with eight players to a match.
//!
//! A simulator of packets has few kinds of events and a fixed set of places where they happen: the
//! head of a link's flight, the timer of a node. Each place has at most one pending event. So the
//! calendar need not be a queue of events; it is an array of moments, one slot for each place, and
//! a tree of minima above it. Eight moments fill a cache line; above 512 slots there are three
//! levels, above 262,144 six.
//!
//! *Setting* a slot writes its moment and plays the matches above it until one has the winner that
//! it had before: a moment later than its neighbours' ends at the first match. *The next event* is
//! found by following the minimum down from the root. Equal moments are won by the lower slot,
//! because each match is decided from left to right: the order of events is (moment, slot), a total
//! order that does not depend on the order in which they were scheduled. Hence two engines that set
//! the same moments, in whatever order, process the same events in the same order, which is what
//! makes a fused engine and a naive one comparable bit for bit.
//!
//! Nothing is inserted or deleted, so nothing is stale and a moment may move earlier or later at
//! the same price. `examples/calendar.rs` measures this against a heap and a monotone wheel.

use alloc::vec;
use alloc::vec::Vec;

use nilometer_wire::Time;

/// Players in a match.
const FAN: usize = 8;

/// The moment of a slot at which nothing is pending.
pub const NEVER: Time = Time(u64::MAX);

/// A fixed number of slots, each with at most one pending moment.
#[derive(Clone, Debug)]
pub struct Calendar {
    /// All levels, the leaves first, each padded to a multiple of eight with [`NEVER`].
    matches: Vec<[u64; FAN]>,
    /// Where each level begins in `matches`.
    levels: Vec<usize>,
}

impl Calendar {
    /// A calendar of `slots` slots at which nothing is pending.
    pub fn new(slots: usize) -> Calendar {
        let mut levels = Vec::new();
        let mut total = 0;
        let mut width = slots.max(1).div_ceil(FAN);
        loop {
            levels.push(total);
            total += width;
            if width == 1 {
                break;
            }
            width = width.div_ceil(FAN);
        }
        Calendar { matches: vec![[NEVER.0; FAN]; total], levels }
    }

    /// What is pending at `slot`, or [`NEVER`].
    #[inline]
    pub fn get(&self, slot: usize) -> Time {
        Time(self.matches[slot / FAN][slot % FAN])
    }

    /// Makes `moment` what is pending at `slot`; [`NEVER`] clears it.
    #[inline]
    pub fn set(&mut self, slot: usize, moment: Time) {
        let mut place = slot;
        let mut value = moment.0;
        for &level in &self.levels {
            let players = &mut self.matches[level + place / FAN];
            let before = least(players);
            players[place % FAN] = value;
            let after = least(players);
            if before == after {
                return;
            }
            value = after;
            place /= FAN;
        }
    }

    /// The next event: the earliest moment and, of the slots that share it, the lowest.
    #[inline]
    pub fn next(&self) -> Option<(Time, usize)> {
        let mut place = 0;
        let mut moment = NEVER.0;
        for &level in self.levels.iter().rev() {
            let players = &self.matches[level + place];
            moment = least(players);
            place = place * FAN + players.iter().position(|&m| m == moment)?;
        }
        if moment == NEVER.0 { None } else { Some((Time(moment), place)) }
    }
}

/// The least of eight, by three rounds of four, two and one comparisons.
#[inline(always)]
fn least(players: &[u64; FAN]) -> u64 {
    let [a, b, c, d, e, f, g, h] = *players;
    a.min(b).min(c.min(d)).min(e.min(f).min(g.min(h)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    #[test]
    fn it_is_an_array_with_a_minimum() {
        for (seed, slots) in [(1, 1), (2, 7), (3, 8), (4, 9), (5, 64), (6, 65), (7, 1000)] {
            let mut rng = Rng::new(seed, 1, 0);
            let mut calendar = Calendar::new(slots);
            let mut twin = vec![u64::MAX; slots];
            for _ in 0..20_000 {
                let slot = rng.below(slots as u64) as usize;
                let moment = if rng.below(4) == 0 { u64::MAX } else { rng.below(50) };
                calendar.set(slot, Time(moment));
                twin[slot] = moment;
                assert_eq!(calendar.get(slot), Time(moment));
                let least = twin.iter().copied().min().expect("slots");
                let first = twin.iter().position(|&m| m == least).expect("a least");
                let expected = (least != u64::MAX).then_some((Time(least), first));
                assert_eq!(calendar.next(), expected, "seed {seed}");
            }
        }
    }
}
