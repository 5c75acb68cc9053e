//! What becomes of each packet of a batch, and the rewriting of those that go on (RFC 1812, 5.2.1).
//!
//! The order of the questions is that of RFC 1812: filter, addresses, route, options, time to live,
//! size, next hop. The common packet answers them from what earlier stages left and from three
//! arrays; everything else is one reason to leave the fast path.

use alloc::vec::Vec;
use core::array;
use core::mem;
use core::net::IpAddr;

use nilometer_wire::Time;

use super::Router;
use super::batch::{Brief, Lane, Lanes};
use super::broadcasts::Broadcasts;
use super::engine::Filters;
use super::groups::{Groups, Side};
use super::port::{Held, Port};
use super::reverse::WaysBack;
use super::slow::Why;
use crate::classifier::{Action, RuleId};
use crate::discard::Discard;
use crate::fib::NextHop;
use crate::forward::hop;
use crate::forward::icmp::Problem;
use crate::forward::martian::Filter as Martians;
use crate::forward::report::{Cause, Reporter, Unsent};
use crate::forward::urpf::Mode;
use crate::header::{self, ETHERNET_BYTES, Key};
use crate::memory::{Memory, Place, Ticket};
use crate::multicast::Protocol;
use crate::neighbour::{Handle, Lookup, Mac, Table};
use crate::next_hop::{Hop, Rejection};

/// What the two families do differently.
pub(super) trait Version: Protocol + Default {
    /// The ethertype.
    const ETHERTYPE: [u8; 2];
    const IS_SIX: bool = Self::BITS == 128;
    fn lane(lanes: &mut Lanes) -> &mut Lane<Self>;
    fn filters(router: &mut Router) -> &mut Filters<Self>;
    /// What the forwarding table says.
    fn look_up(router: &mut Router, address: Self) -> Option<NextHop>;
    fn ways_back(router: &Router) -> &WaysBack<Self>;
    /// The route: that of the forwarding table, or the default one that is kept beside it.
    fn route(router: &mut Router, address: Self) -> Option<NextHop> {
        Self::look_up(router, address).or(Self::ways_back(router).default_route())
    }
    fn is_martian_source(self, filter: Martians) -> bool;
    fn is_martian_destination(self, filter: Martians) -> bool;
    fn is_multicast(self) -> bool;
    fn table(port: &mut Port) -> &mut Table<Self, Held>;
    fn groups(groups: &mut Groups) -> &mut Side<Self>;
    fn decrement(packet: &mut [u8]) -> Result<(), hop::Stopped>;
    fn address(self) -> IpAddr;
    /// The address in `address`, if it is of this family.
    fn of(address: IpAddr) -> Option<Self>;
    fn is_broadcast(self, broadcasts: &Broadcasts) -> bool;
    /// The sender of the packet that begins here.
    fn sender(packet: &[u8]) -> Self;
    /// The destination of the packet that begins here.
    fn destination(packet: &[u8]) -> Self;
    fn error(
        reporter: &mut Reporter,
        cause: Cause<'_>,
        problem: Problem,
        source: Self,
    ) -> Result<Vec<u8>, Unsent>;
}

impl Version for u32 {
    const ETHERTYPE: [u8; 2] = [0x08, 0x00];

    #[inline]
    fn lane(lanes: &mut Lanes) -> &mut Lane<u32> {
        &mut lanes.lane4
    }

    #[inline]
    fn filters(router: &mut Router) -> &mut Filters<u32> {
        &mut router.tables.filters4
    }

    fn ways_back(router: &Router) -> &WaysBack<u32> {
        &router.ways_back4
    }

    fn look_up(router: &mut Router, address: u32) -> Option<NextHop> {
        let mut next = [None];
        router.tables.routes4.look_up(&[address], &mut next);
        next[0]
    }

    #[inline]
    fn is_martian_source(self, filter: Martians) -> bool {
        filter.source_ipv4(self).is_some()
    }

    #[inline]
    fn is_martian_destination(self, filter: Martians) -> bool {
        filter.destination_ipv4(self).is_some()
    }

    #[inline]
    fn is_multicast(self) -> bool {
        self >> 28 == 0xe
    }

    #[inline]
    fn table(port: &mut Port) -> &mut Table<u32, Held> {
        &mut port.arp.table
    }

