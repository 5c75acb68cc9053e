//! From sources' updates to forwarding: routes of both families and their next hops, together.
//!
//! Sources speak of links and of numbered next-hop objects; forwarding knows ports and [`NextHop`]
//! numbers. Each object has a number of its own, so that a source which redefines one moves all of its
//! routes at once. A link that is no port of ours leads to [`Hop::KernelLink`]: the kernel beneath has
//! that interface, and gets the packet.
//!
//! A source that was restarted may give an object's old number to another. So a replay begins with no
//! objects; earlier ones live on, unnamed, as long as routes lead there. An object that is repeated
//! unchanged keeps its number, and its routes are not touched. Only a route that comes before its own
//! object uses the earlier object, because that is better than none.
//!
//! Forwarding sees a route and what its number stands for in two places, so the order matters. A
//! caller that forwards meanwhile works in two steps: [`RouteTable::prepare`] gives the next hops
//! their numbers, a snapshot is then handed to readers, and [`RouteTable::commit`] points routes to
//! them and releases numbers that no route uses any more. A reader with the latest snapshot then never
//! finds a route whose number it does not know. [`RouteTable::apply`] does both for callers without
//! readers.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::mem;

use crate::fib::NextHop;
use crate::next_hop::{Hop, MEMBERS_LIMIT, Member, NextHopFault, NextHops};
use crate::rib::{FibSink, Rib, RibFault, Route, Source};
use crate::route_update::{AnyPrefix, Path, RouteTarget, RouteUpdate};

/// What a [`RouteTable`] may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteLimits {
    /// Routes of IPv4, of all sources together.
    pub routes_v4: usize,
    /// Routes of IPv6, of all sources together.
    pub routes_v6: usize,
    /// Next-hop numbers, at most 65,536.
    pub next_hops: usize,
    /// Buckets of groups: 16 to 32 for each member of each.
    pub buckets: usize,
    /// Decides where prefixes stand in memory, and nothing else.
    pub seed: u64,
}

impl Default for RouteLimits {
    /// Twice the Internet's table of 2024, and all the next hops that there are numbers for.
    fn default() -> RouteLimits {
        let (next_hops, buckets) = (1 << 16, 1 << 20);
        RouteLimits { routes_v4: 2_000_000, routes_v6: 500_000, next_hops, buckets, seed: 1 }
    }
}

/// Updates that could not be applied as they were given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteTableCounters {
    /// Routes that came before their next-hop object; they fail until it comes.
    pub early: u64,
    /// Next-hop objects that were withdrawn without having been announced.
    pub unknown_objects: u64,
    /// Ways by links that are not ports; they are left to the kernel.
    pub not_a_port: u64,
    /// Updates that were refused: no room among next hops, or groups of too many members.
    pub next_hops_refused: u64,
    /// Updates that were refused: no room for the route.
    pub routes_refused: u64,
}

/// What is to be done to the routes, now that their next hops have numbers.
#[derive(Debug)]
enum Step {
    Announce4(Route<u32>),
    Announce6(Route<u128>),
    Withdraw(AnyPrefix, u32),
    ReplayBegins,
    /// With the numbers of objects that were not repeated.
    ReplayEnds(Vec<NextHop>),
}

/// Updates of one source that forwarding does not know yet. If they are not committed, their next hops
/// stay in use for ever.
#[must_use = "the routes are to be committed"]
#[derive(Debug)]
pub struct Prepared {
    source: Source,
    steps: Vec<Step>,
}

/// A next-hop object of a source.
#[derive(Debug)]
struct Object {
    next: NextHop,
    way: RouteTarget,
}

/// The objects of one source, by the source's numbers.
#[derive(Debug, Default)]
struct Objects {
    now: BTreeMap<u32, Object>,
    /// Announced before the replay that is under way, and not yet repeated.
    before: BTreeMap<u32, Object>,
}

/// Both families' routes, their next hops, and the forwarding tables that follow them.
#[derive(Debug)]
pub struct RouteTable<F4, F6> {
    rib_v4: Rib<u32>,
    rib_v6: Rib<u128>,
    fib_v4: F4,
    fib_v6: F6,
    hops: NextHops,
    ports: BTreeMap<u32, u16>,
    objects: [Objects; Source::ALL.len()],
    counters: RouteTableCounters,
}

