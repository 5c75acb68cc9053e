//! The comparison of one header with eight rules, and the search among vectors, with the instructions that
//! there are.

use core::fmt::Debug;

use super::block::{Block, LANES};
#[cfg(target_arch = "x86_64")]
use super::gathered::{self, GATHERED};
use super::rule::RuleId;
use super::settled::ClassifierVectors;
use super::tuples::ClassifierTuples;
use crate::header::Key;
use crate::prefix::Address;

/// Which instructions searches may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instructions {
    /// Those that every processor of its kind has.
    Common,
    /// Those on 256 bits at once.
    #[cfg(target_arch = "x86_64")]
    Wide,
    /// Those, and gathers of sixteen words that are fast (`gathered.rs`).
    #[cfg(target_arch = "x86_64")]
    Gathering,
}

impl Instructions {
    /// The best that this processor has.
    pub fn best() -> Instructions {
        Instructions::all().last().unwrap_or(Instructions::Common)
    }

    /// All that this processor has, the best at last.
    pub fn all() -> impl Iterator<Item = Instructions> {
        #[cfg(target_arch = "x86_64")]
        let more = {
            let is_wide = has_avx2();
            let wide = is_wide.then_some(Instructions::Wide);
            let gathering = (is_wide && gathers_fast()).then_some(Instructions::Gathering);
            wide.into_iter().chain(gathering)
        };
        #[cfg(not(target_arch = "x86_64"))]
        let more = core::iter::empty();
        core::iter::once(Instructions::Common).chain(more)
    }

    /// The first rule of `classifier` for each of `keys`.
    #[inline]
    pub fn search_all<A: Classified>(
        self,
        classifier: &ClassifierTuples<A>,
        keys: &[Key<A>],
        found: &mut [Option<RuleId>],
    ) {
        match self {
            Instructions::Common => classifier.search_all::<false>(keys, found),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `best` has asked the processor for each of these instructions.
            Instructions::Wide | Instructions::Gathering => unsafe {
                search_all_wide(classifier, keys, found);
            },
        }
    }

