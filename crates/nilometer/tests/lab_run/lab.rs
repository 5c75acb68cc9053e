//! `nilometer lab` as a user sees it: short runs through namespaces, what they leave, how they end.
//!
//! Nothing here depends on a duration or on a figure that a busy machine changes: the tests assert
//! conservation, exact sizes, digests, names and leftovers.

use std::collections::BTreeSet;
use std::fs;

use crate::common::{Room, capture, last_line, privileged, text};
use nilometer_files::table::flows::read_flow_table;
use nilometer_files::table::packets::{Fate, read_packet_table};
use nilometer_lab::trial::bounds::{Bounds, out_of_bounds};
use nilometer_lab::trial::outcome::Outcome;
use serde_json::Value;

/// The files of a run, without `--pcap`.
const FILES: [&str; 10] = [
    ".nilometer-results",
    "execution.ndjson",
    "flows.parquet",
    "lab.toml",
    "live.ndjson",
    "model.json",
    "packets.parquet",
    "report.html",
    "report.json",
    "result.json",
];
const PACKETS: [&str; 9] = [
    "in",
    "out",
    "lost",
    "originated",
    "consumed",
    "reordered",
    "duplicated",
    "corrupted",
    "meter_lost",
];

fn count(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} is no count in {value}"))
}

fn has(value: &Value, keys: &[&str]) {
    for key in keys {
        assert!(value.get(key).is_some(), "{key} is missing in {value}");
    }
}

/// `in + originated + duplicated = out + consumed + lost`.
fn balanced(packets: &Value) {
    has(packets, &PACKETS);
    let sum = |keys: [&str; 3]| keys.map(|key| count(packets, key)).iter().sum::<u64>();
    assert_eq!(sum(["in", "originated", "duplicated"]), sum(["out", "consumed", "lost"]));
    assert!(count(packets, "in") > 0, "{packets}");
}

/// Asserts what holds for every completed run on any machine.
fn sound(result: &Value) {
    balanced(&result["packets"]);
    for direction in result["directions"].as_array().expect("directions") {
        balanced(&direction["packets"]);
    }
    for key in PACKETS.into_iter().filter(|&key| key != "meter_lost") {
        let ways = result["directions"].as_array().expect("directions").iter();
        let both: u64 = ways.map(|way| count(&way["packets"], key)).sum();
        assert_eq!(count(&result["packets"], key), both, "{key}");
    }
    assert_eq!(result["execution"]["sizes_exact"], true, "{result}");
    // Connections that a part's end cuts are under way at the copy's end.
    let ended = |key| count(&result["execution"], key);
    let cut = if result["part"].is_object() { ended("unfinished") } else { 0 };
    assert_eq!(ended("completed") + cut, count(result, "connections"), "{result}");
    assert_eq!(count(&result["packets"], "meter_lost"), 0, "{result}");
    for interface in result["interfaces"].as_array().expect("interfaces") {
        assert_eq!(interface["tx_packets"], interface["metered_tx"], "{interface}");
        assert_eq!(interface["rx_packets"], interface["metered_rx"], "{interface}");
    }
    let figures = result["fidelity"].as_array().expect("fidelity").iter();
    let names: Vec<_> = figures.map(|figure| figure["name"].as_str().expect("text")).collect();
    assert_eq!(names, ["file_size", "inter_connection", "source_rank", "destination_rank"]);
}

/// The names that scripts rely on.
fn named(result: &Value) {
    has(result, &["seed", "commit", "digest", "dut", "connections", "fidelity", "execution"]);
    has(result, &["intervals", "packets", "delay_ns", "wire_delay_ns", "warnings", "report"]);
    has(&result["execution"], &["sizes_exact", "completed", "lateness_p99_ns"]);
    for figure in result["fidelity"].as_array().expect("fidelity") {
        has(figure, &["name", "distance", "floor", "ratio"]);
    }
    for interval in result["intervals"].as_array().expect("intervals") {
        has(interval, &["start_s", "bytes_target", "bytes_generated", "flows_target"]);
        has(interval, &["flows_generated", "sessions_target", "sessions_generated"]);
    }
    for delay in [&result["delay_ns"], &result["wire_delay_ns"]] {
        has(delay, &["p5", "mean", "p50", "p95", "p99"]);
        let quantiles = ["p5", "p50", "p95", "p99"].map(|key| count(delay, key));
        assert!(quantiles.is_sorted() && quantiles[0] > 0, "{delay}");
    }
}

