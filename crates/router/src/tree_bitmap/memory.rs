//! The words in which a table stands: one writer, many readers, and never moved.
//!
//! All words are made at once, so that readers have one address to remember. The writer gives out
//! blocks of few words and takes them back by size. A block that the table no longer refers to may
//! still be in use by a reader that found it a moment before; so it waits until each reader has
//! passed (`quiescence.rs`). Writer and readers never wait for each other: without room the writer
//! gets an error. Blocks are cut from larger ones and not joined again, so that after many changes a
//! table needs some more room than it takes.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::fib::Full;
use crate::quiescence::Readers;

/// The largest block: sixteen children and fifteen next hops.
const LARGEST: usize = 20;

/// What writer and readers share.
#[derive(Debug)]
pub(super) struct NodeMemory {
    words: Box<[AtomicU64]>,
    /// By the first bits of an address, the next hop of the longest prefix that is not longer than
    /// they are, plus one; 0 if there is none.
    short: Box<[AtomicU32]>,
    pub readers: Readers,
}

impl NodeMemory {
    pub fn new(roots: usize, words: u32) -> NodeMemory {
        NodeMemory {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            short: (0..roots).map(|_| AtomicU32::new(0)).collect(),
            readers: Readers::new(),
        }
    }

    /// The addresses of the words.
    pub fn span(&self) -> Range<usize> {
        let words = self.words.as_ptr_range();
        words.start.addr()..words.end.addr()
    }

    #[inline(always)]
    pub fn word(&self, index: u32) -> u64 {
        self.words[index as usize].load(Ordering::Acquire)
    }

    pub fn publish(&self, index: u32, word: u64) {
        self.words[index as usize].store(word, Ordering::Release);
    }

    #[inline(always)]
    pub fn short(&self, root: u32) -> u32 {
        self.short[root as usize].load(Ordering::Acquire)
    }

    pub fn set_short(&self, root: u32, next_plus_one: u32) {
        self.short[root as usize].store(next_plus_one, Ordering::Release);
    }
}

/// The writer's account of the words.
#[derive(Debug)]
pub(super) struct Blocks {
    /// Free blocks by size.
    free: [Vec<u32>; LARGEST + 1],
    /// Words from here on were never given out.
    unused: u32,
    limit: u32,
    used: u32,
    /// Blocks taken back: the epoch that readers must have passed, first word, words.
    retired: VecDeque<(u64, u32, u32)>,
}

impl Blocks {
    pub fn new(reserved: u32, limit: u32) -> Blocks {
        Blocks {
            free: core::array::from_fn(|_| Vec::new()),
            unused: reserved,
            limit,
            used: reserved,
            retired: VecDeque::new(),
        }
    }

    /// The first word of a block of `words` words with arbitrary contents.
    pub fn take(&mut self, memory: &NodeMemory, words: u32) -> Result<u32, Full> {
        if words == 0 {
            return Ok(0);
        }
        self.reclaim(memory);
        let block = match self.free[words as usize].pop() {
            Some(block) => block,
            None if self.limit - self.unused >= words => {
                self.unused += words;
                self.unused - words
            }
            None => self.split(words).ok_or(Full)?,
        };
        self.used += words;
        Ok(block)
    }

    /// A block cut from a larger one, the rest of which is free again.
    fn split(&mut self, words: u32) -> Option<u32> {
        let size = (words as usize + 1..=LARGEST).find(|&size| !self.free[size].is_empty())?;
        let block = self.free[size].pop()?;
        self.free[size - words as usize].push(block + words);
        Some(block)
    }

    /// Takes back a block that the table no longer refers to.
    pub fn retire(&mut self, memory: &NodeMemory, block: u32, words: u32) {
        if words > 0 {
            let epoch = memory.readers.advance();
            self.retired.push_back((epoch, block, words));
            self.used -= words;
        }
    }

    /// Gives back at once what no reader has seen.
    pub fn untake(&mut self, block: u32, words: u32) {
        if words > 0 {
            self.free[words as usize].push(block);
            self.used -= words;
        }
    }

    fn reclaim(&mut self, memory: &NodeMemory) {
        if self.retired.is_empty() {
            return;
        }
        let passed = memory.readers.passed();
        while let Some(&(epoch, block, words)) = self.retired.front()
            && epoch <= passed
        {
            self.free[words as usize].push(block);
            self.retired.pop_front();
        }
    }

    /// All words there are.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Words that the table refers to.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Words in all blocks that are free, waiting for readers, or never given out.
    pub fn unused(&self) -> u32 {
        let free = self.free.iter().enumerate().map(|(size, list)| (size * list.len()) as u32);
        let retired = self.retired.iter().map(|&(_, _, words)| words);
        free.chain(retired).sum::<u32>() + (self.limit - self.unused)
    }
}
