//! Student's law: its tail, and how many standard errors hold a share of it.

/// How many standard errors hold a share `confidence` of Student's law (Biometrika 6, 1908) about its middle, 0 to 1,
/// both excluded: 1.96 for many `degrees` of freedom at 0.95.
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
        // With one degree it is Cauchy's law, whose tail is known.
        for x in [0.0, 0.3, 1.0, 4.0, 100.0] {
            let cauchy = 0.5 - libm::atan(x) / core::f64::consts::PI;
            assert!((student_tail(1.0, x) - cauchy).abs() < 1e-14, "{x}");
        }
    }
}
