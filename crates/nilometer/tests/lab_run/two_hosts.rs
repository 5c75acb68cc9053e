//! A stream between two hosts: the sender in one namespace, the receiver in another, the device between them.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::external::{Bench, ip};
use crate::common::{BINARY, text};

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
    fn receiver(&self, more: &[&str]) -> Program {
        self.receiver_by(&[], more)
    }

    /// The same, started by a command.
    fn receiver_by(&self, by: &[&str], more: &[&str]) -> Program {
        let words = ["stream", "receive", "--interface", "tgs", "--listen", RECEIVER, "--json"];
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.far]).args(by).arg(BINARY).args(words).args(more);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut receiver = Program(command.spawn().expect("it starts"));
        let mut line = String::new();
        let said = receiver.0.stderr.as_mut().expect("its messages");
        BufReader::new(said).read_line(&mut line).expect("a line");
        assert!(line.contains("receiving from tgs"), "{line}");
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

/// A program that ends with the test, however that ends.
struct Program(Child);

impl Program {
    /// Waits for its end.
    fn output(mut self) -> Output {
        let take = |child: &mut Child| (child.stdout.take(), child.stderr.take());
        let (stdout, stderr) = take(&mut self.0);
        let (mut said, mut errors) = (Vec::new(), Vec::new());
        stdout.map(|mut from| from.read_to_end(&mut said));
        stderr.map(|mut from| from.read_to_end(&mut errors));
        let status = self.0.wait().expect("it ends");
        Output { status, stdout: said, stderr: errors }
    }

    fn kill(mut self) {
        self.0.kill().expect("ours");
        self.0.wait().expect("ours");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until(is_so: &dyn Fn() -> bool) -> bool {
    (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        is_so()
    })
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
        let told = receiver.output();
        let told: Value = serde_json::from_slice(&told.stdout).expect("a line of JSON");
        assert_eq!((&told["received"], &told["lost"]), (&10_000.into(), &0.into()));
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
        Program(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts"))
    };
    let is_lent = || !hosts.far_interface().contains("tgs");
    let sender = start();
    assert!(until(&is_lent), "the receiver takes its interface");
    // Another sender, by an interface of its own.
    hosts.bench.in_host(&["link", "add", "x0", "type", "veth", "peer", "name", "x1"]);
    let words = ["stream", "run", "--client-interface", "x0", "--receiver", RECEIVER];
    let busy = hosts.bench.nilometer(&words).output().expect("it runs");
    let said = text(&busy.stderr);
    assert!(busy.status.code() == Some(2) && said.contains("another trial is being"), "{said}");
    sender.kill();
    assert!(until(&|| !is_lent()), "the receiver gives its interface back");
    assert_eq!(hosts.far_interface(), before);
    assert!(until(&|| hosts.stream(&["--seconds", "1"]).status.success()), "and takes the next");

    let sender = start();
    assert!(until(&is_lent), "the receiver takes its interface");
    receiver.kill();
    let output = sender.output();
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("the receiver"), "{said}");
    assert!(!said.trim_end().contains('\n'), "one line: {said}");
    assert!(until(&|| hosts.far_interface() == before), "its guardian gives it back");
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
    let [p5, p50] = ["p5", "p50"].map(|key| result["delay_ns"][key].as_u64().expect("a delay"));
    assert!(p5 < p50 + 1 && p50 < 2_000_000 + uncertainty, "{}", result["delay_ns"]);
    assert_eq!(result["packets"]["lost"], 0, "{}", result["packets"]);
    receiver.output();
}

/// The receiver is stopped while the last frames arrive: they were received in time, and are not the device's loss.
#[test]
fn frames_that_the_receiver_still_has_are_not_lost() {
    let Some(hosts) = Hosts::new("a receiver that is late", false) else { return };
    let receiver = hosts.receiver(&[]);
    let words = ["stream", "run", "--client-interface", "tgc", "--receiver", RECEIVER, "--json"];
    let mut command = hosts.bench.nilometer(&words);
    command.args(["--pps", "2000", "--seconds", "2", "--wait", "0.5"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let sender = Program(command.spawn().expect("it starts"));
    let far_is_lent = || !hosts.far_interface().contains("tgs");
    assert!(until(&far_is_lent), "the receiver takes its interface");
    std::thread::sleep(Duration::from_millis(1_500));
    let signal = |signal| {
        // SAFETY: kill takes integers; the processes are children of ours that were not waited for.
        assert_eq!(unsafe { libc::kill(receiver_process(&receiver), signal) }, 0);
    };
    signal(libc::SIGSTOP);
    std::thread::sleep(Duration::from_millis(2_500));
    signal(libc::SIGCONT);
    let result = result(&sender.output());
    assert_eq!(result["valid"], false, "{result}");
    let why = result["why"].to_string();
    assert!(why.contains("late arrivals") || why.contains("receiver loss"), "{why}");
    receiver.kill();
}

/// `ip netns exec` becomes the program.
fn receiver_process(receiver: &Program) -> i32 {
    receiver.0.id() as i32
}

#[test]
fn what_is_no_receiver_is_refused() {
    let Some(hosts) = Hosts::new("a receiver that is none", false) else { return };
    // A program that says something else, and one that says nothing.
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
        let mut other = Program(other.expect("ip runs"));
        let mut line = String::new();
        let _ = BufReader::new(other.0.stdout.as_mut().expect("its output")).read_line(&mut line);
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
