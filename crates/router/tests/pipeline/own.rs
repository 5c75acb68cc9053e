//! Packets for the router itself: reassembled, answered, or refused with an error.

use std::net::{IpAddr, Ipv6Addr};

use nilometer_router::classifier::{Action, Rule, RuleId};
use nilometer_router::discard::Discard;
use nilometer_router::forward::options::SourceRouting;
use nilometer_router::forward::reassemble::{Outcome, Reassembler, Settings};
use nilometer_router::forward::{fragment::Fragments, source_fragment};
use nilometer_router::memory::Memory;
use nilometer_router::neighbour::{Given, link_local};
use nilometer_router::next_hop::{Hop, Member};
use nilometer_wire::{Span, Time, build};

use crate::bench::{Bench, framed, host, mac, mend, udp, with_hop_limit};
use crate::icmp;
use crate::options::with_options;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// An echo request with `bytes` of data, which may be cut.
fn echo(from: &str, to: &str, bytes: usize) -> Vec<u8> {
    let (from, to) = (ip(from), ip(to));
    let body: Vec<u8> = (0..bytes + 4).map(|at| (at / 8) as u8).collect();
    if from.is_ipv6() {
        return build::icmp(from, to, 128, 0, &body);
    }
    let mut request = build::icmp(from, to, 8, 0, &body);
    request[6] = 0;
    mend(request)
}

/// Echo requests to an address of port 1 with `bytes` of data, and the types of their replies.
fn requests(bytes: usize) -> [(Vec<u8>, (u8, u8)); 2] {
    let four = echo("198.19.0.9", "198.18.1.1", bytes);
    let six = echo("fd00:10::9", "fd00:1::1", bytes);
    [(four, (0, 0)), (six, (129, 0))]
}

fn cut(packet: &[u8]) -> Vec<Vec<u8>> {
    match packet[0] >> 4 {
        4 => Fragments::of(packet, 1_280).expect("it may be cut").collect(),
        _ => source_fragment::pieces(packet, 1_280, 99),
    }
}

#[test]
fn an_echo_request_in_pieces_is_answered_in_pieces() {
    for bytes in [1_400, 4_000, 20_000] {
        for (request, kind) in requests(bytes) {
            let mut bench = Bench::new();
            let mut pieces = cut(&request);
            assert!(pieces.len() > 1);
            pieces.reverse();
            let last = pieces.pop().expect("a piece");
            for piece in &pieces {
                assert!(bench.pass(0, &framed(0, piece)).is_empty());
            }
            assert_eq!(bench.router.reassembly().waiting, pieces.len() as u64);
            let out = bench.pass(0, &framed(0, &last));
            let mut table = Reassembler::new(Settings::default());
            let mut whole = None;
            for (port, frame) in &out {
                assert!(*port == 0 && frame.len() <= 14 + 1_500);
                let outcome = match out.len() {
                    1 => Outcome::Whole(frame[14..].to_vec()),
                    _ => table.push(Time::ZERO, 0, &frame[14..]),
                };
                if let Outcome::Whole(packet) = outcome {
                    whole = Some(packet);
                }
            }
            let reply = whole.unwrap_or_else(|| panic!("a reply among {}", out.len()));
            assert_eq!(reply.len(), request.len());
            let data_at = reply.len() - bytes - 4;
            assert_eq!(reply[data_at..], request[data_at..], "all data comes back");
            assert_eq!(icmp(&build::ethernet(&reply)), kind);
            assert_eq!(bench.router.reassembly().waiting, 0);
        }
    }
}

#[test]
fn the_largest_reply_is_discarded_if_there_is_no_way_back() {
    for (from, to, bytes, why) in [
        ("198.51.7.9", "198.18.1.1", 65_507, Discard::NoRoute),
        ("198.51.9.9", "198.18.1.1", 65_507, Discard::Blackhole),
        ("198.18.2.1", "198.18.1.1", 65_507, Discard::NoRoute),
        ("fd00:51::9", "fd00:1::1", 65_487, Discard::NoRoute),
        ("fd00:2::1", "fd00:1::1", 65_487, Discard::NoRoute),
    ] {
        let mut bench = Bench::new();
        let blackhole = bench.way(Hop::Blackhole);
        bench.route4("198.51.9.0/24", blackhole);
        bench.renew();
        let request = echo(from, to, bytes);
        assert_eq!(request.len(), 65_535);
        let out: Vec<_> =
            cut(&request).iter().flat_map(|piece| bench.pass(0, &framed(0, piece))).collect();
        assert!(out.is_empty(), "{from}: {} frames", out.len());
        assert_eq!(bench.router.reassembly().waiting, 0);
        assert_eq!(bench.router.ports()[0].discards().of(why), 1, "{from}");
    }
}

