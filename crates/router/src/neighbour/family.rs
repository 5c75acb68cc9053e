//! What the neighbour table must know about an address beyond its bits.

use crate::prefix::{Address, Prefix};

/// An IPv4 or an IPv6 address as a neighbour has it.
pub trait Family: Address {
    /// The unspecified address.
    const NONE: Self;

    /// Whether one host may have it: not a group, a broadcast, a loopback or unspecified.
    fn is_host(self) -> bool;

    /// Whether it is on the link whatever the prefixes (RFC 4291, 2.5.6).
    fn is_link_local(self) -> bool;

    /// Whether it stands for the prefix and not for a host: the first and last address of an IPv4
    /// prefix shorter than 31 bits (RFC 1122, 3.2.1.3; RFC 3021).
    fn is_edge_of(self, prefix: Prefix<Self>) -> bool;

    /// 64 bits that are hard to foresee without `keys`.
    fn mixed(self, keys: [u64; 2]) -> u64;
}

impl Family for u32 {
    const NONE: u32 = 0;

    fn is_host(self) -> bool {
        let first = self >> 24;
        first != 0 && first != 127 && first < 224
    }

    fn is_link_local(self) -> bool {
        false
    }

    fn is_edge_of(self, prefix: Prefix<u32>) -> bool {
        let host_bits = u32::BITS - prefix.length();
        if host_bits < 2 || !prefix.contains(self) {
            return false;
        }
        let last = prefix.address() | (u32::MAX >> (u32::BITS - host_bits));
        self == prefix.address() || self == last
    }

    #[inline]
    fn mixed(self, keys: [u64; 2]) -> u64 {
        folded(u64::from(self) ^ keys[0], keys[1])
    }
}

impl Family for u128 {
    const NONE: u128 = 0;

    fn is_host(self) -> bool {
        self >> 120 != 0xff && self > 1
    }

    fn is_link_local(self) -> bool {
        self >> 118 == 0xfe80 >> 6
    }

    fn is_edge_of(self, _: Prefix<u128>) -> bool {
        false
    }

    #[inline]
    fn mixed(self, keys: [u64; 2]) -> u64 {
        let high = folded((self >> 64) as u64 ^ keys[0], keys[1]);
        folded(self as u64 ^ high, keys[1])
    }
}

/// The two halves of a product of 128 bits, one laid over the other (as in wyhash).
#[inline]
fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b | 1);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn host_addresses_are_distinguished_from_others() {
        for (text, is_host) in
            [("198.18.0.1", true), ("0.0.0.0", false), ("127.0.0.1", false), ("224.0.0.1", false)]
        {
            assert_eq!(u32::from(text.parse::<Ipv4Addr>().unwrap()).is_host(), is_host, "{text}");
        }
        for (text, is_host) in
            [("fd00::1", true), ("::", false), ("::1", false), ("ff02::1", false)]
        {
            assert_eq!(u128::from(text.parse::<Ipv6Addr>().unwrap()).is_host(), is_host, "{text}");
        }
        let local = |text: &str| u128::from(text.parse::<Ipv6Addr>().unwrap()).is_link_local();
        assert!(local("fe80::1") && local("febf::1") && !local("fec0::1") && !local("fd00::1"));
    }

    #[test]
    fn edges_of_an_ipv4_prefix_are_no_hosts() {
        let prefix: Prefix<u32> = "198.18.0.0/24".parse().unwrap();
        let first = prefix.address();
        let edges = (0..256).filter(|host| (first + host).is_edge_of(prefix)).count();
        assert!(edges == 2 && first.is_edge_of(prefix) && (first + 255).is_edge_of(prefix));
        let pair: Prefix<u32> = "198.18.0.0/31".parse().unwrap();
        assert!(!first.is_edge_of(pair) && !(first + 1).is_edge_of(pair));
    }
}
