//! Routes and next-hop objects in the kernel's netlink form (rtnetlink(7)), which FRR speaks as well.
//!
//! A message is a header of 16 bytes with its length and kind, a fixed part, and attributes of a length,
//! a kind and a value each, padded to four bytes. Numbers are in the byte order of the machine that
//! sends; both senders are this machine. Messages are read from the slice they came in. Lengths are
//! trusted only as far as the slice reaches; attributes of other kinds are passed over, as the
//! kernel's rules have it, so that newer kernels are understood.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::next_hop::{Hop, Rejection};
use crate::route_update::{AnyPrefix, Path, RouteTarget, RouteUpdate};

/// `NLMSG_ERROR`: an answer's error number, or 0 for an acknowledgement.
pub const ERROR: u16 = 2;
/// `NLMSG_DONE`: the end of a dump.
pub const DONE: u16 = 3;
/// `RTM_NEWROUTE`.
pub const NEW_ROUTE: u16 = 24;
/// `RTM_DELROUTE`.
pub const DELETE_ROUTE: u16 = 25;
/// `RTM_NEWNEXTHOP`.
pub const NEW_NEXT_HOP: u16 = 104;
/// `RTM_DELNEXTHOP`.
pub const DELETE_NEXT_HOP: u16 = 105;
/// The routing table of the router's own addresses (`RT_TABLE_LOCAL`).
pub const TABLE_LOCAL: u32 = 255;
/// The routing table of everything else (`RT_TABLE_MAIN`).
pub const TABLE_MAIN: u32 = 254;

const HEADER_BYTES: usize = 16;
const ROUTE_BYTES: usize = 12;
const NEXT_HOP_BYTES: usize = 8;
/// One of several ways that the kernel does not use because its link is down (`RTNH_F_DEAD`).
const DEAD: u8 = 1;
/// A route that the kernel cached from a lookup rather than one configured (`RTM_F_CLONED`).
const CLONED: u32 = 0x200;

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetlinkFault {
    /// A length goes beyond the bytes that there are, or is too small for what it counts.
    #[error("a netlink length does not fit the bytes")]
    Length,
    /// An attribute's value has a wrong size.
    #[error("a netlink attribute has the wrong size")]
    Value,
    /// A prefix is longer than an address.
    #[error("a route's prefix is longer than an address")]
    Prefix,
    /// A next-hop object has no number.
    #[error("a next-hop object without a number")]
    Number,
}

/// Why sound messages held no update, and what was left out of those that did; counts of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ignored {
    /// Of another kind.
    pub kind: u64,
    /// Of multicast routing (families 128 and 129).
    pub multicast: u64,
    /// Of another routing table.
    pub table: u64,
    /// For a type of service, or of a source prefix: chosen by more than the destination.
    pub selective: u64,
    /// Of a family, or a type of route, that is not used for forwarding.
    pub other: u64,
    /// Ways with an encapsulation, which are left to the kernel ([`Hop::KernelLink`]).
    pub encapsulated: u64,
}

/// A netlink message, not yet read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// `nlmsg_type`.
    pub kind: u16,
    /// `nlmsg_flags`.
    pub flags: u16,
    /// `nlmsg_seq`.
    pub sequence: u32,
    /// What follows the header.
    pub body: &'a [u8],
}

/// The messages of a datagram or a frame, one after the other; ends after the first fault.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Messages<'a> {
    /// Those in `bytes`.
    pub fn new(bytes: &'a [u8]) -> Messages<'a> {
        Messages { rest: bytes }
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, NetlinkFault>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let bytes = core::mem::take(&mut self.rest);
        if bytes.is_empty() {
            return None;
        }
        let length = u32_at(bytes, 0).unwrap_or(0) as usize;
        let Some(body) = bytes.get(HEADER_BYTES..length) else {
            return Some(Err(NetlinkFault::Length));
        };
        self.rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        let [kind, flags] = [4, 6].map(|at| u16_at(bytes, at).unwrap_or(0));
        let sequence = u32_at(bytes, 8).unwrap_or(0);
        Some(Ok(Message { kind, flags, sequence, body }))
    }
}

