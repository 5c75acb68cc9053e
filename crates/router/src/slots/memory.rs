//! The words in which slots stand: roots in front, blocks of a power of two of words behind them.
//!
//! All words are made at once and begin on a boundary of 2 MiB, so that the shell may ask the kernel for
//! large pages: over pages of 4 KiB a lookup waits for the page table as often as for the table. Blocks
//! are halved and joined with their other half again (Knowlton's buddies, 1965). One of up to sixteen
//! words, 64 bytes, lies within one line of the cache.

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use core::sync::atomic::{AtomicU32, Ordering};

use crate::fib::Full;
use crate::quiescence::Readers;

/// A large page.
const PAGE_BYTES: usize = 2 << 20;
/// Sizes of blocks: 2^2 words to 2^27.
const CLASSES: usize = 28;
const SMALLEST: u32 = 4;
/// Blocks that wait before readers are asked; asking is dearer than a change.
const RETIRED_MANY: usize = 256;
/// Words of a line.
const LINE: u32 = 16;

/// What writer and readers share.
#[derive(Debug)]
pub struct Memory {
    words: Box<[AtomicU32]>,
    /// The number of the first word on the boundary.
    first: usize,
    pub(crate) readers: Readers,
}

impl Memory {
    pub(crate) fn new(words: u32) -> Memory {
        let spare = PAGE_BYTES / size_of::<AtomicU32>();
        let words: Box<[AtomicU32]> =
            (0..words as usize + spare).map(|_| AtomicU32::new(0)).collect();
        let past = words.as_ptr().addr() % PAGE_BYTES / size_of::<AtomicU32>();
        Memory { words, first: (spare - past) % spare, readers: Readers::new() }
    }

    /// All words.
    #[inline(always)]
    pub(crate) fn words(&self) -> &[AtomicU32] {
        &self.words[self.first..]
    }

    /// What was published at a root.
    #[inline(always)]
    pub(crate) fn root(&self, slot: usize) -> u32 {
        self.words[self.first + slot].load(Ordering::Acquire)
    }

    /// A word of a block, which does not change while it can be found from a root.
    #[inline(always)]
    pub(crate) fn word(&self, index: u32) -> u32 {
        self.words[self.first + index as usize].load(Ordering::Relaxed)
    }

    /// Writes a block that no root refers to yet.
    pub(crate) fn write(&self, block: u32, words: &[u32]) {
        let at = self.first + block as usize;
        for (place, word) in self.words[at..at + words.len()].iter().zip(words) {
            place.store(*word, Ordering::Relaxed);
        }
    }

    pub(crate) fn publish(&self, slot: usize, root: u32) {
        self.words[self.first + slot].store(root, Ordering::Release);
    }
}

/// Some words that belong together; none at all in place of a block that is not needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Block {
    pub first: u32,
    words: u32,
}

/// The writer's account of the words behind the roots.
#[derive(Debug)]
pub(crate) struct Blocks {
    /// Free blocks of 2^class words.
    free: [BTreeSet<u32>; CLASSES],
    /// Words of blocks that a root refers to.
    used: u32,
    /// Words of blocks that may be given out, all together.
    limit: u32,
    /// Blocks taken back, and the epoch that readers must have passed.
    retired: VecDeque<(u64, Block)>,
}

impl Blocks {
    /// All words from `reserved` to `limit` are free.
    pub fn new(reserved: u32, limit: u32) -> Blocks {
        let first = reserved.next_multiple_of(LINE);
        let words = limit.saturating_sub(first) / SMALLEST * SMALLEST;
        let free = core::array::from_fn(|_| BTreeSet::new());
        let mut blocks = Blocks { free, used: 0, limit: words, retired: VecDeque::new() };
        blocks.give(Block { first, words });
        blocks
    }

