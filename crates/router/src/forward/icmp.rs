//! ICMP error messages: what a router sends to the source of a packet that it could not forward.
//!
//! One [`Problem`] has its numbers in both versions: RFC 792 with RFC 1812, 4.3.3 and 5.2.7, and
//! RFC 4443 with the registry. A message quotes the packet as it came in, before its TTL fell or its
//! options were filled: the checks here and in `hop` leave a packet they refuse as it was. It quotes
//! as much as keeps the message within 576 bytes (RFC 1812, 4.3.2.3), or within IPv6's least MTU of
//! 1280 (RFC 4443, 2.4 c).
//!
//! The type of service of an IPv4 error is that of its cause with precedence 6, internetwork control
//! (4.3.2.5). The two bits that have become ECN's since are left zero: an error is not
//! ECN-capable (RFC 3168, 6.1.1 and 23). An IPv6 error is of the same class, CS6.
//!
//! What must never be answered is refused here, not only by the caller ([`super::icmp_suppression`]); how
//! often is for [`super::limit`]. IPv6 redirects belong to neighbour discovery (RFC 4861) and are not made
//! here. Source quench is not sent (RFC 6633, against 4.3.3.3's mere discouragement), nor are the
//! codes for networks and hosts by type of service, because routing here does not depend on it.

use alloc::vec::Vec;
use core::net::Ipv6Addr;

use nilometer_wire::checksum::{Checksum, internet_checksum};

use super::fragment::sum_header;
use super::icmp_suppression::{Arrival, Suppression};
use super::problem::Numbers;
use super::{ipv4_extent, ipv6_extent};
use crate::header::{IPV6_BYTES, protocol};

pub use super::problem::Problem;

/// The longest IPv4 error message, IP header included.
pub const IPV4_ERROR_BYTES: usize = 576;
/// The longest ICMPv6 error message, IP header included.
pub const IPV6_ERROR_BYTES: usize = 1280;
/// Bytes of an ICMP error before what it quotes.
const ICMP_BYTES: usize = 8;
/// Precedence 6, or class selector 6.
const INTERNETWORK_CONTROL: u8 = 0xc0;

/// The source of a message: what a router writes into the IP header of its own packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin<A> {
    /// An address of the port by which the message leaves (RFC 1812, 4.3.2.4), for a redirect one
    /// of the network it is sent to (5.2.7.2).
    pub source: A,
    /// TTL or hop limit ([`super::hop::ORIGINATED`]).
    pub hop_limit: u8,
    /// Identification of the IPv4 header; IPv6 has none.
    pub identification: u16,
}

/// The IPv4 packet that informs the sender of `original` of a problem.
///
/// # Errors
/// [`Suppression`], when no error may be sent.
pub fn error_ipv4(
    problem: Problem,
    original: &[u8],
    arrival: Arrival,
    origin: Origin<u32>,
) -> Result<Vec<u8>, Suppression> {
    arrival.suppression_ipv4(original).map_or(Ok(()), Err)?;
    let (_, total_bytes) = ipv4_extent(original).ok_or(Suppression::Unsound)?;
    let quote = &original[..total_bytes.min(IPV4_ERROR_BYTES - 20 - ICMP_BYTES)];
    let traffic_class = INTERNETWORK_CONTROL | original[1] & 0x1c;
    let mut packet = ipv4_header(traffic_class, origin, &original[12..16]);
    push_message(&mut packet, problem.ipv4(), quote);
    let total_bytes = packet.len() as u16;
    packet[2..4].copy_from_slice(&total_bytes.to_be_bytes());
    sum_header(&mut packet);
    let checksum = internet_checksum(&[&packet[20..]]);
    packet[22..24].copy_from_slice(&checksum.to_be_bytes());
    Ok(packet)
}