impl<F4: FibSink<u32>, F6: FibSink<u128>> RouteTable<F4, F6> {
    /// No routes; the forwarding tables are to be empty.
    pub fn new(limits: RouteLimits, fib_v4: F4, fib_v6: F6) -> RouteTable<F4, F6> {
        RouteTable {
            rib_v4: Rib::new(limits.routes_v4, limits.seed),
            rib_v6: Rib::new(limits.routes_v6, limits.seed),
            fib_v4,
            fib_v6,
            hops: NextHops::new(limits.next_hops, limits.buckets),
            ports: BTreeMap::new(),
            objects: Default::default(),
            counters: RouteTableCounters::default(),
        }
    }

    /// A link of the kernel (`ifindex`) is one of our ports. Objects that lead there follow at once;
    /// routes that name the link themselves follow when they are next announced, so ports are best set
    /// first.
    pub fn set_port(&mut self, link: u32, port: u16) {
        self.ports.insert(link, port);
        for source in Source::ALL {
            let ids: Vec<u32> = self.objects[source as usize].now.keys().copied().collect();
            for id in ids {
                self.rebuild(source, id);
            }
        }
    }

    /// Applies all updates of a source, in order. Those that cannot be applied are counted, and the
    /// rest is applied.
    pub fn apply(&mut self, source: Source, updates: &[RouteUpdate]) {
        let prepared = self.prepare(source, updates);
        self.commit(prepared);
    }

    /// Numbers the next hops of all updates of a source. Routes of a redefined object follow at once;
    /// all else waits for [`RouteTable::commit`]. Each source's updates are to be committed in the
    /// order in which they were prepared.
    pub fn prepare(&mut self, source: Source, updates: &[RouteUpdate]) -> Prepared {
        let mut steps = Vec::with_capacity(updates.len());
        for update in updates {
            match update {
                RouteUpdate::Announce { prefix, protocol, metric, way } => {
                    steps.extend(self.number(source, *prefix, (*protocol, *metric), way));
                }
                RouteUpdate::Withdraw { prefix, metric } => {
                    steps.push(Step::Withdraw(*prefix, *metric));
                }
                RouteUpdate::Define { id, way } => self.define(source, *id, way),
                RouteUpdate::Forget { id } => self.forget(source, *id),
                RouteUpdate::ReplayBegins => {
                    self.earlier_objects(source);
                    steps.push(Step::ReplayBegins);
                }
                RouteUpdate::ReplayEnds => {
                    let left = mem::take(&mut self.objects[source as usize].before);
                    let left = left.into_values().map(|object| object.next).collect();
                    steps.push(Step::ReplayEnds(left));
                }
            }
        }
        Prepared { source, steps }
    }

    /// Applies the routes to the forwarding tables.
    pub fn commit(&mut self, prepared: Prepared) {
        let source = prepared.source;
        for step in prepared.steps {
            match step {
                Step::Announce4(route) => {
                    let done = self.rib_v4.announce(route, &mut self.hops, &mut self.fib_v4);
                    self.announced(route.next, done);
                }
                Step::Announce6(route) => {
                    let done = self.rib_v6.announce(route, &mut self.hops, &mut self.fib_v6);
                    self.announced(route.next, done);
                }
                Step::Withdraw(prefix, metric) => self.withdraw(source, prefix, metric),
                Step::ReplayBegins => {
                    self.rib_v4.start_resync(source);
                    self.rib_v6.start_resync(source);
                }
                Step::ReplayEnds(left) => {
                    self.rib_v4.finish_resync(source, &mut self.hops, &mut self.fib_v4);
                    self.rib_v6.finish_resync(source, &mut self.hops, &mut self.fib_v6);
                    for next in left {
                        self.hops.release(next);
                    }
                }
            }
        }
    }

    /// The next hops: to take a snapshot of, or to fail and restore.
    pub fn hops_mut(&mut self) -> &mut NextHops {
        &mut self.hops
    }

    /// The next hops.
    pub fn hops(&self) -> &NextHops {
        &self.hops
    }

