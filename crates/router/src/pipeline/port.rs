//! A port of the router: what it is called by, who its neighbours are, what it has counted.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use nilometer_wire::{Rate, Span, Time};

use super::adjacency::Kept;
use super::broadcasts::Broadcasts;
use super::groups::{MulticastError, MulticastPlan};
use super::version::Version;
use crate::discard::{Discard, Discards};
use crate::forward::urpf::Mode;
use crate::memory::{Place, Ticket};
use crate::neighbour::{
    Arp, Discovery, FRAME_BYTES_MAX, Family, Mac, Own, OwnError, Settings, SettingsError, Station,
    Table, link_local,
};

/// Packets that may wait for who runs beside the forwarding plane.
pub const PUNT_MAX: usize = 512;

/// Bits of the prefix of link-local addresses (RFC 4291, 2.5.6).
const LINK_LOCAL_BITS: u32 = 64;
/// Addresses that another had already which are remembered.
const DUPLICATES_MAX: usize = 64;

/// What a port is to be.
#[derive(Clone, Debug, PartialEq)]
pub struct PortPlan {
    /// Its name, for people.
    pub name: String,
    /// Its link-layer address.
    pub mac: Mac,
    /// The largest IP packet of its link, 68 to 9,216 bytes; 1,280 at least for IPv6.
    pub mtu_bytes: u16,
    /// Its IPv4 addresses, each with the length of its network.
    pub addresses4: Vec<(u32, u8)>,
    /// Its IPv6 addresses, each with the length of its network.
    pub addresses6: Vec<(u128, u8)>,
    /// Its link-local address; without one, a port that has other IPv6 addresses makes itself one of
    /// its link-layer address (RFC 4291, 2.5.6; RFC 2464, 5).
    pub link_local: Option<u128>,
    /// How often the link is asked whether another has an IPv6 address before it is used, a second
    /// apart (RFC 4862, DupAddrDetectTransmits: 1 unless set otherwise); 0 takes addresses at once.
    pub address_probes: u8,
    /// The rate to which its link is held; without one, only the device limits it.
    pub rate: Option<Rate>,
    /// Bytes that its link sends at once beyond that rate to make up for late service
    /// ([`crate::Fabric::set_burst`]).
    pub burst_bytes: Option<u64>,
    /// By how much its link is made longer.
    pub delay: Span,
    /// Bytes that the link adds to a frame, as its rate counts: check sequence, preamble, gap.
    pub overhead_bytes: u16,
    /// Whether packets for the router itself go to who runs beside the forwarding plane, and those by
    /// links that only the kernel has. If not, it answers echo requests and discards the rest, and the
    /// links are out of reach.
    pub is_punting: bool,
    /// Whether sources are tested by the way back (RFC 3704).
    pub reverse_path: Mode,
    /// Whether hosts are told of a better router on their network (RFC 1812, 5.2.7.2).
    pub redirects: bool,
    /// What it does for groups; without it nobody on its link is asked, and no group leaves by it.
    pub multicast: Option<MulticastPlan>,
    /// Whether packets are forwarded from here and to here; if not, the port is for the router's own
    /// (RFC 1812, 5.3.11).
    pub forwards: bool,
    /// Whether it is only a place for a port that comes later.
    pub is_vacant: bool,
}

impl PortPlan {
    /// A port without addresses: MTU 1,500, no rate, no delay, no overhead.
    pub fn new(name: &str, mac: Mac) -> PortPlan {
        PortPlan {
            name: name.into(),
            mac,
            mtu_bytes: 1_500,
            addresses4: Vec::new(),
            addresses6: Vec::new(),
            link_local: None,
            address_probes: 1,
            rate: None,
            burst_bytes: None,
            delay: Span::ZERO,
            overhead_bytes: 0,
            is_punting: false,
            reverse_path: Mode::Off,
            redirects: true,
            multicast: None,
            forwards: true,
            is_vacant: false,
        }
    }

    /// A place for a port that comes later ([`super::Router::plug`]); its link is down.
    pub fn vacant() -> PortPlan {
        PortPlan { is_vacant: true, ..PortPlan::new("", [2, 0, 0, 0, 0, 0]) }
    }
}

