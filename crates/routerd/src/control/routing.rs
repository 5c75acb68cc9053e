//! Routes, looked up, entered and withdrawn while packets pass: the command channel's part in routing.

use std::net::IpAddr;
use std::sync::PoisonError;
use std::thread;
use std::time::Instant;

use axum::http::StatusCode;
use nilometer_router::next_hop::{Hop, Member, Rejection};
use nilometer_router::rib::Source;
use nilometer_router::route_update::AnyPrefix;

use super::answer::Refused;
use super::command_channel::CommandChannel;
use super::look::no_port;
use super::view::{RouteView, RoutesQuery, RoutesView, SourceView, WayView};
use crate::config::{RouteSection, RouterConfig};
use crate::rib_thread::{self, Listing, RibThread, Selection};
use crate::routes::{by_hand, check_link_local, entered, read_prefix};

/// Routes in the list for one request, by default and at most.
const LISTED: usize = 1_000;
const LISTED_MAX: usize = 10_000;
/// Ways of a list's routes for one request, or those of one route.
const WAYS_LISTED: usize = 40_000;
/// How much longer than a list keeps the table nothing is listed.
const REST_FOR_WORK: u32 = 4;
/// Routes that may be entered by hand.
const ENTERED_MAX: usize = 10_000;

impl CommandChannel {
    /// The routes to a prefix, or to the longest one that contains an address; a list of the routes in
    /// use; where nothing is requested, the routes entered by hand.
    ///
    /// # Errors
    /// 400 for what is neither a prefix nor an address nor a valid list, 404 where there is no route.
    pub fn routes(&self, requested: &RoutesQuery) -> Result<RoutesView, Refused> {
        let selection = selection(requested)?;
        let rib = self.routes.rib_thread();
        let listing = match (&requested.prefix, selection) {
            (Some(text), None) => {
                let routes = look_up(rib, text)?;
                if routes.is_empty() {
                    return Err(Refused::missing(format!("there is no route to {text}")));
                }
                Listing { routes, ..Listing::default() }
            }
            (Some(_), Some(_)) => {
                let why = "`prefix` asks for one prefix, and goes with no other key; a list takes \
                           `within`, `source`, `after` and `most`";
                return Err(Refused::bad(why));
            }
            (None, Some(selection)) => within_limit(self.list(selection)),
            (None, None) => Listing::default(),
        };
        let status = rib.status();
        let Listing { routes, more, last, .. } = listing;
        let in_force = self.change();
        let is_whole =
            matches!(requested, RoutesQuery { within: None, source: None, after: None, .. });
        let entered = match is_whole && requested.prefix.is_none() {
            true => in_force.config.routes.clone(),
            false => Vec::new(),
        };
        Ok(RoutesView {
            prefixes_v4: status.prefixes_v4,
            prefixes_v6: status.prefixes_v6,
            sources: self.sources(),
            next: last.filter(|_| more > 0).map(|prefix| prefix.to_string()),
            routes: routes.iter().map(|reported| route_view(reported, &in_force.config)).collect(),
            more,
            entered,
        })
    }

    /// A list of routes. The RIB thread goes over all of them for each: so lists are made one after the
    /// other, with a pause between two of four times as long as one held the table.
    fn list(&self, selection: Selection) -> Listing {
        let mut not_before = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(not_before) = *not_before {
            thread::sleep(not_before.saturating_duration_since(Instant::now()));
        }
        let listing = self.routes.rib_thread().list(selection);
        *not_before = Some(Instant::now() + listing.held * REST_FOR_WORK);
        listing
    }

    /// The sources of routes, and how many each has.
    pub(super) fn sources(&self) -> Vec<SourceView> {
        let view = |count: rib_thread::RouteCount| SourceView {
            source: count.source.to_string(),
            v4: count.v4,
            v6: count.v6,
            replaying: count.is_replaying,
            connected: match count.source {
                Source::Fpm => self.routes.fpm().map(|fpm| fpm.is_connected),
                _ => None,
            },
        };
        self.routes.rib_thread().counts().into_iter().map(view).collect()
    }

    /// Enters a static route, in place of one that was entered to the same prefix.
    ///
    /// # Errors
    /// 400 for an invalid route, 409 where there is no room.
    pub fn add_route(&self, mut route: RouteSection) -> Result<String, Refused> {
        if let Some(requested) = route.interface.take() {
            route.interface = Some(self.interface(&requested)?);
        }
        let mut in_force = self.change();
        let reported = by_hand(&route, &in_force.config).map_err(Refused::bad)?;
        let macs = self.ask(|driver| {
            driver.router().ports().iter().map(|port| port.plan().mac).collect::<Vec<_>>()
        })?;
        check_link_local(&reported, |port| macs[usize::from(port)]).map_err(Refused::bad)?;
        let prefix = read_prefix(&route.prefix).map_err(Refused::bad)?;
        let before = in_force.config.routes.clone();
        let text = route.prefix.clone();
        match place_of(&before, prefix) {
            Some(place) => in_force.config.routes[place] = route,
            None if before.len() < ENTERED_MAX => in_force.config.routes.push(route),
            None => {
                let why = format!(
                    "{ENTERED_MAX} static routes are allowed at most; use a routing daemon for more"
                );
                return Err(Refused::conflict(why));
            }
        }
        if self.enter(&in_force.config)? > 0 {
            in_force.config.routes = before;
            self.enter(&in_force.config)?;
            return Err(Refused::conflict("there is no room for the route"));
        }
        Ok(self.report_change(format!("a route to {text} is entered")))
    }

