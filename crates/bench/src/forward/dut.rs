//! Devices under test: our router in its variants, the kernel, the kernel with filters and a queue.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::ValueEnum;
use nilometer_router::Engine;
use nilometer_router::fib::{Lookups, NextHop};
use serde::{Deserialize, Serialize};

use super::site::{ADDRESSES, GATEWAY, PORTS, SINK, Site};
use super::traffic;
use nilometer_linux::clock::thread_time_of;
use nilometer_routerd::config::{
    AddressSection, NeighbourSection, PortKind, PortSection, Queueing, RouteSection, RouterConfig,
};
use nilometer_routerd::running::Running;
use nilometer_routerd::tally::Paths;

/// Routes of our router.
pub const ROUTES: usize = 100_000;
/// Filters of our router, and of the kernel's.
pub const FILTERS: usize = 1_000;

nilometer_wire::named! {
    /// Devices to be measured.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Dut {
        /// Our router.
        Nilometer = "nilometer",
        /// Linux forwarding with a single route.
        Linux = "linux",
        /// Linux forwarding with nftables filters and a tc queue.
        Nftables = "nftables",
    }
}

nilometer_wire::named! {
    /// Variants of our router.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Variant {
        /// All stages, for every packet.
        #[value(name = "complete", alias = "no_shortcuts")]
        Complete = "complete",
        /// All stages, with a single processor for all input, so that packets sent from several processors keep their
        /// order. (The other devices do not guarantee that, nor does `complete`.)
        #[value(name = "ordered")]
        Ordered = "ordered",
        /// Without distributed queueing.
        #[value(name = "no_dq")]
        NoDq = "no_dq",
        /// One next hop for all addresses, without a lookup table.
        #[value(name = "no_lookup")]
        NoLookup = "no_lookup",
        /// Without filters.
        #[value(name = "no_classifier")]
        NoClassifier = "no_classifier",
        /// Without distributed queueing; flows take shortcuts past the pipeline.
        #[value(name = "offloaded")]
        Offloaded = "offloaded",
    }
}

/// A device at work in its site.
pub enum Device {
    /// Nothing: the generator's link ends at the sink.
    None,
    /// Our router, and its thread.
    Router {
        /// The router.
        running: Box<Running>,
        /// What the kernel calls the thread that forwards.
        thread_id: i32,
    },
    /// The kernel.
    Kernel,
}

impl Device {
    /// Sets the device up.
    ///
    /// # Errors
    /// If a part of the device cannot be set up.
    pub fn start(site: &Site, dut: Option<(Dut, Variant)>, seed: u64) -> Result<Device> {
        match dut {
            None => Ok(Device::None),
            Some((Dut::Linux, _)) => site.forward_by_kernel().map(|()| Device::Kernel),
            Some((Dut::Nftables, _)) => {
                site.forward_by_kernel()?;
                filter_by_kernel(site, seed).map(|()| Device::Kernel)
            }
            Some((Dut::Nilometer, variant)) => start_router(site, variant, seed),
        }
    }

    /// The processor time of a thread that is the device's own.
    ///
    /// # Errors
    /// When our router has stopped.
    pub fn time(&self) -> Result<Duration> {
        match self {
            Device::Router { thread_id, .. } => {
                thread_time_of(*thread_id).context("the router's thread has ended")
            }
            Device::None | Device::Kernel => Ok(Duration::ZERO),
        }
    }

    /// What the kernel calls the thread that is the device's own.
    pub fn thread_id(&self) -> Option<i32> {
        match self {
            Device::Router { thread_id, .. } => Some(*thread_id),
            Device::None | Device::Kernel => None,
        }
    }

    /// What its ports are; none of a device that is not ours.
    pub fn ports(&self) -> Option<Vec<String>> {
        match self {
            Device::Router { running, .. } => Some(running.notes.ports.clone()),
            Device::None | Device::Kernel => None,
        }
    }

    /// The paths that packets have taken so far; `None` for a device that is not ours.
    ///
    /// # Errors
    /// When our router has stopped.
    pub fn paths(&self) -> Result<Option<Paths>> {
        match self {
            Device::Router { running, .. } => running.tally().map(|tally| Some(tally.paths)),
            Device::None | Device::Kernel => Ok(None),
        }
    }

    /// Ends it; an error when it does not balance.
    ///
    /// # Errors
    /// When our router failed, or lost count of a packet.
    pub fn stop(self) -> Result<()> {
        if let Device::Router { running, .. } = self {
            let tally = running.stop()?;
            ensure!(tally.balances, "the router lost count of its packets: {tally:?}");
        }
        Ok(())
    }
}

