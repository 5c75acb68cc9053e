//! When each host was seen, and whether most of its connections lack the packets of whole ones.
//!
//! A host is present from its first flow on until no flow was seen for longer than the threshold. These times are
//! the result of merging its flows, in any order.

use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_flow::FlowRecord;

/// The most rows that are not merged yet.
const FRESH_MAX: usize = 1 << 16;

/// The hosts of an input.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    v4: Table<u32>,
    v6: Table<[u8; 16]>,
}

/// Hosts of one family.
#[derive(Debug)]
struct Table<A> {
    times: Rows<Time<A>>,
    clients: Rows<Client<A>>,
}

/// The time span for which a host was present, ns since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Time<A> {
    host: A,
    first_ns: u64,
    last_ns: u64,
}

/// A host that opened connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Client<A> {
    host: A,
    /// The number of its connections that lack packets minus that of the others: if both directions are seen,
    /// and if not.
    lacking: [i64; 2],
}

impl<A> Default for Table<A> {
    fn default() -> Table<A> {
        Table { times: Rows::default(), clients: Rows::default() }
    }
}

/// Sorted rows, and others that are not merged yet.
#[derive(Debug)]
struct Rows<T> {
    sorted: Vec<T>,
    fresh: Vec<T>,
}

impl<T> Default for Rows<T> {
    fn default() -> Rows<T> {
        Rows { sorted: Vec::new(), fresh: Vec::new() }
    }
}

impl<T: Ord + Copy> Rows<T> {
    /// Adds a row. `join` merges the later of two rows into the earlier, if they belong together.
    fn push(&mut self, row: T, join: impl Fn(&mut T, &T) -> bool) {
        self.fresh.push(row);
        if self.fresh.len() >= FRESH_MAX.max(self.sorted.len() / 4) {
            self.settle(join);
        }
    }

    fn settle(&mut self, join: impl Fn(&mut T, &T) -> bool) {
        self.fresh.sort_unstable();
        self.fresh.dedup_by(|later, earlier| join(earlier, later));
        self.sorted.append(&mut self.fresh);
        // A stable sort finds the runs that are there.
        self.sorted.sort();
        self.sorted.dedup_by(|later, earlier| join(earlier, later));
        self.fresh = Vec::new();
    }
}

/// Does the later time continue the earlier one?
fn goes_on<A: PartialEq>(threshold_ns: u64) -> impl Fn(&mut Time<A>, &Time<A>) -> bool + Copy {
    move |earlier, later| {
        let is_one = earlier.host == later.host
            && later.first_ns.saturating_sub(earlier.last_ns) <= threshold_ns;
        if is_one {
            earlier.last_ns = earlier.last_ns.max(later.last_ns);
        }
        is_one
    }
}

fn adds_up<A: PartialEq>(earlier: &mut Client<A>, later: &Client<A>) -> bool {
    let is_one = earlier.host == later.host;
    if is_one {
        (0..2).for_each(|at| earlier.lacking[at] += later.lacking[at]);
    }
    is_one
}

impl<A: Ord + Copy> Table<A> {
    fn settle(&mut self, threshold_ns: u64) {
        self.times.settle(goes_on(threshold_ns));
        self.clients.settle(adds_up);
    }

    fn merge(&mut self, other: Table<A>, threshold_ns: u64) {
        let (times, clients) = (other.times, other.clients);
        for time in times.sorted.into_iter().chain(times.fresh) {
            self.times.push(time, goes_on(threshold_ns));
        }
        for client in clients.sorted.into_iter().chain(clients.fresh) {
            self.clients.push(client, adds_up);
        }
    }

    fn last_ns(&self, host: A, at_ns: u64) -> Option<u64> {
        let times = &self.times.sorted;
        let after = times.partition_point(|time| (time.host, time.first_ns) <= (host, at_ns));
        let predecessor = times.get(after.checked_sub(1)?)?;
        (predecessor.host == host).then_some(predecessor.last_ns)
    }

    fn lacking(&self, host: A, sees_both: bool) -> i64 {
        let clients = &self.clients.sorted;
        let at = clients.binary_search_by(|client| client.host.cmp(&host));
        at.map_or(0, |at| clients[at].lacking[usize::from(!sees_both)])
    }
}

impl Hosts {
    /// The hosts of `flows`; a silence of up to `threshold_ns` does not count as absence.
    pub fn of(flows: &[FlowRecord], threshold_ns: u64) -> Hosts {
        let mut hosts = Hosts::default();
        for flow in flows {
            hosts.see(flow.key.source, flow, threshold_ns);
            hosts.see(flow.key.destination, flow, threshold_ns);
        }
        hosts
    }

    fn see(&mut self, address: IpAddr, flow: &FlowRecord, threshold_ns: u64) {
        let (first_ns, last_ns) = (flow.start_ns, flow.end_ns);
        match address {
            IpAddr::V4(v4) => {
                let time = Time { host: v4.to_bits(), first_ns, last_ns };
                self.v4.times.push(time, goes_on(threshold_ns));
            }
            IpAddr::V6(v6) => {
                let time = Time { host: v6.octets(), first_ns, last_ns };
                self.v6.times.push(time, goes_on(threshold_ns));
            }
        }
    }

    /// Counts a direction of a connection that `address` opened, and whether it lacks packets.
    pub fn count(&mut self, address: IpAddr, is_lacking: [bool; 2]) {
        let lacking = is_lacking.map(|is_lacking| if is_lacking { 1 } else { -1 });
        match address {
            IpAddr::V4(v4) => {
                self.v4.clients.push(Client { host: v4.to_bits(), lacking }, adds_up);
            }
            IpAddr::V6(v6) => {
                self.v6.clients.push(Client { host: v6.octets(), lacking }, adds_up);
            }
        }
    }

    /// Merges everything that was noted.
    pub fn settle(&mut self, threshold_ns: u64) {
        self.v4.settle(threshold_ns);
        self.v6.settle(threshold_ns);
    }

    /// Adds the hosts of other flows.
    pub fn merge(&mut self, other: Hosts, threshold_ns: u64) {
        self.v4.merge(other.v4, threshold_ns);
        self.v6.merge(other.v6, threshold_ns);
    }

    /// Are there more than `most` merged times?
    pub fn is_more_than(&self, most: usize) -> bool {
        self.v4.times.sorted.len() + self.v6.times.sorted.len() > most
    }

    /// Do most connections of this host lack packets?
    pub fn is_seen_in_part(&self, address: IpAddr, sees_both: bool) -> bool {
        let lacking = match address {
            IpAddr::V4(v4) => self.v4.lacking(v4.to_bits(), sees_both),
            IpAddr::V6(v6) => self.v6.lacking(v6.octets(), sees_both),
        };
        lacking > 0
    }

    /// The end of the presence of this host that includes `at_ns`.
    pub fn last_ns(&self, address: IpAddr, at_ns: u64) -> u64 {
        let last_ns = match address {
            IpAddr::V4(v4) => self.v4.last_ns(v4.to_bits(), at_ns),
            IpAddr::V6(v6) => self.v6.last_ns(v6.octets(), at_ns),
        };
        last_ns.unwrap_or(at_ns).max(at_ns)
    }
}
