//! How addresses are divided into slots, the parts of a table that are built and replaced one by one.

use core::ops::Range;

use crate::prefix::{Address, Prefix};

/// Addresses that are divided by some of their first bits.
///
/// A slot is the addresses of one prefix. There are 2^`bits` *main* slots and, for IPv6, eight
/// after them.
pub trait Divided: Address {
    /// The bits in front of those that number a main slot.
    const SKIPPED: u32;

    /// How many slots there are.
    fn slots(bits: u32) -> usize;

    /// The slot of an address.
    fn slot(self, bits: u32) -> usize;

    /// The prefix of a slot.
    fn of_slot(slot: usize, bits: u32) -> Prefix<Self>;

    /// The slots that have addresses of `prefix`.
    fn slots_of(prefix: Prefix<Self>, bits: u32) -> [Range<usize>; 2];

    /// The address with all bits behind the first `length` set.
    fn filled(self, length: u32) -> Self;

    /// The address behind this one; the lowest behind the highest.
    fn successor(self) -> Self;
}

impl Divided for u32 {
    const SKIPPED: u32 = 0;

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

    fn slots_of(prefix: Prefix<u32>, bits: u32) -> [Range<usize>; 2] {
        let first = prefix.address().slot(bits);
        let last = prefix.address().filled(prefix.length()).slot(bits);
        [first..last + 1, 0..0]
    }

    fn filled(self, length: u32) -> u32 {
        self | u32::MAX.checked_shr(length).unwrap_or(0)
    }

    fn successor(self) -> u32 {
        self.wrapping_add(1)
    }
}

/// The bits that all unicast addresses given out so far begin with: 2000::/3 (RFC 4291; IANA).
const UNICAST_BITS: u32 = 3;
const UNICAST: u32 = 0b001;
/// Slots of IPv6 that are no main slots: one for each value of the first three bits.
pub const APART: usize = 1 << UNICAST_BITS;

impl Divided for u128 {
    const SKIPPED: u32 = UNICAST_BITS;

    fn slots(bits: u32) -> usize {
        (1 << bits) + APART
    }

    #[inline(always)]
    fn slot(self, bits: u32) -> usize {
        let first = self.bits(0, UNICAST_BITS);
        let main = self.bits(UNICAST_BITS, bits) as usize;
        if first == UNICAST { main } else { (1 << bits) + first as usize }
    }

    fn of_slot(slot: usize, bits: u32) -> Prefix<u128> {
        let (number, length) = match slot.checked_sub(1 << bits) {
            Some(first) => (first, UNICAST_BITS),
            None => ((UNICAST as usize) << bits | slot, UNICAST_BITS + bits),
        };
        Prefix::new((number as u128) << (128 - length), length).expect("shorter than an address")
    }

    fn slots_of(prefix: Prefix<u128>, bits: u32) -> [Range<usize>; 2] {
        let ends = [prefix.address(), prefix.address().filled(prefix.length())];
        let [first, last] = ends.map(|end| end.bits(0, UNICAST_BITS));
        let main = match (first..=last).contains(&UNICAST) {
            false => 0..0,
            true if first < last => 0..1 << bits,
            true => ends[0].slot(bits)..ends[1].slot(bits) + 1,
        };
        let apart = |first: u32| (1 << bits) + first as usize;
        let is_main_alone = first == UNICAST && last == UNICAST;
        [main, if is_main_alone { 0..0 } else { apart(first)..apart(last) + 1 }]
    }

    fn filled(self, length: u32) -> u128 {
        self | u128::MAX.checked_shr(length).unwrap_or(0)
    }

    fn successor(self) -> u128 {
        self.wrapping_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold<A: Divided>(prefixes: &[Prefix<A>], bits: u32) {
        for slot in 0..A::slots(bits) {
            let prefix = A::of_slot(slot, bits);
            let ends = [prefix.address(), prefix.address().filled(prefix.length())];
            // The slot apart for 2000::/3 has no addresses: its are those of the main slots.
            let is_empty = slot == (1 << bits) + 1;
            assert!(is_empty || ends.iter().all(|end| end.slot(bits) == slot), "{slot}");
        }
        for &prefix in prefixes {
            let slots: alloc::vec::Vec<usize> =
                A::slots_of(prefix, bits).into_iter().flatten().collect();
            for slot in 0..A::slots(bits) {
                let part = A::of_slot(slot, bits);
                let meets = part.contains(prefix.address()) || prefix.contains(part.address());
                let is_empty = slot == (1 << bits) + 1;
                assert!(is_empty || meets == slots.contains(&slot), "{prefix:?} {slot}");
            }
        }
    }

    #[test]
    fn slots_are_the_addresses_that_they_say() {
        let v4 = ["0.0.0.0/0", "10.0.0.0/7", "10.0.0.0/8", "10.16.0.0/13", "1.2.3.4/32"];
        hold::<u32>(&v4.map(|text| text.parse().expect(text)), 8);
        let v6 = ["::/0", "::/2", "2000::/3", "2000::/11", "2a00::/16", "fd00::/8", "8000::/1"];
        hold::<u128>(&v6.map(|text| text.parse().expect(text)), 8);
    }
}
