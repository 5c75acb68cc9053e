//! Batches of records that fit in memory, processed in parallel and reduced in order.
//!
//! A partition with no more records than a batch may have is one batch. In a larger one the records of each slot are
//! counted first, and consecutive slots are combined into batches that fit. Such batches hold all records of their
//! address pairs, so the result does not depend on how partitions were split. A slot that is too large for a batch,
//! usually a single address pair, is split by bin into *partial* batches, which hold all records of their pairs of
//! sockets; one pair of sockets is never split. The records are then spilled again by batch, so that they are read
//! three times, however many batches there are.
//!
//! Several batches are processed at a time, by any worker; their results are added in the order of the
//! batches.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use nilometer_flow::FlowRecord;
use nilometer_flow::record::UDP;

use crate::estimate_error::EstimateError;
use crate::partitions::{BINS, NARROW, PARTITIONS, Partition, SLOTS, Unpacking, bin_of, slot_of};
use crate::runner::Runner;
use crate::spill::SpillStore;

/// The most batches that are processed before their results are added.
const CONCURRENT_MAX: usize = 16;
/// If they are more than two, their records together are at most this many times the limit of one batch.
const CONCURRENT_BUDGETS: usize = 4;

/// All partitions, split into batches.
pub(crate) struct Batches<'a, A> {
    /// The partitions of flagged records, followed by those of ambiguous records.
    partitions: Vec<Partition>,
    spill: &'a A,
    all: Vec<Batch>,
    /// Records that a batch may have.
    batch_max: usize,
}

/// Records of some address pairs: a partition of flagged records and its partition of ambiguous ones, or a part of
/// both.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    partition: usize,
    /// Its place among the batches that its partition was split into, from 1; 0 where the partition is one batch.
    place: usize,
    slots: Range<u16>,
    bins: Range<u16>,
    records: usize,
    has_udp: bool,
}

impl Batch {
    fn new(partition: usize, (slots, records): (Range<u16>, usize)) -> Batch {
        Batch { partition, place: 0, slots, bins: 0..BINS, records, has_udp: true }
    }

    /// The numbers of its partitions: of flagged records and of ambiguous ones.
    fn both(&self) -> [usize; 2] {
        [self.partition, self.partition + PARTITIONS]
    }

    /// The number under which records of this batch are spilled.
    fn number(&self, partition: usize) -> usize {
        2 * PARTITIONS * self.place + partition
    }

    /// Does it hold only some records of its address pairs? The rest are in neighbouring batches.
    pub fn is_partial(&self) -> bool {
        self.bins != (0..BINS)
    }

    /// Is it the last batch with records of its address pairs?
    pub fn is_last(&self) -> bool {
        self.bins.end == BINS
    }

    /// Can it have records of UDP?
    pub fn has_udp(&self) -> bool {
        self.has_udp
    }
}

/// A partition whose records are being distributed to its batches.
struct Repartitioning {
    all: Vec<Batch>,
    /// Flagged and ambiguous records of each batch.
    packed: Vec<[Partition; 2]>,
    /// Number of records that are not spilled yet.
    unspilled: usize,
}

impl Repartitioning {
    fn new(all: Vec<Batch>) -> Repartitioning {
        let mut repartitioning = Repartitioning { packed: Vec::new(), all, unspilled: 0 };
        for (place, batch) in repartitioning.all.iter_mut().enumerate() {
            (batch.place, batch.has_udp) = (place + 1, false);
            repartitioning.packed.push(Default::default());
        }
        repartitioning
    }

    fn push(&mut self, kind: usize, record: &FlowRecord) {
        let place = (slot_of(&record.key), bin_of(&record.key));
        let after =
            self.all.partition_point(|batch| (batch.slots.start, batch.bins.start) <= place);
        self.all[after - 1].has_udp |= record.key.protocol == UDP;
        self.packed[after - 1][kind].push(record);
        self.unspilled += 1;
    }

    fn spill(&mut self, spill: &impl SpillStore) -> Result<(), String> {
        for (batch, packed) in self.all.iter().zip(&mut self.packed) {
            for (kind, partition) in packed.iter_mut().enumerate() {
                let bytes = partition.take();
                if !bytes.is_empty() {
                    spill.append(batch.number(batch.partition + kind * PARTITIONS), &bytes)?;
                }
            }
        }
        self.unspilled = 0;
        Ok(())
    }
}

