//! Repair of records in memory: first each one as it comes, then all records of a five-tuple together.
//!
//! Records of one tuple are found by sorting. The key is a hash of the tuple, because tuples have forty
//! bytes and mostly differ in the last ones. Runs of one hash, most of them a single record, are then
//! sorted by tuple and start. The result does not depend on the hash, because records leave in the order of
//! their starts and tuples.
//!
//! Tuples are independent of each other. So records may be settled in parts, as long as each part has all
//! records of its tuples, and several processors may settle parts at the same time. Only [`Screen`]
//! compares a record with the one before, and must see them in the order in which they came.

use alloc::vec::Vec;

use super::record::{self, Dates};
use super::{RepairCounts, pieces};
use crate::hash;
use crate::record::FlowRecord;

/// Repairs of single records, in the order in which they come: the first half of [`super::repair`].
#[derive(Clone, Debug, Default)]
pub struct Screen {
    dates: Dates,
    /// Records offered and repairs done. The counts of [`settle_all`] must be added.
    pub counts: RepairCounts,
}

impl Screen {
    /// Forgets the records so far: the next ones are from another input.
    pub fn input_ends(&mut self) {
        self.dates = Dates::default();
    }

    /// Sets the end of the last record with believed stamps before the next one; `None` where there was
    /// none.
    pub fn comes_after(&mut self, last_ns: Option<u64>) {
        self.dates = Dates::after(last_ns);
    }

    /// Repairs what this record shows by itself and by those before it.
    pub fn set_right(&mut self, record: &mut FlowRecord) {
        self.counts.offered.add(record);
        self.dates.set_right(record, &mut self.counts);
        record::unwrap(record, &mut self.counts);
    }
}

/// Drops doubles and joins pieces: the second half of [`super::repair`], for screened records, with all
/// records of their five-tuples. The result is ordered by start and then by five-tuple.
///
/// # Panics
/// When there are more than 2^32 records.
pub fn settle_all(
    records: Vec<FlowRecord>,
    gap_max_ns: u64,
    counts: &mut RepairCounts,
) -> Vec<FlowRecord> {
    let place = |(at, record): (usize, &FlowRecord)| {
        (hash::of(&record.key), u32::try_from(at).expect("fewer than 2^32 records"))
    };
    let mut places: Vec<(u64, u32)> = records.iter().enumerate().map(place).collect();
    places.sort_unstable();
    let mut settled = Vec::with_capacity(records.len());
    let mut together = Vec::new();
    for run in places.chunk_by_mut(|one, other| one.0 == other.0) {
        if let [(_, one)] = run {
            settled.push(records[*one as usize].clone());
            continue;
        }
        run.sort_unstable_by(|&(_, one), &(_, other)| {
            records[one as usize].cmp(&records[other as usize])
        });
        together.extend(run.iter().map(|&(_, at)| records[at as usize].clone()));
        pieces::settle(&mut together, gap_max_ns, counts);
        settled.append(&mut together);
    }
    drop((records, places));
    settled.iter().for_each(|record| counts.given.add(record));
    in_order(settled)
}

/// Records by start and then in their own order.
fn in_order(records: Vec<FlowRecord>) -> Vec<FlowRecord> {
    let mut order: Vec<(u64, u32)> =
        records.iter().enumerate().map(|(at, record)| (record.start_ns, at as u32)).collect();
    order.sort_unstable();
    for run in order.chunk_by_mut(|one, other| one.0 == other.0) {
        run.sort_unstable_by(|&(_, one), &(_, other)| {
            records[one as usize].cmp(&records[other as usize])
        });
    }
    order.into_iter().map(|(_, at)| records[at as usize].clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{EndReason, FlowKey, TCP};
    use crate::repair::{HARPOON_GAP_MAX_NS, repair};
    use alloc::vec::Vec;
    use core::net::Ipv4Addr;
    use nilometer_stat::Rng;

    /// Random records of few tuples and few moments, so that many need repair.
    fn records(seed: u64, count: usize) -> Vec<FlowRecord> {
        let mut rng = Rng::new(seed, 0, 0);
        let mut next = |below: u64| rng.below(below);
        let mut one = || {
            let start_ns = 1_700_000_000_000_000_000 + next(300) * 5_000_000;
            FlowRecord {
                key: FlowKey {
                    source: Ipv4Addr::new(198, 18, 0, next(3) as u8).into(),
                    destination: Ipv4Addr::new(198, 18, 0, 9).into(),
                    source_port: next(20) as u16,
                    destination_port: 80,
                    protocol: TCP,
                },
                start_ns,
                end_ns: start_ns + next(40) * 5_000_000,
                packets: 1 + next(3),
                octets: 40 + next(3) * 100,
                tcp_flags: [0x02, 0x10, 0x11, 0x13, 0x18, 0][next(6) as usize],
                payload_octets: None,
                opened: None,
                end_reason: EndReason::from_number(next(6) as u8),
                sampling_interval: 0,
            }
        };
        (0..count).map(|_| one()).collect()
    }

    /// The naive twin: sorted by the tuples themselves, and by starts.
    fn naive(mut records: Vec<FlowRecord>, counts: &mut RepairCounts) -> Vec<FlowRecord> {
        records.sort();
        pieces::settle(&mut records, HARPOON_GAP_MAX_NS, counts);
        records.sort_by(|one, other| (one.start_ns, one).cmp(&(other.start_ns, other)));
        records.iter().for_each(|record| counts.given.add(record));
        records
    }

    #[test]
    fn sorting_by_hash_settles_as_sorting_by_tuple() {
        let mut all = RepairCounts::default();
        for seed in 0..50 {
            let made = records(seed, 1_000);
            let (mut counts, mut naive_counts) = (RepairCounts::default(), RepairCounts::default());
            let settled = settle_all(made.clone(), HARPOON_GAP_MAX_NS, &mut counts);
            assert_eq!(settled, naive(made, &mut naive_counts));
            assert_eq!(counts, naive_counts);
            all.add(&counts);
        }
        assert!(all.joined() > 1_000 && all.doubled.records > 10, "{all:?}");
    }

    #[test]
    fn parts_are_settled_as_the_whole_is() {
        let made = records(7, 5_000);
        let whole = repair(made.clone(), HARPOON_GAP_MAX_NS);
        let mut screen = Screen::default();
        let mut parts: [Vec<FlowRecord>; 3] = Default::default();
        for mut record in made {
            screen.set_right(&mut record);
            parts[usize::from(record.key.source_port) % 3].push(record);
        }
        let mut counts = screen.counts;
        let mut settled: Vec<FlowRecord> = Vec::new();
        for part in parts {
            let mut of_part = RepairCounts::default();
            settled.extend(settle_all(part, HARPOON_GAP_MAX_NS, &mut of_part));
            counts.add(&of_part);
        }
        counts.assert_conserved();
        settled.sort_by_key(|record| (record.start_ns, record.key));
        assert_eq!((settled, counts), (whole.records, whole.counts));
    }
}
