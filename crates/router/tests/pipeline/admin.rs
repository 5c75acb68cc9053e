//! Changes to a running router: no packet is lost without a reason, and the next one sees the
//! change.

use std::net::{IpAddr, Ipv4Addr};

use nilometer_router::discard::Discard;
use nilometer_router::neighbour::{ArpOperation, ArpPacket, BROADCAST, Given, Message, link_local};
use nilometer_router::next_hop::{Hop, Member, Point};
use nilometer_router::pipeline::Rfc1812Settings;
use nilometer_router::pipeline::admin::Refusal;
use nilometer_router::pipeline::port::{PortError, PortPlan};
use nilometer_wire::build;

use crate::bench::{Bench, framed, host, mac, port, udp};
use crate::icmp;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn four(text: &str) -> u32 {
    text.parse::<Ipv4Addr>().expect("an address").into()
}

fn set_link(bench: &mut Bench, port: usize, is_up: bool) {
    bench.router.set_link(bench.now, port, is_up, &mut bench.memory).expect("a port");
}

fn discarded(bench: &Bench, port: usize, why: Discard) -> u64 {
    bench.router.ports()[port].discards().of(why)
}

/// The question of a host on port 0 for an IPv4 address.
fn arp_question(target: &str) -> Vec<u8> {
    let packet = ArpPacket {
        frame_to: BROADCAST,
        frame_from: host(0),
        operation: ArpOperation::Request,
        sender_mac: host(0),
        sender: four("198.18.0.77"),
        target_mac: [0; 6],
        target: four(target),
    };
    let mut frame = [0; 64];
    let bytes = packet.write(&mut frame);
    frame[..bytes].to_vec()
}

#[test]
fn packets_queued_for_a_port_that_goes_down_are_discarded() {
    let mut bench = Bench::new();
    // One waits for an address, forty in the queues of the fabric; a neighbour is known, one is set.
    bench.pass(0, &framed(0, &udp("198.19.0.9", "198.18.2.77", 30)));
    for _ in 0..40 {
        bench.receive(0, &framed(0, &udp("198.19.0.9", "198.19.2.9", 30)));
    }
    let (now, learnt) = (bench.now, four("198.18.2.99"));
    let table = &mut bench.router.port_mut(2).arp_mut().table;
    table.set(now, learnt, [2, 9, 9, 9, 9, 9], Given::Reachable).expect("room");
    assert_eq!(bench.router.inside(), 41);
    set_link(&mut bench, 2, false);
    assert_eq!(discarded(&bench, 0, Discard::PortDown), 1);
    let table = &bench.router.ports()[2].arp().table;
    assert!(table.entry(learnt).is_none() && table.entry(four("198.18.2.2")).is_some());
    assert!(bench.drain().is_empty());
    assert_eq!((bench.router.inside(), discarded(&bench, 2, Discard::PortDown)), (0, 40));
    // Nothing enters or leaves, not even the router's own packets; arriving ones are counted.
    let came = bench.router.ports()[2].received();
    assert!(bench.pass(0, &framed(0, &udp("198.19.0.9", "198.19.2.9", 30))).is_empty());
    assert!(bench.pass(2, &framed(2, &udp("198.19.2.9", "198.19.0.9", 30))).is_empty());
    assert_eq!(bench.router.ports()[2].received(), (came.0 + 1, came.1 + 14 + 58));
    let expired = udp("198.19.2.9", "198.51.0.1", 30);
    assert!(bench.pass(1, &framed(1, &expired)).is_empty());
    assert_eq!(discarded(&bench, 0, Discard::PortDown), 2);
    assert_eq!(discarded(&bench, 1, Discard::PortDown), 1, "an error that could not leave");
    assert_eq!(discarded(&bench, 2, Discard::PortDown), 41);
    set_link(&mut bench, 2, true);
    let out = bench.drain();
    let announced: Vec<u32> = out
        .iter()
        .filter_map(|(_, frame)| ArpPacket::read(frame))
        .filter(|packet| packet.sender == packet.target)
        .map(|packet| packet.target)
        .collect();
    assert_eq!(announced, [four("198.18.2.1")]);
    assert_eq!(bench.pass(0, &framed(0, &udp("198.19.0.9", "198.19.2.9", 30))).len(), 1);
}

