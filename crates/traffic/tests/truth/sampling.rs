//! Records of sampled packets, as an exporter makes them, and options of their estimation.

use core::net::{IpAddr, Ipv4Addr};

use nilometer_flow::{EndReason, FlowKey, FlowRecord};
use nilometer_stat::Rng;
use nilometer_traffic::estimate::EstimateOptions;
use nilometer_traffic::model::Origin;

/// A packet of a flow: its time, payload and TCP flags.
#[derive(Clone, Copy)]
pub struct Packet {
    pub at_ns: u64,
    pub payload: u64,
    pub flags: u8,
}

/// A host of 198.18.0.0/16 or the networks after it.
pub fn address(group: u8, at: u64) -> IpAddr {
    Ipv4Addr::new(198, 18 + group, (at >> 8) as u8, at as u8).into()
}

/// A record that begins with a packet, which is not counted yet.
pub fn begun(key: FlowKey, at_ns: u64, interval: u32) -> FlowRecord {
    FlowRecord {
        key,
        start_ns: at_ns,
        end_ns: at_ns,
        packets: 0,
        octets: 0,
        tcp_flags: 0,
        payload_octets: None,
        opened: None,
        end_reason: EndReason::Unknown,
        sampling_interval: interval,
    }
}

/// Counts a packet, of 40 bytes of headers and its payload.
pub fn count(record: &mut FlowRecord, packet: &Packet) {
    record.end_ns = packet.at_ns;
    record.packets += 1;
    record.octets += 40 + packet.payload;
    record.tcp_flags |= packet.flags;
}

/// The record of a flow with one packet in `interval` sampled, if any is: the distance to the next one is geometric.
#[allow(dead_code, reason = "not every test samples flows one by one")]
pub fn sampled(
    key: FlowKey,
    packets: u64,
    interval: u32,
    rng: &mut Rng,
    packet: impl Fn(u64) -> Packet,
) -> Option<FlowRecord> {
    let ln_missed = (-1.0 / f64::from(interval)).ln_1p();
    let mut way = || ((-rng.unit()).ln_1p() / ln_missed) as u64;
    let mut record = None;
    let mut at = way();
    while at < packets {
        let packet = packet(at);
        count(record.get_or_insert_with(|| begun(key, packet.at_ns, interval)), &packet);
        at += 1 + way();
    }
    record
}

/// Options of an estimation with intervals of `interval_s`, of an original that ends at `end_ns`.
pub fn options(interval_s: f64, end_ns: u64) -> EstimateOptions {
    let prefix = |text: &str| text.parse().expect("a prefix");
    EstimateOptions {
        interval_s: Some(interval_s),
        bound_s: 60.0,
        keep_addresses: false,
        tool: "test".to_owned(),
        origin: Origin { description: "test".to_owned(), synthetic: true, inputs: Vec::new() },
        span_ns: Some((0, end_ns)),
        clients: vec![prefix("198.18.0.0/16")],
        servers: vec![prefix("198.19.0.0/17")],
        harpoon: false,
    }
}
