//! Residual times: the rest of a gap that is met at a random moment.
//!
//! A random moment falls into a gap with a probability in proportion to the gap's length, and a uniform part
//! of the gap is left (Cox, Renewal Theory, 5.4). For a law in pieces this needs no rejection, which for a
//! heavy tail would take as many trials as its longest gap exceeds its mean: a piece is drawn by its share of
//! the mean, a value in it in proportion to its length, and then a uniform part of the value.

use alloc::vec::Vec;

use crate::{Empirical, Rng};

/// Draws residuals of a law (Cox, Renewal Theory, 1962, 5.4).
#[derive(Clone, Debug)]
pub struct Residual {
    /// The least and the greatest value of each piece that is not zero, and what the pieces up to it add to
    /// the mean.
    pieces: Vec<(f64, f64, f64)>,
}

impl Residual {
    /// The residuals of `law`; all zero if its mean is zero.
    pub fn new(law: &Empirical) -> Residual {
        let mut sum = 0.0;
        let pieces = law.pieces().filter_map(|(share, low, high)| {
            sum += share * 0.5 * (low + high);
            (share > 0.0 && high > 0.0).then_some((low, high, sum))
        });
        Residual { pieces: pieces.collect() }
    }

    /// An independent draw. Three words of the stream.
    pub fn draw(&self, rng: &mut Rng) -> f64 {
        let Some(&(.., mean)) = self.pieces.last() else { return 0.0 };
        let place = rng.unit() * mean;
        let at = self.pieces.partition_point(|(.., sum)| *sum <= place);
        let (low, high, _) = self.pieces[at.min(self.pieces.len() - 1)];
        // The density of a value rises with it: its square is uniform. Computed relative to the greatest
        // value, which may be too great to be squared.
        let least = low / high;
        let value = high * libm::sqrt(least * least + rng.unit() * (1.0 - least * least));
        value * rng.unit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Form, Law};
    use alloc::vec;

    /// The naive twin: a draw is kept with a probability in proportion to its length.
    fn kept(law: &Empirical, rng: &mut Rng) -> f64 {
        loop {
            let gap = law.draw(rng);
            if rng.unit() * law.max() < gap {
                return gap * rng.unit();
            }
        }
    }

    #[test]
    fn trial_and_error_finds_the_same_law() {
        let step = vec![(0.5, 0.0), (0.75, 2.0), (1.0, 10.0)];
        let linear = vec![(0.0, 1.0), (0.3, 2.0), (0.6, 2.0), (0.6, 7.0), (1.0, 9.0)];
        for (form, knots) in [(Form::Step, step), (Form::Linear, linear)] {
            let law = Empirical::new(form, 1, knots).expect("a law");
            let residual = Residual::new(&law);
            let mut rng = Rng::new(3, 0, 0);
            let mut drawn: Vec<f64> = (0..50_000).map(|_| residual.draw(&mut rng)).collect();
            let mut naive: Vec<f64> = (0..50_000).map(|_| kept(&law, &mut rng)).collect();
            let apart = crate::distance::ks_samples(&mut drawn, &mut naive);
            assert!(apart < 0.011, "{form:?}: {apart}");
            // E X² / 2 E X.
            let mean = drawn.iter().sum::<f64>() / 50_000.0;
            let wanted = law.second_moment() / (2.0 * law.mean());
            assert!((mean / wanted - 1.0).abs() < 0.02, "{form:?}: {mean} of {wanted}");
        }
    }

    /// Rejection would keep one draw in two thousand million.
    #[test]
    fn a_tail_of_years_costs_no_more_than_any_other() {
        let law =
            Law::Pareto { index: 1.2, minimum: 0.1 }.table(Form::Linear, None).expect("a law");
        assert!(law.max() / law.mean() > 1e9);
        let residual = Residual::new(&law);
        let mut rng = Rng::new(4, 0, 0);
        let mut drawn: Vec<f64> = (0..10_000).map(|_| residual.draw(&mut rng)).collect();
        drawn.sort_unstable_by(f64::total_cmp);
        // P(residual > x) = ∫ₓ P(X > t) dt / E X = (x / 0.1)^-0.2 / 1.2, where x is far from the last cut.
        let median = 0.1 * libm::pow(0.6, -5.0);
        assert!((drawn[5_000] / median - 1.0).abs() < 0.15, "{} of {median}", drawn[5_000]);
        let zero = Empirical::new(Form::Step, 1, vec![(1.0, 0.0)]).expect("a law");
        assert_eq!(Residual::new(&zero).draw(&mut rng), 0.0);
    }
}
