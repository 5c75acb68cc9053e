//! A TCP segment as the state machine sees it: header fields and options, payload only counted.
//!
//! 56 bytes and `Copy`, so that a simulator can carry it inline beside eight bytes of its own in
//! one cache line. A SYN never carries SACK blocks and nothing else carries MSS or window scale, so
//! that the two share their place.

/// FIN: no more data from the sender.
pub const FIN: u8 = 0x01;
/// SYN: synchronise sequence numbers.
pub const SYN: u8 = 0x02;
/// RST: reset the connection.
pub const RST: u8 = 0x04;
/// PSH: push.
pub const PSH: u8 = 0x08;
/// ACK: the acknowledgement number is significant.
pub const ACK: u8 = 0x10;
/// URG: the urgent pointer is significant.
pub const URG: u8 = 0x20;
/// ECE: ECN echo (RFC 3168).
pub const ECE: u8 = 0x40;
/// CWR: congestion window reduced (RFC 3168).
pub const CWR: u8 = 0x80;

/// Most SACK blocks that a header without other options holds (RFC 2018).
pub const BLOCKS_LIMIT: usize = 4;

/// SACK edges, left and right in turn; on a SYN the MSS and the window scale.
pub type Extra = [u32; 2 * BLOCKS_LIMIT];

/// A segment without its payload's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Segment {
    /// Sequence number of the first byte, or of the SYN.
    pub sequence: u32,
    /// The next sequence number expected, when `flags` has [`ACK`].
    pub acknowledgement: u32,
    /// TSval and TSecr (RFC 7323), when [`Segment::has_timestamps`].
    pub timestamps: [u32; 2],
    /// Payload bytes.
    pub length: u16,
    /// The window field as it stands in the header, unscaled.
    pub window: u16,
    /// [`FIN`] to [`CWR`].
    pub flags: u8,
    /// Which options are present, and how many SACK blocks.
    options: u8,
    /// Zero for options that are absent from `options`.
    extra: Extra,
}

const HAS_TIMESTAMPS: u8 = 0x10;
const HAS_MSS: u8 = 0x20;
const HAS_SCALE: u8 = 0x40;
const HAS_SACK_PERMITTED: u8 = 0x80;
const BLOCKS_MASK: u8 = 0x07;

impl Segment {
    /// Makes it a segment with an acknowledgement and without options, where it is.
    #[inline(always)]
    pub(crate) fn acknowledge(&mut self, numbers: [u32; 2], length: u16, window: u16, flags: u8) {
        self.clear_options();
        [self.sequence, self.acknowledgement] = numbers;
        self.timestamps = [0; 2];
        self.length = length;
        self.window = window;
        self.flags = flags | ACK;
    }

    /// Takes out all options but the timestamps' values. Few segments have others, and absent ones are
    /// zero, so that there is hardly ever anything to write.
    #[inline(always)]
    pub fn clear_options(&mut self) {
        if self.options & !HAS_TIMESTAMPS != 0 {
            self.extra = [0; 2 * BLOCKS_LIMIT];
        }
        self.options = 0;
    }

    /// Whether all of `flags` are set.
    pub const fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// Whether the timestamp option is present (RFC 7323).
    pub const fn has_timestamps(&self) -> bool {
        self.options & HAS_TIMESTAMPS != 0
    }

    /// Adds the timestamp option.
    pub const fn set_timestamps(&mut self, value: u32, echo: u32) {
        self.timestamps = [value, echo];
        self.options |= HAS_TIMESTAMPS;
    }

    /// The maximum segment size option of a SYN, in bytes.
    pub const fn mss(&self) -> Option<u16> {
        if self.options & HAS_MSS != 0 { Some(self.extra[0] as u16) } else { None }
    }

    /// Whether timestamps are its only option, or, if they are not expected, it has none.
    #[inline]
    pub(crate) const fn has_timestamps_alone(&self, are_expected: bool) -> bool {
        self.options == if are_expected { HAS_TIMESTAMPS } else { 0 }
    }

    /// Adds the MSS option; only to a SYN.
    pub const fn set_mss(&mut self, bytes: u16) {
        self.extra[0] = bytes as u32;
        self.options |= HAS_MSS;
    }

    /// The window scale option of a SYN, as a shift.
    pub const fn scale(&self) -> Option<u8> {
        if self.options & HAS_SCALE != 0 { Some(self.extra[1] as u8) } else { None }
    }

    /// Adds the window scale option; only to a SYN.
    pub const fn set_scale(&mut self, shift: u8) {
        self.extra[1] = shift as u32;
        self.options |= HAS_SCALE;
    }

    /// Whether a SYN permits SACK blocks.
    pub const fn sack_permitted(&self) -> bool {
        self.options & HAS_SACK_PERMITTED != 0
    }

    /// Adds SACK-permitted; only to a SYN.
    pub const fn set_sack_permitted(&mut self) {
        self.options |= HAS_SACK_PERMITTED;
    }

