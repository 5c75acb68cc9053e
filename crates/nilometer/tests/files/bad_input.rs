//! Bad input of every kind: one line, status 2, and no file made, changed or removed.

use crate::common;
use std::fs;
use std::io::Write;
use std::process::Command;
use std::thread;

use common::{BINARY, Room, capture, pcap, pcap_header, privileged, text, timeless};
use nilometer_wire::build;
use serde_json::{Value, json};

/// A command line, and words that the answer must have.
type Case<'a> = (&'a str, &'a [&'a str]);

/// A room with a good file of each kind and bad ones beside them.
fn furnished(name: &str) -> Room {
    let room = Room::new(name);
    let good = capture(60, |_| 500);
    room.write("good.pcap", &good);
    room.write("timeless.pcap", timeless(&good));
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
        let stderr = room.refused(&line.split(' ').collect::<Vec<_>>());
        for word in *words {
            assert!(stderr.contains(word), "`{line}` does not say {word:?}: {stderr}");
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
fn generators_refuse_invalid_arguments() {
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
            ("lab run --speed 0 --out out", &["speed is 0"]),
            ("lab run --harpoon --speed 2 --out out", &["--speed", "captures"]),
            ("lab run --rate 0 --out out", &["rate is 0"]),
            ("lab run --harpoon --rate 5 --out out", &["--rate", "captures"]),
            ("lab run good.pcap --rate 1000 --out out", &["good.pcap", "have a clock", "--rate"]),
            ("lab run timeless.pcap --out out", &["timeless.pcap", "no usable clock", "--rate"]),
            ("lab run --repeats 1 --out out", &["--repeats 1"]),
            ("lab run --dut bsd --out out", &["'bsd'", "nilometer", "linux", "wire"]),
            ("lab run --clients 198.18.0.0/31 --out out", &["198.18.0.0/31", "too small"]),
            ("lab run --clients 198.18.0.1/16 --out out", &["198.18.0.1/16", "bits set"]),
            ("lab run --servers 198.18.0.0 --out out", &["198.18.0.0", "CIDR"]),
            ("lab run missing.toml --out out", &["missing.toml", "No such file"]),
            ("lab run folder --out out", &["folder", "directory"]),
            ("lab run magic.pcap --out out", &["magic.pcap", "no supported format"]),
            ("lab run good.pcap --part 5 --out out", &["'5'", "START+LENGTH"]),
            ("lab run good.pcap --part 900+9 --out out", &["no TCP packet", "900.000 s"]),
            ("lab run good.pcap --match bitrate --out out", &["--match bitrate", "--fit"]),
            ("lab run --harpoon --exact --out out", &["--exact", "the model has none"]),
            ("lab run --harpoon --part 0+9 --out out", &["--part", "laws only"]),
            ("lab run good.pcap --spread --part 0+9 --out out", &["--spread", "--part"]),
            ("lab run --harpoon --spread --out out", &["--spread", "laws only"]),
            ("lab run good.pcap --fit --spread --out out", &["--fit", "--spread"]),
            ("lab run good.pcap --fit --exact --out out", &["--fit", "--exact"]),
            ("lab run key.toml type.toml --out out", &["more than one LAB.toml"]),
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
            ("lab run --out /", &["not a name"]),
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

/// Errors that only a look at the machine or the input reveals; the directory of results must not
/// appear.
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

/// Memory that a command may map while it refuses a document that has no end, KiB.
const REFUSING_KIB: u32 = 1 << 20;
/// No document may have more bytes.
const DOCUMENT_BYTES_MAX: u64 = 256 << 20;

/// Every command that reads a document, whose name takes the place of `IT`.
const READERS: [&str; 18] = [
    "model show IT",
    "model compare good.json IT",
    "model export IT --csv out",
    "model merge IT -o out.json",
    "model new -o out.json --sessions 1 --inter-connection exponential:mean=1 --file-size table:IT",
    "generate plan IT",
    "generate client IT",
    "simulate IT",
    "lab run IT --out out",
    "lab run --model IT --out out",
    "flows good.pcap -o out.parquet --anonymise IT",
    "route run IT",
    "route ctl --url http://127.0.0.1:1 --token-file IT ports",
    "route bench classify --rules IT",
    "route bench classify --rules good.rules --trace IT",
    "route bench fib --table IT",
    "route bench pipeline --table good.table --rules IT",
    "route bench pipeline --table IT",
];

/// A line with the document's name in it, which must be refused within little memory.
fn refused_in_bounds(room: &Room, line: &str, document: &str) -> String {
    let line = line.replace("IT", document);
    let output = room.run_within(REFUSING_KIB, &line.split(' ').collect::<Vec<_>>());
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "`{line}`: {:?}: {stderr}", output.status);
    assert_eq!(stderr.lines().count(), 1, "`{line}`: {stderr}");
    assert!(stderr.contains(document), "`{line}` does not name {document}: {stderr}");
    stderr.to_owned()
}

#[test]
fn documents_that_have_no_end_are_refused_at_their_limit() {
    let room = furnished("endless");
    room.done(&["model", "good.pcap", "-o", "good.json"]);
    room.write("good.rules", "@0.0.0.0/0\t0.0.0.0/0\t0 : 65535\t0 : 65535\t0x00/0x00\n");
    room.write("good.table", "10.0.0.0/8\n");
    // A device has length 0 and never ends; a sparse file has a length.
    let holes = fs::File::create(room.path("holes")).expect("a file");
    holes.set_len(8 << 30).expect("a length");
    for document in ["/dev/zero", "holes"] {
        for line in READERS {
            let stderr = refused_in_bounds(&room, line, document);
            let other_words = ["is not a part", "is not a key", "no supported format"];
            let is_said = |words: &str| stderr.contains(words);
            assert!(is_said("has more than ") || other_words.into_iter().any(is_said), "{stderr}");
        }
    }
    assert!(!room.path("out").exists() && !room.path("out.json").exists());
}

#[test]
fn a_pipe_that_is_fed_without_end_is_left_at_the_limit() {
    let room = furnished("fed");
    let cases = [
        ("model show IT", "{\"inputs\": [", "[],"),
        ("generate plan IT", "", " "),
        ("lab run --model IT --out out", "[", "0,"),
        ("simulate IT", "", "# a comment\n"),
        ("lab run ./IT --out out", "", "[[a]]\n"),
        ("route run IT", "a = [", "1,"),
        ("flows good.pcap -o out.parquet --anonymise IT", "", "0"),
    ];
    for (line, beginning, repeated) in cases {
        let pipe = room.path("pipe.toml");
        assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs").success());
        let (beginning, piece) = (beginning.to_owned(), repeated.repeat(1 << 14));
        let name = pipe.clone();
        let feeder = thread::spawn(move || {
            let mut to = fs::OpenOptions::new().write(true).open(name).expect("a reader");
            let mut fed = to.write(beginning.as_bytes()).expect("a reader") as u64;
            while fed < 4 * DOCUMENT_BYTES_MAX {
                match to.write(piece.as_bytes()) {
                    Ok(bytes) => fed += bytes as u64,
                    Err(error) => return (fed, error.kind()),
                }
            }
            (fed, std::io::ErrorKind::Other)
        });
        let stderr = refused_in_bounds(&room, line, "pipe.toml");
        let (fed, why) = feeder.join().expect("the feeder ends");
        assert_eq!(why, std::io::ErrorKind::BrokenPipe, "`{line}` took {fed} bytes");
        assert!(fed <= DOCUMENT_BYTES_MAX + (1 << 20), "`{line}` took {fed} bytes: {stderr}");
        fs::remove_file(&pipe).expect("it is ours");
    }
}

/// A user namespace that may create neither networks nor further user namespaces has as little
/// privilege as possible.
#[test]
fn without_privilege_a_lab_names_the_remedy() {
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
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("nilometer: a lab needs root"), "{stderr}");
    assert!(stderr.contains("sudo"), "{stderr}");
    assert_eq!(room.listing(), before);
}
