//! The configuration of a port: name, addresses, link, and what is done for its hosts.

use alloc::string::String;
use alloc::vec::Vec;

use nilometer_wire::{Rate, Span};

use super::multicast_plan::{MulticastError, MulticastPlan};
use crate::forward::urpf::Mode;
use crate::neighbour::{Family, Mac, Own, OwnError, SettingsError, link_local};

/// Bits of the prefix of link-local addresses (RFC 4291, 2.5.6).
const LINK_LOCAL_BITS: u32 = 64;

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
    /// How many probes for a duplicate are sent before an IPv6 address is used, a second apart (RFC
    /// 4862, DupAddrDetectTransmits: 1 unless set otherwise); 0 takes addresses at once.
    pub address_probes: u8,
    /// The rate of its link; without one, only the device limits it.
    pub rate: Option<Rate>,
    /// Bytes that its link sends at once beyond that rate to make up for late service
    /// ([`crate::Fabric::set_burst`]).
    pub burst_bytes: Option<u64>,
    /// By how much its link is made longer.
    pub delay: Span,
    /// Bytes that the link adds to a frame, as its rate counts: check sequence, preamble, gap.
    pub overhead_bytes: u16,
    /// Whether packets for the router itself are punted out of the forwarding plane, and those by
    /// links that only the kernel has. If not, it answers echo requests and discards the rest, and the
    /// links are out of reach.
    pub is_punting: bool,
    /// Whether sources are tested by the reverse path (RFC 3704).
    pub reverse_path: Mode,
    /// Whether hosts get redirects to a better router on their network (RFC 1812, 5.2.7.2).
    pub redirects: bool,
    /// What it does for groups; without it no host on its link is queried, and no group leaves by it.
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
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PortError {
    /// An MTU that IPv4 cannot use (RFC 791), or beyond 9,216.
    #[error("an MTU is 68 to 9216 bytes, not {0}")]
    Mtu(u16),
    /// An MTU that IPv6 cannot use (RFC 8200, 5), of a port with IPv6 addresses.
    #[error("a port with IPv6 addresses has an MTU of 1280 bytes at least, not {0}")]
    Mtu6(u16),
    /// An address that no port can have.
    #[error(transparent)]
    Own(#[from] OwnError),
    /// A limit of its neighbours.
    #[error(transparent)]
    Neighbours(#[from] SettingsError),
    /// What it is to do for groups.
    #[error(transparent)]
    Multicast(MulticastError),
}
