//! From a ROUTER.toml to a router that is ready to be driven: memory, ports, tables, pipeline.
//!
//! Everything is opened before anything forwards, so that a configuration which this machine cannot
//! carry out is refused whole, with one reason. Ports are opened in the network namespace of the
//! calling thread.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use nilometer_queue::aal5::Framing;
use nilometer_queue::distributed::{Fabric as Shape, Variant};
use nilometer_queue::voq::InputLimits;
use nilometer_queue::{Any, Capacity, Kind, Settings};
use nilometer_router::classifier::RuleId;
use nilometer_router::fabric::FabricPlan;
use nilometer_router::memory::Ticket;
use nilometer_router::neighbour::Given;
use nilometer_router::pipeline::engine::{Filters, Tables};
use nilometer_router::pipeline::port::PortPlan;
use nilometer_router::pipeline::{Router, RouterPlan};
use nilometer_sim::queueing::{Place as QueuePlace, QueueSpec};
use nilometer_wire::{Rate, Time};
use serde::{Deserialize, Serialize};

use super::config::{FabricSection, PortKind, PortSection, Queueing, RouterConfig};
use super::driver::{Driver, Remote};
use super::queue_size::sized;
use super::recording::event::Beginning;
use super::recording::{Command, Recorder};
use super::rib_thread::Readers;
use super::routes::{Routes, check_link_local, entered};
use super::shares::{BESIDE_RESERVE, OWN_RESERVE, RING_ENTRIES, Shared, shares};
use nilometer_files::document::draft::Draft;
use nilometer_linux::flow_offload::FlowOffload;
use nilometer_linux::memory::{Memory, MemoryConfig};
use nilometer_linux::netlink::{MacAddress, Netlink};
use nilometer_linux::packet_port::{PacketPort, PacketPortConfig};
use nilometer_linux::port::{ChecksumOffload, Port, PortIo};
use nilometer_linux::tap::{TapConfig, TapPort};
use nilometer_linux::xdp::{XdpConfig, XdpMode, XdpPort};

/// The MTU of a port whose interface is not there yet.
const MTU_ABSENT: u16 = 1_500;
/// Packets of the discipline where a port does not say.
pub const QUEUE_PACKETS: u32 = 2_048;

/// What a person should know of how a router was put together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notes {
    /// How each port was opened.
    pub ports: Vec<String>,
    /// What was to be otherwise, and why it is not.
    pub fallbacks: Vec<String>,
    /// What will not go as one may expect, and what to do about it.
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

/// How a router is put together, besides what its file says.
#[derive(Debug, Default)]
pub struct Options {
    /// Takes interfaces of the host as well.
    pub allow_foreign: bool,
    /// Where all that it is told and does is recorded; it takes no shortcuts then.
    pub recording: Option<Draft>,
}

