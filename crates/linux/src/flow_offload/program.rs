//! What a program does with a packet that may take a shortcut.
//!
//! ```text
//!   not IPv4 for this port, with options, in fragments, or neither TCP nor UDP: to the ring
//!   mark the packet with the bucket of its flow
//!   the flow is not in the table:                              to the ring
//!   packets of the bucket are under way:                       to the ring; dropped where that is nearly full
//!   the last of them left just now:                            to the ring
//!   no time left to live, a false length or checksum, too big: to the ring
//!   the flow was changed meanwhile:                            to the ring
//!   write addresses, time to live, checksum; count; redirect
//! ```
//!
//! As the program writes into packets, the kernel first makes sure that their headers are not shared; if it has
//! no memory for that, a packet is lost before the program sees it.
//!
//! Registers: 6 the packet, 7 the ring; first 8 and 9 the flow's words, then its bucket and its entry.

use super::FlowOffload;
use super::layout::{
    ADDRESSES, BUCKET_STRIDE, BUCKETS, BYTES, FACTOR, FIRST_WAY, INPUT_BIT, INTERFACE, LEFT,
    LEFT_AT, MTU, OPEN, PACKETS, PASSED, PORTS, PROTOCOL_BIT, QUIET_NANOS, STATIONS, TAG_BIT, TAGS,
    VERSION, WAY_STRIDE, WAYS,
};
use crate::bpf::{
    ADD, ADD_REGISTER, AND, ATOMIC, ATOMIC_ADD, Assembly, CALL, DIVIDE_REGISTER, EXCLUSIVE_OR,
    EXCLUSIVE_OR_REGISTER, EXIT, FROM_NETWORK, IF_EQUAL, IF_EQUAL_REGISTER, IF_GREATER,
    IF_GREATER_REGISTER, IF_GREATER_SIGNED, IF_NOT_EQUAL, IF_NOT_EQUAL_REGISTER, JUMP,
    KTIME_GET_NS, LOAD_BYTE, LOAD_DOUBLE, LOAD_HALF, LOAD_WORD, MOVE, MOVE_REGISTER, MOVE_SHORT,
    MOVE_SHORT_REGISTER, MULTIPLY, MULTIPLY_REGISTER, OR_REGISTER, SHIFT_LEFT, SHIFT_RIGHT,
    STORE_BYTE, STORE_DOUBLE, STORE_HALF, STORE_WORD, SUBTRACT_REGISTER,
};
use crate::netlink::MacAddress;

const REDIRECT: i32 = 23;

/// Where `struct __sk_buff` has what.
const PACKET_BYTES: i16 = 0;
const PACKET_IS_TAGGED: i16 = 20;
const PACKET_DATA: i16 = 76;
const PACKET_DATA_END: i16 = 80;
const PACKET_SEGMENT_BYTES: i16 = 176;

/// Where an Ethernet frame with IPv4 without options has what.
const ETHERTYPE: i16 = 12;
const IP: i16 = 14;
const IP_BYTES: i16 = 16;
const FRAGMENTATION: i16 = 20;
const TIME_TO_LIVE: i16 = 22;
const IP_PROTOCOL: i16 = 23;
const CHECKSUM: i16 = 24;
const IP_ADDRESSES: i16 = 26;
const TRANSPORT: i16 = 34;
const TCP_OFFSET: i16 = TRANSPORT + 12;
/// Headers of IPv4 and UDP, and of IPv4 and TCP without options.
const UDP_HEADERS: i32 = 28;
const TCP_HEADERS: i32 = 40;

const IPV4: i32 = 0x0008;
const TCP: i32 = 6;
const UDP: i32 = 17;

/// Where each way of a bucket is looked at, and what follows where the flow is another.
const WAY_LABELS: [[&str; 2]; WAYS] =
    [["way 0", "way 1"], ["way 1", "way 2"], ["way 2", "way 3"], ["way 3", "ring"]];

/// Where the stack has what, below what the rest of the program has there.
const SEEN_VERSION: i16 = -32;
const COUNT: i16 = -40;
const BYTE_COUNT: i16 = -48;

