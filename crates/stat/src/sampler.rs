//! Many draws from one quantile table, by a guide table (Chen and Asau, 1974).
//!
//! A draw by inversion counts the knots that its uniform number has passed. A guide divides [0, 1) into equal
//! cells, more than the table has knots, and holds for each cell how many knots lie before it; from there the
//! search takes one step on average. The draws are those of [`Empirical::draw`], number by number.

use alloc::vec::Vec;

use crate::rng::UNIT_STEP;
use crate::{Empirical, Rng};

/// Cells of the guide for each knot: most of them contain no knot, and need no search.
const CELLS_PER_KNOT: usize = 4;

/// An empirical law with a guide to its knots.
#[derive(Clone, Debug)]
pub struct Sampler<'a> {
    law: &'a Empirical,
    /// Knots whose cumulative is at most that of the cell's beginning.
    guide: Vec<u32>,
    /// A random word shifted right by this many bits is the number of its cell.
    shift: u32,
}

impl<'a> Sampler<'a> {
    /// Draws from `law`; the guide has 16 to 32 bytes for each of its knots.
    pub fn new(law: &'a Empirical) -> Sampler<'a> {
        let knots = law.knots();
        let cells = CELLS_PER_KNOT * knots.len().next_power_of_two();
        let mut passed = 0;
        let guide = (0..cells).map(|cell| {
            let begins = cell as f64 / cells as f64;
            while knots.get(passed).is_some_and(|knot| knot.0 <= begins) {
                passed += 1;
            }
            passed as u32
        });
        Sampler { law, guide: guide.collect(), shift: u64::BITS - cells.trailing_zeros() }
    }

    /// An independent draw: what [`Empirical::draw`] gives. One word of the stream.
    pub fn draw(&self, rng: &mut Rng) -> f64 {
        let word = rng.next_u64();
        // As in `Rng::unit`; the number of cells is a power of two, so that the top bits are the cell.
        let u = (word >> 11) as i64 as f64 * UNIT_STEP;
        let mut passed = self.guide[(word >> self.shift) as usize] as usize;
        let knots = self.law.knots();
        while knots.get(passed).is_some_and(|knot| knot.0 <= u) {
            passed += 1;
        }
        self.law.quantile_before(passed, u)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pareto;

    #[test]
    fn draws_are_those_of_the_table() {
        for (seed, count, knots_max) in [(1, 1, 8), (2, 30, 8), (3, 5_000, 300), (4, 50_000, 2_048)]
        {
            let mut rng = Rng::new(seed, 0, 0);
            let samples: Vec<f64> =
                (0..count).map(|_| libm::floor(pareto(&mut rng, 1.2, 10.0))).collect();
            let laws = [
                Empirical::step_from(samples.clone(), knots_max).expect("samples"),
                Empirical::linear_from(samples, knots_max).expect("samples"),
            ];
            for law in laws {
                let sampler = Sampler::new(&law);
                let (mut one, mut other) = (Rng::new(seed, 1, 0), Rng::new(seed, 1, 0));
                for _ in 0..20_000 {
                    let (one, other) = (sampler.draw(&mut one), law.draw(&mut other));
                    assert_eq!(one.to_bits(), other.to_bits());
                }
            }
        }
    }
}
