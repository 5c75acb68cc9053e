//! A queue in a ring, whose places are written and read where they are.
//!
//! A record of a packet and a few words more is slow to pass by value: it is put together on the
//! stack, word by word, and at once copied again by loads that are wider than the stores were, which
//! stalls them. So who enqueues gets the place to fill, and who dequeues sees the record first and
//! then drops it.
//!
//! A ring is written all round, so that its room and not its length decides what stays in the caches:
//! it grows by a quarter and not to twice its size, and when it is empty begins again at its first place.

use alloc::vec::Vec;

/// First in, first out; indices count from the front.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ring<T> {
    places: Vec<T>,
    head: usize,
    len: usize,
}

impl<T: Copy + Default> Ring<T> {
    /// Whether nothing is in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many are in it.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The place of number `index`, which may be one after the last if there is room.
    #[inline]
    fn place(&self, index: usize) -> usize {
        let at = self.head + index;
        if at >= self.places.len() { at - self.places.len() } else { at }
    }

    /// Number `index`.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        if index < self.len { self.places.get(self.place(index)) } else { None }
    }

    /// The first.
    #[inline]
    pub fn front(&self) -> Option<&T> {
        if self.len == 0 { None } else { self.places.get(self.head) }
    }

    /// The first, to be changed.
    #[inline]
    pub fn front_mut(&mut self) -> Option<&mut T> {
        if self.len == 0 { None } else { self.places.get_mut(self.head) }
    }

    /// The last, to be changed.
    #[inline]
    pub fn back_mut(&mut self) -> Option<&mut T> {
        let place = self.place(self.len.checked_sub(1)?);
        self.places.get_mut(place)
    }

    /// The place of a new last, which holds anything.
    #[inline]
    pub fn push_back(&mut self) -> &mut T {
        if self.len == self.places.len() {
            self.grow();
        }
        let place = self.place(self.len);
        self.len += 1;
        &mut self.places[place]
    }

    /// Drops the first; the one that is first now.
    #[inline]
    pub fn pop_front(&mut self) -> Option<&T> {
        if self.len > 0 {
            self.len -= 1;
            self.head = if self.len == 0 { 0 } else { self.place(1) };
        }
        self.front()
    }

    /// How many of the last, one after another and at most `most`, are as `is_such` says.
    #[inline]
    pub fn count_last(&self, most: usize, is_such: impl Fn(&T) -> bool) -> usize {
        let last = |back: &usize| self.get(self.len - 1 - back).is_some_and(&is_such);
        (0..most.min(self.len)).take_while(last).count()
    }

    /// Makes room before the `behind` last and gives the place, which holds anything.
    #[inline]
    pub fn insert_before_last(&mut self, behind: usize) -> &mut T {
        let behind = behind.min(self.len);
        self.push_back();
        let mut place = self.place(self.len - 1);
        for _ in 0..behind {
            let before = place.checked_sub(1).unwrap_or(self.places.len() - 1);
            self.places[place] = self.places[before];
            place = before;
        }
        &mut self.places[place]
    }

    /// All, the first first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let (ahead, behind) = self.places.split_at(self.head);
        behind.iter().chain(ahead).take(self.len)
    }

    #[cold]
    fn grow(&mut self) {
        self.places.rotate_left(self.head);
        self.head = 0;
        let room = self.places.len();
        self.places.reserve_exact(16 + room / 4);
        self.places.resize(room + 16 + room / 4, T::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use nilometer_stat::Rng;

    #[test]
    fn it_is_a_deque() {
        for seed in 0..50 {
            let mut rng = Rng::new(seed, 1, 0);
            let (mut ring, mut deque) = (Ring::default(), VecDeque::new());
            for number in 0..2_000u64 {
                match rng.below(if number % 500 < 250 { 3 } else { 5 }) {
                    0 | 1 => {
                        *ring.push_back() = number;
                        deque.push_back(number);
                    }
                    2 => {
                        let behind = rng.below(deque.len() as u64 + 1) as usize;
                        *ring.insert_before_last(behind) = number;
                        deque.insert(deque.len() - behind, number);
                    }
                    _ => {
                        assert_eq!(ring.front(), deque.front());
                        ring.pop_front();
                        deque.pop_front();
                    }
                }
                assert!(ring.iter().eq(&deque), "seed {seed}");
                assert_eq!((ring.len(), ring.is_empty()), (deque.len(), deque.is_empty()));
                assert_eq!(ring.front(), deque.front());
                let index = rng.below(40) as usize;
                assert_eq!(ring.get(index), deque.get(index));
            }
        }
    }
}
