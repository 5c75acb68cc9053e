//! EXPLICIT_ROUTE: the nodes that a path goes through, in their order (RFC 3209, 4.3).

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::message::bytes::{Contents, put_address, put_object};
use crate::message::class;
use crate::message::malformed::Malformed;

/// The most nodes of a route.
pub const NODES_MAX: usize = 32;

const IPV4_PREFIX: u8 = 1;
const IPV6_PREFIX: u8 = 2;
const IPV4_BYTES: u8 = 8;
const IPV6_BYTES: u8 = 20;
const LOOSE: u8 = 0x80;

/// One node of a route, named by an address of it or by a prefix that its address is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RouteNode {
    /// The address.
    pub address: IpAddr,
    /// How many of its bits count, 32 or 128 for one node.
    pub prefix_bits: u8,
    /// Whether other nodes may stand before it.
    pub is_loose: bool,
}

impl RouteNode {
    /// The node of this address, directly behind the one before.
    pub fn strict(address: IpAddr) -> RouteNode {
        RouteNode { address, prefix_bits: bits_of(address), is_loose: false }
    }

    /// The node of this address, wherever behind the one before.
    pub fn loose(address: IpAddr) -> RouteNode {
        RouteNode { is_loose: true, ..RouteNode::strict(address) }
    }

    /// Whether an address is the node's.
    pub fn contains(&self, address: IpAddr) -> bool {
        let shift = u32::from(bits_of(self.address).saturating_sub(self.prefix_bits));
        match (self.address, address) {
            (IpAddr::V4(ours), IpAddr::V4(other)) => {
                let differing = u32::from(ours) ^ u32::from(other);
                differing.checked_shr(shift).unwrap_or(0) == 0
            }
            (IpAddr::V6(ours), IpAddr::V6(other)) => {
                let differing = u128::from(ours) ^ u128::from(other);
                differing.checked_shr(shift).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

fn bits_of(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// EXPLICIT_ROUTE: at most [`NODES_MAX`] nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ExplicitRoute(pub Vec<RouteNode>);

impl ExplicitRoute {
    pub(crate) fn read(mut contents: Contents<'_>) -> Result<ExplicitRoute, Malformed> {
        if contents.c_type != 1 {
            return Err(contents.unknown_c_type());
        }
        let mut nodes = Vec::new();
        while !contents.is_empty() {
            if nodes.len() == NODES_MAX {
                return Err(Malformed::TooMany { what: "nodes of a route", most: NODES_MAX });
            }
            let [kind, bytes] = contents.take()?;
            let is_v6 = match (kind & !LOOSE, bytes) {
                (IPV4_PREFIX, IPV4_BYTES) => false,
                (IPV6_PREFIX, IPV6_BYTES) => true,
                _ => return Err(contents.value("a subobject of another kind or length")),
            };
            let address = contents.address(is_v6)?;
            let [prefix_bits, _reserved] = contents.take()?;
            if prefix_bits > bits_of(address) {
                return Err(contents.value("a prefix longer than its address"));
            }
            nodes.push(RouteNode { address, prefix_bits, is_loose: kind & LOOSE != 0 });
        }
        Ok(ExplicitRoute(nodes))
    }

    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        put_object(to, class::EXPLICIT_ROUTE, 1, |to| {
            for node in self.0.iter().take(NODES_MAX) {
                let loose = if node.is_loose { LOOSE } else { 0 };
                match node.address {
                    IpAddr::V4(_) => to.extend([IPV4_PREFIX | loose, IPV4_BYTES]),
                    IpAddr::V6(_) => to.extend([IPV6_PREFIX | loose, IPV6_BYTES]),
                }
                put_address(to, node.address);
                to.extend([node.prefix_bits, 0]);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn a_node_is_an_address_or_a_prefix() {
        let address = |last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last));
        let node = RouteNode::strict(address(1));
        assert!(node.contains(address(1)) && !node.contains(address(2)));
        let net = RouteNode { prefix_bits: 24, ..node };
        assert!(net.contains(address(2)));
        assert!(!net.contains(IpAddr::V4(Ipv4Addr::new(192, 0, 3, 1))));
        let all = RouteNode { prefix_bits: 0, ..node };
        assert!(all.contains(IpAddr::V4(Ipv4Addr::BROADCAST)));
        assert!(!all.contains(IpAddr::V6(Ipv6Addr::LOCALHOST)));
        let six = RouteNode::loose(IpAddr::V6(Ipv6Addr::LOCALHOST));
        assert!(six.contains(IpAddr::V6(Ipv6Addr::LOCALHOST)));
    }
}
