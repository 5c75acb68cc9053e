//! A leg whose connections have scripts, over a bare wire: both engines, the meter, and a quiet end.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nilometer_conversation::{Act, Connection, Opening, Side, Step};
use nilometer_lab::generate::Outcome;
use nilometer_lab::trial::bounds::{Bounds, out_of_bounds};
use nilometer_lab::trial::config::{DutKind, LabConfig};
use nilometer_lab::trial::leg::{self, Leg, LegLive};
use nilometer_lab::trial::meter::Likewise;
use nilometer_lab::trial::original;
use nilometer_lab::trial::outcome::{CoverageOutcome, Delay, Outcome as Whole};
use nilometer_lab::trial::part::Wanted;
use nilometer_lab::trial::source::EstimateRequest;
use nilometer_likeness::Verdict;
use nilometer_linux::privilege::{self, Privilege};
use nilometer_traffic::plan::PlannedConnection;
use nilometer_traffic::script::Script;
use nilometer_wire::{Time, build};

const MS: u64 = 1_000_000;
const FIN: u8 = 1;

fn send(by: Side, awaits: u64, bytes: u64) -> Step {
    let act = Act::Send { bytes, segments: bytes.div_ceil(1_448) as u32, took_ns: 0 };
    Step { by, awaits, pause_ns: 5 * MS, act }
}

fn fin(by: Side, awaits: u64) -> Step {
    Step { by, awaits, pause_ns: 5 * MS, act: Act::Fin }
}

fn planned(index: u32) -> PlannedConnection {
    PlannedConnection {
        start: Time::from_nanos(u64::from(index) * 5 * MS),
        session: index,
        interval: 0,
        source: [198, 18, 0, 1 + index as u8].into(),
        destination: [198, 19, 0, 1].into(),
        size_bytes: 0,
        request_bytes: 0,
        segment_bytes: 1_448,
        source_port: 40_000 + index as u16,
        script: Some(index % 2),
    }
}

#[test]
fn a_leg_plays_scripts_and_leaves_open_connections_open() {
    match privilege::privilege() {
        Privilege::Root => {}
        other => return println!("skipped a leg of scripts: it needs root (found: {other})"),
    }
    let mut closed = vec![send(Side::Client, 0, 300), send(Side::Server, 300, 9_000)];
    let open = closed.clone();
    closed.extend([fin(Side::Client, 9_000), fin(Side::Server, 301)]);
    // Those of odd numbers have time stamps, the others none; each begins before the last has ended.
    let scripts = [(closed, false), (open, true)].map(|(steps, has_time_stamps)| Script {
        opening: Opening::Seen,
        steps,
        tried_ns: 0,
        has_time_stamps,
        segment_bytes: 1_448,
        acks_each: [false; 2],
    });
    let plan: Vec<_> = (0..20).map(planned).collect();
    let config = LabConfig { dut: DutKind::Wire, ..LabConfig::default() };
    let leg = Leg {
        dut: DutKind::Wire,
        config: &config,
        router: None,
        paths: [None; 2],
        connections: &plan,
        scripts: &scripts,
        end_ns: 400 * MS,
        interval_ends_ns: vec![400 * MS],
        likewise: Some(Likewise { ns: 400 * MS, one_side: None }),
        captures: None,
        stamps: None,
    };
    let played = leg::play(&leg, &LegLive::default(), &Arc::new(AtomicBool::new(false))).unwrap();
    for execution in &played.executions {
        assert_eq!((execution.outcome, execution.received_bytes), (Outcome::Completed, 9_000));
        let planned = &plan[execution.index as usize];
        assert_eq!(execution.local_port, planned.source_port);
    }
    assert_eq!((played.served.accepted, played.served.completed), (20, 20));
    let observed = played.sighted.observed.expect("what was observed");
    assert_eq!(observed.connections.len(), 20);
    // A handshake delayed by the machine until the next connection began may have taken that one's setting.
    let as_asked = |one: &&Connection| one.has_time_stamps == (one.client.port() % 2 == 1);
    assert!(observed.connections.iter().filter(as_asked).count() >= 18, "{observed:?}");
    for one in observed.connections.iter().filter(as_asked) {
        assert_eq!(one.of(Side::Server).segment_max_bytes, 1_448);
        let headers = one.carried.iter().map(|side| side.octets - side.data_bytes).sum::<u64>();
        let packets = one.carried.iter().map(|side| side.packets).sum::<u64>();
        // SYNs have 20 bytes of options with time stamps, and 12 without; other segments 12, or none.
        let options = if one.has_time_stamps { 12 * packets + 16 } else { 2 * 12 };
        assert_eq!(headers, 40 * packets + options);
    }
    // One record for each direction; the FINs are those of the scripts, and the end adds none.
    let records = &played.sighted.records;
    assert_eq!(records.len(), 40);
    let closed = records.iter().filter(|record| record.tcp_flags & FIN != 0).count();
    assert_eq!(closed, 20, "of ten connections, both ways");
}

