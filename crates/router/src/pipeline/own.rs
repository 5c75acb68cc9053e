//! Packets for the router itself: neighbours' requests, and packets to its addresses.

use alloc::vec::Vec;

use nilometer_wire::Time;
use nilometer_wire::checksum::transport_checksum_ok;

use super::Router;
use super::slow::stamp;
use super::version::Version;
use crate::discard::Discard;
use crate::forward::echo::reply_goes_to;
use crate::forward::extension::{self, HopByHop, hop_by_hop, unfollowed_route, unhandled_options};
use crate::forward::icmp::Problem;
use crate::forward::options::Visit;
use crate::forward::reassemble::Outcome;
use crate::forward::report::Cause;
use crate::header::{AnyKey, ETHERNET_BYTES, FRAGMENT, Header, Key, OPTIONS, protocol};
use crate::memory::{Memory, Place};
use crate::neighbour::{ArpOperation, ArpPacket, Family, Message};

/// All nodes and all routers of the link (RFC 4291, 2.7.1).
const ALL_NODES: u128 = 0xff02 << 112 | 1;
const ALL_ROUTERS: u128 = 0xff02 << 112 | 2;
/// ICMPv6 types of neighbour discovery (RFC 4861, 4).
const DISCOVERY: core::ops::RangeInclusive<u8> = 133..=137;

impl Router {
    /// An ARP frame: for the neighbour table; an answer is punted as well.
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

    /// A message of neighbour discovery: for the neighbour table, and punted as well unless it
    /// solicits an address that the router answers for.
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

