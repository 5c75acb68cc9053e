//! Thinning: which few points of a long sorted sample draw the same curve.
//!
//! A curve a few hundred pixels wide needs a few hundred points, but not evenly chosen ones: a CDF
//! needs its tails. [`grid`] takes values at even ranks, so that between two of them never lies more
//! than `1 / limit` of the sample; [`tail_grid`] spends half of its points on ranks that approach
//! the maximum geometrically, so that the packet that was slowest of a million is still drawn. The
//! cumulative share at the chosen values ([`cumulative`]) is exact, not interpolated.

use super::story::Curve;

/// At most `limit` (at least 2) distinct values of a sorted sample at even ranks, both ends included.
pub fn grid(sorted: &[f64], limit: usize) -> Vec<f64> {
    let limit = limit.max(2);
    let Some(last) = sorted.len().checked_sub(1) else { return Vec::new() };
    let steps = last.min(limit - 1).max(1);
    let mut values: Vec<f64> = (0..=steps).map(|i| sorted[rank(last, i, steps)]).collect();
    values.dedup();
    values
}

/// Like [`grid`], with half of the points at ranks that approach the maximum geometrically.
pub fn tail_grid(sorted: &[f64], limit: usize) -> Vec<f64> {
    let half = (limit / 2).max(2);
    let mut values = grid(sorted, half);
    let count = sorted.len();
    if count > half {
        let factor = (count as f64).ln() / (half - 1) as f64;
        values.extend((0..half).map(|i| {
            let from_top = (factor * i as f64).exp() as usize;
            sorted[count - from_top.clamp(1, count)]
        }));
        values.sort_by(f64::total_cmp);
        values.dedup();
    }
    values
}

/// The exact share of a sorted sample at most each value of `at`.
pub fn cumulative(sorted: &[f64], at: &[f64]) -> Curve {
    if sorted.is_empty() {
        return Curve::new();
    }
    let count = sorted.len() as f64;
    at.iter().map(|&x| [x, sorted.partition_point(|&v| v <= x) as f64 / count]).collect()
}

fn rank(last: usize, step: usize, steps: usize) -> usize {
    (last as u128 * step as u128 / steps as u128) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(count: usize) -> Vec<f64> {
        let mut chance = 7_u64;
        let mut values: Vec<f64> = (0..count)
            .map(|_| {
                chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                1.0 / (1.0 - (chance >> 11) as f64 / (1_u64 << 53) as f64)
            })
            .collect();
        values.sort_by(f64::total_cmp);
        values
    }

    #[test]
    fn a_grid_leaves_no_wide_step() {
        let sorted = sample(50_000);
        let curve = cumulative(&sorted, &grid(&sorted, 1_000));
        assert!(curve.len() <= 1_000);
        assert_eq!(curve[curve.len() - 1][1], 1.0);
        assert!(curve.windows(2).all(|w| w[1][1] - w[0][1] <= 0.001_03 && w[1][0] > w[0][0]));
    }

    #[test]
    fn a_tail_grid_keeps_the_slowest() {
        let sorted = sample(50_000);
        let values = tail_grid(&sorted, 400);
        assert!(values.len() <= 400, "{}", values.len());
        for slowest in 1..=8 {
            assert!(
                values.contains(&sorted[sorted.len() - slowest]),
                "rank {slowest} from the top"
            );
        }
    }

    #[test]
    fn small_samples_are_kept_whole() {
        assert!(grid(&[], 10).is_empty() && tail_grid(&[], 10).is_empty());
        assert_eq!(grid(&[3.0], 10), [3.0]);
        assert_eq!(tail_grid(&[1.0, 1.0, 2.0], 10), [1.0, 2.0]);
        assert_eq!(cumulative(&[1.0, 1.0, 2.0], &[1.0, 2.0]), [[1.0, 2.0 / 3.0], [2.0, 1.0]]);
        assert!(cumulative(&[], &[1.0]).is_empty());
    }
}
