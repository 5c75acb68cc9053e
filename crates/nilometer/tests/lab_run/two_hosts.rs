//! A stream between two hosts: the sender in one namespace, the receiver in another, the device between them.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::external::{Bench, ip, patience};
use crate::common::{BINARY, Running, text};

/// The sender's host and its device, and the receiver's host, to which the servers' interface was moved.
struct Hosts {
    bench: Bench,
    far: String,
}

const RECEIVER: &str = "198.19.254.2:4950";

impl Hosts {
    /// Both hosts, the device's port joined to them as a router or as a bridge.
    fn new(what: &str, is_bridge: bool) -> Option<Hosts> {
        let bench = Bench::new(what)?;
        if is_bridge {
            bench.in_device(&["link", "add", "b0", "type", "bridge"]);
            bench.in_device(&["link", "set", "b0", "up"]);
            ["dc", "ds"]
                .iter()
                .for_each(|port| bench.in_device(&["link", "set", port, "master", "b0"]));
        } else {
            bench.set_up();
        }
        let far = bench.host.replace("-host-", "-far-");
        ip(&["netns", "add", &far]);
        bench.in_host(&["link", "set", "tgs", "netns", &far]);
        bench.in_host(&["link", "add", "m0", "type", "veth", "peer", "name", "m1", "netns", &far]);
        let hosts = Hosts { bench, far };
        for (namespace, name, address) in
            [(&hosts.bench.host, "m0", "198.19.254.1/30"), (&hosts.far, "m1", "198.19.254.2/30")]
        {
            ip(&["-n", namespace, "address", "add", address, "dev", name]);
            ip(&["-n", namespace, "link", "set", name, "up"]);
        }
        ip(&["-n", &hosts.far, "link", "set", "tgs", "up"]);
        Some(hosts)
    }

    /// A receiver, which is ready.
    fn receiver(&self, more: &[&str]) -> Running {
        self.receiver_by(&[], more)
    }

    /// The same, started by a command.
    fn receiver_by(&self, by: &[&str], more: &[&str]) -> Running {
        let words = ["stream", "receive", "--interface", "tgs", "--listen", RECEIVER, "--json"];
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.far]).args(by).arg(BINARY).args(words).args(more);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut receiver = Running::of(command.spawn().expect("it starts"), "stream receive");
        receiver.read_until("receiving from tgs");
        receiver
    }

    fn stream(&self, more: &[&str]) -> Output {
        let words =
            ["stream", "run", "--client-interface", "tgc", "--receiver", RECEIVER, "--json"];
        self.bench.nilometer(&[&words[..], more].concat()).output().expect("it runs")
    }

    fn far_interface(&self) -> String {
        let words = ["-n", &self.far, "-o", "link", "show", "tgs"];
        text(&Command::new("ip").args(words).output().expect("ip runs").stdout).to_owned()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.far]).status();
    }
}

fn result(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("no JSON: {}", text(&output.stderr)))
}

/// Both clocks are this machine's, so that the true offset is zero.
#[test]
fn every_frame_between_two_hosts_is_accounted_for() {
    for is_bridge in [false, true] {
        let Some(hosts) = Hosts::new("a stream between two hosts", is_bridge) else { return };
        let before = hosts.far_interface();
        let config = "[external]\nclient_interface = \"tgc\"\ntransparent = true\n";
        hosts.bench.room.write("STREAM.toml", if is_bridge { config } else { "" });
        let receiver = hosts.receiver(&["--once"]);
        let output =
            hosts.stream(&["--pps", "5000", "--seconds", "2", "--flows", "20", "STREAM.toml"]);
        let result = result(&output);
        let packets = &result["packets"];
        let [entered, left, lost] =
            ["in", "out", "lost"].map(|key| packets[key].as_u64().expect("a count"));
        assert!(entered == 10_000 && left == 10_000 && lost == 0, "{packets}");
        let clock = &result["clock"];
        let offset = clock["offset_ns"].as_i64().expect("an offset");
        let uncertainty = clock["uncertainty_ns"].as_u64().expect("an uncertainty");
        assert!(offset.unsigned_abs() <= uncertainty, "{clock}: the true offset is 0");
        assert!(uncertainty < 1_000_000, "{clock}: a link without delay");
        let delay = result["delay_ns"]["p50"].as_u64().expect("a delay");
        assert!(delay < 5_000_000 + uncertainty, "{}", result["delay_ns"]);
        assert_eq!(result["receiver"], RECEIVER);
        assert_eq!(result["stamps"]["pair"][1], "first instruction of native XDP");
        let line: Value = serde_json::from_slice(&receiver.end().stdout).expect("a line of JSON");
        assert_eq!((&line["received"], &line["lost"]), (&10_000.into(), &0.into()));
        assert_eq!(hosts.far_interface(), before, "the interface is back");
    }
}

#[test]
fn a_sender_or_a_receiver_that_is_killed_leaves_the_other_well() {
    let Some(hosts) = Hosts::new("two hosts of which one is killed", false) else { return };
    let before = hosts.far_interface();
    let receiver = hosts.receiver(&[]);
    let words = ["stream", "run", "--client-interface", "tgc", "--receiver", RECEIVER, "--seconds"];
    let start = || {
        let mut command = hosts.bench.nilometer(&[&words[..], &["30", "--json"]].concat());
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        Running::of(command.spawn().expect("it starts"), "stream run")
    };
    let is_lent = || !hosts.far_interface().contains("tgs");
    let sender = start();
    patience("the receiver takes its interface", is_lent);
    // Another sender, by an interface of its own.
    hosts.bench.in_host(&["link", "add", "x0", "type", "veth", "peer", "name", "x1"]);
    let words = ["stream", "run", "--client-interface", "x0", "--receiver", RECEIVER];
    let busy = hosts.bench.nilometer(&words).output().expect("it runs");
    let said = text(&busy.stderr);
    assert!(busy.status.code() == Some(2) && said.contains("another trial is being"), "{said}");
    drop(sender);
    patience("the receiver gives its interface back", || hosts.far_interface() == before);
    patience("the next trial", || hosts.stream(&["--seconds", "1"]).status.success());

    let sender = start();
    patience("the receiver takes its interface", is_lent);
    drop(receiver);
    let output = sender.end();
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("the receiver"), "{said}");
    assert!(!said.trim_end().contains('\n'), "one line: {said}");
    patience("its guardian gives it back", || hosts.far_interface() == before);
    let output = hosts.stream(&["--seconds", "1"]);
    let said = text(&output.stderr);
    assert!(
        output.status.code() == Some(2) && said.contains("no stream receiver is there"),
        "{said}"
    );
}

