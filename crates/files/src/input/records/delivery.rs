//! Delivery of flow records: repaired if requested, summed, and passed to the sink.

use anyhow::{Error, Result};
use nilometer_flow::FlowRecord;
use nilometer_flow::repair::{HARPOON_GAP_MAX_NS, Repair, RepairCounts, Screen};
use nilometer_traffic::partitioner::is_screened;

use super::super::summary::FlowSummary;
use super::Sink;

/// The most five-tuples that wait for their repair, some 200 bytes each.
const WAITING_MAX: usize = 1 << 20;

/// Records that are passed to the repair together.
const TOGETHER: usize = 64;

/// Takes every record as it was metered, decoded or read.
pub(in crate::input) struct Delivery<'a> {
    records: u64,
    /// For a model, where records are settled only when all are there.
    screen: Option<Screen>,
    repair: Option<Repair>,
    /// Records that are repaired together, which is faster.
    waiting: Vec<FlowRecord>,
    given: Given<'a>,
}

/// Delivered records. Callbacks of the meter and the repair cannot fail, so the first failure is
/// kept here.
struct Given<'a> {
    sink: Sink<'a>,
    records: u64,
    packets: u64,
    bytes: u64,
    failed: Option<Error>,
    is_over: bool,
}

impl Given<'_> {
    fn give(&mut self, record: FlowRecord) {
        if self.failed.is_none() {
            self.records += 1;
            self.packets = self.packets.saturating_add(record.packets);
            self.bytes = self.bytes.saturating_add(record.octets);
            self.failed = (self.sink)(record).err();
            self.is_over |= self.failed.is_some();
        }
    }
}

impl Delivery<'_> {
    pub(super) fn new(sink: Sink<'_>, repairs: bool, for_model: bool) -> Delivery<'_> {
        Delivery {
            records: 0,
            screen: for_model.then(Screen::default),
            repair: repairs.then(|| Repair::new(HARPOON_GAP_MAX_NS, WAITING_MAX)),
            waiting: Vec::with_capacity(TOGETHER),
            given: Given { sink, records: 0, packets: 0, bytes: 0, failed: None, is_over: false },
        }
    }

    /// Takes a record; it may wait for others until [`Delivery::hand_on`].
    pub(super) fn give(&mut self, mut record: FlowRecord) {
        set_right(&mut self.screen, &mut record);
        self.give_screened(record);
    }

    /// Takes a record of a part, which was screened already, as [`Delivery::give`] does.
    pub(super) fn give_screened(&mut self, record: FlowRecord) {
        self.records += 1;
        if self.repair.is_none() {
            return self.given.give(record);
        }
        self.waiting.push(record);
        if self.waiting.len() == TOGETHER {
            self.hand_on();
        }
    }

    /// Takes records, and leaves their vector's capacity.
    pub(super) fn give_all(&mut self, records: &mut Vec<FlowRecord>) {
        self.hand_on();
        self.records += records.len() as u64;
        records.iter_mut().for_each(|record| set_right(&mut self.screen, record));
        match &mut self.repair {
            Some(repair) => repair.take_all(records, &mut |record| self.given.give(record)),
            None => records.drain(..).for_each(|record| self.given.give(record)),
        }
    }

    /// Passes on records that wait for others, because more may not come soon.
    pub(super) fn hand_on(&mut self) {
        if let Some(repair) = &mut self.repair {
            repair.take_all(&mut self.waiting, &mut |record| self.given.give(record));
        }
    }

    /// The next record will be from another input.
    pub(super) fn input_ends(&mut self) {
        if let Some(screen) = &mut self.screen {
            screen.input_ends();
        }
    }

    /// Counts of repairs, if records were screened.
    pub(super) fn screened(&self) -> Option<&RepairCounts> {
        self.screen.as_ref().map(|screen| &screen.counts)
    }

    /// Fails once a record could not be delivered.
    pub(in crate::input) fn check(&mut self) -> Result<()> {
        self.given.failed.take().map_or(Ok(()), Err)
    }

    /// Number of records taken.
    pub(super) fn records(&self) -> u64 {
        self.records
    }

    /// Did a delivery fail?
    pub(super) fn is_over(&self) -> bool {
        self.given.is_over
    }

    /// Delivers the waiting records, and adds the totals to the summary.
    pub(super) fn finish(mut self, summary: &mut FlowSummary) -> Result<()> {
        self.hand_on();
        summary.flow_records = self.records;
        if let Some(repair) = &mut self.repair {
            repair.finish(&mut |record| self.given.give(record));
            let counts = repair.counts();
            summary.flows_after_repair = Some(counts.given.records);
            summary.repairs =
                counts.met().map(|(reason, count)| (reason.name().to_owned(), count)).collect();
            if counts.settled_early > 0 {
                summary.warnings.push(format!(
                    "{} five-tuples were repaired before all of their records had come, because \
                     {WAITING_MAX} were waiting; give a part of the input at a time",
                    counts.settled_early
                ));
            }
        }
        summary.flow_packets = self.given.packets;
        summary.flow_bytes = self.given.bytes;
        self.check()
    }
}

fn set_right(screen: &mut Option<Screen>, record: &mut FlowRecord) {
    if let Some(screen) = screen
        && is_screened(record)
    {
        screen.set_right(record);
    }
}
