//! Gaps between connections of one pair of hosts, recovered from sampled packets.
//!
//! Of connections that were sampled most are missing between two that are seen, and what is measured between
//! these says little of a gap by itself: divided by N it is right where connections come at random, and
//! wrong by any factor where they come in bursts, because it is silence between sessions for the most part.
//! What is known is how many are missing. Each connection is seen with one chance, whatever the gaps; so
//! the lag between two that are seen is a sum of as many gaps as it takes, a geometric number, and
//! its law follows from that of gaps (`renewal`; a thinned renewal process). Lags are counted pair by pair up to the
//! bound (`lags`), and the law of gaps (`law`) is the one that makes them likeliest, under a prior (`fit`): of
//! replicates of the counts each finds one, and of their quantiles the means are taken.
//! Pairs whose gaps differ are taken for one law in different scales, and how much they differ is told by lags of
//! one pair (`intraclass`).
//!
//! Nothing is assumed of what lies between two sessions, nor of how many pairs were never seen: a lag within the
//! bound has no gap beyond it. What is assumed: gaps of one pair are independent of each other and of
//! what connections carry, and so are their sizes. The interval is that of a bootstrap over pairs of hosts. If the
//! median is not known within a factor of two either way ([`FACTOR_MAX`]), or from fewer than
//! [`LAGS_MIN`] lags, gaps are *not identified*.

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

/// Gaps of which the ends of the median's interval are further apart than by this factor are not identified.
const FACTOR_MAX: f64 = 4.0;
/// Lags of which fewer identify nothing.
const LAGS_MIN: u64 = 10;
/// Sampling intervals of which gaps are fitted, at most; each takes a tenth of a second or two.
const FITTED_MAX: usize = 8;
/// Deviations of Student's law with [`REPLICATES`] - 1 degrees of freedom between which 95 % lie.
const DEVIATIONS_95: f64 = 2.04;
/// How far the logarithm of a mean or median is off however many lags there are, because gaps are hardly ever two
/// parts of [`law`] on bins of a fifth.
const FAMILY_DEVIATION: f64 = 0.05;
/// A bootstrap of so many lags finds half of the variance that there is, of more a greater part.
const FEW_LAGS: f64 = 40.0;
/// Gaps that stand for a law.
const GAPS: usize = 256;
/// Logarithms of a mean or median deviate by no more than this, so that its interval is of numbers.
const DEVIATION_MAX: f64 = 30.0;

/// Whether the records tell a law.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Identification {
    /// They do, as closely as the intervals say.
    #[serde(rename = "identified")]
    Identified,
    /// They do not: what stands in its place is a guess.
    #[serde(rename = "not-identified")]
    NotIdentified,
}

/// How sure the inter-connection time is, where packets were sampled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SampledGaps {
    /// Whether sampled records tell it.
    pub identification: Identification,
    /// Lags between sampled connections, within the bound, that it is told by.
    pub lags: u64,
    /// Between what the median gap lies, 19 times in 20, seconds.
    pub median_interval_s: ConfidenceInterval,
    /// Between what the mean gap lies, likewise.
    pub mean_interval_s: ConfidenceInterval,
}

/// What sampled flows say of gaps, by sampling interval.
#[derive(Clone, Debug, Default)]
pub(crate) struct Thinned {
    of: BTreeMap<u32, Lags>,
}

/// Gaps that were found, and how sure they are.
pub(crate) struct GapEstimate {
    /// Gaps that stand for the law, seconds.
    pub gaps_s: Vec<f64>,
    /// Gaps that there are, within the bound.
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

    /// Adds what other pairs say.
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

    /// The gaps of each sampling interval of which there are lags: of those with enough of them where there are such,
    /// and of [`FITTED_MAX`] with the most, in the order of intervals. A few strays tell nothing of the others.
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

/// How sure the gaps of all sampling intervals are: the interval of the one with most lags, widened by the others.
/// Without any they are anything up to the bound, seconds, where there is one.
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

/// Adds the gaps estimated from sampled records to the measured ones, seconds, each as often as there are.
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

/// The law in the middle of others, all as gaps that lie evenly in them, seconds: the geometric mean of each quantile.
///
/// The laws of replicates differ in their scale above all. A mixture of them would be wider than any; the mean of
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

/// Between what a number lies of which replicates are like this, as its logarithm deviates.
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

    /// Of two laws that differ in their scale alone, the middle is as wide as either.
    #[test]
    fn averaged_laws_are_as_wide_as_they_are() {
        let plain = LawOfGaps::new(60.0, 0.0, &[-1.0, 0.0, 2.0, -0.5, 0.0, -3.0]).evenly(GAPS);
        let scaled = |factor: f64| plain.iter().map(|gap_s| factor * gap_s).collect();
        for (found, gap_s) in averaged(&[scaled(0.25), scaled(4.0)]).iter().zip(&plain) {
            assert!((found / gap_s - 1.0).abs() < 1e-12, "{found} for {gap_s}");
        }
    }
}
