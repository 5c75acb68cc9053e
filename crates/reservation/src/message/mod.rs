//! RSVP messages (RFC 2205, 3.1): the exchange of routers and hosts about paths and reservations.
//!
//! [`Message::read`] is the only entrance: bytes become a value or a [`Malformed`] that says what is wrong and where.
//! No input causes a panic, and messages of a known kind are read whole, in any order of objects except that of flow
//! descriptors, as in the RFC. [`Message::write`] uses the order of the RFC and adds a checksum.
//!
//! Classes that are not known here are treated by their high bits (RFC 2205, 3.10): `0bbbbbbb` rejects the
//! message, all others are ignored. (`11bbbbbb` would have them forwarded unexamined; since Path messages are
//! generated from path state here, such objects go no further than one router, and are counted.) INTEGRITY,
//! POLICY_DATA and SCOPE are known and without effect.
//!
//! # The one-packet flow setup
//!
//! Two message types are ours, of those for private use (RFC 3936, 2.1): [`FlowSetup`], 240, and [`FlowRelease`],
//! 241, the "lightweight flow setup" of the Dynamically Extensible Router. They consist of RSVP's own objects, and of one
//! for private use, [`plugins`]:
//!
//! ```text
//! FlowSetup   = <Common Header> <SESSION> <RSVP_HOP> <TIME_VALUES> [<EXPLICIT_ROUTE>]
//!               <SENDER_TEMPLATE> <FLOWSPEC> <ADSPEC> [<PLUGINS>]
//! FlowRelease = <Common Header> <SESSION> <RSVP_HOP> <SENDER_TEMPLATE>
//! ```
//!
//! A sender sends one to its session's destination, with the router alert option. Each router on the way books the
//! flowspec's rate at the port where the message came in and at the one where it goes out, binds the flow to its
//! reservation and to this way, and sends the message on. It is not acknowledged. The state is soft: it lives as
//! long as path state of the same refresh period would, and the message is repeated every period. ADSPEC counts the
//! routers that reserved; its global break bit means that some router did not, so that the flow is best effort
//! there, or that one did not bind the plugins that the message names.

pub mod malformed;
pub mod plugins;
pub mod route;
pub mod service;
pub mod session;

mod bytes;
mod error_spec;
mod objects;
mod style;
mod write;

use alloc::vec::Vec;
use core::net::IpAddr;

pub use error_spec::{ErrorCode, ErrorSpec};
pub use malformed::Malformed;
pub use objects::{FILTERS_MAX, OBJECTS_MAX};
pub use plugins::{FlowPlugins, NamedPlugin, PluginsError};
pub use route::{ExplicitRoute, RouteNode};
pub use service::{AdSpec, FlowSpec, Service, Tspec};
pub use session::{Hop, Sender, Session};
pub use style::Style;

/// Bytes of the common header.
pub const HEADER_BYTES: usize = 8;
/// The longest message that is read; none is ever fragmented (RFC 2205, 3.4 requires at most an MTU).
pub const MESSAGE_BYTES_MAX: usize = 9_000;
/// The IANA protocol number of RSVP.
pub const PROTOCOL: u8 = 46;

/// Class numbers (RFC 2205, appendix A; RFC 3209, 4.3); the last is for private use (RFC 3936).
pub(crate) mod class {
    pub(crate) const SESSION: u8 = 1;
    pub(crate) const HOP: u8 = 3;
    pub(crate) const INTEGRITY: u8 = 4;
    pub(crate) const TIME_VALUES: u8 = 5;
    pub(crate) const ERROR_SPEC: u8 = 6;
    pub(crate) const SCOPE: u8 = 7;
    pub(crate) const STYLE: u8 = 8;
    pub(crate) const FLOWSPEC: u8 = 9;
    pub(crate) const FILTER_SPEC: u8 = 10;
    pub(crate) const SENDER_TEMPLATE: u8 = 11;
    pub(crate) const SENDER_TSPEC: u8 = 12;
    pub(crate) const ADSPEC: u8 = 13;
    pub(crate) const POLICY_DATA: u8 = 14;
    pub(crate) const RESV_CONFIRM: u8 = 15;
    pub(crate) const EXPLICIT_ROUTE: u8 = 20;
    pub(crate) const PLUGINS: u8 = 252;
}

