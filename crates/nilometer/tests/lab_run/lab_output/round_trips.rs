//! The original's round trips are played on both sides of the device, and pauses without them: the copy's handshakes and
//! courses are those of the original, whose truth is a path and a fault box of ours.

use std::collections::{BTreeMap, BTreeSet};

use nilometer_traffic::TrafficModel;
use serde_json::Value;

use crate::common::{Room, privileged};

/// The round trips on both sides of the original's meter.
const TO_CLIENTS_US: f64 = 40_000.0;
const TO_SERVERS_US: f64 = 60_000.0;
/// Two cables, each way.
const CABLES_US: f64 = 10.0;

const VIRTUAL: [&str; 8] =
    ["lab", "run", "--json", "--calibration", "0", "--clock", "virtual", "--pcap"];

/// A capture in virtual time with clients 20 ms away from its observer and servers 30 ms away.
fn original(room: &Room) -> String {
    let far = ["--path", "delay=20ms", "--fault", "delay=30ms", "--duration", "12", "-o", "far"];
    room.counted(&[&VIRTUAL[..], &far].concat());
    "far/client.pcapng".to_owned()
}

fn number(result: &Value, pointer: &str) -> f64 {
    let value = result.pointer(pointer).and_then(Value::as_f64);
    value.unwrap_or_else(|| panic!("{pointer} of {result}"))
}

/// The model of a capture that a run kept: its sessions with their round trips.
fn learnt(room: &Room, run: &str, capture: &str) -> TrafficModel {
    let out = format!("{run}-again");
    room.counted(&[&VIRTUAL[..], &[capture, "--exact", "--dut", "wire", "-o", &out]].concat());
    serde_json::from_str(&room.read(&format!("{out}/model.json"))).expect("a model")
}

/// How long each connection lasted that was closed, by its session and place in it, seconds.
fn lengths(model: &TrafficModel) -> BTreeMap<(usize, usize), f64> {
    let sessions = &model.vectors.as_ref().expect("vectors").sessions;
    let connections = sessions.iter().enumerate().flat_map(|(session, of)| {
        let ended = of.connections.iter().enumerate().filter(|(_, one)| one.is_ended());
        ended.map(move |(at, one)| ((session, at), one.lasts_s))
    });
    connections.collect()
}

#[test]
fn a_copy_has_the_handshakes_and_the_courses_of_its_original() {
    let room = Room::new("round-trips");
    let capture = original(&room);
    let truth = learnt(&room, "truth", &capture);
    let play = |out: &str, more: &[&str]| {
        let same = [&capture, "--exact", "--dut", "wire", "-o", out];
        room.counted(&[&VIRTUAL[..], &same, more].concat())
    };
    let with = play("with", &["--round-trips"]);
    let without = play("without", &["--round-trips=never"]);
    let by_default = play("by-default", &[]);
    assert_eq!(by_default["outcome_digest"], with["outcome_digest"]);
    assert!(without.get("round_trips").is_none() && without.get("rear_path").is_none());
    let pairs = number(&with, "/round_trips/pairs");
    // (Of pairs that only met refusals and silence, no handshake was seen.)
    let sessions = &truth.vectors.as_ref().expect("vectors").sessions;
    let near: BTreeSet<[u32; 2]> = sessions
        .iter()
        .filter(|session| session.round_trip_us == [0.0; 2])
        .map(|session| [session.source, session.destination])
        .collect();
    assert!(pairs > 20.0, "{with}");
    for (side, us) in [("client", TO_CLIENTS_US), ("server", TO_SERVERS_US)] {
        let paths = number(&with, &format!("/round_trips/{side}_paths"));
        assert_eq!(paths, pairs - near.len() as f64);
        let p50_us = number(&with, &format!("/round_trips/{side}_p50_ns")) / 1e3;
        assert!((p50_us - us).abs() < CABLES_US, "{side}: {p50_us} us");
    }
    // The copy is seen as the original was: each pair as far away, each connection as long.
    let copy = learnt(&room, "with", "with/client.pcapng");
    let near = learnt(&room, "without", "without/client.pcapng");
    let trips = |model: &TrafficModel| -> Vec<[f64; 2]> {
        let sessions = &model.vectors.as_ref().expect("vectors").sessions;
        sessions.iter().map(|session| session.round_trip_us).filter(|us| us[1] > 0.0).collect()
    };
    assert!(trips(&near).iter().flatten().all(|us| *us < CABLES_US), "{:?}", trips(&near));
    assert_eq!(trips(&copy).len(), trips(&truth).len());
    for [client_us, server_us] in trips(&copy) {
        assert!((client_us - TO_CLIENTS_US).abs() < CABLES_US, "{client_us}");
        assert!((server_us - TO_SERVERS_US).abs() < CABLES_US, "{server_us}");
    }
    let (expected, seen) = (lengths(&truth), lengths(&copy));
    let off = |(at, lasts_s): (&(usize, usize), &f64)| Some((seen.get(at)? - lasts_s).abs());
    let mut off: Vec<f64> = expected.iter().filter_map(off).collect();
    off.sort_by(f64::total_cmp);
    assert!(off.len() > 100, "{} connections", off.len());
    assert!(off[off.len() / 2] < 0.001, "half of them to a millisecond: {:?}", off);
    assert!(off[off.len() * 9 / 10] < 0.1, "nine of ten within a round trip: {off:?}");
    // The kept configuration plays the same again.
    let again = room.counted(&["lab", "run", "with/lab.toml", "--json", "-o", "with-kept"]);
    assert_eq!(again["outcome_digest"], with["outcome_digest"]);
}

