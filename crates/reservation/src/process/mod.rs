//! The RSVP process of one router or host: soft state that depends on messages and time alone.
//!
//! It has no clock, socket or table of routes. Messages come in with [`RsvpProcess::handle_message`], time passes with
//! [`RsvpProcess::handle_timeout`], which is due at [`RsvpProcess::poll_timeout`]; packets, commands to the forwarding
//! plane and upcalls are taken from it with `poll_transmit`, `poll_command` and `poll_upcall`.
//!
//! - **Path state** is made by Path messages on their way from sender to receivers; Resv messages follow it back. It
//!   holds the route, which may be explicit, and is pinned as long as it is or has a reservation.
//! - **Reservation state** is made by Resv messages, hop by hop from receivers to senders. What is installed and what
//!   is sent upstream are functions of the state (`merge`), and only differences are acted upon (`settle`).
//! - **Admission** precedes every change of what is installed: a Resv that does not fit changes nothing, and its
//!   receiver gets a ResvErr.
//! - **One-packet flow setups** and **reservations by API** (`setup`) are soft state of the same admission. They may
//!   name plugins, which the caller binds to the flow and may refuse later (`plugins`).
//!
//! All state ends unless it is refreshed: L = (K + 0.5) * 1.5 * R after the last message (RFC 2205, 3.7). A sender or
//! receiver on this node has no previous or next hop; so the same process can be a host.

mod errors;
mod host;
mod merge;
mod node;
mod outcome;
mod path;
mod plugins;
mod resv;
mod routing;
mod settings;
mod settle;
mod setup;
mod state;
mod timers;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_wire::Time;

use crate::admission::{Admission, ReservationId};
use crate::message::{Message, ResvConf, Sender, Session};

pub use host::HostError;
use node::Node;
pub use outcome::{
    Command, Counts, Discard, FlowFilter, Owner, PluginRefusal, Reservation, Transmit, Upcall,
};
pub use routing::{NextHop, Routing};
pub use settings::{Interface, RoutePinning, Settings};
use setup::{Held, Setup};
pub use setup::{HoldError, HoldRequest, NAME_BYTES_MAX, SetupRequest};
use state::SessionState;

/// Where a message came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The port by which it arrived.
    pub port: u32,
    /// The source of its packet.
    pub source: IpAddr,
    /// The TTL or hop limit of its packet.
    pub ttl: u8,
}

/// RSVP and admission control of one node.
#[derive(Clone, Debug)]
pub struct RsvpProcess {
    node: Node,
    sessions: BTreeMap<Session, SessionState>,
    setups: BTreeMap<(Session, Sender), Setup>,
    held: BTreeMap<ReservationId, Held>,
    /// The next moment at which something is due; the outer `None` means that it has to be computed.
    next_at: Option<Option<Time>>,
}

impl RsvpProcess {
    /// A process without any state.
    pub fn new(settings: Settings) -> RsvpProcess {
        RsvpProcess {
            node: Node::new(settings),
            sessions: BTreeMap::new(),
            setups: BTreeMap::new(),
            held: BTreeMap::new(),
            next_at: None,
        }
    }

    /// An RSVP message arrived: the payload of a packet of protocol 46.
    pub fn handle_message(
        &mut self,
        now: Time,
        arrival: &Arrival,
        bytes: &[u8],
        routing: &impl Routing,
    ) {
        self.next_at = None;
        self.node.counts.received += 1;
        let verdict = self.receive(now, arrival, bytes, routing);
        match verdict {
            Ok(()) => self.node.counts.effective += 1,
            Err(why) => self.node.discard(why),
        }
        self.forget_empty();
    }

    fn receive(
        &mut self,
        now: Time,
        arrival: &Arrival,
        bytes: &[u8],
        routing: &impl Routing,
    ) -> Result<(), Discard> {
        if arrival.port as usize >= self.node.settings.interfaces.len() {
            return Err(Discard::Port);
        }
        let received = Message::read(bytes).map_err(|_| Discard::Malformed)?;
        self.node.counts.objects_ignored += u64::from(received.objects_ignored);
        match received.message {
            Message::Path(path) => self.receive_path(now, arrival, path, routing),
            Message::PathTear(tear) => self.receive_path_tear(now, arrival, &tear),
            Message::PathErr(refused) => self.receive_path_err(&refused),
            Message::Resv(resv) => self.receive_resv(now, arrival, resv),
            Message::ResvTear(tear) => self.receive_resv_tear(now, &tear),
            Message::ResvErr(refused) => self.receive_resv_err(now, arrival, &refused),
            Message::ResvConf(confirmed) => self.receive_resv_conf(arrival, confirmed, routing),
            Message::FlowSetup(setup) => self.receive_flow_setup(now, arrival, setup, routing),
            Message::FlowRelease(release) => self.receive_flow_release(arrival, release),
        }
    }

    /// A confirmation on its way to the receiver that wanted it.
    fn receive_resv_conf(
        &mut self,
        arrival: &Arrival,
        confirmed: ResvConf,
        routing: &impl Routing,
    ) -> Result<(), Discard> {
        let (session, receiver) = (confirmed.session, confirmed.receiver);
        if self.node.is_own(receiver) {
            self.node.upcall(Upcall::Confirmed { session, node: confirmed.error.node });
            return Ok(());
        }
        let ttl = arrival.ttl.checked_sub(1).filter(|ttl| *ttl > 0).ok_or(Discard::Ttl)?;
        let mut outputs = Vec::new();
        routing.route_query(receiver, &mut outputs);
        let to = *outputs.first().filter(|to| to.port != arrival.port).ok_or(Discard::Unknown)?;
        self.node.send_from(arrival.source, receiver, (to, ttl), &Message::ResvConf(confirmed));
        Ok(())
    }

    /// The next packet to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.node.transmits.pop_front()
    }

    /// The next order to the forwarding plane. They are to be carried out in their order.
    pub fn poll_command(&mut self) -> Option<Command> {
        self.node.commands.pop_front()
    }

    /// The next upcall.
    pub fn poll_upcall(&mut self) -> Option<Upcall> {
        self.node.upcalls.pop_front()
    }

    /// When [`RsvpProcess::handle_timeout`] is due.
    pub fn poll_timeout(&mut self) -> Option<Time> {
        let next_at = self.next_at.unwrap_or_else(|| self.earliest());
        self.next_at = Some(next_at);
        next_at
    }

    /// Its counters.
    pub fn counts(&self) -> &Counts {
        &self.node.counts
    }

    /// The bookings of its ports.
    pub fn admission(&self) -> &Admission {
        &self.node.admission
    }

    /// Sessions that it has state of.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// All reservations that the forwarding plane has, by their numbers.
    pub fn reservations(&self) -> Vec<Reservation> {
        let rsvp = self.sessions.values().flat_map(|state| state.reservations(&self.node));
        let setups = self.setups.values().filter_map(|setup| setup.reservation.clone());
        let held = self.held.values().map(|held| held.reservation.clone());
        let mut all: Vec<Reservation> = rsvp.chain(setups).chain(held).collect();
        all.sort_by_key(|reservation| reservation.id);
        all
    }

    /// Drops sessions without state.
    fn forget_empty(&mut self) {
        self.sessions.retain(|_, state| !state.is_empty());
    }
}
