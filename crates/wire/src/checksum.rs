//! The internet checksum (RFC 1071): computed, and held against what packets carry.

use core::net::IpAddr;

use crate::ip::{self, Layer};
use crate::parsed::Fragment;
use crate::transport::{ICMP, ICMPV6, TCP, UDP, UDP_HEADER_BYTES};
use crate::view::{View, word};

/// A ones' complement sum of 16-bit words that may be fed in pieces, of odd length too.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checksum {
    sum: u64,
    odd: bool,
}

impl Checksum {
    /// A sum of nothing.
    pub fn new() -> Checksum {
        Checksum::default()
    }

    /// Adds `bytes`, which continue those added before.
    pub fn add(&mut self, mut bytes: &[u8]) {
        if self.odd
            && let Some((first, rest)) = bytes.split_first()
        {
            self.sum += u64::from(*first);
            self.odd = false;
            bytes = rest;
        }
        let mut words = bytes.chunks_exact(2);
        for pair in &mut words {
            self.sum += u64::from(u16::from_be_bytes([pair[0], pair[1]]));
        }
        if let [last] = words.remainder() {
            self.sum += u64::from(*last) << 8;
            self.odd = true;
        }
    }

    /// Adds the pseudo-header of TCP, UDP and ICMPv6 (RFC 9293 section 3.1, RFC 8200 section 8.1).
    /// Two addresses of different IP versions cannot form a packet; then only their bytes are
    /// summed.
    pub fn add_pseudo_header(
        &mut self,
        source: IpAddr,
        destination: IpAddr,
        protocol: u8,
        length: u32,
    ) {
        for address in [source, destination] {
            match address {
                IpAddr::V4(address) => self.add(&address.octets()),
                IpAddr::V6(address) => self.add(&address.octets()),
            }
        }
        self.add(&u32::from(protocol).to_be_bytes());
        self.add(&length.to_be_bytes());
    }

    /// The checksum: the complement of the sum. Zero over bytes that contain their own checksum.
    pub fn finish(self) -> u16 {
        let mut sum = self.sum;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }
}

/// The internet checksum over `slices`, one after the other.
pub fn internet_checksum(slices: &[&[u8]]) -> u16 {
    let mut checksum = Checksum::new();
    for slice in slices {
        checksum.add(slice);
    }
    checksum.finish()
}

/// Does the header of this IPv4 packet match its checksum? `None` if it is not IPv4, or is cut.
pub fn ipv4_header_checksum_ok(ip_packet: &[u8]) -> Option<bool> {
    let first = *ip_packet.first()?;
    let header_bytes = usize::from(first & 0x0f) * 4;
    if first >> 4 != 4 || header_bytes < 20 {
        return None;
    }
    Some(internet_checksum(&[ip_packet.get(..header_bytes)?]) == 0)
}

/// Does the outermost transport header of a whole IP packet match its checksum? `None` where that
/// cannot be said: fragments, cut or malformed packets, protocols other than TCP, UDP, ICMP and
/// ICMPv6, datagrams sent without a checksum, and packets a routing header sends elsewhere first.
pub fn transport_checksum_ok(ip_packet: &[u8]) -> Option<bool> {
    let length = u32::try_from(ip_packet.len()).ok()?;
    let layer = ip::parse(View::new(ip_packet, length), None).ok()?;
    let segment = layer.payload?.seen();
    if layer.fragment != Fragment::Whole || layer.underway {
        return None;
    }
    let covered = covered(&layer, segment)?;
    let mut checksum = Checksum::new();
    if layer.protocol != ICMP {
        let length = covered.len() as u32;
        checksum.add_pseudo_header(layer.source, layer.destination, layer.protocol, length);
    }
    checksum.add(covered);
    Some(checksum.finish() == 0)
}

/// The bytes that the transport's checksum covers, if it has one.
fn covered<'a>(layer: &Layer<'a>, segment: &'a [u8]) -> Option<&'a [u8]> {
    match layer.protocol {
        TCP => (segment.len() >= 20).then_some(segment),
        ICMP | ICMPV6 => (segment.len() >= 4).then_some(segment),
        UDP if segment.len() >= UDP_HEADER_BYTES && word(segment, 6) != 0 => {
            match usize::from(word(segment, 4)) {
                0 => Some(segment),
                length if length >= UDP_HEADER_BYTES => segment.get(..length),
                _ => None,
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build;
    use alloc::vec::Vec;

    #[test]
    fn sums_rfc_1071s_example() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(internet_checksum(&[&bytes]), !0xddf2);
    }

    #[test]
    fn the_checksum_is_independent_of_segmentation() {
        let bytes: Vec<u8> = (0..=255).map(|n: u8| n.wrapping_mul(37)).collect();
        let whole = internet_checksum(&[&bytes]);
        for first in 0..bytes.len() {
            for second in [first, (first + 1).min(bytes.len()), bytes.len()] {
                let parts = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                assert_eq!(internet_checksum(&parts), whole, "cut at {first} and {second}");
            }
        }
    }

    #[test]
    fn every_flipped_bit_of_the_segment_is_seen() {
        for packet in build::samples() {
            assert_eq!(transport_checksum_ok(&packet), Some(true));
            let header_bytes = if packet[0] >> 4 == 4 { 20 } else { 40 };
            for at in header_bytes..packet.len() {
                let mut flipped = packet.clone();
                flipped[at] ^= 0x10;
                assert_ne!(transport_checksum_ok(&flipped), Some(true), "byte {at}");
            }
            if packet[0] >> 4 == 4 {
                assert_eq!(ipv4_header_checksum_ok(&packet), Some(true));
                let mut flipped = packet.clone();
                flipped[8] ^= 1;
                assert_eq!(ipv4_header_checksum_ok(&flipped), Some(false));
                assert_eq!(transport_checksum_ok(&flipped), Some(true), "TTL is not covered");
            }
        }
    }

    #[test]
    fn unverifiable_checksums_are_neither_right_nor_wrong() {
        let mut packet = build::samples().remove(0);
        assert_eq!(transport_checksum_ok(&packet[..packet.len() - 1]), None);
        packet[6] |= 0x20;
        assert_eq!(transport_checksum_ok(&packet), None, "a fragment");
        assert_eq!(transport_checksum_ok(&[]), None);
        assert_eq!(ipv4_header_checksum_ok(&[0x45; 19]), None);
    }

    #[test]
    fn a_datagram_without_a_checksum_is_not_judged() {
        let udp = |packet: &Vec<u8>| packet[0] >> 4 == 4 && packet[9] == UDP;
        let mut packet = build::samples().into_iter().find(udp).expect("a UDP sample");
        assert_eq!(transport_checksum_ok(&packet), Some(true));
        packet[26..28].fill(0);
        assert_eq!(transport_checksum_ok(&packet), None);
    }
}