/// The IPv6 packet that informs the sender of `original` of a problem.
///
/// # Errors
/// [`Suppression`], when no error may be sent, or only in IPv4.
pub fn error_ipv6(
    problem: Problem,
    original: &[u8],
    arrival: Arrival,
    origin: Origin<u128>,
) -> Result<Vec<u8>, Suppression> {
    arrival.suppression_ipv6(original, problem).map_or(Ok(()), Err)?;
    let numbers = problem.ipv6().ok_or(Suppression::OtherVersion)?;
    let total_bytes = ipv6_extent(original).ok_or(Suppression::Unsound)?;
    let quote = &original[..total_bytes.min(IPV6_ERROR_BYTES - IPV6_BYTES - ICMP_BYTES)];
    let mut packet = ipv6_header(INTERNETWORK_CONTROL, origin, &original[8..24]);
    push_message(&mut packet, numbers, quote);
    finish_icmpv6(&mut packet);
    Ok(packet)
}

/// An IPv4 header of twenty bytes around ICMP, without length and checksum.
pub(super) fn ipv4_header(traffic_class: u8, origin: Origin<u32>, destination: &[u8]) -> Vec<u8> {
    let [high, low] = origin.identification.to_be_bytes();
    let mut packet = Vec::with_capacity(IPV4_ERROR_BYTES);
    packet.extend([0x45, traffic_class, 0, 0, high, low, 0, 0]);
    packet.extend([origin.hop_limit, protocol::ICMP, 0, 0]);
    packet.extend(origin.source.to_be_bytes());
    packet.extend(destination);
    packet
}

/// An IPv6 header around ICMPv6, without length.
pub(super) fn ipv6_header(traffic_class: u8, origin: Origin<u128>, destination: &[u8]) -> Vec<u8> {
    let mut packet = Vec::with_capacity(IPV6_ERROR_BYTES);
    packet.extend([0x60 | traffic_class >> 4, traffic_class << 4, 0, 0]);
    packet.extend([0, 0, protocol::ICMPV6, origin.hop_limit]);
    packet.extend(origin.source.to_be_bytes());
    packet.extend(destination);
    packet
}

/// Fills in the length and the ICMPv6 checksum of a packet without extension headers.
pub(super) fn finish_icmpv6(packet: &mut [u8]) {
    let length = (packet.len() - IPV6_BYTES) as u32;
    packet[4..6].copy_from_slice(&(length as u16).to_be_bytes());
    packet[42..44].fill(0);
    let address = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&packet[at..at + 16]);
        Ipv6Addr::from(octets).into()
    };
    let mut checksum = Checksum::new();
    checksum.add_pseudo_header(address(8), address(24), protocol::ICMPV6, length);
    checksum.add(&packet[IPV6_BYTES..]);
    packet[42..44].copy_from_slice(&checksum.finish().to_be_bytes());
}

