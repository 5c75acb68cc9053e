//! A router without devices: tables, filters, neighbours and pipeline, assembled from its description.
//!
//! The live router gives it devices (`assemble`); the virtual lab and replays drive it by clocks of their own.

use std::net::IpAddr;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, ensure};
use nilometer_linux::netlink::MacAddress;
use nilometer_queue::aal5::Framing;
use nilometer_queue::distributed::{SwitchShape, Variant};
use nilometer_queue::voq::InputLimits;
use nilometer_queue::{Any, Capacity, DisciplineKind, Settings};
use nilometer_reservation::process::{Interface, RoutePinning, Settings as RsvpSettings};
use nilometer_router::classifier::{Action, Rule, RuleId};
use nilometer_router::fabric::FabricPlan;
use nilometer_router::header::ETHERNET_BYTES;
use nilometer_router::memory::Ticket;
use nilometer_router::neighbour::Given;
use nilometer_router::pipeline::engine::{Filters, Tables};
use nilometer_router::pipeline::port::PortPlan;
use nilometer_router::pipeline::{Router, RouterPlan};
use nilometer_sim::queueing::{Place as QueuePlace, QueueSpec};
use nilometer_wire::{Rate, Time};

use super::config::{FabricSection, PortSection, Queueing, RouterConfig};
use super::filter::{Rules, Side};
use super::plugins::NewInstance;
use super::queue_size::sized;
use super::reservations::PinningName;
use super::rib_thread::Readers;
use super::routes::{Routes, check_link_local, entered};
use super::shares::{Shared, shares};

/// Packets that a discipline holds by default.
pub const QUEUE_PACKETS: u32 = 2_048;

/// A router without devices: its pipeline, and its routes.
pub struct Machine {
    /// The pipeline.
    pub router: Router,
    /// Its routes, whose next hops the pipeline is yet to be given.
    pub routes: Routes,
}

impl Machine {
    /// The router of a configuration whose ports have these link-layer addresses and MTUs in bytes: for a
    /// driver that brings its own ports and clock. It has the next hops of its routes.
    ///
    /// # Errors
    /// The first setting that cannot be met, by its name in the file.
    pub fn without_devices(config: &RouterConfig, ports: &[(MacAddress, u16)]) -> Result<Machine> {
        config.check()?;
        ensure!(ports.len() == config.ports.len(), "each port needs a link-layer address");
        let routes = Routes::new(config, None)?;
        let lookups = routes.rib_thread().lookups()?;
        let mut router = router_without_devices(config, ports, lookups)?;
        let hops = routes.rib_thread().hops();
        router.set_hops(Arc::clone(hops.current()));
        Ok(Machine { router, routes })
    }
}

/// The pipeline of a configuration whose ports have these link-layer addresses and MTUs in bytes, without next
/// hops; routes are looked up in these tables.
///
/// # Errors
/// The first setting that cannot be met, by its name in the file.
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
pub(super) fn machine(
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
    enter_plugins(&mut router, config)?;
    router.set_signalling(config.reservations.rsvp);
    filter(&mut router, config)?;
    introduce(&mut router, config, None)?;
    Ok(router)
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
    let rfc1812 = config.rfc1812.settings();
    let plan = RouterPlan { rfc1812, ..RouterPlan::new(fabric, config.seed) };
    let mut router = Router::new(plan, ports, tables).map_err(|why| anyhow!("{why}"))?;
    for (number, (_, section)) in plans.iter().enumerate() {
        let is_usual = section.is_none_or(|section| section.queue.is_none());
        router.fabric_mut().set_usual(number, is_usual);
    }
    Ok(router)
}

/// Where a discipline is to be used.
pub struct PortPlace<'a> {
    /// The port.
    pub plan: &'a PortPlan,
    /// Its number.
    pub number: usize,
    /// The current rate of its link.
    pub rate: Option<Rate>,
    /// All else.
    pub config: &'a RouterConfig,
}

impl PortPlace<'_> {
    /// The discipline that `queue` describes, or the default one, empty.
    ///
    /// # Errors
    /// The invalid setting, by its name.
    pub fn discipline(&self, queue: Option<&QueueSpec>) -> Result<Any<Ticket>> {
        let name = &self.plan.name;
        Any::new(&self.settings(queue)?).map_err(|why| anyhow!("port {name}: queue: {why}"))
    }

    /// The settings of that discipline.
    ///
    /// # Errors
    /// The invalid setting, by its name.
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
        ..Settings::new(DisciplineKind::Qsdrr, Capacity::Packets(QUEUE_PACKETS), rate)
    }
}

/// The settings of the RSVP process of a router whose ports have these MTUs.
pub fn rsvp_settings(config: &RouterConfig, mtus_bytes: &[u16]) -> RsvpSettings {
    let section = &config.reservations;
    let interfaces = config.ports.iter().zip(mtus_bytes).map(|(port, mtu_bytes)| Interface {
        addresses: port.addresses.iter().map(|at| at.address).collect(),
        capacity: port.rate.unwrap_or(config.fabric.link_rate),
        reservable_percent: section.reservable_percent,
        overhead_bytes: ETHERNET_BYTES as u32 + u32::from(port.overhead_bytes),
        mtu_bytes: (*mtu_bytes).into(),
    });
    RsvpSettings {
        refresh: section.refresh,
        pinning: match section.pinning {
            PinningName::Explicit => RoutePinning::Explicit,
            PinningName::Reserved => RoutePinning::Reserved,
        },
        reservations_max: section.reservations_max,
        plugins: section.plugins.clone(),
        ..RsvpSettings::new(interfaces.collect(), config.seed)
    }
}

