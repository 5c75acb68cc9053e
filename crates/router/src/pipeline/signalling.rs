//! Signalling: packets of RSVP on their way out of the pipeline to the control processor, and into it from there.
//!
//! With signalling on, the slow path keeps each packet of protocol 46 that is for the router itself, or that carries the
//! router alert option (RFC 2113, RFC 2711), whose destination may be any host. Such packets end here: the control
//! processor sends a new message onward. With signalling off, they are packets like others.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_wire::Time;

use super::Router;
use super::decide::mac_of;
use super::version::Version;
use crate::discard::Discard;
use crate::forward::extension::{HopByHop, hop_by_hop};
use crate::forward::options::Options;
use crate::header::{AnyKey, ETHERNET_BYTES, Header};
use crate::memory::{Memory, Place};
use crate::next_hop::Hop;

/// Packets that may wait for the control processor; those beyond are counted and lost, and refreshes make them good.
pub const SIGNALLING_MAX: usize = 256;

/// The IANA protocol number of RSVP.
const RSVP: u8 = 46;

/// Packets that wait for the control processor.
#[derive(Debug, Default)]
pub(super) struct SignallingQueue {
    is_on: bool,
    waiting: VecDeque<(usize, Vec<u8>)>,
    lost: u64,
}

impl Router {
    /// Keeps packets of RSVP for the control processor from now on, or does not.
    pub fn set_signalling(&mut self, is_on: bool) {
        self.signalling.is_on = is_on;
        if !is_on {
            self.signalling.waiting.clear();
        }
    }

    /// An IP packet of RSVP and the port that it came by.
    pub fn poll_signalling(&mut self) -> Option<(usize, Vec<u8>)> {
        self.signalling.waiting.pop_front()
    }

    /// Packets that were discarded because too many were waiting.
    pub fn signalling_lost(&self) -> u64 {
        self.signalling.lost
    }

    /// Takes a packet of the slow path if it is of RSVP and meant for routers on the way, or for this one.
    pub(super) fn take_signalling<M: Memory>(
        &mut self,
        is_own: bool,
        (input, place): (usize, Place),
        memory: &mut M,
    ) -> bool {
        if !self.signalling.is_on {
            return false;
        }
        let frame = memory.frame(place);
        let Ok(header) = Header::read(frame) else { return false };
        let packet = &frame[ETHERNET_BYTES..];
        let (protocol, is_alert) = match header.key {
            AnyKey::V4(key) => {
                let options = Options::read(packet, self.plan.rfc1812.source_routing);
                (key.protocol, options.is_ok_and(|options| options.has_router_alert))
            }
            AnyKey::V6(key) => {
                let options = hop_by_hop(packet);
                (key.protocol, matches!(options, HopByHop::Pass { router_alert: Some(_) }))
            }
        };
        if protocol != RSVP || !is_own && !is_alert {
            return false;
        }
        match self.signalling.waiting.len() < SIGNALLING_MAX {
            true => {
                let packet = packet[..usize::from(header.ip_bytes)].to_vec();
                self.signalling.waiting.push_back((input, packet));
            }
            false => self.signalling.lost += 1,
        }
        self.absorb(place, memory);
        true
    }

    /// Sends an IP packet of the control processor by `output` to a neighbour there, once its link-layer address is
    /// known. One that does not fit the link is discarded.
    ///
    /// # Panics
    /// When there is no such port.
    pub fn send_signalling<M: Memory>(
        &mut self,
        now: Time,
        output: usize,
        next_hop: IpAddr,
        packet: &[u8],
        memory: &mut M,
    ) {
        if packet.len() > usize::from(self.ports[output].plan.mtu_bytes) {
            return self.refuse_copy(output, Discard::NoRoute);
        }
        let port = &mut self.ports[output];
        let lookup = match next_hop {
            IpAddr::V4(address) => u32::table(port).lookup(now, address.into()),
            IpAddr::V6(address) => u128::table(port).lookup(now, address.into()),
        };
        let Some(place) = self.make(output, packet, memory) else { return };
        let sent = mac_of(lookup, output as u16, next_hop).map(|(mac, _)| (output as u16, mac));
        self.send_directed(now, output, place, sent, memory);
    }

    /// Where a packet to this destination goes: the port, and the address of the next hop, that of the destination
    /// itself where it is directly connected. None where it stays here or goes nowhere.
    pub fn next_hop_to(&mut self, destination: IpAddr) -> Option<(u16, IpAddr)> {
        let next = match destination {
            IpAddr::V4(address) => u32::route(self, address.into()),
            IpAddr::V6(address) => u128::route(self, address.into()),
        };
        let (port, gateway, _) = self.way(next?, 0).ok()?;
        Some((port, gateway.unwrap_or(destination)))
    }

    /// The number of a next hop that is this gateway and nothing else, as long as some route has one.
    pub fn number_of_gateway(&self, port: u16, gateway: IpAddr) -> Option<crate::fib::NextHop> {
        self.hops.alone(&Hop::Via { port, gateway: Some(gateway) })
    }
}
