//! All connections of a stream of packets, each followed to its end.
//!
//! TCP itself ends a connection (both FINs, a reset, another SYN between the same ports), never a timer:
//! keep-alive connections are silent for minutes. A connection that is over is kept for a minute of the
//! packets' own clock, so that stragglers and repeated FINs find it. Memory is bounded: when all places are
//! taken, a connection without a packet since the clock's hand last passed it is evicted (the *clock*
//! algorithm), and counted.

use core::net::{IpAddr, SocketAddr};

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use hashbrown::HashTable;

use nilometer_flow::FlowKey;
use nilometer_flow::hash::Hashing;
use nilometer_flow::record::TCP;
use nilometer_flow::record::tcp_flags::{ACK, SYN};
use nilometer_wire::packet::{IpPacket, TcpSegment, Transport};

use crate::connection::Connection;
use crate::live::{Arrival, Live};
use crate::side::Side;

/// How long a connection that is over waits for stragglers, ns.
const LINGER_NS: u64 = 60_000_000_000;

/// What a follower may keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once, at least one; some 600 bytes each, and 40 more for each step.
    pub connections_max: usize,
    /// Steps of one connection; whatever it sends beyond them is added to its last steps.
    pub steps_max: usize,
}

impl Default for Limits {
    /// 1,048,576 connections of 65,536 steps.
    fn default() -> Limits {
        Limits { connections_max: 1 << 20, steps_max: 1 << 16 }
    }
}

/// What a follower has seen. `connections == given + live`, always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FollowerCounts {
    /// TCP packets whose header was seen.
    pub packets: u64,
    /// Connections.
    pub connections: u64,
    /// Those of them that were handed over.
    pub given: u64,
    /// Connections handed over early to make room: they may appear again, as ones whose opening was not seen.
    pub evicted: u64,
    /// Connections followed now.
    pub live: u64,
}

/// A place.
#[derive(Debug)]
struct Place {
    key: FlowKey,
    live: Live,
    /// Distinguishes this connection from those that had the place before.
    serial: u64,
    /// Seen since the hand passed.
    was_seen: bool,
    is_over: bool,
}

/// Follows connections.
#[derive(Debug)]
pub struct Follower {
    limits: Limits,
    /// Where set, packets of the other side are ignored.
    only: Option<Side>,
    places: Vec<Option<Place>>,
    free: Vec<u32>,
    index: HashTable<u32>,
    hashing: Hashing,
    hand: usize,
    /// Connections that are over: place, serial, and until when they are kept.
    over: VecDeque<(u32, u64, u64)>,
    now_ns: u64,
    counts: FollowerCounts,
}

impl Follower {
    /// Follows nothing yet.
    pub fn new(limits: Limits) -> Follower {
        Follower {
            limits,
            only: None,
            places: Vec::new(),
            free: Vec::new(),
            index: HashTable::new(),
            hashing: Hashing::default(),
            hand: 0,
            over: VecDeque::new(),
            now_ns: 0,
            counts: FollowerCounts::default(),
        }
    }

    /// Follows nothing yet, and ignores packets from the other side: that is how captures of one direction
    /// show connections.
    pub fn of_one_side(limits: Limits, only: Side) -> Follower {
        Follower { only: Some(only), ..Follower::new(limits) }
    }

    /// Takes a packet stamped `stamp_ns` (ns since 1970), and hands connections that are over and have waited
    /// to `out`. A packet without a TCP header (a later fragment, too) is ignored. Returns true if the packet
    /// now belongs to a connection.
    pub fn observe(
        &mut self,
        stamp_ns: u64,
        packet: &IpPacket,
        out: &mut impl FnMut(Connection),
    ) -> bool {
        let Transport::Tcp(segment) = &packet.transport else { return false };
        let ends = Ends::of(packet, segment);
        let mut at = self.find(&ends.key);
        if self.only.is_some_and(|only| self.sender(at, &ends, segment) != only) {
            return false;
        }
        self.now_ns = self.now_ns.max(stamp_ns);
        self.counts.packets += 1;
        if self.let_go(out) {
            at = self.find(&ends.key);
        }
        if let Some(place) = at {
            let live = &self.place(place).live;
            if live.is_succeeded_by(&ends.arrival(live.client, stamp_ns, packet, segment)) {
                self.give(place, out);
                at = None;
            }
        }
        let at = at.unwrap_or_else(|| self.begin(&ends, stamp_ns, segment, out));
        let steps_max = self.limits.steps_max;
        let place = self.places[at as usize].as_mut().expect("a place that is taken");
        let arrival = ends.arrival(place.live.client, stamp_ns, packet, segment);
        place.live.take(&arrival, steps_max);
        place.was_seen = true;
        if !place.is_over && place.live.is_over() {
            place.is_over = true;
            self.over.push_back((at, place.serial, self.now_ns.saturating_add(LINGER_NS)));
        }
        true
    }

