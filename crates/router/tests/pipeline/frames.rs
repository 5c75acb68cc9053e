//! Hostile frames from a seed: sound packets of every kind that a router reads, and mutations of them.
//!
//! Half of the frames are sound. Of the others some bytes are changed, most of them in the headers, or
//! the frame is cut or padded; half of those get their checksums mended, so that what lies behind the
//! first check is reached as well. Frames are addressed to port N by the link-layer address
//! 02:00:00:00:00:0N, and by their networks to and through it: 198.18.N.0/24 and fd00:N::/64.

use std::net::{IpAddr, Ipv6Addr};

use nilometer_router::neighbour::{
    Answer, ArpOperation, ArpPacket, BROADCAST, Envelope, FRAME_BYTES_MAX, Message, link_local,
};
use nilometer_stat::Rng;
use nilometer_wire::build;
use nilometer_wire::checksum::{Checksum, internet_checksum};

/// Ports of the router that the frames are meant for.
pub const PORTS: u64 = 4;
const PURPOSE: u32 = u32::from_be_bytes(*b"host");
const SAMPLES: usize = 4_000;
/// IANA protocol numbers of IPv6's headers: hop-by-hop, routing, fragment, authentication, options.
const HEADERS: [u8; 5] = [0, 43, 44, 51, 60];

/// Frames without end.
pub struct Frames {
    rng: Rng,
    sound: Vec<Vec<u8>>,
}

impl Frames {
    pub fn new(seed: u64) -> Frames {
        let mut rng = Rng::new(seed, PURPOSE, 0);
        let sound = (0..SAMPLES).map(|_| sample(&mut rng)).collect();
        Frames { rng, sound }
    }

    /// The next frame, and the port that it comes to.
    pub fn next(&mut self) -> (usize, Vec<u8>) {
        let rng = &mut self.rng;
        let mut frame = self.sound[rng.below(SAMPLES as u64) as usize].clone();
        let port = usize::from(frame[11]) % PORTS as usize;
        if rng.below(2) == 0 {
            mutate(rng, &mut frame);
        }
        match rng.below(40) {
            0 => frame.truncate(1 + rng.below(frame.len() as u64) as usize),
            1 => frame.resize(frame.len() + rng.below(40) as usize, rng.next_u64() as u8),
            _ => {}
        }
        (port, frame)
    }
}

fn mutate(rng: &mut Rng, frame: &mut [u8]) {
    for _ in 0..1 + rng.below(4) {
        let reach = if rng.below(4) == 0 { frame.len() } else { frame.len().min(80) };
        let at = rng.below(reach as u64) as usize;
        frame[at] = match rng.below(3) {
            0 => frame[at] ^ 1 << rng.below(8),
            1 => [0, 1, 0x7f, 0x80, 0xff][rng.below(5) as usize],
            _ => rng.next_u64() as u8,
        };
    }
    if rng.below(2) == 0 {
        mend(frame);
    }
}

