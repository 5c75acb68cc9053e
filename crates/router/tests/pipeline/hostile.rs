//! A million hostile frames through the whole pipeline, in batches: nothing vanishes, what leaves is sound.

use nilometer_router::discard::Discard;
use nilometer_router::forward::options::SourceRouting;
use nilometer_router::header::{Header, Unusable};
use nilometer_router::memory::{Memory, Place, Ticket};
use nilometer_router::pipeline::account::Account;
use nilometer_stat::Rng;
use nilometer_wire::{Span, Time};

use crate::bench::{Bench, PORTS};
use crate::frames::Frames;

/// How many; a build that is not optimised takes a hundredth.
const FRAMES: u64 = if cfg!(debug_assertions) { 10_000 } else { 1_000_000 };
const BATCH: usize = 64;

/// Takes the frames that leave every port and those that were punted; returns how many left.
pub fn take(bench: &mut Bench) -> u64 {
    let mut sent = 0;
    for port in 0..PORTS {
        while let Some(place) = bench.router.transmit(bench.now, port, &mut bench.memory) {
            let frame = bench.memory.frame(place);
            let is_sound = match Header::read(frame) {
                Ok(_) => true,
                Err(Unusable::Other(kind)) => kind == 0x0806,
                Err(Unusable::Fault(_)) => false,
            };
            assert!(is_sound && frame[0..6] != [0; 6], "{frame:02x?}");
            assert_eq!(frame[6..12], crate::bench::mac(port), "from the port's own address");
            sent += 1;
            bench.memory.give(place);
        }
        while let Some(place) = bench.router.poll_punted(port) {
            bench.memory.give(place);
        }
    }
    sent
}

#[test]
fn a_million_hostile_frames_leave_nothing_unaccounted_for() {
    let mut bench = Bench::with(|plans| {
        plans.router.rfc1812.source_routing = SourceRouting::Follow;
        plans.router.rfc1812.tells_denied = true;
        plans.ports[1].is_punting = true;
        plans.ports[2].address_probes = 1;
    });
    let (mut frames, mut rng) = (Frames::new(5), Rng::new(6, u32::from_be_bytes(*b"mill"), 0));
    let (mut received, mut sent) = (0, 0);
    let mut batches: [Vec<Place>; PORTS] = Default::default();
    while received < FRAMES {
        let (port, frame) = frames.next();
        let place = bench.memory.take(frame.len() as u16).expect("the router holds few");
        bench.memory.frame_mut(place).copy_from_slice(&frame);
        batches[port].push(place);
        if batches[port].len() < BATCH {
            continue;
        }
        received += BATCH as u64;
        bench.router.receive(bench.now, port, &batches[port], &mut bench.memory, &mut ());
        batches[port].clear();
        let pause = if rng.below(500) == 0 { 2_000_000_000 } else { rng.below(200_000) };
        bench.now += Span::from_nanos(pause);
        bench.router.advance(bench.now, &mut bench.memory, &mut ());
        sent += take(&mut bench);
        let waiting: usize = batches.iter().map(Vec::len).sum();
        assert_eq!(bench.memory.taken(), bench.router.inside() as usize + waiting);
        assert!(bench.router.balances(), "after {received}");
    }
    assert_eq!(bench.router.account().received, received);
    // Every part of the router was reached.
    assert!(sent > received / 10, "{sent} of {received}");
    let count = |why: Discard| -> u64 {
        bench.router.ports().iter().map(|port| port.discards().of(why)).sum()
    };
    // What this router is not set up for: filters, plugins, rejecting routes, ports that are shut, floods.
    let others = [
        Discard::Denied,
        Discard::ReversePath,
        Discard::Blackhole,
        Discard::Rejected,
        Discard::PortDown,
        Discard::ForwardingOff,
        Discard::SlowPathFull,
        Discard::PuntFull,
        Discard::NoBuffer,
        Discard::Plugin,
        Discard::PluginFault,
        Discard::PluginLoop,
        Discard::UnknownLabel,
        Discard::LabelStack,
    ];
    let is_missed = |why: &Discard| !others.contains(why) && count(*why) == 0;
    let missed: Vec<Discard> = Discard::ALL.into_iter().filter(is_missed).collect();
    assert!(cfg!(debug_assertions) || missed.is_empty(), "no frame was discarded as {missed:?}");
    let reassembly = bench.router.reassembly();
    assert!(reassembly.delivered > 0 && reassembly.dropped.iter().filter(|n| **n > 0).count() > 2);
    // An hour later all waiting packets have been released.
    for _ in 0..200 {
        bench.now += Span::from_secs(18);
        bench.router.advance(bench.now, &mut bench.memory, &mut ());
        take(&mut bench);
    }
    let waiting: usize = batches.iter().map(Vec::len).sum();
    assert!(bench.now > Time::ZERO + Span::from_secs(3_600));
    assert_eq!((bench.router.inside(), bench.memory.taken()), (0, waiting));
}

#[test]
fn a_packet_that_came_past_the_account_is_seen() {
    let mut bench = Bench::new();
    assert!(bench.router.balances() && bench.router.inside() == 0);
    let place = bench.memory.take(100).expect("a buffer");
    let ticket = Ticket { place, flow: 1, link_bytes: 100, bits: 0 };
    bench.router.fabric_mut().enqueue(bench.now, (0, 1), ticket, &mut Vec::new());
    assert_eq!(bench.router.inside(), 1);
    assert!(bench.router.fabric().balances() && !bench.router.balances());
}

#[test]
fn the_same_seed_makes_the_same_frames() {
    let (mut one, mut same, mut other) = (Frames::new(1), Frames::new(1), Frames::new(2));
    let differ = (0..2_000)
        .filter(|_| {
            let frame = one.next();
            assert_eq!(frame, same.next());
            frame != other.next()
        })
        .count();
    assert!(differ > 1_900, "{differ}");
}

#[test]
fn an_account_balances_only_if_input_equals_output_and_backlog() {
    let account = Account {
        received: 1_000,
        injected: 200,
        made: 30,
        transmitted: 900,
        punted: 70,
        absorbed: 60,
        discarded: 50,
        by_shortcut: 5,
        by_slow_path: 6,
    };
    assert!(account.balances(110, 40));
    for (inside, dropped) in [(111, 40), (109, 40), (110, 41), (110, 39), (0, 40), (110, 0)] {
        assert!(!account.balances(inside, dropped), "{inside} {dropped}");
    }
    let others = [
        Account { received: 1_001, ..account },
        Account { injected: 201, ..account },
        Account { made: 31, ..account },
        Account { transmitted: 901, ..account },
        Account { punted: 71, ..account },
        Account { absorbed: 61, ..account },
        Account { discarded: 51, ..account },
    ];
    assert!(others.iter().all(|other| !other.balances(110, 40)));
    // Of those that came or went: how, and no more of them.
    assert!(Account { by_shortcut: 0, by_slow_path: 0, ..account }.balances(110, 40));
}
