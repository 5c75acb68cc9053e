//! ICMP errors and redirects: which error a packet causes, and from which source address it is sent.
//!
//! A message is from an address of the port by which it leaves (RFC 1812, 4.3.2.4), so the route to
//! the message's recipient is found first and the message made for it. A port without an address uses
//! that of another. In IPv6 an answer to a packet for one of the router's addresses is from that
//! address (RFC 4443, 2.2), and only what stays on the link is from a link-local one.

use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_wire::Time;

use super::Router;
use super::decide::{Egress, Turn};
use super::labelled::ip_packet;
use super::slow::SlowPathReason;
use super::version::Version;
use crate::discard::Discard;
use crate::forward::icmp::Problem;
use crate::forward::icmp_suppression::Arrival;
use crate::forward::options::{Options, SourceRouting};
use crate::forward::redirect;
use crate::forward::report::Cause;
use crate::forward::{ecmp, hop};
use crate::header::{AnyKey, ETHERNET_BYTES, Header};
use crate::memory::{Memory, Place};

impl Router {
    /// Sends the sender an ICMP error, if that is allowed, and discards the packet.
    pub(super) fn complain<M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        place: Place,
        why: SlowPathReason,
        memory: &mut M,
    ) {
        // An expired packet for this router has arrived all the same (4.2.2.9).
        if why == SlowPathReason::Expired && self.is_to_own(memory.frame(place)) {
            return self.take_own(now, input, place, memory);
        }
        let settings = &self.plan.rfc1812;
        let (problem, discard) = match why {
            SlowPathReason::KernelLink if self.ports[input].plan.is_punting => {
                return self.punt(input, place, Discard::NoRoute, memory);
            }
            SlowPathReason::HostUnreachable => {
                return self.settle_unresolved(now, input, place, memory);
            }
            SlowPathReason::Expired => (Some(Problem::HopLimit), Discard::Expired),
            SlowPathReason::Unreachable => (Some(Problem::NoRoute), Discard::Rejected),
            SlowPathReason::Prohibited => {
                (settings.tells_prohibited.then_some(Problem::Prohibited), Discard::Rejected)
            }
            SlowPathReason::Denied => (Some(Problem::Prohibited), Discard::Denied),
            SlowPathReason::BeyondScope => (Some(Problem::BeyondScope), Discard::MartianSource),
            _ => (Some(Problem::NoRoute), Discard::NoRoute),
        };
        self.refuse(now, (input, place), problem, discard, memory);
    }

    /// Reports a problem if there is one, and discards the packet.
    pub(super) fn refuse<M: Memory>(
        &mut self,
        now: Time,
        (input, place): (usize, Place),
        problem: Option<Problem>,
        discard: Discard,
        memory: &mut M,
    ) {
        if let Some(problem) = problem {
            self.report(now, input, place, problem, memory);
        }
        self.discard(input, place, discard, memory);
    }

    /// A packet whose next hop did not resolve. One to an address of the router is taken as its own,
    /// a directed broadcast is not forwarded (5.3.5.2; RFC 2644), and for any other destination the
    /// sender gets an error.
    fn settle_unresolved<M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        place: Place,
        memory: &mut M,
    ) {
        let frame = memory.frame(place);
        if self.is_to_own(frame) {
            return self.take_own(now, input, place, memory);
        }
        let key = Header::read(frame).map(|header| header.key);
        if matches!(key, Ok(AnyKey::V4(key)) if self.broadcasts.has(key.destination)) {
            return self.punt(input, place, Discard::Broadcast, memory);
        }
        let problem = Some(Problem::AddressUnreachable);
        self.refuse(now, (input, place), problem, Discard::Unresolved, memory);
    }

    /// Whether the packet in a frame is to an address of the router.
    fn is_to_own(&mut self, frame: &[u8]) -> bool {
        match Header::read(frame).map(|header| header.key) {
            Ok(AnyKey::V4(key)) => self.is_own(key.destination),
            Ok(AnyKey::V6(key)) => self.is_own(key.destination),
            Err(_) => false,
        }
    }

    /// Whether `address` is one of the router's, on any port.
    pub(super) fn is_own<A: Version>(&mut self, address: A) -> bool {
        self.ports.iter_mut().any(|port| A::table(port).own().has(address))
    }

    /// What the router knows of an IP packet's arrival that is not in the packet, from all ports.
    pub(super) fn arrival(&self, by_link_broadcast: bool, packet: &[u8]) -> Arrival {
        let is_four = packet.first().is_some_and(|first| first >> 4 == 4);
        let destination = u32::destination(packet);
        Arrival {
            by_link_broadcast,
            to_broadcast: is_four && self.broadcasts.has(destination),
            from_broadcast: is_four && self.broadcasts.has(u32::sender(packet)),
        }
    }

    /// Sends the sender of the packet at `place` an ICMP error, if rules and limits let it.
    pub(super) fn report<M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        place: Place,
        problem: Problem,
        memory: &mut M,
    ) {
        let frame = memory.frame(place);
        let Some(packet) = ip_packet(frame) else { return };
        let arrival = self.arrival(frame[0] & 1 == 1, packet);
        let cause = Cause { now, arrival, packet };
        if let Some((message, way)) = self.message(input, cause, problem) {
            self.send_own(now, input, &message, Ok(way), memory);
        }
    }

    /// Reports a problem with a packet that is in no buffer.
    pub(super) fn tell<M: Memory>(
        &mut self,
        input: usize,
        cause: Cause<'_>,
        problem: Problem,
        memory: &mut M,
    ) {
        if let Some((message, way)) = self.message(input, cause, problem) {
            self.send_own(cause.now, input, &message, Ok(way), memory);
        }
    }

    /// The message that reports `problem`, and its egress.
    pub(super) fn message(
        &mut self,
        input: usize,
        cause: Cause<'_>,
        problem: Problem,
    ) -> Option<(Vec<u8>, Egress)> {
        match cause.packet.first()? >> 4 {
            4 => self.message_of::<u32>(input, cause, problem),
            _ => self.message_of::<u128>(input, cause, problem),
        }
    }

    fn message_of<A: Version>(
        &mut self,
        input: usize,
        cause: Cause<'_>,
        problem: Problem,
    ) -> Option<(Vec<u8>, Egress)> {
        let sender = A::sender(cause.packet);
        let way = match problem {
            // It is of the network that the packet came by and leaves by.
            Problem::Redirect { .. } => Ok((input as u16, None, u16::MAX)),
            _ => self.way_out(input, sender, self.hash_of(cause.packet)),
        };
        let requested = A::destination(cause.packet);
        let source = match way {
            Ok(_) if A::IS_SIX && self.is_own(requested) => Some(requested),
            Ok((output, gateway, _)) => {
                let next = gateway.and_then(A::of).unwrap_or(sender);
                self.source_by(output, next, sender.is_link_local())
            }
            Err(_) => None,
        };
        let (Ok(way), Some(source)) = (way, source) else {
            self.slow.reporter.give_up();
            return None;
        };
        let message = A::error(&mut self.slow.reporter, cause, problem, source);
        message.ok().map(|message| (message, way))
    }

    /// The hash of the flow of an IP packet.
    pub(super) fn hash_of(&self, packet: &[u8]) -> u64 {
        let header = match packet.first() {
            Some(first) if first >> 4 == 4 => Header::read_ipv4(packet),
            _ => Header::read_ipv6(packet),
        };
        header.map_or(0, |header| ecmp::flow_hash(self.plan.seed, &header, None))
    }

    /// The source address for a packet by port `output` to or through `next`: one of the same
    /// network, else the first of the port, else the first of another port.
    pub(super) fn source_by<A: Version>(
        &mut self,
        output: u16,
        next: A,
        is_of_link: bool,
    ) -> Option<A> {
        let output = usize::from(output);
        let own = A::table(&mut self.ports[output]).own().addresses().iter().rev();
        let nearest = own
            .filter(|there| there.0.is_link_local() == is_of_link)
            .max_by_key(|there| if there.1.contains(next) { there.1.length() + 1 } else { 0 });
        let nearest = nearest.map(|there| there.0);
        if is_of_link {
            return nearest;
        }
        let mut others = self.ports.iter_mut();
        nearest.or_else(|| {
            others.find_map(|port| {
                let mut addresses = A::table(port).own().addresses().iter().map(|there| there.0);
                addresses.find(|address| !address.is_link_local())
            })
        })
    }

    /// The egress of a packet that came by `input`, or was made because of one that did. A link-local
    /// address, of IPv4 as well (RFC 3927, 2.6.2), can only be reached back on that link.
    pub(super) fn way_out<A: Version>(
        &mut self,
        input: usize,
        destination: A,
        hash: u64,
    ) -> Result<Egress, Turn> {
        if destination.is_of_one_link() {
            return Ok((input as u16, None, u16::MAX));
        }
        let next = A::route(self, destination).ok_or(Turn::Slow(SlowPathReason::NoRoute))?;
        self.way(next, hash)
    }

    /// A packet leaves by the port it came by: its sender may get a redirect to a shorter way
    /// (5.2.7.2). The packet is forwarded all the same.
    #[cold]
    pub(super) fn redirect<M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        place: Place,
        gateway: Option<IpAddr>,
        memory: &mut M,
    ) {
        let packet = &memory.frame(place)[ETHERNET_BYTES..];
        if packet.first().is_none_or(|first| first >> 4 != 4) {
            return; // those of IPv6 are neighbour discovery's
        }
        let source = u32::sender(packet);
        let next_hop = match gateway {
            Some(IpAddr::V4(gateway)) => gateway.into(),
            Some(IpAddr::V6(_)) => return,
            None => u32::destination(packet),
        };
        let has_source_route = packet[0] & 15 > 5
            && Options::read(packet, SourceRouting::Follow)
                .is_ok_and(|options| options.source_route.is_some());
        let due = |address: u32, length: u32| {
            let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
            let network = (address, mask);
            let (arrives_by, leaves_by) = (input as u16, input as u16);
            let turn = redirect::Turn {
                is_wanted: next_hop != source && !hop::expires(packet[8]),
                arrives_by,
                leaves_by,
                source,
                next_hop,
                network,
                has_source_route,
            };
            turn.redirect()
        };
        let own = self.ports[input].arp.table.own().addresses().iter();
        let mut problems = own.filter_map(|&(address, prefix)| due(address, prefix.length()));
        if let Some(problem) = problems.next() {
            self.report(now, input, place, problem, memory);
        }
    }
}
