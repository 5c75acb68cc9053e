//! What the keeper says about its routes, to people and to tests.

use std::net::IpAddr;

use nilometer_router::{Address, AnyPrefix, Member, Prefix, Rib, Route, Source};

use super::Table;

/// A route as it is told to a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteView {
    /// Where to.
    pub prefix: AnyPrefix,
    /// Who told it.
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

/// Which routes are asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Selection {
    /// Of this source alone.
    pub source: Option<Source>,
    /// Within this prefix, itself included; without one, of both families.
    pub within: Option<AnyPrefix>,
    /// The first so many in the order of their prefixes.
    pub most: usize,
}

fn view<A: Address>(
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

/// The routes that packets go by, of those that are asked for.
pub(super) fn list(table: &Table, selection: Selection) -> Vec<RouteView> {
    let (within4, within6) = match selection.within {
        None => (Prefix::new(0, 0), Prefix::new(0, 0)),
        Some(AnyPrefix::V4(within)) => (Some(within), None),
        Some(AnyPrefix::V6(within)) => (None, Some(within)),
    };
    let v4 = within4.map(|within| chosen(table.rib_v4(), within, selection)).unwrap_or_default();
    let v6 = within6.map(|within| chosen(table.rib_v6(), within, selection)).unwrap_or_default();
    let v4 = v4.into_iter().map(|route| view(table, route, AnyPrefix::V4, true));
    let v6 = v6.into_iter().map(|route| view(table, route, AnyPrefix::V6, true));
    v4.chain(v6).take(selection.most).collect()
}

fn chosen<A: Address>(rib: &Rib<A>, within: Prefix<A>, selection: Selection) -> Vec<Route<A>> {
    let is_chosen = |route: &Route<A>| {
        route.prefix.length() >= within.length()
            && within.contains(route.prefix.address())
            && selection.source.is_none_or(|source| source == route.source)
    };
    let mut routes: Vec<Route<A>> = rib.best().filter(is_chosen).collect();
    if routes.len() > selection.most {
        routes.select_nth_unstable_by_key(selection.most, |route| route.prefix);
        routes.truncate(selection.most);
    }
    routes.sort_unstable_by_key(|route| route.prefix);
    routes
}

/// All that was told about the longest prefix that contains an address, the best first.
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

/// All that was told about one prefix, the best first.
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
    let told = found.into_iter().enumerate();
    told.map(|(rank, route)| view(table, route, wrap, rank == 0)).collect()
}
