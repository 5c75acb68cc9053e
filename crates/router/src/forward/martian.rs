//! Addresses that may not cross a router: the martians of RFC 1812, 5.3.7, and the registry.
//!
//! Three circles of addresses, each in the one around it. The inner, [`MartianFilter::Least`], is what
//! later RFCs forbid routers to forward under any setting: link-local addresses of either version, the
//! limited broadcast, and IPv6's unspecified, loopback and multicast sources.
//! [`MartianFilter::Standard`] adds what RFC 1812 says a router should not forward by default: networks
//! 0 and 127, class D as source, class E. That is the default, which the clause demands.
//! [`MartianFilter::Registry`] adds every block that the registry of special-purpose addresses marks as
//! not forwardable (RFC 6890), the documentation prefixes among them. Private addresses (RFC 1918, RFC
//! 4193), shared ones (RFC 6598) and those of benchmarks (198.18.0.0/15, RFC 2544) are forwardable by
//! that registry and pass all three.
//!
//! The tables [`IPV4`] and [`IPV6`] define these sets, and the tests walk them. The packet path runs
//! the same rules as a few comparisons: nearly every IPv4 address is done after the first.
//!
//! A multicast destination is no martian; whether there is a multicast route is the pipeline's
//! question. Nor can a directed broadcast be recognised by its address alone (5.3.5.2).

/// How much is filtered. A packet that fails is discarded and counted, and not answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum MartianFilter {
    /// Only what no setting may let through.
    Least,
    /// RFC 1812's martians too.
    #[default]
    Standard,
    /// All that RFC 6890's registry calls not forwardable too.
    Registry,
}

/// What kind of address it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Martian {
    /// The network itself: 0.0.0.0/8.
    ThisNetwork,
    /// No address: `::`.
    Unspecified,
    /// Never on a wire.
    Loopback,
    /// Of one link, and not to leave it.
    LinkLocal,
    /// A group cannot send.
    MulticastSource,
    /// A group of one link or one interface cannot be reached through a router.
    MulticastScope,
    /// Class E.
    Reserved,
    /// 255.255.255.255 goes no further than its link.
    LimitedBroadcast,
    /// IPv4 addresses in IPv6 clothes: within a host, not on a wire.
    Mapped,
    /// Examples in documents.
    Documentation,
    /// Kept for protocols.
    Protocol,
}

/// A row of the tables.
#[derive(Clone, Copy, Debug)]
pub struct Entry<A> {
    /// The first address.
    pub first: A,
    /// The last.
    pub last: A,
    /// Refused as a source.
    pub as_source: bool,
    /// Refused as a destination.
    pub as_destination: bool,
    /// From which filter on.
    pub from: MartianFilter,
    /// What it is called.
    pub kind: Martian,
    /// The document and section that say so.
    pub rfc: &'static str,
}

const BOTH: (bool, bool) = (true, true);
const SOURCE: (bool, bool) = (true, false);
const DESTINATION: (bool, bool) = (false, true);

const fn four(
    (first, bits): (u32, u32),
    (as_source, as_destination): (bool, bool),
    from: MartianFilter,
    kind: Martian,
    rfc: &'static str,
) -> Entry<u32> {
    let last = first | (u32::MAX >> 1) >> (bits - 1);
    Entry { first, last, as_source, as_destination, from, kind, rfc }
}

const fn six(
    (first, bits): (u128, u32),
    (as_source, as_destination): (bool, bool),
    from: MartianFilter,
    kind: Martian,
    rfc: &'static str,
) -> Entry<u128> {
    let last = first | (u128::MAX >> 1) >> (bits - 1);
    Entry { first, last, as_source, as_destination, from, kind, rfc }
}

use MartianFilter::{Least, Registry, Standard};

/// IPv4, the more particular row first.
pub const IPV4: [Entry<u32>; 10] = [
    four((0, 8), BOTH, Standard, Martian::ThisNetwork, "RFC 1812 5.3.7; RFC 6890"),
    four((0x7f00_0000, 8), BOTH, Standard, Martian::Loopback, "RFC 1812 5.3.7; RFC 6890"),
    four((0xa9fe_0000, 16), BOTH, Least, Martian::LinkLocal, "RFC 3927 2.7; RFC 6890"),
    four((0xe000_0000, 4), SOURCE, Standard, Martian::MulticastSource, "RFC 1812 5.3.7"),
    four((0xffff_ffff, 32), BOTH, Least, Martian::LimitedBroadcast, "RFC 1812 5.3.5.1"),
    four((0xf000_0000, 4), BOTH, Standard, Martian::Reserved, "RFC 1812 5.3.7; RFC 6890"),
    four((0xc000_0000, 24), BOTH, Registry, Martian::Protocol, "RFC 6890 2.1"),
    four((0xc000_0200, 24), BOTH, Registry, Martian::Documentation, "RFC 5737; RFC 6890"),
    four((0xc633_6400, 24), BOTH, Registry, Martian::Documentation, "RFC 5737; RFC 6890"),
    four((0xcb00_7100, 24), BOTH, Registry, Martian::Documentation, "RFC 5737; RFC 6890"),
];

