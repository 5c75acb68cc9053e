//! Self-configuration: flow records become a traffic model (Harpoon, section 4.1).
//!
//! Records are repaired first: those that one flow was split into are joined (flow surgery). A flow enters the model when
//! it is TCP, both its start (SYN) and its end (FIN or RST) were seen, it is more than a stream of
//! acknowledgements, and it carried at least 100 payload bytes; every flow that does not is counted
//! with the first reason that applies. Its file size is exact where packets were metered, and
//! `octets - 40 x packets` (60 for IPv6) where only an exporter's counts are known.
//!
//! A file is what one direction of a connection carried: a connection with a long request and a long
//! answer is two files, as it is two flow records. Who is client and who server is told by who
//! opened the connection; where flags of single packets are not known, the lower port serves.
//!
//! Gaps are taken between the starts of all flows with a SYN of one directed address pair, whether
//! they enter or not, from the side that opened where that is known (so that a connection is not
//! counted from both sides).
//!
//! Records without TCP flags get their starts and ends first (`unflagged`).
//! Records of sampled packets go another way (`lengths`, `sampled`), and meet the others in each law.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

use nilometer_flow::{FlowKey, FlowRecord};
use nilometer_stat::Empirical;
use nilometer_stat::inversion::InversionError;

use crate::connections::ConnectionLaw;
use crate::flows::OfFlows;
use crate::gather::{Flows, Gathered};
use crate::intervals::Volumes;
use crate::lengths::{self, is_sampled};

use crate::model::{
    Coverage, FORMAT, Generation, INTERVALS_MAX, Interval, ModelError, Origin, Share, TrafficModel,
};
use crate::pool::Prefix;
use crate::popularity::Popularity;
use crate::round_trips::RoundTrips;
use crate::runner::{InTurn, Runner};
use crate::sampled::SampledFiles;
use crate::spans;
use crate::told;
use crate::udp;
use crate::unflagged;

/// Flows below this many payload bytes are left out (Harpoon's own limit).
pub const FILE_MIN_BYTES: u64 = 100;
/// Knots of the file size table and of the gap table.
const SIZE_KNOTS: usize = 2_048;
const GAP_KNOTS: usize = 1_024;
/// A flow whose packets average no more than this many bytes beyond the bare headers only
/// acknowledges: room for time stamps and two SACK blocks.
const ACK_OPTIONS_BYTES: u64 = 32;

/// What the estimation is told.
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
    /// When the original began and ended, ns since 1970, if more than its flows tell.
    pub span_ns: Option<(u64, u64)>,
    /// Client pools.
    pub clients: Vec<Prefix>,
    /// Server pools.
    pub servers: Vec<Prefix>,
}

/// Why there is no model.
#[derive(Clone, Debug, PartialEq)]
pub enum EstimateError {
    /// No TCP flow at all in this many flows.
    NoTcp(u64),
    /// TCP flows, but none that enters.
    NoneEnters(Box<Coverage>),
    /// A number among the options is not usable.
    Option(ModelError),
    /// Sampled records that do not tell how many flows there were.
    Sampled(InversionError),
    /// The interval is so short that there would be more than [`INTERVALS_MAX`].
    TooManyIntervals(f64),
}

impl fmt::Display for EstimateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EstimateError::NoTcp(flows) => write!(
                f,
                "no TCP among {flows} flows: a model needs TCP connections with their start and end"
            ),
            EstimateError::NoneEnters(coverage) => {
                let out = &coverage.left_out;
                write!(
                    f,
                    "none of {} flows enters the model: {} not TCP, {} without SYN, {} without FIN \
                     or RST, {} only acknowledge, {} under 100 bytes",
                    coverage.flows,
                    out.not_tcp.flows,
                    out.no_start_marker.flows,
                    out.no_end_marker.flows,
                    out.ack_flow.flows,
                    out.under_100_bytes.flows
                )
            }
            EstimateError::Option(error) => error.fmt(f),
            EstimateError::Sampled(error) => error.fmt(f),
            EstimateError::TooManyIntervals(interval_s) => write!(
                f,
                "an interval of {interval_s} s gives more than {INTERVALS_MAX} intervals; choose a \
                 longer one"
            ),
        }
    }
}

