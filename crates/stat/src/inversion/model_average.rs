//! Bayesian average of the laws of flow lengths that sampled records leave open.
//!
//! For flows much shorter than the sampling interval, records show little more than how many there are and how many
//! packets they have together. Many laws agree with that, and the one that an uninformed expectation-maximisation
//! finds depends on its starting point. So families of laws that flows are known to follow (`reference`) are
//! compared with the records.
//!
//! The likelihood of a law is that of the records, and of the last packets where these are known (`remainder`). It
//! is multiplied by a weak prior (`…_PRIORS`, deviations of a factor of 1.5 to 3 for lengths and of 15 % for the
//! tail index, which measurements put between 1.0 and 1.5: Crovella & Bestavros 1997).
//!
//! * For *files*, whose control packets are known, the reference is the mean of all laws weighted by their posterior
//!   (`posterior`), as in Bayesian model averaging (Hoeting et al., *Statistical Science* 14, 1999). The distance of
//!   the laws from it shows how well sizes are known.
//! * For *flows* about which nothing else is known it is the better of the best lognormal and the best
//!   mixture of mice and elephants.

use alloc::vec;
use alloc::vec::Vec;

use super::grid::{Bin, Grid};
use super::posterior::{Family, LOSS_ABOVE_BEST_MAX, Modes, Prior};
use super::reference::{Layout, Reference, median};
use super::remainder::{PARTS, Remainders, SEGMENTS, expected_parts, parts};

/// Priors of mice and elephants: the logit of the elephants' share, the logarithms of the mice's mean beyond
/// their first packet, of the elephants' least length, and of their tail index.
const MICE_PRIORS: [Prior; 4] = [(0.0, 1.4), (1.0, 0.7), (1.4, 0.7), (0.2, 0.14)];
/// Priors of mice and elephants that are files: elephants begin about where mice end, and the third number is the
/// logarithm of their least length over the mice's mean. Otherwise each law would have a twin in which the elephants
/// are the mice.
const SMALL_AND_LARGE_PRIORS: [Prior; 4] = [(0.0, 1.0), (1.0, 0.7), (0.3, 0.4), (0.2, 0.14)];
/// Priors of the lognormal: the mean of the logarithm, and the logarithm of its deviation.
const LOGNORMAL_PRIORS: [Prior; 2] = [(2.0, 0.7), (0.4, 0.35)];
/// Priors of the lognormal of files, likewise.
const SIZE_PRIORS: [Prior; 2] = [(1.7, 1.2), (0.4, 0.35)];
/// Priors of the lognormal with a tail: those of the lognormal, then the logit of the tail's share, the
/// logarithms of its least length over the length one deviation above the middle, and of its index.
const TAILED_PRIORS: [Prior; 5] = [(1.7, 1.2), (0.2, 0.35), (-2.5, 1.0), (0.7, 0.7), (0.2, 0.14)];
/// Priors of two lognormals: those of the first, the logit of the second's share, the logarithms of how much
/// farther its middle lies and of its deviation.
const TWO_PRIORS: [Prior; 5] = [(1.0, 1.2), (-0.1, 0.4), (0.0, 1.7), (0.8, 0.5), (0.2, 0.35)];
/// Priors of the Weibull law: the logarithms of scale and shape.
const WEIBULL_PRIORS: [Prior; 2] = [(1.7, 1.2), (-0.6, 0.4)];
/// Priors of the Pareto law alone: the logarithms of its least size and its index.
const PARETO_PRIORS: [Prior; 2] = [(0.5, 1.0), (0.2, 0.25)];
/// Sizes of files have a lognormal body and seldom a step (Downey, MASCOTS 2001): the odds of a step, where a Pareto
/// law begins beside small files of a geometric law. It counts in full where sizes within a segment are not known.
const STEP_ODDS: f64 = 0.05;
/// The odds of files without any body, which occur in models of traffic rather than in traffic. Where files are like
/// that, their likelihood outweighs these odds.
const PARETO_ODDS: f64 = 0.005;
/// Logarithms of the elephants' least length at which searches begin.
const STARTS: [f64; 3] = [0.4, 1.4, 2.5];
/// Logarithms of the elephants' least length over the mice's mean at which searches begin.
const STARTS_APART: [f64; 3] = [-0.3, 0.3, 1.2];
/// Where searches for two lognormals begin, beside the centre.
const TWO_STARTS: [[f64; 5]; 3] =
    [[0.5, -0.3, -0.5, 1.2, 0.1], [-0.8, -0.1, 0.0, 1.4, 0.0], [0.0, 0.0, 1.0, 1.2, 0.3]];
