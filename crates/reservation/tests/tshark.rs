//! What we write as RSVP is RSVP to others: tshark reads the messages and complains of none.

mod samples;

use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use nilometer_reservation::message::MessageType;
use nilometer_reservation::packet::{self, Envelope};
use nilometer_stat::Rng;
use samples::{PURPOSE, message};

const DRAWN: u64 = 40;
/// The link type of captures whose packets begin with IP.
const LINKTYPE_RAW: u32 = 101;

/// A capture of IP packets, one a millisecond.
fn capture(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4, 0x0002_0004, 0, 0, 65_535, LINKTYPE_RAW] {
        file.extend(u32::to_be_bytes(word));
    }
    for (number, packet) in packets.iter().enumerate() {
        for word in [0, 1_000 * number, packet.len(), packet.len()] {
            file.extend((word as u32).to_be_bytes());
        }
        file.extend(packet);
    }
    file
}

#[test]
fn tshark_reads_every_message_without_a_complaint() {
    if Command::new("tshark").arg("--version").output().is_err() {
        return eprintln!("skipped: no tshark here");
    }
    let mut packets = Vec::new();
    for kind in MessageType::ALL.into_iter().filter(|kind| kind.number() < 240) {
        for index in 0..DRAWN {
            let drawn = message(&mut Rng::new(7, PURPOSE, index), kind);
            let destination = drawn.session().destination;
            let source: IpAddr = match destination.is_ipv4() {
                true => "198.18.9.1".parse().expect("an address"),
                false => "2001:db8::91".parse().expect("an address"),
            };
            let has_router_alert = kind.has_router_alert();
            let envelope = Envelope { source, destination, ttl: 63, has_router_alert };
            packets.push(packet::write(&envelope, &drawn.write(63)));
        }
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rsvp.pcap");
    std::fs::write(&path, capture(&packets)).expect("a capture");
    let fields = ["_ws.expert.message", "_ws.malformed", "rsvp.msg"];
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-o", "ip.check_checksum:TRUE", "-T", "fields", "-r"]).arg(&path);
    fields.iter().for_each(|field| _ = tshark.args(["-e", field]));
    let output = tshark.output().expect("tshark runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), packets.len());
    for (number, line) in lines.iter().enumerate() {
        let kind = 1 + number as u64 / DRAWN;
        let cells: Vec<&str> = line.split('\t').collect();
        assert_eq!(cells[..3], ["", "", &kind.to_string()], "packet {}: {line}", number + 1);
    }
    let output = Command::new("tshark").args(["-n", "-V", "-r"]).arg(&path).output();
    let text = String::from_utf8_lossy(&output.expect("tshark runs").stdout).into_owned();
    let checksums = text.lines().filter(|line| line.contains("Message Checksum: "));
    assert_eq!(checksums.filter(|line| line.ends_with("[correct]")).count(), packets.len());
}
