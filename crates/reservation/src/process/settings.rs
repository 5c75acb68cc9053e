//! Settings of an RSVP process: its interfaces, periods and limits.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_wire::{Rate, Span};

/// One interface of a router or host; ports are numbered in the order of interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its addresses; the first of an IP version is the source of its messages.
    pub addresses: Vec<IpAddr>,
    /// The capacity of its link, in each direction.
    pub capacity: Rate,
    /// How much of it may be reserved.
    pub reservable_percent: u8,
    /// What its link adds to each IP packet, in bytes; reservations are booked with it.
    pub overhead_bytes: u32,
    /// Its MTU in bytes, which ADSPEC reports.
    pub mtu_bytes: u32,
}

impl Interface {
    /// The interface of a link of this capacity, of which four fifths may be reserved.
    pub fn new(addresses: impl IntoIterator<Item = IpAddr>, capacity: Rate) -> Interface {
        let addresses = addresses.into_iter().collect();
        Interface {
            addresses,
            capacity,
            reservable_percent: 80,
            overhead_bytes: 0,
            mtu_bytes: 1_500,
        }
    }
}

nilometer_wire::named! {
    /// Which flows stay on their way when the routing table changes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum RoutePinning {
        /// Those with an explicit route.
        Explicit = "explicit",
        /// Those, and all others as long as they have a reservation (DER, 3.5).
        Reserved = "reserved",
    }
}

/// What an RSVP process is made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Its interfaces.
    pub interfaces: Vec<Interface>,
    /// R, the refresh period (RFC 2205, 3.7). Each refresh is sent after 0.5 to 1.5 of it, at random.
    pub refresh: Span,
    /// K: state outlives the loss of K - 1 refreshes in a row.
    pub losses: u32,
    /// Which routes are pinned.
    pub pinning: RoutePinning,
    /// The longest that state lives without a refresh, whatever period its sender names.
    pub lifetime_max: Span,
    /// The most sessions.
    pub sessions_max: usize,
    /// The most senders of a session, and the most reservations that receivers make in one.
    pub states_max: usize,
    /// The most reservations, of all kinds.
    pub reservations_max: usize,
    /// The plugin classes that setups may name; all others are refused.
    pub plugins: Vec<String>,
    /// The most plugin instances of all reservations together.
    pub plugin_instances_max: usize,
    /// The seed of the refreshes' jitter.
    pub seed: u64,
}

impl Settings {
    /// These interfaces, RFC 2205's R = 30 s and K = 3.
    pub fn new(interfaces: Vec<Interface>, seed: u64) -> Settings {
        Settings {
            interfaces,
            refresh: Span::from_secs(30),
            losses: 3,
            pinning: RoutePinning::Reserved,
            lifetime_max: Span::from_secs(3_600),
            sessions_max: 1_024,
            states_max: 64,
            reservations_max: 1_024,
            plugins: Vec::new(),
            plugin_instances_max: 64,
            seed,
        }
    }
}
