//! `nilometer compare` of everything it reads: exports of a capture in many formats, by ours and by nfpcapd's meter,
//! models that keep connections, and what is none of these.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nilometer_files::input::observe::observe;
use nilometer_traffic::model::Origin;
use nilometer_traffic::vector_model::{self, VectorModelOptions};
use nilometer_traffic::vectors::Vectors;
use serde_json::Value;

use crate::common::Room;

const CAPTURE: &str = "in.pcap";
const SECOND_NS: u64 = 1_000_000_000;
/// Laws that flow records do not show.
const BESIDE_RECORDS: [&str; 7] = [
    "exchanges",
    "first_speaker",
    "think_time",
    "packets_per_second",
    "bytes_per_second",
    "packet_size",
    "scaling",
];
/// Records of a message of IPFIX.
const TOGETHER: usize = 20;

/// A room with the embedded sample in it, and its flow records as a table in CSV.
fn room(name: &str) -> Room {
    let room = Room::new(name);
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/sample.pcap.gz");
    let unpacked = Command::new("gzip").arg("-dc").arg(sample).output().expect("gzip runs");
    room.write(CAPTURE, unpacked.stdout);
    room.done(&["flows", CAPTURE, "--decode-only", "-o", "table.csv"]);
    room
}

fn compared(room: &Room, original: &str, copy: &str) -> Value {
    room.counted(&["compare", original, copy, "--json"])
}

/// The laws of a comparison: name, distance, verdict.
fn laws(compared: &Value) -> Vec<(&str, f64, &str)> {
    let law = |law: &'_ Value| law["distance"].as_f64().expect("a distance");
    let list = compared["likeness"].as_array().expect("laws").iter();
    list.map(|one| (word(&one["name"]), law(one), word(&one["verdict"]))).collect()
}

fn word(value: &Value) -> &str {
    value.as_str().expect("a text")
}

fn not_measured(compared: &Value) -> Vec<&str> {
    compared["not_measured"].as_array().expect("laws").iter().map(word).collect()
}

/// Asserts that all laws are the same, and that `reported` of them are reported.
#[track_caller]
fn same(compared: &Value, reported: usize) {
    near(compared, reported, 1e-9);
}

/// Asserts that all laws are alike, that `reported` of them are reported, and that none is farther apart than
/// `most`.
#[track_caller]
fn near(compared: &Value, reported: usize, most: f64) {
    let laws = laws(compared);
    assert_eq!(laws.len(), reported);
    for (name, distance, verdict) in laws {
        assert!(distance < most && verdict == "alike", "{name}: {distance}, {verdict}");
    }
}

/// Messages of IPFIX with the records of a table, with stamps in milliseconds and without payload counts.
fn ipfix(table: &str) -> Vec<u8> {
    let message = |number: usize, id: u16, body: &[u8]| {
        let set = [&id.to_be_bytes()[..], &(4 + body.len() as u16).to_be_bytes(), body].concat();
        let length = (16 + set.len() as u16).to_be_bytes();
        let number = (number as u32).to_be_bytes();
        [&[0, 10][..], &length, &1_795_649_600u32.to_be_bytes(), &number, &[0; 4], &set].concat()
    };
    let beside = [(7, 2), (11, 2), (4, 1), (2, 8), (1, 8), (6, 2), (136, 1), (152, 8), (153, 8)];
    let template = |id: u16, ends: [(u16, u16); 2]| {
        let fields = ends.into_iter().chain(beside);
        let count = 2 + beside.len() as u16;
        let words = [id, count].into_iter().chain(fields.flat_map(|(id, bytes)| [id, bytes]));
        words.flat_map(u16::to_be_bytes).collect::<Vec<u8>>()
    };
    let mut file = message(0, 2, &template(256, [(8, 4), (12, 4)]));
    file.extend(message(0, 2, &template(257, [(27, 16), (28, 16)])));
    let records: Vec<(u16, Vec<u8>)> = table.lines().skip(1).map(ipfix_record).collect();
    let mut number = 0;
    for of_version in records.chunk_by(|one, other| one.0 == other.0) {
        for some in of_version.chunks(TOGETHER) {
            let body: Vec<u8> = some.iter().flat_map(|record| record.1.clone()).collect();
            file.extend(message(number, some[0].0, &body));
            number += some.len();
        }
    }
    file
}

