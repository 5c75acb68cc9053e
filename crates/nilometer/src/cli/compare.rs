//! `nilometer compare`: a copy of traffic held against its original.

use nilometer_files::say;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use nilometer_likeness::observed::Bin;
use nilometer_likeness::{Judgement, Likeness, Settings, Source, Verdict as LawVerdict, judge};
use serde::Serialize;

use super::table::Side::{Left, Right};
use super::table::{row, table};
use super::{Exit, VERSION};
use nilometer_files::document;
use nilometer_files::input::sides::{ObservedSide, observe_both};
use nilometer_files::terminal;
use nilometer_lab::trial::figures::{Figure, compared, has_figures};
use nilometer_lab::trial::progress::Display;
use nilometer_report as report;
use nilometer_report::comparison::{self, Comparison};
use nilometer_report::format::{count, significant};
use nilometer_report::likeness::{sentence, word};

/// Arguments of `nilometer compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The original: a capture, any flow records that `nilometer flows` reads, a model with its connections
    /// (`model.json` of a `lab run`), or a directory of results, from which packets (`lab run --pcap`) are used if
    /// present, otherwise flow records.
    original: PathBuf,
    /// The copy, in the same formats: what a generator made of the original.
    copy: PathBuf,
    /// A pair of hosts without a new connection for this long starts another session, seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    bound: f64,
    /// Seed of the second samples from which sampling floors are computed.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Exit with status 1 if a distribution differs.
    #[arg(long)]
    check: bool,
    /// Also write the comparison as an HTML page.
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace an existing page of nilometer's.
    #[arg(long)]
    force: bool,
    /// Print the comparison as one JSON object.
    #[arg(long)]
    json: bool,
}

/// What was read of one side.
#[derive(Debug, Serialize)]
struct Side {
    inputs: Vec<String>,
    compared_as: &'static str,
    seconds: f64,
    connections: u64,
    sessions: u64,
    packets: u64,
    bytes: u64,
    other_packets: u64,
    other_bytes: u64,
}

/// The comparison, as JSON.
#[derive(Debug, Serialize)]
struct Compared<'a> {
    format: &'static str,
    seed: u64,
    bound_s: f64,
    volume_ratio: f64,
    octets_ratio: f64,
    original: &'a Side,
    copy: &'a Side,
    likeness: &'a [Likeness],
    /// Laws that what the two were read from does not tell.
    not_measured: &'a [String],
    /// What the devices of two runs did; empty unless both are directories of results.
    figures: &'a [Figure],
    warnings: &'a [String],
}

/// Runs `nilometer compare`.
pub fn run(args: &CompareArgs) -> Result<Exit> {
    if !(args.bound.is_finite() && args.bound > 0.0) {
        bail!("--bound {}: a number of seconds above 0 is needed", args.bound);
    }
    let display = Display::new();
    let given = [&args.original, &args.copy];
    let paths = [packets_of(given[0])?, packets_of(given[1])?];
    let beginning = report::page::BEGINNING.as_bytes();
    let guarded = |page: &PathBuf| document::guard_output(page, &paths, args.force, beginning);
    let page = args.out.as_ref().map(guarded).transpose()?;
    display.reading_begins("reading");
    let (both, warnings) = observe_both(&paths, &mut |progress| display.reading(progress))?;
    let [original, copy] = &both;
    let payload = both.each_ref().map(|side| side.observed.payload_bytes());
    display.phase("judging");
    let bound_ns = (args.bound * 1e9) as u64;
    let settings = Settings { bound_ns, seed: args.seed, ..Settings::default() };
    let judgement = judge(&original.observed, &copy.observed, &settings);
    let devices = match given.iter().all(|path| has_figures(path)) {
        true => compared(given[0], given[1])?,
        false => Vec::new(),
    };
    drop(display);
    warnings.iter().for_each(|warning| say!("warning: {warning}"));
    let sides = [side(original, judgement.sessions_original), side(copy, judgement.sessions_copy)];
    if let Some(page) = page {
        let drawn = comparison::render(&Comparison {
            names: sides.each_ref().map(|side| side.inputs.first().map_or("", String::as_str)),
            sides: &figures(&sides),
            likeness: &judgement.likeness,
            not_measured: &not_measured(&judgement),
            devices: &devices.iter().map(|figure| in_words(figure).to_vec()).collect::<Vec<_>>(),
            warnings: &warnings,
            tool: VERSION,
        });
        page.write(drawn.as_bytes())?;
    }
    if args.json {
        let [original, copy] = &sides;
        let comparison = Compared {
            format: "nilometer-comparison/1",
            seed: args.seed,
            bound_s: args.bound,
            volume_ratio: payload[1] as f64 / payload[0].max(1) as f64,
            octets_ratio: copy.bytes as f64 / original.bytes.max(1) as f64,
            original,
            copy,
            likeness: &judgement.likeness,
            not_measured: &judgement.not_measured,
            figures: &devices,
            warnings: &warnings,
        };
        println!("{}", serde_json::to_string(&comparison)?);
    } else {
        print!("{}", shown(&sides, &judgement));
        if !devices.is_empty() {
            let mut rows = vec![row(["device", "first", "second", "difference", "noise"])];
            rows.extend(
                devices.iter().map(|figure| row(in_words(figure).each_ref().map(String::as_str))),
            );
            print!("\n{}", table(&[Left, Right, Right, Right, Right], &rows));
        }
    }
    let differs = judgement.judged().any(|law| law.verdict == LawVerdict::Differs);
    Ok(if args.check && differs { Exit::Negative } else { Exit::Done })
}

