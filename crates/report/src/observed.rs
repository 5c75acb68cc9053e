//! What was observed: the parts of the story that the meter and the statistics fill.

use serde::{Deserialize, Serialize};

use super::format::significant;
use super::lenient;

/// A curve: `[x, y]` pairs, x ascending.
pub type Curve = Vec<[f64; 2]>;

/// Which distribution a distance is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trait {
    /// Payload bytes of a connection.
    FileSize,
    /// Time between the starts of a session's connections.
    InterConnection,
    /// Popularity of source addresses.
    SourceRank,
    /// Popularity of destination addresses.
    DestinationRank,
}

/// A distance between measured traffic and the model, beside its sampling floor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fidelity {
    /// Which distribution.
    pub name: Trait,
    /// KS for sizes and times, JSD for ranks.
    #[serde(deserialize_with = "lenient::number")]
    pub distance: f64,
    /// Median distance of independent samples of the same count drawn from the model.
    #[serde(deserialize_with = "lenient::number")]
    pub floor: f64,
    /// 5th percentile of these distances.
    pub floor_p5: Option<f64>,
    /// 95th percentile of these distances.
    pub floor_p95: Option<f64>,
    /// distance ÷ floor; `None` where the floor is zero or unknown.
    pub ratio: Option<f64>,
    /// Sample count of the measurement.
    pub count: u64,
}

/// Two cumulative distributions and what chance alone would do between them.
///
/// Give both curves at the same x where possible ([`super::thin::grid`]): their difference is then
/// exact.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Comparison {
    /// The model: `[x, share at most x]`.
    #[serde(deserialize_with = "lenient::rows")]
    pub model: Curve,
    /// Measured: `[x, share at most x]`.
    #[serde(deserialize_with = "lenient::rows")]
    pub measured: Curve,
    /// Pointwise 5–95 % band of the *difference* (second sample − model): `[x, low, high]`.
    #[serde(deserialize_with = "lenient::rows")]
    pub band: Vec<[f64; 3]>,
}

/// Popularity by rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ranks {
    /// The model's weights scaled to expected counts: `[rank from 1, count]`.
    #[serde(deserialize_with = "lenient::rows")]
    pub model: Curve,
    /// Measured counts: `[rank from 1, count]`.
    #[serde(deserialize_with = "lenient::rows")]
    pub measured: Curve,
    /// What is counted, in the plural: "sessions", "connections".
    pub counted: String,
}

/// What became of packets at the device, by matching both sides.
///
/// `in + originated + duplicated = out + consumed + lost`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PacketCounts {
    /// Entered the device.
    #[serde(rename = "in")]
    pub entered: u64,
    /// Left it.
    #[serde(rename = "out")]
    pub left: u64,
    /// Entered, and no packet that left matches them.
    pub lost: u64,
    /// Left, and no packet that entered matches them.
    pub originated: u64,
    /// Were addressed to the device.
    pub consumed: u64,
    /// Left after a packet that entered later.
    pub reordered: u64,
    /// Extra copies that left.
    pub duplicated: u64,
    /// Left with other bytes than they entered with.
    pub corrupted: u64,
    /// Passed the meter unseen, by its own counters.
    pub meter_lost: u64,
}

/// Delay in a few numbers, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// 5th percentile.
    #[serde(deserialize_with = "lenient::number")]
    pub p5: f64,
    /// Arithmetic mean.
    #[serde(deserialize_with = "lenient::number")]
    pub mean: f64,
    /// Median.
    #[serde(deserialize_with = "lenient::number")]
    pub p50: f64,
    /// 95th percentile.
    #[serde(deserialize_with = "lenient::number")]
    pub p95: f64,
    /// 99th percentile.
    #[serde(deserialize_with = "lenient::number")]
    pub p99: f64,
}

/// One direction through the device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Direction {
    /// "to servers" or "to clients".
    pub name: String,
    /// What became of its packets.
    pub packets: PacketCounts,
    /// IP bytes that entered the device.
    pub ip_bytes: u64,
    /// Delay through the device.
    pub delay_ns: Option<Percentiles>,
    /// Delay over the bare wire.
    pub wire_delay_ns: Option<Percentiles>,
    /// Delay through the device: `[ns, share at most]`, fine in the upper tail.
    #[serde(deserialize_with = "lenient::rows")]
    pub delay_cdf: Curve,
    /// Delay over the bare wire: `[ns, share at most]`, fine in the upper tail.
    #[serde(deserialize_with = "lenient::rows")]
    pub wire_delay_cdf: Curve,
    /// Its course, second by second; of long runs in longer steps, all of one length.
    pub seconds: Vec<DelaySecond>,
}

/// One second of one direction through the device, or a longer step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DelaySecond {
    /// Start, seconds since the traffic began.
    #[serde(deserialize_with = "lenient::number")]
    pub start_s: f64,
    /// Its length in seconds; 0 where the file does not state it, which means 1.
    #[serde(deserialize_with = "lenient::number")]
    pub length_s: f64,
    /// Median delay, nanoseconds; `None` where no packet passed.
    pub p50_ns: Option<f64>,
    /// 99th percentile of delay, nanoseconds; `None` where no packet passed.
    pub p99_ns: Option<f64>,
    /// Packets that entered.
    pub packets: u64,
    /// Of these, lost.
    pub lost: u64,
    /// Of these, reordered.
    pub reordered: u64,
}

impl DelaySecond {
    /// When it ends, seconds since the traffic began.
    pub fn end_s(&self) -> f64 {
        self.start_s + if self.length_s > 0.0 { self.length_s } else { 1.0 }
    }

    /// Its middle, seconds since the traffic began.
    pub fn middle_s(&self) -> f64 {
        0.5 * (self.start_s + self.end_s())
    }

    /// What it is called in a sentence.
    pub fn name(&self) -> String {
        let (start, length) = (self.start_s, self.end_s() - self.start_s);
        match length == 1.0 {
            true => format!("second {}", significant(start, 6)),
            false => {
                format!("the {} s from second {}", significant(length, 3), significant(start, 6))
            }
        }
    }
}

/// Delay of the packets of one class of sizes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SizeClass {
    /// The class, with its unit: "64–127 B".
    pub label: String,
    /// Packets of it that entered the device.
    pub packets: u64,
    /// Of these, lost.
    pub lost: u64,
    /// Of these, reordered.
    pub reordered: u64,
    /// Median through the device, nanoseconds.
    pub p50_ns: Option<f64>,
    /// 99th percentile through the device, nanoseconds.
    pub p99_ns: Option<f64>,
    /// Median over the bare wire, nanoseconds.
    pub wire_p50_ns: Option<f64>,
}