/// The update in a message and its routing table; nothing where the message is counted in
/// `ignored`.
///
/// # Errors
/// Where its bytes contradict themselves.
#[inline]
pub fn read(
    message: &Message<'_>,
    ignored: &mut Ignored,
) -> Result<Option<(u32, RouteUpdate)>, NetlinkFault> {
    match message.kind {
        NEW_ROUTE | DELETE_ROUTE => read_route(message, ignored),
        NEW_NEXT_HOP | DELETE_NEXT_HOP => {
            Ok(read_next_hop(message, ignored)?.map(|update| (TABLE_MAIN, update)))
        }
        _ => {
            ignored.kind += 1;
            Ok(None)
        }
    }
}

/// The attributes of a route that matter, as slices.
#[derive(Default)]
struct RouteAttributes<'a> {
    to: Option<&'a [u8]>,
    link: u32,
    gateway: Option<IpAddr>,
    metric: u32,
    paths: Option<&'a [u8]>,
    table: Option<u32>,
    object: Option<u32>,
    is_encapsulated: bool,
}

impl<'a> RouteAttributes<'a> {
    #[inline]
    fn read(bytes: &'a [u8]) -> Result<RouteAttributes<'a>, NetlinkFault> {
        let mut found = RouteAttributes::default();
        for attribute in Attributes(bytes) {
            let (kind, value) = attribute?;
            match kind {
                1 => found.to = Some(value),
                4 => found.link = whole(value)?,
                5 => found.gateway = Some(address(value)?),
                6 => found.metric = whole(value)?,
                9 => found.paths = Some(value),
                15 => found.table = Some(whole(value)?),
                18 => found.gateway = Some(address(value.get(2..).unwrap_or_default())?),
                22 => found.is_encapsulated = true,
                30 => found.object = Some(whole(value)?),
                _ => {}
            }
        }
        Ok(found)
    }
}

fn read_route(
    message: &Message<'_>,
    ignored: &mut Ignored,
) -> Result<Option<(u32, RouteUpdate)>, NetlinkFault> {
    let body = message.body;
    let &[family, length, source_length, service, table, protocol, _, kind, ..] = body else {
        return Err(NetlinkFault::Length);
    };
    let flags = u32_at(body, 8).ok_or(NetlinkFault::Length)?;
    let attributes = body.get(ROUTE_BYTES..).ok_or(NetlinkFault::Length)?;
    // zebra withdraws routes of any type without giving it.
    let is_type = matches!(kind, 1..=9) || kind == 0 && message.kind == DELETE_ROUTE;
    let is_wanted = matches!(family, 2 | 10) && is_type && flags & CLONED == 0;
    let counter = match family {
        128 | 129 => &mut ignored.multicast,
        _ if is_wanted => &mut ignored.selective,
        _ => &mut ignored.other,
    };
    if !is_wanted || source_length != 0 || service != 0 {
        *counter += 1;
        return Ok(None);
    }
    let found = RouteAttributes::read(attributes)?;
    let table = found.table.unwrap_or(u32::from(table));
    if table != TABLE_MAIN && table != TABLE_LOCAL {
        ignored.table += 1;
        return Ok(None);
    }
    let to = match (found.to, family) {
        (Some(value), _) => address(value)?,
        (None, 2) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        (None, _) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    if to.is_ipv4() != (family == 2) {
        return Err(NetlinkFault::Value);
    }
    let prefix = AnyPrefix::new(to, u32::from(length)).ok_or(NetlinkFault::Prefix)?;
    let metric = found.metric;
    let update = if message.kind == DELETE_ROUTE {
        RouteUpdate::Withdraw { prefix, metric }
    } else {
        let way = match fate(kind) {
            Some(fate) => RouteTarget::Fate(fate),
            None => way(&found, ignored)?,
        };
        RouteUpdate::Announce { prefix, protocol, metric, way }
    };
    Ok(Some((table, update)))
}

/// What becomes of packets by the route's type alone (`RTN_`), unless it is an ordinary one.
fn fate(kind: u8) -> Option<Hop> {
    match kind {
        1 => None,
        5 => Some(Hop::Multicast),
        6 => Some(Hop::Blackhole),
        8 => Some(Hop::Reject(Rejection::Prohibited)),
        // Unreachable, and "throw", which would continue in another table, but there is none.
        7 | 9 => Some(Hop::Reject(Rejection::Unreachable)),
        // Local, broadcast and anycast.
        _ => Some(Hop::Local),
    }
}

fn way(found: &RouteAttributes<'_>, ignored: &mut Ignored) -> Result<RouteTarget, NetlinkFault> {
    if let Some(id) = found.object {
        return Ok(RouteTarget::Object(id));
    }
    if found.is_encapsulated {
        ignored.encapsulated += 1;
        return Ok(RouteTarget::Fate(Hop::KernelLink));
    }
    let Some(mut rest) = found.paths else {
        return Ok(RouteTarget::Path(Path { link: found.link, gateway: found.gateway, weight: 1 }));
    };
    let mut paths = Vec::new();
    while !rest.is_empty() {
        let length = usize::from(u16_at(rest, 0).ok_or(NetlinkFault::Length)?);
        let path = rest.get(..length).filter(|path| path.len() >= 8);
        let path = path.ok_or(NetlinkFault::Length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        let within = RouteAttributes::read(&path[8..])?;
        if within.is_encapsulated {
            ignored.encapsulated += 1;
            return Ok(RouteTarget::Fate(Hop::KernelLink));
        }
        let link = u32_at(path, 4).ok_or(NetlinkFault::Length)?;
        let weight = u16::from(path[3]) + 1;
        paths.push((path[2] & DEAD != 0, Path { link, gateway: within.gateway, weight }));
    }
    // If all ways are dead, all are kept, since they will return.
    if paths.iter().any(|(is_dead, _)| !is_dead) {
        paths.retain(|(is_dead, _)| !is_dead);
    }
    let paths: Vec<Path> = paths.into_iter().map(|(_, path)| path).collect();
    if paths.is_empty() { Err(NetlinkFault::Length) } else { Ok(RouteTarget::Paths(paths)) }
}

fn read_next_hop(
    message: &Message<'_>,
    ignored: &mut Ignored,
) -> Result<Option<RouteUpdate>, NetlinkFault> {
    let attributes = message.body.get(NEXT_HOP_BYTES..).ok_or(NetlinkFault::Length)?;
    let (mut id, mut link, mut gateway) = (None, 0, None);
    let (mut group, mut is_blackhole, mut is_encapsulated) = (None, false, false);
    for attribute in Attributes(attributes) {
        let (kind, value) = attribute?;
        match kind {
            1 => id = Some(whole(value)?),
            2 => group = Some(value),
            4 => is_blackhole = true,
            5 => link = whole(value)?,
            6 => gateway = Some(address(value)?),
            8 => is_encapsulated = true,
            _ => {}
        }
    }
    let id = id.ok_or(NetlinkFault::Number)?;
    if message.kind == DELETE_NEXT_HOP {
        return Ok(Some(RouteUpdate::Forget { id }));
    }
    let way = match group {
        _ if is_blackhole => RouteTarget::Fate(Hop::Blackhole),
        _ if is_encapsulated => {
            ignored.encapsulated += 1;
            RouteTarget::Fate(Hop::KernelLink)
        }
        None => RouteTarget::Path(Path { link, gateway, weight: 1 }),
        Some(value) if value.is_empty() || value.len() % 8 != 0 => return Err(NetlinkFault::Value),
        Some(value) => {
            let members = value.chunks_exact(8);
            RouteTarget::Objects(
                members.map(|member| (id_of(member), u16::from(member[4]) + 1)).collect(),
            )
        }
    };
    Ok(Some(RouteUpdate::Define { id, way }))
}

/// The number at the head of a group's member.
fn id_of(member: &[u8]) -> u32 {
    u32::from_ne_bytes([member[0], member[1], member[2], member[3]])
}

/// Attributes by kind and value; ends after the first fault.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<(u16, &'a [u8]), NetlinkFault>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        // Flags of nesting and byte order, which are none of the kind's.
        const KIND: u16 = 0x3fff;
        let bytes = core::mem::take(&mut self.0);
        if bytes.is_empty() {
            return None;
        }
        let length = usize::from(u16_at(bytes, 0).unwrap_or(0));
        let (Some(kind), Some(value)) = (u16_at(bytes, 2), bytes.get(4..length)) else {
            return Some(Err(NetlinkFault::Length));
        };
        self.0 = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Ok((kind & KIND, value)))
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

fn whole(value: &[u8]) -> Result<u32, NetlinkFault> {
    value.try_into().map(u32::from_ne_bytes).map_err(|_| NetlinkFault::Value)
}

fn address(value: &[u8]) -> Result<IpAddr, NetlinkFault> {
    match value.len() {
        4 => <[u8; 4]>::try_from(value).map(IpAddr::from).map_err(|_| NetlinkFault::Value),
        16 => <[u8; 16]>::try_from(value).map(IpAddr::from).map_err(|_| NetlinkFault::Value),
        _ => Err(NetlinkFault::Value),
    }
}
