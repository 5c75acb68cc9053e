//! The common packet and the same packet judged: two routers that differ in nothing but whether they test
//! sources by the way back, which every source here passes, so that one of them judges all packets.

use nilometer_router::classifier::{Action, Inputs, Octet, Rule, RuleId};
use nilometer_router::discard::Discard;
use nilometer_router::forward::urpf::Mode;
use nilometer_router::memory::Memory;
use nilometer_router::neighbour::Given;
use nilometer_router::next_hop::{Hop, Member};
use nilometer_stat::Rng;

use crate::bench::{Bench, PORTS, framed, host, mend, udp};

const ACK: u8 = 0x10;

/// A router whose packets are common: behind gateway N of port N are 10.N.0.0/16, of two ports
/// 20.0.0.0/8; 10.(100 + N).0.0/24 is on link N, where .2 is known and others need a request.
/// Filters count, deny, copy and look at flags.
fn bench(reverse_path: Mode) -> Bench {
    let mut bench = Bench::with(|plans| {
        plans.ports[2].mtu_bytes = 1_280;
        for (number, plan) in plans.ports.iter_mut().enumerate() {
            plan.reverse_path = reverse_path;
            plan.addresses4.push((on_link(number, 1), 24));
        }
    });
    let gateway = |number: usize| std::net::Ipv4Addr::new(198, 18, number as u8, 2).into();
    let via = |number: usize| Hop::Via { port: number as u16, gateway: Some(gateway(number)) };
    for number in 0..PORTS {
        let ways = [via(number), Hop::Via { port: number as u16, gateway: None }, Hop::Local];
        let [by_gateway, straight, local] = ways.map(|hop| bench.way(hop));
        bench.route4(&format!("10.{number}.0.0/16"), by_gateway);
        bench.route4(&format!("10.{}.0.0/24", 100 + number), straight);
        bench.route4(&format!("10.{}.0.1/32", 100 + number), local);
        let table = &mut bench.router.port_mut(number).arp_mut().table;
        let now = nilometer_wire::Time::ZERO;
        table.set(now, on_link(number, 2), host(number), Given::Permanent).expect("room");
    }
    let both = [1, 2].map(|number| Member { hop: via(number), weight: 1 });
    let several = bench.hops.define(&both).expect("room");
    bench.route4("20.0.0.0/8", several);
    let rest = bench.way(via(1));
    bench.route4("0.0.0.0/0", rest);
    bench.renew();
    let to = |prefix: &str| prefix.parse().expect("a prefix");
    let rules = [
        Rule { flags: Octet::new(ACK, ACK), ..Rule::any(1, Action::Deny) },
        Rule { destination: to("10.3.0.0/18"), ..Rule::any(2, Action::Deny) },
        Rule { destination: to("10.2.0.0/18"), is_copied: true, ..Rule::any(3, Action::Permit) },
        Rule { protocol: Octet::exact(17), ..Rule::any(4, Action::Permit) },
    ];
    // Some of them for some ports.
    let some = |ports: [usize; 2]| Inputs::of(ports).expect("ports");
    let inputs = [some([1, 2]), some([0, 2]), Inputs::ANY, Inputs::ANY];
    for ((number, rule), inputs) in (0..).zip(rules).zip(inputs) {
        bench.router.tables_mut().filters4.insert_at(RuleId(number), inputs, rule).expect("room");
    }
    bench
}

fn on_link(number: usize, last: u8) -> u32 {
    u32::from_be_bytes([10, 100 + number as u8, 0, last])
}

