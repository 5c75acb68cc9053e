//! Connections counted by tshark, from the same packets; and captures rewritten by editcap.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nilometer_conversation::Side;
use nilometer_files::input::observe::observe;
use nilometer_likeness::{Observed, Settings, judge};

/// Captures with 15 TCP connections or more.
const CAPTURES: [&str; 22] = [
    "PcapPlusPlus/4KHttpRequests.pcap",
    "PcapPlusPlus/650HttpResponses.pcap",
    "PcapPlusPlus/example.pcap",
    "PcapPlusPlus/example2.pcap",
    "composite/composite_a.pcap.gz",
    "libtrace/traces/100_seconds.pcap",
    "nDPI/pcap/1kxun.pcap",
    "nDPI/pcap/KakaoTalk_chat.pcap",
    "nDPI/pcap/alexa-app.pcapng",
    "nDPI/pcap/android.pcap",
    "nDPI/pcap/bittorrent.pcap",
    "nDPI/pcap/ethereum.pcap",
    "nDPI/pcap/gnutella.pcap",
    "nDPI/pcap/netflix.pcap",
    "nDPI/pcap/opera-vpn.pcapng",
    "nDPI/pcap/reddit.pcap",
    "nDPI/pcap/sites.pcapng",
    "nDPI/pcap/synscan.pcap",
    "nDPI/pcap/teams.pcap",
    "nDPI/pcap/webex.pcap",
    "retina/traces/tls_ciphers.pcap",
    "snabb/ipfix/tests/sanitized4k.pcap",
];

/// What both report of a capture.
#[derive(Debug, Default, PartialEq)]
struct CaptureSummary {
    connections: u64,
    packets: u64,
    payload_bytes: u64,
    hosts: u64,
    pairs: u64,
}

impl CaptureSummary {
    fn all(&self) -> [u64; 5] {
        [self.connections, self.packets, self.payload_bytes, self.hosts, self.pairs]
    }
}

fn has(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// The folder of the public captures, if they and a program are available.
fn captures(program: &str) -> Option<PathBuf> {
    let data = std::env::var_os("NILOMETER_DATA").map(|data| PathBuf::from(data).join("pcap"));
    if data.is_none() {
        println!("skipped: NILOMETER_DATA names no public captures");
    } else if !has(program) {
        println!("skipped: {program} is not installed");
        return None;
    }
    data
}

fn theirs(capture: &Path) -> CaptureSummary {
    // Of a packet in a tunnel, the innermost headers.
    const FIELDS: [&str; 6] = ["tcp.stream", "ip.src", "ip.dst", "ipv6.src", "ipv6.dst", "tcp.len"];
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(capture).args(["-Y", "tcp", "-T", "fields", "-E", "occurrence=l"]);
    tshark.args(["-o", "tcp.desegment_tcp_streams:FALSE", "-o", "ip.defragment:FALSE"]);
    for field in FIELDS {
        tshark.args(["-e", field]);
    }
    let output = tshark.output().expect("tshark runs");
    let mut summary = CaptureSummary::default();
    let (mut streams, mut hosts, mut pairs) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [stream, from4, to4, from6, to6, length] = fields[..] else { continue };
        let first = |one: &str, other: &str| if one.is_empty() { other } else { one }.to_owned();
        let (from, to) = (first(from4, from6), first(to4, to6));
        summary.packets += 1;
        summary.payload_bytes += length.parse::<u64>().unwrap_or(0);
        streams.insert(stream.to_owned());
        hosts.extend([from.clone(), to.clone()]);
        pairs.insert((from.clone().min(to.clone()), from.max(to)));
    }
    summary.connections = streams.len() as u64;
    (summary.hosts, summary.pairs) = (hosts.len() as u64, pairs.len() as u64);
    summary
}

fn observed(capture: &Path) -> Observed {
    observe(&[capture.to_owned()], &mut |_| {}).expect("a capture of TCP").0
}

