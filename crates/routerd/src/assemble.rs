//! From a ROUTER.toml to a router that is ready to be driven: memory, ports, tables, pipeline.
//!
//! Everything is opened before anything forwards, so that a configuration that this machine cannot
//! carry out is refused as a whole, with one reason. Ports are opened in the network namespace of
//! the calling thread.

use std::borrow::Cow;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nilometer_router::pipeline::port::PortPlan;
use serde::{Deserialize, Serialize};

use super::config::{PortKind, PortSection, RouterConfig};
use super::driver::{Driver, Remote};
use super::machine::{introduce, local_mac, machine, rsvp_settings, spare_port};
use super::recording::event::Beginning;
use super::recording::{Command, Recorder};
use super::routes::Routes;
use super::shares::{BESIDE_RESERVE, OWN_RESERVE, RING_ENTRIES};
use nilometer_files::document::draft::Draft;
use nilometer_linux::flow_offload::FlowOffload;
use nilometer_linux::memory::{MemoryConfig, PacketMemory};
use nilometer_linux::netlink::Netlink;
use nilometer_linux::packet_port::{PacketPort, PacketPortConfig};
use nilometer_linux::port::{AnyPort, ChecksumOffload, PortIo};
use nilometer_linux::tap::{TapConfig, TapPort};
use nilometer_linux::xdp::{XdpConfig, XdpMode, XdpPort};

/// The MTU of a port whose interface is not there yet.
const MTU_ABSENT: u16 = 1_500;

/// Notes for the operator on how a router was assembled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notes {
    /// How each port was opened.
    pub ports: Vec<String>,
    /// Settings that could not be applied, and why.
    pub fallbacks: Vec<String>,
    /// Behaviour that may surprise, and the remedy.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// A router that is ready to be driven.
pub struct Assembly {
    /// Its driver, for one thread to run.
    pub driver: Driver,
    /// To speak to it meanwhile.
    pub remote: Remote,
    /// Its routes.
    pub routes: Routes,
    /// How each port was opened, what fell back and why.
    pub notes: Notes,
}

/// Options of a router's assembly, beside its file.
#[derive(Debug, Default)]
pub struct Options {
    /// Takes interfaces of the host as well.
    pub allow_foreign: bool,
    /// Where its inputs and decisions are recorded; it takes no shortcuts then.
    pub recording: Option<Draft>,
}

/// Builds the router.
///
/// # Errors
/// A setting that cannot be applied as requested, by its name in the file.
pub fn assemble(config: &RouterConfig, options: Options) -> Result<Assembly> {
    config.check()?;
    let Options { allow_foreign, recording } = options;
    let (mut recorder, tables) = recording.map(Recorder::new).unzip();
    let mut config = Cow::Borrowed(config);
    if recorder.is_some() {
        config.to_mut().tables.shortcuts = 0;
    }
    let config = &*config;
    let mut memory = PacketMemory::new(MemoryConfig {
        chunk_bytes: config.memory.buffer_bytes,
        chunks: config.memory.buffers,
        reserve: OWN_RESERVE,
    })
    .context("memory")?;
    let (mut opened, mut notes) = (Vec::new(), Notes::default());
    let flow_offload = flow_offload(config, &mut notes.fallbacks)?;
    for (number, port) in config.ports.iter().enumerate() {
        if port.hotplug && Netlink::open()?.link(&port.interface).is_err() {
            notes.ports.push(format!("{}: not there yet", port.interface));
            opened.push(None);
            continue;
        }
        let place = flow_offload.clone().map(|all| (all, number as u16));
        let (device, note) = open(&mut memory, port, (allow_foreign, place), &mut notes.fallbacks)?;
        notes.ports.push(format!("{}: {note}", port.interface));
        notes.warnings.extend(kernel_addresses(port, &device)?);
        let beside = beside(&mut memory, port, &device)?;
        opened.push(Some((device, beside)));
    }
    let plans = config.ports.iter().zip(&opened).enumerate().map(|(number, (port, opened))| {
        let plan = match opened {
            Some((device, _)) => plan_of(port, device),
            None => port.plan(local_mac(number), MTU_ABSENT),
        };
        (plan, Some(port))
    });
    let spare = (0..config.fabric_ports() - config.ports.len()).map(spare_port);
    let plans: Vec<_> = plans.chain(spare).collect();
    let mut routes = Routes::new(config, tables)?;
    let router = machine(config, &plans, routes.rib_thread().lookups()?)?;
    if let Some(recorder) = &mut recorder {
        let of = |(plan, _): &(PortPlan, Option<&PortSection>)| (plan.mac, plan.mtu_bytes);
        let ports = plans.iter().take(config.ports.len()).map(of).collect();
        let mut config = config.clone();
        for (section, state) in config.plugins.iter_mut().zip(router.plugins().states()) {
            *section = section.pinned(&state.class);
        }
        recorder.begin(&Beginning { config, ports }, &router)?;
    }
    let (mut driver, remote) = Driver::new(router, memory, routes.rib_thread().hops(), recorder)?;
    if let Some(flow_offload) = flow_offload {
        driver.set_flow_offload(flow_offload);
    }
    driver.set_spin(Duration::from_micros(config.spin_us.into()));
    let mtus_bytes: Vec<u16> = plans.iter().map(|(plan, _)| plan.mtu_bytes).collect();
    driver.set_reservations(rsvp_settings(config, &mtus_bytes));
    for (number, opened) in opened.into_iter().enumerate() {
        match opened {
            Some((device, beside)) => driver.attach(number, device, beside),
            None => unplugged(&mut driver, number)?,
        }
        if let Some(port) = config.ports.get(number) {
            driver.set_pace(number, port.pace());
        }
    }
    routes.listen(config).context("control")?;
    Ok(Assembly { driver, remote, routes, notes })
}

