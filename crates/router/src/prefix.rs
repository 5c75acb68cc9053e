//! Addresses as bits, and prefixes of them (RFC 4632).

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// An address that is looked up: the bits of an IPv4 or an IPv6 address, the first the highest.
pub trait Address: Copy + Ord + fmt::Debug + Send + Sync + 'static {
    /// How many bits it has.
    const BITS: u32;

    /// `count` bits from bit `at` on, at most 32 of them; those beyond the end are 0.
    fn bits(self, at: u32, count: u32) -> u32;

    /// Its first `length` bits; the others are 0.
    fn truncated(self, length: u32) -> Self;
}

macro_rules! address {
    ($kind:ty) => {
        impl Address for $kind {
            const BITS: u32 = <$kind>::BITS;

            #[inline(always)]
            fn bits(self, at: u32, count: u32) -> u32 {
                if at >= Self::BITS || count == 0 {
                    return 0;
                }
                ((self << at) >> (Self::BITS - count)) as u32
            }

            #[inline]
            fn truncated(self, length: u32) -> Self {
                if length == 0 { 0 } else { self >> (Self::BITS - length) << (Self::BITS - length) }
            }
        }
    };
}

address!(u32);
address!(u128);

/// The addresses that share their first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix<A> {
    address: A,
    length: u8,
}

impl<A: Address> Prefix<A> {
    /// The first `length` bits of `address`, whatever its others are; nothing if it has fewer.
    pub fn new(address: A, length: u32) -> Option<Prefix<A>> {
        let is_sound = length <= A::BITS;
        is_sound.then(|| Prefix { address: address.truncated(length), length: length as u8 })
    }

    /// Its lowest address.
    #[inline]
    pub fn address(self) -> A {
        self.address
    }

    /// How many bits are alike.
    #[inline]
    pub fn length(self) -> u32 {
        u32::from(self.length)
    }

    /// Whether `address` is one of its addresses.
    pub fn contains(self, address: A) -> bool {
        address.truncated(self.length()) == self.address
    }
}

/// Why text is no prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a prefix: an address, a slash and a length with no bit set behind it")]
pub struct Malformed;

macro_rules! text {
    ($kind:ty, $address:ty) => {
        /// `address/length`, with no bit set behind the length.
        impl FromStr for Prefix<$kind> {
            type Err = Malformed;

            fn from_str(text: &str) -> Result<Self, Malformed> {
                let (address, length) = text.split_once('/').ok_or(Malformed)?;
                let address = <$kind>::from(<$address>::from_str(address).map_err(|_| Malformed)?);
                let prefix = Prefix::new(address, length.parse().map_err(|_| Malformed)?);
                prefix.filter(|prefix| prefix.address == address).ok_or(Malformed)
            }
        }

        impl fmt::Display for Prefix<$kind> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}/{}", <$address>::from(self.address), self.length)
            }
        }
    };
}

text!(u32, Ipv4Addr);
text!(u128, Ipv6Addr);

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn prefixes_round_trip_through_text() {
        for text in ["0.0.0.0/0", "10.0.0.0/8", "198.18.0.0/15", "1.2.3.4/32"] {
            assert_eq!(text.parse::<Prefix<u32>>().expect(text).to_string(), text);
        }
        for text in ["::/0", "fd00::/8", "2001:db8::1/128"] {
            assert_eq!(text.parse::<Prefix<u128>>().expect(text).to_string(), text);
        }
        for text in ["10.0.0.0", "10.0.0.0/33", "10.0.0.1/8", "10.0.0/8", "/8", "10.0.0.0/-1", ""] {
            assert_eq!(text.parse::<Prefix<u32>>(), Err(Malformed), "{text}");
        }
        assert_eq!("fd00::/129".parse::<Prefix<u128>>(), Err(Malformed));
    }

    #[test]
    fn bits_are_counted_from_the_highest() {
        let address = u32::from(Ipv4Addr::new(128, 252, 153, 160));
        assert_eq!((address.bits(0, 4), address.bits(4, 4), address.bits(8, 4)), (8, 0, 15));
        assert_eq!((address.bits(29, 4), address.bits(32, 4), address.bits(7, 0)), (0, 0, 0));
        assert_eq!((u32::MAX.bits(29, 4), u128::MAX.bits(125, 4)), (0b1110, 0b1110));
    }
}
