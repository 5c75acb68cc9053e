//! Packets made to order, with right lengths and checksums, for tests and for probes.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use crate::checksum::{Checksum, internet_checksum};
use crate::ether::ethertype;
use crate::ip::IPV6_HEADER_BYTES;
use crate::transport::{ICMP, ICMPV6, TCP, UDP};

const HOP_LIMIT: u8 = 64;

/// A TCP segment to build. Source and destination must be of one IP version.
#[derive(Clone, Copy, Debug)]
pub struct Tcp<'a> {
    /// Address and port of the sender.
    pub source: SocketAddr,
    /// Address and port of the receiver.
    pub destination: SocketAddr,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number.
    pub acknowledgement: u32,
    /// FIN 0x01, SYN 0x02, RST 0x04, PSH 0x08, ACK 0x10.
    pub flags: u8,
    /// Receive window, unscaled.
    pub window: u16,
    /// User data, at most 65,475 bytes.
    pub payload: &'a [u8],
}

impl<'a> Tcp<'a> {
    /// A segment with neither flags nor data; set the rest with struct update syntax.
    pub fn new(source: SocketAddr, destination: SocketAddr) -> Tcp<'a> {
        Tcp {
            source,
            destination,
            sequence: 0,
            acknowledgement: 0,
            flags: 0,
            window: u16::MAX,
            payload: &[],
        }
    }

    /// The IP packet that carries this segment.
    pub fn ip_packet(&self) -> Vec<u8> {
        let mut segment = ports(self.source, self.destination);
        segment.extend(self.sequence.to_be_bytes());
        segment.extend(self.acknowledgement.to_be_bytes());
        segment.extend([5 << 4, self.flags]);
        segment.extend(self.window.to_be_bytes());
        segment.extend([0; 4]);
        segment.extend(self.payload);
        ip_packet(self.source.ip(), self.destination.ip(), TCP, segment)
    }
}

/// The IP packet of a UDP datagram with at most 65,487 bytes of user data.
pub fn udp(source: SocketAddr, destination: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let mut datagram = ports(source, destination);
    datagram.extend(((8 + payload.len()) as u16).to_be_bytes());
    datagram.extend([0; 2]);
    datagram.extend(payload);
    ip_packet(source.ip(), destination.ip(), UDP, datagram)
}

/// The IP packet of an ICMP or ICMPv6 message, by the version of the addresses.
pub fn icmp(source: IpAddr, destination: IpAddr, kind: u8, code: u8, body: &[u8]) -> Vec<u8> {
    let mut message = Vec::from([kind, code, 0, 0]);
    message.extend(body);
    let protocol = if source.is_ipv4() { ICMP } else { ICMPV6 };
    ip_packet(source, destination, protocol, message)
}

/// An IP packet of the addresses' version around `payload`; the checksum of TCP, UDP, ICMP and
/// ICMPv6 is filled in.
///
/// # Panics
/// If the addresses are of two versions, or the packet would be longer than an IP packet can be.
pub fn ip_packet(
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    mut payload: Vec<u8>,
) -> Vec<u8> {
    fill_checksum(source, destination, protocol, &mut payload);
    let mut packet = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let total =
                u16::try_from(20 + payload.len()).expect("an IPv4 packet of 64 KiB at most");
            let mut header = Vec::with_capacity(usize::from(total));
            header.extend([0x45, 0]);
            header.extend(total.to_be_bytes());
            header.extend([0, 0, 0x40, 0, HOP_LIMIT, protocol, 0, 0]);
            header.extend(source.octets());
            header.extend(destination.octets());
            let checksum = internet_checksum(&[&header]);
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            header
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let length = u16::try_from(payload.len()).expect("an IPv6 payload of 64 KiB at most");
            let mut header = Vec::with_capacity(IPV6_HEADER_BYTES + payload.len());
            header.extend([0x60, 0, 0, 0]);
            header.extend(length.to_be_bytes());
            header.extend([protocol, HOP_LIMIT]);
            header.extend(source.octets());
            header.extend(destination.octets());
            header
        }
        _ => panic!("source and destination are of two IP versions"),
    };
    packet.extend(payload);
    packet
}

/// An Ethernet frame around an IP packet, padded to the 60 bytes that the wire demands.
pub fn ethernet(ip_packet: &[u8]) -> Vec<u8> {
    let kind = match ip_packet.first().map(|byte| byte >> 4) {
        Some(6) => ethertype::IPV6,
        _ => ethertype::IPV4,
    };
    ethernet_of(kind, ip_packet)
}

/// An Ethernet frame of any ethertype, padded likewise.
pub fn ethernet_of(kind: u16, payload: &[u8]) -> Vec<u8> {
    const SHORTEST_FRAME_BYTES: usize = 60;
    let mut frame = Vec::from([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    frame.extend(kind.to_be_bytes());
    frame.extend(payload);
    frame.resize(frame.len().max(SHORTEST_FRAME_BYTES), 0);
    frame
}

fn ports(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let mut header = Vec::new();
    header.extend(source.port().to_be_bytes());
    header.extend(destination.port().to_be_bytes());
    header
}

fn fill_checksum(source: IpAddr, destination: IpAddr, protocol: u8, payload: &mut [u8]) {
    let at = match protocol {
        TCP => 16,
        UDP => 6,
        ICMP | ICMPV6 => 2,
        _ => return,
    };
    if payload.len() < at + 2 {
        return;
    }
    payload[at..at + 2].fill(0);
    let mut checksum = Checksum::new();
    if protocol != ICMP {
        checksum.add_pseudo_header(source, destination, protocol, payload.len() as u32);
    }
    checksum.add(payload);
    let value = match (protocol, checksum.finish()) {
        (UDP, 0) => 0xffff, // zero would say "no checksum" (RFC 768)
        (_, value) => value,
    };
    payload[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// One packet of every kind these builders know, for the tests of this crate.
#[cfg(test)]
pub(crate) fn samples() -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    for (a, b) in [("198.18.0.1", "198.18.1.2"), ("fd00::1", "fd00:1::2")] {
        let (a, b): (IpAddr, IpAddr) = (a.parse().unwrap(), b.parse().unwrap());
        let (from, to) = (SocketAddr::new(a, 40_000), SocketAddr::new(b, 80));
        let tcp = Tcp { sequence: 7, flags: 0x18, payload: b"an odd length", ..Tcp::new(from, to) };
        packets.push(tcp.ip_packet());
        packets.push(udp(from, to, b"a datagram"));
        packets.push(icmp(a, b, if a.is_ipv4() { 8 } else { 128 }, 0, &[1, 2, 3, 4]));
    }
    packets
}
