//! When flows of each directed address pair began and ended.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use nilometer_flow::{FlowKey, FlowRecord};

use crate::sessions::PairLife;

/// A directed address pair. Pairs of IPv4 come first, each in the order of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pair {
    /// Source and destination, in one word.
    V4(u64),
    /// Any other.
    Wide(IpAddr, IpAddr),
}

impl Pair {
    /// Source and destination.
    pub fn ends(&self) -> (IpAddr, IpAddr) {
        match *self {
            Pair::V4(both) => {
                let v4 = |word: u64| IpAddr::V4(Ipv4Addr::from_bits(word as u32));
                (v4(both >> 32), v4(both))
            }
            Pair::Wide(source, destination) => (source, destination),
        }
    }

    fn of(key: &FlowKey) -> Pair {
        match (key.source, key.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Pair::V4(u64::from(source.to_bits()) << 32 | u64::from(destination.to_bits()))
            }
            (source, destination) => Pair::Wide(source, destination),
        }
    }
}

/// One flow of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    pub pair: Pair,
    pub start_ns: u64,
    pub end_ns: u64,
}

impl Span {
    /// That of a flow.
    pub fn of(flow: &FlowRecord) -> Span {
        Span { pair: Pair::of(&flow.key), start_ns: flow.start_ns, end_ns: flow.end_ns }
    }
}

/// Nanoseconds between consecutive starts of each pair, of spans in order.
pub(crate) fn gaps_ns(spans: &[Span]) -> impl Iterator<Item = u64> + '_ {
    let gap = |two: &[Span]| {
        let same = two[0].pair == two[1].pair;
        same.then(|| two[1].start_ns - two[0].start_ns)
    };
    spans.windows(2).filter_map(gap)
}

/// The lives of all pairs, of spans in order, in seconds since `origin_ns`: a pair silent for longer than
/// the bound is another session.
pub(crate) fn lives(spans: &[Span], origin_ns: u64, bound_s: f64) -> Vec<PairLife> {
    let mut lives = Vec::new();
    for spans in spans.chunk_by(|one, other| one.pair == other.pair) {
        let times = spans.iter().map(|span| (span.start_ns, span.end_ns));
        lives_of_pair(times, origin_ns, bound_s, &mut lives);
    }
    lives
}

/// The lives of one pair, of starts and ends in order.
pub(crate) fn lives_of_pair(
    mut times: impl Iterator<Item = (u64, u64)>,
    origin_ns: u64,
    bound_s: f64,
    lives: &mut Vec<PairLife>,
) {
    let bound_ns = (bound_s * 1e9) as u64;
    let seconds = |ns: u64| ns.saturating_sub(origin_ns) as f64 / 1e9;
    let life = |first, last| PairLife { first_start_s: seconds(first), last_end_s: seconds(last) };
    let Some((mut first, mut last)) = times.next() else { return };
    for (start_ns, end_ns) in times {
        if start_ns.saturating_sub(last) > bound_ns {
            lives.push(life(first, last));
            (first, last) = (start_ns, end_ns);
        }
        last = last.max(end_ns);
    }
    lives.push(life(first, last));
}