#[test]
fn addresses_of_ipv6_are_tried_again_when_the_link_comes_up() {
    let mut bench = Bench::with(|plans| plans.ports[1].address_probes = 1);
    bench.wait(1_100);
    set_link(&mut bench, 1, false);
    bench.wait(5);
    set_link(&mut bench, 1, true);
    let tried = |out: &[(usize, Vec<u8>)]| {
        let read = out.iter().filter_map(|(port, frame)| Some((port, Message::read(frame).ok()?)));
        let trial = |(port, (envelope, message)): (&usize, _)| {
            let envelope: nilometer_router::neighbour::Envelope = envelope;
            *port == 1
                && envelope.source == 0
                && matches!(message, Message::Solicitation { mac: None, .. })
        };
        read.filter(|read| trial((read.0, read.1))).count()
    };
    assert_eq!(tried(&bench.drain()), 2);
    assert!(!bench.router.ports()[1].neighbours6().own().has(link_local(mac(1))));
    bench.wait(1_100);
    assert!(bench.router.ports()[1].neighbours6().own().has(link_local(mac(1))));
}

#[test]
fn flows_leave_a_port_that_fails_and_return() {
    let mut bench = Bench::new();
    let member = |third| Member {
        hop: Hop::Via { port: third, gateway: Some(ip(&format!("198.18.{third}.2"))) },
        weight: 1,
    };
    let group = bench.hops.define(&[member(1), member(2)]).expect("room");
    bench.route4("198.51.0.0/16", group);
    bench.renew();
    let ports = |bench: &mut Bench| {
        let mut seen = [0; 4];
        for last in 0..60 {
            let packet = udp("198.19.0.9", &format!("198.51.0.{last}"), 30);
            bench.pass(0, &framed(0, &packet)).iter().for_each(|(port, _)| seen[*port] += 1);
        }
        seen
    };
    let before = ports(&mut bench);
    assert!(before[1] > 10 && before[2] > 10);
    set_link(&mut bench, 1, false);
    bench.fail(Point::Port(1));
    assert_eq!(ports(&mut bench), [0, 0, 60, 0]);
    set_link(&mut bench, 1, true);
    bench.hops.restore(Point::Port(1));
    bench.renew();
    bench.drain();
    assert_eq!(ports(&mut bench), before);
}

#[test]
fn packets_routed_only_by_a_failed_port_get_net_unreachable() {
    let mut bench = Bench::new();
    set_link(&mut bench, 1, false);
    bench.fail(Point::Port(1));
    // Behind a router on the port's network, and on the network itself (RFC 1812, 5.3.12.3).
    for to in ["198.19.1.9", "198.18.1.9"] {
        let out = bench.pass(0, &framed(0, &udp("198.19.0.9", to, 30)));
        assert_eq!(
            out.first().map(|(port, frame)| (*port, icmp(frame))),
            Some((0, (3, 0))),
            "{to}"
        );
    }
}

#[test]
fn other_addresses_are_answered_for_from_the_next_packet_on() {
    let mut bench = Bench::new();
    let asks = |bench: &mut Bench, target: &str| {
        let out = bench.pass(0, &arp_question(target));
        out.iter().any(|(_, frame)| {
            ArpPacket::read(frame).is_some_and(|arp| arp.operation == ArpOperation::Reply)
        })
    };
    assert!(asks(&mut bench, "198.18.0.1") && !asks(&mut bench, "198.18.0.33"));
    let others = [(four("198.18.0.33"), 25)];
    let six = bench.router.ports()[0].plan().addresses6.clone();
    bench.router.set_addresses(bench.now, 0, &others, &six).expect("sound");
    assert!(asks(&mut bench, "198.18.0.33") && !asks(&mut bench, "198.18.0.1"));
    // The broadcast address is another one now.
    let to = |last: u8| framed(1, &udp("198.19.1.9", &format!("198.18.0.{last}"), 30));
    bench.pass(1, &to(127));
    bench.pass(1, &to(255));
    assert_eq!(discarded(&bench, 1, Discard::Broadcast), 1);
    assert_eq!(discarded(&bench, 1, Discard::Unresolved), 1, "off the link");
    // What cannot be changes nothing.
    let refused = bench.router.set_addresses(bench.now, 0, &[(four("198.18.0.255"), 24)], &six);
    assert!(matches!(refused, Err(Refusal::Port(PortError::Own(_)))), "{refused:?}");
    assert_eq!(bench.router.ports()[0].plan().addresses4, others);
    assert!(asks(&mut bench, "198.18.0.33"));
    assert_eq!(bench.router.set_addresses(bench.now, 9, &[], &[]), Err(Refusal::NoPort(9)));
    bench.router.set_addresses(bench.now, 0, &[], &[]).expect("none is sound");
    assert!(bench.router.ports()[0].neighbours6().own().addresses().is_empty());
}

