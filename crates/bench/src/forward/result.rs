//! `forward.json`: the results of a run, under names fixed for scripts.

use nilometer_stat::ConfidenceInterval;
use serde::{Deserialize, Serialize};

use super::comparison::Comparison;
use super::price::UNREPORTED_MAX;
use nilometer_routerd::tally::Paths;

/// A device's figures under one load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The device: `nilometer`, `linux`, `nftables`.
    pub dut: String,
    /// What of it is at work.
    pub variant: String,
    /// Length of frames with their check sequence, as RFC 2544 counts.
    pub frame_bytes: u16,
    /// Frames per second that were to be offered.
    pub asked_pps: f64,
    /// Frames per second that were.
    pub offered_pps: f64,
    /// Frames per second that came out.
    pub forwarded_pps: f64,
    /// The same in the worst and in the best round.
    pub forwarded_pps_range: [f64; 2],
    /// Whether the generator kept its pace in most rounds, and so `offered_pps` is the requested load.
    pub is_paced: bool,
    /// Frames overtaken by another of their flow, in all rounds.
    pub disordered: u64,
    /// The share of the offered frames that the tester's own ring lost, in the worst round: they were
    /// forwarded, and are not in `forwarded_pps`.
    pub unheard_share: f64,
    /// Forwarded frames per processor second of the device; absent if not reported.
    pub packets_per_cpu_second: Option<f64>,
    /// The interval that contains it in 95 of 100 points whose rounds scatter evenly ([`super::price`]), as
    /// far as the rounds show; absent if it includes a price of zero.
    #[serde(default)]
    pub packets_per_cpu_second_interval: Option<ConfidenceInterval>,
    /// The same in the worst and in the best round; absent if the difference is lost in the noise in any.
    pub packets_per_cpu_second_range: Option<[f64; 2]>,
    /// Whether half that interval is at most a tenth of the price.
    #[serde(default)]
    pub told: bool,
    /// Why it is not reported.
    #[serde(default)]
    pub not_told: Option<String>,
    /// The price itself, reported or not: nanoseconds of processor time for a forwarded frame.
    #[serde(default)]
    pub packet_cpu_ns: Option<Cost>,
    /// Rounds that count.
    #[serde(default)]
    pub rounds: u32,
    /// Rounds that were discarded because others disturbed them.
    #[serde(default)]
    pub rounds_discarded: u32,
    /// The paths of frames through our router, in all rounds.
    #[serde(default)]
    pub paths: Option<Paths>,
    /// Processor seconds per second of load, generator and sink included.
    pub cpu_seconds: f64,
    /// Those of generator and sink alone under the same load.
    pub generator_cpu_seconds: f64,
    /// Those of the whole machine, by all processes.
    pub machine_cpu_seconds: f64,
}

/// A price with its error.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// The trimmed mean of the rounds.
    pub mean: f64,
    /// Its standard error.
    pub error: f64,
    /// Degrees of freedom of that.
    pub degrees: f64,
}

/// All figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Forwarding {
    /// Seed of flows, routes and filters.
    pub seed: u64,
    /// Seconds of each load, and how often it was offered.
    pub seconds: f64,
    /// The least rounds of each point that were requested.
    pub rounds: u32,
    /// The most that there could be, disturbed ones included.
    #[serde(default)]
    pub rounds_max: u32,
    /// The share of all processors that others could use in a round that counts.
    #[serde(default)]
    pub others_max: f64,
    /// The share of points whose interval contains the truth.
    #[serde(default)]
    pub confidence: f64,
    /// Half an interval, as a share of the price, up to which a point is reported.
    #[serde(default)]
    pub half_width_max: f64,
    /// Points that are reported.
    #[serde(default)]
    pub points_told: usize,
    /// Routes and filters of our router.
    pub routes: usize,
    /// Filters of our router.
    pub filters: usize,
    /// How our router's ports were opened.
    pub ports: Vec<String>,
    /// The points, by device, variant, length and rate.
    pub points: Vec<Point>,
    /// These prices compared with those of earlier runs, if any were given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
    /// What is not as requested, and why.
    pub warnings: Vec<String>,
}

impl Forwarding {
    /// Whether few enough points are unreported for the run to have succeeded.
    pub fn is_complete(&self) -> bool {
        (self.points.len() - self.points_told) as f64 <= UNREPORTED_MAX * self.points.len() as f64
    }
}
