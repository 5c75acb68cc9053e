//! The program that makes test frames and sends them, run by the kernel many times in a call (XDP live frames).
//!
//! ```text
//!   is a group open?                     yes: make a frame
//!   is this the first run of a batch?    no: drop, so that what the batch holds leaves
//!   wait until the group is due          for SPINS looks at the clock; then drop
//!   make a frame:
//!     the headers of the flow whose turn it is, over the page that the kernel lends
//!     sequence number, check (what each byte adds to it), checksum (RFC 1624)
//!     stamp, by sequence number, into the ring of departures
//!     redirect it to the interface
//! ```
//!
//! The kernel passes on what a batch redirected when the batch is over. So the program waits only while the batch is
//! empty: a frame that is made leaves within the time that the rest of its batch takes.

use std::os::fd::OwnedFd;

use anyhow::Result;

use super::program::{XDP_DROP, XDP_END, XDP_START, stamp};
use super::{CHECK_AT, CHECKSUM_AT, PLACE_AT};
use crate::bpf::{
    ADD, ADD_REGISTER, AND, Assembly, CALL, EXCLUSIVE_OR, EXCLUSIVE_OR_REGISTER, EXIT,
    FROM_NETWORK, IF_AT_LEAST_REGISTER, IF_GREATER, IF_GREATER_REGISTER, IF_NOT_EQUAL, JUMP,
    KTIME_GET_NS, LOAD_DOUBLE, LOAD_HALF, LOAD_WORD, MOVE, MOVE_REGISTER, MULTIPLY, OR_REGISTER,
    SHIFT_LEFT, SHIFT_RIGHT, STORE_DOUBLE, STORE_HALF, STORE_WORD, SharedMap, load,
};
use crate::xdp::PROG_TYPE_XDP;

/// The fields of the control map: frames made; frames in all; frames of the open group that are still to be made;
/// when the next group is due, ns and 2⁻³² ns; the flow whose turn it is; runs of this call.
pub(super) const MADE: usize = 0;
pub(super) const FRAMES: usize = 8;
pub(super) const OPEN: usize = 16;
pub(super) const GROUP_NS: usize = 24;
pub(super) const GROUP_FRACTION: usize = 32;
pub(super) const FLOW: usize = 40;
pub(super) const RUNS: usize = 48;
/// What each value of each byte of the sequence number adds to the check: the lowest byte's 256 words first.
pub(super) const CHECKS: usize = 64;
pub(super) const NUMBER_BYTES: usize = 7;
/// The flows, each with its headers and, at [`FLOW_SUM`], the sum that its checksum begins with.
pub(super) const FLOWS: usize = CHECKS + NUMBER_BYTES * 256 * 4;
pub(super) const FLOW_BYTES: usize = 64;
pub(super) const FLOW_SUM: usize = 60;
/// Bytes of a frame that differ from flow to flow or from frame to frame.
pub(super) const HEADER_BYTES: usize = CHECK_AT + 4;

const REDIRECT: i32 = 23;
/// How often the program looks at the clock before it lets the kernel do something else: some 15 µs.
const SPINS: i32 = 512;
const LOOKS: i16 = -8;

/// What stands in the program's code.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coded {
    /// The interface.
    pub(super) interface: u32,
    /// Flows that take turns.
    pub(super) flows: u32,
    /// Frames that go together.
    pub(super) group: u32,
    /// From one group to the next: ns, and 2⁻³² ns.
    pub(super) period: [u64; 2],
    /// Frames that the kernel passes on together, a power of two.
    pub(super) batch: u32,
    /// Records of the ring of departures, a power of two.
    pub(super) records: usize,
}

