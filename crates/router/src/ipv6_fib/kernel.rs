//! The measured loops over addresses in a table of parcels.
//!
//! A batch takes its steps together, so that the cache misses of different addresses overlap. First eight
//! addresses at a time gather their words, and those whose parcels are divided the words of their parts,
//! until none is left. Then the words say what will be found, and so which address takes which step, with
//! no branch but a step's end: addresses in trees find their line, and all find their answer, by comparing
//! the keys of a line at once and counting those that are not greater than their own bits. Lines are
//! prefetched when all words are known. Prefetching them earlier, while a reader waits for its fence, as
//! tables of slots do (`slots/kernel.rs`), costs more than it saves: words are gathered by eights, and
//! prefetching takes them one by one.
//!
//! Bounds are not checked here and memory is read by address (`layout::find` does without both). The loops
//! rely on what the writer guarantees: a word that can be found from the first 65,536 refers to a block
//! that was written before the word was published, as the word says, on a boundary of 16 bytes, or of 64
//! if it is a tree or parts; nothing writes to it before all readers have passed. Only the bytes of a
//! block itself are read, as those beside it may be written.

use nilometer_wire::prefetch::prefetch;

use super::layout;
use super::parcel_table::FIRST_BITS;
use crate::classifier::instructions::Instructions;
use crate::fib::NextHop;
use crate::prefix::Address;
use crate::slots::memory::SlotMemory;
use crate::slots::routes::next_hop;

/// Prefetches the first words of `addresses`.
pub(super) fn prefetch_roots(memory: &SlotMemory, addresses: &[u128]) {
    let roots = memory.words().as_ptr();
    for address in addresses {
        prefetch(roots.wrapping_add(address.bits(0, FIRST_BITS) as usize));
    }
}

