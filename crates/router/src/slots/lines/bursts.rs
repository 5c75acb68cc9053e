//! The measured loop over bursts of addresses in a table of lines.
//!
//! Bounds are not checked here and bytes are read by address (`Lines::find` does without both).
//! The loops rely on what the writer guarantees: a root is the number of a block, published after the
//! block was written; a block begins with a bitmap of 64 bits whose bit 0 is set, on a boundary of 8
//! bytes, and has as many answers behind it as bits; nothing writes to it before all readers have
//! passed.

use core::sync::atomic::Ordering;

use super::{BITS, Lines};
use crate::fib::NextHop;
use crate::slots::Layout;
use crate::slots::division::Divided;
use crate::slots::memory::SlotMemory;
use crate::slots::routes::{Leaf, next_hop};
use crate::tree_bitmap::Instructions;

/// Addresses that go through together.
const BURST: usize = 32;

/// The next hops of whole bursts of `addresses`; returns how many addresses that were.
#[inline]
pub(super) fn find_bursts<const BYTES: usize>(
    memory: &SlotMemory,
    instructions: Instructions,
    addresses: &[u32],
    next_hops: &mut [Option<NextHop>],
) -> usize {
    match instructions {
        Instructions::Common => all::<BYTES>(memory, addresses, next_hops),
        #[cfg(target_arch = "x86_64")]
        Instructions::Counting => {
            // SAFETY: `Instructions::best` has checked that the processor has each of these
            // instructions.
            unsafe { all_counting::<BYTES>(memory, addresses, next_hops) }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "popcnt,lzcnt,bmi1,bmi2")]
fn all_counting<const BYTES: usize>(
    memory: &SlotMemory,
    addresses: &[u32],
    next_hops: &mut [Option<NextHop>],
) -> usize {
    all::<BYTES>(memory, addresses, next_hops)
}

#[inline(always)]
fn all<const BYTES: usize>(
    memory: &SlotMemory,
    addresses: &[u32],
    next_hops: &mut [Option<NextHop>],
) -> usize {
    let (bursts, _) = addresses.as_chunks::<BURST>();
    let (answers, _) = next_hops.as_chunks_mut::<BURST>();
    for (addresses, next_hops) in bursts.iter().zip(answers) {
        answer::<BYTES>(memory, addresses, next_hops);
    }
    bursts.len() * BURST
}

#[inline(always)]
fn answer<const BYTES: usize>(
    memory: &SlotMemory,
    addresses: &[u32; BURST],
    next_hops: &mut [Option<NextHop>; BURST],
) {
    let words = memory.words();
    let roots = &words[..1 << BITS];
    let mut leaves = [0 as Leaf; BURST];
    for (leaf, address) in leaves.iter_mut().zip(addresses) {
        let block = roots[(address >> (32 - BITS)) as usize].load(Ordering::Acquire);
        let block = words.as_ptr().wrapping_add(block as usize).cast::<u8>();
        // SAFETY: a root is the number of a block, which begins with a bitmap of 64 bits on a boundary
        // of 8 bytes. Nothing writes to it: this reader has passed and does not yet rest.
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
        deepen::<BYTES>(memory, addresses, next_hops);
    }
}

/// Replaces the answers that stand for a deeper lookup.
#[cold]
fn deepen<const BYTES: usize>(
    memory: &SlotMemory,
    addresses: &[u32; BURST],
    next_hops: &mut [Option<NextHop>; BURST],
) {
    for (address, next) in addresses.iter().zip(next_hops) {
        if *next == next_hop(Lines::<BYTES>::ESCAPE) {
            let block = memory.root(address.slot(BITS));
            *next = next_hop(Lines::<BYTES>::find(memory, block, *address));
        }
    }
}
