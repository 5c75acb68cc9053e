//! The source of a model: the embedded flow records, or files, estimated in the same way.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use anyhow::{Context, Result, anyhow};
use nilometer_flow::FlowRecord;
use nilometer_traffic::estimate::{Estimate, EstimateOptions, estimate, estimate_partitioned};
use nilometer_traffic::model::{Input, LoadDriver, Origin};
use nilometer_traffic::partitioner::{MemoryBudget, Partitioner};
use nilometer_traffic::pool::Prefix;
use nilometer_traffic::synthetic;

use super::apart;
use super::config::{default_clients, default_servers};
use super::input_warning::{InputWarning, texts};
use super::refusal::{self, RecordKinds};
use super::spill::SpillFile;
use super::threads::Threads;
use nilometer_files::document::Output;
use nilometer_files::document::model::read_model;
use nilometer_files::input::records::{FlowOptions, Progress, read_flows};
use nilometer_files::input::summary::FlowSummary;
use nilometer_files::input::supplement::PartMark;
use nilometer_files::table::flows::FlowWriter;
use nilometer_files::tool;

/// Flow records held in memory for an estimate, by default; more are spilled to disk.
pub const HELD_MAX: usize = 16_000_000;
/// Each thread unpacks at once one in this many of the records that may be held, but no fewer than
/// `TOGETHER_MIN`.
const TOGETHER_PART: usize = 32;
const TOGETHER_MIN: usize = 16_384;
/// Records handed over at a time, and batches that wait at most.
const BATCH_RECORDS: usize = 4_096;
const BATCHES: usize = 8;
/// The inter-connection bound of the paper, seconds.
pub(super) const BOUND_S: f64 = 60.0;

/// The settings of an estimation.
#[derive(Clone, Debug)]
pub struct EstimateRequest {
    /// Files; the embedded records where empty.
    pub inputs: Vec<PathBuf>,
    /// IntervalDuration, seconds.
    pub interval_s: Option<f64>,
    /// The inter-connection bound, seconds.
    pub bound_s: Option<f64>,
    /// Write original addresses beside the ranks.
    pub keep_addresses: bool,
    /// The five distributions alone, as Harpoon has them, driven by active sessions.
    pub harpoon: bool,
    /// Packets a second of captures whose packets have no clock.
    pub rate: Option<f64>,
    /// Flow records held in memory at most, some 50 bytes each; more are spilled to disk.
    pub held_max: usize,
    /// Refuse packets that come through a pipe: they would be played as they were, if they came from a file.
    pub refuses_piped_packets: bool,
    /// Client pools.
    pub clients: Vec<Prefix>,
    /// Server pools.
    pub servers: Vec<Prefix>,
}

impl EstimateRequest {
    /// The estimation of these inputs with default settings.
    pub fn of(inputs: Vec<PathBuf>) -> EstimateRequest {
        EstimateRequest {
            inputs,
            interval_s: None,
            bound_s: None,
            keep_addresses: false,
            harpoon: false,
            rate: None,
            held_max: HELD_MAX,
            refuses_piped_packets: false,
            clients: default_clients(),
            servers: default_servers(),
        }
    }
}

