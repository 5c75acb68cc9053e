//! Gaps between connections of one pair of hosts, recovered from sampled packets.
//!
//! With sampling, most connections between two seen ones are missing, and the lag between these shows little about a
//! gap by itself: divided by N it is right if connections come at random, and wrong by any factor if they come in
//! bursts, because most of it is silence between sessions. But the number of missing ones has a known law. Each
//! connection is seen with the same chance, independent of the gaps; so the lag between two seen ones is the sum of
//! a geometric number of gaps, and its law follows from that of gaps (`renewal`; a thinned renewal process). Lags
//! are counted pair by pair up to the bound (`lags`), and the law of gaps (`law`) is the one that makes them
//! likeliest, under a prior (`fit`): each replicate of the counts yields one law, and their quantiles are averaged.
//! Pairs whose gaps differ are modelled by one law with different scales, and the covariance of lags of one pair
//! shows how much they differ (`intraclass`).
//!
//! Nothing is assumed about silence between sessions, nor about the number of pairs that were never seen: a lag
//! within the bound has no gap beyond it. The assumptions: gaps of one pair are independent of each other and of
//! what connections carry, and so are their sizes. The interval is that of a bootstrap over pairs of hosts. If the
//! median is not known within a factor of two either way ([`FACTOR_MAX`]), or from fewer than [`LAGS_MIN`] lags,
//! gaps are *not identified*.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_stat::ConfidenceInterval;
use serde::{Deserialize, Serialize};

use crate::grid::Grid;
use crate::pending_pairs::FlowSummary;
use crate::runner::Runner;
use fit::Fitting;
use lags::{Lags, Point, REPLICATES};

mod delays;
mod fit;
mod intraclass;
mod lags;
mod law;
mod renewal;

/// If the ends of the median's interval are farther apart than this factor, gaps are not identified.
const FACTOR_MAX: f64 = 4.0;
/// The fewest lags that can identify gaps.
const LAGS_MIN: u64 = 10;
/// The most sampling intervals whose gaps are fitted; each takes a tenth of a second or two.
const FITTED_MAX: usize = 8;
/// Deviations of Student's law with [`REPLICATES`] - 1 degrees of freedom between which 95 % lie.
const DEVIATIONS_95: f64 = 2.04;
/// The error of the logarithm of a mean or median with any number of lags, because gaps hardly ever follow two
/// parts of [`law`] on bins of a fifth.
const FAMILY_DEVIATION: f64 = 0.05;
/// A bootstrap of this many lags finds half of the true variance, one of more lags a greater part.
const FEW_LAGS: f64 = 40.0;
/// Number of gaps that represent a law.
const GAPS: usize = 256;
/// The greatest deviation of the logarithm of a mean or median, so that its interval is finite.
const DEVIATION_MAX: f64 = 30.0;

/// Whether the records identify a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Identification {
    /// Yes, within the confidence intervals.
    #[serde(rename = "identified")]
    Identified,
    /// No: the value given is a guess.
    #[serde(rename = "not-identified")]
    NotIdentified,
}

/// Uncertainty of inter-connection times estimated from sampled packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SampledGaps {
    /// Whether the sampled records identify them.
    pub identification: Identification,
    /// Number of lags between sampled connections, within the bound, used for the estimate.
    pub lags: u64,
    /// 95 % confidence interval of the median gap, seconds.
    pub median_interval_s: ConfidenceInterval,
    /// 95 % confidence interval of the mean gap, seconds.
    pub mean_interval_s: ConfidenceInterval,
}

/// The evidence of sampled flows on gaps, by sampling interval.
#[derive(Clone, Debug, Default)]
pub(crate) struct Thinned {
    of: BTreeMap<u32, Lags>,
}

/// Estimated gaps, and their uncertainty.
pub(crate) struct GapEstimate {
    /// Gaps that represent the law, seconds.
    pub gaps_s: Vec<f64>,
    /// The number of gaps within the bound.
    pub count: f64,
    pub sampled: SampledGaps,
}

