//! The IP packet around a message: protocol 46, with the router alert option where routers on the way shall take it.

use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_wire::checksum::internet_checksum;
use thiserror::Error;

use crate::message::PROTOCOL;

/// Router alert in IPv4 (RFC 2113): every router shall examine the packet.
const ROUTER_ALERT: [u8; 4] = [148, 4, 0, 0];
/// Hop-by-hop options with router alert for RSVP (RFC 2711: value 1), padded to eight bytes.
const HOP_BY_HOP: [u8; 8] = [PROTOCOL, 0, 5, 2, 0, 1, 1, 0];
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
/// Class selector 6, network control.
const TRAFFIC_CLASS: u8 = 0xc0;

/// Why a packet carries no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PacketError {
    /// No whole IP packet.
    #[error("no whole IP packet")]
    Cut,
    /// A packet of another protocol, or a fragment.
    #[error("no packet of RSVP, or a fragment of one")]
    Protocol,
    /// The checksum of an IPv4 header is wrong.
    #[error("the checksum of the IPv4 header is wrong")]
    Checksum,
}

/// The way of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The packet's source.
    pub source: IpAddr,
    /// Its destination.
    pub destination: IpAddr,
    /// Its TTL or hop limit.
    pub ttl: u8,
    /// Whether it carries the router alert option.
    pub has_router_alert: bool,
}

/// The IP packet of `message`.
///
/// # Panics
/// If source and destination are of two IP versions, or the message is longer than a packet.
pub fn write(envelope: &Envelope, message: &[u8]) -> Vec<u8> {
    let Envelope { source, destination, ttl, has_router_alert } = *envelope;
    let mut packet = Vec::with_capacity(48 + message.len());
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let header = IPV4_BYTES + if has_router_alert { ROUTER_ALERT.len() } else { 0 };
            let total = u16::try_from(header + message.len()).expect("a message fits a packet");
            packet.extend([0x40 | (header / 4) as u8, TRAFFIC_CLASS]);
            packet.extend(total.to_be_bytes());
            packet.extend([0, 0, 0, 0, ttl, PROTOCOL, 0, 0]);
            packet.extend(source.octets());
            packet.extend(destination.octets());
            if has_router_alert {
                packet.extend(ROUTER_ALERT);
            }
            let checksum = internet_checksum(&[&packet]);
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let options: &[u8] = if has_router_alert { &HOP_BY_HOP } else { &[] };
            let length =
                u16::try_from(options.len() + message.len()).expect("a message fits a packet");
            packet.extend([0x60 | TRAFFIC_CLASS >> 4, 0, 0, 0]);
            packet.extend(length.to_be_bytes());
            packet.extend([if has_router_alert { 0 } else { PROTOCOL }, ttl]);
            packet.extend(source.octets());
            packet.extend(destination.octets());
            packet.extend(options);
        }
        _ => panic!("source and destination are of two IP versions"),
    }
    packet.extend(message);
    packet
}

/// The message in an IP packet, and its envelope.
///
/// # Errors
/// If it holds none.
pub fn read(packet: &[u8]) -> Result<(Envelope, &[u8]), PacketError> {
    match packet.first().map(|first| first >> 4) {
        Some(4) => read_ipv4(packet),
        Some(6) => read_ipv6(packet),
        _ => Err(PacketError::Cut),
    }
}

fn address<const N: usize>(packet: &[u8], at: usize) -> Result<[u8; N], PacketError> {
    packet.get(at..).and_then(|rest| rest.first_chunk()).copied().ok_or(PacketError::Cut)
}

fn read_ipv4(packet: &[u8]) -> Result<(Envelope, &[u8]), PacketError> {
    let header: [u8; IPV4_BYTES] = address(packet, 0)?;
    let header_bytes = usize::from(header[0] & 0x0f) * 4;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let message = packet.get(header_bytes.max(IPV4_BYTES)..total).ok_or(PacketError::Cut)?;
    if header_bytes < IPV4_BYTES {
        return Err(PacketError::Cut);
    }
    // More fragments, or an offset.
    if header[9] != PROTOCOL || header[6] & 0x3f != 0 || header[7] != 0 {
        return Err(PacketError::Protocol);
    }
    if internet_checksum(&[&packet[..header_bytes]]) != 0 {
        return Err(PacketError::Checksum);
    }
    let envelope = Envelope {
        source: IpAddr::V4(address::<4>(packet, 12)?.into()),
        destination: IpAddr::V4(address::<4>(packet, 16)?.into()),
        ttl: header[8],
        has_router_alert: packet[IPV4_BYTES..header_bytes].starts_with(&ROUTER_ALERT),
    };
    Ok((envelope, message))
}

fn read_ipv6(packet: &[u8]) -> Result<(Envelope, &[u8]), PacketError> {
    let header: [u8; IPV6_BYTES] = address(packet, 0)?;
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let mut message = packet.get(IPV6_BYTES..IPV6_BYTES + length).ok_or(PacketError::Cut)?;
    let mut protocol = header[6];
    let mut has_router_alert = false;
    if protocol == 0 {
        let [next, words, ..] = address::<8>(message, 0)?;
        let bytes = 8 * (usize::from(words) + 1);
        let (options, behind) = message.split_at_checked(bytes).ok_or(PacketError::Cut)?;
        has_router_alert = options[2..].windows(4).any(|option| option == &HOP_BY_HOP[2..6]);
        (protocol, message) = (next, behind);
    }
    if protocol != PROTOCOL {
        return Err(PacketError::Protocol);
    }
    let envelope = Envelope {
        source: IpAddr::V6(address::<16>(packet, 8)?.into()),
        destination: IpAddr::V6(address::<16>(packet, 24)?.into()),
        ttl: header[7],
        has_router_alert,
    };
    Ok((envelope, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn a_packet_round_trips_with_its_message() {
        let four = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)].map(IpAddr::V4);
        let six = [Ipv6Addr::LOCALHOST, Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2)];
        for [source, destination] in [four, six.map(IpAddr::V6)] {
            for has_router_alert in [false, true] {
                let envelope = Envelope { source, destination, ttl: 63, has_router_alert };
                let packet = write(&envelope, b"message.");
                assert_eq!(read(&packet), Ok((envelope, &b"message."[..])));
                for length in 0..packet.len() {
                    assert_eq!(read(&packet[..length]), Err(PacketError::Cut), "{length}");
                }
            }
        }
        let envelope =
            Envelope { source: four[0], destination: four[1], ttl: 63, has_router_alert: false };
        let mut packet = write(&envelope, b"message.");
        packet[8] = 1;
        assert_eq!(read(&packet), Err(PacketError::Checksum));
        packet[7] = 1;
        assert_eq!(read(&packet), Err(PacketError::Protocol), "a fragment");
    }
}
