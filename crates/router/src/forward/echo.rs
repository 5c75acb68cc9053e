//! Echo: the answer to a ping of one of the router's own addresses.
//!
//! RFC 1812, 4.3.3.6: all data comes back, from the address that was asked, with the request's type
//! of service (4.3.2.5). Record route and timestamp options of the request continue recording in the
//! reply; a source route that has come to its end is turned around: its last entry becomes the
//! destination, the others follow backwards, and the sender is the last. Requests to broadcast and
//! multicast addresses are not answered in IPv4, as the clause allows; in IPv6 they are, from a
//! unicast address (RFC 4443, 4.2). A fragmented request must be reassembled first.
//!
//! Replies may be larger than the next link takes; they do not say "don't fragment".

use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_wire::checksum::{Checksum, internet_checksum};

use super::fragment::sum_header;
use super::icmp::{Origin, Problem, finish_icmpv6, ipv4_header, ipv6_header};
use super::icmp_suppression::{Arrival, Suppression};
use super::options::{Options, SourceRouting, Visit};
use super::{double_word, ipv4_extent, word};
use crate::header::{AnyKey, FRAGMENT, Header, protocol};

const ECHO_V4: u8 = 8;
const ECHO_REPLY_V4: u8 = 0;
const ECHO_V6: u8 = 128;
const ECHO_REPLY_V6: u8 = 129;
const ICMP_BYTES: usize = 8;
/// DSCP, without ECN's two bits.
const CLASS: u8 = 0xfc;

/// The reply to the whole IPv4 packet `request`; `visit` fills in its options.
///
/// # Errors
/// Why there is none.
pub fn reply_ipv4(
    request: &[u8],
    arrival: Arrival,
    origin: Origin<u32>,
    visit: Visit<'_>,
) -> Result<Vec<u8>, Suppression> {
    arrival.suppression_ipv4(request).map_or(Ok(()), Err)?;
    let (header_bytes, total_bytes) = ipv4_extent(request).ok_or(Suppression::Unsound)?;
    let message = &request[header_bytes..total_bytes];
    let is_request = request[9] == protocol::ICMP
        && word(request, 6) & 0x2000 == 0
        && message.len() >= ICMP_BYTES
        && message[0] == ECHO_V4;
    if !is_request {
        return Err(Suppression::Unwanted);
    }
    if internet_checksum(&[message]) != 0 {
        return Err(Suppression::Unsound);
    }
    let options =
        Options::read(request, SourceRouting::Follow).map_err(|_| Suppression::Unsound)?;
    let mut packet = ipv4_header(request[1] & CLASS, origin, &request[12..16]);
    push_options(&mut packet, request, &options)?;
    packet[0] = 0x40 | (packet.len() / 4) as u8;
    let message_at = packet.len();
    packet.extend(message);
    packet[message_at] = ECHO_REPLY_V4;
    let total_bytes = u16::try_from(packet.len()).map_err(|_| Suppression::Unsound)?;
    packet[2..4].copy_from_slice(&total_bytes.to_be_bytes());
    if let Ok(in_reply) = Options::read(&packet, SourceRouting::Follow) {
        in_reply.fill(&mut packet, visit);
    }
    sum_header(&mut packet);
    packet[message_at + 2..message_at + 4].fill(0);
    let checksum = internet_checksum(&[&packet[message_at..]]);
    packet[message_at + 2..message_at + 4].copy_from_slice(&checksum.to_be_bytes());
    Ok(packet)
}

/// The address that the reply to the IPv4 packet `request` goes to first: the last of a source route that
/// has come to its end, else the sender.
pub fn reply_goes_to(request: &[u8]) -> u32 {
    let route = Options::read(request, SourceRouting::Follow).ok().and_then(|it| it.source_route);
    let hops = |at: usize| (usize::from(request[at + 1]) - 3) / 4;
    match route.map(|route| (route.at, hops(route.at))) {
        None | Some((_, 0)) => double_word(request, 12),
        Some((at, hops)) => double_word(request, at + 3 + (hops - 1) * 4),
    }
}

