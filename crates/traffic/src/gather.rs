//! Flow records gathered for an estimate.
//!
//! Records come one by one, are packed, and wait in lots by their address pairs; what is too much for
//! memory is set aside, lot by lot, and fetched again when the lot's turn comes. In which order records
//! came, and from which of several parts of an input, is forgotten here: what a lot comes to depends on
//! its records alone. Only the stamps of a record may be set right by those before it ([`Screen`]); whoever
//! gathers from several inputs screens each by itself.
//!
//! Records without flags and sampled ones are told by the whole of them. They wait in lots of their own, and what
//! can be said of all of them without looking twice is counted as they come (`others.rs`).

use alloc::vec::Vec;

use nilometer_flow::FlowRecord;
use nilometer_flow::repair::{Reason, RepairCounts, Screen};

use crate::ambiguous::Seen;
use crate::lengths::is_sampled;
use crate::limits::Limits;
use crate::lots::{LOTS, Lot, lot_of};
use crate::unflagged::is_unflagged;

/// How many records are in memory at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Packed, as they were gathered: when there are more, it is time to set them aside.
    pub gathered: usize,
    /// Unpacked, to be looked at together, by each that works on them.
    pub together: usize,
}

impl Hold {
    /// All of them.
    pub const ALL: Hold = Hold { gathered: usize::MAX, together: usize::MAX };
}

/// Records on their way into an estimate: 48 bytes each, 88 where they are of IPv6.
#[derive(Debug)]
pub struct Gathered {
    hold: Hold,
    limits: Limits,
    screen: Screen,
    /// Those of records with flags, and behind them those of the others.
    lots: Vec<Lot>,
    held: usize,
    seen: Seen,
    span_ns: Option<(u64, u64)>,
}

/// What was gathered, apart.
pub(crate) struct Parts {
    pub lots: Vec<Lot>,
    /// Records that may be looked at together.
    pub together: usize,
    pub limits: Limits,
    /// What was seen of records without flags, and of sampled ones.
    pub seen: Seen,
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
    /// No records yet, and all that come may be held.
    pub fn new() -> Gathered {
        Gathered::holding(Hold::ALL)
    }

    /// No records yet, and no more than these may be held.
    pub fn holding(hold: Hold) -> Gathered {
        Gathered::limited(hold, Limits::default())
    }

    /// No records yet, and no more than these may be held, nor known of them than these limits say.
    pub fn limited(hold: Hold, limits: Limits) -> Gathered {
        Gathered {
            hold,
            limits,
            screen: Screen::default(),
            lots: (0..2 * LOTS).map(|_| Lot::default()).collect(),
            held: 0,
            seen: Seen::new(&limits),
            span_ns: None,
        }
    }

    /// Records in lots, and not set aside.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Are as many held as may be? Then they are to be set aside.
    pub fn is_full(&self) -> bool {
        self.held >= self.hold.gathered
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
        let lot = lot_of(&record.key);
        if is_screened(&record) {
            self.held += 1;
            self.lots[lot].push(&record);
        } else if let Some(record) = self.seen.look(record) {
            self.held += 1;
            self.lots[LOTS + lot].push(&record);
        }
    }

    pub(crate) fn into_parts(self) -> Parts {
        let Gathered { hold, limits, screen, lots, seen, span_ns, .. } = self;
        Parts { lots, together: hold.together, limits, seen, counts: screen.counts, span_ns }
    }
}

/// Is this record repaired by itself and with those of its tuple? Those without flags and sampled ones
/// are told in another way.
pub fn is_screened(record: &FlowRecord) -> bool {
    !is_sampled(record) && !is_unflagged(record)
}