impl core::error::Error for EstimateError {}

/// A model, and what a person should know about how it was made.
#[derive(Clone, Debug)]
pub struct Estimate {
    /// The model.
    pub model: TrafficModel,
    /// What makes it suspect, in plain words.
    pub warnings: Vec<String>,
    /// What it leaves out without being the worse for it, in plain words.
    pub notes: Vec<String>,
}

/// The interval for an original of `duration_s`: the paper's five minutes, but at least three and at
/// most twelve intervals.
pub fn default_interval_s(duration_s: f64) -> f64 {
    (300.0f64).min(duration_s / 3.0).max(duration_s / 12.0)
}

/// Repairs records, and estimates a model from them. What a model needs to be told of records without
/// flags, and of sampled ones, is told with other means than repair.
///
/// # Errors
/// Where nothing enters the model, or an option is out of range.
pub fn estimate(
    records: Vec<FlowRecord>,
    options: &EstimateOptions,
) -> Result<Estimate, EstimateError> {
    let mut gathered = Gathered::new();
    records.into_iter().for_each(|record| gathered.take(record));
    estimate_gathered(gathered, options, &InTurn)
}

/// Repairs records that were gathered one by one, and estimates a model from them; `runner` works on
/// their parts, and changes nothing but how long it takes.
///
/// # Errors
/// Where nothing enters the model, or an option is out of range.
pub fn estimate_gathered(
    gathered: Gathered,
    options: &EstimateOptions,
    runner: &impl Runner,
) -> Result<Estimate, EstimateError> {
    check_options(options)?;
    let (flows, counts) = gathered.into_repaired(runner);
    let mut made = estimate_flows(flows, options, runner)?;
    made.model.coverage.records_joined += counts.joined();
    made.warnings.extend(told::repaired(&counts));
    Ok(made)
}

/// Estimates a model from records as they are, each a flow where it has flags and is not sampled: for
/// records that need no repair, and to see what it is good for.
///
/// # Errors
/// Where nothing enters the model, or an option is out of range.
pub fn estimate_as_given(
    records: Vec<FlowRecord>,
    options: &EstimateOptions,
) -> Result<Estimate, EstimateError> {
    check_options(options)?;
    let mut gathered = Gathered::new();
    records.into_iter().for_each(|record| gathered.take_as_given(record));
    estimate_flows(gathered.into_given(&InTurn), options, &InTurn)
}