#[test]
fn an_incomplete_datagram_is_answered_after_a_minute() {
    for ((request, _), expected) in requests(4_000).into_iter().zip([(11, 1), (3, 1)]) {
        let mut bench = Bench::new();
        let pieces = cut(&request);
        for piece in &pieces[..2] {
            assert!(bench.pass(0, &framed(0, piece)).is_empty());
        }
        bench.now += Span::from_secs(59);
        assert!(bench.drain().is_empty());
        let due = bench.router.poll_timeout().expect("a timeout");
        bench.now += Span::from_secs(1);
        assert!(due <= bench.now);
        let out = bench.drain();
        let [(0, frame)] = &out[..] else { panic!("{out:?}") };
        assert_eq!(icmp(frame), expected);
        // Without the first piece there is nothing to quote.
        bench.pass(0, &framed(0, &pieces[1]));
        bench.now += Span::from_secs(61);
        assert!(bench.drain().is_empty());
        assert_eq!(bench.router.reassembly().waiting, 0);
    }
}

#[test]
fn pieces_that_overlap_are_dropped() {
    let mut bench = Bench::new();
    let [(request, _), _] = requests(4_000);
    let pieces = cut(&request);
    bench.pass(0, &framed(0, &pieces[0]));
    let mut other = pieces[1].clone();
    other[7] -= 1; // eight bytes further to the front
    bench.pass(0, &framed(0, &mend(other)));
    assert_eq!(bench.router.ports()[0].discards().of(Discard::Fragment), 1);
}

#[test]
fn pieces_on_their_way_are_not_put_together() {
    let mut four = udp("198.19.0.9", "198.19.1.9", 4_000);
    four[6] = 0;
    for packet in [mend(four), udp("fd00:10::9", "fd00:11::9", 4_000)] {
        let mut bench = Bench::new();
        for piece in cut(&packet) {
            let out = bench.pass(0, &framed(0, &piece));
            assert_eq!(out.len(), 1);
            assert_eq!(out[0].1.len(), 14 + piece.len());
        }
        assert_eq!(bench.router.reassembly().received, 0);
    }
}

#[test]
fn a_packet_to_the_router_may_use_up_its_time_to_live() {
    for (request, kind) in requests(30) {
        for hop_limit in [0, 1] {
            let packet = with_hop_limit(request.clone(), hop_limit);
            let out = Bench::new().pass(0, &framed(0, &packet));
            let [(0, frame)] = &out[..] else { panic!("{out:?}") };
            assert_eq!(icmp(frame), kind);
        }
    }
}

#[test]
fn an_address_without_a_local_route_is_the_routers_all_the_same() {
    let mut bench = Bench::with(|plans| {
        plans.ports[2].addresses4.push((0xc612_0242, 24)); // 198.18.2.66
    });
    let echo = build::icmp(ip("198.19.0.9"), ip("198.18.2.66"), 8, 0, &[0; 9]);
    // Whatever its remaining time to live (RFC 1812, 4.2.2.9).
    for hop_limit in [64, 1, 0] {
        let out = bench.pass(0, &framed(0, &with_hop_limit(echo.clone(), hop_limit)));
        let [(0, frame)] = &out[..] else { panic!("{out:?}") };
        assert_eq!((icmp(frame), &frame[26..30]), ((0, 0), &[198, 18, 2, 66][..]), "{hop_limit}");
    }
}

#[test]
fn unreachable_ports_and_protocols_of_the_router_are_answered() {
    let sctp = |from, to| build::ip_packet(ip(from), ip(to), 132, vec![0; 20]);
    for (packet, expected) in [
        (udp("198.19.0.9", "198.18.1.1", 30), Some((3, 3))),
        (udp("fd00:10::9", "fd00:1::1", 30), Some((1, 4))),
        (sctp("198.19.0.9", "198.18.1.1"), Some((3, 2))),
        (sctp("fd00:10::9", "fd00:1::1"), Some((4, 1))),
        (build::ip_packet(ip("198.19.0.9"), ip("198.18.1.1"), 2, vec![0; 20]), None),
        (build::ip_packet(ip("fd00:10::9"), ip("fd00:1::1"), 2, vec![0; 20]), None),
        (build::ip_packet(ip("fd00:10::9"), ip("fd00:1::1"), 6, vec![0; 20]), None),
        (build::ip_packet(ip("fd00:10::9"), ip("fd00:1::1"), 59, vec![]), None),
        (build::ip_packet(ip("fd00:10::9"), ip("fd00:1::1"), 59, vec![0; 20]), None),
    ] {
        let mut bench = Bench::new();
        let out = bench.pass(0, &framed(0, &packet));
        assert_eq!(out.first().map(|(_, frame)| icmp(frame)), expected, "{packet:?}");
        if expected == Some((4, 1)) {
            assert_eq!(out[0].1[58..62], [0, 0, 0, 6], "at the protocol's number");
        }
        if let Some((_, icmp_error)) = out.first()
            && packet[0] >> 4 == 6
        {
            assert_eq!(icmp_error[22..38], packet[24..40], "from the address that was asked");
        }
    }
}