    /// Withdraws a route that was entered by hand.
    ///
    /// # Errors
    /// 400 for an invalid prefix, 404 where no route was entered to it.
    pub fn remove_route(&self, text: &str) -> Result<String, Refused> {
        let prefix = read_prefix(text).map_err(Refused::bad)?;
        let mut in_force = self.change();
        let Some(place) = place_of(&in_force.config.routes, prefix) else {
            return Err(Refused::missing(format!("no route to {text} was entered by hand")));
        };
        in_force.config.routes.remove(place);
        self.enter(&in_force.config)?;
        Ok(self.report_change(format!("the route to {text} is withdrawn")))
    }

    /// The interface of the port that has this number or name.
    pub(super) fn interface(&self, requested: &str) -> Result<String, Refused> {
        let number = self.port_number(requested);
        let number = number.map_err(|why| Refused { status: StatusCode::BAD_REQUEST, ..why })?;
        let in_force = self.change();
        let port = in_force.config.ports.get(number);
        let port = port.ok_or_else(|| Refused::bad(no_port(number, &in_force.config).error))?;
        Ok(port.interface.clone())
    }

    /// Passes the routes entered by hand to the RIB thread; returns how many found no room.
    fn enter(&self, config: &RouterConfig) -> Result<u64, Refused> {
        let routes = entered(config).map_err(Refused::conflict)?;
        Ok(self.routes.rib_thread().set_static(&routes))
    }
}

/// The list that is requested, if one is.
fn selection(requested: &RoutesQuery) -> Result<Option<Selection>, Refused> {
    let RoutesQuery { within, source, after, most, .. } = requested;
    if (within, source, after, most) == (&None, &None, &None, &None) {
        return Ok(None);
    }
    let prefix = |text: &Option<String>| text.as_deref().map(read_prefix).transpose();
    let named = |name: &String| {
        let names = || Source::ALL.map(Source::name).join(", ");
        Source::from_name(name)
            .ok_or_else(|| Refused::bad(format!("no source is `{name}`; there are {}", names())))
    };
    let most = most.unwrap_or(LISTED);
    if !(1..=LISTED_MAX).contains(&most) {
        return Err(Refused::bad(format!("most is {most}; give 1 to {LISTED_MAX}")));
    }
    Ok(Some(Selection {
        source: source.as_ref().map(named).transpose()?,
        within: prefix(within).map_err(Refused::bad)?,
        after: prefix(after).map_err(Refused::bad)?,
        most,
    }))
}

/// The part of a list whose ways fit one answer; at least the first route.
fn within_limit(mut listing: Listing) -> Listing {
    let mut ways = 0;
    let mut fits = |route: &rib_thread::RouteView| {
        ways += route.members.len();
        ways <= WAYS_LISTED
    };
    let kept = listing.routes.iter().take_while(|route| fits(route)).count().max(1);
    if kept < listing.routes.len() {
        listing.more += listing.routes.len() - kept;
        listing.routes.truncate(kept);
        listing.last = listing.routes.last().map(|route| route.prefix);
    }
    listing
}

/// Where a prefix stands among the routes entered by hand.
fn place_of(routes: &[RouteSection], prefix: AnyPrefix) -> Option<usize> {
    let is_same = |route: &RouteSection| read_prefix(&route.prefix).ok() == Some(prefix);
    routes.iter().position(is_same)
}

fn look_up(rib: &RibThread, text: &str) -> Result<Vec<rib_thread::RouteView>, Refused> {
    if text.contains('/') {
        let prefix = read_prefix(text).map_err(Refused::bad)?;
        return Ok(rib.routes_to(prefix));
    }
    let address: IpAddr = text.parse().map_err(|_| {
        Refused::bad(format!("`{text}` is neither an address nor a prefix, as 198.18.0.0/16 is"))
    })?;
    Ok(rib.look_up(address))
}

fn route_view(reported: &rib_thread::RouteView, config: &RouterConfig) -> RouteView {
    RouteView {
        prefix: reported.prefix.to_string(),
        source: reported.source.to_string(),
        protocol: protocol_name(reported.protocol),
        distance: reported.distance,
        metric: reported.metric,
        best: reported.is_best,
        ways: reported.members.iter().map(|member| way(member, config)).collect(),
    }
}

/// What `ip route` calls an `rtm_protocol`; its number where it has no well-known name.
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
        Hop::KernelLink => Some("beside"),
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
