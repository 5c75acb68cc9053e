//! Drawing an index by weight in constant time: Walker's alias method, built as Vose does.
//!
//! Cut n weights, scaled to a mean of 1, into n columns of height 1: a column holds what is left of
//! one weight at its foot and, above that, a piece of a single heavier one, its alias. A draw picks
//! a column, then foot or alias. Vose (IEEE TSE 17(9), 1991) fills the columns in O(n): each weight
//! below 1 starts a column, which a weight above 1 fills up, until none is left over. A draw takes
//! two memory accesses where a search on cumulative weights takes log n, and does not thrash the
//! cache for a skewed pool of 65,536 addresses.

use alloc::vec::Vec;
use core::fmt;

use crate::Rng;

/// The most weights a table takes: a /8 of IPv4 addresses.
pub const WEIGHTS_LIMIT: usize = 1 << 24;

/// Why no table can be built.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AliasError {
    /// There is no weight to draw by.
    Empty,
    /// The weight at this index is negative, infinite or not a number.
    NotAWeight(usize),
    /// The weights sum to zero, or to more than a float can hold.
    NoTotal,
    /// There are this many weights, more than [`WEIGHTS_LIMIT`].
    TooMany(usize),
}

impl fmt::Display for AliasError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AliasError::Empty => write!(out, "no weights to draw by: give at least one"),
            AliasError::NotAWeight(index) => {
                write!(out, "weight {index} is not a finite number of at least 0: correct it")
            }
            AliasError::NoTotal => {
                write!(out, "the weights have no usable sum: give one above 0, none near 1e308")
            }
            AliasError::TooMany(count) => {
                write!(out, "{count} weights are more than {WEIGHTS_LIMIT}: merge the rarest")
            }
        }
    }
}

impl core::error::Error for AliasError {}

#[derive(Clone, Copy, Debug)]
struct Column {
    /// The share of the column that belongs to its own index, in 0..=1.
    own: f64,
    alias: u32,
}

/// A table from which indices are drawn in proportion to their weights.
#[derive(Clone, Debug)]
pub struct Alias {
    columns: Vec<Column>,
}

impl Alias {
    /// A table for `weights`, which need not sum to 1. An index of weight 0 is never drawn.
    ///
    /// # Errors
    /// If there are none, too many, one that is no weight, or none above 0.
    pub fn new(weights: &[f64]) -> Result<Alias, AliasError> {
        if weights.is_empty() {
            return Err(AliasError::Empty);
        }
        if weights.len() > WEIGHTS_LIMIT {
            return Err(AliasError::TooMany(weights.len()));
        }
        if let Some(index) = weights.iter().position(|w| !(w.is_finite() && *w >= 0.0)) {
            return Err(AliasError::NotAWeight(index));
        }
        let total: f64 = weights.iter().sum();
        if !(total.is_finite() && total > 0.0) {
            return Err(AliasError::NoTotal);
        }
        let mean = total / weights.len() as f64;
        Ok(Alias { columns: fill(weights.iter().map(|weight| weight / mean).collect()) })
    }

    /// How many indices there are to draw from.
    #[allow(clippy::len_without_is_empty)] // a table is never empty
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// An index, with the probability weight/total. Two words of the stream (three or more with a
    /// chance below len/2⁶⁴).
    pub fn draw(&self, rng: &mut Rng) -> usize {
        let index = rng.below(self.columns.len() as u64) as usize;
        let column = self.columns[index];
        if rng.unit() < column.own { index } else { column.alias as usize }
    }
}

