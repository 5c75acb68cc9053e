//! The routes of a live router: told by several sources, chosen by trust, served to the driver.

use std::net::IpAddr;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail, ensure};
use nilometer_router::Engine;
use nilometer_router::fib::{Lookups, ServingFib};
use nilometer_router::next_hop::{Hop, Rejection, Snapshot};
use nilometer_router::prefix::Prefix;
use nilometer_router::rib::Source;
use nilometer_router::route_table::{RouteLimits, RouteTable};
use nilometer_router::route_update::{AnyPrefix, Path, RouteUpdate, Way};

use super::config::{Fate, RouteSection, RouterConfig};

/// The routes, and the tables that follow them.
pub struct Routes {
    table: RouteTable<Box<dyn ServingFib<u32>>, Box<dyn ServingFib<u128>>>,
}

/// Port `number`, as routes name it: links count from 1.
pub fn link_of(number: usize) -> u32 {
    number as u32 + 1
}

impl Routes {
    /// No routes.
    ///
    /// # Errors
    /// When there is no memory for so many.
    pub fn new(config: &RouterConfig) -> Result<Routes> {
        let tables = &config.tables;
        let told = |why| anyhow!("tables: {why}");
        let four = tables.engine_v4.table::<u32>(tables.routes_v4).map_err(told)?;
        let six = tables.engine_v6.table::<u128>(tables.routes_v6).map_err(told)?;
        let limits = RouteLimits {
            routes_v4: tables.routes_v4,
            routes_v6: tables.routes_v6,
            seed: config.seed,
            ..RouteLimits::default()
        };
        let mut table = RouteTable::new(limits, four, six);
        for number in 0..config.ports.len() {
            table.set_port(link_of(number), number as u16);
        }
        Ok(Routes { table })
    }

    /// A reader of the IPv4 routes, for the driver.
    ///
    /// # Errors
    /// When there are too many readers.
    pub fn reader_v4(&self) -> Result<Box<dyn Lookups<u32>>> {
        self.table.fib_v4().reader().context("too many readers of the routes")
    }

    /// A reader of the IPv6 routes, for the driver.
    ///
    /// # Errors
    /// When there are too many readers.
    pub fn reader_v6(&self) -> Result<Box<dyn Lookups<u128>>> {
        self.table.fib_v6().reader().context("too many readers of the routes")
    }

    /// Enters the routes of a configuration: to the router's own addresses, to the networks at its
    /// ports, and those given by hand.
    ///
    /// # Errors
    /// The first route that cannot be, by its prefix.
    pub fn enter(&mut self, config: &RouterConfig) -> Result<()> {
        let (mut own, mut connected) = (Vec::new(), Vec::new());
        for (number, port) in config.ports.iter().enumerate() {
            for at in &port.addresses {
                let all = if at.address.is_ipv4() { 32 } else { 128 };
                own.push(announce(prefix(at.address, all)?, 0, Way::Fate(Hop::Local)));
                let path = Path { link: link_of(number), gateway: None, weight: 1 };
                connected.push(announce(prefix(at.address, at.length)?, 0, Way::Path(path)));
            }
        }
        self.table.apply(Source::Local, &own);
        self.table.apply(Source::Connected, &connected);
        let fixed: Result<Vec<_>> =
            config.routes.iter().map(|route| by_hand(route, config)).collect();
        self.table.apply(Source::Static, &fixed?);
        let counters = self.table.counters();
        let refused = counters.routes_refused + counters.next_hops_refused;
        ensure!(
            refused == 0,
            "{refused} routes found no room: raise tables.routes_v4 or routes_v6"
        );
        Ok(())
    }

    /// The next hops as they are now.
    pub fn snapshot(&mut self) -> Arc<Snapshot> {
        self.table.hops_mut().snapshot()
    }

    /// Lets another engine serve IPv4: a reader of its table, which has every route, for the driver to
    /// look up in from then on. Until it does it goes on with the old table, which changes no more.
    ///
    /// # Errors
    /// When the engine has no room for the routes, or no name for some next hop; the old one stays.
    pub fn exchange_v4(&mut self, engine: Engine, room: usize) -> Result<Box<dyn Lookups<u32>>> {
        let mut fib = engine.table::<u32>(room).map_err(|why| anyhow!("{why}"))?;
        let mut routes = self.table.rib_v4().best().map(|route| (route.prefix, route.next));
        fib.load(&mut routes).map_err(|_| no_room(engine))?;
        let reader = fib.reader().context("too many readers of the routes")?;
        drop(routes);
        *self.table.fibs_mut().0 = fib;
        Ok(reader)
    }

