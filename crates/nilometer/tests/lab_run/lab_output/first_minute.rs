//! The first minute with a user's own capture: it is planned, or refused in one line that says what to do.

use std::fs;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use nilometer_flow::netflow5::{self, Header};
use nilometer_flow::record::{TCP, UDP, tcp_flags};
use nilometer_flow::{EndReason, FlowKey, FlowRecord};
use nilometer_lab::trial::config::LabConfig;
use nilometer_lab::trial::planning::plan;
use nilometer_lab::trial::progress::Display;
use nilometer_lab::trial::run::learn;
use nilometer_traffic::vector_plan::Draw;

use super::captures::{
    Frame, Other, answers, datagrams, dialogue, dialogue_of, ethernet, frames_of, later, linked,
    others, pcap_of, together, web,
};
use crate::common::{BINARY, Room, privileged, talk, text};

/// What became of inputs: connections planned, in how many of the original's, and warnings; or the refusal.
type Learnt = Result<(usize, Vec<String>), String>;

/// Everything that a run does before it builds a lab.
fn planned(config: &LabConfig) -> Learnt {
    let (estimate, _) = learn(config, &Display::new()).map_err(|error| format!("{error:#}"))?;
    let made =
        plan(&estimate.model, Draw::Exact, 1).or_else(|_| plan(&estimate.model, Draw::Seed(1), 1));
    let made = made.map_err(|error| format!("{error:#}"))?;
    Ok((made.len(), estimate.warnings))
}

fn inputs(paths: &[PathBuf]) -> LabConfig {
    LabConfig { input: paths.to_vec(), ..LabConfig::default() }
}

/// The expected outcome of a capture, with words of the warning or of the refusal.
enum Expected {
    Plays(usize, &'static [&'static str]),
    Refused(&'static [&'static str]),
}

use Expected::{Plays, Refused};

fn hold(name: &str, learnt: Learnt, expected: &Expected) {
    match (learnt, expected) {
        (Ok((connections, warnings)), Plays(wanted, words)) => {
            assert_eq!(connections, *wanted, "{name}: {warnings:?}");
            let is_said = |word: &&str| warnings.iter().any(|line| line.contains(word));
            assert!(words.iter().all(is_said), "{name}: {words:?}: {warnings:?}");
        }
        (Err(line), Refused(words)) => {
            assert_eq!(line.lines().count(), 1, "{name}: {line}");
            assert!(line.contains(name), "{name}: {line}");
            assert!(words.iter().all(|word| line.contains(word)), "{name}: {words:?}: {line}");
        }
        (Ok(made), Refused(_)) => panic!("{name} is not refused: {made:?}"),
        (Err(line), Plays(..)) => panic!("{name} is refused: {line}"),
    }
}

