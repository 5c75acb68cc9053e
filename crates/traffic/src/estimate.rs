//! Self-configuration: flow records become a traffic model (Harpoon, section 4.1).
//!
//! Records are repaired first: those that one flow was split into are joined (flow surgery). A flow enters the model
//! if it is TCP, both its start (SYN) and its end (FIN or RST) were seen, it is more than a stream of
//! acknowledgements, and it carried at least 100 payload bytes; every other flow is counted under the first reason
//! that applies. Its file size is exact where packets were metered, and `octets - 40 x packets` (60 for IPv6) where
//! only an exporter's counts are known.
//!
//! A file is the payload of one direction of a connection: a connection with a long request and a long answer is two
//! files, as it is two flow records. The side that opened the connection is the client; where flags of single packets
//! are not known, the side with the higher port is.
//!
//! In Harpoon's own mode only the larger direction is a file. A connection in Harpoon transfers one file, and gaps
//! are those of connections: if the request beside an answer were a file as well, Figure 4 would have to carry the
//! bytes of both with the gaps of one, and count each session twice. This makes records without flags less exact:
//! there are half as many files, and each wrong one has twice the weight. With sampled records both directions are
//! files in either mode if both carry payload, because a direction without a sampled packet looks like one that does
//! not exist; a direction of a service that carries hardly any payload has no files (`services`).
//!
//! Gaps of sampled records follow from a thinned renewal process (`thinned`). Other gaps lie between the starts of all
//! flows with a SYN of one directed address pair, whether they enter or not, from the opening side if it is known, so
//! that a connection is not counted from both sides.
//!
//! For records without TCP flags, starts and ends are inferred first (`unflagged`). Records of sampled packets are
//! inverted (`lengths`, `sampled`). Both are merged with the others in each law.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use nilometer_flow::FlowRecord;
use nilometer_flow::repair::RepairCounts;
use nilometer_stat::inversion::Inversion;
use nilometer_stat::{Empirical, Tally};

use crate::batches::Batches;
use crate::connections::ConnectionLaw;
pub use crate::estimate_error::EstimateError;
pub use crate::files::{FILE_MIN_BYTES, ends, payload_bytes};
use crate::first_pass::FirstPass;
use crate::flows::{OfFlows, Work};
use crate::intervals::Volumes;
pub use crate::intervals::default_interval_s;
use crate::lengths::{self, Measured};
use crate::model::{
    Coverage, FORMAT, Generation, Interval, LoadDriver, ModelError, Origin, TrafficModel,
};
use crate::partitioner::{Partitioned, Partitioner};
use crate::pool::Prefix;
use crate::popularity::Popularity;
use crate::round_trips::RoundTrips;
use crate::runner::{Runner, Sequential};
use crate::sampled::SampledFiles;
use crate::sampled_records::{Group, Kinds};
use crate::spill::{NoSpill, SpillStore};
use crate::thinned;
use crate::udp;
use crate::warnings::{self, Warning};

/// Knots of the file size table and of the gap table.
const SIZE_KNOTS: usize = 2_048;
const GAP_KNOTS: usize = 1_024;
/// Nanoseconds in a second.
const NANOS: f64 = 1e9;

/// Options of an estimate.
#[derive(Clone, Debug)]
pub struct EstimateOptions {
    /// IntervalDuration of the estimation, seconds; `None` chooses [`default_interval_s`].
    pub interval_s: Option<f64>,
    /// The longest inter-connection time, seconds (60 in the paper).
    pub bound_s: f64,
    /// Write the original addresses beside the ranks.
    pub keep_addresses: bool,
    /// Tool and version.
    pub tool: String,
    /// Where the records come from.
    pub origin: Origin,
    /// When the original began and ended, ns since 1970, if that is more than the span of its flows.
    pub span_ns: Option<(u64, u64)>,
    /// Client pools.
    pub clients: Vec<Prefix>,
    /// Server pools.
    pub servers: Vec<Prefix>,
    /// Harpoon's own model: one file of each connection, only the five distributions, driven by active
    /// sessions (Harpoon, sections 3 and 4.1).
    pub harpoon: bool,
}

