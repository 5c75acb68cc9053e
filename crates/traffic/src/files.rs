//! Which flows are files, and the size of each (Harpoon, section 4.1).

use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_flow::FlowRecord;
use nilometer_flow::record::TCP;

use crate::coverage::Coverage;

/// Flows below this many payload bytes are left out (Harpoon's own limit).
pub const FILE_MIN_BYTES: u64 = 100;

/// The bytes that a record represents: N times the counted ones, if one packet in N was sampled.
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

/// Is this a TCP flow? Others are counted as left out.
pub(crate) fn is_tcp(flow: &FlowRecord, coverage: &mut Coverage) -> bool {
    let octets = represented_octets(flow);
    coverage.octets += octets;
    let is_tcp = flow.key.protocol == TCP;
    if !is_tcp {
        coverage.flows += 1;
        coverage.left_out.not_tcp.count(octets);
    }
    is_tcp
}

/// Is a flow a file by itself: whole, more than acknowledgements, and not tiny?
pub(crate) fn is_file(flow: &FlowRecord) -> bool {
    flow.has_start()
        && flow.has_end()
        && !flow.only_acknowledges()
        && flow.payload_bytes() >= FILE_MIN_BYTES
}

/// The files among flows: `is_smaller` holds for each flow whether the other direction is its connection's
/// only file.
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
            () if !flow.has_start() => out.no_start_marker.count(flow.octets),
            () if !flow.has_end() => out.no_end_marker.count(flow.octets),
            () if flow.only_acknowledges() => out.ack_flow.count(flow.octets),
            () if payload < FILE_MIN_BYTES => out.under_100_bytes.count(flow.octets),
            () if is_smaller => out.smaller_direction.count(flow.octets),
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
