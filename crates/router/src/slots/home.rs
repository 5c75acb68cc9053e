//! Where a part of a table is written: its home, which has room for whatever its routes may answer.
//!
//! What a part's block needs depends on its answers: neighbours that are answered alike need one between
//! them. So a block may grow when a route goes, or a next hop changes. A *home* has as many words as the
//! part can ever need for the routes that it has. A change of a next hop needs no larger one, nor does a
//! withdrawal, because runs begin then at some of the addresses where they might begin before. Only a new
//! route may ask for more, and be refused.
//!
//! Mostly a change is written beside, published, and the old home is free when readers have passed. Where
//! there is no room beside, the writer waits until they have; and where there still is none, it writes
//! twice:
//!
//! ```text
//! root -> home (old)                      spare (free)      nothing beside them is free
//! root ------------------------------->   spare (new)       wait for readers: no reader uses the home
//! root -> home (new)                      spare             wait for readers: no reader uses the spare
//! ```
//!
//! The spare is as large as the largest home (`memory.rs`), and nothing else ever stands in it. So a change
//! of what is there, and its withdrawal, never fail, however the free words lie and whatever waits for
//! readers.

use super::memory::{Block, Blocks, SlotMemory};
use crate::fib::Full;

/// The new contents of a part.
pub(crate) struct Writing<'a, R> {
    /// Where readers find it.
    pub at: usize,
    /// The block that readers then read; empty where the root holds the answer.
    pub packed: &'a [u32],
    /// Words that its routes may need; none where there are no routes.
    pub words: usize,
    /// The root that refers to a block which begins at this word.
    pub root: R,
}

impl Blocks {
    /// Writes and publishes a part whose home is `home`; returns its new home.
    ///
    /// # Errors
    /// [`Full`] when it needs more words than its home has and than are free.
    pub(crate) fn rewrite<R: Fn(u32) -> u32>(
        &mut self,
        memory: &SlotMemory,
        home: Block,
        writing: &Writing<'_, R>,
    ) -> Result<Block, Full> {
        let Writing { at, packed, words, root } = writing;
        assert!(packed.len() <= *words, "a block is no larger than any of these routes");
        if packed.is_empty() && *words <= home.words as usize {
            memory.publish(*at, root(home.first));
            return Ok(self.trim(memory, home, *words));
        }
        let fresh = match self.take(memory, *words) {
            Err(Full) if *words > home.words as usize => return Err(Full),
            Err(Full) => {
                // One wait makes room for many changes.
                memory.readers.wait();
                self.take(memory, *words)
            }
            fresh => fresh,
        };
        let Ok(fresh) = fresh else {
            return Ok(self.rewrite_in_place(memory, home, writing));
        };
        memory.write(fresh.first, packed);
        memory.publish(*at, root(fresh.first));
        if home.words > 0 {
            self.retire(memory.readers.advance(), home);
        }
        Ok(fresh)
    }

    #[cold]
    fn rewrite_in_place<R: Fn(u32) -> u32>(
        &mut self,
        memory: &SlotMemory,
        home: Block,
        writing: &Writing<'_, R>,
    ) -> Block {
        let spare = self.spare();
        assert!(writing.packed.len() <= spare.words as usize, "the spare is as large as any home");
        for block in [spare, home] {
            memory.write(block.first, writing.packed);
            memory.publish(writing.at, (writing.root)(block.first));
            memory.readers.wait();
        }
        self.trim(memory, home, writing.words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// The words that root `at` leads to.
    fn found(memory: &SlotMemory, at: usize, count: u32) -> Vec<u32> {
        let first = memory.root(at);
        (0..count).map(|word| memory.word(first + word)).collect()
    }

    #[test]
    fn a_home_is_written_in_its_place_when_nothing_is_free() {
        let memory = SlotMemory::new(32 + 160);
        let mut blocks = Blocks::new(32, 32 + 160);
        let mut homes = [Block::default(); 16];
        let write = |blocks: &mut Blocks, home, at, packed: &[u32], words| {
            blocks.rewrite(&memory, home, &Writing { at, packed, words, root: |first| first })
        };
        let mut count = 0;
        while let Ok(home) = write(&mut blocks, homes[count], count, &[count as u32; 20], 28) {
            homes[count] = home;
            count += 1;
        }
        assert_eq!((count, blocks.spare().words), (4, 32), "the fifth part is the spare");
        let rest: Vec<Block> = core::iter::from_fn(|| blocks.take(&memory, 4).ok()).collect();
        assert_eq!(rest.len(), 4);
        for length in [28, 24, 17, 3] {
            let before = homes[1];
            let packed: Vec<u32> = (0..length).map(|word| 100 * length + word).collect();
            let home = write(&mut blocks, before, 1, &packed, length as usize).expect("its own");
            assert_eq!((home.first, found(&memory, 1, length)), (before.first, packed));
            assert!(blocks.balances(), "what is left over is free");
            homes[1] = home;
            // Nothing is free again.
            while blocks.take(&memory, 4).is_ok() {}
        }
        assert_eq!(write(&mut blocks, homes[1], 1, &[7; 5], 5), Err(Full), "it needs more");
        assert_eq!(
            (found(&memory, 1, 3), found(&memory, 2, 20)),
            ([300, 301, 302].into(), [2; 20].into())
        );
    }
}
