//! Where the table's memory has what: one place for the programs that read it and for us who write it.

/// Where buckets begin, and how far apart they are.
pub(super) const BUCKETS: usize = 64;
pub(super) const BUCKET_STRIDE: usize = 3 * 64;

/// Where a bucket has what, from its beginning: packets of its flows that were let into the ring, and
/// whether the next may go by a shortcut without a look at the clock (the programs' own); packets that have
/// left again, and when the last did so, nanoseconds of the monotonic clock (ours).
pub(super) const PASSED: usize = 0;
pub(super) const OPEN: usize = 8;
pub(super) const LEFT: usize = 16;
pub(super) const LEFT_AT: usize = 24;

/// Flows of a bucket, and where each begins.
pub(super) const WAYS: usize = 2;
pub(super) const WAY: [usize; WAYS] = [64, 128];

/// Where a flow has what, from its beginning: its addresses as they stand in the packet; its ports as they
/// do, its protocol and the port of the router; how often it was changed, twice for each time, so that an
/// odd number says that it is being changed; the longest IP packet; the two link-layer addresses as they are
/// to stand in the frame; the interface; packets and bytes that were forwarded.
pub(super) const ADDRESSES: usize = 0;
pub(super) const PORTS: usize = 8;
pub(super) const VERSION: usize = 16;
pub(super) const MTU: usize = 20;
pub(super) const INTERFACE: usize = 24;
pub(super) const STATIONS: usize = 28;
pub(super) const PACKETS: usize = 40;
pub(super) const BYTES: usize = 48;

/// In the word of the ports: where protocol and port of the router begin.
pub(super) const PROTOCOL_BIT: u32 = 32;
pub(super) const INPUT_BIT: u32 = 40;

/// What keys are multiplied by to find their bucket.
pub(super) const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// How long nothing of a bucket may have left by user space before its next packet takes a shortcut, in
/// nanoseconds: what was sent just now may still be on its way through the kernel on another processor.
pub(super) const QUIET_NANOS: i32 = 30_000;

/// The bucket of a flow, of `1 << bits`.
pub(super) fn bucket(addresses: u64, ports: u64, bits: u32) -> usize {
    let mixed = ports.wrapping_mul(FACTOR) ^ addresses;
    (mixed.wrapping_mul(FACTOR) >> (64 - bits)) as usize
}
