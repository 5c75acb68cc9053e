//! Special functions that estimators need: digamma, trigamma, the chi-square tail, the binomial law.

/// From here on the asymptotic series are exact to the last bits.
const LARGE: f64 = 12.0;
/// The most terms of a series or a fraction; both converge long before.
const TERMS_MAX: usize = 10_000;

/// The digamma function ψ, the derivative of ln Γ, for `x` > 0: the recurrence ψ(x) = ψ(x + 1) − 1/x up
/// to where the asymptotic series holds (Abramowitz & Stegun 6.3.5, 6.3.18).
///
/// # Panics
/// Where `x` is not positive.
pub fn digamma(mut x: f64) -> f64 {
    assert!(x > 0.0, "digamma of {x}");
    let mut sum = 0.0;
    while x < LARGE {
        sum -= 1.0 / x;
        x += 1.0;
    }
    let y = 1.0 / (x * x);
    let series =
        y * (1.0 / 12.0 - y * (1.0 / 120.0 - y * (1.0 / 252.0 - y * (1.0 / 240.0 - y / 132.0))));
    sum + libm::log(x) - 0.5 / x - series
}

/// The trigamma function ψ′, which is ζ(2, x), for `x` > 0 (Abramowitz & Stegun 6.4.6, 6.4.12).
///
/// # Panics
/// Where `x` is not positive.
pub fn trigamma(mut x: f64) -> f64 {
    assert!(x > 0.0, "trigamma of {x}");
    let mut sum = 0.0;
    while x < LARGE {
        sum += 1.0 / (x * x);
        x += 1.0;
    }
    let y = 1.0 / (x * x);
    let series =
        1.0 / 6.0 - y * (1.0 / 30.0 - y * (1.0 / 42.0 - y * (1.0 / 30.0 - y * 5.0 / 66.0)));
    sum + 1.0 / x + 0.5 * y + y / x * series
}

/// The probability that a chi-square variable of `degrees` degrees of freedom exceeds `x`: the
/// regularised incomplete gamma function Q(degrees / 2, x / 2), by its series where that converges fast
/// and by Legendre's continued fraction elsewhere (Lentz's way of evaluating it).
///
/// # Panics
/// Where there is no degree of freedom, or `x` is negative or no number.
pub fn chi_square_tail(degrees: usize, x: f64) -> f64 {
    assert!(degrees > 0 && x >= 0.0, "chi-square of {degrees} degrees at {x}");
    let (a, x) = (degrees as f64 / 2.0, x / 2.0);
    if x == 0.0 {
        return 1.0;
    }
    let factor = libm::exp(a * libm::log(x) - x - libm::lgamma(a));
    if x < a + 1.0 {
        let (mut term, mut sum) = (1.0 / a, 1.0 / a);
        for n in 1..TERMS_MAX {
            term *= x / (a + n as f64);
            sum += term;
            if term < sum * f64::EPSILON {
                break;
            }
        }
        return 1.0 - factor * sum;
    }
    let mut b = x + 1.0 - a;
    let mut c = f64::MAX;
    let mut d = 1.0 / b;
    let mut fraction = d;
    for n in 1..TERMS_MAX {
        let n = n as f64;
        let numerator = n * (a - n);
        b += 2.0;
        d = 1.0 / (numerator * d + b);
        c = b + numerator / c;
        let change = c * d;
        fraction *= change;
        if libm::fabs(change - 1.0) < f64::EPSILON {
            break;
        }
    }
    factor * fraction
}

/// The logarithm of the binomial probability of `k` successes in `n` trials of chance `p`, minus infinity
/// for an impossible `k`: Loader's saddle-point form (*Fast and Accurate Computation of Binomial
/// Probabilities*, 2000), which keeps its digits where ln Γ of large numbers would cancel them. `n` and
/// `k` are whole numbers at least 0.
///
/// # Panics
/// Where `p` is not between 0 and 1, both excluded.
pub fn ln_binomial(k: f64, n: f64, p: f64) -> f64 {
    assert!(p > 0.0 && p < 1.0, "a chance of {p}");
    if k < 0.0 || k > n {
        return f64::NEG_INFINITY;
    }
    if k == 0.0 {
        return n * libm::log1p(-p);
    }
    if k == n {
        return n * libm::log(p);
    }
    let rest = n - k;
    stirling_error(n)
        - stirling_error(k)
        - stirling_error(rest)
        - deviance(k, n * p)
        - deviance(rest, n * (1.0 - p))
        + 0.5 * libm::log(n / (2.0 * core::f64::consts::PI * k * rest))
}

/// ln n! less Stirling's formula for it.
fn stirling_error(n: f64) -> f64 {
    if n < LARGE {
        let half_ln_tau = 0.918_938_533_204_672_7;
        return libm::lgamma(n + 1.0) - (n + 0.5) * libm::log(n) + n - half_ln_tau;
    }
    let y = 1.0 / (n * n);
    (1.0 / 12.0 - y * (1.0 / 360.0 - y * (1.0 / 1_260.0 - y * (1.0 / 1_680.0 - y / 1_188.0)))) / n
}

