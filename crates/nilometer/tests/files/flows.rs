//! `nilometer flows` as a user sees it: the binary run on captures, exports and other files.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nilometer_wire::build::{self, Tcp};
use serde_json::Value;

/// No input may take longer than this.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs `nilometer flows` and stops it when it hangs.
fn flows(arguments: &[&str], input: Option<&[u8]>) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_nilometer"))
        .arg("flows")
        .args(arguments)
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut stdin = child.stdin.take();
    let mut stdout = child.stdout.take().expect("standard output is piped");
    let mut stderr = child.stderr.take().expect("standard error is piped");
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let out = scope.spawn(move || read_all(&mut stdout));
        let err = scope.spawn(move || read_all(&mut stderr));
        if let (Some(stdin), Some(input)) = (stdin.as_mut(), input) {
            // A reader that refuses its input closes it early.
            let _ = stdin.write_all(input);
        }
        drop(stdin);
        let status = loop {
            if let Some(status) = child.try_wait().expect("the child is ours") {
                break status;
            }
            if begun.elapsed() > PATIENCE {
                child.kill().expect("the child is ours");
                panic!("{arguments:?} hangs");
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let stdout = out.join().expect("a reader does not panic");
        Output { status, stdout, stderr: err.join().expect("a reader does not panic") }
    })
}

fn read_all(from: &mut impl Read) -> Vec<u8> {
    let mut read = Vec::new();
    from.read_to_end(&mut read).expect("a pipe can be read");
    read
}

/// The JSON object of a run that must succeed.
fn counted(arguments: &[&str]) -> Value {
    let output = flows(&[arguments, &["--json"]].concat(), None);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON object and nothing else")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("output is UTF-8")
}

/// A run that must be refused: exit status 2, one line on stderr, nothing on stdout.
fn refused(arguments: &[&str], input: Option<&[u8]>, word: &str) {
    let output = flows(arguments, input);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    assert_eq!(message.lines().count(), 1, "{arguments:?}: {message}");
    assert!(message.contains(word), "{arguments:?} does not say {word:?}: {message}");
    assert!(output.stdout.is_empty(), "{arguments:?}: {}", text(&output.stdout));
}

/// A scratch folder that goes when the test ends.
struct Room(PathBuf);

