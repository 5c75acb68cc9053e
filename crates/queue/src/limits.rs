//! The limits of queues, packets and weights that every discipline keeps.

/// The largest number of queues.
pub const MOST_QUEUES: u32 = 1 << 20;
/// The largest MTU that may be set. Its product with [`LARGEST_WEIGHT`], plus one more packet,
/// still fits a deficit of 32 bits.
pub const LARGEST_MTU_BYTES: u32 = 65_535;
/// The largest weight.
pub const LARGEST_WEIGHT: u32 = 65_535;
