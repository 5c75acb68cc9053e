//! A law of gaps within a bound: a mixture of two log-gamma laws, times a scale that differs between pairs of
//! hosts.
//!
//! One part describes gaps of one kind, two describe gaps within a page and between pages. The logarithm of a gap of a
//! part is that of a gamma variable of shape 4, shifted and stretched (a generalised gamma law; Stacy, 1962): between a
//! lognormal law (shape infinite) and a Weibull law (shape 1, which includes the exponential). Gaps with a constant
//! rate have a long tail to the left in their logarithm, which no lognormal law has; two lognormal parts are off by KS
//! 0.04 from two exponential ones, these by 0.02, and by 0.006 from a lognormal law. The scale of a pair is lognormal
//! as well, and is evaluated at the three nodes of Gauss-Hermite quadrature. The law is defective: it lacks gaps beyond
//! the bound and the share of connections after which the pair falls silent.

use alloc::vec;
use alloc::vec::Vec;

use super::renewal::{BINS, Bins};

/// Nodes of a normal law of mean 0 and deviation 1, with their weights.
const NODES: [(f64, f64); 3] =
    [(0.0, 2.0 / 3.0), (1.732_050_807_568_877_2, 1.0 / 6.0), (-1.732_050_807_568_877_2, 1.0 / 6.0)];
/// The mean and the deviation of the logarithm of a gamma variable of shape 4: the digamma function, and the root of
/// the trigamma function, of 4.
pub(super) const LN_GAMMA: (f64, f64) = (1.256_117_668_431_800_3, 0.532_750_369_063_331);
/// Below this the series of a gamma law is summed directly, and not by its complement.
const SMALL: f64 = 0.05;
/// Halvings of the range in which a quantile lies.
const HALVINGS: usize = 60;

/// The parameters of a law: see [`LawOfGaps::new`].
pub(crate) type Shape = [f64; 6];

/// The law.
#[derive(Clone, Debug)]
pub(crate) struct LawOfGaps {
    bound_s: f64,
    /// The mean and the deviation of the logarithm of seconds, and the share, of each of the two.
    parts: [(f64, f64, f64); 2],
    /// The deviation of the logarithm of a pair's scale.
    scales: f64,
}

/// The share of a part whose logarithm is at most `deviations` deviations above the mean.
fn part_below(deviations: f64) -> f64 {
    let at = libm::exp(LN_GAMMA.0 + LN_GAMMA.1 * deviations);
    if at < SMALL {
        let series =
            1.0 / 24.0 - at * (1.0 / 30.0 - at * (1.0 / 72.0 - at * (1.0 / 252.0 - at / 1_152.0)));
        return at * at * at * at * series;
    }
    1.0 - libm::exp(-at) * (1.0 + at * (1.0 + at * (0.5 + at / 6.0)))
}

fn logistic(of: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-of))
}

impl LawOfGaps {
    /// The law of these six parameters: the mean of the logarithm of seconds of the first part and the logarithm
    /// of its deviation, how far the mean of the second part is above, the logarithm of the second's deviation,
    /// and as log odds the share of the second, and that of connections without a successor.
    pub fn new(
        bound_s: f64,
        scales: f64,
        &[mu, ln_sigma, above, other, second, none]: &Shape,
    ) -> LawOfGaps {
        let followed = logistic(-none);
        let first = (mu, libm::exp(ln_sigma), followed * logistic(-second));
        let second = (mu + above, libm::exp(other), followed * logistic(second));
        LawOfGaps { bound_s, parts: [first, second], scales }
    }

    /// The scales of pairs, as logarithms, and the share of each.
    pub fn nodes(&self) -> Vec<(f64, f64)> {
        match self.scales > 0.0 {
            true => NODES.iter().map(|(node, weight)| (node * self.scales, *weight)).collect(),
            false => vec![(0.0, 1.0)],
        }
    }

    /// The chance that there is a gap, and that it is at most `seconds`, for pairs of this scale.
    fn below(&self, scale: f64, seconds: f64) -> f64 {
        let ln = libm::log(seconds.max(f64::MIN_POSITIVE)) - scale;
        let part = |&(mu, sigma, share): &(f64, f64, f64)| share * part_below((ln - mu) / sigma);
        self.parts.iter().map(part).sum()
    }

    /// The shares of gaps of pairs of a scale, by their bins.
    pub fn shares(&self, bins: &Bins, scale: f64) -> Vec<f64> {
        let mut before = 0.0;
        let share = |at: usize| {
            let after = self.below(scale, bins.begin_s(at + 1));
            let share = after - before;
            before = after;
            share
        };
        (0..BINS).map(share).collect()
    }

    /// The share of connections with a successor within `seconds`.
    pub fn followed(&self, seconds: f64) -> f64 {
        self.nodes().iter().map(|(scale, weight)| weight * self.below(*scale, seconds)).sum()
    }

    /// The quantile `share` of gaps within the bound, seconds.
    pub fn quantile(&self, share: f64) -> f64 {
        let target = share * self.followed(self.bound_s);
        let (mut low, mut high) = (libm::log(self.bound_s) - 40.0, libm::log(self.bound_s));
        for _ in 0..HALVINGS {
            let middle = 0.5 * (low + high);
            match self.followed(libm::exp(middle)) < target {
                true => low = middle,
                false => high = middle,
            }
        }
        libm::exp(high).min(self.bound_s)
    }

    /// `count` evenly spaced quantiles of the law, seconds, rising.
    pub fn evenly(&self, count: usize) -> Vec<f64> {
        (0..count).map(|at| self.quantile((at as f64 + 0.5) / count as f64)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_quantiles_are_those_of_the_law() {
        let bins = Bins::new(60.0);
        let law = LawOfGaps::new(60.0, 0.5, &[-1.0, 0.0, 3.0, -0.5, -0.7, -3.0]);
        let mut shares = vec![0.0; BINS];
        for (scale, weight) in law.nodes() {
            let of_scale = law.shares(&bins, scale);
            shares.iter_mut().zip(of_scale).for_each(|(sum, share)| *sum += weight * share);
        }
        assert!((shares.iter().sum::<f64>() - law.followed(60.0)).abs() < 1e-9);
        let mut before = 0.0;
        for share in [0.01, 0.2, 0.5, 0.9, 0.999] {
            let gap = law.quantile(share);
            assert!(gap > before && gap < 60.0, "{share}: {gap}");
            assert!((law.followed(gap) / law.followed(60.0) - share).abs() < 1e-9);
            before = gap;
        }
        // One part, one scale: mean and deviation of logarithms are as given if the bound is far away.
        let plain = LawOfGaps::new(1e9, 0.0, &[-1.0, 0.5, 0.0, 0.5, 0.0, -3.0]);
        let logarithms: Vec<f64> = plain.evenly(20_000).into_iter().map(libm::log).collect();
        let mean = logarithms.iter().sum::<f64>() / 20_000.0;
        let squares = logarithms.iter().map(|ln| (ln - mean) * (ln - mean)).sum::<f64>() / 20_000.0;
        assert!((mean + 1.0).abs() < 1e-3 && (libm::sqrt(squares) - libm::exp(0.5)).abs() < 3e-3);
        // Both ways to compute the share agree where they meet.
        let meet = (libm::log(SMALL) - LN_GAMMA.0) / LN_GAMMA.1;
        let [below, above] = [meet - 1e-12, meet + 1e-12].map(part_below);
        assert!((above / below - 1.0).abs() < 1e-7, "{below} and {above}");
    }
}
