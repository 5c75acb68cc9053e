//! The law of gaps that makes the counted lags likeliest, under a prior.
//!
//! The chance that any packet of a connection is sampled is the number of seen connections over the number of all,
//! which is estimated from SYNs; and a lag between two is the one between their starts, plus the delay of the second,
//! less that of the first. If nothing is known about delays, SYNs are used: they are seen with the chance 1/N, at the
//! moment of the start. A point without a successor shows that its lag is longer than it could be followed.
//!
//! The prior is wide ([`PRIOR`]): gaps are of a second within a factor of 400, their logarithms deviate by 1 within
//! a factor of 3, and one connection in 20 is the last of its session, within a factor of 50. It matters where there
//! are few lags, and its influence is part of the interval: each replicate of the counts is fitted with a prior that
//! is shifted by a draw from itself, so that without informative lags the laws of the replicates spread as widely as
//! the prior (randomise, then optimise).

use alloc::vec;
use alloc::vec::Vec;

use nilometer_stat::Rng;
use nilometer_stat::simplex::minimise;

use super::delays::Blur;
use super::lags::{Counts, LagCounts};
use super::law::{LawOfGaps, Shape};
use super::renewal::{BINS, Bins};
use crate::random_streams::THINNED;

/// The prior mean and deviation of each parameter of a law's shape.
const PRIOR: [(f64, f64); 6] =
    [(0.0, 3.0), (0.0, 0.5), (0.0, 1.2), (0.0, 0.5), (0.0, 1.0), (-3.0, 2.0)];
/// Starting points of the search: how far the second part lies above the first.
const STARTS: [f64; 3] = [-2.0, 0.5, 2.0];
/// The size of the first simplex of a search, and of one that begins at an earlier result.
const WIDTHS: [f64; 2] = [0.5, 0.3];
/// The tolerances of both searches, in logarithms of the likelihood.
const TOLERANCES: [f64; 2] = [0.01, 0.05];
/// The largest share of connections that may be seen by a packet.
const SEEN_MAX: f64 = 0.98;

/// The data of a fit.
pub(crate) struct Fitting<'a> {
    bins: &'a Bins,
    /// The deviation of the logarithm of a pair's scale.
    scales: f64,
    observed: LagCounts<'a>,
    /// The chance that a point is observed.
    seen: f64,
    blur: Option<Blur>,
    prior: [f64; 6],
}

impl<'a> Fitting<'a> {
    /// A fit to these counts of a sampling of one packet in `interval`.
    pub fn new(bins: &'a Bins, counts: &'a Counts, interval: u32, scales: f64) -> Fitting<'a> {
        let sampled = 1.0 / f64::from(interval);
        let connections = counts.syns_of_connections() / sampled;
        let seen = counts.connections().points() as f64 / connections.max(1.0);
        let seen = seen.clamp(sampled, SEEN_MAX);
        let blur = Blur::new(bins, (counts.delays(), counts.spans()), sampled / seen);
        let (observed, seen) = match blur {
            Some(_) => (counts.connections(), seen),
            None => (counts.syns(), sampled),
        };
        Fitting { bins, scales, observed, seen, blur, prior: PRIOR.map(|(mean, _)| mean) }
    }

    /// The fit with a prior that is shifted by a draw from itself.
    pub fn moved(mut self, replicate: usize) -> Fitting<'a> {
        let mut rng = Rng::new(replicate as u64, THINNED, 1);
        self.prior = PRIOR.map(|(mean, deviation)| mean + deviation * rng.normal());
        self
    }

    /// The law of a shape.
    pub fn law(&self, shape: &Shape) -> LawOfGaps {
        LawOfGaps::new(self.bins.bound_s(), self.scales, shape)
    }

    /// The likeliest shape.
    pub fn find(&self) -> Shape {
        let found = STARTS.map(|above| {
            let mut start = self.prior;
            (start[0], start[2]) = (-1.0, above);
            minimise(&|shape: &Shape| self.cost(shape), start, WIDTHS[0], TOLERANCES[0])
        });
        found.into_iter().min_by(|one, other| one.1.total_cmp(&other.1)).expect("starts").0
    }

    /// The likeliest shape near an earlier result.
    pub fn find_near(&self, shape: Shape) -> Shape {
        minimise(&|shape: &Shape| self.cost(shape), shape, WIDTHS[1], TOLERANCES[1]).0
    }

    fn cost(&self, shape: &Shape) -> f64 {
        let off = |((value, mean), (_, deviation)): ((&f64, &f64), (f64, f64))| {
            let off = (value - mean) / deviation;
            0.5 * off * off
        };
        let prior: f64 = shape.iter().zip(&self.prior).zip(PRIOR).map(off).sum();
        let law = self.law(shape);
        prior - ln_likelihood(self.observed, &self.lags(&law))
    }

    /// The shares of the observed lags.
    fn lags(&self, law: &LawOfGaps) -> Vec<f64> {
        let mut lags = vec![0.0; BINS];
        for (scale, weight) in law.nodes() {
            let of_node = self.bins.lags(&law.shares(self.bins, scale), self.seen);
            lags.iter_mut().zip(of_node).for_each(|(sum, share)| *sum += weight * share);
        }
        match &self.blur {
            Some(blur) => blur.of(&lags),
            None => lags,
        }
    }
}

fn ln_likelihood(observed: LagCounts<'_>, lags: &[f64]) -> f64 {
    let (mut below, mut sum) = (0.0, 0.0);
    for ((lag, next), none) in lags.iter().zip(observed.followed).zip(observed.censored) {
        below += lag;
        sum += *next as f64 * libm::log(lag.max(1e-15));
        sum += *none as f64 * libm::log((1.0 - below).max(1e-12));
    }
    sum
}
