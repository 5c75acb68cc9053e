//! IPv6 without a static entry: the router solicits, answers and tests its addresses for duplicates
//! as Linux hosts expect.

use std::net::{IpAddr, Ipv6Addr};

use nilometer_router::discard::Discard;
use nilometer_router::memory::Memory;
use nilometer_router::neighbour::{
    Answer, ArpOperation, ArpPacket, BROADCAST, Envelope, FRAME_BYTES_MAX, Given, Mac, Message,
    Reason, State, link_local,
};
use nilometer_router::next_hop::Hop;
use nilometer_wire::{Time, build};

use crate::bench::{Bench, PORTS, framed, host, mac, udp, with_hop_limit};

const ALL_NODES: &str = "ff02::1";

fn address(text: &str) -> u128 {
    text.parse::<Ipv6Addr>().expect("an address").into()
}

/// The group to which an address is solicited, and its link-layer address.
fn solicited_node(target: u128) -> (u128, Mac) {
    let [_, b, c, d] = (target as u32).to_be_bytes();
    (address("ff02::1:ff00:0") | target & 0xff_ffff, [0x33, 0x33, 0xff, b, c, d])
}

fn written(message: Message, envelope: Envelope) -> Vec<u8> {
    let mut frame = [0; FRAME_BYTES_MAX];
    let bytes = message.write(&envelope, &mut frame);
    frame[..bytes].to_vec()
}

/// The question of a host behind `port` for `target`.
fn question(port: usize, source: u128, target: u128) -> Vec<u8> {
    let (destination, frame_to) = solicited_node(target);
    let mac = (source != 0).then_some(host(port));
    let envelope = Envelope { frame_to, frame_from: host(port), source, destination };
    written(Message::Solicitation { target, mac }, envelope)
}

/// The answer of a host behind `port`, which has `target`, to the router.
fn answer(port: usize, target: u128, to: u128) -> Vec<u8> {
    let line =
        Answer { mac: Some(host(port)), is_solicited: true, overrides: true, is_router: false };
    let (frame_to, frame_from) = (mac(port), host(port));
    let envelope = Envelope { frame_to, frame_from, source: target, destination: to };
    written(Message::Advertisement { target, answer: line }, envelope)
}

/// The messages of neighbour discovery among what left.
fn messages(out: &[(usize, Vec<u8>)]) -> Vec<(usize, Envelope, Message)> {
    let read = |(port, frame): &(usize, Vec<u8>)| {
        Message::read(frame).ok().map(|(envelope, message)| (*port, envelope, message))
    };
    out.iter().filter_map(read).collect()
}

/// A router that tries its addresses, and has no neighbours.
fn bench() -> Bench {
    Bench::with(|plans| plans.ports.iter_mut().for_each(|plan| plan.address_probes = 1))
}

#[test]
fn addresses_are_tried_and_then_announced() {
    let mut bench = bench();
    let trials = messages(&bench.drain());
    assert_eq!(trials.len(), 2 * PORTS);
    for port in 0..PORTS {
        let own = address(&format!("fd00:{port}::1"));
        for target in [link_local(mac(port)), own] {
            let (destination, frame_to) = solicited_node(target);
            let envelope = Envelope { frame_to, frame_from: mac(port), source: 0, destination };
            assert!(trials.contains(&(
                port,
                envelope,
                Message::Solicitation { target, mac: None }
            )));
        }
        let own6 = bench.router.ports()[port].neighbours6().own();
        assert!(own6.addresses().is_empty(), "not before a second has gone by");
    }
    let announced = messages(&bench.wait(1_100));
    assert_eq!(announced.len(), 2 * PORTS);
    for (port, envelope, message) in announced {
        let Message::Advertisement { target, answer } = message else { panic!("{message:?}") };
        assert!(bench.router.ports()[port].neighbours6().own().has(target));
        assert_eq!((envelope.source, envelope.destination), (target, address(ALL_NODES)));
        assert_eq!(answer.mac, Some(mac(port)));
        assert!(answer.overrides && answer.is_router && !answer.is_solicited);
    }
    assert_eq!(link_local([2, 0, 0, 0, 0, 7]), address("fe80::ff:fe00:7"));
}