fn digest(room: &Room, model: &str, seed: &str, threads: &str) -> String {
    let plan = ["generate", "plan", model, "--seed", seed, "--threads", threads, "--json"];
    room.counted(&plan)["digest"].as_str().expect("text").to_owned()
}

fn names_in(folder: &str) -> BTreeSet<String> {
    let Ok(entries) = fs::read_dir(folder) else { return BTreeSet::new() };
    entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into()).collect()
}

/// A run of four seconds through the Linux kernel, everything it left, and that it can be replaced.
#[test]
fn a_short_run_meets_its_exact_properties() {
    if !privileged("a short run") {
        return;
    }
    let room = Room::new("short");
    // Of the embedded records, whose laws are played.
    let words =
        ["lab", "run", "--out", "run", "--seed", "3", "--duration", "4", "--interval", "20"];
    let words = [&words[..], &["--calibration", "1", "--pcap", "--json"]].concat();
    let result = room.counted(&words);
    assert_eq!(result, room.json("run/result.json"));
    named(&result);
    sound(&result);
    assert_eq!((&result["seed"], &result["dut"]), (&3.into(), &"nilometer".into()));
    assert_eq!((&result["time_divisor"], &result["interrupted"]), (&1.0.into(), &false.into()));
    let page = room.path("run/report.html").canonicalize().ok();
    assert_eq!(result["report"].as_str(), page.as_deref().and_then(|page| page.to_str()));
    planned(&room, &result);
    let mut files: BTreeSet<String> = FILES.map(str::to_owned).into();
    files.extend(["client.pcapng", "queues.parquet", "server.pcapng"].map(str::to_owned));
    assert_eq!(names_in(room.path("run").to_str().expect("UTF-8")), files);
    assert!(!room.path("run.partial").exists());
    tables(&room, &result);
    captures(&room, &result);
    executed(&room, &result);
    redrawn(&room);
    replaced(&room);
}

/// The kernel forwards, by routes that FRR's daemons have brought it.
#[test]
fn a_short_run_through_frr_is_sound() {
    let what = "a run through FRR";
    if !privileged(what) {
        return;
    }
    if !nilometer_linux::frr::is_installed() {
        println!("skipped: {what}: FRR is not installed (Debian: apt-get install frr)");
        return;
    }
    let room = Room::new("short-frr");
    let words = ["lab", "run", "--out", "run", "--seed", "3", "--duration", "2", "--dut", "frr"];
    let words = [&words[..], &["--calibration", "0", "--json"]].concat();
    let result = room.counted(&words);
    sound(&result);
    assert_eq!(result["dut"], "frr");
    assert_eq!(result["packets"]["in"], result["packets"]["out"], "{result}");
}

/// The digest of a run is that of its plan, independent of threads; seed and model change it.
fn planned(room: &Room, result: &Value) {
    let ours = result["digest"].as_str().expect("text");
    assert_eq!(ours.len(), 64);
    assert_eq!(digest(room, "run/model.json", "3", "1"), ours);
    assert_eq!(digest(room, "run/model.json", "3", "2"), ours);
    assert_ne!(digest(room, "run/model.json", "4", "1"), ours);
    let mut model = room.json("run/model.json");
    let connections = count(&model["intervals"][0]["whole"], "connections");
    model["intervals"][0]["whole"]["connections"] = (connections + 1).into();
    room.write("other.json", model.to_string());
    assert_ne!(digest(room, "other.json", "3", "1"), ours);
}