#[test]
fn captures_as_people_have_them_are_planned_or_refused_in_one_line() {
    let room = Room::new("people");
    let web = web(20);
    let whole = ethernet(&web);
    let cooked = [&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 8, 0][..]].concat();
    let own = [[127, 0, 0, 1]; 2];
    let loopback = dialogue_of(own, 8_080, true, &[(true, 300), (false, 5_000)]);
    let ssh = [(true, 36), (false, 52), (true, 36), (false, 900), (true, 36), (false, 36)];
    let mail = [(false, 60), (true, 20), (false, 90), (true, 3_000), (false, 30)];
    let cases: [(&str, Vec<u8>, Expected); 15] = [
        ("short.pcap", ethernet(&dialogue(80, true, &[(true, 5), (false, 700)])), Plays(1, &[])),
        ("cut.pcap", whole[..whole.len() - 7].to_vec(), Plays(20, &["cut.pcap: its last record"])),
        ("oneway.pcap", ethernet(&answers(&web)), Plays(20, &["those of servers alone"])),
        ("ssh.pcap", ethernet(&dialogue(22, false, &ssh)), Plays(1, &[])),
        ("mail.pcap", ethernet(&dialogue(25, true, &mail)), Plays(1, &[])),
        ("lo.pcap", pcap_of(0, 65_535, &linked(&loopback, &[2, 0, 0, 0])), Plays(1, &[])),
        ("any.pcap", pcap_of(113, 65_535, &linked(&web, &cooked)), Plays(20, &[])),
        ("snap68.pcap", pcap_of(1, 68, &web), Plays(20, &[])),
        ("silent.pcap", ethernet(&dialogue(80, true, &[])), Plays(1, &["no TCP payload passed"])),
        ("snap24.pcap", pcap_of(1, 24, &web), Refused(&["cut before their IP", "tcpdump -s 128"])),
        ("snap40.pcap", pcap_of(1, 36, &web), Refused(&["TCP without its header", "-s 128"])),
        (
            "vpn.pcap",
            ethernet(&datagrams(51_820, 30, &[4; 90])),
            Refused(&["30 WireGuard", "hides the TCP within", "inside of it"]),
        ),
        (
            "ipsec.pcap",
            ethernet(&others(Other::Protocol(50), 9)),
            Refused(&["9 IPsec", "inside of it"]),
        ),
        (
            "game.pcap",
            ethernet(&datagrams(27_015, 60, &[1; 40])),
            Refused(&["60 other UDP", "plays only TCP", "`nilometer flows", "-o writes"]),
        ),
        ("arp.pcap", ethernet(&others(Other::Arp, 5)), Refused(&["5 not IP", "where TCP passes"])),
    ];
    for (name, bytes, expected) in cases {
        room.write(name, bytes);
        hold(name, planned(&inputs(&[room.path(name)])), &expected);
    }
}

/// Public captures are planned or refused in one line, too.
#[test]
fn public_captures_are_planned_or_refused_in_one_line() {
    let Some(data) = std::env::var_os("NILOMETER_DATA").map(PathBuf::from) else {
        return println!("skipped: public captures in the first minute (set NILOMETER_DATA)");
    };
    let cases: [(&str, Expected); 9] = [
        ("FlowTest/pcap/http_get.pcap", Plays(1, &[])),
        ("ipfixprobe/inputs/smtp.pcap", Plays(1, &[])),
        ("PcapPlusPlus/sll.pcap", Plays(1, &[])),
        ("PcapPlusPlus/raw_ip.pcap", Plays(2, &[])),
        ("PcapPlusPlus/unidirectional_tcp_stream_with_missing_packet.pcap", Plays(1, &[])),
        ("nDPI/pcap/opera-vpn.pcapng", Plays(62, &[])),
        ("ipfixprobe/inputs/wg.pcap", Refused(&["627 other UDP", "inner packets"])),
        ("nDPI/pcap/quic.pcap", Refused(&["QUIC", "plays only TCP"])),
        ("FlowTest/pcap/ovpn.pcap", Plays(1, &[])),
    ];
    for (name, expected) in cases {
        let path = data.join("pcap").join(name);
        if !path.exists() {
            println!("skipped: {name} is not among the public captures");
            continue;
        }
        hold(name, planned(&inputs(&[path])), &expected);
    }
}

/// An export of NetFlow v5 of twenty flows of a protocol.
fn export(protocol: u8) -> Vec<u8> {
    let flow = |number: u16| FlowRecord {
        key: FlowKey {
            source: Ipv4Addr::new(198, 19, 0, 1).into(),
            destination: Ipv4Addr::new(198, 18, 0, 1).into(),
            source_port: 443,
            destination_port: 2_000 + number,
            protocol,
        },
        start_ns: 900_000_000_000 + u64::from(number) * 900_000_000,
        end_ns: 902_000_000_000 + u64::from(number) * 900_000_000,
        packets: 40,
        octets: 40_000,
        tcp_flags: if protocol == TCP { tcp_flags::SYN | tcp_flags::FIN } else { 0 },
        payload_octets: None,
        opened: None,
        end_reason: EndReason::Unknown,
        sampling_interval: 0,
    };
    let header = Header {
        uptime_ms: 900_000,
        unix_secs: 1_000,
        unix_nsecs: 0,
        flow_sequence: 0,
        engine_type: 0,
        engine_id: 0,
        sampling_mode: 0,
        sampling_interval: 0,
    };
    netflow5::encode(&header, &(0..20).map(flow).collect::<Vec<_>>()).expect("it fits")
}

