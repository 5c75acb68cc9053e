//! The devices of two runs compared: volumes, completion times, delay and loss.
//!
//! Each figure of both runs stands beside their difference and the noise: how far apart two runs through one device
//! would be by chance, in 95 of 100 cases. For a share that is the usual interval of a difference of two shares, for
//! a quantile the distance between order statistics (their ranks vary as a binomial variable does), both as if
//! packets and connections were independent. They are not quite, so a value slightly above the noise is not yet a
//! difference.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result};
use nilometer_files::table::packets::{Fate, read_packet_table};
use serde::{Deserialize, Serialize};

/// Standard deviations within which 95 of 100 values of a normal variable are.
const NORMAL_95: f64 = 1.96;

/// One figure of two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// What it is, with its unit.
    pub name: String,
    /// Of the first run; none where it has nothing to measure it by.
    pub first: Option<f64>,
    /// Of the second.
    pub second: Option<f64>,
    /// The second less the first.
    pub difference: Option<f64>,
    /// By how much two runs through one device would differ by chance, at most in 95 of 100 cases; none for
    /// figures that are counted and not sampled.
    pub noise: Option<f64>,
}

/// The files that the figures are of.
const FILES: [&str; 2] = ["packets.parquet", "execution.ndjson"];

/// Whether a directory has the data for figures.
pub fn has_figures(directory: &Path) -> bool {
    FILES.iter().all(|name| directory.join(name).is_file())
}

/// What one run did.
#[derive(Debug, Default)]
struct Run {
    connections: u64,
    completed: u64,
    received_bytes: u64,
    /// Of completed connections, nanoseconds, in ascending order.
    completion_ns: Vec<u64>,
    entered: u64,
    lost: u64,
    reordered: u64,
    /// Of packets that passed, nanoseconds, in ascending order.
    delay_ns: Vec<u64>,
}

/// The fields read from a line of `execution.ndjson`.
#[derive(Deserialize)]
struct Execution {
    started_ns: u64,
    finished_ns: Option<u64>,
    received_bytes: u64,
    outcome: String,
}

impl Run {
    fn read(directory: &Path) -> Result<Run> {
        let mut run = Run::default();
        let path = directory.join("execution.ndjson");
        let shown = path.display().to_string();
        let file = File::open(&path).with_context(|| format!("cannot read {shown}"))?;
        for (number, line) in BufReader::new(file).lines().enumerate() {
            let line = line.with_context(|| format!("cannot read {shown}"))?;
            let done: Execution = serde_json::from_str(&line)
                .with_context(|| format!("{shown}, line {}", number + 1))?;
            run.connections += 1;
            run.received_bytes += done.received_bytes;
            if let Some(finished_ns) = done.finished_ns.filter(|_| done.outcome == "Completed") {
                run.completed += 1;
                run.completion_ns.push(finished_ns.saturating_sub(done.started_ns));
            }
        }
        read_packet_table(&directory.join("packets.parquet"), &mut |row| {
            run.entered += u64::from(row.entered_ns.is_some());
            run.lost += u64::from(row.fate == Fate::Lost);
            run.reordered += u64::from(row.reordered);
            run.delay_ns.extend(row.delay_ns.and_then(|delay| u64::try_from(delay).ok()));
            Ok(())
        })?;
        run.completion_ns.sort_unstable();
        run.delay_ns.sort_unstable();
        Ok(run)
    }
}

/// The quantile of sorted values, and half of the interval in which it is with a probability of 95 %.
fn quantile(sorted: &[u64], q: f64) -> Option<(f64, f64)> {
    let last = sorted.len().checked_sub(1)?;
    let rank = last as f64 * q;
    let spread = NORMAL_95 * (sorted.len() as f64 * q * (1.0 - q)).sqrt();
    let at = |rank: f64| sorted[rank.round().clamp(0.0, last as f64) as usize] as f64;
    Some((at(rank), (at(rank + spread) - at(rank - spread)) / 2.0))
}

fn drawn(name: &str, unit_ns: f64, values: [&[u64]; 2], q: f64) -> Figure {
    let [first, second] = values.map(|values| quantile(values, q));
    let value = |of: Option<(f64, f64)>| of.map(|(value, _)| value / unit_ns);
    let noise = first.zip(second).map(|(one, other)| one.1.hypot(other.1) / unit_ns);
    figure(name, value(first), value(second), noise)
}

