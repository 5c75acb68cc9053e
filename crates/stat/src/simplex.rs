//! The least value of a function of a few numbers, found without its derivative.
//!
//! Nelder and Mead (*The Computer Journal* 7, 1965) keep one point more than there are arguments. The
//! worst point is reflected through the middle of the others; if the new point is the best of all, it
//! moves twice as far; if it is no better than the rest, half as far; and if that does not help either,
//! all points move half way to the best. So the simplex moves downhill, stretches along valleys and
//! shrinks around a minimum. Nothing is random.

use core::cmp::Ordering;

/// The most evaluations of the function for each of its arguments.
const EVALUATIONS_MAX: usize = 500;

/// Where the function is least, near `start`, and its value there. The first simplex is `width` wide in
/// each direction; the search ends when its values differ by no more than `tolerance`.
pub fn minimise<const D: usize>(
    of: &dyn Fn(&[f64; D]) -> f64,
    start: [f64; D],
    width: f64,
    tolerance: f64,
) -> ([f64; D], f64) {
    let mut figure = alloc::vec![(start, of(&start))];
    for along in 0..D {
        let mut point = start;
        point[along] += width;
        figure.push((point, of(&point)));
    }
    let by_value = |a: &([f64; D], f64), b: &([f64; D], f64)| -> Ordering { a.1.total_cmp(&b.1) };
    let mut evaluations = D + 1;
    while evaluations < EVALUATIONS_MAX * D {
        figure.sort_by(by_value);
        let (best, (worst, worst_value)) = (figure[0].1, figure[D]);
        if worst_value - best <= tolerance {
            break;
        }
        let middle: [f64; D] = core::array::from_fn(|i| {
            figure[..D].iter().map(|(point, _)| point[i]).sum::<f64>() / D as f64
        });
        let towards = |share: f64| -> ([f64; D], f64) {
            let point = core::array::from_fn(|i| middle[i] + share * (worst[i] - middle[i]));
            (point, of(&point))
        };
        let reflected = towards(-1.0);
        evaluations += 2;
        let next = if reflected.1 < best {
            let further = towards(-2.0);
            if further.1 < reflected.1 { further } else { reflected }
        } else if reflected.1 < figure[D - 1].1 {
            reflected
        } else {
            towards(if reflected.1 < worst_value { -0.5 } else { 0.5 })
        };
        if next.1 < worst_value {
            figure[D] = next;
            continue;
        }
        let centre = figure[0].0;
        for (point, value) in &mut figure[1..] {
            *point = core::array::from_fn(|i| 0.5 * (centre[i] + point[i]));
            *value = of(point);
        }
        evaluations += D;
    }
    figure.sort_by(by_value);
    figure[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curved_valley_is_walked_to_its_end() {
        let rosenbrock = |[x, y]: &[f64; 2]| {
            let (a, b) = (1.0 - x, y - x * x);
            a * a + 100.0 * b * b
        };
        let ([x, y], value) = minimise(&rosenbrock, [-1.2, 1.0], 0.5, 1e-12);
        assert!((x - 1.0).abs() < 1e-4 && (y - 1.0).abs() < 1e-4 && value < 1e-9, "{x} {y}");
    }

    #[test]
    fn four_numbers_of_different_scales() {
        let bowl = |at: &[f64; 4]| -> f64 {
            let terms = at.iter().zip([1.0, 10.0, 100.0, 0.1]).zip([3.0, -1.0, 0.5, 8.0]);
            terms.map(|((x, scale), centre)| scale * (x - centre) * (x - centre)).sum()
        };
        let (at, value) = minimise(&bowl, [0.0; 4], 0.5, 1e-12);
        assert!(value < 1e-8, "{at:?}: {value}");
    }

    #[test]
    fn a_constant_function_ends_at_once() {
        assert_eq!(minimise(&|_: &[f64; 1]| 5.0, [2.0], 1.0, 0.0), ([2.0], 5.0));
    }

    /// The points at which the function is evaluated, and the result.
    fn course<const D: usize>(
        of: impl Fn(&[f64; D]) -> f64,
        start: [f64; D],
        width: f64,
        tolerance: f64,
    ) -> (alloc::vec::Vec<[f64; D]>, ([f64; D], f64)) {
        let evaluated = core::cell::RefCell::new(alloc::vec::Vec::new());
        let noted = |at: &[f64; D]| {
            evaluated.borrow_mut().push(*at);
            of(at)
        };
        let found = minimise(&noted, start, width, tolerance);
        (evaluated.into_inner(), found)
    }

    /// Along one line each step can be followed by hand: reflected, twice as far, half way.
    #[test]
    fn the_figure_is_reflected_stretched_and_shrunk() {
        let (evaluated, found) = course(|[x]| (x - 5.0) * (x - 5.0), [0.0], 1.0, 0.0);
        assert_eq!(evaluated[..2], [[0.0], [1.0]]);
        // 0 through 1 is 2, which is best: 3, which is better still.
        assert_eq!(evaluated[2..4], [[2.0], [3.0]]);
        // 1 through 3 is 5, and 7 is not better.
        assert_eq!(evaluated[4..6], [[5.0], [7.0]]);
        // 3 through 5 is 7, as bad as 3: half way back. Then it continues around 5.
        assert_eq!(evaluated[6..8], [[7.0], [4.0]]);
        assert_eq!(evaluated[8..12], [[6.0], [4.5], [5.5], [4.75]]);
        assert_eq!(found.0, [5.0]);
        // Steps up and down: neither of the two is better than the worst, and the simplex shrinks.
        let steps = |[x, y]: &[f64; 2]| if *x == 0.0 && *y == 0.0 { 0.0 } else { 1.0 };
        let (evaluated, found) = course(steps, [0.0, 0.0], 1.0, 0.0);
        assert_eq!(found, ([0.0, 0.0], 0.0));
        let first = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, -1.0], [0.25, 0.5]];
        assert_eq!(evaluated[..5], first);
        assert_eq!(evaluated[5..7], [[0.5, 0.0], [0.0, 0.5]]);
        // Three evaluations to begin with, four for each time that it shrinks, and 1,000 at most.
        assert_eq!(evaluated.len(), 1_003);
    }

    #[test]
    fn it_ends_when_values_differ_by_the_tolerance() {
        let line = |[x]: &[f64; 1]| *x;
        assert_eq!(course(line, [3.0], 1.0, 1.0).0.len(), 2);
        assert!(course(line, [3.0], 1.0, 0.99).0.len() > 2);
        // Downhill for ever: each step is stretched until 500 evaluations are done.
        assert_eq!(course(line, [3.0], 1.0, 0.0).0.len(), 500);
    }
}
