//! Reservations without RSVP: the one-packet flow setup, and reservations held by API. Both are soft state.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_wire::{Span, Time};
use thiserror::Error;

use crate::admission::{AdmissionError, Booking, ReservationId};
use crate::message::{
    AdSpec, ErrorCode, ExplicitRoute, FlowPlugins, FlowRelease, FlowSetup, FlowSpec, Message,
    Sender, Session,
};
use crate::process::host::HostError;
use crate::process::node::{Node, TTL};
use crate::process::outcome::{
    Command, Discard, FlowFilter, Owner, PluginRefusal, Reservation, Upcall,
};
use crate::process::routing::{NextHop, Onward, Routing, onward};
use crate::process::{Arrival, RsvpProcess};

/// The longest name of a holder.
pub const NAME_BYTES_MAX: usize = 64;
/// The shortest and the longest lifetime of a reservation held by API.
const HELD_MIN: Span = Span::from_secs(1);

/// One-packet flow setup as this node has it.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    /// The last message, as it arrived or was made here.
    pub(super) message: FlowSetup,
    /// None of a sender on this node.
    input: Option<u32>,
    way: Onward,
    ttl: u8,
    /// None where bandwidth was refused, or the flow only begins or ends here.
    pub(super) reservation: Option<Reservation>,
    is_refused: bool,
    /// The plugins that the message names are not bound before.
    pub(super) plugins_refused_until: Option<Time>,
    /// `None` for a sender on this node, which then repeats it.
    expires_at: Option<Time>,
    repeat_at: Option<Time>,
}

/// A sender's wish for a one-packet setup.
#[derive(Clone, Debug, PartialEq)]
pub struct SetupRequest {
    /// Where the flow goes.
    pub session: Session,
    /// Where it comes from.
    pub sender: Sender,
    /// What to reserve.
    pub flowspec: FlowSpec,
    /// The nodes to go through.
    pub route: Option<ExplicitRoute>,
    /// The plugins that the routers on the way shall bind to the flow.
    pub plugins: Option<FlowPlugins>,
}

/// A reservation held by API.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) reservation: Reservation,
    lifetime: Span,
}

/// A holder's request.
#[derive(Clone, Debug, PartialEq)]
pub struct HoldRequest {
    /// The holder's name.
    pub holder: String,
    /// The packets.
    pub flow: FlowFilter,
    /// The port by which they arrive; `None` books at no input.
    pub input: Option<u32>,
    /// The node that they go through next, pinned; none leaves the way to the routing table.
    pub via: Option<IpAddr>,
    /// Bytes a second, as the output's link counts them.
    pub rate_bytes: u64,
    /// The depth of the token bucket.
    pub bucket_bytes: u32,
    /// How long it lives without a refresh.
    pub lifetime: Span,
    /// The plugins that its packets shall meet.
    pub plugins: Option<FlowPlugins>,
}

