//! A recording: what four routers did with random frames, hostile ones among them, while their
//! settings changed. These numbers were not derived; other tests check what is right.

#[path = "../../../wire/tests/recording/mod.rs"]
mod recording;

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nilometer_queue::Sharing;
use nilometer_router::classifier::{Action, Inputs, Octet, Rule, RuleId};
use nilometer_router::discard::Discard;
use nilometer_router::fabric::MemoryLimits;
use nilometer_router::forward::options::SourceRouting;
use nilometer_router::forward::urpf::Mode;
use nilometer_router::memory::Memory;
use nilometer_router::next_hop::{Hop, Member, Rejection};
use nilometer_router::pipeline::Rfc1812Settings;
use nilometer_router::pipeline::groups::{MulticastPlan, StaticGroup};
use nilometer_stat::Rng;
use nilometer_wire::{Rate, Span};
use recording::Digest;

use crate::bench::{Bench, PORTS, Plans, port};
use crate::frames::Frames;
use crate::shortcut::{self, Change};

const RECORDING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pipeline/recorded.txt");
/// Lines of each scene, and steps of each line.
const LINES: usize = 12;
const STEPS: usize = 250;
/// Nanoseconds between two steps.
const PAUSES: [u64; 8] = [3_000, 3_000, 3_000, 40_000, 40_000, 900_000, 5_000_000, 700_000_000];

/// What differs between the routers: plans, the share of hostile frames, and whether settings change.
struct Scene {
    name: &'static str,
    plans: fn(&mut Plans),
    hostile_of_8: u64,
    /// Of [`PAUSES`], how many are drawn from.
    pauses: u64,
    changes: bool,
}

const SCENES: [Scene; 4] = [
    Scene { name: "plain", plans: |_| (), hostile_of_8: 6, pauses: 8, changes: false },
    Scene { name: "talkative", plans: talkative, hostile_of_8: 7, pauses: 8, changes: false },
    Scene { name: "loaded", plans: loaded, hostile_of_8: 1, pauses: 5, changes: false },
    Scene { name: "changing", plans: talkative, hostile_of_8: 4, pauses: 8, changes: true },
];

/// Everything that can be on is on.
fn talkative(plans: &mut Plans) {
    plans.router.rfc1812.source_routing = SourceRouting::Follow;
    plans.router.rfc1812.tells_denied = true;
    plans.router.rfc1812.reassembly.bytes_max = 4_000;
    let groups = ["198.18.0.9", "198.19.0.9"].map(|source| StaticGroup {
        group: Ipv4Addr::new(239, 1, 2, 3).into(),
        source: Some(source.parse().expect("an address")),
    });
    for (number, port) in plans.ports.iter_mut().enumerate() {
        port.is_punting = number % 2 == 1;
        port.address_probes = (number % 3) as u8;
        port.overhead_bytes = 24;
        port.reverse_path = [Mode::Off, Mode::Loose, Mode::Strict, Mode::Feasible][number];
        let plan = MulticastPlan { groups: groups.to_vec(), ..MulticastPlan::default() };
        port.multicast = (number > 0).then_some(plan);
        port.delay = Span::from_nanos(70_000 * number as u64);
    }
    plans.ports[2].mtu_bytes = 1_280;
}

/// Outputs that are slower than the arriving load.
fn loaded(plans: &mut Plans) {
    for (number, port) in plans.ports.iter_mut().enumerate() {
        port.rate = Some(Rate::from_megabits([4_000, 300, 20, 2][number]));
        port.burst_bytes = [None, Some(3_000), None, Some(10_000)][number];
        port.delay = Span::from_nanos(200_000 * (number as u64 % 2));
        port.overhead_bytes = 20;
    }
    plans.router.fabric.input.packets = 60;
    plans.router.fabric.memory = Some(MemoryLimits { packets: 150, sharing: Sharing::default() });
}