/// The router's port by which packets arrive, and where the program has its data.
pub(crate) struct Taking<'a> {
    /// The table.
    pub(crate) flow_offload: &'a FlowOffload,
    /// The port of the router.
    pub(crate) input: u16,
    /// Its link-layer address.
    pub(crate) mac: MacAddress,
    /// The word of the packet that carries its mark, which is zero at first.
    pub(crate) mark: i16,
}

/// Appends the code that forwards a packet; if it does not forward it, it continues at `ring`, or at
/// `shed` if the ring is nearly full. `nearly_full` appends code that jumps to the given label in that
/// case.
pub(crate) fn forward(
    all: &mut Assembly,
    taking: &Taking<'_>,
    nearly_full: impl Fn(&mut Assembly, &'static str),
) {
    name_flow(all, taking);
    find(all, taking);
    await_quiet(all, nearly_full);
    look_at(all);
    measure(all);
    rewrite(all);
    count_and_send(all);
}

/// The addresses of the packet's bytes and of their end, of which there are `bytes` at least.
fn data(all: &mut Assembly, bytes: i32) {
    all.put(LOAD_WORD, 2, 6, PACKET_DATA, 0);
    all.put(LOAD_WORD, 3, 6, PACKET_DATA_END, 0);
    all.put(MOVE_REGISTER, 4, 2, 0, 0);
    all.put(ADD, 4, 0, 0, bytes);
    all.jump(IF_GREATER_REGISTER, 4, 3, 0, "ring");
}

/// The flow's words, in registers 8 and 9.
fn name_flow(all: &mut Assembly, taking: &Taking<'_>) {
    data(all, i32::from(TRANSPORT) + 8);
    all.put(LOAD_HALF, 1, 2, ETHERTYPE, 0);
    all.jump(IF_NOT_EQUAL, 1, 0, IPV4, "ring");
    all.put(LOAD_WORD, 1, 6, PACKET_IS_TAGGED, 0);
    all.jump(IF_NOT_EQUAL, 1, 0, 0, "ring");
    let [a, b, c, d, e, f] = taking.mac;
    all.put(LOAD_WORD, 1, 2, 0, 0);
    all.put(MOVE_SHORT, 4, 0, 0, i32::from_ne_bytes([a, b, c, d]));
    all.jump(IF_NOT_EQUAL_REGISTER, 1, 4, 0, "ring");
    all.put(LOAD_HALF, 1, 2, 4, 0);
    all.jump(IF_NOT_EQUAL, 1, 0, u16::from_ne_bytes([e, f]).into(), "ring");
    all.put(LOAD_BYTE, 1, 2, IP, 0);
    all.jump(IF_NOT_EQUAL, 1, 0, 0x45, "ring");
    all.put(LOAD_HALF, 1, 2, FRAGMENTATION, 0);
    all.put(AND, 1, 0, 0, u16::to_be(0x3fff).into());
    all.jump(IF_NOT_EQUAL, 1, 0, 0, "ring");
    all.put(LOAD_BYTE, 1, 2, IP_PROTOCOL, 0);
    all.jump(IF_EQUAL, 1, 0, UDP, "spoken");
    all.jump(IF_NOT_EQUAL, 1, 0, TCP, "ring");
    all.label("spoken");
    all.put(SHIFT_LEFT, 1, 0, 0, PROTOCOL_BIT as i32);
    all.put(LOAD_WORD, 9, 2, TRANSPORT, 0);
    all.put(OR_REGISTER, 9, 1, 0, 0);
    all.put(MOVE, 1, 0, 0, taking.input.into());
    all.put(SHIFT_LEFT, 1, 0, 0, INPUT_BIT as i32);
    all.put(OR_REGISTER, 9, 1, 0, 0);
    all.put(LOAD_DOUBLE, 8, 2, IP_ADDRESSES, 0);
}

/// Marks the packet; puts the bucket into register 8 and the flow's entry into register 9.
fn find(all: &mut Assembly, taking: &Taking<'_>) {
    all.number(4, FACTOR);
    all.put(MOVE_REGISTER, 1, 9, 0, 0);
    all.put(MULTIPLY_REGISTER, 1, 4, 0, 0);
    all.put(EXCLUSIVE_OR_REGISTER, 1, 8, 0, 0);
    all.put(MULTIPLY_REGISTER, 1, 4, 0, 0);
    all.put(MOVE_REGISTER, 3, 1, 0, 0);
    all.put(SHIFT_RIGHT, 3, 0, 0, TAG_BIT as i32);
    all.put(MOVE_SHORT_REGISTER, 3, 3, 0, 0);
    all.put(SHIFT_RIGHT, 1, 0, 0, 64 - taking.flow_offload.bits as i32);
    all.put(MOVE_REGISTER, 4, 1, 0, 0);
    all.put(ADD, 4, 0, 0, 1);
    all.put(STORE_WORD, 6, 4, taking.mark, 0);
    bucket(all, taking.flow_offload, 5, 1);
    for (way, [label, next]) in WAY_LABELS.into_iter().enumerate() {
        let at = FIRST_WAY + way * WAY_STRIDE;
        all.label(label);
        all.put(LOAD_WORD, 1, 5, (TAGS + 4 * way) as i16, 0);
        all.jump(IF_NOT_EQUAL_REGISTER, 1, 3, 0, next);
        // Read before all else of the flow, so that no other can take its place unnoticed.
        all.put(LOAD_WORD, 0, 5, (at + VERSION) as i16, 0);
        all.put(LOAD_DOUBLE, 1, 5, (at + ADDRESSES) as i16, 0);
        all.jump(IF_NOT_EQUAL_REGISTER, 1, 8, 0, next);
        all.put(LOAD_DOUBLE, 1, 5, (at + PORTS) as i16, 0);
        all.jump(IF_NOT_EQUAL_REGISTER, 1, 9, 0, next);
        all.put(MOVE, 4, 0, 0, at as i32);
        all.jump(JUMP, 0, 0, 0, "found");
    }
    all.label("found");
    all.put(MOVE_REGISTER, 8, 5, 0, 0);
    all.put(MOVE_REGISTER, 9, 5, 0, 0);
    all.put(ADD_REGISTER, 9, 4, 0, 0);
    all.put(STORE_DOUBLE, 10, 0, SEEN_VERSION, 0);
    all.put(AND, 0, 0, 0, 1);
    all.jump(IF_NOT_EQUAL, 0, 0, 0, "ring");
}

/// The address of the bucket with a number (a register that is lost), in a register.
fn bucket(all: &mut Assembly, flow_offload: &FlowOffload, register: u8, number: u8) {
    all.put(AND, number, 0, 0, (1 << flow_offload.bits) - 1);
    all.put(MULTIPLY, number, 0, 0, BUCKET_STRIDE as i32);
    all.address(register, &flow_offload.shared);
    all.put(ADD_REGISTER, register, number, 0, 0);
    all.put(ADD, register, 0, 0, BUCKETS as i32);
}

/// Continues only if no packet of the flow is under way.
fn await_quiet(all: &mut Assembly, nearly_full: impl Fn(&mut Assembly, &'static str)) {
    all.put(LOAD_DOUBLE, 1, 8, PASSED as i16, 0);
    all.put(LOAD_DOUBLE, 2, 8, LEFT as i16, 0);
    all.jump(IF_EQUAL_REGISTER, 1, 2, 0, "none under way");
    all.put(LOAD_WORD, 1, 6, PACKET_SEGMENT_BYTES, 0);
    all.jump(IF_NOT_EQUAL, 1, 0, 0, "ring");
    nearly_full(all, "shed");
    all.jump(JUMP, 0, 0, 0, "ring");
    all.label("none under way");
    all.put(LOAD_DOUBLE, 1, 8, OPEN as i16, 0);
    all.jump(IF_NOT_EQUAL, 1, 0, 0, "open");
    all.put(CALL, 0, 0, 0, KTIME_GET_NS);
    all.put(LOAD_DOUBLE, 1, 8, LEFT_AT as i16, 0);
    all.put(SUBTRACT_REGISTER, 0, 1, 0, 0);
    all.jump(IF_GREATER_SIGNED, 0, 0, QUIET_NANOS, "quiet");
    all.jump(JUMP, 0, 0, 0, "ring");
    all.label("quiet");
    all.put(MOVE, 1, 0, 0, 1);
    all.put(STORE_DOUBLE, 8, 1, OPEN as i16, 0);
    all.label("open");
}

/// Continues only with a packet that has time left to live, a consistent length and a correct checksum. Its
/// length is in register 4.
fn look_at(all: &mut Assembly) {
    data(all, i32::from(TRANSPORT) + 8);
    all.put(LOAD_BYTE, 1, 2, TIME_TO_LIVE, 0);
    all.jump(IF_GREATER, 1, 0, 1, "living");
    all.jump(JUMP, 0, 0, 0, "ring");
    all.label("living");
    all.put(LOAD_HALF, 4, 2, IP_BYTES, 0);
    all.put(FROM_NETWORK, 4, 0, 0, 16);
    all.put(LOAD_WORD, 1, 6, PACKET_BYTES, 0);
    all.put(ADD, 1, 0, 0, -i32::from(IP));
    all.jump(IF_NOT_EQUAL_REGISTER, 1, 4, 0, "ring");
    all.put(LOAD_WORD, 1, 2, IP, 0);
    for word in 1..5 {
        all.put(LOAD_WORD, 0, 2, IP + 4 * word, 0);
        all.put(ADD_REGISTER, 1, 0, 0, 0);
    }
    all.put(MOVE_SHORT_REGISTER, 0, 1, 0, 0);
    all.put(SHIFT_RIGHT, 1, 0, 0, 32);
    all.put(ADD_REGISTER, 1, 0, 0, 0);
    for _ in 0..3 {
        fold(all, 1, 0);
    }
    all.jump(IF_NOT_EQUAL, 1, 0, 0xffff, "ring");
}

/// Adds what a register has above its 16 lower bits to these; another register is lost.
fn fold(all: &mut Assembly, register: u8, other: u8) {
    all.put(MOVE_REGISTER, other, register, 0, 0);
    all.put(SHIFT_RIGHT, other, 0, 0, 16);
    all.put(AND, register, 0, 0, 0xffff);
    all.put(ADD_REGISTER, register, other, 0, 0);
}

/// Continues only with a packet that fits the link, whole or segmented. The number of packets on the
/// link and their bytes are put on the stack.
fn measure(all: &mut Assembly) {
    all.put(LOAD_WORD, 0, 6, PACKET_SEGMENT_BYTES, 0);
    all.put(LOAD_WORD, 1, 9, MTU as i16, 0);
    all.jump(IF_NOT_EQUAL, 0, 0, 0, "to be cut");
    all.jump(IF_GREATER_REGISTER, 4, 1, 0, "ring");
    all.put(MOVE, 0, 0, 0, 1);
    all.put(STORE_DOUBLE, 10, 0, COUNT, 0);
    all.put(STORE_DOUBLE, 10, 4, BYTE_COUNT, 0);
    all.jump(JUMP, 0, 0, 0, "measured length");

    // Register 5: headers of each piece; 3: the packet's bytes, then its payload's.
    all.label("to be cut");
    all.put(MOVE_REGISTER, 5, 4, 0, 0);
    all.put(STORE_DOUBLE, 10, 5, BYTE_COUNT, 0);
    all.put(MOVE, 5, 0, 0, UDP_HEADERS);
    all.put(LOAD_BYTE, 4, 2, IP_PROTOCOL, 0);
    all.jump(IF_EQUAL, 4, 0, UDP, "headers");
    all.put(MOVE_REGISTER, 4, 2, 0, 0);
    all.put(ADD, 4, 0, 0, i32::from(TCP_OFFSET) + 8);
    all.jump(IF_GREATER_REGISTER, 4, 3, 0, "ring");
    all.put(LOAD_BYTE, 5, 2, TCP_OFFSET, 0);
    all.put(SHIFT_RIGHT, 5, 0, 0, 4);
    all.put(SHIFT_LEFT, 5, 0, 0, 2);
    all.put(ADD, 5, 0, 0, TCP_HEADERS - 20);
    all.label("headers");
    all.put(MOVE_REGISTER, 4, 0, 0, 0);
    all.put(ADD_REGISTER, 4, 5, 0, 0);
    all.jump(IF_GREATER_REGISTER, 4, 1, 0, "ring");
    all.put(LOAD_DOUBLE, 3, 10, BYTE_COUNT, 0);
    all.put(MOVE_REGISTER, 4, 3, 0, 0);
    all.jump(IF_GREATER_REGISTER, 5, 3, 0, "ring");
    all.put(SUBTRACT_REGISTER, 3, 5, 0, 0);
    all.put(ADD_REGISTER, 3, 0, 0, 0);
    all.put(ADD, 3, 0, 0, -1);
    all.put(DIVIDE_REGISTER, 3, 0, 0, 0);
    all.put(STORE_DOUBLE, 10, 3, COUNT, 0);
    all.put(ADD, 3, 0, 0, -1);
    all.put(MULTIPLY_REGISTER, 3, 5, 0, 0);
    all.put(ADD_REGISTER, 3, 4, 0, 0);
    all.put(STORE_DOUBLE, 10, 3, BYTE_COUNT, 0);
    all.label("measured length");
}

/// Writes the new fields of the frame if the flow is unchanged; continues only then. The interface is in
/// register 8.
fn rewrite(all: &mut Assembly) {
    let stations = STATIONS as i16;
    all.put(LOAD_DOUBLE, 0, 9, stations, 0);
    all.put(LOAD_WORD, 4, 9, stations + 8, 0);
    all.put(LOAD_WORD, 8, 9, INTERFACE as i16, 0);
    all.put(LOAD_WORD, 1, 9, VERSION as i16, 0);
    all.put(LOAD_DOUBLE, 3, 10, SEEN_VERSION, 0);
    all.jump(IF_NOT_EQUAL_REGISTER, 1, 3, 0, "ring");
    all.put(STORE_DOUBLE, 2, 0, 0, 0);
    all.put(STORE_WORD, 2, 4, 8, 0);
    // RFC 1624, equation 3, as in the pipeline (`forward::hop`): the word of the time to live loses its
    // first byte's one, which adds the same to the complement of the sum, whatever stood there.
    all.put(LOAD_BYTE, 1, 2, TIME_TO_LIVE, 0);
    all.put(ADD, 1, 0, 0, -1);
    all.put(STORE_BYTE, 2, 1, TIME_TO_LIVE, 0);
    all.put(LOAD_HALF, 1, 2, CHECKSUM, 0);
    all.put(EXCLUSIVE_OR, 1, 0, 0, 0xffff);
    all.put(ADD, 1, 0, 0, u16::to_be(0xfeff).into());
    fold(all, 1, 0);
    all.put(EXCLUSIVE_OR, 1, 0, 0, 0xffff);
    all.put(STORE_HALF, 2, 1, CHECKSUM, 0);
}

/// The end of the packet that takes a shortcut.
fn count_and_send(all: &mut Assembly) {
    for (count, of) in [(PACKETS, COUNT), (BYTES, BYTE_COUNT)] {
        all.put(LOAD_DOUBLE, 1, 10, of, 0);
        all.put(ATOMIC, 9, 1, count as i16, ATOMIC_ADD);
    }
    all.put(MOVE_REGISTER, 1, 8, 0, 0);
    all.put(MOVE, 2, 0, 0, 0);
    all.put(CALL, 0, 0, 0, REDIRECT);
    all.put(EXIT, 0, 0, 0, 0);
}

/// Appends the code that writes the packet's mark into a slot (register 9, at `at`), and counts a packet of
/// its bucket that is let into the ring.
pub(crate) fn mark_slot(all: &mut Assembly, flow_offload: &FlowOffload, mark: i16, at: i16) {
    all.put(LOAD_WORD, 1, 6, mark, 0);
    all.put(STORE_WORD, 9, 1, at, 0);
    all.jump(IF_EQUAL, 1, 0, 0, ".unmarked");
    all.put(ADD, 1, 0, 0, -1);
    bucket(all, flow_offload, 2, 1);
    all.put(MOVE, 1, 0, 0, 0);
    all.put(STORE_DOUBLE, 2, 1, OPEN as i16, 0);
    all.put(MOVE, 1, 0, 0, 1);
    all.put(ATOMIC, 2, 1, PASSED as i16, ATOMIC_ADD);
    all.label(".unmarked");
}
