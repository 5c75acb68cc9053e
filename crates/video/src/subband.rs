//! The sub-bands of a frame: how many there are, in which order, and where their coefficients stand.
//!
//! # Why 33
//!
//! The paper says that its "test video sequence uses 33 subbands", numbered from the lowest frequency to the
//! highest (DER, section 5.2 and figure 8), and no more. Figure 8 counts how often each sub-band arrived in eight
//! successive frames, up to eight times, so every frame has all 33 and no sub-band spans several frames: the
//! transform is spatial, frame by frame. A plane that is split L times has 3L + 1 sub-bands. The clips are QCIF,
//! with chroma at half the width and height, so one level less brings chroma to the approximation that luma has,
//! and
//!
//! ```text
//!   luma 176x144, 4 levels  ──►  3·4 + 1 = 13 sub-bands, the lowest 11x9
//!   U     88x72,  3 levels  ──►  3·3 + 1 = 10 sub-bands, the lowest 11x9
//!   V     88x72,  3 levels  ──►  3·3 + 1 = 10 sub-bands, the lowest 11x9
//! ```
//!
//! make 33. That is our reading, not the paper's statement; nothing else that we found gives the number, and the
//! paper's rates (1.3 and 2.6 Mb/s at 12 frames a second: 2.8 and 1.4 to 1) are those of lossless frames each coded
//! by itself. With other numbers of levels, L for luma and L − 1 for chroma, there are 9L − 3.
//!
//! # Their order
//!
//! The three approximations come first: Y, U, V. Then details, from the coarsest to the finest. Level l of chroma
//! has the frequencies of level l + 1 of luma, and follows it:
//!
//! ```text
//!   0 Y  1 U  2 V │ 3–5 Y4  6–8 U3  9–11 V3 │ 12–14 Y3  15–17 U2  18–20 V2 │ 21–23 Y2  24–29 U1 V1 │ 30–32 Y1
//! ```
//!
//! with three directions each: HL (details along rows), LH (along columns), HH (along both), which is the highest.

use alloc::vec::Vec;
use core::ops::Range;

use crate::frame::{FrameSize, PLANES};
use crate::transform::{LEVELS_MAX, side};

/// Levels of luma; chroma has one less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Levels(u8);

impl Levels {
    /// Four, which makes 33 sub-bands.
    pub const PAPER: Levels = Levels(4);

    /// This many levels; `None` unless they are 1 to [`LEVELS_MAX`].
    pub const fn new(levels: u8) -> Option<Levels> {
        if 1 <= levels && levels <= LEVELS_MAX { Some(Levels(levels)) } else { None }
    }

    /// Levels of luma.
    pub const fn luma(self) -> u8 {
        self.0
    }

    /// Levels of a plane.
    pub const fn of_plane(self, plane: usize) -> u8 {
        if plane == 0 { self.0 } else { self.0 - 1 }
    }

    /// Sub-bands of all planes.
    pub const fn subbands(self) -> u8 {
        9 * self.0 - 3
    }
}

/// What a sub-band has of its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The approximation: low frequencies along rows and columns.
    LowLow,
    /// Details along rows.
    HighLow,
    /// Details along columns.
    LowHigh,
    /// Details along both.
    HighHigh,
}

/// One sub-band: a rectangle of a transformed plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subband {
    /// 0 is luma, 1 and 2 are chroma.
    pub plane: usize,
    /// The level that made it, 1 is the finest; 0 where the plane was not split.
    pub level: u8,
    /// What it has of that level.
    pub direction: Direction,
    left: usize,
    top: usize,
    /// Coefficients in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

impl Subband {
    fn new(size: FrameSize, plane: usize, level: u8, direction: Direction) -> Subband {
        let (width, height) = size.plane(plane);
        let along = |length: usize, is_high: bool| match is_high {
            false => (0, side(length, level)),
            true => (side(length, level), side(length, level - 1) - side(length, level)),
        };
        let (left, width) =
            along(width, matches!(direction, Direction::HighLow | Direction::HighHigh));
        let (top, height) =
            along(height, matches!(direction, Direction::LowHigh | Direction::HighHigh));
        Subband { plane, level, direction, left, top, width, height }
    }