/// A line of a table as a record, and its template.
fn ipfix_record(line: &str) -> (u16, Vec<u8>) {
    let fields: Vec<&str> = line.split(',').collect();
    let number = |at: usize| fields[at].parse::<u64>().expect("a number");
    let mut record = Vec::new();
    let mut template = 256;
    for at in [2, 3] {
        match fields[at].parse().expect("an address") {
            IpAddr::V4(address) => record.extend(address.octets()),
            IpAddr::V6(address) => {
                template = 257;
                record.extend(address.octets());
            }
        }
    }
    for at in [4, 5] {
        record.extend((number(at) as u16).to_be_bytes());
    }
    record.push(number(6) as u8);
    for at in [7, 8] {
        record.extend(number(at).to_be_bytes());
    }
    record.extend((number(9) as u16).to_be_bytes());
    record.push(number(10) as u8);
    for at in [0, 1] {
        record.extend((number(at) / 1_000_000).to_be_bytes());
    }
    (template, record)
}

/// A table with a change in each line; fields are in the order of the header.
fn altered(table: &str, alter: impl Fn(&mut Vec<String>)) -> String {
    let mut lines = table.lines();
    let mut text = format!("{}\n", lines.next().expect("a header"));
    for line in lines {
        let mut fields = line.split(',').map(str::to_owned).collect();
        alter(&mut fields);
        text += &format!("{}\n", fields.join(","));
    }
    text
}

/// What nfpcapd, which has a meter of its own, makes of the capture.
fn by_nfpcapd(room: &Room) -> Option<String> {
    std::fs::create_dir_all(room.path("nf")).expect("a folder");
    let mut command = Command::new("nfpcapd");
    command.arg("-r").arg(room.path(CAPTURE)).arg("-w").arg(room.path("nf"));
    if command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        println!("skipped: nfpcapd is not installed");
        return None;
    }
    let mut found = std::fs::read_dir(room.path("nf")).expect("a folder");
    let file: PathBuf = found.next().expect("a file").expect("an entry").path();
    Some(file.to_str().expect("a name").to_owned())
}

#[test]
fn exports_of_one_capture_compare_alike_in_any_format() {
    let room = room("compared-exports");
    for name in ["table.parquet", "table.ndjson"] {
        room.done(&["flows", "table.csv", "--decode-only", "-o", name]);
    }
    room.write("table.ipfix", ipfix(&room.read("table.csv")));
    let mut exports: Vec<String> =
        ["table.csv", "table.parquet", "table.ndjson", "table.ipfix"].map(str::to_owned).into();
    exports.extend(by_nfpcapd(&room));
    for (at, export) in exports.iter().enumerate() {
        for other in [CAPTURE, &exports[(at + 1) % exports.len()]] {
            let compared = compared(&room, other, export);
            println!("{other} and {export}");
            same(&compared, 14);
            assert_eq!(not_measured(&compared), BESIDE_RECORDS);
            for side in ["original", "copy"] {
                assert_eq!(compared[side]["compared_as"], "flow records");
                assert_eq!(compared[side]["connections"], 1_532);
            }
            assert_eq!(compared["octets_ratio"], 1.0);
        }
    }
}

/// Sizes half as large again, and two clients in the place of one.
#[test]
fn an_altered_export_differs_in_its_own_laws() {
    let room = room("compared-altered");
    let table = room.read("table.csv");
    let larger = altered(&table, |fields| {
        for at in [8, 11] {
            if let Ok(bytes) = fields[at].parse::<u64>() {
                fields[at] = (bytes * 3 / 2).to_string();
            }
        }
    });
    let fewer = altered(&table, |fields| {
        for address in &mut fields[2..4] {
            if let Some((network, host)) = address.rsplit_once('.') {
                let host: u8 = host.parse().expect("a byte");
                *address = format!("{network}.{}", host & !1);
            }
        }
    });
    room.write("larger.csv", larger);
    room.write("fewer.csv", fewer);
    let sizes = ["size_asked", "size_asked_tail", "size_answered", "size_answered_tail"];
    let of_pairs = ["gap", "gap_correlation", "session_arrivals"];
    let hosts = ["sources", "destinations", "pairs", "bytes_by_host"];
    for (copy, differing, others) in
        [("larger.csv", &sizes[..], &["bytes_by_size"][..]), ("fewer.csv", &hosts[..3], &of_pairs)]
    {
        for original in [CAPTURE, "table.csv"] {
            let compared = compared(&room, original, copy);
            for (name, distance, verdict) in laws(&compared) {
                println!("{copy} {name} {distance} {verdict}");
                let is_touched = others.contains(&name) || name == "bytes_by_host";
                match differing.contains(&name) {
                    true => assert_eq!(verdict, "differs", "{copy}: {name} {distance}"),
                    false => assert!(is_touched || distance < 1e-9, "{copy}: {name} {distance}"),
                }
            }
            let status = room.run(&["compare", original, copy, "--check"]).status;
            assert_eq!(status.code(), Some(1));
        }
    }
}

