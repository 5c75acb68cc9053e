//! `nilometer route bench fib`: forwarding tables against each other, on a table of prefixes.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::cli::Verdict;
use crate::route::bench::fib::{FibTimes, Options, time_family};
use crate::route::bench::prefixes::Family;

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
    /// Print one JSON object in place of the table.
    #[arg(long)]
    json: bool,
}

/// Runs `nilometer route bench fib`.
///
/// # Errors
/// When the file cannot be read, a line is no prefix, or there is none of the family.
pub fn run(args: FibArgs) -> Result<Verdict> {
    let options = Options { table: args.table, family: args.family, rounds: args.rounds };
    let times = time_family(&options)?;
    if times.skipped > 0 {
        eprintln!("nilometer: {} prefixes of the other family were skipped", times.skipped);
    }
    match args.json {
        true => println!("{}", serde_json::to_string(&times)?),
        false => print!("{}", shown(&times)),
    }
    match times.disagreement() {
        Some(account) => {
            eprintln!("nilometer: {account}");
            Ok(Verdict::Negative)
        }
        None => Ok(Verdict::Done),
    }
}

/// The short table for people.
fn shown(times: &FibTimes) -> String {
    let mut text = format!("{} prefixes of IPv{}\n", times.prefixes, times.family);
    let heading = ["engine", "bytes/prefix", "M random/s", "M drawn/s", "updates/s", "load s"];
    let [engine, bytes, random, drawn, updates, load] = heading;
    writeln!(text, "{engine:<16}{bytes:>13}{random:>12}{drawn:>12}{updates:>13}{load:>9}")
        .expect("memory can be written");
    for engine in &times.engines {
        writeln!(
            text,
            "{:<16}{:>13.2}{:>12.1}{:>12.1}{:>13.0}{:>9.3}",
            engine.engine,
            engine.bytes_per_prefix,
            engine.mlookups_random,
            engine.mlookups_prefix,
            engine.updates_per_second,
            engine.load_seconds
        )
        .expect("memory can be written");
    }
    text
}
