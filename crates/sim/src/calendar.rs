//! The event calendar: express lanes for what comes in order, a heap and a tournament for the rest.
//!
//! Most events of a simulator of packets are landings, and most links are alike. A hundred access
//! links of one rate and one delay are written to as the clock advances, and a packet that finds its
//! link idle lands a fixed time later: the landings come in the order of writing. A packet that had
//! to wait for the one before it lands a packet's time after that one, so that its landing, if it is
//! scheduled when that one lands, is in order too, among its like. So links that are alike share a few
//! *lanes*, queues of pending landings in order. A landing goes into the lane that ends latest of those
//! that end before it; this is patience sorting, and a handful of nearly sorted streams needs as many
//! piles. What fits behind none is inserted from the back, or, if it would have to overtake many, goes
//! into a heap. Timers, which are set again and again before they run out, have a slot each in a
//! [`Tournament`]. The next event is the earliest of the heads, which play a small tournament of their
//! own.
//!
//! A landing carries its packet. So the packets that are under way lie side by side in the order in
//! which they will be needed, in a few queues that are written at one end and read at the other, and
//! not scattered over hundreds of links.
//!
//! Of equal moments the lower place comes first, wherever it waits. The order of events is (moment,
//! place), a total order that depends neither on the order in which they were scheduled nor on
//! lanes. Hence two engines that schedule the same moments, in whatever order, process the same
//! events in the same order, which is what makes a fused engine and a naive one comparable bit for
//! bit. `examples/calendar.rs` measures the parts.

use alloc::collections::BinaryHeap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Ordering;

use nilometer_wire::Time;

use crate::lanes::Lanes;
use crate::tournament::{NEVER, Tournament};

/// Most groups of lanes.
pub const GROUPS_LIMIT: usize = 10;

/// Lanes of a group.
const LANES_OF_A_GROUP: usize = 3;

/// The players of the tournament of heads: heap, timers, lanes, and some that never play.
const HEAP: usize = 0;
const TIMERS: usize = 1;
const LANES: usize = 2;
const HEADS_LIMIT: usize = (LANES + GROUPS_LIMIT * LANES_OF_A_GROUP).next_power_of_two();

/// Most entries of a lane that a new one overtakes; beyond that it goes into the heap.
const OVERTAKES_LIMIT: usize = 32;

/// The number of a group of lanes, for landings that come nearly in order. Landings of a group that
/// does not exist go into the heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Group(pub u8);

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Something lands at a place.
    Landing(usize),
    /// A timer runs out.
    Timer(usize),
}

/// Order of events in one number: moment, then place, then the holder.
type Key = u128;

const NOTHING: Key = Key::MAX;

#[inline]
fn key(moment: Time, place: u32, head: usize) -> Key {
    Key::from(moment.0) << 64 | Key::from(place) << 32 | head as Key
}

/// A pending landing.
#[derive(Clone, Copy, Debug, Default)]
struct Landing<T> {
    moment: Time,
    place: u32,
    what: T,
}

impl<T> Landing<T> {
    #[inline]
    fn key(&self, head: usize) -> Key {
        key(self.moment, self.place, head)
    }
}

/// Of landings in the heap the earliest is the greatest, because a heap gives the greatest.
#[derive(Clone, Debug)]
struct Delayed<T>(Landing<T>);

impl<T> PartialEq for Delayed<T> {
    fn eq(&self, other: &Delayed<T>) -> bool {
        self.0.key(HEAP) == other.0.key(HEAP)
    }
}

impl<T> Eq for Delayed<T> {}

