//! A path in front of a device: it affects the traffic but not the device's figures, and its own log has every
//! packet.

use nilometer_lab::device::truth::PacketTruth;
use serde_json::Value;

use crate::common::{Room, at_once, privileged};

const SHORT: [&str; 5] = ["lab", "run", "--json", "--duration", "8"];
const VIRTUAL: [&str; 2] = ["--clock", "virtual"];
/// One network of each family: the default client and server pools.
const V4: [&str; 4] = ["--clients", "198.18.0.0/16", "--servers", "198.19.0.0/17"];

fn run(room: &Room, out: &str, more: &[&[&str]]) -> Value {
    room.counted(&[&SHORT[..], &["-o", out], &more.concat()].concat())
}

fn number(result: &Value, keys: &[&str]) -> f64 {
    let value = keys.iter().fold(result, |value, key| &value[*key]);
    value.as_f64().unwrap_or_else(|| panic!("{keys:?} of {result}"))
}

fn log(room: &Room, file: &str) -> Vec<PacketTruth> {
    let text = room.read(file);
    text.lines().map(|line| serde_json::from_str(line).expect("a packet")).collect()
}

/// The median time from a connection's start to its end, ns.
fn completion_ns(room: &Room, out: &str) -> u64 {
    let text = room.read(&format!("{out}/execution.ndjson"));
    let mut times: Vec<u64> = text
        .lines()
        .filter_map(|line| {
            let one: Value = serde_json::from_str(line).expect("a connection");
            (one["outcome"] == "Completed").then_some(())?;
            Some(one["finished_ns"].as_u64()? - one["started_ns"].as_u64()?)
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

/// The device's loss and delay are its own; the path's log has those of the path.
fn hold_apart(room: &Room, out: &str, result: &Value, delay_ns: i64) {
    assert_eq!(result["path"]["faults"], "delay=20ms,loss=0.02");
    assert_eq!(result["path"]["unheard"], 0, "{result}");
    assert_eq!(number(result, &["packets", "lost"]), 0.0, "the device loses nothing");
    assert!(number(result, &["delay_ns", "p50"]) < 5e6, "{}", result["delay_ns"]);
    let truth = log(room, &format!("{out}/path.ndjson"));
    assert_eq!(truth.len() as f64, number(result, &["path", "received"]));
    let lost = truth.iter().filter(|packet| packet.lost).count() as f64;
    assert_eq!(lost, number(result, &["path", "lost"]));
    let mean = 0.02 * truth.len() as f64;
    assert!((lost - mean).abs() < 5.0 * mean.sqrt(), "{lost} of {}", truth.len());
    let left = truth.iter().filter_map(|packet| Some(packet.left_ns? - packet.came_ns));
    assert!(left.min().is_some_and(|least| least >= delay_ns));
    // The packets that the clients sent and the path let pass are those that entered the device
    // from their side.
    let passed = truth.iter().filter(|packet| packet.direction == 0 && packet.left_ns.is_some());
    let entered = number(&result["directions"][0], &["packets", "in"]);
    assert!((passed.count() as f64 - entered).abs() <= 30.0, "hosts reset what is open at the end");
}

#[test]
fn the_traffic_feels_the_path_and_the_device_does_not() {
    let room = Room::new("path-virtual");
    let path = ["--path", "delay=20ms,loss=0.02"];
    let with = run(&room, "with", &[&VIRTUAL, &path]);
    hold_apart(&room, "with", &with, 20_000_000);
    run(&room, "without", &[&VIRTUAL]);
    let longer_ns = completion_ns(&room, "with") - completion_ns(&room, "without");
    // (A handshake and one exchange at the least: two round trips of 40 ms.)
    assert!(longer_ns > 60_000_000, "{longer_ns} ns longer");
    // Read again from the run's results.
    let again = room.counted(&["lab", "run", "with/lab.toml", "--json", "-o", "again"]);
    assert_eq!(again["outcome_digest"], with["outcome_digest"]);
}

#[test]
fn a_path_stands_in_front_of_a_device_under_the_real_clock() {
    if !privileged("a run with a path") {
        return;
    }
    let room = Room::new("path-live");
    let path = ["--path", "delay=20ms,loss=0.02", "--calibration", "2"];
    let through = |dut: &str| {
        let result = run(&room, dut, &[&["--dut", dut], &path]);
        hold_apart(&room, dut, &result, 20_000_000);
        assert_eq!(result["path"]["notes"].as_array().map(Vec::len), Some(0), "{result}");
        let roles = result["scheduling"].as_array().expect("a list");
        assert!(roles.iter().any(|role| role["role"] == "path"), "{roles:?}");
        assert!(number(&result, &["coverage", "bytes"]) > 0.95, "{}", result["coverage"]);
    };
    at_once(&["nilometer", "linux", "wire"], through);
}

#[test]
fn address_pairs_have_paths_of_their_own() {
    let room = Room::new("path-pairs");
    let lab = "duration_s = 8.0\nclock = 'virtual'\n[traffic]\nclients = ['198.18.0.0/16']\n\
               servers = ['198.19.0.0/17']\n[path]\nfaults = 'delay=2ms,delay_trace_back=trace.csv'\n\
               [[path.pair]]\nclient = '198.18.0.1/32'\nfaults = 'delay=30ms'\n\
               [[path.pair]]\nserver = '198.19.0.1/32'\nfaults = 'delay=10ms,cut=2s-4s'\n";
    std::fs::create_dir(room.path("folder")).expect("a folder");
    room.write("folder/LAB.toml", lab);
    room.write("folder/trace.csv", "seconds,delay_ms\n0,3\n4,6\n");
    let result = room.counted(&["lab", "run", "folder/LAB.toml", "--json", "-o", "run"]);
    let faults = result["path"]["faults"].as_str().expect("a text");
    assert_eq!(faults, "delay=2ms,delay_trace_back=trace.csv; 2 pairs of their own");
    let truth = log(&room, "run/path.ndjson");
    let ms = |ns: i64| ns / 1_000_000;
    let mut met = [0; 3];
    for packet in &truth {
        met[packet.path as usize] += 1;
        let is_cut = packet.path == 2 && (2_000..4_000).contains(&ms(packet.came_ns));
        assert_eq!(packet.lost, is_cut, "{packet:?}");
        let Some(left_ns) = packet.left_ns else { continue };
        let wanted = match (packet.path, packet.direction, packet.came_ns) {
            (1, ..) => 30,
            (2, ..) => 10,
            (_, 0, _) => 2,
            (_, _, ..4_000_000_000) => 3,
            _ => 6,
        };
        assert_eq!(ms(left_ns - packet.came_ns), wanted, "{packet:?}");
    }
    assert!(met.iter().all(|&packets| packets > 20), "{met:?}");
    // The run's results repeat it, its trace included.
    let again = room.counted(&["lab", "run", "run/lab.toml", "--json", "-o", "again"]);
    assert_eq!(again["path"]["received"], result["path"]["received"]);
    assert_eq!(again["packets"], result["packets"]);
}

#[test]
fn a_path_and_a_fault_box_have_chances_of_their_own() {
    let room = Room::new("path-fault");
    let faults = "loss=0.05";
    let result = run(&room, "run", &[&VIRTUAL, &V4, &["--fault", faults, "--path", faults]]);
    assert_eq!(result["packets"]["lost"], result["fault"]["lost"]);
    let (fault, path) = (log(&room, "run/fault.ndjson"), log(&room, "run/path.ndjson"));
    let lost = |truth: &[PacketTruth]| -> Vec<u64> {
        let lost = truth.iter().filter(|packet| packet.direction == 0 && packet.lost);
        lost.map(|packet| packet.number).take(20).collect()
    };
    assert!(lost(&fault).len() == 20 && lost(&fault) != lost(&path));
}

#[test]
fn an_empty_path_and_a_missing_trace_are_refused() {
    let room = Room::new("path-refused");
    let line = room.refused(&["lab", "run", "--path", ""]);
    assert!(line.contains("[path] says nothing to do"), "{line}");
    room.write("empty.toml", "[path]\n");
    let line = room.refused(&["lab", "run", "empty.toml"]);
    assert!(line.contains("[path] says nothing to do"), "{line}");
    let line = room.refused(&["lab", "run", "--path", "delay_trace=missing.csv"]);
    assert!(line.contains("missing.csv"), "{line}");
    let line = room.refused(&["lab", "run", "--path", "lose=x"]);
    assert!(line.contains("numbers of packets from 0"), "{line}");
}
