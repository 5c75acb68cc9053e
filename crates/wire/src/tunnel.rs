//! Tunnels: from an IP packet to the IP packet inside it.
//!
//! IP in IP (RFC 2003, 2473, 4213), GRE (RFC 2784, 2890, 1701 routing and 2637's version 1), Ethernet
//! in IP (RFC 3378), VXLAN (RFC 7348), Geneve (RFC 8926) and GTP-U (3GPP TS 29.281). UDP tunnels are
//! recognised by their port, and their headers must be valid; other datagrams are left as they are.

use crate::ether;
use crate::ip::Layer;
use crate::link::HEADERS_MAX;
use crate::parsed::{Fragment, Malformed, Transport};
use crate::transport::UDP_HEADER_BYTES;
use crate::view::{Payload, Stop, View, word};

const IPV4_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
const GRE: u8 = 47;
const ETHERNET_IN_IP: u8 = 97;

const GTP_USER_PORT: u16 = 2152;
const VXLAN_PORT: u16 = 4789;
const GENEVE_PORT: u16 = 6081;
/// The ports of UDP behind which another packet may stand.
pub(crate) const PORTS: [u16; 3] = [GTP_USER_PORT, VXLAN_PORT, GENEVE_PORT];

/// What `layer` carries inside it, if it is a tunnel.
pub(crate) fn inside<'a>(layer: &Layer<'a>, transport: Transport) -> Option<Payload<'a>> {
    let payload = layer.payload?;
    let payload = match layer.fragment {
        Fragment::Whole => payload,
        Fragment::First => payload.continued(),
        Fragment::Later => return None,
    };
    let opened = match (layer.protocol, transport) {
        (IPV4_IN_IP, _) => Ok(Payload::Ip(payload, Some(4))),
        (IPV6_IN_IP, _) => Ok(Payload::Ip(payload, Some(6))),
        (GRE, _) => generic_routing(payload),
        (ETHERNET_IN_IP, _) => ether::frame(payload.skip(2), HEADERS_MAX),
        (_, Transport::Udp { source_port, destination_port, .. }) => {
            let body = payload.skip(UDP_HEADER_BYTES);
            match (source_port, destination_port) {
                (_, VXLAN_PORT) => vxlan(body),
                (_, GENEVE_PORT) => geneve(body),
                (_, GTP_USER_PORT) | (GTP_USER_PORT, _) => gtp_user(body),
                _ => return None,
            }
        }
        _ => return None,
    };
    opened.ok()
}

fn generic_routing(view: View<'_>) -> Result<Payload<'_>, Stop> {
    const CHECKSUM: u16 = 0x8000;
    const ROUTING: u16 = 0x4000;
    const KEY: u16 = 0x2000;
    const SEQUENCE: u16 = 0x1000;
    const ACKNOWLEDGEMENT: u16 = 0x0080;
    let head = view.need(4, Malformed::TransportShort)?;
    let (flags, protocol) = (word(head, 0), word(head, 2));
    let mut bytes = 4;
    if flags & (CHECKSUM | ROUTING) != 0 {
        bytes += 4;
    }
    bytes += 4 * usize::from(flags & KEY != 0);
    bytes += 4 * usize::from(flags & SEQUENCE != 0);
    if flags & 0x7 == 1 {
        bytes += 4 * usize::from(flags & ACKNOWLEDGEMENT != 0);
    }
    if flags & ROUTING != 0 {
        bytes += source_route_bytes(view.skip(bytes))?;
    }
    ether::typed(protocol, view.skip(bytes), HEADERS_MAX)
}

/// RFC 1701: source route entries up to an empty one of family zero.
fn source_route_bytes(view: View<'_>) -> Result<usize, Stop> {
    let mut bytes = 0;
    loop {
        let entry = view.skip(bytes).need(4, Malformed::TransportShort)?;
        bytes += 4 + usize::from(entry[3]);
        if word(entry, 0) == 0 && entry[3] == 0 {
            return Ok(bytes);
        }
    }
}

fn vxlan(view: View<'_>) -> Result<Payload<'_>, Stop> {
    const NETWORK_IDENTIFIER_VALID: u8 = 0x08;
    let head = view.need(8, Malformed::TransportShort)?;
    if head[0] & NETWORK_IDENTIFIER_VALID == 0 {
        return Ok(Payload::Other(None));
    }
    ether::frame(view.skip(8), HEADERS_MAX)
}

fn geneve(view: View<'_>) -> Result<Payload<'_>, Stop> {
    let head = view.need(8, Malformed::TransportShort)?;
    let (version, options_bytes) = (head[0] >> 6, usize::from(head[0] & 0x3f) * 4);
    if version != 0 {
        return Ok(Payload::Other(None));
    }
    ether::typed(word(head, 2), view.skip(8 + options_bytes), HEADERS_MAX)
}

fn gtp_user(view: View<'_>) -> Result<Payload<'_>, Stop> {
    const USER_DATA: u8 = 0xff;
    const VERSION_1_GTP: u8 = 0x30;
    const ANY_OPTION: u8 = 0x07;
    const EXTENSION: u8 = 0x04;
    let head = view.need(8, Malformed::TransportShort)?;
    if head[0] & 0xf0 != VERSION_1_GTP || head[1] != USER_DATA {
        return Ok(Payload::Other(None));
    }
    let flags = head[0];
    let mut rest = view.skip(8);
    if flags & ANY_OPTION != 0 {
        let mut next = rest.need(4, Malformed::TransportShort)?[3];
        rest = rest.skip(4);
        while flags & EXTENSION != 0 && next != 0 {
            let bytes = usize::from(rest.need(1, Malformed::TransportShort)?[0]) * 4;
            if bytes == 0 {
                return Ok(Payload::Other(None));
            }
            next = rest.need(bytes, Malformed::TransportShort)?[bytes - 1];
            rest = rest.skip(bytes);
        }
    }
    Ok(Payload::Ip(rest, None))
}
