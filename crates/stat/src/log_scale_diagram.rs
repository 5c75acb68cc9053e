//! The log-scale diagram: how the burstiness of a series grows with the time scale, and Hurst's
//! parameter with an interval that can be trusted.
//!
//! Traffic is bursty on all time scales: averaged over longer stretches it gets smoother, but much more
//! slowly than independent arrivals would. The energy of its wavelet details ([`wavelet`](crate::wavelet))
//! grows as 2^(αj) with the octave j, and α = 2H − 1, where H is Hurst's parameter: 1/2 for a series
//! without memory, near 1 for one with very long memory. On logarithmic axes (Abry & Veitch, *IEEE Trans.
//! Information Theory* 44(1), 1998; Veitch & Abry, 45(3), 1999) that is a line, whose slope is estimated as
//! follows.
//!
//! 1. An octave has n details, all but independent and of mean zero. The mean of their squares μ is that of
//!    a chi-square law with n degrees, so log₂ μ differs from the logarithm of the true energy by g =
//!    ψ(n/2)/ln 2 − log₂(n/2) on average, which is subtracted, and has a variance of ζ(2, n/2)/ln² 2. None
//!    of this depends on the series: intervals are known beforehand.
//! 2. A line is fitted to the octaves j₁ to j₂, each weighted by the inverse of its variance. Its slope has
//!    no bias, and a variance that follows from the weights alone.
//! 3. The distance of the octaves from the line is a chi-square sum of j₂ − j₁ − 1 degrees. If it is too
//!    improbable, there is no such line, and the slope means nothing.
//!
//! **Where to begin.** Below some octave real traffic does not scale: packets, round trips and timers have
//! their own time scales. And a series of counts is not the wavelet's own approximation of the process,
//! which disturbs the finest octaves: of exact fractional Gaussian noise of 65,536 values, a line from the
//! third octave on has a bias of 0.003 to 0.005 beside a deviation of 0.006, and one from the fourth on of
//! 0.001 to 0.002 beside 0.0085. [`Diagram::choose`] takes the finest octave, not below the fourth, from
//! which on a line is not improbable.

use alloc::vec::Vec;
use core::f64::consts::LN_2;

use crate::confidence::{ConfidenceInterval, DEVIATIONS_95};
use crate::special::{chi_square_tail, digamma, trigamma};
use crate::wavelet::{Energy, Pyramid};

/// The finest octave at which a chosen range may begin.
pub const FIRST_OCTAVE: u32 = 4;
/// The fewest details that the coarsest octave of a range may have.
pub const DETAILS_MIN: u64 = 8;
/// A line that is less probable than this is rejected.
pub const GOODNESS_MIN: f64 = 0.05;
/// Octaves that a line needs: any two lie on one.
const OCTAVES_MIN: usize = 3;

/// One time scale of the diagram.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Octave {
    /// Its number j: stretches of about 2ʲ values.
    pub octave: u32,
    /// Number of details.
    pub count: u64,
    /// Binary logarithm of their energy, without bias; minus infinity for a constant series.
    pub log2_energy: f64,
    /// The standard deviation of `log2_energy`.
    pub deviation: f64,
}

impl Octave {
    fn of(Energy { octave, count, mean }: Energy) -> Octave {
        let half = count as f64 / 2.0;
        let bias = digamma(half) / LN_2 - libm::log2(half);
        let deviation = libm::sqrt(trigamma(half)) / LN_2;
        Octave { octave, count, log2_energy: libm::log2(mean) - bias, deviation }
    }

    /// The interval that contains the logarithm of the true energy 19 times in 20.
    pub fn interval(&self) -> ConfidenceInterval {
        ConfidenceInterval::around(self.log2_energy, DEVIATIONS_95 * self.deviation)
    }
}

/// The log-scale diagram of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagram {
    octaves: Vec<Octave>,
}

/// The line through a range of octaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scaling {
    /// The finest and the coarsest octave.
    pub octaves: [u32; 2],
    /// Its slope α.
    pub slope: f64,
    /// Hurst's parameter by the slope, (α + 1) / 2, for a stationary series, whose α is below 1.
    pub hurst: f64,
    /// The standard deviation of `hurst`.
    pub deviation: f64,
    /// The probability that octaves lie at least as far from the line, if there is such a line.
    pub goodness: f64,
}

