//! Checks that the router of a ROUTER.toml can be built, before anything is opened.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use super::config::{PORTS_MAX, RouteSection, RouterConfig};
use super::pace::{checked_burst, checked_delay};
use super::shares::shares;
use nilometer_linux::flow_offload::FlowOffload;
use nilometer_linux::spinning::SPIN_MAX;
use nilometer_router::plugin::control::INSTANCES_MAX;

impl RouterConfig {
    /// Checks that the numbers are in range.
    ///
    /// # Errors
    /// The first invalid field, by its name.
    pub fn check(&self) -> Result<()> {
        let ports = self.ports.len();
        ensure!(ports > 0, "a router has at least one [[port]], and this one has none");
        let all = ports + self.fabric.spare_ports;
        ensure!(all <= PORTS_MAX, "{all} ports, spare ones included: {PORTS_MAX} are the most");
        let most = SPIN_MAX.as_micros();
        ensure!(
            u128::from(self.spin_us) <= most,
            "spin_us is {}, and {most} are the most; what comes later is waited for asleep",
            self.spin_us
        );
        for (number, port) in self.ports.iter().enumerate() {
            let name = &port.interface;
            let twice = self.ports[..number].iter().any(|other| other.interface == *name);
            ensure!(!twice, "port.interface: {name} is given twice");
            let burst = port.burst_bytes.map_or(Ok(()), checked_burst);
            let delay = checked_delay(port.delay).map(|_| ());
            burst.and(delay).map_err(|why| anyhow::anyhow!("port {name}: {why}"))?;
        }
        for neighbour in &self.neighbours {
            self.port_named(&neighbour.interface)?;
        }
        let mut prefixes = BTreeSet::new();
        for RouteSection { prefix, .. } in &self.routes {
            let is_new = prefixes.insert(prefix);
            ensure!(is_new, "route: {prefix} is entered twice; `via` takes several gateways");
        }
        ensure!(self.rfc1812.hop_limit > 0, "rfc1812.hop_limit is 0, and no packet would arrive");
        let shortcuts = self.tables.shortcuts;
        ensure!(
            shortcuts == 0
                || shortcuts.is_power_of_two() && FlowOffload::PLACES.contains(&shortcuts),
            "tables.shortcuts is {shortcuts}; give 0 or a power of two from 64 to 1048576"
        );
        let speedup = self.fabric.speedup;
        ensure!((1.0..=64.0).contains(&speedup), "fabric.speedup is {speedup}; give 1 to 64");
        check_plugins(self)?;
        self.reservations.check()?;
        shares(self).map(|_| ())
    }
}

/// Checks the plugins of a configuration, and the filters that name them.
///
/// # Errors
/// The first invalid one, by its name.
fn check_plugins(config: &RouterConfig) -> Result<()> {
    let plugins = &config.plugins;
    ensure!(
        plugins.len() <= INSTANCES_MAX,
        "there are {} [[plugin]]s, and {INSTANCES_MAX} are the most",
        plugins.len()
    );
    for (at, plugin) in plugins.iter().enumerate() {
        let is_new = plugins[..at].iter().all(|other| other.name != plugin.name);
        ensure!(is_new, "plugin.name: {:?} is given twice", plugin.name);
        config.instance_of(plugin)?;
    }
    for port in config.ports.iter().filter(|port| port.mpls.is_some()) {
        let is_there = plugins.iter().any(|plugin| Some(&plugin.name) == port.mpls.as_ref());
        let (interface, name) = (&port.interface, port.mpls.as_deref().unwrap_or_default());
        ensure!(is_there, "port {interface}: mpls: no [[plugin]] has the name {name:?}");
    }
    for (number, filter) in config.filters.iter().enumerate() {
        for name in &filter.plugins {
            let is_there = plugins.iter().any(|plugin| plugin.name == *name);
            ensure!(is_there, "filter {number}: no [[plugin]] has the name {name:?}");
        }
    }
    Ok(())
}
