//! The embedded records through the whole chain: estimated, planned, and judged as if played without
//! fault.

use crate::performed::performed;
use nilometer_flow::{EndReason, FlowKey, FlowRecord};
use nilometer_traffic::compare::compare;
use nilometer_traffic::estimate::{EstimateError, EstimateOptions, estimate};
use nilometer_traffic::fidelity::{Laws, judge};
use nilometer_traffic::model::{Origin, TrafficModel};
use nilometer_traffic::{Plan, Planner, synthetic};
use nilometer_wire::{Span, Time};

fn options() -> EstimateOptions {
    let prefix = |text: &str| text.parse().expect("a prefix");
    EstimateOptions {
        interval_s: Some(synthetic::INTERVAL_S),
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
    }
}

fn model() -> TrafficModel {
    estimate(synthetic::records(), &options()).expect("a model").model
}

fn plan(model: &TrafficModel, seed: u64) -> Plan {
    let planner = Planner::new(model, seed).expect("a sound model");
    planner.plan(&mut |slots| planner.arrivals(slots)).expect("a plan")
}

#[test]
fn the_default_run_has_twenty_thousand_connections_and_volumes_that_differ_twofold() {
    let model = model();
    assert!(model.flows() >= 20_000, "{}", model.flows());
    let bytes: Vec<u64> = model.intervals.iter().map(|interval| interval.bytes).collect();
    assert_eq!(bytes.len(), 3);
    let (least, most) = (bytes.iter().min().expect("3"), bytes.iter().max().expect("3"));
    assert!(*most >= 2 * least, "{bytes:?}");
    assert_eq!(model.generation.inter_connection_bound_s, 5.0);
    assert!(model.inter_connection.max() <= 5.0);
}

#[test]
fn every_flow_enters_or_is_left_out_for_one_reason() {
    let model = model();
    let (coverage, out) = (&model.coverage, &model.coverage.left_out);
    let marks = [out.not_tcp, out.no_start_marker, out.no_end_marker];
    let sizes = [out.ack_flow, out.under_100_bytes, out.smaller_direction];
    let reasons = marks.into_iter().chain(sizes);
    let flows: u64 = reasons.clone().map(|share| share.flows).sum();
    let octets: u64 = reasons.map(|share| share.octets).sum();
    assert_eq!(coverage.flows, coverage.flows_in_model + flows);
    assert_eq!(coverage.octets, coverage.octets_in_model + octets);
    assert_eq!(coverage.flows_in_model, model.flows());
    assert_eq!(coverage.payload_in_model, model.bytes());
    assert_eq!(coverage.octets, synthetic::records().iter().map(|r| r.octets).sum::<u64>());
}

#[test]
fn a_plan_carries_each_intervals_volume_and_follows_every_law() {
    let model = model();
    for seed in 1..=3 {
        let plan = plan(&model, seed);
        for (planned, intended) in plan.intervals.iter().zip(&model.intervals) {
            assert_eq!(planned.connections, intended.flows, "seed {seed}");
            let off = (planned.bytes as f64 / intended.bytes as f64 - 1.0).abs();
            assert!(off < 0.01, "seed {seed}: bytes off by {off}");
        }
        assert_eq!(plan.collisions, 0);
        let laws = Laws {
            file_size: &model.file_size,
            inter_connection: &plan.gaps,
            sources: model.sources.shares(plan.ranks.0),
            destinations: model.destinations.shares(plan.ranks.1),
        };
        for figure in judge(&performed(&plan), &laws, seed) {
            let ratio = figure.ratio.expect("a floor");
            assert!(ratio <= 2.0, "seed {seed}: {figure:?}");
        }
    }
}

#[test]
fn a_plan_does_not_depend_on_how_arrivals_are_drawn() {
    let model = model();
    let whole = plan(&model, 7);
    let planner = Planner::new(&model, 7).expect("a sound model");
    let in_parts = planner
        .plan(&mut |slots| {
            let cut = slots.start + (slots.end - slots.start) / 3;
            let (mut head, tail) =
                (planner.arrivals(slots.start..cut), planner.arrivals(cut..slots.end));
            head.extend(tail);
            head
        })
        .expect("a plan");
    assert_eq!(whole, in_parts);
    assert_ne!(whole.digest(), plan(&model, 8).digest());
    let mut other = model.clone();
    other.intervals[0].whole.as_mut().expect("whole connections").connections += 1;
    assert_ne!(whole.digest(), plan(&other, 7).digest());
}

#[test]
fn time_division_keeps_connections_and_bytes() {
    let mut model = model();
    model.generation.time_divisor = 20.0;
    let plan = plan(&model, 1);
    assert_eq!(plan.len() as u64, model.flows());
    assert!((plan.end.as_secs_f64() - 3.0).abs() < 1e-6);
    assert!(plan.connections.iter().all(|c| c.start < Time::ZERO + Span::from_secs(3)));
    assert!((plan.gaps.mean() * 20.0 / model.inter_connection.mean() - 1.0).abs() < 1e-9);
}

