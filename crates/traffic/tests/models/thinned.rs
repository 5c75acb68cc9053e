//! Gaps estimated from sampled records compared with those between the original connections.

use crate::sampling::{Packet, address, options};
use nilometer_flow::record::{TCP, tcp_flags};
use nilometer_flow::{FlowKey, FlowRecord};
use nilometer_stat::{Rng, ks_to, pareto};
use nilometer_traffic::estimate::estimate;
use nilometer_traffic::model::{Identification, TrafficModel};

const PURPOSE: u32 = 0x7468_696e;
const BOUND_S: f64 = 60.0;
/// Connections of a pair of hosts, and the share of them with a successor in the session.
const OF_PAIR: u64 = 250;
const FOLLOWED: f64 = 0.98;
/// Between packets of a connection.
const SPACING_NS: u64 = 2_000_000;
const ROUND_TRIP_NS: u64 = 10_000_000;
const PAYLOAD: u64 = 1_000;

/// Draws a gap between two connections of a session, seconds.
type Gap = fn(&mut Rng) -> f64;

fn lognormal(rng: &mut Rng) -> f64 {
    (-1.6 + 1.2 * rng.normal()).exp()
}

/// A burst: about one connection every 50 ms.
fn burst(rng: &mut Rng) -> f64 {
    0.05 * (0.7 + 0.6 * rng.unit())
}

/// Connections of a page come at once, and pages after a while.
fn pages(rng: &mut Rng) -> f64 {
    if rng.unit() < 0.7 { rng.exponential(0.05) } else { rng.exponential(5.0) }
}

fn exponential(rng: &mut Rng) -> f64 {
    rng.exponential(1.0)
}

/// The records of an exporter that samples one packet in `interval`, and the true gaps, rising.
struct Sampled {
    records: Vec<FlowRecord>,
    gaps_s: Vec<f64>,
    end_ns: u64,
}

/// Packets of one direction, most of which are not sampled.
struct Direction {
    key: FlowKey,
    start_ns: u64,
    packets: u64,
    payload: u64,
    flags: u8,
}

impl Direction {
    /// The record of one packet in `interval`, if any was sampled.
    fn record(&self, interval: u32, rng: &mut Rng) -> Option<FlowRecord> {
        crate::sampling::sampled(self.key, self.packets, interval, rng, |at| {
            let (payload, flags) = match at {
                0 => (0, tcp_flags::SYN | self.flags),
                _ if at + 1 == self.packets => (self.payload, tcp_flags::FIN | tcp_flags::ACK),
                _ => (self.payload, tcp_flags::ACK),
            };
            Packet { at_ns: self.start_ns + at * SPACING_NS, payload, flags }
        })
    }
}

/// Sessions of pairs of hosts: each connection is followed by another after a gap, or by silence.
fn sample(seed: u64, (connections, interval): (u64, u32), (gap, scales): (Gap, f64)) -> Sampled {
    let mut rng = Rng::new(seed, PURPOSE, 0);
    let mut sampled = Sampled { records: Vec::new(), gaps_s: Vec::new(), end_ns: 0 };
    for pair in 0..connections / OF_PAIR {
        let scale = (scales * rng.normal()).exp();
        let mut at_s = rng.exponential(300.0);
        for number in 0..OF_PAIR {
            connection(&mut sampled, (pair, number), (at_s * 1e9) as u64, interval, &mut rng);
            if rng.unit() > FOLLOWED {
                at_s += BOUND_S + rng.exponential(300.0);
            } else if number + 1 < OF_PAIR {
                let gap_s = core::iter::repeat_with(|| scale * gap(&mut rng))
                    .find(|gap_s| *gap_s <= BOUND_S);
                at_s += gap_s.expect("a gap");
                sampled.gaps_s.push(gap_s.expect("a gap"));
            }
        }
        sampled.end_ns = sampled.end_ns.max((at_s * 1e9) as u64);
    }
    sampled.gaps_s.sort_by(f64::total_cmp);
    sampled
}

