//! Repair of flow records that exporters split, doubled, wrapped or misdated.
//!
//! Records come from exporters that end flows by timers, count bytes in 32 bits and stamp them with an
//! uptime in milliseconds. The damage (Hofstede and others, *Measurement Artifacts in NetFlow Data*, 2013)
//! is undone here, each repair counted under its [`Reason`]:
//!
//! | step | file |
//! |---|---|
//! | an impossible stamp is replaced, a wrapped counter is unwrapped | `record` |
//! | a record exported twice is dropped, pieces of one flow are joined | `pieces` |
//! | records in memory are brought together, all at once or part by part | `memory` |
//! | which records are looked at together, and for how long they wait | this one |
//!
//! Records of one five-tuple are processed together, in the order of their starts, so that the order in
//! which they come does not matter. [`repair`] does so for records in memory; [`Repair`] for a stream of
//! them, in bounded memory: a tuple is settled when no further record can belong to it, or when there are
//! too many tuples. The stream's clock is the latest end that was seen; it goes back when an input begins
//! far earlier (files given out of order). A record never settles more than a few tuples, so that one wrong
//! stamp cannot settle them all.
//!
//! Nothing is lost: records, packets and bytes that were offered are passed on, joined or dropped as
//! doubles, and additional bytes are those of wrapped counters.

mod memory;
mod pieces;
mod record;

use alloc::vec::Vec;

use crate::cache::{Cache, Keyed, Order, Slot};
use crate::record::{EndReason, FlowKey, FlowRecord};

pub use memory::{Screen, settle_all};
pub use record::{Stamps, stamps};

const SECOND_NS: u64 = 1_000_000_000;

/// The gap that Harpoon allows between two pieces of one flow: 10 ms.
pub const HARPOON_GAP_MAX_NS: u64 = 10_000_000;

/// The longest wait for the rest of a record that a timer cut: the usual inactive timeout, 15 s.
pub const CONTINUATION_GAP_MAX_NS: u64 = 15 * SECOND_NS;

/// The most records of one tuple that wait together; then all but the last are settled.
const TOGETHER_MAX: usize = 256;
/// Records whose places are prefetched together.
const AT_A_TIME: usize = 16;
/// The most tuples that are settled for one incoming record.
const SETTLED_AT_ONCE: usize = 4;
/// How long a record with start and end waits for its double, on the stream's clock.
const DOUBLE_WAIT_NS: u64 = 60 * SECOND_NS;
/// How long any other record waits for the next piece, which is exported when the next active timeout ends
/// it, by default 30 minutes on routers, after a gap.
const PIECE_WAIT_NS: u64 = 3_600 * SECOND_NS;

nilometer_wire::named! {
    /// Why a record was repaired.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    pub enum Reason {
        /// Joined to an earlier piece: at most 10 ms lie between them (Harpoon, section 4.1), or the earlier
        /// piece states that a timer or a full cache cut it.
        Split = "split",
        /// Joined to an earlier piece that does not state what cut it: the exporter forgot the flow and
        /// began it anew, with a new start, at its next packet. TCP's flags show it.
        StartRenewed = "start_renewed",
        /// Joined to an earlier piece with the same start: the exporter kept the flow, and its start,
        /// beyond the timer.
        StartKept = "start_kept",
        /// Dropped: the same flow, counted at the same time, from another direction or point.
        DirectionDoubled = "direction_doubled",
        /// Fewer bytes than the headers of all its packets: a counter of 32 bits had wrapped.
        CounterWrapped = "counter_wrapped",
        /// A duration of 49.7 days, after which an uptime wraps, or of days with hardly any packets.
        DurationAbsurd = "duration_absurd",
    }
}

/// Sums over records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Records.
    pub records: u64,
    /// Their packets.
    pub packets: u128,
    /// Their bytes.
    pub octets: u128,
}

impl Sums {
    fn add(&mut self, record: &FlowRecord) {
        self.records += 1;
        self.packets += u128::from(record.packets);
        self.octets += u128::from(record.octets);
    }

    fn add_sums(&mut self, other: &Sums) {
        self.records += other.records;
        self.packets += other.packets;
        self.octets += other.octets;
    }
}

/// The counts of a repair so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairCounts {
    /// Records taken.
    pub offered: Sums,
    /// Records passed on.
    pub given: Sums,
    /// Records dropped because they were exported twice.
    pub doubled: Sums,
    /// Bytes added for wrapped counters.
    pub octets_unwrapped: u128,
    /// Five-tuples that were settled early, because too many waited.
    pub settled_early: u64,
    reasons: [u64; Reason::ALL.len()],
}

impl RepairCounts {
    /// How often this reason was met.
    pub fn of(&self, reason: Reason) -> u64 {
        self.reasons[reason as usize]
    }

