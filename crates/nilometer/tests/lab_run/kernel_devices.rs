//! Devices that the lab makes of the kernel (a bridge, a packet filter in front of its forwarding, XDP programs), and
//! switches in user space.

use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nilometer_linux::user_switch::UserSwitchKind;
use serde_json::Value;

use crate::common::{BINARY, Room, privileged, text};

const SHORT: [&str; 7] = ["lab", "run", "--json", "--duration", "3", "--calibration", "0"];

/// Name and type; flags, alignment and entry; link and info; bytes.
type Section<'a> = ([u32; 2], [u64; 3], [u32; 2], &'a [u8]);

/// A BPF object with one XDP program that does nothing but return, as clang would write it.
fn object(returned: u8) -> Vec<u8> {
    let code = [0xb7, 0, 0, 0, returned, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0];
    let names = b"\0xdp\0license\0.symtab\0.strtab\0.shstrtab\0";
    let strings = b"\0filter\0";
    let mut symbols = vec![0; 24];
    // Name, global function, default visibility, section 1; value and size.
    symbols.extend([1, 0, 0, 0, 0x12, 0, 1, 0]);
    symbols.extend([0u64, code.len() as u64].map(u64::to_le_bytes).concat());
    let sections: [Section<'_>; 5] = [
        ([1, 1], [6, 8, 0], [0, 0], &code),
        ([5, 1], [3, 1, 0], [0, 0], b"GPL\0"),
        ([13, 2], [0, 8, 24], [4, 1], &symbols),
        ([21, 3], [0, 1, 0], [0, 0], strings),
        ([29, 3], [0, 1, 0], [0, 0], names),
    ];
    let (mut body, mut headers) = (Vec::new(), vec![0; 64]);
    for (name, [flags, align, entry], link, bytes) in sections {
        body.resize(body.len().next_multiple_of(8), 0);
        headers.extend(name.map(u32::to_le_bytes).concat());
        let numbers = [flags, 0, 64 + body.len() as u64, bytes.len() as u64];
        headers.extend(numbers.map(u64::to_le_bytes).concat());
        headers.extend(link.map(u32::to_le_bytes).concat());
        headers.extend([align, entry].map(u64::to_le_bytes).concat());
        body.extend_from_slice(bytes);
    }
    body.resize(body.len().next_multiple_of(8), 0);
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    // A relocatable file for BPF, version 1.
    file.extend([1, 0, 247, 0, 1, 0, 0, 0]);
    file.extend([0u64, 0, 64 + body.len() as u64].map(u64::to_le_bytes).concat());
    file.extend([0; 4]);
    file.extend([64u16, 0, 0, 64, 6, 5].map(u16::to_le_bytes).concat());
    file.extend(body);
    file.extend(headers);
    file
}

#[test]
fn xdp_programs_of_the_user_are_on_both_ports() {
    if !privileged("an XDP program as the device") {
        return;
    }
    let room = Room::new("xdp");
    room.write("pass.o", object(2));
    room.write("drop.o", object(1));
    room.write("text.o", "no object");
    let run = |dut: &str| {
        let words = ["stream", "run", "--json", "--pps", "2000", "--seconds", "0.5", "--both"];
        let output = room.run(&[&words[..], &["--calibration", "0", "--dut", dut]].concat());
        let result: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|why| panic!("{dut}: {why}: {}", text(&output.stderr)));
        assert_eq!(result["dut"], "xdp");
        counts(&result)
    };
    assert_eq!(run("xdp:pass.o"), [2_000, 0]);
    assert_eq!(run("xdp:drop.o"), [2_000, 2_000]);
    let result = room.counted(&[&SHORT[..], &["--dut", "xdp:pass.o"]].concat());
    let [entered, lost] = counts(&result);
    assert!(entered > 100 && lost == 0, "{}", result["packets"]);
    for (dut, message) in [
        ("xdp", "give --dut xdp:FILE.o"),
        ("xdp:none.o", "none.o: cannot be opened"),
        ("xdp:text.o", "text.o: is not an ELF object"),
        ("hub", "the devices are nilometer, linux"),
    ] {
        let line = room.refused(&["stream", "run", "--dut", dut]);
        assert!(line.contains(message), "{dut}: {line}");
    }
}

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

/// How many of the switches' programs that a lab started are there.
fn switches() -> usize {
    let has = |cmdline: &[u8]| {
        let text = String::from_utf8_lossy(cmdline);
        text.contains("/run/nilometer/conf.db") || text.contains("eth_af_packet0,iface=client")
    };
    let processes = std::fs::read_dir("/proc").expect("processes").flatten();
    let cmdlines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    cmdlines.filter(|cmdline| has(cmdline)).count()
}

#[test]
fn switches_in_user_space_pass_packets_and_end_with_the_lab() {
    let kinds = [("ovs", UserSwitchKind::OpenVSwitch), ("testpmd", UserSwitchKind::Testpmd)];
    for (dut, kind) in kinds {
        let room = Room::new(dut);
        if !kind.is_installed() {
            println!("skipped: {dut} as the device: it is not installed");
            if privileged("a device that is not there") {
                let line = room.refused(&["lab", "run", "--dut", dut]);
                assert!(line.contains("is not installed (Debian: apt-get install"), "{line}");
            }
            continue;
        }
        if !privileged("a switch in user space as the device") {
            return;
        }
        let result = room.counted(&[&SHORT[..], &["--dut", dut]].concat());
        let [entered, lost] = counts(&result);
        // (A program without a processor loses what its sockets have no room for.)
        let passes = |lost: u64, entered: u64| 5 * lost <= entered;
        let is_played = entered > 100 && passes(lost, entered);
        assert!(result["dut"] == dut && is_played, "{}", result["packets"]);
        assert_eq!(switches(), 0, "{dut} has ended");
        let words = ["stream", "run", "--pps", "500", "--seconds", "1", "--json"];
        let output = room.run(&[&words[..], &["--calibration", "0", "--dut", dut]].concat());
        let stream: Value = serde_json::from_slice(&output.stdout).expect("a result");
        let [entered, lost] = counts(&stream);
        assert!(entered == 500 && passes(lost, entered), "{dut}: {stream}");
        // (Where the sender takes the processor that a switch polls on, its frames come when the stream has ended.)
        let p50 = stream["delay_ns"]["p50"].as_u64().expect("a delay");
        assert!(p50 < 50_000_000, "{dut}: {p50} ns");
        // However the lab ends.
        let mut lab = Command::new(BINARY)
            .args(["lab", "run", "--dut", dut, "--calibration", "0", "--out", "killed"])
            .current_dir(room.path(""))
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("it runs");
        let patient = |is_so: &dyn Fn() -> bool| {
            let began = Instant::now();
            while !is_so() {
                assert!(began.elapsed() < Duration::from_secs(20), "{dut}: {}", switches());
                sleep(Duration::from_millis(20));
            }
        };
        patient(&|| switches() > 0);
        lab.kill().expect("ours");
        lab.wait().expect("ours");
        patient(&|| switches() == 0);
    }
}

#[test]
fn a_packet_filter_passes_what_its_rules_allow() {
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
