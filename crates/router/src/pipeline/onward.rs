//! Packets that are forwarded outside a batch: with options, with a source route, or in fragments.
//!
//! What an ICMP error quotes is the packet as it came in (RFC 1812, 4.3.2.3). So everything that can
//! stop a packet is checked first; only then are its options filled, its source route advanced and
//! its time to live decremented.

use alloc::vec::Vec;

use nilometer_wire::Time;

use super::Router;
use super::decide::{Egress, Turn, mac_of};
use super::reserved::ReservedFlow;
use super::slow::{SlowPathReason, stamp};
use super::version::Version;
use crate::discard::Discard;
use crate::fib::NextHop;
use crate::forward::extension::{HopByHop, hop_by_hop};
use crate::forward::fragment::{Fragments, Refusal};
use crate::forward::icmp::Problem;
use crate::forward::options::{Options, SourceRoute, Visit};
use crate::forward::{ecmp, hop};
use crate::header::{AnyKey, ETHERNET_BYTES, Header};
use crate::memory::{Memory, Place};
use crate::neighbour::Mac;

/// A packet to be forwarded, and what is written into it when nothing can stop it any more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Onward {
    /// Its header; the destination is that of the next part of its source route.
    header: Header,
    options: Options,
    /// It goes one step on along its source route.
    follows: bool,
    /// Of a fragment that was made here of a reserved packet: the hash and the reservation of that.
    of_packet: Option<(u64, ReservedFlow)>,
}

/// The output and the link-layer address of a packet, or why it does not leave at once.
pub(super) type Reached = Result<(u16, Mac), Turn>;

impl Onward {
    fn plain(header: Header) -> Onward {
        Onward { header, options: Options::default(), follows: false, of_packet: None }
    }
}

