//! Which queue is the longest, and whether one is the shortest, without looking at all of them.
//!
//! Push-out needs the longest queue at every drop; QSDRR also needs to know whether its victim has
//! become the smallest. A queue counted in packets grows and shrinks by one, and that makes a list
//! of buckets enough: a bucket for every length, holding the queues that have it, and the buckets
//! that hold any linked in order of length. A queue that grows moves to the next bucket, which is
//! linked just above if it was empty; one that shrinks, below. The ring of buckets is closed by
//! bucket 0, which never holds a queue (an empty one is not ranked): above it stands the shortest,
//! below it the longest. Every step is O(1), in the worst case too.
//!
//! Counted in bytes or cells a change may pass many lengths, and two indexed heaps do the same in
//! O(log queues): one for the longest and, if requested, one for the shortest.
//!
//! Ties are broken by one rule in both: of equally long queues the one that changed last is the
//! longest. The rule favours no queue by its number, and where an arrival makes its queue one of the
//! longest, it is that queue which pays.

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::capacity::Capacity;

use crate::heap::IndexedHeap;

/// The ranking of queues by their lengths.
#[derive(Clone, Debug)]
pub(crate) enum Lengths {
    /// Of queues that change by one unit at a time.
    Stepwise(Buckets),
    /// Of queues that change by any amount.
    Any(Heaps),
}

impl Lengths {
    /// Of `queues` empty queues, counted in the unit of `capacity`. Whether a queue is the smallest
    /// is known only `with_smallest`.
    pub(crate) fn new(queues: u32, capacity: Capacity, with_smallest: bool) -> Lengths {
        match capacity {
            Capacity::Packets(_) => Lengths::Stepwise(Buckets::new(queues)),
            _ => Lengths::Any(Heaps::new(queues, with_smallest)),
        }
    }

    /// The length of `queue` is now `to`; of a queue counted in packets it was one less or more.
    #[inline]
    pub(crate) fn change(&mut self, queue: u32, to: u64) {
        match self {
            Lengths::Stepwise(buckets) => buckets.change(queue, to as u32),
            Lengths::Any(heaps) => heaps.change(queue, to),
        }
    }

    /// Every queue is empty.
    pub(crate) fn clear(&mut self) {
        match self {
            Lengths::Stepwise(buckets) => buckets.clear(),
            Lengths::Any(heaps) => heaps.clear(),
        }
    }

    /// The length of `queue`, not ranked since [`Lengths::clear`], is `to`. Call this for shorter
    /// queues first, and among equally long ones for the queue that changed last at the end.
    pub(crate) fn rank(&mut self, queue: u32, to: u64) {
        match self {
            Lengths::Stepwise(buckets) => buckets.rank(queue, to as u32),
            Lengths::Any(heaps) => heaps.change(queue, to),
        }
    }

    /// The longest queue that is not empty; of several the one that changed last.
    #[inline]
    pub(crate) fn longest(&self) -> Option<u32> {
        match self {
            Lengths::Stepwise(buckets) => buckets.longest(),
            Lengths::Any(heaps) => heaps.longest.top().map(|(queue, _)| queue),
        }
    }

    /// Whether no queue that is not empty is shorter than `queue`, itself not empty; and, if
    /// `strictly`, none as short either.
    #[inline]
    pub(crate) fn is_smallest(&self, queue: u32, strictly: bool) -> bool {
        match self {
            Lengths::Stepwise(buckets) => buckets.is_smallest(queue, strictly),
            Lengths::Any(heaps) => heaps.is_smallest(queue, strictly),
        }
    }
}

/// A place in a ring of queues of one length: that of a queue, or that of the bucket itself, which
/// closes the ring, so that the first and the last need no special case.
#[derive(Clone, Copy, Debug)]
struct Place {
    next: u32,
    prev: u32,
    /// Of a queue: its length. Of a bucket: the nearest length below that a queue has.
    below: u32,
    /// Of a bucket: the nearest length above that a queue has.
    above: u32,
}

/// Queues in buckets by length.
#[derive(Clone, Debug)]
pub(crate) struct Buckets {
    /// Of the queues by number, then of the buckets by length. The bucket of length 0 closes the
    /// ring of lengths; the queues in it are not ranked.
    places: Vec<Place>,
    queues: u32,
}

impl Buckets {
    fn new(queues: u32) -> Buckets {
        let mut buckets = Buckets { places: Vec::new(), queues };
        buckets.clear();
        buckets
    }

    /// One ring of all queues and the bucket of length 0; no other bucket.
    fn clear(&mut self) {
        let queues = self.queues;
        let place = |at: u32| Place {
            next: if at == queues { 0 } else { at + 1 },
            prev: if at == 0 { queues } else { at - 1 },
            below: 0,
            above: 0,
        };
        self.places.clear();
        self.places.extend((0..=queues).map(place));
    }

    /// Moves `queue` from the bucket of length 0 into one above which there is none.
    fn rank(&mut self, queue: u32, to: u32) {
        let (top, bucket) = (self.bucket(0).below, self.queues + to);
        if self.places.len() <= bucket as usize {
            self.grow(to);
        }
        let Place { next, prev, .. } = self.places[queue as usize];
        self.places[prev as usize].next = next;
        self.places[next as usize].prev = prev;
        let second = core::mem::replace(&mut self.places[bucket as usize].next, queue);
        self.places[second as usize].prev = queue;
        self.places[queue as usize] = Place { next: second, prev: bucket, below: to, above: 0 };
        if second == bucket {
            self.link(top, to);
        }
    }

    #[inline]
    fn bucket(&mut self, length: u32) -> &mut Place {
        &mut self.places[(self.queues + length) as usize]
    }

