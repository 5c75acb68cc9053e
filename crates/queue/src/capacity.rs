//! How much a buffer holds, and how much of it is taken: counted in packets, bytes or cells.

/// Bytes of a packet that one ATM cell carries.
const CELL_PAYLOAD_BYTES: u64 = 48;
/// Bytes that AAL5 adds behind a packet before it is cut into cells (ITU-T I.363.5).
const AAL5_TRAILER_BYTES: u64 = 8;
/// The largest limit: one packet more than this can still be numbered.
const LARGEST_LIMIT: u32 = u32::MAX - 2;

/// The limit of a buffer, in the unit that its memory is counted in.
///
/// Memory of fixed slots is counted in packets, a byte-addressed one in bytes, and one made of ATM
/// cells in the cells that AAL5 cuts a packet into, ⌈(bytes + 8)/48⌉. What is on the link is no
/// longer in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// This many packets of whatever size.
    Packets(u32),
    /// This many bytes. A packet of no bytes takes one, so that the number of packets is bounded.
    Bytes(u32),
    /// This many ATM cells under AAL5.
    Cells(u32),
}

impl Capacity {
    /// The limit in its unit; at most 2³² − 3.
    #[inline]
    pub const fn limit(self) -> u64 {
        let (Capacity::Packets(limit) | Capacity::Bytes(limit) | Capacity::Cells(limit)) = self;
        if limit > LARGEST_LIMIT { LARGEST_LIMIT as u64 } else { limit as u64 }
    }

    /// The largest packet that fits into all of it, in bytes; of a limit that is not zero.
    pub(crate) fn largest_bytes(self) -> u32 {
        let bytes = match self {
            Capacity::Packets(_) => u64::MAX,
            Capacity::Bytes(_) => self.limit(),
            Capacity::Cells(_) => self.limit() * CELL_PAYLOAD_BYTES - AAL5_TRAILER_BYTES,
        };
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// What a packet of `bytes` takes of it; at least one unit.
    #[inline]
    pub const fn units(self, bytes: u32) -> u64 {
        match self {
            Capacity::Packets(_) => 1,
            Capacity::Bytes(_) => {
                if bytes == 0 {
                    1
                } else {
                    bytes as u64
                }
            }
            Capacity::Cells(_) => (bytes as u64 + AAL5_TRAILER_BYTES).div_ceil(CELL_PAYLOAD_BYTES),
        }
    }
}

/// How much of a buffer is taken. The owner of the packets counts them. (The order of the fields
/// keeps the two sums apart: side by side, the compiler would update them as one vector in one
/// place and as two words in another, and a processor does not forward word stores to a vector
/// load.)
#[derive(Clone, Debug)]
pub(crate) struct Occupancy {
    units: u64,
    limit: u64,
    bytes: u64,
    capacity: Capacity,
}

impl Occupancy {
    /// An empty buffer.
    #[inline]
    pub(crate) fn new(capacity: Capacity) -> Occupancy {
        Occupancy { units: 0, limit: capacity.limit(), bytes: 0, capacity }
    }

    /// Whether an empty buffer would hold a packet of `bytes`.
    #[inline]
    pub(crate) fn could_hold(&self, bytes: u32) -> bool {
        self.capacity.units(bytes) <= self.limit
    }

    /// Whether a packet of `bytes` fits now.
    #[inline]
    pub(crate) fn fits(&self, bytes: u32) -> bool {
        self.units + self.capacity.units(bytes) <= self.limit
    }

    /// Whether more is taken than there is, so that a packet has to be pushed out.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.units > self.limit
    }

    /// A packet of `bytes` came in; the units that it takes.
    #[inline]
    pub(crate) fn add(&mut self, bytes: u32) -> u64 {
        let units = self.capacity.units(bytes);
        self.units += units;
        self.bytes += u64::from(bytes);
        units
    }

    /// A packet of `bytes` went; the units that it took.
    #[inline]
    pub(crate) fn remove(&mut self, bytes: u32) -> u64 {
        let units = self.capacity.units(bytes);
        self.units -= units;
        self.bytes -= u64::from(bytes);
        units
    }

    /// What a packet of `bytes` takes.
    #[inline]
    pub(crate) fn units_of(&self, bytes: u32) -> u64 {
        self.capacity.units(bytes)
    }

    /// Packets of `bytes` in total went; together they had taken `units`.
    #[inline]
    pub(crate) fn remove_all(&mut self, units: u64, bytes: u64) {
        self.units -= units;
        self.bytes -= bytes;
    }

    /// What is taken, in the unit of the capacity.
    #[inline]
    pub(crate) fn units(&self) -> u64 {
        self.units
    }

    /// How much there is of it.
    pub(crate) fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// Bytes that wait.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 40 bytes and the trailer fill one cell exactly; one byte more needs a second.
    #[test]
    fn cells_are_those_of_aal5() {
        let cells = |bytes| Capacity::Cells(1).units(bytes);
        assert_eq!([cells(0), cells(40), cells(41), cells(1500)], [1, 1, 2, 32]);
        assert_eq!(cells(u32::MAX), 89_478_486);
    }

    /// The largest packet fills the buffer, and a byte more is too much.
    #[test]
    fn the_largest_packet_is_the_last_that_fits() {
        for limit in [1, 2, 100, 89_478_485] {
            for capacity in [Capacity::Bytes(limit), Capacity::Cells(limit)] {
                let largest = capacity.largest_bytes();
                assert_eq!(capacity.units(largest), capacity.limit(), "{capacity:?}");
                assert!(capacity.units(largest + 1) > capacity.limit(), "{capacity:?}");
            }
            assert_eq!(Capacity::Packets(limit).largest_bytes(), u32::MAX);
        }
        assert_eq!(Capacity::Cells(u32::MAX).largest_bytes(), u32::MAX);
        let limits = [0, 5, u32::MAX - 3, u32::MAX - 2, u32::MAX - 1, u32::MAX];
        let most = u64::from(u32::MAX - 2);
        let expected = [0, 5, most - 1, most, most, most];
        assert_eq!(limits.map(|limit| Capacity::Packets(limit).limit()), expected);
    }

    #[test]
    fn a_limit_counts_in_its_own_unit() {
        for (capacity, held) in
            [(Capacity::Packets(3), 3), (Capacity::Bytes(3_000), 2), (Capacity::Cells(100), 3)]
        {
            let mut occupancy = Occupancy::new(capacity);
            let mut count = 0;
            while occupancy.fits(1_500) {
                occupancy.add(1_500);
                count += 1;
            }
            assert_eq!(count, held, "{capacity:?}");
            assert!(!occupancy.is_over());
            assert!(!occupancy.could_hold(u32::MAX) || capacity == Capacity::Packets(3));
            occupancy.add(1_500);
            assert!(occupancy.is_over());
        }
    }
}
