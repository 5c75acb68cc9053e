//! A capture as an exporter with an active timeout would report it: the model after repair, and
//! without.

use std::fs;
use std::path::{Path, PathBuf};

use nilometer_files::input::records::{FlowOptions, read_flows};
use nilometer_flow::FlowRecord;
use nilometer_flow::meter::MeterConfig;
use nilometer_flow::netflow5::{self, Header, RECORDS_MAX};
use nilometer_stat::distance::ks_models;
use nilometer_traffic::TrafficModel;
use nilometer_traffic::estimate::{EstimateOptions, estimate, estimate_as_given};
use nilometer_traffic::model::Origin;

const SECOND_NS: u64 = 1_000_000_000;

/// The records of a file, of its IPv4 alone: version 5 has no other.
fn records(path: &Path, active_timeout_s: u64) -> Vec<FlowRecord> {
    let active_timeout_ns = active_timeout_s * SECOND_NS;
    let meter = MeterConfig { active_timeout_ns, ..MeterConfig::default() };
    let options = FlowOptions { meter, ..FlowOptions::default() };
    let mut records = Vec::new();
    let keep = &mut |record: FlowRecord| {
        records.push(record);
        Ok(())
    };
    read_flows(&[path.to_owned()], &options, &mut |_| (), keep).expect("a readable input");
    records.retain(|record| record.key.source.is_ipv4());
    records
}

/// Records as an exporter sends them that was started an hour before the first.
fn export(records: &[FlowRecord]) -> Vec<u8> {
    let first_ns = records.iter().map(|record| record.start_ns).min().expect("records");
    let booted_ns = first_ns / SECOND_NS * SECOND_NS - 3_600 * SECOND_NS;
    let mut sent = Vec::new();
    for (number, records) in records.chunks(RECORDS_MAX).enumerate() {
        let now_ns = records.iter().map(|record| record.end_ns).max().expect("a chunk has some");
        let header = Header {
            uptime_ms: ((now_ns - booted_ns) / 1_000_000) as u32,
            unix_secs: (now_ns / SECOND_NS) as u32,
            unix_nsecs: (now_ns % SECOND_NS / 1_000_000 * 1_000_000) as u32,
            flow_sequence: (number * RECORDS_MAX) as u32,
            ..Header::default()
        };
        sent.extend(netflow5::encode(&header, records).expect("records of version 5"));
    }
    sent
}

fn options() -> EstimateOptions {
    EstimateOptions {
        interval_s: None,
        bound_s: 60.0,
        keep_addresses: false,
        tool: "test".to_owned(),
        origin: Origin { description: "test".to_owned(), synthetic: false, inputs: Vec::new() },
        span_ns: None,
        clients: vec!["198.18.0.0/16".parse().expect("a prefix")],
        servers: vec!["198.19.0.0/17".parse().expect("a prefix")],
        harpoon: false,
    }
}

/// KS of file sizes and of gaps, and the shares of files and of payload that are there.
fn apart(model: &TrafficModel, from: &TrafficModel) -> [f64; 4] {
    let share = |of: fn(&TrafficModel) -> u64| of(model) as f64 / of(from) as f64;
    [
        ks_models(&model.file_size, &from.file_size),
        ks_models(&model.inter_connection, &from.inter_connection),
        share(|model| model.coverage.flows_in_model),
        share(|model| model.coverage.payload_in_model),
    ]
}

/// An export that splits nothing is not its packets either: sizes are bytes less 40 a packet, though
/// half of these connections carry 12 more of options (KS 0.123), and stamps are milliseconds, below
/// which a ninth of the gaps lie (0.104). So the model is compared with both: its packets, and the
/// export without splits, from which it may differ only by rounding.
#[test]
fn a_split_export_has_the_model_of_its_packets_after_repair() {
    let Some(data) = std::env::var_os("NILOMETER_DATA").map(PathBuf::from) else {
        println!("skipped: NILOMETER_DATA is not set, so no capture was exported");
        return;
    };
    let capture = data.join("pcap/composite/composite_a.pcap.gz");
    let path = std::env::temp_dir().join(format!("nilometer-split-{}", std::process::id()));
    let exported = |active_timeout_s| {
        fs::write(&path, export(&records(&capture, active_timeout_s))).expect("a scratch file");
        records(&path, 1_800)
    };
    let model = |records| estimate(records, &options()).expect("a model").model;
    let whole = model(records(&capture, 1_800));
    let unsplit = model(exported(1_800));
    println!("not split: {:.4?} of its packets", apart(&unsplit, &whole));
    for active_timeout_s in [2, 5, 10] {
        let split = exported(active_timeout_s);
        let given = estimate_as_given(split.clone(), &options()).expect("a model").model;
        let repaired = model(split);
        let joined = repaired.coverage.records_joined;
        let (of_packets, of_unsplit) = (apart(&repaired, &whole), apart(&repaired, &unsplit));
        println!(
            "split at {active_timeout_s} s, {joined} joined: {of_packets:.4?} of its packets,"
        );
        println!(
            "  {of_unsplit:.4?} of the whole export; as given {:.4?}",
            apart(&given, &unsplit)
        );
        let [sizes, gaps, ..] = of_packets;
        assert!(sizes <= 0.125 && gaps <= 0.11, "{active_timeout_s} s: {of_packets:?}");
        let [sizes, gaps, files, payload] = of_unsplit;
        assert!(sizes <= 0.0025 && gaps <= 0.01, "{active_timeout_s} s: {of_unsplit:?}");
        assert!(files > 0.999 && payload > 0.999, "{active_timeout_s} s: {of_unsplit:?}");
        if active_timeout_s == 2 {
            let [sizes, gaps, files, payload] = apart(&given, &unsplit);
            assert!(sizes > 0.07 && gaps > 0.15, "without repair it is no such model");
            assert!(files < 0.7 && payload < 0.5, "without repair most of it is missing");
        }
    }
    fs::remove_file(path).expect("a scratch file");
}
