//! What a router leaves unchanged in a packet, boiled down to a few words.
//!
//! A router may rewrite the TTL or hop limit, IPv4's header checksum and the two ECN bits (RFC
//! 3168: a congested one marks CE). Everything else of the IP packet is its sender's, so the packet
//! that entered and the one that left are recognised as the same by the rest. Link padding behind
//! the IP packet is cut off first. A device that rewrites more (NAT, a new DSCP, IPv4 options that
//! record the route) changes packets in this sense; the matcher then reports them as corrupted.
//!
//! The invariant bytes are dealt out in words of four bytes, round robin, to eight *lanes*, each
//! hashed on its own; the digest is a hash of the eight. Lanes serve two purposes. They are eight
//! independent chains of multiplications, so a core works on all of them at once. And they localise
//! damage: a packet with a flipped bit still shares seven lanes with its original. Dealing words
//! rather than cutting eight long pieces spreads the headers over all lanes, so that two packets of
//! one flow that differ only in sequence number and checksum already differ in two or three lanes,
//! even when their payloads are the same thousand zeros. The price: damage that runs over more than
//! 13 neighbouring bytes may touch more than four lanes, and such a packet is no longer recognised.
//!
//! Each lane takes a word by `state = rotate((state ^ word) * K, 32)` with an odd `K`. A step is
//! one-to-one, and because the rotation brings the product's high half down, a difference in one
//! word can never be undone by the next word of the lane.

/// How many lanes a packet is dealt to.
pub const LANES: usize = 8;

const WORD: usize = 4;
const ROUND: usize = LANES * WORD;
const STEP: u64 = 0x9fb2_1c65_1e98_df25;
const FOLD: u64 = 0xd6e8_feb8_6659_fd93;
const SEED: u64 = 0x4e69_6c6f_6d65_7465;

/// The invariant part of one IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// Hash of all invariant bytes and the length: equal for the same packet on both sides.
    pub digest: u64,
    /// Length of the IP packet in bytes, as its header has it.
    pub bytes: u32,
    /// Hash of the five-tuple, or of addresses and protocol for fragments and protocols without
    /// ports: packets with equal `flow` are expected to keep their order.
    pub flow: u32,
    /// Hash of each eighth of the invariant bytes.
    pub lanes: [u16; LANES],
}

impl Fingerprint {
    /// The fingerprint of `ip_packet`, which starts at the IP header and may end in link padding.
    ///
    /// Any bytes have one: what is not an IP packet is hashed whole, and its first bytes are its
    /// flow. A snapped packet is hashed as far as it goes, so both sides must snap at the same
    /// length.
    pub fn of(ip_packet: &[u8]) -> Fingerprint {
        let shape = Shape::of(ip_packet);
        let packet = &ip_packet[..ip_packet.len().min(shape.bytes as usize)];
        let states = deal(packet, &shape.changeable);
        let mut digest = SEED ^ u64::from(shape.bytes);
        let mut lanes = [0; LANES];
        for (lane, state) in lanes.iter_mut().zip(states) {
            let mixed = mix(state);
            *lane = (mixed >> 48) as u16;
            digest = (digest ^ mixed).wrapping_mul(FOLD).rotate_left(32);
        }
        Fingerprint {
            digest: mix(digest),
            bytes: shape.bytes,
            flow: flow_of(packet, &shape),
            lanes,
        }
    }

    /// How many lanes hold any of this packet's bytes: eight from 32 bytes on.
    pub fn lanes_used(&self) -> usize {
        (self.bytes as usize).div_ceil(WORD).min(LANES)
    }

    /// How many lanes a packet shares with its damaged self after damage to one word: all but one.
    pub fn lanes_enough(&self) -> usize {
        self.lanes_used().saturating_sub(1).max(1)
    }

    /// How many used lanes are equal in both packets; zero when their lengths differ.
    pub fn lanes_shared(&self, other: &Fingerprint) -> usize {
        if self.bytes != other.bytes {
            return 0;
        }
        let used = self.lanes_used();
        self.lanes[..used].iter().zip(&other.lanes[..used]).filter(|(a, b)| a == b).count()
    }
}

/// Masks over the first words of a packet: set bits may be changed by a router.
type Changeable = [u32; LANES];

/// The few things about a header that the fingerprint depends on.
struct Shape {
    bytes: u32,
    changeable: Changeable,
    version: u8,
}

