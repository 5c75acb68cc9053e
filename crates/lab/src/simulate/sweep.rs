//! All runs of a sweep over threads: a queue of runs, results in their order.
//!
//! A run is a function of its scenario and its seed, so that threads decide when a run is made and
//! nothing else. Each thread takes the next run from the list; outcomes go to the run's own place.

use std::io::{IsTerminal, stderr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::router::RouterFiles;
use anyhow::{Result, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use nilometer_sim::run::run;
use nilometer_sim::{Assembly, Outcome, Scenario};
use nilometer_traffic::TrafficModel;

/// Steps of the bar for a run.
const STEPS: u64 = 100;
/// Most runs of a sweep.
pub const RUNS_MAX: usize = 1_000_000;

/// One run of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Number of its point.
    pub point: usize,
    /// Its seed.
    pub seed: u64,
}

/// The outcome of a run, or nothing where it was not started or not completed.
pub type Made = Option<Outcome>;

/// Every run of the points' scenarios: each point's seeds follow each other.
///
/// # Errors
/// More than [`RUNS_MAX`], or none at a point.
pub fn runs(scenarios: &[Scenario]) -> Result<Vec<Run>> {
    let total: u64 = scenarios.iter().map(|scenario| u64::from(scenario.seeds)).sum();
    if scenarios.iter().any(|scenario| scenario.seeds == 0) {
        return Err(anyhow!("seeds is at least 1"));
    }
    if total > RUNS_MAX as u64 {
        return Err(anyhow!("{total} runs are requested, the limit is {RUNS_MAX}"));
    }
    let of_point = |(point, scenario): (usize, &Scenario)| {
        let first = scenario.seed;
        (0..u64::from(scenario.seeds))
            .map(move |number| Run { point, seed: first.wrapping_add(number) })
    };
    Ok(scenarios.iter().enumerate().flat_map(of_point).collect())
}

/// How a sweep is made.
#[derive(Clone, Copy, Debug)]
pub struct Effort<'a> {
    /// The number of threads.
    pub threads: usize,
    /// Until this is set.
    pub stop: &'a AtomicBool,
}

/// Makes all runs; of each point its scenario, its models and its routers.
///
/// # Errors
/// A scenario that cannot be set up.
pub fn sweep(
    (scenarios, models, routers): (&[Scenario], &[Vec<TrafficModel>], &[RouterFiles]),
    runs: &[Run],
    effort: Effort<'_>,
) -> Result<Vec<Made>> {
    let places: Vec<Mutex<Made>> = runs.iter().map(|_| Mutex::new(None)).collect();
    let failed: Mutex<Option<anyhow::Error>> = Mutex::new(None);
    let next = AtomicUsize::new(0);
    let bar = bar(runs.len());
    let Effort { threads, stop } = effort;
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(one) = runs.get(number) else { break };
            let (scenario, models) = (&scenarios[one.point], &models[one.point]);
            let assembly = routers[one.point].assemble(scenario, models, one.seed);
            let outcome = assembly.map(|assembly| make(assembly, one.seed, &bar, stop));
            match outcome {
                Ok(outcome) => *places[number].lock().expect("a place") = outcome,
                Err(error) => {
                    *failed.lock().expect("a place") = Some(error.into());
                    next.store(runs.len(), Ordering::Relaxed);
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, runs.len().max(1)) {
            scope.spawn(work);
        }
    });
    bar.finish_and_clear();
    if let Some(error) = failed.into_inner().expect("a place") {
        return Err(error);
    }
    Ok(places.into_iter().map(|place| place.into_inner().expect("a place")).collect())
}

/// Makes one run.
fn make(assembly: Assembly, seed: u64, bar: &ProgressBar, stop: &AtomicBool) -> Made {
    let mut shown = 0;
    let mut show = |part: f64| {
        let steps = ((part * STEPS as f64) as u64).min(STEPS);
        if steps > shown {
            bar.inc(steps - shown);
            shown = steps;
        }
    };
    let ended = run(assembly, seed, (), &mut |part| {
        show(part);
        !stop.load(Ordering::Relaxed)
    });
    if ended.is_some() {
        show(1.0);
    }
    ended.map(|(outcome, ())| outcome)
}

/// A bar with the time that is left, on a terminal.
fn bar(runs: usize) -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = "{spinner} simulating [{bar:30}] {percent} % of {msg}, {eta} left";
    let style = ProgressStyle::with_template(template).expect("a sound template");
    let bar = ProgressBar::new(runs as u64 * STEPS).with_style(style.progress_chars("=> "));
    let plural = if runs == 1 { "" } else { "s" };
    bar.with_message(format!("{runs} run{plural}"))
}
