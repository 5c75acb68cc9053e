//! Read access to ports, queues, fabric and neighbours.

use std::fmt::Display;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use nilometer_router::neighbour::{Entry, State};
use nilometer_router::pipeline::port::PortPlan;
use nilometer_sim::quantity::rate_text;
use nilometer_sim::queueing::QueueSpec;
use nilometer_wire::Rate;

use super::answer::Refused;
use super::command_channel::CommandChannel;
use super::fabric_view::{FabricView, snapshot};
use super::view::{NeighbourView, NeighboursView, PortView, PortsView, QueueView, QueuesView};
use crate::config::{PortSection, RouterConfig};
use crate::driver::Driver;
use crate::machine::PortPlace;
use crate::tally::{self, PortTally};

/// Queues that one request covers at most.
const QUEUES_LOOKED_AT: u32 = 4_096;
/// Ports that are named in the answer to a request for one that does not exist.
const PORTS_NAMED: usize = 16;
/// Neighbours that are reported.
const NEIGHBOURS_TOLD: usize = 4_096;

pub(super) fn shown_mac(mac: [u8; 6]) -> String {
    mac.map(|octet| format!("{octet:02x}")).join(":")
}

impl CommandChannel {
    /// A port.
    ///
    /// # Errors
    /// When there is no port of this number.
    pub fn port(&self, number: usize) -> Result<PortView, Refused> {
        let counters = self.ask(move |driver| {
            let is_there = number < driver.router().ports().len();
            is_there.then(|| (tally::port(driver, number), plan(driver, number)))
        })?;
        let (counters, plan) = counters.ok_or_else(|| no_port(number, &self.change().config))?;
        Ok(self.port_view(number, counters, &plan))
    }

    /// All ports.
    ///
    /// # Errors
    /// When the router has stopped.
    pub fn ports(&self) -> Result<PortsView, Refused> {
        let all = self.ask(|driver| {
            let numbers = 0..driver.router().ports().len();
            let port = |number| (tally::port(driver, number), plan(driver, number));
            numbers.map(port).collect::<Vec<_>>()
        })?;
        let all = all.into_iter().enumerate();
        let ports = all.map(|(number, (counters, plan))| self.port_view(number, counters, &plan));
        Ok(PortsView { ports: ports.collect(), engine: self.engine() })
    }

    fn port_view(&self, number: usize, counters: PortTally, plan: &PortPlan) -> PortView {
        let in_force = self.change();
        let section = in_force.config.ports.get(number);
        PortView {
            number,
            mac: shown_mac(plan.mac),
            mtu_bytes: plan.mtu_bytes,
            addresses: addresses(plan),
            rate_bps: section.and_then(|port| port.rate).map(Rate::bits_per_second),
            burst_bytes: section.and_then(|port| port.burst_bytes),
            delay_us: section.map_or(0.0, |port| port.delay.as_nanos() as f64 / 1e3),
            settings: section.and_then(|_| settings(&in_force.config, number, plan)),
            counters,
        }
    }

    /// The queues of an output's discipline, from number `from` on.
    ///
    /// # Errors
    /// When there is no such port.
    pub fn queues(&self, number: usize, from: u32) -> Result<QueuesView, Refused> {
        let view = self.ask(move |driver| {
            let is_there = number < driver.router().ports().len();
            is_there.then(|| queues(driver, number, from))
        })?;
        view.ok_or_else(|| no_port(number, &self.change().config))
    }

    /// The number of a port by its number or the name of its interface. Digits are a number, even where
    /// an interface has such a name; whether there is a port of that number is not checked.
    ///
    /// # Errors
    /// 404 when no port has this name, with those there are.
    pub fn port_number(&self, text: &str) -> Result<usize, Refused> {
        if text.bytes().all(|byte| byte.is_ascii_digit())
            && let Ok(number) = text.parse()
        {
            return Ok(number);
        }
        if let Ok(number) = self.change().config.port_named(text) {
            return Ok(number);
        }
        // A spare port has a name, and no section.
        let name = text.to_owned();
        let spare = self.ask(move |driver| {
            driver.router().ports().iter().position(|port| port.plan().name == name)
        })?;
        spare.ok_or_else(|| no_port(text, &self.change().config))
    }

    /// The fabric, with its rates worked out from its broadcasts.
    ///
    /// # Errors
    /// When the router has stopped.
    pub fn fabric(&self) -> Result<FabricView, Refused> {
        self.ask(snapshot)?.view().map_err(Refused::unavailable)
    }

    /// Neighbours in both families.
    ///
    /// # Errors
    /// When the router has stopped.
    pub fn neighbours(&self) -> Result<NeighboursView, Refused> {
        self.ask(neighbours)
    }
}

