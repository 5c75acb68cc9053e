//! The traffic model: Harpoon's five TCP distributions and the volumes they must reproduce.
//!
//! It is Table 1 of the paper in readable form: how large the files are, how long a pair of hosts waits
//! between two connections, how popular each source and destination is (as ranks, never as addresses), and
//! how many sessions are active in each interval. The last section states how it is played: over how long,
//! divided by which time factor, from which address pools. A plan is a function of this document and a seed
//! only.

use alloc::string::String;
use alloc::vec::Vec;
use nilometer_stat::Empirical;
use serde::{Deserialize, Serialize};

use crate::burstiness::Hurst;
use crate::connections::{BYTES_MAX, ConnectionLaw, ConnectionVolume};
pub use crate::coverage::{Coverage, LeftOut, Share};
pub use crate::generation::{Generation, LoadDriver};
use crate::lengths::FlowLengths;
use crate::model_error::positive;
pub use crate::model_error::{FORMAT, ModelError};
use crate::round_trips::RoundTrips;
pub use crate::thinned::{Identification, SampledGaps};
use crate::udp::UdpModel;
use crate::vectors::Vectors;

/// Intervals of a model of vectors.
pub const VECTOR_INTERVALS: usize = 12;
/// The most intervals of a model.
pub const INTERVALS_MAX: usize = 100_000;

/// The most ranks of a model on each side.
pub const RANKS_MAX: usize = 1 << 20;
/// The most that counts of one kind may sum to.
const SUM_MAX: u64 = 1 << 62;
/// The least mean gap between two connections of a session, as played, seconds.
const GAP_MIN_S: f64 = 1e-9;

/// A traffic model (Harpoon, Table 1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TrafficModel {
    /// The format and its version, `nilometer-model/1`.
    #[cfg_attr(feature = "schema", schemars(extend("const" = FORMAT)))]
    pub format: String,
    /// Tool and version that wrote it.
    pub tool: String,
    /// Origin of the model.
    pub origin: Origin,
    /// One-way TCP flows of the original, whether or not they enter the model: counted, or estimated if packets were
    /// sampled. Absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow_count: Option<u64>,
    /// The mean length of those flows, in packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_length_packets: Option<f64>,
    /// Sampling interval N (one packet in N), 1 without sampling; the largest if exporters differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling_interval: Option<u32>,
    /// How these were obtained, their confidence intervals, and the distribution of flow lengths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow_lengths: Option<FlowLengths>,
    /// Burstiness of the packets on all time scales; null if unknown.
    #[serde(default)]
    pub hurst: Option<Hurst>,
    /// P(FileSize): payload bytes of one file.
    pub file_size: Empirical,
    /// P(InterConnection): seconds between consecutive connections of one address pair, in the time
    /// of the original (before `generation.time_divisor`).
    pub inter_connection: Empirical,
    /// Uncertainty of inter-connection times; present only if packets were sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled_gaps: Option<SampledGaps>,
    /// P(IPRange src): how often each client appears, most frequent first.
    pub sources: Ranks,
    /// P(IPRange dest): how often each server appears, most frequent first.
    pub destinations: Ranks,
    /// The volumes to be matched, and P(ActiveSessions).
    pub intervals: Vec<Interval>,
    /// P(Connection): what whole connections carried in both directions. Absent from Harpoon's own model, and if the
    /// records do not identify connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_law: Option<ConnectionLaw>,
    /// Whole sessions in a part of the original, with their connection vectors. Absent if no packets were read, and
    /// from Harpoon's own model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vectors: Option<Vectors>,
    /// P(RTT) of address pairs, or a lower bound of it; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trips: Option<RoundTrips>,
    /// UDP by class; empty if there is none, if packets were sampled, and in Harpoon's own model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub udp: Vec<UdpModel>,
    /// Share of the input's IP bytes that the model does not cover, 0 to 1. Absent if nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmodelled_bytes_share: Option<f64>,
    /// Share of the input's one-way flows that the model does not cover.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmodelled_flows_share: Option<f64>,
    /// How much of the input the model covers, and what was left out.
    pub coverage: Coverage,
    /// How the model is played.
    pub generation: Generation,
}

/// Origin of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// Human-readable description.
    pub description: String,
    /// True if the traffic is synthetic, not measured.
    pub synthetic: bool,
    /// The inputs, by name and digest.
    pub inputs: Vec<Input>,
}

/// One input of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// File name without directory.
    pub name: String,
    /// SHA-256 of its bytes, in hexadecimal.
    pub sha256: String,
}

/// A rank-frequency distribution: counts, most frequent first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Ranks {
    /// Flows of each rank; non-increasing, positive.
    pub counts: Vec<u64>,
    /// The original addresses in the same order; only if requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
}

