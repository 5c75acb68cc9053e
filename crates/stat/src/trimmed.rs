//! The middle of noisy repetitions and how well it is known: trimmed means and their intervals.
//!
//! A measurement that is repeated on a machine with other work has rounds that are far off, and a mean
//! follows them. Of a trimmed mean (Tukey and McLaughlin 1963) the lowest and the highest fifth are left
//! out before it is taken; what they are told by is put back into its error, for which each of them counts
//! as the outermost value that was kept (they are *winsorized*). With
//!
//! ```text
//!   n values, g = n/5 rounded down left out at each end, h = n - 2g kept, mean m of those
//!   d = sum of squares of all n, winsorized, about their mean / (h (h - 1))
//!   (m - truth) / sqrt(d)      has nearly Student's law with h - 1 degrees of freedom
//! ```
//!
//! and the difference of two such means, with the degrees of Welch, is Yuen's test (Biometrika 61, 1974).
//! Of values that are distributed evenly about a middle this middle is the truth; of others the truth is the
//! trimmed mean of all that could have been drawn.
//!
//! Values that come one after the other from something that drifts are alike where they are close, and the
//! error above, which takes them for strangers, is too small. *Batch means* (Conway 1963) need no knowledge
//! of the drift: in batches of successive values, each longer than their likeness reaches, the batches'
//! means are nearly strangers, and their scatter is the error ([`Trimmed::of_batches`]).

use alloc::vec::Vec;

/// One part in so many is left out at each end.
const LEFT_OUT: usize = 5;
/// Fewer values have no interval.
pub const VALUES_MIN: usize = 4;

/// A trimmed mean, and its error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trimmed {
    /// The mean of the values that were kept.
    pub mean: f64,
    /// Its standard error, in the same unit.
    pub error: f64,
    /// Degrees of freedom of that error.
    pub degrees: f64,
}

impl Trimmed {
    /// The trimmed mean of `values`; none of fewer than [`VALUES_MIN`], or where one of them is not finite.
    pub fn of(values: &[f64]) -> Option<Trimmed> {
        let count = values.len();
        if count < VALUES_MIN || values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let mut sorted: Vec<f64> = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let out = count / LEFT_OUT;
        let kept = &sorted[out..count - out];
        let [all, few] = [count, kept.len()].map(|number| number as f64);
        let mean = kept.iter().sum::<f64>() / few;
        let (low, high) = (kept[0], kept[kept.len() - 1]);
        let ends = out as f64;
        let middle = (kept.iter().sum::<f64>() + ends * (low + high)) / all;
        let square = |value: f64| (value - middle) * (value - middle);
        let squares =
            kept.iter().copied().map(square).sum::<f64>() + ends * (square(low) + square(high));
        let error = libm::sqrt(squares / (few * (few - 1.0)));
        Some(Trimmed { mean, error, degrees: few - 1.0 })
    }

    /// The mean of so many `batches` of successive `values`, of each of which the trimmed mean is taken; none
    /// where a batch is shorter than [`VALUES_MIN`], there are fewer than two, or a value is not finite.
    pub fn of_batches(values: &[f64], batches: usize) -> Option<Trimmed> {
        if batches < 2 {
            return None;
        }
        let start = |batch: usize| batch * values.len() / batches;
        let batch = |at| Some(Trimmed::of(&values[start(at)..start(at + 1)])?.mean);
        let means: Vec<f64> = (0..batches).map(batch).collect::<Option<_>>()?;
        let count = batches as f64;
        let mean = means.iter().sum::<f64>() / count;
        let squares: f64 = means.iter().map(|value| (value - mean) * (value - mean)).sum();
        let error = libm::sqrt(squares / (count * (count - 1.0)));
        Some(Trimmed { mean, error, degrees: count - 1.0 })
    }

    /// What holds the truth in a share `confidence` of all repetitions, 0 to 1, both excluded.
    ///
    /// # Panics
    /// Where `confidence` is not between 0 and 1.
    pub fn interval(&self, confidence: f64) -> [f64; 2] {
        let half = self.half_width(confidence);
        [self.mean - half, self.mean + half]
    }

