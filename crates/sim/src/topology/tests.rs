//! Networks whose paths are known, and random ones against a naive search.

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
        router: routers.iter().map(|&name| Router { name: name.into(), file: None }).collect(),
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
fn invalid_topologies_are_refused() {
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
