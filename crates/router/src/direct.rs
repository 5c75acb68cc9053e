//! Routes looked up directly: Gupta, Lin and McKeown's DIR-24-8 (INFOCOM 1998).
//!
//! Memory is spent on an answer for each of the 2^24 networks of 24 bits, so that a lookup is one load. A
//! network with longer routes inside has the number of a *group* of 256 answers in place of its own,
//! and costs a second load; one in a thousand of the Internet's routes is that long. With answers of two
//! bytes the networks alone are 32 MiB, 37 bytes a prefix for 900,000 of them: it is fast where the cache
//! holds the networks that are looked up, and where it does not there is only this one line to wait for.
//!
//! The writer keeps the routes of each /16 (`slots/routes.rs`), and a change to one of them rewrites the
//! answers of its 256 networks. Each answer is a store, so that a lookup sees a change wholly or not at
//! all; groups are never changed but written beside the old ones, which wait for readers to pass.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU16, Ordering};

use nilometer_wire::prefetch::prefetch;

use crate::fib::{Fib, Full, Lookups, NextHop, ServingFib};
use crate::prefix::Prefix;
use crate::quiescence::Readers;
use crate::slots::routes::{Leaf, Routes, Run, leaf, next_hop};

/// Bits of a network.
const NETWORK_BITS: u32 = 24;
/// Bits of the number of a /16, the part rewritten when one of its routes changes, and networks in it.
const SLOT_BITS: u32 = 16;
const NETWORKS: usize = 1 << (NETWORK_BITS - SLOT_BITS);
/// Answers of a group.
const GROUP: usize = 1 << (u32::BITS - NETWORK_BITS);
/// Behind this bit is the number of a group.
const IS_GROUP: u16 = 1 << 15;
/// Most groups.
const GROUPS_LIMIT: usize = IS_GROUP as usize;
/// Addresses that go through together.
const BURST: usize = 64;

/// What writer and readers share.
#[derive(Debug)]
struct SharedTables {
    networks: Box<[AtomicU16]>,
    groups: Box<[AtomicU16]>,
    readers: Readers,
}

impl SharedTables {
    #[inline(always)]
    fn find(&self, address: u32) -> Leaf {
        let found = &self.networks[(address >> (u32::BITS - NETWORK_BITS)) as usize];
        match found.load(Ordering::Acquire) {
            leaf if leaf < IS_GROUP => leaf,
            group => {
                let at = usize::from(group - IS_GROUP) * GROUP + address as usize % GROUP;
                self.groups[at].load(Ordering::Relaxed)
            }
        }
    }
}

/// The table and its one writer.
#[derive(Debug)]
pub struct Direct {
    memory: Arc<SharedTables>,
    routes: Routes<u32>,
    unused: Vec<u16>,
    /// Groups that no network refers to any longer, and the epoch that readers must have passed.
    retired: VecDeque<(u64, u16)>,
    groups_used: usize,
}

/// A reader of a table that is being changed. Once dropped, it no longer counts as a reader.
#[derive(Debug)]
struct DirectReader {
    memory: Arc<SharedTables>,
    place: usize,
}

impl Direct {
    /// Next hops below this can be named.
    pub const NEXT_HOPS_MAX: usize = IS_GROUP as usize - 1;

    /// An empty table with room for `groups` networks in which there are routes longer than 24 bits,
    /// at most 32,768; those that wait for readers are among them.
    pub fn new(groups: usize) -> Direct {
        let groups = groups.min(GROUPS_LIMIT);
        let nothing = |count: usize| (0..count).map(|_| AtomicU16::new(0)).collect();
        let memory = SharedTables {
            networks: nothing(1 << NETWORK_BITS),
            groups: nothing(groups * GROUP),
            readers: Readers::new(),
        };
        Direct {
            memory: Arc::new(memory),
            routes: Routes::new(SLOT_BITS),
            unused: (0..groups as u16).rev().collect(),
            retired: VecDeque::new(),
            groups_used: 0,
        }
    }

    fn change(&mut self, prefix: Prefix<u32>, leaf: Leaf) -> Result<Option<NextHop>, Full> {
        let mut touched = Vec::new();
        let was = self.routes.set(prefix, leaf, &mut touched);
        if self.write(&touched).is_err() {
            self.routes.set(prefix, was, &mut Vec::new());
            return Err(Full);
        }
        Ok(next_hop(was))
    }

    /// Writes slots as their routes are now, all or none.
    fn write(&mut self, slots: &[usize]) -> Result<(), Full> {
        let mut runs = Vec::new();
        let passed = self.memory.readers.passed();
        let count = self.retired.iter().take_while(|(epoch, _)| *epoch <= passed).count();
        self.unused.extend(self.retired.drain(..count).map(|(_, group)| group));
        let mut groups = 0;
        for &slot in slots {
            self.routes.runs(slot, &mut runs);
            groups += networks(&runs).filter(|(_, network)| is_group(network)).count();
        }
        if groups > self.unused.len() {
            return Err(Full);
        }
        for &slot in slots {
            self.routes.runs(slot, &mut runs);
            self.write_slot(slot, &runs);
        }
        Ok(())
    }

