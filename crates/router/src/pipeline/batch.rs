//! A batch on its way: what each stage leaves for the next, in arrays side by side.

use alloc::vec::Vec;
use core::hint::black_box;

use super::replicate::is_for_group;
use super::{BATCH, Router};
use crate::classifier::RuleId;
use crate::discard::Discard;
use crate::fib::NextHop;
use crate::forward::ecmp::flow_hash;
use crate::header::{AnyKey, Header, Key, Unusable, protocol};
use crate::memory::{Memory, Place, Ticket};
use crate::pipeline::slow::Why;

/// What deciding needs of a header besides its key.
#[derive(Clone, Copy, Debug, Default)]
pub struct Brief {
    /// Where the frame lies.
    pub place: Place,
    /// The hash of its flow.
    pub hash: u64,
    /// Bytes of the IP packet.
    pub ip_bytes: u16,
    /// Type of service or traffic class.
    pub traffic_class: u8,
    /// Time to live or hop limit.
    pub hop_limit: u8,
    /// The header's notes.
    pub notes: u8,
}

/// The packets of one family in a batch.
#[derive(Debug)]
pub struct Lane<A> {
    pub(super) briefs: Vec<Brief>,
    pub(super) keys: Vec<Key<A>>,
    pub(super) destinations: Vec<A>,
    pub(super) rules: Vec<Option<RuleId>>,
    pub(super) next: Vec<Option<NextHop>>,
}

impl<A> Lane<A> {
    /// What stands for a lane that is elsewhere.
    pub(super) fn empty() -> Lane<A> {
        Lane {
            briefs: Vec::new(),
            keys: Vec::new(),
            destinations: Vec::new(),
            rules: Vec::new(),
            next: Vec::new(),
        }
    }
}

impl<A: Copy> Lane<A> {
    fn new() -> Lane<A> {
        Lane {
            briefs: Vec::with_capacity(BATCH),
            keys: Vec::with_capacity(BATCH),
            destinations: Vec::with_capacity(BATCH),
            rules: Vec::with_capacity(BATCH),
            next: Vec::with_capacity(BATCH),
        }
    }

    fn clear(&mut self) {
        self.briefs.clear();
        self.keys.clear();
        self.destinations.clear();
    }

    #[inline]
    fn push(&mut self, brief: Brief, key: Key<A>) {
        self.briefs.push(brief);
        self.keys.push(key);
        self.destinations.push(key.destination);
    }
}

/// A batch.
#[derive(Debug)]
pub struct Lanes {
    pub(super) lane4: Lane<u32>,
    pub(super) lane6: Lane<u128>,
    /// What is to be queued: the output, and the ticket.
    pub(super) decided: Vec<(u16, Ticket)>,
}

impl Default for Lanes {
    fn default() -> Lanes {
        Lanes { lane4: Lane::new(), lane6: Lane::new(), decided: Vec::with_capacity(BATCH) }
    }
}

impl Router {
    /// Reads the headers of a batch: packets into their lanes, the rest to where it belongs.
    pub(super) fn parse<M: Memory>(&mut self, input: usize, frames: &[Place], memory: &mut M) {
        self.lanes.lane4.clear();
        self.lanes.lane6.clear();
        self.account.received += frames.len() as u64;
        let (seed, mac) = (self.plan.seed, self.ports[input].plan.mac);
        self.ports[input].in_packets += frames.len() as u64;
        self.ports[input].in_bytes +=
            frames.iter().map(|place| u64::from(place.bytes)).sum::<u64>();
        fetch(frames, memory);
        for &place in frames {
            let frame = memory.frame(place);
            let is_ours = frame.first_chunk() == Some(&mac);
            if !is_ours && frame.first().is_some_and(|first| first & 1 == 0) {
                self.discard(input, place, Discard::OtherStation, memory);
                continue;
            }
            let header = match Header::read(frame) {
                Ok(header) => header,
                Err(unusable) => {
                    self.turn_aside(input, place, unusable, memory);
                    continue;
                }
            };
            let brief = Brief {
                place,
                hash: flow_hash(seed, &header, None),
                ip_bytes: header.ip_bytes,
                traffic_class: header.traffic_class,
                hop_limit: header.hop_limit,
                notes: header.notes,
            };
            match header.key {
                _ if !is_ours && !is_for_group(frame, &header) => {
                    self.shunt(input, place, Why::LinkBroadcast, memory)
                }
                AnyKey::V4(key) => self.lanes.lane4.push(brief, key),
                AnyKey::V6(key)
                    if is_discovery(frame, &key, &header)
                        && self.ports[input].is_of_link(key.destination) =>
                {
                    self.shunt(input, place, Why::Discovery, memory);
                }
                AnyKey::V6(key) => self.lanes.lane6.push(brief, key),
            }
        }
    }

    /// What is not IP: ARP goes to the slow path, the rest nowhere.
    fn turn_aside<M: Memory>(
        &mut self,
        input: usize,
        place: Place,
        unusable: Unusable,
        memory: &mut M,
    ) {
        const ARP: u16 = 0x0806;
        match unusable {
            Unusable::Other(ARP) => self.shunt(input, place, Why::Arp, memory),
            Unusable::Other(_) => self.discard(input, place, Discard::NotSpoken, memory),
            Unusable::Fault(fault) => self.discard(input, place, fault.into(), memory),
        }
    }

    /// Finds each packet's filter.
    pub(super) fn classify(&mut self) {
        let Lanes { lane4, lane6, .. } = &mut *self.lanes;
        lane4.rules.resize(lane4.keys.len(), None);
        self.tables.filters4.classify(&lane4.keys, &mut lane4.rules);
        lane6.rules.resize(lane6.keys.len(), None);
        self.tables.filters6.classify(&lane6.keys, &mut lane6.rules);
    }

    /// Finds each packet's route.
    pub(super) fn look_up(&mut self) {
        let Lanes { lane4, lane6, .. } = &mut *self.lanes;
        lane4.next.resize(lane4.keys.len(), None);
        if !lane4.keys.is_empty() {
            self.tables.routes4.look_up(&lane4.destinations, &mut lane4.next);
        }
        lane6.next.resize(lane6.keys.len(), None);
        if !lane6.keys.is_empty() {
            self.tables.routes6.look_up(&lane6.destinations, &mut lane6.next);
        }
    }
}

/// Reads a byte of each frame, so that the memory brings their headers at the same time and not one
/// after the other while they are parsed.
#[inline]
fn fetch<M: Memory>(frames: &[Place], memory: &M) {
    let bytes = frames.iter().map(|place| memory.frame(*place).first().copied().unwrap_or(0));
    black_box(bytes.fold(0, |all, byte| all ^ byte));
}

/// Whether the packet is of neighbour discovery (RFC 4861). One to an address of this link goes no
/// further; one to another is a packet like others, and void where it arrives.
#[inline]
fn is_discovery(frame: &[u8], key: &Key<u128>, header: &Header) -> bool {
    const AT: usize = crate::header::ETHERNET_BYTES;
    key.protocol == protocol::ICMPV6
        && header.hop_limit == 255
        && frame
            .get(AT + usize::from(header.transport_at))
            .is_some_and(|kind| (133..=137).contains(kind))
}