    /// The reasons that were met, and how often.
    pub fn met(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        Reason::ALL.into_iter().map(|reason| (reason, self.of(reason))).filter(|(_, n)| *n > 0)
    }

    /// Records that were joined to earlier ones, by which the number of records falls.
    pub fn joined(&self) -> u64 {
        [Reason::Split, Reason::StartRenewed, Reason::StartKept]
            .map(|why| self.of(why))
            .iter()
            .sum()
    }

    fn count(&mut self, reason: Reason) {
        self.note(reason, 1);
    }

    /// Counts a record that was offered.
    pub fn offer(&mut self, record: &FlowRecord) {
        self.offered.add(record);
    }

    /// Counts repairs of records before they were offered.
    pub fn note(&mut self, reason: Reason, times: u64) {
        self.reasons[reason as usize] += times;
    }

    /// Adds the counts of another repair.
    pub fn add(&mut self, other: &RepairCounts) {
        self.offered.add_sums(&other.offered);
        self.given.add_sums(&other.given);
        self.doubled.add_sums(&other.doubled);
        self.octets_unwrapped += other.octets_unwrapped;
        self.settled_early += other.settled_early;
        for (sum, more) in self.reasons.iter_mut().zip(other.reasons) {
            *sum += more;
        }
    }

    /// Asserts that nothing was lost or invented, once all records have been passed on.
    ///
    /// # Panics
    /// When records, packets or bytes that were offered were neither passed on, joined nor dropped as
    /// doubles.
    pub fn assert_conserved(&self) {
        let (offered, given, doubled) = (self.offered, self.given, self.doubled);
        let accounted = given.records + self.joined() + doubled.records;
        assert_eq!(offered.records, accounted, "a record is given, joined or a double");
        assert_eq!(doubled.records, self.of(Reason::DirectionDoubled));
        assert_eq!(offered.packets, given.packets + doubled.packets, "packets are conserved");
        let octets = offered.octets + self.octets_unwrapped;
        assert_eq!(octets, given.octets + doubled.octets, "bytes are conserved");
    }
}

/// Records, repaired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// The records, by start and then by five-tuple.
    pub records: Vec<FlowRecord>,
    /// What was done.
    pub counts: RepairCounts,
}

/// Repairs records in memory. `gap_max_ns` is the largest gap between two pieces of one flow without other
/// evidence; [`HARPOON_GAP_MAX_NS`] is the paper's. Pieces may come in any order.
pub fn repair(mut records: Vec<FlowRecord>, gap_max_ns: u64) -> Repaired {
    let mut screen = Screen::default();
    records.iter_mut().for_each(|record| screen.set_right(record));
    let mut counts = screen.counts;
    let records = settle_all(records, gap_max_ns, &mut counts);
    counts.assert_conserved();
    Repaired { records, counts }
}

/// Repairs a stream of records.
#[derive(Debug)]
pub struct Repair {
    gap_max_ns: u64,
    waiting: Cache<Together>,
    dates: record::Dates,
    now_ns: u64,
    counts: RepairCounts,
}

/// The records of one five-tuple, most often one.
#[derive(Debug)]
enum Together {
    One(FlowRecord),
    Many(Vec<FlowRecord>),
}

impl Keyed for Together {
    fn key(&self) -> &FlowKey {
        &self.as_slice()[0].key
    }
}

impl Together {
    fn push(&mut self, record: FlowRecord) {
        match self {
            Together::Many(records) => records.push(record),
            Together::One(first) => {
                let mut records = Vec::with_capacity(4);
                records.extend([first.clone(), record]);
                *self = Together::Many(records);
            }
        }
    }

    fn as_slice(&self) -> &[FlowRecord] {
        match self {
            Together::One(record) => core::slice::from_ref(record),
            Together::Many(records) => records,
        }
    }

    /// When the last of them ended, ns since 1970.
    fn end_ns(&self) -> u64 {
        self.as_slice().iter().map(|record| record.end_ns).max().unwrap_or(0)
    }

    /// How long these records wait for more, ns.
    fn wait_ns(&self) -> u64 {
        self.as_slice().iter().map(wait_ns).max().unwrap_or(0)
    }
}

impl Repair {
    /// A repair without records yet, in which records of at most `waiting_max` five-tuples wait. The gap is
    /// that of [`repair`].
    pub fn new(gap_max_ns: u64, waiting_max: usize) -> Repair {
        Repair {
            gap_max_ns,
            waiting: Cache::new(waiting_max),
            dates: record::Dates::default(),
            now_ns: 0,
            counts: RepairCounts::default(),
        }
    }

