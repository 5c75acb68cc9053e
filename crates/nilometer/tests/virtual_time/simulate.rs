//! `nilometer simulate` from a shell: the same figures on any number of threads, and refusals.

use crate::common;
use common::{Room, text};
use serde_json::Value;

/// A scenario of datagrams, two points and three seeds, done in milliseconds.
const SMALL: &str = r#"
version = 1
name = "small"
duration_s = 2
seed = 4
seeds = 3

[parameters]
load = 0.9
buffer_packets = 5
discipline = "tail_drop"

[sweep]
load = [0.7, 1.3]

[[host]]
name = "source"
count = 3

[[router]]
name = "router"

[[host]]
name = "sink"

[[link]]
name = "access"
from = "source"
to = "router"
rate = "100 Mb/s"
delay = "1 ms"

[[link]]
name = "bottleneck"
from = "router"
to = "sink"
rate = "30 Mb/s"
delay = "2 ms"
queue = { discipline = "$discipline", buffer_packets = "$buffer_packets" }

[[datagrams]]
from = "source"
to = "sink"
rate = "10 $load Mb/s"
size_bytes = 1500
arrivals = "poisson"

[measure]
bottleneck = "bottleneck"
"#;

fn room(name: &str) -> Room {
    let room = Room::new(name);
    room.write("small.toml", SMALL);
    room
}

/// The result without what a clock or the number of threads decides.
fn timeless(mut result: Value) -> Value {
    let object = result.as_object_mut().expect("an object");
    for key in ["cpu_seconds", "wall_seconds", "peak_rss_bytes", "threads"] {
        assert!(object.remove(key).is_some(), "{key}");
    }
    result
}

#[test]
fn figures_do_not_depend_on_threads_or_repetition() {
    let room = room("threads");
    let run = |threads| {
        let words = ["simulate", "small.toml", "--json", "--threads", threads];
        timeless(room.counted(&words))
    };
    let one = run("1");
    assert_eq!(one, run("2"));
    assert_eq!(one, run("7"));
    assert_eq!(one, run("1"));
    let other = room.counted(&["simulate", "small.toml", "--json", "--seed", "5"]);
    assert_ne!(one["digest"], other["digest"]);
}

#[test]
fn the_json_result_has_the_fields_that_scripts_read() {
    let room = room("object");
    let result = room.counted(&["simulate", "small.toml", "--json"]);
    assert_eq!(result["scenario"], "small");
    assert_eq!((&result["seed"], &result["seeds"]), (&4.into(), &3.into()));
    assert_eq!(result["digest"].as_str().map(str::len), Some(64));
    assert!(result["cpu_seconds"].as_f64().expect("a number") > 0.0);
    assert!(result["peak_rss_bytes"].as_u64().expect("a count") > 1_000_000);
    let points = result["points"].as_array().expect("points");
    assert_eq!(points.len(), 2);
    for point in points {
        assert_eq!(point["discipline"], "tail_drop");
        assert_eq!(point["buffer_packets"], 5);
        let seeds = point["by_seed"].as_array().expect("runs");
        let each: Vec<_> = seeds.iter().map(|run| run["seed"].as_u64()).collect();
        assert_eq!(each, [Some(4), Some(5), Some(6)]);
        let shares = seeds.iter().map(|run| run["fair_share_percent"].as_f64().expect("a number"));
        let mean = shares.sum::<f64>() / 3.0;
        assert!((mean - point["fair_share_percent"].as_f64().expect("a number")).abs() < 1e-9);
        assert!(point["fair_share_percent_ci"].as_f64().expect("an interval") > 0.0);
    }
    let hops = |key: &Value| key["packet_hops"].as_u64().expect("a count");
    assert_eq!(hops(&result), points.iter().map(hops).sum::<u64>());
    let by_seed = |point: &Value| -> u64 {
        point["by_seed"].as_array().expect("runs").iter().map(hops).sum()
    };
    assert_eq!(hops(&result), points.iter().map(by_seed).sum::<u64>());
    let share = |number: usize| points[number]["fair_share_percent"].as_f64().expect("a number");
    assert!((share(0) - 70.0).abs() < 5.0 && share(1) > 90.0 && share(1) < 100.0);
    let loss = points[1]["loss_ratio"].as_f64().expect("a number");
    assert!((loss - 0.3 / 1.3).abs() < 0.05, "{loss}");
}

