//! Bad input of every kind: one line, status 2, and no file made, changed or removed.

mod common;

use std::fs;
use std::process::Command;

use common::{BINARY, Room, capture, pcap, pcap_header, privileged, text};
use nilometer_wire::build;
use serde_json::{Value, json};

/// What is typed, and words that the answer must have.
type Case<'a> = (&'a str, &'a [&'a str]);

/// A room with a good file of each kind and bad ones beside them.
fn furnished(name: &str) -> Room {
    let room = Room::new(name);
    let good = capture(60, |_| 500);
    room.write("good.pcap", &good);
    room.write("magic.pcap", b"no capture at all\n");
    room.write("cut.pcap", &good[..20]);
    room.write("link.pcap", pcap_header(253));
    room.write("empty", "");
    let ask = build::udp(([198, 18, 0, 1], 5_000).into(), ([198, 18, 0, 2], 53).into(), b"ask");
    room.write("udp.pcap", pcap(&[(1_000_000, build::ethernet(&ask))]));
    fs::create_dir(room.path("folder")).expect("a folder");
    fs::create_dir(room.path("photos")).expect("a folder");
    room.write("photos/cat.jpg", "a cat");
    room.write("key.toml", "seed = 2\nsed = 1\n");
    room.write("section.toml", "[traffic]\nclient = []\n");
    room.write("type.toml", "seed = \"one\"\n");
    room.write("syntax.toml", "[traffic\n");
    room
}

