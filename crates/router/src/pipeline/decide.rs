//! The decision on each packet of a batch, and the rewriting of those that are forwarded (RFC 1812,
//! 5.2.1).
//!
//! The order of the checks is that of RFC 1812: filter, addresses, route, options, time to live, size,
//! next hop. For the common packet the results of earlier stages and three arrays answer them; everything
//! else is one reason to leave the fast path.

use core::mem;
use core::net::IpAddr;

use nilometer_wire::Time;

use super::Router;
use super::adjacency::Kept;
use super::lane::Brief;
use super::port::PortPlan;
use super::slow::SlowPathReason;
use super::version::Version;
use crate::classifier::{Action, RuleId};
use crate::discard::Discard;
use crate::fib::NextHop;
use crate::forward::urpf::Mode;
use crate::forward::{hop, tiny};
use crate::header::{self, ETHERNET_BYTES, Header, Key};
use crate::memory::{Memory, Place, Ticket};
use crate::neighbour::{Handle, LinkAddress, Lookup, Mac, link_address, mac};
use crate::next_hop::{Hop, Rejection};

/// Why a packet leaves the fast path.
#[derive(Clone, Copy)]
pub(super) enum Turn {
    /// It goes nowhere.
    Discard(Discard),
    /// The slow path looks at it.
    Slow(SlowPathReason),
    /// It waits at a port for the link-layer address of a next hop.
    Hold(u16, IpAddr),
}

/// A way out: the port, the gateway if there is one, and the number of the hop.
pub(super) type Egress = (u16, Option<IpAddr>, u16);

impl Router {
    /// Decides on the batch: makes tickets of the packets to be forwarded, with their headers rewritten.
    pub(super) fn decide<M: Memory>(&mut self, now: Time, input: usize, memory: &mut M) {
        self.decide_lane::<u32, M>(now, input, memory);
        self.decide_lane::<u128, M>(now, input, memory);
        if !self.outputs.is_empty() {
            let mut decided = mem::take(&mut self.lanes.decided);
            self.filter_decided(now, input, &mut decided, memory);
            self.lanes.decided = decided;
        }
    }

    fn decide_lane<A: Version, M: Memory>(&mut self, now: Time, input: usize, memory: &mut M) {
        let lane = A::lane(&mut self.lanes).take();
        let mut decided = mem::take(&mut self.lanes.decided);
        let mut at = 0;
        loop {
            at = self.decide_common(input, &lane, at, &mut decided, memory);
            if at >= lane.packets {
                break;
            }
            let (brief, key) = (&lane.briefs[at], &lane.keys[at]);
            let found = (lane.rules[at], lane.next[at]);
            match self.judge(now, input, brief, key, found, memory) {
                Ok((output, link_address)) => {
                    let plan = &self.ports[usize::from(output)].plan;
                    decided.push((output, rewrite::<A, M>(plan, brief, link_address, memory)));
                }
                Err(turn) => self.turn_off(now, input, (brief, key), turn, memory),
            }
            at += 1;
        }
        self.lanes.decided = decided;
        lane.put_back(A::lane(&mut self.lanes));
    }

