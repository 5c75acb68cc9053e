//! Wiring: an external device, its required configuration, and a check of it.
//!
//! The lab's hosts stand behind two interfaces of this machine, and whatever is between those is the device under
//! test. The addresses are the lab's choice, so that the same plan is played through every device; the device's owner
//! enters them ([`Wiring`], [`instructions`]), and [`check`] verifies this with a few packets.

pub mod check;
mod finding;
mod hold;
pub mod instructions;
mod probe;
mod section;

use std::net::IpAddr;

use anyhow::{Context, Result};
use nilometer_linux::netlink::MacAddress;
use nilometer_linux::testbed::{DevicePort, Layout, TestbedConfig};
use serde::Serialize;

pub use finding::Finding;
pub use hold::hold;
pub use section::ExternalSection;

/// The arguments with which `nilometer` guards borrowed interfaces.
pub const GUARDIAN: &[&str] = &["lab", "hold-interfaces"];

/// An address and the length of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkAddress {
    /// The address.
    pub address: IpAddr,
    /// Bits of its network.
    pub length: u8,
}

impl Serialize for LinkAddress {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{}/{}", self.address, self.length))
    }
}

/// One side of the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WiredSide {
    /// This machine's interface, which leads to the device.
    pub interface: String,
    /// The addresses that the lab gives that interface.
    pub host_addresses: Vec<LinkAddress>,
    /// The addresses that the device's port at the other end of the link must have.
    pub device_addresses: Vec<LinkAddress>,
    /// The Ethernet address of that port, where it cannot be resolved.
    #[serde(skip)]
    pub device_mac: Option<MacAddress>,
}

/// A static route of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WiredRoute {
    /// The hosts of the lab that it leads to.
    #[serde(serialize_with = "as_text")]
    pub prefix: nilometer_linux::prefix::Prefix,
    /// The lab's host that is the next hop.
    pub via: IpAddr,
}

fn as_text<S: serde::Serializer, T: std::fmt::Display>(
    value: &T,
    to: S,
) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

/// The links on both sides of the device, and its required configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wiring {
    /// Towards the clients.
    pub client: WiredSide,
    /// Towards the servers.
    pub server: WiredSide,
    /// The routes that the device needs; none where it passes frames on as they are.
    pub routes: Vec<WiredRoute>,
}

impl Wiring {
    /// That of a testbed whose device is external.
    ///
    /// # Errors
    /// Where the testbed has no such device, or its address pools do not fit.
    pub fn of(config: &TestbedConfig) -> Result<Wiring> {
        let external = config.external.as_ref().context("the testbed has no external device")?;
        let layout = Layout::new(config)?;
        let links = layout.host_addresses();
        let ports = layout.device_ports();
        // Of a version of IP that has no hosts, nothing is needed.
        let is_played = |is_ipv6| config.clients.iter().any(|pool| pool.is_ipv6() == is_ipv6);
        let side = |number: usize| {
            let port: &DevicePort = &ports[number];
            let list = |addresses: &[(IpAddr, u8)]| {
                let played = addresses.iter().filter(|(address, _)| is_played(address.is_ipv6()));
                played.map(|&(address, length)| LinkAddress { address, length }).collect()
            };
            WiredSide {
                interface: external.interfaces[number].clone(),
                host_addresses: list(links[number]),
                device_addresses: list(&port.addresses),
                device_mac: external.macs[number],
            }
        };
        let routes = ports.iter().flat_map(|port| port.routes.iter());
        Ok(Wiring {
            client: side(0),
            server: side(1),
            routes: routes.map(|&(prefix, via)| WiredRoute { prefix, via }).collect(),
        })
    }

    /// Whether both sides of the device are behind one interface.
    pub fn is_one_armed(&self) -> bool {
        self.client.interface == self.server.interface
    }

    /// The clients' side, the servers'.
    pub fn sides(&self) -> [&WiredSide; 2] {
        [&self.client, &self.server]
    }
}
