//! The least value of a function of a few numbers, found without its derivative.
//!
//! Nelder and Mead (*The Computer Journal* 7, 1965) keep one point more than there are numbers. The
//! worst point is reflected through the middle of the others; where that is the best of all it goes twice
//! as far, where it is no better than the rest it goes half as far, and where that does not help
//! either all points move half way to the best. So the figure walks downhill, stretches along
//! valleys and shrinks around what it has found. Nothing is drawn by chance.

use core::cmp::Ordering;

/// Evaluations of the function at most, times its numbers.
const EVALUATIONS_MAX: usize = 500;

/// Where the function is least, near `start`, and its value there. The first figure is as wide as
/// `width` in each direction; it ends when its values differ by no more than `tolerance`.
pub(crate) fn minimise<const D: usize>(
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
    fn what_never_changes_ends_at_once() {
        assert_eq!(minimise(&|_: &[f64; 1]| 5.0, [2.0], 1.0, 0.0), ([2.0], 5.0));
    }
}