    #[inline]
    fn change(&mut self, queue: u32, to: u32) {
        let bucket = self.queues + to;
        if self.places.len() <= bucket as usize {
            self.grow(to);
        }
        let places = &mut self.places[..];
        let Place { next, prev, below: from, .. } = places[queue as usize];
        places[prev as usize].next = next;
        places[next as usize].prev = prev;
        let second = core::mem::replace(&mut places[bucket as usize].next, queue);
        places[second as usize].prev = queue;
        let place = &mut places[queue as usize];
        (place.next, place.prev, place.below) = (second, bucket, to);
        if second == bucket && to > 0 {
            self.link(from, to);
        }
        // Both neighbours are the bucket: the queue was alone in it.
        if next == prev && next == self.queues + from && from > 0 {
            self.unlink(from);
        }
    }

    /// Puts the bucket of length `to` into the ring of lengths, beside that of `from`.
    fn link(&mut self, from: u32, to: u32) {
        let above = if to > from { self.bucket(from).above } else { from };
        let below = core::mem::replace(&mut self.bucket(above).below, to);
        self.bucket(below).above = to;
        let bucket = self.bucket(to);
        (bucket.below, bucket.above) = (below, above);
    }

    /// Takes the bucket of `length` out of the ring of lengths.
    fn unlink(&mut self, length: u32) {
        let Place { below, above, .. } = *self.bucket(length);
        self.bucket(below).above = above;
        self.bucket(above).below = below;
    }

    /// Makes buckets up to that of `length`.
    #[cold]
    fn grow(&mut self, length: u32) {
        while self.places.len() <= (self.queues + length) as usize {
            let place = self.places.len() as u32;
            self.places.push(Place { next: place, prev: place, below: 0, above: 0 });
        }
    }

    #[inline]
    fn longest(&self) -> Option<u32> {
        let length = self.places[self.queues as usize].below;
        (length > 0).then(|| self.places[(self.queues + length) as usize].next)
    }

    #[inline]
    fn is_smallest(&self, queue: u32, strictly: bool) -> bool {
        let Place { next, prev, below: length, .. } = self.places[queue as usize];
        let is_alone = next == prev && next == self.queues + length;
        length == self.places[self.queues as usize].above && (!strictly || is_alone)
    }
}

/// Queues in heaps by length.
#[derive(Clone, Debug)]
pub(crate) struct Heaps {
    /// By length, then by when it changed.
    longest: IndexedHeap<(u64, u64)>,
    shortest: Option<IndexedHeap<Reverse<u64>>>,
    lengths: Vec<u64>,
    changes: u64,
}

impl Heaps {
    fn new(queues: u32, with_smallest: bool) -> Heaps {
        Heaps {
            longest: IndexedHeap::new(queues),
            shortest: with_smallest.then(|| IndexedHeap::new(queues)),
            lengths: vec![0; queues as usize],
            changes: 0,
        }
    }

    fn clear(&mut self) {
        self.longest.clear();
        if let Some(shortest) = &mut self.shortest {
            shortest.clear();
        }
        self.lengths.fill(0);
    }

    fn change(&mut self, queue: u32, to: u64) {
        self.changes += 1;
        self.lengths[queue as usize] = to;
        if to == 0 {
            self.longest.remove(queue);
        } else {
            self.longest.set(queue, (to, self.changes));
        }
        match &mut self.shortest {
            Some(shortest) if to == 0 => shortest.remove(queue),
            Some(shortest) => shortest.set(queue, Reverse(to)),
            None => {}
        }
    }

    fn is_smallest(&self, queue: u32, strictly: bool) -> bool {
        let Some(shortest) = &self.shortest else { return false };
        let Some((top, Reverse(least))) = shortest.top() else { return false };
        let length = self.lengths[queue as usize];
        if strictly {
            top == queue && shortest.second().is_none_or(|Reverse(next)| next > length)
        } else {
            length == least
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    /// Against a scan of (length, moment of the last change), over 200 seeds for each structure.
    fn hold(capacity: Capacity, step: u64) {
        for seed in 0..200 {
            let mut rng = Rng::new(seed, 3, step);
            let queues = 1 + rng.below(30);
            let mut lengths = Lengths::new(queues as u32, capacity, true);
            let mut twin = vec![(0u64, 0u64); queues as usize];
            for moment in 1..=1_500 {
                let queue = rng.below(queues) as usize;
                let by = 1 + rng.below(step);
                let grows = rng.below(2) == 0 || twin[queue].0 == 0;
                let to = if grows { twin[queue].0 + by } else { twin[queue].0.saturating_sub(by) };
                twin[queue] = (to, moment);
                lengths.change(queue as u32, to);
                let longest = (0..twin.len()).filter(|&q| twin[q].0 > 0).max_by_key(|&q| twin[q]);
                assert_eq!(lengths.longest(), longest.map(|q| q as u32), "seed {seed}");
                for queue in (0..twin.len()).filter(|&q| twin[q].0 > 0) {
                    let others = || (0..twin.len()).filter(|&q| q != queue && twin[q].0 > 0);
                    let strict = others().all(|q| twin[q].0 > twin[queue].0);
                    let weak = others().all(|q| twin[q].0 >= twin[queue].0);
                    assert_eq!(lengths.is_smallest(queue as u32, true), strict);
                    assert_eq!(lengths.is_smallest(queue as u32, false), weak);
                }
            }
        }
    }

    #[test]
    fn buckets_rank_as_a_scan_does() {
        hold(Capacity::Packets(1), 1);
    }

    #[test]
    fn heaps_rank_as_a_scan_does() {
        hold(Capacity::Bytes(1), 1_500);
        hold(Capacity::Cells(1), 3);
    }
}
