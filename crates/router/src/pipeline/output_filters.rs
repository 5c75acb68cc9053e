//! Filters of what leaves by a port: denied, copied, or processed by plugins on the output side (DER, 4.1, Figure 6).
//!
//! The paper's output side is another processor behind the switch fabric. Here one thread has both sides, and a
//! packet meets the filters of its output as soon as that is known: rewritten for its link, and before it waits in a
//! virtual output queue, so that what is dropped takes no room there. All packets that the router sends by a port meet
//! them, its own among them; what it is handed by who runs beside it and what it says to neighbours does not. A
//! router without such filters pays a comparison a batch.
//!
//! A packet whose destination a plugin changes here is looked up again, once, and meets no more filters.

use alloc::boxed::Box;
use alloc::vec::Vec;

use nilometer_wire::Time;

use super::Router;
use super::decide::Turn;
use super::engine::Filters;
use super::slow::Why;
use super::version::Version;
use crate::classifier::{Action, Classified, ClassifierTuples, Inputs, Refused, Rule, RuleId};
use crate::discard::Discard;
use crate::header::{AnyKey, Header, Key, protocol};
use crate::memory::{GiveBack, Memory, Place, Ticket};
use crate::plugin::PacketFacts;
use crate::plugin::control::{ChainId, Outcome};

/// Filters of outputs that there may be.
pub const OUTPUT_FILTERS_MAX: u32 = 1_024;

/// The filters of outputs, of both families.
pub struct OutputFilters {
    /// Of IPv4.
    pub filters4: Filters<u32>,
    /// Of IPv6.
    pub filters6: Filters<u128>,
}

impl Default for OutputFilters {
    fn default() -> OutputFilters {
        fn none<A: Classified + Send + 'static>() -> Filters<A> {
            Filters::new(Box::new(ClassifierTuples::<A>::new(OUTPUT_FILTERS_MAX)))
        }
        OutputFilters { filters4: none(), filters6: none() }
    }
}

impl OutputFilters {
    /// Adds a filter of IPv4, of IPv6 or of both under one number, for what leaves by `outputs`: both, or none.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn insert(
        &mut self,
        id: RuleId,
        outputs: Inputs,
        (four, six): (Option<Rule<u32>>, Option<Rule<u128>>),
    ) -> Result<(), Refused> {
        four.map_or(Ok(()), |rule| self.filters4.insert_at(id, outputs, rule))?;
        let six = six.map_or(Ok(()), |rule| self.filters6.insert_at(id, outputs, rule));
        six.inspect_err(|_| _ = self.filters4.remove(id))
    }

    /// Takes a filter out.
    pub fn remove(&mut self, id: RuleId) {
        self.filters4.remove(id);
        self.filters6.remove(id);
    }

    /// Whether there are none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.filters4.is_empty() && self.filters6.is_empty()
    }

    /// Action and copy for a packet that leaves by `output`.
    fn meet(&mut self, output: u16, header: &Header) -> (Action, bool) {
        match header.key {
            AnyKey::V4(key) => meet(&mut self.filters4, output, key, header.ip_bytes),
            AnyKey::V6(key) => meet(&mut self.filters6, output, key, header.ip_bytes),
        }
    }
}

fn meet<A: Version>(
    filters: &mut Filters<A>,
    output: u16,
    key: Key<A>,
    ip_bytes: u16,
) -> (Action, bool) {
    let mut found = [None];
    filters.classify(usize::from(output), &[key], &mut found);
    filters.meet(found[0], ip_bytes)
}

/// A packet that leaves: where, as what, and what its header said before plugins saw it.
type Leaving = (usize, u16, Ticket, Header);

