//! What our router reports about itself when it is the device: its queues, and why it dropped.

use serde::{Deserialize, Serialize};

use super::lenient;

/// One port's queues.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Queue {
    /// The port: `client` or `server`.
    pub port: String,
    /// The queueing discipline before its link.
    pub discipline: String,
    /// The configuration of the link: "8 Mb/s, 20 ms longer"; empty where there is none.
    pub link: String,
    /// Before the link.
    pub output: Waiting,
    /// Before the fabric.
    pub input: Waiting,
    /// Before the link, over time.
    pub steps: Vec<QueueStep>,
}

/// How much waited in all of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Waiting {
    /// Packets, averaged by time.
    #[serde(deserialize_with = "lenient::number")]
    pub mean_packets: f64,
    /// The most packets.
    pub max_packets: u64,
    /// Bytes, averaged by time.
    #[serde(deserialize_with = "lenient::number")]
    pub mean_bytes: f64,
    /// The most bytes.
    pub max_bytes: u64,
}

/// How much waited for a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueStep {
    /// Start, seconds since the traffic began.
    #[serde(deserialize_with = "lenient::number")]
    pub start_s: f64,
    /// Its length, seconds.
    #[serde(deserialize_with = "lenient::number")]
    pub length_s: f64,
    /// Packets, averaged by time.
    #[serde(deserialize_with = "lenient::number")]
    pub mean_packets: f64,
    /// The most packets.
    pub max_packets: u64,
}

/// Losses by reason, and what its filters matched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LossTable {
    /// One for each place and reason.
    pub rows: Vec<LossRow>,
    /// Packets that the meter counts as lost beyond these rows, to the servers and to the clients;
    /// below zero where the router counts more.
    pub unexplained: [i64; 2],
    /// Filters: number and action, packets, bytes.
    pub filters: Vec<(String, u64, u64)>,
}

/// Packets that were dropped in one place for one reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LossRow {
    /// Place and reason: "client output queue: full".
    pub what: String,
    /// To the servers, to the clients.
    pub packets: [u64; 2],
}
