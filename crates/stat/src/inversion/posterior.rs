//! Samples of the posterior of a family of laws.
//!
//! Where a hundredth of the packets is sampled, laws of one family that are far apart make the records nearly
//! equally probable, and chance decides which of them fits best. So the reference is not the best law but the
//! mean of all, weighted by likelihood times prior (`model_average`): no other law is as near to them, and their
//! distance from it shows how well the law is known.
//!
//! Laws are drawn by the affine-invariant ensemble sampler (Goodman and Weare, *Communications in Applied Mathematics
//! and Computational Science* 5, 2010). A walker at x leaps along the line through another one, y, to y + z (x − y)
//! with z of density ∝ 1/√z in [1/2, 2], and stays there with the chance z^(D − 1) · P(new)/P(old). That needs no
//! scale of its own, so narrow valleys are explored as well as round ones. Walkers begin around the modes that the
//! search found. The evidence of a family is that of Laplace's method: e^−(the excess loss of its best law), times
//! the volume that walkers fill over that of the prior. A family with much more loss does not count. The seed is
//! fixed: the same records give the same law.

use alloc::vec::Vec;

use super::reference::Reference;
use crate::Rng;
use crate::simplex::minimise;

/// A normal prior of a parameter: centre and deviation.
pub(super) type Prior = (f64, f64);
/// Parameters of a family at which searches end, and their loss.
pub(super) type Modes<const D: usize> = Vec<([f64; D], f64)>;

/// Walkers of a family.
const WALKERS: usize = 24;
/// Leaps of each walker before laws are taken, and in all.
const LEAPS_BEFORE: usize = 60;
const LEAPS: usize = 140;
/// One in this many leaps of a walker gives a law.
const LEAPS_APART: usize = 8;
/// Walkers begin around a mode, spread by this share of the prior's deviation.
const AROUND: f64 = 0.2;
/// A law with more loss above the best, in natural logarithms, does not count.
pub(super) const LOSS_ABOVE_BEST_MAX: f64 = 7.0;
/// A search ends when its likelihoods differ by no more, in natural logarithms.
const TOLERANCE: f64 = 1e-3;
/// No direction is narrower than this, in units of the prior, squared.
const NARROW: f64 = 1e-12;
const PURPOSE: u32 = 0x706f_7374;

/// Laws of a family by its parameters, and how badly they fit.
pub(super) struct Family<'a, const D: usize> {
    pub priors: &'a [Prior; D],
    pub law: fn(&[f64; D]) -> Reference,
    pub misfit: &'a dyn Fn(Reference) -> f64,
}