fn connection(
    sampled: &mut Sampled,
    (pair, number): (u64, u64),
    start_ns: u64,
    interval: u32,
    rng: &mut Rng,
) {
    let is_mouse = rng.unit() < 0.55;
    let packets = if is_mouse { 2.0 + rng.exponential(2.0) } else { pareto(rng, 1.3, 4.0) };
    let packets = (packets as u64).min(20_000);
    let key = FlowKey {
        source: address(0, pair),
        destination: address(1, pair % 40),
        source_port: 1_024 + (number * 7 % 60_000) as u16,
        destination_port: 80,
        protocol: TCP,
    };
    let up = Direction { key, start_ns, packets: packets / 2 + 3, payload: 0, flags: 0 };
    let down = Direction {
        key: key.reversed(),
        start_ns: start_ns + ROUND_TRIP_NS,
        packets,
        payload: PAYLOAD,
        flags: tcp_flags::ACK,
    };
    sampled.records.extend([up, down].iter().filter_map(|way| way.record(interval, rng)));
}

/// The outcome of one sample.
struct Outcome {
    ks: f64,
    median: f64,
    /// Whether the intervals of median and mean contain the truth.
    holds: [bool; 2],
    model: TrafficModel,
}

fn outcome(seed: u64, size: (u64, u32), gaps: (Gap, f64)) -> Outcome {
    let Sampled { records, mut gaps_s, end_ns } = sample(seed, size, gaps);
    let model = estimate(records, &options(600.0, end_ns + 1_000_000_000)).expect("a model").model;
    let ks = ks_to(&mut gaps_s, &model.inter_connection);
    let median = gaps_s[gaps_s.len() / 2];
    let mean = gaps_s.iter().sum::<f64>() / gaps_s.len() as f64;
    let of = model.sampled_gaps.clone().expect("packets were sampled");
    let holds = [of.median_interval_s.holds(median), of.mean_interval_s.holds(mean)];
    println!(
        "{size:?} seed {seed}: KS {ks:.3}, median {median:.3} in {:.3?}, mean {mean:.3} in {:.3?}, {:?}, {} lags",
        of.median_interval_s, of.mean_interval_s, of.identification, of.lags
    );
    Outcome { ks, median, holds, model }
}

fn is_identified(model: &TrafficModel) -> bool {
    let gaps = model.sampled_gaps.as_ref().expect("packets were sampled");
    gaps.identification == Identification::Identified
}

#[test]
fn gaps_are_recovered() {
    for gap in [lognormal, pages, exponential] {
        for seed in 1..=2 {
            let Outcome { ks, holds, model, .. } = outcome(seed, (25_000, 10), (gap, 0.0));
            assert!(ks <= 0.05 && is_identified(&model) && holds == [true; 2], "KS {ks}");
        }
    }
    let Outcome { ks, model, .. } = outcome(1, (500_000, 100), (lognormal, 0.0));
    assert!(ks <= 0.05 && is_identified(&model), "1:100: KS {ks}");
    let Outcome { ks, model, .. } = outcome(1, (500_000, 1_000), (lognormal, 0.0));
    assert!(ks <= 0.1 && is_identified(&model), "1:1000: KS {ks}");
}

/// Gaps of 0.05 s, in sessions minutes apart: lags divided by the sampling interval would be ten times too long.
#[test]
fn bursts_are_as_dense_as_they_were() {
    for size in [(25_000, 10), (250_000, 100)] {
        let Outcome { median, model, .. } = outcome(3, size, (burst, 0.0));
        let found = model.inter_connection.quantile(0.5) / median;
        assert!((found - 1.0).abs() < 0.1, "{size:?}: x {found}");
    }
}

#[test]
fn differences_between_pairs_are_estimated_from_their_lags() {
    let Outcome { ks, .. } = outcome(4, (25_000, 10), (lognormal, 1.0));
    assert!(ks <= 0.1, "KS {ks}");
}

