//! The devices of a virtual leg: nothing, a fault box, or our router; and the path in front of them.

use anyhow::Result;
use nilometer_linux::port::PortStatistics;
use nilometer_linux::testbed::Layout;
use nilometer_router::node::RouterNode;
use nilometer_routerd::assemble::Notes;
use nilometer_routerd::config::RouterConfig;
use nilometer_routerd::driver::{Backlogs, Lost, Presence};
use nilometer_routerd::machine::Machine;
use nilometer_routerd::routes::Routes;
use nilometer_routerd::tally::{DeviceTally, port_of, tally_of};
use nilometer_routerd::testbed::testbed_router;
use nilometer_wire::memory::{HeapMemory, Place};
use nilometer_wire::{Node, Port, Time};

use super::super::config::DutKind;
use super::super::leg::Leg;
use super::super::router::{self, RouterAccount, RouterSeen};
use crate::device::fault::{Bypassed, FaultSeen, Stands};
use crate::device::paths::Paths;
use crate::device::truth::Truth;

/// IP packets that the links carry, bytes.
const MTU_BYTES: u16 = 1_500;

/// A fault box, and its log so far.
type NotedBox = Box<Noted<Bypassed, Truth>>;

/// A fault box in its place.
fn noted_box(paths: &Paths, seed: u64, stands: Stands) -> NotedBox {
    Box::new(Noted {
        node: Bypassed::new(paths, seed, stands as u64),
        notes: Truth::default(),
        note: note_events,
    })
}

/// What a box was seen to do.
fn seen_of(noted: NotedBox, paths: &Paths, now: Time) -> Result<FaultSeen> {
    let Noted { mut node, notes: mut truth, .. } = *noted;
    note_events(&mut node, &mut truth, now);
    FaultSeen::of(&node, paths.clone(), truth)
}

/// The path in front of the device, or behind it.
pub(super) struct PathBox(NotedBox);

impl PathBox {
    pub(super) fn new(paths: &Paths, seed: u64, stands: Stands) -> PathBox {
        PathBox(noted_box(paths, seed, stands))
    }

    pub(super) fn node(&mut self) -> Box<dyn Node<Place, HeapMemory> + '_> {
        Box::new(&mut *self.0)
    }

    /// What was seen of it at `now`.
    pub(super) fn seen(self, paths: &Paths, now: Time) -> Result<FaultSeen> {
        seen_of(self.0, paths, now)
    }
}

/// What stands between the hosts.
pub(super) enum Device {
    /// Nothing.
    Wire,
    /// A fault box.
    Fault(NotedBox),
    /// Our router.
    Router(Box<Routed>),
}

impl Device {
    pub(super) fn new(leg: &Leg<'_>, layout: &Layout) -> Result<Device> {
        let seed = leg.config.seed;
        Ok(match (leg.dut, &leg.config.fault) {
            (DutKind::Nilometer, _) => {
                let config = testbed_router(&layout.device_ports(), seed, leg.router);
                let ports: Vec<_> =
                    layout.device_macs().into_iter().map(|mac| (mac, MTU_BYTES)).collect();
                let Machine { router, routes } = Machine::without_devices(&config, &ports)?;
                let backlogs = Backlogs::new(Time::ZERO, router.ports().len());
                Device::Router(Box::new(Routed {
                    noted: Noted {
                        node: RouterNode::new(router),
                        notes: backlogs,
                        note: note_backlogs,
                    },
                    config,
                    routes,
                }))
            }
            (DutKind::Fault, Some(spec)) => {
                Device::Fault(noted_box(&spec.clone().into(), seed, Stands::AsDevice))
            }
            _ => Device::Wire,
        })
    }

    /// The node, where there is one.
    pub(super) fn node(&mut self) -> Option<Box<dyn Node<Place, HeapMemory> + '_>> {
        match self {
            Device::Wire => None,
            Device::Fault(fault) => Some(Box::new(&mut **fault)),
            Device::Router(routed) => Some(Box::new(&mut routed.noted)),
        }
    }

    /// What was seen of it at `now`.
    pub(super) fn seen(
        self,
        leg: &Leg<'_>,
        now: Time,
    ) -> Result<(Option<RouterSeen>, Option<FaultSeen>)> {
        match (self, &leg.config.fault) {
            (Device::Router(routed), _) => Ok((Some(routed.seen(leg, now)?), None)),
            (Device::Fault(fault), Some(spec)) => {
                Ok((None, Some(seen_of(fault, &spec.clone().into(), now)?)))
            }
            _ => Ok((None, None)),
        }
    }
}

/// A node with a log that is updated after each change.
pub(super) struct Noted<N, S> {
    node: N,
    notes: S,
    note: fn(&mut N, &mut S, Time),
}

impl<N: Node<Place, HeapMemory>, S> Node<Place, HeapMemory> for Noted<N, S> {
    fn receive(&mut self, now: Time, port: Port, frame: &Place, memory: &mut HeapMemory) {
        self.node.receive(now, port, frame, memory);
        (self.note)(&mut self.node, &mut self.notes, now);
    }

    fn receive_batch(&mut self, now: Time, port: Port, frames: &[Place], memory: &mut HeapMemory) {
        self.node.receive_batch(now, port, frames, memory);
        (self.note)(&mut self.node, &mut self.notes, now);
    }

    fn handle_timeout(&mut self, now: Time, memory: &mut HeapMemory) {
        self.node.handle_timeout(now, memory);
    }

    fn poll_transmit(
        &mut self,
        now: Time,
        frame: &mut Place,
        memory: &mut HeapMemory,
    ) -> Option<Port> {
        let sends = self.node.poll_transmit(now, frame, memory);
        if sends.is_none() {
            (self.note)(&mut self.node, &mut self.notes, now);
        }
        sends
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.node.poll_timeout()
    }
}

/// Adds the new events of a fault box to its log.
fn note_events(node: &mut Bypassed, truth: &mut Truth, _: Time) {
    truth.note(&node.inner.take_events(), Time::ZERO);
}

/// Notes what waits in a router.
fn note_backlogs(node: &mut RouterNode, backlogs: &mut Backlogs, now: Time) {
    backlogs.look(now, node.router());
}

/// A router whose queues are watched.
pub(super) struct Routed {
    noted: Noted<RouterNode, Backlogs>,
    config: RouterConfig,
    /// (They keep the tables that packets are looked up in.)
    routes: Routes,
}

impl Routed {
    fn seen(mut self, leg: &Leg<'_>, now: Time) -> Result<RouterSeen> {
        let Noted { node, notes: backlogs, .. } = &mut self.noted;
        note_backlogs(node, backlogs, now);
        let router = node.router();
        let behind = |number: usize| DeviceTally {
            statistics: PortStatistics::default(),
            lost: Lost { unsent: 0, unpunted: if number == 0 { node.unpunted() } else { 0 } },
            presence: Presence::Up,
        };
        let ports = 0..router.ports().len();
        let ports = ports.map(|number| port_of(router, number, &behind(number))).collect();
        let tally = tally_of(router, now, ports);
        let courses = backlogs.ports().to_vec();
        let account = RouterAccount::of(router, tally, courses, self.config.filters.len() as u32);
        let notes = Notes {
            ports: self
                .config
                .ports
                .iter()
                .map(|port| format!("{}: virtual", port.interface))
                .collect(),
            ..Notes::default()
        };
        let status = self.routes.rib_thread().status();
        router::seen(&self.config, leg.router, (notes, status), account)
    }
}
