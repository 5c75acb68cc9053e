//! The event calendar: express lanes for what comes in order, a heap and a tournament for the rest.
//!
//! Most events of a simulator of packets are landings, and most links are alike. A hundred access
//! links of one rate and one delay are written to as the clock advances, and a packet that finds its
//! link idle lands a fixed time later: the landings come in the order of writing. A packet that had
//! to wait for the one before it lands a packet's time after that one, so that its landing, if it is
//! scheduled when that one lands, is in order too, among its like. So links that are alike share two
//! *lanes*, sequences of pending landings that are kept in order by insertion from the back: nearly
//! always that is one comparison. What would have to overtake many others goes into a heap. Timers,
//! which are set again and again before they run out, have a slot each in a [`Tournament`]. The next
//! event is the earliest of the heads.
//!
//! Of equal moments the lower place comes first, wherever it waits. The order of events is (moment,
//! place), a total order that depends neither on the order in which they were scheduled nor on
//! lanes. Hence two engines that schedule the same moments, in whatever order, process the same
//! events in the same order, which is what makes a fused engine and a naive one comparable bit for
//! bit. `examples/calendar.rs` measures the parts.

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use nilometer_wire::Time;

use crate::tournament::{NEVER, Tournament};

/// Most lanes: each costs a comparison at every event.
pub const LANES_LIMIT: usize = 10;

/// Most entries of a lane that a new one overtakes; beyond that it goes into the heap.
const OVERTAKES_LIMIT: usize = 32;

/// A pending moment and its place. The derived order is that of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    moment: u64,
    place: u32,
}

const NOTHING: Entry = Entry { moment: NEVER.0, place: u32::MAX };

impl Entry {
    #[inline]
    fn is_before(self, other: Entry) -> bool {
        self.moment < other.moment || (self.moment == other.moment && self.place < other.place)
    }
}

/// Landings, any number at each place, and timers, one for each slot.
#[derive(Clone, Debug)]
pub struct Calendar {
    /// The first of each lane, then the heap's, then the tournament's.
    heads: Vec<Entry>,
    lanes: Vec<VecDeque<Entry>>,
    heap: BinaryHeap<Reverse<Entry>>,
    timers: Tournament,
    /// The place of the first timer.
    first_timer: u32,
}

impl Calendar {
    /// An empty calendar of `lanes` lanes, at most [`LANES_LIMIT`], and of `timers` timers, whose
    /// places are `first_timer` and after.
    pub fn new(lanes: usize, first_timer: usize, timers: usize) -> Calendar {
        let lanes = lanes.min(LANES_LIMIT);
        Calendar {
            heads: vec![NOTHING; lanes + 2],
            lanes: vec![VecDeque::new(); lanes],
            heap: BinaryHeap::new(),
            timers: Tournament::new(timers),
            first_timer: first_timer as u32,
        }
    }

    /// Schedules an event at `place`, by way of `lane` or, if there is no such lane, of the heap.
    #[inline]
    pub fn push(&mut self, lane: usize, place: usize, moment: Time) {
        let entry = Entry { moment: moment.0, place: place as u32 };
        let Some(waiting) = self.lanes.get_mut(lane) else {
            self.push_heap(entry);
            return;
        };
        match waiting.back() {
            Some(&last) if entry.is_before(last) => self.overtake(lane, entry),
            Some(_) => waiting.push_back(entry),
            None => {
                waiting.push_back(entry);
                self.heads[lane] = entry;
            }
        }
    }

    #[cold]
    fn overtake(&mut self, lane: usize, entry: Entry) {
        let waiting = &mut self.lanes[lane];
        let mut index = waiting.len();
        let least = index.saturating_sub(OVERTAKES_LIMIT);
        while index > least && entry.is_before(waiting[index - 1]) {
            index -= 1;
        }
        if index > 0 && entry.is_before(waiting[index - 1]) {
            self.push_heap(entry);
            return;
        }
        waiting.insert(index, entry);
        if index == 0 {
            self.heads[lane] = entry;
        }
    }

    #[cold]
    fn push_heap(&mut self, entry: Entry) {
        self.heap.push(Reverse(entry));
        let head = self.heads.len() - 2;
        if entry.is_before(self.heads[head]) {
            self.heads[head] = entry;
        }
    }

    /// Sets timer number `timer`, whatever it was set to; [`NEVER`] stops it.
    #[inline]
    pub fn set(&mut self, timer: usize, moment: Time) {
        self.timers.set(timer, moment);
        let head = self.heads.len() - 1;
        self.heads[head] = match self.timers.next() {
            Some((moment, slot)) => {
                Entry { moment: moment.0, place: self.first_timer + slot as u32 }
            }
            None => NOTHING,
        };
    }

    /// What a timer is set to, or [`NEVER`].
    #[inline]
    pub fn get(&self, timer: usize) -> Time {
        self.timers.get(timer)
    }

    /// Takes the next event, if it is due by `end`: the earliest moment and, of those that share it,
    /// the lowest place. A timer that ran out is stopped.
    #[inline]
    pub fn pop(&mut self, end: Time) -> Option<(Time, usize)> {
        let (mut first, mut from) = (self.heads[0], 0);
        for (index, &head) in self.heads.iter().enumerate().skip(1) {
            if head.is_before(first) {
                (first, from) = (head, index);
            }
        }
        if first.moment > end.0 || first.moment == NEVER.0 {
            return None;
        }
        if let Some(lane) = self.lanes.get_mut(from) {
            lane.pop_front();
            self.heads[from] = lane.front().copied().unwrap_or(NOTHING);
        } else if from == self.lanes.len() {
            self.heap.pop();
            self.heads[from] = self.heap.peek().map_or(NOTHING, |head| head.0);
        } else {
            self.set((first.place - self.first_timer) as usize, NEVER);
        }
        Some((Time(first.moment), first.place as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    #[test]
    fn it_is_a_list_with_a_minimum() {
        for seed in 0..60 {
            let mut rng = Rng::new(seed, 1, 0);
            let (places, timers) = (1 + rng.below(30), 1 + rng.below(30));
            let lanes = rng.below(6) as usize;
            let mut calendar = Calendar::new(lanes, places as usize, timers as usize);
            let mut landings: Vec<Entry> = Vec::new();
            let mut armed = vec![NEVER.0; timers as usize];
            let mut now = 0;
            for _ in 0..5_000 {
                let moment = now + rng.below(40);
                if rng.below(2) == 0 {
                    let timer = rng.below(timers) as usize;
                    calendar.set(timer, Time(moment));
                    armed[timer] = moment;
                    assert_eq!(calendar.get(timer), Time(moment));
                } else {
                    let place = rng.below(places) as u32;
                    calendar.push(rng.below(6) as usize, place as usize, Time(moment));
                    landings.push(Entry { moment, place });
                }
                let timer = |(slot, &moment): (usize, &u64)| Entry {
                    moment,
                    place: (places as usize + slot) as u32,
                };
                let all = landings.iter().copied().chain(armed.iter().enumerate().map(timer));
                let first = all.min().expect("timers");
                let end = now + rng.below(12);
                let expected =
                    (first.moment <= end).then_some((Time(first.moment), first.place as usize));
                assert_eq!(calendar.pop(Time(end)), expected, "seed {seed}");
                if expected.is_some() {
                    now = first.moment;
                    match first.place.checked_sub(places as u32) {
                        Some(slot) => armed[slot as usize] = NEVER.0,
                        None => {
                            let at = landings.iter().position(|&entry| entry == first);
                            landings.swap_remove(at.expect("the first"));
                        }
                    }
                }
            }
        }
    }
}
