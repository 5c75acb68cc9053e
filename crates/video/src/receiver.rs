//! The receiver: turns packets as they arrive into frames in order, and counts every packet by its fate.
//!
//! A frame is finished by the first packet of a later one, or by the end. Frames of which nothing arrived are
//! rebuilt like any other, from what the last ones left. A packet of a frame that is finished is late and is
//! counted, and a frame number more than [`FRAMES_LOST_MAX`] ahead is refused, so that no packet can produce
//! frames without end.

use alloc::vec::Vec;

use crate::decoder::{Coverage, Decoder};
use crate::frame::{Frame, FrameSize};
use crate::packet::{Label, PacketError};
use crate::subband::Levels;

/// The most frames in a row of which nothing may arrive.
pub const FRAMES_LOST_MAX: u32 = 1_000;

/// What became of packets: `packets = used + above + late + repeated + refused`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All that arrived.
    pub packets: u64,
    /// Those whose coefficients are in a frame.
    pub used: u64,
    /// Those of sub-bands above the highest that is kept.
    pub above: u64,
    /// Those of frames that were finished.
    pub late: u64,
    /// Those whose coefficients had arrived before.
    pub repeated: u64,
    /// Those that are damaged, of another video, or no packets at all.
    pub refused: u64,
    /// Frames that were finished: `frames = frames_whole + frames_partial + frames_empty`.
    pub frames: u64,
    /// Frames of which all sub-bands arrived.
    pub frames_whole: u64,
    /// Frames of which something is missing.
    pub frames_partial: u64,
    /// Frames of which nothing arrived.
    pub frames_empty: u64,
}

impl Counts {
    /// Asserts both sums.
    ///
    /// # Panics
    /// If something vanished.
    pub fn assert_balanced(&self) {
        let Counts { packets, used, above, late, repeated, refused, .. } = *self;
        assert_eq!(packets, used + above + late + repeated + refused, "{self:?}");
        let Counts { frames, frames_whole, frames_partial, frames_empty, .. } = *self;
        assert_eq!(frames, frames_whole + frames_partial + frames_empty, "{self:?}");
    }
}

/// Called with a finished frame, and how much of each of its sub-bands arrived.
pub type Show<'a> = &'a mut dyn FnMut(&Frame, &[Coverage]);

/// Packets into frames.
#[derive(Clone, Debug)]
pub struct Receiver {
    decoder: Decoder,
    keep: u8,
    counts: Counts,
    /// Of the sub-bands of the frame that was finished last.
    coverage: Vec<Coverage>,
}

impl Receiver {
    /// A receiver whose first frame is 0, and which keeps only packets of the `keep` lowest sub-bands.
    pub fn new(size: FrameSize, levels: Levels, keep: u8) -> Receiver {
        let decoder = Decoder::new(size, levels, 0);
        Receiver { decoder, keep, counts: Counts::default(), coverage: Vec::new() }
    }

    /// Takes a packet, and shows the frames that it finishes. Returns the label of a packet that was used.
    ///
    /// # Errors
    /// If nothing of it is used; it is counted in any case.
    pub fn receive(&mut self, packet: &[u8], show: Show<'_>) -> Result<Label, PacketError> {
        self.counts.packets += 1;
        let taken = self.take(packet, show);
        let count = match &taken {
            Ok(label) if label.subband >= self.keep => &mut self.counts.above,
            Ok(_) => &mut self.counts.used,
            Err(PacketError::OtherFrame(_)) => &mut self.counts.late,
            Err(PacketError::Repeated(_)) => &mut self.counts.repeated,
            Err(_) => &mut self.counts.refused,
        };
        *count += 1;
        taken
    }

    fn take(&mut self, packet: &[u8], show: Show<'_>) -> Result<Label, PacketError> {
        let (label, coded) = Label::read(packet)?;
        label.within(self.decoder.layout())?;
        if label.frame < self.decoder.frame() {
            return Err(PacketError::OtherFrame(label.frame));
        }
        if label.frame - self.decoder.frame() > FRAMES_LOST_MAX {
            return Err(PacketError::FarAhead(label.frame));
        }
        while self.decoder.frame() < label.frame {
            self.finish_frame(show);
        }
        if label.subband < self.keep {
            self.decoder.place(&label, coded)?;
        }
        Ok(label)
    }

    /// Shows the remaining frames, so that there are `frames` in all, and returns the final counts.
    ///
    /// # Errors
    /// [`PacketError::FarAhead`] if more of them would be lost in a row than allowed.
    pub fn finish(mut self, frames: u32, show: Show<'_>) -> Result<Counts, PacketError> {
        if frames.saturating_sub(self.decoder.frame()) > FRAMES_LOST_MAX {
            return Err(PacketError::FarAhead(frames));
        }
        while self.decoder.frame() < frames {
            self.finish_frame(show);
        }
        self.counts.assert_balanced();
        Ok(self.counts)
    }

