//! The comparison of one header with eight rules, with the instructions that this processor has.

use core::fmt::Debug;

use crate::header::Key;
use crate::prefix::Address;

/// Rules of a block.
pub(super) const LANES: usize = 8;

/// Eight rules. A lane without a rule requires a source that no packet has: no bits, of value one.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Block<A> {
    pub source: [A; LANES],
    pub source_mask: [A; LANES],
    pub destination: [A; LANES],
    pub destination_mask: [A; LANES],
    /// First source ports, then first destination ports.
    pub port: [u16; 2 * LANES],
    /// How many ports more, in the same order.
    pub port_span: [u16; 2 * LANES],
    /// Protocol and flags.
    pub octets: [u16; LANES],
    pub octets_mask: [u16; LANES],
    pub ids: [u32; LANES],
}

/// An address that rules can be compared with: `u32` and `u128`, no others.
pub trait Classified: Address + sealed::Sealed {
    /// No bit.
    const ZERO: Self;
    /// The lowest bit.
    const ONE: Self;
    /// Every bit.
    const ONES: Self;
    /// Lengths of prefix by which rules are gathered.
    const LENGTHS: &'static [u8];

    /// All of a header and the number of a list in words, which are compared at once.
    #[doc(hidden)]
    type Words: Copy + Default + Eq + Debug + Send + AsRef<[u64]>;

    #[doc(hidden)]
    fn words(key: &Key<Self>, list: u16) -> Self::Words;

    /// Its bits where `mask` has ones.
    #[doc(hidden)]
    fn and(self, mask: Self) -> Self;

    /// 64 bits of all its bits.
    #[doc(hidden)]
    fn folded(self) -> u64;

    /// Which lanes match, the first in the lowest bit.
    #[doc(hidden)]
    #[allow(private_interfaces, reason = "sealed")]
    fn matching<const WIDE: bool>(block: &Block<Self>, key: &Key<Self>) -> u32;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for u128 {}
}

/// What of a header is not addresses, and the number of a list.
#[inline(always)]
fn behind_addresses<A>(key: &Key<A>, list: u16) -> u64 {
    let ports = u64::from(key.source_port) << 16 | u64::from(key.destination_port);
    u64::from(list) << 48 | ports << 16 | u64::from(key.protocol) << 8 | u64::from(key.flags)
}

impl Classified for u32 {
    const ZERO: u32 = 0;
    const ONE: u32 = 1;
    const ONES: u32 = u32::MAX;
    const LENGTHS: &'static [u8] = &[0, 8, 12, 16, 20, 24, 28, 32];

    type Words = [u64; 2];

    #[inline(always)]
    fn words(key: &Key<u32>, list: u16) -> [u64; 2] {
        [u64::from(key.source) << 32 | u64::from(key.destination), behind_addresses(key, list)]
    }

    #[inline(always)]
    fn and(self, mask: u32) -> u32 {
        self & mask
    }

    #[inline(always)]
    fn folded(self) -> u64 {
        u64::from(self)
    }

    #[inline(always)]
    #[allow(private_interfaces, reason = "sealed")]
    fn matching<const WIDE: bool>(block: &Block<u32>, key: &Key<u32>) -> u32 {
        #[cfg(target_arch = "x86_64")]
        if WIDE {
            // SAFETY: `Instructions::best` has checked for AVX2 before this is called.
            return unsafe { matching_wide(block, key) };
        }
        let mut matching = 0;
        for (lane, rest) in rest(block, key).into_iter().enumerate() {
            let source = (key.source & block.source_mask[lane]) ^ block.source[lane];
            let destination =
                (key.destination & block.destination_mask[lane]) ^ block.destination[lane];
            let wrong = source | destination | u32::from(rest);
            matching |= u32::from(wrong == 0) << lane;
        }
        matching
    }
}

