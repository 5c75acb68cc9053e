//! Starts and ends of flows, inferred for records without TCP flags.
//!
//! Some routers do not record TCP flags (Harpoon, section 4.1), above all where hardware forwards. Every packet of a
//! connection has some flag, so a TCP record whose flags are zero comes from such a router. The information of SYN and
//! FIN is then inferred. With flags, a flow without a visible SYN or FIN is not a file. Most of the work is therefore
//! to find the flows that were not seen whole, and each step below finds some of them:
//!
//! 1. **Reported ends.** An exporter that gives the reason why a record ended (flowEndReason) has seen the FIN or RST,
//!    though it does not show it: *end of flow* is an end. If it gives this reason for any record, a record with another
//!    reason has no end.
//! 2. **Silence.** Records of one five-tuple are pieces of one flow where up to 15 s lie between them, the usual
//!    inactive timeout. Beyond that they are still one connection if the silence is below a threshold: the earlier one
//!    did not end, and the later one did not begin. The threshold is estimated from the records: logarithms of the gaps
//!    are modelled as a mixture of two normal laws, gaps within connections and gaps between them, and the threshold is
//!    where the second becomes likelier. If two laws cannot be separated it is a minute, within which a host does not
//!    reuse its ports (TIME-WAIT).
//! 3. **Packets.** Three packets without payload open a connection (SYN, SYN-ACK, ACK), and three more close it (FIN,
//!    FIN-ACK, ACK); at least two of the six come from either side. A connection with fewer packets than its payload
//!    takes in full segments, plus these, was not seen whole. If most connections of a host are like that, not all of
//!    its packets were metered, and none of its connections counts as whole. Where connections are seen in both
//!    directions, an unanswered flow is not a connection.
//! 4. **The end of the input.** A flow that fell silent less than 15 s before the input ended may continue: an exporter
//!    would not have expired it either. So may one that fell silent less than 15 s before its hosts did, if it was not
//!    their last: a host that leaves closes its connections first, while one that is cut off (captures were merged, a
//!    host was unplugged) leaves several open. Nothing begins within a second of the input's first instant.
//!
//! Two cases cannot be decided: a connection that was left open, silent for long, by hosts that are still there; and
//! which side of a closed connection sent no FIN, because the other's RST came first. Where ends are reported, the
//! law of sizes is that of the same trace with flags (KS at most 0.02 on nine real traces). Otherwise it is close
//! (0.02 to 0.07) on five traces, and far off (0.13 to 0.5) on four in which such connections abound. A classifier
//! trained on the flags of the other traces misses these four as well (0.13 to 0.5).
//!
//! Packet counts are not evidence if most flows of the input lack packets: then the exporter does not count
//! all of them.
//!
//! Inferred starts and ends are counted. A record of sampled packets whose flags are zero is not changed: even the
//! first packet of its flow may not have been sampled.

pub(crate) mod evidence;
pub(crate) mod gaps;
pub(crate) mod hosts;
pub(crate) mod predecessors;
mod relations;

use alloc::vec::Vec;

use nilometer_flow::record::{TCP, tcp_flags};
use nilometer_flow::repair::{
    CONTINUATION_GAP_MAX_NS, RepairCounts, Screen, Stamps, settle_all, stamps,
};
use nilometer_flow::{EndReason, FlowRecord};

use crate::lengths::is_sampled;
use evidence::{Evidence, RelatedFlows};
use predecessors::Predecessors;

/// Flows of records without flags. Inferred starts and ends are in their flags, as SYN and FIN.
#[derive(Debug, Default)]
pub(crate) struct Marked {
    pub flows: Vec<FlowRecord>,
    /// Records that were joined to an earlier one.
    pub joined: u64,
    /// Number of inferred starts.
    pub starts: u64,
    /// Number of inferred ends.
    pub ends: u64,
}

/// Whether a record's starts and ends are to be inferred.
pub(crate) fn is_unflagged(record: &FlowRecord) -> bool {
    record.key.protocol == TCP && record.tcp_flags == 0 && !is_sampled(record)
}

/// Writes a reported end into the flags.
pub(crate) fn mark_reported_end(record: &mut FlowRecord) {
    if record.end_reason == EndReason::EndOfFlow {
        record.tcp_flags |= tcp_flags::FIN;
    }
}

