//! Sizes of test frames: all alike, or a mix drawn by weights.
//!
//! Mixes are given by the sizes of IP packets, as in their sources; the frames are 18 bytes longer. A packet of 40
//! bytes would make a frame that Ethernet pads to 64: here the packet itself has the 46 bytes.

use nilometer_stat::Rng;

use super::lengths::{FRAME_BYTES_MAX, FRAME_BYTES_MIN};

const PURPOSE_SIZE: u32 = 0x5354_0102;

/// Simple IMIX: 7 packets of 40 bytes to 4 of 576 and 1 of 1500, as frames: weight, size.
pub const IMIX: &[(u32, u16)] = &[(7, 64), (4, 594), (1, 1_518)];
/// Harpoon's trimodal mix (its section 6.3): 61 % packets of 40 bytes, 17 % of 576, 22 % of 1500; likewise.
pub const TRIMODAL: &[(u32, u16)] = &[(61, 64), (17, 594), (22, 1_518)];

/// How long frames are, with their check sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All alike.
    Fixed(u16),
    /// Drawn by weight.
    Mix(&'static [(u32, u16)]),
}

impl Sizes {
    /// Whether a test frame can have each of the sizes.
    pub fn is_sound(&self) -> bool {
        let can = |bytes: &u16| (FRAME_BYTES_MIN..=FRAME_BYTES_MAX).contains(bytes);
        match self {
            Sizes::Fixed(bytes) => can(bytes),
            Sizes::Mix(mix) => {
                mix.iter().map(|row| row.0).sum::<u32>() > 0 && mix.iter().all(|row| can(&row.1))
            }
        }
    }

    /// Bytes of a frame on average.
    pub fn mean_bytes(&self) -> f64 {
        match self {
            Sizes::Fixed(bytes) => f64::from(*bytes),
            Sizes::Mix(mix) => {
                let all: u32 = mix.iter().map(|row| row.0).sum();
                let sum: f64 = mix.iter().map(|&(w, bytes)| f64::from(w) * f64::from(bytes)).sum();
                sum / f64::from(all.max(1))
            }
        }
    }

    /// The longest frame.
    pub fn longest_bytes(&self) -> u16 {
        match self {
            Sizes::Fixed(bytes) => *bytes,
            Sizes::Mix(mix) => mix.iter().map(|row| row.1).max().unwrap_or(FRAME_BYTES_MIN),
        }
    }
}

/// Sizes, one frame after the other.
#[derive(Clone, Debug)]
pub(super) struct SizeDraw {
    sizes: Sizes,
    weight: u32,
    rng: Rng,
}

impl SizeDraw {
    pub(super) fn new(sizes: Sizes, seed: u64, stream: u8) -> SizeDraw {
        let weight = match sizes {
            Sizes::Fixed(_) => 1,
            Sizes::Mix(mix) => mix.iter().map(|row| row.0).sum(),
        };
        SizeDraw { sizes, weight, rng: Rng::new(seed, PURPOSE_SIZE, stream.into()) }
    }

    pub(super) fn next(&mut self) -> u16 {
        match self.sizes {
            Sizes::Fixed(bytes) => bytes,
            Sizes::Mix(mix) => {
                let mut at = self.rng.below(u64::from(self.weight)) as u32;
                for &(weight, bytes) in mix {
                    if at < weight {
                        return bytes;
                    }
                    at -= weight;
                }
                unreachable!("the draw is below the sum of weights")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_has_its_shares() {
        let mut draw = SizeDraw::new(Sizes::Mix(TRIMODAL), 7, 0);
        let mut counts = [0u32; 3];
        for _ in 0..100_000 {
            let bytes = draw.next();
            counts[TRIMODAL.iter().position(|row| row.1 == bytes).expect("one of the mix")] += 1;
        }
        for (count, (percent, _)) in counts.iter().zip(TRIMODAL) {
            // Five standard deviations of a share of 100,000 are 0.8 percent at the most.
            assert!((f64::from(*count) / 1e3 - f64::from(*percent)).abs() < 0.8, "{counts:?}");
        }
        assert!((Sizes::Mix(TRIMODAL).mean_bytes() - 473.98).abs() < 0.01);
        assert_eq!(Sizes::Mix(IMIX).longest_bytes(), 1_518);
    }

    #[test]
    fn impossible_frame_sizes_are_unsound() {
        assert!(Sizes::Fixed(64).is_sound() && Sizes::Fixed(1_518).is_sound());
        assert!(!Sizes::Fixed(63).is_sound() && !Sizes::Fixed(1_519).is_sound());
        assert!(Sizes::Mix(IMIX).is_sound() && !Sizes::Mix(&[]).is_sound());
    }
}
