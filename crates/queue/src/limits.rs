//! The limits of queues, packets and weights that every discipline keeps.

/// The largest number of queues.
pub const MOST_QUEUES: u32 = 1 << 20;
/// The largest packet that a queue may be told to expect, and the largest weight: their product and
/// one more packet still fit a deficit of 32 bits.
pub const LARGEST_MTU_BYTES: u32 = 65_535;
/// The largest weight.
pub const LARGEST_WEIGHT: u32 = 65_535;
