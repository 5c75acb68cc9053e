//! Round-trip times of address pairs.
//!
//! If a capture shows the openings of connections, each is a measurement, and a pair has the median of its own. If
//! it shows none, time stamps are used, for connections that carried data in both directions. Flow records show
//! less: the second flow of a connection begins when the answer passes the exporter, which measures only the far
//! part of the path. That is a lower bound, and is reported as one; an exporter whose stamps are in milliseconds
//! cannot even show a short one.

use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_flow::handshake::RoundTrip;
use nilometer_stat::{Empirical, Tally};
use serde::{Deserialize, Serialize};

/// Knots of the law.
const KNOTS: usize = 512;
/// The most distinct times.
pub(crate) const PAIRS_APART_MAX: usize = 1 << 16;

/// How round-trip times were measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// In packets, from SYN to SYN+ACK to ACK.
    Handshakes,
    /// In packets, from data to the echo of its TCP timestamp; the minimum of each half of the path.
    TimeStamps,
    /// From the start of one flow of a connection to the start of the other: a lower bound.
    FlowStarts,
}

/// P(RTT) over address pairs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RoundTrips {
    /// How they were measured.
    pub source: Source,
    /// Connections with a measured round-trip time.
    pub connections: u64,
    /// Seconds; one value per address pair, the median of its connections.
    pub law: Empirical,
}

impl RoundTrips {
    /// The law of round trips measured from packets: from openings or, if there are none, from time stamps;
    /// `None` without either.
    pub fn of_packets(openings: &[RoundTrip], echoes: &[RoundTrip]) -> Option<RoundTrips> {
        let (source, measured) = match openings {
            [] => (Source::TimeStamps, echoes),
            _ => (Source::Handshakes, openings),
        };
        let each = measured.iter().map(|one| ((one.client, one.server), one.nanos)).collect();
        let medians = Tally::of(medians_ns(each), PAIRS_APART_MAX);
        RoundTrips::of(source, measured.len() as u64, medians)
    }

    /// The lower bounds from starts of flows: of `connections` connections, with a median for each pair.
    pub(crate) fn of_flow_starts(connections: u64, medians_ns: Tally) -> Option<RoundTrips> {
        RoundTrips::of(Source::FlowStarts, connections, medians_ns)
    }

    fn of(source: Source, connections: u64, medians_ns: Tally) -> Option<RoundTrips> {
        let law = Empirical::step_from_counts(medians_ns.in_units_of(1e9), KNOTS).ok()?;
        Some(RoundTrips { source, connections, law })
    }
}

/// The median time of each address pair, ns, in the order of the pairs.
pub(crate) fn medians_ns(mut measured: Vec<((IpAddr, IpAddr), u64)>) -> Vec<u64> {
    measured.sort_unstable();
    let of_a_pair = measured.chunk_by(|one, other| one.0 == other.0);
    of_a_pair.map(|times| times[(times.len() - 1) / 2].1).collect()
}

/// The median of times in rising order, of which there must be at least one.
pub(crate) fn median_ns(sorted: &[u64]) -> u64 {
    sorted[(sorted.len() - 1) / 2]
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    fn one(server: u8, millis: u64) -> RoundTrip {
        RoundTrip {
            client: Ipv4Addr::new(198, 18, 0, 1).into(),
            server: Ipv4Addr::new(198, 19, 0, server).into(),
            nanos: millis * 1_000_000,
        }
    }

    #[test]
    fn a_pair_has_the_median_of_its_connections_however_many_they_are() {
        let measured = [one(1, 10), one(1, 500), one(1, 20), one(2, 40)];
        let found = RoundTrips::of_packets(&measured, &[one(1, 900)]).expect("a law");
        assert_eq!((found.source, found.connections), (Source::Handshakes, 4));
        assert_eq!(found.law.samples(), 2);
        assert_eq!((found.law.min(), found.law.max()), (0.02, 0.04));
        let found = RoundTrips::of_packets(&[], &measured[1..]).expect("a law");
        assert_eq!((found.source, found.connections), (Source::TimeStamps, 3));
        assert_eq!(RoundTrips::of_packets(&[], &[]), None);
    }
}
