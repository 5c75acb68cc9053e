//! Whole connections: requests and answers stay together from the records to the plan.

use core::net::Ipv4Addr;

use nilometer_flow::record::{TCP, tcp_flags};
use nilometer_flow::{EndReason, FlowKey, FlowRecord};
use nilometer_stat::{Rng, distance, parametric};
use nilometer_traffic::connections::{ConnectionLaw, ConnectionVolume, Shape, Shapes};
use nilometer_traffic::estimate::{EstimateOptions, default_interval_s, estimate};
use nilometer_traffic::model::{LoadDriver, Origin};
use nilometer_traffic::{Plan, Planner, TrafficModel};
use nilometer_wire::{Span, Time};

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
fn records(small_min: u64) -> Vec<FlowRecord> {
    let mut rng = Rng::new(5, 0, 0);
    let mut made = Vec::new();
    for number in 0..CONNECTIONS {
        let start_ns = ORIGIN_NS + number * 10_000_000;
        let large = parametric::pareto(&mut rng, 1.4, 4_000.0) as u64;
        let small = small_min + rng.below(60);
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
    model_of(records(30), false)
}

fn model_of(records: Vec<FlowRecord>, harpoon: bool) -> TrafficModel {
    let options = EstimateOptions {
        interval_s: Some(20.0),
        bound_s: 60.0,
        keep_addresses: false,
        tool: "test".into(),
        origin: Origin { description: "test".into(), synthetic: true, inputs: Vec::new() },
        span_ns: Some((ORIGIN_NS, ORIGIN_NS + 60_000_000_000)),
        clients: vec!["198.18.0.0/16".parse().expect("a prefix")],
        servers: vec!["198.19.0.0/17".parse().expect("a prefix")],
        harpoon,
    };
    estimate(records, &options).expect("a model").model
}

fn plan(model: &TrafficModel) -> Plan {
    let planner = Planner::new(model, 1).expect("a sound model");
    planner.plan(&mut |slots| planner.arrivals(slots)).expect("a plan")
}

/// Sessions that wait across an interval's end can bring a few connections too many.
fn is_near(planned: u64, intended: u64) -> bool {
    planned.abs_diff(intended) * 50 <= intended
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

/// The head holds connections that start before an instant, and none that starts at it.
#[test]
fn the_head_of_a_plan_ends_before_its_instant() {
    let plan = plan(&model());
    assert!(!plan.is_empty());
    for at in [0, 1, 7, plan.len() / 2, plan.len() - 1] {
        let end = plan.connections[at].start;
        let head = plan.head(end);
        assert!(head.len() <= at && head.iter().all(|one| one.start < end));
        assert!(plan.connections[head.len()..].iter().all(|one| one.start >= end));
        let after = plan.head(end + Span(1));
        assert!(after.len() > at && after.last().is_some_and(|one| one.start == end));
    }
    assert_eq!(plan.head(plan.end).len(), plan.len());
    assert!(plan.head(Time(0)).is_empty());
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
fn connections_raise_coverage_and_harpoons_model_is_kept() {
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
    assert_eq!(harpoon.generation.driver, LoadDriver::Connections);
}

/// One file of each connection, driven by active sessions, as with `--harpoon`.
#[test]
fn harpoons_own_mode_has_one_file_of_each_connection_and_sessions_drive_it() {
    let model = model_of(records(100), false);
    let harpoon = model_of(records(100), true);
    assert_eq!((harpoon.flows(), model.flows()), (CONNECTIONS, 2 * CONNECTIONS));
    assert_eq!(harpoon.generation.driver, LoadDriver::Sessions);
    let plan = plan(&harpoon);
    assert!(!plan.is_joint && plan.connections.iter().all(|c| c.request_bytes == 0));
    for (planned, interval) in plan.intervals.iter().zip(&harpoon.intervals) {
        assert!((planned.sessions / interval.sessions - 1.0).abs() < 1e-9);
        let off = (planned.bytes as f64 / interval.bytes as f64 - 1.0).abs();
        assert!(off < 0.03, "bytes off by {off}");
    }
    assert!((plan.len() as f64 / harpoon.flows() as f64 - 1.0).abs() < 0.05);
    let mut both = harpoon.clone();
    both.connection_law = model.connection_law.clone();
    both.intervals.clone_from(&model.intervals);
    assert!(both.check().expect_err("laws of both").to_string().contains("generation.driver"));
    let mut negative = harpoon;
    negative.intervals[0].sessions = -1.0;
    assert!(negative.check().expect_err("no number of sessions").to_string().contains("sessions"));
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

/// Numbers with which a planner could not count, divide or terminate are refused when the model is read.
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

/// Every part of a sum is added to its own part only.
#[test]
fn volumes_of_intervals_are_added_part_by_part() {
    let of = |[connections, bytes, packets, octets]: [u64; 4]| ConnectionVolume {
        connections,
        bytes,
        packets,
        octets,
    };
    let mut sum = of([2, 300, 50, 7_000]);
    sum.add(&of([1, 20, 3, 400]));
    assert_eq!(sum, of([3, 320, 53, 7_400]));
    sum.add(&ConnectionVolume::default());
    assert_eq!(sum, of([3, 320, 53, 7_400]));
}

/// Five minutes, at least three and at most twelve in an original of up to a day.
#[test]
fn an_original_has_three_to_twelve_intervals() {
    let chosen = [0.3, 60.0, 900.0, 901.0, 1_800.0, 3_600.0, 3_612.0, 7_200.0, 86_400.0];
    let wanted = [0.1, 20.0, 300.0, 300.0, 300.0, 300.0, 301.0, 600.0, 7_200.0];
    assert!(
        chosen.map(default_interval_s).iter().zip(wanted).all(|(one, s)| (one - s).abs() < 1e-12)
    );
}

/// Beyond a day each day has twelve intervals, for a week as for a month; longer originals have no more than
/// a month.
#[test]
fn a_week_keeps_its_days() {
    const DAY_S: f64 = 86_400.0;
    let intervals = |days: f64| days * DAY_S / default_interval_s(days * DAY_S);
    for (days, wanted) in [(1.1, 13.0), (2.0, 24.0), (7.0, 84.0), (7.000_01, 84.0), (31.0, 372.0)] {
        assert!((intervals(days) - wanted).abs() < 1e-6, "{days} days");
    }
    assert!([32.0, 365.0, 20_000.0].iter().all(|&days| (intervals(days) - 372.0).abs() < 1e-6));
}

/// An interval begins where the one before it ended, give or take a millionth and as much of that.
#[test]
fn intervals_follow_each_other() {
    let model = model();
    let starts = |first_s: f64, second_s: f64| {
        let mut model = model.clone();
        model.intervals[0].start_s = first_s;
        model.intervals[0].duration_s = 3.0 - first_s;
        model.intervals.truncate(2);
        model.intervals[1].start_s = second_s;
        model.check().is_ok()
    };
    assert!(starts(0.0, 3.0) && starts(1e-6, 3.0) && !starts(1.000_1e-6, 3.0));
    assert!(starts(-1e-6, 3.0) && !starts(-1.000_1e-6, 3.0));
    assert!(starts(0.0, 3.000_003_9) && starts(0.0, 2.999_996_1));
    assert!(!starts(0.0, 3.000_004_1) && !starts(0.0, 2.999_995_9));
}

/// With more connections than a sample holds: the largest ones singly, and the sampled ones below them in
/// groups; checked by sorting all of them.
#[test]
fn a_table_has_the_largest_connections_and_groups_of_smaller_ones() {
    const ALL: u64 = 300_000;
    let shape = |at: u64| Shape { bytes: 1_000 + at, request_bytes: 100, packets: 10, interval: 0 };
    // The least of the largest is in the sample, as any connection may be.
    let least = ALL - 1_024;
    let mark = |at: u64| if at == least { 0 } else { at.wrapping_mul(0x9e37_79b9_7f4a_7c15) };
    let mut shapes = Shapes::default();
    (0..ALL).for_each(|at| shapes.offer(mark(at), shape(at)));
    let law = ConnectionLaw::of(shapes).expect("a law");
    let mut sample: Vec<u64> = (0..ALL).collect();
    sample.sort_unstable_by_key(|&at| (mark(at), at));
    sample.truncate(1 << 18);
    sample.sort_unstable();
    sample.retain(|&at| at < least);
    let bound = |group: usize| group * sample.len() / 3_072;
    let middle = |group: usize| sample[(bound(group) + bound(group + 1)) / 2];
    let wanted = (0..3_072).map(middle).chain(least..ALL).map(|at| 900 + at);
    assert!(law.response_bytes.iter().copied().eq(wanted));
    let share = |group: u64| group * least / 3_072;
    let counts = (0..3_072).map(|group| share(group + 1) - share(group));
    assert!(law.connections.iter().copied().eq(counts.chain([1; 1_024])));
}