impl Room {
    fn new(name: &str) -> Room {
        let room = format!("nilometer-flows-{name}-{}", std::process::id());
        let room = std::env::temp_dir().join(room);
        fs::create_dir_all(&room).expect("a scratch folder");
        Room(room)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.path(name);
        fs::write(&path, bytes).expect("a scratch file");
        path
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a path in UTF-8").to_owned()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("a scratch folder");
        let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        let mut names: Vec<_> = entries.map(|entry| name(entry.expect("an entry"))).collect();
        names.sort();
        names
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn pcap_header(link_type: u32) -> Vec<u8> {
    let words = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, link_type];
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

fn pcap(link_type: u32, packets: &[(f64, Vec<u8>)]) -> Vec<u8> {
    let mut file = pcap_header(link_type);
    for (at_s, frame) in packets {
        let micros = ((at_s - at_s.floor()) * 1e6).round() as u32;
        let length = frame.len() as u32;
        let head = [*at_s as u32, micros, length, length];
        file.extend(head.into_iter().flat_map(u32::to_le_bytes));
        file.extend(frame);
    }
    file
}

/// One connection: handshake, a request, an answer of 1,000 bytes, both FINs.
fn connection(port: u16) -> Vec<(f64, Vec<u8>)> {
    let client = ([198, 18, 0, 1], port).into();
    let server = ([198, 18, 0, 2], 80).into();
    let answer = [7; 1_000];
    let sent: [(bool, u8, u32, &[u8]); 7] = [
        (true, 0x02, 100, &[]),
        (false, 0x12, 900, &[]),
        (true, 0x10, 101, &[]),
        (true, 0x18, 101, b"GET /"),
        (false, 0x18, 901, &answer),
        (false, 0x11, 1_901, &[]),
        (true, 0x11, 106, &[]),
    ];
    let mut packets = Vec::new();
    for (number, (from_client, flags, sequence, payload)) in sent.into_iter().enumerate() {
        let (from, to) = if from_client { (client, server) } else { (server, client) };
        let segment = Tcp { flags, sequence, payload, ..Tcp::new(from, to) };
        let at_s = 1_000.0 + number as f64 * 0.25;
        packets.push((at_s, build::ethernet(&segment.ip_packet())));
    }
    packets
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(bytes).expect("memory can be written");
    packed.finish().expect("memory can be written")
}

#[test]
fn a_connection_is_two_records_however_it_is_given() {
    let room = Room::new("connection");
    let sent = connection(40_000);
    let whole = pcap(1, &sent);
    let table = room.path("flows.parquet");
    let plain = room.file("plain", &whole);
    let packed = room.file("packed", &gzip(&whole));
    let (first, others) = sent.split_at(1);
    let head = room.file("head", &pcap(1, first));
    let rest = room.file("rest", &pcap(1, others));
    counted(&[&plain, "-o", &table]);
    for inputs in [vec![&plain], vec![&packed], vec![&head, &rest], vec![&table]] {
        let arguments: Vec<&str> = inputs.iter().map(|name| name.as_str()).collect();
        let counts = counted(&arguments);
        for (key, expected) in [
            ("packets", 7),
            ("bytes", 7 * 40 + 5 + 1_000),
            ("malformed", 0),
            ("not_ip", 0),
            ("flow_records", 2),
            ("tcp_connections", 1),
            ("tcp_connections_with_syn", 1),
            ("tcp_connections_with_syn_and_fin", 1),
        ] {
            assert_eq!(counts[key], expected, "{key} of {arguments:?}");
        }
        assert_eq!(counts["seconds"], 1.5, "{arguments:?}");
        assert_eq!(counts["warnings"], Value::Array(vec![]), "{arguments:?}");
        assert_eq!(counts["inputs"].as_array().map(Vec::len), Some(inputs.len()));
    }
    let piped = flows(&["-", "--json"], Some(&gzip(&whole)));
    let piped: Value = serde_json::from_slice(&piped.stdout).expect("a JSON object");
    assert_eq!(piped["packets"], 7);
    assert_eq!(piped["inputs"][0]["name"], "-");
    let shown = flows(&[&plain], None);
    assert!(text(&shown.stdout).contains("TCP connections"), "{}", text(&shown.stdout));
    assert!(shown.stderr.is_empty(), "{}", text(&shown.stderr));
    assert_eq!(room.names(), ["flows.parquet", "head", "packed", "plain", "rest"]);
}

#[test]
fn odd_input_is_counted_and_warned_of() {
    let room = Room::new("odd");
    let mut packets = connection(40_000);
    packets.push((1_002.0, build::ethernet_of(0x0806, &[0; 28])));
    packets.push((1_002.0, build::ethernet(&[0x45; 10])));
    let whole = pcap(1, &packets);
    let counts = counted(&[&room.file("whole", &whole)]);
    assert_eq!((&counts["packets"], &counts["not_ip"]), (&9.into(), &1.into()));
    assert_eq!(counts["malformed"], 1);

    let cut = counted(&[&room.file("cut", &whole[..whole.len() - 1])]);
    assert_eq!((&cut["packets"], &cut["cut_records"]), (&8.into(), &1.into()));
    assert!(cut["warnings"][0].as_str().is_some_and(|message| message.contains("cut")), "{cut}");

    let mut damaged = whole.clone();
    damaged[24 + 8..24 + 12].copy_from_slice(&u32::MAX.to_le_bytes());
    let damaged = counted(&[&room.file("damaged", &damaged)]);
    assert_eq!((&damaged["packets"], &damaged["damaged"]), (&0.into(), &1.into()));
    assert!(damaged["warnings"][0].as_str().is_some_and(|message| message.contains("byte 24")));

    let packed = gzip(&whole);
    let torn = counted(&[&room.file("torn.gz", &packed[..packed.len() - 20])]);
    assert!(torn["warnings"].to_string().contains("gzip"), "{torn}");

    let none = counted(&[&room.file("none", &pcap_header(1))]);
    assert_eq!((&none["packets"], &none["seconds"]), (&0.into(), &0.0.into()));
    assert!(none["warnings"].to_string().contains("no packet"), "{none}");
    let warned = flows(&[&room.path("none")], None);
    assert!(text(&warned.stderr).contains("warning"), "{}", text(&warned.stderr));
}

#[test]
fn exports_are_decoded_from_files_and_from_captures() {
    let room = Room::new("exports");
    let mut export = Vec::new();
    export.extend([0, 5, 0, 1]);
    export.extend([60_000u32, 1_700_000_000, 0, 10].into_iter().flat_map(u32::to_be_bytes));
    export.extend([0; 4]);
    let mut record = [198, 18, 0, 1, 198, 18, 0, 2].to_vec();
    record.extend([0; 8]);
    record.extend([12u32, 3_456, 50_000, 59_000].into_iter().flat_map(u32::to_be_bytes));
    record.extend([0x9c, 0x40, 0, 80, 0, 0x1b, 6, 0]);
    record.resize(48, 0);
    export.extend(record);
    let file = counted(&[&room.file("file", &[&export[..], &export].concat())]);
    assert_eq!((&file["packets"], &file["bytes"]), (&24.into(), &6_912.into()));
    assert_eq!((&file["flow_records"], &file["seconds"]), (&2.into(), &9.0.into()));
    assert_eq!(file["tcp_connections_with_syn_and_fin"], 1);

    let carried = |payload: &[u8]| {
        let exporter = ([198, 18, 0, 9], 4_000).into();
        build::ethernet(&build::udp(exporter, ([198, 18, 0, 10], 2_055).into(), payload))
    };
    let mut packets = vec![(5.0, carried(&export)), (6.0, carried(&export))];
    let name = room.file("carried", &pcap(1, &packets));
    let carried_only = counted(&[&name]);
    assert_eq!((&carried_only["packets"], &carried_only["flow_records"]), (&2.into(), &2.into()));
    assert_eq!(carried_only["exports"]["packets"], 24);
    assert!(carried_only["notes"][0].as_str().is_some_and(|note| note.contains("NetFlow v5")));
    let metered = counted(&[&name, "--from", "packets"]);
    assert_eq!((&metered["flow_records"], &metered["exports"]), (&1.into(), &Value::Null));

    packets.extend(connection(40_000));
    let name = room.file("mixed", &pcap(1, &packets));
    assert_eq!(counted(&[&name])["exports"], Value::Null, "traffic is metered");
    let chosen = counted(&[&name, "--from", "exports"]);
    assert_eq!((&chosen["packets"], &chosen["exports"]["other_packets"]), (&9.into(), &7.into()));
    assert_eq!(chosen["flow_records"], 2);
}

#[test]
fn timers_and_cache_size_are_as_requested() {
    let room = Room::new("timers");
    let to = ([198, 18, 0, 2], 53).into();
    let datagram = |port| build::ethernet(&build::udp(([198, 18, 0, 1], port).into(), to, b"ask"));
    let far = room.file("far", &pcap(1, &[(10.0, datagram(1)), (20.0, datagram(1))]));
    assert_eq!(counted(&[&far])["flow_records"], 1);
    assert_eq!(counted(&[&far, "--inactive-timeout", "9s"])["flow_records"], 2);
    assert_eq!(counted(&[&far, "--active-timeout", "5s"])["flow_records"], 2);
    let many: Vec<_> = (1..=9).map(|port| (10.0, datagram(port))).collect();
    let many = counted(&[&room.file("many", &pcap(1, &many)), "--flows-max", "4"]);
    assert_eq!((&many["flow_records"], &many["evicted"]), (&9.into(), &5.into()));
    assert!(many["warnings"].to_string().contains("--flows-max"), "{many}");
}

/// Twelve files as `tcpdump -C` names them, a packet of one flow in each minute of theirs.
#[test]
fn captures_are_read_in_the_order_of_their_numbers_and_no_other_order_stops_timers() {
    let room = Room::new("order");
    let (from, to) = (([198, 18, 0, 1], 1).into(), ([198, 18, 0, 2], 53).into());
    let packet = |at_s| (at_s, build::ethernet(&build::udp(from, to, b"ask")));
    let mut named = Vec::new();
    for file in 0..12 {
        let number = if file > 0 { file.to_string() } else { String::new() };
        let packets: Vec<_> =
            (0..5).map(|minute| packet(1_000.0 + f64::from(file * 5 + minute) * 60.0)).collect();
        named.push(room.file(&format!("a.pcap{number}"), &pcap(1, &packets)));
    }
    let of_folder = counted(&[room.0.to_str().expect("UTF-8")]);
    assert_eq!(
        (&of_folder["flow_records"], &of_folder["warnings"]),
        (&60.into(), &Value::Array(Vec::new()))
    );
    named.sort();
    let of_names: Vec<&str> = named.iter().map(String::as_str).collect();
    let of_names = counted(&of_names);
    // The timers stand still until the third packet of a.pcap2 shows that its time is another one.
    assert_eq!(of_names["flow_records"], 59);
    assert!(of_names["warnings"].to_string().contains("for a packet, 1 times"), "{of_names}");
}

#[test]
fn bad_input_is_one_line_and_leaves_nothing() {
    let room = Room::new("bad");
    let whole = pcap(1, &connection(40_000));
    let good = room.file("good", &whole);
    room.file("taken", b"mine");
    let out = room.path("out.parquet");
    let inputs: [(&str, Vec<u8>, &str); 11] = [
        ("empty", Vec::new(), "empty"),
        ("text", b"no capture at all\n".to_vec(), "6e 6f 20 63"),
        ("short", whole[..20].to_vec(), "20 bytes of 24"),
        ("stub", whole[..4].to_vec(), "4 bytes of 24"),
        ("version", [&whole[..4], &[9, 0], &whole[6..]].concat(), "version 9"),
        ("netlink", pcap_header(253), "253"),
        ("radiotap", pcap_header(127), "127"),
        ("packed text", gzip(b"no capture at all\n"), "6e 6f 20 63"),
        ("packed nothing", gzip(b""), "gzip"),
        ("torn", gzip(&whole)[..12].to_vec(), "gzip"),
        ("parquet", b"PAR1 and then nothing like it".to_vec(), "Parquet"),
    ];
    for (name, bytes, word) in &inputs {
        refused(&[&room.file(name, bytes), "-o", &out], None, word);
    }
    let nfcapd = [0x0c, 0xa5, 1, 0];
    refused(&["-", "-o", &out], Some(&nfcapd), "nfcapd");
    refused(&[&room.path("missing"), "-o", &out], None, "cannot be opened");
    fs::create_dir(room.path("nothing")).expect("a folder");
    refused(&[&room.path("nothing"), "-o", &out], None, "directory without files");
    fs::remove_dir(room.path("nothing")).expect("a folder");
    // In a directory they end nothing: `good` is read, the others and `taken` are passed over.
    let counts = counted(&[room.0.to_str().expect("UTF-8")]);
    assert_eq!(counts["skipped"]["files_not_read"], inputs.len() + 1, "{counts}");
    assert_eq!(counts["flow_records"], counted(&[&good])["flow_records"]);
    refused(&[&good, &room.path("text"), "-o", &out], None, "6e 6f 20 63");
    refused(&[&good, "-o", &room.path("no/such/out")], None, "directory");
    refused(&[&good, "-o", &room.path("taken")], None, "--force");
    assert_eq!(fs::read(room.path("taken")).expect("still there"), b"mine");
    for name in inputs.map(|(name, ..)| name).into_iter().chain(["good", "taken"]) {
        fs::remove_file(room.path(name)).expect("a scratch file");
    }
    assert_eq!(room.names(), Vec::<String>::new(), "nothing is left behind");
}

/// The folder of public captures, where the environment names one.
fn captures() -> Option<PathBuf> {
    let folder = std::env::var_os("NILOMETER_DATA").map(PathBuf::from);
    if folder.is_none() {
        println!("skipped: NILOMETER_DATA is not set, so the public captures were not read");
    }
    folder
}

/// The entry of the index for each file below `pcap`: its packets, where it is a capture.
fn index(data: &Path) -> Vec<(String, Option<u64>)> {
    let index = fs::read_to_string(data.join("INDEX.md")).expect("the index of the data");
    let section = index.split("## shared/pcap ").nth(1).expect("a section on captures");
    let section = section.split("\n## ").next().expect("a section");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| "));
    let cells = rows.map(|row| row.split(" | ").collect::<Vec<_>>());
    let files = cells.filter(|cells| cells.len() > 5 && data.join("pcap").join(cells[0]).is_file());
    files
        .map(|cells| {
            let packets = cells[5].split_once(" packets").and_then(|(count, _)| count.parse().ok());
            (cells[0].to_owned(), packets)
        })
        .collect()
}

/// A capture that the index does not count, for it is compressed: what Wireshark counts in it.
const PACKED: (&str, u64) = ("PcapPlusPlus/file_heuristics/pcapng-example.pcapng.zst", 159);

/// Reads one file; returns whether it was read, or what is wrong with the outcome.
fn check(data: &Path, file: &str, expected: Option<u64>) -> Result<bool, String> {
    let path = data.join("pcap").join(file);
    let expected = if file == PACKED.0 { Some(PACKED.1) } else { expected };
    let output = flows(&[path.to_str().expect("UTF-8"), "--json"], None);
    let message = text(&output.stderr);
    match (output.status.code(), expected) {
        (Some(0), Some(packets)) => {
            let counts: Value =
                serde_json::from_slice(&output.stdout).map_err(|e| e.to_string())?;
            if counts["packets"] == packets {
                Ok(true)
            } else {
                Err(format!("{file}: {} packets, the index has {packets}", counts["packets"]))
            }
        }
        (Some(0), None) => Err(format!("{file}: is not a capture and was read")),
        (Some(2), _) if message.lines().count() == 1 && output.stdout.is_empty() => Ok(false),
        (status, _) => Err(format!("{file}: status {status:?}: {message}")),
    }
}

#[test]
fn every_public_capture_has_its_packets_or_is_refused() {
    let Some(data) = captures() else { return };
    let files = index(&data);
    assert!(files.len() > 400, "{} files in the index", files.len());
    let next = AtomicUsize::new(0);
    let work = || {
        let mut outcomes = Vec::new();
        while let Some((file, packets)) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            outcomes.push((packets.is_some(), file, check(&data, file, *packets)));
        }
        outcomes
    };
    let outcomes = std::thread::scope(|scope| {
        let workers = [scope.spawn(work), scope.spawn(work)];
        workers.map(|worker| worker.join().expect("a worker does not panic")).concat()
    });
    let wrong: Vec<_> =
        outcomes.iter().filter_map(|(.., outcome)| outcome.as_ref().err()).collect();
    let refused: Vec<_> = outcomes
        .iter()
        .filter(|(capture, _, outcome)| *capture && *outcome == Ok(false))
        .map(|(_, file, _)| file.as_str())
        .collect();
    let read = outcomes.iter().filter(|(.., outcome)| *outcome == Ok(true)).count();
    println!("{read} captures read; refused captures: {refused:?}");
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(read > 300 && refused.len() < 8, "{read} read, refused: {refused:?}");
}

/// TCP connections of the composite inside GTP-U (4), VXLAN (2) and 6in4 (5): all, with SYN, with SYN
/// and FIN. The index opens none of the three; here the innermost header counts.
const INSIDE_TUNNELS: [u64; 3] = [11, 7, 5];

#[test]
fn the_composite_is_counted_as_the_index_has_it() {
    let Some(data) = captures() else { return };
    let path = data.join("pcap/composite/composite_a.pcap.gz");
    let counts = counted(&[path.to_str().expect("UTF-8")]);
    assert_eq!(counts["packets"], 112_013);
    assert_eq!(counts["inputs"][0]["bytes"], 5_020_982);
    let keys = ["tcp_connections", "tcp_connections_with_syn", "tcp_connections_with_syn_and_fin"];
    for ((key, indexed), inside) in keys.into_iter().zip([3_097u64, 1_241, 642]).zip(INSIDE_TUNNELS)
    {
        let counted = counts[key].as_u64().expect("a count");
        let difference = counted as i64 - indexed as i64;
        println!("{key}: {counted}, the index has {indexed} ({difference:+})");
        let outside = counted.abs_diff(indexed + inside);
        assert!(
            outside * 200 <= indexed,
            "{key}: {counted}, {indexed} and {inside} inside tunnels"
        );
    }
    let seconds = counts["seconds"].as_f64().expect("a number");
    assert!((seconds - 1_198.59).abs() < 0.01, "{seconds} s");
}
