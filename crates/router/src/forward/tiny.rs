//! Flags of TCP that fragmentation hides from filters (RFC 1858, 3; RFC 3128).
//!
//! A filter of flags looks at first fragments. One with eight bytes of TCP has no flags, and the next, at
//! an offset of eight bytes, is no first fragment: both pass, and the host reassembles what the filter
//! was meant to keep out. In IPv4 a fragment at that offset may also be laid over the flags of a harmless
//! first one; hosts of IPv6 drop what overlaps (RFC 5722). No link cuts so short, so where a filter
//! matches on flags neither is forwarded.

use super::word;
use crate::header::{FRAGMENT, Header, LATER_FRAGMENT};

/// From the beginning of the TCP header to the end of its flags.
const FLAGS_END: u16 = 14;

/// Whether the packet of TCP that begins here, which has this header, is a fragment that leaves the flags
/// out, or has what may take their place.
pub fn hides_flags(packet: &[u8], header: &Header) -> bool {
    if header.notes & FRAGMENT == 0 {
        return false;
    }
    match (header.notes & LATER_FRAGMENT, packet.first().map(|first| first >> 4)) {
        (0, _) => header.ip_bytes.saturating_sub(header.transport_at) < FLAGS_END,
        // In units of eight bytes.
        (_, Some(4)) => word(packet, 6) & 0x1fff == 1,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;

    fn hides(packet: &[u8]) -> bool {
        let version = packet[0] >> 4;
        let read = if version == 4 { Header::read_ipv4(packet) } else { Header::read_ipv6(packet) };
        hides_flags(packet, &read.expect("a sound header"))
    }

    fn ipv4(fragmentation: u16, payload: usize) -> Vec<u8> {
        let mut packet = vec![0; 20 + payload];
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&(20 + payload as u16).to_be_bytes());
        packet[6..8].copy_from_slice(&fragmentation.to_be_bytes());
        (packet[8], packet[9]) = (64, 6);
        packet[12..16].copy_from_slice(&[198, 18, 0, 1]);
        packet[16..20].copy_from_slice(&[198, 19, 0, 1]);
        let sum = nilometer_wire::checksum::internet_checksum(&[&packet[..20]]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    fn ipv6(offset: u16, more: u16, payload: usize) -> Vec<u8> {
        let mut packet = vec![0; 48 + payload];
        packet[0] = 0x60;
        packet[4..6].copy_from_slice(&(8 + payload as u16).to_be_bytes());
        (packet[6], packet[7]) = (44, 64);
        (packet[8], packet[24]) = (0xfd, 0xfd);
        packet[40] = 6;
        packet[42..44].copy_from_slice(&(offset << 3 | more).to_be_bytes());
        packet
    }

    #[test]
    fn a_first_fragment_without_flags_and_one_that_overlaps_them_hide_them() {
        const MORE: u16 = 0x2000;
        for (payload, is_short) in [(8, true), (13, true), (14, false), (1_000, false)] {
            assert_eq!(hides(&ipv4(MORE, payload)), is_short, "{payload} bytes");
            assert_eq!(hides(&ipv6(0, 1, payload)), is_short, "{payload} bytes");
            assert!(!hides(&ipv4(0, payload)), "a whole packet of {payload} bytes");
        }
        for (offset, overlaps) in [(1, true), (2, false), (185, false)] {
            assert_eq!(hides(&ipv4(offset, 16)), overlaps, "offset {offset}");
            assert_eq!(hides(&ipv4(offset | MORE, 16)), overlaps, "offset {offset}");
            assert!(!hides(&ipv6(offset, 0, 16)), "hosts drop what overlaps");
        }
    }
}