    /// Routes of IPv4.
    pub fn rib_v4(&self) -> &Rib<u32> {
        &self.rib_v4
    }

    /// Routes of IPv6.
    pub fn rib_v6(&self) -> &Rib<u128> {
        &self.rib_v6
    }

    /// What IPv4 packets are forwarded by.
    pub fn fib_v4(&self) -> &F4 {
        &self.fib_v4
    }

    /// What IPv6 packets are forwarded by.
    pub fn fib_v6(&self) -> &F6 {
        &self.fib_v6
    }

    /// Both forwarding tables; changes made here are unknown to the routes.
    pub fn fibs_mut(&mut self) -> (&mut F4, &mut F6) {
        (&mut self.fib_v4, &mut self.fib_v6)
    }

    /// Updates that could not be applied as they were given.
    pub fn counters(&self) -> RouteTableCounters {
        self.counters
    }

    /// The route with a number that it refers to, unless the next hop is refused.
    fn number(
        &mut self,
        source: Source,
        prefix: AnyPrefix,
        announcement: (u8, u32),
        way: &RouteTarget,
    ) -> Option<Step> {
        let next = match way {
            RouteTarget::Object(id) => {
                self.object(source, *id).inspect(|next| self.hops.retain(*next))
            }
            way => {
                let members = self.members(source, way);
                members.and_then(|members| self.hops.intern(&members))
            }
        };
        let Ok(next) = next else {
            self.counters.next_hops_refused += 1;
            return None;
        };
        let (protocol, metric) = announcement;
        Some(match prefix {
            AnyPrefix::V4(prefix) => {
                Step::Announce4(Route { prefix, source, protocol, metric, next })
            }
            AnyPrefix::V6(prefix) => {
                Step::Announce6(Route { prefix, source, protocol, metric, next })
            }
        })
    }

    fn announced(&mut self, next: NextHop, done: Result<(), RibFault>) {
        self.counters.routes_refused += u64::from(done.is_err());
        // The route has a reference of its own.
        self.hops.release(next);
    }

    fn withdraw(&mut self, source: Source, prefix: AnyPrefix, metric: u32) {
        let hops = &mut self.hops;
        let done = match prefix {
            AnyPrefix::V4(prefix) => {
                self.rib_v4.withdraw(prefix, source, metric, hops, &mut self.fib_v4)
            }
            AnyPrefix::V6(prefix) => {
                self.rib_v6.withdraw(prefix, source, metric, hops, &mut self.fib_v6)
            }
        };
        self.counters.routes_refused += u64::from(done.is_err());
    }

    /// The number of an object; a route to one that was not announced yet fails.
    fn object(&mut self, source: Source, id: u32) -> Result<NextHop, NextHopFault> {
        let objects = &mut self.objects[source as usize];
        if let Some(object) = objects.now.get(&id) {
            return Ok(object.next);
        }
        if let Some(object) = objects.before.remove(&id) {
            let next = object.next;
            objects.now.insert(id, object);
            return Ok(next);
        }
        let way = RouteTarget::Fate(Hop::Failed);
        let next = self.hops.define(&[Member { hop: Hop::Failed, weight: 1 }])?;
        objects.now.insert(id, Object { next, way });
        self.counters.early += 1;
        Ok(next)
    }

    /// What a way comes to, in ports.
    fn members(&mut self, source: Source, way: &RouteTarget) -> Result<Vec<Member>, NextHopFault> {
        Ok(match way {
            RouteTarget::Paths(paths) if paths.len() > MEMBERS_LIMIT => {
                return Err(NextHopFault::Members);
            }
            RouteTarget::Objects(group) if group.len() > MEMBERS_LIMIT => {
                return Err(NextHopFault::Members);
            }
            RouteTarget::Fate(hop) => vec![Member { hop: *hop, weight: 1 }],
            RouteTarget::Members(members) => members.clone(),
            RouteTarget::Path(path) => vec![self.member(path)],
            RouteTarget::Paths(paths) => paths.iter().map(|path| self.member(path)).collect(),
            RouteTarget::Object(id) => self.members_of(source, *id)?,
            RouteTarget::Objects(group) => {
                let mut members = Vec::new();
                for &(id, weight) in group {
                    let within = self.members_of(source, id)?.into_iter();
                    members.extend(within.map(|member| Member {
                        weight: member.weight.saturating_mul(weight),
                        ..member
                    }));
                }
                members
            }
        })
    }

