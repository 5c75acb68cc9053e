//! Address pools: which host stands for which rank.
//!
//! A model knows addresses only as ranks, the most popular first. A pool is a list of CIDR prefixes;
//! rank r becomes its r-th usable address (Harpoon, section 4.1: the network's own address and the
//! broadcast address of an IPv4 prefix are left out). IPv4 and IPv6 prefixes may be mixed: each
//! family is indexed on its own, so that one rank has an address in both.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// The most hosts counted in one prefix; more would never be needed.
const HOSTS_MAX: u64 = 1 << 32;

/// A CIDR prefix, `198.18.0.0/16` or `fd00:18::/64`; host bits are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

/// Why a text is not a prefix, or prefixes are not a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolError {
    /// Not `ADDRESS/LENGTH`.
    NotAPrefix(String),
    /// The length is beyond 32 or 128.
    LengthTooLong(String),
    /// Bits beyond the length are set.
    HostBits(String),
    /// The prefix holds no usable host address.
    TooSmall(String),
    /// Clients and servers share no address family.
    NoCommonFamily,
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolError::NotAPrefix(text) => {
                write!(f, "'{text}' is not a CIDR prefix; write one as 198.18.0.0/16")
            }
            PoolError::LengthTooLong(text) => {
                write!(f, "'{text}': the prefix length is beyond the address (32 or 128 bits)")
            }
            PoolError::HostBits(text) => {
                write!(f, "'{text}' has bits set beyond its prefix length; clear them")
            }
            PoolError::TooSmall(text) => write!(
                f,
                "pool '{text}' is too small: no usable address is left without the network and \
                 broadcast addresses; give a /30 or larger, or a single host as /32"
            ),
            PoolError::NoCommonFamily => f.write_str(
                "clients and servers share no address family; give both a prefix of one",
            ),
        }
    }
}

impl core::error::Error for PoolError {}

impl Prefix {
    /// The prefix of `address` with its first `length` bits; host bits must be zero.
    pub fn new(address: IpAddr, length: u8) -> Result<Prefix, PoolError> {
        let prefix = Prefix { address, length };
        let (bits, width) = match address {
            IpAddr::V4(v4) => (u128::from(v4.to_bits()), 32),
            IpAddr::V6(v6) => (v6.to_bits(), 128),
        };
        if length > width {
            return Err(PoolError::LengthTooLong(prefix.to_string()));
        }
        let host_bits = width - length;
        if host_bits > 0 && bits & (u128::MAX >> (128 - u32::from(host_bits))) != 0 {
            return Err(PoolError::HostBits(prefix.to_string()));
        }
        Ok(prefix)
    }

    /// The first address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The only host of a prefix with a single address.
    pub fn only_host(&self) -> Option<IpAddr> {
        let width = if self.address.is_ipv4() { 32 } else { 128 };
        (self.length == width).then_some(self.address)
    }

    /// Does it hold this address?
    pub fn contains(&self, address: IpAddr) -> bool {
        let is_one = |one: u128, other: u128, width: u8| {
            let free = u32::from(width - self.length);
            (one ^ other).checked_shr(free).unwrap_or(0) == 0
        };
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                is_one(own.to_bits().into(), other.to_bits().into(), 32)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => is_one(own.to_bits(), other.to_bits(), 128),
            _ => false,
        }
    }

    /// How many leading bits are fixed.
    pub fn length(&self) -> u8 {
        self.length
    }

    /// Usable host addresses: an IPv4 prefix loses its network and broadcast address unless it is a
    /// single host (/32); an IPv6 prefix loses the subnet-router anycast address unless /128.
    pub fn hosts(&self) -> u64 {
        let host_bits = match self.address {
            IpAddr::V4(_) => 32 - self.length,
            IpAddr::V6(_) => 128 - self.length,
        };
        let all = 1u64 << u32::from(host_bits).min(32);
        match (self.address, host_bits) {
            (_, 0) => 1,
            (IpAddr::V4(_), _) => all - 2,
            (IpAddr::V6(_), _) => (all - 1).min(HOSTS_MAX),
        }
    }

    /// The `index`-th usable host, from 0.
    pub fn host(&self, index: u64) -> IpAddr {
        assert!(index < self.hosts(), "host {index} of {self}");
        match self.address {
            IpAddr::V4(v4) if self.length == 32 => IpAddr::V4(v4),
            IpAddr::V4(v4) => IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() + 1 + index as u32)),
            IpAddr::V6(v6) if self.length == 128 => IpAddr::V6(v6),
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() + 1 + u128::from(index))),
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl FromStr for Prefix {
    type Err = PoolError;

    fn from_str(text: &str) -> Result<Prefix, PoolError> {
        let wrong = || PoolError::NotAPrefix(text.to_string());
        let (address, length) = text.split_once('/').ok_or_else(wrong)?;
        let address = address.parse().map_err(|_| wrong())?;
        Prefix::new(address, length.parse().map_err(|_| wrong())?)
    }
}

