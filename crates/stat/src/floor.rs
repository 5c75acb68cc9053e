//! The sampling floor: the distance that chance alone gives.
//!
//! Draw n values from a model and measure their distance from it: it is not 0. For KS it falls as
//! n^(−½), for Pareto sizes on other distances more slowly still, so a bare "KS 0.013" means nothing
//! without the distance that chance alone gives at this n. To find the floor, repeat the measurement
//! with samples drawn from the model, each round with a stream of its own, and take the median;
//! within the band of the 5th and 95th percentiles nothing can be concluded. Fidelity is then a
//! ratio: at 1, values are as close to the model as a second sample of it.
//!
//! Every step of the real measurement (censoring, pools, rounding to bytes) belongs in the closure
//! too; the floor of another procedure is not valid.
//!
//! Sorted samples are drawn without sorting: the first n partial sums of n + 1 exponential
//! variables, divided by the last, are n uniform order statistics (Devroye 1986, section V.3).

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::summary::quantile_sorted;
use crate::{Rng, rng::UNIT_STEP};

/// The rounds that reports use.
pub const FLOOR_ROUNDS: u32 = 200;

/// The purpose of the streams that [`floor`] draws from; its index is the round.
pub const FLOOR_PURPOSE: u32 = u32::from_be_bytes(*b"flor");

/// The distances that chance alone gives.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Floor {
    /// The median: *the* floor.
    pub median: f64,
    /// The 5th percentile.
    pub p5: f64,
    /// The 95th percentile.
    pub p95: f64,
}

/// The floor of `distance`: its quantiles over `rounds` rounds. The closure is given each round's
/// stream, draws from the model a sample of the size that was measured, and measures it likewise.
/// The same seed gives the same floor.
///
/// # Panics
/// If there are no rounds, or a distance is not a number.
pub fn floor(seed: u64, rounds: u32, mut distance: impl FnMut(&mut Rng) -> f64) -> Floor {
    let mut distances: Vec<f64> = (0..u64::from(rounds))
        .map(|round| distance(&mut Rng::new(seed, FLOOR_PURPOSE, round)))
        .collect();
    assert!(distances.iter().all(|distance| !distance.is_nan()), "a distance is a number");
    distances.sort_unstable_by(f64::total_cmp);
    let at = |q| quantile_sorted(&distances, q).expect("a floor needs at least one round");
    Floor { median: at(0.5), p5: at(0.05), p95: at(0.95) }
}

/// How many floors a distance is: 0 for a distance of 0 whatever the floor, `None` where it is
/// undefined (any other distance over a floor of 0, or an invalid distance).
pub fn ratio(distance: f64, floor: f64) -> Option<f64> {
    if distance == 0.0 {
        return Some(0.0);
    }
    let ratio = distance / floor;
    (distance > 0.0 && floor > 0.0 && ratio.is_finite()).then_some(ratio)
}

