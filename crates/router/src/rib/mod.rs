//! The routing information base: all routes of all sources; the best for each prefix is used for
//! forwarding.
//!
//! Sources overlap: a daemon, the kernel's own table, static routes, the router's addresses. For each
//! prefix the candidate of the least *distance* is best (RFC 1812, 5.2.4: the "administrative
//! preference"), then of the least metric, and only the best reaches the forwarding table. Nine in ten
//! prefixes have one candidate, which stands in the table of prefixes itself, in 24 bytes; others hang
//! on it in a list.
//!
//! A source that was lost announces everything again when it returns, and does not withdraw what is gone.
//! So routes carry the number of their announcement round: [`Rib::start_resync`] begins a new round, a
//! repeated route takes its number, and [`Rib::finish_resync`] sweeps those that were not repeated. Until
//! then all of them are used, and a route that is repeated unchanged is never out of the table, not for
//! one lookup.
//!
//! The table of prefixes is many small ones ([`Rib::PARTS`]), between which the bits of a hash choose. So
//! a walk over all routes of a full table can pause after each, and let changes in: a prefix is in one
//! part as long as it is there, so a walk of all parts meets it once, or not if it came or went
//! meanwhile.
//!
//! A route that the forwarding table refuses ([`Full`]) is refused here as well, and nothing has changed:
//! the two never disagree.

mod route;

use alloc::vec::Vec;

use hashbrown::HashTable;

use crate::fib::{Full, NextHop};
use crate::next_hop::NextHops;
use crate::prefix::{Address, Prefix};

pub use route::{FibSink, RibCounters, RibFault, Route, Source};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Candidate {
    metric: u32,
    next: NextHop,
    /// In which telling it came last.
    telling: u16,
    source: Source,
    distance: u8,
    protocol: u8,
}

impl Candidate {
    fn rank(&self) -> (u8, u32, Source) {
        (self.distance, self.metric, self.source)
    }

    fn is_same_as(&self, source: Source, metric: u32) -> bool {
        self.source == source && (!source.has_metrics() || self.metric == metric)
    }

    fn has_changed(&self, to: &Candidate) -> bool {
        (self.metric, self.next, self.protocol) != (to.metric, to.next, to.protocol)
    }
}

/// No further candidate.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry<A> {
    prefix: Prefix<A>,
    best: Candidate,
    /// The first of the others, or [`NONE`].
    others: u32,
}

/// All routes of one family.
#[derive(Debug)]
pub struct Rib<A> {
    routes_max: usize,
    seed: u64,
    parts: Vec<HashTable<Entry<A>>>,
    /// Candidates that are not the best, each with the one after it.
    others: Vec<(Candidate, u32)>,
    others_unused: Vec<u32>,
    routes: [usize; Source::ALL.len()],
    tellings: [u16; Source::ALL.len()],
    is_resyncing: [bool; Source::ALL.len()],
    counters: RibCounters,
}

impl<A: Address> Rib<A> {
    /// The parts that its prefixes are in: of a million routes some 4,000 in each.
    pub const PARTS: usize = 256;

    /// No routes, and room for `routes_max`; `seed` decides where prefixes stand, so that an attacker
    /// cannot choose prefixes that collide.
    pub fn new(routes_max: usize, seed: u64) -> Rib<A> {
        Rib {
            routes_max: routes_max.min(NONE as usize - 1),
            seed,
            parts: (0..Self::PARTS).map(|_| HashTable::new()).collect(),
            others: Vec::new(),
            others_unused: Vec::new(),
            routes: [0; Source::ALL.len()],
            tellings: [0; Source::ALL.len()],
            is_resyncing: [false; Source::ALL.len()],
            counters: RibCounters::default(),
        }
    }

