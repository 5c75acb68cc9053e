//! A device that the lab did not make: a namespace set up by plain `ip` commands, between two veths of another one.

use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nilometer_linux::privilege::{Privilege, privilege};
use serde_json::Value;

use crate::common::{BINARY, Room, at_once, text};

const CLIENT: &str = "tgc";
const SERVER: &str = "tgs";
pub(super) const INTERFACES: [&str; 4] =
    ["--client-interface", CLIENT, "--server-interface", SERVER];

/// A host's namespace with two interfaces, and a device's behind them; both go when the value does.
pub(super) struct Bench {
    pub(super) room: Room,
    pub(super) host: String,
    pub(super) device: String,
}

impl Bench {
    /// The bench; none, and a line that says so, where it cannot be built.
    pub(super) fn new(what: &str) -> Option<Bench> {
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

    pub(super) fn in_host(&self, words: &[&str]) {
        ip(&[&["-n", &self.host][..], words].concat());
    }

    pub(super) fn in_device(&self, words: &[&str]) {
        ip(&[&["-n", &self.device][..], words].concat());
    }

    pub(super) fn nilometer(&self, words: &[&str]) -> Command {
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

    /// Sets the device up by the output of `lab wiring`, word for word.
    pub(super) fn set_up(&self) {
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
        let reported: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| {
            panic!("no JSON: {}", text(&output.stderr));
        });
        assert_eq!(reported["check"]["not_restored"], Value::Array(Vec::new()));
        let problems = reported["check"]["problems"].as_array().expect("a list");
        let is_fine = problems.is_empty();
        assert_eq!(reported["check"]["ok"], is_fine);
        assert_eq!(output.status.code(), Some(i32::from(!is_fine)));
        let lines = problems.iter().map(|line| line.as_str().expect("a line").to_owned());
        let lines: Vec<String> = lines.collect();
        assert!(lines.iter().all(|line| !line.contains('\n')), "{lines:?}");
        lines
    }

    /// The state of an interface that the host's owner can see.
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
        // In the kernel's own order, by which it chooses among them.
        let words =
            ["-n", &self.host, "-6", "-o", "address", "show", "dev", CLIENT, "scope", "global"];
        let listed = Command::new("ip").args(words).output().expect("ip runs").stdout;
        all += &format!("in order: {}\n", text(&listed).replace('\n', " "));
        let [conf, neigh] = [
            format!("net.ipv4.conf.{CLIENT}.rp_filter"),
            format!("net.ipv4.neigh.{CLIENT}.base_reachable_time_ms"),
        ];
        let words = ["netns", "exec", &self.host, "sysctl", "-n", &conf, &neigh];
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

pub(super) fn ip(words: &[&str]) {
    let output = Command::new("ip").args(words).output().expect("ip runs");
    assert!(output.status.success(), "ip {}: {}", words.join(" "), text(&output.stderr));
}

/// Settings that an owner may have made, and that a move to another namespace removes.
fn furnish(bench: &Bench) {
    for address in ["10.9.8.7/24", "10.9.8.8/24", "fe80::1/64", "fd77::7/64", "fd77::8/64"] {
        let nodad = if address.contains(':') { &["nodad"][..] } else { &[] };
        bench.in_host(&[&["address", "add", address, "dev", CLIENT], nodad].concat());
    }
    // A route to one prefix by both interfaces; `b0` stays.
    bench.in_host(&["link", "add", "b0", "type", "bridge"]);
    bench.in_host(&["link", "set", "b0", "up"]);
    bench.in_host(&["route", "add", "10.55.0.0/16", "via", "10.9.8.1"]);
    bench.in_host(&["route", "append", "10.55.0.0/16", "dev", "b0"]);
    bench.in_host(&["route", "add", "local", "10.57.0.0/16", "dev", CLIENT]);
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
    let err = text(&output.stderr);
    assert!(output.status.success(), "{err}");
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
    let err = text(&output.stderr);
    assert!(output.status.code() == Some(2) && err.contains("no route to 198.19.0.1"), "{err}");
}

/// The numbers of the processes that hold interfaces for a lab of this namespace.
fn guardians(bench: &Bench) -> Vec<i32> {
    let listed = Command::new("ip").args(["netns", "pids", &bench.host]).output().expect("ip runs");
    let pids = text(&listed.stdout).lines().filter_map(|line| line.trim().parse().ok());
    let is_guardian = |pid: &i32| {
        let words = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.contains("hold-interfaces")
    };
    pids.filter(is_guardian).collect()
}

pub(super) fn patience(what: &str, mut condition: impl FnMut() -> bool) {
    let is_so = (0..600).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        condition()
    });
    assert!(is_so, "{what}");
}

