//! The traffic: UDP datagrams of many flows, each with its number; and the routes and filters that it passes.
//!
//! Flows, routes and filters are drawn from a seed, so that a run can be repeated. Packets have
//! addresses of 198.18.0.0/15 only (RFC 2544, appendix C.2.2); routes may lead anywhere.
//!
//! The routes are as long as those of the Internet are, two thirds of them /24, and an eighth lies
//! within the network that the packets go to, so that a lookup has something to choose from. The
//! filters are of ClassBench's kinds: pairs of prefixes, of which either may be long, short or
//! absent, a protocol, and a range of ports. Filters of UDP permit and others deny, so that the
//! datagrams pass, each after a real search.

use std::fmt::Write as _;

use nilometer_stat::Rng;
use nilometer_wire::checksum::internet_checksum;

use nilometer_linux::netlink::MacAddress;
use nilometer_routerd::filter::{ActionName, FilterSection};

use super::site;

/// Flows, each with its addresses and ports.
pub const FLOWS: usize = 1_024;
/// Bytes of the check sequence, which a frame's length counts and a veth does not carry.
pub const CHECK_SEQUENCE_BYTES: u16 = 4;
/// The shortest frame, with its check sequence.
pub const FRAME_BYTES_MIN: u16 = 64;
/// Bytes of Ethernet's header.
const ETHERNET_BYTES: usize = 14;
/// Where its addresses stand, and behind them its ports.
const ADDRESSES_AT: usize = ETHERNET_BYTES + 12;
/// Where a datagram's run and number stand.
const NUMBER_AT: usize = ETHERNET_BYTES + 20 + 8;
/// Purposes of draws.
const DRAW_FLOWS: u32 = 0x6677_0001;
const DRAW_ROUTES: u32 = 0x6677_0002;
const DRAW_FILTERS: u32 = 0x6677_0003;

/// Frames of all flows, of one length.
pub struct Frames {
    templates: Vec<Vec<u8>>,
}

impl Frames {
    /// Frames of `frame_bytes`, check sequence included.
    pub fn new(seed: u64, frame_bytes: u16, to: MacAddress) -> Frames {
        let mut rng = Rng::new(seed, DRAW_FLOWS, 0);
        let bytes = frame_bytes.max(FRAME_BYTES_MIN) - CHECK_SEQUENCE_BYTES;
        let templates = (0..FLOWS).map(|_| datagram(&mut rng, bytes, to)).collect();
        Frames { templates }
    }

    /// Bytes of a frame on the link, without the check sequence.
    pub fn link_bytes(&self) -> u16 {
        self.templates[0].len() as u16
    }

    /// Writes the frame of this number.
    #[inline]
    pub fn write(&self, run: u32, number: u32, frame: &mut [u8]) {
        frame.copy_from_slice(&self.templates[number as usize % FLOWS]);
        frame[NUMBER_AT..NUMBER_AT + 4].copy_from_slice(&run.to_be_bytes());
        frame[NUMBER_AT + 4..NUMBER_AT + 8].copy_from_slice(&number.to_be_bytes());
    }

    /// The run and the number of a frame, if it is one of these: with the length, addresses and ports of
    /// the flow that belongs to its number. (Of a hundred million foreign ones, some have a number where
    /// ours do.)
    #[inline]
    pub fn number_of(&self, frame: &[u8]) -> Option<(u32, u32)> {
        let word = |at: usize| Some(u32::from_be_bytes(frame.get(at..at + 4)?.try_into().ok()?));
        let (run, number) = (word(NUMBER_AT)?, word(NUMBER_AT + 4)?);
        let template = &self.templates[number as usize % FLOWS];
        let is_ours = frame.len() == template.len()
            && frame[ADDRESSES_AT..NUMBER_AT] == template[ADDRESSES_AT..NUMBER_AT];
        is_ours.then_some((run, number))
    }
}

/// A datagram without a UDP checksum, so that its number may change.
fn datagram(rng: &mut Rng, bytes: u16, to: MacAddress) -> Vec<u8> {
    let source = 0xc612_0000 | (0x100 + rng.below(0xfd00)) as u32;
    let destination = 0xc613_0000 | rng.below(0x8000) as u32;
    let ip_bytes = bytes - ETHERNET_BYTES as u16;
    let mut header = [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    header[2..4].copy_from_slice(&ip_bytes.to_be_bytes());
    header[12..16].copy_from_slice(&source.to_be_bytes());
    header[16..20].copy_from_slice(&destination.to_be_bytes());
    let checksum = internet_checksum(&[&header]);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    let mut frame = [&to[..], &site::SOURCE.1, &[0x08, 0x00]].concat();
    frame.extend(header);
    frame.extend((1_024 + rng.below(64_000) as u16).to_be_bytes());
    frame.extend((1_024 + rng.below(64_000) as u16).to_be_bytes());
    frame.extend((ip_bytes - 20).to_be_bytes());
    frame.resize(usize::from(bytes), 0);
    frame
}

/// `count` different prefixes, as text; the one that covers all packets is the first.
pub fn routes(seed: u64, count: usize) -> Vec<String> {
    let mut rng = Rng::new(seed, DRAW_ROUTES, 0);
    let mut seen = std::collections::HashSet::new();
    let mut routes = vec![site::BEHIND.to_owned()];
    while routes.len() < count {
        let near = rng.below(8) == 0;
        let length = match (near, rng.below(12)) {
            (true, _) => 22 + rng.below(11) as u32,
            (false, 0..8) => 24,
            (false, _) => 14 + rng.below(10) as u32,
        };
        let address = match near {
            true => 0xc613_0000 | rng.below(0x8000) as u32,
            // Unicast, and neither loopback nor "this network".
            false => ((11 + rng.below(112)) << 24 | rng.below(1 << 24)) as u32,
        };
        let network = address >> (32 - length) << (32 - length);
        if seen.insert((network, length)) {
            routes.push(format!("{}/{length}", std::net::Ipv4Addr::from(network)));
        }
    }
    routes
}

/// A filter, before it is written for one device or another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drawn {
    source: (u32, u32),
    destination: (u32, u32),
    ports: (u16, u16),
    protocol: u8,
}

