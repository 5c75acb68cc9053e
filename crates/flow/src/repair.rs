//! Flow surgery: records that an exporter split are joined again (Harpoon, section 4.1).
//!
//! A long connection is exported in pieces when a timer or a full cache says so, and each piece would
//! count as a file of its own. Two consecutive records of one five-tuple are pieces of one flow when
//! the earlier has no end marker (FIN or RST), the later no start marker (SYN), and little time lies
//! between them: the paper's 10 ms for records that give no reason, and up to the inactive timeout
//! where the earlier record says itself that the active timeout cut it. Records whose sum would not
//! fit 64 bits stay apart.

use alloc::vec::Vec;

use crate::record::{EndReason, FlowRecord};

/// The gap that Harpoon allows between two pieces of one flow: 10 ms.
pub const HARPOON_GAP_MAX_NS: u64 = 10_000_000;

/// The longest wait for the rest of a record that the active timeout ended: the usual inactive
/// timeout, 15 s.
pub const CONTINUATION_GAP_MAX_NS: u64 = 15_000_000_000;

/// Records, joined where they had been split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// The records, by start and then by five-tuple.
    pub records: Vec<FlowRecord>,
    /// How many were joined to an earlier one: fewer there are by so many.
    pub merged: u64,
}

/// Joins what was split. `gap_max_ns` is the largest gap between two pieces of one flow, ns;
/// [`HARPOON_GAP_MAX_NS`] is the paper's. Pieces may come in any order; overlapping ones have no gap.
pub fn merge_split(mut records: Vec<FlowRecord>, gap_max_ns: u64) -> Repaired {
    let offered = Totals::of(&records);
    let count = records.len();
    records.sort_by_key(|record| (record.key, record.start_ns, record.end_ns));
    records.dedup_by(|later, earlier| {
        let joined = continues(earlier, later, gap_max_ns);
        if joined {
            join(earlier, later);
        }
        joined
    });
    records.sort_by_key(|record| (record.start_ns, record.key));
    assert_eq!(offered, Totals::of(&records), "joining neither loses nor adds");
    Repaired { merged: (count - records.len()) as u64, records }
}

fn continues(earlier: &FlowRecord, later: &FlowRecord, gap_max_ns: u64) -> bool {
    let allowed_ns = match earlier.end_reason {
        EndReason::ActiveTimeout => gap_max_ns.max(CONTINUATION_GAP_MAX_NS),
        _ => gap_max_ns,
    };
    earlier.key == later.key
        && !earlier.has_end()
        && !later.has_start()
        && later.start_ns.saturating_sub(earlier.end_ns) <= allowed_ns
        && earlier.packets.checked_add(later.packets).is_some()
        && earlier.octets.checked_add(later.octets).is_some()
}

fn join(earlier: &mut FlowRecord, later: &FlowRecord) {
    earlier.end_ns = earlier.end_ns.max(later.end_ns);
    earlier.packets += later.packets;
    earlier.octets += later.octets;
    earlier.tcp_flags |= later.tcp_flags;
    earlier.payload_octets = match (earlier.payload_octets, later.payload_octets) {
        (Some(one), Some(other)) => Some(one.saturating_add(other)),
        _ => None,
    };
    earlier.opened = earlier.opened.or(later.opened);
    earlier.end_reason = later.end_reason;
    earlier.sampling_interval = earlier.sampling_interval.max(later.sampling_interval);
}

#[derive(Debug, PartialEq, Eq)]
struct Totals {
    packets: u128,
    octets: u128,
}