    /// A block of at least `words`, which hold anything.
    pub fn take(&mut self, memory: &Memory, words: usize) -> Result<Block, Full> {
        let words = u32::try_from(words).map_err(|_| Full)?;
        let words = match words {
            0..=LINE => words.next_power_of_two().max(SMALLEST),
            _ => words.next_multiple_of(SMALLEST),
        };
        if self.retired.len() >= RETIRED_MANY {
            self.reclaim(memory);
        }
        let class = words.next_power_of_two().ilog2() as usize;
        let free = |blocks: &Blocks| (class..CLASSES).find(|&c| !blocks.free[c].is_empty());
        let from = match free(self) {
            Some(from) => from,
            None => {
                self.reclaim(memory);
                free(self).ok_or(Full)?
            }
        };
        let first = self.free[from].pop_first().ok_or(Full)?;
        self.give(Block { first: first + words, words: (1 << from) - words });
        self.used += words;
        Ok(Block { first, words })
    }

    /// Takes back a block that no root refers to any longer.
    pub fn retire(&mut self, epoch: u64, block: Block) {
        if block.words > 0 {
            self.used -= block.words;
            self.retired.push_back((epoch, block));
        }
    }

    /// Gives back at once what no reader has seen.
    pub fn untake(&mut self, block: Block) {
        self.used -= block.words;
        self.give(block);
    }

    fn reclaim(&mut self, memory: &Memory) {
        if self.retired.is_empty() {
            return;
        }
        let passed = memory.readers.passed();
        while let Some(&(epoch, block)) = self.retired.front()
            && epoch <= passed
        {
            self.give(block);
            self.retired.pop_front();
        }
    }

    /// Frees words, in the largest blocks that their place allows, each joined with its other half.
    fn give(&mut self, mut block: Block) {
        while block.words > 0 {
            let by_place = block.first.trailing_zeros().min(CLASSES as u32 - 1);
            let class = by_place.min(block.words.ilog2());
            self.join(block.first, class as usize);
            block = Block { first: block.first + (1 << class), words: block.words - (1 << class) };
        }
    }

    fn join(&mut self, mut first: u32, mut class: usize) {
        while class + 1 < CLASSES && self.free[class].remove(&(first ^ 1 << class)) {
            first &= !(1 << class);
            class += 1;
        }
        self.free[class].insert(first);
    }

    /// Words of blocks that a root refers to.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Whether every word is used, free or waiting for readers.
    pub fn balances(&self) -> bool {
        let free: usize =
            self.free.iter().enumerate().map(|(class, list)| list.len() << class).sum();
        let retired: u32 = self.retired.iter().map(|(_, block)| block.words).sum();
        free as u32 + retired + self.used == self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use nilometer_stat::Rng;

    #[test]
    fn blocks_never_overlap_and_all_come_back() {
        let mut rng = Rng::new(11, 1, 0);
        let memory = Memory::new(5_000);
        let mut blocks = Blocks::new(100, 5_000);
        let mut held: Vec<Block> = Vec::new();
        let mut refused = 0;
        for _ in 0..20_000 {
            assert!(blocks.balances());
            if rng.below(2) == 0 && !held.is_empty() {
                let block = held.swap_remove(rng.below(held.len() as u64) as usize);
                blocks.retire(memory.readers.advance(), block);
                continue;
            }
            let words = 1 + rng.below(120) as usize;
            let Ok(block) = blocks.take(&memory, words) else {
                refused += 1;
                continue;
            };
            let end = block.first + block.words;
            assert!(block.words as usize >= words && block.first >= 112 && end <= 5_000);
            assert!(words > 16 || block.first / LINE == (end - 1) / LINE, "within a line");
            let apart =
                |other: &Block| other.first >= end || other.first + other.words <= block.first;
            assert!(held.iter().all(apart));
            held.push(block);
        }
        assert!(refused > 10, "{refused}");
        held.drain(..).for_each(|block| blocks.retire(memory.readers.advance(), block));
        blocks.reclaim(&memory);
        assert!(blocks.balances() && blocks.used() == 0);
        assert_eq!(blocks.take(&memory, 2_000).map(|block| block.words), Ok(2_000));
    }

    #[test]
    fn words_begin_on_a_large_page() {
        assert_eq!(Memory::new(10).words().as_ptr().addr() % PAGE_BYTES, 0);
    }
}
