//! Slots that are searched by halves: what Zec, Rizzo and Mikuc made of ranges ("DXR", 2012).
//!
//! A table of longest prefixes is a list of ranges of addresses with the same answer, and an answer is
//! found by searching the sorted list. DXR cuts the list by the first bits of the address, after which a
//! range needs only the other bits of its first address and its answer: here 14 and 16 bits, a word each.
//!
//! ```text
//! roots, 2^18 × 4 bytes     a block
//! [ 10.0.0.0/18 ] ------->  [ ranges | start, answer | start, answer | … ]
//! ```
//!
//! It is small, but a processor predicts the steps of a search badly, and each waits for the one before;
//! the search here has no branch but its end. Unlike the original it has neither the shorter format for
//! blocks with few answers nor the sharing of equal blocks, and the benchmark's routes, whose next hops
//! differ between neighbours, are its worst case. It is here for comparison (`nilometer route bench
//! fib`).

use alloc::vec::Vec;
use core::hint::select_unpredictable;

use super::Layout;
use super::memory::SlotMemory;
use super::routes::{Leaf, Run};

/// Bits that number a slot.
const BITS: u32 = 18;
/// Bits of a range's start in its word, above those of its answer.
const ANSWER_BITS: u32 = 16;

/// The layout: sorted ranges.
#[derive(Debug)]
pub struct Ranges;

impl Ranges {
    /// The bits of an address that its slot does not fix.
    fn rest(address: u32) -> u32 {
        address & (u32::MAX >> BITS)
    }
}

impl Layout<u32> for Ranges {
    const BITS: u32 = BITS;
    const LEAF_MAX: Leaf = Leaf::MAX;

    fn pack(_: u32, runs: &[Run<u32>], block: &mut Vec<u32>) {
        block.push(runs.len() as u32);
        let word = |run: &Run<u32>| Self::rest(run.start) << ANSWER_BITS | u32::from(run.leaf);
        block.extend(runs.iter().map(word));
    }

    #[inline(always)]
    fn find(memory: &SlotMemory, block: u32, address: u32) -> Leaf {
        let last = Self::rest(address) << ANSWER_BITS | u32::from(Leaf::MAX);
        let (mut first, mut count) = (block + 1, memory.word(block));
        while count > 1 {
            let half = count / 2;
            first += select_unpredictable(memory.word(first + half) <= last, half, 0);
            count -= half;
        }
        memory.word(first) as Leaf
    }
}