/// Sixteen instructions or so for eight rules, where the compiler by itself needs three times as many:
/// it does not see that the lanes' verdicts may be packed like numbers.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
fn matching_wide(block: &Block<u32>, key: &Key<u32>) -> u32 {
    use core::arch::x86_64::*;
    let words = |lanes: &[u32; LANES]| {
        // SAFETY: eight words are 32 bytes, and the load requires no alignment.
        unsafe { _mm256_loadu_si256(lanes.as_ptr().cast()) }
    };
    let ports = |lanes: &[u16; 2 * LANES]| {
        // SAFETY: sixteen half words are 32 bytes, and the load requires no alignment.
        unsafe { _mm256_loadu_si256(lanes.as_ptr().cast()) }
    };
    let halves = |lanes: &[u16; LANES]| {
        // SAFETY: eight half words are 16 bytes, and the load requires no alignment.
        unsafe { _mm_loadu_si128(lanes.as_ptr().cast()) }
    };
    let wrong = |value: u32, mask: &[u32; LANES], wanted: &[u32; LANES]| {
        let value = _mm256_set1_epi32(value as i32);
        _mm256_xor_si256(_mm256_and_si256(value, words(mask)), words(wanted))
    };
    let source = wrong(key.source, &block.source_mask, &block.source);
    let destination = wrong(key.destination, &block.destination_mask, &block.destination);
    let source_port = _mm_set1_epi16(key.source_port as i16);
    let destination_port = _mm_set1_epi16(key.destination_port as i16);
    let port = _mm256_set_m128i(destination_port, source_port);
    let behind = _mm256_sub_epi16(port, ports(&block.port));
    let beyond = _mm256_subs_epu16(behind, ports(&block.port_span));
    let octets = _mm_set1_epi16(u16::from_be_bytes([key.protocol, key.flags]) as i16);
    let octets =
        _mm_xor_si128(_mm_and_si128(octets, halves(&block.octets_mask)), halves(&block.octets));
    let beyond =
        _mm_or_si128(_mm256_castsi256_si128(beyond), _mm256_extracti128_si256::<1>(beyond));
    let rest = _mm256_cvtepu16_epi32(_mm_or_si128(beyond, octets));
    let wrong = _mm256_or_si256(_mm256_or_si256(source, destination), rest);
    let right = _mm256_cmpeq_epi32(wrong, _mm256_setzero_si256());
    _mm256_movemask_ps(_mm256_castsi256_ps(right)) as u32
}

impl Classified for u128 {
    const ZERO: u128 = 0;
    const ONE: u128 = 1;
    const ONES: u128 = u128::MAX;
    const LENGTHS: &'static [u8] = &[0, 16, 24, 32, 40, 48, 56, 64, 96, 128];

    type Words = [u64; 5];

    #[inline(always)]
    fn words(key: &Key<u128>, list: u16) -> [u64; 5] {
        let halves = |address: u128| [(address >> 64) as u64, address as u64];
        let ([a, b], [c, d]) = (halves(key.source), halves(key.destination));
        [a, b, c, d, behind_addresses(key, list)]
    }

    #[inline(always)]
    fn and(self, mask: u128) -> u128 {
        self & mask
    }

