//! Sessions: the connections of one ordered (client, server) address pair, until the pair makes no other for
//! longer than the bound. They are what a second sample of the traffic would have others of.

use core::net::IpAddr;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::connection::Connection;

/// One session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Client and server, as numbers of this set of packets.
    pub hosts: [u32; 2],
    /// The pair, likewise.
    pub pair: u32,
    /// Its connections: places in the list that it was made of, by their starts.
    pub connections: Vec<u32>,
    /// The server's port that most of its connections have: its service.
    pub service: u16,
    /// Bytes from the IP header on, both ways.
    pub octets: u64,
    /// When its first connection began, ns.
    pub start_ns: u64,
}

/// The sessions of connections that are in the order of their starts, by theirs.
pub fn sessions(connections: &[Connection], bound_ns: u64) -> Vec<Session> {
    let (mut hosts, mut pairs) = (BTreeMap::new(), BTreeMap::new());
    let mut made: Vec<Session> = Vec::new();
    for (at, connection) in (0..).zip(connections) {
        let ends = (connection.client.ip(), connection.server.ip());
        let number = |hosts: &mut BTreeMap<(bool, IpAddr), u32>, host| {
            let next = hosts.len() as u32;
            *hosts.entry(host).or_insert(next)
        };
        let numbers = [number(&mut hosts, (false, ends.0)), number(&mut hosts, (true, ends.1))];
        let next = pairs.len() as u32;
        let (pair, last, begun_ns) = pairs.entry(ends).or_insert((next, usize::MAX, 0));
        if *last == usize::MAX || connection.start_ns - *begun_ns > bound_ns {
            *last = made.len();
            made.push(Session {
                hosts: numbers,
                pair: *pair,
                connections: Vec::new(),
                service: 0,
                octets: 0,
                start_ns: connection.start_ns,
            });
        }
        *begun_ns = connection.start_ns;
        let session = &mut made[*last];
        session.connections.push(at);
        session.octets += connection.carried.iter().map(|side| side.octets).sum::<u64>();
    }
    for session in &mut made {
        session.service = service(session, connections);
    }
    made
}

fn service(session: &Session, connections: &[Connection]) -> u16 {
    let mut ports: Vec<u16> =
        session.connections.iter().map(|&at| connections[at as usize].server.port()).collect();
    ports.sort_unstable();
    let most = ports.chunk_by(|one, other| one == other).max_by_key(|same| same.len());
    most.map_or(0, |same| same[0])
}