impl PortPlan {
    /// All of its addresses, the link-local one among them.
    pub(super) fn own(&self) -> Result<(Own<u32>, Own<u128>), PortError> {
        if !(68..=9_216).contains(&self.mtu_bytes) {
            return Err(PortError::Mtu(self.mtu_bytes));
        }
        let (mut own4, mut own6) = (Own::new(self.mac)?, Own::new(self.mac)?);
        for &(address, length) in &self.addresses4 {
            own4.add(address, u32::from(length))?;
        }
        if let Some(address) = self.link_local() {
            own6.add(address, LINK_LOCAL_BITS)?;
        }
        for &(address, length) in &self.addresses6 {
            own6.add(address, u32::from(length))?;
        }
        if self.mtu_bytes < 1_280 && !own6.addresses().is_empty() {
            return Err(PortError::Mtu6(self.mtu_bytes));
        }
        Ok((own4, own6))
    }

    /// Its link-local address, given or made.
    pub(super) fn link_local(&self) -> Option<u128> {
        let made = (!self.addresses6.is_empty()).then(|| link_local(self.mac));
        let is_given = |there: &&(u128, u8)| there.0.is_link_local();
        let given = self.addresses6.iter().find(is_given).map(|there| there.0);
        self.link_local.or(given).or(made)
    }
}

/// Why a port cannot be as described.
#[derive(Clone, Debug, PartialEq)]
pub enum PortError {
    /// An MTU that IPv4 cannot use (RFC 791), or beyond 9,216.
    Mtu(u16),
    /// An MTU that IPv6 cannot use (RFC 8200, 5), of a port with IPv6 addresses.
    Mtu6(u16),
    /// An address that no port can have.
    Own(OwnError),
    /// A limit of its neighbours.
    Neighbours(SettingsError),
    /// What it is to do for groups.
    Multicast(MulticastError),
}

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortError::Mtu(bytes) => write!(f, "an MTU is 68 to 9216 bytes, not {bytes}"),
            PortError::Mtu6(bytes) => {
                write!(
                    f,
                    "a port with IPv6 addresses has an MTU of 1280 bytes at least, not {bytes}"
                )
            }
            PortError::Own(why) => why.fmt(f),
            PortError::Neighbours(why) => why.fmt(f),
            PortError::Multicast(why) => why.fmt(f),
        }
    }
}

impl core::error::Error for PortError {}

impl From<OwnError> for PortError {
    fn from(why: OwnError) -> PortError {
        PortError::Own(why)
    }
}

impl From<SettingsError> for PortError {
    fn from(why: SettingsError) -> PortError {
        PortError::Neighbours(why)
    }
}

/// A packet that waits for its next hop's link-layer address: where it came in, and its ticket.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    pub(super) input: u16,
    pub(super) ticket: Ticket,
}

/// A port.
#[derive(Debug)]
pub struct Port {
    pub(super) plan: PortPlan,
    pub(super) arp: Arp<Held>,
    pub(super) discovery: Discovery<Held>,
    /// IPv6 addresses that another on the link has.
    pub(super) duplicates: Vec<u128>,
    /// On the way to who runs beside the forwarding plane.
    pub(super) punt: VecDeque<Place>,
    pub(super) is_up: bool,
    /// Packets may be forwarded to here.
    pub(super) is_open: bool,
    /// Not every packet that comes here may be forwarded.
    pub(super) asks: bool,
    pub(super) discards: Discards,
    pub(super) in_packets: u64,
    pub(super) in_bytes: u64,
    pub(super) shortcut_packets: u64,
    pub(super) shortcut_bytes: u64,
}

