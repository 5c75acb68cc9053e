//! A stream between two hosts: the sender in one namespace, the receiver in another, the device between them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

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
            ["dc", "ds"].iter().for_each(|port| bench.in_device(&["link", "set", port, "master", "b0"]));
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
    fn receiver(&self, more: &[&str]) -> Child {
        let words = ["stream", "receive", "--interface", "tgs", "--listen", RECEIVER, "--json"];
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.far, BINARY]).args(words).args(more);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut receiver = command.spawn().expect("it starts");
        let mut line = String::new();
        let said = receiver.stderr.as_mut().expect("its messages");
        BufReader::new(said).read_line(&mut line).expect("a line");
        assert!(line.contains("receiving from tgs"), "{line}");
        receiver
    }

    fn stream(&self, more: &[&str]) -> Output {
        let words = ["stream", "run", "--client-interface", "tgc", "--receiver", RECEIVER, "--json"];
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
        let told = receiver.wait_with_output().expect("it ends after one trial");
        let told: Value = serde_json::from_slice(&told.stdout).expect("a line of JSON");
        assert_eq!((&told["received"], &told["lost"]), (&10_000.into(), &0.into()));
        assert_eq!(hosts.far_interface(), before, "the interface is back");
    }
}

#[test]
fn a_sender_or_a_receiver_that_is_killed_leaves_the_other_well() {
    let Some(hosts) = Hosts::new("two hosts of which one is killed", false) else { return };
    let before = hosts.far_interface();
    let mut receiver = hosts.receiver(&[]);
    let words = ["stream", "run", "--client-interface", "tgc", "--receiver", RECEIVER, "--seconds"];
    let start = || {
        let mut command = hosts.bench.nilometer(&[&words[..], &["30", "--json"]].concat());
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    let is_lent = || !hosts.far_interface().contains("tgs");
    let until = |is_so: &dyn Fn() -> bool| {
        (0..200).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            is_so()
        })
    };
    let mut sender = start();
    assert!(until(&is_lent), "the receiver takes its interface");
    let busy = hosts.stream(&["--seconds", "1"]);
    let said = text(&busy.stderr);
    assert!(busy.status.code() == Some(2) && said.contains("cannot be lent"), "{said}");
    sender.kill().expect("a sender");
    sender.wait().expect("a sender");
    assert!(until(&|| !is_lent()), "the receiver gives its interface back");
    assert_eq!(hosts.far_interface(), before);
    assert!(until(&|| hosts.stream(&["--seconds", "1"]).status.success()), "and takes the next");

    let sender = start();
    assert!(until(&is_lent), "the receiver takes its interface");
    receiver.kill().expect("a receiver");
    receiver.wait().expect("a receiver");
    let output = sender.wait_with_output().expect("a sender");
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("the receiver"), "{said}");
    assert!(!said.trim_end().contains('\n'), "one line: {said}");
    assert!(until(&|| hosts.far_interface() == before), "its guardian gives it back");
    let output = hosts.stream(&["--seconds", "1"]);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("no stream receiver at"), "{said}");
}

/// What is no receiver, and a receiver of another version, are refused in one line.
#[test]
fn what_is_no_receiver_is_refused() {
    let Some(hosts) = Hosts::new("a receiver that is none", false) else { return };
    for (words, why) in [
        (&["--both"][..], "a receiver on another host does not send"),
        (&["--server-interface", "tgs"], "--server-interface"),
        (&["--dut", "linux"], "receiver: is behind the device `external`"),
        (&["--receiver", "nowhere"], "write it as HOST:PORT"),
    ] {
        let output = hosts.stream(words);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(why), "{words:?}: {said}");
        assert!(!said.trim_end().contains('\n'), "one line: {said}");
    }
}
