//! Searches: one address, or sixteen that go down together, with the instructions that this
//! processor has.
//!
//! A search counts bits three times a node. Most processors have an instruction for that, but
//! baseline x86-64 has not, so the same code is compiled twice and chosen by the processor's
//! features, checked once: 2.5 times the lookups on a full table (`examples/tree_bitmap.rs`).

use super::memory::NodeMemory;
use super::node::{Node, matches};
use crate::fib::NextHop;
use crate::prefix::Address;

/// Which instructions searches may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instructions {
    /// Those that every processor of its kind has.
    Common,
    /// Those that count and shift bits.
    #[cfg(target_arch = "x86_64")]
    Counting,
}

impl Instructions {
    /// The best that this processor has.
    pub(crate) fn best() -> Instructions {
        #[cfg(target_arch = "x86_64")]
        if counts_bits() {
            return Instructions::Counting;
        }
        Instructions::Common
    }

    /// The next hops of all `addresses`, as many as there are `next_hops`.
    #[inline]
    pub(super) fn search_all<A: Address, const STRIDE: u32, const INITIAL: u32>(
        self,
        memory: &NodeMemory,
        addresses: &[A],
        next_hops: &mut [Option<NextHop>],
    ) {
        match self {
            Instructions::Common => {
                search_all::<A, STRIDE, INITIAL>(memory, addresses, next_hops);
            }
            #[cfg(target_arch = "x86_64")]
            Instructions::Counting => {
                // SAFETY: `best` has checked that the processor has each of these instructions.
                unsafe { search_all_counting::<A, STRIDE, INITIAL>(memory, addresses, next_hops) }
            }
        }
    }
}

/// Whether the processor has POPCNT, LZCNT, BMI1 and BMI2 (Intel's manual, volume 2, CPUID).
#[cfg(target_arch = "x86_64")]
fn counts_bits() -> bool {
    use core::arch::x86_64::__cpuid_count;
    let ask = |leaf: u32| {
        // SAFETY: every x86-64 processor has CPUID; a leaf is queried only after the largest is
        // known.
        #[allow(unused_unsafe, reason = "safe in newer compilers")]
        unsafe {
            __cpuid_count(leaf, 0)
        }
    };
    let has = |register: u32, bit: u32| register >> bit & 1 == 1;
    let is_known = ask(0).eax >= 7 && ask(0x8000_0000).eax >= 0x8000_0001;
    is_known
        && has(ask(1).ecx, 23)
        && has(ask(0x8000_0001).ecx, 5)
        && has(ask(7).ebx, 3)
        && has(ask(7).ebx, 8)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "popcnt,lzcnt,bmi1,bmi2")]
fn search_all_counting<A: Address, const STRIDE: u32, const INITIAL: u32>(
    memory: &NodeMemory,
    addresses: &[A],
    next_hops: &mut [Option<NextHop>],
) {
    search_all::<A, STRIDE, INITIAL>(memory, addresses, next_hops);
}

#[inline(always)]
fn search_all<A: Address, const STRIDE: u32, const INITIAL: u32>(
    memory: &NodeMemory,
    addresses: &[A],
    next_hops: &mut [Option<NextHop>],
) {
    let (many, rest) = addresses.as_chunks::<LANES>();
    let (many_next_hops, rest_next_hops) = next_hops.as_chunks_mut::<LANES>();
    for (addresses, next_hops) in many.iter().zip(many_next_hops) {
        search_together::<A, STRIDE, INITIAL>(memory, addresses, next_hops);
    }
    for (address, next_hop) in rest.iter().zip(rest_next_hops) {
        *next_hop = search::<A, STRIDE, INITIAL>(memory, *address);
    }
}