fn share(name: &str, [first, second]: [(u64, u64); 2]) -> Figure {
    let of = |(part, all): (u64, u64)| (all > 0).then(|| part as f64 / all as f64);
    let all = (first.1 + second.1) as f64;
    let pooled = (first.0 + second.0) as f64 / all.max(1.0);
    let noise = (first.1 > 0 && second.1 > 0).then(|| {
        let both = 1.0 / first.1 as f64 + 1.0 / second.1 as f64;
        NORMAL_95 * (pooled * (1.0 - pooled) * both).sqrt()
    });
    figure(name, of(first), of(second), noise)
}

fn figure(name: &str, first: Option<f64>, second: Option<f64>, noise: Option<f64>) -> Figure {
    let difference = first.zip(second).map(|(first, second)| second - first);
    Figure { name: name.to_owned(), first, second, difference, noise }
}

/// The figures of two directories of results.
///
/// # Errors
/// When a file of either cannot be read, or is not what a run writes.
pub fn compared(first: &Path, second: &Path) -> Result<Vec<Figure>> {
    let runs = [Run::read(first)?, Run::read(second)?];
    let counted = |name: &str, of: fn(&Run) -> u64| {
        let [first, second] = runs.each_ref().map(|run| Some(of(run) as f64));
        figure(name, first, second, None)
    };
    let [one, other] = &runs;
    let completion = [&one.completion_ns[..], &other.completion_ns[..]];
    let delay = [&one.delay_ns[..], &other.delay_ns[..]];
    Ok(vec![
        counted("connections", |run| run.connections),
        counted("connections_completed", |run| run.completed),
        counted("received_bytes", |run| run.received_bytes),
        drawn("completion_p50_s", 1e9, completion, 0.5),
        drawn("completion_p90_s", 1e9, completion, 0.9),
        drawn("completion_p99_s", 1e9, completion, 0.99),
        counted("packets", |run| run.entered),
        drawn("delay_p50_us", 1e3, delay, 0.5),
        drawn("delay_p90_us", 1e3, delay, 0.9),
        drawn("delay_p99_us", 1e3, delay, 0.99),
        share("loss", runs.each_ref().map(|run| (run.lost, run.entered))),
        share("reordered", runs.each_ref().map(|run| (run.reordered, run.entered))),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    /// Of two samples of one law the median differs by more than the noise in about 5 of 100 cases.
    #[test]
    fn noise_is_the_difference_by_chance() {
        let sample = |seed| {
            let mut rng = Rng::new(seed, 1, 0);
            let mut values: Vec<u64> =
                (0..2_000).map(|_| (-1e6 * (1.0 - rng.unit()).ln()) as u64).collect();
            values.sort_unstable();
            values
        };
        let beyond = |q: f64| {
            let cases = (0..400).filter(|&seed| {
                let (one, other) = (sample(2 * seed), sample(2 * seed + 1));
                let figure = drawn("x", 1.0, [&one, &other], q);
                figure.difference.zip(figure.noise).is_some_and(|(far, noise)| far.abs() > noise)
            });
            cases.count()
        };
        for q in [0.5, 0.9] {
            let beyond = beyond(q);
            assert!((8..=34).contains(&beyond), "{beyond} of 400 at {q}");
        }
        let losses = (0..400).filter(|&seed| {
            let mut rng = Rng::new(seed, 2, 0);
            let mut lost = || (0..5_000).filter(|_| rng.unit() < 0.01).count() as u64;
            let figure = share("loss", [(lost(), 5_000), (lost(), 5_000)]);
            figure.difference.zip(figure.noise).is_some_and(|(far, noise)| far.abs() > noise)
        });
        let beyond = losses.count();
        assert!((8..=34).contains(&beyond), "{beyond} of 400");
    }

    #[test]
    fn empty_data_give_no_figures() {
        assert_eq!(quantile(&[], 0.5), None);
        let empty = share("loss", [(0, 0), (1, 2)]);
        assert_eq!((empty.first, empty.difference, empty.noise), (None, None, None));
    }
}
