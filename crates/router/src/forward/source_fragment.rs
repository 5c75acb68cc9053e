//! Fragments of an IPv6 packet that the router itself sends: only its source may fragment it.
//!
//! RFC 8200, 4.5: behind the IPv6 header of each piece stands a fragment header with the offset in
//! units of eight bytes, whether more follow, and one identification for all. What the router sends has
//! no extension headers, so everything behind the IPv6 header is cut. Only one kind of packet needs
//! it, an echo reply as large as its request (RFC 4443, 4.2): errors end at 1,280 bytes.

use alloc::vec::Vec;

use super::ipv6_extent;
use crate::header::{IPV6_BYTES, protocol};

const FRAGMENT_BYTES: usize = 8;

/// The pieces of `packet` for a link that takes `mtu_bytes`, at least 1,280 (RFC 8200, 5), in order.
/// A packet that fits is its own only piece; a malformed packet has none.
pub fn pieces(packet: &[u8], mtu_bytes: u16, identification: u32) -> Vec<Vec<u8>> {
    let Some(total_bytes) = ipv6_extent(packet) else { return Vec::new() };
    let packet = &packet[..total_bytes];
    let mtu_bytes = usize::from(mtu_bytes.max(1_280));
    if packet.len() <= mtu_bytes {
        return Vec::from([packet.to_vec()]);
    }
    let (header, payload) = packet.split_at(IPV6_BYTES);
    let room = (mtu_bytes - IPV6_BYTES - FRAGMENT_BYTES) & !7;
    let count = payload.len().div_ceil(room);
    let piece = |(number, part): (usize, &[u8])| {
        let offset = (number * room) as u16 | u16::from(number + 1 < count);
        let mut piece = Vec::with_capacity(IPV6_BYTES + FRAGMENT_BYTES + part.len());
        piece.extend_from_slice(header);
        piece[4..6].copy_from_slice(&((FRAGMENT_BYTES + part.len()) as u16).to_be_bytes());
        piece[6] = protocol::FRAGMENT;
        piece.extend([header[6], 0]);
        piece.extend(offset.to_be_bytes());
        piece.extend(identification.to_be_bytes());
        piece.extend_from_slice(part);
        piece
    };
    payload.chunks(room).enumerate().map(piece).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward::reassemble::{Outcome, Reassembler, Settings};
    use crate::header::{FRAGMENT, Header};
    use alloc::vec;
    use nilometer_wire::{Time, build};

    fn packet(payload_bytes: usize) -> Vec<u8> {
        let (from, to) = ("[fd00::1]:7", "[fd00:1::1]:9");
        let payload: Vec<u8> = (0..payload_bytes).map(|n| (n / 8) as u8).collect();
        build::udp(from.parse().unwrap(), to.parse().unwrap(), &payload)
    }

    #[test]
    fn pieces_put_together_are_the_packet() {
        for (payload_bytes, mtu_bytes) in
            [(0, 1_280), (1_232, 1_280), (1_233, 1_280), (4_000, 1_500), (65_527, 1_500)]
        {
            let whole = packet(payload_bytes);
            let pieces = pieces(&whole, mtu_bytes, 77);
            assert!(pieces.iter().all(|piece| piece.len() <= usize::from(mtu_bytes)));
            assert_eq!(pieces.len() == 1, whole.len() <= usize::from(mtu_bytes));
            if pieces.len() == 1 {
                assert_eq!(pieces, vec![whole]);
                continue;
            }
            let mut table = Reassembler::new(Settings::default());
            let mut last = None;
            for piece in pieces.iter().rev() {
                let header = Header::read_ipv6(piece).expect("a sound piece");
                assert_ne!(header.notes & FRAGMENT, 0);
                last = Some(table.push(Time::ZERO, 0, piece));
            }
            assert_eq!(last, Some(Outcome::Whole(whole)), "{payload_bytes} over {mtu_bytes}");
        }
    }

    #[test]
    fn truncated_packets_have_no_fragments() {
        assert!(pieces(&[0x60; 39], 1_280, 1).is_empty());
        assert!(pieces(&packet(5)[..50], 1_280, 1).is_empty());
    }
}
