//! Records stripped of their TCP flags, against the same records with them, on real captures; and the
//! limits of what can be known without them.

use std::path::{Path, PathBuf};

use nilometer_files::input::records::{FlowOptions, read_flows};
use nilometer_flow::record::TCP;
use nilometer_flow::repair::{HARPOON_GAP_MAX_NS, repair};
use nilometer_flow::{EndReason, FlowRecord};
use nilometer_stat::{ks_models, ks_samples};
use nilometer_traffic::TrafficModel;
use nilometer_traffic::estimate::{EstimateOptions, FILE_MIN_BYTES, estimate, payload_bytes};
use nilometer_traffic::model::Origin;

fn read(path: &Path) -> Vec<FlowRecord> {
    let mut records = Vec::new();
    let mut keep = |record| {
        records.push(record);
        Ok(())
    };
    let options = FlowOptions::default();
    read_flows(&[path.to_owned()], &options, &mut |_| {}, &mut keep).expect("it is read");
    records
}

fn model(records: Vec<FlowRecord>) -> TrafficModel {
    let prefix = |text: &str| text.parse().expect("a prefix");
    let options = EstimateOptions {
        interval_s: None,
        bound_s: 60.0,
        keep_addresses: false,
        tool: "test".to_owned(),
        origin: Origin { description: "test".to_owned(), synthetic: false, inputs: Vec::new() },
        span_ns: None,
        clients: vec![prefix("198.18.0.0/16"), prefix("fd00:18::/112")],
        servers: vec![prefix("198.19.0.0/17"), prefix("fd00:19::/112")],
        harpoon: false,
    };
    estimate(records, &options).expect("a model").model
}

/// How far files are from those of the same records with flags, at most: where exporters report why a
/// record ended (flowEndReason), and where they do not. In the last four most errors are connections left
/// open, or closed from the other side, which a record without flags cannot show.
const CAPTURES: [(&str, [f64; 2]); 9] = [
    ("pcap/composite/composite_a.pcap.gz", [0.02, 0.08]),
    ("pcap/nDPI/pcap/alexa-app.pcapng", [0.02, 0.08]),
    ("pcap/nDPI/pcap/ethereum.pcap", [0.02, 0.08]),
    ("pcap/nDPI/pcap/gnutella.pcap", [0.02, 0.08]),
    ("pcap/PcapPlusPlus/example2.pcap", [0.02, 0.08]),
    ("pcap/nDPI/pcap/webex.pcap", [0.02, 0.14]),
    ("pcap/nDPI/pcap/netflix.pcap", [0.02, 0.18]),
    ("pcap/nDPI/pcap/reddit.pcap", [0.02, 0.31]),
    ("pcap/retina/traces/tls_ciphers.pcap", [0.02, 0.51]),
];

#[test]
fn files_without_flags_are_those_with_flags() {
    let Some(data) = std::env::var_os("NILOMETER_DATA").map(PathBuf::from) else {
        println!("skipped: public captures (set NILOMETER_DATA)");
        return;
    };
    // What an exporter would report: packets and bytes, no sequence space, no handshake.
    let exported = |record: FlowRecord| FlowRecord { payload_octets: None, opened: None, ..record };
    let without_flags =
        |record: &FlowRecord| FlowRecord { end_reason: EndReason::Unknown, ..record.clone() };
    let bare = |record: &FlowRecord| FlowRecord { tcp_flags: 0, ..record.clone() };
    for (capture, ks_most) in CAPTURES {
        let with_flags: Vec<FlowRecord> =
            read(&data.join(capture)).into_iter().map(exported).collect();
        let without_flags = with_flags.iter().map(without_flags).collect();
        for ((with, ks_most), how) in
            [with_flags, without_flags].iter().zip(ks_most).zip(["told", "not told"])
        {
            let without = model(with.iter().map(bare).collect());
            let with = model(with.clone());
            let ks = ks_models(&with.file_size, &without.file_size);
            let (flagged, bare) = (with.flows(), without.flows());
            println!(
                "{capture}, ends {how}: {flagged} files with flags, {bare} without, KS {ks:.4}"
            );
            assert!(ks <= ks_most, "{capture}, ends {how}: KS {ks}");
        }
    }
}

