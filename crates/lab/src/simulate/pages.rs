//! From what a simulation came to, to its page: what every flow got, and what the paper says of it.

use std::num::NonZeroUsize;
use std::thread;

use anyhow::Result;
use nilometer_sim::Outcome;
use nilometer_sim::speedup::{SpeedupPlan, SpeedupRow, sweep};
use nilometer_sim::stress::run;
use toml::Value;

use super::claims::section7::{self, RTT_MS};
use super::claims::{Claim, Measured};
use super::perform::{Performed, Sweep};
use super::result::{PointResult, shown_value};
use super::shipped;
use super::stress::{StressPoint, StressReport};
use super::template::Template;
use crate::simulate::page::arrangement::number;
use crate::simulate::page::shares::Shares;
use crate::simulate::page::stress::StressPage;
use crate::simulate::page::sweep::SweepPage;
use crate::simulate::page::{stress, sweep as sweep_page};
use nilometer_files::document::results::{Directory, ResultFile};
use nilometer_report::PAGE_FILE;

/// The scenario that section 7 of the paper is about.
const OF_PAPER: &str = "qsdrr";
/// What its sentences tell apart.
const OWN_AXES: [&str; 3] = ["discipline", "buffer_packets", "rtt_ms"];
/// Hostile loads at each speed-up.
const HOSTILE_LOADS: u64 = 12;

/// The value that a parameter has in the scenario as it is shipped.
fn as_shipped(name: &str, key: &str) -> Option<Value> {
    let shipped = shipped::find(name)?;
    let template = Template::read(shipped.name, shipped.text).ok()?;
    let of = template.parameters.into_iter().find(|(known, _)| known == key);
    of.map(|(_, value)| value)
}

/// The seconds of each run and those of the whole study, where the paper's scenario was shortened.
pub fn shortened(template: &Template) -> Option<[f64; 2]> {
    if template.name() != OF_PAPER {
        return None;
    }
    let shipped = shipped::find(OF_PAPER)?;
    let whole = Template::read(shipped.name, shipped.text).ok()?.duration_s()?;
    template.duration_s().filter(|own| *own < whole).map(|own| [own, whole])
}

/// The sentences of section 7.3, of the paper's scenario; none of any other. They are about the whole
/// study: of a shortened one, most of which is slow start, none is judged. Where more is swept than
/// they tell apart, they are judged at the shipped value, or at the first where that was not run.
pub fn claims(template: &Template, points: &[PointResult]) -> Vec<Claim> {
    if template.name() != OF_PAPER {
        return Vec::new();
    }
    if shortened(template).is_some() {
        return section7::judge(&[]);
    }
    let others = template.axes.iter().filter(|(key, _)| !OWN_AXES.contains(&key.as_str()));
    let at: Vec<(&str, String)> = others
        .filter_map(|(key, values)| {
            let shipped = as_shipped(OF_PAPER, key).filter(|value| values.contains(value));
            let value = shipped.or_else(|| values.first().cloned())?;
            Some((key.as_str(), value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
        })
        .collect();
    let is_there = |point: &&PointResult| {
        at.iter().all(|(key, value)| shown_value(&point.parameters, key) == *value)
    };
    let measured: Vec<Measured> =
        points.iter().filter(is_there).filter_map(|point| Measured::of(point, RTT_MS)).collect();
    section7::judge(&measured)
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
pub fn write_sweep(to: &ResultFile, made: &Sweep, performed: &Performed) -> Result<()> {
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
pub fn write_stress(
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
