//! Routes, looked up, entered and withdrawn while packets pass: all that the desk wants of them.

use std::net::IpAddr;

use nilometer_router::next_hop::{Hop, Member, Rejection};
use nilometer_router::rib::Source;
use nilometer_router::route_update::AnyPrefix;

use super::answer::Refused;
use super::desk::Desk;
use super::view::{RouteView, RoutesView, SourceView, WayView};
use crate::route::config::{RouteSection, RouterConfig};
use crate::route::keeper::{self, Keeper};
use crate::route::routes::{by_hand, entered, read_prefix};

/// Routes that may be entered by hand.
const ENTERED_MAX: usize = 10_000;

impl Desk {
    /// What was told about a prefix, or about the longest one that contains an address; where nothing
    /// is asked for, what was entered by hand.
    ///
    /// # Errors
    /// 400 for what is neither prefix nor address, 404 where there is no route.
    pub fn routes(&self, asked: Option<&str>) -> Result<RoutesView, Refused> {
        let keeper = self.routes.keeper();
        let in_force = self.change();
        let (routes, entered) = match asked {
            Some(text) => {
                let told = look_up(keeper, text)?;
                if told.is_empty() {
                    return Err(Refused::missing(format!("there is no route to {text}")));
                }
                let view = |told| route_view(told, &in_force.config);
                (told.iter().map(view).collect(), Vec::new())
            }
            None => (Vec::new(), in_force.config.routes.clone()),
        };
        drop(in_force);
        let status = keeper.status();
        let (prefixes_v4, prefixes_v6) = (status.prefixes_v4, status.prefixes_v6);
        Ok(RoutesView { prefixes_v4, prefixes_v6, sources: self.sources(), routes, entered })
    }

    /// Who tells routes, and how many.
    fn sources(&self) -> Vec<SourceView> {
        let view = |count: keeper::RouteCount| SourceView {
            source: count.source.to_string(),
            v4: count.v4,
            v6: count.v6,
            replaying: count.is_replaying,
            connected: match count.source {
                Source::Fpm => self.routes.fpm().map(|fpm| fpm.is_connected),
                _ => None,
            },
        };
        self.routes.keeper().counts().into_iter().map(view).collect()
    }

    /// Enters a route by hand, in place of one that was entered to the same prefix.
    ///
    /// # Errors
    /// 400 for a route that cannot be, 409 where there is no room.
    pub fn add_route(&self, route: RouteSection) -> Result<(), Refused> {
        let mut in_force = self.change();
        by_hand(&route, &in_force.config).map_err(Refused::bad)?;
        let prefix = read_prefix(&route.prefix).map_err(Refused::bad)?;
        let before = in_force.config.routes.clone();
        let text = route.prefix.clone();
        match place_of(&before, prefix) {
            Some(place) => in_force.config.routes[place] = route,
            None if before.len() < ENTERED_MAX => in_force.config.routes.push(route),
            None => {
                let why =
                    format!("{ENTERED_MAX} routes may be entered by hand; a daemon tells more");
                return Err(Refused::conflict(why));
            }
        }
        if self.enter(&in_force.config)? > 0 {
            in_force.config.routes = before;
            self.enter(&in_force.config)?;
            return Err(Refused::conflict("there is no room for the route"));
        }
        self.told(format!("a route to {text} is entered"));
        Ok(())
    }

    /// Withdraws a route that was entered by hand.
    ///
    /// # Errors
    /// 400 for what is no prefix, 404 where none was entered.
    pub fn remove_route(&self, text: &str) -> Result<(), Refused> {
        let prefix = read_prefix(text).map_err(Refused::bad)?;
        let mut in_force = self.change();
        let Some(place) = place_of(&in_force.config.routes, prefix) else {
            return Err(Refused::missing(format!("no route to {text} was entered by hand")));
        };
        in_force.config.routes.remove(place);
        self.enter(&in_force.config)?;
        self.told(format!("the route to {text} is withdrawn"));
        Ok(())
    }

    /// Lets the keeper have what is entered now; how many routes found no room.
    fn enter(&self, config: &RouterConfig) -> Result<u64, Refused> {
        let routes = entered(config).map_err(Refused::conflict)?;
        Ok(self.routes.keeper().set_static(&routes))
    }
}

/// Where a prefix stands among the routes entered by hand.
fn place_of(routes: &[RouteSection], prefix: AnyPrefix) -> Option<usize> {
    let is_same = |route: &RouteSection| read_prefix(&route.prefix).ok() == Some(prefix);
    routes.iter().position(is_same)
}

fn look_up(keeper: &Keeper, text: &str) -> Result<Vec<keeper::RouteView>, Refused> {
    if text.contains('/') {
        let prefix = read_prefix(text).map_err(Refused::bad)?;
        return Ok(keeper.told_about(prefix));
    }
    let address: IpAddr = text.parse().map_err(|_| {
        Refused::bad(format!("`{text}` is neither an address nor a prefix, as 198.18.0.0/16 is"))
    })?;
    Ok(keeper.look_up(address))
}

fn route_view(told: &keeper::RouteView, config: &RouterConfig) -> RouteView {
    RouteView {
        prefix: told.prefix.to_string(),
        source: told.source.to_string(),
        protocol: protocol_name(told.protocol),
        distance: told.distance,
        metric: told.metric,
        best: told.is_best,
        ways: told.members.iter().map(|member| way(member, config)).collect(),
    }
}

/// What `ip route` calls an `rtm_protocol`; its number where it has no name that everybody knows.
fn protocol_name(number: u8) -> String {
    let name = match number {
        2 => "kernel",
        3 => "boot",
        4 => "static",
        9 => "ra",
        11 => "zebra",
        16 => "dhcp",
        186 => "bgp",
        187 => "isis",
        188 => "ospf",
        189 => "rip",
        192 => "eigrp",
        _ => return number.to_string(),
    };
    name.to_owned()
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
