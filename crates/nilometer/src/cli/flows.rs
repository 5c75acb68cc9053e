//! `nilometer flows`: captures and flow exports into flow records.

use nilometer_files::say;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{ArgAction, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use nilometer_flow::meter::MeterConfig;

use super::live::LiveArgs;
use super::table::{Side, fact, table};
use super::{Exit, key};
use nilometer_files::document::{self, Output};
use nilometer_files::input::choice::ReadAs;
use nilometer_files::input::expand::expand;
use nilometer_files::input::records::{FlowOptions, Progress, Sink, read_flows};
use nilometer_files::input::summary::FlowSummary;
use nilometer_files::table::text::{FlowFile, FlowFormat};
use nilometer_files::terminal::{plain, shown};

/// Work that takes longer than this shows its progress.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest timeout that can be given: a year.
const TIMEOUT_MAX_S: f64 = 366.0 * 86_400.0;

/// Convert captures and flow exports to one-way flow records.
///
/// Packets are metered as in a router's flow cache: a flow record ends on FIN or RST, on the inactive or the active
/// timeout, or when the cache is full. Exports are decoded. Several inputs pass through one cache in the given order.
/// Records are then repaired: fragments of one flow are joined, duplicates dropped, wrapped counters and impossible
/// timestamps corrected.
#[derive(Debug, clap::Args)]
pub struct FlowsArgs {
    /// Captures (pcap, pcapng); datagrams of NetFlow v5, v7, v9, IPFIX and sFlow v5; files of nfcapd and flow-tools;
    /// Zeek's conn.log; CSV with a header (nfdump, Argus) and JSON lines; each also compressed with gzip, Zstandard,
    /// bzip2 or LZ4; or nilometer's flow records. Directories of such files (others in them are skipped, counted and
    /// named) and globs are accepted; `-` is standard input.
    #[arg(value_name = "INPUT", required_unless_present = "live", conflicts_with = "live")]
    inputs: Vec<PathBuf>,
    /// Write the records to this file: CSV if it ends in .csv, JSON lines if it ends in .ndjson, otherwise Parquet.
    /// By default nothing is written.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace an existing FILE.
    #[arg(long, requires = "output")]
    force: bool,
    /// Print one JSON object instead of the table.
    #[arg(long, action = ArgAction::SetTrue)]
    json: bool,
    /// Print the SHA-256 of each input, which takes longer than reading most inputs. Files written by -o always
    /// contain it.
    #[arg(long, requires = "json")]
    digests: bool,
    /// Do not repair records: they may be split, duplicated or misdated. The table then omits TCP connections.
    #[arg(long)]
    decode_only: bool,
    /// Anonymise addresses with prefix preservation (Crypto-PAn). KEYFILE contains 32 bytes or 64 hexadecimal digits;
    /// the same key gives the same addresses.
    #[arg(long, value_name = "KEYFILE", requires = "output")]
    anonymise: Option<PathBuf>,
    #[command(flatten)]
    live: LiveArgs,
    #[command(flatten)]
    metering: MeteringArgs,
}

/// Metering options of all commands that read captures.
#[derive(Clone, Debug, clap::Args)]
pub struct MeteringArgs {
    /// Active timeout: a flow that lasts this long is reported and continues in another record [default: 30m].
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    active_timeout: Option<u64>,
    /// Inactive timeout: a flow without a packet for this long has ended [default: 15s].
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    inactive_timeout: Option<u64>,
    /// Time that a record stays open after FIN or RST [default: 5s].
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    linger: Option<u64>,
    /// Size of the flow cache; when it is full, the least recently used flow ends [default: 1048576].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 26))]
    flows_max: Option<u32>,
    /// What to read from captures: packets, or the flow exports carried in them (NetFlow v5, v7, v9, IPFIX, sFlow
    /// v5).
    #[arg(long, value_enum, default_value_t = From::Auto)]
    from: From,
}

/// What to read from captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum From {
    /// Exports if a capture contains nothing else, otherwise packets.
    Auto,
    /// Always packets.
    Packets,
    /// Always exports; other packets are counted and skipped.
    Exports,
}

