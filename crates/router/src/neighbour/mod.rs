//! Which link-layer address a next hop has: one table for each port and family.
//!
//! IPv4 asks by ARP ([`Arp`]: RFC 826, RFC 1122 2.3.2), IPv6 by neighbour discovery ([`Discovery`]:
//! RFC 4861). Both use the same [`Table`], whose entries go through the states of RFC 4861, 7.3.2, as
//! Linux's do: an answer to a request for an IPv4 address counts as a solicited advertisement, a
//! request by a neighbour as a solicitation. So neighbours of either family are probed before they are
//! given up, and no packet waits for a probe.
//!
//! ```text
//!            hold()                  answer                   reachable time
//!  (nothing) ------> INCOMPLETE -------------> REACHABLE <------------------> STALE
//!                        |  3 requests lost        ^            answer          | lookup()
//!                        v                         |   answer                   v
//!                     FAILED (1-3 s)             PROBE <------------------- DELAY
//!                                                  |  3 requests lost   5 s
//!                                                  v
//!                                              (nothing)
//! ```
//!
//! **The common case is an array read.** A table's entries stand in places that do not move. A
//! [`Handle`] is a place and a key: the number of times that the place was given away, and a bit which
//! says that nothing needs to be done on use. [`Table::ready`] compares the key and is done. Whatever
//! makes the entry less than that (it went stale, was removed, failed) changes the stored key, so that
//! every handle kept in an adjacency is void at once without having to be found. The caller then asks
//! [`Table::lookup`] by address: one hash and a compare, and a handle to keep.
//!
//! **The state that strangers can create is bounded.** Entries, unresolved entries, packets behind each
//! and packets in all have limits ([`Settings`]). An unsolicited entry is made only when a neighbour
//! requests one of our addresses (RFC 826; RFC 4861, 7.2.3), and may push out failed and stale entries,
//! never those in use. An address that did not answer stays as failed for a while: packets for it are
//! refused at once as unreachable and trigger no request.
//!
//! Every packet handed to [`Table::hold`] comes back, by [`Table::poll_packet`], with a link-layer
//! address or with the reason why there is none.

mod advertising;
mod arp;
mod chains;
pub(crate) mod discovery;
mod duplicate;
mod family;
pub(crate) mod frame;
mod index;
mod ipv4;
mod ipv6;
mod ledger;
mod options;
mod own;
mod settings;
mod states;
mod table;
mod waiting;

pub use advertising::{Advertising, AdvertisingError};
pub use arp::{ArpOperation, ArpPacket};
pub use discovery::{Envelope, Malformed, Message, RouterAdvertisement};
pub use duplicate::DetectionOutcome;
pub use family::Family;
pub use ipv4::Arp;
pub use ipv6::Discovery;
pub use ledger::{Ignored, Ledger, Reason};
pub use options::{OnLinkPrefix, PREFIXES_MAX};
pub use own::{ADDRESSES_MAX, Own, OwnError, link_local};
pub use settings::{Settings, SettingsError};
pub use states::Answer;
pub use table::{Entry, Given, Handle, Lookup, Outcome, Solicit, State, Table};

/// A link-layer address of 48 bits (IEEE 802).
pub type Mac = [u8; 6];

/// A link-layer address as a number, its first octet lowest. (As six octets it would pass through memory
/// between functions, stored in one width and loaded in another, which no processor forwards.)
pub(crate) type LinkAddress = u64;

#[inline(always)]
pub(crate) fn link_address([a, b, c, d, e, f]: Mac) -> LinkAddress {
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

#[inline(always)]
pub(crate) fn mac(link_address: LinkAddress) -> Mac {
    let [a, b, c, d, e, f, _, _] = link_address.to_le_bytes();
    [a, b, c, d, e, f]
}

/// The link-layer broadcast address.
pub const BROADCAST: Mac = [0xff; 6];

/// Bytes that a buffer must have for any frame that is written here.
pub const FRAME_BYTES_MAX: usize = 256;

/// Whether a station can have this link-layer address: no group bit, not all zeros.
pub fn is_unicast(mac: Mac) -> bool {
    mac[0] & 1 == 0 && mac != [0; 6]
}
