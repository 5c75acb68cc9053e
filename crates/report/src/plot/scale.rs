//! Scales: from values to figure units, and where ticks belong.

/// Linear or logarithmic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScaleKind {
    /// Equal steps for equal differences.
    Linear,
    /// Equal steps for equal factors; positive values only.
    Log,
}

/// A map from a domain of values to a range of figure units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    kind: ScaleKind,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// A scale over `domain`, repaired where it is empty, reversed or not finite.
    pub fn new(kind: ScaleKind, domain: [f64; 2], range: [f64; 2]) -> Scale {
        let bound = |v: f64, otherwise: f64| match v.is_finite() {
            true => v.clamp(-1e30, 1e30),
            false => otherwise,
        };
        let (mut low, mut high) = (bound(domain[0], 0.0), bound(domain[1], 1.0));
        match kind {
            ScaleKind::Linear if high - low <= low.abs() * 1e-9 => {
                high = low + if low == 0.0 { 1.0 } else { low.abs() * 0.5 };
            }
            ScaleKind::Log => {
                low = low.max(1e-30);
                if high <= low * 1.000_1 {
                    (low, high) = (low / 2.0, low * 2.0);
                }
            }
            ScaleKind::Linear => {}
        }
        Scale { kind, low, high, from: range[0], to: range[1] }
    }

    /// The same scale over another range.
    pub fn over(self, range: [f64; 2]) -> Scale {
        Scale { from: range[0], to: range[1], ..self }
    }

    /// Linear or logarithmic.
    pub fn kind(&self) -> ScaleKind {
        self.kind
    }

    /// The domain's ends.
    pub fn domain(&self) -> [f64; 2] {
        [self.low, self.high]
    }

    /// The range's ends.
    pub fn range(&self) -> [f64; 2] {
        [self.from, self.to]
    }

    /// Whether a value has a place on it at all.
    pub fn takes(&self, value: f64) -> bool {
        value.is_finite() && (self.kind == ScaleKind::Linear || value > 0.0)
    }

    /// Figure units of a value; values outside the domain lie at its ends.
    pub fn at(&self, value: f64) -> f64 {
        let value = if value.is_nan() { self.low } else { value.clamp(self.low, self.high) };
        let share = match self.kind {
            ScaleKind::Linear => (value - self.low) / (self.high - self.low),
            ScaleKind::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        self.from + share * (self.to - self.from)
    }

    /// At most about `count` round values inside the domain.
    pub fn ticks(&self, count: usize) -> Vec<f64> {
        match self.kind {
            ScaleKind::Linear => linear_ticks(self.low, self.high, count),
            ScaleKind::Log => log_ticks(self.low, self.high, count),
        }
    }
}

fn linear_ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
    let step = round_step(&[1.0, 2.0, 2.5, 5.0], (high - low) / count.max(1) as f64);
    let slack = step * 1e-6;
    let (first, last) = ((low - slack) / step, (high + slack) / step);
    let ticks = (first.ceil() as i64..=last.floor() as i64).map(|i| i as f64 * step);
    ticks.take(4 * count.max(1)).collect()
}

/// The smallest of the mantissas times a power of ten that is at least `rough`.
fn round_step(mantissas: &[f64], rough: f64) -> f64 {
    let power = 10_f64.powi(rough.max(1e-30).log10().floor() as i32);
    let mantissa = mantissas.iter().find(|m| *m * power >= rough * (1.0 - 1e-9));
    mantissa.unwrap_or(&10.0) * power
}

fn log_ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
    let decades = (high / low).log10();
    let count = count.max(2);
    if decades < 0.7 {
        return linear_ticks(low, high, count).into_iter().filter(|v| *v > 0.0).collect();
    }
    let mantissas: &[f64] = match decades {
        d if d * 3.0 <= count as f64 => &[1.0, 2.0, 5.0],
        d if d * 2.0 <= count as f64 => &[1.0, 3.0],
        _ => &[1.0],
    };
    let every = (decades / count as f64).ceil().max(1.0) as i32;
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let inside = |v: &f64| *v >= low * (1.0 - 1e-9) && *v <= high * (1.0 + 1e-9);
    (first..=last)
        .filter(|exponent| exponent.rem_euclid(every) == 0)
        .flat_map(|exponent| mantissas.iter().map(move |m| m * 10_f64.powi(exponent)))
        .filter(inside)
        .collect()
}