#[test]
fn two_hosts_talk_without_a_static_entry() {
    let mut bench = bench();
    bench.wait(1_100);
    // The host behind port 0 solicits its router, from its link-local address.
    let own_host = link_local(host(0));
    let out = messages(&bench.pass(0, &question(0, own_host, address("fd00:0::1"))));
    let [(0, envelope, Message::Advertisement { answer: line, .. })] = out[..] else {
        panic!("{out:?}");
    };
    assert_eq!((envelope.destination, envelope.frame_to), (own_host, host(0)));
    assert!(line.is_solicited && line.is_router && line.mac == Some(mac(0)));
    // Its packet waits until the host behind port 1 has answered.
    let packet = udp("fd00:0::9", "fd00:1::9", 30);
    let requested = bench.pass(0, &framed(0, &packet));
    let out = messages(&requested);
    let [(1, envelope, Message::Solicitation { target, mac: Some(from) })] = out[..] else {
        panic!("{out:?}");
    };
    assert_eq!(
        (target, from, envelope.source),
        (address("fd00:1::9"), mac(1), address("fd00:1::1"))
    );
    assert_eq!((envelope.destination, envelope.frame_to), solicited_node(target));
    assert_eq!((requested.len(), bench.router.inside()), (1, 1));
    let out = bench.pass(1, &answer(1, target, envelope.source));
    let [(1, frame)] = &out[..] else { panic!("{out:?}") };
    assert_eq!((&frame[..6], frame[21]), (&host(1)[..], 63));
    let entry = bench.router.ports()[1].neighbours6().entry(target).expect("an entry");
    assert_eq!(entry.state, State::Reachable);
    // From now on packets go at once.
    assert_eq!(bench.pass(0, &framed(0, &packet)).len(), 1);
}

#[test]
fn an_address_that_another_has_is_not_used() {
    let mut bench = bench();
    bench.drain();
    let own = address("fd00:2::1");
    bench.pass(2, &objection(own));
    bench.wait(1_100);
    let port = &bench.router.ports()[2];
    assert!(!port.neighbours6().own().has(own));
    assert_eq!(port.duplicates(), [own]);
    assert!(bench.router.ports()[1].duplicates().is_empty());
    let [from, to] = ["fd00:0::9", "fd00:2::1"].map(|text| text.parse::<IpAddr>().expect("one"));
    let echo = build::icmp(from, to, 128, 0, &[0; 8]);
    assert!(bench.pass(0, &framed(0, &echo)).is_empty(), "nor is it answered from");
    assert_eq!(bench.router.ports()[0].discards().of(Discard::NoUse), 1);
}

/// The answer of the host behind port 2 when the router probes `target`, which the host has.
fn objection(target: u128) -> Vec<u8> {
    let line =
        Answer { mac: Some(host(2)), is_solicited: false, overrides: true, is_router: false };
    let (frame_to, destination) = ([0x33, 0x33, 0, 0, 0, 1], address(ALL_NODES));
    let envelope = Envelope { frame_to, frame_from: host(2), source: target, destination };
    written(Message::Advertisement { target, answer: line }, envelope)
}

#[test]
fn a_link_local_address_that_another_has_on_one_link_is_used_on_others() {
    let own = address("fe80::1");
    let mut bench = Bench::with(|plans| {
        for plan in &mut plans.ports {
            (plan.link_local, plan.address_probes) = (Some(own), 1);
        }
    });
    bench.drain();
    bench.pass(2, &objection(own));
    bench.wait(1_100);
    assert_eq!(bench.router.ports()[2].duplicates(), [own]);
    let mut ping = |port: usize| {
        let peer = link_local(host(port));
        bench.pass(port, &question(port, peer, own));
        let [from, to] = [peer, own].map(|address| Ipv6Addr::from(address).into());
        bench.pass(port, &framed(port, &build::icmp(from, to, 128, 0, &[0; 8]))).len()
    };
    assert_eq!((0..PORTS).map(&mut ping).collect::<Vec<_>>(), [1, 1, 0, 1]);
}

