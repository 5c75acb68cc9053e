//! What a person should know of how a model was made, in plain words.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use nilometer_flow::repair::{Reason, RepairCounts};

use crate::lengths::Measured;
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
    vec![format!(
        "packets were sampled {rate}: {:.0} TCP flows ({least:.0} to {most:.0}, 95 %) by their SYNs, \
         lengths by expectation-maximisation; file sizes are lengths times mean payload, \
         acknowledgements among them, and gaps those of sampled SYNs divided by the interval",
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
