//! A device that the lab did not make: a namespace set up by plain `ip` commands, between two veths of another one.

use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nilometer_linux::privilege::{Privilege, privilege};
use serde_json::Value;

use crate::common::{BINARY, Room, text};

const CLIENT: &str = "tgc";
const SERVER: &str = "tgs";
const INTERFACES: [&str; 4] = ["--client-interface", CLIENT, "--server-interface", SERVER];

/// A host's namespace with two interfaces, and a device's behind them; both go when the value does.
struct Bench {
    room: Room,
    host: String,
    device: String,
}

impl Bench {
    /// None, and a line that says so, where that cannot be built.
    fn new(what: &str) -> Option<Bench> {
        let has_ip = Command::new("ip").arg("-V").output().is_ok_and(|out| out.status.success());
        if !has_ip || privilege() != Privilege::Root {
            println!("skipped: {what}: needs root and iproute2");
            return None;
        }
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = |part: &str| format!("nilo-{part}-{}-{number}", std::process::id());
        let bench =
            Bench { room: Room::new("external"), host: name("host"), device: name("device") };
        for namespace in [&bench.host, &bench.device] {
            ip(&["netns", "add", namespace]);
            ip(&["-n", namespace, "link", "set", "lo", "up"]);
        }
        for (near, far) in [(CLIENT, "dc"), (SERVER, "ds")] {
            let words =
                ["link", "add", near, "type", "veth", "peer", "name", far, "netns", &bench.device];
            bench.in_host(&words);
            bench.in_host(&["link", "set", near, "up"]);
            bench.in_device(&["link", "set", far, "up"]);
        }
        Some(bench)
    }

    fn in_host(&self, words: &[&str]) {
        ip(&[&["-n", &self.host][..], words].concat());
    }

    fn in_device(&self, words: &[&str]) {
        ip(&[&["-n", &self.device][..], words].concat());
    }

    fn nilometer(&self, words: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.host, BINARY]).args(words);
        command.current_dir(self.room.path(""));
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.nilometer(words).output().expect("it runs")
    }

    fn wiring(&self, interfaces: &[&str]) -> Value {
        let output = self.run(&[&["lab", "wiring", "--json"][..], interfaces].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Sets the device up as `lab wiring` says, word for word.
    fn set_up(&self) {
        self.set_up_for(&INTERFACES);
    }

    fn set_up_for(&self, interfaces: &[&str]) {
        let wiring = self.wiring(interfaces);
        for (side, port) in [("client", "dc"), ("server", "ds")] {
            let port = if interfaces[1] == interfaces[3] { "dc" } else { port };
            for address in wiring[side]["device_addresses"].as_array().expect("addresses") {
                let address = address.as_str().expect("an address");
                self.in_device(&["address", "add", address, "dev", port, "nodad"]);
            }
        }
        for key in ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"] {
            let set = ["netns", "exec", &self.device, "sysctl", "-qw", key];
            ip(&set);
        }
        for route in wiring["routes"].as_array().expect("routes") {
            let [prefix, via] = ["prefix", "via"].map(|key| route[key].as_str().expect("a text"));
            self.in_device(&["route", "add", prefix, "via", via]);
        }
    }

    /// What `lab wiring --check` finds.
    fn problems(&self, interfaces: &[&str]) -> Vec<String> {
        let output = self.run(&[&["lab", "wiring", "--check", "--json"][..], interfaces].concat());
        let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| {
            panic!("no JSON: {}", text(&output.stderr));
        });
        assert_eq!(told["check"]["not_restored"], Value::Array(Vec::new()));
        let problems = told["check"]["problems"].as_array().expect("a list");
        let is_fine = problems.is_empty();
        assert_eq!(told["check"]["ok"], is_fine);
        assert_eq!(output.status.code(), Some(i32::from(!is_fine)));
        let lines = problems.iter().map(|line| line.as_str().expect("a line").to_owned());
        let lines: Vec<String> = lines.collect();
        assert!(lines.iter().all(|line| !line.contains('\n')), "{lines:?}");
        lines
    }

    /// What the host's owner can see of an interface.
    fn state(&self) -> String {
        let mut all = String::new();
        for words in [
            &["-o", "address", "show"][..],
            &["route", "show"],
            &["-6", "route", "show", "table", "main"],
            &["-o", "link", "show"],
            &["neigh", "show", "nud", "permanent"],
        ] {
            let output = Command::new("ip").args(["-n", &self.host]).args(words).output();
            all += text(&output.expect("ip runs").stdout);
        }
        let conf = format!("net.ipv4.conf.{CLIENT}.rp_filter");
        let words = ["netns", "exec", &self.host, "sysctl", "-n", &conf];
        all += text(&Command::new("ip").args(words).output().expect("sysctl runs").stdout);
        // Which address of IPv6 is still searched for elsewhere is a matter of a second; so is the kernel's own order.
        let all = all.replace(" tentative", "");
        let mut lines: Vec<&str> = all.lines().collect();
        lines.sort_unstable();
        lines.join("\n")
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for namespace in [&self.host, &self.device] {
            let _ = Command::new("ip").args(["netns", "del", namespace]).status();
        }
    }
}

