//! IPv6 extension headers a router answers for: hop-by-hop options and routing headers.
//!
//! Of the extension headers a router on the way reads only the hop-by-hop options, right behind the
//! IPv6 header (RFC 8200, 4.3). An option it does not know says in its two upper bits what to do:
//! pass it over, discard, discard and complain, or complain unless the packet was for many (4.2).
//! Padding and router alert (RFC 2711) are known here; jumbo payloads (RFC 2675) are not, and their
//! type asks to be complained of, which is right on links that carry none.
//!
//! Routing headers are read by whom the packet is addressed to. The router follows none, so one with
//! segments left is a complaint about its type (4.4), type 0 above all: it is deprecated for
//! letting one packet bounce between two routers some eighty times (RFC 5095). On the way, type 0
//! may be filtered ([`type_0_at`]), and other types pass.

use super::icmp::Problem;
use super::{ipv6_extent, word};
use crate::header::{EXTENSIONS_MAX, IPV6_BYTES, protocol};

const PAD_1: u8 = 0;
const PAD_N: u8 = 1;
const ROUTER_ALERT: u8 = 5;

/// What hop-by-hop options ask of a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HopByHop {
    /// Nothing, or to look into the packet.
    Pass {
        /// The value of a router alert (RFC 2711: 0 MLD, 1 RSVP, 2 active networks).
        router_alert: Option<u16>,
    },
    /// To discard the packet, and to report the problem if there is one.
    Discard(Option<Problem>),
}

/// Reads the hop-by-hop options of the IPv6 packet that begins here, if it has any.
pub fn hop_by_hop(packet: &[u8]) -> HopByHop {
    const NOTHING: HopByHop = HopByHop::Pass { router_alert: None };
    let fault = |at: usize| HopByHop::Discard(Some(Problem::Parameter { pointer: at as u16 }));
    let Some(total_bytes) = ipv6_extent(packet) else { return HopByHop::Discard(None) };
    if packet[6] != protocol::HOP_BY_HOP {
        return NOTHING;
    }
    let packet = &packet[..total_bytes];
    let Some(units) = packet.get(IPV6_BYTES + 1) else { return fault(4) };
    let end = IPV6_BYTES + (usize::from(*units) + 1) * 8;
    if end > total_bytes {
        return fault(IPV6_BYTES + 1);
    }
    let mut router_alert = None;
    let mut at = IPV6_BYTES + 2;
    while at < end {
        let kind = packet[at];
        if kind == PAD_1 {
            at += 1;
            continue;
        }
        if at + 1 == end || at + 2 + usize::from(packet[at + 1]) > end {
            return fault((at + 1).min(end - 1));
        }
        let length = usize::from(packet[at + 1]);
        match kind {
            PAD_N => {}
            ROUTER_ALERT if length == 2 && router_alert.is_none() => {
                router_alert = Some(word(packet, at + 2));
            }
            // Of another length, or a second one (RFC 2711, 2.1).
            ROUTER_ALERT => return fault(at + 1),
            _ => {
                let is_for_many = packet[24] == 0xff;
                let complaint = Some(Problem::Option { pointer: at as u16 });
                match kind >> 6 {
                    0 => {}
                    2 => return HopByHop::Discard(complaint),
                    3 if !is_for_many => return HopByHop::Discard(complaint),
                    _ => return HopByHop::Discard(None),
                }
            }
        }
        at += 2 + length;
    }
    HopByHop::Pass { router_alert }
}

/// A routing header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routing {
    /// Its type, as registered.
    pub kind: u8,
    /// How many addresses it still has to visit.
    pub segments_left: u8,
    /// Where its type stands, bytes from the IP header.
    pub kind_at: u16,
}

/// The first routing header of the IPv6 packet that begins here, if it has one before what is cut by
/// fragmentation or hidden by encryption.
pub fn routing(packet: &[u8]) -> Option<Routing> {
    let packet = &packet[..ipv6_extent(packet)?];
    let (mut kind, mut at) = (packet[6], IPV6_BYTES);
    for _ in 0..EXTENSIONS_MAX {
        let &[next, length, third, fourth] = packet.get(at..)?.first_chunk::<4>()?;
        match kind {
            protocol::ROUTING => {
                let kind_at = u16::try_from(at + 2).ok()?;
                return Some(Routing { kind: third, segments_left: fourth, kind_at });
            }
            protocol::HOP_BY_HOP if at == IPV6_BYTES => at += (usize::from(length) + 1) * 8,
            protocol::DESTINATION_OPTIONS => at += (usize::from(length) + 1) * 8,
            protocol::FRAGMENT if u16::from_be_bytes([third, fourth]) & 0xfff8 == 0 => at += 8,
            protocol::AUTHENTICATION => at += (usize::from(length) + 2) * 4,
            _ => return None,
        }
        kind = next;
    }
    None
}

/// Where the field stands that names the protocol of the header at `transport_at`: what a complaint of
/// a protocol that nobody speaks points at (RFC 8200, 4). The headers before it have been read.
pub fn protocol_at(packet: &[u8], transport_at: u16) -> u16 {
    let (mut kind_at, mut at) = (6, IPV6_BYTES);
    while at < usize::from(transport_at) {
        let Some(&[_, length]) = packet.get(at..).and_then(|rest| rest.first_chunk::<2>()) else {
            break;
        };
        let length = usize::from(length);
        let bytes = match packet[kind_at] {
            protocol::FRAGMENT => 8,
            protocol::AUTHENTICATION => (length + 2) * 4,
            _ => (length + 1) * 8,
        };
        (kind_at, at) = (at, at + bytes);
    }
    kind_at as u16
}