#[test]
fn a_port_is_plugged_in_and_pulled_out() {
    let mut bench = Bench::with(|plans| plans.ports[3] = PortPlan::vacant());
    let across = framed(0, &udp("198.19.0.9", "198.18.3.77", 30));
    assert!(bench.pass(0, &across).is_empty());
    assert!(bench.pass(3, &across).is_empty());
    assert_eq!(discarded(&bench, 0, Discard::PortDown), 1);
    assert_eq!(
        bench.router.set_link(bench.now, 3, true, &mut bench.memory),
        Err(Refusal::Vacant(3))
    );
    assert_eq!(bench.router.unplug(3, &mut bench.memory), Err(Refusal::Vacant(3)));
    assert_eq!(bench.router.plug(bench.now, 0, port(0)), Err(Refusal::Occupied(0)));
    assert_eq!(bench.router.plug(bench.now, 4, port(0)), Err(Refusal::NoPort(4)));
    for station in [7, 8] {
        let plan = PortPlan { mac: [2, 0, 0, 0, 0, station], ..port(3) };
        bench.router.plug(bench.now, 3, plan).expect("a place");
        let table = &mut bench.router.port_mut(3).arp_mut().table;
        let their = [2, 7, 7, 7, 7, station];
        table.set(bench.now, four("198.18.3.77"), their, Given::Permanent).expect("room");
        table.set(bench.now, four("198.18.3.2"), their, Given::Permanent).expect("room");
        let out = bench.pass(0, &across);
        let [(3, frame)] = &out[..] else { panic!("{out:?}") };
        assert_eq!((&frame[..6], frame[11]), (&their[..], station));
        // The kept handle of the gateway is not taken for that of the next user.
        let out = bench.pass(0, &framed(0, &udp("198.19.0.9", "198.19.3.9", 30)));
        assert_eq!(out[0].1[..6], their);
        bench.receive(0, &across);
        bench.router.unplug(3, &mut bench.memory).expect("it is there");
        let early = bench.router.plug(bench.now, 3, port(3));
        assert_eq!(early, Err(Refusal::Draining(3)));
        assert!(bench.drain().is_empty());
        assert!(bench.pass(0, &across).is_empty());
    }
}

#[test]
fn forwarding_is_switched_off_and_the_router_still_answers() {
    let mut bench = Bench::with(|plans| plans.ports[1].forwards = false);
    let from = framed(1, &udp("198.19.1.9", "198.19.2.9", 30));
    let to = framed(2, &udp("198.19.2.9", "198.19.1.9", 30));
    for frame in [(1, &from), (2, &to)] {
        assert!(bench.pass(frame.0, frame.1).is_empty());
        assert_eq!(discarded(&bench, frame.0, Discard::ForwardingOff), 1);
    }
    let echo = build::icmp(ip("198.19.1.9"), ip("198.18.1.1"), 8, 0, &[0; 9]);
    let out = bench.pass(1, &framed(1, &echo));
    assert_eq!(out.first().map(|(port, frame)| (*port, icmp(frame))), Some((1, (0, 0))));
    bench.router.port_mut(1).set_forwards(true);
    assert_eq!(bench.pass(1, &from).len() + bench.pass(2, &to).len(), 2);
}

#[test]
fn the_mtu_of_a_port_is_limited_to_that_of_ip() {
    let mut bench = Bench::new();
    let mut packet = udp("198.19.0.9", "198.19.1.9", 1_350);
    packet[6] = 0x40;
    let frame = framed(0, &crate::bench::mend(packet));
    assert_eq!(bench.pass(0, &frame)[0].0, 1);
    bench.router.set_mtu(1, 1_300).expect("in range");
    let out = bench.pass(0, &frame);
    let [(0, icmp_error)] = &out[..] else { panic!("{out:?}") };
    assert_eq!(
        (icmp(icmp_error), u16::from_be_bytes([icmp_error[40], icmp_error[41]])),
        ((3, 4), 1_300)
    );
    for (bytes, why) in
        [(67, PortError::Mtu(67)), (9_217, PortError::Mtu(9_217)), (1_279, PortError::Mtu6(1_279))]
    {
        assert_eq!(bench.router.set_mtu(1, bytes), Err(Refusal::Port(why)));
    }
    assert_eq!(bench.router.ports()[1].plan().mtu_bytes, 1_300);
}

#[test]
fn rfc1812_settings_are_changed_under_way() {
    let mut bench = Bench::new();
    let echo = build::icmp(ip("198.19.0.9"), ip("198.18.1.1"), 8, 0, &[0; 9]);
    assert_eq!(bench.pass(0, &framed(0, &echo)).len(), 1);
    let settings =
        Rfc1812Settings { answers_echo: false, hop_limit: 5, ..Rfc1812Settings::default() };
    bench.router.set_rfc1812(settings);
    assert!(bench.pass(0, &framed(0, &echo)).is_empty());
    let out = bench.pass(0, &framed(0, &udp("198.19.0.9", "198.51.0.1", 30)));
    assert_eq!((icmp(&out[0].1), out[0].1[22]), ((3, 0), 5));
}
