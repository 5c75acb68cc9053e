//! The decoder: rebuilds a frame from those of its packets that have arrived.
//!
//! Missing coefficients are zero, which only takes detail from the picture where they belong. In the three
//! lowest sub-bands zero would be a grey hole, so there the last frame's coefficients stay. A packet is
//! decoded separately and put into its place only when all of it is valid.

use alloc::vec;
use alloc::vec::Vec;

use crate::encoder::GREY;
use crate::entropy;
use crate::frame::{Frame, FrameSize, PLANES};
use crate::packet::{Label, PacketError};
use crate::subband::{Layout, Levels};
use crate::transform::Plane;

/// How much of a sub-band has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// Nothing.
    None,
    /// Some of its coefficients.
    Part,
    /// All of them; a sub-band without coefficients is always whole.
    Whole,
}

/// Packets of one frame after the other into frames.
#[derive(Clone, Debug)]
pub struct Decoder {
    layout: Layout,
    /// The coefficients of the frame that have arrived; in the lowest sub-bands, where missing,
    /// those of earlier frames.
    planes: [Plane; PLANES],
    /// Which coefficients have arrived.
    came: [Vec<bool>; PLANES],
    /// How many of each sub-band.
    counts: Vec<usize>,
    frame: u32,
    rebuilt: Frame,
    picture: [Plane; PLANES],
    run: Vec<i32>,
}

impl Decoder {
    /// A decoder that begins with frame `first`. Until a packet arrives, a frame is grey.
    pub fn new(size: FrameSize, levels: Levels, first: u32) -> Decoder {
        let layout = Layout::new(size, levels);
        let planes = [0, 1, 2].map(|plane| Plane::new(size.plane(plane)));
        Decoder {
            came: [0, 1, 2].map(|plane| vec![false; planes[plane].values().len()]),
            counts: vec![0; layout.subbands().len()],
            frame: first,
            rebuilt: Frame::flat(size, GREY as u8),
            picture: planes.clone(),
            run: Vec::new(),
            planes,
            layout,
        }
    }

    /// The sub-bands of the video.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The number of the frame whose packets are taken.
    pub fn frame(&self) -> u32 {
        self.frame
    }

    /// Takes a packet of this frame.
    ///
    /// # Errors
    /// If it is not a packet, or not usable; the frame is then unchanged.
    pub fn receive(&mut self, packet: &[u8]) -> Result<Label, PacketError> {
        let (label, coded) = Label::read(packet)?;
        self.place(&label, coded)?;
        Ok(label)
    }

    /// Takes the coefficients of a packet whose label was read.
    pub(crate) fn place(&mut self, label: &Label, coded: &[u8]) -> Result<(), PacketError> {
        label.within(&self.layout)?;
        if label.frame != self.frame {
            return Err(PacketError::OtherFrame(label.frame));
        }
        let subband = label.subband;
        let band = self.layout.subbands()[usize::from(subband)];
        let (first, count) = (label.first as usize, usize::from(label.count));
        let stride = self.planes[band.plane].width();
        let place = |at: usize| band.place(first + at, stride);
        let came = &mut self.came[band.plane];
        if (0..count).any(|at| came[place(at)]) {
            return Err(PacketError::Repeated(subband));
        }
        entropy::decode(coded, count, first % band.width, band.width, &mut self.run)
            .map_err(|why| PacketError::Coefficients { subband, why })?;
        let values = self.planes[band.plane].values_mut();
        for (at, value) in self.run.iter().enumerate() {
            values[place(at)] = *value;
            came[place(at)] = true;
        }
        self.counts[usize::from(subband)] += count;
        Ok(())
    }

    /// How much of a sub-band of this frame has arrived.
    pub fn coverage(&self, subband: u8) -> Coverage {
        let all = self.layout.subbands()[usize::from(subband)].coefficients();
        match self.counts[usize::from(subband)] {
            count if count == all => Coverage::Whole,
            0 => Coverage::None,
            _ => Coverage::Part,
        }
    }

