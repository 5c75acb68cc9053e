//! Packets for groups: one copy for each port that wants them, made where they enter the fabric.
//!
//! A packet to a group that may leave its link is replicated in the batch in which it came. Its ports
//! are those in the table of groups, except for the one it came by; it must have come by the port that
//! leads back to its source, or it would go round in circles where two routers share two links. Its hop
//! limit falls once, then it is copied: a buffer for each port but the last, which gets the buffer that
//! came. So a packet for one receiver is never copied and one for three receivers twice, and the cost is
//! that of the bytes. Each copy goes through the virtual output queue of its port, where distributed
//! queueing treats it as any other packet.
//!
//! A copy that cannot leave (its port is down, its hop limit is not above the port's threshold, the link
//! is too narrow) is counted as made and as discarded, so that no packet is missing without a
//! reason. A packet that no port wants is [`Discard::NoGroup`]. Senders get no ICMP error except for an
//! IPv6 packet too big for a link, which path MTU discovery needs (RFC 4443, 2.4 e).

use alloc::vec::Vec;
use core::mem;

use nilometer_wire::Time;

use super::Router;
use super::groups::is_mld;
use super::lane::Brief;
use super::reserved::ReservedFlow;
use super::slow::SlowPathReason;
use super::version::Version;
use crate::discard::Discard;
use crate::forward::ecmp::flow_hash;
use crate::forward::fragment::Fragments;
use crate::forward::hop;
use crate::forward::icmp::Problem;
use crate::forward::urpf::Mode;
use crate::header::{self, AnyKey, DONT_FRAGMENT, ETHERNET_BYTES, Header, Key, protocol};
use crate::memory::{Memory, Place, Ticket};