/// Runs each line, which must be refused with its words.
fn all_refused(room: &Room, cases: &[Case<'_>]) {
    for (line, words) in cases {
        let said = room.refused(&line.split(' ').collect::<Vec<_>>());
        for word in *words {
            assert!(said.contains(word), "`{line}` does not say {word:?}: {said}");
        }
    }
}

#[test]
fn inputs_that_are_none_make_no_model() {
    let room = furnished("inputs");
    all_refused(
        &room,
        &[
            ("model magic.pcap -o out.json", &["magic.pcap", "6e 6f 20 63"]),
            ("model cut.pcap -o out.json", &["cut.pcap", "20 bytes of 24"]),
            ("model link.pcap -o out.json", &["link.pcap", "link type 253"]),
            ("model empty -o out.json", &["empty", "is empty"]),
            ("model folder -o out.json", &["folder", "is a directory"]),
            ("model missing.pcap -o out.json", &["missing.pcap", "No such file"]),
            ("model udp.pcap -o out.json", &["udp.pcap", "no TCP"]),
            ("model good.pcap magic.pcap -o out.json", &["magic.pcap"]),
            ("model good.pcap embedded -o out.json", &["embedded"]),
            ("model good.pcap -o no/such/out.json", &["no/such/out.json"]),
            ("model good.pcap -o folder --force", &["folder", "directory"]),
            ("model good.pcap -o out.json --interval -1", &["-1", "positive"]),
            ("model good.pcap -o out.json --interval nan", &["NaN", "positive"]),
            ("model good.pcap -o out.json --bound -2", &["-2", "positive"]),
            ("model good.pcap -o out.json --interval 1e-9", &["100000 intervals"]),
            ("model good.pcap", &["--output"]),
        ],
    );
}

/// Changes a good model in one place and writes it under another name.
fn spoiled(room: &Room, model: &Value, name: &str, spoil: impl FnOnce(&mut Value)) {
    let mut model = model.clone();
    spoil(&mut model);
    room.write(name, model.to_string());
}

#[test]
fn models_that_are_none_are_neither_shown_nor_played() {
    let room = furnished("models");
    room.done(&["model", "good.pcap", "-o", "good.json"]);
    let good = room.json("good.json");
    let written = good.to_string();
    room.write("cut.json", &written[..written.len() / 2]);
    spoiled(&room, &good, "key.json", |model| model["colour"] = "red".into());
    spoiled(&room, &good, "inner.json", |model| model["generation"]["client"] = json!([]));
    spoiled(&room, &good, "format.json", |model| model["format"] = "nilometer-model/99".into());
    spoiled(&room, &good, "negative.json", |m| m["intervals"][0]["duration_s"] = (-1.0).into());
    spoiled(&room, &good, "divisor.json", |m| m["generation"]["time_divisor"] = (-1.0).into());
    spoiled(&room, &good, "none.json", |model| model["intervals"] = json!([]));
    spoiled(&room, &good, "lacks.json", |model| {
        model.as_object_mut().expect("an object").remove("file_size");
    });
    let kinds: [(&str, &[&str]); 11] = [
        ("cut.json", &["EOF"]),
        ("key.json", &["unknown key `colour`"]),
        ("inner.json", &["unknown key `client`", "did you mean `clients`?"]),
        ("format.json", &["nilometer-model/99", "nilometer-model/1"]),
        ("negative.json", &["duration_s", "-1"]),
        ("divisor.json", &["time_divisor", "-1"]),
        ("none.json", &["intervals is empty"]),
        ("lacks.json", &["file_size"]),
        ("good.pcap", &[]),
        ("folder", &["directory"]),
        ("missing.json", &["No such file"]),
    ];
    for (file, words) in kinds {
        for command in ["model show", "generate plan", "generate client", "model compare good.json"]
        {
            let words: Vec<&str> = words.iter().copied().chain([file]).collect();
            all_refused(&room, &[(&format!("{command} {file}"), &words)]);
        }
    }
}

#[test]
fn generators_refuse_what_they_cannot_do() {
    let room = furnished("generators");
    room.small_model("good.json");
    all_refused(
        &room,
        &[
            ("generate client good.json --port 0", &["--port is 0"]),
            ("generate client good.json --port 70000", &["70000"]),
            ("generate client good.json --threads 0", &["threads"]),
            ("generate client good.json --drain -1", &["-1", "--drain"]),
            ("generate client good.json --sources 127.0.0.0/31", &["127.0.0.0/31", "too small"]),
            ("generate client good.json --sources 127.0.0.1/8", &["127.0.0.1/8", "bits set"]),
            ("generate client good.json --sources 127.0.0.0/40", &["127.0.0.0/40"]),
            ("generate client good.json --sources loopback", &["loopback", "CIDR"]),
            ("generate client good.json --sources ::1/128", &["family"]),
            ("generate client good.json --congestion tahoe", &["tahoe", "not available"]),
            ("generate client good.json --congestion reno --device nil9", &["nil9"]),
            ("generate server --port 0", &["--port is 0"]),
            ("generate server --listen localhost", &["localhost", "--listen"]),
            ("generate server --congestion tahoe", &["tahoe", "not available"]),
            ("generate server --congestion reno --device nil9", &["nil9"]),
            ("generate plan good.json --seed -1", &["-1"]),
        ],
    );
}

#[test]
fn a_lab_refuses_numbers_and_files_before_anything_else() {
    let room = furnished("numbers");
    all_refused(
        &room,
        &[
            ("lab run --duration -1 --out out", &["duration_s is -1"]),
            ("lab run --duration nan --out out", &["duration_s is NaN"]),
            ("lab run --interval -1 --out out", &["interval_s is -1"]),
            ("lab run --bound -1 --out out", &["bound_s is -1"]),
            ("lab run --calibration -1 --out out", &["calibration.seconds is -1"]),
            ("lab run --threads 0 --out out", &["traffic.threads is 0"]),
            ("lab run --threads -1 --out out", &["'-1'", "--threads"]),
            ("lab run --ring-mib 0 --out out", &["meter.ring_mib is 0"]),
            ("lab run --dut bsd --out out", &["'bsd'", "nilometer", "linux", "wire"]),
            ("lab run --clients 198.18.0.0/31 --out out", &["198.18.0.0/31", "too small"]),
            ("lab run --clients 198.18.0.1/16 --out out", &["198.18.0.1/16", "bits set"]),
            ("lab run --servers 198.18.0.0 --out out", &["198.18.0.0", "CIDR"]),
            ("lab run missing.toml --out out", &["missing.toml", "No such file"]),
            ("lab run folder --out out", &["folder", "directory"]),
            ("lab run good.pcap --out out", &["good.pcap"]),
            (
                "lab run key.toml --out out",
                &["line 2", "unknown key `sed`", "did you mean `seed`?"],
            ),
            ("lab run section.toml --out out", &["`client`", "did you mean `clients`?"]),
            ("lab run type.toml --out out", &["type.toml", "line 1", "string \"one\""]),
            ("lab run syntax.toml --out out", &["syntax.toml", "line 1"]),
            ("lab run --out no/such/out", &["no/such does not exist"]),
            ("lab run --out photos", &["photos exists already", "--force"]),
            ("lab run --out photos --force", &["photos", "left alone"]),
            ("lab run --out good.pcap --force", &["good.pcap is not a directory"]),
            ("lab run --out /", &["no name"]),
            ("lab init key.toml", &["key.toml exists already", "--force"]),
            ("lab init no/such/LAB.toml", &["no/such/LAB.toml"]),
            ("lab run --colour", &["--colour"]),
            ("lab walk", &["walk"]),
            ("labs", &["labs", "'lab'"]),
            ("report missing", &["missing"]),
            ("report photos", &["report.json"]),
        ],
    );
}

/// What only a look at the machine or the input tells; the directory of results must not appear.
#[test]
fn a_lab_refuses_before_it_builds_or_writes() {
    if !privileged("refusals that come after privileges are looked at") {
        return;
    }
    let room = furnished("machine");
    all_refused(
        &room,
        &[
            ("lab run --clients 10.0.0.0/8 --out out", &["10.0.0.0/8", "198.18.0.0/15"]),
            ("lab run --clients 2001:db8::/64 --out out", &["2001:db8::/64", "fd00::/8"]),
            ("lab run --clients 198.18.0.0/15 --out out", &["overlap"]),
            ("lab run --clients 198.18.0.0/16 --servers fd00::/112 --out out", &["family"]),
            ("lab run --congestion tahoe --out out", &["tahoe", "not available"]),
            ("lab run --input magic.pcap --out out", &["magic.pcap", "6e 6f 20 63"]),
            ("lab run --input cut.pcap --out out", &["cut.pcap", "20 bytes of 24"]),
            ("lab run --input link.pcap --out out", &["link.pcap", "link type 253"]),
            ("lab run --input empty --out out", &["empty", "is empty"]),
            ("lab run --input folder --out out", &["folder", "is a directory"]),
            ("lab run --input missing.pcap --out out", &["missing.pcap", "No such file"]),
            ("lab run --input udp.pcap --out out", &["udp.pcap", "no TCP"]),
        ],
    );
}

/// A user namespace that may make neither networks nor further user namespaces is as bare of
/// privilege as a machine can be.
#[test]
fn without_privilege_a_lab_says_what_to_do() {
    let room = furnished("bare");
    let bare = "echo 0 > /proc/sys/user/max_net_namespaces && \
                echo 0 > /proc/sys/user/max_user_namespaces && echo bare && exec \"$0\" \"$@\"";
    let before = room.listing();
    let mut lab = Command::new("unshare");
    lab.current_dir(room.path("")).args(["-Ur", "sh", "-c", bare, BINARY, "lab", "run"]);
    let output = match lab.args(["--out", "out"]).output() {
        Ok(output) if text(&output.stdout) == "bare\n" => output,
        Ok(output) => {
            let why = text(&output.stderr).lines().next().unwrap_or_default();
            return println!("skipped: privileges cannot be taken away here: {why}");
        }
        Err(error) => return println!("skipped: unshare(1) does not run: {error}"),
    };
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("nilometer: a lab needs root"), "{said}");
    assert!(said.contains("sudo"), "{said}");
    assert_eq!(room.listing(), before);
}
