//! Flow records gathered for an estimate.
//!
//! Records come one by one, are packed, and wait in lots by their address pairs; what is too much for
//! memory is set aside, lot by lot, and fetched again when the lot's turn comes. In which order records
//! came, and from which of several parts of an input, is forgotten here: what a lot comes to depends on
//! its records alone. Only the stamps of a record may be set right by those before it ([`Screen`]); whoever
//! gathers from several inputs screens each by itself.
//!
//! Records without flags and sampled ones are few or all there is: they are told by the whole of them, and
//! wait together.

use alloc::string::String;
use alloc::vec::Vec;

use nilometer_flow::FlowRecord;
use nilometer_flow::repair::{Reason, RepairCounts, Screen};

use crate::lengths::is_sampled;
use crate::lots::{LOTS, Lot, lot_of};
use crate::unflagged::is_unflagged;

/// Lots that were set aside.
pub trait Aside: Sync {
    /// Everything that was taken of a lot, one behind the other.
    ///
    /// # Errors
    /// Why it cannot be had.
    fn fetch(&self, lot: usize) -> Result<Vec<u8>, String>;
}

/// Nothing was set aside.
#[derive(Clone, Copy, Debug)]
pub struct NothingAside;

impl Aside for NothingAside {
    fn fetch(&self, _lot: usize) -> Result<Vec<u8>, String> {
        Ok(Vec::new())
    }
}

/// Records on their way into an estimate: 48 bytes each, 88 where they are of IPv6, 96 where they are sampled or
/// have no flags.
#[derive(Debug)]
pub struct Gathered {
    screen: Screen,
    lots: Vec<Lot>,
    held: usize,
    /// Without flags, or sampled.
    others: Vec<FlowRecord>,
    span_ns: Option<(u64, u64)>,
}

/// What was gathered, apart.
pub(crate) struct Parts {
    pub lots: Vec<Lot>,
    /// Records without flags, or sampled.
    pub others: Vec<FlowRecord>,
    /// What the screen came to.
    pub counts: RepairCounts,
    /// From the first start to the last end, ns since 1970.
    pub span_ns: Option<(u64, u64)>,
}

impl Default for Gathered {
    fn default() -> Gathered {
        Gathered::new()
    }
}

impl Gathered {
    /// No records yet.
    pub fn new() -> Gathered {
        Gathered {
            screen: Screen::default(),
            lots: (0..LOTS).map(|_| Lot::default()).collect(),
            held: 0,
            others: Vec::new(),
            span_ns: None,
        }
    }

    /// Records in lots, and not set aside.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Records without flags, and sampled ones. They are not set aside.
    pub fn others(&self) -> usize {
        self.others.len()
    }

    /// Takes the next record, to be repaired with the others.
    pub fn take(&mut self, mut record: FlowRecord) {
        if is_screened(&record) {
            self.screen.set_right(&mut record);
        }
        self.keep(record);
    }

    /// Takes a record that was screened before, as far as [`is_screened`] says; what that came to is to be noted.
    pub fn take_screened(&mut self, record: FlowRecord) {
        if is_screened(&record) {
            self.screen.counts.offer(&record);
        }
        self.keep(record);
    }

    /// Notes how often a reason was met in screening.
    pub fn note_screened(&mut self, reason: Reason, times: u64) {
        self.screen.counts.note(reason, times);
    }

    /// Takes all lots out, as bytes that an [`Aside`] gives back.
    pub fn set_aside(&mut self) -> Vec<Vec<u8>> {
        self.held = 0;
        self.lots.iter_mut().map(Lot::take).collect()
    }

    /// Keeps a record as it is.
    pub(crate) fn keep(&mut self, record: FlowRecord) {
        let (first, last) = self.span_ns.unwrap_or((record.start_ns, record.end_ns));
        self.span_ns = Some((first.min(record.start_ns), last.max(record.end_ns)));
        if is_screened(&record) {
            self.held += 1;
            self.lots[lot_of(&record.key)].push(&record);
        } else {
            self.others.push(record);
        }
    }

    pub(crate) fn into_parts(self) -> Parts {
        let Gathered { screen, lots, others, span_ns, .. } = self;
        Parts { lots, others, counts: screen.counts, span_ns }
    }
}

/// Is this record repaired by itself and with those of its tuple? Those without flags and sampled ones
/// are told in another way.
pub fn is_screened(record: &FlowRecord) -> bool {
    !is_sampled(record) && !is_unflagged(record)
}
