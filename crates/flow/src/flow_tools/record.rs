//! Records of files of flow-tools.
//!
//! flow-tools stores an export's record, preceded by fields of the export's header: the wall clock
//! and the exporter's uptime when the datagram left, so that every record can be dated on its own.
//! Versions 1, 5, 6, 7 and 1005 share their first 56 bytes, which hold all that is needed. Records of
//! version 8 are sums made by the router; only method 8, the full flow, has one flow in a record,
//! with an own layout and without TCP flags. The sums have a known size, and are counted.

use core::net::{IpAddr, Ipv4Addr};

use super::{ByteOrder, Header};
use crate::counts::{Counts, Skip};
use crate::netflow5;
use crate::record::{EndReason, FlowKey, FlowRecord, has_ports};

/// The method of version 8 whose records are flows.
const FULL_FLOW: u8 = 8;

/// Offsets that differ between kinds of record; all other fields are at the same offset in all of
/// them.
struct Places {
    counts: usize,
    first: usize,
    source: usize,
    destination: usize,
    source_port: usize,
    destination_port: usize,
    protocol: usize,
    tcp_flags: Option<usize>,
}

const FLOW: Places = Places {
    counts: 32,
    first: 40,
    source: 16,
    destination: 20,
    source_port: 48,
    destination_port: 50,
    protocol: 52,
    tcp_flags: Some(54),
};

const FULL_FLOW_OF_8: Places = Places {
    counts: 16,
    first: 24,
    source: 36,
    destination: 32,
    source_port: 50,
    destination_port: 48,
    protocol: 60,
    tcp_flags: None,
};

impl Header {
    /// Bytes of a record; `None` for versions and methods that are not known.
    pub fn record_bytes(&self) -> Option<usize> {
        Some(match (self.version, self.aggregation) {
            (1, _) => 60,
            (5, _) => 64,
            (6, _) | (1005, _) => 72,
            (7, _) => 68,
            (8, 1..=4 | 9..=12) => 48,
            (8, 5 | 7) => 56,
            (8, 6) => 52,
            (8, FULL_FLOW) => 64,
            (8, 13 | 14) => 60,
            _ => return None,
        })
    }

    /// Decodes the whole records at the beginning of `bytes`, uncompressed; flows go to `out`.
    /// Returns how many bytes they had: the rest is the beginning of another record, or a cut one.
    pub fn decode(
        &self,
        bytes: &[u8],
        counts: &mut Counts,
        out: &mut impl FnMut(FlowRecord),
    ) -> usize {
        let Some(record_bytes) = self.record_bytes() else { return 0 };
        let records = bytes.chunks_exact(record_bytes);
        let number = records.len();
        counts.records += number as u64;
        match (self.version, self.aggregation) {
            (8, FULL_FLOW) => self.give(records, &FULL_FLOW_OF_8, counts, out),
            (8, _) => counts.skips.add_many(Skip::Aggregate, number as u64),
            _ => self.give(records, &FLOW, counts, out),
        }
        number * record_bytes
    }

    /// Counts what is left of a record at the end of the file, if anything is.
    pub fn finish(&self, left: &[u8], counts: &mut Counts) {
        if !left.is_empty() {
            counts.records += 1;
            counts.skips.add(Skip::RecordDamaged);
        }
    }

    fn give<'a>(
        &self,
        records: impl Iterator<Item = &'a [u8]>,
        places: &Places,
        counts: &mut Counts,
        out: &mut impl FnMut(FlowRecord),
    ) {
        for record in records {
            counts.flows += 1;
            out(flow(self.byte_order, record, places, &mut counts.times_reversed));
        }
    }
}

#[inline]
fn flow(order: ByteOrder, record: &[u8], places: &Places, times_reversed: &mut u64) -> FlowRecord {
    let word = |at| order.u32(record, at);
    // The fields of an export's header, so that times are computed as for an export.
    let header = netflow5::Header {
        unix_secs: word(0),
        unix_nsecs: word(4),
        uptime_ms: word(8),
        ..netflow5::Header::default()
    };
    let (start_ns, end_ns) =
        (header.wall_ns(word(places.first)), header.wall_ns(word(places.first + 4)));
    *times_reversed += u64::from(end_ns < start_ns);
    let protocol = record[places.protocol];
    let port = |at| if has_ports(protocol) { order.u16(record, at) } else { 0 };
    let address = |at| IpAddr::from(Ipv4Addr::from_bits(word(at)));
    FlowRecord {
        key: FlowKey {
            source: address(places.source),
            destination: address(places.destination),
            source_port: port(places.source_port),
            destination_port: port(places.destination_port),
            protocol,
        },
        start_ns,
        end_ns: end_ns.max(start_ns),
        packets: word(places.counts).into(),
        octets: word(places.counts + 4).into(),
        tcp_flags: places.tcp_flags.map_or(0, |at| record[at]),
        payload_octets: None,
        opened: None,
        end_reason: EndReason::Unknown,
        sampling_interval: 0,
    }
}
