//! Test frames: UDP over IPv4 over Ethernet with a tag and incrementing octets, checksums right, made in one pass.
//!
//! ```text
//!   0          14       34    42         58
//!   Ethernet   IPv4     UDP   tag        0, 1, 2, … 255, 0, …
//! ```
//!
//! The frames of a flow differ only in lengths and the tag, so each flow keeps its headers and their sums, to which
//! the sums of tag and filling are added (RFC 1624).

use alloc::vec::Vec;

use super::flows::{FlowAddresses, Flows};
pub use super::lengths::{FCS_BYTES, FRAME_BYTES_MAX, FRAME_BYTES_MIN};
use super::schedule::Scheduled;
use super::tag::{TAG_BYTES, Tag};

/// Where a frame has its tag.
pub const TAG_AT: usize = 42;

const ETHERNET_BYTES: usize = 14;
const TIME_TO_LIVE: u8 = 64;
const UDP: u8 = 17;
const FILLING_AT: usize = TAG_AT + TAG_BYTES;
const FILLING_MAX: usize = (FRAME_BYTES_MAX - FCS_BYTES) as usize - FILLING_AT;

/// Two link-layer addresses: the sender's, and the next hop's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The sender's.
    pub source: [u8; 6],
    /// The receiver's or the gateway's.
    pub destination: [u8; 6],
}

/// Makes the frames of one stream, and recognises them.
#[derive(Debug)]
pub struct FrameMaker {
    headers: Vec<[u8; TAG_AT]>,
    /// Of each flow: the sum of its IPv4 header and that of its UDP header with the pseudo-header, without lengths.
    sums: Vec<[u32; 2]>,
    filling: Vec<u8>,
    /// The sum of the first bytes of the filling, by how many words they have.
    filling_sums: Vec<u32>,
    run: u32,
    stream: u8,
}

impl FrameMaker {
    /// For a stream of `count` flows.
    pub fn new(link: Link, flows: &Flows, count: u32, run: u32, stream: u8) -> FrameMaker {
        let addresses = (0..count).map(|flow| flows.of(flow));
        let headers: Vec<[u8; TAG_AT]> = addresses.map(|one| header(link, &one)).collect();
        let sums = headers.iter().map(|header| {
            let ip = sum(&header[ETHERNET_BYTES..34]);
            [ip, sum(&header[26..34]) + u32::from(UDP) + sum(&header[34..TAG_AT])]
        });
        let filling: Vec<u8> = (0..FILLING_MAX).map(|at| at as u8).collect();
        let mut filling_sums = alloc::vec![0];
        for pair in filling.chunks(2) {
            filling_sums.push(filling_sums[filling_sums.len() - 1] + sum(pair));
        }
        let sums = sums.collect();
        FrameMaker { headers, sums, filling, filling_sums, run, stream }
    }

    /// Appends the bytes of a frame, without its check sequence, to `out`.
    ///
    /// # Panics
    /// When there is no such flow, or a test frame cannot have that size.
    pub fn write(&self, sequence: u64, one: &Scheduled, out: &mut Vec<u8>) {
        let bytes = usize::from(one.frame_bytes - FCS_BYTES);
        let filled = bytes - FILLING_AT;
        let [ip_sum, udp_sum] = self.sums[one.flow as usize];
        let mut header = self.headers[one.flow as usize];
        let ip_bytes = (bytes - ETHERNET_BYTES) as u16;
        let udp_bytes = ip_bytes - 20;
        header[16..18].copy_from_slice(&ip_bytes.to_be_bytes());
        header[24..26].copy_from_slice(&(!fold(ip_sum + u32::from(ip_bytes))).to_be_bytes());
        header[38..40].copy_from_slice(&udp_bytes.to_be_bytes());
        let tag = Tag { run: self.run, stream: self.stream, sequence }.bytes();
        // An odd last byte stands for a word with a zero behind it, and its neighbour in the filling for none.
        let odd = if filled % 2 == 1 { u32::from(self.filling[filled - 1]) << 8 } else { 0 };
        let filling = self.filling_sums[filled / 2] + odd;
        let check = !fold(udp_sum + 2 * u32::from(udp_bytes) + sum(&tag) + filling);
        // Zero would mean that there is no checksum (RFC 768).
        let check = if check == 0 { 0xffff } else { check };
        header[40..42].copy_from_slice(&check.to_be_bytes());
        out.extend_from_slice(&header);
        out.extend_from_slice(&tag);
        out.extend_from_slice(&self.filling[..filled]);
    }