impl<const D: usize> Family<'_, D> {
    /// Misfit to the records, plus the negative logarithm of the prior.
    pub fn loss(&self, at: &[f64; D]) -> f64 {
        (self.misfit)((self.law)(at)) + neg_ln_prior(at, self.priors)
    }

    /// Where searches from `starts` end.
    pub fn modes(&self, starts: &[[f64; D]]) -> Modes<D> {
        let search = |from: &[f64; D]| minimise(&|at| self.loss(at), *from, 0.5, TOLERANCE);
        starts.iter().map(search).collect()
    }

    /// The law of the best of them, and its loss.
    pub fn best(&self, modes: &Modes<D>) -> (Reference, f64) {
        let best = modes.iter().min_by(|a, b| a.1.total_cmp(&b.1)).expect("a start");
        ((self.law)(&best.0), best.1)
    }

    /// Laws in proportion to their probability, from walkers that begin around `modes`, and the logarithm of
    /// the volume that they fill, over that of the prior.
    pub fn draw(&self, modes: &[[f64; D]]) -> (Vec<Reference>, f64) {
        let mut rng = Rng::new(0, PURPOSE, D as u64);
        let mut walkers: Vec<([f64; D], f64)> = (0..WALKERS)
            .map(|number| {
                let mut at = modes[number % modes.len()];
                for (x, (_, deviation)) in at.iter_mut().zip(self.priors) {
                    *x += AROUND * deviation * rng.normal();
                }
                (at, self.loss(&at))
            })
            .collect();
        let mut numbers: Vec<[f64; D]> = Vec::new();
        for leap in 0..LEAPS {
            for number in 0..WALKERS {
                let other = (number + 1 + rng.below(WALKERS as u64 - 1) as usize) % WALKERS;
                let next = self.leap(walkers[number], walkers[other].0, &mut rng);
                walkers[number] = next;
            }
            if leap >= LEAPS_BEFORE && leap % LEAPS_APART == 0 {
                numbers.extend(walkers.iter().map(|(at, _)| *at));
            }
        }
        let ln_volume = 0.5 * self.ln_determinant(&numbers);
        (numbers.iter().map(self.law).collect(), ln_volume)
    }

    /// The logarithm of the determinant of the covariance of `numbers`, in units of the prior.
    fn ln_determinant(&self, numbers: &[[f64; D]]) -> f64 {
        let count = numbers.len() as f64;
        let mean: [f64; D] =
            core::array::from_fn(|i| numbers.iter().map(|at| at[i]).sum::<f64>() / count);
        let off = |at: &[f64; D], i: usize| (at[i] - mean[i]) / self.priors[i].1;
        let covariance =
            |i, j| numbers.iter().map(|at| off(at, i) * off(at, j)).sum::<f64>() / count;
        let mut left: [[f64; D]; D] =
            core::array::from_fn(|i| core::array::from_fn(|j| covariance(i, j)));
        let mut ln = 0.0;
        for i in 0..D {
            let pivot = left[i];
            let diagonal = pivot[i].max(NARROW);
            ln += libm::log(diagonal);
            for row in &mut left[i + 1..] {
                let factor = row[i] / diagonal;
                row.iter_mut().zip(pivot).for_each(|(x, of_pivot)| *x -= factor * of_pivot);
            }
        }
        ln
    }

    /// One leap along the line through another walker, or none.
    fn leap(&self, from: ([f64; D], f64), by: [f64; D], rng: &mut Rng) -> ([f64; D], f64) {
        let root = 0.5 * (1.0 + rng.unit()) * core::f64::consts::SQRT_2;
        let z = root * root;
        let to = core::array::from_fn(|at| by[at] + z * (from.0[at] - by[at]));
        let loss = self.loss(&to);
        let ln_chance = (D as f64 - 1.0) * libm::log(z) + from.1 - loss;
        if libm::log(1.0 - rng.unit()) < ln_chance { (to, loss) } else { from }
    }
}

/// The negative logarithm of normal priors, but for a constant.
fn neg_ln_prior(at: &[f64], priors: &[Prior]) -> f64 {
    let one = |(x, (centre, deviation)): (&f64, &Prior)| {
        let off = (x - centre) / deviation;
        0.5 * off * off
    };
    at.iter().zip(priors).map(one).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a constant misfit the posterior is the prior, whose mean and deviation the walkers must find: the
    /// naive twin draws from it directly.
    #[test]
    fn walkers_sample_the_prior_where_records_say_nothing() {
        let priors = [(2.0, 0.7), (0.4, 0.35)];
        let law = |[mu, ln_sigma]: &[f64; 2]| Reference::Lognormal {
            mu: *mu,
            sigma: libm::exp(*ln_sigma),
        };
        let family = Family { priors: &priors, law, misfit: &|_| 0.0 };
        let (laws, _) = family.draw(&[[2.0, 0.4]]);
        let numbers = |of: &dyn Fn(f64, f64) -> f64| -> (f64, f64) {
            let count = laws.len() as f64;
            let values = laws.iter().map(|law| match law {
                Reference::Lognormal { mu, sigma } => of(*mu, libm::log(*sigma)),
                other => panic!("{other:?}"),
            });
            let (sum, squares) = values.fold((0.0, 0.0), |(s, q), v| (s + v, q + v * v));
            (sum / count, libm::sqrt(squares / count - (sum / count) * (sum / count)))
        };
        let (mu, mu_deviation) = numbers(&|mu, _| mu);
        let (ln, ln_deviation) = numbers(&|_, ln| ln);
        assert!((mu - 2.0).abs() < 0.25 && (ln - 0.4).abs() < 0.12, "{mu} {ln}");
        assert!((mu_deviation / 0.7 - 1.0).abs() < 0.3, "{mu_deviation}");
        assert!((ln_deviation / 0.35 - 1.0).abs() < 0.3, "{ln_deviation}");
    }
}
