//! A unit while it is sent: what its end sends without receiving more from the other one, without 500 ms of
//! quiet (Hernández-Campos, 2006), and in segments that one write can have made.
//!
//! TCP cuts a write into full segments and a rest, so that a small segment ends its write, unless Nagle's algorithm
//! (RFC 896) joined the next one to it. A unit therefore ends behind a small segment that one of another size
//! follows: 32, 1, 124, 3 and 16 bytes at once are five units, and are played as five segments of these sizes. Small
//! ones of one size stay together, as keystrokes do; and so do large ones, whatever their sizes, because captures at
//! a sender have super-segments that its network card cuts later. (Full segments of less than 1,000 bytes count as
//! small ones; the rest behind them is a unit of its own, and is played as it was.)

/// Quiet of a sender that ends its unit, ns.
pub(crate) const QUIET_NS: u64 = 500_000_000;
/// Payload from which on a segment is large: it may be a piece of a longer write.
const LARGE_BYTES: u32 = 1_000;

/// A unit that may continue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    /// Its place in the steps.
    pub step: usize,
    /// How much of the other's data its sender had acknowledged when it began.
    received: u64,
    /// When its first segment passed, ns.
    pub began_ns: u64,
    /// Payload of its last segment; `None` where no packet of the unit was seen.
    last_bytes: Option<u32>,
    /// A small segment has followed large ones: the write is over.
    has_rest: bool,
}

impl Unit {
    /// A unit that begins with this segment.
    pub fn new(step: usize, received: u64, began_ns: u64, segment_bytes: Option<u32>) -> Unit {
        Unit { step, received, began_ns, last_bytes: segment_bytes, has_rest: false }
    }

    /// Does it continue with a segment of `segment_bytes`, after `quiet_ns` of quiet, whose sender has
    /// acknowledged `received`?
    pub fn goes_on(&self, received: u64, quiet_ns: u64, segment_bytes: Option<u32>) -> bool {
        let is_one_write = match (self.last_bytes, segment_bytes) {
            (Some(last), Some(next)) => !self.has_rest && (last >= LARGE_BYTES || last == next),
            _ => true,
        };
        self.received == received && quiet_ns < QUIET_NS && is_one_write
    }

    /// Continues it with this segment.
    pub fn takes(&mut self, segment_bytes: Option<u32>) {
        let is_large = |bytes: Option<u32>| bytes.is_some_and(|bytes| bytes >= LARGE_BYTES);
        self.has_rest =
            is_large(self.last_bytes) && segment_bytes.is_some() && !is_large(segment_bytes);
        self.last_bytes = segment_bytes;
    }
}
