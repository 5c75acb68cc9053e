//! `nilometer route bench pipeline` as scripts use it: stages that add up, variants, and refusals.

use crate::common::{Room, text};
use nilometer_queue::DisciplineKind;
use serde_json::Value;

const STAGES: [&str; 8] = [
    "parse",
    "classify",
    "look_up",
    "rewrite",
    "virtual_queue",
    "distribute",
    "discipline",
    "elsewhere",
];
const RULES: &str = "\
@10.0.0.0/8 20.1.0.0/16 0 : 65535 80 : 80 0x06/0xFF
@0.0.0.0/0 20.0.0.0/8 0 : 65535 0 : 65535 0x00/0x00
";
const BENCH: [&str; 9] =
    ["route", "bench", "pipeline", "--flows", "4096", "--frames", "10000", "--rounds", "2"];

/// A room with a table of 256 routes, each for one of 64 next hops, and two filters.
fn room(name: &str) -> Room {
    let room = Room::new(name);
    let lines: Vec<_> = (0..256).map(|third| format!("20.1.{third}.0/24\n")).collect();
    room.write("table", lines.concat());
    room.write("rules", RULES);
    room
}

/// The printed result. Whether its stages add up depends on the machine's times; but the command's
/// verdict must agree with its figures.
fn measured(room: &Room, words: &[&str]) -> Value {
    let output = room.run(&[&BENCH[..], words, &["--json"]].concat());
    let stderr = text(&output.stderr);
    let result: Value = serde_json::from_str(text(&output.stdout)).expect(stderr);
    let runs = result["runs"].as_array().expect("a list");
    let is_off = |run: &Value| number(&run["stages_sum_off_percent"]).abs() > 10.0;
    let expected = i32::from(runs.iter().any(is_off));
    assert_eq!(output.status.code(), Some(expected), "{stderr}");
    assert_eq!(stderr.is_empty(), expected == 0, "{stderr}");
    result
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"))
}

/// What must hold of every run, whatever the machine.
fn hold(run: &Value) {
    let stages = run["stages_ns"].as_object().expect("an object");
    assert_eq!(stages.len(), STAGES.len(), "{run}");
    let sum: f64 = STAGES.iter().map(|stage| number(&stages[*stage])).sum();
    assert!(STAGES.iter().all(|stage| number(&stages[*stage]) >= 0.0), "{run}");
    assert!((sum - number(&run["stages_sum_ns"])).abs() < 1e-6 * sum, "{run}");
    let ns = number(&run["ns_per_packet"]);
    assert!((1e3 / number(&run["mpps"]) - ns).abs() < 1e-6 * ns, "{run}");
    let off = 100.0 * (sum / ns - 1.0);
    assert!((off - number(&run["stages_sum_off_percent"])).abs() < 1e-3, "{run}");
    assert!(sum > 0.2 * ns && sum < 5.0 * ns, "not even roughly a packet's time: {run}");
    let [low, high] = [0, 1].map(|at| number(&run["mpps_quartiles"][at]));
    assert!(low <= number(&run["mpps"]) && number(&run["mpps"]) <= high, "{run}");
}

