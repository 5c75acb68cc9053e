//! A packet in brief: the fields that a flow meter needs, as machine words.
//!
//! An [`IpPacket`] holds everything that the headers say, in readable form, and code that needs only a few
//! fields has to match on it first: there are two kinds of address and six of transport. A meter looks up
//! millions of packets a second, and needs only five-tuples, lengths and the sequence numbers of segments.
//! Here these are plain numbers in one layout for all kinds, so that a usual frame goes from its bytes to
//! the meter through registers.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::parsed::{IpPacket, Transport};

/// Bits of a tuple's first word, above ports and protocol: the address is IPv6.
const SOURCE_IS_WIDE: u64 = 1 << 48;
const DESTINATION_IS_WIDE: u64 = 1 << 49;
const BOTH_ARE_WIDE: u64 = SOURCE_IS_WIDE | DESTINATION_IS_WIDE;

/// The five-tuple of a packet in words. The first holds ports and protocol, and says which addresses are
/// IPv6; the second holds both addresses if they are IPv4, and the others are then zero.
#[derive(Clone, Copy, Debug, Default, Eq)]
pub struct Tuple {
    first: u64,
    addresses: [u64; 4],
}

/// Compares word by word, as the words were written: a wider load would wait for all of these writes.
impl PartialEq for Tuple {
    #[inline(always)]
    fn eq(&self, other: &Tuple) -> bool {
        let ([a, b, c, d], [e, f, g, h]) = (self.addresses, other.addresses);
        self.first == other.first && (a ^ e) | (b ^ f) | (c ^ g) | (d ^ h) == 0
    }
}

/// What is known about a packet's user data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Body {
    /// It belongs to a TCP segment, and has a sequence number.
    Segment,
    /// It belongs to a UDP datagram.
    Datagram,
    /// Nothing: another protocol, or a transport header that was not captured.
    #[default]
    Unknown,
}

/// A packet in brief.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Brief {
    /// Its five-tuple.
    pub tuple: Tuple,
    /// Bytes of its outermost IP packet, header included, at original length.
    pub ip_bytes: u32,
    /// What kind of user data it carries.
    pub body: Body,
    /// Bytes of user data at original length; 0 where they are unknown.
    pub payload_bytes: u32,
    /// Sequence number of a segment; 0 elsewhere.
    pub sequence: u32,
    /// Flags of a segment, as in its header; 0 elsewhere.
    pub flags: u8,
}

impl Brief {
    /// A packet in brief.
    pub fn of(packet: &IpPacket) -> Brief {
        let (body, payload_bytes, sequence, flags) = match packet.transport {
            Transport::Tcp(segment) => {
                (Body::Segment, segment.payload_bytes, segment.sequence, segment.flags)
            }
            Transport::Udp { payload_bytes, .. } => (Body::Datagram, payload_bytes, 0, 0),
            _ => (Body::Unknown, 0, 0, 0),
        };
        let (source_port, destination_port) = packet.ports();
        let ports = u32::from(source_port) << 16 | u32::from(destination_port);
        Brief {
            tuple: Tuple::of(packet.source, packet.destination, ports, packet.protocol),
            ip_bytes: packet.ip_bytes,
            body,
            payload_bytes,
            sequence,
            flags,
        }
    }
}

