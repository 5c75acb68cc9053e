//! Queues side by side, in blocks from a common stock.
//!
//! What waits in a queue of some length is written at one end and read at the other much later. A ring
//! buffer cycles through all of its room meanwhile, which is that of the longest queue ever seen: the
//! place it writes to is no longer in any cache. Here a queue is a chain of blocks of sixteen places.
//! The block that was emptied last is the next to be filled, for any queue, so that what is written
//! to was just read, and so that all queues together take little more room than what is in them.
//!
//! A record of a packet and a few words more is slow to pass by value: it is put together on the
//! stack, word by word, and at once copied again by loads that are wider than the stores were,
//! which stalls them. So enqueueing returns the place to fill, and dequeueing shows the record
//! first and then drops it.

use alloc::vec;
use alloc::vec::Vec;

/// Places of a block, a power of two.
const PLACES: u32 = 16;

/// A part of a queue.
#[derive(Clone, Debug)]
struct Block<T> {
    places: [T; PLACES as usize],
    /// The block before it in its queue, if it is not the first.
    before: u32,
    /// The block after it, if it is not the last.
    after: u32,
}

/// A queue. A place is sixteen times its block's number and its number there.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    first: u32,
    last: u32,
    len: u32,
}

/// A number of queues, first in, first out.
#[derive(Clone, Debug)]
pub(crate) struct Lanes<T> {
    lanes: Vec<Lane>,
    blocks: Vec<Block<T>>,
    /// Those in no queue, the one that was emptied last at the end.
    free: Vec<u32>,
}

impl<T: Copy + Default> Lanes<T> {
    /// `count` empty queues.
    pub fn new(count: usize) -> Lanes<T> {
        Lanes { lanes: vec![Lane::default(); count], blocks: Vec::new(), free: Vec::new() }
    }

    /// How many are in a queue.
    #[inline]
    pub fn len(&self, lane: usize) -> usize {
        self.lanes[lane].len as usize
    }

    #[inline]
    fn at(&self, place: u32) -> &T {
        &self.blocks[(place / PLACES) as usize].places[(place % PLACES) as usize]
    }

    #[inline]
    fn at_mut(&mut self, place: u32) -> &mut T {
        &mut self.blocks[(place / PLACES) as usize].places[(place % PLACES) as usize]
    }

    /// The first of a queue.
    #[inline]
    pub fn front(&self, lane: usize) -> Option<&T> {
        let lane = self.lanes.get(lane)?;
        if lane.len == 0 { None } else { Some(self.at(lane.first)) }
    }

    /// The place of a new last, which holds anything, and whether it is the first, too.
    #[inline]
    pub fn push_back(&mut self, lane: usize) -> (&mut T, bool) {
        let queue = &mut self.lanes[lane];
        let is_first = queue.len == 0;
        if is_first || queue.last % PLACES == PLACES - 1 {
            return (self.push_block(lane), is_first);
        }
        queue.last += 1;
        queue.len += 1;
        let last = queue.last;
        (self.at_mut(last), false)
    }

    /// As [`Lanes::push_back`], in a block of its own.
    #[inline(never)]
    fn push_block(&mut self, lane: usize) -> &mut T {
        let block = self.free.pop().unwrap_or_else(|| {
            let places = [T::default(); PLACES as usize];
            self.blocks.push(Block { places, before: 0, after: 0 });
            self.blocks.len() as u32 - 1
        });
        let queue = &mut self.lanes[lane];
        if queue.len == 0 {
            queue.first = block * PLACES;
        } else {
            let before = queue.last / PLACES;
            self.blocks[before as usize].after = block;
            self.blocks[block as usize].before = before;
        }
        queue.last = block * PLACES;
        queue.len += 1;
        self.at_mut(block * PLACES)
    }