#[test]
fn parameters_are_set_and_swept() {
    let room = room("set");
    let run = |set: &[&str]| {
        let mut words = vec!["simulate", "small.toml", "--json", "--seeds", "1"];
        set.iter().for_each(|assignment| words.extend(["--set", assignment]));
        room.counted(&words)
    };
    let single = run(&["load=1.3", "buffer_packets=2000", "duration_s=1"]);
    assert_eq!(single["points"].as_array().map(Vec::len), Some(1));
    assert_eq!(single["points"][0]["loss_ratio"], 0.0);
    assert_eq!(single["duration_s"], 1.0);
    assert!(single["warnings"][0].as_str().expect("a warning").contains("one seed"));
    let swept = run(&["discipline=tail_drop,red,qsdrr", "buffer_packets=10,20"]);
    let points = swept["points"].as_array().expect("points");
    assert_eq!(points.len(), 2 * 3 * 2);
    let reported = |number: usize| {
        let point = &points[number];
        (point["load"].as_f64(), point["discipline"].as_str(), point["buffer_packets"].as_u64())
    };
    assert_eq!(reported(0), (Some(0.7), Some("tail_drop"), Some(10)));
    assert_eq!(reported(3), (Some(0.7), Some("red"), Some(20)));
    assert_eq!(reported(10), (Some(1.3), Some("qsdrr"), Some(10)));
}

