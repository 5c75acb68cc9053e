//! An empirical distribution as a compact quantile table: a law of traffic that fits in a file.
//!
//! A table is a list of knots (cumulative, value) in one of two forms.
//!
//! * *step*: a discrete law. P(X ≤ vⱼ) = cⱼ, and nothing lies between the values. Sizes in bytes
//!   are of this form.
//! * *linear*: a distribution function that is straight between its knots, so every value between
//!   two knots may be drawn. Times are of this form. Two knots of one value and different
//!   cumulatives are an atom; two of one cumulative and different values are a gap.
//!
//! Draws are by inversion: `quantile(u)` of a uniform u. Inversion is monotone, and so it is what
//! stratified and sorted draws need. All the quantities here follow from the knots alone, in closed
//! form; `compact` makes knots from samples, `distance` compares laws.
//!
//! The unit of the values is the caller's (bytes, seconds); all of them are at least 0.

use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::{Rng, sorted_uniforms};

/// The most knots a table may have; at 65,536 a model file stays at a few megabytes.
pub const KNOTS_LIMIT: usize = 1 << 16;

/// Interpolation between two knots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// None: the distribution is discrete.
    Step,
    /// Linear interpolation of the distribution function.
    Linear,
}

/// Why a list of knots is no distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EmpiricalError {
    /// There is no knot, or no sample to make one from.
    Empty,
    /// The cumulative or value of this knot (or the sample of this index) is infinite or not a
    /// number.
    NotFinite(usize),
    /// The value of this knot (or the sample of this index) is below zero.
    Negative(usize),
    /// This knot does not ascend from the one before it as its form demands.
    NotMonotone(usize),
    /// A linear table begins at this cumulative and not at 0.
    FirstNotZero(f64),
    /// The last cumulative is this and not 1.
    LastNotOne(f64),
    /// There are this many knots, more than [`KNOTS_LIMIT`].
    TooManyKnots(usize),
}

impl fmt::Display for EmpiricalError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EmpiricalError::Empty => {
                write!(out, "a distribution without knots or samples: give at least one")
            }
            EmpiricalError::NotFinite(at) => {
                write!(out, "knot or sample {at} (from 0) is not a finite number: correct it")
            }
            EmpiricalError::Negative(at) => {
                write!(
                    out,
                    "the value of knot or sample {at} (from 0) is negative: make it 0 or more"
                )
            }
            EmpiricalError::NotMonotone(at) => {
                write!(
                    out,
                    "knot {at} (from 0) does not ascend from the one before: sort the knots"
                )
            }
            EmpiricalError::FirstNotZero(cumulative) => {
                write!(out, "a linear table begins at cumulative {cumulative}: begin with 0")
            }
            EmpiricalError::LastNotOne(cumulative) => {
                write!(out, "the last knot has cumulative {cumulative}: end with 1")
            }
            EmpiricalError::TooManyKnots(count) => {
                write!(out, "{count} knots are more than {KNOTS_LIMIT}: group the samples coarser")
            }
        }
    }
}

impl core::error::Error for EmpiricalError {}

/// A distribution of non-negative values, given by knots (cumulative, value).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "Unchecked")]
pub struct Empirical {
    form: Form,
    samples: u64,
    knots: Vec<(f64, f64)>,
}

/// The same as read from a file, before validation.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename = "Empirical")]
struct Unchecked {
    form: Form,
    samples: u64,
    knots: Vec<(f64, f64)>,
}

impl TryFrom<Unchecked> for Empirical {
    type Error = EmpiricalError;

    fn try_from(read: Unchecked) -> Result<Empirical, EmpiricalError> {
        Empirical::new(read.form, read.samples, read.knots)
    }
}