#[test]
fn interfaces_come_back_when_their_guardian_is_killed() {
    let Some(bench) = Bench::new("guardians that are killed") else { return };
    bench.set_up();
    furnish(&bench);
    let before = bench.state();
    // A name that the interface cannot have out there.
    bench.in_host(&["link", "property", "add", "dev", CLIENT, "altname", "c0"]);
    let output = bench.run(&[&["lab", "wiring", "--check"][..], &INTERFACES].concat());
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    bench.in_host(&["link", "property", "del", "dev", CLIENT, "altname", "c0"]);
    assert_eq!(bench.state(), before);

    let words = ["lab", "run", "--duration", "4", "--calibration", "0"];
    for signal in [libc::SIGUSR1, libc::SIGKILL] {
        let words = [&words[..], &["--force"], &INTERFACES].concat();
        let lab = bench.nilometer(&words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let lab = lab.expect("it starts");
        let mut held = Vec::new();
        patience("a guardian", || {
            held = guardians(&bench);
            !held.is_empty() && !bench.state().contains(SERVER)
        });
        // SAFETY: kill takes integers; the process is a guardian of the lab that we have started.
        assert_eq!(unsafe { libc::kill(held[0], signal) }, 0);
        let output = lab.wait_with_output().expect("a lab");
        let err = text(&output.stderr);
        assert_eq!(err.contains("gave them back in its place"), signal == libc::SIGKILL, "{err}");
        assert_eq!(bench.state(), before, "after signal {signal}");
    }
    // Its name is taken while it is away.
    let words = [&words[..], &["--force"], &INTERFACES].concat();
    let lab = bench
        .nilometer(&words)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    patience("the interfaces are borrowed", || !bench.state().contains(SERVER));
    bench.in_host(&["link", "add", SERVER, "type", "bridge"]);
    let output = lab.wait_with_output().expect("a lab");
    let err = text(&output.stderr);
    assert!(err.contains("tgs is called lent0 now"), "{err}");
    bench.in_host(&["link", "del", SERVER]);
    bench.in_host(&["link", "set", "lent0", "down"]);
    bench.in_host(&["link", "set", "lent0", "name", SERVER]);
    bench.in_host(&["link", "set", SERVER, "up"]);
    assert_eq!(bench.problems(&INTERFACES), Vec::<String>::new(), "and carry traffic");
}

#[test]
fn lab_wiring_prints_commands_that_work() {
    let Some(bench) = Bench::new("the words of lab wiring") else { return };
    let output = bench.run(&[&["lab", "wiring"][..], &INTERFACES].concat());
    let reported = text(&output.stdout);
    assert!(reported.lines().count() > 40 && output.status.success(), "{reported}");
    let (_, linux) = reported.split_once("Linux (iproute2):\n").expect("a part for Linux");
    let (linux, _) = linux.split_once("FRR").expect("a part for FRR");
    // Word for word, but for the names of the ports.
    let linux = linux.replace("CLIENT_PORT", "dc").replace("SERVER_PORT", "ds");
    for line in linux.lines().filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        ip(&[&["netns", "exec", &bench.device][..], &words].concat());
    }
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(bench.problems(&INTERFACES), Vec::<String>::new());
}

