//! What comes before records whose stamps cannot be.
//!
//! Of such a record one stamp is wrong: the one further from the end of the last record before it, in the order of
//! five-tuples and starts, whose stamps are believed. That one may be in any lot. So doubtful records, which are few,
//! are known before lots are gone through, and each lot tells the last of its own that comes before each.

use alloc::vec::Vec;

use nilometer_flow::repair::{Stamps, stamps};
use nilometer_flow::{FlowKey, FlowRecord};

use crate::estimate_error::EstimateError;

/// Where a record is in the order of records: its tuple, its start, its end.
type Place = (FlowKey, u64, u64);

fn place(record: &FlowRecord) -> Place {
    (record.key, record.start_ns, record.end_ns)
}

/// The places of doubtful records.
#[derive(Debug)]
pub(crate) struct Doubtful {
    /// One more than may be known, where there are too many.
    places: Vec<Place>,
    most: usize,
}

impl Doubtful {
    /// None yet, of so many at most.
    pub fn new(most: usize) -> Doubtful {
        Doubtful { places: Vec::new(), most }
    }

    /// Notes one.
    pub fn push(&mut self, record: &FlowRecord) {
        if self.places.len() <= self.most {
            self.places.push(place(record));
        }
    }

    /// Takes them in their order, each with nothing before it.
    ///
    /// # Errors
    /// When there were more than may be known.
    pub fn take_sorted(&mut self) -> Result<Befores, EstimateError> {
        if self.places.len() > self.most {
            return Err(EstimateError::TooManyDoubtful(self.most));
        }
        let mut places = core::mem::take(&mut self.places);
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

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use nilometer_flow::EndReason;

    #[test]
    fn of_too_many_no_more_than_one_is_kept_beyond_the_limit() {
        let address = |last| Ipv4Addr::new(198, 18, 0, last).into();
        let (source, destination) = (address(1), address(2));
        let mut doubtful = Doubtful::new(3);
        for number in 0..100 {
            let (source_port, destination_port, protocol) = (number, 80, 6);
            doubtful.push(&FlowRecord {
                key: FlowKey { source, destination, source_port, destination_port, protocol },
                start_ns: 0,
                end_ns: u64::MAX,
                packets: 1,
                octets: 40,
                tcp_flags: 0,
                payload_octets: None,
                opened: None,
                end_reason: EndReason::Unknown,
                sampling_interval: 0,
            });
        }
        assert_eq!(doubtful.places.len(), 4);
        assert!(matches!(doubtful.take_sorted(), Err(EstimateError::TooManyDoubtful(3))));
    }
}