#[test]
fn an_address_that_another_had_at_a_port_that_is_gone_is_used_elsewhere() {
    let mut bench = bench();
    bench.drain();
    let own = address("fd00:2::1");
    bench.pass(2, &objection(own));
    bench.router.unplug(2, &mut bench.memory).expect("it is there");
    let four = bench.router.ports()[1].plan().addresses4.clone();
    bench.router.set_addresses(bench.now, 1, &four, &[(own, 64)]).expect("sound");
    let peer = link_local(host(1));
    bench.wait(1_100);
    bench.pass(1, &question(1, peer, own));
    let [from, to] = [peer, own].map(|address| Ipv6Addr::from(address).into());
    let out = bench.pass(1, &framed(1, &build::icmp(from, to, 128, 0, &[0; 8])));
    let [(1, frame)] = &out[..] else { panic!("{out:?}") };
    assert_eq!(frame[54], 129);
}

#[test]
fn a_duplicate_address_may_belong_to_a_neighbour() {
    let mut bench = bench();
    let lost = address("fd00:1::1");
    bench.wait(1);
    bench.receive(1, &objection(lost));
    bench.wait(1_100);
    let table = bench.router.port_mut(1).neighbours6_mut();
    assert_eq!(table.set(Time::ZERO, lost, host(1), Given::Permanent), Ok(()));
}

#[test]
fn a_neighbour_set_by_hand_is_there_while_addresses_are_tried() {
    let mut bench = bench();
    let (gateway, elsewhere) = (address("fd00:1::2"), address("fd00:99::2"));
    let table = bench.router.port_mut(1).neighbours6_mut();
    assert!(table.own().addresses().is_empty(), "all are on trial");
    table.set(Time::ZERO, gateway, host(1), Given::Permanent).expect("on a prefix of the port");
    let refused = table.set(Time::ZERO, elsewhere, host(1), Given::Permanent);
    assert_eq!(refused, Err(Reason::OffLink));
    let own = table.set(Time::ZERO, address("fd00:1::1"), host(1), Given::Permanent);
    assert_eq!(own, Err(Reason::Own), "an address on trial is no neighbour's");
    let learnt = table.set(Time::ZERO, gateway + 1, host(1), Given::Reachable);
    assert_eq!(learnt, Err(Reason::OffLink), "what is not for good waits for the trial");
    bench.wait(1_100);
    // Nor does it go with the link, whose addresses are tried again.
    for is_up in [false, true] {
        bench.router.set_link(bench.now, 1, is_up, &mut bench.memory).expect("a port");
        let entry = bench.router.ports()[1].neighbours6().entry(gateway).expect("an entry");
        assert_eq!((entry.mac, entry.state), (Some(host(1)), State::Permanent));
    }
    let out = bench.pass(0, &framed(0, &udp("fd00:10::9", "fd00:11::9", 30)));
    let forwarded = out.iter().find(|(_, frame)| frame[20] == 17).expect("it is not held");
    assert_eq!((forwarded.0, &forwarded.1[..6]), (1, &host(1)[..]));
    bench.wait(1_100);
    // It goes with its prefix.
    bench.router.set_addresses(bench.now, 1, &[], &[]).expect("none is sound");
    assert!(bench.router.ports()[1].neighbours6().entry(gateway).is_none());
}

#[test]
fn a_ping_within_the_link_is_answered_and_does_not_cross() {
    let mut bench = bench();
    bench.wait(1_100);
    let own = Ipv6Addr::from(link_local(mac(3)));
    let peer = Ipv6Addr::from(link_local(host(3)));
    bench.pass(3, &question(3, peer.into(), own.into()));
    let echo = build::icmp(peer.into(), own.into(), 128, 0, &[1, 2, 3, 4, 5]);
    let out = bench.pass(3, &framed(3, &echo));
    let [(3, frame)] = &out[..] else { panic!("{out:?}") };
    assert_eq!((frame[54], &frame[..6]), (129, &host(3)[..]));
    assert_eq!(frame[22..38], own.octets());
    let across = build::icmp(peer.into(), "fd00:11::9".parse().expect("one"), 128, 0, &[0; 8]);
    let out = bench.pass(3, &framed(3, &across));
    let [(3, frame)] = &out[..] else { panic!("{out:?}") };
    assert_eq!((frame[54], frame[55]), (1, 2), "the sender gets an error (RFC 4443, 3.1)");
    let elsewhere = build::icmp(peer.into(), own.into(), 128, 0, &[0; 8]);
    assert!(bench.pass(2, &framed(2, &elsewhere)).is_empty(), "the address is of one link");
    let discards = |port: usize| bench.router.ports()[port].discards().of(Discard::MartianSource);
    assert_eq!((discards(3), discards(2)), (1, 1));
}