fn ip(words: &[&str]) {
    let output = Command::new("ip").args(words).output().expect("ip runs");
    assert!(output.status.success(), "ip {}: {}", words.join(" "), text(&output.stderr));
}

/// What an owner may have set, and a move to another namespace takes away.
fn furnish(bench: &Bench) {
    bench.in_host(&["address", "add", "10.9.8.7/24", "dev", CLIENT]);
    bench.in_host(&["address", "add", "fd77::7/64", "dev", CLIENT, "nodad"]);
    bench.in_host(&["route", "add", "10.55.0.0/16", "via", "10.9.8.1"]);
    bench.in_host(&["route", "add", "10.56.0.0/16", "dev", CLIENT, "table", "77"]);
    bench.in_host(&["neigh", "add", "10.9.8.1", "lladdr", "02:00:00:00:00:09", "dev", CLIENT]);
    bench.in_host(&["link", "set", CLIENT, "mtu", "1600"]);
    ip(&[
        "netns",
        "exec",
        &bench.host,
        "sysctl",
        "-qw",
        &format!("net.ipv4.conf.{CLIENT}.rp_filter=1"),
    ]);
}

#[test]
fn a_device_that_others_made_is_played_through_and_its_interfaces_come_back() {
    let Some(bench) = Bench::new("a device between two interfaces") else { return };
    bench.set_up();
    furnish(&bench);
    let before = bench.state();
    assert_eq!(bench.problems(&INTERFACES), Vec::<String>::new());
    assert_eq!(bench.state(), before);

    let words =
        ["lab", "run", "--duration", "3", "--calibration", "1", "--json", "--dut", "external"];
    let output = bench.run(&[&words[..], &INTERFACES].concat());
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let result: Value = serde_json::from_slice(&output.stdout).expect("a result");
    assert_eq!(result["dut"], "external");
    let [entered, lost] = ["in", "lost"].map(|key| &result["packets"][key]);
    assert!(entered.as_u64().is_some_and(|entered| entered > 100), "{}", result["packets"]);
    assert_eq!(lost, 0, "{}", result["packets"]);
    let warnings = result["warnings"].to_string();
    assert!(!warnings.contains("borrowed") && !warnings.contains("disagree"), "{warnings}");
    assert_eq!(bench.state(), before);
}

