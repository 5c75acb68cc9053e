//! Where the table's memory has what: one place for the programs that read it and for the code that writes it.

/// Flows of a bucket.
pub(super) const WAYS: usize = 4;
/// Where buckets begin, and how far apart they are.
pub(super) const BUCKETS: usize = 64;
pub(super) const BUCKET_STRIDE: usize = 64 + WAYS * WAY_STRIDE;

/// The offsets of a bucket's fields from its beginning: packets of its flows that were let into the
/// ring (the programs' own); packets that have left again, and when the last did so, nanoseconds of the
/// monotonic clock (ours); whether the next may go by a shortcut without a look at the clock (the
/// programs' own); and the tags of its flows, which spare looking at all but one of them.
pub(super) const PASSED: usize = 0;
pub(super) const LEFT: usize = 8;
pub(super) const LEFT_AT: usize = 16;
pub(super) const OPEN: usize = 24;
pub(super) const TAGS: usize = 32;

/// Where a bucket's first flow begins, and how far apart they are: a line each.
pub(super) const FIRST_WAY: usize = 64;
pub(super) const WAY_STRIDE: usize = 64;

/// The offsets of a flow's fields from its beginning: its version, raised twice by each change, so that
/// an odd number means that a change is in progress; the longest IP packet; its addresses as they stand
/// in the packet; its ports as they do, its protocol and the port of the router; the interface; the two
/// link-layer addresses as they are to stand in the frame; packets and bytes that were forwarded.
pub(super) const VERSION: usize = 0;
pub(super) const MTU: usize = 4;
pub(super) const ADDRESSES: usize = 8;
pub(super) const PORTS: usize = 16;
pub(super) const INTERFACE: usize = 24;
pub(super) const STATIONS: usize = 32;
pub(super) const PACKETS: usize = 48;
pub(super) const BYTES: usize = 56;

/// In the word of the ports: where protocol and port of the router begin.
pub(super) const PROTOCOL_BIT: u32 = 32;
pub(super) const INPUT_BIT: u32 = 40;

/// What keys are multiplied by to find their bucket.
pub(super) const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// How long no packet of a bucket may have left by user space before its next packet takes a shortcut,
/// in nanoseconds: what was sent just now may still be on its way through the kernel on another
/// processor.
pub(super) const QUIET_NANOS: i32 = 30_000;

/// Where a hash has the tag of its flow: below the bits that choose the bucket, which are 18 at most.
pub(super) const TAG_BIT: u32 = 14;

/// The bucket of a flow, of `1 << bits`, and its tag.
pub(super) fn bucket(addresses: u64, ports: u64, bits: u32) -> (usize, u32) {
    let hash = (ports.wrapping_mul(FACTOR) ^ addresses).wrapping_mul(FACTOR);
    ((hash >> (64 - bits)) as usize, (hash >> TAG_BIT) as u32)
}
