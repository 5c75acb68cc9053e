//! ICMP errors: their contents, their source address, and when none may be sent (RFC 1812, 4.3 and 5.2.7).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nilometer_router::classifier::{Action, Octet, Rule, RuleId};
use nilometer_router::discard::Discard;
use nilometer_router::forward::icmp_suppression::Suppression;
use nilometer_router::neighbour::{Given, link_local};
use nilometer_router::next_hop::{Hop, Rejection};
use nilometer_wire::{Time, build};

use crate::bench::{Bench, framed, host, mac, mend, udp, with_hop_limit};
use crate::icmp;

/// The source address of the IP packet in a frame.
fn source(frame: &[u8]) -> IpAddr {
    if frame[14] >> 4 == 4 {
        let octets: [u8; 4] = frame[26..30].try_into().expect("four");
        return octets.into();
    }
    let octets: [u8; 16] = frame[22..38].try_into().expect("sixteen");
    octets.into()
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[test]
fn broadcasts_of_every_port_are_known() {
    let mut bench = Bench::new();
    for (from, to, hop_limit, why) in [
        ("198.19.0.9", "198.18.2.255", 64, Discard::Broadcast),
        ("198.19.0.9", "198.18.0.255", 64, Discard::Broadcast),
        ("198.19.0.9", "198.18.2.255", 1, Discard::Expired),
        ("198.18.3.255", "198.19.1.9", 64, Discard::MartianSource),
        ("198.18.0.255", "198.19.1.9", 64, Discard::MartianSource),
        ("198.19.0.9", "255.255.255.255", 64, Discard::MartianDestination),
    ] {
        let before = bench.router.ports()[0].discards().of(why);
        let out = bench.pass(0, &framed(0, &with_hop_limit(udp(from, to, 30), hop_limit)));
        assert!(out.is_empty(), "{from} to {to}: {out:?}");
        assert_eq!(bench.router.ports()[0].discards().of(why), before + 1, "{from} to {to}");
    }
    assert_eq!(
        bench.router.reports().silent[Suppression::Broadcast as usize],
        1,
        "the expired one"
    );
    // An echo request to all is not answered, though it is for the router as well (5.3.5.2).
    let echo = build::icmp(ip("198.19.0.9"), ip("198.18.2.255"), 8, 0, &[0; 9]);
    assert!(bench.pass(0, &framed(0, &echo)).is_empty());
    let mut all = framed(0, &udp("198.19.0.9", "198.18.0.255", 30));
    all[..6].fill(0xff);
    assert!(bench.pass(0, &all).is_empty());
    assert_eq!(bench.router.ports()[0].discards().of(Discard::Broadcast), 4);
}

#[test]
fn unicast_packets_in_broadcast_frames_are_discarded() {
    let mut bench = Bench::new();
    for packet in [udp("198.19.0.9", "198.19.1.9", 30), udp("fd00:10::9", "fd00:11::9", 30)] {
        let mut frame = framed(0, &packet);
        frame[0] = 0x33;
        assert!(bench.pass(0, &frame).is_empty());
    }
    assert_eq!(bench.router.ports()[0].discards().of(Discard::LinkBroadcast), 2);
}

#[test]
fn an_error_is_from_the_port_that_it_leaves_by() {
    for (from, to, own) in [
        ("198.19.0.9", "198.19.2.9", "198.18.0.1"),
        ("198.18.0.2", "198.19.2.9", "198.18.0.1"),
        ("fd00:10::9", "fd00:12::9", "fd00:0::1"),
    ] {
        // It came by port 1, but the route to its sender is by port 0.
        let packet = with_hop_limit(udp(from, to, 30), 1);
        let out = Bench::new().pass(1, &framed(1, &packet));
        let [(0, frame)] = &out[..] else { panic!("{out:?}") };
        assert_eq!((source(frame), &frame[6..12]), (ip(own), &mac(0)[..]));
    }
}

#[test]
fn a_port_without_an_address_uses_that_of_another() {
    let mut bench = Bench::with(|plans| {
        plans.ports[3].addresses6.clear();
        plans.ports[3].link_local = Some(link_local(mac(3)));
    });
    let gateway = Ipv6Addr::from(link_local(host(3)));
    let table = bench.router.port_mut(3).neighbours6_mut();
    table.set(Time::ZERO, gateway.into(), host(3), Given::Permanent).expect("room");
    let next = bench.way(Hop::Via { port: 3, gateway: Some(gateway.into()) });
    bench.route6("fd00:13::/64", next);
    bench.renew();
    let packet = with_hop_limit(udp("fd00:13::9", "fd00:11::9", 30), 1);
    let out = bench.pass(3, &framed(3, &packet));
    let [(3, frame)] = &out[..] else { panic!("{out:?}") };
    assert_eq!((source(frame), icmp(frame)), (ip("fd00:0::1"), (3, 0)));
}

#[test]
fn an_error_to_an_unreachable_sender_is_counted() {
    let mut bench = Bench::new();
    let packet = with_hop_limit(udp("198.51.7.9", "198.19.1.9", 30), 1);
    assert!(bench.pass(0, &framed(0, &packet)).is_empty());
    assert_eq!(bench.router.reports().silent[Suppression::NoWay as usize], 1);
}

#[test]
fn a_redirect_names_the_better_router() {
    let own_host = Ipv4Addr::new(198, 18, 0, 50);
    let known = |bench: &mut Bench| {
        let table = &mut bench.router.port_mut(0).arp_mut().table;
        table.set(Time::ZERO, own_host.into(), host(9), Given::Permanent).expect("room");
    };
    let mut bench = Bench::new();
    known(&mut bench);
    let packet = udp("198.18.0.50", "198.19.0.9", 30);
    let mut out = bench.pass(0, &framed(0, &packet));
    out.sort_by_key(|(_, frame)| frame[23]);
    let [(0, icmp_error), (0, forwarded)] = &out[..] else { panic!("{out:?}") };
    assert_eq!((icmp(icmp_error), &icmp_error[38..42]), ((5, 1), &[198, 18, 0, 2][..]));
    assert_eq!(
        (source(icmp_error), &icmp_error[30..34]),
        (ip("198.18.0.1"), &own_host.octets()[..])
    );
    assert_eq!((&icmp_error[..6], &forwarded[..6]), (&host(9)[..], &host(0)[..]));
    assert!(icmp_error.windows(packet.len()).any(|some| some == packet), "quoted as it came");
    // No redirect for a sender of another network, for a source route, or where the way is straight.
    let across = framed(0, &udp("198.19.0.7", "198.19.0.9", 30));
    assert_eq!(bench.pass(0, &across).len(), 1);
    let six = framed(0, &udp("fd00:0::50", "fd00:10::9", 30));
    assert_eq!(bench.pass(0, &six).len(), 1);
    let back = framed(0, &udp("198.18.0.2", "198.19.0.9", 30));
    assert_eq!(bench.pass(0, &back).len(), 1);
    let mut silent = Bench::with(|plans| plans.ports[0].redirects = false);
    known(&mut silent);
    assert_eq!(silent.pass(0, &framed(0, &packet)).len(), 1);
}

#[test]
fn prohibited_packets_are_answered_unless_switched_off() {
    let packets = [
        framed(0, &udp("198.19.0.9", "198.51.3.1", 30)),
        framed(0, &udp("fd00:10::9", "fd00:51::1", 30)),
    ];
    for (tells, expected) in [(true, [Some((3, 13)), Some((1, 1))]), (false, [None, None])] {
        let mut bench = Bench::with(|plans| plans.router.rfc1812.tells_prohibited = tells);
        let next = bench.way(Hop::Reject(Rejection::Prohibited));
        bench.route4("198.51.3.0/24", next);
        bench.route6("fd00:51::/32", next);
        bench.renew();
        let icmp_error = packets
            .each_ref()
            .map(|packet| bench.pass(0, packet).first().map(|(_, frame)| icmp(frame)));
        assert_eq!(icmp_error, expected);
        assert_eq!(bench.router.ports()[0].discards().of(Discard::Rejected), 2);
    }
}

#[test]
fn denied_packets_are_answered_only_if_configured() {
    for (tells, expected) in [(true, Some((3, 13))), (false, None)] {
        let mut bench = Bench::with(|plans| plans.router.rfc1812.tells_denied = tells);
        let rule = Rule::any(1, Action::Deny);
        bench.router.tables_mut().filters4.insert(RuleId(1), rule).expect("room");
        let out = bench.pass(0, &framed(0, &udp("198.19.0.9", "198.19.1.9", 30)));
        assert_eq!(out.first().map(|(_, frame)| icmp(frame)), expected);
        assert_eq!(bench.router.ports()[0].discards().of(Discard::Denied), 1);
    }
}

#[test]
fn fragments_that_hide_flags_pass_only_where_no_filter_asks_for_flags() {
    // Addresses with one that needs further checks, and the most common ones.
    for (from, to) in [("198.19.0.9", "198.19.1.9"), ("10.9.9.9", "10.1.0.9")] {
        hide_flags(from, to);
    }
}

fn hide_flags(from: &str, to: &str) {
    let fragment = |fragmentation: u16, bytes: usize| {
        let mut packet = udp(from, to, bytes - 8);
        packet[6..8].copy_from_slice(&fragmentation.to_be_bytes());
        packet[9] = 6;
        framed(0, &mend(packet))
    };
    // A first fragment without flags, one laid over them, and two that are as they should be.
    let sent = [(0x2000, 8), (1, 12), (0x2000, 24), (3, 24)].map(|(at, bytes)| fragment(at, bytes));
    let mut bench = Bench::new();
    let next = bench.way(Hop::Via { port: 1, gateway: Some(ip("198.18.1.2")) });
    bench.route4("10.1.0.0/16", next);
    bench.renew();
    let mut passed = |asks: bool| {
        if asks {
            let acks = Rule { flags: Octet::new(0x10, 0x10), ..Rule::any(1, Action::Deny) };
            bench.router.tables_mut().filters4.insert(RuleId(1), acks).expect("room");
        }
        let out = sent.each_ref().map(|frame| bench.pass(0, frame).len());
        (out, bench.router.ports()[0].discards().of(Discard::Fragment))
    };
    assert_eq!(passed(false), ([1, 1, 1, 1], 0));
    assert_eq!(passed(true), ([0, 0, 1, 1], 2));
}

#[test]
fn only_dont_fragment_causes_a_too_big_message() {
    // A fragment so far behind that its pieces would wrap around: no smaller packet would help.
    let mut packet = udp("198.19.0.9", "198.19.1.9", 1_600);
    packet[6..8].copy_from_slice(&(8_190u16 | 0x2000).to_be_bytes());
    let mut bench = Bench::new();
    assert!(bench.pass(0, &framed(0, &mend(packet.clone()))).is_empty());
    // The first fragment of the same datagram, which must not be fragmented: its sender can send smaller
    // packets.
    packet[6..8].copy_from_slice(&0x6000u16.to_be_bytes());
    let out = bench.pass(0, &framed(0, &mend(packet)));
    assert_eq!(out.first().map(|(_, frame)| icmp(frame)), Some((3, 4)));
    assert_eq!(bench.router.ports()[0].discards().of(Discard::TooBig), 2);
}

#[test]
fn the_limits_and_the_time_to_live_of_messages_can_be_set() {
    let mut bench = Bench::with(|plans| {
        plans.router.rfc1812.hop_limit = 9;
        plans.router.rfc1812.answers_echo = false;
        for kind in &mut plans.router.rfc1812.limits.0 {
            kind.destination.burst = 1;
        }
    });
    let expired = framed(0, &with_hop_limit(udp("198.19.0.9", "198.19.1.9", 30), 1));
    let out = bench.pass(0, &expired);
    let [(0, frame)] = &out[..] else { panic!("{out:?}") };
    assert_eq!((icmp(frame), frame[22]), ((11, 0), 9));
    assert!(bench.pass(0, &expired).is_empty(), "a burst of one");
    let echo = build::icmp(ip("198.19.0.9"), ip("198.18.1.1"), 8, 0, &[0; 9]);
    assert!(bench.pass(0, &framed(0, &echo)).is_empty());
}

#[test]
fn a_link_local_source_beyond_its_link_gets_beyond_scope() {
    let mut bench = Bench::new();
    let sender: u128 = 0xfe80 << 112 | 9;
    let table = bench.router.port_mut(0).neighbours6_mut();
    table.set(Time::ZERO, sender, host(0), Given::Permanent).expect("room");
    let out = bench.pass(0, &framed(0, &udp("fe80::9", "fd00:11::9", 30)));
    let [(0, frame)] = &out[..] else { panic!("{out:?}") };
    assert_eq!(icmp(frame), (1, 2), "RFC 4443, 3.1: beyond the scope of the source");
    assert_eq!((&frame[22..24], &frame[38..54]), (&[0xfe, 0x80][..], &sender.to_be_bytes()[..]));
    // Of the link, but for no host here; to a group; to the router itself at another port; IPv4: silence.
    for to in ["fe80::77", "ff0e::1", "fd00:1::1"] {
        assert!(bench.pass(0, &framed(0, &udp("fe80::9", to, 30))).is_empty(), "{to}");
    }
    assert!(bench.pass(0, &framed(0, &udp("169.254.0.9", "198.19.1.9", 30))).is_empty());
    assert_eq!(bench.router.ports()[0].discards().of(Discard::MartianSource), 5);
}