fn tables(room: &Room, result: &Value) {
    let mut syns = 0;
    read_flow_table(&room.path("run/flows.parquet"), &mut |record| {
        syns += u64::from(record.has_start());
        Ok(())
    })
    .expect("flow records");
    assert_eq!(syns, 2 * count(result, "connections"), "each connection is two flows");
    let (mut passed, mut lost, mut ways) = (0, 0, BTreeSet::new());
    read_packet_table(&room.path("run/packets.parquet"), &mut |row| {
        passed += u64::from(row.fate == Fate::Passed);
        lost += u64::from(row.fate == Fate::Lost);
        ways.insert(row.direction);
        assert_eq!(row.delay_ns.is_some(), row.entered_ns.is_some() && row.left_ns.is_some());
        Ok(())
    })
    .expect("packet stamps");
    let packets = &result["packets"];
    assert_eq!(lost, count(packets, "lost"));
    assert_eq!(passed + count(packets, "corrupted"), count(packets, "in") - lost);
    assert_eq!(ways.len(), 2);
}

/// The kept packets are those that the meter counted, which are those that the kernel counted.
fn captures(room: &Room, result: &Value) {
    for interface in result["interfaces"].as_array().expect("interfaces") {
        let file = format!("run/{}.pcapng", interface["name"].as_str().expect("text"));
        let counts = room.counted(&["flows", &file, "--json"]);
        let kernel = count(interface, "tx_packets") + count(interface, "rx_packets");
        assert_eq!(count(&counts, "packets"), kernel, "{file}");
        assert_eq!(counts["tcp_connections_with_syn_and_fin"], result["connections"], "{file}");
        assert_eq!(count(&counts, "malformed"), 0, "{file}");
    }
}

fn executed(room: &Room, result: &Value) {
    let log = room.read("run/execution.ndjson");
    let lines: Vec<Value> =
        log.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    assert_eq!(lines.len() as u64, count(result, "connections"));
    for line in &lines {
        assert_eq!(line["outcome"], "Completed", "{line}");
        assert_eq!(line["received_bytes"], line["size_bytes"], "{line}");
        assert!(count(line, "started_ns") >= count(line, "planned_ns"), "{line}");
    }
    let six = |line: &&Value| line["source"].as_str().is_some_and(|source| source.contains(':'));
    let of_six = lines.iter().filter(six).count();
    assert!(of_six > 0 && of_six < lines.len(), "{of_six} of {} over IPv6", lines.len());
}

/// `report` redraws the page from the run's results.
fn redrawn(room: &Room) {
    let page = room.read("run/report.html");
    fs::remove_file(room.path("run/report.html")).expect("the page");
    let printed = room.done(&["report", "run"]);
    assert!(printed.trim_end().ends_with("run/report.html"), "{printed}");
    assert_eq!(room.read("run/report.html"), page);
}

/// Results are refused as a target without `--force`, and replaced with it.
fn replaced(room: &Room) {
    let words = ["lab", "run", "--out", "run", "--duration", "0.5", "--dut", "wire"];
    let line = room.refused(&words);
    assert!(line.contains("run exists already") && line.contains("--force"), "{line}");
    let output = room.run(&[&words[..], &["--seed", "5", "--force", "--check", "--json"]].concat());
    let stderr = text(&output.stderr);
    let result: Outcome = serde_json::from_slice(&output.stdout).expect("a result");
    let found = out_of_bounds(&result, &Bounds::default());
    let status = if found.is_empty() { 0 } else { 1 };
    assert_eq!(output.status.code(), Some(status), "{found:?}: {stderr}");
    for finding in found {
        assert!(stderr.contains(&format!("nilometer: --check: {finding}\n")), "{stderr}");
    }
    let kept = room.json("run/result.json");
    sound(&kept);
    assert_eq!((&kept["seed"], &kept["dut"]), (&5.into(), &"wire".into()));
    assert!(kept["wire_delay_ns"].is_null(), "a wire is not set beside itself");
    let left = names_in(room.path("run").to_str().expect("UTF-8"));
    assert_eq!(left, FILES.map(str::to_owned).into());
}

