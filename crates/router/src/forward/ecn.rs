//! The mark that a queue makes instead of a drop: congestion experienced (RFC 3168, 5).

use super::hop::adjusted;
use super::word;
use crate::header::ETHERNET_BYTES;

/// Sets the code point in the IP header of a frame and adjusts IPv4's checksum. Only called for
/// frames whose packets are ECN-capable; anything but IP stays as it is.
pub fn mark(frame: &mut [u8]) {
    let Some(packet) = frame.get_mut(ETHERNET_BYTES..) else { return };
    match packet.first().map(|first| first >> 4) {
        Some(4) if packet.len() >= crate::header::IPV4_BYTES => {
            let old = word(packet, 0);
            packet[1] |= 3;
            let checksum = adjusted(word(packet, 10), old, word(packet, 0));
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        Some(6) if packet.len() >= 2 => packet[1] |= 0x30,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::Header;
    use alloc::vec::Vec;
    use nilometer_wire::build;
    use nilometer_wire::checksum::ipv4_header_checksum_ok;

    #[test]
    fn both_families_are_marked_and_stay_sound() {
        for (from, to) in [("198.18.0.1:1", "198.18.1.1:2"), ("[fd00::1]:1", "[fd00::2]:2")] {
            let [from, to] = [from, to].map(|text| text.parse().expect("an address"));
            let mut frame: Vec<u8> = build::ethernet(&build::udp(from, to, b"some data"));
            let was = Header::read(&frame).expect("a packet");
            mark(&mut frame);
            let is = Header::read(&frame).expect("still a packet");
            assert_eq!((is.traffic_class, is.key), (was.traffic_class | 3, was.key));
            assert_ne!(ipv4_header_checksum_ok(&frame[14..]), Some(false));
        }
        mark(&mut [0; 20]);
    }
}
