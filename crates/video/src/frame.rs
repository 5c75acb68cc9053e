//! Frames in I420: a plane of luma and two planes of chroma at half the width and height.
//!
//! A raw file (`.yuv`) is such frames one after the other, without a header: its reader has to know the size.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use thiserror::Error;

/// Samples in a row, or rows, at most.
pub const SIDE_MAX: u16 = 4_096;
/// Samples of luma at most: 4096 by 2304.
pub const LUMA_SAMPLES_MAX: u32 = 4_096 * 2_304;
/// Planes of a frame.
pub const PLANES: usize = 3;

/// Width and height of a frame in samples of luma, both within limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameSize {
    width: u16,
    height: u16,
}

/// Why something is not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// Not two numbers with an x between them.
    #[error("a size is WIDTHxHEIGHT, as in 176x144")]
    NoSize,
    /// A side of nothing, or too large a one.
    #[error(
        "{width}x{height}: a side has 1 to {SIDE_MAX} samples, a frame {LUMA_SAMPLES_MAX} at most"
    )]
    Size {
        /// Samples in a row.
        width: u32,
        /// Rows.
        height: u32,
    },
    /// Another number of bytes than a frame of this size has.
    #[error("{bytes} bytes are not a frame of {size}, which has {}", size.frame_bytes())]
    Bytes {
        /// The size that was agreed on.
        size: FrameSize,
        /// The number of bytes given.
        bytes: usize,
    },
}

impl FrameSize {
    /// Quarter Common Intermediate Format, 176x144: the size of the paper's clips.
    pub const QCIF: FrameSize = FrameSize { width: 176, height: 144 };

    /// A size within the limits.
    ///
    /// # Errors
    /// [`FrameError::Size`] where it is not.
    pub const fn new(width: u32, height: u32) -> Result<FrameSize, FrameError> {
        let sides =
            width >= 1 && height >= 1 && width <= SIDE_MAX as u32 && height <= SIDE_MAX as u32;
        if sides && width * height <= LUMA_SAMPLES_MAX {
            Ok(FrameSize { width: width as u16, height: height as u16 })
        } else {
            Err(FrameError::Size { width, height })
        }
    }

    /// Samples of luma in a row.
    pub const fn width(self) -> u16 {
        self.width
    }

    /// Rows of luma.
    pub const fn height(self) -> u16 {
        self.height
    }

    /// Width and height of a plane: 0 is luma (Y), 1 and 2 are chroma (U, V), halved and rounded up.
    pub const fn plane(self, plane: usize) -> (usize, usize) {
        let (width, height) = (self.width as usize, self.height as usize);
        if plane == 0 { (width, height) } else { (width.div_ceil(2), height.div_ceil(2)) }
    }

    /// Where each plane begins in a frame's bytes, and where the last one ends.
    const fn bounds(self) -> [usize; PLANES + 1] {
        let (luma, chroma) = (self.plane(0), self.plane(1));
        let (luma, chroma) = (luma.0 * luma.1, chroma.0 * chroma.1);
        [0, luma, luma + chroma, luma + 2 * chroma]
    }

    /// Bytes of a frame: one for each sample of each plane.
    pub const fn frame_bytes(self) -> usize {
        self.bounds()[PLANES]
    }
}

impl fmt::Display for FrameSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.width, self.height)
    }
}

impl FromStr for FrameSize {
    type Err = FrameError;

    fn from_str(text: &str) -> Result<FrameSize, FrameError> {
        let (width, height) = text.split_once('x').ok_or(FrameError::NoSize)?;
        let side = |digits: &str| digits.parse().map_err(|_| FrameError::NoSize);
        FrameSize::new(side(width)?, side(height)?)
    }
}

/// One picture: the samples of its planes, row by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    size: FrameSize,
    samples: Vec<u8>,
}

impl Frame {
    /// A frame without light or colour: every sample is `sample`.
    pub fn flat(size: FrameSize, sample: u8) -> Frame {
        Frame { size, samples: vec![sample; size.frame_bytes()] }
    }