/// Builds the router.
///
/// # Errors
/// What cannot be as it is asked for, by its name in the file.
pub fn assemble(config: &RouterConfig, options: Options) -> Result<Assembly> {
    config.check()?;
    let Options { allow_foreign, recording } = options;
    let (mut recorder, tables) = recording.map(Recorder::new).unzip();
    let mut config = Cow::Borrowed(config);
    if recorder.is_some() {
        config.to_mut().tables.shortcuts = 0;
    }
    let config = &*config;
    let mut memory = Memory::new(MemoryConfig {
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
        recorder.begin(&Beginning { config: config.clone(), ports }, &router)?;
    }
    let (mut driver, remote) = Driver::new(router, memory, routes.rib_thread().hops(), recorder)?;
    if let Some(flow_offload) = flow_offload {
        driver.set_flow_offload(flow_offload);
    }
    driver.set_spin(Duration::from_micros(config.spin_us.into()));
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

/// A router without devices: its pipeline, and its routes.
pub struct Machine {
    /// The pipeline.
    pub router: Router,
    /// Its routes, whose next hops the pipeline is yet to be given.
    pub routes: Routes,
}

impl Machine {
    /// The router of a configuration whose ports have these link-layer addresses and carry IP packets of so many
    /// bytes: for a driver that brings its own ports and clock. It has the next hops of its routes.
    ///
    /// # Errors
    /// What cannot be as it is asked for, by its name in the file.
    pub fn without_devices(
        config: &RouterConfig,
        macs: &[MacAddress],
        mtu_bytes: u16,
    ) -> Result<Machine> {
        config.check()?;
        ensure!(macs.len() == config.ports.len(), "each port needs a link-layer address");
        let ports: Vec<_> = macs.iter().map(|&mac| (mac, mtu_bytes)).collect();
        let routes = Routes::new(config, None)?;
        let lookups = routes.rib_thread().lookups()?;
        let mut router = router_without_devices(config, &ports, lookups)?;
        let hops = routes.rib_thread().hops();
        router.set_hops(Arc::clone(hops.current()));
        Ok(Machine { router, routes })
    }
}

/// The pipeline of a configuration whose ports have these link-layer addresses and carry IP packets of so many bytes,
/// without next hops; routes are looked up in these tables.
///
/// # Errors
/// What cannot be as it is asked for, by its name in the file.
pub fn router_without_devices(
    config: &RouterConfig,
    ports: &[(MacAddress, u16)],
    lookups: Readers,
) -> Result<Router> {
    let ports = config.ports.iter().zip(ports);
    let plans = ports.map(|(port, &(mac, mtu_bytes))| (port.plan(mac, mtu_bytes), Some(port)));
    let spare = (0..config.fabric_ports() - config.ports.len()).map(spare_port);
    machine(config, &plans.chain(spare).collect::<Vec<_>>(), lookups)
}

/// Puts a router's tables, filters, neighbours and pipeline together.
fn machine(
    config: &RouterConfig,
    plans: &[(PortPlan, Option<&PortSection>)],
    lookups: Readers,
) -> Result<Router> {
    for route in entered(config)? {
        check_link_local(&route, |port| plans[usize::from(port)].0.mac)?;
    }
    let tables = Tables {
        routes4: lookups.v4,
        routes6: lookups.v6,
        filters4: Filters::new(config.tables.classifier.classifier(config.tables.filters)),
        filters6: Filters::new(config.tables.classifier.classifier(config.tables.filters)),
    };
    let mut router = router(config, plans, tables)?;
    filter(&mut router, config)?;
    introduce(&mut router, config, None)?;
    Ok(router)
}

/// Tells the router that port `number` has no device yet, so that nothing is made for its link.
fn unplugged(driver: &mut Driver, number: usize) -> Result<()> {
    let now = driver.now();
    let mut done = Ok(());
    driver.change(
        || Command::Link { port: number, is_up: false },
        |router, mut memory| {
            done = router.set_link(now, number, false, &mut memory);
        },
    )?;
    Ok(done?)
}

/// Opens the device of port `number` again, whose interface has come; what to warn of. Panics where there
/// is no such port.
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
    device: &Port,
) -> Result<Option<TapPort>> {
    let now = driver.now();
    let (router, memory) = driver.parts_mut();
    let before = router.ports()[number].plan();
    let (was_vacant, same) = (before.is_vacant, (before.mac, before.mtu_bytes));
    let new = plan_of(port, device);
    // One that was pulled out and could not be plugged in yet is vacant, whatever its plan says.
    if was_vacant || same != (new.mac, new.mtu_bytes) {
        // What was changed while it ran stays.
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

/// What the pipeline is told of a port with this device.
fn plan_of(port: &PortSection, device: &Port) -> PortPlan {
    let mtu_bytes = u16::try_from(device.mtu_bytes()).unwrap_or(u16::MAX).min(9_216);
    port.plan(device.mac(), mtu_bytes)
}

fn router(
    config: &RouterConfig,
    plans: &[(PortPlan, Option<&PortSection>)],
    tables: Tables,
) -> Result<Router> {
    let fabric = fabric(config)?;
    let mut ports = Vec::new();
    for (number, (plan, section)) in plans.iter().enumerate() {
        let queue = section.and_then(|section| section.queue.as_ref());
        let place = PortPlace { plan, number, rate: plan.rate, config };
        let discipline = place.discipline(queue)?;
        ports.push((plan.clone(), discipline));
    }
    let manners = config.rfc1812.manners();
    let plan = RouterPlan { manners, ..RouterPlan::new(fabric, config.seed) };
    let mut router = Router::new(plan, ports, tables).map_err(|why| anyhow!("{why}"))?;
    for (number, (_, section)) in plans.iter().enumerate() {
        let is_usual = section.is_none_or(|section| section.queue.is_none());
        router.fabric_mut().set_usual(number, is_usual);
    }
    Ok(router)
}

/// Where a discipline is to stand.
pub struct PortPlace<'a> {
    /// The port.
    pub plan: &'a PortPlan,
    /// Its number.
    pub number: usize,
    /// The rate that its link is held to now.
    pub rate: Option<Rate>,
    /// All else.
    pub config: &'a RouterConfig,
}

impl PortPlace<'_> {
    /// The discipline that `queue` asks for, or the usual one, empty.
    ///
    /// # Errors
    /// What cannot be, by its name.
    pub fn discipline(&self, queue: Option<&QueueSpec>) -> Result<Any<Ticket>> {
        let name = &self.plan.name;
        Any::new(&self.settings(queue)?).map_err(|why| anyhow!("port {name}: queue: {why}"))
    }

    /// What that discipline is told.
    ///
    /// # Errors
    /// What cannot be, by its name.
    pub fn settings(&self, queue: Option<&QueueSpec>) -> Result<Settings> {
        let &PortPlace { plan, number, rate, config } = self;
        let rate = rate.unwrap_or(config.fabric.link_rate);
        let Some(queue) = queue else {
            return Ok(usual_queue(plan, rate, config.seed, number));
        };
        let (mtu, index) = (link_bytes(plan), number as u32);
        let place = QueuePlace { name: &plan.name, rate, mtu, seed: config.seed, index };
        let settings = sized(queue.clone(), rate).settings(&place);
        settings.map_err(|why| anyhow!("port {}: queue: {why}", plan.name))
    }
}

/// The largest frame of a port, as its queue counts: with the Ethernet header and what the link adds.
fn link_bytes(plan: &PortPlan) -> u32 {
    u32::from(plan.mtu_bytes) + 14 + u32::from(plan.overhead_bytes)
}

fn usual_queue(plan: &PortPlan, rate: Rate, seed: u64, number: usize) -> Settings {
    let index = number as u64;
    let mtu_bytes = link_bytes(plan);
    Settings {
        mtu_bytes,
        seed,
        index,
        ..Settings::new(Kind::Qsdrr, Capacity::Packets(QUEUE_PACKETS), rate)
    }
}

/// What the description asks for.
///
/// # Errors
/// When a number is out of its range.
pub fn fabric(config: &RouterConfig) -> Result<FabricPlan> {
    let (section, ports) = (&config.fabric, config.fabric_ports());
    let Shared { input: sharing, memory } = shares(config)?;
    let shape = Shape::new(ports, section.speedup, section.link_rate, section.period)
        .map_err(|why| anyhow!("fabric: {why}"))?;
    let framing = if section.cells { Framing::Cells } else { Framing::Whole };
    let packets = section.input_packets;
    let input = InputLimits { packets, packet_bytes: 9_300, sharing, framing };
    let memory = Some(memory);
    Ok(FabricPlan { shape, variant: variant(section, shape.ports()), input, memory })
}

fn variant(section: &FabricSection, ports: usize) -> Option<Variant> {
    let minimum_backlog_bytes = section.minimum_backlog_bytes;
    let minimum_share = Variant::minimum_share(ports);
    match section.queueing {
        Queueing::Off => None,
        Queueing::Original => Some(Variant::Original),
        Queueing::Reserved => Some(Variant::Reserved { minimum_backlog_bytes, minimum_share }),
        Queueing::DqPlus => {
            Some(Variant::DqPlus { minimum_backlog_bytes, minimum_share, deferral_periods: None })
        }
    }
}

fn spare_port<'a>(number: usize) -> (PortPlan, Option<&'a PortSection>) {
    (PortPlan::new(&format!("spare{number}"), local_mac(number)), None)
}

