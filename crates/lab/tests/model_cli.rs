//! `nilometer model` as a user meets it: models written, shown and compared.

mod common;

use common::{Room, capture};
use nilometer_lab::cli::VERSION;
use serde_json::Value;

/// The distances of `model compare A B --json`, by law and metric, with their ratios.
fn distances(room: &Room, a: &str, b: &str) -> Vec<(String, f64, Option<f64>)> {
    let compared = room.counted(&["model", "compare", a, b, "--json"]);
    let list = compared["distances"].as_array().expect("distances").iter();
    list.map(|d| {
        let word = |key: &str| d[key].as_str().expect("text").to_owned();
        let distance = d["distance"].as_f64().expect("a distance");
        assert!(d["floor"].as_f64().is_some_and(|floor| floor >= 0.0), "{d}");
        (format!("{} {}", word("name"), word("metric")), distance, d["ratio"].as_f64())
    })
    .collect()
}

#[test]
fn the_embedded_sample_becomes_a_model_that_says_what_it_is() {
    let room = Room::new("embedded");
    let shown = room.done(&["model", "embedded", "-o", "model.json"]);
    let model = room.json("model.json");
    assert_eq!(model["format"], "nilometer-model/1");
    assert_eq!(model["tool"], format!("nilometer {VERSION}"));
    assert_eq!(model["origin"]["synthetic"], true);
    assert_eq!(room.done(&["model", "show", "model.json"]), shown);
    assert!(shown.contains("(synthetic)"), "{shown}");
    for word in ["flows", "file size", "inter-connection", "sources", "destinations", "left out"] {
        assert!(shown.lines().any(|line| line.trim().starts_with(word)), "{word}: {shown}");
    }
    assert_eq!(room.counted(&["model", "show", "model.json", "--json"]), model);
    let intervals = model["intervals"].as_array().expect("intervals");
    let bytes: Vec<_> = intervals.iter().map(|i| i["bytes"].as_u64().expect("bytes")).collect();
    assert_eq!(bytes.len(), 3);
    let (least, most) = (bytes.iter().min().expect("three"), bytes.iter().max().expect("three"));
    assert!(*most >= 2 * least, "the default volumes differ twofold: {bytes:?}");
    let coverage = &model["coverage"];
    let left = coverage["left_out"].as_object().expect("reasons").values();
    let flows = |value: &Value| value["flows"].as_u64().expect("a count");
    let all: u64 =
        left.map(flows).sum::<u64>() + coverage["flows_in_model"].as_u64().expect("a count");
    assert_eq!(coverage["flows"], all, "every flow is in the model or left out for a reason");
}

#[test]
fn a_model_is_never_overwritten_unasked() {
    let room = Room::new("overwritten");
    room.write("small.pcap", capture(60, |_| 500));
    assert!(room.refused(&["model", "small.pcap"]).contains("--output"));
    room.write("model.json", "mine");
    let line = room.refused(&["model", "small.pcap", "-o", "model.json"]);
    assert!(line.contains("model.json exists already") && line.contains("--force"), "{line}");
    assert_eq!(room.read("model.json"), "mine");
    let line = room.refused(&["model", "small.pcap", "-o", "model.json", "--force"]);
    assert!(line.contains("model.json is another kind of file"), "{line}");
    let line = room.refused(&["model", "small.pcap", "-o", "small.pcap", "--force"]);
    assert!(line.contains("small.pcap is an input"), "{line}");
    room.write("model.json", "{}");
    room.done(&["model", "small.pcap", "-o", "model.json", "--force"]);
    assert_eq!(room.json("model.json")["origin"]["synthetic"], false);
    let line = room.refused(&["model", "embedded", "small.pcap", "-o", "other.json"]);
    assert!(line.contains("embedded"), "{line}");
}

/// 60 connections of 500 bytes each from hosts of 198.51.100.0/24 to hosts of 203.0.113.0/24.
#[test]
fn addresses_are_ranks_unless_asked_for() {
    let room = Room::new("addresses");
    room.write("small.pcap", capture(60, |_| 500));
    let model = room.counted(&["model", "small.pcap", "-o", "ranks.json", "--json"]);
    assert_eq!(room.json("ranks.json"), model);
    let written = room.read("ranks.json");
    assert!(!written.contains("198.51.100.") && !written.contains("203.0.113."), "{written}");
    assert_eq!(model["sources"]["counts"].as_array().map(Vec::len), Some(5));
    assert_eq!(model["destinations"]["counts"].as_array().map(Vec::len), Some(3));
    room.done(&["model", "small.pcap", "-o", "kept.json", "--keep-addresses"]);
    let written = room.read("kept.json");
    assert!(written.contains("198.51.100.1") && written.contains("203.0.113.3"), "{written}");
    room.done(&["generate", "plan", "kept.json"]);
}

#[test]
fn sizes_are_payload_to_the_byte() {
    let room = Room::new("sizes");
    room.write("small.pcap", capture(60, |number| 1_000 + 10 * number as usize));
    let model = room.counted(&["model", "small.pcap", "-o", "model.json", "--json"]);
    let payload: u64 = (0..60).map(|number| 1_000 + 10 * number).sum();
    assert_eq!(model["coverage"]["payload_in_model"], payload);
    assert_eq!(model["coverage"]["flows_in_model"], 60);
    let intervals = model["intervals"].as_array().expect("intervals").iter();
    assert_eq!(intervals.map(|i| i["bytes"].as_u64().expect("bytes")).sum::<u64>(), payload);
}

#[test]
fn a_model_is_at_no_distance_from_itself() {
    let room = Room::new("itself");
    room.done(&["model", "embedded", "-o", "a.json"]);
    let same = distances(&room, "a.json", "a.json");
    for law in ["file_size", "inter_connection", "source_rank", "destination_rank"] {
        assert!(same.iter().any(|(name, ..)| name.starts_with(law)), "{law}: {same:?}");
    }
    for (name, distance, _) in &same {
        assert!(*distance < 1e-9, "{name}: {distance}");
    }
    let shown = room.done(&["model", "compare", "a.json", "a.json"]);
    assert!(shown.starts_with("law") && shown.contains("floor"), "{shown}");
}

/// Sizes doubled: the laws of sizes are far apart, every other law is where it was.
#[test]
fn a_law_that_moved_is_found_and_no_other() {
    let room = Room::new("moved");
    room.done(&["model", "embedded", "-o", "a.json"]);
    let mut model = room.json("a.json");
    for knot in model["file_size"]["knots"].as_array_mut().expect("knots") {
        let size = knot[1].as_f64().expect("bytes");
        knot[1] = (2.0 * size).into();
    }
    room.write("b.json", model.to_string());
    for (name, distance, ratio) in distances(&room, "a.json", "b.json") {
        if name.starts_with("file_size") {
            assert!(ratio.is_some_and(|ratio| ratio > 2.0), "{name}: {distance}, {ratio:?}");
        } else {
            assert!(distance < 1e-9, "{name}: {distance}");
        }
    }
    let seeded = |seed| room.done(&["model", "compare", "a.json", "b.json", "--seed", seed]);
    assert_eq!(seeded("4"), seeded("4"), "floors repeat with their seed");
}