/// Loads it. Registers: 6 the context, 7 the control map, 8 the sequence number, 9 what is written to.
pub(super) fn load_live(
    control: &SharedMap,
    departures: &SharedMap,
    coded: &Coded,
) -> Result<OwnedFd> {
    let mut all = Assembly::default();
    all.put(MOVE_REGISTER, 6, 1, 0, 0);
    all.address(7, control);
    all.put(LOAD_DOUBLE, 8, 7, MADE as i16, 0);
    all.put(LOAD_DOUBLE, 1, 7, FRAMES as i16, 0);
    all.jump(IF_AT_LEAST_REGISTER, 8, 1, 0, "drop");
    all.put(LOAD_DOUBLE, 9, 7, RUNS as i16, 0);
    all.put(MOVE_REGISTER, 1, 9, 0, 0);
    all.put(ADD, 1, 0, 0, 1);
    all.put(STORE_DOUBLE, 7, 1, RUNS as i16, 0);
    all.put(LOAD_DOUBLE, 1, 7, OPEN as i16, 0);
    all.jump(IF_NOT_EQUAL, 1, 0, 0, "make");
    wait(&mut all, coded);
    all.label("make");
    all.put(ADD, 1, 0, 0, -1);
    all.put(STORE_DOUBLE, 7, 1, OPEN as i16, 0);
    turn(&mut all, coded);
    headers(&mut all);
    number(&mut all);
    checksum(&mut all);
    stamp(&mut all, departures, coded.records);
    all.put(MOVE, 1, 0, 0, coded.interface as i32);
    all.put(MOVE, 2, 0, 0, 0);
    all.put(CALL, 0, 0, 0, REDIRECT);
    all.put(EXIT, 0, 0, 0, 0);
    all.label("drop");
    all.put(MOVE, 0, 0, 0, XDP_DROP);
    all.put(EXIT, 0, 0, 0, 0);
    load(PROG_TYPE_XDP, &all.finish())
}

/// Opens the next group when it is due, if this is the first run of a batch. Register 1 then has its frames.
fn wait(all: &mut Assembly, coded: &Coded) {
    all.put(AND, 9, 0, 0, coded.batch as i32 - 1);
    all.jump(IF_NOT_EQUAL, 9, 0, 0, ".once");
    all.put(MOVE, 1, 0, 0, SPINS);
    all.jump(JUMP, 0, 0, 0, ".store");
    all.label(".once");
    all.put(MOVE, 1, 0, 0, 1);
    all.label(".store");
    all.put(STORE_DOUBLE, 10, 1, LOOKS, 0);
    all.label(".look");
    all.put(CALL, 0, 0, 0, KTIME_GET_NS);
    all.put(LOAD_DOUBLE, 2, 7, GROUP_NS as i16, 0);
    all.jump(IF_AT_LEAST_REGISTER, 0, 2, 0, ".open");
    all.put(LOAD_DOUBLE, 1, 10, LOOKS, 0);
    all.put(ADD, 1, 0, 0, -1);
    all.put(STORE_DOUBLE, 10, 1, LOOKS, 0);
    all.jump(IF_NOT_EQUAL, 1, 0, 0, ".look");
    all.jump(JUMP, 0, 0, 0, "drop");
    all.label(".open");
    all.put(LOAD_DOUBLE, 3, 7, GROUP_FRACTION as i16, 0);
    all.number(4, coded.period[1]);
    all.put(ADD_REGISTER, 3, 4, 0, 0);
    all.put(MOVE_REGISTER, 4, 3, 0, 0);
    all.put(SHIFT_RIGHT, 4, 0, 0, 32);
    all.put(ADD_REGISTER, 2, 4, 0, 0);
    all.number(4, coded.period[0]);
    all.put(ADD_REGISTER, 2, 4, 0, 0);
    all.put(STORE_DOUBLE, 7, 2, GROUP_NS as i16, 0);
    all.put(SHIFT_LEFT, 3, 0, 0, 32);
    all.put(SHIFT_RIGHT, 3, 0, 0, 32);
    all.put(STORE_DOUBLE, 7, 3, GROUP_FRACTION as i16, 0);
    all.put(MOVE, 1, 0, 0, coded.group as i32);
}

/// The next sequence number, and the address of its flow in register 9.
fn turn(all: &mut Assembly, coded: &Coded) {
    all.put(MOVE_REGISTER, 1, 8, 0, 0);
    all.put(ADD, 1, 0, 0, 1);
    all.put(STORE_DOUBLE, 7, 1, MADE as i16, 0);
    all.put(LOAD_DOUBLE, 9, 7, FLOW as i16, 0);
    all.jump(IF_GREATER, 9, 0, coded.flows as i32 - 1, "drop");
    all.put(MOVE_REGISTER, 1, 9, 0, 0);
    all.put(ADD, 1, 0, 0, 1);
    all.jump(IF_NOT_EQUAL, 1, 0, coded.flows as i32, "turned");
    all.put(MOVE, 1, 0, 0, 0);
    all.label("turned");
    all.put(STORE_DOUBLE, 7, 1, FLOW as i16, 0);
    all.put(MULTIPLY, 9, 0, 0, FLOW_BYTES as i32);
    all.put(ADD, 9, 0, 0, FLOWS as i32);
    all.put(ADD_REGISTER, 9, 7, 0, 0);
}

