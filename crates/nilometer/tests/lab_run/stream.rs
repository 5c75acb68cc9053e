//! `stream run` and `profile calibrate`: every frame accounted for, and invalid trials that give the reason.

use nilometer_lab::stream::outcome::Outcome;
use serde_json::Value;

use crate::common::{Room, privileged, text};

/// Runs a stream, valid or not: a busy machine makes the pacer late, and no count wrong.
fn stream(room: &Room, words: &[&str]) -> Value {
    let bare: &[&str] =
        if words.contains(&"--calibration") { &[] } else { &["--calibration", "0"] };
    let output = room.run(&[&["stream", "run", "--json"], bare, words].concat());
    let status = output.status.code();
    assert!(matches!(status, Some(0 | 1)), "{status:?}: {}", text(&output.stderr));
    let result: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let is_valid = result["valid"] == true;
    assert_eq!(status, Some(i32::from(!is_valid)), "valid: false exits 1");
    assert_eq!(result["why"].as_array().expect("reasons").is_empty(), is_valid);
    result
}

/// Whether the instrument lost nothing, so that counts are exact whatever else it reports of the
/// trial.
fn is_complete(result: &Value) -> bool {
    let why = result["why"].as_array().expect("reasons");
    let says = |why: &Value, words: &[&str]| {
        let why = why.as_str().expect("words").to_owned();
        words.iter().any(|word| why.contains(word))
    };
    let late = ["pacer slip", "softirq squeeze", "stolen time", "behind real time", "comb of"];
    let starved = ["receiver loss", "record ring overflow"];
    for why in why {
        assert!(says(why, &late) || says(why, &starved), "no fault of the machine: {why}");
    }
    why.iter().all(|why| says(why, &late))
}

fn count(of: &Value) -> u64 {
    of.as_u64().expect("a count")
}

/// The fault box counts its own faults; the stream infers them from tags and bytes alone.
#[test]
fn faults_of_a_fault_box_are_reported_exactly() {
    if !privileged("stream run through a fault box") {
        return;
    }
    let room = Room::new("stream-fault");
    let faults =
        "lose=3+10-12,loss=0.01,duplicate=0.01,corrupt=0.02,reorder=0.01,reorder_by=8ms,delay=2ms";
    for (size, seed) in [("64", "1"), ("512", "2")] {
        let words = [
            "--fault",
            faults,
            "--pps",
            "4000",
            "--seconds",
            "1.5",
            "--seed",
            seed,
            "--frame-bytes",
            size,
        ];
        let result = stream(&room, &words);
        if !is_complete(&result) {
            println!("skipped: the receiver was starved: {}", result["why"]);
            continue;
        }
        let (packets, fault) = (&result["packets"], &result["fault"]);
        assert_eq!(count(&packets["in"]), 6_000);
        assert_eq!(packets["in"], fault["received"]);
        assert_eq!(packets["out"], fault["sent"]);
        assert_eq!(count(&packets["lost"]), count(&fault["lost"]) + count(&fault["discarded"]));
        assert!(count(&packets["lost"]) > 4, "the stated ones, and some by chance");
        assert_eq!(packets["duplicated"], fault["duplicated"]);
        assert_eq!(packets["corrupted"], fault["corrupted"]);
        assert_eq!(count(&packets["originated"]), 0);
        // A held-back frame counts as reordered if another overtook it: at the end of a stream none
        // may.
        let (reordered, held) = (count(&packets["reordered"]), count(&fault["held_back"]));
        assert!(reordered <= held && reordered + 3 >= held && held > 0, "{reordered} of {held}");
        // (Of two milliseconds; what a busy machine adds is far from half a second.)
        let [least, half] = ["p5", "p50"].map(|key| count(&result["delay_ns"][key]));
        assert!(least >= 2_000_000 && half < 500_000_000, "{}", result["delay_ns"]);
    }
}

#[test]
fn the_added_delay_of_a_device_has_bounds() {
    if !privileged("stream run beside the bare wire") {
        return;
    }
    let room = Room::new("stream-added");
    let result = stream(
        &room,
        &["--fault", "delay=2ms", "--pps", "2000", "--seconds", "1", "--calibration", "1"],
    );
    if !is_complete(&result) || result["wire"]["valid"] != true {
        return println!("skipped: {}, {}", result["why"], result["wire"]["why"]);
    }
    let added = &result["added_ns"];
    for at in ["p5", "p50", "p95", "p99"] {
        let [low, ns, high] = ["low_ns", "ns", "high_ns"].map(|key| added[at][key].as_i64());
        assert!(low <= ns && ns <= high && low.is_some(), "{at}: {added}");
    }
    // They are as wide as the noise at least, of which the wire's states less.
    let width = added["p50"]["high_ns"].as_i64().zip(added["p50"]["low_ns"].as_i64());
    let width = width.map(|(high, low)| high - low);
    assert!(width >= result["wire"]["noise_ns"].as_i64(), "{added} beside {}", result["wire"]);
    // (A busy machine only adds to it.)
    let most = added["p5"]["high_ns"].as_i64();
    assert!(most >= Some(2_000_000), "the fault box holds each frame for 2 ms: {added}");
    let wire = stream(&room, &["--dut", "wire", "--pps", "2000", "--seconds", "0.2"]);
    assert!(wire.get("added_ns").is_none(), "the wire adds nothing to itself");
}

