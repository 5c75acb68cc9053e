//! Counts of ambiguous records, those without TCP flags and sampled ones, taken while records are partitioned.

use nilometer_flow::FlowRecord;
use nilometer_flow::repair::{Screen, Stamps, stamps};

use crate::coverage::Coverage;
use crate::files::is_tcp;
use crate::lengths::{Waits, is_sampled};
use crate::limits::Limits;
use crate::services::Services;
use crate::unflagged;
use crate::unflagged::predecessors::Doubtful;

/// Counts that need only a single look at each ambiguous record.
#[derive(Debug)]
pub(crate) struct Summary {
    pub coverage: Coverage,
    /// Records without flags.
    pub unflagged: u64,
    /// Some of them state that their flow ended.
    pub reports_ends: bool,
    pub doubtful: Doubtful,
    /// Sampled records of TCP.
    pub sampled: u64,
    pub waits: Waits,
    pub services: Services,
    screen: Screen,
}

impl Summary {
    /// A summary without records.
    pub fn new(limits: &Limits) -> Summary {
        Summary {
            coverage: Coverage::default(),
            unflagged: 0,
            reports_ends: false,
            doubtful: Doubtful::new(limits.doubtful),
            sampled: 0,
            waits: Waits::default(),
            services: Services::default(),
            screen: Screen::default(),
        }
    }

    /// Counts a record, and returns it if it must be kept.
    pub fn observe(&mut self, mut record: FlowRecord) -> Option<FlowRecord> {
        if !is_tcp(&record, &mut self.coverage) {
            return None;
        }
        if is_sampled(&record) {
            self.sampled += 1;
            self.waits.note(&record);
            self.services.note(&record);
            // Stamps are repaired by those of earlier records.
            self.screen.set_right(&mut record);
        } else {
            self.unflagged += 1;
            unflagged::mark_reported_end(&mut record);
            self.reports_ends |= record.has_end();
            if stamps(&record) == Stamps::Doubtful {
                self.doubtful.push(&record);
            }
        }
        Some(record)
    }
}
