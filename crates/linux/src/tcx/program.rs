//! The program at the hook: copies each packet of the kernel's into slots of the ring, and ends it.
//!
//! ```text
//!   a flow with a shortcut, and nothing of it under way: forward it (`flow_offload`), and end
//!
//!   deliver a piece:
//!       claim the next slot            compare-and-exchange of `head`; none free: count it as lost
//!       write the headers, the piece   bpf_skb_load_bytes
//!       say what it is, commit it      exchange of the slot's sequence
//!
//!   if the packet is a whole one: deliver it as one piece, without headers
//!   if it is still to be cut: measure its headers, and with them
//!       deliver pieces of a segment's payload while there is more than one
//!       deliver what is left
//!   if the other side is asleep, wake it
//!   drop the packet                    it has arrived
//! ```
//!
//! The delivery code is written out three times, so that the verifier, which follows every path, sees few
//! of them: a whole packet passes through no loop, and all passes of a loop have the same length.
//!
//! Registers: 6 the packet, 7 the ring, 8 the position that was claimed, 9 its slot; what lasts longer
//! than a call of the kernel's is on the stack.

use std::os::fd::OwnedFd;

use anyhow::Result;

use super::layout::{
    ASLEEP, FRAME, FULL, HEAD, HEADERS_MAX, Layout, MORE, OVERSIZE, SEGMENTS_MAX, SLOT_BYTES,
    SLOT_INDEX, SLOT_MARK, SLOT_SEQUENCE, SLOT_SIZE, SLOT_TAG, SLOTS,
};
use crate::bpf::{
    ADD, ADD_REGISTER, AND, ATOMIC, ATOMIC_ADD, ATOMIC_EXCHANGE, Assembly, CALL, EXIT,
    IF_AT_LEAST_REGISTER, IF_EQUAL, IF_GREATER, IF_GREATER_REGISTER, IF_NOT_EQUAL, JUMP, LOAD_BYTE,
    LOAD_DOUBLE, LOAD_WORD, MOVE, MOVE_REGISTER, MULTIPLY, OR_REGISTER, PROG_TYPE_SCHED_CLS,
    SHIFT_LEFT, SHIFT_RIGHT, SKB_LOAD_BYTES, STORE_DOUBLE, STORE_WORD, SUBTRACT_REGISTER,
    SharedMap, load,
};
use crate::flow_offload::{FlowOffload, Taking, forward, mark_slot};
use crate::netlink::MacAddress;
use crate::ring_slots::claim;

const RINGBUF_OUTPUT: i32 = 130;
/// `BPF_RB_FORCE_WAKEUP`.
const WAKE: i32 = 1 << 1;
/// `TCX_DROP`.
const DROP: i32 = 2;

/// Where `struct __sk_buff` has what.
const PACKET_BYTES: i16 = 0;
const PACKET_PROTOCOL: i16 = 16;
const PACKET_IS_TAGGED: i16 = 20;
const PACKET_TAG: i16 = 24;
const PACKET_TAG_PROTOCOL: i16 = 28;
const PACKET_SEGMENT_BYTES: i16 = 176;

/// Words of the packet that are the program's own: bytes of headers that each piece is to have, bytes of a
/// segment's payload, where the next piece begins, its bytes. As the verifier does not track their values,
/// it considers all passes of a loop equal; on the stack it would see a difference in each.
const HEADERS: i16 = 48;
const SIZE: i16 = 52;
const OFFSET: i16 = 56;
const PIECE: i16 = 60;
/// And the bucket of its flow.
const MARK: i16 = 64;
/// Where the stack has what. That the index grows is what ends the loop.
const BYTE: i16 = -8;
const INDEX: i16 = -16;

const ETHERNET_BYTES: i32 = 14;
/// Protocols as the packet has them, in network byte order on a little-endian machine.
const IPV4: i32 = 0x0008;
const IPV6: i32 = 0xdd86;
const TCP: i32 = 6;
const UDP: i32 = 17;
/// How often claiming a slot may fail, because another processor was first, before the frame counts as lost.
const TRIES_MAX: i32 = 4;

/// The ring, bell and offload table for which a program is written.
pub(super) struct Terms<'a> {
    pub(super) layout: &'a Layout,
    pub(super) shared: &'a SharedMap,
    pub(super) bell: &'a OwnedFd,
    /// The table of shortcuts, the router's port by which packets arrive, and its address.
    pub(super) flow_offload: Option<(&'a FlowOffload, u16, MacAddress)>,
}

/// Loads the program for a ring.
pub(super) fn load_program(terms: &Terms<'_>) -> Result<OwnedFd> {
    load(PROG_TYPE_SCHED_CLS, &program(terms))
}

