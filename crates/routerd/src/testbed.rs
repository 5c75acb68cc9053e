//! The router of a lab's testbed, or of a scenario, default or as a ROUTER.toml says.
//!
//! The file is that of `route run`. Its ports are named after what is behind them: in a lab `client` and `server`,
//! which are also the names of their interfaces there; in a scenario after its links. Addresses, neighbours and
//! routes are the lab's; settings of them in the file, and settings that a lab could not use, are refused by name.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, ensure};
use nilometer_sim::queueing::QueueSpec;
use nilometer_wire::{Rate, Span};

use super::config::{
    AddressSection, ControlSection, NeighbourSection, PortSection, RouteSection, RouterConfig,
    TablesSection,
};
use super::machine::QUEUE_PACKETS;
use super::router_file::{self, Read};
use nilometer_linux::testbed::{DevicePort, PROGRAM_INTERFACES};

/// Room for routes of each family by default: a lab has a handful.
const ROUTES: usize = 1 << 14;
/// How long the router of a lab polls for the next frame by default, µs.
const SPIN_US: u32 = 50;
/// A full frame on Ethernet: the most that a packet of a queue counted in packets may take.
const FRAME_BYTES: u64 = 1_538;
/// Payload of an ATM cell.
const CELL_PAYLOAD_BYTES: u64 = 48;
/// The longest stay that is waited for: the longest delay that a link may have, and as long in a queue.
const STAY_MAX: Span = Span::from_secs(120);

/// A ROUTER.toml for a lab.
#[derive(Clone, Debug, PartialEq)]
pub struct RouterFile {
    /// Where it was read.
    pub path: PathBuf,
    /// Its text, as it was read.
    pub text: String,
    config: RouterConfig,
    /// Whether it has a seed of its own.
    has_seed: bool,
}

impl RouterFile {
    /// Reads a file and checks that a lab's router can follow it.
    ///
    /// # Errors
    /// One line: the file, the key, and what to do.
    pub fn read(path: &Path) -> Result<RouterFile> {
        RouterFile::read_with(path, testbed_ports)
    }

    /// As [`RouterFile::read`], for the router of a scenario: its ports are named after the scenario's links, of
    /// which there may be more.
    ///
    /// # Errors
    /// As there.
    pub fn of_scenario(path: &Path, links: &[&str]) -> Result<RouterFile> {
        let file = RouterFile::read_with(path, |names| {
            let unknown = names.iter().find(|name| !links.contains(name));
            ensure!(
                unknown.is_none(),
                "port {:?}: the router has no such link; its links are {}",
                unknown.unwrap_or(&""),
                links.join(", ")
            );
            Ok(())
        })?;
        ensure!(
            file.config.routes.is_empty(),
            "{}: route: the scenario's links and hosts give the routes; leave [[route]] out",
            path.display()
        );
        Ok(file)
    }

    fn read_with(path: &Path, check: impl FnOnce(&[&str]) -> Result<()>) -> Result<RouterFile> {
        let Read { text, keys, mut config } = router_file::read(path)?;
        let names: Vec<&str> = config.ports.iter().map(|port| port.interface.as_str()).collect();
        let admitted = check(&names).and_then(|()| admit(&config, &keys));
        admitted.map_err(|why| anyhow!("{}: {why:#}", path.display()))?;
        let has = |table: &str, key: &str| keys.get(table).and_then(|it| it.get(key)).is_some();
        if !has("tables", "routes_v4") {
            config.tables.routes_v4 = ROUTES;
        }
        if !has("tables", "routes_v6") {
            config.tables.routes_v6 = ROUTES;
        }
        if !keys.contains_key("spin_us") {
            config.spin_us = SPIN_US;
        }
        let has_seed = keys.contains_key("seed");
        Ok(RouterFile { path: path.to_owned(), text, config, has_seed })
    }

    /// The rate of the link of a port, by its name.
    pub fn rate(&self, port: &str) -> Option<Rate> {
        self.port(port).and_then(|port| port.rate)
    }

    /// By how much the link of a port is made longer, by its name.
    pub fn delay(&self, port: &str) -> Span {
        self.port(port).map_or(Span::ZERO, |port| port.delay)
    }

    /// How long a packet may stay in each port: as long as a full queue takes to leave at the link's rate,
    /// and its delay; two minutes at the most.
    pub fn stays(&self) -> [Span; 2] {
        PROGRAM_INTERFACES.map(|name| self.port(name).map_or(Span::ZERO, stay))
    }

    fn port(&self, name: &str) -> Option<&PortSection> {
        self.config.ports.iter().find(|port| port.interface == name)
    }
}

fn stay(port: &PortSection) -> Span {
    let waiting = port.rate.map_or(Span::ZERO, |rate| rate.span_of(capacity_bytes(&port.queue)));
    Span(waiting.0.saturating_add(port.delay.0).min(STAY_MAX.0))
}

