//! `nilometer lab`: the main job with one command, and its configuration with every default.

use nilometer_files::say;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};

use super::Exit;
use super::device::DeviceArgs;
use super::hosts::HostArgs;
use super::table::{self, Side, fact};
use super::typed::command_line;
use super::wiring::{self, HoldArgs, WiringArgs};
use nilometer_files::document;
use nilometer_files::input::sight::refuse_input;
use nilometer_files::terminal::plain;
use nilometer_lab::trial::bounds::{Bounds, out_of_bounds};
use nilometer_lab::trial::config::{Clock, Keep, LabConfig};
use nilometer_lab::trial::lost::Loss;
use nilometer_lab::trial::outcome::Outcome;
use nilometer_lab::trial::part::Part;
use nilometer_lab::trial::repeats::{self, EndedRow};
use nilometer_lab::trial::repeats_page;
use nilometer_lab::trial::round_trips::PlayRoundTrips;
use nilometer_lab::trial::router::RouterOutcome;
use nilometer_lab::trial::run::{Ended, RunOptions, run as run_trial};
use nilometer_lab::trial::{run_story, signals};
use nilometer_linux::scheduling::Class;
use nilometer_report::format::significant;
use nilometer_report::likeness::word;
use nilometer_report::{self, enough};

/// Arguments of `nilometer lab`.
#[derive(Debug, Args)]
pub struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Model the traffic, play it through the device, stamp every packet and write the report.
    Run(Box<RunArgs>),
    /// Show what a device between two interfaces of this host must be configured with, and check it.
    Wiring(WiringArgs),
    /// Write a LAB.toml with every default, with comments.
    Init(InitArgs),
    /// Hold interfaces for a lab, and restore them when it has ended.
    #[command(hide = true)]
    HoldInterfaces(HoldArgs),
}

