//! The routes of a live router, from its description: their RIB thread, what the operator entered, and
//! the sources that are listened to.
//!
//! Daemons and the kernel know a port by the interface on the kernel's side: its TAP where it has one,
//! otherwise the interface itself.

use std::net::IpAddr;

use anyhow::{Context, Result, anyhow, bail, ensure};
use nilometer_router::neighbour::link_local;
use nilometer_router::next_hop::{Hop, Member, Rejection};
use nilometer_router::prefix::Prefix;
use nilometer_router::route_table::RouteLimits;
use nilometer_router::route_update::AnyPrefix;

use super::config::{ControlSection, Fate, RouteSection, RouterConfig};
use super::fpm::{FpmConfig, FpmListener, FpmStatus};
use super::kernel::{KernelMirror, MirrorStatus};
use super::recording::TableRecorder;
use super::rib_thread::{Engines, RibThread, StaticRoute};
use nilometer_linux::netlink::Netlink;

/// The routes, and their sources.
pub struct Routes {
    // Dropped in this order: senders go before receivers.
    fpm: Option<FpmListener>,
    mirror: Option<KernelMirror>,
    rib: RibThread,
}

impl Routes {
    /// The routes of a configuration: to the router's own addresses, to the networks at its ports, and
    /// those entered by hand. `recorder` gets each change of a table.
    ///
    /// # Errors
    /// The first invalid route, by its prefix; or that there is not enough memory for the tables.
    pub fn new(config: &RouterConfig, recorder: Option<TableRecorder>) -> Result<Routes> {
        let tables = &config.tables;
        let limits = RouteLimits {
            routes_v4: tables.routes_v4,
            routes_v6: tables.routes_v6,
            seed: config.seed,
            ..RouteLimits::default()
        };
        let engines = Engines { v4: tables.engine_v4, v6: tables.engine_v6 };
        let rib = RibThread::start_recorded(limits, engines, recorder).context("tables")?;
        let mut refused = 0;
        for (number, port) in config.ports.iter().enumerate() {
            let addresses: Vec<_> =
                port.addresses.iter().map(|at| (at.address, at.length)).collect();
            refused += rib.set_addresses(number as u16, &addresses);
        }
        refused += rib.set_static(&entered(config)?);
        ensure!(refused == 0, "no room for {refused} routes: raise tables.routes_v4 or routes_v6");
        Ok(Routes { fpm: None, mirror: None, rib })
    }

    /// Listens to routing daemons and to the kernel as `[control]` says, in the namespace of the calling
    /// thread, where the ports' interfaces are.
    ///
    /// # Errors
    /// When listening at an address fails, or the kernel's routes cannot be followed.
    pub fn listen(&mut self, config: &RouterConfig) -> Result<()> {
        let &ControlSection { fpm, kernel_routes, .. } = &config.control;
        if fpm.is_none() && !kernel_routes {
            return Ok(());
        }
        let mut netlink = Netlink::open()?;
        for number in 0..config.ports.len() {
            // One that is not there yet is known when it comes.
            if netlink.link(kernel_side(config, number)).is_ok() {
                self.know(config, number)?;
            }
        }
        if let Some(address) = fpm {
            let fpm = FpmConfig { address, ..FpmConfig::default() };
            self.fpm = Some(FpmListener::start(None, fpm, self.rib.news())?);
        }
        if kernel_routes {
            self.mirror = Some(KernelMirror::start(None, self.rib.news())?);
        }
        Ok(())
    }

    /// Maps the interface on the kernel's side of port `number`, as it is now, to the port for the
    /// sources that name it; does nothing where there are no such sources. Panics where there is no such
    /// port.
    ///
    /// # Errors
    /// When the interface does not exist in the calling thread's namespace.
    pub fn know(&self, config: &RouterConfig, number: usize) -> Result<()> {
        if config.control.fpm.is_some() || config.control.kernel_routes {
            let link = Netlink::open()?.link(kernel_side(config, number))?;
            self.rib.set_port(link.index, number as u16);
        }
        Ok(())
    }

    /// The RIB thread that keeps them.
    pub fn rib_thread(&self) -> &RibThread {
        &self.rib
    }

    /// How the listener for zebra is, where there is one.
    pub fn fpm(&self) -> Option<FpmStatus> {
        self.fpm.as_ref().map(FpmListener::status)
    }

    /// How the kernel's mirror is, where there is one.
    pub fn mirror(&self) -> Option<MirrorStatus> {
        self.mirror.as_ref().map(KernelMirror::status)
    }
}

/// The interface by which the kernel knows a port.
fn kernel_side(config: &RouterConfig, number: usize) -> &str {
    let port = &config.ports[number];
    port.punt.as_ref().unwrap_or(&port.interface)
}

