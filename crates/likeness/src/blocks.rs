//! Second samples of a series: stretches of it, drawn again (the circular block bootstrap of Politis and Romano,
//! 1992). A stretch is ten correlation lengths, so that values that are correlated in time stay together. There
//! must be twenty stretches, or the series is too short to judge.

use alloc::vec;
use alloc::vec::Vec;

use nilometer_stat::Rng;

/// Correlation lengths of a stretch.
const LENGTHS: usize = 10;
/// Stretches that there must be.
const BLOCKS_MIN: usize = 20;

/// How a series is resampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocks {
    pub places: usize,
    pub block: usize,
}

impl Blocks {
    /// The stretches of a series; `None` where it is too short.
    pub fn of(series: &[f64]) -> Option<Blocks> {
        let block = LENGTHS * correlation_length(series)?;
        (series.len() / block >= BLOCKS_MIN).then_some(Blocks { places: series.len(), block })
    }

    /// How often each place is in a sample of `count` places.
    pub fn draw(&self, count: usize, rng: &mut Rng) -> Vec<u32> {
        let mut weights = vec![0; self.places];
        let mut left = count;
        while left > 0 {
            let from = rng.below(self.places as u64) as usize;
            for step in 0..self.block.min(left) {
                weights[(from + step) % self.places] += 1;
            }
            left -= self.block.min(left);
        }
        weights
    }
}

/// The first lag at which a series is correlated with itself by less than 1/e; `None` where there is no such
/// lag within a twentieth of its length.
fn correlation_length(series: &[f64]) -> Option<usize> {
    let count = series.len();
    let mean = series.iter().sum::<f64>() / count.max(1) as f64;
    let at_lag = |lag: usize| -> f64 {
        let pairs = series.iter().zip(&series[lag..]);
        pairs.map(|(one, other)| (one - mean) * (other - mean)).sum()
    };
    let variance = at_lag(0);
    (1..=count / (LENGTHS * BLOCKS_MIN))
        .find(|&lag| at_lag(lag) <= core::f64::consts::E.recip() * variance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_correlation_length_is_that_of_the_process() {
        let mut rng = Rng::new(1, 0, 0);
        let independent: Vec<f64> = (0..10_000).map(|_| rng.normal()).collect();
        assert_eq!(correlation_length(&independent), Some(1));
        // An autoregressive process of 0.9: e^-1 at 9.5.
        let mut level = 0.0;
        let mut next = |_| {
            level = 0.9 * level + rng.normal();
            level
        };
        let slow: Vec<f64> = (0..100_000).map(&mut next).collect();
        let length = correlation_length(&slow).expect("a length");
        assert!((9..=11).contains(&length), "{length}");
        assert_eq!(Blocks::of(&slow[..1_500]), None, "too short");
        assert_eq!(correlation_length(&[1.0; 4_000]), Some(1), "a constant");
        assert_eq!(correlation_length(&[]), None);
    }

    #[test]
    fn a_draw_has_the_requested_size() {
        let blocks = Blocks { places: 50, block: 7 };
        for count in [0, 1, 6, 7, 8, 49, 50, 123] {
            let weights = blocks.draw(count, &mut Rng::new(2, 0, count as u64));
            assert_eq!(weights.iter().sum::<u32>() as usize, count);
        }
    }
}