#[test]
fn neighbour_messages_are_processed_during_a_flood() {
    let mut bench = bench();
    bench.wait(1_100);
    let flood = framed(0, &with_hop_limit(udp("198.19.0.9", "198.19.1.9", 30), 1));
    let own = address("fd00:0::1");
    let arp = ArpPacket {
        frame_to: BROADCAST,
        frame_from: host(0),
        operation: ArpOperation::Request,
        sender_mac: host(0),
        sender: 0xc612_004d, // 198.18.0.77
        target_mac: [0; 6],
        target: 0xc612_0001,
    };
    let mut request = [0; 64];
    let bytes = arp.write(&mut request);
    for _ in 0..1_000 {
        bench.receive(0, &flood);
    }
    bench.receive(0, &request[..bytes]);
    bench.receive(0, &question(0, link_local(host(0)), own));
    let discarded = |bench: &Bench| bench.router.ports()[0].discards().of(Discard::SlowPathFull);
    assert_eq!(discarded(&bench), 1_000 - 512, "of the flood alone");
    // Both are answered in the next turn, long before the flood is through.
    let answers = |bench: &Bench| {
        let port = &bench.router.ports()[0];
        (port.arp().table.ledger().answers, port.neighbours6().ledger().answers)
    };
    let before = answers(&bench);
    bench.router.advance(bench.now, &mut bench.memory, &mut ());
    assert_eq!(answers(&bench), (before.0 + 1, before.1 + 1));
    assert!(bench.router.inside() >= 512 - 64);
    // A flood of questions is bounded as well, and does not stop the rest.
    bench.wait(3);
    bench.receive(0, &flood);
    for _ in 0..1_000 {
        bench.receive(0, &request[..bytes]);
    }
    assert_eq!(discarded(&bench), 2 * (1_000 - 512));
    let expired = |bench: &Bench| bench.router.ports()[0].discards().of(Discard::Expired);
    let before = expired(&bench);
    bench.router.advance(bench.now, &mut bench.memory, &mut ());
    assert_eq!(expired(&bench), before + 1);
    bench.wait(3);
}

#[test]
fn a_gateway_may_be_link_local() {
    let mut bench = bench();
    bench.wait(1_100);
    let gateway = Ipv6Addr::from(link_local(host(1)));
    let next = bench.way(Hop::Via { port: 1, gateway: Some(gateway.into()) });
    bench.route6("fd00:77::/32", next);
    bench.renew();
    let packet = framed(0, &udp("fd00:0::9", "fd00:77::9", 30));
    let out = messages(&bench.pass(0, &packet));
    let [(1, envelope, Message::Solicitation { target, .. })] = out[..] else { panic!("{out:?}") };
    assert_eq!((target, envelope.source), (gateway.into(), link_local(mac(1))));
    assert_eq!(bench.pass(1, &answer(1, target, envelope.source)).len(), 1);
    assert_eq!(bench.pass(0, &packet).len(), 1);
}

#[test]
fn messages_that_the_router_does_not_answer_are_punted() {
    let mut bench = Bench::with(|plans| {
        plans.ports.iter_mut().for_each(|plan| plan.is_punting = true);
    });
    let peer = link_local(host(1));
    let mut punted = |frame: &[u8]| {
        let out = bench.pass(1, frame).len();
        let place = bench.router.poll_punted(1);
        place.into_iter().for_each(|place| bench.memory.give(place));
        (out, place.is_some())
    };
    assert_eq!(punted(&question(1, peer, address("fd00:1::1"))), (1, false), "it answers itself");
    assert_eq!(punted(&question(1, peer, address("fe80::77"))), (0, true), "an address of the tap");
    assert_eq!(punted(&answer(1, address("fd00:1::2"), address("fd00:1::1"))), (0, true));
    let envelope = Envelope {
        frame_to: [0x33, 0x33, 0, 0, 0, 2],
        frame_from: host(1),
        source: peer,
        destination: address("ff02::2"),
    };
    let ask = Message::RouterSolicitation { mac: Some(host(1)) };
    assert_eq!(punted(&written(ask, envelope)), (0, true), "advertisements are another's");
}