/// The routes that a configuration has entered by hand.
///
/// # Errors
/// The first that cannot be, by its prefix.
pub fn entered(config: &RouterConfig) -> Result<Vec<StaticRoute>> {
    config.routes.iter().map(|route| by_hand(route, config)).collect()
}

/// The network of `length` bits that contains an address.
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
    let malformed = |_| {
        anyhow!("route: `{text}` is not a prefix, or has host bits set; write it as 198.18.0.0/16")
    };
    Ok(match text.contains(':') {
        true => AnyPrefix::V6(text.parse::<Prefix<u128>>().map_err(malformed)?),
        false => AnyPrefix::V4(text.parse::<Prefix<u32>>().map_err(malformed)?),
    })
}

/// The RIB thread's form of a route entered by hand.
///
/// A gateway that is an address of this router's, or that no neighbour can have, is refused: packets by it
/// would wait for an answer that never comes. Routes from daemons and the kernel are taken as they come,
/// and packets by such a gateway are discarded like those by any gateway that does not answer: the
/// kernel, and zebra with it, refuse their own addresses themselves.
///
/// # Errors
/// What is wrong with it, by its prefix.
pub fn by_hand(route: &RouteSection, config: &RouterConfig) -> Result<StaticRoute> {
    let (text, prefix) = (&route.prefix, read_prefix(&route.prefix)?);
    let port = |interface: &String| Ok::<_, anyhow::Error>(config.port_named(interface)? as u16);
    let hops = match (&route.via[..], &route.interface, route.fate) {
        ([], None, Some(fate)) => vec![match fate {
            Fate::Blackhole => Hop::Blackhole,
            Fate::Unreachable => Hop::Reject(Rejection::Unreachable),
            Fate::Prohibited => Hop::Reject(Rejection::Prohibited),
        }],
        ([], Some(interface), None) => vec![Hop::Via { port: port(interface)?, gateway: None }],
        ([_, ..], interface, None) => {
            let hop = |via: &IpAddr| {
                checked_gateway(*via, config)?;
                let port = match interface {
                    Some(interface) => port(interface),
                    None => port_towards(*via, config).map(|number| number as u16),
                };
                Ok(Hop::Via { port: port?, gateway: Some(*via) })
            };
            let hops: Result<Vec<_>> = route.via.iter().map(hop).collect();
            hops.with_context(|| format!("route {text}"))?
        }
        _ => bail!("route {text}: give `via`, or `interface`, or `fate`"),
    };
    let members = hops.into_iter().map(|hop| Member { hop, weight: 1 }).collect();
    Ok(StaticRoute { prefix, members })
}

/// Checks that a gateway can be a neighbour's address.
fn checked_gateway(via: IpAddr, config: &RouterConfig) -> Result<()> {
    let via = via.to_canonical();
    let is_unicast = match via {
        IpAddr::V4(via) => !(via.is_multicast() || via.is_broadcast()),
        IpAddr::V6(via) => !via.is_multicast(),
    };
    let is_of_hosts = is_unicast && !via.is_unspecified() && !via.is_loopback();
    ensure!(is_of_hosts, "{via} cannot be a next hop: it is not the address of one host");
    for port in &config.ports {
        for at in &port.addresses {
            let name = &port.interface;
            ensure!(
                at.address.to_canonical() != via,
                "{via} is an address of this router (port {name}); give a neighbour's"
            );
            let (IpAddr::V4(own), IpAddr::V4(via_address)) = (at.address, via) else { continue };
            let hosts = u32::MAX.checked_shr(at.length.into()).unwrap_or(0);
            let (own, via_address) = (u32::from(own), u32::from(via_address));
            let is_apart = at.length >= 31 || own & !hosts != via_address & !hosts;
            ensure!(
                is_apart || !(via_address & hosts == 0 || via_address & hosts == hosts),
                "{via} is the network or broadcast address of port {name}"
            );
        }
    }
    Ok(())
}

/// Checks that link-local gateways are other routers' addresses; `mac` gives the link-layer address of a
/// port.
///
/// # Errors
/// When a gateway is the port's own address.
pub fn check_link_local(route: &StaticRoute, mac: impl Fn(u16) -> [u8; 6]) -> Result<()> {
    for member in &route.members {
        if let Hop::Via { port, gateway: Some(IpAddr::V6(via)) } = member.hop
            && via.is_unicast_link_local()
        {
            let prefix = route.prefix;
            ensure!(
                u128::from(via) != link_local(mac(port)),
                "route {prefix}: {via} is the link-local address of this router; give a neighbour's"
            );
        }
    }
    Ok(())
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
    found.ok_or_else(|| anyhow!("{gateway} is not on the network of any port; name the interface"))
}
