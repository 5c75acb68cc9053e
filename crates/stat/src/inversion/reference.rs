//! The shape that lengths of flows take where the records leave it open.
//!
//! Of flows much shorter than the sampling interval, records tell little more than how many there are
//! and how many packets they have together; many laws do that, and which one comes out of an
//! expectation-maximisation that knows nothing else is an accident of where it began. So two families
//! of laws that flows are known to follow are held against the records, each with few numbers:
//!
//! * *mice and elephants*: short flows with a geometric law, long ones with a Pareto law;
//! * *lognormal*.
//!
//! The numbers maximise the likelihood of the records times a weak prior (`BELIEFS`, deviations of a
//! factor of two for lengths and of 15 % for the tail index, which measurements put between 1.0 and
//! 1.5: Crovella & Bestavros 1997); the family that does so better is the reference.

use core::f64::consts::SQRT_2;

use alloc::vec::Vec;

use super::grid::{Bin, Grid};
use crate::simplex::minimise;

/// A centre and a deviation: what is believed of a number before any record is seen.
type Belief = (f64, f64);

/// Of mice and elephants: the logit of the elephants' share, the logarithms of the mice's mean beyond
/// their first packet, of the elephants' least length and of their tail index.
const MICE_BELIEFS: [Belief; 4] = [(0.0, 1.4), (1.0, 0.7), (1.4, 0.7), (0.2, 0.14)];
/// Of the lognormal: the mean of the logarithm, and the logarithm of its deviation.
const LOGNORMAL_BELIEFS: [Belief; 2] = [(2.0, 0.7), (0.4, 0.35)];
/// Logarithms of the elephants' least length at which searches begin.
const STARTS: [f64; 3] = [0.4, 1.4, 2.5];
/// A search ends when its likelihoods differ by no more, in natural logarithms.
const TOLERANCE: f64 = 1e-3;
/// No bin has a share below this.
pub(super) const SHARE_MIN: f64 = 1e-300;

/// A law of the lengths of flows, in packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reference {
    /// Short flows of a geometric law, long ones of a Pareto law.
    MiceAndElephants {
        /// The elephants' share of the flows.
        elephants: f64,
        /// The mean length of the mice.
        mice_mean: f64,
        /// The least length of an elephant.
        least: f64,
        /// Their tail index.
        index: f64,
    },
    /// A lognormal law, rounded up to whole packets.
    Lognormal {
        /// The mean of the length's logarithm.
        mu: f64,
        /// The deviation of the length's logarithm.
        sigma: f64,
    },
}

impl Reference {
    fn mice([elephants, mice, least, index]: &[f64; 4]) -> Reference {
        Reference::MiceAndElephants {
            elephants: 1.0 / (1.0 + libm::exp(-elephants)),
            mice_mean: 1.0 + libm::exp(*mice),
            least: libm::exp(*least).max(1.0),
            index: libm::exp(*index),
        }
    }

    fn lognormal([mu, sigma]: &[f64; 2]) -> Reference {
        Reference::Lognormal { mu: *mu, sigma: libm::exp(*sigma) }
    }

    /// P(L ≥ `length`).
    fn survival(&self, length: f64) -> f64 {
        match *self {
            Reference::MiceAndElephants { elephants, mice_mean, least, index } => {
                let mouse = libm::pow(1.0 - 1.0 / mice_mean, length - 1.0);
                let elephant = libm::pow((least / length).min(1.0), index);
                elephants * elephant + (1.0 - elephants) * mouse
            }
            Reference::Lognormal { .. } if length <= 1.0 => 1.0,
            Reference::Lognormal { mu, sigma } => {
                0.5 * libm::erfc((libm::log(length - 1.0) - mu) / (sigma * SQRT_2))
            }
        }
    }

    /// The shares of the bins.
    pub(super) fn shares(&self, bins: &[Bin]) -> Vec<f64> {
        let share = |bin: &Bin| self.survival(bin.from) - self.survival(bin.to + 1.0);
        let mut shares: Vec<f64> = bins.iter().map(|bin| share(bin).max(SHARE_MIN)).collect();
        let total: f64 = shares.iter().sum();
        shares.iter_mut().for_each(|share| *share /= total);
        shares
    }

