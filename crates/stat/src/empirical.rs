//! An empirical distribution as a compact quantile table: a law of traffic that fits in a model file.
//!
//! A table is a list of knots (cumulative, value) in one of two forms.
//!
//! * *step*: a discrete law. P(X ≤ vⱼ) = cⱼ, and nothing lies between the values. Sizes in bytes are
//!   of this form.
//! * *linear*: a distribution function that is straight between its knots, so every value between
//!   two knots may be drawn. Times are of this form. Two knots of one value and different
//!   cumulatives are an atom; two of one cumulative and different values are a gap.
//!
//! Draws are by inversion: `quantile(u)` of a uniform u. Inversion is monotone, and so it is what
//! stratified and sorted draws need. All the quantities here follow from the knots alone, in closed
//! form; how knots are made from samples stands in `compact`, how two laws differ in `distance`.
//!
//! The unit of the values is the caller's (bytes, seconds); all of them are at least 0.

use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::{Rng, sorted_uniforms};

/// The most knots a table may have; at 65,536 a model file stays at a few megabytes.
pub const KNOTS_LIMIT: usize = 1 << 16;

/// What lies between two knots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// Nothing: the law is discrete.
    Step,
    /// A straight piece of the distribution function.
    Linear,
}

/// Why a list of knots is no distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EmpiricalError {
    /// There is no knot, or no sample to make one from.
    Empty,
    /// The cumulative or value of this knot (or the sample of this index) is infinite or not a number.
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
#[serde(try_from = "Unchecked")]
pub struct Empirical {
    form: Form,
    samples: u64,
    knots: Vec<(f64, f64)>,
}

/// The same as read from a file, before its promises are checked.
#[derive(Deserialize)]
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

    /// The value under which the share `u` lies: the least value whose cumulative exceeds `u`, for
    /// u in [0, 1), so that a uniform `u` draws each value with exactly its probability. Below 0
    /// (and for not-a-number) it is the minimum, from 1 on the maximum.
    pub fn quantile(&self, u: f64) -> f64 {
        let u = u.max(0.0);
        self.quantile_before(self.knots.partition_point(|&(cumulative, _)| cumulative <= u), u)
    }

    /// The quantile of `u`, given how many knots have a cumulative of at most `u`.
    fn quantile_before(&self, passed: usize, u: f64) -> f64 {
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

    /// Sums `of(lowest, highest)` over the pieces of the law, each weighed by its probability and
    /// uniform between its two values.
    fn sum_pieces(&self, of: impl Fn(f64, f64) -> f64) -> f64 {
        let (mut before, mut low, mut sum) = (0.0, self.min(), 0.0);
        for &(cumulative, value) in &self.knots {
            let from = if self.form == Form::Step { value } else { low };
            sum += (cumulative - before) * of(from, value);
            (before, low) = (cumulative, value);
        }
        sum
    }

    /// An independent draw, by inversion. One word of the stream.
    pub fn draw(&self, rng: &mut Rng) -> f64 {
        self.quantile(rng.unit())
    }

    /// `n` independent draws in ascending order, without sorting: sorted uniforms meet the knots in
    /// one walk, O(n + knots). What a sampling floor needs two hundred times.
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