#[test]
fn a_datagram_of_ipv6_without_a_checksum_is_not_answered() {
    for (from, to, expected) in
        [("198.19.0.9", "198.18.1.1", Some((3, 3))), ("fd00:10::9", "fd00:1::1", None)]
    {
        let mut packet = udp(from, to, 30);
        let checksum_at = packet.len() - 32;
        packet[checksum_at..][..2].fill(0);
        let mut bench = Bench::new();
        let out = bench.pass(0, &framed(0, &packet));
        assert_eq!(out.first().map(|(_, frame)| icmp(frame)), expected, "to {to}");
        let lost = bench.router.ports()[0].discards().of(Discard::NoUse);
        assert_eq!(lost, u64::from(expected.is_none()));
    }
}

#[test]
fn all_nodes_of_a_link_may_be_pinged() {
    let mut bench = Bench::new();
    let peer = link_local(host(3));
    let table = bench.router.port_mut(3).neighbours6_mut();
    table.set(Time::ZERO, peer, host(3), Given::Permanent).expect("room");
    let peer = Ipv6Addr::from(peer);
    let echo = build::icmp(peer.into(), ip("ff02::1"), 128, 0, &[1, 2, 3, 4, 5]);
    let mut frame = framed(3, &echo);
    frame[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 1]);
    let out = bench.pass(3, &frame);
    let [(3, reply)] = &out[..] else { panic!("{out:?}") };
    assert_eq!((icmp(reply), &reply[..6]), ((129, 0), &host(3)[..]));
    assert_eq!(reply[22..38], link_local(mac(3)).to_be_bytes());
}

#[test]
fn hosts_behind_a_link_of_the_kernel_are_not_answered_for() {
    for (from, to, kind, expected) in
        [("198.19.0.9", "198.51.0.9", 8, (3, 0)), ("fd00:10::9", "fd00:51::9", 128, (1, 0))]
    {
        for is_punting in [false, true] {
            let mut bench = Bench::with(|plans| plans.ports[0].is_punting = is_punting);
            let beside = bench.way(Hop::KernelLink);
            bench.route4("0.0.0.0/0", beside);
            bench.route6("::/0", beside);
            bench.renew();
            let mut packets =
                vec![build::icmp(ip(from), ip(to), kind, 0, &[0; 9]), udp(from, to, 30)];
            if ip(from).is_ipv4() {
                packets.push(with_options(from, to, &[7, 7, 4, 0, 0, 0, 0], 30)); // record route
            }
            for packet in &packets {
                let out = bench.pass(0, &framed(0, packet));
                let icmp_error = out.first().map(|(_, frame)| icmp(frame));
                assert_eq!(icmp_error, (!is_punting).then_some(expected), "to {to}");
                let punted = bench.router.poll_punted(0);
                assert_eq!(punted.is_some(), is_punting, "to {to}");
                punted.into_iter().for_each(|place| bench.memory.give(place));
            }
            let lost = bench.router.ports()[0].discards().of(Discard::NoRoute);
            assert_eq!(lost, if is_punting { 0 } else { packets.len() as u64 });
        }
    }
}

