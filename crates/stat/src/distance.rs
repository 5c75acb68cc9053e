//! How far two laws of traffic are apart: Kolmogorov–Smirnov, Wasserstein on a log scale, Jensen–Shannon.
//!
//! Three distances, because each is blind where another sees.
//!
//! * **KS**, sup |F − G|: the greatest disagreement on any probability, in 0..=1; blind to how far
//!   the mass moved and to the tail.
//! * **W1 on log₂**, ∫ |F − G| d log₂ x: by how many octaves the mass must be moved on average. On
//!   the values themselves it would be a statement about a few elephants (for Pareto 1.2 its sampling
//!   error is 12 % of the mean even at a million samples), on octaves it weighs mice and elephants
//!   alike.
//! * **JSD**, in bits, 0..=1: for ranks and other categories, and for values in bins of a quarter
//!   octave. Mass outside the bins has bins of its own: the implementation published with NetShare
//!   drops it, and calls laws equal that do not even overlap.
//!
//! All are computed exactly from the distribution functions (`walk`), none by sampling or on a grid
//! of points. What a figure means is told by its sampling floor (`floor`): a second sample of the
//! truth is not at distance 0 either.
//!
//! No evidence is not agreement: with an empty sample or histogram on either side KS and JSD are 1
//! and W1 is infinite.

use alloc::vec::Vec;

use crate::Empirical;
use crate::walk::{Knots, Sorted, Walk, supremum};

/// Values below this are taken as this by the logarithmic Wasserstein distances: an empty file is
/// one octave's start, not infinitely many octaves below it. Choose the unit
/// ([`Empirical::scaled`]) so that what matters lies above: bytes, nanoseconds.
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

/// The Wasserstein-1 distance of log₂ of two samples, both sorted in place, in octaves. Values below
/// [`LOG2_FLOOR`] count as it.
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

/// The Jensen–Shannon divergence of two histograms over the same categories, in bits, 0..=1. Each is
/// normalised; the shorter is padded with zeros.
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

/// The probability of each bin [edge, next edge): first of everything below the lowest edge, last of
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
