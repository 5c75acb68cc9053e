//! Filters of what leaves by a port: denied, copied, or processed by plugins on the output side (DER, 4.1, Figure 6).
//!
//! The paper's output side is another processor behind the switch fabric. Here one thread has both sides, and a
//! packet meets the filters of its output as soon as that is known: rewritten for its link, and before it waits in a
//! virtual output queue, so that what is dropped takes no room there. All packets that the router sends by a port
//! meet them, its own among them. Packets that it is handed by a system beside it, and messages to neighbours, do
//! not. A router without such filters pays one comparison a batch.
//!
//! A packet whose destination a plugin changes here is looked up again, once, and meets no more filters.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;

use nilometer_wire::Time;

use super::Router;
use super::decide::Turn;
use super::engine::Filters;
use super::slow::SlowPathReason;
use super::version::Version;
use crate::classifier::{Action, Classified, ClassifierTuples, Inputs, Refused, Rule, RuleId};
use crate::discard::Discard;
use crate::header::{AnyKey, Header, Key, protocol};
use crate::memory::{Memory, Place, ReturnBuffers, Ticket};
use crate::plugin::control::ChainId;
use crate::plugin::{Handed, PacketFacts, PacketSet};

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
    /// Adds a filter of IPv4, of IPv6 or of both under one number, for packets that leave by `outputs`: both, or
    /// none.
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

/// A packet that leaves by a chain of its output.
#[derive(Clone, Copy)]
struct Leaving {
    /// Its place among the decided packets.
    at: u16,
    output: u16,
    chain: ChainId,
    ip_bytes: u16,
    /// Where it went to before plugins saw it.
    destination: u128,
}

/// Packets that leave by chains, as they are gathered; kept from batch to batch, so that nothing is allocated.
#[derive(Default)]
pub(super) struct Departures {
    waiting: Vec<Leaving>,
    /// Those of one chain and one output.
    gathered: Vec<Leaving>,
    facts: Vec<PacketFacts>,
}

impl Departures {
    /// Those that leave as the first one does are gathered; whether there is one.
    fn gather_next(&mut self, input: usize, decided: &[(u16, Ticket)]) -> Option<(ChainId, u16)> {
        let Departures { waiting, gathered, facts } = self;
        gathered.clear();
        facts.clear();
        let way = waiting.first().map(|first| (first.chain, first.output))?;
        waiting.retain(|leaving| {
            let is_next = (leaving.chain, leaving.output) == way;
            if is_next {
                let place = decided[usize::from(leaving.at)].1.place;
                let Leaving { ip_bytes, output, .. } = *leaving;
                let (input, output) = (input as u16, Some(output));
                facts.push(PacketFacts::new(place, ip_bytes, (input, output)));
                gathered.push(*leaving);
            }
            !is_next
        });
        Some(way)
    }
}

impl Router {
    /// Removes from the decided packets of one batch those that the filters of their outputs do not let leave.
    #[inline(never)]
    pub(super) fn filter_decided<M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        decided: &mut Vec<(u16, Ticket)>,
        memory: &mut M,
    ) {
        let mut stay = PacketSet::default();
        let mut departures = mem::take(&mut self.departures);
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
                    stay.insert(at);
                    self.discard(input, ticket.place, Discard::Denied, memory);
                }
                Action::Active(chain) => {
                    let (at, ip_bytes) = (at as u16, header.ip_bytes);
                    let destination = destination(&header);
                    departures.waiting.push(Leaving { at, output, chain, ip_bytes, destination });
                }
            }
        }
        while let Some(way) = departures.gather_next(input, decided) {
            let all = (way, &decided[..]);
            self.process_outputs(now, input, all, (&departures, &mut stay), memory);
        }
        self.departures = departures;
        if !stay.is_empty() {
            let mut at = 0..;
            decided.retain(|_| at.next().is_some_and(|at| !stay.contains(at)));
        }
    }

    /// Hands packets that leave by one output to a chain; those that do not leave then are put among the others that
    /// `stay`.
    fn process_outputs<M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        ((chain, output), decided): ((ChainId, u16), &[(u16, Ticket)]),
        (departures, stay): (&Departures, &mut PacketSet),
        memory: &mut M,
    ) {
        let Departures { gathered, facts, .. } = departures;
        let first = gathered.first().map(|first| &decided[usize::from(first.at)].1);
        let share_bps = first.and_then(|ticket| self.fabric.share_bps(usize::from(output), ticket));
        let handed = Handed { share_bps, ..Handed::new(facts) };
        let passage = self.plugins.process(now, chain, handed, memory);
        for number in passage.dropped.iter() {
            let is_cut_off = passage.cut_off.contains(number);
            let why = if is_cut_off { Discard::PluginFault } else { Discard::Plugin };
            stay.insert(gathered[number].at.into());
            self.discard(input, facts[number].place, why, memory);
        }
        for number in passage.changed.without(&passage.dropped).iter() {
            let (leaving, place) = (&gathered[number], facts[number].place);
            match Header::read(memory.frame(place)) {
                Ok(after) if destination(&after) == leaving.destination => {}
                Ok(after) => {
                    stay.insert(leaving.at.into());
                    self.look_up_again(now, input, place, &after, memory);
                }
                Err(_) => {
                    stay.insert(leaving.at.into());
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

    /// The output and the link-layer address for a destination, by the routes.
    pub(super) fn reach_again<A: Version>(&mut self, now: Time, to: A) -> super::onward::Reached {
        let next = A::route(self, to).ok_or(Turn::Slow(SlowPathReason::NoRoute))?;
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
        self.fabric.enqueue(now, ports, ticket, &mut ReturnBuffers(memory));
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
