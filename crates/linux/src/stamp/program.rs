//! The two programs that stamp test frames: in front of the queueing discipline, and in front of the kernel.
//!
//! ```text
//!   leaving (tc egress)                       coming (XDP)
//!     is it of our run? else pass it on         stamp
//!     its slot by its sequence number           is it of our run, or from our source? else pass it on
//!     no stamp there, and this number           claim the next slot; none free: count it, drop it
//!     stamp, and write it                       write stamp, length and frame; commit the slot
//!     pass it on                                drop it
//! ```
//!
//! The reader's processor has the record's cache line, and it takes a while to come back. So the number is written before the
//! stamp is taken, by an atomic exchange that waits for the line, and the stamp by a plain store that nothing waits for: a
//! record without a stamp is not yet there.
//!
//! Slots of arrivals are claimed as in `crate::tcx`, since a device with several queues may run the program on
//! several processors at once.

use std::os::fd::OwnedFd;

use anyhow::Result;

use super::layout::{
    FRAME, FULL, HEAD, Layout, RECORD_BYTES, RECORD_STAMP, SLOT_BYTES, SLOT_KEPT, SLOT_SEQUENCE,
    SLOT_STAMP, SLOTS,
};
use super::{FRAME_BYTES_MIN, PLACE_AT, RUN_AT, Watched};
use crate::bpf::{
    ADD, ADD_REGISTER, AND, ATOMIC, ATOMIC_ADD, ATOMIC_EXCHANGE, Assembly, CALL, EXIT,
    FROM_NETWORK, IF_EQUAL, IF_EQUAL_REGISTER, IF_GREATER, IF_GREATER_REGISTER, IF_NOT_EQUAL,
    IF_NOT_EQUAL_REGISTER, JUMP, KTIME_GET_NS, LOAD_BYTE, LOAD_DOUBLE, LOAD_HALF, LOAD_WORD, MOVE,
    MOVE_REGISTER, MULTIPLY, PROG_TYPE_SCHED_CLS, SHIFT_LEFT, SHIFT_RIGHT, SKB_LOAD_BYTES,
    STORE_DOUBLE, STORE_WORD, SUBTRACT_REGISTER, SharedMap, load,
};
use crate::ring_slots::claim;
use crate::xdp::PROG_TYPE_XDP;

const XDP_LOAD_BYTES: i32 = 189;
/// `TCX_NEXT`: the frame continues.
const NEXT: i32 = -1;
pub(super) const XDP_DROP: i32 = 1;
const XDP_PASS: i32 = 2;
/// Where `struct xdp_md` has the frame's beginning and its end.
pub(super) const XDP_START: i16 = 0;
pub(super) const XDP_END: i16 = 4;
const ETHERTYPE_AT: i16 = 12;
const PROTOCOL_AT: i16 = 23;
const SOURCE_AT: i16 = 26;
/// As a little-endian machine loads it.
const IPV4: i32 = 0x0008;
const UDP: i32 = 17;
/// How often claiming a slot may fail, because another processor was first, before the frame counts as lost.
const TRIES_MAX: i32 = 8;

/// A word as a program loads it from a frame in which its bytes stand in network order.
fn as_loaded(word: u32) -> u64 {
    u64::from(u32::from_le_bytes(word.to_be_bytes()))
}

/// Loads the program that stamps what leaves. It writes into `slots` records.
pub(super) fn load_departures(shared: &SharedMap, run: u32, slots: usize) -> Result<OwnedFd> {
    load(PROG_TYPE_SCHED_CLS, &departures(shared, run, slots))
}

