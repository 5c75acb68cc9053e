//! Enough samples: by which floors likeness can be told, and by which it cannot.
//!
//! A distribution passes when its distance is within [`NEARLY_MAX`] floors. The fewer the samples, the
//! wider the floor, and from some width on a clearly different distribution would pass as well: then that
//! this one did says nothing. What is clearly different is stated here, for each kind of distance, and the
//! widest floor follows from it.

use super::story::{Fidelity, Trait};

/// Up to this many floors, measured traffic is as like the model as a second sample.
pub const ALIKE_MAX: f64 = 1.5;

/// Up to this many floors, it is nearly so; beyond, it differs.
pub const NEARLY_MAX: f64 = 2.0;

/// The widest floor of a KS distance by which likeness can be told. Times of an exponential law and
/// times twice as long are 0.25 apart; from this floor on, that much is within [`NEARLY_MAX`] floors.
/// By Kolmogorov's law it is the floor of 44 samples.
pub const KS_FLOOR_MAX: f64 = 0.25 / NEARLY_MAX;

/// The widest floor of a Jensen-Shannon divergence by which likeness can be told, in bits. Two
/// popularities that send half of all draws to different members are at least 1 - h(1/4) = 0.189 apart,
/// and the divergence of a sample is that of its law and its floor together, so that much is within
/// [`NEARLY_MAX`] floors from this floor on.
pub const JSD_FLOOR_MAX: f64 = 0.189 / (NEARLY_MAX - 1.0);

/// The KS distance that as many samples have from their own law, in the median: √n times it tends to
/// 0.8276 (Kolmogorov's limit).
pub fn ks_floor(samples: u64) -> f64 {
    0.8276 / (samples as f64).sqrt()
}

/// Whether the floor is so wide that a clearly different distribution would be within [`NEARLY_MAX`]
/// floors too ([`KS_FLOOR_MAX`], [`JSD_FLOOR_MAX`]), and this one is.
pub fn is_too_few(fidelity: &Fidelity) -> bool {
    let widest = match fidelity.name {
        Trait::FileSize | Trait::InterConnection => KS_FLOOR_MAX,
        Trait::SourceRank | Trait::DestinationRank => JSD_FLOOR_MAX,
    };
    fidelity.floor > widest && fidelity.ratio.is_some_and(|ratio| ratio <= NEARLY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 44 samples of an exponential law can be distinguished from times twice as long, and 43 cannot.
    #[test]
    fn the_widest_floor_is_that_of_44_samples() {
        let at = |count: u64| {
            let floor = ks_floor(count);
            is_too_few(&Fidelity {
                name: Trait::FileSize,
                distance: floor,
                floor,
                floor_p5: None,
                floor_p95: None,
                ratio: Some(1.0),
                count,
            })
        };
        assert_eq!((at(43), at(44)), (true, false));
        let apart = (1..1_000).map(|x| f64::from(x) / 100.0).map(|x| (-x / 2.0).exp() - (-x).exp());
        assert!((apart.fold(0.0, f64::max) - NEARLY_MAX * KS_FLOOR_MAX).abs() < 1e-4);
        let entropy = -(0.25f64 * 0.25f64.log2() + 0.75 * 0.75f64.log2());
        assert!((1.0 - entropy - JSD_FLOOR_MAX).abs() < 1e-3);
    }
}
