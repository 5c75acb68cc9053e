//! A histogram whose buckets widen with the value: millions of delays in a few kilobytes.
//!
//! Values below 256 have a bucket each. Above, every octave is cut into 128 buckets of equal width,
//! so a bucket is never wider than 1/128 of its lowest value and any value read back is within that
//! relative error of the one recorded. Finding the bucket takes a count of leading zeros and a
//! shift (the scheme of HdrHistogram): with s = the octave's shift, the top eight bits v >> s lie
//! in 128..256, and s·128 + (v >> s) numbers the buckets without a gap. All of `u64` fits in 7,424
//! counters; only those up to the largest value seen are allocated. Count, sum, least and greatest
//! are exact.

use alloc::vec::Vec;

/// Buckets an octave.
const PER_OCTAVE: u64 = 128;

/// A histogram of unsigned values, delays in nanoseconds above all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum: u128,
    /// Meaningful when `count` is above zero.
    min: u64,
    max: u64,
}

/// A bucket that is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The least value it takes.
    pub low: u64,
    /// The greatest value it takes.
    pub high: u64,
    /// How many values it holds, at least 1.
    pub count: u64,
}

impl Histogram {
    /// An empty histogram.
    pub fn new() -> Histogram {
        Histogram::default()
    }

    /// Counts `value` once.
    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Counts `value` `n` times.
    pub fn record_n(&mut self, value: u64, n: u64) {
        if n == 0 {
            return;
        }
        self.widen(value, value);
        let index = index_of(value);
        if index >= self.counts.len() {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] += n;
        self.count += n;
        self.sum += u128::from(value) * u128::from(n);
    }

    /// Adds everything that `other` has counted; the same as if each value had been recorded here.
    pub fn merge(&mut self, other: &Histogram) {
        if other.count == 0 {
            return;
        }
        self.widen(other.min, other.max);
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum += other.sum;
    }

    fn widen(&mut self, min: u64, max: u64) {
        self.min = if self.count == 0 { min } else { self.min.min(min) };
        self.max = self.max.max(max);
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The least value, exact; `None` if it is empty.
    pub fn min(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min)
    }

    /// The greatest value, exact; `None` if it is empty.
    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }

    /// The mean, from the exact sum; `None` if it is empty.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// The value of rank ⌈q·count⌉ (q in 0..=1, taken to the nearer end outside it), within 1/128
    /// of the recorded one; the first and the last rank are exact. `None` if it is empty.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let rank = rank_of(q, self.count)?;
        if rank == 1 {
            return Some(self.min);
        }
        if rank == self.count {
            return Some(self.max);
        }
        let mut reached = 0;
        let bucket = self.buckets().find(|bucket| {
            reached += bucket.count;
            reached >= rank
        })?;
        Some((bucket.low + (bucket.high - bucket.low) / 2).clamp(self.min, self.max))
    }

    /// The buckets that are not empty, ascending.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        self.counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(index, &count)| {
            let (low, high) = bounds_of(index);
            Bucket { low, high, count }
        })
    }
}

/// The rank, from 1, of the `q`-quantile of `count` values.
fn rank_of(q: f64, count: u64) -> Option<u64> {
    (count > 0).then(|| (libm::ceil(q * count as f64) as u64).clamp(1, count))
}

fn index_of(value: u64) -> usize {
    let shift = shift_of(value);
    (u64::from(shift) * PER_OCTAVE + (value >> shift)) as usize
}

/// By how much `value` must be shifted to have at most eight bits.
fn shift_of(value: u64) -> u32 {
    (u64::BITS - value.leading_zeros()).saturating_sub(8)
}

