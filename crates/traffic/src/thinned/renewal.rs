//! The law of lags between sampled points of a renewal process, from the law of its gaps.
//!
//! The gaps between points are independent with the density f, and each point is seen with the chance p. Between
//! one seen point and the next there are k gaps with the chance p(1 - p)^(k-1), so the lag has the density
//!
//! ```text
//!   g = p f + p q (f * f) + p q² (f * f * f) + ...  =  p f + q (f * g),        q = 1 - p
//! ```
//!
//! The law of gaps may be defective: one minus its total is the chance that no point follows within the bound. A lag
//! within the bound is a sum of gaps within it, so that g up to the bound depends only on f up to the bound, and the
//! time between two sessions of a pair need not be known.
//!
//! Laws are discretised on bins whose edges grow by a constant factor, from [`DECADES`] decades below the bound up
//! to it. The sum of gaps at the middles of two bins is divided between the two bins with the nearest middles, so
//! that the mean of each sum is kept. The division depends only on the distance of the bins, not on their
//! position. A sum is never below its greater part: so the bins of g are computed one after another, from the
//! least, in the time of one convolution, whatever p is.

use alloc::vec;
use alloc::vec::Vec;

/// Decades below the bound that have bins.
const DECADES: usize = 6;
/// Bins in each decade.
pub(crate) const OF_DECADE: usize = 12;
/// Bins of a law.
pub(crate) const BINS: usize = DECADES * OF_DECADE;

/// How many bins above the greater of two gaps their sum may be.
const REACH: usize = 6;

/// Bins of gaps up to a bound.
#[derive(Clone, Debug)]
pub(crate) struct Bins {
    bound_s: f64,
    /// The share of the sum of two gaps that goes `0..REACH` bins above the greater one, by the distance of their
    /// bins, from the greatest down to one.
    parts: [Vec<f64>; REACH],
    /// The same shares for two gaps in one bin.
    equal: [f64; REACH],
}

impl Bins {
    /// The bins up to `bound_s`, seconds.
    pub fn new(bound_s: f64) -> Bins {
        let factor = libm::exp10(1.0 / OF_DECADE as f64);
        let mut parts: [Vec<f64>; REACH] = core::array::from_fn(|_| vec![0.0; BINS]);
        (0..BINS).for_each(|apart| {
            let sum = 1.0 + libm::exp10(-(apart as f64) / OF_DECADE as f64);
            let above = libm::floor(libm::log10(sum) * OF_DECADE as f64);
            let next = (sum / libm::pow(factor, above) - 1.0) / (factor - 1.0);
            parts[above as usize][apart] = 1.0 - next;
            parts[above as usize + 1][apart] = next;
        });
        let equal = core::array::from_fn(|above| parts[above][0]);
        for parts in &mut parts {
            // Only sums of nearly equal gaps lie far above.
            let last = parts.iter().rposition(|part| *part > 0.0).unwrap_or(0);
            *parts = parts[..=last].iter().skip(1).rev().copied().collect();
        }
        Bins { bound_s, parts, equal }
    }

    /// The bound, seconds.
    pub fn bound_s(&self) -> f64 {
        self.bound_s
    }

    /// The bin of a time up to the bound, seconds; times too short for any bin are in the first.
    pub fn at(&self, seconds: f64) -> usize {
        let above = BINS as f64 + OF_DECADE as f64 * libm::log10(seconds / self.bound_s);
        (above.max(0.0) as usize).min(BINS - 1)
    }

    /// Where a bin begins, seconds; the first begins at 0.
    pub fn begin_s(&self, at: usize) -> f64 {
        match at {
            0 => 0.0,
            _ => self.bound_s * libm::exp10((at as f64 - BINS as f64) / OF_DECADE as f64),
        }
    }

    /// The middle of a bin, seconds, computed for the first bin as for the others.
    pub fn middle_s(&self, at: usize) -> f64 {
        let end = self.begin_s(at + 1);
        0.5 * end * (1.0 + libm::exp10(-1.0 / OF_DECADE as f64))
    }

    /// The shares of lags, given those of gaps: `seen` is the chance p of each point.
    pub fn lags(&self, gaps: &[f64], seen: f64) -> Vec<f64> {
        let missed = 1.0 - seen;
        // Sums of lags in a bin with a shorter gap, and below of gaps with a shorter lag, by how many bins
        // above the sum is.
        let after: [Vec<f64>; REACH] = core::array::from_fn(|above| {
            (0..BINS).map(|at| self.shorter(gaps, at, above)).collect()
        });
        let mut lags = vec![0.0; BINS];
        let mut before: [Vec<f64>; REACH] = core::array::from_fn(|_| vec![0.0; BINS]);
        for at in 0..BINS {
            for (above, before) in before.iter_mut().enumerate() {
                before[at] = self.shorter(&lags, at, above);
            }
            let mut sum = gaps[at] * before[0][at];
            for above in 1..REACH.min(at + 1) {
                let from = at - above;
                let equal = lags[from] * gaps[from] * self.equal[above];
                sum += lags[from] * after[above][from] + gaps[from] * before[above][from] + equal;
            }
            lags[at] = (seen * gaps[at] + missed * sum) / (1.0 - missed * after[0][at]);
        }
        lags
    }