#[test]
fn packets_routed_to_a_kernel_link_outside_a_batch_are_punted_as_well() {
    let mut bench = Bench::with(|plans| {
        plans.router.rfc1812.source_routing = SourceRouting::Follow;
        plans.ports[0].is_punting = true;
        plans.ports[2].mtu_bytes = 1_280;
    });
    let punted = |bench: &mut Bench| -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        while let Some(place) = bench.router.poll_punted(0) {
            packets.push(bench.memory.frame(place)[14..].to_vec());
            bench.memory.give(place);
        }
        packets
    };
    let by_port = Hop::Via { port: 2, gateway: Some(ip("198.18.2.2")) };
    let hops = [by_port, Hop::KernelLink].map(|hop| Member { hop, weight: 1 });
    let both = bench.hops.define(&hops).expect("room");
    bench.route4("198.51.0.0/16", both);
    let beside = bench.way(Hop::KernelLink);
    bench.route4("198.52.0.0/16", beside);
    bench.renew();
    // Pieces know their addresses alone: those of a packet that went by the port may go beside.
    let (mut pieces, mut sent) = (0, 0);
    for last in 0..60 {
        let mut packet = udp("198.19.0.9", &format!("198.51.0.{last}"), 1_400);
        packet[6] = 0;
        let out = bench.pass(0, &framed(0, &mend(packet)));
        assert!(out.iter().all(|(port, _)| *port == 2), "no error is sent");
        sent += out.len();
        pieces += punted(&mut bench).iter().filter(|packet| packet.len() < 1_300).count();
    }
    assert!(pieces > 10 && sent > 10, "{pieces} punted, {sent} sent");
    // A source route that leads there is the kernel's to follow, or not.
    let packet = with_options("198.19.0.9", "198.18.1.1", &[131, 7, 4, 198, 52, 0, 9], 30);
    assert_eq!(bench.pass(0, &framed(0, &packet)), []);
    assert_eq!(punted(&mut bench), [&packet[..]]);
    assert_eq!(bench.router.ports()[0].discards().total(), 0);
    // Without a kernel beside it the route has failed.
    bench.router.port_mut(0).set_punting(false);
    let out = bench.pass(0, &framed(0, &packet));
    assert_eq!(out.iter().map(|(_, frame)| icmp(frame)).collect::<Vec<_>>(), [(3, 5)]);
    assert!(punted(&mut bench).is_empty());
}

#[test]
fn link_local_neighbours_of_ipv4_are_answered_and_not_forwarded() {
    let mut bench = Bench::with(|plans| {
        plans.router.rfc1812.tells_denied = true;
        for port in [1, 3] {
            plans.ports[port].addresses4.push((0xa9fe_0001 | (port as u32) << 8, 16)); // 169.254.N.1
        }
    });
    // The routes there lead elsewhere: they are not consulted.
    let [elsewhere, local] = [Hop::Via { port: 2, gateway: Some(ip("198.18.2.2")) }, Hop::Local]
        .map(|hop| bench.way(hop));
    bench.route4("0.0.0.0/0", elsewhere);
    for port in [1, 3] {
        bench.route4(&format!("169.254.{port}.1/32"), local);
        let (table, at) = (&mut bench.router.port_mut(port).arp_mut().table, (port as u32) << 8);
        table.set(Time::ZERO, 0xa9fe_0009 | at, host(port), Given::Permanent).expect("room");
    }
    let denied = "203.9.9.0/24".parse().expect("a prefix");
    let denied = Rule { destination: denied, ..Rule::any(1, Action::Deny) };
    bench.router.tables_mut().filters4.insert(RuleId(1), denied).expect("room");
    bench.renew();
    let mut icmp_error = |port: usize, packet: Vec<u8>| {
        let out = bench.pass(port, &framed(port, &packet));
        out.first().map(|(port, frame)| (*port, icmp(frame)))
    };
    for port in [1, 3] {
        let (from, to) = (format!("169.254.{port}.9"), format!("169.254.{port}.1"));
        assert_eq!(icmp_error(port, echo(&from, &to, 9)), Some((port, (0, 0))));
        assert_eq!(icmp_error(port, udp(&from, &to, 30)), Some((port, (3, 3))));
        assert_eq!(icmp_error(port, udp(&from, "203.9.9.9", 30)), Some((port, (3, 13))));
    }
    // Of the link of port 0 none is such a network.
    assert_eq!(icmp_error(0, echo("169.254.0.9", "198.18.0.1", 9)), None);
    assert_eq!(icmp_error(0, udp("169.254.0.9", "203.9.9.9", 30)), None);
    let refused = [("169.254.3.9", "198.19.1.9"), ("169.254.3.9", "198.18.1.1")];
    for (from, to) in refused.into_iter().chain([("169.254.255.255", "169.254.3.1")]) {
        assert_eq!(icmp_error(3, udp(from, to, 30)), None, "{from} to {to}");
    }
    assert_eq!(bench.router.ports()[3].discards().of(Discard::MartianSource), 3);
}

#[test]
fn a_loopback_address_of_the_router_is_pinged() {
    let mut bench = Bench::new();
    let next = bench.way(Hop::Local);
    bench.route4("198.51.0.1/32", next);
    bench.renew();
    let echo = build::icmp(ip("198.19.0.9"), ip("198.51.0.1"), 8, 0, &[0; 9]);
    let out = bench.pass(0, &framed(0, &echo));
    assert_eq!(out.first().map(|(_, frame)| icmp(frame)), Some((0, 0)));
}