#[test]
fn stages_add_up_in_every_variant() {
    let room = room("route-bench-pipeline");
    let words = ["--table", "table", "--rules", "rules", "--variant", "all"];
    let words = [&words[..], &["--flow-cache", "both", "--seed", "7"]].concat();
    let result = measured(&room, &words);
    let runs = result["runs"].as_array().expect("a list");
    let names: Vec<_> = runs.iter().map(|run| run["variant"].as_str().expect("a name")).collect();
    let variants = ["complete", "no_dq", "no_lookup", "no_classifier"];
    assert_eq!(names, variants.map(|name| [name; 2]).concat());
    for (at, run) in runs.iter().enumerate() {
        hold(run);
        // Two rounds of as many stretches of 2,048 frames as hold 10,000, with and without a probe.
        assert_eq!((&run["packets"], &run["transmitted"]), (&40_960.into(), &40_960.into()));
        assert_eq!(run["dropped"], serde_json::json!({}), "{run}");
        assert_eq!(run["flow_cache"].is_null(), at % 2 == 0);
        let filtered = number(&run["filtered"]);
        assert_eq!(filtered, if names[at] == "no_classifier" { 0.0 } else { 1.0 }, "{run}");
        assert_eq!(number(&run["broadcasts"]) > 0.0, names[at] != "no_dq", "{run}");
    }
    let hits = number(&runs[1]["flow_cache_hits"]);
    assert!(hits > 0.8, "4,096 flows of 40,960 packets and more are known: {hits}");
    for field in ["mpps", "stages_ns", "packets", "variant"] {
        assert_eq!(result[field], runs[0][field], "{field} is that of the first run");
    }
    let configuration = &result["configuration"];
    for (field, expected) in [("prefixes", 256), ("rules", 2), ("flows", 4_096), ("ports", 4)] {
        assert_eq!(configuration[field], expected, "{field}");
    }
    assert_eq!(configuration["discipline"], "qsdrr");
    let again = measured(&room, &words);
    for (run, other) in runs.iter().zip(again["runs"].as_array().expect("a list")) {
        for field in
            ["packets", "transmitted", "filtered", "flow_cache_hits", "broadcasts", "dropped"]
        {
            assert_eq!(run[field], other[field], "{field} is of the seed alone");
        }
    }
}

#[test]
fn every_discipline_and_engine_goes_and_drops_are_named() {
    let room = room("route-bench-pipeline-disciplines");
    for kind in DisciplineKind::ALL {
        let words = ["--table", "table", "--rules", "rules", "--discipline", kind.name()];
        let engine = if kind == DisciplineKind::Red { "tree_bitmap" } else { "wide_lines" };
        let result = measured(&room, &[&words[..], &["--engine", engine, "--ports", "3"]].concat());
        hold(&result);
        let reasons = result["dropped"].as_object().expect("an object");
        assert!(reasons.keys().all(|reason| reason.starts_with("output_")), "{reasons:?}");
    }
}

#[test]
fn without_files_routes_and_filters_are_drawn() {
    let room = room("route-bench-pipeline-drawn");
    let mut command = room.command(&[&BENCH[..], &["--json"]].concat());
    let output = command.env_remove("NILOMETER_DATA").output().expect("the binary runs");
    let result: Value = serde_json::from_str(text(&output.stdout)).expect("an object");
    hold(&result);
    let configuration = &result["configuration"];
    for (field, expected) in [("table", "drawn"), ("rules_from", "drawn")] {
        assert_eq!(configuration[field], expected, "{field}");
    }
    for (field, expected) in [("prefixes", 900_000), ("rules", 1_000)] {
        assert_eq!(configuration[field], expected, "{field}");
    }
    let shown = room.run(&[&BENCH[..], &["--table", "table", "--rules", "rules"]].concat());
    let shown = text(&shown.stdout);
    assert!(shown.starts_with("256 routes (table; lines), 2 filters (rules), "), "{shown}");
    assert!(STAGES.iter().all(|stage| shown.contains(&format!("\n{stage} "))), "{shown}");
}

#[test]
fn invalid_values_are_refused() {
    let room = room("route-bench-pipeline-refusals");
    room.write("narrow", "20.1.0.0/24\n");
    let cases: [(&[&str], &str); 6] = [
        (&["--table", "nowhere"], "cannot read nowhere"),
        (&["--table", "table", "--rules", "nowhere"], "cannot read nowhere"),
        (&["--table", "narrow", "--rules", "rules"], "give a larger --table"),
        (&["--discipline", "wfq"], "qsdrr"),
        (&["--engine", "cam"], "tree_bitmap"),
        (&["--ports", "1"], "--ports"),
    ];
    for (words, wanted) in cases {
        let stderr = room.refused(&[&BENCH[..], words].concat());
        assert!(stderr.contains(wanted), "{words:?}: {stderr}");
    }
}