/// Appends the options that come back with a reply, the source route turned around, and pads them.
fn push_options(
    packet: &mut Vec<u8>,
    request: &[u8],
    options: &Options,
) -> Result<(), Suppression> {
    let option = |at: usize| &request[at..at + usize::from(request[at + 1])];
    if let Some(route) = options.source_route {
        if route.next.is_some() {
            return Err(Suppression::Unwanted); // it is to be forwarded, not answered
        }
        let there = option(route.at);
        let hops = (there.len() - 3) / 4;
        let hop = |index: usize| double_word(there, 3 + index * 4);
        let source = double_word(request, 12);
        packet.extend([there[0], 3 + 4 * hops as u8, 4]);
        for index in (1..hops).rev() {
            packet.extend(hop(index - 1).to_be_bytes());
        }
        if hops > 0 {
            packet.extend(source.to_be_bytes());
            let first = hop(hops - 1).to_be_bytes();
            packet[16..20].copy_from_slice(&first);
        }
    }
    for at in [options.record_route_at, options.timestamp_at].into_iter().flatten() {
        packet.extend(option(at));
    }
    packet.resize(packet.len().next_multiple_of(4), 0);
    Ok(())
}

/// The reply to the whole IPv6 packet `request`.
///
/// # Errors
/// Why there is none.
pub fn reply_ipv6(
    request: &[u8],
    arrival: Arrival,
    origin: Origin<u128>,
) -> Result<Vec<u8>, Suppression> {
    // Like Packet Too Big, an echo reply may answer a multicast.
    arrival.suppression_ipv6(request, Problem::TooBig { mtu_bytes: 0 }).map_or(Ok(()), Err)?;
    let header = Header::read_ipv6(request).map_err(|_| Suppression::Unsound)?;
    let AnyKey::V6(key) = header.key else { return Err(Suppression::OtherVersion) };
    let message = &request[usize::from(header.transport_at)..usize::from(header.ip_bytes)];
    let is_request = key.protocol == protocol::ICMPV6
        && header.notes & FRAGMENT == 0
        && message.len() >= ICMP_BYTES
        && message[0] == ECHO_V6;
    if !is_request {
        return Err(Suppression::Unwanted);
    }
    let [from, to] = [key.source, key.destination].map(|a| IpAddr::from(a.to_be_bytes()));
    let mut checksum = Checksum::new();
    checksum.add_pseudo_header(from, to, protocol::ICMPV6, message.len() as u32);
    checksum.add(message);
    if checksum.finish() != 0 {
        return Err(Suppression::Unsound);
    }
    let mut packet = ipv6_header(header.traffic_class & CLASS, origin, &request[8..24]);
    packet.push(ECHO_REPLY_V6);
    packet.extend(&message[1..]);
    finish_icmpv6(&mut packet);
    Ok(packet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use nilometer_wire::build;
    use nilometer_wire::checksum::{ipv4_header_checksum_ok, transport_checksum_ok};

    const HOST: u32 = 0xc612_0001;
    const ROUTER: u32 = 0xc612_00fe;
    const ORIGIN: Origin<u32> = Origin { source: ROUTER, hop_limit: 64, identification: 7 };
    const VISIT: Visit<'_> = Visit { outgoing: ROUTER, stamp: 12_345, is_own: &|a| a == ROUTER };

    fn request(options: &[u8], data_bytes: usize) -> Vec<u8> {
        let data: Vec<u8> = (0..data_bytes).map(|n| n as u8).collect();
        let body = [&[0x12, 0x34, 0, 9], &data[..]].concat();
        let [from, to] = [HOST, ROUTER].map(|a| IpAddr::from(a.to_be_bytes()));
        let plain = build::icmp(from, to, 8, 0, &body);
        let mut packet = plain[..20].to_vec();
        packet.extend(options);
        packet.resize(packet.len().next_multiple_of(4), 0);
        packet[0] = 0x40 | (packet.len() / 4) as u8;
        packet[1] = 0xb9; // expedited forwarding, ECT(1)
        packet.extend(&plain[20..]);
        let total_bytes = packet.len() as u16;
        packet[2..4].copy_from_slice(&total_bytes.to_be_bytes());
        packet[6..8].fill(0);
        sum_header(&mut packet);
        packet
    }

    fn reply(request: &[u8]) -> Result<Vec<u8>, Suppression> {
        reply_ipv4(request, Arrival::default(), ORIGIN, VISIT)
    }

    #[test]
    fn all_data_are_echoed_from_the_address_that_was_pinged() {
        for data_bytes in [0, 1, 56, 57, 1472, 9000, 65_507] {
            let request = request(&[], data_bytes);
            let reply = reply(&request).expect("a reply");
            assert_eq!(reply[20], 0);
            assert_eq!(reply[24..], request[24..]);
            assert_eq!((double_word(&reply, 12), double_word(&reply, 16)), (ROUTER, HOST));
            assert_eq!((reply[1], reply[8], word(&reply, 6)), (0xb8, 64, 0));
            assert_eq!(ipv4_header_checksum_ok(&reply), Some(true));
            assert_eq!(transport_checksum_ok(&reply), Some(true));
        }
    }

    #[test]
    fn options_go_on_recording_in_the_reply() {
        let record = [7, 11, 8, 198, 18, 5, 5, 0, 0, 0, 0];
        let stamp = [68, 12, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        let request = request(&[&record[..], &[1], &stamp[..]].concat(), 8);
        let reply = reply(&request).expect("a reply");
        assert_eq!(reply[20..31], [7, 11, 12, 198, 18, 5, 5, 198, 18, 0, 254]);
        assert_eq!(reply[31..43], [68, 12, 13, 1, 198, 18, 0, 254, 0, 0, 0x30, 0x39]);
        assert_eq!(ipv4_header_checksum_ok(&reply), Some(true));
    }

    #[test]
    fn a_source_route_is_turned_around() {
        // Through 1.0.0.1, 2.0.0.2 and 3.0.0.3, in this order, as they recorded themselves.
        let route = [131, 15, 16, 1, 0, 0, 1, 2, 0, 0, 2, 3, 0, 0, 3];
        let reply = reply(&request(&route, 8)).expect("a reply");
        assert_eq!(reply[16..20], [3, 0, 0, 3]);
        assert_eq!(reply[20..35], [131, 15, 4, 2, 0, 0, 2, 1, 0, 0, 1, 198, 18, 0, 1]);
        assert_eq!(transport_checksum_ok(&reply), Some(true));
        let empty = super::tests::reply(&request(&[137, 3, 4], 8)).expect("a reply");
        assert_eq!((double_word(&empty, 16), &empty[20..23]), (HOST, &[137, 3, 4][..]));
        let underway = [131, 7, 4, 198, 18, 9, 9];
        assert_eq!(super::tests::reply(&request(&underway, 8)), Err(Suppression::Unwanted));
    }

    #[test]
    fn malformed_echo_requests_are_not_answered() {
        let sound = request(&[], 8);
        let changed = |at: usize, value: u8| {
            let mut packet = sound.clone();
            packet[at] = value;
            sum_header(&mut packet);
            reply(&packet)
        };
        assert_eq!(changed(24, 0xff), Err(Suppression::Unsound), "the checksum");
        for kind in (0..=u8::MAX).filter(|kind| *kind != ECHO_V4) {
            let suppression = changed(20, kind).expect_err("redirects, information, all but echo");
            assert!(
                matches!(suppression, Suppression::Unwanted | Suppression::IcmpError),
                "type {kind}"
            );
        }
        assert_eq!(changed(9, 17), Err(Suppression::Unwanted), "UDP");
        assert_eq!(changed(6, 0x20), Err(Suppression::Unwanted), "a first fragment");
        assert_eq!(changed(12, 127), Err(Suppression::BadSource));
        assert_eq!(changed(16, 224), Err(Suppression::Broadcast));
        let arrival = Arrival { to_broadcast: true, ..Arrival::default() };
        let suppression = reply_ipv4(&sound, arrival, ORIGIN, VISIT);
        assert_eq!(suppression, Err(Suppression::Broadcast));
    }

    #[test]
    fn ipv6_requests_are_answered_too() {
        let origin = Origin { source: 0xfd00 << 112 | 9, hop_limit: 64, identification: 0 };
        for to in ["fd00::9", "ff02::1"] {
            for data_bytes in [0, 1, 1232, 9000] {
                let body = [&[1, 2, 3, 4], &vec![6; data_bytes][..]].concat();
                let (from, to) = ("fd00::1".parse().unwrap(), to.parse().unwrap());
                let mut request = build::icmp(from, to, 128, 0, &body);
                let reply = reply_ipv6(&request, Arrival::default(), origin).expect("a reply");
                assert_eq!((reply[40], &reply[44..]), (129, &request[44..]));
                assert_eq!(reply[24..40], request[8..24]);
                assert_eq!(transport_checksum_ok(&reply), Some(true));
                request[45] ^= 1;
                let suppression = reply_ipv6(&request, Arrival::default(), origin);
                assert_eq!(suppression, Err(Suppression::Unsound));
            }
        }
    }
}