#[test]
fn every_device_of_the_lab_passes_every_frame() {
    if !privileged("stream run through devices") {
        return;
    }
    let room = Room::new("stream-devices");
    for (dut, pattern) in
        [("wire", "poisson+trimodal"), ("linux", "burst:16+imix"), ("nilometer", "constant")]
    {
        let words = [
            "--dut",
            dut,
            "--pattern",
            pattern,
            "--pps",
            "4000",
            "--seconds",
            "1",
            "--flows",
            "50",
            "--both",
        ];
        let result = stream(&room, &words);
        if !is_complete(&result) {
            println!("skipped: the receiver was starved: {}", result["why"]);
            continue;
        }
        let packets = &result["packets"];
        assert_eq!(packets["in"], packets["out"], "{dut}: {packets}");
        for fate in ["lost", "duplicated", "corrupted", "originated"] {
            assert_eq!(count(&packets[fate]), 0, "{dut}: {packets}");
        }
        let ways = result["directions"].as_array().expect("directions");
        assert_eq!(ways.len(), 2);
        assert!(ways.iter().all(|way| way["sent"] == way["scheduled"]), "{dut}");
    }
}

#[test]
fn results_are_kept_with_a_row_for_each_frame() {
    if !privileged("stream run --out") {
        return;
    }
    let room = Room::new("stream-results");
    room.write(
        "STREAM.toml",
        "pps = 2000\nseconds = 0.5\npattern = \"poisson\"\nstamps = \"socket\"\n",
    );
    let words = ["STREAM.toml", "--dut", "wire", "--out", "kept"];
    let result = stream(&room, &words);
    let kept: Outcome = serde_json::from_value(room.json("kept/result.json")).expect("a result");
    assert_eq!(kept.packets.entered, count(&result["packets"]["in"]));
    let copies = kept.packets.duplicated;
    assert_eq!(kept.rows, [kept.packets.entered + copies, 0]);
    assert!(
        room.read("kept/report.html").contains("<svg") && room.path("kept/stream.toml").is_file()
    );
    assert!(kept.stamps.pair[0].contains("packet socket"));
    // The disk's budget: nothing fits in none, and every frame is counted as left out.
    let result = stream(&room, &[&words[..], &["--force", "--disk", "0"]].concat());
    assert_eq!(count(&result["rows"][0]), 0);
    assert_eq!(count(&result["rows"][1]), count(&result["packets"]["in"]));
}

/// A receiver without room is made on purpose, and so is a sender that no receiver could keep up with.
#[test]
fn a_trial_with_losses_of_its_own_is_invalid_with_a_reason() {
    if !privileged("stream run with a small ring") {
        return;
    }
    let room = Room::new("stream-invalid");
    let words = [
        "--dut",
        "wire",
        "--pattern",
        "burst:5000",
        "--pps",
        "50000",
        "--seconds",
        "0.5",
        "--ring",
        "64",
    ];
    let result = stream(&room, &words);
    assert_eq!(result["valid"], false);
    let why = result["why"].to_string();
    assert!(why.contains("receiver loss"), "{why}");
    let lost = count(&result["packets"]["meter_lost"]);
    assert_eq!(count(&result["packets"]["lost"]), lost, "the wire itself loses nothing");
    let words = ["--dut", "wire", "--pps", "10000000", "--seconds", "0.2"];
    let why = stream(&room, &words)["why"].to_string();
    assert!(why.contains("pacer slip"), "{why}");
}

#[test]
fn a_calibration_has_a_point_for_each_rate_and_size() {
    if !privileged("profile calibrate") {
        return;
    }
    let room = Room::new("stream-calibration");
    let words = ["profile", "calibrate", "--json", "--seconds", "0.2", "--pps", "2000,10000"];
    let output = room.run(&[&words[..], &["--frame-bytes", "64,1518", "--out", "kept"]].concat());
    let calibration: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let points = calibration["points"].as_array().expect("points");
    let requested: Vec<(f64, u64)> = { points.iter() }
        .map(|one| (one["pps"].as_f64().expect("a rate"), count(&one["frame_bytes"])))
        .collect();
    assert_eq!(requested, [(2e3, 64), (1e4, 64), (2e3, 1_518), (1e4, 1_518)]);
    for point in points.iter().filter(|point| point["valid"] == true) {
        assert_eq!(point["sent"], point["received"]);
        let [p5, p95] = ["p5", "p95"].map(|name| count(&point["delay_ns"][name]));
        assert_eq!(count(&point["noise_ns"]), p95 - p5);
        println!("{} ns at {} fps", point["noise_ns"], point["pps"]);
    }
    let is_valid = calibration["valid"] == true;
    assert_eq!(output.status.code(), Some(i32::from(!is_valid)));
    assert_eq!(calibration["stamps"]["driver"], true);
    assert!(room.read("kept/report.html").contains("Points"));
}

#[test]
fn invalid_streams_are_refused_in_one_line() {
    let room = Room::new("stream-refused");
    room.write("bad.toml", "pace = 3\n");
    for (words, message) in [
        ("--pps 0", "pps = 0"),
        ("--frame-bytes 63", "frame_bytes = 63: choose 64 to 1518"),
        ("--seconds 0", "seconds = 0"),
        ("--flows 0", "flows = 0"),
        ("--pattern sawtooth", "is not a pattern"),
        ("--pattern pcap:none.pcap", "none.pcap"),
        ("--dut linux --fault loss=0.1", "the device is `linux`"),
        ("--ring 100", "ring = 100"),
        ("bad.toml", "bad.toml"),
    ] {
        let line = room
            .refused(&["stream", "run"].into_iter().chain(words.split(' ')).collect::<Vec<_>>());
        assert!(line.contains(message), "{words}: {line}");
    }
    let line = room.refused(&["profile", "calibrate", "--frame-bytes", "9000"]);
    assert!(line.contains("choose 64 to 1518"), "{line}");
}
