//! `nilometer lab run --router`: the device is the router of a file, and accounts for its losses.
//!
//! Nothing depends on how fast this machine is: the tests assert conservation, names, digests, bounds from
//! a link's rate and length, and that two counts of the same packets agree.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Room, privileged, text};
use nilometer_files::table::packets::read_packet_table;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// A slow link to the clients with a short queue, a long link to the servers, one client shut out.
const SLOW: &str = r#"
[tables]
engine_v4 = "lines"
engine_v6 = "wide_lines"
classifier = "linear"

[[port]]
interface = "server"
delay = "20 ms"
queue = { discipline = "codel", buffer_packets = 500 }

[[port]]
interface = "client"
rate = "4 Mb/s"
queue = { discipline = "tail_drop", buffer_packets = 12 }

[[filter]]
action = "deny"
protocol = "tcp"
source = "198.18.0.0/30"
destination_ports = "8800-8810"

[[filter]]
action = "permit"
"#;

fn count(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} is no count in {value}"))
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("{key} is not a list in {value}"))
}

/// Losses by direction, place and reason.
fn losses(router: &Value) -> BTreeMap<(String, String, String), u64> {
    let word = |loss: &Value, key: &str| loss[key].as_str().expect("text").to_owned();
    let entry = |loss: &Value| {
        let place = format!("{} {}", word(loss, "port"), word(loss, "place"));
        ((word(loss, "direction"), place, word(loss, "reason")), count(loss, "packets"))
    };
    list(router, "losses").iter().map(entry).collect()
}

/// Every packet that the meter calls lost is in a counter of the router's, and no other is.
fn explained(result: &Value) {
    let all = losses(&result["router"]);
    for direction in list(result, "directions") {
        let name = direction["name"].as_str().expect("text");
        let reported: u64 = all.iter().filter(|((way, ..), _)| way == name).map(|(_, it)| it).sum();
        assert_eq!(reported, count(&direction["packets"], "lost"), "{name}: {all:?}");
        assert_eq!(result["router"]["unexplained"][name], 0, "{name}: {all:?}");
    }
    assert_eq!(count(&result["packets"], "meter_lost"), 0, "{result}");
    assert_eq!(result["router"]["tally"]["balances"], true);
}

fn queue<'a>(result: &'a Value, port: &str) -> &'a Value {
    let found = list(&result["router"], "queues").iter().find(|queue| queue["port"] == port);
    found.unwrap_or_else(|| panic!("no queue of {port} in {result}"))
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

/// The file decides: rates, lengths, queues, filters and engines; losses are reported by reason, and agree
/// with the meter's.
#[test]
fn the_router_of_a_file_is_tested_and_its_losses_are_explained() {
    if !privileged("a lab run through the router of a file") {
        return;
    }
    let room = Room::new("router-file");
    fs::create_dir(room.path("lab")).expect("a folder");
    room.write("lab/slow.toml", SLOW);
    room.small_model("model.json");
    let lab = "router = \"slow.toml\"\n[model]\nfile = \"model.json\"\n[traffic]\ndrain_s = 12.0\n";
    room.write("lab/LAB.toml", lab);
    let words = ["lab", "run", "lab/LAB.toml", "--duration", "2", "--calibration", "0", "--json"];
    let output = room.run(&[&words[..], &["--out", "run"]].concat());
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let result: Value = serde_json::from_slice(&output.stdout).expect("a result");
    assert_eq!(result, room.json("run/result.json"));
    explained(&result);
    let router = &result["router"];

    // Reasons: the full queue to the clients and the filter, in the direction that each is of.
    let all = losses(router);
    let of = |way: &str, place: &str, reason: &str| {
        let key = (way.to_owned(), place.to_owned(), reason.to_owned());
        all.get(&key).copied().unwrap_or(0)
    };
    assert!(of("to_clients", "client output queue", "full") > 0, "{all:?}");
    let denied = of("to_servers", "client filter", "denied");
    assert!(denied > 0, "{all:?}");
    assert_eq!(of("to_clients", "server filter", "denied"), 0, "{all:?}");
    let filters = list(router, "filters");
    assert_eq!((filters.len(), &filters[0]["action"]), (2, &"deny".into()));
    assert_eq!(count(&filters[0], "packets"), denied);
    assert_eq!(filters[1]["action"], "permit");
    shut_out(&room);

    // Queues: their disciplines, their limits, and that one of them was full.
    let (client, server) = (queue(&result, "client"), queue(&result, "server"));
    assert_eq!(
        (&client["discipline"], &server["discipline"]),
        (&"tail_drop".into(), &"codel".into())
    );
    assert_eq!((&client["rate_bps"], &client["delay_ns"]), (&4_000_000.into(), &0.into()));
    assert_eq!((&server["rate_bps"], &server["delay_ns"]), (&Value::Null, &20_000_000.into()));
    assert_eq!(count(&client["output"], "max_packets"), 12, "{client}");
    let mean = client["output"]["mean_packets"].as_f64().expect("a number");
    assert!((0.5..12.0).contains(&mean), "{client}");

    // Delays: no packet crosses a longer link sooner, and only the direction of that link is longer.
    let mut soonest = [i64::MAX; 2];
    read_packet_table(&room.path("run/packets.parquet"), &mut |row| {
        let least = &mut soonest[usize::from(row.direction)];
        *least = row.delay_ns.unwrap_or(i64::MAX).min(*least);
        Ok(())
    })
    .expect("packet stamps");
    assert!(soonest[0] >= 20_000_000 && soonest[1] < 20_000_000, "{soonest:?}");

    // Engines: named, and not of the size that the usual ones have.
    let tables = &router["tables"];
    assert_eq!(
        (&tables["engine_v4"], &tables["engine_v6"]),
        (&"lines".into(), &"wide_lines".into())
    );
    assert_eq!(tables["classifier"], "linear");

    // A warning before the traffic is given once.
    let warning = "nilometer: warning: The plan has ";
    assert_eq!(stderr.matches(warning).count(), 1, "{stderr}");
    assert!(stderr.contains("port client of lab/slow.toml carries 4 Mbit/s"), "{stderr}");
    assert!(stderr.find(warning) < stderr.find("playing"), "{stderr}");
    let first = result["warnings"][0].as_str().expect("a warning");
    assert!(stderr.contains(&format!("nilometer: warning: {first}\n")), "{stderr}");

    kept(&room, &result);
}