/// Filters of both families, equal-cost paths, rejecting routes, and a reverse path.
fn furnish(bench: &mut Bench) {
    let (unreachable, prohibited) = (Rejection::Unreachable, Rejection::Prohibited);
    let ways = [Hop::Reject(unreachable), Hop::Reject(prohibited), Hop::Blackhole, Hop::KernelLink];
    for (number, next) in ways.map(|hop| bench.way(hop)).into_iter().enumerate() {
        bench.route4(&format!("198.19.{}.{}/32", number % PORTS, 9 + number), next);
        bench.route6(&format!("fd00:1{}::{}/128", number % PORTS, 9 + number), next);
    }
    let both = [1u16, 2].map(|port| Member {
        hop: Hop::Via { port, gateway: Some(Ipv4Addr::new(198, 18, port as u8, 2).into()) },
        weight: 1 + port,
    });
    let several = bench.hops.define(&both).expect("room");
    bench.route4("198.19.2.0/25", several);
    bench.route4("239.0.0.0/8", several);
    bench.renew();
    let tables = bench.router.tables_mut();
    let four: [Rule<u32>; 3] = [
        Rule { protocol: Octet::exact(1), is_copied: true, ..Rule::any(1, Action::Permit) },
        Rule { destination: "198.19.3.0/28".parse().expect("one"), ..Rule::any(2, Action::Deny) },
        Rule { flags: Octet::new(2, 2), ..Rule::any(3, Action::Permit) },
    ];
    for (number, rule) in (10..).zip(four) {
        let inputs = Inputs::of([number as usize % PORTS, 0]).unwrap_or_default();
        tables.filters4.insert_at(RuleId(number), inputs, rule).expect("room");
    }
    let six: Rule<u128> =
        Rule { destination: "fd00:13::8/125".parse().expect("one"), ..Rule::any(2, Action::Deny) };
    tables.filters6.insert(RuleId(1), six).expect("room");
}

/// A change of the kinds that [`Change`] has not.
fn change(bench: &mut Bench, rng: &mut Rng) {
    let number = rng.below(PORTS as u64) as usize;
    let (now, router, memory) = (bench.now, &mut bench.router, &mut bench.memory);
    let lists = |text: &str| text.parse::<IpAddr>().expect("an address");
    let fixed = [
        StaticGroup { group: lists("239.1.2.3"), source: None },
        StaticGroup { group: lists("ff0e::77"), source: None },
        StaticGroup { group: lists("ff0e::77"), source: Some(lists("fd00:10::9")) },
    ][rng.below(3) as usize];
    match rng.below(9) {
        0 => drop(router.add_group(number, fixed)),
        1 => drop(router.remove_group(number, fixed)),
        2 => drop(router.set_multicast(now, number, Some(MulticastPlan::default()))),
        3 => drop(router.set_multicast(now, number, None)),
        4 => {
            let third = number as u8 + 10 * rng.below(2) as u8;
            let own4 = u32::from(Ipv4Addr::new(198, 18, third, 1));
            let own6 = u128::from(Ipv6Addr::new(0xfd00, third.into(), 0, 0, 0, 0, 0, 1));
            router.set_addresses(now, number, &[(own4, 24)], &[(own6, 64)]).expect("addresses");
        }
        5 => router.unplug(number, memory).expect("it is plugged in"),
        6 => {
            let mut settings = Rfc1812Settings {
                hop_limit: 30,
                answers_echo: rng.below(2) == 0,
                ..Rfc1812Settings::default()
            };
            settings.source_routing = SourceRouting::Ignore;
            router.set_rfc1812(settings);
        }
        7 => router.port_mut(number).set_redirects(rng.below(2) == 0),
        _ => router.port_mut(number).set_punting(rng.below(2) == 0),
    }
}

/// Time passes, and something leaves.
fn step(bench: &mut Bench, pause: Span, rng: &mut Rng, digest: &mut Digest) {
    bench.now += pause;
    bench.router.advance(bench.now, &mut bench.memory, &mut ());
    for port in 0..PORTS {
        if rng.below(4) == 0 {
            let (mut places, most) = (Vec::new(), rng.below(20) as usize);
            let Bench { router, memory, now, .. } = bench;
            router.transmit_all(*now, port, most, memory, |place| places.push(place));
            for place in places {
                digest.say((port, bench.memory.frame(place)));
                bench.memory.give(place);
            }
        }
        for _ in 0..rng.below(9) {
            let Some(place) = bench.router.transmit(bench.now, port, &mut bench.memory) else {
                break;
            };
            digest.say((port, bench.memory.frame(place)));
            bench.memory.give(place);
        }
        while let Some(place) = bench.router.poll_punted(port) {
            digest.say(("punted", port, bench.memory.frame(place)));
            if rng.below(2) == 0 {
                bench.router.inject(bench.now, (port + 1) % PORTS, place, &mut bench.memory);
            } else {
                bench.memory.give(place);
            }
        }
    }
    while let Some((port, place)) = bench.router.poll_copy() {
        digest.say(("copy", port, bench.memory.frame(place)));
        bench.memory.give(place);
    }
    digest.say((bench.router.poll_timeout(), bench.router.inside()));
    assert!(bench.router.balances());
}