#[derive(Debug, Args)]
struct InitArgs {
    /// Output file; standard output by default.
    file: Option<PathBuf>,
    /// Replace an existing file.
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
struct RunArgs {
    /// Captures or flow exports to model, or a LAB.toml (by its extension), see `lab init`. By default an embedded
    /// synthetic sample of one minute: a capture, or flow records with --fit, --harpoon or --interval.
    #[arg(value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    /// A LAB.toml, whatever its extension.
    #[arg(long, value_name = "LAB.toml")]
    config: Option<PathBuf>,
    /// A capture or flow export to model (repeat for several).
    #[arg(long, value_name = "FILE")]
    input: Vec<PathBuf>,
    /// Play this model, from `nilometer model` or `nilometer model new`, instead of estimating one.
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["input", "interval", "bound"])]
    model: Option<PathBuf>,
    /// Directory for results; DIR.partial until the run is done.
    #[arg(short, long, value_name = "DIR", default_value = "nilometer-run")]
    out: PathBuf,
    /// Replace results of an earlier run. A directory with other contents, or with a result file that was changed
    /// since, is refused.
    #[arg(long)]
    force: bool,
    /// Seed of all random choices.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    seed: Option<u64>,
    /// Duration of the part that is played, at the original's speed, in seconds (60). Distributions (--fit, sampled
    /// records, records without TCP flags) are fitted into a minute by default.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    duration: Option<f64>,
    /// The part of the original to play, in seconds; chosen by its volume by default.
    #[arg(long, value_name = "START+LENGTH")]
    part: Option<Part>,
    /// Draw sessions from the whole original instead of from one part of it, if it is longer than the run. The
    /// session rate stays the same, and each connection keeps its own timing.
    #[arg(long, conflicts_with = "part")]
    spread: bool,
    /// Play each connection of the original exactly once, as recorded, independent of the seed.
    #[arg(long)]
    exact: bool,
    /// Play this many times as fast: start times and gaps are divided, think times and durations are not.
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    speed: Option<f64>,
    /// Packet rate of a capture whose packets have no timestamps; they are taken to be evenly spaced.
    #[arg(long, value_name = "PACKETS_PER_SECOND", allow_negative_numbers = true)]
    rate: Option<f64>,
    /// Pass data to TCP as fast as the device allows, instead of at the rate seen in the original.
    #[arg(long)]
    unpaced: bool,
    /// Play the original's round-trip times: paths on both sides of the device delay each pair of hosts by its
    /// handshake times, and pauses are those of the hosts alone. By default (auto), they are played if known.
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "always")]
    round_trips: Option<PlayRoundTrips>,
    /// Fit the whole original into a minute by its distributions: gaps are divided, connections and bytes are kept.
    #[arg(long)]
    fit: bool,
    /// What is preserved when an original is fitted: its volume, or its gaps and bit rate.
    #[arg(long = "match", value_name = "WHAT")]
    keep: Option<Keep>,
    /// Play only Harpoon's five distributions, driven by active sessions, instead of whole connections.
    #[arg(long)]
    harpoon: bool,
    /// IntervalDuration of the estimation, seconds of the original. Plays the original's distributions, fitted into a
    /// minute unless --duration is given.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    interval: Option<f64>,
    /// Bound of the inter-connection time, seconds of the original.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    bound: Option<f64>,
    #[command(flatten)]
    device: DeviceArgs,
    /// Clock of the run: `real`, or `virtual` with simulated hosts and without privileges, for the devices nilometer,
    /// fault and wire.
    #[arg(long, value_name = "CLOCK")]
    clock: Option<Clock>,
    #[command(flatten)]
    hosts: HostArgs,
    /// Scheduling class of our router and of the traffic engines: real-time (within a limit, if the system allows it)
    /// or ordinary.
    #[arg(long, value_name = "CLASS")]
    scheduling: Option<Class>,
    /// Client pool in CIDR notation (repeat for several).
    #[arg(long, value_name = "CIDR")]
    clients: Vec<String>,
    /// Server pool in CIDR notation (repeat for several).
    #[arg(long, value_name = "CIDR")]
    servers: Vec<String>,
    /// Congestion control of every socket; for simulated hosts cubic, reno, bbr, newreno, sack or fulltcp.
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Number of threads of the client engine.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    threads: Option<usize>,
    /// Seconds of calibration over a bare wire; 0 for none.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    calibration: Option<f64>,
    /// Ring memory of the meter on each side, MiB.
    #[arg(long, value_name = "MIB", allow_negative_numbers = true)]
    ring_mib: Option<u32>,
    /// Keep all packets as client.pcapng and server.pcapng.
    #[arg(long)]
    pcap: bool,
    /// Exit with status 1 if a distribution differs from the original's or has too few samples, if less than 95 % of
    /// its TCP was played or the volume is more than 5 % off, if the plan was not carried out, or if the device lost
    /// more packets than --loss-max or delayed them longer than --delay-max.
    #[arg(long)]
    check: bool,
    /// For --check: maximum packet loss of the device, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.1, value_parser = bound, requires = "check")]
    loss_max: f64,
    /// For --check: maximum excess of delay_ns.p99 over the bare wire's (or over 0 without one), in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 10.0, value_parser = bound, requires = "check")]
    delay_max: f64,
    /// For --check: accept distributions with too few samples to judge.
    #[arg(long)]
    allow_few: bool,
    /// Repeat the run this many times with successive seeds, into DIR-1, DIR-2 and so on; DIR gets the means over
    /// runs with confidence intervals, and one report.
    #[arg(long, value_name = "N")]
    repeats: Option<u32>,
    /// Print the result as one JSON object.
    #[arg(long)]
    json: bool,
}

/// A bound of --check.
fn bound(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|bound: &f64| bound.is_finite() && *bound >= 0.0);
    number.ok_or_else(|| "a number, zero or more, is needed".to_owned())
}

/// Runs `nilometer lab`.
pub fn run(args: LabArgs) -> Result<Exit> {
    match args.command {
        LabCommand::Run(args) => run_lab(&args),
        LabCommand::Wiring(args) => wiring::run(&args),
        LabCommand::Init(args) => init(&args),
        LabCommand::HoldInterfaces(args) => wiring::hold(&args),
    }
}

fn init(args: &InitArgs) -> Result<Exit> {
    match &args.file {
        None => print!("{}", LabConfig::template()),
        Some(path) => {
            let text = LabConfig::template();
            let beginning = text.lines().next().unwrap_or_default().as_bytes();
            document::guard_output(path, &[], args.force, beginning)?.write(text.as_bytes())?;
            say!("wrote {}; run it with: nilometer lab run {0}", path.display());
        }
    }
    Ok(Exit::Done)
}

