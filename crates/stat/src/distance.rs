//! How far two laws of traffic are apart: KS, Wasserstein on a log scale, Jensen–Shannon.
//!
//! Three distances, because each is blind where another sees.
//!
//! * **KS**, sup |F − G|: the greatest disagreement on any probability, in 0..=1; blind to how far
//!   the mass moved and to the tail.
//! * **W1 on log₂**, ∫ |F − G| d log₂ x: by how many octaves the mass must be moved on average. On the values
//!   themselves it would describe only a few elephants (for Pareto 1.2 its sampling error is 12 % of the mean
//!   even at a million samples), on octaves it weighs mice and elephants alike.
//! * **JSD**, in bits, 0..=1: for ranks and other categories, and for values in bins of a quarter
//!   octave. Mass outside the bins has bins of its own: the implementation published with NetShare
//!   drops it, and calls laws equal that do not even overlap.
//!
//! All are computed exactly from the distribution functions (`walk`), none by sampling or on a grid of
//! points. A figure has a meaning only beside its sampling floor (`floor`): a second sample of the truth is
//! not at distance 0 either.
//!
//! Missing evidence is not agreement: with an empty sample or histogram on either side KS and JSD are 1 and
//! W1 is infinite.

use alloc::vec::Vec;

use crate::Empirical;
use crate::walk::{Knots, Sorted, Walk, supremum};

/// The logarithmic Wasserstein distances raise smaller values to this: an empty file is one octave's start,
/// not infinitely many octaves below it. Choose the unit ([`Empirical::scaled`]) so that what matters lies
/// above: bytes, nanoseconds.
pub const LOG2_FLOOR: f64 = 1.0;

/// The quarter-octave bins cover [2⁻⁴⁰, 2⁶⁴): picoseconds in seconds up to any count of bytes.
const OCTAVES: core::ops::Range<i32> = -40..64;

/// 2^0, 2^¼, 2^½, 2^¾: the edges of an octave's quarters, its powers of two exact.
const QUARTERS: [f64; 4] =
    [1.0, 1.189_207_115_002_721, core::f64::consts::SQRT_2, 1.681_792_830_507_429];

/// The KS distance of a sample (sorted in place) from a model: the exact supremum, both one-sided
/// limits taken at every sample and every knot.
pub fn ks_to(sample: &mut [f64], model: &Empirical) -> f64 {
    sample.sort_unstable_by(f64::total_cmp);
    ks_of_sorted(sample, model)
}

/// [`ks_to`] for a sample that is in ascending order already: O(n + knots).
pub fn ks_of_sorted(sample: &[f64], model: &Empirical) -> f64 {
    if sample.is_empty() {
        return 1.0;
    }
    supremum(Sorted::new(sample), Knots::new(model), f64::INFINITY)
}

/// The KS distance of two samples, both sorted in place.
pub fn ks_samples(a: &mut [f64], b: &mut [f64]) -> f64 {
    if a.is_empty() || b.is_empty() {
        return 1.0;
    }
    a.sort_unstable_by(f64::total_cmp);
    b.sort_unstable_by(f64::total_cmp);
    supremum(Sorted::new(a), Sorted::new(b), f64::INFINITY)
}

/// The KS distance of two models.
pub fn ks_models(a: &Empirical, b: &Empirical) -> f64 {
    supremum(Knots::new(a), Knots::new(b), f64::INFINITY)
}

/// The Wasserstein-1 distance of log₂ of a sample (sorted in place) and of a model, in octaves.
/// Values below [`LOG2_FLOOR`] count as it.
pub fn w1_log2_to(sample: &mut [f64], model: &Empirical) -> f64 {
    if sample.is_empty() {
        return f64::INFINITY;
    }
    sample.sort_unstable_by(f64::total_cmp);
    w1_log2(Sorted::new(sample), Knots::new(model))
}

