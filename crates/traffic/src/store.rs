//! Lots fetched a part at a time, from memory and from where they were set aside.
//!
//! A lot that has no more than a share of what may be held is one part. Of a larger one the records of each
//! slot are counted first, and slots are put together to parts that fit. Such parts have all records of their
//! address pairs, so that it makes no difference how lots were parted. A slot that is larger than a share, which
//! most often is a single pair of addresses, is parted once more, into *fractions* that have all records of
//! their pairs of sockets; one pair of sockets alone is not parted. The records are then set aside again, each
//! with its part, so that they are read three times however many parts there are.
//!
//! Parts are worked on by whoever has processors to spare, some at a time, and what they came to is added in
//! their order.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use nilometer_flow::FlowRecord;
use nilometer_flow::record::UDP;

use crate::aside::Aside;
use crate::estimate_error::EstimateError;
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

/// Records of some address pairs: a lot of flagged records and the lot of the others, or a part of both.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    lot: usize,
    /// Its place among the parts that the lot was dealt to, from 1 on; 0 for the lot itself.
    dealt: usize,
    slots: Range<u16>,
    bins: Range<u16>,
    records: usize,
    has_udp: bool,
}

impl Part {
    fn new(lot: usize, (slots, records): (Range<u16>, usize)) -> Part {
        Part { lot, dealt: 0, slots, bins: 0..BINS, records, has_udp: true }
    }

    /// The number under which records of this part are set aside.
    fn number(&self, lot: usize) -> usize {
        2 * LOTS * self.dealt + lot
    }

    /// Has it only some of the records of its address pairs? Others are in the parts next to it.
    pub fn is_fraction(&self) -> bool {
        self.bins != (0..BINS)
    }

    /// Does no later part have records of its address pairs?
    pub fn is_last(&self) -> bool {
        self.bins.end == BINS
    }

    /// May it have records of UDP?
    pub fn has_udp(&self) -> bool {
        self.has_udp
    }
}

/// Records of a lot on their way to its parts.
struct Dealing {
    parts: Vec<Part>,
    /// Of each part, flagged records and others.
    packed: Vec<[Lot; 2]>,
    /// Records that wait to be set aside.
    waiting: usize,
}

impl Dealing {
    fn new(parts: Vec<Part>) -> Dealing {
        let mut dealing = Dealing { packed: Vec::new(), parts, waiting: 0 };
        for (place, part) in dealing.parts.iter_mut().enumerate() {
            (part.dealt, part.has_udp) = (place + 1, false);
            dealing.packed.push(Default::default());
        }
        dealing
    }

    fn deal(&mut self, kind: usize, record: &FlowRecord) {
        let place = (slot_of(&record.key), bin_of(&record.key));
        let after = self.parts.partition_point(|part| (part.slots.start, part.bins.start) <= place);
        self.parts[after - 1].has_udp |= record.key.protocol == UDP;
        self.packed[after - 1][kind].push(record);
        self.waiting += 1;
    }

    fn set_aside(&mut self, aside: &impl Aside) -> Result<(), String> {
        for (part, packed) in self.parts.iter().zip(&mut self.packed) {
            for (kind, lot) in packed.iter_mut().enumerate() {
                let bytes = lot.take();
                if !bytes.is_empty() {
                    aside.put(part.number(part.lot + kind * LOTS), &bytes)?;
                }
            }
        }
        self.waiting = 0;
        Ok(())
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
    /// Parts what was gathered into such as have no more than `share` records, or are one pair of sockets that has
    /// no more than `of_sockets_max`.
    ///
    /// # Errors
    /// When a lot that was set aside cannot be had, and where one pair of sockets has too many records.
    pub fn new(
        lots: Vec<Lot>,
        aside: &'a A,
        (share, of_sockets_max): (usize, usize),
        runner: &impl Runner,
    ) -> Result<Store<'a, A>, EstimateError> {
        let mut store = Store { lots, aside, parts: Vec::new(), share };
        let parted = runner.map((0..LOTS).collect(), |lot| store.parted(lot));
        for parts in parted {
            store.parts.extend(parts.map_err(EstimateError::Aside)?);
        }
        let most = share.max(of_sockets_max);
        if store.parts.iter().any(|part| part.records > most) {
            return Err(EstimateError::TooManyOfSockets(most));
        }
        for part in store.parts.iter().filter(|part| part.dealt > 0) {
            for lot in [part.lot, part.lot + LOTS] {
                store.lots[lot].take();
            }
        }
        Ok(store)
    }

