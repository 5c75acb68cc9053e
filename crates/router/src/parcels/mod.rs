//! Tables of IPv6: its addresses are divided where the routes are, and each parcel is written anew when a
//! route of it changes.
//!
//! What makes IPv4 fast, that a parcel of fixed size is packed into a line and published by a single
//! store (`slots/mod.rs`), meets two things in IPv6. Addresses are long: the bits that tell routes apart
//! begin at the 17th and end at the 48th. And routes crowd: of 160,000, one in ten lies within one /20 of
//! 131,072. Slots small enough for it are more than there is memory for, and in larger ones an update
//! writes thousands of runs. So a *parcel* that holds more than some hundred routes is divided by the
//! next byte of the address into 256 of them (`account.rs`), and joined again when few are left. What is
//! not divided is packed into one line of keys and answers, or into a tree of two levels of such lines
//! (`layout.rs`); parcels with one answer are that answer.
//!
//! ```text
//! first 65,536 words      parts, 256 words     a tree: first keys, and lines of keys and answers
//! [ 2a0e::/16 ] ------->  [ 2a0e:97::/24 ] ->  [ 0120 | 0a00 | … ]  [ 0a05 | 0a1f | … | 7 | 12 | 9 | … ]
//! ```
//!
//! A lookup reads four or five lines, of which all but the last are few and therefore near; a batch goes
//! through together, step by step (`kernel.rs`).
//!
//! How much a parcel may hold depends on the lengths of its routes alone, so that neither an answer nor
//! a covering route that changes makes it overflow. Dividing and joining change no answer; they are
//! published like everything else by one store. An update that finds no room leaves all answers as they
//! were; a parcel that found no room to be joined stays divided.

mod account;
mod kernel;
mod layout;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use crate::classifier::kernel::Instructions;
use crate::fib::{Fib, Full, Lookups, NextHop, ServingFib};
use crate::prefix::Prefix;
use crate::slots::memory::{Block, Blocks, Memory};
use crate::slots::routes::{Leaf, Route, Run, leaf, next_hop};
use account::{Account, FIRST_BITS, PARTS, Place};

/// Addresses that go through together.
const BURST: usize = 64;

/// A table of parcels with answers of `BYTES` bytes, 1 for up to 254 next hops and 2 for up to 65,534, and
/// its one writer.
#[derive(Debug)]
pub struct ParcelFib<const BYTES: usize = 1> {
    memory: Arc<Memory>,
    blocks: Blocks,
    account: Account,
    runs: Vec<Run<u128>>,
    packed: Vec<u32>,
    /// Blocks that nothing refers to since the last change.
    dropped: Vec<Block>,
}

/// One who looks up in a table of parcels that is being changed. Dropped, it counts no longer.
#[derive(Debug)]
pub struct ParcelReader<const BYTES: usize> {
    memory: Arc<Memory>,
    instructions: Instructions,
    place: usize,
}

/// A parcel that is written and not yet published.
struct Staged {
    number: u32,
    word: u32,
    own: Block,
}

impl<const BYTES: usize> ParcelFib<BYTES> {
    /// The greatest answer there can be: a next hop plus one.
    pub const LEAF_MAX: Leaf = if BYTES == 1 { 0xfe } else { 0xfffe };
    const SOUND: () = assert!(BYTES == 1 || BYTES == 2);
    /// Routes with which a divided parcel is joined again: fewer than any may hold.
    const JOINED_MAX: u32 = layout::routes_max(32, BYTES) as u32 * 3 / 4;

    /// An empty table of at most `words` words of four bytes, 65,536 at the front included.
    ///
    /// # Errors
    /// [`Full`] when there is no room for those, or more of it than 2^27 words, which is as far as a word
    /// can refer.
    pub fn new(words: u32) -> Result<Self, Full> {
        let () = Self::SOUND;
        if words <= 1 << FIRST_BITS || words > layout::WORDS_MAX {
            return Err(Full);
        }
        Ok(ParcelFib {
            memory: Arc::new(Memory::new(words)),
            blocks: Blocks::new(1 << FIRST_BITS, words),
            account: Account::new(),
            runs: Vec::new(),
            packed: Vec::new(),
            dropped: Vec::new(),
        })
    }

