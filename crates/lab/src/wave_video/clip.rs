//! A clip played in a loop: its frames, their packets, and the rate that it needs.

use anyhow::{Result, anyhow, ensure};
use nilometer_video::encoder::EncoderError;
use nilometer_video::{Encoder, EncoderSettings, Frame, FrameSize, Label, Levels};
use nilometer_wire::{Rate, Span};

/// Frames of a clip at most: they are kept in memory.
pub const FRAMES_MAX: usize = 1_000;
/// Bytes that UDP, IPv4 and Ethernet add to a packet.
pub(super) const HEADERS_BYTES: usize = 8 + 20 + 14;

/// Frames, and the packets of each. Playback beyond the end starts over with the first frame.
#[derive(Clone, Debug)]
pub struct Clip {
    frames: Vec<Frame>,
    packets: Vec<Vec<(Label, Vec<u8>)>>,
    frames_per_1000_s: u32,
}

impl Clip {
    /// A clip of `frames`, played at `frames_per_1000_s`.
    ///
    /// # Errors
    /// Where there are none or too many, or they have several sizes.
    pub fn new(frames: Vec<Frame>, frames_per_1000_s: u32) -> Result<Clip> {
        let first = frames.first().ok_or_else(|| anyhow!("the clip has no frames"))?;
        let size = first.size();
        let count = frames.len();
        ensure!(count <= FRAMES_MAX, "the clip has {count} frames, {FRAMES_MAX} are the most");
        ensure!(frames_per_1000_s > 0, "frames in a second: none");
        ensure!(frames.iter().all(|frame| frame.size() == size), "frames of several sizes");
        let settings = EncoderSettings::new(size);
        let mut encoder = Encoder::new(settings).map_err(|why: EncoderError| anyhow!("{why}"))?;
        let of_frame = |frame| {
            let mut packets = Vec::new();
            encoder.encode(frame, &mut |label, packet| packets.push((label, packet)));
            packets
        };
        let packets = frames.iter().map(of_frame).collect();
        Ok(Clip { frames, packets, frames_per_1000_s })
    }

    /// The size of its frames.
    pub fn size(&self) -> FrameSize {
        self.frames[0].size()
    }

    /// Sub-bands of a frame.
    pub fn subbands(&self) -> usize {
        Levels::PAPER.subbands().into()
    }

    /// Frames before it begins again.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether it has no frames, which no clip has.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Frames in a second.
    pub fn frames_per_second(&self) -> f64 {
        f64::from(self.frames_per_1000_s) / 1e3
    }

    /// From a frame to the next.
    pub fn frame_time(&self) -> Span {
        Span::from_nanos(1_000_000_000_000 / u64::from(self.frames_per_1000_s))
    }

    /// A frame that is played.
    pub fn frame(&self, number: u32) -> &Frame {
        &self.frames[number as usize % self.frames.len()]
    }

    /// The packets of a frame that is played, from the lowest sub-band to the highest, labelled with its number.
    pub fn packets(&self, number: u32) -> impl Iterator<Item = (Label, Vec<u8>)> + '_ {
        self.packets[number as usize % self.frames.len()].iter().map(move |(label, packet)| {
            let label = Label { frame: number, ..*label };
            let coded = Label::read(packet).map_or(&[][..], |(_, coded)| coded);
            (label, label.packet(coded))
        })
    }

    /// Bytes on a link of one turn of the clip, with UDP, IPv4 and Ethernet, by sub-band.
    pub fn bytes_by_subband(&self) -> Vec<u64> {
        let mut bytes = vec![0; self.subbands()];
        for (label, packet) in self.packets.iter().flatten() {
            bytes[usize::from(label.subband)] += (packet.len() + HEADERS_BYTES) as u64;
        }
        bytes
    }

    /// The rate of a link that it needs on average, with UDP, IPv4 and Ethernet.
    pub fn rate(&self) -> Rate {
        let bytes: u64 = self.bytes_by_subband().iter().sum();
        let turn_s = self.frames.len() as f64 / self.frames_per_second();
        let bits_per_second = (bytes as f64 * 8.0 / turn_s).round() as u64;
        Rate::new(bits_per_second.max(1)).unwrap_or(Rate::from_megabits(1))
    }
}

#[cfg(test)]
mod tests {
    use nilometer_video::SyntheticClip;

    use super::*;

    #[test]
    fn a_clip_begins_again_under_new_numbers() {
        let made = SyntheticClip::new(FrameSize::QCIF, 1);
        let clip = Clip::new((0..3).map(|number| made.frame(number)).collect(), 12_000);
        let clip = clip.expect("a clip");
        assert_eq!(clip.frame(4), clip.frame(1));
        let played = |number| clip.packets(number).collect::<Vec<_>>();
        let (first, again) = (played(1), played(4));
        assert_eq!(first.len(), again.len());
        for ((label, packet), (then, repeated)) in first.iter().zip(&again) {
            assert_eq!((label.frame, then.frame), (1, 4));
            let read = Label::read(repeated).expect("a packet with a sum of its own");
            assert_eq!(read, (*then, &packet[packet.len() - read.1.len()..]));
        }
        let bytes: u64 = clip.bytes_by_subband().iter().sum();
        assert_eq!(clip.rate().bits_per_second(), bytes * 8 * 4);
    }

    #[test]
    fn invalid_clips_are_refused() {
        assert!(Clip::new(Vec::new(), 12_000).is_err());
        let other = FrameSize::new(8, 8).expect("a size");
        let frames = vec![Frame::flat(FrameSize::QCIF, 1), Frame::flat(other, 1)];
        assert!(Clip::new(frames, 12_000).is_err());
        assert!(Clip::new(vec![Frame::flat(other, 1)], 0).is_err());
        assert!(Clip::new(vec![Frame::flat(other, 1); FRAMES_MAX + 1], 12_000).is_err());
    }
}