/// The Wasserstein-1 distance of log₂ of two samples, both sorted in place, in octaves. Values
/// below [`LOG2_FLOOR`] count as it.
pub fn w1_log2_samples(a: &mut [f64], b: &mut [f64]) -> f64 {
    if a.is_empty() || b.is_empty() {
        return f64::INFINITY;
    }
    a.sort_unstable_by(f64::total_cmp);
    b.sort_unstable_by(f64::total_cmp);
    w1_log2(Sorted::new(a), Sorted::new(b))
}

/// The Wasserstein-1 distance of log₂ of two models, in octaves. Values below [`LOG2_FLOOR`] count
/// as it.
pub fn w1_log2_models(a: &Empirical, b: &Empirical) -> f64 {
    w1_log2(Knots::new(a), Knots::new(b))
}

/// ∫ |F − G| d log₂ x from the floor up, piece by piece.
fn w1_log2(mut a: impl Walk, mut b: impl Walk) -> f64 {
    let mut from = LOG2_FLOOR;
    let mut start = a.at(from).right - b.at(from).right;
    let mut area = 0.0;
    loop {
        let to = a.peek().min(b.peek());
        if to == f64::INFINITY {
            return area / core::f64::consts::LN_2;
        }
        let (a, b) = (a.at(to), b.at(to));
        area += piece(from, to, start, a.left - b.left);
        (from, start) = (to, a.right - b.right);
    }
}

/// ∫ |D(x)| dx/x over from..to, where D runs straight from `start` to `end`.
fn piece(from: f64, to: f64, start: f64, end: f64) -> f64 {
    if start * end < 0.0 {
        let zero = from + (to - from) * (start / (start - end));
        return piece(from, zero, start, 0.0) + piece(zero, to, 0.0, end);
    }
    let (start, end) = (start.abs(), end.abs());
    let stretch = (to - from) / from;
    start * libm::log1p(stretch) + (end - start) * ramp(stretch)
}

/// ∫ of a ramp from 0 to 1 over 1..1+e, by dx/x: (e − ln(1 + e))/e, by its series where the
/// difference would cancel.
fn ramp(e: f64) -> f64 {
    if e < 1e-3 {
        return e * (1.0 / 2.0 - e * (1.0 / 3.0 - e * (1.0 / 4.0 - e * (1.0 / 5.0 - e / 6.0))));
    }
    1.0 - libm::log1p(e) / e
}

/// The Jensen–Shannon divergence of two histograms over the same categories, in bits, 0..=1 (Lin, *IEEE Trans.
/// Information Theory* 37(1), 1991). Each is normalised; the shorter is padded with zeros.
///
/// # Panics
/// If a weight is negative or not finite.
pub fn jsd(p: &[f64], q: &[f64]) -> f64 {
    let good = |weights: &[f64]| weights.iter().all(|weight| weight.is_finite() && *weight >= 0.0);
    assert!(good(p) && good(q), "a histogram holds finite weights of at least 0");
    let (p_total, q_total): (f64, f64) = (p.iter().sum(), q.iter().sum());
    if p_total <= 0.0 || q_total <= 0.0 {
        return 1.0;
    }
    let share = |weights: &[f64], total, index| weights.get(index).map_or(0.0, |w: &f64| w / total);
    let mut bits = 0.0;
    for index in 0..p.len().max(q.len()) {
        let (p, q) = (share(p, p_total, index), share(q, q_total, index));
        let middle = 0.5 * (p + q);
        for part in [p, q] {
            if part > 0.0 {
                bits += 0.5 * part * libm::log2(part / middle);
            }
        }
    }
    bits.clamp(0.0, 1.0)
}

/// The Jensen–Shannon divergence of two models in quarter-octave bins, in bits, 0..=1. All mass is
/// counted, below and above the bins too.
pub fn jsd_quarter_octave_models(a: &Empirical, b: &Empirical) -> f64 {
    jsd(&quarter_octaves(Knots::new(a)), &quarter_octaves(Knots::new(b)))
}