    /// Drops the first of a queue; the one that is first now.
    #[inline]
    pub fn pop_front(&mut self, lane: usize) -> Option<&T> {
        let queue = self.lanes.get_mut(lane).filter(|queue| queue.len > 0)?;
        queue.len -= 1;
        if queue.len == 0 || queue.first % PLACES == PLACES - 1 {
            let block = queue.first / PLACES;
            queue.first = self.blocks[block as usize].after * PLACES;
            self.free.push(block);
            if queue.len == 0 {
                return None;
            }
        } else {
            queue.first += 1;
        }
        let first = queue.first;
        Some(self.at(first))
    }

    /// The place before another of the same queue that is not the first.
    #[inline]
    fn before(&self, place: u32) -> u32 {
        if !place.is_multiple_of(PLACES) {
            return place - 1;
        }
        self.blocks[(place / PLACES) as usize].before * PLACES + PLACES - 1
    }

    /// How many of the last of a queue, one after another and at most `most`, satisfy `is_such`.
    #[inline]
    pub fn count_last(&self, lane: usize, most: usize, is_such: impl Fn(&T) -> bool) -> usize {
        let queue = self.lanes[lane];
        let (mut place, mut count) = (queue.last, 0);
        let most = most.min(queue.len as usize);
        while count < most && is_such(self.at(place)) {
            count += 1;
            if count < most {
                place = self.before(place);
            }
        }
        count
    }

    /// Makes room before the last `behind` of a queue and returns the place, whose content is unspecified.
    #[inline]
    pub fn insert_before_last(&mut self, lane: usize, behind: usize) -> &mut T {
        let behind = behind.min(self.len(lane));
        self.push_back(lane);
        let mut place = self.lanes[lane].last;
        for _ in 0..behind {
            let before = self.before(place);
            *self.at_mut(place) = *self.at(before);
            place = before;
        }
        self.at_mut(place)
    }

    /// All of a queue, the first first.
    fn queue(&self, lane: &Lane) -> impl Iterator<Item = &T> {
        let mut place = lane.first;
        (0..lane.len).map(move |_| {
            let at = place;
            place = if at % PLACES == PLACES - 1 {
                self.blocks[(at / PLACES) as usize].after * PLACES
            } else {
                at + 1
            };
            self.at(at)
        })
    }

    /// All of all queues, of each the first first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.lanes.iter().flat_map(|lane| self.queue(lane))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use nilometer_stat::Rng;

    #[test]
    fn each_is_a_deque() {
        const COUNT: usize = 3;
        for seed in 0..50 {
            let mut rng = Rng::new(seed, 1, 0);
            let mut lanes = Lanes::new(COUNT);
            let mut deques: [VecDeque<u64>; COUNT] = Default::default();
            let mut most = 0;
            for number in 0..3_000u64 {
                let lane = rng.below(COUNT as u64) as usize;
                let deque = &mut deques[lane];
                match rng.below(if number % 500 < 250 { 3 } else { 5 }) {
                    0 | 1 => {
                        let (place, is_first) = lanes.push_back(lane);
                        *place = number;
                        assert_eq!(is_first, deque.is_empty());
                        deque.push_back(number);
                    }
                    2 => {
                        let behind = rng.below(deque.len() as u64 + 1) as usize;
                        *lanes.insert_before_last(lane, behind) = number;
                        deque.insert(deque.len() - behind, number);
                    }
                    _ => {
                        assert_eq!(lanes.front(lane), deque.front());
                        deque.pop_front();
                        assert_eq!(lanes.pop_front(lane), deque.front());
                    }
                }
                assert!(lanes.iter().eq(deques.iter().flatten()), "seed {seed}");
                let deque = &deques[lane];
                assert_eq!((lanes.len(lane), lanes.front(lane)), (deque.len(), deque.front()));
                let above = |it: &u64| *it > number / 2;
                let counted = deque.iter().rev().take(20).take_while(|it| above(it)).count();
                assert_eq!(lanes.count_last(lane, 20, above), counted);
                most = most.max(deques.iter().map(|deque| deque.len() / 16 + 2).sum());
            }
            assert!(lanes.blocks.len() <= most, "{} blocks", lanes.blocks.len());
        }
    }
}