    /// The most records that are looked at together.
    pub fn together_max(&self) -> usize {
        self.parts.iter().map(|part| part.records).max().unwrap_or(0)
    }

    /// The parts of a lot.
    fn parted(&self, lot: usize) -> Result<Vec<Part>, String> {
        let both = [lot, lot + LOTS];
        let bytes = both.map(|lot| self.lots[lot].bytes().len() as u64 + self.aside.length(lot));
        let whole =
            Part::new(lot, (0..SLOTS, (bytes.iter().sum::<u64>() / NARROW as u64) as usize));
        if whole.records <= self.share {
            return Ok(vec![whole]);
        }
        let mut counts = vec![0; SLOTS.into()];
        for lot in both {
            self.each(lot, lot, |record| counts[usize::from(slot_of(&record.key))] += 1)?;
        }
        let slots = ranges(&counts, self.share).into_iter().map(|range| Part::new(lot, range));
        let parts = self.fractions(slots.collect())?;
        if parts.len() < 2 {
            return Ok(parts);
        }
        let mut dealing = Dealing::new(parts);
        for (kind, lot) in both.into_iter().enumerate() {
            let mut result = Ok(());
            self.each(lot, lot, |record| {
                dealing.deal(kind, &record);
                if dealing.waiting >= self.share && result.is_ok() {
                    result = dealing.set_aside(self.aside);
                }
            })?;
            result?;
        }
        dealing.set_aside(self.aside)?;
        Ok(dealing.parts)
    }

    /// The same parts of a lot, those that are larger than a share parted by their bins.
    fn fractions(&self, parts: Vec<Part>) -> Result<Vec<Part>, String> {
        let is_large = |part: &&Part| part.records > self.share;
        let mut counts: BTreeMap<u16, Vec<usize>> = { parts.iter() }
            .filter(is_large)
            .map(|part| (part.slots.start, vec![0; BINS.into()]))
            .collect();
        if counts.is_empty() {
            return Ok(parts);
        }
        for lot in [parts[0].lot, parts[0].lot + LOTS] {
            self.each(lot, lot, |record| {
                if let Some(counts) = counts.get_mut(&slot_of(&record.key)) {
                    counts[usize::from(bin_of(&record.key))] += 1;
                }
            })?;
        }
        let mut fractions = Vec::new();
        for part in parts {
            match counts.get(&part.slots.start) {
                Some(counts) if is_large(&&part) => {
                    let ranges = ranges(counts, self.share).into_iter();
                    let fraction = |(bins, records)| Part { bins, records, ..part.clone() };
                    fractions.extend(ranges.map(fraction));
                }
                _ => fractions.push(part),
            }
        }
        Ok(fractions)
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
        let number = part.number(lot);
        let held = if part.dealt == 0 { self.lots[lot].bytes().len() as u64 } else { 0 };
        let bytes = held + self.aside.length(number);
        let mut records = Vec::with_capacity(bytes as usize / NARROW);
        self.each(lot, number, |record| records.push(record))?;
        assert!(records.len() <= part.records, "a part has the records that were counted");
        Ok(records)
    }

    /// Gives the records of a lot that are held, and those that were set aside under a number.
    fn each(&self, lot: usize, number: usize, each: impl FnMut(FlowRecord)) -> Result<(), String> {
        let mut unpacking = Unpacking::new(each);
        if number == lot {
            unpacking.take(self.lots[lot].bytes());
        }
        self.aside.fetch(number, &mut |bytes| unpacking.take(bytes))?;
        unpacking.finish();
        Ok(())
    }

