//! Packets of filters whose action is *active*: to the plugins of their chain, and back into the batch.
//!
//! ```text
//!   classify ─┬─ not active ─────────────────────────────────────┬─► look up
//!             └─ active ─► chain ─┬─ dropped                      │
//!                   ▲             ├─ same key ────────────────────┤
//!                   │             └─ key changed ─► classify ─┬───┘
//!                   └──── a chain that it has not met ────────┘
//! ```
//!
//! The packets of a chain are handed over together and keep their order; so do all others. One whose key a
//! plugin has changed is classified again (DER, 4.2), and may so come to another chain, [`PASSES_MAX`] times
//! and never twice to the same. Where a batch has no such packet this costs one comparison.

use alloc::vec::Vec;
use core::mem;

use nilometer_wire::Time;

use super::Router;
use super::decide::Turn;
use super::lane::{Brief, Lane};
use super::slow::Why;
use super::version::Version;
use crate::classifier::{Action, RuleId};
use crate::discard::Discard;
use crate::header::Key;
use crate::memory::Memory;
use crate::plugin::PacketFacts;
use crate::plugin::control::{ChainId, Outcome};

/// Chains that a packet may meet, one after the other.
pub const PASSES_MAX: usize = 4;

/// A packet on its way through chains.
#[derive(Clone, Copy)]
struct Journey<A> {
    brief: Brief,
    key: Key<A>,
    /// The chain that it goes to next.
    chain: ChainId,
    /// Those before, from the first on.
    met: [Option<ChainId>; PASSES_MAX],
}

impl Router {
    /// Takes active packets out of a classified batch and brings those back that go on.
    #[inline]
    pub(super) fn divert<M: Memory>(&mut self, now: Time, input: usize, memory: &mut M) {
        if self.tables.filters4.has_active() {
            self.divert_lane::<u32, M>(now, input, memory);
        }
        if self.tables.filters6.has_active() {
            self.divert_lane::<u128, M>(now, input, memory);
        }
        self.send_emitted(now, memory);
    }

    fn divert_lane<A: Version, M: Memory>(&mut self, now: Time, input: usize, memory: &mut M) {
        let mut lane = mem::replace(A::lane(&mut self.lanes), Lane::empty());
        let mut journeys = Vec::new();
        let mut kept = 0;
        for at in 0..lane.packets {
            let (brief, key, rule) = (lane.briefs[at], lane.keys[at], lane.rules[at]);
            match self.active::<A>(rule) {
                None => {
                    lane.set(kept, brief, key, rule);
                    kept += 1;
                }
                Some(chain) => {
                    let filters = A::filters(&mut self.tables);
                    if filters.meet(rule, brief.ip_bytes).1 {
                        self.copy_to_management(input, brief.place, memory);
                    }
                    journeys.push(Journey { brief, key, chain, met: [None; PASSES_MAX] });
                }
            }
        }
        lane.packets = kept;
        self.travel(now, input, journeys, &mut lane, memory);
        *A::lane(&mut self.lanes) = lane;
    }

    /// The chain of a filter, if it is active.
    #[inline(always)]
    fn active<A: Version>(&mut self, rule: Option<RuleId>) -> Option<ChainId> {
        match A::filters(&mut self.tables).found(rule)?.action {
            Action::Active(chain) => Some(chain),
            Action::Deny | Action::Permit | Action::Reserved(_) => None,
        }
    }

    /// Takes packets from chain to chain until each has gone on into the lane or nowhere.
    fn travel<A: Version, M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        mut journeys: Vec<Journey<A>>,
        lane: &mut Lane<A>,
        memory: &mut M,
    ) {
        let (mut facts, mut outcomes): (Vec<PacketFacts>, Vec<Outcome>) = (Vec::new(), Vec::new());
        for pass in 0..PASSES_MAX {
            let mut again = Vec::new();
            while let Some(chain) = journeys.first().map(|first| first.chain) {
                let is_of_chain = |journey: &Journey<A>| journey.chain == chain;
                let some = match journeys.iter().all(is_of_chain) {
                    true => mem::take(&mut journeys),
                    false => {
                        let (some, others) = journeys.into_iter().partition(is_of_chain);
                        journeys = others;
                        some
                    }
                };
                facts.clear();
                facts.extend(some.iter().map(|journey| PacketFacts {
                    place: journey.brief.place,
                    ip_bytes: journey.brief.ip_bytes,
                    input: input as u16,
                    output: None,
                }));
                self.plugins.process(now, chain, (&facts, None), &mut outcomes, memory);
                for (mut journey, outcome) in some.into_iter().zip(&outcomes) {
                    journey.met[pass] = Some(chain);
                    match outcome {
                        Some(why) => self.discard(input, journey.brief.place, *why, memory),
                        None => again.extend(self.resume(input, journey, lane, memory)),
                    }
                }
            }
            journeys = again;
        }
        for journey in journeys {
            self.discard(input, journey.brief.place, Discard::PluginLoop, memory);
        }
    }

    /// A packet comes back from a chain: into the lane, or on its way to another chain.
    fn resume<A: Version, M: Memory>(
        &mut self,
        input: usize,
        mut journey: Journey<A>,
        lane: &mut Lane<A>,
        memory: &mut M,
    ) -> Option<Journey<A>> {
        let place = journey.brief.place;
        let (brief, key) = match A::read_again(self.plan.seed, place, memory.frame(place)) {
            Ok(read) => read,
            Err(why) => {
                self.discard(input, place, why, memory);
                return None;
            }
        };
        if key == journey.key {
            lane.push_ruled(brief, key, None);
            return None;
        }
        (journey.brief, journey.key) = (brief, key);
        let mut found = [None];
        A::filters(&mut self.tables).classify(input, &[key], &mut found);
        match self.active::<A>(found[0]).filter(|chain| !journey.met.contains(&Some(*chain))) {
            Some(chain) => {
                if A::filters(&mut self.tables).meet(found[0], brief.ip_bytes).1 {
                    self.copy_to_management(input, place, memory);
                }
                return Some(Journey { chain, ..journey });
            }
            None => lane.push_ruled(brief, key, found[0]),
        }
        None
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
            let way = next.map_or(Err(Turn::Slow(Why::NoRoute)), |next| self.way(next, 0));
            self.send_own(now, usize::from(port), &packet, way, memory);
        }
    }
}