impl MeteringArgs {
    /// What was typed, as the reader of inputs takes it.
    pub fn options(&self) -> FlowOptions {
        let usual = MeterConfig::default();
        let meter = MeterConfig {
            active_timeout_ns: self.active_timeout.unwrap_or(usual.active_timeout_ns),
            inactive_timeout_ns: self.inactive_timeout.unwrap_or(usual.inactive_timeout_ns),
            linger_ns: self.linger.unwrap_or(usual.linger_ns),
            flows_max: self.flows_max.map_or(usual.flows_max, |flows| flows as usize),
        };
        let read_as = match self.from {
            From::Auto => None,
            From::Packets => Some(ReadAs::Packets),
            From::Exports => Some(ReadAs::Exports),
        };
        FlowOptions { meter, read_as, ..FlowOptions::default() }
    }
}

/// Runs `nilometer flows`.
///
/// # Errors
/// When an input cannot be read or the output cannot be written.
pub fn run(args: FlowsArgs) -> Result<Exit> {
    let guarded = |path: &PathBuf| -> Result<Output> {
        let beginning = FlowFormat::of(path)?.beginning();
        document::guard_output(path, &expand(&args.inputs)?, args.force, beginning)
    };
    let output = args.output.as_ref().map(guarded).transpose()?;
    let pan = args.anonymise.as_deref().map(key::read).transpose()?;
    let mut writer = output.as_ref().map(FlowFile::new).transpose()?;
    let options = FlowOptions {
        repairs: !args.decode_only,
        // Whatever is kept says what it was made of.
        digests: args.digests || writer.is_some(),
        counts_connections: args.json || !args.decode_only,
        ..args.metering.options()
    };
    let sink = &mut |record| {
        let record = match &pan {
            Some(pan) => pan.record(record),
            None => record,
        };
        writer.as_mut().map_or(Ok(()), |writer| writer.write(&record))
    };
    let (summary, verdict) = match args.live.from() {
        Some(live) => args.live.read(&live, &options, sink)?,
        None => (from_files(&args.inputs, &options, sink)?, Exit::Done),
    };
    if let Some(writer) = writer {
        // Who has an input could tell it by its digest, and names of files tell where they come from.
        writer.finish(if pan.is_some() { &[] } else { &summary.inputs })?;
    }
    for note in &summary.notes {
        say!("{note}");
    }
    for warning in &summary.warnings {
        say!("warning: {warning}");
    }
    let text = match args.json {
        true => serde_json::to_string(&summary)? + "\n",
        false => figures(&summary, args.output.as_deref()),
    };
    print!("{text}");
    Ok(verdict)
}

fn from_files(inputs: &[PathBuf], options: &FlowOptions, sink: Sink<'_>) -> Result<FlowSummary> {
    let mut bar = Bar::new();
    let summary = read_flows(inputs, options, &mut |progress| bar.show(progress), sink);
    bar.clear();
    summary
}

/// Nanoseconds of a time such as `15s`, `500ms`, `30m`, `1.5h`; seconds where no unit is given.
fn parse_time(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let seconds = match &text[digits.len()..] {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        unit => return Err(format!("`{unit}` is not a unit of time; use ms, s, m or h")),
    };
    let value: f64 = digits.parse().map_err(|_| "give a time such as 15s or 30m".to_owned())?;
    let value_s = value * seconds;
    if !(0.0..=TIMEOUT_MAX_S).contains(&value_s) {
        return Err("a time is between 0 and 366 days".to_owned());
    }
    Ok((value_s * 1e9).round() as u64)
}