type Spoil = fn(&mut Whole);

/// `--check` finds each violated bound, one at a time.
fn each_bound_is_held(result: &str) {
    let read = || -> Whole {
        let mut sound: Whole = serde_json::from_str(result).expect("a result");
        sound.likeness.iter_mut().for_each(|law| law.verdict = Verdict::Alike);
        sound.packets.lost = 0;
        delays(&mut sound, 1, None);
        sound
    };
    assert_eq!(out_of_bounds(&read(), &Bounds::default()), Vec::<String>::new());
    let found = |spoil: Spoil, allows_few: bool| {
        let mut spoilt = read();
        spoil(&mut spoilt);
        out_of_bounds(&spoilt, &Bounds { allows_few, ..Bounds::default() }).join("; ")
    };
    let spoilt: [(Spoil, &str); 11] = [
        (|one| one.likeness[3].verdict = Verdict::Differs, "differs from the original's"),
        (|one| one.likeness[3].verdict = Verdict::TooFew, "too few samples to judge"),
        (|one| coverage(one).bytes = 0.94, "94.0 % of the original's TCP bytes"),
        (|one| coverage(one).flows = 0.94, "94.0 % of the original's TCP connections"),
        (|one| coverage(one).volume_ratio = 1.06, "1.060 times the original's"),
        (|one| coverage(one).volume_ratio = 0.94, "0.940 times the original's"),
        (|one| one.execution.sizes_exact = false, "not byte-exact"),
        (|one| one.execution.completed -= 1, "connections completed"),
        (|one| one.packets.lost = 1 + one.packets.entered / 1_000, "over 0.1 % (--loss-max)"),
        (
            |one| delays(one, 10_000_001, None),
            "p99 delay (delay_ns.p99) is 10.000 ms, the bare wire's 0.000 ms",
        ),
        (|one| delays(one, 12_000_001, Some(2_000_000)), "more than 10 ms above it (--delay-max)"),
    ];
    for (spoil, message) in spoilt {
        assert!(found(spoil, false).contains(message), "{message}: {}", found(spoil, false));
    }
    assert_eq!(found(spoilt[1].0, true), "", "laws with too few samples may pass");
    assert_ne!(found(spoilt[0].0, true), "");
    // Within the bounds, and within others.
    let within: [Spoil; 2] = [
        |one| one.packets.lost = one.packets.entered / 1_000,
        |one| delays(one, 12_000_000, Some(2_000_000)),
    ];
    assert_eq!(within.map(|spoil| found(spoil, false)), ["", ""]);
    let wide = Bounds { loss_max: 0.5, delay_max_ns: 2e7, ..Bounds::default() };
    for (spoil, _) in &spoilt[8..] {
        let mut spoilt = read();
        spoil(&mut spoilt);
        assert_eq!(out_of_bounds(&spoilt, &wide), Vec::<String>::new());
    }
}

/// The 99th percentiles of delay, through the device and over the wire.
fn delays(outcome: &mut Whole, device_ns: u64, wire_ns: Option<u64>) {
    let of = |p99| Delay { p99, ..Delay::default() };
    (outcome.delay_ns, outcome.wire_delay_ns) = (Some(of(device_ns)), wire_ns.map(of));
}

fn coverage(outcome: &mut Whole) -> &mut CoverageOutcome {
    outcome.coverage.as_mut().expect("the original was observed")
}

