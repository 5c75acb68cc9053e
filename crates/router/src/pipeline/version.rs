//! What the two versions of IP do differently on a packet's way.

use alloc::vec::Vec;
use core::array;
use core::net::IpAddr;

use super::Router;
use super::broadcasts::Broadcasts;
use super::engine::{Filters, Tables};
use super::groups::{Groups, Side};
use super::lane::{Lane, Lanes};
use super::port::{Held, RouterPort};
use super::reserved::ReservedFlows;
use super::reverse_paths::ReversePaths;
use crate::classifier::Classified;
use crate::fib::NextHop;
use crate::forward::ecmp::{flow_hash_ipv4, flow_hash_ipv6};
use crate::forward::hop;
use crate::forward::icmp::Problem;
use crate::forward::martian::{self, Martian, MartianFilter};
use crate::forward::report::{Cause, Reporter, Unsent};
use crate::header::{ETHERNET_BYTES, Fault, Fields, Key};
use crate::multicast::Protocol;
use crate::neighbour::{Family, Table};

/// What the two families do differently.
pub(super) trait Version: Protocol + Classified + Default {
    /// The ethertype.
    const ETHERTYPE: [u8; 2];
    const IS_SIX: bool = Self::BITS == 128;
    fn lane(lanes: &mut Lanes) -> &mut Lane<Self>;
    fn filters(tables: &mut Tables) -> &mut Filters<Self>;
    fn reserved(flows: &mut ReservedFlows) -> &mut Filters<Self>;
    /// The route in the forwarding table.
    fn look_up(router: &mut Router, address: Self) -> Option<NextHop>;
    fn reverse_paths(router: &Router) -> &ReversePaths<Self>;
    /// The route: that of the forwarding table, or the default one that is kept beside it.
    fn route(router: &mut Router, address: Self) -> Option<NextHop> {
        Self::look_up(router, address).or(Self::reverse_paths(router).default_route())
    }
    /// Whether neither address may be a martian or a group by how it begins.
    fn are_plain(source: Self, destination: Self) -> bool;
    fn is_martian_source(self, filter: MartianFilter) -> bool;
    fn is_martian_destination(self, filter: MartianFilter) -> bool;
    /// Whether a host with this address may send to its own link and no further.
    fn is_of_one_link(self) -> bool;
    fn is_multicast(self) -> bool;
    /// Whether the sender at `source` may need a redirect to a better router on the link of `port`: false
    /// for nearly all senders that need none.
    fn is_of_redirects(port: &RouterPort, source: Self) -> bool;
    fn table(port: &mut RouterPort) -> &mut Table<Self, Held>;
    fn groups(groups: &mut Groups) -> &mut Side<Self>;
    fn decrement(packet: &mut [u8]) -> Result<(), hop::Stopped>;
    fn address(self) -> IpAddr;
    /// The address in `address`, if it is of this family.
    fn of(address: IpAddr) -> Option<Self>;
    fn is_broadcast(self, broadcasts: &Broadcasts) -> bool;
    /// The headers of a frame that was read before; padding behind the packet does not matter.
    fn read_again(frame: &[u8]) -> Result<Fields<Self>, Fault>;
    fn flow_hash(seed: u64, key: &Key<Self>, notes: u8) -> u64;
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
    fn filters(tables: &mut Tables) -> &mut Filters<u32> {
        &mut tables.filters4
    }

    fn reserved(flows: &mut ReservedFlows) -> &mut Filters<u32> {
        &mut flows.filters4
    }

    fn reverse_paths(router: &Router) -> &ReversePaths<u32> {
        &router.reverse_paths4
    }

    fn look_up(router: &mut Router, address: u32) -> Option<NextHop> {
        let mut next = [None];
        router.tables.routes4.look_up(&[address], &mut next);
        next[0]
    }

    #[inline(always)]
    fn are_plain(source: u32, destination: u32) -> bool {
        martian::are_plain_ipv4(source, destination)
    }

    #[inline]
    fn is_martian_source(self, filter: MartianFilter) -> bool {
        filter.source_ipv4(self).is_some()
    }

    #[inline]
    fn is_martian_destination(self, filter: MartianFilter) -> bool {
        filter.destination_ipv4(self).is_some()
    }

    fn is_of_one_link(self) -> bool {
        MartianFilter::Least.source_ipv4(self) == Some(Martian::LinkLocal)
    }

    #[inline]
    fn is_multicast(self) -> bool {
        self >> 28 == 0xe
    }

    #[inline]
    fn is_of_redirects(port: &RouterPort, source: u32) -> bool {
        port.arp.table.own().begins(source)
    }

    #[inline]
    fn table(port: &mut RouterPort) -> &mut Table<u32, Held> {
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

    #[inline]
    fn read_again(frame: &[u8]) -> Result<Fields<u32>, Fault> {
        Fields::<u32>::read(frame.get(ETHERNET_BYTES..).unwrap_or_default())
    }

    fn flow_hash(seed: u64, key: &Key<u32>, notes: u8) -> u64 {
        flow_hash_ipv4(seed, key, notes)
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
    fn filters(tables: &mut Tables) -> &mut Filters<u128> {
        &mut tables.filters6
    }

    fn reserved(flows: &mut ReservedFlows) -> &mut Filters<u128> {
        &mut flows.filters6
    }

    fn reverse_paths(router: &Router) -> &ReversePaths<u128> {
        &router.reverse_paths6
    }

    fn look_up(router: &mut Router, address: u128) -> Option<NextHop> {
        let mut next = [None];
        router.tables.routes6.look_up(&[address], &mut next);
        next[0]
    }

    #[inline(always)]
    fn are_plain(_: u128, _: u128) -> bool {
        false
    }

    #[inline]
    fn is_martian_source(self, filter: MartianFilter) -> bool {
        filter.source_ipv6(self).is_some()
    }

    #[inline]
    fn is_martian_destination(self, filter: MartianFilter) -> bool {
        filter.destination_ipv6(self).is_some()
    }

    fn is_of_one_link(self) -> bool {
        self.is_link_local()
    }

    #[inline]
    fn is_multicast(self) -> bool {
        self >> 120 == 0xff
    }

    /// Those of IPv6 are neighbour discovery's.
    #[inline]
    fn is_of_redirects(_: &RouterPort, _: u128) -> bool {
        false
    }

    #[inline]
    fn table(port: &mut RouterPort) -> &mut Table<u128, Held> {
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

    fn read_again(frame: &[u8]) -> Result<Fields<u128>, Fault> {
        Fields::<u128>::read(frame.get(ETHERNET_BYTES..).unwrap_or_default())
    }

    fn flow_hash(seed: u64, key: &Key<u128>, notes: u8) -> u64 {
        flow_hash_ipv6(seed, key, notes)
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
