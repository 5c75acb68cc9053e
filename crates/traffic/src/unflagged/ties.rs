//! What answers a flow, and what goes on after its silence: flows of one pair of sockets.

use alloc::vec;
use alloc::vec::Vec;

use nilometer_flow::{FlowKey, FlowRecord};

use crate::pairs::fingerprint;

/// How long before or after a flow the flow that answers it may lie, ns: stamps of exporters are coarse.
const APART_MAX_NS: u64 = 1_000_000_000;

/// How a flow hangs together with others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ties {
    /// The flow of the other direction: of those at the same time, the one whose start is nearest.
    pub answer: Option<u32>,
    /// An earlier flow of the same five-tuple fell silent, and this one went on with its connection.
    pub resumes: bool,
    /// A later one goes on with this one's.
    pub pauses: bool,
}

/// The ties of flows, which are in the order of their starts. Silence of up to `threshold_ns` is a pause,
/// unless an end was told.
pub(super) fn of(flows: &[FlowRecord], threshold_ns: u64) -> Vec<Ties> {
    let mut order: Vec<(u64, u32)> =
        flows.iter().enumerate().map(|(at, flow)| (fingerprint(&flow.key), at as u32)).collect();
    order.sort_unstable();
    let mut ties = vec![Ties::default(); flows.len()];
    for group in order.chunk_by(|one, other| one.0 == other.0) {
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
                    (ties[earlier].pauses, ties[later].resumes) = (true, true);
                }
            }
            for &at in these {
                ties[at as usize].answer = answer(flows, at, others);
            }
        }
    }
    ties
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