    /// The SACK blocks, `[left, right)` each (RFC 2018).
    pub fn blocks(&self) -> impl ExactSizeIterator<Item = [u32; 2]> + '_ {
        let count = if self.has(SYN) { 0 } else { usize::from(self.options & BLOCKS_MASK) };
        (0..count).map(|i| [self.extra[2 * i], self.extra[2 * i + 1]])
    }

    /// Adds a SACK block; false when the header has no room for it beside its other options.
    pub fn push_block(&mut self, left: u32, right: u32) -> bool {
        let limit = if self.has_timestamps() { BLOCKS_LIMIT - 1 } else { BLOCKS_LIMIT };
        let count = usize::from(self.options & BLOCKS_MASK);
        if self.has(SYN) || count >= limit {
            return false;
        }
        self.extra[2 * count] = left;
        self.extra[2 * count + 1] = right;
        self.options += 1;
        true
    }

    /// Which options are present, as a byte, and the values of all but the timestamps, if any: for a
    /// compact store of many segments, few of which have more than timestamps.
    #[inline]
    pub const fn options(&self) -> (u8, Option<&Extra>) {
        let has_extra = self.options & !HAS_TIMESTAMPS != 0;
        (self.options, if has_extra { Some(&self.extra) } else { None })
    }

    /// Replaces its options by the first part of what [`Segment::options`] returned; returns whether
    /// there is a second.
    #[inline]
    pub fn set_options(&mut self, options: u8) -> bool {
        self.clear_options();
        self.options = options;
        options & !HAS_TIMESTAMPS != 0
    }

    /// Restores the second part of what [`Segment::options`] returned.
    #[inline]
    pub const fn set_extra(&mut self, extra: &Extra) {
        self.extra = *extra;
    }

    /// Sequence numbers that it takes: payload, SYN and FIN.
    pub const fn sequence_length(&self) -> u32 {
        self.length as u32 + (self.flags & FIN) as u32 + ((self.flags & SYN) >> 1) as u32
    }

    /// Bytes of the TCP header with its options, padded to a multiple of four.
    #[inline]
    pub fn header_bytes(&self) -> u32 {
        if self.options == 0 { 20 } else { 20 + self.option_bytes() }
    }

    #[inline(never)]
    fn option_bytes(&self) -> u32 {
        let mut options = 0;
        if self.has(SYN) {
            options += if self.options & HAS_MSS != 0 { 4 } else { 0 };
            options += if self.options & HAS_SCALE != 0 { 3 } else { 0 };
            options += if self.options & HAS_SACK_PERMITTED != 0 { 2 } else { 0 };
        } else if self.options & BLOCKS_MASK != 0 {
            options += 4 + 8 * u32::from(self.options & BLOCKS_MASK);
        }
        options += if self.has_timestamps() { if self.has(SYN) { 10 } else { 12 } } else { 0 };
        options.div_ceil(4) * 4
    }
}

