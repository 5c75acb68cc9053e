//! IPFIX messages in UDP datagrams: header, templates, and records of both versions of IP.

use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use nilometer_plugin::checksum::{Sum, checksum};
use nilometer_plugin::headers::UDP;

use super::{Key, Seen, address};
use crate::SECOND_NS;

/// The longest datagram, with its IP header: what passes everywhere.
const DATAGRAM_BYTES_MAX: usize = 1_400;
/// Records of a message at most, whatever their version.
pub(super) const RECORDS_MAX: usize = 24;

const HEADER_BYTES: usize = 16;
const SET_HEADER_BYTES: usize = 4;
const TEMPLATE_SET: u16 = 2;
const IPV4_TEMPLATE: u16 = 256;
const IPV6_TEMPLATE: u16 = 257;

/// Information elements of a record and their bytes, behind the two addresses: ports, protocol, flags, octetDeltaCount,
/// packetDeltaCount, flowStartMilliseconds, flowEndMilliseconds, samplingPacketInterval, samplingPacketSpace,
/// flowEndReason.
const ELEMENTS: [(u16, u16); 11] = [
    (7, 2),
    (11, 2),
    (4, 1),
    (6, 2),
    (1, 8),
    (2, 8),
    (152, 8),
    (153, 8),
    (305, 4),
    (306, 4),
    (136, 1),
];
/// sourceIPv4Address and destinationIPv4Address; the same of IPv6.
const IPV4_ADDRESSES: [(u16, u16); 2] = [(8, 4), (12, 4)];
const IPV6_ADDRESSES: [(u16, u16); 2] = [(27, 16), (28, 16)];

/// flowEndReason: active timeout, lack of resources.
const ACTIVE_TIMEOUT: u8 = 2;
const LACK_OF_RESOURCES: u8 = 5;

/// The source and destination of messages, and the number of records so far.
pub(super) struct Exporter {
    source: SocketAddr,
    collector: SocketAddr,
    domain: u32,
    epoch_s: u64,
    every: u32,
    sequence: u32,
}

/// A message in the making.
pub(super) struct Message {
    export_s: u32,
    epoch_ms: u64,
    every: u32,
    bytes: usize,
    bytes_max: usize,
    ipv4: Vec<u8>,
    ipv6: Vec<u8>,
    records: u32,
}

impl Exporter {
    pub(super) fn new(
        source: SocketAddr,
        collector: SocketAddr,
        domain: u32,
        epoch_s: u64,
        every: u32,
    ) -> Exporter {
        Exporter { source, collector, domain, epoch_s, every, sequence: 0 }
    }

    pub(super) fn begin(&self, now_ns: u64) -> Message {
        let around = if self.source.is_ipv4() { 28 } else { 48 };
        Message {
            export_s: (self.epoch_s + now_ns / SECOND_NS) as u32,
            epoch_ms: self.epoch_s.saturating_mul(1_000),
            every: self.every,
            bytes: HEADER_BYTES,
            bytes_max: DATAGRAM_BYTES_MAX - around,
            ipv4: Vec::new(),
            ipv6: Vec::new(),
            records: 0,
        }
    }

    /// The whole IP packet.
    pub(super) fn end(&mut self, message: Message) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        let sets = [
            (IPV4_TEMPLATE, &IPV4_ADDRESSES, &message.ipv4),
            (IPV6_TEMPLATE, &IPV6_ADDRESSES, &message.ipv6),
        ];
        for (number, addresses, records) in sets.into_iter().filter(|set| !set.2.is_empty()) {
            let elements = addresses.iter().chain(&ELEMENTS);
            let mut template = Vec::new();
            put(&mut template, &[number, (addresses.len() + ELEMENTS.len()) as u16]);
            elements.for_each(|(element, length)| put(&mut template, &[*element, *length]));
            set(&mut bytes, TEMPLATE_SET, &template);
            set(&mut bytes, number, records);
        }
        let length = bytes.len() as u16;
        bytes[0..2].copy_from_slice(&10u16.to_be_bytes());
        bytes[2..4].copy_from_slice(&length.to_be_bytes());
        bytes[4..8].copy_from_slice(&message.export_s.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.domain.to_be_bytes());
        self.sequence = self.sequence.wrapping_add(message.records);
        datagram(self.source, self.collector, &bytes)
    }
}