/// Marks port `number` in the router as without a device, so that no packets are made for its link.
fn unplugged(driver: &mut Driver, number: usize) -> Result<()> {
    let mut done = Ok(());
    driver.change(
        || Command::Link { port: number, is_up: false },
        |now, router, mut memory| {
            done = router.set_link(now, number, false, &mut memory);
        },
    )?;
    Ok(done?)
}

/// Opens the device of port `number` again, whose interface has appeared; returns warnings. Panics where
/// there is no such port.
///
/// # Errors
/// When it cannot be opened, or packets of the port's last device are still on their way.
pub fn reopen(
    driver: &mut Driver,
    config: &RouterConfig,
    number: usize,
    allow_foreign: bool,
) -> Result<Option<String>> {
    ensure!(!driver.is_recorded(), "a router that is recorded takes no new devices");
    let port = &config.ports[number];
    let place = driver.flow_offload().map(|all| (all, number as u16));
    let (_, memory) = driver.parts_mut();
    let (device, _) = open(memory, port, (allow_foreign, place), &mut Vec::new())?;
    let warning = kernel_addresses(port, &device).unwrap_or_else(|why| Some(format!("{why:#}")));
    match make_fit(driver, port, number, &device) {
        Ok(beside) => driver.attach(number, device, beside),
        Err(why) => {
            device.close(driver.parts_mut().1);
            return Err(why);
        }
    }
    introduce(driver.router_mut(), config, Some(number))?;
    Ok(warning)
}

/// Makes the place of a port fit a device, and the kernel's side of it.
fn make_fit(
    driver: &mut Driver,
    port: &PortSection,
    number: usize,
    device: &AnyPort,
) -> Result<Option<TapPort>> {
    let now = driver.now();
    let (router, memory) = driver.parts_mut();
    let before = router.ports()[number].plan();
    let (was_vacant, same) = (before.is_vacant, (before.mac, before.mtu_bytes));
    let new = plan_of(port, device);
    // A port that was unplugged and could not be plugged in again yet is vacant, whatever its plan.
    if was_vacant || same != (new.mac, new.mtu_bytes) {
        // Settings changed at run time stay.
        let fabric = router.fabric();
        let (rate, burst_bytes) = (fabric.rate(number), fabric.burst_bytes(number));
        let delay = fabric.delay(number);
        if !was_vacant {
            router.unplug(number, memory)?;
        }
        router.plug(now, number, PortPlan { rate, burst_bytes, delay, ..new })?;
    }
    beside(memory, port, device)
}

/// The pipeline's plan of a port with this device.
fn plan_of(port: &PortSection, device: &AnyPort) -> PortPlan {
    let mtu_bytes = u16::try_from(device.mtu_bytes()).unwrap_or(u16::MAX).min(9_216);
    port.plan(device.mac(), mtu_bytes)
}

/// The table of shortcuts, if there is to be one and can be.
fn flow_offload(config: &RouterConfig, fallbacks: &mut Vec<String>) -> Result<Option<FlowOffload>> {
    let places = config.tables.shortcuts;
    let has_devices = config.ports.iter().any(|port| port.kind != PortKind::Packet);
    if places == 0 || !has_devices {
        return Ok(None);
    }
    match FlowOffload::new(places) {
        Ok(flow_offload) => Ok(Some(flow_offload)),
        Err(why) => {
            fallbacks.push(format!("no flow takes a shortcut, every packet is copied: {why:#}"));
            Ok(None)
        }
    }
}