/// The refusal for an unknown port, with the existing ones.
pub(super) fn no_port(name_or_number: impl Display, config: &RouterConfig) -> Refused {
    let all = config.ports.iter().enumerate();
    let mut names: Vec<String> = all
        .take(PORTS_NAMED)
        .map(|(number, port)| format!("{number} ({})", port.interface))
        .collect();
    if let Some(more) = config.ports.len().checked_sub(PORTS_NAMED).filter(|more| *more > 0) {
        names.push(format!("{more} more"));
    }
    Refused::missing(format!("there is no port {name_or_number}; there are {}", names.join(", ")))
}

fn plan(driver: &Driver, number: usize) -> PortPlan {
    driver.router().ports()[number].plan().clone()
}

fn addresses(plan: &PortPlan) -> Vec<String> {
    let four = plan.addresses4.iter().map(|&(own, length)| {
        let own = Ipv4Addr::from(own);
        format!("{own}/{length}")
    });
    let six = plan.addresses6.iter().map(|&(own, length)| {
        let own = Ipv6Addr::from(own);
        format!("{own}/{length}")
    });
    four.chain(six).collect()
}

/// The section of a port, with the settings of its discipline. Panics where there is no such port.
fn settings(config: &RouterConfig, number: usize, plan: &PortPlan) -> Option<serde_json::Value> {
    let section = &config.ports[number];
    let place = PortPlace { plan, number, rate: section.rate, config };
    // The settings in force are valid, or the router would not have started.
    let queue = place.settings(section.queue.as_ref()).ok()?;
    let queue = Some(QueueSpec::in_force(&queue));
    serde_json::to_value(PortSection { queue, ..section.clone() }).ok()
}

fn queues(driver: &Driver, port: usize, from: u32) -> QueuesView {
    let fabric = driver.router().fabric();
    let (discipline, waiting) = (fabric.discipline(port), fabric.output_backlog(port));
    let sent = fabric.output_ledger(port);
    let end = from.saturating_add(QUEUES_LOOKED_AT);
    QueuesView {
        port,
        discipline: discipline.kind().name().to_owned(),
        waiting_packets: waiting.packets,
        waiting_bytes: waiting.bytes,
        sent_packets: sent.out_packets,
        sent_bytes: sent.out_bytes,
        queues: used_queues(driver, port, from..end).collect(),
        next: discipline.queue_state(end).map(|_| end),
    }
}

/// Queues of an output that have or had packets, as far as there are any of these numbers.
pub(super) fn used_queues(
    driver: &Driver,
    port: usize,
    numbers: Range<u32>,
) -> impl Iterator<Item = QueueView> {
    let discipline = driver.router().fabric().discipline(port);
    let states = numbers.map_while(|queue| Some((queue, discipline.queue_state(queue)?)));
    let used = states.filter(|(_, state)| state.packets > 0 || state.sent_bytes > 0);
    used.map(|(queue, state)| QueueView {
        queue,
        packets: state.packets,
        bytes: state.bytes,
        weight: state.weight,
        active: state.is_active,
        sent_bytes: state.sent_bytes,
        throughput_bps: state.throughput_bps,
    })
}

fn neighbours(driver: &mut Driver) -> NeighboursView {
    let (mut neighbours, mut count) = (Vec::new(), 0);
    for (number, port) in driver.router().ports().iter().enumerate() {
        let four = port.arp().table.entries().map(|entry| shown(Ipv4Addr::from, entry));
        let six = port.neighbours6().entries().map(|entry| shown(Ipv6Addr::from, entry));
        for (address, mac, state) in four.chain(six) {
            count += 1;
            if neighbours.len() < NEIGHBOURS_TOLD {
                let interface = port.plan().name.clone();
                neighbours.push(NeighbourView { port: number, interface, address, mac, state });
            }
        }
    }
    NeighboursView { count, neighbours }
}

fn shown<A, S: ToString>(
    address: impl Fn(A) -> S,
    entry: Entry<A>,
) -> (String, Option<String>, String) {
    let state = match entry.state {
        State::Incomplete => "incomplete",
        State::Reachable => "reachable",
        State::Stale => "stale",
        State::Delay => "delay",
        State::Probe => "probe",
        State::Failed => "failed",
        State::Permanent => "permanent",
    };
    (address(entry.address).to_string(), entry.mac.map(shown_mac), state.to_owned())
}

/// A rate in words, for messages.
pub(super) fn shown_rate(rate: Option<Rate>) -> String {
    rate.map_or("none".to_owned(), rate_text)
}