    /// A source announces a route: a new one, or one that replaces its earlier one. The route adds a
    /// reference to its next hop in `hops`.
    ///
    /// # Errors
    /// When there is no room, and nothing has changed.
    pub fn announce(
        &mut self,
        route: Route<A>,
        hops: &mut NextHops,
        fib: &mut impl FibSink<A>,
    ) -> Result<(), RibFault> {
        let Route { prefix, source, protocol, metric, next } = route;
        let (distance, telling) = (source.distance(protocol), self.tellings[source as usize]);
        let new = Candidate { metric, next, telling, source, distance, protocol };
        let hash = self.hash(prefix);
        let is_full = self.len() == self.routes_max;
        let table = &mut self.parts[part(hash)];
        let Some(entry) = table.find_mut(hash, |entry| entry.prefix == prefix) else {
            if is_full {
                return self.refuse(RibFault::Limit);
            }
            if fib.insert(prefix, next).is_err() {
                return self.refuse(RibFault::Fib);
            }
            let seed = self.seed;
            let entry = Entry { prefix, best: new, others: NONE };
            table.insert_unique(hash, entry, |entry| prefix_hash(seed, entry.prefix));
            self.counters.fib_updates += 1;
            self.count_new(new, hops);
            return Ok(());
        };
        if entry.others == NONE && entry.best.is_same_as(source, metric) {
            let old = core::mem::replace(&mut entry.best, new);
            if old.next != next {
                if fib.insert(prefix, next).is_err() {
                    entry.best = old;
                    return self.refuse(RibFault::Fib);
                }
                self.counters.fib_updates += 1;
            }
            self.count_again(old, new, hops);
            return Ok(());
        }
        let entry = *entry;
        let mut all = self.candidates_of(&entry);
        let old = all.iter().position(|old| old.is_same_as(source, metric));
        match old {
            None if is_full => return self.refuse(RibFault::Limit),
            None => all.push(new),
            Some(at) => all[at] = new,
        }
        let old = old.map(|at| self.candidates_of(&entry)[at]);
        if self.store(hash, &entry, all, fib).is_err() {
            return self.refuse(RibFault::Fib);
        }
        match old {
            None => self.count_new(new, hops),
            Some(old) => self.count_again(old, new, hops),
        }
        Ok(())
    }

    /// A source takes a route back; the next best takes its place. `metric` matters only for sources
    /// that have several routes to one prefix. Returns whether there was such a route.
    ///
    /// # Errors
    /// When the forwarding table has no room to prepare the change, and nothing has changed.
    pub fn withdraw(
        &mut self,
        prefix: Prefix<A>,
        source: Source,
        metric: u32,
        hops: &mut NextHops,
        fib: &mut impl FibSink<A>,
    ) -> Result<bool, RibFault> {
        let hash = self.hash(prefix);
        let entry = self.parts[part(hash)].find(hash, |entry| entry.prefix == prefix).copied();
        let found = entry.and_then(|entry| {
            let mut all = self.candidates_of(&entry);
            let at = all.iter().position(|old| old.is_same_as(source, metric))?;
            let old = all.remove(at);
            Some((entry, old, all))
        });
        let Some((entry, old, all)) = found else {
            self.counters.unknown += 1;
            return Ok(false);
        };
        if self.store(hash, &entry, all, fib).is_err() {
            self.counters.refused += 1;
            return Err(RibFault::Fib);
        }
        self.routes[source as usize] -= 1;
        self.counters.withdrawn += 1;
        hops.release(old.next);
        Ok(true)
    }

    /// A source begins to announce everything again; its earlier routes stay until
    /// [`Rib::finish_resync`]. If it begins once more before that, only the last round counts.
    pub fn start_resync(&mut self, source: Source) {
        self.tellings[source as usize] = self.tellings[source as usize].wrapping_add(1);
        self.is_resyncing[source as usize] = true;
    }

    /// The source has announced everything: routes that it did not repeat are removed. Returns how many
    /// were; none where no resync was begun. Routes that the forwarding table cannot remove stay and are
    /// counted as refused.
    pub fn finish_resync(
        &mut self,
        source: Source,
        hops: &mut NextHops,
        fib: &mut impl FibSink<A>,
    ) -> usize {
        if !core::mem::take(&mut self.is_resyncing[source as usize]) {
            return 0;
        }
        let telling = self.tellings[source as usize];
        let mut stale = Vec::new();
        for entry in self.parts.iter().flatten() {
            let mut look = |candidate: &Candidate| {
                if candidate.source == source && candidate.telling != telling {
                    stale.push((entry.prefix, candidate.metric));
                }
            };
            look(&entry.best);
            let mut at = entry.others;
            while at != NONE {
                let (candidate, after) = &self.others[at as usize];
                look(candidate);
                at = *after;
            }
        }
        let mut swept = 0;
        for (prefix, metric) in stale {
            swept += usize::from(self.withdraw(prefix, source, metric, hops, fib) == Ok(true));
        }
        self.counters.withdrawn -= swept as u64;
        self.counters.swept += swept as u64;
        swept
    }

    /// Whether a source is telling everything again.
    pub fn is_resyncing(&self, source: Source) -> bool {
        self.is_resyncing[source as usize]
    }

    /// All routes announced for a prefix, the best first.
    pub fn candidates(&self, prefix: Prefix<A>) -> Vec<Route<A>> {
        let hash = self.hash(prefix);
        let found = self.parts[part(hash)].find(hash, |entry| entry.prefix == prefix);
        let mut all = found.map_or(Vec::new(), |entry| self.candidates_of(entry));
        all.sort_by_key(Candidate::rank);
        all.into_iter().map(|candidate| candidate.route(prefix)).collect()
    }

    /// The best route of a prefix.
    pub fn best_of(&self, prefix: Prefix<A>) -> Option<Route<A>> {
        let hash = self.hash(prefix);
        let found = self.parts[part(hash)].find(hash, |entry| entry.prefix == prefix);
        found.map(|entry| entry.best.route(prefix))
    }