/// SIGINT keeps the measurements so far. The input is a capture, fitted into a minute: k = its seconds
/// / 60.
#[test]
fn an_interrupted_run_keeps_its_results_so_far() {
    if !privileged("an interrupted run") {
        return;
    }
    let room = Room::new("interrupted");
    room.write("small.pcap", capture(300, |number| 200 + 37 * number as usize));
    let words = ["lab", "run", "--input", "small.pcap", "--fit", "--calibration", "0.5", "--json"];
    let mut lab = room.start(&[&words[..], &["--out", "run"]].concat());
    let live = room.path("run.partial/live.ndjson");
    lab.wait_for("completed connections", || {
        let line = last_line(&live).map(|line| serde_json::from_str(&line).expect("JSON"));
        line.is_some_and(|line| count(&line, "completed") > 0)
    });
    lab.signal(libc::SIGINT);
    let output = lab.end();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert!(stderr.lines().last().is_some_and(|line| line.contains("interrupted")), "{stderr}");
    let printed: Value = serde_json::from_slice(&output.stdout).expect("a result");
    let result = room.json("run.partial/result.json");
    assert_eq!(printed, result);
    assert!(!room.path("run").exists());
    named_files(&room, "run.partial", &FILES);
    assert_eq!((&result["interrupted"], &result["synthetic"]), (&true.into(), &false.into()));
    assert!(result["warnings"][0].as_str().is_some_and(|stderr| stderr.contains("interrupted")));
    balanced(&result["packets"]);
    assert_eq!(result["execution"]["sizes_exact"], true);
    let completed = count(&result["execution"], "completed");
    assert!(completed > 0 && count(&result["execution"], "unfinished") > 0, "{result}");
    let page = result["report"].as_str().expect("text");
    assert!(page.ends_with("run.partial/report.html"), "{page}");
    divided(&room, &result);
}

fn named_files(room: &Room, folder: &str, wanted: &[&str]) {
    let there = names_in(room.path(folder).to_str().expect("UTF-8"));
    for name in wanted {
        assert!(there.contains(*name), "{name} is not among {there:?}");
    }
}

/// k is the original's duration over a minute, in the result as in the model.
fn divided(room: &Room, result: &Value) {
    let model = room.json("run.partial/model.json");
    let intervals = model["intervals"].as_array().expect("intervals").iter();
    let original_s: f64 = intervals.map(|i| i["duration_s"].as_f64().expect("seconds")).sum();
    assert!((29.0..32.0).contains(&original_s), "{original_s} s; a connection each 100 ms is 30 s");
    let k = result["time_divisor"].as_f64().expect("a number");
    assert!((k - original_s / 60.0).abs() < 1e-9, "{k} for {original_s} s");
    assert_eq!(model["generation"]["time_divisor"], k);
    assert_eq!(result["connections"], 300, "connections are kept");
}

/// With a duration the capture keeps its own speed.
#[test]
fn an_input_with_a_duration_keeps_its_speed() {
    if !privileged("a run of a capture") {
        return;
    }
    let room = Room::new("speed");
    room.write("small.pcap", capture(300, |number| 200 + 37 * number as usize));
    room.done(&["lab", "init", "LAB.toml"]);
    let words = ["lab", "run", "LAB.toml", "--input", "small.pcap", "--duration", "3", "--json"];
    let result = room.counted(&[&words[..], &["--calibration", "0", "--out", "run"]].concat());
    sound(&result);
    assert_eq!((&result["time_divisor"], &result["synthetic"]), (&1.0.into(), &false.into()));
    assert!(result["wire_delay_ns"].is_null(), "no calibration was requested");
    assert!((28..=31).contains(&count(&result, "connections")), "{}", result["connections"]);
    assert_eq!(result["input"][0], "small.pcap");
    assert!(!room.read("run/model.json").contains("198.51.100."), "addresses are not in the model");
}

