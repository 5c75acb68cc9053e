//! What all sessions of a node share: its interfaces, admission, numbers, and what waits to be taken from it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_stat::Rng;
use nilometer_wire::{Span, Time};

use crate::admission::{Admission, ReservationId};
use crate::message::{FlowSpec, Hop, Message};
use crate::packet::Envelope;
use crate::process::outcome::{Command, Counts, Discard, Transmit, Upcall};
use crate::process::routing::NextHop;
use crate::process::settings::Settings;

/// The purpose of what is drawn for jitter.
const JITTER_PURPOSE: u32 = u32::from_be_bytes(*b"rsvj");
/// The TTL of messages that begin here.
pub(super) const TTL: u8 = 63;
/// The most messages that wait to be sent, and the most upcalls that wait to be taken.
const WAITING_MAX: usize = 4_096;
const PICOS_PER_MS: u64 = 1_000_000_000;

/// What is common to all sessions.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) settings: Settings,
    pub(super) admission: Admission,
    pub(super) counts: Counts,
    pub(super) groups: Vec<IpAddr>,
    pub(super) transmits: VecDeque<Transmit>,
    pub(super) commands: VecDeque<Command>,
    pub(super) upcalls: VecDeque<Upcall>,
    jitter: Rng,
    next_id: u64,
}

impl Node {
    pub(super) fn new(settings: Settings) -> Node {
        let ports = settings.interfaces.iter().map(|i| (i.capacity, i.reservable_percent));
        Node {
            admission: Admission::new(ports, settings.reservations_max),
            jitter: Rng::new(settings.seed, JITTER_PURPOSE, 0),
            settings,
            counts: Counts::default(),
            groups: Vec::new(),
            transmits: VecDeque::new(),
            commands: VecDeque::new(),
            upcalls: VecDeque::new(),
            next_id: 1,
        }
    }

    /// The source address of a port's messages to hosts of the IP version of `peer`.
    pub(super) fn address(&self, port: u32, peer: IpAddr) -> Option<IpAddr> {
        let interface = self.settings.interfaces.get(port as usize)?;
        interface.addresses.iter().copied().find(|own| own.is_ipv4() == peer.is_ipv4())
    }

    /// Whether an address is of this node, or of a group that it has joined.
    pub(super) fn is_own(&self, address: IpAddr) -> bool {
        let mut interfaces = self.settings.interfaces.iter();
        interfaces.any(|interface| interface.addresses.contains(&address))
            || self.groups.contains(&address)
    }

    /// An address of this node, for errors that it reports.
    pub(super) fn any_address(&self, peer: IpAddr) -> IpAddr {
        let mut ports = 0..self.settings.interfaces.len() as u32;
        ports.find_map(|port| self.address(port, peer)).unwrap_or(peer)
    }

    /// This node as the hop of messages that leave by a port.
    pub(super) fn hop(&self, port: u32, peer: IpAddr) -> Hop {
        let address = self.address(port, peer).unwrap_or_else(|| self.any_address(peer));
        Hop { address, handle: port }
    }

    /// Rate and bucket of a flowspec as the link of a port counts them.
    pub(super) fn on_link(&self, port: u32, flowspec: &FlowSpec) -> (u64, u32) {
        let interface = self.settings.interfaces.get(port as usize);
        flowspec.on_link(interface.map_or(0, |interface| interface.overhead_bytes))
    }

    pub(super) fn next_id(&mut self) -> ReservationId {
        self.next_id += 1;
        ReservationId(self.next_id - 1)
    }

    /// When a refresh that was sent at `now` is followed by the next: after 0.5 to 1.5 periods.
    pub(super) fn refresh_at(&mut self, now: Time) -> Time {
        let period = self.settings.refresh.0;
        now + Span(period / 2 + self.jitter.below(period.max(1)))
    }

    /// R in TIME_VALUES.
    pub(super) fn refresh_ms(&self) -> u32 {
        u32::try_from(self.settings.refresh.0 / PICOS_PER_MS).unwrap_or(u32::MAX)
    }

    /// When state ends that its sender refreshes in this period: L = (K + 0.5) * 1.5 * R (RFC 2205, 3.7).
    pub(super) fn expires_at(&self, now: Time, refresh_ms: u32) -> Time {
        let period = Span(u64::from(refresh_ms).saturating_mul(PICOS_PER_MS));
        let halves = 2 * u64::from(self.settings.losses) + 1;
        now + (period * (3 * halves) / 4).min(self.settings.lifetime_max)
    }

    /// Sends a message whose packet goes from this node to a neighbour.
    pub(super) fn send(&mut self, to: NextHop, message: &Message) {
        let Some(source) = self.address(to.port, to.address) else {
            self.counts.unsent += 1;
            return;
        };
        self.send_from(source, to.address, (to, TTL), message);
    }

    /// Sends a message between these addresses to a next hop with this TTL.
    pub(super) fn send_from(
        &mut self,
        source: IpAddr,
        destination: IpAddr,
        (to, ttl): (NextHop, u8),
        message: &Message,
    ) {
        let is_known = (to.port as usize) < self.settings.interfaces.len();
        if self.transmits.len() >= WAITING_MAX || !is_known {
            self.counts.unsent += 1;
            return;
        }
        let has_router_alert = message.message_type().has_router_alert();
        let envelope = Envelope { source, destination, ttl, has_router_alert };
        let (port, next_hop) = (to.port, to.address);
        let message = message.write(ttl);
        self.transmits.push_back(Transmit { port, next_hop, envelope, message });
        self.counts.sent += 1;
    }

    pub(super) fn upcall(&mut self, upcall: Upcall) {
        if self.upcalls.len() >= WAITING_MAX {
            self.counts.upcalls_lost += 1;
            return;
        }
        self.upcalls.push_back(upcall);
    }

    pub(super) fn discard(&mut self, why: Discard) {
        self.counts.discarded[why as usize] += 1;
    }
}