/// The receiver's clock is an hour ahead. (Packet sockets stamp by a clock that is shifted with it.)
#[test]
fn a_receiver_with_another_clock_measures_the_same_delays() {
    let Some(hosts) = Hosts::new("two hosts with two clocks", false) else { return };
    let shifted = ["unshare", "--time", "--monotonic", "3600", "--fork", "--kill-child"];
    if !Command::new(shifted[0])
        .args(&shifted[1..])
        .arg("true")
        .status()
        .is_ok_and(|it| it.success())
    {
        println!("skipped: two hosts with two clocks: no time namespaces here");
        return;
    }
    let receiver = hosts.receiver_by(&shifted, &["--once"]);
    let result = result(&hosts.stream(&["--pps", "2000", "--seconds", "2", "--stamps", "socket"]));
    let clock = &result["clock"];
    let offset = clock["offset_ns"].as_i64().expect("an offset");
    let uncertainty = clock["uncertainty_ns"].as_u64().expect("an uncertainty");
    let error = offset.abs_diff(3_600_000_000_000);
    assert!(error <= uncertainty && uncertainty < 1_000_000, "{clock}");
    let p50 = result["delay_ns"]["p50"].as_u64().expect("a delay");
    assert!(p50 < 2_000_000 + uncertainty, "{}", result["delay_ns"]);
    assert_eq!(result["packets"]["lost"], 0, "{}", result["packets"]);
    receiver.end();
}

/// The receiver is stopped while the last frames arrive, and sends them on later than they are waited for: the trial is
/// invalid, and they do not count as the device's loss.
#[test]
fn frames_that_the_receiver_sends_on_late_invalidate_the_trial() {
    let Some(hosts) = Hosts::new("a receiver that is late", false) else { return };
    let mut receiver = hosts.receiver(&[]);
    let words = ["stream", "run", "--client-interface", "tgc", "--receiver", RECEIVER, "--json"];
    let mut command = hosts.bench.nilometer(&words);
    command.args(["--pps", "2000", "--seconds", "2", "--wait", "0.5"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let sender = Running::of(command.spawn().expect("it starts"), "stream run");
    patience("the receiver takes its interface", || !hosts.far_interface().contains("tgs"));
    std::thread::sleep(Duration::from_millis(1_500));
    receiver.signal(libc::SIGSTOP);
    std::thread::sleep(Duration::from_millis(2_500));
    receiver.signal(libc::SIGCONT);
    let result = result(&sender.end());
    assert_eq!(result["valid"], false, "{result}");
    let why = result["why"].to_string();
    assert!(why.contains("late arrivals") || why.contains("receiver loss"), "{why}");
    drop(receiver);
}

#[test]
fn what_is_no_receiver_is_refused() {
    let Some(hosts) = Hosts::new("a receiver that is none", false) else { return };
    // Another protocol, and another version of the program.
    for greeting in
        ["SSH-2.0-OpenSSH_9.2\r\n", "{\"protocol\":\"nilometer-receive/1\",\"version\":\"0\"}\n"]
    {
        let words = [
            "netns",
            "exec",
            &hosts.far,
            "python3",
            "-c",
            "import socket, sys\n\
            s = socket.create_server(('198.19.254.2', 4950)); print('ready', flush=True)\n\
            c = s.accept()[0]; c.sendall(sys.argv[1].encode()); c.recv(1)",
            greeting,
        ];
        let other = Command::new("ip").args(words).stdout(Stdio::piped()).spawn();
        let mut other = other.expect("ip runs");
        let mut line = String::new();
        let output = other.stdout.take().expect("its output");
        let _other = Running::of(other, "another program");
        let _ = BufReader::new(output).read_line(&mut line);
        if line.trim() != "ready" {
            println!("skipped: another program in the receiver's place: needs python3");
            return;
        }
        let output = hosts.stream(&["--seconds", "1"]);
        let said = text(&output.stderr);
        let why = if greeting.starts_with("SSH") {
            "is a stream receiver there?"
        } else {
            "use the same on both hosts"
        };
        assert!(output.status.code() == Some(2) && said.contains(why), "{said}");
        assert!(!said.trim_end().contains('\n'), "one line: {said}");
    }
    for (words, why) in [
        (&["--both"][..], "a receiver on another host does not send"),
        (&["--server-interface", "tgs"], "--server-interface"),
        (&["--dut", "linux"], "receiver: is behind the device `external`"),
        (&["--stamps", "none"], "a receiver on another host stamps all frames"),
    ] {
        let output = hosts.stream(words);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(why), "{words:?}: {said}");
        assert!(!said.trim_end().contains('\n'), "one line: {said}");
    }
    let words = ["stream", "run", "--client-interface", "tgc", "--receiver", "nowhere"];
    let output = hosts.bench.nilometer(&words).output().expect("it runs");
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("write it as HOST:PORT"), "{said}");
}
