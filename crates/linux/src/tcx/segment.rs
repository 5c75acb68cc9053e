//! Segments: makes frames from the pieces of a packet that its host left unsegmented.
//!
//! A host whose segmentation offload is on sends packets of up to 64 KiB, with one set of headers, and
//! specifies how much payload each segment is to have. The program at the hook cuts: each slot holds
//! the headers of the whole and one piece. What differs from segment to segment is written here, as a
//! card does it:
//!
//! | field | segment *n* |
//! |---|---|
//! | length (IPv4, IPv6, UDP) | that of the segment |
//! | identification (IPv4) | + *n*, and the header's checksum follows |
//! | sequence number (TCP) | + *n* · payload of a segment |
//! | FIN and PSH | in the last alone |
//! | CWR | in the first alone (RFC 3168, 6.1.2) |
//! | checksum (TCP, UDP) | the sum of the pseudo-header: still to be completed, as in the whole |

use nilometer_wire::checksum::internet_checksum;

use super::super::partial_checksum::pseudo_header_sum;

/// Which piece of its packet a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Its number, from zero.
    pub(super) index: u16,
    /// Bytes of payload in each but the last.
    pub(super) size: u16,
    /// Whether it is the last.
    pub(super) is_last: bool,
}

const ETHERNET_BYTES: usize = 14;
const TCP: u8 = 6;
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// Writes the headers of a segment into `frame`, which has those of the whole packet and its piece.
/// False if they are not TCP or UDP directly behind IPv4 or IPv6; the frame is then unusable.
pub(super) fn finish(frame: &mut [u8], cut: Cut) -> bool {
    let Some((_, packet)) = frame.split_at_mut_checked(ETHERNET_BYTES) else { return false };
    let Some((header_bytes, protocol)) = finish_network(packet, cut) else { return false };
    let Some((network, transport)) = packet.split_at_mut_checked(header_bytes) else {
        return false;
    };
    let bytes = transport.len();
    let (at, is_open) = match protocol {
        TCP => (finish_tcp(transport, cut), true),
        _ => (finish_udp(transport), transport.get(6..8) != Some(&[0, 0])),
    };
    let Some(at) = at else { return false };
    if is_open {
        let sum = pseudo_header_sum(network, protocol, bytes);
        transport[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    true
}

/// Length and identification; where the transport header begins, and its protocol.
fn finish_network(packet: &mut [u8], cut: Cut) -> Option<(usize, u8)> {
    let bytes = packet.len();
    match packet.first()? >> 4 {
        4 => {
            let header_bytes = usize::from(packet[0] & 0xf) * 4;
            let header = packet.get_mut(..header_bytes).filter(|header| header.len() >= 20)?;
            header[2..4].copy_from_slice(&(bytes as u16).to_be_bytes());
            let id = u16::from_be_bytes([header[4], header[5]]).wrapping_add(cut.index);
            header[4..6].copy_from_slice(&id.to_be_bytes());
            header[10..12].fill(0);
            let checksum = internet_checksum(&[&header[..]]);
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            Some((header_bytes, header[9]))
        }
        6 => {
            let header: &mut [u8; 40] = packet.first_chunk_mut()?;
            header[4..6].copy_from_slice(&((bytes - 40) as u16).to_be_bytes());
            Some((40, header[6]))
        }
        _ => None,
    }
}

/// Sequence number and flags; where the checksum stands.
fn finish_tcp(segment: &mut [u8], cut: Cut) -> Option<usize> {
    let header: &mut [u8; 20] = segment.first_chunk_mut()?;
    let sequence = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    let sequence = sequence.wrapping_add(u32::from(cut.index) * u32::from(cut.size));
    header[4..8].copy_from_slice(&sequence.to_be_bytes());
    if !cut.is_last {
        header[13] &= !(FIN | PSH);
    }
    if cut.index > 0 {
        header[13] &= !CWR;
    }
    Some(16)
}

/// Length; where the checksum stands.
fn finish_udp(datagram: &mut [u8]) -> Option<usize> {
    let bytes = datagram.len() as u16;
    datagram.get_mut(4..6)?.copy_from_slice(&bytes.to_be_bytes());
    (bytes >= 8).then_some(6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partial_checksum::partial_checksum;
    use nilometer_stat::Rng;
    use nilometer_wire::checksum::Checksum;
    use std::net::IpAddr;

    /// The packet that is left to be cut, the length of its headers, and its payload.
    struct Whole {
        headers: Vec<u8>,
        payload: Vec<u8>,
        ends: (IpAddr, IpAddr),
        transport_at: usize,
    }

    fn whole(rng: &mut Rng, version: u8, protocol: u8) -> Whole {
        let payload: Vec<u8> = (0..1 + rng.below(9_000)).map(|_| rng.next_u64() as u8).collect();
        let mut headers = vec![2; 12];
        let transport = if protocol == TCP { 20 + 4 * rng.below(11) as usize } else { 8 };
        let ends: (IpAddr, IpAddr) = if version == 4 {
            let options = 4 * rng.below(11) as usize;
            headers.extend([8, 0, 0x45 + options as u8 / 4, 0]);
            headers.extend(((20 + options + transport + payload.len()) as u16).to_be_bytes());
            headers.extend((rng.next_u64() as u16).to_be_bytes());
            headers.extend([0x40, 0, 64, protocol, 0, 0, 198, 18, 0, 1, 198, 19, 0, 2]);
            headers.extend(vec![1; options]);
            ([198, 18, 0, 1].into(), [198, 19, 0, 2].into())
        } else {
            headers.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            headers.extend(((transport + payload.len()) as u16).to_be_bytes());
            headers.extend([protocol, 64]);
            headers.extend([0xfd; 16].iter().chain(&[0xfe; 16]));
            ([0xfd; 16].into(), [0xfe; 16].into())
        };
        let transport_at = headers.len();
        let mut header: Vec<u8> = (0..transport).map(|_| rng.next_u64() as u8).collect();
        match protocol {
            TCP => header[12] = (transport as u8 / 4) << 4,
            // Zero would mean that there is no checksum.
            _ => header[6] |= 1,
        }
        headers.extend(header);
        Whole { headers, payload, ends, transport_at }
    }

    /// Puts segments together again, and holds every header against its packet's.
    fn check(whole: &Whole, frames: &[Vec<u8>], size: usize, protocol: u8) {
        let mut payload = Vec::new();
        let (at, headers) = (whole.transport_at, &whole.headers);
        for (number, frame) in frames.iter().enumerate() {
            let is_last = number + 1 == frames.len();
            let mut frame = frame.clone();
            assert_eq!(frame.len(), headers.len() + size.min(whole.payload.len() - number * size));
            partial_checksum(&frame).expect("an open checksum").complete(&mut frame);
            let mut sum = Checksum::new();
            sum.add_pseudo_header(whole.ends.0, whole.ends.1, protocol, (frame.len() - at) as u32);
            sum.add(&frame[at..]);
            assert_eq!(sum.finish(), 0, "segment {number}");
            if frame[12] == 8 {
                assert_eq!(internet_checksum(&[&frame[14..at]]), 0);
                let id = |frame: &[u8]| u16::from_be_bytes([frame[18], frame[19]]);
                assert_eq!(id(&frame).wrapping_sub(id(headers)), number as u16);
            }
            if protocol == TCP {
                let sequence = |frame: &[u8]| {
                    u32::from_be_bytes(frame[at + 4..at + 8].try_into().expect("four bytes"))
                };
                let moved = sequence(&frame).wrapping_sub(sequence(headers));
                assert_eq!(moved, payload.len() as u32);
                let (first, last) = (u8::from(number == 0) * CWR, u8::from(is_last) * (FIN | PSH));
                let always = !(CWR | FIN | PSH);
                assert_eq!(frame[at + 13], headers[at + 13] & (always | first | last));
            }
            payload.extend_from_slice(&frame[headers.len()..]);
        }
        assert_eq!(payload, whole.payload);
    }

    #[test]
    fn segments_are_the_packet_again() {
        let mut rng = Rng::new(11, 3, 0);
        for round in 0..2_000 {
            let (version, protocol) = [(4, TCP), (4, 17), (6, TCP), (6, 17)][round % 4];
            let whole = whole(&mut rng, version, protocol);
            let size = 100 + rng.below(1_400) as usize;
            let pieces: Vec<_> = whole.payload.chunks(size).collect();
            let frames: Vec<Vec<u8>> = (0u16..)
                .zip(&pieces)
                .map(|(index, piece)| {
                    let mut frame = [&whole.headers[..], piece].concat();
                    let is_last = usize::from(index) + 1 == pieces.len();
                    assert!(finish(&mut frame, Cut { index, size: size as u16, is_last }));
                    frame
                })
                .collect();
            check(&whole, &frames, size, protocol);
        }
    }

    #[test]
    fn invalid_segments_are_refused_and_random_bytes_are_handled() {
        let mut rng = Rng::new(11, 3, 1);
        let cut = Cut { index: 3, size: 700, is_last: false };
        assert!(!finish(&mut [], cut) && !finish(&mut [0x45; 30], cut));
        for _ in 0..20_000 {
            let mut noise: Vec<u8> = (0..rng.below(120)).map(|_| rng.next_u64() as u8).collect();
            let bytes = noise.len();
            finish(&mut noise, cut);
            assert_eq!(noise.len(), bytes);
        }
    }
}
