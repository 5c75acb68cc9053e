//! Some of the packets of a batch, by their places in it: a bit for each.
//!
//! Nearly always there is none, or there are all: so what a chain did to a batch is asked in a comparison or two, and
//! only those that something was done to are gone through.

use core::iter;
use core::ops::BitOrAssign;

/// Packets of a batch.
pub const PACKETS_MAX: usize = 256;
const WORD_BITS: usize = 64;

/// Places of packets in a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketSet([u64; PACKETS_MAX / WORD_BITS]);

impl PacketSet {
    /// The first so many.
    ///
    /// # Panics
    /// When there are more than [`PACKETS_MAX`].
    pub fn first(packets: usize) -> PacketSet {
        assert!(packets <= PACKETS_MAX, "a batch has at most {PACKETS_MAX} packets");
        let mut set = PacketSet::default();
        for (at, word) in set.0.iter_mut().enumerate() {
            let bits = packets.saturating_sub(at * WORD_BITS).min(WORD_BITS);
            *word = u64::MAX.checked_shr((WORD_BITS - bits) as u32).unwrap_or(0);
        }
        set
    }

    /// The packet `at` is one of them.
    ///
    /// # Panics
    /// When it is beyond [`PACKETS_MAX`]; so are the others.
    #[inline(always)]
    pub fn insert(&mut self, at: usize) {
        self.0[at / WORD_BITS] |= 1 << (at % WORD_BITS);
    }

    /// The packet `at` is none of them.
    #[inline(always)]
    pub fn remove(&mut self, at: usize) {
        self.0[at / WORD_BITS] &= !(1 << (at % WORD_BITS));
    }

    /// Whether the packet `at` is one of them.
    #[inline(always)]
    pub fn contains(&self, at: usize) -> bool {
        self.0[at / WORD_BITS] >> (at % WORD_BITS) & 1 != 0
    }

    /// Whether there is none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.0.iter().fold(0, |all, word| all | word) == 0
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Those that are not among `others`.
    #[inline]
    pub fn without(mut self, others: &PacketSet) -> PacketSet {
        for (word, other) in self.0.iter_mut().zip(others.0) {
            *word &= !other;
        }
        self
    }

    /// Their places, in order.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = usize> {
        self.0.into_iter().enumerate().flat_map(|(number, mut word)| {
            iter::from_fn(move || {
                let bit = word.trailing_zeros() as usize;
                word &= word.wrapping_sub(1);
                (bit < WORD_BITS).then_some(number * WORD_BITS + bit)
            })
        })
    }
}

impl BitOrAssign for PacketSet {
    #[inline]
    fn bitor_assign(&mut self, others: PacketSet) {
        for (word, other) in self.0.iter_mut().zip(others.0) {
            *word |= other;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;
    use nilometer_stat::Rng;

    /// Sets of chance beside the standard library's.
    #[test]
    fn a_set_of_bits_is_a_set() {
        let mut rng = Rng::new(1, u32::from_be_bytes(*b"bits"), 0);
        for _ in 0..1_000 {
            let draw = |rng: &mut Rng| -> (PacketSet, BTreeSet<usize>) {
                let (mut set, mut twin) = (PacketSet::default(), BTreeSet::new());
                for _ in 0..rng.below(100) {
                    let at = rng.below(PACKETS_MAX as u64) as usize;
                    match rng.below(4) {
                        0 => _ = (set.remove(at), twin.remove(&at)),
                        _ => _ = (set.insert(at), twin.insert(at)),
                    }
                }
                (set, twin)
            };
            let ((mut one, twin), (other, other_twin)) = (draw(&mut rng), draw(&mut rng));
            assert!(one.iter().eq(twin.iter().copied()));
            assert_eq!((one.len(), one.is_empty()), (twin.len(), twin.is_empty()));
            assert!((0..PACKETS_MAX).all(|at| one.contains(at) == twin.contains(&at)));
            assert!(one.without(&other).iter().eq(twin.difference(&other_twin).copied()));
            one |= other;
            assert!(one.iter().eq(twin.union(&other_twin).copied()));
        }
        for packets in 0..=PACKETS_MAX {
            let places: Vec<usize> = PacketSet::first(packets).iter().collect();
            assert_eq!(places, (0..packets).collect::<Vec<_>>());
        }
    }
}
