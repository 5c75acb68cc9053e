//! Fragmentation of IPv4 packets that are larger than the next link takes.
//!
//! RFC 791, 3.2, as RFC 1812 requires it (4.2.2.7): as few fragments as the MTU allows, in the order
//! of their offsets, each but the last filled to a multiple of eight bytes. A fragment is cut again
//! like a whole packet: its offset is added to, and its last piece keeps its more-fragments flag.
//!
//! The first piece keeps all options. The later ones keep those whose copied flag is set (source
//! routes, security, router alert), padded to a whole word, so their headers may be shorter and
//! their share of the payload larger. Options were checked before; the copy ends at any that cannot
//! be read here.
//!
//! A packet that says "don't fragment" is refused, and so is every IPv6 packet: its router answers
//! Packet Too Big (RFC 8200, 5). A fragment is also refused if its pieces would lie past the highest
//! offset, 65,528: its datagram could never be put together, and a wrapped offset would overwrite
//! the datagram's beginning.

use alloc::vec::Vec;

use nilometer_wire::checksum::internet_checksum;

use super::{ipv4_extent, word};

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;
const HEADER_BYTES_MAX: usize = 60;

/// Why a packet was not cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It must not be: fragmentation needed and DF set, with the MTU of the next link (RFC 1191).
    DontFragment,
    /// Not eight bytes of it fit behind its header.
    MtuTooSmall,
    /// A piece would lie beyond the largest offset.
    OffsetTooLarge,
    /// It is no IPv4 packet with its length in order.
    Unsound,
}

/// The pieces of a packet, in order.
#[derive(Clone, Debug)]
pub struct Fragments<'a> {
    packet: &'a [u8],
    header_bytes: usize,
    later: [u8; HEADER_BYTES_MAX],
    later_bytes: usize,
    mtu_bytes: usize,
    payload_at: usize,
    first_offset: u16,
    flags: u16,
}

impl<'a> Fragments<'a> {
    /// Cuts the IPv4 `packet` (padding behind it is left out) for a link that takes `mtu_bytes`. One
    /// that fits is its own only piece.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn of(packet: &'a [u8], mtu_bytes: u16) -> Result<Fragments<'a>, Refusal> {
        let (header_bytes, total_bytes) = ipv4_extent(packet).ok_or(Refusal::Unsound)?;
        let mtu_bytes = usize::from(mtu_bytes);
        let flags = word(packet, 6);
        let first_offset = flags & OFFSET;
        if total_bytes > mtu_bytes {
            if flags & DONT_FRAGMENT != 0 {
                return Err(Refusal::DontFragment);
            }
            if header_bytes + 8 > mtu_bytes {
                return Err(Refusal::MtuTooSmall);
            }
            let last_unit = usize::from(first_offset) + (total_bytes - header_bytes - 1) / 8;
            if last_unit > usize::from(OFFSET) {
                return Err(Refusal::OffsetTooLarge);
            }
        }
        let (later, later_bytes) = header_of_later(&packet[..header_bytes]);
        Ok(Fragments {
            packet: &packet[..total_bytes],
            header_bytes,
            later,
            later_bytes,
            mtu_bytes,
            payload_at: header_bytes,
            first_offset,
            flags,
        })
    }

    /// Writes the next piece into `piece`, which is emptied first; false when there is none.
    pub fn next_into(&mut self, piece: &mut Vec<u8>) -> bool {
        let is_first = self.payload_at == self.header_bytes;
        let left = self.packet.len() - self.payload_at;
        if left == 0 && !(is_first && self.packet.len() == self.header_bytes) {
            return false;
        }
        piece.clear();
        if is_first && self.packet.len() <= self.mtu_bytes {
            piece.extend_from_slice(self.packet);
            self.payload_at = self.packet.len();
            self.header_bytes = 0; // a packet without payload comes but once
            return true;
        }
        let header = match is_first {
            true => &self.packet[..self.header_bytes],
            false => &self.later[..self.later_bytes],
        };
        let room = (self.mtu_bytes - header.len()) & !7;
        let (bytes, is_last) =
            if left <= self.mtu_bytes - header.len() { (left, true) } else { (room, false) };
        let moved = (self.payload_at - self.header_bytes) / 8;
        let kept = self.flags & !OFFSET;
        let more = if is_last { kept } else { kept | MORE_FRAGMENTS };
        let offset = more | (self.first_offset + moved as u16);
        piece.extend_from_slice(header);
        piece.extend_from_slice(&self.packet[self.payload_at..self.payload_at + bytes]);
        self.payload_at += bytes;
        let total_bytes = piece.len() as u16;
        piece[2..4].copy_from_slice(&total_bytes.to_be_bytes());
        piece[6..8].copy_from_slice(&offset.to_be_bytes());
        sum_header(piece);
        true
    }
}