    /// An IP packet in a frame for many: a question of neighbour discovery, or to be punted.
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
        if self.take_membership(now, input, place, memory) {
            return;
        }
        let frame = memory.frame(place);
        let why = match Header::read(frame).map(|header| header.key) {
            Ok(AnyKey::V4(key)) if key.destination.is_multicast() => Discard::NoGroup,
            Ok(AnyKey::V4(key))
                if key.destination == u32::MAX || self.broadcasts.has(key.destination) =>
            {
                Discard::Broadcast
            }
            Ok(AnyKey::V6(key))
                if key.destination == ALL_NODES || key.destination == ALL_ROUTERS =>
            {
                return self.take_own(now, input, place, memory);
            }
            Ok(AnyKey::V6(key)) if key.destination.is_multicast() => Discard::NoGroup,
            // To one host, but to all at the link (5.3.4).
            _ => Discard::LinkBroadcast,
        };
        self.punt(input, place, why, memory);
    }

    /// A packet for the router: to be punted, or to be reassembled and answered.
    pub(super) fn take_own<M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        place: Place,
        memory: &mut M,
    ) {
        let Ok(header) = Header::read(memory.frame(place)) else {
            return self.discard(input, place, Discard::NoUse, memory);
        };
        if header.notes & OPTIONS != 0 && self.follow_route(now, input, place, header, memory) {
            return;
        }
        if self.ports[input].plan.is_punting {
            return self.punt(input, place, Discard::NoUse, memory);
        }
        let packet = memory.frame(place)[ETHERNET_BYTES..].to_vec();
        if let AnyKey::V6(key) = header.key {
            // A link-local address is another on every link.
            let destination = match key.destination.is_link_local() {
                true => input..input + 1,
                false => 0..self.ports.len(),
            };
            if self.ports[destination].iter().any(|port| port.withholds(key.destination)) {
                return self.discard(input, place, Discard::NoUse, memory);
            }
            let problem = match hop_by_hop(&packet) {
                HopByHop::Pass { .. } => {
                    unhandled_options(&packet).or_else(|| unfollowed_route(&packet).map(Some))
                }
                HopByHop::Discard(problem) => Some(problem),
            };
            if let Some(problem) = problem {
                return self.refuse(now, (input, place), problem, Discard::Options, memory);
            }
        }
        let arrival = self.arrival(memory.frame(place)[0] & 1 == 1, &packet);
        let cause = Cause { now, arrival, packet: &packet };
        if header.notes & FRAGMENT != 0 {
            return self.gather(cause, input, place, memory);
        }
        match self.answer(cause, input, memory) {
            true => self.absorb(place, memory),
            false => self.discard(input, place, Discard::NoUse, memory),
        }
    }

    /// A fragment of a datagram for the router (RFC 1812, 4.2.2.8).
    fn gather<M: Memory>(&mut self, cause: Cause<'_>, input: usize, place: Place, memory: &mut M) {
        match self.slow.reassembler.push(cause.now, input as u16, cause.packet) {
            Outcome::Waiting => self.absorb(place, memory),
            Outcome::Whole(packet) => {
                let whole = Cause { packet: &packet, ..cause };
                let Some(problem) = unhandled_options(&packet) else {
                    self.answer(whole, input, memory);
                    return self.absorb(place, memory);
                };
                if let Some(problem) = problem {
                    self.tell(input, whole, problem, memory);
                }
                self.discard(input, place, Discard::Options, memory);
            }
            Outcome::Dropped(_, problem) => {
                self.refuse(cause.now, (input, place), problem, Discard::Fragment, memory);
            }
        }
    }

    /// Datagrams whose fragments are missing for too long: their senders get ICMP errors.
    pub(super) fn expire_fragments<M: Memory>(&mut self, now: Time, memory: &mut M) {
        while let Some(expired) = self.slow.reassembler.expire(now) {
            let Some(first) = expired.first else { continue };
            let input = usize::from(expired.port);
            let cause = Cause { now, arrival: self.arrival(false, &first), packet: &first };
            self.tell(input, cause, Problem::Reassembly, memory);
        }
    }

    /// Answers a whole packet for the router; whether there is an answer.
    fn answer<M: Memory>(&mut self, cause: Cause<'_>, input: usize, memory: &mut M) -> bool {
        let header = match cause.packet[0] >> 4 {
            4 => Header::read_ipv4(cause.packet),
            _ => Header::read_ipv6(cause.packet),
        };
        let Ok(header) = header else { return false };
        let hash = self.hash_of(cause.packet);
        let answer = match header.key {
            AnyKey::V4(key) if key.protocol == protocol::ICMP => {
                // What options record is an address of the link that the reply leaves by (4.2.2.2).
                let first = reply_goes_to(cause.packet);
                let way = self.way_out(input, first, hash);
                let outgoing = way.ok().and_then(|(output, gateway, _)| {
                    let next = gateway.and_then(u32::of).unwrap_or(first);
                    self.source_by(output, next, first.is_link_local())
                });
                let reply = self.echo(cause, outgoing.unwrap_or(key.destination));
                reply.map(|reply| (way, reply))
            }
            AnyKey::V6(key) if key.protocol == protocol::ICMPV6 => {
                let is_of_link = key.source.is_link_local();
                let own = match key.destination.is_multicast() {
                    true => self.source_by(input as u16, key.source, is_of_link),
                    false => Some(key.destination),
                };
                let reply = own.and_then(|own| self.slow.reporter.echo_ipv6(cause, own).ok());
                reply.map(|reply| (self.way_out(input, key.source, hash), reply))
            }
            AnyKey::V4(Key { protocol, .. }) | AnyKey::V6(Key { protocol, .. }) => {
                let pointer = extension::protocol_at(cause.packet, header.transport_at);
                let is_sound = protocol != protocol::UDP || is_sound(cause.packet, &header);
                let what = unspoken(protocol, pointer).filter(|_| is_sound);
                let message = what.and_then(|what| self.message(input, cause, what));
                message.map(|(message, way)| (Ok(way), message))
            }
        };
        let Some((way, reply)) = answer else { return false };
        self.send_own(cause.now, input, &reply, way, memory);
        true
    }

    fn echo(&mut self, cause: Cause<'_>, outgoing: u32) -> Option<Vec<u8>> {
        let is_own = |address| self.ports.iter().any(|port| port.arp.table.own().has(address));
        let visit = Visit { outgoing, stamp: stamp(cause.now), is_own: &is_own };
        self.slow.reporter.echo_ipv4(cause, visit).ok()
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

/// Whether a datagram is as it was sent: its length fits, and its checksum (RFC 768; RFC 1122, 4.1.3.4:
/// a datagram changed on its way is not answered), which it must have in IPv6 (RFC 8200, 8.1).
fn is_sound(packet: &[u8], header: &Header) -> bool {
    let end = packet.len().min(usize::from(header.ip_bytes));
    let datagram = packet.get(usize::from(header.transport_at)..end).unwrap_or_default();
    let length = datagram.get(4..6).map_or(0, |word| u16::from_be_bytes([word[0], word[1]]));
    let is_summed = packet[0] >> 4 == 4 || datagram.get(6..8) != Some(&[0, 0]);
    (8..=datagram.len()).contains(&usize::from(length))
        && is_summed
        && transport_checksum_ok(packet) != Some(false)
}

/// The problem with a packet of this protocol to the router, which listens on no port. There is none
/// for TCP, whose resets are sent elsewhere, and for protocols without a reply.
fn unspoken(protocol: u8, pointer: u16) -> Option<Problem> {
    match protocol {
        protocol::UDP => Some(Problem::PortUnreachable),
        protocol::ICMP | protocol::ICMPV6 | protocol::IGMP | protocol::TCP => None,
        protocol::NO_NEXT_HEADER => None,
        _ => Some(Problem::ProtocolUnreachable { pointer }),
    }
}
