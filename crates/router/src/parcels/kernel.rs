//! The measured loops over addresses in a table of parcels.
//!
//! A batch takes its steps together: first all addresses whose parcels are divided go to their parts, until
//! none is left, then all that are in a tree find their line, then each finds its answer; and what a step
//! needs next it asks for, so that the lines of all come at once. Words say what will be found, so that
//! which addresses take a step is known from eight words at a time, and no step has a branch but its end.
//! A line's keys are compared at once: those not greater than the address's bits are counted.
//!
//! Bounds are not checked here and memory is read by address (`layout::find` does without both). What is
//! relied upon are promises of the writer: a word that can be found from the first 65,536 refers to a block
//! that was written before the word was published, as the word says, on a boundary of 16 bytes, or of 64 if
//! it is a tree or parts; nobody writes to it before all readers have passed. Only the bytes of a block
//! itself are read, as those beside it may be written.

use core::sync::atomic::Ordering;

use nilometer_queue::fetch::ask_for;

use super::BURST;
use super::account::{BITS, FIRST_BITS};
use super::layout;
use crate::classifier::kernel::Instructions;
use crate::fib::NextHop;
use crate::prefix::Address;
use crate::slots::memory::Memory;
use crate::slots::routes::next_hop;

/// Asks for the first words of `addresses`.
pub(super) fn ask_roots(memory: &Memory, addresses: &[u128]) {
    let roots = memory.words().as_ptr();
    for address in addresses {
        ask_for(roots.wrapping_add(address.bits(0, FIRST_BITS) as usize));
    }
}

/// Asks for what the first words of `addresses` refer to; nothing behind them is read.
#[inline(always)]
pub(super) fn ask(memory: &Memory, addresses: &[u128]) {
    let words = memory.words();
    let roots = &words[..1 << FIRST_BITS];
    for address in addresses {
        let word = roots[address.bits(0, FIRST_BITS) as usize].load(Ordering::Relaxed);
        let part = if layout::tag(word) == layout::PARTS { address.bits(FIRST_BITS, BITS) } else { 0 };
        let block = if layout::tag(word) == layout::ANSWER { 0 } else { layout::first(word) };
        ask_for(words.as_ptr().wrapping_add((block + part) as usize));
    }
}

