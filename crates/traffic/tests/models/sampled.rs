//! Models of sampled records compared with the flows that were sampled.

use crate::sampling::{Packet, address, options};
use nilometer_flow::record::{TCP, UDP, tcp_flags};
use nilometer_flow::{FlowKey, FlowRecord};
use nilometer_stat::inversion::InversionError;
use nilometer_stat::{Rng, ks_models, ks_to, pareto};
use nilometer_traffic::estimate::{EstimateError, estimate};
use nilometer_traffic::lengths::Method;
use nilometer_traffic::model::{Identification, TrafficModel};

const FLOWS: u64 = 60_000;
const DURATION_NS: u64 = 600_000_000_000;
const INACTIVE_NS: u64 = 15_000_000_000;
const PAYLOAD: u64 = 1_000;

struct Flow {
    key: FlowKey,
    packets: Vec<Packet>,
}

/// Flows from servers to clients: a SYN, packets of 1,000 bytes at 20 ms, a FIN.
fn flows(seed: u64) -> Vec<Flow> {
    let mut rng = Rng::new(seed, 0x666c, 0);
    let flow = |number: u64| {
        let mouse = rng.unit() < 0.55;
        let length = if mouse { 2.0 + rng.exponential(2.0) } else { pareto(&mut rng, 1.3, 4.0) };
        let length = (length as u64).min(20_000);
        let start_ns = rng.below(DURATION_NS);
        let packets = (0..length).map(|at| {
            let (payload, flags) = match at {
                0 => (0, tcp_flags::SYN | tcp_flags::ACK),
                _ if at + 1 == length => (PAYLOAD, tcp_flags::FIN | tcp_flags::ACK),
                _ => (PAYLOAD, tcp_flags::ACK),
            };
            Packet { at_ns: start_ns + at * 20_000_000, payload, flags }
        });
        let key = FlowKey {
            source: address(1, rng.below(40)),
            destination: address(0, rng.below(200)),
            source_port: 80,
            destination_port: 1_024 + (number % 60_000) as u16,
            protocol: TCP,
        };
        Flow { key, packets: packets.collect() }
    };
    (0..FLOWS).map(flow).collect()
}

/// The records of an exporter that samples one packet in `interval`, split at its inactive timeout.
fn exported(flows: &[Flow], interval: u32, seed: u64) -> Vec<FlowRecord> {
    let mut rng = Rng::new(seed, 0x666c, 1);
    let mut records: Vec<FlowRecord> = Vec::new();
    for Flow { key, packets } in flows {
        let mut open: Option<FlowRecord> = None;
        for packet in packets {
            if rng.below(interval.into()) > 0 {
                continue;
            }
            if open.as_ref().is_some_and(|record| packet.at_ns - record.end_ns > INACTIVE_NS) {
                records.extend(open.take());
            }
            let begun = || crate::sampling::begun(*key, packet.at_ns, interval);
            crate::sampling::count(open.get_or_insert_with(begun), packet);
        }
        records.extend(open);
    }
    records
}

fn model(records: Vec<FlowRecord>) -> TrafficModel {
    estimate(records, &options(200.0, DURATION_NS)).expect("a model").model
}

fn mean_length(flows: &[Flow]) -> f64 {
    flows.iter().map(|flow| flow.packets.len()).sum::<usize>() as f64 / flows.len() as f64
}

fn covered(model: &TrafficModel) {
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
}

/// File sizes without inversion: the sampled bytes times the interval.
fn plain(records: &[FlowRecord], interval: u32) -> Vec<f64> {
    let payload = |record: &FlowRecord| record.octets - 40 * record.packets;
    let mut sizes: Vec<f64> =
        records.iter().map(|record| (payload(record) * u64::from(interval)) as f64).collect();
    sizes.sort_by(f64::total_cmp);
    sizes
}