#[test]
fn a_printed_scenario_gives_the_same_results() {
    let room = room("print");
    let set = ["--set", "buffer_packets=3,9", "--set", "load=1.1", "--seeds", "2"];
    let words = |first: &[&'static str], last: &'static str| {
        let mut words = first.to_vec();
        words.extend(set);
        words.push(last);
        words
    };
    let printed = room.done(&words(&["simulate", "small.toml"], "--print"));
    room.write("printed.toml", printed);
    let direct = timeless(room.counted(&words(&["simulate", "small.toml"], "--json")));
    let again = timeless(room.counted(&["simulate", "printed.toml", "--json"]));
    assert_eq!(direct, again);
}

#[test]
fn results_fill_a_directory_or_nothing_at_all() {
    let room = room("directory");
    let before = room.listing();
    room.counted(&["simulate", "small.toml", "--json"]);
    assert_eq!(room.listing(), before, "--json alone writes nothing");
    let reported = room.counted(&["simulate", "small.toml", "--json", "--out", "results"]);
    assert_eq!(room.json("results/result.json"), reported);
    room.write("again.toml", room.read("results/scenario.toml"));
    let again = room.counted(&["simulate", "again.toml", "--json"]);
    assert_eq!(again["digest"], reported["digest"]);
    assert!(room.read_bytes("results/flows.parquet").starts_with(b"PAR1"));
    assert!(!room.path("results.partial").exists());
    assert!(room.refused(&["simulate", "small.toml", "--out", "results"]).contains("--force"));
    room.done(&["simulate", "small.toml", "--out", "results", "--force"]);
    room.done(&["simulate", "small.toml", "--out"]);
    assert!(room.path("nilometer-simulate-small/result.json").exists());
}

#[test]
fn an_interrupted_sweep_keeps_its_points() {
    let room = room("interrupted");
    let words = ["simulate", "small.toml", "--json", "--threads", "1", "--out", "results"];
    let mut words = words.to_vec();
    // Five quick points, then one that would take hours.
    words.extend(["--set", "load=0.1,0.2,0.3,0.4,0.5,0.6", "--set", "duration_s=2"]);
    let slow = SMALL.replace("seeds = 3", "seeds = 100000");
    room.write("small.toml", slow);
    let mut running = room.start(&words);
    let scenario = room.path("results.partial/scenario.toml");
    running.wait_for("its directory", || scenario.exists());
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    running.signal(libc::SIGINT);
    let output = running.end();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert!(stderr.contains("interrupted after") && stderr.contains("results.partial"), "{stderr}");
    let reported: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(reported["interrupted"], true);
    let runs = reported["runs"].as_u64().expect("a count");
    assert!(runs > 0 && runs < 600_000);
    assert_eq!(reported["points"][0]["load"], 0.1);
    assert_eq!(room.json("results.partial/result.json"), reported);
}

/// A change that makes the small scenario invalid, and a word of the refusal.
const SPOILED: &[(&str, &str, &str)] = &[
    ("version = 1", "version = 2", "version 2"),
    ("duration_s = 2", "duration_s = 0", "duration_s"),
    ("duration_s = 2", "duration_s = \"2\"", "duration_s: invalid type: string \"2\""),
    ("count = 3", "count = \"3\"", "expected a whole number"),
    ("duration_s = 2", "", "duration_s"),
    ("seeds = 3", "seeds = 0", "seeds"),
    ("seeds = 3", "seets = 3", "did you mean `seeds`?"),
    ("rate = \"30 Mb/s\"", "rate = \"30 MB/s\"", "not a rate"),
    ("rate = \"30 Mb/s\"", "rate = 30", "rate"),
    ("delay = \"2 ms\"", "dealy = \"2 ms\"", "did you mean `delay`?"),
    ("delay = \"2 ms\"", "delay = \"2\"", "not a time"),
    ("to = \"sink\"\nrate = \"30", "to = \"snik\"\nrate = \"30", "did you mean `sink`?"),
    ("bottleneck = \"bottleneck\"", "bottleneck = \"botleneck\"", "did you mean `bottleneck`?"),
    ("bottleneck = \"bottleneck\"", "bottleneck = \"access\"", "each host"),
    ("discipline = \"tail_drop\"", "discipline = \"tail-drop\"", "did you mean `tail_drop`?"),
    ("buffer_packets = 5", "buffer_packets = 0", "buffer of 0"),
    ("buffer_packets = 5", "buffer_packets = [5]", "[sweep]"),
    ("buffer_packets = 5", "buffer_packets = 4000000000", "11 days"),
    ("load = [0.7, 1.3]", "laod = [0.7, 1.3]", "not a parameter"),
    ("load = [0.7, 1.3]", "load = []", "list of 1"),
    ("10 $load Mb/s", "10 $lode Mb/s", "did you mean `load`?"),
    ("size_bytes = 1500", "size_bytes = 20", "size_bytes"),
    ("size_bytes = 1500", "size_bytes = 99999", "size_bytes"),
    ("count = 3", "count = 0", "count"),
    ("arrivals = \"poisson\"", "arrivals = \"uniform\"", "arrivals"),
    ("name = \"router\"", "name = \"source\"", "twice"),
    ("from = \"router\"\nto = \"sink\"", "from = \"sink\"\nto = \"router\"\nloss = 0.1", "router"),
    ("delay = \"2 ms\"", "loss = 1.5", "probability"),
    ("delay = \"2 ms\"", "reorder = 0.1", "reorder_by"),
    ("delay = \"2 ms\"", "fifo_bytes = 0", "at least 1"),
    ("delay = \"2 ms\"", "fifo_bytes = 9000000000000000000", "11 days"),
    ("[[datagrams]]", "[[datagram]]", "did you mean `datagrams`?"),
    ("name = \"small\"", "name = \"small\"\nkind = \"ring\"", "ring"),
    ("[measure]", "[[measure]]", "measure"),
];

#[test]
fn bad_scenarios_are_refused_in_one_line() {
    let room = room("refusals");
    for (good, bad, word) in SPOILED {
        assert!(SMALL.contains(good), "{good}");
        room.write("small.toml", SMALL.replacen(good, bad, 1));
        let stderr = room.refused(&["simulate", "small.toml", "--json"]);
        assert!(stderr.contains("small.toml") && stderr.contains(word), "{bad}: {stderr}");
    }
}

#[test]
fn bad_words_are_refused_in_one_line() {
    let room = room("words");
    room.write("binary.toml", [0xff, 0xfe, 0]);
    room.write("no.toml", "[[");
    for (line, word) in [
        ("qsdr", "did you mean `qsdrr`?"),
        ("elsewhere", "there are `qsdrr`, "),
        ("distributed-queueing --seeds 3", "leave --seeds out"),
        ("missing.toml", "missing.toml"),
        ("binary.toml", "binary.toml"),
        ("no.toml", "line 1"),
        ("small.toml --set", "--set"),
        ("small.toml --set lode=1", "did you mean `load`?"),
        ("qsdrr --set disc=red", "did you mean `discipline`?"),
        ("small.toml --set load", "key=value"),
        ("small.toml --set load=x", "not a number"),
        ("small.toml --set load=1,,2", "empty"),
        ("small.toml --set seeds=-1", "whole number"),
        ("small.toml --threads 0", "--threads"),
        ("small.toml --seeds -1", "--seeds"),
        ("small.toml --seeds 4000000000", "limit"),
        ("small.toml --out no/such", "no"),
    ] {
        let words: Vec<&str> = ["simulate"].into_iter().chain(line.split(' ')).collect();
        let stderr = room.refused(&words);
        assert!(stderr.contains(word), "{line}: {stderr}");
    }
}

#[test]
fn a_trace_is_a_capture_that_other_commands_read() {
    let room = room("trace");
    let words = ["simulate", "qsdrr", "--set", "flows=5", "--set", "duration_s=3", "--seeds", "1"];
    let mut words = words.to_vec();
    words.extend(["--set", "discipline=tail_drop", "--set", "buffer_packets=20"]);
    words.extend(["--out", "results", "--json"]);
    let plain = room.counted(&words);
    words.extend(["--force", "--trace", "bottleneck"]);
    let traced = room.counted(&words);
    assert_eq!(traced["digest"], plain["digest"], "a trace changes nothing");
    let read = room.counted(&["flows", "results/bottleneck.pcapng", "--json"]);
    assert_eq!((&read["malformed"], &read["not_ip"]), (&0.into(), &0.into()));
    assert_eq!(read["tcp_connections_with_syn"], 5);
    // Of three links, one was traced.
    let hops = plain["packet_hops"].as_u64().expect("a count");
    let packets = read["packets"].as_u64().expect("a count");
    assert!(packets * 2 < hops && packets * 4 > hops, "{packets} of {hops}");
    words.pop();
    words.push("access:7");
    room.counted(&words);
    let read = room.counted(&["flows", "results/access.pcapng", "--json"]);
    assert_eq!(read["packets"], 7);
    words.pop();
    words.push("acces");
    assert!(room.refused(&words).contains("did you mean `access`?"));
    let line = room.refused(&["simulate", "small.toml", "--trace", "access"]);
    assert!(line.contains("--out"), "{line}");
}

#[test]
fn built_in_scenarios_are_listed() {
    let room = room("list");
    let listed = room.done(&["simulate", "list"]);
    for shipped in nilometer_lab::simulate::shipped::SHIPPED {
        assert!(listed.contains(shipped.name), "{listed}");
        let printed = room.done(&["simulate", shipped.name, "--print"]);
        assert_eq!(printed, shipped.text);
        assert!(printed.starts_with("# "), "{} opens with what it teaches", shipped.name);
    }
}

/// Percentiles of the call's delay over time are in the result, ordered, and show what a deep buffer does.
#[test]
fn rrul_reports_the_delay_of_its_call_over_time() {
    let room = room("course");
    let set = ["--set", "duration_s=12", "--set", "seeds=2"];
    let points = ["--set", "discipline=tail_drop,fq_codel"];
    let words = [&["simulate", "rrul", "--json", "--out", "out"][..], &set, &points].concat();
    let result = room.counted(&words);
    let mut late = Vec::new();
    for point in result["points"].as_array().expect("points") {
        let courses = point["datagram_delays"].as_array().expect("courses");
        assert_eq!(courses.len(), 2);
        assert_eq!((&courses[0]["from"], &courses[0]["to"]), (&"home".into(), &"server".into()));
        assert_eq!(courses[1]["datagrams"], 2);
        let (mut arrived, mut worst) = (0, 0.0f64);
        for (number, interval) in courses[0]["intervals"].as_array().expect("12").iter().enumerate()
        {
            assert_eq!(interval["start_s"], number as f64);
            arrived += interval["arrived"].as_u64().expect("a count");
            let [p50, p95, p99] =
                ["p50_ms", "p95_ms", "p99_ms"].map(|key| interval[key].as_f64().expect(key));
            assert!(25.0 <= p50 && p50 <= p95 && p95 <= p99, "{interval}");
            worst = worst.max(p95);
        }
        assert!(arrived > 1_000, "two seeds of 600 packets: {arrived}");
        late.push(worst);
    }
    assert!(late[0] > 4.0 * late[1], "a deep buffer makes the call wait: {late:?}");
    let page = room.read("out/report.html");
    assert!(page.contains("<section id=\"course\"><h2>Delay over time</h2>"));
    assert_eq!(page.matches("<figure id=\"course-").count(), 4);
    // Without the option there is neither.
    room.write("small.toml", SMALL);
    let other = room.counted(&["simulate", "small.toml", "--json"]);
    assert!(other["points"][0]["datagram_delays"].is_null());
}
