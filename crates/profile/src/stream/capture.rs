//! The packets of a capture as a pattern: their sizes and the gaps between them, repeated for as long as requested.

use alloc::vec::Vec;

use super::lengths::{FRAME_BYTES_MAX, FRAME_BYTES_MIN};

/// Packets that a recording keeps at most, 16 bytes each.
pub const PACKETS_MAX: usize = 4 << 20;

/// Times and sizes of packets in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// When each arrived, ns after the first, and the length of its frame with its check sequence.
    packets: Vec<(u64, u16)>,
}

impl Recording {
    /// From packets as they arrived: a time in ns and the bytes of the frame with its check sequence, which
    /// are clamped to those of a test frame. `None` if there are fewer than two packets, or if all arrived at
    /// once.
    pub fn new(packets: &[(u64, u32)]) -> Option<Recording> {
        let first = packets.first()?.0;
        let mut latest = 0;
        let kept = packets.iter().take(PACKETS_MAX).map(|&(ns, bytes)| {
            // (A packet whose time is before its predecessor's gets that one's time.)
            latest = latest.max(ns.saturating_sub(first));
            let bytes = bytes.clamp(FRAME_BYTES_MIN.into(), FRAME_BYTES_MAX.into());
            (latest, bytes as u16)
        });
        let packets: Vec<(u64, u16)> = kept.collect();
        (packets.len() > 1 && latest > 0).then_some(Recording { packets })
    }

    /// For the packet with that number, counted on through repetitions: how many repetitions precede it, and
    /// its time within its own, ns.
    pub(super) fn place(&self, number: u64) -> (u64, u64) {
        let count = self.packets.len() as u64;
        (number / count, self.packets[(number % count) as usize].0)
    }

    pub(super) fn frame_bytes(&self, number: u64) -> u16 {
        self.packets[(number % self.packets.len() as u64) as usize].1
    }

    /// The mean time from one packet to the next, ns.
    pub fn mean_gap_ns(&self) -> f64 {
        let (last, _) = self.packets[self.packets.len() - 1];
        last as f64 / (self.packets.len() - 1) as f64
    }

    /// From the first packet to the first of the next round, ns: the last is followed by a mean gap.
    pub(super) fn length_ns(&self) -> f64 {
        self.mean_gap_ns() * self.packets.len() as f64
    }

    /// The longest frame.
    pub fn longest_bytes(&self) -> u16 {
        self.packets.iter().map(|packet| packet.1).max().unwrap_or(FRAME_BYTES_MIN)
    }

    /// Bytes of a frame on average.
    pub fn mean_bytes(&self) -> f64 {
        let sum: f64 = self.packets.iter().map(|packet| f64::from(packet.1)).sum();
        sum / self.packets.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_clamped_to_those_of_frames() {
        let recording = Recording::new(&[(5, 40), (7, 900), (6, 9_000)]).expect("three packets");
        let bytes = [0, 1, 2, 3].map(|number| recording.frame_bytes(number));
        assert_eq!(bytes, [64, 900, 1_518, 64]);
        assert_eq!(recording.place(5), (1, 2), "it came before its time by its stamp");
        assert_eq!(recording.longest_bytes(), 1_518);
        assert!((recording.mean_bytes() - 827.333).abs() < 0.01);
    }

    #[test]
    fn a_capture_without_a_gap_is_no_pattern() {
        assert_eq!(Recording::new(&[]), None);
        assert_eq!(Recording::new(&[(5, 64)]), None);
        assert_eq!(Recording::new(&[(5, 64), (5, 64)]), None);
    }
}
