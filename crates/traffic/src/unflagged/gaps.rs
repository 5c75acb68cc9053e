//! The gap beyond which two records of one five-tuple are two flows.
//!
//! It is estimated from the gaps of the first five-tuples, in their order. Each batch keeps only gaps that may be
//! among the first.

use alloc::vec::Vec;

use nilometer_flow::{FlowKey, FlowRecord};
use nilometer_stat::BottomK;

/// The threshold where gaps show none, ns: TIME-WAIT.
const USUAL_NS: f64 = 60e9;
/// The threshold lies between these, ns.
const THRESHOLD_NS: [f64; 2] = [1e9, 600e9];
/// The fewest gaps for a mixture, and the most that are used.
const GAPS_MIN: usize = 50;
const GAPS_MAX: usize = 100_000;
/// Rounds of the mixture's expectation-maximisation.
const ROUNDS: usize = 200;
/// Two laws are separable if each has this share, and their means lie this many deviations apart.
const SHARE_MIN: f64 = 0.02;
const APART: f64 = 2.0;

/// A gap: the tuple, how many gaps of the tuple come before it, and how long it is, ns.
type Gap = (FlowKey, u64, u64);

/// The first gaps, in the order of their tuples.
#[derive(Debug)]
pub(crate) struct Gaps(BottomK<Gap>);

impl Default for Gaps {
    fn default() -> Gaps {
        Gaps(BottomK::new(GAPS_MAX))
    }
}

impl Gaps {
    /// The gaps of records, which must be all of their tuples; tuples beyond `last` are not needed.
    pub fn of(records: Vec<FlowRecord>, last: Option<FlowKey>) -> Gaps {
        let matters = |record: &FlowRecord| last.is_none_or(|last| record.key <= last);
        let mut pieces: Vec<(FlowKey, u64, u64)> = { records.into_iter() }
            .filter(matters)
            .map(|record| (record.key, record.start_ns, record.end_ns))
            .collect();
        pieces.sort_unstable();
        let mut gaps = Gaps::default();
        for pieces in pieces.chunk_by(|one, other| one.0 == other.0) {
            for (number, two) in (0..).zip(pieces.windows(2)) {
                gaps.0.offer((two[0].0, number, two[1].1.saturating_sub(two[0].2)));
            }
        }
        gaps
    }

    /// Adds the gaps of other tuples.
    pub fn merge(&mut self, other: Gaps) {
        self.0.merge(other.0);
    }

    /// The last tuple whose gaps may be needed, if there are enough gaps.
    pub fn last(&self) -> Option<FlowKey> {
        self.0.bound().map(|(key, ..)| *key)
    }

    /// The estimated threshold, ns.
    pub fn threshold_ns(self) -> u64 {
        let log = |(_, _, gap_ns): Gap| libm::log(gap_ns.max(1_000_000) as f64);
        let gaps: Vec<f64> = self.0.into_sorted().into_iter().map(log).collect();
        let usual = libm::log(USUAL_NS);
        let threshold = libm::exp(knee(&gaps).unwrap_or(usual));
        libm::round(threshold.clamp(THRESHOLD_NS[0], THRESHOLD_NS[1])) as u64
    }
}

/// One of the mixture's normal laws.
#[derive(Clone, Copy)]
struct Normal {
    share: f64,
    mean: f64,
    deviation: f64,
}

impl Normal {
    /// The density, times the share and the root of 2π.
    fn density(&self, x: f64) -> f64 {
        let off = (x - self.mean) / self.deviation;
        self.share / self.deviation * libm::exp(-0.5 * off * off)
    }
}

