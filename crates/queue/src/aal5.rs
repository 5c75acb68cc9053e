//! What a packet takes on a fabric of ATM cells: AAL5 segmentation (ITU-T I.363.5).
//!
//! The DER's switch fabric carried cells. A packet is followed by AAL5's trailer of 8 bytes, padded
//! to a multiple of 48 bytes and cut into cells, each of which takes 53 bytes with its header.

use crate::capacity::Capacity;

/// Bytes that a cell takes on the fabric.
const CELL_BYTES: u64 = 53;

/// How packets travel through a fabric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// As they are.
    #[default]
    Whole,
    /// Cut into ATM cells.
    Cells,
}

impl Framing {
    /// Bytes of the fabric that a packet of `bytes` takes.
    #[inline]
    pub const fn fabric_bytes(self, bytes: u32) -> u64 {
        match self {
            Framing::Whole => bytes as u64,
            Framing::Cells => Capacity::Cells(1).units(bytes) * CELL_BYTES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_fill_whole_cells() {
        assert_eq!(Framing::Cells.fabric_bytes(40), 53);
        assert_eq!(Framing::Cells.fabric_bytes(41), 106);
        assert_eq!(Framing::Cells.fabric_bytes(520), 11 * 53);
        assert_eq!(Framing::Cells.fabric_bytes(1500), 32 * 53);
        assert_eq!(Framing::Whole.fabric_bytes(520), 520);
    }
}
