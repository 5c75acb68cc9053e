//! `nilometer model` as a user sees it: models written, shown and compared.

use crate::common;
use std::net::Ipv4Addr;

use common::{Room, capture, text};
use nilometer::cli::VERSION;
use nilometer_flow::netflow5::{self, Header};
use nilometer_flow::record::{TCP, tcp_flags};
use nilometer_flow::{EndReason, FlowKey, FlowRecord};
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
fn the_embedded_sample_becomes_a_model_that_states_its_origin() {
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

/// Twice the sessions in the file are twice the connections and the bytes; connections drive any other model.
#[test]
fn sessions_drive_the_plan_of_harpoons_own_model() {
    let room = Room::new("driven");
    let shown = room.done(&["model", "embedded", "--harpoon", "-o", "harpoon.json"]);
    assert!(shown.lines().any(|line| line.starts_with("driven by ")), "{shown}");
    room.done(&["model", "embedded", "-o", "whole.json"]);
    let planned = |name: &str| {
        let mut model = room.json(name);
        let plan = |file: &str| {
            let plan = room.counted(&["generate", "plan", file, "--json"]);
            ["connections", "bytes"].map(|key| plan[key].as_f64().expect("a number"))
        };
        let before = plan(name);
        for interval in model["intervals"].as_array_mut().expect("intervals") {
            interval["sessions"] = (2.0 * interval["sessions"].as_f64().expect("sessions")).into();
        }
        room.write("twice.json", model.to_string());
        let after = plan("twice.json");
        let driver = model["generation"]["driver"].as_str().map(str::to_owned);
        (driver, [after[0] / before[0], after[1] / before[1]])
    };
    let (driver, ratios) = planned("harpoon.json");
    assert_eq!(driver.as_deref(), Some("sessions"));
    assert!(ratios.iter().all(|ratio| (ratio / 2.0 - 1.0).abs() < 0.03), "{ratios:?}");
    assert_eq!(planned("whole.json"), (None, [1.0, 1.0]));
}

#[test]
fn a_model_is_overwritten_with_force_only() {
    let room = Room::new("overwritten");
    room.write("small.pcap", capture(60, |_| 500));
    assert!(room.refused(&["model", "small.pcap"]).contains("--output"));
    room.write("model.json", "mine");
    let line = room.refused(&["model", "small.pcap", "-o", "model.json"]);
    assert!(line.contains("model.json exists already") && line.contains("--force"), "{line}");
    assert_eq!(room.read("model.json"), "mine");
    let line = room.refused(&["model", "small.pcap", "-o", "model.json", "--force"]);
    assert!(line.contains("model.json is a file of another kind"), "{line}");
    let line = room.refused(&["model", "small.pcap", "-o", "small.pcap", "--force"]);
    assert!(line.contains("small.pcap is an input"), "{line}");
    for json in ["{}", "{\n  \"name\": \"a package\"\n}\n"] {
        room.write("model.json", json);
        let line = room.refused(&["model", "small.pcap", "-o", "model.json", "--force"]);
        assert!(line.contains("model.json is a file of another kind"), "{line}");
    }
    std::fs::remove_file(room.path("model.json")).expect("it is there");
    room.done(&["model", "embedded", "-o", "model.json"]);
    room.done(&["model", "small.pcap", "-o", "model.json", "--force"]);
    assert_eq!(room.json("model.json")["origin"]["synthetic"], false);
    let line = room.refused(&["model", "embedded", "small.pcap", "-o", "other.json"]);
    assert!(line.contains("embedded"), "{line}");
}

/// 60 connections of 500 bytes each from hosts of 198.51.100.0/24 to hosts of 203.0.113.0/24.
#[test]
fn addresses_are_ranks_by_default() {
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
    let head = shown.lines().find(|line| line.starts_with("model ")).expect("named columns");
    assert_eq!(head.matches("a.json").count(), 2, "{head}");
    assert!(shown.lines().all(|line| line.chars().count() <= 60), "{shown}");
    room.write("a-name-longer-than-its-column.json", room.read("a.json"));
    let long = room.done(&["model", "compare", "a-name-longer-than-its-column.json", "a.json"]);
    assert!(long.contains(" …han-its-column.json "), "{long}");
}

/// Sizes doubled: the laws of sizes are far apart, every other law is unchanged.
#[test]
fn only_the_changed_law_is_found_to_differ() {
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

const EXPORTED_S: u32 = 1_700_000_300;

/// Records of 3,000 flows from a NetFlow v5 exporter that counts one packet in `interval`: a counter that
/// runs over the packets of all flows selects them.
fn sampled_export(interval: u16, length: impl Fn(u32) -> u64) -> Vec<u8> {
    let every = u64::from(interval.max(1));
    let mut wheel = 0;
    let mut records = Vec::new();
    for number in 0..3_000 {
        let sampled = (0..length(number)).filter(|at| (wheel + at) % every == 0);
        let (mut packets, mut flags) = (0, 0);
        for at in sampled {
            packets += 1;
            flags |= if at == 0 { tcp_flags::SYN } else { tcp_flags::ACK };
            flags |= if at + 1 == length(number) { tcp_flags::FIN } else { 0 };
        }
        wheel += length(number);
        let start_ns =
            (u64::from(EXPORTED_S) - 300) * 1_000_000_000 + u64::from(number) * 90_000_000;
        let key = FlowKey {
            source: Ipv4Addr::new(198, 19, 0, (number % 7) as u8).into(),
            destination: Ipv4Addr::new(198, 18, 0, (number % 31) as u8).into(),
            source_port: 443,
            destination_port: 2_000 + number as u16,
            protocol: TCP,
        };
        let record = FlowRecord {
            key,
            start_ns,
            end_ns: start_ns + 1_000_000_000,
            packets,
            octets: 900 * packets,
            tcp_flags: flags,
            payload_octets: None,
            opened: None,
            end_reason: EndReason::Unknown,
            sampling_interval: interval.into(),
        };
        records.extend((packets > 0).then_some(record));
    }
    let mut export = Vec::new();
    for (at, part) in records.chunks(netflow5::RECORDS_MAX).enumerate() {
        let header = Header {
            uptime_ms: 900_000,
            unix_secs: EXPORTED_S,
            unix_nsecs: 0,
            flow_sequence: (at * netflow5::RECORDS_MAX) as u32,
            engine_type: 0,
            engine_id: 0,
            sampling_mode: u8::from(interval > 1),
            sampling_interval: interval,
        };
        export.extend(netflow5::encode(&header, part).expect("it fits"));
    }
    export
}

#[test]
fn sampled_records_say_how_many_flows_there_were_and_how_long() {
    let room = Room::new("sampled");
    // Seventeen of twenty flows have 3 packets, the others 83: 15 in the mean.
    let length = |number: u32| if number % 20 < 17 { 3 } else { 83 };
    for (name, interval, method) in [("all.nf5", 0, "counted"), ("some.nf5", 10, "syn-joint-em")] {
        room.write(name, sampled_export(interval, length));
        let model = room.counted(&["model", name, "-o", "model.json", "--force", "--json"]);
        assert_eq!(model["sampling_interval"], interval.max(1));
        let lengths = &model["flow_lengths"];
        assert_eq!(lengths["method"], method);
        let (count, mean) = (&model["flow_count"], &model["mean_length_packets"]);
        for (value, interval, truth) in [
            (count, &lengths["flow_count_interval"], 3_000.0),
            (mean, &lengths["mean_length_interval"], 15.0),
        ] {
            let of = |value: &Value| value.as_f64().expect("a number");
            assert!(of(&interval[0]) <= truth && truth <= of(&interval[1]), "{name}: {value}");
            let off = (of(value) / truth - 1.0).abs();
            assert!(off < if interval[0] == interval[1] { 1e-9 } else { 0.1 }, "{name}: {value}");
        }
        let shown = room.done(&["model", "show", "model.json"]);
        let line = shown.lines().find(|line| line.starts_with("TCP flows")).expect("a line");
        assert!(line.contains(if interval > 0 { "1 packet in 10" } else { "counted" }), "{line}");
        room.done(&["generate", "plan", "model.json"]);
    }
    // Flags without a SYN give no count of flows, and one line says so; without flags there is a lower bound.
    let flagged = |flags: u8| {
        let mut export = sampled_export(10, length);
        for datagram in export.chunks_mut(netflow5::HEADER_BYTES + 30 * netflow5::RECORD_BYTES) {
            for record in datagram[netflow5::HEADER_BYTES..].chunks_mut(netflow5::RECORD_BYTES) {
                record[37] = flags;
            }
        }
        export
    };
    room.write("open.nf5", flagged(0x10));
    let line = room.refused(&["model", "open.nf5", "-o", "other.json"]);
    assert!(line.contains("none of") && line.contains("has a SYN"), "{line}");
    room.write("silent.nf5", flagged(0));
    let shown = room.run(&["model", "silent.nf5", "-o", "other.json"]);
    let line = |name: &str| {
        let text = text(&shown.stdout);
        text.lines().find(|line| line.starts_with(name)).map(str::to_owned).expect(name)
    };
    assert!(line("TCP flows").contains("at least"), "{}", line("TCP flows"));
    assert!(line("  of sampled records").contains("not identified"), "{}", line("TCP flows"));
    assert!(text(&shown.stderr).contains("not identified"), "{}", text(&shown.stderr));
}

/// Sizes, times and rates are shown in the unit in which they are small numbers.
#[test]
fn a_model_is_shown_in_readable_units() {
    let room = Room::new("units");
    room.write("small.pcap", capture(60, |_| 22_045));
    let shown = room.done(&["model", "small.pcap", "-o", "model.json"]);
    let line = |name: &str| {
        let line = shown.lines().find(|line| line.starts_with(name));
        line.unwrap_or_else(|| panic!("{name}: {shown}")).to_owned()
    };
    assert!(line("original").contains("5.92 s in 3 intervals"), "{shown}");
    assert!(line("flows").ends_with("60 of 1.32 MB payload"), "{shown}");
    assert!(line("file size").contains("p50 22 kB, ") && line("file size").contains("mean 22 kB"));
    assert!(line("inter-connection").contains("p50 1.5 s, "), "{shown}");
    assert!(line("inter-connection").ends_with("bound 60 s"), "{shown}");
    assert!(line("round trips").contains(" ms, "), "{shown}");
    let first = line("from 0 s");
    assert!(first.contains("20 flows (10 per second), 441 kB (1.79 Mbit/s)"), "{first}");
}
