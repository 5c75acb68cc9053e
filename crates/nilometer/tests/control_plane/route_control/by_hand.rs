//! Control by hand: what an operator may type, what the answers say, and where they are found.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Instant;

use serde_json::{Value, json};

use super::ctl::{done, refused};
use super::site::{PATIENCE, ROUTER, Site, Stand, privileged};
use crate::common::Room;

#[test]
fn rates_and_sizes_are_written_as_people_do() {
    if !privileged("units") {
        return;
    }
    let text = ROUTER.replace(
        "interface = \"p1\"\naddresses",
        "interface = \"p1\"\nrate = \"20mbit\"\nburst_bytes = \"64 kB\"\n\
         queue = { discipline = \"tail_drop\", buffer_bytes = \"64KiB\" }\naddresses",
    );
    let config = toml::from_str(&text).expect("a description");
    let stand = Stand::with("by-hand-units", config).expect("a router");
    let port = |key: &str| stand.get("/v1/ports/p1")[key].clone();
    assert_eq!((port("rate_bps"), port("burst_bytes")), (json!(20_000_000), json!(64_000)));
    assert_eq!(port("settings")["queue"]["buffer_bytes"], 65_536);
    for (written, bits) in [
        ("20mbit", 20_000_000),
        ("1.5gbit", 1_500_000_000_u64),
        ("800kbit", 800_000),
        ("20Mb/s", 20_000_000),
        ("2500 kb/s", 2_500_000),
    ] {
        done(&stand, &["set-rate", "p1", written]);
        assert_eq!(port("rate_bps"), bits, "{written}");
    }
    done(&stand, &["set-rate", "p1", "20mbit", "--burst-bytes", "16KiB"]);
    assert_eq!(port("burst_bytes"), 16_384);
    done(&stand, &["set-rate", "p1", "20mbit", "--burst-bytes", "20000"]);
    assert_eq!(port("burst_bytes"), 20_000);
    done(&stand, &["set-delay", "p1", "5ms"]);
    assert_eq!(port("delay_us"), 5_000.0);
    done(&stand, &["set-queue", "p1", "discipline=tail_drop", "buffer_bytes=1MB"]);
    assert_eq!(port("settings")["queue"]["buffer_bytes"], 1_000_000);
    refused(&stand, &["set-rate", "p1", "20"], "write it as `10 Mb/s` or `10mbit`");
    refused(&stand, &["set-rate", "p1", "20 MB/s"], "is not a rate");
    refused(&stand, &["set-rate", "p1", "1mbit", "--burst-bytes", "64k"], "write it as `64 kB`");
    refused(&stand, &["set-queue", "p1", "discipline=red", "buffer_bytes=5GB"], "too much");
    stand.end();
}

#[test]
fn a_queue_without_a_size_holds_50_ms_at_its_rate() {
    if !privileged("sizes of queues") {
        return;
    }
    let text = ROUTER.replace(
        "interface = \"p1\"\naddresses",
        "interface = \"p1\"\nrate = \"100 Mb/s\"\nqueue = { discipline = \"codel\" }\naddresses",
    );
    let config = toml::from_str(&text).expect("a description");
    let stand = Stand::with("by-hand-sizes", config).expect("a router");
    let held =
        |stand: &Stand| stand.get("/v1/ports/p1")["settings"]["queue"]["buffer_packets"].clone();
    // 625,000 bytes in packets of 1,514.
    assert_eq!(held(&stand), 413);
    done(&stand, &["set-rate", "p1", "20 Mb/s"]);
    assert_eq!(held(&stand), 413, "what waits is not thrown away for a rate");
    let stderr = done(&stand, &["set-queue", "p1", "discipline=red", "max_p=0.2"]);
    let expected = "port p1: the discipline is red with 83 packets, for some 50 ms at its rate\n";
    assert_eq!(stderr, expected);
    assert_eq!(held(&stand), 83);
    for (rate, packets) in [("64 kb/s", 32), ("10 Gb/s", 2_048), ("none", 2_048)] {
        done(&stand, &["set-rate", "p1", rate]);
        done(&stand, &["set-queue", "p1", "discipline=qsdrr"]);
        assert_eq!(held(&stand), packets, "{rate}");
    }
    let stderr = done(&stand, &["set-queue", "p1", "discipline=red", "buffer_packets=500"]);
    assert_eq!(stderr, "port p1: the discipline is red\n");
    // The saved file states the size, so that it stays the same if the default changes.
    done(&stand, &["set-rate", "p1", "20 Mb/s"]);
    done(&stand, &["set-queue", "p1", "discipline=pie"]);
    done(&stand, &["save", "saved.toml"]);
    assert!(stand.room.read("saved.toml").contains("buffer_packets = 83"));
    stand.end();
}