    /// The law that fits the records best, with `unseen` flows of which there is no record.
    pub(super) fn of(grid: &Grid, unseen: f64) -> Reference {
        let misfit = |law: Reference| -grid.likelihood(unseen, &law.shares(&grid.bins));
        let mice = |at: &[f64; 4]| misfit(Reference::mice(at)) + doubt(at, &MICE_BELIEFS);
        let lognormal =
            |at: &[f64; 2]| misfit(Reference::lognormal(at)) + doubt(at, &LOGNORMAL_BELIEFS);
        let (at, mut least) =
            minimise(&lognormal, LOGNORMAL_BELIEFS.map(|(centre, _)| centre), 0.5, TOLERANCE);
        let mut best = Reference::lognormal(&at);
        for start in STARTS {
            let mut from = MICE_BELIEFS.map(|(centre, _)| centre);
            from[2] = start;
            let (at, value) = minimise(&mice, from, 0.5, TOLERANCE);
            if value < least {
                (best, least) = (Reference::mice(&at), value);
            }
        }
        best
    }
}

/// What it costs to leave one's beliefs: the negative logarithm of normal laws.
fn doubt(at: &[f64], beliefs: &[Belief]) -> f64 {
    let one = |(x, (centre, deviation)): (&f64, &Belief)| {
        let off = (x - centre) / deviation;
        0.5 * off * off
    };
    at.iter().zip(beliefs).map(one).sum()
}

impl Grid {
    /// The logarithm of the likelihood of all records and of `unseen` flows without one.
    pub(super) fn likelihood(&self, unseen: f64, shares: &[f64]) -> f64 {
        let dark: f64 = self.unseen.iter().zip(shares).map(|(chance, share)| chance * share).sum();
        let seen =
            self.rows.iter().map(|row| row.count * libm::log(row.chance(shares).max(SHARE_MIN)));
        seen.sum::<f64>() + unseen * libm::log(dark.max(SHARE_MIN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;

    #[test]
    fn shares_are_those_of_the_law() {
        let grid = Grid::new(&BTreeMap::from([((4_000, true), 1)]), 10.0);
        let laws = [
            Reference::Lognormal { mu: 2.0, sigma: 1.5 },
            Reference::MiceAndElephants { elephants: 0.4, mice_mean: 3.0, least: 2.5, index: 1.2 },
        ];
        for law in laws {
            let shares = law.shares(&grid.bins);
            assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            let first = 1.0 - law.survival(2.0);
            assert!((shares[0] / first - 1.0).abs() < 1e-3, "{law:?}: {} {first}", shares[0]);
            assert_eq!(law.survival(1.0), 1.0);
        }
    }

    /// Of powers that are whole, by hand.
    #[test]
    fn a_length_is_survived_as_often_as_the_law_says() {
        let law = |elephants: f64| Reference::MiceAndElephants {
            elephants,
            mice_mean: 4.0,
            least: 2.0,
            index: 2.0,
        };
        let near = |found: f64, expected: f64| {
            assert!((found / expected - 1.0).abs() < 1e-12, "{found} for {expected}");
        };
        near(law(0.0).survival(2.0), 0.75);
        near(law(0.0).survival(3.0), 0.5625);
        near(law(1.0).survival(1.5), 1.0);
        near(law(1.0).survival(2.0), 1.0);
        near(law(1.0).survival(4.0), 0.25);
        near(law(1.0).survival(10.0), 0.04);
        near(law(0.25).survival(3.0), 0.25 * (4.0 / 9.0) + 0.75 * 0.5625);
        near(law(0.75).survival(2.0), 0.75 + 0.25 * 0.75);
        // Half of a lognormal law lies beyond its median, and what is above it is rounded up.
        let law = Reference::Lognormal { mu: 0.0, sigma: 0.5 };
        near(law.survival(2.0), 0.5);
        near(law.survival(1.0 + libm::exp(0.5)), 0.158_655_253_931_457_05);
        near(law.survival(1.0 + libm::exp(-1.0)), 0.977_249_868_051_820_8);
        assert_eq!((law.survival(1.0), law.survival(0.5)), (1.0, 1.0));
    }
}