/// Vose's construction on heights whose mean is 1. The heights that remain always have a mean of 1,
/// so when either kind runs out, the columns left over are full but for rounding and keep
/// themselves.
fn fill(mut heights: Vec<f64>) -> Vec<Column> {
    let mut columns: Vec<Column> =
        (0..heights.len() as u32).map(|alias| Column { own: 1.0, alias }).collect();
    let (mut short, mut tall) = (Vec::new(), Vec::new());
    for (index, &height) in heights.iter().enumerate() {
        if height < 1.0 { short.push(index) } else { tall.push(index) }
    }
    while let Some(&donor) = tall.last() {
        let Some(founder) = short.pop() else { break };
        columns[founder] = Column { own: heights[founder], alias: donor as u32 };
        heights[donor] -= 1.0 - heights[founder];
        if heights[donor] < 1.0 {
            tall.pop();
            short.push(donor);
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parametric::zipf_weights;

    /// The naive twin: a search along the running sum of the weights.
    fn draw_linearly(weights: &[f64], rng: &mut Rng) -> usize {
        let mut left = rng.unit() * weights.iter().sum::<f64>();
        for (index, weight) in weights.iter().enumerate() {
            if left < *weight {
                return index;
            }
            left -= weight;
        }
        weights.len() - 1
    }

    /// Pearson's statistic of counts against weights.
    fn chi_square(counts: &[u32], weights: &[f64], draws: u32) -> f64 {
        let total: f64 = weights.iter().sum();
        let expected = weights.iter().map(|weight| weight / total * f64::from(draws));
        counts.iter().zip(expected).map(|(&c, e)| (f64::from(c) - e) * (f64::from(c) - e) / e).sum()
    }

    #[test]
    fn agrees_with_a_linear_search() {
        let weights = zipf_weights(100, 1.0);
        let alias = Alias::new(&weights).expect("good weights");
        let draws = 1_000_000;
        let (mut rng, mut twin_rng) = (Rng::new(3, 0, 0), Rng::new(3, 0, 1));
        let (mut counts, mut twin_counts) = ([0u32; 100], [0u32; 100]);
        for _ in 0..draws {
            counts[alias.draw(&mut rng)] += 1;
            twin_counts[draw_linearly(&weights, &mut twin_rng)] += 1;
        }
        // 99 degrees of freedom: mean 99, deviation 14; 170 is passed once in 100,000 seeds.
        for (name, counts) in [("alias", &counts), ("twin", &twin_counts)] {
            let statistic = chi_square(counts, &weights, draws);
            assert!(statistic < 170.0, "{name}: chi-square {statistic}");
        }
        let between: f64 = counts
            .iter()
            .zip(&twin_counts)
            .map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2) / f64::from(a + b))
            .sum();
        assert!(between < 170.0, "alias against twin: chi-square {between}");
    }

    #[test]
    fn columns_hold_each_weight_exactly_once() {
        let mut rng = Rng::new(4, 0, 0);
        for n in [1usize, 2, 3, 10, 1_000] {
            let weights: Vec<f64> = (0..n).map(|_| rng.exponential(1.0)).collect();
            let alias = Alias::new(&weights).expect("good weights");
            assert_eq!(alias.len(), n);
            let mut held = alloc::vec![0.0; n];
            for (index, column) in alias.columns.iter().enumerate() {
                held[index] += column.own;
                held[column.alias as usize] += 1.0 - column.own;
            }
            let mean = weights.iter().sum::<f64>() / n as f64;
            for (held, weight) in held.iter().zip(&weights) {
                assert!((held - weight / mean).abs() < 1e-9, "{held} against {}", weight / mean);
            }
        }
    }

    #[test]
    fn never_draws_a_weight_of_zero() {
        let alias = Alias::new(&[0.0, 5.0, 0.0, 1e-9, 0.0]).expect("good weights");
        let mut rng = Rng::new(4, 0, 1);
        assert!((0..100_000).all(|_| [1, 3].contains(&alias.draw(&mut rng))));
        let only = Alias::new(&[0.25]).expect("good weights");
        assert_eq!(only.draw(&mut rng), 0);
    }

    #[test]
    fn invalid_weights_are_refused() {
        for (weights, error) in [
            (&[][..], AliasError::Empty),
            (&[1.0, -1.0], AliasError::NotAWeight(1)),
            (&[f64::NAN], AliasError::NotAWeight(0)),
            (&[1.0, 2.0, f64::INFINITY], AliasError::NotAWeight(2)),
            (&[0.0, 0.0], AliasError::NoTotal),
            (&[1e308, 1e308], AliasError::NoTotal),
        ] {
            assert_eq!(Alias::new(weights).map(|alias| alias.len()), Err(error));
        }
    }
}