    /// As [`Routes::exchange_v4`], of IPv6.
    ///
    /// # Errors
    /// As there.
    pub fn exchange_v6(&mut self, engine: Engine, room: usize) -> Result<Box<dyn Lookups<u128>>> {
        let mut fib = engine.table::<u128>(room).map_err(|why| anyhow!("{why}"))?;
        let mut routes = self.table.rib_v6().best().map(|route| (route.prefix, route.next));
        fib.load(&mut routes).map_err(|_| no_room(engine))?;
        let reader = fib.reader().context("too many readers of the routes")?;
        drop(routes);
        *self.table.fibs_mut().1 = fib;
        Ok(reader)
    }

    /// The routes, to be looked at.
    pub fn table(&self) -> &RouteTable<Box<dyn ServingFib<u32>>, Box<dyn ServingFib<u128>>> {
        &self.table
    }

    /// The table behind it all.
    pub fn table_mut(
        &mut self,
    ) -> &mut RouteTable<Box<dyn ServingFib<u32>>, Box<dyn ServingFib<u128>>> {
        &mut self.table
    }
}

fn no_room(engine: Engine) -> anyhow::Error {
    anyhow!("{engine} has no room for these routes, or cannot name all of their next hops")
}

fn announce(prefix: AnyPrefix, metric: u32, way: Way) -> RouteUpdate {
    RouteUpdate::Announce { prefix, protocol: 4, metric, way }
}

/// The network of so many bits that an address is in.
fn prefix(address: IpAddr, length: u8) -> Result<AnyPrefix> {
    let host = |bits: u32| u128::MAX.checked_shr(128 - bits).unwrap_or(0);
    let network = match address {
        IpAddr::V4(own) => {
            let host = host(32 - u32::from(length)) as u32;
            IpAddr::V4((u32::from(own) & !host).into())
        }
        IpAddr::V6(own) => {
            let host = host(128 - u32::from(length));
            IpAddr::V6((u128::from(own) & !host).into())
        }
    };
    AnyPrefix::new(network, u32::from(length)).with_context(|| format!("{address}/{length}"))
}

/// A prefix as people write it.
///
/// # Errors
/// When it is none, or has bits beyond its length.
pub fn read_prefix(text: &str) -> Result<AnyPrefix> {
    let malformed =
        |_| anyhow!("route: `{text}` is no prefix without host bits, as 198.18.0.0/16 is");
    Ok(match text.contains(':') {
        true => AnyPrefix::V6(text.parse::<Prefix<u128>>().map_err(malformed)?),
        false => AnyPrefix::V4(text.parse::<Prefix<u32>>().map_err(malformed)?),
    })
}

/// What a route entered by hand tells the table.
///
/// # Errors
/// What is wrong with it, by its prefix.
pub fn by_hand(route: &RouteSection, config: &RouterConfig) -> Result<RouteUpdate> {
    let (text, prefix) = (&route.prefix, read_prefix(&route.prefix)?);
    let way = match (&route.via[..], &route.interface, route.fate) {
        ([], None, Some(fate)) => Way::Fate(match fate {
            Fate::Blackhole => Hop::Blackhole,
            Fate::Unreachable => Hop::Reject(Rejection::Unreachable),
            Fate::Prohibited => Hop::Reject(Rejection::Prohibited),
        }),
        ([], Some(interface), None) => {
            let link = link_of(config.port_named(interface)?);
            Way::Path(Path { link, gateway: None, weight: 1 })
        }
        ([_, ..], interface, None) => {
            let path = |via: &IpAddr| {
                let number = match interface {
                    Some(interface) => config.port_named(interface),
                    None => port_towards(*via, config),
                };
                Ok(Path { link: link_of(number?), gateway: Some(*via), weight: 1 })
            };
            let paths: Result<Vec<_>> = route.via.iter().map(path).collect();
            Way::Paths(paths.with_context(|| format!("route {text}"))?)
        }
        _ => bail!("route {text}: give `via`, or `interface`, or `fate`"),
    };
    Ok(announce(prefix, route.metric, way))
}

/// The port that has `gateway` in one of its networks, the most specific.
fn port_towards(gateway: IpAddr, config: &RouterConfig) -> Result<usize> {
    let mut best: Option<(u8, usize)> = None;
    for (number, port) in config.ports.iter().enumerate() {
        for at in &port.addresses {
            let same = at.address.is_ipv4() == gateway.is_ipv4()
                && prefix(at.address, at.length)? == prefix(gateway, at.length)?;
            if same && best.is_none_or(|(length, _)| length < at.length) {
                best = Some((at.length, number));
            }
        }
    }
    let found = best.map(|(_, number)| number);
    found.ok_or_else(|| anyhow!("{gateway} is in no port's network; name the interface"))
}
