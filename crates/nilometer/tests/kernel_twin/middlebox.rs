//! NAT, firewall and policer compared with the kernel's own on the same packets: differences are named, step by
//! step.
//!
//! The kernel has `masquerade`, connection tracking and `limit` of nftables. (`police` of tc, which is nearer to a policer,
//! is not in every kernel.) Each step is a packet that enters both devices on one side; where they may differ the
//! step says how and why, and a difference that has disappeared fails like a new one.

mod firewall;
mod nat;
mod policer;

use std::net::{IpAddr, SocketAddr};

use nilometer_linux::nftables;
use nilometer_linux::privilege::{self, Privilege};
use nilometer_wire::build::{self, Tcp};

use super::comparison::{Comparison, compare};
use super::rig::{Device, Out, Rig, Service};

const LEFT: usize = 0;
const RIGHT: usize = 1;
const IPV4: u16 = 0x0800;
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PUSH: u8 = 8;
const ACK: u8 = 16;
/// Ports that the steps use; any other was drawn by a device.
const PORTS: [u16; 14] =
    [9, 80, 443, 700, 4_000, 4_100, 4_200, 4_300, 4_400, 4_500, 4_999, 5_000, 5_001, 6_000];

/// How two devices differ, and why.
struct Difference {
    why: &'static str,
    kernel: &'static str,
    ours: &'static str,
}

/// A packet, and its expected fate.
struct Step {
    name: &'static str,
    side: usize,
    packet: Vec<u8>,
    /// Nothing where both do the same.
    differs: Option<Difference>,
}

/// A step at which both do the same.
fn same(name: &'static str, side: usize, packet: Vec<u8>) -> Step {
    Step { name, side, packet, differs: None }
}

