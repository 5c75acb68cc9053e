//! Trimmed means of noisy repetitions, and their confidence intervals.
//!
//! A measurement that is repeated on a machine with other work has outliers, and a plain mean follows them. A
//! trimmed mean (Tukey and McLaughlin 1963) leaves out the lowest and the highest fifth. They still enter its
//! error, for which each of them counts as the outermost value that was kept (they are *winsorized*). With
//!
//! ```text
//!   n values, g = n/5 rounded down left out at each end, h = n - 2g kept, mean m of those
//!   d = sum of squares of all n, winsorized, about their mean / (h (h - 1))
//!   (m - truth) / sqrt(d)      has nearly Student's law with h - 1 degrees of freedom
//! ```
//!
//! and the difference of two such means, with the degrees of Welch, is Yuen's test (Biometrika 61, 1974). For
//! a symmetric distribution the truth is its centre; otherwise it is the trimmed mean of the whole
//! distribution.
//!
//! Successive values of a drifting quantity are correlated, and the error above, which assumes independence,
//! is then too small. *Batch means* (Conway 1963) need no knowledge of the drift: with batches of successive
//! values longer than the correlation, the batches' means are nearly independent, and their scatter gives the
//! error ([`Trimmed::of_batches`]).

use alloc::vec::Vec;

use crate::confidence::ConfidenceInterval;
use crate::student::two_sided;

/// One value in this many is left out at each end.
const LEFT_OUT: usize = 5;
/// The fewest values that have an interval.
pub const VALUES_MIN: usize = 4;

/// A trimmed mean, and its error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trimmed {
    /// The mean of the values that were kept.
    pub mean: f64,
    /// Its standard error, in the same unit.
    pub error: f64,
    /// Degrees of freedom of that error.
    pub degrees: f64,
}

impl Trimmed {
    /// The trimmed mean of `values`; `None` for fewer than [`VALUES_MIN`], or if one of them is not finite.
    pub fn of(values: &[f64]) -> Option<Trimmed> {
        let count = values.len();
        if count < VALUES_MIN || values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let mut sorted: Vec<f64> = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let out = count / LEFT_OUT;
        let kept = &sorted[out..count - out];
        let [all, few] = [count, kept.len()].map(|number| number as f64);
        let mean = kept.iter().sum::<f64>() / few;
        let (low, high) = (kept[0], kept[kept.len() - 1]);
        let ends = out as f64;
        let middle = (kept.iter().sum::<f64>() + ends * (low + high)) / all;
        let square = |value: f64| (value - middle) * (value - middle);
        let squares =
            kept.iter().copied().map(square).sum::<f64>() + ends * (square(low) + square(high));
        let error = libm::sqrt(squares / (few * (few - 1.0)));
        Some(Trimmed { mean, error, degrees: few - 1.0 })
    }

    /// The mean of the trimmed means of `batches` batches of successive `values`; `None` if a batch is
    /// shorter than [`VALUES_MIN`], there are fewer than two, or a value is not finite.
    pub fn of_batches(values: &[f64], batches: usize) -> Option<Trimmed> {
        if batches < 2 {
            return None;
        }
        let start = |batch: usize| batch * values.len() / batches;
        let batch = |at| Some(Trimmed::of(&values[start(at)..start(at + 1)])?.mean);
        let means: Vec<f64> = (0..batches).map(batch).collect::<Option<_>>()?;
        let count = batches as f64;
        let mean = means.iter().sum::<f64>() / count;
        let squares: f64 = means.iter().map(|value| (value - mean) * (value - mean)).sum();
        let error = libm::sqrt(squares / (count * (count - 1.0)));
        Some(Trimmed { mean, error, degrees: count - 1.0 })
    }

    /// The interval that contains the truth in a share `confidence` of all repetitions, 0 to 1, both
    /// excluded.
    ///
    /// # Panics
    /// Where `confidence` is not between 0 and 1.
    pub fn interval(&self, confidence: f64) -> ConfidenceInterval {
        ConfidenceInterval::around(self.mean, self.half_width(confidence))
    }

    /// Half the width of [`Trimmed::interval`].
    ///
    /// # Panics
    /// Where `confidence` is not between 0 and 1.
    pub fn half_width(&self, confidence: f64) -> f64 {
        self.error * two_sided(self.degrees, confidence)
    }

