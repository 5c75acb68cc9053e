//! Frames of a host: Ethernet and IP headers in front of TCP's segments, written and read.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use nilometer_tcp::Segment;
use nilometer_tcp::bytes::{Ends, parse_between};
use nilometer_wire::Ecn;
use nilometer_wire::checksum::internet_checksum;

use super::LinkAddresses;

const ETHERNET_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const TCP: u8 = 6;
const HOP_LIMIT: u8 = 64;
const IPV4_TYPE: [u8; 2] = [0x08, 0x00];
const IPV6_TYPE: [u8; 2] = [0x86, 0xdd];

/// The Ethernet and IP headers of a segment.
pub(super) fn headers(
    link: &LinkAddresses,
    ends: &Ends,
    (segment, ecn, identification): (&Segment, Ecn, u16),
    out: &mut Vec<u8>,
) {
    out.extend(link.peer);
    out.extend(link.own);
    let payload = segment.header_bytes() as u16 + segment.length;
    match (ends.source.ip(), ends.destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            out.extend(IPV4_TYPE);
            let start = out.len();
            out.extend([0x45, ecn as u8]);
            out.extend((IPV4_BYTES as u16 + payload).to_be_bytes());
            out.extend(identification.to_be_bytes());
            // Don't fragment.
            out.extend([0x40, 0, HOP_LIMIT, TCP, 0, 0]);
            out.extend(source.octets());
            out.extend(destination.octets());
            let checksum = internet_checksum(&[&out[start..]]);
            out[start + 10..start + 12].copy_from_slice(&checksum.to_be_bytes());
        }
        (source, destination) => {
            let octets = |address| match address {
                IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                IpAddr::V6(address) => address.octets(),
            };
            out.extend(IPV6_TYPE);
            // The low bits of the traffic class are the two highest of the second byte's low half.
            out.extend([0x60, (ecn as u8) << 4, 0, 0]);
            out.extend(payload.to_be_bytes());
            out.extend([TCP, HOP_LIMIT]);
            out.extend(octets(source));
            out.extend(octets(destination));
        }
    }
}

/// What a frame is to a host.
pub(super) enum ReceivedFrame {
    Segment(Box<(Ends, Segment, Ecn)>),
    NotTcp,
    Corrupted,
}

/// Reads a frame; the ends are as the receiver sees them, itself first.
pub(super) fn read(frame: &[u8]) -> ReceivedFrame {
    let Some((ecn, addresses, bytes)) = ip(frame) else { return ReceivedFrame::NotTcp };
    let port = |at: usize| bytes.get(at..at + 2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    let (Some(from), Some(to)) = (port(0), port(2)) else { return ReceivedFrame::NotTcp };
    let [source, destination] = addresses;
    let (source, destination) = (SocketAddr::new(source, from), SocketAddr::new(destination, to));
    match parse_between(bytes, &Ends { source, destination }) {
        Ok(segment) => {
            let seen = Ends { source: destination, destination: source };
            ReceivedFrame::Segment(Box::new((seen, segment, ecn)))
        }
        Err(_) => ReceivedFrame::Corrupted,
    }
}

/// ECN bits, source and destination, and what an IP packet of TCP carries.
fn ip(frame: &[u8]) -> Option<(Ecn, [IpAddr; 2], &[u8])> {
    let kind = frame.get(12..ETHERNET_BYTES)?;
    let packet = &frame[ETHERNET_BYTES..];
    if kind == IPV4_TYPE {
        let header = packet.first_chunk::<IPV4_BYTES>()?;
        let header_bytes = usize::from(header[0] & 0xf) * 4;
        let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let whole = packet.get(..header_bytes)?;
        if header[9] != TCP || header_bytes < IPV4_BYTES || internet_checksum(&[whole]) != 0 {
            return None;
        }
        let address =
            |at: usize| IpAddr::from([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let carried = packet.get(header_bytes..total)?;
        return Some((Ecn::from_bits(header[1]), [address(12), address(16)], carried));
    }
    let header = packet.first_chunk::<IPV6_BYTES>().filter(|_| kind == IPV6_TYPE)?;
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    if header[6] != TCP {
        return None;
    }
    let address = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&header[at..at + 16]);
        IpAddr::from(octets)
    };
    let carried = packet.get(IPV6_BYTES..IPV6_BYTES + length)?;
    Some((Ecn::from_bits(header[1] >> 4), [address(8), address(24)], carried))
}