#[test]
fn records_that_no_lab_plays_are_refused_with_their_kinds() {
    let room = Room::new("records");
    room.write("udp.nf5", export(UDP));
    room.write("udp.pcap", ethernet(&datagrams(2_055, 1, &export(UDP))));
    for name in ["udp.nf5", "udp.pcap"] {
        let words = &["no TCP among 20 flows", "20 UDP", "`nilometer flows", "-o writes"];
        hold(name, planned(&inputs(&[room.path(name)])), &Refused(words));
    }
    // Connections that began before the capture enter no law; packet by packet they are played.
    room.write("ssh.pcap", ethernet(&dialogue(22, false, &[(true, 500), (false, 900)])));
    let fitted = LabConfig { fit: true, ..inputs(&[room.path("ssh.pcap")]) };
    hold("ssh.pcap", planned(&fitted), &Refused(&["without SYN", "without --fit"]));
}

/// Exports are offered in one line, and the commands of that line do what it says.
#[test]
fn exports_beside_other_packets_are_found_and_offered() {
    let room = Room::new("beside");
    let exports = datagrams(2_055, 3, &export(TCP));
    let offer = [
        "mixed.pcap: 3 of its packets are flow exports (NetFlow v5)",
        "`nilometer flows ",
        " --from exports -o records.parquet`",
        "`nilometer lab run records.parquet`",
    ];
    room.write("mixed.pcap", ethernet(&together(&exports, &web(5))));
    let (_, warnings) = planned(&inputs(&[room.path("mixed.pcap")])).expect("the web is played");
    let offered: Vec<&String> = warnings.iter().filter(|line| line.contains("exports")).collect();
    assert_eq!(offered.len(), 1, "{warnings:?}");
    assert!(offer[1..].iter().all(|word| offered[0].contains(word)), "{offered:?}");
    let output = room.run(&["flows", "mixed.pcap"]);
    let stderr = text(&output.stderr);
    assert!(offer.iter().all(|word| stderr.contains(word)), "{stderr}");
    room.done(&["flows", "mixed.pcap", "--from", "exports", "-o", "records.parquet"]);
    let (flows, _) = planned(&inputs(&[room.path("records.parquet")])).expect("they are played");
    assert!(flows > 0);
    // Among packets that cannot be played the refusal offers them.
    let dns = datagrams(53, 2, b"ask");
    room.write("dns.pcap", ethernet(&together(&exports, &dns)));
    let words = &["no TCP to play", "2 DNS", "3 of them are flow exports", "--from exports"];
    hold("dns.pcap", planned(&inputs(&[room.path("dns.pcap")])), &Refused(words));
    // A datagram that only looks like an export is none.
    room.write("looks.pcap", ethernet(&together(&datagrams(2_055, 3, &[0, 5, 0, 30]), &web(1))));
    let (_, warnings) = planned(&inputs(&[room.path("looks.pcap")])).expect("the web is played");
    assert!(!warnings.iter().any(|line| line.contains("exports")), "{warnings:?}");
}

