//! Distributions of durations that were not all seen to their end: the Kaplan–Meier estimate.
//!
//! A run ends while sessions still wait for their next connection. Those gaps are only known to be
//! longer than the part that was seen. Counted at that length they would make gaps look short; left
//! out, they would make them look shorter still, because long gaps are cut more often. Kaplan and
//! Meier (JASA 53, 1958) use each observation for as long as it lasts: at every duration at which
//! some of the n still under observation ended, d of them, the survivors' share falls by the factor
//! 1 − d/n. An observation cut at the very duration at which others ended counts as having outlived
//! it.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Form, Rng, ks_to};

    /// The naive twin, Efron's redistribution to the right (1967): each observation carries 1/n,
    /// and a censored one passes its mass in equal parts to all that lasted longer.
    fn redistributed(observations: &[Lifetime], x: f64) -> f64 {
        let mut sorted = observations.to_vec();
        sorted.sort_by(|a, b| a.duration.total_cmp(&b.duration).then(b.observed.cmp(&a.observed)));
        let n = sorted.len();
        let mut mass = alloc::vec![1.0 / n as f64; n];
        for index in 0..n {
            if !sorted[index].observed && index + 1 < n {
                let part = core::mem::take(&mut mass[index]) / (n - index - 1) as f64;
                mass[index + 1..].iter_mut().for_each(|other| *other += part);
            }
        }
        let ended = sorted.iter().zip(&mass).filter(|(one, _)| one.observed && one.duration <= x);
        ended.map(|(_, mass)| mass).sum()
    }

    fn exponentials(rng: &mut Rng, n: usize, cut: f64) -> Vec<Lifetime> {
        let mut one = || {
            let (life, window) = (rng.exponential(1.0), rng.exponential(cut));
            // Rounded, so that ends and cuts often tie.
            let duration = libm::ceil(life.min(window) * 20.0) / 20.0;
            Lifetime { duration, observed: life <= window }
        };
        (0..n).map(|_| one()).collect()
    }

    /// The 6-MP arm of Freireich et al. (Blood 21, 1963), everyone's first example of the estimate.
    #[test]
    fn reproduces_the_leukaemia_trial() {
        let observed = [6, 6, 6, 7, 10, 13, 16, 22, 23].map(|weeks| (weeks, true));
        let censored = [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35].map(|weeks| (weeks, false));
        let lifetimes: Vec<Lifetime> = observed
            .into_iter()
            .chain(censored)
            .map(|(weeks, observed)| Lifetime { duration: f64::from(weeks), observed })
            .collect();
        let estimate = KaplanMeier::new(&lifetimes);
        for (weeks, surviving) in [
            (5.9, 1.0),
            (6.0, 0.857),
            (7.0, 0.807),
            (10.0, 0.753),
            (13.0, 0.690),
            (16.0, 0.627),
            (22.0, 0.538),
            (23.0, 0.448),
            (40.0, 0.448),
        ] {
            let found = 1.0 - estimate.cdf(weeks);
            assert!((found - surviving).abs() < 0.000_6, "week {weeks}: {found}");
        }
        assert_eq!(estimate.horizon(), Some(23.0));
    }

    #[test]
    fn agrees_with_redistribution_to_the_right() {
        let mut rng = Rng::new(1, 0, 0);
        for n in [1, 2, 5, 40, 300] {
            let lifetimes = exponentials(&mut rng, n, 1.5);
            let estimate = KaplanMeier::new(&lifetimes);
            for step in 0..60 {
                let x = f64::from(step) * 0.05;
                let (found, twin) = (estimate.cdf(x), redistributed(&lifetimes, x));
                assert!((found - twin).abs() < 1e-9, "n {n} at {x}: {found} against {twin}");
            }
        }
    }

    #[test]
    fn without_censoring_it_is_the_plain_distance() {
        let mut rng = Rng::new(2, 0, 0);
        for n in [1usize, 10, 2_000] {
            let mut sample: Vec<f64> = (0..n).map(|_| libm::ceil(rng.exponential(9.0))).collect();
            let model: Vec<f64> = (0..500).map(|_| rng.exponential(8.0)).collect();
            for model in [
                Empirical::linear_from(model.clone(), 64).expect("times"),
                Empirical::step_from(model, 64).expect("times"),
            ] {
                // Nothing is compared beyond the longest observed duration, so include the model's
                // maximum.
                sample.push(model.max());
                let seen = |&duration: &f64| Lifetime { duration, observed: true };
                let lifetimes: Vec<Lifetime> = sample.iter().map(seen).collect();
                let (found, plain) =
                    (KaplanMeier::new(&lifetimes).ks_to(&model), ks_to(&mut sample, &model));
                assert!((found - plain).abs() < 1e-12, "n {n}: {found} against {plain}");
            }
        }
    }

    /// Half of the gaps are cut by the run's end; the estimate still finds their law, a plain count
    /// does not.
    #[test]
    fn sees_through_the_end_of_a_run() {
        let mut rng = Rng::new(3, 0, 0);
        let lives: Vec<f64> = (0..50_000).map(|_| rng.exponential(1.0)).collect();
        let model = Empirical::linear_from(lives, 1_000).expect("times");
        let lifetimes: Vec<Lifetime> = (0..20_000)
            .map(|_| {
                let (life, window) = (model.draw(&mut rng), rng.exponential(1.0));
                Lifetime { duration: life.min(window), observed: life <= window }
            })
            .collect();
        let mut seen: Vec<f64> =
            lifetimes.iter().filter(|one| one.observed).map(|one| one.duration).collect();
        assert!((9_000..11_000).contains(&seen.len()));
        // Compare where a thousand are still at risk; the far tail of an estimate is its noise.
        let near = lifetimes.iter().filter(|one| one.duration <= 1.5).copied();
        let cut = lifetimes.iter().filter(|one| one.duration > 1.5);
        let cut = cut.map(|_| Lifetime { duration: 1.5, observed: false });
        let kept: Vec<Lifetime> = near.chain(cut).collect();
        let estimate = KaplanMeier::new(&kept).ks_to(&model);
        assert!(estimate < 0.025, "Kaplan–Meier is off by {estimate}");
        assert!(ks_to(&mut seen, &model) > 0.2);
    }

    #[test]
    fn stops_at_the_longest_end_seen_and_looks_at_knots_before_it() {
        let model = Empirical::new(Form::Step, 3, alloc::vec![(0.4, 2.0), (0.5, 5.0), (1.0, 9.0)]);
        let model = model.expect("a table");
        let of = |lives: &[(f64, bool)]| {
            let lifetimes: Vec<Lifetime> =
                lives.iter().map(|&(duration, observed)| Lifetime { duration, observed }).collect();
            KaplanMeier::new(&lifetimes).ks_to(&model)
        };
        // Before 5 the estimate has nothing beside the model's atom at 2; after it, 0.5 is compared
        // with 0.5.
        assert!((of(&[(5.0, true), (8.0, false)]) - 0.4).abs() < 1e-12);
        // The atom of 0.5 at 9 lies beyond what was seen.
        assert!((of(&[(2.0, true), (8.0, false), (8.0, false)]) - (0.4 - 1.0 / 3.0)).abs() < 1e-12);
        assert_eq!(of(&[(8.0, false)]), 1.0);
        assert_eq!(of(&[]), 1.0);
    }
}