/// A model, with warnings and notes about how it was made.
#[derive(Clone, Debug)]
pub struct Estimate {
    /// The model.
    pub model: TrafficModel,
    /// Reasons why it is suspect, in plain words.
    pub warnings: Vec<String>,
    /// What it leaves out without harm, in plain words.
    pub notes: Vec<String>,
    /// Records of the largest batch.
    pub largest_batch: usize,
}

/// Repairs records, and estimates a model from them. Records without flags and sampled
/// ones are inferred instead (`unflagged`, `lengths`).
///
/// # Errors
/// Where nothing enters the model, or an option is out of range.
pub fn estimate(
    records: Vec<FlowRecord>,
    options: &EstimateOptions,
) -> Result<Estimate, EstimateError> {
    let mut partitioner = Partitioner::new();
    records.into_iter().for_each(|record| partitioner.push(record));
    estimate_partitioned(partitioner, &NoSpill, options, &Sequential)
}

/// Repairs partitioned records, some of them spilled, and estimates a model from them. The model does not depend on
/// `runner`, on the order of the records or on what was spilled.
///
/// # Errors
/// Where nothing enters the model, an option is out of range, or a spilled partition cannot be read.
pub fn estimate_partitioned(
    partitioner: Partitioner,
    spill: &impl SpillStore,
    options: &EstimateOptions,
    runner: &impl Runner,
) -> Result<Estimate, EstimateError> {
    estimate_parts((partitioner.into_partitioned(), spill, true), options, runner)
}

/// Estimates a model from records as they are; each is a flow if it has flags and is not sampled. For records
/// that need no repair, and to measure the effect of repair.
///
/// # Errors
/// Where nothing enters the model, or an option is out of range.
pub fn estimate_as_given(
    records: Vec<FlowRecord>,
    options: &EstimateOptions,
) -> Result<Estimate, EstimateError> {
    let mut partitioner = Partitioner::new();
    records.into_iter().for_each(|record| partitioner.push_as_given(record));
    estimate_parts((partitioner.into_partitioned(), &NoSpill, false), options, &Sequential)
}

/// All measurements, before they become a model.
struct Found {
    flows: OfFlows,
    first_pass: FirstPass,
    thinned: SampledFiles,
    inversions: BTreeMap<Group, Inversion>,
    volumes: Volumes,
    /// Counts of repairs of whole flows.
    repaired: RepairCounts,
    largest_batch: usize,
}

fn estimate_parts<A: SpillStore>(
    (partitioned, spill, repairs): (Partitioned, &A, bool),
    options: &EstimateOptions,
    runner: &impl Runner,
) -> Result<Estimate, EstimateError> {
    check_options(options)?;
    let span_ns = options.span_ns.or(partitioned.span_ns).unwrap_or((0, 0));
    let volumes = Volumes::new(span_ns, options.interval_s)?;
    let limits = partitioned.limits;
    let most = (partitioned.batch_max, limits.per_socket_pair);
    let mut batches = Batches::new(partitioned.partitions, spill, most, runner)?;
    let first_pass = FirstPass::of(&batches, partitioned.summary, span_ns, &limits, runner)?;
    let inversions = first_pass.kinds.invert().map_err(EstimateError::Sampled)?;
    let thinned =
        SampledFiles::of(&first_pass.kinds, &inversions, first_pass.summary.services.clone());
    let grid = volumes.grid(options.bound_s);
    let largest_batch = batches.largest();
    let one_file = options.harpoon;
    let work = Work { repairs, one_file, first_pass: &first_pass, thinned: &thinned, grid, limits };
    let flows = OfFlows::measure(&work, &mut batches, runner)?;
    drop(batches);
    if flows.tcp_flows == 0 && first_pass.kinds.is_empty() {
        let of_ambiguous = first_pass.summary.coverage.flows;
        return Err(EstimateError::NoTcp(of_ambiguous + flows.coverage.flows));
    }
    let mut repaired = partitioned.counts;
    repaired.add(&flows.repairs);
    if repairs {
        repaired.assert_conserved();
    }
    let found = Found { flows, first_pass, thinned, inversions, volumes, repaired, largest_batch };
    let made = found.into_model(options, runner)?;
    made.model.check().map_err(EstimateError::Option)?;
    Ok(made)
}

