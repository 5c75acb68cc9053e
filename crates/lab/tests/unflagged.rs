//! Records stripped of their TCP flags, against the same records with them, on real captures.

use std::path::{Path, PathBuf};

use nilometer_flow::FlowRecord;
use nilometer_lab::input::records::{FlowOptions, read_flows};
use nilometer_stat::ks_models;
use nilometer_traffic::TrafficModel;
use nilometer_traffic::estimate::{EstimateOptions, estimate};
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
    };
    estimate(records, &options).expect("a model").model
}

/// What is alike, and in the last how far it is not: hundreds of captures side by side, whose connections
/// were mostly cut or left open, which only flags tell.
const CAPTURES: [(&str, f64); 4] = [
    ("pcap/nDPI/pcap/alexa-app.pcapng", 0.08),
    ("pcap/nDPI/pcap/ethereum.pcap", 0.08),
    ("pcap/nDPI/pcap/gnutella.pcap", 0.08),
    ("pcap/composite/composite_a.pcap.gz", 0.25),
];

#[test]
fn files_without_flags_are_those_with_flags() {
    let Some(data) = std::env::var_os("NILOMETER_DATA").map(PathBuf::from) else {
        println!("skipped: public captures (set NILOMETER_DATA)");
        return;
    };
    for (capture, ks_most) in CAPTURES {
        // What an exporter would say: packets and bytes, no sequence space, no handshake.
        let exported =
            |record: FlowRecord| FlowRecord { payload_octets: None, opened: None, ..record };
        let with: Vec<FlowRecord> = read(&data.join(capture)).into_iter().map(exported).collect();
        let bare = |record: &FlowRecord| FlowRecord { tcp_flags: 0, ..record.clone() };
        let without = model(with.iter().map(bare).collect());
        let with = model(with);
        let ks = ks_models(&with.file_size, &without.file_size);
        let (flagged, bare) = (with.flows(), without.flows());
        println!("{capture}: {flagged} files with flags, {bare} without, KS {ks:.4}");
        assert!(ks <= ks_most, "{capture}: KS {ks}");
    }
}
