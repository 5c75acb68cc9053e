//! Options on their way through: filled, followed, refused; and the headers of IPv6.

use std::net::IpAddr;

use nilometer_router::discard::Discard;
use nilometer_router::forward::options::SourceRouting;
use nilometer_router::forward::source_fragment;
use nilometer_router::memory::Memory;
use nilometer_router::next_hop::Hop;
use nilometer_wire::checksum::{internet_checksum, ipv4_header_checksum_ok};
use nilometer_wire::{Span, build};

use crate::bench::{Bench, framed, mend, udp, with_hop_limit};
use crate::icmp;

const LOOSE: u8 = 131;
const STRICT: u8 = 137;
const DESTINATION_OPTIONS: u8 = 60;
const ICMPV6: u8 = 58;

/// A packet of IPv4 with options, padded to whole words.
pub fn with_options(from: &str, to: &str, options: &[u8], bytes: usize) -> Vec<u8> {
    let plain = udp(from, to, bytes);
    let mut packet = plain[..20].to_vec();
    packet.extend(options);
    packet.resize(packet.len().next_multiple_of(4), 0);
    packet[0] = 0x40 | (packet.len() / 4) as u8;
    packet.extend(&plain[20..]);
    let total_bytes = packet.len() as u16;
    packet[2..4].copy_from_slice(&total_bytes.to_be_bytes());
    packet[6] = 0;
    mend(packet)
}

/// A packet of IPv6 with an extension header of eight bytes in front of UDP.
fn with_header(to: &str, kind: u8, header: [u8; 8]) -> Vec<u8> {
    let [from, to] = ["fd00:10::9", to].map(|text| text.parse::<IpAddr>().expect("an address"));
    let payload = [&header[..], &[0, 7, 0, 9, 0, 8, 0, 0]].concat();
    build::ip_packet(from, to, kind, payload)
}

fn follower() -> Bench {
    Bench::with(|plans| plans.router.rfc1812.source_routing = SourceRouting::Follow)
}

#[test]
fn a_record_route_has_the_address_of_the_port_it_leaves_by() {
    for (to, output, recorded) in
        [("198.19.2.9", 2, [198, 18, 2, 1]), ("198.19.3.9", 3, [198, 18, 3, 1])]
    {
        let packet = with_options("198.19.0.9", to, &[7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0], 30);
        let out = Bench::new().pass(0, &framed(0, &packet));
        let [(port, frame)] = &out[..] else { panic!("{out:?}") };
        assert_eq!((*port, &frame[34..41]), (output, &[&[7, 11, 8], &recorded[..]].concat()[..]));
        assert_eq!((frame[22], ipv4_header_checksum_ok(&frame[14..])), (63, Some(true)));
    }
}

#[test]
fn an_echo_reply_records_the_port_it_leaves_by() {
    // A host behind port 0 pings an address of port 2.
    let mut packet = with_options("198.19.0.9", "198.18.2.1", &[7, 7, 4, 0, 0, 0, 0], 30);
    packet[9] = 1;
    packet[28..36].copy_from_slice(&[8, 0, 0, 0, 0, 1, 0, 1]);
    let sum = internet_checksum(&[&packet[28..]]);
    packet[30..32].copy_from_slice(&sum.to_be_bytes());
    let out = Bench::new().pass(0, &framed(0, &mend(packet)));
    let [(0, frame)] = &out[..] else { panic!("{out:?}") };
    assert_eq!((frame[42], &frame[26..30]), (0, &[198, 18, 2, 1][..]), "from the address asked");
    assert_eq!(frame[34..41], [7, 7, 8, 198, 18, 0, 1], "RFC 1812, 4.2.2.2");
}

