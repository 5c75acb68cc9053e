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
    /// Behind this prefix in the order of prefixes, IPv4 before IPv6.
    pub after: Option<AnyPrefix>,
    /// The first so many in that order.
    pub most: usize,
}

/// Routes that were asked for, and how many more there are of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// The first, by prefix.
    pub routes: Vec<RouteView>,
    /// Those behind them.
    pub more: usize,
}

/// The first of the routes of a family, and how many were asked for in all.
struct First<A> {
    routes: Vec<Route<A>>,
    count: usize,
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
pub(super) fn list(table: &Table, selection: Selection) -> Listing {
    let (within4, within6) = match selection.within {
        None => (Prefix::new(0, 0), Prefix::new(0, 0)),
        Some(AnyPrefix::V4(within)) => (Some(within), None),
        Some(AnyPrefix::V6(within)) => (None, Some(within)),
    };
    let (within4, after4, after6) = match selection.after {
        None => (within4, None, None),
        Some(AnyPrefix::V4(after)) => (within4, Some(after), None),
        Some(AnyPrefix::V6(after)) => (None, None, Some(after)),
    };
    let v4 = first(table.rib_v4(), (within4, after4), selection);
    let v6 = first(table.rib_v6(), (within6, after6), selection);
    let count = v4.count + v6.count;
    let v4 = v4.routes.into_iter().map(|route| view(table, route, AnyPrefix::V4, true));
    let v6 = v6.routes.into_iter().map(|route| view(table, route, AnyPrefix::V6, true));
    let routes: Vec<RouteView> = v4.chain(v6).take(selection.most).collect();
    Listing { more: count - routes.len(), routes }
}

/// Goes over all routes once, with room for twice as many as are wanted: whenever it is full, those
/// that cannot be among the first go, and nothing behind them is taken any more.
fn first<A: Address>(
    rib: &Rib<A>,
    (within, after): (Option<Prefix<A>>, Option<Prefix<A>>),
    selection: Selection,
) -> First<A> {
    let mut first = First { routes: Vec::new(), count: 0 };
    let Some(within) = within else { return first };
    let (most, mut end) = (selection.most, None);
    let is_asked_for = |route: &Route<A>| {
        route.prefix.length() >= within.length()
            && within.contains(route.prefix.address())
            && after.is_none_or(|after| after < route.prefix)
            && selection.source.is_none_or(|source| source == route.source)
    };
    for route in rib.best().filter(is_asked_for) {
        first.count += 1;
        if most == 0 || end.is_some_and(|end| end < route.prefix) {
            continue;
        }
        first.routes.push(route);
        if first.routes.len() >= most.saturating_mul(2) {
            first.routes.select_nth_unstable_by_key(most - 1, |route| route.prefix);
            first.routes.truncate(most);
            end = first.routes.last().map(|route| route.prefix);
        }
    }
    first.routes.sort_unstable_by_key(|route| route.prefix);
    first.routes.truncate(most);
    first
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
