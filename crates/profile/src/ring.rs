//! A queue whose items keep the number that they got on joining.

use alloc::collections::VecDeque;

/// A queue of items numbered from zero in the order they joined.
#[derive(Debug)]
pub struct Ring<T> {
    front: u64,
    items: VecDeque<T>,
}

impl<T> Ring<T> {
    pub fn new() -> Ring<T> {
        Ring { front: 0, items: VecDeque::new() }
    }

    /// Adds `item` and returns its number.
    pub fn push(&mut self, item: T) -> u64 {
        self.items.push_back(item);
        self.end() - 1
    }

    /// Takes the oldest item and its number.
    pub fn pop(&mut self) -> Option<(u64, T)> {
        let item = self.items.pop_front()?;
        self.front += 1;
        Some((self.front - 1, item))
    }

    pub fn oldest(&self) -> Option<&T> {
        self.items.front()
    }

    /// Number of the oldest item still here.
    pub fn front(&self) -> u64 {
        self.front
    }

    /// Number that the next item will get.
    pub fn end(&self) -> u64 {
        self.front + self.items.len() as u64
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Number behind the last item of the first ones that `are_first`.
    pub fn find_end(&self, are_first: impl FnMut(&T) -> bool) -> u64 {
        self.front + self.items.partition_point(are_first) as u64
    }

    pub fn get(&self, number: u64) -> Option<&T> {
        self.items.get(usize::try_from(number.checked_sub(self.front)?).ok()?)
    }

    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        self.items.get_mut(usize::try_from(number.checked_sub(self.front)?).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_with_their_items() {
        let mut ring = Ring::new();
        for item in 0..5u64 {
            assert_eq!(ring.push(item * 10), item);
        }
        assert_eq!(ring.pop(), Some((0, 0)));
        assert_eq!(ring.pop(), Some((1, 10)));
        assert_eq!((ring.front(), ring.end(), ring.len()), (2, 5, 3));
        assert_eq!((ring.get(1), ring.get(3), ring.get(5)), (None, Some(&30), None));
        assert_eq!(ring.get_mut(4), Some(&mut 40));
        assert_eq!(ring.oldest(), Some(&20));
        assert_eq!([15, 30, 99].map(|most| ring.find_end(|item| *item <= most)), [2, 4, 5]);
    }
}
