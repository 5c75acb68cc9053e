//! What a domain is known by: the address of its exporter, the dialect, its identifier.

use core::net::IpAddr;

use super::message::Dialect;

/// An observation domain (RFC 7011, 2; the source ID of RFC 3954, 5.1), unmistakably.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DomainKey {
    pub(super) address: IpAddr,
    pub(super) dialect: Dialect,
    pub(super) id: u32,
}
