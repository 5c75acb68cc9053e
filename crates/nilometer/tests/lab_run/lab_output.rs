//! Messages of `lab run` about unsuitable inputs, and about too few samples.

mod by_path;
mod captures;
mod fault;
mod first_minute;
mod path;
mod round_trips;
mod scheduling;
mod simulated_hosts;
mod virtual_clock;

use crate::common::{Room, privileged, text};
use serde_json::Value;

/// The small model with `flows` flows in its intervals.
fn model(room: &Room, flows: [u64; 2]) {
    let mut model = room.small_model("model.json");
    let intervals = model["intervals"].as_array_mut().expect("intervals");
    for (interval, flows) in intervals.iter_mut().zip(flows) {
        interval["flows"] = flows.into();
        interval["bytes"] = (10_000 * flows).into();
        interval["sessions"] = (flows.min(20) as f64).into();
    }
    room.write("model.json", model.to_string());
}

#[test]
fn a_model_without_connections_is_refused_with_a_remedy() {
    if !privileged("a lab run of a model that holds nothing") {
        return;
    }
    let room = Room::new("nothing");
    model(&room, [0, 0]);
    let line = room.refused(&["lab", "run", "--model", "model.json"]);
    let expected = ["hold no connection", "nothing to play", "nilometer model show", "--duration"];
    assert!(expected.iter().all(|word| line.contains(word)), "{line}");
}

/// Ten connections, the first of which starts after the length of the calibration.
#[test]
fn a_check_of_too_few_samples_does_not_pass_and_a_late_beginning_is_calibrated() {
    if !privileged("a lab run of ten connections") {
        return;
    }
    let room = Room::new("too-few");
    model(&room, [0, 10]);
    let words = ["lab", "run", "--model", "model.json", "--calibration", "0.5", "--duration", "2"];
    let output = room.run(&[&words[..], &["--check", "--json"]].concat());
    let stderr = text(&output.stderr);
    let result: Value = serde_json::from_slice(&output.stdout).expect("a result");
    assert_eq!(result["connections"], 10, "{stderr}");
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let few =
        "nilometer: --check: file_size: 10 samples are too few to judge; play longer (--duration)";
    assert!(stderr.contains(few), "{stderr}");
    assert!(result["wire_delay_ns"]["p50"].as_u64().is_some_and(|p50| p50 > 0), "{stderr}");
    assert!(stderr.contains(" connections over a bare wire"), "{stderr}");
}

/// The bounds of `--check` are flags, whose defaults the help shows.
#[test]
fn the_help_names_the_bounds_of_the_check() {
    let room = Room::new("help");
    let help = room.done(&["lab", "run", "--help"]);
    let words: Vec<&str> = help.split_whitespace().collect();
    let help = words.join(" ");
    let check = help.split("--check ").nth(1).expect("a flag");
    let check = check.split(" --allow-few").next().expect("the next one").to_owned();
    for word in ["95 %", "5 %", "--loss-max", "--delay-max"] {
        assert!(check.contains(word), "{word}: {check}");
    }
    for (flag, default) in [("--loss-max <PERCENT>", "0.1"), ("--delay-max <MS>", "10")] {
        let expected = help.split(flag).nth(1).and_then(|rest| rest.split(']').next());
        assert!(
            expected.is_some_and(|expected| expected.ends_with(&format!("[default: {default}"))),
            "{expected:?}"
        );
    }
    for wrong in ["-1", "nan", "much"] {
        let line = room.refused(&["lab", "run", &format!("--loss-max={wrong}")]);
        assert!(line.contains("--loss-max") && line.contains("zero or more"), "{line}");
    }
}

/// A signal in a later run keeps the earlier runs, and the partial results of that one.
#[test]
fn an_interrupted_series_of_runs_names_the_kept_results() {
    if !privileged("an interrupted row of runs") {
        return;
    }
    let room = Room::new("row");
    room.write("small.pcap", crate::common::talk(40, |number| 200 + 37 * number as usize, true));
    let words = ["lab", "run", "small.pcap", "--dut", "wire", "--repeats", "3", "--out", "run"];
    let mut lab = room.start(&words);
    let live = room.path("run-2.partial/live.ndjson");
    lab.wait_for("traffic of the second run", || crate::common::last_line(&live).is_some());
    lab.signal(libc::SIGINT);
    let output = lab.end();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    let last = stderr.lines().last().expect("a line");
    for word in ["interrupted in run 2", "run-2.partial;", "completed runs: 1"] {
        assert!(last.contains(word), "{word}: {last}");
    }
    assert!(room.path("run-2.partial/result.json").exists());
    let whole = room.json("run/result.json");
    assert_eq!(
        (whole["runs"].as_array().map(Vec::len), &whole["interrupted"]),
        (Some(1), &true.into())
    );
}