nilometer_wire::named! {
    /// The type of a message.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum MessageType {
        /// A sender announces a flow along its way.
        Path = "path",
        /// A receiver reserves, against the way of the paths.
        Resv = "resv",
        /// A Path was refused; towards the sender.
        PathErr = "path_err",
        /// A Resv was refused; towards the receiver.
        ResvErr = "resv_err",
        /// A sender ends its flow.
        PathTear = "path_tear",
        /// A receiver ends its reservation.
        ResvTear = "resv_tear",
        /// A reservation is in place; to the receiver that requested a confirmation.
        ResvConf = "resv_conf",
        /// One packet sets up path and reservation.
        FlowSetup = "flow_setup",
        /// One packet releases them.
        FlowRelease = "flow_release",
    }
}

impl MessageType {
    /// Its number in the common header.
    pub const fn number(self) -> u8 {
        match self {
            MessageType::Path => 1,
            MessageType::Resv => 2,
            MessageType::PathErr => 3,
            MessageType::ResvErr => 4,
            MessageType::PathTear => 5,
            MessageType::ResvTear => 6,
            MessageType::ResvConf => 7,
            MessageType::FlowSetup => 240,
            MessageType::FlowRelease => 241,
        }
    }

    /// Whether its packets are addressed to an end of the flow and carry the router alert option, so that routers on
    /// the way process them (RFC 2205, 3.1.3 to 3.1.9).
    pub const fn has_router_alert(self) -> bool {
        matches!(
            self,
            MessageType::Path
                | MessageType::PathTear
                | MessageType::ResvConf
                | MessageType::FlowSetup
                | MessageType::FlowRelease
        )
    }
}

/// A sender's announcement.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// Where the flow goes.
    pub session: Session,
    /// The previous hop.
    pub hop: Hop,
    /// R, the refresh period of the previous hop.
    pub refresh_ms: u32,
    /// The nodes that the path shall go through.
    pub route: Option<ExplicitRoute>,
    /// Where the flow comes from.
    pub sender: Sender,
    /// The flow's traffic.
    pub tspec: Tspec,
    /// The advertisement of the routers so far.
    pub adspec: Option<AdSpec>,
}

/// A flowspec with the senders that share it; no sender stands for all.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowDescriptor {
    /// What is reserved.
    pub flowspec: FlowSpec,
    /// For which senders: one with fixed filter, none with wildcard filter.
    pub senders: Vec<Sender>,
}

/// A receiver's reservation. Of fixed filter there may be several flow descriptors, otherwise there is one.
#[derive(Clone, Debug, PartialEq)]
pub struct Resv {
    /// Which session.
    pub session: Session,
    /// The next hop, with the handle that the Path had given it.
    pub hop: Hop,
    /// R, the refresh period of the next hop.
    pub refresh_ms: u32,
    /// The receiver that requests a confirmation.
    pub confirm: Option<IpAddr>,
    /// Which senders share.
    pub style: Style,
    /// The reservations, by sender.
    pub flows: Vec<FlowDescriptor>,
}

/// A Path was refused.
#[derive(Clone, Debug, PartialEq)]
pub struct PathErr {
    /// Of which session.
    pub session: Session,
    /// Why and where.
    pub error: ErrorSpec,
    /// Of which sender.
    pub sender: Sender,
    /// Its traffic.
    pub tspec: Tspec,
}

/// A Resv was refused, with the flow descriptor that failed.
#[derive(Clone, Debug, PartialEq)]
pub struct ResvErr {
    /// Of which session.
    pub session: Session,
    /// The previous hop, which sends this.
    pub hop: Hop,
    /// Why and where.
    pub error: ErrorSpec,
    /// The reservation's style.
    pub style: Style,
    /// What failed.
    pub flow: FlowDescriptor,
}

