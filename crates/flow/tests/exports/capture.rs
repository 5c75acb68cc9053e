//! UDP payloads from a capture file, as far as the shared captures need it.

use std::net::IpAddr;
use std::path::PathBuf;

use nilometer_flow::template::Exporter;
use nilometer_wire::link::LinkType;
use nilometer_wire::packet::{Parsed, Transport, parse};

/// The folder of shared flow exports; without it, prints in one line what is skipped.
pub fn shared(what: &str) -> Option<PathBuf> {
    let data = std::env::var_os("NILOMETER_DATA");
    if data.is_none() {
        println!("skipped: {what} (set NILOMETER_DATA)");
    }
    data.map(|data| PathBuf::from(data).join("flows"))
}

/// One datagram.
pub struct Datagram {
    pub exporter: Exporter,
    pub stamp_ns: u64,
    pub payload: Vec<u8>,
}

/// The UDP datagrams of a capture that hold all of their payload.
pub fn datagrams(file: &[u8]) -> Vec<Datagram> {
    let packets = match file[..4] {
        [0xd4, 0xc3, 0xb2, 0xa1] => pcap(file),
        [0x0a, 0x0d, 0x0d, 0x0a] => pcapng(file),
        _ => panic!("a little-endian capture"),
    };
    let mut found = Vec::new();
    for (link, stamp_ns, original, frame) in packets {
        let link = LinkType::from_dlt(link).expect("a link type that is read here");
        let Parsed::Ip(packet) = parse(link, frame, original) else { continue };
        if let Some((port, payload)) = payload(frame, packet.transport) {
            let exporter = Exporter { address: packet.source, port };
            found.push(Datagram { exporter, stamp_ns, payload: payload.to_vec() });
        }
    }
    found
}

/// Link type, stamp, original length and what was kept of it.
type Packet<'a> = (u32, u64, u32, &'a [u8]);

fn word(file: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(file[at..at + 4].try_into().unwrap())
}

fn pcap(file: &[u8]) -> Vec<Packet<'_>> {
    let mut packets = Vec::new();
    let mut at = 24;
    while at + 16 <= file.len() {
        let micros = u64::from(word(file, at)) * 1_000_000 + u64::from(word(file, at + 4));
        let kept = word(file, at + 8) as usize;
        let frame = &file[at + 16..at + 16 + kept];
        packets.push((word(file, 20), micros * 1_000, word(file, at + 12), frame));
        at += 16 + kept;
    }
    packets
}

/// One section, one interface, microseconds: what the shared files are.
fn pcapng(file: &[u8]) -> Vec<Packet<'_>> {
    let mut packets = Vec::new();
    let (mut at, mut link) = (0, 0);
    while at + 12 <= file.len() {
        match word(file, at) {
            1 => link = word(file, at + 8) & 0xffff,
            6 => {
                let micros = u64::from(word(file, at + 12)) << 32 | u64::from(word(file, at + 16));
                let kept = word(file, at + 20) as usize;
                let frame = &file[at + 28..at + 28 + kept];
                packets.push((link, micros * 1_000, word(file, at + 24), frame));
            }
            _ => {}
        }
        at += word(file, at + 4) as usize;
    }
    packets
}

/// The payload stands behind the last place that looks like the header that was parsed.
fn payload(frame: &[u8], transport: Transport) -> Option<(u16, &[u8])> {
    let Transport::Udp { source_port, destination_port, payload_bytes } = transport else {
        return None;
    };
    let length = payload_bytes as usize + 8;
    let header = [source_port, destination_port, length as u16].map(u16::to_be_bytes).concat();
    let last = frame.len().checked_sub(length)?;
    let at = (0..=last).rev().find(|at| frame[*at..].starts_with(&header))?;
    Some((source_port, &frame[at + 8..at + length]))
}

/// The exporter of files that do not name one.
pub fn somebody() -> Exporter {
    Exporter { address: IpAddr::from([0, 0, 0, 0]), port: 0 }
}
