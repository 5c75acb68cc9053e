//! What we write as RSVP is RSVP to others: tshark reads the messages and complains of none.

mod network;
mod samples;

use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use network::{Network, SECOND, descriptor, udp_session};
use nilometer_reservation::message::{FlowSetup, Message, MessageType, Style};
use nilometer_reservation::packet::{self, Envelope};
use nilometer_stat::Rng;
use nilometer_wire::checksum::internet_checksum;
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

/// Messages of every type, 40 of each.
fn drawn() -> (Vec<Vec<u8>>, Vec<u8>) {
    let (mut packets, mut types) = (Vec::new(), Vec::new());
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
            types.push(kind.number());
        }
    }
    (packets, types)
}

/// Paths with our object of plugins, which others pass over.
fn with_plugins() -> Vec<Vec<u8>> {
    let object = |rng: &mut Rng| loop {
        let Message::FlowSetup(setup) = message(rng, MessageType::FlowSetup) else { continue };
        if setup.plugins.is_some() {
            let without = FlowSetup { plugins: None, ..setup.clone() };
            let begin = Message::FlowSetup(without).write(63).len();
            break Message::FlowSetup(setup).write(63).split_off(begin);
        }
    };
    let path = |index| {
        let mut rng = Rng::new(11, PURPOSE, index);
        let mut bytes = message(&mut rng, MessageType::Path).write(63);
        let is_v4 = bytes[11] == 1;
        bytes.extend(object(&mut rng));
        let length = (bytes.len() as u16).to_be_bytes();
        bytes[6..8].copy_from_slice(&length);
        bytes[2..4].fill(0);
        let checksum = internet_checksum(&[&bytes]).to_be_bytes();
        bytes[2..4].copy_from_slice(&checksum);
        let source = if is_v4 { "198.18.9.1" } else { "2001:db8::91" };
        let destination = if is_v4 { "198.18.9.2" } else { "2001:db8::92" };
        let [source, destination] =
            [source, destination].map(|text| text.parse().expect("an address"));
        let envelope = Envelope { source, destination, ttl: 63, has_router_alert: true };
        packet::write(&envelope, &bytes)
    };
    (0..DRAWN).map(path).collect()
}

/// The messages of two hosts and two routers from a path to its end, with a refusal.
fn spoken() -> Vec<Vec<u8>> {
    let mut network = Network::new(4, &[(0, 1), (1, 2), (2, 3)]);
    let session = udp_session(network.address(3));
    let sender = network.announce(0, session, 9e6);
    network.run(SECOND);
    for rate in [1e6, 9e6] {
        let flows = vec![descriptor(rate, &[sender])];
        let style = Style::FixedFilter;
        network
            .with(3, |process, now, _| process.reserve(now, session, style, flows, true))
            .expect("a path is there");
        network.run(SECOND * 60);
    }
    network.with(3, |process, now, _| process.release(now, session));
    network.run(SECOND);
    network.with(0, |process, now, _| process.withdraw(now, session, sender));
    network.run(SECOND);
    network.packets.into_iter().map(|(_, packet)| packet).collect()
}

#[test]
fn tshark_reads_every_message_without_a_complaint() {
    if Command::new("tshark").arg("--version").output().is_err() {
        return eprintln!("skipped: no tshark here");
    }
    let (mut packets, types) = drawn();
    let of_every_type = packets.len();
    packets.extend(spoken());
    packets.extend(with_plugins());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rsvp.pcap");
    std::fs::write(&path, capture(&packets)).expect("a capture");
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-o", "ip.check_checksum:TRUE", "-T", "fields", "-r"]).arg(&path);
    let fields = ["_ws.expert.message", "_ws.malformed", "rsvp.msg"];
    fields.iter().for_each(|field| _ = tshark.args(["-e", field]));
    let output = tshark.output().expect("tshark runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(lines.len(), packets.len());
    for (number, cells) in lines.iter().enumerate() {
        assert_eq!(cells[..2], ["", ""], "packet {}: {cells:?}", number + 1);
    }
    let read: Vec<String> = lines.iter().map(|cells| cells[2].to_owned()).collect();
    assert_eq!(read[..of_every_type], types.iter().map(u8::to_string).collect::<Vec<_>>());
    for kind in ["1", "2", "4", "5", "6", "7"] {
        assert!(read[of_every_type..].iter().any(|read| read == kind), "type {kind} was spoken");
    }
    let output = Command::new("tshark").args(["-n", "-V", "-r"]).arg(&path).output();
    let text = String::from_utf8_lossy(&output.expect("tshark runs").stdout).into_owned();
    let checksums = text.lines().filter(|line| line.contains("Message Checksum: "));
    assert_eq!(checksums.filter(|line| line.ends_with("[correct]")).count(), packets.len());
}