fn departures(shared: &SharedMap, run: u32, slots: usize) -> Vec<u64> {
    /// Where the stack has the run and, aligned, the place.
    const RUN: i16 = -20;
    const PLACE: i16 = -16;
    let mut all = Assembly::default();
    all.put(MOVE_REGISTER, 6, 1, 0, 0);
    all.put(MOVE, 2, 0, 0, RUN_AT as i32);
    all.put(MOVE_REGISTER, 3, 10, 0, 0);
    all.put(ADD, 3, 0, 0, i32::from(RUN));
    all.put(MOVE, 4, 0, 0, (PLACE_AT - RUN_AT) as i32 + 8);
    all.put(CALL, 0, 0, 0, SKB_LOAD_BYTES);
    all.jump(IF_NOT_EQUAL, 0, 0, 0, "pass");
    all.put(LOAD_WORD, 1, 10, RUN, 0);
    all.number(2, as_loaded(run));
    all.jump(IF_NOT_EQUAL_REGISTER, 1, 2, 0, "pass");
    all.put(LOAD_DOUBLE, 8, 10, PLACE, 0);
    all.put(FROM_NETWORK, 8, 0, 0, 64);
    // (The stream stands in the highest byte.)
    all.put(SHIFT_LEFT, 8, 0, 0, 8);
    all.put(SHIFT_RIGHT, 8, 0, 0, 8);
    stamp(&mut all, shared, slots);
    all.label("pass");
    all.put(MOVE, 0, 0, 0, NEXT);
    all.put(EXIT, 0, 0, 0, 0);
    all.finish()
}

/// Stamps a departure into one of `slots` records, by its sequence number in register 8. Registers 6 and 7 are kept.
pub(super) fn stamp(all: &mut Assembly, shared: &SharedMap, slots: usize) {
    all.put(MOVE_REGISTER, 9, 8, 0, 0);
    all.put(AND, 9, 0, 0, slots as i32 - 1);
    all.put(MULTIPLY, 9, 0, 0, RECORD_BYTES as i32);
    all.address(1, shared);
    all.put(ADD_REGISTER, 9, 1, 0, 0);
    all.put(ADD, 8, 0, 0, 1);
    all.put(MOVE, 1, 0, 0, 0);
    all.put(STORE_DOUBLE, 9, 1, (SLOTS + RECORD_STAMP) as i16, 0);
    all.put(ATOMIC, 9, 8, SLOTS as i16, ATOMIC_EXCHANGE);
    all.put(CALL, 0, 0, 0, KTIME_GET_NS);
    all.put(STORE_DOUBLE, 9, 0, (SLOTS + RECORD_STAMP) as i16, 0);
}

/// Loads the program that stamps what comes in.
pub(super) fn load_arrivals(
    shared: &SharedMap,
    watched: Watched,
    layout: &Layout,
) -> Result<OwnedFd> {
    load(PROG_TYPE_XDP, &arrivals(shared, watched, layout))
}

/// Loads the program that counts and drops test frames, without a stamp.
pub(super) fn load_counting(shared: &SharedMap, watched: Watched) -> Result<OwnedFd> {
    let mut all = Assembly::default();
    all.put(MOVE_REGISTER, 6, 1, 0, 0);
    recognise(&mut all, watched);
    all.label("ours");
    all.address(7, shared);
    all.put(MOVE, 1, 0, 0, 1);
    all.put(ATOMIC, 7, 1, HEAD as i16, ATOMIC_ADD);
    all.put(MOVE, 0, 0, 0, XDP_DROP);
    all.put(EXIT, 0, 0, 0, 0);
    all.label("pass");
    all.put(MOVE, 0, 0, 0, XDP_PASS);
    all.put(EXIT, 0, 0, 0, 0);
    load(PROG_TYPE_XDP, &all.finish())
}

/// Where the stack has the stamp and the frame's length.
const STAMP: i16 = -8;
const BYTES: i16 = -16;

fn arrivals(shared: &SharedMap, watched: Watched, layout: &Layout) -> Vec<u64> {
    let mut all = Assembly::default();
    all.put(MOVE_REGISTER, 6, 1, 0, 0);
    all.put(CALL, 0, 0, 0, KTIME_GET_NS);
    all.put(STORE_DOUBLE, 10, 0, STAMP, 0);
    recognise(&mut all, watched);
    all.label("ours");
    all.put(SUBTRACT_REGISTER, 3, 2, 0, 0);
    all.put(STORE_DOUBLE, 10, 3, BYTES, 0);
    all.address(7, shared);
    claim(&mut all, &layout.slots, TRIES_MAX);
    write(&mut all, layout);
    all.put(MOVE, 0, 0, 0, XDP_DROP);
    all.put(EXIT, 0, 0, 0, 0);
    all.label(".full");
    all.put(MOVE, 1, 0, 0, 1);
    all.put(ATOMIC, 7, 1, FULL as i16, ATOMIC_ADD);
    all.put(MOVE, 0, 0, 0, XDP_DROP);
    all.put(EXIT, 0, 0, 0, 0);
    all.label("pass");
    all.put(MOVE, 0, 0, 0, XDP_PASS);
    all.put(EXIT, 0, 0, 0, 0);
    all.finish()
}

