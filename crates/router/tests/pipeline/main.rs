//! The pipeline from end to end, in memory: what comes out of which port for what went in.

mod admin;
mod bench;
mod by_port;
mod common;
mod cost;
mod discovery;
mod frames;
mod groups;
mod hostile;
mod icmp_errors;
mod messages;
mod options;
mod own;
mod plugin_batches;
mod plugin_changes;
mod plugin_hostile;
mod plugins;
mod recorded;
mod reserved;
mod reverse;
mod shortcut;
mod signalling;
mod storm;

use std::net::{IpAddr, Ipv4Addr};

use bench::{Bench, framed, host, mac, mend, udp, with_hop_limit};
use nilometer_router::Prefix;
use nilometer_router::classifier::{Action, ByPort, ClassifierTuples, Inputs, Rule, RuleId};
use nilometer_router::discard::Discard;
use nilometer_router::neighbour::{ArpOperation, ArpPacket, BROADCAST};
use nilometer_router::next_hop::{Hop, Member, Point, Rejection};
use nilometer_wire::build;
use nilometer_wire::checksum::{ipv4_header_checksum_ok, transport_checksum_ok};

const FAMILIES: [(&str, &str); 2] = [("198.19.0.9", "198.19.1.9"), ("fd00:10::9", "fd00:11::9")];

/// The type and code of an ICMP message of either family.
fn icmp(frame: &[u8]) -> (u8, u8) {
    let at = if frame[14] >> 4 == 4 { 34 } else { 54 };
    assert_eq!(transport_checksum_ok(&frame[14..]), Some(true));
    (frame[at], frame[at + 1])
}

#[test]
fn a_packet_goes_on_with_one_hop_less() {
    for (from, to) in FAMILIES {
        let packet = udp(from, to, 30);
        let mut padded = framed(0, &packet);
        padded.extend([0; 9]);
        let out = Bench::new().pass(0, &padded);
        let [(1, frame)] = &out[..] else { panic!("{out:?}") };
        assert_eq!((&frame[..6], &frame[6..12]), (&host(1)[..], &mac(1)[..]));
        let expected = with_hop_limit(packet, 63);
        assert_eq!(frame[14..], expected[..], "and nothing else has changed");
    }
}

/// The ARP reply to a request.
pub fn answer(request: &ArpPacket) -> ([u8; 64], usize) {
    let reply = ArpPacket {
        frame_to: request.frame_from,
        frame_from: [2, 0, 0, 9, 9, 9],
        operation: ArpOperation::Reply,
        sender_mac: [2, 0, 0, 9, 9, 9],
        sender: request.target,
        target_mac: request.sender_mac,
        target: request.sender,
    };
    let mut frame = [0; 64];
    let bytes = reply.write(&mut frame);
    (frame, bytes)
}

#[test]
fn an_unknown_neighbour_is_resolved_while_the_packet_waits() {
    let mut bench = Bench::new();
    let out = bench.pass(0, &framed(0, &udp("198.19.0.9", "198.18.2.77", 30)));
    let [(2, frame)] = &out[..] else { panic!("{out:?}") };
    let request = ArpPacket::read(frame).expect("ARP");
    assert_eq!((request.operation, request.frame_to), (ArpOperation::Request, BROADCAST));
    assert_eq!(request.target, u32::from(Ipv4Addr::new(198, 18, 2, 77)));
    assert_eq!(bench.router.inside(), 1);
    let (frame, bytes) = answer(&request);
    let out = bench.pass(2, &frame[..bytes]);
    let [(2, frame)] = &out[..] else { panic!("{out:?}") };
    assert_eq!((frame[..6].to_vec(), frame[22]), (vec![2, 0, 0, 9, 9, 9], 63));
}

#[test]
fn the_last_packets_for_an_unknown_neighbour_wait_and_the_others_are_dropped_silently() {
    let mut bench = Bench::new();
    let mut request = None;
    for number in 0..100 {
        let out = bench.pass(0, &framed(0, &udp("198.19.0.9", "198.18.2.77", 30 + number)));
        assert!(out.iter().all(|(port, _)| *port == 2), "no message for {number}: {out:?}");
        request = request.or(out.first().and_then(|(_, frame)| ArpPacket::read(frame)));
    }
    assert_eq!(bench.router.ports()[0].discards().of(Discard::Unresolved), 97);
    let (frame, bytes) = answer(&request.expect("it was requested"));
    let out = bench.pass(2, &frame[..bytes]);
    let lengths: Vec<usize> = out.iter().map(|(_, frame)| frame.len() - 42).collect();
    assert_eq!(lengths, [127, 128, 129], "the newest, in their order");
}