/// A step at which they differ.
fn differs(
    (name, why): (&'static str, &'static str),
    side: usize,
    packet: Vec<u8>,
    [kernel, ours]: [&'static str; 2],
) -> Step {
    Step { name, side, packet, differs: Some(Difference { why, kernel, ours }) }
}

fn end(text: &str) -> SocketAddr {
    text.parse().expect("an address and a port")
}

fn udp(from: &str, to: &str) -> Vec<u8> {
    build::udp(end(from), end(to), b"datagram")
}

fn tcp(from: &str, to: &str, flags: u8, [sequence, acknowledgement]: [u32; 2]) -> Vec<u8> {
    let payload: &[u8] = if flags & PUSH != 0 { b"segment" } else { b"" };
    let segment = Tcp { sequence, acknowledgement, flags, payload, ..Tcp::new(end(from), end(to)) };
    segment.ip_packet()
}

/// An echo (8) or its reply (0).
fn echo(from: &str, to: &str, kind: u8, identifier: u16) -> Vec<u8> {
    let [from, to]: [IpAddr; 2] = [from, to].map(|text| text.parse().expect("an address"));
    let body = [&identifier.to_be_bytes()[..], &[0, 1], b"echo echo"].concat();
    build::icmp(from, to, kind, 0, &body)
}

/// An error about the beginning of a packet: port unreachable.
fn unreachable(from: &str, to: &str, about: &[u8]) -> Vec<u8> {
    let [from, to]: [IpAddr; 2] = [from, to].map(|text| text.parse().expect("an address"));
    build::icmp(from, to, 3, 3, &[&[0; 4], &about[..28]].concat())
}

/// A packet whose transport checksum is wrong.
fn spoiled(mut packet: Vec<u8>) -> Vec<u8> {
    let last = packet.len() - 1;
    packet[last] ^= 0x55;
    packet
}

/// The output in words: side, protocol, and both ends where there are ports, with random ones as `drawn`.
fn described(out: &[Out]) -> String {
    let mut words: Vec<String> =
        out.iter().map(|(side, packet)| described_packet(*side, packet)).collect();
    words.sort();
    if words.is_empty() { "nothing".to_owned() } else { words.join(" + ") }
}

fn described_packet(side: usize, packet: &[u8]) -> String {
    let side = ["left", "right"][side];
    let address =
        |at: usize| packet[at..at + 4].iter().map(u8::to_string).collect::<Vec<_>>().join(".");
    let (from, to) = (address(12), address(16));
    let head = usize::from(packet[0] & 15) * 4;
    let word = |at: usize| u16::from_be_bytes([packet[head + at], packet[head + at + 1]]);
    let port = |at: usize| match word(at) {
        port if PORTS.contains(&port) => port.to_string(),
        _ => "drawn".to_owned(),
    };
    if u16::from_be_bytes([packet[6], packet[7]]) & 0x1fff != 0 {
        return format!("{side} fragment {from}>{to}");
    }
    match (packet[9], packet.get(head)) {
        (1, Some(kind @ (0 | 8))) => format!("{side} echo {kind} {from}>{to} {}", port(4)),
        (1, Some(kind)) => format!("{side} icmp {kind}/{} {from}>{to}", packet[head + 1]),
        (6, _) if packet[head + 13] & RST != 0 => {
            format!("{side} reset {from}:{}>{to}:{}", port(0), port(2))
        }
        (6, _) => format!("{side} tcp {from}:{}>{to}:{}", port(0), port(2)),
        (17, _) => format!("{side} udp {from}:{}>{to}:{}", port(0), port(2)),
        (protocol, _) => format!("{side} protocol {protocol} {from}>{to}"),
    }
}

/// The fault of a step, if there is one.
fn judged(step: &Step, theirs: &[Out], own: &[Out]) -> Option<String> {
    let [kernel, ours] = [described(theirs), described(own)];
    let fault = match &step.differs {
        None if compare(theirs, own) == Comparison::Different => "differ, and no reason is known",
        Some(named) if (kernel.as_str(), ours.as_str()) != (named.kernel, named.ours) => {
            "do not differ as is named"
        }
        _ => return None,
    };
    Some(format!(
        "{}: {fault}\n  kernel {kernel}: {theirs:02x?}\n  ours   {ours}: {own:02x?}",
        step.name
    ))
}

/// Both devices with a service; none where this machine lacks the means.
fn both(what: &str, service: &Service) -> Option<[Rig; 2]> {
    match privilege::privilege() {
        Privilege::Root if nftables::is_installed() => {}
        Privilege::Root => {
            println!("skipped {what} beside the kernel's: nft is not installed");
            return None;
        }
        other => {
            println!("skipped {what} beside the kernel's: root is needed ({other})");
            return None;
        }
    }
    let rig = |device| Rig::with(device, Some(service)).expect("a device");
    Some([rig(Device::Kernel), rig(Device::Ours)])
}

/// Plays steps through both, one after the other, and fails where something is not as it is named.
fn play(what: &str, service: &Service, steps: &[Step]) {
    let Some([mut kernel, mut ours]) = both(what, service) else { return };
    let mut faults = Vec::new();
    for step in steps {
        let theirs = kernel.ask_from(step.side, IPV4, &step.packet).expect("the kernel answers");
        let own = ours.ask_from(step.side, IPV4, &step.packet).expect("the router answers");
        faults.extend(judged(step, &theirs, &own));
        if let Some(named) = &step.differs {
            println!("{}: kernel {}; ours {}: {}", step.name, named.kernel, named.ours, named.why);
        }
    }
    let alike = steps.iter().filter(|step| step.differs.is_none()).count();
    println!("{what}: {alike} of {} packets fare alike", steps.len());
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn an_unlisted_difference_and_an_outdated_one_are_found() {
    let packet = udp("198.18.64.1:4000", "198.19.0.2:5000");
    let out = |side: usize| vec![(side, packet.clone())];
    let step = same("one", LEFT, packet.clone());
    assert!(judged(&step, &out(1), &out(1)).is_none());
    assert!(judged(&step, &out(1), &[]).is_some_and(|fault| fault.contains("no reason is known")));
    let words = ["right udp 198.18.64.1:4000>198.19.0.2:5000", "nothing"];
    let step = differs(("one", "a reason"), LEFT, packet.clone(), words);
    assert!(judged(&step, &out(1), &[]).is_none());
    for (theirs, own) in [(out(1), out(1)), (Vec::new(), Vec::new()), (out(0), Vec::new())] {
        assert!(judged(&step, &theirs, &own).is_some_and(|fault| fault.contains("as is named")));
    }
}
