//! Distributions of durations that were not all seen to their end: the Kaplan–Meier estimate.
//!
//! A run ends while sessions still wait for their next connection. Those gaps are known only to be
//! longer than what was seen; counted as they stand they would make gaps look short, left out they
//! would make them look shorter still, because long gaps are cut more often. Kaplan and Meier (JASA
//! 53, 1958) use each observation for as long as it lasts: at every duration at which some of the n
//! still under observation ended, d of them, the survivors' share falls by the factor 1 − d/n. An
//! observation cut at the very duration at which others ended counts as having outlived it.
//!
//! Beyond the longest observed duration nothing is known, so nothing is compared there.

use alloc::vec::Vec;

use crate::Empirical;
use crate::walk::{Jumps, Knots, supremum};

/// How long something lasted, or how long it was seen to last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lifetime {
    /// The duration, at least 0, in the unit of the model it will be compared with.
    pub duration: f64,
    /// Whether the end was seen; otherwise the duration is censored, a lower bound.
    pub observed: bool,
}

/// The Kaplan–Meier estimate of a distribution function.
#[derive(Clone, Debug)]
pub struct KaplanMeier {
    /// (duration, P(X ≤ duration)) at each observed duration, ascending.
    jumps: Vec<(f64, f64)>,
}

impl KaplanMeier {
    /// The estimate from these observations, in any order.
    ///
    /// # Panics
    /// If a duration is negative or not finite: a difference of two stamps of one clock is neither.
    pub fn new(observations: &[Lifetime]) -> KaplanMeier {
        let mut sorted = observations.to_vec();
        for lifetime in &sorted {
            let duration = lifetime.duration;
            assert!(duration.is_finite() && duration >= 0.0, "no duration: {duration}");
        }
        sorted.sort_unstable_by(|a, b| a.duration.total_cmp(&b.duration));
        let mut at_risk = sorted.len();
        let mut surviving = 1.0;
        let mut jumps = Vec::new();
        for tied in sorted.chunk_by(|a, b| a.duration == b.duration) {
            let ended = tied.iter().filter(|lifetime| lifetime.observed).count();
            if ended > 0 {
                surviving *= (at_risk - ended) as f64 / at_risk as f64;
                jumps.push((tied[0].duration, 1.0 - surviving));
            }
            at_risk -= tied.len();
        }
        KaplanMeier { jumps }
    }

    /// The estimate of P(X ≤ x). It stays below 1 where the longest observation was censored.
    pub fn cdf(&self, x: f64) -> f64 {
        let passed = self.jumps.partition_point(|jump| jump.0 <= x);
        passed.checked_sub(1).map_or(0.0, |last| self.jumps[last].1)
    }

    /// The longest duration whose end was seen; `None` if none was.
    pub fn horizon(&self) -> Option<f64> {
        self.jumps.last().map(|jump| jump.0)
    }

    /// The KS distance from a model over all durations up to the longest observed one, both limits
    /// taken at every jump and every knot. With no end seen there is no evidence, and it is 1.
    pub fn ks_to(&self, model: &Empirical) -> f64 {
        let Some(horizon) = self.horizon() else { return 1.0 };
        supremum(Jumps::new(&self.jumps), Knots::new(model), horizon)
    }
}
