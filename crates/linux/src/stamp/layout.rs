//! Where the memory of both stamping rings has what: for the programs that write it and for the code that reads it.

use crate::ring_slots::Slots;
pub(super) use crate::ring_slots::{HEAD, SLOT_SEQUENCE};

/// Counters of the ring of arrivals: slots claimed ([`HEAD`]), frames that found none free.
pub(super) const FULL: usize = 64;
/// Where slots begin, in both rings.
pub(super) const SLOTS: usize = 128;

/// A slot of arrivals: its sequence ([`SLOT_SEQUENCE`]), the stamp, the length of the frame, how much of it was kept,
/// the frame.
pub(super) const SLOT_STAMP: usize = 8;
pub(super) const SLOT_BYTES: usize = 16;
pub(super) const SLOT_KEPT: usize = 20;
pub(super) const FRAME: usize = 24;

/// A slot of departures: the sequence number and one, and the stamp.
pub(super) const RECORD_BYTES: usize = 16;
pub(super) const RECORD_STAMP: usize = 8;

/// How a ring of arrivals is cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) slots: Slots,
    /// Bytes of a frame that are kept.
    pub(super) kept_max: usize,
}

impl Layout {
    pub(super) fn new(slots: usize, kept_max: usize) -> Layout {
        Layout { slots: Slots::new(SLOTS, slots, FRAME + kept_max), kept_max }
    }

    pub(super) fn bytes(&self) -> usize {
        self.slots.end() + self.kept_max
    }
}
