//! A mean of independent runs with its interval: Student's t, 95 %.

use nilometer_stat::trimmed::two_sided;

/// The mean of `values`; nothing of nothing.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Half the width of the 95 % confidence interval around the mean of `values`; nothing where there
/// are fewer than two.
pub fn half_width(values: &[f64]) -> Option<f64> {
    let centre = mean(values)?;
    if values.len() < 2 {
        return None;
    }
    let degrees = values.len() - 1;
    let squares: f64 = values.iter().map(|value| (value - centre).powi(2)).sum();
    let error = (squares / degrees as f64 / values.len() as f64).sqrt();
    Some(two_sided(degrees as f64, 0.95) * error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    #[test]
    fn small_samples_by_hand() {
        assert_eq!((mean(&[]), half_width(&[]), half_width(&[3.0])), (None, None, None));
        // Deviation 1 over the square root of 3, times 4.3027.
        let half = half_width(&[1.0, 2.0, 3.0]).expect("three values");
        assert!((half - 4.302_653 / 3f64.sqrt()).abs() < 1e-6, "{half}");
        for (degrees, t) in [(1.0, 12.7062), (31.0, 2.0395), (120.0, 1.9799)] {
            assert!((two_sided(degrees, 0.95) - t).abs() < 1e-4, "{degrees}");
        }
    }

    #[test]
    fn nineteen_intervals_of_twenty_hold_the_truth() {
        for count in [3usize, 10, 40] {
            let mut rng = Rng::new(5, 1, count as u64);
            let held = (0..20_000).filter(|_| {
                let values: Vec<f64> = (0..count).map(|_| rng.normal()).collect();
                mean(&values).expect("values").abs() <= half_width(&values).expect("values")
            });
            let share = held.count() as f64 / 20_000.0;
            assert!((share - 0.95).abs() < 0.006, "{count}: {share}");
        }
    }
}