impl<T> PartialOrd for Delayed<T> {
    fn partial_cmp(&self, other: &Delayed<T>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Delayed<T> {
    fn cmp(&self, other: &Delayed<T>) -> Ordering {
        other.0.key(HEAP).cmp(&self.0.key(HEAP))
    }
}

/// Landings, any number at each place, and timers, one for each slot.
#[derive(Clone, Debug)]
pub struct Calendar<T> {
    /// The heads at `players` and after, the winner of all at 1.
    heads: [Key; 2 * HEADS_LIMIT],
    players: usize,
    lanes: Lanes<Landing<T>>,
    /// The moment of each lane's last landing, by group; 0 where there is none.
    lasts: Vec<[u64; LANES_OF_A_GROUP]>,
    heap: BinaryHeap<Delayed<T>>,
    timers: Tournament,
    /// The place of the first timer.
    first_timer: u32,
}

impl<T: Copy + Default> Calendar<T> {
    /// An empty calendar of `groups` groups of lanes, at most [`GROUPS_LIMIT`], and of `timers` timers,
    /// whose places are `first_timer` and after.
    pub fn new(groups: usize, first_timer: usize, timers: usize) -> Calendar<T> {
        let groups = groups.min(GROUPS_LIMIT);
        Calendar {
            heads: [NOTHING; 2 * HEADS_LIMIT],
            players: (LANES + groups * LANES_OF_A_GROUP).next_power_of_two(),
            lanes: Lanes::new(groups * LANES_OF_A_GROUP),
            lasts: vec![[0; LANES_OF_A_GROUP]; groups],
            heap: BinaryHeap::new(),
            timers: Tournament::new(timers),
            first_timer: first_timer as u32,
        }
    }

    /// Enters a new head into the tournament of heads.
    #[inline]
    fn enter(&mut self, head: usize, key: Key) {
        // Two groups of links are what one bottleneck has: without a loop.
        match self.players {
            8 => self.climb(8, head % 8, key),
            players => self.climb_high(players, head, key),
        }
    }

    #[inline(never)]
    fn climb_high(&mut self, players: usize, head: usize, key: Key) {
        self.climb(players, head, key);
    }

    #[inline(always)]
    fn climb(&mut self, players: usize, head: usize, key: Key) {
        let mut place = players + head;
        let mut winner = key;
        self.heads[place] = key;
        for _ in 0..players.ilog2() {
            let opponent = self.heads[place ^ 1];
            winner = if opponent < winner { opponent } else { winner };
            place /= 2;
            self.heads[place] = winner;
        }
    }

    /// Schedules a landing at `place`: in the lane of `group` that ends latest of those that end before,
    /// so that the others stay open to what lands earlier (patience sorting). `fill` makes what lands,
    /// in a place that holds anything.
    #[inline(always)]
    pub fn push(&mut self, group: Group, place: usize, moment: Time, fill: impl FnOnce(&mut T)) {
        let (group, place) = (usize::from(group.0), place as u32);
        let Some(lasts) = self.lasts.get_mut(group) else {
            return self.push_heap(place, moment, made(fill));
        };
        let (mut choice, mut latest) = (LANES_OF_A_GROUP, 0);
        for (lane, &last) in lasts.iter().enumerate() {
            if last < moment.0 && last >= latest {
                (choice, latest) = (lane, last);
            }
        }
        let Some(last) = lasts.get_mut(choice) else {
            return self.overtake(group, place, moment, made(fill));
        };
        *last = moment.0;
        let lane = group * LANES_OF_A_GROUP + choice;
        let (landing, is_first) = self.lanes.push_back(lane);
        (landing.moment, landing.place) = (moment, place);
        fill(&mut landing.what);
        if is_first {
            self.enter(LANES + lane, key(moment, place, LANES + lane));
        }
    }

    /// No lane ends before the landing: it takes its place among the last of the lane that ends first,
    /// or in the heap. What that lane ends with stays, or is as late.
    #[cold]
    fn overtake(&mut self, group: usize, place: u32, moment: Time, what: T) {
        let lasts = self.lasts[group].iter().enumerate();
        let Some((choice, _)) = lasts.min_by_key(|&(_, last)| last) else { return };
        let lane = group * LANES_OF_A_GROUP + choice;
        let own = key(moment, place, LANES + lane);
        let is_later = |it: &Landing<T>| own < it.key(LANES + lane);
        let overtaken = self.lanes.count_last(lane, OVERTAKES_LIMIT + 1, is_later);
        if overtaken > OVERTAKES_LIMIT {
            return self.push_heap(place, moment, what);
        }
        let is_first = overtaken == self.lanes.len(lane);
        *self.lanes.insert_before_last(lane, overtaken) = Landing { moment, place, what };
        if is_first {
            self.enter(LANES + lane, own);
        }
    }

    #[cold]
    fn push_heap(&mut self, place: u32, moment: Time, what: T) {
        let own = key(moment, place, HEAP);
        self.heap.push(Delayed(Landing { moment, place, what }));
        if own < self.heads[self.players + HEAP] {
            self.enter(HEAP, own);
        }
    }

    /// Sets timer number `timer`, whatever it was set to; [`NEVER`] stops it.
    #[inline]
    pub fn set(&mut self, timer: usize, moment: Time) {
        self.timers.set(timer, moment);
        let head = match self.timers.next() {
            Some((moment, slot)) => key(moment, self.first_timer + slot as u32, TIMERS),
            None => NOTHING,
        };
        if head != self.heads[self.players + TIMERS] {
            self.enter(TIMERS, head);
        }
    }

    /// What a timer is set to, or [`NEVER`].
    #[inline]
    pub fn get(&self, timer: usize) -> Time {
        self.timers.get(timer)
    }

    /// Takes the next event, if it is due by `end`: the earliest moment and, of those that share it,
    /// the lowest place. A timer that ran out is stopped. What lands is shown to `take`: passed on by
    /// value it would be copied again and again, at offsets that stall the loads.
    #[inline(always)]
    pub fn pop(&mut self, end: Time, take: impl FnOnce(&T)) -> Option<(Time, Event)> {
        let first = self.heads[1];
        let moment = Time((first >> 64) as u64);
        // Nothing ever happens at the end of time.
        if moment > end || moment.0 == u64::MAX {
            return None;
        }
        let place = (first >> 32) as u32;
        let head = first as u32 as usize;
        let number = head.wrapping_sub(LANES);
        let event = match self.lanes.front(number) {
            Some(landing) => {
                take(&landing.what);
                let next = match self.lanes.pop_front(number) {
                    Some(next) => next.key(head),
                    None => {
                        self.lasts[number / LANES_OF_A_GROUP][number % LANES_OF_A_GROUP] = 0;
                        NOTHING
                    }
                };
                self.enter(head, next);
                Event::Landing(place as usize)
            }
            None if head == HEAP => {
                self.pop_heap().as_ref().map(take);
                Event::Landing(place as usize)
            }
            None => {
                let timer = (place - self.first_timer) as usize;
                self.set(timer, NEVER);
                Event::Timer(timer)
            }
        };
        Some((moment, event))
    }

    #[inline(never)]
    fn pop_heap(&mut self) -> Option<T> {
        let Delayed(landing) = self.heap.pop()?;
        let next = self.heap.peek().map_or(NOTHING, |next| next.0.key(HEAP));
        self.enter(HEAP, next);
        Some(landing.what)
    }

    /// Every pending landing: its moment, its place and what lands.
    pub fn landings(&self) -> impl Iterator<Item = (Time, usize, &T)> {
        let lanes = self.lanes.iter();
        lanes
            .chain(self.heap.iter().map(|delayed| &delayed.0))
            .map(|landing| (landing.moment, landing.place as usize, &landing.what))
    }
}

/// What `fill` makes, by value.
fn made<T: Default>(fill: impl FnOnce(&mut T)) -> T {
    let mut what = T::default();
    fill(&mut what);
    what
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
            let groups = rng.below(3) as usize;
            let mut calendar = Calendar::new(groups, places as usize, timers as usize);
            let mut landings: Vec<(u64, u32)> = Vec::new();
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
                    // What lands carries its moment, so that a mix-up is detected.
                    let group = Group(rng.below(3) as u8);
                    calendar.push(group, place as usize, Time(moment), |what| *what = moment);
                    landings.push((moment, place));
                }
                let timer = |(slot, &moment): (usize, &u64)| (moment, places as u32 + slot as u32);
                let all = landings.iter().copied().chain(armed.iter().enumerate().map(timer));
                let first = all.min().expect("timers");
                let end = now + rng.below(12);
                let expected = (first.0 <= end).then(|| {
                    let event = match first.1.checked_sub(places as u32) {
                        Some(slot) => Event::Timer(slot as usize),
                        None => Event::Landing(first.1 as usize),
                    };
                    (Time(first.0), event)
                });
                let mut landed = u64::MAX;
                assert_eq!(calendar.pop(Time(end), |what| landed = *what), expected, "seed {seed}");
                let is_landing = matches!(expected, Some((_, Event::Landing(_))));
                assert_eq!(landed, if is_landing { first.0 } else { u64::MAX }, "seed {seed}");
                match expected {
                    Some((_, Event::Timer(slot))) => armed[slot] = NEVER.0,
                    Some((_, Event::Landing(..))) => {
                        let at = landings.iter().position(|&landing| landing == first);
                        landings.swap_remove(at.expect("the first"));
                    }
                    None => {}
                }
                now = expected.map_or(now, |(moment, _)| moment.0);
                assert_eq!(calendar.landings().count(), landings.len());
            }
        }
    }

    #[test]
    fn of_landings_in_the_heap_the_earliest_is_the_greatest() {
        let landing =
            |moment: u64, place: u32| Delayed(Landing { moment: Time(moment), place, what: 0 });
        assert!(landing(3, 9) > landing(4, 0) && landing(3, 1) > landing(3, 2));
        assert!(landing(3, 1) == landing(3, 1));
        assert!(landing(3, 1) != landing(3, 2) && landing(3, 1) != landing(2, 1));
        assert_eq!(key(Time(5), 6, 7), 5 << 64 | 6 << 32 | 7);
    }
}
