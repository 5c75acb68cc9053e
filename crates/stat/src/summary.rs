//! Medians and quantiles of small samples held in full.
//!
//! Quantiles interpolate between order statistics, with x₍₀₎ at 0 and x₍ₙ₋₁₎ at 1 (definition 7 of
//! Hyndman & Fan 1996, the default of R and NumPy). For millions of delays use
//! [`Histogram`](crate::Histogram), which keeps no sample.

/// The median of `values`, which are left sorted; `None` if there are none. Not-a-numbers sort
/// last.
pub fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    quantile_sorted(values, 0.5)
}

/// The `q`-quantile (q in 0..=1, taken to the nearer end outside it) of values in ascending order;
/// `None` if there are none.
pub fn quantile_sorted(sorted: &[f64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = q.clamp(0.0, 1.0) * last as f64;
    let low = (at as usize).min(last);
    let high = (low + 1).min(last);
    let part = at - low as f64;
    if part <= 0.0 {
        return Some(sorted[low]);
    }
    Some(sorted[low] + (sorted[high] - sorted[low]) * part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_even_one_and_none() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&mut [7.0]), Some(7.0));
        assert_eq!(median(&mut []), None);
    }

    #[test]
    fn quantiles_interpolate_and_stay_inside() {
        let sorted = [10.0, 20.0, 30.0, 50.0];
        for (q, expected) in
            [(-1.0, 10.0), (0.0, 10.0), (0.25, 17.5), (0.5, 25.0), (0.9, 44.0), (1.0, 50.0)]
        {
            let found = quantile_sorted(&sorted, q).expect("four values");
            assert!((found - expected).abs() < 1e-12, "q {q}: {found}, not {expected}");
        }
        assert_eq!(quantile_sorted(&sorted, 2.0), Some(50.0));
    }
}
