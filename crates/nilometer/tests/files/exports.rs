//! Exports of every format as users have them: the binary run on datagrams, captures and archives.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use nilometer_wire::build;
use serde_json::Value;

/// A run of `nilometer flows --json`: its status, its JSON object, and its messages.
fn flows(paths: &[PathBuf]) -> (Option<i32>, Value, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_nilometer"))
        .args(["flows", "--json"])
        .args(paths)
        .output()
        .expect("the binary runs");
    let counts = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code(), counts, String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The object of a run that must succeed.
fn counted(paths: &[PathBuf]) -> Value {
    let (status, counts, message) = flows(paths);
    assert_eq!(status, Some(0), "{paths:?}: {message}");
    counts
}

struct Room(PathBuf);

impl Room {
    fn new(name: &str) -> Room {
        let room = format!("nilometer-exports-{name}-{}", std::process::id());
        let room = std::env::temp_dir().join(room);
        fs::create_dir_all(&room).expect("a scratch folder");
        Room(room)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).expect("a scratch file");
        path
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn set(id: u16, body: &[u8]) -> Vec<u8> {
    [&id.to_be_bytes()[..], &(4 + body.len() as u16).to_be_bytes(), body].concat()
}

/// Source, destination, packets, bytes.
fn template() -> Vec<u8> {
    [256u16, 4, 8, 4, 12, 4, 2, 4, 1, 4].iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn record() -> Vec<u8> {
    [&[10, 0, 0, 1, 10, 0, 0, 2][..], &[0, 0, 0, 3, 0, 0, 5, 220]].concat()
}

fn v9(sets: &[Vec<u8>]) -> Vec<u8> {
    let head = [[0, 9, 0, 1], [0, 0, 1, 0], [0x65, 0x53, 0xf1, 0], [0; 4], [0; 4]];
    [head.concat(), sets.concat()].concat()
}

fn ipfix(sets: &[Vec<u8>]) -> Vec<u8> {
    let body = sets.concat();
    let head = [&[0, 10][..], &(16 + body.len() as u16).to_be_bytes(), &[0x65, 0x53, 0xf1, 0]];
    [head.concat(), vec![0; 8], body].concat()
}

fn pcap(payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
    file.extend([0, 0, 65_535, 1u32].into_iter().flat_map(u32::to_le_bytes));
    for payload in payloads {
        let (from, to) = (([198, 18, 0, 9], 4_000).into(), ([198, 18, 0, 10], 2_055).into());
        let frame = build::ethernet(&build::udp(from, to, payload));
        let length = frame.len() as u32;
        file.extend([1_700_000_000, 0, length, length].into_iter().flat_map(u32::to_le_bytes));
        file.extend(frame);
    }
    file
}

#[test]
fn datagrams_are_decoded_from_files_and_captures() {
    let room = Room::new("datagrams");
    let nine = v9(&[set(0, &template()), set(256, &record())]);
    let ten = ipfix(&[set(2, &template()), set(256, &[record(), record()].concat())]);
    let file = room.file("file", &[&nine[..], &ten, &nine].concat());
    let counts = counted(&[file]);
    assert_eq!((&counts["flow_records"], &counts["packets"]), (&4.into(), &12.into()));
    assert_eq!((&counts["format"], &counts["exporters"]), (&"IPFIX, NetFlow v9".into(), &2.into()));
    assert_eq!(counts["exports"]["datagrams"], 3);
    let warnings = counts["warnings"].to_string();
    assert!(
        warnings.contains("1 exports have the number and the time of the one before"),
        "{warnings}"
    );
    assert_eq!(counts["skipped"], Value::Object(Default::default()));

    let capture = room.file("capture", &pcap(&[nine.clone(), ten]));
    let counts = counted(&[capture]);
    assert_eq!((&counts["flow_records"], &counts["exports"]["bytes"]), (&3.into(), &4_500.into()));
    assert!(counts["notes"][0].to_string().contains("NetFlow v9, IPFIX"), "{counts}");

    let templates = room.file("templates", &v9(&[set(0, &template())]));
    let records = room.file("records", &v9(&[set(256, &record())]));
    let alone = counted(std::slice::from_ref(&templates));
    assert_eq!((&alone["flow_records"], &alone["exports"]["datagrams"]), (&0.into(), &1.into()));
    let alone = counted(std::slice::from_ref(&records));
    assert_eq!((&alone["flow_records"], &alone["skipped"]["no_template"]), (&0.into(), &1.into()));
    assert!(alone["warnings"].to_string().contains("templates never came"), "{alone}");
    for pieces in [[templates.clone(), records.clone()], [records, templates]] {
        assert_eq!(counted(&pieces)["flow_records"], 1, "one capture in two pieces");
    }
    let cut = room.file("cut", &[&nine[..], &nine[..30]].concat());
    let counts = counted(&[cut]);
    assert_eq!((&counts["flow_records"], &counts["cut_records"]), (&1.into(), &1.into()));
}

#[test]
fn archives_are_decoded() {
    let room = Room::new("archives");
    let mut fixed = Vec::new();
    for word in [1_700_000_000u32, 0, 90_000, 0, 0x0a00_0001, 0x0a00_0002, 0, 0, 7, 700, 1, 9] {
        fixed.extend(word.to_be_bytes());
    }
    fixed.extend([0x9c, 0x40, 0, 80, 6, 0, 0x1b, 0]);
    fixed.resize(64, 0);
    let body = fixed.repeat(5_000);
    let head = |flags: u8| {
        let head = [0xcf, 0x10, 2, 3, 0, 0, 0, 22, 0, 2, 0, 2, 0, 5, 0, 8, 0, 4, 0, 0, 0, flags];
        head.to_vec()
    };
    let plain = room.file("plain", &[head(0), body.clone()].concat());
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    zlib.write_all(&body).expect("memory can be written");
    let packed = [head(2), zlib.finish().expect("memory can be written")].concat();
    for path in [plain, room.file("packed", &packed)] {
        let counts = counted(&[path]);
        assert_eq!((&counts["flow_records"], &counts["packets"]), (&5_000.into(), &35_000.into()));
        assert_eq!(
            (&counts["format"], &counts["bytes"]),
            (&"flow-tools".into(), &3_500_000.into())
        );
    }
    let torn = counted(&[room.file("torn", &packed[..packed.len() - 9])]);
    assert_eq!(torn["damaged"], 1, "{torn}");
    let cut = counted(&[room.file("cut", &[head(0), body[..100].to_vec()].concat())]);
    assert_eq!((&cut["flow_records"], &cut["skipped"]["record_damaged"]), (&1.into(), &1.into()));
    let (status, _, message) = flows(&[room.file("unknown", &[0xcf, 0x10, 9, 3, 0, 0, 0, 8])]);
    assert_eq!((status, message.lines().count()), (Some(2), 1), "{message}");
}

/// A datagram of version 5: start and end of each record in seconds of uptime, flags, packets, bytes.
fn v5(records: &[(u32, u32, u8, u32, u32)]) -> Vec<u8> {
    let mut datagram = [&[0, 5][..], &(records.len() as u16).to_be_bytes()].concat();
    for word in [400_000, 1_700_000_000, 0, 0, 0] {
        datagram.extend(u32::to_be_bytes(word));
    }
    for &(start_s, end_s, flags, packets, bytes) in records {
        datagram.extend([198, 18, 0, 1, 198, 18, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
        for word in [packets, bytes, start_s * 1_000, end_s * 1_000] {
            datagram.extend(word.to_be_bytes());
        }
        datagram.extend([0x9c, 0x40, 0, 80, 0, flags, 6, 0]);
        datagram.extend([0; 8]);
    }
    datagram
}

#[test]
fn records_are_repaired_unless_only_decoded() {
    let room = Room::new("repair");
    // One connection in three pieces, the second of them exported twice and its bytes wrapped.
    let second = (65, 120, 0x10, 5_000_000, 1_000);
    let pieces = [(0, 60, 0x12, 10, 9_000), second, second, (121, 130, 0x11, 4, 400)];
    let export = room.file("export", &v5(&pieces));
    let counts = counted(std::slice::from_ref(&export));
    assert_eq!((&counts["flow_records"], &counts["flows_after_repair"]), (&4.into(), &1.into()));
    assert_eq!(counts["flow_packets"], 5_000_014);
    assert_eq!(counts["flow_bytes"], 9_000 + (1u64 << 32) + 1_000 + 400);
    let repairs = r#"{"counter_wrapped":2,"direction_doubled":1,"start_renewed":2}"#;
    assert_eq!(counts["repairs"].to_string(), repairs);

    let table = room.0.join("flows.parquet");
    let only = [export.clone(), "--decode-only".into(), "-o".into(), table.clone()];
    let counts = counted(&only);
    assert_eq!((&counts["flow_records"], &counts["flows_after_repair"]), (&4.into(), &Value::Null));
    assert_eq!(
        (&counts["flow_packets"], &counts["flow_bytes"]),
        (&10_000_014.into(), &11_400.into())
    );
    assert_eq!(counts["repairs"].to_string(), "{}");
    // Records that were only decoded can be repaired later; repaired ones need no more.
    for (given, after) in [(4, 1), (1, 1)] {
        let next = room.0.join(format!("next-{given}.parquet"));
        let counts = counted(&[table.clone(), "-o".into(), next.clone()]);
        assert_eq!(
            (&counts["flow_records"], &counts["flows_after_repair"]),
            (&given.into(), &after.into())
        );
        fs::rename(next, &table).expect("a scratch file");
    }
    let shown = Command::new(env!("CARGO_BIN_EXE_nilometer")).arg("flows").arg(&export).output();
    let shown = shown.expect("the binary runs").stdout;
    let shown = String::from_utf8_lossy(&shown);
    assert!(shown.contains("flows after repair") && shown.contains("start renewed"), "{shown}");
}

/// An nfcapd file, layout 2, with `flows` flows in each of its blocks, each block packed on its own.
fn nfcapd(compression: u8, blocks: u32, flows: u32, pack: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let mut record = [11u16, 76, 2, 0, 0, 0].map(u16::to_le_bytes).concat();
    record.extend([1, 0, 52, 0]);
    for word in [1_700_000_000_000u64, 1_700_000_001_000, 0, 7, 700] {
        record.extend(word.to_le_bytes());
    }
    record.extend([0x40, 0x9c, 80, 0, 6, 0x1b, 0, 0]);
    record.extend([2, 0, 12, 0, 1, 0, 0, 10, 2, 0, 0, 10]);
    assert_eq!(record.len(), 76);
    let body = pack(&record.repeat(flows as usize));
    let mut file = vec![0x0c, 0xa5, 2, 0];
    file.resize(40, 0);
    file[16] = compression;
    file[36..40].copy_from_slice(&blocks.to_le_bytes());
    for _ in 0..blocks {
        file.extend([flows, body.len() as u32].map(u32::to_le_bytes).concat());
        file.extend([3, 0, 0, 0]);
        file.extend(&body);
    }
    file
}

fn bzip2(body: &[u8]) -> Vec<u8> {
    let mut packed = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    packed.write_all(body).expect("memory can be written");
    packed.finish().expect("memory can be written")
}

#[test]
fn compressed_blocks_are_unpacked() {
    let room = Room::new("packed");
    let zstd = |body: &[u8]| {
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        ruzstd::encoding::compress_to_vec(body, level)
    };
    let files = [
        nfcapd(0, 3, 1_000, <[u8]>::to_vec),
        nfcapd(2, 3, 1_000, bzip2),
        nfcapd(3, 3, 1_000, lz4_flex::block::compress),
        nfcapd(4, 3, 1_000, zstd),
    ];
    for (number, file) in files.iter().enumerate() {
        let counts = counted(&[room.file("file", file)]);
        assert_eq!((&counts["flow_records"], &counts["packets"]), (&3_000.into(), &21_000.into()));
        assert_eq!(counts["warnings"], Value::Array(vec![]), "file {number}");
    }
    // A block that cannot be unpacked is counted, and the next is read.
    let mut torn = files[1].clone();
    torn[60] ^= 0xff;
    let counts = counted(&[room.file("torn", &torn)]);
    assert_eq!(counts["flow_records"], 2_000);
    assert_eq!(counts["skipped"]["record_damaged"], 1_000);
    assert!(
        counts["warnings"].to_string().contains("at byte 40, which cannot be unpacked: bzip2"),
        "{counts}"
    );
}

#[test]
fn records_lost_to_damage_are_reported_with_place_and_share() {
    let room = Room::new("damaged");
    let whole = nfcapd(0, 3, 1_000, <[u8]>::to_vec);
    let block_bytes = (whole.len() - 40) / 3;
    // A record in the middle of the second block has no length: behind it nothing is found again.
    let mut damaged = whole.clone();
    let second = 40 + block_bytes;
    damaged[second + 12 + 500 * 76 + 2..][..2].fill(0);
    let (status, counts, message) = flows(&[room.file("damaged", &damaged)]);
    assert_eq!((status, &counts["flow_records"]), (Some(0), &2_500.into()), "{message}");
    assert_eq!(
        (&counts["damaged"], &counts["skipped"]["record_damaged"]),
        (&1.into(), &500.into())
    );
    let words = format!(
        "damaged: 500 of 3000 records (16.7 %) are damaged and were left out in the block at byte {second}"
    );
    assert!(
        counts["warnings"][0].as_str().is_some_and(|message| message.ends_with(&words)),
        "{counts}"
    );
    assert!(message.lines().any(|line| line.contains(&words)), "{message}");
    // A record of another kind is none that can be read.
    let mut odd = whole.clone();
    odd[40 + 12 + 76] = 0x77;
    let counts = counted(&[room.file("odd", &odd)]);
    assert_eq!((&counts["flow_records"], &counts["damaged"]), (&2_999.into(), &0.into()));
    assert!(
        counts["warnings"][0].to_string().contains("odd: 1 of 3000 records (0.0 %) are of kinds")
    );
    // Cut between two blocks, it looks complete except for its header.
    let counts = counted(&[room.file("short", &whole[..second])]);
    assert_eq!((&counts["flow_records"], &counts["damaged"]), (&1_000.into(), &1.into()));
    let words = "short: its header announces 2 more blocks";
    assert!(counts["warnings"].to_string().contains(words), "{counts}");
    // Cut within a block, and damaged in the header of one: bytes are reported.
    let counts = counted(&[room.file("cut", &whole[..second + 100])]);
    let words = format!("is cut, 100 of {} bytes (0.1 %)", second + 100);
    assert!(counts["warnings"].to_string().contains(&words), "{counts}");
    assert_eq!((&counts["cut_records"], &counts["damaged"]), (&1.into(), &0.into()));
    let mut torn = whole.clone();
    torn[second + 4..second + 8].fill(0xff);
    let counts = counted(&[room.file("torn", &torn)]);
    let words = format!("was read, {} of {} bytes (66.7 %)", 2 * block_bytes, whole.len());
    assert!(counts["warnings"].to_string().contains(&words), "{counts}");
}

#[test]
fn digests_agree_with_sha256sum() {
    let room = Room::new("digests");
    // More than the buffers of the thread that digests, and less than one.
    let long = nfcapd(0, 400, 1_000, <[u8]>::to_vec);
    let files = [room.file("long", &long), room.file("short", &nfcapd(0, 1, 3, <[u8]>::to_vec))];
    assert!(long.len() > 24 << 20);
    let sums = Command::new("sha256sum").args(&files).output().expect("sha256sum runs");
    let sums = String::from_utf8(sums.stdout).expect("text");
    let expected: Vec<&str> = sums.lines().filter_map(|line| line.split(' ').next()).collect();
    // They take longer than reading, and are made on request.
    let inputs = &counted(&files)["inputs"];
    assert_eq!((&inputs[0]["bytes"], &inputs[0]["sha256"]), (&long.len().into(), &Value::Null));
    let counts = counted(&[&files[..], &["--digests".into()]].concat());
    let inputs = counts["inputs"].as_array().expect("a list");
    let found: Vec<&str> = inputs.iter().filter_map(|input| input["sha256"].as_str()).collect();
    assert_eq!(expected.len(), 2);
    assert_eq!(found, expected);
}

#[test]
fn blocks_compressed_by_nfdump_are_decompressed() {
    let data = std::env::var_os("NILOMETER_DATA");
    let has_nfdump = Command::new("nfdump").arg("-V").output().is_ok();
    let (Some(data), true) = (data, has_nfdump) else {
        println!("skipped: blocks that nfdump packed (set NILOMETER_DATA, install nfdump)");
        return;
    };
    let room = Room::new("nfdump");
    let plain = Path::new(&data).join("flows/nfdump/devtestdata/nfcapd.sample");
    let names = ["flow_records", "packets", "bytes", "seconds", "flows_after_repair", "repairs"];
    let of = |counts: &Value| names.map(|name| counts[name].clone());
    let expected = of(&counted(std::slice::from_ref(&plain)));
    for (option, kind) in [("-z", 1), ("-j", 2), ("-y", 3)] {
        let packed = room.0.join(option);
        let mut nfdump = Command::new("nfdump");
        nfdump.arg("-q").arg("-r").arg(&plain).arg(option).arg("-w").arg(&packed);
        let done = nfdump.output().expect("nfdump runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        assert_eq!(fs::read(&packed).expect("nfdump wrote it")[16], kind);
        let counts = counted(&[packed]);
        assert_eq!(of(&counts), expected, "{option}");
        assert_eq!(counts["skipped"], Value::Object(Default::default()), "{option}");
    }
}

/// File below the folder of exports, what it is read as, flow records, and the sum of skips.
const FILES: [(&str, &str, u64, u64); 20] = [
    ("nfdump/devtestdata/nfcapd.sample", "nfcapd", 3_018, 0),
    ("nfdump/testdata/nfcapd-small-lzo", "nfcapd", 10, 0),
    ("nfdump/testdata/nfcapd-empty", "nfcapd", 0, 0),
    ("StratosphereLinuxIPS/test1-malicious.nfdump", "nfcapd", 4_593, 0),
    ("spark-netflow/correct/ftv5.2016-01-13.compress.9.sample", "flow-tools", 1_000, 0),
    ("spark-netflow/correct/ftv5.2016-01-13.nocompress.bigend.sample", "flow-tools", 1_000, 0),
    ("spark-netflow/correct/ftv7.2016-02-14.compress.9.litend.sample", "flow-tools", 1_000, 0),
    ("spark-netflow/anomaly/ftv5.2016-03-15.compress9.bigend.records1", "flow-tools", 1, 0),
    ("spark-netflow/anomaly/ftv5.2016-04-09.compress9.large-byte-start", "flow-tools", 1_000, 0),
    ("spark-netflow/corrupt/ftv5.2016-01-13.compress.9.sample-00", "flow-tools", 553, 1),
    ("pmacct/101-NFv9-CISCO-cust_primitives/traffic-00.pcap", "NetFlow v9", 51, 0),
    ("pmacct/104-IPFIXv10-IPv6-CISCO-sampling_option/traffic-00.pcap", "IPFIX", 3, 0),
    ("nDPI/pcap/netflowv9.pcap", "NetFlow v9", 0, 23),
    ("nDPI/pcap/netflow-fritz.pcap", "IPFIX", 0, 0),
    ("nDPI/pcap/sflow.pcap", "sFlow v5", 1, 8),
    ("tcpdump/tests/sflow-print-v6.pcap", "sFlow v5", 13, 48),
    ("logstash-codec-netflow/netflow9_cisco_asr1001x_tpl259.dat", "NetFlow v9", 25, 0),
    ("logstash-codec-netflow/ipfix.dat", "IPFIX", 12, 0),
    ("logstash-codec-netflow/netflow5_test_microtik.dat", "NetFlow v5", 30, 0),
    ("logstash-codec-netflow/ipfix_test_yaf_tpls_option_tpl.dat", "IPFIX", 0, 0),
];

#[test]
fn public_exports_have_their_flows_and_all_others_a_clear_end() {
    let Some(data) = std::env::var_os("NILOMETER_DATA") else {
        println!("skipped: public exports (set NILOMETER_DATA)");
        return;
    };
    let folder = Path::new(&data).join("flows");
    for (name, format, records, skipped) in FILES {
        let counts = counted(&[folder.join(name)]);
        let skips = counts["skipped"].as_object().expect("an object").values();
        let skips: u64 = skips.map(|count| count.as_u64().expect("a count")).sum();
        let found = (counts["format"].as_str(), counts["flow_records"].as_u64(), skips);
        assert_eq!(found, (Some(format), Some(records), skipped), "{name}");
    }
    let mut folders = vec![folder];
    let (mut read, mut refused) = (0, Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            match flows(std::slice::from_ref(&path)) {
                (Some(0), Value::Object(_), _) => read += 1,
                (Some(2), Value::Null, message) if message.lines().count() == 1 => {
                    refused.push(path.file_name().map(|name| name.to_os_string()));
                }
                (status, _, message) => panic!("{path:?}: status {status:?}: {message}"),
            }
        }
    }
    println!("{read} read; refused: {refused:?}");
    assert!(read > 110 && refused.len() < 40, "{read} read, {refused:?} refused");
}