/// Copies the flow's headers over the frame, which begins at register 2.
fn headers(all: &mut Assembly) {
    all.put(LOAD_WORD, 2, 6, XDP_START, 0);
    all.put(LOAD_WORD, 3, 6, XDP_END, 0);
    all.put(MOVE_REGISTER, 4, 2, 0, 0);
    all.put(ADD, 4, 0, 0, HEADER_BYTES as i32);
    all.jump(IF_GREATER_REGISTER, 4, 3, 0, "drop");
    for at in (0..PLACE_AT as i16 / 8 * 8).step_by(8) {
        all.put(LOAD_DOUBLE, 1, 9, at, 0);
        all.put(STORE_DOUBLE, 2, 1, at, 0);
    }
    // (Six bytes before the place, of which four lie past the last eight.)
    all.put(LOAD_WORD, 1, 9, PLACE_AT as i16 - 6, 0);
    all.put(STORE_WORD, 2, 1, PLACE_AT as i16 - 6, 0);
    all.put(LOAD_HALF, 1, 9, PLACE_AT as i16 - 2, 0);
    all.put(STORE_HALF, 2, 1, PLACE_AT as i16 - 2, 0);
}

/// Writes stream and sequence number, and the check. Registers 5 and 0 have both as they stand in the frame.
fn number(all: &mut Assembly) {
    all.put(MOVE_REGISTER, 5, 8, 0, 0);
    all.put(FROM_NETWORK, 5, 0, 0, 64);
    all.put(LOAD_DOUBLE, 1, 9, PLACE_AT as i16, 0);
    all.put(OR_REGISTER, 5, 1, 0, 0);
    all.put(STORE_DOUBLE, 2, 5, PLACE_AT as i16, 0);
    all.put(LOAD_WORD, 0, 9, CHECK_AT as i16, 0);
    all.put(MOVE_REGISTER, 3, 8, 0, 0);
    for byte in 0..NUMBER_BYTES {
        all.put(MOVE_REGISTER, 1, 3, 0, 0);
        all.put(AND, 1, 0, 0, 255);
        all.put(SHIFT_LEFT, 1, 0, 0, 2);
        all.put(ADD_REGISTER, 1, 7, 0, 0);
        all.put(LOAD_WORD, 1, 1, (CHECKS + byte * 1_024) as i16, 0);
        all.put(EXCLUSIVE_OR_REGISTER, 0, 1, 0, 0);
        all.put(SHIFT_RIGHT, 3, 0, 0, 8);
    }
    all.put(STORE_WORD, 2, 0, CHECK_AT as i16, 0);
}

/// Sums the words that differ to those that do not, folds the carries, and writes the complement.
fn checksum(all: &mut Assembly) {
    all.put(LOAD_WORD, 4, 9, FLOW_SUM as i16, 0);
    for (register, words) in [(5, 4), (0, 2)] {
        for word in 0..words {
            all.put(MOVE_REGISTER, 1, register, 0, 0);
            all.put(SHIFT_RIGHT, 1, 0, 0, 16 * word);
            all.put(AND, 1, 0, 0, 0xffff);
            all.put(ADD_REGISTER, 4, 1, 0, 0);
        }
    }
    for _ in 0..2 {
        all.put(MOVE_REGISTER, 1, 4, 0, 0);
        all.put(SHIFT_RIGHT, 1, 0, 0, 16);
        all.put(AND, 4, 0, 0, 0xffff);
        all.put(ADD_REGISTER, 4, 1, 0, 0);
    }
    all.put(EXCLUSIVE_OR, 4, 0, 0, 0xffff);
    all.jump(IF_NOT_EQUAL, 4, 0, 0, "summed");
    // (Zero would mean that there is no checksum, RFC 768.)
    all.put(MOVE, 4, 0, 0, 0xffff);
    all.label("summed");
    all.put(STORE_HALF, 2, 4, CHECKSUM_AT as i16, 0);
}