    /// Half of that interval's width.
    ///
    /// # Panics
    /// Where `confidence` is not between 0 and 1.
    pub fn half_width(&self, confidence: f64) -> f64 {
        self.error * two_sided(self.degrees, confidence)
    }

    /// What holds the difference to `other`, measured apart from this, in a share `confidence` of all
    /// repetitions.
    ///
    /// # Panics
    /// Where `confidence` is not between 0 and 1.
    pub fn difference(&self, other: &Trimmed, confidence: f64) -> [f64; 2] {
        let [one, two] = [self, other].map(|it| it.error * it.error);
        let sum = one + two;
        let apart = one * one / self.degrees + two * two / other.degrees;
        // (Two that are exact have no error and as many degrees as anybody likes.)
        let degrees = if apart > 0.0 { sum * sum / apart } else { 1.0 };
        let half = libm::sqrt(sum) * two_sided(degrees, confidence);
        let difference = self.mean - other.mean;
        [difference - half, difference + half]
    }
}

/// How many standard errors hold a share `confidence` of Student's law about its middle, 0 to 1, both
/// excluded: 1.96 of many `degrees` of freedom at 0.95.
///
/// # Panics
/// Where `confidence` is out of its range, or there is no degree of freedom.
pub fn two_sided(degrees: f64, confidence: f64) -> f64 {
    assert!(confidence > 0.0 && confidence < 1.0, "a confidence of {confidence}");
    let tail = (1.0 - confidence) / 2.0;
    let (mut low, mut high) = (0.0, 1.0);
    while student_tail(degrees, high) > tail && high < 1e300 {
        (low, high) = (high, 2.0 * high);
    }
    for _ in 0..80 {
        let middle = 0.5 * (low + high);
        match student_tail(degrees, middle) > tail {
            true => low = middle,
            false => high = middle,
        }
    }
    0.5 * (low + high)
}

/// The probability that a variable of Student's law exceeds `x`, which is not negative.
///
/// Half the regularised incomplete beta function of `degrees / (degrees + x^2)` with parameters
/// `degrees / 2` and 1/2 (Abramowitz & Stegun 26.7.1), by its continued fraction (26.5.8, evaluated by
/// Lentz's way), turned about where that converges slowly.
///
/// # Panics
/// Where there is no degree of freedom, or `x` is negative or no number.
pub fn student_tail(degrees: f64, x: f64) -> f64 {
    assert!(degrees > 0.0 && x >= 0.0, "Student's law of {degrees} degrees at {x}");
    if x == 0.0 {
        return 0.5;
    }
    let (a, b) = (0.5 * degrees, 0.5);
    let at = degrees / (degrees + x * x);
    let rest = x * x / (degrees + x * x);
    let factor = libm::exp(
        libm::lgamma(a + b) - libm::lgamma(a) - libm::lgamma(b)
            + a * libm::log(at)
            + b * libm::log(rest),
    );
    let whole = match at < (a + 1.0) / (a + b + 2.0) {
        true => factor * beta_fraction(a, b, at) / a,
        false => 1.0 - factor * beta_fraction(b, a, rest) / b,
    };
    0.5 * whole
}

