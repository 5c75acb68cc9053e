//! When each host was seen, and how many of its connections lack the packets of whole ones.

use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use hashbrown::HashTable;
use nilometer_flow::{FlowKey, FlowRecord};

/// The hosts of an input.
pub(super) struct Hosts {
    hosts: HashTable<Host>,
    /// A host silent for longer was away.
    threshold_ns: u64,
}

struct Host {
    address: IpAddr,
    /// From when to when flows of it were seen, one time after the other, ns since 1970.
    times: Vec<(u64, u64)>,
    /// Connections that it opened, and those that lack packets.
    connections: u64,
    lacking: u64,
}

impl Hosts {
    /// The hosts of `flows`, which are in the order of their starts.
    pub fn of(flows: &[FlowRecord], threshold_ns: u64) -> Hosts {
        let mut hosts = Hosts { hosts: HashTable::new(), threshold_ns };
        for flow in flows {
            hosts.see(flow.key.source, flow);
            hosts.see(flow.key.destination, flow);
        }
        hosts
    }

    fn see(&mut self, address: IpAddr, flow: &FlowRecord) {
        let threshold_ns = self.threshold_ns;
        let times = &mut self.host(address).times;
        match times.last_mut() {
            Some((_, last)) if flow.start_ns.saturating_sub(*last) <= threshold_ns => {
                *last = flow.end_ns.max(*last);
            }
            _ => times.push((flow.start_ns, flow.end_ns)),
        }
    }

    fn host(&mut self, address: IpAddr) -> &mut Host {
        let new = || Host { address, times: vec![], connections: 0, lacking: 0 };
        let same = |host: &Host| host.address == address;
        let entry = self.hosts.entry(hash(address), same, |host| hash(host.address));
        entry.or_insert_with(new).into_mut()
    }

    fn find(&self, address: IpAddr) -> Option<&Host> {
        self.hosts.find(hash(address), |host| host.address == address)
    }

    /// Counts a direction of a connection that `address` opened.
    pub fn count(&mut self, address: IpAddr, is_lacking: bool) {
        let host = self.host(address);
        host.connections += 1;
        host.lacking += u64::from(is_lacking);
    }

    /// Do most connections of this host lack packets?
    pub fn is_seen_in_part(&self, address: IpAddr) -> bool {
        self.find(address).is_some_and(|host| 2 * host.lacking > host.connections)
    }

    /// Until when this host, seen at `at_ns`, was seen.
    pub fn last_ns(&self, address: IpAddr, at_ns: u64) -> u64 {
        let last = |host: &Host| {
            let after = host.times.partition_point(|(first, _)| *first <= at_ns);
            after.checked_sub(1).map(|place| host.times[place].1)
        };
        self.find(address).and_then(last).unwrap_or(at_ns).max(at_ns)
    }
}

fn hash(address: IpAddr) -> u64 {
    let (source, destination) = (address, address);
    FlowKey { source, destination, source_port: 0, destination_port: 0, protocol: 0 }.hash_word()
}
