//! The slow path: what a packet needs that the fast path does not do.
//!
//! A bounded queue stands before it, and it is served between batches, [`SERVED_AT_ONCE`] packets at a
//! time. So a flood of packets with options, or to nobody, costs those packets and not the plain ones:
//! when the queue is full they are discarded as such, at the cheapest point.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_wire::Time;

use super::decide::{Turn, Version, mac_of};
use super::port::PUNT_MAX;
use super::{Manners, Router};
use crate::discard::Discard;
use crate::forward::fragment::Fragments;
use crate::forward::icmp::Problem;
use crate::forward::options::{Options, Visit};
use crate::forward::report::{Cause, Reporter};
use crate::forward::silence::Arrival;
use crate::forward::{ecmp, hop};
use crate::header::{AnyKey, DONT_FRAGMENT, ETHERNET_BYTES, Header};
use crate::memory::{Memory, Place};
use crate::neighbour::Mac;

/// Packets that may wait for the slow path.
pub const SLOW_MAX: usize = 512;
/// Packets that it serves between two batches.
pub const SERVED_AT_ONCE: usize = 64;
/// Copies that may wait for management.
pub const COPIES_MAX: usize = 512;

/// Why a packet left the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// An ARP frame.
    Arp,
    /// A message of neighbour discovery.
    Discovery,
    /// An IP packet in a frame for many.
    LinkBroadcast,
    /// For a group of receivers.
    Group,
    /// For the router itself.
    Local,
    /// Options or a hop-by-hop header.
    Options,
    /// Its time to live is used up.
    Expired,
    /// It does not fit the link of this port.
    TooBig(u16),
    /// No route.
    NoRoute,
    /// A route that says unreachable, or whose ways are all down.
    Unreachable,
    /// A route that says prohibited.
    Prohibited,
    /// The next hop does not answer.
    HostUnreachable,
}

/// The queue, and who writes messages.
#[derive(Debug)]
pub(super) struct SlowPath {
    queue: VecDeque<(usize, Place, Why)>,
    /// Copies for management, with the port that they came by.
    copies: VecDeque<(usize, Place)>,
    pub(super) reporter: Reporter,
}

impl SlowPath {
    pub(super) fn new(seed: u64, manners: &Manners) -> SlowPath {
        let mut reporter = Reporter::new(manners.limits, seed);
        reporter.set_hop_limit(manners.hop_limit);
        reporter.set_answers_echo(manners.answers_echo);
        SlowPath { queue: VecDeque::new(), copies: VecDeque::new(), reporter }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len() + self.copies.len()
    }
}

impl Router {
    /// A packet leaves the fast path for the queue of the slow one.
    pub(super) fn shunt<M: Memory>(
        &mut self,
        input: usize,
        place: Place,
        why: Why,
        memory: &mut M,
    ) {
        if self.slow.queue.len() >= SLOW_MAX {
            return self.discard(input, place, Discard::SlowPathFull, memory);
        }
        self.slow.queue.push_back((input, place, why));
    }

    /// Serves some of those that wait.
    pub(super) fn serve_slow<M: Memory>(&mut self, now: Time, memory: &mut M) {
        for _ in 0..SERVED_AT_ONCE {
            let Some((input, place, why)) = self.slow.queue.pop_front() else { return };
            match why {
                Why::Arp => self.take_arp(now, input, place, memory),
                Why::Local => self.take_own(now, input, place, memory),
                Why::Discovery => self.take_discovery(now, input, place, memory),
                Why::LinkBroadcast => self.take_for_many(now, input, place, memory),
                Why::Group => self.punt(input, place, Discard::NoGroup, memory),
                Why::Options => self.heed_options(now, input, place, memory),
                Why::TooBig(output) => self.fit(now, input, output, place, memory),
                _ => self.complain(now, input, place, why, memory),
            }
        }
    }

    /// Hands a packet to who runs beside the forwarding plane; without one it is discarded for `why`.
    pub(super) fn punt<M: Memory>(
        &mut self,
        input: usize,
        place: Place,
        why: Discard,
        memory: &mut M,
    ) {
        let port = &mut self.ports[input];
        if !port.plan.is_punting {
            return self.discard(input, place, why, memory);
        }
        if port.punt.len() >= PUNT_MAX {
            return self.discard(input, place, Discard::PuntFull, memory);
        }
        port.punt.push_back(place);
    }

