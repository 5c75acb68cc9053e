//! Fast path for usual frames: Ethernet, IP, and TCP or UDP with nothing between, read in one step.
//!
//! What the descent through layers finds step by step lies at fixed offsets here, once it is certain that
//! nothing is out of the ordinary: no tags, no options or extensions of IP, no fragment, lengths that agree,
//! nothing cut before the end of the transport header, no port of a tunnel. In any doubt the frame takes the
//! descent, which alone decides what is malformed. Both find the same packet in a usual frame.

use crate::brief::{Body, Brief, Tuple};
use crate::ether::ethertype;
use crate::link::LinkType;
use crate::parsed::{Fragment, IpPacket, TcpSegment, Transport};
use crate::transport::{TCP, UDP, cut_options_bytes, options, time_stamps};
use crate::tunnel;
use crate::view::{double_word, word};

const ETHERNET_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const TCP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
/// IPv4 with a header of five words.
const VERSION_AND_LENGTH: u8 = 0x45;
/// Bits of the fragment word that are zero in a datagram that is whole: more to come, and the offset.
const FRAGMENT_BITS: u16 = 0x3fff;

/// The fields of such a frame: the brief ones, and the rest. A part that the caller leaves unread costs
/// nothing, since all of this is inlined.
pub(crate) struct Plain<'a> {
    pub(crate) brief: Brief,
    /// Of a segment: its options, as far as they were captured, and the bytes of its header.
    options: &'a [u8],
    header_bytes: usize,
    traffic_class: u8,
    hop_limit: u8,
    acknowledgement: u32,
    window: u16,
}

impl Brief {
    /// What a frame carries, if it is a usual one: Ethernet, IP, TCP or UDP, and nothing in doubt. Other
    /// frames need [`parse`](crate::packet::parse), which finds the same packet in a usual frame.
    #[inline(always)]
    pub fn of_usual(link: LinkType, frame: &[u8], original_bytes: u32) -> Option<Brief> {
        match link {
            LinkType::Ethernet => read(frame, original_bytes).map(|plain| plain.brief),
            _ => None,
        }
    }
}

/// The packet of such an Ethernet frame; `None` where the frame may not be a usual one.
pub(crate) fn parse(frame: &[u8], original_bytes: u32) -> Option<IpPacket> {
    read(frame, original_bytes).map(Plain::packet)
}

/// Reads such a frame; `None` where the frame may not be a usual one.
#[inline(always)]
pub(crate) fn read(frame: &[u8], original_bytes: u32) -> Option<Plain<'_>> {
    let (head, packet) = frame.split_first_chunk::<ETHERNET_BYTES>()?;
    let length = frame.len().max(original_bytes as usize) - ETHERNET_BYTES;
    match word(head, 12) {
        ethertype::IPV4 => ipv4(packet, length),
        ethertype::IPV6 => ipv6(packet, length),
        _ => None,
    }
}

#[inline(always)]
fn ipv4(packet: &[u8], length: usize) -> Option<Plain<'_>> {
    let (head, body) = packet.split_first_chunk::<IPV4_BYTES>()?;
    let total_bytes = usize::from(word(head, 2));
    let is_plain = head[0] == VERSION_AND_LENGTH
        && word(head, 6) & FRAGMENT_BITS == 0
        && (IPV4_BYTES..=length).contains(&total_bytes);
    if !is_plain {
        return None;
    }
    let ports = double_word(body.first_chunk::<UDP_BYTES>()?, 0);
    let tuple = Tuple::of_ipv4(double_word(head, 12), double_word(head, 16), ports, head[9]);
    let packet = Plain::begun(tuple, total_bytes as u32, head[1], head[8]);
    packet.continued(body, total_bytes - IPV4_BYTES)
}

#[inline(always)]
fn ipv6(packet: &[u8], length: usize) -> Option<Plain<'_>> {
    let (head, body) = packet.split_first_chunk::<IPV6_BYTES>()?;
    let payload_bytes = usize::from(word(head, 4));
    let total_bytes = IPV6_BYTES + payload_bytes;
    // Without a stated length it is a jumbogram, or will be segmented later.
    if head[0] >> 4 != 6 || payload_bytes == 0 || total_bytes > length {
        return None;
    }
    let ports = double_word(body.first_chunk::<UDP_BYTES>()?, 0);
    let tuple = Tuple::of_ipv6(address(head, 8), address(head, 24), ports, head[6]);
    let traffic_class = head[0] << 4 | head[1] >> 4;
    let packet = Plain::begun(tuple, total_bytes as u32, traffic_class, head[7]);
    packet.continued(body, payload_bytes)
}

#[inline(always)]
fn address(head: &[u8; IPV6_BYTES], at: usize) -> u128 {
    let mut octets = [0; 16];
    octets.copy_from_slice(&head[at..at + 16]);
    u128::from_be_bytes(octets)
}