    fn admitted(next: NextHop) -> Result<Leaf, Full> {
        if next.0 < Self::LEAF_MAX { Ok(leaf(next)) } else { Err(Full) }
    }

    /// Writes an undivided parcel as its routes are now.
    fn stage(&mut self, place: Place) -> Result<Staged, Full> {
        let routes = core::mem::take(&mut self.account.of_mut(place.number).routes);
        let staged = self.stage_with(place, &routes);
        self.account.of_mut(place.number).routes = routes;
        staged
    }

    /// Writes a parcel as if these were its routes and it were not divided.
    fn stage_with(&mut self, place: Place, routes: &[Route<u128>]) -> Result<Staged, Full> {
        self.account.runs(place, routes, &mut self.runs);
        if let [Run { leaf, .. }] = self.runs[..] {
            let word = layout::answer(leaf);
            return Ok(Staged { number: place.number, word, own: Block::default() });
        }
        self.packed.clear();
        let tag = layout::pack::<BYTES>(place.prefix.length(), &self.runs, &mut self.packed);
        let own = self.blocks.take(&self.memory, self.packed.len())?;
        self.memory.write(own.first, &self.packed);
        Ok(Staged { number: place.number, word: layout::word(own.first, tag), own })
    }

    /// All of them, or none.
    fn stage_all(&mut self, places: impl Iterator<Item = Place>) -> Result<Vec<Staged>, Full> {
        let mut staged = Vec::with_capacity(places.size_hint().0);
        for place in places {
            match self.stage(place) {
                Ok(written) => staged.push(written),
                Err(Full) => {
                    staged.drain(..).for_each(|staged: Staged| self.blocks.untake(staged.own));
                    return Err(Full);
                }
            }
        }
        Ok(staged)
    }

    fn publish(&mut self, staged: Staged) {
        let parcel = self.account.of_mut(staged.number);
        self.memory.publish(parcel.at as usize, staged.word);
        self.dropped.push(core::mem::replace(&mut parcel.own, staged.own));
    }

    /// What was dropped is used again when all readers have passed.
    fn retire(&mut self) {
        self.dropped.retain(|block| *block != Block::default());
        if !self.dropped.is_empty() {
            let epoch = self.memory.readers.advance();
            self.dropped.drain(..).for_each(|block| self.blocks.retire(epoch, block));
        }
    }

    /// Gives `prefix` the leaf, or withdraws it with 0.
    fn change(&mut self, prefix: Prefix<u128>, leaf: Leaf) -> Result<Option<NextHop>, Full> {
        let mut touched = Vec::new();
        let was = self.account.set(prefix, leaf, &mut touched);
        match self.stage_all(touched.into_iter()) {
            Ok(staged) => staged.into_iter().for_each(|staged| self.publish(staged)),
            Err(Full) => {
                self.account.set(prefix, was, &mut Vec::new());
                return Err(Full);
            }
        }
        self.retire();
        Ok(next_hop(was))
    }

    /// Divides parcels until the one that lists `prefix` has it or may list one more.
    fn make_room(&mut self, prefix: Prefix<u128>) -> Result<(), Full> {
        loop {
            let place = self.account.place(prefix);
            let routes = &self.account.of(place.number).routes;
            let is_listed = || routes.binary_search_by_key(&prefix, |route| route.prefix).is_ok();
            if self.account.is_divided(place.number) || is_listed() {
                return Ok(());
            }
            let lengths = routes.iter().map(|route| route.prefix.length());
            let longest = lengths.max().unwrap_or(0).max(prefix.length());
            let bits = longest - place.prefix.length();
            if routes.len() < layout::routes_max(bits, BYTES) {
                return Ok(());
            }
            self.divide(place)?;
        }
    }