/// The fabric of the description.
///
/// # Errors
/// When a number is out of its range.
pub fn fabric(config: &RouterConfig) -> Result<FabricPlan> {
    let (section, ports) = (&config.fabric, config.fabric_ports());
    let Shared { input: sharing, memory } = shares(config)?;
    let shape = SwitchShape::new(ports, section.speedup, section.link_rate, section.period)
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

pub(super) fn spare_port<'a>(number: usize) -> (PortPlan, Option<&'a PortSection>) {
    (PortPlan::new(&format!("spare{number}"), local_mac(number)), None)
}

/// The link-layer address of a port without a device.
pub(super) fn local_mac(number: usize) -> [u8; 6] {
    [0x02, b'N', b'I', b'L', 0xff, number as u8]
}

/// Enters the instances of a configuration, and names to ports those that get labelled frames.
///
/// # Errors
/// The first that cannot be.
fn enter_plugins(router: &mut Router, config: &RouterConfig) -> Result<()> {
    for section in &config.plugins {
        let NewInstance { class, instance } = config.instance_of(section)?;
        let plugins = router.plugins_mut();
        plugins.add(&section.name, class, instance, section.on_fault.into())?;
    }
    for (number, port) in config.ports.iter().enumerate() {
        let named = router.set_labels(number, port.mpls.as_deref());
        named.with_context(|| format!("port {}: mpls", port.interface))?;
    }
    Ok(())
}

/// Enters the filters, numbered in the order of the file.
fn filter(router: &mut Router, config: &RouterConfig) -> Result<()> {
    for (number, filter) in config.filters.iter().enumerate() {
        let rules = filter.rules().with_context(|| format!("filter {number}"))?;
        let side = config.side_of(filter).with_context(|| format!("filter {number}"))?;
        let entered = enter_filter(router, number as u32, (side, &filter.plugins), rules);
        entered.with_context(|| format!("filter {number}"))?;
    }
    let tables = router.tables_mut();
    tables.filters4.settle();
    tables.filters6.settle();
    Ok(())
}

/// Enters a filter's rules for both families under one number, with a chain of the plugins that it names: all, or
/// nothing.
///
/// # Errors
/// When there is no such plugin, or no room.
pub fn enter_filter(
    router: &mut Router,
    number: u32,
    (side, plugins): (Side, &[String]),
    (mut four, mut six): Rules,
) -> Result<()> {
    let id = RuleId(number);
    if let Side::Output(_) = side {
        for name in plugins {
            let is_in_place = !router.plugins().takes_labels(name)?;
            ensure!(is_in_place, "plugin {name}: labels are put on what comes in; give `inputs`");
        }
    }
    let chain = match plugins {
        [] => None,
        plugins => Some(router.plugins_mut().bind(plugins)?),
    };
    if let Some(chain) = chain {
        four = four.map(|rule| Rule { action: Action::Active(chain), ..rule });
        six = six.map(|rule| Rule { action: Action::Active(chain), ..rule });
    }
    let entered = match side {
        Side::Output(ports) => router.output_filters_mut().insert(id, ports, (four, six)),
        Side::Input(ports) => {
            let tables = router.tables_mut();
            let four = four.map_or(Ok(()), |rule| tables.filters4.insert_at(id, ports, rule));
            let mut six = || six.map_or(Ok(()), |rule| tables.filters6.insert_at(id, ports, rule));
            four.and_then(|()| six().inspect_err(|_| _ = tables.filters4.remove(id)))
        }
    };
    entered.map_err(|why| {
        chain.into_iter().for_each(|chain| router.plugins_mut().unbind(chain));
        anyhow!("{why}")
    })
}

/// Takes a filter out, and its chain with it.
pub fn remove_filter(router: &mut Router, number: u32) {
    let id = RuleId(number);
    let tables = router.tables_mut();
    let mut actions: Vec<Action> = Vec::new();
    actions.extend(tables.filters4.remove(id).map(|rule| rule.action));
    actions.extend(tables.filters6.remove(id).map(|rule| rule.action));
    let outputs = router.output_filters_mut();
    actions.extend(outputs.filters4.remove(id).map(|rule| rule.action));
    actions.extend(outputs.filters6.remove(id).map(|rule| rule.action));
    for action in actions {
        if let Action::Active(chain) = action {
            router.plugins_mut().unbind(chain);
        }
    }
}

/// Enters the neighbours that are given by hand, all or those of one port.
pub(super) fn introduce(
    router: &mut Router,
    config: &RouterConfig,
    only: Option<usize>,
) -> Result<()> {
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
fn read_mac(text: &str) -> Result<[u8; 6]> {
    let octets: Vec<u8> =
        text.split(':').filter_map(|octet| u8::from_str_radix(octet, 16).ok()).collect();
    octets
        .try_into()
        .map_err(|_| anyhow!("`{text}` is not a MAC address such as 02:00:00:00:00:01"))
}