#[test]
fn every_change_prints_what_was_done() {
    if !privileged("words of success") {
        return;
    }
    let stand = Stand::new("by-hand-words", "").expect("a router");
    for (words, stderr) in [
        (&["set-rate", "p1", "20mbit"][..], "port p1: the rate is 20 Mb/s"),
        (&["set-rate", "1", "none"], "port p1: the rate is none"),
        (&["set-delay", "p1", "5ms"], "port p1: the delay is 5 ms"),
        (
            &["set-queue", "p1", "discipline=red", "buffer_packets=9"],
            "port p1: the discipline is red",
        ),
        (&["set-fabric", "speedup=3"], "fabric: dq_plus, speed-up 3, period 500 us"),
        (
            &["engine", "--v4", "lines", "--v6", "lines"],
            "IPv4 routes are looked up in lines, IPv6 routes are looked up in lines",
        ),
        (&["classifier", "linear"], "the classifier is linear"),
        (&["filters", "add", "protocol=tcp", "action=deny"], "filter 0 is entered"),
        (&["filters", "del", "0"], "filter 0 is taken out"),
        (
            &["routes", "add", "198.18.64.0/18", "--via", "198.18.0.2"],
            "a route to 198.18.64.0/18 is entered",
        ),
        (&["routes", "del", "198.18.64.0/18"], "the route to 198.18.64.0/18 is withdrawn"),
        (
            &["messages", "--level", "debug", "--to", "ring"],
            "messages from level debug on are kept",
        ),
        (&["save", "saved.toml"], "saved in saved.toml"),
        (&["trace", "-w", "t.pcapng", "--seconds", "0.1"], "traced in t.pcapng"),
        (&["stress", "stop"], "no stress test is played"),
    ] {
        let text = done(&stand, words);
        assert!(text.starts_with(stderr) && text.lines().count() == 1, "{words:?}: {text:?}");
        let is_file = ["save", "trace"].contains(&words[0]);
        // Some cannot be done twice.
        if ["filters", "routes"].contains(&words[0]) && words[1] == "del" {
            continue;
        }
        let force = if is_file { &["--json", "--force"][..] } else { &["--json"] };
        let text = done(&stand, &[words, force].concat());
        match is_file {
            true => assert_eq!(text, ""),
            false => {
                let object: Value = serde_json::from_str(&text).expect("one object");
                assert!(object.is_object() && text.lines().count() == 1, "{text}");
            }
        }
        if words[..2] == ["filters", "add"] {
            done(&stand, &["filters", "del", "1"]);
        }
    }
    stand.end();
}