impl Ranks {
    /// Shares that sum to one, of the first `kept` ranks.
    pub fn shares(&self, kept: usize) -> Vec<f64> {
        let counts = &self.counts[..kept.min(self.counts.len())];
        let total: u64 = counts.iter().sum();
        counts.iter().map(|&count| count as f64 / total as f64).collect()
    }
}

/// Traffic of one interval of the original.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Interval {
    /// Seconds after the original began.
    pub start_s: f64,
    /// Its length in seconds; the last one may be shorter than IntervalDuration.
    pub duration_s: f64,
    /// Payload bytes of the flows that enter the model and start here.
    pub bytes: u64,
    /// Flows that enter the model and start here.
    pub flows: u64,
    /// Packets of those flows in the original; 0 if not measured.
    pub packets: u64,
    /// Active sessions by the algorithm of Figure 4; the target if `generation.driver` is `sessions`.
    pub sessions: f64,
    /// Active sessions by the direct method, from the lifetimes of address pairs.
    pub sessions_direct: f64,
    /// Volume of the whole connections that start here; present if the model has `connection_law`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<ConnectionVolume>,
}

impl Interval {
    /// Keeps this share of its length and of its volume.
    pub fn cut(&mut self, share: f64) {
        let kept = |count: &mut u64| *count = (*count as f64 * share) as u64;
        self.duration_s *= share;
        [&mut self.bytes, &mut self.flows, &mut self.packets].into_iter().for_each(kept);
        if let Some(whole) = &mut self.whole {
            let counts = [&mut whole.connections, &mut whole.bytes, &mut whole.packets];
            counts.into_iter().chain([&mut whole.octets]).for_each(kept);
        }
    }

    /// The volume that the plan must carry here: whole connections if the model has them, otherwise files,
    /// for which only the packets of their own direction are known.
    pub fn to_perform(&self) -> ConnectionVolume {
        let of_files = ConnectionVolume {
            connections: self.flows,
            bytes: self.bytes,
            packets: self.packets,
            octets: 0,
        };
        self.whole.unwrap_or(of_files)
    }
}

impl Ranks {
    fn check(&self, what: &'static str) -> Result<(), ModelError> {
        if self.counts.is_empty() {
            return Err(ModelError::Empty(what));
        }
        if self.counts.len() > RANKS_MAX {
            return Err(ModelError::TooMany(what, RANKS_MAX));
        }
        let mut before = u64::MAX;
        for (at, &count) in self.counts.iter().enumerate() {
            if count == 0 || count > before {
                return Err(ModelError::RanksRise(what, at));
            }
            before = count;
        }
        sum(what, self.counts.iter().copied())
    }
}

/// Checks that a sum is at most [`SUM_MAX`].
fn sum(what: &'static str, mut counts: impl Iterator<Item = u64>) -> Result<(), ModelError> {
    let sum = counts.try_fold(0u64, |sum, count| sum.checked_add(count));
    match sum {
        Some(sum) if sum <= SUM_MAX => Ok(()),
        _ => Err(ModelError::SumTooLarge(what, SUM_MAX)),
    }
}

impl TrafficModel {
    /// Checks a model that was read for everything that the planner relies on.
    ///
    /// # Errors
    /// The first thing found wrong, with the field's name.
    pub fn check(&self) -> Result<(), ModelError> {
        if self.format != FORMAT {
            return Err(ModelError::Format(self.format.clone()));
        }
        positive("file_size mean", self.file_size.mean())?;
        if self.file_size.mean() > BYTES_MAX as f64 {
            return Err(ModelError::TooLarge("file_size mean", BYTES_MAX));
        }
        positive("inter_connection mean", self.inter_connection.mean())?;
        positive("mean_length_packets", self.mean_length_packets.unwrap_or(1.0))?;
        positive("sampling_interval", self.sampling_interval.unwrap_or(1).into())?;
        if let Some(hurst) = &self.hurst {
            hurst.check()?;
        }
        self.sources.check("sources")?;
        self.destinations.check("destinations")?;
        self.check_intervals()?;
        self.check_connections()?;
        self.generation.check()?;
        if self.inter_connection.mean() / self.generation.time_divisor < GAP_MIN_S {
            let what = "the mean of inter_connection, over generation.time_divisor,";
            return Err(ModelError::TooSmall(what, GAP_MIN_S));
        }
        let is_of_files = self.connection_law.is_none() && self.vectors.is_none();
        if self.generation.driver == LoadDriver::Sessions && !is_of_files {
            return Err(ModelError::SessionsDrive);
        }
        Ok(())
    }

