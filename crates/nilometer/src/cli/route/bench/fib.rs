//! `nilometer route bench fib`: forwarding tables against each other, on a table of prefixes.

use nilometer_files::say;
use std::path::PathBuf;
use std::slice;

use anyhow::Result;
use clap::Args;

use nilometer_router::Engine;

use crate::cli::Exit;
use crate::cli::table::Side::{self, Left, Right};
use crate::cli::table::{row, table};
use nilometer_bench::fib::{FibTimes, Options, time_family};
use nilometer_bench::plot::{BEGINNING, plot};
use nilometer_bench::prefixes::Family;
use nilometer_files::document;

/// Benchmark every forwarding table of the router on the prefixes of a file.
///
/// The n-th prefix of the family, from 0, has next hop 1 + n mod 64; a later duplicate replaces an earlier one.
/// Random addresses are the top 32 bits of successive outputs of splitmix64 seeded with 1 (for family 6 two outputs,
/// the high half first). Prefix-drawn addresses come from splitmix64 seeded with 2: one output, taken as a fraction
/// of 1, selects a prefix of the file, and the next gives its host bits as above. Checksums are sums of next hops
/// over the first 2^20 addresses; no route counts 0. Lookups are timed in CPU time of their thread, with medians of
/// rounds in which the tables alternate; updates in CPU time of the writer's thread, while another thread looks up.
/// Exit status 1 if tables disagree.
#[derive(Debug, Args)]
pub struct FibArgs {
    /// One prefix a line, plain or gzip; text after white space, empty lines and lines that begin with `;` or `#` are
    /// ignored.
    #[arg(long, value_name = "FILE")]
    table: PathBuf,
    /// Address family; prefixes of the other are counted and skipped.
    #[arg(long, value_enum, value_name = "4|6", default_value_t = Family::V4)]
    family: Family,
    /// Number of rounds; results are medians.
    #[arg(long, value_name = "N", default_value_t = 11,
        value_parser = clap::value_parser!(u32).range(1..=1_001))]
    rounds: u32,
    /// Benchmark this table only, instead of all that support the family; repeatable.
    #[arg(long = "engine", value_name = "NAME")]
    engines: Vec<Engine>,
    /// Also time lookups under 1,000, 10,000 and 100,000 updates per second, in this many pairs of rounds with and
    /// without updates.
    #[arg(long, value_name = "PAIRS", num_args = 0..=1, default_missing_value = "11",
        value_parser = clap::value_parser!(u32).range(1..=1_001))]
    under_updates: Option<u32>,
    /// A program with third-party tables, run alternately with ours; `benches/fib.sh` builds one for DPDK's.
    #[arg(long, value_name = "PROGRAM")]
    peer: Option<PathBuf>,
    /// Plot speed against bytes per prefix (SVG).
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
}

/// Runs `nilometer route bench fib`.
///
/// # Errors
/// When the file cannot be read, a line is no prefix, there is none of the family, or the picture cannot go
/// where it is to.
pub fn run(args: FibArgs) -> Result<Exit> {
    let picture = args.plot.map(|path| {
        document::guard_output(&path, slice::from_ref(&args.table), true, BEGINNING.as_bytes())
    });
    let picture = picture.transpose()?;
    let options = Options {
        table: args.table,
        family: args.family,
        rounds: args.rounds,
        engines: args.engines,
        peer: args.peer,
        pairs_under_updates: args.under_updates.unwrap_or(0),
    };
    let times = time_family(&options)?;
    if let Some(picture) = &picture {
        picture.write(plot(&times).as_bytes())?;
    }
    if times.skipped > 0 {
        say!("{} prefixes of the other family were skipped", times.skipped);
    }
    match args.json {
        true => println!("{}", serde_json::to_string(&times)?),
        false => print!("{}", shown(&times)),
    }
    match times.disagreement() {
        Some(account) => {
            say!("{account}");
            Ok(Exit::Negative)
        }
        None => Ok(Exit::Done),
    }
}

/// Names at the left, numbers at the right.
const SIDES: [Side; 2] = [Left, Right];

/// The short tables for people.
fn shown(times: &FibTimes) -> String {
    let mut text = format!("{} prefixes of IPv{}\n", times.prefixes, times.family);
    let heading = ["engine", "bytes/prefix", "M random/s", "M drawn/s", "updates/s", "load s"];
    let mut rows = vec![row(heading)];
    rows.extend(times.engines.iter().chain(&times.peers).map(|it| {
        let [random, drawn] = [it.mlookups_random, it.mlookups_prefix].map(|m| format!("{m:.1}"));
        let bytes = format!("{:.2}", it.bytes_per_prefix);
        let updates = format!("{:.0}", it.updates_per_second);
        let load = it.load_seconds.map_or(String::new(), |load| format!("{load:.3}"));
        row([&it.engine, &bytes, &random, &drawn, &updates, &load])
    }));
    text += &table(&SIDES, &rows);
    if times.engines.iter().any(|engine| !engine.under_updates.is_empty()) {
        text += &format!("\n{}", shown_under_updates(times));
    }
    text
}

fn shown_under_updates(times: &FibTimes) -> String {
    let heading = ["engine", "updates/s", "made/s", "M drawn/s", "less %", "95 % interval"];
    let mut rows = vec![row(heading)];
    for engine in &times.engines {
        rows.extend(engine.under_updates.iter().map(|it| {
            let updates = it.updates_per_second.to_string();
            let made = format!("{:.0}", it.updates_made_per_second);
            let [drawn, less] = [it.mlookups, it.loss_percent].map(|value| format!("{value:.1}"));
            let interval = format!("{:.1} to {:.1}", it.loss_percent_low, it.loss_percent_high);
            row([&engine.engine, &updates, &made, &drawn, &less, &interval])
        }));
    }
    table(&SIDES, &rows)
}