/// x ln(x/m) + m - x, by its series where x is near m.
fn deviance(x: f64, m: f64) -> f64 {
    let v = (x - m) / (x + m);
    if v.abs() >= 0.1 {
        return x * libm::log(x / m) + m - x;
    }
    let mut power = 2.0 * x * v;
    let mut sum = (x - m) * v;
    for odd in (3..60).step_by(2) {
        power *= v * v;
        let term = power / f64::from(odd);
        if sum + term == sum {
            break;
        }
        sum += term;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::f64::consts::PI;

    const EULER: f64 = 0.577_215_664_901_532_9;

    #[test]
    fn known_values() {
        assert!((digamma(1.0) + EULER).abs() < 1e-14);
        assert!((digamma(0.5) + EULER + 2.0 * core::f64::consts::LN_2).abs() < 1e-14);
        assert!((trigamma(1.0) - PI * PI / 6.0).abs() < 1e-14);
        assert!((trigamma(0.5) - PI * PI / 2.0).abs() < 1e-13);
        // Tables of the chi-square law: 3.841 at 1, 18.307 at 10, 124.342 at 100, each for 5 %.
        for (degrees, x) in [(1, 3.841_459), (10, 18.307_038), (100, 124.342_113)] {
            assert!((chi_square_tail(degrees, x) - 0.05).abs() < 1e-7, "{degrees}");
        }
        // With two degrees it is the exponential law.
        for x in [0.0, 0.1, 1.0, 3.0, 30.0] {
            assert!((chi_square_tail(2, x) - (-x / 2.0).exp()).abs() < 1e-14, "{x}");
        }
    }

    #[test]
    fn trigamma_is_the_slope_of_digamma_and_both_keep_their_recurrence() {
        for at in 1..200 {
            let x = f64::from(at) * 0.37;
            let slope = (digamma(x + 1e-5) - digamma(x - 1e-5)) / 2e-5;
            assert!((trigamma(x) / slope - 1.0).abs() < 1e-6, "{x}");
            assert!((digamma(x + 1.0) - digamma(x) - 1.0 / x).abs() < 1e-13);
            assert!((trigamma(x) - trigamma(x + 1.0) - 1.0 / (x * x)).abs() < 1e-12 / x);
        }
    }

    /// The naive twin multiplies; far out, sums of the law must still be 1.
    #[test]
    fn the_binomial_law_agrees_with_multiplication_and_sums_to_one() {
        for (n, p) in [(1u32, 0.3f64), (7, 0.01), (40, 0.5), (300, 0.1)] {
            let mut choose = 1.0;
            for k in 0..=n {
                let naive = choose * p.powi(k as i32) * (1.0 - p).powi((n - k) as i32);
                let found = libm::exp(ln_binomial(k.into(), n.into(), p));
                assert!((found / naive - 1.0).abs() < 1e-11, "{k} of {n}: {found}, {naive}");
                choose *= f64::from(n - k) / f64::from(k + 1);
            }
        }
        assert_eq!(ln_binomial(3.0, 2.0, 0.5), f64::NEG_INFINITY);
        assert_eq!(ln_binomial(-1.0, 2.0, 0.5), f64::NEG_INFINITY);
        let (n, p) = (1e13, 1e-10);
        let sum: f64 = (600..1_400).map(|k| libm::exp(ln_binomial(k.into(), n, p))).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    }

    /// For even degrees the tail is a finite sum, for one degree it is the error function's.
    #[test]
    fn the_chi_square_tail_has_its_closed_forms() {
        for exponent in -18..=9 {
            let x = libm::scalbn(1.0, exponent);
            let y = 0.5 * x;
            let closed = [
                (1, libm::erfc(libm::sqrt(y))),
                (2, libm::exp(-y)),
                (4, libm::exp(-y) * (1.0 + y)),
                (6, libm::exp(-y) * (1.0 + y + y * y / 2.0)),
                (8, libm::exp(-y) * (1.0 + y * (1.0 + y / 2.0 * (1.0 + y / 3.0)))),
            ];
            for (degrees, exact) in closed {
                let found = chi_square_tail(degrees, x);
                assert!((found / exact - 1.0).abs() < 2e-13, "{degrees} at {x}: {found}, {exact}");
            }
        }
        assert_eq!([1, 2, 9].map(|degrees| chi_square_tail(degrees, 0.0)), [1.0; 3]);
    }

    /// x ln(x/m) + m - x on both sides of where its series ends.
    #[test]
    fn a_deviance_is_the_same_by_its_series_and_by_its_logarithm() {
        for m in [0.5, 3.0, 40.0, 1e6] {
            for part in [0.5, 0.8, 0.817, 0.819, 0.9, 1.1, 1.22, 1.223, 1.3, 2.0] {
                let x = part * m;
                let plain = x * libm::log(part) + m - x;
                let found = deviance(x, m);
                assert!((found / plain - 1.0).abs() < 1e-13, "{x}, {m}: {found} for {plain}");
            }
            assert_eq!(deviance(m, m), 0.0);
        }
    }

    /// ln n! by its terms.
    #[test]
    fn the_error_of_stirlings_formula_is_that_of_ln_n_factorial() {
        let mut ln_factorial = 0.0;
        for n in 1..=60 {
            let n = f64::from(n);
            ln_factorial += libm::log(n);
            let formula = 0.5 * libm::log(2.0 * PI * n) + n * libm::log(n) - n;
            let lacking = ln_factorial - formula;
            assert!((stirling_error(n) - lacking).abs() < 2e-13, "{n}");
        }
    }
}
