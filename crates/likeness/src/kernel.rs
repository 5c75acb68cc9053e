//! Distances of two weightings of the same values.
//!
//! A bootstrap replicate of some sessions is a weight for each of them: how often it was drawn. So values are
//! sorted once, each with its session, and a replicate's distance is one pass over them.

use alloc::vec::Vec;

/// A value, the unit (session, or place in a series) that it came with, and how much it counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Value {
    pub value: f64,
    pub unit: u32,
    pub mass: f64,
}

/// Values in rising order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Values {
    sorted: Vec<Value>,
}

impl Values {
    pub fn new(mut values: Vec<Value>) -> Values {
        values.sort_unstable_by(|one, other| one.value.total_cmp(&other.value));
        Values { sorted: values }
    }

    /// The greatest difference of the two distribution functions (Kolmogorov and Smirnov), 0 to 1; 1 where a
    /// weighting has no mass.
    pub fn ks(&self, one: &[u32], other: &[u32]) -> f64 {
        let mut most: f64 = 0.0;
        let has_mass = self.walk(one, other, |_, apart| most = most.max(apart));
        if has_mass { most } else { 1.0 }
    }

    /// By how many octaves the mass of one has to be moved to become the other (Wasserstein 1 of log₂). Values
    /// below 1 count as 1. Infinite where a weighting has no mass.
    pub fn w1_log2(&self, one: &[u32], other: &[u32]) -> f64 {
        let mut area = 0.0;
        let has_mass = self.walk(one, other, |[from, to], apart| {
            area += apart * (libm::log2(to.max(1.0)) - libm::log2(from.max(1.0)));
        });
        if has_mass { area } else { f64::INFINITY }
    }

    /// Passes to `each` every pair of neighbouring values and the difference of the two distribution
    /// functions between them; false where a weighting has no mass.
    fn walk(&self, one: &[u32], other: &[u32], mut each: impl FnMut([f64; 2], f64)) -> bool {
        let mass =
            |weights: &[u32], value: &Value| f64::from(weights[value.unit as usize]) * value.mass;
        let total = |weights: &[u32]| self.sorted.iter().map(|value| mass(weights, value)).sum();
        let totals: [f64; 2] = [total(one), total(other)];
        if totals.iter().any(|total| *total <= 0.0) {
            return false;
        }
        let mut below = [0.0, 0.0];
        for (at, value) in self.sorted.iter().enumerate() {
            below[0] += mass(one, value);
            below[1] += mass(other, value);
            let next = self.sorted.get(at + 1).map_or(value.value, |next| next.value);
            if next > value.value {
                each([value.value, next], (below[0] / totals[0] - below[1] / totals[1]).abs());
            }
        }
        true
    }
}

/// The correlation of pairs of values, weighted (Pearson); `None` where it is not defined.
pub(crate) fn correlation(pairs: &[([f64; 2], u32)], weights: &[u32]) -> Option<f64> {
    let (mut mass, mut sums, mut squares, mut product) = (0.0, [0.0; 2], [0.0; 2], 0.0);
    for ([x, y], unit) in pairs {
        let weight = f64::from(weights[*unit as usize]);
        mass += weight;
        for (side, value) in [x, y].into_iter().enumerate() {
            sums[side] += weight * value;
            squares[side] += weight * value * value;
        }
        product += weight * x * y;
    }
    let means = sums.map(|sum| sum / mass);
    let variances = [0, 1].map(|side| squares[side] / mass - means[side] * means[side]);
    let covariance = product / mass - means[0] * means[1];
    let scale = libm::sqrt(variances[0] * variances[1]);
    (scale > 1e-12).then(|| covariance / scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use nilometer_stat::{Rng, ks_samples, w1_log2_samples};

    /// The naive twin writes every value down as often as it weighs.
    #[test]
    fn a_weighing_is_a_sample_written_out() {
        let mut rng = Rng::new(3, 0, 0);
        for _ in 0..50 {
            let values: Vec<Value> = (0..200)
                .map(|_| Value {
                    value: libm::floor(rng.exponential(40.0)) + 1.0,
                    unit: rng.below(30) as u32,
                    mass: 1.0,
                })
                .collect();
            let mut draw = || (0..30).map(|_| rng.below(4) as u32).collect::<Vec<u32>>();
            let (one, other) = (draw(), draw());
            let written = |weights: &[u32]| {
                let mut all = Vec::new();
                for value in &values {
                    all.extend(vec![value.value; weights[value.unit as usize] as usize]);
                }
                all
            };
            let (mut a, mut b) = (written(&one), written(&other));
            let sorted = Values::new(values.clone());
            let (ks, w1) = (sorted.ks(&one, &other), sorted.w1_log2(&one, &other));
            assert!((ks - ks_samples(&mut a, &mut b)).abs() < 1e-12);
            assert!((w1 - w1_log2_samples(&mut a, &mut b)).abs() < 1e-9);
        }
    }

    #[test]
    fn values_are_weighted_by_their_mass() {
        let of = |value: f64, unit: u32, mass: f64| Value { value, unit, mass };
        let values = Values::new(vec![of(1.0, 0, 3.0), of(2.0, 0, 1.0), of(4.0, 1, 4.0)]);
        assert_eq!(values.ks(&[1, 0], &[1, 1]), 0.5);
        assert_eq!(values.w1_log2(&[1, 0], &[0, 1]), 0.75 * 2.0 + 0.25);
        assert_eq!(values.ks(&[0, 0], &[1, 1]), 1.0);
        assert_eq!(values.w1_log2(&[1, 1], &[0, 0]), f64::INFINITY);
    }

    #[test]
    fn correlation_of_straight_lines_and_of_nothing() {
        let line: Vec<([f64; 2], u32)> = (0..9).map(|x| ([x.into(), (2 * x).into()], 0)).collect();
        assert!((correlation(&line, &[2]).expect("a line") - 1.0).abs() < 1e-12);
        assert_eq!(correlation(&line[..1], &[1]), None);
        assert_eq!(correlation(&line, &[0]), None);
    }
}