/// A flow that is a file if it was seen whole: what its record and its answer show, and whether it was.
struct Shown {
    capture: usize,
    features: Vec<f64>,
    bytes: f64,
    is_whole: bool,
}

fn shown(capture: usize, records: Vec<FlowRecord>) -> Vec<Shown> {
    let of_tcp = records.into_iter().filter(|record| record.key.protocol == TCP).collect();
    let flows = repair(of_tcp, HARPOON_GAP_MAX_NS).records;
    let first_ns = flows.iter().map(|flow| flow.start_ns).min().unwrap_or(0);
    let last_ns = flows.iter().map(|flow| flow.end_ns).max().unwrap_or(0);
    let log = |value: u64| (value.max(1) as f64).ln();
    let log_time = |ns: u64| (ns.max(10_000) as f64).ln();
    let show = |flow: &FlowRecord| {
        let bytes = payload_bytes(flow);
        let answer = flows
            .iter()
            .filter(|other| other.key == flow.key.reversed())
            .min_by_key(|other| other.start_ns.abs_diff(flow.start_ns))?;
        let is_file = bytes >= FILE_MIN_BYTES && flow.octets > 72 * flow.packets;
        let features = vec![
            log(flow.packets),
            log(bytes),
            log(answer.packets),
            log(payload_bytes(answer)),
            log_time(flow.end_ns - flow.start_ns) / 2.0,
            log_time(last_ns - flow.end_ns),
            log_time(flow.start_ns - first_ns) / 2.0,
            log_time(flow.start_ns.abs_diff(answer.start_ns)) / 2.0,
            log_time(flow.end_ns.abs_diff(answer.end_ns)) / 2.0,
            if flow.start_ns < answer.start_ns { 2.0 } else { 0.0 },
            if flow.end_ns < answer.end_ns { 1.0 } else { 0.0 },
        ];
        let is_whole = flow.has_start() && flow.has_end();
        is_file.then_some(Shown { capture, features, bytes: bytes as f64, is_whole })
    };
    flows.iter().filter_map(show).collect()
}

/// The majority label of the fifteen most similar flows of other captures.
fn learned(flow: &Shown, all: &[Shown]) -> bool {
    let apart = |other: &Shown| -> f64 {
        flow.features.iter().zip(&other.features).map(|(one, other)| (one - other).powi(2)).sum()
    };
    let others = all.iter().filter(|other| other.capture != flow.capture);
    let mut near: Vec<(f64, bool)> = others.map(|other| (apart(other), other.is_whole)).collect();
    near.sort_by(|one, other| one.0.total_cmp(&other.0));
    near.iter().take(15).filter(|(_, is_whole)| *is_whole).count() > 7
}

/// A classifier trained on every field of the records of eight captures and of their answers, with
/// their flags, estimates no law of the ninth within 0.08 where ours does not.
#[test]
fn a_learner_that_was_shown_other_flags_misses_the_same_captures() {
    let Some(data) = std::env::var_os("NILOMETER_DATA").map(PathBuf::from) else {
        println!("skipped: public captures (set NILOMETER_DATA)");
        return;
    };
    let captures = CAPTURES.iter().enumerate().skip(1);
    let show = |(at, (capture, _)): (usize, &(&str, _))| shown(at, read(&data.join(capture)));
    let all: Vec<Shown> = captures.flat_map(show).collect();
    for (at, (capture, [_, ours])) in CAPTURES.iter().enumerate().skip(1) {
        let of = || all.iter().filter(|flow| flow.capture == at);
        let mut whole: Vec<f64> =
            of().filter(|flow| flow.is_whole).map(|flow| flow.bytes).collect();
        let learned_flows = of().filter(|flow| learned(flow, &all));
        let mut learned_flows: Vec<f64> = learned_flows.map(|flow| flow.bytes).collect();
        let ks = ks_samples(&mut whole, &mut learned_flows);
        println!(
            "{capture}: {} files with flags, {} learned, KS {ks:.3}",
            whole.len(),
            learned_flows.len()
        );
        assert!(*ours <= 0.08 || ks > 0.08, "{capture} can be told after all: KS {ks}");
    }
}
