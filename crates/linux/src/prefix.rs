//! Address prefixes: the block of addresses that a host's pool or a link takes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use anyhow::{Context, Error, Result, ensure};

/// The only IPv4 addresses the lab uses: RFC 2544's benchmarking range (RFC 6890 2.2.2).
pub const BENCHMARKING: Prefix =
    Prefix { address: IpAddr::V4(Ipv4Addr::new(198, 18, 0, 0)), length: 15 };

/// The only IPv6 addresses the lab uses: the locally assigned half of RFC 4193's range.
pub const UNIQUE_LOCAL: Prefix =
    Prefix { address: IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0)), length: 8 };

/// A block of addresses in CIDR form, its host bits zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// A prefix of `length` bits (0–32 or 0–128); an error where the length is too great or a
    /// host bit of `address` is set.
    pub fn new(address: IpAddr, length: u8) -> Result<Prefix> {
        let limit = width(address);
        ensure!(length <= limit, "{address}/{length}: the length may be at most {limit}");
        let network = with_bits(address, bits(address) & mask(limit, length));
        ensure!(
            network == address,
            "{address}/{length}: bits are set behind the prefix; write {network}/{length}"
        );
        Ok(Prefix { address, length })
    }

    /// The block that counts as one host: of IPv4 the address, also where it is written as one of IPv6
    /// (RFC 4291, 2.5.5.2); of IPv6 the /64, since a host has a whole one to choose addresses from
    /// (RFC 7421).
    pub fn of_host(address: IpAddr) -> Prefix {
        let address = address.to_canonical();
        let length = if address.is_ipv6() { 64 } else { 32 };
        let network = bits(address) & mask(width(address), length);
        Prefix { address: with_bits(address, network), length }
    }

    /// The first address of the block.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// How many leading bits all addresses of the block share.
    pub fn length(&self) -> u8 {
        self.length
    }

    /// Whether this is a block of IPv6 addresses.
    pub fn is_ipv6(&self) -> bool {
        self.address.is_ipv6()
    }

    /// Whether `address` lies in this block.
    pub fn contains(&self, address: IpAddr) -> bool {
        let family_width = width(self.address);
        self.is_ipv6() == address.is_ipv6()
            && bits(address) & mask(family_width, self.length) == bits(self.address)
    }

    /// Whether every address of `other` lies in this block.
    pub fn covers(&self, other: &Prefix) -> bool {
        self.length <= other.length && self.contains(other.address)
    }

    /// Whether any address lies in both blocks.
    pub fn overlaps(&self, other: &Prefix) -> bool {
        self.covers(other) || other.covers(self)
    }

    /// The address `offset` places behind the first one; `None` if the block is smaller.
    pub fn nth(&self, offset: u128) -> Option<IpAddr> {
        let host_bits = width(self.address) - self.length;
        if host_bits < 128 && offset >> host_bits != 0 {
            return None;
        }
        Some(with_bits(self.address, bits(self.address) | offset))
    }

    /// Refuses a block with addresses outside of [`BENCHMARKING`] and [`UNIQUE_LOCAL`].
    pub fn ensure_private_to_labs(&self) -> Result<()> {
        ensure!(
            BENCHMARKING.covers(self) || UNIQUE_LOCAL.covers(self),
            "{self}: the lab uses addresses from {BENCHMARKING} and {UNIQUE_LOCAL} only; \
             choose a prefix within them"
        );
        Ok(())
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.address, self.length)
    }
}

impl FromStr for Prefix {
    type Err = Error;

    fn from_str(text: &str) -> Result<Prefix> {
        let form =
            || format!("{text:?} is not a prefix; write it like 198.18.0.0/16 or fd00:1::/64");
        let (address, length) = text.split_once('/').with_context(form)?;
        let address = address.parse().with_context(form)?;
        Prefix::new(address, length.parse().with_context(form)?)
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv6() { 128 } else { 32 }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn with_bits(family_of: IpAddr, bits: u128) -> IpAddr {
    match family_of {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits(bits as u32)),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(bits)),
    }
}

/// The leading `length` of `width` bits, as the low bits of the number.
fn mask(width: u8, length: u8) -> u128 {
    let all = u128::MAX >> (128 - width);
    let host_bits = u32::from(width - length);
    all & u128::MAX.checked_shl(host_bits).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_of_ipv6_has_a_network() {
        let host = |text: &str| Prefix::of_host(text.parse().unwrap());
        assert_eq!(host("2001:db8::1"), "2001:db8::/64".parse().unwrap());
        assert_eq!(host("2001:db8::1"), host("2001:db8::ffff:0:0:1"));
        assert_ne!(host("2001:db8::1"), host("2001:db8:0:1::1"));
        assert_eq!(host("192.0.2.1"), "192.0.2.1/32".parse().unwrap());
        assert_eq!(host("192.0.2.1"), host("::ffff:192.0.2.1"));
    }

    fn prefix(text: &str) -> Prefix {
        text.parse().expect(text)
    }

    #[test]
    fn prints_as_it_was_written() {
        for text in ["198.18.0.0/16", "0.0.0.0/0", "198.19.255.255/32", "fd00:1::/64", "::/0"] {
            assert_eq!(prefix(text).to_string(), text);
        }
    }

    #[test]
    fn invalid_prefixes_are_refused() {
        for text in ["", "198.18.0.0", "198.18.0.0/33", "fd00::/129", "198.18.0.1/16", "a/8"] {
            let error = text.parse::<Prefix>().expect_err(text).to_string();
            assert!(!error.contains('\n'), "{error}");
        }
        let error = "198.18.7.1/16".parse::<Prefix>().expect_err("host bits").to_string();
        assert!(error.ends_with("write 198.18.0.0/16"), "{error}");
    }

    #[test]
    fn agrees_with_counting_addresses() {
        for (block, count) in [("198.18.4.0/22", 1024u32), ("198.19.255.252/30", 4)] {
            let (block, first) = (prefix(block), bits(prefix(block).address) as u32);
            for address in first - 9..=(first + count).saturating_add(9) {
                let inside = address >= first && address - first < count;
                assert_eq!(block.contains(Ipv4Addr::from_bits(address).into()), inside);
            }
            assert_eq!(block.nth(u128::from(count)), None);
            let last = Ipv4Addr::from_bits(first + (count - 1)).into();
            assert_eq!(block.nth(u128::from(count) - 1), Some(last));
        }
        assert_eq!(prefix("::/0").nth(u128::MAX).map(bits), Some(u128::MAX));
        assert!(!prefix("::/0").contains(Ipv4Addr::LOCALHOST.into()));
    }

    #[test]
    fn detects_overlapping_blocks() {
        let (wide, inner) = (prefix("198.18.0.0/15"), prefix("198.19.0.0/16"));
        assert!(wide.covers(&inner) && !inner.covers(&wide));
        assert!(wide.overlaps(&inner) && inner.overlaps(&wide));
        assert!(!inner.overlaps(&prefix("198.18.0.0/16")));
        assert!(!prefix("::/0").overlaps(&prefix("0.0.0.0/0")));
    }

    #[test]
    fn keeps_to_the_addresses_of_labs() {
        for text in ["198.18.0.0/15", "198.19.3.0/24", "fd00::/8", "fdff:1::/64"] {
            prefix(text).ensure_private_to_labs().expect(text);
        }
        for text in ["198.18.0.0/14", "10.0.0.0/8", "fc00::/7", "2001:db8::/32", "0.0.0.0/0"] {
            if let Ok(block) = text.parse::<Prefix>() {
                assert!(block.ensure_private_to_labs().is_err(), "{text}");
            }
        }
    }
}
