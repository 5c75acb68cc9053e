//! Partial checksums: recognises packets whose transport checksum their kernel left to a card.
//!
//! A sender with checksum offload writes the sum of the pseudo-header (addresses, protocol, length;
//! RFC 9293 section 3.1) into the checksum field and leaves the rest to the hardware. On a veth
//! there is no hardware; the receiving side knows from the kernel's own metadata that the packet
//! never left the machine. A program that takes the frame out and puts it in again loses the
//! metadata, and a packet with a wrong checksum arrives.
//!
//! The metadata can be restored without reading the payload. The sum of the pseudo-header costs a
//! dozen additions, and a field that equals it shows that nothing else was added yet. A complete
//! checksum is the complement of that sum and everything behind it, so it has this value once in
//! 65,536 packets, if the rest of the segment sums to the right number. Then the kernel computes
//! again what was right before and writes the same value; all that is lost, for this packet, is the
//! detection of damage to its payload on the way.

use nilometer_wire::checksum::internet_checksum;

/// Where a checksum is still to be put, in the manner of virtio and AF_XDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartialChecksum {
    /// Where the bytes to sum begin, from the frame's beginning.
    pub start: u16,
    /// Where the checksum stands, from `start`.
    pub offset: u16,
}

impl PartialChecksum {
    /// Sums what is left and puts the checksum into `frame`, in which this was found, as the kernel would.
    pub fn complete(&self, frame: &mut [u8]) {
        let start = usize::from(self.start);
        // UDP writes zero as its complement (RFC 768), and for TCP the two are one number.
        let sum = match internet_checksum(&[&frame[start..]]) {
            0 => 0xffff,
            sum => sum,
        };
        let at = start + usize::from(self.offset);
        frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN: [u16; 2] = [0x8100, 0x88a8];
const VLAN_TAGS_MAX: usize = 2;
const EXTENSIONS_MAX: usize = 4;
const TCP: u8 = 6;
const UDP: u8 = 17;
const HOP_BY_HOP: u8 = 0;
const DESTINATION_OPTIONS: u8 = 60;

/// Where the checksum of an Ethernet frame is still to be written; `None` if it is not TCP or UDP
/// in a whole IP packet, or if the checksum is complete already.
pub fn partial_checksum(frame: &[u8]) -> Option<PartialChecksum> {
    let mut at = 12;
    let mut ether_type = word(frame, at)?;
    for _ in 0..VLAN_TAGS_MAX {
        if VLAN.contains(&ether_type) {
            at += 4;
            ether_type = word(frame, at)?;
        }
    }
    let ip = at + 2;
    match ether_type {
        IPV4 => ipv4(frame, ip),
        IPV6 => ipv6(frame, ip),
        _ => None,
    }
}

fn ipv4(frame: &[u8], ip: usize) -> Option<PartialChecksum> {
    const ADDRESSES: usize = 12;
    let header: &[u8; 20] = frame.get(ip..)?.first_chunk()?;
    let header_bytes = usize::from(header[0] & 0xf) * 4;
    let total_bytes = usize::from(word(header, 2)?);
    let is_fragment = word(header, 6)? & 0x3fff != 0;
    if is_fragment || header_bytes < 20 || total_bytes < header_bytes {
        return None;
    }
    let sum = sum(&header[ADDRESSES..]);
    compare(frame, ip + header_bytes, header[9], total_bytes - header_bytes, sum)
}

fn ipv6(frame: &[u8], ip: usize) -> Option<PartialChecksum> {
    const ADDRESSES: usize = 8;
    let header: &[u8; 40] = frame.get(ip..)?.first_chunk()?;
    let mut next = header[6];
    let mut bytes = usize::from(word(header, 4)?);
    let mut at = ip + 40;
    // A routing header would change the destination that counts: such packets are left alone.
    for _ in 0..EXTENSIONS_MAX {
        if next == HOP_BY_HOP || next == DESTINATION_OPTIONS {
            let length = 8 + 8 * usize::from(*frame.get(at + 1)?);
            next = frame[at];
            at += length;
            bytes = bytes.checked_sub(length)?;
        }
    }
    compare(frame, at, next, bytes, sum(&header[ADDRESSES..]))
}

/// Completes the sum of the pseudo-header and holds it against the field.
fn compare(
    frame: &[u8],
    start: usize,
    protocol: u8,
    bytes: usize,
    sum: u32,
) -> Option<PartialChecksum> {
    let (offset, header_bytes) = match protocol {
        TCP => (16, 20),
        UDP => (6, 8),
        _ => return None,
    };
    if bytes < header_bytes || start + bytes > frame.len() {
        return None;
    }
    let pseudo_header = fold(sum + u32::from(protocol) + bytes as u32);
    let found = word(frame, start + offset)?;
    (found == pseudo_header)
        .then_some(PartialChecksum { start: start as u16, offset: offset as u16 })
}

/// The sum of the pseudo-header of a segment of `bytes` bytes, as a checksum's field holds it while the
/// rest is still to be summed. `header` is that of IPv4 or of IPv6.
///
/// # Panics
/// When the header is shorter than such a header is.
pub(super) fn pseudo_header_sum(header: &[u8], protocol: u8, bytes: usize) -> u16 {
    let addresses = if header[0] >> 4 == 4 { &header[12..20] } else { &header[8..40] };
    fold(sum(addresses) + u32::from(protocol) + bytes as u32)
}

/// The sum of the 16-bit words of some addresses.
fn sum(addresses: &[u8]) -> u32 {
    addresses.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum()
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    let pair = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([pair[0], pair[1]]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;
    use nilometer_wire::checksum::Checksum;
    use std::net::IpAddr;

    /// A packet with its checksum left open, and where that is to be found.
    struct Sample {
        frame: Vec<u8>,
        /// The sum of the pseudo-header.
        pseudo_header: u16,
        expected: PartialChecksum,
    }

    fn sample(rng: &mut Rng) -> Sample {
        let mut frame = vec![2; 12];
        for _ in 0..rng.below(3) {
            frame.extend([0x81, 0x00, 0x00, 0x07]);
        }
        let (protocol, offset, header_bytes) =
            if rng.below(2) == 0 { (TCP, 16, 20) } else { (UDP, 6, 8) };
        let segment_bytes = header_bytes + rng.below(100) as usize;
        let mut address = || rng.next_u64().to_be_bytes();
        let (one, other) = ([address(), address()].concat(), [address(), address()].concat());
        let version_six = rng.below(2) == 0;
        let (source, destination): (IpAddr, IpAddr) = if version_six {
            let extension = rng.below(2) == 0;
            let payload = segment_bytes + if extension { 16 } else { 0 };
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend((payload as u16).to_be_bytes());
            frame.extend([if extension { DESTINATION_OPTIONS } else { protocol }, 64]);
            frame.extend(one.iter().chain(&other));
            if extension {
                frame.extend([protocol, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            }
            let bytes = |list: &[u8]| <[u8; 16]>::try_from(list).expect("16 bytes");
            (bytes(&one).into(), bytes(&other).into())
        } else {
            let options = rng.below(3) as usize;
            let total = 20 + 4 * options + segment_bytes;
            frame.extend([0x08, 0x00, 0x45 + options as u8, 0]);
            frame.extend((total as u16).to_be_bytes());
            frame.extend([0, 1, 0x40, 0, 64, protocol, 0, 0]);
            frame.extend(one[..4].iter().chain(&other[..4]));
            frame.extend(vec![1; 4 * options]);
            let bytes = |list: &[u8]| <[u8; 4]>::try_from(&list[..4]).expect("4 bytes");
            (bytes(&one).into(), bytes(&other).into())
        };
        let start = frame.len();
        frame.extend((0..segment_bytes).map(|_| rng.next_u64() as u8));
        let mut checksum = Checksum::new();
        checksum.add_pseudo_header(source, destination, protocol, segment_bytes as u32);
        let open = !checksum.finish();
        frame[start + offset..start + offset + 2].copy_from_slice(&open.to_be_bytes());
        frame.extend(vec![0; rng.below(20) as usize]);
        Sample {
            frame,
            pseudo_header: open,
            expected: PartialChecksum { start: start as u16, offset: offset as u16 },
        }
    }

    #[test]
    fn open_checksums_are_recognised_and_complete_ones_are_not() {
        let mut rng = Rng::new(7, 2, 0);
        let mut mistaken = 0;
        for _ in 0..20_000 {
            let Sample { mut frame, pseudo_header, expected } = sample(&mut rng);
            assert_eq!(partial_checksum(&frame), Some(expected), "{frame:02x?}");
            expected.complete(&mut frame);
            let segment = &frame[usize::from(expected.start)..];
            let sum = internet_checksum(&[&pseudo_header.to_be_bytes(), segment]);
            assert_eq!(sum, 0, "{frame:02x?}");
            mistaken += u32::from(partial_checksum(&frame).is_some());
        }
        assert!(mistaken <= 5, "{mistaken} complete checksums of 20,000 were taken for open ones");
    }

    #[test]
    fn truncated_and_random_frames_are_left_alone() {
        let mut rng = Rng::new(7, 2, 1);
        for _ in 0..200 {
            let Sample { frame, expected, .. } = sample(&mut rng);
            for end in 0..usize::from(expected.start) + 8 {
                assert_eq!(partial_checksum(&frame[..end]), None);
            }
            let mut noise = frame;
            for _ in 0..1_000 {
                let at = rng.below(noise.len() as u64) as usize;
                noise[at] = rng.next_u64() as u8;
                if let Some(found) = partial_checksum(&noise) {
                    assert!(usize::from(found.start + found.offset) + 2 <= noise.len());
                }
            }
        }
        let mut fragment = sample(&mut rng);
        while fragment.frame[12..14] != [8, 0] {
            fragment = sample(&mut rng);
        }
        fragment.frame[20] |= 0x20;
        assert_eq!(partial_checksum(&fragment.frame), None, "a fragment");
    }
}
