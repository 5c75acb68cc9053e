//! Confidence intervals: bounds that contain the true value in a known share of all repetitions.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::student::two_sided;

/// Standard deviations about the mean that hold 95 % of a normal law.
pub const DEVIATIONS_95: f64 = 1.959_963_984_540_054;

/// An interval that contains the true value. In files it is a list of both ends.
#[derive(Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "[f64; 2]", into = "[f64; 2]")]
pub struct ConfidenceInterval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl ConfidenceInterval {
    /// From `half` below an estimate to `half` above it.
    pub fn around(centre: f64, half: f64) -> ConfidenceInterval {
        ConfidenceInterval { low: centre - half, high: centre + half }
    }

    /// The interval of a value that is known exactly.
    pub fn exact(value: f64) -> ConfidenceInterval {
        ConfidenceInterval { low: value, high: value }
    }

    /// The interval of the mean of independent values, by Student's t with one degree of freedom fewer than values;
    /// `None` for fewer than two values.
    ///
    /// # Panics
    /// Where `confidence` is not between 0 and 1.
    pub fn of_mean(values: &[f64], confidence: f64) -> Option<ConfidenceInterval> {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let half = half_width(values, confidence)?;
        Some(ConfidenceInterval::around(mean, half))
    }

    /// The interval of the median of independent values of any law, by order statistics: from the k-th smallest
    /// to the k-th greatest, with the greatest k for which these contain the median with that confidence
    /// (Conover, *Practical Nonparametric Statistics*, the quantile test); the range of all values where they
    /// are too few, `None` where there are none.
    pub fn of_median(values: &[f64], confidence: f64) -> Option<ConfidenceInterval> {
        let mut sorted: Vec<f64> = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let (mut k, mut below) = (0, 0.0);
        let mut chance = libm::pow(0.5, count as f64);
        // `below`: the chance that fewer than k + 1 values are less than the median.
        while k < count / 2 && 2.0 * (below + chance) <= 1.0 - confidence {
            below += chance;
            chance *= (count - k) as f64 / (k + 1) as f64;
            k += 1;
        }
        let k = k.max(1);
        Some(ConfidenceInterval { low: *sorted.get(k - 1)?, high: sorted[count - k] })
    }

    /// Both ends, the lower first.
    pub fn ends(self) -> [f64; 2] {
        [self.low, self.high]
    }

    /// Whether a value is in it.
    pub fn holds(self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// The interval of an increasing function of the value.
    pub fn map(self, of: impl Fn(f64) -> f64) -> ConfidenceInterval {
        ConfidenceInterval { low: of(self.low), high: of(self.high) }
    }

    /// The smallest interval that contains both.
    pub fn hull(self, other: ConfidenceInterval) -> ConfidenceInterval {
        ConfidenceInterval { low: self.low.min(other.low), high: self.high.max(other.high) }
    }
}

/// Half the interval's width about the mean of independent values, by Student's t; `None` for fewer than two.
///
/// # Panics
/// Where `confidence` is not between 0 and 1.
pub fn half_width(values: &[f64], confidence: f64) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let (count, degrees) = (values.len() as f64, (values.len() - 1) as f64);
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    Some(two_sided(degrees, confidence) * libm::sqrt(squares / degrees / count))
}

/// Prints the list that it is in files.
impl core::fmt::Debug for ConfidenceInterval {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.ends().fmt(f)
    }
}

impl From<[f64; 2]> for ConfidenceInterval {
    fn from([low, high]: [f64; 2]) -> ConfidenceInterval {
        ConfidenceInterval { low, high }
    }
}

impl From<ConfidenceInterval> for [f64; 2] {
    fn from(interval: ConfidenceInterval) -> [f64; 2] {
        interval.ends()
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for ConfidenceInterval {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> alloc::borrow::Cow<'static, str> {
        <[f64; 2]>::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        <[f64; 2]>::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn small_samples_by_hand() {
        assert_eq!((half_width(&[], 0.95), half_width(&[3.0], 0.95)), (None, None));
        // Deviation 1 over the square root of 3, times 4.3027.
        let half = half_width(&[1.0, 2.0, 3.0], 0.95).expect("three values");
        assert!((half - 4.302_653 / libm::sqrt(3.0)).abs() < 1e-6, "{half}");
        for (degrees, t) in [(1.0, 12.7062), (31.0, 2.0395), (120.0, 1.9799)] {
            assert!((two_sided(degrees, 0.95) - t).abs() < 1e-4, "{degrees}");
        }
    }

    #[test]
    fn nineteen_intervals_of_twenty_hold_the_truth() {
        for count in [3usize, 10, 40] {
            let mut rng = Rng::new(5, 1, count as u64);
            let held = (0..20_000).filter(|_| {
                let values: Vec<f64> = (0..count).map(|_| rng.normal()).collect();
                ConfidenceInterval::of_mean(&values, 0.95).expect("values").holds(0.0)
            });
            let share = held.count() as f64 / 20_000.0;
            assert!((share - 0.95).abs() < 0.006, "{count}: {share}");
        }
    }

    /// Ranks from Conover's table for p = 0.5: of 11 values the 2nd, of 20 the 6th.
    #[test]
    fn the_interval_of_a_median_is_that_of_order_statistics() {
        let of = |count: u32| {
            let values: Vec<f64> = (1..=count).map(f64::from).rev().collect();
            ConfidenceInterval::of_median(&values, 0.95).map(ConfidenceInterval::ends)
        };
        assert_eq!(of(11), Some([2.0, 10.0]));
        assert_eq!(of(20), Some([6.0, 15.0]));
        assert_eq!(of(6), Some([1.0, 6.0]));
        // Too few for the confidence: all of them.
        assert_eq!((of(3), of(0)), (Some([1.0, 3.0]), None));
    }
}
