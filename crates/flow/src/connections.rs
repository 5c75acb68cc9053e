//! How many TCP connections a capture holds.
//!
//! A connection here is a distinct 4-tuple of addresses and ports, both directions together, of the
//! innermost IP header, however often it was opened: the count that anyone can repeat with another
//! tool. Flow records are something else (one-way, and split by timers).

use hashbrown::HashTable;
use nilometer_wire::packet::{IpPacket, Transport};

use crate::hash;
use crate::live::key_of;
use crate::record::{FlowKey, tcp_flags};

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
    seen: HashTable<Connection>,
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
    /// A counter of at most `limit` connections, some 50 bytes each.
    pub fn new(limit: usize) -> ConnectionCounter {
        ConnectionCounter { seen: HashTable::new(), limit, counts: ConnectionCounts::default() }
    }

    /// Takes a packet. Packets without a TCP header (later fragments too) do not count.
    pub fn observe(&mut self, packet: &IpPacket) {
        let Transport::Tcp(segment) = packet.transport else { return };
        let key = key_of(packet);
        let key = key.min(key.reversed());
        let hash = hash::of(&key);
        let syn = segment.flags & (tcp_flags::SYN | tcp_flags::ACK) == tcp_flags::SYN;
        let fin = segment.flags & tcp_flags::FIN != 0;
        let Some(connection) = self.seen.find_mut(hash, |connection| connection.key == key) else {
            if self.seen.len() >= self.limit {
                self.counts.lower_bound = true;
                return;
            }
            let rehash = |connection: &Connection| hash::of(&connection.key);
            self.seen.insert_unique(hash, Connection { key, syn, fin }, rehash);
            self.counts.tcp_connections += 1;
            self.counts.with_syn += u64::from(syn);
            self.counts.with_syn_and_fin += u64::from(syn && fin);
            return;
        };
        let was_whole = connection.syn && connection.fin;
        self.counts.with_syn += u64::from(syn && !connection.syn);
        connection.syn |= syn;
        connection.fin |= fin;
        self.counts.with_syn_and_fin += u64::from(connection.syn && connection.fin && !was_whole);
    }

    /// The counts so far.
    pub fn counts(&self) -> ConnectionCounts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use core::net::SocketAddr;
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
        let mut chance = 9u64;
        for _ in 0..20_000 {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let port = 1_000 + (chance >> 33) as u16 % 700;
            let client: SocketAddr = ([198, 18, 0, 1], port).into();
            let server: SocketAddr = ([198, 18, 0, 1 + (chance >> 50) as u8 % 3], 1_080).into();
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
    fn beyond_its_limit_it_says_so() {
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
