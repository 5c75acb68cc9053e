//! IPv6 extension headers a router answers for: options and routing headers.
//!
//! The only extension header that a router on the way reads is the hop-by-hop options, right behind the
//! IPv6 header (RFC 8200, 4.3). An option it does not know says in its two upper bits what to do: pass
//! it over, discard, discard and complain, or complain unless the packet was for many (4.2). Padding
//! and router alert (RFC 2711) are known here; jumbo payloads (RFC 2675) are not, and their type
//! demands an error message, which is right on links that carry none.
//!
//! Destination options and routing headers are read by the packet's destination. Padding is the only
//! option known (4.6). No route is followed, so a routing header with segments left is a complaint
//! about its type (4.4), type 0 above all: it is deprecated for letting one packet bounce between two
//! routers some eighty times (RFC 5095); and options behind it are for another to read. On the way,
//! type 0 may be filtered ([`type_0_at`]), and other types pass.

use super::icmp::Problem;
use super::{ipv6_extent, word};
use crate::header::{EXTENSIONS_MAX, IPV6_BYTES, protocol};

const PAD_1: u8 = 0;
const PAD_N: u8 = 1;
const ROUTER_ALERT: u8 = 5;

/// What hop-by-hop options require of a router.
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
    let Some(total_bytes) = ipv6_extent(packet) else { return HopByHop::Discard(None) };
    if packet[6] != protocol::HOP_BY_HOP {
        return NOTHING;
    }
    read_options(&packet[..total_bytes], IPV6_BYTES, true)
}

/// Whether the router must discard the packet that begins here because of its destination options, and
/// the problem to report, if any. Options are not read where fragmentation cuts them off, encryption
/// hides them, or the packet is to be sent on elsewhere first.
pub fn unhandled_options(packet: &[u8]) -> Option<Option<Problem>> {
    let packet = &packet[..ipv6_extent(packet)?];
    for (kind, at) in extensions(packet) {
        match kind {
            protocol::DESTINATION_OPTIONS => {
                if let HopByHop::Discard(problem) = read_options(packet, at, false) {
                    return Some(problem);
                }
            }
            protocol::ROUTING if packet[at + 3] > 0 => return None,
            protocol::FRAGMENT => return None,
            _ => {}
        }
    }
    None
}

/// Reads the options in the header at `header_at`, among which a router alert may be known.
fn read_options(packet: &[u8], header_at: usize, knows_alert: bool) -> HopByHop {
    let fault = |at: usize| HopByHop::Discard(Some(Problem::Parameter { pointer: at as u16 }));
    let Some(units) = packet.get(header_at + 1) else { return fault(4) };
    let end = header_at + (usize::from(*units) + 1) * 8;
    if end > packet.len() {
        return fault(header_at + 1);
    }
    let mut router_alert = None;
    let mut at = header_at + 2;
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
            ROUTER_ALERT if knows_alert && length == 2 && router_alert.is_none() => {
                router_alert = Some(word(packet, at + 2));
            }
            // Of another length, or a second one (RFC 2711, 2.1).
            ROUTER_ALERT if knows_alert => return fault(at + 1),
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

/// The first routing header of the IPv6 packet that begins here, if it has one that is not cut off by
/// fragmentation or hidden by encryption.
pub fn routing(packet: &[u8]) -> Option<Routing> {
    let packet = &packet[..ipv6_extent(packet)?];
    let (_, at) = extensions(packet).find(|(kind, _)| *kind == protocol::ROUTING)?;
    let kind_at = u16::try_from(at + 2).ok()?;
    Some(Routing { kind: packet[at + 2], segments_left: packet[at + 3], kind_at })
}

/// The extension headers of an IPv6 packet, each with where it begins and four bytes there at least, up to
/// what is in another fragment or encrypted.
fn extensions(packet: &[u8]) -> impl Iterator<Item = (u8, usize)> + '_ {
    let mut here = packet.get(6).map(|kind| (*kind, IPV6_BYTES));
    let next = move || {
        let (kind, at) = here?;
        let &[next, length, third, fourth] = packet.get(at..)?.first_chunk::<4>()?;
        let length = usize::from(length);
        let bytes = match kind {
            protocol::HOP_BY_HOP if at == IPV6_BYTES => (length + 1) * 8,
            protocol::ROUTING | protocol::DESTINATION_OPTIONS => (length + 1) * 8,
            protocol::FRAGMENT if u16::from_be_bytes([third, fourth]) & 0xfff8 == 0 => 8,
            protocol::AUTHENTICATION => (length + 2) * 4,
            other if protocol::OTHER_EXTENSIONS.contains(&other) => (length + 1) * 8,
            _ => return None,
        };
        here = Some((next, at + bytes));
        Some((kind, at))
    };
    core::iter::from_fn(next).take(EXTENSIONS_MAX)
}

