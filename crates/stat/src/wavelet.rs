//! The energy of a series on every time scale, in one pass and in memory for its logarithm.
//!
//! A wavelet coefficient of *octave* j is the difference between neighbouring stretches of a series, each about 2ʲ
//! values long: it responds to changes on that scale and to no slower or faster ones. Mallat's pyramid (*IEEE Trans.
//! PAMI* 11(7), 1989) finds all of them with two short filters. The low-pass one reduces a series to its
//! *approximation* of half the length, the high-pass one finds the *details* that are lost, and the approximation
//! goes through the same two filters again:
//!
//! ```text
//!   series ──► approximation 1 ──► approximation 2 ──► …
//!         └──► details 1       └──► details 2       └──► …
//! ```
//!
//! Each filter needs the last [`TAPS`] values of its input, so a series of any length passes through a
//! handful of numbers for each octave, value by value. Only coefficients whose filter lies wholly within the
//! series are computed; those that would need invented values beyond an end are left out.
//!
//! **Which wavelet.** Daubechies' with three vanishing moments (1988): constants, lines and parabolas
//! have no details, so that a trend of the series, the busy hour of a day, is not taken for long
//! memory, and details of a self-similar series are all but independent (Abry & Veitch 1998).

use alloc::vec::Vec;

/// Values that a filter sees.
pub const TAPS: usize = 6;
/// Octaves at most: the length of a series is less than two to this power.
const OCTAVES_MAX: usize = 63;

/// The low-pass filter: Daubechies' wavelet of three vanishing moments. The high-pass filter has
/// the same numbers in the other order, every second with the other sign.
const LOW: [f64; TAPS] = [
    0.332_670_552_950_082_6,
    0.806_891_509_311_092_6,
    0.459_877_502_118_491_6,
    -0.135_011_020_010_254_6,
    -0.085_441_273_882_026_66,
    0.035_226_291_885_709_53,
];

/// One octave's filters: their last input values, and the energy found.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Level {
    seen: [f64; TAPS],
    /// Number of input values.
    count: u64,
    /// Number of details.
    details: u64,
    /// The sum of their squares.
    energy: f64,
}

impl Level {
    const NEW: Level = Level { seen: [0.0; TAPS], count: 0, details: 0, energy: 0.0 };

    /// The next value; after every second one that has enough before it, the approximation.
    fn push(&mut self, value: f64) -> Option<f64> {
        self.seen.rotate_left(1);
        self.seen[TAPS - 1] = value;
        self.count += 1;
        if self.count < TAPS as u64 || !self.count.is_multiple_of(2) {
            return None;
        }
        let (mut low, mut high) = (0.0, 0.0);
        for at in 0..TAPS {
            let mirrored = LOW[TAPS - 1 - at];
            low += LOW[at] * self.seen[at];
            high += if at % 2 == 0 { mirrored } else { -mirrored } * self.seen[at];
        }
        self.details += 1;
        self.energy += high * high;
        Some(low)
    }
}

/// A series on its way through the pyramid.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pyramid {
    levels: Vec<Level>,
}

/// The energy of one time scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Energy {
    /// The octave j, from 1: details of stretches of about 2ʲ values.
    pub octave: u32,
    /// How many details there are.
    pub count: u64,
    /// The mean of their squares, in the square of the series' unit.
    pub mean: f64,
}

impl Pyramid {
    /// A pyramid without input.
    pub fn new() -> Pyramid {
        Pyramid::default()
    }

    /// Adds the next value of the series. A value that is not finite makes every coefficient that it affects
    /// not finite.
    pub fn push(&mut self, value: f64) {
        let mut rising = Some(value);
        let mut at = 0;
        while let Some(value) = rising {
            if at == self.levels.len() {
                if at == OCTAVES_MAX {
                    return;
                }
                self.levels.push(Level::NEW);
            }
            rising = self.levels[at].push(value);
            at += 1;
        }
    }

    /// Number of values pushed.
    pub fn count(&self) -> u64 {
        self.levels.first().map_or(0, |level| level.count)
    }

