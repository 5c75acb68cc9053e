//! Counts of lags between sampled connections of each pair of hosts.
//!
//! Two point processes are counted. *SYNs* of one direction: one of each connection, sampled with the chance
//! 1/N, at the connection's start. *Connections* with any sampled packet of either direction: there are many
//! more of them, but each is only known by its first sampled packet, which comes after its start by a *delay*.
//! Delays are measured on connections with a sampled SYN and another sampled packet: whether the SYN is sampled
//! is independent of the other packets, so that their delays are those of any connection.
//!
//! Each point is followed by the next within the bound, after a lag, or by none as far as it could be followed, to
//! the bound or to the input's end. Lags are counted by bins, so that memory does not grow with the input.
//! Everything is counted once without weights, and [`REPLICATES`] times with weights that are drawn for each pair
//! of hosts: a Poisson bootstrap, which gives the uncertainty of a law that follows from the counts, although lags
//! of one pair are not independent. The weights of a pair are drawn from its addresses, so that nothing depends on
//! the order of counting.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_stat::Rng;

use super::intraclass::Intraclass;
use super::renewal::{BINS, Bins};
use crate::pending_pairs::FlowSummary;
use crate::random_streams::THINNED;

/// Replicates of the bootstrap.
pub(crate) const REPLICATES: usize = 32;
/// The greatest weight, drawn by a Poisson law of mean 1.
const WEIGHT_MAX: u64 = 8;
/// Records of one pair of sockets are of one connection if they are no farther apart than this, ns: ports are not
/// reused sooner (TIME-WAIT, RFC 9293, section 3.4.2).
const APART_NS: u64 = 60_000_000_000;

/// Counts of lags of both point processes, of delays, and of SYNs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    cells: Vec<u64>,
}

/// Lags of one point process: how many points were followed by another, by the bin of the lag, and how many were
/// censored, by the bin up to which they were observed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LagCounts<'a> {
    pub followed: &'a [u64],
    pub censored: &'a [u64],
}

impl LagCounts<'_> {
    /// Number of lags.
    pub fn lags(&self) -> u64 {
        self.followed.iter().sum()
    }

    /// Number of points.
    pub fn points(&self) -> u64 {
        self.lags() + self.censored.iter().sum::<u64>()
    }
}

/// The first cells of SYNs, of connections, of delays and of spans, and the cells of SYNs of clients and of
/// servers.
const SYNS: usize = 0;
const CONNECTIONS: usize = 2 * BINS;
const DELAYS: usize = 4 * BINS;
const SPANS: usize = 5 * BINS;
const ASKED: usize = 6 * BINS;
const ANSWERED: usize = 6 * BINS + 1;
const CELLS: usize = 6 * BINS + 2;

impl Counts {
    fn new() -> Counts {
        Counts { cells: vec![0; CELLS] }
    }

    fn lag_counts(&self, from: usize) -> LagCounts<'_> {
        LagCounts {
            followed: &self.cells[from..from + BINS],
            censored: &self.cells[from + BINS..from + 2 * BINS],
        }
    }

    /// Sampled SYNs of each direction.
    pub fn syns(&self) -> LagCounts<'_> {
        self.lag_counts(SYNS)
    }

    /// Connections with any sampled packet.
    pub fn connections(&self) -> LagCounts<'_> {
        self.lag_counts(CONNECTIONS)
    }

    /// Delays, by their bins.
    pub fn delays(&self) -> &[u64] {
        &self.cells[DELAYS..DELAYS + BINS]
    }

    /// Spans between the first two sampled packets of connections whose SYN was not sampled, by their bins.
    pub fn spans(&self) -> &[u64] {
        &self.cells[SPANS..SPANS + BINS]
    }

    /// Sampled SYNs of connections; the mean of both directions if both are exported.
    pub fn syns_of_connections(&self) -> f64 {
        let (requests, answered) = (self.cells[ASKED] as f64, self.cells[ANSWERED] as f64);
        if requests + answered > 0.0 {
            (requests * requests + answered * answered) / (requests + answered)
        } else {
            0.0
        }
    }

    fn add(&mut self, more: &Counts, times: u64) {
        self.cells.iter_mut().zip(&more.cells).for_each(|(sum, more)| *sum += times * more);
    }
}

/// The evidence of sampled flows of one sampling interval on gaps.
#[derive(Clone, Debug)]
pub(crate) struct Lags {
    pub bins: Bins,
    pub plain: Counts,
    pub replicates: Vec<Counts>,
    /// How much pairs differ.
    pub intraclass: Intraclass,
}

/// A sampled flow, as one of its pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Point {
    pub flow: FlowSummary,
    /// From the lower address to the higher.
    pub is_up: bool,
}