/// Where the field stands that names the protocol of the header at `transport_at`: the pointer of an
/// error about an unsupported protocol (RFC 8200, 4). The headers before it have been read.
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

/// The offset of the type of a routing header of type 0 with segments left, if there is one: a filter
/// on the way may discard such packets (RFC 5095, 4.2).
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
    fn an_unknown_option_is_handled_by_its_high_bits() {
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
    fn destination_options_are_handled_by_their_high_bits_as_well() {
        let complaint = |at| Some(Some(Problem::Option { pointer: at }));
        let header = |next: u8, kind: u8| [next, 0, kind, 4, 0, 0, 0, 0];
        let of = |to: &str, payload: &[u8]| {
            unhandled_options(&packet(to, protocol::DESTINATION_OPTIONS, payload))
        };
        for kind in 2..=u8::MAX {
            let alone = [header(17, kind), [0; 8]].concat();
            let second = [header(60, PAD_N), header(17, kind), [0; 8]].concat();
            let (one, many) = (of("fd00::2", &alone), of("ff02::1", &alone));
            let expected = match kind >> 6 {
                0 => (None, None),
                1 => (Some(None), Some(None)),
                2 => (complaint(42), complaint(42)),
                _ => (complaint(42), Some(None)),
            };
            assert_eq!((one, many), expected, "option {kind}");
            assert_eq!(of("fd00::2", &second).is_some(), kind >> 6 > 0, "option {kind}");
        }
        // Behind a routing header that is not at its end, or in a fragment, they are not for us yet.
        for (first, is_ours) in
            [([60, 0, 4, 0, 0, 0, 0, 0], true), ([60, 0, 4, 1, 0, 0, 0, 0], false)]
        {
            let behind = [first, header(17, 0x80), [0; 8]].concat();
            let found = unhandled_options(&packet("fd00::2", protocol::ROUTING, &behind));
            assert_eq!(found.is_some(), is_ours);
        }
        for other in protocol::OTHER_EXTENSIONS {
            let behind = [header(60, PAD_N), header(17, 0x80), [0; 8]].concat();
            assert!(unhandled_options(&packet("fd00::2", other, &behind)).is_some(), "{other}");
        }
        let cut = [[60, 0, 0, 1, 0, 0, 0, 9], header(17, 0x80), [0; 8]].concat();
        assert_eq!(unhandled_options(&packet("fd00::2", protocol::FRAGMENT, &cut)), None);
        let long = [60, 9, PAD_N, 4, 0, 0, 0, 0];
        assert_eq!(of("fd00::2", &long), Some(Some(Problem::Parameter { pointer: 41 })));
    }

    #[test]
    fn padding_passes_and_a_router_alert_is_noticed() {
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
        // Behind headers whose lengths are counted in eights, in fours, and not at all.
        let options = [51, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let authentication = [[44, 4], [0, 0]].concat();
        let authentication = [&authentication[..], &[0; 20]].concat();
        let fragment = [60, 99, 0, 0, 0, 0, 0, 1];
        let last = [17, 0, 1, 4, 0, 0, 0, 0];
        let payload = [&options[..], &authentication, &fragment, &last].concat();
        let whole = packet("fd00::2", protocol::DESTINATION_OPTIONS, &payload);
        let named_at = [40, 56, 80, 88, 96].map(|at| protocol_at(&whole, at));
        assert_eq!(named_at, [6, 40, 56, 80, 88]);
        assert_eq!(protocol_at(&whole, 200), 88, "the packet ends there");
    }
}