    /// The best route of each prefix, in no order.
    pub fn best(&self) -> impl Iterator<Item = Route<A>> + '_ {
        self.parts.iter().flatten().map(|entry| entry.best.route(entry.prefix))
    }

    /// The best routes of the prefixes in one of the [`Rib::PARTS`]. Panics where there is no such part.
    pub fn best_in(&self, part: usize) -> impl Iterator<Item = Route<A>> + '_ {
        self.parts[part].iter().map(|entry| entry.best.route(entry.prefix))
    }

    /// How many prefixes have a route.
    pub fn prefixes(&self) -> usize {
        self.parts.iter().map(HashTable::len).sum()
    }

    /// How many routes a source has announced.
    pub fn routes(&self, source: Source) -> usize {
        self.routes[source as usize]
    }

    /// How many routes there are in all.
    pub fn len(&self) -> usize {
        self.routes.iter().sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What happened so far.
    pub fn counters(&self) -> RibCounters {
        self.counters
    }

    /// Bytes that the table takes.
    pub fn bytes(&self) -> usize {
        let parts: usize = self.parts.iter().map(HashTable::allocation_size).sum();
        parts + self.others.capacity() * size_of::<(Candidate, u32)>()
    }

    fn hash(&self, prefix: Prefix<A>) -> u64 {
        prefix_hash(self.seed, prefix)
    }

    fn candidates_of(&self, entry: &Entry<A>) -> Vec<Candidate> {
        let mut all = Vec::from([entry.best]);
        let mut at = entry.others;
        while at != NONE {
            let (candidate, after) = self.others[at as usize];
            all.push(candidate);
            at = after;
        }
        all
    }

    /// Replaces a prefix's candidates by `all`, and updates the forwarding table if need be.
    fn store(
        &mut self,
        hash: u64,
        was: &Entry<A>,
        mut all: Vec<Candidate>,
        fib: &mut impl FibSink<A>,
    ) -> Result<(), Full> {
        all.sort_unstable_by_key(Candidate::rank);
        let has_changed = all.first().is_none_or(|best| best.next != was.best.next);
        match all.first() {
            None => fib.remove(was.prefix)?,
            Some(best) if has_changed => fib.insert(was.prefix, best.next)?,
            Some(_) => {}
        }
        self.counters.fib_updates += u64::from(has_changed);
        let mut at = was.others;
        while at != NONE {
            self.others_unused.push(at);
            at = self.others[at as usize].1;
        }
        let mut others = NONE;
        for candidate in all.iter().skip(1).rev() {
            let slot = self.others_unused.pop().unwrap_or_else(|| {
                self.others.push((*candidate, NONE));
                self.others.len() as u32 - 1
            });
            self.others[slot as usize] = (*candidate, others);
            others = slot;
        }
        let found = self.parts[part(hash)].find_entry(hash, |entry| entry.prefix == was.prefix);
        let mut found = found.expect("the prefix was found before");
        match all.first() {
            None => drop(found.remove()),
            Some(&best) => (found.get_mut().best, found.get_mut().others) = (best, others),
        }
        Ok(())
    }

    fn refuse(&mut self, fault: RibFault) -> Result<(), RibFault> {
        self.counters.refused += 1;
        self.counters.refused_by_limit += u64::from(fault == RibFault::Limit);
        Err(fault)
    }

    fn count_new(&mut self, new: Candidate, hops: &mut NextHops) {
        self.routes[new.source as usize] += 1;
        self.counters.added += 1;
        hops.retain(new.next);
    }

    fn count_again(&mut self, old: Candidate, new: Candidate, hops: &mut NextHops) {
        if old.has_changed(&new) {
            self.counters.changed += 1;
        } else {
            self.counters.repeated += 1;
        }
        hops.retain(new.next);
        hops.release(old.next);
    }
}

impl Candidate {
    fn route<A>(self, prefix: Prefix<A>) -> Route<A> {
        let Candidate { metric, next, source, protocol, .. } = self;
        Route { prefix, source, protocol, metric, next }
    }
}

/// Which part a hash chooses, by bits that its place in the part does not depend on: that is by the low ones
/// and the highest seven.
fn part(hash: u64) -> usize {
    (hash >> 40) as usize % Rib::<u32>::PARTS
}

/// A product of 128 bits folded, for each 32 bits of the address.
fn prefix_hash<A: Address>(seed: u64, prefix: Prefix<A>) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let words = (0..A::BITS / 32).map(|word| u64::from(prefix.address().bits(word * 32, 32)));
    words.fold(seed ^ u64::from(prefix.length()), |hash, word| {
        let product = u128::from(hash ^ word << 8 ^ ODD) * u128::from(ODD ^ seed | 1);
        product as u64 ^ (product >> 64) as u64
    })
}
