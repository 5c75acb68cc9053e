//! A port of the router: its name, its neighbours, and its counters.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use nilometer_wire::Time;

use super::adjacency::Kept;
use super::broadcasts::Broadcasts;
use crate::discard::{Discard, Discards};
use crate::forward::urpf::Mode;
use crate::memory::{Place, Ticket};
use crate::neighbour::{Arp, Discovery, FRAME_BYTES_MAX, LinkAddress, Own, Settings, Table};
use crate::plugin::ChainId;

pub use super::port_plan::{PortError, PortPlan};

/// Packets that may wait to be punted out of the forwarding plane.
pub const PUNT_MAX: usize = 512;

/// Addresses that another had already which are remembered.
const DUPLICATES_MAX: usize = 64;

/// A packet that waits for its next hop's link-layer address: where it came in, and its ticket.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    pub(super) input: u16,
    pub(super) ticket: Ticket,
}

/// A port.
#[derive(Debug)]
pub struct RouterPort {
    pub(super) plan: PortPlan,
    pub(super) arp: Arp<Held>,
    pub(super) discovery: Discovery<Held>,
    /// IPv6 addresses that another on the link has.
    pub(super) duplicates: Vec<u128>,
    /// Packets to be punted out of the forwarding plane.
    pub(super) punt: VecDeque<Place>,
    pub(super) is_up: bool,
    /// Packets may be forwarded to here.
    pub(super) is_open: bool,
    /// Not every packet that comes here may be forwarded.
    pub(super) asks: bool,
    /// The instance that gets labelled frames, as a chain.
    pub(super) labels: Option<ChainId>,
    pub(super) discards: Discards,
    pub(super) in_packets: u64,
    pub(super) in_bytes: u64,
    pub(super) shortcut_packets: u64,
    pub(super) shortcut_bytes: u64,
}

impl RouterPort {
    pub(super) fn new(now: Time, plan: PortPlan, seed: u64) -> Result<RouterPort, PortError> {
        let (own4, own6) = plan.own()?;
        let mut discovery = match plan.address_probes {
            0 => Discovery::new(Settings::discovery(seed), own6.clone(), 0)?,
            probes => Discovery::new(Settings::discovery(seed), Own::new(plan.mac)?, probes)?,
        };
        for &(address, prefix) in own6.addresses().iter().filter(|_| plan.address_probes > 0) {
            discovery.add_address(now, address, prefix.length())?;
        }
        let mut port = RouterPort {
            arp: Arp::new(Settings::arp(seed), own4)?,
            discovery,
            duplicates: Vec::new(),
            punt: VecDeque::new(),
            is_up: !plan.is_vacant,
            is_open: false,
            asks: false,
            labels: None,
            discards: Discards::default(),
            in_packets: 0,
            in_bytes: 0,
            shortcut_packets: 0,
            shortcut_bytes: 0,
            plan,
        };
        port.settle();
        Ok(port)
    }

    /// The link-layer address of a gateway, if the kept handle is still valid.
    #[inline(always)]
    pub(super) fn ready(&self, kept: Kept) -> Option<LinkAddress> {
        match kept.is_six {
            false => self.arp.table.ready_link_address(kept.handle),
            true => self.discovery.table.ready_link_address(kept.handle),
        }
    }

    /// Derives the checks made on every packet from the plan and the state of the link.
    fn settle(&mut self) {
        self.is_open = self.is_up && self.plan.forwards;
        self.asks = !self.plan.forwards || self.plan.reverse_path != Mode::Off;
    }

    /// Why nothing is forwarded to here.
    #[cold]
    pub(super) fn why_shut(&self) -> Discard {
        if self.is_up { Discard::ForwardingOff } else { Discard::PortDown }
    }

    /// The link has gone down: neighbours are forgotten, and messages to be sent are dropped.
    pub(super) fn sleep(&mut self) {
        self.is_up = false;
        self.settle();
        self.arp.table.flush();
        self.discovery.table.flush();
        let mut frame = [0; FRAME_BYTES_MAX];
        while self.poll_speech(&mut frame).is_some() {}
    }

    /// The link has come up: addresses are announced, or first tested for duplicates.
    pub(super) fn wake(&mut self, now: Time) -> Result<(), PortError> {
        let (own4, own6) = self.plan.own()?;
        self.is_up = true;
        self.settle();
        own4.addresses().iter().for_each(|&(address, _)| self.arp.announce(address));
        self.duplicates.clear();
        for &(address, prefix) in own6.addresses() {
            self.discovery.try_again(now, address, prefix.length())?;
        }
        Ok(())
    }

    /// Other addresses, by a plan that differs in nothing else.
    pub(super) fn readdress(&mut self, now: Time, plan: PortPlan) -> Result<(), PortError> {
        let (new4, new6) = plan.own()?;
        let (old4, old6) = self.plan.own()?;
        let gone4 = old4.addresses().iter().filter(|there| !new4.has(there.0));
        gone4.for_each(|&(address, _)| _ = self.arp.table.remove_address(address));
        for &(address, prefix) in new4.addresses() {
            self.arp.table.add_address(address, prefix.length())?;
            if self.is_up && !old4.has(address) {
                self.arp.announce(address);
            }
        }
        let gone6 = old6.addresses().iter().filter(|there| !new6.has(there.0));
        for &(address, _) in gone6 {
            self.discovery.remove_address(address);
            self.duplicates.retain(|duplicate| *duplicate != address);
        }
        for &(address, prefix) in new6.addresses() {
            if !old6.addresses().contains(&(address, prefix)) {
                self.discovery.add_address(now, address, prefix.length())?;
            }
        }
        self.plan = plan;
        Ok(())
    }

