//! Every shipped example does what it claims, and so do the commands of the documents.

mod documents;

use std::path::PathBuf;
use std::process::Command;

use nilometer_lab::trial::config::LabConfig;
use nilometer_traffic::TrafficModel;
use serde_json::Value;

fn example(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

fn scratch(name: &str) -> PathBuf {
    let path =
        std::env::temp_dir().join(format!("nilometer-examples-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("a scratch folder");
    path
}

#[test]
fn the_configuration_is_every_default() {
    let text = std::fs::read_to_string(example("lab.toml")).expect("the example");
    assert_eq!(text, LabConfig::template(), "write it again with `nilometer lab init`");
    assert_eq!(toml::from_str::<LabConfig>(&text).expect("it parses"), LabConfig::default());
}

#[test]
fn the_capture_gives_its_connections_exactly() {
    let output = Command::new(env!("CARGO_BIN_EXE_nilometer"))
        .arg("flows")
        .arg(example("small.pcapng.gz"))
        .arg("--json")
        .output()
        .expect("it runs");
    assert!(output.status.success());
    let result: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    for (key, value) in [
        ("packets", 5_424),
        ("bytes", 3_479_882),
        ("malformed", 0),
        ("flow_records", 444),
        ("tcp_connections", 222),
        ("tcp_connections_with_syn", 222),
        ("tcp_connections_with_syn_and_fin", 222),
    ] {
        assert_eq!(result[key], value, "{key}");
    }
}

/// The capture holds 90 bytes of each packet; the files must come out at their whole length.
#[test]
fn the_captures_model_has_the_files_that_were_sent() {
    let scratch = scratch("model");
    let file = scratch.join("model.json");
    let output = Command::new(env!("CARGO_BIN_EXE_nilometer"))
        .arg("model")
        .arg(example("small.pcapng.gz"))
        .arg("-o")
        .arg(&file)
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(&file).expect("the model");
    let model: TrafficModel = serde_json::from_str(&text).expect("a model");
    assert_eq!(model.flows(), 222);
    assert_eq!(model.bytes(), SENT_BYTES);
    assert_eq!(model.coverage.left_out.under_100_bytes.flows, 222, "the requests");
    assert!(model.sources.addresses.is_empty() && model.destinations.addresses.is_empty());
    assert!(!text.contains("198.18.0.1\""), "no address of the input in the model");
    std::fs::remove_dir_all(scratch).expect("clean");
}

/// Bytes sent during the capture, by the generator's own log.
const SENT_BYTES: u64 = 3_148_930;
