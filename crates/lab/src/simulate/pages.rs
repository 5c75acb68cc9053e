//! From the result of a simulation to its directory: the figures, every flow, and the page.

use std::num::NonZeroUsize;
use std::thread;

use anyhow::{Context, Result};
use nilometer_sim::Outcome;
use nilometer_sim::overload::Row;
use nilometer_sim::speedup::{SpeedupPlan, SpeedupRow, sweep};
use nilometer_sim::stress::run;
use toml::Value;

use super::paper::as_shipped;
use super::perform::{Performed, Sweep};
use super::result::RESULT_FILE;
use super::stress::{StressPoint, StressReport};
use super::template::Template;
use crate::simulate::page::arrangement::number;
use crate::simulate::page::shares::Shares;
use crate::simulate::page::stress::StressPage;
use crate::simulate::page::sweep::SweepPage;
use crate::simulate::page::{stress, sweep as sweep_page};
use nilometer_files::document::results::{Directory, ResultFile};
use nilometer_files::table::simulated::{FlowRow, SimulatedWriter};
use nilometer_report::PAGE_FILE;

/// Hostile loads at each speed-up.
const HOSTILE_LOADS: u64 = 12;

impl Sweep {
    /// Writes the results, [`RESULT_FILE`] first.
    ///
    /// # Errors
    /// What the file system refuses.
    pub fn write(&self, performed: &Performed, directory: &Directory) -> Result<()> {
        directory.file(RESULT_FILE).write_json(&performed.result)?;
        self.write_flows(performed, &directory.file("flows.parquet"))?;
        write_sweep(&directory.file(PAGE_FILE), self, performed)
    }

    fn write_flows(&self, performed: &Performed, to: &ResultFile) -> Result<()> {
        let mut table = SimulatedWriter::on(to.draft()?)?;
        for (run, outcome) in self.runs.iter().zip(&performed.made) {
            for (number, flow) in
                outcome.iter().flat_map(|outcome| outcome.flows.iter().enumerate())
            {
                table.write(&FlowRow { point: run.point, seed: run.seed, number, flow })?;
            }
        }
        table.finish(&self.template.text).context("flows.parquet")
    }
}

/// Writes the results, [`RESULT_FILE`] first; the rows of each point in `series.json`.
///
/// # Errors
/// What the file system refuses.
pub fn write_stress(
    template: &Template,
    report: &StressReport,
    points: &[StressPoint],
    directory: &Directory,
) -> Result<()> {
    directory.file(RESULT_FILE).write_json(report)?;
    directory.file("scenario.toml").write(template.text.as_bytes())?;
    let series: Vec<&Vec<Row>> = points.iter().map(|point| &point.series).collect();
    directory.file("series.json").write(serde_json::to_string(&series)?.as_bytes())?;
    stress_page(directory, template, report, points)
}

/// Goodput by fair share of the measured flows of a run.
fn ratios(outcome: &Outcome) -> Vec<f64> {
    outcome.flows.iter().filter_map(|flow| flow.share.map(|share| flow.goodput / share)).collect()
}

/// What each flow got at each point at which a run was made.
fn shares(made: &Sweep, performed: &Performed) -> Vec<Shares> {
    let mut runs: Vec<Vec<Vec<f64>>> = vec![Vec::new(); made.points.len()];
    for (run, outcome) in made.runs.iter().zip(&performed.made) {
        runs[run.point].extend(outcome.as_ref().map(ratios));
    }
    runs.iter().filter(|runs| !runs.is_empty()).map(|runs| Shares::of(runs)).collect()
}

/// The value of the numeric axis at which flows are shown: the shipped one, or the default.
fn reference(template: &Template) -> Option<f64> {
    let numeric = |(_, values): &&(String, Vec<Value>)| {
        values.len() > 1 && values.iter().all(|value| number(value).is_some())
    };
    let axes = template.axes.iter().rev().filter(numeric);
    let (key, values) = axes.max_by_key(|(_, values)| values.len())?;
    let own = template.parameters.iter().find(|(known, _)| known == key).map(|(_, v)| v.clone());
    let candidates = [as_shipped(template.name(), key), own];
    let known = candidates.into_iter().flatten().find(|value| values.contains(value));
    known.as_ref().and_then(number)
}

/// Writes the page of a sweep.
///
/// # Errors
/// What the file system refuses.
fn write_sweep(to: &ResultFile, made: &Sweep, performed: &Performed) -> Result<()> {
    let page = sweep_page::render(&SweepPage {
        result: &performed.result,
        axes: &made.template.axes,
        shares: &shares(made, performed),
        reference: reference(&made.template),
        scenario: &made.template.text,
    });
    to.write(page.as_bytes())
}

/// Writes the page of a stress test; runs the first point under each set of equations again, and at
/// other speed-ups.
///
/// # Errors
/// What the file system refuses.
fn stress_page(
    directory: &Directory,
    template: &Template,
    report: &StressReport,
    points: &[StressPoint],
) -> Result<()> {
    let Some(first) = points.first() else { return Ok(()) };
    let plan = &first.plan;
    let mut runs = Vec::new();
    for variant in plan.variants() {
        runs.push(run(plan, variant)?);
    }
    let speedups = speedups(first, template.seed())?;
    directory.file("speedup.json").write_json(&speedups)?;
    let page = stress::render(&StressPage {
        report,
        points,
        plan,
        runs: &runs,
        speedups: &speedups,
        scenario: &template.text,
    });
    directory.file(PAGE_FILE).write(page.as_bytes())
}

/// The stress test and hostile loads at speed-ups from one to two, shared out to all cores.
fn speedups(point: &StressPoint, seed: u64) -> Result<Vec<SpeedupRow>> {
    let all = SpeedupPlan::default();
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let part = |speedups: &[f64]| {
        sweep(&SpeedupPlan {
            stress: point.plan,
            speedups: speedups.to_vec(),
            hostile_loads: HOSTILE_LOADS,
            seed,
            ..all
        })
    };
    thread::scope(|scope| {
        let pieces = all.speedups.chunks(all.speedups.len().div_ceil(threads).max(1));
        let started: Vec<_> = pieces.map(|piece| scope.spawn(move || part(piece))).collect();
        let mut rows = Vec::new();
        for one in started {
            rows.extend(one.join().expect("a sweep does not panic")?);
        }
        Ok(rows)
    })
}