#[test]
fn streams_go_through_a_device_that_others_made() {
    let Some(bench) = Bench::new("a stream between two interfaces") else { return };
    bench.set_up();
    let before = bench.state();
    let words =
        ["stream", "run", "--pps", "2000", "--seconds", "1", "--flows", "20", "--both", "--json"];
    let output = bench.run(&[&words[..], &INTERFACES].concat());
    let result: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("no JSON: {}", text(&output.stderr)));
    assert_eq!(result["dut"], "external");
    let [entered, lost] =
        ["in", "lost"].map(|key| result["packets"][key].as_u64().expect("a count"));
    assert!(entered == 4_000 && lost == 0, "{}", result["packets"]);
    assert_eq!(bench.state(), before);
    bench.in_device(&["route", "del", "198.19.0.0/17"]);
    let output = bench.run(&[&words[..], &INTERFACES].concat());
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("no route to 198.19.0.1"), "{said}");
}

#[test]
fn a_device_with_one_arm_is_played_through() {
    let Some(bench) = Bench::new("a device with one arm") else { return };
    let one_arm = ["--client-interface", CLIENT, "--server-interface", CLIENT];
    bench.set_up_for(&one_arm);
    let before = bench.state();
    assert_eq!(bench.problems(&one_arm), Vec::<String>::new());
    let words = ["lab", "run", "--duration", "3", "--calibration", "0", "--json"];
    let output = bench.run(&[&words[..], &one_arm].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let result: Value = serde_json::from_slice(&output.stdout).expect("a result");
    let [entered, lost] =
        ["in", "lost"].map(|key| result["packets"][key].as_u64().expect("a count"));
    assert!(entered > 100 && lost == 0, "{}", result["packets"]);
    // The device saw all of them, twice: they did not take a shorter way.
    let words = ["-n", &bench.device, "-s", "-j", "link", "show", "dc"];
    let counted = Command::new("ip").args(words).output().expect("ip runs");
    let counted: Value = serde_json::from_slice(&counted.stdout).expect("JSON");
    let received = counted[0]["stats64"]["rx"]["packets"].as_u64().expect("a count");
    assert!(received >= entered, "{received} of {entered}");
    assert_eq!(bench.state(), before);
}

#[test]
fn interfaces_come_back_when_the_lab_is_killed() {
    let Some(bench) = Bench::new("interfaces of a lab that is killed") else { return };
    bench.set_up();
    furnish(&bench);
    let before = bench.state();
    let words = ["lab", "run", "--duration", "30", "--calibration", "0"];
    let mut lab = bench.nilometer(&[&words[..], &INTERFACES].concat());
    // (A process group of its own, all of which is killed.)
    std::os::unix::process::CommandExt::process_group(&mut lab, 0);
    let mut lab = lab.stderr(std::process::Stdio::null()).spawn().expect("it starts");
    let patience = |what: &str, condition: &dyn Fn() -> bool| {
        let is_so = (0..600).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            condition()
        });
        assert!(is_so, "{what}");
    };
    patience("the interfaces are borrowed", &|| !bench.state().contains(SERVER));
    // SAFETY: kill takes integers; the group is that of a child of ours that was not waited for.
    assert_eq!(unsafe { libc::kill(-(lab.id() as i32), libc::SIGKILL) }, 0);
    lab.wait().expect("a killed child");
    patience("the interfaces are back", &|| bench.state() == before);
    assert_eq!(bench.problems(&INTERFACES), Vec::<String>::new(), "and carry traffic");
}