impl Iterator for Fragments<'_> {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let mut piece = Vec::new();
        self.next_into(&mut piece).then_some(piece)
    }
}

/// Fills in the checksum of the IPv4 header that begins `packet`, whose length is sound.
pub(super) fn sum_header(packet: &mut [u8]) {
    let header_bytes = usize::from(packet[0] & 0x0f) * 4;
    packet[10..12].fill(0);
    let checksum = internet_checksum(&[&packet[..header_bytes]]);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// The header of the pieces after the first: of the options, those that are copied.
fn header_of_later(header: &[u8]) -> ([u8; HEADER_BYTES_MAX], usize) {
    const COPIED: u8 = 0x80;
    let mut later = [0; HEADER_BYTES_MAX];
    later[..20].copy_from_slice(&header[..20]);
    let mut bytes = 20;
    let mut rest = &header[20..];
    while let [kind, after @ ..] = rest {
        let length = match (kind, after) {
            (0, _) => break,
            (1, _) => 1,
            (_, [length, ..]) => usize::from(*length),
            (_, []) => break,
        };
        let Some(option) = rest.get(..length).filter(|_| length > usize::from(*kind != 1)) else {
            break;
        };
        if kind & COPIED != 0 {
            later[bytes..bytes + length].copy_from_slice(option);
            bytes += length;
        }
        rest = &rest[length..];
    }
    bytes = bytes.next_multiple_of(4);
    later[0] = 0x40 | (bytes / 4) as u8;
    (later, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::Header;
    use alloc::collections::BTreeMap;
    use alloc::vec;
    use nilometer_stat::Rng;

    const PURPOSE: u32 = u32::from_be_bytes(*b"frag");

    /// An IPv4 packet with `options`, `payload_bytes` of random payload and this word of flags.
    fn packet(rng: &mut Rng, options: &[u8], payload_bytes: usize, flags: u16) -> Vec<u8> {
        let mut packet = vec![0x45, 0x20, 0, 0, 0x12, 0x34, 0, 0, 64, 17, 0, 0];
        packet.extend([198, 18, 0, 1, 198, 18, 1, 2]);
        packet.extend(options);
        packet.resize(packet.len().next_multiple_of(4), 0);
        packet[0] = 0x40 | (packet.len() / 4) as u8;
        packet.extend((0..payload_bytes).map(|_| rng.next_u64() as u8));
        let total_bytes = (packet.len() as u16).to_be_bytes();
        packet[2..4].copy_from_slice(&total_bytes);
        packet[6..8].copy_from_slice(&flags.to_be_bytes());
        sum_header(&mut packet);
        packet
    }

    /// The twin: puts the payload of fragments together byte by byte at their offsets, and notes
    /// whether the last fragment was among them.
    fn assembled(pieces: &[Vec<u8>]) -> (BTreeMap<usize, u8>, bool) {
        let (mut bytes, mut has_end) = (BTreeMap::new(), false);
        for piece in pieces {
            let header_bytes = usize::from(piece[0] & 15) * 4;
            let at = usize::from(word(piece, 6) & OFFSET) * 8;
            for (index, byte) in piece[header_bytes..].iter().enumerate() {
                assert_eq!(bytes.insert(at + index, *byte), None, "two pieces overlap");
            }
            has_end |= word(piece, 6) & MORE_FRAGMENTS == 0;
        }
        (bytes, has_end)
    }

    #[test]
    fn pieces_put_together_are_the_packet() {
        let mut rng = Rng::new(1, PURPOSE, 0);
        for _ in 0..3_000 {
            let options = vec![7; 0].into_iter().chain([1; 40]).take(rng.below(41) as usize);
            let options: Vec<u8> = options.collect();
            let payload_bytes = rng.below(3000) as usize;
            let offset = [0, rng.below(7000) as u16][rng.below(2) as usize];
            let flags = offset | [0, MORE_FRAGMENTS][rng.below(2) as usize];
            let mut whole = packet(&mut rng, &options, payload_bytes, flags);
            let header_bytes = usize::from(whole[0] & 15) * 4;
            let mtu_bytes = 68 + rng.below(1500) as u16;
            whole.extend([9; 6]); // padding of the link
            let pieces: Vec<Vec<u8>> = Fragments::of(&whole, mtu_bytes).expect("cut").collect();
            for piece in &pieces {
                assert!(piece.len() <= usize::from(mtu_bytes));
                let header = Header::read_ipv4(piece).expect("a sound packet");
                assert_eq!(usize::from(header.ip_bytes), piece.len());
            }
            let (bytes, has_end) = assembled(&pieces);
            assert_eq!(has_end, flags & MORE_FRAGMENTS == 0);
            let payload = &whole[header_bytes..header_bytes + payload_bytes];
            assert!(bytes.values().eq(payload));
            let at = usize::from(offset) * 8;
            assert!(bytes.keys().copied().eq(at..at + payload_bytes));
        }
    }

    /// No cutting into pieces that each fit has fewer of them.
    #[test]
    fn pieces_are_as_few_as_can_be_and_in_order() {
        let mut rng = Rng::new(2, PURPOSE, 0);
        for payload_bytes in 1..2000 {
            let whole = packet(&mut rng, &[], payload_bytes, 0);
            let pieces: Vec<Vec<u8>> = Fragments::of(&whole, 300).expect("cut").collect();
            let room = (300 - 20) / 8 * 8;
            assert_eq!(pieces.len(), payload_bytes.div_ceil(room));
            assert!(pieces.is_sorted_by_key(|piece| word(piece, 6) & OFFSET));
        }
    }

    #[test]
    fn a_piece_cut_again_is_still_of_its_datagram() {
        let mut rng = Rng::new(3, PURPOSE, 0);
        let whole = packet(&mut rng, &[], 4000, 0);
        let once: Vec<Vec<u8>> = Fragments::of(&whole, 1500).expect("cut").collect();
        let twice: Vec<Vec<u8>> =
            once.iter().flat_map(|piece| Fragments::of(piece, 576).expect("cut")).collect();
        assert_eq!((once.len(), twice.len()), (3, 8));
        let (bytes, has_end) = assembled(&twice);
        assert!(has_end && bytes.values().eq(&whole[20..]));
        assert_eq!(twice.iter().filter(|piece| word(piece, 6) & MORE_FRAGMENTS == 0).count(), 1);
    }

    #[test]
    fn only_copied_options_go_into_later_pieces() {
        let record_route = [7, 7, 4, 0, 0, 0, 0];
        let alert = [148, 4, 0, 0];
        let options = [&record_route[..], &[1], &alert[..]].concat();
        let whole = packet(&mut Rng::new(4, PURPOSE, 0), &options, 200, 0);
        let pieces: Vec<Vec<u8>> = Fragments::of(&whole, 100).expect("cut").collect();
        assert_eq!(pieces[0][20..32], options);
        assert_eq!(pieces.len(), 3);
        for piece in &pieces[1..] {
            assert_eq!((piece[0], &piece[20..24]), (0x46, &alert[..]));
        }
    }

    #[test]
    fn packets_that_may_not_be_fragmented_are_refused() {
        let mut rng = Rng::new(5, PURPOSE, 0);
        let bold = packet(&mut rng, &[], 1000, DONT_FRAGMENT);
        assert_eq!(Fragments::of(&bold, 1019).unwrap_err(), Refusal::DontFragment);
        assert_eq!(Fragments::of(&bold, 1020).expect("it fits").count(), 1);
        let plain = packet(&mut rng, &[], 1000, 0);
        assert_eq!(Fragments::of(&plain, 27).unwrap_err(), Refusal::MtuTooSmall);
        assert_eq!(Fragments::of(&plain, 28).expect("cut").count(), 125);
        let far = packet(&mut rng, &[], 1000, 8191 - 123);
        assert_eq!(Fragments::of(&far, 576).unwrap_err(), Refusal::OffsetTooLarge);
        let far = packet(&mut rng, &[], 1000, 8191 - 124);
        assert_eq!(Fragments::of(&far, 576).expect("cut").count(), 2);
        assert_eq!(Fragments::of(&plain[..1019], 576).unwrap_err(), Refusal::Unsound);
        assert_eq!(Fragments::of(&[0x60; 80], 60).unwrap_err(), Refusal::Unsound);
        let empty = packet(&mut rng, &[], 0, 0);
        assert_eq!(Fragments::of(&empty, 576).expect("whole").collect::<Vec<_>>(), [empty]);
    }

    #[test]
    fn any_bytes_are_cut_or_refused() {
        let mut rng = Rng::new(6, PURPOSE, 0);
        let mut pieces = 0;
        for _ in 0..200_000 {
            let mut bytes = packet(&mut rng, &[148, 4, 0, 0, 7, 7, 4], 90, 0);
            for _ in 0..1 + rng.below(4) {
                let at = rng.below(36) as usize;
                bytes[at] = rng.next_u64() as u8;
            }
            let cut = rng.below(bytes.len() as u64 + 1) as usize;
            let mtu_bytes = rng.below(120) as u16;
            if let Ok(fragments) = Fragments::of(&bytes[..[cut, bytes.len()][cut % 2]], mtu_bytes) {
                for piece in fragments {
                    // A packet that fits is passed on as it is, checksum and all.
                    let is_whole = piece == bytes[..piece.len()];
                    assert!(piece.len() <= usize::from(mtu_bytes));
                    assert!(is_whole || Header::read_ipv4(&piece).is_ok());
                    pieces += 1;
                }
            }
        }
        assert!(pieces > 100_000, "only {pieces} pieces");
    }
}