impl Shape {
    fn of(packet: &[u8]) -> Shape {
        let available = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        let mut shape = Shape { bytes: available, changeable: [0; LANES], version: 0 };
        let declared = match packet.first().map(|first| first >> 4) {
            Some(4) if packet.len() >= 20 => {
                shape.version = 4;
                shape.changeable[0] = u32::from_be_bytes([0, 0b11, 0, 0]);
                shape.changeable[2] = u32::from_be_bytes([0xff, 0, 0xff, 0xff]);
                u32::from(be16(packet, 2))
            }
            Some(6) if packet.len() >= 40 => {
                shape.version = 6;
                shape.changeable[0] = u32::from_be_bytes([0, 0b0011_0000, 0, 0]);
                shape.changeable[1] = u32::from_be_bytes([0, 0, 0, 0xff]);
                match be16(packet, 4) {
                    0 => 0,
                    payload => u32::from(payload) + 40,
                }
            }
            _ => 0,
        };
        // Zero is a segment too long for the field (RFC 2675, or one that offload has yet to cut).
        if declared >= 20 {
            shape.bytes = declared;
        }
        shape
    }
}

/// The eight lane states after the packet's words, those of the first round without `changeable`.
fn deal(packet: &[u8], changeable: &Changeable) -> [u64; LANES] {
    let mut states = [0; LANES];
    for (index, state) in (1..).zip(&mut states) {
        *state = mix(SEED ^ index);
    }
    let head = packet.len().min(ROUND);
    let mut first = [0; ROUND];
    first[..head].copy_from_slice(&packet[..head]);
    for (lane, state) in states.iter_mut().enumerate() {
        let word = be32(&first, lane * WORD) & !changeable[lane];
        *state = step(*state, word);
    }
    let (rounds, tail) = packet[head..].as_chunks::<ROUND>();
    for round in rounds {
        for (lane, state) in states.iter_mut().enumerate() {
            *state = step(*state, be32(round, lane * WORD));
        }
    }
    for (word, state) in tail.chunks(WORD).zip(&mut states) {
        let mut padded = [0; WORD];
        padded[..word.len()].copy_from_slice(word);
        *state = step(*state, u32::from_be_bytes(padded));
    }
    states
}

#[inline]
fn step(state: u64, word: u32) -> u64 {
    (state ^ u64::from(word)).wrapping_mul(STEP).rotate_left(32)
}

/// Lets every bit of `state` reach every other.
fn mix(state: u64) -> u64 {
    let state = (state ^ (state >> 32)).wrapping_mul(FOLD);
    let state = (state ^ (state >> 29)).wrapping_mul(STEP);
    state ^ (state >> 32)
}

fn flow_of(packet: &[u8], shape: &Shape) -> u32 {
    let (addresses, protocol, ports) = match shape.version {
        4 => (&packet[12..20], packet[9], ports_v4(packet)),
        6 => {
            let (protocol, ports) = ports_v6(packet);
            (&packet[8..40], protocol, ports)
        }
        _ => (&packet[..packet.len().min(40)], 0, 0),
    };
    let mut state = step(SEED, u32::from(protocol));
    state = step(state, ports);
    for word in addresses.chunks_exact(WORD) {
        state = step(state, be32(word, 0));
    }
    mix(state) as u32
}

fn ports_v4(packet: &[u8]) -> u32 {
    const MORE_FRAGMENTS_AND_OFFSET: u16 = 0x3fff;
    let header = usize::from(packet[0] & 0x0f) * 4;
    if be16(packet, 6) & MORE_FRAGMENTS_AND_OFFSET != 0 {
        return 0;
    }
    ports_at(packet, header, packet[9])
}

/// The upper protocol and the ports behind IPv6's extension headers (RFC 8200, section 4).
fn ports_v6(packet: &[u8]) -> (u8, u32) {
    const HEADERS_MAX: usize = 8;
    let (mut next, mut at) = (packet[6], 40);
    for _ in 0..HEADERS_MAX {
        let Some(header) = packet.get(at..at + 8) else {
            return (next, 0);
        };
        let length = match next {
            0 | 43 | 60 | 135 => (usize::from(header[1]) + 1) * 8,
            51 => (usize::from(header[1]) + 2) * 4,
            44 if be16(header, 2) & 0xfff9 != 0 => return (header[0], 0),
            44 => 8,
            protocol => return (protocol, ports_at(packet, at, protocol)),
        };
        next = header[0];
        at += length;
    }
    (next, 0)
}