/// The link-layer address of a port without a device.
fn local_mac(number: usize) -> [u8; 6] {
    [0x02, b'N', b'I', b'L', 0xff, number as u8]
}

/// Enters the filters, numbered in the order of the file.
fn filter(router: &mut Router, config: &RouterConfig) -> Result<()> {
    let insert = |what: Result<(), nilometer_router::Refused>, number: usize| {
        what.map_err(|why| anyhow!("filter {number}: {why}"))
    };
    for (number, filter) in config.filters.iter().enumerate() {
        let (four, six) = filter.rules().with_context(|| format!("filter {number}"))?;
        let inputs = config.inputs_of(filter).with_context(|| format!("filter {number}"))?;
        let (id, tables) = (RuleId(number as u32), router.tables_mut());
        if let Some(rule) = four {
            insert(tables.filters4.insert_at(id, inputs, rule), number)?;
        }
        if let Some(rule) = six {
            insert(tables.filters6.insert_at(id, inputs, rule), number)?;
        }
    }
    let tables = router.tables_mut();
    tables.filters4.settle();
    tables.filters6.settle();
    Ok(())
}

/// Enters the neighbours that are given by hand, all or those of one port.
fn introduce(router: &mut Router, config: &RouterConfig, only: Option<usize>) -> Result<()> {
    for neighbour in &config.neighbours {
        let number = config.port_named(&neighbour.interface)?;
        if only.is_some_and(|only| only != number) {
            continue;
        }
        let mac = read_mac(&neighbour.mac)?;
        let port = router.port_mut(number);
        let given = match neighbour.address {
            IpAddr::V4(address) => {
                port.arp_mut().table.set(Time::ZERO, address.into(), mac, Given::Permanent)
            }
            IpAddr::V6(address) => {
                port.neighbours6_mut().set(Time::ZERO, address.into(), mac, Given::Permanent)
            }
        };
        given.map_err(|why| anyhow!("neighbour {}: {why}", neighbour.address))?;
    }
    Ok(())
}