impl RunArgs {
    fn configuration(&self) -> Result<LabConfig> {
        let is_config = |path: &&PathBuf| path.extension().is_some_and(|end| end == "toml");
        let (mut configs, inputs): (Vec<&PathBuf>, Vec<&PathBuf>) =
            self.inputs.iter().partition(is_config);
        configs.extend(&self.config);
        for config in &configs {
            refuse_input(config, "LAB.toml")?;
        }
        let mut config = match configs[..] {
            [] => LabConfig::default(),
            [path] => LabConfig::read(path)?,
            [..] => bail!("more than one LAB.toml is named; a run has one configuration"),
        };
        let inputs: Vec<PathBuf> = inputs.into_iter().chain(&self.input).cloned().collect();
        if !inputs.is_empty() {
            if self.model.is_some() {
                bail!("--model plays a finished model: give no input");
            }
            config.input = inputs;
        }
        if self.model.is_some() {
            config.model.file.clone_from(&self.model);
            config.input.clear();
        }
        config.seed = self.seed.unwrap_or(config.seed);
        config.duration_s = self.duration.or(config.duration_s);
        config.part = self.part.or(config.part);
        config.spread |= self.spread;
        config.exact |= self.exact;
        config.speed = self.speed.unwrap_or(config.speed);
        config.rate = self.rate.or(config.rate);
        config.unpaced |= self.unpaced;
        config.round_trips = self.round_trips.unwrap_or(config.round_trips);
        config.fit |= self.fit;
        config.keep = self.keep.unwrap_or(config.keep);
        config.model.harpoon |= self.harpoon;
        config.model.interval_s = self.interval.or(config.model.interval_s);
        config.model.inter_connection_bound_s =
            self.bound.or(config.model.inter_connection_bound_s);
        self.device.apply(&mut config)?;
        config.clock = self.clock.unwrap_or(config.clock);
        self.hosts.apply(&mut config)?;
        config.scheduling = self.scheduling.unwrap_or(config.scheduling);
        let traffic = &mut config.traffic;
        for (given, kept) in
            [(&self.clients, &mut traffic.clients), (&self.servers, &mut traffic.servers)]
        {
            if !given.is_empty() {
                *kept = given.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
            }
        }
        if let Some(name) = &self.congestion {
            traffic.congestion.clone_from(name);
        }
        traffic.threads = self.threads.unwrap_or(traffic.threads);
        config.calibration.seconds = self.calibration.unwrap_or(config.calibration.seconds);
        config.meter.ring_mib = self.ring_mib.unwrap_or(config.meter.ring_mib);
        config.meter.pcap |= self.pcap;
        Ok(config)
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            allows_few: self.allow_few,
            loss_max: self.loss_max / 100.0,
            delay_max_ns: self.delay_max * 1e6,
        }
    }
}

fn run_lab(args: &RunArgs) -> Result<Exit> {
    let config = args.configuration()?;
    let options = RunOptions { out: args.out.clone(), force: args.force, command: command_line() };
    let stop = signals::stop_flag()?;
    if let Some(count) = args.repeats {
        let ended = repeats::run(&config, &options, (count, &args.bounds()), &stop)?;
        return repeated(ended, args);
    }
    let (outcome, interrupted) = match run_trial(&config, &options, &stop)? {
        Ended::Completed(outcome) => (outcome, None),
        Ended::Interrupted(outcome, kept) => (outcome, Some(kept)),
        Ended::Early(partial) => {
            say!(
                "interrupted before the device saw traffic; model and configuration are \
                 kept in {}",
                partial.display()
            );
            return Ok(Exit::Interrupted);
        }
    };
    print(&outcome, args.json)?;
    if let Some(kept) = interrupted {
        say!("interrupted; partial results are kept in {}", kept.display());
        return Ok(Exit::Interrupted);
    }
    let found = if args.check { out_of_bounds(&outcome, &args.bounds()) } else { Vec::new() };
    for finding in &found {
        say!("--check: {finding}");
    }
    Ok(if found.is_empty() { Exit::Done } else { Exit::Negative })
}

fn repeated(ended: EndedRow, args: &RunArgs) -> Result<Exit> {
    let (whole, kept) = match ended {
        EndedRow::Made(whole, kept) => (whole, kept),
        EndedRow::Early(partial) => {
            say!("interrupted in the first run; partial results are kept in {}", partial.display());
            return Ok(Exit::Interrupted);
        }
    };
    if args.json {
        println!("{}", serde_json::to_string(&*whole).context("a result is JSON")?);
    } else {
        println!("{}", repeats_page::sentence(&whole).replace('*', ""));
        print!("{}", fact("report", plain(&whole.report)));
    }
    if let Some(kept) = kept {
        let number = whole.runs.len() + 1;
        say!(
            "interrupted in run {number}, with its partial results in {}; completed runs: {}",
            kept.display(),
            whole.runs.len()
        );
        return Ok(Exit::Interrupted);
    }
    let runs = whole.runs.iter().flat_map(|run| run.findings.iter().map(move |f| (run, f)));
    let mut is_sound = true;
    for (run, finding) in runs.filter(|_| args.check) {
        is_sound = false;
        say!("--check: {}: {finding}", run.directory);
    }
    Ok(if is_sound { Exit::Done } else { Exit::Negative })
}

