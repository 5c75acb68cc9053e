//! The main job, end to end: input, model, plan, bare wire, device, judgement, page.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};
use nilometer_traffic::estimate::Estimate;
use nilometer_traffic::vector_plan::Draw;
use nilometer_traffic::{Plan, PlannedConnection};
use nilometer_wire::{Span, Time};

use super::account::RunRecord;
use super::altered::{alter, cut, fit};
use super::config::{Clock, DutKind, Keep, LabConfig};
use super::host;
use super::leg::{self, Leg, LegLive, LegOutcome};
use super::meter::Likewise;
use super::original::{self, Original};
use super::outcome::Outcome;
use super::part::{Wanted, short};
use super::planning;
use super::progress::Display;
use super::recorded::{self, Learnt};
use super::round_trips::PlayedRoundTrips;
use super::router::QUEUES_FILE;
use super::settle;
use super::source::{self, EstimateRequest};
use super::virtual_lab;
use super::warnings;
use crate::device::fault::{FAULT_FILE, PATH_FILE, REAR_PATH_FILE};
use crate::device::paths::Paths;
use crate::device::truth;
use nilometer_files::document::results::Directory;
use nilometer_files::input::observe::is_pipe;
use nilometer_files::input::records::Progress;
use nilometer_files::input::source::EMBEDDED;
use nilometer_files::table::flows::FlowWriter;
use nilometer_files::table::queues::write_queues;
use nilometer_linux::privilege;
use nilometer_report as report;
use nilometer_routerd::testbed::RouterFile;

/// The stamps of every packet, which has this name when the last of them is written.
const STAMPS_FILE: &str = "packets.parquet";

/// Options that the command line adds to the configuration.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Directory of results.
    pub out: PathBuf,
    /// Replace an existing one.
    pub force: bool,
    /// The command that repeats the run.
    pub command: String,
}

/// How a run ended.
pub enum Ended {
    /// All of it.
    Completed(Box<Outcome>),
    /// A signal ended the traffic; the measurements are judged and kept in this `DIR.partial`.
    Interrupted(Box<Outcome>, PathBuf),
    /// A signal ended the run before the device saw traffic; model and configuration are kept.
    Early(PathBuf),
}

/// Runs the lab. Needs to be called while the process has one thread, because an unprivileged one
/// moves into a user namespace of its own.
///
/// # Errors
/// Where an input, the configuration or the machine does not allow it. Nothing is left then, unless every
/// packet had been stamped: what was measured stays in `DIR.partial`, and the error says so.
pub fn run(config: &LabConfig, options: &RunOptions, stop: &Arc<AtomicBool>) -> Result<Ended> {
    config.check()?;
    virtual_lab::check(config)?;
    Directory::check(&options.out, options.force)?;
    let router = config.router.as_deref().map(RouterFile::read).transpose()?;
    if config.clock == Clock::Real {
        match config.dut {
            DutKind::External => privilege::acquire_root("dut external")?,
            _ => privilege::acquire().map(drop)?,
        }
        leg::rehearse(config, router.as_ref())?;
    }
    let display = Display::new();
    let (mut estimate, original) = learn(config, &display)?;
    alter(&mut estimate.model, config)?;
    let draw = if config.exact { Draw::Exact } else { Draw::Seed(config.seed) };
    let plan = planning::plan(&estimate.model, draw, config.traffic.threads)?;
    let round_trips = match (&estimate.model.vectors, estimate.model.generation.round_trips) {
        (Some(vectors), true) => Some(PlayedRoundTrips::of(&plan, vectors)?),
        _ => None,
    };
    let directory = Directory::create(&options.out, options.force)?;
    directory.file("model.json").write_json(&estimate.model)?;
    for (name, text) in config.as_kept(router.as_ref())? {
        directory.file(&name).write(text.as_bytes())?;
    }
    let early_warnings =
        router.as_ref().map_or_else(Vec::new, |file| warnings::before(file, &plan));
    early_warnings.iter().for_each(|warning| display.warn(warning));
    let trial = Trial {
        config,
        options,
        estimate: &estimate,
        plan: &plan,
        directory: &directory,
        router: router.as_ref(),
        round_trips: round_trips.as_ref(),
        early_warnings: &early_warnings,
        original: original.as_ref(),
    };
    let legs = match trial.legs(&display, stop) {
        Err(error) => return Err(directory.keep_after(error, STAMPS_FILE)),
        Ok(legs) => legs,
    };
    Ok(match legs {
        Legs::Stopped => Ended::Early(directory.keep()),
        Legs::Played(outcome) if outcome.interrupted => {
            Ended::Interrupted(outcome, directory.keep())
        }
        Legs::Played(outcome) => {
            directory.finish()?;
            Ended::Completed(outcome)
        }
    })
}

