//! Laws given by name and parameters, made into quantile tables.
//!
//! A table is cut by survival, P(X > x), and not by value: evenly in the body, and in the last 4 % each
//! piece an eighth of an octave rarer than the one before, so that a heavy tail is as finely drawn as the
//! body. A discrete table takes the mean of each piece, and so keeps the law's own mean; a linear one
//! (for times) takes the values at the cuts.

use alloc::vec::Vec;
use core::fmt;

use crate::{Empirical, Form};

/// Even pieces of the body.
const BODY_PIECES: usize = 960;
/// Survival at which the tail begins.
const TAIL: f64 = 0.04;
/// Pieces of the tail in an octave of survival.
const TAIL_PIECES: f64 = 8.0;
/// Survival below which a tail is one piece.
const LAST: f64 = 1e-12;
/// Steps into which a piece is divided to compute its mean; an even number.
const STEPS: usize = 8;

/// A law of positive values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Law {
    /// The exponential law with this mean.
    Exponential {
        /// The mean.
        mean: f64,
    },
    /// The lognormal law.
    Lognormal {
        /// The mean of the value's natural logarithm.
        mu: f64,
        /// The deviation of that logarithm.
        sigma: f64,
    },
    /// The Pareto law: P(X > x) = (minimum/x)^index.
    Pareto {
        /// The tail index, α.
        index: f64,
        /// The least value.
        minimum: f64,
    },
    /// The Weibull law: P(X > x) = exp(-(x/scale)^shape).
    Weibull {
        /// The shape; below 1 it has a heavier tail than the exponential law.
        shape: f64,
        /// The scale.
        scale: f64,
    },
}

/// Why there is no table of a law.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LawError {
    /// This parameter must be a positive finite number, but has this value.
    NotPositive(&'static str, f64),
    /// The mean of the law is not finite, and it has no maximum: a Pareto law of an index up to 1.
    InfiniteMean,
    /// Nothing of the law lies below this maximum.
    Maximum(f64),
    /// Its values exceed what a float can hold.
    Unbounded,
}

impl fmt::Display for LawError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LawError::NotPositive(name, value) => {
                write!(out, "{name} is {value}, but must be a positive finite number")
            }
            LawError::InfiniteMean => {
                write!(out, "a Pareto law of an index up to 1 has no mean: give a maximum")
            }
            LawError::Maximum(value) => {
                write!(out, "nothing of the law lies below the maximum of {value}: raise it")
            }
            LawError::Unbounded => {
                write!(out, "the law has values that no number holds: give a maximum")
            }
        }
    }
}

impl core::error::Error for LawError {}

impl Law {
    fn check(&self) -> Result<(), LawError> {
        let parameters = match *self {
            Law::Exponential { mean } => [("mean", mean), ("mean", mean)],
            // Any mean of a logarithm is allowed; its exponential shows whether it is finite.
            Law::Lognormal { mu, sigma } => [("exp(mu)", libm::exp(mu)), ("sigma", sigma)],
            Law::Pareto { index, minimum } => [("index", index), ("minimum", minimum)],
            Law::Weibull { shape, scale } => [("shape", shape), ("scale", scale)],
        };
        let bad = |(_, value): &(&str, f64)| !(value.is_finite() && *value > 0.0);
        let found = parameters.into_iter().find(bad);
        found.map_or(Ok(()), |(name, value)| Err(LawError::NotPositive(name, value)))
    }

    /// P(X > x).
    pub fn survival(&self, x: f64) -> f64 {
        if x <= 0.0 {
            return 1.0;
        }
        match *self {
            Law::Exponential { mean } => libm::exp(-x / mean),
            Law::Lognormal { mu, sigma } => {
                0.5 * libm::erfc((libm::log(x) - mu) / (sigma * core::f64::consts::SQRT_2))
            }
            Law::Pareto { index, minimum } => libm::pow((minimum / x).min(1.0), index),
            Law::Weibull { shape, scale } => libm::exp(-libm::pow(x / scale, shape)),
        }
    }

    /// The value that is exceeded with probability `survival`, above 0 and at most 1.
    pub fn exceeded_with(&self, survival: f64) -> f64 {
        match *self {
            Law::Exponential { mean } => -mean * libm::log(survival),
            Law::Lognormal { mu, sigma } => libm::exp(mu - sigma * normal_quantile(survival)),
            Law::Pareto { index, minimum } => minimum * libm::pow(survival, -1.0 / index),
            Law::Weibull { shape, scale } => scale * libm::pow(-libm::log(survival), 1.0 / shape),
        }
    }