    #[inline]
    fn groups(groups: &mut Groups) -> &mut Side<u32> {
        &mut groups.side4
    }

    #[inline]
    fn decrement(packet: &mut [u8]) -> Result<(), hop::Stopped> {
        hop::decrement_ipv4(packet)
    }

    fn address(self) -> IpAddr {
        IpAddr::V4(self.into())
    }

    fn of(address: IpAddr) -> Option<u32> {
        match address {
            IpAddr::V4(address) => Some(address.into()),
            IpAddr::V6(_) => None,
        }
    }

    #[inline]
    fn is_broadcast(self, broadcasts: &Broadcasts) -> bool {
        broadcasts.has(self)
    }

    fn sender(packet: &[u8]) -> u32 {
        packet.get(12..16).map_or(0, |four| u32::from_be_bytes(array::from_fn(|at| four[at])))
    }

    fn destination(packet: &[u8]) -> u32 {
        packet.get(4..).map_or(0, u32::sender)
    }

    fn error(
        reporter: &mut Reporter,
        cause: Cause<'_>,
        problem: Problem,
        source: u32,
    ) -> Result<Vec<u8>, Unsent> {
        reporter.error_ipv4(cause, problem, source)
    }
}

impl Version for u128 {
    const ETHERTYPE: [u8; 2] = [0x86, 0xdd];

    #[inline]
    fn lane(lanes: &mut Lanes) -> &mut Lane<u128> {
        &mut lanes.lane6
    }

    #[inline]
    fn filters(router: &mut Router) -> &mut Filters<u128> {
        &mut router.tables.filters6
    }

    fn ways_back(router: &Router) -> &WaysBack<u128> {
        &router.ways_back6
    }

    fn look_up(router: &mut Router, address: u128) -> Option<NextHop> {
        let mut next = [None];
        router.tables.routes6.look_up(&[address], &mut next);
        next[0]
    }

    #[inline]
    fn is_martian_source(self, filter: Martians) -> bool {
        filter.source_ipv6(self).is_some()
    }

    #[inline]
    fn is_martian_destination(self, filter: Martians) -> bool {
        filter.destination_ipv6(self).is_some()
    }

    #[inline]
    fn is_multicast(self) -> bool {
        self >> 120 == 0xff
    }

    #[inline]
    fn table(port: &mut Port) -> &mut Table<u128, Held> {
        &mut port.discovery.table
    }

    #[inline]
    fn groups(groups: &mut Groups) -> &mut Side<u128> {
        &mut groups.side6
    }

    #[inline]
    fn decrement(packet: &mut [u8]) -> Result<(), hop::Stopped> {
        hop::decrement_ipv6(packet)
    }

    fn address(self) -> IpAddr {
        IpAddr::V6(self.into())
    }

    fn of(address: IpAddr) -> Option<u128> {
        match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some(address.into()),
        }
    }

    #[inline]
    fn is_broadcast(self, _: &Broadcasts) -> bool {
        false
    }

    fn sender(packet: &[u8]) -> u128 {
        packet.get(8..24).map_or(0, |octets| u128::from_be_bytes(array::from_fn(|at| octets[at])))
    }

    fn destination(packet: &[u8]) -> u128 {
        packet.get(16..).map_or(0, u128::sender)
    }

    fn error(
        reporter: &mut Reporter,
        cause: Cause<'_>,
        problem: Problem,
        source: u128,
    ) -> Result<Vec<u8>, Unsent> {
        reporter.error_ipv6(cause, problem, source)
    }
}

/// Why a packet leaves the fast path.
#[derive(Clone, Copy)]
pub(super) enum Turn {
    /// It goes nowhere.
    Discard(Discard),
    /// The slow path looks at it.
    Slow(Why),
    /// It waits at a port for the link-layer address of a next hop.
    Hold(u16, IpAddr),
}

/// A way out: the port, the gateway if there is one, and the number of the hop.
pub(super) type Way = (u16, Option<IpAddr>, u16);

impl Router {
    /// Decides on the batch: tickets of what goes on, with their headers rewritten.
    pub(super) fn decide<M: Memory>(&mut self, now: Time, input: usize, memory: &mut M) {
        self.decide_lane::<u32, M>(now, input, memory);
        self.decide_lane::<u128, M>(now, input, memory);
    }