#[test]
fn what_is_wrong_with_a_device_is_named_in_a_line() {
    let Some(bench) = Bench::new("devices that are wired wrongly") else { return };
    let nobody = bench.problems(&INTERFACES);
    assert!(nobody[0].contains("answers ARP for 198.19.255.2"), "{nobody:?}");
    bench.set_up();

    const ROUTE: &str = "198.19.0.0/17";
    let route = |words: &[&str]| bench.in_device(&[&["route"][..], words].concat());
    let expect = |what: &str, words: &str| {
        let problems = bench.problems(&INTERFACES);
        let is_named = problems.len() == 1 && problems[0].contains(words);
        assert!(is_named, "{what}: {problems:?}");
    };
    route(&["del", ROUTE]);
    expect("no route", "no route to 198.19.0.1: give it 198.19.0.0/17 via 198.19.255.6");
    route(&["add", ROUTE, "via", "198.19.255.1"]);
    expect("the wrong way", "sends packets for 198.19.0.1 back to the clients (tgc)");
    route(&["del", ROUTE]);
    // Another router behind the device sends them back to it.
    let beyond = format!("{}-loop", bench.device);
    ip(&["netns", "add", &beyond]);
    bench.in_device(&["link", "add", "l0", "type", "veth", "peer", "name", "l1", "netns", &beyond]);
    bench.in_device(&["address", "add", "10.1.1.1/30", "dev", "l0"]);
    bench.in_device(&["link", "set", "l0", "up"]);
    for words in [
        &["address", "add", "10.1.1.2/30", "dev", "l1"][..],
        &["link", "set", "l1", "up"],
        &["route", "add", "default", "via", "10.1.1.1"],
    ] {
        ip(&[&["-n", &beyond][..], words].concat());
    }
    ip(&["netns", "exec", &beyond, "sysctl", "-qw", "net.ipv4.ip_forward=1"]);
    route(&["add", ROUTE, "via", "10.1.1.2"]);
    let looped = bench.problems(&INTERFACES);
    route(&["del", ROUTE]);
    ip(&["netns", "del", &beyond]);
    assert!(looped.len() == 1 && looped[0].contains("go round in a loop"), "{looped:?}");
    route(&["replace", ROUTE, "via", "198.19.255.6"]);
    assert_eq!(bench.problems(&INTERFACES), Vec::<String>::new());

    bench.in_device(&["link", "set", "ds", "mtu", "1300"]);
    let small = bench.problems(&INTERFACES);
    let is_named = |line: &String| line.contains("bytes are lost, and the links carry 1500");
    assert!(!small.is_empty() && small.iter().all(is_named), "{small:?}");
    assert!(
        small.iter().any(|line| line.contains("clients to servers of more than 1300")),
        "{small:?}"
    );
    bench.in_device(&["link", "set", "ds", "mtu", "1500"]);
    let exchanged = ["--client-interface", SERVER, "--server-interface", CLIENT];
    let problems = bench.problems(&exchanged);
    assert!(problems.iter().all(|line| line.contains("wrong way round")), "{problems:?}");
    bench.in_device(&["link", "set", "ds", "down"]);
    expect("a dead link", "the link of tgs did not come up");
}

#[test]
fn what_cannot_be_lent_is_refused_in_a_line() {
    let Some(bench) = Bench::new("interfaces that cannot be lent") else { return };
    let refused = |interfaces: [&str; 2], words: &str| {
        let options = ["--client-interface", interfaces[0], "--server-interface", interfaces[1]];
        for command in [&["lab", "wiring"][..], &["lab", "run", "--duration", "1"]] {
            let output = bench.run(&[command, &options].concat());
            let said = text(&output.stderr);
            let is_refused = output.status.code() == Some(2) && said.lines().count() == 1;
            assert!(is_refused && said.contains(words), "{command:?}: {said}");
        }
    };
    refused(["lo", SERVER], "lo is a loopback");
    refused(["eth77", SERVER], "there is no interface eth77 here; there are");
    bench.in_host(&["address", "add", "10.9.8.7/24", "dev", CLIENT]);
    bench.in_host(&["route", "add", "default", "via", "10.9.8.1"]);
    refused([CLIENT, SERVER], "default route");
    bench.in_host(&["route", "del", "default"]);
    bench.in_host(&["link", "add", "b0", "type", "bridge"]);
    bench.in_host(&["link", "set", SERVER, "master", "b0"]);
    refused([CLIENT, SERVER], "belongs to a bridge");
    let output = bench.run(&["lab", "run", "--dut", "external"]);
    assert!(text(&output.stderr).contains("give --client-interface and --server-interface"));
    assert_eq!(output.status.code(), Some(2));
}