impl Message {
    pub(super) fn records(&self) -> u32 {
        self.records
    }

    /// Adds a flow's record, if there is room.
    pub(super) fn add(&mut self, key: &Key, seen: &Seen, for_want_of_room: bool) -> bool {
        let ends = [key.source, key.destination].map(address);
        let (records, addresses) = match ends[0] {
            IpAddr::V4(_) => (&mut self.ipv4, &IPV4_ADDRESSES),
            IpAddr::V6(_) => (&mut self.ipv6, &IPV6_ADDRESSES),
        };
        let elements = addresses.iter().chain(&ELEMENTS);
        let record_bytes: usize = elements.map(|(_, length)| usize::from(*length)).sum();
        let template_bytes = 2 * SET_HEADER_BYTES + 4 + 4 * (2 + ELEMENTS.len());
        let wanted = record_bytes + if records.is_empty() { template_bytes } else { 0 };
        if self.bytes + wanted > self.bytes_max {
            return false;
        }
        self.bytes += wanted;
        self.records += 1;
        for address in ends {
            match address {
                IpAddr::V4(address) => records.extend(address.octets()),
                IpAddr::V6(address) => records.extend(address.octets()),
            }
        }
        put(records, &[key.ports.0, key.ports.1]);
        records.push(key.protocol);
        put(records, &[seen.tcp_flags.into()]);
        let milliseconds = |ns: u64| self.epoch_ms.saturating_add(ns / 1_000_000);
        let (start, end) = (milliseconds(seen.first_ns), milliseconds(seen.last_ns));
        for number in [seen.bytes, seen.packets, start, end] {
            records.extend(number.to_be_bytes());
        }
        for number in [1, self.every - 1] {
            records.extend(number.to_be_bytes());
        }
        records.push(if for_want_of_room { LACK_OF_RESOURCES } else { ACTIVE_TIMEOUT });
        true
    }
}

fn put(bytes: &mut Vec<u8>, words: &[u16]) {
    words.iter().for_each(|word| bytes.extend(word.to_be_bytes()));
}

fn set(bytes: &mut Vec<u8>, number: u16, body: &[u8]) {
    put(bytes, &[number, (SET_HEADER_BYTES + body.len()) as u16]);
    bytes.extend(body);
}

/// A UDP datagram in an IP packet, its checksums filled in.
fn datagram(source: SocketAddr, destination: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let udp_bytes = 8 + payload.len() as u16;
    let mut udp = Vec::new();
    put(&mut udp, &[source.port(), destination.port(), udp_bytes, 0]);
    udp.extend(payload);
    let mut packet = match (source.ip(), destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut header = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, UDP, 0, 0];
            header[2..4].copy_from_slice(&(20 + udp_bytes).to_be_bytes());
            header.extend(source.octets());
            header.extend(destination.octets());
            let sum = checksum(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            header
        }
        (source, destination) => {
            let mut header = vec![0x60, 0, 0, 0, 0, 0, UDP, 64];
            header[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
            for address in [source, destination] {
                if let IpAddr::V6(address) = address {
                    header.extend(address.octets());
                }
            }
            header
        }
    };
    let addresses = if source.is_ipv4() { &packet[12..20] } else { &packet[8..40] };
    let sum = Sum::default().with(addresses).with(&[0, UDP]).with(&udp_bytes.to_be_bytes());
    let sum = sum.with(&udp).checksum();
    // Zero would mean that there is none (RFC 768).
    let sum = if sum == 0 { 0xffff } else { sum };
    udp[6..8].copy_from_slice(&sum.to_be_bytes());
    packet.extend(udp);
    packet
}