/// A connection with a sampled packet.
#[derive(Clone, Copy, Debug)]
struct SampledConnection {
    start_ns: u64,
    last_ns: u64,
    /// Whether its first sampled packet is the first of its direction.
    opens: bool,
    /// The time of its second sampled packet, as far as is known.
    second_packet_ns: Option<u64>,
}

impl Lags {
    /// Without lags yet, for gaps up to a bound.
    pub fn new(bound_s: f64) -> Lags {
        Lags {
            bins: Bins::new(bound_s),
            plain: Counts::new(),
            replicates: vec![Counts::new(); REPLICATES],
            intraclass: Intraclass::default(),
        }
    }

    /// Takes all points of a pair of hosts, in their order; the input ends at `end_ns`.
    pub fn add_pair(&mut self, ends: (IpAddr, IpAddr), points: &[Point], end_ns: u64) {
        let mut counts = Counts::new();
        for is_up in [true, false] {
            let opening = points.iter().filter(|point| point.is_up == is_up && point.flow.opens);
            let starts: Vec<u64> = opening.map(|point| point.flow.start_ns).collect();
            self.count(&mut counts, SYNS, &starts, end_ns);
        }
        for point in points.iter().filter(|point| point.flow.opens) {
            counts.cells[if point.flow.asks { ASKED } else { ANSWERED }] += 1;
        }
        let seen = sampled_connections(points);
        let starts: Vec<u64> = seen.iter().map(|seen| seen.start_ns).collect();
        self.count(&mut counts, CONNECTIONS, &starts, end_ns);
        for SampledConnection { start_ns, second_packet_ns, opens, .. } in seen {
            let Some(second_packet_ns) = second_packet_ns else { continue };
            let later_s = (second_packet_ns - start_ns) as f64 / 1e9;
            // Delays beyond the bound count as well.
            if opens || later_s <= self.bins.bound_s() {
                counts.cells[if opens { DELAYS } else { SPANS } + self.bins.at(later_s)] += 1;
            }
        }
        self.intraclass.add(counts.connections().followed);
        self.plain.add(&counts, 1);
        for (replicate, weight) in self.replicates.iter_mut().zip(weights(ends)) {
            replicate.add(&counts, weight);
        }
    }

    /// Adds the counts of other pairs.
    pub fn merge(&mut self, more: &Lags) {
        self.plain.add(&more.plain, 1);
        let both = self.replicates.iter_mut().zip(&more.replicates);
        both.for_each(|(sum, more)| sum.add(more, 1));
        self.intraclass.merge(&more.intraclass);
    }

    fn count(&self, counts: &mut Counts, first_cell: usize, starts_ns: &[u64], end_ns: u64) {
        let bound_s = self.bins.bound_s();
        let seconds = |from_ns: u64, to_ns: u64| to_ns.saturating_sub(from_ns) as f64 / 1e9;
        for (at, &start_ns) in starts_ns.iter().enumerate() {
            let lag_s = starts_ns.get(at + 1).map(|next_ns| seconds(start_ns, *next_ns));
            let cell = match lag_s.filter(|lag_s| *lag_s <= bound_s) {
                Some(lag_s) => first_cell + self.bins.at(lag_s),
                None => first_cell + BINS + self.bins.at(seconds(start_ns, end_ns).min(bound_s)),
            };
            counts.cells[cell] += 1;
        }
    }
}

/// The connections of points in their order, each at its first point.
fn sampled_connections(points: &[Point]) -> Vec<SampledConnection> {
    let mut seen: Vec<SampledConnection> = Vec::new();
    let mut last: BTreeMap<u16, usize> = BTreeMap::new();
    for Point { flow, .. } in points {
        let second_packet_ns = flow.second_packet_ns();
        if let Some(&at) = last.get(&flow.ports) {
            let earlier = &mut seen[at];
            if flow.start_ns <= earlier.last_ns.saturating_add(APART_NS) {
                let first_ns = earlier.second_packet_ns.unwrap_or(u64::MAX);
                earlier.second_packet_ns = Some(first_ns.min(flow.start_ns));
                earlier.last_ns = earlier.last_ns.max(flow.end_ns);
                continue;
            }
        }
        last.insert(flow.ports, seen.len());
        let FlowSummary { start_ns, end_ns, opens, .. } = *flow;
        seen.push(SampledConnection { start_ns, last_ns: end_ns, opens, second_packet_ns });
    }
    seen
}

