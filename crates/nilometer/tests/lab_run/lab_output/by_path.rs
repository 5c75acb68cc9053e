//! Separate delays of offloaded packets and of those that pass the pipeline.

use serde_json::Value;

use crate::common::{Room, privileged};

fn packets(result: &Value, path: &str) -> u64 {
    let ways = result["delay_by_path"].as_array().expect("a list");
    let way = ways.iter().find(|way| way["path"] == path);
    way.map_or(0, |way| way["packets"].as_u64().expect("a count"))
}

fn median_ns(result: &Value, path: &str) -> f64 {
    let ways = result["delay_by_path"].as_array().expect("a list");
    let way = ways.iter().find(|way| way["path"] == path).expect(path);
    way["delay_ns"]["p50"].as_f64().expect("a median")
}

fn run(room: &Room, router: &str, more: &[&str]) -> Value {
    room.write("router.toml", router);
    let words = ["lab", "run", "--router", "router.toml", "--json", "--force"];
    let short = ["--duration", "8", "--calibration", "0"];
    room.counted(&[&words[..], &short, more].concat())
}

const PORTS: &str = "[[port]]\ninterface = \"client\"\n[[port]]\ninterface = \"server\"\n";

#[test]
fn offloaded_packets_have_a_delay_of_their_own() {
    if !privileged("a run through our router") {
        return;
    }
    let room = Room::new("by-path");
    // IPv6 has no shortcuts: the pipeline sees its packets all the same.
    let result = run(&room, &format!("[fabric]\nqueueing = \"off\"\n{PORTS}"), &[]);
    let [offloaded, pipeline, undetermined] =
        ["offloaded", "pipeline", "undetermined"].map(|path| packets(&result, path));
    println!("{offloaded} offloaded, {pipeline} by the pipeline, {undetermined} undetermined");
    let forwarded = result["packets"]["out"].as_u64().expect("a count");
    assert_eq!(offloaded + pipeline + undetermined, forwarded, "{}", result["delay_by_path"]);
    assert!(offloaded > 100 && pipeline > 100 && 4 * undetermined < forwarded, "{result}");
    // The kernel's program counts what it forwards by itself.
    let counted = result["router"]["tally"]["paths"]["shortcut"].as_u64().expect("a count");
    assert!(
        (offloaded..=offloaded + undetermined).contains(&counted),
        "{counted} by its own count"
    );
    let [fast, slow] = ["offloaded", "pipeline"].map(|path| median_ns(&result, path));
    println!("medians: {fast} ns offloaded, {slow} ns by the pipeline");
    assert!(fast < slow, "{fast} ns offloaded, {slow} ns by the pipeline");
}

#[test]
fn where_nothing_is_offloaded_every_packet_passed_the_pipeline() {
    let room = Room::new("by-path-none");
    let result = run(&room, PORTS, &["--clock", "virtual"]);
    let [offloaded, pipeline, undetermined] =
        ["offloaded", "pipeline", "undetermined"].map(|path| packets(&result, path));
    assert_eq!((offloaded, undetermined), (0, 0));
    assert_eq!(pipeline, result["packets"]["out"].as_u64().expect("a count"));
    let wire =
        room.counted(&["lab", "run", "--dut", "wire", "--clock", "virtual", "--json", "-o", "w"]);
    assert_eq!(wire["delay_by_path"], Value::Null, "a wire has no ways");
}
