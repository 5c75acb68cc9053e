//! The two ends of a stream: an interface each, in a namespace, and the addresses in its frames.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context, Result, bail};
use nilometer_linux::namespace::Namespace;
use nilometer_linux::netlink::{MacAddress, Netlink};
use nilometer_linux::testbed::{
    CLIENT_INTERFACE, HostSide, Layout, SERVER_INTERFACE, Testbed, TestbedConfig,
};
use nilometer_profile::stream::flows::Network;
use nilometer_profile::stream::frame::Link;

use super::remote::RemoteEnd;

/// One end of a stream.
#[derive(Clone, Debug)]
pub struct End<'a> {
    /// The addresses of this end, which the device routes to its interface.
    pub network: Network,
    /// Its interface.
    pub port: EndPort<'a>,
}

/// Where an end's interface is.
#[derive(Clone, Debug)]
pub enum EndPort<'a> {
    /// On this host.
    Here(LocalPort<'a>),
    /// On another host, which only receives.
    Elsewhere(&'a RemoteEnd),
}

/// An interface of this host: any that carries Ethernet.
#[derive(Clone, Debug)]
pub struct LocalPort<'a> {
    /// Where it is.
    pub namespace: &'a Namespace,
    /// Its name there.
    pub interface: String,
    /// Its link-layer address.
    pub mac: MacAddress,
    /// The device's link-layer address for frames from this end.
    pub gateway: MacAddress,
}

impl LocalPort<'_> {
    /// The link-layer addresses of what this end sends.
    pub fn link(&self) -> Link {
        Link { source: self.mac, destination: self.gateway }
    }
}

impl<'a> End<'a> {
    /// The end's interface, which is to send.
    ///
    /// # Errors
    /// When it is on another host.
    pub fn local(&self) -> Result<&LocalPort<'a>> {
        match &self.port {
            EndPort::Here(port) => Ok(port),
            EndPort::Elsewhere(_) => {
                bail!("the servers' end is on another host, which does not send")
            }
        }
    }
}

/// Both ends of a testbed that two hosts share: the client's here, the server's at a receiver.
///
/// # Errors
/// When the device does not answer at the client's interface, or a pool has no IPv4 network of at most 30 bits.
pub fn of_two_hosts<'a>(
    client: &'a HostSide,
    server: &'a RemoteEnd,
    config: &TestbedConfig,
) -> Result<[End<'a>; 2]> {
    let [mac, gateway] = client.link_addresses()?;
    let interface = client.interface().to_owned();
    let port = EndPort::Here(LocalPort { namespace: client.namespace(), interface, mac, gateway });
    Ok([
        End { network: network(&config.clients, "clients")?, port },
        End { network: network(&config.servers, "servers")?, port: EndPort::Elsewhere(server) },
    ])
}

/// The ends of a testbed, the client's first.
///
/// # Errors
/// When a pool has no IPv4 network of at most 30 bits.
pub fn of_testbed<'a>(testbed: &'a Testbed, config: &TestbedConfig) -> Result<[End<'a>; 2]> {
    let layout = Layout::new(config)?;
    let [mut client, mut server] = layout.hosts();
    if config.external.is_some() {
        client = found(testbed.client(), CLIENT_INTERFACE, layout.next_hops(0))?;
        server = found(testbed.server(), SERVER_INTERFACE, layout.next_hops(1))?;
    }
    let end = |namespace, interface: &str, network, [mac, gateway]: [MacAddress; 2]| {
        let interface = interface.to_owned();
        let port = EndPort::Here(LocalPort { namespace, interface, mac, gateway });
        End { network, port }
    };
    let networks = [network(&config.clients, "clients")?, network(&config.servers, "servers")?];
    Ok([
        end(testbed.client(), CLIENT_INTERFACE, networks[0], client),
        end(testbed.server(), SERVER_INTERFACE, networks[1], server),
    ])
}

/// The link-layer addresses of a borrowed interface and of the device behind it, which has answered before.
fn found(
    namespace: &Namespace,
    interface: &str,
    next_hops: Vec<IpAddr>,
) -> Result<[MacAddress; 2]> {
    namespace.enter(|| {
        let mut netlink = Netlink::open()?;
        let own = netlink.link(interface)?.mac;
        let own = own.try_into().ok().context("the interface has no Ethernet address")?;
        for address in next_hops.iter().filter(|address| address.is_ipv4()) {
            if let Some(mac) = netlink.neighbour(interface, *address)? {
                return Ok([own, mac]);
            }
        }
        bail!("the device's Ethernet address at {interface} is not known any more")
    })
}

fn network(pools: &[nilometer_linux::prefix::Prefix], whose: &str) -> Result<Network> {
    let pool = pools.iter().find(|pool| !pool.is_ipv6());
    let pool = pool.with_context(|| format!("a stream needs an IPv4 pool of {whose}"))?;
    let IpAddr::V4(address) = pool.address() else { bail!("{pool} is not an IPv4 network") };
    if pool.length() > 30 {
        bail!("{pool} has too few addresses for flows: give a network of at most 30 bits");
    }
    Ok(Network { address, length: pool.length() })
}

/// A network in the form that the stamping programs need.
pub(super) fn source(network: Network) -> (Ipv4Addr, u8) {
    (network.address, network.length)
}
