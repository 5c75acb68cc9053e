//! Packed flow records, hash-partitioned by address pair.
//!
//! A decoded record has 96 bytes, half of which only IPv6 needs. Most records fit 48 bytes (`NARROW`); the others
//! take 88. A partition holds all records of its address pairs, in both directions. Everything about a five-tuple, a
//! connection or an address pair is therefore in one partition: partitions are processed in parallel, each small
//! enough for the processor's cache, and the result does not depend on the number of workers.
//!
//! A partition is plain bytes, and the concatenation of two partitions is a partition. Partitions that do not fit in
//! memory are spilled to a file and read back in pieces. A partition that is too large is split by *slot*, a second
//! hash of the address pair, and a slot that is too large by *bin*, a hash of the pair of sockets.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use nilometer_flow::{EndReason, FlowKey, FlowRecord};

/// The number of partitions, a power of two. With ten million records each holds 40,000.
pub const PARTITIONS: usize = 256;

/// An odd number without pattern: 2^64 / golden ratio.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// The partition of a tuple's address pair; the same for both directions.
pub(crate) fn partition_of(key: &FlowKey) -> usize {
    let fold = |address: IpAddr| match address {
        IpAddr::V4(address) => u64::from(address.to_bits()).wrapping_mul(MULTIPLIER),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            ((bits >> 64) as u64 ^ (bits as u64).rotate_left(29)).wrapping_mul(MULTIPLIER)
        }
    };
    let both = fold(key.source).wrapping_add(fold(key.destination)).wrapping_mul(MULTIPLIER);
    (both >> (64 - PARTITIONS.trailing_zeros())) as usize
}

/// Slots of a partition.
pub(crate) const SLOTS: u16 = 256;

/// The slot of a tuple's address pair within its partition. It uses another hash, because the sums that choose the
/// partition are equal for many pairs.
pub(crate) fn slot_of(key: &FlowKey) -> u16 {
    let (source, destination) = (key.source, key.destination);
    let (source, destination) = (source.min(destination), source.max(destination));
    let pair = FlowKey { source, destination, source_port: 0, destination_port: 0, protocol: 0 };
    (pair.hash_word() >> 56) as u16
}

/// Bins of a slot.
pub(crate) const BINS: u16 = 4_096;

/// The bin of a tuple's pair of sockets within its slot.
pub(crate) fn bin_of(key: &FlowKey) -> u16 {
    ((*key).min(key.reversed()).hash_word() >> 52) as u16
}

/// Bytes of an IPv4 record that counts no more than 2^32 packets and has either payload or a sampling interval.
pub(crate) const NARROW: usize = 48;
/// Bytes of any other.
const WIDE: usize = 88;

const PAYLOAD_KNOWN: u8 = 1;
const OPENED_KNOWN: u8 = 2;
const OPENED: u8 = 4;
const IS_WIDE: u8 = 8;
const END_REASON_SHIFT: u8 = 4;
const END_REASONS: u8 = 7;
/// In a narrow record: the sampling interval takes the place of the payload.
const IS_SAMPLED: u8 = 1 << 7;

/// Records of some address pairs, packed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Partition(Vec<u8>);

impl Partition {
    /// Packs another record.
    pub fn push(&mut self, record: &FlowRecord) {
        match narrow(record) {
            Some(packed) => self.0.extend_from_slice(&packed),
            None => self.0.extend_from_slice(&wide(record)),
        }
    }

    /// Takes its bytes and leaves it empty.
    pub fn take(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.0)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Unpacks the bytes of a partition, given in pieces that may be cut anywhere.
pub(crate) struct Unpacking<F> {
    /// The beginning of a record whose end is in the next piece.
    cut: Vec<u8>,
    each: F,
}

impl<F: FnMut(FlowRecord)> Unpacking<F> {
    /// Passes the records in their order to `each`.
    pub fn new(each: F) -> Unpacking<F> {
        Unpacking { cut: Vec::with_capacity(WIDE), each }
    }

    /// Takes the next piece.
    pub fn take(&mut self, mut bytes: &[u8]) {
        if let Some(&marks) = self.cut.first() {
            let missing = length_of(marks) - self.cut.len();
            let (end, rest) = bytes.split_at(missing.min(bytes.len()));
            self.cut.extend_from_slice(end);
            if end.len() < missing {
                return;
            }
            (self.each)(Packed(&self.cut).record(marks));
            self.cut.clear();
            bytes = rest;
        }
        while let Some((&marks, _)) = bytes.split_first()
            && let Some((record, rest)) = bytes.split_at_checked(length_of(marks))
        {
            (self.each)(Packed(record).record(marks));
            bytes = rest;
        }
        self.cut.extend_from_slice(bytes);
    }