/// Lets pass what is no test frame. Registers 2 and 3 have the frame's beginning and its end.
fn recognise(all: &mut Assembly, watched: Watched) {
    let (network, length) = watched.source;
    let mask = u32::MAX << (32 - u32::from(length.clamp(1, 32)));
    all.put(LOAD_WORD, 2, 6, XDP_START, 0);
    all.put(LOAD_WORD, 3, 6, XDP_END, 0);
    all.put(MOVE_REGISTER, 4, 2, 0, 0);
    all.put(ADD, 4, 0, 0, FRAME_BYTES_MIN as i32);
    all.jump(IF_GREATER_REGISTER, 4, 3, 0, "pass");
    all.put(LOAD_WORD, 1, 2, RUN_AT as i16, 0);
    all.number(5, as_loaded(watched.run));
    all.jump(IF_EQUAL_REGISTER, 1, 5, 0, "ours");
    all.put(LOAD_HALF, 1, 2, ETHERTYPE_AT, 0);
    all.jump(IF_NOT_EQUAL, 1, 0, IPV4, "pass");
    all.put(LOAD_BYTE, 1, 2, PROTOCOL_AT, 0);
    all.jump(IF_NOT_EQUAL, 1, 0, UDP, "pass");
    all.put(LOAD_WORD, 1, 2, SOURCE_AT, 0);
    all.put(AND, 1, 0, 0, as_loaded(mask) as u32 as i32);
    all.number(5, as_loaded(u32::from(network) & mask));
    all.jump(IF_NOT_EQUAL_REGISTER, 1, 5, 0, "pass");
}

/// Writes stamp, length and frame, and commits the slot. A frame that cannot be read is kept without bytes.
fn write(all: &mut Assembly, layout: &Layout) {
    all.put(LOAD_DOUBLE, 1, 10, STAMP, 0);
    all.put(STORE_DOUBLE, 9, 1, SLOT_STAMP as i16, 0);
    all.put(MOVE, 1, 0, 0, 0);
    all.put(STORE_WORD, 9, 1, SLOT_KEPT as i16, 0);
    all.put(LOAD_DOUBLE, 4, 10, BYTES, 0);
    all.put(STORE_WORD, 9, 4, SLOT_BYTES as i16, 0);
    all.jump(IF_EQUAL, 4, 0, 0, "commit");
    all.jump(IF_GREATER, 4, 0, layout.kept_max as i32, "long");
    all.jump(JUMP, 0, 0, 0, "copy");
    all.label("long");
    all.put(MOVE, 4, 0, 0, layout.kept_max as i32);
    all.label("copy");
    all.put(STORE_DOUBLE, 10, 4, BYTES, 0);
    all.put(MOVE_REGISTER, 1, 6, 0, 0);
    all.put(MOVE, 2, 0, 0, 0);
    all.put(MOVE_REGISTER, 3, 9, 0, 0);
    all.put(ADD, 3, 0, 0, FRAME as i32);
    all.put(CALL, 0, 0, 0, XDP_LOAD_BYTES);
    all.jump(IF_NOT_EQUAL, 0, 0, 0, "commit");
    all.put(LOAD_DOUBLE, 4, 10, BYTES, 0);
    all.put(STORE_WORD, 9, 4, SLOT_KEPT as i16, 0);
    all.label("commit");
    all.put(ADD, 8, 0, 0, 1);
    all.put(ATOMIC, 9, 8, SLOT_SEQUENCE as i16, ATOMIC_EXCHANGE);
}
