//! Slots of a ring in a shared map, claimed by BPF programs on several processors at once.

use crate::bpf::{
    ADD, ADD_REGISTER, AND, ATOMIC, ATOMIC_COMPARE_EXCHANGE, Assembly, IF_EQUAL_REGISTER,
    IF_GREATER_REGISTER, IF_NOT_EQUAL, JUMP, LOAD_DOUBLE, MOVE, MOVE_REGISTER, MULTIPLY,
    STORE_DOUBLE,
};

/// Where the ring counts slots claimed.
pub(super) const HEAD: usize = 0;
/// Where a slot has its sequence. Its position: it is free; one more: it is filled.
pub(super) const SLOT_SEQUENCE: usize = 0;

/// Where the stack has how often claiming a slot may still fail.
const TRIES: i16 = -24;

const LINE: usize = 64;

/// The slots of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slots {
    start: usize,
    /// How many there are, a power of two.
    pub(super) count: usize,
    /// Bytes from one slot to the next: an odd number of cache lines, so that their beginnings, which
    /// are all that short frames use, are spread over all sets of a cache.
    pub(super) stride: usize,
}

impl Slots {
    /// `count` slots of at least `bytes` bytes; the first begins at `start`.
    pub(super) fn new(start: usize, count: usize, bytes: usize) -> Slots {
        assert!(count.is_power_of_two());
        Slots { start, count, stride: (bytes.div_ceil(LINE) | 1) * LINE }
    }

    /// Where the slot of a position begins.
    pub(super) fn at(&self, position: u64) -> usize {
        self.start + (position as usize & (self.count - 1)) * self.stride
    }

    /// Where the last one ends.
    pub(super) fn end(&self) -> usize {
        self.start + self.count * self.stride
    }
}

/// Claims the next slot of the ring in register 7: its position in register 8, its address in register 9. It goes on
/// at `.full` if none is free, or if other processors were first `tries_max` times.
pub(super) fn claim(all: &mut Assembly, slots: &Slots, tries_max: i32) {
    all.put(MOVE, 1, 0, 0, tries_max);
    all.put(STORE_DOUBLE, 10, 1, TRIES, 0);
    all.label(".claim");
    all.put(LOAD_DOUBLE, 8, 7, HEAD as i16, 0);
    all.put(MOVE_REGISTER, 9, 8, 0, 0);
    all.put(AND, 9, 0, 0, slots.count as i32 - 1);
    all.put(MULTIPLY, 9, 0, 0, slots.stride as i32);
    all.put(ADD_REGISTER, 9, 7, 0, 0);
    all.put(ADD, 9, 0, 0, slots.start as i32);
    all.put(LOAD_DOUBLE, 1, 9, SLOT_SEQUENCE as i16, 0);
    // A slot with a sequence behind the position is still in use, and one ahead of it has been
    // claimed by another processor.
    all.jump(IF_GREATER_REGISTER, 8, 1, 0, ".full");
    all.jump(IF_GREATER_REGISTER, 1, 8, 0, ".again");
    all.put(MOVE_REGISTER, 0, 8, 0, 0);
    all.put(ADD, 1, 0, 0, 1);
    all.put(ATOMIC, 7, 1, HEAD as i16, ATOMIC_COMPARE_EXCHANGE);
    all.jump(IF_EQUAL_REGISTER, 0, 8, 0, ".claimed");
    all.label(".again");
    all.put(LOAD_DOUBLE, 1, 10, TRIES, 0);
    all.put(ADD, 1, 0, 0, -1);
    all.put(STORE_DOUBLE, 10, 1, TRIES, 0);
    all.jump(IF_NOT_EQUAL, 1, 0, 0, ".claim");
    all.jump(JUMP, 0, 0, 0, ".full");
    all.label(".claimed");
}
