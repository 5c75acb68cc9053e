//! The source of a model: the embedded flow records, or files, estimated in the same way.

use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result, bail};
use nilometer_flow::FlowRecord;
use nilometer_traffic::estimate::{Estimate, EstimateOptions, estimate, estimate_gathered};
use nilometer_traffic::gather::Gathered;
use nilometer_traffic::model::{Input, Origin};
use nilometer_traffic::pool::Prefix;
use nilometer_traffic::synthetic;

use super::config::{default_clients, default_servers};
use super::threads::Threads;
use crate::cli::VERSION;
use crate::input::records::{FlowOptions, Progress, read_flows};
use crate::input::summary::FlowSummary;

/// Flow records held in memory for an estimate at most.
const RECORDS_MAX: usize = 40_000_000;
/// Records handed over at a time, and batches that wait at most.
const BATCH_RECORDS: usize = 4_096;
const BATCHES: usize = 8;
/// The inter-connection bound of the paper, seconds.
const BOUND_S: f64 = 60.0;

/// What the estimation is asked for.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Files; the embedded records where empty.
    pub inputs: Vec<PathBuf>,
    /// IntervalDuration, seconds.
    pub interval_s: Option<f64>,
    /// The inter-connection bound, seconds.
    pub bound_s: Option<f64>,
    /// Write original addresses beside the ranks.
    pub keep_addresses: bool,
    /// The five distributions alone, as Harpoon has them.
    pub harpoon: bool,
    /// Client pools.
    pub clients: Vec<Prefix>,
    /// Server pools.
    pub servers: Vec<Prefix>,
}

impl Asked {
    /// The estimation of these inputs with nothing else said.
    pub fn of(inputs: Vec<PathBuf>) -> Asked {
        Asked {
            inputs,
            interval_s: None,
            bound_s: None,
            keep_addresses: false,
            harpoon: false,
            clients: default_clients(),
            servers: default_servers(),
        }
    }
}

/// Estimates a model from what was asked for; progress goes to `progress`.
///
/// # Errors
/// Where an input cannot be read, or nothing in it enters a model.
pub fn model(asked: &Asked, progress: &mut dyn FnMut(&Progress<'_>)) -> Result<Estimate> {
    let mut made =
        if asked.inputs.is_empty() { embedded(asked)? } else { from_files(asked, progress)? };
    if asked.harpoon {
        made.model = made.model.without_connections();
    }
    Ok(made)
}

fn options(asked: &Asked, origin: Origin) -> EstimateOptions {
    EstimateOptions {
        interval_s: asked.interval_s,
        bound_s: asked.bound_s.unwrap_or(BOUND_S),
        keep_addresses: asked.keep_addresses,
        tool: format!("nilometer {VERSION}"),
        origin,
        span_ns: None,
        clients: asked.clients.clone(),
        servers: asked.servers.clone(),
    }
}

fn embedded(asked: &Asked) -> Result<Estimate> {
    let origin = Origin {
        description: "embedded flow records, synthetic: lognormal files with a Pareto 1.2 tail, \
                      Zipf addresses"
            .to_owned(),
        synthetic: true,
        inputs: Vec::new(),
    };
    let end_ns = synthetic::ORIGIN_NS + (synthetic::DURATION_S * 1e9) as u64;
    let options = EstimateOptions {
        interval_s: Some(asked.interval_s.unwrap_or(synthetic::INTERVAL_S)),
        bound_s: asked.bound_s.unwrap_or(synthetic::BOUND_S),
        span_ns: Some((synthetic::ORIGIN_NS, end_ns)),
        ..options(asked, origin)
    };
    Ok(estimate(synthetic::records(), &options)?)
}

/// The name without its folder: a model is passed on, folders are nobody else's business.
fn file_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

/// Reads all inputs. Records are packed by another thread than the one that reads them.
fn gather(
    inputs: &[PathBuf],
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<(FlowSummary, Gathered)> {
    let options =
        FlowOptions { for_model: true, counts_connections: false, ..FlowOptions::default() };
    let (filled, to_pack) = mpsc::sync_channel::<Vec<FlowRecord>>(BATCHES);
    let (emptied, to_fill) = mpsc::channel();
    thread::scope(|scope| {
        let packing = scope.spawn(move || {
            let mut gathered = Gathered::new();
            for mut batch in to_pack {
                batch.drain(..).for_each(|record| gathered.take(record));
                // Whoever reads may have ended.
                emptied.send(batch).ok();
            }
            gathered
        });
        let mut records = 0;
        let mut batch = Vec::with_capacity(BATCH_RECORDS);
        let mut keep = |record| {
            batch.push(record);
            if batch.len() == BATCH_RECORDS {
                records += BATCH_RECORDS;
                if records > RECORDS_MAX {
                    bail!("more than {RECORDS_MAX} flow records; give a part of the input");
                }
                let empty =
                    to_fill.try_recv().unwrap_or_else(|_| Vec::with_capacity(BATCH_RECORDS));
                let full = std::mem::replace(&mut batch, empty);
                filled.send(full).expect("records are packed until no more come");
            }
            Ok(())
        };
        let summary = read_flows(inputs, &options, progress, &mut keep);
        filled.send(batch).expect("records are packed until no more come");
        drop(filled);
        let gathered = packing.join().expect("packing does not fail");
        Ok((summary?, gathered))
    })
}

fn from_files(asked: &Asked, progress: &mut dyn FnMut(&Progress<'_>)) -> Result<Estimate> {
    let (summary, records) = gather(&asked.inputs, progress)?;
    let names: Vec<String> = summary.inputs.iter().map(|input| file_name(&input.name)).collect();
    let origin = Origin {
        description: names.join(", "),
        synthetic: false,
        inputs: summary
            .inputs
            .iter()
            .map(|input| Input { name: file_name(&input.name), sha256: input.sha256.clone() })
            .collect(),
    };
    let mut made = estimate_gathered(records, &options(asked, origin), &Threads::new())
        .with_context(|| format!("no model from {}", names.join(", ")))?;
    let mut warnings = summary.warnings;
    for input in &summary.inputs {
        for warning in &mut warnings {
            *warning = warning.replace(&input.name, &file_name(&input.name));
        }
    }
    made.warnings.splice(0..0, warnings);
    if summary.round_trips.is_some() {
        made.model.round_trips = summary.round_trips;
    }
    let why = match summary.hurst.context("it was asked for")? {
        Ok(hurst) => {
            made.model.hurst = Some(hurst);
            return Ok(made);
        }
        Err(why) => why,
    };
    made.notes.push(format!("hurst is left out: {why}"));
    Ok(made)
}