fn estimate_flows(
    flows: Flows,
    options: &EstimateOptions,
    runner: &impl Runner,
) -> Result<Estimate, EstimateError> {
    let Flows { parts, udp, others, mut coverage, span_ns } = flows;
    let span_ns = options.span_ns.or(span_ns).unwrap_or((0, 0));
    if parts.is_empty() && others.is_empty() {
        return Err(EstimateError::NoTcp(coverage.flows));
    }
    let inferred = unflagged::infer(others, span_ns);
    coverage.records_without_flags = inferred.unflagged;
    (coverage.starts_inferred, coverage.ends_inferred) = (inferred.starts, inferred.ends);
    let (sampled, bare): (Vec<_>, Vec<_>) = inferred.records.into_iter().partition(is_sampled);
    let sampled = lengths::join_sampled(sampled);
    coverage.records_joined = inferred.joined + sampled.counts.joined();
    let sampled = sampled.records;
    let inversions = lengths::invert(&sampled).map_err(EstimateError::Sampled)?;
    let mut volumes = Volumes::new(span_ns, options)?;
    let grid = volumes.grid(options.bound_s);
    let udp = udp::models(runner.map(udp, |part| udp::measure(&part.unpack(0), grid)));
    let of_flows = OfFlows::measure((parts, bare), &sampled, grid, runner);
    coverage.add(&of_flows.coverage);
    let (files, lives) = (of_flows.files, of_flows.lives);
    let measured = lengths::measure(of_flows.lengths, &inversions).expect("there is a flow");
    let thinned = SampledFiles::of(&sampled, &inversions);
    let mut warnings = told::sampled(&measured, &sampled);
    if coverage.records_without_flags > 0 {
        warnings.push(format!(
            "{} TCP records carry no flags: where their flows begin and end is told by time (gaps \
             over {:.1} s part them); {} starts and {} ends",
            coverage.records_without_flags,
            inferred.threshold_ns as f64 / 1e9,
            coverage.starts_inferred,
            coverage.ends_inferred
        ));
    }
    let gaps = gaps(of_flows.gaps, &sampled, options.bound_s, &mut coverage, &mut warnings);
    let whole = of_flows.whole;
    let connection_law = match sampled.is_empty() {
        true => ConnectionLaw::of(whole.shapes),
        false => None,
    };
    let file_size = file_sizes(&files, &thinned)
        .ok_or_else(|| EstimateError::NoneEnters(Box::new(coverage.clone())))?;
    volumes = volumes.of(&files).of_sampled(&sampled, &thinned);
    if connection_law.is_some() {
        (coverage.flows_in_connections, coverage.octets_in_connections) =
            (whole.flows, whole.octets);
        volumes = volumes.of_connections(whole.volumes);
    }
    let intervals = volumes.intervals((&file_size, &gaps, &lives), runner);
    cover_sampled(&sampled, &thinned, &intervals, &mut coverage);
    let popularity = Popularity::of(&files, &sampled, options.keep_addresses);
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
        intervals,
        connection_law,
        round_trips: RoundTrips::of_flow_starts(whole.answered, whole.pair_medians_s),
        udp,
        unmodelled_bytes_share: None,
        unmodelled_flows_share: None,
        coverage,
        generation: Generation {
            time_divisor: 1.0,
            inter_connection_bound_s: options.bound_s,
            ipv6_share: popularity.ipv6_share,
            clients: options.clients.clone(),
            servers: options.servers.clone(),
        },
    };
    model.tell_unmodelled();
    model.check().map_err(EstimateError::Option)?;
    Ok(Estimate { model, warnings, notes: vec![] })
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

pub(crate) fn count(share: &mut Share, octets: u64) {
    share.flows += 1;
    share.octets += octets;
}

/// The bytes that a record stands for: those of all packets, of which one in N was counted.
pub(crate) fn represented_octets(record: &FlowRecord) -> u64 {
    record.octets.saturating_mul(record.sampling_interval.max(1).into())
}

/// Did this flow open a connection, as far as is known?
fn opens(flow: &FlowRecord) -> bool {
    flow.has_start() && flow.opened != Some(false)
}

/// A flow that enters the model.
pub(crate) struct File {
    pub start_ns: u64,
    pub payload: u64,
    pub packets: u64,
    pub client: IpAddr,
    pub server: IpAddr,
}

/// Bare IP and TCP headers of one packet.
fn header_bytes(key: &FlowKey) -> u64 {
    if key.source.is_ipv4() { 40 } else { 60 }
}

/// Payload of a flow by the paper's rule: exact, or bytes less headers.
pub fn payload_bytes(record: &FlowRecord) -> u64 {
    record
        .payload_octets
        .unwrap_or_else(|| record.octets.saturating_sub(record.packets * header_bytes(&record.key)))
}

pub(crate) fn only_acknowledges(record: &FlowRecord) -> bool {
    match record.payload_octets {
        Some(payload) => payload == 0,
        None => record.octets <= record.packets * (header_bytes(&record.key) + ACK_OPTIONS_BYTES),
    }
}

/// Client and server of a flow.
pub fn ends(record: &FlowRecord) -> (IpAddr, IpAddr) {
    let key = &record.key;
    let from_client = record.opened.unwrap_or(key.destination_port <= key.source_port);
    if from_client { (key.source, key.destination) } else { (key.destination, key.source) }
}

