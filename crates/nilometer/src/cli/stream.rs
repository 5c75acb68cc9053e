//! `nilometer stream`: an open-loop stream of test frames through a device, each stamped in the driver.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use nilometer_files::document::results::Directory;
use nilometer_files::say;
use nilometer_files::terminal::shown;
use nilometer_lab::device::rules::Rules;
use nilometer_lab::device::spec::FaultSpec;
use nilometer_lab::stream::added::AddedDelay;
use nilometer_lab::stream::config::{StampChoice, StreamConfig};
use nilometer_lab::stream::derive;
use nilometer_lab::stream::outcome::{ClockOutcome, Outcome, StreamOutcome};
use nilometer_lab::stream::pattern::Pattern;
use nilometer_lab::stream::run::{RunOptions, run as run_stream};
use nilometer_lab::stream::transmit::TransmitChoice;
use nilometer_lab::trial::config::DutKind;
use nilometer_lab::trial::outcome::Delay;
use nilometer_lab::trial::signals;
use nilometer_report::format::{count, significant, time_ns};

use super::Exit;
use super::device::Dut;
use super::receive::{self, ReceiveArgs};
use super::table::fact;
use super::typed::command_line;
use super::wiring::Interfaces;

/// Arguments of `nilometer stream`.
#[derive(Debug, Args)]
pub struct StreamArgs {
    #[command(subcommand)]
    command: StreamCommand,
}

#[derive(Debug, Subcommand)]
enum StreamCommand {
    /// Send frames at their times, account for every frame, and report whether the trial is valid.
    Run(Box<RunArgs>),
    /// Receive the streams of another host (its `stream run --receiver`) at an interface of this one.
    Receive(ReceiveArgs),
    /// Write STREAM.toml files that offer the bit rate of a lab run with other burst and frame sizes (Harpoon, 6.3).
    Derive(DeriveArgs),
}

