//! The model of a joint table of sessions: laws, popularities and volumes derived from connection vectors.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use nilometer_conversation::Side;
use nilometer_stat::Empirical;

use crate::model::{
    Coverage, FORMAT, Generation, LoadDriver, Origin, Ranks, Share, TrafficModel, VECTOR_INTERVALS,
};
use crate::pool::Prefix;
use crate::vector_plan;
use crate::vectors::{SessionVector, Vectors};

/// Knots of a law's table.
const KNOTS: usize = 2_048;

/// Options that the table does not contain.
#[derive(Clone, Debug)]
pub struct VectorModelOptions {
    /// Tool and version.
    pub tool: String,
    /// Where the packets came from.
    pub origin: Origin,
    /// The bound that ends a session, seconds.
    pub bound_s: f64,
    /// Client and server pools.
    pub pools: [Vec<Prefix>; 2],
    /// Packets of the part that are not TCP: bytes from the IP header on.
    pub other_octets: u64,
}

/// The model of a table: its laws of sizes and gaps, its popularities, and the volumes of its part.
pub fn model(vectors: Vectors, options: VectorModelOptions) -> TrafficModel {
    let all = || vectors.connections().map(|(_, one)| one);
    let both = || all().flat_map(|one| Side::BOTH.map(|side| one.bytes(side)));
    let sizes: Vec<f64> = both().filter(|bytes| *bytes > 0).map(|bytes| bytes as f64).collect();
    let gaps: Vec<f64> = vectors.sessions.iter().flat_map(gaps).collect();
    let octets: u64 = all().map(|one| one.octets).sum();
    let flows = 2 * all().count() as u64;
    let mut coverage = Coverage {
        flows,
        octets: octets + options.other_octets,
        flows_in_model: flows,
        octets_in_model: octets,
        payload_in_model: both().sum(),
        flows_in_connections: flows,
        octets_in_connections: octets,
        ..Coverage::default()
    };
    coverage.left_out.not_tcp = Share { flows: 0, octets: options.other_octets };
    let family = vectors.sessions.iter().filter(|session| session.ipv6).count();
    let ipv6_share = family as f64 / vectors.sessions.len().max(1) as f64;
    let [clients, servers] = options.pools;
    let mut model = TrafficModel {
        format: FORMAT.to_string(),
        tool: options.tool,
        origin: options.origin,
        flow_count: Some(flows),
        mean_length_packets: None,
        sampling_interval: Some(1),
        flow_lengths: None,
        hurst: None,
        file_size: law(sizes, 1.0),
        inter_connection: law(gaps, options.bound_s),
        sampled_gaps: None,
        sources: ranks(&vectors, |session| session.source),
        destinations: ranks(&vectors, |session| session.destination),
        intervals: vector_plan::intervals(&vectors, VECTOR_INTERVALS),
        connection_law: None,
        round_trips: None,
        udp: Vec::new(),
        unmodelled_bytes_share: None,
        unmodelled_flows_share: None,
        coverage,
        generation: Generation {
            time_divisor: 1.0,
            driver: LoadDriver::Connections,
            inter_connection_bound_s: options.bound_s,
            ipv6_share,
            round_trips: false,
            clients,
            servers,
        },
        vectors: Some(vectors),
    };
    model.set_unmodelled();
    model
}

fn gaps(session: &SessionVector) -> impl Iterator<Item = f64> {
    session.connections.windows(2).map(|two| two[1].after_s - two[0].after_s)
}

/// The law of these values; without values, all mass at `otherwise`. Gaps of zero count as a nanosecond.
fn law(values: Vec<f64>, otherwise: f64) -> Empirical {
    let values = if values.is_empty() { vec![otherwise] } else { values };
    let values = values.into_iter().map(|value| value.max(1e-9)).collect();
    Empirical::step_from(values, KNOTS).expect("values are finite and not negative")
}

/// Connections of each rank.
fn ranks(vectors: &Vectors, of: impl Fn(&SessionVector) -> u32) -> Ranks {
    let mut counts: Vec<u64> = Vec::new();
    for session in &vectors.sessions {
        let rank = of(session) as usize;
        counts.resize(counts.len().max(rank + 1), 0);
        counts[rank] += session.connections.len() as u64;
    }
    Ranks { counts, addresses: Vec::new() }
}
