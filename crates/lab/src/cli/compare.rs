//! `nilometer compare`: a copy of traffic held against its original.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use nilometer_likeness::observed::Bin;
use nilometer_likeness::{Judgement, Likeness, Observed, Settings, Verdict as Told, judge};
use serde::Serialize;

use super::{VERSION, Verdict};
use crate::document;
use crate::input::observe::{likewise, observe, one_sided};
use crate::input::summary::FlowSummary;
use crate::report::comparison::{self, Comparison};
use crate::report::format::{count, significant};
use crate::report::likeness::{sentence, word};
use crate::trial::progress::Display;
use crate::{report, said};

/// Arguments of `nilometer compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The original: a capture, or a directory of results that has its packets (`lab run --pcap`).
    original: PathBuf,
    /// The copy, likewise: what some generator made of it.
    copy: PathBuf,
    /// A pair of hosts that made no connection for so long begins another session, seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    bound: f64,
    /// Seed of the second samples that floors are drawn from.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Exit with status 1 if a law differs.
    #[arg(long)]
    check: bool,
    /// Draw the comparison as a page, too.
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace a page of ours that is there.
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
    warnings: &'a [String],
}

/// Runs `nilometer compare`.
pub fn run(args: &CompareArgs) -> Result<Verdict> {
    if !(args.bound.is_finite() && args.bound > 0.0) {
        bail!("--bound {}: a number of seconds above 0 is needed", args.bound);
    }
    let display = Display::new();
    let mut warnings = Vec::new();
    let mut read = |path: &PathBuf| -> Result<(Observed, FlowSummary)> {
        display.reading_begins("reading");
        let read = observe(std::slice::from_ref(path), &mut |progress| display.reading(progress))?;
        warnings.extend(read.1.warnings.iter().cloned());
        Ok(read)
    };
    let paths = [packets_of(&args.original)?, packets_of(&args.copy)?];
    let beginning = report::page::BEGINNING.as_bytes();
    let guarded = |page: &PathBuf| document::guard_output(page, &paths, args.force, beginning);
    let page = args.out.as_ref().map(guarded).transpose()?;
    let mut both = [read(&paths[0])?, read(&paths[1])?];
    let inputs = paths.each_ref().map(std::slice::from_ref);
    let seen = likewise(&mut both, inputs, &mut |progress| display.reading(progress))?;
    warnings.extend(seen.map(one_sided));
    let [original, copy] = both;
    let payload = [&original, &copy].map(|(observed, _)| observed.payload_bytes());
    display.phase("judging");
    let bound_ns = (args.bound * 1e9) as u64;
    let settings = Settings { bound_ns, seed: args.seed, ..Settings::default() };
    let judgement = judge(&original.0, &copy.0, &settings);
    drop(display);
    warnings.iter().for_each(|warning| say!("warning: {warning}"));
    let sides =
        [side(&original, judgement.sessions_original), side(&copy, judgement.sessions_copy)];
    if let Some(page) = page {
        let drawn = comparison::render(&Comparison {
            names: sides.each_ref().map(|side| side.inputs.first().map_or("", String::as_str)),
            sides: &figures(&sides),
            likeness: &judgement.likeness,
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
            octets_ratio: copy.bytes as f64 / original.bytes as f64,
            original,
            copy,
            likeness: &judgement.likeness,
            warnings: &warnings,
        };
        println!("{}", serde_json::to_string(&comparison)?);
    } else {
        print!("{}", shown(&sides, &judgement));
    }
    let differs = judgement.told().any(|law| law.verdict == Told::Differs);
    Ok(if args.check && differs { Verdict::Negative } else { Verdict::Done })
}

/// What is read of a name: a directory of results stands for the packets at its client.
fn packets_of(path: &Path) -> Result<PathBuf> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let packets = path.join("client.pcapng");
    if !packets.is_file() {
        bail!(
            "{}: holds no client.pcapng; a directory of results has its packets where it was made with `lab run \
             --pcap`",
            path.display()
        );
    }
    Ok(packets)
}

/// The figures of both sides, as the page has them.
fn figures(sides: &[Side; 2]) -> Vec<Vec<String>> {
    let row =
        |name: &str, of: fn(&Side) -> String| vec![name.to_owned(), of(&sides[0]), of(&sides[1])];
    vec![
        row("read from", |side| side.inputs.join(", ")),
        row("seconds", |side| significant(side.seconds, 4)),
        row("TCP connections", |side| count(side.connections)),
        row("sessions", |side| count(side.sessions)),
        row("TCP packets", |side| count(side.packets)),
        row("TCP bytes", |side| count(side.bytes)),
        row("other packets", |side| count(side.other_packets)),
        row("other bytes", |side| count(side.other_bytes)),
    ]
}

fn side((observed, summary): &(Observed, FlowSummary), sessions: u64) -> Side {
    let Bin { packets, octets } = observed.tcp;
    Side {
        inputs: summary.inputs.iter().map(|input| input.name.clone()).collect(),
        seconds: summary.seconds,
        connections: observed.connections.len() as u64,
        sessions,
        packets,
        bytes: octets,
        other_packets: summary.packets - packets,
        other_bytes: summary.bytes - octets,
    }
}

/// The comparison for people: the verdict first, then a line a law.
fn shown(sides: &[Side; 2], judgement: &Judgement) -> String {
    let mut text = format!("{}\n\n", sentence(&judgement.likeness));
    for (name, side) in ["original", "copy"].into_iter().zip(sides) {
        let Side { seconds, connections, sessions, packets, bytes, .. } = side;
        text += &format!(
            "{name:<9} {}: {connections} TCP connections in {sessions} sessions, {packets} packets, \
             {:.3} MB, {seconds:.1} s\n",
            said::plain(&side.inputs.join(", ")),
            *bytes as f64 / 1e6,
        );
    }
    let head = ["law", "unit", "distance", "floor", "p95", "cap", "verdict"];
    let [law, unit, distance, floor, p95, cap, verdict] = head;
    text +=
        &format!("\n{law:<19} {unit:<12} {distance:>9} {floor:>9} {p95:>9} {cap:>6}  {verdict}\n");
    let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| significant(value, 3));
    for law in &judgement.likeness {
        text += &format!(
            "{:<19} {:<12} {:>9} {:>9} {:>9} {:>6}  {}\n",
            law.name,
            law.unit,
            number(law.distance),
            number(law.floor),
            number(law.floor_p95),
            significant(law.cap, 2),
            word(law.verdict)
        );
    }
    text
}
