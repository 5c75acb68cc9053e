//! Reservations of a running router: its RSVP process is fed with packets and time, and its orders are carried
//! out.
//!
//! The process runs on the forwarding thread, between two turns: its messages are few, and its orders must be
//! carried out between two packets anyway. Each of its changes to the pipeline is a [`Command`], so that a
//! recording repeats it without the process.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use nilometer_queue::{RESERVED_QUEUES_MAX, ReservedState};
use nilometer_reservation::process::{NextHop, Routing, Settings};
use nilometer_reservation::{
    Arrival, Command as Order, Reservation, ReservationId, RsvpProcess, Upcall, packet,
};
use nilometer_router::pipeline::Router;
use nilometer_router::pipeline::reserved::RESERVED_FILTERS_MAX;
use nilometer_wire::Time;

use super::super::control::messages::Level;
use super::Driver;
use super::plugin_orders::{PluginOrder, PluginOrders};
use crate::recording::Command;
use crate::reservations::{EnteredFlow, EnteredReservation, exchange};

/// The RSVP process, and its state in the pipeline.
pub(super) struct Signalling {
    process: RsvpProcess,
    entered: BTreeMap<ReservationId, (Reservation, EnteredReservation)>,
    /// Orders for the threads that bind plugins to flows; without them none are bound.
    plugin_orders: Option<Arc<PluginOrders>>,
    /// The plugin instances that are bound to flows.
    bound: BTreeMap<ReservationId, Vec<String>>,
}

/// A reservation, and what its queue is doing.
pub struct Reserved {
    /// The reservation.
    pub reservation: Reservation,
    /// Its queue's number.
    pub queue: u16,
    /// Whether its packets are pinned to their next hop now.
    pub is_pinned: bool,
    /// Its queue.
    pub state: Option<ReservedState>,
    /// The plugin instances that its packets meet, by their names.
    pub instances: Vec<String>,
}

/// Whether the packets of both meet the same plugins.
fn meets_same(one: &Reservation, other: &Reservation) -> bool {
    one.plugins == other.plugins && one.flows == other.flows && one.inputs == other.inputs
}

/// The routing table in force.
struct Table<'a>(RefCell<&'a mut Router>);

impl Routing for Table<'_> {
    fn route_query(&self, destination: IpAddr, to: &mut Vec<NextHop>) {
        let way = self.0.borrow_mut().next_hop_to(destination);
        to.extend(way.map(|(port, address)| NextHop { port: port.into(), address }));
    }
}

impl Driver {
    /// Lets flows reserve bandwidth from now on, by the API, and by RSVP where the router's signalling is on.
    pub fn set_reservations(&mut self, settings: Settings) {
        let process = RsvpProcess::new(settings);
        self.signalling = Some(Box::new(Signalling {
            process,
            entered: BTreeMap::new(),
            plugin_orders: None,
            bound: BTreeMap::new(),
        }));
    }

    /// Orders that plugins be bound to reserved flows, from now on.
    pub fn set_plugin_orders(&mut self, orders: Arc<PluginOrders>) {
        if let Some(signalling) = &mut self.signalling {
            signalling.plugin_orders = Some(orders);
        }
    }

    /// Whether this reservation is in force with the same flow and plugins.
    pub fn wants_plugins(&self, of: &Reservation) -> bool {
        let entered = self.signalling.as_ref().and_then(|it| it.entered.get(&of.id));
        of.plugins.is_some() && entered.is_some_and(|(reservation, _)| meets_same(reservation, of))
    }

    /// These plugin instances are bound to the flow of a reservation now.
    pub fn note_bound(&mut self, id: ReservationId, instances: Vec<String>) {
        if let Some(signalling) = &mut self.signalling {
            match instances.is_empty() {
                true => signalling.bound.remove(&id),
                false => signalling.bound.insert(id, instances),
            };
        }
    }

    /// Calls `act` on the RSVP process and carries out its orders; nothing where there is no process.
    pub fn with_reservations<T>(
        &mut self,
        act: impl FnOnce(&mut RsvpProcess, Time, &dyn Fn(IpAddr, &mut Vec<NextHop>)) -> T,
    ) -> Option<T> {
        let mut signalling = self.signalling.take()?;
        let now = self.now();
        let table = Table(RefCell::new(&mut self.router));
        let query = |destination, to: &mut Vec<NextHop>| table.route_query(destination, to);
        let outcome = act(&mut signalling.process, now, &query);
        self.carry_out(&mut signalling);
        self.signalling = Some(signalling);
        Some(outcome)
    }

