//! Lots fetched a part at a time, from memory and from where they were set aside.
//!
//! A lot that has no more than a share of what may be held is one part. Of a larger one the records of each
//! slot are counted first, and slots are put together to parts that fit, each read for itself. Such parts have all
//! records of their address pairs, so that it makes no difference how lots were parted. A slot that is larger
//! than a share, which most often is a single pair of addresses, is parted once more, into *fractions* that have
//! all records of their pairs of sockets; one pair of sockets alone is not parted. Parts are worked on by whoever has processors to spare, some at a time,
//! and what they came to is added in their order.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use nilometer_flow::{FlowKey, FlowRecord};

use crate::estimate::EstimateError;
use crate::gather::Aside;
use crate::lots::{BINS, LOTS, Lot, NARROW, SLOTS, Unpacking, bin_of, slot_of};
use crate::runner::Runner;

/// Parts that are worked on before what they came to is added.
const AT_ONCE: usize = 16;
/// Shares that these have together at most, if they are more than two.
const SHARES_AT_ONCE: usize = 4;

/// Everything that was gathered.
pub(crate) struct Store<'a, A> {
    /// Those of flagged records, and behind them those of the others.
    lots: Vec<Lot>,
    aside: &'a A,
    parts: Vec<Part>,
    /// Records that a part may have.
    share: usize,
}

/// Some slots of a lot of flagged records, and of the lot of the others; or some bins of one slot.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    lot: usize,
    slots: Range<u16>,
    bins: Range<u16>,
    records: usize,
}

impl Part {
    fn has(&self, key: &FlowKey) -> bool {
        self.slots.contains(&slot_of(key))
            && (!self.is_fraction() || self.bins.contains(&bin_of(key)))
    }

    /// Has it only some of the records of its address pairs? Others are in the parts next to it.
    pub fn is_fraction(&self) -> bool {
        self.bins != (0..BINS)
    }

    /// Does no later part have records of its address pairs?
    pub fn is_last(&self) -> bool {
        self.bins.end == BINS
    }
}

/// Puts places in order together, so that each range of them has no more than a share, or is one place.
fn ranges(counts: &[usize], share: usize) -> Vec<(Range<u16>, usize)> {
    let mut ranges: Vec<(Range<u16>, usize)> = Vec::new();
    for (place, &records) in (0..).zip(counts) {
        match ranges.last_mut() {
            Some((range, sum)) if *sum + records <= share => {
                (range.end, *sum) = (place + 1, *sum + records);
            }
            _ => ranges.push((place..place + 1, records)),
        }
    }
    ranges
}

impl<'a, A: Aside> Store<'a, A> {
    /// Parts what was gathered into such as have no more than `share` records.
    ///
    /// # Errors
    /// When a lot that was set aside cannot be had.
    pub fn new(
        lots: Vec<Lot>,
        aside: &'a A,
        share: usize,
        runner: &impl Runner,
    ) -> Result<Store<'a, A>, EstimateError> {
        let mut store = Store { lots, aside, parts: Vec::new(), share };
        let parted = runner.map((0..LOTS).collect(), |lot| store.parted(lot));
        for parts in parted {
            store.parts.extend(parts.map_err(EstimateError::Aside)?);
        }
        Ok(store)
    }

    /// The most records that are looked at together.
    pub fn together_max(&self) -> usize {
        self.parts.iter().map(|part| part.records).max().unwrap_or(0)
    }

    /// The parts of a lot.
    fn parted(&self, lot: usize) -> Result<Vec<Part>, String> {
        let bytes = |lot: usize| self.lots[lot].bytes().len() as u64 + self.aside.length(lot);
        let records = (bytes(lot) + bytes(lot + LOTS)) / NARROW as u64;
        if records <= self.share as u64 {
            let records = records as usize;
            return Ok(vec![Part { lot, slots: 0..SLOTS, bins: 0..BINS, records }]);
        }
        let mut counts = vec![0; SLOTS.into()];
        for lot in [lot, lot + LOTS] {
            self.each(lot, |record| counts[usize::from(slot_of(&record.key))] += 1)?;
        }
        let mut parts = Vec::new();
        for (slots, records) in ranges(&counts, self.share) {
            let part = Part { lot, slots, bins: 0..BINS, records };
            if records <= self.share {
                parts.push(part);
            } else {
                parts.extend(self.fractions_of(part)?);
            }
        }
        Ok(parts)
    }

    /// A slot that is larger than a share, parted by its bins.
    fn fractions_of(&self, slot: Part) -> Result<Vec<Part>, String> {
        let mut counts = vec![0; BINS.into()];
        for lot in [slot.lot, slot.lot + LOTS] {
            self.each(lot, |record| {
                if slot.has(&record.key) {
                    counts[usize::from(bin_of(&record.key))] += 1;
                }
            })?;
        }
        let ranges = ranges(&counts, self.share).into_iter();
        Ok(ranges.map(|(bins, records)| Part { bins, records, ..slot.clone() }).collect())
    }

    /// All parts; fractions of one slot stand together.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The flagged records of a part.
    pub fn flagged(&self, part: &Part) -> Result<Vec<FlowRecord>, String> {
        self.records(part.lot, part)
    }

    /// The records of a part that have no flags, or are sampled.
    pub fn others(&self, part: &Part) -> Result<Vec<FlowRecord>, String> {
        self.records(part.lot + LOTS, part)
    }

    fn records(&self, lot: usize, part: &Part) -> Result<Vec<FlowRecord>, String> {
        let mut records = Vec::new();
        if part.slots == (0..SLOTS) {
            let bytes = self.lots[lot].bytes().len() as u64 + self.aside.length(lot);
            records.reserve_exact(bytes as usize / NARROW);
            self.each(lot, |record| records.push(record))?;
        } else {
            self.each(lot, |record| {
                if part.has(&record.key) {
                    records.push(record);
                }
            })?;
        }
        assert!(records.len() <= part.records, "a part has the records that were counted");
        Ok(records)
    }

    fn each(&self, lot: usize, each: impl FnMut(FlowRecord)) -> Result<(), String> {
        let mut unpacking = Unpacking::new(each);
        unpacking.take(self.lots[lot].bytes());
        self.aside.fetch(lot, &mut |bytes| unpacking.take(bytes))?;
        unpacking.finish();
        Ok(())
    }

    /// Adds up what `work` makes of these parts; it sees the sum of those that were added before. `add` is told which
    /// part it was.
    ///
    /// # Errors
    /// When a lot that was set aside cannot be had, and where `add` has one.
    pub fn sum<S: Sync, R: Send>(
        &self,
        mut parts: &[Part],
        mut sum: S,
        runner: &impl Runner,
        (work, add): (
            impl Fn(&S, &Part) -> Result<R, String> + Sync,
            impl Fn(&mut S, &Part, R) -> Result<(), EstimateError>,
        ),
    ) -> Result<S, EstimateError> {
        while !parts.is_empty() {
            let (now, later) = parts.split_at(self.at_once(parts));
            let made = runner.map(now.to_vec(), |part| work(&sum, &part));
            for (part, made) in now.iter().zip(made) {
                add(&mut sum, part, made.map_err(EstimateError::Aside)?)?;
            }
            parts = later;
        }
        Ok(sum)
    }

    /// How many of these parts are worked on at once.
    fn at_once(&self, parts: &[Part]) -> usize {
        let most = self.share.saturating_mul(SHARES_AT_ONCE);
        let mut records = 0usize;
        let fit = parts.iter().take(AT_ONCE).take_while(|part| {
            records = records.saturating_add(part.records);
            records <= most
        });
        fit.count().max(2).min(parts.len())
    }
}
