//! Tables of slots: each part of the address space is rewritten when one of its routes changes, and
//! replaced by a single store.
//!
//! The fastest structures for longest match do not know prefixes any more. They hold answers, pushed
//! down to where a lookup ends, packed without gaps; and what is packed cannot be changed in place.
//! Building a whole table from sorted routes takes tens of milliseconds, too long for every update;
//! rebuilding a small piece takes next to no time. So the addresses are divided by their first bits into
//! *slots* (2^18 of them for IPv4, each a /18). The writer keeps the routes of each slot in a sorted
//! list (`routes.rs`). A change gives the runs of one slot, a *layout* packs them into one block of
//! words (`lines.rs`), and storing that block's number at the slot's root publishes it. A reader
//! therefore sees the whole change or nothing of it, without waiting. The old block is used again when
//! all readers have passed (`quiescence.rs`).
//!
//! A slot with a single answer, as three in four are on the Internet, has no block of its own: all such
//! slots share one for each answer, for which there is room from the beginning.
//!
//! A route as short as a slot or shorter is published slot by slot. It never needs more room than is
//! there (`home.rs`): only a route that is new inside a slot can be refused.

pub(crate) mod division;
mod dxr;
pub(crate) mod home;
pub(crate) mod kernel;
mod lines;
pub(crate) mod memory;
mod poptrie;
pub(crate) mod routes;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::marker::PhantomData;
use core::ops::Range;

use crate::fib::{Fib, Full, Lookups, NextHop, ServingFib};
use crate::prefix::Prefix;
use crate::tree_bitmap::Instructions;
pub use division::Divided;
pub use dxr::Ranges;
use home::Writing;
pub use lines::Lines;
use memory::{Block, Blocks, SlotMemory};
pub use poptrie::Poptrie;
use routes::{Leaf, Routes, Run, leaf, next_hop};

/// One way to pack the runs of a slot, and to find an address in them.
pub trait Layout<A: Divided>: Send + Sync + 'static {
    /// Bits that number a slot.
    const BITS: u32;
    /// The greatest answer there can be: a next hop plus one.
    const LEAF_MAX: Leaf;

    /// Packs the runs of a slot, at least one; `length` is that of the slot's prefix.
    fn pack(length: u32, runs: &[Run<A>], block: &mut Vec<u32>);

    /// Words of the largest block that `pack` makes of runs that begin at some of `starts`, the first of
    /// which is the slot's.
    fn words_max(length: u32, starts: &[A]) -> usize {
        let apart = |(leaf, &start): (usize, &A)| Run { start, leaf: leaf as Leaf };
        let runs: Vec<Run<A>> = starts.iter().enumerate().map(apart).collect();
        let mut block = Vec::new();
        Self::pack(length, &runs, &mut block);
        block.len()
    }

    /// The answer for `address`, which is in the slot of `block`.
    fn find(memory: &SlotMemory, block: u32, address: A) -> Leaf;

    /// The next hops of all `addresses`, whose blocks have been prefetched.
    #[inline]
    fn find_all(
        memory: &SlotMemory,
        instructions: Instructions,
        addresses: &[A],
        next_hops: &mut [Option<NextHop>],
    ) where
        Self: Sized,
    {
        kernel::find_each::<A, Self>(memory, instructions, addresses, next_hops);
    }
}

/// Addresses whose blocks are on their way while those of the ones before are read.
const AHEAD: usize = 64;

/// A table of slots, and its one writer. A route that is in it can always be changed and withdrawn: for
/// that the writer waits for the readers' batches, if need be.
#[derive(Debug)]
pub struct SlotFib<A, L> {
    memory: Arc<SlotMemory>,
    blocks: Blocks,
    routes: Routes<A>,
    /// The home of each slot; none where no route is inside.
    homes: Vec<Block>,
    /// By answer, whether the block of all slots that have it alone is written; how many are, and the words
    /// of each.
    shared: Vec<bool>,
    shared_count: u32,
    shared_words: u32,
    runs: Vec<Run<A>>,
    packed: Vec<u32>,
    layout: PhantomData<fn() -> L>,
}

/// A reader of a table of slots that is being changed. Once dropped, it no longer counts as a reader.
#[derive(Debug)]
pub struct SlotReader<A, L> {
    memory: Arc<SlotMemory>,
    instructions: Instructions,
    place: usize,
    kind: PhantomData<fn() -> (A, L)>,
}

impl<A: Divided, L: Layout<A>> SlotFib<A, L> {
    /// An empty table of at most `words` words of four bytes, those of its roots included; besides them it
    /// has some for each answer that there can be (4 KiB for answers of one byte, 1 MiB for two).
    ///
    /// # Errors
    /// [`Full`] when there is no room for the roots.
    pub fn new(words: u32) -> Result<Self, Full> {
        let slots = A::slots(L::BITS);
        if words as usize <= slots {
            return Err(Full);
        }
        let answers = usize::from(L::LEAF_MAX) + 1;
        let any = A::of_slot(0, L::BITS);
        let shared_words = memory::rounded(L::words_max(any.length(), &[any.address()]) as u32);
        let first = slots as u32 + answers as u32 * shared_words;
        let words = words.checked_add(first - slots as u32).ok_or(Full)?;
        let mut fib = SlotFib {
            memory: Arc::new(SlotMemory::new(words)),
            blocks: Blocks::new(first, words),
            routes: Routes::new(L::BITS),
            homes: vec![Block::default(); slots],
            shared: vec![false; answers],
            shared_count: 0,
            shared_words,
            runs: Vec::new(),
            packed: Vec::new(),
            layout: PhantomData,
        };
        let nothing = fib.shared(0);
        (0..slots).for_each(|slot| fib.memory.publish(slot, nothing));
        Ok(fib)
    }

