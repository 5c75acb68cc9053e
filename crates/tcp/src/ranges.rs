//! A set of byte offsets as sorted, disjoint ranges that never touch.
//!
//! The receiver keeps what came out of order in one, the sender what was selectively acknowledged
//! in another. Holes are few and ends are where things happen: the newest data extends the last
//! range, a repaired hole removes the first. A double-ended queue makes both cheap, and an empty
//! one has allocated nothing.

use alloc::collections::VecDeque;

/// Offsets from `left` up to, but without, `right`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First offset.
    pub left: u64,
    /// Offset after the last.
    pub right: u64,
}

/// Sorted ranges with gaps between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    list: VecDeque<Range>,
    bytes: u64,
}

impl Ranges {
    /// Whether no offset is in the set.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Ranges in the set.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Offsets in the set.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The lowest range.
    pub fn first(&self) -> Option<Range> {
        self.list.front().copied()
    }

    /// The highest range.
    pub fn last(&self) -> Option<Range> {
        self.list.back().copied()
    }

    /// The ranges, lowest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range> + '_ {
        self.list.iter().copied()
    }

    /// The lowest range that ends after `offset`: it holds `offset`, or is the next above it.
    pub fn at_or_above(&self, offset: u64) -> Option<Range> {
        self.list.get(self.list.partition_point(|range| range.right <= offset)).copied()
    }

    /// The range that holds `offset`.
    pub fn holding(&self, offset: u64) -> Option<Range> {
        self.at_or_above(offset).filter(|range| range.left <= offset)
    }

    /// Offsets of the set in `[left, right)`; walks over the ranges between.
    pub fn bytes_between(&self, left: u64, right: u64) -> u64 {
        let start = self.list.partition_point(|range| range.right <= left);
        let inside = self.list.iter().skip(start).take_while(|range| range.left < right);
        inside.map(|range| range.right.min(right) - range.left.max(left)).sum()
    }

    /// Adds `[left, right)`; returns how many of its offsets are new.
    pub fn insert(&mut self, left: u64, right: u64) -> u64 {
        if left >= right {
            return 0;
        }
        match self.list.back_mut() {
            Some(last) if left > last.right => {
                self.list.push_back(Range { left, right });
                self.bytes += right - left;
                return right - left;
            }
            Some(last) if left >= last.left => {
                let new = right.saturating_sub(last.right);
                last.right += new;
                self.bytes += new;
                return new;
            }
            Some(_) => {}
            None => {
                self.list.push_back(Range { left, right });
                self.bytes = right - left;
                return right - left;
            }
        }
        self.insert_below_last(left, right)
    }

    fn insert_below_last(&mut self, left: u64, right: u64) -> u64 {
        let start = self.list.partition_point(|range| range.right < left);
        let end = self.list.partition_point(|range| range.left <= right);
        if start == end {
            self.list.insert(start, Range { left, right });
            self.bytes += right - left;
            return right - left;
        }
        let merged = Range {
            left: left.min(self.list[start].left),
            right: right.max(self.list[end - 1].right),
        };
        let had: u64 = self.list.range(start..end).map(|range| range.right - range.left).sum();
        self.list[start] = merged;
        if end - start > 1 {
            self.list.drain(start + 1..end);
        }
        let new = merged.right - merged.left - had;
        self.bytes += new;
        new
    }

    /// Removes what lies below `offset`; returns how many offsets that were.
    pub fn discard_below(&mut self, offset: u64) -> u64 {
        let before = self.bytes;
        while let Some(first) = self.list.front_mut() {
            if first.left >= offset {
                break;
            }
            if first.right > offset {
                self.bytes -= offset - first.left;
                first.left = offset;
                break;
            }
            self.bytes -= first.right - first.left;
            self.list.pop_front();
        }
        before - self.bytes
    }

    /// Removes everything; keeps the memory.
    pub fn clear(&mut self) {
        self.list.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use nilometer_stat::Rng;

    const UNIVERSE: usize = 120;

    fn runs(bits: &[bool]) -> Vec<Range> {
        let mut found: Vec<Range> = Vec::new();
        for (at, _) in bits.iter().enumerate().filter(|(_, bit)| **bit) {
            match found.last_mut() {
                Some(last) if last.right == at as u64 => last.right += 1,
                _ => found.push(Range { left: at as u64, right: at as u64 + 1 }),
            }
        }
        found
    }

    /// The same operations on a bit per offset.
    #[test]
    fn agrees_with_a_bit_for_every_offset() {
        for seed in 0..400 {
            let mut rng = Rng::new(seed, 0, 0);
            let mut ranges = Ranges::default();
            let mut bits = vec![false; UNIVERSE];
            for _ in 0..60 {
                let left = rng.below(UNIVERSE as u64);
                let right = (left + rng.below(12)).min(UNIVERSE as u64);
                if rng.below(8) == 0 {
                    let had = bits[..left as usize].iter().filter(|bit| **bit).count();
                    bits[..left as usize].fill(false);
                    assert_eq!(ranges.discard_below(left), had as u64);
                } else {
                    let inside = &mut bits[left as usize..right as usize];
                    let new = inside.iter().filter(|bit| !**bit).count();
                    inside.fill(true);
                    assert_eq!(ranges.insert(left, right), new as u64);
                }
                assert_eq!(ranges.iter().collect::<Vec<_>>(), runs(&bits));
                assert_eq!(ranges.bytes(), bits.iter().filter(|bit| **bit).count() as u64);
                let inside = &bits[left as usize..right as usize];
                let count = inside.iter().filter(|bit| **bit).count() as u64;
                assert_eq!(ranges.bytes_between(left, right), count);
                assert_eq!(ranges.holding(left).is_some(), bits[left as usize]);
            }
        }
    }
}
