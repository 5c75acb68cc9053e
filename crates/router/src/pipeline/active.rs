//! Packets of filters whose action is *active*: to the plugins of their chain, and on.
//!
//! ```text
//!   classify ─┬─ not active ─────────────────────────────────────┬─► look up
//!             └─ active ─► chain ─┬─ dropped                      │
//!                   ▲             ├─ labelled, and sent ([`super::labelled`])
//!                   │             ├─ not changed, or the same key ┤
//!                   │             └─ key changed ─► classify ─┬───┘
//!                   └──── a chain that it has not met ────────┘
//! ```
//!
//! The packets of a chain are handed over together, and each stays in its place in the batch: so all keep their order.
//! One whose key a plugin has changed is classified again (DER, 4.2), and may so come to another chain, [`PASSES_MAX`]
//! times and never twice to the same.
//!
//! # What it costs
//!
//! Where a batch has no such packet, one comparison. Packets of one filter that follow each other are gathered as a
//! slice, with one look at the filter, and where a chain neither dropped nor changed any of them nothing is done to
//! them afterwards: what was read of their headers holds. Only those that a plugin had in its hands to change are read
//! again. What is needed for this is kept from batch to batch, so that nothing is allocated.

use alloc::vec;
use alloc::vec::Vec;
use core::mem;

use nilometer_wire::Time;

use super::decide::Turn;
use super::lane::{Brief, Lane};
use super::slow::SlowPathReason;
use super::version::Version;
use super::{BATCH, Router};
use crate::classifier::{Action, RuleId};
use crate::discard::Discard;
use crate::header::Key;
use crate::memory::{Memory, Place};
use crate::plugin::control::ChainId;
use crate::plugin::{Handed, PACKETS_MAX, PacketFacts, PacketSet, Passage};

/// Chains that a packet may meet, one after the other.
pub const PASSES_MAX: usize = 4;
/// Keys that are classified at once.
const KEYS_AT_ONCE: usize = 32;

// A packet's place in its lane is one in a set.
const _: () = assert!(BATCH <= PACKETS_MAX);

/// A packet that waits for a chain.
#[derive(Clone, Copy)]
struct Visit {
    /// Its place in the lane.
    at: u16,
    chain: ChainId,
}

/// Packets that come to a chain together, in arrays side by side.
struct Gathered {
    packets: usize,
    facts: Vec<PacketFacts>,
    /// Their places in the lane.
    places: Vec<u16>,
    ip_bytes: u64,
}

impl Gathered {
    fn handed(&self) -> Handed<'_> {
        let packets = &self.facts[..self.packets];
        Handed { packets, ip_bytes: self.ip_bytes, ..Handed::default() }
    }

    fn places(&self) -> &[u16] {
        &self.places[..self.packets]
    }

    fn clear(&mut self) {
        (self.packets, self.ip_bytes) = (0, 0);
    }

    fn push(&mut self, at: u16, brief: &Brief, input: u16) {
        self.facts[self.packets] = facts_of(brief, input);
        self.places[self.packets] = at;
        self.ip_bytes += u64::from(brief.ip_bytes);
        self.packets += 1;
    }

    /// Adds the packets of the lane from `at` on that have met `rule` one after the other, and takes the rule from them:
    /// they meet it no more. How many they are, and their bytes.
    #[inline(always)]
    fn add_run(
        &mut self,
        rule: RuleId,
        at: usize,
        (rules, briefs): (&mut [Option<RuleId>], &[Brief]),
        input: u16,
    ) -> (usize, u64) {
        let begin = self.packets;
        let room = self.facts[begin..].iter_mut().zip(&mut self.places[begin..]);
        let (mut packets, mut ip_bytes) = (0, 0);
        for ((met, brief), (facts, place)) in rules.iter_mut().zip(briefs).zip(room) {
            if *met != Some(rule) {
                break;
            }
            *met = None;
            *facts = facts_of(brief, input);
            *place = (at + packets) as u16;
            ip_bytes += u64::from(brief.ip_bytes);
            packets += 1;
        }
        self.packets += packets;
        self.ip_bytes += ip_bytes;
        (packets, ip_bytes)
    }
}

/// The active packets of a lane on their way through chains.
pub(super) struct Diversion {
    input: u16,
    /// The chain whose packets are gathered, and they.
    chain: Option<ChainId>,
    gathered: Gathered,
    /// Those for other chains, of this pass and of the next.
    waiting: Vec<Visit>,
    again: Vec<Visit>,
    /// Those whose key was changed.
    moved: Vec<u16>,
    /// The chains that they met before, from the first on; of others nothing.
    met: Vec<[Option<ChainId>; PASSES_MAX]>,
    /// Those that are not in the lane any more.
    gone: PacketSet,
}

impl Default for Diversion {
    fn default() -> Diversion {
        let facts = vec![PacketFacts::new(Place::default(), 0, (0, None)); BATCH];
        Diversion {
            input: 0,
            chain: None,
            gathered: Gathered { packets: 0, facts, places: vec![0; BATCH], ip_bytes: 0 },
            waiting: Vec::new(),
            again: Vec::new(),
            moved: Vec::new(),
            met: vec![[None; PASSES_MAX]; BATCH],
            gone: PacketSet::default(),
        }
    }
}

