//! The NAT against the requirements of RFC 4787, RFC 5382 and RFC 5508, one by one.

use alloc::format;
use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_plugin::Packet;

use super::*;
use crate::SECOND_NS;
use crate::testing::{Bench, holds, icmp_echo, icmp_error, refused, tcp, udp};

const SETTINGS: &str = "inside=10.0.0.0/8 outside=203.0.113.1";
const SYN: u8 = 2;
const ACK: u8 = 16;
const FIN: u8 = 17;

fn bench() -> Bench<Nat> {
    Bench::new(SETTINGS)
}

/// Source and destination of a packet, with ports.
fn ends(bytes: &[u8]) -> (IpAddr, u16, IpAddr, u16) {
    let mut bytes = bytes.to_vec();
    let packet = Packet::new(&mut bytes, 0);
    let (source, destination) = packet.addresses().expect("a packet");
    let (from, to) = packet.ports().expect("ports");
    (source, from, destination, to)
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Sends a datagram out, and returns the port that it has outside.
fn port_outside(bench: &mut Bench<Nat>, source: &str, destination: &str) -> u16 {
    let mut packet = udp(source, destination, 20);
    bench.forwarded(&mut packet);
    let (from, port, _, _) = ends(&packet);
    assert_eq!(from, address("203.0.113.1"));
    port
}

#[test]
fn mapping_is_endpoint_independent_and_ports_are_preserved() {
    let mut bench = bench();
    let first = port_outside(&mut bench, "10.0.0.1:5000", "192.0.2.1:53");
    let second = port_outside(&mut bench, "10.0.0.1:5000", "192.0.2.2:99");
    assert_eq!((first, second), (5_000, 5_000), "REQ-1");
    // Other hosts with the same port get others, of the same parity.
    for host in 2..22 {
        let source = format!("10.0.0.{host}");
        let other = port_outside(&mut bench, &format!("{source}:5000"), "192.0.2.1:53");
        let is_even = other.is_multiple_of(2);
        assert!(other != 5_000 && is_even && other >= 1_024, "REQ-3, REQ-4: {other}");
        let odd = port_outside(&mut bench, &format!("{source}:33"), "192.0.2.1:53");
        assert!(odd % 2 == 1 && odd >= 1_024, "{odd}");
    }
    assert_eq!(bench.counters()[MAPPINGS], 41);
}

#[test]
fn filtering_is_endpoint_independent_while_the_mapping_lives() {
    let mut bench = bench();
    let port = port_outside(&mut bench, "10.0.0.1:5000", "192.0.2.1:53");
    for from in ["192.0.2.1:53", "198.51.100.9:1"] {
        let mut answer = udp(from, &format!("203.0.113.1:{port}"), 30);
        bench.forwarded(&mut answer);
        let (_, _, to, port) = ends(&answer);
        assert_eq!((to, port), (address("10.0.0.1"), 5_000), "REQ-8");
    }
    bench.dropped(&mut udp("192.0.2.1:53", "203.0.113.1:5001", 30));
    assert_eq!(bench.counters()[UNMATCHED], 1);
}

#[test]
fn mappings_of_udp_are_kept_by_outbound_packets_alone() {
    let mut bench = bench();
    let answer = || udp("192.0.2.1:53", "203.0.113.1:5000", 8);
    port_outside(&mut bench, "10.0.0.1:5000", "192.0.2.1:53");
    bench.wait(299 * SECOND_NS);
    port_outside(&mut bench, "10.0.0.1:5000", "192.0.2.1:53");
    bench.wait(299 * SECOND_NS);
    bench.forwarded(&mut answer());
    bench.wait(2 * SECOND_NS);
    bench.dropped(&mut answer());
}

#[test]
fn tcp_mappings_live_by_their_state() {
    let out = |flags| tcp("10.0.0.1:6000", "192.0.2.1:80", flags);
    let back = |flags| tcp("192.0.2.1:80", "203.0.113.1:6000", flags);
    // An unanswered SYN lives 4 minutes.
    let mut bench = bench();
    bench.forwarded(&mut out(SYN));
    bench.wait(241 * SECOND_NS);
    bench.dropped(&mut back(SYN | ACK));
    // An established connection lives 2 hours and 4 minutes.
    bench.forwarded(&mut out(SYN));
    bench.forwarded(&mut back(SYN | ACK));
    bench.forwarded(&mut out(ACK));
    bench.wait(7_439 * SECOND_NS);
    bench.forwarded(&mut back(ACK));
    // After both FINs 4 minutes, also though an ACK follows.
    bench.forwarded(&mut out(FIN));
    bench.forwarded(&mut back(FIN));
    bench.forwarded(&mut out(ACK));
    bench.wait(241 * SECOND_NS);
    bench.dropped(&mut back(ACK));
}

#[test]
fn queries_of_icmp_are_mapped_by_their_identifier() {
    let mut bench = bench();
    for (host, expected) in [("10.0.0.1", Some(7_000)), ("10.0.0.2", None)] {
        let mut echo = icmp_echo(host, "192.0.2.1", 8, 7_000);
        bench.forwarded(&mut echo);
        let identifier = word(&echo, 24);
        assert!(expected.is_none_or(|expected| expected == identifier));
        let mut reply = icmp_echo("192.0.2.1", "203.0.113.1", 0, identifier);
        bench.forwarded(&mut reply);
        assert_eq!(word(&reply, 24), 7_000);
        assert_eq!(Packet::new(&mut reply, 0).addresses().expect("a packet").1, address(host));
    }
    bench.wait(61 * SECOND_NS);
    bench.dropped(&mut icmp_echo("192.0.2.1", "203.0.113.1", 0, 7_000));
}

#[test]
fn hosts_inside_reach_each_other_by_the_outside_address() {
    let mut bench = bench();
    port_outside(&mut bench, "10.0.0.1:5000", "192.0.2.1:53");
    let mut packet = udp("10.0.0.2:6000", "203.0.113.1:5000", 8);
    bench.forwarded(&mut packet);
    let expected = (address("203.0.113.1"), 6_000, address("10.0.0.1"), 5_000);
    assert_eq!(ends(&packet), expected, "REQ-9a: with the outside source");
    assert_eq!(bench.counters()[HAIRPINNED], 1);
}

/// The packet inside an ICMP error, and the checksum of its header.
fn inside(error: &[u8]) -> Vec<u8> {
    assert!(holds(error), "the error's own checksums");
    let inside = error[28..].to_vec();
    assert_eq!(nilometer_plugin::checksum::checksum(&inside[..20]), 0, "the header inside");
    inside
}

#[test]
fn errors_are_translated_with_the_packet_inside_them() {
    let mut bench = bench();
    for mut sent in [
        udp("10.0.0.1:5001", "192.0.2.1:53", 12),
        udp("10.0.0.2:5001", "192.0.2.1:53", 12),
        tcp("10.0.0.1:5001", "192.0.2.1:80", SYN),
    ] {
        let original = sent.clone();
        bench.forwarded(&mut sent);
        let mut error = icmp_error("198.51.100.7", "203.0.113.1", &sent);
        bench.forwarded(&mut error);
        assert_eq!(inside(&error), original, "as the host had sent it, checksums too");
        let (from, to) = Packet::new(&mut error, 0).addresses().expect("a packet");
        assert_eq!((from, to), (address("198.51.100.7"), ends(&original).0));
    }
    // And outbound: a host inside reports that a port is closed.
    let mut came = udp("192.0.2.1:53", "203.0.113.1:5001", 12);
    let original = came.clone();
    bench.forwarded(&mut came);
    let mut error = icmp_error("10.0.0.1", "192.0.2.1", &came);
    bench.forwarded(&mut error);
    assert_eq!(inside(&error), original);
    let source = Packet::new(&mut error, 0).addresses().expect("a packet").0;
    assert_eq!(source, address("203.0.113.1"));
    assert_eq!(bench.counters()[ERRORS], 4);
    // About a packet that was never sent.
    let stray = udp("203.0.113.1:4", "192.0.2.1:53", 12);
    bench.dropped(&mut icmp_error("198.51.100.7", "203.0.113.1", &stray));
}

#[test]
fn packets_neither_from_inside_nor_to_the_outside_address_are_untouched() {
    let mut bench = bench();
    for mut packet in [
        udp("192.0.2.1:1", "192.0.2.2:2", 8),
        udp("10.0.0.1:1", "10.0.0.2:2", 8),
        udp("[fd00::1]:1", "[fd00::2]:2", 8),
    ] {
        let before = packet.clone();
        bench.forwarded(&mut packet);
        assert_eq!(packet, before);
    }
    assert_eq!(bench.counters()[UNTOUCHED], 3);
}

#[test]
fn fragments_and_other_protocols_are_dropped_and_counted() {
    let mut bench = bench();
    let mut fragment = udp("10.0.0.1:1", "192.0.2.2:2", 8);
    fragment[6] = 0x20;
    bench.dropped(&mut fragment);
    let (source, destination) = (address("10.0.0.1"), address("192.0.2.1"));
    bench.dropped(&mut crate::testing::packet(source, destination, 47, &[0; 20]));
    assert_eq!((bench.counters()[FRAGMENTS], bench.counters()[UNSUPPORTED]), (1, 1));
}

#[test]
fn mappings_are_bounded_and_room_comes_back() {
    let mut bench = Bench::<Nat>::new(&format!("{SETTINGS} mappings=10"));
    for host in 0..20 {
        let mut packet = udp(&format!("10.0.0.{host}:5000"), "192.0.2.1:53", 8);
        let expected = if host < 10 { Decision::Forward } else { Decision::Drop };
        assert_eq!(bench.decide(&mut packet), expected, "host {host}");
    }
    assert_eq!(bench.counters()[EXHAUSTED], 10);
    bench.wait(301 * SECOND_NS);
    for host in 30..40 {
        port_outside(&mut bench, &format!("10.0.0.{host}:5000"), "192.0.2.1:53");
    }
    let listed = bench.message("mappings").expect("an answer");
    assert_eq!(listed.lines().count(), 10);
    assert!(listed.contains("protocol 17 10.0.0.30:5000 is 5000 outside"), "{listed}");
}

#[test]
fn no_two_endpoints_share_a_port() {
    let mut bench = Bench::<Nat>::new(&format!("{SETTINGS} ports=2000-2999"));
    let mut random = nilometer_plugin::Random::new(1);
    let mut owners = alloc::collections::BTreeMap::new();
    let mut made = 0;
    for _ in 0..3_000 {
        let (host, port) = (random.below(40), 1_000 + random.below(20));
        let source = format!("10.0.0.{host}:{port}");
        let mut packet = udp(&source, "192.0.2.1:53", 8);
        if bench.decide(&mut packet) == Decision::Forward {
            let outside = ends(&packet).1;
            assert!((2_000..=2_999).contains(&outside));
            assert_eq!(*owners.entry(outside).or_insert_with(|| source.clone()), source);
            made += 1;
        }
    }
    assert!(owners.len() > 700 && made > 2_800, "{} {made}", owners.len());
}

#[test]
fn settings_are_checked() {
    assert_eq!(refused::<Nat>("outside=192.0.2.1"), "`inside=` is missing");
    let ports = format!("{SETTINGS} ports=0-9");
    assert_eq!(refused::<Nat>(&ports), "`ports=0-9` is not FIRST-LAST with two ports or more");
    let mappings = format!("{SETTINGS} mappings=0");
    assert_eq!(refused::<Nat>(&mappings), "`mappings=` must be from 1 to 65536");
}
