//! Warnings about an estimate, in plain words.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

use nilometer_flow::repair::{Reason, RepairCounts};
use nilometer_stat::ConfidenceInterval;
use nilometer_stat::inversion::{Inversion, Precision};

use crate::lengths::Measured;
use crate::model::{Identification, SampledGaps};
use crate::sampled_records::{Group, Kinds};

/// Sizes count as identified where their median is known within this factor either way (95 %), as gaps do.
const MEDIAN_FACTOR_MAX: f64 = 2.0;
/// Sizes hardly ever follow one of the fitted laws exactly, so the stated precision is never better than this: a
/// factor of 1.2 between the medians of two lognormal laws of deviation 1.4 is a KS distance of 0.05.
const PRECISION_MIN: Precision = Precision { distance: 0.05, median_factor: 1.2 };
/// With fewer files than this, Figure 4 estimates sessions badly.
const FILES_FEW: u64 = 100;

/// A doubt about an estimate.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Warning {
    /// Both directions of a record had the same counters.
    #[error("{0} flow records were exported twice and counted once")]
    DirectionDoubled(u64),
    /// Counters of bytes had too few bits.
    #[error("{0} flow records had byte counters that wrapped and were unwrapped")]
    CounterWrapped(u64),
    /// Records ended before they began, or lasted too long.
    #[error("{0} flow records had impossible timestamps, which were replaced")]
    DurationAbsurd(u64),
    /// Sampled packets without flags do not distinguish flows.
    #[error(
        "packets were sampled {rate} and no TCP flags recorded: how many TCP flows there were is \
         not identified, at least {flows:.0} ({:.0} to {:.0} are possible); volumes hold; \
         have the exporter record TCP flags",
        interval.low,
        interval.high
    )]
    FlowsNotIdentified { rate: SamplingRates, flows: f64, interval: ConfidenceInterval },
    /// The number of flows is estimated.
    #[error(
        "packets were sampled {rate}: {flows:.0} TCP flows ({:.0} to {:.0}, 95 %) by their {marks}, \
         lengths by expectation-maximisation",
        interval.low,
        interval.high
    )]
    FlowsEstimated {
        rate: SamplingRates,
        flows: f64,
        interval: ConfidenceInterval,
        marks: &'static str,
    },
    /// The payload of sampled packets is unknown.
    #[error(
        "sizes of files are not identified: the payload of packets is not identifiable from these sampled \
         records, so sizes are estimated as lengths times mean payload"
    )]
    SizesFromLengths,
    /// The precision of the sizes of sampled files.
    #[error(
        "sizes of files are estimated to within KS {:.2}, their median within a factor of {:.1} (95 %)",
        .0.distance, .0.median_factor
    )]
    SizesEstimated(Precision),
    /// Different laws of sizes explain the sampled records equally well.
    #[error(
        "sizes of files are not identified: laws up to KS {:.2} from the model's, with medians up to {:.1} times as \
         large or as small, fit these records equally well (95 %), and the model has their mean; give a longer \
         input, or one of which more packets were sampled",
        .0.distance, .0.median_factor
    )]
    SizesNotIdentified(Precision),
    /// Starts and ends of records without flags are inferred.
    #[error(
        "{records} TCP records carry no flags: starts and ends of their flows are inferred from \
         packets, answers and time (gaps over {:.1} s separate flows); {starts} starts and {ends} ends",
        *threshold_ns as f64 / 1e9
    )]
    WithoutFlags { records: u64, threshold_ns: u64, starts: u64, ends: u64 },
    /// Too few files for Figure 4.
    #[error(
        "{0} files are few for Harpoon's Figure 4 (below {FILES_FEW}): sessions, connections and bytes of an \
         interval may be far from the original's; without --harpoon whole connections are played"
    )]
    FewFiles(u64),
    /// The precision of the gaps of sampled records.
    #[error(
        "gaps between connections are estimated from {lags} intervals between sampled connections of the same hosts: \
         their median is between {:.3} and {:.3} s (95 %)",
        median_s.low,
        median_s.high
    )]
    GapsEstimated { lags: u64, median_s: ConfidenceInterval },
    /// The gaps of sampled records are a guess.
    #[error(
        "gaps between connections are not identified: {lags} intervals between sampled connections of the same hosts \
         put their median anywhere from {:.3} to {:.3} s (95 %), and those of the model are a guess; give a longer \
         input, or one of which more packets were sampled",
        median_s.low,
        median_s.high
    )]
    GapsNotIdentified { lags: u64, median_s: ConfidenceInterval },
    /// No gap was observed.
    #[error(
        "no address pair is seen to connect twice within {bound_s} s: the inter-connection time \
         is not measured, and {bound_s} s is used for all"
    )]
    NoGap { bound_s: f64 },
}

/// The least and the largest sampling interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SamplingRates(u32, u32);

impl fmt::Display for SamplingRates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SamplingRates(low, high) = self;
        write!(f, "1:{low}")?;
        if low == high { Ok(()) } else { write!(f, " to 1:{high}") }
    }
}

/// Warnings about repairs other than joining pieces.
pub(crate) fn repaired(counts: &RepairCounts) -> impl Iterator<Item = Warning> {
    counts.met().filter_map(|(reason, count)| match reason {
        Reason::Split | Reason::StartRenewed | Reason::StartKept => None,
        Reason::DirectionDoubled => Some(Warning::DirectionDoubled(count)),
        Reason::CounterWrapped => Some(Warning::CounterWrapped(count)),
        Reason::DurationAbsurd => Some(Warning::DurationAbsurd(count)),
    })
}

/// The warning about a model of sampled packets.
pub(crate) fn sampled(measured: &Measured, sampled: &Kinds) -> Option<Warning> {
    let (low, high) = sampled.intervals()?;
    let (rate, flows) = (SamplingRates(low, high), measured.flow_count);
    let interval = measured.lengths.flow_count_interval;
    if sampled.lacks_flags() {
        return Some(Warning::FlowsNotIdentified { rate, flows, interval });
    }
    let marks = if sampled.counts_ends() { "SYNs and FINs" } else { "SYNs" };
    Some(Warning::FlowsEstimated { rate, flows, interval, marks })
}

/// The precision of sizes of sampled files, and what to do if they are not identified.
pub(crate) fn sampled_sizes(inversions: &BTreeMap<Group, Inversion>) -> Option<Warning> {
    let carrying = inversions.iter().filter(|(group, _)| !group.lacks_flags && !group.returns);
    let precisions: Vec<Option<Precision>> = carrying.map(|(_, found)| found.precision).collect();
    if precisions.contains(&None) {
        return Some(Warning::SizesFromLengths);
    }
    let precision = precisions.into_iter().flatten().reduce(Precision::worse)?;
    let precision = precision.worse(PRECISION_MIN);
    Some(match precision.median_factor <= MEDIAN_FACTOR_MAX {
        true => Warning::SizesEstimated(precision),
        false => Warning::SizesNotIdentified(precision),
    })
}

/// The warning that there are too few files for Figure 4.
pub(crate) fn few_files(files: u64) -> Option<Warning> {
    (files < FILES_FEW).then_some(Warning::FewFiles(files))
}

/// The precision of gaps of sampled records, and what to do if they are not identified.
pub(crate) fn sampled_gaps(gaps: Option<&SampledGaps>) -> Option<Warning> {
    let &SampledGaps { identification, lags, median_interval_s: median_s, .. } = gaps?;
    Some(match identification {
        Identification::Identified => Warning::GapsEstimated { lags, median_s },
        Identification::NotIdentified => Warning::GapsNotIdentified { lags, median_s },
    })
}