impl Found {
    /// The coverage of records that were not sampled.
    fn coverage(&self) -> Coverage {
        let mut coverage = self.first_pass.summary.coverage.clone();
        coverage.add(&self.flows.coverage);
        coverage.records_without_flags = self.first_pass.summary.unflagged;
        coverage.records_joined =
            self.flows.joined + self.first_pass.kinds.joined + self.repaired.joined();
        coverage
    }

    fn warnings(&self, measured: &Measured, coverage: &Coverage) -> Vec<Warning> {
        let sampled = warnings::sampled(measured, &self.first_pass.kinds);
        let sizes = warnings::sampled_sizes(&self.inversions);
        let records = coverage.records_without_flags;
        let without_flags = (records > 0).then_some(Warning::WithoutFlags {
            records,
            threshold_ns: self.first_pass.threshold_ns,
            starts: coverage.starts_inferred,
            ends: coverage.ends_inferred,
        });
        [sampled, sizes, without_flags].into_iter().flatten().collect()
    }

    fn into_model(
        self,
        options: &EstimateOptions,
        runner: &impl Runner,
    ) -> Result<Estimate, EstimateError> {
        let mut coverage = self.coverage();
        let lengths = self.flows.lengths.clone().whole();
        let measured = lengths::measure(lengths, &self.inversions).expect("there is a flow");
        let mut warnings = self.warnings(&measured, &coverage);
        let Found { flows, first_pass, thinned, volumes, repaired, largest_batch, .. } = self;
        let found = flows.thinned.find(runner);
        let is_sampled = !first_pass.kinds.is_empty();
        let sampled_gaps = thinned::combined(&found, is_sampled.then_some(options.bound_s));
        warnings.extend(warnings::sampled_gaps(sampled_gaps.as_ref()));
        let gaps = gaps((flows.gaps, found), options.bound_s, &mut warnings);
        warnings.extend(warnings::repaired(&repaired));
        let whole = flows.whole;
        let connection_law =
            if first_pass.kinds.is_empty() { ConnectionLaw::of(whole.shapes) } else { None };
        let file_size = file_sizes(flows.sizes, coverage.flows_in_model, &thinned)
            .ok_or_else(|| EstimateError::NoneEnters(Box::new(coverage.clone())))?;
        let mut volumes = volumes.of_files(flows.volumes).of_sampled(flows.sampled, &thinned);
        if connection_law.is_some() {
            (coverage.flows_in_connections, coverage.octets_in_connections) =
                (whole.flows, whole.octets);
            volumes = volumes.of_connections(whole.volumes);
        }
        let grid = volumes.grid(options.bound_s);
        let active = flows.active.means(|at| grid.length_s(at));
        let intervals = volumes.intervals((&file_size, &gaps, active), runner);
        cover_sampled(&first_pass.kinds, &thinned, &intervals, &mut coverage);
        let popularity = Popularity::of(flows.popular, options.keep_addresses);
        let mut model = TrafficModel {
            format: FORMAT.to_string(),
            tool: options.tool.clone(),
            origin: options.origin.clone(),
            flow_count: Some(libm::round(measured.flow_count) as u64),
            mean_length_packets: Some(measured.mean_length_packets),
            sampling_interval: Some(measured.sampling_interval),
            flow_lengths: Some(measured.lengths),
            hurst: None,
            sources: popularity.sources,
            destinations: popularity.destinations,
            file_size,
            inter_connection: gaps,
            sampled_gaps,
            intervals,
            connection_law,
            vectors: None,
            round_trips: RoundTrips::of_flow_starts(whole.answered, whole.pair_medians_ns),
            udp: udp::models(flows.udp, grid),
            unmodelled_bytes_share: None,
            unmodelled_flows_share: None,
            coverage,
            generation: Generation {
                time_divisor: 1.0,
                driver: LoadDriver::Connections,
                round_trips: false,
                inter_connection_bound_s: options.bound_s,
                ipv6_share: popularity.ipv6_share,
                clients: options.clients.clone(),
                servers: options.servers.clone(),
            },
        };
        model.set_unmodelled();
        if options.harpoon {
            warnings.extend(warnings::few_files(model.coverage.flows_in_model));
            model = model.without_connections();
            model.generation.driver = LoadDriver::Sessions;
        }
        let warnings = warnings.iter().map(Warning::to_string).collect();
        Ok(Estimate { model, warnings, notes: vec![], largest_batch })
    }
}

