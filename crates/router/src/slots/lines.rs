//! Slots of IPv4 that a lookup reads one line of: a bitmap, and the answers side by side behind it.
//!
//! A slot is a /18, which is 64 networks of 24 bits. Its block begins with a word of 64 bits: bit i is set
//! where network i has another answer than network i − 1; bit 0 is always set. Behind it stand the
//! answers, one of one byte for each set bit. So the number of bits set up to a network's own is the
//! number of its answer: shift, count, load. Up to 56 answers and the bitmap are a line of the cache, and
//! the allocator lays no block across two.
//!
//! ```text
//! roots, 2^18 × 4 bytes     a block
//! [ 10.0.0.0/18 ] ------->  [ 1 0 0 1 1 … (64 bits) | 7 | 12 | 9 | … ]
//! ```
//!
//! Why this layout (`nilometer route bench fib` times it): the cost of a lookup is the lines that it waits
//! for, and the cost of a line depends on how much of the table the nearer caches hold. DIR-24-8 reads one
//! line of 32 MiB, which no cache near the core holds. A poptrie reads three, of a root, a node and a
//! leaf; with bitmap and leaves in one block it is two, the nodes disappear, and the whole table, 3 MB for
//! 900,000 routes, sits in the second and third level of the cache. Answers of one byte halve it; that
//! allows 254 next hops, and with two bytes (`Lines<2>`) there are 65,534.
//!
//! A burst goes through in two passes. The first reads the roots and prefetches the blocks' lines
//! (`bursts.rs`), the second counts and loads, by when the lines have come. There is no branch in either:
//! slots with one answer share a block which looks like any other.
//!
//! A network with routes inside has the answer `ESCAPE`, a bit of its own, and behind the answers an
//! offset to a bitmap of its 256 addresses with the answers behind it, found as above. Of 900,000 routes
//! some 900 are longer than 24 bits; a burst looks for escapes once, at its end.

mod bursts;

use alloc::vec::Vec;

use super::Layout;
use super::division::Divided;
use super::memory::SlotMemory;
use super::routes::{Leaf, Run, next_hop};
use crate::fib::NextHop;
use crate::tree_bitmap::Instructions;

/// Bits that number a slot.
pub(super) const BITS: u32 = 18;
/// Networks of a slot.
const NETWORKS: u32 = 64;
/// Words of a bitmap of networks, and of one of addresses.
const BITMAP_WORDS: u32 = 2;
const DEEP_WORDS: u32 = 8;

/// The layout, with answers of `BYTES` bytes: 1 for up to 254 next hops, 2 for up to 65,534.
#[derive(Debug)]
pub struct Lines<const BYTES: usize = 1>;

impl<const BYTES: usize> Lines<BYTES> {
    const SOUND: () = assert!(BYTES == 1 || BYTES == 2);
    /// The answer that stands for a deeper lookup.
    pub(super) const ESCAPE: Leaf = if BYTES == 1 { 0xff } else { 0xffff };

    /// Words of `count` answers.
    fn words(count: u32) -> u32 {
        (count * BYTES as u32).div_ceil(4)
    }

    fn push_answers(answers: &[Leaf], block: &mut Vec<u32>) {
        let per_word = 4 / BYTES;
        for some in answers.chunks(per_word) {
            let word =
                some.iter().rev().fold(0, |word, &leaf| word << (8 * BYTES) | u32::from(leaf));
            block.push(word);
        }
    }

    /// The `index`-th answer of those that begin at word `first`.
    fn answer(memory: &SlotMemory, first: u32, index: u32) -> Leaf {
        let per_word = 4 / BYTES as u32;
        let word = memory.word(first + index / per_word);
        (word >> (index % per_word * 8 * BYTES as u32)) as Leaf & Self::ESCAPE
    }

    /// Packs the runs of one network: a bitmap of its addresses and the answers.
    fn push_deep(before: Leaf, runs: &[Run<u32>], block: &mut Vec<u32>) {
        let (mut bitmap, mut answers) = ([0u32; DEEP_WORDS as usize], Vec::new());
        if runs[0].start & 0xff != 0 {
            bitmap[0] = 1;
            answers.push(before);
        }
        for run in runs {
            let address = run.start & 0xff;
            bitmap[address as usize / 32] |= 1 << (address % 32);
            answers.push(run.leaf);
        }
        block.extend(bitmap);
        Self::push_answers(&answers, block);
    }