#[test]
fn a_timestamp_is_marked_as_nonstandard_time() {
    let options = [68, 12, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    let packet = with_options("198.19.0.9", "198.19.2.9", &options, 30);
    let mut bench = Bench::new();
    bench.wait(70);
    let out = bench.pass(0, &framed(0, &packet));
    let [(2, frame)] = &out[..] else { panic!("{out:?}") };
    assert_eq!(frame[34..42], [68, 12, 13, 1, 198, 18, 2, 1]);
    let stamp = u32::from_be_bytes(frame[42..46].try_into().expect("four"));
    assert_eq!(stamp, 1 << 31 | 70, "RFC 791: the upper bit of what is no standard time");
}

#[test]
fn a_packet_that_goes_no_further_is_quoted_with_its_options_as_they_came() {
    let options = [7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0];
    for (hop_limit, bytes, expected) in [(1, 30, (11, 0)), (64, 1_600, (3, 4))] {
        let mut packet = with_options("198.19.0.9", "198.19.2.9", &options, bytes);
        packet[6] = 0x40;
        let packet = with_hop_limit(packet, hop_limit);
        let out = Bench::new().pass(0, &framed(0, &packet));
        let [(0, frame)] = &out[..] else { panic!("{out:?}") };
        assert_eq!(icmp(frame), expected);
        let quoted = &frame[42..];
        assert_eq!(quoted, &packet[..quoted.len()]);
    }
}

#[test]
fn fragments_keep_the_options_that_must_be_copied() {
    let options = [[7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0, 1], [130, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]];
    let packet = with_options("198.19.0.9", "198.19.2.9", &options.concat(), 1_800);
    let out = Bench::new().pass(0, &framed(0, &packet));
    let [(2, first), (2, second)] = &out[..] else { panic!("{out:?}") };
    assert_eq!(first[34..41], [7, 11, 8, 198, 18, 2, 1]);
    assert_eq!((second[14] & 15, second[34]), (8, 130));
}

#[test]
fn a_source_route_is_refused_by_default() {
    let route = [LOOSE, 7, 4, 198, 19, 2, 9];
    for to in ["198.18.1.1", "198.19.1.9"] {
        let mut bench = Bench::new();
        let out = bench.pass(0, &framed(0, &with_options("198.19.0.9", to, &route, 30)));
        assert_eq!(out.first().map(|(_, frame)| icmp(frame)), Some((3, 13)), "to {to}");
        assert_eq!(bench.router.ports()[0].discards().of(Discard::Options), 1);
    }
}

#[test]
fn a_source_route_is_followed_if_configured() {
    // Addressed to the router: it is sent to the next address, which the router's address on that
    // link replaces.
    let route = [LOOSE, 11, 4, 198, 19, 2, 9, 198, 19, 3, 9];
    let packet = with_options("198.19.0.9", "198.18.1.1", &route, 30);
    let out = follower().pass(0, &framed(0, &packet));
    let [(2, frame)] = &out[..] else { panic!("{out:?}") };
    assert_eq!(frame[30..34], [198, 19, 2, 9]);
    assert_eq!(frame[34..45], [LOOSE, 11, 8, 198, 18, 2, 1, 198, 19, 3, 9]);
    assert_eq!((frame[22], ipv4_header_checksum_ok(&frame[14..])), (63, Some(true)));
    // Two addresses of the router in a row are two steps.
    let route = [LOOSE, 11, 4, 198, 18, 2, 1, 198, 19, 3, 9];
    let packet = with_options("198.19.0.9", "198.18.1.1", &route, 30);
    let out = follower().pass(0, &framed(0, &packet));
    let [(3, frame)] = &out[..] else { panic!("{out:?}") };
    assert_eq!((&frame[30..34], frame[36]), (&[198, 19, 3, 9][..], 12));
    // On its way to another host it is a packet like others.
    let packet = with_options("198.19.0.9", "198.19.1.9", &route, 30);
    let out = follower().pass(0, &framed(0, &packet));
    let [(1, frame)] = &out[..] else { panic!("{out:?}") };
    assert_eq!((&frame[30..34], frame[36]), (&[198, 19, 1, 9][..], 4));
}

#[test]
fn a_strict_route_needs_a_neighbour_next() {
    for (next, kind, expected) in [
        ([198, 18, 2, 2], STRICT, None),
        ([198, 19, 2, 9], STRICT, Some((3, 5))),
        ([198, 19, 2, 9], LOOSE, None),
        ([198, 51, 0, 9], LOOSE, Some((3, 5))),
    ] {
        let route = [&[kind, 7, 4], &next[..]].concat();
        let packet = with_options("198.19.0.9", "198.18.1.1", &route, 30);
        let out = follower().pass(0, &framed(0, &packet));
        let [(port, frame)] = &out[..] else { panic!("{out:?}") };
        match expected {
            None => assert_eq!((*port, &frame[30..34]), (2, &next[..])),
            Some(kinds) => assert_eq!((*port, icmp(frame)), (0, kinds)),
        }
    }
}

#[test]
fn a_source_route_to_an_unforwardable_address_fails() {
    for next in [
        [255, 255, 255, 255],
        [127, 0, 0, 1],
        [240, 0, 0, 1],
        [169, 254, 3, 4],
        [239, 1, 1, 1],
        [198, 18, 2, 255],
        [198, 18, 2, 0],
    ] {
        let mut bench = follower();
        let by = bench.way(Hop::Via { port: 2, gateway: Some([198, 18, 2, 2].into()) });
        bench.route4("0.0.0.0/0", by);
        bench.renew();
        for kind in [LOOSE, STRICT] {
            let route = [&[kind, 7, 4], &next[..]].concat();
            let packet = with_options("198.19.0.9", "198.18.1.1", &route, 30);
            let out = bench.pass(0, &framed(0, &packet));
            let [(0, icmp_error)] = &out[..] else { panic!("{next:?}: {out:?}") };
            assert_eq!(icmp(icmp_error), (3, 5), "{next:?}");
        }
        assert_eq!(bench.router.ports()[0].discards().of(Discard::Options), 2);
    }
}

#[test]
fn a_source_route_to_a_neighbour_that_does_not_answer_fails() {
    let mut bench = follower();
    let route = [LOOSE, 7, 4, 198, 18, 2, 77];
    let packet = with_options("198.19.0.9", "198.18.1.1", &route, 30);
    bench.receive(0, &framed(0, &packet));
    // It waits for an address that no neighbour supplies; the next finds that none did.
    let mut icmp_error = Vec::new();
    while icmp_error.is_empty() {
        bench.now += Span::from_nanos(50_000_000);
        icmp_error = bench.drain();
        icmp_error.retain(|(port, _)| *port == 0);
    }
    assert_eq!(icmp(&icmp_error[0].1), (3, 1));
    let out = bench.pass(0, &framed(0, &packet));
    let [(0, frame)] = &out[..] else { panic!("{out:?}") };
    assert_eq!(icmp(frame), (3, 5));
    assert_eq!(bench.router.ports()[0].discards().of(Discard::Options), 1);
}

#[test]
fn an_address_of_the_router_without_a_route_is_a_step_of_a_source_route() {
    let mut bench = Bench::with(|plans| {
        plans.router.rfc1812.source_routing = SourceRouting::Follow;
        plans.ports[2].addresses4.push((0xc612_0242, 24)); // 198.18.2.66
    });
    let route = [LOOSE, 11, 4, 198, 18, 2, 66, 198, 19, 3, 9];
    let packet = with_options("198.19.0.9", "198.18.1.1", &route, 30);
    let out = bench.pass(0, &framed(0, &packet));
    let [(3, frame)] = &out[..] else { panic!("{out:?}") };
    assert_eq!((&frame[30..34], frame[36]), (&[198, 19, 3, 9][..], 12));
}

#[test]
fn a_source_route_at_its_end_is_punted() {
    let mut bench = Bench::with(|plans| {
        plans.router.rfc1812.source_routing = SourceRouting::Follow;
        plans.ports[0].is_punting = true;
    });
    let at_its_end = [LOOSE, 7, 8, 198, 18, 2, 1];
    let packet = with_options("198.19.0.9", "198.18.1.1", &at_its_end, 30);
    assert!(bench.pass(0, &framed(0, &packet)).is_empty());
    let place = bench.router.poll_punted(0).expect("it was for the router");
    bench.memory.give(place);
    let underway = [LOOSE, 7, 4, 198, 19, 2, 9];
    let packet = with_options("198.19.0.9", "198.18.1.1", &underway, 30);
    assert_eq!(bench.pass(0, &framed(0, &packet)).len(), 1, "not punted");
}

#[test]
fn unknown_ipv6_options_decide_the_fate_of_the_packet() {
    const HOP_BY_HOP: u8 = 0;
    for to in ["fd00:11::9", "fd00:1::1"] {
        for (upper, expected) in [(1, None), (2, Some((4, 2))), (3, Some((4, 2)))] {
            let header = [17, 0, upper << 6 | 9, 4, 0, 0, 0, 0];
            let mut bench = Bench::new();
            let out = bench.pass(0, &framed(0, &with_header(to, HOP_BY_HOP, header)));
            assert_eq!(out.first().map(|(_, frame)| icmp(frame)), expected, "{upper} to {to}");
            assert_eq!(bench.router.ports()[0].discards().of(Discard::Options), 1);
        }
    }
    for passes in [[17, 0, 9, 4, 0, 0, 0, 0], [17, 0, 5, 2, 0, 0, 1, 0], [17, 0, 1, 4, 0, 0, 0, 0]]
    {
        let out = Bench::new().pass(0, &framed(0, &with_header("fd00:11::9", HOP_BY_HOP, passes)));
        let [(1, frame)] = &out[..] else { panic!("{out:?}") };
        assert_eq!((frame[21], &frame[54..62]), (63, &passes[..]));
    }
}

/// An echo request to an address of port 1 with `bytes` of data behind destination options.
fn behind_options(options: [u8; 6], bytes: usize) -> Vec<u8> {
    let [from, to] = ["fd00:10::9", "fd00:1::1"].map(|text| text.parse().expect("an address"));
    let echo = build::icmp(from, to, 128, 0, &vec![0; bytes]);
    let payload = [&[ICMPV6, 0], &options[..], &echo[40..]].concat();
    build::ip_packet(from, to, DESTINATION_OPTIONS, payload)
}

#[test]
fn destination_options_are_read_where_they_arrive() {
    let header = |upper: u8| [upper << 6 | 9, 4, 0, 0, 0, 0];
    let answers = [Some((129, 0)), None, Some((4, 2)), Some((4, 2))];
    for (upper, expected) in (0..).zip(answers) {
        for bytes in [9, 2_000] {
            let mut bench = Bench::new();
            let packet = behind_options(header(upper), bytes);
            let pieces = match bytes {
                9 => vec![packet],
                _ => source_fragment::pieces(&packet, 1_280, 99),
            };
            let out: Vec<_> =
                pieces.iter().flat_map(|piece| bench.pass(0, &framed(0, piece))).collect();
            let icmp_error = out.first().map(|(_, frame)| {
                assert_eq!(frame[20] == ICMPV6 && frame[54] == 4, upper > 1);
                match frame[20] {
                    ICMPV6 => icmp(frame),
                    _ => (129, 0), // in pieces
                }
            });
            assert_eq!(icmp_error, expected, "class {upper}, {bytes} bytes");
            if upper > 1 {
                assert_eq!(out[0].1[58..62], [0, 0, 0, 42], "at the option");
            }
            let lost = bench.router.ports()[0].discards().of(Discard::Options);
            assert_eq!(lost, u64::from(upper > 0));
        }
    }
    // On its way it passes.
    let out = Bench::new().pass(
        0,
        &framed(0, &with_header("fd00:11::9", DESTINATION_OPTIONS, [17, 0, 0x80, 4, 0, 0, 0, 0])),
    );
    assert!(matches!(out[..], [(1, _)]));
}

#[test]
fn a_routing_header_of_ipv6_ends_at_the_router_it_names() {
    const ROUTING: u8 = 43;
    for kind in [0, 2, 4] {
        let header = [17, 0, kind, 1, 0, 0, 0, 0];
        let mut bench = Bench::new();
        let out = bench.pass(0, &framed(0, &with_header("fd00:1::1", ROUTING, header)));
        let [(0, frame)] = &out[..] else { panic!("{out:?}") };
        assert_eq!((icmp(frame), &frame[58..62]), ((4, 0), &[0, 0, 0, 42][..]));
        assert_eq!(bench.router.ports()[0].discards().of(Discard::Options), 1);
        let out = bench.pass(0, &framed(0, &with_header("fd00:11::9", ROUTING, header)));
        assert!(matches!(out[..], [(1, _)]), "on its way it passes");
    }
}

#[test]
fn packets_with_options_do_not_hold_up_plain_ones() {
    let slow = with_options("198.19.0.9", "198.19.2.9", &[7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0], 30);
    let plain = udp("198.19.0.9", "198.19.1.9", 30);
    let mut bench = Bench::new();
    for round in 0..1_000 {
        bench.receive(0, &framed(0, &slow));
        if round % 2 == 0 {
            bench.receive(0, &framed(0, &plain));
        }
    }
    // The slow path has not been served yet: packets that it has no room for are lost, and no
    // others.
    let full = bench.router.ports()[0].discards().of(Discard::SlowPathFull);
    assert_eq!(full, 1_000 - 512);
    bench.router.advance(bench.now, &mut bench.memory, &mut ());
    let out = bench.wait(3);
    let count = |output| out.iter().filter(|(port, _)| *port == output).count();
    assert_eq!((count(1), count(2)), (500, 512));
}