    /// All reservations, with what their queues are doing.
    pub fn reserved(&self) -> Vec<Reserved> {
        let Some(signalling) = &self.signalling else { return Vec::new() };
        let of = |(reservation, entered): &(Reservation, EnteredReservation)| {
            let queues = self.router.fabric().reserved(entered.output.into());
            Reserved {
                reservation: reservation.clone(),
                queue: entered.queue,
                is_pinned: entered.pinned.is_some(),
                state: queues.state(entered.queue.into()),
                instances: signalling.bound.get(&reservation.id).cloned().unwrap_or_default(),
            }
        };
        let mut all: Vec<Reserved> = signalling.entered.values().map(of).collect();
        // Refreshes are no orders; when each ends the process knows.
        for (one, latest) in all.iter_mut().zip(signalling.process.reservations()) {
            if one.reservation.id == latest.id {
                one.reservation.expires_at = latest.expires_at;
            }
        }
        all
    }

    /// The RSVP process, for inspection.
    pub fn rsvp(&self) -> Option<&RsvpProcess> {
        self.signalling.as_ref().map(|signalling| &signalling.process)
    }

    /// Passes the received packets and the time to the RSVP process.
    pub(super) fn signal(&mut self, now: Time) {
        let Some(signalling) = &mut self.signalling else { return };
        let is_due = signalling.process.poll_timeout().is_some_and(|at| at <= now);
        let mut next = self.router.poll_signalling();
        if !is_due && next.is_none() {
            return;
        }
        let Some(mut signalling) = self.signalling.take() else { return };
        let process = &mut signalling.process;
        while let Some((port, received)) = next {
            if let Ok((envelope, message)) = packet::read(&received) {
                let port = port as u32;
                let arrival = Arrival { port, source: envelope.source, ttl: envelope.ttl };
                let table = Table(RefCell::new(&mut self.router));
                process.handle_message(now, &arrival, message, &table);
            }
            next = self.router.poll_signalling();
        }
        process.handle_timeout(now);
        self.carry_out(&mut signalling);
        self.signalling = Some(signalling);
    }

    /// When the RSVP process has something to do.
    pub(super) fn signals_at(&mut self) -> Option<Time> {
        self.signalling.as_mut().and_then(|signalling| signalling.process.poll_timeout())
    }

    /// Routes have changed: shortcuts are checked again, paths that are not pinned follow, and pinned ones get new
    /// numbers for their next hops.
    pub(super) fn follow_routes(&mut self) {
        self.distrust();
        let Some(mut signalling) = self.signalling.take() else { return };
        let now = self.now();
        signalling.process.routes_changed(now, &Table(RefCell::new(&mut self.router)));
        self.carry_out(&mut signalling);
        let ids: Vec<ReservationId> = signalling.entered.keys().copied().collect();
        for id in ids {
            let Some((reservation, before)) = signalling.entered.get(&id).cloned() else {
                continue;
            };
            let pinned = self.pinned(&reservation);
            if pinned != before.pinned {
                let after = EnteredReservation { pinned, ..before.clone() };
                self.exchange_reservation(Some(before), Some(after.clone()));
                signalling.entered.insert(id, (reservation, after));
            }
        }
        self.signalling = Some(signalling);
    }

    /// The number of the next hop that a reservation is pinned to, while some route leads there.
    fn pinned(&self, reservation: &Reservation) -> Option<u16> {
        let port = u16::try_from(reservation.output).ok().filter(|_| reservation.is_pinned)?;
        self.router.number_of_gateway(port, reservation.next_hop).map(|number| number.0)
    }

