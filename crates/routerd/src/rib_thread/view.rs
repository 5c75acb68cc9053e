//! Views of the RIB thread's routes, for operators and tests.

use std::net::IpAddr;

use nilometer_router::{Address, AnyPrefix, Member, Prefix, Rib, Route, Source};

use super::Table;

/// A route as it is shown to the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteView {
    /// Where to.
    pub prefix: AnyPrefix,
    /// Its source.
    pub source: Source,
    /// By which protocol the source has it (`rtm_protocol`).
    pub protocol: u8,
    /// How far it is trusted, the less the better.
    pub distance: u8,
    /// The source's preference, the less the better.
    pub metric: u32,
    /// Whether packets go by it.
    pub is_best: bool,
    /// Its ways, whether they are up or not.
    pub members: Vec<Member>,
}

/// A route with its ways, as they are now.
pub(super) fn view<A: Address>(
    table: &Table,
    route: Route<A>,
    wrap: fn(Prefix<A>) -> AnyPrefix,
    is_best: bool,
) -> RouteView {
    let Route { prefix, source, protocol, metric, next } = route;
    RouteView {
        prefix: wrap(prefix),
        source,
        protocol,
        distance: source.distance(protocol),
        metric,
        is_best,
        members: table.hops().members(next),
    }
}

/// All routes to the longest prefix that contains an address, the best first.
pub(super) fn look_up(table: &Table, address: IpAddr) -> Vec<RouteView> {
    match address {
        IpAddr::V4(address) => longest(table, table.rib_v4(), u32::from(address), AnyPrefix::V4),
        IpAddr::V6(address) => longest(table, table.rib_v6(), u128::from(address), AnyPrefix::V6),
    }
}

fn longest<A: Address>(
    table: &Table,
    rib: &Rib<A>,
    address: A,
    wrap: fn(Prefix<A>) -> AnyPrefix,
) -> Vec<RouteView> {
    let prefixes = (0..=A::BITS).rev().filter_map(|length| Prefix::new(address, length));
    let mut candidates = prefixes.map(|prefix| rib.candidates(prefix));
    let found = candidates.find(|found| !found.is_empty()).unwrap_or_default();
    ranked(table, found, wrap)
}

/// All routes to one prefix, the best first.
pub(super) fn exact(table: &Table, prefix: AnyPrefix) -> Vec<RouteView> {
    match prefix {
        AnyPrefix::V4(prefix) => ranked(table, table.rib_v4().candidates(prefix), AnyPrefix::V4),
        AnyPrefix::V6(prefix) => ranked(table, table.rib_v6().candidates(prefix), AnyPrefix::V6),
    }
}

fn ranked<A: Address>(
    table: &Table,
    found: Vec<Route<A>>,
    wrap: fn(Prefix<A>) -> AnyPrefix,
) -> Vec<RouteView> {
    let routes = found.into_iter().enumerate();
    routes.map(|(rank, route)| view(table, route, wrap, rank == 0)).collect()
}
