//! Both sides of a comparison, observed alike whatever each is read from.
//!
//! Packets are compared with packets. Flow records hold less, and some exporters export more than others; so
//! if one side is flow records, the packets of the other are metered into records, and only information that
//! both sides have is used (`conversation::joined`). A model that keeps the vectors of its connections is
//! observed by them; a model that has only laws cannot be observed.

use std::fs::File;
use std::io::Read;
use std::mem;
use std::path::{Path, PathBuf};
use std::slice;

use anyhow::{Context, Result, bail};
use nilometer_conversation::{Limits, RecordDetail, Side, joined};
use nilometer_flow::FlowRecord;
use nilometer_flow::record::TCP;
use nilometer_likeness::observed::{Bin, CONNECTIONS_MAX};
use nilometer_likeness::{Observed, Observer, Source};
use nilometer_wire::packet::IpPacket;

use super::observe::{can_be_read_again, hold, observe_side, one_sided};
use super::records::{FlowOptions, Progress, read_either, read_flows};
use super::summary::FlowSummary;
use crate::document::model::read_model;

/// TCP flow records of one side that are compared at most: two to a connection, some 130 bytes each.
const RECORDS_MAX: usize = 2 * CONNECTIONS_MAX;
/// Bytes within which a model is recognised.
const BEGINNING_BYTES: u64 = 512;

/// One side, as it is compared.
#[derive(Debug)]
pub struct ObservedSide {
    /// The inputs that were read.
    pub names: Vec<String>,
    /// The observation.
    pub observed: Observed,
    /// Its duration, seconds.
    pub seconds: f64,
    /// Packets that are not TCP, and their bytes.
    pub others: Bin,
}

/// The callback for progress while inputs are read.
type Watched<'a> = &'a mut dyn FnMut(&Progress<'_>);

/// The data of a side.
enum What {
    Packets(Observed),
    Records(Records),
    Vectors(Observed),
}

/// One side, as read.
struct Held<'a> {
    path: &'a PathBuf,
    names: Vec<String>,
    seconds: f64,
    others: Bin,
    what: What,
}

/// Flow records as read.
#[derive(Default)]
struct Records {
    tcp: Vec<FlowRecord>,
    others: Bin,
    sampling_max: u32,
}

/// Reads both sides and observes them alike; also returns warnings.
///
/// # Errors
/// When one cannot be read, or holds no connection, or the two cannot be compared.
pub fn observe_both(
    paths: &[PathBuf; 2],
    progress: Watched<'_>,
) -> Result<([ObservedSide; 2], Vec<String>)> {
    let mut warnings = Vec::new();
    let [original, copy] = paths;
    let mut held = [read(original, &mut warnings, progress)?, read(copy, &mut warnings, progress)?];
    if held.iter().any(|side| side.records().is_some()) {
        held.iter_mut().try_for_each(|side| side.meter(progress))?;
    }
    let details = held.iter().filter_map(|side| Some(RecordDetail::of(&side.records()?.tcp)));
    let detail = details.reduce(RecordDetail::and);
    let mut observed = held.each_mut().map(|side| side.observe(detail, None));
    let shown = [0, 1].map(|at: usize| match held[at].what {
        What::Vectors(_) => None,
        _ => observed[at].one_side(),
    });
    let only = match shown {
        [Some(one), Some(other)] if one != other => bail!(
            "one of the two shows what clients sent and the other what servers did: there is nothing to compare"
        ),
        [one, other] => one.or(other),
    };
    if let Some(only) = only {
        warnings.push(alone(only, detail.is_some()));
        for at in (0..2).filter(|at| shown[*at].is_none()) {
            observed[at] = held[at].observe_again(detail, only, progress)?;
        }
    }
    observed.iter().try_for_each(hold)?;
    let [original, copy] = held;
    let [of_original, of_copy] = observed;
    Ok(([original.seen(of_original), copy.seen(of_copy)], warnings))
}

/// The warning that only one side's packets are compared.
fn alone(only: Side, is_of_records: bool) -> String {
    let [seen, unseen] = match only {
        Side::Client => ["clients", "servers"],
        Side::Server => ["servers", "clients"],
    };
    match is_of_records {
        true => format!(
            "The flow records are those of {seen} alone: what {unseen} sent is not compared, and {seen} are compared \
             with {seen}."
        ),
        false => one_sided(only),
    }
}

fn read<'a>(
    path: &'a PathBuf,
    warnings: &mut Vec<String>,
    progress: Watched<'_>,
) -> Result<Held<'a>> {
    if is_model(path)? {
        return of_model(path);
    }
    let mut observer = Observer::new(Limits::default());
    let mut records = Records::default();
    let watch = &mut |stamp_ns, packet: &IpPacket| observer.observe(stamp_ns, packet);
    let sink = &mut |record| records.take(record);
    let summary = read_either(slice::from_ref(path), progress, watch, sink)?;
    let observed = observer.finish();
    let [packets, flows] = [!observed.connections.is_empty(), !records.tcp.is_empty()];
    warnings.extend(summary.warnings.iter().cloned());
    let names: Vec<String> = summary.inputs.iter().map(|input| input.name.clone()).collect();
    let named = names.join(", ");
    let (others, what) = match (packets, flows) {
        (true, true) => bail!("{named}: are packets as well as flow records; compare one of them"),
        (false, false) => bail!(
            "{named}: holds no TCP connection ({} packets and {} flow records were read); a comparison is made of \
             inputs with some",
            summary.packets,
            summary.flow_records
        ),
        (true, false) => (beside(&observed, &summary), What::Packets(observed)),
        (false, true) => (records.others, What::Records(records.refuse_sampled(&named)?)),
    };
    Ok(Held { path, names, seconds: summary.seconds, others, what })
}