fn request(config: &LabConfig) -> EstimateRequest {
    EstimateRequest {
        interval_s: config.model.interval_s,
        harpoon: config.model.harpoon,
        bound_s: config.model.inter_connection_bound_s,
        rate: config.rate,
        refuses_piped_packets: config.plays_vectors(),
        clients: config.traffic.clients.clone(),
        servers: config.traffic.servers.clone(),
        ..EstimateRequest::of(config.input.clone())
    }
}

/// The model, and the original's part where the inputs show connections that can be played as they were.
///
/// # Errors
/// Where an input cannot be read, or holds nothing that can be played as requested.
pub fn learn(config: &LabConfig, display: &Display) -> Result<(Estimate, Option<Original>)> {
    let mut why = None;
    if config.plays_vectors() {
        display.reading_begins("learning the traffic");
        let progress = &mut |progress: &Progress<'_>| display.reading(progress);
        match played(config, progress)? {
            Learnt::Played(both) => {
                if config.keep != Keep::Volume {
                    bail!(
                        "--match bitrate is of an original that is fitted into a minute: add --fit, or leave it out"
                    );
                }
                return Ok((both.0, Some(both.1)));
            }
            Learnt::Laws(because) => why = because,
        }
    }
    if config.rate.is_some() {
        bail!(
            "--rate (rate) applies to captures only, and here is none whose packets could be played"
        );
    }
    if config.part.is_some() || config.spread {
        let flag = if config.spread { "--spread" } else { "--part" };
        let because = why.map(|why| format!(": {why}")).unwrap_or_default();
        bail!(
            "{flag} needs connections to play, and here are laws only{because} (--fit, --harpoon and --interval \
             ask for laws)"
        );
    }
    let mut estimate = estimate(config, display)?;
    estimate.warnings.extend(
        why.map(|why| format!("{why}: the laws of the records are played, not their connections.")),
    );
    Ok((estimate, None))
}