fn check_options(options: &EstimateOptions) -> Result<(), EstimateError> {
    for (what, value) in [
        ("the inter-connection bound", Some(options.bound_s)),
        ("the interval", options.interval_s),
    ] {
        if let Some(value) = value
            && !(value.is_finite() && value > 0.0)
        {
            return Err(EstimateError::Option(ModelError::NotPositive(what, value)));
        }
    }
    Ok(())
}

/// P(FileSize), in bytes, of `files` files; `None` if nothing enters.
fn file_sizes(sizes: Tally, files: u64, thinned: &SampledFiles) -> Option<Empirical> {
    let counted = Empirical::step_from_counts(sizes.whole(), SIZE_KNOTS).ok();
    let sampled = thinned.sizes();
    if sampled.is_empty() {
        return counted;
    }
    let counted = counted.map(|law| lengths::atoms(&law, files as f64)).unwrap_or_default();
    lengths::weighted(counted.into_iter().chain(sampled).collect(), thinned.records())
}

/// Adds sampled flows to the coverage: by their law, they are in the model or too small for it.
fn cover_sampled(
    sampled: &Kinds,
    thinned: &SampledFiles,
    intervals: &[Interval],
    coverage: &mut Coverage,
) {
    if sampled.is_empty() {
        return;
    }
    let all = sampled.octets;
    let [acknowledging, asking] = thinned.returning();
    let left_out = &mut coverage.left_out;
    let (mut left, mut left_flows) = (0, 0);
    for (out, amount) in [
        (&mut left_out.ack_flow, acknowledging),
        (&mut left_out.smaller_direction, asking),
        (&mut left_out.under_100_bytes, thinned.too_small()),
    ] {
        let octets = (libm::round(amount.octets) as u64).min(all - left);
        let flows = libm::round(amount.flows) as u64;
        (out.flows, out.octets) = (out.flows + flows, out.octets + octets);
        (left, left_flows) = (left + octets, left_flows + flows);
    }
    let flows = intervals.iter().map(|interval| interval.flows).sum::<u64>();
    let payload = intervals.iter().map(|interval| interval.bytes).sum::<u64>();
    coverage.flows += left_flows + (flows - coverage.flows_in_model);
    coverage.flows_in_model = flows;
    coverage.payload_in_model = payload;
    coverage.octets_in_model += all - left;
}

/// P(InterConnection), in seconds, of measured gaps and of those estimated from sampled records.
fn gaps(
    (measured, inferred): (Tally, Vec<thinned::GapEstimate>),
    bound_s: f64,
    warnings: &mut Vec<Warning>,
) -> Empirical {
    let mut gaps = measured.in_units_of(NANOS);
    let samples: u64 = gaps.iter().map(|(_, count)| count).sum();
    let samples = samples + inferred.iter().map(|found| found.sampled.lags).sum::<u64>();
    thinned::mix(&mut gaps, &inferred);
    if gaps.iter().all(|(gap, _)| *gap <= 0.0) {
        warnings.push(Warning::NoGap { bound_s });
        gaps = vec![(bound_s, 1)];
    }
    let law = Empirical::linear_from_counts(gaps, GAP_KNOTS).expect("gaps are not negative");
    match inferred.is_empty() {
        true => law,
        // The number of observations, and not of the values that represent them.
        false => Empirical::new(law.form(), samples, law.knots().to_vec()).expect("the same knots"),
    }
}
