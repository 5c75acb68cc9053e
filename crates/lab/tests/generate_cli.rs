//! `nilometer generate` by hand: a server and a client in two processes play a plan over loopback.

mod common;

use std::io::Read;

use common::{Room, Running, free_port, text};
use serde_json::Value;

/// The one congestion control that every kernel has and lets everyone use.
const RENO: [&str; 2] = ["--congestion", "reno"];

fn count(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} is no count in {value}"))
}

/// A server of the room that listens already.
struct Serving {
    running: Running,
    said: Box<dyn Read>,
}

fn serve(room: &Room, listen: &str, port: &str) -> Serving {
    let words = ["generate", "server", "--listen", listen, "--port", port, "--json"];
    let mut running = room.start(&[&words[..], &RENO].concat());
    let said = Box::new(running.hears("serving on port"));
    Serving { running, said }
}

impl Serving {
    /// Asks it to end and returns its account.
    fn ended_by(mut self, signal: libc::c_int) -> Value {
        self.running.signal(signal);
        let output = self.running.end();
        let mut said = String::new();
        self.said.read_to_string(&mut said).expect("text");
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert_eq!(said, "", "a server that ends as asked says nothing more");
        let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        let ends = ["completed", "bad_requests", "broken", "timed_out", "unfinished"];
        let sum: u64 = ends.iter().map(|end| count(&report, end)).sum();
        assert_eq!(count(&report, "accepted"), sum, "{report}");
        report
    }
}

/// A plan played to its end: the client's account and the server's hold every connection and byte.
fn played(name: &str, listen: &str, pools: [&str; 2], threads: &str, signal: libc::c_int) {
    let room = Room::new(name);
    let model = room.small_model("model.json");
    let port = free_port().to_string();
    let server = serve(&room, listen, &port);
    let common = ["model.json", "--seed", "7", "--threads", threads, "--json"];
    let pools = ["--sources", pools[0], "--destinations", pools[1], "--port", &port];
    let done = room.counted(&[&["generate", "client"], &common[..], &pools, &RENO].concat());
    let intervals = model["intervals"].as_array().expect("intervals").iter();
    let flows: u64 = intervals.map(|interval| count(interval, "flows")).sum();
    assert_eq!(count(&done, "connections"), flows);
    assert_eq!(count(&done, "completed"), flows, "{done}");
    assert_eq!((count(&done, "failed"), count(&done, "unfinished")), (0, 0));
    assert_eq!((&done["sizes_exact"], &done["congestion"]), (&true.into(), &"reno".into()));
    let report = server.ended_by(signal);
    assert_eq!(count(&report, "accepted"), flows);
    assert_eq!(count(&report, "completed"), flows, "{report}");
    assert_eq!(report["sent_bytes"], done["bytes"]);
    assert_eq!(report["congestion"], "reno");
}

#[test]
fn a_plan_is_played_to_its_end_by_hand() {
    played("hand", "0.0.0.0", ["127.1.0.0/16", "127.2.0.0/16"], "1", libc::SIGINT);
}

#[test]
fn a_plan_is_played_to_its_end_over_ipv6() {
    played("six", "::1", ["::1/128", "::1/128"], "2", libc::SIGTERM);
}

/// The default pools of `generate client` are loopback's, so the digest is that of the plan with them.
#[test]
fn the_plan_that_is_printed_is_the_plan_that_is_played() {
    let room = Room::new("plan");
    let mut model = room.small_model("model.json");
    model["generation"]["clients"] = serde_json::json!(["127.1.0.0/16"]);
    model["generation"]["servers"] = serde_json::json!(["127.2.0.0/16"]);
    room.write("model.json", model.to_string());
    let port = free_port().to_string();
    let server = serve(&room, "0.0.0.0", &port);
    let client = ["generate", "client", "model.json", "--seed", "2", "--port", &port, "--json"];
    let done = room.counted(&[&client[..], &RENO].concat());
    server.ended_by(libc::SIGINT);
    for threads in ["1", "2", "3"] {
        let words = ["generate", "plan", "model.json", "--seed", "2", "--threads", threads];
        let plan = room.counted(&[&words[..], &["--json"]].concat());
        assert_eq!(plan["digest"], done["digest"], "{threads} threads");
        assert_eq!(plan["connections"], done["connections"]);
        assert_eq!(plan["bytes"], done["bytes"]);
    }
    let shown = room.done(&["generate", "plan", "model.json", "--seed", "2"]);
    assert!(shown.contains(done["digest"].as_str().expect("text")), "{shown}");
    let all = room.done(&["generate", "plan", "model.json", "--seed", "2", "--all"]);
    let connections = all.lines().filter(|line| line.contains(" 127.1.")).count() as u64;
    assert_eq!(connections, count(&done, "connections"));
}

#[test]
fn without_a_server_every_connection_fails_and_is_counted() {
    let room = Room::new("alone");
    room.small_model("model.json");
    let port = free_port().to_string();
    let client = ["generate", "client", "model.json", "--port", &port, "--json"];
    let output = room.run(&[&client[..], &RENO].concat());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let done: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!((count(&done, "completed"), count(&done, "bytes")), (0, 0));
    assert_eq!(done["failed"], done["connections"], "{done}");
}

#[test]
fn an_interrupted_client_says_how_far_it_came() {
    let room = Room::new("stopped");
    let mut model = room.small_model("model.json");
    model["intervals"][1]["duration_s"] = 60.0.into();
    room.write("model.json", model.to_string());
    let port = free_port().to_string();
    let server = serve(&room, "0.0.0.0", &port);
    let client = ["generate", "client", "model.json", "--port", &port, "--json"];
    let mut client = room.start(&[&client[..], &RENO].concat());
    drop(client.hears("playing 350 connections"));
    std::thread::sleep(std::time::Duration::from_millis(700));
    client.signal(libc::SIGINT);
    let output = client.end();
    assert_eq!(output.status.code(), Some(130));
    let done: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let ends = ["completed", "failed", "unfinished"].map(|end| count(&done, end));
    assert_eq!(ends.iter().sum::<u64>(), count(&done, "connections"), "{done}");
    assert!(ends[0] > 0 && ends[2] > 0, "{done}");
    assert_eq!(done["sizes_exact"], true);
    server.ended_by(libc::SIGINT);
}

#[test]
fn a_port_in_use_is_refused() {
    let room = Room::new("occupied");
    let port = free_port().to_string();
    let server = serve(&room, "0.0.0.0", &port);
    let line = room.refused(&[&["generate", "server", "--port", &port], &RENO[..]].concat());
    assert!(line.contains(&port) && line.contains("in use"), "{line}");
    let report = server.ended_by(libc::SIGTERM);
    assert_eq!(count(&report, "accepted"), 0);
}
