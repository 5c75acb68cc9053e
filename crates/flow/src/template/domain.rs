//! The key of a domain: the address of its exporter, the dialect, its identifier.

use core::net::IpAddr;

use super::message::Dialect;

/// The unique key of an observation domain (RFC 7011, 2; the source ID of RFC 3954, 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DomainKey {
    pub(super) address: IpAddr,
    pub(super) dialect: Dialect,
    pub(super) id: u32,
}