    /// Whether nothing of this frame has arrived.
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|count| *count == 0)
    }

    /// Rebuilds the frame from what has arrived, and begins the next one.
    pub fn finish(&mut self) -> &Frame {
        for number in 0..PLANES {
            let picture = &mut self.picture[number];
            picture.values_mut().copy_from_slice(self.planes[number].values());
            picture.inverse(self.layout.levels().of_plane(number));
            let samples = self.rebuilt.plane_mut(number).iter_mut();
            for (sample, value) in samples.zip(picture.values()) {
                *sample = (value + GREY).clamp(0, 255) as u8;
            }
        }
        self.forget();
        self.frame = self.frame.wrapping_add(1);
        &self.rebuilt
    }

    /// Forgets all that arrived, except the lowest sub-bands.
    fn forget(&mut self) {
        self.came.iter_mut().for_each(|came| came.fill(false));
        self.counts.fill(0);
        for band in &self.layout.subbands()[self.layout.lowest().end..] {
            let stride = self.planes[band.plane].width();
            let values = self.planes[band.plane].values_mut();
            for row in 0..band.height {
                if band.width > 0 {
                    let begin = band.place(row * band.width, stride);
                    values[begin..begin + band.width].fill(0);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoder::{Encoder, EncoderSettings};
    use crate::synthetic::SyntheticClip;

    type Packets = Vec<(Label, Vec<u8>)>;

    /// The packets of each of the first frames of a clip, and those frames.
    fn clip(size: FrameSize, levels: u8, frames: u32) -> Vec<(Frame, Packets)> {
        let levels = Levels::new(levels).expect("levels");
        let settings = EncoderSettings { levels, ..EncoderSettings::new(size) };
        let mut encoder = Encoder::new(settings).expect("an encoder");
        let clip = SyntheticClip::new(size, 3);
        let one = |number| {
            let (frame, mut packets) = (clip.frame(number), Vec::new());
            encoder.encode(&frame, &mut |label, packet| packets.push((label, packet)));
            (frame, packets)
        };
        (0..frames).map(one).collect()
    }

    #[test]
    fn all_packets_are_the_frame_whatever_its_size() {
        for (width, height) in [(176, 144), (1, 1), (2, 1), (1, 50), (33, 31), (64, 48), (351, 3)] {
            let size = FrameSize::new(width, height).expect("a size");
            for levels in 1..=6 {
                let mut decoder = Decoder::new(size, Levels::new(levels).expect("levels"), 0);
                for (frame, packets) in clip(size, levels, 2) {
                    // In any order.
                    for (label, packet) in packets.iter().rev() {
                        assert_eq!(decoder.receive(packet), Ok(*label));
                    }
                    let all = 0..decoder.layout().levels().subbands();
                    assert!(all.into_iter().all(|at| decoder.coverage(at) == Coverage::Whole));
                    assert_eq!(*decoder.finish(), frame, "{size}, {levels} levels");
                }
            }
        }
    }

    #[test]
    fn a_lost_packet_affects_its_own_coefficients_only() {
        let (frame, packets) = clip(FrameSize::QCIF, 4, 1).remove(0);
        let mut whole = Decoder::new(FrameSize::QCIF, Levels::PAPER, 0);
        for (_, packet) in &packets {
            whole.receive(packet).expect("a packet");
        }
        for lost in 0..packets.len() {
            let mut decoder = Decoder::new(FrameSize::QCIF, Levels::PAPER, 0);
            for (at, (_, packet)) in packets.iter().enumerate() {
                if at != lost {
                    decoder.receive(packet).expect("a packet");
                }
            }
            let label = packets[lost].0;
            assert_ne!(decoder.coverage(label.subband), Coverage::Whole);
            let band = decoder.layout().subbands()[usize::from(label.subband)];
            let stride = decoder.planes[band.plane].width();
            let run = label.first as usize..label.first as usize + usize::from(label.count);
            let missing: Vec<usize> = run.map(|at| band.place(at, stride)).collect();
            for plane in 0..PLANES {
                let both = decoder.planes[plane].values().iter().zip(whole.planes[plane].values());
                for (place, (value, true_value)) in both.enumerate() {
                    let is_missing = plane == band.plane && missing.contains(&place);
                    assert_eq!(*value, if is_missing { 0 } else { *true_value });
                }
            }
        }
        assert_eq!(*whole.finish(), frame);
    }

    #[test]
    fn the_lowest_subbands_of_a_lost_frame_are_those_of_the_last() {
        let frames = clip(FrameSize::QCIF, 4, 2);
        let mut decoder = Decoder::new(FrameSize::QCIF, Levels::PAPER, 0);
        assert_eq!(decoder.rebuilt, Frame::flat(FrameSize::QCIF, 128));
        for (_, packet) in &frames[0].1 {
            decoder.receive(packet).expect("a packet");
        }
        decoder.finish();
        let lost = decoder.finish().clone();
        // The same as the first frame with its lowest sub-bands alone.
        let mut twin = Decoder::new(FrameSize::QCIF, Levels::PAPER, 0);
        for (label, packet) in &frames[0].1 {
            if label.subband < 3 {
                twin.receive(packet).expect("a packet");
            }
        }
        assert_eq!(lost, *twin.finish());
        assert_ne!(lost, Frame::flat(FrameSize::QCIF, 128));
    }

    #[test]
    fn unusable_packets_change_nothing() {
        let frames = clip(FrameSize::QCIF, 4, 2);
        let (label, packet) = &frames[0].1[5];
        let mut decoder = Decoder::new(FrameSize::QCIF, Levels::PAPER, 0);
        decoder.receive(packet).expect("a packet");
        let before = decoder.clone();
        let repeated = Err(PacketError::Repeated(label.subband));
        assert_eq!(decoder.receive(packet), repeated);
        assert_eq!(decoder.receive(&frames[1].1[5].1), Err(PacketError::OtherFrame(1)));
        let (_, coded) = Label::read(&frames[0].1[6].1).expect("a packet");
        let cut = frames[0].1[6].0.packet(&coded[..coded.len() / 2]);
        let refused = decoder.receive(&cut).expect_err("half of its coefficients");
        assert!(matches!(refused, PacketError::Coefficients { .. }), "{refused}");
        assert_eq!((&decoder.planes, &decoder.came), (&before.planes, &before.came));
        assert_eq!(decoder.counts, before.counts);
    }
}