    /// The mean of the values that are exceeded with a probability between `low` and `high`.
    fn mean_between(&self, low: f64, high: f64) -> f64 {
        if low <= 0.0 {
            // Beyond the last cut: exact where it matters, elsewhere the value at the cut.
            let value = self.exceeded_with(high);
            return match *self {
                Law::Pareto { index, .. } if index > 1.0 => value * index / (index - 1.0),
                _ => value,
            };
        }
        // By Simpson's rule over the logarithm, on which tails are smooth.
        let (from, to) = (libm::log(low), libm::log(high));
        let step = (to - from) / STEPS as f64;
        let at = |n: usize| {
            let survival = libm::exp(from + n as f64 * step);
            (survival * self.exceeded_with(survival.min(1.0)), survival)
        };
        let (mut values, mut weights) = (0.0, 0.0);
        for n in 0..=STEPS {
            let weight = if n == 0 || n == STEPS { 1.0 } else { 2.0 + 2.0 * (n % 2) as f64 };
            let (value, share) = at(n);
            (values, weights) = (values + weight * value, weights + weight * share);
        }
        values / weights
    }

    /// The law as a table, cut off at `maximum` where one is given: *step* has whole numbers, at least 1,
    /// for sizes; *linear* has the law's values, for times.
    ///
    /// # Errors
    /// Where a parameter is not positive, or the mean or a value is not finite.
    pub fn table(&self, form: Form, maximum: Option<f64>) -> Result<Empirical, LawError> {
        self.check()?;
        if matches!(*self, Law::Pareto { index, .. } if index <= 1.0) && maximum.is_none() {
            return Err(LawError::InfiniteMean);
        }
        let beyond = maximum.map_or(0.0, |maximum| self.survival(maximum));
        if !(0.0..1.0).contains(&beyond) {
            return Err(LawError::Maximum(maximum.unwrap_or(f64::NAN)));
        }
        let kept = |survival: f64| beyond + survival * (1.0 - beyond);
        let cuts = cuts();
        let knots = match form {
            Form::Linear => {
                let cut = |&survival: &f64| (1.0 - survival, self.exceeded_with(kept(survival)));
                let mut knots: Vec<(f64, f64)> = cuts[..cuts.len() - 1].iter().map(cut).collect();
                knots.last_mut().expect("there are cuts").0 = 1.0;
                knots
            }
            Form::Step => {
                let mut knots: Vec<(f64, f64)> = Vec::new();
                for two in cuts.windows(2) {
                    let value = self.mean_between(kept(two[1]), kept(two[0]));
                    let value = libm::round(value).max(1.0);
                    match knots.last_mut() {
                        Some(last) if last.1 >= value || last.0 >= 1.0 - two[1] => {
                            last.0 = 1.0 - two[1];
                        }
                        _ => knots.push((1.0 - two[1], value)),
                    }
                }
                knots
            }
        };
        // Cuts ascend, and so do values, as far as they are finite.
        Empirical::new(form, 0, knots).map_err(|_| LawError::Unbounded)
    }
}

/// Survival from 1 down to 0, where tables are cut.
fn cuts() -> Vec<f64> {
    let body = (0..BODY_PIECES).map(|n| 1.0 - (1.0 - TAIL) * n as f64 / BODY_PIECES as f64);
    let pieces = libm::ceil(TAIL_PIECES * libm::log2(TAIL / LAST)) as usize;
    let tail = (0..=pieces).map(|n| TAIL * libm::exp2(-(n as f64) / TAIL_PIECES));
    body.chain(tail).chain([0.0]).collect()
}

