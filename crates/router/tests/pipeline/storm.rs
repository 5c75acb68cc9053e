//! Hostile and random frames, under changes: no panic, no packet lost without a reason, no buffer.

use nilometer_queue::{Any, Capacity, DisciplineKind, Settings};
use nilometer_router::discard::Discard;
use nilometer_router::header::Header;
use nilometer_router::memory::Memory;
use nilometer_router::multicast::{Protocol, RecordKind};
use nilometer_router::neighbour::Given;
use nilometer_router::pipeline::groups::MulticastPlan;
use nilometer_stat::Rng;
use nilometer_wire::{Rate, Span, build};

use crate::bench::{Bench, PORTS, framed, host, mend, port, udp};
use crate::groups::frames::{Hosts, one};

fn sample(rng: &mut Rng) -> Vec<u8> {
    let (a, b) = (rng.below(5), rng.below(5));
    match rng.below(9) {
        0 => udp(&format!("fd00:1{a}::9"), &format!("fd00:1{b}::9"), rng.below(1_700) as usize),
        1 => udp("198.19.0.9", &format!("198.18.{b}.{}", rng.below(256)), 20),
        2 => {
            let (from, to) = ([198, 19, a as u8, 9].into(), [198, 18, b as u8, 1].into());
            build::icmp(from, to, 8, 0, &[0; 40])
        }
        3 => {
            let kind = [RecordKind::ToExclude, RecordKind::ToInclude][rng.below(2) as usize];
            match rng.below(2) {
                0 => one(kind, u32::group(a), &[])[14..].to_vec(),
                _ => one(kind, u128::group(a), &[])[14..].to_vec(),
            }
        }
        4 => udp(&format!("198.19.{a}.9"), &format!("239.1.0.{b}"), rng.below(1_700) as usize),
        5 => udp(&format!("fd00:1{a}::9"), &format!("ff0e::1:{b}"), rng.below(1_700) as usize),
        _ => udp(&format!("198.19.{a}.9"), &format!("198.19.{b}.9"), rng.below(1_700) as usize),
    }
}

/// The frame is for the group that its packet is for, if it is for one.
fn address_to_group(frame: &mut [u8]) {
    let octets: [u8; 16] = std::array::from_fn(|at| frame[38 + at]);
    match (frame[14] >> 4, frame[30] >> 4, octets[0]) {
        (4, 0xe, _) => {
            let group = u32::from_be_bytes(std::array::from_fn(|at| frame[30 + at]));
            frame[..6].copy_from_slice(&group.group_mac());
        }
        (6, _, 0xff) => {
            let mac = u128::from_be_bytes(octets).group_mac();
            frame[..6].copy_from_slice(&mac);
        }
        _ => {}
    }
}

/// What an operator may do at any moment; some of it is refused.
fn change(bench: &mut Bench, rng: &mut Rng) {
    let (number, now) = (rng.below(PORTS as u64) as usize, bench.now);
    let plan = port(number);
    match rng.below(6) {
        0 => _ = bench.router.set_link(now, number, false, &mut bench.memory),
        1 | 2 => _ = bench.router.set_link(now, number, true, &mut bench.memory),
        3 => {
            let some = rng.below(2) as usize;
            let (four, six) = (&plan.addresses4[some..], &plan.addresses6[some..]);
            _ = bench.router.set_addresses(now, number, four, six);
        }
        4 => _ = bench.router.unplug(number, &mut bench.memory),
        _ => _ = bench.router.plug(now, number, plan),
    }
    let all = 0..PORTS;
    all.for_each(|number| {
        // Half of the time everything is up, so that something passes.
        if bench.router.ports()[number].plan().is_vacant {
            _ = bench.router.plug(now, number, port(number));
        }
        if rng.below(2) == 0 {
            _ = bench.router.set_link(now, number, true, &mut bench.memory);
        }
        // The host behind which the far networks are, where its network is on the port.
        let gateway = 0xc612_0002 | (number as u32) << 8;
        let table = &mut bench.router.port_mut(number).arp_mut().table;
        _ = table.set(now, gateway, host(number), Given::Permanent);
    });
}

