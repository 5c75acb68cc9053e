//! The passes over ambiguous records before any flow is measured.
//!
//! *Ambiguous* records do not show by themselves where their flows begin and end: records without TCP flags, and
//! sampled ones. Two facts about them depend on the whole input, so their partitions are read twice before flows are
//! measured. The first pass collects gaps, which show which records without flags are pieces of one flow, and the
//! predecessors of records with impossible stamps. The second pass joins the pieces, weighs the evidence of starts and
//! ends, and counts sampled records by kind. The state kept for each partition is bounded, or one number for each
//! host.

use alloc::string::String;
use alloc::vec::Vec;

use nilometer_flow::FlowRecord;
use nilometer_flow::repair::{RepairCounts, settle_all};

use crate::ambiguous::Summary;
use crate::batches::{Batch, Batches};
use crate::estimate_error::EstimateError;
use crate::lengths::is_sampled;
use crate::limits::Limits;
use crate::runner::Runner;
use crate::sampled_records::Kinds;
use crate::spill::SpillStore;
use crate::unflagged::evidence::{Evidence, Weighed};
use crate::unflagged::gaps::Gaps;
use crate::unflagged::predecessors::Predecessors;
use crate::unflagged::{self, Marked};

/// The results of both passes.
pub(crate) struct FirstPass {
    pub summary: Summary,
    /// The gap beyond which two records without flags are two flows, ns.
    pub threshold_ns: u64,
    predecessors: Predecessors,
    evidence: Evidence,
    /// Sampled flows, by kind of record.
    pub kinds: Kinds,
}

/// The flows of the ambiguous records of a batch.
pub(crate) struct Inferred {
    /// Flows whose starts and ends were inferred.
    pub marked: Marked,
    /// Sampled flows, joined from their records.
    pub sampled: Vec<FlowRecord>,
}

/// The results of the second pass in a batch.
#[derive(Default)]
struct Weighing {
    weighed: Weighed,
    kinds: Kinds,
}

impl FirstPass {
    /// Runs both passes over all batches.
    ///
    /// # Errors
    /// Where a spilled partition cannot be read, and where a limit is exceeded.
    pub fn of<A: SpillStore>(
        batches: &Batches<'_, A>,
        mut summary: Summary,
        span_ns: (u64, u64),
        limits: &Limits,
        runner: &impl Runner,
    ) -> Result<FirstPass, EstimateError> {
        let (threshold_ns, predecessors) = gaps_and_predecessors(batches, &mut summary, runner)?;
        let mut first_pass = FirstPass {
            threshold_ns,
            predecessors,
            evidence: Evidence::default(),
            kinds: Kinds::default(),
            summary,
        };
        if first_pass.summary.unflagged + first_pass.summary.sampled > 0 {
            let look =
                |_: &Weighing, batch: &Batch| Ok(first_pass.weigh(batches.ambiguous(batch)?));
            let add = |sum: &mut Weighing, _: &Batch, more: Weighing| {
                sum.kinds.merge(more.kinds);
                sum.weighed.merge(more.weighed, limits.host_times)
            };
            let Weighing { weighed, kinds } =
                batches.map_reduce(batches.all(), Weighing::default(), runner, (look, add))?;
            let weighed = weighed.settled(limits.host_times)?;
            first_pass.kinds = kinds;
            first_pass.evidence = Evidence::of(weighed, first_pass.summary.reports_ends, span_ns);
        }
        Ok(first_pass)
    }

    fn weigh(&self, records: Vec<FlowRecord>) -> Weighing {
        let (sampled, bare) = split_sampled(records);
        let (flows, _) = unflagged::join(bare, self.threshold_ns, &self.predecessors);
        let mut counts = RepairCounts::default();
        let sampled = settle_all(sampled, self.summary.waits.gap_ns(), &mut counts);
        Weighing {
            weighed: Weighed::of(&flows, self.threshold_ns),
            kinds: Kinds::of(&sampled, counts.joined(), &self.summary.services),
        }
    }

    /// The flows of the ambiguous records of a batch, which may have none.
    pub fn infer<A: SpillStore>(
        &self,
        batches: &Batches<'_, A>,
        batch: &Batch,
    ) -> Result<Inferred, String> {
        let (sampled, bare) = split_sampled(batches.ambiguous(batch)?);
        let (flows, joined) = unflagged::join(bare, self.threshold_ns, &self.predecessors);
        let sampled =
            settle_all(sampled, self.summary.waits.gap_ns(), &mut RepairCounts::default());
        let marked = unflagged::mark(flows, joined, self.threshold_ns, &self.evidence);
        Ok(Inferred { marked, sampled })
    }
}

/// Sampled records, and those without flags.
fn split_sampled(records: Vec<FlowRecord>) -> (Vec<FlowRecord>, Vec<FlowRecord>) {
    records.into_iter().partition(is_sampled)
}

/// The results of the first pass.
struct GapsAndPredecessors {
    gaps: Gaps,
    predecessors: Predecessors,
}

/// The first pass: the threshold of gaps, and the predecessors of doubtful records.
fn gaps_and_predecessors<A: SpillStore>(
    batches: &Batches<'_, A>,
    summary: &mut Summary,
    runner: &impl Runner,
) -> Result<(u64, Predecessors), EstimateError> {
    let sum = GapsAndPredecessors {
        gaps: Gaps::default(),
        predecessors: summary.doubtful.take_sorted()?,
    };
    if summary.unflagged == 0 {
        return Ok((sum.gaps.threshold_ns(), sum.predecessors));
    }
    let look = |sum: &GapsAndPredecessors, batch: &Batch| {
        let mut records = batches.ambiguous(batch)?;
        records.retain(|record| !is_sampled(record));
        Ok((sum.predecessors.find_in(&records), Gaps::of(records, sum.gaps.last())))
    };
    let add = |sum: &mut GapsAndPredecessors, _: &Batch, (found, gaps)| {
        sum.gaps.merge(gaps);
        sum.predecessors.add(found);
        Ok(())
    };
    let mut sum = batches.map_reduce(batches.all(), sum, runner, (look, add))?;
    sum.predecessors.propagate();
    Ok((sum.gaps.threshold_ns(), sum.predecessors))
}