impl Scaling {
    /// The interval that contains Hurst's parameter 19 times in 20.
    pub fn interval(&self) -> ConfidenceInterval {
        ConfidenceInterval::around(self.hurst, DEVIATIONS_95 * self.deviation)
    }
}

impl From<&Pyramid> for Diagram {
    fn from(pyramid: &Pyramid) -> Diagram {
        Diagram { octaves: pyramid.energies().map(Octave::of).collect() }
    }
}

impl Diagram {
    /// Its octaves, from the finest on.
    pub fn octaves(&self) -> &[Octave] {
        &self.octaves
    }

    /// The coarsest octave that has enough details to be of use.
    pub fn coarsest(&self) -> Option<u32> {
        let enough = |octave: &&Octave| octave.count >= DETAILS_MIN;
        self.octaves.iter().filter(enough).map(|octave| octave.octave).max()
    }

    /// The line through the octaves `from` to `to`, both included; `None` where there are fewer than three,
    /// or where one of them has no energy.
    pub fn fit(&self, from: u32, to: u32) -> Option<Scaling> {
        let inside = |octave: &&Octave| (from..=to).contains(&octave.octave);
        let octaves: Vec<&Octave> = self.octaves.iter().filter(inside).collect();
        let [first, .., last] = octaves[..] else { return None };
        if octaves.len() < OCTAVES_MIN || octaves.iter().any(|o| !o.log2_energy.is_finite()) {
            return None;
        }
        let sum = |of: &dyn Fn(&Octave) -> f64| -> f64 {
            octaves.iter().map(|octave| of(octave) / (octave.deviation * octave.deviation)).sum()
        };
        let (weight, j) = (sum(&|_| 1.0), |octave: &Octave| f64::from(octave.octave));
        let (mean_j, mean_y) = (sum(&j) / weight, sum(&|o| o.log2_energy) / weight);
        let square = sum(&|o| (j(o) - mean_j) * (j(o) - mean_j));
        let slope = sum(&|o| (j(o) - mean_j) * (o.log2_energy - mean_y)) / square;
        let distance = sum(&|o| {
            let off = o.log2_energy - mean_y - slope * (j(o) - mean_j);
            off * off
        });
        Some(Scaling {
            octaves: [first.octave, last.octave],
            slope,
            hurst: (slope + 1.0) / 2.0,
            deviation: libm::sqrt(1.0 / square) / 2.0,
            goodness: chi_square_tail(octaves.len() - 2, distance),
        })
    }

