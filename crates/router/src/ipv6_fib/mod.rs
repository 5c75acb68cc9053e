//! Tables of IPv6: its addresses are divided where the routes are, and each parcel is written anew when a
//! route of it changes.
//!
//! What makes IPv4 fast, that a parcel of fixed size is packed into a line and published by a single
//! store (`slots/mod.rs`), meets two things in IPv6. Addresses are long: the bits that distinguish routes
//! run from the 17th to the 48th. And routes crowd: of 160,000, one in ten lies within one /20 of
//! 131,072. Slots small enough for that /20 would take more memory than there is, and in larger ones an
//! update writes thousands of runs. So a *parcel* that holds more than some hundred routes is divided by
//! the next byte of the address into 256 of them (`parcel_table.rs`), and joined again when few are left.
//! What is not divided is packed into one line of keys and answers, or into a tree of two levels of such
//! lines (`layout.rs`); parcels with one answer are that answer.
//!
//! ```text
//! first 65,536 words      parts, 256 words     a tree: first keys, and lines of keys and answers
//! [ 2a0e::/16 ] ------->  [ 2a0e:97::/24 ] ->  [ 0120 | 0a00 | … ]  [ 0a05 | 0a1f | … | 7 | 12 | 9 | … ]
//! ```
//!
//! A lookup reads four or five lines. All but the last come from a small set that stays in near caches. A
//! batch goes through together, step by step (`kernel.rs`).
//!
//! How much a parcel may hold depends on the lengths of its routes alone, so that neither an answer nor
//! a covering route that changes makes it overflow. Dividing and joining change no answer; they are
//! published like everything else by one store. A new route that finds no room leaves everything as it
//! was; routes that are there find room always (`slots/home.rs`); and a parcel that found no room to be
//! joined stays divided until one of its routes goes.

mod kernel;
mod layout;
mod parcel_table;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use crate::classifier::instructions::Instructions;
use crate::fib::{Fib, Full, Lookups, NextHop, ServingFib};
use crate::prefix::Prefix;
use crate::slots::home::Writing;
use crate::slots::memory::{Block, Blocks, SlotMemory};
use crate::slots::routes::{Leaf, Route, Run, leaf, next_hop};
use parcel_table::{FIRST_BITS, PARTS, ParcelTable, Place};

/// Addresses that go through together.
const BURST: usize = 64;

/// A table of parcels with answers of `BYTES` bytes, 1 for up to 254 next hops and 2 for up to 65,534, and
/// its one writer. A route that is in it can always be changed and withdrawn: for that the writer waits for
/// the readers' batches, if need be.
#[derive(Debug)]
pub struct Ipv6Fib<const BYTES: usize = 1> {
    memory: Arc<SlotMemory>,
    blocks: Blocks,
    parcels: ParcelTable,
    runs: Vec<Run<u128>>,
    packed: Vec<u32>,
}

/// A reader of a table of parcels that is being changed. Once dropped, it no longer counts as a reader.
#[derive(Debug)]
pub struct Ipv6Reader<const BYTES: usize> {
    memory: Arc<SlotMemory>,
    instructions: Instructions,
    place: usize,
}

/// A parcel that was divided for a route that may be refused, and its previous state.
struct Divided {
    place: Place,
    word: u32,
    home: Block,
}

