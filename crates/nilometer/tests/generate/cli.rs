//! `nilometer generate` by hand: a server and a client in two processes play a plan over loopback.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Room, Running, free_port, text};
use nilometer_lab::generate::giving_up::PATIENCE;
use nilometer_lab::generate::protocol::Request;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::Value;
use socket2::{Domain, Socket, Type};

/// The one congestion control that every kernel has and lets everyone use.
const RENO: [&str; 2] = ["--congestion", "reno"];

fn count(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} is no count in {value}"))
}

/// A server of the room that listens already.
struct Serving {
    running: Running,
    message: Box<dyn Read>,
}

fn serve(room: &Room, listen: &str, port: &str, more: &[&str]) -> Serving {
    let words = ["generate", "server", "--listen", listen, "--port", port, "--json"];
    let mut running = room.start(&[&words[..], &RENO, more].concat());
    let message = Box::new(running.wait_for_line("serving on port"));
    Serving { running, message }
}

impl Serving {
    /// Asks it to end and returns its account.
    fn ended_by(mut self, signal: libc::c_int) -> Value {
        self.running.signal(signal);
        let output = self.running.end();
        let mut message = String::new();
        self.message.read_to_string(&mut message).expect("text");
        assert_eq!(output.status.code(), Some(0), "{message}");
        assert_eq!(message, "", "a server that ends as asked says nothing more");
        let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        let given_up = ["timed_out", "too_slow", "displaced", "refused"];
        let ends = ["completed", "bad_requests", "broken", "unfinished"];
        let sum: u64 = ends.iter().chain(&given_up).map(|end| count(&report, end)).sum();
        assert_eq!(count(&report, "accepted"), sum, "{report}");
        report
    }
}