impl Diversion {
    /// What [`Gathered::add_run`] does, of packets for another chain than the one whose packets are gathered.
    fn keep_waiting(
        &mut self,
        (rule, chain): (RuleId, ChainId),
        at: usize,
        (rules, briefs): (&mut [Option<RuleId>], &[Brief]),
    ) -> (usize, u64) {
        let packets = rules.iter().take_while(|met| **met == Some(rule)).count();
        rules[..packets].fill(None);
        self.waiting.extend((at..at + packets).map(|at| Visit { at: at as u16, chain }));
        let ip_bytes = briefs[..packets].iter().map(|brief| u64::from(brief.ip_bytes)).sum();
        (packets, ip_bytes)
    }

    /// Those that wait for the chain of the first one are gathered.
    #[inline(always)]
    fn gather_next(&mut self, briefs: &[Brief]) {
        self.gathered.clear();
        self.chain = self.waiting.first().map(|first| first.chain);
        if self.chain.is_some() {
            self.gather_waiting(briefs);
        }
    }

    #[inline(never)]
    fn gather_waiting(&mut self, briefs: &[Brief]) {
        let Diversion { input, chain, gathered, waiting, .. } = self;
        waiting.retain(|visit| {
            let is_next = Some(visit.chain) == *chain;
            if is_next {
                gathered.push(visit.at, &briefs[usize::from(visit.at)], *input);
            }
            !is_next
        });
    }
}

#[inline(always)]
fn facts_of(brief: &Brief, input: u16) -> PacketFacts {
    PacketFacts::new(brief.place, brief.ip_bytes, (input, None))
}

impl Router {
    /// Takes active packets of a classified batch through their chains.
    #[inline]
    pub(super) fn divert<M: Memory>(&mut self, now: Time, input: usize, memory: &mut M) {
        if self.tables.filters4.has_active() {
            self.divert_lane::<u32, M>(now, input, memory);
        }
        if self.tables.filters6.has_active() {
            self.divert_lane::<u128, M>(now, input, memory);
        }
        if self.plugins.has_emitted() {
            self.send_emitted(now, memory);
        }
    }

    fn divert_lane<A: Version, M: Memory>(&mut self, now: Time, input: usize, memory: &mut M) {
        if A::lane(&mut self.lanes).packets == 0 {
            return;
        }
        let mut lane = A::lane(&mut self.lanes).take();
        let mut diversion = self.diversion.take().unwrap_or_default();
        diversion.input = input as u16;
        self.gather_active(input, &mut lane, &mut diversion, memory);
        for pass in 0..PASSES_MAX {
            while let Some(chain) = diversion.chain {
                let passage = self.plugins.process(now, chain, diversion.gathered.handed(), memory);
                if !passage.is_plain() {
                    let done = (pass, chain, &passage);
                    self.resume(now, done, &mut lane, &mut diversion, memory);
                }
                diversion.gather_next(&lane.briefs);
            }
            if diversion.again.is_empty() {
                break;
            }
            mem::swap(&mut diversion.waiting, &mut diversion.again);
            diversion.gather_next(&lane.briefs);
        }
        self.break_circles(&lane, &mut diversion, memory);
        if !diversion.gone.is_empty() {
            lane.drop_all(&mem::take(&mut diversion.gone));
        }
        self.diversion = Some(diversion);
        lane.put_back(A::lane(&mut self.lanes));
    }

    /// Finds the active packets of a lane: those of the first one's chain are gathered, the others wait.
    #[inline]
    fn gather_active<A: Version, M: Memory>(
        &mut self,
        input: usize,
        lane: &mut Lane<A>,
        diversion: &mut Diversion,
        memory: &mut M,
    ) {
        let mut at = 0;
        while at < lane.packets {
            let rest = &mut lane.rules[at..lane.packets];
            let first = rest[0];
            let Some((rule, (chain, is_copied))) = first.zip(self.active::<A>(first)) else {
                at += rest.iter().position(|other| *other != first).unwrap_or(rest.len());
                continue;
            };
            let (begin, briefs) = (at, &lane.briefs[at..]);
            let (packets, ip_bytes) = match *diversion.chain.get_or_insert(chain) == chain {
                true => diversion.gathered.add_run(rule, at, (rest, briefs), diversion.input),
                false => diversion.keep_waiting((rule, chain), at, (rest, briefs)),
            };
            at += packets;
            A::filters(&mut self.tables).credit(first, packets as u64, ip_bytes);
            if is_copied {
                for brief in &lane.briefs[begin..at] {
                    self.copy_to_management(input, brief.place, memory);
                }
            }
        }
    }

    /// The chain of a filter, if it is active, and whether it has packets copied.
    #[inline(always)]
    fn active<A: Version>(&mut self, rule: Option<RuleId>) -> Option<(ChainId, bool)> {
        let filter = A::filters(&mut self.tables).found(rule)?;
        match filter.action {
            Action::Active(chain) => Some((chain, filter.is_copied)),
            Action::Deny | Action::Permit | Action::Reserved(_) => None,
        }
    }

