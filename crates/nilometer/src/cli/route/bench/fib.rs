//! `nilometer route bench fib`: forwarding tables against each other, on a table of prefixes.

use nilometer_files::say;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::slice;

use anyhow::Result;
use clap::Args;

use nilometer_router::Engine;

use crate::cli::Verdict;
use nilometer_bench::fib::{EngineTimes, FibTimes, Options, time_family};
use nilometer_bench::plot::{BEGINNING, plot};
use nilometer_bench::prefixes::Family;
use nilometer_files::document;

/// Times every forwarding table of the router on the prefixes of a file.
///
/// The n-th prefix of the family, from 0, has next hop 1 + n mod 64; a later duplicate wins. Random
/// addresses are the top 32 bits of successive outputs of splitmix64 seeded with 1 (for family 6 two
/// outputs, the high half first). Prefix-drawn addresses come from splitmix64 seeded with 2: of one
/// output, taken as a fraction of 1, a prefix of the file, and its host bits from the next as above.
/// Checksums are sums of next hops over the first 2^20 addresses, no route counting 0. Lookups are
/// timed by the CPU time of their thread, medians of rounds in which the tables take turns; updates by
/// the CPU time of the writer's thread, while another looks up. Exit status 1: tables disagree.
#[derive(Debug, Args)]
pub struct FibArgs {
    /// A prefix a line, plain or gzip; what follows white space, empty lines and lines that begin with
    /// `;` or `#` are skipped.
    #[arg(long, value_name = "FILE")]
    table: PathBuf,
    /// The family of addresses; prefixes of the other are counted and skipped.
    #[arg(long, value_enum, value_name = "4|6", default_value_t = Family::V4)]
    family: Family,
    /// Rounds of which the median counts.
    #[arg(long, value_name = "N", default_value_t = 11,
        value_parser = clap::value_parser!(u32).range(1..=1_001))]
    rounds: u32,
    /// The table to be timed, instead of all that know the family; repeatable.
    #[arg(long = "engine", value_name = "NAME")]
    engines: Vec<Engine>,
    /// Time lookups under 1,000, 10,000 and 100,000 updates a second too, in so many pairs with and
    /// without them.
    #[arg(long, value_name = "PAIRS", num_args = 0..=1, default_missing_value = "11",
        value_parser = clap::value_parser!(u32).range(1..=1_001))]
    under_updates: Option<u32>,
    /// A program with tables of others, which takes turns with ours; `benches/fib.sh` builds one for
    /// DPDK's.
    #[arg(long, value_name = "PROGRAM")]
    peer: Option<PathBuf>,
    /// Draw speed against bytes per prefix (SVG).
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print one JSON object in place of the table.
    #[arg(long)]
    json: bool,
}

/// Runs `nilometer route bench fib`.
///
/// # Errors
/// When the file cannot be read, a line is no prefix, there is none of the family, or the picture cannot go
/// where it is to.
pub fn run(args: FibArgs) -> Result<Verdict> {
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
            Ok(Verdict::Negative)
        }
        None => Ok(Verdict::Done),
    }
}

/// The short tables for people.
fn shown(times: &FibTimes) -> String {
    let mut text = format!("{} prefixes of IPv{}\n", times.prefixes, times.family);
    let heading = ["engine", "bytes/prefix", "M random/s", "M drawn/s", "updates/s", "load s"];
    let [engine, bytes, random, drawn, updates, load] = heading;
    writeln!(text, "{engine:<20}{bytes:>13}{random:>12}{drawn:>12}{updates:>13}{load:>9}")
        .expect("memory can be written");
    for engine in times.engines.iter().chain(&times.peers) {
        let EngineTimes { mlookups_random, mlookups_prefix, updates_per_second, .. } = engine;
        write!(text, "{:<20}{:>13.2}", engine.engine, engine.bytes_per_prefix)
            .expect("memory can be written");
        write!(text, "{mlookups_random:>12.1}{mlookups_prefix:>12.1}{updates_per_second:>13.0}")
            .expect("memory can be written");
        let load = engine.load_seconds.map_or(String::new(), |load| format!("{load:.3}"));
        writeln!(text, "{load:>9}").expect("memory can be written");
    }
    if times.engines.iter().any(|engine| !engine.under_updates.is_empty()) {
        shown_under_updates(times, &mut text);
    }
    text
}

fn shown_under_updates(times: &FibTimes, text: &mut String) {
    let heading = ["engine", "updates/s", "made/s", "M drawn/s", "less %", "95 % interval"];
    let [engine, updates, made, drawn, less, interval] = heading;
    writeln!(text, "\n{engine:<20}{updates:>13}{made:>12}{drawn:>12}{less:>9}{interval:>18}")
        .expect("memory can be written");
    for engine in &times.engines {
        for under in &engine.under_updates {
            let (low, high) = (under.loss_percent_low, under.loss_percent_high);
            writeln!(
                text,
                "{:<20}{:>13}{:>12.0}{:>12.1}{:>9.1}{:>18}",
                engine.engine,
                under.updates_per_second,
                under.updates_made_per_second,
                under.mlookups,
                under.loss_percent,
                format!("{low:.1} to {high:.1}")
            )
            .expect("memory can be written");
        }
    }
}
