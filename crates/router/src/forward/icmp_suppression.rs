//! What no ICMP error may ever answer, lest errors breed errors.
//!
//! RFC 1812, 4.3.2.7: ICMP errors; packets that failed the header checks; packets to a broadcast or
//! multicast address of IP or of the link; sources that are not one host; fragments but the first.
//! RFC 4443, 2.4 (e), has the same rules for IPv6 with two exceptions: Packet Too Big, and the error
//! for an unknown option that demands one, may answer multicast; path MTU discovery needs the first.
//!
//! An ICMP message of an unknown type may be an error of tomorrow. IPv4 has no bit that distinguishes
//! errors from queries, so only known queries and replies are answered. In IPv6 the upper bit of the
//! type does; redirects are informational by it, and are not answered either (e.2). Later fragments
//! of an IPv6 packet may be answered, but not when what they carry is ICMPv6: its type is in another
//! fragment.
//!
//! Whether an address is the broadcast address of a network attached to the router depends on its
//! ports, so [`Arrival`] brings it along.

use nilometer_wire::checksum::internet_checksum;

use super::martian::{Martian, MartianFilter};
use super::problem::Problem;
use super::{double_word, ipv4_extent, word};
use crate::header::{AnyKey, Header, LATER_FRAGMENT, protocol};

/// What the pipeline knows of a packet's arrival that is not in the packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// It came as a broadcast or multicast frame.
    pub by_link_broadcast: bool,
    /// Its destination is the broadcast address of an attached network.
    pub to_broadcast: bool,
    /// Its source is the broadcast address of an attached network, or an anycast address.
    pub from_broadcast: bool,
}

/// Why no error is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Suppression {
    /// The packet failed the checks of its header.
    Unsound,
    /// It is an ICMP error, or may be one.
    IcmpError,
    /// It was sent to many at the link.
    LinkBroadcast,
    /// It was sent to many at IP.
    Broadcast,
    /// Its source is not one host.
    BadSource,
    /// A fragment other than the first.
    LaterFragment,
    /// This version of IP has no such message.
    OtherVersion,
    /// It is no request that the router answers, or its settings forbid it.
    Unwanted,
    /// There is no route to its sender, or no source address.
    NoWay,
}

/// The number of reasons.
pub const SUPPRESSIONS: usize = 9;

impl Arrival {
    /// Why no ICMP error may answer the IPv4 packet `original`, if none may.
    pub fn suppression_ipv4(&self, original: &[u8]) -> Option<Suppression> {
        let Some((header_bytes, total_bytes)) = ipv4_extent(original) else {
            return Some(Suppression::Unsound);
        };
        if internet_checksum(&[&original[..header_bytes]]) != 0 {
            return Some(Suppression::Unsound);
        }
        let (source, destination) = (double_word(original, 12), double_word(original, 16));
        if word(original, 6) & 0x1fff != 0 {
            return Some(Suppression::LaterFragment);
        }
        if self.by_link_broadcast {
            return Some(Suppression::LinkBroadcast);
        }
        if self.to_broadcast || destination >> 28 == 0xe || destination == u32::MAX {
            return Some(Suppression::Broadcast);
        }
        if self.from_broadcast || is_no_host(MartianFilter::Standard.source_ipv4(source)) {
            return Some(Suppression::BadSource);
        }
        let kind = original[header_bytes..total_bytes].first();
        let is_icmp = original[9] == protocol::ICMP;
        (is_icmp && !kind.is_some_and(|kind| is_query(*kind))).then_some(Suppression::IcmpError)
    }

    /// Why no ICMPv6 error may report `problem` with the IPv6 packet `original`; nothing if one may.
    pub fn suppression_ipv6(&self, original: &[u8], problem: Problem) -> Option<Suppression> {
        let Ok(header) = Header::read_ipv6(original) else { return Some(Suppression::Unsound) };
        let AnyKey::V6(key) = header.key else { return Some(Suppression::OtherVersion) };
        let may_answer_many = matches!(problem, Problem::TooBig { .. } | Problem::Option { .. });
        if self.by_link_broadcast && !may_answer_many {
            return Some(Suppression::LinkBroadcast);
        }
        if key.destination >> 120 == 0xff && !may_answer_many {
            return Some(Suppression::Broadcast);
        }
        if self.from_broadcast || is_no_host(MartianFilter::Standard.source_ipv6(key.source)) {
            return Some(Suppression::BadSource);
        }
        if key.protocol != protocol::ICMPV6 {
            return None;
        }
        let kind = original[..usize::from(header.ip_bytes)].get(usize::from(header.transport_at));
        let may_answer = header.notes & LATER_FRAGMENT == 0
            && kind.is_some_and(|kind| *kind >= 128 && *kind != REDIRECT_V6);
        (!may_answer).then_some(Suppression::IcmpError)
    }
}

/// Whether a source of this kind is not one host. A link-local one is, and its link is where the answer
/// goes.
fn is_no_host(kind: Option<Martian>) -> bool {
    kind.is_some_and(|kind| kind != Martian::LinkLocal)
}

const REDIRECT_V6: u8 = 137;