/// Combines consecutive slots or bins: each range fits a batch, or is a single slot or bin.
fn ranges(counts: &[usize], batch_max: usize) -> Vec<(Range<u16>, usize)> {
    let mut ranges: Vec<(Range<u16>, usize)> = Vec::new();
    for (place, &records) in (0..).zip(counts) {
        match ranges.last_mut() {
            Some((range, sum)) if *sum + records <= batch_max => {
                (range.end, *sum) = (place + 1, *sum + records);
            }
            _ => ranges.push((place..place + 1, records)),
        }
    }
    ranges
}

impl<'a, A: SpillStore> Batches<'a, A> {
    /// Splits partitions into batches of at most `batch_max` records, or at most `of_sockets_max` records of
    /// one pair of sockets.
    ///
    /// # Errors
    /// Where a spilled partition cannot be read, and where one pair of sockets has too many records.
    pub fn new(
        partitions: Vec<Partition>,
        spill: &'a A,
        (batch_max, of_sockets_max): (usize, usize),
        runner: &impl Runner,
    ) -> Result<Batches<'a, A>, EstimateError> {
        let mut batches = Batches { partitions, spill, all: Vec::new(), batch_max };
        let split = runner.map((0..PARTITIONS).collect(), |partition| batches.split(partition));
        for list in split {
            batches.all.extend(list.map_err(EstimateError::Spill)?);
        }
        let most = batch_max.max(of_sockets_max);
        if batches.all.iter().any(|batch| batch.records > most) {
            return Err(EstimateError::TooManyOfSockets(most));
        }
        for batch in batches.all.iter().filter(|batch| batch.place > 0) {
            batch.both().into_iter().for_each(|at| _ = batches.partitions[at].take());
        }
        Ok(batches)
    }

    /// Records of the largest batch.
    pub fn largest(&self) -> usize {
        self.all.iter().map(|batch| batch.records).max().unwrap_or(0)
    }

    /// The batches of a partition.
    fn split(&self, partition: usize) -> Result<Vec<Batch>, String> {
        let both = [partition, partition + PARTITIONS];
        let bytes = |at: usize| self.partitions[at].bytes().len() as u64 + self.spill.len_bytes(at);
        let records = both.map(bytes).iter().sum::<u64>() / NARROW as u64;
        let whole = Batch::new(partition, (0..SLOTS, records as usize));
        if whole.records <= self.batch_max {
            return Ok(vec![whole]);
        }
        let mut counts = vec![0; SLOTS.into()];
        for at in both {
            self.for_each(at, at, |record| counts[usize::from(slot_of(&record.key))] += 1)?;
        }
        let ranges = ranges(&counts, self.batch_max).into_iter();
        let slots = ranges.map(|range| Batch::new(partition, range));
        let list = self.split_by_sockets(slots.collect())?;
        if list.len() < 2 {
            return Ok(list);
        }
        let mut repartitioning = Repartitioning::new(list);
        for (kind, at) in both.into_iter().enumerate() {
            let mut result = Ok(());
            self.for_each(at, at, |record| {
                repartitioning.push(kind, &record);
                if repartitioning.unspilled >= self.batch_max && result.is_ok() {
                    result = repartitioning.spill(self.spill);
                }
            })?;
            result?;
        }
        repartitioning.spill(self.spill)?;
        Ok(repartitioning.all)
    }

    /// The batches in `list`, with those that are too large split by bin.
    fn split_by_sockets(&self, list: Vec<Batch>) -> Result<Vec<Batch>, String> {
        let is_large = |batch: &&Batch| batch.records > self.batch_max;
        let mut counts: BTreeMap<u16, Vec<usize>> = { list.iter() }
            .filter(is_large)
            .map(|batch| (batch.slots.start, vec![0; BINS.into()]))
            .collect();
        if counts.is_empty() {
            return Ok(list);
        }
        for at in list[0].both() {
            self.for_each(at, at, |record| {
                if let Some(counts) = counts.get_mut(&slot_of(&record.key)) {
                    counts[usize::from(bin_of(&record.key))] += 1;
                }
            })?;
        }
        let mut split = Vec::new();
        for batch in list {
            match counts.get(&batch.slots.start) {
                Some(counts) if is_large(&&batch) => {
                    let ranges = ranges(counts, self.batch_max).into_iter();
                    let partial = |(bins, records)| Batch { bins, records, ..batch.clone() };
                    split.extend(ranges.map(partial));
                }
                _ => split.push(batch),
            }
        }
        Ok(split)
    }

    /// All batches; partial ones of one slot are consecutive.
    pub fn all(&self) -> &[Batch] {
        &self.all
    }

    /// The flagged records of a batch.
    pub fn flagged(&self, batch: &Batch) -> Result<Vec<FlowRecord>, String> {
        self.records(batch.partition, batch)
    }

    /// The ambiguous records of a batch: those without flags and sampled ones.
    pub fn ambiguous(&self, batch: &Batch) -> Result<Vec<FlowRecord>, String> {
        self.records(batch.partition + PARTITIONS, batch)
    }

    fn records(&self, partition: usize, batch: &Batch) -> Result<Vec<FlowRecord>, String> {
        let number = batch.number(partition);
        let held = if batch.place == 0 { self.partitions[partition].bytes().len() } else { 0 };
        let bytes = held + self.spill.len_bytes(number) as usize;
        let mut records = Vec::with_capacity(bytes / NARROW);
        self.for_each(partition, number, |record| records.push(record))?;
        assert!(records.len() <= batch.records, "a batch has the records that were counted");
        Ok(records)
    }

    /// Passes the records of a partition in memory, and those spilled under a number, to `each`.
    fn for_each(
        &self,
        at: usize,
        number: usize,
        each: impl FnMut(FlowRecord),
    ) -> Result<(), String> {
        let mut unpacking = Unpacking::new(each);
        if number == at {
            unpacking.take(self.partitions[at].bytes());
        }
        self.spill.read(number, &mut |bytes| unpacking.take(bytes))?;
        unpacking.finish();
        Ok(())
    }

    /// As [`map_reduce`](Batches::map_reduce) over all batches, for the last time: partitions are released as they are
    /// processed.
    ///
    /// # Errors
    /// Where a spilled partition cannot be read, and those of `add`.
    pub fn map_reduce_once<S: Sync, R: Send>(
        &mut self,
        mut sum: S,
        runner: &impl Runner,
        (work, add): (
            impl Fn(&Self, &Batch) -> Result<R, String> + Sync,
            impl Fn(&mut S, &Batch, R) -> Result<(), EstimateError>,
        ),
    ) -> Result<S, EstimateError>
    where
        Self: Sync,
    {
        let all = core::mem::take(&mut self.all);
        let mut batches = all.as_slice();
        while !batches.is_empty() {
            let (now, later) = batches.split_at(self.concurrent(batches));
            let work = |_: &S, batch: &Batch| work(self, batch);
            sum = self.map_reduce(now, sum, runner, (work, &add))?;
            for batch in now.iter().filter(|batch| batch.place == 0) {
                batch.both().into_iter().for_each(|at| _ = self.partitions[at].take());
            }
            batches = later;
        }
        Ok(sum)
    }

    /// Applies `work` to these batches in parallel and adds the results in their order. `work` gets the sum of the
    /// batches added before.
    ///
    /// # Errors
    /// Where a spilled partition cannot be read, and those of `add`.
    pub fn map_reduce<S: Sync, R: Send>(
        &self,
        mut batches: &[Batch],
        mut sum: S,
        runner: &impl Runner,
        (work, add): (
            impl Fn(&S, &Batch) -> Result<R, String> + Sync,
            impl Fn(&mut S, &Batch, R) -> Result<(), EstimateError>,
        ),
    ) -> Result<S, EstimateError> {
        while !batches.is_empty() {
            let (now, later) = batches.split_at(self.concurrent(batches));
            let made = runner.map(now.to_vec(), |batch| work(&sum, &batch));
            for (batch, made) in now.iter().zip(made) {
                add(&mut sum, batch, made.map_err(EstimateError::Spill)?)?;
            }
            batches = later;
        }
        Ok(sum)
    }

    /// How many of these batches are processed at a time.
    fn concurrent(&self, batches: &[Batch]) -> usize {
        let most = self.batch_max.saturating_mul(CONCURRENT_BUDGETS);
        let mut records = 0usize;
        let fit = batches.iter().take(CONCURRENT_MAX).take_while(|batch| {
            records = records.saturating_add(batch.records);
            records <= most
        });
        fit.count().max(2).min(batches.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partitioner::Partitioner;
    use crate::runner::Sequential;
    use crate::spill::NoSpill;
    use crate::synthetic;

    fn partitions(records: usize) -> Vec<Partition> {
        let mut partitioner = Partitioner::new();
        synthetic::records()
            .into_iter()
            .take(records)
            .for_each(|record| partitioner.push_as_given(record));
        partitioner.into_partitioned().partitions
    }

    /// Empty slots join the range before them.
    #[test]
    fn ranges_fit_the_batch_limit_or_hold_one_slot() {
        assert_eq!(ranges(&[], 5), []);
        assert_eq!(ranges(&[0, 0, 0], 5), [(0..3, 0)]);
        assert_eq!(
            ranges(&[2, 3, 0, 1, 9, 0, 4, 1], 5),
            [(0..3, 5), (3..4, 1), (4..5, 9), (5..8, 5)]
        );
        assert_eq!(ranges(&[6, 6, 5], 5), [(0..1, 6), (1..2, 6), (2..3, 5)]);
        assert_eq!(ranges(&[3, 3], 6), [(0..2, 6)]);
        assert_eq!(ranges(&[3, 4], 6), [(0..1, 3), (1..2, 4)]);
    }

    #[test]
    fn the_last_partial_batch_of_its_address_pairs_is_known() {
        let whole = Batch::new(5, (0..SLOTS, 9));
        assert!(!whole.is_partial() && whole.is_last() && whole.has_udp());
        assert_eq!((whole.number(5), whole.number(5 + PARTITIONS)), (5, 5 + PARTITIONS));
        let first = Batch { bins: 0..7, place: 2, ..whole.clone() };
        assert!(first.is_partial() && !first.is_last());
        assert_eq!(first.number(5), 4 * PARTITIONS + 5);
        let last = Batch { bins: 7..BINS, ..whole };
        assert!(last.is_partial() && last.is_last());
    }

    /// A partition in memory is released once it is processed, and not before.
    #[test]
    fn map_reduce_once_releases_its_partitions() {
        let all = partitions(4_000);
        let held = |partitions: &[Partition]| {
            partitions.iter().map(|partition| partition.bytes().len() / NARROW).sum::<usize>()
        };
        assert!(held(&all) >= 4_000);
        let mut batches =
            Batches::new(all, &NoSpill, (1 << 20, 1 << 20), &Sequential).expect("parts");
        assert_eq!(batches.all().len(), PARTITIONS);
        let work = |batches: &Batches<'_, _>, batch: &Batch| {
            Ok(batches.flagged(batch)?.len() + batches.ambiguous(batch)?.len())
        };
        let add = |sum: &mut usize, _: &Batch, more: usize| {
            *sum += more;
            Ok(())
        };
        assert_eq!(batches.map_reduce_once(0, &Sequential, (work, add)).expect("a sum"), 4_000);
        assert_eq!(held(&batches.partitions), 0);
        assert!(batches.all().is_empty());
    }

    /// At most sixteen batches, at most four times the limit of one, and at least two.
    #[test]
    fn concurrent_batches_are_limited_by_number_and_by_records() {
        let spill = NoSpill;
        let batches = |batch_max: usize| Batches {
            partitions: Vec::new(),
            spill: &spill,
            all: Vec::new(),
            batch_max,
        };
        let list = |records: &[usize]| -> Vec<Batch> {
            records.iter().map(|&records| Batch::new(0, (0..SLOTS, records))).collect()
        };
        let concurrent =
            |batch_max: usize, records: &[usize]| batches(batch_max).concurrent(&list(records));
        assert_eq!(concurrent(10, &[1; 20]), 16);
        assert_eq!(concurrent(10, &[1; 3]), 3);
        assert_eq!(concurrent(10, &[10; 9]), 4);
        assert_eq!(concurrent(10, &[10, 10, 10, 11, 1]), 3);
        assert_eq!(concurrent(10, &[50; 9]), 2);
        assert_eq!(concurrent(10, &[50]), 1);
        assert_eq!(concurrent(usize::MAX, &[usize::MAX; 5]), 5);
    }
}