/// What is wrong with the routing header of a packet addressed to the router, if it has one that is
/// not at its end.
pub fn unfollowed_route(packet: &[u8]) -> Option<Problem> {
    let routing = routing(packet).filter(|routing| routing.segments_left > 0)?;
    Some(Problem::Parameter { pointer: routing.kind_at })
}

/// Where the type of a routing header of type 0 with segments left stands, if there is one: what a
/// filter on the way may discard (RFC 5095, 4.2).
pub fn type_0_at(packet: &[u8]) -> Option<u16> {
    let routing = routing(packet)?;
    (routing.kind == 0 && routing.segments_left > 0).then_some(routing.kind_at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use core::net::IpAddr;
    use nilometer_wire::build;

    const NOTHING: HopByHop = HopByHop::Pass { router_alert: None };

    fn packet(to: &str, first: u8, payload: &[u8]) -> Vec<u8> {
        let [from, to] = ["fd00::1", to].map(|text| text.parse::<IpAddr>().unwrap());
        build::ip_packet(from, to, first, payload.to_vec())
    }

    /// A packet with these hop-by-hop options, padded to eight bytes with single ones.
    fn with_options(to: &str, options: &[u8]) -> Vec<u8> {
        let mut payload = [&[17, 0], options].concat();
        payload.resize(payload.len().next_multiple_of(8), PAD_1);
        payload[1] = (payload.len() / 8 - 1) as u8;
        payload.extend([0; 8]);
        packet(to, protocol::HOP_BY_HOP, &payload)
    }

    #[test]
    fn an_unknown_option_says_what_to_do() {
        let complaint = |at| HopByHop::Discard(Some(Problem::Option { pointer: at }));
        for kind in 6..=u8::MAX {
            let one = hop_by_hop(&with_options("fd00::2", &[1, 1, 0, kind, 2, 9, 9]));
            let many = hop_by_hop(&with_options("ff0e::2", &[1, 1, 0, kind, 2, 9, 9]));
            let expected = match kind >> 6 {
                0 => (NOTHING, NOTHING),
                1 => (HopByHop::Discard(None), HopByHop::Discard(None)),
                2 => (complaint(45), complaint(45)),
                _ => (complaint(45), HopByHop::Discard(None)),
            };
            assert_eq!((one, many), expected, "option {kind}");
        }
    }

    #[test]
    fn padding_passes_and_an_alert_is_heard() {
        assert_eq!(hop_by_hop(&packet("fd00::2", 17, &[0; 8])), NOTHING);
        assert_eq!(hop_by_hop(&with_options("fd00::2", &[1, 4, 0, 0, 0, 0])), NOTHING);
        let alert = with_options("fd00::2", &[5, 2, 0, 1, 1, 0]);
        assert_eq!(hop_by_hop(&alert), HopByHop::Pass { router_alert: Some(1) });
    }

    #[test]
    fn broken_options_are_pointed_at() {
        let fault = |at| HopByHop::Discard(Some(Problem::Parameter { pointer: at }));
        let beyond = with_options("fd00::2", &[1, 0, 30, 5, 0, 0]);
        assert_eq!(hop_by_hop(&beyond), fault(45), "its data ends behind the header");
        let cut = with_options("fd00::2", &[1, 3, 0, 0, 0, 30]);
        assert_eq!(hop_by_hop(&cut), fault(47), "its length is behind the header");
        let mut long = with_options("fd00::2", &[1, 4, 0, 0, 0, 0]);
        long[41] = 7;
        assert_eq!(hop_by_hop(&long), fault(41), "the header ends behind the packet");
        let alert = with_options("fd00::2", &[5, 3, 0, 0, 0, 0]);
        assert_eq!(hop_by_hop(&alert), fault(43));
        let twice = with_options("fd00::2", &[5, 2, 0, 0, 5, 2, 0, 0]);
        assert_eq!(hop_by_hop(&twice), fault(47));
        assert_eq!(hop_by_hop(&[0x60; 39]), HopByHop::Discard(None));
    }

    #[test]
    fn a_routing_header_is_not_followed() {
        for kind in 0..=u8::MAX {
            let header = [17, 2, kind, 1, 0, 0, 0, 0];
            let payload = [&header[..], &[0; 24]].concat();
            let underway = packet("fd00::2", protocol::ROUTING, &payload);
            let problem = Problem::Parameter { pointer: 42 };
            assert_eq!(unfollowed_route(&underway), Some(problem));
            assert_eq!(type_0_at(&underway), (kind == 0).then_some(42));
            let mut at_its_end = underway;
            at_its_end[43] = 0;
            assert_eq!(unfollowed_route(&at_its_end), None);
            assert_eq!(type_0_at(&at_its_end), None);
        }
    }

    #[test]
    fn a_routing_header_is_found_behind_others() {
        let options = [60, 0, 1, 4, 0, 0, 0, 0];
        let more = [43, 0, 1, 4, 0, 0, 0, 0];
        let route = [17, 0, 0, 1, 0, 0, 0, 0];
        let payload = [options, more, route].concat();
        let found = routing(&packet("fd00::2", protocol::HOP_BY_HOP, &payload));
        assert_eq!(found, Some(Routing { kind: 0, segments_left: 1, kind_at: 58 }));
        let later = [43, 0, 0, 8, 0, 0, 0, 1, 17, 0, 0, 1, 0, 0, 0, 0];
        assert_eq!(routing(&packet("fd00::2", protocol::FRAGMENT, &later)), None);
        assert_eq!(routing(&packet("fd00::2", 50, &route)), None, "encrypted");
        let whole = packet("fd00::2", protocol::HOP_BY_HOP, &payload);
        assert_eq!(
            (protocol_at(&whole, 64), protocol_at(&whole, 56), protocol_at(&whole, 40)),
            (56, 48, 6)
        );
    }
}