/// Why a reservation by API was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HoldError {
    /// The holder's name is empty or too long.
    #[error("a holder's name has 1 to {NAME_BYTES_MAX} bytes")]
    Name,
    /// A rate of zero.
    #[error("a rate of 0 reserves nothing")]
    NoRate,
    /// A lifetime out of its range.
    #[error("a reservation lives for 1 s to {0}")]
    Lifetime(Span),
    /// There is no route for the flow.
    #[error("no route: {0}")]
    Route(ErrorCode),
    /// The flow ends at this router.
    #[error("the flow ends at this router")]
    Local,
    /// Admission control refused it.
    #[error("{0}")]
    Admission(#[from] AdmissionError),
    /// Its plugins are refused.
    #[error("{0}")]
    Plugins(#[from] PluginRefusal),
}

impl RsvpProcess {
    /// A sender on this node sets its flow up, and repeats the packet until it releases the flow.
    ///
    /// # Errors
    /// Where there is no way, or a limit is reached.
    pub fn set_up(
        &mut self,
        now: Time,
        request: SetupRequest,
        routing: &impl Routing,
    ) -> Result<(), HostError> {
        self.next_at = None;
        let SetupRequest { session, sender, flowspec, route, plugins } = request;
        let is_own = |address| self.node.is_own(address);
        let way = onward(routing, session.destination, route.as_ref(), None, is_own);
        let way = way.map_err(HostError::Route)?;
        self.check_room(&(session, sender)).map_err(HostError::Limit)?;
        let port = way.outputs.first().map_or(0, |output| output.port);
        let message = FlowSetup {
            session,
            hop: self.node.hop(port, session.destination),
            refresh_ms: self.node.refresh_ms(),
            route,
            sender,
            flowspec,
            adspec: AdSpec::NEW,
            plugins,
        };
        let setup = Setup {
            message,
            input: None,
            way,
            ttl: TTL,
            reservation: None,
            is_refused: false,
            plugins_refused_until: None,
            expires_at: None,
            repeat_at: Some(self.node.refresh_at(now)),
        };
        setup.forward(&mut self.node);
        self.setups.insert((session, sender), setup);
        Ok(())
    }

    /// A sender on this node releases its setup; returns whether there was one.
    pub fn take_back(&mut self, session: Session, sender: Sender) -> bool {
        self.next_at = None;
        let is_here = |setup: &Setup| setup.input.is_none();
        match self.setups.get(&(session, sender)).is_some_and(is_here) {
            true => {
                self.end_setup((session, sender));
                true
            }
            false => false,
        }
    }

    fn check_room(&self, key: &(Session, Sender)) -> Result<(), Discard> {
        let is_room = self.setups.len() < self.node.settings.reservations_max;
        if is_room || self.setups.contains_key(key) { Ok(()) } else { Err(Discard::Limit) }
    }

    /// A FlowSetup arrived: books, installs, and sends it on.
    pub(super) fn receive_flow_setup(
        &mut self,
        now: Time,
        arrival: &Arrival,
        message: FlowSetup,
        routing: &impl Routing,
    ) -> Result<(), Discard> {
        if self.node.is_own(message.hop.address) {
            return Err(Discard::OwnHop);
        }
        let ttl = arrival.ttl.checked_sub(1).ok_or(Discard::Ttl)?;
        let key = (message.session, message.sender);
        self.check_room(&key)?;
        let input = Some(arrival.port);
        let old = self.setups.remove(&key);
        let is_pinned = |old: &Setup| old.input == input && old.message.route == message.route;
        let way = match old.as_ref().filter(|old| is_pinned(old)) {
            Some(old) => old.way.clone(),
            None => {
                let is_own = |address| self.node.is_own(address);
                let destination = message.session.destination;
                let route = message.route.as_ref();
                match onward(routing, destination, route, input, is_own) {
                    Ok(way) => way,
                    Err(_) => {
                        // The setup is unacknowledged; an older one expires.
                        self.setups.extend(old.map(|old| (key, old)));
                        return Err(Discard::Refused);
                    }
                }
            }
        };
        let expires_at = Some(self.node.expires_at(now, message.refresh_ms));
        // (Where the flow ends no plugins are bound to it.)
        let goes_on = !way.outputs.is_empty();
        let plugins_refused_until =
            goes_on.then(|| self.refuse_named(now, &message, old.as_ref())).flatten();
        let reservation = old.and_then(|old| old.reservation);
        let mut setup = Setup {
            message,
            input,
            way,
            ttl,
            reservation,
            is_refused: false,
            plugins_refused_until,
            expires_at,
            repeat_at: None,
        };
        setup.reserve(&mut self.node);
        setup.forward(&mut self.node);
        self.setups.insert(key, setup);
        Ok(())
    }

    /// A FlowRelease arrived.
    pub(super) fn receive_flow_release(
        &mut self,
        arrival: &Arrival,
        release: FlowRelease,
    ) -> Result<(), Discard> {
        let key = (release.session, release.sender);
        let setup = self.setups.get(&key).ok_or(Discard::Unknown)?;
        if setup.input != Some(arrival.port) {
            return Err(Discard::Unknown);
        }
        self.end_setup(key);
        Ok(())
    }

    /// Ends a setup and notifies the routers downstream.
    fn end_setup(&mut self, key: (Session, Sender)) {
        let Some(setup) = self.setups.remove(&key) else { return };
        if let Some(reservation) = setup.reservation {
            end(&mut self.node, reservation.id);
        }
        let (session, sender) = key;
        for output in &setup.way.outputs {
            let hop = self.node.hop(output.port, session.destination);
            let release = Message::FlowRelease(FlowRelease { session, hop, sender });
            let to = (*output, setup.ttl);
            self.node.send_from(sender.source, session.destination, to, &release);
        }
    }

    /// Reserves by API.
    ///
    /// # Errors
    /// If it is refused; nothing has changed then.
    pub fn hold(
        &mut self,
        now: Time,
        request: HoldRequest,
        routing: &impl Routing,
    ) -> Result<ReservationId, HoldError> {
        self.next_at = None;
        let HoldRequest { holder, flow, input, via, rate_bytes, bucket_bytes, lifetime, plugins } =
            request;
        if holder.is_empty() || holder.len() > NAME_BYTES_MAX {
            return Err(HoldError::Name);
        }
        if rate_bytes == 0 {
            return Err(HoldError::NoRate);
        }
        let longest = self.node.settings.lifetime_max;
        if lifetime < HELD_MIN || lifetime > longest {
            return Err(HoldError::Lifetime(longest));
        }
        self.check_instances(plugins.as_ref())?;
        let is_own = |address| self.node.is_own(address);
        let towards = via.unwrap_or(flow.destination);
        let way = onward(routing, towards, None, input, is_own).map_err(HoldError::Route)?;
        let NextHop { port: output, address: next_hop } =
            *way.outputs.first().ok_or(HoldError::Local)?;
        let id = self.node.next_id();
        let inputs: Vec<u32> = input.into_iter().collect();
        let booking = Booking { inputs: inputs.clone(), output, rate_bytes };
        if let Err(why) = self.node.admission.book(id, booking) {
            self.node.counts.admission_refused += 1;
            return Err(why.into());
        }
        let reservation = Reservation {
            id,
            owner: Owner::Api(holder),
            flows: Vec::from([flow]),
            inputs,
            output,
            next_hop,
            is_pinned: via.is_some(),
            rate_bytes,
            bucket_bytes,
            plugins,
            expires_at: Some(now + lifetime),
        };
        self.node.commands.push_back(Command::Install(reservation.clone()));
        self.held.insert(id, Held { reservation, lifetime });
        Ok(id)
    }

    /// The holder is still there: its reservation lives on; whether there is one.
    pub fn refresh_hold(&mut self, now: Time, id: ReservationId) -> bool {
        self.next_at = None;
        let held = self.held.get_mut(&id);
        held.map(|held| held.reservation.expires_at = Some(now + held.lifetime)).is_some()
    }

    /// The holder releases its reservation; returns whether there was one.
    pub fn release_hold(&mut self, id: ReservationId) -> bool {
        self.next_at = None;
        let held = self.held.remove(&id);
        held.map(|held| end(&mut self.node, held.reservation.id)).is_some()
    }

    /// Ends setups and held reservations that have expired, and repeats those that begin here.
    pub(super) fn expire_setups(&mut self, now: Time) {
        let is_over = |at: Option<Time>| at.is_some_and(|at| at <= now);
        let over = self.setups.iter().filter(|(_, setup)| is_over(setup.expires_at));
        let over: Vec<(Session, Sender)> = over.map(|(key, _)| *key).collect();
        for key in over {
            self.node.counts.expired += 1;
            self.end_setup(key);
        }
        for setup in self.setups.values_mut().filter(|setup| is_over(setup.repeat_at)) {
            setup.repeat_at = Some(self.node.refresh_at(now));
            setup.forward(&mut self.node);
        }
        let over = self.held.iter().filter(|(_, held)| is_over(held.reservation.expires_at));
        let over: Vec<ReservationId> = over.map(|(id, _)| *id).collect();
        for id in over {
            self.node.counts.expired += 1;
            self.release_hold(id);
        }
    }

    /// When a setup or a held reservation is due.
    pub(super) fn next_setup_at(&self) -> Option<Time> {
        let setups = self.setups.values().flat_map(|setup| [setup.expires_at, setup.repeat_at]);
        let held = self.held.values().map(|held| held.reservation.expires_at);
        setups.chain(held).flatten().min()
    }
}

/// Removes a reservation from admission and forwarding plane.
fn end(node: &mut Node, id: ReservationId) {
    node.admission.release(id);
    node.commands.push_back(Command::Remove(id));
}

impl Setup {
    /// Books and installs what differs from the present state.
    fn reserve(&mut self, node: &mut Node) {
        let Some(to) = self.way.outputs.first().copied() else {
            if let Some(old) = self.reservation.take() {
                end(node, old.id);
            }
            return;
        };
        let FlowSetup { session, sender, flowspec, plugins, .. } = &self.message;
        let before = self.reservation.take();
        let id = before.as_ref().map_or_else(|| node.next_id(), |old| old.id);
        let inputs: Vec<u32> = self.input.into_iter().collect();
        let (rate_bytes, bucket_bytes) = node.on_link(to.port, flowspec);
        let booking = Booking { inputs: inputs.clone(), output: to.port, rate_bytes };
        if let Err(why) = node.admission.book(id, booking) {
            node.counts.admission_refused += 1;
            node.upcall(Upcall::Refused { session: *session, why });
            if let Some(old) = before {
                end(node, old.id);
            }
            self.is_refused = true;
            return;
        }
        let reservation = Reservation {
            id,
            owner: Owner::FlowSetup,
            flows: Vec::from([FlowFilter::new(session, Some(sender))]),
            inputs,
            output: to.port,
            next_hop: to.address,
            is_pinned: true,
            rate_bytes,
            bucket_bytes,
            plugins: plugins.clone().filter(|_| self.plugins_refused_until.is_none()),
            expires_at: self.expires_at,
        };
        let is_same = before
            .is_some_and(|old| Reservation { expires_at: self.expires_at, ..old } == reservation);
        if !is_same {
            node.commands.push_back(Command::Install(reservation.clone()));
        }
        self.reservation = Some(reservation);
    }

    /// Sends the message on, or has the local destination see it.
    pub(super) fn forward(&self, node: &mut Node) {
        let mut message = self.message.clone();
        message.adspec.is_broken |= self.is_refused || self.plugins_refused_until.is_some();
        if self.way.is_local {
            let FlowSetup { session, sender, flowspec, adspec, .. } = message;
            let AdSpec { hops, is_broken, .. } = adspec;
            node.upcall(Upcall::FlowSetup { session, sender, flowspec, hops, is_broken });
        }
        if self.ttl == 0 {
            return;
        }
        message.route.clone_from(&self.way.route);
        for output in &self.way.outputs {
            message.hop = node.hop(output.port, message.session.destination);
            if self.reservation.is_some() {
                let interface = &node.settings.interfaces[output.port as usize];
                let bandwidth = (interface.capacity.bits_per_second() / 8) as f32;
                message.adspec = message.adspec.through(bandwidth, interface.mtu_bytes);
            }
            let (source, to) = (message.sender.source, (*output, self.ttl));
            let destination = message.session.destination;
            node.send_from(source, destination, to, &Message::FlowSetup(message.clone()));
        }
    }
}