impl Empirical {
    /// The law of `knots` (cumulative, value); `samples` tells how many observations it was made
    /// from and takes no part in it.
    ///
    /// # Errors
    /// Values must be finite, at least 0 and ascending, the last cumulative must be 1. A step table
    /// must ascend strictly in both, from a cumulative above 0; a linear one begins at 0 and may
    /// repeat either.
    pub fn new(
        form: Form,
        samples: u64,
        knots: Vec<(f64, f64)>,
    ) -> Result<Empirical, EmpiricalError> {
        let (Some(first), Some(last)) = (knots.first(), knots.last()) else {
            return Err(EmpiricalError::Empty);
        };
        if knots.len() > KNOTS_LIMIT {
            return Err(EmpiricalError::TooManyKnots(knots.len()));
        }
        if let Some(at) = knots.iter().position(|(c, v)| !(c.is_finite() && v.is_finite())) {
            return Err(EmpiricalError::NotFinite(at));
        }
        if let Some(at) = knots.iter().position(|(_, value)| *value < 0.0) {
            return Err(EmpiricalError::Negative(at));
        }
        if form == Form::Linear && first.0 != 0.0 {
            return Err(EmpiricalError::FirstNotZero(first.0));
        }
        if form == Form::Step && first.0 <= 0.0 {
            return Err(EmpiricalError::NotMonotone(0));
        }
        let ascends = |pair: &[(f64, f64)]| match form {
            Form::Step => pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1,
            Form::Linear => pair[0].0 <= pair[1].0 && pair[0].1 <= pair[1].1,
        };
        if let Some(at) = knots.windows(2).position(|pair| !ascends(pair)) {
            return Err(EmpiricalError::NotMonotone(at + 1));
        }
        if last.0 != 1.0 {
            return Err(EmpiricalError::LastNotOne(last.0));
        }
        Ok(Empirical { form, samples, knots })
    }

    /// Whether the law is discrete or straight between its knots.
    pub fn form(&self) -> Form {
        self.form
    }

    /// How many observations the table was made from.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The knots, as (cumulative probability, value), ascending.
    pub fn knots(&self) -> &[(f64, f64)] {
        &self.knots
    }

    /// The least value.
    pub fn min(&self) -> f64 {
        self.knots[0].1
    }

    /// The greatest value.
    pub fn max(&self) -> f64 {
        self.knots[self.knots.len() - 1].1
    }

    /// The value below which the share `u` lies: the least value whose cumulative exceeds `u`, for u in
    /// [0, 1), so that a uniform `u` draws each value with exactly its probability. Below 0 (and for
    /// not-a-number) it is the minimum, from 1 on the maximum.
    pub fn quantile(&self, u: f64) -> f64 {
        let u = u.max(0.0);
        self.quantile_before(self.knots.partition_point(|&(cumulative, _)| cumulative <= u), u)
    }

    /// The quantile of `u`, given how many knots have a cumulative of at most `u`.
    pub(crate) fn quantile_before(&self, passed: usize, u: f64) -> f64 {
        let Some(&(c1, v1)) = self.knots.get(passed) else { return self.max() };
        if self.form == Form::Step || passed == 0 {
            return v1;
        }
        let (c0, v0) = self.knots[passed - 1];
        (v0 + (v1 - v0) * ((u - c0) / (c1 - c0))).min(v1)
    }

    /// P(X ≤ x).
    pub fn cdf(&self, x: f64) -> f64 {
        self.cdf_after(self.knots.partition_point(|&(_, value)| value <= x), x)
    }

    /// P(X < x): the limit of [`cdf`](Self::cdf) from the left.
    pub fn cdf_left(&self, x: f64) -> f64 {
        self.cdf_after(self.knots.partition_point(|&(_, value)| value < x), x)
    }

    /// The distribution function beside `x`, on the side where `passed` knots lie to its left.
    pub(crate) fn cdf_after(&self, passed: usize, x: f64) -> f64 {
        if passed == 0 {
            return 0.0;
        }
        let (c0, v0) = self.knots[passed - 1];
        if self.form == Form::Step || passed == self.knots.len() {
            return c0;
        }
        let (c1, v1) = self.knots[passed];
        if x >= v1 { c1 } else { (c0 + (c1 - c0) * ((x - v0) / (v1 - v0))).min(c1) }
    }