/// Whether an ICMP message of this type is known not to be an error: echo, router discovery,
/// timestamp, information, address mask, and extended echo (RFC 8335).
fn is_query(kind: u8) -> bool {
    matches!(kind, 0 | 8..=10 | 13..=18 | 42 | 43)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward::fragment::sum_header;
    use alloc::vec::Vec;
    use core::net::IpAddr;
    use nilometer_wire::build;

    const TOO_BIG: Problem = Problem::TooBig { mtu_bytes: 1400 };

    fn udp(from: &str, to: &str) -> Vec<u8> {
        let [from, to] = [from, to].map(|text| text.parse::<IpAddr>().unwrap());
        build::udp((from, 7).into(), (to, 9).into(), b"a datagram")
    }

    fn icmp(from: &str, to: &str, kind: u8) -> Vec<u8> {
        build::icmp(from.parse().unwrap(), to.parse().unwrap(), kind, 0, &[0; 40])
    }

    #[test]
    fn icmp_errors_are_never_answered() {
        for kind in 0..=u8::MAX {
            let packet = icmp("198.18.0.1", "198.19.0.1", kind);
            let suppression = Arrival::default().suppression_ipv4(&packet);
            assert_eq!(suppression.is_none(), is_query(kind), "type {kind}");
            let packet = icmp("fd00::1", "fd00:1::1", kind);
            let suppression = Arrival::default().suppression_ipv6(&packet, TOO_BIG);
            assert_eq!(suppression.is_none(), kind >= 128 && kind != 137, "ICMPv6 type {kind}");
        }
        for error in [3, 4, 5, 11, 12] {
            assert!(!is_query(error));
        }
        let mut bare = icmp("198.18.0.1", "198.19.0.1", 8);
        bare.truncate(20);
        bare[3] = 20;
        sum_header(&mut bare);
        assert_eq!(Arrival::default().suppression_ipv4(&bare), Some(Suppression::IcmpError));
    }

    #[test]
    fn broadcasts_and_multicasts_are_not_answered() {
        let one = udp("198.18.0.1", "198.19.0.1");
        let answered = Arrival::default();
        assert_eq!(answered.suppression_ipv4(&one), None);
        let by_link = Arrival { by_link_broadcast: true, ..answered };
        assert_eq!(by_link.suppression_ipv4(&one), Some(Suppression::LinkBroadcast));
        let to_many = Arrival { to_broadcast: true, ..answered };
        assert_eq!(to_many.suppression_ipv4(&one), Some(Suppression::Broadcast));
        for group in ["224.0.0.5", "239.255.255.255", "255.255.255.255"] {
            let suppression = answered.suppression_ipv4(&udp("198.18.0.1", group));
            assert_eq!(suppression, Some(Suppression::Broadcast), "{group}");
        }
    }

    #[test]
    fn ipv6_multicast_is_answered_only_for_path_mtu_and_options() {
        let (one, many) = (udp("fd00::1", "fd00:1::1"), udp("fd00::1", "ff0e::1"));
        let by_link = Arrival { by_link_broadcast: true, ..Arrival::default() };
        for (problem, is_heard) in [
            (Problem::HopLimit, false),
            (Problem::NoRoute, false),
            (Problem::Parameter { pointer: 4 }, false),
            (TOO_BIG, true),
            (Problem::Option { pointer: 42 }, true),
        ] {
            let is_sent =
                |arrival: Arrival, packet| arrival.suppression_ipv6(packet, problem).is_none();
            assert!(is_sent(Arrival::default(), &one));
            assert_eq!(is_sent(Arrival::default(), &many), is_heard, "{problem:?}");
            assert_eq!(is_sent(by_link, &one), is_heard, "{problem:?}");
        }
    }

    #[test]
    fn a_source_that_is_not_one_host_is_not_answered() {
        for source in ["0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.1", "240.0.0.1"] {
            let suppression = Arrival::default().suppression_ipv4(&udp(source, "198.19.0.1"));
            assert_eq!(suppression, Some(Suppression::BadSource), "{source}");
        }
        for source in ["::", "::1", "ff02::1", "::ffff:198.18.0.1"] {
            let suppression = Arrival::default().suppression_ipv6(&udp(source, "fd00::1"), TOO_BIG);
            assert_eq!(suppression, Some(Suppression::BadSource), "{source}");
        }
        let arrival = Arrival { from_broadcast: true, ..Arrival::default() };
        let suppression = arrival.suppression_ipv4(&udp("198.18.0.255", "198.19.0.1"));
        assert_eq!(suppression, Some(Suppression::BadSource));
        assert_eq!(Arrival::default().suppression_ipv6(&udp("fe80::1", "fd00::1"), TOO_BIG), None);
        assert_eq!(Arrival::default().suppression_ipv4(&udp("169.254.3.9", "169.254.3.1")), None);
    }

    #[test]
    fn later_fragments_are_not_answered() {
        let mut packet = udp("198.18.0.1", "198.19.0.1");
        for (flags, suppression) in [(0x2000u16, None), (1, Some(Suppression::LaterFragment))] {
            packet[6..8].copy_from_slice(&flags.to_be_bytes());
            sum_header(&mut packet);
            assert_eq!(Arrival::default().suppression_ipv4(&packet), suppression);
        }
        let [from, to] = ["fd00::1", "fd00:1::1"].map(|text| text.parse::<IpAddr>().unwrap());
        for (inside, suppression) in [(17, None), (58, Some(Suppression::IcmpError))] {
            let later = [inside, 0, 0, 8, 0, 0, 0, 1, 128, 0, 0, 0, 0, 0, 0, 0];
            let packet = build::ip_packet(from, to, protocol::FRAGMENT, later.to_vec());
            assert_eq!(Arrival::default().suppression_ipv6(&packet, TOO_BIG), suppression);
        }
    }

    #[test]
    fn truncated_packets_are_not_answered() {
        let packet = udp("198.18.0.1", "198.19.0.1");
        for end in 0..packet.len() {
            assert_eq!(
                Arrival::default().suppression_ipv4(&packet[..end]),
                Some(Suppression::Unsound)
            );
        }
        let packet = udp("fd00::1", "fd00:1::1");
        for end in 0..packet.len() {
            let suppression = Arrival::default().suppression_ipv6(&packet[..end], TOO_BIG);
            assert_eq!(suppression, Some(Suppression::Unsound));
        }
    }
}