/// A plan played to its end: the client's account and the server's hold every connection and byte.
fn played(name: &str, listen: &str, pools: [&str; 2], threads: &str, signal: libc::c_int) {
    let room = Room::new(name);
    let model = room.small_model("model.json");
    let port = free_port().to_string();
    let server = serve(&room, listen, &port, &[]);
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
    let server = serve(&room, "0.0.0.0", &port, &[]);
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

/// A client that gets no answer: its last line, after status 2 and nothing on stdout.
fn unanswered(room: &Room, words: &[&str]) -> String {
    let output =
        room.run(&[&["generate", "client", "model.json", "--json"], words, &RENO].concat());
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert_eq!(text(&output.stdout), "", "nothing was transferred, nothing is claimed");
    let line = message.lines().last().expect("a reason").to_owned();
    assert!(line.starts_with("nilometer: nothing could be connected: "), "{message}");
    line
}

#[test]
fn without_a_server_the_cause_and_the_remedy_are_printed() {
    let room = Room::new("alone");
    room.small_model("model.json");
    let port = free_port().to_string();
    let line = unanswered(&room, &["--port", &port]);
    let expected =
        ["of 350 connections tried", "350 ended with \"Connection refused\"", "to 127.2."];
    assert!(expected.iter().all(|word| line.contains(word)), "{line}");
    let remedy = format!("start `nilometer generate server --port {port} --device lo`");
    assert!(line.contains(&remedy), "{line}");
    // Addresses beyond loopback give no answer, or have no route.
    let line = unanswered(&room, &["--port", &port, "--destinations", "192.0.2.0/24"]);
    assert!(line.contains("to 192.0.2."), "{line}");
    assert!(line.contains("got no answer") || line.contains("unreachable"), "{line}");
}

#[test]
fn a_long_plan_is_given_up_early() {
    let room = Room::new("hopeless");
    let mut model = room.small_model("model.json");
    for interval in model["intervals"].as_array_mut().expect("intervals") {
        interval["start_s"] = (30.0 * interval["start_s"].as_f64().expect("a start")).into();
        interval["duration_s"] = 30.0.into();
    }
    room.write("model.json", model.to_string());
    let (port, began) = (free_port().to_string(), Instant::now());
    let line = unanswered(&room, &["--port", &port]);
    let took = began.elapsed();
    assert!(took >= PATIENCE && took < PATIENCE + Duration::from_secs(10), "{took:?}: {line}");
    assert!(!line.contains("of 350"), "not all were tried: {line}");
}

/// One of two destinations is served: failures are counted by reason, received bytes are exact.
#[test]
fn failures_are_counted_by_reason() {
    let room = Room::new("half");
    room.small_model("model.json");
    let port = free_port().to_string();
    let server = serve(&room, "127.2.0.1", &port, &[]);
    let client = ["generate", "client", "model.json", "--port", &port];
    let words = [&client[..], &["--destinations", "127.2.0.0/30"], &RENO].concat();
    let output = room.run(&[&words[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let done: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert!(count(&done, "failed") > 0 && count(&done, "completed") > 0, "{done}");
    assert_eq!(done["failures"], serde_json::json!({ "Connection refused": done["failed"] }));
    assert_eq!(done["sizes_exact"], true);
    let output = room.run(&words);
    let line = format!("{} failed with \"Connection refused\"\n", done["failed"]);
    assert!(text(&output.stdout).contains(&line), "{}", text(&output.stdout));
    server.ended_by(libc::SIGINT);
}

#[test]
fn a_duration_plays_the_beginning() {
    let room = Room::new("beginning");
    room.small_model("model.json");
    let port = free_port().to_string();
    let server = serve(&room, "0.0.0.0", &port, &[]);
    let first = ["model.json", "--seed", "3", "--duration", "1", "--json"];
    let done =
        room.counted(&[&["generate", "client"], &first[..], &["--port", &port], &RENO].concat());
    assert_eq!((count(&done, "connections"), count(&done, "completed")), (100, 100), "{done}");
    assert_eq!(done["failures"], serde_json::json!({}));
    let plan = room.counted(&[&["generate", "plan"], &first[..]].concat());
    assert_eq!((&plan["connections"], &plan["bytes"]), (&done["connections"], &done["bytes"]));
    server.ended_by(libc::SIGINT);
    for seconds in ["0", "-1", "nan", "100000"] {
        let line = room.refused(&["generate", "client", "model.json", "--duration", seconds]);
        assert!(line.contains("--duration is") && line.contains("from 0.5 to 86400"), "{line}");
    }
}

#[test]
fn an_interrupted_client_reports_its_progress() {
    let room = Room::new("stopped");
    let mut model = room.small_model("model.json");
    model["intervals"][1]["duration_s"] = 60.0.into();
    room.write("model.json", model.to_string());
    let port = free_port().to_string();
    let server = serve(&room, "0.0.0.0", &port, &[]);
    let client = ["generate", "client", "model.json", "--port", &port, "--json"];
    let mut client = room.start(&[&client[..], &RENO].concat());
    drop(client.wait_for_line("playing 350 connections"));
    std::thread::sleep(Duration::from_millis(700));
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

/// The limits of a server that strangers can reach are options, and documented in its help.
#[test]
fn limits_are_documented_and_checked() {
    let room = Room::new("limits");
    let help = room.done(&["generate", "server", "--help"]);
    let expected = [
        ("--places", "16384"),
        ("--request-time", "10"),
        ("--lowest-rate", "250"),
        ("--rate-window", "60"),
        ("--under-way", "256"),
    ];
    for (option, default) in expected {
        let at = help.find(option).unwrap_or_else(|| panic!("no {option}: {help}"));
        let rest = &help[at..];
        let end = rest.find("[default: ").expect("a default") + "[default: ".len();
        assert!(rest[end..].starts_with(&format!("{default}]")), "{option}: {rest}");
    }
    let line = room.refused(&["generate", "server", "--places", "16384", "--under-way", "100"]);
    assert!(line.contains("too few for 16384 places; allow 134217728"), "{line}");
}

#[test]
fn a_port_in_use_is_refused() {
    let room = Room::new("occupied");
    let port = free_port().to_string();
    let server = serve(&room, "0.0.0.0", &port, &[]);
    let line = room.refused(&[&["generate", "server", "--port", &port], &RENO[..]].concat());
    assert!(line.contains(&port) && line.contains("in use"), "{line}");
    let report = server.ended_by(libc::SIGTERM);
    assert_eq!(count(&report, "accepted"), 0);
}

#[test]
fn a_full_server_listens_again_after_it_could_not_accept() {
    let room = Room::new("full-again");
    let port = free_port();
    let patient = ["--places", "4", "--request-time", "600"];
    let mut server = serve(&room, "0.0.0.0", &port.to_string(), &patient);
    let process = server.running.pid();
    let open_files = || fs::read_dir(format!("/proc/{process}/fd")).expect("a child").count();
    let call = |last: u8| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let from = SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0));
        socket.bind(&from.into()).expect("an address of loopback");
        socket.connect(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into()).expect("a queue");
        TcpStream::from(socket)
    };
    let before = open_files();
    let mut strangers: Vec<TcpStream> = (0..4).map(|_| call(1)).collect();
    let began = Instant::now();
    while open_files() < before + 4 {
        assert!(began.elapsed() < Duration::from_secs(20), "four are taken in");
        thread::sleep(Duration::from_millis(5));
    }
    // No descriptor for the next one, for a while.
    let limit = |files| {
        let limit = Rlimit { current: Some(files), ..getrlimit(Resource::Nofile) };
        let child = Pid::from_raw(process.cast_signed()).expect("a number");
        prlimit(Some(child), Resource::Nofile, limit).expect("ours");
    };
    limit(3);
    strangers.push(call(1));
    thread::sleep(Duration::from_millis(300));
    limit(256);
    let mut owner = call(2);
    owner.write_all(&Request::new(0, 1_000).encode()).expect("sixteen bytes");
    owner.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    let mut answer = Vec::new();
    owner.read_to_end(&mut answer).expect("one of the strangers makes room for him");
    assert_eq!(answer.len(), 1_000);
    drop((owner, strangers));
    let report = server.ended_by(libc::SIGTERM);
    assert_eq!(count(&report, "displaced"), 1, "{report}");
}