/// Packets that do not belong to connections.
fn beside(observed: &Observed, summary: &FlowSummary) -> Bin {
    Bin {
        packets: summary.packets - observed.tcp.packets,
        octets: summary.bytes - observed.tcp.octets,
    }
}

/// Does a file begin like a model? Only regular files are read, because others cannot be read twice.
fn is_model(path: &Path) -> Result<bool> {
    if !path.is_file() {
        return Ok(false);
    }
    let file = File::open(path).with_context(|| format!("{}: cannot be opened", path.display()))?;
    let mut beginning = Vec::new();
    let read = file.take(BEGINNING_BYTES).read_to_end(&mut beginning);
    read.with_context(|| format!("{}: cannot be read", path.display()))?;
    let text = String::from_utf8_lossy(&beginning);
    Ok(text.trim_start().starts_with('{') && text.contains("\"nilometer-model/"))
}

fn of_model(path: &PathBuf) -> Result<Held<'_>> {
    let model = read_model(path)?;
    let named = path.display().to_string();
    let Some(vectors) = model.vectors else {
        bail!(
            "{named}: is a model of laws, which keeps no connections to compare; `nilometer model compare` \
             compares two models"
        );
    };
    let observed = Observed::of(vectors.observed(), Source::Vectors);
    if observed.connections.is_empty() {
        bail!(
            "{named}: is a model without any connection; a comparison is made of inputs with some"
        );
    }
    let others = Bin { packets: 0, octets: model.coverage.left_out.not_tcp.octets };
    let what = What::Vectors(observed);
    Ok(Held { path, names: vec![named], seconds: vectors.seconds, others, what })
}

impl Records {
    fn take(&mut self, record: FlowRecord) -> Result<()> {
        if record.key.protocol != TCP {
            self.others.packets = self.others.packets.saturating_add(record.packets);
            self.others.octets = self.others.octets.saturating_add(record.octets);
            return Ok(());
        }
        if self.tcp.len() >= RECORDS_MAX {
            bail!(
                "more TCP flow records than are compared ({RECORDS_MAX}); give a shorter part of them"
            );
        }
        self.sampling_max = self.sampling_max.max(record.sampling_interval);
        self.tcp.push(record);
        Ok(())
    }

    /// Refuses sampled records: one packet in many does not show connections.
    fn refuse_sampled(self, named: &str) -> Result<Records> {
        if self.sampling_max > 1 {
            bail!(
                "{named}: are records of one packet in {}, which do not identify connections; `nilometer model` \
                 estimates their laws, and `nilometer model compare` compares two models",
                self.sampling_max
            );
        }
        Ok(self)
    }
}

impl Held<'_> {
    fn records(&self) -> Option<&Records> {
        match &self.what {
            What::Records(records) => Some(records),
            _ => None,
        }
    }

    /// Makes flow records of packets, as an exporter would have.
    fn meter(&mut self, progress: Watched<'_>) -> Result<()> {
        let What::Packets(_) = &self.what else { return Ok(()) };
        can_be_read_again(self.path)?;
        let options = FlowOptions {
            repairs: true,
            counts_connections: false,
            digests: false,
            ..FlowOptions::default()
        };
        let mut records = Records::default();
        let sink = &mut |record| records.take(record);
        read_flows(slice::from_ref(self.path), &options, progress, sink)?;
        self.what = What::Records(records);
        Ok(())
    }

    /// Returns the observation, or one joined from records, reduced to what `detail` names if it is given.
    fn observe(&mut self, detail: Option<RecordDetail>, only: Option<Side>) -> Observed {
        match (&mut self.what, detail) {
            (What::Records(records), Some(detail)) => {
                let source =
                    Source::Records { has_flags: detail.flags, has_payload: detail.payload };
                Observed::of(joined(&records.tcp, detail, only), source)
            }
            (What::Vectors(observed), Some(detail)) => {
                for one in &mut observed.connections {
                    one.start_ns -= one.start_ns % detail.resolution_ns;
                    one.end_ns -= one.end_ns % detail.resolution_ns;
                }
                mem::take(observed)
            }
            (What::Packets(observed) | What::Vectors(observed), _) => mem::take(observed),
            (What::Records(_), None) => unreachable!("records tell something"),
        }
    }

    /// Observes it again with the packets of one side only.
    fn observe_again(
        &mut self,
        detail: Option<RecordDetail>,
        only: Side,
        progress: Watched<'_>,
    ) -> Result<Observed> {
        match self.what {
            What::Packets(_) => {
                can_be_read_again(self.path)?;
                Ok(observe_side(only, slice::from_ref(self.path), progress)?.0)
            }
            What::Records(_) => Ok(self.observe(detail, Some(only))),
            What::Vectors(_) => bail!(
                "{}: is a model, which does not separate directions, and the other is of one direction only",
                self.path.display()
            ),
        }
    }

    fn seen(self, observed: Observed) -> ObservedSide {
        ObservedSide { names: self.names, observed, seconds: self.seconds, others: self.others }
    }
}
