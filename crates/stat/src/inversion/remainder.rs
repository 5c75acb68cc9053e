//! The likelihood of last packets: file sizes modulo a segment.
//!
//! A file of x segments travels as ⌈x⌉ packets, and the last of them carries the remainder x − ⌈x⌉ + 1 of a
//! segment. Each flow has one last packet, so sampled last packets have the law of sizes *modulo a segment*,
//! and are as many as sampled SYNs:
//!
//! ```text
//!   P(the remainder lies in (a, b]) = Σ_k (1 − p)^k · (P(x > k + a) − P(x > k + b))
//! ```
//!
//! where (1 − p)^k is the chance that the last packet is the only one sampled, because only in such records it is
//! known to be the last one. The remainders of large files are uniform. Those of small ones are not: files of less
//! than a segment show their sizes themselves, and a law that is smooth within a few segments is bent by them. Counts
//! of packets leave this open: from a million flows of the synthetic original, sampled at 1:100, an efficient unbiased
//! estimator that knows the family finds the law to within KS 0.12, and with remainders to within 0.01; at 1:1000 it
//! finds nothing without remainders, and the law to within 0.05 with them.
//!
//! Real sizes have habits (a common header, an empty answer) that no family has. So no more than [`COUNT_MAX`]
//! remainders count.

use super::grid::SHARE_MIN;
use super::reference::Reference;

/// Parts of a segment that are distinguished. The last one also contains full packets.
pub const PARTS: usize = 16;
/// Files of more segments than these have a density that is straight within each.
pub(super) const SEGMENTS: usize = 10;
/// The most last packets that count.
const COUNT_MAX: f64 = 2_000.0;
/// Degrees of freedom of Student's law, which models the count of a part.
const FREEDOM: f64 = 4.0;

/// Last packets by the part of a segment that they carry; the last part is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Remainders(pub [u64; PARTS]);

/// The shares of a law's files with `segments` full packets, by the part of a segment that their last packet
/// carries.
pub(super) fn parts(law: &Reference, segments: usize) -> [f64; PARTS] {
    let mut before = law.beyond_smoothly(segments as f64);
    core::array::from_fn(|part| {
        let after = law.beyond_smoothly(segments as f64 + (part as f64 + 1.0) / PARTS as f64);
        let share = before - after;
        before = after;
        share
    })
}

/// The expected shares of sampled last packets by part, where one packet in `interval` is sampled.
pub(super) fn expected_parts(law: &Reference, interval: f64) -> [f64; PARTS] {
    let missed = 1.0 - 1.0 / interval;
    let (mut alone, mut edge) = (1.0, 0.0);
    let mut shares = [0.0; PARTS];
    for segments in 0..SEGMENTS {
        let parts = parts(law, segments);
        shares.iter_mut().zip(parts).for_each(|(sum, part)| *sum += alone * part);
        edge = parts[PARTS - 1];
        alone *= missed;
    }
    // For a density that is straight in each segment, the slopes add up to the density where it begins.
    let (rest, slope) = (rest(law, missed), alone * edge * PARTS as f64);
    for (part, share) in shares.iter_mut().enumerate() {
        let middle = (part as f64 + 0.5) / PARTS as f64;
        *share += (rest + slope * (0.5 - middle)) / PARTS as f64;
    }
    shares
}

/// Files of more than [`SEGMENTS`], each by its chance to have its last packet alone, in steps that double.
fn rest(law: &Reference, missed: f64) -> f64 {
    let (mut from, mut sum) = (SEGMENTS as f64, 0.0);
    let mut beyond = law.beyond(from);
    while beyond > 1e-6 {
        let chance = libm::pow(missed, 1.4 * from);
        if chance < 1e-6 {
            break;
        }
        let next = law.beyond(2.0 * from);
        sum += chance * (beyond - next);
        (from, beyond) = (2.0 * from, next);
    }
    sum
}

impl Remainders {
    /// The counts of all parts but the last, and their sum.
    fn counted(&self) -> (&[u64], f64) {
        let counted = &self.0[..PARTS - 1];
        (counted, counted.iter().sum::<u64>() as f64)
    }

    /// The logarithm of their likelihood, where one packet in `interval` is sampled.
    pub(super) fn likelihood(&self, law: &Reference, interval: f64) -> f64 {
        let (counted, count) = self.counted();
        if count == 0.0 {
            return 0.0;
        }
        let shares = expected_parts(law, interval);
        let all: f64 = shares[..PARTS - 1].iter().sum::<f64>().max(SHARE_MIN);
        let scale = (COUNT_MAX / count).min(1.0);
        let of_part = |(found, share): (&u64, f64)| {
            let (found, expected) = (*found as f64 * scale, share / all * count * scale);
            let off = (found - expected) * (found - expected) / (expected + 1.0);
            0.5 * (FREEDOM + 1.0) * libm::log1p(off / FREEDOM) + 0.5 * libm::log(expected + 1.0)
        };
        -counted.iter().zip(shares).map(of_part).sum::<f64>()
    }

    /// The ratio of observed to `expected` counts of each part; the mean of the ratios is one.
    pub(super) fn ratios_to(&self, expected: &[f64; PARTS]) -> [f64; PARTS] {
        let (counted, count) = self.counted();
        let all: f64 = expected[..PARTS - 1].iter().sum();
        let mut ratios = [1.0; PARTS];
        for ((ratio, found), expected) in ratios.iter_mut().zip(counted).zip(expected) {
            *ratio = (*found as f64 + 1.0) / (count * expected / all + 1.0);
        }
        ratios
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    /// The naive twin counts the remainders of files that are drawn.
    #[test]
    fn the_true_law_is_the_likeliest() {
        let mut rng = Rng::new(5, 0x7265_6d61, 0);
        let mut counts = Remainders::default();
        for _ in 0..2_000 {
            let x = crate::lognormal(&mut rng, 0.0, 0.9);
            counts.0[((x - libm::floor(x)) * PARTS as f64) as usize] += 1;
        }
        let of = |mu| counts.likelihood(&Reference::Lognormal { mu, sigma: 0.9 }, 1_000.0);
        for far in [-1.0, -0.5, 0.5, 1.0] {
            assert!(of(0.0) > of(far) + 2.0, "{far}: {} and {}", of(0.0), of(far));
        }
    }

    /// By hand: a part with half as many counts as the law predicts.
    #[test]
    fn ratios_compare_observed_with_expected_parts() {
        let mut found = Remainders([199; PARTS]);
        found.0[3] = 99;
        let ratios = found.ratios_to(&[0.1; PARTS]);
        let expected = 199.0 * 14.0 / 15.0 + 99.0 / 15.0 + 1.0;
        assert!((ratios[3] - 100.0 / expected).abs() < 1e-12, "{ratios:?}");
        assert!((ratios[4] - 200.0 / expected).abs() < 1e-12 && ratios[PARTS - 1] == 1.0);
    }

    #[test]
    fn long_files_do_not_change_the_likelihood() {
        let counts = Remainders([40; PARTS]);
        let of = |mu| counts.likelihood(&Reference::Lognormal { mu, sigma: 1.0 }, 100.0);
        assert!((of(6.0) - of(7.0)).abs() < 0.1, "{} and {}", of(6.0), of(7.0));
        assert_eq!(
            Remainders::default().likelihood(&Reference::Lognormal { mu: 1.0, sigma: 1.0 }, 9.0),
            0.0
        );
    }
}
