//! Which interfaces a testbed has, and what belongs to each.

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};

use super::{
    CLIENT_INTERFACE, DeviceKind, DevicePort, KERNEL_INTERFACES, PATH_INTERFACES,
    PROGRAM_INTERFACES, REAR_PATH_INTERFACES, SERVER_INTERFACE, TestbedConfig,
};
use crate::netlink::MacAddress;
use crate::prefix::Prefix;

/// Where an interface stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Site {
    Client,
    Server,
    Device,
    Path,
    RearPath,
    /// At a device that the lab did not make: nothing of it is ours.
    External,
}

/// One interface and all that belongs to it.
#[derive(Debug)]
pub(super) struct LinkEnd {
    pub site: Site,
    pub name: &'static str,
    pub mac: MacAddress,
    pub addresses: Vec<(IpAddr, u8)>,
    pub neighbours: Vec<(IpAddr, MacAddress)>,
    pub routes: Vec<(Prefix, IpAddr)>,
    pub pools: Vec<Prefix>,
}

/// The interfaces of a testbed, each link's two ends next to each other.
#[derive(Debug)]
pub(super) struct Plan {
    pub ports: Vec<LinkEnd>,
}

impl Plan {
    pub fn new(config: &TestbedConfig) -> Result<Plan> {
        check(config)?;
        let (clients, servers) = (&config.clients, &config.servers);
        let mut client = LinkEnd::new(Site::Client, CLIENT_INTERFACE, 1);
        let mut server = LinkEnd::new(Site::Server, SERVER_INTERFACE, 4);
        client.pools.clone_from(clients);
        server.pools.clone_from(servers);
        let mut ports = match config.device {
            DeviceKind::Wire => {
                connect(&mut client, &mut server, (clients, servers), &config.links, 0);
                vec![client, server]
            }
            DeviceKind::Transparent => {
                connect(&mut client, &mut server, (clients, servers), &config.links, 0);
                let [inner, outer] = PROGRAM_INTERFACES;
                let (inner, outer) =
                    (LinkEnd::new(Site::Device, inner, 2), LinkEnd::new(Site::Device, outer, 3));
                vec![client, inner, outer, server]
            }
            DeviceKind::External
                if config.external.as_ref().is_some_and(|it| it.is_transparent) =>
            {
                connect(&mut client, &mut server, (clients, servers), &config.links, 0);
                let [inner, outer] = PROGRAM_INTERFACES;
                let inner = LinkEnd::new(Site::External, inner, 2);
                vec![client, inner, LinkEnd::new(Site::External, outer, 3), server]
            }
            kind => {
                let (site, [inner, outer]) = match kind {
                    DeviceKind::External => (Site::External, PROGRAM_INTERFACES),
                    DeviceKind::Program => (Site::Device, PROGRAM_INTERFACES),
                    _ => (Site::Device, KERNEL_INTERFACES),
                };
                let mut inner = LinkEnd::new(site, inner, 2);
                let mut outer = LinkEnd::new(site, outer, 3);
                connect(&mut client, &mut inner, (clients, servers), &config.links, 0);
                connect(&mut outer, &mut server, (clients, servers), &config.links, 4);
                vec![client, inner, outer, server]
            }
        };
        if config.has_path {
            let [inner, outer] = PATH_INTERFACES;
            let path = [LinkEnd::new(Site::Path, inner, 5), LinkEnd::new(Site::Path, outer, 6)];
            ports.splice(1..1, path);
        }
        if config.has_rear_path {
            let [inner, outer] = REAR_PATH_INTERFACES;
            let path =
                [LinkEnd::new(Site::RearPath, inner, 7), LinkEnd::new(Site::RearPath, outer, 8)];
            let last = ports.len() - 1;
            ports.splice(last..last, path);
        }
        Ok(Plan { ports })
    }

    pub fn of_device(&self) -> impl Iterator<Item = &LinkEnd> {
        self.ports.iter().filter(|port| matches!(port.site, Site::Device | Site::External))
    }