/// A link-layer address as it is written: `02:00:00:00:00:01`.
///
/// # Errors
/// When it is none.
pub fn read_mac(text: &str) -> Result<[u8; 6]> {
    let octets: Vec<u8> =
        text.split(':').filter_map(|octet| u8::from_str_radix(octet, 16).ok()).collect();
    octets
        .try_into()
        .map_err(|_| anyhow!("`{text}` is no link-layer address, as 02:00:00:00:00:01 is"))
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

/// Opens the device of a port, and says how. It may take interfaces of the host where that is allowed, and
/// let flows pass by shortcuts.
fn open(
    memory: &mut Memory,
    port: &PortSection,
    (allow_foreign, flow_offload): (bool, Option<(FlowOffload, u16)>),
    fallbacks: &mut Vec<String>,
) -> Result<(Port, String)> {
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
    let packet = PacketPortConfig { checksum, reserve: RING_ENTRIES, allow_foreign };
    let by_packet = |memory: &mut Memory| {
        let port = PacketPort::open(memory, name, &packet)?;
        Ok((Port::Packet(port), "AF_PACKET".to_owned()))
    };
    if port.kind == PortKind::Packet {
        return by_packet(memory);
    }
    match XdpPort::open(memory, name, &xdp) {
        Err(why) if port.kind == PortKind::Auto => {
            let opened = by_packet(memory).map_err(|error| {
                // (What both say is said once.)
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

/// That the kernel has addresses on the interface of a port, if it has, and what to do.
///
/// # Errors
/// When the kernel does not say.
fn kernel_addresses(port: &PortSection, device: &Port) -> Result<Option<String>> {
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
        Port::Packet(_) => "and answers beside the router",
        _ => "and gets no packet that comes by it",
    };
    let (all, away) = (all.join(", "), away.join("; "));
    Ok(Some(format!(
        "the kernel has {all} on {name}, {what}: take it away ({away}); `punt` gives the kernel an \
         interface of its own with the port's addresses, for what is for the router itself"
    )))
}

fn described(port: XdpPort) -> (Port, String) {
    let description = format!("AF_XDP, {}", port.description());
    (Port::Xdp(port), description)
}

/// Makes the interface on which the kernel gets what came by `device` for the router itself, and gives
/// it the port's addresses: by it daemons know the port.
fn beside(memory: &mut Memory, port: &PortSection, device: &Port) -> Result<Option<TapPort>> {
    let Some(name) = &port.punt else { return Ok(None) };
    ensure!(name.len() <= 15 && !name.is_empty(), "port.punt: `{name}` is no interface name");
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