    /// A packet leaves the fast path.
    #[inline(never)]
    pub(super) fn turn_off<A: Version, M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        (brief, key): (&Brief, &Key<A>),
        turn: Turn,
        memory: &mut M,
    ) {
        match turn {
            Turn::Discard(why) => self.discard(input, brief.place, why, memory),
            Turn::Slow(SlowPathReason::Group) => self.meet_group(now, input, brief, key, memory),
            Turn::Slow(why) => self.shunt(input, brief.place, why, memory),
            Turn::Hold(output, address) => {
                let plan = &self.ports[usize::from(output)].plan;
                let ticket = rewrite::<A, M>(plan, brief, 0, memory);
                self.hold(now, (input, usize::from(output)), address, ticket, memory);
            }
        }
    }

    /// The output and the link-layer address of a packet, or why it has none here.
    fn judge<A: Version, M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        brief: &Brief,
        key: &Key<A>,
        found: (Option<RuleId>, Option<NextHop>),
        memory: &mut M,
    ) -> Result<(u16, LinkAddress), Turn> {
        let (action, is_copied) = A::filters(&mut self.tables).meet(found.0, brief.ip_bytes);
        if is_copied {
            self.copy_to_management(input, brief.place, memory);
        }
        if action == Action::Deny {
            return Err(match self.plan.rfc1812.tells_denied {
                true => Turn::Slow(SlowPathReason::Denied),
                false => Turn::Discard(Discard::Denied),
            });
        }
        self.examine(input, brief, key, found.1, memory)?;
        let Some(next) = found.1.or_else(|| A::reverse_paths(self).default_route()) else {
            return Err(Turn::Slow(SlowPathReason::NoRoute));
        };
        let kept = self.adjacencies.find(&self.hops, next, brief.hash);
        let output =
            if kept.is_any { kept.output } else { self.way(next, brief.hash).map(|way| way.0)? };
        if brief.notes & header::OPTIONS != 0 {
            return Err(Turn::Slow(SlowPathReason::Options));
        }
        if hop::expires(brief.hop_limit) {
            return Err(Turn::Slow(SlowPathReason::Expired));
        }
        let port = &self.ports[usize::from(output)];
        if brief.ip_bytes > port.plan.mtu_bytes {
            return Err(Turn::Slow(SlowPathReason::TooBig(output)));
        }
        if !port.is_open {
            return Err(Turn::Discard(port.why_shut()));
        }
        // (In this order: hardly any sender is on a link of ours, but a port is this one at even odds.)
        if A::is_of_redirects(port, key.source)
            && usize::from(output) == input
            && port.plan.redirects
        {
            let (_, gateway, _) = self.way(next, brief.hash)?;
            self.redirect(now, input, brief.place, gateway, memory);
        }
        match self.ports[usize::from(output)].ready(kept) {
            Some(link_address) => Ok((output, link_address)),
            None => self.find_station(now, key, self.way(next, brief.hash)?),
        }
    }

    /// Checks of a packet itself, and of its arrival, that may stop it before its route counts: fragments that hide
    /// flags from filters, addresses, the reverse path to its source.
    #[inline(always)]
    pub(super) fn examine<A: Version, M: Memory>(
        &mut self,
        input: usize,
        brief: &Brief,
        key: &Key<A>,
        found: Option<NextHop>,
        memory: &mut M,
    ) -> Result<(), Turn> {
        if brief.notes & header::FRAGMENT != 0
            && key.protocol == header::protocol::TCP
            && A::filters(&mut self.tables).ask_for_flags(input)
            && hides_flags(memory.frame(brief.place))
        {
            return Err(Turn::Discard(Discard::Fragment));
        }
        if key.source.is_broadcast(&self.broadcasts) {
            return Err(self.martian(input, key, Discard::MartianSource));
        }
        if !A::are_plain(key.source, key.destination) {
            self.question(input, key)?;
        }
        if self.ports[input].asks {
            self.admit(input, key.source, found)?;
        }
        Ok(())
    }

    /// Whether the addresses of a packet may be forwarded in the ordinary way.
    #[inline(never)]
    fn question<A: Version>(&mut self, input: usize, key: &Key<A>) -> Result<(), Turn> {
        let martians = self.plan.martians;
        if key.source.is_martian_source(martians) {
            return Err(self.martian(input, key, Discard::MartianSource));
        }
        if key.destination.is_multicast() {
            return Err(Turn::Slow(SlowPathReason::Group));
        }
        if key.destination.is_martian_destination(martians) {
            return Err(self.martian(input, key, Discard::MartianDestination));
        }
        Ok(())
    }

    /// The output and the link-layer address of a packet with a given egress, from the tables.
    #[inline(never)]
    fn find_station<A: Version>(
        &mut self,
        now: Time,
        key: &Key<A>,
        (output, gateway, hop): Egress,
    ) -> Result<(u16, LinkAddress), Turn> {
        let mac = match gateway {
            Some(gateway) => self.mac_of_gateway(now, output, gateway, hop)?,
            None => {
                let table = A::table(&mut self.ports[usize::from(output)]);
                let lookup = table.lookup(now, key.destination);
                mac_of(lookup, output, key.destination.address())?.0
            }
        };
        Ok((output, link_address(mac)))
    }

    /// A packet with an address that may not be forwarded is discarded, unless the address is link-local
    /// and the packet for the port itself (RFC 3927, 2.7; RFC 4291, 2.5.6). In IPv6 the sender gets an
    /// ICMP error if the source is link-local and the destination is not (RFC 4443, 3.1).
    #[cold]
    fn martian<A: Version>(&mut self, input: usize, key: &Key<A>, why: Discard) -> Turn {
        let martians = self.plan.martians;
        let is_host = key.source.is_of_one_link() || !key.source.is_martian_source(martians);
        let is_of_link = is_host && !key.source.is_broadcast(&self.broadcasts);
        let is_own = A::table(&mut self.ports[input]).own().has(key.destination);
        let leaves_scope = A::IS_SIX
            && key.source.is_of_one_link()
            && !key.destination.is_multicast()
            && !key.destination.is_martian_destination(martians)
            && !self.is_own(key.destination);
        match (is_of_link && is_own, leaves_scope) {
            (true, _) => Turn::Slow(SlowPathReason::Local),
            (_, true) => Turn::Slow(SlowPathReason::BeyondScope),
            _ => Turn::Discard(why),
        }
    }

    /// The egress that `next` stands for, if there is one.
    #[inline]
    pub(super) fn way(&self, next: NextHop, hash: u64) -> Result<Egress, Turn> {
        let Some((number, hop)) = self.hops.resolve_numbered(next, (hash >> 32) as u32) else {
            return Err(Turn::Slow(SlowPathReason::NoRoute));
        };
        match *hop {
            Hop::Via { port, gateway } if usize::from(port) < self.ports.len() => {
                Ok((port, gateway, number))
            }
            Hop::Via { .. } => Err(Turn::Discard(Discard::PortDown)),
            Hop::Local => Err(Turn::Slow(SlowPathReason::Local)),
            Hop::KernelLink => Err(Turn::Slow(SlowPathReason::KernelLink)),
            Hop::Blackhole => Err(Turn::Discard(Discard::Blackhole)),
            Hop::Reject(Rejection::Unreachable) => Err(Turn::Slow(SlowPathReason::Unreachable)),
            Hop::Reject(Rejection::Prohibited) => Err(Turn::Slow(SlowPathReason::Prohibited)),
            Hop::Multicast => Err(Turn::Slow(SlowPathReason::Group)),
            Hop::Failed => Err(Turn::Slow(SlowPathReason::Unreachable)),
        }
    }

    /// The link-layer address of a gateway: by the kept handle, or looked up again.
    pub(super) fn mac_of_gateway(
        &mut self,
        now: Time,
        output: u16,
        gateway: IpAddr,
        hop: u16,
    ) -> Result<Mac, Turn> {
        let kept = self.adjacencies.of(hop);
        match self.ports[usize::from(kept.output)].ready(kept) {
            Some(link_address) => Ok(mac(link_address)),
            None => self.find_gateway(now, output, gateway, hop),
        }
    }

    #[cold]
    fn find_gateway(
        &mut self,
        now: Time,
        output: u16,
        gateway: IpAddr,
        hop: u16,
    ) -> Result<Mac, Turn> {
        let port = &mut self.ports[usize::from(output)];
        let lookup = match gateway {
            IpAddr::V4(address) => port.arp.table.lookup(now, address.into()),
            IpAddr::V6(address) => port.discovery.table.lookup(now, address.into()),
        };
        let (mac, handle) = mac_of(lookup, output, gateway)?;
        let is_six = gateway.is_ipv6();
        self.adjacencies.keep(hop, Kept { handle, output, is_six, is_any: true });
        Ok(mac)
    }

    /// Whether a packet that came by `input` may go where its route says: anywhere, or only here.
    pub(super) fn admit<A: Version>(
        &mut self,
        input: usize,
        source: A,
        found: Option<NextHop>,
    ) -> Result<(), Turn> {
        let mode = self.ports[input].plan.reverse_path;
        if mode != Mode::Off {
            self.test_way_back(mode, input, source)?;
        }
        let is_local = || {
            found.is_some_and(|next| {
                matches!(self.way(next, 0), Err(Turn::Slow(SlowPathReason::Local)))
            })
        };
        if !self.ports[input].plan.forwards && !is_local() {
            return Err(Turn::Discard(Discard::ForwardingOff));
        }
        Ok(())
    }
}

