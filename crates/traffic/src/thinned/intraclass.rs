//! How much pairs of hosts differ in the scale of their gaps: an intraclass covariance of their lags.
//!
//! If the gaps of each pair follow one law times a scale of the pair's own, so do its lags, and two lags of one
//! pair share the scale's contribution to their logarithms: their covariance over pairs is the variance of the
//! scale's logarithm (the intraclass correlation of an analysis of variance). A bin is a logarithm. Each pair is
//! weighted by its lags, so that a pair with many does not dominate; and the estimate is shrunk towards a small
//! difference of pairs, by [`PRIOR_LAGS`], so that pairs with few lags hardly influence it.

use super::renewal::OF_DECADE;

/// Sums are kept in 2^-20 of a lag.
const UNITS: i128 = 1 << 20;
/// The number of lags that the prior counts as.
const PRIOR_LAGS: f64 = 50.0;
/// The prior's variance of the logarithm of a scale.
const PRIOR_VARIANCE: f64 = 0.04;

/// Sums over pairs with two lags or more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Intraclass {
    /// Sum of the products of two lags' bins, each lag with the mean of the others.
    products: i128,
    bins: i128,
    lags: i128,
}

impl Intraclass {
    /// Takes the lags of a pair, counted by bins.
    pub fn add(&mut self, counts: &[u64]) {
        let (mut lags, mut sum, mut squares) = (0, 0, 0);
        for (bin, &count) in (0i128..).zip(counts) {
            let count = i128::from(count);
            (lags, sum, squares) = (lags + count, sum + count * bin, squares + count * bin * bin);
        }
        if lags > 1 {
            self.products += (sum * sum - squares) * UNITS / (lags - 1);
            self.bins += sum * UNITS;
            self.lags += lags * UNITS;
        }
    }

    /// Adds the sums of other pairs.
    pub fn merge(&mut self, more: &Intraclass) {
        self.products += more.products;
        self.bins += more.bins;
        self.lags += more.lags;
    }

    /// The deviation of the natural logarithm of a pair's scale.
    pub fn deviation(&self) -> f64 {
        let lags = self.lags as f64;
        let bin = core::f64::consts::LN_10 / OF_DECADE as f64;
        let mean = self.bins as f64 / lags.max(1.0);
        let variance = (self.products as f64 / lags.max(1.0) - mean * mean) * bin * bin;
        let lags = lags / UNITS as f64;
        let shrunk = lags * variance.max(0.0) + PRIOR_LAGS * PRIOR_VARIANCE;
        libm::sqrt(shrunk / (lags + PRIOR_LAGS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thinned::renewal::{BINS, Bins};
    use alloc::vec;
    use alloc::vec::Vec;
    use nilometer_stat::Rng;

    fn pairs(seed: u64, scales: f64, lags: usize) -> Vec<Vec<u64>> {
        let (bins, mut rng) = (Bins::new(60.0), Rng::new(seed, 0x616c, 0));
        let mut of_pair = || {
            let scale = -2.0 + scales * rng.normal();
            let mut counts = vec![0; BINS];
            (0..lags).for_each(|_| counts[bins.at(libm::exp(scale + 0.8 * rng.normal()))] += 1);
            counts
        };
        (0..400).map(|_| of_pair()).collect()
    }

    fn deviation(pairs: &[Vec<u64>]) -> f64 {
        let mut intraclass = Intraclass::default();
        pairs.iter().for_each(|counts| intraclass.add(counts));
        intraclass.deviation()
    }

    #[test]
    fn the_deviation_of_scales_is_recovered() {
        assert!((deviation(&pairs(1, 1.0, 6)) - 1.0).abs() < 0.1);
        assert!((deviation(&pairs(2, 0.5, 6)) - 0.5).abs() < 0.1);
        assert!(deviation(&pairs(3, 0.0, 6)) < 0.2);
        // Single lags share nothing with any other, and the prior remains.
        let prior = libm::sqrt(PRIOR_VARIANCE);
        assert!((deviation(&pairs(4, 1.0, 1)) - prior).abs() < 1e-12);
        // Few pairs change it little.
        assert!(deviation(&pairs(5, 1.0, 6)[..2]) < 0.6);
    }

    #[test]
    fn merging_does_not_depend_on_order() {
        let pairs = pairs(6, 1.0, 5);
        let mut sum = Intraclass::default();
        for part in pairs.rchunks(37) {
            let mut more = Intraclass::default();
            part.iter().for_each(|counts| more.add(counts));
            sum.merge(&more);
        }
        assert_eq!(sum.deviation(), deviation(&pairs));
    }
}
