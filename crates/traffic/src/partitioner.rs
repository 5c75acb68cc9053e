//! Flow records packed and partitioned for an estimate, one by one.
//!
//! Each record goes to the partition of its address pair. When more records are packed than the budget allows, the
//! caller removes all partitions and spills them; they are read back when they are processed. The order of the records
//! is not kept, nor the input that they came from: the result of a partition depends only on its records. Only the
//! stamps of a record may be repaired by those before it ([`Screen`]); a caller with several inputs screens each by
//! itself.
//!
//! Ambiguous records, those without flags and sampled ones, depend on the whole input. They have partitions of their
//! own, and counts that need only a single look at each are taken on arrival (`ambiguous`).

use alloc::vec::Vec;

use nilometer_flow::FlowRecord;
use nilometer_flow::repair::{Reason, RepairCounts, Screen};

use crate::ambiguous::Summary;
use crate::lengths::is_sampled;
use crate::limits::Limits;
use crate::partitions::{PARTITIONS, Partition, partition_of};
use crate::unflagged::is_unflagged;

/// Limits on the number of records in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBudget {
    /// Packed records; when there are more, they must be spilled.
    pub packed: usize,
    /// Unpacked records that each worker may have at a time.
    pub batch: usize,
}

impl MemoryBudget {
    /// No limit.
    pub const UNLIMITED: MemoryBudget = MemoryBudget { packed: usize::MAX, batch: usize::MAX };
}

/// Records on their way into an estimate: 48 bytes each, 88 for IPv6.
#[derive(Debug)]
pub struct Partitioner {
    budget: MemoryBudget,
    limits: Limits,
    screen: Screen,
    /// Partitions of records with flags, followed by those of ambiguous records.
    partitions: Vec<Partition>,
    held: usize,
    summary: Summary,
    span_ns: Option<(u64, u64)>,
}

/// The partitions with their counts.
pub(crate) struct Partitioned {
    pub partitions: Vec<Partition>,
    /// The most records of a batch.
    pub batch_max: usize,
    pub limits: Limits,
    /// Counts of ambiguous records.
    pub summary: Summary,
    /// Counts of the screen.
    pub counts: RepairCounts,
    /// From the first start to the last end, ns since 1970.
    pub span_ns: Option<(u64, u64)>,
}

impl Default for Partitioner {
    fn default() -> Partitioner {
        Partitioner::new()
    }
}

impl Partitioner {
    /// A partitioner that keeps everything in memory.
    pub fn new() -> Partitioner {
        Partitioner::with_budget(MemoryBudget::UNLIMITED)
    }

    /// A partitioner with a budget and the default limits.
    pub fn with_budget(budget: MemoryBudget) -> Partitioner {
        Partitioner::with_limits(budget, Limits::default())
    }

    /// A partitioner with a budget, for an estimate with limits.
    pub fn with_limits(budget: MemoryBudget, limits: Limits) -> Partitioner {
        Partitioner {
            budget,
            limits,
            screen: Screen::default(),
            partitions: (0..2 * PARTITIONS).map(|_| Partition::default()).collect(),
            held: 0,
            summary: Summary::new(&limits),
            span_ns: None,
        }
    }

    /// Packed records in memory.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Is the budget used up? Then the partitions must be drained and spilled.
    pub fn is_full(&self) -> bool {
        self.held >= self.budget.packed
    }

    /// Adds a record, which will be repaired with the others.
    pub fn push(&mut self, mut record: FlowRecord) {
        if is_screened(&record) {
            self.screen.set_right(&mut record);
        }
        self.push_as_given(record);
    }

    /// Adds a record that was screened already, where [`is_screened`] applies; see
    /// [`note_screened`](Partitioner::note_screened).
    pub fn push_screened(&mut self, record: FlowRecord) {
        if is_screened(&record) {
            self.screen.counts.offer(&record);
        }
        self.push_as_given(record);
    }

    /// Notes how often a reason was met in screening.
    pub fn note_screened(&mut self, reason: Reason, times: u64) {
        self.screen.counts.note(reason, times);
    }

    /// Removes all partitions, as bytes for a [`SpillStore`](crate::spill::SpillStore).
    pub fn drain(&mut self) -> Vec<Vec<u8>> {
        self.held = 0;
        self.partitions.iter_mut().map(Partition::take).collect()
    }

    /// Adds a record without repair.
    pub(crate) fn push_as_given(&mut self, record: FlowRecord) {
        let (first, last) = self.span_ns.unwrap_or((record.start_ns, record.end_ns));
        self.span_ns = Some((first.min(record.start_ns), last.max(record.end_ns)));
        let partition = partition_of(&record.key);
        if is_screened(&record) {
            self.held += 1;
            self.partitions[partition].push(&record);
        } else if let Some(record) = self.summary.observe(record) {
            self.held += 1;
            self.partitions[PARTITIONS + partition].push(&record);
        }
    }

    pub(crate) fn into_partitioned(self) -> Partitioned {
        let Partitioner { budget, limits, screen, partitions, summary, span_ns, .. } = self;
        Partitioned {
            partitions,
            batch_max: budget.batch,
            limits,
            summary,
            counts: screen.counts,
            span_ns,
        }
    }
}

/// Are this record's stamps and counters repaired on input? Those of ambiguous records are repaired in later passes.
pub fn is_screened(record: &FlowRecord) -> bool {
    !is_sampled(record) && !is_unflagged(record)
}