/// The next hops of a batch of addresses.
#[inline]
pub(super) fn find_all<const BYTES: usize>(
    memory: &SlotMemory,
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
        // SAFETY: `Instructions::best` has checked that the processor has each of these instructions.
        Instructions::Wide | Instructions::Gathering => unsafe {
            wide::find_all::<BYTES>(memory, addresses, next_hops);
        },
    }
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use core::arch::asm;
    use core::arch::x86_64::*;

    use super::*;
    use crate::ipv6_fib::BURST;
    use crate::slots::routes::Leaf;

    /// Addresses that go down side by side, and how often that many are in a batch.
    const LANES: usize = 8;
    const GROUPS: usize = BURST / LANES;
    /// Bytes of a line, and words of it.
    const LINE: usize = 64;
    const WORDS: usize = 16;

    /// A batch on its way down.
    struct Batch<'a> {
        words: *const u8,
        addresses: &'a [u128; BURST],
        found: Lanes,
        keys: Lanes,
        behind: Lanes,
    }

    /// A number for each address.
    #[repr(align(64))]
    struct Lanes([u32; BURST]);

    impl Lanes {
        #[inline]
        #[target_feature(enable = "avx2")]
        fn group(&self, group: usize) -> __m256i {
            // SAFETY: eight numbers are read, which the slice has.
            unsafe { _mm256_load_si256(self.0[group * LANES..][..LANES].as_ptr().cast()) }
        }

        #[inline]
        #[target_feature(enable = "avx2")]
        fn set(&mut self, group: usize, lanes: __m256i) {
            let numbers = self.0[group * LANES..][..LANES].as_mut_ptr();
            // SAFETY: eight numbers are written, which the slice has.
            unsafe { _mm256_store_si256(numbers.cast(), lanes) }
        }
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
    pub(super) fn find_all<const BYTES: usize>(
        memory: &SlotMemory,
        addresses: &[u128],
        next_hops: &mut [Option<NextHop>],
    ) {
        let mut padded = [0; BURST];
        let addresses: &[u128; BURST] = match addresses.try_into() {
            Ok(whole) => whole,
            Err(_) => {
                padded[..addresses.len()].copy_from_slice(addresses);
                &padded
            }
        };
        // Of all words, not of the first alone: what they refer to is read through it, too.
        let words = memory.words();
        assert!(words.len() >= 1 << FIRST_BITS, "a first word for every sixteen bits");
        let words = words.as_ptr().cast();
        let none = || Lanes([0; BURST]);
        let mut batch = Batch { words, addresses, found: none(), keys: none(), behind: none() };
        batch.descend();
        let kinds = batch.kinds(next_hops.len());
        bits(kinds.lines).for_each(|number| prefetch(batch.block(batch.found.0[number])));
        for number in bits(kinds.answers) {
            next_hops[number] = next_hop((batch.found.0[number] >> 16) as Leaf);
        }
        batch.lines_of_trees::<4, BYTES>(kinds.trees & kinds.wide);
        batch.lines_of_trees::<2, BYTES>(kinds.trees & !kinds.wide);
        batch.answers::<4, BYTES>(kinds.lines & kinds.wide, next_hops);
        batch.answers::<2, BYTES>(kinds.lines & !kinds.wide, next_hops);
        for number in bits(kinds.deep) {
            next_hops[number] = next_hop(layout::find::<BYTES>(memory, addresses[number]));
        }
    }

    /// The kinds of blocks that the addresses of a batch have reached, a bit for each address.
    struct Kinds {
        answers: u64,
        trees: u64,
        /// Those in trees, too.
        lines: u64,
        wide: u64,
        deep: u64,
    }

    impl Batch<'_> {
        /// From the first words down to parcels that are not divided.
        #[inline]
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
        fn descend(&mut self) {
            let mut is_on = false;
            for group in 0..GROUPS {
                let [first, second] = self.columns::<1>(group);
                let roots = _mm256_srli_epi32::<16>(first);
                // SAFETY: a first word for every sixteen bits.
                let found = unsafe { gather(self.words, roots, roots, _mm256_set1_epi32(-1)) };
                is_on |= _mm256_movemask_epi8(is_divided(found)) != 0;
                self.found.set(group, found);
                self.keys.set(group, joined::<16>(first, second));
            }
            let mut step = 0;
            while is_on {
                if step % 4 == 0 {
                    self.expect_bytes(step);
                }
                is_on = false;
                for group in 0..GROUPS {
                    let found = self.found.group(group);
                    let divided = is_divided(found);
                    if _mm256_testz_si256(divided, divided) != 0 {
                        continue;
                    }
                    let (keys, behind) = (self.keys.group(group), self.behind.group(group));
                    let blocks = _mm256_slli_epi32::<2>(_mm256_srli_epi32::<7>(found));
                    let parts = _mm256_add_epi32(blocks, _mm256_srli_epi32::<24>(keys));
                    // SAFETY: words of this kind refer to 256 words.
                    let found = unsafe { gather(self.words, parts, found, divided) };
                    is_on |= _mm256_movemask_epi8(is_divided(found)) != 0;
                    self.found.set(group, found);
                    let below = joined::<8>(keys, behind);
                    self.keys.set(group, _mm256_blendv_epi8(keys, below, divided));
                    self.behind.set(group, _mm256_slli_epi32::<8>(behind));
                }
                step += 1;
            }
        }

        /// The four bytes of each address that lie behind its key, for addresses that have taken `step`
        /// steps.
        #[inline]
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
        fn expect_bytes(&mut self, step: usize) {
            for group in 0..GROUPS {
                let [third, last] = self.columns::<0>(group);
                let behind = match step {
                    0 => {
                        let [_, second] = self.columns::<1>(group);
                        joined::<16>(second, third)
                    }
                    4 => joined::<16>(third, last),
                    8 => _mm256_slli_epi32::<16>(last),
                    _ => _mm256_setzero_si256(),
                };
                self.behind.set(group, behind);
            }
        }

        /// Four bytes of each of eight addresses, and the next four: the first eight bytes where `HIGH` is
        /// 1, else the last.
        #[inline]
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
        fn columns<const HIGH: i32>(&self, group: usize) -> [__m256i; 2] {
            let eight = self.addresses[group * LANES..][..LANES].as_ptr().cast::<__m256i>();
            // SAFETY: two addresses each, of the eight that the slice has.
            let two = |number: usize| unsafe { _mm256_loadu_si256(eight.add(number)) };
            let half = |a: __m256i, b: __m256i| match HIGH {
                1 => _mm256_castsi256_ps(_mm256_unpackhi_epi64(a, b)),
                _ => _mm256_castsi256_ps(_mm256_unpacklo_epi64(a, b)),
            };
            let (front, back) = (half(two(0), two(1)), half(two(2), two(3)));
            let in_order = |lanes: __m256| {
                let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
                _mm256_permutevar8x32_epi32(_mm256_castps_si256(lanes), order)
            };
            let higher = _mm256_shuffle_ps::<0b11_01_11_01>(front, back);
            let lower = _mm256_shuffle_ps::<0b10_00_10_00>(front, back);
            [in_order(higher), in_order(lower)]
        }

        /// What words refer to, of the first `count` addresses.
        #[inline]
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
        fn kinds(&self, count: usize) -> Kinds {
            let (mut answers, mut trees, mut wide, mut deep) = (0, 0, 0, 0);
            for group in 0..GROUPS {
                let words = self.found.group(group);
                let tags = _mm256_and_si256(words, _mm256_set1_epi32(0x7f));
                let bits = |lanes: __m256i| {
                    let signs = _mm256_movemask_ps(_mm256_castsi256_ps(lanes));
                    u64::from(signs as u8) << (LANES * group)
                };
                answers |= bits(_mm256_cmpeq_epi32(tags, _mm256_setzero_si256()));
                trees |= bits(_mm256_slli_epi32::<25>(words));
                wide |= bits(_mm256_slli_epi32::<26>(words));
                deep |= bits(_mm256_cmpeq_epi32(tags, _mm256_set1_epi32(layout::DEEP as i32)));
            }
            let all = _bzhi_u64(u64::MAX, count as u32);
            let lines = all & !answers & !deep;
            Kinds { answers: answers & all, trees: trees & lines, lines, wide, deep: deep & all }
        }

        /// Where a block begins.
        #[inline(always)]
        fn block(&self, word: u32) -> *const u8 {
            self.words.wrapping_add(((word >> layout::TAG_BITS) as usize) * 16)
        }

        /// The bits of an address that keys of `WIDTH` bytes are compared with.
        #[inline(always)]
        fn key<const WIDTH: usize>(&self, number: usize) -> u32 {
            self.keys.0[number] >> (32 - 8 * WIDTH)
        }

        /// Makes words that refer to trees refer to the line that has the answer.
        #[inline]
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
        fn lines_of_trees<const WIDTH: usize, const BYTES: usize>(&mut self, numbers: u64) {
            for number in bits(numbers) {
                let word = self.found.0[number];
                let key = self.key::<WIDTH>(number);
                // SAFETY: a tree begins with a whole line of keys, those that it has not being zeros.
                let passed = unsafe {
                    let first = self.block(word).cast::<__m256i>();
                    let halves = [0, 1].map(|half| match (half, WIDTH) {
                        (1, 2) => _mm256_setzero_si256(),
                        _ => _mm256_load_si256(first.add(half)),
                    });
                    passed::<WIDTH>(halves, word & layout::KEYS, key)
                };
                let line = (word >> layout::TAG_BITS) + 4 * (1 + passed);
                let keys = const { layout::keys_max(WIDTH, BYTES) as u32 };
                self.found.0[number] = line << layout::TAG_BITS | keys;
                prefetch(self.words.wrapping_add(line as usize * 16));
            }
        }

        /// The answers in the lines that words refer to.
        #[inline]
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
        fn answers<const WIDTH: usize, const BYTES: usize>(
            &self,
            numbers: u64,
            next_hops: &mut [Option<NextHop>],
        ) {
            for number in bits(numbers) {
                let word = self.found.0[number];
                let (line, keys) = (self.block(word), word & layout::KEYS);
                let key = self.key::<WIDTH>(number);
                // SAFETY: only the words of the line's keys are read.
                let passed = unsafe { passed::<WIDTH>(load::<WIDTH>(line, keys), keys, key) };
                // SAFETY: behind the keys there is an answer for each of them and one more; those of
                // two bytes stand on boundaries of two.
                let leaf = unsafe {
                    let answer = line.add(keys as usize * WIDTH + passed as usize * BYTES);
                    if BYTES == 1 { Leaf::from(answer.read()) } else { answer.cast::<u16>().read() }
                };
                next_hops[number] = next_hop(leaf);
            }
        }
    }

    /// Whether words refer to the parts of a divided parcel.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn is_divided(words: __m256i) -> __m256i {
        let parts = _mm256_set1_epi32(layout::PARTS as i32);
        _mm256_cmpeq_epi32(_mm256_and_si256(words, parts), parts)
    }

    /// Numbers without their first bits, and behind them as many of those that follow.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn joined<const BITS: i32>(numbers: __m256i, behind: __m256i) -> __m256i {
        let behind = match BITS {
            8 => _mm256_srli_epi32::<24>(behind),
            _ => _mm256_srli_epi32::<16>(behind),
        };
        _mm256_or_si256(_mm256_slli_epi32::<BITS>(numbers), behind)
    }

    /// The words of these indices where the mask's signs are set, else what is in `old`.
    ///
    /// # Safety
    /// These words must exist, and what they refer to must not be written to before readers have passed.
    /// The writer may be publishing them: an instruction opaque to the compiler loads each in one piece,
    /// and x86-64 does not load what it refers to before it.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn gather(words: *const u8, indices: __m256i, old: __m256i, mask: __m256i) -> __m256i {
        let mut found = old;
        // SAFETY: the caller's words are there.
        unsafe {
            asm!(
                "vpgatherdd {found}, [{words} + 4*{indices}], {mask}",
                found = inout(ymm_reg) found,
                words = in(reg) words,
                indices = in(ymm_reg) indices,
                mask = inout(ymm_reg) mask => _,
                options(nostack, readonly, preserves_flags),
            );
        }
        found
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
    static MASKS: [i32; 2 * WORDS] = {
        let mut masks = [0; 2 * WORDS];
        let mut lane = 0;
        while lane < WORDS {
            masks[lane] = -1;
            lane += 1;
        }
        masks
    };

    /// The words of a line that hold its first `keys` keys; zeros for the words behind them.
    ///
    /// # Safety
    /// The line must have those words.
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
    unsafe fn load<const WIDTH: usize>(line: *const u8, keys: u32) -> [__m256i; 2] {
        let words = (keys as usize * WIDTH).div_ceil(4).min(WORDS);
        let masks = MASKS[WORDS - words..][..WORDS].as_ptr();
        [0, 1].map(|half| {
            // SAFETY: sixteen masks are there, and those words of the line for which they are set.
            unsafe {
                let mask = _mm256_loadu_si256(masks.add(8 * half).cast());
                _mm256_maskload_epi32(line.cast::<i32>().wrapping_add(8 * half), mask)
            }
        })
    }

    /// How many of the first `keys` in a line are not greater than `key`.
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
    fn passed<const WIDTH: usize>(line: [__m256i; 2], keys: u32, key: u32) -> u32 {
        const { assert!(WIDTH == 2 || WIDTH == 4) };
        let [front, back] = line.map(|half| {
            let is_passed = if WIDTH == 2 {
                let keys = _mm256_set1_epi16(key as i16);
                _mm256_cmpeq_epi16(_mm256_max_epu16(keys, half), keys)
            } else {
                let keys = _mm256_set1_epi32(key as i32);
                _mm256_cmpeq_epi32(_mm256_max_epu32(keys, half), keys)
            };
            u64::from(_mm256_movemask_epi8(is_passed) as u32)
        });
        let all = front | back << (LINE / 2);
        _bzhi_u64(all, keys * WIDTH as u32).count_ones() / WIDTH as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipv6_fib::{BURST, Ipv6Fib};
    use crate::{Fib, Prefix};
    use nilometer_stat::Rng;

    fn hold<const BYTES: usize>(count: u64, lengths: (u32, u32), differ: u128) {
        let mut rng = Rng::new(count, 1, 0);
        let mut table = Ipv6Fib::<BYTES>::new(1 << 20).expect("room");
        let any = |rng: &mut Rng| u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64());
        for _ in 0..count {
            let length = lengths.0 + rng.below(u64::from(lengths.1 - lengths.0 + 1)) as u32;
            let prefix = Prefix::new(any(&mut rng) & differ, length).expect("sound");
            let next = NextHop(rng.below(u64::from(Ipv6Fib::<BYTES>::LEAF_MAX)) as u16);
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
