//! A knock-out tournament of moments: the earliest of many, each of which may change at any time.
//!
//! An array of moments, one slot for each place where something may be pending, below a binary tree
//! in which every match keeps its winner (Knuth, volume 3, 5.4.1). *The next event* is the winner at
//! the root. *Setting* a slot plays its matches upwards, against opponents that are known
//! beforehand, and ends at the first match that the same entry wins as before: a moment set later
//! than its neighbour's ends at once.
//!
//! Of equal moments the lower slot wins, because a draw goes to the left. Nothing is inserted or
//! deleted, so nothing is stale, and a moment may move earlier or later at the same price.

use alloc::vec;
use alloc::vec::Vec;

use nilometer_wire::Time;

/// The moment of a slot at which nothing is pending.
pub const NEVER: Time = Time(u64::MAX);

/// A slot and what is pending there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    moment: u64,
    slot: u32,
}

/// A fixed number of slots, each with at most one pending moment.
#[derive(Clone, Debug)]
pub struct Tournament {
    /// The root at 1, the children of `i` at `2i` and `2i + 1`, the slots at `base` and after.
    winners: Vec<Entry>,
    base: usize,
}

impl Tournament {
    /// A tournament of `slots` slots, fewer than 2³², at which nothing is pending.
    pub fn new(slots: usize) -> Tournament {
        let base = slots.max(1).next_power_of_two();
        let mut winners = vec![Entry { moment: NEVER.0, slot: 0 }; 2 * base];
        for slot in 0..base {
            winners[base + slot].slot = slot as u32;
        }
        for place in (1..base).rev() {
            winners[place] = winners[2 * place];
        }
        Tournament { winners, base }
    }

    /// What is pending at `slot`, or [`NEVER`].
    #[inline]
    pub fn get(&self, slot: usize) -> Time {
        Time(self.winners[self.base + slot].moment)
    }

    /// Makes `moment` what is pending at `slot`; [`NEVER`] clears it.
    #[inline]
    pub fn set(&mut self, slot: usize, moment: Time) {
        let mut place = self.base + slot;
        let mut winner = Entry { moment: moment.0, slot: slot as u32 };
        self.winners[place] = winner;
        while place > 1 {
            let opponent = self.winners[place ^ 1];
            // On the right side, a draw is lost.
            let is_right = (place & 1) as u64;
            let loses = opponent.moment < winner.moment.saturating_add(is_right);
            winner = if loses { opponent } else { winner };
            place /= 2;
            if self.winners[place] == winner {
                return;
            }
            self.winners[place] = winner;
        }
    }

    /// The next event: the earliest moment and, of the slots that share it, the lowest.
    #[inline]
    pub fn next(&self) -> Option<(Time, usize)> {
        let winner = self.winners[1];
        if winner.moment == NEVER.0 {
            None
        } else {
            Some((Time(winner.moment), winner.slot as usize))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    #[test]
    fn it_is_an_array_with_a_minimum() {
        for (seed, slots) in [(1, 1), (2, 7), (3, 8), (4, 9), (5, 64), (6, 65), (7, 1000)] {
            let mut rng = Rng::new(seed, 1, 0);
            let mut tournament = Tournament::new(slots);
            let mut twin = vec![u64::MAX; slots];
            for _ in 0..20_000 {
                let slot = rng.below(slots as u64) as usize;
                let moment = if rng.below(4) == 0 { u64::MAX } else { rng.below(50) };
                tournament.set(slot, Time(moment));
                twin[slot] = moment;
                assert_eq!(tournament.get(slot), Time(moment));
                let least = twin.iter().copied().min().expect("slots");
                let first = twin.iter().position(|&m| m == least).expect("a least");
                let expected = (least != u64::MAX).then_some((Time(least), first));
                assert_eq!(tournament.next(), expected, "seed {seed}");
            }
        }
    }
}
