//! The measured loop over a burst of addresses in a table of lines (`lines.rs`).
//!
//! Bounds are not checked here and bytes are read by address, and a line is asked for before it is needed
//! (`Lines::find` does without all three). Everything that is
//! relied upon is a promise of the writer: a root is the number of a block, published after the block was
//! written; a block begins with a bitmap of 64 bits whose bit 0 is set, on a boundary of 8 bytes, and has
//! as many answers behind it as bits; nobody writes to it before all readers have passed.

use super::lines::{BITS, Lines};
use super::memory::Memory;
use super::routes::{Leaf, next_hop};
use crate::fib::NextHop;
use crate::tree_bitmap::Instructions;

/// Addresses that go through together.
const BURST: usize = 32;

/// The next hops of whole bursts of `addresses`; returns how many addresses that were.
#[inline]
pub(super) fn find_bursts<const BYTES: usize>(
    memory: &Memory,
    instructions: Instructions,
    addresses: &[u32],
    next_hops: &mut [Option<NextHop>],
) -> usize {
    match instructions {
        Instructions::Common => all::<BYTES>(memory, addresses, next_hops),
        #[cfg(target_arch = "x86_64")]
        Instructions::Counting => {
            // SAFETY: `Instructions::best` has asked the processor for each of these instructions.
            unsafe { all_counting::<BYTES>(memory, addresses, next_hops) }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "popcnt,lzcnt,bmi1,bmi2")]
fn all_counting<const BYTES: usize>(
    memory: &Memory,
    addresses: &[u32],
    next_hops: &mut [Option<NextHop>],
) -> usize {
    all::<BYTES>(memory, addresses, next_hops)
}

#[inline(always)]
fn all<const BYTES: usize>(
    memory: &Memory,
    addresses: &[u32],
    next_hops: &mut [Option<NextHop>],
) -> usize {
    let (bursts, _) = addresses.as_chunks::<BURST>();
    let (answers, _) = next_hops.as_chunks_mut::<BURST>();
    for (addresses, next_hops) in bursts.iter().zip(answers) {
        burst::<BYTES>(memory, addresses, next_hops);
    }
    bursts.len() * BURST
}

#[inline(always)]
fn burst<const BYTES: usize>(
    memory: &Memory,
    addresses: &[u32; BURST],
    next_hops: &mut [Option<NextHop>; BURST],
) {
    let words = memory.words();
    assert!(words.len() >= 1 << BITS, "there is a root for each slot");
    let mut blocks = [0u32; BURST];
    for (block, address) in blocks.iter_mut().zip(addresses) {
        *block =
            words[(address >> (32 - BITS)) as usize].load(core::sync::atomic::Ordering::Acquire);
        ask_for(words.as_ptr().wrapping_add(*block as usize));
    }
    let mut leaves = [0 as Leaf; BURST];
    for ((leaf, block), address) in leaves.iter_mut().zip(blocks).zip(addresses) {
        let block = words.as_ptr().wrapping_add(block as usize).cast::<u8>();
        // SAFETY: a root is the number of a block, which begins with a bitmap of 64 bits on a boundary
        // of 8 bytes. Nobody writes to it: this reader has passed and does not yet rest.
        let bitmap = unsafe { block.cast::<u64>().read() };
        let count = (bitmap << (!(address >> 8) & 63)).count_ones() as usize;
        // SAFETY: bit 0 is set, so that `count` is 1 or more, and there are as many answers behind the
        // bitmap as bits in it; answers of two bytes stand on boundaries of two.
        *leaf = unsafe {
            let answer = block.add(8 - BYTES + BYTES * count);
            if BYTES == 1 { Leaf::from(answer.read()) } else { answer.cast::<u16>().read() }
        };
    }
    let mut is_deep = false;
    for (next, &leaf) in next_hops.iter_mut().zip(&leaves) {
        is_deep |= leaf == Lines::<BYTES>::ESCAPE;
        *next = next_hop(leaf);
    }
    if is_deep {
        deepen::<BYTES>(memory, addresses, (&blocks, &leaves), next_hops);
    }
}

/// Replaces the answers that say to look deeper.
#[cold]
fn deepen<const BYTES: usize>(
    memory: &Memory,
    addresses: &[u32; BURST],
    (blocks, leaves): (&[u32; BURST], &[Leaf; BURST]),
    next_hops: &mut [Option<NextHop>; BURST],
) {
    for lane in 0..BURST {
        if leaves[lane] == Lines::<BYTES>::ESCAPE {
            let (block, address) = (blocks[lane], addresses[lane]);
            let number = Lines::<BYTES>::number(memory, block, address);
            let leaf = Lines::<BYTES>::deeper(memory, block, number, address);
            next_hops[lane] = next_hop(leaf);
        }
    }
}

/// Asks for the line of `at`, wherever that is.
#[inline(always)]
fn ask_for<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which reads nothing; every x86-64 processor has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
