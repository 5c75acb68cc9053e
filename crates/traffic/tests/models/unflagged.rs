//! The embedded records without their TCP flags, and which flows enter a model with flags or without.

use core::net::Ipv4Addr;

use nilometer_flow::record::{TCP, tcp_flags};
use nilometer_flow::{EndReason, FlowKey, FlowRecord};
use nilometer_stat::ks_models;
use nilometer_traffic::estimate::{Estimate, EstimateError, EstimateOptions, estimate};
use nilometer_traffic::model::Origin;
use nilometer_traffic::synthetic;

fn try_model(records: Vec<FlowRecord>) -> Result<Estimate, EstimateError> {
    let prefix = |text: &str| text.parse().expect("a prefix");
    let options = EstimateOptions {
        interval_s: None,
        bound_s: synthetic::BOUND_S,
        keep_addresses: false,
        tool: "test".to_owned(),
        origin: Origin { description: "test".to_owned(), synthetic: true, inputs: Vec::new() },
        span_ns: Some((
            synthetic::ORIGIN_NS,
            synthetic::ORIGIN_NS + (synthetic::DURATION_S * 1e9) as u64,
        )),
        clients: vec![prefix("198.18.0.0/16"), prefix("fd00:18::/112")],
        servers: vec![prefix("198.19.0.0/17"), prefix("fd00:19::/112")],
        harpoon: false,
    };
    estimate(records, &options)
}

fn model(records: Vec<FlowRecord>) -> Estimate {
    try_model(records).expect("a model")
}

fn exported(record: FlowRecord) -> FlowRecord {
    FlowRecord { payload_octets: None, opened: None, ..record }
}

#[test]
fn the_laws_are_those_of_the_same_trace_with_flags() {
    let records: Vec<FlowRecord> = synthetic::records().into_iter().map(exported).collect();
    let bare = records.iter().map(|record| FlowRecord { tcp_flags: 0, ..record.clone() });
    let without = model(bare.collect());
    let with = model(records);
    assert!(with.warnings.is_empty() && without.warnings.len() == 1, "{:?}", without.warnings);
    let (with, without) = (with.model, without.model);
    let sizes = ks_models(&with.file_size, &without.file_size);
    let gaps = ks_models(&with.inter_connection, &without.inter_connection);
    println!("file sizes KS {sizes:.4}, gaps KS {gaps:.4}");
    assert!(sizes <= 0.08 && gaps <= 0.08, "file sizes KS {sizes}, gaps KS {gaps}");
    let coverage = &without.coverage;
    assert!(coverage.records_without_flags > 40_000, "{coverage:?}");
    assert!(coverage.starts_inferred > 40_000 && coverage.ends_inferred > 40_000, "{coverage:?}");
    assert_eq!(with.coverage.records_without_flags, 0);
}

/// One flow of `packets` packets and `octets` bytes, half a minute after the beginning.
fn flow(port: u16, packets: u64, octets: u64, tcp_flags: u8) -> FlowRecord {
    FlowRecord {
        key: FlowKey {
            source: Ipv4Addr::new(198, 19, 0, 1).into(),
            destination: Ipv4Addr::new(198, 18, 0, 1).into(),
            source_port: 80,
            destination_port: 2_000 + port,
            protocol: TCP,
        },
        start_ns: synthetic::ORIGIN_NS + 30_000_000_000 + u64::from(port) * 1_000_000,
        end_ns: synthetic::ORIGIN_NS + 31_000_000_000,
        packets,
        octets,
        tcp_flags,
        payload_octets: None,
        opened: None,
        end_reason: EndReason::Unknown,
        sampling_interval: 0,
    }
}

/// Harpoon, section 4.1: flows that only acknowledge are discarded, and very small ones. 40 bytes are
/// headers, up to 32 more are time stamps and selective acknowledgements; 100 bytes are the smallest
/// file.
#[test]
fn acknowledgements_and_tiny_flows_are_left_out_with_flags_or_without() {
    for flags in [tcp_flags::SYN | tcp_flags::ACK | tcp_flags::FIN, 0] {
        let records = vec![
            flow(1, 10, 10 * 40, flags),
            flow(2, 10, 10 * 72, flags),
            flow(3, 10, 10 * 73, flags),
            flow(4, 1, 40 + 99, flags),
            flow(5, 1, 40 + 100, flags),
            flow(6, 4, 4 * 40 + 3_000, flags),
        ];
        let model = model(records).model;
        let (coverage, out) = (&model.coverage, &model.coverage.left_out);
        assert_eq!((out.ack_flow.flows, out.ack_flow.octets), (2, 400 + 720));
        assert_eq!((out.under_100_bytes.flows, out.under_100_bytes.octets), (1, 139));
        assert_eq!((coverage.flows, coverage.flows_in_model), (6, 3));
        assert_eq!((model.file_size.min(), model.file_size.max()), (100.0, 3_000.0));
        assert_eq!(coverage.payload_in_model, 330 + 100 + 3_000);
        assert_eq!(coverage.records_without_flags, if flags == 0 { 6 } else { 0 });
    }
    let only = vec![flow(1, 10, 400, 0), flow(2, 1, 50, 0)];
    assert!(matches!(try_model(only), Err(EstimateError::NoneEnters(_))));
}