/// IPv6, the more particular row first.
pub const IPV6: [Entry<u128>; 8] = [
    six((0, 128), BOTH, Least, Martian::Unspecified, "RFC 4291 2.5.2; RFC 6890"),
    six((1, 128), BOTH, Least, Martian::Loopback, "RFC 4291 2.5.3; RFC 6890"),
    six((0xfe80 << 112, 10), BOTH, Least, Martian::LinkLocal, "RFC 4291 2.5.6; RFC 6890"),
    six((0xff00 << 112, 8), SOURCE, Least, Martian::MulticastSource, "RFC 4291 2.7"),
    // The tables have no prefix for a scope; its four rows are one test of bits (RFC 4291, 2.7).
    six((0xff00 << 112, 8), DESTINATION, Least, Martian::MulticastScope, "RFC 4291 2.7"),
    six((0xffff_0000_0000, 96), BOTH, Standard, Martian::Mapped, "RFC 4291 2.5.5.2; RFC 6890"),
    six((0x2001_0db8 << 96, 32), BOTH, Registry, Martian::Documentation, "RFC 3849; RFC 6890"),
    six((0x3fff << 112, 20), BOTH, Registry, Martian::Documentation, "RFC 9637"),
];

/// By the first octet of an IPv4 address, whether more checks are needed: whether it may be a martian
/// under any filter, or a group.
const ASKED_IPV4: [bool; 256] = {
    let mut octets = [false; 256];
    let mut first = 0;
    while first < 256 {
        octets[first] = matches!(first, 0 | 127 | 169 | 192 | 198 | 203 | 224..);
        first += 1;
    }
    octets
};

/// Whether neither address may be a martian or a group, by its first octet: so of nearly all packets.
#[inline(always)]
pub fn are_plain_ipv4(source: u32, destination: u32) -> bool {
    let octets = |address: u32| ASKED_IPV4[(address >> 24) as usize];
    !(octets(source) | octets(destination))
}

impl MartianFilter {
    /// Why a packet from `source` may not be forwarded, if it may not.
    #[inline]
    pub fn source_ipv4(self, source: u32) -> Option<Martian> {
        // 1 to 126 and 128 to 223 without 169 and 192, 198, 203 are done here.
        match (source >> 24) as u8 {
            0 | 127 | 169 | 192 | 198 | 203 => self.special_ipv4(source),
            224..=239 if self >= Standard => Some(Martian::MulticastSource),
            240..=255 => self.special_ipv4(source),
            _ => None,
        }
    }

    /// Why a packet to `destination` may not be forwarded, if it may not.
    #[inline]
    pub fn destination_ipv4(self, destination: u32) -> Option<Martian> {
        match (destination >> 24) as u8 {
            0 | 127 | 169 | 192 | 198 | 203 | 240..=255 => self.special_ipv4(destination),
            _ => None,
        }
    }

    /// Why a packet from `source` may not be forwarded, if it may not.
    #[inline]
    pub fn source_ipv6(self, source: u128) -> Option<Martian> {
        if source >> 120 == 0xff {
            return Some(Martian::MulticastSource);
        }
        self.special_ipv6(source)
    }

    /// Why a packet to `destination` may not be forwarded, if it may not.
    #[inline]
    pub fn destination_ipv6(self, destination: u128) -> Option<Martian> {
        if destination >> 120 == 0xff {
            // Scopes 0 to 2: reserved, of an interface, of a link.
            let scope = (destination >> 112) as u8 & 0x0f;
            return (scope <= 2).then_some(Martian::MulticastScope);
        }
        self.special_ipv6(destination)
    }