fn ours(observed: &Observed) -> CaptureSummary {
    let sides = || observed.connections.iter().flat_map(|one| &one.carried);
    let ends = || observed.connections.iter().map(|one| (one.client.ip(), one.server.ip()));
    let hosts: BTreeSet<_> = ends().flat_map(|(client, server)| [client, server]).collect();
    let pairs: BTreeSet<_> = ends().map(|(one, other)| (one.min(other), one.max(other))).collect();
    CaptureSummary {
        connections: observed.connections.len() as u64,
        packets: sides().map(|side| side.packets).sum(),
        payload_bytes: sides().map(|side| side.data_bytes).sum(),
        hosts: hosts.len() as u64,
        pairs: pairs.len() as u64,
    }
}

#[test]
fn tshark_finds_the_same_connections() {
    let Some(data) = captures("tshark") else { return };
    for name in CAPTURES {
        let capture = data.join(name);
        let (ours, theirs) = (ours(&observed(&capture)), theirs(&capture));
        for (one, other) in ours.all().into_iter().zip(theirs.all()) {
            let is_near = 100 * one.abs_diff(other) <= other;
            assert!(is_near, "{name}: {ours:?}, and tshark says {theirs:?}");
        }
    }
}

/// Captures of one direction are recognised; the names of two show that they are.
#[test]
fn captures_of_one_direction_are_known() {
    let Some(data) = captures("true") else { return };
    for name in CAPTURES {
        let side = match name {
            "PcapPlusPlus/4KHttpRequests.pcap" => Some(Side::Client),
            "PcapPlusPlus/650HttpResponses.pcap" => Some(Side::Server),
            _ => None,
        };
        assert_eq!(observed(&data.join(name)).one_side(), side, "{name}");
    }
}

/// A capture that is renumbered, in another container, with a shorter snap length or resorted is
/// the same traffic.
#[test]
fn a_capture_rewritten_is_no_other_traffic() {
    let Some(data) = captures("editcap") else { return };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rewritten");
    std::fs::create_dir_all(&folder).expect("a folder");
    for name in ["nDPI/pcap/gnutella.pcap", "PcapPlusPlus/4KHttpRequests.pcap"] {
        let capture = data.join(name);
        let original = observed(&capture);
        for (number, options) in
            [&["-F", "pcapng"][..], &["-F", "nsecpcap", "-s", "96"], &["-F", "pcap", "-t", "86400"]]
                .into_iter()
                .enumerate()
        {
            let copy = folder.join(format!("{number}.pcap"));
            let mut editcap = Command::new("editcap");
            let done = editcap.args(options).arg(&capture).arg(&copy).status();
            assert!(done.expect("editcap runs").success());
            let judgement = judge(&original, &observed(&copy), &Settings::default());
            for law in &judgement.likeness {
                let distance = law.distance.unwrap_or(0.0);
                assert!(distance < 1e-9, "{name} {options:?}: {law:?}");
            }
        }
    }
}

/// With only 20 bytes of the header and no options captured, the length of the options still shows which segments
/// have time stamps.
#[test]
fn a_short_snap_length_hides_no_time_stamps() {
    let Some(data) = captures("editcap") else { return };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("snapped");
    std::fs::create_dir_all(&folder).expect("a folder");
    let (mut connections, mut with) = (0, 0);
    for name in CAPTURES {
        let (capture, cut) = (data.join(name), folder.join("cut.pcap"));
        let mut editcap = Command::new("editcap");
        let done = editcap.args(["-F", "nsecpcap", "-s", "54"]).arg(&capture).arg(&cut).output();
        assert!(done.expect("editcap runs").status.success());
        let [whole, cut] = [capture, cut].map(|path| observe(&[path], &mut |_| {}));
        // Of packets in tunnels, or of IPv6, no header is left.
        let (Ok((whole, _)), Ok((cut, _))) = (whole, cut) else { continue };
        if whole.tcp != cut.tcp {
            continue;
        }
        connections += whole.connections.len();
        for (one, other) in whole.connections.iter().zip(&cut.connections) {
            with += usize::from(one.has_time_stamps);
            assert_eq!(one, other, "{name}");
        }
    }
    println!("{connections} connections, {with} with time stamps");
    assert!(
        connections > 2_000 && with > 300,
        "{connections} connections, {with} with time stamps"
    );
}
