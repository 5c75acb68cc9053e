//! Sending outside batches: packets of the slow path, the router's own packets, and those that wait for
//! the link-layer address of their next hop.

use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_stat::Rng;
use nilometer_wire::Time;

use super::decide::{Egress, Turn};
use super::labelled::{header_of, ip_packet};
use super::port::Held;
use super::version::Version;
use super::{ReturnBuffers, Router, labelled};
use crate::discard::Discard;
use crate::forward::fragment::Fragments;
use crate::forward::icmp::Problem;
use crate::forward::{ecmp, source_fragment};
use crate::header::{ETHERNET_BYTES, Header, Unusable};
use crate::memory::{Memory, Place, Ticket};
use crate::neighbour::{FRAME_BYTES_MAX, Mac, Reason};

/// The purpose of the identification of fragments of IPv6.
const IDENTIFICATION: u32 = u32::from_be_bytes(*b"frag");

impl Router {
    /// A buffer for a frame that is made here, on account of `port`; nothing, and that counted as
    /// discarded, without a buffer.
    pub(super) fn made<M: Memory>(
        &mut self,
        port: usize,
        bytes: u16,
        memory: &mut M,
    ) -> Option<Place> {
        self.account.made += 1;
        let place = memory.take(bytes);
        if place.is_none() {
            self.account.discarded += 1;
            self.ports[port].discards.count(Discard::NoBuffer);
        }
        place
    }

    /// A buffer with `packet` behind an empty link header, made on account of `port`.
    pub(super) fn make<M: Memory>(
        &mut self,
        port: usize,
        packet: &[u8],
        memory: &mut M,
    ) -> Option<Place> {
        let Ok(bytes) = u16::try_from(ETHERNET_BYTES + packet.len()) else {
            self.refuse_copy(port, Discard::NoBuffer);
            return None;
        };
        let place = self.made(port, bytes, memory)?;
        memory.frame_mut(place)[ETHERNET_BYTES..].copy_from_slice(packet);
        let is_four = packet.first().is_some_and(|first| first >> 4 == 4);
        let kind = if is_four { <u32 as Version>::ETHERTYPE } else { <u128 as Version>::ETHERTYPE };
        memory.frame_mut(place)[12..14].copy_from_slice(&kind);
        Some(place)
    }

