//! How many TCP connections a capture holds.
//!
//! A connection here is a distinct 4-tuple of addresses and ports, both directions together, of the
//! innermost IP header, however often it was opened: the count that anyone can repeat with another
//! tool. Flow records are something else (one-way, and split by timers).

use alloc::vec::Vec;

use hashbrown::HashTable;
use nilometer_wire::brief::{Body, Brief};
use nilometer_wire::packet::IpPacket;

use crate::connection_set::{ConnectionSet, ENDED, OPENED, word_of};
use crate::hash::Hashing;
use crate::live::key_of_tuple;
use crate::record::{FlowKey, tcp_flags};

/// Packets or flows that are looked up together.
const TOGETHER: usize = 32;

/// The counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Distinct 4-tuples of TCP packets.
    pub tcp_connections: u64,
    /// Those of them in which a SYN without ACK was seen.
    pub with_syn: u64,
    /// Those of them in which a SYN without ACK and a FIN were seen.
    pub with_syn_and_fin: u64,
    /// The counter was full and connections beyond it were not counted: true counts are larger.
    pub lower_bound: bool,
}

/// Counts connections, up to a limit.
#[derive(Debug)]
pub struct ConnectionCounter {
    marked: ConnectionSet,
    /// Words waiting to be marked together.
    waiting: Vec<u128>,
    /// Conversations that do not fit into a word.
    wide: HashTable<Connection>,
    hashing: Hashing,
    limit: usize,
    counts: ConnectionCounts,
}

#[derive(Debug)]
struct Connection {
    key: FlowKey,
    syn: bool,
    fin: bool,
}

impl ConnectionCounter {
    /// A counter of at most `limit` connections; some 30 bytes each for IPv4 and 50 for IPv6.
    pub fn new(limit: usize) -> ConnectionCounter {
        ConnectionCounter {
            marked: ConnectionSet::new(),
            waiting: Vec::with_capacity(TOGETHER),
            wide: HashTable::new(),
            hashing: Hashing::default(),
            limit,
            counts: ConnectionCounts::default(),
        }
    }

    /// Takes a packet. Packets without a TCP header (later fragments too) do not count.
    pub fn observe(&mut self, packet: &IpPacket) {
        self.observe_brief(&Brief::of(packet));
    }

    /// Takes a packet in brief, as [`ConnectionCounter::observe`] takes a packet.
    pub fn observe_brief(&mut self, packet: &Brief) {
        const BOTH: u8 = tcp_flags::SYN | tcp_flags::ACK;
        if packet.body == Body::Segment {
            let syn = packet.flags & BOTH == tcp_flags::SYN;
            let fin = packet.flags & tcp_flags::FIN != 0;
            self.observe_tcp(&key_of_tuple(&packet.tuple), syn, fin);
        }
    }

    /// Takes a packet or a flow of a TCP connection: whether it had a SYN without ACK, and whether it
    /// had a FIN.
    pub fn observe_tcp(&mut self, key: &FlowKey, syn: bool, fin: bool) {
        let Some(word) = word_of(key) else { return self.observe_wide(key, syn, fin) };
        let mark = |is_seen: bool, mark: u128| if is_seen { mark } else { 0 };
        let word = word | mark(syn, OPENED) | mark(fin, ENDED);
        // Packets come in trains.
        if self.waiting.last() == Some(&word) {
            return;
        }
        self.waiting.push(word);
        if self.waiting.len() == TOGETHER {
            self.mark_waiting();
        }
    }

    /// The counts so far.
    pub fn counts(&mut self) -> ConnectionCounts {
        self.mark_waiting();
        self.counts
    }

    /// Marks the waiting words, after prefetching all of their places.
    fn mark_waiting(&mut self) {
        self.waiting.iter().for_each(|word| self.marked.prefetch(*word));
        for word in self.waiting.drain(..) {
            let may_grow = self.marked.len() + self.wide.len() < self.limit;
            let before = self.marked.mark(word, may_grow);
            let is_new = before == 0;
            if is_new && !may_grow {
                self.counts.lower_bound = true;
                continue;
            }
            let seen = |word: u128| (word & OPENED != 0, word & ENDED != 0);
            self.counts.note(is_new, seen(before), seen(before | word));
        }
    }

