//! What a person should know of how a model was made, in plain words.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use nilometer_flow::repair::{Reason, RepairCounts};

use crate::lengths::Measured;
use crate::model::{Identification, SampledGaps};
use crate::sampled::Kinds;

/// What repair changed beyond the joining of pieces, in plain words.
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

/// What makes a model of samples less than one of whole flows.
pub(crate) fn sampled(measured: &Measured, sampled: &Kinds) -> Vec<String> {
    let Some((low, high)) = sampled.intervals() else { return Vec::new() };
    let [least, most] = measured.lengths.flow_count_interval;
    let rate = if low == high { format!("1:{low}") } else { format!("1:{low} to 1:{high}") };
    if sampled.is_bare() {
        return vec![format!(
            "packets were sampled {rate} and no TCP flags recorded: how many TCP flows there were is \
             not identified, at least {:.0} ({least:.0} to {most:.0} are possible); volumes hold; \
             have the exporter record TCP flags",
            measured.flow_count
        )];
    }
    vec![format!(
        "packets were sampled {rate}: {:.0} TCP flows ({least:.0} to {most:.0}, 95 %) by their SYNs, \
         lengths by expectation-maximisation; file sizes are lengths times mean payload, \
         acknowledgements among them",
        measured.flow_count
    )]
}

/// Files below which Figure 4 tells sessions badly.
const FILES_FEW: u64 = 100;

/// What makes few files a bad law for Figure 4.
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
