//! What `lab run` says where there is too little: to play, to calibrate with, to tell anything by.

mod common;

use common::{Room, privileged, text};
use serde_json::Value;

/// The small model with so many flows in its intervals.
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
fn a_model_without_connections_is_refused_with_what_to_do() {
    if !privileged("a lab run of a model that holds nothing") {
        return;
    }
    let room = Room::new("nothing");
    model(&room, [0, 0]);
    let line = room.refused(&["lab", "run", "--model", "model.json"]);
    let told = ["hold no connection", "nothing to play", "nilometer model show", "--duration"];
    assert!(told.iter().all(|word| line.contains(word)), "{line}");
}

/// Ten connections, the first of which comes after the calibration.
#[test]
fn a_check_of_too_few_samples_does_not_pass_and_an_empty_calibration_is_told() {
    if !privileged("a lab run of ten connections") {
        return;
    }
    let room = Room::new("too-few");
    model(&room, [0, 10]);
    let words = ["lab", "run", "--model", "model.json", "--calibration", "0.5", "--duration", "2"];
    let output = room.run(&[&words[..], &["--check", "--json"]].concat());
    let said = text(&output.stderr);
    let result: Value = serde_json::from_slice(&output.stdout).expect("a result");
    assert_eq!(result["connections"], 10, "{said}");
    assert_eq!(output.status.code(), Some(1), "{said}");
    let few =
        "nilometer: --check: of file_size 10 samples are too few to tell; play longer (--duration)";
    assert!(said.contains(few), "{said}");
    let warnings = result["warnings"].as_array().expect("a list");
    let of_wire =
        |one: &&Value| one.as_str().is_some_and(|one| one.starts_with("The bare wire was not"));
    let warning = warnings.iter().find(of_wire).unwrap_or_else(|| panic!("{warnings:?}"));
    assert!(warning.as_str().is_some_and(|one| one.contains("raise --calibration")), "{warning}");
    assert!(result["wire_delay_ns"].is_null() && !said.contains("over a bare wire"), "{said}");
}