    /// What became of packets so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    fn finish_frame(&mut self, show: Show<'_>) {
        self.coverage.clear();
        let all = 0..self.decoder.layout().levels().subbands();
        self.coverage.extend(all.map(|subband| self.decoder.coverage(subband)));
        let mut missing = self.coverage.iter().filter(|coverage| **coverage != Coverage::Whole);
        let count = match missing.next() {
            None => &mut self.counts.frames_whole,
            Some(_) if self.decoder.is_empty() => &mut self.counts.frames_empty,
            Some(_) => &mut self.counts.frames_partial,
        };
        *count += 1;
        self.counts.frames += 1;
        show(self.decoder.finish(), &self.coverage);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoder::{Encoder, EncoderSettings};
    use crate::synthetic::SyntheticClip;
    use nilometer_stat::Rng;

    const SIZE: FrameSize = FrameSize::QCIF;

    fn packets(frames: u32) -> Vec<Vec<u8>> {
        let mut encoder = Encoder::new(EncoderSettings::new(SIZE)).expect("an encoder");
        let (clip, mut packets) = (SyntheticClip::new(SIZE, 9), Vec::new());
        for number in 0..frames {
            encoder.encode(&clip.frame(number), &mut |_, packet| packets.push(packet));
        }
        packets
    }

    #[test]
    fn frames_come_in_order_and_every_packet_is_counted() {
        let mut receiver = Receiver::new(SIZE, Levels::PAPER, 33);
        let mut shown = Vec::new();
        for packet in packets(3) {
            receiver.receive(&packet, &mut |frame, _| shown.push(frame.clone())).expect("fine");
        }
        assert_eq!(shown.len(), 2);
        let counts = receiver.finish(3, &mut |frame, coverage| {
            assert!(coverage.len() == 33 && coverage.iter().all(|one| *one == Coverage::Whole));
            shown.push(frame.clone());
        });
        let counts = counts.expect("the end");
        let clip = SyntheticClip::new(SIZE, 9);
        assert!((0..3).all(|number| shown[number as usize] == clip.frame(number)));
        assert_eq!((counts.frames_whole, counts.packets), (3, counts.used));
    }

    /// Packets in any order, duplicated, damaged, cut and forged: all are counted, and all frames are shown.
    #[test]
    fn all_arriving_packets_are_counted_and_all_frames_are_shown() {
        let mut rng = Rng::new(6, 0x4ec, 0);
        let original = packets(4);
        for keep in [0, 7, 33] {
            let mut receiver = Receiver::new(SIZE, Levels::PAPER, keep);
            let mut frames = 0;
            for _ in 0..600 {
                let mut packet = original[rng.below(original.len() as u64) as usize].clone();
                match rng.below(8) {
                    0 => packet.truncate(rng.below(packet.len() as u64) as usize),
                    1 => {
                        let at = rng.below(packet.len() as u64) as usize;
                        packet[at] ^= 1 << rng.below(8);
                    }
                    2 => packet.iter_mut().for_each(|byte| *byte = rng.below(256) as u8),
                    3 => {
                        // Valid except for its coefficients.
                        let (label, coded) = Label::read(&packet).expect("a packet");
                        let coded: Vec<u8> = coded.iter().map(|_| rng.below(256) as u8).collect();
                        packet = label.packet(&coded);
                    }
                    _ => {}
                }
                let _ = receiver.receive(&packet, &mut |_, _| frames += 1);
                receiver.counts().assert_balanced();
            }
            let counts = receiver.finish(5, &mut |_, _| frames += 1).expect("the end");
            assert_eq!((counts.packets, counts.frames, frames), (600, 5, 5));
            assert!(counts.refused > 100, "{counts:?}");
            assert!((counts.above > 0) == (keep < 33) && (counts.used > 0) == (keep > 0));
            assert!(keep > 0 || counts.frames_empty == 5, "what is above is not used");
        }
    }

    #[test]
    fn no_packet_makes_frames_without_end() {
        let packet = packets(1).remove(0);
        let (label, coded) = Label::read(&packet).expect("a packet");
        let at = |frame| Label { frame, ..label }.packet(coded);
        let mut receiver = Receiver::new(SIZE, Levels::PAPER, 33);
        let mut frames = 0;
        for frame in [FRAMES_LOST_MAX + 1, u32::MAX] {
            let refused = receiver.receive(&at(frame), &mut |_, _| frames += 1);
            assert_eq!(refused, Err(PacketError::FarAhead(frame)));
        }
        assert_eq!(frames, 0);
        receiver.receive(&at(FRAMES_LOST_MAX), &mut |_, _| frames += 1).expect("just near enough");
        assert_eq!(frames, FRAMES_LOST_MAX);
        let late = receiver.receive(&at(0), &mut |_, _| frames += 1);
        assert_eq!(late, Err(PacketError::OtherFrame(0)));
        assert_eq!(receiver.counts().frames_empty, u64::from(FRAMES_LOST_MAX));
        assert!(receiver.finish(u32::MAX, &mut |_, _| frames += 1).is_err());
    }
}
