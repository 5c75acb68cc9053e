//! Routes of paths: the routing table's answer, or the next node of an explicit route (RFC 3209, 4.3.4).

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::message::{ErrorCode, ExplicitRoute};

/// A next hop behind a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NextHop {
    /// The output port.
    pub port: u32,
    /// The address on its link; that of the destination itself where it is directly connected.
    pub address: IpAddr,
}

/// The routing table as RSVP sees it (RFC 2205, 3.11.3: Route_Query).
pub trait Routing {
    /// Appends the next hops towards `destination`: one for a host, for a group one for each output.
    fn route_query(&self, destination: IpAddr, to: &mut Vec<NextHop>);
}

/// Where a path continues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Onward {
    /// This node is a destination.
    pub(super) is_local: bool,
    /// The next hops.
    pub(super) outputs: Vec<NextHop>,
    /// The nodes that are still ahead.
    pub(super) route: Option<ExplicitRoute>,
}

/// The way on from this node, whose addresses `is_own` accepts, for a flow that arrives by `input`.
///
/// A route lists the nodes that are still to be passed. Nodes at its head that are this node itself are removed. Then
/// a strict node must be a directly connected next hop, and a loose one is reached by the routing table. By RFC 3209
/// a router refuses a route that does not begin with itself; here that holds for a strict node, while a loose one may
/// lie further ahead, so that no router has to insert nodes.
pub(super) fn onward(
    routing: &impl Routing,
    destination: IpAddr,
    route: Option<&ExplicitRoute>,
    input: Option<u32>,
    is_own: impl Fn(IpAddr) -> bool,
) -> Result<Onward, ErrorCode> {
    let nodes = route.map_or(&[][..], |route| &route.0);
    let passed = nodes.iter().take_while(|node| is_own(node.address)).count();
    let ahead = &nodes[passed..];
    let mut outputs = Vec::new();
    let Some(next) = ahead.first() else {
        let is_local = is_own(destination);
        if !is_local || destination.is_multicast() {
            routing.route_query(destination, &mut outputs);
            // A flow does not leave by the port by which it arrives.
            outputs.retain(|output| Some(output.port) != input);
        }
        return match is_local || !outputs.is_empty() {
            true => Ok(Onward { is_local, outputs, route: None }),
            false => Err(ErrorCode::NO_ROUTE),
        };
    };
    if input.is_some() && passed == 0 && !next.is_loose {
        return Err(ErrorCode::BAD_INITIAL_SUBOBJECT);
    }
    routing.route_query(next.address, &mut outputs);
    outputs.truncate(1);
    let is_reached = |output: &NextHop| next.is_loose || next.contains(output.address);
    match outputs.first() {
        Some(output) if is_reached(output) && Some(output.port) != input => {
            let route = Some(ExplicitRoute(ahead.to_vec()));
            Ok(Onward { is_local: false, outputs, route })
        }
        _ if next.is_loose => Err(ErrorCode::BAD_LOOSE_NODE),
        _ => Err(ErrorCode::BAD_STRICT_NODE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::RouteNode;
    use core::net::Ipv4Addr;

    fn address(last: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, last))
    }

    /// Addresses below 10 are connected at the port of their number, all others are behind 192.0.2.9.
    struct Table;

    impl Routing for Table {
        fn route_query(&self, destination: IpAddr, to: &mut Vec<NextHop>) {
            let connected = (1..10).find(|last| address(*last) == destination).unwrap_or(9);
            if destination != address(200) {
                to.push(NextHop { port: connected.into(), address: address(connected) });
            }
        }
    }

    fn way(nodes: &[RouteNode], destination: u8) -> Result<Onward, ErrorCode> {
        let route = ExplicitRoute(nodes.to_vec());
        let is_own = |other| other == address(100);
        onward(&Table, address(destination), Some(&route), Some(1), is_own)
    }

    #[test]
    fn nodes_are_passed_in_their_order() {
        let [own, three] = [100, 3].map(|last| RouteNode::strict(address(last)));
        let far = RouteNode::loose(address(77));
        let to = |port, route: &[RouteNode]| Onward {
            is_local: false,
            outputs: Vec::from([NextHop { port, address: address(port as u8) }]),
            route: (!route.is_empty()).then(|| ExplicitRoute(route.to_vec())),
        };
        assert_eq!(way(&[own, three, far], 50), Ok(to(3, &[three, far])));
        assert_eq!(way(&[own, far, three], 50), Ok(to(9, &[far, three])));
        assert_eq!(way(&[far], 50), Ok(to(9, &[far])), "a loose node may lie ahead");
        assert_eq!(way(&[own], 50), Ok(to(9, &[])), "then as the table says");
        assert_eq!(way(&[own], 100).map(|onward| onward.is_local), Ok(true));
        assert_eq!(way(&[three], 50), Err(ErrorCode::BAD_INITIAL_SUBOBJECT));
        let strict = RouteNode::strict(address(77));
        assert_eq!(way(&[own, strict], 50), Err(ErrorCode::BAD_STRICT_NODE));
        let back = RouteNode::strict(address(1));
        assert_eq!(way(&[own, back], 50), Err(ErrorCode::BAD_STRICT_NODE), "where it came from");
        assert_eq!(way(&[], 200), Err(ErrorCode::NO_ROUTE));
    }
}
