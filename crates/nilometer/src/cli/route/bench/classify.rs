//! `nilometer route bench classify`: the packet classifier against linear search, on a set of filters.

use nilometer_files::say;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::cli::Exit;
use nilometer_bench::classify::{ClassifyTimes, Options, time_set};
use nilometer_routerd::filter::ClassifierName;

/// Benchmark the packet classifier on a filter set, and compare its results with linear search.
///
/// A filter is a line in ClassBench's format: `@source/length destination/length low : high low : high protocol/mask
/// flags/mask`, source ports first, TCP flags in the upper octet of their column, which may be missing. The first
/// filter that matches counts. A line of a trace is `source destination source-port destination-port protocol [flags]
/// [filter]` in decimal; six columns have no flags. Without a trace, 2^20 different headers are generated, three
/// quarters from filters, the others at random. A checksum is the wrapping sum over all headers of 1 and the position
/// of the filter in the file, from 0; 0 for no match. Rates are in CPU time of one thread, medians of rounds. An
/// update removes a filter, puts another in its place, and restores it. Exit status 1 if the checksums differ.
#[derive(Debug, Args)]
pub struct ClassifyArgs {
    /// The filters, in ClassBench's format.
    #[arg(long, value_name = "FILE")]
    rules: PathBuf,
    /// The headers, in ClassBench's format; random by default.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// The classifier: `vectors`, `tuples` or `linear`, as in ROUTER.toml.
    #[arg(long, value_name = "NAME", default_value_t, value_parser = ClassifierName::parse)]
    classifier: ClassifierName,
    /// Number of rounds; results are medians.
    #[arg(long, value_name = "N", default_value_t = 11,
        value_parser = clap::value_parser!(u32).range(1..=1_001))]
    rounds: u32,
    /// Ignore the flags column of the filters: five fields, as in most published results.
    #[arg(long)]
    without_flags: bool,
    /// Also time the flow cache.
    #[arg(long)]
    flow_cache: bool,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
}

/// Runs `nilometer route bench classify`.
///
/// # Errors
/// When a file cannot be read, a line is malformed, or there is nothing in it.
pub fn run(args: ClassifyArgs) -> Result<Exit> {
    let options = Options {
        rules: args.rules,
        trace: args.trace,
        classifier: args.classifier,
        rounds: args.rounds,
        without_flags: args.without_flags,
        with_cache: args.flow_cache,
    };
    let times = time_set(&options)?;
    match args.json {
        true => println!("{}", serde_json::to_string(&times)?),
        false => print!("{}", shown(&times)),
    }
    if times.agree() {
        return Ok(Exit::Done);
    }
    say!("the classifier and linear search disagree: see the checksums");
    Ok(Exit::Negative)
}

/// The short account for people.
fn shown(times: &ClassifyTimes) -> String {
    let cached = times.mheaders_per_second_flow_cache;
    let cached = cached.map_or(String::new(), |rate| format!(", {rate:.2} with a flow cache"));
    format!(
        "{} filters in {} bytes ({}), loaded in {:.3} s\n\
         {} headers, {} distinct\n\
         {:.2} million headers/s, {:.1} ns each{cached}\n\
         {:.0} updates/s, 999 of 1,000 pairs within {:.1} us\n\
         checksum {}, after updates {}, by linear search {}\n",
        times.rules,
        times.bytes,
        times.classifier,
        times.load_seconds,
        times.headers,
        times.distinct_headers,
        times.mheaders_per_second,
        times.ns_per_header,
        times.updates_per_second,
        times.update_p999_us,
        times.checksum,
        times.checksum_after_updates,
        times.checksum_linear,
    )
}