/// The short table for people.
fn figures(summary: &FlowSummary, output: Option<&Path>) -> String {
    let mut rows = Vec::new();
    let mut row = |indent: usize, name: &str, value: u64| {
        rows.push(vec![format!("{:indent$}{name}", ""), grouped(value)]);
    };
    row(0, "packets", summary.packets);
    let mut row_if = |indent: usize, name: &str, value: u64| {
        if value > 0 {
            row(indent, name, value);
        }
    };
    row_if(2, "not IP", summary.not_ip);
    row_if(2, "malformed", summary.malformed);
    row_if(2, "cut before IP", summary.snapped);
    row_if(2, "other link types", summary.other_link);
    row(0, "IP bytes", summary.bytes);
    row(0, "flow records", summary.flow_records);
    if summary.evicted > 0 {
        row(2, "ended by a full cache", summary.evicted);
    }
    if let Some(flows) = summary.flows_after_repair {
        row(0, "flows after repair", flows);
    }
    for (reason, count) in &summary.repairs {
        row(2, &reason.replace('_', " "), *count);
    }
    if summary.flows_after_repair.is_some() {
        row(0, "TCP connections", summary.tcp_connections);
        row(2, "with SYN", summary.tcp_connections_with_syn);
        row(2, "with SYN and FIN", summary.tcp_connections_with_syn_and_fin);
    }
    if let Some(exports) = &summary.exports {
        row(0, "export datagrams", exports.datagrams);
        row(2, "records in them", exports.records);
        row(2, "records lost before", exports.lost);
    }
    for (reason, count) in &summary.skipped {
        row(0, &format!("skipped: {}", reason.replace('_', " ")), *count);
    }
    if let Some(live) = &summary.live {
        row(0, "received", live.received);
        row(2, "dropped by the kernel", live.kernel_dropped);
    }
    rows.push(vec!["seconds".to_owned(), format!("{:.3}", summary.seconds)]);
    let text = table(&[Side::Left, Side::Right], &rows);
    text + &output.map_or(String::new(), |path| fact("written to", shown(path)))
}

/// `1234567` as `1,234,567`.
fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let first = digits.len() % 3;
    let mut grouped = digits[..first].to_owned();
    for group in digits.as_bytes()[first..].chunks(3) {
        if !grouped.is_empty() {
            grouped.push(',');
        }
        grouped.extend(group.iter().map(|digit| char::from(*digit)));
    }
    grouped
}

/// A progress bar that appears once patience has run out, and only on a terminal.
struct Bar {
    since: Instant,
    terminal: bool,
    shown: Option<ProgressBar>,
}

impl Bar {
    fn new() -> Bar {
        Bar { since: Instant::now(), terminal: io::stderr().is_terminal(), shown: None }
    }

    fn show(&mut self, progress: &Progress<'_>) {
        if !self.terminal || (self.shown.is_none() && self.since.elapsed() < PATIENCE) {
            return;
        }
        let bar = self.shown.get_or_insert_with(|| {
            let template = "{prefix} [{bar:30}] {bytes}/{total_bytes} {msg}";
            let style = ProgressStyle::with_template(template).expect("a sound template");
            ProgressBar::new(0).with_style(style.progress_chars("=> "))
        });
        bar.set_length(progress.total_bytes.unwrap_or(progress.read_bytes));
        bar.set_position(progress.read_bytes);
        bar.set_prefix(plain(progress.name).into_owned());
        bar.set_message(format!("{} packets", grouped(progress.packets)));
    }

    fn clear(&mut self) {
        if let Some(bar) = self.shown.take() {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        let read = [("15s", 15.0), ("1.5", 1.5), ("500ms", 0.5), ("30m", 1_800.0), ("2h", 7_200.0)];
        for (text, seconds) in read {
            assert_eq!(parse_time(text), Ok((seconds * 1e9) as u64), "{text}");
        }
        for text in ["", "s", "-1s", "3 s", "1d", "NaN", "inf", "1e99h", "s5"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn digits_stand_in_threes() {
        for (value, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(value), text);
        }
    }

    #[test]
    fn help_names_the_defaults_that_hold() {
        let usual = MeterConfig::default();
        let message = [
            (usual.active_timeout_ns, parse_time("30m")),
            (usual.inactive_timeout_ns, parse_time("15s")),
            (usual.linger_ns, parse_time("5s")),
        ];
        message.into_iter().for_each(|(holds, message)| assert_eq!(message, Ok(holds)));
        assert_eq!(usual.flows_max, 1_048_576);
    }
}