    /// The next packet of `port` for who runs beside the forwarding plane, who has its buffer then.
    /// Panics where there is no such port.
    pub fn poll_punted(&mut self, port: usize) -> Option<Place> {
        let place = self.ports[port].punt.pop_front()?;
        self.account.punted += 1;
        Some(place)
    }

    /// A frame from who runs beside the forwarding plane, to be sent by `port` as it is. Panics where
    /// there is no such port.
    pub fn inject<M: Memory>(&mut self, now: Time, port: usize, place: Place, memory: &mut M) {
        self.account.injected += 1;
        self.send_frame(now, (port, port), place, memory);
    }

    /// A copy that a filter asked for, with the port by which the packet came; the caller has its
    /// buffer then.
    pub fn poll_copy(&mut self) -> Option<(usize, Place)> {
        let copy = self.slow.copies.pop_front()?;
        self.account.punted += 1;
        Some(copy)
    }

    /// Copies a packet for management, if there is room for a copy.
    pub(super) fn copy_to_management<M: Memory>(
        &mut self,
        input: usize,
        place: Place,
        memory: &mut M,
    ) {
        if self.slow.copies.len() < COPIES_MAX
            && let Some(copy) = self.made(input, place.bytes, memory)
        {
            let bytes = memory.frame(place).to_vec();
            memory.frame_mut(copy).copy_from_slice(&bytes);
            self.slow.copies.push_back((input, copy));
        }
    }

