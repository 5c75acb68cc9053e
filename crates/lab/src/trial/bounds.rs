//! The bounds of `--check`, and which results of a run violate them.

use nilometer_likeness::Verdict;

use super::outcome::Outcome;
use super::run_story;
use nilometer_report::enough;

/// What of the original's TCP has to be played, for `--check`.
const COVERAGE_MIN: f64 = 0.95;

/// Within which a copy's volume has to be, for `--check`.
const VOLUME_RATIO: core::ops::RangeInclusive<f64> = 0.95..=1.05;

/// The configurable bounds of `--check`; others are fixed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Whether laws with too few samples to judge may pass.
    pub allows_few: bool,
    /// The share of packets that the device may lose, 0 to 1.
    pub loss_max: f64,
    /// By how much the 99th percentile of the device's delay may exceed that of the bare wire, or 0
    /// where there was no calibration, ns.
    pub delay_max_ns: f64,
}

impl Default for Bounds {
    /// One packet in a thousand, and ten milliseconds.
    fn default() -> Bounds {
        Bounds { allows_few: false, loss_max: 0.001, delay_max_ns: 1e7 }
    }
}

/// What of the copy is not as the original was.
fn against_the_original(outcome: &Outcome, allows_few: bool) -> Vec<String> {
    let mut found = Vec::new();
    let number = |value: Option<f64>| value.map_or("?".to_owned(), |value| format!("{value:.3}"));
    for law in &outcome.likeness {
        let (name, distance, floor) = (&law.name, number(law.distance), number(law.floor_p95));
        match law.verdict {
            Verdict::Differs => found.push(format!(
                "{name} differs from the original's: {distance} {}, where second samples have {floor} or less",
                law.unit
            )),
            Verdict::TooFew if !allows_few => found.push(format!(
                "{name}: too few samples to judge; play longer (--duration), or pass --allow-few"
            )),
            Verdict::TooFew | Verdict::Alike | Verdict::NotPlayed => {}
        }
    }
    if let Some(coverage) = outcome.coverage {
        let shares = [("bytes", coverage.bytes), ("connections", coverage.flows)];
        for (what, share) in shares.into_iter().filter(|(_, share)| *share < COVERAGE_MIN) {
            found.push(format!("{:.1} % of the original's TCP {what} were played", 100.0 * share));
        }
        if !VOLUME_RATIO.contains(&coverage.volume_ratio) {
            let ratio = coverage.volume_ratio;
            found.push(format!("the copy has {ratio:.3} times the original's TCP payload"));
        }
    }
    found
}

/// The device's violations of its bounds.
fn of_the_device(outcome: &Outcome, bounds: &Bounds) -> Vec<String> {
    let mut found = Vec::new();
    let (lost, entered) = (outcome.packets.lost, outcome.packets.entered);
    if lost as f64 > bounds.loss_max * entered as f64 {
        found.push(format!(
            "the device lost {lost} of {entered} packets ({:.2} %), over {} % (--loss-max)",
            100.0 * lost as f64 / entered.max(1) as f64,
            100.0 * bounds.loss_max
        ));
    }
    let wire_ns = outcome.wire_delay_ns.as_ref().map_or(0, |wire| wire.p99);
    if let Some(delay) = &outcome.delay_ns
        && delay.p99 as f64 > wire_ns as f64 + bounds.delay_max_ns
    {
        found.push(format!(
            "p99 delay (delay_ns.p99) is {:.3} ms, the bare wire's {:.3} ms: more than {} ms above it (--delay-max)",
            delay.p99 as f64 / 1e6,
            wire_ns as f64 / 1e6,
            bounds.delay_max_ns / 1e6
        ));
    }
    found
}

/// The bounds of `--check`: violations, and results from too few samples to judge, in plain words;
/// empty when all hold.
pub fn out_of_bounds(outcome: &Outcome, bounds: &Bounds) -> Vec<String> {
    let allows_few = bounds.allows_few;
    let mut found = against_the_original(outcome, allows_few);
    found.extend(of_the_device(outcome, bounds));
    let against_the_model = if outcome.likeness.is_empty() { &outcome.fidelity[..] } else { &[] };
    for figure in against_the_model {
        match figure.ratio {
            Some(_) if enough::is_too_few(&run_story::figure(figure)) && allows_few => {}
            Some(_) if enough::is_too_few(&run_story::figure(figure)) => found.push(format!(
                "{}: {} samples are too few to judge; play longer (--duration), or an input with more \
                 connections",
                figure.name, figure.count
            )),
            Some(ratio) if ratio <= 2.0 => {}
            Some(ratio) => found.push(format!("{} is {ratio:.2} x its floor, over 2", figure.name)),
            None => found.push(format!("{} has no sampling floor for comparison", figure.name)),
        }
    }
    if !outcome.execution.sizes_exact {
        found.push("file sizes are not byte-exact".to_owned());
    }
    // Connections under way when the part ended are under way when the copy ends.
    let is_part = outcome.part.is_some();
    let cut = if is_part { outcome.execution.unfinished } else { 0 };
    if outcome.execution.completed + cut != outcome.connections {
        let (done, planned) = (outcome.execution.completed, outcome.connections);
        found.push(format!("{done} of {planned} connections completed"));
    }
    // Another seed is another draw, whose intervals differ; the copy's rates are laws of their own.
    for interval in outcome.intervals.iter().filter(|_| !is_part) {
        let pairs = [
            ("payload bytes", interval.bytes_target, interval.bytes_generated),
            ("connections", interval.flows_target, interval.flows_generated),
        ];
        for (what, target, generated) in pairs {
            let off = generated as f64 / target.max(1) as f64 - 1.0;
            let by = target.abs_diff(generated);
            if 20 * by > target && by > 1 {
                let (start, percent) = (interval.start_s, off * 100.0);
                found.push(format!("{what} from {start:.0} s are off by {percent:+.1} %"));
            }
        }
    }
    if outcome.packets.meter_lost > 0 {
        found.push(format!("the meter lost {} packets", outcome.packets.meter_lost));
    }
    found
}