impl Thinned {
    /// Takes all sampled flows of some pairs of hosts, each with its source and destination, in any order.
    pub fn add(
        &mut self,
        flows: impl Iterator<Item = ((IpAddr, IpAddr), FlowSummary)>,
        grid: Grid,
    ) {
        let point = |((source, destination), flow): ((IpAddr, IpAddr), FlowSummary)| {
            let is_up = source < destination;
            let ends = if is_up { (source, destination) } else { (destination, source) };
            (flow.interval, ends, Point { flow, is_up })
        };
        let sampled = flows.filter(|(_, flow)| flow.interval > 0 && flow.is_flagged);
        let mut points: Vec<_> = sampled.map(point).collect();
        points.sort_unstable();
        for group in points.chunk_by(|one, other| (one.0, one.1) == (other.0, other.1)) {
            let (interval, ends, _) = group[0];
            let of_pair: Vec<Point> = group.iter().map(|(.., point)| *point).collect();
            let lags = self.of.entry(interval).or_insert_with(|| Lags::new(grid.bound_s));
            lags.add_pair(ends, &of_pair, grid.end_ns());
        }
    }

    /// Adds the evidence of other pairs.
    pub fn merge(&mut self, more: Thinned) {
        for (interval, more) in more.of {
            match self.of.get_mut(&interval) {
                Some(lags) => lags.merge(&more),
                None => {
                    self.of.insert(interval, more);
                }
            }
        }
    }

    /// The gaps of each sampling interval with lags: of those with enough lags if there are any, and of at most
    /// [`FITTED_MAX`] with the most lags, in the order of intervals. A few stray records do not affect the others.
    pub fn find(&self, runner: &impl Runner) -> Vec<GapEstimate> {
        let lags = |lags: &Lags| lags.plain.connections().lags();
        let mut of: Vec<(u64, u32)> =
            self.of.iter().map(|(&interval, all)| (lags(all), interval)).collect();
        of.sort_unstable_by(|one, other| other.cmp(one));
        let enough = of.partition_point(|(lags, _)| *lags >= LAGS_MIN);
        let some = of.partition_point(|(lags, _)| *lags > 0);
        of.truncate(if enough > 0 { enough } else { some }.min(FITTED_MAX));
        of.sort_unstable_by_key(|(_, interval)| *interval);
        of.into_iter().map(|(_, interval)| find(&self.of[&interval], interval, runner)).collect()
    }
}

/// The uncertainty of the gaps of all sampling intervals: the interval of the one with most lags, widened by the
/// others. Without any, the interval extends up to the bound, seconds, if there is one.
pub(crate) fn combined(found: &[GapEstimate], bound_s: Option<f64>) -> Option<SampledGaps> {
    let most = found.iter().max_by_key(|found| found.sampled.lags);
    let unknown = |bound_s| SampledGaps {
        identification: Identification::NotIdentified,
        lags: 0,
        median_interval_s: [0.0, bound_s].into(),
        mean_interval_s: [0.0, bound_s].into(),
    };
    let mut all = most.map(|found| found.sampled.clone()).or_else(|| bound_s.map(unknown))?;
    all.lags = found.iter().map(|found| found.sampled.lags).sum();
    for GapEstimate { sampled, .. } in found {
        if sampled.identification == Identification::NotIdentified {
            all.identification = Identification::NotIdentified;
        }
        all.median_interval_s = all.median_interval_s.hull(sampled.median_interval_s);
        all.mean_interval_s = all.mean_interval_s.hull(sampled.mean_interval_s);
    }
    Some(all)
}

/// Adds the gaps estimated from sampled records to the measured ones, seconds, each with its number.
pub(crate) fn mix(measured: &mut Vec<(f64, u64)>, found: &[GapEstimate]) {
    if found.is_empty() {
        return;
    }
    measured.iter_mut().for_each(|(_, count)| *count = count.saturating_mul(GAPS as u64));
    for GapEstimate { gaps_s, count, .. } in found {
        measured.extend(gaps_s.iter().map(|gap| (*gap, (libm::round(*count) as u64).max(1))));
    }
}