impl Router {
    /// A packet with options: the router's part of them is done, and the packet is forwarded.
    pub(super) fn process_options<M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        place: Place,
        memory: &mut M,
    ) {
        let Ok(header) = Header::read(memory.frame(place)) else {
            return self.discard(input, place, Discard::Options, memory);
        };
        let packet = &memory.frame(place)[ETHERNET_BYTES..];
        let onward = match header.key {
            AnyKey::V4(_) => Options::read(packet, self.plan.rfc1812.source_routing)
                .map(|options| Onward { options, ..Onward::plain(header) })
                .map_err(Some),
            // Nothing here handles what a router alert points at (RFC 6398, 4).
            AnyKey::V6(_) => match hop_by_hop(packet) {
                HopByHop::Pass { .. } => Ok(Onward::plain(header)),
                HopByHop::Discard(problem) => Err(problem),
            },
        };
        match onward {
            Ok(onward) => self.go_on(now, input, place, &onward, memory),
            Err(problem) => {
                self.refuse(now, (input, place), problem, Discard::Options, memory);
            }
        }
    }

    /// A packet for the router with options of IPv4 may have a source route that is not at its end
    /// (5.2.3, 5.2.4.1): whether it is done with thereby.
    pub(super) fn follow_route<M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        place: Place,
        mut header: Header,
        memory: &mut M,
    ) -> bool {
        let AnyKey::V4(key) = &mut header.key else { return false };
        let packet = &memory.frame(place)[ETHERNET_BYTES..];
        let options = match Options::read(packet, self.plan.rfc1812.source_routing) {
            Ok(options) => options,
            Err(problem) => {
                self.refuse(now, (input, place), Some(problem), Discard::Options, memory);
                return true;
            }
        };
        let Some(SourceRoute { next: Some(next), is_strict, .. }) = options.source_route else {
            return false;
        };
        key.destination = next;
        let hash = ecmp::flow_hash(self.plan.seed, &header, None);
        let way = if self.is_own(next) {
            Err(Turn::Slow(SlowPathReason::Local))
        } else if !self.is_of_route(next) {
            Err(Turn::Discard(Discard::MartianDestination))
        } else {
            self.way_out(input, next, hash)
        };
        match way {
            Err(Turn::Slow(SlowPathReason::Local)) => {
                // One of ours again: the pointer moves on, at most nine times.
                options.follow(&mut memory.frame_mut(place)[ETHERNET_BYTES..], next);
                self.take_own(now, input, place, memory);
            }
            Ok((_, gateway, _)) if !is_strict || gateway.is_none() => {
                let onward = Onward { options, follows: true, ..Onward::plain(header) };
                self.go_on(now, input, place, &onward, memory);
            }
            // As it came: whether a route is followed there is decided where it is forwarded.
            Err(Turn::Slow(SlowPathReason::KernelLink)) if self.ports[input].plan.is_punting => {
                self.punt(input, place, Discard::Options, memory);
            }
            Ok(_) | Err(_) => {
                let problem = Some(Problem::SourceRouteFailed);
                self.refuse(now, (input, place), problem, Discard::Options, memory);
            }
        }
        true
    }

    /// Whether a source route may name `address`: one host to which packets are forwarded (5.3.5, 5.3.7).
    fn is_of_route(&self, address: u32) -> bool {
        !address.is_multicast()
            && !address.is_martian_destination(self.plan.martians)
            && !address.is_broadcast(&self.broadcasts)
    }

    /// Forwards one packet outside a batch.
    fn go_on<M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        place: Place,
        onward: &Onward,
        memory: &mut M,
    ) {
        let header = &onward.header;
        let (hash, reserved) = match onward.of_packet {
            Some((hash, reserved)) => (hash, Some(reserved)),
            // (The filters have not met the next address of a source route.)
            None => (
                ecmp::flow_hash(self.plan.seed, header, None),
                if onward.follows { None } else { self.reservation_of(input, header) },
            ),
        };
        if self.replicate_alone(now, input, (place, header, reserved), memory) {
            return;
        }
        if hop::expires(header.hop_limit) && onward.follows {
            let problem = Some(Problem::HopLimit);
            return self.refuse(now, (input, place), problem, Discard::Expired, memory);
        }
        if hop::expires(header.hop_limit) {
            return self.complain(now, input, place, SlowPathReason::Expired, memory);
        }
        let pinned = reserved.and_then(|flow| flow.pinned);
        let directed = match header.key {
            AnyKey::V4(key) => self.direct(now, input, (key.destination, pinned), hash),
            AnyKey::V6(key) => self.direct(now, input, (key.destination, pinned), hash),
        };
        let (way, sent) = match directed {
            Ok(directed) => directed,
            // (To complain as of an unanswering host would ask the header, which names the router.)
            Err(Turn::Slow(_)) if onward.follows => {
                let problem = Some(Problem::SourceRouteFailed);
                return self.refuse(now, (input, place), problem, Discard::Options, memory);
            }
            Err(Turn::Slow(why)) => return self.complain(now, input, place, why, memory),
            Err(Turn::Discard(why)) => return self.discard(input, place, why, memory),
            Err(Turn::Hold(..)) => unreachable!("what is to be held has a way"),
        };
        let port = &self.ports[usize::from(way.0)];
        if !port.is_open || !self.ports[input].plan.forwards {
            let why = if port.is_open { Discard::ForwardingOff } else { port.why_shut() };
            return self.discard(input, place, why, memory);
        }
        if header.ip_bytes > port.plan.mtu_bytes {
            let onward = Onward { of_packet: reserved.map(|reserved| (hash, reserved)), ..*onward };
            return self.cut(now, (input, place), way, &onward, memory);
        }
        if usize::from(way.0) == input && port.plan.redirects && !onward.follows {
            self.redirect(now, input, place, way.1, memory);
        }
        let packet = &mut memory.frame_mut(place)[ETHERNET_BYTES..];
        self.write_options(now, way, onward, packet);
        let passed = match header.key {
            AnyKey::V4(_) => hop::decrement_ipv4(packet),
            AnyKey::V6(_) => hop::decrement_ipv6(packet),
        };
        debug_assert!(passed.is_ok(), "a packet at its end took the slow path");
        let queue = reserved.map(|flow| flow.queue);
        self.send_reserved(now, (input, queue), place, sent, memory);
    }

    /// The router's part of the options of a packet that leaves by `way`.
    fn write_options(&mut self, now: Time, way: Egress, onward: &Onward, packet: &mut [u8]) {
        let AnyKey::V4(key) = onward.header.key else { return };
        if !onward.follows && !onward.options.asks_to_be_filled() {
            return;
        }
        let next = way.1.and_then(u32::of).unwrap_or(key.destination);
        let Some(outgoing) = self.source_by(way.0, next, false) else { return };
        if onward.follows {
            onward.options.follow(packet, outgoing);
        }
        let is_own = |address| self.ports.iter().any(|port| port.arp.table.own().has(address));
        onward.options.fill(packet, Visit { outgoing, stamp: stamp(now), is_own: &is_own });
    }

    /// A packet that the fast path found too big for the link of `output`.
    pub(super) fn fit<M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        output: u16,
        place: Place,
        memory: &mut M,
    ) {
        match Header::read(memory.frame(place)) {
            Ok(header) => {
                let way = (output, None, u16::MAX);
                let reserved = self.reservation_of(input, &header);
                let hash = || ecmp::flow_hash(self.plan.seed, &header, None);
                let of_packet = reserved.map(|reserved| (hash(), reserved));
                let onward = Onward { of_packet, ..Onward::plain(header) };
                self.cut(now, (input, place), way, &onward, memory);
            }
            Err(_) => self.discard(input, place, Discard::TotalLength, memory),
        }
    }

    /// A packet that does not fit the link of its way: in pieces, or not at all.
    fn cut<M: Memory>(
        &mut self,
        now: Time,
        (input, place): (usize, Place),
        way: Egress,
        onward: &Onward,
        memory: &mut M,
    ) {
        let mtu_bytes = self.ports[usize::from(way.0)].plan.mtu_bytes;
        let mut packet = memory.frame(place)[ETHERNET_BYTES..].to_vec();
        let refusal = match onward.header.key {
            AnyKey::V4(_) => Fragments::of(&packet, mtu_bytes).err(),
            AnyKey::V6(_) => Some(Refusal::DontFragment),
        };
        if let Some(refusal) = refusal {
            // The other refusals are of packets that no sender could mend by sending less.
            let is_answered = refusal == Refusal::DontFragment;
            let problem = is_answered.then_some(Problem::TooBig { mtu_bytes: mtu_bytes.into() });
            return self.refuse(now, (input, place), problem, Discard::TooBig, memory);
        }
        self.write_options(now, way, onward, &mut packet);
        let mut piece = Vec::new();
        let Ok(mut fragments) = Fragments::of(&packet, mtu_bytes) else {
            return self.discard(input, place, Discard::TooBig, memory);
        };
        while fragments.next_into(&mut piece) {
            let Some(part) = self.make(input, &piece, memory) else { continue };
            match Header::read(memory.frame(part)) {
                Ok(header) => {
                    let of_packet = onward.of_packet;
                    let fragment = Onward { of_packet, ..Onward::plain(header) };
                    self.go_on(now, input, part, &fragment, memory);
                }
                Err(_) => self.discard(input, part, Discard::TotalLength, memory),
            }
        }
        self.absorb(place, memory);
    }

    /// The way of one packet that came by `input`, and the output and link-layer address if it need
    /// not wait for them.
    fn direct<A: Version>(
        &mut self,
        now: Time,
        input: usize,
        (destination, pinned): (A, Option<NextHop>),
        hash: u64,
    ) -> Result<(Egress, Reached), Turn> {
        let way = match pinned {
            Some(next) => self.way(next, hash)?,
            None => self.way_out(input, destination, hash)?,
        };
        match self.reach(now, way, destination) {
            Err(turn @ (Turn::Slow(_) | Turn::Discard(_))) => Err(turn),
            sent => Ok((way, sent)),
        }
    }

    /// The output and link-layer address for a packet to `destination` that goes a certain way.
    pub(super) fn reach<A: Version>(&mut self, now: Time, way: Egress, destination: A) -> Reached {
        let (output, gateway, hop) = way;
        match gateway {
            Some(gateway) => Ok((output, self.mac_of_gateway(now, output, gateway, hop)?)),
            None => {
                let table = A::table(&mut self.ports[usize::from(output)]);
                let lookup = table.lookup(now, destination);
                Ok((output, mac_of(lookup, output, destination.address())?.0))
            }
        }
    }
}
