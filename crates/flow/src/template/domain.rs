//! What a domain is known by: the address of its exporter, the dialect, its identifier.

use core::net::IpAddr;

use super::message::Dialect;

/// A domain, unmistakably.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DomainKey {
    pub(super) address: IpAddr,
    pub(super) dialect: Dialect,
    pub(super) id: u32,
}
