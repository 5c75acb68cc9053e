//! A mean of independent runs with its interval: Student's t, 95 %.

/// Quantiles 0.975 of Student's t for 1 to 30 degrees of freedom, from the usual tables.
const T_975: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// The normal distribution's quantile 0.975.
const Z_975: f64 = 1.959_964;

/// Quantile 0.975 of Student's t. Beyond the table by the first two terms of Cornish and Fisher's
/// expansion, which is right to four digits there.
fn t_975(degrees: usize) -> f64 {
    match T_975.get(degrees.wrapping_sub(1)) {
        Some(&t) => t,
        None => {
            let (z, n) = (Z_975, degrees as f64);
            let (z3, z5) = (z.powi(3), z.powi(5));
            z + (z3 + z) / (4.0 * n) + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * n * n)
        }
    }
}

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
    Some(t_975(degrees) * error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    #[test]
    fn small_samples_by_hand() {
        assert_eq!((mean(&[]), half_width(&[]), half_width(&[3.0])), (None, None, None));
        // Deviation 1 over the square root of 3, times 4.303.
        let half = half_width(&[1.0, 2.0, 3.0]).expect("three values");
        assert!((half - 4.303 / 3f64.sqrt()).abs() < 1e-9, "{half}");
        assert!((t_975(31) - 2.0395).abs() < 1e-4 && (t_975(120) - 1.9799).abs() < 1e-4);
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