    #[inline(always)]
    fn folded(self) -> u64 {
        self as u64 ^ ((self >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[inline(always)]
    #[allow(private_interfaces, reason = "sealed")]
    fn matching<const WIDE: bool>(block: &Block<u128>, key: &Key<u128>) -> u32 {
        let mut matching = 0;
        for (lane, rest) in rest(block, key).into_iter().enumerate() {
            let source = (key.source & block.source_mask[lane]) ^ block.source[lane];
            let destination =
                (key.destination & block.destination_mask[lane]) ^ block.destination[lane];
            let wrong = source | destination | u128::from(rest);
            matching |= u32::from(wrong == 0) << lane;
        }
        matching
    }
}

/// Zero where ports, protocol and flags match. A port is in its range if it lies no further behind the
/// first than the range is long: one subtraction tests both ends.
#[inline(always)]
fn rest<A>(block: &Block<A>, key: &Key<A>) -> [u16; LANES] {
    let octets = u16::from_be_bytes([key.protocol, key.flags]);
    let mut wrong = [0; LANES];
    for (lane, wrong) in wrong.iter_mut().enumerate() {
        let source = key.source_port.wrapping_sub(block.port[lane]);
        let destination = key.destination_port.wrapping_sub(block.port[LANES + lane]);
        *wrong = source.saturating_sub(block.port_span[lane])
            | destination.saturating_sub(block.port_span[LANES + lane])
            | (octets & block.octets_mask[lane]) ^ block.octets[lane];
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classifier::instructions::{Instructions, gathers, has_avx2};
    use crate::classifier::{Action, Classifier, ClassifierTuples, ClassifierVectors};
    use crate::classifier::{Octet, Ports, Rule, RuleId};
    use crate::prefix::Prefix;
    use nilometer_stat::Rng;

    /// Headers and rules of so few values that they often meet.
    fn key<A: Classified>(rng: &mut Rng, address: fn(u64) -> A) -> Key<A> {
        Key {
            source: address(rng.below(16)),
            destination: address(rng.below(16)),
            source_port: [0, 7, 8, u16::MAX][rng.below(4) as usize],
            destination_port: rng.below(4) as u16,
            protocol: rng.below(3) as u8,
            flags: rng.below(4) as u8,
        }
    }

    fn rule<A: Classified>(rng: &mut Rng, address: fn(u64) -> A) -> Rule<A> {
        let from = key(rng, address);
        let mut length = || A::BITS - [0, 1, 4, A::BITS][rng.below(4) as usize];
        let (source, destination) = (length(), length());
        Rule {
            source: Prefix::new(from.source, source).expect("sound"),
            destination: Prefix::new(from.destination, destination).expect("sound"),
            source_ports: Ports::new(from.source_port, from.source_port | 8).expect("sound"),
            destination_ports: Ports::exact(from.destination_port),
            protocol: Octet::exact(from.protocol),
            flags: Octet::new(from.flags, 2),
            ..Rule::any(rng.below(50) as u32, Action::Permit)
        }
    }

    fn all_instructions_find_the_same<A: Classified>(address: fn(u64) -> A) {
        let mut rng = Rng::new(5, 2, u64::from(A::BITS));
        let mut classifier = ClassifierTuples::<A>::new(2_000);
        for id in 0..300 {
            assert_eq!(classifier.insert(RuleId(id), rule(&mut rng, address)), Ok(()));
        }
        let keys: alloc::vec::Vec<Key<A>> = (0..999).map(|_| key(&mut rng, address)).collect();
        let mut matched = 0;
        let all: alloc::vec::Vec<_> = Instructions::all().collect();
        for &instructions in &all {
            let mut found = alloc::vec![None; keys.len()];
            instructions.search_all(&classifier, &keys, &mut found);
            matched += found.iter().flatten().count();
            assert!(keys.iter().map(|key| classifier.classify(key)).eq(found));
        }
        let each = matched / all.len();
        assert!((250..950).contains(&each), "{each} of 999");
    }

    /// All that work on this processor, gathers where they are slow as well.
    fn all_that_work() -> impl Iterator<Item = Instructions> {
        #[cfg(target_arch = "x86_64")]
        let slow = (has_avx2() && gathers()).then_some(Instructions::Gathering);
        #[cfg(not(target_arch = "x86_64"))]
        let slow = None;
        Instructions::all().chain(slow)
    }

    /// Settled rules give the same answers with every instruction set that this processor has, on
    /// batches of all lengths.
    fn all_instructions_find_the_same_settled<A: Classified>(address: fn(u64) -> A) {
        let mut rng = Rng::new(6, 2, u64::from(A::BITS));
        let mut classifier = ClassifierVectors::<A>::new(2_000);
        for id in 0..900 {
            assert_eq!(classifier.insert(RuleId(id), rule(&mut rng, address)), Ok(()));
        }
        classifier.settle();
        // Words in which no rule is left, and rules of lowest priority.
        for id in (0..900).filter(|id| id % 3 == 0) {
            assert!(classifier.remove(RuleId(id)).is_some());
        }
        let keys: alloc::vec::Vec<Key<A>> = (0..999).map(|_| key(&mut rng, address)).collect();
        let wanted: alloc::vec::Vec<_> = keys.iter().map(|key| classifier.classify(key)).collect();
        let matched = wanted.iter().flatten().count();
        assert!((200..990).contains(&matched), "{matched} of 999");
        for instructions in all_that_work() {
            for length in (1..70).chain([999]) {
                let from = rng.below(1_000 - length) as usize;
                let keys = &keys[from..from + length as usize];
                let mut found = alloc::vec![None; keys.len()];
                instructions.search_settled(&classifier, keys, &mut found);
                assert_eq!(found, wanted[from..][..keys.len()], "{instructions:?}, {length}");
            }
        }
    }

    #[test]
    fn all_instructions_find_the_same_rules() {
        all_instructions_find_the_same::<u32>(|bits| bits as u32);
        all_instructions_find_the_same::<u128>(u128::from);
        all_instructions_find_the_same_settled::<u32>(|bits| bits as u32);
        all_instructions_find_the_same_settled::<u128>(u128::from);
    }
}