    /// Tells the sender what is wrong, if it may be told, and discards the packet.
    fn complain<M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        place: Place,
        why: Why,
        memory: &mut M,
    ) {
        let (problem, discard) = match why {
            Why::Expired => (Problem::HopLimit, Discard::Expired),
            Why::Unreachable => (Problem::NoRoute, Discard::Rejected),
            Why::Prohibited => (Problem::Rejected, Discard::Rejected),
            Why::HostUnreachable => (Problem::AddressUnreachable, Discard::Unresolved),
            _ => (Problem::NoRoute, Discard::NoRoute),
        };
        self.report(now, input, place, problem, memory);
        self.discard(input, place, discard, memory);
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
        let packet = &memory.frame(place)[ETHERNET_BYTES..];
        let Some(&first) = packet.first() else { return };
        let port = &self.ports[input];
        let to = |at: usize| {
            packet
                .get(at..at + 4)
                .map_or(0, |four| u32::from_be_bytes([four[0], four[1], four[2], four[3]]))
        };
        let is_four = first >> 4 == 4;
        let arrival = Arrival {
            by_link_broadcast: memory.frame(place)[0] & 1 == 1,
            to_broadcast: is_four && port.is_broadcast(to(16)),
            from_broadcast: is_four && port.is_broadcast(to(12)),
        };
        let cause = Cause { now, arrival, packet };
        let message = if is_four {
            let Some(&(source, _)) = port.plan.addresses4.first() else { return };
            self.slow.reporter.error_ipv4(cause, problem, source)
        } else {
            let Some(&(source, _)) = port.plan.addresses6.first() else { return };
            self.slow.reporter.error_ipv6(cause, problem, source)
        };
        if let Ok(message) = message {
            self.send_own(now, input, &message, memory);
        }
    }

    /// A packet with options: the router's part of them is done, and it goes on.
    fn heed_options<M: Memory>(&mut self, now: Time, input: usize, place: Place, memory: &mut M) {
        let Ok(header) = Header::read(memory.frame(place)) else {
            return self.discard(input, place, Discard::Options, memory);
        };
        let AnyKey::V4(key) = header.key else {
            return self.go_on(now, input, place, &header, memory);
        };
        let packet = &memory.frame(place)[ETHERNET_BYTES..];
        match Options::read(packet, self.plan.manners.source_routing) {
            Err(problem) => {
                self.report(now, input, place, problem, memory);
                self.discard(input, place, Discard::Options, memory);
            }
            Ok(options) => {
                let next = <u32 as Version>::route(self, key.destination);
                let way = next.and_then(|next| self.way(next, 0).ok());
                let outgoing = way.and_then(|(output, gateway, _)| {
                    let own = self.ports[usize::from(output)].arp.table.own();
                    match gateway {
                        Some(IpAddr::V4(gateway)) => own.source_for(gateway.into()),
                        _ => own.source_for(key.destination),
                    }
                });
                if options.asks_to_be_filled()
                    && let Some(outgoing) = outgoing
                {
                    let is_own =
                        |address| self.ports.iter().any(|port| port.arp.table.own().has(address));
                    let visit = Visit { outgoing, stamp: stamp(now), is_own: &is_own };
                    options.fill(&mut memory.frame_mut(place)[ETHERNET_BYTES..], visit);
                }
                self.go_on(now, input, place, &header, memory);
            }
        }
    }

    /// A packet that does not fit the link of `output`: in pieces, or not at all.
    fn fit<M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        output: u16,
        place: Place,
        memory: &mut M,
    ) {
        let mtu_bytes = self.ports[usize::from(output)].plan.mtu_bytes;
        let header = Header::read(memory.frame(place));
        let Ok(header @ Header { key: AnyKey::V4(_), .. }) = header else {
            self.report(now, input, place, Problem::TooBig { mtu_bytes: mtu_bytes.into() }, memory);
            return self.discard(input, place, Discard::TooBig, memory);
        };
        let packet = memory.frame(place)[ETHERNET_BYTES..].to_vec();
        let fragments = match Fragments::of(&packet, mtu_bytes) {
            Ok(fragments) if header.notes & DONT_FRAGMENT == 0 => fragments,
            _ => {
                let problem = Problem::TooBig { mtu_bytes: mtu_bytes.into() };
                self.report(now, input, place, problem, memory);
                return self.discard(input, place, Discard::TooBig, memory);
            }
        };
        let (mut fragments, mut piece) = (fragments, Vec::new());
        while fragments.next_into(&mut piece) {
            if let Some(part) = self.make(input, &piece, memory) {
                match Header::read(memory.frame(part)) {
                    Ok(header) => self.go_on(now, input, part, &header, memory),
                    Err(_) => self.discard(input, part, Discard::TotalLength, memory),
                }
            }
        }
        self.account.absorbed += 1;
        memory.give(place);
    }

    /// Forwards one packet outside a batch.
    fn go_on<M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        place: Place,
        header: &Header,
        memory: &mut M,
    ) {
        if hop::expires(header.hop_limit) {
            return self.complain(now, input, place, Why::Expired, memory);
        }
        let sent = match header.key {
            AnyKey::V4(key) => self.direct(now, input, key.destination, header),
            AnyKey::V6(key) => self.direct(now, input, key.destination, header),
        };
        let output = match &sent {
            Ok((output, _)) | Err(Turn::Hold(output, _)) => *output,
            Err(Turn::Slow(why)) => return self.complain(now, input, place, *why, memory),
            Err(Turn::Discard(why)) => return self.discard(input, place, *why, memory),
        };
        if header.ip_bytes > self.ports[usize::from(output)].plan.mtu_bytes {
            return self.fit(now, input, output, place, memory);
        }
        let packet = &mut memory.frame_mut(place)[ETHERNET_BYTES..];
        let passed = match header.key {
            AnyKey::V4(_) => hop::decrement_ipv4(packet),
            AnyKey::V6(_) => hop::decrement_ipv6(packet),
        };
        debug_assert!(passed.is_ok(), "who is at its end was turned aside");
        self.send_directed(now, input, place, sent, memory);
    }

    /// The output and link-layer address for one packet that came by `input`, or was made because of
    /// one that did: to a link-local address there is no way but back to its link.
    pub(super) fn direct<A: Version>(
        &mut self,
        now: Time,
        input: usize,
        destination: A,
        header: &Header,
    ) -> Result<(u16, Mac), Turn> {
        let way = match destination.is_link_local() {
            true => (input as u16, None, u16::MAX),
            false => {
                let next = A::route(self, destination).ok_or(Turn::Slow(Why::NoRoute))?;
                self.way(next, ecmp::flow_hash(self.plan.seed, header, None))?
            }
        };
        match way {
            (output, Some(gateway), hop) => {
                Ok((output, self.mac_of_gateway(now, output, gateway, hop)?))
            }
            (output, None, _) => {
                let table = A::table(&mut self.ports[usize::from(output)]);
                let lookup = table.lookup(now, destination);
                Ok((output, mac_of(lookup, output, destination.address())?.0))
            }
        }
    }

    /// What became of all the messages that something asked for.
    pub fn reports(&self) -> crate::forward::report::Account {
        self.slow.reporter.account()
    }
}

/// Milliseconds since the run began, marked as not standard: the router is told no time of day.
pub(super) fn stamp(now: Time) -> u32 {
    (now.as_nanos() / 1_000_000) as u32 | crate::forward::options::NOT_STANDARD
}