    /// The first settled rule of `classifier` for each of `keys`.
    #[inline]
    pub fn search_settled<A: Classified>(
        self,
        classifier: &ClassifierVectors<A>,
        keys: &[Key<A>],
        found: &mut [Option<RuleId>],
    ) {
        match self {
            Instructions::Common => classifier.search_all(keys, found),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `best` has asked the processor for each of these instructions.
            Instructions::Wide => unsafe { search_settled_wide(classifier, keys, found) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `best` has asked the processor for each of these instructions.
            Instructions::Gathering => unsafe {
                search_settled_gathering(classifier, keys, found);
            },
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
fn search_settled_wide<A: Classified>(
    classifier: &ClassifierVectors<A>,
    keys: &[Key<A>],
    found: &mut [Option<RuleId>],
) {
    classifier.search_all(keys, found);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512cd,avx512bw,avx512dq,avx512vl,bmi1,bmi2,popcnt,lzcnt")]
fn search_settled_gathering<A: Classified>(
    classifier: &ClassifierVectors<A>,
    keys: &[Key<A>],
    found: &mut [Option<RuleId>],
) {
    /// Headers of which it takes less time to search them one by one.
    const FEW: usize = 4;
    for (keys, found) in keys.chunks(GATHERED).zip(found.chunks_mut(GATHERED)) {
        if keys.len() < FEW {
            classifier.search_all(keys, found);
            continue;
        }
        let mut sixteen = [keys[0]; GATHERED];
        sixteen[..keys.len()].copy_from_slice(keys);
        let places = gathered::search(classifier.vectors(), &sixteen);
        for (found, place) in found.iter_mut().zip(places) {
            *found = classifier.id_of(place);
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
fn search_all_wide<A: Classified>(
    classifier: &ClassifierTuples<A>,
    keys: &[Key<A>],
    found: &mut [Option<RuleId>],
) {
    classifier.search_all::<true>(keys, found);
}

/// Whether the processor has AVX2, BMI1, BMI2, POPCNT and LZCNT, and the system keeps the wide
/// registers (Intel's manual, volume 1, 14.7.1).
#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    const KEPT: u64 = 6;
    let is_known = processor(0)[0] >= 7 && processor(0x8000_0000)[0] >= 0x8000_0001;
    let has = |register: u32, bits: u32| register & bits == bits;
    is_known
        && has(processor(1)[2], 1 << 23 | 1 << 27)
        && has(processor(0x8000_0001)[2], 1 << 5)
        && has(processor(7)[1], 1 << 3 | 1 << 5 | 1 << 8)
        && kept_registers() & KEPT == KEPT
}

/// Whether a processor with AVX2 has AVX-512 F, CD, BW, DQ and VL, and the system keeps its registers
/// (Intel's manual, volume 1, 15.2 to 15.4).
#[cfg(target_arch = "x86_64")]
fn gathers() -> bool {
    const KEPT: u64 = 0xe6;
    const FOUNDATIONS: u32 = 1 << 16 | 1 << 17 | 1 << 28 | 1 << 30 | 1 << 31;
    processor(7)[1] & FOUNDATIONS == FOUNDATIONS && kept_registers() & KEPT == KEPT
}

/// Whether it gathers, and has FP16.
#[cfg(target_arch = "x86_64")]
fn gathers_fast() -> bool {
    gathers() && processor(7)[3] >> 23 & 1 == 1
}

/// What the processor says of itself in `leaf`, which it knows: EAX, EBX, ECX, EDX.
#[cfg(target_arch = "x86_64")]
fn processor(leaf: u32) -> [u32; 4] {
    // SAFETY: every x86-64 processor has CPUID.
    #[allow(unused_unsafe, reason = "safe in newer compilers")]
    let said = unsafe { core::arch::x86_64::__cpuid_count(leaf, 0) };
    [said.eax, said.ebx, said.ecx, said.edx]
}

/// Which registers the system keeps for every thread; none where that cannot be asked.
#[cfg(target_arch = "x86_64")]
fn kept_registers() -> u64 {
    #[target_feature(enable = "xsave")]
    fn ask() -> u64 {
        // SAFETY: register 0 is there wherever XGETBV is.
        #[allow(unused_unsafe, reason = "safe in newer compilers")]
        unsafe {
            core::arch::x86_64::_xgetbv(0)
        }
    }
    if processor(1)[2] >> 27 & 1 == 0 {
        return 0;
    }
    // SAFETY: bit 27 says that XGETBV is there.
    unsafe { ask() }
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
            // SAFETY: `Instructions::best` has asked for AVX2 before anything is searched so.
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
        // SAFETY: eight words are 32 bytes, and the load asks for no alignment.
        unsafe { _mm256_loadu_si256(lanes.as_ptr().cast()) }
    };
    let ports = |lanes: &[u16; 2 * LANES]| {
        // SAFETY: sixteen half words are 32 bytes, and the load asks for no alignment.
        unsafe { _mm256_loadu_si256(lanes.as_ptr().cast()) }
    };
    let halves = |lanes: &[u16; LANES]| {
        // SAFETY: eight half words are 16 bytes, and the load asks for no alignment.
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
/// first than the range is long: one subtraction asks both ends.
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
    use crate::classifier::{Action, Classifier, ClassifierVectors, Octet, Ports, Rule};
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

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_processor_is_asked_as_the_standard_library_asks_it() {
        extern crate std;
        use std::is_x86_feature_detected as has;
        let bits = has!("bmi1") && has!("bmi2") && has!("popcnt") && has!("lzcnt");
        assert_eq!(has_avx2(), has!("avx2") && bits);
        let foundations = has!("avx512f") && has!("avx512cd") && has!("avx512bw");
        assert_eq!(gathers(), foundations && has!("avx512dq") && has!("avx512vl"));
        assert_eq!(gathers_fast(), gathers() && has!("avx512fp16"));
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

    /// The same among settled rules, where every instruction this processor has is tried, on batches of all
    /// lengths.
    fn all_instructions_find_the_same_settled<A: Classified>(address: fn(u64) -> A) {
        let mut rng = Rng::new(6, 2, u64::from(A::BITS));
        let mut classifier = ClassifierVectors::<A>::new(2_000);
        for id in 0..900 {
            assert_eq!(classifier.insert(RuleId(id), rule(&mut rng, address)), Ok(()));
        }
        classifier.settle();
        // Words of which no rule is left, and rules that go last.
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