fn program(terms: &Terms<'_>) -> Vec<u64> {
    let mut all = Assembly::default();
    all.put(MOVE_REGISTER, 6, 1, 0, 0);
    all.address(7, terms.shared);
    all.put(MOVE, 1, 0, 0, 0);
    all.put(STORE_DOUBLE, 10, 1, INDEX, 0);
    for place in [HEADERS, SIZE, OFFSET, MARK] {
        all.put(STORE_WORD, 6, 1, place, 0);
    }
    if let Some((flow_offload, input, mac)) = terms.flow_offload {
        let taking = Taking { flow_offload, input, mac, mark: MARK };
        forward(&mut all, &taking, |all, label| nearly_full(all, terms.layout, label));
    }
    all.label("ring");
    all.put(LOAD_WORD, 1, 6, PACKET_SEGMENT_BYTES, 0);
    all.jump(IF_NOT_EQUAL, 1, 0, 0, "cut");

    all.part("whole");
    all.put(LOAD_WORD, 1, 6, PACKET_BYTES, 0);
    all.put(STORE_WORD, 6, 1, PIECE, 0);
    deliver(&mut all, terms, Piece::Whole);

    all.label("end");
    wake(&mut all, terms.bell);
    all.label("drop");
    all.put(MOVE, 0, 0, 0, DROP);
    all.put(EXIT, 0, 0, 0, 0);

    cut(&mut all, terms);
    // (The kernel refuses programs with unreachable code.)
    if terms.flow_offload.is_some() {
        all.label("shed");
        all.put(MOVE, 1, 0, 0, 1);
        all.put(ATOMIC, 7, 1, FULL as i16, ATOMIC_ADD);
        all.jump(JUMP, 0, 0, 0, "drop");
    }
    all.label("oversize");
    all.put(MOVE, 1, 0, 0, 1);
    all.put(ATOMIC, 7, 1, OVERSIZE as i16, ATOMIC_ADD);
    all.jump(JUMP, 0, 0, 0, "end");
    all.finish()
}

/// What is delivered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece {
    /// A packet that is a frame.
    Whole,
    /// A segment that others follow.
    Segment,
    /// The last segment.
    Last,
}

/// Delivers a packet that is still to be cut.
fn cut(all: &mut Assembly, terms: &Terms<'_>) {
    all.label("cut");
    all.put(STORE_WORD, 6, 1, SIZE, 0);
    all.put(STORE_WORD, 6, 1, PIECE, 0);
    measure_headers(all);
    all.part("segment");
    all.label(".next");
    left(all);
    all.put(LOAD_WORD, 2, 6, SIZE, 0);
    all.jump(IF_AT_LEAST_REGISTER, 2, 1, 0, "last");
    deliver(all, terms, Piece::Segment);
    all.put(LOAD_WORD, 1, 6, OFFSET, 0);
    all.put(LOAD_WORD, 2, 6, SIZE, 0);
    all.put(ADD_REGISTER, 1, 2, 0, 0);
    all.put(STORE_WORD, 6, 1, OFFSET, 0);
    all.put(LOAD_DOUBLE, 1, 10, INDEX, 0);
    all.put(ADD, 1, 0, 0, 1);
    all.put(STORE_DOUBLE, 10, 1, INDEX, 0);
    all.jump(IF_GREATER, 1, 0, SEGMENTS_MAX as i32 - 1, "oversize");
    all.jump(JUMP, 0, 0, 0, ".next");
    all.part("last");
    all.label("last");
    left(all);
    all.put(STORE_WORD, 6, 1, PIECE, 0);
    deliver(all, terms, Piece::Last);
    all.jump(JUMP, 0, 0, 0, "end");
}

/// How many bytes were not yet delivered, in register 1. Where there are none, that is the end.
fn left(all: &mut Assembly) {
    all.put(LOAD_WORD, 1, 6, PACKET_BYTES, 0);
    all.put(LOAD_WORD, 2, 6, OFFSET, 0);
    all.jump(IF_AT_LEAST_REGISTER, 2, 1, 0, "end");
    all.put(SUBTRACT_REGISTER, 1, 2, 0, 0);
}

/// Delivers the piece of `PIECE` bytes at `OFFSET`.
fn deliver(all: &mut Assembly, terms: &Terms<'_>, piece: Piece) {
    let layout = terms.layout;
    all.put(LOAD_WORD, 1, 6, PIECE, 0);
    all.put(LOAD_WORD, 2, 6, HEADERS, 0);
    all.put(ADD_REGISTER, 2, 1, 0, 0);
    all.jump(IF_GREATER, 2, 0, layout.frame_bytes_max as i32, "oversize");
    claim(all, &layout.slots, TRIES_MAX);
    copy(all, layout, piece);
    commit(all, terms, piece);
    all.jump(JUMP, 0, 0, 0, ".delivered");
    all.label(".full");
    all.put(MOVE, 1, 0, 0, 1);
    all.put(ATOMIC, 7, 1, FULL as i16, ATOMIC_ADD);
    all.label(".delivered");
}

