//! Thinning: which few points of a long sorted sample draw the same curve.
//!
//! A curve a few hundred pixels wide needs a few hundred points, but not evenly chosen ones: a CDF
//! needs its tails. [`grid`] takes values at even ranks, so that no more than `1 / limit` of the
//! sample ever lies between two of them; [`tail_grid`] spends half of its points on ranks that
//! approach the maximum geometrically, so that the packet that was slowest of a million is still
//! drawn. The cumulative share at the chosen values ([`cumulative`]) is exact, not interpolated. Of a
//! course over time [`outline`] keeps the points without which the line would be seen to differ
//! (Douglas and Peucker 1973): the end points, and again and again the point farthest from the line
//! between two that are kept, until none is farther than the slack.

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

/// The points of a line that keep it within `slack` (in x, in y; positive) of the whole.
pub fn outline(points: &[[f64; 2]], slack: [f64; 2]) -> Curve {
    let Some(last) = points.len().checked_sub(1) else { return Curve::new() };
    let scaled: Vec<[f64; 2]> = points.iter().map(|p| [p[0] / slack[0], p[1] / slack[1]]).collect();
    let mut kept = vec![false; points.len()];
    (kept[0], kept[last]) = (true, true);
    let mut pieces = vec![(0, last)];
    while let Some((from, to)) = pieces.pop() {
        let between = (from + 1..to).map(|i| (i, distance(scaled[i], scaled[from], scaled[to])));
        let farthest = between.max_by(|a, b| a.1.total_cmp(&b.1));
        if let Some((at, _)) = farthest.filter(|(_, away)| *away > 1.0) {
            kept[at] = true;
            pieces.extend([(from, at), (at, to)]);
        }
    }
    points.iter().zip(&kept).filter(|(_, kept)| **kept).map(|(point, _)| *point).collect()
}

/// From a point to the piece of line between two others.
fn distance(point: [f64; 2], from: [f64; 2], to: [f64; 2]) -> f64 {
    let (dx, dy) = (to[0] - from[0], to[1] - from[1]);
    let (px, py) = (point[0] - from[0], point[1] - from[1]);
    let length = dx * dx + dy * dy;
    let along = if length > 0.0 { ((px * dx + py * dy) / length).clamp(0.0, 1.0) } else { 0.0 };
    (px - along * dx).hypot(py - along * dy)
}

fn rank(last: usize, step: usize, steps: usize) -> usize {
    (last as u128 * step as u128 / steps as u128) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    fn sample(count: usize) -> Vec<f64> {
        let mut rng = Rng::new(7, 0, 0);
        let mut values: Vec<f64> = (0..count).map(|_| 1.0 / (1.0 - rng.unit())).collect();
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
    fn an_outline_is_short_and_near() {
        let course: Vec<[f64; 2]> = (0..900)
            .map(|i| [f64::from(i), if i < 400 { f64::from(i) } else { 400.0 + f64::from(i % 3) }])
            .collect();
        let slack = [2.0, 3.0];
        let kept = outline(&course, slack);
        assert!(kept.len() < 6 && kept.first() == course.first() && kept.last() == course.last());
        for point in &course {
            let scale = |p: [f64; 2]| [p[0] / slack[0], p[1] / slack[1]];
            let away = kept.windows(2).map(|w| distance(scale(*point), scale(w[0]), scale(w[1])));
            assert!(away.fold(f64::INFINITY, f64::min) <= 1.0, "{point:?}");
        }
        assert_eq!((outline(&[], slack).len(), outline(&course[..1], slack).len()), (0, 1));
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
