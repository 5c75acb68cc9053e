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
    /// Zero where `options` says nothing of it.
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

    /// Takes out all options but the timestamps' values. Nearly no segment has others, and what is not
    /// there is zero, so that nearly always there is nothing to write.
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

    /// Whether a SYN says that it takes SACK blocks.
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

    /// Which options are present, as a byte, and what they say besides the timestamps, if they do: for
    /// who keeps many segments, of which few have more than timestamps.
    #[inline]
    pub const fn options(&self) -> (u8, Option<&Extra>) {
        let has_extra = self.options & !HAS_TIMESTAMPS != 0;
        (self.options, if has_extra { Some(&self.extra) } else { None })
    }

    /// Puts the first part of what [`Segment::options`] told in the place of its own options; whether
    /// there is a second.
    #[inline]
    pub fn set_options(&mut self, options: u8) -> bool {
        self.clear_options();
        self.options = options;
        options & !HAS_TIMESTAMPS != 0
    }

    /// Puts back the second part of what [`Segment::options`] told.
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
