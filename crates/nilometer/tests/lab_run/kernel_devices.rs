//! Devices that the lab makes of the kernel: a bridge, and a packet filter in front of its forwarding.

use serde_json::Value;

use crate::common::{Room, privileged, text};

const SHORT: [&str; 7] = ["lab", "run", "--json", "--duration", "3", "--calibration", "0"];

fn counts(result: &Value) -> [u64; 2] {
    ["in", "lost"].map(|key| result["packets"][key].as_u64().expect("a count"))
}

#[test]
fn a_bridge_passes_all_packets() {
    if !privileged("a bridge as the device") {
        return;
    }
    let room = Room::new("bridge");
    let result = room.counted(&[&SHORT[..], &["--dut", "bridge"]].concat());
    let [entered, lost] = counts(&result);
    assert!(result["dut"] == "bridge" && entered > 100 && lost == 0, "{}", result["packets"]);
}

#[test]
fn a_packet_filter_passes_what_its_rules_let_pass() {
    if !nilometer_linux::nftables::is_installed() || !privileged("a packet filter as the device") {
        println!("skipped: a packet filter as the device: needs nft and a lab");
        return;
    }
    let room = Room::new("nftables");
    let run = |more: &[&str]| room.counted(&[&SHORT[..], more].concat());
    let [entered, lost] = counts(&run(&["--dut", "nftables", "--out", "open"]));
    assert!(entered > 100 && lost == 0, "{lost} of {entered}");
    assert!(room.read("open/lab.toml").contains("nftables"));

    // What servers begin is none of the firewall's.
    let words = [
        "stream",
        "run",
        "--dut",
        "nftables",
        "--both",
        "--pps",
        "1000",
        "--seconds",
        "0.5",
        "--json",
    ];
    let stream: Value = serde_json::from_slice(&room.run(&words).stdout).expect("a result");
    let of_way = |way: usize| {
        let packets = &stream["directions"][way]["packets"];
        ["in", "lost"].map(|key| packets[key].as_u64().expect("a count"))
    };
    assert_eq!([of_way(0), of_way(1)], [[500, 0], [500, 500]], "{stream}");

    // Nothing opens towards the clients, and nothing but what servers answer passes to them: no SYN gets through.
    room.write(
        "shut.nft",
        "table ip lab { chain f { type filter hook forward priority 0; tcp flags syn drop; }; }\n\
        table ip6 lab { chain f { type filter hook forward priority 0; tcp flags syn drop; }; }\n",
    );
    let shut = run(&["--rules", "shut.nft", "--out", "shut"]);
    let [entered, lost] = counts(&shut);
    assert!(shut["dut"] == "nftables" && entered > 20 && lost == entered, "{lost} of {entered}");
    assert_eq!(room.read("shut/rules.nft"), room.read("shut.nft"));
    assert!(room.read("shut/lab.toml").contains("rules = \"rules.nft\""));

    room.write("bad.nft", "table ip lab {\n  chain f { nonsense }\n}\n");
    let line = room.refused(&[&SHORT[..], &["--rules", "bad.nft"]].concat());
    assert!(line.contains("bad.nft") && line.contains("line 2"), "{line}");
    let line = room.refused(&[&SHORT[..], &["--rules", "none.nft"]].concat());
    assert!(line.contains("none.nft"), "{line}");
    let line = room.refused(&[&SHORT[..], &["--rules", "shut.nft", "--dut", "linux"]].concat());
    assert!(line.contains("leave one of them out"), "{line}");
    let output = room.run(&["lab", "run", "--dut", "bridge", "--clock", "virtual"]);
    assert!(text(&output.stderr).contains("no virtual clock"), "{}", text(&output.stderr));
}
