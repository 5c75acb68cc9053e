//! Routes, looked up, entered and withdrawn while packets pass: all that the desk wants of them.
//!
//! A new route's next hop is numbered first, then made known to the forwarding thread, and only then
//! does the route lead there, so that no packet meets a number that says nothing.

use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nilometer_router::next_hop::{Hop, Member, Rejection};
use nilometer_router::rib::{Route, Source};
use nilometer_router::route_update::{AnyPrefix, RouteUpdate, Way};

use super::answer::Refused;
use super::desk::Desk;
use super::view::{RouteView, RoutesView, WayView};
use crate::route::config::{RouteSection, RouterConfig};
use crate::route::routes::{Routes, by_hand, link_of, read_prefix};

/// Routes that may be entered by hand.
const ENTERED_MAX: usize = 10_000;

/// The routes, for one at a time.
pub(super) fn locked(routes: &Mutex<Routes>) -> MutexGuard<'_, Routes> {
    routes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Desk {
    /// What was told about a prefix, or about the longest one that contains an address; where nothing
    /// is asked for, what was entered by hand.
    ///
    /// # Errors
    /// 400 for what is neither prefix nor address, 404 where there is no route.
    pub fn routes(&self, asked: Option<&str>) -> Result<RoutesView, Refused> {
        let in_force = self.change();
        let routes = locked(&self.routes);
        let found = match asked {
            Some(text) => {
                let found = look_up(&routes, text, &in_force.config)?;
                if found.is_empty() {
                    return Err(Refused::missing(format!("there is no route to {text}")));
                }
                found
            }
            None => Vec::new(),
        };
        let entered = match asked {
            Some(_) => Vec::new(),
            None => in_force.config.routes.clone(),
        };
        let table = routes.table();
        Ok(RoutesView {
            prefixes_v4: table.rib_v4().prefixes(),
            prefixes_v6: table.rib_v6().prefixes(),
            routes: found,
            entered,
        })
    }

    /// Enters a route by hand, in place of one that was entered to the same prefix.
    ///
    /// # Errors
    /// 400 for a route that cannot be, 409 where there is no room.
    pub fn add_route(&self, route: RouteSection) -> Result<(), Refused> {
        let mut in_force = self.change();
        let update = by_hand(&route, &in_force.config).map_err(Refused::bad)?;
        let prefix = read_prefix(&route.prefix).map_err(Refused::bad)?;
        let place = entered(&in_force.config, prefix);
        if place.is_none() && in_force.config.routes.len() >= ENTERED_MAX {
            let why = format!("{ENTERED_MAX} routes may be entered by hand; a daemon tells more");
            return Err(Refused::conflict(why));
        }
        let mut routes = locked(&self.routes);
        let table = routes.table_mut();
        let held = table.hops_mut().intern(&members(&update)).map_err(Refused::conflict)?;
        self.renew(&mut routes)?;
        let table = routes.table_mut();
        let before = table.counters();
        table.apply(Source::Static, &[update]);
        table.hops_mut().release(held);
        let refused = table.counters().routes_refused - before.routes_refused;
        self.renew(&mut routes)?;
        if refused > 0 {
            return Err(Refused::conflict("there is no room for the route"));
        }
        self.told(format!("a route to {} is entered", route.prefix));
        match place {
            Some(place) => in_force.config.routes[place] = route,
            None => in_force.config.routes.push(route),
        }
        Ok(())
    }

    /// Withdraws a route that was entered by hand.
    ///
    /// # Errors
    /// 400 for what is no prefix, 404 where none was entered.
    pub fn remove_route(&self, text: &str) -> Result<(), Refused> {
        let prefix = read_prefix(text).map_err(Refused::bad)?;
        let mut in_force = self.change();
        let Some(place) = entered(&in_force.config, prefix) else {
            return Err(Refused::missing(format!("no route to {text} was entered by hand")));
        };
        let mut routes = locked(&self.routes);
        let metric = in_force.config.routes[place].metric;
        let update = RouteUpdate::Withdraw { prefix, metric };
        routes.table_mut().apply(Source::Static, &[update]);
        self.renew(&mut routes)?;
        in_force.config.routes.remove(place);
        self.told(format!("the route to {text} is withdrawn"));
        Ok(())
    }

    /// Makes the next hops known to the forwarding thread.
    fn renew(&self, routes: &mut Routes) -> Result<(), Refused> {
        let hops = routes.snapshot();
        self.ask(move |driver| driver.router_mut().set_hops(hops))
    }
}

