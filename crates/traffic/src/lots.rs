//! Flow records held for an estimate: packed, and parted by their address pairs.
//!
//! A record as the decoders give it has 96 bytes, half of them room that only IPv6 needs. Most records
//! fit 48 bytes (`NARROW`); the others take 84. A lot has all records of its address pairs, both directions,
//! so that whatever is asked of a five-tuple, of a connection or of a pair is answered by one lot alone:
//! lots can be worked on at the same time, small enough for the processor's cache, and nothing depends
//! on how many workers there are. A lot is plain bytes, and two of them one behind the other are a lot: what
//! memory has no room for can be put aside in a file and fetched when its turn comes.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use nilometer_flow::{EndReason, FlowKey, FlowRecord};

/// Lots, a power of two. Of ten million records each has 40,000.
pub const LOTS: usize = 256;

/// An odd number without pattern: 2^64 / golden ratio.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Deals records to their lots.
pub(crate) fn dealt(records: Vec<FlowRecord>) -> Vec<Vec<FlowRecord>> {
    let mut lots: Vec<Vec<FlowRecord>> = (0..LOTS).map(|_| Vec::new()).collect();
    for record in records {
        lots[lot_of(&record.key)].push(record);
    }
    lots
}

/// The lot that has a tuple's address pair, whichever way its packets went.
pub(crate) fn lot_of(key: &FlowKey) -> usize {
    let fold = |address: IpAddr| match address {
        IpAddr::V4(address) => u64::from(address.to_bits()).wrapping_mul(MULTIPLIER),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            ((bits >> 64) as u64 ^ (bits as u64).rotate_left(29)).wrapping_mul(MULTIPLIER)
        }
    };
    let both = fold(key.source).wrapping_add(fold(key.destination)).wrapping_mul(MULTIPLIER);
    (both >> (64 - LOTS.trailing_zeros())) as usize
}

/// Bytes of a record of IPv4 that is not sampled and counts no more than 2^32 packets.
const NARROW: usize = 48;
/// Bytes of any other.
const WIDE: usize = 88;

const PAYLOAD_KNOWN: u8 = 1;
const OPENED_KNOWN: u8 = 2;
const OPENED: u8 = 4;
const IS_WIDE: u8 = 8;
const END_REASON_SHIFT: u8 = 4;

/// Records of some address pairs, packed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lot(Vec<u8>);

impl Lot {
    /// Packs another record.
    pub fn push(&mut self, record: &FlowRecord) {
        match narrow(record) {
            Some(packed) => self.0.extend_from_slice(&packed),
            None => self.0.extend_from_slice(&wide(record)),
        }
    }

    /// What it is made of, which is left empty.
    pub fn take(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.0)
    }

    /// Adds what was once taken of a lot.
    pub fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The records, in their order.
    ///
    /// # Panics
    /// Where bytes were put in that no lot had.
    pub fn unpack(self) -> Vec<FlowRecord> {
        let mut records = Vec::with_capacity(self.0.len() / NARROW);
        let mut rest = Packed(&self.0);
        while let Some(record) = rest.next() {
            records.push(record);
        }
        records
    }
}

/// Everything but addresses, counts and sampling, and the marks that tell which of it is there.
fn marks(record: &FlowRecord) -> u8 {
    let opened = match record.opened {
        None => 0,
        Some(false) => OPENED_KNOWN,
        Some(true) => OPENED_KNOWN | OPENED,
    };
    let payload = u8::from(record.payload_octets.is_some()) * PAYLOAD_KNOWN;
    payload | opened | (record.end_reason as u8) << END_REASON_SHIFT
}

/// Fills an array from the left.
struct Filling<const N: usize>([u8; N], usize);

impl<const N: usize> Filling<N> {
    fn new(marks: u8) -> Filling<N> {
        let mut filling = Filling([0; N], 0);
        filling.add([marks]);
        filling
    }

    fn add<const M: usize>(&mut self, bytes: [u8; M]) {
        self.0[self.1..self.1 + M].copy_from_slice(&bytes);
        self.1 += M;
    }

    fn common(&mut self, record: &FlowRecord) {
        self.add([record.tcp_flags, record.key.protocol, 0]);
        self.add(record.key.source_port.to_le_bytes());
        self.add(record.key.destination_port.to_le_bytes());
        self.add(record.start_ns.to_le_bytes());
        self.add(record.end_ns.to_le_bytes());
        self.add(record.octets.to_le_bytes());
    }
}

/// `None` where the record does not fit.
fn narrow(record: &FlowRecord) -> Option<[u8; NARROW]> {
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (record.key.source, record.key.destination)
    else {
        return None;
    };
    if record.sampling_interval != 0 {
        return None;
    }
    let packets = u32::try_from(record.packets).ok()?;
    let payload = u32::try_from(record.payload_octets.unwrap_or(0)).ok()?;
    let mut packed = Filling::new(marks(record));
    packed.common(record);
    packed.add(packets.to_le_bytes());
    packed.add(payload.to_le_bytes());
    packed.add(source.octets());
    packed.add(destination.octets());
    Some(packed.0)
}

fn wide(record: &FlowRecord) -> [u8; WIDE] {
    let mut packed = Filling::new(marks(record) | IS_WIDE);
    packed.common(record);
    packed.add(record.packets.to_le_bytes());
    packed.add(record.payload_octets.unwrap_or(0).to_le_bytes());
    packed.add(record.sampling_interval.to_le_bytes());
    for address in [record.key.source, record.key.destination] {
        match address {
            IpAddr::V4(v4) => packed.add(v4.to_ipv6_mapped().octets()),
            IpAddr::V6(v6) => packed.add(v6.octets()),
        }
    }
    let is_v4 = [record.key.source, record.key.destination].map(|address| address.is_ipv4());
    packed.add(is_v4.map(u8::from));
    packed.0
}