/// The continued fraction of the incomplete beta function.
fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    const TERMS_MAX: u32 = 10_000;
    let away = |value: f64| if value.abs() < 1e-300 { 1e-300 } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / away(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for term in 1..TERMS_MAX {
        let m = f64::from(term);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for numerator in [even, odd] {
            d = 1.0 / away(1.0 + numerator * d);
            c = away(1.0 + numerator / c);
            change = c * d;
            fraction *= change;
        }
        if (change - 1.0).abs() < f64::EPSILON {
            break;
        }
    }
    fraction
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn students_law_has_the_values_of_its_tables() {
        let table = [
            (1.0, 0.95, 12.706_205),
            (5.0, 0.95, 2.570_582),
            (7.0, 0.95, 2.364_624),
            (7.0, 0.99, 3.499_483),
            (30.0, 0.95, 2.042_272),
            (1e6, 0.95, 1.959_966),
        ];
        for (degrees, confidence, expected) in table {
            let found = two_sided(degrees, confidence);
            assert!((found - expected).abs() < 2e-6, "{degrees} {confidence}: {found}");
        }
        // With one degree it is Cauchy's law, of which the tail is known.
        for x in [0.0, 0.3, 1.0, 4.0, 100.0] {
            let cauchy = 0.5 - libm::atan(x) / core::f64::consts::PI;
            assert!((student_tail(1.0, x) - cauchy).abs() < 1e-14, "{x}");
        }
    }

    /// What stands in the essay, done by hand for ten values.
    #[test]
    fn the_ends_are_left_out_of_the_mean_and_stand_in_for_the_error() {
        let values = [1.0, 9.0, 2.0, 8.0, 3.0, 7.0, 4.0, 6.0, 5.0, 100.0];
        let found = Trimmed::of(&values).expect("ten values");
        // 1, 2 and 9, 100 are left out; 3 and 8 stand for them.
        assert_eq!((found.mean, found.degrees), (5.5, 5.0));
        let winsorized = [3.0, 3.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 8.0, 8.0];
        let squares: f64 = winsorized.iter().map(|value| (value - 5.5) * (value - 5.5)).sum();
        assert!((found.error - libm::sqrt(squares / 30.0)).abs() < 1e-12, "{found:?}");
        assert_eq!(Trimmed::of(&values[..3]), None);
        assert_eq!(Trimmed::of(&[1.0, 2.0, f64::NAN, 3.0, 4.0]), None);
    }

    #[test]
    fn batches_of_successive_values_give_the_error() {
        // Five batches of four, of which the trimmed mean is the mean, and one of five without its ends.
        let middles = [4.0, 6.0, 5.0, 9.0, 1.0];
        let batch = |middle: &f64| [middle - 1.0, middle + 1.0, middle + 2.0, middle - 2.0];
        let mut values: Vec<f64> = middles.iter().flat_map(batch).collect();
        let found = Trimmed::of_batches(&values, 5).expect("five batches");
        assert_eq!((found.mean, found.degrees), (5.0, 4.0));
        assert!((found.error - libm::sqrt(34.0 / 20.0)).abs() < 1e-12, "{found:?}");
        values.push(1_000.0);
        let found = Trimmed::of_batches(&values, 5).expect("five batches");
        assert!((found.mean - 5.0).abs() < 0.2, "an accident moves no batch: {found:?}");
        assert_eq!(Trimmed::of_batches(&values[..20], 6), None, "a batch of three");
        assert_eq!(Trimmed::of_batches(&values, 1), None);
        assert_eq!(Trimmed::of_batches(&values, 0), None);
        values[7] = f64::NAN;
        assert_eq!(Trimmed::of_batches(&values, 5), None);
    }

    /// Of values that drift, those taken for strangers hold the truth too seldom.
    #[test]
    fn batches_of_what_drifts_hold_the_truth() {
        let points = 2_000;
        let mut held = [0, 0];
        for point in 0..points {
            let mut rng = Rng::new(43, 1, point);
            let mut drift = rng.normal();
            let mut draw = |_| {
                drift = 0.6 * drift + 0.8 * rng.normal();
                10.0 + drift + 1.5 * rng.normal()
            };
            let values: Vec<f64> = (0..60).map(&mut draw).collect();
            let both = [Trimmed::of(&values), Trimmed::of_batches(&values, 12)];
            for (held, found) in held.iter_mut().zip(both) {
                let [low, high] = found.expect("enough").interval(0.975);
                *held += u64::from(low <= 10.0 && 10.0 <= high);
            }
        }
        let [alone, batches] = held.map(|held| held as f64 / points as f64);
        assert!(alone < 0.92 && batches > 0.93, "{alone} {batches}");
    }

    #[test]
    fn intervals_of_differences_hold_nought_as_often_as_they_say() {
        let (mut held, rounds) = (0, 2_000);
        for round in 0..rounds {
            let mut rng = Rng::new(41, 1, round);
            let mut draw = |count: usize, spread: f64| -> Trimmed {
                let values: Vec<f64> = (0..count).map(|_| 3.0 + spread * rng.normal()).collect();
                Trimmed::of(&values).expect("enough")
            };
            let [low, high] = draw(12, 0.2).difference(&draw(30, 0.9), 0.95);
            held += u64::from(low <= 0.0 && 0.0 <= high);
        }
        assert!((0.93..0.97).contains(&(held as f64 / rounds as f64)), "{held} of {rounds}");
    }
}