    /// The interval that contains the difference to `other`, an independent measurement, in a share
    /// `confidence` of all repetitions.
    ///
    /// # Panics
    /// Where `confidence` is not between 0 and 1.
    pub fn difference(&self, other: &Trimmed, confidence: f64) -> ConfidenceInterval {
        let [one, two] = [self, other].map(|it| it.error * it.error);
        let sum = one + two;
        let apart = one * one / self.degrees + two * two / other.degrees;
        // (Two exact means have no error, so that any number of degrees will do.)
        let degrees = if apart > 0.0 { sum * sum / apart } else { 1.0 };
        let half = libm::sqrt(sum) * two_sided(degrees, confidence);
        ConfidenceInterval::around(self.mean - other.mean, half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    /// The calculation at the top of this file, done by hand for ten values.
    #[test]
    fn the_ends_are_left_out_of_the_mean_and_stand_in_for_the_error() {
        let values = [1.0, 9.0, 2.0, 8.0, 3.0, 7.0, 4.0, 6.0, 5.0, 100.0];
        let found = Trimmed::of(&values).expect("ten values");
        // 1, 2 and 9, 100 are left out; 3 and 8 stand for them.
        assert_eq!((found.mean, found.degrees), (5.5, 5.0));
        let winsorized = [3.0, 3.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 8.0, 8.0];
        let squares: f64 = winsorized.iter().map(|value| (value - 5.5) * (value - 5.5)).sum();
        assert!((found.error - libm::sqrt(squares / 30.0)).abs() < 1e-12, "{found:?}");
        assert_eq!(Trimmed::of(&values[..3]), None);
        assert_eq!(Trimmed::of(&[1.0, 2.0, f64::NAN, 3.0, 4.0]), None);
    }

    #[test]
    fn batches_of_successive_values_give_the_error() {
        // Five batches of four values, whose trimmed mean is their mean, and then one batch of five without
        // its ends.
        let middles = [4.0, 6.0, 5.0, 9.0, 1.0];
        let batch = |middle: &f64| [middle - 1.0, middle + 1.0, middle + 2.0, middle - 2.0];
        let mut values: Vec<f64> = middles.iter().flat_map(batch).collect();
        let found = Trimmed::of_batches(&values, 5).expect("five batches");
        assert_eq!((found.mean, found.degrees), (5.0, 4.0));
        assert!((found.error - libm::sqrt(34.0 / 20.0)).abs() < 1e-12, "{found:?}");
        values.push(1_000.0);
        let found = Trimmed::of_batches(&values, 5).expect("five batches");
        assert!((found.mean - 5.0).abs() < 0.2, "an accident moves no batch: {found:?}");
        assert_eq!(Trimmed::of_batches(&values[..20], 6), None, "a batch of three");
        assert_eq!(Trimmed::of_batches(&values, 1), None);
        assert_eq!(Trimmed::of_batches(&values, 0), None);
        values[7] = f64::NAN;
        assert_eq!(Trimmed::of_batches(&values, 5), None);
    }

    /// For values that drift, intervals that assume independence contain the truth too seldom.
    #[test]
    fn batch_intervals_of_drifting_values_have_their_coverage() {
        let points = 2_000;
        let mut held = [0, 0];
        for point in 0..points {
            let mut rng = Rng::new(43, 1, point);
            let mut drift = rng.normal();
            let mut draw = |_| {
                drift = 0.6 * drift + 0.8 * rng.normal();
                10.0 + drift + 1.5 * rng.normal()
            };
            let values: Vec<f64> = (0..60).map(&mut draw).collect();
            let both = [Trimmed::of(&values), Trimmed::of_batches(&values, 12)];
            for (held, found) in held.iter_mut().zip(both) {
                let [low, high] = found.expect("enough").interval(0.975).ends();
                *held += u64::from(low <= 10.0 && 10.0 <= high);
            }
        }
        let [alone, batches] = held.map(|held| held as f64 / points as f64);
        assert!(alone < 0.92 && batches > 0.93, "{alone} {batches}");
    }

    #[test]
    fn intervals_of_differences_hold_nought_as_often_as_they_say() {
        let (mut held, rounds) = (0, 2_000);
        for round in 0..rounds {
            let mut rng = Rng::new(41, 1, round);
            let mut draw = |count: usize, spread: f64| -> Trimmed {
                let values: Vec<f64> = (0..count).map(|_| 3.0 + spread * rng.normal()).collect();
                Trimmed::of(&values).expect("enough")
            };
            let [low, high] = draw(12, 0.2).difference(&draw(30, 0.9), 0.95).ends();
            held += u64::from(low <= 0.0 && 0.0 <= high);
        }
        assert!((0.93..0.97).contains(&(held as f64 / rounds as f64)), "{held} of {rounds}");
    }
}