#[test]
fn flows_sizes_and_volumes_are_recovered() {
    let flows = flows(1);
    let payload: u64 = flows.iter().flat_map(|flow| &flow.packets).map(|p| p.payload).sum();
    // For these flows 0.02 and 0.10: the distance must not be larger than this, and never worse than by
    // counting records.
    for (interval, most) in [(10, 0.05), (100, 0.13)] {
        let records = exported(&flows, interval, 2);
        let plain = plain(&records, interval);
        let model = model(records);
        covered(&model);
        let lengths = model.flow_lengths.as_ref().expect("lengths");
        assert_eq!(lengths.method, Method::SynJointEm);
        assert_eq!(model.sampling_interval, Some(interval));
        let [low, high] = lengths.flow_count_interval.ends();
        assert!(low <= FLOWS as f64 && FLOWS as f64 <= high, "1:{interval}: {low} to {high}");
        let [low, high] = lengths.mean_length_interval.ends();
        let mean = mean_length(&flows);
        assert!(low <= mean && mean <= high, "1:{interval}: {mean} in {low} to {high}");
        let bytes = model.bytes() as f64 / payload as f64;
        assert!((bytes - 1.0).abs() < 0.06, "1:{interval}: volume x {bytes}");
        let carried = model.flows() as f64 * model.file_size.mean() / model.bytes() as f64;
        assert!((carried - 1.0).abs() < 0.01, "1:{interval}: sizes carry {carried} of the volume");
        // Between the possible sizes: whole packets.
        let (mut worst, mut worst_plain) = (0.0_f64, 0.0_f64);
        for whole in [1, 2, 3, 5, 8, 12, 20, 40, 100, 1_000] {
            let smaller = flows.iter().filter(|flow| flow.packets.len() <= whole + 1).count();
            let at = (PAYLOAD as f64) * (whole as f64 + 0.5);
            let truth = smaller as f64 / FLOWS as f64;
            worst = worst.max((model.file_size.cdf(at) - truth).abs());
            let counted = plain.partition_point(|size| *size <= at) as f64 / plain.len() as f64;
            worst_plain = worst_plain.max((counted - truth).abs());
        }
        println!("1:{interval}: file sizes off by {worst:.3}, volume x {bytes:.4}");
        assert!(worst < most, "1:{interval}: file sizes off by {worst}");
        assert!(worst < 0.5 * worst_plain, "{worst}, and {worst_plain} by multiplying records");
    }
}

/// Twenty seconds between sampled packets, beyond the exporter's inactive timeout: pieces of one flow.
#[test]
fn records_split_by_sampling_are_joined() {
    let slow = |mut flow: Flow| {
        flow.packets.iter_mut().enumerate().for_each(|(at, p)| p.at_ns += at as u64 * 200_000_000);
        flow
    };
    let flows: Vec<Flow> = flows(3).into_iter().map(slow).collect();
    let records = exported(&flows, 100, 4);
    let pieces = records.len();
    let model = model(records);
    assert!(model.coverage.records_joined > 300, "{} of {pieces}", model.coverage.records_joined);
    let mean = model.mean_length_packets.expect("lengths") / mean_length(&flows);
    assert!((mean - 1.0).abs() < 0.1, "mean length x {mean}");
}

#[test]
fn exporters_of_different_intervals_are_added() {
    let flows = flows(5);
    let (one, other) = flows.split_at(FLOWS as usize / 3);
    let whole = exported(&other[..FLOWS as usize / 3], 1, 6);
    let whole = whole.into_iter().map(|record| FlowRecord { sampling_interval: 0, ..record });
    let mut records = exported(one, 10, 7);
    records.extend(exported(&other[FLOWS as usize / 3..], 50, 8));
    records.extend(whole);
    let model = model(records);
    covered(&model);
    assert_eq!(model.sampling_interval, Some(50));
    let lengths = model.flow_lengths.expect("lengths");
    let [low, high] = lengths.flow_count_interval.ends();
    assert!(low <= FLOWS as f64 && FLOWS as f64 <= high, "{low} to {high}");
    let mean = mean_length(&flows);
    let [low, high] = lengths.mean_length_interval.ends();
    assert!(low <= mean && mean <= high, "{mean} in {low} to {high}");
    let mut all: Vec<f64> = flows.iter().map(|flow| flow.packets.len() as f64).collect();
    let ks = ks_to(&mut all, &lengths.law);
    assert!(ks < 0.12, "KS {ks}");
}

#[test]
fn whole_flows_are_counted() {
    let flows = flows(9);
    let records = exported(&flows, 1, 10).into_iter();
    let model = model(records.map(|r| FlowRecord { sampling_interval: 0, ..r }).collect());
    assert_eq!((model.flow_count, model.sampling_interval), (Some(FLOWS), Some(1)));
    assert!((model.mean_length_packets.expect("counted") - mean_length(&flows)).abs() < 1e-9);
    let lengths = model.flow_lengths.expect("lengths");
    assert_eq!(lengths.method, Method::Counted);
    assert_eq!(lengths.flow_count_interval.ends(), [FLOWS as f64; 2]);
}