/// `n` independent uniform variables in [0, 1), in ascending order, in O(n). n + 1 words of the
/// stream.
pub fn sorted_uniforms(rng: &mut Rng, n: usize) -> Vec<f64> {
    let mut sum = 0.0;
    let mut sums: Vec<f64> = (0..n)
        .map(|_| {
            sum += rng.exponential(1.0);
            sum
        })
        .collect();
    let total = sum + rng.exponential(1.0);
    for place in &mut sums {
        *place = (*place / total).min(1.0 - UNIT_STEP);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Empirical, Form, distance::*, pareto};

    /// Two independent samples of n from Pareto 1.2.
    fn halves(rng: &mut Rng, n: usize) -> [Vec<f64>; 2] {
        [(); 2].map(|()| {
            let mut half = sorted_uniforms(rng, n);
            for place in &mut half {
                *place = libm::pow(1.0 - *place, -1.0 / 1.2);
            }
            half
        })
    }

    /// Figures from one measurement each of another implementation: they must lie in the band and
    /// near the median.
    #[test]
    fn reproduces_the_known_floors_of_pareto() {
        type Distance = fn(&mut [f64], &mut [f64]) -> f64;
        let figures: [(&str, Distance, f64, f64); 3] = [
            ("KS", ks_samples, 0.013, 0.003_5),
            ("JSD", jsd_quarter_octave_samples, 1.9e-3, 2.0e-4),
            ("W1", w1_log2_samples, 0.026, 0.007_6),
        ];
        for (name, distance, small, large) in figures {
            for (n, rounds, known) in [(10_000, 100, small), (100_000, 20, large)] {
                let found = floor(1, rounds, |rng| {
                    let [mut a, mut b] = halves(rng, n);
                    distance(&mut a, &mut b)
                });
                let off = known / found.median;
                assert!((0.7..1.4).contains(&off), "{name}, n {n}: {found:?}, not {known}");
                let band = 0.9 * found.p5..1.1 * found.p95;
                assert!(band.contains(&known), "{name}, n {n}: {found:?}, not {known}");
            }
        }
    }

    /// Kolmogorov's limit law: the median of √n·KS is 0.8276, its 95th percentile 1.3581.
    #[test]
    fn floor_of_ks_follows_kolmogorov() {
        let model = Empirical::new(Form::Linear, 2, alloc::vec![(0.0, 0.0), (1.0, 1.0)]);
        let model = model.expect("the uniform law");
        let n = 2_500;
        let found = floor(3, 1_000, |rng| ks_of_sorted(&model.draw_sorted(rng, n), &model));
        let scale = libm::sqrt(n as f64);
        assert!((found.median * scale - 0.8276).abs() < 0.03, "{found:?}");
        assert!((found.p95 * scale - 1.3581).abs() < 0.08, "{found:?}");
        assert!(found.p5 < found.median && found.median < found.p95);
    }

    #[test]
    fn repeats_by_seed_and_knows_no_order() {
        let mut firsts = Vec::new();
        let once = floor(7, 9, |rng| {
            firsts.push(rng.unit());
            firsts[firsts.len() - 1]
        });
        assert_eq!(once, floor(7, 9, Rng::unit));
        assert_ne!(once, floor(8, 9, Rng::unit));
        let fifth = Rng::new(7, FLOOR_PURPOSE, 5).unit();
        assert_eq!(firsts[5], fifth, "a round's stream must not depend on the rounds before");
    }

    #[test]
    fn ratios_of_nothing_to_nothing() {
        assert_eq!(ratio(0.02, 0.01), Some(2.0));
        assert_eq!(ratio(0.0, 0.01), Some(0.0));
        assert_eq!(ratio(0.0, 0.0), Some(0.0));
        assert_eq!(ratio(0.1, 0.0), None);
        assert_eq!(ratio(f64::NAN, 0.1), None);
        assert_eq!(ratio(f64::INFINITY, 0.1), None);
    }

    /// The naive twin draws and sorts. Order statistic k of n has mean k/(n + 1).
    #[test]
    fn sorted_uniforms_are_order_statistics() {
        let (n, rounds) = (9, 20_000);
        let (mut means, mut twin_means) = ([0.0; 9], [0.0; 9]);
        let mut rng = Rng::new(4, 0, 0);
        for _ in 0..rounds {
            let places = sorted_uniforms(&mut rng, n);
            assert!(places.is_sorted() && places.iter().all(|place| (0.0..1.0).contains(place)));
            let mut twin: Vec<f64> = (0..n).map(|_| rng.unit()).collect();
            twin.sort_unstable_by(f64::total_cmp);
            for k in 0..n {
                means[k] += places[k] / f64::from(rounds);
                twin_means[k] += twin[k] / f64::from(rounds);
            }
        }
        for k in 0..n {
            let expected = (k + 1) as f64 / (n + 1) as f64;
            assert!((means[k] - expected).abs() < 0.006, "rank {k}: {}", means[k]);
            assert!((means[k] - twin_means[k]).abs() < 0.008, "rank {k}: {}", twin_means[k]);
        }
        assert!(sorted_uniforms(&mut rng, 0).is_empty());
    }

    /// A floor by plain draws, sorted, is the floor by sorted draws.
    #[test]
    fn sorted_draws_give_the_floor_of_plain_draws() {
        let mut rng = Rng::new(5, 0, 0);
        let sizes: Vec<f64> =
            (0..20_000).map(|_| libm::floor(pareto(&mut rng, 1.2, 1_000.0))).collect();
        let model = Empirical::step_from(sizes, 512).expect("sizes");
        let walked = floor(1, 200, |rng| ks_of_sorted(&model.draw_sorted(rng, 2_000), &model));
        let plain = floor(2, 200, |rng| {
            let mut drawn: Vec<f64> = (0..2_000).map(|_| model.draw(rng)).collect();
            ks_to(&mut drawn, &model)
        });
        let off = walked.median / plain.median;
        assert!((0.9..1.1).contains(&off), "{walked:?} against {plain:?}");
    }
}