/// The two ports, for the protocols whose first four bytes they are: TCP, UDP, DCCP, SCTP,
/// UDP-Lite.
fn ports_at(packet: &[u8], at: usize, protocol: u8) -> u32 {
    match (protocol, packet.get(at..at + WORD)) {
        (6 | 17 | 33 | 132 | 136, Some(ports)) => be32(ports, 0),
        _ => 0,
    }
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use nilometer_stat::Rng;

    fn v4(length: usize) -> Vec<u8> {
        let mut packet: Vec<u8> = (0..length).map(|i| (i * 7 + 3) as u8).collect();
        packet[..2].copy_from_slice(&[0x45, 0]);
        packet[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        packet[6..8].copy_from_slice(&[0x40, 0]);
        packet[9] = 6;
        packet
    }

    fn v6(length: usize) -> Vec<u8> {
        let mut packet: Vec<u8> = (0..length).map(|i| (i * 11 + 5) as u8).collect();
        packet[..2].copy_from_slice(&[0x60, 0]);
        packet[4..6].copy_from_slice(&((length - 40) as u16).to_be_bytes());
        packet[6] = 17;
        packet
    }

    #[test]
    fn fingerprints_survive_permitted_changes_of_a_router() {
        for length in [40, 41, 52, 72, 576, 1500] {
            let before = Fingerprint::of(&v4(length));
            let mut after = v4(length);
            after[1] |= 0b11;
            after[8] ^= 0xff;
            after[10] ^= 0xff;
            after[11] ^= 0xff;
            after.extend([0; 6]);
            assert_eq!(Fingerprint::of(&after), before, "IPv4, {length} bytes");
        }
        for length in [48, 60, 1280] {
            let before = Fingerprint::of(&v6(length));
            let mut after = v6(length);
            after[1] |= 0b0011_0000;
            after[7] ^= 0xff;
            after.extend([0xee; 4]);
            assert_eq!(Fingerprint::of(&after), before, "IPv6, {length} bytes");
        }
    }

    #[test]
    fn every_other_bit_changes_the_digest_and_one_lane() {
        let v4_free = [14, 15];
        for (packet, free) in [
            (v4(60), Vec::from_iter(v4_free.into_iter().chain(64..72).chain(80..96))),
            (v6(77), Vec::from_iter((10..12).chain(56..64))),
        ] {
            let before = Fingerprint::of(&packet);
            let length_field = if packet[0] >> 4 == 4 { 16..32 } else { 32..48 };
            for bit in (4..packet.len() * 8).filter(|bit| !length_field.contains(bit)) {
                let mut flipped = packet.clone();
                flipped[bit / 8] ^= 0x80 >> (bit % 8);
                let after = Fingerprint::of(&flipped);
                let expected = if free.contains(&bit) { LANES } else { LANES - 1 };
                assert_eq!(before.lanes_shared(&after), expected, "bit {bit}");
                assert_eq!(before.digest == after.digest, free.contains(&bit), "bit {bit}");
            }
        }
    }

    #[test]
    fn any_bytes_have_a_fingerprint() {
        for length in 0..80 {
            for first in 0..=255 {
                let mut packet = alloc::vec![0xff; length];
                if let Some(byte) = packet.first_mut() {
                    *byte = first;
                }
                let print = Fingerprint::of(&packet);
                assert_eq!(print.lanes_shared(&print), print.lanes_used());
            }
        }
    }

    #[test]
    fn flow_follows_the_ports_but_not_of_fragments() {
        let flow = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut packet = v4(60);
            change(&mut packet);
            Fingerprint::of(&packet).flow
        };
        let whole = flow(&|_| ());
        assert_eq!(whole, flow(&|p| p[50] ^= 1), "payload is not a part of the flow");
        assert_ne!(whole, flow(&|p| p[23] ^= 1), "the destination port is");
        let first = flow(&|p| p[6] = 0x20);
        let last = flow(&|p| p[6..8].copy_from_slice(&[0, 3]));
        assert_eq!(first, last, "all fragments of a packet are one flow");
        assert_ne!(first, whole);
    }

    #[test]
    fn flow_looks_behind_extension_headers() {
        let mut plain = v6(48);
        plain[40..44].copy_from_slice(&[0x12, 0x34, 0x00, 0x50]);
        let mut extended = plain[..40].to_vec();
        extended[5] = 24;
        extended[6] = 60;
        extended.extend([0, 0, 1, 4, 0, 0, 0, 0]);
        extended[40] = 17;
        extended.extend(&plain[40..]);
        extended.extend([0; 8]);
        assert_eq!(Fingerprint::of(&plain).flow, Fingerprint::of(&extended).flow);
    }

    /// A recording of the hash: a deliberate change of the hash updates these numbers. Its
    /// properties are tested above and with the simulated device.
    #[test]
    fn the_hash_is_as_recorded() {
        let mut rng = Rng::new(5, 0, 0);
        let mut next = |below: usize| rng.below(below as u64) as usize;
        let mut sums = [0u64; 3];
        for round in 0..6_000 {
            const NEXT: [u8; 12] = [0, 43, 60, 135, 51, 44, 6, 17, 33, 132, 136, 59];
            let length = 40 + next(80);
            let mut packet = if round % 2 == 0 { v4(length) } else { v6(length) };
            let headers = [6, 9, 40, 41, 48, 49, 56, 64, 42, 43];
            for _ in 0..next(6) {
                let at = headers[next(headers.len())].min(length - 1);
                packet[at] = NEXT[next(NEXT.len())];
            }
            let at = next(length);
            packet[at] ^= 1 << next(8);
            packet.truncate(length - [0, 0, 0, next(length)][next(4)]);
            let Fingerprint { digest, bytes, flow, lanes } = Fingerprint::of(&packet);
            let lanes =
                lanes.iter().fold(0, |sum: u64, lane| sum << 7 ^ u64::from(*lane) ^ sum >> 5);
            for (sum, stated) in
                sums.iter_mut().zip([digest, u64::from(flow) << 32 | u64::from(bytes), lanes])
            {
                *sum = sum.rotate_left(7).wrapping_mul(3) ^ stated;
            }
        }
        assert_eq!(sums, [17802203767050544644, 4778772074443985675, 8934141060222808922]);
    }

    /// A fragment that is a whole packet has its ports, and so has one whose reserved bits are set (RFC
    /// 8200, section 4.5); of all others addresses and protocol are all that is known.
    #[test]
    fn fragments_of_ipv6_have_ports_where_they_are_whole() {
        let with = |fragment: u16, port: u8| {
            let mut packet = v6(80);
            packet[6] = 44;
            packet[40..42].copy_from_slice(&[17, 0]);
            packet[42..44].copy_from_slice(&fragment.to_be_bytes());
            packet[48..52].copy_from_slice(&[0, port, 0, 53]);
            (ports_v6(&packet), Fingerprint::of(&packet).flow)
        };
        for reserved in [0, 2, 4, 6] {
            assert_eq!(with(reserved, 9).0, (17, 0x0009_0035));
            assert_ne!(with(reserved, 9).1, with(reserved, 10).1);
        }
        for part in [1, 8, 9, 0x8000, 0xfff8, 0xffff, 7] {
            assert_eq!(with(part, 9).0, (17, 0));
            assert_eq!(with(part, 9).1, with(part, 10).1);
        }
    }

    /// Each extension header by its own length, eight of them at most.
    #[test]
    fn ports_lie_behind_the_extension_headers() {
        for (kind, length, bytes) in
            [(0, 0, 8), (43, 2, 24), (60, 1, 16), (135, 0, 8), (51, 4, 24), (51, 0, 8)]
        {
            let mut packet = v6(120);
            packet[6] = kind;
            packet[40..42].copy_from_slice(&[6, length]);
            packet[40 + bytes..44 + bytes].copy_from_slice(&[1, 2, 3, 4]);
            assert_eq!(ports_v6(&packet), (6, 0x0102_0304), "{kind}");
        }
        for (headers, found) in [(7, (17, 0x0506_0708)), (8, (17, 0))] {
            let mut packet = alloc::vec![0; 40];
            (packet[0], packet[6]) = (0x60, 60);
            for left in (0..headers).rev() {
                packet.extend([if left == 0 { 17 } else { 60 }, 0, 0, 0, 0, 0, 0, 0]);
            }
            packet.extend([5, 6, 7, 8, 0, 0, 0, 0]);
            assert_eq!(ports_v6(&packet), found, "{headers}");
        }
        let mut cut = v6(47);
        cut[6] = 17;
        assert_eq!(ports_v6(&cut), (17, 0), "less than eight bytes behind the header");
        for (protocol, ports) in
            [(6, 9), (17, 9), (33, 9), (132, 9), (136, 9), (1, 0), (58, 0), (50, 0), (7, 0)]
        {
            assert_eq!(ports_at(&[0, 0, 0, 9], 0, protocol), ports, "{protocol}");
        }
        assert_eq!(ports_at(&[0, 0, 9], 0, 6), 0);
    }
}