/// [`jsd_quarter_octave_models`] for a sample (sorted in place) and a model.
pub fn jsd_quarter_octave_to(sample: &mut [f64], model: &Empirical) -> f64 {
    if sample.is_empty() {
        return 1.0;
    }
    sample.sort_unstable_by(f64::total_cmp);
    jsd(&quarter_octaves(Sorted::new(sample)), &quarter_octaves(Knots::new(model)))
}

/// [`jsd_quarter_octave_models`] for two samples, both sorted in place.
pub fn jsd_quarter_octave_samples(a: &mut [f64], b: &mut [f64]) -> f64 {
    if a.is_empty() || b.is_empty() {
        return 1.0;
    }
    a.sort_unstable_by(f64::total_cmp);
    b.sort_unstable_by(f64::total_cmp);
    jsd(&quarter_octaves(Sorted::new(a)), &quarter_octaves(Sorted::new(b)))
}

/// The probability of each bin [edge, next edge): the first bin is everything below the lowest edge, the last
/// everything from the highest on.
fn quarter_octaves(mut law: impl Walk) -> Vec<f64> {
    let edges = OCTAVES.flat_map(|octave| QUARTERS.map(|quarter| libm::scalbn(quarter, octave)));
    let top = libm::scalbn(1.0, OCTAVES.end);
    let mut below = 0.0;
    let mut bins: Vec<f64> = edges
        .chain([top])
        .map(|edge| {
            let share = law.at(edge).left - below;
            below += share;
            share.max(0.0)
        })
        .collect();
    bins.push((1.0 - below).max(0.0));
    bins
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Form, Rng, pareto};
    use alloc::vec;

    fn sample(index: u64, n: usize, minimum: f64) -> Vec<f64> {
        let mut rng = Rng::new(1, 0, index);
        (0..n).map(|_| libm::floor(pareto(&mut rng, 1.2, minimum))).collect()
    }

    /// Laws of both forms, with atoms and gaps, near and far from each other.
    fn models() -> Vec<Empirical> {
        let knots = vec![(0.0, 0.2), (0.3, 20.0), (0.6, 20.0), (0.6, 70.0), (1.0, 900.0)];
        vec![
            Empirical::step_from(sample(1, 5_000, 10.0), 64).expect("sizes"),
            Empirical::linear_from(sample(2, 5_000, 10.0), 64).expect("sizes"),
            Empirical::step_from(sample(3, 40, 12.0), 64).expect("sizes"),
            Empirical::new(Form::Linear, 9, knots).expect("a table"),
            Empirical::new(Form::Step, 9, vec![(0.5, 0.0), (1.0, 20.0)]).expect("a table"),
        ]
    }

    /// The naive twin counts the sample anew at every point where anything happens.
    fn ks_by_counting(sample: &[f64], model: &Empirical) -> f64 {
        let n = sample.len() as f64;
        let points = sample.iter().copied().chain(model.knots().iter().map(|knot| knot.1));
        points.fold(0.0, |greatest: f64, x| {
            let below = sample.iter().filter(|&&value| value < x).count() as f64 / n;
            let upto = sample.iter().filter(|&&value| value <= x).count() as f64 / n;
            greatest.max((below - model.cdf_left(x)).abs()).max((upto - model.cdf(x)).abs())
        })
    }

    #[test]
    fn ks_agrees_with_counting() {
        for model in models() {
            for (index, n) in [(10, 1), (11, 2), (12, 50), (13, 1_500)] {
                let mut sample = sample(index, n, 11.0);
                let expected = ks_by_counting(&sample, &model);
                let found = ks_to(&mut sample, &model);
                assert!((found - expected).abs() < 1e-12, "n {n}: {found} against {expected}");
            }
        }
    }

    #[test]
    fn ks_of_models_is_ks_of_the_samples_they_hold() {
        let (mut a, mut b) = (sample(20, 900, 10.0), sample(21, 700, 13.0));
        let expected = ks_samples(&mut a, &mut b);
        let law_a = Empirical::step_from(a.clone(), 1_000).expect("sizes");
        let law_b = Empirical::step_from(b.clone(), 1_000).expect("sizes");
        assert!(expected > 0.1);
        assert!((ks_models(&law_a, &law_b) - expected).abs() < 1e-12);
        assert!((ks_to(&mut a, &law_b) - expected).abs() < 1e-12);
    }

    #[test]
    fn ks_sees_both_sides_of_an_atom() {
        let atom = Empirical::new(Form::Step, 1, vec![(1.0, 5.0)]).expect("an atom");
        assert_eq!(ks_to(&mut [5.0, 5.0], &atom), 0.0);
        assert_eq!(ks_to(&mut [4.0, 5.0], &atom), 0.5);
        assert_eq!(ks_to(&mut [5.0, 6.0], &atom), 0.5);
        assert_eq!(ks_to(&mut [6.0], &atom), 1.0);
        let straight = Empirical::new(Form::Linear, 1, vec![(0.0, 0.0), (1.0, 10.0)]);
        let straight = straight.expect("the uniform law");
        assert_eq!(ks_to(&mut [5.0], &straight), 0.5);
        assert_eq!(ks_models(&atom, &straight), 0.5);
    }

    /// The naive twin moves mass quantile by quantile: W1 = ∫ |F⁻¹(u) − G⁻¹(u)| du.
    fn w1_by_quantiles(a: impl Fn(f64) -> f64, b: impl Fn(f64) -> f64) -> f64 {
        let steps = 200_000;
        let octave = |value: f64| libm::log2(value.max(LOG2_FLOOR));
        let moved = |k| {
            let u = (f64::from(k) + 0.5) / f64::from(steps);
            (octave(a(u)) - octave(b(u))).abs()
        };
        (0..steps).map(moved).sum::<f64>() / f64::from(steps)
    }

    #[test]
    fn w1_agrees_with_moving_quantiles() {
        let models = models();
        for a in &models {
            for b in &models {
                let found = w1_log2_models(a, b);
                let expected = w1_by_quantiles(|u| a.quantile(u), |u| b.quantile(u));
                assert!((found - expected).abs() < 1e-3, "{found} against {expected}");
                assert_eq!(found, w1_log2_models(b, a));
            }
            let mut sample = sample(30, 999, 12.0);
            let found = w1_log2_to(&mut sample, a);
            let held = |u: f64| sample[(u * sample.len() as f64) as usize];
            let expected = w1_by_quantiles(held, |u| a.quantile(u));
            assert!((found - expected).abs() < 1e-3, "{found} against {expected}");
        }
    }

    #[test]
    fn w1_of_a_shift_is_the_shift() {
        let law = &models()[0];
        assert!((w1_log2_models(law, &law.scaled(8.0)) - 3.0).abs() < 1e-9);
        assert_eq!(w1_log2_models(law, law), 0.0);
        let (mut a, mut b) = (sample(31, 500, 10.0), sample(31, 500, 10.0));
        b.iter_mut().for_each(|value| *value *= 2.0);
        assert!((w1_log2_samples(&mut a, &mut b) - 1.0).abs() < 1e-9);
        // Values under the floor are raised to it.
        let low = |value| Empirical::new(Form::Step, 1, vec![(1.0, value)]).expect("an atom");
        assert_eq!(w1_log2_models(&low(0.0), &low(0.9)), 0.0);
        assert_eq!(w1_log2_models(&low(0.0), &low(4.0)), 2.0);
    }

    #[test]
    fn ramp_is_smooth_where_its_series_ends() {
        let (series, closed) = (ramp(1e-3 - 1e-12), ramp(1e-3 + 1e-12));
        assert!((series - closed).abs() < 2e-12, "{series} against {closed}");
    }

    #[test]
    fn jsd_by_hand() {
        assert_eq!(jsd(&[1.0, 2.0], &[10.0, 20.0]), 0.0);
        assert_eq!(jsd(&[1.0], &[0.0, 7.0]), 1.0);
        assert_eq!(jsd(&[1.0, 0.0], &[1.0]), 0.0);
        // Half the mass moved: 1 − ¾·log₂3 + ½ bits by the definition.
        let half = 0.5 * (libm::log2(4.0 / 3.0) + 0.5 * libm::log2(2.0 / 3.0) + 0.5);
        assert!((jsd(&[1.0], &[1.0, 1.0]) - half).abs() < 1e-12);
        assert_eq!(jsd(&[], &[1.0]), 1.0);
        assert_eq!(jsd(&[0.0], &[1.0]), 1.0);
    }

    /// The naive twin sorts values into bins one at a time, by their logarithm.
    #[test]
    fn quarter_octaves_agree_with_counting() {
        let (mut a, mut b) = (sample(40, 3_000, 10.0), sample(41, 2_000, 14.0));
        for part in [&mut a, &mut b] {
            part.extend([0.0, 1e-13, 0.3, 1.0, 1_024.0, 1_448.0, 1_449.0, 3e19, 1e300]);
        }
        let count = |values: &[f64]| {
            let mut bins = vec![0.0; 4 * 104 + 2];
            for &value in values {
                let quarter = libm::floor(libm::log2(value) * 4.0).clamp(-161.0, 256.0);
                bins[(quarter + 161.0) as usize] += 1.0;
            }
            bins
        };
        let expected = jsd(&count(&a), &count(&b));
        assert!(expected > 0.05);
        assert!((jsd_quarter_octave_samples(&mut a, &mut b) - expected).abs() < 1e-12);
        let law_a = Empirical::step_from(a.clone(), 4_000).expect("sizes");
        let law_b = Empirical::step_from(b.clone(), 4_000).expect("sizes");
        assert!((jsd_quarter_octave_models(&law_a, &law_b) - expected).abs() < 1e-12);
        assert!((jsd_quarter_octave_to(&mut a, &law_b) - expected).abs() < 1e-12);
    }

    /// The published defect: without bins of their own, laws outside the range look alike.
    #[test]
    fn mass_outside_the_bins_is_not_lost() {
        let atom = |value| Empirical::new(Form::Step, 1, vec![(1.0, value)]).expect("an atom");
        let (under, inside, over) = (atom(1e-14), atom(1.0), atom(1e25));
        for (a, b) in [(&under, &inside), (&inside, &over), (&under, &over)] {
            assert_eq!(jsd_quarter_octave_models(a, b), 1.0);
        }
        for law in [under, inside, over] {
            let bins = quarter_octaves(Knots::new(&law));
            assert_eq!((bins.len(), bins.iter().sum::<f64>()), (4 * 104 + 2, 1.0));
        }
    }

    #[test]
    fn no_evidence_is_not_agreement() {
        let law = &models()[0];
        assert_eq!((ks_to(&mut [], law), ks_samples(&mut [], &mut [1.0])), (1.0, 1.0));
        assert_eq!(jsd_quarter_octave_to(&mut [], law), 1.0);
        assert_eq!(w1_log2_to(&mut [], law), f64::INFINITY);
        for [one, other] in [[0, 0], [0, 3], [3, 0]] {
            let (mut a, mut b) = (vec![1.0; one], vec![1.0; other]);
            assert_eq!(ks_samples(&mut a, &mut b), 1.0);
            assert_eq!(w1_log2_samples(&mut a, &mut b), f64::INFINITY);
            assert_eq!(jsd_quarter_octave_samples(&mut a, &mut b), 1.0);
        }
    }

    /// To fifty digits.
    #[test]
    fn a_ramp_keeps_its_digits_where_it_is_short() {
        for (e, exact) in [
            (1e-9, 4.999999996666667e-10),
            (1e-6, 4.999996666669166e-07),
            (1e-4, 4.999666691664667e-05),
            (5e-4, 0.0002499166979041719),
            (9e-4, 0.0004497301821188783),
            (9.99e-4, 0.0004991675820517143),
        ] {
            assert!((ramp(e) / exact - 1.0).abs() < 4e-16, "{e}: {} for {exact}", ramp(e));
        }
    }
}