/// The share of the laws that lie within the spread.
const SPREAD_SHARE: f64 = 0.95;

fn share(logit: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-logit))
}

pub(super) fn mice([elephants, mice, least, index]: &[f64; 4]) -> Reference {
    Reference::MiceAndElephants {
        elephants: share(*elephants),
        mice_mean: 1.0 + libm::exp(*mice),
        least: libm::exp(*least).max(1.0),
        index: libm::exp(*index),
    }
}

fn small_and_large([elephants, small, apart, index]: &[f64; 4]) -> Reference {
    mice(&[*elephants, *small, libm::log(1.0 + libm::exp(*small)) + apart, *index])
}

fn pareto([least, index]: &[f64; 2]) -> Reference {
    Reference::Pareto { least: libm::exp(*least), index: libm::exp(*index) }
}

pub(super) fn lognormal([mu, sigma]: &[f64; 2]) -> Reference {
    Reference::Lognormal { mu: *mu, sigma: libm::exp(*sigma) }
}

pub(super) fn tailed([mu, sigma, tail, least, index]: &[f64; 5]) -> Reference {
    Reference::LognormalAndTail {
        mu: *mu,
        sigma: libm::exp(*sigma),
        tail: share(*tail),
        least: libm::exp(mu + libm::exp(*sigma) + least),
        index: libm::exp(*index),
    }
}

fn two_lognormals([mu, sigma, second, apart, sigma_second]: &[f64; 5]) -> Reference {
    Reference::TwoLognormals {
        second: share(*second),
        mu: [*mu, mu + libm::exp(*apart)],
        sigma: [libm::exp(*sigma), libm::exp(*sigma_second)],
    }
}

fn weibull([scale, shape]: &[f64; 2]) -> Reference {
    Reference::Weibull { scale: libm::exp(*scale), shape: libm::exp(*shape) }
}

/// The centres of priors.
fn centre<const D: usize>(priors: &[Prior; D]) -> [f64; D] {
    priors.map(|(centre, _)| centre)
}

/// Where searches for mice and elephants begin.
fn starts(priors: &[Prior; 4], of: [f64; 3]) -> [[f64; 4]; 3] {
    let [elephants, mice, _, index] = centre(priors);
    of.map(|start| [elephants, mice, start, index])
}

/// How far 95 % of the laws that the records leave open lie from their mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Precision {
    /// Their KS distance.
    pub distance: f64,
    /// Their median's ratio to the mean law's, or its inverse where that is larger.
    pub median_factor: f64,
}

impl Precision {
    /// The worse of two, in each respect.
    pub fn worse(self, other: Precision) -> Precision {
        Precision {
            distance: self.distance.max(other.distance),
            median_factor: self.median_factor.max(other.median_factor),
        }
    }
}

/// The laws that the records leave open.
#[derive(Clone, Debug)]
pub(super) struct ModelAverage {
    /// The law that fits best.
    pub best: Reference,
    /// Laws that do not fit much worse, with their weights.
    pub laws: Vec<(Reference, f64)>,
    layout: Layout,
}

impl ModelAverage {
    /// The law of flows that are known only from the records.
    pub fn of_flows(grid: &Grid) -> ModelAverage {
        let layout = Layout { control: 0.0, is_rounded_up: false };
        let misfit = |law: Reference| -grid.likelihood(&law.shares(&grid.bins, layout));
        let all = Family { priors: &LOGNORMAL_PRIORS, law: lognormal, misfit: &misfit };
        let two = Family { priors: &MICE_PRIORS, law: mice, misfit: &misfit };
        let all = all.best(&all.modes(&[centre(&LOGNORMAL_PRIORS)]));
        let two = two.best(&two.modes(&starts(&MICE_PRIORS, STARTS)));
        let best = if two.1 < all.1 { two.0 } else { all.0 };
        ModelAverage { best, laws: vec![(best, 1.0)], layout }
    }

