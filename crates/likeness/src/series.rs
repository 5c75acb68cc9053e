//! The log-scale diagram of a rate: how much it changes from one stretch of time to the next, by octaves of
//! their length (Abry and Veitch, 1998, with Haar's wavelet).

use alloc::vec::Vec;

/// Octaves with fewer coefficients are left out.
const COEFFICIENTS_MIN: f64 = 16.0;

/// Energies of wavelet coefficients: octave, place of its first bin, energy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Energies {
    coefficients: Vec<(u8, u32, f64)>,
}

impl Energies {
    pub fn of(series: &[f64]) -> Energies {
        let mut coefficients = Vec::new();
        let mut sums: Vec<f64> = series.to_vec();
        let mut octave = 1u8;
        while sums.len() >= 2 {
            let scale = libm::exp2(-f64::from(octave));
            for (number, two) in sums.chunks_exact(2).enumerate() {
                let apart = two[0] - two[1];
                coefficients.push((octave, (number << octave) as u32, apart * apart * scale));
            }
            sums = sums.chunks_exact(2).map(|two| two[0] + two[1]).collect();
            octave += 1;
        }
        Energies { coefficients }
    }

    pub fn len(&self) -> usize {
        self.coefficients.len()
    }

    /// The places of all coefficients.
    pub fn units(&self) -> impl Iterator<Item = u32> {
        self.coefficients.iter().map(|one| one.1)
    }

    pub fn pooled(&self, other: &Energies, offset: u32) -> Energies {
        let others =
            other.coefficients.iter().map(|&(octave, at, energy)| (octave, at + offset, energy));
        Energies { coefficients: self.coefficients.iter().copied().chain(others).collect() }
    }

    /// The mean difference of the two diagrams over the octaves that both have, in octaves of energy. `None`
    /// where there is no such octave.
    pub fn apart(&self, one: &[u32], other: &[u32]) -> Option<f64> {
        let (one, other) = (self.diagram(one), self.diagram(other));
        let both = one.iter().zip(&other).filter_map(|(one, other)| Some((*one)? - (*other)?));
        let (count, sum) =
            both.fold((0, 0.0), |(count, sum), apart| (count + 1, sum + apart.abs()));
        (count > 0).then(|| sum / f64::from(count))
    }

    /// log₂ of the mean energy of each octave that is known.
    fn diagram(&self, weights: &[u32]) -> Vec<Option<f64>> {
        let octaves = self.coefficients.iter().map(|one| one.0).max().unwrap_or(0);
        let mut sums = alloc::vec![(0.0, 0.0); usize::from(octaves)];
        for &(octave, at, energy) in &self.coefficients {
            let weight = f64::from(weights[at as usize]);
            let sum = &mut sums[usize::from(octave) - 1];
            *sum = (sum.0 + weight, sum.1 + weight * energy);
        }
        let mean = |(count, energy): (f64, f64)| {
            (count >= COEFFICIENTS_MIN && energy > 0.0).then(|| libm::log2(energy / count))
        };
        sums.into_iter().map(mean).collect()
    }
}
