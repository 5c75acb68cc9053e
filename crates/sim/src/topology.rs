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
pub struct Way {
    from: usize,
    steps: Vec<Step>,
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
    ways: BTreeMap<(usize, usize), Way>,
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

    /// The declared link of this name, said at `at`.
    ///
    /// # Errors
    /// There is none.
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

    /// The sizes of two groups, said at `at`.
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
    pub fn way(&mut self, from: &str, to: &str) -> Result<Way, Refusal> {
        let none = || Refusal::NoPath { from: from.into(), to: to.into() };
        let ends = (self.place("flow", from)?, self.place("flow", to)?);
        if let Some(way) = self.ways.get(&ends) {
            return Ok(way.clone());
        }
        let steps = self.search(ends.0, ends.1).ok_or_else(none)?;
        let way = Way { from: ends.0, steps };
        self.ways.insert(ends, way.clone());
        Ok(way)
    }

    /// Breadth first: nobody but routers passes anything on.
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
    pub fn passages(&self, way: &Way, sender: u32, receiver: u32) -> Result<Vec<Passage>, Refusal> {
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
pub(crate) mod tests {
    use super::*;
    use crate::scenario::{Host, Measure, Router};
    use alloc::string::ToString;
    use nilometer_stat::Rng;
    use nilometer_wire::{Rate, Span};

    pub(crate) fn link(name: &str, from: &str, to: &str) -> LinkSpec {
        LinkSpec {
            name: name.into(),
            from: from.into(),
            to: to.into(),
            rate: Rate::from_megabits(10),
            rate_back: None,
            delay: Span::ZERO,
            overhead: Span::ZERO,
            mtu: 1500,
            queue: None,
            queue_back: None,
            fifo_bytes: 1,
            loss: 0.0,
            loss_period: 0,
            corrupt: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_by: Span::ZERO,
            gilbert_elliott: None,
        }
    }

    fn scenario(hosts: &[(&str, u32)], routers: &[&str], links: Vec<LinkSpec>) -> Scenario {
        Scenario {
            version: 1,
            name: "test".into(),
            about: String::new(),
            kind: Default::default(),
            duration_s: 1.0,
            seed: 1,
            seeds: 1,
            host: hosts.iter().map(|&(name, count)| Host { name: name.into(), count }).collect(),
            router: routers.iter().map(|&name| Router { name: name.into() }).collect(),
            link: links,
            flow: Vec::new(),
            datagrams: Vec::new(),
            model: Vec::new(),
            measure: Measure { bottleneck: String::new(), delays_every: None },
        }
    }

    #[test]
    fn each_host_has_its_own_access_link() {
        let links = vec![link("in", "s", "r1"), link("middle", "r1", "r2"), link("out", "r2", "d")];
        let scenario = scenario(&[("s", 3), ("d", 3)], &["r1", "r2"], links);
        let mut topology = Topology::new(&scenario).expect("sound");
        let way = topology.way("s", "d").expect("a way");
        let numbers = |passages: Vec<Passage>| passages.iter().map(|p| p.link).collect::<Vec<_>>();
        assert_eq!(numbers(topology.passages(&way, 1, 2).expect("links")), [2, 6, 12]);
        let back = topology.way("d", "s").expect("a way");
        assert_eq!(numbers(topology.passages(&back, 2, 1).expect("links")), [13, 7, 3]);
    }

    #[test]
    fn what_cannot_be_joined_is_refused() {
        let refused = |hosts: &[(&str, u32)], links| {
            Topology::new(&scenario(hosts, &["r"], links)).expect_err("refused").to_string()
        };
        assert!(refused(&[("a", 2)], vec![link("x", "a", "q")]).contains("`q` is unknown"));
        assert!(refused(&[("a", 2), ("a", 1)], vec![]).contains("twice"));
        assert!(refused(&[("a", 0)], vec![]).contains("count"));
        assert!(refused(&[("a", 2), ("b", 3)], vec![link("x", "a", "b")]).contains("2 hosts"));
        assert!(refused(&[("a", 2)], vec![link("x", "a", "a")]).contains("itself"));
        let scenario = scenario(&[("a", 1), ("b", 1)], &["r"], vec![link("x", "a", "r")]);
        let mut topology = Topology::new(&scenario).expect("sound");
        assert!(topology.way("a", "b").expect_err("no way").to_string().contains("no links"));
        assert!(topology.ends("flow", "a", "r").is_err());
    }

    /// The naive twin: of all walks over routers, by ever longer ones, whether any gets there.
    fn fewest(joined: &[(usize, usize)], from: usize, to: usize, routers: usize) -> Option<usize> {
        let mut reached = vec![from];
        for links in 1..=joined.len() {
            let mut next = reached.clone();
            for &(a, b) in joined {
                for (near, far) in [(a, b), (b, a)] {
                    let passes = near == from || near < routers;
                    if passes && reached.contains(&near) && !next.contains(&far) {
                        next.push(far);
                    }
                }
            }
            if next.contains(&to) {
                return Some(links);
            }
            reached = next;
        }
        None
    }

    #[test]
    fn paths_are_shortest_in_random_networks() {
        const NAMES: [&str; 8] = ["r0", "r1", "r2", "r3", "r4", "h5", "h6", "h7"];
        for seed in 0..500 {
            let mut rng = Rng::new(seed, 2, 0);
            let mut joined = Vec::new();
            for _ in 0..rng.below(12) {
                let pair = (rng.below(8) as usize, rng.below(8) as usize);
                if pair.0 != pair.1 {
                    joined.push(pair);
                }
            }
            let named = joined.iter().enumerate();
            let links = named.map(|(i, &(a, b))| link(&i.to_string(), NAMES[a], NAMES[b]));
            let hosts = [("h5", 1), ("h6", 1), ("h7", 1)];
            let scenario = scenario(&hosts, &NAMES[..5], links.collect());
            let mut topology = Topology::new(&scenario).expect("sound");
            let way = topology.way("h5", "h7").ok();
            let steps = way.as_ref().map(|way| way.steps.len());
            assert_eq!(steps, fewest(&joined, 5, 7, 5), "seed {seed}");
            let mut place = 5;
            for step in way.iter().flat_map(|way| &way.steps) {
                let (a, b) = joined[step.wire];
                let (near, far) = if step.is_back { (b, a) } else { (a, b) };
                assert_eq!(near, place, "seed {seed}");
                place = far;
            }
            assert!(way.is_none() || place == 7, "seed {seed}");
        }
    }
}