    fn observe_wide(&mut self, key: &FlowKey, syn: bool, fin: bool) {
        let key = (*key).min(key.reversed());
        let hash = self.hashing.of(&key);
        let Some(connection) = self.wide.find_mut(hash, |connection| connection.key == key) else {
            // The waiting words came before.
            self.mark_waiting();
            if self.marked.len() + self.wide.len() >= self.limit {
                self.counts.lower_bound = true;
                return;
            }
            let rehash = |connection: &Connection| self.hashing.of(&connection.key);
            self.wide.insert_unique(hash, Connection { key, syn, fin }, rehash);
            self.counts.note(true, (false, false), (syn, fin));
            return;
        };
        let before = (connection.syn, connection.fin);
        connection.syn |= syn;
        connection.fin |= fin;
        self.counts.note(false, before, (connection.syn, connection.fin));
    }
}

impl ConnectionCounts {
    /// Counts a connection by its marks (SYN, FIN) before and now.
    fn note(&mut self, is_new: bool, before: (bool, bool), now: (bool, bool)) {
        self.tcp_connections += u64::from(is_new);
        self.with_syn += u64::from(now.0 && !before.0);
        self.with_syn_and_fin += u64::from(now.0 && now.1 && !(before.0 && before.1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use core::net::SocketAddr;
    use nilometer_stat::Rng;
    use nilometer_wire::build::{self, Tcp};
    use nilometer_wire::link::LinkType;
    use nilometer_wire::packet::{Parsed, parse};

    fn ip(bytes: &[u8]) -> IpPacket {
        match parse(LinkType::RawIp, bytes, bytes.len() as u32) {
            Parsed::Ip(packet) => packet,
            other => panic!("{other:?}"),
        }
    }

    fn tcp(from: SocketAddr, to: SocketAddr, flags: u8) -> IpPacket {
        ip(&Tcp { flags, ..Tcp::new(from, to) }.ip_packet())
    }

    #[test]
    fn agrees_with_a_map_of_flags() {
        let mut counter = ConnectionCounter::new(10_000);
        let mut twin = BTreeMap::<[SocketAddr; 2], [bool; 2]>::new();
        let mut rng = Rng::new(9, 0, 0);
        for _ in 0..20_000 {
            let chance = rng.next_u64();
            let port = 1_000 + (chance >> 33) as u16 % 700;
            let last = 1 + (chance >> 50) as u8 % 3;
            let mut client: SocketAddr = ([198, 18, 0, 1], port).into();
            let mut server: SocketAddr = ([198, 18, 0, last], 1_080).into();
            if port.is_multiple_of(4) {
                client = ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], port).into();
                server = ([0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into()], 1_080).into();
            }
            let flags = [0x02, 0x12, 0x10, 0x10, 0x11, 0x04][(chance >> 45) as usize % 6];
            let (from, to) = if chance >> 63 == 0 { (client, server) } else { (server, client) };
            counter.observe(&tcp(from, to, flags));
            let marks = twin.entry([from.min(to), from.max(to)]).or_default();
            marks[0] |= flags == 0x02;
            marks[1] |= flags & 0x01 != 0;
        }
        let expected = ConnectionCounts {
            tcp_connections: twin.len() as u64,
            with_syn: twin.values().filter(|marks| marks[0]).count() as u64,
            with_syn_and_fin: twin.values().filter(|marks| marks[0] && marks[1]).count() as u64,
            lower_bound: false,
        };
        assert_eq!(counter.counts(), expected);
        assert!(expected.with_syn_and_fin < expected.with_syn);
        assert!(expected.with_syn < expected.tcp_connections);
    }

    #[test]
    fn beyond_its_limit_the_count_is_marked_as_a_lower_bound() {
        let mut counter = ConnectionCounter::new(2);
        let server: SocketAddr = ([198, 18, 0, 2], 80).into();
        for port in [1, 2, 2, 1] {
            counter.observe(&tcp(([198, 18, 0, 1], port).into(), server, 0x02));
        }
        assert!(!counter.counts().lower_bound);
        counter.observe(&tcp(([198, 18, 0, 1], 3).into(), server, 0x02));
        let counts = counter.counts();
        assert_eq!((counts.tcp_connections, counts.lower_bound), (2, true));
    }

    #[test]
    fn datagrams_and_later_fragments_are_no_connections() {
        let (from, to): (SocketAddr, SocketAddr) =
            (([198, 18, 0, 1], 1).into(), ([198, 18, 0, 2], 2).into());
        let mut counter = ConnectionCounter::new(10);
        counter.observe(&ip(&build::udp(from, to, b"x")));
        let mut fragment = Tcp::new(from, to).ip_packet();
        fragment[7] = 3;
        counter.observe(&ip(&fragment));
        assert_eq!(counter.counts(), ConnectionCounts::default());
    }
}
