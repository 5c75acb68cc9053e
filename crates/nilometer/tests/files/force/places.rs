//! Places of outputs: checked before anything is measured, shown with control characters escaped, and
//! kept when a later step fails.

use std::fs;
use std::os::unix::fs::symlink;

use super::common::{capture, text};
use super::snapshot::snapshot;
use super::{TINY, furnished, run};

/// Nothing is measured for an invalid place, and names are printed with control characters escaped.
#[test]
fn places_are_looked_at_first_and_names_are_never_printed_raw() {
    let room = furnished("force-names");
    symlink("nowhere/at all", room.path("dangling")).expect("a link");
    for line in ["lab run --out dangling", "simulate slow.toml --out dangling --force"] {
        let before = snapshot(&room.path(""));
        let output = run(&room.path(""), &line.split(' ').collect::<Vec<_>>());
        let stderr = text(&output.stderr);
        assert_eq!(
            (output.status.code(), stderr.lines().count()),
            (Some(2), 1),
            "{line}: {stderr}"
        );
        assert!(stderr.contains("leads nowhere"), "{line}: {stderr}");
        assert_eq!(snapshot(&room.path("")), before, "{line}");
    }
    let name = "a\x1b[31mb\nc\u{202e}d\u{9b}1m";
    room.write(&format!("{name}.pcap"), capture(40, |_| 500));
    let folder = "e\x1b]0;f\x07";
    fs::create_dir(room.path(folder)).expect("a folder");
    room.write(&format!("{folder}/x.pcap"), capture(40, |_| 500));
    room.write(&format!("{folder}/{name}"), "no capture");
    for line in [
        "flows NAME",
        "flows NAME.pcap -o NAME.csv",
        "flows FOLDER",
        "model NAME.pcap -o NAME.json",
        "model show NAME.json",
        "model show NAME",
        "model export NAME.json --csv NAME",
        "model export NAME.json --csv NAME",
        "model NAME.pcap --part NAME.parquet",
        "simulate NAME",
        "simulate tiny.toml --out NAME.d",
        "simulate tiny.toml --out NAME.d",
        "simulate tiny.toml --set NAME",
        "lab run --input NAME",
        "lab run NAME",
        "lab init NAME.toml",
        "report NAME",
        "man --out NAME.man",
        "route run NAME",
        "route ctl --socket ctl.sock save NAME.toml",
        "route ctl --socket ctl.sock trace -w NAME.pcapng",
        "NAME",
    ] {
        let word = |word: &str| word.replace("NAME", name).replace("FOLDER", folder);
        let words: Vec<String> = line.split(' ').map(word).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = run(&room.path(""), &words);
        for shown in [text(&output.stdout), text(&output.stderr)] {
            let bad =
                |letter: char| letter != '\n' && (letter.is_control() || letter == '\u{202e}');
            assert!(!shown.contains(bad), "{words:?}: {shown:?}");
            assert!(!shown.contains("b\nc"), "a name makes two lines of one: {words:?}: {shown:?}");
        }
        let stderr = text(&output.stderr);
        assert!(stderr.lines().all(|line| line.starts_with("nilometer: ")), "{words:?}: {stderr}");
    }
    let page = nilometer_report::page::document(name, "");
    assert!(page.contains("a\\u{1b}[31mb\nc\\u{202e}d\\u{9b}1m"), "{page}");
}

/// Asserts a refusal in one line, with nothing changed; returns the line.
fn refused(at: &std::path::Path, line: &str) -> String {
    let before = snapshot(at);
    let output = run(at, &line.split_whitespace().collect::<Vec<_>>());
    let stderr = text(&output.stderr).to_owned();
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "`{line}`: {stderr}");
    assert_eq!(snapshot(at), before, "`{line}`");
    stderr
}

/// A file as `route bench forward` writes it, of no points.
const FORWARD: &str = r#"{
  "seed": 1,
  "seconds": 0.1,
  "rounds": 1,
  "routes": 1,
  "filters": 1,
  "ports": [],
  "points": [],
  "warnings": []
}"#;

#[test]
fn benchmarks_look_at_their_outputs_before_they_measure() {
    let room = furnished("force-benches");
    let at = room.path("");
    fs::create_dir(room.path("page")).expect("a folder");
    room.write("file", "mine");
    symlink("nowhere", room.path("dangling")).expect("a link");
    let forward = "route bench forward --duts linux --frame-bytes 64 --rates 1000 --seconds 0.01 \
                   --rounds 1 --rounds-max 1 --out";
    for (name, content) in [
        ("forward.json", "{\n  \"name\": \"a package\"\n}\n"),
        ("forward.html", "<title>mine</title>"),
        ("forward.json", FORWARD),
    ] {
        room.write(&format!("page/{name}"), content);
        let stderr = refused(&at, &format!("{forward} page"));
        assert!(stderr.contains("--force"), "{stderr}");
        if content == FORWARD {
            let stderr = refused(&at, &format!("{forward} page --force --against page/{name}"));
            assert!(stderr.contains("is an input"), "{stderr}");
        } else {
            let stderr = refused(&at, &format!("{forward} page --force"));
            assert!(stderr.contains("another kind"), "{stderr}");
        }
        fs::remove_file(room.path(&format!("page/{name}"))).expect("a file");
    }
    for place in ["file", "file/below", "dangling", "dangling/below"] {
        let stderr = refused(&at, &format!("{forward} {place} --force"));
        assert!(stderr.contains(place.split('/').next().expect("a name")), "{stderr}");
    }
    // The table, which would be read first, is not there.
    let fib = "route bench fib --table no-such --plot";
    for (place, why) in
        [("file", "another kind"), ("page", "directory"), ("no/such", "not a directory")]
    {
        let stderr = refused(&at, &format!("{fib} {place}"));
        assert!(stderr.contains(why), "{stderr}");
    }
}

/// An hour of simulating is not lost over the name of a capture.
#[test]
fn simulation_results_are_kept_when_the_trace_fails() {
    let room = furnished("force-kept");
    let link = "l".repeat(260);
    room.write("long.toml", TINY.replace("\"line\"", &format!("\"{link}\"")));
    let output = run(&room.path(""), &["simulate", "long.toml", "--trace", &link, "--out", "r"]);
    let stderr = text(&output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
    assert!(
        stderr.contains("what was measured is kept in") && stderr.contains("r.partial"),
        "{stderr}"
    );
    assert_eq!(room.json("r.partial/result.json")["runs"], 1);
    for name in ["flows.parquet", "report.html", "scenario.toml"] {
        assert!(room.path(&format!("r.partial/{name}")).is_file(), "{name}");
    }
    assert!(!room.path("r").exists());
    super::done(&room.path(""), &["simulate", "tiny.toml", "--out", "r", "--force"]);
    assert!(!room.path("r.partial").exists());
}
