//! `nilometer model`: inputs into a traffic model; models stated, shown, compared and exported.

use nilometer_files::say;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};
use nilometer_traffic::TrafficModel;

use super::export::{self, ExportArgs};
use super::stated::{self, NewArgs};
use super::{Exit, coverage, side_by_side, summary};
use nilometer_files::document::model::read_model;
use nilometer_files::document::{self, TABLE};
use nilometer_files::harpoon;
use nilometer_files::input::expand::expand;
use nilometer_files::input::records::Progress;
use nilometer_files::input::summary::FlowSummary;
use nilometer_files::table::flows::read_part_mark;
use nilometer_files::terminal;
use nilometer_lab::trial::config::{default_clients, default_servers};
use nilometer_lab::trial::progress::Display;
use nilometer_lab::trial::source::{self, EstimateRequest, HELD_MAX};

/// How long Harpoon's intervals last where its command line does not say otherwise, seconds.
const HARPOON_INTERVAL_S: f64 = 60.0;
/// How a model begins, of whatever version.
const BEGINNING: &[u8] = b"{\n  \"format\": \"nilometer-model/";

/// Arguments of `nilometer model`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct ModelArgs {
    #[command(subcommand)]
    command: Option<ModelCommand>,
    #[command(flatten)]
    estimate: EstimateArgs,
}

#[derive(Debug, Args)]
struct EstimateArgs {
    /// Captures, flow exports, flow records or partial models; `embedded` is the synthetic sample. Or Harpoon's
    /// configuration: the XML files of its TCP client and server.
    #[arg(required = true)]
    input: Vec<PathBuf>,
    #[command(flatten)]
    how: How,
}

/// Arguments of `nilometer model merge`.
#[derive(Debug, Args)]
struct MergeArgs {
    /// Partial models, written by --part.
    #[arg(required = true)]
    parts: Vec<PathBuf>,
    #[command(flatten)]
    how: How,
}

/// Output and options of the estimation.
#[derive(Debug, Args)]
struct How {
    /// Output file.
    #[arg(short, long, value_name = "FILE", required_unless_present = "part")]
    output: Option<PathBuf>,
    /// Write a partial model instead of a model: a Parquet table of flow records, with addresses and everything else
    /// that a model needs. `model merge` merges partial models.
    #[arg(long, value_name = "FILE",
        conflicts_with_all = ["output", "interval", "bound", "keep_addresses", "harpoon", "records_in_memory", "hold"])]
    part: Option<PathBuf>,
    /// IntervalDuration in seconds; chosen automatically by default, 60 for Harpoon's configuration.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    interval: Option<f64>,
    /// Bound of the inter-connection time, seconds (60, as in the paper).
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    bound: Option<f64>,
    /// Include the original addresses with the ranks.
    #[arg(long)]
    keep_addresses: bool,
    /// Estimate only Harpoon's five distributions, driven by active sessions.
    #[arg(long)]
    harpoon: bool,
    /// Flow records kept in memory, about 50 bytes each, plus 400 bytes for one in 32 of them per processor. Further
    /// records are spilled to disk, in the directory in TMPDIR [default: 16000000].
    #[arg(long, value_name = "RECORDS", value_parser = clap::value_parser!(u32).range(1..))]
    records_in_memory: Option<u32>,
    /// Old name of --records-in-memory.
    #[arg(long, hide = true, conflicts_with = "records_in_memory", value_name = "RECORDS",
        value_parser = clap::value_parser!(u32).range(1..))]
    hold: Option<u32>,
    /// Replace an existing file.
    #[arg(long)]
    force: bool,
    /// Print a summary as one JSON object.
    #[arg(long)]
    json: bool,
}

impl How {
    /// Flow records that memory may hold, by the option or by its old name.
    fn records_in_memory(&self) -> Option<u32> {
        self.records_in_memory.or(self.hold)
    }
}

