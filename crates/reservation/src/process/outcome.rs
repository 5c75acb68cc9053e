//! What an RSVP process puts out: packets to send, commands to the forwarding plane, upcalls and counters.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_wire::Time;
use thiserror::Error;

use crate::admission::{AdmissionError, ReservationId};
use crate::message::{
    ErrorSpec, FlowDescriptor, FlowPlugins, FlowSpec, Sender, Session, Style, Tspec,
};
use crate::packet::{self, Envelope};

/// A message to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The port to send it by.
    pub port: u32,
    /// The address of the next hop on the port's link.
    pub next_hop: IpAddr,
    /// The packet's addresses, TTL and router alert.
    pub envelope: Envelope,
    /// The RSVP message.
    pub message: Vec<u8>,
}

impl Transmit {
    /// The whole IP packet.
    pub fn packet(&self) -> Vec<u8> {
        packet::write(&self.envelope, &self.message)
    }
}

/// The packets of a reserved flow. What is `None` is of no account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowFilter {
    /// Source address.
    pub source: Option<IpAddr>,
    /// Destination address.
    pub destination: IpAddr,
    /// IANA protocol number.
    pub protocol: u8,
    /// Source port.
    pub source_port: Option<u16>,
    /// Destination port.
    pub destination_port: Option<u16>,
}

impl FlowFilter {
    /// The flow of a sender to a session, or of all senders. A port of 0 stands for protocols without ports.
    pub fn new(session: &Session, sender: Option<&Sender>) -> FlowFilter {
        let port = |port: u16| (port != 0).then_some(port);
        FlowFilter {
            source: sender.map(|sender| sender.source),
            destination: session.destination,
            protocol: session.protocol,
            source_port: sender.and_then(|sender| port(sender.port)),
            destination_port: port(session.port),
        }
    }
}

/// What keeps a reservation alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// RSVP: path and reservation state of a session.
    Rsvp,
    /// A one-packet flow setup, which its sender repeats.
    FlowSetup,
    /// A holder of this name, by the API.
    Api(String),
}

/// One reservation of this router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Its number.
    pub id: ReservationId,
    /// What keeps it alive.
    pub owner: Owner,
    /// The packets that it is for.
    pub flows: Vec<FlowFilter>,
    /// The input ports where it is booked.
    pub inputs: Vec<u32>,
    /// The output port.
    pub output: u32,
    /// The next hop of these flows.
    pub next_hop: IpAddr,
    /// Whether the flows go to this next hop regardless of the routing table.
    pub is_pinned: bool,
    /// The rate in bytes a second, as the output's link counts them.
    pub rate_bytes: u64,
    /// The depth of the token bucket.
    pub bucket_bytes: u32,
    /// The plugins that its packets pass as long as it lives.
    pub plugins: Option<FlowPlugins>,
    /// When it ends unless it is refreshed.
    pub expires_at: Option<Time>,
}

/// A command to the forwarding plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Installs a reservation, or changes the one of its number.
    Install(Reservation),
    /// Removes one.
    Remove(ReservationId),
}

/// Why plugins are refused here.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PluginRefusal {
    /// Signalling may not name this class.
    #[error("no flow's signalling may name the plugin class {0:?} here")]
    NotAllowed(String),
    /// The instances of all reservations would be too many.
    #[error("reserved flows have {0} plugin instances at most")]
    Instances(usize),
}

/// Upcalls to local senders, receivers and the operator (RFC 2205, 3.11.1).
#[derive(Clone, Debug, PartialEq)]
pub enum Upcall {
    /// PATH_EVENT: a sender's path has reached a local destination.
    Path {
        /// Of which session.
        session: Session,
        /// Which sender.
        sender: Sender,
        /// Its traffic.
        tspec: Tspec,
    },
    /// The path of a sender to a local destination is gone.
    PathGone {
        /// Of which session.
        session: Session,
        /// Which sender.
        sender: Sender,
    },
    /// RESV_EVENT: what is reserved for local senders now; empty if the reservation is gone.
    Resv {
        /// Of which session.
        session: Session,
        /// Which senders share.
        style: Style,
        /// What is reserved.
        flows: Vec<FlowDescriptor>,
    },
    /// PATH_ERROR: a local sender's path was refused.
    PathError {
        /// Of which session.
        session: Session,
        /// Which sender.
        sender: Sender,
        /// Why and where.
        error: ErrorSpec,
    },
    /// RESV_ERR: a local receiver's reservation was refused.
    ResvError {
        /// Of which session.
        session: Session,
        /// Why and where.
        error: ErrorSpec,
        /// What failed.
        flow: FlowDescriptor,
    },
    /// RESV_CONFIRM: a local receiver's reservation is there.
    Confirmed {
        /// Of which session.
        session: Session,
        /// The node that confirms.
        node: IpAddr,
    },
    /// A one-packet setup has reached a local destination.
    FlowSetup {
        /// Of which session.
        session: Session,
        /// Which sender.
        sender: Sender,
        /// What it reserves.
        flowspec: FlowSpec,
        /// Routers that reserved.
        hops: u32,
        /// Whether some router did not, or did not bind the plugins.
        is_broken: bool,
    },
    /// This router refused bandwidth.
    Refused {
        /// Of which session.
        session: Session,
        /// Why.
        why: AdmissionError,
    },
    /// This router binds none of the plugins of a flow.
    PluginsRefused {
        /// Of which session.
        session: Session,
        /// Why.
        why: PluginRefusal,
    },
}

nilometer_wire::named! {
    /// Why a message had no effect.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Discard {
        /// It could not be read.
        Malformed = "malformed",
        /// It arrived by a port that does not exist.
        Port = "no_such_port",
        /// Its previous hop is this router: it goes in a circle.
        OwnHop = "own_hop",
        /// Its TTL was used up.
        Ttl = "ttl",
        /// Its session, sender or reservation is not known here.
        Unknown = "unknown_state",
        /// It names an interface handle that was never given.
        Handle = "handle",
        /// It was refused, and its sender has a PathErr or ResvErr for it.
        Refused = "refused",
        /// A limit of this process was reached.
        Limit = "limit",
    }
}

/// Counters of an RSVP process: `received` is the sum of `effective` and all discards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that arrived.
    pub received: u64,
    /// Messages that had an effect, if only a refresh.
    pub effective: u64,
    /// Messages without effect, by [`Discard`].
    pub discarded: [u64; Discard::ALL.len()],
    /// Messages sent.
    pub sent: u64,
    /// Messages not sent, since too many waited to be sent.
    pub unsent: u64,
    /// Objects of unknown classes that were passed over.
    pub objects_ignored: u64,
    /// Path, reservation and setup states that expired.
    pub expired: u64,
    /// Requests for bandwidth that admission control refused.
    pub admission_refused: u64,
    /// Times that the plugins of a flow were refused.
    pub plugins_refused: u64,
    /// Upcalls that were discarded because too many were waiting.
    pub upcalls_lost: u64,
}
