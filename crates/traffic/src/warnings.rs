//! Warnings about an estimate, in plain words.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use nilometer_flow::repair::{Reason, RepairCounts};
use nilometer_stat::inversion::Inversion;

use crate::lengths::Measured;
use crate::model::{Identification, SampledGaps};
use crate::sampled_records::{Group, Kinds};

/// A law counts as identified where it is known to within this KS distance.
const SPREAD_MAX: f64 = 0.05;

/// What repair changed, besides joining pieces.
pub(crate) fn repaired(counts: &RepairCounts) -> Vec<String> {
    let said = |(reason, count): (Reason, u64)| {
        let what = match reason {
            Reason::Split | Reason::StartRenewed | Reason::StartKept => return None,
            Reason::DirectionDoubled => "were exported twice and counted once",
            Reason::CounterWrapped => "had byte counters that wrapped and were unwrapped",
            Reason::DurationAbsurd => "had stamps that cannot be, which were replaced",
        };
        Some(format!("{count} flow records {what}"))
    };
    counts.met().filter_map(said).collect()
}

/// How exactly a model of sampled packets is known.
pub(crate) fn sampled(measured: &Measured, sampled: &Kinds) -> Vec<String> {
    let Some((low, high)) = sampled.intervals() else { return Vec::new() };
    let [least, most] = measured.lengths.flow_count_interval;
    let rate = if low == high { format!("1:{low}") } else { format!("1:{low} to 1:{high}") };
    if sampled.lacks_flags() {
        return vec![format!(
            "packets were sampled {rate} and no TCP flags recorded: how many TCP flows there were is \
             not identified, at least {:.0} ({least:.0} to {most:.0} are possible); volumes hold; \
             have the exporter record TCP flags",
            measured.flow_count
        )];
    }
    let marks = if sampled.counts_ends() { "SYNs and FINs" } else { "SYNs" };
    vec![format!(
        "packets were sampled {rate}: {:.0} TCP flows ({least:.0} to {most:.0}, 95 %) by their {marks}, \
         lengths by expectation-maximisation",
        measured.flow_count
    )]
}

/// That sizes of sampled files are not identified, and what to do.
pub(crate) fn sampled_sizes(inversions: &BTreeMap<Group, Inversion>) -> Option<String> {
    let carrying = inversions.iter().filter(|(group, _)| !group.lacks_flags && !group.returns);
    let spreads: Vec<Option<f64>> = carrying.map(|(_, found)| found.spread).collect();
    if spreads.contains(&None) {
        return Some(
            "sizes of files are not identified: what packets carry cannot be learnt from these sampled records, \
             so that sizes are estimated as lengths times mean payload"
                .into(),
        );
    }
    let spread = spreads.into_iter().flatten().fold(0.0, f64::max);
    (spread > SPREAD_MAX).then(|| {
        format!(
            "sizes of files are not identified: laws up to KS {spread:.2} apart (95 %) fit these records \
             equally well, and the model has their mean; give a longer input, or one of which more \
             packets were sampled"
        )
    })
}

/// Files below which Figure 4 estimates sessions badly.
const FILES_FEW: u64 = 100;

/// That there are too few files for Figure 4.
pub(crate) fn few_files(files: u64) -> Option<String> {
    (files < FILES_FEW).then(|| {
        format!(
            "{files} files are few for Harpoon's Figure 4 (below {FILES_FEW}): sessions, connections and bytes of an \
             interval may be far from the original's; without --harpoon whole connections are played"
        )
    })
}

/// How sure gaps of sampled records are, and what to do where they are not identified.
pub(crate) fn sampled_gaps(gaps: Option<&SampledGaps>) -> Option<String> {
    let SampledGaps { identification, lags, median_interval_s: [low, high], .. } = gaps?;
    let by = format!("{lags} intervals between sampled connections of the same hosts");
    Some(match identification {
        Identification::Identified => format!(
            "gaps between connections are told by {by}: their median is between {low:.3} and {high:.3} s \
             (95 %)"
        ),
        Identification::NotIdentified => format!(
            "gaps between connections are not identified: {by} put their median anywhere from {low:.3} to \
             {high:.3} s (95 %), and those of the model are a guess; give a longer input, or one of which more \
             packets were sampled"
        ),
    })
}
