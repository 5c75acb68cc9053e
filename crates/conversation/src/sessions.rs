//! Sessions: the connections of one ordered (client, server) address pair, until the pair opens no other for
//! longer than the bound. They are the unit that a second sample of the traffic would draw anew.

use core::net::{IpAddr, SocketAddr};

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::connection::{Carried, Connection};

/// One session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Client and server, numbered within this set of packets.
    pub hosts: [u32; 2],
    /// The pair, numbered within this set of packets.
    pub pair: u32,
    /// Its connections: indices into the list given to [`sessions`], by their starts.
    pub connections: Vec<u32>,
    /// The server's port that most of its connections have: its service.
    pub service: u16,
    /// Bytes from the IP header on, both ways.
    pub octets: u64,
    /// When its first connection began, ns.
    pub start_ns: u64,
}

/// A connection in brief, without its steps, as sessions are made from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brief {
    /// The end that opened it.
    pub client: SocketAddr,
    /// The end that accepted it.
    pub server: SocketAddr,
    /// When its first packet passed, ns since 1970.
    pub start_ns: u64,
    /// IP packets, both ways.
    pub packets: u64,
    /// Bytes from the IP header on, both ways.
    pub octets: u64,
    /// Payload bytes, each once, both ways.
    pub payload_bytes: u64,
    /// Steps of both ends.
    pub steps: u32,
}

impl From<&Connection> for Brief {
    fn from(one: &Connection) -> Brief {
        let sum = |of: fn(&Carried) -> u64| one.carried.iter().map(of).sum();
        Brief {
            client: one.client,
            server: one.server,
            start_ns: one.start_ns,
            packets: sum(|side| side.packets),
            octets: sum(|side| side.octets),
            payload_bytes: sum(|side| side.payload_bytes),
            steps: one.steps.len() as u32,
        }
    }
}

/// The sessions of connections, which are in the order of their starts, as the sessions are too.
pub fn sessions(connections: &[Connection], bound_ns: u64) -> Vec<Session> {
    grouped(connections, |one| Brief::from(one), bound_ns)
}

/// As [`sessions`], for connections in brief.
pub fn sessions_of_briefs(briefs: &[Brief], bound_ns: u64) -> Vec<Session> {
    grouped(briefs, |brief| *brief, bound_ns)
}

fn grouped<T>(all: &[T], brief: impl Fn(&T) -> Brief, bound_ns: u64) -> Vec<Session> {
    let (mut hosts, mut pairs) = (BTreeMap::new(), BTreeMap::new());
    let mut made: Vec<Session> = Vec::new();
    for (at, connection) in (0..).zip(all.iter().map(&brief)) {
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
        session.octets += connection.octets;
    }
    for session in &mut made {
        let ports = session.connections.iter().map(|&at| brief(&all[at as usize]).server.port());
        session.service = most_frequent(ports.collect());
    }
    made
}

fn most_frequent(mut ports: Vec<u16>) -> u16 {
    ports.sort_unstable();
    let most = ports.chunk_by(|one, other| one == other).max_by_key(|same| same.len());
    most.map_or(0, |same| same[0])
}