    fn members_of(&mut self, source: Source, id: u32) -> Result<Vec<Member>, NextHopFault> {
        let next = self.object(source, id)?;
        Ok(self.hops.members(next))
    }

    fn member(&mut self, path: &Path) -> Member {
        let hop = match self.ports.get(&path.link) {
            Some(&port) => Hop::Via { port, gateway: path.gateway },
            None => {
                self.counters.not_a_port += 1;
                Hop::KernelLink
            }
        };
        Member { hop, weight: path.weight }
    }

    fn define(&mut self, source: Source, id: u32, way: &RouteTarget) {
        let members = self.members(source, way);
        let done = members.and_then(|members| self.place(source, id, way, &members));
        self.counters.next_hops_refused += u64::from(done.is_err());
        self.rebuild_groups(source, id);
    }

    /// Makes an object stand for `members`, under its existing number if it has one.
    fn place(
        &mut self,
        source: Source,
        id: u32,
        way: &RouteTarget,
        members: &[Member],
    ) -> Result<(), NextHopFault> {
        let objects = &mut self.objects[source as usize];
        if let Some(object) = objects.now.get_mut(&id) {
            self.hops.redefine(object.next, members)?;
            object.way.clone_from(way);
            return Ok(());
        }
        let next = self.hops.define(members)?;
        let before = objects.before.get(&id).map(|object| object.next);
        if before.is_some_and(|before| self.hops.members(before) == self.hops.members(next)) {
            let object = objects.before.remove(&id).expect("it has been looked at");
            self.hops.release(next);
            objects.now.insert(id, Object { way: way.clone(), ..object });
        } else {
            objects.now.insert(id, Object { next, way: way.clone() });
        }
        Ok(())
    }

    /// Recomputes the members of an object.
    fn rebuild(&mut self, source: Source, id: u32) {
        let object = self.objects[source as usize].now.get(&id);
        let Some((next, way)) = object.map(|object| (object.next, object.way.clone())) else {
            return;
        };
        let members = self.members(source, &way);
        let done = members.and_then(|members| self.hops.redefine(next, &members));
        self.counters.next_hops_refused += u64::from(done.is_err());
    }

    /// Recomputes the groups that have `id` as a member.
    fn rebuild_groups(&mut self, source: Source, id: u32) {
        let has_it = |object: &Object| match &object.way {
            RouteTarget::Objects(group) => group.iter().any(|(member, _)| *member == id),
            _ => false,
        };
        let now = self.objects[source as usize].now.iter();
        let groups = now.filter(|(group, object)| **group != id && has_it(object));
        let groups: Vec<u32> = groups.map(|(group, _)| *group).collect();
        for group in groups {
            self.rebuild(source, group);
        }
    }

    /// An object is gone; routes that still lead there stay until they are withdrawn, groups lose it.
    fn forget(&mut self, source: Source, id: u32) {
        let objects = &mut self.objects[source as usize];
        let Some(object) = objects.now.remove(&id).or_else(|| objects.before.remove(&id)) else {
            self.counters.unknown_objects += 1;
            return;
        };
        let mut smaller = Vec::new();
        for (group, object) in &mut objects.now {
            let RouteTarget::Objects(members) = &mut object.way else { continue };
            let before = members.len();
            members.retain(|(member, _)| *member != id);
            if members.is_empty() {
                object.way = RouteTarget::Fate(Hop::Failed);
                smaller.push(*group);
            } else if members.len() < before {
                smaller.push(*group);
            }
        }
        for group in smaller {
            self.rebuild(source, group);
        }
        self.hops.release(object.next);
    }

    /// The objects that are known now were announced before the replay.
    fn earlier_objects(&mut self, source: Source) {
        let objects = &mut self.objects[source as usize];
        for (id, object) in mem::take(&mut objects.now) {
            if let Some(older) = objects.before.insert(id, object) {
                self.hops.release(older.next);
            }
        }
    }
}
