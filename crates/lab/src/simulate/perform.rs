//! `nilometer simulate` from a template to its result: points, runs, figures, and the directory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Result, anyhow, bail};
use nilometer_sim::{Outcome, Scenario};
use nilometer_traffic::TrafficModel;

use super::paper;
use super::points::points;
use super::result::{FORMAT, OWN_KEYS, PointResult, SimulationResult, digest, plans};
use super::router::RouterFiles;
use super::sweep::{Effort, Made, Run, runs, sweep};
use super::template::{Parameters, Template};
use super::warning::{Warning, warnings};
use crate::trial::source::{self, EstimateRequest};
use nilometer_files::document::model::read_model;
use nilometer_files::tool;
use nilometer_linux::usage::usage;

/// A sweep ready to be made.
pub struct Sweep {
    /// The file that it comes from.
    pub template: Template,
    /// The parameters of each point.
    pub points: Vec<Parameters>,
    /// The scenario at each point.
    pub scenarios: Vec<Scenario>,
    /// The traffic models of each point's scenario.
    pub models: Vec<Vec<TrafficModel>>,
    /// The routers' files of each point's scenario.
    pub routers: Vec<RouterFiles>,
    /// All runs.
    pub runs: Vec<Run>,
}

/// What was made of a sweep.
pub struct Performed {
    /// The figures.
    pub result: SimulationResult,
    /// The outcome of each run, where it was made.
    pub made: Vec<Made>,
    /// Runs in which something is not accounted for.
    pub unbalanced: Vec<Run>,
}

/// The folder of the files that a scenario names.
fn beside(template: &Template) -> &Path {
    Path::new(&template.label).parent().unwrap_or(Path::new(""))
}

/// The models that a scenario names: files beside its own, or the embedded records' model.
fn models_of(scenario: &Scenario, template: &Template) -> Result<Vec<TrafficModel>> {
    let beside = beside(template);
    let read = |file: &String| match file.as_str() {
        "embedded" => Ok(source::model(&EstimateRequest::of(Vec::new()), &mut |_| {})?.model),
        file => read_model(&beside.join(file)),
    };
    scenario.model.iter().map(|spec| read(&spec.file)).collect()
}

impl Sweep {
    /// Reads every point of `template` and sets each up once, so that any error is reported before
    /// anything is run.
    ///
    /// # Errors
    /// The first error, in one line.
    pub fn new(template: Template) -> Result<Sweep> {
        let label = template.label.clone();
        let own = |(name, _): &&(String, toml::Value)| OWN_KEYS.contains(&name.as_str());
        if let Some((name, _)) = template.parameters.iter().find(own) {
            bail!("{label}: `{name}` is the name of a figure; call the parameter otherwise");
        }
        let points = points(&template)?;
        let scenarios: Vec<Scenario> =
            points.iter().map(|point| template.scenario(point)).collect::<Result<_>>()?;
        let runs = runs(&scenarios).map_err(|error| anyhow!("{label}: {error}"))?;
        let (mut models, mut routers) = (Vec::new(), Vec::new());
        for scenario in &scenarios {
            let own = models_of(scenario, &template)?;
            let mut files = RouterFiles::new(beside(&template));
            let checked = files.read_and_assemble(scenario, &own, scenario.seed);
            checked.map_err(|error| anyhow!("{label}: {error}"))?;
            models.push(own);
            routers.push(files);
        }
        Ok(Sweep { template, points, scenarios, models, routers, runs })
    }

    /// The routers' files beside the scenario's own, by their names, each once.
    pub fn router_files(&self) -> BTreeMap<&str, &str> {
        self.routers.iter().flat_map(RouterFiles::beside).collect()
    }

    /// Makes the runs on `threads` threads until `stop`.
    ///
    /// # Errors
    /// What the kernel or the engine refuses.
    pub fn perform(&self, threads: usize, stop: &AtomicBool) -> Result<Performed> {
        let (before, began) = (usage()?, Instant::now());
        let points = (&self.scenarios[..], &self.models[..], &self.routers[..]);
        let made = sweep(points, &self.runs, Effort { threads, stop })?;
        let wall_seconds = began.elapsed().as_secs_f64();
        let after = usage()?;
        let pairs = self.runs.iter().copied().zip(&made);
        let known: Vec<(Run, &Outcome)> =
            pairs.filter_map(|(run, outcome)| Some((run, outcome.as_ref()?))).collect();
        let points = self.figures(&known);
        let first = &self.scenarios[0];
        let shortened = paper::shortened(&self.template);
        let shortened = shortened.map(|[own_s, whole_s]| Warning::Shortened { own_s, whole_s });
        let warnings = shortened.into_iter().chain(warnings(&points, &self.scenarios, &known));
        let warnings = warnings.map(|warning| warning.to_string()).collect();
        let unbalanced = known.iter().filter(|(_, outcome)| !outcome.is_balanced);
        let unbalanced = unbalanced.map(|(run, _)| *run).collect();
        let result = SimulationResult {
            format: FORMAT,
            scenario: self.template.name().to_owned(),
            about: self.template.about().to_owned(),
            tool: tool::tool(),
            seed: first.seed,
            seeds: first.seeds,
            duration_s: first.duration_s,
            threads,
            runs: known.len(),
            interrupted: known.len() < self.runs.len(),
            digest: digest(&self.runs, &made),
            plans: plans(&known),
            packet_hops: known.iter().map(|(_, outcome)| outcome.packet_hops).sum(),
            cpu_seconds: after.cpu_seconds - before.cpu_seconds,
            wall_seconds,
            peak_rss_bytes: after.peak_rss_bytes,
            claims: paper::claims(&self.template, &points),
            warnings,
            points,
        };
        Ok(Performed { result, made, unbalanced })
    }

    /// The figures of each point at which a run was made.
    fn figures(&self, known: &[(Run, &Outcome)]) -> Vec<PointResult> {
        let mut figures = Vec::new();
        let mut rest = known;
        for (number, parameters) in self.points.iter().enumerate() {
            let count = rest.iter().take_while(|(run, _)| run.point == number).count();
            let (own, others) = rest.split_at(count);
            rest = others;
            if !own.is_empty() {
                let own: Vec<_> = own.iter().map(|(run, outcome)| (run.seed, *outcome)).collect();
                figures.push(PointResult::new(parameters, &self.scenarios[number], &own));
            }
        }
        figures
    }
}
