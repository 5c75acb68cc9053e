//! The outcome of several runs, from their `result.json`, with 95 % intervals of means over runs.

use nilometer_likeness::Verdict;
use nilometer_stat::ConfidenceInterval;
use serde::{Deserialize, Serialize};

const CONFIDENCE: f64 = 0.95;

/// A mean over runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OverRuns {
    /// Arithmetic mean; none where no run has the figure.
    pub mean: Option<f64>,
    /// The 95 % interval of the mean; none of fewer than two runs.
    pub interval: Option<ConfidenceInterval>,
    /// The figure of each run that has it.
    pub runs: Vec<f64>,
}

/// One law over all runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LawOverRuns {
    /// The law.
    pub name: String,
    /// What its distance is counted in.
    pub unit: String,
    /// The greatest distance that counts as alike.
    pub cap: f64,
    /// Distance of copy and original.
    pub distance: OverRuns,
    /// Its verdict in each run.
    pub verdicts: Vec<Verdict>,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OneRun {
    /// Its directory, beside that of the whole.
    pub directory: String,
    /// Its seed.
    pub seed: u64,
    /// Packets that entered the device.
    pub packets: u64,
    /// Of these, those that it lost.
    pub lost: u64,
    /// What `--check` would find.
    pub findings: Vec<String>,
}

/// What all runs came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repeats {
    /// `nilometer-repeats/1`.
    pub format: String,
    /// Version of the tool.
    pub version: String,
    /// The device under test.
    pub dut: String,
    /// What was played.
    pub input: Vec<String>,
    /// Stopped by a signal before the last run's end.
    pub interrupted: bool,
    /// The runs, in their order.
    pub runs: Vec<OneRun>,
    /// The copy against the original, law by law; empty where the original was not known packet by packet.
    pub likeness: Vec<LawOverRuns>,
    /// Median delay through the device, ns.
    pub delay_p50_ns: OverRuns,
    /// 99th percentile of the delay, ns.
    pub delay_p99_ns: OverRuns,
    /// Share of packets lost, 0 to 1.
    pub loss: OverRuns,
    /// The copy's payload divided by the original's.
    pub volume_ratio: OverRuns,
    /// Absolute path of the page.
    pub report: String,
}

impl OverRuns {
    /// The mean of these, and its interval.
    pub fn of(runs: Vec<f64>) -> OverRuns {
        let count = runs.len() as f64;
        let mean = (count > 0.0).then(|| runs.iter().sum::<f64>() / count);
        let interval = ConfidenceInterval::of_mean(&runs, CONFIDENCE);
        OverRuns { mean, interval, runs }
    }
}