impl<const BYTES: usize> Ipv6Fib<BYTES> {
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
        Ok(Ipv6Fib {
            memory: Arc::new(SlotMemory::new(words)),
            blocks: Blocks::new(1 << FIRST_BITS, words),
            parcels: ParcelTable::new(),
            runs: Vec::new(),
            packed: Vec::new(),
        })
    }

    fn admitted(next: NextHop) -> Result<Leaf, Full> {
        if next.0 < Self::LEAF_MAX { Ok(leaf(next)) } else { Err(Full) }
    }

    /// Writes and publishes an undivided parcel as its routes are now.
    fn write(&mut self, place: Place) -> Result<(), Full> {
        let routes = core::mem::take(&mut self.parcels.of_mut(place.number).routes);
        let written = self.write_with(place, &routes);
        self.parcels.of_mut(place.number).routes = routes;
        written
    }

    /// Writes and publishes a parcel as if these were its routes and it were not divided.
    fn write_with(&mut self, place: Place, routes: &[Route<u128>]) -> Result<(), Full> {
        self.parcels.runs(place, routes, &mut self.runs);
        let length = place.prefix.length();
        let words = match self.parcels.starts() {
            [_] => 0,
            starts => layout::words_max::<BYTES>(length, starts),
        };
        self.packed.clear();
        let (answer, tag) = match self.runs[..] {
            [Run { leaf, .. }] => (Some(layout::answer(leaf)), layout::ANSWER),
            _ => (None, layout::pack::<BYTES>(length, &self.runs, &mut self.packed)),
        };
        let root = |first| answer.unwrap_or(layout::word(first, tag));
        let parcel = self.parcels.of_mut(place.number);
        let writing = Writing { at: parcel.at as usize, packed: &self.packed, words, root };
        parcel.own = self.blocks.rewrite(&self.memory, parcel.own, &writing)?;
        Ok(())
    }

    /// What nothing refers to any longer is used again when all readers have passed.
    fn retire(&mut self, block: Block) {
        if block.words > 0 {
            self.blocks.retire(self.memory.readers.advance(), block);
        }
    }

    /// Gives `prefix` the leaf, or withdraws it with 0.
    fn change(&mut self, prefix: Prefix<u128>, leaf: Leaf) -> Result<Option<NextHop>, Full> {
        let mut touched = Vec::new();
        let was = self.parcels.set(prefix, leaf, &mut touched);
        for place in &touched {
            if self.write(*place).is_err() {
                assert!(was == 0 && touched.len() == 1, "only what is new needs more room");
                self.parcels.set(prefix, was, &mut Vec::new());
                return Err(Full);
            }
        }
        Ok(next_hop(was))
    }

    /// Divides parcels until the one that lists `prefix` has it or may list one more.
    fn make_room(&mut self, prefix: Prefix<u128>, all: &mut Vec<Divided>) -> Result<(), Full> {
        loop {
            let place = self.parcels.place(prefix);
            let routes = &self.parcels.of(place.number).routes;
            let is_listed = || routes.binary_search_by_key(&prefix, |route| route.prefix).is_ok();
            if self.parcels.is_divided(place.number) || is_listed() {
                return Ok(());
            }
            let lengths = routes.iter().map(|route| route.prefix.length());
            let longest = lengths.max().unwrap_or(0).max(prefix.length());
            let bits = longest - place.prefix.length();
            if routes.len() < layout::routes_max(bits, BYTES) {
                return Ok(());
            }
            all.push(self.divide(place)?);
        }
    }

    /// Divides a parcel; its previous block is neither changed nor retired yet.
    fn divide(&mut self, place: Place) -> Result<Divided, Full> {
        let parts = self.blocks.take(&self.memory, PARTS as usize)?;
        self.parcels.divide(place, parts.first);
        // No reader finds the parts yet.
        if self.parcels.all_parts(place).any(|part| self.write(part).is_err()) {
            for part in self.parcels.all_parts(place) {
                self.blocks.untake(self.parcels.of(part.number).own);
            }
            self.blocks.untake(parts);
            self.join_parcels(place);
            return Err(Full);
        }
        let parcel = self.parcels.of_mut(place.number);
        let (at, home) = (parcel.at as usize, core::mem::replace(&mut parcel.own, parts));
        let word = self.memory.root(at);
        self.memory.publish(at, layout::word(parts.first, layout::PARTS));
        Ok(Divided { place, word, home })
    }

    /// Restores a parcel to its state before it was divided; its routes are the same.
    fn undivide(&mut self, Divided { place, word, home }: Divided) {
        let parcel = self.parcels.of_mut(place.number);
        self.memory.publish(parcel.at as usize, word);
        let parts = core::mem::replace(&mut parcel.own, home);
        self.retire(parts);
        self.retire_parts(place);
        self.join_parcels(place);
    }

    fn retire_parts(&mut self, place: Place) {
        for part in self.parcels.all_parts(place) {
            self.retire(self.parcels.of(part.number).own);
        }
    }

    fn join_parcels(&mut self, place: Place) {
        let routes = self.parcels.gathered(place).expect("its parts are not divided");
        self.parcels.join(place, routes);
    }

    /// Joins the divided parcels that contain `prefix` and hold few routes.
    fn join(&mut self, prefix: Prefix<u128>) {
        let path: Vec<Place> = self.parcels.path(prefix).skip(1).collect();
        for place in path.into_iter().rev() {
            let is_divided = self.parcels.is_divided(place.number);
            if !is_divided || self.parcels.of(place.number).count > Self::JOINED_MAX {
                continue;
            }
            let Some(routes) = self.parcels.gathered(place) else { return };
            if self.write_with(place, &routes).is_err() {
                return;
            }
            self.retire_parts(place);
            self.parcels.join(place, routes);
        }
    }
}

impl<const BYTES: usize> Fib<u128> for Ipv6Fib<BYTES> {
    fn insert(&mut self, prefix: Prefix<u128>, next: NextHop) -> Result<Option<NextHop>, Full> {
        let leaf = Self::admitted(next)?;
        let mut divided = Vec::new();
        let room = self.make_room(prefix, &mut divided);
        let made = room.and_then(|()| self.change(prefix, leaf));
        for one in divided.into_iter().rev() {
            match made {
                Ok(_) => self.retire(one.home),
                Err(Full) => self.undivide(one),
            }
        }
        made
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
        self.parcels.len()
    }
}

impl<const BYTES: usize> ServingFib<u128> for Ipv6Fib<BYTES> {
    fn reader(&self) -> Option<Box<dyn Lookups<u128>>> {
        let place = self.memory.readers.admit()?;
        let memory = Arc::clone(&self.memory);
        let instructions = Instructions::best();
        Some(Box::new(Ipv6Reader::<BYTES> { memory, instructions, place }))
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

impl<const BYTES: usize> Lookups<u128> for Ipv6Reader<BYTES> {
    fn look_up(&mut self, addresses: &[u128], next_hops: &mut [Option<NextHop>]) {
        assert_eq!(addresses.len(), next_hops.len(), "a next hop for each address");
        self.memory.readers.pass(self.place);
        for (addresses, next_hops) in addresses.chunks(BURST).zip(next_hops.chunks_mut(BURST)) {
            kernel::find_all::<BYTES>(&self.memory, self.instructions, addresses, next_hops);
        }
        self.memory.readers.rest(self.place);
    }

    fn expect(&self, addresses: &[u128]) {
        kernel::prefetch_roots(&self.memory, addresses);
    }
}

impl<const BYTES: usize> Drop for Ipv6Reader<BYTES> {
    fn drop(&mut self) {
        self.memory.readers.dismiss(self.place);
    }
}