    /// Makes the port vacant.
    pub(super) fn vacate(&mut self) {
        self.plan = PortPlan { is_vacant: true, multicast: None, ..self.plan.clone() };
        self.is_up = false;
        self.duplicates.clear();
        self.settle();
        for (address, _) in self.arp.table.own().addresses().to_vec() {
            self.arp.table.remove_address(address);
        }
        for (address, _) in self.plan.own().map_or(Vec::new(), |own| own.1.addresses().to_vec()) {
            self.discovery.remove_address(address);
        }
    }

    /// The next packet that waited for a neighbour and is released, whatever its outcome.
    pub(super) fn poll_held(&mut self) -> Option<Held> {
        let outcome = self.arp.table.poll_packet().map(|outcome| outcome.packet);
        outcome.or_else(|| self.discovery.table.poll_packet().map(|outcome| outcome.packet))
    }

    /// What it is.
    pub fn plan(&self) -> &PortPlan {
        &self.plan
    }

    /// Whether its link is up.
    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// Frames that came, and their bytes.
    pub fn received(&self) -> (u64, u64) {
        (self.in_packets, self.in_bytes)
    }

    /// Frames that left here by a shortcut, and their bytes as the link's rate counts.
    pub fn left_by_shortcut(&self) -> (u64, u64) {
        (self.shortcut_packets, self.shortcut_bytes)
    }

    /// Packets that came here and were discarded, by reason.
    pub fn discards(&self) -> &Discards {
        &self.discards
    }

    /// Its neighbours in IPv4.
    pub fn arp(&self) -> &Arp<Held> {
        &self.arp
    }

    /// Its neighbours in IPv4, to be set by hand.
    pub fn arp_mut(&mut self) -> &mut Arp<Held> {
        &mut self.arp
    }

    /// Its neighbours in IPv6 and their discovery.
    pub fn discovery(&self) -> &Discovery<Held> {
        &self.discovery
    }

    /// Its neighbours in IPv6.
    pub fn neighbours6(&self) -> &Table<u128, Held> {
        &self.discovery.table
    }

    /// Its neighbours in IPv6, to be set by hand.
    pub fn neighbours6_mut(&mut self) -> &mut Table<u128, Held> {
        &mut self.discovery.table
    }

    /// IPv6 addresses of its plan that it does not use, for another on the link has them (RFC 4862,
    /// 5.4.5), the latest 64.
    pub fn duplicates(&self) -> &[u128] {
        &self.duplicates
    }

    /// Sets the reverse path test of sources.
    pub fn set_reverse_path(&mut self, mode: Mode) {
        self.plan.reverse_path = mode;
        self.settle();
    }

    /// Forwards packets from here and to here, or not (RFC 1812, 5.3.11).
    pub fn set_forwards(&mut self, forwards: bool) {
        self.plan.forwards = forwards;
        self.settle();
    }

    /// Sets whether hosts are redirected to a better router on their network (RFC 1812, 5.2.7.2).
    pub fn set_redirects(&mut self, redirects: bool) {
        self.plan.redirects = redirects;
    }

    /// Sets whether packets for the router are punted out of the forwarding plane.
    pub fn set_punting(&mut self, is_punting: bool) {
        self.plan.is_punting = is_punting;
    }

    /// Packets that wait here: for an address, or to be punted.
    pub(super) fn held(&self) -> usize {
        self.arp.table.held() + self.discovery.table.held() + self.punt.len()
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        if !self.is_up {
            return None;
        }
        self.arp.poll_timeout().into_iter().chain(self.discovery.poll_timeout()).min()
    }

    /// Runs the timers of its neighbours that are due at `now`.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        self.arp.handle_timeout(now);
        self.discovery.handle_timeout(now);
    }

    /// Applies the results of duplicate address detection.
    pub(super) fn apply_verdicts(&mut self) {
        while let Some(verdict) = self.discovery.poll_verdict() {
            if verdict.is_ours {
                self.duplicates.retain(|address| *address != verdict.address);
                self.discovery.announce(verdict.address);
                continue;
            }
            if self.duplicates.len() == DUPLICATES_MAX {
                self.duplicates.remove(0);
            }
            self.duplicates.push(verdict.address);
        }
    }

    /// Whether `address` is of its plan, but on trial or another's.
    pub(super) fn withholds(&self, address: u128) -> bool {
        let is_tried = self.discovery.claims(address) && !self.discovery.table.own().has(address);
        is_tried || self.duplicates.contains(&address)
    }

    /// The next request or answer to a neighbour, written into `frame`; its length in bytes.
    pub(super) fn poll_speech(&mut self, frame: &mut [u8; FRAME_BYTES_MAX]) -> Option<usize> {
        self.arp.poll_transmit(frame).or_else(|| self.discovery.poll_transmit(frame))
    }
}

/// The broadcast addresses of all `ports`.
pub(super) fn broadcasts(ports: &[RouterPort]) -> Broadcasts {
    let own = ports.iter().flat_map(|port| port.arp.table.own().addresses());
    Broadcasts::of(own.map(|&(address, prefix)| (address, prefix.length())))
}
