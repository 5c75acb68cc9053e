//! Most frames are Ethernet with IPv4 with TCP or UDP and nothing between: those are read at once.
//!
//! What the descent through layers finds step by step stands at fixed places here, once it is sure that
//! nothing is out of the ordinary: no tags, no options of IP, no fragment, lengths that agree, nothing
//! cut before the end of the transport header, no port of a tunnel. Any doubt, and the frame takes the
//! descent, which alone knows what is malformed. What is found here it would have found, too.

use core::net::Ipv4Addr;

use crate::ether::ethertype;
use crate::packet::{Fragment, IpPacket, TcpSegment, Transport};
use crate::transport::{TCP, UDP};
use crate::tunnel;
use crate::view::{double_word, word};

const ETHERNET_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
const TCP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
/// IPv4 with a header of five words.
const VERSION_AND_LENGTH: u8 = 0x45;
/// Bits of the fragment word that are zero in a datagram that is whole: more to come, and the offset.
const FRAGMENT_BITS: u16 = 0x3fff;

/// The packet of such a frame of Ethernet; `None` where it may be another.
pub(crate) fn parse(frame: &[u8], original_bytes: u32) -> Option<IpPacket> {
    let head: &[u8; ETHERNET_BYTES + IPV4_BYTES] = frame.first_chunk()?;
    let ip = &head[ETHERNET_BYTES..];
    let total_bytes = usize::from(word(ip, 2));
    let is_plain = word(head, 12) == ethertype::IPV4
        && ip[0] == VERSION_AND_LENGTH
        && word(ip, 6) & FRAGMENT_BITS == 0
        && total_bytes + ETHERNET_BYTES <= frame.len().max(original_bytes as usize);
    if !is_plain {
        return None;
    }
    let body = &frame[ETHERNET_BYTES + IPV4_BYTES..];
    let length = total_bytes.checked_sub(IPV4_BYTES)?;
    let transport = match ip[9] {
        TCP => tcp(body, length)?,
        UDP => udp(body, length)?,
        _ => return None,
    };
    Some(IpPacket {
        source: Ipv4Addr::from_bits(double_word(ip, 12)).into(),
        destination: Ipv4Addr::from_bits(double_word(ip, 16)).into(),
        protocol: ip[9],
        traffic_class: ip[1],
        hop_limit: ip[8],
        ip_bytes: total_bytes as u32,
        fragment: Fragment::Whole,
        transport,
        encapsulated: false,
    })
}

fn tcp(body: &[u8], length: usize) -> Option<Transport> {
    let head: &[u8; TCP_BYTES] = body.first_chunk()?;
    let header_bytes = usize::from(head[12] >> 4) * 4;
    if header_bytes < TCP_BYTES || header_bytes > length {
        return None;
    }
    Some(Transport::Tcp(TcpSegment {
        source_port: word(head, 0),
        destination_port: word(head, 2),
        sequence: double_word(head, 4),
        acknowledgement: double_word(head, 8),
        flags: head[13],
        window: word(head, 14),
        payload_bytes: (length - header_bytes) as u32,
    }))
}

fn udp(body: &[u8], length: usize) -> Option<Transport> {
    let head: &[u8; UDP_BYTES] = body.first_chunk()?;
    let (source_port, destination_port) = (word(head, 0), word(head, 2));
    let stated = usize::from(word(head, 4));
    let is_sound = (UDP_BYTES..=length).contains(&stated);
    if !is_sound
        || tunnel::PORTS.contains(&source_port)
        || tunnel::PORTS.contains(&destination_port)
    {
        return None;
    }
    let payload_bytes = (stated - UDP_BYTES) as u32;
    Some(Transport::Udp { source_port, destination_port, payload_bytes })
}

#[cfg(test)]
mod tests {
    use crate::build::{self, Tcp};
    use crate::link::LinkType;
    use crate::packet::{Parsed, parse, parse_by_layers};
    use alloc::vec::Vec;

    #[test]
    fn what_is_read_at_once_is_what_the_descent_finds() {
        let ends = ("198.18.0.1:4000".parse().unwrap(), "198.19.0.9:4788".parse().unwrap());
        let segment = Tcp { payload: b"some bytes", ..Tcp::new(ends.0, ends.1) };
        let originals: [Vec<u8>; 2] = [
            build::ethernet(&segment.ip_packet()),
            build::ethernet(&build::udp(ends.0, ends.1, b"some bytes")),
        ];
        let mut chance = 17u64;
        let mut next = |below: usize| {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (chance >> 33) as usize % below
        };
        let (mut plain, mut others) = (0, 0);
        for round in 0..400_000 {
            let mut frame = originals[round % 2].clone();
            for _ in 0..next(4) {
                let at = next(frame.len());
                frame[at] = match next(4) {
                    0 => 0,
                    1 => frame[at].wrapping_add(1),
                    2 => frame[at] ^ 1 << next(8),
                    _ => next(256) as u8,
                };
            }
            if next(4) == 0 {
                // A port of VXLAN, in either place.
                frame[34 + 2 * next(2)..][..2].copy_from_slice(&4_789u16.to_be_bytes());
            }
            let original_bytes = frame.len() + [0, 0, 3, 1_000][next(4)];
            frame.truncate(frame.len() - [0, 0, 1, next(frame.len())][next(4)]);
            frame.resize(frame.len() + [0, 0, 6][next(3)], 0xee);
            let original_bytes = original_bytes as u32 - next(3) as u32;
            let found = parse(LinkType::Ethernet, &frame, original_bytes);
            assert_eq!(found, parse_by_layers(LinkType::Ethernet, &frame, original_bytes));
            let is_plain = super::parse(&frame, original_bytes).is_some();
            plain += usize::from(is_plain);
            others += usize::from(!is_plain && matches!(found, Parsed::Ip(_)));
        }
        assert!(plain > 50_000 && others > 20_000, "{plain} at once, {others} by layers");
    }
}
