//! Hostile and random frames, under changes: no panic, no packet lost without a reason, no buffer.

use nilometer_queue::{Any, Capacity, Kind, Settings};
use nilometer_router::header::Header;
use nilometer_router::memory::Memory;
use nilometer_router::multicast::{Protocol, RecordKind};
use nilometer_router::pipeline::groups::MulticastPlan;
use nilometer_stat::Rng;
use nilometer_wire::{Rate, Span, build};

use crate::bench::{Bench, PORTS, framed, mend, udp};
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

#[test]
fn whatever_comes_nothing_vanishes() {
    let mut rng = Rng::new(11, u32::from_be_bytes(*b"strm"), 0);
    let mut bench = Bench::with(|plans| {
        plans.ports.iter_mut().for_each(|port| port.multicast = Some(MulticastPlan::default()));
    });
    let (mut sent, mut sound) = (0u64, 0u64);
    for round in 0..60_000u64 {
        let port = rng.below(PORTS as u64) as usize;
        let mut frame = framed(port, &sample(&mut rng));
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
        bench.receive(port, &frame);
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
            let kind = Kind::ALL[rng.below(9) as usize];
            let settings =
                Settings { mtu_bytes: 9_300, ..Settings::new(kind, Capacity::Packets(99), rate) };
            let discipline = Any::new(&settings).expect("settings");
            let mut drops = Vec::new();
            bench.router.fabric_mut().set_discipline(bench.now, output, discipline, &mut drops);
            drops.into_iter().for_each(|(_, ticket)| bench.memory.give(ticket.place));
        }
        assert_eq!(bench.memory.taken() as u64, bench.router.inside(), "round {round}");
        assert!(bench.router.balances(), "round {round}");
    }
    assert!(sent > 20_000 && sound > 20_000, "{sent} sent, {sound} of them IP");
    let records = |port| bench.router.membership4(port).map_or(0, |there| there.ledger().records);
    assert!((0..PORTS).all(|port| records(port) > 100), "hosts were heard");
}