    /// The octaves with at least one detail, from the finest on.
    pub fn energies(&self) -> impl Iterator<Item = Energy> + '_ {
        let found = |(octave, level): (u32, &Level)| {
            let Level { details: count, energy, .. } = *level;
            (count > 0).then(|| Energy { octave, count, mean: energy / count as f64 })
        };
        (1..).zip(&self.levels).filter_map(found)
    }
}

impl Extend<f64> for Pyramid {
    fn extend<T: IntoIterator<Item = f64>>(&mut self, values: T) {
        values.into_iter().for_each(|value| self.push(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    fn high(at: usize) -> f64 {
        if at.is_multiple_of(2) { LOW[TAPS - 1 - at] } else { -LOW[TAPS - 1 - at] }
    }

    #[test]
    fn the_filters_are_orthonormal_and_blind_to_parabolas() {
        for shift in [0, 2, 4] {
            let product = |one: &dyn Fn(usize) -> f64, two: &dyn Fn(usize) -> f64| -> f64 {
                (shift..TAPS).map(|at| one(at) * two(at - shift)).sum()
            };
            let low = |at: usize| LOW[at];
            let unit = if shift == 0 { 1.0 } else { 0.0 };
            assert!((product(&low, &low) - unit).abs() < 1e-12);
            assert!((product(&high, &high) - unit).abs() < 1e-12);
            assert!(product(&low, &high).abs() < 1e-12 && product(&high, &low).abs() < 1e-12);
        }
        for power in 0..3 {
            let moment: f64 = (0..TAPS).map(|at| (at as f64).powi(power) * high(at)).sum();
            assert!(moment.abs() < 1e-10, "{power}");
        }
    }

    /// The pyramid over a whole series at once.
    fn at_once(series: &[f64]) -> Vec<(u64, f64)> {
        let mut found = Vec::new();
        let mut series = series.to_vec();
        while series.len() >= TAPS {
            let ends = (TAPS..=series.len()).filter(|end| end % 2 == 0);
            let windows: Vec<&[f64]> = ends.map(|end| &series[end - TAPS..end]).collect();
            let filter = |taps: &dyn Fn(usize) -> f64, window: &[f64]| -> f64 {
                window.iter().enumerate().map(|(at, value)| taps(at) * value).sum()
            };
            let energy: f64 = windows.iter().map(|w| filter(&high, w)).map(|d| d * d).sum();
            found.push((windows.len() as u64, energy / windows.len() as f64));
            series = windows.iter().map(|window| filter(&|at| LOW[at], window)).collect();
        }
        found
    }

    #[test]
    fn value_by_value_is_as_all_at_once() {
        let mut rng = Rng::new(3, 0x7761_7665, 0);
        for length in [0, 1, 5, 6, 7, 8, 40, 1_000, 4_097] {
            let series: Vec<f64> = (0..length).map(|_| rng.normal() + 5.0).collect();
            let mut pyramid = Pyramid::new();
            pyramid.extend(series.iter().copied());
            assert_eq!(pyramid.count(), length as u64);
            let expected = at_once(&series);
            let energies: Vec<Energy> = pyramid.energies().collect();
            assert_eq!(energies.len(), expected.len(), "{length}");
            for (octave, (energy, (count, mean))) in energies.iter().zip(expected).enumerate() {
                assert_eq!((energy.octave, energy.count), (octave as u32 + 1, count));
                assert!((energy.mean - mean).abs() <= 1e-12 * mean, "{length}, {octave}");
            }
        }
    }

    #[test]
    fn trends_have_no_energy_and_white_noise_has_as_much_on_every_scale() {
        let mut trend = Pyramid::new();
        trend.extend((0..5_000).map(|at| f64::from(at) * (f64::from(at) * 1e-3 + 2.0) - 7.0));
        // (Sums of thousands lose a few of their last bits.)
        assert!(trend.energies().all(|energy| energy.mean < 1e-6), "{trend:?}");
        let mut rng = Rng::new(3, 0x7761_7665, 1);
        let mut noise = Pyramid::new();
        noise.extend((0..1 << 18).map(|_| 3.0 * rng.normal()));
        for Energy { octave, count, mean } in noise.energies() {
            let deviation = 9.0 * (2.0 / count as f64).sqrt();
            assert!((mean - 9.0).abs() < 4.5 * deviation, "octave {octave}: {mean} of {count}");
        }
    }
}