/// A model with the vectors of all connections of the capture.
fn model_of(room: &Room) -> String {
    let (observed, summary) = observe(&[room.path(CAPTURE)], &mut |_| {}).expect("a capture");
    let begins_ns = observed.connections[0].start_ns;
    let vectors =
        Vectors::of(&observed.connections, [begins_ns; 2], summary.seconds.ceil(), 60 * SECOND_NS);
    let pool = |text: &str| vec![text.parse().expect("a prefix")];
    let options = VectorModelOptions {
        tool: "a test".to_owned(),
        origin: Origin { description: "a test".to_owned(), synthetic: true, inputs: Vec::new() },
        bound_s: 60.0,
        pools: [pool("198.18.0.0/24"), pool("198.19.0.0/24")],
        other_octets: observed.beside_tcp_octets(),
    };
    serde_json::to_string_pretty(&vector_model::model(vectors, options)).expect("JSON")
}

#[test]
fn a_model_that_keeps_its_connections_is_held_against_its_capture() {
    let room = room("compared-model");
    room.write("model.json", model_of(&room));
    let against_packets = compared(&room, CAPTURE, "model.json");
    same(&against_packets, 17);
    assert_eq!(not_measured(&against_packets), BESIDE_RECORDS[3..]);
    assert_eq!(against_packets["copy"]["compared_as"], "connection vectors");
    assert_eq!(against_packets["volume_ratio"], 1.0);
    same(&compared(&room, "model.json", "model.json"), 17);
    // A record lasts until the last straggler, a vector until the FIN; a vector's milliseconds begin with
    // its part; the two record in different ways which end closed a connection.
    let against_records = compared(&room, "table.csv", "model.json");
    near(&against_records, 13, 0.02);
    assert!(not_measured(&against_records).contains(&"endings"));
    room.write("table.ipfix", ipfix(&room.read("table.csv")));
    let without_payload = compared(&room, "model.json", "table.ipfix");
    near(&without_payload, 8, 0.02);
    assert!(not_measured(&without_payload).contains(&"size_asked"));
}

#[test]
fn unmeasured_laws_are_named_and_incomparable_inputs_are_refused() {
    let room = room("compared-refused");
    let shown = room.done(&["compare", CAPTURE, "table.csv", "-o", "page.html"]);
    let line = "Not measured, because the inputs do not contain them: exchanges, first speaker, think time, packets \
                per second, bytes per second, packet size, scaling.";
    assert!(shown.contains(line), "{shown}");
    assert!(room.read("page.html").contains(line));
    assert!(not_measured(&compared(&room, CAPTURE, CAPTURE)).is_empty());

    room.done(&["model", "table.csv", "-o", "laws.json"]);
    let table = room.read("table.csv");
    room.write("sampled.csv", altered(&table, |fields| fields[13] = "100".to_owned()));
    room.write("udp.csv", altered(&table, |fields| fields[6] = "17".to_owned()));
    room.write("torn.json", "{\"format\": \"nilometer-model/3\", \"too");
    std::fs::create_dir(room.path("run")).expect("a folder");
    room.write("run/result.json", "{}");
    for (copy, why) in [
        ("laws.json", "`nilometer model compare`"),
        ("sampled.csv", "one packet in 100"),
        ("udp.csv", "holds no TCP connection"),
        ("torn.json", "torn.json"),
        ("run", "has nothing to compare"),
        ("nowhere.pcap", "nowhere.pcap"),
    ] {
        for both in [[CAPTURE, copy], [copy, "table.csv"]] {
            let refusal = room.refused(&["compare", both[0], both[1]]);
            assert!(refusal.contains(why), "{both:?}: {refusal}");
        }
    }
    room.done(&["flows", "table.csv", "-o", "flows.parquet"]);
    std::fs::rename(room.path("flows.parquet"), room.path("run/flows.parquet")).expect("renamed");
    let directory = compared(&room, "table.csv", "run");
    same(&directory, 14);
    assert_eq!(directory["copy"]["inputs"][0], "run/flows.parquet");
}
