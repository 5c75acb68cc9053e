//! How large packets were: counted in classes, eight an octave, sparsely.

use alloc::vec::Vec;

/// Bits of a size, behind its first, that choose its class.
const CLASS_BITS: u32 = 3;

/// Packets by their size in bytes from the IP header on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PacketSizes {
    /// The smallest size of a class, and packets of it; in no order.
    classes: Vec<(u32, u32)>,
}

impl PacketSizes {
    /// Counts a packet of `bytes` bytes.
    pub fn count(&mut self, bytes: u32) {
        let class = class(bytes);
        match self.classes.iter_mut().find(|one| one.0 == class) {
            Some((_, packets)) => *packets = packets.saturating_add(1),
            None => self.classes.push((class, 1)),
        }
    }

    /// The smallest size of each class, and packets of it.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        self.classes.iter().copied()
    }
}

/// The smallest size of the class that `bytes` is in.
fn class(bytes: u32) -> u32 {
    let below = bytes.max(1).ilog2().saturating_sub(CLASS_BITS);
    bytes >> below << below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_eighths_of_octaves() {
        for (bytes, smallest) in [
            (0, 0),
            (7, 7),
            (40, 40),
            (43, 40),
            (44, 44),
            (52, 52),
            (1_500, 1_408),
            (1_535, 1_408),
            (65_535, 61_440),
        ] {
            assert_eq!(class(bytes), smallest);
        }
        let mut sizes = PacketSizes::default();
        [40, 43, 1_500, 41].into_iter().for_each(|bytes| sizes.count(bytes));
        assert_eq!(sizes.iter().collect::<Vec<_>>(), [(40, 3), (1_408, 1)]);
    }
}
