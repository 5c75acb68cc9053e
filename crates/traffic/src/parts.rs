//! Flow records held for an estimate: packed, and parted by their address pairs.
//!
//! A record as the decoders give it has 96 bytes, half of them room that only IPv6 needs. Most records
//! fit half of that ([`Narrow`]); the others are kept as they are. A part has all records of its
//! address pairs, both directions, so that whatever is asked of a five-tuple, of a connection or of a
//! pair is answered by one part alone: parts can be worked on at the same time, small enough for the
//! processor's cache, and nothing depends on how many there are. Within a part records keep the order in
//! which they came.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use nilometer_flow::{EndReason, FlowKey, FlowRecord};

/// Parts, a power of two. Of ten million records each has 40,000.
const PARTS: usize = 256;

/// An odd number without pattern: 2^64 / golden ratio.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// All records, in their parts.
#[derive(Debug)]
pub(crate) struct Parts(Vec<Part>);

impl Parts {
    /// No records.
    pub fn new() -> Parts {
        Parts((0..PARTS).map(|_| Part::default()).collect())
    }

    /// Adds a record to the part that has its address pair.
    pub fn push(&mut self, record: &FlowRecord) {
        self.0[part_of(&record.key)].push(record);
    }

    /// The parts.
    pub fn into_parts(self) -> Vec<Part> {
        self.0
    }
}

/// Deals records to their parts.
pub(crate) fn dealt(records: Vec<FlowRecord>) -> Vec<Vec<FlowRecord>> {
    let mut parts: Vec<Vec<FlowRecord>> = (0..PARTS).map(|_| Vec::new()).collect();
    for record in records {
        parts[part_of(&record.key)].push(record);
    }
    parts
}

/// The part that has a tuple's address pair, whichever way its packets went.
pub(crate) fn part_of(key: &FlowKey) -> usize {
    let fold = |address: IpAddr| match address {
        IpAddr::V4(address) => u64::from(address.to_bits()).wrapping_mul(MULTIPLIER),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            ((bits >> 64) as u64 ^ (bits as u64).rotate_left(29)).wrapping_mul(MULTIPLIER)
        }
    };
    let both = fold(key.source).wrapping_add(fold(key.destination)).wrapping_mul(MULTIPLIER);
    (both >> (64 - PARTS.trailing_zeros())) as usize
}

/// Records of some address pairs.
#[derive(Debug, Default)]
pub(crate) struct Part {
    narrow: Vec<Narrow>,
    /// Those that do not fit, each with how many records came before it.
    wide: Vec<(usize, FlowRecord)>,
}

impl Part {
    /// Packs records.
    pub fn of(records: impl Iterator<Item = FlowRecord>) -> Part {
        let mut part = Part::default();
        records.for_each(|record| part.push(&record));
        part
    }

    fn push(&mut self, record: &FlowRecord) {
        match Narrow::of(record) {
            Some(narrow) => self.narrow.push(narrow),
            None => self.wide.push((self.narrow.len() + self.wide.len(), record.clone())),
        }
    }

    /// The records, in their order; `more` beyond them has room.
    pub fn unpack(self, more: usize) -> Vec<FlowRecord> {
        let mut records = Vec::with_capacity(self.narrow.len() + self.wide.len() + more);
        let mut narrow = self.narrow.iter().map(Narrow::record);
        for (before, wide) in self.wide {
            records.extend(narrow.by_ref().take(before - records.len()));
            records.push(wide);
        }
        records.extend(narrow);
        records
    }
}

const PAYLOAD_KNOWN: u8 = 1;
const OPENED_KNOWN: u8 = 2;
const OPENED: u8 = 4;
const END_REASON_SHIFT: u8 = 4;

/// A record of IPv4 that is not sampled and counts no more than 2^32 packets: 48 bytes.
#[derive(Clone, Copy, Debug)]
struct Narrow {
    start_ns: u64,
    end_ns: u64,
    octets: u64,
    packets: u32,
    payload: u32,
    source: u32,
    destination: u32,
    source_port: u16,
    destination_port: u16,
    protocol: u8,
    tcp_flags: u8,
    marks: u8,
}

impl Narrow {
    /// `None` where the record does not fit.
    fn of(record: &FlowRecord) -> Option<Narrow> {
        let (IpAddr::V4(source), IpAddr::V4(destination)) =
            (record.key.source, record.key.destination)
        else {
            return None;
        };
        if record.sampling_interval != 0 {
            return None;
        }
        let opened = match record.opened {
            None => 0,
            Some(false) => OPENED_KNOWN,
            Some(true) => OPENED_KNOWN | OPENED,
        };
        let payload = u8::from(record.payload_octets.is_some()) * PAYLOAD_KNOWN;
        Some(Narrow {
            start_ns: record.start_ns,
            end_ns: record.end_ns,
            octets: record.octets,
            packets: record.packets.try_into().ok()?,
            payload: record.payload_octets.unwrap_or(0).try_into().ok()?,
            source: source.to_bits(),
            destination: destination.to_bits(),
            source_port: record.key.source_port,
            destination_port: record.key.destination_port,
            protocol: record.key.protocol,
            tcp_flags: record.tcp_flags,
            marks: payload | opened | (record.end_reason as u8) << END_REASON_SHIFT,
        })
    }

    fn record(&self) -> FlowRecord {
        let has = |mark: u8| self.marks & mark != 0;
        FlowRecord {
            key: FlowKey {
                source: Ipv4Addr::from_bits(self.source).into(),
                destination: Ipv4Addr::from_bits(self.destination).into(),
                source_port: self.source_port,
                destination_port: self.destination_port,
                protocol: self.protocol,
            },
            start_ns: self.start_ns,
            end_ns: self.end_ns,
            packets: self.packets.into(),
            octets: self.octets,
            tcp_flags: self.tcp_flags,
            payload_octets: has(PAYLOAD_KNOWN).then_some(self.payload.into()),
            opened: has(OPENED_KNOWN).then_some(has(OPENED)),
            end_reason: EndReason::from_number(self.marks >> END_REASON_SHIFT),
            sampling_interval: 0,
        }
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
    fn what_is_packed_comes_back_in_its_order() {
        let records: Vec<FlowRecord> = (0..2_000).map(record).collect();
        let part = Part::of(records.iter().cloned());
        assert!(part.narrow.len() > 500 && part.wide.len() > 500);
        assert_eq!(part.unpack(0), records);
        assert_eq!(Part::default().unpack(3), vec![]);
        assert_eq!(size_of::<Narrow>(), 48);
    }

    #[test]
    fn a_part_has_all_of_an_address_pair() {
        let records: Vec<FlowRecord> = (0..5_000).map(record).collect();
        let mut parts = Parts::new();
        records.iter().for_each(|record| parts.push(record));
        let parts: Vec<Vec<FlowRecord>> =
            parts.into_parts().into_iter().map(|part| part.unpack(0)).collect();
        assert_eq!(parts, dealt(records.clone()));
        assert!(parts.iter().filter(|part| !part.is_empty()).count() > 100);
        for record in &records {
            let reversed = record.key.reversed();
            assert_eq!(part_of(&record.key), part_of(&reversed));
            assert!(parts[part_of(&reversed)].contains(record));
        }
    }
}