    /// Sends an IP packet of the router's own by `way`, in pieces where the link takes no more. It was
    /// made because of one that came by `input`. No error is sent for one that has no way.
    pub(super) fn send_own<M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        packet: &[u8],
        way: Result<Egress, Turn>,
        memory: &mut M,
    ) {
        let way = match way {
            Ok(way) => way,
            Err(Turn::Discard(why)) => return self.refuse_copy(input, why),
            Err(_) => return self.refuse_copy(input, Discard::NoRoute),
        };
        let mtu_bytes = self.ports[usize::from(way.0)].plan.mtu_bytes;
        if packet.len() <= usize::from(mtu_bytes) {
            return self.send_piece(now, input, packet, way, memory);
        }
        let pieces = match packet[0] >> 4 {
            4 => Fragments::of(packet, mtu_bytes).map_or(Vec::new(), Iterator::collect),
            _ => {
                self.slow.identification = self.slow.identification.wrapping_add(1);
                let index = self.slow.identification;
                let id = Rng::new(self.plan.seed, IDENTIFICATION, index).next_u64() as u32;
                source_fragment::pieces(packet, mtu_bytes, id)
            }
        };
        for piece in pieces {
            self.send_piece(now, input, &piece, way, memory);
        }
    }

    fn send_piece<M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        packet: &[u8],
        way: Egress,
        memory: &mut M,
    ) {
        let Some(place) = self.make(input, packet, memory) else { return };
        let sent = match packet[0] >> 4 {
            4 => self.reach(now, way, u32::destination(packet)),
            _ => self.reach(now, way, u128::destination(packet)),
        };
        self.send_directed(now, input, place, sent, memory);
    }

    /// Queues a packet at its output, lets it wait for an address, or discards it.
    pub(super) fn send_directed<M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        place: Place,
        sent: Result<(u16, Mac), Turn>,
        memory: &mut M,
    ) {
        self.send_reserved(now, (input, None), place, sent, memory);
    }

    /// [`Router::send_directed`] of a packet that waits in this reserved queue of its output, if that has a contract.
    pub(super) fn send_reserved<M: Memory>(
        &mut self,
        now: Time,
        (input, queue): (usize, Option<u16>),
        place: Place,
        sent: Result<(u16, Mac), Turn>,
        memory: &mut M,
    ) {
        self.send_marked(now, (input, queue, 0), place, sent, memory);
    }

    /// [`Router::send_directed`] of one that has met the filters of an output.
    pub(super) fn send_filtered<M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        place: Place,
        sent: Result<(u16, Mac), Turn>,
        memory: &mut M,
    ) {
        self.send_marked(now, (input, None, Ticket::FILTERED), place, sent, memory);
    }

    fn send_marked<M: Memory>(
        &mut self,
        now: Time,
        (input, queue, bits): (usize, Option<u16>, u8),
        place: Place,
        sent: Result<(u16, Mac), Turn>,
        memory: &mut M,
    ) {
        match sent {
            Ok((output, _)) | Err(Turn::Hold(output, _))
                if !self.ports[usize::from(output)].is_up =>
            {
                self.discard(input, place, Discard::PortDown, memory);
            }
            Ok((output, mac)) => {
                let own = self.ports[usize::from(output)].plan.mac;
                let frame = memory.frame_mut(place);
                frame[..6].copy_from_slice(&mac);
                frame[6..12].copy_from_slice(&own);
                let output = usize::from(output);
                let ticket = self.ticket(output, place, memory).marked(queue, bits);
                self.queue(now, (input, output), ticket, memory);
            }
            Err(Turn::Hold(output, address)) => {
                let output = usize::from(output);
                let own = self.ports[output].plan.mac;
                memory.frame_mut(place)[6..12].copy_from_slice(&own);
                let ticket = self.ticket(output, place, memory).marked(queue, bits);
                self.hold(now, (input, output), address, ticket, memory);
            }
            // A packet of our own for which there is no way is not complained about.
            Err(Turn::Slow(_)) => self.discard(input, place, Discard::NoRoute, memory),
            Err(Turn::Discard(why)) => self.discard(input, place, why, memory),
        }
    }

    pub(super) fn ticket<M: Memory>(&self, output: usize, place: Place, memory: &M) -> Ticket {
        let frame = memory.frame(place);
        let read = Header::read(frame);
        // A labelled packet is of the flow that the packet beneath is of; its ECN bits are not where they could be set.
        let is_labelled = read == Err(Unusable::Other(labelled::ETHERTYPE));
        let header = match is_labelled {
            true => ip_packet(frame).and_then(header_of),
            false => read.ok(),
        };
        let bits = header.map_or(0, |header| header.traffic_class & 3);
        let overhead = self.ports[output].plan.overhead_bytes;
        Ticket {
            place,
            flow: header.map_or(0, |header| ecmp::flow_hash(self.plan.seed, &header, None) as u32),
            link_bytes: place.bytes + overhead,
            bits: if is_labelled { 0 } else { bits },
        }
    }

    /// Queues a finished frame, from an input to an output.
    pub(super) fn send_frame<M: Memory>(
        &mut self,
        now: Time,
        ports: (usize, usize),
        place: Place,
        memory: &mut M,
    ) {
        if !self.ports[ports.1].is_up {
            return self.discard(ports.0, place, Discard::PortDown, memory);
        }
        let ticket = self.ticket(ports.1, place, memory);
        self.fabric.enqueue(now, ports, ticket, &mut ReturnBuffers(memory));
    }

    /// Lets a packet wait at its output for the link-layer address of its next hop.
    pub(super) fn hold<M: Memory>(
        &mut self,
        now: Time,
        ports: (usize, usize),
        address: IpAddr,
        ticket: Ticket,
        memory: &mut M,
    ) {
        let (input, output) = ports;
        let held = Held { input: input as u16, ticket };
        let port = &mut self.ports[output];
        let kept = match address {
            IpAddr::V4(address) => port.arp.table.hold(now, address.into(), held),
            IpAddr::V6(address) => port.discovery.table.hold(now, address.into(), held),
        };
        if kept.is_err() {
            self.discard(input, ticket.place, Discard::Unresolved, memory);
        }
    }

    /// Serves the neighbour tables: timers, packets whose neighbour has resolved or failed, requests.
    pub(super) fn serve_neighbours<M: Memory>(&mut self, now: Time, memory: &mut M) {
        let mut frame = [0; FRAME_BYTES_MAX];
        for output in 0..self.ports.len() {
            if !self.ports[output].is_up {
                continue;
            }
            if self.ports[output].poll_timeout().is_some_and(|due| due <= now) {
                self.ports[output].handle_timeout(now);
            }
            self.ports[output].apply_verdicts();
            while let Some(outcome) = self.ports[output].arp.table.poll_packet() {
                self.release(now, output, outcome.packet, outcome.fate, memory);
            }
            while let Some(outcome) = self.ports[output].discovery.table.poll_packet() {
                self.release(now, output, outcome.packet, outcome.fate, memory);
            }
            while let Some(bytes) = self.ports[output].poll_speech(&mut frame) {
                if let Some(place) = self.made(output, bytes as u16, memory) {
                    memory.frame_mut(place).copy_from_slice(&frame[..bytes]);
                    self.send_frame(now, (output, output), place, memory);
                }
            }
        }
    }

    /// A packet that was held: to its output's queue, or back to its sender as undeliverable. The sender
    /// gets an error only if the address does not answer (RFC 1812, 3.3.2): a packet that had to give
    /// way to a later one may well arrive when it is sent again.
    fn release<M: Memory>(
        &mut self,
        now: Time,
        output: usize,
        held: Held,
        fate: Result<Mac, Reason>,
        memory: &mut M,
    ) {
        let (input, place) = (usize::from(held.input), held.ticket.place);
        match fate {
            Ok(mac) => {
                memory.frame_mut(place)[..6].copy_from_slice(&mac);
                self.queue(now, (input, output), held.ticket, memory);
            }
            Err(reason) => {
                let problem =
                    (reason == Reason::Unreachable).then_some(Problem::AddressUnreachable);
                self.refuse(now, (input, place), problem, Discard::Unresolved, memory);
            }
        }
    }
}
