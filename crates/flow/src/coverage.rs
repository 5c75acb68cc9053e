//! The payload that a TCP sender transferred, from the sequence space its segments covered (RFC 9293, 3.4).
//!
//! Adding up segment lengths counts retransmissions and keepalives twice, and misses what the capture
//! lost. So the sender's lowest and highest sequence numbers are kept instead, extended to 64 bits so
//! that a file may be longer than the 4 GiB of the sequence space; their distance is the file. SYN
//! and FIN each take a sequence number that is not payload: a SYN stands before the file's first
//! byte, a FIN behind its last, and so both mark a place without covering anything.
//!
//! A segment that carries nothing is ignored (a keepalive stands one *below* the next byte). One that jumps
//! more than [`JUMP_MAX_BYTES`] beyond what was covered is from another sender, or garbage: it starts a
//! stretch of its own, and the stretches are summed, so that no sequence number can add more than that jump.

use core::num::NonZeroU64;

/// The farthest a segment may stand from what was covered and still belong to it: 16 MiB, larger
/// than any usual window and far smaller than a random jump (half of 4 GiB).
pub(crate) const JUMP_MAX_BYTES: u64 = 16 << 20;

/// Sequence numbers are extended from this on, so that they may go below the first one seen. Its lower half is
/// zero: the lower half of an extended number is the sequence number.
const ORIGIN: u64 = 1 << 40;

/// The sequence space covered so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Coverage {
    earlier_bytes: u64,
    stretch: Option<Stretch>,
}

#[derive(Clone, Copy, Debug)]
struct Stretch {
    low: u64,
    high: NonZeroU64,
}

impl Coverage {
    /// Adds the payload of a segment, `bytes` from `sequence` on; with `bytes` 0 it marks a place.
    #[inline]
    pub(crate) fn add(&mut self, sequence: u32, bytes: u32) {
        let Some(stretch) = &mut self.stretch else {
            self.stretch = Some(Stretch::new(sequence, bytes));
            return;
        };
        let covered_to = stretch.high.get();
        let ahead = i64::from(sequence.wrapping_sub(covered_to as u32) as i32);
        // A number of at least 2^40 does not wrap by adding or subtracting 2^31.
        let low = covered_to.wrapping_add_signed(ahead);
        let high = low + u64::from(bytes);
        if low > covered_to + JUMP_MAX_BYTES || high + JUMP_MAX_BYTES < stretch.low {
            self.earlier_bytes += stretch.bytes();
            *stretch = Stretch::new(sequence, bytes);
            return;
        }
        stretch.low = stretch.low.min(low);
        stretch.high = stretch.high.saturating_add(high.saturating_sub(covered_to));
    }

    /// Adds payload without a sequence number.
    #[inline]
    pub(crate) fn add_bytes(&mut self, bytes: u32) {
        self.earlier_bytes += u64::from(bytes);
    }

    /// Payload bytes covered.
    pub(crate) fn bytes(&self) -> u64 {
        self.earlier_bytes + self.stretch.as_ref().map_or(0, Stretch::bytes)
    }
}

impl Stretch {
    fn new(sequence: u32, bytes: u32) -> Stretch {
        let low = ORIGIN + u64::from(sequence);
        Stretch { low, high: NonZeroU64::MIN.saturating_add(low + u64::from(bytes) - 1) }
    }

    fn bytes(&self) -> u64 {
        self.high.get() - self.low
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    fn covered(segments: &[(u32, u32)]) -> u64 {
        let mut coverage = Coverage::default();
        segments.iter().for_each(|&(sequence, bytes)| coverage.add(sequence, bytes));
        coverage.bytes()
    }

    #[test]
    fn retransmissions_and_lost_segments_count_once() {
        assert_eq!(covered(&[(1, 100), (101, 100), (1, 100), (101, 100)]), 200);
        assert_eq!(covered(&[(1, 100), (301, 100)]), 400, "what the capture lost was transferred");
        assert_eq!(covered(&[(301, 100), (1, 100)]), 400, "whatever came first");
        assert_eq!(covered(&[(1, 0), (51, 0)]), 50, "SYN and FIN mark the ends");
    }

    #[test]
    fn files_may_be_longer_than_the_sequence_space() {
        let mut coverage = Coverage::default();
        let mut sequence = u32::MAX - 5_000;
        for _ in 0..100_000 {
            coverage.add(sequence, 60_000);
            coverage.add(sequence.wrapping_sub(60_000), 60_000);
            sequence = sequence.wrapping_add(60_000);
        }
        assert_eq!(coverage.bytes(), 6_000_060_000, "the first retransmission stood below");
    }

    #[test]
    fn garbage_cannot_invent_gigabytes() {
        assert_eq!(covered(&[(0, 1_000), (0x4000_0000, 10), (0xc000_0000, 10)]), 1_020);
        assert_eq!(covered(&[(0, 1_000), (0x0100_0000, 10)]), 0x0100_000a);
        assert_eq!(covered(&[(0, 1_000), (0x0100_0000 + 1_001, 10)]), 1_010);
    }

    #[test]
    fn agrees_with_the_span_of_the_file_wherever_it_begins() {
        let (mut rng, file) = (Rng::new(5, 0, 0), 100_000usize);
        for isn in [0u32, 1 << 31, u32::MAX - 50_000] {
            let mut coverage = Coverage::default();
            let (mut low, mut high) = (usize::MAX, 0);
            for _ in 0..1_000 {
                let chance = rng.next_u64();
                let at = (chance >> 33) as usize % file;
                let bytes = (chance >> 50) as usize % 1_461;
                coverage.add(isn.wrapping_add(at as u32), bytes as u32);
                (low, high) = (low.min(at), high.max(at + bytes));
                assert_eq!(coverage.bytes(), (high - low) as u64);
            }
        }
    }
}
