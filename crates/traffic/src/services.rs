//! Which direction of a service carries files, where packets were sampled.
//!
//! A connection carries one file, in the larger of its directions; the other one requests and acknowledges it. For
//! whole flows that is decided connection by connection (`biflows`). With sampling, a direction without a sampled
//! packet looks like one that does not exist, and a packet without payload may belong to either. But connections of
//! one service, identified by the lower of their ports, are mostly similar. So the payload of all its sampled
//! packets is summed by direction. A direction with less than a tenth of it *returns*: its flows are
//! acknowledgements and requests, not files. Where both directions carry payload, as between peers, flows of both
//! are files.

use alloc::collections::BTreeMap;

use nilometer_flow::FlowRecord;

use crate::files::payload_bytes;

/// A direction returns if it carries less than one in this many bytes.
const RETURNS: u128 = 10;

/// The payload of each service's sampled packets, from clients and from servers. The number of services is
/// limited by that of ports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Services {
    of: BTreeMap<u16, [u128; 2]>,
}

fn service(record: &FlowRecord) -> u16 {
    record.key.source_port.min(record.key.destination_port)
}

impl Services {
    /// Adds the payload of a sampled record.
    pub fn note(&mut self, record: &FlowRecord) {
        let both = self.of.entry(service(record)).or_default();
        both[usize::from(record.is_from_client())] += u128::from(carried(record));
    }

    /// Does a flow only request or acknowledge a file of the other direction?
    pub fn returns(&self, record: &FlowRecord) -> bool {
        let both = self.of.get(&service(record)).copied().unwrap_or_default();
        let way = usize::from(record.is_from_client());
        both[way].saturating_mul(RETURNS) < both[0] + both[1]
    }
}

/// Payload of a record; options of headers, which look like payload, do not count.
fn carried(record: &FlowRecord) -> u64 {
    if record.only_acknowledges() { 0 } else { payload_bytes(record) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use nilometer_flow::record::{TCP, tcp_flags};
    use nilometer_flow::{EndReason, FlowKey};

    fn record(ports: (u16, u16), packets: u64, payload: u64) -> FlowRecord {
        FlowRecord {
            key: FlowKey {
                source: Ipv4Addr::new(198, 18, 0, 1).into(),
                destination: Ipv4Addr::new(198, 19, 0, 1).into(),
                source_port: ports.0,
                destination_port: ports.1,
                protocol: TCP,
            },
            start_ns: 5,
            end_ns: 9,
            packets,
            octets: packets * 40 + payload,
            tcp_flags: tcp_flags::ACK,
            payload_octets: None,
            opened: None,
            end_reason: EndReason::Unknown,
            sampling_interval: 100,
        }
    }

    #[test]
    fn the_direction_with_little_payload_returns() {
        let (down, up) = (record((80, 5_000), 3, 3_000), record((5_000, 80), 3, 200));
        let (sent, taken) = (record((6_000, 25), 2, 2_000), record((25, 6_000), 9, 12 * 9));
        let peers = [record((7_000, 7_001), 1, 900), record((7_001, 7_000), 1, 500)];
        let alone = record((9_000, 443), 1, 0);
        let mut services = Services::default();
        for record in [&down, &up, &sent, &taken, &peers[0], &peers[1], &alone] {
            services.note(record);
        }
        assert!(services.returns(&up) && !services.returns(&down));
        // Time stamps are not payload.
        assert!(services.returns(&taken) && !services.returns(&sent));
        assert!(peers.iter().all(|record| !services.returns(record)));
        // Nothing is known about a service without payload, or about one that was never seen.
        assert!(!services.returns(&alone) && !services.returns(&record((1, 2), 1, 0)));
    }
}
