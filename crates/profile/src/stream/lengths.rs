//! Lengths of Ethernet frames, with and without the frame check sequence.

/// The shortest frame of Ethernet, with its check sequence; a tag has room in it.
pub const FRAME_BYTES_MIN: u16 = 64;
/// The longest without a VLAN tag.
pub const FRAME_BYTES_MAX: u16 = 1_518;
/// Bytes of the frame check sequence, which programs do not see.
pub const FCS_BYTES: u16 = 4;