/// Damaged input is named, and the rest is read; only damage is an error.
#[test]
fn damaged_files_and_packets_are_counted_and_passed_over() {
    let room = Room::new("damaged");
    fs::create_dir(room.path("week")).expect("a folder");
    fs::create_dir(room.path("wrecks")).expect("a folder");
    let good = ethernet(&web(20));
    let mut wreck = good.clone();
    let tenth = 24 + web(20)[..10].iter().map(|(_, frame)| 16 + frame.len()).sum::<usize>();
    wreck[tenth..tenth + 16].fill(0xff);
    for (name, bytes) in [("a.pcap", &good[..]), ("b.pcap", b"no capture"), ("c.pcap", &good[..20])]
    {
        room.write(&format!("week/{name}"), bytes);
    }
    let (connections, warnings) = planned(&inputs(&[room.path("week")])).expect("one is good");
    assert_eq!(connections, 20);
    for word in ["passed over: ", "b.pcap: begins with", "c.pcap: cut in its file header"] {
        assert!(warnings.iter().any(|line| line.contains(word)), "{word}: {warnings:?}");
    }
    room.write("wrecks/b.pcap", b"no capture");
    room.write("wrecks/c.pcap", &good[..20]);
    let refusal = planned(&inputs(&[room.path("wrecks")])).expect_err("none can be read");
    assert!(refusal.starts_with("none of 2 files can be read; the first: "), "{refusal}");
    if privileged("the exit status of a lab run of wrecks") {
        assert!(room.refused(&["lab", "run", "wrecks"]).contains("none of 2 files can be read"));
    }
    room.write("wreck.pcap", &wreck);
    let (_, warnings) = planned(&inputs(&[room.path("wreck.pcap")])).expect("its beginning");
    assert!(warnings.iter().any(|line| line.contains("is damaged at byte")), "{warnings:?}");
    let malformed = others(Other::Malformed, 3);
    room.write("odd.pcap", ethernet(&together(&malformed, &web(2))));
    let (_, warnings) = planned(&inputs(&[room.path("odd.pcap")])).expect("the web is played");
    let all = web(2).len() + 3;
    let counted = format!("3 of {all} packets have headers that contradict themselves");
    assert!(warnings.iter().any(|line| line.contains(&counted)), "{warnings:?}");
}

/// NetFlow v9: a template of bytes and packets without addresses, and `records` records.
fn without_addresses(records: u8) -> Vec<u8> {
    let template = [0, 0, 0, 16, 1, 0, 0, 2, 0, 1, 0, 4, 0, 2, 0, 4];
    let mut datagram = vec![0, 9, 0, 1 + records, 0, 0, 0, 9, 0, 0, 3, 232, 0, 0, 0, 0, 0, 0, 0, 7];
    datagram.extend(template);
    datagram.extend([1, 0, 0, 4 + 8 * records]);
    datagram.extend(vec![1; 8 * usize::from(records)]);
    datagram
}

#[test]
fn records_that_were_skipped_are_counted_in_a_warning() {
    let room = Room::new("skipped");
    room.write("events.nf9", without_addresses(3));
    room.write("flows.nf5", export(TCP));
    let both = ["events.nf9", "flows.nf5"].map(|name| room.path(name));
    let (_, warnings) = planned(&inputs(&both)).expect("twenty flows are played");
    let counted =
        "3 of 23 exported records (13.0 %) describe no flow and were skipped: 3 have no addresses";
    assert!(warnings.iter().any(|line| line == counted), "{warnings:?}");
}

#[test]
fn inputs_whose_private_addresses_collide_are_named() {
    let room = Room::new("sites");
    let here = dialogue(80, true, &[(true, 5), (false, 700)]);
    let there = later(&dialogue(443, true, &[(true, 5), (false, 700)]), 3_600);
    let named = |frames: [&[Frame]; 2]| {
        room.write("here.pcap", ethernet(frames[0]));
        room.write("there.pcap", ethernet(frames[1]));
        let both = ["here.pcap", "there.pcap"].map(|name| room.path(name));
        let (_, warnings) = planned(&inputs(&both)).expect("they are played");
        warnings.into_iter().find(|line| line.contains("taken for the same hosts"))
    };
    let line = named([&here, &there]).expect("an hour lies between");
    for word in
        ["10.0.0.1 and another private address", "here.pcap and ", "there.pcap", "different sites"]
    {
        assert!(line.contains(word), "{word}: {line}");
    }
    let pieces = frames_of(&ethernet(&here));
    let (first, second) = pieces.split_at(4);
    assert_eq!(named([first, second]), None, "pieces of one capture");
    assert_eq!(named([&web(2), &later(&web(2), 3_600)]), None, "public addresses");
}