    /// The packets that were gathered come back from a chain that did something to some of them.
    #[inline(never)]
    fn resume<A: Version, M: Memory>(
        &mut self,
        now: Time,
        (pass, chain, passage): (usize, ChainId, &Passage),
        lane: &mut Lane<A>,
        diversion: &mut Diversion,
        memory: &mut M,
    ) {
        let input = usize::from(diversion.input);
        let mut verdicts = self.plugins.take_label_verdicts().into_iter().peekable();
        for number in passage.dropped.iter() {
            let at = usize::from(diversion.gathered.places[number]);
            if let Some((_, verdict)) = verdicts.next_if(|(there, _)| usize::from(*there) == number)
            {
                if self.label(now, input, (&*lane, at), &verdict, memory) {
                    diversion.gone.insert(at);
                }
                continue;
            }
            let is_cut_off = passage.cut_off.contains(number);
            let why = if is_cut_off { Discard::PluginFault } else { Discard::Plugin };
            self.discard(input, lane.briefs[at].place, why, memory);
            diversion.gone.insert(at);
        }
        for number in passage.changed.without(&passage.dropped).iter() {
            let at = usize::from(diversion.gathered.places[number]);
            let Brief { place, hash, notes, .. } = lane.briefs[at];
            let fields = match A::read_again(memory.frame(place)) {
                Ok(fields) => fields,
                Err(fault) => {
                    self.discard(input, place, fault.into(), memory);
                    diversion.gone.insert(at);
                    continue;
                }
            };
            if fields.key == lane.keys[at] && fields.notes == notes {
                lane.briefs[at] = Brief::of(place, hash, &fields);
                continue;
            }
            let hash = A::flow_hash(self.plan.seed, &fields.key, fields.notes);
            lane.briefs[at] = Brief::of(place, hash, &fields);
            if fields.key != lane.keys[at] {
                lane.set_key(at, fields.key);
                diversion.moved.push(at as u16);
            }
        }
        if !diversion.moved.is_empty() {
            self.classify_again((pass, chain), lane, diversion, memory);
        }
    }

    /// Packets whose key a chain has changed meet the filters of the new one.
    #[inline(never)]
    fn classify_again<A: Version, M: Memory>(
        &mut self,
        (pass, chain): (usize, ChainId),
        lane: &mut Lane<A>,
        diversion: &mut Diversion,
        memory: &mut M,
    ) {
        let input = usize::from(diversion.input);
        let Diversion { moved, met, again, .. } = diversion;
        for some in moved.chunks(KEYS_AT_ONCE) {
            let (mut keys, mut found) = ([Key::default(); KEYS_AT_ONCE], [None; KEYS_AT_ONCE]);
            let (keys, found) = (&mut keys[..some.len()], &mut found[..some.len()]);
            for (key, at) in keys.iter_mut().zip(some) {
                *key = lane.keys[usize::from(*at)];
            }
            A::filters(&mut self.tables).classify(input, keys, found);
            for (&at, &rule) in some.iter().zip(&*found) {
                let (place, met) = (usize::from(at), &mut met[usize::from(at)]);
                if pass == 0 {
                    *met = [None; PASSES_MAX];
                }
                met[pass] = Some(chain);
                match self.active::<A>(rule).filter(|(chain, _)| !met.contains(&Some(*chain))) {
                    Some((chain, is_copied)) => {
                        let brief = &lane.briefs[place];
                        A::filters(&mut self.tables).credit(rule, 1, brief.ip_bytes.into());
                        if is_copied {
                            self.copy_to_management(input, brief.place, memory);
                        }
                        again.push(Visit { at, chain });
                    }
                    None => lane.rules[place] = rule,
                }
            }
        }
        moved.clear();
    }

    /// What still waits for a chain after the last pass goes nowhere.
    fn break_circles<A: Version, M: Memory>(
        &mut self,
        lane: &Lane<A>,
        diversion: &mut Diversion,
        memory: &mut M,
    ) {
        while diversion.chain.is_some() {
            for at in diversion.gathered.places().iter().map(|at| usize::from(*at)) {
                let place = lane.briefs[at].place;
                self.discard(diversion.input.into(), place, Discard::PluginLoop, memory);
                diversion.gone.insert(at);
            }
            diversion.gather_next(&lane.briefs);
        }
    }

    /// Sends what plugins have emitted, as the router's own packets are sent.
    pub(super) fn send_emitted<M: Memory>(&mut self, now: Time, memory: &mut M) {
        if !self.plugins.has_emitted() {
            return;
        }
        for (port, packet) in self.plugins.take_emitted() {
            let next = match packet[0] >> 4 {
                4 => u32::route(self, u32::destination(&packet)),
                _ => u128::route(self, u128::destination(&packet)),
            };
            let way =
                next.map_or(Err(Turn::Slow(SlowPathReason::NoRoute)), |next| self.way(next, 0));
            self.send_own(now, usize::from(port), &packet, way, memory);
        }
    }
}