/// The least and greatest of the values that a scale of this kind takes.
pub fn extent(kind: ScaleKind, values: impl IntoIterator<Item = f64>) -> Option<[f64; 2]> {
    let takes = |v: &f64| v.is_finite() && (kind == ScaleKind::Linear || *v > 0.0);
    values.into_iter().filter(takes).fold(None, |extent, v| match extent {
        None => Some([v, v]),
        Some([low, high]) => Some([low.min(v), high.max(v)]),
    })
}

/// A linear domain from zero to a little above the greatest value.
pub fn from_zero(values: impl IntoIterator<Item = f64>) -> [f64; 2] {
    let high = extent(ScaleKind::Linear, values).map_or(1.0, |e| e[1]);
    [0.0, if high > 0.0 { high * 1.06 } else { 1.0 }]
}

/// A logarithmic domain widened to round bounds (1, 2 or 5 times a power of ten).
pub fn round_log(values: impl IntoIterator<Item = f64>) -> [f64; 2] {
    let [low, high] = extent(ScaleKind::Log, values).unwrap_or([1.0, 10.0]);
    let (low, high) = (low.clamp(1e-30, 1e30), high.clamp(1e-30, 1e30));
    let power = 10_f64.powi(low.log10().floor() as i32);
    let below = [5.0, 2.0].into_iter().find(|m| m * power <= low * (1.0 + 1e-9)).unwrap_or(1.0);
    let (below, above) = (below * power, round_step(&[1.0, 2.0, 5.0], high));
    if below < above { [below, above] } else { [below / 2.0, below * 2.0] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_meet_the_range() {
        let scale = Scale::new(ScaleKind::Log, [1.0, 1e4], [50.0, 450.0]);
        assert_eq!([scale.at(1.0), scale.at(1e4)], [50.0, 450.0]);
        assert!((scale.at(100.0) - 250.0).abs() < 1e-9);
        assert_eq!(scale.at(1e9), 450.0);
        assert!(!scale.takes(0.0) && !scale.takes(f64::NAN));
    }

    #[test]
    fn any_axis_domain_is_made_valid() {
        let strange = [0.0, -3.0, 1e308, -1e308, f64::NAN, f64::INFINITY, 1e-320, 7.0];
        for kind in [ScaleKind::Linear, ScaleKind::Log] {
            for low in strange {
                for high in strange {
                    let scale = Scale::new(kind, [low, high], [0.0, 100.0]);
                    for value in strange {
                        let at = scale.at(value);
                        assert!((0.0..=100.0).contains(&at), "{kind:?} {low} {high} {value}: {at}");
                    }
                    let ticks = scale.ticks(5);
                    assert!(ticks.len() <= 40 && ticks.iter().all(|t| t.is_finite()));
                }
            }
        }
    }

    #[test]
    fn ticks_are_round_and_few() {
        let ticks = |kind, domain, count| Scale::new(kind, domain, [0.0, 1.0]).ticks(count);
        assert_eq!(
            ticks(ScaleKind::Linear, [0.0, 60.0], 6),
            [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0]
        );
        assert_eq!(ticks(ScaleKind::Log, [100.0, 1e7], 6), [1e2, 1e3, 1e4, 1e5, 1e6, 1e7]);
        assert_eq!(ticks(ScaleKind::Log, [1.0, 300.0], 6), [1.0, 3.0, 10.0, 30.0, 100.0, 300.0]);
        assert_eq!(round_log([3.0, 4_200.0]), [2.0, 5_000.0]);
        assert_eq!(round_log([8.0]), [5.0, 10.0]);
        assert_eq!(round_log([1.0]), [0.5, 2.0]);
        assert_eq!(from_zero([]), [0.0, 1.06]);
    }
}