/// A figure of two devices as a row: its name, both values, their difference and the noise.
fn in_words(figure: &Figure) -> [String; 5] {
    let Figure { name, first, second, difference, noise } = figure;
    let number = |value: &Option<f64>| value.map_or("-".to_owned(), |value| significant(value, 4));
    [name.replace('_', " "), number(first), number(second), number(difference), number(noise)]
}

/// What is read of a name: a directory of results stands for the packets at its client, or for the flow records
/// that were metered there.
fn packets_of(path: &Path) -> Result<PathBuf> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let kept = ["client.pcapng", "flows.parquet"].map(|name| path.join(name));
    if let Some(kept) = kept.into_iter().find(|file| file.is_file()) {
        return Ok(kept);
    }
    if path.join("result.json").is_file() {
        bail!(
            "{}: a directory of results without client.pcapng (`lab run --pcap`) and flows.parquet has nothing to \
             compare",
            path.display()
        );
    }
    // A directory of exports, as nfcapd writes them.
    Ok(path.to_owned())
}

/// What packets, flow records and models are called.
fn called(source: Source) -> &'static str {
    match source {
        Source::Packets => "packets",
        Source::Vectors => "connection vectors",
        Source::Records { .. } => "flow records",
    }
}

/// The laws that are not told, in words; nothing where all are.
fn not_measured(judgement: &Judgement) -> String {
    match &judgement.not_measured[..] {
        [] => String::new(),
        laws => format!(
            "Not measured, because the inputs do not contain them: {}.",
            laws.join(", ").replace('_', " ")
        ),
    }
}

/// The figures of both sides, as the page has them.
fn figures(sides: &[Side; 2]) -> Vec<Vec<String>> {
    let row =
        |name: &str, of: fn(&Side) -> String| vec![name.to_owned(), of(&sides[0]), of(&sides[1])];
    vec![
        row("read from", |side| side.inputs.join(", ")),
        row("compared as", |side| side.compared_as.to_owned()),
        row("seconds", |side| significant(side.seconds, 4)),
        row("TCP connections", |side| count(side.connections)),
        row("sessions", |side| count(side.sessions)),
        row("TCP packets", |side| count(side.packets)),
        row("TCP bytes", |side| count(side.bytes)),
        row("other packets", |side| count(side.other_packets)),
        row("other bytes", |side| count(side.other_bytes)),
    ]
}

fn side(seen: &ObservedSide, sessions: u64) -> Side {
    let Bin { packets, octets } = seen.observed.tcp;
    Side {
        inputs: seen.names.clone(),
        compared_as: called(seen.observed.source),
        seconds: seen.seconds,
        connections: seen.observed.connections.len() as u64,
        sessions,
        packets,
        bytes: octets,
        other_packets: seen.others.packets,
        other_bytes: seen.others.octets,
    }
}

/// The comparison for people: the verdict first, then a line a law.
fn shown(sides: &[Side; 2], judgement: &Judgement) -> String {
    let mut text = format!("{}\n\n", sentence(&judgement.likeness));
    for (name, side) in ["original", "copy"].into_iter().zip(sides) {
        let Side { seconds, connections, sessions, packets, bytes, .. } = side;
        text += &format!(
            "{name} {}: {}: {connections} TCP connections in {sessions} sessions, {packets} packets, \
             {:.3} MB, {seconds:.1} s\n",
            terminal::plain(&side.inputs.join(", ")),
            side.compared_as,
            *bytes as f64 / 1e6,
        );
    }
    let mut rows = vec![row(["law", "unit", "distance", "floor", "p95", "cap", "verdict"])];
    let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| significant(value, 3));
    rows.extend(judgement.likeness.iter().map(|law| {
        let [distance, floor, p95] = [law.distance, law.floor, law.floor_p95].map(number);
        let (cap, verdict) = (significant(law.cap, 2), word(law.verdict));
        row([&law.name, &law.unit, &distance, &floor, &p95, &cap, verdict])
    }));
    let sides = [Left, Left, Right, Right, Right, Right, Left];
    text += &format!("\n{}", table(&sides, &rows));
    match not_measured(judgement) {
        nothing if nothing.is_empty() => text,
        laws => text + "\n" + &laws + "\n",
    }
}