#[test]
fn changes_of_packets_by_a_device_are_named() {
    if !nilometer_linux::nftables::is_installed() {
        println!("skipped: filters and translation of a device: needs nft");
        return;
    }
    let Some(bench) = Bench::new("devices that filter and translate") else { return };
    bench.set_up();
    let rules = |text: &str| {
        let nft = ["netns", "exec", &bench.device, "nft"];
        ip(&[&nft[..], &["flush", "ruleset"]].concat());
        ip(&[&nft[..], &[text]].concat());
    };
    let expect = |words: &str| {
        let problems = bench.problems(&INTERFACES);
        let is_named = problems.iter().any(|line| line.contains(words));
        assert!(is_named, "{words}: {problems:?}");
    };
    rules("table ip t { chain c { type filter hook forward priority 0; iifname dc reject; }; }");
    expect("prohibits packets from clients to servers");
    rules(
        "table ip t { chain c { type nat hook postrouting priority 100; oifname ds masquerade; }; }",
    );
    expect("changes the source of packets from clients");
    rules(
        "table ip t { chain c { type nat hook prerouting priority -100; iifname dc dnat to 198.19.0.7; }; }",
    );
    expect("changes the destination of packets from clients (198.19.0.1:9 becomes 198.19.0.7:9)");
}

#[test]
fn a_transparent_device_joins_both_hosts() {
    let Some(bench) = Bench::new("a transparent device") else { return };
    let config = "dut = \"external\"\n[external]\nclient_interface = \"tgc\"\nserver_interface = \"tgs\"\n\
        transparent = true\n";
    bench.room.write("lab.toml", config);
    let with = ["--config", "lab.toml"];
    let silent = bench.problems(&with);
    assert!(silent.iter().any(|line| line.contains("join both of its ports")), "{silent:?}");
    bench.in_device(&["link", "add", "b0", "type", "bridge"]);
    bench.in_device(&["link", "set", "b0", "up"]);
    for port in ["dc", "ds"] {
        bench.in_device(&["link", "set", port, "master", "b0"]);
    }
    assert_eq!(bench.problems(&with), Vec::<String>::new());
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
    // (A process group of its own, which is killed as a whole.)
    std::os::unix::process::CommandExt::process_group(&mut lab, 0);
    let mut lab = lab.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    patience("the interfaces are borrowed", || !bench.state().contains(SERVER));
    // SAFETY: kill takes integers; the group is that of a child of ours that was not waited for.
    assert_eq!(unsafe { libc::kill(-(lab.id() as i32), libc::SIGKILL) }, 0);
    lab.wait().expect("a killed child");
    patience("the interfaces are back", || bench.state() == before);
    assert_eq!(bench.problems(&INTERFACES), Vec::<String>::new(), "and carry traffic");
}

/// The device's route to the servers.
const ROUTE: &str = "198.19.0.0/17";

/// Asserts that the one line of the error has these words.
fn expect(bench: &Bench, what: &str, words: &str) {
    let problems = bench.problems(&INTERFACES);
    let is_named = problems.len() == 1 && problems[0].contains(words);
    assert!(is_named, "{what}: {problems:?}");
}

fn without_arp_answers(bench: &Bench) {
    let unanswered = bench.problems(&INTERFACES);
    assert!(unanswered[0].contains("answers ARP for 198.19.255.2"), "{unanswered:?}");
    bench.set_up();
    assert_eq!(bench.problems(&INTERFACES), Vec::<String>::new());
}

fn routes_are_wrong(bench: &Bench) {
    bench.set_up();
    let route = |words: &[&str]| bench.in_device(&[&["route"][..], words].concat());
    route(&["del", ROUTE]);
    expect(bench, "no route", "no route to 198.19.0.1: give it 198.19.0.0/17 via 198.19.255.6");
    route(&["add", ROUTE, "via", "198.19.255.1"]);
    expect(bench, "the wrong way", "sends packets for 198.19.0.1 back to the clients (tgc)");
}