/// The checksum of an IPv4 header, and that of ICMPv6 right behind a header of IPv6.
fn mend(frame: &mut [u8]) {
    let Some((ethernet, packet)) = frame.split_at_mut_checked(14) else { return };
    let header_bytes = packet.first().map_or(0, |first| usize::from(first & 15) * 4);
    match ethernet[12..14] {
        [8, 0] if header_bytes >= 20 && packet.len() >= header_bytes => {
            packet[10..12].fill(0);
            let sum = internet_checksum(&[&packet[..header_bytes]]);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        [0x86, 0xdd] if packet.len() >= 44 && packet[6] == 58 => {
            let length = usize::from(u16::from_be_bytes([packet[4], packet[5]]));
            let end = packet.len().min(40 + length.max(4));
            packet[42..44].fill(0);
            let address = |at: usize| {
                let octets: [u8; 16] = packet[at..at + 16].try_into().expect("sixteen");
                IpAddr::from(octets)
            };
            let mut sum = Checksum::new();
            sum.add_pseudo_header(address(8), address(24), 58, (end - 40) as u32);
            sum.add(&packet[40..end]);
            packet[42..44].copy_from_slice(&sum.finish().to_be_bytes());
        }
        _ => {}
    }
}

fn station(port: u64) -> [u8; 6] {
    [2, 0, 0, 0, 0, port as u8]
}

/// A sound frame to some port.
fn sample(rng: &mut Rng) -> Vec<u8> {
    let port = rng.below(PORTS);
    let mut frame = match rng.below(8) {
        0 => arp(rng, port),
        1 => discovery(rng, port),
        2 => build::ethernet(&extended(rng, port)),
        3 => build::ethernet(&with_options(rng, port)),
        4 => build::ethernet(&piece(rng, port)),
        _ => build::ethernet(&plain(rng, port)),
    };
    if frame[12..14] == [8, 6] || frame[0] == 0x33 {
        return frame;
    }
    frame[..6].copy_from_slice(&station(port));
    frame[6..12].copy_from_slice(&[2, 0, 0, 1, 0, port as u8]);
    match rng.below(20) {
        0 => frame[..6].fill(0xff),
        1 => frame[..3].copy_from_slice(&[1, 0, 0x5e]),
        2 => frame[..2].fill(0x33),
        3 => frame[5] ^= 0x20,
        _ => {}
    }
    frame
}

/// Addresses of either family: mostly through the router, some to it, some that may not be.
fn addresses(rng: &mut Rng, port: u64, is_six: bool) -> (IpAddr, IpAddr) {
    let (to, host) = (rng.below(PORTS + 1), rng.below(20));
    let four = [
        format!("198.19.{to}.{host}"),
        format!("198.18.{to}.{host}"),
        format!("198.18.{to}.1"),
        format!("198.18.{to}.255"),
        "224.0.0.1".into(),
        "239.1.2.3".into(),
        "255.255.255.255".into(),
        "127.0.0.1".into(),
    ];
    let six = [
        format!("fd00:1{to}::{host}"),
        format!("fd00:{to}::{host}"),
        format!("fd00:{to}::1"),
        "ff02::1".into(),
        "ff0e::77".into(),
        Ipv6Addr::from(link_local(station(port))).to_string(),
        "::".into(),
        "::ffff:1.2.3.4".into(),
    ];
    let texts = if is_six { six } else { four };
    let mut pick = |rare: u64| {
        let at = if rng.below(rare) == 0 { rng.below(8) } else { rng.below(3) };
        texts[at as usize].parse::<IpAddr>().expect("an address")
    };
    let destination = pick(3);
    let from = match is_six {
        true => format!("fd00:1{port}::{host}"),
        false => format!("198.19.{port}.{host}"),
    };
    let usual = from.parse().expect("an address");
    (if pick(12) == destination { destination } else { usual }, destination)
}

fn plain(rng: &mut Rng, port: u64) -> Vec<u8> {
    let (from, to) = addresses(rng, port, rng.clone().below(2) == 0);
    let bytes = [0, 18, 60, 1_200, 1_480, 1_700][rng.below(6) as usize];
    let mut packet = match rng.below(5) {
        0 => build::icmp(from, to, if from.is_ipv4() { 8 } else { 128 }, 0, &vec![7; bytes + 4]),
        1 => build::icmp(from, to, rng.next_u64() as u8, rng.below(4) as u8, &vec![7; bytes + 4]),
        2 => build::ip_packet(from, to, rng.next_u64() as u8, vec![9; bytes]),
        _ => build::udp((from, 1_000).into(), (to, 53).into(), &vec![5; bytes]),
    };
    let hop_limit = [0, 1, 2, 64, 64, 64, 255][rng.below(7) as usize];
    if from.is_ipv4() {
        packet[8] = hop_limit;
        packet[6] = if rng.below(2) == 0 { 0x40 } else { 0 };
    } else {
        packet[7] = hop_limit;
    }
    summed(packet)
}

fn summed(packet: Vec<u8>) -> Vec<u8> {
    let mut frame = build::ethernet(&packet);
    mend(&mut frame);
    frame.split_off(14)
}

/// IPv4 with options, sound or not.
fn with_options(rng: &mut Rng, port: u64) -> Vec<u8> {
    let (from, to) = addresses(rng, port, false);
    let mut options = Vec::new();
    for _ in 0..1 + rng.below(3) {
        let kind = [0, 1, 7, 68, 131, 137, 148, 130, 25][rng.below(9) as usize];
        let entries = rng.below(4) as u8;
        let (head, unit) = if kind == 68 { (4, 8) } else { (3, 4) };
        let length = if kind == 148 { 4 } else { head + unit * entries };
        match kind {
            0 | 1 => options.push(kind),
            _ => {
                let start = options.len();
                options.extend([kind, length, [head + 1, 4, 5, length + 1][rng.below(4) as usize]]);
                options
                    .resize(start + usize::from(length.max(3)), [0, 198, 1][rng.below(3) as usize]);
            }
        }
    }
    options.truncate(40);
    options.resize(options.len().next_multiple_of(4), 0);
    let plain =
        build::udp((from, 1_000).into(), (to, 53).into(), &vec![5; rng.below(1_600) as usize]);
    let mut packet = [&plain[..20], &options, &plain[20..]].concat();
    packet[0] = 0x40 | ((20 + options.len()) / 4) as u8;
    let total_bytes = packet.len() as u16;
    packet[2..4].copy_from_slice(&total_bytes.to_be_bytes());
    packet[6] = if rng.below(2) == 0 { 0x40 } else { 0 };
    summed(packet)
}

/// IPv6 with a chain of extension headers.
fn extended(rng: &mut Rng, port: u64) -> Vec<u8> {
    let (from, to) = addresses(rng, port, true);
    let kinds: Vec<u8> =
        (0..1 + rng.below(4)).map(|_| HEADERS[rng.below(5) as usize]).chain([17]).collect();
    let mut payload = Vec::new();
    for pair in kinds.windows(2) {
        let start = payload.len();
        let units = if rng.below(4) == 0 { rng.below(4) as u8 } else { 0 };
        payload.extend([pair[1], if pair[0] == 51 { 0 } else { units }]);
        let bytes = if pair[0] == 51 || pair[0] == 44 { 8 } else { 8 * (usize::from(units) + 1) };
        let kind = [1, 0, 5, 0x49, 0x89, 0xc9, 0xc2][rng.below(7) as usize];
        let second = [4, 2, 3, 0][rng.below(4) as usize];
        payload.extend([kind, second]);
        payload.resize(start + bytes, if rng.below(3) == 0 { rng.next_u64() as u8 } else { 0 });
    }
    payload.extend([0, 7, 0, 9, 0, 8, 0, 0]);
    build::ip_packet(from, to, kinds[0], payload)
}

/// A fragment, often of one of a few datagrams for the router.
fn piece(rng: &mut Rng, port: u64) -> Vec<u8> {
    let is_six = rng.below(2) == 0;
    let (from, to) = match rng.below(3) {
        0 => addresses(rng, port, is_six),
        _ if is_six => ("fd00:10::9".parse().expect("one"), "fd00:0::1".parse().expect("one")),
        _ => ([198, 19, 0, 9].into(), [198, 18, 0, 1].into()),
    };
    let whole = build::icmp(from, to, if is_six { 128 } else { 8 }, 0, &vec![7; 2_404]);
    let (header_bytes, step) = (if is_six { 40 } else { 20 }, [800, 1_200][rng.below(2) as usize]);
    let payload = &whole[header_bytes..];
    let start = rng.below((payload.len() / step) as u64 + 1) as usize * step;
    let end = payload.len().min(start + step);
    let more = u16::from(end < payload.len());
    let offset = start as u16 & !7;
    if is_six {
        let mut body = vec![58, 0];
        body.extend((offset | more).to_be_bytes());
        body.extend([0, 0, 0, rng.below(4) as u8]);
        body.extend(&payload[start..end]);
        return build::ip_packet(from, to, 44, body);
    }
    let mut packet = [&whole[..20], &payload[start..end]].concat();
    let total_bytes = packet.len() as u16;
    packet[2..4].copy_from_slice(&total_bytes.to_be_bytes());
    packet[4..6].copy_from_slice(&(rng.below(4) as u16).to_be_bytes());
    packet[6..8].copy_from_slice(&(offset / 8 + (more << 13)).to_be_bytes());
    summed(packet)
}

fn arp(rng: &mut Rng, port: u64) -> Vec<u8> {
    let sender_mac = [2, 0, 0, 1, rng.below(3) as u8, port as u8];
    let address = |host: u64| 0xc612_0000 | (port as u32) << 8 | host as u32;
    let is_request = rng.below(2) == 0;
    let packet = ArpPacket {
        frame_to: if is_request { BROADCAST } else { station(port) },
        frame_from: sender_mac,
        operation: if is_request { ArpOperation::Request } else { ArpOperation::Reply },
        sender_mac,
        sender: address(rng.below(20)),
        target_mac: [0; 6],
        target: address(rng.below(3)),
    };
    let mut frame = [0; FRAME_BYTES_MAX];
    let bytes = packet.write(&mut frame);
    frame[..bytes].to_vec()
}

fn discovery(rng: &mut Rng, port: u64) -> Vec<u8> {
    let mac = [2, 0, 0, 1, rng.below(3) as u8, port as u8];
    let network = 0xfd00_u128 << 112 | u128::from(port) << 96;
    let own = [link_local(station(port)), network | 1][rng.below(2) as usize];
    let theirs = [link_local(mac), network | u128::from(rng.below(20))][rng.below(2) as usize];
    let group = 0xff02 << 112 | 0x1_ff00_0000 | own & 0xff_ffff;
    let answer = Answer {
        mac: Some(mac),
        is_solicited: rng.below(2) == 0,
        overrides: rng.below(2) == 0,
        is_router: rng.below(2) == 0,
    };
    let [_, b, c, d] = (group as u32).to_be_bytes();
    let to_group = ([0x33, 0x33, 0xff, b, c, d], group);
    let to_all = ([0x33, 0x33, 0, 0, 0, 1], 0xff02 << 112 | 1);
    let (message, source, (frame_to, destination)) = match rng.below(5) {
        0 => (Message::Solicitation { target: own, mac: None }, 0, to_group),
        1 => (Message::Solicitation { target: own, mac: Some(mac) }, theirs, to_group),
        2 => (Message::Advertisement { target: theirs, answer }, theirs, (station(port), own)),
        3 => (Message::Advertisement { target: own, answer }, own, to_all),
        _ => (Message::RouterSolicitation { mac: Some(mac) }, link_local(mac), to_all),
    };
    let envelope = Envelope { frame_to, frame_from: mac, source, destination };
    let mut frame = [0; FRAME_BYTES_MAX];
    let bytes = message.write(&envelope, &mut frame);
    frame[..bytes].to_vec()
}