#[test]
fn a_neighbour_that_does_not_answer_is_host_unreachable() {
    let mut bench = Bench::new();
    bench.receive(0, &framed(0, &udp("198.19.0.9", "198.18.2.77", 30)));
    let mut icmp_error = None;
    for _ in 0..200 {
        bench.now += nilometer_wire::Span::from_nanos(50_000_000);
        icmp_error = icmp_error.or(bench.drain().into_iter().find(|(port, _)| *port == 0));
    }
    assert_eq!(icmp(&icmp_error.expect("a message").1), (3, 1));
    assert_eq!(bench.router.ports()[0].discards().of(Discard::Unresolved), 1);
}

#[test]
fn an_expired_hop_limit_is_answered() {
    for ((from, to), expected) in FAMILIES.into_iter().zip([(11, 0), (3, 0)]) {
        for hop_limit in [0, 1] {
            let mut bench = Bench::new();
            let packet = with_hop_limit(udp(from, to, 30), hop_limit);
            let out = bench.pass(0, &framed(0, &packet));
            let [(0, frame)] = &out[..] else { panic!("{out:?}") };
            assert_eq!(icmp(frame), expected);
            assert!(frame.windows(packet.len()).any(|some| some == packet), "quoted as it came");
            assert_eq!(bench.router.ports()[0].discards().of(Discard::Expired), 1);
        }
    }
}

#[test]
fn unusable_routes_are_answered_or_dropped_silently() {
    let mut bench = Bench::new();
    let out = bench.pass(0, &framed(0, &udp("198.19.0.9", "198.51.0.1", 30)));
    assert_eq!(icmp(&out[0].1), (3, 0), "no route");
    for (third, hop, expected) in [
        (1, Hop::Blackhole, None),
        (2, Hop::Reject(Rejection::Unreachable), Some((3, 0))),
        (3, Hop::Reject(Rejection::Prohibited), Some((3, 13))),
    ] {
        let next = bench.way(hop);
        bench.route4(&format!("198.51.{third}.0/24"), next);
        bench.renew();
        let out = bench.pass(0, &framed(0, &udp("198.19.0.9", &format!("198.51.{third}.1"), 30)));
        assert_eq!(out.first().map(|(_, frame)| icmp(frame)), expected, "{hop:?}");
    }
    let discards = bench.router.ports()[0].discards();
    let counts = [Discard::NoRoute, Discard::Blackhole, Discard::Rejected];
    assert_eq!(counts.map(|why| discards.of(why)), [1, 1, 2]);
}

#[test]
fn a_packet_too_big_is_fragmented_or_answered() {
    let frame = |bytes: usize, dont: bool| {
        let mut packet = udp("198.19.0.9", "198.19.1.9", bytes);
        packet[6] = if dont { 0x40 } else { 0 };
        framed(0, &mend(packet))
    };
    let mut bench = Bench::new();
    let out = bench.pass(0, &frame(1_600, true));
    let [(0, icmp_error)] = &out[..] else { panic!("{out:?}") };
    assert_eq!(
        (icmp(icmp_error), u16::from_be_bytes([icmp_error[40], icmp_error[41]])),
        ((3, 4), 1_500)
    );
    let out = bench.pass(0, &frame(1_600, false));
    assert_eq!(
        out.iter().map(|(port, frame)| (*port, frame.len())).collect::<Vec<_>>(),
        [(1, 1_514), (1, 14 + 20 + 1_608 - 1_480)]
    );
    assert!(out.iter().all(|(_, frame)| ipv4_header_checksum_ok(&frame[14..]) == Some(true)));
    let out = bench.pass(0, &framed(0, &udp("fd00:10::9", "fd00:11::9", 1_600)));
    assert_eq!(icmp(&out[0].1), (2, 0));
}

#[test]
fn the_router_answers_an_echo_request() {
    for (from, own, kinds) in
        [("198.19.0.9", "198.18.1.1", (8, 0)), ("fd00:10::9", "fd00:1::1", (128, 129))]
    {
        let [from, own] = [from, own].map(|text| text.parse::<IpAddr>().expect("an address"));
        let packet = build::icmp(from, own, kinds.0, 0, &[1, 2, 3, 4, 5, 6]);
        let out = Bench::new().pass(0, &framed(0, &packet));
        let [(0, frame)] = &out[..] else { panic!("{out:?}") };
        assert_eq!(icmp(frame), (kinds.1, 0));
    }
}