fn push_message(packet: &mut Vec<u8>, numbers: Numbers, quote: &[u8]) {
    packet.extend([numbers.kind, numbers.code, 0, 0]);
    packet.extend(numbers.word.to_be_bytes());
    packet.extend(quote);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward::word;
    use crate::header::Header;
    use alloc::vec;
    use nilometer_wire::build;
    use nilometer_wire::checksum::{ipv4_header_checksum_ok, transport_checksum_ok};

    const ROUTER: Origin<u32> =
        Origin { source: 0xc612_00fe, hop_limit: 64, identification: 0xbeef };
    const ROUTER6: Origin<u128> =
        Origin { source: 0xfd00 << 112 | 0xfe, hop_limit: 64, identification: 0 };

    fn udp4(payload_bytes: usize) -> Vec<u8> {
        let (from, to) = ("198.18.0.1:7", "198.19.0.1:9");
        build::udp(from.parse().unwrap(), to.parse().unwrap(), &vec![5; payload_bytes])
    }

    fn udp6(payload_bytes: usize) -> Vec<u8> {
        let (from, to) = ("[fd00::1]:7", "[fd00:1::1]:9");
        build::udp(from.parse().unwrap(), to.parse().unwrap(), &vec![5; payload_bytes])
    }

    #[test]
    fn every_problem_has_its_registered_numbers() {
        let rows = [
            (Problem::NoRoute, (3, 0, 0), Some((1, 0, 0))),
            (Problem::AddressUnreachable, (3, 1, 0), Some((1, 3, 0))),
            (Problem::ProtocolUnreachable { pointer: 6 }, (3, 2, 0), Some((4, 1, 6))),
            (Problem::PortUnreachable, (3, 3, 0), Some((1, 4, 0))),
            (Problem::TooBig { mtu_bytes: 70_000 }, (3, 4, 65_535), Some((2, 0, 70_000))),
            (Problem::SourceRouteFailed, (3, 5, 0), Some((1, 7, 0))),
            (Problem::Prohibited, (3, 13, 0), Some((1, 1, 0))),
            (Problem::SourcePolicy, (3, 13, 0), Some((1, 5, 0))),
            (Problem::Rejected, (3, 13, 0), Some((1, 6, 0))),
            (Problem::BeyondScope, (3, 13, 0), Some((1, 2, 0))),
            (Problem::HopLimit, (11, 0, 0), Some((3, 0, 0))),
            (Problem::Reassembly, (11, 1, 0), Some((3, 1, 0))),
            (Problem::Parameter { pointer: 22 }, (12, 0, 22 << 24), Some((4, 0, 22))),
            (Problem::Option { pointer: 42 }, (12, 0, 42 << 24), Some((4, 2, 42))),
            (Problem::Redirect { gateway: 9 }, (5, 1, 9), None),
        ];
        for (problem, four, six) in rows {
            let numbers = |(kind, code, word)| Numbers { kind, code, word };
            assert_eq!(problem.ipv4(), numbers(four), "{problem:?}");
            assert_eq!(problem.ipv6(), six.map(numbers), "{problem:?}");
        }
    }

    #[test]
    fn an_ipv4_error_quotes_up_to_576_bytes() {
        for payload_bytes in [0, 1, 519, 520, 521, 1472] {
            let mut original = udp4(payload_bytes);
            let bytes = original.len();
            original.extend([0xee; 9]); // padding of the link is not part of the packet
            let answer =
                error_ipv4(Problem::HopLimit, &original, Arrival::default(), ROUTER).unwrap();
            assert_eq!(answer.len(), (28 + bytes).min(576));
            assert_eq!(answer[28..], original[..bytes.min(548)]);
            assert_eq!(ipv4_header_checksum_ok(&answer), Some(true));
            assert_eq!(transport_checksum_ok(&answer), Some(true));
            assert_eq!(Header::read_ipv4(&answer).unwrap().ip_bytes as usize, answer.len());
        }
    }

    #[test]
    fn an_ipv6_error_quotes_up_to_1280_bytes() {
        for payload_bytes in [0, 1, 1183, 1184, 1185, 1400] {
            let mut original = udp6(payload_bytes);
            let bytes = original.len();
            original.extend([0xee; 9]);
            let problem = Problem::TooBig { mtu_bytes: 1280 };
            let answer = error_ipv6(problem, &original, Arrival::default(), ROUTER6).unwrap();
            assert_eq!(answer.len(), (48 + bytes).min(1280));
            assert_eq!(answer[48..], original[..bytes.min(1232)]);
            assert_eq!(transport_checksum_ok(&answer), Some(true));
            assert_eq!((answer[1] >> 4 | answer[0] << 4, answer[7]), (0xc0, 64));
            assert_eq!(Header::read_ipv6(&answer).unwrap().ip_bytes as usize, answer.len());
        }
    }

    #[test]
    fn an_error_goes_to_the_sender_with_precedence_six() {
        let mut original = udp4(10);
        original[1] = 0b0101_1011; // precedence 2, three bits of type of service, ECN both
        sum_header(&mut original);
        let answer = error_ipv4(Problem::NoRoute, &original, Arrival::default(), ROUTER).unwrap();
        assert_eq!(answer[1], 0b1101_1000);
        assert_eq!(answer[12..16], ROUTER.source.to_be_bytes());
        assert_eq!(answer[16..20], original[12..16]);
        assert_eq!((answer[8], word(&answer, 4)), (64, 0xbeef));
    }

    #[test]
    fn ipv6_redirects_are_made_elsewhere() {
        let problem = Problem::Redirect { gateway: 1 };
        let refused = error_ipv6(problem, &udp6(4), Arrival::default(), ROUTER6);
        assert_eq!(refused, Err(Suppression::OtherVersion));
        let answer = error_ipv4(problem, &udp4(4), Arrival::default(), ROUTER).unwrap();
        assert_eq!(answer[20..28], [5, 1, answer[22], answer[23], 0, 0, 0, 1]);
    }
}
