//! `lab run --hosts simulated`: our own TCP on the testbed's interfaces carries what the kernel's carries.

use serde_json::Value;

use crate::common::{Room, at_once, privileged};

/// Files of the small model in each of its intervals.
const FILES: [u64; 2] = [40, 40];

/// A room with a small model.
fn room(name: &str) -> Room {
    let room = Room::new(name);
    super::model(&room, FILES);
    room
}

/// A run of the same few files, each to its end, with more arguments.
fn run(room: &Room, more: &[&str]) -> Value {
    let words = ["lab", "run", "--model", "model.json", "-o", "run", "--force", "--json"];
    room.counted(&[&words[..], &["--calibration", "0", "--duration", "2"], more].concat())
}

/// Payload bytes of each connection as its client received them, by the plan's number.
fn received(room: &Room) -> Vec<(u64, u64)> {
    let lines = room.read("run/execution.ndjson");
    let line = |line: &str| -> (u64, u64) {
        let done: Value = serde_json::from_str(line).expect("a line");
        assert_eq!(done["outcome"], "Completed", "{done}");
        let number = |key: &str| done[key].as_u64().expect(key);
        (number("index"), number("received_bytes"))
    };
    let mut all: Vec<_> = lines.lines().map(line).collect();
    all.sort_unstable();
    all
}

/// Nothing vanished between the hosts' own counts and the meter.
fn all_are_accounted_for(result: &Value) {
    let hosts = &result["simulated"];
    assert_eq!((&hosts["unheard"], &hosts["unsent"]), (&0.into(), &0.into()), "{hosts}");
    for (number, name) in ["client", "server"].into_iter().enumerate() {
        let (host, interface) = (&hosts[name], &result["interfaces"][number]);
        assert_eq!(host["sent"], interface["metered_tx"], "{host} {interface}");
        assert_eq!(host["received"], interface["metered_rx"], "{host} {interface}");
        // (Our router probes for duplicates of its addresses.)
        assert_eq!(host["not_tcp"], interface["not_ip"], "{host} {interface}");
        for none in ["corrupted", "no_room"] {
            assert_eq!(host[none], 0, "{none}: {host}");
        }
    }
}

#[test]
fn simulated_hosts_carry_the_same_bytes_as_the_kernels() {
    if !privileged("simulated hosts beside the kernel's") {
        return;
    }
    let carry = |dut: &str| {
        let room = room(&format!("simulated-hosts-{dut}"));
        let kernel = run(&room, &["--dut", dut]);
        assert_eq!((&kernel["hosts"], &kernel["late_events"]), (&"kernel".into(), &Value::Null));
        let by_kernel = received(&room);
        assert_eq!(by_kernel.len() as u64, kernel["connections"]);
        assert!(by_kernel.len() > 50 && by_kernel.iter().any(|&(_, bytes)| bytes > 5_000));
        let ours = run(&room, &["--dut", dut, "--hosts", "simulated", "--replay-hosts"]);
        assert_eq!((&ours["hosts"], &ours["packets"]["lost"]), (&"simulated".into(), &0.into()));
        assert_eq!(ours["execution"]["sizes_exact"], true, "{dut}");
        assert_eq!(received(&room), by_kernel, "{dut}");
        assert!(ours["open_max"].as_u64().is_some_and(|open| open > 0), "{dut}");
        let events = ours["lateness_ns"]["count"].as_u64().expect("events");
        assert!(events >= by_kernel.len() as u64 && ours["late_events"].as_u64() <= Some(events));
        all_are_accounted_for(&ours);
        let replay = &ours["simulated"]["replay"];
        let sent = ["client", "server"].map(|host| ours["simulated"][host]["sent"].as_u64());
        assert_eq!(replay["frames"].as_u64(), Some(sent.iter().flatten().sum()), "{replay}");
        assert_eq!(
            (&replay["differences"], &replay["left_out"]),
            (&0.into(), &0.into()),
            "{replay}"
        );
    };
    at_once(&["wire", "linux", "nilometer"], carry);
}

