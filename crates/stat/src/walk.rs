//! Walking up a distribution function of any kind, breakpoint by breakpoint.
//!
//! Every distance of this crate compares two distribution functions that are straight between
//! breakpoints: samples, models, Kaplan–Meier estimates. Given the merged breakpoints in ascending
//! order, a walk returns both one-sided limits in constant time, so a distance is one pass over
//! both laws and is written once for all their pairings.

use crate::Empirical;

/// A distribution function's limits at one point.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Limits {
    /// P(X < x).
    pub left: f64,
    /// P(X ≤ x).
    pub right: f64,
}

/// A distribution function that is visited from left to right.
pub(crate) trait Walk {
    /// The next breakpoint not yet visited; infinite when there is none.
    fn peek(&self) -> f64;

    /// The limits at `x`, which must lie above every earlier `x`.
    fn at(&mut self, x: f64) -> Limits;
}

/// The walk of samples in ascending order: each carries 1/n.
#[derive(Clone, Debug)]
pub(crate) struct Sorted<'a> {
    values: &'a [f64],
    passed: usize,
}

impl<'a> Sorted<'a> {
    /// Walks `values`, which must be in ascending order.
    pub fn new(values: &'a [f64]) -> Self {
        Sorted { values, passed: 0 }
    }

    fn share(&self) -> f64 {
        self.passed as f64 / self.values.len() as f64
    }
}

impl Walk for Sorted<'_> {
    fn peek(&self) -> f64 {
        self.values.get(self.passed).copied().unwrap_or(f64::INFINITY)
    }

    fn at(&mut self, x: f64) -> Limits {
        while self.peek() < x {
            self.passed += 1;
        }
        let left = self.share();
        while self.values.get(self.passed).is_some_and(|&value| value <= x) {
            self.passed += 1;
        }
        Limits { left, right: self.share() }
    }
}

/// The walk of a quantile table.
#[derive(Clone, Debug)]
pub(crate) struct Knots<'a> {
    model: &'a Empirical,
    passed: usize,
}

impl<'a> Knots<'a> {
    pub fn new(model: &'a Empirical) -> Self {
        Knots { model, passed: 0 }
    }
}

impl Walk for Knots<'_> {
    fn peek(&self) -> f64 {
        self.model.knots().get(self.passed).map_or(f64::INFINITY, |knot| knot.1)
    }

    fn at(&mut self, x: f64) -> Limits {
        while self.peek() < x {
            self.passed += 1;
        }
        let left = self.model.cdf_after(self.passed, x);
        while self.model.knots().get(self.passed).is_some_and(|knot| knot.1 <= x) {
            self.passed += 1;
        }
        Limits { left, right: self.model.cdf_after(self.passed, x) }
    }
}

/// The walk of jumps (value, cumulative once it is passed): any discrete law, even one whose
/// probability does not reach 1.
#[derive(Clone, Debug)]
pub(crate) struct Jumps<'a> {
    jumps: &'a [(f64, f64)],
    passed: usize,
}

impl<'a> Jumps<'a> {
    /// Walks `jumps`, whose values must ascend strictly.
    pub fn new(jumps: &'a [(f64, f64)]) -> Self {
        Jumps { jumps, passed: 0 }
    }

    fn reached(&self) -> f64 {
        self.passed.checked_sub(1).map_or(0.0, |last| self.jumps[last].1)
    }
}

impl Walk for Jumps<'_> {
    fn peek(&self) -> f64 {
        self.jumps.get(self.passed).map_or(f64::INFINITY, |jump| jump.0)
    }

    fn at(&mut self, x: f64) -> Limits {
        while self.peek() < x {
            self.passed += 1;
        }
        let left = self.reached();
        if self.peek() == x {
            self.passed += 1;
        }
        Limits { left, right: self.reached() }
    }
}

/// The greatest difference of two distribution functions at any x up to `horizon`: at each
/// breakpoint of either, on both sides of it. Between two breakpoints both are straight, so their
/// difference is greatest at an end.
pub(crate) fn supremum(mut a: impl Walk, mut b: impl Walk, horizon: f64) -> f64 {
    let mut greatest: f64 = 0.0;
    loop {
        let x = a.peek().min(b.peek());
        if x == f64::INFINITY || x > horizon {
            return greatest;
        }
        let (a, b) = (a.at(x), b.at(x));
        greatest = greatest.max((a.left - b.left).abs()).max((a.right - b.right).abs());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Form, Rng};
    use alloc::vec::Vec;

    /// The naive twin evaluates the model by binary search.
    #[test]
    fn knots_walk_agrees_with_binary_search() {
        let knots = [
            (Form::Step, [(0.1, 1.0), (0.3, 2.0), (0.6, 2.5), (0.9, 7.0), (1.0, 9.0)]),
            (Form::Linear, [(0.0, 1.0), (0.3, 2.0), (0.6, 2.0), (0.6, 7.0), (1.0, 9.0)]),
        ];
        for (form, knots) in knots {
            let model = Empirical::new(form, 10, knots.to_vec()).expect("a good table");
            let mut rng = Rng::new(1, 0, 0);
            let mut points: Vec<f64> = (0..2_000).map(|_| rng.unit() * 10.0).collect();
            points.extend(knots.iter().map(|knot| knot.1));
            points.sort_unstable_by(f64::total_cmp);
            points.dedup();
            let mut walk = Knots::new(&model);
            for x in points {
                let expected = Limits { left: model.cdf_left(x), right: model.cdf(x) };
                assert_eq!(walk.at(x), expected, "{form:?} at {x}");
            }
        }
    }

    #[test]
    fn sorted_walk_counts_below_and_at() {
        let values = [1.0, 2.0, 2.0, 2.0, 5.0];
        let mut walk = Sorted::new(&values);
        for (x, left, right) in [(0.5, 0.0, 0.0), (2.0, 0.2, 0.8), (3.0, 0.8, 0.8), (9.0, 1.0, 1.0)]
        {
            assert_eq!(walk.at(x), Limits { left, right }, "at {x}");
        }
        assert_eq!(walk.peek(), f64::INFINITY);
    }

    /// Every x in order, then only every second or third.
    #[test]
    fn jumps_are_passed_below_and_at() {
        let jumps = [(1.0, 0.2), (2.0, 0.5), (4.0, 0.6), (8.0, 0.9)];
        let expected = [
            (0.5, 0.0, 0.0),
            (1.0, 0.0, 0.2),
            (1.5, 0.2, 0.2),
            (2.0, 0.2, 0.5),
            (3.0, 0.5, 0.5),
            (4.0, 0.5, 0.6),
            (7.0, 0.6, 0.6),
            (8.0, 0.6, 0.9),
            (9.0, 0.9, 0.9),
        ];
        for (from, step) in [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4), (6, 1), (8, 1)] {
            let mut walk = Jumps::new(&jumps);
            for &(x, left, right) in expected[from..].iter().step_by(step) {
                assert_eq!(walk.at(x), Limits { left, right }, "at {x}, from {from} by {step}");
                let next = jumps.iter().map(|jump| jump.0).find(|&value| value > x);
                assert_eq!(walk.peek(), next.unwrap_or(f64::INFINITY));
            }
        }
    }
}
