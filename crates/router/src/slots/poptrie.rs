//! Slots that are tries of six bits a step, packed by counting: Asai and Ohara's "Poptrie" (2015).
//!
//! A node has two bitmaps of 64 bits, one bit for each value of the next six bits of the address. The first
//! says which values have a child; children stand side by side, so that the bits set before a value's own
//! count to its child. All other values have an answer, and where the answers of successive ones are
//! alike the second bitmap marks the first alone: one answer is kept for each mark, found by counting too.
//!
//! ```text
//! roots, 2^18 × 4 bytes     a block: nodes of 24 bytes, and answers of 2
//! [ 10.0.0.0/18 ] ------->  [ children 64 | answers 64 | first child | first answer ] …
//! ```
//!
//! A lookup that ends in a route of 24 bits takes a root, a node and an answer, three lines of the cache;
//! the first and often the second are near. Unlike in the original, a slot with one answer is not marked
//! in its root but has a block which all such slots share, and each block has its nodes and answers to
//! itself. It is here for comparison (`nilometer route bench fib`); `lines.rs` takes its bitmap of 64 and
//! keeps the answers in the same line.

use alloc::vec::Vec;

use super::Layout;
use super::memory::SlotMemory;
use super::routes::{Leaf, Run};
use crate::prefix::Address;

/// Bits that number a slot.
const BITS: u32 = 18;
/// Bits of a step.
const STRIDE: u32 = 6;
/// Bits of the address at the end of the last step: its own, and zeros behind them.
const WHOLE: u32 = BITS + 3 * STRIDE;
/// Words of a node: children, answers, the first child's word and that of the first answers.
const NODE_WORDS: usize = 6;

/// The layout: a trie.
#[derive(Debug)]
pub struct Poptrie;

/// Where a node's addresses begin, as numbers of `WHOLE` bits, and at which bit it looks.
#[derive(Clone, Copy, Debug)]
struct Part {
    first: u64,
    depth: u32,
}

/// The runs of a node; the first may begin before it.
type Runs<'a> = &'a [(u64, Leaf)];

impl Poptrie {
    /// Writes a node at word `at` of the block, and behind everything its answers and children.
    fn fill(block: &mut Vec<u32>, at: usize, part: Part, runs: Runs<'_>) {
        let width = 1u64 << (WHOLE - part.depth - STRIDE);
        let (mut children, mut answers) = (0u64, 0u64);
        let (mut below, mut leaves): (Vec<(Part, Runs<'_>)>, Vec<Leaf>) = Default::default();
        let mut from = 0;
        for value in 0..1u64 << STRIDE {
            let first = part.first + value * width;
            let begin_before = |limit: u64| runs.partition_point(|(start, _)| *start < limit);
            from = begin_before(first + 1).max(from + 1) - 1;
            let to = begin_before(first + width);
            if to > from + 1 {
                children |= 1 << value;
                below.push((Part { first, depth: part.depth + STRIDE }, &runs[from..to]));
            } else if leaves.last() != Some(&runs[from].1) {
                answers |= 1 << value;
                leaves.push(runs[from].1);
            }
        }
        let first_answers = block.len();
        let pairs = leaves.chunks(2);
        block.extend(
            pairs.map(|two| two.iter().rev().fold(0, |w, leaf| w << 16 | u32::from(*leaf))),
        );
        let first_child = block.len();
        block.resize(first_child + NODE_WORDS * below.len(), 0);
        let halves = [children as u32, (children >> 32) as u32, answers as u32];
        block[at..at + 3].copy_from_slice(&halves);
        block[at + 3..at + NODE_WORDS].copy_from_slice(&[
            (answers >> 32) as u32,
            first_child as u32,
            first_answers as u32,
        ]);
        for (number, (part, runs)) in below.into_iter().enumerate() {
            Self::fill(block, first_child + number * NODE_WORDS, part, runs);
        }
    }

    /// The bitmap whose first word is `at`.
    #[inline(always)]
    fn bitmap(memory: &SlotMemory, at: u32) -> u64 {
        u64::from(memory.word(at)) | u64::from(memory.word(at + 1)) << 32
    }
}

impl Layout<u32> for Poptrie {
    const BITS: u32 = BITS;
    const LEAF_MAX: Leaf = Leaf::MAX;

    fn pack(_: u32, runs: &[Run<u32>], block: &mut Vec<u32>) {
        let spare = WHOLE - u32::BITS;
        let runs: Vec<(u64, Leaf)> =
            runs.iter().map(|run| (u64::from(run.start) << spare, run.leaf)).collect();
        block.resize(NODE_WORDS, 0);
        let first = runs[0].0 >> (WHOLE - BITS) << (WHOLE - BITS);
        Self::fill(block, 0, Part { first, depth: BITS }, &runs);
    }

    #[inline(always)]
    fn find(memory: &SlotMemory, block: u32, address: u32) -> Leaf {
        let (mut node, mut depth) = (block, BITS);
        loop {
            let value = address.bits(depth, STRIDE);
            let up_to = (2u64 << value).wrapping_sub(1);
            let children = Self::bitmap(memory, node);
            if children >> value & 1 == 0 {
                let answers = Self::bitmap(memory, node + 2);
                let number = (answers & up_to).count_ones() - 1;
                let word = memory.word(block + memory.word(node + 5) + number / 2);
                return (word >> (number % 2 * 16)) as Leaf;
            }
            let number = (children & up_to).count_ones() - 1;
            node = block + memory.word(node + 4) + number * NODE_WORDS as u32;
            depth += STRIDE;
        }
    }
}