/// Why a device cannot be measured here, if it cannot.
pub fn missing(dut: Dut) -> Option<String> {
    if dut != Dut::Nftables {
        return None;
    }
    ["nft", "tc"].into_iter().find_map(|program| {
        let version = if program == "nft" { "--version" } else { "-Version" };
        let ran = Command::new(program).arg(version).stdout(Stdio::null()).status();
        let is_there = ran.is_ok_and(|status| status.success());
        (!is_there).then(|| format!("nftables is left out: the program {program} is not installed"))
    })
}

/// The router of a variant, as a person would describe it.
fn described(variant: Variant, seed: u64, mtu_bytes: u32) -> RouterConfig {
    let mut config = RouterConfig { seed, ..RouterConfig::default() };
    config.ports = PORTS
        .iter()
        .zip(ADDRESSES)
        .map(|((name, _), (address, length))| PortSection {
            kind: PortKind::Xdp,
            addresses: vec![AddressSection { address: address.into(), length }],
            keeps_order: variant == Variant::Ordered,
            ..PortSection::new(name)
        })
        .collect();
    config.memory.buffer_bytes = if mtu_bytes > 1_770 { 4_096 } else { 2_048 };
    config.memory.buffers = 16_384;
    config.tables.engine_v4 = Engine::Lines;
    config.tables.routes_v4 = 2 * ROUTES;
    config.tables.routes_v6 = 1_024;
    if variant != Variant::Offloaded {
        config.tables.shortcuts = 0;
    }
    config.neighbours = vec![NeighbourSection {
        interface: PORTS[1].0.to_owned(),
        address: GATEWAY.into(),
        mac: SINK.1.map(|octet| format!("{octet:02x}")).join(":"),
    }];
    let route = |prefix| RouteSection {
        prefix,
        via: vec![GATEWAY.into()],
        interface: Some(PORTS[1].0.to_owned()),
        fate: None,
    };
    config.routes = traffic::routes(seed, ROUTES).into_iter().map(route).collect();
    if variant != Variant::NoClassifier {
        let drawn = traffic::filters(seed, FILTERS);
        config.filters = drawn.iter().map(traffic::Drawn::section).collect();
    }
    if matches!(variant, Variant::NoDq | Variant::Offloaded) {
        config.fabric.queueing = Queueing::Off;
    }
    config
}

fn start_router(site: &Site, variant: Variant, seed: u64) -> Result<Device> {
    let mtu_bytes = site.mtu_bytes;
    let running = Running::start(Some(site.middle()), described(variant, seed, mtu_bytes), false)?;
    running.wait_until_up()?;
    if variant == Variant::NoLookup {
        running.remote.call(|driver| {
            let routes = &mut driver.router_mut().tables_mut().routes4;
            let mut found = [None];
            routes.look_up(&[0xc613_0001], &mut found);
            let found = found[0].ok_or_else(|| anyhow!("no_lookup has no route"))?;
            *routes = Box::new(Constant(found));
            anyhow::Ok(())
        })??;
    }
    let thread_id = running.thread_id()?;
    Ok(Device::Router { running: Box::new(running), thread_id })
}

/// The same answer for every address.
struct Constant(NextHop);

impl Lookups<u32> for Constant {
    fn look_up(&mut self, addresses: &[u32], next_hops: &mut [Option<NextHop>]) {
        next_hops[..addresses.len()].fill(Some(self.0));
    }
}

/// The denying filters as a set of nftables, and a queue of tc (HTB, which is sure to be available)
/// in front of the link.
fn filter_by_kernel(site: &Site, seed: u64) -> Result<()> {
    let elements = traffic::nft_elements(&traffic::filters(seed, FILTERS));
    let rules = format!(
        "table ip bench {{\n set denied {{\n  type ipv4_addr . ipv4_addr . inet_proto . \
         inet_service\n  flags interval\n  elements = {{ {elements} }}\n }}\n chain forward {{\n  \
         type filter hook forward priority 0; policy accept\n  ip saddr . ip daddr . ip protocol \
         . th dport @denied counter drop\n }}\n}}\n"
    );
    let port = PORTS[1].0;
    let queue = ["qdisc", "add", "dev", port, "root", "handle", "1:", "htb", "default", "1"];
    let class = "class add dev PORT parent 1: classid 1:1 htb rate 10gbit quantum 1514";
    let class: Vec<&str> =
        class.split(' ').map(|word| if word == "PORT" { port } else { word }).collect();
    site.middle().enter(|| {
        run("nft", &["-f", "-"], &rules)?;
        run("tc", &queue, "")?;
        run("tc", &class, "")
    })
}

fn run(program: &str, words: &[&str], input: &str) -> Result<()> {
    let mut child = Command::new(program)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    // If it does not read everything, its exit status shows that.
    let _ = child.stdin.take().expect("it is piped").write_all(input.as_bytes());
    let output = child.wait_with_output().with_context(|| format!("cannot wait for {program}"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("{program} {}: {}", words.join(" "), stderr.lines().next().unwrap_or("it failed"));
    }
    Ok(())
}