/// Two runs beside each other, with successive seeds, and what they have in common.
#[test]
fn repeated_runs_have_a_page_of_their_own() {
    match privilege::privilege() {
        Privilege::Root => {}
        other => return println!("skipped repeated runs: they need root (found: {other})"),
    }
    let room = crate::common::Room::new("repeats");
    room.write("small.pcap", crate::common::talk(200, |number| 200 + 37 * number as usize, true));
    let words = ["lab", "run", "small.pcap", "--part", "0.5+1", "--dut", "wire", "--json"];
    let words = [&words[..], &["--calibration", "0", "--seed", "7", "--out", "run"]].concat();
    let printed = room.counted(&[&words[..], &["--repeats", "2"]].concat());
    assert_eq!(printed, room.json("run/result.json"));
    let runs = printed["runs"].as_array().expect("runs");
    for (number, run) in (1usize..).zip(runs) {
        let directory = format!("run-{number}");
        assert_eq!(
            (&run["directory"], &run["seed"]),
            (&directory.into(), &(6 + number as u64).into())
        );
        let own = room.json(&format!("run-{number}/result.json"));
        assert_eq!((&own["seed"], &own["packets"]["in"]), (&run["seed"], &run["packets"]));
        let p50 = printed["delay_p50_ns"]["runs"][number - 1].as_f64();
        assert_eq!(own["delay_ns"]["p50"].as_f64(), p50);
    }
    assert_eq!(runs.len(), 2);
    let [low, high] = [0, 1].map(|end| printed["delay_p50_ns"]["interval"][end].as_f64());
    let mean = printed["delay_p50_ns"]["mean"].as_f64();
    assert!(low <= mean && mean <= high && low.is_some(), "{printed}");
    assert_eq!(printed["likeness"].as_array().map(Vec::len), Some(nilometer_likeness::LAWS.len()));
    assert!(room.read("run/report.html").contains("../run-2/report.html"));
    let line = room.refused(&[&words[..], &["--repeats", "2"]].concat());
    assert!(line.contains("exists already"), "{line}");
    let line = room.refused(&[&words[..], &["--repeats", "1"]].concat());
    assert!(line.contains("--repeats 1"), "{line}");
}

/// From a capture to the verdict: every connection once, between as many hosts, with the original's bytes, by its
/// own clock; and the verdict is on the metered copy.
#[test]
fn a_capture_is_played_as_it_was_and_judged_against_itself() {
    match privilege::privilege() {
        Privilege::Root => {}
        other => return println!("skipped a run of a capture: it needs root (found: {other})"),
    }
    let room = crate::common::Room::new("as-it-was");
    room.write("small.pcap", crate::common::talk(200, |number| 200 + 37 * number as usize, true));
    let words =
        ["lab", "run", "small.pcap", "--exact", "--dut", "wire", "--part", "0.5+4", "--json"];
    let output = room.done(&[&words[..], &["--calibration", "0", "--out", "run"]].concat());
    let result: serde_json::Value = serde_json::from_str(&output).expect("one JSON object");
    assert_eq!(
        (&result["part"]["start_s"], &result["part"]["seconds"]),
        (&0.5.into(), &4.0.into())
    );
    assert_eq!((&result["speed"], &result["hosts_folded"]), (&1.0.into(), &0.into()));
    let coverage = |key: &str| result["coverage"][key].as_f64().expect("a share");
    assert_eq!((coverage("bytes"), coverage("flows")), (1.0, 1.0), "{}", result["coverage"]);
    assert_eq!(coverage("volume_ratio"), 1.0, "{}", result["coverage"]);
    // Hosts of Linux acknowledge; those of this capture hardly do.
    assert!((1.0..1.4).contains(&coverage("octets_ratio")), "{}", result["coverage"]);
    let likeness = result["likeness"].as_array().expect("a list");
    assert_eq!(likeness.len(), nilometer_likeness::LAWS.len());
    let law = |name: &str| likeness.iter().find(|law| law["name"] == name).expect("a law");
    let exact =
        ["size_asked", "size_answered", "exchanges", "first_speaker", "sources", "destinations"];
    for name in exact.into_iter().chain(["pairs", "endings", "bytes_by_size"]) {
        assert_eq!(law(name)["distance"].as_f64(), Some(0.0), "{}", law(name));
    }
    let names: Vec<&str> = { result["fidelity"].as_array().expect("a list").iter() }
        .filter_map(|one| one["name"].as_str())
        .collect();
    assert_eq!(names, ["file_size", "inter_connection", "source_rank", "destination_rank"]);
    assert_eq!(result["fidelity"][0]["distance"], law("size_answered")["distance"]);
    assert_eq!(result["execution"]["laws"].as_array().map(Vec::len), Some(4));
    assert_eq!(result["execution"]["sizes_exact"], true);
    each_bound_is_held(&output);
    // The kept model and the seed are the plan; and it can be played again.
    let plan = |words: &[&str]| {
        room.counted(&[&["generate", "plan", "run/model.json", "--json"], words].concat())
    };
    assert_eq!(plan(&["--exact"])["digest"], result["digest"]);
    assert_ne!(plan(&["--seed", "1"])["digest"], plan(&["--seed", "2"])["digest"]);
    let words =
        ["lab", "run", "--model", "run/model.json", "--exact", "--duration", "1", "--dut", "wire"];
    let again =
        room.counted(&[&words[..], &["--calibration", "0", "--json", "--out", "again"]].concat());
    let part = again["connections"].as_u64().expect("a number");
    assert!((9..=11).contains(&part), "a second of them is {part}");
    assert_eq!((&again["speed"], again["likeness"].as_array()), (&1.0.into(), None));
    let page = room.read("run/report.html");
    assert!(page.contains("The copy against the original"), "the page has the table");
}

