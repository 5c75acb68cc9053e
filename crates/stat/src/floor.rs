//! What a distance would be if all were well: the sampling floor.
//!
//! Draw n values from a model and measure their distance from it: it is not 0. For KS it falls as
//! n^(−½), for Pareto sizes on other distances more slowly still, so a bare "KS 0.013" says nothing
//! until one knows what chance alone gives at this n. The floor is found by doing just that: repeat
//! the measurement with samples drawn from the model, each round with a stream of its own, and take
//! the median; the 5th and 95th percentiles are the band within which nothing can be concluded. A
//! fidelity is then a ratio: 1 is as like the model as a second sample of it would be.
//!
//! Whatever is done to the real measurement (censoring, pools, rounding to bytes) belongs into the
//! closure too; a floor of another procedure is no floor.
//!
//! Sorted samples come without sorting: the first n partial sums of n + 1 exponential variables,
//! divided by the last, are n uniform order statistics (Devroye 1986, section V.3).

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::summary::quantile_sorted;
use crate::{Rng, rng::UNIT_STEP};

/// The rounds that reports use.
pub const FLOOR_ROUNDS: u32 = 200;

/// The purpose of the streams that [`floor`] draws from; its index is the round.
pub const FLOOR_PURPOSE: u32 = u32::from_be_bytes(*b"flor");

/// The distances that chance alone gives.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Floor {
    /// The median: *the* floor.
    pub median: f64,
    /// The 5th percentile.
    pub p5: f64,
    /// The 95th percentile.
    pub p95: f64,
}

/// The floor of `distance`: its quantiles over `rounds` rounds. The closure is given each round's
/// stream, draws from the model a sample of the size that was measured, and measures it likewise.
/// The same seed gives the same floor.
///
/// # Panics
/// If there are no rounds, or a distance is not a number.
pub fn floor(seed: u64, rounds: u32, mut distance: impl FnMut(&mut Rng) -> f64) -> Floor {
    let mut distances: Vec<f64> = (0..u64::from(rounds))
        .map(|round| distance(&mut Rng::new(seed, FLOOR_PURPOSE, round)))
        .collect();
    assert!(distances.iter().all(|distance| !distance.is_nan()), "a distance is a number");
    distances.sort_unstable_by(f64::total_cmp);
    let at = |q| quantile_sorted(&distances, q).expect("a floor needs at least one round");
    Floor { median: at(0.5), p5: at(0.05), p95: at(0.95) }
}

/// How many floors a distance is: 0 for a distance of 0 whatever the floor, `None` where there is no
/// saying (any other distance over a floor of 0, or something that is no distance).
pub fn ratio(distance: f64, floor: f64) -> Option<f64> {
    if distance == 0.0 {
        return Some(0.0);
    }
    let ratio = distance / floor;
    (distance > 0.0 && floor > 0.0 && ratio.is_finite()).then_some(ratio)
}

/// `n` independent uniform variables in [0, 1), in ascending order, in O(n). n + 1 words of the stream.
pub fn sorted_uniforms(rng: &mut Rng, n: usize) -> Vec<f64> {
    let mut sum = 0.0;
    let mut sums: Vec<f64> = (0..n)
        .map(|_| {
            sum += rng.exponential(1.0);
            sum
        })
        .collect();
    // The last spacing is drawn from (0, …] so that the total is above every partial sum.
    let total = sum - libm::log(1.0 - rng.unit() * (1.0 - UNIT_STEP));
    for place in &mut sums {
        *place = (*place / total).min(1.0 - UNIT_STEP);
    }
    sums
}
