//! Where the ring's memory has what: one place for the program that writes it and for the code that reads it.

use crate::ring_slots::Slots;
pub(super) use crate::ring_slots::{HEAD, SLOT_SEQUENCE};

/// The counters, each on a cache line of its own: slots claimed ([`HEAD`]), whether we sleep, frames that found no free
/// slot, packets that are not frames of the link.
pub(super) const ASLEEP: usize = 64;
pub(super) const FULL: usize = 128;
pub(super) const OVERSIZE: usize = 136;
/// Where slots begin.
pub(super) const SLOTS: usize = 192;

/// The fields of a slot: its sequence ([`SLOT_SEQUENCE`]), the frame's length, which segment it is and ([`MORE`])
/// whether others follow it, the payload of a segment or zero, its VLAN tag or zero, the bucket of its flow or zero
/// ([`crate::flow_offload`]), the frame.
pub(super) const SLOT_BYTES: usize = 8;
pub(super) const SLOT_INDEX: usize = 12;
pub(super) const SLOT_SIZE: usize = 16;
pub(super) const SLOT_TAG: usize = 20;
pub(super) const SLOT_MARK: usize = 24;
pub(super) const FRAME: usize = 32;

/// In a slot's index: other segments of the same packet follow.
pub(super) const MORE: u32 = 1 << 16;

/// The longest headers up to TCP's payload: Ethernet, IPv4 and TCP with all options.
pub(super) const HEADERS_MAX: usize = 14 + 60 + 60;
/// The most segments of one packet.
pub(super) const SEGMENTS_MAX: usize = 128;

/// How a ring is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) slots: Slots,
    /// The longest frame.
    pub(super) frame_bytes_max: usize,
}

impl Layout {
    /// `slots` slots for frames of up to `frame_bytes_max` bytes.
    pub(super) fn new(slots: usize, frame_bytes_max: usize) -> Layout {
        Layout { slots: Slots::new(SLOTS, slots, FRAME + frame_bytes_max), frame_bytes_max }
    }

    /// The length of the whole. The verifier knows each of the program's bounds by itself but not their
    /// combination, so there is room behind the last slot for combinations that cannot occur.
    pub(super) fn bytes(&self) -> usize {
        self.slots.end() + HEADERS_MAX + self.frame_bytes_max
    }
}
