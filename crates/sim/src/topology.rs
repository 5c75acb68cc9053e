//! Groups of hosts, routers and wires, and the way from any host to any other.
//!
//! A path is found between *groups*: breadth first over the declared links, the first declared of
//! the shortest, each pair of groups once. Hosts do not forward, so that a group of many stands only
//! at a path's two ends; which of a wire's many instances a path takes is therefore the number of
//! the host at that end. A hundred thousand flows cost one search and a copy each.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::refusal::Refusal;
use crate::scenario::{LinkSpec, Scenario};

/// Most hosts and routers.
pub const PLACES_MAX: u64 = 2_000_000;

/// A group of hosts, or one router.
#[derive(Clone, Debug)]
struct Place {
    name: String,
    count: u32,
    forwards: bool,
}

/// A declared link: `count` instances of it, each with two directions.
#[derive(Clone, Copy, Debug)]
struct Wire {
    from: usize,
    to: usize,
    count: u32,
    first: u32,
}

/// A link to take: of a declared link, one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The declared link.
    pub wire: usize,
    /// Against its declared direction.
    pub is_back: bool,
}

/// The way between two groups.
#[derive(Clone, Debug)]
pub struct GroupPath {
    from: usize,
    to: usize,
    steps: Vec<Step>,
}

impl GroupPath {
    /// The numbers of the groups at its ends.
    pub fn ends(&self) -> [usize; 2] {
        [self.from, self.to]
    }
}

/// One link that a packet passes, and the declared link that it is an instance of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// Number of the link: the instances of the declared links in their order, of each first the
    /// direction declared, then the way back.
    pub link: u32,
    /// What it is an instance of.
    pub step: Step,
    /// Which instance.
    pub instance: u32,
}

/// What is connected with what.
#[derive(Clone, Debug)]
pub struct Topology {
    places: Vec<Place>,
    by_name: BTreeMap<String, usize>,
    wires: Vec<Wire>,
    wire_names: BTreeMap<String, usize>,
    /// Of each place, the wires at it, in the order of their declaration.
    at: Vec<Vec<Step>>,
    ways: BTreeMap<(usize, usize), GroupPath>,
}

impl Topology {
    /// Reads the hosts, routers and links of `scenario`.
    ///
    /// # Errors
    /// Names given twice or not at all, groups that cannot be joined, too many of anything.
    pub fn new(scenario: &Scenario) -> Result<Topology, Refusal> {
        let hosts = scenario.host.iter().map(|h| (&h.name, h.count, false));
        let routers = scenario.router.iter().map(|r| (&r.name, 1, true));
        let mut topology = Topology {
            places: Vec::new(),
            by_name: BTreeMap::new(),
            wires: Vec::new(),
            wire_names: BTreeMap::new(),
            at: Vec::new(),
            ways: BTreeMap::new(),
        };
        let mut total = 0;
        for (name, count, forwards) in hosts.chain(routers) {
            total += u64::from(count);
            if count == 0 || total > PLACES_MAX {
                let what = format!("count is between 1 and {PLACES_MAX} in all");
                return Err(Refusal::value(format!("host `{name}`"), what));
            }
            if topology.by_name.insert(name.clone(), topology.places.len()).is_some() {
                return Err(Refusal::Twice(name.clone()));
            }
            topology.places.push(Place { name: name.clone(), count, forwards });
        }
        topology.at = vec![Vec::new(); topology.places.len()];
        for link in &scenario.link {
            topology.join(link)?;
        }
        Ok(topology)
    }

    fn join(&mut self, link: &LinkSpec) -> Result<(), Refusal> {
        let place = format!("link `{}`", link.name);
        let from = self.place(&place, &link.from)?;
        let to = self.place(&place, &link.to)?;
        let counts = [self.places[from].count, self.places[to].count];
        let count = counts[0].max(counts[1]);
        if from == to {
            return Err(Refusal::value(place, "it joins a place with itself"));
        }
        if counts[0] != counts[1] && counts[0].min(counts[1]) != 1 {
            let what = format!("it joins {} hosts with {}", counts[0], counts[1]);
            return Err(Refusal::value(place, what + "; one of them is 1, or both are the same"));
        }
        let wire = self.wires.len();
        if self.wire_names.insert(link.name.clone(), wire).is_some() {
            return Err(Refusal::Twice(link.name.clone()));
        }
        let first = self.wires.last().map_or(0, |last| last.first + 2 * last.count);
        self.wires.push(Wire { from, to, count, first });
        self.at[from].push(Step { wire, is_back: false });
        self.at[to].push(Step { wire, is_back: true });
        Ok(())
    }

    fn place(&self, at: &str, name: &str) -> Result<usize, Refusal> {
        let known = || self.by_name.keys().map(String::as_str);
        self.by_name.get(name).copied().ok_or_else(|| Refusal::unknown(at, name, known()))
    }

    /// The declared link of this name, mentioned at `at`.
    ///
    /// # Errors
    /// If there is none.
    pub fn wire(&self, at: &str, name: &str) -> Result<usize, Refusal> {
        let known = || self.wire_names.keys().map(String::as_str);
        self.wire_names.get(name).copied().ok_or_else(|| Refusal::unknown(at, name, known()))
    }

