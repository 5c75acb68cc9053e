//! The first stages of a batch: headers are read, filters and routes found.

use super::port::RouterPort;
use super::replicate::is_for_group;
use super::slow::SlowPathReason;
use super::version::Version;
use super::{Router, labelled};
use crate::discard::Discard;
use crate::forward::ecmp::flow_hash_ipv6;
use crate::header::{AnyKey, ETHERNET_BYTES, Fields, Header, IPV4_BYTES, Key, Unusable, protocol};
use crate::memory::{Memory, Place};
use crate::neighbour::{Family, LinkAddress, link_address};

pub use super::lane::{Brief, Lane, Lanes};

/// Frames between the one that is read and the one whose line is prefetched: no more, because buffers of
/// a power of two share a few sets of the first cache.
pub(super) const AHEAD: usize = 8;
/// The prefetch distance where headers are read for the first time, from further away. (Prefetching all
/// at once would stall: a processor tracks only a dozen or so lines in flight.)
const AHEAD_AT_FIRST: usize = 12;

impl Router {
    /// Reads the headers of a batch: packets into their lanes, the rest to where it belongs.
    pub(super) fn parse<M: Memory>(&mut self, input: usize, frames: &[Place], memory: &mut M) {
        self.lanes.lane4.packets = 0;
        self.lanes.lane6.packets = 0;
        self.account.received += frames.len() as u64;
        let mut bytes = 0;
        for place in frames.iter().take(AHEAD_AT_FIRST) {
            memory.expect(*place);
        }
        for place in frames {
            bytes += u64::from(place.bytes);
        }
        let port = &mut self.ports[input];
        port.in_packets += frames.len() as u64;
        port.in_bytes += bytes;
        let (seed, mac) = (self.plan.seed, port.plan.mac);
        // Kept at hand while the rest of the router may change.
        let mut lane4 = self.lanes.lane4.take();
        for (at, &place) in frames.iter().enumerate() {
            if let Some(ahead) = frames.get(at + AHEAD_AT_FIRST) {
                memory.expect(*ahead);
            }
            if let Some((head, packet)) = usual(memory.frame(place), link_address(mac)) {
                match Fields::<u32>::read_usual(head, packet) {
                    Ok(fields) => lane4.push_fields(seed, place, &fields),
                    Err(fault) => self.discard(input, place, fault.into(), memory),
                }
                continue;
            }
            let is_ours = memory.frame(place).first_chunk() == Some(&mac);
            if is_ours || self.goes_on(input, place, memory) {
                self.parse_unusual(input, place, &mut lane4, memory);
            }
        }
        lane4.put_back(&mut self.lanes.lane4);
    }

    /// A frame for a group, or one that carries IPv4 with options or something else.
    #[inline(never)]
    pub(super) fn parse_unusual<M: Memory>(
        &mut self,
        input: usize,
        place: Place,
        lane4: &mut Lane<u32>,
        memory: &mut M,
    ) {
        match ipv4_of(memory.frame(place)).map(Fields::<u32>::read) {
            Some(Ok(fields)) => lane4.push_fields(self.plan.seed, place, &fields),
            Some(Err(fault)) => self.discard(input, place, fault.into(), memory),
            None => self.parse_other(input, place, memory),
        }
    }

    /// Whether a frame that is not for this port alone continues like others because it is for a group;
    /// if not, it has been dealt with.
    #[cold]
    fn goes_on<M: Memory>(&mut self, input: usize, place: Place, memory: &mut M) -> bool {
        let frame = memory.frame(place);
        if frame.first().is_some_and(|first| first & 1 == 0) {
            self.discard(input, place, Discard::OtherStation, memory);
            return false;
        }
        match Header::read(frame) {
            Ok(header) if is_for_group(frame, &header) => return true,
            Ok(Header { key: AnyKey::V6(key), hop_limit, transport_at, .. })
                if is_discovery(frame, &key, hop_limit, transport_at) =>
            {
                self.shunt(input, place, SlowPathReason::Discovery, memory);
            }
            Ok(_) => self.shunt(input, place, SlowPathReason::LinkBroadcast, memory),
            Err(unusable) => self.turn_aside(input, place, unusable, memory),
        }
        false
    }