/// Another router behind the device sends packets back to it.
fn packets_go_round(bench: &Bench) {
    bench.set_up();
    let route = |words: &[&str]| bench.in_device(&[&["route"][..], words].concat());
    route(&["del", ROUTE]);
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
    ip(&["netns", "del", &beyond]);
    assert!(looped.len() == 1 && looped[0].contains("loop until"), "{looped:?}");
}

fn links_are_small_or_dead(bench: &Bench) {
    bench.set_up();
    bench.in_device(&["link", "set", "ds", "mtu", "1300"]);
    let small = bench.problems(&INTERFACES);
    let is_named = |line: &String| line.contains("bytes are lost, and the links carry 1500");
    assert!(!small.is_empty() && small.iter().all(is_named), "{small:?}");
    assert!(
        small.iter().any(|line| line.contains("clients to servers of more than 1300")),
        "{small:?}"
    );
    bench.in_device(&["link", "set", "ds", "down"]);
    expect(bench, "a dead link", "the link of tgs did not come up");
}

fn sides_are_exchanged(bench: &Bench) {
    bench.set_up();
    let problems = bench.problems(&["--client-interface", SERVER, "--server-interface", CLIENT]);
    let is_named = problems.iter().all(|line| line.contains("are swapped"));
    assert!(is_named && !problems.is_empty(), "{problems:?}");
}

/// (Most of their time is spent waiting for answers that do not come: all at once.)
#[test]
fn errors_in_the_wiring_of_a_device_are_named_in_one_line() {
    let cases: [fn(&Bench); 5] = [
        without_arp_answers,
        routes_are_wrong,
        packets_go_round,
        links_are_small_or_dead,
        sides_are_exchanged,
    ];
    at_once(&cases, |case: fn(&Bench)| {
        if let Some(bench) = Bench::new("devices that are wired wrongly") {
            case(&bench);
        }
    });
}

#[test]
fn unsuitable_interfaces_are_refused_in_one_line() {
    let Some(bench) = Bench::new("interfaces that cannot be lent") else { return };
    let refused = |interfaces: [&str; 2], words: &str| {
        let options = ["--client-interface", interfaces[0], "--server-interface", interfaces[1]];
        for command in [&["lab", "wiring"][..], &["lab", "run", "--duration", "1"]] {
            let output = bench.run(&[command, &options].concat());
            let err = text(&output.stderr);
            let is_refused = output.status.code() == Some(2) && err.lines().count() == 1;
            assert!(is_refused && err.contains(words), "{command:?}: {err}");
        }
    };
    refused(["lo", SERVER], "lo is a loopback");
    refused(["eth77", SERVER], "there is no interface eth77 here; there are");
    bench.in_host(&["address", "add", "10.9.8.7/24", "dev", CLIENT]);
    bench.in_host(&["route", "add", "default", "via", "10.9.8.1"]);
    refused([CLIENT, SERVER], "default route");
    bench.in_host(&["route", "del", "default"]);
    bench.in_host(&[
        "-6", "route", "add", "default", "via", "fe80::9", "dev", CLIENT, "proto", "ra",
    ]);
    refused([CLIENT, SERVER], "default route");
    bench.in_host(&["-6", "route", "del", "default"]);
    bench.in_host(&["link", "add", "mv0", "link", CLIENT, "type", "macvlan"]);
    refused([CLIENT, SERVER], "mv0 depends on tgc");
    bench.in_host(&["link", "del", "mv0"]);
    bench.in_host(&["link", "add", "b0", "type", "bridge"]);
    refused(["b0", SERVER], "b0 is a bridge");
    bench.in_host(&["link", "set", SERVER, "master", "b0"]);
    refused([CLIENT, SERVER], "belongs to a bridge");
    let output = bench.run(&["lab", "run", "--dut", "external"]);
    assert!(text(&output.stderr).contains("give --client-interface and --server-interface"));
    assert_eq!(output.status.code(), Some(2));
}