impl Router {
    /// A packet for a group in a batch: it is replicated, or leaves the fast path.
    pub(super) fn meet_group<A: Version, M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        brief: &Brief,
        key: &Key<A>,
        memory: &mut M,
    ) {
        if !key.destination.may_forward() {
            self.shunt(input, brief.place, SlowPathReason::Group, memory);
        } else if brief.notes & header::OPTIONS != 0 {
            self.shunt(input, brief.place, SlowPathReason::Options, memory);
        } else {
            self.replicate(now, input, brief, key, memory);
        }
    }

    /// Replicates a packet outside a batch, whose options have been processed, if it is for a group;
    /// returns whether it was.
    pub(super) fn replicate_alone<M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        (place, header, reserved): (Place, &Header, Option<ReservedFlow>),
        memory: &mut M,
    ) -> bool {
        let mut brief = Brief {
            place,
            hash: flow_hash(self.plan.seed, header, None),
            ip_bytes: header.ip_bytes,
            traffic_class: header.traffic_class,
            hop_limit: header.hop_limit,
            notes: header.notes,
        };
        if let Some(ReservedFlow { queue, .. }) = reserved {
            brief.reserve(queue);
        }
        match &header.key {
            AnyKey::V4(key) if key.destination.is_multicast() => {
                self.replicate(now, input, &brief, key, memory);
            }
            AnyKey::V6(key) if key.destination.is_multicast() => {
                self.replicate(now, input, &brief, key, memory);
            }
            _ => return false,
        }
        true
    }

    /// One copy for each port that wants the packet.
    pub(super) fn replicate<A: Version, M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        brief: &Brief,
        key: &Key<A>,
        memory: &mut M,
    ) {
        let mut outputs = mem::take(&mut self.groups.outputs);
        outputs.clear();
        let wanted = A::groups(&mut self.groups).table.ports(key.destination, key.source);
        outputs.extend(wanted.filter(|output| usize::from(*output) != input));
        if outputs.is_empty() && self.ports[input].plan.is_punting {
            self.shunt(input, brief.place, SlowPathReason::Group, memory);
        } else if outputs.is_empty() {
            self.discard(input, brief.place, Discard::NoGroup, memory);
        } else if !self.ports[input].plan.forwards {
            self.discard(input, brief.place, Discard::ForwardingOff, memory);
        } else if self.test_way_back(Mode::Strict, input, key.source).is_err() {
            self.discard(input, brief.place, Discard::ReversePath, memory);
        } else if hop::expires(brief.hop_limit) {
            self.discard(input, brief.place, Discard::Expired, memory);
        } else {
            self.copy_to(now, input, brief, key, (&mut outputs, memory));
        }
        self.groups.outputs = outputs;
    }

    fn copy_to<A: Version, M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        brief: &Brief,
        key: &Key<A>,
        (outputs, memory): (&mut Vec<u16>, &mut M),
    ) {
        let is_cut = A::BITS == u32::BITS && brief.notes & DONT_FRAGMENT == 0;
        let mut narrow = Vec::new();
        outputs.retain(|&output| match self.obstacle(usize::from(output), brief) {
            None => true,
            Some(Discard::TooBig) => {
                narrow.push(output);
                false
            }
            Some(why) => {
                self.refuse_copy(input, why);
                false
            }
        });
        for output in narrow.iter().filter(|_| !is_cut) {
            let mtu_bytes = self.ports[usize::from(*output)].plan.mtu_bytes.into();
            self.report(now, input, brief.place, Problem::TooBig { mtu_bytes }, memory);
            self.refuse_copy(input, Discard::TooBig);
        }
        // Bytes behind the packet are padding of the link that it came by.
        let place = Place { bytes: ETHERNET_BYTES as u16 + brief.ip_bytes, ..brief.place };
        let frame = memory.frame_mut(place);
        frame[..6].copy_from_slice(&key.destination.group_mac());
        frame[12..14].copy_from_slice(&A::ETHERTYPE);
        let passed = A::decrement(&mut frame[ETHERNET_BYTES..]);
        debug_assert!(passed.is_ok(), "a packet at its end took the slow path");
        for output in narrow.iter().filter(|_| is_cut) {
            self.send_pieces(now, (input, usize::from(*output)), place, brief, memory);
        }
        let Some((last, others)) = outputs.split_last() else {
            return self.absorb(place, memory);
        };
        let mut packet = mem::take(&mut self.groups.packet);
        packet.clear();
        if !others.is_empty() {
            packet.extend_from_slice(memory.frame(place));
        }
        for output in others {
            if let Some(copy) = self.made(input, place.bytes, memory) {
                memory.frame_mut(copy).copy_from_slice(&packet);
                self.send_copy(now, (input, usize::from(*output)), copy, brief, memory);
            }
        }
        self.groups.packet = packet;
        self.send_copy(now, (input, usize::from(*last)), place, brief, memory);
    }

    /// Why a packet cannot leave by a port that wants it.
    fn obstacle(&self, output: usize, brief: &Brief) -> Option<Discard> {
        let port = &self.ports[output];
        let threshold = port.plan.multicast.as_ref().map_or(0, |plan| plan.ttl_threshold);
        if !port.is_open {
            Some(port.why_shut())
        } else if brief.hop_limit <= threshold {
            Some(Discard::Expired)
        } else {
            (brief.ip_bytes > port.plan.mtu_bytes).then_some(Discard::TooBig)
        }
    }

    /// A frame that cannot be made: it counts as made, and as discarded at once.
    pub(super) fn refuse_copy(&mut self, input: usize, why: Discard) {
        self.account.made += 1;
        self.account.discarded += 1;
        self.ports[input].discards.count(why);
    }

    fn send_copy<M: Memory>(
        &mut self,
        now: Time,
        ports: (usize, usize),
        place: Place,
        brief: &Brief,
        memory: &mut M,
    ) {
        let plan = &self.ports[ports.1].plan;
        memory.frame_mut(place)[6..12].copy_from_slice(&plan.mac);
        let ticket = Ticket {
            place,
            flow: brief.hash as u32,
            link_bytes: place.bytes + plan.overhead_bytes,
            bits: brief.traffic_class & 3 | brief.notes & header::RESERVED,
        };
        self.queue(now, ports, ticket, memory);
    }

    /// The fragments of an IPv4 packet whose link header and time to live are written.
    fn send_pieces<M: Memory>(
        &mut self,
        now: Time,
        ports: (usize, usize),
        place: Place,
        brief: &Brief,
        memory: &mut M,
    ) {
        let frame = memory.frame(place).to_vec();
        let (head, packet) = frame.split_at(ETHERNET_BYTES);
        let plan = &self.ports[ports.1].plan;
        let own = plan.mac;
        let Ok(mut fragments) = Fragments::of(packet, plan.mtu_bytes) else {
            return self.refuse_copy(ports.0, Discard::TooBig);
        };
        let mut piece = Vec::new();
        while fragments.next_into(&mut piece) {
            if let Some(part) = self.make(ports.0, &piece, memory) {
                let frame = memory.frame_mut(part);
                frame[..6].copy_from_slice(&head[..6]);
                frame[6..12].copy_from_slice(&own);
                let ticket = self.ticket(ports.1, part, memory).marked(brief.reserved(), 0);
                self.queue(now, ports, ticket, memory);
            }
        }
    }
}

/// Whether a frame for many carries a packet to a group that may leave its link, and not one of IGMP
/// or MLD: such a packet takes the fast path.
#[inline]
pub(super) fn is_for_group(frame: &[u8], header: &Header) -> bool {
    match &header.key {
        AnyKey::V4(key) => is_framed(frame, key.destination) && key.protocol != protocol::IGMP,
        AnyKey::V6(key) => is_framed(frame, key.destination) && !is_mld(frame, key, header),
    }
}

/// Whether the frame is for the group that the packet is for.
fn is_framed<A: Version>(frame: &[u8], group: A) -> bool {
    group.may_forward() && frame.starts_with(&group.group_mac())
}
