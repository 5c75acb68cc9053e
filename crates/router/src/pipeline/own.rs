//! What is for the router itself: questions of its neighbours, and packets to its addresses.

use nilometer_wire::Time;

use super::Router;
use super::slow::stamp;
use crate::discard::Discard;
use crate::forward::options::Visit;
use crate::forward::report::Cause;
use crate::forward::silence::Arrival;
use crate::header::{AnyKey, ETHERNET_BYTES, Header, protocol};
use crate::memory::{Memory, Place};
use crate::neighbour::{ArpOperation, ArpPacket, Message};

/// ICMPv6 types of neighbour discovery (RFC 4861, 4).
const DISCOVERY: core::ops::RangeInclusive<u8> = 133..=137;

impl Router {
    /// An ARP frame: for the neighbour table, and an answer for who runs beside as well.
    pub(super) fn take_arp<M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        place: Place,
        memory: &mut M,
    ) {
        let frame = memory.frame(place);
        let is_reply =
            ArpPacket::read(frame).is_some_and(|arp| arp.operation == ArpOperation::Reply);
        self.ports[input].arp.receive(now, frame);
        if is_reply {
            return self.punt_or_absorb(input, place, memory);
        }
        self.absorb(place, memory);
    }

    /// A message of neighbour discovery: for the neighbour table, and for who runs beside as well
    /// unless it asks for an address that the router answers for.
    pub(super) fn take_discovery<M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        place: Place,
        memory: &mut M,
    ) {
        let (frame, discovery) = (memory.frame(place), &mut self.ports[input].discovery);
        let is_answered = match Message::read(frame) {
            Ok((_, Message::Solicitation { target, .. })) => discovery.claims(target),
            _ => false,
        };
        discovery.receive(now, frame);
        if is_answered {
            return self.absorb(place, memory);
        }
        self.punt_or_absorb(input, place, memory);
    }

    /// An IP packet in a frame for many: a question of neighbour discovery, or for who runs beside.
    pub(super) fn take_for_many<M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        place: Place,
        memory: &mut M,
    ) {
        let frame = memory.frame(place);
        let is_discovery = Header::read(frame).is_ok_and(|header| {
            let kind = frame.get(ETHERNET_BYTES + usize::from(header.transport_at));
            matches!(header.key, AnyKey::V6(key) if key.protocol == protocol::ICMPV6)
                && kind.is_some_and(|kind| DISCOVERY.contains(kind))
        });
        if is_discovery {
            return self.take_discovery(now, input, place, memory);
        }
        self.punt(input, place, Discard::NoGroup, memory);
    }

    /// A packet for the router: for who runs beside, or an echo request.
    pub(super) fn take_own<M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        place: Place,
        memory: &mut M,
    ) {
        if self.ports[input].plan.is_punting {
            return self.punt(input, place, Discard::NoUse, memory);
        }
        let packet = &memory.frame(place)[ETHERNET_BYTES..];
        let cause = Cause { now, arrival: Arrival::default(), packet };
        let header = Header::read(memory.frame(place));
        let reply = match header.map(|header| header.key) {
            Ok(AnyKey::V4(key)) if key.protocol == protocol::ICMP => {
                let is_own =
                    |address| self.ports.iter().any(|port| port.arp.table.own().has(address));
                let visit = Visit { outgoing: key.destination, stamp: stamp(now), is_own: &is_own };
                self.slow.reporter.echo_ipv4(cause, visit).ok()
            }
            Ok(AnyKey::V6(key))
                if self.ports.iter().any(|port| port.withholds(key.destination)) =>
            {
                None
            }
            Ok(AnyKey::V6(key)) if key.protocol == protocol::ICMPV6 => {
                self.slow.reporter.echo_ipv6(cause, key.destination).ok()
            }
            _ => None,
        };
        match reply {
            Some(reply) => {
                self.absorb(place, memory);
                self.send_own(now, input, &reply, memory);
            }
            None => self.discard(input, place, Discard::NoUse, memory),
        }
    }

    /// A packet has been read here and is at its end.
    pub(super) fn absorb<M: Memory>(&mut self, place: Place, memory: &mut M) {
        self.account.absorbed += 1;
        memory.give(place);
    }

    fn punt_or_absorb<M: Memory>(&mut self, input: usize, place: Place, memory: &mut M) {
        match self.ports[input].plan.is_punting {
            true => self.punt(input, place, Discard::NoUse, memory),
            false => self.absorb(place, memory),
        }
    }
}