    fn check_intervals(&self) -> Result<(), ModelError> {
        if self.intervals.is_empty() {
            return Err(ModelError::Empty("intervals"));
        }
        if self.intervals.len() > INTERVALS_MAX {
            return Err(ModelError::TooMany("intervals", INTERVALS_MAX));
        }
        let mut end = 0.0;
        for (at, interval) in self.intervals.iter().enumerate() {
            positive("interval duration_s", interval.duration_s)?;
            if !(interval.sessions.is_finite() && interval.sessions >= 0.0) {
                return Err(ModelError::Negative("interval sessions", interval.sessions));
            }
            let slack = 1e-6 * (1.0 + end);
            if !interval.start_s.is_finite() || (interval.start_s - end).abs() > slack {
                return Err(ModelError::IntervalOrder(at));
            }
            end = interval.start_s + interval.duration_s;
        }
        let whole = |of: fn(&ConnectionVolume) -> u64| {
            self.intervals.iter().filter_map(move |interval| interval.whole.as_ref().map(of))
        };
        sum("interval flows", self.intervals.iter().map(|interval| interval.flows))?;
        sum("interval bytes", self.intervals.iter().map(|interval| interval.bytes))?;
        sum("interval packets", self.intervals.iter().map(|interval| interval.packets))?;
        sum("interval whole.connections", whole(|whole| whole.connections))?;
        sum("interval whole.bytes", whole(|whole| whole.bytes))?;
        sum("interval whole.packets", whole(|whole| whole.packets))?;
        sum("interval whole.octets", whole(|whole| whole.octets))
    }

    fn check_connections(&self) -> Result<(), ModelError> {
        for (what, share) in [
            ("unmodelled_bytes_share", self.unmodelled_bytes_share),
            ("unmodelled_flows_share", self.unmodelled_flows_share),
        ] {
            if share.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
                return Err(ModelError::NotAShare(what, share.unwrap_or(0.0)));
            }
        }
        if let Some(vectors) = &self.vectors {
            vectors.check()?;
        }
        let Some(law) = &self.connection_law else { return Ok(()) };
        law.check()?;
        sum("connection_law.connections", law.connections.iter().copied())?;
        match self.intervals.iter().all(|interval| interval.whole.is_some()) {
            true => Ok(()),
            false => Err(ModelError::Empty("`whole` of an interval, beside connection_law,")),
        }
    }

    /// The model reduced to Harpoon's five distributions. What drives it is unchanged, because active sessions
    /// are those of one file a connection ([`harpoon`](crate::estimate::EstimateOptions::harpoon)).
    pub fn without_connections(mut self) -> TrafficModel {
        self.connection_law = None;
        self.vectors = None;
        self.round_trips = None;
        self.udp = Vec::new();
        self.intervals.iter_mut().for_each(|interval| interval.whole = None);
        self.coverage.flows_in_connections = 0;
        self.coverage.octets_in_connections = 0;
        self.set_unmodelled();
        self
    }

    /// Sets the share of the input that the model does not cover, from its coverage.
    pub(crate) fn set_unmodelled(&mut self) {
        let of = &self.coverage;
        let share = |whole: u64, tcp: u64, udp: u64| {
            (whole > 0).then(|| 1.0 - (tcp + udp).min(whole) as f64 / whole as f64)
        };
        let sum = |part: fn(&UdpModel) -> u64| self.udp.iter().map(part).sum::<u64>();
        let (flows, octets) = (sum(|it| it.carried.flows), sum(|it| it.carried.octets));
        // Flows that enter are in whole connections, where these are known.
        let tcp_octets = of.octets_in_model.max(of.octets_in_connections);
        let tcp_flows = of.flows_in_model.max(of.flows_in_connections);
        self.unmodelled_bytes_share = share(of.octets, tcp_octets, octets);
        self.unmodelled_flows_share = share(of.flows, tcp_flows, flows);
    }

    /// How long the original lasted, in seconds.
    pub fn original_s(&self) -> f64 {
        self.intervals.last().map_or(0.0, |last| last.start_s + last.duration_s)
    }

    /// How long the plan lasts, in seconds.
    pub fn duration_s(&self) -> f64 {
        self.original_s() / self.generation.time_divisor
    }

    /// Connections that a plan has to make in all intervals.
    pub fn connections(&self) -> u64 {
        self.intervals.iter().map(|interval| interval.to_perform().connections).sum()
    }

    /// Flows of all intervals.
    pub fn flows(&self) -> u64 {
        self.intervals.iter().map(|interval| interval.flows).sum()
    }

    /// Payload bytes of all intervals.
    pub fn bytes(&self) -> u64 {
        self.intervals.iter().map(|interval| interval.bytes).sum()
    }
}