/// The connections of packets; where the inputs hold none, those of flow records.
fn played(config: &LabConfig, progress: &mut dyn FnMut(&Progress<'_>)) -> Result<Learnt> {
    let mut request = request(config);
    if request.inputs.is_empty() {
        request.inputs.push(EMBEDDED.into());
    }
    let wanted = Wanted { part: config.part, duration_s: config.duration_s, spread: config.spread };
    if let Some(learnt) = original::learn(&request, &wanted, progress)? {
        return Ok(Learnt::Played(Box::new(learnt)));
    }
    if config.rate.is_some() {
        return Ok(Learnt::Laws(None));
    }
    if request.inputs.iter().any(|input| is_pipe(input)) {
        return Ok(Learnt::Laws(Some("a pipe can be read once only".to_owned())));
    }
    recorded::learn(&request, &wanted, progress)
}

/// The model, fitted to the requested duration.
fn estimate(config: &LabConfig, display: &Display) -> Result<Estimate> {
    let request = request(config);
    display.reading_begins("learning the traffic");
    let mut estimate = match &config.model.file {
        Some(path) => source::given(path, &request)?,
        None => source::model(&request, &mut |progress| display.reading(progress))?,
    };
    if config.fit {
        // Whole sessions keep their own clock; a fitted model is played by its laws.
        estimate.model.vectors = None;
    }
    match config.duration_s {
        None if estimate.model.vectors.is_some() => {}
        None => estimate.warnings.extend(fit(&mut estimate.model, config.keep)),
        Some(seconds) => {
            let short = short(estimate.model.duration_s(), "--duration", seconds);
            estimate.warnings.extend(short.map(|it| it.to_string()));
            cut(&mut estimate.model, seconds)?;
        }
    }
    Ok(estimate)
}

/// What came of the legs.
enum Legs {
    /// The device saw traffic: all of it, or the part until a signal.
    Played(Box<Outcome>),
    /// A signal came before.
    Stopped,
}

/// The connections of a plan that start within so long of the first of them, moved so that it starts at once:
/// no run waits for a calibration of silence.
fn opening(plan: &Plan, within: Span) -> Vec<PlannedConnection> {
    let Some(first) = plan.connections.first() else { return Vec::new() };
    let moved = |one: &PlannedConnection| PlannedConnection {
        start: Time::from_nanos(one.start.as_nanos() - first.start.as_nanos()),
        ..*one
    };
    plan.head(first.start + within).iter().map(moved).collect()
}

/// Everything the legs share.
struct Trial<'a> {
    config: &'a LabConfig,
    options: &'a RunOptions,
    estimate: &'a Estimate,
    plan: &'a Plan,
    directory: &'a Directory,
    router: Option<&'a RouterFile>,
    /// The paths from the original's round trips, where they are played.
    round_trips: Option<&'a PlayedRoundTrips>,
    /// What was warned of before.
    early_warnings: &'a [String],
    /// The original's part, where it is known packet by packet.
    original: Option<&'a Original>,
}

