//! Flow records in text, read and written from the command line.

use crate::common;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;

use common::{BINARY, Room, capture};
use lz4_flex::frame::{BlockSize, FrameEncoder, FrameInfo};
use serde_json::Value;

fn counted(room: &Room, arguments: &[&str]) -> Value {
    let output = Command::new(BINARY)
        .args(["flows", "--json"])
        .args(arguments)
        .current_dir(room.path(""))
        .output()
        .expect("the binary runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {stderr}");
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

/// What must not change from format to format.
fn sums(counts: &Value) -> Vec<Value> {
    let names = ["flow_records", "flows_after_repair", "flow_packets", "flow_bytes", "seconds"];
    let more = ["tcp_connections", "tcp_connections_with_syn_and_fin", "repairs"];
    names.iter().chain(&more).map(|name| counts[*name].clone()).collect()
}

#[test]
fn flow_tables_round_trip_through_text() {
    let room = Room::new("text-out");
    room.write("in.pcap", capture(60, |_| 500));
    let mut first = None;
    let kinds = [("a.parquet", "nilometer-flows/1"), ("b.csv", "CSV"), ("c.ndjson", "JSON lines")];
    let mut before = "in.pcap";
    for (name, format) in
        kinds.into_iter().chain([("d.csv", "CSV"), ("e.parquet", "nilometer-flows/1")])
    {
        counted(&room, &[before, "-o", name]);
        let counts = counted(&room, &[name]);
        assert_eq!(counts["format"], format);
        assert_eq!(counts["skipped"], Value::Object(Default::default()), "{name}");
        assert_eq!(&sums(&counts), first.get_or_insert_with(|| sums(&counts)), "{name}");
        before = name;
    }
    assert_eq!(room.read("b.csv"), room.read("d.csv"), "through JSON and back");
    let header = "flowStartNanoseconds,flowEndNanoseconds,sourceIPAddress,destinationIPAddress,";
    assert!(room.read("b.csv").starts_with(header));
    let lines = room.read("c.ndjson");
    let object: Value = serde_json::from_str(lines.lines().next().expect("a line")).expect("JSON");
    assert!(object["payloadOctets"].is_u64() && object["initiator"].is_boolean(), "{object}");

    room.refused(&["flows", "in.pcap", "-o", "b.csv"]);
    room.refused(&["flows", "in.pcap", "-o", "a.parquet.gz"]);
    room.write("mine.csv", "a,b\n");
    let stderr = room.refused(&["flows", "in.pcap", "-o", "mine.csv", "--force"]);
    assert!(stderr.contains("another kind"), "{stderr}");
    counted(&room, &["in.pcap", "-o", "b.csv", "--force"]);
}

#[test]
fn logs_of_zeek_are_read() {
    let room = Room::new("zeek");
    let names = [
        "ts",
        "uid",
        "id.orig_h",
        "id.orig_p",
        "id.resp_h",
        "id.resp_p",
        "proto",
        "duration",
        "orig_bytes",
        "resp_bytes",
        "conn_state",
        "history",
        "orig_pkts",
        "orig_ip_bytes",
        "resp_pkts",
        "resp_ip_bytes",
    ];
    let line = [
        "1700000000.5",
        "C1",
        "10.0.0.1",
        "40000",
        "10.0.0.2",
        "80",
        "tcp",
        "1.25",
        "500",
        "1000",
        "SF",
        "ShADadFf",
        "4",
        "712",
        "3",
        "1132",
    ];
    let head = format!("#separator \\x09\n#path\tconn\n#fields\t{}\n", names.join("\t"));
    room.write("conn.log", format!("{head}{}\ntorn\n#close\n", line.join("\t")));
    let object: Vec<String> = names
        .iter()
        .zip(line)
        .map(|(name, value)| {
            let is_text = value.parse::<f64>().is_err();
            if is_text { format!("\"{name}\":\"{value}\"") } else { format!("\"{name}\":{value}") }
        })
        .collect();
    room.write("conn.json", format!("{{{}}}\n{{\n", object.join(",")));
    for (name, format) in [("conn.log", "Zeek conn.log"), ("conn.json", "JSON lines")] {
        let counts = counted(&room, &[name]);
        assert_eq!((&counts["format"], &counts["flow_records"]), (&format.into(), &2.into()));
        assert_eq!((&counts["flow_packets"], &counts["flow_bytes"]), (&7.into(), &1_844.into()));
        assert_eq!(counts["tcp_connections_with_syn_and_fin"], 1, "{name}");
        assert_eq!(counts["skipped"]["record_damaged"], 1, "{name}");
    }
    room.write("dns.log", "#separator \\x09\n#fields\tts\tid.orig_h\tid.resp_h\tquery\n");
    assert!(room.refused(&["flows", "dns.log", "-o", "x.csv"]).contains("conn.log"));
    room.write("no.csv", "sa,da,pr,ipkt,ibyt\n");
    assert!(room.refused(&["flows", "no.csv"]).contains("no start"));
}

#[test]
fn directories_and_globs_are_inputs() {
    let room = Room::new("many");
    std::fs::create_dir(room.path("day")).expect("a folder");
    room.write("day/1.pcap", capture(60, |_| 500));
    room.write("day/2.pcap", capture(60, |_| 500));
    room.write("day/.3.pcap.partial", "half");
    for input in ["day", "day/*.pcap", "d?y"] {
        let counts = counted(&room, &[input]);
        let names: Vec<_> = counts["inputs"].as_array().expect("a list").iter().collect();
        assert_eq!(names.len(), 2, "{input}");
        assert_eq!(
            (&names[0]["name"], &names[1]["name"]),
            (&"day/1.pcap".into(), &"day/2.pcap".into())
        );
    }
    assert!(room.refused(&["flows", "day/*.gone"]).contains("no file matches"));
    counted(&room, &["day/1.pcap", "-o", "day/out.csv"]);
    let stderr = room.refused(&["flows", "day", "-o", "day/out.csv", "--force"]);
    assert!(stderr.contains("is an input"), "{stderr}");
}

/// Other files beside captures are skipped and named; files named on the command line must be read.
#[test]
fn other_files_of_a_directory_are_passed_over() {
    let room = Room::new("beside");
    std::fs::create_dir_all(room.path("day/notes")).expect("a folder");
    room.write("day/1.pcap", capture(60, |_| 500));
    room.write("day/2.pcap", "");
    room.write("day/3.pcap", &capture(60, |_| 500)[..20]);
    room.write("day/notes/why.md", "# no flows\n");
    room.done(&["model", "embedded", "-o", "m.json"]);
    room.done(&["model", "export", "m.json", "--parquet", "tables"]);
    let table = std::fs::read(room.path("tables/laws.parquet")).expect("a table");
    room.write("day/notes/x.parquet", table);
    let dns = "#separator \\x09\n#path\tdns\n#fields\tts\tquery\n1\tdns.example\n";
    room.write("day/notes/y.log", dns);
    let counts = counted(&room, &["day"]);
    assert_eq!(sums(&counts), sums(&counted(&room, &["day/1.pcap"])));
    assert_eq!(counts["skipped"]["files_not_read"], 5);
    assert_eq!(counts["inputs"].as_array().expect("a list").len(), 1);
    let warnings = counts["warnings"].as_array().expect("a list");
    assert_eq!(warnings.len(), 5, "{warnings:?}");
    let names = ["day/2.pcap: is empty", "day/3.pcap: ", "day/notes/why.md: begins with 23 20"];
    for (warning, name) in warnings.iter().zip(names) {
        let stderr = warning.as_str().expect("words");
        assert!(stderr.starts_with(&format!("passed over: {name}")), "{stderr}");
    }
    for (inputs, named) in [
        (&["day/1.pcap", "day/notes/why.md"][..], "day/notes/why.md"),
        (&["day/notes/*.md"], "day/notes/why.md"),
        (&["day/1.pcap", "day/2.pcap"], "day/2.pcap: is empty"),
        (&["day/notes"], "none of 3 files can be read; the first: day/notes/why.md"),
        (&["day/notes/y.log"], "day/notes/y.log: is a log of Zeek's, but not conn.log"),
        (
            &["day/notes/x.parquet"],
            "day/notes/x.parquet: holds `nilometer-model-laws/1` instead of",
        ),
    ] {
        let stderr = room.refused(&[&["flows"], inputs].concat());
        assert!(stderr.contains(named), "{stderr}");
    }
}

/// A damaged file stops no directory and no glob, and is not skipped silently either.
#[test]
fn damaged_files_of_a_directory_are_passed_over_and_named() {
    let room = Room::new("torn");
    std::fs::create_dir_all(room.path("torn")).expect("a folder");
    room.write("torn/1.pcap", capture(60, |_| 500));
    room.write("torn/2.nfcapd", [0x0c, 0xa5, 1, 0]);
    room.write("torn/3.parquet", b"PAR1 and what is no footer at all");
    room.write("torn/4.gz", [0x1f, 0x8b, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    // A table of two row groups with the second damaged yields the first.
    room.write("many.csv", many_records(140_000));
    room.done(&["flows", "many.csv", "--decode-only", "-o", "torn/5.parquet"]);
    let mut table = room.read_bytes("torn/5.parquet");
    let hundredth = table.len() / 100;
    table[95 * hundredth..99 * hundredth].fill(0xee);
    room.write("torn/5.parquet", table);
    room.write("torn/6.csv", many_records(10));
    let alone = counted(&room, &["torn/1.pcap", "--decode-only"]);
    let expected = alone["flow_records"].as_u64().expect("a count") + 131_072 + 10;
    for inputs in [&["torn", "--decode-only"][..], &["torn/*", "--decode-only"]] {
        let counts = counted(&room, inputs);
        assert_eq!(counts["skipped"]["files_not_read"], 3, "{counts}");
        assert_eq!(counts["flow_records"], expected, "{counts}");
        assert_eq!(counts["damaged"], 1, "{counts}");
        let warnings = counts["warnings"].as_array().expect("a list");
        for named in
            ["passed over: torn/2.nfcapd", "passed over: torn/3.parquet", "passed over: torn/4.gz"]
        {
            let is_said =
                |stderr: &serde_json::Value| stderr.as_str().expect("words").starts_with(named);
            assert_eq!(
                warnings.iter().filter(|stderr| is_said(stderr)).count(),
                1,
                "{named}: {warnings:?}"
            );
        }
        let half = "torn/5.parquet: row group 1 is damaged";
        assert!(warnings.iter().any(|stderr| stderr.as_str().expect("words").starts_with(half)));
    }
    // A damaged file named on the command line is refused, also beside others: no requested input
    // is skipped silently.
    for name in ["torn/2.nfcapd", "torn/3.parquet", "torn/4.gz", "torn/5.parquet"] {
        for inputs in [&["flows", name][..], &["flows", "torn/1.pcap", name]] {
            assert!(room.refused(inputs).contains(name));
        }
    }
}

/// CSV of `count` flows, no two alike.
fn many_records(count: u32) -> String {
    let mut text = "sa,da,sp,dp,pr,ts,te,ipkt,ibyt\n".to_owned();
    for number in 0..count {
        let (a, b) = ((number >> 8) & 0xff, number & 0xff);
        let random = number.wrapping_mul(2_654_435_761) >> 8;
        text += &format!(
            "10.1.{a}.{b},10.2.{b}.{a},{},80,6,1700000000.{:03},1700000009.{:03},3,{}\n",
            1_024 + number % 60_000,
            random % 1_000,
            random / 1_000 % 1_000,
            random
        );
    }
    text
}

/// A pcapng file states the link type of its packets only after its header.
#[test]
fn packets_of_a_capture_that_is_passed_over_are_not_counted() {
    let room = Room::new("wireless");
    std::fs::create_dir_all(room.path("day")).expect("a folder");
    room.write("day/1.pcap", capture(60, |_| 500));
    let words =
        |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let packet = words(&[6, 36, 0, 0, 0, 4, 4, 0x77, 36]);
    let section = words(&[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28]);
    let radiotap = words(&[1, 20, 127, 65_535, 20]);
    room.write("day/2.pcapng", [section, radiotap, packet.repeat(7)].concat());
    let counts = counted(&room, &["day"]);
    let alone = counted(&room, &["day/1.pcap"]);
    assert_eq!(sums(&counts), sums(&alone));
    for name in ["packets", "other_link"] {
        assert_eq!(counts[name], alone[name], "{name}");
    }
    assert_eq!(counts["skipped"]["files_not_read"], 1);
}

/// The same capture in each common compression format, whole and truncated.
#[test]
fn compressed_files_are_read_as_their_content() {
    let room = Room::new("packed");
    let whole = capture(600, |n| n as usize * 7 % 1_400);
    room.write("plain.pcap", &whole);
    let plain = sums(&counted(&room, &["plain.pcap"]));
    let mut bzip2 = Vec::new();
    let mut encoder = bzip2::read::BzEncoder::new(&whole[..], bzip2::Compression::fast());
    encoder.read_to_end(&mut bzip2).expect("memory");
    let frame = FrameInfo::new().block_size(BlockSize::Max64KB);
    let mut lz4 = FrameEncoder::with_frame_info(frame, Vec::new());
    lz4.write_all(&whole).expect("memory");
    let lz4 = lz4.finish().expect("memory");
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    let zstandard = ruzstd::encoding::compress_to_vec(&whole[..], level);
    for (name, packed) in [("bzip2", bzip2), ("LZ4", lz4), ("Zstandard", zstandard)] {
        room.write("packed", &packed);
        let counts = counted(&room, &["packed"]);
        assert_eq!((sums(&counts), &counts["damaged"]), (plain.clone(), &0.into()), "{name}");
        room.write("cut", &packed[..packed.len() - 9]);
        let counts = counted(&room, &["cut"]);
        let ends = ["damaged", "cut_records"].map(|end| counts[end].as_u64().expect("a count"));
        assert_eq!(ends.iter().sum::<u64>(), 1, "{name}");
        assert_eq!(counts["inputs"][0]["bytes"], packed.len() - 9, "{name}");
        let stderr = counts["warnings"].to_string();
        assert!(
            stderr.contains(&format!("its {name} stream is damaged: it ends early")),
            "{stderr}"
        );
        room.write("nothing", &packed[..6]);
        let stderr = room.refused(&["flows", "nothing"]);
        assert!(
            stderr.contains(&format!("nothing can be unpacked from this {name} file")),
            "{stderr}"
        );
    }
}

/// FlowTest's tables, and the sums that awk makes of their lines: records, packets, bytes.
const TABLES: [(&str, [u64; 3]); 4] = [
    ("precise/references/split.csv", [5, 1_039, 656_317]),
    ("precise/flows/base_shuffle.csv", [92, 389, 60_585]),
    ("statistical/references/basic.csv", [2_000, 35_294, 32_946_564]),
    ("precise/flows/small_incorrect.csv", [5, 30, 1_720]),
];

#[test]
fn public_tables_and_output_of_nfdump_are_read() {
    let Some(data) = std::env::var_os("NILOMETER_DATA") else {
        println!("skipped: public tables (set NILOMETER_DATA)");
        return;
    };
    let room = Room::new("tables");
    let folder = Path::new(&data).join("peers/FlowTest/tools/ft-analyzer/tests");
    for (name, sums) in TABLES {
        let path = folder.join(name);
        let counts = counted(&room, &[path.to_str().expect("UTF-8"), "--decode-only"]);
        let names = ["flow_records", "flow_packets", "flow_bytes"];
        assert_eq!(names.map(|of| counts[of].as_u64().expect("a count")), sums, "{name}");
    }
    if Command::new("nfdump").arg("-V").output().is_err() {
        println!("skipped: what nfdump prints (install nfdump)");
        return;
    }
    let sample = Path::new(&data).join("flows/nfdump/devtestdata/nfcapd.sample");
    let sample = sample.to_str().expect("UTF-8");
    let printed = Command::new("nfdump").args(["-q", "-o", "csv", "-r", sample]).output();
    let printed = printed.expect("nfdump runs").stdout;
    let header = "ts,te,td,sa,da,sp,dp,pr,flg,fwd,stos,ipkt,ibyt,opkt,obyt,in,out\n";
    room.write("printed.csv", [header.as_bytes(), &printed].concat());
    let (reported, read) = (
        counted(&room, &[sample, "--decode-only"]),
        counted(&room, &["printed.csv", "--decode-only"]),
    );
    for name in [
        "flow_records",
        "flow_packets",
        "flow_bytes",
        "tcp_connections",
        "tcp_connections_with_syn",
    ] {
        assert_eq!(reported[name], read[name], "{name}");
    }
}