    /// The frame whose planes are `bytes`: Y, then U, then V.
    ///
    /// # Errors
    /// [`FrameError::Bytes`] unless they are exactly one frame.
    pub fn from_bytes(size: FrameSize, bytes: &[u8]) -> Result<Frame, FrameError> {
        if bytes.len() != size.frame_bytes() {
            return Err(FrameError::Bytes { size, bytes: bytes.len() });
        }
        Ok(Frame { size, samples: bytes.to_vec() })
    }

    /// Its size.
    pub fn size(&self) -> FrameSize {
        self.size
    }

    /// All planes, one after the other: what a raw file has.
    pub fn bytes(&self) -> &[u8] {
        &self.samples
    }

    /// The same, to be filled by a reader.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.samples
    }

    /// The samples of a plane.
    pub fn plane(&self, plane: usize) -> &[u8] {
        let bounds = self.size.bounds();
        &self.samples[bounds[plane]..bounds[plane + 1]]
    }

    /// The samples of a plane, to be changed.
    pub fn plane_mut(&mut self, plane: usize) -> &mut [u8] {
        let bounds = self.size.bounds();
        &mut self.samples[bounds[plane]..bounds[plane + 1]]
    }
}

/// The frames of a raw file, in order.
///
/// # Errors
/// [`FrameError::Bytes`] if something shorter than a frame is left over.
pub fn raw_frames(
    size: FrameSize,
    bytes: &[u8],
) -> Result<impl Iterator<Item = Frame> + '_, FrameError> {
    let frames = bytes.chunks_exact(size.frame_bytes());
    match frames.remainder().len() {
        0 => Ok(frames.map(move |samples| Frame { size, samples: samples.to_vec() })),
        bytes => Err(FrameError::Bytes { size, bytes }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn planes_are_halved_and_rounded_up() {
        let size = FrameSize::QCIF;
        assert_eq!((size.plane(0), size.plane(2)), ((176, 144), (88, 72)));
        assert_eq!(size.frame_bytes(), 38_016);
        let odd = FrameSize::new(7, 5).expect("a size");
        assert_eq!((odd.plane(1), odd.frame_bytes()), ((4, 3), 35 + 24));
        assert_eq!(FrameSize::new(1, 1).expect("a size").frame_bytes(), 3);
    }

    #[test]
    fn sizes_have_limits_and_are_written_as_they_are_read() {
        for text in ["176x144", "1x1", "4096x2304", "2304x4096"] {
            assert_eq!(text.parse::<FrameSize>().expect(text).to_string(), text);
        }
        for (text, why) in [
            ("0x1", FrameError::Size { width: 0, height: 1 }),
            ("4097x1", FrameError::Size { width: 4_097, height: 1 }),
            ("4096x4096", FrameError::Size { width: 4_096, height: 4_096 }),
            ("176", FrameError::NoSize),
            ("176X144", FrameError::NoSize),
            ("-1x3", FrameError::NoSize),
            ("99999999999x1", FrameError::NoSize),
        ] {
            assert_eq!(text.parse::<FrameSize>(), Err(why), "{text}");
        }
    }

    #[test]
    fn a_raw_file_is_whole_frames() {
        let size = FrameSize::new(2, 2).expect("a size");
        let bytes: Vec<u8> = (0..12).collect();
        let frames: Vec<Frame> = raw_frames(size, &bytes).expect("two frames").collect();
        assert_eq!(frames.len(), 2);
        assert_eq!(frames[1], Frame::from_bytes(size, &bytes[6..]).expect("a frame"));
        assert_eq!((frames[0].plane(0), frames[0].plane(2)), (&[0, 1, 2, 3][..], &[5][..]));
        let left = raw_frames(size, &bytes[..11]).err().expect("half a frame");
        assert_eq!(left, FrameError::Bytes { size, bytes: 5 });
        assert_eq!(left.to_string(), "5 bytes are not a frame of 2x2, which has 6");
    }
}
