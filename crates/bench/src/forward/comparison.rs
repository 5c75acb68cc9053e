//! Runs compared, point by point, and the comparison as text.

use nilometer_stat::ConfidenceInterval;
use serde::{Deserialize, Serialize};

/// A comparison of runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Runs.
    pub runs: usize,
    /// For each run, the points and how many of them were reported.
    pub points: Vec<[usize; 2]>,
    /// Differences of prices between two runs that both reported them.
    pub differences: usize,
    /// The confidence of each one's interval.
    pub confidence: f64,
    /// Those whose interval does not contain zero.
    pub apart: Vec<Apart>,
}

/// Two runs that reported different prices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Apart {
    /// The point: device, variant, frame size in bytes, offered load in frames per second.
    pub point: String,
    /// Which runs, by number from 0.
    pub runs: [usize; 2],
    /// Each run's price, in nanoseconds of processor time for a frame.
    pub prices_ns: [f64; 2],
    /// The interval of their difference.
    pub difference_ns: ConfidenceInterval,
}

impl Comparison {
    /// As text: a line of what was compared, and one for each pair that differs.
    pub fn shown(&self) -> Vec<String> {
        let Comparison { runs, differences, apart, confidence, .. } = self;
        let mut lines = vec![format!(
            "{runs} runs, {differences} differences of prices that two of them told, each at {:.3} %: \
             {} do not hold 0",
            100.0 * confidence,
            apart.len()
        )];
        lines.extend(apart.iter().map(|it| {
            let ([one, other], [first, second]) = (it.prices_ns, it.runs);
            format!("{}: {one:.0} ns in run {first}, {other:.0} ns in run {second}", it.point)
        }));
        lines
    }
}