/// Loads the byte of the packet at the offset in register 2 into register 1.
fn load_byte(all: &mut Assembly) {
    all.put(MOVE_REGISTER, 1, 6, 0, 0);
    all.put(MOVE_REGISTER, 3, 10, 0, 0);
    all.put(ADD, 3, 0, 0, i32::from(BYTE));
    all.put(MOVE, 4, 0, 0, 1);
    all.put(CALL, 0, 0, 0, SKB_LOAD_BYTES);
    all.jump(IF_NOT_EQUAL, 0, 0, 0, "oversize");
    all.put(LOAD_BYTE, 1, 10, BYTE, 0);
}

/// For an unsegmented packet: the length of its headers, up to the payload of TCP or UDP. Register 8
/// is where the transport header begins, register 9 its protocol.
fn measure_headers(all: &mut Assembly) {
    all.put(LOAD_WORD, 1, 6, PACKET_PROTOCOL, 0);
    all.jump(IF_EQUAL, 1, 0, IPV4, "version 4");
    all.jump(IF_NOT_EQUAL, 1, 0, IPV6, "oversize");
    all.put(MOVE, 2, 0, 0, ETHERNET_BYTES + 6);
    load_byte(all);
    all.put(MOVE_REGISTER, 9, 1, 0, 0);
    all.put(MOVE, 8, 0, 0, ETHERNET_BYTES + 40);
    all.jump(JUMP, 0, 0, 0, "transport");

    all.label("version 4");
    all.put(MOVE, 2, 0, 0, ETHERNET_BYTES + 9);
    load_byte(all);
    all.put(MOVE_REGISTER, 9, 1, 0, 0);
    all.put(MOVE, 2, 0, 0, ETHERNET_BYTES);
    load_byte(all);
    all.put(AND, 1, 0, 0, 15);
    all.put(SHIFT_LEFT, 1, 0, 0, 2);
    all.put(ADD, 1, 0, 0, ETHERNET_BYTES);
    all.put(MOVE_REGISTER, 8, 1, 0, 0);

    all.label("transport");
    all.jump(IF_EQUAL, 9, 0, UDP, "datagram");
    all.jump(IF_NOT_EQUAL, 9, 0, TCP, "oversize");
    all.put(MOVE_REGISTER, 2, 8, 0, 0);
    all.put(ADD, 2, 0, 0, 12);
    load_byte(all);
    all.put(SHIFT_RIGHT, 1, 0, 0, 4);
    all.put(SHIFT_LEFT, 1, 0, 0, 2);
    all.put(ADD_REGISTER, 8, 1, 0, 0);
    all.jump(JUMP, 0, 0, 0, "measured");
    all.label("datagram");
    all.put(ADD, 8, 0, 0, 8);
    all.label("measured");
    all.put(STORE_WORD, 6, 8, HEADERS, 0);
    all.put(STORE_WORD, 6, 8, OFFSET, 0);
}

/// Jumps to `label` where more than three quarters of the slots are in use.
fn nearly_full(all: &mut Assembly, layout: &Layout, label: &'static str) {
    all.put(LOAD_DOUBLE, 1, 7, HEAD as i16, 0);
    all.put(ADD, 1, 0, 0, layout.slots.count as i32 / 4);
    all.put(MOVE_REGISTER, 2, 1, 0, 0);
    all.put(AND, 2, 0, 0, layout.slots.count as i32 - 1);
    all.put(MULTIPLY, 2, 0, 0, layout.slots.stride as i32);
    all.put(ADD_REGISTER, 2, 7, 0, 0);
    all.put(LOAD_DOUBLE, 2, 2, (SLOTS + SLOT_SEQUENCE) as i16, 0);
    all.jump(IF_GREATER_REGISTER, 1, 2, 0, label);
}