/// A client that was shut out completed nothing; all others were let through.
fn shut_out(room: &Room) {
    let (mut inside, mut outside) = (0, 0);
    for line in room.read("run/execution.ndjson").lines() {
        let line: Value = serde_json::from_str(line).expect("a line of JSON");
        let source = line["source"].as_str().expect("text");
        let last = source.strip_prefix("198.18.0.").and_then(|last| last.parse::<u8>().ok());
        let is_denied = last.is_some_and(|last| last < 4);
        let is_done = line["outcome"] == "Completed";
        assert!(!(is_denied && is_done), "{line}");
        inside += u64::from(is_denied);
        outside += u64::from(!is_denied && is_done);
    }
    assert!(inside > 0 && outside > 0, "{inside} shut out, {outside} let through");
}

/// The file is kept as it was, its digest is reported, the run can be repeated from the results, and the
/// page shows queues and losses.
fn kept(room: &Room, result: &Value) {
    assert_eq!(room.read("run/router.toml"), SLOW);
    let digest: String =
        Sha256::digest(SLOW.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(result["router"]["file_digest"], digest);
    assert!(room.read("run/lab.toml").contains("router = \"router.toml\""));
    let story = room.json("run/report.json");
    let steps = list(&story["queues"][0], "steps");
    assert!(steps.len() > 50 && steps.len() <= 600, "{} steps", steps.len());
    let most = steps.iter().map(|step| count(step, "max_packets")).max();
    assert_eq!(most, Some(12));
    let page = room.read("run/report.html");
    for words in [
        "Queue at port client: tail_drop",
        "Queue at port server: codel",
        "Its link: 4 Mb/s",
        "client output queue: full",
        "client filter: denied",
        "not explained",
        "engine_v4 = &quot;lines&quot;",
        "router.toml",
        "queues.parquet",
    ] {
        assert!(page.contains(words), "the page does not say {words}");
    }
    assert!(room.path("run/queues.parquet").exists());
    // (A client that is shut out tries for as long as it may.)
    let lab = room.read("run/lab.toml");
    assert!(lab.contains("drain_s = 12.0"), "{lab}");
    fs::write(room.path("run/lab.toml"), lab.replace("drain_s = 12.0", "drain_s = 0.5"))
        .expect("a file");
    let again = ["lab", "run", "run/lab.toml", "--duration", "0.5", "--calibration", "0", "--json"];
    let again = room.counted(&[&again[..], &["--out", "again"]].concat());
    assert_eq!(again["router"]["file_digest"], digest);
    // And the usual router looks packets up in other tables.
    let usual = ["lab", "run", "--duration", "0.5", "--calibration", "0", "--json"];
    let usual = room.counted(&[&usual[..], &["--out", "usual"]].concat());
    assert!(usual["router"]["file_digest"].is_null());
    let bytes = |result: &Value| count(&result["router"]["tables"], "fib_v4_bytes");
    assert_ne!(bytes(&usual), bytes(result), "an engine is its table");
}

/// The shapes of the lines of the summary, without the numbers: names, columns and units. Losses, which a
/// run may have or not, are left out, disciplines too, and of the last line all but its name.
fn shapes(printed: &str) -> Vec<String> {
    let shape = |line: &str| {
        let (name, stderr) = line.split_at_checked(23).unwrap_or((line, ""));
        let stderr = match name.split(' ').next() {
            Some("report") => "",
            Some("queue") => stderr.split_once(", ").map_or(stderr, |(_, rest)| rest),
            _ => stderr.split(", but ").next().unwrap_or_default(),
        };
        let numbers = stderr.split(|letter: char| letter.is_ascii_digit() || letter == '.');
        let words: Vec<&str> = numbers.filter(|word| !word.is_empty()).collect();
        format!("{name}{}", words.join("N"))
    };
    let is_loss = |line: &&str| line.starts_with("lost ") || line.starts_with("not explained ");
    printed.lines().filter(|line| !is_loss(line)).map(shape).collect()
}

/// The shipped file runs as it is; RED drops before its queue is full, and the report says so in words.
#[test]
fn the_shipped_router_is_tested_with_one_command() {
    if !privileged("a lab run through the shipped router") {
        return;
    }
    let room = Room::new("router-shipped");
    let file = example("lab-router.toml");
    let shipped = fs::read_to_string(&file).expect("the example");
    room.write("router.toml", shipped.replace("\"20 Mb/s\"", "\"3 Mb/s\""));
    room.small_model("model.json");
    let words = ["lab", "run", "--router", "router.toml", "--model", "model.json"];
    let words = [&words[..], &["--duration", "2", "--calibration", "0.5"]].concat();
    let printed = room.done(&[&words[..], &["--out", "run"]].concat());
    let result = room.json("run/result.json");
    explained(&result);
    let early = losses(&result["router"]).into_iter().find(|((.., reason), _)| reason == "early");
    let ((way, place, _), packets) = early.expect("RED drops early");
    assert_eq!((way.as_str(), place.as_str()), ("to_clients", "client output queue"));
    let line =
        format!("lost                   {packets} to_clients (client output queue: early)\n");
    assert!(printed.contains(&line), "{printed}");
    assert!(printed.contains("not explained          0 to_servers, 0 to_clients\n"), "{printed}");
    assert!(printed.contains("queue client           red, "), "{printed}");
    let readme = fs::read_to_string(example("../README.md")).expect("the first page");
    let sample =
        readme.split_once(" it ends with\n\n").and_then(|(_, rest)| rest.split_once("\n\n"));
    let lines = sample.expect("a sample of what is printed").0.lines();
    let sample: String = lines.map(|line| format!("{}\n", line.trim_start())).collect();
    assert_eq!(shapes(&sample), shapes(&printed), "README.md shows what a run prints");
    assert_eq!(count(queue(&result, "server"), "delay_ns"), 5_000_000);
    let whole = ["lab", "run", "--router", file.to_str().expect("UTF-8"), "--duration", "0.5"];
    room.done(&[&whole[..], &["--calibration", "0", "--out", "whole"]].concat());
    assert_eq!(room.read("whole/router.toml"), shipped);
}

#[test]
fn a_file_that_no_lab_can_use_is_refused_in_one_line() {
    let room = Room::new("router-refused");
    let ports = "[[port]]\ninterface = \"client\"\n[[port]]\ninterface = \"server\"\n";
    room.write("good.toml", ports);
    room.write("other.toml", "[[port]]\ninterface = \"p0\"\n");
    room.write("addresses.toml", format!("{ports}addresses = [\"198.18.0.1/24\"]\n"));
    room.write("listen.toml", format!("{ports}[control]\nlisten = \"127.0.0.1:8047\"\n"));
    room.write(
        "queue.toml",
        format!("{ports}queue = {{ discipline = \"rde\", buffer_packets = 9 }}\n"),
    );
    room.write("key.toml", format!("{ports}rat = \"1 Mb/s\"\n"));
    room.write("linux.toml", "dut = \"linux\"\nrouter = \"good.toml\"\n");
    let run = |words: &[&str]| room.refused(&[&["lab", "run", "--out", "run"], words].concat());
    for (file, words) in [
        ("none.toml", "cannot read none.toml"),
        ("other.toml", "the ports client and server"),
        ("addresses.toml", "addresses.toml: port server: addresses: the lab gives"),
        ("listen.toml", "leave [control] out"),
        ("key.toml", "key.toml: line 5: unknown key `rat`"),
    ] {
        let line = run(&["--router", file]);
        assert!(line.contains(words), "{line}");
    }
    for words in [&["--router", "good.toml", "--dut", "linux"][..], &["linux.toml"]] {
        let line = run(words);
        assert!(line.contains("good.toml") && line.contains("dut is linux"), "{line}");
    }
    if privileged("the refusal of a queue that there is not") {
        let line = run(&["--router", "queue.toml"]);
        assert!(line.contains("queue.toml") && line.contains("rde"), "{line}");
    }
}