/// A model by hand is played from the lab's own pools.
#[test]
fn a_model_that_is_given_is_played() {
    if !privileged("a run of a model") {
        return;
    }
    let room = Room::new("given");
    let laws = ["--file-size", "pareto:index=1.5,min=1000", "--inter-connection"];
    let law = ["exponential:mean=0.2", "--sessions", "6", "--interval", "2", "-o", "my.json"];
    room.done(&[&["model", "new"][..], &laws, &law].concat());
    let words = ["lab", "run", "--model", "my.json", "--servers", "198.19.64.0/24", "--json"];
    let options = ["--duration", "2", "--calibration", "0", "--out", "run"];
    let result = room.counted(&[&words[..], &options].concat());
    sound(&result);
    let ratio = count(&result, "connections") as f64 / (6.0 * 2.0 / 0.2);
    assert!((0.5..1.5).contains(&ratio), "{} connections", result["connections"]);
    assert_eq!(result["input"][0], "my.json");
    assert!(
        room.read("run/report.html").contains("the model my.json"),
        "the page says what it was"
    );
    let played = room.read("run/model.json");
    assert!(played.contains("198.19.64.0/24") && played.contains("stated"), "{played}");
    assert!(!result["warnings"].to_string().contains("of the input's bytes"), "{result}");
    let error = room.refused(&["lab", "run", "--input", "my.json", "--out", "other"]);
    assert!(error.contains("lab run --model"), "{error}");
}

/// SIGKILL leaves files and nothing else; a lab beside it does not notice.
#[test]
fn a_killed_run_leaves_files_alone_and_a_second_lab_untouched() {
    if !privileged("a killed run") {
        return;
    }
    let room = Room::new("killed");
    let machine = || {
        let interfaces = names_in("/sys/class/net");
        let ours = ["c0", "s0", "p0", "p1"].map(|name| interfaces.contains(name));
        // (Other tests of this process make namespaces for devices of their own meanwhile.)
        let mut named = names_in("/run/netns");
        named.retain(|name| !name.starts_with("nilo-"));
        (named, ours)
    };
    let before = machine();
    let other = ["lab", "run", "--out", "other", "--duration", "5", "--calibration", "0", "--json"];
    let other = room.start(&other);
    let mut lab = room.start(&["lab", "run", "--out", "run", "--seed", "9", "--calibration", "0"]);
    let live = room.path("run.partial/live.ndjson");
    lab.wait_for("a line of progress", || last_line(&live).is_some());
    let pid = lab.pid();
    lab.signal(libc::SIGKILL);
    let output = lab.end();
    assert_eq!(output.status.code(), None, "killed by a signal");
    assert!(!room.path("run").exists());
    named_files(&room, "run.partial", &["model.json", "lab.toml", "live.ndjson"]);
    assert!(room.read("run.partial/lab.toml").contains("seed = 9"));
    let line: Value =
        serde_json::from_str(&last_line(&live).expect("a line")).expect("a whole line");
    has(&line, &["elapsed_s", "completed", "packets_in", "packets_lost"]);
    assert_eq!(machine(), before);
    assert_eq!(descendants(pid), Vec::<String>::new());
    let output = other.end();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let result: Value = serde_json::from_slice(&output.stdout).expect("a result");
    sound(&result);
    assert_eq!(result, room.json("other/result.json"));
    assert_eq!(machine(), before);
}

/// Processes that belong to the group, session or parent with this number.
fn descendants(pid: u32) -> Vec<String> {
    let processes = names_in("/proc").into_iter().filter(|name| name.parse::<u32>().is_ok());
    let stats = processes.filter_map(|name| fs::read_to_string(format!("/proc/{name}/stat")).ok());
    let related = stats.filter(|stat| {
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
        fields.skip(1).take(3).any(|field| field == pid.to_string())
    });
    related.collect()
}

