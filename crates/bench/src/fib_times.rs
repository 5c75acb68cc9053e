//! The results of forwarding tables, under names fixed for scripts.

use serde::Serialize;

use super::under_updates::UnderUpdates;

/// The results.
#[derive(Clone, Debug, Serialize)]
pub struct FibTimes {
    /// 4 or 6.
    pub family: u8,
    /// Prefixes of the family, duplicates included.
    pub prefixes: usize,
    /// Prefixes of the other family.
    pub skipped: usize,
    /// Each table.
    pub engines: Vec<EngineTimes>,
    /// The tables of the peer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<EngineTimes>,
}

/// The results of one table.
#[derive(Clone, Debug, Serialize)]
pub struct EngineTimes {
    /// Its name.
    pub engine: String,
    /// Bytes that lookups read, for each different prefix.
    pub bytes_per_prefix: f64,
    /// CPU time in which the empty table took all prefixes, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_seconds: Option<f64>,
    /// Million lookups a second of CPU time, random addresses.
    pub mlookups_random: f64,
    /// The same, addresses drawn from the prefixes.
    pub mlookups_prefix: f64,
    /// Updates a second of the writer's CPU time while another thread looks up.
    pub updates_per_second: f64,
    /// Sum of next hops of the random addresses.
    pub checksum_random: u64,
    /// Sum of next hops of the addresses drawn from prefixes.
    pub checksum_prefix: u64,
    /// The loss through updates at several paces, if requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub under_updates: Vec<UnderUpdates>,
}

impl FibTimes {
    /// Which table differs from the first, if one does.
    pub fn disagreement(&self) -> Option<String> {
        let sums = |times: &EngineTimes| (times.checksum_random, times.checksum_prefix);
        let first = self.engines.first()?;
        let mut others = self.engines.iter().chain(&self.peers);
        let other = others.find(|other| sums(other) != sums(first))?;
        Some(format!("{} and {} disagree: see the checksums", first.engine, other.engine))
    }
}
