//! The words in which slots stand: roots in front, blocks of a power of two of words behind them.
//!
//! All words are made at once and begin on a boundary of 2 MiB, so that the shell may request large
//! pages from the kernel: over pages of 4 KiB a lookup waits for the page table as often as for the
//! table. Blocks are halved and joined with their other half again (Knowlton's buddies, 1965). One of
//! up to sixteen words, 64 bytes, lies within one line of the cache. A longer one begins with a line,
//! and where no free block is large enough, free ones beside each other make one.
//!
//! As many words as the largest allocated block needs are held back, the *spare*: through it any block
//! can be written anew in its own place, whatever else is free (`home.rs`).

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::fib::Full;
use crate::quiescence::Readers;

/// A large page.
const PAGE_BYTES: usize = 2 << 20;
/// Sizes of blocks: 2^2 words to 2^27.
const CLASSES: usize = 28;
const SMALLEST: u32 = 4;
/// Retired blocks that collect before the readers' epochs are checked; a check costs more than a
/// change.
const RETIRED_MANY: usize = 256;
/// Words of a line.
const LINE: u32 = 16;

/// What writer and readers share.
#[derive(Debug)]
pub struct SlotMemory {
    words: Box<[AtomicU32]>,
    /// The number of the first word on the boundary.
    first: usize,
    pub(crate) readers: Readers,
}

impl SlotMemory {
    pub(crate) fn new(words: u32) -> SlotMemory {
        let spare = PAGE_BYTES / size_of::<AtomicU32>();
        let words: Box<[AtomicU32]> =
            (0..words as usize + spare).map(|_| AtomicU32::new(0)).collect();
        let past = words.as_ptr().addr() % PAGE_BYTES / size_of::<AtomicU32>();
        SlotMemory { words, first: (spare - past) % spare, readers: Readers::new() }
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
    pub words: u32,
}

/// The writer's account of the words behind the roots.
#[derive(Debug)]
pub(crate) struct Blocks {
    /// Free blocks of 2^class words.
    free: [BTreeSet<u32>; CLASSES],
    /// Words of blocks that are given out, and how many there are that fit in 2^class words.
    used: u32,
    given: [u32; CLASSES],
    /// Held back: as large as the largest block that is given out.
    spare: Block,
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
        let mut blocks = Blocks {
            free,
            used: 0,
            given: [0; CLASSES],
            spare: Block::default(),
            limit: words,
            retired: VecDeque::new(),
        };
        blocks.give(Block { first, words });
        blocks
    }

    /// A block of at least `words` words with arbitrary contents; never from the spare.
    pub fn take(&mut self, memory: &SlotMemory, words: usize) -> Result<Block, Full> {
        let words = rounded(u32::try_from(words).map_err(|_| Full)?);
        if self.retired.len() >= RETIRED_MANY {
            self.reclaim(memory);
        }
        let block = match self.find(words) {
            Ok(block) => block,
            Err(Full) => {
                self.reclaim(memory);
                self.find(words).or_else(|Full| self.find_beside(words))?
            }
        };
        if class_of(words) > class_of(self.spare.words) && self.enlarge_spare(words).is_err() {
            self.give(block);
            return Err(Full);
        }
        self.count(words);
        Ok(block)
    }

    /// Takes back a block that no root refers to any longer.
    pub fn retire(&mut self, epoch: u64, block: Block) {
        if block.words > 0 {
            self.discount(block.words);
            self.retired.push_back((epoch, block));
        }
    }

    /// Gives back at once what no reader has seen.
    pub fn untake(&mut self, block: Block) {
        if block.words > 0 {
            self.discount(block.words);
            self.give(block);
        }
    }

    /// Keeps `words` words at the front of a block; no root refers to the others any longer.
    pub fn trim(&mut self, memory: &SlotMemory, block: Block, words: usize) -> Block {
        let words = if words == 0 { 0 } else { rounded(words as u32) };
        if words >= block.words {
            return block;
        }
        // In this order, so that the spare is never smaller than what is kept.
        if words > 0 {
            self.count(words);
        }
        self.discount(block.words);
        let behind = Block { first: block.first + words, words: block.words - words };
        self.retired.push_back((memory.readers.advance(), behind));
        if words == 0 { Block::default() } else { Block { first: block.first, words } }
    }

    /// The spare, which is read only while a block is rewritten.
    pub fn spare(&self) -> Block {
        self.spare
    }

    fn count(&mut self, words: u32) {
        self.used += words;
        self.given[class_of(words)] += 1;
    }

    fn discount(&mut self, words: u32) {
        let class = class_of(words);
        self.used -= words;
        self.given[class] -= 1;
        if self.given[class] == 0 && class_of(self.spare.words) == class {
            self.shorten_spare();
        }
    }

    /// Makes the spare as large as a block of `words`, or leaves it as it is.
    #[cold]
    fn enlarge_spare(&mut self, words: u32) -> Result<(), Full> {
        let found = |blocks: &mut Blocks, class: usize| {
            blocks.find(1 << class).or_else(|Full| blocks.find_beside(1 << class))
        };
        let old = core::mem::take(&mut self.spare);
        self.give(old);
        let larger = found(self, class_of(words));
        let spare = match larger {
            Err(Full) if old.words > 0 => found(self, class_of(old.words)),
            larger => larger,
        };
        self.spare = spare.unwrap_or_default();
        larger.map(|_| ())
    }

    /// Makes the spare as small as the largest block now is.
    #[cold]
    fn shorten_spare(&mut self) {
        let words = self.given.iter().rposition(|count| *count > 0).map_or(0, |class| 1 << class);
        let Block { first, words: had } = self.spare;
        self.spare = if words == 0 { Block::default() } else { Block { first, words } };
        self.give(Block { first: first + words, words: had - words });
    }