/// Joins pieces of flows; `records` must have all records of their tuples, in the order of their starts.
pub(crate) fn join(
    mut bare: Vec<FlowRecord>,
    threshold_ns: u64,
    predecessors: &Predecessors,
) -> (Vec<FlowRecord>, u64) {
    let mut screen = Screen::default();
    for record in &mut bare {
        if stamps(record) == Stamps::Doubtful {
            screen.comes_after(predecessors.last_ns(record));
        }
        screen.set_right(record);
    }
    let mut counts = RepairCounts::default();
    let flows = settle_all(bare, threshold_ns.min(CONTINUATION_GAP_MAX_NS), &mut counts);
    let joined = counts.joined();
    counts.add(&screen.counts);
    counts.assert_conserved();
    (flows, joined)
}

/// Infers for each flow whether it began and ended; `flows` must have all flows of their address pairs, in
/// the order of their starts.
pub(crate) fn mark(
    flows: Vec<FlowRecord>,
    joined: u64,
    threshold_ns: u64,
    evidence: &Evidence,
) -> Marked {
    let related = RelatedFlows::new(&flows, threshold_ns);
    let marks: Vec<(bool, bool)> = (0..flows.len())
        .map(|at| (evidence.has_begun(&related, at), evidence.has_ended(&related, at)))
        .collect();
    let mut marked = Marked { flows, joined, starts: 0, ends: 0 };
    for (flow, (has_begun, has_ended)) in marked.flows.iter_mut().zip(marks) {
        if has_begun {
            flow.tcp_flags |= tcp_flags::SYN;
            marked.starts += 1;
        }
        if has_ended {
            flow.tcp_flags |= tcp_flags::FIN;
            marked.ends += 1;
        }
    }
    marked
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use nilometer_flow::{EndReason, FlowKey};

    const SECOND_NS: u64 = 1_000_000_000;

    /// The flows of records from `span_ns.0` to `span_ns.1`, inferred in one batch.
    pub(super) fn infer(mut records: Vec<FlowRecord>, span_ns: (u64, u64)) -> Marked {
        records.iter_mut().for_each(mark_reported_end);
        let reports_ends = records.iter().any(FlowRecord::has_end);
        let threshold_ns = gaps::Gaps::of(records.clone(), None).threshold_ns();
        let (flows, joined) = join(records, threshold_ns, &Predecessors::default());
        let weighed = evidence::Weighed::of(&flows, threshold_ns);
        let evidence = Evidence::of(weighed, reports_ends, span_ns);
        mark(flows, joined, threshold_ns, &evidence)
    }

    fn record(port: u16, start_ns: u64, end_ns: u64) -> FlowRecord {
        FlowRecord {
            key: FlowKey {
                source: Ipv4Addr::new(198, 18, 0, 1).into(),
                destination: Ipv4Addr::new(198, 19, 0, 1).into(),
                source_port: port,
                destination_port: 80,
                protocol: TCP,
            },
            start_ns,
            end_ns,
            packets: 10,
            octets: 9_000,
            tcp_flags: 0,
            payload_octets: None,
            opened: None,
            end_reason: EndReason::Unknown,
            sampling_interval: 0,
        }
    }

    #[test]
    fn pieces_are_joined_and_ends_of_the_input_are_left_open() {
        let minute = 60 * SECOND_NS;
        let records = alloc::vec![
            // Cut by the active timeout, and whole between the ends.
            record(1, 2 * minute, 3 * minute),
            record(1, 3 * minute + SECOND_NS / 10, 4 * minute),
            // The same ports, reused much later.
            record(1, 9 * minute, 9 * minute + SECOND_NS),
            // Under way as the input begins, and as it ends; the hosts are there throughout.
            record(2, SECOND_NS / 2, minute),
            record(3, 5 * minute, 10 * minute - SECOND_NS / 2),
        ];
        let found = infer(records, (0, 10 * minute));
        assert_eq!((found.joined, found.starts, found.ends), (1, 3, 3));
        let marks: Vec<(u16, bool, bool)> = found
            .flows
            .iter()
            .map(|record| (record.key.source_port, record.has_start(), record.has_end()))
            .collect();
        assert_eq!(marks, [(2, false, true), (1, true, true), (3, true, false), (1, true, true)]);
        assert_eq!(found.flows[1].packets, 20);
    }

    #[test]
    fn only_unsampled_tcp_records_without_flags_are_unflagged() {
        let plain = record(1, 5 * SECOND_NS, 6 * SECOND_NS);
        assert!(is_unflagged(&plain));
        let flagged = FlowRecord { tcp_flags: tcp_flags::ACK, ..plain.clone() };
        let sampled = FlowRecord { sampling_interval: 100, ..plain.clone() };
        let udp = FlowRecord { key: FlowKey { protocol: 17, ..plain.key }, ..plain };
        assert!([flagged, sampled, udp].iter().all(|record| !is_unflagged(record)));
    }
}