    /// Checks that the last piece was complete.
    ///
    /// # Panics
    /// Where the pieces do not end with a whole record.
    pub fn finish(self) {
        assert!(self.cut.is_empty(), "a partition is whole records");
    }
}

/// Bytes of a record with these marks.
fn length_of(marks: u8) -> usize {
    if marks & IS_WIDE == 0 { NARROW } else { WIDE }
}

/// The flags of a packed record: which optional fields it has, and why the flow ended.
fn marks(record: &FlowRecord) -> u8 {
    let opened = match record.opened {
        None => 0,
        Some(false) => OPENED_KNOWN,
        Some(true) => OPENED_KNOWN | OPENED,
    };
    let payload = u8::from(record.payload_octets.is_some()) * PAYLOAD_KNOWN;
    payload | opened | (record.end_reason as u8) << END_REASON_SHIFT
}

/// An array that is filled from the left.
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
    let packets = u32::try_from(record.packets).ok()?;
    let (mark, last) = match (record.payload_octets, record.sampling_interval) {
        (payload, 0) => (0, u32::try_from(payload.unwrap_or(0)).ok()?),
        (None, interval) => (IS_SAMPLED, interval),
        _ => return None,
    };
    let mut packed = Filling::new(marks(record) | mark);
    packed.common(record);
    packed.add(packets.to_le_bytes());
    packed.add(last.to_le_bytes());
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
        let (array, rest) = self.0.split_first_chunk().expect("a partition is whole records");
        self.0 = rest;
        *array
    }

    fn record(&mut self, marks: u8) -> FlowRecord {
        let has = |mark: u8| marks & mark != 0;
        let [_, tcp_flags, protocol, _] = self.array();
        let source_port = u16::from_le_bytes(self.array());
        let destination_port = u16::from_le_bytes(self.array());
        let [start_ns, end_ns, octets] = [(); 3].map(|()| u64::from_le_bytes(self.array()));
        let (packets, payload, sampling_interval, [source, destination]) = match has(IS_WIDE) {
            false => {
                let [packets, last] = [(); 2].map(|()| u32::from_le_bytes(self.array()));
                let ends = [(); 2].map(|()| IpAddr::V4(Ipv4Addr::from(self.array::<4>())));
                let (payload, interval) = if has(IS_SAMPLED) { (0, last) } else { (last, 0) };
                (packets.into(), payload.into(), interval, ends)
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
            end_reason: EndReason::from_number(marks >> END_REASON_SHIFT & END_REASONS),
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

    /// The records in pieces of a partition.
    fn unpacked<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<FlowRecord> {
        let mut records = Vec::new();
        let mut unpacking = Unpacking::new(|record| records.push(record));
        pieces.into_iter().for_each(|piece| unpacking.take(piece));
        unpacking.finish();
        records
    }

    #[test]
    fn packed_records_are_unpacked_in_order_from_pieces_cut_anywhere() {
        let records: Vec<FlowRecord> = (0..2_000).map(record).collect();
        let mut partition = Partition::default();
        records.iter().for_each(|record| partition.push(record));
        let wide = (partition.0.len() - records.len() * NARROW) / (WIDE - NARROW);
        assert!(wide > 500 && wide < 1_500, "{wide}");
        for bytes in [1, 7, 47, 48, 88, 1_000, 1 << 20] {
            assert_eq!(unpacked(partition.bytes().chunks(bytes)), records);
        }
        assert_eq!(unpacked([partition.take().as_slice(), &[]]), records);
        assert_eq!(partition, Partition::default());
        assert_eq!(unpacked([]), []);
    }

    #[test]
    fn an_ipv4_mapped_ipv6_address_stays_ipv6() {
        let mut one = record(1);
        one.key.source = IpAddr::V6(Ipv4Addr::new(198, 18, 0, 1).to_ipv6_mapped());
        one.sampling_interval = 7;
        let mut partition = Partition::default();
        partition.push(&one);
        assert_eq!(unpacked([partition.bytes()]), [one]);
    }

    #[test]
    fn a_sampled_ipv4_record_takes_48_bytes() {
        for interval in [1, 2, u32::MAX] {
            let mut one = record(1);
            (one.payload_octets, one.sampling_interval) = (None, interval);
            one.end_reason = EndReason::LackOfResources;
            let mut partition = Partition::default();
            partition.push(&one);
            assert_eq!(partition.bytes().len(), NARROW);
            assert_eq!(unpacked([partition.bytes()]), [one]);
        }
    }

    #[test]
    fn a_partition_and_a_slot_hold_all_of_an_address_pair() {
        let records: Vec<FlowRecord> = (0..5_000).map(record).collect();
        let mut places = alloc::collections::BTreeSet::new();
        for record in &records {
            let reversed = record.key.reversed();
            let place = (partition_of(&record.key), slot_of(&record.key));
            assert_eq!(place, (partition_of(&reversed), slot_of(&reversed)));
            assert_eq!(bin_of(&record.key), bin_of(&reversed));
            assert!(bin_of(&record.key) < BINS);
            assert!(place.0 < PARTITIONS && place.1 < SLOTS);
            places.insert(place);
        }
        let partitions = places
            .iter()
            .map(|(partition, _)| partition)
            .collect::<alloc::collections::BTreeSet<_>>();
        assert!(
            partitions.len() > 100 && places.len() > 300,
            "{} {}",
            partitions.len(),
            places.len()
        );
    }
}
