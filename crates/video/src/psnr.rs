//! Peak signal-to-noise ratio (PSNR): how far a picture is from its original.
//!
//! PSNR = 10·log₁₀(255² / MSE) decibels, with MSE the mean squared difference of samples. It is infinite where the
//! two are identical. Of several frames there are two: that of the mean of their MSE, and the mean of their PSNR,
//! which has no value when one of them is infinite; an average has to state which it is.

use crate::frame::{Frame, PLANES};

/// The largest sample, which a signal can reach.
const PEAK: f64 = 255.0;

/// Squared differences of samples, summed; sums of frames and of planes can be added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Distortion {
    squares: u64,
    samples: u64,
}

impl Distortion {
    /// The distortion of luma alone.
    ///
    /// # Panics
    /// If the two have different sizes.
    pub fn luma(original: &Frame, copy: &Frame) -> Distortion {
        assert_eq!(original.size(), copy.size(), "frames of one size");
        Distortion::of(original.plane(0), copy.plane(0))
    }

    /// The distortion of all planes, each sample of each of them counted alike.
    ///
    /// # Panics
    /// If the two have different sizes.
    pub fn all_planes(original: &Frame, copy: &Frame) -> Distortion {
        assert_eq!(original.size(), copy.size(), "frames of one size");
        let of = |plane| Distortion::of(original.plane(plane), copy.plane(plane));
        (0..PLANES).map(of).fold(Distortion::default(), Distortion::plus)
    }

    fn of(original: &[u8], copy: &[u8]) -> Distortion {
        let square = |(one, other): (&u8, &u8)| u64::from(one.abs_diff(*other)).pow(2);
        let squares = original.iter().zip(copy).map(square).sum();
        Distortion { squares, samples: original.len() as u64 }
    }

    /// Both together.
    pub fn plus(self, other: Distortion) -> Distortion {
        Distortion { squares: self.squares + other.squares, samples: self.samples + other.samples }
    }

    /// Whether nothing differs, so that PSNR is infinite.
    pub fn is_none(self) -> bool {
        self.squares == 0
    }

    /// PSNR in decibels; `None` if it is infinite.
    pub fn psnr_db(self) -> Option<f64> {
        let mean = self.squares as f64 / self.samples as f64;
        (!self.is_none()).then(|| 10.0 * libm::log10(PEAK * PEAK / mean))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::FrameSize;

    #[test]
    fn known_differences_have_known_ratios() {
        let size = FrameSize::QCIF;
        let original = Frame::flat(size, 100);
        assert_eq!(Distortion::luma(&original, &original).psnr_db(), None);
        assert!(Distortion::all_planes(&original, &original).is_none());
        // Every sample off by one: 20·log₁₀ 255.
        let off = Distortion::all_planes(&original, &Frame::flat(size, 101));
        assert!((off.psnr_db().expect("finite") - 48.130_803_608_679_1).abs() < 1e-9);
        // As far as can be: zero decibels.
        let far = Distortion::luma(&Frame::flat(size, 0), &Frame::flat(size, 255));
        assert!(far.psnr_db().expect("finite").abs() < 1e-9);
        // Chroma is not luma's, and is a third of all samples.
        let mut tinted = original.clone();
        tinted.plane_mut(1).fill(103);
        assert!(Distortion::luma(&original, &tinted).is_none());
        let all = Distortion::all_planes(&original, &tinted).psnr_db().expect("finite");
        assert!((all - 10.0 * libm::log10(65_025.0 * 6.0 / 9.0)).abs() < 1e-9, "{all}");
        let both = off.plus(far);
        assert_eq!(both.samples, 38_016 + 25_344);
    }
}
