//! The predecessors of records with impossible stamps.
//!
//! In such a doubtful record one stamp is wrong: the one farther from the end of the last believed record before it, in
//! the order of five-tuples and starts. That predecessor may be in any partition. Doubtful records are few, so they are
//! collected before partitions are read, and each partition offers its last record before each of them.

use alloc::vec::Vec;

use nilometer_flow::repair::{Stamps, stamps};
use nilometer_flow::{FlowKey, FlowRecord};

use crate::estimate_error::EstimateError;

/// The order of records: by tuple, start and end.
type SortKey = (FlowKey, u64, u64);

fn sort_key(record: &FlowRecord) -> SortKey {
    (record.key, record.start_ns, record.end_ns)
}

/// The sort keys of doubtful records.
#[derive(Debug)]
pub(crate) struct Doubtful {
    /// The keys; one more than the limit if there are too many.
    keys: Vec<SortKey>,
    most: usize,
}

impl Doubtful {
    /// An empty collection of at most `most` records.
    pub fn new(most: usize) -> Doubtful {
        Doubtful { keys: Vec::new(), most }
    }

    /// Notes a doubtful record.
    pub fn push(&mut self, record: &FlowRecord) {
        if self.keys.len() <= self.most {
            self.keys.push(sort_key(record));
        }
    }

    /// Removes them in their order, each without a predecessor yet.
    ///
    /// # Errors
    /// Where there were more than the limit.
    pub fn take_sorted(&mut self) -> Result<Predecessors, EstimateError> {
        if self.keys.len() > self.most {
            return Err(EstimateError::TooManyDoubtful(self.most));
        }
        let mut keys = core::mem::take(&mut self.keys);
        keys.sort_unstable();
        keys.dedup();
        Ok(Predecessors(keys.into_iter().map(|sort_key| (sort_key, None)).collect()))
    }
}

/// Doubtful records in their order, each with its predecessor.
#[derive(Debug, Default)]
pub(crate) struct Predecessors(Vec<(SortKey, Option<SortKey>)>);

impl Predecessors {
    /// For each doubtful record, by its number, the last believed one of these records between it and the
    /// previous doubtful record.
    pub fn find_in(&self, records: &[FlowRecord]) -> Vec<(usize, SortKey)> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let mut found: Vec<(usize, SortKey)> = Vec::new();
        for record in records.iter().filter(|record| stamps(record) == Stamps::Believed) {
            let key = sort_key(record);
            found.push((self.0.partition_point(|(doubtful, _)| *doubtful <= key), key));
        }
        found.sort_unstable_by(|one, other| other.cmp(one));
        found.dedup_by_key(|(number, _)| *number);
        found.retain(|(number, _)| *number < self.0.len());
        found
    }

    /// Adds the predecessors found in a batch.
    pub fn add(&mut self, found: Vec<(usize, SortKey)>) {
        for (number, sort_key) in found {
            let predecessor = &mut self.0[number].1;
            *predecessor = (*predecessor).max(Some(sort_key));
        }
    }

    /// Propagates predecessors to the doubtful records after them.
    pub fn propagate(&mut self) {
        let mut last = None;
        for (_, predecessor) in &mut self.0 {
            last = last.max(*predecessor);
            *predecessor = last;
        }
    }

    /// When the predecessor of this record ended, ns since 1970.
    pub fn last_ns(&self, record: &FlowRecord) -> Option<u64> {
        let at = self.0.binary_search_by(|(doubtful, _)| doubtful.cmp(&sort_key(record))).ok()?;
        self.0[at].1.map(|(_, _, end_ns)| end_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use nilometer_flow::EndReason;

    #[test]
    fn doubtful_records_beyond_the_limit_are_not_kept() {
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
        assert_eq!(doubtful.keys.len(), 4);
        assert!(matches!(doubtful.take_sorted(), Err(EstimateError::TooManyDoubtful(3))));
    }
}