pub(crate) fn enter(flows: Vec<FlowRecord>, coverage: &mut Coverage) -> Vec<File> {
    let mut files = Vec::new();
    for flow in flows {
        let payload = payload_bytes(&flow);
        let out = &mut coverage.left_out;
        match () {
            () if !flow.has_start() => count(&mut out.no_start_marker, flow.octets),
            () if !flow.has_end() => count(&mut out.no_end_marker, flow.octets),
            () if only_acknowledges(&flow) => count(&mut out.ack_flow, flow.octets),
            () if payload < FILE_MIN_BYTES => count(&mut out.under_100_bytes, flow.octets),
            () => {
                coverage.flows_in_model += 1;
                coverage.octets_in_model += flow.octets;
                coverage.payload_in_model += payload;
                let (client, server) = ends(&flow);
                let (start_ns, packets) = (flow.start_ns, flow.packets);
                files.push(File { start_ns, payload, packets, client, server });
            }
        }
    }
    files
}

/// P(FileSize), in bytes; none where nothing enters.
fn file_sizes(files: &[File], thinned: &SampledFiles) -> Option<Empirical> {
    let sizes: Vec<f64> = files.iter().map(|file| file.payload as f64).collect();
    let counted = Empirical::step_from(sizes, SIZE_KNOTS).ok();
    let sampled = thinned.sizes();
    if sampled.is_empty() {
        return counted;
    }
    let counted = counted.map(|law| lengths::atoms(&law, files.len() as f64)).unwrap_or_default();
    lengths::weighted(counted.into_iter().chain(sampled).collect(), thinned.records())
}

/// Sampled flows are in the model, or too small for it, as far as their law tells.
fn cover_sampled(
    sampled: &[FlowRecord],
    thinned: &SampledFiles,
    intervals: &[Interval],
    coverage: &mut Coverage,
) {
    if sampled.is_empty() {
        return;
    }
    let all: u64 = sampled.iter().map(represented_octets).sum();
    let small = thinned.too_small();
    let left = (libm::round(small.octets) as u64).min(all);
    let out = &mut coverage.left_out.under_100_bytes;
    (out.flows, out.octets) = (out.flows + libm::round(small.flows) as u64, out.octets + left);
    let flows = intervals.iter().map(|interval| interval.flows).sum::<u64>();
    let payload = intervals.iter().map(|interval| interval.bytes).sum::<u64>();
    coverage.flows += libm::round(small.flows) as u64 + (flows - coverage.flows_in_model);
    coverage.flows_in_model = flows;
    coverage.payload_in_model = payload;
    coverage.octets_in_model += all - left;
}

/// P(InterConnection), in seconds, of the gaps that were found and of sampled flows, whose gaps are
/// those of every N-th.
fn gaps(
    mut gaps: Vec<f64>,
    sampled: &[FlowRecord],
    bound_s: f64,
    coverage: &mut Coverage,
    warnings: &mut Vec<String>,
) -> Empirical {
    let mut intervals: Vec<u32> = sampled.iter().map(|record| record.sampling_interval).collect();
    intervals.sort_unstable();
    intervals.dedup();
    for interval in intervals {
        let of_it = |record: &&FlowRecord| record.sampling_interval == interval && opens(record);
        let group = sampled.iter().filter(of_it);
        let spans = spans::in_order(group);
        for gap in spans::gaps(&spans).map(|gap| gap / f64::from(interval)) {
            match gap <= bound_s {
                true => gaps.push(gap),
                false => coverage.gaps_beyond_bound += 1,
            }
        }
    }
    if gaps.iter().sum::<f64>() <= 0.0 {
        warnings.push(format!(
            "no address pair connects twice within {bound_s} s: the inter-connection time is not \
             measured, and {bound_s} s is used for all"
        ));
        gaps = vec![bound_s];
    }
    Empirical::linear_from(gaps, GAP_KNOTS).expect("gaps are finite and not negative")
}