/// The outcome of a storm: frames that were sent, and how many of them were IP.
struct Outcome {
    bench: Bench,
    sent: u64,
    sound: u64,
}

#[test]
fn packets_are_conserved_under_any_traffic() {
    let Outcome { bench, sent, sound } = storm(0);
    assert!(sent > 20_000 && sound > 20_000, "{sent} sent, {sound} of them IP");
    let records = |port| bench.router.membership4(port).map_or(0, |there| there.ledger().records);
    assert!((0..PORTS).all(|port| records(port) > 100), "hosts were heard");
}

#[test]
fn packets_are_conserved_under_any_change() {
    let Outcome { bench, sent, sound } = storm(60);
    assert!(sent > 5_000 && sound > 5_000, "{sent} sent, {sound} of them IP");
    let down: u64 =
        bench.router.ports().iter().map(|port| port.discards().of(Discard::PortDown)).sum();
    assert!(down > 0, "{down} met a port that was down");
}

/// Sixty thousand frames, and about `changes` changes among them.
fn storm(changes: u64) -> Outcome {
    let mut rng = Rng::new(11, u32::from_be_bytes(*b"strm"), 0);
    let mut bench = Bench::with(|plans| {
        plans.ports.iter_mut().for_each(|port| port.multicast = Some(MulticastPlan::default()));
    });
    let (mut sent, mut sound) = (0u64, 0u64);
    for round in 0..60_000u64 {
        let input = rng.below(PORTS as u64) as usize;
        let mut frame = framed(input, &sample(&mut rng));
        address_to_group(&mut frame);
        if rng.below(2) == 0 {
            for _ in 0..1 + rng.below(4) {
                let at = rng.below(frame.len().min(90) as u64) as usize;
                frame[at] = rng.next_u64() as u8;
            }
            let header_bytes = 4 * usize::from(frame[14] & 15);
            if frame[12..15] == [8, 0, 0x45] && frame.len() >= 14 + header_bytes {
                let packet = mend(frame.split_off(14));
                frame.extend(packet);
            }
        }
        if rng.below(20) == 0 {
            frame.truncate(rng.below(frame.len() as u64) as usize);
        }
        if frame.is_empty() {
            continue;
        }
        bench.receive(input, &frame);
        if round % 16 == 0 {
            bench.now += Span::from_nanos(rng.below(200_000));
            bench.router.advance(bench.now, &mut bench.memory, &mut ());
        }
        let output = rng.below(PORTS as u64) as usize;
        for _ in 0..rng.below(40) {
            let (now, memory) = (bench.now, &mut bench.memory);
            let Some(place) = bench.router.transmit(now, output, memory) else { break };
            let frame = memory.frame(place);
            sound += u64::from(Header::read(frame).is_ok());
            sent += 1;
            memory.give(place);
        }
        if rng.below(2_000) == 0 {
            let rate = Rate::from_megabits(100);
            let kind = DisciplineKind::ALL[rng.below(9) as usize];
            let settings =
                Settings { mtu_bytes: 9_300, ..Settings::new(kind, Capacity::Packets(99), rate) };
            let discipline = Any::new(&settings).expect("settings");
            let mut drops = Vec::new();
            bench.router.fabric_mut().set_discipline(bench.now, output, discipline, &mut drops);
            drops.into_iter().for_each(|(_, ticket)| bench.memory.give(ticket.place));
        }
        if changes > 0 && rng.below(60_000) < changes {
            change(&mut bench, &mut rng);
        }
        assert_eq!(bench.memory.taken() as u64, bench.router.inside(), "round {round}");
        assert!(bench.router.balances(), "round {round}");
    }
    Outcome { bench, sent, sound }
}