/// One packet in a thousand of 2,000 connections shows hardly anything: the warning says so, and what to do.
#[test]
fn unidentified_gaps_are_reported() {
    let Sampled { records, end_ns, .. } = sample(5, (2_000, 1_000), (lognormal, 0.0));
    let made = estimate(records, &options(600.0, end_ns + 1_000_000_000)).expect("a model");
    assert!(!is_identified(&made.model));
    let is_reported = |warning: &String| warning.contains("not identified");
    assert!(made.warnings.iter().any(is_reported), "{:?}", made.warnings);
    let written = serde_json::to_value(&made.model).expect("JSON");
    assert_eq!(written["sampled_gaps"]["identification"], "not-identified");
    // Models from before the field are read.
    let mut old = written;
    old.as_object_mut().expect("an object").remove("sampled_gaps");
    let read: TrafficModel = serde_json::from_value(old).expect("a model");
    assert_eq!(read.sampled_gaps, None);
}

/// Two records of another exporter, which samples one packet in a thousand, do not affect the estimate from
/// the others.
#[test]
fn strays_of_another_sampling_interval_leave_gaps_identified() {
    let Sampled { mut records, end_ns, .. } = sample(5, (5_000, 10), (lognormal, 0.0));
    let median = |records: &[FlowRecord]| {
        let made =
            estimate(records.to_vec(), &options(600.0, end_ns + 1_000_000_000)).expect("a model");
        assert!(is_identified(&made.model), "{:?}", made.warnings);
        made.model.sampled_gaps.expect("sampled").median_interval_s
    };
    let before = median(&records);
    let mut strays = records[..2].to_vec();
    for (stray, port) in strays.iter_mut().zip([7_001, 7_002]) {
        stray.sampling_interval = 1_000;
        (stray.key.source, stray.key.destination) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        stray.key.source_port = port;
    }
    records.extend(strays);
    assert_eq!(median(&records), before);
}

/// A hundred seeds each of inputs with well and with hardly identified gaps.
#[test]
#[ignore = "300 models; run by hand"]
fn intervals_hold_the_truth() {
    for gap in [lognormal, pages, exponential] {
        for size in [(5_000, 10), (25_000, 100), (50_000, 1_000)] {
            let outcomes: Vec<Outcome> =
                (1..=100).map(|seed| outcome(seed, size, (gap, 0.0))).collect();
            let identified = outcomes.iter().filter(|one| is_identified(&one.model));
            let [median, mean] =
                [0, 1].map(|at| identified.clone().filter(|one| one.holds[at]).count());
            let identified = identified.count();
            println!("{size:?}: {identified} identified, {median} medians and {mean} means hold");
            assert!(identified - median.min(mean) <= 10, "{size:?}: more than ten are wrong");
        }
    }
}

/// The figures of the specification for the reference cases: the mean of ten seeds. Takes some minutes. Connections
/// are counted as `sampled_sizes.rs` counts files, one each; at one in a thousand half as many are shown, too.
#[test]
#[ignore = "120 models of up to a million connections take ten minutes: the measure behind row F2.5, by hand"]
fn references_in_the_mean_of_ten_seeds() {
    for gap in [lognormal, pages, exponential] {
        for size in [(50_000, 10), (1_000_000, 100), (1_000_000, 1_000), (500_000, 1_000)] {
            let outcomes: Vec<Outcome> =
                (1..=10).map(|seed| outcome(seed, size, (gap, 0.0))).collect();
            let ks = outcomes.iter().map(|outcome| outcome.ks).sum::<f64>() / 10.0;
            let identified =
                outcomes.iter().filter(|outcome| is_identified(&outcome.model)).count();
            println!("{size:?}: mean KS {ks:.3}, {identified} of 10 identified");
            let most = if size == (500_000, 1_000) { 0.07 } else { 0.05 };
            assert!(ks <= most && identified == 10, "{size:?}: mean KS {ks}");
        }
    }
}
