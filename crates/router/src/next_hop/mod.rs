//! Next hops behind their numbers: what routes point to, and what can change without changing the
//! routes.
//!
//! A forwarding table of 900,000 prefixes has some dozens of next hops. Each route holds a number, and
//! this table gives the meaning of the number: one way out, a fate (local, blackhole, reject), or a
//! group of weighted ways among which a flow's hash chooses (`buckets.rs`). A port that goes down is
//! therefore a matter of the groups that use it and never of the prefixes: "prefix-independent
//! convergence".
//!
//! Two kinds of numbers. *Interned* ones are found by their content, so that equal groups of routes
//! share one number. *Defined* ones belong to the caller that requested them and may be redefined, as a routing
//! daemon does with its next-hop objects: every route that points there follows at once.
//!
//! The data thread reads a [`Snapshot`], taken in a moment by copying three flat arrays, and exchanges
//! it for the latest at the boundaries of its batches. A number that was freed is not used again until
//! every snapshot in which it meant something is gone; a reader whose snapshot is older than a new
//! number learns so from `resolve`. Hence a packet can be late by a batch, but never go to the next
//! hop of another route.

mod buckets;
mod snapshot;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::{Arc, Weak};
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use crate::fib::NextHop;
use snapshot::Range;

pub use snapshot::{Hop, Rejection, Snapshot};

/// The most members of a group.
pub const MEMBERS_LIMIT: usize = 256;

/// One way of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// Where its flows go.
    pub hop: Hop,
    /// Its share, relative to the others'; 1 or more.
    pub weight: u16,
}

/// What fails and comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Point {
    /// A port with all behind it.
    Port(u16),
    /// One neighbour.
    Gateway {
        /// The port behind which it is.
        port: u16,
        /// Its address.
        address: IpAddr,
    },
}

/// Why next hops were refused; nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NextHopFault {
    /// There are as many numbers, ways or buckets as were allowed.
    #[error("the table of next hops is full; make it with more room")]
    Full,
    /// A group has no member, or more than [`MEMBERS_LIMIT`].
    #[error("a group has 1 to 256 members")]
    Members,
    /// A member's weight is 0.
    #[error("a member of a group has a weight of 1 or more")]
    Weight,
    /// The number stands for nothing.
    #[error("no next hop has this number")]
    Unknown,
}

/// One way and its users.
#[derive(Debug)]
struct HopUsers {
    hop: Hop,
    is_down: bool,
    users: BTreeSet<u16>,
}

/// What a number stands for.
#[derive(Debug, Default)]
struct Entry {
    /// Ways by their index, in the order of the members.
    ways: Vec<u16>,
    weights: Vec<u16>,
    homes: Vec<usize>,
    lodged: Vec<Option<usize>>,
    references: u32,
    /// What it is found by, if it is interned.
    content: Vec<Member>,
}

/// The table and its one writer.
#[derive(Debug)]
pub struct NextHops {
    numbers_max: usize,
    buckets_max: usize,
    entries: Vec<Entry>,
    interned: BTreeMap<Vec<Member>, NextHop>,
    ways: Vec<HopUsers>,
    ways_by_hop: BTreeMap<Hop, u16>,
    ways_unused: Vec<u16>,
    down: BTreeSet<Point>,
    /// Free blocks of 2^k buckets.
    blocks_unused: [Vec<u32>; 13],
    /// What the next snapshot will be.
    live: Snapshot,
    latest: Arc<Snapshot>,
    youngest: u64,
    numbers_unused: Vec<u16>,
    /// Freed since the latest snapshot.
    freed: Vec<u16>,
    /// Freed, and the last snapshot in which they stood for something; oldest first.
    resting: VecDeque<(Weak<Snapshot>, Vec<u16>)>,
}

impl NextHops {
    /// No next hops; at most `numbers_max` of them (65,536 at most), with `buckets_max` buckets in all:
    /// one for a single way, 16 and more for each member of a group.
    pub fn new(numbers_max: usize, buckets_max: usize) -> NextHops {
        let numbers_max = numbers_max.min(1 << 16);
        // Way 0 takes the flows of a group without a living member.
        let failed = HopUsers { hop: Hop::Failed, is_down: false, users: BTreeSet::new() };
        let live = Snapshot { hops: vec![Hop::Failed], ..Snapshot::default() };
        NextHops {
            numbers_max,
            buckets_max: buckets_max.min(u32::MAX as usize / 2),
            entries: Vec::new(),
            interned: BTreeMap::new(),
            ways: vec![failed],
            ways_by_hop: BTreeMap::from([(Hop::Failed, 0)]),
            ways_unused: Vec::new(),
            down: BTreeSet::new(),
            blocks_unused: Default::default(),
            latest: Arc::new(live.clone()),
            live,
            youngest: 0,
            numbers_unused: Vec::new(),
            freed: Vec::new(),
            resting: VecDeque::new(),
        }
    }