#[derive(Debug, Args)]
struct DeriveArgs {
    /// Directory of results of a lab run.
    #[arg(value_name = "DIR")]
    results: PathBuf,
    /// Output directory: DIR/burst-465.toml and others.
    #[arg(short, long, value_name = "DIR")]
    out: PathBuf,
    /// Use the bit rate of the busiest interval instead of the mean.
    #[arg(long)]
    peak: bool,
    /// Duration of each stream in seconds (that of the run, at most 60).
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    seconds: Option<f64>,
    /// Replace existing files of an earlier derivation.
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
struct RunArgs {
    /// A STREAM.toml: its keys are the options below with `_` for `-`; options override it.
    #[arg(value_name = "STREAM.toml")]
    config: Option<PathBuf>,
    /// The device under test: nilometer, linux, nftables, bridge, frr, ovs, testpmd, xdp:FILE.o (your XDP programs on the ports of Linux),
    /// fault, external or wire (linux).
    #[arg(long)]
    dut: Option<Dut>,
    /// Impairments of the device `fault`; see `lab run`. Implies `--dut fault`.
    #[arg(long, value_name = "FAULTS")]
    fault: Option<FaultSpec>,
    #[command(flatten)]
    interfaces: Interfaces,
    /// Receiver on another host (`stream receive`) behind the device `external`, instead of --server-interface.
    #[arg(long, value_name = "HOST:PORT")]
    receiver: Option<String>,
    /// Rules of the device `nftables`, in the format of `nft -f`; a stateful firewall by default. Implies `--dut
    /// nftables`.
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Configuration of our router: a ROUTER.toml with the ports `client` and `server`. Implies `--dut nilometer`.
    #[arg(long, value_name = "ROUTER.toml")]
    router: Option<PathBuf>,
    /// Mean rate in frames per second, in each direction (10000; for a capture its own rate).
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pps: Option<f64>,
    /// Frame size in bytes as in RFC 2544, including the 4-byte check sequence: 64 to 1518 (64).
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    frame_bytes: Option<u16>,
    /// Duration of traffic in seconds (10).
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    seconds: Option<f64>,
    /// Number of flows, used in turn, with pseudorandom addresses and ports as in RFC 4814 (1).
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    flows: Option<u32>,
    /// constant, poisson, burst:N, on-off:MS:MS, self-similar:H, imix, trimodal, pcap:FILE, or a spacing and a size
    /// mix such as burst:16+imix (constant).
    #[arg(long, value_name = "PATTERN")]
    pattern: Option<Pattern>,
    /// Send a stream in the other direction as well.
    #[arg(long)]
    both: bool,
    /// Seed of all random choices (7).
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    seed: Option<u64>,
    /// Where frames are stamped: in the driver, at packet sockets, or the best that the system allows.
    #[arg(long)]
    stamps: Option<StampChoice>,
    /// How frames are sent: through a packet socket, or as XDP live frames from a BPF program (one size, constant
    /// spacing or bursts); best uses live frames above 500,000 frames/s.
    #[arg(long)]
    transmit: Option<TransmitChoice>,
    /// Seconds to wait for the last frames, in addition to the device's configured delay; later frames count as lost
    /// (2).
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    wait: Option<f64>,
    /// Seconds of calibration with the same stream over a bare wire; 0 for none (1).
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    calibration: Option<f64>,
    /// Size of the receiver's ring in frames, a power of two (default: a tenth of a second of traffic).
    #[arg(long, value_name = "FRAMES", allow_negative_numbers = true)]
    ring: Option<u32>,
    /// Maximum disk space for the table of frames, MiB (1024).
    #[arg(long, value_name = "MIB", allow_negative_numbers = true)]
    disk: Option<u64>,
    /// Directory for results (result.json, packets.parquet, report.html); DIR.partial until the run is done.
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Replace results of an earlier run.
    #[arg(long)]
    force: bool,
    /// Print the result as one JSON object.
    #[arg(long)]
    json: bool,
}

impl RunArgs {
    /// What was typed over what the file says.
    fn configuration(&self) -> Result<StreamConfig> {
        let read = self.config.as_deref().map(StreamConfig::read).transpose()?;
        let mut config = read.unwrap_or_default();
        let implied = match (&self.fault, &self.router, &self.rules) {
            (Some(_), ..) => Some(DutKind::Fault),
            (None, Some(_), _) => Some(DutKind::Nilometer),
            (None, None, Some(_)) => Some(DutKind::Nftables),
            _ => self.interfaces.apply(&mut config.external).then_some(DutKind::External),
        };
        if let Some(path) = &self.rules {
            let mut rules = Rules::from(path.clone());
            rules.load(Path::new("")).context("--rules")?;
            config.rules = Some(rules);
        }
        let typed = self.dut.as_ref();
        config.dut = typed.map(|dut| dut.kind).or(implied).unwrap_or(config.dut);
        config.program = typed.and_then(|dut| dut.program.clone()).or(config.program);
        if let Some(fault) = &self.fault {
            let mut fault = fault.clone();
            fault.load(std::path::Path::new(".")).context("--fault")?;
            config.fault = Some(fault);
        }
        config.router = self.router.clone().or(config.router);
        config.receiver = self.receiver.clone().or(config.receiver);
        config.pps = self.pps.or(config.pps);
        config.both |= self.both;
        config.flows = self.flows.unwrap_or(config.flows);
        config.ring = self.ring.or(config.ring);
        config.frame_bytes = self.frame_bytes.unwrap_or(config.frame_bytes);
        config.seconds = self.seconds.unwrap_or(config.seconds);
        config.calibration = self.calibration.unwrap_or(config.calibration);
        config.seed = self.seed.unwrap_or(config.seed);
        config.wait = self.wait.unwrap_or(config.wait);
        config.disk = self.disk.unwrap_or(config.disk);
        config.stamps = self.stamps.unwrap_or(config.stamps);
        config.transmit = self.transmit.unwrap_or(config.transmit);
        if let Some(pattern) = &self.pattern {
            config.pattern = pattern.clone();
        }
        Ok(config)
    }
}

/// Runs `nilometer stream`.
pub fn run(args: StreamArgs) -> Result<Exit> {
    let args = match args.command {
        StreamCommand::Run(args) => args,
        StreamCommand::Receive(args) => return receive::run(&args),
        StreamCommand::Derive(args) => return derived(&args),
    };
    let config = args.configuration()?;
    let options = RunOptions { out: args.out.clone(), force: args.force, command: command_line() };
    let stop = signals::stop_flag()?;
    let print = |line: &str| println!("{line}");
    let lines: Option<&(dyn Fn(&str) + Sync)> = if args.json { None } else { Some(&print) };
    let ended = run_stream(&config, &options, lines, &stop)?;
    match args.json {
        true => {
            println!("{}", serde_json::to_string(&ended.outcome).context("a result is JSON")?);
        }
        false => {
            print!("{}", outcome_text(&ended.outcome));
            if let Some(kept) = &ended.kept {
                print!("{}", fact("results", shown(kept)));
            }
        }
    }
    for why in ended.outcome.wire.iter().flat_map(|wire| &wire.why) {
        say!("warning: the calibration over the bare wire is not valid, and left out: {why}");
    }
    for warning in &ended.outcome.warnings {
        say!("warning: {warning}");
    }
    for why in &ended.outcome.why {
        say!("the trial is not valid: {why}");
    }
    Ok(match (ended.is_interrupted, ended.outcome.valid) {
        (true, _) => Exit::Interrupted,
        (_, true) => Exit::Done,
        (_, false) => Exit::Negative,
    })
}

/// Runs `nilometer stream derive`.
fn derived(args: &DeriveArgs) -> Result<Exit> {
    let (outcome, load) = derive::read(&args.results)?;
    let bps = if args.peak { load.peak_bps } else { load.mean_bps };
    let seconds = args.seconds.unwrap_or(load.seconds.min(60.0));
    let streams = derive::derive((&outcome.dut, outcome.seed), bps, seconds)?;
    let directory = Directory::create(&args.out, args.force)?;
    for one in &streams {
        directory.file(&format!("{}.toml", one.name)).write(one.text()?.as_bytes())?;
    }
    let kept = directory.finish()?;
    print!("{}", fact("offered load", format!("{} Mbit/s", significant(bps / 1e6, 4))));
    for one in &streams {
        let pps = significant(one.config.pps.unwrap_or(0.0), 4);
        print!("{}", fact(one.name, format!("{pps} frames a second")));
    }
    print!("{}", fact("streams", shown(&kept)));
    Ok(Exit::Done)
}

/// The result for a person.
fn outcome_text(outcome: &Outcome) -> String {
    let mut text = String::from("\n");
    for way in &outcome.directions {
        text += &way_text(way, outcome.directions.len() > 1);
    }
    if let Some(AddedDelay { p50, .. }) = outcome.added_ns {
        let [ns, low, high] = [p50.ns, p50.low_ns, p50.high_ns].map(|ns| time_ns(ns as f64));
        text += &fact("device adds (p50)", format!("{ns} ({low} to {high})"));
    }
    if let Some(ClockOutcome { offset_ns, uncertainty_ns, exchanges }) = outcome.clock {
        let [offset, uncertainty] = [offset_ns as f64, uncertainty_ns as f64].map(time_ns);
        let known =
            format!("{offset}; delays may be wrong by {uncertainty} ({exchanges} exchanges)");
        text += &fact("clock offset", known);
    }
    let noise = match outcome.wire.as_ref() {
        Some(wire) => wire.noise_ns,
        None if outcome.dut == "wire" => outcome.delay_ns.map(|delay| delay.p95 - delay.p5),
        None => None,
    };
    let noise = noise.map_or("not measured".to_owned(), |noise| time_ns(noise as f64));
    text += &fact("noise (p95 - p5)", noise);
    let [sent, received] = &outcome.stamps.pair;
    text += &fact("stamps", format!("sent: {sent}; received: {received}"));
    text += &fact("sent by", &outcome.transmit.note);
    if let Some(why_not) = &outcome.stamps.why_not {
        text += &fact("", format!("not in the driver: {why_not}"));
    }
    text += &fact("valid", if outcome.valid { "yes" } else { "no" });
    text
}

fn way_text(way: &StreamOutcome, is_named: bool) -> String {
    let mut text = String::new();
    if is_named {
        text += &fact(&way.name.replace('_', " "), "");
    }
    let rates = [way.offered_pps, way.sent_pps, way.received_pps].map(|pps| significant(pps, 6));
    text += &fact(
        "frames a second",
        format!("{} offered, {} sent, {} received", rates[0], rates[1], rates[2]),
    );
    let packets = &way.packets;
    let percent = 100.0 * packets.lost as f64 / packets.entered.max(1) as f64;
    let lost = format!("{} lost ({} %)", count(packets.lost), significant(percent, 3));
    text += &fact(
        "frames",
        format!(
            "{} sent, {} received, {lost}, {} duplicated, {} reordered, {} corrupted",
            count(packets.entered),
            count(packets.left),
            count(packets.duplicated),
            count(packets.reordered),
            count(packets.corrupted)
        ),
    );
    text += &fact("delay", quantiles(way.delay_ns));
    text += &fact("delay from due", quantiles(way.delay_scheduled_ns));
    if let Some(pacing) = way.pacing_ns {
        let [p50, p95, p99, max] =
            [pacing.p50, pacing.p95, pacing.p99, pacing.max].map(|ns| time_ns(ns as f64));
        text += &fact("pacing (late by)", format!("p50 {p50}, p95 {p95}, p99 {p99}, max {max}"));
    }
    text
}

fn quantiles(delay: Option<Delay>) -> String {
    let Some(delay) = delay else { return "not measured".to_owned() };
    let [p5, p50, p95, p99] =
        [delay.p5, delay.p50, delay.p95, delay.p99].map(|ns| time_ns(ns as f64));
    format!("p5 {p5}, p50 {p50}, p95 {p95}, p99 {p99}")
}