const UDP: u8 = 17;

/// `count` filters.
pub fn filters(seed: u64, count: usize) -> Vec<Drawn> {
    let mut rng = Rng::new(seed, DRAW_FILTERS, 0);
    (0..count).map(|_| filter(&mut rng)).collect()
}

fn filter(rng: &mut Rng) -> Drawn {
    let lengths = match rng.below(4) {
        0 => (32, 32),
        1 => (0, 24 + rng.below(9) as u32),
        2 => (16 + rng.below(9) as u32, 20 + rng.below(13) as u32),
        _ => (24, 24),
    };
    let mut prefix = |network: u32, length: u32| {
        let address = network | rng.below(1 << 15) as u32;
        (address & u32::MAX.checked_shl(32 - length).unwrap_or(0), length)
    };
    let (source, destination) = (prefix(0xc612_0000, lengths.0), prefix(0xc613_0000, lengths.1));
    let ports = match rng.below(4) {
        0 => (0, u16::MAX),
        1 => (1_024, u16::MAX),
        2 => (20, 21 + rng.below(1_000) as u16),
        _ => {
            let port = rng.below(1 << 16) as u16;
            (port, port)
        }
    };
    let protocol = if rng.below(2) == 0 { UDP } else { 6 };
    Drawn { source, destination, ports, protocol }
}

impl Drawn {
    fn prefix((network, length): (u32, u32)) -> String {
        format!("{}/{length}", std::net::Ipv4Addr::from(network))
    }

    /// Whether a packet could match both.
    fn overlaps(&self, other: &Drawn) -> bool {
        let prefixes = |one: (u32, u32), two: (u32, u32)| {
            let mask = u32::MAX.checked_shl(32 - one.1.min(two.1)).unwrap_or(0);
            one.0 & mask == two.0 & mask
        };
        self.protocol == other.protocol
            && prefixes(self.source, other.source)
            && prefixes(self.destination, other.destination)
            && self.ports.0 <= other.ports.1
            && other.ports.0 <= self.ports.1
    }

    /// In the form that our router takes.
    pub fn section(&self) -> FilterSection {
        FilterSection {
            action: if self.protocol == UDP { ActionName::Permit } else { ActionName::Deny },
            source: Some(Drawn::prefix(self.source)),
            destination: Some(Drawn::prefix(self.destination)),
            destination_ports: Some(format!("{}-{}", self.ports.0, self.ports.1)),
            protocol: Some(self.protocol.to_string()),
            ..FilterSection::default()
        }
    }
}

/// The elements of a set of `nft` that holds what is denied: one search for a packet, whatever their
/// number. Such a set refuses elements that overlap; of those the first stays.
pub fn nft_elements(filters: &[Drawn]) -> String {
    let mut kept: Vec<&Drawn> = Vec::new();
    for filter in filters.iter().filter(|filter| filter.protocol != UDP) {
        if !kept.iter().any(|other| filter.overlaps(other)) {
            kept.push(filter);
        }
    }
    let mut elements = String::new();
    for filter in kept {
        let (source, destination) =
            (Drawn::prefix(filter.source), Drawn::prefix(filter.destination));
        let (low, high) = filter.ports;
        let separator = if elements.is_empty() { "" } else { ", " };
        write!(
            elements,
            "{separator}{source} . {destination} . {} . {low}-{high}",
            filter.protocol
        )
        .expect("memory can be written");
    }
    elements
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_router::Prefix;

    #[test]
    fn frames_are_of_their_length_and_carry_their_number() {
        for frame_bytes in [64, 512, 1_518] {
            let frames = Frames::new(1, frame_bytes, [2; 6]);
            let mut frame = vec![0; usize::from(frames.link_bytes())];
            assert_eq!(frames.link_bytes(), frame_bytes - CHECK_SEQUENCE_BYTES);
            frames.write(3, 70_000, &mut frame);
            assert_eq!(frames.number_of(&frame), Some((3, 70_000)));
            assert_eq!(internet_checksum(&[&frame[14..34]]), 0);
            assert_eq!(&frame[26..28], [198, 18]);
            assert_eq!(&frame[30..32], [198, 19]);
            assert!(frame[32] < 128);
            assert_eq!(frames.number_of(&frame[..40]), None);
            // A frame with a number where ours have theirs, but not of this test.
            frame[ADDRESSES_AT] ^= 1;
            assert_eq!(frames.number_of(&frame), None);
        }
    }

    #[test]
    fn routes_and_filters_are_sound_and_repeat() {
        let routes = routes(7, 2_000);
        for route in &routes {
            route.parse::<Prefix<u32>>().expect(route);
        }
        assert_eq!(routes, super::routes(7, 2_000));
        let filters = filters(7, 500);
        assert_eq!(filters, super::filters(7, 500));
        for filter in &filters {
            let (four, six) = filter.section().rules().expect("a rule");
            assert!(four.is_some() && six.is_none());
        }
    }
}