const _: () = assert!(core::mem::size_of::<Segment>() == 56);

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn with(flags: u8, change: impl Fn(&mut Segment)) -> Segment {
        let mut segment = Segment { flags, ..Segment::default() };
        change(&mut segment);
        segment
    }

    /// RFC 9293, 3.2, and 7323, 2018: bytes of the options on a SYN, 4 for MSS, 3 for the scale, 2
    /// for SACK-permitted, 10 for timestamps, filled up to words; elsewhere 12 for timestamps with
    /// padding and 4 and 8 for each block.
    #[test]
    fn a_header_is_as_long_as_its_options() {
        let syn = |change: fn(&mut Segment)| with(SYN, change).header_bytes();
        assert_eq!(syn(|_| {}), 20);
        assert_eq!(syn(|segment| segment.set_mss(1)), 24);
        assert_eq!(syn(|segment| segment.set_scale(1)), 24);
        assert_eq!(syn(|segment| segment.set_sack_permitted()), 24);
        assert_eq!(syn(|segment| segment.set_timestamps(1, 2)), 32);
        let mss_and_scale = |segment: &mut Segment| {
            segment.set_mss(1);
            segment.set_scale(1);
        };
        assert_eq!(syn(mss_and_scale), 28);
        let all = |segment: &mut Segment| {
            segment.set_mss(1);
            segment.set_scale(1);
            segment.set_sack_permitted();
            segment.set_timestamps(1, 2);
        };
        assert_eq!(syn(all), 40);
        for blocks in 0..=3 {
            let push = |segment: &mut Segment| {
                (0..blocks).for_each(|at| assert!(segment.push_block(at, at + 1)));
            };
            let expected = 20 + if blocks > 0 { 4 + 8 * blocks } else { 0 };
            assert_eq!(with(ACK, push).header_bytes(), expected);
            let stamped = with(ACK, |segment| segment.set_timestamps(1, 2));
            let mut both = stamped;
            push(&mut both);
            assert_eq!((stamped.header_bytes(), both.header_bytes()), (32, expected + 12));
        }
    }

    #[test]
    fn sack_blocks_are_kept_in_order_up_to_the_room() {
        for (is_stamped, limit) in [(false, 4), (true, 3)] {
            let mut segment = with(ACK, |_| {});
            if is_stamped {
                segment.set_timestamps(7, 8);
            }
            let taken: Vec<bool> =
                (0..6).map(|at| segment.push_block(10 * at + 1, 10 * at + 2)).collect();
            assert_eq!(taken.iter().filter(|taken| **taken).count(), limit);
            assert!(taken[..limit].iter().all(|taken| *taken));
            let expected: Vec<[u32; 2]> =
                (0..limit as u32).map(|at| [10 * at + 1, 10 * at + 2]).collect();
            assert_eq!(segment.blocks().collect::<Vec<_>>(), expected);
            assert_eq!(segment.timestamps, if is_stamped { [7, 8] } else { [0, 0] });
        }
        let mut syn = with(SYN, |segment| segment.set_mss(1_460));
        assert!(!syn.push_block(1, 2), "a SYN has none");
        assert_eq!((syn.mss(), syn.blocks().len()), (Some(1_460), 0));
    }

    #[test]
    fn absent_options_are_distinguished_from_present_ones() {
        let none = with(SYN, |_| {});
        assert_eq!((none.mss(), none.scale(), none.sack_permitted()), (None, None, false));
        let mss = with(SYN, |segment| segment.set_mss(536));
        assert_eq!((mss.mss(), mss.scale(), mss.sack_permitted()), (Some(536), None, false));
        let scale = with(SYN, |segment| segment.set_scale(7));
        assert_eq!((scale.mss(), scale.scale(), scale.sack_permitted()), (None, Some(7), false));
        let sack = with(SYN, |segment| segment.set_sack_permitted());
        assert_eq!((sack.mss(), sack.scale(), sack.sack_permitted()), (None, None, true));
        for segment in [none, mss, scale, sack] {
            assert!(!segment.has_timestamps());
            assert_eq!(segment.has_timestamps_alone(false), segment == none);
            assert!(!segment.has_timestamps_alone(true));
            let mut stamped = segment;
            stamped.set_timestamps(1, 2);
            assert!(stamped.has_timestamps() && !stamped.has_timestamps_alone(false));
            assert_eq!(stamped.has_timestamps_alone(true), segment == none);
            assert_eq!((stamped.mss(), stamped.scale()), (segment.mss(), segment.scale()));
        }
        assert!(none.has(SYN) && !none.has(ACK) && !none.has(SYN | ACK));
    }

    /// What carries a segment in two parts puts it together again.
    #[test]
    fn options_survive_being_split_off_and_restored() {
        let plain = with(ACK, |_| {});
        let stamped = with(ACK, |segment| segment.set_timestamps(1, 2));
        let reported = with(ACK, |segment| {
            segment.push_block(5, 6);
            segment.push_block(8, 9);
        });
        let both = with(ACK, |segment| {
            segment.set_timestamps(1, 2);
            segment.push_block(5, 6);
        });
        let syn = with(SYN, |segment| {
            segment.set_mss(9);
            segment.set_sack_permitted();
        });
        for segment in [plain, stamped, reported, both, syn] {
            let (options, extra) = segment.options();
            let has_second = segment != plain && segment != stamped;
            assert_eq!(extra.is_some(), has_second);
            // The place held another segment before.
            let mut place = with(segment.flags, |place| {
                place.timestamps = segment.timestamps;
                place.extra = [77; 2 * BLOCKS_LIMIT];
                place.options = HAS_SACK_PERMITTED | 3;
            });
            assert_eq!(place.set_options(options), has_second);
            if let Some(extra) = extra {
                place.set_extra(extra);
            }
            assert_eq!(place, segment);
            let mut cleared = segment;
            cleared.clear_options();
            assert_eq!((cleared.options, cleared.extra), (0, [0; 2 * BLOCKS_LIMIT]));
            let mut answer = segment;
            answer.acknowledge([3, 4], 5, 6, PSH);
            let expected = Segment {
                sequence: 3,
                acknowledgement: 4,
                length: 5,
                window: 6,
                flags: PSH | ACK,
                ..Segment::default()
            };
            assert_eq!(answer, expected);
        }
    }

    #[test]
    fn syn_and_fin_take_a_number_each() {
        let lengths = [(ACK, 0), (SYN, 1), (FIN, 1), (SYN | FIN, 2), (RST | URG | PSH | CWR, 0)];
        for (flags, expected) in lengths {
            let segment = Segment { flags, length: 900, ..Segment::default() };
            assert_eq!(segment.sequence_length(), 900 + expected);
        }
    }
}