/// The most that a queue holds, bytes.
fn capacity_bytes(queue: &Option<QueueSpec>) -> u64 {
    let packets = |packets: u32| u64::from(packets) * FRAME_BYTES;
    let Some(queue) = queue else { return packets(QUEUE_PACKETS) };
    let by_cells = queue.buffer_cells.map(|cells| u64::from(cells) * CELL_PAYLOAD_BYTES);
    let given = queue.buffer_packets.map(packets).or(queue.buffer_bytes.map(u64::from));
    given.or(by_cells).unwrap_or_else(|| packets(QUEUE_PACKETS))
}

/// Refuses ports that a lab has not.
fn testbed_ports(names: &[&str]) -> Result<()> {
    let mut names = names.to_vec();
    names.sort_unstable();
    let found = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    ensure!(
        names == PROGRAM_INTERFACES,
        "a lab's router has the ports client and server ([[port]] with interface = \"client\", and one \
         with \"server\"); this file has {found}"
    );
    Ok(())
}

/// Refuses settings that a lab's router cannot have.
fn admit(config: &RouterConfig, keys: &toml::Table) -> Result<()> {
    ensure!(
        config.control == ControlSection::default(),
        "control: a lab's router has no control interface; leave [control] out"
    );
    ensure!(
        config.fabric.spare_ports == 0,
        "fabric.spare_ports: no interface comes later in a lab; leave it out"
    );
    ensure!(
        config.neighbours.is_empty(),
        "neighbour: the lab enters those of its links; leave [[neighbour]] out"
    );
    let tables = keys.get("port").and_then(toml::Value::as_array);
    for (port, keys) in config.ports.iter().zip(tables.into_iter().flatten()) {
        let name = &port.interface;
        let gone = [
            ("addresses", !port.addresses.is_empty(), "the lab gives the ports their addresses"),
            ("punt", port.punt.is_some(), "nothing runs beside a lab's router"),
            ("hotplug", port.hotplug, "a lab's links are there from the start"),
            ("multicast", port.multicast.is_some(), "a lab's traffic is TCP alone"),
            (
                "address_probes",
                keys.get("address_probes").is_some(),
                "its links carry only the lab's traffic, so they are not asked",
            ),
        ];
        for (key, is_there, why) in gone {
            ensure!(!is_there, "port {name}: {key}: {why}; leave it out");
        }
    }
    config.check()
}

/// The router of a testbed: its ports with their addresses, neighbours and routes, and all else as in the file, or
/// by default.
pub fn testbed_router(ports: &[DevicePort], seed: u64, file: Option<&RouterFile>) -> RouterConfig {
    let mut config = file.map_or_else(usual, |file| file.config.clone());
    if !file.is_some_and(|file| file.has_seed) {
        config.seed = seed;
    }
    let mut sections = std::mem::take(&mut config.ports);
    for port in ports {
        let given = sections.iter().position(|section| section.interface == port.interface);
        let section = given.map(|at| sections.swap_remove(at));
        let section = section.unwrap_or_else(|| PortSection::new(&port.interface));
        // Its hosts are known, and nothing but the lab's traffic is to be on its links.
        let mut section = PortSection { address_probes: 0, ..section };
        for &(address, length) in &port.addresses {
            section.addresses.push(AddressSection { address, length });
        }
        config.ports.push(section);
        for &(address, mac) in &port.neighbours {
            let octets = mac.map(|octet| format!("{octet:02x}"));
            config.neighbours.push(NeighbourSection {
                interface: port.interface.clone(),
                address,
                mac: octets.join(":"),
            });
        }
        for (prefix, gateway) in &port.routes {
            config.routes.push(RouteSection {
                prefix: prefix.to_string(),
                via: vec![*gateway],
                interface: Some(port.interface.clone()),
                fate: None,
            });
        }
    }
    config
}

