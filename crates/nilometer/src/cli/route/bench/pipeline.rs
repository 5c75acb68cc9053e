//! `nilometer route bench pipeline`: what a packet costs on one core, stage by stage, without devices.

use nilometer_files::say;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use nilometer_queue::DisciplineKind;
use nilometer_router::{Engine, EngineFault};

use super::different;
use crate::cli::Exit;
use crate::cli::table::Side::{Left, Right};
use crate::cli::table::{row, table};
use nilometer_bench::pipeline::{
    Configuration, Options, PipelineTimes, SUM_OFF_MAX, Times, Variant, time_pipeline,
};
use nilometer_routerd::tally::Paths;

/// Benchmark the router's pipeline without devices, on one core.
///
/// Packets of a million flows are parsed, classified, looked up, rewritten, put into virtual output queues, passed
/// across the fabric by distributed queueing, and sent through their output's discipline, in which a constant number
/// of packets waits. Rates are in CPU time of one thread, medians of rounds. The stages are timed in separate rounds,
/// and their sum must be within 10 percent of the time of a packet; otherwise the exit status is 1.
#[derive(Debug, Args)]
pub struct PipelineArgs {
    /// The routes, one prefix a line, as for `route bench fib`; by default 900,000 random ones.
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// The filters, in ClassBench's format; by default ClassBench's acl1_1k from the directory in NILOMETER_DATA, or
    /// without it 1,000 random ones.
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// The lookup engine; see `route bench fib`.
    #[arg(long, value_name = "NAME", default_value_t = Engine::Lines, value_parser = parse_engine)]
    engine: Engine,
    /// Number of flows.
    #[arg(long, value_name = "N", default_value_t = 1 << 20,
        value_parser = clap::value_parser!(u32).range(128..=1 << 24))]
    flows: u32,
    /// Frames per round, rounded up to whole timed segments.
    #[arg(long, value_name = "N", default_value_t = 1 << 20,
        value_parser = clap::value_parser!(u32).range(128..=1 << 30))]
    frames: u32,
    /// Number of rounds; results are medians.
    #[arg(long, value_name = "N", default_value_t = 11,
        value_parser = clap::value_parser!(u32).range(1..=1_001))]
    rounds: u32,
    /// As many rounds as fit into this many seconds, at least three.
    #[arg(long, value_name = "S", conflicts_with = "rounds",
        value_parser = clap::value_parser!(u32).range(1..=3_600))]
    seconds: Option<u32>,
    /// Number of ports.
    #[arg(long, value_name = "N", default_value_t = 4,
        value_parser = clap::value_parser!(u32).range(2..=64))]
    ports: u32,
    /// Frame size in bytes, including the check sequence.
    #[arg(long, value_name = "N", default_value_t = 64,
        value_parser = clap::value_parser!(u16).range(64..=1_518))]
    frame_bytes: u16,
    /// The queueing discipline of every output.
    #[arg(long, value_name = "NAME", default_value = "qsdrr", value_parser = parse_discipline)]
    discipline: DisciplineKind,
    /// Seed of random choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Stage to be switched off; several, or all in turn.
    #[arg(
        long,
        value_enum,
        value_name = "NAME[,NAME...]",
        value_delimiter = ',',
        default_value = "complete"
    )]
    variant: Vec<Switched>,
    /// Whether classifier results are cached by flow: off, on, or both in turn.
    #[arg(long, value_enum, value_name = "WHEN", default_value = "off")]
    flow_cache: Cache,
    /// Capacity of the cache in flows, rounded up to a power of two.
    #[arg(long, value_name = "N", default_value_t = 1 << 21,
        value_parser = clap::value_parser!(u32).range(1..=1 << 26))]
    cached_flows: u32,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Switched {
    /// Nothing is switched off.
    Complete,
    /// Distributed queueing.
    NoDq,
    /// The lookup.
    NoLookup,
    /// The classifier.
    NoClassifier,
    /// Each of these in turn.
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Cache {
    /// Not cached.
    Off,
    /// Cached.
    On,
    /// Both, in turn.
    Both,
}

fn parse_engine(name: &str) -> Result<Engine, String> {
    name.parse().map_err(|fault: EngineFault| fault.to_string())
}

fn parse_discipline(name: &str) -> Result<DisciplineKind, String> {
    let names = || DisciplineKind::ALL.map(DisciplineKind::name).join(", ");
    DisciplineKind::from_name(name).ok_or_else(|| format!("it is one of {}", names()))
}

impl PipelineArgs {
    fn variants(&self) -> Vec<Variant> {
        let mut variants = Vec::new();
        for switched in &self.variant {
            variants.extend_from_slice(match switched {
                Switched::Complete => &[Variant::Complete],
                Switched::NoDq => &[Variant::NoDq],
                Switched::NoLookup => &[Variant::NoLookup],
                Switched::NoClassifier => &[Variant::NoClassifier],
                Switched::All => Variant::value_variants(),
            });
        }
        different(variants)
    }
}

/// Runs `nilometer route bench pipeline`.
///
/// # Errors
/// When a file cannot be read, or no flow can be made from what is in it.
pub fn run(args: PipelineArgs) -> Result<Exit> {
    let on = Some(args.cached_flows as usize);
    let options = Options {
        variants: args.variants(),
        caches: match args.flow_cache {
            Cache::Off => vec![None],
            Cache::On => vec![on],
            Cache::Both => vec![None, on],
        },
        table: args.table,
        rules: args.rules,
        flows: args.flows as usize,
        frames: args.frames as usize,
        rounds: args.rounds,
        limit: args.seconds.map(|seconds| Duration::from_secs(seconds.into())),
        engine: args.engine,
        ports: args.ports as usize,
        frame_bytes: args.frame_bytes,
        discipline: args.discipline,
        seed: args.seed,
        batch: nilometer_router::pipeline::BATCH,
    };
    options.check()?;
    let times = time_pipeline(&options)?;
    match args.json {
        true => println!("{}", serde_json::to_string(&times)?),
        false => print!("{}", shown(&times)),
    }
    if times.runs.iter().all(Times::adds_up) {
        return Ok(Exit::Done);
    }
    let most = 100.0 * SUM_OFF_MAX;
    say!("stages do not add up to a packet's time within {most} %: run it again");
    Ok(Exit::Negative)
}

/// The short tables for people.
fn shown(times: &PipelineTimes) -> String {
    let Configuration { prefixes, table, rules, rules_from, flows, ports, .. } =
        &times.configuration;
    let mut text = format!(
        "{prefixes} routes ({table}; {}), {rules} filters ({rules_from}), {flows} flows, {ports} ports, \
         {} bytes a frame, {}, {} packets wait at each output, medians of {} rounds\n",
        times.configuration.engine,
        times.configuration.frame_bytes,
        times.configuration.discipline,
        times.configuration.backlog_packets,
        times.configuration.rounds,
    );
    for run in &times.runs {
        show_run(&mut text, run).expect("memory can be written");
    }
    text
}

fn show_run(text: &mut String, run: &Times) -> std::fmt::Result {
    let variant = Variant::to_possible_value(&run.variant);
    let name = variant.map_or(String::new(), |value| value.get_name().to_owned());
    let cache = run.flow_cache_hits.map_or("no flow cache".to_owned(), |hits| {
        format!("a flow cache with {:.0} % hits", 100.0 * hits)
    });
    let [low, high] = run.mpps_quartiles;
    writeln!(text, "\n{name}, {cache}")?;
    writeln!(
        text,
        "{:.2} million packets/s a core (quartiles {low:.2} to {high:.2}), {:.1} ns a packet",
        run.mpps, run.ns_per_packet
    )?;
    let mut rows = vec![row(["stage", "ns", "share", "quartiles"])];
    for (stage, ns) in run.in_order() {
        let [low, high] = run.stages_ns_quartiles[stage];
        let (share, ns) = (format!("{:.1} %", 100.0 * ns / run.stages_sum_ns), format!("{ns:.1}"));
        rows.push(row([stage, &ns, &share, &format!("{low:.1} to {high:.1}")]));
    }
    let off = format!("{:+.1} % from the time of a packet", run.stages_sum_off_percent);
    rows.push(row(["sum", &format!("{:.1}", run.stages_sum_ns), "", &off]));
    text.push_str(&table(&[Left, Right, Right, Left], &rows));
    let dropped: Vec<_> =
        run.dropped.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    let dropped = if dropped.is_empty() { "nothing".to_owned() } else { dropped.join(", ") };
    let Paths { shortcut, pipeline, slow_path } = run.paths;
    writeln!(text, "{:.0} % matched a filter; dropped: {dropped}", 100.0 * run.filtered)?;
    writeln!(
        text,
        "{pipeline} packets through the pipeline, {slow_path} by the slow path, {shortcut} by shortcuts"
    )
}
