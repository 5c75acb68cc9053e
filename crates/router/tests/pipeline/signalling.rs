//! Packets of RSVP: kept for the control processor where they are meant for routers, and sent on
//! its behalf.

use nilometer_wire::build;

use crate::bench::{Bench, framed, host, mend};

const FAMILIES: [[&str; 3]; 2] =
    [["198.19.0.9", "198.19.1.9", "198.18.0.1"], ["fd00:10::9", "fd00:11::9", "fd00::1"]];

/// A packet of protocol 46, with the router alert option or without it.
fn rsvp(from: &str, to: &str, has_alert: bool) -> Vec<u8> {
    let [from, to] = [from, to].map(|text| text.parse().expect("an address"));
    let mut packet = build::ip_packet(from, to, 46, b"a message of RSVP".to_vec());
    if !has_alert {
        return packet;
    }
    if packet[0] >> 4 == 4 {
        packet.splice(20..20, [148, 4, 0, 0]);
        (packet[0], packet[3]) = (0x46, packet[3] + 4);
        return mend(packet);
    }
    packet.splice(40..40, [46, 0, 5, 2, 0, 1, 1, 0]);
    (packet[5], packet[6]) = (packet[5] + 8, 0);
    packet
}

#[test]
fn rsvp_for_routers_goes_to_the_control_processor_and_no_further() {
    for [from, to, own] in FAMILIES {
        let mut bench = Bench::new();
        let on_the_way = rsvp(from, to, true);
        assert_eq!(bench.pass(0, &framed(0, &on_the_way)).len(), 1, "off, it goes on");
        assert_eq!(bench.router.poll_signalling(), None);
        bench.router.set_signalling(true);
        for packet in [on_the_way, rsvp(from, own, false), rsvp(from, own, true)] {
            let mut padded = framed(0, &packet);
            padded.extend([0; 5]);
            assert!(bench.pass(0, &padded).is_empty());
            assert_eq!(bench.router.poll_signalling(), Some((0, packet)));
        }
        // Between others, without the alert, it is a packet like any.
        assert_eq!(bench.pass(0, &framed(0, &rsvp(from, to, false))).len(), 1);
        assert_eq!(bench.router.poll_signalling(), None);
        // Nor is one with other options meant for routers.
        if from.contains('.') {
            let mut packet = rsvp(from, to, true);
            packet[20..24].copy_from_slice(&[1, 1, 1, 0]);
            assert_eq!(bench.pass(0, &framed(0, &mend(packet))).len(), 1);
            assert_eq!(bench.router.poll_signalling(), None);
        }
        assert!(bench.router.balances());
    }
}

#[test]
fn packets_not_taken_by_the_control_processor_are_counted() {
    let mut bench = Bench::new();
    bench.router.set_signalling(true);
    let frame = framed(0, &rsvp(FAMILIES[0][0], FAMILIES[0][1], true));
    for _ in 0..300 {
        bench.pass(0, &frame);
    }
    let taken = std::iter::from_fn(|| bench.router.poll_signalling()).count();
    assert_eq!((taken, bench.router.signalling_lost()), (256, 44));
    assert!(bench.router.balances());
}

#[test]
fn the_control_processor_sends_to_a_neighbour() {
    let gateways = ["198.18.2.2", "fd00:2::2"];
    for ([from, to, _], gateway) in FAMILIES.into_iter().zip(gateways) {
        let mut bench = Bench::new();
        let packet = rsvp(from, to, true);
        let gateway = gateway.parse().expect("an address");
        let now = bench.now;
        bench.router.send_signalling(now, 2, gateway, &packet, &mut bench.memory);
        let out = bench.drain();
        let [(2, frame)] = &out[..] else { panic!("{out:?}") };
        assert_eq!((&frame[..6], &frame[14..]), (&host(2)[..], &packet[..]));
        assert_eq!(bench.router.next_hop_to(gateway), Some((2, gateway)));
        let [to, behind] = [to, if gateway.is_ipv4() { "198.18.1.2" } else { "fd00:1::2" }]
            .map(|text| text.parse().expect("an address"));
        assert_eq!(bench.router.next_hop_to(to), Some((1, behind)));
        let number = bench.router.number_of_gateway(1, behind).expect("a route has it");
        assert_eq!(bench.router.number_of_gateway(2, behind), None);
        let hop = bench.hops.snapshot().resolve(number, 99).copied();
        let port = 1;
        let gateway = Some(behind);
        assert_eq!(hop, Some(nilometer_router::next_hop::Hop::Via { port, gateway }));
    }
}