impl Tuple {
    fn of(source: IpAddr, destination: IpAddr, ports: u32, protocol: u8) -> Tuple {
        if let (IpAddr::V4(source), IpAddr::V4(destination)) = (source, destination) {
            return Tuple::of_ipv4(source.to_bits(), destination.to_bits(), ports, protocol);
        }
        let bits = |address: IpAddr| match address {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        let mark = |address: IpAddr, mark: u64| if address.is_ipv6() { mark } else { 0 };
        let mut tuple = Tuple::of_ipv6(bits(source), bits(destination), ports, protocol);
        tuple.first &= !BOTH_ARE_WIDE;
        tuple.first |= mark(source, SOURCE_IS_WIDE) | mark(destination, DESTINATION_IS_WIDE);
        tuple
    }

    #[inline]
    pub(crate) fn of_ipv4(source: u32, destination: u32, ports: u32, protocol: u8) -> Tuple {
        Tuple {
            first: u64::from(ports) << 16 | u64::from(protocol),
            addresses: [u64::from(source) << 32 | u64::from(destination), 0, 0, 0],
        }
    }

    #[inline]
    pub(crate) fn of_ipv6(source: u128, destination: u128, ports: u32, protocol: u8) -> Tuple {
        Tuple {
            first: u64::from(ports) << 16 | u64::from(protocol) | BOTH_ARE_WIDE,
            addresses: [
                (source >> 64) as u64,
                source as u64,
                (destination >> 64) as u64,
                destination as u64,
            ],
        }
    }

    /// Source and destination address.
    #[inline]
    pub fn addresses(&self) -> (IpAddr, IpAddr) {
        let [a, b, c, d] = self.addresses;
        if self.is_ipv4() {
            let v4 = |bits: u64| IpAddr::V4(Ipv4Addr::from_bits(bits as u32));
            return (v4(a >> 32), v4(a));
        }
        let address = |high: u64, low: u64, mark: u64| match self.first & mark {
            0 => IpAddr::V4(Ipv4Addr::from_bits(low as u32)),
            _ => IpAddr::V6(Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low))),
        };
        (address(a, b, SOURCE_IS_WIDE), address(c, d, DESTINATION_IS_WIDE))
    }

    /// Source and destination port; zeros where there are none.
    #[inline]
    pub fn ports(&self) -> (u16, u16) {
        ((self.first >> 32) as u16, (self.first >> 16) as u16)
    }

    /// IANA protocol number.
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.first as u8
    }

    /// Ports and protocol, 16 bits each, as one word.
    #[inline]
    pub fn ports_and_protocol(&self) -> u64 {
        self.first & !BOTH_ARE_WIDE
    }

    /// Are both addresses IPv4?
    #[inline]
    pub fn is_ipv4(&self) -> bool {
        self.first & BOTH_ARE_WIDE == 0
    }

    /// The words of its addresses; two IPv4 addresses fill only the first.
    #[inline]
    pub fn address_words(&self) -> [u64; 4] {
        self.addresses
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsed::{Fragment, TcpSegment};
    use alloc::vec::Vec;

    fn packet(source: IpAddr, destination: IpAddr, transport: Transport) -> IpPacket {
        IpPacket {
            source,
            destination,
            protocol: 200,
            traffic_class: 0,
            hop_limit: 0,
            ip_bytes: 77,
            fragment: Fragment::Whole,
            transport,
            encapsulated: false,
        }
    }

    #[test]
    fn tuples_are_equal_where_all_five_are() {
        let addresses: [IpAddr; 5] = ["0.0.0.0", "198.18.0.1", "::", "::c612:1", "2001:db8::1:2"]
            .map(|address| address.parse().unwrap());
        let ports = [(0, 0), (u16::MAX, 1), (1, u16::MAX)];
        let mut seen: Vec<Tuple> = Vec::new();
        for (source, destination) in
            addresses.iter().flat_map(|one| addresses.iter().map(move |other| (*one, *other)))
        {
            for (source_port, destination_port) in ports {
                let transport = Transport::Sctp { source_port, destination_port };
                let tuple = Brief::of(&packet(source, destination, transport)).tuple;
                assert_eq!(tuple.addresses(), (source, destination));
                assert_eq!(
                    (tuple.ports(), tuple.protocol()),
                    ((source_port, destination_port), 200)
                );
                assert!(!seen.contains(&tuple));
                seen.push(tuple);
            }
        }
        assert_eq!(seen.len(), 75);
    }

    /// The layout of the words, on which hashing of tuples depends.
    #[test]
    fn words_hold_addresses_ports_and_protocol_in_order() {
        let ports_and_protocol = 0x1234_5678_0000 | 200;
        let sctp = Transport::Sctp { source_port: 0x1234, destination_port: 0x5678 };
        let (v4, v6): (IpAddr, IpAddr) =
            ("198.18.0.1".parse().unwrap(), "2001:db8:1:2:3:4:5:6".parse().unwrap());
        let [old, high, low] = [0xc612_0001, 0x2001_0db8_0001_0002, 0x0003_0004_0005_0006];
        for (source, destination, words) in [
            (v4, v4, [old << 32 | old, 0, 0, 0]),
            (v6, v6, [high, low, high, low]),
            (v4, v6, [0, old, high, low]),
            (v6, v4, [high, low, 0, old]),
        ] {
            let tuple = Brief::of(&packet(source, destination, sctp)).tuple;
            assert_eq!(tuple.address_words(), words);
            assert_eq!(tuple.ports_and_protocol(), ports_and_protocol);
            assert_eq!(tuple.is_ipv4(), source.is_ipv4() && destination.is_ipv4());
        }
    }

    /// Equal differences in two words do not cancel out.
    #[test]
    fn tuples_with_like_differences_in_two_words_differ() {
        let zero = Tuple::of_ipv6(0, 0, 0, 0);
        for words in 1..16 {
            let high = |bit: u32| u128::from(words >> bit & 1 == 1) << 64;
            let low = |bit: u32| u128::from(words >> bit & 1 == 1);
            let other = Tuple::of_ipv6(high(0) | low(1), high(2) | low(3), 0, 0);
            assert_ne!(zero, other, "{words:04b}");
        }
    }

    #[test]
    fn a_brief_agrees_with_its_transport() {
        let host: IpAddr = "198.18.0.1".parse().unwrap();
        let segment = TcpSegment {
            source_port: 1,
            destination_port: 2,
            sequence: 3,
            acknowledgement: 4,
            flags: 5,
            window: 6,
            payload_bytes: 7,
            time_stamps: None,
            cut_options_bytes: None,
        };
        let datagram = Transport::Udp { source_port: 1, destination_port: 2, payload_bytes: 8 };
        for (transport, expected) in [
            (Transport::Tcp(segment), (Body::Segment, 7, 3, 5, (1, 2))),
            (datagram, (Body::Datagram, 8, 0, 0, (1, 2))),
            (Transport::Icmp { kind: 8, code: 9 }, (Body::Unknown, 0, 0, 0, (0, 0))),
            (Transport::Cut, (Body::Unknown, 0, 0, 0, (0, 0))),
        ] {
            let Brief { tuple, ip_bytes, body, payload_bytes, sequence, flags } =
                Brief::of(&packet(host, host, transport));
            assert_eq!((body, payload_bytes, sequence, flags, tuple.ports()), expected);
            assert_eq!(ip_bytes, 77);
        }
    }
}