    /// Adds up what `work` makes of all parts, for the last time: what is held of a lot is let go when it was worked on.
    ///
    /// # Errors
    /// When a lot that was set aside cannot be had, and where `add` has one.
    pub fn sum_up<S: Sync, R: Send>(
        &mut self,
        mut sum: S,
        runner: &impl Runner,
        (work, add): (
            impl Fn(&Self, &Part) -> Result<R, String> + Sync,
            impl Fn(&mut S, &Part, R) -> Result<(), EstimateError>,
        ),
    ) -> Result<S, EstimateError>
    where
        Self: Sync,
    {
        let parts = core::mem::take(&mut self.parts);
        let mut parts = parts.as_slice();
        while !parts.is_empty() {
            let (now, later) = parts.split_at(self.at_once(parts));
            sum = self.sum(now, sum, runner, (|_: &S, part: &Part| work(self, part), &add))?;
            for part in now.iter().filter(|part| part.dealt == 0) {
                for lot in [part.lot, part.lot + LOTS] {
                    self.lots[lot].take();
                }
            }
            parts = later;
        }
        Ok(sum)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aside::NothingAside;
    use crate::gather::Gathered;
    use crate::runner::InTurn;
    use crate::synthetic;

    fn lots(records: usize) -> Vec<Lot> {
        let mut gathered = Gathered::new();
        synthetic::records().into_iter().take(records).for_each(|record| gathered.keep(record));
        gathered.into_parts().lots
    }

    /// As many places as fit, and one at the least; those without records join what is before them.
    #[test]
    fn ranges_fit_their_share_or_are_one_place() {
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
    fn a_part_is_whole_or_a_fraction_of_which_one_is_the_last() {
        let whole = Part::new(5, (0..SLOTS, 9));
        assert!(!whole.is_fraction() && whole.is_last() && whole.has_udp());
        assert_eq!((whole.number(5), whole.number(5 + LOTS)), (5, 5 + LOTS));
        let first = Part { bins: 0..7, dealt: 2, ..whole.clone() };
        assert!(first.is_fraction() && !first.is_last());
        assert_eq!(first.number(5), 4 * LOTS + 5);
        let last = Part { bins: 7..BINS, ..whole };
        assert!(last.is_fraction() && last.is_last());
    }

    /// What is held of a lot is let go once it was worked on, and not before.
    #[test]
    fn lots_are_let_go_when_they_were_summed_up() {
        let all = lots(4_000);
        let held = |lots: &[Lot]| lots.iter().map(|lot| lot.bytes().len() / NARROW).sum::<usize>();
        assert!(held(&all) >= 4_000);
        let mut store = Store::new(all, &NothingAside, (1 << 20, 1 << 20), &InTurn).expect("parts");
        assert_eq!(store.parts().len(), LOTS);
        let work = |store: &Store<'_, _>, part: &Part| {
            Ok(store.flagged(part)?.len() + store.others(part)?.len())
        };
        let add = |sum: &mut usize, _: &Part, more: usize| {
            *sum += more;
            Ok(())
        };
        assert_eq!(store.sum_up(0, &InTurn, (work, add)).expect("a sum"), 4_000);
        assert_eq!(held(&store.lots), 0);
        assert!(store.parts().is_empty());
    }

    /// Sixteen parts, four shares, and two parts at the least.
    #[test]
    fn so_many_parts_are_worked_on_at_once() {
        let aside = NothingAside;
        let store =
            |share: usize| Store { lots: Vec::new(), aside: &aside, parts: Vec::new(), share };
        let parts = |records: &[usize]| -> Vec<Part> {
            records.iter().map(|&records| Part::new(0, (0..SLOTS, records))).collect()
        };
        let at_once = |share: usize, records: &[usize]| store(share).at_once(&parts(records));
        assert_eq!(at_once(10, &[1; 20]), 16);
        assert_eq!(at_once(10, &[1; 3]), 3);
        assert_eq!(at_once(10, &[10; 9]), 4);
        assert_eq!(at_once(10, &[10, 10, 10, 11, 1]), 3);
        assert_eq!(at_once(10, &[50; 9]), 2);
        assert_eq!(at_once(10, &[50]), 1);
        assert_eq!(at_once(usize::MAX, &[usize::MAX; 5]), 5);
    }
}