/// The quantile of the standard normal law: Acklam's rational approximation (2003), refined by one
/// step of Halley's method to the last digits.
fn normal_quantile(p: f64) -> f64 {
    const A: [f64; 6] = [
        -39.696_830_286_653_76,
        220.946_098_424_520_5,
        -275.928_510_446_968_7,
        138.357_751_867_269,
        -30.664_798_066_147_16,
        2.506_628_277_459_239,
    ];
    const B: [f64; 5] = [
        -54.476_098_798_224_06,
        161.585_836_858_040_9,
        -155.698_979_859_886_6,
        66.801_311_887_719_72,
        -13.280_681_552_885_72,
    ];
    const C: [f64; 6] = [
        -0.007_784_894_002_430_293,
        -0.322_396_458_041_136_4,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const D: [f64; 4] = [
        0.007_784_695_709_041_462,
        0.322_467_129_070_039_8,
        2.445_134_137_142_996,
        3.754_408_661_907_416,
    ];
    let horner = |terms: &[f64], x: f64| terms.iter().fold(0.0, |sum, term| sum * x + term);
    let tail = |q: f64| horner(&C, q) / (horner(&D, q) * q + 1.0);
    let x = if p >= 1.0 {
        return 8.3;
    } else if p < 0.024_25 {
        tail(libm::sqrt(-2.0 * libm::log(p)))
    } else if p <= 0.975_75 {
        let (q, r) = (p - 0.5, (p - 0.5) * (p - 0.5));
        horner(&A, r) * q / (horner(&B, r) * r + 1.0)
    } else {
        -tail(libm::sqrt(-2.0 * libm::log1p(-p)))
    };
    let error = 0.5 * libm::erfc(-x / core::f64::consts::SQRT_2) - p;
    let slope = error * libm::sqrt(2.0 * core::f64::consts::PI) * libm::exp(x * x / 2.0);
    x - slope / (1.0 + x * slope / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAWS: [(Law, f64); 5] = [
        (Law::Exponential { mean: 5_000.0 }, 5_000.0),
        // exp(8 + 1.5²/2)
        (Law::Lognormal { mu: 8.0, sigma: 1.5 }, 9_181.92),
        (Law::Pareto { index: 1.2, minimum: 1_500.0 }, 9_000.0),
        (Law::Pareto { index: 2.5, minimum: 300.0 }, 500.0),
        // 1000 Γ(1 + 1/0.5)
        (Law::Weibull { shape: 0.5, scale: 1_000.0 }, 2_000.0),
    ];

    #[test]
    fn tables_have_the_mean_and_the_quantiles_of_their_law() {
        for (law, mean) in LAWS {
            let table = law.table(Form::Step, None).expect("a table");
            assert!((table.mean() / mean - 1.0).abs() < 2e-3, "{law:?}: {}", table.mean());
            let straight = law.table(Form::Linear, None).expect("a table");
            // A straight table ends at its last cut.
            let least =
                if matches!(law, Law::Pareto { index, .. } if index < 2.0) { 0.98 } else { 0.998 };
            let kept = straight.mean() / mean;
            assert!((least..1.003).contains(&kept), "{law:?}: {kept}");
            for survival in [0.999, 0.9, 0.5, 0.1, 0.01, 1e-4, 1e-7] {
                let x = law.exceeded_with(survival);
                assert!((law.survival(x) / survival - 1.0).abs() < 1e-9, "{law:?} at {survival}");
                for table in [&table, &straight] {
                    let found = 1.0 - table.cdf(x);
                    let slack = 1.5e-3_f64.max(0.06 * survival).max(1.0 / x);
                    assert!((found - survival).abs() < slack, "{law:?}: {found}, {survival}");
                }
            }
        }
    }

    /// ∫ −ln s ds = s − s ln s: the mean of an exponential law between two survivals.
    #[test]
    fn the_mean_between_two_survivals_is_the_integral() {
        let law = Law::Exponential { mean: 3.0 };
        let integral = |s: f64| s - s * s.ln();
        for (low, high) in [(0.1, 0.2), (0.5, 0.55), (1e-6, 2e-6)] {
            let mean = 3.0 * (integral(high) - integral(low)) / (high - low);
            let found = law.mean_between(low, high);
            assert!((found / mean - 1.0).abs() < 1e-5, "{low} to {high}: {found} for {mean}");
        }
    }

    #[test]
    fn a_maximum_cuts_and_heals_an_infinite_mean() {
        let law = Law::Pareto { index: 1.0, minimum: 10.0 };
        assert_eq!(law.table(Form::Step, None), Err(LawError::InfiniteMean));
        assert_eq!(law.table(Form::Step, Some(5.0)), Err(LawError::Maximum(5.0)));
        let table = law.table(Form::Step, Some(1e6)).expect("a table");
        assert!(table.max() <= 1e6 && table.max() > 0.9e6, "{}", table.max());
        // ∫ of 10/x over 10..1e6, divided by the share that is kept.
        let mean = 10.0 * 1e5f64.ln() / (1.0 - 1e-5);
        assert!((table.mean() / mean - 1.0).abs() < 0.01, "{} {mean}", table.mean());
    }

    #[test]
    fn invalid_laws_are_refused() {
        for (law, name) in [
            (Law::Exponential { mean: 0.0 }, "mean"),
            (Law::Lognormal { mu: f64::NAN, sigma: 1.0 }, "exp(mu)"),
            (Law::Lognormal { mu: 1.0, sigma: -1.0 }, "sigma"),
            (Law::Pareto { index: f64::INFINITY, minimum: 1.0 }, "index"),
            (Law::Weibull { shape: 1.0, scale: -3.0 }, "scale"),
        ] {
            let error = law.table(Form::Step, None).expect_err("no law");
            assert!(matches!(error, LawError::NotPositive(found, _) if found == name), "{error}");
        }
    }

    #[test]
    fn the_normal_quantile_is_the_inverse_of_its_law() {
        for (p, z) in [(0.975, 1.959_963_984_540_054), (0.5, 0.0), (0.001, -3.090_232_306_167_813)]
        {
            assert!((normal_quantile(p) - z).abs() < 1e-12, "{p}");
        }
        let far = normal_quantile(1e-12);
        assert!((far + 7.034_483_825_301_131).abs() < 1e-9, "{far}");
    }
}