    /// Takes records one after the other. This is faster than one call for each, because the places where
    /// they belong are prefetched.
    pub fn take_all(&mut self, records: &mut Vec<FlowRecord>, out: &mut impl FnMut(FlowRecord)) {
        let mut left = records.as_slice();
        while !left.is_empty() {
            let (now, later) = left.split_at(left.len().min(AT_A_TIME));
            now.iter().for_each(|record| self.waiting.prefetch(&record.key));
            now.iter().for_each(|record| self.take(record.clone(), out));
            left = later;
        }
        records.clear();
    }

    /// Takes a record; records that can be settled go to `out`.
    pub fn take(&mut self, mut record: FlowRecord, out: &mut impl FnMut(FlowRecord)) {
        self.counts.offered.add(&record);
        self.dates.set_right(&mut record, &mut self.counts);
        record::unwrap(&mut record, &mut self.counts);
        let begins_before = record.end_ns.saturating_add(2 * PIECE_WAIT_NS) < self.now_ns;
        self.now_ns = if begins_before { record.end_ns } else { self.now_ns.max(record.end_ns) };
        self.settle_due(out);
        let is_complete = wait_ns(&record) == DOUBLE_WAIT_NS;
        let slot = self.keep(record, out);
        self.waiting.move_last(Order::Seen, slot);
        if is_complete {
            self.waiting.move_last(Order::Closing, slot);
        }
    }

    /// Settles all waiting records, at the end of the stream.
    pub fn finish(&mut self, out: &mut impl FnMut(FlowRecord)) {
        while let Some(slot) = self.waiting.first(Order::Seen) {
            self.prefetch_next(Order::Seen);
            self.settle(slot, out);
        }
        self.counts.assert_conserved();
    }

    /// What was done so far.
    pub fn counts(&self) -> RepairCounts {
        self.counts
    }

    fn keep(&mut self, record: FlowRecord, out: &mut impl FnMut(FlowRecord)) -> Slot {
        let Some(slot) = self.waiting.find(&record.key) else {
            if self.waiting.is_full() {
                let closing = self.waiting.first(Order::Closing);
                let slot = closing.or(self.waiting.first(Order::Seen)).expect("a full one has one");
                self.counts.settled_early += 1;
                self.settle(slot, out);
            }
            return self.waiting.insert(Together::One(record));
        };
        let together = self.waiting.value_mut(slot);
        together.push(record);
        if together.as_slice().len() >= TOGETHER_MAX {
            self.settle_but_last(slot, out);
        }
        slot
    }

    /// Settles tuples for which no further record can come.
    fn settle_due(&mut self, out: &mut impl FnMut(FlowRecord)) {
        for order in [Order::Closing, Order::Seen] {
            for _ in 0..SETTLED_AT_ONCE {
                let Some(slot) = self.waiting.first(order) else { break };
                let together = self.waiting.value(slot);
                let wait_ns = together.wait_ns();
                if together.end_ns().saturating_add(wait_ns) < self.now_ns {
                    self.prefetch_next(order);
                    self.settle(slot, out);
                } else if order == Order::Closing && wait_ns != DOUBLE_WAIT_NS {
                    self.waiting.move_last(order, slot);
                } else {
                    break;
                }
            }
        }
    }

    /// Prefetches what is needed to settle the next tuples of an order.
    fn prefetch_next(&self, order: Order) {
        self.waiting.prefetch_next(order, |together| self.waiting.hashing.of(together.key()));
    }

    fn settle(&mut self, slot: Slot, out: &mut impl FnMut(FlowRecord)) {
        match self.waiting.remove(slot) {
            Together::One(record) => self.give(record, out),
            Together::Many(mut records) => {
                records.sort();
                pieces::settle(&mut records, self.gap_max_ns, &mut self.counts);
                records.into_iter().for_each(|record| self.give(record, out));
            }
        }
    }

    /// Settles the waiting records of one tuple, but keeps the last, to which more may belong.
    fn settle_but_last(&mut self, slot: Slot, out: &mut impl FnMut(FlowRecord)) {
        let Together::Many(records) = self.waiting.value_mut(slot) else { return };
        let mut records = core::mem::take(records);
        records.sort();
        pieces::settle(&mut records, self.gap_max_ns, &mut self.counts);
        let last = records.pop().expect("records settle into one at least");
        *self.waiting.value_mut(slot) = Together::One(last);
        records.into_iter().for_each(|record| self.give(record, out));
    }

    fn give(&mut self, record: FlowRecord, out: &mut impl FnMut(FlowRecord)) {
        self.counts.given.add(&record);
        out(record);
    }
}

/// How long after a record's end another one that belongs to it may come.
fn wait_ns(record: &FlowRecord) -> u64 {
    let is_whole = record.has_start() && record.has_end();
    match record.end_reason {
        EndReason::ActiveTimeout | EndReason::LackOfResources => PIECE_WAIT_NS,
        EndReason::Unknown if !is_whole => PIECE_WAIT_NS,
        _ => DOUBLE_WAIT_NS,
    }
}

#[cfg(test)]
mod tests;