/// The next hop of `address`.
#[inline(always)]
pub(super) fn search<A: Address, const STRIDE: u32, const INITIAL: u32>(
    memory: &NodeMemory,
    address: A,
) -> Option<NextHop> {
    let root = address.bits(0, INITIAL);
    let short = memory.short(root);
    let mut node = Node(memory.word(root));
    let (mut depth, mut found) = (INITIAL, None);
    loop {
        let bits = address.bits(depth, STRIDE);
        let matching = node.internal() & const { matches(STRIDE) }[bits as usize & 15];
        if matching != 0 {
            found = Some(node.next_hop(31 - matching.leading_zeros()));
        }
        if node.external() >> bits & 1 == 0 {
            break;
        }
        node = Node(memory.word(node.child(bits)));
        depth += STRIDE;
    }
    match found {
        Some(at) => Some(NextHop((memory.word((at / 4) as u32) >> (at % 4 * 16)) as u16)),
        None => short.checked_sub(1).map(|next| NextHop(next as u16)),
    }
}

/// Lookups that go down together.
const LANES: usize = 16;

/// The next hops of all `addresses`, level by level, so that their cache misses overlap (DER, 9.1:
/// "several concurrent lookups can be interleaved to avoid the impact of external memory latency").
/// The only branch is at the end of the level: a search that has ended continues at no node.
#[inline(always)]
fn search_together<A: Address, const STRIDE: u32, const INITIAL: u32>(
    memory: &NodeMemory,
    addresses: &[A; LANES],
    next_hops: &mut [Option<NextHop>; LANES],
) {
    let mut found = [u64::MAX; LANES];
    let mut nodes = addresses.map(|address| Node(memory.word(address.bits(0, INITIAL))));
    let mut depth = INITIAL;
    loop {
        let mut below = 0;
        for ((node, found), address) in nodes.iter_mut().zip(&mut found).zip(addresses) {
            let bits = address.bits(depth, STRIDE);
            let matching = node.internal() & const { matches(STRIDE) }[bits as usize & 15];
            let longest = (matching | 1).ilog2();
            *found = if matching != 0 { node.next_hop(longest) } else { *found };
            let is_on = (node.external() >> bits & 1).wrapping_neg();
            let child = memory.word(node.child(bits) & is_on);
            *node = Node(child & (u64::from(is_on) << 32 | u64::from(is_on)));
            below |= node.0;
        }
        if below == 0 {
            break;
        }
        depth += STRIDE;
    }
    for ((next_hop, found), address) in next_hops.iter_mut().zip(found).zip(addresses) {
        let short = memory.short(address.bits(0, INITIAL));
        *next_hop = if found == u64::MAX {
            short.checked_sub(1).map(|next| NextHop(next as u16))
        } else {
            Some(NextHop((memory.word((found / 4) as u32) >> (found % 4 * 16)) as u16))
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fib, Prefix, TreeBitmap};
    use nilometer_stat::Rng;

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn processor_features_agree_with_the_standard_library() {
        extern crate std;
        use std::is_x86_feature_detected as has;
        let bits = has!("bmi1") && has!("bmi2") && has!("popcnt") && has!("lzcnt");
        assert_eq!(counts_bits(), bits);
    }

    #[test]
    fn all_instructions_find_the_same() {
        let mut rng = Rng::new(3, 1, 0);
        let mut table = TreeBitmap::<u32>::new(60_000).expect("room");
        for _ in 0..8_000 {
            let length = rng.below(33) as u32;
            let prefix = Prefix::new(rng.next_u64() as u32 & 0x07ff_ffff, length).expect("sound");
            table.insert(prefix, NextHop(rng.below(1_000) as u16)).expect("room");
        }
        for count in [0, 1, 15, 16, 17, 100] {
            let addresses: alloc::vec::Vec<u32> =
                (0..count).map(|_| rng.next_u64() as u32 & 0x07ff_ffff).collect();
            for instructions in [Instructions::Common, Instructions::best()] {
                let mut found = alloc::vec![None; count];
                instructions.search_all::<u32, 4, 13>(&table.memory, &addresses, &mut found);
                assert!(addresses.iter().map(|address| table.lookup(*address)).eq(found));
            }
        }
    }
}
