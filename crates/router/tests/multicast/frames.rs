//! Hosts of both families: their addresses, and the messages that they send.

use nilometer_router::multicast::{Protocol, Record, RecordKind};
use nilometer_wire::checksum::{Checksum, internet_checksum};

/// A family whose hosts the tests can simulate.
pub trait Hosts: Protocol {
    /// Addresses of the link; the router that is tested has number 100.
    fn on_link(number: u64) -> Self;
    fn group(number: u64) -> Self;
    fn source(number: u64) -> Self;
    /// A report of the newest version.
    fn report(records: &[Record<Self>]) -> Vec<u8>;
    /// A report or a leave of the version before.
    fn older(group: Self, is_leave: bool) -> Vec<u8>;
}

/// One record of the newest version.
pub fn one<A: Hosts>(kind: RecordKind, group: A, sources: &[A]) -> Vec<u8> {
    A::report(&[Record { kind, group, sources: sources.to_vec() }])
}

/// The part of a report that both families have.
fn records<const BYTES: usize, A: Copy>(
    kind: u8,
    records: &[Record<A>],
    bytes: impl Fn(A) -> [u8; BYTES],
) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, 0, 0];
    message.extend((records.len() as u16).to_be_bytes());
    for record in records {
        message.extend([record.kind as u8, 0]);
        message.extend((record.sources.len() as u16).to_be_bytes());
        message.extend(bytes(record.group));
        message.extend(record.sources.iter().flat_map(|source| bytes(*source)));
    }
    message
}

/// An IGMP message with its checksum, in an IPv4 packet with TTL 1 and a router alert.
pub fn igmp(source: u32, destination: u32, mut message: Vec<u8>) -> Vec<u8> {
    message[2..4].fill(0);
    let sum = internet_checksum(&[&message]);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut packet = vec![0x46, 0xc0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0];
    packet.extend(source.to_be_bytes());
    packet.extend(destination.to_be_bytes());
    packet.extend([0x94, 4, 0, 0]);
    let bytes = (packet.len() + message.len()) as u16;
    packet[2..4].copy_from_slice(&bytes.to_be_bytes());
    let sum = internet_checksum(&[&packet]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(message);
    ethernet(destination.group_mac(), 0x0800, packet)
}

/// An MLD message with its checksum, in an IPv6 packet with hop limit 1 and a router alert.
pub fn mld(source: u128, destination: u128, mut message: Vec<u8>) -> Vec<u8> {
    message[2..4].fill(0);
    let mut sum = Checksum::new();
    let ends = [source, destination].map(|address| std::net::Ipv6Addr::from(address).into());
    sum.add_pseudo_header(ends[0], ends[1], 58, message.len() as u32);
    sum.add(&message);
    message[2..4].copy_from_slice(&sum.finish().to_be_bytes());
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((8 + message.len() as u16).to_be_bytes());
    packet.extend([0, 1]);
    packet.extend(source.to_be_bytes());
    packet.extend(destination.to_be_bytes());
    packet.extend([58, 0, 5, 2, 0, 0, 1, 0]);
    packet.extend(message);
    ethernet(destination.group_mac(), 0x86dd, packet)
}

fn ethernet(to: [u8; 6], kind: u16, packet: Vec<u8>) -> Vec<u8> {
    let mut frame = to.to_vec();
    frame.extend([2, 0, 0, 9, 9, 9]);
    frame.extend(kind.to_be_bytes());
    frame.extend(packet);
    frame
}

impl Hosts for u32 {
    fn on_link(number: u64) -> u32 {
        0xc612_0000 + number as u32
    }

    fn group(number: u64) -> u32 {
        0xef01_0000 + number as u32
    }

    fn source(number: u64) -> u32 {
        0xc613_0000 + number as u32
    }

    fn report(listed: &[Record<u32>]) -> Vec<u8> {
        igmp(u32::on_link(200), 0xe000_0016, records(0x22, listed, u32::to_be_bytes))
    }

    fn older(group: u32, is_leave: bool) -> Vec<u8> {
        let (kind, to) = if is_leave { (0x17, 0xe000_0002) } else { (0x16, group) };
        let mut message = vec![kind, 0, 0, 0];
        message.extend(group.to_be_bytes());
        igmp(u32::on_link(200), to, message)
    }
}

impl Hosts for u128 {
    fn on_link(number: u64) -> u128 {
        0xfe80 << 112 | u128::from(number)
    }

    fn group(number: u64) -> u128 {
        0xff0e << 112 | (0x1_0000 + u128::from(number))
    }

    fn source(number: u64) -> u128 {
        0xfd00_0010 << 96 | u128::from(number)
    }

    fn report(listed: &[Record<u128>]) -> Vec<u8> {
        let message = records(143, listed, u128::to_be_bytes);
        mld(u128::on_link(200), 0xff02 << 112 | 0x16, message)
    }

    fn older(group: u128, is_leave: bool) -> Vec<u8> {
        let (kind, to) = if is_leave { (132, 0xff02 << 112 | 2) } else { (131, group) };
        let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 0];
        message.extend(group.to_be_bytes());
        mld(u128::on_link(200), to, message)
    }
}