    fn special_ipv4(self, address: u32) -> Option<Martian> {
        let (from, kind) = match address.to_be_bytes() {
            [0, ..] => (Standard, Martian::ThisNetwork),
            [127, ..] => (Standard, Martian::Loopback),
            [169, 254, ..] => (Least, Martian::LinkLocal),
            [255, 255, 255, 255] => (Least, Martian::LimitedBroadcast),
            [240..=255, ..] => (Standard, Martian::Reserved),
            [192, 0, 0, _] => (Registry, Martian::Protocol),
            [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => {
                (Registry, Martian::Documentation)
            }
            _ => return None,
        };
        (self >= from).then_some(kind)
    }

    #[inline]
    fn special_ipv6(self, address: u128) -> Option<Martian> {
        // Global unicast, 2000::/3, is only checked where the registry is to be applied.
        let top = (address >> 112) as u16;
        let (from, kind) = match top {
            0 if address == 0 => (Least, Martian::Unspecified),
            0 if address == 1 => (Least, Martian::Loopback),
            0 if address >> 32 == 0xffff => (Standard, Martian::Mapped),
            0xfe80..=0xfebf => (Least, Martian::LinkLocal),
            0x2001 if address >> 96 == 0x2001_0db8 => (Registry, Martian::Documentation),
            0x3fff if (address >> 108) & 0xf == 0 => (Registry, Martian::Documentation),
            _ => return None,
        };
        (self >= from).then_some(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    const FILTERS: [MartianFilter; 3] = [Least, Standard, Registry];

    #[test]
    fn plain_addresses_are_no_martians_and_no_groups() {
        let mut rng = Rng::new(2, u32::from_be_bytes(*b"plan"), 0);
        let mut plain = 0;
        for _ in 0..200_000 {
            let word = rng.next_u64();
            let (source, destination) = ((word >> 32) as u32, word as u32);
            if are_plain_ipv4(source, destination) {
                let refused = |filter: MartianFilter| {
                    filter.source_ipv4(source).or(filter.destination_ipv4(destination))
                };
                assert!(FILTERS.into_iter().all(|filter| refused(filter).is_none()));
                assert!(destination >> 28 != 0xe);
                plain += 1;
            }
        }
        assert!(plain > 100_000, "{plain}");
    }

    fn walk<A: PartialOrd + Copy>(
        table: &[Entry<A>],
        filter: MartianFilter,
        address: A,
        is_source: bool,
    ) -> Option<Martian> {
        let is_in = |entry: &&Entry<A>| {
            entry.first <= address
                && address <= entry.last
                && (if is_source { entry.as_source } else { entry.as_destination })
        };
        table.iter().find(is_in).filter(|entry| filter >= entry.from).map(|entry| entry.kind)
    }

    fn compare_ipv4(address: u32) {
        for filter in FILTERS {
            let found = (filter.source_ipv4(address), filter.destination_ipv4(address));
            let walked = |is_source| walk(&IPV4, filter, address, is_source);
            assert_eq!(found, (walked(true), walked(false)), "{filter:?} {address:#010x}");
        }
    }

    #[test]
    fn the_comparisons_agree_with_the_ipv4_table() {
        for network in 0..1 << 24 {
            if network % 7 == 0 || network >> 16 == 192 || network >> 16 == 169 {
                compare_ipv4(network << 8 | 5);
            }
        }
        for entry in IPV4 {
            for edge in [entry.first, entry.last] {
                for address in [edge.wrapping_sub(1), edge, edge.wrapping_add(1)] {
                    compare_ipv4(address);
                }
            }
        }
    }

    #[test]
    fn the_comparisons_agree_with_the_ipv6_table() {
        let mut rng = Rng::new(1, u32::from_be_bytes(*b"mart"), 0);
        let mut random = || u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64());
        let mut addresses: alloc::vec::Vec<u128> = (0..100_000).map(|_| random()).collect();
        for entry in IPV6 {
            for edge in [entry.first, entry.last] {
                addresses.extend([edge.wrapping_sub(1), edge, edge.wrapping_add(1)]);
            }
            addresses
                .extend((0..1000).map(|_| entry.first | random() & (entry.last - entry.first)));
        }
        for address in addresses {
            for filter in FILTERS {
                let source = walk(&IPV6, filter, address, true);
                assert_eq!(filter.source_ipv6(address), source, "{filter:?} {address:#x}");
                let destination = walk(&IPV6, filter, address, false)
                    .filter(|kind| *kind != Martian::MulticastScope || (address >> 112) & 0xf < 3);
                assert_eq!(filter.destination_ipv6(address), destination, "{address:#x}");
            }
        }
    }

    #[test]
    fn the_laboratory_and_private_networks_pass() {
        let passes = ["198.18.0.1", "198.19.255.254", "10.0.0.1", "172.16.0.1", "192.168.0.1"];
        for text in passes.into_iter().chain(["100.64.0.1", "8.8.8.8", "192.88.99.1"]) {
            let address: core::net::Ipv4Addr = text.parse().unwrap();
            assert_eq!(Registry.source_ipv4(address.to_bits()), None, "{text}");
            assert_eq!(Registry.destination_ipv4(address.to_bits()), None, "{text}");
        }
        for text in ["fd00::1", "2001:4860::1", "64:ff9b::1", "2001:2::1", "fec0::1"] {
            let address: core::net::Ipv6Addr = text.parse().unwrap();
            assert_eq!(Registry.source_ipv6(address.to_bits()), None, "{text}");
            assert_eq!(Registry.destination_ipv6(address.to_bits()), None, "{text}");
        }
    }

    #[test]
    fn martians_are_filtered_by_default() {
        assert_eq!(MartianFilter::default(), Standard);
        let standard = MartianFilter::default();
        assert_eq!(standard.source_ipv4(0x7f00_0001), Some(Martian::Loopback));
        assert_eq!(standard.source_ipv4(0xe000_0001), Some(Martian::MulticastSource));
        assert_eq!(standard.destination_ipv4(0xe000_0001), None);
        assert_eq!(standard.destination_ipv4(u32::MAX), Some(Martian::LimitedBroadcast));
        assert_eq!(Least.source_ipv4(0x7f00_0001), None);
        assert_eq!(Least.source_ipv4(0xa9fe_0101), Some(Martian::LinkLocal));
        for entry in IPV4.iter().map(|e| e.rfc).chain(IPV6.iter().map(|e| e.rfc)) {
            assert!(entry.starts_with("RFC "));
        }
    }
}