/// Scripts of whole connections, whose steps wait for bytes of the other end and for pauses.
#[test]
fn whole_connections_of_the_sample_are_performed_and_repeated() {
    if !privileged("scripts of simulated hosts") {
        return;
    }
    let room = Room::new("simulated-scripts");
    let words = ["lab", "run", "--dut", "wire", "--duration", "6", "--calibration", "0", "--json"];
    let result = room.counted(&[&words[..], &["--hosts", "simulated", "--replay-hosts"]].concat());
    assert_eq!(
        (&result["packets"]["lost"], &result["execution"]["failed"]),
        (&0.into(), &0.into())
    );
    assert!(result["packets"]["in"].as_u64().is_some_and(|packets| packets > 3_000));
    all_are_accounted_for(&result);
    assert_eq!(result["simulated"]["replay"]["differences"], 0);
}

#[test]
fn every_stack_recovers_from_losses_of_a_fault_box() {
    if !privileged("simulated hosts through a fault box") {
        return;
    }
    let recovers = |congestion: &str| {
        let room = room(&format!("simulated-loss-{congestion}"));
        let words = ["--hosts", "simulated", "--congestion", congestion, "--replay-hosts"];
        let faults = ["--fault", "rate=100Mbit,delay=2ms,loss=0.02,corrupt=0.005"];
        let result = run(&room, &[&words[..], &faults].concat());
        assert_eq!(result["execution"]["congestion"], congestion);
        assert_eq!(received(&room).len() as u64, result["connections"], "{congestion}");
        let number = |value: &Value| value.as_u64().expect("a number");
        assert!(number(&result["fault"]["lost"]) > 0, "{congestion}");
        let hosts = &result["simulated"];
        let corrupted = ["client", "server"]
            .map(|host| number(&hosts[host]["corrupted"]) + number(&hosts[host]["not_tcp"]));
        // (Not all of IPv6's header is under a checksum.)
        let damaged = number(&result["fault"]["corrupted"]);
        assert!(
            corrupted.iter().sum::<u64>() <= damaged,
            "{congestion}: {corrupted:?} of {damaged}"
        );
        assert_eq!(hosts["replay"]["differences"], 0, "{congestion}: {}", hosts["replay"]);
    };
    for together in [["newreno", "reno", "sack"], ["cubic", "bbr", "fulltcp"]] {
        at_once(&together, recovers);
    }
}

#[test]
fn options_unsupported_by_simulated_hosts_are_refused_in_one_line() {
    let room = Room::new("simulated-refused");
    let refused = |more: &[&str]| room.refused(&[&["lab", "run"], more].concat());
    let message = refused(&["--hosts", "simulated", "--congestion", "vegas"]);
    assert!(
        message.contains("`vegas`") && message.contains("newreno, sack or fulltcp"),
        "{message}"
    );
    assert!(refused(&["--hosts", "many"]).contains("kernel"));
    let external = ["--dut", "external", "--client-interface", "a", "--server-interface", "b"];
    let message = refused(&[&external[..], &["--hosts", "simulated"]].concat());
    assert!(message.contains("ARP") && message.contains("--hosts kernel"), "{message}");
    assert!(refused(&["--replay-hosts"]).contains("--hosts simulated"));
    assert!(refused(&["--clock", "virtual", "--hosts", "kernel"]).contains("virtual clock"));
}

#[test]
fn hosts_of_virtual_time_are_simulated_and_never_late() {
    let room = room("simulated-virtual");
    let result = run(&room, &["--clock", "virtual", "--dut", "wire", "--congestion", "sack"]);
    assert_eq!((&result["hosts"], &result["late_events"]), (&"simulated".into(), &0.into()));
    assert_eq!(result["lateness_ns"]["max"], 0);
    assert_eq!(received(&room).len() as u64, result["connections"]);
}
