//! The original's round trips as paths of a lab: on both sides of the device, as on both sides of the meter that saw the
//! original.
//!
//! ```text
//!   clients ── path ──▶ meter │ device │ meter ── rear path ──▶ servers
//!             half of what the client's          half of what the server's
//!             handshakes took, each way          took, each way
//! ```
//!
//! Each pair of hosts has its own round trip, the least that one of its handshakes, or an answer after it, took.
//! Pairs without an observed handshake, and those microseconds apart, have none; a side without any has no box.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Result, anyhow, ensure};
use nilometer_conversation::Side;
use nilometer_traffic::Plan;
use nilometer_traffic::pool::Prefix;
use nilometer_traffic::script::{RoundTrip, WAY_MIN_NS};
use nilometer_traffic::vectors::Vectors;
use serde::{Deserialize, Serialize};

use crate::device::paths::{PAIRS_MAX, Pair, Paths};
use crate::device::spec::FaultSpec;

/// The longest one-way delay that is plausible for a connection, ns.
const WAY_MAX_NS: u64 = 5_000_000_000;

/// When the original's round-trip times are played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum PlayRoundTrips {
    /// If handshakes in the part show any, no other path is configured and the lab owns both sides of the device.
    #[default]
    Auto,
    /// As `auto`, but a run that cannot play them is refused.
    Always,
    /// Never: hosts are microseconds apart.
    Never,
}

/// The round trips that a run plays, by pair of hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoundTripsOutcome {
    /// Pairs of hosts in the plan.
    pub pairs: u64,
    /// Pairs with a path of their own on the clients' side, and on the servers'; those beyond 65,536 have none.
    pub client_paths: u64,
    /// Likewise.
    pub server_paths: u64,
    /// Their median from the meter to the client and back, and to the server and back; ns.
    pub client_p50_ns: u64,
    /// Likewise.
    pub server_p50_ns: u64,
}

/// Refuses another path, and a side that is not the lab's.
///
/// # Errors
/// One line that names the option to leave out.
pub(super) fn check(has_path: bool, is_external: bool) -> Result<()> {
    ensure!(
        !has_path,
        "--round-trips (round_trips) and --path (path) are both paths: leave one of them out"
    );
    ensure!(
        !is_external,
        "--round-trips (round_trips) needs a path behind the device, which the device external does not have: leave round \
         trips out, or choose another device"
    );
    Ok(())
}

/// The paths on both sides of the device.
#[derive(Clone, Debug)]
pub(super) struct PlayedRoundTrips {
    pub paths: [Paths; 2],
    pub outcome: RoundTripsOutcome,
}

impl PlayedRoundTrips {
    /// Those of the pairs of a plan's connections.
    ///
    /// # Errors
    /// None but a mistake here: each pair is one of hosts, and each delay one that a box can have.
    pub fn of(plan: &Plan, vectors: &Vectors) -> Result<PlayedRoundTrips> {
        let mut pairs: BTreeMap<(IpAddr, IpAddr), RoundTrip> = BTreeMap::new();
        for one in &plan.connections {
            let Some(session) = vectors.sessions.get(one.session as usize) else { continue };
            let trip = session.round_trip();
            // (Where a pool is too small, two pairs of the original are one of the lab.)
            let least = pairs.entry((one.source, one.destination)).or_insert(trip);
            least.client_ns = least.client_ns.min(trip.client_ns);
            least.server_ns = least.server_ns.min(trip.server_ns);
        }
        let side = |side| paths(&pairs, side);
        let (client, server) = (side(Side::Client)?, side(Side::Server)?);
        let outcome = RoundTripsOutcome {
            pairs: pairs.len() as u64,
            client_paths: client.0.pair.len() as u64,
            server_paths: server.0.pair.len() as u64,
            client_p50_ns: client.1,
            server_p50_ns: server.1,
        };
        Ok(PlayedRoundTrips { paths: [client.0, server.0], outcome })
    }
}

/// The paths of one side, and the median of their round trips, ns.
fn paths(pairs: &BTreeMap<(IpAddr, IpAddr), RoundTrip>, side: Side) -> Result<(Paths, u64)> {
    let mut paths = Paths::default();
    let mut ways = Vec::new();
    for (&(client, server), trip) in pairs {
        let way_ns = trip.one_way_ns(side).min(WAY_MAX_NS);
        if way_ns < WAY_MIN_NS || paths.pair.len() >= PAIRS_MAX {
            continue;
        }
        let faults: FaultSpec =
            format!("delay={way_ns}ns").parse().map_err(|why| anyhow!("{why}"))?;
        let host = |address: IpAddr| Prefix::new(address, if address.is_ipv4() { 32 } else { 128 });
        let hosts = [client, server].map(|address| host(address).map(Some));
        let [client, server] = hosts;
        paths.pair.push(Pair { client: client?, server: server?, faults });
        ways.push(way_ns);
    }
    ways.sort_unstable();
    let median = ways.get(ways.len() / 2).copied().unwrap_or(0);
    Ok((paths, 2 * median))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_wire::Span;

    fn pair(host: u8) -> (IpAddr, IpAddr) {
        (IpAddr::from([198, 18, 0, host]), IpAddr::from([198, 19, 0, 1]))
    }

    #[test]
    fn each_pair_has_half_of_its_round_trip_each_way() {
        let trip = |client_ns, server_ns| RoundTrip { client_ns, server_ns };
        let pairs = BTreeMap::from([
            (pair(1), trip(3_000, 24_000_000)),
            (pair(2), trip(900_000, 280_000_001)),
            (pair(3), trip(0, 20_000)),
        ]);
        let (clients, p50) = paths(&pairs, Side::Client).expect("paths");
        assert_eq!((clients.pair.len(), p50), (1, 900_000), "microseconds are not a path");
        let (servers, p50) = paths(&pairs, Side::Server).expect("paths");
        assert_eq!((servers.pair.len(), p50), (2, 280_000_000));
        assert_eq!(servers.longest_stay(), Span::from_nanos(140_000_000 + 1_000_000));
        for (faults, way_ns) in
            [(&servers.pair[0].faults, 12_000_000), (&servers.pair[1].faults, 140_000_000)]
        {
            assert!(
                faults.ways.iter().all(|way| way.delay == Span::from_nanos(way_ns)),
                "{faults}"
            );
        }
        assert_eq!(servers.pair[0].client.and_then(|client| client.only_host()), Some(pair(1).0));
    }
}
