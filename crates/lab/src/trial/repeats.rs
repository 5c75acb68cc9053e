//! A lab run several times over: each run with a seed of its own, and what they have in common.
//!
//! A single run does not show the variation between runs. Run *k* of `DIR` has the requested seed plus *k* -
//! 1, and results of its own in `DIR-k`; `DIR` has the summary of all runs, with 95 % intervals of the means
//! over runs (Student's law), since runs are independent and packets within one are not.

use nilometer_files::say;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Result, bail};
use nilometer_likeness::Likeness;

use super::bounds::{Bounds, out_of_bounds};
use super::config::LabConfig;
use super::outcome::Outcome;
pub use super::over_runs::{LawOverRuns, OneRun, OverRuns, Repeats};
use super::repeats_page;
use super::run::{Ended, RunOptions, run as run_once};
use nilometer_files::document::results::Directory;
use nilometer_files::tool;
use nilometer_report::PAGE_FILE;

/// Runs at most.
pub const REPEATS_MAX: u32 = 1_000;

/// How a row of runs ended.
pub enum EndedRow {
    /// All runs, or those before a signal; then with the partial results of the run that it stopped.
    Made(Box<Repeats>, Option<PathBuf>),
    /// A signal came before the first run had been made.
    Early(PathBuf),
}

/// Makes `count` runs and sums them up.
///
/// # Errors
/// When a run fails as [`run_once`] does: the runs before it stay, and the error names the run. And when
/// `count` is out of its range.
pub fn run(
    config: &LabConfig,
    options: &RunOptions,
    (count, bounds): (u32, &Bounds),
    stop: &Arc<AtomicBool>,
) -> Result<EndedRow> {
    if !(2..=REPEATS_MAX).contains(&count) {
        bail!("--repeats {count}: give a number from 2 to {REPEATS_MAX}");
    }
    let options = &RunOptions { out: named(&options.out)?, ..options.clone() };
    Directory::check(&options.out, options.force)?;
    for number in 1..=count {
        Directory::check(&beside(&options.out, number), options.force)?;
    }
    let mut made: Vec<(OneRun, Outcome)> = Vec::new();
    let mut kept_of = None;
    for number in 1..=count {
        let seed = config.seed.wrapping_add(u64::from(number) - 1);
        let out = beside(&options.out, number);
        say!("run {number} of {count}, seed {seed}");
        let one = LabConfig { seed, ..config.clone() };
        let options = RunOptions { out: out.clone(), ..options.clone() };
        let ended = run_once(&one, &options, stop)
            .map_err(|error| error.context(format!("run {number} of {count}")))?;
        match ended {
            Ended::Completed(outcome) => made.push((one_run(&out, &outcome, bounds), *outcome)),
            Ended::Interrupted(_, kept) | Ended::Early(kept) if made.is_empty() => {
                return Ok(EndedRow::Early(kept));
            }
            Ended::Interrupted(_, kept) | Ended::Early(kept) => {
                kept_of = Some(kept);
                break;
            }
        }
    }
    let directory = Directory::create(&options.out, options.force)?;
    let page = options.out.join(PAGE_FILE);
    let whole = Repeats {
        report: std::path::absolute(&page).unwrap_or(page).display().to_string(),
        ..sum(made, kept_of.is_some())
    };
    directory.file("result.json").write_json(&whole)?;
    directory.file(PAGE_FILE).write(repeats_page::render(&whole).as_bytes())?;
    directory.finish()?;
    Ok(EndedRow::Made(Box::new(whole), kept_of))
}

/// The directory by its own name, however it was given: `.` has a name, too.
fn named(out: &Path) -> Result<PathBuf> {
    let whole = out.canonicalize().or_else(|_| std::path::absolute(out))?;
    if whole.file_name().is_none() {
        bail!("--out {}: has no name that runs could be named after", out.display());
    }
    Ok(whole)
}

/// The directory of one run: `DIR-k`.
fn beside(out: &Path, number: u32) -> PathBuf {
    let mut name: OsString = out.file_name().unwrap_or_default().to_owned();
    name.push(format!("-{number}"));
    out.with_file_name(name)
}

fn one_run(out: &Path, outcome: &Outcome, bounds: &Bounds) -> OneRun {
    OneRun {
        directory: out.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        seed: outcome.seed,
        packets: outcome.packets.entered,
        lost: outcome.packets.lost,
        findings: out_of_bounds(outcome, bounds),
    }
}

fn sum(made: Vec<(OneRun, Outcome)>, interrupted: bool) -> Repeats {
    let (runs, outcomes): (Vec<OneRun>, Vec<Outcome>) = made.into_iter().unzip();
    let over = |of: &dyn Fn(&Outcome) -> Option<f64>| {
        OverRuns::of(outcomes.iter().filter_map(of).collect())
    };
    let loss = |one: &Outcome| {
        (one.packets.entered > 0).then(|| one.packets.lost as f64 / one.packets.entered as f64)
    };
    let first = outcomes.first();
    Repeats {
        format: "nilometer-repeats/1".to_owned(),
        version: tool::version().to_owned(),
        dut: first.map(|one| one.dut.clone()).unwrap_or_default(),
        input: first.map(|one| one.input.clone()).unwrap_or_default(),
        interrupted,
        likeness: laws(&outcomes),
        delay_p50_ns: over(&|one| one.delay_ns.as_ref().map(|delay| delay.p50 as f64)),
        delay_p99_ns: over(&|one| one.delay_ns.as_ref().map(|delay| delay.p99 as f64)),
        loss: over(&loss),
        volume_ratio: over(&|one| one.coverage.map(|coverage| coverage.volume_ratio)),
        report: String::new(),
        runs,
    }
}

fn laws(outcomes: &[Outcome]) -> Vec<LawOverRuns> {
    let Some(first) = outcomes.first() else { return Vec::new() };
    let of = |law: &Likeness| {
        let same = || {
            let all = outcomes.iter().flat_map(|one| &one.likeness);
            all.filter(|other| other.name == law.name)
        };
        LawOverRuns {
            name: law.name.clone(),
            unit: law.unit.clone(),
            cap: law.cap,
            distance: OverRuns::of(same().filter_map(|law| law.distance).collect()),
            verdicts: same().map(|law| law.verdict).collect(),
        }
    };
    first.likeness.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_over_runs_has_the_interval_of_students_law() {
        let few = OverRuns::of(vec![1.0, 2.0, 3.0]);
        // 4.303 standard errors of two degrees of freedom, of 1 / sqrt(3) each.
        let half = 4.302_652_7 / 3f64.sqrt();
        let [low, high] = few.interval.expect("an interval").ends();
        assert!((low - (2.0 - half)).abs() < 1e-6 && (high - (2.0 + half)).abs() < 1e-6);
        assert_eq!((few.mean, OverRuns::of(vec![5.0]).interval), (Some(2.0), None));
        assert_eq!(OverRuns::of(Vec::new()).mean, None);
        assert_eq!(beside(Path::new("a/run"), 3), Path::new("a/run-3"));
    }
}
