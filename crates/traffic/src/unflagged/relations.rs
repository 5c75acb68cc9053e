//! Relations between flows of one pair of sockets: the reverse direction of a flow, and its continuation after silence.

use alloc::vec;
use alloc::vec::Vec;

use nilometer_flow::{FlowKey, FlowRecord};

use crate::biflows::fingerprint;

/// How long before or after a flow its answering flow may lie, ns: stamps of exporters are coarse.
const APART_MAX_NS: u64 = 1_000_000_000;

/// How a flow relates to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Relations {
    /// The flow of the other direction at the same time with the nearest start.
    pub answer: Option<u32>,
    /// An earlier flow of the same five-tuple fell silent, and this one continues its connection.
    pub resumes: bool,
    /// A later flow continues this flow's connection.
    pub pauses: bool,
}

/// The relations of flows, which must be in the order of their starts. Silence of up to `threshold_ns` is a
/// pause, unless the flow is known to have ended.
pub(super) fn of(flows: &[FlowRecord], threshold_ns: u64) -> Vec<Relations> {
    let mut order: Vec<(u64, u32)> =
        flows.iter().enumerate().map(|(at, flow)| (fingerprint(&flow.key), at as u32)).collect();
    order.sort_unstable();
    let mut relations = vec![Relations::default(); flows.len()];
    let ends = |&(_, at): &(u64, u32)| both_ways(&flows[at as usize].key);
    for alike in order.chunk_by_mut(|one, other| one.0 == other.0) {
        if alike.len() == 1 {
            continue;
        }
        // Fingerprints are sums: other pairs of sockets may have the same.
        alike.sort_by_key(ends);
        for group in alike.chunk_by(|one, other| ends(one) == ends(other)) {
            relate(flows, group, threshold_ns, &mut relations);
        }
    }
    relations
}

/// The key of both directions.
fn both_ways(key: &FlowKey) -> FlowKey {
    (*key).min(key.reversed())
}

/// Relates the flows of one pair of sockets.
fn relate(
    flows: &[FlowRecord],
    group: &[(u64, u32)],
    threshold_ns: u64,
    relations: &mut [Relations],
) {
    let key = flows[group[0].1 as usize].key;
    let with = |key: FlowKey| -> Vec<u32> {
        group.iter().map(|&(_, at)| at).filter(|&at| flows[at as usize].key == key).collect()
    };
    let (forth, mut back) = (with(key), with(key.reversed()));
    if key == key.reversed() {
        back.clear();
    }
    for (these, others) in [(&forth, &back), (&back, &forth)] {
        for two in these.windows(2) {
            let [earlier, later] = [two[0] as usize, two[1] as usize];
            let gap_ns = flows[later].start_ns.saturating_sub(flows[earlier].end_ns);
            if !flows[earlier].has_end() && gap_ns <= threshold_ns {
                (relations[earlier].pauses, relations[later].resumes) = (true, true);
            }
        }
        for &at in these {
            relations[at as usize].answer = answer(flows, at, others);
        }
    }
}

/// Which of `others` answers the flow at `at`.
fn answer(flows: &[FlowRecord], at: u32, others: &[u32]) -> Option<u32> {
    let flow = &flows[at as usize];
    let after = others.partition_point(|&other| flows[other as usize].start_ns <= flow.start_ns);
    let near = [after.checked_sub(1), Some(after)];
    let near = near.into_iter().flatten().filter_map(|place| others.get(place).copied());
    let reaches = |one: &FlowRecord, other: &FlowRecord| {
        one.start_ns <= other.end_ns.saturating_add(APART_MAX_NS)
    };
    near.filter(|&other| {
        let other = &flows[other as usize];
        reaches(flow, other) && reaches(other, flow)
    })
    .min_by_key(|&other| flows[other as usize].start_ns.abs_diff(flow.start_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use nilometer_flow::EndReason;
    use nilometer_flow::record::TCP;

    fn flow(client: u8, server: u8, is_up: bool, start_ms: u64) -> FlowRecord {
        let key = FlowKey {
            source: Ipv4Addr::new(198, 18, 0, client).into(),
            destination: Ipv4Addr::new(198, 19, 0, server).into(),
            source_port: 50_000,
            destination_port: 80,
            protocol: TCP,
        };
        FlowRecord {
            key: if is_up { key } else { key.reversed() },
            start_ns: start_ms * 1_000_000,
            end_ns: (start_ms + 100) * 1_000_000,
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
    fn socket_pairs_with_the_same_fingerprint_are_related_separately() {
        let (pairs, starts_ms) = ([(1, 4), (2, 3)], [0, 10_000]);
        let mut flows = Vec::new();
        for start_ms in starts_ms {
            for (client, server) in pairs {
                flows.push(flow(client, server, true, start_ms));
            }
            for (client, server) in pairs {
                flows.push(flow(client, server, false, start_ms + 1));
            }
        }
        let prints: Vec<u64> = flows.iter().map(|flow| fingerprint(&flow.key)).collect();
        assert!(prints.iter().all(|print| *print == prints[0]), "{prints:?}");
        let relations = of(&flows, 60_000_000_000);
        let answers: Vec<Option<u32>> =
            relations.iter().map(|relations| relations.answer).collect();
        assert_eq!(answers, [2, 3, 0, 1, 6, 7, 4, 5].map(Some));
        assert!(
            relations[..4].iter().all(|relations| relations.pauses)
                && relations[4..].iter().all(|t| t.resumes)
        );
    }
}
