//! The router of a lab's testbed.

use super::config::{
    AddressSection, NeighbourSection, PortSection, RouteSection, RouterConfig, TablesSection,
};
use crate::device::testbed::DevicePort;

/// The router of a testbed: its ports with their addresses, neighbours and routes, all else as usual.
pub fn testbed_router(ports: &[DevicePort], seed: u64) -> RouterConfig {
    let mut config = RouterConfig { seed, ..RouterConfig::default() };
    let (routes_v4, routes_v6) = (1 << 14, 1 << 14);
    config.tables = TablesSection { routes_v4, routes_v6, ..TablesSection::default() };
    for port in ports {
        // Its hosts are known, and nothing but the lab's traffic is to be on its links.
        let mut section = PortSection { address_probes: 0, ..PortSection::new(port.interface) };
        for &(address, length) in &port.addresses {
            section.addresses.push(AddressSection { address, length });
        }
        config.ports.push(section);
        for &(address, mac) in &port.neighbours {
            let octets = mac.map(|octet| format!("{octet:02x}"));
            config.neighbours.push(NeighbourSection {
                interface: port.interface.to_owned(),
                address,
                mac: octets.join(":"),
            });
        }
        for (prefix, gateway) in &port.routes {
            config.routes.push(RouteSection {
                prefix: prefix.to_string(),
                via: vec![*gateway],
                interface: Some(port.interface.to_owned()),
                fate: None,
            });
        }
    }
    config
}