    /// Carries out the orders of the process, and sends what it has to send.
    fn carry_out(&mut self, signalling: &mut Signalling) {
        while let Some(order) = signalling.process.poll_command() {
            match order {
                Order::Remove(id) => {
                    let (old, entered) = signalling.entered.remove(&id).unzip();
                    self.exchange_reservation(entered, None);
                    self.order_plugins(signalling, old.as_ref(), None);
                }
                Order::Install(reservation) => self.install(signalling, reservation),
            }
        }
        while let Some(sent) = signalling.process.poll_transmit() {
            let (port, next_hop, packet) = (sent.port as usize, sent.next_hop, sent.packet());
            let command = || Command::Signal { port, next_hop, packet: packet.clone() };
            // A failure to record ends the recording, which notes it.
            let _ = self.change(command, |now, router, mut memory| {
                router.send_signalling(now, port, next_hop, &packet, &mut memory);
            });
        }
        while let Some(upcall) = signalling.process.poll_upcall() {
            let line = match upcall {
                Upcall::Refused { session, why } => {
                    format!("a reservation for {} is refused: {why}", session.destination)
                }
                Upcall::PluginsRefused { session, why } => {
                    format!("plugins of a flow to {} are refused: {why}", session.destination)
                }
                _ => continue,
            };
            self.say(Level::Info, line);
        }
    }

    fn install(&mut self, signalling: &mut Signalling, reservation: Reservation) {
        let (before, old) = signalling.entered.remove(&reservation.id).unzip();
        let entered = signalling.entered.values().map(|(_, entered)| entered);
        let queues: BTreeSet<u16> = entered.clone().map(|entered| entered.queue).collect();
        let rules: BTreeSet<u32> =
            entered.flat_map(|entered| &entered.flows).map(|flow| flow.rule).collect();
        let free = (0..RESERVED_QUEUES_MAX as u16).find(|queue| !queues.contains(queue));
        let queue = old.as_ref().map(|old| old.queue).or(free);
        let mut numbers = (0..RESERVED_FILTERS_MAX).filter(|rule| !rules.contains(rule));
        let flows = reservation.flows.iter();
        let flows: Vec<EnteredFlow> =
            flows.zip(&mut numbers).map(|(flow, rule)| EnteredFlow::new(rule, flow)).collect();
        let Some(queue) = queue.filter(|_| flows.len() == reservation.flows.len()) else {
            let why = "the limit of queues or filters is reached";
            self.exchange_reservation(old, None);
            self.order_plugins(signalling, before.as_ref(), None);
            return self.say(Level::Warning, format!("a reservation is not in force: {why}"));
        };
        let small = |port: &u32| u16::try_from(*port).ok();
        let new = EnteredReservation {
            queue,
            output: small(&reservation.output).unwrap_or(u16::MAX),
            rate_bps: reservation.rate_bytes.saturating_mul(8).max(8),
            bucket_bytes: reservation.bucket_bytes,
            inputs: reservation.inputs.iter().filter_map(small).collect(),
            flows,
            pinned: self.pinned(&reservation),
        };
        self.exchange_reservation(old, Some(new.clone()));
        self.order_plugins(signalling, before.as_ref(), Some(&reservation));
        signalling.entered.insert(reservation.id, (reservation, new));
    }

    /// Orders that the plugins of a reservation be bound, changed or taken away, where that follows.
    fn order_plugins(
        &self,
        signalling: &mut Signalling,
        old: Option<&Reservation>,
        new: Option<&Reservation>,
    ) {
        let Some(id) = old.or(new).map(|reservation| reservation.id) else { return };
        let has_plugins = |one: &&Reservation| one.plugins.is_some();
        let (old, new) = (old.filter(has_plugins), new.filter(has_plugins));
        let is_same = match (old, new) {
            (Some(old), Some(new)) => meets_same(old, new),
            (None, None) => true,
            _ => false,
        };
        if is_same {
            return;
        }
        match &signalling.plugin_orders {
            Some(orders) => orders.order(PluginOrder { id, reservation: new.cloned() }),
            None if new.is_some() => {
                let now = self.now();
                signalling.process.refuse_plugins(now, id);
                let why = "the router has no control processor that binds them";
                self.say(Level::Warning, format!("plugins of a flow are refused: {why}"));
            }
            None => {}
        }
    }

    fn exchange_reservation(
        &mut self,
        old: Option<EnteredReservation>,
        new: Option<EnteredReservation>,
    ) {
        let mut done = Ok(());
        let command =
            || Command::Reserve { old: old.clone().map(Box::new), new: new.clone().map(Box::new) };
        let recorded = self.change(command, |now, router, mut memory| {
            done = exchange((now, router, &mut memory), old.as_ref(), new.as_ref());
        });
        if let Err(why) = recorded.and(done) {
            self.say(Level::Warning, format!("a reservation is not in force: {why:#}"));
        }
        self.distrust();
    }
}