    /// The answer for an address whose network has routes inside, and is the `number`-th answer of its
    /// block.
    #[cold]
    pub(super) fn deeper(memory: &SlotMemory, block: u32, number: u32, address: u32) -> Leaf {
        let answers = block + BITMAP_WORDS;
        let escapes = (0..number).filter(|i| Self::answer(memory, answers, *i) == Self::ESCAPE);
        let bits = memory.word(block).count_ones() + memory.word(block + 1).count_ones();
        let offset = answers + Self::words(bits) + escapes.count() as u32;
        let deep = block + memory.word(offset);
        let (word, bit) = ((address & 0xff) / 32, address % 32);
        let before: u32 = (0..word).map(|i| memory.word(deep + i).count_ones()).sum();
        let count = before + (memory.word(deep + word) << (31 - bit)).count_ones();
        Self::answer(memory, deep + DEEP_WORDS, count - 1)
    }

    /// The number of an address's answer in its block.
    pub(super) fn number(memory: &SlotMemory, block: u32, address: u32) -> u32 {
        let low = u64::from(memory.word(block));
        let bitmap = u64::from(memory.word(block + 1)) << 32 | low;
        (bitmap << (63 - (address >> 8) % NETWORKS)).count_ones() - 1
    }
}

impl<const BYTES: usize> Layout<u32> for Lines<BYTES> {
    const BITS: u32 = BITS;
    const LEAF_MAX: Leaf = Self::ESCAPE - 1;

    fn pack(_: u32, runs: &[Run<u32>], block: &mut Vec<u32>) {
        let () = Self::SOUND;
        let (mut bitmap, mut answers) = (1u64, Vec::with_capacity(NETWORKS as usize));
        let mut deep: Vec<(Leaf, &[Run<u32>])> = Vec::new();
        let mut before = 0;
        let mut next = None;
        for network in runs.chunk_by(|a, b| a.start >> 8 == b.start >> 8) {
            let number = (network[0].start >> 8) % NETWORKS;
            // The networks after one with routes inside have an answer of their own again.
            if let Some(behind) = next.take().filter(|behind| *behind < number) {
                bitmap |= 1u64 << behind;
                answers.push(before);
            }
            bitmap |= 1u64 << number;
            let is_deep = network.len() > 1 || network[0].start & 0xff != 0;
            if is_deep {
                answers.push(Self::ESCAPE);
                deep.push((before, network));
                next = Some(number + 1);
            } else {
                answers.push(network[0].leaf);
            }
            before = network[network.len() - 1].leaf;
        }
        if let Some(behind) = next.filter(|behind| *behind < NETWORKS) {
            bitmap |= 1u64 << behind;
            answers.push(before);
        }
        block.extend([bitmap as u32, (bitmap >> 32) as u32]);
        Self::push_answers(&answers, block);
        let offsets = block.len();
        block.resize(offsets + deep.len(), 0);
        for (number, (before, network)) in deep.into_iter().enumerate() {
            block[offsets + number] = block.len() as u32;
            Self::push_deep(before, network, block);
        }
    }

    fn words_max(_: u32, starts: &[u32]) -> usize {
        let (mut answers, mut deep, mut behind) = (0, 0, 0);
        for network in starts.chunk_by(|a, b| a >> 8 == b >> 8) {
            let number = (network[0] >> 8) % NETWORKS;
            let is_aligned = network[0] & 0xff == 0;
            // The networks after one with routes inside have an answer of their own again.
            answers += 1 + u32::from(0 < behind && behind < number);
            behind = 0;
            if network.len() > 1 || !is_aligned {
                let inside = network.len() as u32 + u32::from(!is_aligned);
                deep += 1 + DEEP_WORDS + Self::words(inside);
                behind = number + 1;
            }
        }
        answers += u32::from(0 < behind && behind < NETWORKS);
        (BITMAP_WORDS + Self::words(answers) + deep) as usize
    }

    fn find(memory: &SlotMemory, block: u32, address: u32) -> Leaf {
        let number = Self::number(memory, block, address);
        match Self::answer(memory, block + BITMAP_WORDS, number) {
            leaf if leaf == Self::ESCAPE => Self::deeper(memory, block, number, address),
            leaf => leaf,
        }
    }

    fn find_all(
        memory: &SlotMemory,
        instructions: Instructions,
        addresses: &[u32],
        next_hops: &mut [Option<NextHop>],
    ) {
        let done = bursts::find_bursts::<BYTES>(memory, instructions, addresses, next_hops);
        for (address, next) in addresses[done..].iter().zip(&mut next_hops[done..]) {
            let block = memory.root(address.slot(BITS));
            *next = next_hop(Self::find(memory, block, *address));
        }
    }
}