/// The next hops of at most [`BURST`] addresses.
#[inline]
pub(super) fn find_all<const BYTES: usize>(
    memory: &Memory,
    instructions: Instructions,
    addresses: &[u128],
    next_hops: &mut [Option<NextHop>],
) {
    match instructions {
        Instructions::Common => {
            for (address, next) in addresses.iter().zip(next_hops) {
                *next = next_hop(layout::find::<BYTES>(memory, *address));
            }
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `Instructions::best` has asked the processor for each of these instructions.
        Instructions::Wide => unsafe { wide::find_all::<BYTES>(memory, addresses, next_hops) },
    }
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use core::arch::x86_64::*;
    use core::sync::atomic::AtomicU32;

    use super::*;
    use crate::slots::routes::Leaf;

    /// Bytes of an address that the first words are found by.
    const FIRST_BYTES: usize = FIRST_BITS as usize / 8;
    /// Bytes of a line, and words of it.
    const LINE: usize = 64;
    const WORDS: usize = 16;
    /// Behind this many bytes of an address there are no longer those of a wide key.
    const DEPTH_MAX: usize = 12;

    /// A batch on its way down.
    struct Batch<'a> {
        words: *const u8,
        addresses: &'a [u128],
        /// For each address the word that it has come to, and the bytes of it that led there.
        found: [u32; BURST],
        depths: [u8; BURST],
        leaves: [Leaf; BURST],
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
    pub(super) fn find_all<const BYTES: usize>(
        memory: &Memory,
        addresses: &[u128],
        next_hops: &mut [Option<NextHop>],
    ) {
        assert!(addresses.len() <= BURST);
        let mut batch = Batch {
            words: memory.words().as_ptr().cast(),
            addresses,
            found: [0; BURST],
            depths: [FIRST_BYTES as u8; BURST],
            leaves: [0; BURST],
        };
        let is_done = batch.descend(memory);
        let (trees, lines, wide, others) = batch.kinds();
        batch.lines_of_trees::<4, BYTES>(trees & wide);
        batch.lines_of_trees::<2, BYTES>(trees & !wide);
        batch.answers::<4, BYTES>(lines & wide);
        batch.answers::<2, BYTES>(lines & !wide);
        for (next, &leaf) in next_hops.iter_mut().zip(&batch.leaves) {
            *next = next_hop(leaf);
        }
        for number in bits(others) {
            // What is deep, or its parcel divided so often that a key's bytes would end behind the address.
            next_hops[number] = next_hop(layout::find::<BYTES>(memory, addresses[number]));
        }
        debug_assert!(is_done || others != 0);
    }

    impl Batch<'_> {
        /// From the first words down to parcels that are not divided; whether all have come there.
        #[inline]
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
        fn descend(&mut self, memory: &Memory) -> bool {
            let roots = &memory.words()[..1 << FIRST_BITS];
            let mut under_way = [0u8; BURST];
            let mut count = 0;
            for (number, address) in self.addresses.iter().enumerate() {
                let word = roots[(address >> (128 - FIRST_BITS)) as usize].load(Ordering::Acquire);
                self.found[number] = word;
                under_way[count] = number as u8;
                count += usize::from(layout::tag(word) == layout::PARTS);
            }
            let mut depth = FIRST_BYTES;
            while count > 0 && depth < DEPTH_MAX {
                let coming = count;
                count = 0;
                depth += 1;
                for at in 0..coming {
                    let number = usize::from(under_way[at]) % BURST;
                    let part = self.bytes::<1>(number, depth - 1) as usize;
                    // SAFETY: the word says that 256 words stand there, which are published each by
                    // itself; an aligned load of four bytes is a whole one.
                    let word = unsafe {
                        let parts = self.block(self.found[number]).cast::<AtomicU32>();
                        (*parts.add(part)).load(Ordering::Acquire)
                    };
                    self.found[number] = word;
                    self.depths[number] = depth as u8;
                    under_way[count] = number as u8;
                    let is_divided = layout::tag(word) == layout::PARTS;
                    count += usize::from(is_divided);
                    self.ask(number, depth, is_divided, word);
                }
            }
            count == 0
        }

        /// Asks for what a word refers to.
        #[inline(always)]
        fn ask(&self, number: usize, depth: usize, is_divided: bool, word: u32) {
            let part = self.bytes::<1>(number, depth) as usize;
            let offset = if is_divided { 4 * part } else { 0 };
            let block = if layout::tag(word) == layout::ANSWER { 0 } else { word };
            ask_for(self.block(block).wrapping_add(offset));
        }

        /// The addresses in trees, those in trees and lines, those with wide keys, and all that are
        /// neither there nor at their answer; the answers.
        #[inline]
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
        fn kinds(&mut self) -> (u64, u64, u64, u64) {
            let (mut trees, mut wide, mut others, mut answers) = (0u64, 0u64, 0u64, 0u64);
            let (eights, _) = self.found.as_chunks::<8>();
            for (number, eight) in eights.iter().enumerate() {
                // SAFETY: eight words are there to be read.
                let words = unsafe { _mm256_loadu_si256(eight.as_ptr().cast()) };
                let tags = _mm256_and_si256(words, _mm256_set1_epi32(0x7f));
                let signs = |lanes: __m256i| {
                    u64::from(_mm256_movemask_ps(_mm256_castsi256_ps(lanes)) as u8) << (8 * number)
                };
                trees |= signs(_mm256_slli_epi32::<25>(words));
                wide |= signs(_mm256_slli_epi32::<26>(words));
                others |= signs(_mm256_cmpgt_epi32(tags, _mm256_set1_epi32(125)));
                answers |= signs(_mm256_cmpeq_epi32(tags, _mm256_setzero_si256()));
            }
            for (leaf, word) in self.leaves.iter_mut().zip(self.found) {
                *leaf = (word >> 16) as Leaf;
            }
            (trees & !others, !others & !answers, wide, others)
        }

        /// Where a block begins.
        #[inline(always)]
        fn block(&self, word: u32) -> *const u8 {
            self.words.wrapping_add(((word >> layout::TAG_BITS) as usize) * 16)
        }

        /// Bytes of an address from the `at`-th on, which is at most the 12th, as a number.
        #[inline(always)]
        fn bytes<const COUNT: usize>(&self, number: usize, at: usize) -> u32 {
            debug_assert!(number < self.addresses.len() && at + COUNT <= 16);
            let address = self.addresses.as_ptr().cast::<u8>().wrapping_add(16 * number);
            // The bytes of a number are stored the lowest first.
            let bytes = address.wrapping_add(16 - COUNT - at);
            // SAFETY: within the address, of which the callers have the number.
            unsafe {
                match COUNT {
                    1 => u32::from(bytes.read()),
                    2 => u32::from(bytes.cast::<u16>().read_unaligned()),
                    _ => bytes.cast::<u32>().read_unaligned(),
                }
            }
        }

        /// Lets words that refer to trees refer to the line that has the answer.
        #[inline]
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
        fn lines_of_trees<const WIDTH: usize, const BYTES: usize>(&mut self, numbers: u64) {
            for number in bits(numbers) {
                let word = self.found[number];
                let key = self.bytes::<WIDTH>(number, usize::from(self.depths[number]));
                let passed = passed::<WIDTH>(self.block(word), word & layout::KEYS, key);
                let line = (word >> layout::TAG_BITS) + 4 * (1 + passed);
                let keys = const { layout::keys_max(WIDTH, BYTES) as u32 };
                self.found[number] = line << layout::TAG_BITS | keys;
                ask_for(self.words.wrapping_add(line as usize * 16));
            }
        }

        /// The answers in the lines that words refer to.
        #[inline]
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
        fn answers<const WIDTH: usize, const BYTES: usize>(&mut self, numbers: u64) {
            for number in bits(numbers) {
                let word = self.found[number];
                let (line, keys) = (self.block(word), word & layout::KEYS);
                let key = self.bytes::<WIDTH>(number, usize::from(self.depths[number]));
                let passed = passed::<WIDTH>(line, keys, key);
                // SAFETY: behind the keys there is an answer for each of them and one more; those of
                // two bytes stand on boundaries of two.
                self.leaves[number] = unsafe {
                    let answer = line.add(keys as usize * WIDTH + passed as usize * BYTES);
                    if BYTES == 1 { Leaf::from(answer.read()) } else { answer.cast::<u16>().read() }
                };
            }
        }
    }

    /// The numbers of the bits that are set.
    #[inline(always)]
    fn bits(mut of: u64) -> impl Iterator<Item = usize> {
        core::iter::from_fn(move || {
            let number = of.trailing_zeros() as usize;
            of &= of.wrapping_sub(1);
            (number < BURST).then_some(number)
        })
    }

    /// Lanes to read: from the one before the middle that is as many ahead as there are.
    static LANES: [i32; 2 * WORDS] = {
        let mut lanes = [0; 2 * WORDS];
        let mut lane = 0;
        while lane < WORDS {
            lanes[lane] = -1;
            lane += 1;
        }
        lanes
    };

    /// How many of so many `keys` at `line` are not greater than `key`.
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
    fn passed<const WIDTH: usize>(line: *const u8, keys: u32, key: u32) -> u32 {
        const { assert!(WIDTH == 2 || WIDTH == 4) };
        let bytes = keys as usize * WIDTH;
        let lanes = bytes.div_ceil(4).min(WORDS);
        // SAFETY: with at most sixteen lanes to read, those that say so are all within the array.
        let masks = unsafe { LANES.as_ptr().add(WORDS - lanes) };
        let half = |number: usize| {
            // SAFETY: as above; and of the line none but the words of its keys are read.
            let words = unsafe {
                let mask = _mm256_loadu_si256(masks.add(8 * number).cast());
                _mm256_maskload_epi32(line.cast::<i32>().wrapping_add(8 * number), mask)
            };
            let is_passed = if WIDTH == 2 {
                let keys = _mm256_set1_epi16(key as i16);
                _mm256_cmpeq_epi16(_mm256_max_epu16(keys, words), keys)
            } else {
                let keys = _mm256_set1_epi32(key as i32);
                _mm256_cmpeq_epi32(_mm256_max_epu32(keys, words), keys)
            };
            u64::from(_mm256_movemask_epi8(is_passed) as u32)
        };
        let all = half(0) | half(1) << (LINE / 2);
        _bzhi_u64(all, bytes as u32).count_ones() / WIDTH as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parcels::ParcelFib;
    use crate::{Fib, Prefix};
    use nilometer_stat::Rng;

    fn hold<const BYTES: usize>(count: u64, lengths: (u32, u32), differ: u128) {
        let mut rng = Rng::new(count, 1, 0);
        let mut table = ParcelFib::<BYTES>::new(1 << 20).expect("room");
        let any = |rng: &mut Rng| u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64());
        for _ in 0..count {
            let length = lengths.0 + rng.below(u64::from(lengths.1 - lengths.0 + 1)) as u32;
            let prefix = Prefix::new(any(&mut rng) & differ, length).expect("sound");
            let next = NextHop(rng.below(u64::from(ParcelFib::<BYTES>::LEAF_MAX)) as u16);
            table.insert(prefix, next).expect("room");
        }
        for count in [0, 1, 7, 8, 63, BURST] {
            for _ in 0..20 {
                let addresses: alloc::vec::Vec<u128> =
                    (0..count).map(|_| any(&mut rng) & differ).collect();
                let expected = addresses.iter().map(|address| table.lookup(*address));
                let expected: alloc::vec::Vec<_> = expected.collect();
                for instructions in [Instructions::Common, Instructions::best()] {
                    let mut found = alloc::vec![None; count];
                    find_all::<BYTES>(&table.memory, instructions, &addresses, &mut found);
                    assert_eq!(found, expected, "{instructions:?}");
                }
            }
        }
    }

    #[test]
    fn all_instructions_find_the_same() {
        // Lines and trees of either width, and what is deep, below parcels that are divided or not.
        let areas = [
            ((16, 32), 0x2001_ffff << 96),
            ((16, 48), 0x2001_00ff_ffff << 80),
            ((100, 128), 0xffff),
            ((90, 128), 0xff0f_0f0f),
            ((0, 128), 0x2000_0300_0003_8100_0003_8000_0000_0003),
        ];
        for (lengths, differ) in areas {
            for count in [1, 5, 20, 100, 2_000] {
                hold::<1>(count, lengths, differ);
                hold::<2>(count, lengths, differ);
            }
        }
    }
}