#[test]
fn pools_of_any_size_keep_the_most_popular_ranks() {
    let mut model = model();
    model.generation.clients = vec!["198.18.0.0/28".parse().expect("a prefix")];
    let plan = plan(&model, 1);
    assert_eq!(plan.ranks.0, 14);
    assert!(plan.sessions.iter().all(|session| session.source_rank < 14));
    assert!(plan.connections.iter().all(|c| c.source.is_ipv4()));
    let mut uses = [0u32; 14];
    plan.sessions.iter().for_each(|session| uses[session.source_rank as usize] += 1);
    let shares = model.sources.shares(14);
    let expected = shares[0] * plan.sessions.len() as f64;
    assert!((f64::from(uses[0]) / expected - 1.0).abs() < 0.4, "{uses:?}, expected {expected}");
}

#[test]
fn a_model_has_ranks_alone_unless_addresses_are_requested() {
    assert!(model().sources.addresses.is_empty());
    let kept = EstimateOptions { keep_addresses: true, ..options() };
    let model = estimate(synthetic::records(), &kept).expect("a model").model;
    assert_eq!(model.sources.addresses.len(), model.sources.counts.len());
}

#[test]
fn a_model_is_at_no_distance_from_itself_and_far_from_another() {
    let model = model();
    assert!(compare(&model, &model, 1).iter().all(|d| d.distance < 1e-12));
    let mut other = model.clone();
    other.file_size = other.file_size.scaled(1.5);
    let far = compare(&model, &other, 1);
    let of = |name: &str, metric: &str| {
        far.iter().find(|d| d.name == name && d.metric == metric).expect("a distance").clone()
    };
    assert!(of("file_size", "ks").ratio.expect("a floor") > 5.0);
    let octaves = of("file_size", "w1_log2").distance;
    assert!((octaves - 1.5f64.log2()).abs() < 0.01, "scaled by 1.5: {octaves} octaves");
    assert!(of("inter_connection", "w1_log2").floor > 0.0);
}

/// One direction of a connection as a flow record of an exporter that does not count payload.
fn exported(start_ms: u64, packets: u64, octets: u64, flags: u8) -> FlowRecord {
    let address = |text: &str| text.parse().expect("an address");
    FlowRecord {
        key: FlowKey {
            source: address("192.0.2.1"),
            destination: address("192.0.2.2"),
            source_port: 40_000,
            destination_port: 80,
            protocol: 6,
        },
        start_ns: start_ms * 1_000_000,
        end_ns: start_ms * 1_000_000 + 1_000,
        packets,
        octets,
        tcp_flags: flags,
        payload_octets: None,
        opened: None,
        end_reason: EndReason::Unknown,
        sampling_interval: 0,
    }
}

#[test]
fn file_size_from_records_is_bytes_less_forty_a_packet() {
    const WHOLE: u8 = 0x13; // SYN, FIN, ACK
    let mut records: Vec<FlowRecord> =
        (0..5).map(|n| exported(n * 1_000, 10, 5_400, WHOLE)).collect();
    for (n, record) in records.iter_mut().enumerate() {
        record.key.source_port += n as u16;
    }
    // By the rule, a hundred acknowledgements with time stamps look like 1,200 bytes, but carry
    // none.
    let mut acks = exported(0, 100, 5_200, WHOLE);
    acks.key.source_port = 50_000;
    records.push(acks);
    let options = EstimateOptions { interval_s: None, span_ns: None, ..options() };
    let model = estimate(records, &options).expect("a model").model;
    assert_eq!(model.file_size.min(), 5_000.0);
    assert_eq!(model.file_size.max(), 5_000.0);
    assert_eq!(model.flows(), 5);
    assert_eq!(model.coverage.left_out.ack_flow.flows, 1);
    assert!((model.inter_connection.mean() - 1.0).abs() < 0.2);
}

#[test]
fn a_flow_split_by_its_exporter_is_one_file_again() {
    const SYN_ACK: u8 = 0x12;
    const FIN_ACK: u8 = 0x11;
    let records = vec![exported(0, 10, 5_400, SYN_ACK), exported(1, 10, 5_400, FIN_ACK)];
    let options = EstimateOptions { interval_s: None, span_ns: None, ..options() };
    let made = estimate(records, &options).expect("a model");
    assert_eq!(made.model.coverage.records_joined, 1);
    assert_eq!(made.model.file_size.max(), 10_000.0);
    assert_eq!(made.warnings.len(), 1, "a single connection has no gap: {:?}", made.warnings);
}

#[test]
fn a_model_without_flows_is_an_error_with_all_reasons() {
    let records = vec![exported(0, 3, 180, 0x02)];
    let error = estimate(records, &options()).expect_err("only a SYN");
    assert!(matches!(error, EstimateError::NoneEnters(_)));
    assert!(error.to_string().contains("1 without FIN"), "{error}");
    assert!(matches!(estimate(Vec::new(), &options()), Err(EstimateError::NoTcp(0))));
}
