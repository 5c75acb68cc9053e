//! Whole connections: requests and answers stay together from the records to the plan.

use core::net::Ipv4Addr;

use nilometer_flow::record::{TCP, tcp_flags};
use nilometer_flow::{EndReason, FlowKey, FlowRecord};
use nilometer_stat::{Rng, distance, parametric};
use nilometer_traffic::estimate::{EstimateOptions, estimate};
use nilometer_traffic::model::Origin;
use nilometer_traffic::{Plan, Planner, TrafficModel};

const CONNECTIONS: u64 = 6_000;
const ORIGIN_NS: u64 = 1_767_225_600_000_000_000;

fn one_way(number: u64, is_up: bool, start_ns: u64, payload: u64, packets: u64) -> FlowRecord {
    let key = FlowKey {
        source: Ipv4Addr::new(192, 0, 2, 1 + (number % 40) as u8).into(),
        destination: Ipv4Addr::new(198, 51, 100, 1 + (number % 7) as u8).into(),
        source_port: 1_024 + number as u16,
        destination_port: 443,
        protocol: TCP,
    };
    FlowRecord {
        key: if is_up { key } else { key.reversed() },
        start_ns,
        end_ns: start_ns + 300_000_000,
        packets,
        octets: payload + 52 * packets,
        tcp_flags: tcp_flags::SYN | tcp_flags::ACK | tcp_flags::FIN,
        payload_octets: Some(payload),
        opened: Some(is_up),
        end_reason: EndReason::EndOfFlow,
        sampling_interval: 0,
    }
}

/// Uploads with a short answer and downloads with a short request, the former in small segments.
fn records() -> Vec<FlowRecord> {
    let mut rng = Rng::new(5, 0, 0);
    let mut made = Vec::new();
    for number in 0..CONNECTIONS {
        let start_ns = ORIGIN_NS + number * 10_000_000;
        let large = parametric::pareto(&mut rng, 1.4, 4_000.0) as u64;
        let small = 30 + rng.below(60);
        let (up, down, segment) = match number % 3 {
            0 => (large, small, 500),
            _ => (small, large, 1_448),
        };
        let of = |payload: u64, other: u64| {
            3 + payload.div_ceil(segment) + other.div_ceil(segment).min(22)
        };
        made.push(one_way(number, true, start_ns, up, of(up, down)));
        made.push(one_way(number, false, start_ns + 1_000_000, down, of(down, up)));
    }
    made
}

fn model() -> TrafficModel {
    let options = EstimateOptions {
        interval_s: Some(20.0),
        bound_s: 60.0,
        keep_addresses: false,
        tool: "test".into(),
        origin: Origin { description: "test".into(), synthetic: true, inputs: Vec::new() },
        span_ns: Some((ORIGIN_NS, ORIGIN_NS + 60_000_000_000)),
        clients: vec!["198.18.0.0/16".parse().expect("a prefix")],
        servers: vec!["198.19.0.0/17".parse().expect("a prefix")],
    };
    estimate(records(), &options).expect("a model").model
}

fn plan(model: &TrafficModel) -> Plan {
    let planner = Planner::new(model, 1).expect("a sound model");
    planner.plan(&mut |slots| planner.chains(slots)).expect("a plan")
}

/// Sessions that wait across an interval's end can bring a few connections too many.
fn is_near(planned: u64, asked: u64) -> bool {
    planned.abs_diff(asked) * 50 <= asked
}

#[test]
fn a_plan_keeps_requests_and_answers_together_and_their_volume_in_each_interval() {
    let model = model();
    let plan = plan(&model);
    assert!(plan.is_joint);
    assert!(is_near(plan.len() as u64, CONNECTIONS));
    for planned in &plan.intervals {
        assert!(is_near(planned.connections, planned.asked.connections), "{planned:?}");
        let off = (planned.bytes as f64 / planned.asked.bytes as f64 - 1.0).abs();
        assert!(off < 0.01, "bytes off by {off}");
    }
    let uploads = plan.connections.iter().filter(|c| c.request_bytes > c.size_bytes).count();
    assert!(uploads.abs_diff(CONNECTIONS as usize / 3) < 60, "{uploads}");
    for planned in &plan.connections {
        let small = planned.request_bytes.min(planned.size_bytes);
        assert!(small < 200, "both ways are large: {planned:?}");
        let is_upload = planned.request_bytes > planned.size_bytes;
        if planned.request_bytes + planned.size_bytes > 20_000 {
            let is_of_its_kind = match is_upload {
                true => (400..800).contains(&planned.segment_bytes),
                false => planned.segment_bytes == 0 || planned.segment_bytes > 1_300,
            };
            assert!(is_of_its_kind, "{planned:?}");
        }
    }
}

#[test]
fn files_of_both_ways_follow_the_law_that_the_model_has() {
    let model = model();
    let plan = plan(&model);
    let both = plan.connections.iter().flat_map(|c| [c.request_bytes, c.size_bytes]);
    let mut files: Vec<f64> = both.filter(|&size| size >= 100).map(|size| size as f64).collect();
    assert!(distance::ks_to(&mut files, &plan.file_size) < 0.01);
    assert!(distance::ks_to(&mut files, &model.file_size) < 0.01);
}

#[test]
fn more_is_spoken_for_and_harpoons_own_model_is_still_there() {
    let model = model();
    assert_eq!(model.unmodelled_bytes_share, Some(0.0));
    assert_eq!(model.unmodelled_flows_share, Some(0.0));
    assert_eq!(model.coverage.flows_in_connections, 2 * CONNECTIONS);
    let harpoon = model.clone().without_connections();
    harpoon.check().expect("a sound model");
    assert_eq!(harpoon.unmodelled_flows_share, Some(0.5));
    assert_eq!(harpoon.file_size, model.file_size);
    let plan = plan(&harpoon);
    assert!(!plan.is_joint && plan.connections.iter().all(|c| c.request_bytes == 0));
    assert!(is_near(plan.len() as u64, model.flows()));
}

#[test]
fn intervals_without_their_volume_are_refused() {
    let mut model = model();
    model.intervals[1].whole = None;
    assert!(model.check().is_err());
    model.intervals.iter_mut().for_each(|interval| interval.whole = None);
    model.connection_law = None;
    model.check().expect("a model of files");
}

/// What a planner could not count, divide or end with is refused when the model is read.
#[test]
fn numbers_that_no_plan_can_be_made_of_are_refused() {
    let half = 1u64 << 63;
    type Change = fn(&mut TrafficModel, u64);
    let changes: [(Change, &str); 9] = [
        (|model, half| model.sources.counts = vec![half, half], "sum of sources"),
        (
            |model, half| model.destinations.counts = vec![half, half - 1, 1, 1],
            "sum of destinations",
        ),
        (|model, half| model.intervals[0].flows = half, "sum of interval flows"),
        (|model, half| model.intervals[0].bytes = half, "sum of interval bytes"),
        (|model, half| model.intervals[0].whole.as_mut().unwrap().bytes = half, "whole.bytes"),
        (
            |model, half| model.connection_law.as_mut().unwrap().connections[0] = half,
            "connection_law",
        ),
        (|model, _| model.generation.time_divisor = 1e-310, "1 / generation.time_divisor"),
        (|model, _| model.generation.time_divisor = 1e12, "less than"),
        (|model, _| model.file_size = model.file_size.scaled(1e15), "file_size mean is more than"),
    ];
    for (change, word) in changes {
        let mut model = model();
        change(&mut model, half);
        let error = model.check().expect_err(word).to_string();
        assert!(error.contains(word), "{word}: {error}");
    }
}