    fn divide(&mut self, place: Place) -> Result<(), Full> {
        let own = self.blocks.take(&self.memory, PARTS as usize)?;
        self.account.divide(place, own.first);
        let Ok(staged) = self.stage_all(self.account.all_parts(place)) else {
            self.blocks.untake(own);
            let routes = self.account.gathered(place).expect("its parts are not divided");
            self.account.join(place, routes);
            return Err(Full);
        };
        staged.into_iter().for_each(|staged| self.publish(staged));
        let word = layout::word(own.first, layout::PARTS);
        self.publish(Staged { number: place.number, word, own });
        self.retire();
        Ok(())
    }

    /// Joins the divided parcels that contain `prefix` and hold few routes.
    fn join(&mut self, prefix: Prefix<u128>) {
        let path: Vec<Place> = self.account.path(prefix).skip(1).collect();
        for place in path.into_iter().rev() {
            let is_divided = self.account.is_divided(place.number);
            if !is_divided || self.account.of(place.number).count > Self::JOINED_MAX {
                continue;
            }
            let Some(routes) = self.account.gathered(place) else { return };
            let Ok(staged) = self.stage_with(place, &routes) else { return };
            self.publish(staged);
            let parts = self.account.all_parts(place);
            self.dropped.extend(parts.map(|part| self.account.of(part.number).own));
            self.account.join(place, routes);
            self.retire();
        }
    }
}

impl<const BYTES: usize> Fib<u128> for ParcelFib<BYTES> {
    fn insert(&mut self, prefix: Prefix<u128>, next: NextHop) -> Result<Option<NextHop>, Full> {
        let leaf = Self::admitted(next)?;
        self.make_room(prefix)?;
        self.change(prefix, leaf)
    }

    fn remove(&mut self, prefix: Prefix<u128>) -> Result<Option<NextHop>, Full> {
        let was = self.change(prefix, 0)?;
        self.join(prefix);
        Ok(was)
    }

    fn lookup(&self, address: u128) -> Option<NextHop> {
        next_hop(layout::find::<BYTES>(&self.memory, address))
    }

    fn len(&self) -> usize {
        self.account.len()
    }
}

impl<const BYTES: usize> ServingFib<u128> for ParcelFib<BYTES> {
    fn reader(&self) -> Option<Box<dyn Lookups<u128>>> {
        let place = self.memory.readers.admit()?;
        let memory = Arc::clone(&self.memory);
        let instructions = Instructions::best();
        Some(Box::new(ParcelReader::<BYTES> { memory, instructions, place }))
    }

    fn balances(&self) -> bool {
        self.blocks.balances()
    }

    fn span(&self) -> Range<usize> {
        let words = self.memory.words().as_ptr_range();
        words.start.addr()..words.end.addr()
    }

    fn bytes(&self) -> usize {
        ((1 << FIRST_BITS) + self.blocks.used() as usize) * size_of::<u32>()
    }
}

impl<const BYTES: usize> Lookups<u128> for ParcelReader<BYTES> {
    fn look_up(&mut self, addresses: &[u128], next_hops: &mut [Option<NextHop>]) {
        assert_eq!(addresses.len(), next_hops.len(), "a next hop for each address");
        self.memory.readers.pass(self.place);
        for (addresses, next_hops) in addresses.chunks(BURST).zip(next_hops.chunks_mut(BURST)) {
            kernel::find_all::<BYTES>(&self.memory, self.instructions, addresses, next_hops);
        }
        self.memory.readers.rest(self.place);
    }

    fn expect(&self, addresses: &[u128]) {
        kernel::ask_roots(&self.memory, addresses);
    }
}

impl<const BYTES: usize> Drop for ParcelReader<BYTES> {
    fn drop(&mut self) {
        self.memory.readers.dismiss(self.place);
    }
}