    /// Hands over all connections that are followed: the packets that come next belong to another input.
    pub fn flush(&mut self, out: &mut impl FnMut(Connection)) {
        for at in 0..self.places.len() {
            if self.places[at].is_some() {
                self.give(at as u32, out);
            }
        }
        self.over.clear();
        self.now_ns = 0;
        assert_eq!(self.counts.connections, self.counts.given, "every connection is given");
    }

    /// What was seen so far.
    pub fn counts(&self) -> FollowerCounts {
        FollowerCounts { live: self.index.len() as u64, ..self.counts }
    }

    fn place(&self, at: u32) -> &Place {
        self.places[at as usize].as_ref().expect("a place that is taken")
    }

    fn find(&self, key: &FlowKey) -> Option<u32> {
        self.index.find(self.hashing.of(key), |&at| self.place(at).key == *key).copied()
    }

    fn begin(
        &mut self,
        ends: &Ends,
        stamp_ns: u64,
        segment: &TcpSegment,
        out: &mut impl FnMut(Connection),
    ) -> u32 {
        if self.index.len() >= self.limits.connections_max.max(1) {
            self.make_room(out);
        }
        let (client, server) = ends.roles(segment);
        self.counts.connections += 1;
        let place = Place {
            key: ends.key,
            live: Live::new(client, server, stamp_ns),
            serial: self.counts.connections,
            was_seen: true,
            is_over: false,
        };
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() as u32 - 1
        });
        self.places[at as usize] = Some(place);
        let (places, hashing) = (&self.places, &self.hashing);
        let hash_of = |&at: &u32| {
            hashing.of(&places[at as usize].as_ref().expect("a place that is taken").key)
        };
        self.index.insert_unique(hashing.of(&ends.key), at, hash_of);
        at
    }

    /// Hands over the first connection, from the hand on, that was not seen since the hand passed it.
    fn make_room(&mut self, out: &mut impl FnMut(Connection)) {
        loop {
            self.hand = (self.hand + 1) % self.places.len();
            let Some(place) = &mut self.places[self.hand] else { continue };
            if !core::mem::replace(&mut place.was_seen, false) {
                self.counts.evicted += u64::from(!place.is_over);
                return self.give(self.hand as u32, out);
            }
        }
    }

    /// Hands over connections that are over and have waited for long enough. True if there was one.
    fn let_go(&mut self, out: &mut impl FnMut(Connection)) -> bool {
        let given = self.counts.given;
        while let Some(&(at, serial, until_ns)) = self.over.front()
            && until_ns <= self.now_ns
        {
            self.over.pop_front();
            let place = self.places[at as usize].as_mut().filter(|place| place.serial == serial);
            match place {
                // It seemed to be reset, but continued.
                Some(place) if !place.live.is_over() => place.is_over = false,
                Some(_) => self.give(at, out),
                None => {}
            }
        }
        self.counts.given > given
    }

    /// Which end sent a packet of this connection, or of one that the packet would begin.
    fn sender(&self, at: Option<u32>, ends: &Ends, segment: &TcpSegment) -> Side {
        let known = at.map(|at| self.place(at).live.client);
        let client = known.unwrap_or_else(|| ends.roles(segment).0);
        if ends.source == client { Side::Client } else { Side::Server }
    }

    fn give(&mut self, at: u32, out: &mut impl FnMut(Connection)) {
        let place = self.places[at as usize].take().expect("a place that is taken");
        let entry = self.index.find_entry(self.hashing.of(&place.key), |&other| other == at);
        entry.expect("every place is in the index").remove();
        self.free.push(at);
        self.counts.given += 1;
        out(place.live.into_connection());
    }
}

/// The two ends of a packet.
struct Ends {
    source: SocketAddr,
    destination: SocketAddr,
    /// The same for both directions.
    key: FlowKey,
}

impl Ends {
    fn of(packet: &IpPacket, segment: &TcpSegment) -> Ends {
        let end = |address: IpAddr, port: u16| SocketAddr::new(address, port);
        let key = FlowKey {
            source: packet.source,
            destination: packet.destination,
            source_port: segment.source_port,
            destination_port: segment.destination_port,
            protocol: TCP,
        };
        Ends {
            source: end(packet.source, segment.source_port),
            destination: end(packet.destination, segment.destination_port),
            key: key.min(key.reversed()),
        }
    }

    /// Client and server, judged by the first packet.
    fn roles(&self, segment: &TcpSegment) -> (SocketAddr, SocketAddr) {
        let is_from_client = match segment.flags & (SYN | ACK) {
            SYN => true,
            flags if flags == SYN | ACK => false,
            _ => self.source.port() >= self.destination.port(),
        };
        match is_from_client {
            true => (self.source, self.destination),
            false => (self.destination, self.source),
        }
    }

    fn arrival<'a>(
        &self,
        client: SocketAddr,
        stamp_ns: u64,
        packet: &IpPacket,
        segment: &'a TcpSegment,
    ) -> Arrival<'a> {
        let side = if self.source == client { Side::Client } else { Side::Server };
        Arrival { side, stamp_ns, segment, ip_bytes: packet.ip_bytes }
    }
}
