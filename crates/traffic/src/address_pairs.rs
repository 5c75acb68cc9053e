//! Flows of directed address pairs: gaps between their starts, and lifetimes of the pairs.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use nilometer_flow::{FlowKey, FlowRecord};

use crate::sessions::PairLifetime;

/// A directed address pair. IPv4 pairs come first; pairs are ordered by their addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AddressPair {
    /// Source and destination, in one word.
    V4(u64),
    /// Any other.
    Wide(IpAddr, IpAddr),
}

impl AddressPair {
    /// Source and destination.
    pub fn ends(&self) -> (IpAddr, IpAddr) {
        match *self {
            AddressPair::V4(both) => {
                let v4 = |word: u64| IpAddr::V4(Ipv4Addr::from_bits(word as u32));
                (v4(both >> 32), v4(both))
            }
            AddressPair::Wide(source, destination) => (source, destination),
        }
    }

    fn of(key: &FlowKey) -> AddressPair {
        match (key.source, key.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => AddressPair::V4(
                u64::from(source.to_bits()) << 32 | u64::from(destination.to_bits()),
            ),
            (source, destination) => AddressPair::Wide(source, destination),
        }
    }
}

/// One flow of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PairFlow {
    pub pair: AddressPair,
    pub start_ns: u64,
    pub end_ns: u64,
}

impl PairFlow {
    /// The flow of a record.
    pub fn of(flow: &FlowRecord) -> PairFlow {
        PairFlow { pair: AddressPair::of(&flow.key), start_ns: flow.start_ns, end_ns: flow.end_ns }
    }
}

/// Nanoseconds between consecutive starts of each pair; `flows` must be in order.
pub(crate) fn gaps_ns(flows: &[PairFlow]) -> impl Iterator<Item = u64> + '_ {
    let gap = |two: &[PairFlow]| {
        let same = two[0].pair == two[1].pair;
        same.then(|| two[1].start_ns - two[0].start_ns)
    };
    flows.windows(2).filter_map(gap)
}

/// The lifetimes of all pairs, in seconds since `origin_ns`; `flows` must be in order. A pair that was silent for
/// longer than the bound begins another session.
pub(crate) fn lifetimes(flows: &[PairFlow], origin_ns: u64, bound_s: f64) -> Vec<PairLifetime> {
    let mut lifetimes = Vec::new();
    for of_pair in flows.chunk_by(|one, other| one.pair == other.pair) {
        let times = of_pair.iter().map(|flow| (flow.start_ns, flow.end_ns));
        lifetimes_of_pair(times, origin_ns, bound_s, &mut lifetimes);
    }
    lifetimes
}

/// The lifetimes of one pair, whose starts and ends must be in order.
pub(crate) fn lifetimes_of_pair(
    mut times: impl Iterator<Item = (u64, u64)>,
    origin_ns: u64,
    bound_s: f64,
    lifetimes: &mut Vec<PairLifetime>,
) {
    let bound_ns = (bound_s * 1e9) as u64;
    let seconds = |ns: u64| ns.saturating_sub(origin_ns) as f64 / 1e9;
    let life =
        |first, last| PairLifetime { first_start_s: seconds(first), last_end_s: seconds(last) };
    let Some((mut first, mut last)) = times.next() else { return };
    for (start_ns, end_ns) in times {
        if start_ns.saturating_sub(last) > bound_ns {
            lifetimes.push(life(first, last));
            (first, last) = (start_ns, end_ns);
        }
        last = last.max(end_ns);
    }
    lifetimes.push(life(first, last));
}