    /// Whether a received frame is the one that was sent, except for what a router changes: link-layer
    /// addresses, time to live, type of service and the header's checksum, which has to be right. Ethernet's
    /// padding is ignored. `scratch` is for the frame to compare with.
    pub fn is_intact(
        &self,
        sequence: u64,
        one: &Scheduled,
        frame: &[u8],
        scratch: &mut Vec<u8>,
    ) -> bool {
        scratch.clear();
        self.write(sequence, one, scratch);
        if frame.len() < scratch.len() {
            return false;
        }
        let same = |from: usize, to: usize| frame[from..to] == scratch[from..to];
        same(12, 15)
            && same(16, 22)
            && same(23, 24)
            && same(26, scratch.len())
            && fold(sum(&frame[ETHERNET_BYTES..34])) == 0xffff
    }

    /// The run in its tags.
    pub fn run(&self) -> u32 {
        self.run
    }

    /// The stream in its tags.
    pub fn stream(&self) -> u8 {
        self.stream
    }
}

/// Headers without lengths and checksums.
fn header(link: Link, one: &FlowAddresses) -> [u8; TAG_AT] {
    let mut header = [0; TAG_AT];
    header[..6].copy_from_slice(&link.destination);
    header[6..12].copy_from_slice(&link.source);
    header[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
    // Don't fragment.
    header[20] = 0x40;
    header[22..24].copy_from_slice(&[TIME_TO_LIVE, UDP]);
    header[26..30].copy_from_slice(&one.source.octets());
    header[30..34].copy_from_slice(&one.destination.octets());
    header[34..36].copy_from_slice(&one.source_port.to_be_bytes());
    header[36..38].copy_from_slice(&one.destination_port.to_be_bytes());
    header
}

/// The sum of the 16-bit words of some bytes.
fn sum(bytes: &[u8]) -> u32 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    bytes.chunks(2).map(word).sum()
}

/// Carries into 16 bits.
fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::super::flows::Network;
    use super::*;
    use nilometer_stat::Rng;
    use nilometer_wire::Time;
    use nilometer_wire::checksum::{ipv4_header_checksum_ok, transport_checksum_ok};

    fn maker() -> FrameMaker {
        let network = |address: [u8; 4], length| Network { address: address.into(), length };
        let (from, to) = (network([198, 18, 0, 0], 16), network([198, 19, 0, 0], 17));
        let link = Link { source: [2; 6], destination: [4; 6] };
        FrameMaker::new(link, &Flows { from, to, seed: 7 }, 50, 0xdead_beef, 1)
    }

    fn scheduled(frame_bytes: u16, flow: u32) -> Scheduled {
        Scheduled { at: Time::ZERO, frame_bytes, flow }
    }

    #[test]
    fn every_size_has_its_length_and_right_checksums() {
        let (maker, mut rng) = (maker(), Rng::new(28, 2, 0));
        for frame_bytes in FRAME_BYTES_MIN..=FRAME_BYTES_MAX {
            let (sequence, mut frame) = (rng.next_u64() >> 8, Vec::new());
            let one = scheduled(frame_bytes, u32::from(frame_bytes) % 50);
            maker.write(sequence, &one, &mut frame);
            assert_eq!(frame.len() + 4, usize::from(frame_bytes));
            let packet = &frame[ETHERNET_BYTES..];
            assert_eq!(ipv4_header_checksum_ok(packet), Some(true));
            assert_eq!(transport_checksum_ok(packet), Some(true), "{frame_bytes}");
            let tag: &[u8; TAG_BYTES] = frame[TAG_AT..][..TAG_BYTES].try_into().expect("a tag");
            let tag = Tag::find(tag).expect("a tag").tag;
            assert_eq!(tag, Tag { run: 0xdead_beef, stream: 1, sequence });
        }
    }

    #[test]
    fn a_router_leaves_frames_intact_and_every_other_bit_counts() {
        let (maker, mut scratch) = (maker(), Vec::new());
        for frame_bytes in [64, 65, 92, 512] {
            let (one, mut sent) = (scheduled(frame_bytes, 9), Vec::new());
            maker.write(77, &one, &mut sent);
            let mut intact = |frame: &[u8]| maker.is_intact(77, &one, frame, &mut scratch);
            let mut routed = sent.clone();
            routed[..12].fill(9);
            routed[22] -= 1;
            // (RFC 1624: one less in the high byte of a word is 0x0100 more in the complement of the sum.)
            let check = u32::from(u16::from_be_bytes([routed[24], routed[25]])) + 0x0100;
            routed[24..26].copy_from_slice(&fold(check).to_be_bytes());
            assert!(intact(&sent) && intact(&routed));
            let padded = [&sent[..], &[0; 3]].concat();
            assert!(intact(&padded) && !intact(&sent[..sent.len() - 1]));
            for bit in 8 * 12..8 * sent.len() {
                let mut wrong = routed.clone();
                wrong[bit / 8] ^= 1 << (bit % 8);
                assert!(!intact(&wrong), "bit {bit} of {frame_bytes} bytes");
            }
        }
    }
}
