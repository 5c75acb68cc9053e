//! What comes before records whose stamps cannot be.
//!
//! Of such a record one stamp is wrong: the one further from the end of the last record before it, in the order of
//! five-tuples and starts, whose stamps are believed. That one may be in any lot. So doubtful records, which are few,
//! are known before lots are gone through, and each lot tells the last of its own that comes before each.

use alloc::vec::Vec;

use nilometer_flow::repair::{Stamps, stamps};
use nilometer_flow::{FlowKey, FlowRecord};

use crate::estimate::EstimateError;

/// Doubtful records that are known at most, 56 bytes each, and twice that while they are looked up.
pub(crate) const DOUBTFUL_MAX: usize = 1 << 22;

/// Where a record is in the order of records: its tuple, its start, its end.
type Place = (FlowKey, u64, u64);

fn place(record: &FlowRecord) -> Place {
    (record.key, record.start_ns, record.end_ns)
}

/// The places of doubtful records.
#[derive(Debug, Default)]
pub(crate) struct Doubtful {
    places: Vec<Place>,
    is_too_much: bool,
}

impl Doubtful {
    /// Notes one.
    pub fn push(&mut self, record: &FlowRecord) {
        if self.places.len() < DOUBTFUL_MAX {
            self.places.push(place(record));
        } else {
            self.is_too_much = true;
        }
    }

    /// In their order, each with nothing before it.
    pub fn sorted(&self) -> Result<Befores, EstimateError> {
        if self.is_too_much {
            return Err(EstimateError::TooManyDoubtful);
        }
        let mut places = self.places.clone();
        places.sort_unstable();
        places.dedup();
        Ok(Befores(places.into_iter().map(|place| (place, None)).collect()))
    }
}

/// Doubtful records in their order, and what comes before each.
#[derive(Debug, Default)]
pub(crate) struct Befores(Vec<(Place, Option<Place>)>);

impl Befores {
    /// The last of these records that is believed and comes before each doubtful one and after those before it: by
    /// the number of the doubtful one.
    pub fn found(&self, records: &[FlowRecord]) -> Vec<(usize, Place)> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let mut found: Vec<(usize, Place)> = Vec::new();
        for record in records.iter().filter(|record| stamps(record) == Stamps::Believed) {
            let place = place(record);
            found.push((self.0.partition_point(|(doubtful, _)| *doubtful <= place), place));
        }
        found.sort_unstable_by(|one, other| other.cmp(one));
        found.dedup_by_key(|(number, _)| *number);
        found.retain(|(number, _)| *number < self.0.len());
        found
    }

    /// Adds what was found in a lot.
    pub fn add(&mut self, found: Vec<(usize, Place)>) {
        for (number, place) in found {
            let before = &mut self.0[number].1;
            *before = (*before).max(Some(place));
        }
    }

    /// What comes before one also comes before those after it.
    pub fn settle(&mut self) {
        let mut last = None;
        for (_, before) in &mut self.0 {
            last = last.max(*before);
            *before = last;
        }
    }

    /// When the record before this one ended, ns since 1970.
    pub fn last_ns(&self, record: &FlowRecord) -> Option<u64> {
        let at = self.0.binary_search_by(|(doubtful, _)| doubtful.cmp(&place(record))).ok()?;
        self.0[at].1.map(|(_, _, end_ns)| end_ns)
    }
}
