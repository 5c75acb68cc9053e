//! Common kinds of captures, made small: of one direction, in a tunnel, of loopback, cooked, cut.

use std::net::SocketAddr;

use nilometer_wire::build::{self, Tcp, ethernet_of};

use crate::common::{pcap_header, talk};

/// A packet with its time in microseconds, from the link header on.
pub type Frame = (u64, Vec<u8>);

/// When captures begin, µs since 1970.
const BEGIN_US: u64 = 1_000_000_000;
const ETHERNET_BYTES: usize = 14;
const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [10, 0, 1, 1];

/// A pcap file of a link type, with up to `snap_bytes` captured of each frame.
pub fn pcap_of(link_type: u32, snap_bytes: usize, frames: &[Frame]) -> Vec<u8> {
    let mut file = pcap_header(link_type);
    for (at_us, frame) in frames {
        let kept = &frame[..frame.len().min(snap_bytes)];
        let lengths = [kept.len() as u32, frame.len() as u32];
        let stamp = [(at_us / 1_000_000) as u32, (at_us % 1_000_000) as u32];
        file.extend(stamp.into_iter().chain(lengths).flat_map(u32::to_le_bytes));
        file.extend(kept);
    }
    file
}

pub fn ethernet(frames: &[Frame]) -> Vec<u8> {
    pcap_of(1, usize::MAX, frames)
}

/// The frames of a pcap file that [`talk`] has made.
pub fn frames_of(file: &[u8]) -> Vec<Frame> {
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes"));
    let (mut at, mut frames) = (24, Vec::new());
    while at < file.len() {
        let (seconds, micros, length) = (word(at), word(at + 4), word(at + 8) as usize);
        let frame = file[at + 16..at + 16 + length].to_vec();
        frames.push((u64::from(seconds) * 1_000_000 + u64::from(micros), frame));
        at += 16 + length;
    }
    frames
}

/// `count` complete web connections.
pub fn web(count: u64) -> Vec<Frame> {
    frames_of(&talk(count, |number| 500 + 100 * number as usize, true))
}

/// The same frames, `seconds` later.
pub fn later(frames: &[Frame], seconds: u64) -> Vec<Frame> {
    frames.iter().map(|(at, frame)| (at + 1_000_000 * seconds, frame.clone())).collect()
}

/// The same packets behind another link header.
pub fn linked(frames: &[Frame], header: &[u8]) -> Vec<Frame> {
    let behind = |frame: &[u8]| [header, &frame[ETHERNET_BYTES..]].concat();
    frames.iter().map(|(at, frame)| (*at, behind(frame))).collect()
}

/// Only the frames that the servers of [`web`] sent.
pub fn answers(frames: &[Frame]) -> Vec<Frame> {
    let from_server = |frame: &[u8]| frame[ETHERNET_BYTES + 12] == 203;
    frames.iter().filter(|(_, frame)| from_server(frame)).cloned().collect()
}

/// A dialogue of TCP: each part's sender (the client where true) and size. Without `whole` it was under way before
/// the capture began and continues after it.
pub fn dialogue(port: u16, whole: bool, turns: &[(bool, usize)]) -> Vec<Frame> {
    dialogue_of([CLIENT, SERVER], port, whole, turns)
}

/// As [`dialogue`], between these hosts.
pub fn dialogue_of(
    [client, server]: [[u8; 4]; 2],
    port: u16,
    whole: bool,
    turns: &[(bool, usize)],
) -> Vec<Frame> {
    let ends: [SocketAddr; 2] = [(server, port).into(), (client, 40_000).into()];
    let (mut sent, mut at_us, mut frames) = ([900u32, 100], BEGIN_US, Vec::new());
    let mut send = |by_client: bool, flags: u8, bytes: usize| {
        let (own, other) = (usize::from(by_client), usize::from(!by_client));
        let segment = Tcp {
            flags,
            sequence: sent[own],
            acknowledgement: sent[other],
            payload: &vec![7; bytes],
            ..Tcp::new(ends[own], ends[other])
        };
        sent[own] += bytes as u32 + u32::from(flags & 3 != 0);
        at_us += 20_000;
        frames.push((at_us, build::ethernet(&segment.ip_packet())));
    };
    if whole {
        send(true, 0x02, 0);
        send(false, 0x12, 0);
        send(true, 0x10, 0);
    }
    for &(by_client, bytes) in turns {
        send(by_client, 0x18, bytes);
        send(!by_client, 0x10, 0);
    }
    if whole {
        send(true, 0x11, 0);
        send(false, 0x11, 0);
        send(true, 0x10, 0);
    }
    frames
}

/// Datagrams to a port, a hundred each second.
pub fn datagrams(port: u16, count: u64, payload: &[u8]) -> Vec<Frame> {
    let packet = build::udp((CLIENT, 40_001).into(), (SERVER, port).into(), payload);
    let frame = build::ethernet(&packet);
    (0..count).map(|number| (BEGIN_US + 10_000 * number, frame.clone())).collect()
}

/// Packets of another protocol above IP, or of another one than IP.
pub fn others(of: Other, count: u64) -> Vec<Frame> {
    let frame = match of {
        Other::Arp => ethernet_of(0x0806, &[0; 28]),
        Other::Protocol(number) => {
            build::ethernet(&build::ip_packet(CLIENT.into(), SERVER.into(), number, vec![7; 60]))
        }
        // A header of IPv4 that claims to be shorter than any.
        Other::Malformed => ethernet_of(0x0800, &[0x41; 40]),
    };
    (0..count).map(|number| (BEGIN_US + 10_000 * number, frame.clone())).collect()
}

/// What [`others`] makes.
pub enum Other {
    Arp,
    Protocol(u8),
    Malformed,
}

/// Both, in the order of their times.
pub fn together(one: &[Frame], other: &[Frame]) -> Vec<Frame> {
    let mut both = [one, other].concat();
    both.sort_by_key(|(at_us, _)| *at_us);
    both
}