/// The weights of a pair of hosts in the replicates, independent of the order of the two.
fn weights((one, other): (IpAddr, IpAddr)) -> impl Iterator<Item = u64> {
    let word = |address: IpAddr| match address {
        IpAddr::V4(v4) => u64::from(v4.to_bits()),
        IpAddr::V6(v6) => (v6.to_bits() >> 64) as u64 ^ (v6.to_bits() as u64).rotate_left(17),
    };
    let (low, high) = (word(one).min(word(other)), word(one).max(word(other)));
    let mut rng = Rng::new(low.rotate_left(32) ^ high, THINNED, 0);
    (0..REPLICATES).map(move |_| poisson(rng.unit()))
}

/// The quantile `share` of a Poisson law of mean 1.
fn poisson(share: f64) -> u64 {
    let (mut number, mut part) = (0, libm::exp(-1.0));
    let mut below = part;
    while below <= share && number < WEIGHT_MAX {
        number += 1;
        part /= number as f64;
        below += part;
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    const SECOND_NS: u64 = 1_000_000_000;

    fn ends(last: u8) -> (IpAddr, IpAddr) {
        (Ipv4Addr::new(198, 18, 0, 1).into(), Ipv4Addr::new(198, 19, 0, last).into())
    }

    /// A record that starts and ends at these seconds.
    fn point(
        ports: u16,
        is_up: bool,
        opens: bool,
        (start, end): (u64, u64),
        packets: u32,
    ) -> Point {
        let (start_ns, end_ns) = (start * SECOND_NS, end * SECOND_NS);
        let (interval, is_flagged, asks) = (100, true, is_up);
        let flow =
            FlowSummary { start_ns, end_ns, interval, opens, is_flagged, asks, ports, packets };
        Point { flow, is_up }
    }

    fn points() -> Vec<Point> {
        vec![
            point(1, true, true, (10, 10), 1),
            point(1, false, false, (13, 13), 1),
            point(2, false, true, (20, 28), 3),
            point(3, true, false, (30, 36), 2),
            point(4, true, true, (200, 200), 1),
            // The ports of the first connection again, too late to be the same.
            point(1, true, true, (210, 210), 1),
        ]
    }

    #[test]
    fn lags_delays_and_spans_are_those_of_connections() {
        let mut lags = Lags::new(60.0);
        lags.add_pair(ends(1), &points(), 215 * SECOND_NS);
        let (bins, counts) = (&lags.bins, &lags.plain);
        let at = |cells: &[u64]| -> Vec<usize> {
            (0..BINS).flat_map(|at| vec![at; cells[at] as usize]).collect()
        };
        let bin = |seconds: f64| bins.at(seconds);
        let connections = counts.connections();
        assert_eq!(at(connections.followed), [bin(10.0), bin(10.0), bin(10.0)]);
        assert_eq!(at(connections.censored), [bin(5.0), bin(60.0)]);
        // For each direction by itself: 10, 200 and 210 up, 20 down.
        assert_eq!(at(counts.syns().followed), [bin(10.0)]);
        assert_eq!(at(counts.syns().censored), [bin(5.0), bin(60.0), bin(60.0)]);
        assert_eq!(at(counts.delays()), [bin(3.0), bin(4.0)]);
        assert_eq!(at(counts.spans()), [bin(6.0)]);
        // Three SYNs of clients and one of a server.
        assert_eq!(counts.syns_of_connections(), 2.5);
    }

    #[test]
    fn replicates_have_the_weights_of_their_pair_in_any_order() {
        let (mut one, mut other) = (Lags::new(60.0), Lags::new(60.0));
        for last in 0..50 {
            one.add_pair(ends(last), &points(), 215 * SECOND_NS);
            let mut part = Lags::new(60.0);
            let (client, server) = ends(49 - last);
            part.add_pair((server, client), &points(), 215 * SECOND_NS);
            other.merge(&part);
        }
        assert_eq!((&one.plain, &one.replicates), (&other.plain, &other.replicates));
        let lags = |counts: &Counts| counts.connections().lags() as f64;
        let mean = one.replicates.iter().map(lags).sum::<f64>() / REPLICATES as f64;
        assert!((mean / lags(&one.plain) - 1.0).abs() < 0.1, "{mean}");
    }

    /// The mean and the variance of a Poisson law of mean 1.
    #[test]
    fn weights_are_of_a_poisson_law() {
        let draws: Vec<f64> =
            (0..100_000).map(|at| poisson((f64::from(at) + 0.5) / 1e5) as f64).collect();
        let mean = draws.iter().sum::<f64>() / 1e5;
        let variance = draws.iter().map(|draw| (draw - 1.0) * (draw - 1.0)).sum::<f64>() / 1e5;
        assert!((mean - 1.0).abs() < 1e-3 && (variance - 1.0).abs() < 1e-2, "{mean}, {variance}");
    }
}