fn usual() -> RouterConfig {
    let (routes_v4, routes_v6) = (ROUTES, ROUTES);
    let tables = TablesSection { routes_v4, routes_v6, ..TablesSection::default() };
    RouterConfig { tables, spin_us: SPIN_US, ..RouterConfig::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORTS: &str = "[[port]]\ninterface = \"client\"\n[[port]]\ninterface = \"server\"\n";

    fn read(text: &str) -> Result<RouterFile> {
        let name = format!("nilometer-router-{}-{}.toml", std::process::id(), text.len());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).expect("a scratch file");
        let file = RouterFile::read(&path);
        std::fs::remove_file(path).expect("clean");
        file
    }

    #[test]
    fn settings_that_a_lab_provides_or_cannot_use_are_refused_by_name() {
        for (text, words) in [
            ("", "this file has none"),
            ("[[port]]\ninterface = \"p0\"\n[[port]]\ninterface = \"server\"\n", "has p0, server"),
            (
                "[[port]]\ninterface = \"client\"\n[[port]]\ninterface = \"client\"\n",
                "has client, client",
            ),
            (&format!("{PORTS}addresses = [\"198.18.0.1/24\"]\n"), "port server: addresses"),
            (&format!("{PORTS}punt = \"cpu0\"\n"), "port server: punt"),
            (&format!("{PORTS}hotplug = true\n"), "port server: hotplug"),
            (&format!("{PORTS}address_probes = 1\n"), "port server: address_probes"),
            (&format!("{PORTS}[port.multicast]\n"), "port server: multicast"),
            (&format!("{PORTS}[control]\nlisten = \"127.0.0.1:1\"\n"), "leave [control] out"),
            (&format!("{PORTS}[control]\nagentx = \"/x\"\n"), "leave [control] out"),
            (&format!("{PORTS}[fabric]\nspare_ports = 1\n"), "fabric.spare_ports"),
            (
                &format!(
                    "{PORTS}[[neighbour]]\ninterface = \"client\"\naddress = \"198.18.0.2\"\n\
                     mac = \"02:00:00:00:00:01\"\n"
                ),
                "leave [[neighbour]] out",
            ),
            (&format!("{PORTS}rat = \"1 Mb/s\"\n"), "line 5: unknown key `rat`"),
        ] {
            let error = format!("{:#}", read(text).expect_err(words));
            assert!(error.contains(words) && !error.contains('\n'), "{error}");
            assert!(error.contains("nilometer-router-"), "{error} names no file");
        }
    }

    #[test]
    fn the_file_decides_and_the_lab_fills_in() {
        let file = read(
            "[tables]\nengine_v4 = \"lines\"\nroutes_v6 = 99\n[[port]]\ninterface = \"server\"\n\
             delay = \"20 ms\"\n[[port]]\ninterface = \"client\"\nrate = \"8 Mb/s\"\n\
             queue = { discipline = \"tail_drop\", buffer_bytes = 100000 }\n",
        )
        .expect("a file for a lab");
        let port = |interface: &str, address: &str| DevicePort {
            interface: interface.to_owned(),
            addresses: vec![(address.parse().expect("an address"), 30)],
            neighbours: Vec::new(),
            routes: Vec::new(),
        };
        let ports = [port("client", "198.19.255.2"), port("server", "198.19.255.5")];
        let config = testbed_router(&ports, 7, Some(&file));
        let names: Vec<_> = config.ports.iter().map(|port| port.interface.as_str()).collect();
        assert_eq!(names, PROGRAM_INTERFACES, "in the testbed's order");
        assert_eq!((config.seed, config.tables.engine_v4.name()), (7, "lines"));
        assert_eq!((config.tables.routes_v4, config.tables.routes_v6), (ROUTES, 99));
        assert_eq!(config.ports[0].rate, Some(Rate::from_megabits(8)));
        assert!(config.ports[0].queue.is_some() && config.ports[1].queue.is_none());
        assert_eq!(config.ports[1].delay, Span::from_nanos(20_000_000));
        assert_eq!(config.ports[0].addresses.len(), 1);
        assert!(config.ports.iter().all(|port| port.address_probes == 0));
        // 100,000 bytes at 8 Mb/s take 100 ms.
        assert_eq!(file.stays(), [100, 20].map(|ms| Span::from_nanos(1_000_000 * ms)));
        let seeded = read(&format!("seed = 5\n{PORTS}")).expect("a file for a lab");
        assert_eq!(testbed_router(&ports, 7, Some(&seeded)).seed, 5);
        assert_eq!(testbed_router(&ports, 7, None).seed, 7);
    }

    #[test]
    fn a_router_spins_as_configured_and_at_most_ten_milliseconds() {
        let spins = |text: &str| {
            let config: RouterConfig = toml::from_str(&format!("{text}{PORTS}")).expect("a router");
            config.check().map(|()| config.spin_us).map_err(|why| why.to_string())
        };
        assert_eq!(spins(""), Ok(0));
        assert_eq!(spins("spin_us = 10000\n"), Ok(10_000));
        let refusal = spins("spin_us = 10001\n").expect_err("too long");
        assert!(refusal.contains("spin_us is 10001, and 10000 are the most"), "{refusal}");
    }

    #[test]
    fn the_router_of_a_lab_spins_unless_its_file_overrides_it() {
        assert_eq!(testbed_router(&[], 1, None).spin_us, 50);
        let path = std::env::temp_dir().join(format!("nilometer-spin-{}.toml", std::process::id()));
        for (text, spin_us) in [("", 50), ("spin_us = 0\n", 0), ("spin_us = 7\n", 7)] {
            std::fs::write(&path, format!("{text}{PORTS}")).expect("a scratch file");
            let file = RouterFile::read(&path).expect("a file for a lab");
            assert_eq!(testbed_router(&[], 1, Some(&file)).spin_us, spin_us, "{text:?}");
        }
        std::fs::remove_file(path).expect("clean");
    }
}