    /// The laws of flows that carry files, besides `control` control packets.
    pub fn of_files(grid: &Grid, control: u32, remainders: Option<&Remainders>) -> ModelAverage {
        let layout = Layout { control: control.into(), is_rounded_up: remainders.is_some() };
        let misfit = |law: Reference| {
            let lasts = remainders.map_or(0.0, |last| last.likelihood(&law, grid.interval));
            -grid.likelihood(&law.shares(&grid.bins, layout)) - lasts
        };
        let misfit = &misfit;
        let family = Family { priors: &SMALL_AND_LARGE_PRIORS, law: small_and_large, misfit };
        let small_and_large = family.fitted(&starts(&SMALL_AND_LARGE_PRIORS, STARTS_APART));
        let family = Family { priors: &SIZE_PRIORS, law: lognormal, misfit };
        let lognormal = family.fitted(&[centre(&SIZE_PRIORS)]);
        let family = Family { priors: &TAILED_PRIORS, law: tailed, misfit };
        let tailed = family.fitted(&[centre(&TAILED_PRIORS)]);
        let family = Family { priors: &TWO_PRIORS, law: two_lognormals, misfit };
        let [one, other, third] = TWO_STARTS;
        let two = family.fitted(&[centre(&TWO_PRIORS), one, other, third]);
        let family = Family { priors: &WEIBULL_PRIORS, law: weibull, misfit };
        let weibull = family.fitted(&[centre(&WEIBULL_PRIORS)]);
        let family = Family { priors: &PARETO_PRIORS, law: pareto, misfit };
        let pareto = family.fitted(&[centre(&PARETO_PRIORS), [-0.5, 0.2], [1.5, 0.2]]);
        let bests = [
            small_and_large.best(),
            lognormal.best(),
            tailed.best(),
            two.best(),
            weibull.best(),
            pareto.best(),
        ];
        let best = bests.into_iter().min_by(|a, b| a.1.total_cmp(&b.1));
        let (best, least) = best.expect("six families");
        let mut laws = small_and_large.laws(least);
        laws.extend(lognormal.laws(least));
        laws.extend(tailed.laws(least));
        laws.extend(two.laws(least));
        laws.extend(weibull.laws(least));
        laws.extend(
            pareto.laws(least).into_iter().map(|(law, weight)| (law, PARETO_ODDS * weight)),
        );
        ModelAverage { best, laws, layout }
    }

    /// The laws with their weights in the mean.
    fn weighted(&self) -> Vec<(&Reference, f64)> {
        let odds = |law: &Reference| match law {
            Reference::MiceAndElephants { .. } if self.layout.is_rounded_up => STEP_ODDS,
            _ => 1.0,
        };
        let all: f64 = self.laws.iter().map(|(law, weight)| odds(law) * weight).sum();
        self.laws.iter().map(|(law, weight)| (law, odds(law) * weight / all)).collect()
    }

    /// The mean of the laws, and how far from it they lie. The odds of a step count in the mean, but not in the
    /// precision.
    pub fn shares(&self, bins: &[Bin]) -> (Vec<f64>, Precision) {
        let laws: Vec<Vec<f64>> =
            self.laws.iter().map(|(law, _)| law.shares(bins, self.layout)).collect();
        let mut mean = vec![0.0; bins.len()];
        for (shares, (_, weight)) in laws.iter().zip(self.weighted()) {
            mean.iter_mut().zip(shares).for_each(|(sum, share)| *sum += weight * share);
        }
        let middle = self.median();
        let off = |law: &Reference| libm::fabs(libm::log(law.median() / middle));
        let weights = || self.laws.iter().map(|(_, weight)| *weight);
        let distances = laws.iter().map(|shares| distance(shares, &mean)).zip(weights());
        let factors = self.laws.iter().map(|(law, weight)| (off(law), *weight));
        let precision = Precision {
            distance: most_within(distances.collect()).unwrap_or(1.0),
            median_factor: libm::exp(most_within(factors.collect()).unwrap_or(f64::INFINITY)),
        };
        (mean, precision)
    }