    /// The free words of the smallest block that is large enough.
    fn find(&mut self, words: u32) -> Result<Block, Full> {
        let from = (class_of(words)..CLASSES).find(|&class| !self.free[class].is_empty());
        let from = from.ok_or(Full)?;
        let first = self.free[from].pop_first().ok_or(Full)?;
        self.give(Block { first: first + words, words: (1 << from) - words });
        Ok(Block { first, words })
    }

    /// The first adjacent free blocks that are large enough together, where no single block is.
    #[cold]
    fn find_beside(&mut self, words: u32) -> Result<Block, Full> {
        // Adjacent free blocks of up to a line have been joined already.
        if words <= LINE || self.free_words() < words {
            return Err(Full);
        }
        let of_class = |class: usize| self.free[class].iter().map(move |first| (*first, class));
        let mut all: Vec<(u32, usize)> = (0..CLASSES).flat_map(of_class).collect();
        all.sort_unstable();
        let mut runs = all.chunk_by(|a, b| a.0 + (1 << a.1) == b.0);
        let ends =
            |run: &[(u32, usize)]| (run[0].0, run[run.len() - 1].0 + (1 << run[run.len() - 1].1));
        let begin = |run: &[(u32, usize)]| run[0].0.next_multiple_of(LINE);
        let run = runs.find(|run| begin(run) + words <= ends(run).1).ok_or(Full)?;
        for (first, class) in run {
            self.free[*class].remove(first);
        }
        let ((front, end), first) = (ends(run), begin(run));
        self.give(Block { first: front, words: first - front });
        self.give(Block { first: first + words, words: end - first - words });
        Ok(Block { first, words })
    }

    fn reclaim(&mut self, memory: &SlotMemory) {
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

    /// Words of blocks that are given out.
    pub fn used(&self) -> u32 {
        self.used
    }

    fn free_words(&self) -> u32 {
        self.free.iter().enumerate().map(|(class, list)| (list.len() as u32) << class).sum()
    }

    /// Whether every word is used, free or waiting for readers, and the spare is large enough.
    pub fn balances(&self) -> bool {
        let retired: u32 = self.retired.iter().map(|(_, block)| block.words).sum();
        let largest = self.given.iter().rposition(|count| *count > 0).map_or(0, |class| 1 << class);
        let all = self.free_words() + retired + self.used + self.spare.words;
        all == self.limit && self.spare.words == largest
    }
}

/// Words of a block that has room for `words`.
pub(super) fn rounded(words: u32) -> u32 {
    match words {
        0..=LINE => words.next_power_of_two().max(SMALLEST),
        _ => words.next_multiple_of(SMALLEST),
    }
}

/// The power of two that a block fits in; 0 where there is none.
fn class_of(words: u32) -> usize {
    words.next_power_of_two().ilog2() as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    #[test]
    fn blocks_never_overlap_and_all_come_back() {
        let mut rng = Rng::new(11, 1, 0);
        let memory = SlotMemory::new(5_000);
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
        assert_eq!(blocks.take(&memory, 1_000).map(|block| block.words), Ok(1_000));
    }

    #[test]
    fn free_blocks_beside_each_other_are_one() {
        let memory = SlotMemory::new(512);
        let mut blocks = Blocks::new(0, 512);
        let held: Vec<Block> = core::iter::from_fn(|| blocks.take(&memory, 16).ok()).collect();
        assert_eq!((held.len(), blocks.spare().words), (31, 16));
        // From 32 to 96, and from 160 to 224, which are no block of 64.
        held[1..5].iter().chain(&held[9..13]).for_each(|block| blocks.untake(*block));
        let found = blocks.take(&memory, 44).expect("four lines");
        assert_eq!((found.first, found.words, blocks.spare().words), (32, 44, 64));
        assert!(blocks.balances());
        blocks.untake(found);
        assert_eq!(blocks.spare().words, 16);
        // What cannot be spared is not given.
        let rest: Vec<Block> = core::iter::from_fn(|| blocks.take(&memory, 16).ok()).collect();
        rest[..4].iter().for_each(|block| blocks.untake(*block));
        let used = blocks.used();
        assert_eq!(blocks.take(&memory, 44), Err(Full));
        assert!(blocks.balances() && blocks.used() == used);
    }

    /// Nothing is larger than the largest class; two of that class side by side stay two.
    #[test]
    fn the_largest_blocks_are_not_joined() {
        let largest = 1 << (CLASSES - 1);
        let mut blocks = Blocks::new(0, 4 * largest - 1);
        assert_eq!(blocks.free[CLASSES - 1].len(), 3);
        assert!(blocks.balances());
        let taken = blocks.find(largest).expect("one of three");
        assert_eq!((taken.first, blocks.free[CLASSES - 1].len()), (0, 2));
        blocks.give(taken);
        assert_eq!(blocks.free[CLASSES - 1].len(), 3);
        let nothing = Block { first: 7, words: 0 };
        blocks.retire(1, nothing);
        blocks.untake(nothing);
        assert!(blocks.retired.is_empty() && blocks.given == [0; CLASSES]);
        assert!(blocks.balances());
        // Words that are neither free nor used nor waiting are detected.
        blocks.used += 1;
        assert!(!blocks.balances());
        blocks.used -= 1;
        blocks.retired.push_back((1, Block { first: 0, words: 4 }));
        assert!(!blocks.balances());
        blocks.retired.clear();
        blocks.given[3] = 1;
        assert!(!blocks.balances(), "a spare that is too small");
    }

    #[test]
    fn words_begin_on_a_large_page() {
        assert_eq!(SlotMemory::new(10).words().as_ptr().addr() % PAGE_BYTES, 0);
    }
}
