//! Which flows are files, and what each of them carried (Harpoon, section 4.1).

use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_flow::FlowRecord;

use crate::model::{Coverage, Share};

/// Flows below this many payload bytes are left out (Harpoon's own limit).
pub const FILE_MIN_BYTES: u64 = 100;

pub(crate) fn count(share: &mut Share, octets: u64) {
    share.flows += 1;
    share.octets += octets;
}

/// The bytes that a record stands for: those of all packets, of which one in N was counted.
pub(crate) fn represented_octets(record: &FlowRecord) -> u64 {
    record.octets.saturating_mul(record.sampling_interval.max(1).into())
}

/// A flow that enters the model.
pub(crate) struct File {
    pub start_ns: u64,
    pub payload: u64,
    pub packets: u64,
    pub client: IpAddr,
    pub server: IpAddr,
}

/// Payload of a flow by the paper's rule: exact, or bytes less headers.
pub fn payload_bytes(record: &FlowRecord) -> u64 {
    record.payload_bytes()
}

/// Client and server of a flow.
pub fn ends(record: &FlowRecord) -> (IpAddr, IpAddr) {
    let key = &record.key;
    if record.is_from_client() {
        (key.source, key.destination)
    } else {
        (key.destination, key.source)
    }
}

/// Is a flow a file by itself: whole, more than acknowledgements, and not tiny?
pub(crate) fn is_file(flow: &FlowRecord) -> bool {
    flow.has_start()
        && flow.has_end()
        && !flow.only_acknowledges()
        && flow.payload_bytes() >= FILE_MIN_BYTES
}

/// The files among flows: `is_smaller` tells of each flow whether its other direction is its connection's only
/// file.
pub(crate) fn enter(
    flows: Vec<FlowRecord>,
    is_smaller: &[bool],
    coverage: &mut Coverage,
) -> Vec<File> {
    let mut files = Vec::new();
    for (flow, &is_smaller) in flows.into_iter().zip(is_smaller) {
        let payload = flow.payload_bytes();
        let out = &mut coverage.left_out;
        match () {
            () if !flow.has_start() => count(&mut out.no_start_marker, flow.octets),
            () if !flow.has_end() => count(&mut out.no_end_marker, flow.octets),
            () if flow.only_acknowledges() => count(&mut out.ack_flow, flow.octets),
            () if payload < FILE_MIN_BYTES => count(&mut out.under_100_bytes, flow.octets),
            () if is_smaller => count(&mut out.smaller_direction, flow.octets),
            () => {
                coverage.flows_in_model += 1;
                coverage.octets_in_model += flow.octets;
                coverage.payload_in_model += payload;
                let (client, server) = ends(&flow);
                let (start_ns, packets) = (flow.start_ns, flow.packets);
                files.push(File { start_ns, payload, packets, client, server });
            }
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::LeftOut;

    fn coverage(of: impl Fn(u64) -> u64) -> Coverage {
        let share = |at: u64| Share { flows: of(at), octets: of(at + 1) };
        Coverage {
            flows: of(1),
            octets: of(2),
            flows_in_model: of(3),
            octets_in_model: of(4),
            payload_in_model: of(5),
            records_joined: of(6),
            records_without_flags: of(7),
            starts_inferred: of(8),
            ends_inferred: of(9),
            gaps_beyond_bound: of(10),
            flows_in_connections: of(11),
            octets_in_connections: of(12),
            left_out: LeftOut {
                not_tcp: share(13),
                no_start_marker: share(15),
                no_end_marker: share(17),
                ack_flow: share(19),
                under_100_bytes: share(21),
                smaller_direction: share(23),
            },
        }
    }

    #[test]
    fn coverage_is_added_part_by_part() {
        let mut sum = coverage(|at| 1_000 * at);
        sum.add(&coverage(|at| 3 + at));
        assert_eq!(sum, coverage(|at| 1_001 * at + 3));
        sum.add(&Coverage::default());
        assert_eq!(sum, coverage(|at| 1_001 * at + 3));
        let mut share = Share { flows: 4, octets: 100 };
        count(&mut share, 50);
        assert_eq!(share, Share { flows: 5, octets: 150 });
    }
}