    /// The median of the mean of the laws.
    fn median(&self) -> f64 {
        let laws = self.weighted();
        median(|x| laws.iter().map(|(law, weight)| weight * law.beyond(x)).sum())
    }

    /// The payload of the last packets of files, by their number of full packets: the shares of the parts of a
    /// segment by the laws, times the observed over the expected count of each part.
    pub fn parts(&self, remainders: &Remainders, interval: f64) -> Vec<[f64; PARTS]> {
        let laws = self.weighted();
        let mean = |of: &dyn Fn(&Reference) -> [f64; PARTS]| {
            let mut mean = [0.0; PARTS];
            for (law, weight) in &laws {
                mean.iter_mut().zip(of(law)).for_each(|(sum, part)| *sum += weight * part);
            }
            mean
        };
        let ratios = remainders.ratios_to(&mean(&|law| expected_parts(law, interval)));
        let of_segments = |segments| {
            let mut parts = mean(&|law| parts(law, segments));
            parts.iter_mut().zip(ratios).for_each(|(part, ratio)| *part *= ratio);
            parts
        };
        (0..SEGMENTS).map(of_segments).collect()
    }
}

/// The value within which 95 % of the weights lie.
fn most_within(mut values: Vec<(f64, f64)>) -> Option<f64> {
    values.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let held = SPREAD_SHARE * values.iter().map(|(_, weight)| weight).sum::<f64>();
    let mut below = 0.0;
    let most = values.iter().find(|(_, weight)| {
        below += weight;
        below >= held
    });
    most.or(values.last()).map(|(value, _)| *value)
}

/// A family with the modes of its posterior.
struct Fitted<'a, const D: usize> {
    family: Family<'a, D>,
    modes: Modes<D>,
}

impl<'a, const D: usize> Family<'a, D> {
    /// The family, searched from `starts`.
    fn fitted(self, starts: &[[f64; D]]) -> Fitted<'a, D> {
        let modes = self.modes(starts);
        Fitted { family: self, modes }
    }
}

impl<const D: usize> Fitted<'_, D> {
    /// The best law, and its loss.
    fn best(&self) -> (Reference, f64) {
        self.family.best(&self.modes)
    }

    /// Laws of a family, which share its weight relative to a law of loss `least`: e to the minus of its excess
    /// loss, times the volume that it leaves of the prior.
    fn laws(&self, least: f64) -> Vec<(Reference, f64)> {
        let worse = self.best().1 - least;
        if worse > LOSS_ABOVE_BEST_MAX {
            return Vec::new();
        }
        let near = self.modes.iter().filter(|(_, loss)| loss - least <= LOSS_ABOVE_BEST_MAX);
        let near: Vec<[f64; D]> = near.map(|(at, _)| *at).collect();
        let (laws, ln_volume) = self.family.draw(&near);
        let weight = libm::exp(ln_volume - worse);
        laws.into_iter().map(|law| (law, weight)).collect()
    }
}

/// The KS distance of two laws on the same bins.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    let (mut apart, mut worst) = (0.0, 0.0_f64);
    for (a, b) in a.iter().zip(b) {
        apart += a - b;
        worst = worst.max(libm::fabs(apart));
    }
    worst
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_of_laws_are_counted_by_hand() {
        assert_eq!(distance(&[0.5, 0.25, 0.25], &[0.5, 0.25, 0.25]), 0.0);
        assert_eq!(distance(&[0.5, 0.25, 0.25], &[0.0, 0.5, 0.5]), 0.5);
        assert_eq!(distance(&[0.25, 0.5, 0.25], &[0.5, 0.5, 0.0]), 0.25);
    }
}