/// Packed records, read from the left.
struct Packed<'a>(&'a [u8]);

impl Packed<'_> {
    fn array<const M: usize>(&mut self) -> [u8; M] {
        let (array, rest) = self.0.split_first_chunk().expect("a lot is whole records");
        self.0 = rest;
        *array
    }

    fn next(&mut self) -> Option<FlowRecord> {
        let marks = *self.0.first()?;
        let whole = self.0;
        let length = if marks & IS_WIDE == 0 { NARROW } else { WIDE };
        let record = self.record(marks);
        self.0 = whole.get(length..).expect("a lot is whole records");
        Some(record)
    }

    fn record(&mut self, marks: u8) -> FlowRecord {
        let has = |mark: u8| marks & mark != 0;
        let [_, tcp_flags, protocol, _] = self.array();
        let source_port = u16::from_le_bytes(self.array());
        let destination_port = u16::from_le_bytes(self.array());
        let [start_ns, end_ns, octets] = [(); 3].map(|()| u64::from_le_bytes(self.array()));
        let (packets, payload, sampling_interval, [source, destination]) = match has(IS_WIDE) {
            false => {
                let [packets, payload] = [(); 2].map(|()| u32::from_le_bytes(self.array()).into());
                let ends = [(); 2].map(|()| IpAddr::V4(Ipv4Addr::from(self.array::<4>())));
                (packets, payload, 0, ends)
            }
            true => {
                let [packets, payload] = [(); 2].map(|()| u64::from_le_bytes(self.array()));
                let sampling_interval = u32::from_le_bytes(self.array());
                (packets, payload, sampling_interval, self.wide_ends())
            }
        };
        FlowRecord {
            key: FlowKey { source, destination, source_port, destination_port, protocol },
            start_ns,
            end_ns,
            packets,
            octets,
            tcp_flags,
            payload_octets: has(PAYLOAD_KNOWN).then_some(payload),
            opened: has(OPENED_KNOWN).then_some(has(OPENED)),
            end_reason: EndReason::from_number(marks >> END_REASON_SHIFT),
            sampling_interval,
        }
    }

    fn wide_ends(&mut self) -> [IpAddr; 2] {
        let addresses = [(); 2].map(|()| core::net::Ipv6Addr::from(self.array::<16>()));
        let is_v4: [u8; 2] = self.array();
        let end = |at: usize| match addresses[at].to_ipv4_mapped() {
            Some(v4) if is_v4[at] == 1 => IpAddr::V4(v4),
            _ => IpAddr::V6(addresses[at]),
        };
        [end(0), end(1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn record(n: u64) -> FlowRecord {
        let address = |n: u64| match n % 5 {
            0 => IpAddr::V6((u128::from(n) << 64 | 7).into()),
            _ => IpAddr::V4((n as u32 * 77).into()),
        };
        FlowRecord {
            key: FlowKey {
                source: address(n % 40),
                destination: address(n % 11),
                source_port: n as u16,
                destination_port: !n as u16,
                protocol: n as u8,
            },
            start_ns: n << 40,
            end_ns: u64::MAX - n,
            packets: if n.is_multiple_of(9) { u64::MAX } else { n },
            octets: u64::MAX - 3 * n,
            tcp_flags: n as u8,
            payload_octets: [None, Some(n), Some(n << 40)][n as usize % 3],
            opened: [None, Some(false), Some(true)][n as usize % 3],
            end_reason: EndReason::from_number(n as u8 % 6),
            sampling_interval: if n.is_multiple_of(13) { 100 } else { 0 },
        }
    }

    #[test]
    fn what_is_packed_comes_back_in_its_order_and_in_pieces() {
        let records: Vec<FlowRecord> = (0..2_000).map(record).collect();
        let mut lot = Lot::default();
        records.iter().for_each(|record| lot.push(record));
        let mut pieces = Lot::default();
        for some in records.chunks(70) {
            let mut piece = Lot::default();
            some.iter().for_each(|record| piece.push(record));
            pieces.put(&piece.take());
            assert_eq!(piece, Lot::default());
        }
        assert_eq!(lot, pieces);
        let wide = (lot.0.len() - records.len() * NARROW) / (WIDE - NARROW);
        assert!(wide > 500 && wide < 1_500, "{wide}");
        assert_eq!(lot.unpack(), records);
        assert_eq!(Lot::default().unpack(), vec![]);
    }

    #[test]
    fn an_address_that_only_looks_mapped_is_not_changed() {
        let mut one = record(1);
        one.key.source = IpAddr::V6(Ipv4Addr::new(198, 18, 0, 1).to_ipv6_mapped());
        one.sampling_interval = 7;
        let mut lot = Lot::default();
        lot.push(&one);
        assert_eq!(lot.unpack(), [one]);
    }

    #[test]
    fn a_lot_has_all_of_an_address_pair() {
        let records: Vec<FlowRecord> = (0..5_000).map(record).collect();
        let lots = dealt(records.clone());
        assert!(lots.iter().filter(|lot| !lot.is_empty()).count() > 100);
        for record in &records {
            let reversed = record.key.reversed();
            assert_eq!(lot_of(&record.key), lot_of(&reversed));
            assert!(lots[lot_of(&reversed)].contains(record));
        }
    }
}