impl TryFrom<String> for Prefix {
    type Error = PoolError;
    fn try_from(text: String) -> Result<Prefix, PoolError> {
        text.parse()
    }
}

impl From<Prefix> for String {
    fn from(prefix: Prefix) -> String {
        prefix.to_string()
    }
}

/// The hosts of one side, by rank.
#[derive(Clone, Debug)]
pub struct Pool {
    v4: Vec<Prefix>,
    v6: Vec<Prefix>,
}

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both.
    pub const BOTH: [Family; 2] = [Family::V4, Family::V6];
}

impl Pool {
    /// The pool of these prefixes, ranks in their order.
    pub fn new(prefixes: &[Prefix]) -> Result<Pool, PoolError> {
        if let Some(small) = prefixes.iter().find(|prefix| prefix.hosts() == 0) {
            return Err(PoolError::TooSmall(small.to_string()));
        }
        let (v4, v6) = prefixes.iter().partition(|prefix| prefix.address.is_ipv4());
        Ok(Pool { v4, v6 })
    }

    fn of(&self, family: Family) -> &[Prefix] {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    /// Usable hosts of a family.
    pub fn hosts(&self, family: Family) -> u64 {
        self.of(family).iter().map(Prefix::hosts).sum()
    }

    /// The address of rank `rank`, from 0; `rank` must be below [`Pool::hosts`].
    pub fn host(&self, family: Family, mut rank: u64) -> IpAddr {
        for prefix in self.of(family) {
            if rank < prefix.hosts() {
                return prefix.host(rank);
            }
            rank -= prefix.hosts();
        }
        panic!("the rank must be below the pool's hosts");
    }

    /// The rank of `address`, or `None` if it is not in this pool.
    pub fn rank(&self, address: IpAddr) -> Option<u64> {
        let family = if address.is_ipv4() { Family::V4 } else { Family::V6 };
        let mut before = 0;
        for prefix in self.of(family) {
            let offset = match (address, prefix.address) {
                (IpAddr::V4(a), IpAddr::V4(p)) => {
                    u128::from(a.to_bits()).checked_sub(u128::from(p.to_bits()))
                }
                (IpAddr::V6(a), IpAddr::V6(p)) => a.to_bits().checked_sub(p.to_bits()),
                _ => None,
            };
            let first = u128::from(prefix.hosts() > 1 || prefix.host(0) != prefix.address);
            if let Some(index) = offset.and_then(|offset| offset.checked_sub(first))
                && index < u128::from(prefix.hosts())
            {
                return Some(before + index as u64);
            }
            before += prefix.hosts();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().expect(text)
    }

    #[test]
    fn a_class_c_has_254_hosts() {
        let c = prefix("198.18.7.0/24");
        assert_eq!(c.hosts(), 254);
        assert_eq!(c.host(0).to_string(), "198.18.7.1");
        assert_eq!(c.host(253).to_string(), "198.18.7.254");
        assert_eq!(prefix("198.18.7.4/30").hosts(), 2);
        assert_eq!(prefix("198.18.7.4/32").hosts(), 1);
        assert_eq!(prefix("fd00:18::/112").hosts(), 65_535);
    }

    #[test]
    fn ranks_and_hosts_are_each_others_inverse() {
        let pool = Pool::new(&[
            prefix("198.18.0.0/29"),
            prefix("198.18.9.9/32"),
            prefix("fd00:18::/120"),
            prefix("198.18.4.0/30"),
        ])
        .expect("pool");
        for family in [Family::V4, Family::V6] {
            for rank in 0..pool.hosts(family) {
                assert_eq!(pool.rank(pool.host(family, rank)), Some(rank));
            }
        }
        assert_eq!(pool.hosts(Family::V4), 6 + 1 + 2);
        assert_eq!(pool.rank("198.18.0.0".parse().expect("address")), None);
        assert_eq!(pool.rank("198.18.0.7".parse().expect("address")), None);
    }

    #[test]
    fn bad_prefixes_are_refused_with_a_reason() {
        for (text, words) in [
            ("198.18.0.0", "not a CIDR prefix"),
            ("198.18.0.0/33", "beyond the address"),
            ("198.18.0.1/16", "beyond its prefix length"),
            ("fd00::/x", "not a CIDR prefix"),
        ] {
            let error = text.parse::<Prefix>().expect_err(text);
            assert!(error.to_string().contains(words), "{error}");
        }
        let error = Pool::new(&[prefix("198.18.0.0/31")]).expect_err("too small");
        assert!(error.to_string().contains("too small"), "{error}");
    }
}