// The note of a reservation is the ticket's bit.
const _: () = assert!(header::RESERVED == Ticket::RESERVED);

/// Writes the link header and the time to live; the ticket of a packet that leaves by the port of this
/// `plan`. (Always inlined: a ticket that is put together in small stores and copied by a wide load waits
/// for all stores before it, and those to the frame are slow.)
#[inline(always)]
pub(super) fn rewrite<A: Version, M: Memory>(
    plan: &PortPlan,
    brief: &Brief,
    to: LinkAddress,
    memory: &mut M,
) -> Ticket {
    // Bytes behind the packet are padding of the link that it came by.
    let place = Place { bytes: ETHERNET_BYTES as u16 + brief.ip_bytes, ..brief.place };
    if let Some((ethernet, packet)) =
        memory.frame_mut(place).split_first_chunk_mut::<ETHERNET_BYTES>()
    {
        // Both addresses in as few and as wide stores as they fit into.
        let from = link_address(plan.mac);
        ethernet[..8].copy_from_slice(&(to | from << 48).to_le_bytes());
        ethernet[8..12].copy_from_slice(&((from >> 16) as u32).to_le_bytes());
        ethernet[12..].copy_from_slice(&A::ETHERTYPE);
        let passed = A::decrement(packet);
        debug_assert!(passed.is_ok(), "a packet at its end took the slow path");
    }
    Ticket {
        place,
        flow: brief.hash as u32,
        link_bytes: place.bytes + plan.overhead_bytes,
        bits: brief.traffic_class & 3 | brief.notes & header::RESERVED,
    }
}

/// What a neighbour table's answer means for a packet.
#[inline]
pub(super) fn mac_of(lookup: Lookup, output: u16, address: IpAddr) -> Result<(Mac, Handle), Turn> {
    match lookup {
        Lookup::Resolved(mac, handle) => Ok((mac, handle)),
        Lookup::Queue => Err(Turn::Hold(output, address)),
        Lookup::Refused(_) => Err(Turn::Slow(SlowPathReason::HostUnreachable)),
    }
}

/// Whether a frame has a fragment of TCP that filters of flags cannot judge.
#[inline(never)]
fn hides_flags(frame: &[u8]) -> bool {
    let read = Header::read(frame);
    read.is_ok_and(|header| tiny::hides_flags(&frame[ETHERNET_BYTES..], &header))
}