    /// A frame that does not carry IPv4.
    fn parse_other<M: Memory>(&mut self, input: usize, place: Place, memory: &mut M) {
        let header = match Header::read(memory.frame(place)) {
            Ok(header) => header,
            Err(unusable) => return self.turn_aside(input, place, unusable, memory),
        };
        let AnyKey::V6(key) = header.key else { return };
        let Header { ip_bytes, transport_at, traffic_class, hop_limit, notes, .. } = header;
        let hash = flow_hash_ipv6(self.plan.seed, &key, notes);
        let brief = Brief { place, hash, ip_bytes, traffic_class, hop_limit, notes };
        if is_discovery(memory.frame(place), &key, hop_limit, transport_at)
            && self.ports[input].is_of_link(key.destination)
        {
            self.shunt(input, place, SlowPathReason::Discovery, memory);
        } else {
            self.lanes.lane6.push(brief, key);
        }
    }

    /// Frames other than IP: ARP goes to the slow path, labelled frames to their instance, the rest are
    /// discarded.
    fn turn_aside<M: Memory>(
        &mut self,
        input: usize,
        place: Place,
        unusable: Unusable,
        memory: &mut M,
    ) {
        const ARP: u16 = 0x0806;
        match unusable {
            Unusable::Other(ARP) => self.shunt(input, place, SlowPathReason::Arp, memory),
            Unusable::Other(labelled::ETHERTYPE) => self.gather_labelled(input, place, memory),
            Unusable::Other(_) => self.discard(input, place, Discard::NotSpoken, memory),
            Unusable::Fault(fault) => self.discard(input, place, fault.into(), memory),
        }
    }

    /// Finds the filter of each packet, which came by the port `input`.
    pub(super) fn classify(&mut self, input: usize) {
        let Lanes { lane4, lane6, .. } = &mut *self.lanes;
        let (four, six) = (..lane4.packets, ..lane6.packets);
        // By the time that filters are found, so are the roots of routes.
        self.tables.routes4.expect(&lane4.destinations[four]);
        self.tables.filters4.classify(input, &lane4.keys[four], &mut lane4.rules[four]);
        self.tables.filters6.classify(input, &lane6.keys[six], &mut lane6.rules[six]);
    }

    /// Finds each packet's route.
    pub(super) fn look_up(&mut self) {
        let Lanes { lane4, lane6, .. } = &mut *self.lanes;
        let (four, six) = (..lane4.packets, ..lane6.packets);
        if lane4.packets > 0 {
            self.tables.routes4.look_up(&lane4.destinations[four], &mut lane4.next[four]);
        }
        if lane6.packets > 0 {
            self.tables.routes6.look_up(&lane6.destinations[six], &mut lane6.next[six]);
        }
    }
}

impl RouterPort {
    /// Whether `destination` is on this link: a group, a link-local address, one of the
    /// port's own.
    pub(super) fn is_of_link(&self, destination: u128) -> bool {
        destination.is_multicast()
            || destination.is_link_local()
            || self.discovery.table.own().has(destination)
    }
}

/// The header and the packet in a usual frame: for this station alone, and IPv4 with a header of five
/// words.
#[inline(always)]
fn usual(frame: &[u8], mac: LinkAddress) -> Option<(&[u8; IPV4_BYTES], &[u8])> {
    let (ethernet, packet) = frame.split_first_chunk::<ETHERNET_BYTES>()?;
    let head = packet.first_chunk::<IPV4_BYTES>()?;
    let to = ethernet.first_chunk().map_or(0, |eight| u64::from_le_bytes(*eight));
    let is_usual = to << 16 == mac << 16 && ethernet[12..] == [0x08, 0x00] && head[0] == 0x45;
    is_usual.then_some((head, packet))
}

/// The packet in a frame of IPv4.
#[inline(always)]
fn ipv4_of(frame: &[u8]) -> Option<&[u8]> {
    let (ethernet, packet) = frame.split_first_chunk::<ETHERNET_BYTES>()?;
    (ethernet[12..] == [0x08, 0x00]).then_some(packet)
}

/// Whether the packet is of neighbour discovery (RFC 4861). One to an address of this link goes no
/// further; one to another is a packet like others, and void where it arrives.
#[inline]
fn is_discovery(frame: &[u8], key: &Key<u128>, hop_limit: u8, transport_at: u16) -> bool {
    key.protocol == protocol::ICMPV6
        && hop_limit == 255
        && frame
            .get(ETHERNET_BYTES + usize::from(transport_at))
            .is_some_and(|kind| (133..=137).contains(kind))
}