impl<'a> Plain<'a> {
    #[inline(always)]
    fn begun(tuple: Tuple, ip_bytes: u32, traffic_class: u8, hop_limit: u8) -> Plain<'a> {
        let brief =
            Brief { tuple, ip_bytes, body: Body::Unknown, payload_bytes: 0, sequence: 0, flags: 0 };
        Plain {
            brief,
            options: &[],
            header_bytes: 0,
            traffic_class,
            hop_limit,
            acknowledgement: 0,
            window: 0,
        }
    }

    /// Adds the fields of the transport header, for a payload of `length` bytes.
    #[inline(always)]
    fn continued(self, body: &'a [u8], length: usize) -> Option<Plain<'a>> {
        match self.brief.tuple.protocol() {
            TCP => self.with_segment(body, length),
            UDP => self.with_datagram(body, length),
            _ => None,
        }
    }

    #[inline(always)]
    fn with_segment(mut self, body: &'a [u8], length: usize) -> Option<Plain<'a>> {
        let head: &[u8; TCP_BYTES] = body.first_chunk()?;
        let header_bytes = usize::from(head[12] >> 4) * 4;
        if header_bytes < TCP_BYTES || header_bytes > length {
            return None;
        }
        self.brief.body = Body::Segment;
        self.brief.payload_bytes = (length - header_bytes) as u32;
        self.brief.sequence = double_word(head, 4);
        self.brief.flags = head[13];
        self.options = options(body, header_bytes);
        self.header_bytes = header_bytes;
        self.acknowledgement = double_word(head, 8);
        self.window = word(head, 14);
        Some(self)
    }

    #[inline(always)]
    fn with_datagram(mut self, body: &[u8], length: usize) -> Option<Plain<'a>> {
        let head: &[u8; UDP_BYTES] = body.first_chunk()?;
        let (source_port, destination_port) = self.brief.tuple.ports();
        let stated = usize::from(word(head, 4));
        let is_sound = (UDP_BYTES..=length).contains(&stated);
        if !is_sound
            || tunnel::PORTS.contains(&source_port)
            || tunnel::PORTS.contains(&destination_port)
        {
            return None;
        }
        self.brief.body = Body::Datagram;
        self.brief.payload_bytes = (stated - UDP_BYTES) as u32;
        Some(self)
    }

    fn packet(self) -> IpPacket {
        let Brief { tuple, ip_bytes, body, payload_bytes, sequence, flags } = self.brief;
        let (source, destination) = tuple.addresses();
        let (source_port, destination_port) = tuple.ports();
        let transport = match body {
            Body::Segment => Transport::Tcp(TcpSegment {
                source_port,
                destination_port,
                sequence,
                acknowledgement: self.acknowledgement,
                flags,
                window: self.window,
                payload_bytes,
                time_stamps: time_stamps(self.options),
                cut_options_bytes: cut_options_bytes(self.options, self.header_bytes),
            }),
            Body::Datagram => Transport::Udp { source_port, destination_port, payload_bytes },
            Body::Unknown => Transport::Cut,
        };
        IpPacket {
            source,
            destination,
            protocol: tuple.protocol(),
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
            ip_bytes,
            fragment: Fragment::Whole,
            transport,
            encapsulated: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::brief::Brief;
    use crate::build::{self, Tcp};
    use crate::link::LinkType;
    use crate::packet::{Parsed, parse, parse_by_layers};
    use alloc::vec::Vec;
    use nilometer_stat::Rng;

    #[test]
    fn the_fast_path_agrees_with_the_full_parser() {
        let ends = [
            ("198.18.0.1:4000", "198.19.0.9:4788"),
            ("[2001:db8::1]:4000", "[2001:db8:7::9]:4788"),
        ]
        .map(|(source, destination)| (source.parse().unwrap(), destination.parse().unwrap()));
        let originals: Vec<Vec<u8>> = ends
            .iter()
            .flat_map(|&(source, destination)| {
                let segment = Tcp { payload: b"some bytes", ..Tcp::new(source, destination) };
                [segment.ip_packet(), build::udp(source, destination, b"some bytes")]
            })
            .map(|packet| build::ethernet(&packet))
            .collect();
        let mut rng = Rng::new(17, 0, 0);
        let mut next = |below: usize| rng.below(below as u64) as usize;
        let (mut plain, mut others) = ([0; 2], [0; 2]);
        for round in 0..400_000 {
            let mut frame = originals[round % 4].clone();
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
                let ports_at = [34, 54][round % 4 / 2];
                frame[ports_at + 2 * next(2)..][..2].copy_from_slice(&4_789u16.to_be_bytes());
            }
            let original_bytes = frame.len() + [0, 0, 3, 1_000][next(4)];
            frame.truncate(frame.len() - [0, 0, 1, next(frame.len())][next(4)]);
            frame.resize(frame.len() + [0, 0, 6][next(3)], 0xee);
            let original_bytes = original_bytes as u32 - next(3) as u32;
            let found = parse(LinkType::Ethernet, &frame, original_bytes);
            assert_eq!(found, parse_by_layers(LinkType::Ethernet, &frame, original_bytes));
            let plain_one = super::read(&frame, original_bytes);
            let is_plain = plain_one.is_some();
            if let (Some(plain), Parsed::Ip(packet)) = (plain_one, found) {
                assert_eq!(plain.brief, Brief::of(&packet));
            }
            plain[round % 4 / 2] += usize::from(is_plain);
            others[round % 4 / 2] += usize::from(!is_plain && matches!(found, Parsed::Ip(_)));
        }
        assert!(plain.iter().all(|&count| count > 30_000), "{plain:?} at once");
        assert!(others.iter().all(|&count| count > 10_000), "{others:?} by layers");
    }
}