/// Opens the device of a port, and returns how. It may use interfaces of the host where that is
/// allowed, and let flows take shortcuts.
fn open(
    memory: &mut PacketMemory,
    port: &PortSection,
    (allow_foreign, flow_offload): (bool, Option<(FlowOffload, u16)>),
    fallbacks: &mut Vec<String>,
) -> Result<(AnyPort, String)> {
    let name = &port.interface;
    let checksum = match port.partial_checksums {
        true => ChecksumOffload::Partial,
        false => ChecksumOffload::AsIs,
    };
    let xdp = XdpConfig {
        mode: XdpMode::Fitting,
        checksum,
        ring_entries: RING_ENTRIES,
        reserve: RING_ENTRIES,
        busy_poll_us: port.busy_poll_us,
        allow_foreign,
        flow_offload,
        steers: port.keeps_order,
        ..XdpConfig::default()
    };
    let packet = PacketPortConfig {
        checksum,
        reserve: RING_ENTRIES,
        allow_foreign,
        ..PacketPortConfig::default()
    };
    let by_packet = |memory: &mut PacketMemory| {
        let port = PacketPort::open(memory, name, &packet)?;
        Ok((AnyPort::Packet(port), "AF_PACKET".to_owned()))
    };
    if port.kind == PortKind::Packet {
        return by_packet(memory);
    }
    match XdpPort::open(memory, name, &xdp) {
        Err(why) if port.kind == PortKind::Auto => {
            let opened = by_packet(memory).map_err(|error| {
                // (If both give the same reason, it is reported once.)
                match error.root_cause().to_string() == why.root_cause().to_string() {
                    true => error,
                    false => error.context(format!("AF_XDP was refused as well ({why:#})")),
                }
            })?;
            fallbacks.push(format!("{name} is opened by AF_PACKET, which is slower: {why:#}"));
            Ok(opened)
        }
        other => other.map(described),
    }
}

/// A warning, with a remedy, if the kernel has addresses on the interface of a port.
///
/// # Errors
/// When the kernel cannot be queried.
fn kernel_addresses(port: &PortSection, device: &AnyPort) -> Result<Option<String>> {
    let name = &port.interface;
    let addresses = Netlink::open()?.addresses(name)?;
    if addresses.is_empty() {
        return Ok(None);
    }
    let all: Vec<_> =
        addresses.iter().map(|(address, length)| format!("{address}/{length}")).collect();
    let away: Vec<_> = all.iter().map(|it| format!("ip addr del {it} dev {name}")).collect();
    // A packet socket gets copies; from AF_XDP nothing is left over for the kernel.
    let what = match device {
        AnyPort::Packet(_) => "and answers beside the router",
        _ => "and gets no packet that comes by it",
    };
    let (all, away) = (all.join(", "), away.join("; "));
    Ok(Some(format!(
        "the kernel has {all} on {name}, {what}: remove it ({away}); `punt` gives the kernel an \
         interface of its own with the port's addresses, for what is for the router itself"
    )))
}

fn described(port: XdpPort) -> (AnyPort, String) {
    let description = format!("AF_XDP, {}", port.description());
    (AnyPort::Xdp(port), description)
}

/// Makes the interface on which the kernel gets packets that came by `device` for the router itself,
/// and gives it the port's addresses; daemons know the port by it.
fn beside(
    memory: &mut PacketMemory,
    port: &PortSection,
    device: &AnyPort,
) -> Result<Option<TapPort>> {
    let Some(name) = &port.punt else { return Ok(None) };
    ensure!(name.len() <= 15 && !name.is_empty(), "port.punt: `{name}` is not an interface name");
    let tap = TapPort::create(
        memory,
        &TapConfig {
            name: name.to_owned(),
            mac: device.mac(),
            mtu_bytes: device.mtu_bytes(),
            checksum: ChecksumOffload::Partial,
            reserve: BESIDE_RESERVE,
        },
    )?;
    let mut netlink = Netlink::open()?;
    for at in &port.addresses {
        netlink
            .add_address(name, at.address, at.length)
            .with_context(|| format!("cannot give {name} the address {}", String::from(*at)))?;
    }
    Ok(Some(tap))
}