impl Totals {
    fn of(records: &[FlowRecord]) -> Totals {
        Totals {
            packets: records.iter().map(|record| u128::from(record.packets)).sum(),
            octets: records.iter().map(|record| u128::from(record.octets)).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{FlowKey, TCP, tcp_flags};
    use alloc::vec;
    use core::net::Ipv4Addr;

    const MILLISECOND_NS: u64 = 1_000_000;
    const ACK: u8 = tcp_flags::ACK;
    const SYN: u8 = tcp_flags::SYN;
    const FIN: u8 = tcp_flags::FIN;

    fn record(port: u16, start_ms: u64, end_ms: u64, flags: u8) -> FlowRecord {
        FlowRecord {
            key: FlowKey {
                source: Ipv4Addr::new(198, 18, 0, 1).into(),
                destination: Ipv4Addr::new(198, 18, 0, 2).into(),
                source_port: port,
                destination_port: 80,
                protocol: TCP,
            },
            start_ns: start_ms * MILLISECOND_NS,
            end_ns: end_ms * MILLISECOND_NS,
            packets: 10,
            octets: 1_000,
            tcp_flags: flags | ACK,
            payload_octets: Some(600),
            opened: (flags & SYN != 0).then_some(true),
            end_reason: EndReason::Unknown,
            sampling_interval: 0,
        }
    }

    #[test]
    fn the_surgery_is_performed() {
        // The two-record flow that the published Harpoon left in two ("surgery performed: 0").
        let repaired = merge_split(
            vec![record(1, 1_005, 2_000, FIN), record(1, 0, 1_000, SYN)],
            HARPOON_GAP_MAX_NS,
        );
        assert_eq!((repaired.records.len(), repaired.merged), (1, 1));
        let whole = &repaired.records[0];
        assert_eq!((whole.packets, whole.octets, whole.payload_octets), (20, 2_000, Some(1_200)));
        assert_eq!((whole.start_ns, whole.end_ns), (0, 2_000 * MILLISECOND_NS));
        assert_eq!((whole.tcp_flags, whole.opened), (SYN | FIN | ACK, Some(true)));
    }

    #[test]
    fn many_pieces_become_one_whatever_their_order() {
        let mut pieces: Vec<_> = (0..9)
            .map(|n| {
                record(1, n * 100, n * 100 + 95, [SYN, 0, FIN][(n > 0) as usize + (n > 7) as usize])
            })
            .collect();
        pieces.push(record(2, 0, 10, SYN | FIN));
        pieces.swap(1, 7);
        pieces.swap(3, 9);
        let repaired = merge_split(pieces, HARPOON_GAP_MAX_NS);
        assert_eq!((repaired.records.len(), repaired.merged), (2, 8));
        assert_eq!(repaired.records[0].packets, 90);
    }

    #[test]
    fn markers_and_gaps_keep_records_apart() {
        let apart = [
            [record(1, 0, 100, FIN), record(1, 101, 200, 0)],
            [record(1, 0, 100, tcp_flags::RST), record(1, 101, 200, 0)],
            [record(1, 0, 100, 0), record(1, 101, 200, SYN)],
            [record(1, 0, 100, 0), record(1, 111, 200, 0)],
            [record(1, 0, 100, 0), record(2, 101, 200, 0)],
        ];
        for pair in apart {
            let repaired = merge_split(pair.to_vec(), HARPOON_GAP_MAX_NS);
            assert_eq!(repaired, Repaired { records: pair.to_vec(), merged: 0 });
        }
        let touching = vec![record(1, 0, 100, 0), record(1, 110, 200, 0)];
        assert_eq!(merge_split(touching, HARPOON_GAP_MAX_NS).merged, 1);
    }

    #[test]
    fn the_active_timeout_is_waited_out() {
        for (gap_ms, merged) in [(14_000, 1), (15_001, 0)] {
            let mut first = record(1, 0, 100, SYN);
            first.end_reason = EndReason::ActiveTimeout;
            let rest = record(1, 100 + gap_ms, 100 + gap_ms, FIN);
            let repaired = merge_split(vec![first, rest], HARPOON_GAP_MAX_NS);
            assert_eq!(repaired.merged, merged, "a gap of {gap_ms} ms");
        }
    }

    #[test]
    fn what_is_unknown_stays_unknown_and_equal_starts_are_kept() {
        let mut one = record(1, 0, 100, SYN);
        one.payload_octets = None;
        let repaired = merge_split(vec![one, record(1, 50, 200, 0)], 0);
        assert_eq!((repaired.merged, repaired.records[0].payload_octets), (1, None));
        let twins = vec![record(1, 0, 100, SYN | FIN), record(2, 0, 100, SYN | FIN)];
        assert_eq!(merge_split(twins, HARPOON_GAP_MAX_NS).records.len(), 2);
        assert_eq!(merge_split(vec![], 0).records.len(), 0);
        let mut absurd = record(1, 0, 100, SYN);
        absurd.octets = u64::MAX;
        assert_eq!(merge_split(vec![absurd, record(1, 101, 200, 0)], 10_000_000).merged, 0);
    }
}
