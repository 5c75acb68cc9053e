//! The event calendar: express lanes for what comes in order, a tournament for the rest.
//!
//! A simulator of packets has a fixed set of places where something can be pending, at most one
//! thing at each: the landing of a link's first packet, the timer of a node. Most of them are alike.
//! A hundred access links of one rate and one delay are written to as the clock advances, and what
//! is written to them lands in nearly the order of writing. So links that are alike share a *lane*,
//! a sequence of pending landings kept in order by insertion from the back: where the order of
//! writing is the order of landing, which is nearly always, that is one comparison. What would have
//! to overtake more than a few others (a burst behind a slow link) and what is not like anything
//! else (timers, odd links) goes into a [`Tournament`]. The next event is the earliest of the heads.
//!
//! Of equal moments the lower slot comes first, in lanes and out of them. The order of events is
//! (moment, slot), a total order that depends neither on the order in which they were scheduled nor
//! on lanes. Hence two engines that set the same moments, in whatever order, process the same
//! events in the same order, which is what makes a fused engine and a naive one comparable bit for
//! bit. `examples/calendar.rs` measures lanes and tournament against heaps and a monotone wheel.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use nilometer_wire::Time;

use crate::tournament::{NEVER, Tournament};

/// Most lanes: each costs a comparison at every event.
pub const LANES_LIMIT: usize = 7;

/// The lane of what has none.
pub const GENERAL: u8 = u8::MAX;

/// Most entries of a lane that a new one overtakes; beyond that it goes into the tournament.
const OVERTAKES_LIMIT: usize = 24;

/// A pending moment and its place. The derived order is that of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    moment: u64,
    slot: u32,
}

const NOTHING: Entry = Entry { moment: NEVER.0, slot: u32::MAX };

/// A fixed number of slots, each with at most one pending moment.
#[derive(Clone, Debug)]
pub struct Calendar {
    /// The first of each lane, and last the tournament's.
    heads: Vec<Entry>,
    lanes: Vec<VecDeque<Entry>>,
    lane_of: Vec<u8>,
    general: Tournament,
}

impl Calendar {
    /// A calendar with a slot for each of `lane_of`, which names the slot's lane, below
    /// [`LANES_LIMIT`], or [`GENERAL`]. Nothing is pending.
    pub fn new(lane_of: Vec<u8>) -> Calendar {
        let lanes = lane_of.iter().filter(|&&lane| lane != GENERAL).max();
        let lanes = lanes.map_or(0, |&lane| usize::from(lane) + 1);
        Calendar {
            heads: vec![NOTHING; lanes + 1],
            lanes: vec![VecDeque::new(); lanes],
            general: Tournament::new(lane_of.len()),
            lane_of,
        }
    }

    /// Makes `moment` pending at `slot`, where nothing is.
    #[inline]
    pub fn push(&mut self, slot: usize, moment: Time) {
        let lane = usize::from(self.lane_of[slot]);
        let entry = Entry { moment: moment.0, slot: slot as u32 };
        let Some(waiting) = self.lanes.get_mut(lane) else {
            self.set(slot, moment);
            return;
        };
        if waiting.back().is_none_or(|last| *last < entry) {
            waiting.push_back(entry);
        } else {
            let nearest = waiting.iter().rev().take(OVERTAKES_LIMIT);
            let overtakes = nearest.take_while(|other| **other > entry).count();
            if overtakes == OVERTAKES_LIMIT {
                self.set(slot, moment);
                return;
            }
            waiting.insert(waiting.len() - overtakes, entry);
        }
        if entry < self.heads[lane] {
            self.heads[lane] = entry;
        }
    }

    /// Makes `moment` what is pending at a slot that is in no lane; [`NEVER`] clears it.
    #[inline]
    pub fn set(&mut self, slot: usize, moment: Time) {
        self.general.set(slot, moment);
        let head = self.general.next();
        let last = self.heads.len() - 1;
        self.heads[last] =
            head.map_or(NOTHING, |(at, slot)| Entry { moment: at.0, slot: slot as u32 });
    }

    /// What is pending at a slot that is in no lane, or [`NEVER`].
    #[inline]
    pub fn get(&self, slot: usize) -> Time {
        self.general.get(slot)
    }

    /// Takes the next event, if it is due by `end`: the earliest moment and, of the slots that share
    /// it, the lowest. Nothing is pending at that slot then.
    #[inline]
    pub fn pop(&mut self, end: Time) -> Option<(Time, usize)> {
        let (mut first, mut from) = (self.heads[0], 0);
        for (lane, head) in self.heads.iter().enumerate().skip(1) {
            if *head < first {
                (first, from) = (*head, lane);
            }
        }
        if first.moment > end.0 || first == NOTHING {
            return None;
        }
        match self.lanes.get_mut(from) {
            Some(lane) => {
                lane.pop_front();
                self.heads[from] = lane.front().copied().unwrap_or(NOTHING);
            }
            None => self.set(first.slot as usize, NEVER),
        }
        Some((Time(first.moment), first.slot as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    #[test]
    fn it_is_an_array_with_a_minimum() {
        for seed in 0..60 {
            let mut rng = Rng::new(seed, 1, 0);
            let slots = 1 + rng.below(80) as usize;
            let lane = |rng: &mut Rng| match rng.below(5) {
                4 => GENERAL,
                lane => lane as u8,
            };
            let lanes: Vec<u8> = (0..slots).map(|_| lane(&mut rng)).collect();
            let mut calendar = Calendar::new(lanes.clone());
            let mut twin = vec![NEVER.0; slots];
            let mut now = 0;
            for _ in 0..5_000 {
                let slot = rng.below(slots as u64) as usize;
                let moment = now + rng.below(40);
                if lanes[slot] == GENERAL {
                    calendar.set(slot, Time(moment));
                    twin[slot] = moment;
                } else if twin[slot] == NEVER.0 {
                    calendar.push(slot, Time(moment));
                    twin[slot] = moment;
                }
                let end = now + rng.below(12);
                let least = twin.iter().copied().min().expect("slots");
                let first = twin.iter().position(|&m| m == least).expect("a least");
                let expected = (least <= end).then_some((Time(least), first));
                assert_eq!(calendar.pop(Time(end)), expected, "seed {seed}");
                if expected.is_some() {
                    twin[first] = NEVER.0;
                    now = least;
                }
            }
        }
    }
}