    /// The mean, in the values' unit.
    pub fn mean(&self) -> f64 {
        self.sum_pieces(|low, high| 0.5 * (low + high))
    }

    /// The mean of the square, in the values' unit squared.
    pub fn second_moment(&self) -> f64 {
        self.sum_pieces(|low, high| (low * low + low * high + high * high) / 3.0)
    }

    /// Sums `of(lowest, highest)` over the pieces of the law, each weighted by its probability.
    fn sum_pieces(&self, of: impl Fn(f64, f64) -> f64) -> f64 {
        self.pieces().fold(0.0, |sum, (share, low, high)| sum + share * of(low, high))
    }

    /// The pieces of the law, ascending: the probability of each, and the two values between which it is
    /// uniform, the same two for an atom.
    pub fn pieces(&self) -> impl Iterator<Item = (f64, f64, f64)> + '_ {
        let (mut before, mut low) = (0.0, self.min());
        self.knots.iter().map(move |&(cumulative, value)| {
            let from = if self.form == Form::Step { value } else { low };
            let share = cumulative - before;
            (before, low) = (cumulative, value);
            (share, from, value)
        })
    }

    /// An independent draw, by inversion. One word of the stream.
    pub fn draw(&self, rng: &mut Rng) -> f64 {
        self.quantile(rng.unit())
    }

    /// `n` independent draws in ascending order, without sorting: sorted uniforms meet the knots in one
    /// walk, O(n + knots). A sampling floor needs this two hundred times.
    pub fn draw_sorted(&self, rng: &mut Rng, n: usize) -> Vec<f64> {
        let mut drawn = sorted_uniforms(rng, n);
        let mut passed = 0;
        for place in &mut drawn {
            while self.knots.get(passed).is_some_and(|knot| knot.0 <= *place) {
                passed += 1;
            }
            *place = self.quantile_before(passed, *place);
        }
        drawn
    }

    /// The law of `factor`·X: another unit, or a faster clock. Knots that the factor makes equal
    /// (a tiny one) are merged, and values stay finite.
    ///
    /// # Panics
    /// If `factor` is not a finite number above 0.
    pub fn scaled(&self, factor: f64) -> Empirical {
        assert!(factor.is_finite() && factor > 0.0, "a scale must be above 0 and finite: {factor}");
        let mut knots: Vec<(f64, f64)> = Vec::with_capacity(self.knots.len());
        for &(cumulative, value) in &self.knots {
            let value = (value * factor).min(f64::MAX);
            match knots.last_mut() {
                Some(last) if self.form == Form::Step && last.1 == value => last.0 = cumulative,
                _ => knots.push((cumulative, value)),
            }
        }
        Empirical { form: self.form, samples: self.samples, knots }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    fn step() -> Empirical {
        Empirical::new(Form::Step, 10, vec![(0.5, 40.0), (0.75, 576.0), (1.0, 1_460.0)])
            .expect("a step table")
    }

    /// Straight from 1 to 2, an atom of 0.3 at 2, nothing up to 7, straight to 9.
    fn linear() -> Empirical {
        let knots = vec![(0.0, 1.0), (0.3, 2.0), (0.6, 2.0), (0.6, 7.0), (1.0, 9.0)];
        Empirical::new(Form::Linear, 10, knots).expect("a linear table")
    }

    #[test]
    fn step_figures_by_hand() {
        let law = step();
        for (u, value) in [(-0.1, 40.0), (0.0, 40.0), (0.499, 40.0), (0.5, 576.0), (0.75, 1_460.0)]
        {
            assert_eq!(law.quantile(u), value, "quantile {u}");
        }
        assert_eq!((law.quantile(1.0), law.quantile(f64::NAN)), (1_460.0, 40.0));
        for (x, left, right) in
            [(39.0, 0.0, 0.0), (40.0, 0.0, 0.5), (500.0, 0.5, 0.5), (1_460.0, 0.75, 1.0)]
        {
            assert_eq!((law.cdf_left(x), law.cdf(x)), (left, right), "at {x}");
        }
        assert_eq!(law.mean(), 20.0 + 144.0 + 365.0);
        assert_eq!(law.second_moment(), 0.5 * 1_600.0 + 0.25 * (331_776.0 + 2_131_600.0));
        assert_eq!((law.min(), law.max(), law.samples()), (40.0, 1_460.0, 10));
    }

    #[test]
    fn linear_figures_by_hand() {
        let law = linear();
        for (u, value) in
            [(0.0, 1.0), (0.15, 1.5), (0.3, 2.0), (0.59, 2.0), (0.6, 7.0), (0.8, 8.0), (1.0, 9.0)]
        {
            assert!((law.quantile(u) - value).abs() < 1e-12, "quantile {u}: {}", law.quantile(u));
        }
        for (x, left, right) in [
            (0.5, 0.0, 0.0),
            (1.0, 0.0, 0.0),
            (1.5, 0.15, 0.15),
            (2.0, 0.3, 0.6),
            (5.0, 0.6, 0.6),
            (7.0, 0.6, 0.6),
            (8.0, 0.8, 0.8),
            (9.0, 1.0, 1.0),
        ] {
            assert!((law.cdf_left(x) - left).abs() < 1e-12, "left of {x}: {}", law.cdf_left(x));
            assert!((law.cdf(x) - right).abs() < 1e-12, "at {x}: {}", law.cdf(x));
        }
        assert!((law.mean() - (0.3 * 1.5 + 0.3 * 2.0 + 0.4 * 8.0)).abs() < 1e-12);
        let squares = 0.3 * 7.0 / 3.0 + 0.3 * 4.0 + 0.4 * (49.0 + 63.0 + 81.0) / 3.0;
        assert!((law.second_moment() - squares).abs() < 1e-12);
    }

    #[test]
    fn quantile_and_cdf_are_inverse_to_each_other() {
        let mut rng = Rng::new(1, 0, 0);
        for law in [step(), linear()] {
            for _ in 0..10_000 {
                let u = rng.unit();
                let value = law.quantile(u);
                let (left, right) = (law.cdf_left(value), law.cdf(value));
                assert!(left <= u + 1e-12 && u <= right + 1e-12, "{u}: {left}..={right}");
            }
        }
    }

    #[test]
    fn a_knot_is_met_exactly() {
        // In floats 0.05 + (0.21 − 0.05) falls short of 0.21.
        let knots = vec![(0.0, 1.0), (0.05, 2.0), (0.21, 3.0), (1.0, 4.0)];
        let law = Empirical::new(Form::Linear, 1, knots).expect("a table");
        assert_eq!((law.cdf_left(3.0), law.cdf(3.0)), (0.21, 0.21));
    }

    #[test]
    fn draws_have_the_moments_of_the_table() {
        for law in [step(), linear()] {
            let mut rng = Rng::new(2, 0, 0);
            let mut drawn: Vec<f64> = (0..100_000).map(|_| law.draw(&mut rng)).collect();
            drawn.extend(law.draw_sorted(&mut rng, 100_000));
            let n = drawn.len() as f64;
            let mean = drawn.iter().sum::<f64>() / n;
            let squares = drawn.iter().map(|value| value * value).sum::<f64>() / n;
            assert!((mean / law.mean() - 1.0).abs() < 0.01, "{:?}: mean {mean}", law.form());
            assert!((squares / law.second_moment() - 1.0).abs() < 0.01, "{:?}", law.form());
            assert!(drawn[100_000..].is_sorted());
        }
    }

    #[test]
    fn scales_values_and_nothing_else() {
        let law = linear().scaled(0.5);
        assert_eq!(law.knots()[3], (0.6, 3.5));
        assert!((law.mean() - 0.5 * linear().mean()).abs() < 1e-12);
        let squashed = step().scaled(5e-324);
        assert!(Empirical::new(Form::Step, 10, squashed.knots().to_vec()).is_ok());
        let stretched = step().scaled(f64::MAX);
        assert!(Empirical::new(Form::Step, 10, stretched.knots().to_vec()).is_ok());
    }

    #[test]
    fn refuses_tables_that_are_no_law() {
        use EmpiricalError::*;
        let (step, linear) = (Form::Step, Form::Linear);
        for (form, knots, error) in [
            (step, vec![], Empty),
            (step, vec![(0.5, 1.0), (1.0, f64::NAN)], NotFinite(1)),
            (step, vec![(f64::NAN, 1.0)], NotFinite(0)),
            (step, vec![(1.0, -1.0)], Negative(0)),
            (step, vec![(0.0, 1.0), (1.0, 2.0)], NotMonotone(0)),
            (step, vec![(0.5, 1.0), (1.0, 1.0)], NotMonotone(1)),
            (step, vec![(0.5, 1.0), (0.5, 2.0), (1.0, 3.0)], NotMonotone(1)),
            (step, vec![(0.5, 1.0), (0.9, 2.0)], LastNotOne(0.9)),
            (linear, vec![(0.1, 1.0), (1.0, 2.0)], FirstNotZero(0.1)),
            (linear, vec![(0.0, 2.0), (1.0, 1.0)], NotMonotone(1)),
            (linear, vec![(0.0, 1.0), (0.5, 2.0), (0.4, 2.0), (1.0, 3.0)], NotMonotone(2)),
            (linear, vec![(0.0, 1.0)], LastNotOne(0.0)),
            (linear, vec![(0.0, 1.0), (2.0, 2.0)], LastNotOne(2.0)),
            (linear, vec![(0.0, 1.0); KNOTS_LIMIT + 1], TooManyKnots(KNOTS_LIMIT + 1)),
        ] {
            let found = Empirical::new(form, 1, knots).expect_err("no law");
            assert_eq!(found, error);
            assert!(!found.to_string().contains('\n'));
        }
    }

    #[test]
    fn laws_round_trip_through_json_to_the_bit() {
        let mut rng = Rng::new(3, 0, 0);
        let times: Vec<f64> = (0..3_000).map(|_| rng.exponential(0.1)).collect();
        for law in [step(), linear(), Empirical::linear_from(times, 512).expect("times")] {
            let text = serde_json::to_string(&law).expect("serialises");
            assert_eq!(serde_json::from_str::<Empirical>(&text).expect("reads back"), law);
        }
        assert_eq!(
            serde_json::to_string(&step()).expect("serialises"),
            r#"{"form":"step","samples":10,"knots":[[0.5,40.0],[0.75,576.0],[1.0,1460.0]]}"#
        );
    }

    #[test]
    fn a_file_is_checked_at_the_door() {
        for (text, complaint) in [
            (r#"{"form":"step","samples":1,"knots":[[1,2]],"unit":"s"}"#, "unknown field `unit`"),
            (r#"{"form":"round","samples":1,"knots":[[1,2]]}"#, "unknown variant `round`"),
            (r#"{"form":"step","samples":-1,"knots":[[1,2]]}"#, "invalid value"),
            (r#"{"form":"step","samples":1,"knots":[[1,-2]]}"#, "is negative"),
            (r#"{"form":"step","samples":1,"knots":[[0.5,2]]}"#, "end with 1"),
            (r#"{"form":"step","samples":1}"#, "missing field `knots`"),
        ] {
            let error = serde_json::from_str::<Empirical>(text).expect_err("must be refused");
            assert!(error.to_string().contains(complaint), "{text}: {error}");
        }
    }
}