impl Router {
    /// Takes out of what was decided for one batch all that the filters of its output do not let leave.
    #[inline(never)]
    pub(super) fn filter_decided<M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        decided: &mut Vec<(u16, Ticket)>,
        memory: &mut M,
    ) {
        let mut leaves = alloc::vec![true; decided.len()];
        let mut active: Vec<((ChainId, u16), Vec<Leaving>)> = Vec::new();
        for (at, &(output, ref ticket)) in decided.iter().enumerate() {
            let Ok(header) = Header::read(memory.frame(ticket.place)) else { continue };
            if ticket.bits & Ticket::FILTERED != 0 || is_of_neighbours(&header) {
                continue;
            }
            let (action, is_copied) = self.outputs.meet(output, &header);
            if is_copied {
                self.copy_to_management(input, ticket.place, memory);
            }
            match action {
                Action::Permit | Action::Reserved(_) => {}
                Action::Deny => {
                    leaves[at] = false;
                    self.discard(input, ticket.place, Discard::Denied, memory);
                }
                Action::Active(chain) => {
                    let leaving = (at, output, *ticket, header);
                    let group = (chain, output);
                    match active.iter_mut().find(|(it, _)| *it == group) {
                        Some((_, some)) => some.push(leaving),
                        None => active.push((group, alloc::vec![leaving])),
                    }
                }
            }
        }
        for ((chain, output), some) in active {
            self.process_outputs(now, input, (chain, output, &some), &mut leaves, memory);
        }
        let mut leaves = leaves.into_iter();
        decided.retain(|_| leaves.next().unwrap_or(true));
    }

    /// Hands packets that leave by one output to a chain.
    fn process_outputs<M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        (chain, output, some): (ChainId, u16, &[Leaving]),
        leaves: &mut [bool],
        memory: &mut M,
    ) {
        let facts = |&(_, _, ticket, ref header): &Leaving| PacketFacts {
            place: ticket.place,
            ip_bytes: header.ip_bytes,
            input: input as u16,
            output: Some(output),
        };
        let packets: Vec<PacketFacts> = some.iter().map(facts).collect();
        let mut outcomes: Vec<Outcome> = Vec::new();
        let first = some.first().map(|(_, _, ticket, _)| ticket);
        let share_bps = first.and_then(|ticket| self.fabric.share_bps(usize::from(output), ticket));
        self.plugins.process(now, chain, (&packets, share_bps), &mut outcomes, memory);
        for (&(at, _, ticket, ref before), outcome) in some.iter().zip(&outcomes) {
            let place = ticket.place;
            if let Some(why) = outcome {
                leaves[at] = false;
                self.discard(input, place, *why, memory);
                continue;
            }
            match Header::read(memory.frame(place)) {
                Ok(after) if destination(&after) == destination(before) => {}
                Ok(after) => {
                    leaves[at] = false;
                    self.look_up_again(now, input, place, &after, memory);
                }
                Err(_) => {
                    leaves[at] = false;
                    self.discard(input, place, Discard::PluginFault, memory);
                }
            }
        }
    }

    /// A packet that leaves has another destination: it goes there.
    fn look_up_again<M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        place: Place,
        header: &Header,
        memory: &mut M,
    ) {
        let sent = match header.key {
            AnyKey::V4(key) => self.reach_again(now, key.destination),
            AnyKey::V6(key) => self.reach_again(now, key.destination),
        };
        self.send_filtered(now, input, place, sent, memory);
    }

    fn reach_again<A: Version>(&mut self, now: Time, to: A) -> super::onward::Reached {
        let next = A::route(self, to).ok_or(Turn::Slow(Why::NoRoute))?;
        let way = self.way(next, 0)?;
        self.reach(now, way, to)
    }

    /// Queues one packet, if the filters of its output let it leave.
    pub(super) fn queue<M: Memory>(
        &mut self,
        now: Time,
        ports: (usize, usize),
        ticket: Ticket,
        memory: &mut M,
    ) {
        let (input, output) = ports;
        let mut one = Vec::new();
        if !self.outputs.is_empty() && ticket.bits & Ticket::FILTERED == 0 {
            one.push((output as u16, ticket));
            self.filter_decided(now, input, &mut one, memory);
            if one.is_empty() {
                return;
            }
        }
        self.fabric.enqueue(now, ports, ticket, &mut GiveBack(memory));
    }
}

fn destination(header: &Header) -> u128 {
    match header.key {
        AnyKey::V4(key) => key.destination.into(),
        AnyKey::V6(key) => key.destination,
    }
}

/// Whether a packet is of neighbour discovery, without which nothing leaves for long.
fn is_of_neighbours(header: &Header) -> bool {
    let AnyKey::V6(key) = header.key else { return false };
    key.protocol == protocol::ICMPV6 && header.hop_limit == 255
}