fn print(outcome: &Outcome, json: bool) -> Result<()> {
    if json {
        println!("{}", serde_json::to_string(outcome).context("a result is JSON")?);
        return Ok(());
    }
    if let Some([name, text]) = speed(outcome.part.is_some(), outcome.speed, outcome.time_divisor) {
        print!("{}", fact(&name, text));
    }
    print_likeness(outcome);
    let figures = if outcome.likeness.is_empty() { &outcome.fidelity[..] } else { &[] };
    for figure in figures {
        let ratio =
            figure.ratio.map_or("no floor".to_owned(), |ratio| format!("{ratio:.2} x floor"));
        let few = match enough::is_too_few(&run_story::figure(figure)) {
            true => format!(", but {} samples are too few to judge", figure.count),
            false => String::new(),
        };
        print!("{}", fact(&figure.name, format!("{:.5}  {ratio}{few}", figure.distance)));
    }
    let packets = &outcome.packets;
    print!("{}", fact("packets", format!("{} of {} lost", packets.lost, packets.entered)));
    let lines = [("delay", &outcome.delay_ns), ("wire delay", &outcome.wire_delay_ns)];
    for (name, delay) in lines {
        let shown = delay.as_ref().map_or("not measured".to_owned(), |delay| {
            let [p50, p99] = [delay.p50, delay.p99].map(|ns| ns as f64 / 1e3);
            format!("p50 {p50:.1} µs, p99 {p99:.1} µs")
        });
        print!("{}", fact(name, shown));
    }
    if let Some(router) = &outcome.router {
        print_router(router, outcome.packets.lost);
    }
    for warning in outcome.warnings.iter().skip(outcome.said_before) {
        say!("warning: {warning}");
    }
    print!("{}", fact("report", plain(&outcome.report)));
    Ok(())
}

/// How fast the original was played: *k* of laws, and of packets the speed where it is not their own.
fn speed(is_as_it_was: bool, speed: f64, k: f64) -> Option<[String; 2]> {
    let number = |value| significant(value, 3);
    match is_as_it_was {
        true if speed == 1.0 => None,
        true => Some(["speed".to_owned(), format!("{} times the original's", number(speed))]),
        false => Some([
            "k".to_owned(),
            format!(
                "{}: gaps and intervals are the original's divided by it, rates multiplied",
                number(k)
            ),
        ]),
    }
}

/// The laws of the copy beside the original's.
fn print_likeness(outcome: &Outcome) {
    let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| significant(value, 3));
    let mut rows = Vec::new();
    for law in &outcome.likeness {
        let (distance, floor) = (number(law.distance), number(law.floor));
        let (verdict, unit) = (word(law.verdict), &law.unit);
        let row = [&law.name, verdict, &format!("{distance} {unit}, floor {floor}")];
        rows.push(table::row(row));
    }
    print!("{}", table::table(&[Side::Left], &rows));
    if let Some(coverage) = &outcome.coverage {
        let [bytes, flows] = [coverage.bytes, coverage.flows].map(|share| 100.0 * share);
        let shown =
            format!("{bytes:.1} % of the part's TCP payload, {flows:.1} % of its connections");
        print!("{}", fact("coverage", shown));
    }
}

/// What waited at the ports of our router, and why it dropped what was lost.
fn print_router(router: &RouterOutcome, lost: u64) {
    for queue in &router.queues {
        let (name, waited) = (format!("queue {}", queue.port), &queue.output);
        let (mean, most) = (waited.mean_packets, waited.max_packets);
        let shown = format!("{}, {mean:.2} packets on average, {most} at most", queue.discipline);
        print!("{}", fact(&name, shown));
    }
    for loss in &router.losses {
        let Loss { port, place, packets, direction, reason } = loss;
        print!("{}", fact("lost", format!("{packets} {direction} ({port} {place}: {reason})")));
    }
    if lost > 0 || !router.losses.is_empty() {
        let [to_servers, to_clients] = router.unexplained.ways();
        let shown = format!("{to_servers} to_servers, {to_clients} to_clients");
        print!("{}", fact("not explained", shown));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k_is_shown_wherever_laws_are_played() {
        let [name, text] = speed(false, 1.0, 5.1234).expect("k");
        assert_eq!(name, "k");
        assert!(text.starts_with("5.12: gaps and intervals"), "{text}");
        assert!(speed(false, 1.0, 1.0).is_some(), "and where nothing was divided");
        assert_eq!(speed(true, 1.0, 1.0), None);
        let [name, text] = speed(true, 2.0, 1.0).expect("a speed");
        assert_eq!((name.as_str(), text.as_str()), ("speed", "2 times the original's"));
    }
}