/// Where a prefix stands among the routes entered by hand.
fn entered(config: &RouterConfig, prefix: AnyPrefix) -> Option<usize> {
    let is_same = |route: &RouteSection| read_prefix(&route.prefix).ok() == Some(prefix);
    config.routes.iter().position(is_same)
}

/// The ways of a route by hand in forwarding's own terms.
fn members(update: &RouteUpdate) -> Vec<Member> {
    let RouteUpdate::Announce { way, .. } = update else { return Vec::new() };
    let paths = match way {
        Way::Fate(hop) => return vec![Member { hop: *hop, weight: 1 }],
        Way::Path(path) => std::slice::from_ref(path),
        Way::Paths(paths) => paths,
        _ => &[],
    };
    let member = |path: &nilometer_router::Path| {
        let port = (path.link - link_of(0)) as u16;
        Member { hop: Hop::Via { port, gateway: path.gateway }, weight: path.weight }
    };
    paths.iter().map(member).collect()
}

fn look_up(routes: &Routes, text: &str, config: &RouterConfig) -> Result<Vec<RouteView>, Refused> {
    if text.contains('/') {
        let prefix = read_prefix(text).map_err(Refused::bad)?;
        return Ok(told_about(routes, prefix, config));
    }
    let address: IpAddr = text.parse().map_err(|_| {
        Refused::bad(format!("`{text}` is neither an address nor a prefix, as 198.18.0.0/16 is"))
    })?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let prefixes = (0..=longest).rev().filter_map(|length| AnyPrefix::new(address, length));
    let mut found = prefixes.map(|prefix| told_about(routes, prefix, config));
    Ok(found.find(|told| !told.is_empty()).unwrap_or_default())
}

fn told_about(routes: &Routes, prefix: AnyPrefix, config: &RouterConfig) -> Vec<RouteView> {
    let table = routes.table();
    let view = |text: String, source: Source, metric: u32, members: Vec<Member>| RouteView {
        prefix: text,
        source: format!("{source:?}").to_lowercase(),
        metric,
        ways: members.iter().map(|member| way(member, config)).collect(),
    };
    match prefix {
        AnyPrefix::V4(prefix) => {
            let route = |route: Route<u32>| {
                let members = table.hops().members(route.next);
                view(route.prefix.to_string(), route.source, route.metric, members)
            };
            table.rib_v4().candidates(prefix).into_iter().map(route).collect()
        }
        AnyPrefix::V6(prefix) => {
            let route = |route: Route<u128>| {
                let members = table.hops().members(route.next);
                view(route.prefix.to_string(), route.source, route.metric, members)
            };
            table.rib_v6().candidates(prefix).into_iter().map(route).collect()
        }
    }
}

fn way(member: &Member, config: &RouterConfig) -> WayView {
    let fate = match member.hop {
        Hop::Via { .. } => None,
        Hop::Local => Some("local"),
        Hop::Blackhole => Some("blackhole"),
        Hop::Reject(Rejection::Unreachable) => Some("unreachable"),
        Hop::Reject(Rejection::Prohibited) => Some("prohibited"),
        Hop::Multicast => Some("multicast"),
        Hop::Failed => Some("failed"),
    };
    let (interface, gateway) = match member.hop {
        Hop::Via { port, gateway } => {
            let section = config.ports.get(usize::from(port));
            (section.map(|section| section.interface.clone()), gateway.map(|it| it.to_string()))
        }
        _ => (None, None),
    };
    WayView { interface, gateway, fate: fate.map(str::to_owned), weight: member.weight }
}