/// With or without root, a lab runs or says in one sentence what to do.
#[test]
fn an_ordinary_user_gets_a_lab_or_one_sentence() {
    let room = Room::new("ordinary");
    let Some(as_unprivileged) = room.as_unprivileged() else { return };
    let output =
        as_unprivileged(&["lab", "run", "--duration", "0.5", "--calibration", "0", "--json"]);
    let stderr = text(&output.stderr);
    match output.status.code() {
        Some(0) => sound(&serde_json::from_slice(&output.stdout).expect("a result")),
        status => {
            assert_eq!(status, Some(2), "{stderr}");
            assert_eq!(stderr.lines().count(), 1, "{stderr}");
            assert!(stderr.contains("sudo"), "{stderr}");
            assert!(names_in(room.path("home").to_str().expect("UTF-8")).is_empty());
        }
    }
}

fn good() -> Outcome {
    serde_json::from_value(serde_json::json!({
        "format": "nilometer-result/1", "seed": 1, "version": "", "commit": "", "digest": "",
        "dut": "linux", "input": [], "synthetic": true, "time_divisor": 1.0, "interrupted": false,
        "connections": 1000,
        "fidelity": [{
            "name": "file_size", "distance": 0.02, "floor": 0.01, "floor_p5": 0.0,
            "floor_p95": 0.02, "ratio": 2.0, "count": 1000
        }],
        "inter_connection_by_pair": null,
        "execution": {
            "sizes_exact": true, "completed": 1000, "failed": 0, "unfinished": 0, "sessions": 9,
            "collisions": 0, "lateness_p50_ns": 1, "lateness_p99_ns": 2, "lateness_max_ns": 3,
            "congestion": "cubic"
        },
        "intervals": [{
            "start_s": 0.0, "end_s": 20.0, "bytes_target": 1000, "bytes_generated": 1050,
            "flows_target": 1000, "flows_generated": 950, "sessions_target": 9.0,
            "sessions_generated": 9.0, "packets": 1, "ip_bytes": 1
        }],
        "packets": {
            "in": 1, "out": 1, "lost": 0, "originated": 0, "consumed": 0, "reordered": 0,
            "duplicated": 0, "corrupted": 0, "meter_lost": 0
        },
        "directions": [], "delay_ns": null, "wire_delay_ns": null, "stamps": "", "interfaces": [],
        "warnings": [], "report": ""
    }))
    .expect("a result")
}

/// A word that the finding must have, and the fault in the outcome.
type Fault = (&'static str, fn(&mut Outcome));

#[test]
fn each_bound_of_the_check_is_a_bound() {
    assert_eq!(out_of_bounds(&good(), &Bounds::default()), Vec::<String>::new());
    let faults: [Fault; 9] = [
        ("file_size is 2.01", |outcome| outcome.fidelity[0].ratio = Some(2.01)),
        ("1000 samples are too few", |outcome| outcome.fidelity[0].floor = 0.2),
        ("no sampling floor", |outcome| outcome.fidelity[0].ratio = None),
        ("byte-exact", |outcome| outcome.execution.sizes_exact = false),
        ("999 of 1000", |outcome| outcome.execution.completed = 999),
        ("payload bytes", |outcome| outcome.intervals[0].bytes_generated = 1_051),
        ("payload bytes", |outcome| outcome.intervals[0].bytes_generated = 949),
        ("connections from 0 s", |outcome| outcome.intervals[0].flows_generated = 949),
        ("meter lost 1", |outcome| outcome.packets.meter_lost = 1),
    ];
    for (word, break_it) in faults {
        let mut outcome = good();
        break_it(&mut outcome);
        let found = out_of_bounds(&outcome, &Bounds::default());
        assert!(found.len() == 1 && found[0].contains(word), "{word}: {found:?}");
    }
}