/// The point where the larger of two normal laws becomes the likelier one, if `values` show two.
fn knee(values: &[f64]) -> Option<f64> {
    if values.len() < GAPS_MIN {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| sorted[(share * (sorted.len() - 1) as f64) as usize];
    let width = ((at(0.9) - at(0.1)) / 4.0).max(0.05);
    let mut laws = [at(0.1), at(0.9)].map(|mean| Normal { share: 0.5, mean, deviation: width });
    for _ in 0..ROUNDS {
        laws = refit(&laws, &sorted);
    }
    let [low, high] = laws;
    let apart = high.mean - low.mean > APART * (low.deviation + high.deviation) / 2.0;
    if !apart || low.share.min(high.share) < SHARE_MIN {
        return None;
    }
    let step = (high.mean - low.mean) / 1_000.0;
    let mut points = (0..=1_000).map(|n| low.mean + f64::from(n) * step);
    points.find(|&x| high.density(x) >= low.density(x))
}

/// One expectation and maximisation of the mixture.
fn refit(laws: &[Normal; 2], values: &[f64]) -> [Normal; 2] {
    let mut sums = [[0.0; 3]; 2];
    for &x in values {
        let densities = laws.map(|law| law.density(x).max(f64::MIN_POSITIVE));
        let all = densities[0] + densities[1];
        for (sum, density) in sums.iter_mut().zip(densities) {
            let part = density / all;
            *sum = [sum[0] + part, sum[1] + part * x, sum[2] + part * x * x];
        }
    }
    let mut fitted = *laws;
    for (law, [count, sum, squares]) in fitted.iter_mut().zip(sums) {
        let mean = sum / count.max(f64::MIN_POSITIVE);
        let variance = squares / count.max(f64::MIN_POSITIVE) - mean * mean;
        let deviation = libm::sqrt(variance.max(0.0)).max(0.05);
        *law = Normal { share: count / values.len() as f64, mean, deviation };
    }
    fitted
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::{Rng, lognormal};

    #[test]
    fn two_laws_of_gaps_are_separated_at_their_knee() {
        let mut rng = Rng::new(1, 0x756e_666c, 0);
        let mut draw = |n: usize, median_s: f64| -> Vec<f64> {
            (0..n).map(|_| libm::log(lognormal(&mut rng, libm::log(median_s * 1e9), 0.6))).collect()
        };
        let mut gaps = draw(700, 1.5);
        gaps.extend(draw(300, 90.0));
        let knee = libm::exp(knee(&gaps).expect("two laws")) / 1e9;
        assert!((4.0..40.0).contains(&knee), "{knee} s");
        assert_eq!(super::knee(&draw(900, 10.0)), None, "one law has no knee");
        assert_eq!(super::knee(&draw(10, 10.0)), None, "ten gaps tell nothing");
        assert_eq!(Gaps::default().threshold_ns(), 60_000_000_000);
    }

    /// Two laws of equal share and deviation are equally likely half way between their means; laws that are
    /// too close, or have too small a share, give no threshold.
    #[test]
    fn a_knee_lies_where_both_laws_are_as_likely() {
        // Quantiles of the normal law, so that nothing is random.
        let law = |count: usize, mean: f64, deviation: f64| -> Vec<f64> {
            let step = |number: usize| (number as f64 + 0.5) / count as f64;
            let logistic = |share: f64| libm::log(share / (1.0 - share)) / 1.702;
            (0..count).map(|number| mean + deviation * logistic(step(number))).collect()
        };
        let both = |low: Vec<f64>, high: Vec<f64>| knee(&[low, high].concat());
        let found = both(law(500, 20.0, 0.5), law(500, 26.0, 0.5)).expect("two laws");
        assert!((found - 23.0).abs() < 0.02, "{found}");
        // The wider and the more frequent law reaches farther: these quantiles have 1.066 times the requested
        // deviations, and by hand the densities meet near 23.935 and 23.104.
        let found = both(law(500, 20.0, 1.0), law(500, 26.0, 0.5)).expect("two laws");
        assert!((found - 23.935).abs() < 0.03, "{found}");
        let found = both(law(900, 20.0, 0.5), law(100, 26.0, 0.5)).expect("two laws");
        assert!((found - 23.104).abs() < 0.03, "{found}");
        assert_eq!(both(law(500, 20.0, 0.5), law(500, 20.9, 0.5)), None, "too near");
        let seldom = (1_000.0 * SHARE_MIN / 2.0) as usize;
        assert_eq!(both(law(1_000, 20.0, 0.5), law(seldom, 26.0, 0.5)), None, "too seldom");
    }
}
