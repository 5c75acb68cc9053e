//! Compares the results of several runs: whether they reported the same.
//!
//! Each point that two runs have reported gives a difference of prices, and the interval of that difference
//! (Yuen's, [`nilometer_stat::Trimmed::difference`]) should contain zero. Of many differences some would not
//! by chance; so each interval is taken at `1 - 5 %/m`, with `m` of them (Bonferroni): then in 95 of 100
//! comparisons of runs that do not differ no difference stands out, if their rounds scatter evenly and
//! *their number was fixed beforehand* (`--rounds` and `--rounds-max` the same). A run that stops when its
//! interval is narrow has errors that are narrow by chance, and such runs stand out more often.

use std::collections::BTreeMap;

use nilometer_stat::Trimmed;

pub use super::comparison::{Apart, Comparison};
use super::price::CONFIDENCE;
use super::result::{Forwarding, Point};

fn name(point: &Point) -> String {
    let Point { dut, variant, frame_bytes, asked_pps, .. } = point;
    format!("{dut} {variant}, {frame_bytes} bytes, {asked_pps:.0}/s")
}

/// The price of a point in nanoseconds, where that is reported.
fn price(point: &Point) -> Option<Trimmed> {
    let cost = point.packet_cpu_ns.as_ref().filter(|_| point.told)?;
    Some(Trimmed { mean: cost.mean, error: cost.error, degrees: cost.degrees })
}

/// Why `earlier` cannot be compared with a run with this `seed` and these `seconds` of a round;
/// `None` if it can.
pub fn differs(earlier: &Forwarding, seed: u64, seconds: f64) -> Option<String> {
    if earlier.seed != seed {
        return Some(format!("it was run with --seed {}, and this with {seed}", earlier.seed));
    }
    (earlier.seconds != seconds)
        .then(|| format!("it was run with --seconds {}, and this with {seconds}", earlier.seconds))
}

/// Holds runs against each other, each with each.
pub fn compare(runs: &[&Forwarding]) -> Comparison {
    let told: Vec<BTreeMap<String, Trimmed>> = runs
        .iter()
        .map(|run| run.points.iter().filter_map(|it| Some((name(it), price(it)?))).collect())
        .collect();
    let mut pairs = Vec::new();
    for (second, later) in told.iter().enumerate() {
        for (first, earlier) in told[..second].iter().enumerate() {
            let both =
                earlier.iter().filter_map(|(point, one)| Some((point, one, later.get(point)?)));
            pairs.extend(both.map(|(point, one, other)| (point, [first, second], [one, other])));
        }
    }
    let differences = pairs.len();
    let confidence = 1.0 - (1.0 - CONFIDENCE) / differences.max(1) as f64;
    let apart = pairs.into_iter().filter_map(|(point, runs, [one, other])| {
        let difference_ns = one.difference(other, confidence);
        let prices_ns = [one.mean, other.mean];
        (!difference_ns.holds(0.0)).then(|| Apart {
            point: point.clone(),
            runs,
            prices_ns,
            difference_ns,
        })
    });
    let count = |run: &&Forwarding| {
        [run.points.len(), run.points.iter().filter(|point| point.told).count()]
    };
    Comparison {
        runs: runs.len(),
        points: runs.iter().map(count).collect(),
        differences,
        confidence,
        apart: apart.collect(),
    }
}