    /// How many instances a declared link has.
    pub fn instances(&self, wire: usize) -> u32 {
        self.wires[wire].count
    }

    /// The number of a link.
    pub fn link(&self, step: Step, instance: u32) -> u32 {
        self.wires[step.wire].first + 2 * instance + u32::from(step.is_back)
    }

    /// Whether what leaves over the declared direction of `wire` comes from a router.
    pub fn leaves_router(&self, wire: usize) -> bool {
        self.places[self.wires[wire].from].forwards
    }

    /// The links at the place of this name, each away from it, in the order of their declaration.
    pub fn links_at(&self, name: &str) -> &[Step] {
        self.by_name.get(name).map_or(&[], |&place| &self.at[place])
    }

    /// The number of the place at the far end of a link.
    pub fn far_end(&self, step: Step) -> usize {
        self.far(step)
    }

    /// The number of the place of this name.
    pub fn place_named(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The groups of hosts to which the way from a place begins with each of its links, in the order of its links.
    pub fn groups_by_link(&self, name: &str) -> Vec<Vec<u32>> {
        let steps = self.links_at(name);
        let mut groups = vec![Vec::new(); steps.len()];
        let Some(from) = self.place_named(name) else { return groups };
        let hosts = self.places.iter().enumerate().filter(|(_, place)| !place.forwards);
        for (host, _) in hosts {
            let first = self.search(from, host).and_then(|steps| steps.first().copied());
            let link = first.and_then(|first| steps.iter().position(|&step| step == first));
            if let Some(link) = link {
                groups[link].push(host as u32);
            }
        }
        groups
    }

    /// The sizes of two groups, mentioned at `at`.
    ///
    /// # Errors
    /// One is not there, is a router, or they are the same.
    pub fn ends(&self, at: &str, from: &str, to: &str) -> Result<[u32; 2], Refusal> {
        let ends = [self.place(at, from)?, self.place(at, to)?];
        if let Some(&router) = ends.iter().find(|&&end| self.places[end].forwards) {
            let what =
                format!("`{}` is a router; flows go from host to host", self.places[router].name);
            return Err(Refusal::value(at, what));
        }
        if ends[0] == ends[1] {
            return Err(Refusal::value(at, "it goes from a group to itself; use two groups"));
        }
        Ok(ends.map(|end| self.places[end].count))
    }

    /// The way from one group to another, the fewest links, the first declared of those.
    ///
    /// # Errors
    /// There is no way.
    pub fn way(&mut self, from: &str, to: &str) -> Result<GroupPath, Refusal> {
        let none = || Refusal::NoPath { from: from.into(), to: to.into() };
        let ends = (self.place("flow", from)?, self.place("flow", to)?);
        if let Some(way) = self.ways.get(&ends) {
            return Ok(way.clone());
        }
        let steps = self.search(ends.0, ends.1).ok_or_else(none)?;
        let way = GroupPath { from: ends.0, to: ends.1, steps };
        self.ways.insert(ends, way.clone());
        Ok(way)
    }

    /// Breadth first: only routers forward.
    fn search(&self, from: usize, to: usize) -> Option<Vec<Step>> {
        let mut came: Vec<Option<Step>> = vec![None; self.places.len()];
        let mut next = VecDeque::from([from]);
        while let Some(place) = next.pop_front() {
            if place == to {
                break;
            }
            if place != from && !self.places[place].forwards {
                continue;
            }
            for &step in &self.at[place] {
                let there = self.far(step);
                if there != from && came[there].is_none() {
                    came[there] = Some(step);
                    next.push_back(there);
                }
            }
        }
        let mut steps = Vec::new();
        let mut place = to;
        while place != from {
            let step = came[place]?;
            steps.push(step);
            place = self.near(step);
        }
        steps.reverse();
        Some(steps)
    }

    fn near(&self, step: Step) -> usize {
        let wire = &self.wires[step.wire];
        if step.is_back { wire.to } else { wire.from }
    }

    fn far(&self, step: Step) -> usize {
        let wire = &self.wires[step.wire];
        if step.is_back { wire.from } else { wire.to }
    }

    /// The links from host `sender` of the way's first group to host `receiver` of its last.
    ///
    /// # Errors
    /// The two are joined pairwise and are no pair.
    pub fn passages(
        &self,
        way: &GroupPath,
        sender: u32,
        receiver: u32,
    ) -> Result<Vec<Passage>, Refusal> {
        let mut passages = Vec::with_capacity(way.steps.len());
        for &step in &way.steps {
            let wire = &self.wires[step.wire];
            let starts = self.near(step) == way.from && self.places[way.from].count > 1;
            let pairs = self.places[wire.from].count > 1 && self.places[wire.to].count > 1;
            if pairs && sender != receiver {
                let name = |place: usize| self.places[place].name.clone();
                return Err(Refusal::NoPath { from: name(wire.from), to: name(wire.to) });
            }
            let instance = match wire.count {
                1 => 0,
                _ if starts => sender,
                _ => receiver,
            };
            passages.push(Passage { link: self.link(step, instance), step, instance });
        }
        Ok(passages)
    }
}

#[cfg(test)]
pub(crate) mod tests;