#[derive(Debug, Subcommand)]
enum ModelCommand {
    /// Merge partial models; the result equals a model of all inputs, bit for bit.
    Merge(MergeArgs),
    /// Write a model with given distributions.
    New(NewArgs),
    /// Export a model: Harpoon's XML, or tables in CSV or Parquet.
    Export(ExportArgs),
    /// Print the JSON Schema of model files.
    Schema,
    /// Print a summary of a model.
    Show {
        /// The model.
        file: PathBuf,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Compare two models: distances between their distributions, and the distances expected by chance.
    Compare {
        /// The first model; sampling floors are drawn from it.
        a: PathBuf,
        /// The second model.
        b: PathBuf,
        /// Seed of the floors.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Print the distances as one JSON object.
        #[arg(long)]
        json: bool,
    },
}

/// Runs `nilometer model`.
pub fn run(args: ModelArgs) -> Result<Exit> {
    match args.command {
        None => estimate(&args.estimate),
        Some(ModelCommand::Merge(args)) => merge(&args),
        Some(ModelCommand::New(args)) => new(&args),
        Some(ModelCommand::Export(args)) => export::run(&args),
        Some(ModelCommand::Schema) => {
            print!("{}", schema()?);
            Ok(Exit::Done)
        }
        Some(ModelCommand::Show { file, json }) => show(&file, json),
        Some(ModelCommand::Compare { a, b, seed, json }) => side_by_side::run([&a, &b], seed, json),
    }
}

/// What a model file is, as JSON Schema (2020-12): made from the types that read it.
///
/// # Errors
/// None that a sound build has.
pub fn schema() -> Result<String> {
    let mut schema = schemars::schema_for!(TrafficModel);
    schema.insert("title".to_owned(), "A traffic model of Nilometer".into());
    document::json_text(&schema)
}

fn estimate(args: &EstimateArgs) -> Result<Exit> {
    let embedded = args.input.iter().any(|input| input.as_os_str() == "embedded");
    if embedded && args.input.len() > 1 {
        bail!("`embedded` stands for the whole synthetic sample; give either it or files");
    }
    let is_xml = !embedded && has_xml(&args.input)?;
    if args.how.part.is_some() && (embedded || is_xml) {
        bail!("a part is made of captures, exports or flow records");
    }
    if is_xml {
        return import(args);
    }
    make(if embedded { &[] } else { &args.input }, &args.how)
}

fn merge(args: &MergeArgs) -> Result<Exit> {
    for path in &args.parts {
        let shown = path.display();
        let mark = is_table(path)?.then(|| read_part_mark(path)).transpose()?.flatten();
        if mark.is_none() {
            bail!("{shown}: is not a part; make one with `nilometer model INPUT --part FILE`");
        }
    }
    make(&args.parts, &args.how)
}

/// Is this file in Parquet?
fn is_table(path: &Path) -> Result<bool> {
    let mut beginning = [0; 4];
    let mut file =
        File::open(path).with_context(|| format!("{}: cannot be opened", path.display()))?;
    Ok(file.read_exact(&mut beginning).is_ok() && beginning == TABLE)
}

/// Makes a model of inputs, or a part.
fn make(inputs: &[PathBuf], how: &How) -> Result<Exit> {
    if how.hold.is_some() {
        say!(
            "warning: --hold has been renamed to --records-in-memory; the old name will be removed in the next version"
        );
    }
    let request = EstimateRequest {
        interval_s: how.interval,
        bound_s: how.bound,
        keep_addresses: how.keep_addresses,
        harpoon: how.harpoon,
        rate: None,
        held_max: how.records_in_memory().map_or(HELD_MAX, |records| records as usize),
        ..EstimateRequest::of(inputs.to_vec())
    };
    let display = Display::new();
    if let Some(part) = &how.part {
        let to = document::guard_output(part, &expand(inputs)?, how.force, TABLE)?;
        display.reading_begins("reading");
        let progress = &mut |progress: &Progress<'_>| display.reading(progress);
        let summary = source::write_part(inputs, &to, progress)?;
        drop(display);
        return print_part(part, &summary, how.json);
    }
    let output = how.output.as_ref().context("give the model's file with -o FILE")?;
    let to = document::guard_output(output, &expand(inputs)?, how.force, BEGINNING)?;
    display.reading_begins("reading");
    let made = source::model(&request, &mut |progress| display.reading(progress))?;
    drop(display);
    to.write_json(&made.model)?;
    for note in &made.notes {
        say!("{note}");
    }
    for warning in &made.warnings {
        say!("warning: {warning}");
    }
    if let Some(warning) = coverage::warning(&made.model) {
        say!("warning: {warning}");
    }
    print_model(&made.model, how.json)
}

fn print_part(path: &Path, summary: &FlowSummary, json: bool) -> Result<Exit> {
    let (path, inputs) = (path.display().to_string(), summary.inputs.len());
    for warning in &summary.warnings {
        say!("warning: {warning}");
    }
    if json {
        let part = serde_json::json!({
            "part": path, "flow_records": summary.flow_records, "inputs": summary.inputs,
        });
        println!("{part}");
    } else {
        println!(
            "{}: {} flow records of {inputs} inputs",
            terminal::plain(&path),
            summary.flow_records
        );
    }
    Ok(Exit::Done)
}

/// Is any of the inputs an XML file? Standard input is not looked at: it could not be read again.
fn has_xml(inputs: &[PathBuf]) -> Result<bool> {
    for input in inputs.iter().filter(|input| input.is_file()) {
        let mut beginning = Vec::new();
        let file = File::open(input).with_context(|| format!("cannot read {}", input.display()))?;
        file.take(256).read_to_end(&mut beginning)?;
        if harpoon::is_xml(&beginning) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Harpoon's configuration as a model.
fn import(args: &EstimateArgs) -> Result<Exit> {
    let how = &args.how;
    let output = how.output.as_ref().context("give the model's file with -o FILE")?;
    let to = document::guard_output(output, &expand(&args.input)?, how.force, BEGINNING)?;
    if how.bound.is_some() || how.keep_addresses || how.records_in_memory().is_some() {
        bail!(
            "--bound, --keep-addresses and --records-in-memory are for flows; Harpoon's configuration has none"
        );
    }
    let read = harpoon::read(&args.input)?;
    let skipped = read.skipped.clone();
    let pools = (default_clients(), default_servers());
    let stated = read.stated(how.interval.unwrap_or(HARPOON_INTERVAL_S), pools)?;
    let model = stated.model().map_err(|error| anyhow!("no such model: {error}"))?;
    to.write_json(&model)?;
    for (reason, count) in &skipped {
        say!("passed over {count} x {reason}");
    }
    print_model(&model, how.json)
}

fn new(args: &NewArgs) -> Result<Exit> {
    let to = document::guard_output(&args.output, &[], args.force, BEGINNING)?;
    let model = stated::model(args)?;
    to.write_json(&model)?;
    print_model(&model, args.json)
}

fn show(path: &Path, json: bool) -> Result<Exit> {
    print_model(&read_model(path)?, json)
}

fn print_model(model: &TrafficModel, json: bool) -> Result<Exit> {
    if json {
        println!("{}", serde_json::to_string(model)?);
    } else {
        print!("{}", summary::of(model));
    }
    Ok(Exit::Done)
}