/// The least and the greatest value of a bucket.
fn bounds_of(index: usize) -> (u64, u64) {
    let index = index as u64;
    let shift = (index / PER_OCTAVE).saturating_sub(1);
    let low = (index - shift * PER_OCTAVE) << shift;
    (low, low + ((1 << shift) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rng, lognormal};

    #[test]
    fn buckets_tile_all_of_u64() {
        let last = index_of(u64::MAX);
        assert_eq!(last + 1, 7_424);
        let mut next = 0u64;
        for index in 0..=last {
            let (low, high) = bounds_of(index);
            assert_eq!(low, next, "bucket {index} must begin where the one before ended");
            assert!(high - low <= low / 128, "bucket {index} is too wide: {low}..={high}");
            assert_eq!((index_of(low), index_of(high)), (index, index));
            next = high.wrapping_add(1);
        }
        assert_eq!(next, 0, "the last bucket ends at the greatest value");
    }

    /// The naive twin keeps every value.
    #[test]
    fn agrees_with_a_sorted_vector() {
        for (sigma, n) in [(0.1, 1), (0.5, 2), (1.0, 1_000), (3.0, 50_000)] {
            let mut rng = Rng::new(n, 0, 0);
            let mut twin: Vec<u64> =
                (0..n).map(|_| lognormal(&mut rng, 9.0, sigma) as u64).collect();
            let mut histogram = Histogram::new();
            twin.iter().for_each(|&value| histogram.record(value));
            twin.sort_unstable();
            assert_eq!(histogram.count(), n);
            assert_eq!(histogram.min(), twin.first().copied());
            assert_eq!(histogram.max(), twin.last().copied());
            let mean = twin.iter().map(|&value| u128::from(value)).sum::<u128>() as f64 / n as f64;
            assert_eq!(histogram.mean(), Some(mean));
            for q in [-1.0, 0.0, 0.001, 0.05, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0, 2.0] {
                let exact = twin[rank_of(q, n).expect("not empty") as usize - 1];
                let found = histogram.quantile(q).expect("not empty");
                assert!(found.abs_diff(exact) <= exact / 128, "q {q}: {found} for {exact}");
            }
            for bucket in histogram.buckets() {
                let inside = |value: &&u64| (bucket.low..=bucket.high).contains(*value);
                assert_eq!(twin.iter().filter(inside).count() as u64, bucket.count);
            }
            assert_eq!(histogram.buckets().map(|bucket| bucket.count).sum::<u64>(), n);
        }
    }

    #[test]
    fn merged_is_as_if_recorded_together() {
        let mut rng = Rng::new(1, 0, 0);
        let (mut together, mut parts) = (Histogram::new(), [(); 3].map(|()| Histogram::new()));
        for index in 0..3_000 {
            let value = rng.next_u64() >> rng.below(64);
            let n = rng.below(3);
            together.record_n(value, n);
            parts[index % 2].record_n(value, n);
        }
        let mut merged = Histogram::new();
        parts.iter().for_each(|part| merged.merge(part));
        assert_eq!(merged, together);
        merged.merge(&Histogram::new());
        assert_eq!(merged, together);
    }

    #[test]
    fn equal_values_are_read_back_exactly() {
        let mut histogram = Histogram::new();
        histogram.record_n(100_003, 5);
        assert_eq!(histogram.quantile(0.5), Some(100_003));
    }

    #[test]
    fn nothing_has_no_figures() {
        let mut nothing = Histogram::new();
        nothing.record_n(5, 0);
        assert_eq!(nothing.count(), 0);
        assert_eq!((nothing.min(), nothing.max()), (None, None));
        assert_eq!((nothing.mean(), nothing.quantile(0.5)), (None, None));
        assert_eq!(nothing.buckets().count(), 0);
    }

    #[test]
    fn sums_beyond_u64() {
        let mut histogram = Histogram::new();
        histogram.record_n(u64::MAX, 3);
        histogram.record(0);
        assert_eq!(histogram.mean(), Some(u64::MAX as f64 * 0.75));
        assert_eq!(histogram.quantile(0.25), Some(0));
        assert_eq!(histogram.quantile(0.5), Some(u64::MAX - (1 << 55)));
    }
}
