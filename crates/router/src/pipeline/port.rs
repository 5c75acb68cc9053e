//! A port of the router: what it is called by, who its neighbours are, what it has counted.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use nilometer_wire::{Rate, Span, Time};

use crate::discard::Discards;
use crate::forward::urpf::Mode;
use crate::memory::{Place, Ticket};
use crate::neighbour::{Arp, Mac, Own, OwnError, Settings, SettingsError, Table};

/// Packets that may wait for who runs beside the forwarding plane.
pub const PUNT_MAX: usize = 512;

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
    /// The rate to which its link is held; without one, only the device limits it.
    pub rate: Option<Rate>,
    /// By how much its link is made longer.
    pub delay: Span,
    /// Bytes that the link adds to a frame, as its rate counts: check sequence, preamble, gap.
    pub overhead_bytes: u16,
    /// Whether packets for the router itself go to who runs beside the forwarding plane. If not, it
    /// answers echo requests and discards the rest.
    pub is_punting: bool,
    /// Whether sources are tested by the way back (RFC 3704).
    pub reverse_path: Mode,
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
            rate: None,
            delay: Span::ZERO,
            overhead_bytes: 0,
            is_punting: false,
            reverse_path: Mode::Off,
        }
    }
}

/// Why a port cannot be as described.
#[derive(Clone, Debug, PartialEq)]
pub enum PortError {
    /// An MTU that IPv4 cannot use (RFC 791), or beyond 9,216.
    Mtu(u16),
    /// An address that no port can have.
    Own(OwnError),
    /// A limit of its neighbours.
    Neighbours(SettingsError),
}

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortError::Mtu(bytes) => write!(f, "an MTU is 68 to 9216 bytes, not {bytes}"),
            PortError::Own(why) => why.fmt(f),
            PortError::Neighbours(why) => why.fmt(f),
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
    pub(super) neighbours6: Table<u128, Held>,
    /// On the way to who runs beside the forwarding plane.
    pub(super) punt: VecDeque<Place>,
    pub(super) is_up: bool,
    pub(super) discards: Discards,
    pub(super) in_packets: u64,
    pub(super) in_bytes: u64,
}

impl Port {
    pub(super) fn new(plan: PortPlan, seed: u64) -> Result<Port, PortError> {
        if !(68..=9_216).contains(&plan.mtu_bytes) {
            return Err(PortError::Mtu(plan.mtu_bytes));
        }
        let (mut own4, mut own6) = (Own::new(plan.mac)?, Own::new(plan.mac)?);
        for &(address, length) in &plan.addresses4 {
            own4.add(address, u32::from(length))?;
        }
        for &(address, length) in &plan.addresses6 {
            own6.add(address, u32::from(length))?;
        }
        Ok(Port {
            arp: Arp::new(Settings::arp(seed), own4)?,
            neighbours6: Table::new(Settings::discovery(seed), own6)?,
            punt: VecDeque::new(),
            is_up: true,
            discards: Discards::default(),
            in_packets: 0,
            in_bytes: 0,
            plan,
        })
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

    /// Its neighbours in IPv6; so far they are set by hand.
    pub fn neighbours6(&self) -> &Table<u128, Held> {
        &self.neighbours6
    }

    /// Its neighbours in IPv6, to be set by hand.
    pub fn neighbours6_mut(&mut self) -> &mut Table<u128, Held> {
        &mut self.neighbours6
    }

    /// Tests sources by the way back, or not.
    pub fn set_reverse_path(&mut self, mode: Mode) {
        self.plan.reverse_path = mode;
    }

    /// Packets that wait here: for an address, or to be fetched by who runs beside.
    pub(super) fn held(&self) -> usize {
        self.arp.table.held() + self.neighbours6.held() + self.punt.len()
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.arp.poll_timeout().into_iter().chain(self.neighbours6.poll_timeout()).min()
    }

    /// Whether `address` is the broadcast address of one of its networks (RFC 1812, 4.2.3.1).
    pub(super) fn is_broadcast(&self, address: u32) -> bool {
        self.plan.addresses4.iter().any(|&(own, length)| {
            let host_bits = u32::MAX.checked_shr(u32::from(length)).unwrap_or(0);
            length < 31 && own | host_bits == address
        })
    }
}