/// Estimates a model from the requested input; progress goes to `progress`.
///
/// # Errors
/// Where an input cannot be read, or nothing in it enters a model.
pub fn model(
    request: &EstimateRequest,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Estimate> {
    if request.inputs.is_empty() { embedded(request) } else { from_files(request, progress) }
}

/// A model that was made before, to be played from these pools.
///
/// # Errors
/// Where the file is no sound model.
pub fn given(path: &Path, request: &EstimateRequest) -> Result<Estimate> {
    let mut model = read_model(path)?;
    model.generation.clients.clone_from(&request.clients);
    model.generation.servers.clone_from(&request.servers);
    let mut warning = None;
    if request.harpoon {
        model = model.without_connections();
        let is_not = model.generation.driver == LoadDriver::Connections;
        warning = is_not.then(|| InputWarning::NotOfHarpoon(path.display().to_string()));
    }
    let warnings = texts([warning]).collect();
    Ok(Estimate { model, warnings, notes: Vec::new(), largest_batch: 0 })
}

fn options(request: &EstimateRequest, origin: Origin) -> EstimateOptions {
    EstimateOptions {
        interval_s: request.interval_s,
        bound_s: request.bound_s.unwrap_or(BOUND_S),
        keep_addresses: request.keep_addresses,
        tool: tool::tool(),
        origin,
        span_ns: None,
        clients: request.clients.clone(),
        servers: request.servers.clone(),
        harpoon: request.harpoon,
    }
}

fn embedded(request: &EstimateRequest) -> Result<Estimate> {
    let origin = Origin {
        description: "embedded flow records, synthetic: lognormal files with a Pareto 1.2 tail, \
                      Zipf addresses"
            .to_owned(),
        synthetic: true,
        inputs: Vec::new(),
    };
    let end_ns = synthetic::ORIGIN_NS + (synthetic::DURATION_S * 1e9) as u64;
    let options = EstimateOptions {
        interval_s: Some(request.interval_s.unwrap_or(synthetic::INTERVAL_S)),
        bound_s: request.bound_s.unwrap_or(synthetic::BOUND_S),
        span_ns: Some((synthetic::ORIGIN_NS, end_ns)),
        ..options(request, origin)
    };
    Ok(estimate(synthetic::records(), &options)?)
}

/// The name without its folder: a model is passed on, the folder stays private.
pub(super) fn file_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

/// Everything that was read.
struct Read {
    summary: FlowSummary,
    partitioner: Partitioner,
    spill: SpillFile,
    kinds: RecordKinds,
}

/// How inputs are read for a model.
fn for_model() -> FlowOptions {
    FlowOptions { for_model: true, counts_connections: false, ..FlowOptions::default() }
}

/// Reads all inputs. Another thread packs and spills the records.
fn read(
    inputs: &[PathBuf],
    options: &FlowOptions,
    held_max: usize,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Read> {
    let (filled, to_pack) = mpsc::sync_channel::<Vec<FlowRecord>>(BATCHES);
    let (emptied, to_fill) = mpsc::channel();
    thread::scope(|scope| {
        let packing = scope.spawn(move || pack(&to_pack, &emptied, held_max));
        let mut batch = Vec::with_capacity(BATCH_RECORDS);
        let mut kinds = RecordKinds::default();
        let mut keep = |record: FlowRecord| {
            kinds.take(record.key.protocol);
            batch.push(record);
            if batch.len() == BATCH_RECORDS {
                let empty =
                    to_fill.try_recv().unwrap_or_else(|_| Vec::with_capacity(BATCH_RECORDS));
                let full = std::mem::replace(&mut batch, empty);
                filled.send(full).context("records are no longer packed")?;
            }
            Ok(())
        };
        let summary = read_flows(inputs, options, progress, &mut keep);
        // The packing thread may have failed, and reports why.
        filled.send(batch).ok();
        drop(filled);
        let (partitioner, spill) = packing.join().expect("packing does not panic")?;
        Ok(Read { summary: summary?, partitioner, spill, kinds })
    })
}

/// Packs records until there are no more.
fn pack(
    to_pack: &Receiver<Vec<FlowRecord>>,
    emptied: &Sender<Vec<FlowRecord>>,
    held_max: usize,
) -> Result<(Partitioner, SpillFile)> {
    let together = (held_max / TOGETHER_PART).max(TOGETHER_MIN);
    let mut partitioner =
        Partitioner::with_budget(MemoryBudget { packed: held_max, batch: together });
    let mut spill = SpillFile::default();
    for mut batch in to_pack {
        batch.drain(..).for_each(|record| partitioner.push_screened(record));
        if partitioner.is_full() {
            spill.write_all(&mut partitioner)?;
        }
        // The reader may have ended.
        emptied.send(batch).ok();
    }
    Ok((partitioner, spill))
}

/// Reads inputs into a part: their flow records, and other inputs of a model.
///
/// # Errors
/// Where an input cannot be read, or the part cannot be written.
pub fn write_part(
    inputs: &[PathBuf],
    to: &Output,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<FlowSummary> {
    let mut writer = FlowWriter::on(to.draft()?)?;
    let summary = read_flows(inputs, &for_model(), progress, &mut |record| writer.write(&record))?;
    let beside = summary.beside.as_ref().context("it was asked for")?;
    writer.finish_part(&PartMark::new(&summary.inputs, &summary.warnings, beside))?;
    Ok(summary)
}

fn from_files(
    request: &EstimateRequest,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Estimate> {
    let refuses_piped_packets = request.refuses_piped_packets;
    let how = FlowOptions { refuses_piped_packets, ..for_model() };
    let Read { summary, mut partitioner, spill, kinds } =
        read(&request.inputs, &how, request.held_max, progress)?;
    let beside = summary.beside.context("it was asked for")?;
    beside.screened().for_each(|(reason, times)| partitioner.note_screened(reason, times));
    let names: Vec<String> = summary.inputs.iter().map(|input| file_name(&input.name)).collect();
    let origin = Origin {
        description: names.join(", "),
        synthetic: false,
        inputs: summary
            .inputs
            .iter()
            .map(|input| {
                let sha256 = input.sha256.clone().expect("what a model is made of is digested");
                Input { name: file_name(&input.name), sha256 }
            })
            .collect(),
    };
    let options = options(request, origin);
    let has_packets = summary.format.contains("pcap");
    let mut made =
        estimate_partitioned(partitioner, &spill, &options, &Threads::new()).map_err(|error| {
            anyhow!(refusal::no_model(&names.join(", "), &error, &kinds, has_packets))
        })?;
    let mut warnings = summary.warnings;
    warnings.extend(texts([apart::warning(&summary.spans, options.bound_s)]));
    for input in &summary.inputs {
        for warning in &mut warnings {
            *warning = warning.replace(&input.name, &file_name(&input.name));
        }
    }
    made.warnings.splice(0..0, warnings);
    if let Some(round_trips) = beside.round_trips()
        && !request.harpoon
    {
        made.model.round_trips = Some(round_trips);
    }
    match beside.hurst() {
        Ok(hurst) => made.model.hurst = Some(hurst),
        Err(why) => made.notes.push(format!("hurst is left out: {why}")),
    }
    Ok(made)
}
