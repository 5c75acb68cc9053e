//! How addresses are divided into slots, the parts of a table that are built and replaced one by one.

use core::ops::Range;

use crate::prefix::{Address, Prefix};

/// Addresses that can form ranges.
pub trait Ranged: Address {
    /// The address with all bits behind the first `length` set.
    fn filled(self, length: u32) -> Self;

    /// The address behind this one; the lowest behind the highest.
    fn successor(self) -> Self;
}

macro_rules! ranged {
    ($kind:ty) => {
        impl Ranged for $kind {
            fn filled(self, length: u32) -> $kind {
                self | <$kind>::MAX.checked_shr(length).unwrap_or(0)
            }

            fn successor(self) -> $kind {
                self.wrapping_add(1)
            }
        }
    };
}

ranged!(u32);
ranged!(u128);

/// Addresses that are divided by their first bits, into 2^`bits` slots. A slot is the addresses of one
/// prefix.
pub trait Divided: Ranged {
    /// How many slots there are.
    fn slots(bits: u32) -> usize;

    /// The slot of an address.
    fn slot(self, bits: u32) -> usize;

    /// The prefix of a slot.
    fn of_slot(slot: usize, bits: u32) -> Prefix<Self>;

    /// The slots that have addresses of `prefix`.
    fn slots_of(prefix: Prefix<Self>, bits: u32) -> Range<usize>;
}

impl Divided for u32 {
    fn slots(bits: u32) -> usize {
        1 << bits
    }

    #[inline(always)]
    fn slot(self, bits: u32) -> usize {
        self.bits(0, bits) as usize
    }

    fn of_slot(slot: usize, bits: u32) -> Prefix<u32> {
        Prefix::new((slot as u32) << (32 - bits), bits)
            .expect("a slot has fewer bits than addresses")
    }

    fn slots_of(prefix: Prefix<u32>, bits: u32) -> Range<usize> {
        let first = prefix.address().slot(bits);
        let last = prefix.address().filled(prefix.length()).slot(bits);
        first..last + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_the_addresses_that_they_say() {
        let bits = 8;
        for slot in 0..u32::slots(bits) {
            let prefix = u32::of_slot(slot, bits);
            let ends = [prefix.address(), prefix.address().filled(prefix.length())];
            assert!(ends.iter().all(|end| end.slot(bits) == slot), "{slot}");
        }
        for text in ["0.0.0.0/0", "10.0.0.0/7", "10.0.0.0/8", "10.16.0.0/13", "1.2.3.4/32"] {
            let prefix: Prefix<u32> = text.parse().expect(text);
            for slot in 0..u32::slots(bits) {
                let part = u32::of_slot(slot, bits);
                let meets = part.contains(prefix.address()) || prefix.contains(part.address());
                assert_eq!(meets, u32::slots_of(prefix, bits).contains(&slot), "{text} {slot}");
            }
        }
    }
}
