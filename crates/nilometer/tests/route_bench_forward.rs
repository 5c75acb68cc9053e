//! `nilometer route bench forward` as scripts use it: the points, sums, and refusals.

mod common;

use common::Room;
use nilometer_linux::privilege::{self, Privilege};
use serde_json::{Value, json};

const TINY: [&str; 14] = [
    "route",
    "bench",
    "forward",
    "--rates",
    "5000,50000",
    "--frame-bytes",
    "64,1518",
    "--seconds",
    "0.05",
    "--rounds",
    "2",
    "--rounds-max",
    "2",
    "--json",
];

fn number(point: &Value, key: &str) -> f64 {
    point[key].as_f64().unwrap_or_else(|| panic!("{key} in {point}"))
}

/// Checks the frames of our router by path: past the pipeline only in `offloaded`; returns how many
/// those were.
fn past_the_pipeline(point: &Value) -> f64 {
    if point["dut"] != "nilometer" {
        assert!(point["paths"].is_null(), "{point}");
        return 0.0;
    }
    let [pipeline, shortcut] = ["pipeline", "shortcut"].map(|way| number(&point["paths"], way));
    let is_offloaded = point["variant"] == "offloaded";
    assert!(pipeline + shortcut > 0.0 && (is_offloaded || shortcut == 0.0), "{point}");
    shortcut
}

#[test]
fn every_device_forwards_and_nothing_comes_from_nowhere() {
    if privilege::privilege() != Privilege::Root {
        println!("skipped route bench forward: it needs root");
        return;
    }
    let room = Room::new("route-bench-forward");
    let words = [&TINY[..], &["--out", "page"]].concat();
    let output = room.command(&words).output().expect("it runs");
    let error = String::from_utf8_lossy(&output.stderr);
    // Two rounds are too few for a price, and the command says so.
    assert_eq!(output.status.code(), Some(1), "{error}");
    let result: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let points = result["points"].as_array().expect("a list");
    let of = |dut: &str, variant: &str| {
        points.iter().filter(|p| p["dut"] == dut && p["variant"] == variant).count()
    };
    assert_eq!(of("nilometer", "complete"), 4);
    for variant in ["ordered", "no_dq", "no_lookup", "no_classifier", "offloaded"] {
        assert_eq!(of("nilometer", variant), 2, "{variant}");
    }
    assert_eq!(of("linux", "complete"), 4);
    let has_tools = !error.contains("nftables is left out");
    assert_eq!(of("nftables", "complete"), if has_tools { 4 } else { 0 }, "{error}");
    for point in points {
        let (offered, forwarded) = (number(point, "offered_pps"), number(point, "forwarded_pps"));
        assert!(offered > 0.0 && forwarded <= offered * 1.000_001, "{point}");
        assert!(point["frame_bytes"] == 64 || point["frame_bytes"] == 1_518, "{point}");
        assert!(number(point, "cpu_seconds") > 0.0, "{point}");
        assert_eq!(
            (&point["told"], &point["packets_per_cpu_second"]),
            (&json!(false), &Value::Null)
        );
        let why = point["not_told"].as_str().expect("a reason");
        assert!(why.contains("too few") || why.contains("disturbed"), "{why}");
        assert_eq!(number(point, "rounds") + number(point, "rounds_discarded"), 2.0, "{point}");
    }
    assert!(points.iter().map(past_the_pipeline).sum::<f64>() > 0.0, "no flow was offloaded");
    assert_eq!((&result["points_told"], &result["confidence"]), (&json!(0), &json!(0.95)));
    assert!(error.contains("are too uncertain to report"), "{error}");
    for dut in ["nilometer", "linux"] {
        let own = points.iter().filter(|point| point["dut"] == dut);
        assert!(own.map(|point| number(point, "forwarded_pps")).sum::<f64>() > 0.0, "{dut}");
    }
    let page = room.read("page/forward.html");
    for figure in ["figure10", "figure12", "figure13", "no_classifier", "not told"] {
        assert!(page.contains(figure), "{figure} is not on the page");
    }
    assert_eq!(room.json("page/forward.json"), result);
}

#[test]
fn invalid_options_are_refused_in_one_line() {
    let room = Room::new("route-bench-forward-refused");
    let cases: [(&[&str], &str); 6] = [
        (&["--frame-bytes", "63"], "63"),
        (&["--seconds", "0"], "--seconds"),
        (&["--variants", "no_ports"], "no_ports"),
        (&["--rounds", "9", "--rounds-max", "8"], "--rounds-max"),
        (&["--against", "no-such.json"], "no-such.json"),
        (&["--others-max", "1.5"], "--others-max"),
    ];
    for (words, message) in cases {
        let words = [&["route", "bench", "forward"], words].concat();
        let output = room.command(&words).output().expect("it runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(message) && error.trim_end().lines().count() == 1, "{error}");
    }
}