fn find(lags: &Lags, interval: u32, runner: &impl Runner) -> GapEstimate {
    let scales = lags.intraclass.deviation();
    let fitting = Fitting::new(&lags.bins, &lags.plain, interval, scales);
    let shape = fitting.find();
    let again = |replicate: usize| {
        let counts = &lags.replicates[replicate];
        let fitting = Fitting::new(&lags.bins, counts, interval, scales).moved(replicate);
        fitting.law(&fitting.find_near(shape)).evenly(GAPS)
    };
    let law = fitting.law(&shape);
    let laws = runner.map((0..REPLICATES).collect(), again);
    let gaps_s = averaged(&laws);
    let (median, mean) = centre(&gaps_s);
    let seen = lags.plain.connections().lags();
    let bound_s = lags.bins.bound_s();
    let within = |interval: ConfidenceInterval| interval.map(|end_s| end_s.min(bound_s));
    let of_median = interval_s(median, seen, laws.iter().map(|gaps_s| centre(gaps_s).0));
    let of_mean = interval_s(mean, seen, laws.iter().map(|gaps_s| centre(gaps_s).1));
    let is_narrow = of_median.high <= FACTOR_MAX * of_median.low;
    GapEstimate {
        gaps_s,
        count: lags.plain.syns_of_connections() * f64::from(interval) * law.followed(bound_s),
        sampled: SampledGaps {
            identification: match seen >= LAGS_MIN && is_narrow {
                true => Identification::Identified,
                false => Identification::NotIdentified,
            },
            lags: seen,
            median_interval_s: within(of_median),
            mean_interval_s: within(of_mean),
        },
    }
}

/// The average of laws, each given as evenly spaced quantiles, seconds: the geometric mean of each quantile.
///
/// The laws of replicates differ mainly in their scale. A mixture of them would be wider than any; the mean of
/// quantiles (Ratcliff, *Psychological Bulletin* 86, 1979) is as wide as they are.
fn averaged(laws: &[Vec<f64>]) -> Vec<f64> {
    let logarithms = |at: usize| laws.iter().map(move |gaps_s| libm::log(gaps_s[at]));
    let mean = |at: usize| logarithms(at).sum::<f64>() / laws.len() as f64;
    (0..GAPS).map(|at| libm::exp(mean(at))).collect()
}

/// The median and the mean of gaps in their order, seconds.
fn centre(gaps_s: &[f64]) -> (f64, f64) {
    let half = gaps_s.len() / 2;
    (0.5 * (gaps_s[half - 1] + gaps_s[half]), gaps_s.iter().sum::<f64>() / gaps_s.len() as f64)
}

/// The interval of a number with these replicates, by the deviation of its logarithm.
fn interval_s(value: f64, lags: u64, replicates: impl Iterator<Item = f64>) -> ConfidenceInterval {
    let (mut count, mut squares) = (0.0, 0.0);
    for replicate in replicates {
        let off = libm::log(replicate / value);
        (count, squares) = (count + 1.0, squares + off * off);
    }
    let few = 1.0 + FEW_LAGS / lags.max(1) as f64;
    let deviation = libm::sqrt(few * squares / count + FAMILY_DEVIATION * FAMILY_DEVIATION);
    let reach = libm::exp((DEVIATIONS_95 * deviation).min(DEVIATION_MAX));
    ConfidenceInterval { low: value / reach, high: value * reach }
}

#[cfg(test)]
mod tests {
    use super::*;
    use law::LawOfGaps;

    /// The average of two laws that differ only in their scale is as wide as either.
    #[test]
    fn averaged_laws_are_as_wide_as_they_are() {
        let plain = LawOfGaps::new(60.0, 0.0, &[-1.0, 0.0, 2.0, -0.5, 0.0, -3.0]).evenly(GAPS);
        let scaled = |factor: f64| plain.iter().map(|gap_s| factor * gap_s).collect();
        for (found, gap_s) in averaged(&[scaled(0.25), scaled(4.0)]).iter().zip(&plain) {
            assert!((found / gap_s - 1.0).abs() < 1e-12, "{found} for {gap_s}");
        }
    }
}