/// A flow ends.
#[derive(Clone, Debug, PartialEq)]
pub struct PathTear {
    /// Of which session.
    pub session: Session,
    /// The previous hop.
    pub hop: Hop,
    /// Which sender.
    pub sender: Sender,
    /// Its traffic, as the order of the message has it.
    pub tspec: Option<Tspec>,
}

/// A reservation ends.
#[derive(Clone, Debug, PartialEq)]
pub struct ResvTear {
    /// Of which session.
    pub session: Session,
    /// The next hop.
    pub hop: Hop,
    /// The reservation's style.
    pub style: Style,
    /// For which senders; none with wildcard filter.
    pub senders: Vec<Sender>,
}

/// A reservation is there.
#[derive(Clone, Debug, PartialEq)]
pub struct ResvConf {
    /// Of which session.
    pub session: Session,
    /// The node that confirms.
    pub error: ErrorSpec,
    /// The receiver that requested it.
    pub receiver: IpAddr,
    /// The reservation's style.
    pub style: Style,
    /// What is confirmed.
    pub flows: Vec<FlowDescriptor>,
}

/// One packet that sets up path and reservation.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowSetup {
    /// Where the flow goes.
    pub session: Session,
    /// The previous hop.
    pub hop: Hop,
    /// R: the message is repeated in this period.
    pub refresh_ms: u32,
    /// The nodes that the flow shall go through.
    pub route: Option<ExplicitRoute>,
    /// Where the flow comes from.
    pub sender: Sender,
    /// What is reserved.
    pub flowspec: FlowSpec,
    /// How many routers reserved, and whether all did.
    pub adspec: AdSpec,
    /// The plugins that the routers shall bind to the flow.
    pub plugins: Option<FlowPlugins>,
}

/// One packet that releases a setup.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowRelease {
    /// Where the flow goes.
    pub session: Session,
    /// The previous hop.
    pub hop: Hop,
    /// Where the flow comes from.
    pub sender: Sender,
}

/// A message.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "each is the message of its name")]
pub enum Message {
    Path(Path),
    Resv(Resv),
    PathErr(PathErr),
    ResvErr(ResvErr),
    PathTear(PathTear),
    ResvTear(ResvTear),
    ResvConf(ResvConf),
    FlowSetup(FlowSetup),
    FlowRelease(FlowRelease),
}

impl Message {
    /// Of which type it is.
    pub fn message_type(&self) -> MessageType {
        match self {
            Message::Path(_) => MessageType::Path,
            Message::Resv(_) => MessageType::Resv,
            Message::PathErr(_) => MessageType::PathErr,
            Message::ResvErr(_) => MessageType::ResvErr,
            Message::PathTear(_) => MessageType::PathTear,
            Message::ResvTear(_) => MessageType::ResvTear,
            Message::ResvConf(_) => MessageType::ResvConf,
            Message::FlowSetup(_) => MessageType::FlowSetup,
            Message::FlowRelease(_) => MessageType::FlowRelease,
        }
    }

    /// Of which session it is.
    pub fn session(&self) -> &Session {
        match self {
            Message::Path(message) => &message.session,
            Message::Resv(message) => &message.session,
            Message::PathErr(message) => &message.session,
            Message::ResvErr(message) => &message.session,
            Message::PathTear(message) => &message.session,
            Message::ResvTear(message) => &message.session,
            Message::ResvConf(message) => &message.session,
            Message::FlowSetup(message) => &message.session,
            Message::FlowRelease(message) => &message.session,
        }
    }
}

/// A message as it arrived: with the TTL that its sender sent it with, and how many objects were passed over.
#[derive(Clone, Debug, PartialEq)]
pub struct Received {
    /// Its content.
    pub message: Message,
    /// Send_TTL: the TTL that its packet left with. A packet that arrives with less has crossed routers without RSVP.
    pub send_ttl: u8,
    /// Objects of classes that are not known here.
    pub objects_ignored: u32,
}