    /// The total of shares below `at` whose sums with one at `at` go `above` bins above it.
    fn shorter(&self, shares: &[f64], at: usize, above: usize) -> f64 {
        let parts = &self.parts[above];
        let count = at.min(parts.len());
        dot(&shares[at - count..at], &parts[parts.len() - count..])
    }
}

/// The sum of products, computed four at a time.
fn dot(one: &[f64], other: &[f64]) -> f64 {
    let mut sums = [0.0; 4];
    let (fours, others) = (one.chunks_exact(4), other.chunks_exact(4));
    let rest: f64 = fours.remainder().iter().zip(others.remainder()).map(|(a, b)| a * b).sum();
    for (four, other) in fours.zip(others) {
        for lane in 0..4 {
            sums[lane] += four[lane] * other[lane];
        }
    }
    rest + sums.iter().sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thinned::law::{LN_GAMMA, LawOfGaps};
    use nilometer_stat::Rng;

    /// The series itself, term by term.
    fn naive(bins: &Bins, gaps: &[f64], seen: f64) -> Vec<f64> {
        let convolved = |with: &[f64]| {
            let mut sums = vec![0.0; BINS];
            for (one, share) in gaps.iter().enumerate() {
                for (other, more) in with.iter().enumerate() {
                    let value = bins.middle_s(one) + bins.middle_s(other);
                    let after = (0..BINS + 8).find(|at| bins.middle_s(*at) > value).expect("a bin");
                    let (low, high) = (bins.middle_s(after - 1), bins.middle_s(after));
                    let part = (value - low) / (high - low);
                    for (to, part) in [(after - 1, 1.0 - part), (after, part)] {
                        if to < BINS {
                            sums[to] += share * more * part;
                        }
                    }
                }
            }
            sums
        };
        let mut term = gaps.to_vec();
        let mut lags = vec![0.0; BINS];
        let mut weight = seen;
        for _ in 0..200 {
            lags.iter_mut().zip(&term).for_each(|(sum, share)| *sum += weight * share);
            term = convolved(&term);
            weight *= 1.0 - seen;
        }
        lags
    }

    #[test]
    fn the_equation_equals_the_series() {
        let bins = Bins::new(60.0);
        let mut rng = Rng::new(1, 0x7468, 0);
        for case in 0..5 {
            let mut gaps: Vec<f64> = (0..BINS).map(|_| rng.exponential(1.0)).collect();
            // Some laws have many short gaps, some have few.
            gaps[..6 * (2 * case)].iter_mut().for_each(|share| *share = 0.0);
            let total: f64 = gaps.iter().sum::<f64>() / (0.3 + 0.6 * rng.unit());
            gaps.iter_mut().for_each(|share| *share /= total);
            let seen = 0.1 + 0.8 * rng.unit();
            let (lags, twin) = (bins.lags(&gaps, seen), naive(&bins, &gaps, seen));
            for (lag, twin) in lags.iter().zip(&twin) {
                assert!((lag - twin).abs() < 1e-7, "case {case}: {lag}, {twin}");
            }
        }
    }

    /// Gaps drawn one by one, and points removed at random.
    #[test]
    fn lags_agree_with_a_simulated_thinned_process() {
        let bins = Bins::new(60.0);
        let mut rng = Rng::new(2, 0x7468, 0);
        for (sigma, seen) in [(0.5, 0.3), (1.2, 0.1), (1.8, 0.01)] {
            let law = LawOfGaps::new(60.0, 0.0, &[-1.5, libm::log(sigma), 0.0, 0.0, -50.0, -3.5]);
            let (lags, kept) =
                (bins.lags(&law.shares(&bins, 0.0), seen), 1.0 / (1.0 + libm::exp(-3.5)));
            let (mut counts, draws) = (vec![0.0; BINS], 40_000);
            for _ in 0..draws {
                let mut lag = 0.0;
                while lag <= 60.0 && rng.unit() < kept {
                    let gamma: f64 = (0..4).map(|_| rng.exponential(1.0)).sum();
                    let deviations = (libm::log(gamma) - LN_GAMMA.0) / LN_GAMMA.1;
                    lag += libm::exp(-1.5 + sigma * deviations);
                    if lag <= 60.0 && rng.unit() < seen {
                        counts[bins.at(lag)] += 1.0;
                        break;
                    }
                }
            }
            let (mut worst, mut off) = (0.0_f64, 0.0);
            for (count, lag) in counts.iter().zip(&lags) {
                off += count / f64::from(draws) - lag;
                worst = worst.max(f64::abs(off));
            }
            assert!(worst < 0.01, "{sigma}, 1 in {}: off by {worst}", 1.0 / seen);
        }
    }

    #[test]
    fn a_time_is_in_its_bin() {
        let bins = Bins::new(60.0);
        for at in 0..BINS {
            assert_eq!(bins.at(bins.middle_s(at)), at);
            assert!(
                bins.begin_s(at) < bins.middle_s(at) && bins.middle_s(at) < bins.begin_s(at + 1)
            );
        }
        assert_eq!(
            (bins.at(0.0), bins.at(1e-9), bins.at(60.0), bins.at(61.0)),
            (0, 0, BINS - 1, BINS - 1)
        );
        assert!((bins.begin_s(BINS) - 60.0).abs() < 1e-9);
    }
}