    /// The number of a group with these members, in any order, or of a single way; the same for the
    /// same members. It gains one reference.
    ///
    /// # Errors
    /// When there is no room, no member or too many, or a weight of 0.
    pub fn intern(&mut self, members: &[Member]) -> Result<NextHop, NextHopFault> {
        let content = normal(members)?;
        if let Some(&next) = self.interned.get(&content) {
            self.retain(next);
            return Ok(next);
        }
        let next = self.make(&content)?;
        self.entries[usize::from(next.0)].content.clone_from(&content);
        self.interned.insert(content, next);
        Ok(next)
    }

    /// A number of its own for these members, with one reference; [`NextHops::redefine`] changes what
    /// it stands for.
    ///
    /// # Errors
    /// As of [`NextHops::intern`].
    pub fn define(&mut self, members: &[Member]) -> Result<NextHop, NextHopFault> {
        self.make(&normal(members)?)
    }

    /// Redefines a number to stand for other members. Flows of members that stay keep them, except
    /// for those that a new member's share takes.
    ///
    /// # Errors
    /// As of [`NextHops::intern`], and for a number that is interned or stands for nothing.
    pub fn redefine(&mut self, next: NextHop, members: &[Member]) -> Result<(), NextHopFault> {
        let content = normal(members)?;
        let entry = self.entries.get(usize::from(next.0)).filter(|entry| entry.references > 0);
        let entry = entry.filter(|entry| entry.content.is_empty()).ok_or(NextHopFault::Unknown)?;
        let count = buckets::count(content.len());
        let old = entry.ways.clone();
        let (homes, lodged) = (entry.homes.clone(), entry.lodged.clone());
        let range = self.live.ranges[usize::from(next.0)];
        let same_size = count == homes.len();
        let new_range = if same_size { range } else { self.take_block(count)? };
        let ways = match self.use_ways(next, &content) {
            Ok(ways) => ways,
            Err(fault) => {
                if !same_size {
                    self.blocks_unused[count.ilog2() as usize].push(new_range.first);
                }
                return Err(fault);
            }
        };
        if !same_size {
            self.blocks_unused[homes.len().ilog2() as usize].push(range.first);
            self.live.ranges[usize::from(next.0)] = new_range;
        }
        let now = |member: usize| ways.iter().position(|way| *way == old[member]);
        let before: Vec<Option<usize>> = homes.iter().map(|home| now(*home)).collect();
        let lodged = lodged.iter().map(|member| member.and_then(now));
        let weights: Vec<u16> = content.iter().map(|member| member.weight).collect();
        let homes = buckets::deal(&weights, count, &before);
        let mut lodged: Vec<Option<usize>> = lodged.collect();
        lodged.resize(count, None);
        for way in old.into_iter().filter(|way| !ways.contains(way)) {
            self.leave_way(next, way);
        }
        let entry = &mut self.entries[usize::from(next.0)];
        (entry.ways, entry.weights, entry.homes, entry.lodged) = (ways, weights, homes, lodged);
        self.settle(next);
        Ok(())
    }

    /// Counts one reference more.
    ///
    /// # Panics
    /// When the number stands for nothing.
    pub fn retain(&mut self, next: NextHop) {
        let entry = &mut self.entries[usize::from(next.0)];
        assert!(entry.references > 0, "a reference to a next hop that is gone");
        entry.references += 1;
    }

    /// Counts one reference less; the last one frees the number.
    ///
    /// # Panics
    /// When the number stands for nothing.
    pub fn release(&mut self, next: NextHop) {
        let entry = &mut self.entries[usize::from(next.0)];
        assert!(entry.references > 0, "a next hop was released more often than referred to");
        entry.references -= 1;
        if entry.references > 0 {
            return;
        }
        let entry = core::mem::take(entry);
        self.interned.remove(&entry.content);
        for way in entry.ways {
            self.leave_way(next, way);
        }
        let range = &mut self.live.ranges[usize::from(next.0)];
        self.blocks_unused[entry.homes.len().ilog2() as usize].push(range.first);
        *range = Range::NONE;
        self.freed.push(next.0);
        self.live.version += 1;
    }