    fn decide_lane<A: Version, M: Memory>(&mut self, now: Time, input: usize, memory: &mut M) {
        let lane = mem::replace(A::lane(&mut self.lanes), Lane::empty());
        for at in 0..lane.briefs.len() {
            let (brief, key) = (&lane.briefs[at], &lane.keys[at]);
            match self.judge(now, input, brief, key, (lane.rules[at], lane.next[at]), memory) {
                Ok((output, mac)) => {
                    let ticket = self.rewrite::<A, M>(usize::from(output), brief, mac, memory);
                    self.lanes.decided.push((output, ticket));
                }
                Err(Turn::Discard(why)) => self.discard(input, brief.place, why, memory),
                Err(Turn::Slow(Why::Group)) => self.meet_group(now, input, brief, key, memory),
                Err(Turn::Slow(why)) => self.shunt(input, brief.place, why, memory),
                Err(Turn::Hold(output, address)) => {
                    let ticket = self.rewrite::<A, M>(usize::from(output), brief, [0; 6], memory);
                    self.hold(now, (input, usize::from(output)), address, ticket, memory);
                }
            }
        }
        *A::lane(&mut self.lanes) = lane;
    }

    /// The output and the link-layer address of a packet, or why it has none here.
    #[inline]
    fn judge<A: Version, M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        brief: &Brief,
        key: &Key<A>,
        found: (Option<RuleId>, Option<NextHop>),
        memory: &mut M,
    ) -> Result<(u16, Mac), Turn> {
        let (action, is_copied) = A::filters(self).meet(found.0, brief.ip_bytes);
        if is_copied {
            self.copy_to_management(input, brief.place, memory);
        }
        if action == Action::Deny {
            return Err(match self.plan.manners.tells_denied {
                true => Turn::Slow(Why::Denied),
                false => Turn::Discard(Discard::Denied),
            });
        }
        let martians = self.plan.martians;
        if key.source.is_martian_source(martians) || key.source.is_broadcast(&self.broadcasts) {
            return Err(self.martian(input, key, Discard::MartianSource));
        }
        if key.destination.is_multicast() {
            return Err(Turn::Slow(Why::Group));
        }
        if key.destination.is_martian_destination(martians) {
            return Err(self.martian(input, key, Discard::MartianDestination));
        }
        if self.ports[input].asks {
            self.admit(input, key.source, found.1)?;
        }
        let Some(next) = found.1.or_else(|| A::ways_back(self).default_route()) else {
            return Err(Turn::Slow(Why::NoRoute));
        };
        let (output, gateway, hop) = self.way(next, brief.hash)?;
        if brief.notes & header::OPTIONS != 0 {
            return Err(Turn::Slow(Why::Options));
        }
        if hop::expires(brief.hop_limit) {
            return Err(Turn::Slow(Why::Expired));
        }
        let port = &mut self.ports[usize::from(output)];
        if brief.ip_bytes > port.plan.mtu_bytes {
            return Err(Turn::Slow(Why::TooBig(output)));
        }
        if !port.is_open {
            return Err(Turn::Discard(port.why_shut()));
        }
        if usize::from(output) == input && port.plan.redirects {
            self.redirect(now, input, brief.place, gateway, memory);
        }
        let mac = match gateway {
            Some(gateway) => self.mac_of_gateway(now, output, gateway, hop)?,
            None => {
                let table = A::table(&mut self.ports[usize::from(output)]);
                mac_of(table.lookup(now, key.destination), output, key.destination.address())?.0
            }
        };
        Ok((output, mac))
    }

    /// A packet with an address that may not be forwarded goes nowhere, unless it is of the link and
    /// for the port itself (RFC 4291, 2.5.6).
    #[cold]
    fn martian<A: Version>(&mut self, input: usize, key: &Key<A>, why: Discard) -> Turn {
        let martians = self.plan.martians;
        let is_of_link = key.source.is_link_local()
            || !key.source.is_martian_source(martians)
                && !key.source.is_broadcast(&self.broadcasts);
        let is_own = A::table(&mut self.ports[input]).own().has(key.destination);
        if is_of_link && is_own { Turn::Slow(Why::Local) } else { Turn::Discard(why) }
    }

    /// The way that `next` stands for, if it leads out.
    #[inline]
    pub(super) fn way(&self, next: NextHop, hash: u64) -> Result<Way, Turn> {
        let Some((number, hop)) = self.hops.resolve_numbered(next, (hash >> 32) as u32) else {
            return Err(Turn::Slow(Why::NoRoute));
        };
        match *hop {
            Hop::Via { port, gateway } if usize::from(port) < self.ports.len() => {
                Ok((port, gateway, number))
            }
            Hop::Via { .. } => Err(Turn::Discard(Discard::PortDown)),
            Hop::Local => Err(Turn::Slow(Why::Local)),
            Hop::Blackhole => Err(Turn::Discard(Discard::Blackhole)),
            Hop::Reject(Rejection::Unreachable) => Err(Turn::Slow(Why::Unreachable)),
            Hop::Reject(Rejection::Prohibited) => Err(Turn::Slow(Why::Prohibited)),
            Hop::Multicast => Err(Turn::Slow(Why::Group)),
            Hop::Failed => Err(Turn::Slow(Why::Unreachable)),
        }
    }

    /// The link-layer address of a gateway: by the handle that is kept, or asked for again.
    #[inline]
    pub(super) fn mac_of_gateway(
        &mut self,
        now: Time,
        output: u16,
        gateway: IpAddr,
        hop: u16,
    ) -> Result<Mac, Turn> {
        let port = &mut self.ports[usize::from(output)];
        let handle = self.adjacencies.handle(hop);
        let (ready, lookup) = match gateway {
            IpAddr::V4(address) => match port.arp.table.ready(handle) {
                None => (None, port.arp.table.lookup(now, address.into())),
                ready => (ready, Lookup::Queue),
            },
            IpAddr::V6(address) => match port.discovery.table.ready(handle) {
                None => (None, port.discovery.table.lookup(now, address.into())),
                ready => (ready, Lookup::Queue),
            },
        };
        if let Some(mac) = ready {
            return Ok(mac);
        }
        let (mac, handle) = mac_of(lookup, output, gateway)?;
        self.adjacencies.keep(hop, handle);
        Ok(mac)
    }

    /// Whether a packet that came by `input` may go where its route says: anywhere, or only here.
    fn admit<A: Version>(
        &mut self,
        input: usize,
        source: A,
        found: Option<NextHop>,
    ) -> Result<(), Turn> {
        let mode = self.ports[input].plan.reverse_path;
        if mode != Mode::Off {
            self.test_way_back(mode, input, source)?;
        }
        let is_local =
            || found.is_some_and(|next| matches!(self.way(next, 0), Err(Turn::Slow(Why::Local))));
        if !self.ports[input].plan.forwards && !is_local() {
            return Err(Turn::Discard(Discard::ForwardingOff));
        }
        Ok(())
    }

    /// Writes the link header and the time to live; the ticket of the packet.
    #[inline]
    pub(super) fn rewrite<A: Version, M: Memory>(
        &mut self,
        output: usize,
        brief: &Brief,
        mac: Mac,
        memory: &mut M,
    ) -> Ticket {
        // What stands behind the packet is padding of the link that it came by.
        let place = Place { bytes: ETHERNET_BYTES as u16 + brief.ip_bytes, ..brief.place };
        let plan = &self.ports[output].plan;
        let frame = memory.frame_mut(place);
        frame[..6].copy_from_slice(&mac);
        frame[6..12].copy_from_slice(&plan.mac);
        frame[12..14].copy_from_slice(&A::ETHERTYPE);
        let passed = A::decrement(&mut frame[ETHERNET_BYTES..]);
        debug_assert!(passed.is_ok(), "who is at its end was turned aside");
        Ticket {
            place,
            flow: brief.hash as u32,
            link_bytes: place.bytes + plan.overhead_bytes,
            bits: brief.traffic_class & 3,
        }
    }
}

/// What a neighbour table's answer means for a packet.
#[inline]
pub(super) fn mac_of(lookup: Lookup, output: u16, address: IpAddr) -> Result<(Mac, Handle), Turn> {
    match lookup {
        Lookup::Resolved(mac, handle) => Ok((mac, handle)),
        Lookup::Queue => Err(Turn::Hold(output, address)),
        Lookup::Refused(_) => Err(Turn::Slow(Why::HostUnreachable)),
    }
}