#[test]
fn unobserved_round_trips_and_those_beside_another_path_are_refused() {
    let room = Room::new("round-trips-refused");
    let capture = original(&room);
    // A model of before there were round trips in it.
    let mut old: Value = serde_json::from_str(&room.read("far/model.json")).expect("a model");
    for session in old["vectors"]["sessions"].as_array_mut().expect("sessions") {
        session.as_object_mut().expect("a session").remove("round_trip_us");
    }
    std::fs::write(room.path("old.json"), old.to_string()).expect("a model");
    let cases: [(&[&str], &str); 4] = [
        (&["--path", "delay=1ms"], "leave one of them out"),
        (&["--fit"], "--round-trips is for captures"),
        (
            &["--dut", "external", "--client-interface", "a", "--server-interface", "b"],
            "leave round trips out",
        ),
        (&["--model", "old.json"], "none was seen in both directions"),
    ];
    for (more, words) in cases {
        let inputs: &[&str] = if more.contains(&"--model") { &[] } else { &[&capture] };
        let refused = room.refused(&[&["lab", "run", "--round-trips"], inputs, more].concat());
        assert!(refused.contains(words), "{more:?}: {refused}");
    }
}

#[test]
fn round_trips_are_played_by_the_real_clock() {
    if !privileged("a run with the original's round trips") {
        return;
    }
    let room = Room::new("round-trips-live");
    let capture = original(&room);
    let run = ["lab", "run", &capture, "--json", "--round-trips", "--dut", "linux", "-o", "live"];
    let result = room.counted(&[&run[..], &["--pcap", "--calibration", "1"]].concat());
    assert_eq!(result["rear_path"]["unheard"], 0, "{result}");
    assert!(number(&result, "/rear_path/received") > 1_000.0);
    assert!(number(&result, "/delay_ns/p50") < 5e6, "the device's alone: {}", result["delay_ns"]);
    let seen = learnt(&room, "live", "live/client.pcapng");
    let sessions = &seen.vectors.as_ref().expect("vectors").sessions;
    let mut trips: Vec<[f64; 2]> = sessions.iter().map(|one| one.round_trip_us).collect();
    for (side, us) in [TO_CLIENTS_US, TO_SERVERS_US].into_iter().enumerate() {
        trips.sort_by(|one, other| one[side].total_cmp(&other[side]));
        let median = trips[trips.len() / 2][side];
        assert!((us..us + 5_000.0).contains(&median), "{median} us where {us} were seen");
    }
}