#[test]
fn without_a_single_syn_there_is_no_model() {
    let mut records = exported(&flows(11)[..1_000], 10, 12);
    records.iter_mut().for_each(|record| record.tcp_flags = tcp_flags::ACK);
    let count = records.len() as u64;
    let udp = FlowKey { protocol: UDP, ..records[0].key };
    records.push(FlowRecord { key: udp, ..records[0].clone() });
    let error = estimate(records, &options(200.0, DURATION_NS)).expect_err("no SYN");
    assert_eq!(error, EstimateError::Sampled(InversionError::NoSyn(count)));
}

/// Exporters that sample and record no flags: volumes are right, and the number of flows is reported as a lower
/// bound.
#[test]
fn sampled_records_without_flags_are_read() {
    let flows = flows(13);
    let payload: u64 = flows.iter().flat_map(|flow| &flow.packets).map(|p| p.payload).sum();
    let mut records = exported(&flows, 10, 14);
    records.iter_mut().for_each(|record| record.tcp_flags = 0);
    let made = estimate(records, &options(200.0, DURATION_NS)).expect("a model");
    let model = made.model;
    covered(&model);
    let lengths = model.flow_lengths.as_ref().expect("lengths");
    assert_eq!(lengths.method, Method::LowerBound);
    let [low, high] = lengths.flow_count_interval.ends();
    assert!(low <= FLOWS as f64 && FLOWS as f64 <= high, "{low} to {high}");
    assert!(model.flow_count.expect("a bound") as f64 <= 1.05 * FLOWS as f64);
    let bytes = model.bytes() as f64 / payload as f64;
    assert!((bytes - 1.0).abs() < 0.1, "volume x {bytes}");
    let gaps = model.sampled_gaps.expect("sampled");
    assert_eq!(gaps.identification, Identification::NotIdentified);
    assert!(made.warnings.iter().any(|warning| warning.contains("no TCP flags recorded")));
}

/// Half of the exporters record flags: the others have the same ratio of flows to seen flows.
#[test]
fn records_without_flags_are_like_those_with_them() {
    let flows = flows(15);
    let mut records = exported(&flows, 10, 16);
    let half = records.len() / 2;
    records[half..].iter_mut().for_each(|record| record.tcp_flags = 0);
    let model = model(records);
    covered(&model);
    let count = model.flow_count.expect("an estimate") as f64 / FLOWS as f64;
    assert!((count - 1.0).abs() < 0.05, "flows x {count}");
    assert_eq!(model.flow_lengths.expect("lengths").method, Method::SynJointEm);
}

/// Each flow is acknowledged by half as many packets with only time stamps, after a small request.
#[test]
fn acknowledgements_are_no_files() {
    let forward = flows(17);
    let back = |flow: &Flow| {
        let length = flow.packets.len() / 2 + 2;
        let at = |at: usize| flow.packets[(2 * at).min(flow.packets.len() - 1)].at_ns;
        let packets = (0..length).map(|number| {
            let (payload, flags) = match number {
                0 => (20, tcp_flags::SYN),
                1 => (150, tcp_flags::ACK),
                _ => (12, tcp_flags::ACK),
            };
            Packet { at_ns: at(number), payload, flags }
        });
        Flow { key: flow.key.reversed(), packets: packets.collect() }
    };
    let back: Vec<Flow> = forward.iter().map(back).collect();
    for interval in [10, 100] {
        let alone = model(exported(&forward, interval, 18));
        let mut records = exported(&forward, interval, 18);
        records.extend(exported(&back, interval, 19));
        let model = model(records);
        covered(&model);
        let out = &model.coverage.left_out;
        let left = (out.ack_flow.flows + out.smaller_direction.flows) as f64 / FLOWS as f64;
        assert!((left - 1.0).abs() < 0.15, "1:{interval}: {left} of the flows return");
        let ks = ks_models(&model.file_size, &alone.file_size);
        println!("1:{interval}: sizes beside acknowledgements off by {ks:.3}");
        assert!(ks < 0.02, "1:{interval}: sizes moved by {ks}");
        let flows = model.flow_count.expect("an estimate") as f64 / (2 * FLOWS) as f64;
        assert!((flows - 1.0).abs() < 0.1, "1:{interval}: flows x {flows}");
    }
}
