//! Where the headers of an IP packet lie, and its source and destination.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// ICMP, in the field Protocol.
pub const ICMP: u8 = 1;
/// TCP.
pub const TCP: u8 = 6;
/// UDP.
pub const UDP: u8 = 17;
/// ICMP for IPv6.
pub const ICMPV6: u8 = 58;

/// Extension headers that are walked before an IPv6 packet is given up.
const EXTENSIONS_MAX: usize = 8;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;

/// The fields of the network header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// The transport's protocol number.
    pub protocol: u8,
    /// Where the transport header begins; none in a fragment that is not the first, or where it is not seen.
    pub transport_at: Option<usize>,
    /// Which part of a datagram it is.
    pub fragment: Fragment,
}

/// Which part of a datagram a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// All of it.
    Whole,
    /// The first fragment, which has the transport header.
    First,
    /// A later fragment, which has none.
    Later,
}

impl Headers {
    /// Reads the headers at the beginning of an IP packet, as far as it is seen.
    pub fn read(bytes: &[u8]) -> Option<Headers> {
        match bytes.first()? >> 4 {
            4 => Headers::read_ipv4(bytes),
            6 => Headers::read_ipv6(bytes),
            _ => None,
        }
    }

    fn read_ipv4(bytes: &[u8]) -> Option<Headers> {
        let header: &[u8; IPV4_BYTES] = bytes.first_chunk()?;
        let header_bytes = usize::from(header[0] & 0xf) * 4;
        if header_bytes < IPV4_BYTES {
            return None;
        }
        let fragment = u16::from_be_bytes([header[6], header[7]]);
        let part = match fragment & 0x3fff {
            0 => Fragment::Whole,
            0x2000 => Fragment::First,
            _ => Fragment::Later,
        };
        let has_transport = part != Fragment::Later && bytes.len() > header_bytes;
        Some(Headers {
            source: ipv4(header, 12).into(),
            destination: ipv4(header, 16).into(),
            protocol: header[9],
            transport_at: has_transport.then_some(header_bytes),
            fragment: part,
        })
    }

    fn read_ipv6(bytes: &[u8]) -> Option<Headers> {
        let header: &[u8; IPV6_BYTES] = bytes.first_chunk()?;
        let mut headers = Headers {
            source: ipv6(header, 8).into(),
            destination: ipv6(header, 24).into(),
            protocol: header[6],
            transport_at: None,
            fragment: Fragment::Whole,
        };
        let mut at = IPV6_BYTES;
        for _ in 0..EXTENSIONS_MAX {
            // Hop-by-hop options, routing, destination options, fragment (RFC 8200, 4).
            let is_fragment = headers.protocol == 44;
            if !is_fragment && !matches!(headers.protocol, 0 | 43 | 60) {
                headers.transport_at = (bytes.len() > at).then_some(at);
                return Some(headers);
            }
            let Some(extension) = bytes.get(at..at + 8) else { return Some(headers) };
            headers.protocol = extension[0];
            if is_fragment {
                let offset_and_more = u16::from_be_bytes([extension[2], extension[3]]);
                if offset_and_more >> 3 != 0 {
                    headers.fragment = Fragment::Later;
                    return Some(headers);
                }
                if offset_and_more & 1 == 1 {
                    headers.fragment = Fragment::First;
                }
                at += 8;
            } else {
                at += 8 + usize::from(extension[1]) * 8;
            }
        }
        None
    }

    /// Source and destination port of TCP and UDP, where they are seen.
    pub fn ports(&self, bytes: &[u8]) -> Option<(u16, u16)> {
        if !matches!(self.protocol, TCP | UDP) {
            return None;
        }
        let at = self.transport_at?;
        let ports = bytes.get(at..at + 4)?;
        Some((word(ports, 0), word(ports, 2)))
    }

    /// Where the transport's checksum lies, if it has one that covers addresses or itself.
    pub fn checksum_at(&self) -> Option<usize> {
        let offset = match self.protocol {
            TCP => 16,
            UDP => 6,
            ICMP | ICMPV6 => 2,
            _ => return None,
        };
        self.transport_at.map(|at| at + offset)
    }

    /// The transport's checksum covers a pseudo-header with the addresses.
    pub fn has_pseudo_header(&self) -> bool {
        matches!(self.protocol, TCP | UDP | ICMPV6)
    }
}

/// An address as a number, IPv4 as mapped into IPv6 (RFC 4291, 2.5.5.2), which makes comparing the
/// keys of tables faster.
#[inline]
pub fn address_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => 0xffff_0000_0000 | u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The word at a place.
///
/// # Panics
/// When the bytes end before it.
#[inline]
pub fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn ipv4(header: &[u8], at: usize) -> Ipv4Addr {
    Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3])
}

fn ipv6(header: &[u8; IPV6_BYTES], at: usize) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&header[at..at + 16]);
    octets.into()
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn ipv4_fragments_have_ports_in_the_first_alone() {
        let mut packet = vec![0u8; 28];
        packet[0] = 0x45;
        packet[9] = UDP;
        packet[20..24].copy_from_slice(&[0, 53, 1, 0]);
        let headers = Headers::read(&packet).expect("a packet");
        assert_eq!(headers.ports(&packet), Some((53, 256)));
        packet[6] = 0x20;
        let first = Headers::read(&packet).expect("a packet");
        assert!(first.fragment == Fragment::First && first.ports(&packet).is_some());
        packet[7] = 1;
        let later = Headers::read(&packet).expect("a packet");
        assert!(later.fragment == Fragment::Later && later.ports(&packet).is_none());
    }

    #[test]
    fn ipv6_extensions_are_walked_and_no_further_than_they_are_seen() {
        let mut packet = vec![0u8; 60];
        packet[0] = 0x60;
        packet[40] = TCP; // hop-by-hop options of 8 bytes, then TCP
        packet[48..52].copy_from_slice(&[0, 22, 0, 23]);
        let headers = Headers::read(&packet).expect("a packet");
        assert_eq!((headers.protocol, headers.transport_at), (TCP, Some(48)));
        assert_eq!(headers.ports(&packet), Some((22, 23)));
        let cut = Headers::read(&packet[..44]).expect("a packet");
        assert_eq!(cut.transport_at, None);
        packet[40..].fill(0);
        packet.resize(200, 0);
        assert_eq!(Headers::read(&packet), None, "extensions without end");
    }

    #[test]
    fn any_bytes_are_headers_or_none() {
        let mut state = 1u32;
        for _ in 0..20_000 {
            let mut bytes = [0u8; 72];
            for byte in &mut bytes {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *byte = (state >> 24) as u8;
            }
            let seen = &bytes[..(state >> 8) as usize % 73];
            if let Some(headers) = Headers::read(seen) {
                let _ = headers.ports(seen);
            }
        }
    }
}