    fn admitted(next: NextHop) -> Result<Leaf, Full> {
        if next.0 < L::LEAF_MAX { Ok(leaf(next)) } else { Err(Full) }
    }

    /// The block of all slots that have this answer alone.
    fn shared(&mut self, leaf: Leaf) -> u32 {
        let index = usize::from(leaf);
        let block = A::slots(L::BITS) as u32 + u32::from(leaf) * self.shared_words;
        if !self.shared[index] {
            self.packed.clear();
            let any = A::of_slot(0, L::BITS);
            L::pack(any.length(), &[Run { start: any.address(), leaf }], &mut self.packed);
            self.memory.write(block, &self.packed);
            self.shared[index] = true;
            self.shared_count += 1;
        }
        block
    }

    /// Writes and publishes a slot as its routes are now.
    fn write(&mut self, slot: usize) -> Result<(), Full> {
        self.routes.runs(slot, &mut self.runs);
        let shared = match self.runs[..] {
            [Run { leaf, .. }] => Some(self.shared(leaf)),
            _ => None,
        };
        self.packed.clear();
        let length = A::of_slot(slot, L::BITS).length();
        if shared.is_none() {
            L::pack(length, &self.runs, &mut self.packed);
        }
        let words = match self.routes.starts() {
            [_] => 0,
            starts => L::words_max(length, starts),
        };
        let root = |first| shared.unwrap_or(first);
        let writing = Writing { at: slot, packed: &self.packed, words, root };
        self.homes[slot] = self.blocks.rewrite(&self.memory, self.homes[slot], &writing)?;
        Ok(())
    }

    /// Gives `prefix` the leaf, or withdraws it with 0.
    fn change(&mut self, prefix: Prefix<A>, leaf: Leaf) -> Result<Option<NextHop>, Full> {
        let mut touched = Vec::new();
        let was = self.routes.set(prefix, leaf, &mut touched);
        for &slot in &touched {
            if self.write(slot).is_err() {
                assert!(
                    was == 0 && touched.len() == 1,
                    "only what is new in a slot needs more room"
                );
                self.routes.set(prefix, was, &mut Vec::new());
                return Err(Full);
            }
        }
        Ok(next_hop(was))
    }
}

impl<A: Divided, L: Layout<A>> Fib<A> for SlotFib<A, L> {
    fn insert(&mut self, prefix: Prefix<A>, next: NextHop) -> Result<Option<NextHop>, Full> {
        self.change(prefix, Self::admitted(next)?)
    }

    fn remove(&mut self, prefix: Prefix<A>) -> Result<Option<NextHop>, Full> {
        self.change(prefix, 0)
    }

    fn lookup(&self, address: A) -> Option<NextHop> {
        let root = self.memory.root(address.slot(L::BITS));
        next_hop(L::find(&self.memory, root, address))
    }

    fn len(&self) -> usize {
        self.routes.len()
    }
}

impl<A: Divided, L: Layout<A>> ServingFib<A> for SlotFib<A, L> {
    fn reader(&self) -> Option<Box<dyn Lookups<A>>> {
        let place = self.memory.readers.admit()?;
        let memory = Arc::clone(&self.memory);
        let instructions = Instructions::best();
        Some(Box::new(SlotReader::<A, L> { memory, instructions, place, kind: PhantomData }))
    }

    /// Every slot is written once, at the end.
    fn load(&mut self, routes: &mut dyn Iterator<Item = (Prefix<A>, NextHop)>) -> Result<(), Full> {
        let mut touched = Vec::new();
        for (prefix, next) in routes {
            let leaf = Self::admitted(next)?;
            self.routes.set(prefix, leaf, &mut touched);
        }
        touched.sort_unstable();
        touched.dedup();
        for slot in touched {
            self.write(slot)?;
        }
        Ok(())
    }

    fn balances(&self) -> bool {
        self.blocks.balances()
    }

    fn span(&self) -> Range<usize> {
        let words = self.memory.words().as_ptr_range();
        words.start.addr()..words.end.addr()
    }

    fn bytes(&self) -> usize {
        let words = self.shared_count * self.shared_words + self.blocks.used();
        (A::slots(L::BITS) + words as usize) * size_of::<u32>()
    }
}

impl<A: Divided, L: Layout<A>> Lookups<A> for SlotReader<A, L> {
    fn look_up(&mut self, addresses: &[A], next_hops: &mut [Option<NextHop>]) {
        assert_eq!(addresses.len(), next_hops.len(), "a next hop for each address");
        let (memory, mut chunks) = (&*self.memory, addresses.chunks(AHEAD));
        chunks.next().into_iter().for_each(|first| kernel::prefetch_blocks(memory, first, L::BITS));
        memory.readers.pass(self.place);
        for (addresses, next_hops) in addresses.chunks(AHEAD).zip(next_hops.chunks_mut(AHEAD)) {
            chunks
                .next()
                .into_iter()
                .for_each(|later| kernel::prefetch_blocks(memory, later, L::BITS));
            L::find_all(memory, self.instructions, addresses, next_hops);
        }
        self.memory.readers.rest(self.place);
    }

    fn expect(&self, addresses: &[A]) {
        kernel::prefetch_roots(&self.memory, addresses, L::BITS);
    }
}

impl<A, L> Drop for SlotReader<A, L> {
    fn drop(&mut self) {
        self.memory.readers.dismiss(self.place);
    }
}