#[test]
fn filters_and_martians_stop_packets() {
    let mut bench = Bench::new();
    let all: Prefix<u32> = "0.0.0.0/0".parse().expect("a prefix");
    let rule = Rule {
        destination: "198.19.1.0/24".parse().expect("a prefix"),
        source: all,
        ..Rule::any(1, Action::Deny)
    };
    bench.router.tables_mut().filters4.insert(RuleId(5), rule).expect("room");
    assert!(bench.pass(0, &framed(0, &udp("198.19.0.9", "198.19.1.9", 30))).is_empty());
    assert_eq!(bench.pass(0, &framed(0, &udp("198.19.0.9", "198.19.2.9", 30))).len(), 1);
    let (_, filter) = bench.router.tables().filters4.get(RuleId(5)).expect("the rule");
    assert_eq!((filter.packets, filter.bytes), (1, 58));
    bench.router.tables_mut().filters4.remove(RuleId(5));
    assert_eq!(bench.pass(0, &framed(0, &udp("198.19.0.9", "198.19.1.9", 30))).len(), 1);
    for (from, to) in
        [("127.0.0.1", "198.19.1.9"), ("198.19.0.9", "127.0.0.1"), ("::1", "fd00:11::9")]
    {
        assert!(bench.pass(0, &framed(0, &udp(from, to, 30))).is_empty());
    }
    let discards = bench.router.ports()[0].discards();
    let counts = [Discard::Denied, Discard::MartianSource, Discard::MartianDestination];
    assert_eq!(counts.map(|why| discards.of(why)), [1, 2, 1]);
}

#[test]
fn no_answer_of_the_flow_cache_outlives_its_classifier() {
    let to = |prefix: &str| Rule {
        destination: prefix.parse().expect("a prefix"),
        ..Rule::any(1, Action::Deny)
    };
    let mut bench = Bench::new();
    let frame = framed(0, &udp("198.19.0.9", "198.19.1.9", 30));
    let filters = &mut bench.router.tables_mut().filters4;
    filters.set_flow_cache(Some(64));
    filters.insert(RuleId(1), to("198.51.1.0/24")).expect("room");
    filters.insert(RuleId(2), to("198.51.2.0/24")).expect("room");
    filters.remove(RuleId(1));
    assert_eq!(bench.pass(0, &frame).len(), 1);
    // The next one has seen one change, and after two more as many as the first.
    let mut filled = ByPort::<u32>::new(Box::new(ClassifierTuples::new(100)));
    filled.insert(RuleId(2), Inputs::ANY, to("198.51.2.0/24")).expect("room");
    let filters = &mut bench.router.tables_mut().filters4;
    assert!(filters.exchange_filled(filled).is_ok());
    filters.insert(RuleId(3), to("198.51.3.0/24")).expect("room");
    filters.insert(RuleId(4), to("198.19.1.0/24")).expect("room");
    assert!(bench.pass(0, &frame).is_empty(), "denied by the newest");
}

#[test]
fn frames_for_others_and_for_all_are_not_forwarded() {
    let mut bench = Bench::new();
    let mut frame = framed(0, &udp("198.19.0.9", "198.19.1.9", 30));
    frame[5] ^= 0x40;
    assert!(bench.pass(0, &frame).is_empty());
    frame[..6].fill(0xff);
    assert!(bench.pass(0, &frame).is_empty());
    let discards = bench.router.ports()[0].discards();
    assert_eq!((discards.of(Discard::OtherStation), discards.total()), (1, 2));
}

#[test]
fn a_failed_gateway_moves_its_flows_to_the_other() {
    let mut bench = Bench::new();
    let gateway = |third| IpAddr::from(Ipv4Addr::new(198, 18, third, 2));
    let member =
        |port| Member { hop: Hop::Via { port, gateway: Some(gateway(port as u8)) }, weight: 1 };
    let group = bench.hops.define(&[member(1), member(2)]).expect("room");
    bench.route4("198.51.0.0/16", group);
    bench.renew();
    let ports = |bench: &mut Bench| {
        let mut seen = [0; 4];
        for last in 0..100 {
            let packet = udp("198.19.0.9", &format!("198.51.0.{last}"), 30);
            bench.pass(0, &framed(0, &packet)).iter().for_each(|(port, _)| seen[*port] += 1);
        }
        seen
    };
    let both = ports(&mut bench);
    assert!(both[1] > 20 && both[2] > 20 && both[1] + both[2] == 100, "{both:?}");
    bench.fail(Point::Gateway { port: 1, address: gateway(1) });
    assert_eq!(ports(&mut bench), [0, 0, 100, 0]);
}

#[test]
fn a_copy_goes_to_management_and_the_packet_goes_on() {
    let mut bench = Bench::new();
    let rule = Rule { is_copied: true, ..Rule::any(1, Action::Permit) };
    bench.router.tables_mut().filters4.insert(RuleId(0), rule).expect("room");
    let frame = framed(0, &udp("198.19.0.9", "198.19.1.9", 30));
    assert_eq!(bench.pass(0, &frame).len(), 1);
    let (port, place) = bench.router.poll_copy().expect("a copy");
    use nilometer_router::memory::Memory;
    assert_eq!((port, bench.memory.frame(place)), (0, &frame[..]));
    bench.memory.give(place);
    assert!(bench.router.balances());
}