    /// Takes a port or a neighbour down: flows that went there go elsewhere, where their group has
    /// another way. Returns how many numbers that touched.
    pub fn fail(&mut self, point: Point) -> usize {
        if self.down.insert(point) { self.review(point) } else { 0 }
    }

    /// Takes a port or a neighbour up again; its flows return. Returns how many numbers that touched.
    pub fn restore(&mut self, point: Point) -> usize {
        if self.down.remove(&point) { self.review(point) } else { 0 }
    }

    /// The current state, for readers; the previous snapshot again if nothing has changed.
    pub fn snapshot(&mut self) -> Arc<Snapshot> {
        if self.latest.version != self.live.version {
            let last = core::mem::replace(&mut self.latest, Arc::new(self.live.clone()));
            self.resting.push_back((Arc::downgrade(&last), core::mem::take(&mut self.freed)));
        }
        Arc::clone(&self.latest)
    }

    /// The version from which on a snapshot knows every number that there is.
    pub fn youngest(&self) -> u64 {
        self.youngest
    }

    /// How many numbers stand for something.
    pub fn len(&self) -> usize {
        self.entries.iter().filter(|entry| entry.references > 0).count()
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many references a number has.
    pub fn references(&self, next: NextHop) -> u32 {
        self.entries.get(usize::from(next.0)).map_or(0, |entry| entry.references)
    }

    /// What a number stands for: the members, in order, whether they are up or not.
    pub fn members(&self, next: NextHop) -> Vec<Member> {
        let Some(entry) = self.entries.get(usize::from(next.0)) else { return Vec::new() };
        let ways = entry.ways.iter().map(|way| self.ways[usize::from(*way)].hop);
        ways.zip(&entry.weights).map(|(hop, &weight)| Member { hop, weight }).collect()
    }

    fn make(&mut self, content: &[Member]) -> Result<NextHop, NextHopFault> {
        let count = buckets::count(content.len());
        let range = self.take_block(count)?;
        let made = self.take_number().and_then(|next| match self.use_ways(next, content) {
            Ok(ways) => Ok((next, ways)),
            Err(fault) => {
                // It never stood for anything, so no reader can have seen it.
                self.numbers_unused.push(next.0);
                Err(fault)
            }
        });
        let (next, ways) = made.inspect_err(|_| {
            self.blocks_unused[count.ilog2() as usize].push(range.first);
        })?;
        let weights: Vec<u16> = content.iter().map(|member| member.weight).collect();
        let homes = buckets::deal(&weights, count, &[]);
        let lodged = vec![None; count];
        let number = usize::from(next.0);
        self.entries[number] =
            Entry { ways, weights, homes, lodged, references: 1, content: Vec::new() };
        self.live.ranges[number] = range;
        self.settle(next);
        self.youngest = self.live.version;
        Ok(next)
    }

    fn take_number(&mut self) -> Result<NextHop, NextHopFault> {
        self.rouse();
        if let Some(number) = self.numbers_unused.pop() {
            return Ok(NextHop(number));
        }
        if self.entries.len() == self.numbers_max {
            return Err(NextHopFault::Full);
        }
        self.entries.push(Entry::default());
        self.live.ranges.push(Range::NONE);
        Ok(NextHop((self.entries.len() - 1) as u16))
    }

    /// Reclaims numbers that no reader can know any longer. A snapshot that is gone hands its numbers
    /// to the one before it, so that there are never more lists than snapshots in use.
    fn rouse(&mut self) {
        while self.resting.front().is_some_and(|(snapshot, _)| snapshot.strong_count() == 0) {
            let (_, numbers) = self.resting.pop_front().expect("it has been looked at");
            self.numbers_unused.extend(numbers);
        }
        let mut at = 1;
        while at < self.resting.len() {
            if self.resting[at].0.strong_count() == 0 {
                let (_, numbers) = self.resting.remove(at).expect("within");
                self.resting[at - 1].1.extend(numbers);
            } else {
                at += 1;
            }
        }
    }

    fn take_block(&mut self, count: usize) -> Result<Range, NextHopFault> {
        let mask = count as u32 - 1;
        if let Some(first) = self.blocks_unused[count.ilog2() as usize].pop() {
            return Ok(Range { first, mask });
        }
        let first = self.live.buckets.len();
        if first + count > self.buckets_max {
            return Err(NextHopFault::Full);
        }
        self.live.buckets.resize(first + count, 0);
        Ok(Range { first: first as u32, mask })
    }

    /// The ways of these members, each with `next` recorded as a user.
    fn use_ways(&mut self, next: NextHop, content: &[Member]) -> Result<Vec<u16>, NextHopFault> {
        let new = content.iter().filter(|member| !self.ways_by_hop.contains_key(&member.hop));
        if self.ways.len() + new.count() > (1 << 16) + self.ways_unused.len() {
            return Err(NextHopFault::Full);
        }
        Ok(content.iter().map(|member| self.use_way(next, member.hop)).collect())
    }

    fn use_way(&mut self, next: NextHop, hop: Hop) -> u16 {
        let way = self.ways_by_hop.get(&hop).copied().unwrap_or_else(|| {
            let is_down = self.is_down(hop);
            let way = HopUsers { hop, is_down, users: BTreeSet::new() };
            let index = self.ways_unused.pop().unwrap_or_else(|| {
                self.ways.push(HopUsers { hop, is_down, users: BTreeSet::new() });
                self.live.hops.push(hop);
                (self.ways.len() - 1) as u16
            });
            self.ways[usize::from(index)] = way;
            self.live.hops[usize::from(index)] = hop;
            self.ways_by_hop.insert(hop, index);
            index
        });
        self.ways[usize::from(way)].users.insert(next.0);
        way
    }

    fn leave_way(&mut self, next: NextHop, way: u16) {
        let used = &mut self.ways[usize::from(way)];
        used.users.remove(&next.0);
        if used.users.is_empty() && way != 0 {
            self.ways_by_hop.remove(&used.hop);
            self.ways_unused.push(way);
        }
    }

    fn is_down(&self, hop: Hop) -> bool {
        let Hop::Via { port, gateway } = hop else { return false };
        let neighbour = gateway.map(|address| Point::Gateway { port, address });
        self.down.contains(&Point::Port(port))
            || neighbour.is_some_and(|neighbour| self.down.contains(&neighbour))
    }

    /// Re-evaluates the ways through a point, and the numbers that use them.
    fn review(&mut self, point: Point) -> usize {
        let (first, last) = match point {
            Point::Port(port) if port < u16::MAX => {
                (port, Hop::Via { port: port + 1, gateway: None })
            }
            Point::Port(port) => (port, Hop::Local),
            Point::Gateway { port, address } => (port, Hop::Via { port, gateway: Some(address) }),
        };
        let first = Hop::Via { port: first, gateway: None };
        let carried = match point {
            Point::Port(_) => self.ways_by_hop.range(first..last).map(|(_, way)| *way).collect(),
            Point::Gateway { .. } => Vec::from_iter(self.ways_by_hop.get(&last).copied()),
        };
        let mut touched = BTreeSet::new();
        for way in carried {
            let is_down = self.is_down(self.ways[usize::from(way)].hop);
            let way = &mut self.ways[usize::from(way)];
            if core::mem::replace(&mut way.is_down, is_down) != is_down {
                touched.extend(way.users.iter().copied());
            }
        }
        for &number in &touched {
            self.settle(NextHop(number));
        }
        touched.len()
    }

    /// Writes a number's buckets as its living members have them.
    fn settle(&mut self, next: NextHop) {
        let entry = &mut self.entries[usize::from(next.0)];
        let alive: Vec<bool> =
            entry.ways.iter().map(|way| !self.ways[usize::from(*way)].is_down).collect();
        buckets::lodge(&entry.weights, &entry.homes, &alive, &mut entry.lodged);
        let places = self.live.ranges[usize::from(next.0)].places();
        for (bucket, lodged) in self.live.buckets[places].iter_mut().zip(&entry.lodged) {
            *bucket = lodged.map_or(0, |member| entry.ways[member]);
        }
        self.live.version += 1;
    }
}

/// Members in their order, each once.
fn normal(members: &[Member]) -> Result<Vec<Member>, NextHopFault> {
    if members.iter().any(|member| member.weight == 0) {
        return Err(NextHopFault::Weight);
    }
    let mut content = members.to_vec();
    content.sort_unstable();
    content.dedup_by(|later, kept| {
        let is_same = later.hop == kept.hop;
        if is_same {
            kept.weight = kept.weight.saturating_add(later.weight);
        }
        is_same
    });
    // A number with a single way needs no shares.
    if let [only] = &mut content[..] {
        only.weight = 1;
    }
    if content.is_empty() || content.len() > MEMBERS_LIMIT {
        return Err(NextHopFault::Members);
    }
    Ok(content)
}