#[test]
fn ports_shows_all_that_each_is_set_to() {
    if !privileged("settings of ports") {
        return;
    }
    let text = ROUTER.replacen("\n[[neighbour]]", "\npunt = \"cpu1\"\n[[neighbour]]", 1);
    let config = toml::from_str(&text).expect("a description");
    let stand = Stand::with("by-hand-ports", config).expect("a router");
    done(&stand, &["set-rate", "p1", "20mbit", "--burst-bytes", "9000"]);
    done(&stand, &["set-delay", "p1", "5ms"]);
    done(&stand, &["set-queue", "p1", "discipline=red", "ecn=true", "max_p=0.25"]);
    let text = done(&stand, &["ports"]);
    assert!(text.lines().all(|line| line.chars().count() <= 140), "{text}");
    let (_, p1) = text.split_once("\np1: ").expect("what p1 is set to");
    let flat = p1.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "198.19.0.1/24, fd00:19::1/64, MTU 1500 bytes, MAC 02:00:00:00:01:02",
        "rate 20 Mb/s",
        "burst_bytes 9000",
        "delay 5 ms",
        "overhead_bytes 0",
        "punt cpu1",
        "kind auto",
        "reverse_path off",
        "busy_poll_us -",
        "discipline red",
        "buffer_packets 83",
        "ecn true",
        "max_p 0.25",
        "w_q 0.",
        "min_th_percent",
        "gentle false",
        "routes are looked up in tree_bitmap (IPv4), tree_bitmap (IPv6)",
    ] {
        assert!(flat.contains(part), "{part}: {text}");
    }
    // Every key that a section may have is shown.
    let object = stand.get("/v1/ports/p1");
    for (key, value) in object["settings"].as_object().expect("settings") {
        let is_shown = value.is_object() || flat.contains(&format!("{key} "));
        assert!(is_shown || ["interface", "addresses"].contains(&key.as_str()), "{key}: {text}");
    }
    assert!(!done(&stand, &["status"]).contains("reverse_path"), "status is short");
    stand.end();
}

#[test]
fn the_usual_socket_stays_beside_an_address() {
    if !privileged("the usual socket") {
        return;
    }
    let (site, room) = (Site::new().expect("a site"), Room::new("by-hand-socket"));
    room.write("lab7.toml", format!("[control]\nlisten = \"127.0.0.1:0\"\n{ROUTER}"));
    let words = ["route", "run", "lab7.toml", "--host-interfaces"];
    let command = |words: &[&str]| {
        let mut command = room.command(words);
        command.env("XDG_RUNTIME_DIR", room.path(""));
        command
    };
    let child = site.router.run(|| {
        let mut command = command(&words);
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts")
    });
    let began = Instant::now();
    let mut shown = command(&["route", "ctl", "status"]).output().expect("it runs");
    while !shown.status.success() && began.elapsed() < PATIENCE {
        std::thread::sleep(std::time::Duration::from_millis(20));
        shown = command(&["route", "ctl", "status"]).output().expect("it runs");
    }
    // SAFETY: the child is ours and has not been waited for.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
    let output = child.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(shown.status.success(), "{stderr}{}", String::from_utf8_lossy(&shown.stderr));
    assert!(stderr.contains("nilometer/lab7.sock"), "{stderr}");
    assert!(stderr.contains("the control address is http://127.0.0.1:"), "{stderr}");
}

#[test]
fn watch_prints_changes() {
    if !privileged("watching") {
        return;
    }
    let stand = Stand::new("by-hand-watch", "").expect("a router");
    let text = done(&stand, &["watch", "--count", "6"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("fabric: dq_plus, period 500"), "{text}");
    assert!(lines[1].starts_with("SECONDS ") && lines[1].contains("WAITING bytes"), "{text}");
    assert_eq!(lines.len(), 2, "nothing waits anywhere: {text}");
    // A filling queue is reported on its own, each time with other values than before.
    let flow = stand.site.flow().expect("a flow");
    done(&stand, &["set-rate", "p1", "100 kb/s"]);
    let text = done(&stand, &["watch", "--count", "12"]);
    let mut last = BTreeMap::new();
    let mut printed = 0;
    for line in text.lines().skip(2) {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words.len(), 7, "{text}");
        let queue = (words[1].to_owned(), words[2].to_owned());
        let rest = words[3..].join(" ");
        printed += 1;
        assert_ne!(last.insert(queue, rest.clone()), Some(rest), "{text}");
    }
    assert!(printed >= 2 && last.keys().all(|(_, to)| to == "p1"), "{text}");
    assert_eq!(done(&stand, &["watch", "--count", "3", "--json"]).lines().count(), 3);
    done(&stand, &["set-rate", "p1", "none"]);
    flow.end();
    stand.end();
}
