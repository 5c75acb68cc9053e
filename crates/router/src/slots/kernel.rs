//! The measured loops over addresses in a table of slots of any layout.
//!
//! The cost of a lookup is the cache lines that it waits for. So a reader prefetches them before it
//! needs them, and even before it has passed: a root may be read at any time, and the contents of a
//! line that is only prefetched do not matter. The fence that passing takes, and the loads that wait
//! behind it, then overlap with the time that the lines need anyway. That gives half as many lookups
//! again when others use the same third-level cache.

use core::sync::atomic::Ordering;

use nilometer_wire::prefetch::prefetch;

use super::Layout;
use super::division::Divided;
use super::memory::SlotMemory;
use super::routes::next_hop;
use crate::fib::NextHop;
use crate::tree_bitmap::Instructions;

/// Prefetches the roots of `addresses`.
pub(super) fn prefetch_roots<A: Divided>(memory: &SlotMemory, addresses: &[A], bits: u32) {
    let roots = memory.words().as_ptr();
    for address in addresses {
        prefetch(roots.wrapping_add(address.slot(bits)));
    }
}

/// Prefetches the blocks of `addresses`: reads their roots and nothing behind them.
#[inline(always)]
pub(super) fn prefetch_blocks<A: Divided>(memory: &SlotMemory, addresses: &[A], bits: u32) {
    let words = memory.words();
    let roots = &words[..A::slots(bits)];
    for address in addresses {
        let block = roots[address.slot(bits)].load(Ordering::Relaxed);
        prefetch(words.as_ptr().wrapping_add(block as usize));
    }
}

/// The next hops of all `addresses`, one after the other.
#[inline]
pub(super) fn find_each<A: Divided, L: Layout<A>>(
    memory: &SlotMemory,
    instructions: Instructions,
    addresses: &[A],
    next_hops: &mut [Option<NextHop>],
) {
    match instructions {
        Instructions::Common => each::<A, L>(memory, addresses, next_hops),
        #[cfg(target_arch = "x86_64")]
        Instructions::Counting => {
            // SAFETY: `Instructions::best` has checked that the processor has each of these
            // instructions.
            unsafe { each_counting::<A, L>(memory, addresses, next_hops) }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "popcnt,lzcnt,bmi1,bmi2")]
fn each_counting<A: Divided, L: Layout<A>>(
    memory: &SlotMemory,
    addresses: &[A],
    next_hops: &mut [Option<NextHop>],
) {
    each::<A, L>(memory, addresses, next_hops);
}

#[inline(always)]
fn each<A: Divided, L: Layout<A>>(
    memory: &SlotMemory,
    addresses: &[A],
    next_hops: &mut [Option<NextHop>],
) {
    for (address, next) in addresses.iter().zip(next_hops) {
        let root = memory.root(address.slot(L::BITS));
        *next = next_hop(L::find(memory, root, *address));
    }
}