/// A random packet: mostly common, with now and then something uncommon about it.
fn packet(rng: &mut Rng, port: usize) -> Vec<u8> {
    let any = |rng: &mut Rng| -> String {
        let (number, low) = (rng.below(PORTS as u64), rng.below(256));
        match rng.below(8) {
            0 => format!("10.{}.0.{}", 100 + number, [1, 2, 2, 3, 255][rng.below(5) as usize]),
            1 => format!("20.9.{low}.9"),
            _ => format!("10.{number}.{low}.9"),
        }
    };
    let from = match rng.below(4) {
        0 => format!("10.{}.0.9", 100 + port),
        _ => any(rng),
    };
    // (No route leads back to an address of the router.)
    let from = if from.ends_with(".0.1") { "20.9.9.9".to_owned() } else { from };
    let bytes = [9, 30, 400, 1_300, 1_472][rng.below(5) as usize];
    let mut packet = udp(&from, &any(rng), bytes);
    if rng.below(2) == 0 {
        packet[9] = 6;
        packet[33] = [0, 2, ACK][rng.below(3) as usize];
    }
    if rng.below(8) == 0 {
        packet[8] = rng.below(3) as u8;
    }
    let fragmentation = [0x4000, 0, 0, 0x2000, 1, 2, 0x2003, 185][rng.below(8) as usize];
    packet[6..8].copy_from_slice(&u16::to_be_bytes(fragmentation));
    mend(packet)
}

/// The outcome of a batch: frames that left, copies, and the discards of each port so far.
type Outcome = (Vec<(usize, Vec<u8>)>, Vec<Vec<u8>>, Vec<[u64; Discard::ALL.len()]>);

fn pass(bench: &mut Bench, port: usize, frames: &[Vec<u8>]) -> Outcome {
    let places = frames.iter().map(|frame| {
        let place = bench.memory.take(frame.len() as u16).expect("a buffer");
        bench.memory.frame_mut(place).copy_from_slice(frame);
        place
    });
    let places: Vec<_> = places.collect();
    bench.router.receive(bench.now, port, &places, &mut bench.memory, &mut ());
    let mut copies = Vec::new();
    while let Some((_, place)) = bench.router.poll_copy() {
        copies.push(bench.memory.frame(place).to_vec());
        bench.memory.give(place);
    }
    let out = bench.drain();
    let of = |port: &nilometer_router::pipeline::port::RouterPort| {
        Discard::ALL.map(|why| port.discards().of(why))
    };
    (out, copies, bench.router.ports().iter().map(of).collect())
}

#[test]
fn the_common_path_agrees_with_the_full_path() {
    let mut rng = Rng::new(23, u32::from_be_bytes(*b"comm"), 0);
    let (mut common, mut judged) = (bench(Mode::Off), bench(Mode::Loose));
    let mut left = 0;
    for round in 0..600 {
        let port = rng.below(PORTS as u64) as usize;
        let count = 1 + rng.below(40);
        let frames: Vec<_> = (0..count).map(|_| framed(port, &packet(&mut rng, port))).collect();
        if round % 50 == 25 {
            for bench in [&mut common, &mut judged] {
                let is_up = round % 100 == 75;
                bench.router.set_link(bench.now, 3, is_up, &mut bench.memory).expect("a port");
            }
        }
        let [found, expected] = [&mut common, &mut judged].map(|bench| pass(bench, port, &frames));
        assert_eq!(found.2, expected.2, "discards in round {round}");
        assert_eq!((found.0.len(), found.1.len()), (expected.0.len(), expected.1.len()));
        // (Frames are too long to be shown.)
        let is_other = found.0.iter().zip(&expected.0).position(|(one, other)| one != other);
        assert_eq!(is_other, None, "round {round}");
        assert!(found.1 == expected.1, "copies of round {round}");
        left += found.0.len();
    }
    let discarded =
        |why| -> u64 { judged.router.ports().iter().map(|port| port.discards().of(why)).sum() };
    for why in [Discard::Fragment, Discard::Denied, Discard::Expired, Discard::TooBig] {
        assert!(discarded(why) > 20, "{why:?}: {}", discarded(why));
    }
    assert!(left > 5_000, "{left}");
    let met = |bench: &Bench| {
        let filters = bench.router.tables().filters4.iter();
        filters.map(|(_, _, filter)| (filter.packets, filter.bytes)).collect::<Vec<_>>()
    };
    assert_eq!(met(&common), met(&judged));
}