impl Port {
    pub(super) fn new(now: Time, plan: PortPlan, seed: u64) -> Result<Port, PortError> {
        let (own4, own6) = plan.own()?;
        let mut discovery = match plan.address_probes {
            0 => Discovery::new(Settings::discovery(seed), own6.clone(), 0)?,
            probes => Discovery::new(Settings::discovery(seed), Own::new(plan.mac)?, probes)?,
        };
        for &(address, prefix) in own6.addresses().iter().filter(|_| plan.address_probes > 0) {
            discovery.add_address(now, address, prefix.length())?;
        }
        let mut port = Port {
            arp: Arp::new(Settings::arp(seed), own4)?,
            discovery,
            duplicates: Vec::new(),
            punt: VecDeque::new(),
            is_up: !plan.is_vacant,
            is_open: false,
            asks: false,
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

    /// The station of a gateway, if the handle that is kept says it.
    #[inline(always)]
    pub(super) fn ready(&self, kept: Kept) -> Option<Station> {
        match kept.is_six {
            false => self.arp.table.ready_station(kept.handle),
            true => self.discovery.table.ready_station(kept.handle),
        }
    }

    /// What is asked of every packet, from the plan and the state of the link.
    fn settle(&mut self) {
        self.is_open = self.is_up && self.plan.forwards;
        self.asks = !self.plan.forwards || self.plan.reverse_path != Mode::Off;
    }

    /// Why nothing is forwarded to here.
    #[cold]
    pub(super) fn why_shut(&self) -> Discard {
        if self.is_up { Discard::ForwardingOff } else { Discard::PortDown }
    }

    /// The link has gone down: neighbours are forgotten, what was to be said is not.
    pub(super) fn sleep(&mut self) {
        self.is_up = false;
        self.settle();
        self.arp.table.flush();
        self.discovery.table.flush();
        let mut frame = [0; FRAME_BYTES_MAX];
        while self.poll_speech(&mut frame).is_some() {}
    }

    /// The link has come up: addresses are announced, or tried first.
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

    /// Nobody's port from now on.
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

    /// The next packet that waited for a neighbour and is let go, whatever came of it.
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

    /// Its neighbours in IPv6 and who speaks for it.
    pub fn discovery(&self) -> &Discovery<Held> {
        &self.discovery
    }

    /// Who speaks for it in IPv6, to be told to advertise the router.
    pub fn discovery_mut(&mut self) -> &mut Discovery<Held> {
        &mut self.discovery
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

    /// Tests sources by the way back, or not.
    pub fn set_reverse_path(&mut self, mode: Mode) {
        self.plan.reverse_path = mode;
        self.settle();
    }

    /// Forwards packets from here and to here, or not (RFC 1812, 5.3.11).
    pub fn set_forwards(&mut self, forwards: bool) {
        self.plan.forwards = forwards;
        self.settle();
    }

    /// Tells hosts of a better router on their network, or not (RFC 1812, 5.2.7.2).
    pub fn set_redirects(&mut self, redirects: bool) {
        self.plan.redirects = redirects;
    }

    /// Hands packets for the router to who runs beside the forwarding plane, or not.
    pub fn set_punting(&mut self, is_punting: bool) {
        self.plan.is_punting = is_punting;
    }

    /// Whether who sends to `destination` means this link: a group, a link-local address, one of the
    /// port's own.
    pub(super) fn is_of_link(&self, destination: u128) -> bool {
        destination.is_multicast()
            || destination.is_link_local()
            || self.discovery.table.own().has(destination)
    }

    /// Packets that wait here: for an address, or to be fetched by who runs beside.
    pub(super) fn held(&self) -> usize {
        self.arp.table.held() + self.discovery.table.held() + self.punt.len()
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        if !self.is_up {
            return None;
        }
        self.arp.poll_timeout().into_iter().chain(self.discovery.poll_timeout()).min()
    }

    /// What the timers of its neighbours ask for at `now`.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        self.arp.handle_timeout(now);
        self.discovery.handle_timeout(now);
    }

    /// What came of addresses on trial.
    pub(super) fn heed_verdicts(&mut self) {
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

    /// The next frame that asks or answers a neighbour, written into `frame`; its length in bytes.
    pub(super) fn poll_speech(&mut self, frame: &mut [u8; FRAME_BYTES_MAX]) -> Option<usize> {
        self.arp.poll_transmit(frame).or_else(|| self.discovery.poll_transmit(frame))
    }
}

/// The broadcast addresses of all `ports`.
pub(super) fn broadcasts(ports: &[Port]) -> Broadcasts {
    let own = ports.iter().flat_map(|port| port.arp.table.own().addresses());
    Broadcasts::of(own.map(|&(address, prefix)| (address, prefix.length())))
}