/// Three connections of seven packets, a thousand packets a second: their order is kept, and so are their bytes.
#[test]
fn packets_without_a_clock_are_played_evenly_where_a_rate_is_given() {
    let room = crate::common::Room::new("timeless");
    let timed = crate::common::talk(3, |_| 2_000, true);
    room.write("timed.pcap", &timed);
    room.write("timeless.pcap", crate::common::timeless(&timed));
    let learnt = |name: &str, rate| {
        let request = EstimateRequest { rate, ..EstimateRequest::of(vec![room.path(name)]) };
        let learnt =
            original::learn(&request, &Wanted::default(), &mut |_| {}).expect("it is read");
        let (estimate, original) = learnt.expect("packets");
        (estimate, original.part.seconds, original.observed.connections)
    };
    let (_, _, timed) = learnt("timed.pcap", None);
    let (estimate, seconds, timeless) = learnt("timeless.pcap", Some(1_000.0));
    assert!(
        estimate.warnings.iter().any(|message| message.contains("--rate")),
        "{:?}",
        estimate.warnings
    );
    assert!((seconds - 0.5).abs() < 0.01, "{seconds} s: the shortest part");
    let payload = |all: &[Connection]| -> Vec<[u64; 2]> {
        all.iter().map(|one| one.carried.each_ref().map(|carried| carried.payload_bytes)).collect()
    };
    assert_eq!(payload(&timed), payload(&timeless));
    let starts: Vec<u64> = timeless.iter().map(|one| one.start_ns / MS).collect();
    let each = starts[1] - starts[0];
    assert_eq!((starts[0], starts[2] - starts[1]), (1, each), "{starts:?}");
    assert!((7..=9).contains(&each), "{each} packets of a connection in as many ms");
}

/// Flow records, too: hosts, starts, sizes and durations are the original's, by its own clock; laws that records
/// do not show are not judged.
#[test]
fn flow_records_are_played_as_they_were_and_judged_by_records() {
    match privilege::privilege() {
        Privilege::Root => {}
        other => return println!("skipped a run of flow records: it needs root (found: {other})"),
    }
    let room = crate::common::Room::new("recorded");
    let tcp = crate::common::talk(200, |number| 200 + 37 * number as usize, true);
    let [from, to] = [([198, 51, 100, 9], 5_000), ([203, 0, 113, 9], 53)];
    let datagram = build::ethernet(&build::udp(from.into(), to.into(), &[0; 1_000]));
    let udp = crate::common::pcap(&[(1_002_000_000, datagram)]);
    room.write("small.pcap", [&tcp[..], &udp[24..]].concat());
    room.done(&["flows", "small.pcap", "-o", "small.parquet"]);
    let words = ["lab", "run", "small.parquet", "--exact", "--dut", "wire", "--part", "0.5+4"];
    let words = [&words[..], &["--calibration", "0", "--json", "--out", "run"]].concat();
    let result: serde_json::Value =
        serde_json::from_str(&room.done(&words)).expect("one JSON object");
    assert_eq!(result["part"]["seconds"], 4.0);
    for key in ["bytes", "flows", "volume_ratio"] {
        assert_eq!(result["coverage"][key], 1.0, "{}", result["coverage"]);
    }
    let likeness = result["likeness"].as_array().expect("a list");
    let law = |name: &str| likeness.iter().find(|law| law["name"] == name);
    for name in ["size_asked", "size_answered", "sources", "destinations", "pairs", "endings"] {
        let distance = law(name).expect(name)["distance"].as_f64();
        assert_eq!(distance, Some(0.0), "{name}");
    }
    // (All gaps are one of few whole milliseconds, so that a millisecond moves half of them.)
    for name in ["gap", "session_arrivals", "duration"] {
        assert!(law(name).expect(name)["distance"].is_f64(), "{name} is measured");
    }
    for name in ["exchanges", "think_time", "packet_size", "packets_per_second", "scaling"] {
        assert!(law(name).is_none(), "records do not tell {name}");
    }
    let warnings = result["warnings"].as_array().expect("a list");
    let message =
        |words: &str| warnings.iter().any(|one| one.as_str().unwrap_or("").contains(words));
    assert!(message("played as one exchange") && message("are UDP: only TCP"), "{warnings:?}");
    let share = result["coverage"]["udp_share"].as_f64().expect("a share");
    assert!((0.001..0.1).contains(&share), "{share} of the bytes are one datagram");
    assert!(room.read("run/report.html").contains("The copy against the original"));
}