/// Writes the headers, where a piece needs its own, and the piece. A slot in which that fails is
/// committed with a length of zero.
fn copy(all: &mut Assembly, layout: &Layout, piece: Piece) {
    all.put(MOVE, 1, 0, 0, 0);
    all.put(STORE_WORD, 9, 1, SLOT_BYTES as i16, 0);
    if piece != Piece::Whole {
        copy_headers(all);
    }
    all.put(LOAD_WORD, 1, 6, HEADERS, 0);
    all.jump(IF_GREATER, 1, 0, HEADERS_MAX as i32, ".commit");
    all.put(MOVE_REGISTER, 3, 9, 0, 0);
    all.put(ADD, 3, 0, 0, FRAME as i32);
    all.put(ADD_REGISTER, 3, 1, 0, 0);
    all.put(LOAD_WORD, 4, 6, PIECE, 0);
    all.jump(IF_EQUAL, 4, 0, 0, ".commit");
    all.jump(IF_GREATER, 4, 0, layout.frame_bytes_max as i32, ".commit");
    all.put(LOAD_WORD, 2, 6, OFFSET, 0);
    all.put(MOVE_REGISTER, 1, 6, 0, 0);
    all.put(CALL, 0, 0, 0, SKB_LOAD_BYTES);
    all.jump(IF_NOT_EQUAL, 0, 0, 0, ".commit");
    all.put(LOAD_WORD, 1, 6, HEADERS, 0);
    all.put(LOAD_WORD, 2, 6, PIECE, 0);
    all.put(ADD_REGISTER, 1, 2, 0, 0);
    all.put(STORE_WORD, 9, 1, SLOT_BYTES as i16, 0);
}

/// Writes the headers of the packet into a segment's slot.
fn copy_headers(all: &mut Assembly) {
    all.put(LOAD_WORD, 4, 6, HEADERS, 0);
    all.jump(IF_EQUAL, 4, 0, 0, ".commit");
    all.jump(IF_GREATER, 4, 0, HEADERS_MAX as i32, ".commit");
    all.put(MOVE_REGISTER, 1, 6, 0, 0);
    all.put(MOVE, 2, 0, 0, 0);
    all.put(MOVE_REGISTER, 3, 9, 0, 0);
    all.put(ADD, 3, 0, 0, FRAME as i32);
    all.put(CALL, 0, 0, 0, SKB_LOAD_BYTES);
    all.jump(IF_NOT_EQUAL, 0, 0, 0, ".commit");
}

/// Stores the piece's index, size and tag; then commits the slot to the reader.
fn commit(all: &mut Assembly, terms: &Terms<'_>, piece: Piece) {
    all.label(".commit");
    all.put(LOAD_DOUBLE, 1, 10, INDEX, 0);
    if piece == Piece::Segment {
        all.put(ADD, 1, 0, 0, MORE as i32);
    }
    all.put(STORE_WORD, 9, 1, SLOT_INDEX as i16, 0);
    all.put(LOAD_WORD, 1, 6, SIZE, 0);
    all.put(STORE_WORD, 9, 1, SLOT_SIZE as i16, 0);
    all.put(MOVE, 1, 0, 0, 0);
    all.put(LOAD_WORD, 2, 6, PACKET_IS_TAGGED, 0);
    all.jump(IF_EQUAL, 2, 0, 0, ".tag");
    all.put(LOAD_WORD, 1, 6, PACKET_TAG, 0);
    all.put(SHIFT_LEFT, 1, 0, 0, 16);
    all.put(LOAD_WORD, 2, 6, PACKET_TAG_PROTOCOL, 0);
    all.put(OR_REGISTER, 1, 2, 0, 0);
    all.label(".tag");
    all.put(STORE_WORD, 9, 1, SLOT_TAG as i16, 0);
    if let Some((flow_offload, ..)) = terms.flow_offload {
        mark_slot(all, flow_offload, MARK, SLOT_MARK as i16);
    }
    all.put(ADD, 8, 0, 0, 1);
    all.put(ATOMIC, 9, 8, SLOT_SEQUENCE as i16, ATOMIC_EXCHANGE);
}

/// Rings the bell if the reader has flagged that it sleeps.
fn wake(all: &mut Assembly, bell: &OwnedFd) {
    all.put(LOAD_DOUBLE, 1, 7, ASLEEP as i16, 0);
    all.jump(IF_EQUAL, 1, 0, 0, "drop");
    all.put(MOVE, 1, 0, 0, 0);
    all.put(ATOMIC, 7, 1, ASLEEP as i16, ATOMIC_EXCHANGE);
    all.jump(IF_EQUAL, 1, 0, 0, "drop");
    all.put(STORE_DOUBLE, 10, 1, BYTE, 0);
    all.map(1, bell);
    all.put(MOVE_REGISTER, 2, 10, 0, 0);
    all.put(ADD, 2, 0, 0, i32::from(BYTE));
    all.put(MOVE, 3, 0, 0, 8);
    all.put(MOVE, 4, 0, 0, WAKE);
    all.put(CALL, 0, 0, 0, RINGBUF_OUTPUT);
}