    /// Coefficients of the sub-band; zero if a plane is too small to be split that often.
    pub fn coefficients(&self) -> usize {
        self.width * self.height
    }

    /// Where coefficient `number` of the sub-band, counted row by row, stands in a plane with rows of `stride`.
    pub fn place(&self, number: usize, stride: usize) -> usize {
        (self.top + number / self.width) * stride + self.left + number % self.width
    }
}

/// All sub-bands of a frame, from the lowest frequency to the highest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    size: FrameSize,
    levels: Levels,
    subbands: Vec<Subband>,
}

impl Layout {
    /// The sub-bands of frames of a size.
    pub fn new(size: FrameSize, levels: Levels) -> Layout {
        let lowest = (0..PLANES).map(|plane| (plane, levels.of_plane(plane), Direction::LowLow));
        let mut order: Vec<(usize, u8, Direction)> = lowest.collect();
        for level in (1..=levels.luma()).rev() {
            let planes = [(0, level), (1, level - 1), (2, level - 1)];
            for (plane, level) in planes.into_iter().filter(|(_, level)| *level > 0) {
                let details = [Direction::HighLow, Direction::LowHigh, Direction::HighHigh];
                order.extend(details.map(|direction| (plane, level, direction)));
            }
        }
        let of = |(plane, level, direction)| Subband::new(size, plane, level, direction);
        Layout { size, levels, subbands: order.into_iter().map(of).collect() }
    }

    /// The size of the frames.
    pub fn size(&self) -> FrameSize {
        self.size
    }

    /// How often planes are split.
    pub fn levels(&self) -> Levels {
        self.levels
    }

    /// The sub-bands in order.
    pub fn subbands(&self) -> &[Subband] {
        &self.subbands
    }

    /// The numbers of the three approximations.
    pub fn lowest(&self) -> Range<usize> {
        0..PLANES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn qcif_has_33_subbands_and_the_lowest_are_11_by_9() {
        let layout = Layout::new(FrameSize::QCIF, Levels::PAPER);
        assert_eq!(layout.subbands().len(), 33);
        assert_eq!(Levels::PAPER.subbands(), 33);
        for number in layout.lowest() {
            let lowest = layout.subbands()[number];
            assert_eq!((lowest.plane, lowest.width, lowest.height), (number, 11, 9));
        }
        let highest = layout.subbands()[32];
        assert_eq!((highest.level, highest.direction), (1, Direction::HighHigh));
        assert_eq!((highest.plane, highest.width, highest.height), (0, 88, 72));
        // Level l of chroma follows level l + 1 of luma.
        let finer = |band: &Subband| if band.plane == 0 { band.level } else { band.level + 1 };
        let order: Vec<u8> = layout.subbands()[3..].iter().map(finer).collect();
        assert!(order.is_sorted_by(|one, next| one >= next), "{order:?}");
    }

    #[test]
    fn every_place_of_every_plane_is_in_one_subband() {
        for (width, height) in [(176, 144), (1, 1), (3, 2), (17, 1), (1, 40), (33, 31)] {
            let size = FrameSize::new(width, height).expect("a size");
            for levels in (1..=LEVELS_MAX).filter_map(Levels::new) {
                let layout = Layout::new(size, levels);
                assert_eq!(layout.subbands().len(), usize::from(levels.subbands()));
                let planes = [0, 1, 2].map(|plane| size.plane(plane));
                let mut seen = planes.map(|(width, height)| vec![0; width * height]);
                for band in layout.subbands() {
                    for number in 0..band.coefficients() {
                        seen[band.plane][band.place(number, planes[band.plane].0)] += 1;
                    }
                }
                assert!(seen.iter().flatten().all(|count| *count == 1), "{size} {levels:?}");
            }
        }
    }

    #[test]
    fn levels_have_limits() {
        assert_eq!([0, LEVELS_MAX + 1].map(Levels::new), [None, None]);
        assert_eq!(Levels::new(1).map(Levels::subbands), Some(6));
        assert_eq!(Levels::new(LEVELS_MAX).map(Levels::subbands), Some(51));
    }
}