    /// The line through the longest range that ends at the [coarsest](Diagram::coarsest) octave and has a
    /// goodness of [`GOODNESS_MIN`] at least; `None` where no range has.
    pub fn choose(&self) -> Option<Scaling> {
        let to = self.coarsest()?;
        (FIRST_OCTAVE..=to)
            .filter_map(|from| self.fit(from, to))
            .find(|scaling| scaling.goodness >= GOODNESS_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    fn diagram(values: impl Iterator<Item = f64>) -> Diagram {
        let mut pyramid = Pyramid::new();
        pyramid.extend(values);
        Diagram::from(&pyramid)
    }

    #[test]
    fn white_noise_has_no_memory_and_its_unit_does_not_matter() {
        let mut rng = Rng::new(5, 0x7363_616c, 0);
        let noise: Vec<f64> = (0..1 << 16).map(|_| rng.normal()).collect();
        let one = diagram(noise.iter().copied()).choose().expect("it scales");
        assert!((one.hurst - 0.5).abs() < 4.0 * one.deviation, "{one:?}");
        let other = diagram(noise.iter().map(|x| 1e6 + 1_500.0 * x)).choose().expect("it scales");
        assert!((one.hurst - other.hurst).abs() < 1e-6, "{one:?} {other:?}");
    }

    #[test]
    fn short_and_constant_series_have_no_line() {
        assert_eq!(diagram(core::iter::empty()).choose(), None);
        assert_eq!(diagram((0..40).map(f64::from)).choose(), None);
        let still = diagram(core::iter::repeat_n(0.0, 10_000));
        assert_eq!(still.choose(), None);
        assert!(still.octaves().iter().all(|octave| octave.log2_energy == f64::NEG_INFINITY));
    }

    #[test]
    fn a_time_of_its_own_is_left_out() {
        // A beat of 32 values stands out at the fifth octave, and elsewhere there is white noise.
        let mut rng = Rng::new(5, 0x7363_616c, 1);
        let beats = (0..1 << 17).map(|at| rng.normal() + if at % 32 < 16 { 2.0 } else { 0.0 });
        let diagram = diagram(beats);
        let scaling = diagram.choose().expect("it scales above the beat");
        assert!(scaling.octaves[0] > 5, "{scaling:?}");
        assert!((scaling.hurst - 0.5).abs() < 4.0 * scaling.deviation, "{scaling:?}");
        let whole = diagram.fit(3, 12).expect("a line can always be laid");
        assert!(whole.goodness < 1e-6, "{whole:?}");
    }

    /// A diagram of the given octaves: (octave, details, energy, deviation).
    fn of(octaves: &[(u32, u64, f64, f64)]) -> Diagram {
        let octave = |&(octave, count, log2_energy, deviation): &(u32, u64, f64, f64)| Octave {
            octave,
            count,
            log2_energy,
            deviation,
        };
        Diagram { octaves: octaves.iter().map(octave).collect() }
    }

    /// By hand: weights of 4, 1, 1 and 4 about the octave 5.5.
    #[test]
    fn a_line_weighs_octaves_by_their_deviation() {
        let diagram = of(&[
            (3, 90, 7.0, 0.5),
            (4, 80, 2.0, 0.5),
            (5, 40, 3.5, 1.0),
            (6, 20, 4.0, 1.0),
            (7, 10, 5.0, 0.5),
        ]);
        let line = diagram.fit(4, 7).expect("four octaves");
        // Σw = 10, ȷ̄ = 5.5, ȳ = 3.55, Σw(j-ȷ̄)² = 18.5, Σw(j-ȷ̄)(y-ȳ) = 18.25.
        let slope = 18.25 / 18.5;
        assert_eq!(line.octaves, [4, 7]);
        assert!((line.slope - slope).abs() < 1e-12, "{line:?}");
        assert!((line.hurst - (slope + 1.0) / 2.0).abs() < 1e-12);
        assert!((line.deviation - libm::sqrt(1.0 / 18.5) / 2.0).abs() < 1e-12);
        let off = |j: f64, y: f64| y - 3.55 - slope * (j - 5.5);
        let square = |j: f64, y: f64| off(j, y) * off(j, y);
        let distance =
            4.0 * (square(4.0, 2.0) + square(7.0, 5.0)) + square(5.0, 3.5) + square(6.0, 4.0);
        // Two degrees of freedom are left.
        assert!((line.goodness - libm::exp(-distance / 2.0)).abs() < 1e-12);
        assert!(diagram.fit(5, 7).is_some_and(|line| line.octaves == [5, 7]));
        assert!(diagram.fit(6, 7).is_none() && diagram.fit(6, 9).is_none());
        // The octave 3 lies before the first of a line.
        assert_eq!(diagram.choose(), Some(line));
        let empty = of(&[(4, 9, 1.0, 1.0), (5, 9, f64::NEG_INFINITY, 1.0), (6, 9, 1.0, 1.0)]);
        assert!(empty.fit(4, 6).is_none());
    }

    #[test]
    fn the_longest_line_that_is_good_enough_is_chosen() {
        let straight = |j: u32| (j, 100, f64::from(j), 0.1);
        let mut octaves: Vec<(u32, u64, f64, f64)> = (1..=12).map(straight).collect();
        assert_eq!(of(&octaves).choose().expect("a line").octaves, [4, 12]);
        // Eight details are enough for the coarsest octave, and seven are not.
        (octaves[11].1, octaves[10].1) = (7, 8);
        assert_eq!(of(&octaves).coarsest(), Some(11));
        // The fifth octave is far off the line.
        octaves[4].2 += 9.0;
        let line = of(&octaves).choose().expect("a line");
        assert_eq!((line.octaves, line.goodness), ([6, 11], 1.0));
        assert!((line.hurst - 1.0).abs() < 1e-12);
        octaves[8].2 -= 9.0;
        assert_eq!(of(&octaves).choose(), None);
        assert_eq!(of(&octaves[..3]).choose(), None);
    }
}