/// The state of a port besides the frames that left by it.
fn look(bench: &Bench, number: usize, digest: &mut Digest) {
    let (router, fabric) = (&bench.router, bench.router.fabric());
    let port = &router.ports()[number];
    digest.say((port.received(), port.left_by_shortcut(), port.is_up(), port.duplicates()));
    digest.say((fabric.input_ledger(number), fabric.output_ledger(number)));
    digest.say((fabric.input_backlog(number), fabric.output_backlog(number)));
    digest.say((fabric.waiting(number), fabric.rate(number), fabric.delay(number)));
    digest.say(port.arp().table.ledger());
    digest.say(port.neighbours6().ledger());
    digest.say(port.arp().table.entries().collect::<Vec<_>>());
    digest.say(port.neighbours6().entries().collect::<Vec<_>>());
    let groups4 = router.membership4(number).map(|one| (one.is_querier(), one.ledger()));
    let groups6 = router.membership6(number).map(|one| (one.is_querier(), one.ledger()));
    digest.say((groups4, groups6));
}

fn line(bench: &Bench, digest: Digest) -> String {
    let router = &bench.router;
    let mut rest = digest;
    (0..PORTS).for_each(|number| look(bench, number, &mut rest));
    rest.say((router.reassembly(), router.reports(), router.fabric().updates()));
    rest.say((router.groups4().len(), router.groups6().len()));
    let filters = router.tables().filters4.iter();
    rest.say(filters.map(|(_, _, filter)| (filter.packets, filter.bytes)).collect::<Vec<_>>());
    let a = router.account();
    format!(
        "received {} injected {} made {} sent {} punted {} absorbed {} shortcut {} slow {} \
         discarded {} queues {} inside {}; {:016x}",
        a.received,
        a.injected,
        a.made,
        a.transmitted,
        a.punted,
        a.absorbed,
        a.by_shortcut,
        a.by_slow_path,
        a.discarded,
        router.fabric().dropped_packets(),
        router.inside(),
        rest.0
    )
}

fn record(scene: &Scene, table: &mut String) {
    let mut bench = Bench::with(scene.plans);
    furnish(&mut bench);
    let (mut hostile, mut rng) = (Frames::new(9), Rng::new(10, u32::from_be_bytes(*b"reco"), 0));
    let mut digest = Digest::new();
    writeln!(table, "{}", scene.name).expect("text");
    for _ in 0..LINES {
        for number in 0..STEPS {
            // A port that was unplugged comes back when it has drained.
            let mut vacant = (0..PORTS).filter(|at| bench.router.ports()[*at].plan().is_vacant);
            if let Some(at) = vacant.next() {
                let _ = bench.router.plug(bench.now, at, port(at));
            } else if scene.changes && number % 25 == 0 {
                if rng.below(2) == 0 {
                    Change::draw(&mut rng).make(&mut bench);
                } else {
                    change(&mut bench, &mut rng);
                }
            }
            let count = 1 + rng.below(6);
            let mut frame = |_| match rng.below(8) < scene.hostile_of_8 {
                true => hostile.next(),
                false => shortcut::packet(&mut rng),
            };
            let frames: Vec<_> = (0..count).map(&mut frame).collect();
            frames.iter().for_each(|(port, frame)| bench.receive(*port, frame));
            let pause = Span::from_nanos(PAUSES[rng.below(scene.pauses) as usize]);
            step(&mut bench, pause, &mut rng, &mut digest);
        }
        writeln!(table, "  {}", line(&bench, digest)).expect("text");
    }
    for why in Discard::ALL {
        let counts: Vec<u64> =
            bench.router.ports().iter().map(|port| port.discards().of(why)).collect();
        if counts.iter().any(|&count| count > 0) {
            writeln!(table, "  {why:?}: {counts:?}").expect("text");
        }
    }
}

#[test]
fn random_frames_fare_as_recorded() {
    let mut table = String::new();
    for scene in &SCENES {
        record(scene, &mut table);
    }
    recording::compare(RECORDING, &table);
}
