//! What a frame carries, in one pass over its headers: the innermost IP packet and its transport.
//!
//! The link header leads to an IP header ([`crate::link`]), that to a transport header, and a tunnel
//! leads to another IP header, up to [`TUNNELS_MAX`] times. The descent only ever keeps the last
//! header that was sound: a tunnel whose inside is not IP, or is broken, is reported as the packet
//! that carried it. Nothing is copied and nothing allocated.

use crate::link::{self, LinkType};
use crate::view::{Payload, Stop, View};
use crate::{ip, plain, transport, tunnel};

pub use crate::parsed::{Fragment, IpPacket, Malformed, Parsed, TcpSegment, TimeStamps, Transport};

/// How many tunnels are opened one inside the other before the descent stops.
pub const TUNNELS_MAX: usize = 8;

/// Reads the headers of `frame`, which came from a link of type `link` and was `original_bytes` long
/// before a snap length cut it. Never panics, whatever the bytes.
pub fn parse(link: LinkType, frame: &[u8], original_bytes: u32) -> Parsed {
    if link == LinkType::Ethernet
        && let Some(packet) = plain::parse(frame, original_bytes)
    {
        return Parsed::Ip(packet);
    }
    parse_by_layers(link, frame, original_bytes)
}

/// Reads the headers of any frame, layer by layer.
#[inline(never)]
pub(crate) fn parse_by_layers(link: LinkType, frame: &[u8], original_bytes: u32) -> Parsed {
    match link::open(link, View::new(frame, original_bytes)).and_then(descend) {
        Ok(parsed) => parsed,
        Err(Stop::Cut) => Parsed::Cut,
        Err(Stop::Malformed(why)) => Parsed::Malformed(why),
    }
}

fn descend(payload: Payload<'_>) -> Result<Parsed, Stop> {
    let (mut layer, transport) = match payload {
        Payload::Other(ethertype) => return Ok(Parsed::NotIp(ethertype)),
        Payload::Ip(view, version) => sound(view, version)?,
    };
    let mut packet = describe(&layer, transport, layer.total_bytes);
    for _ in 0..TUNNELS_MAX {
        let Some(Payload::Ip(view, version)) = tunnel::inside(&layer, packet.transport) else {
            break;
        };
        let Ok((inner, transport)) = sound(view, version) else { break };
        packet = IpPacket { encapsulated: true, ..describe(&inner, transport, packet.ip_bytes) };
        layer = inner;
    }
    Ok(Parsed::Ip(packet))
}

fn sound(view: View<'_>, version: Option<u8>) -> Result<(ip::Layer<'_>, Transport), Stop> {
    let layer = ip::parse(view, version)?;
    let transport = match layer.payload {
        Some(payload) => transport::parse(layer.protocol, payload, layer.fragment)?,
        None => Transport::Cut,
    };
    Ok((layer, transport))
}

fn describe(layer: &ip::Layer<'_>, transport: Transport, ip_bytes: u32) -> IpPacket {
    IpPacket {
        source: layer.source,
        destination: layer.destination,
        protocol: layer.protocol,
        traffic_class: layer.traffic_class,
        hop_limit: layer.hop_limit,
        ip_bytes,
        fragment: layer.fragment,
        transport,
        encapsulated: false,
    }
}
