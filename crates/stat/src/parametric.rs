//! The few parametric laws of traffic: lognormal bodies, Pareto tails, Zipf ranks.

use alloc::vec::Vec;

use crate::Rng;

/// From this mean on a Poisson number is drawn from a normal law.
const POISSON_NORMAL: f64 = 100.0;
/// The greatest Poisson number that is drawn for a smaller mean.
const POISSON_MAX: f64 = 1_000.0;

/// A lognormal variable: e to the power of a normal one with mean `mu` and deviation `sigma`, both
/// in natural logarithms of the value's unit. Median e^mu, mean e^(mu + sigma²/2).
pub fn lognormal(rng: &mut Rng, mu: f64, sigma: f64) -> f64 {
    libm::exp(mu + sigma * rng.normal())
}

/// A Pareto variable: P(X > x) = (minimum/x)^alpha for x ≥ `minimum`, in the minimum's unit.
///
/// The mean is infinite for alpha ≤ 1 and the variance for alpha ≤ 2; file sizes sit between
/// (Crovella & Bestavros 1997), which is why volumes must be planned and not merely drawn. With 53
/// bits the largest value is minimum·2^(53/alpha).
pub fn pareto(rng: &mut Rng, alpha: f64, minimum: f64) -> f64 {
    minimum * libm::pow(1.0 - rng.unit(), -1.0 / alpha)
}

/// A Poisson number with this mean: by the exact law up to a mean of 100, and above by the normal
/// law, which it nearly follows.
pub fn poisson(rng: &mut Rng, mean: f64) -> f64 {
    if mean > POISSON_NORMAL {
        return libm::round(mean + libm::sqrt(mean) * rng.normal()).max(0.0);
    }
    let mut left = rng.unit();
    let (mut number, mut share) = (0.0, libm::exp(-mean));
    while left >= share && number < POISSON_MAX {
        left -= share;
        number += 1.0;
        share *= mean / number;
    }
    number
}

/// The weights of ranks 1..=n under Zipf's law, rank^(−exponent), normalised to sum to 1, largest
/// first. An exponent of 0 makes them equal; for `n` = 0 the list is empty.
pub fn zipf_weights(n: usize, exponent: f64) -> Vec<f64> {
    let mut weights: Vec<f64> = (1..=n).map(|rank| libm::pow(rank as f64, -exponent)).collect();
    let total: f64 = weights.iter().rev().sum();
    for weight in &mut weights {
        *weight /= total;
    }
    weights
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::quantile_sorted;

    #[test]
    fn poisson_numbers_have_their_mean_and_variance() {
        let mut rng = Rng::new(6, 0, 0);
        for mean in [0.0, 0.01, 3.0, 99.0, 101.0, 1e6] {
            let drawn: Vec<f64> = (0..40_000).map(|_| poisson(&mut rng, mean)).collect();
            let found = drawn.iter().sum::<f64>() / 40_000.0;
            let variance = drawn.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 40_000.0;
            assert!((found - mean).abs() <= 5.0 * libm::sqrt(mean / 40_000.0), "{found} of {mean}");
            assert!((variance - mean).abs() <= 0.3 * mean.min(0.01) + 0.05 * mean, "{variance}");
        }
    }

    fn sorted(mut values: Vec<f64>) -> Vec<f64> {
        values.sort_unstable_by(f64::total_cmp);
        values
    }

    #[test]
    fn lognormal_has_its_quantiles() {
        let mut rng = Rng::new(1, 0, 0);
        let drawn = sorted((0..50_000).map(|_| lognormal(&mut rng, 7.0, 1.5)).collect());
        for (q, z) in [(0.158_655, -1.0), (0.5, 0.0), (0.841_345, 1.0)] {
            let found = libm::log(quantile_sorted(&drawn, q).expect("not empty"));
            assert!((found - (7.0 + 1.5 * z)).abs() < 0.04, "q {q}: ln {found}");
        }
    }

    #[test]
    fn pareto_has_its_tail() {
        let mut rng = Rng::new(2, 0, 0);
        let drawn = sorted((0..100_000).map(|_| pareto(&mut rng, 1.2, 40.0)).collect());
        assert!(drawn[0] >= 40.0);
        for x in [80.0, 400.0, 4_000.0] {
            let beyond = drawn.iter().filter(|&&value| value > x).count() as f64 / 100_000.0;
            let expected = libm::pow(40.0 / x, 1.2);
            let slack = 4.0 * libm::sqrt(expected / 100_000.0);
            assert!((beyond - expected).abs() < slack, "P(X > {x}) = {beyond}, not {expected}");
        }
    }

    #[test]
    fn zipf_weights_fall_by_rank_and_sum_to_one() {
        let weights = zipf_weights(254, 1.0);
        assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        // 1/H(254), H the harmonic number: 16.3 % of all draws are for the first of 254 addresses.
        assert!((weights[0] - 0.163).abs() < 0.001, "top share {}", weights[0]);
        for rank in 1..=254 {
            assert!((weights[0] / weights[rank - 1] - rank as f64).abs() < 1e-9);
        }
        assert_eq!(zipf_weights(4, 0.0), [0.25; 4]);
        assert!(zipf_weights(0, 1.0).is_empty());
    }

    /// Up to a mean of 100 a number takes one random word, by inversion of its law.
    #[test]
    fn poisson_numbers_of_small_means_invert_the_cumulative_law() {
        for mean in [0.5, 4.0, 40.0, 100.0] {
            for seed in 0..200 {
                let (mut rng, mut twin) = (Rng::new(seed, 1, 0), Rng::new(seed, 1, 0));
                let (found, unit) = (poisson(&mut rng, mean), twin.unit());
                assert_eq!(rng.next_u64(), twin.next_u64(), "one word was drawn");
                let term = |k: u32| {
                    let factors = (1..=k).map(|k| mean / f64::from(k));
                    factors.fold(libm::exp(-mean), |share, factor| share * factor)
                };
                let below: f64 = (0..found as u32).map(term).sum();
                assert!(below <= unit + 1e-12, "{found} of {mean}");
                assert!(unit < below + term(found as u32) + 1e-12, "{found} of {mean}");
            }
        }
    }
}