#[test]
fn a_duration_beyond_the_input_is_warned_of() {
    let room = Room::new("longer");
    room.write("short.pcap", ethernet(&web(20)));
    let warning = |config: LabConfig| {
        let (_, warnings) = planned(&config).expect("it is played");
        warnings.into_iter().find(|line| line.contains("played to its end"))
    };
    let short = inputs(&[room.path("short.pcap")]);
    let line = warning(LabConfig { duration_s: Some(30.0), ..short.clone() }).expect("too long");
    assert!(line.contains("--duration requests 30.0 s") && line.contains("lasts 1.9 s"), "{line}");
    let part = Some("1+20".parse().expect("a part"));
    let line = warning(LabConfig { part, ..short.clone() }).expect("too long");
    assert!(line.contains("--part requests 21.0 s"), "{line}");
    let laws = LabConfig { duration_s: Some(900.0), ..LabConfig::default() };
    let laws = LabConfig { model: harpoon(), ..laws };
    assert!(warning(laws).expect("too long").contains("--duration requests 900.0 s"));
    for enough in [Some(1.0), Some(2.0), None] {
        assert_eq!(warning(LabConfig { duration_s: enough, ..short.clone() }), None);
    }
}

fn harpoon() -> nilometer_lab::trial::config::ModelSection {
    nilometer_lab::trial::config::ModelSection { harpoon: true, ..Default::default() }
}

/// An input in the place of another document is recognised, whatever its name and the flag.
#[test]
fn a_capture_in_the_place_of_a_configuration_is_recognised() {
    let room = Room::new("place");
    let good = talk(3, |_| 500, true);
    room.write("x.pcap", &good);
    room.write("x.toml", &good);
    room.write("x.nf5", export(TCP));
    for line in ["--config x.pcap", "x.toml", "--model x.pcap", "--router x.pcap", "--config x.nf5"]
    {
        let words: Vec<&str> = ["lab", "run"].into_iter().chain(line.split(' ')).collect();
        let stderr = room.refused(&words);
        let name = line.rsplit(' ').next().expect("a name");
        let kind = if name == "x.nf5" { "a file of flow exports" } else { "a capture (pcap)" };
        assert!(stderr.contains(&format!("{name}: this is {kind}, not ")), "{line}: {stderr}");
        assert!(
            stderr.contains(&format!("`nilometer lab run --input {name}`")),
            "{line}: {stderr}"
        );
    }
    // A configuration is recognised, whatever the ending of its name.
    room.write("lab.conf", "sed = 1\n");
    assert!(room.refused(&["lab", "run", "--config", "lab.conf"]).contains("unknown key `sed`"));
    let both = ["lab", "run", "--config", "lab.conf", "other.toml"];
    room.write("other.toml", "seed = 1\n");
    assert!(room.refused(&both).contains("more than one LAB.toml"));
}

/// Captures are read twice; records may come through a pipe.
#[test]
fn a_capture_through_a_pipe_is_refused_with_a_remedy() {
    if !privileged("captures through pipes") {
        return;
    }
    let room = Room::new("pipe");
    let piped = |bytes: &[u8], words: &[&str]| {
        let mut lab = Command::new(BINARY);
        lab.current_dir(room.path("")).args(["lab", "run"]).args(words).stdin(Stdio::piped());
        let mut lab =
            lab.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
        lab.stdin.take().expect("piped").write_all(bytes).expect("it reads");
        let output = lab.wait_with_output().expect("it ends");
        (output.status.code(), text(&output.stderr).to_owned())
    };
    let good = talk(3, |_| 500, true);
    for name in ["-", "/dev/stdin"] {
        let (status, stderr) = piped(&good, &[name]);
        assert_eq!((status, stderr.lines().count()), (Some(2), 1), "{stderr}");
        for word in [name, "a pipe can be read once", "> capture.pcap", "--fit"] {
            assert!(stderr.contains(word), "{word}: {stderr}");
        }
        // Records are read, and these hold no TCP.
        let (status, stderr) = piped(&export(UDP), &[name]);
        assert!(status == Some(2) && stderr.contains("no TCP among 20 flows"), "{stderr}");
    }
}
