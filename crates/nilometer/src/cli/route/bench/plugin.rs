//! `nilometer route bench plugin`: what a packet through a plugin costs, beside the pipeline without.

use anyhow::Result;
use clap::Args;
use nilometer_queue::DisciplineKind;
use nilometer_router::Engine;

use super::different;
use crate::cli::Exit;
use crate::cli::table::Side::{Left, Right};
use crate::cli::table::{row, table};
use nilometer_bench::pipeline::{Options, Variant};
use nilometer_bench::plugin::{PluginTimes, time_plugins};

/// Benchmark plugins: the router's pipeline with every packet through a plugin, on one core without devices.
///
/// The plugins do nothing, count packets, or change the header; they are compiled into the router, or run as
/// WebAssembly with and without instruction counting. `no-op-copied` does nothing to packets that are copied to it
/// completely. All alternate with the pipeline without a plugin. ADDED is the median over rounds of the extra CPU time
/// per packet.
#[derive(Debug, Args)]
pub struct PluginArgs {
    /// Packets received by a port in one batch.
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',', default_value = "32,256",
        value_parser = clap::value_parser!(u16).range(1..=256))]
    batch: Vec<u16>,
    /// Frames per round, rounded up to whole timed segments.
    #[arg(long, value_name = "N", default_value_t = 1 << 17,
        value_parser = clap::value_parser!(u32).range(1_024..=1 << 30))]
    frames: u32,
    /// Number of rounds; results are medians.
    #[arg(long, value_name = "N", default_value_t = 11,
        value_parser = clap::value_parser!(u32).range(1..=1_001))]
    rounds: u32,
    /// Number of flows.
    #[arg(long, value_name = "N", default_value_t = 1 << 16,
        value_parser = clap::value_parser!(u32).range(1_024..=1 << 24))]
    flows: u32,
    /// Frame size in bytes, including the check sequence.
    #[arg(long, value_name = "N", default_value_t = 64,
        value_parser = clap::value_parser!(u16).range(64..=1_518))]
    frame_bytes: u16,
    /// Seed of random choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
}

/// Runs `nilometer route bench plugin`.
///
/// # Errors
/// When a packet is lost, or a plugin is cut off.
pub fn run(args: PluginArgs) -> Result<Exit> {
    let options = Options {
        table: None,
        rules: None,
        flows: args.flows as usize,
        frames: args.frames as usize,
        rounds: args.rounds,
        limit: None,
        engine: Engine::Lines,
        ports: 4,
        frame_bytes: args.frame_bytes,
        discipline: DisciplineKind::Qsdrr,
        seed: args.seed,
        variants: vec![Variant::Complete],
        caches: vec![None],
        batch: usize::from(args.batch.iter().copied().max().unwrap_or(1)),
    };
    options.check()?;
    let batches = different(args.batch.iter().map(|batch| usize::from(*batch)).collect());
    let times = time_plugins(&options, &batches)?;
    match args.json {
        true => println!("{}", serde_json::to_string(&times)?),
        false => print!("{}", shown(&times)),
    }
    Ok(Exit::Done)
}

fn shown(times: &PluginTimes) -> String {
    let headings =
        ["plugin", "engine", "limits", "batch", "copied", "added", "quartiles", "pipeline", "rate"];
    let mut rows = vec![row(headings)];
    for point in &times.points {
        let [low, high] = point.ns_per_packet_quartiles;
        rows.push(row([
            point.plugin,
            point.engine,
            point.limits,
            &point.batch.to_string(),
            &format!("{} B", point.copied),
            &format!("{:.1} ns", point.ns_per_packet),
            &format!("{low:.1} to {high:.1}"),
            &format!("{:.1} ns", point.pipeline_ns_per_packet),
            &format!("{:.2} Mpps", point.mpps),
        ]));
    }
    let sides = [Left, Left, Left, Right, Right, Right, Left, Right, Right];
    format!(
        "frames of {} bytes, every packet through the plugin, medians of {} rounds\n{}",
        times.frame_bytes,
        times.rounds,
        table(&sides, &rows)
    )
}
