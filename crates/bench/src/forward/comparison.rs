//! Runs compared, point by point, and the comparison as text.

use nilometer_stat::ConfidenceInterval;
use serde::{Deserialize, Serialize};

/// Runs held against each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Runs.
    pub runs: usize,
    /// Of each run, points and how many of them were told.
    pub points: Vec<[usize; 2]>,
    /// Differences of prices between two runs that both were told.
    pub differences: usize,
    /// The confidence of each one's interval.
    pub confidence: f64,
    /// Those whose interval does not hold nought.
    pub apart: Vec<Apart>,
}

/// Two runs that told different prices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Apart {
    /// The point: device, variant, frame size in bytes, offered load in frames per second.
    pub point: String,
    /// Which runs, by number from 0.
    pub runs: [usize; 2],
    /// What each told, in nanoseconds of processor time for a frame.
    pub prices_ns: [f64; 2],
    /// The interval of their difference.
    pub difference_ns: ConfidenceInterval,
}

impl Comparison {
    /// For people: a line of what was compared, and one for each that stands apart.
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
