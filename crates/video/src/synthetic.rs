//! A synthetic clip: a moving zone plate and seeded noise, free for anyone to use.
//!
//! The zone plate is a cosine of the squared distance from a centre, which has every frequency in every
//! direction somewhere, and its centre moves on a circle, so that frames differ. The lower a sample stands, the more
//! noise it has. Chroma has two slow waves. The same seed gives the same clip, to the bit, on every machine.

use nilometer_stat::Rng;

use crate::frame::{Frame, FrameSize};

/// The purpose of the noise's random streams.
const NOISE: u32 = 0x7061;
/// Frames after which the centre is where it was.
const PERIOD_FRAMES: f64 = 96.0;
/// Standard deviation of the noise at the lowest row, in steps of a sample.
const NOISE_MOST: f64 = 3.0;

/// A clip of any length; each frame can be had by itself.
#[derive(Clone, Copy, Debug)]
pub struct SyntheticClip {
    size: FrameSize,
    seed: u64,
}

impl SyntheticClip {
    /// The clip of a seed.
    pub fn new(size: FrameSize, seed: u64) -> SyntheticClip {
        SyntheticClip { size, seed }
    }

    /// One of its frames.
    pub fn frame(&self, number: u32) -> Frame {
        let mut frame = Frame::flat(self.size, 0);
        let mut rng = Rng::new(self.seed, NOISE, number.into());
        let turn = 2.0 * core::f64::consts::PI * f64::from(number) / PERIOD_FRAMES;
        let (across, along) = (libm::cos(turn), libm::sin(turn));
        let (width, height) = self.size.plane(0);
        let centre = (width as f64 * (0.5 + 0.2 * across), height as f64 * (0.5 + 0.2 * along));
        // So that the finest waves, at the edge that is farthest, are three quarters of what samples can have.
        let chirp = 0.75 * core::f64::consts::PI / (1.4 * width.max(height) as f64);
        for (at, sample) in frame.plane_mut(0).iter_mut().enumerate() {
            let (x, y) = ((at % width) as f64 - centre.0, (at / width) as f64 - centre.1);
            let noise = rng.normal() * NOISE_MOST * (at / width) as f64 / height as f64;
            *sample = level(128.0 + 90.0 * libm::cos(chirp * (x * x + y * y)) + noise);
        }
        let (width, height) = self.size.plane(1);
        for plane in [1, 2] {
            for (at, sample) in frame.plane_mut(plane).iter_mut().enumerate() {
                let place = match plane {
                    1 => (at % width) as f64 / width as f64,
                    _ => (at / width) as f64 / height as f64,
                };
                let wave =
                    libm::sin(2.0 * core::f64::consts::PI * (place + 0.01 * f64::from(number)));
                *sample = level(128.0 + 50.0 * wave + 0.7 * rng.normal());
            }
        }
        frame
    }
}

fn level(value: f64) -> u8 {
    libm::round(value).clamp(0.0, 255.0) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_clip_and_frames_differ() {
        let clip = |seed| SyntheticClip::new(FrameSize::QCIF, seed);
        assert_eq!(clip(1).frame(7), clip(1).frame(7));
        assert_ne!(clip(1).frame(7), clip(2).frame(7));
        assert_ne!(clip(1).frame(7), clip(1).frame(8));
        let frame = clip(1).frame(0);
        let (least, most) = (frame.plane(0).iter().min(), frame.plane(0).iter().max());
        assert!(least < Some(&50) && most > Some(&200), "{least:?} to {most:?}");
    }
}