    /// The interfaces that the testbed has: all but those of an external device.
    pub fn of_testbed(&self) -> impl Iterator<Item = &LinkEnd> {
        self.ports.iter().filter(|port| port.site != Site::External)
    }

    pub fn device_ports(&self) -> Vec<DevicePort> {
        let port = |port: &LinkEnd| DevicePort {
            interface: port.name.to_owned(),
            addresses: port.addresses.clone(),
            neighbours: port.neighbours.clone(),
            routes: port.routes.clone(),
        };
        self.of_device().map(port).collect()
    }

    pub fn device_addresses(&self) -> Vec<IpAddr> {
        self.of_device()
            .flat_map(|port| port.addresses.iter().map(|&(address, _)| address))
            .collect()
    }
}

impl LinkEnd {
    /// The Ethernet address is a locally administered one: "NILO" and the number.
    fn new(site: Site, name: &'static str, number: u8) -> LinkEnd {
        let mac = [0x02, b'N', b'I', b'L', b'O', number];
        let (addresses, neighbours) = (Vec::new(), Vec::new());
        LinkEnd { site, name, mac, addresses, neighbours, routes: Vec::new(), pools: Vec::new() }
    }
}

/// Lays a link between two ports: the near one leads to the servers, the far one to the clients.
fn connect(
    near: &mut LinkEnd,
    far: &mut LinkEnd,
    (clients, servers): (&[Prefix], &[Prefix]),
    links: &[Prefix],
    offset: u128,
) {
    for network in links {
        let address = |host| network.nth(offset + host).expect("the size has been checked");
        let (here, there) = (address(1), address(2));
        let length = if network.is_ipv6() { 126 } else { 30 };
        near.addresses.push((here, length));
        far.addresses.push((there, length));
        near.neighbours.push((there, far.mac));
        far.neighbours.push((here, near.mac));
        let same = |pool: &&Prefix| pool.is_ipv6() == network.is_ipv6();
        near.routes.extend(servers.iter().filter(same).map(|pool| (*pool, there)));
        far.routes.extend(clients.iter().filter(same).map(|pool| (*pool, here)));
        // A host answers the other's link address too: it is the source address of unbound sockets.
        match (near.site, far.site) {
            (Site::Client, Site::Device | Site::External) => near.routes.push((*network, there)),
            (Site::Device | Site::External, Site::Server) => far.routes.push((*network, here)),
            _ => {}
        }
    }
}

/// Refuses what cannot work, in words for a person.
fn check(config: &TestbedConfig) -> Result<()> {
    let mtu_bytes = config.mtu_bytes;
    let is_external = config.device == DeviceKind::External;
    ensure!(
        is_external == config.external.is_some(),
        "an external device needs the two interfaces towards it, and other devices need none"
    );
    ensure!(
        !(is_external && config.has_rear_path),
        "an external device has no path behind it: leave the original's round trips out"
    );
    ensure!((1280..=9000).contains(&mtu_bytes), "mtu {mtu_bytes}: choose 1280 to 9000 bytes");
    ensure!(!config.clients.is_empty(), "the testbed has no client addresses; give a prefix");
    ensure!(!config.servers.is_empty(), "the testbed has no server addresses; give a prefix");
    let pools = || config.clients.iter().chain(&config.servers);
    let all: Vec<&Prefix> = pools().chain(&config.links).collect();
    for (index, prefix) in all.iter().enumerate() {
        prefix.ensure_private_to_labs()?;
        for earlier in &all[..index] {
            ensure!(
                !prefix.overlaps(earlier),
                "the testbed's prefixes {earlier} and {prefix} overlap; every pool and the links \
                 need addresses of their own"
            );
        }
    }
    for network in &config.links {
        network
            .nth(7)
            .with_context(|| format!("{network}: the links need at least eight addresses"))?;
    }
    for pool in pools() {
        let ways = config.links.iter().filter(|link| link.is_ipv6() == pool.is_ipv6()).count();
        ensure!(ways == 1, "{pool}: the links need one prefix of its family, and have {ways}");
    }
    Ok(())
}
