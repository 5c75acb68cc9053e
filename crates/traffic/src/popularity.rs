//! How popular each client and each server is: P(IPRange), as ranks.

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_flow::FlowRecord;

use crate::files::ends;
use crate::model::{RANKS_MAX, Ranks};

/// The most counts that are not merged yet.
const FRESH_MAX: usize = 1 << 18;

/// How often each address occurred.
#[derive(Default)]
struct Counts {
    /// In the order of the addresses, each once.
    sorted: Vec<(IpAddr, u64)>,
    fresh: Vec<(IpAddr, u64)>,
}

impl Counts {
    fn add(&mut self, more: impl Iterator<Item = (IpAddr, u64)>) {
        for one in more {
            self.fresh.push(one);
            if self.fresh.len() >= FRESH_MAX.max(self.sorted.len()) {
                self.settle();
            }
        }
    }

    fn settle(&mut self) {
        self.sorted.append(&mut self.fresh);
        // A stable sort finds the runs that are there.
        self.sorted.sort_by_key(|(address, _)| *address);
        self.sorted.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            if same {
                earlier.1 += later.1;
            }
            same
        });
    }

    fn settled(mut self) -> Vec<(IpAddr, u64)> {
        self.settle();
        self.sorted
    }

    fn ranks(self, keep: bool) -> Ranks {
        let mut sorted = self.settled();
        sorted.sort_by_key(|&(address, count)| (core::cmp::Reverse(count), address));
        sorted.truncate(RANKS_MAX);
        let addresses = if keep {
            sorted.iter().map(|(address, _)| address.to_string()).collect()
        } else {
            vec![]
        };
        Ranks { counts: sorted.into_iter().map(|(_, count)| count).collect(), addresses }
    }
}

/// Clients and servers of files, counted.
#[derive(Default)]
pub(crate) struct Popular {
    clients: Counts,
    servers: Counts,
}

impl Popular {
    /// The counts of files, each given as a client and a server.
    pub fn of(files: Vec<(IpAddr, IpAddr)>) -> Popular {
        let mut popular = Popular::default();
        popular.clients.add(files.iter().map(|(client, _)| (*client, 1)));
        popular.servers.add(files.iter().map(|(_, server)| (*server, 1)));
        popular.settle();
        popular
    }

    /// Adds each sampled flow whose beginning was seen or, without flags, each flow that was seen; N times each,
    /// for a sampling of 1 in N.
    pub fn add_sampled(&mut self, sampled: &[FlowRecord]) {
        let counts = |record: &&FlowRecord| record.has_start() || record.tcp_flags == 0;
        for record in sampled.iter().filter(counts) {
            let (client, server) = ends(record);
            let weight = record.sampling_interval.into();
            self.clients.add(core::iter::once((client, weight)));
            self.servers.add(core::iter::once((server, weight)));
        }
    }

    /// Adds the counts of other files.
    pub fn merge(&mut self, other: Popular) {
        self.clients.add(other.clients.settled().into_iter());
        self.servers.add(other.servers.settled().into_iter());
    }

    /// Merges all added counts.
    pub fn settle(&mut self) {
        self.clients.settle();
        self.servers.settle();
    }

    /// Does either side have more than `most` merged addresses?
    pub fn is_more_than(&self, most: usize) -> bool {
        self.clients.sorted.len().max(self.servers.sorted.len()) > most
    }
}

/// Ranks of both sides, and the share of flows that are IPv6.
pub(crate) struct Popularity {
    pub sources: Ranks,
    pub destinations: Ranks,
    pub ipv6_share: f64,
}

impl Popularity {
    /// The popularity of all files.
    pub fn of(mut popular: Popular, keep_addresses: bool) -> Popularity {
        popular.clients.settle();
        let clients = &popular.clients.sorted;
        let v6 = clients.iter().filter(|(client, _)| client.is_ipv6()).map(|(_, n)| n).sum::<u64>();
        let all = clients.iter().map(|(_, count)| count).sum::<u64>();
        Popularity {
            sources: popular.clients.ranks(keep_addresses),
            destinations: popular.servers.ranks(keep_addresses),
            ipv6_share: v6 as f64 / all as f64,
        }
    }
}
