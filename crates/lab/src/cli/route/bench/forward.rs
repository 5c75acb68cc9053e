//! `nilometer route bench forward`: our router and the kernel on the same links, load by load.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;

use crate::cli::Verdict;
use crate::route::bench::forward::dut::{Dut, Variant};
use crate::route::bench::forward::traffic::FRAME_BYTES_MIN;
use crate::route::bench::forward::{FRAME_BYTES_MAX, Forwarding, Options, measure};

/// Offers frames to our router and to the kernel, and counts what each forwards and what that costs.
///
/// Each device stands between two veth links in network namespaces of its own. A generator on one side
/// offers UDP datagrams of 1,024 flows at a pace, a sink on the other counts them by their numbers. The
/// first length of frame is offered at every rate to every variant of our router, the other lengths at
/// the lowest and the highest rate to the first variant. In each round every device has its turn; medians
/// of rounds count. Frames per CPU-second are those that were forwarded, by the processor time of all
/// that took part less that of generator and sink alone under the same load. Needs root.
#[derive(Debug, Args)]
pub struct ForwardArgs {
    /// The devices to compare.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME,...",
        default_values_t = Dut::ALL)]
    duts: Vec<Dut>,
    /// What of our router is at work; the first also goes through the other lengths.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME,...",
        default_values_t = Variant::ALL)]
    variants: Vec<Variant>,
    /// Lengths of frames in bytes, with their check sequence (RFC 2544).
    #[arg(long, value_delimiter = ',', value_name = "BYTES,...",
        default_values_t = [64, 128, 256, 512, 1_024, 1_518, 1_930],
        value_parser = clap::value_parser!(u16).range(
            i64::from(FRAME_BYTES_MIN)..=i64::from(FRAME_BYTES_MAX)))]
    frame_bytes: Vec<u16>,
    /// Loads in frames per second.
    #[arg(long, value_delimiter = ',', value_name = "PPS,...",
        default_values_t = [100_000, 200_000, 300_000, 450_000, 600_000, 900_000],
        value_parser = clap::value_parser!(u32).range(1_000..=100_000_000))]
    rates: Vec<u32>,
    /// How long each load is offered.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.15)]
    seconds: f64,
    /// Rounds of which the median counts.
    #[arg(long, value_name = "N", default_value_t = 3,
        value_parser = clap::value_parser!(u32).range(1..=1_001))]
    rounds: u32,
    /// Seed of flows, routes and filters.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write forward.html with the figures, and forward.json, into this directory.
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON object in place of the table.
    #[arg(long)]
    json: bool,
}

/// Runs `nilometer route bench forward`.
///
/// # Errors
/// Without root, or when a device cannot be set up.
pub fn run(args: ForwardArgs) -> Result<Verdict> {
    let is_possible = (0.01..=600.0).contains(&args.seconds);
    ensure!(is_possible, "--seconds is {}: give 0.01 to 600", args.seconds);
    let mut rates: Vec<f64> = args.rates.iter().copied().map(f64::from).collect();
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    let result = measure(&Options {
        duts: different(args.duts),
        variants: different(args.variants),
        frame_bytes: different(args.frame_bytes),
        rates,
        seconds: args.seconds,
        rounds: args.rounds,
        seed: args.seed,
        out: args.out,
    })?;
    for warning in &result.warnings {
        say!("{warning}");
    }
    match args.json {
        true => println!("{}", serde_json::to_string(&result)?),
        false => print!("{}", shown(&result)),
    }
    Ok(Verdict::Done)
}

/// Each value once, in the order in which they came.
fn different<T: PartialEq>(values: Vec<T>) -> Vec<T> {
    let mut kept = Vec::new();
    for value in values {
        if !kept.contains(&value) {
            kept.push(value);
        }
    }
    kept
}

/// The short table for people.
fn shown(result: &Forwarding) -> String {
    let heading =
        ["device", "variant", "bytes", "offered/s", "forwarded/s", "per CPU-s", "from", "to"];
    let [device, variant, bytes, offered, forwarded, price, from, to] = heading;
    let mut text = format!(
        "{device:<10} {variant:<14}{bytes:>6}{offered:>11}{forwarded:>13}{price:>11}{from:>11}\
         {to:>11}\n"
    );
    for point in &result.points {
        let price = |value: Option<f64>| value.map_or("-".to_owned(), |rate| format!("{rate:.0}"));
        let range = point.packets_per_cpu_second_range;
        writeln!(
            text,
            "{:<10} {:<14}{:>6}{:>11.0}{:>13.0}{:>11}{:>11}{:>11}",
            point.dut,
            point.variant,
            point.frame_bytes,
            point.offered_pps,
            point.forwarded_pps,
            price(point.packets_per_cpu_second),
            price(range.map(|range| range[0])),
            price(range.map(|range| range[1])),
        )
        .expect("memory can be written");
    }
    text
}
