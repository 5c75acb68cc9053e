//! Group membership: the membership of each port by IGMP and MLD, and the table that replication reads.
//!
//! Each port has a [`Membership`], the router's side of IGMPv3 (RFC 3376, 6) or of MLDv2 (RFC 3810, 7),
//! which are one protocol over two families: it queries the hosts of its link, keeps what they report
//! with timers that run out, and gives way to a router with a lower address. Reports of older versions
//! are taken as the RFCs translate them (RFC 3376, 7.3.2; RFC 3810, 8.3.2). Changes are carried into one
//! [`GroupTable`] for the whole router, in which a packet's group and source give the ports that want
//! it:
//!
//! ```text
//!  frames -> Membership (one for each port and family) -- poll_changed() --> GroupTable::refresh()
//!  packet -> may_forward(), way back -> GroupTable::ports(group, source) -> fabric
//! ```
//!
//! **Bounds.** A port remembers [`Settings::groups_max`] groups and, for each, [`Settings::sources_max`]
//! sources, and reads [`Settings::messages_per_second`] messages. A message or a group beyond the limit
//! is ignored and counted. Sources beyond the limit are counted, and what does not fit is *delivered*: a
//! list of wanted sources that is too long makes the port want the whole group, as if its hosts spoke
//! IGMPv2, and an unwanted source that does not fit comes, too. So a bound on sources costs bandwidth
//! and never a wanted packet.
//!
//! **Trust.** The router trusts the hosts and routers of the link, as the RFCs do: any of them can
//! request a group, and one that claims a low address silences the router's queries until it is found
//! out (RFC 3376, 9.1). No message from beyond the link is accepted, because its hop limit must be 1.

mod code;
mod group;
mod igmp;
mod membership;
mod message;
mod mld;
mod settings;
mod table;

pub use membership::{Ledger, Membership};
pub use message::{FilterMode, Malformed, Message, Protocol, Query, Record, RecordKind, Version};
pub use settings::{Settings, SettingsError};
pub use table::{GroupTable, STATIC_MAX, StaticError};

/// Most sources of one query; more sources take several queries.
pub const QUERY_SOURCES_MAX: usize = 10;
