//! Address prefixes, as configurations name them.

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

/// The addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

/// Why a text is not a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPrefix;

impl fmt::Display for NoPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an address, or an address and a length, as in 10.0.0.0/8")
    }
}

impl FromStr for Prefix {
    type Err = NoPrefix;

    fn from_str(text: &str) -> Result<Prefix, NoPrefix> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NoPrefix)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            Some(length) => length.parse().map_err(|_| NoPrefix)?,
            None => most,
        };
        if length > most { Err(NoPrefix) } else { Ok(Prefix { address, length }) }
    }
}

impl Prefix {
    /// Whether an address begins with its bits.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differ = own.to_bits() ^ other.to_bits();
                differ.checked_shr(32 - u32::from(self.length)).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differ = own.to_bits() ^ other.to_bits();
                differ.checked_shr(128 - u32::from(self.length)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_inside_by_their_first_bits() {
        let prefix = |text: &str| text.parse::<Prefix>().expect("a prefix");
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let inside = [
            ("10.0.0.0/8", "10.255.255.255"),
            ("0.0.0.0/0", "203.0.113.1"),
            ("192.0.2.7", "192.0.2.7"),
            ("fd00::/8", "fdff::1"),
            ("::/0", "2001:db8::1"),
        ];
        for (of, one) in inside {
            assert!(prefix(of).contains(address(one)), "{one} in {of}");
        }
        let outside =
            [("10.0.0.0/8", "11.0.0.0"), ("192.0.2.7", "192.0.2.6"), ("::/0", "10.0.0.1")];
        for (of, one) in outside {
            assert!(!prefix(of).contains(address(one)), "{one} in {of}");
        }
        for text in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/-1"] {
            assert_eq!(text.parse::<Prefix>(), Err(NoPrefix), "{text}");
        }
    }
}
