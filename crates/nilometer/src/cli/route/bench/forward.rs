//! `nilometer route bench forward`: our router and the kernel on the same links, load by load.

use nilometer_files::say;
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use clap::Args;

use super::different;
use crate::cli::Exit;
use crate::cli::table::{Side, table};
use nilometer_bench::forward::dut::{Dut, Variant};
use nilometer_bench::forward::figures::{COLUMNS, Places};
use nilometer_bench::forward::price::ROUNDS_MIN;
use nilometer_bench::forward::repeat::{Comparison, differs};
use nilometer_bench::forward::result::Forwarding;
use nilometer_bench::forward::traffic::FRAME_BYTES_MIN;
use nilometer_bench::forward::usage::OTHERS_MAX;
use nilometer_bench::forward::{FRAME_BYTES_MAX, Options, measure};
use nilometer_files::document::read_json;
use nilometer_files::terminal;

/// Benchmark forwarding by our router and by the kernel: frames forwarded, and their CPU cost.
///
/// Each device stands between two veth links in network namespaces of its own. A generator on one side offers UDP
/// datagrams of 1,024 flows at a constant rate; a sink on the other side counts them by sequence number. The first
/// frame size is offered at every rate to every variant of our router, the other sizes at the lowest and the highest
/// rate to the first variant. Every device is measured once per round; rates are medians of rounds. Frames per
/// CPU-second are the frames forwarded, divided by the CPU time of all threads involved less that of generator and
/// sink alone under the same load, with a 95 % confidence interval. A point whose interval is wider than ±10 % gets
/// more rounds, up to --rounds-max, and is left out if that is not enough; rounds disturbed by other programs do not
/// count. Exit status 1 if more than a tenth of the points is left out, or if costs differ from those of --against.
/// Needs root.
#[derive(Debug, Args)]
pub struct ForwardArgs {
    /// The devices to compare.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME,...",
        default_values_t = Dut::ALL)]
    duts: Vec<Dut>,
    /// Variants of our router; the other frame sizes are measured on the first one only.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME,...",
        default_values_t = Variant::ALL)]
    variants: Vec<Variant>,
    /// Frame sizes in bytes, including the check sequence (RFC 2544).
    #[arg(long, value_delimiter = ',', value_name = "BYTES,...",
        default_values_t = [64, 128, 256, 512, 1_024, 1_518, 1_930],
        value_parser = clap::value_parser!(u16).range(
            i64::from(FRAME_BYTES_MIN)..=i64::from(FRAME_BYTES_MAX)))]
    frame_bytes: Vec<u16>,
    /// Offered loads in frames per second.
    #[arg(long, value_delimiter = ',', value_name = "PPS,...",
        default_values_t = [100_000, 200_000, 300_000, 450_000, 600_000, 900_000],
        value_parser = clap::value_parser!(u32).range(1_000..=100_000_000))]
    rates: Vec<u32>,
    /// Duration of each load.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.15)]
    seconds: f64,
    /// Minimum number of rounds of each point.
    #[arg(long, value_name = "N", default_value_t = ROUNDS_MIN,
        value_parser = clap::value_parser!(u32).range(1..=1_001))]
    rounds: u32,
    /// Maximum number of rounds of each point, including disturbed ones.
    #[arg(long, value_name = "N", default_value_t = 80,
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds_max: u32,
    /// Share of all processors that other programs may use in a round that counts; with 1 all rounds count.
    #[arg(long, value_name = "SHARE", default_value_t = OTHERS_MAX)]
    others_max: f64,
    /// Results of earlier runs (--json, or forward.json) with a fixed number of rounds, whose costs should be the
    /// same. Exit status 1 if any two runs differ, or if nothing can be compared.
    #[arg(long, value_delimiter = ',', value_name = "FILE,...")]
    against: Vec<PathBuf>,
    /// Seed of flows, routes and filters.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write forward.html and forward.json into this directory.
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Replace the files of an earlier run; never one of --against.
    #[arg(long, requires = "out")]
    force: bool,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
}

/// Runs `nilometer route bench forward`.
///
/// # Errors
/// Without root, or when a device cannot be set up.
pub fn run(args: ForwardArgs) -> Result<Exit> {
    let is_possible = (0.01..=600.0).contains(&args.seconds);
    ensure!(is_possible, "--seconds is {}: give 0.01 to 600", args.seconds);
    let mut rates: Vec<f64> = args.rates.iter().copied().map(f64::from).collect();
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    let (rounds, rounds_max) = (args.rounds, args.rounds_max);
    ensure!(
        rounds <= rounds_max,
        "--rounds is {rounds}, more than --rounds-max, which is {rounds_max}"
    );
    let others_max = args.others_max;
    ensure!((0.0..=1.0).contains(&others_max), "--others-max is {others_max}: give 0 to 1");
    let places = args.out.as_deref().map(|out| Places::guard(out, &args.against, args.force));
    let places = places.transpose()?;
    let earlier = |file: &PathBuf| {
        let run: Forwarding = read_json(file)?;
        match differs(&run, args.seed, args.seconds) {
            Some(why) => bail!("--against {}: {why}", terminal::shown(file)),
            None => Ok(run),
        }
    };
    let against: Result<Vec<Forwarding>> = args.against.iter().map(earlier).collect();
    let result = measure(&Options {
        duts: different(args.duts),
        variants: different(args.variants),
        frame_bytes: different(args.frame_bytes),
        rates,
        seconds: args.seconds,
        rounds,
        rounds_max,
        others_max,
        against: against?,
        seed: args.seed,
    })?;
    for warning in &result.warnings {
        say!("{warning}");
    }
    match args.json {
        true => println!("{}", serde_json::to_string(&result)?),
        false => print!("{}", shown(&result)),
    }
    // (What was measured is on stdout by now, if it cannot be written.)
    places.map_or(Ok(()), |places| places.write(&result))?;
    let comparison = result.comparison.iter();
    comparison.clone().flat_map(Comparison::shown).for_each(|line| say!("{line}"));
    // (Where nothing could be compared nothing is known to be the same.)
    let is_same = comparison.clone().all(|it| it.apart.is_empty() && it.differences > 0);
    Ok(if result.is_complete() && is_same { Exit::Done } else { Exit::Negative })
}

/// The short table for people: what it asked for is in what was offered.
fn shown(result: &Forwarding) -> String {
    let columns = COLUMNS.into_iter().filter(|(heading, _)| *heading != "asked/s");
    let titles = columns.clone().map(|(heading, _)| heading.to_owned()).collect();
    let cells =
        |point| columns.clone().map(|(_, of)| of(point).unwrap_or("-".to_owned())).collect();
    let rows: Vec<_> = [titles].into_iter().chain(result.points.iter().map(cells)).collect();
    table(&[Side::Left, Side::Left, Side::Right], &rows)
}