    fn write_slot(&mut self, slot: usize, runs: &[Run<u32>]) {
        let mut retired = Vec::new();
        let mut before = 0;
        let mut changes = networks(runs).peekable();
        for number in 0..NETWORKS {
            let network =
                changes.next_if(|(at, _)| *at == number).map_or(&[][..], |(_, runs)| runs);
            let entry = match is_group(network) {
                true => IS_GROUP | self.write_group(before, network),
                false => network.first().map_or(before, |run| run.leaf),
            };
            before = network.last().map_or(before, |run| run.leaf);
            let old = self.memory.networks[slot * NETWORKS + number].swap(entry, Ordering::AcqRel);
            retired.extend((old >= IS_GROUP).then_some(old - IS_GROUP));
        }
        if !retired.is_empty() {
            let epoch = self.memory.readers.advance();
            self.groups_used -= retired.len();
            self.retired.extend(retired.into_iter().map(|group| (epoch, group)));
        }
    }

    /// Writes a group that nothing refers to yet; `before` is the answer up to the first run.
    fn write_group(&mut self, before: Leaf, runs: &[Run<u32>]) -> u16 {
        let group = self.unused.pop().expect("groups were counted");
        self.groups_used += 1;
        let at = usize::from(group) * GROUP;
        let (mut leaf, mut runs) = (before, runs.iter().peekable());
        for (number, entry) in self.memory.groups[at..at + GROUP].iter().enumerate() {
            if let Some(run) = runs.next_if(|run| run.start as usize % GROUP == number) {
                leaf = run.leaf;
            }
            entry.store(leaf, Ordering::Relaxed);
        }
        group
    }
}

/// The networks of a slot in which runs begin, by number.
fn networks(runs: &[Run<u32>]) -> impl Iterator<Item = (usize, &[Run<u32>])> {
    let number = |run: &Run<u32>| (run.start as usize / GROUP) % NETWORKS;
    let chunks = runs.chunk_by(move |a, b| number(a) == number(b));
    chunks.map(move |chunk| (number(&chunk[0]), chunk))
}

/// Whether a network with these runs has more than one answer.
fn is_group(network: &[Run<u32>]) -> bool {
    let begins_inside = |run: &Run<u32>| !run.start.is_multiple_of(GROUP as u32);
    network.len() > 1 || network.first().is_some_and(begins_inside)
}

impl Fib<u32> for Direct {
    fn insert(&mut self, prefix: Prefix<u32>, next: NextHop) -> Result<Option<NextHop>, Full> {
        match usize::from(next.0) < Direct::NEXT_HOPS_MAX {
            true => self.change(prefix, leaf(next)),
            false => Err(Full),
        }
    }

    fn remove(&mut self, prefix: Prefix<u32>) -> Result<Option<NextHop>, Full> {
        self.change(prefix, 0)
    }

    fn lookup(&self, address: u32) -> Option<NextHop> {
        next_hop(self.memory.find(address))
    }

    fn len(&self) -> usize {
        self.routes.len()
    }
}

impl ServingFib<u32> for Direct {
    fn reader(&self) -> Option<Box<dyn Lookups<u32>>> {
        let place = self.memory.readers.admit()?;
        Some(Box::new(DirectReader { memory: Arc::clone(&self.memory), place }))
    }

    fn load(
        &mut self,
        routes: &mut dyn Iterator<Item = (Prefix<u32>, NextHop)>,
    ) -> Result<(), Full> {
        let mut touched = Vec::new();
        for (prefix, next) in routes {
            if usize::from(next.0) >= Direct::NEXT_HOPS_MAX {
                return Err(Full);
            }
            self.routes.set(prefix, leaf(next), &mut touched);
        }
        touched.sort_unstable();
        touched.dedup();
        self.write(&touched)
    }

    fn bytes(&self) -> usize {
        ((1 << NETWORK_BITS) + self.groups_used * GROUP) * size_of::<AtomicU16>()
    }

    fn balances(&self) -> bool {
        let groups = self.memory.groups.len() / GROUP;
        self.groups_used + self.unused.len() + self.retired.len() == groups
    }

    fn span(&self) -> Range<usize> {
        let networks = self.memory.networks.as_ptr_range();
        networks.start.addr()..networks.end.addr()
    }
}

impl Lookups<u32> for DirectReader {
    fn look_up(&mut self, addresses: &[u32], next_hops: &mut [Option<NextHop>]) {
        assert_eq!(addresses.len(), next_hops.len(), "a next hop for each address");
        let ask = |address: &u32| {
            prefetch(self.memory.networks.as_ptr().wrapping_add((address >> 8) as usize));
        };
        let mut bursts = addresses.chunks(BURST);
        bursts.next().into_iter().flatten().for_each(ask);
        self.memory.readers.pass(self.place);
        for (addresses, next_hops) in addresses.chunks(BURST).zip(next_hops.chunks_mut(BURST)) {
            bursts.next().into_iter().flatten().for_each(ask);
            for (address, next) in addresses.iter().zip(next_hops) {
                *next = next_hop(self.memory.find(*address));
            }
        }
        self.memory.readers.rest(self.place);
    }
}

impl Drop for DirectReader {
    fn drop(&mut self) {
        self.memory.readers.dismiss(self.place);
    }
}