impl Trial<'_> {
    fn legs(&self, display: &Display, stop: &Arc<AtomicBool>) -> Result<Legs> {
        let head = opening(self.plan, Span::from_secs_f64(self.calibrated_s()));
        let wire = match &head[..] {
            [] => None,
            head => Some(self.calibrate(head, display, stop)?),
        };
        if stop.load(Ordering::Acquire) {
            return Ok(Legs::Stopped);
        }
        if let Some(wire) = wire.as_ref().filter(|_| self.config.clock == Clock::Real) {
            let host_warnings = host::host_warnings(self.plan, &head, &wire.executions);
            host_warnings.iter().for_each(|warning| display.warn(&warning.to_string()));
        }
        let name = self.config.dut.name();
        display.phase(&format!("playing {} connections through {name}", self.plan.len()));
        let captures = ["client.pcapng", "server.pcapng"].map(|name| self.directory.file(name));
        let leg = Leg {
            captures: self.config.meter.pcap.then_some(captures),
            stamps: Some(self.directory.file(STAMPS_FILE)),
            likewise: (!self.plan.scripts.is_empty() && !self.is_recorded()).then(|| Likewise {
                ns: self.plan.end.as_nanos(),
                one_side: self.original.and_then(|original| original.observed.one_side()),
            }),
            ..self.leg(self.config.dut, &self.plan.connections)
        };
        let (live, log) = (LegLive::default(), self.directory.file("live.ndjson"));
        let seconds = self.plan.end.as_secs_f64();
        let mut made = display
            .during(&live, seconds, Some(&log), || virtual_lab::play_by_clock(&leg, &live, stop))?;
        if let Some(detail) = self.original.and_then(|original| original.detail) {
            let part_ns = [made.origin_ns, self.plan.end.as_nanos()];
            made.sighted.observed = Some(recorded::observe(&made.sighted.records, detail, part_ns));
        }
        display.phase("judging");
        self.judge(&made, wire.as_ref())
    }

    /// Is the original known by flow records?
    fn is_recorded(&self) -> bool {
        self.original.is_some_and(|original| original.detail.is_some())
    }

    fn leg<'b>(&'b self, dut: DutKind, connections: &'b [PlannedConnection]) -> Leg<'b> {
        let ends = self.plan.intervals.iter().map(|interval| interval.end.as_nanos());
        Leg {
            dut,
            config: self.config,
            router: self.router,
            paths: self.paths(),
            connections,
            scripts: &self.plan.scripts,
            end_ns: self.plan.end.as_nanos(),
            interval_ends_ns: ends.collect(),
            likewise: None,
            captures: None,
            stamps: None,
        }
    }

    /// The paths in front of the device and behind it.
    fn paths(&self) -> [Option<&Paths>; 2] {
        match self.round_trips {
            Some(played) => {
                let [front, rear] = &played.paths;
                [front, rear].map(|paths| Some(paths).filter(|paths| !paths.pair.is_empty()))
            }
            None => [self.config.path.as_ref(), None],
        }
    }

    /// How many seconds of the plan are played over the bare wire first; a wire needs none.
    fn calibrated_s(&self) -> f64 {
        if self.config.dut == DutKind::Wire { 0.0 } else { self.config.calibration.seconds }
    }

    /// The first connections of the same plan over a bare wire: the calibration cable.
    fn calibrate(
        &self,
        head: &[PlannedConnection],
        display: &Display,
        stop: &Arc<AtomicBool>,
    ) -> Result<LegOutcome> {
        display.phase(&format!("calibrating: {} connections over a bare wire", head.len()));
        let lead_s = self.plan.connections.first().map_or(0.0, |first| first.start.as_secs_f64());
        let seconds = self.calibrated_s().min(self.plan.end.as_secs_f64() - lead_s);
        let end_ns = (seconds * 1e9) as u64;
        let leg = Leg { end_ns, ..self.leg(DutKind::Wire, head) };
        let live = LegLive::default();
        display.during(&live, seconds, None, || virtual_lab::play_by_clock(&leg, &live, stop))
    }

    fn judge(&self, made: &LegOutcome, wire: Option<&LegOutcome>) -> Result<Legs> {
        let page = self.directory.done().join(report::PAGE_FILE);
        let interrupted = made.interrupted_ns.is_some();
        let at = if interrupted { self.directory.partial().join(report::PAGE_FILE) } else { page };
        let (outcome, story) = settle::settle(&RunRecord {
            config: self.config,
            command: &self.options.command,
            estimate: self.estimate,
            plan: self.plan,
            made,
            wire,
            page: &at,
            router: self.router,
            round_trips: self.round_trips.map(|played| played.outcome),
            early_warnings: self.early_warnings,
            original: self.original,
        });
        let mut flows = FlowWriter::on(self.directory.file("flows.parquet").draft()?)?;
        for record in &made.sighted.records {
            flows.write(record)?;
        }
        flows.finish(&[])?;
        settle::write_execution(&self.directory.file("execution.ndjson"), self.plan, made)?;
        if let Some(router) = &made.router {
            write_queues(&self.directory.file(QUEUES_FILE), router.queue_rows())?;
        }
        let boxes =
            [(&made.fault, FAULT_FILE), (&made.path, PATH_FILE), (&made.rear_path, REAR_PATH_FILE)];
        for (seen, file) in boxes {
            if let Some(seen) = seen {
                truth::write(&self.directory.file(file), &seen.packets)?;
            }
        }
        self.directory.file("result.json").write_json(&outcome)?;
        report::save(self.directory, &story)?;
        Ok(Legs::Played(Box::new(outcome)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calibration_begins_where_the_first_connection_does() {
        let model =
            source::model(&EstimateRequest::of(Vec::new()), &mut |_| {}).expect("a model").model;
        let mut plan = planning::plan(&model, Draw::Seed(1), 1).expect("a plan");
        let late = Span::from_secs_f64(30.0);
        let before = opening(&plan, Span::from_secs_f64(2.0));
        plan.connections.iter_mut().for_each(|one| one.start += late);
        let after = opening(&plan, Span::from_secs_f64(2.0));
        assert_eq!((after[0].start, after.len()), (Time::ZERO, before.len()));
        assert!(after.len() > 5 && after == before, "the same connections at the same times");
        assert!(opening(&plan, Span::ZERO).is_empty(), "none is left out by --calibration 0");
    }
}
